//! One side alone: the cost of a mechanism, read off one recording without a model.
//!
//! ```text
//! facts      a digest, its settings, and what only the recording has: sleeps, other processes on the device
//! mark       a rule speaks only of what is not normal by itself: a limit that is set and met, a neighbour, a drive
//!            that stands still; that calls wait for their device is not a mark
//! cost       the part of the time that the mechanism owns, with bounds: least if what is waited for now would be
//!            waited for elsewhere, most if nothing takes its place
//! findings   costs of a tenth of the time or more, without those that follow from others, largest first
//! ```
//! Limits: bounds are not statistical intervals. A mechanism that only a comparison shows (a job that is another one, a
//! cache that was warm, a drive that is somewhat slow for its kind) has no cost here.

use iowhy_trace::settings::{self, Settings};

use super::{Need, RULES, Rule};
use crate::delta::Unit;
use crate::digest::{Digest, Layer};

/// Part of the time that a mechanism has to cost.
const LEAST: f64 = 0.1;
/// The highest confidence: no benchmark has measured costs of one side yet.
const MOST_SURE: f64 = 0.89;
/// Confidence of costs with a mark in the settings or the requests, and of those whose mark may have another cause.
pub(super) const MARKED: f64 = 0.85;
pub(super) const SEEN: f64 = 0.8;
/// Waiting for I/O, and for a CPU after it.
pub(super) const TRIPS: [Layer; 4] = [Layer::Plug, Layer::Elevator, Layer::Device, Layer::Ready];

/// The least and the most of a cost, as parts of it.
pub type Bounds = [f64; 2];

/// Sleeps that the tasks of a process asked for.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Sleeps {
    pub times: u64,
    /// All of them, and those of the task that sleeps longest.
    pub ns: f64,
    pub longest_ns: f64,
    /// The longest single one.
    pub once_ns: f64,
    /// Bytes that the process moves by calls.
    pub moved: u64,
}

impl Sleeps {
    /// These and others.
    pub fn and(self, other: Sleeps) -> Sleeps {
        Sleeps {
            times: self.times + other.times,
            ns: self.ns + other.ns,
            longest_ns: self.longest_ns.max(other.longest_ns),
            once_ns: self.once_ns.max(other.once_ns),
            moved: self.moved + other.moved,
        }
    }
}

/// One recording.
#[derive(Debug)]
pub struct Facts<'a> {
    pub digest: &'a Digest,
    pub settings: &'a Settings,
    /// Kinds of records that it lacks.
    pub lacks: &'a [Need],
    /// The time that a mechanism can have a part of, ns by the clock: the whole run of a command, else that of calls.
    pub whole_ns: f64,
    /// Sleeps that the programs asked for, by process.
    pub sleeps: &'a [Sleeps],
    /// Share of the reads that go on where another one on their file ended.
    pub streams: f64,
    /// Share of the reads that come on an open file behind another task's, at another place.
    pub taken: f64,
    /// Others on the device and their requests, most first.
    pub others: &'a [(String, u64)],
    /// Times of reads that go on where others ended, as they were measured: sectors, rising, and ns. May be empty.
    pub service: &'a [(u32, f64)],
    /// Times of the kernel's code, if they were measured.
    pub code: Option<Code>,
    /// Reads with and without pauses, if they were tried.
    pub paced: Option<Paced>,
}

/// Times of direct reads at random places, one at a time: of [`Paced::SMALL`] and [`Paced::LARGE`] sectors, ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Paced {
    /// One behind the other.
    pub at_once: [f64; 2],
    /// Each after a pause.
    pub paused: [f64; 2],
}

impl Paced {
    pub const SMALL: u32 = 8;
    pub const LARGE: u32 = 256;

    /// A time of a size, in proportion between the two and beyond.
    pub(super) fn at([small, large]: [f64; 2], sectors: f64) -> f64 {
        let [from, to] = [Paced::SMALL, Paced::LARGE].map(f64::from);
        (small + (large - small).max(0.0) * (sectors - from) / (to - from)).max(0.0)
    }
}

/// Times of code.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Code {
    /// Of a call, ns.
    pub call_ns: f64,
    /// Of a page that is read into the cache and copied, ns.
    pub page_ns: f64,
}

/// The cost of a mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// ns of the whole.
    pub ns: f64,
    pub bounds: Bounds,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// In a sentence, with figures.
    pub claim: String,
    /// `KEY=VALUE`, or what to change.
    pub setting: String,
    /// Figures that speak for it.
    pub evidence: Vec<(&'static str, f64, Unit)>,
}

/// A rule's cost.
#[derive(Clone, Debug)]
pub struct Found {
    pub rule: &'static Rule,
    pub cost: Cost,
    /// Part of the time that goes without it, percent, and its bounds.
    pub saves_pct: f64,
    pub bounds_pct: [f64; 2],
}

impl Facts<'_> {
    /// Time by the clock in some layers of any call, ns.
    pub fn in_layers(&self, layers: &[Layer]) -> f64 {
        layers.iter().map(|layer| self.digest.time.of(*layer)).sum::<f64>() / self.slots()
    }

    /// The same of some kinds of calls.
    pub fn of_kinds(&self, kinds: &[usize], layers: &[Layer]) -> f64 {
        self.digest.time.within(kinds, layers) / self.slots()
    }

    /// Time that tasks asked to sleep, each for itself, ns.
    pub fn asleep(&self) -> f64 {
        self.sleeps.iter().map(|of| of.ns).sum()
    }

    /// Time in which reads wait for I/O, and for a CPU after it, ns: what fewer trips to the device save.
    pub fn reads_wait(&self) -> f64 {
        self.of_kinds(&[0], &TRIPS)
    }

    fn slots(&self) -> f64 {
        f64::from(self.digest.time.slots.max(1))
    }

    /// Reads, writes; syncs without either.
    pub fn operations(&self) -> f64 {
        self.digest.operations().max(1) as f64
    }

    /// A counter of the recording.
    pub fn counter(&self, key: &str) -> f64 {
        self.settings.counters.get(key).copied().unwrap_or(0) as f64
    }

    /// A setting of the disk with most requests.
    pub fn of_disk(&self, key: &str) -> Option<&str> {
        self.settings.get(self.settings.get("recording", "disk")?, key)
    }

    /// The same as a number.
    pub fn number_of_disk(&self, key: &str) -> Option<f64> {
        self.of_disk(key)?.parse().ok()
    }

    /// The window of read-ahead, KiB, and its key: that of the file system's own backing device, where it has one, else
    /// that of the queue.
    pub fn read_ahead_kb(&self) -> Option<(f64, &'static str)> {
        match self.setting(|of, key| of.starts_with('/') && key == "read_ahead_kb") {
            Some((_, own)) => Some((own.parse().ok()?, "bdi/read_ahead_kb")),
            None => Some((self.number_of_disk("read_ahead_kb")?, "read_ahead_kb")),
        }
    }

    /// The first setting whose place and key are picked, as `KEY=VALUE`.
    pub fn setting(&self, picks: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
        let found = self.settings.values.iter().find(|((of, key), _)| picks(of, key));
        found.map(|((_, key), value)| (key.as_str(), value.as_str()))
    }

    /// Whether that disk has parts that turn, if that is known.
    pub fn turns(&self) -> Option<bool> {
        Some(self.of_disk("rotational")? == "1")
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> Option<u64> {
        self.settings.get("machine", "cpus")?.parse().ok()
    }

    /// The first file system of the recording whose kind is picked: where it is mounted, and its kind.
    pub fn filesystem(&self, picks: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
        let mut kinds = self.settings.values.iter().filter(|((_, key), _)| key == "filesystem");
        let found = kinds.find(|(_, kind)| picks(kind));
        found.map(|((point, _), kind)| (point.as_str(), kind.as_str()))
    }

    /// The options that some file system of the recording is mounted with, and one of them is `option`.
    pub fn mounted_with(&self, option: &str) -> Option<&str> {
        let options = self.settings.values.iter().filter(|((_, key), _)| key == "mount_options");
        let mut with = options.filter(|(_, value)| value.split(',').any(|word| word == option));
        with.next().map(|((point, _), _)| point.as_str())
    }

    /// A file system of the recording with files whose data go through the journal by an attribute, and how many.
    pub fn journalled_files(&self) -> Option<(&str, &str)> {
        let found = self.settings.values.iter().find(|((_, key), _)| key == settings::JOURNALLED_FILES);
        found.map(|((point, _), files)| (point.as_str(), files.as_str()))
    }
}

/// Records that a rule needs and the recording does not have.
pub fn missing(facts: &Facts<'_>, rule: &Rule) -> Vec<Need> {
    let lacks = |need: &&Need| facts.lacks.contains(need) || **need == Need::States && facts.digest.wall.is_none();
    rule.needs.iter().filter(lacks).copied().collect()
}

/// Rules that cannot be asked, and why.
pub fn unasked(facts: &Facts<'_>) -> Vec<(&'static str, Vec<Need>)> {
    let of = |rule: &&'static Rule| (rule.name, missing(facts, rule));
    RULES.iter().map(of).filter(|(_, missing)| !missing.is_empty()).collect()
}

/// Mechanisms that cost a tenth of the time or more, largest first.
pub fn found(facts: &Facts<'_>) -> Vec<Found> {
    let asked = RULES.iter().filter(|rule| missing(facts, rule).is_empty());
    let mut all: Vec<Found> = asked
        .filter_map(|rule| {
            let mut cost = rule.cost?(facts)?;
            cost.ns = cost.ns.min(facts.whole_ns);
            cost.confidence = cost.confidence.min(MOST_SURE);
            let pct = |ns: f64| 100.0 * (ns / facts.whole_ns.max(1.0)).clamp(0.0, 1.0);
            let [low, high] = cost.bounds.map(|part| pct(part * cost.ns));
            (cost.ns >= LEAST * facts.whole_ns && cost.ns > 0.0).then(|| Found {
                rule,
                saves_pct: pct(cost.ns),
                // The rest is of a recorded run: of what is left, the recording's own time and the code around each
                // wait go as well, between none of it and all; the most is half way.
                bounds_pct: [low, f64::midpoint(high, 100.0)],
                cost,
            })
        })
        .collect();
    let dropped: Vec<&str> = all.iter().flat_map(|of| of.rule.consequences.iter().copied()).collect();
    all.retain(|of| !dropped.contains(&of.rule.name));
    all.sort_by(|a, b| b.saves_pct.total_cmp(&a.saves_pct));
    all
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, hold_cost};
    use super::super::program_pauses;
    use super::{MARKED, MOST_SURE, Paced, SEEN};
    use crate::certainty;
    use crate::digest::Layer;
    use crate::digest::wall::Wall;

    #[test]
    fn times_between_sizes() {
        for (name, sectors, ns) in
            [("SMALL", 8, 100.0), ("LARGE", 256, 348.0), ("between", 24, 116.0), ("below", 0, 92.0)]
        {
            assert!((Paced::at([100.0, 348.0], f64::from(sectors)) - ns).abs() < 1e-9, "{name}");
        }
        assert_eq!((Paced::SMALL, Paced::LARGE), (8, 256));
    }

    #[test]
    fn a_cost_is_a_tenth_of_the_time_and_never_almost_certain() {
        fn locked(ns: f64) -> Option<Wall> {
            Some(Wall { locked: (ns, 3), ..Wall::default() })
        }
        let locks = || {
            Alone::of(|a| {
                a.digest.wall = locked(5e5);
                a.digest.time.ns[3][Layer::Pause as usize] = 6e5;
            })
        };
        let edges: &[AloneEdge] = &[("LEAST", |a, x| a.digest.wall = locked(x), 100_000.0, 99_999.0)];
        hold_cost(&program_pauses::RULE, locks, (50.0, 0.85), edges);
        let words = [
            ("MOST_SURE", MOST_SURE, "likely"),
            ("MARKED", MARKED, "likely"),
            ("SEEN", SEEN, "likely"),
            ("certain", 0.9, "almost certain"),
        ];
        for (limit, sure, word) in words {
            assert_eq!(certainty::of(sure).word, word, "{limit}");
        }
    }
}
