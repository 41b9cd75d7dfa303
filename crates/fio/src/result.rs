//! Results of a live run, in fio's terms: an entry for each line of its reports.
//!
//! ```text
//! runtime    of a direction: from the start of a thread (or the end of its warm-up) to its end, whole ms, at least 1
//! bandwidth  io_bytes * 1000 / runtime; of entries with several threads the longest runtime counts
//! clat       from issue to completion; slat before that (asynchronous engines only); lat is the whole
//! buckets    64 to a power of two, named by their middle; values above 17 s are in the last one
//! percentile the middle of the first bucket with which the percentage of all is reached
//! samples    of bandwidth and I/Os a second: means of threads are added up; a shorter last one is left out
//! ```
//! Source: fio's documentation, and the output of fio 3.33.

use std::collections::BTreeMap;
use std::time::SystemTime;

use iowhy_live::machine::DiskDelta;
use iowhy_live::outcome::{CallError, Latency, Outcome, Steadiness, ThreadOutcome, Usage};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::units::Nanos;

use super::live::LiveJobs;
use super::{FioJob, Setting};

/// Buckets that fio has.
const NR_BUCKETS: usize = 29 * 64;

/// Latencies of one kind.
#[derive(Clone, Debug, Default)]
pub struct Times {
    histogram: Histogram,
    squares: f64,
}

impl Times {
    fn add(&mut self, histogram: &Histogram, squares: f64) {
        self.histogram.merge(histogram);
        self.squares += squares;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The least, ns.
    pub fn min(&self) -> u64 {
        self.histogram.min().unwrap_or(0)
    }

    /// The largest, ns.
    pub fn max(&self) -> u64 {
        self.histogram.max().unwrap_or(0)
    }

    /// The mean, ns.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.histogram.sum() as f64 / count as f64,
        }
    }

    /// The standard deviation of a sample, ns.
    pub fn deviation(&self) -> f64 {
        let count = self.count() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let mean = self.mean();
        ((self.squares - count * mean * mean) / (count - 1.0)).max(0.0).sqrt()
    }

    /// Buckets that are not empty: their middle, and how many there are in each.
    pub fn bins(&self) -> Vec<(u64, u64)> {
        let mut bins: Vec<(u64, u64)> = Vec::new();
        for (lowest, width, count) in self.histogram.buckets() {
            let middle = (lowest + width / 2).min(LAST_BIN);
            match bins.last_mut() {
                Some((last, more)) if *last == middle => *more += count,
                _ => bins.push((middle, count)),
            }
        }
        bins
    }

    /// The percentiles of a list, which is in millionths of a percent; nothing without values.
    pub fn percentiles(&self, list: &[u64]) -> Vec<(u64, u64)> {
        let bins = self.bins();
        let all: u64 = bins.iter().map(|(_, count)| count).sum();
        let Some(last) = bins.last().map(|(middle, _)| *middle) else { return Vec::new() };
        let at = |wanted: u64| {
            let mut seen = 0;
            let reached = |(_, count): &&(u64, u64)| {
                seen += count;
                u128::from(seen) * 100_000_000 >= u128::from(all) * u128::from(wanted)
            };
            bins.iter().find(reached).map_or(last, |(middle, _)| *middle)
        };
        let mut list = list.to_vec();
        list.sort_unstable();
        list.into_iter().map(|wanted| (wanted, at(wanted))).collect()
    }
}

/// Middle of fio's last bucket.
const LAST_BIN: u64 = ((NR_BUCKETS as u64 - 1 - 27 * 64) << 27) + (1 << 26);

/// Samples of a rate.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The least.
    pub min: u64,
    /// The largest.
    pub max: u64,
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// How many there are.
    pub count: u64,
}

impl Samples {
    fn of(values: &[f64]) -> Samples {
        let count = values.len() as f64;
        if values.is_empty() {
            return Samples::default();
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Samples {
            min: values.iter().copied().fold(f64::INFINITY, f64::min) as u64,
            max: values.iter().copied().fold(0.0, f64::max) as u64,
            mean,
            deviation: if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            count: values.len() as u64,
        }
    }

    /// Threads next to one another: their total.
    fn add(&mut self, other: &Samples) {
        let (own, more) = (self.deviation.powi(2), other.deviation.powi(2));
        *self = Samples {
            min: self.min + other.min,
            max: self.max + other.max,
            mean: self.mean + other.mean,
            deviation: (own + more).sqrt(),
            count: self.count + other.count,
        };
    }
}

/// One direction of an entry.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Bytes moved.
    pub bytes: u64,
    /// Calls.
    pub ios: u64,
    /// Calls that moved less than asked for.
    pub short: u64,
    /// Time from start to end, ms.
    pub runtime_ms: u64,
    /// Before the kernel had the calls.
    pub slat: Times,
    /// From there to their end.
    pub clat: Times,
    /// The whole.
    pub lat: Times,
    /// `clat` and `lat` by I/O priority, if calls have one.
    pub by_priority: BTreeMap<u16, [Times; 2]>,
    /// KiB a second.
    pub bandwidth: Samples,
    /// Calls a second.
    pub iops: Samples,
}

impl Direction {
    /// Bytes a second.
    pub fn bandwidth_bytes(&self) -> u64 {
        let bytes = u128::from(self.bytes) * 1000;
        bytes.checked_div(u128::from(self.runtime_ms)).map_or(0, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    pub fn calls_a_second(&self) -> f64 {
        if self.runtime_ms == 0 { 0.0 } else { self.ios as f64 * 1000.0 / self.runtime_ms as f64 }
    }

    fn add(&mut self, other: &Direction) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.short += other.short;
        self.runtime_ms = self.runtime_ms.max(other.runtime_ms);
        for (times, more) in [(&mut self.slat, &other.slat), (&mut self.clat, &other.clat), (&mut self.lat, &other.lat)]
        {
            times.add(&more.histogram, more.squares);
        }
        for (priority, more) in &other.by_priority {
            let own = self.by_priority.entry(*priority).or_default();
            own.iter_mut().zip(more).for_each(|(own, more)| own.add(&more.histogram, more.squares));
        }
        self.bandwidth.add(&other.bandwidth);
        self.iops.add(&other.iops);
    }
}

/// One job of the report: a clone, or a group with one report.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its job; that of the first thread.
    pub job: &'a FioJob,
    /// Number of its reporting group.
    pub group: u32,
    pub threads: u32,
    /// The first one's number in the system.
    pub tid: u32,
    /// The first error: the system's number, or 84 (`EILSEQ`) for data that are not what they should be.
    pub error: i32,
    /// An error has ended one of its threads.
    pub failed: bool,
    /// Calls that failed.
    pub nr_errors: u64,
    /// Errors, with the file's number.
    pub errors: Vec<&'a CallError>,
    /// When its first thread began, from the start of the run.
    pub start: Nanos,
    /// When its last thread had ended.
    pub end: Nanos,
    /// Times of all threads, ms.
    pub job_runtime_ms: u64,
    /// Reads, writes and trims; together in the first with `unified_rw_reporting=mixed`.
    pub directions: [Direction; 3],
    pub syncs: u64,
    /// How long they took.
    pub sync: Times,
    /// Resource usage of the threads.
    pub usage: Usage,
    /// Calls in flight: classes of fio, counts.
    pub depths: [u64; 7],
    /// Calls handed in at once.
    pub submitted: [u64; 7],
    /// Completions taken at once.
    pub completed: [u64; 7],
    /// Completion latencies by class, counts: below 2, 4, 10 .. 1000 ns, the same in us, in ms and below and above 2 s.
    pub classes: [u64; 32],
    /// How steady it was, if it was to end for that.
    pub steady: Option<&'a Steadiness>,
    /// The depth that was looked for; else that of the job.
    pub depth: u32,
}

/// Upper ends of the classes of latencies, in their unit.
pub const CLASSES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// Number of the class of a latency.
fn class_of(ns: u64) -> usize {
    for (unit, first) in [(1, 0), (1_000, 10), (1_000_000, 20)] {
        if let Some(class) = CLASSES.iter().position(|end| ns < end * unit) {
            return first + class;
        }
    }
    if ns < 2_000_000_000 { 30 } else { 31 }
}

/// A share in percent; 0 of nothing.
pub(crate) fn percent(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * count as f64 / of as f64 }
}

impl<'a> Entry<'a> {
    fn new(job: &'a FioJob) -> Entry<'a> {
        Entry {
            job,
            group: job.group,
            threads: 0,
            tid: 0,
            error: 0,
            failed: false,
            nr_errors: 0,
            errors: Vec::new(),
            start: Nanos(u64::MAX),
            end: Nanos::ZERO,
            job_runtime_ms: 0,
            directions: Default::default(),
            syncs: 0,
            sync: Times::default(),
            usage: Usage::default(),
            depths: [0; 7],
            submitted: [0; 7],
            completed: [0; 7],
            classes: [0; 32],
            steady: None,
            depth: job.iodepth,
        }
    }

    /// Reads, writes and trims.
    pub fn ios(&self) -> u64 {
        self.directions.iter().map(|direction| direction.ios).sum()
    }

    /// Those whose depth was counted: a warm-up may have begun some.
    pub fn with_depths(&self) -> u64 {
        self.ios().min(self.depths.iter().sum())
    }

    /// Whether the directions are one.
    pub fn mixed(&self) -> bool {
        self.job.reporting.unified == "mixed"
    }

    /// Names of the directions that are reported.
    pub fn named_directions(&self) -> Vec<(&'static str, &Direction)> {
        let [read, write, trim] = &self.directions;
        if self.mixed() { vec![("mixed", read)] } else { vec![("read", read), ("write", write), ("trim", trim)] }
    }

    /// All directions together, which `unified_rw_reporting=both` reports behind them.
    pub fn together(&self) -> Option<Direction> {
        (self.job.reporting.unified == "both").then(|| {
            let mut sum = Direction::default();
            self.directions.iter().for_each(|direction| sum.add(direction));
            sum
        })
    }

    fn add(&mut self, thread: &'a ThreadOutcome, job: &FioJob, sample: Nanos) {
        let totals = &thread.totals;
        if self.threads == 0 {
            self.tid = thread.tid;
        }
        self.threads += 1;
        self.nr_errors += thread.nr_errors;
        self.failed |= thread.failed;
        if let Some(first) = thread.errors.first()
            && self.error == 0
        {
            self.error = if first.errno == 0 { 84 } else { first.errno };
        }
        self.errors.extend(&thread.errors);
        let began = totals.start.max(thread.warm_at);
        self.steady = thread.steady.as_ref().or(self.steady);
        if thread.found_depth > 0 {
            self.depth = thread.found_depth;
        }
        self.start = self.start.min(totals.start);
        self.end = self.end.max(totals.end);
        let ran = totals.end.saturating_sub(began).0;
        let runtime_ms = (ran / 1_000_000).max(1);
        self.job_runtime_ms += runtime_ms;
        let asynchronous = job.asynchronous();
        let counts = &totals.counts;
        let amounts = [
            (counts.reads, counts.read_bytes),
            (counts.writes, counts.written_bytes),
            (counts.trims, counts.trimmed_bytes),
        ];
        for (number, (ios, bytes)) in amounts.into_iter().enumerate() {
            let mut direction = Direction { bytes, ios, ..Direction::default() };
            if ios > 0 {
                direction.runtime_ms = runtime_ms;
            }
            // Only the sum of them is known; a job that reads and writes has them counted with its reads.
            if number == usize::from(counts.reads == 0) {
                direction.short = thread.short;
            }
            let latency = &thread.latency[[0, 1, 3][number]];
            fill_times(&mut direction, latency, job, asynchronous);
            self.classify(latency, job);
            let own = thread.by_priority.iter().filter(|((kind, _), _)| *kind == number);
            direction.by_priority = own.map(|((_, priority), latency)| (*priority, both(latency))).collect();
            if !job.reporting.disable_bandwidth && ios > 0 {
                fill_samples(&mut direction, thread, number, sample);
            }
            let place = if self.mixed() { 0 } else { number };
            self.directions[place].add(&direction);
        }
        // As fio, which times `fdatasync` and does not count it here.
        self.syncs += if job.fdatasync > 0 && job.fsync == 0 { 0 } else { counts.syncs };
        if !job.reporting.disable_lat {
            let (histogram, squares) = whole(&thread.latency[2]);
            self.sync.add(histogram, squares);
        }
        self.usage.user += thread.usage.user;
        self.usage.system += thread.usage.system;
        self.usage.voluntary += thread.usage.voluntary;
        self.usage.involuntary += thread.usage.involuntary;
        self.usage.minor_faults += thread.usage.minor_faults;
        self.usage.major_faults += thread.usage.major_faults;
        for (own, more) in [
            (&mut self.depths, &thread.depths),
            (&mut self.submitted, &thread.submitted),
            (&mut self.completed, &thread.completed),
        ] {
            own.iter_mut().zip(more).for_each(|(own, more)| *own += more);
        }
    }

    fn classify(&mut self, latency: &Latency, job: &FioJob) {
        if job.reporting.disable_clat {
            return;
        }
        for (lowest, width, count) in completion(latency).0.buckets() {
            self.classes[class_of(lowest + width / 2)] += count;
        }
    }
}

/// Completion and whole latencies.
fn both(latency: &Latency) -> [Times; 2] {
    let mut both: [Times; 2] = Default::default();
    both[0].add(&latency.completion, latency.squares[1]);
    both[1].add(&latency.total, latency.squares[2]);
    both
}

/// Completion latencies; the whole ones if both are not separate.
fn completion(latency: &Latency) -> (&Histogram, f64) {
    if latency.completion.count() > 0 { (&latency.completion, latency.squares[1]) } else { whole(latency) }
}

/// Whole latencies: fio's begin with the call, whether that was due earlier or not.
fn whole(latency: &Latency) -> (&Histogram, f64) {
    match latency.begun.count() {
        0 => (&latency.total, latency.squares[2]),
        _ => (&latency.begun, latency.squares[3]),
    }
}

fn fill_times(direction: &mut Direction, latency: &Latency, job: &FioJob, asynchronous: bool) {
    if asynchronous && !job.reporting.disable_slat {
        direction.slat.add(&latency.submission, latency.squares[0]);
    }
    if !job.reporting.disable_clat {
        let (histogram, squares) = completion(latency);
        direction.clat.add(histogram, squares);
    }
    if !job.reporting.disable_lat {
        let (histogram, squares) = whole(latency);
        direction.lat.add(histogram, squares);
    }
}

fn fill_samples(direction: &mut Direction, thread: &ThreadOutcome, number: usize, sample: Nanos) {
    let whole = || thread.samples.iter().filter(|taken| taken.length.0 > 0 && taken.length.0 * 10 >= sample.0 * 9);
    let rate = |amount: fn(&iowhy_live::outcome::Sample, usize) -> u64| {
        let values: Vec<f64> =
            whole().map(|taken| amount(taken, number) as f64 * 1e9 / taken.length.0 as f64).collect();
        Samples::of(&values)
    };
    let bytes = rate(|taken, number| {
        [taken.counts.read_bytes, taken.counts.written_bytes, taken.counts.trimmed_bytes][number] / 1024
    });
    direction.bandwidth = bytes;
    direction.iops = rate(|taken, number| [taken.counts.reads, taken.counts.writes, taken.counts.trims][number]);
}

/// A run as both reports show it.
#[derive(Clone, Debug)]
pub struct Results<'a> {
    /// When it began.
    pub started: SystemTime,
    /// Its length.
    pub elapsed: Nanos,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Its entries, in the order of the jobs.
    pub entries: Vec<Entry<'a>>,
    /// The options of global sections.
    pub globals: &'a [Setting],
    /// Devices that were used.
    pub disks: Vec<DiskDelta>,
    /// Differences from the jobs' wishes, in words.
    pub notes: &'a [String],
}

impl Results<'_> {
    /// Whether an error has ended a job, as one does without `continue_on_error`.
    pub fn any_error(&self) -> bool {
        self.entries.iter().any(|entry| entry.failed)
    }

    /// Numbers of the groups, in order.
    pub fn groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.entries.iter().map(|entry| entry.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// KiB a second of all entries of a group, as fio adds them up.
    pub fn aggregate(&self, group: u32, number: usize) -> u64 {
        let directions = || {
            self.entries.iter().filter(move |entry| entry.group == group).map(move |entry| &entry.directions[number])
        };
        let bytes: u64 = directions().map(|direction| direction.bytes).sum();
        let longest = directions().map(|direction| direction.runtime_ms).max().unwrap_or(0);
        (bytes * 1000).checked_div(longest).unwrap_or(0) / 1024
    }

    /// Part that a direction of an entry has of its group's bandwidth, by the mean of its samples, percent; 3: all.
    pub fn share_pct(&self, entry: &Entry<'_>, number: usize) -> f64 {
        let numbers = if number < 3 { number..number + 1 } else { 0..3 };
        let mean: f64 = numbers.clone().map(|number| entry.directions[number].bandwidth.mean).sum();
        match numbers.map(|number| self.aggregate(entry.group, number)).sum::<u64>() {
            0 => 0.0,
            group => (mean * 100.0 / group as f64).min(100.0),
        }
    }
}

/// Results of the threads, grouped for the report. Jobs without `stats` are left out.
pub fn results<'a>(jobs: &'a LiveJobs, outcome: &'a Outcome, disks: Vec<DiskDelta>) -> Results<'a> {
    let sample = Nanos(u64::try_from(jobs.plan.sample.as_nanos()).unwrap_or(u64::MAX));
    let mut entries: Vec<(u32, Entry<'a>)> = Vec::new();
    for (thread, origin) in outcome.threads.iter().zip(&jobs.threads) {
        let job = &jobs.file.jobs[origin.job];
        if !job.reporting.stats {
            continue;
        }
        let number = match entries.iter().position(|(line, _)| *line == origin.line) {
            Some(known) => known,
            None => {
                entries.push((origin.line, Entry::new(job)));
                entries.len() - 1
            }
        };
        entries[number].1.add(thread, job, sample);
    }
    Results {
        started: outcome.started,
        elapsed: outcome.elapsed,
        interrupted: outcome.interrupted,
        entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        globals: &jobs.file.globals,
        disks,
        notes: &jobs.notes,
    }
}

/// Jobs of which none could be begun, for `error` (the system's number).
pub fn not_begun(jobs: &LiveJobs, error: i32) -> Results<'_> {
    let mut lines: Vec<u32> = Vec::new();
    let mut entries = Vec::new();
    for origin in &jobs.threads {
        if !lines.contains(&origin.line) {
            lines.push(origin.line);
            let mut entry = Entry::new(&jobs.file.jobs[origin.job]);
            entry.start = Nanos::ZERO;
            entry.error = error;
            entry.failed = true;
            entry.threads = jobs.threads.iter().filter(|other| other.line == origin.line).count() as u32;
            entries.push(entry);
        }
    }
    Results {
        started: SystemTime::now(),
        elapsed: Nanos::ZERO,
        interrupted: false,
        entries,
        globals: &jobs.file.globals,
        disks: Vec::new(),
        notes: &jobs.notes,
    }
}

/// A time as fio prints it, in UTC: `Sat Nov 21 17:37:02 2026`.
pub fn date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let mut left = days;
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    let (hours, minutes) = (rest / 3600, rest / 60 % 60);
    let weekday = DAYS[(days % 7) as usize];
    format!("{weekday} {} {:2} {hours:02}:{minutes:02}:{:02} {year}", MONTHS[month], left + 1, rest % 60)
}
