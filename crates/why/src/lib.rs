//! Why: the difference of two groups of runs, split over layers, with the mechanisms that explain it.
//!
//! ```text
//! events    of each run, simulated or captured, become a digest ([`digest`])
//! layers    the time of an operation is split over the layers of the path, and so is its difference ([`layers`])
//! rules     each looks for one mechanism in the digests of the slow and the fast side ([`crate::rules`])
//! findings  what the rules found, without those that are consequences of others, largest share first
//! ```
//! Rules judge a layer by what it does with equal input: read-ahead for equal calls, the device for equal commands. A
//! difference caused by a layer above is not called a cause. Which of the two groups is the slow one does not
//! matter to a rule; a cause that is gone explains an improvement.

pub mod certainty;
pub mod delta;
pub mod digest;
pub mod json;
pub mod layers;
pub mod matrix;
pub mod openmetrics;
pub mod outcome;
pub mod rules;

pub use delta::{Basis, Contrast, Delta, Unit};
use digest::Digest;
use iowhy_compare::{Comparison, Verdict};
use iowhy_trace::settings::{Command, Settings};
pub use layers::LayerDelta;
pub use outcome::{Counterfactual, Outcome};
use rules::{Need, Owns, Rule, Single};

/// One side: runs that were made alike.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub label: String,
    pub runs: Vec<Digest>,
    /// Its events come from a trace of a running kernel.
    pub live: bool,
    /// Windows were inferred from pages, because the kernel does not trace them.
    pub inferred_windows: bool,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Kinds of records that are missing in some run.
    pub lacks: Vec<Need>,
    /// Circumstances of the recordings.
    pub settings: Vec<Settings>,
    /// The disk's scheduler, where recordings do not have it.
    pub scheduler: Option<String>,
}

impl Side {
    /// The scheduler of the disk, if it is known.
    fn scheduler(&self) -> Option<&str> {
        let recorded = || {
            let settings = self.settings.first()?;
            settings.get(settings.get("recording", "disk")?, "scheduler")
        };
        self.scheduler.as_deref().or_else(recorded)
    }
}

/// A figure that speaks for a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The measured quantity.
    pub what: String,
    /// Of A.
    pub a: f64,
    pub b: f64,
    /// In what.
    pub unit: Unit,
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
    /// The setting to change, if the sides are real runs.
    pub advice: Option<Advice>,
}

/// The setting to change on the slow side.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// A command, or what to do.
    pub set: String,
    /// Change of the time for an operation on the slow side, percent, by the cause's share.
    pub predicted_pct: f64,
    /// The same, measured.
    pub measured_pct: Option<f64>,
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
    /// Basis of the comparison.
    pub basis: Basis,
    /// Its time, ns, of each: the mean over the runs.
    pub time_ns: [f64; 2],
    /// Change of it in percent of A.
    pub change_pct: f64,
    /// Interval of the change at [`LEVEL`], percent; infinite from single runs.
    pub ci_pct: (f64, f64),
    /// The verdict on the difference.
    pub verdict: Verdict,
    /// Why that is so.
    pub because: String,
    /// The metrics of the runs, where they are known.
    pub comparison: Option<Comparison>,
    /// The split.
    pub layers: Vec<LayerDelta>,
    /// Causes, best first.
    pub findings: Vec<Finding>,
    /// Part without a cause, percent of the difference.
    pub unexplained_pct: f64,
    /// Differences in the circumstances of both sides: candidates, not causes.
    pub only_difference: Vec<(String, [String; 2])>,
    /// Rules that were not asked, and the records that they need and do not have.
    pub cannot_ask: Vec<(&'static str, Vec<Need>)>,
    /// The runs are recordings of a running kernel.
    pub live: bool,
    /// Resource usage of each side's command, if there was one: the first run of each.
    pub commands: [Option<Command>; 2],
    /// Lost events, inferred windows, single runs.
    pub warnings: Vec<String>,
}

/// Level of the interval of the change.
pub const LEVEL: f64 = 0.95;

/// Changes of the time for an operation up to this are not explained, percent.
pub const MATERIAL_PCT: f64 = 1.0;

/// A finding has to own this part of the difference, of recordings and of simulated runs.
const LEAST_SHARE: [f64; 2] = [0.1, 0.05];
/// The highest confidence for single recordings of real programs, and for a rule that no live plant has fired.
const CAPPED: f64 = 0.89;

/// Single recordings without a cause that differ by more than this are called slower or faster.
const SURELY_OTHER: f64 = 4.0;
/// The least share of the difference between single recordings that a rule by times has to own, and their least
/// distance.
const LARGE_SHARE: f64 = 0.4;
const LARGE_APART: f64 = 1.6;
/// And this many times where the device may have been slower by itself: equal runs on the disk of a shared machine were
/// up to 2.0 times apart.
const DEVICE_APART: f64 = 2.25;

/// Explains the difference from `a` to `b`. `comparison` is that of the metrics of the same runs, if there is one.
pub fn explain(a: &Side, b: &Side, comparison: Option<Comparison>) -> Explanation {
    let delta = Delta::new(a, b);
    let mut layers = layers::split(&delta);
    for layer in &mut layers {
        layer.a *= delta.scale();
        layer.b *= delta.scale();
    }
    let (mut verdict, mut because) = delta.verdict();
    let mut findings: Vec<Finding> = Vec::new();
    let cannot_ask = unasked(&delta);
    let material = !matches!(verdict, Verdict::Same | Verdict::Inconclusive);
    if material {
        findings = found(&delta);
    }
    if material && findings.is_empty() && delta.live() && delta.single() && delta.apart() < SURELY_OTHER {
        // One recording a side is slower for a reason that is seen, or it may be the machine's.
        verdict = Verdict::Inconclusive;
        because = "one recording a side, and no mechanism is seen that makes the difference: record twice more and \
                   name them with commas (A1,A2,A3 B1,B2,B3)"
            .to_owned();
    }
    let explained: f64 = findings.iter().map(|finding| finding.share_pct).sum();
    let mut warnings = delta.warnings();
    if findings.is_empty() && material {
        warnings.push("none of the rules explains this difference: the layers above say where it is".to_owned());
    }
    let only_difference = match (a.settings.first(), b.settings.first()) {
        (Some(a), Some(b)) => a.differences(b),
        _ => Vec::new(),
    };
    let first = |side: &Side| side.runs.first().and_then(|run| run.command);
    Explanation {
        a: a.label.clone(),
        b: b.label.clone(),
        runs: [a.runs.len(), b.runs.len()],
        basis: delta.basis,
        time_ns: delta.time_ns(),
        change_pct: delta.change_pct(),
        ci_pct: delta.interval_pct(LEVEL),
        verdict,
        because,
        comparison,
        layers,
        findings,
        unexplained_pct: if material { (100.0 - explained).max(0.0) } else { 0.0 },
        only_difference,
        cannot_ask,
        live: delta.live(),
        commands: [first(a), first(b)],
        warnings,
    }
}

/// Records that a rule needs and one of the sides does not have.
fn missing(delta: &Delta<'_>, rule: &Rule) -> Vec<Need> {
    let lacks = |need: &&Need| {
        let no_states = **need == Need::States && !delta.stated();
        no_states || delta.fast.lacks.contains(*need) || delta.slow.lacks.contains(*need)
    };
    rule.needs.iter().filter(lacks).copied().collect()
}

fn unasked(delta: &Delta<'_>) -> Vec<(&'static str, Vec<Need>)> {
    // A simulated run has no tasks that wait for a CPU behind its back.
    if !delta.live() {
        return Vec::new();
    }
    let of = |rule: &&'static Rule| (rule.name, missing(delta, rule));
    rules::RULES.iter().map(of).filter(|(_, missing)| !missing.is_empty()).collect()
}

/// All findings of the rules, without consequences of other findings. Each owns a part of an operation's time, and
/// claims at most what that part has grown by; several that own the same share it.
fn found(delta: &Delta<'_>) -> Vec<Finding> {
    let whole = delta.slower_by();
    let asked = rules::RULES.iter().filter(|rule| missing(delta, rule).is_empty());
    let stated = delta.stated();
    let owned = |rule: &Rule| match delta.basis {
        // Only requests are known, so their owner owns all.
        Basis::Request => f64::from(u8::from(rule.owns == Owns::Io)),
        // Without states of tasks, time between calls is also that of fewer calls in progress, for whatever reason.
        _ => {
            let between = if stated { 0.0 } else { 1.0 };
            let own = |time: &digest::Time| rule.owns.of(time) + between * time.of(digest::Layer::Application);
            (delta.time(own).difference() / whole).clamp(0.0, 1.0)
        }
    };
    let live = delta.live();
    let recording = live && delta.single();
    let least = LEAST_SHARE[usize::from(!live)];
    let disturbed = recording && rules::disturbed(delta);
    let matches: Vec<(&'static Rule, rules::Match, f64)> = asked
        .filter_map(|rule| {
            let mut found = (rule.find)(delta)?;
            // Parts of calls are not known without calls.
            found.share_ns = found.share_ns.filter(|_| delta.basis != Basis::Request);
            let own = owned(rule);
            // Times of one run each may differ by what else the machine did.
            let large = own >= LARGE_SHARE && delta.apart() >= LARGE_APART;
            let said = match rule.single {
                _ if !recording => true,
                Single::Counts => true,
                Single::OwnTimes => large,
                Single::Times => large && delta.apart() >= DEVICE_APART && !disturbed,
                Single::Never => false,
            };
            if !said {
                return None;
            }
            // A figure that did not grow by the claim is not the cause.
            let claimed = found.share_ns.map_or(own, |ns| ns / whole);
            (own >= least && claimed.min(own) >= least && own >= 0.5 * claimed.min(1.0)).then_some((*rule, found, own))
        })
        .collect();
    let consequence = |rule: &Rule| matches.iter().any(|(other, ..)| other.consequences.contains(&rule.name));
    let kept: Vec<&(&'static Rule, rules::Match, f64)> =
        matches.iter().filter(|(rule, ..)| !consequence(rule)).collect();
    // What explains a part of its own comes first; whatever is left is shared by those that explain the rest.
    let part = |(_, found, own): &(&'static Rule, rules::Match, f64)| found.share_ns.map(|ns| (ns / whole).min(*own));
    let parts: f64 = kept.iter().filter_map(|of| part(of)).sum();
    let scale = if parts > 1.0 { 1.0 / parts } else { 1.0 };
    let of_rest: f64 = kept.iter().filter(|(_, found, _)| found.share_ns.is_none()).map(|(_, f, _)| f.confidence).sum();
    let rest = (1.0 - parts * scale).max(0.0);
    let most = if recording { CAPPED } else { 1.0 };
    let seen_live = |rule: &Rule| !live || rules::FIRED_LIVE.iter().any(|(name, _)| *name == rule.name);
    let mut findings: Vec<Finding> = kept
        .iter()
        .map(|of| {
            let (rule, found, own) = of;
            let share = match part(of) {
                Some(part) => part * scale,
                None if of_rest > 0.0 => (rest * found.confidence / of_rest).min(*own),
                None => 0.0,
            };
            Finding {
                rule,
                claim: found.claim.clone(),
                confidence: found.confidence.min(if seen_live(rule) { most } else { most.min(CAPPED) }),
                evidence: found.evidence.iter().map(|evidence| evidence.oriented(delta)).collect(),
                share_pct: 100.0 * share,
                counterfactual: None,
                advice: None,
            }
        })
        .collect();
    findings.retain(|finding| finding.share_pct >= 100.0 * least);
    findings.sort_by(|x, y| (y.share_pct * y.confidence).total_cmp(&(x.share_pct * x.confidence)));
    findings
}
