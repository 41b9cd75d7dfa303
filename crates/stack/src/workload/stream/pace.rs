//! A limit on the speed of each direction, as fio keeps it.
//!
//! The next call of a direction is due when the bytes of those before it would have been moved at its rate; with
//! `poisson`, after gaps that are drawn, of a block's time on average. If a mixed stream draws a direction that is not
//! due, the other one has its turn if that is due; if neither is, the earlier is waited for.
//!
//! Source: fio's manual and calls of fio 3.33 counted by direction.

use serde::Serialize;

use super::super::draw::exponential;
use crate::rng::Rng;
use crate::units::Nanos;

/// A limit on the speed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// Bytes a second of reads, writes and trims; 0 for no limit.
    pub bytes: [u64; 3],
    /// Bytes in a gap of `poisson`, on average.
    pub blocks: [u32; 3],
    /// Gaps are exponential rather than equal.
    pub poisson: bool,
    /// Calls that pauses have made late are not made up for.
    pub ignores_pauses: bool,
}

impl Rate {
    /// Calls of `block` bytes each, that many a second in each direction.
    pub const fn of_calls(calls: u64, block: u32) -> Rate {
        let bytes = calls * block as u64;
        Rate { bytes: [bytes; 3], blocks: [block; 3], poisson: false, ignores_pauses: false }
    }
}

/// How far a stream is.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    begun: Option<Nanos>,
    moved: [u64; 3],
    /// Gaps so far.
    drawn: [Nanos; 3],
    /// None was due, and the earliest has been waited for.
    waited: bool,
}

fn time(bytes: u64, rate: u64) -> Nanos {
    Nanos(u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX / 2))
}

impl Pace {
    /// When the next call of a direction is due; nothing without a limit.
    fn due(&self, rate: &Rate, direction: usize) -> Option<Nanos> {
        match rate.bytes[direction] {
            0 => None,
            _ if rate.poisson => Some(self.begun? + self.drawn[direction]),
            bytes => Some(self.begun? + time(self.moved[direction], bytes)),
        }
    }

    /// Whether one of the directions is due; `Err` has the time of the first.
    pub(super) fn look(&mut self, rate: &Rate, directions: &[usize], now: Nanos) -> Result<(), Nanos> {
        self.begun.get_or_insert(now);
        let first = directions.iter().map(|direction| self.due(rate, *direction).unwrap_or(now)).min();
        match first {
            Some(due) if due > now => {
                self.waited = true;
                Err(due)
            }
            _ => Ok(()),
        }
    }

    /// The direction of the next call, read or write, if this one was drawn.
    pub(super) fn pick(&self, rate: &Rate, drawn: usize, now: Nanos) -> usize {
        let due = |direction| self.due(rate, direction).unwrap_or(Nanos::ZERO);
        let other = drawn ^ 1;
        match due(drawn) {
            at if self.waited && due(other) < at => other,
            at if at > now && due(other) <= now => other,
            _ => drawn,
        }
    }

    /// A call is made; since when it was due.
    pub(super) fn made(&mut self, rate: &Rate, direction: usize, bytes: u32, rng: &mut Rng, now: Nanos) -> Nanos {
        let due = self.due(rate, direction).unwrap_or(now).min(now);
        self.waited = false;
        self.moved[direction] += u64::from(bytes);
        if rate.poisson && rate.bytes[direction] > 0 {
            let mean = time(u64::from(rate.blocks[direction]), rate.bytes[direction]);
            self.drawn[direction] += exponential(rng, mean);
        }
        due
    }

    /// Calls that are due wait for so long.
    pub(super) fn shift(&mut self, by: Nanos) {
        self.begun = self.begun.map(|begun| begun + by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_keeps_its_own_rate_and_they_take_turns() {
        let rate = Rate { bytes: [2_000, 1_000, 0], ..Rate::of_calls(0, 100) };
        let (mut pace, mut now, mut calls, mut rng) = (Pace::default(), Nanos(7), [0; 2], Rng::stream(1, "test"));
        let end = Nanos(7 + 9_999_999_999);
        for drawn in [0, 1, 1, 0, 0, 0, 1, 1, 1].into_iter().cycle() {
            if let Err(due) = pace.look(&rate, &[0, 1], now) {
                assert!(due > now);
                now = due;
            }
            if now > end {
                break;
            }
            let direction = pace.pick(&rate, drawn, now);
            let due = pace.made(&rate, direction, 100, &mut rng, now);
            assert!(due <= now);
            calls[direction] += 1;
        }
        assert_eq!(calls, [200, 100]);
    }

    #[test]
    fn a_direction_without_a_limit_never_waits() {
        let rate = Rate { bytes: [0, 1_000, 0], ..Rate::of_calls(0, 100) };
        let (mut pace, mut rng) = (Pace::default(), Rng::stream(1, "test"));
        for (drawn, picked) in [(1, 1), (1, 0), (0, 0), (1, 0)] {
            assert_eq!(pace.look(&rate, &[0, 1], Nanos(5)), Ok(()));
            assert_eq!(pace.pick(&rate, drawn, Nanos(5)), picked);
            pace.made(&rate, picked, 100, &mut rng, Nanos(5));
        }
        assert_eq!(pace.look(&rate, &[1], Nanos(5)), Err(Nanos(100_000_005)));
    }

    #[test]
    fn poisson_gaps_have_the_mean_of_a_block() {
        let rate = Rate { poisson: true, ..Rate::of_calls(1000, 4096) };
        let (mut pace, mut rng) = (Pace::default(), Rng::stream(3, "test"));
        pace.look(&rate, &[0], Nanos::ZERO).expect("the first is due at once");
        (0..10_000).for_each(|_| _ = pace.made(&rate, 0, 4096, &mut rng, Nanos::ZERO));
        let mean = pace.drawn[0].0 / 10_000;
        assert!((950_000..1_050_000).contains(&mean), "{mean}");
    }
}
