//! Mechanisms that make I/O slower, one file each: the mechanism, its events, the remedy, the refutation.
//!
//! A rule looks at the digests of a slow and a fast side and decides whether the slow one suffers from its mechanism
//! and the fast one does not. It judges a layer by what it makes of equal input, so that it does not take what another
//! layer did for its own. [`RULES`] is in the order of the path; docs/RULES.md is made of it.

use crate::Evidence;
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{KIND_OTHER, Layer, Time};
use cost::{Cost, Facts};

mod alone;
mod async_queue_per_task;
mod cache_too_small;
mod calls_to_workers;
mod calls_wait_in_submission;
mod cgroup_io_throttle;
mod changed_job;
mod cold_cache;
pub mod cost;
mod cpu_bound_submission;
mod cpu_contention;
mod cpu_quota;
mod data_journalled;
mod device;
mod device_bandwidth;
mod device_idle_exit;
mod device_iops_cap;
mod device_latency;
mod device_stalls;
mod discards;
mod early_writeback;
#[cfg(test)]
mod edges;
mod flush_before_zeroing;
mod flush_cost;
mod foreign_sync;
mod fragmented_file;
mod hinted_pages_evicted;
mod idling_for_the_wrong_reader;
mod instead;
mod invalidation_cost;
mod journal_commit_per_fsync;
mod lock_serialisation;
mod lost_locality;
mod memory_reclaim;
mod merge_delays_first_page;
mod merges_only_at_dispatch;
mod merging_off;
mod metadata_reads;
mod mixed_direct_and_buffered;
mod mmap_read_around;
mod noisy_neighbour;
mod paced;
mod partial_page_writes;
mod plug_around_read;
mod plug_merge_missed;
mod program_computes_more;
mod program_pauses;
mod queue_depth_one;
mod queue_run_at_once;
mod random_advice;
mod read_larger_than_window;
mod readahead_off;
mod reads;
mod reads_starved;
mod recorded;
mod requests_cut;
mod shared_readahead_state;
mod slice_idling;
mod slow_wakeups;
mod stacked_device;
mod stale_pages_under_direct_io;
mod synchronous_writes;
mod syncs_added;
mod syncs_share_less;
mod throttled_until_drained;
mod window_closed_by_hits;
mod window_too_large;
mod window_too_small;
mod writeback_throttling;
mod writes_starved;

/// Records that a rule reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Calls that read, write and sync.
    Calls,
    /// Pages put into the page cache and taken out.
    Pages,
    /// Read-ahead windows, traced or inferred from pages.
    Windows,
    /// Bios as they are queued.
    Bios,
    /// Requests from insertion to completion.
    Requests,
    /// When tasks run, wait for a CPU, and sleep.
    States,
}

impl Need {
    /// All of them.
    pub const ALL: [Need; 6] = [Need::Calls, Need::Pages, Need::Windows, Need::Bios, Need::Requests, Need::States];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Need::Calls => "calls",
            Need::Pages => "pages",
            Need::Windows => "windows",
            Need::Bios => "bios",
            Need::Requests => "requests",
            Need::States => "CPU states",
        }
    }
}

const CALLS: &[Need] = &[Need::Calls];
const CALLS_AND_BIOS: &[Need] = &[Need::Calls, Need::Bios];
const CALLS_AND_PAGES: &[Need] = &[Need::Calls, Need::Pages];
const WINDOWS: &[Need] = &[Need::Calls, Need::Pages, Need::Windows];
const REQUESTS: &[Need] = &[Need::Bios, Need::Requests];
const ISSUED: &[Need] = &[Need::Requests];
const STATES: &[Need] = &[Need::States];

/// The part of an operation's time that a mechanism can lengthen. A finding never claims more than what this part has
/// grown by.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owns {
    /// All of it: the workload is another one.
    Everything,
    /// The program between calls.
    Program,
    /// The workload does not run.
    Pauses,
    /// Waiting for a CPU.
    Ready,
    /// Code in calls, and locks.
    Code,
    /// Calls with all that they wait for.
    Calls,
    /// Reads with all that they wait for.
    Reads,
    /// Writes and syncs with all that they wait for.
    Writes,
    /// Waiting for I/O in any task.
    Io,
}

const CODE: &[Layer] = &[Layer::Cpu, Layer::Lock];
const IO: &[Layer] = &[Layer::Lock, Layer::Journal, Layer::Plug, Layer::Elevator, Layer::Device];
const IN_CALLS: &[Layer] =
    &[Layer::Cpu, Layer::Lock, Layer::Journal, Layer::Plug, Layer::Elevator, Layer::Device, Layer::Ready];

impl Owns {
    /// That part of a run's time, ns.
    pub fn of(self, time: &Time) -> f64 {
        const ANY: &[usize] = &[0, 1, 2, KIND_OTHER];
        match self {
            Owns::Everything => time.total(),
            Owns::Program => time.within(ANY, &[Layer::Application]),
            Owns::Pauses => time.within(ANY, &[Layer::Pause, Layer::Application]),
            Owns::Ready => time.within(ANY, &[Layer::Ready]),
            Owns::Code => time.within(ANY, CODE),
            Owns::Calls => time.within(ANY, IN_CALLS),
            Owns::Reads => time.within(&[0, KIND_OTHER], IN_CALLS),
            Owns::Writes => time.within(&[1, 2, KIND_OTHER], IN_CALLS),
            Owns::Io => time.within(ANY, IO),
        }
    }
}

/// The worth of a rule's evidence if each side is one recording of a running kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Single {
    /// It counts: sizes, windows, requests, settings do not depend on the machine's other work.
    Counts,
    /// Times that are the workload's own, or say themselves who had the CPUs: if they are large.
    OwnTimes,
    /// Times that others may have lengthened: if they are large, and the machine was undisturbed.
    Times,
    /// Too little to go by.
    Never,
}

/// A mechanism.
#[derive(Debug)]
pub struct Rule {
    /// Its name: short, stable, the field's own words.
    pub name: &'static str,
    /// The layer it is in, as the split over layers names it.
    pub layer: &'static str,
    /// Records without which it is not asked.
    pub needs: &'static [Need],
    /// The time that it may claim.
    pub owns: Owns,
    /// The worth of its evidence on one recording a side.
    pub single: Single,
    /// The mechanism: one sentence.
    pub what: &'static str,
    /// Why it is slow.
    pub why: &'static str,
    /// How it looks in events.
    pub events: &'static str,
    /// An example that happened, or a command that shows it.
    pub example: &'static str,
    /// The change to make.
    pub change: &'static str,
    /// The experiment that would refute it.
    pub refute: &'static str,
    /// Which kernels have it, and since when.
    pub since: &'static str,
    /// Rules whose findings follow from this one, and are left out next to it.
    pub consequences: &'static [&'static str],
    /// The settings that remove it.
    pub switches: &'static [Switch],
    /// Looks for it.
    pub find: fn(&Delta<'_>) -> Option<Match>,
    /// Its cost on one side alone, for mechanisms that leave a mark of their own: a limit that is set and met, a
    /// neighbour, a sleep.
    pub cost: Option<fn(&Facts<'_>) -> Option<Cost>>,
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

/// A rule's finding.
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
    &program_computes_more::RULE,
    &cpu_contention::RULE,
    &cpu_quota::RULE,
    &program_pauses::RULE,
    &calls_to_workers::RULE,
    &calls_wait_in_submission::RULE,
    &cpu_bound_submission::RULE,
    &slow_wakeups::RULE,
    &lock_serialisation::RULE,
    &stale_pages_under_direct_io::RULE,
    &mixed_direct_and_buffered::RULE,
    &invalidation_cost::RULE,
    &cold_cache::RULE,
    &partial_page_writes::RULE,
    &cache_too_small::RULE,
    &memory_reclaim::RULE,
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
    &plug_merge_missed::RULE,
    &merges_only_at_dispatch::RULE,
    &queue_run_at_once::RULE,
    &merging_off::RULE,
    &merge_delays_first_page::RULE,
    &idling_for_the_wrong_reader::RULE,
    &slice_idling::RULE,
    &async_queue_per_task::RULE,
    &queue_depth_one::RULE,
    &lost_locality::RULE,
    &reads_starved::RULE,
    &writes_starved::RULE,
    &cgroup_io_throttle::RULE,
    &throttled_until_drained::RULE,
    &writeback_throttling::RULE,
    &syncs_added::RULE,
    &flush_before_zeroing::RULE,
    &synchronous_writes::RULE,
    &foreign_sync::RULE,
    &data_journalled::RULE,
    &early_writeback::RULE,
    &journal_commit_per_fsync::RULE,
    &syncs_share_less::RULE,
    &flush_cost::RULE,
    &metadata_reads::RULE,
    &device_latency::RULE,
    &device_bandwidth::RULE,
    &device_iops_cap::RULE,
    &device_idle_exit::RULE,
    &device_stalls::RULE,
    &fragmented_file::RULE,
    &stacked_device::RULE,
    &discards::RULE,
    &noisy_neighbour::RULE,
];

/// Others kept the CPUs or the device of the slow side's recording busier than those of the fast one's: single times
/// say little then.
pub fn disturbed(delta: &Delta<'_>) -> bool {
    const CPUS: f64 = 0.5;
    const REQUESTS: f64 = 0.05;
    let requests = delta.of(|d| {
        let all = (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64;
        (d.foreign.reads + d.foreign.writes) as f64 / all
    });
    recorded::busy_cpus(delta).difference() > CPUS || requests.slow > requests.fast + REQUESTS
}

/// Rules that a cause planted for a real program has fired as the first finding (`cargo xtask plant --live`), and which
/// one. Others are never "almost certain" about a recording.
pub const FIRED_LIVE: &[(&str, &str)] = &[
    ("cgroup-io-throttle", "throttled-reads"),
    ("changed-job", "io-uring-to-calls"),
    ("cold-cache", "cold-search"),
    ("cpu-contention", "cpu-hogs-cached-reads"),
    ("cpu-quota", "cpu-quota"),
    ("data-journalled", "data-journalled"),
    ("device-bandwidth", "bandwidth-cap"),
    ("device-iops-cap", "operations-cap"),
    ("device-latency", "slow-spindle"),
    ("device-stalls", "stall"),
    ("flush-cost", "flushes"),
    ("foreign-sync", "foreign-sync"),
    ("fragmented-file", "fragmented-file"),
    ("lock-serialisation", "one-inode-lock"),
    ("memory-reclaim", "memory-limit-search"),
    ("merging-off", "merging-off"),
    ("metadata-reads", "cold-metadata"),
    ("noisy-neighbour", "neighbour-reads"),
    ("program-computes-more", "harder-compression"),
    ("program-pauses", "think-time"),
    ("random-advice", "advised-random"),
    ("readahead-off", "read-ahead-off"),
    ("requests-cut", "requests-cut"),
    ("syncs-added", "fsync-each"),
    ("synchronous-writes", "mounted-sync"),
    ("window-too-small", "read-ahead-4k"),
    ("writeback-throttling", "dirty-limit"),
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
            for (name, plant) in FIRED_LIVE {
                assert!(find(name).is_some(), "{plant} has fired {name}, which is no rule");
            }
            for other in rule.consequences {
                assert!(find(other).is_some(), "{} has the consequence {other}, which is no rule", rule.name);
                assert!(*other != rule.name, "{} follows from itself", rule.name);
            }
        }
    }

    /// Words, numbers and strings of a source text, without comments.
    fn tokens(text: &str) -> Vec<String> {
        let mut rest = text;
        let mut tokens = Vec::new();
        while let Some(c) = rest.chars().next() {
            let until = |end: &dyn Fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
            let mut len = c.len_utf8();
            if rest.starts_with("//") {
                len = until(&|c| c == '\n');
            } else if c == '"' {
                let mut escaped = false;
                let end = rest[1..].find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                len = 2 + end.unwrap_or(rest.len() - 2);
                tokens.push(rest[..len].to_owned());
            } else if c.is_ascii_digit() {
                let range = rest.find("..").unwrap_or(rest.len());
                len = until(&|c| !c.is_ascii_alphanumeric() && !"._".contains(c)).min(range);
                tokens.push(rest[..len].trim_end_matches('.').to_owned());
            } else if c.is_alphabetic() || c == '_' {
                len = until(&|c| !c.is_alphanumeric() && c != '_');
                tokens.push(rest[..len].to_owned());
            } else if !c.is_whitespace() {
                tokens.push(rest[..len].to_owned());
            }
            rest = &rest[len..];
        }
        tokens
    }

    /// Numbers that are no limits: none, one, all, percent, units of printed figures, bytes of a sector.
    const PLAIN: [&str; 10] = ["0", "1", "0.0", "1.0", "100.0", "1e3", "1e6", "1e9", "512.0", "1024.0"];

    #[test]
    fn every_limit_has_a_name_and_a_test() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules");
        let mut wrong = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the folder of rules is there") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a source file");
            let (code, tests) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            if name == "edges.rs" {
                continue;
            }
            if code.contains("const RULE: Rule") && !tests.contains("hold(&RULE") {
                wrong.push(format!("{name}: hold(&RULE, ..) is missing"));
            }
            let code = tokens(code);
            let mut nr = 0;
            while nr < code.len() {
                let token = &code[nr];
                if token == "const" {
                    let (constant, kind) = (&code[nr + 1], &code[nr + 3]);
                    let limit = ["f64", "u64", "u32", "usize"].contains(&kind.as_str());
                    if limit && !tests.contains(&format!("\"{constant}")) {
                        wrong.push(format!("{name}: {constant} has no test"));
                    }
                    nr += code[nr..].iter().position(|token| token == ";").expect("a constant ends");
                } else if token.starts_with(|c: char| c.is_ascii_digit())
                    && !PLAIN.contains(&token.trim_end_matches("_f64"))
                    && !["[", ".", ";"].contains(&code[nr - 1].as_str())
                {
                    wrong.push(format!("{name}: {token} has no name"));
                }
                nr += 1;
            }
        }
        assert!(wrong.is_empty(), "{} limits without name or test:\n{}", wrong.len(), wrong.join("\n"));
    }
}
