//! The only place where `why` meets the twin: agreement and predictions of a recording.

use iowhy_stack::trace::Trace;
use iowhy_trace::join::Who;
use iowhy_trace::settings::Settings;

use super::Finding;
use crate::profile::Profile;
pub use crate::twin::Agreement;
use crate::twin::{Prediction, Twin};

impl From<Prediction> for Finding {
    fn from(of: Prediction) -> Finding {
        let evidence = of.evidence.into_iter().flat_map(|figure| {
            let unit = figure.unit.word();
            [
                (format!("{}, as it is", figure.what), figure.a, unit),
                (format!("{}, changed", figure.what), figure.b, unit),
            ]
        });
        Finding {
            rule: of.rule,
            layer: of.layer,
            claim: of.claim,
            confidence: of.confidence,
            cost_ns_per_call: of.cost_ns_per_call,
            saves_pct: of.saves_pct,
            saves_ci_pct: of.saves_ci_pct,
            setting: of.setting,
            evidence: evidence.collect(),
            refute: of.refute,
            costs_others: of.costs_others,
            safe: of.safe,
            predicted: true,
            tried: None,
        }
    }
}

/// Asks the twin of a recording, on the disk that it shows, joined with what a probe or an earlier fit has measured.
pub(super) fn ask(trace: &Trace, settings: &Settings, disk: Option<&Profile>) -> (Agreement, Vec<Prediction>) {
    match Twin::of(trace, settings, &Who::default(), disk) {
        Ok(twin) => (twin.agreement().clone(), twin.what_if()),
        Err(why) => (Agreement { why_not: Some(why), ..Agreement::default() }, Vec::new()),
    }
}
