//! An answer for people: a sentence, each setting that was tried, what makes the best one last. 80 columns.

use std::fmt::Write;

use iowhy_compare::text::Style;
use iowhy_text::{count, shown};

use super::{LEVEL_PREDICTED, Origin, Saving, Tuned, keep};
use crate::why::text::paragraph;

/// Longest settings within a line, and longest name of a job.
const NAME: usize = 40;

fn interval(of: &Saving) -> String {
    let [low, high] = of.ci_pct;
    if low.is_finite() && high.is_finite() { format!("[{low:.0}, {high:.0}]") } else { "[one block]".to_owned() }
}

/// The answer in a sentence.
pub fn sentence(tuned: &Tuned) -> String {
    if let Some(of) = tuned.best.map(|best| &tuned.tried[best]) {
        let predicted = of.predicted.as_ref();
        let predicted =
            predicted.map_or(String::new(), |of| format!("; the twin predicted {:.0} % {}", of.pct, interval(of)));
        // Else its own interval would speak against it.
        let why = match of.obtained.ci_pct[0] > 0.0 {
            true => String::new(),
            false => {
                format!("; with the saving that was expected, its {:.0} % interval is above 0", 100.0 * LEVEL_PREDICTED)
            }
        };
        let settings = super::shown(&of.settings);
        let saved = format!("{:.0} % {}", of.obtained.pct, interval(&of.obtained));
        return format!("{settings} saves {saved} of the time{predicted}{why}.");
    }
    if let Some(of) = tuned.undecided() {
        return format!(
            "Cannot tell yet: {} may save {:.0} % {} of the time. More runs of each (--runs) settle it.",
            super::shown(&of.settings),
            of.obtained.pct,
            interval(&of.obtained)
        );
    }
    match tuned.tried.len() {
        0 => "Keep what is there: no setting of this disk matters to the job.".to_owned(),
        nr => format!(
            "Keep what is there: {} tried, none of them surely 2 % faster.",
            count(nr as u64, "setting", "settings")
        ),
    }
}

/// The answer as text; without the details if it is to be brief.
pub fn text(tuned: &Tuned, brief: bool, style: Style) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &style.bold(&sentence(tuned)));
    if !tuned.tried.is_empty() {
        let _ = writeln!(text, "\n{:<NAME$}      predicted  saved  90 % interval", style.bold("Tried"));
    }
    for of in &tuned.tried {
        let predicted = match (&of.predicted, of.origin) {
            (Some(of), _) => format!("{:.0} % {}", of.pct, interval(of)),
            (None, Origin::Guess) => "a guess".to_owned(),
            (None, Origin::Rule) => "a rule".to_owned(),
            (None, _) => "-".to_owned(),
        };
        let settings = shown(&super::shown(&of.settings), NAME);
        let saved = format!("{:.0} %", of.obtained.pct);
        let _ = writeln!(text, "{settings:<NAME$}  {predicted:>13}  {saved:>5}  {}", interval(&of.obtained));
    }
    for (label, why) in &tuned.refused {
        paragraph(&mut text, "", &format!("Not tried: {label}, {why}"));
    }
    if let Some(best) = tuned.best {
        let _ = writeln!(text, "\n{}", style.bold("Until the next start"));
        let _ = writeln!(text, "  {}", keep::for_now(&tuned.disk, &tuned.tried[best].settings));
    }
    for of in &tuned.keep {
        let _ = writeln!(text, "\n{}", style.bold(&format!("To keep it, a {} in {}", of.what, of.file)));
        // Lines to copy are not wrapped.
        of.text.lines().for_each(|line| {
            let _ = writeln!(text, "{}{line}", if line.is_empty() { "" } else { "  " });
        });
        of.note.iter().for_each(|note| paragraph(&mut text, "  ", &format!("({note})")));
    }
    if brief {
        return text;
    }
    if !tuned.options.is_empty() {
        let _ = writeln!(text, "\n{}", style.bold("Options in the program, as the twin predicts"));
    }
    for of in &tuned.options {
        let _ = writeln!(text, "  {:>3.0} % {:<9}  {}", of.predicted.pct, interval(&of.predicted), of.code);
    }
    text.push('\n');
    let twin = &tuned.agreement;
    let agreement = match (&twin.why_not, twin.usable) {
        (_, true) => format!("Twin: agrees with the recording, time {:.0} %", twin.time_pct.unwrap_or(0.0)),
        (Some(why), false) => format!("Twin: no predictions, {why}"),
        (None, false) => "Twin: no predictions".to_owned(),
    };
    paragraph(&mut text, "", &agreement);
    if let Some(nearest) = &twin.nearest {
        paragraph(&mut text, "", &format!("Model: {nearest}"));
    }
    let runs = count(u64::from(tuned.runs), "run", "runs");
    paragraph(&mut text, "", &format!("{runs} of {} on {}", shown(&tuned.target, NAME), tuned.disk));
    text
}
