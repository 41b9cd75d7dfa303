//! The search for the greatest depth at which latencies stay below a target.
//!
//! ```text
//! depth      begins with 1, and is tried for a window; it is doubled as long as no depth has failed, then halved
//!            towards the least that has; after three good windows next to it the failed depth is tried again
//! good       the wanted part of the calls of a window was fast enough; with all of them, the first slow one fails it
//! found      the depth does not change any more: the figures so far are forgotten, one more window is the result
//! hopeless   depth 1 fails
//! ```
//! Source: fio's manual (latency_target), and depths that fio 3.33 finds.

use iowhy_stack::units::Nanos;

use crate::plan;

/// A thread's search.
pub(super) struct Search {
    pub(super) of: plan::Search,
    /// The depth that is tried.
    pub(super) depth: u32,
    limit: u32,
    low: u32,
    high: u32,
    stable: u32,
    since: Option<Nanos>,
    calls: u64,
    slow: u64,
    last: bool,
}

/// Meaning of a call for the thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    /// The figures so far are to be forgotten.
    Restart,
    /// The thread is done.
    Found,
    Hopeless,
}

impl Search {
    pub(super) fn new(of: plan::Search, limit: u32) -> Search {
        Search { of, depth: 1, limit, low: 1, high: limit, stable: 0, since: None, calls: 0, slow: 0, last: false }
    }

    /// A call that took this long has ended.
    pub(super) fn call(&mut self, took: Nanos, now: Nanos) -> Verdict {
        let since = *self.since.get_or_insert(now);
        self.calls += 1;
        if took > self.of.target {
            self.slow += 1;
            if self.of.percent >= 100.0 {
                return self.failed(now);
            }
        }
        if now.saturating_sub(since) < self.of.window {
            return Verdict::GoOn;
        }
        let fast = (self.calls - self.slow) as f64 * 100.0 / self.calls as f64;
        if fast < self.of.percent {
            // Depth 1 stays: calls may become faster.
            let verdict = self.failed(now);
            return if verdict == Verdict::Hopeless { Verdict::GoOn } else { verdict };
        }
        let before = self.depth;
        self.low = before;
        if before + 1 == self.high {
            self.stable += 1;
            if self.stable >= 3 {
                (self.high, self.stable) = (self.high + 1, 0);
            }
        }
        let next = if self.high == self.limit { before * 2 } else { (before + self.high) / 2 };
        self.depth = next.min(self.limit);
        self.renew(now);
        match (self.depth == before && !self.of.goes_on, self.last) {
            (false, _) => Verdict::GoOn,
            (true, true) => Verdict::Found,
            (true, false) => {
                self.last = true;
                Verdict::Restart
            }
        }
    }

    fn failed(&mut self, now: Nanos) -> Verdict {
        if self.depth == 1 {
            return Verdict::Hopeless;
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = (self.depth + self.low) / 2;
        self.stable = 0;
        self.renew(now);
        Verdict::GoOn
    }

    fn renew(&mut self, now: Nanos) {
        (self.since, self.calls, self.slow) = (Some(now), 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_that_at_which_latencies_are_still_low() {
        // A device on which a call takes 10 us for each one in flight.
        for (target_us, percent, limit, depth, last) in [
            (45, 90.0, 16, 4, Verdict::Found),
            (1000, 90.0, 16, 16, Verdict::Found),
            (75, 100.0, 32, 7, Verdict::Found),
            (5, 100.0, 32, 1, Verdict::Hopeless),
        ] {
            let of = plan::Search {
                target: Nanos::from_us(target_us),
                window: Nanos::from_us(1000),
                percent,
                goes_on: false,
            };
            let mut search = Search::new(of, limit);
            let (mut now, mut restarts) = (Nanos::ZERO, 0);
            let end = loop {
                let took = Nanos::from_us(10 * u64::from(search.depth));
                now += Nanos::from_us(10);
                match search.call(took, now) {
                    Verdict::GoOn => {}
                    Verdict::Restart => restarts += 1,
                    end => break end,
                }
                assert!(now < Nanos::from_secs(10), "no end at depth {}", search.depth);
            };
            assert_eq!((search.depth, end), (depth, last), "{target_us} us");
            assert_eq!(restarts, u32::from(last == Verdict::Found));
        }
    }
}
