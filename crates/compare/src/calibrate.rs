//! The effect of a machine's own noise on comparisons: runs of one configuration, compared with themselves.
//!
//! Every stretch of consecutive runs that is long enough is cut into two sides in both ways in which people make them:
//! *interleaved*, each block of two in random order, and *sequential*, the first half against the second. Nothing
//! differs between the sides, so each regression or improvement is a false alarm. Stretches overlap; their share of
//! alarms is given the interval (Clopper & Pearson 1934, at 95 %) of as many comparisons as there are stretches side by
//! side, which is wide unless there are many runs.
//! The smallest detectable change is that of the sides' size with a power of 80 %, the median over the stretches.

use iowhy_stack::rng::Rng;
use serde_json::{Value, json};

use crate::{Calibration, Design, Settings, Verdict, compare};
use iowhy_stats::metric::{Column, Group, RunFacts};
use iowhy_stats::{median_sorted, share, sorted};
use iowhy_text as text;

/// Settings of a calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Runs of each side of a comparison.
    pub per_side: usize,
    /// How the comparisons are made.
    pub settings: Settings,
}

/// Interleaved sides that are made of each stretch.
const ORDERS: usize = 20;

/// The calibrations of all metrics of runs of one configuration, in the order in which they were made. None if there
/// are too few runs for a single comparison.
pub fn of_runs(group: &Group, ask: &Ask) -> Vec<Calibration> {
    let mut found = Vec::new();
    for column in &group.columns {
        let wanted = &ask.settings.metrics;
        let known = if wanted.is_empty() {
            iowhy_stats::metric::HEADLINES.contains(&column.metric.name.as_str())
        } else {
            wanted.contains(&column.metric.name)
        };
        if !known || column.values.len() < 2 * ask.per_side || column.values.iter().all(|value| *value == 0.0) {
            continue;
        }
        found.extend([Design::Interleaved, Design::Sequential].map(|design| of_column(group, column, design, ask)));
    }
    found
}

fn of_column(group: &Group, column: &Column, design: Design, ask: &Ask) -> Calibration {
    let settings = Settings { detail: false, metrics: vec![column.metric.name.clone()], ..ask.settings.clone() };
    let mut rng = Rng::stream(settings.seed, "calibration");
    let length = 2 * ask.per_side;
    let (mut comparisons, mut false_alarms, mut detectable) = (0, 0, Vec::new());
    for stretch in column.values.windows(length) {
        let orders = if design == Design::Interleaved { ORDERS } else { 1 };
        for _ in 0..orders {
            let (a, b) = sides(column, stretch, design, &mut rng);
            let Some(row) = compare(&a, &b, &settings).rows.pop() else { continue };
            comparisons += 1;
            false_alarms += usize::from(matches!(row.verdict, Verdict::Regression | Verdict::Improvement));
            detectable.extend(Some(row.detectable_pct).filter(|pct| pct.is_finite()));
        }
    }
    // Stretches that share no run.
    let apart = (column.values.len() / length) as f64;
    let alarms_apart = apart * false_alarms as f64 / comparisons.max(1) as f64;
    Calibration {
        job: group.runs.first().map(|run| run.job.clone()).unwrap_or_default(),
        metric: column.metric.name.clone(),
        design,
        runs: column.values.len(),
        per_side: ask.per_side,
        comparisons,
        false_alarms,
        false_alarm_ci: share::interval(alarms_apart, apart, 0.95),
        detectable_pct: median_sorted(&sorted(&detectable)),
    }
}

/// The two sides of a stretch.
fn sides(column: &Column, stretch: &[f64], design: Design, rng: &mut Rng) -> (Group, Group) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    match design {
        Design::Sequential => {
            let (first, second) = stretch.split_at(stretch.len() / 2);
            (a, b) = (first.to_vec(), second.to_vec());
        }
        Design::Interleaved => {
            for pair in stretch.chunks_exact(2) {
                let first = rng.below(2) as usize;
                a.push(pair[first]);
                b.push(pair[1 - first]);
            }
        }
    }
    let side = |label: &str, values: Vec<f64>| {
        let interleaved = design == Design::Interleaved;
        let facts = |block: usize| RunFacts { block: interleaved.then_some(block as u64), ..RunFacts::default() };
        let runs: Vec<RunFacts> = (0..values.len()).map(facts).collect();
        let places = (0..values.len()).collect();
        let column = Column { metric: column.metric.clone(), values, runs: places, left_out: 0 };
        Group { label: label.to_owned(), runs, columns: vec![column] }
    };
    (side("a", a), side("b", b))
}

/// `iowhy.calibrate/1`.
pub fn json(found: &[Calibration], ask: &Ask) -> Value {
    let one = |calibration: &Calibration| {
        json!({
            "job": calibration.job,
            "metric": calibration.metric,
            "design": calibration.design.word(),
            "runs": calibration.runs,
            "per_side": calibration.per_side,
            "comparisons": calibration.comparisons,
            "false_alarms": calibration.false_alarms,
            "false_alarm_pct": 100.0 * calibration.false_alarms as f64 / calibration.comparisons.max(1) as f64,
            "false_alarm_ci_low_pct": 100.0 * calibration.false_alarm_ci.0,
            "false_alarm_ci_high_pct": 100.0 * calibration.false_alarm_ci.1,
            "detectable_pct": Some(calibration.detectable_pct).filter(|pct| pct.is_finite()),
        })
    };
    json!({
        "schema": "iowhy.calibrate/1",
        "alpha": ask.settings.alpha,
        "margin_pct": ask.settings.margin_pct,
        "calibrations": found.iter().map(one).collect::<Vec<Value>>(),
    })
}

/// The same as text.
pub fn text(found: &[Calibration], ask: &Ask) -> String {
    let mut out = String::new();
    let Some(first) = found.first() else { return out };
    out.push_str(&format!(
        "{} of one configuration, compared with themselves, {} a side, alpha {}\n\n",
        text::count(first.runs as u64, "run", "runs"),
        ask.per_side,
        ask.settings.alpha
    ));
    out.push_str(&format!("{:<16} {:<12} {:>22} {:>16} {:>9}\n", "", "order", "false alarms", "95 %", "detects"));
    for calibration in found {
        let (low, high) = calibration.false_alarm_ci;
        let alarms = format!(
            "{} of {} ({:.1} %)",
            calibration.false_alarms,
            calibration.comparisons,
            100.0 * calibration.false_alarms as f64 / calibration.comparisons.max(1) as f64
        );
        let range = format!("{:.1} .. {:.1} %", 100.0 * low, 100.0 * high);
        let detects = if calibration.detectable_pct.is_finite() {
            format!("{:.2} %", calibration.detectable_pct)
        } else {
            "nothing".to_owned()
        };
        out.push_str(&format!(
            "{:<16} {:<12} {alarms:>22} {range:>16} {detects:>9}\n",
            calibration.metric,
            calibration.design.word()
        ));
    }
    out.push_str(
        "\n`detects`: the smallest change that such a comparison shows with a power of 80 %.\n\
         The interval counts only comparisons that share no run; more runs make it narrower.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stats::metric::Metric;

    fn runs(values: Vec<f64>) -> Group {
        let facts = RunFacts { job: "a job".to_owned(), ..RunFacts::default() };
        let column = Column { metric: Metric::of("iops"), runs: (0..values.len()).collect(), values, left_out: 0 };
        Group { label: "x".to_owned(), runs: vec![facts; column.values.len()], columns: vec![column] }
    }

    fn ask(per_side: usize) -> Ask {
        Ask { per_side, settings: Settings::default() }
    }

    #[test]
    fn a_machine_that_drifts_is_caught_by_the_order_that_hides_nothing() {
        let noise = |n: usize| f64::from((n as u32 * 7919) % 97) / 97.0;
        // Two speeds, as of a machine that throttles after a while: each half of the time one of them.
        let steps: Vec<f64> = (0..120).map(|n| if n / 20 % 2 == 0 { 100.0 } else { 90.0 } + noise(n)).collect();
        let found = of_runs(&runs(steps), &ask(10));
        let [interleaved, sequential] = &found[..] else { panic!("{found:?}") };
        assert_eq!((interleaved.design, sequential.design), (Design::Interleaved, Design::Sequential));
        assert_eq!((sequential.comparisons, interleaved.comparisons), (101, 101 * ORDERS));
        let share = |found: &Calibration| found.false_alarms as f64 / found.comparisons as f64;
        assert!(share(interleaved) < 0.02, "{interleaved:?}");
        assert!(share(sequential) > share(interleaved), "{sequential:?}");
        assert_eq!(found[0].job, "a job");
    }

    #[test]
    fn too_few_runs_say_nothing() {
        assert_eq!(of_runs(&runs(vec![1.0; 9]), &ask(5)), []);
        assert_eq!(text(&[], &ask(5)), "");
    }
}
