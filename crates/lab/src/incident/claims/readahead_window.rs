//! 2018: a larger read-ahead window.

use iowhy_stack::layers::Layers;

use super::{Checks, ClaimResult, gains};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult, mean};
use iowhy_text as text;

/// Checks of the claims that compare more than two rows.
pub(in crate::incident) const CHECKS: Checks = &[("bonnie-sys", falls), ("shape", shape)];

/// Every compared pair falls: its metric is a cost, so it gains.
fn falls(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    checked.upper = claim.max_change_pct;
    let least = gains(result, claim, checked).into_iter().min_by(f64::total_cmp);
    if let Some(least) = least {
        // As a change: down is negative. A standstill is not a fall.
        checked.judge(-least);
        checked.held &= least > 0.0;
    }
}

/// The table whose shape the claim is about, and its numbers of readers.
const TABLE: &str = "paralleldd-single-ext3-uma";
const READERS: [&str; 5] = ["1", "3", "5", "7", "8"];
/// How far 7 and 8 readers may be from one with small windows.
const MANY: f64 = 0.15;
/// How far any number of readers may be from one with large windows.
const FLAT: f64 = 0.05;

/// With small windows three readers are among the two worst cases and many readers are near one; with large windows
/// all are near one.
fn shape(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let column = |name: &str| -> Option<Vec<f64>> {
        READERS.iter().map(|n| result.row(&format!("{TABLE}/{name}/{n}")).map(RowResult::simulated)).collect()
    };
    let (Some(small), Some(large)) = (column("vanilla"), column("readahead")) else {
        checked.evidence.push(format!("a row of table {TABLE} does not exist"));
        return;
    };
    let distance = |values: &[f64], nr: usize| (values[nr] / values[0] - 1.0).abs();
    let worse = small.iter().filter(|value| **value > small[1]).count();
    let many = distance(&small, 3).max(distance(&small, 4));
    let flat = (1..READERS.len()).map(|nr| distance(&large, nr)).fold(0.0, f64::max);
    checked.held = small[0] > 0.0 && large[0] > 0.0 && small[1] > small[0] && worse < 2 && many <= MANY && flat <= FLAT;
    let list = |values: &[f64]| values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" ");
    checked.evidence.push(format!("128 KB, {} readers: {} s", READERS.join("/"), list(&small)));
    checked.evidence.push(format!("512 KB: {} s", list(&large)));
    checked.evidence.push(format!(
        "with 128 KB {worse} cases are worse than three readers, 7 and 8 are within {:.1}% of one; with 512 KB all are \
         within {:.1}%",
        100.0 * many,
        100.0 * flat
    ));
}

/// The cause in words, every number from this run's own layers: means over the repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, fixed, alone]) = result.parts(["broken", "fixed", "alone"]) else {
        return String::new();
    };
    let per_run = |row: &RowResult, of: fn(&Layers) -> f64| mean(row.samples().map(|sample| of(sample.layers())));
    let waited = |row: &RowResult| per_run(row, |layers| layers.idle_time.as_secs_f64());
    let whole = |number: f64| text::grouped(number.round() as u64);
    let mut words = format!(
        "In row {} three readers of one file take {:.2} s where one takes {:.2} s ({}). They send no more to the disk: \
         {} read commands in the mean of {} runs, {} of one reader. The time is lost while CFQ keeps the disk idle on \
         purpose: {:.2} s a run ({}: {:.2} s). ",
        broken.id,
        broken.simulated(),
        alone.simulated(),
        alone.id,
        whole(per_run(broken, |layers| layers.reads.issued as f64)),
        broken.samples().count(),
        whole(per_run(alone, |layers| layers.reads.issued as f64)),
        waited(broken),
        alone.id,
        waited(alone),
    );
    words.push_str(&format!(
        "It waits for the next request of the reader that has led last, but the lead changes, and the pages that all \
         readers wait for may already stand in the queue of another: {} waits of a run ended because their time was \
         over, {} because another task's request took the turn, and only {} with the request they were for. ",
        whole(per_run(broken, |layers| layers.idles[2] as f64)),
        whole(per_run(broken, |layers| layers.idles[1] as f64)),
        whole(per_run(broken, |layers| layers.idles[0] as f64)),
    ));
    words.push_str(&format!(
        "With windows of 512 KiB a reader that was passed by once comes back 1,024 sectors further on, which is more \
         than the 800 that CFQ takes for a seek: it does not wait for such a reader ({:.2} s a run), and {} takes \
          {:.2} s. ",
        waited(fixed),
        fixed.id,
        fixed.simulated(),
    ));
    if let Some(no_idling) = result.part("no_idling") {
        words.push_str(&format!(
            "The same without larger windows: with slice_idle=0 {} takes {:.2} s. ",
            no_idling.id,
            no_idling.simulated()
        ));
    }
    if let Some(no_seeks) = result.part("no_seeks") {
        words.push_str(&format!(
            "And if the readers come without seeks on record, CFQ merges their queues into one, and {} takes {:.2} s.",
            no_seeks.id,
            no_seeks.simulated()
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};

    #[test]
    fn the_shape_is_recognised() {
        let good = [5.5, 7.7, 7.3, 5.8, 5.7];
        let flat = [5.5, 5.6, 5.7, 5.75, 5.7];
        let table = [
            (good, flat, true),
            // Flat with small windows too: three readers must be worse than one.
            ([5.5; 5], flat, false),
            ([5.5, 6.0, 7.0, 6.2, 6.1], flat, false),
            ([5.5, 7.7, 7.3, 6.8, 5.7], flat, false),
            (good, [5.5, 5.6, 5.8, 5.75, 5.7], false),
        ];
        for (small, large, held) in table {
            let mut rows: Vec<(String, [f64; 1])> = Vec::new();
            for (name, values) in [("vanilla", small), ("readahead", large)] {
                rows.extend(READERS.iter().zip(values).map(|(n, value)| (format!("{TABLE}/{name}/{n}"), [value])));
            }
            let rows: Vec<(&str, &[f64])> = rows.iter().map(|(id, value)| (id.as_str(), &value[..])).collect();
            let result = result("process_mean_s", &rows);
            assert_eq!(checked(&result, "kind='bound'", &[("c", shape)]).held, held, "{small:?} {large:?}");
        }
        assert!(!checked(&result("elapsed_s", &[]), "kind='bound'", &[("c", shape)]).held);
    }

    #[test]
    fn a_cost_must_fall() {
        for (after, held) in [(9.0, true), (10.0, false), (11.0, false)] {
            let mut result = result("cpu_s", &[("before", &[10.0]), ("after", &[after])]);
            compare(&mut result, &[("after", "before")]);
            assert_eq!(checked(&result, "kind='bound'\nmax_change_pct=0", &[("c", falls)]).held, held, "{after}");
        }
    }
}
