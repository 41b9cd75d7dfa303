//! Figures with their units, and results of experiments in a sentence.

use iowhy_text::quantity;
use iowhy_why::{Counterfactual, Outcome, Unit};

/// A figure with its unit.
pub(super) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        // The remainder of a difference of means is not a time.
        Unit::Ns if value.abs() < 0.05 => "0 s".to_owned(),
        Unit::Ns => quantity(value / 1e9, "s", 3),
        Unit::Share => format!("{:.1} %", 100.0 * value),
        Unit::Bytes => {
            let kib = value / 1024.0;
            if kib >= 1024.0 { format!("{:.1} MiB", kib / 1024.0) } else { format!("{kib:.1} KiB") }
        }
        Unit::BytesPerS => quantity(value, "B/s", 3),
        Unit::Pages => format!("{} pages", plain(value)),
        Unit::Count | Unit::Ratio => plain(value),
    }
}

/// A number without digits that say nothing.
fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// The result of an experiment, in a sentence.
pub(super) fn experiment(of: &Counterfactual, explained_pct: f64) -> String {
    let (title, with, [before, after]) = (of.title(), &of.setting, [of.change_pct_before, of.change_pct_after]);
    match of.outcome {
        Outcome::NotReproduced => format!(
            "{title}: made again, the sides differ by {before:+.1} % where {explained_pct:+.1} % were to be explained."
        ),
        _ => {
            let but = match of.outcome {
                Outcome::Partly if of.device_only => ", but that is another setting of the device",
                Outcome::Partly if of.figures_moved == Some(false) => ", but the figures below did not move with it",
                _ => "",
            };
            format!("{title}: with {with} the change is {after:+.1} % instead of {before:+.1} %{but}.")
        }
    }
}
