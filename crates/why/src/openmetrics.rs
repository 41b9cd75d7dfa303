//! An explanation as OpenMetrics text: the verdict, the change, and each finding with its share and its experiment.

use super::outcome::Outcome;
use super::{Explanation, Finding, certainty};
use iowhy_compare::Verdict;
use iowhy_text::openmetrics::{self, Gauge};

/// The text.
pub fn text(explanation: &Explanation) -> String {
    let sides = || vec![("baseline", explanation.a.clone()), ("candidate", explanation.b.clone())];
    let with = |label: &'static str, value: &str| [sides(), vec![(label, value.to_owned())]].concat();
    let verdicts = [Verdict::Regression, Verdict::Improvement, Verdict::Same, Verdict::Inconclusive];
    let verdict = verdicts.map(|of| (with("verdict", of.word()), f64::from(u8::from(of == explanation.verdict))));
    let of_finding = |value: &dyn Fn(&Finding) -> Option<f64>| {
        let labels = |of: &Finding| [with("rule", of.rule.name), vec![("layer", of.rule.layer.to_owned())]].concat();
        explanation.findings.iter().filter_map(|of| Some((labels(of), value(of)?))).collect::<Vec<_>>()
    };
    let outcomes = [Outcome::Confirmed, Outcome::Partly, Outcome::Refuted, Outcome::NotReproduced, Outcome::Undecided];
    let experiment = explanation.findings.iter().filter_map(|of| Some((of.rule.name, of.counterfactual.as_ref()?)));
    let experiment = experiment.flat_map(|(rule, made)| {
        outcomes.map(|of| {
            let labels = [with("rule", rule), vec![("outcome", of.word().to_owned())]].concat();
            (labels, f64::from(u8::from(of == made.outcome)))
        })
    });
    let families = [
        Gauge {
            name: "iowhy_explain_verdict",
            unit: "",
            help: "1 for the verdict on the candidate, 0 for the others.",
            samples: verdict.into(),
        },
        Gauge {
            name: "iowhy_explain_change_percent",
            unit: "percent",
            help: "Change of the compared time from the baseline to the candidate.",
            samples: vec![(sides(), explanation.change_pct)],
        },
        Gauge {
            name: "iowhy_explain_unexplained_percent",
            unit: "percent",
            help: "Part of the change without a cause.",
            samples: vec![(sides(), explanation.unexplained_pct)],
        },
        Gauge {
            name: "iowhy_finding_share_percent",
            unit: "percent",
            help: "Part of the change that a finding explains.",
            samples: of_finding(&|of| Some(of.share_pct)),
        },
        Gauge {
            name: "iowhy_finding_confidence_ratio",
            unit: "ratio",
            help: "How sure a finding is, 0 to 1.",
            samples: of_finding(&|of| Some(of.confidence)),
        },
        Gauge {
            name: "iowhy_finding_certainty_ratio",
            unit: "ratio",
            help: "How often planted causes with the finding's word of certainty were right.",
            samples: of_finding(&|of| certainty::of(of.confidence).rate(explanation.live)),
        },
        Gauge {
            name: "iowhy_finding_gone_percent",
            unit: "percent",
            help: "Part of the change that is gone with the finding's cause switched off.",
            samples: of_finding(&|of| of.counterfactual.as_ref().map(|made| made.gone_pct)),
        },
        Gauge {
            name: "iowhy_finding_experiment",
            unit: "",
            help: "1 for the outcome of a finding's experiment, 0 for the others.",
            samples: experiment.collect(),
        },
    ];
    openmetrics::text(&families)
}
