//! The only place where `why` meets the twin: agreement and predictions of a recording.

use iowhy_stack::trace::Trace;
use iowhy_trace::settings::Settings;

use super::Finding;

/// How well the twin does what was seen, percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    pub usable: bool,
    pub why_not: Option<String>,
    pub windows_pct: Option<f64>,
    pub pages_pct: Option<f64>,
    pub requests_pct: Option<f64>,
    pub time_pct: Option<f64>,
}

/// What one change would save.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    pub(super) rule: &'static str,
    pub(super) layer: &'static str,
    pub(super) claim: String,
    pub(super) confidence: f64,
    pub(super) cost_ns_per_call: f64,
    pub(super) saves_pct: f64,
    pub(super) saves_ci_pct: [f64; 2],
    pub(super) setting: String,
    pub(super) evidence: Vec<(String, f64, &'static str)>,
    pub(super) refute: String,
    pub(super) costs_others: Option<String>,
    pub(super) safe: bool,
}

impl From<Prediction> for Finding {
    fn from(of: Prediction) -> Finding {
        Finding {
            rule: of.rule,
            layer: of.layer,
            claim: of.claim,
            confidence: of.confidence,
            cost_ns_per_call: of.cost_ns_per_call,
            saves_pct: of.saves_pct,
            saves_ci_pct: of.saves_ci_pct,
            setting: of.setting,
            evidence: of.evidence,
            refute: of.refute,
            costs_others: of.costs_others,
            safe: of.safe,
            predicted: true,
            tried: None,
        }
    }
}

/// Asks the twin of a recording.
pub(super) fn ask(_trace: &Trace, _settings: &Settings) -> (Agreement, Vec<Prediction>) {
    (Agreement { why_not: Some("there is none yet".to_owned()), ..Agreement::default() }, Vec::new())
}
