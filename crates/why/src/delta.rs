//! Two sides, put so that one is slow and the other fast, and figures of both with their noise.
//!
//! Rules ask for contrasts: a figure of every run, as the mean of each side with the spread between runs. A contrast is
//! sure if the means differ by more than runs of one side differ from each other; single runs have no spread, and then
//! a relative difference beyond the noise of simulated runs has to do, and the answer states it.

use super::digest::{Digest, Time};
use super::{LEVEL, MATERIAL_PCT, Side};
use iowhy_compare::Verdict;
use iowhy_stats::figure::share;
use iowhy_stats::{mann_whitney, welch};

/// Unit of a figure.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    Bytes,
    Pages,
    Share,
    /// A number of something.
    Count,
    Ratio,
    /// Bytes a second.
    BytesPerS,
}

impl Unit {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
            Unit::BytesPerS => "bytes_per_s",
        }
    }
}

/// A figure of both sides: the means over their runs.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Of the fast side.
    pub fast: f64,
    /// Of the slow side.
    pub slow: f64,
    /// Standard error of the difference; nothing if there are single runs only.
    pub error: Option<f64>,
    /// Every run of one side is beyond every run of the other, by what single recordings differ by at most.
    pub apart: bool,
}

/// Standard errors that a difference has to have to be sure: with few runs, the t distribution's tails count.
const SURE: f64 = 5.0;
/// Relative difference that is sure between single runs.
pub(super) const SURE_SINGLE: f64 = 0.02;
/// By how much single recordings of equal runs of real programs differ at most, relative: see docs/RULES.md.
const SINGLE_LIVE: f64 = 0.25;
/// Beyond this the variation within a recording does not count any more, for programs have phases.
const MOST_SINGLE_LIVE: f64 = 0.6;
/// The same of a few recordings a side.
const FEW_LIVE: f64 = 0.05;
/// Fewest runs of a side that tell how much its runs differ.
const SPREAD: usize = 3;
/// Standard errors within recordings that single ones have to differ by.
const OWN_ERRORS: f64 = 2.5;

impl Contrast {
    /// Of means whose spread is not known.
    pub fn of_means(fast: f64, slow: f64) -> Contrast {
        Contrast { fast, slow, error: None, apart: false }
    }

    /// Slow minus fast.
    pub fn difference(&self) -> f64 {
        self.slow - self.fast
    }

    /// Slow over fast; infinite if only the fast side is 0, 1 if both are.
    pub fn ratio(&self) -> f64 {
        match (self.fast == 0.0, self.slow == 0.0) {
            (true, true) => 1.0,
            (true, false) => f64::INFINITY,
            _ => self.slow / self.fast,
        }
    }

    /// The sides differ by more than their runs do.
    pub fn sure(&self) -> bool {
        let difference = self.difference().abs();
        match self.error {
            Some(error) => difference > 0.0 && (difference > SURE * error || self.apart),
            None => difference > SURE_SINGLE * self.fast.abs().max(self.slow.abs()),
        }
    }

    /// Surely larger on the slow side, by this factor at least.
    pub fn rose(&self, factor: f64) -> bool {
        self.sure() && self.slow > self.fast * factor
    }

    /// Surely smaller on the slow side, by this factor at least.
    pub fn fell(&self, factor: f64) -> bool {
        self.sure() && self.fast > self.slow * factor
    }

    /// Larger on the slow side by this much at least, surely.
    pub fn rose_by(&self, amount: f64) -> bool {
        self.sure() && self.difference() >= amount
    }

    /// Smaller on the slow side by this much at least, surely.
    pub fn fell_by(&self, amount: f64) -> bool {
        self.sure() && -self.difference() >= amount
    }
}

/// Two sides.
#[derive(Debug)]
pub struct Delta<'a> {
    /// The fast one.
    pub fast: &'a Side,
    /// The slow one.
    pub slow: &'a Side,
    /// The base is the slow one.
    pub a_is_slow: bool,
    /// Basis of the comparison.
    pub basis: Basis,
    /// Operations of the slow side, for which figures of both are given if runs are compared as wholes.
    common: f64,
    /// Bytes of such an operation.
    bytes_each: f64,
}

/// Their mean; 0 of none.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// All of the first are below all of the second, and not by a little.
fn separate(below: &[f64], above: &[f64]) -> bool {
    let most = below.iter().copied().fold(0.0, f64::max);
    let least = above.iter().copied().fold(f64::INFINITY, f64::min);
    least > most * (1.0 + SINGLE_LIVE)
}

/// Their variance; 0 of a single one.
pub(super) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let n = values.len() as f64;
    if n < 2.0 { 0.0 } else { values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) }
}

/// Time for an operation: all of the run, by the calls that read or write (or sync, without others), ns.
pub fn time_per_operation(digest: &Digest) -> f64 {
    let n = digest.operations();
    if n == 0 { digest.elapsed.0 as f64 } else { digest.elapsed.0 as f64 / n as f64 }
}

/// Quantity of the headline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Time for a call: both sides make equal calls.
    Call,
    /// Time of the whole run by the clock: two commands, or runs of as many bytes in other calls.
    Run,
    /// Time for as many bytes: the calls differ, and so do the bytes.
    Bytes,
    /// Time for a request, from its insertion to its completion: nothing is known of calls.
    Request,
    /// There is nothing that may be compared.
    Nothing,
}

impl Basis {
    /// The word in JSON; nothing without a headline.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Basis::Call => Some("call"),
            Basis::Run | Basis::Bytes => Some("metric"),
            Basis::Request => Some("request"),
            Basis::Nothing => None,
        }
    }

    /// The unit of times of layers.
    pub fn unit(self) -> &'static str {
        match self {
            Basis::Call => "ns_per_operation",
            Basis::Run | Basis::Nothing => "ns",
            Basis::Bytes => "ns_per_page",
            Basis::Request => "ns_per_request",
        }
    }

    /// Subject of the time.
    pub fn subject(self) -> &'static str {
        match self {
            Basis::Call => "an operation",
            Basis::Run => "the run",
            Basis::Bytes => "a page of 4 KiB",
            Basis::Request => "a request",
            Basis::Nothing => "nothing",
        }
    }
}

/// Relative difference up to which times of commands are equal: then the clock ended them, and their work counts.
const SAME_CLOCK: f64 = 0.05;
/// Commands that the clock ends run for this long at least, ns.
const LEAST_CLOCK: f64 = 0.9e9;
/// Relative difference of sizes and shares of calls that are equal.
const EQUAL_CALLS: f64 = 0.1;
/// Requests that have to be there for their times to be compared.
const LEAST_REQUESTS: f64 = 20.0;
/// Relative difference of bytes that are equally many.
const EQUAL_BYTES: f64 = 0.03;

fn bytes(digest: &Digest) -> f64 {
    (digest.workload.bytes[0] + digest.workload.bytes[1]) as f64
}

fn requests(digest: &Digest) -> f64 {
    (digest.commands.issued[0] + digest.commands.issued[1]) as f64
}

/// Time of all requests from insertion to completion, ns.
fn request_time(digest: &Digest) -> f64 {
    let waiting: f64 = digest.commands.i2d.iter().map(super::digest::Spread::sum).sum();
    let at_device: f64 = digest.commands.classes.values().map(super::digest::Spread::sum).sum();
    waiting + at_device
}

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * a.abs().max(b.abs())
}

fn basis(a: &Side, b: &Side) -> Basis {
    let of = |side: &Side, figure: &dyn Fn(&Digest) -> f64| mean(&side.runs.iter().map(figure).collect::<Vec<f64>>());
    let both = |figure: &dyn Fn(&Digest) -> f64| (of(a, figure), of(b, figure));
    let ratio = |(a, b): (f64, f64), relative| close(a, b, relative);
    let calls = both(&|d| d.operations() as f64);
    let sizes = both(&|d| share((bytes(d)) as u64, d.operations()));
    let reads = both(&|d| share(d.workload.calls[0], d.workload.calls[0] + d.workload.calls[1]));
    let equal = ratio(sizes, EQUAL_CALLS) && (reads.0 - reads.1).abs() <= EQUAL_CALLS;
    let elapsed = both(&|d| d.elapsed.0 as f64);
    let any_calls = calls.0.min(calls.1) > 0.0;
    if a.runs.iter().chain(&b.runs).all(|run| run.command.is_some()) {
        let by_the_clock = ratio(elapsed, SAME_CLOCK) && elapsed.0.min(elapsed.1) > LEAST_CLOCK;
        // The clock ended both: what they got done in it is what differs.
        let other_work = any_calls && equal && !ratio(calls, 2.0 * SAME_CLOCK);
        return if by_the_clock && other_work { Basis::Call } else { Basis::Run };
    }
    if any_calls {
        return match () {
            // Another mix of finished calls in the same time does not make another job.
            () if ratio(sizes, EQUAL_CALLS) => Basis::Call,
            () if ratio(both(&bytes), EQUAL_BYTES) => Basis::Run,
            () => Basis::Bytes,
        };
    }
    // Whatever was recorded without calls was recorded for some time, which says nothing of speed.
    let some = both(&requests);
    let mix = both(&|d| share(d.commands.issued[0], requests(d) as u64));
    let sectors = both(&|d| share(d.commands.sectors[0] + d.commands.sectors[1], requests(d) as u64));
    let alike = (mix.0 - mix.1).abs() <= EQUAL_CALLS && ratio(sectors, EQUAL_CALLS);
    if some.0.min(some.1) >= LEAST_REQUESTS && alike { Basis::Request } else { Basis::Nothing }
}

impl<'a> Delta<'a> {
    /// Of base and candidate.
    pub fn new(a: &'a Side, b: &'a Side) -> Delta<'a> {
        let delta = Delta::of_roles(b, a, true);
        let [a_ns, b_ns] = delta.time_ns();
        if a_ns > b_ns { delta } else { Delta::of_roles(a, b, false) }
    }

    /// The same with the parts given, whichever of them has the shorter time.
    pub(super) fn of_roles(fast: &'a Side, slow: &'a Side, a_is_slow: bool) -> Delta<'a> {
        let mut delta = Delta { fast, slow, a_is_slow, basis: basis(fast, slow), common: 1.0, bytes_each: 1.0 };
        delta.common = mean(&delta.slow.runs.iter().map(|run| run.operations() as f64).collect::<Vec<f64>>()).max(1.0);
        let all_bytes = mean(&delta.slow.runs.iter().map(bytes).collect::<Vec<f64>>());
        delta.bytes_each = (all_bytes / delta.common).max(1.0);
        delta
    }

    /// The divisor of a run's figures, so that both sides are as much work.
    fn per(&self, digest: &Digest) -> f64 {
        match self.basis {
            Basis::Call => digest.operations().max(1) as f64,
            Basis::Run | Basis::Nothing => self.common,
            Basis::Bytes => bytes(digest).max(1.0) / self.bytes_each,
            Basis::Request => requests(digest).max(1.0),
        }
    }

    /// The headline's time of a run, ns.
    pub fn time_of(&self, digest: &Digest) -> f64 {
        match self.basis {
            Basis::Call => time_per_operation(digest),
            Basis::Run => digest.elapsed.0 as f64,
            // For a page, so that figures have the size of times.
            Basis::Bytes => 4096.0 * digest.elapsed.0 as f64 / bytes(digest).max(1.0),
            Basis::Request => request_time(digest) / requests(digest).max(1.0),
            Basis::Nothing => digest.elapsed.0 as f64,
        }
    }

    /// The headline's times over those that [`time`](Delta::time) has.
    pub fn scale(&self) -> f64 {
        match self.basis {
            Basis::Run | Basis::Nothing => self.common,
            Basis::Bytes => 4096.0 / self.bytes_each,
            Basis::Call | Basis::Request => 1.0,
        }
    }

    /// Some side is of a running kernel.
    pub fn live(&self) -> bool {
        self.fast.live || self.slow.live
    }

    /// Some side is a single run.
    pub fn single(&self) -> bool {
        self.fast.runs.len() < 2 || self.slow.runs.len() < 2
    }

    /// The states of tasks are known of every run.
    pub fn stated(&self) -> bool {
        self.fast.runs.iter().chain(&self.slow.runs).all(|run| run.wall.is_some())
    }

    /// The longer of the headline's times over the shorter one.
    pub fn apart(&self) -> f64 {
        let [a, b] = self.time_ns();
        a.max(b) / a.min(b).max(f64::MIN_POSITIVE)
    }

    /// A figure of every run.
    pub fn of(&self, figure: impl Fn(&Digest) -> f64) -> Contrast {
        let values = |side: &Side| side.runs.iter().map(&figure).collect::<Vec<f64>>();
        let (fast, slow) = (values(self.fast), values(self.slow));
        let error = (variance(&fast) / fast.len().max(1) as f64 + variance(&slow) / slow.len().max(1) as f64).sqrt();
        Contrast {
            fast: mean(&fast),
            slow: mean(&slow),
            error: (!self.single()).then_some(error),
            apart: separate(&fast, &slow) || separate(&slow, &fast),
        }
    }

    /// A figure of every run, for each operation.
    pub fn per_operation(&self, figure: impl Fn(&Digest) -> f64) -> Contrast {
        self.of(|digest| figure(digest) / digest.operations().max(1) as f64)
    }

    /// A figure of every run, for as much work as an operation of the slow side.
    pub fn of_work(&self, figure: impl Fn(&Digest) -> f64) -> Contrast {
        self.of(|digest| figure(digest) / self.per(digest))
    }

    /// Recorded with different schedulers of the disk.
    pub fn other_scheduler(&self) -> bool {
        let known = |side: &Side| side.scheduler().map(str::to_owned);
        self.live() && known(self.fast).zip(known(self.slow)).is_some_and(|(fast, slow)| fast != slow)
    }

    /// The time of a layer, or of several, as part of the time for as much work as an operation of the slow side, ns.
    pub fn time(&self, part: impl Fn(&Time) -> f64) -> Contrast {
        self.of_work(|digest| part(&digest.time) / f64::from(digest.time.slots.max(1)))
    }

    /// The headline's time, base and candidate, ns.
    pub fn time_ns(&self) -> [f64; 2] {
        let whole = self.of(|digest| self.time_of(digest));
        if self.a_is_slow { [whole.slow, whole.fast] } else { [whole.fast, whole.slow] }
    }

    /// Base first.
    pub fn oriented(&self, contrast: &Contrast) -> [f64; 2] {
        if self.a_is_slow { [contrast.slow, contrast.fast] } else { [contrast.fast, contrast.slow] }
    }

    /// Change of the headline's time from base to candidate, percent.
    pub fn change_pct(&self) -> f64 {
        let [a, b] = self.time_ns();
        if a > 0.0 { 100.0 * (b - a) / a } else { 0.0 }
    }

    /// Interval of that change: of the difference of the means by Welch, over the base's mean; infinite of one or two
    /// runs a side.
    pub fn interval_pct(&self, level: f64) -> (f64, f64) {
        if self.fast.runs.len().min(self.slow.runs.len()) < SPREAD {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let times = |side: &Side| side.runs.iter().map(|run| self.time_of(run)).collect::<Vec<f64>>();
        let (fast, slow) = (times(self.fast), times(self.slow));
        let [a, b] = if self.a_is_slow { [slow, fast] } else { [fast, slow] };
        let base = self.time_ns()[0];
        let (low, high) = welch::interval(&a, &b, level);
        if base > 0.0 { (100.0 * low / base, 100.0 * high / base) } else { (f64::NEG_INFINITY, f64::INFINITY) }
    }

    /// By how much as much work as an operation of the slow side takes longer on it, ns.
    pub fn slower_by(&self) -> f64 {
        (self.of(|digest| self.time_of(digest)).difference() / self.scale()).max(f64::MIN_POSITIVE)
    }

    /// The verdict on the difference, and the reason.
    pub fn verdict(&self) -> (Verdict, String) {
        let change = self.change_pct();
        let changed = if change > 0.0 { Verdict::Regression } else { Verdict::Improvement };
        let values = |side: &Side| side.runs.iter().map(|run| self.time_of(run)).collect::<Vec<f64>>();
        let (fast, slow) = (values(self.fast), values(self.slow));
        if fast.is_empty() || slow.is_empty() {
            return (Verdict::Inconclusive, "one side has no runs".to_owned());
        }
        if self.time_ns().contains(&0.0) {
            return (Verdict::Inconclusive, "a side has no times".to_owned());
        }
        if self.basis == Basis::Nothing {
            let text =
                "the recordings have no calls, and their requests differ: the length of a recording is not a speed";
            return (Verdict::Inconclusive, text.to_owned());
        }
        if self.single() {
            return self.single_verdict(change, changed);
        }
        if change.abs() < MATERIAL_PCT {
            return (Verdict::Same, format!("the sides differ by less than {MATERIAL_PCT} %"));
        }
        let whole = self.of(|digest| self.time_of(digest));
        // With few runs a rank test cannot be sure of anything; then the spread has to speak, and the interval if there
        // is one.
        let few = fast.len().min(slow.len()) < 5;
        let p = mann_whitney::test(&fast, &slow).map_or(1.0, |test| test.p);
        let (low, high) = self.interval_pct(LEVEL);
        let apart = if few { whole.sure() && (low.is_infinite() || low * high > 0.0) } else { p < 0.01 };
        let small = self.live() && few && change.abs() < 100.0 * FEW_LIVE;
        match apart && !small {
            true if few => (changed, "the sides differ by far more than their runs do".to_owned()),
            true => (changed, format!("runs of both sides rank apart: Mann-Whitney, p = {p:.4}")),
            false if few => (Verdict::Inconclusive, "the runs of a side differ as much as the sides do".to_owned()),
            false => (Verdict::Inconclusive, format!("it may be chance: Mann-Whitney, p = {p:.4}")),
        }
    }

    /// The verdict on single runs: beyond what runs of real programs vary by, and what these vary by within themselves.
    fn single_verdict(&self, change: f64, changed: Verdict) -> (Verdict, String) {
        if !self.live() {
            return if change.abs() < 2.0 * MATERIAL_PCT {
                (Verdict::Inconclusive, "single runs that differ this little may differ by chance".to_owned())
            } else {
                (changed, "single runs cannot show how much of it is chance".to_owned())
            };
        }
        let runs = self.fast.runs.iter().chain(&self.slow.runs);
        let own: f64 = runs.filter_map(|run| run.wall.as_ref()?.relative_error()).map(|error| error.powi(2)).sum();
        let least = (1.0 + SINGLE_LIVE).ln().max(OWN_ERRORS * own.sqrt()).min((1.0 + MOST_SINGLE_LIVE).ln());
        if self.apart().ln() < least {
            let text = format!(
                "one recording a side, and they differ by less than {:.0} %, which equal runs may do: record twice \
                 more and name them with commas (A1,A2,A3 B1,B2,B3)",
                100.0 * (least.exp() - 1.0)
            );
            return (Verdict::Inconclusive, text);
        }
        (changed, "one recording a side: beyond the difference of equal runs, but their spread is not known".to_owned())
    }

    /// Warnings about the runs.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for side in [self.fast, self.slow] {
            if side.lost > 0 {
                warnings.push(format!("{}: the kernel lost {} events, which are missing here", side.label, side.lost));
            }
            if side.runs.iter().any(|run| run.operations() == 0) {
                warnings.push(format!("{}: a run has no calls, and its requests are all that is compared", side.label));
            }
            if side.inferred_windows {
                warnings
                    .push(format!("{}: windows are inferred from pages; this kernel does not trace them", side.label));
            }
        }
        if self.single() {
            warnings.push("single runs have no spread: repeat them (5 of each are enough for most)".to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
