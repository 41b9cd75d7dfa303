//! Why: the difference of two groups of runs, split over layers, with the mechanisms that explain it.
//!
//! ```text
//! events    of each run, simulated or captured, become a digest ([`digest`])
//! layers    the time of an operation is split over the layers of the path, and so is its difference ([`layers`])
//! rules     each looks for one mechanism in the digests of the slow and the fast side ([`crate::rules`])
//! findings  what the rules found, without those that are consequences of others, largest share first
//! ```
//! Rules judge a layer by what it does with equal input: read-ahead for equal calls, the device for equal commands.
//! What differs because of a layer above is not called a cause. Which of the two groups is the slow one does not
//! matter to a rule; a cause that is gone explains an improvement.

pub mod advice;
pub mod delta;
pub mod digest;
pub mod json;
pub mod layers;
pub mod modes;
pub mod prove;
pub mod prove_live;
pub mod source;
pub mod text;

use crate::compare::{Comparison, Verdict};
use crate::rules::{self, Rule};
use crate::stats::welch;
pub use advice::Advice;
pub use delta::{Contrast, Delta, Unit};
use digest::Digest;
pub use layers::LayerDelta;

/// One side: runs that were made alike.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// What it is called.
    pub label: String,
    /// Its runs.
    pub runs: Vec<Digest>,
    /// Its events come from a trace of a running kernel.
    pub live: bool,
    /// Windows were inferred from pages, because the kernel does not trace them.
    pub inferred_windows: bool,
    /// Events that the kernel had no room for.
    pub lost: u64,
}

/// A figure that speaks for a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What was measured.
    pub what: String,
    /// Of A.
    pub a: f64,
    /// Of B.
    pub b: f64,
    /// In what.
    pub unit: Unit,
}

/// What switching one thing off did.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterfactual {
    /// What was switched, as typed.
    pub setting: String,
    /// On which side.
    pub side: String,
    /// Change from A to B, in percent of A's time for an operation, before.
    pub change_pct_before: f64,
    /// And after.
    pub change_pct_after: f64,
    /// Interval of the latter at 95 %.
    pub ci_pct: (f64, f64),
    /// Runs of each kind that it is made of.
    pub runs: u32,
}

impl Counterfactual {
    /// From the times for an operation, ns: of the fast side, of the slow one, and of the slow one with the setting.
    fn of(setting: String, side: &str, [fast, slow, switched]: [&[f64]; 3], a_is_slow: bool) -> Counterfactual {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let quick = mean(fast);
        let (low, high) = welch::interval(fast, switched, 0.95);
        // From base to candidate, whichever of them is slow.
        let change = |slow: f64| match a_is_slow {
            true if slow > 0.0 => 100.0 * (quick - slow) / slow,
            false if quick > 0.0 => 100.0 * (slow - quick) / quick,
            _ => 0.0,
        };
        let ends = [change(quick + low), change(quick + high)];
        Counterfactual {
            setting,
            side: side.to_owned(),
            change_pct_before: change(mean(slow)),
            change_pct_after: change(mean(switched)),
            ci_pct: (ends[0].min(ends[1]), ends[0].max(ends[1])),
            runs: switched.len() as u32,
        }
    }
}

/// A cause.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which mechanism.
    pub rule: &'static Rule,
    /// In a sentence, with the figures of these runs.
    pub claim: String,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// Figures.
    pub evidence: Vec<Evidence>,
    /// How much of the difference it explains, percent.
    pub share_pct: f64,
    /// The experiment, if it was made.
    pub counterfactual: Option<Counterfactual>,
    /// What to set, if the sides are real runs.
    pub advice: Option<Advice>,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Label of the base.
    pub a: String,
    /// Label of the candidate.
    pub b: String,
    /// Runs of each.
    pub runs: [usize; 2],
    /// Time for an operation, ns, of each: the mean over the runs.
    pub time_ns: [f64; 2],
    /// Change of it in percent of A.
    pub change_pct: f64,
    /// What may be said of the difference at all.
    pub verdict: Verdict,
    /// Why that is so.
    pub because: String,
    /// The metrics of the runs, where they are known.
    pub comparison: Option<Comparison>,
    /// The split.
    pub layers: Vec<LayerDelta>,
    /// Causes, best first.
    pub findings: Vec<Finding>,
    /// What no cause explains, percent of the difference.
    pub unexplained_pct: f64,
    /// What should be known: lost events, inferred windows, single runs.
    pub warnings: Vec<String>,
}

/// Changes of the time for an operation up to this are not explained, percent.
pub const MATERIAL_PCT: f64 = 1.0;

/// Explains the difference from `a` to `b`. `comparison` is that of the metrics of the same runs, if there is one.
pub fn explain(a: &Side, b: &Side, comparison: Option<Comparison>) -> Explanation {
    let delta = Delta::new(a, b);
    let layers = layers::split(&delta);
    let (verdict, because) = delta.verdict();
    let mut findings: Vec<Finding> = Vec::new();
    let material = !matches!(verdict, Verdict::Same | Verdict::Inconclusive);
    if material {
        findings = found(&delta);
    }
    let explained: f64 = findings.iter().map(|finding| finding.share_pct).sum();
    let mut warnings = delta.warnings();
    if findings.is_empty() && material {
        warnings.push("none of the rules explains this difference: the layers above say where it is".to_owned());
    }
    Explanation {
        a: a.label.clone(),
        b: b.label.clone(),
        runs: [a.runs.len(), b.runs.len()],
        time_ns: delta.time_ns(),
        change_pct: delta.change_pct(),
        verdict,
        because,
        comparison,
        layers,
        findings,
        unexplained_pct: if material { (100.0 - explained).max(0.0) } else { 0.0 },
        warnings,
    }
}

/// Everything that the rules find, without what is a consequence of something else that was found.
fn found(delta: &Delta<'_>) -> Vec<Finding> {
    let matches: Vec<(&'static Rule, rules::Match)> =
        rules::RULES.iter().filter_map(|rule| (rule.find)(delta).map(|found| (*rule, found))).collect();
    let consequence = |rule: &Rule| matches.iter().any(|(other, _)| other.consequences.contains(&rule.name));
    let kept: Vec<&(&'static Rule, rules::Match)> = matches.iter().filter(|(rule, _)| !consequence(rule)).collect();
    // What explains a part of its own comes first; whatever is left is shared by those that explain the rest.
    let whole = delta.slower_by();
    let own = |found: &rules::Match| found.share_ns.map(|ns| (ns / whole).clamp(0.0, 1.0));
    let parts: f64 = kept.iter().filter_map(|(_, found)| own(found)).sum();
    let scale = if parts > 1.0 { 1.0 / parts } else { 1.0 };
    let of_rest: f64 = kept.iter().filter(|(_, found)| found.share_ns.is_none()).map(|(_, f)| f.confidence).sum();
    let rest = (1.0 - parts * scale).max(0.0);
    let mut findings: Vec<Finding> = kept
        .iter()
        .map(|(rule, found)| {
            let share = match own(found) {
                Some(part) => part * scale,
                None if of_rest > 0.0 => rest * found.confidence / of_rest,
                None => 0.0,
            };
            Finding {
                rule,
                claim: found.claim.clone(),
                confidence: found.confidence,
                evidence: found.evidence.iter().map(|evidence| evidence.oriented(delta)).collect(),
                share_pct: 100.0 * share,
                counterfactual: None,
                advice: None,
            }
        })
        .collect();
    findings.sort_by(|x, y| (y.share_pct * y.confidence).total_cmp(&(x.share_pct * x.confidence)));
    findings
}
