//! Holds rules to their limits: a pair of recordings on which a rule speaks, and for each limit a value at which it
//! still does and the next one at which it does not.

use super::{Match, Rule};
use crate::digest::{Digest, Spread};
use crate::{Delta, Side};
use iowhy_stack::units::{Nanos, PAGE_BYTES};

/// Two recordings, each standing for two equal runs, whose mean is exact.
pub(super) struct Pair {
    pub(super) fast: Digest,
    pub(super) slow: Digest,
    /// Apart from the runs: settings, and whether a kernel was recorded.
    pub(super) sides: [Side; 2],
}

/// A limit's name, how a figure is put into the pair, a value at which the rule speaks, one at which it does not.
pub(super) type Edge = (&'static str, fn(&mut Pair, f64), f64, f64);

/// This value, N times.
pub(super) fn spread(n: u64, value: f64) -> Spread {
    let mut spread = Spread::default();
    (0..n).for_each(|_| spread.add(value as u64));
    spread
}

impl Pair {
    /// Ten reads of a page each, of 100 us on the fast side and 200 us on the slow one, then what `put` adds.
    pub(super) fn of(put: impl FnOnce(&mut Pair)) -> Pair {
        let run = |each: u64| {
            let mut run = Digest { elapsed: Nanos(10 * each), ..Digest::default() };
            run.time.slots = 1;
            run.workload.calls[0] = 10;
            run.workload.bytes[0] = 10 * PAGE_BYTES;
            run.workload.concurrency = 1;
            (0..10).for_each(|_| run.latency[0].add(each));
            run
        };
        let mut pair = Pair { fast: run(100_000), slow: run(200_000), sides: Default::default() };
        put(&mut pair);
        pair
    }

    /// The same change on both sides.
    pub(super) fn both(&mut self, put: impl Fn(&mut Digest)) {
        put(&mut self.fast);
        put(&mut self.slow);
    }

    /// A setting of both sides, the fast one's value first.
    pub(super) fn set(&mut self, of: &str, key: &str, values: [&str; 2]) {
        for (side, value) in self.sides.iter_mut().zip(values) {
            side.settings.resize_with(1, Default::default);
            side.settings[0].values.insert((of.to_owned(), key.to_owned()), value.to_owned());
        }
    }

    /// A counter of both sides, the fast one's value first.
    pub(super) fn count(&mut self, key: &str, values: [u64; 2]) {
        for (side, value) in self.sides.iter_mut().zip(values) {
            side.settings.resize_with(1, Default::default);
            side.settings[0].counters.insert(key.to_owned(), value);
        }
    }

    pub(super) fn ask(mut self, rule: &Rule) -> Option<Match> {
        self.sides[0].runs = vec![self.fast; 2];
        self.sides[1].runs = vec![self.slow; 2];
        (rule.find)(&Delta::of_roles(&self.sides[0], &self.sides[1], false))
    }
}

/// The rule speaks on `base` with this confidence, and on each side of each limit as the table says.
pub(super) fn hold(rule: &Rule, base: fn() -> Pair, confidence: f64, edges: &[Edge]) {
    let found = base().ask(rule).unwrap_or_else(|| panic!("{} is silent on its base", rule.name));
    assert!((found.confidence - confidence).abs() < 0.0005, "{}: confidence {}", rule.name, found.confidence);
    for (limit, put, speaks, silent) in edges {
        for (value, expected) in [(*speaks, true), (*silent, false)] {
            let mut pair = base();
            put(&mut pair, value);
            let found = pair.ask(rule);
            assert_eq!(found.is_some(), expected, "{}, {limit} at {value}: {found:?}", rule.name);
        }
    }
}

/// The confidence on `base` with a figure in it: a constant's name, how the figure is put in, its value, how sure.
pub(super) fn sure(rule: &Rule, base: fn() -> Pair, cases: &[Edge]) {
    for (constant, put, value, confidence) in cases {
        let mut pair = base();
        put(&mut pair, *value);
        let found = pair.ask(rule).unwrap_or_else(|| panic!("{}, {constant} at {value}: silent", rule.name));
        assert!((found.confidence - confidence).abs() < 0.0005, "{}, {constant}: {found:?}", rule.name);
    }
}
