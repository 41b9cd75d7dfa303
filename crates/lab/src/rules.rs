//! Mechanisms that make I/O slower, one file each: what it is, how it shows in events, what to do, what would refute
//! it.
//!
//! A rule looks at the digests of a slow and a fast side and says whether the slow one suffers from its mechanism and
//! the fast one does not. It judges a layer by what it makes of equal input, so that it does not take what another
//! layer did for its own. [`RULES`] is in the order of the path; docs/RULES.md is made of it.

use crate::explain::Evidence;
use crate::explain::delta::{Contrast, Delta, Unit};

mod alone;
mod async_queue_per_task;
mod cache_too_small;
mod changed_job;
mod cpu_bound_submission;
mod device;
mod device_bandwidth;
mod device_idle_exit;
mod device_iops_cap;
mod device_latency;
mod flush_cost;
mod hinted_pages_evicted;
mod idling_for_the_wrong_reader;
mod invalidation_cost;
mod journal_commit_per_fsync;
mod lock_serialisation;
mod lost_locality;
mod merge_delays_first_page;
mod merging_off;
mod mixed_direct_and_buffered;
mod mmap_read_around;
mod noisy_neighbour;
pub mod page;
mod plug_around_read;
mod queue_depth_one;
mod random_advice;
mod read_larger_than_window;
mod readahead_off;
mod reads;
mod reads_starved;
mod requests_cut;
mod shared_readahead_state;
mod slice_idling;
mod stale_pages_under_direct_io;
mod window_closed_by_hits;
mod window_too_large;
mod window_too_small;
mod writeback_throttling;
mod writes_starved;

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
pub const RULES: &[&Rule] = &[
    &changed_job::RULE,
    &cpu_bound_submission::RULE,
    &lock_serialisation::RULE,
    &stale_pages_under_direct_io::RULE,
    &mixed_direct_and_buffered::RULE,
    &invalidation_cost::RULE,
    &cache_too_small::RULE,
    &hinted_pages_evicted::RULE,
    &shared_readahead_state::RULE,
    &window_closed_by_hits::RULE,
    &random_advice::RULE,
    &readahead_off::RULE,
    &window_too_small::RULE,
    &window_too_large::RULE,
    &read_larger_than_window::RULE,
    &mmap_read_around::RULE,
    &plug_around_read::RULE,
    &requests_cut::RULE,
    &merging_off::RULE,
    &merge_delays_first_page::RULE,
    &idling_for_the_wrong_reader::RULE,
    &slice_idling::RULE,
    &async_queue_per_task::RULE,
    &queue_depth_one::RULE,
    &lost_locality::RULE,
    &reads_starved::RULE,
    &writes_starved::RULE,
    &writeback_throttling::RULE,
    &journal_commit_per_fsync::RULE,
    &flush_cost::RULE,
    &device_latency::RULE,
    &device_bandwidth::RULE,
    &device_iops_cap::RULE,
    &device_idle_exit::RULE,
    &noisy_neighbour::RULE,
];

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
pub(crate) mod tests {
    use super::*;
    use crate::explain::{Explanation, explain, source};
    use crate::incident::command::plan_of_command;

    /// Explains the difference of two command lines from `runs` runs each, with different seeds.
    pub(crate) fn explain_pair(runs: u32, a: &str, b: &str) -> Explanation {
        let side = |line: &str, first| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{line}: {}", problems.render()));
            source::simulate(line, &plan, (first, runs), &|| {}).expect("it runs")
        };
        explain(&side(a, 0), &side(b, runs), None)
    }

    /// The names of what is found, best first.
    pub(crate) fn names(explanation: &Explanation) -> Vec<&'static str> {
        explanation.findings.iter().map(|finding| finding.rule.name).collect()
    }

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
