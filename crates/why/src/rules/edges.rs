//! Holds rules to their limits: a pair of recordings on which a rule speaks, and for each limit a value at which it
//! still does and the next one at which it does not.

use super::cost::{self, Code, Facts, Found, Paced, Sleeps};
use super::{Match, Rule};
use crate::digest::{Class, Digest, Layer, Spread};
use crate::{Delta, Side};
use iowhy_stack::event::RaKind;
use iowhy_stack::units::{Nanos, PAGE_BYTES};
use iowhy_trace::settings::Settings;

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

    /// The rule's finding.
    pub(super) fn ask(mut self, rule: &Rule) -> Option<Match> {
        self.sides[0].runs = vec![self.fast; 2];
        self.sides[1].runs = vec![self.slow; 2];
        (rule.find)(&Delta::of_roles(&self.sides[0], &self.sides[1], false))
    }
}

/// Windows of this kind: their number and their pages.
pub(super) fn windows(run: &mut Digest, kind: RaKind, count: f64, pages: f64) {
    (run.windows.count[kind as usize], run.windows.pages[kind as usize]) = (count as u64, pages as u64);
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

/// One recording: ten reads of 100 us, 1 ms in all, then what is put.
#[derive(Default)]
pub(super) struct Alone {
    pub(super) digest: Digest,
    pub(super) sleeps: Vec<Sleeps>,
    pub(super) streams: f64,
    pub(super) taken: f64,
    pub(super) others: Vec<(String, u64)>,
    pub(super) service: Vec<(u32, f64)>,
    pub(super) code: Option<Code>,
    pub(super) paced: Option<Paced>,
    pub(super) settings: Settings,
}

/// A limit's name, how a figure is put into the recording, a value at which the rule speaks, one at which it does not.
pub(super) type AloneEdge = (&'static str, fn(&mut Alone, f64), f64, f64);

impl Alone {
    pub(super) fn of(put: impl FnOnce(&mut Alone)) -> Alone {
        let mut alone = Alone { digest: Pair::of(|_| ()).fast, ..Alone::default() };
        put(&mut alone);
        alone
    }

    /// This number of the workload's own requests of a direction, of `sectors` each, that are waited for.
    pub(super) fn requests(&mut self, way: usize, nr: u64, sectors: u64, ns: f64) {
        let commands = &mut self.digest.commands;
        let class = Class { write: way == 1, ..Class::default() };
        commands.own.insert(class, [spread(nr, ns / nr as f64), Spread::default()]);
        (commands.own_sectors[way], commands.own_busy[way], commands.issued[way]) = (nr * sectors, ns as u64, nr);
        commands.sizes[way] = spread(nr, sectors as f64);
        self.digest.time.ns[way][Layer::Device as usize] = ns;
    }

    pub(super) fn set(&mut self, of: &str, key: &str, value: &str) {
        self.settings.values.insert((of.to_owned(), key.to_owned()), value.to_owned());
    }

    pub(super) fn count(&mut self, key: &str, value: u64) {
        self.settings.counters.insert(key.to_owned(), value);
    }

    pub(super) fn ask(mut self, rule: &'static Rule) -> Option<Found> {
        self.digest.wall.get_or_insert_default();
        let facts = Facts {
            digest: &self.digest,
            settings: &self.settings,
            lacks: &[],
            whole_ns: self.digest.elapsed.0 as f64,
            sleeps: &self.sleeps,
            streams: self.streams,
            taken: self.taken,
            others: &self.others,
            service: &self.service,
            code: self.code,
            paced: self.paced,
        };
        cost::found(&facts).into_iter().find(|found| found.rule.name == rule.name)
    }
}

/// The rule has a cost on `base`, of this percentage of the time and this confidence, and on each side of each limit as
/// the table says.
pub(super) fn hold_cost(rule: &'static Rule, base: impl Fn() -> Alone, (pct, sure): (f64, f64), edges: &[AloneEdge]) {
    let found = base().ask(rule).unwrap_or_else(|| panic!("{} has no cost on its base", rule.name));
    assert!((found.saves_pct - pct).abs() < 0.5, "{}: {} %", rule.name, found.saves_pct);
    assert!((found.cost.confidence - sure).abs() < 0.0005, "{}: confidence {}", rule.name, found.cost.confidence);
    assert!(found.bounds_pct[0] <= found.saves_pct && found.saves_pct <= found.bounds_pct[1], "{found:?}");
    for (limit, put, speaks, silent) in edges {
        for (value, expected) in [(*speaks, true), (*silent, false)] {
            let mut alone = base();
            put(&mut alone, value);
            let found = alone.ask(rule);
            assert_eq!(found.is_some(), expected, "{}, {limit} at {value}: {found:?}", rule.name);
        }
    }
}
