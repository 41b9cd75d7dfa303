//! Mechanisms that make I/O slower, one file each: what it is, how it shows in events, what to do, what would refute it.
//!
//! A rule looks at the digests of a slow and a fast side and says whether the slow one suffers from its mechanism and
//! the fast one does not. It judges a layer by what it makes of equal input, so that it does not take what another layer
//! did for its own. [`RULES`] is in the order of the path; docs/RULES.md is made of it.

use crate::explain::delta::{Contrast, Delta, Unit};
use crate::explain::Evidence;

mod changed_job;

/// A mechanism.
#[derive(Debug)]
pub struct Rule {
    /// Its name: short, stable, the field's own words.
    pub name: &'static str,
    /// The layer it is in, as the split over layers names it.
    pub layer: &'static str,
    /// What it is: one sentence.
    pub what: &'static str,
    /// Why it is slow.
    pub why: &'static str,
    /// How it looks in events.
    pub events: &'static str,
    /// An example that happened, or a command that shows it.
    pub example: &'static str,
    /// What to change.
    pub change: &'static str,
    /// The experiment that would refute it.
    pub refute: &'static str,
    /// Which kernels have it, and since when.
    pub since: &'static str,
    /// Rules whose findings follow from this one, and are not told beside it.
    pub consequences: &'static [&'static str],
    /// What to switch to see it go.
    pub switches: &'static [Switch],
    /// Looks for it.
    pub find: fn(&Delta<'_>) -> Option<Match>,
}

/// One thing that can be switched on the slow side, to see whether the difference goes. They are tried in order; the
/// first that applies to the run is made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// A patch of the simulated kernel.
    Patch(&'static str),
    /// A key of the simulated kernel with a value.
    Key(&'static str, &'static str),
    /// A key of the simulated kernel with the value that the fast side has; nothing if they are equal.
    Other(&'static str),
    /// All keys of a kind (`elevator.`) with the values that the fast side has.
    OtherKind(&'static str),
    /// The fast side's device.
    OtherDevice,
    /// A word to add to the job's command line.
    Word(&'static str),
    /// The fast side's job.
    OtherJob,
    /// On the running kernel: a file of the disk's queue folder in sysfs, with the value that the fast side had.
    Queue(&'static str),
    /// On the running kernel: the same with this value.
    QueueTo(&'static str, &'static str),
    /// On the running kernel: pages of the files are dropped before each run.
    DropPages,
    /// On the running kernel: each thread opens the files for itself.
    OwnDescriptors,
    /// On the running kernel: the advice that the files are opened with is left out.
    NoAdvice,
}

/// What a rule found.
#[derive(Clone, Debug)]
pub struct Match {
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// How much longer an operation takes because of it, ns; nothing if it explains whatever the others do not.
    pub share_ns: Option<f64>,
    /// In a sentence, with figures.
    pub claim: String,
    /// Figures.
    pub evidence: Vec<Figure>,
}

/// A figure as a rule has it: of the fast and the slow side.
#[derive(Clone, Debug)]
pub struct Figure {
    what: String,
    contrast: Contrast,
    unit: Unit,
}

impl Figure {
    /// One.
    pub fn new(what: impl Into<String>, contrast: Contrast, unit: Unit) -> Figure {
        Figure { what: what.into(), contrast, unit }
    }

    /// Base first.
    pub fn oriented(&self, delta: &Delta<'_>) -> Evidence {
        let [a, b] = delta.oriented(&self.contrast);
        Evidence { what: self.what.clone(), a, b, unit: self.unit }
    }
}

/// Every rule, from the top of the path down.
pub const RULES: &[&Rule] = &[&changed_job::RULE];

/// The rule of this name.
pub fn find(name: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.name == name)
}

/// How sure a figure makes: half at `from`, all at `to`, on a scale of ratios.
pub fn grade(value: f64, from: f64, to: f64) -> f64 {
    if !value.is_finite() {
        return 1.0;
    }
    let (value, from, to) = (value.max(f64::MIN_POSITIVE).ln(), from.ln(), to.ln());
    (0.5 + 0.5 * (value - from) / (to - from)).clamp(0.5, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_complete_and_name_each_other_rightly() {
        for (nr, rule) in RULES.iter().enumerate() {
            assert!(RULES[..nr].iter().all(|other| other.name != rule.name), "{} is there twice", rule.name);
            for (of, text) in [
                ("what", rule.what),
                ("why", rule.why),
                ("events", rule.events),
                ("example", rule.example),
                ("change", rule.change),
                ("refute", rule.refute),
                ("since", rule.since),
            ] {
                assert!(text.len() > 10, "{}: {of}", rule.name);
            }
            for other in rule.consequences {
                assert!(find(other).is_some(), "{} has the consequence {other}, which is no rule", rule.name);
                assert!(*other != rule.name, "{} follows from itself", rule.name);
            }
        }
    }
}
