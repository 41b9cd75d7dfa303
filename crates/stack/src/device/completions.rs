//! Shared code of the devices: commands on their way to completion in order of time, the device that knows these times
//! as soon as it gets a command, and a latency with a little spread.
//!
//! Not a model of its own and in no table. Ties in time are broken by the order in which the commands were given, so
//! that the same commands always give the same completions. Source: none, plain book-keeping.

use crate::device::{Command, Completion, Device, DeviceStats};
use crate::origin::Options;
use crate::rng::Rng;
use crate::units::{Nanos, SECTOR_BYTES};

/// How many at the end of the queue a new completion is compared with before it is looked for by halves.
const NEAR_END: usize = 8;

/// Least room at the front of the queue, and at least the number of completions, for which moving them pays.
const ROOM: usize = 64;

/// Completions whose time is known, in order of time, then of age. A command given later is seldom done much earlier,
/// so that a new one belongs near the end and a sorted queue is quicker than a heap. No memory is allocated once
/// `nr_expected` have been outstanding together.
#[derive(Clone, Debug)]
pub(super) struct Completions {
    /// The queue is what begins at `head`; before it are those that have happened.
    entries: Vec<(Nanos, Completion)>,
    head: usize,
}

impl Completions {
    /// Room for `nr_expected` at once.
    pub(super) fn new(nr_expected: u32) -> Completions {
        Completions { entries: Vec::with_capacity(2 * nr_expected as usize + ROOM), head: 0 }
    }

    /// `completion` will happen at `at`.
    #[inline(always)]
    pub(super) fn push(&mut self, at: Nanos, completion: Completion) {
        let queue = &self.entries[self.head..];
        let nr_later = match queue.last_chunk::<NEAR_END>() {
            // It probably belongs here. All are compared, since where a search would end is a toss-up.
            Some(last) if last[0].0 <= at => last.iter().filter(|(due, _)| *due > at).count(),
            _ => queue.len() - queue.partition_point(|(due, _)| *due <= at),
        };
        if nr_later == 0 {
            self.entries.push((at, completion));
        } else {
            self.entries.insert(self.entries.len() - nr_later, (at, completion));
        }
    }

    /// When the next one happens.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        self.entries.get(self.head).map(|(due, _)| *due)
    }

    /// The next one that has happened by `now`.
    #[inline]
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Completion> {
        let &(_, completion) = self.entries.get(self.head).filter(|(due, _)| *due <= now)?;
        self.head += 1;
        if self.head >= ROOM && 2 * self.head >= self.entries.len() {
            self.entries.drain(..self.head);
            self.head = 0;
        }
        Some(completion)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.head
    }
}

/// When the commands of a device without moving parts are done. Nothing that happens later changes such a time, so it
/// is known as soon as the command is given.
pub(super) trait Timing {
    /// When `command`, given at `now`, will be done, and whether the medium was needed for it.
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool);

    /// Counters so far.
    fn stats(&self) -> DeviceStats;
}

/// A device that is nothing but its [`Timing`]: the other work of all of them on a command.
#[derive(Clone, Debug)]
pub(super) struct Electronic<T> {
    queue_depth: u32,
    nr_queues: u32,
    nr_sectors: u64,
    rotational: bool,
    completions: Completions,
    pub(super) timing: T,
}

impl<T: Timing> Electronic<T> {
    /// Depth and capacity are those of `options`, the rest is `timing`; one queue.
    pub(super) fn new(options: &Options, timing: T) -> Electronic<T> {
        let queue_depth = options.unsigned("queue_depth") as u32;
        let nr_sectors = options.unsigned("nr_sectors");
        let completions = Completions::new(queue_depth);
        Electronic { queue_depth, nr_queues: 1, nr_sectors, rotational: false, completions, timing }
    }

    /// The same with the number of queues that `options` has.
    pub(super) fn with_queues(options: &Options, timing: T) -> Electronic<T> {
        Electronic { nr_queues: options.unsigned("nr_queues") as u32, ..Electronic::new(options, timing) }
    }

    /// The same device, which the kernel takes for a rotating one, or not.
    pub(super) fn rotating(self, rotational: bool) -> Electronic<T> {
        Electronic { rotational, ..self }
    }

    /// The device can take a command while `nr_waiting` have no time yet.
    #[inline]
    pub(super) fn check(&self, nr_waiting: usize, command: &Command) {
        let room = self.queue_depth as usize * self.nr_queues as usize;
        assert!(nr_waiting + self.completions.len() < room, "the device takes {room} commands");
        assert!(command.sector.0 + u64::from(command.nr_sectors) <= self.nr_sectors);
    }

    /// A command will be done at `done`.
    #[inline]
    pub(super) fn complete(&mut self, tag: u32, (done, media): (u64, bool)) {
        let completion = Completion { tag, media, seek: Nanos::ZERO, rotation: Nanos::ZERO };
        self.completions.push(Nanos(done), completion);
    }
}

impl<T: Timing + Send> Device for Electronic<T> {
    fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    fn nr_hw_queues(&self) -> u32 {
        self.nr_queues
    }

    fn nr_sectors(&self) -> u64 {
        self.nr_sectors
    }

    #[inline]
    fn submit(&mut self, now: Nanos, command: Command) {
        self.check(0, &command);
        let done = self.timing.time(now, &command);
        self.complete(command.tag, done);
    }

    fn next(&self) -> Option<Nanos> {
        self.completions.next()
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        self.completions.pop(now)
    }

    fn stats(&self) -> DeviceStats {
        self.timing.stats()
    }

    fn rotational(&self) -> bool {
        self.rotational
    }
}

/// Quantiles of a triangular distribution between -1000 and 1000 (per mille of the spread): entry `i` is the value
/// below which (2 i + 1) / 64 of the draws lie.
const TRIANGLE: [i64; 32] = [
    -823, -694, -605, -532, -470, -414, -363, -315, -271, -229, -190, -152, -116, -81, -48, -16, 16, 48, 81, 116, 152,
    190, 229, 271, 315, 363, 414, 470, 532, 605, 694, 823,
];

/// A latency that varies by at most a given percentage either way, its mean unchanged.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    times: [u64; TRIANGLE.len()],
}

impl Spread {
    /// `mean` with a spread of `percent` either way.
    pub(super) fn new(mean: Nanos, percent: u64) -> Spread {
        let mean = mean.0 as i64;
        Spread { times: TRIANGLE.map(|quantile| (mean + mean * percent as i64 * quantile / 100_000) as u64) }
    }

    /// One draw.
    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        self.times[(rng.next_u64() >> 59) as usize]
    }
}

/// How long sectors take at a rate. Most commands are as long as the one before, so that the division is seldom needed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rate {
    kb_s: u64,
    /// Length asked for last, and the answer.
    last: (u32, u64),
}

impl Rate {
    /// This many thousand bytes a second.
    pub(super) fn new(kb_s: u64) -> Rate {
        Rate { kb_s, last: (0, 0) }
    }

    /// How long `nr_sectors` take.
    #[inline]
    pub(super) fn time(&mut self, nr_sectors: u32) -> u64 {
        if self.last.0 != nr_sectors {
            self.last = (nr_sectors, transfer(u64::from(nr_sectors), self.kb_s));
        }
        self.last.1
    }
}

/// A divisor that is mostly a power of two, for which a shift will do.
#[derive(Copy, Clone, Debug)]
pub(super) struct Divisor {
    value: u64,
    shift: Option<u32>,
}

impl Divisor {
    /// By `value`, which must not be 0.
    pub(super) fn new(value: u64) -> Divisor {
        Divisor { value, shift: value.is_power_of_two().then(|| value.trailing_zeros()) }
    }

    /// Quotient and remainder.
    #[inline]
    pub(super) fn divide(self, number: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (number >> shift, number & (self.value - 1)),
            None => (number / self.value, number % self.value),
        }
    }
}

/// How long `nr_sectors` take at `rate_kb_s` thousand bytes a second.
#[inline]
pub(super) fn transfer(nr_sectors: u64, rate_kb_s: u64) -> u64 {
    nr_sectors * SECTOR_BYTES * 1_000_000 / rate_kb_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_come_in_order_of_time_then_of_age() {
        let completion = |tag| Completion { tag, media: false, seek: Nanos::ZERO, rotation: Nanos::ZERO };
        let mut completions = Completions::new(4);
        for (at, tag) in [(30, 1), (10, 2), (10, 3), (20, 4)] {
            completions.push(Nanos(at), completion(tag));
        }
        assert_eq!(completions.pop(Nanos(9)), None);
        let order: Vec<u32> = std::iter::from_fn(|| completions.pop(Nanos(20))).map(|done| done.tag).collect();
        assert_eq!((order, completions.len(), completions.next()), (vec![2, 3, 4], 1, Some(Nanos(30))));
        // Many, near and far from the end and with ties, against a stable sort.
        let mut rng = Rng::stream(1, "times");
        let mut completions = Completions::new(500);
        let mut expected: Vec<(u64, u32)> = (0..500).map(|tag| (u64::from(tag) / 4 + rng.below(40), tag)).collect();
        for &(at, tag) in &expected {
            completions.push(Nanos(at), completion(tag));
        }
        expected.sort();
        for (at, tag) in expected {
            assert_eq!(completions.next(), Some(Nanos(at)));
            assert_eq!(completions.pop(Nanos(at)).map(|done| done.tag), Some(tag));
        }
    }

    #[test]
    fn rates_and_divisors_are_what_dividing_gives() {
        let mut rate = Rate::new(3_200_000);
        for nr_sectors in [8, 8, 0, 2560, 8, 7, 7] {
            assert_eq!(rate.time(nr_sectors), transfer(u64::from(nr_sectors), 3_200_000), "{nr_sectors}");
        }
        for value in [1, 2, 3, 32, 63, 64, 1 << 40] {
            for number in [0, 1, 31, 32, 33, 1 << 40, u64::MAX] {
                assert_eq!(Divisor::new(value).divide(number), (number / value, number % value), "{number} by {value}");
            }
        }
    }

    #[test]
    fn the_spread_table_is_the_triangular_distribution_it_says() {
        // The distribution function on the lower half is (1000 + x)^2 / 2 per million.
        for (i, &x) in TRIANGLE[..16].iter().enumerate() {
            let below = (1000 + x) * (1000 + x) * 32;
            let wanted = (2 * i as i64 + 1) * 1_000_000;
            assert!((below - wanted).abs() <= 32_000, "entry {i} = {x}: {below} against {wanted}");
            assert_eq!(TRIANGLE[31 - i], -x);
        }
    }

    #[test]
    fn a_spread_keeps_the_mean_and_its_bounds() {
        let spread = Spread::new(Nanos::from_us(80), 10);
        let mut rng = Rng::stream(1, "spread");
        let draws: Vec<u64> = (0..32_000).map(|_| spread.draw(&mut rng)).collect();
        assert!(draws.iter().all(|&time| (72_000..=88_000).contains(&time)));
        assert!(draws.iter().any(|&time| time < 74_000) && draws.iter().any(|&time| time > 86_000));
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!(mean.abs_diff(80_000) < 200, "{mean}");
        assert_eq!(Spread::new(Nanos(77), 0).draw(&mut rng), 77);
    }
}
