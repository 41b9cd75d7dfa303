//! A gate as OpenMetrics text: its outcome, and the change of each metric with its interval.

use super::Comparison;
use super::gate::{Gate, Outcome};
use iowhy_text::openmetrics::{self, Gauge};

/// The text.
pub fn text(comparison: &Comparison, gate: &Gate) -> String {
    let sides = || vec![("baseline", comparison.a.clone()), ("candidate", comparison.b.clone())];
    let with = |label: &'static str, value: &str| [sides(), vec![(label, value.to_owned())]].concat();
    let outcomes = |of: Outcome, labels: Vec<(&'static str, String)>| {
        [Outcome::Pass, Outcome::Fail, Outcome::Open].map(|outcome| {
            let labels = [labels.clone(), vec![("outcome", outcome.word().to_owned())]].concat();
            (labels, f64::from(u8::from(outcome == of)))
        })
    };
    let rows = || comparison.rows.iter().map(|row| (with("metric", &row.metric.name), row));
    let of_rows = rows().zip(&gate.outcomes).flat_map(|((labels, _), of)| outcomes(*of, labels)).collect();
    let percent = |name, help, samples| Gauge { name, unit: "percent", help, samples };
    let families = [
        Gauge {
            name: "iowhy_gate",
            unit: "",
            help: "1 for the outcome of the gate, 0 for the others.",
            samples: outcomes(gate.outcome, sides()).into(),
        },
        Gauge {
            name: "iowhy_gate_metric",
            unit: "",
            help: "1 for the outcome of a metric, 0 for the others.",
            samples: of_rows,
        },
        percent(
            "iowhy_gate_allowance_percent",
            "Allowed change for the worse.",
            gate.allowance_pct.iter().map(|pct| (sides(), *pct)).collect(),
        ),
        percent(
            "iowhy_gate_change_percent",
            "Change of a metric from the baseline to the candidate.",
            rows().map(|(labels, row)| (labels, row.change_pct)).collect(),
        ),
        percent(
            "iowhy_gate_change_low_percent",
            "Lower end of the interval of the change.",
            rows().map(|(labels, row)| (labels, row.ci_pct.0)).collect(),
        ),
        percent(
            "iowhy_gate_change_high_percent",
            "Upper end of the interval of the change.",
            rows().map(|(labels, row)| (labels, row.ci_pct.1)).collect(),
        ),
    ];
    openmetrics::text(&families)
}
