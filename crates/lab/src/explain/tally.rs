//! A report's data of every run of a side, in little memory: latencies of calls and sizes of requests.
//!
//! Latencies go into the histograms of the simulator, whose buckets are 1/64 wide at most and whose counts are exact.
//! At the end of a bucket the share of latencies up to it is therefore exact, and the empirical distribution is taken
//! at such places only. Its band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant: it holds the whole
//! curve at once. Shifts of quantiles are those of [`harrell_davis`] on the pooled calls; where there are more than
//! [`POOLED`] of them, as many order statistics at equal distances stand for all, which widens the interval.
//!
//! Known limit: band and intervals take calls for independent. Calls of one run resemble each other, so both say how
//! well these calls determine the curve, and not what the next run will do; the comparison of the runs does that.

use std::collections::BTreeMap;

use iowhy_stack::event::{Event, EventSink, What};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::lifecycle::{Lifecycle, Step};
use iowhy_stack::rng::Rng;

use iowhy_stats::harrell_davis;
use iowhy_why::digest::kind_of;
use serde::Serialize;

/// The empirical distribution of latencies, with its band.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ecdf {
    /// read, write or sync.
    pub op: &'static str,
    /// Calls.
    pub n: u64,
    /// Latencies, ns.
    pub ns: Vec<u64>,
    /// Share of the calls that took at most this time.
    pub share: Vec<f64>,
    /// Lower end of the band.
    pub low: Vec<f64>,
    /// Upper end.
    pub high: Vec<f64>,
}

/// Shifts of quantiles of latencies from A to B.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shift {
    /// read, write or sync.
    pub op: &'static str,
    /// Which quantiles.
    pub quantile: Vec<f64>,
    /// By how much, ns.
    pub shift_ns: Vec<f64>,
    /// Lower ends of the intervals.
    pub low_ns: Vec<f64>,
    /// Upper ends.
    pub high_ns: Vec<f64>,
}

/// Sizes of requests when issued.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    /// read or write.
    pub dir: &'static str,
    /// Sizes.
    pub bytes: Vec<u64>,
    /// How many of each.
    pub count: Vec<u64>,
}

/// Kinds of calls, by [`kind_of`].
pub const OPS: [&str; 3] = ["read", "write", "sync"];
/// Directions of requests.
pub const DIRS: [&str; 2] = ["read", "write"];

/// Points of a distribution.
const POINTS: usize = 200;
/// Level of bands and intervals.
const LEVEL: f64 = 0.95;
/// Calls that shifts are computed of, at most.
const POOLED: u64 = 10_000;
/// Resamples of a shift.
const DRAWS: u32 = 999;
/// Calls that must lie on both sides of a quantile.
const LEAST_BEYOND: f64 = 10.0;
/// Quantiles whose shift is reported.
const QUANTILES: &[f64] = &[0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999];

/// Latencies and request sizes of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Latencies of reads, writes and syncs, ns.
    pub latency: [Histogram; 3],
    /// Sizes of reads and writes when issued, sectors; flushes have none.
    pub sectors: [BTreeMap<u32, u64>; 2],
    life: Lifecycle<()>,
}

impl EventSink for Tally {
    fn event(&mut self, event: &Event) {
        match (self.life.event(event), event.what) {
            (Step::Ended(start), What::CallEnd { op, .. }) => {
                self.latency[kind_of(op)].record(event.at.saturating_sub(start).0);
            }
            (Step::Issued(_), What::Issue { dir, nr_sectors, .. }) if nr_sectors > 0 => {
                *self.sectors[dir as usize].entry(nr_sectors).or_default() += 1;
            }
            _ => {}
        }
    }
}

impl Tally {
    /// Counts what another run has counted.
    pub fn merge(&mut self, other: &Tally) {
        self.latency.iter_mut().zip(&other.latency).for_each(|(mine, theirs)| mine.merge(theirs));
        for (mine, theirs) in self.sectors.iter_mut().zip(&other.sectors) {
            theirs.iter().for_each(|(size, count)| *mine.entry(*size).or_default() += count);
        }
    }

    /// The distributions of latencies, of the kinds of calls that there were.
    pub fn ecdfs(&self) -> Vec<Ecdf> {
        let of = |(op, latency): (&'static str, &Histogram)| (latency.count() > 0).then(|| ecdf(op, latency));
        OPS.into_iter().zip(&self.latency).filter_map(of).collect()
    }

    /// The sizes of requests, of the directions that there were.
    pub fn sizes(&self) -> Vec<Sizes> {
        let of = |(dir, sectors): (&'static str, &BTreeMap<u32, u64>)| {
            let bytes = sectors.keys().map(|sectors| u64::from(*sectors) * 512).collect();
            (!sectors.is_empty()).then(|| Sizes { dir, bytes, count: sectors.values().copied().collect() })
        };
        DIRS.into_iter().zip(&self.sectors).filter_map(of).collect()
    }
}

fn ecdf(op: &'static str, latency: &Histogram) -> Ecdf {
    let n = latency.count();
    let most = latency.max().unwrap_or(0);
    let reach = ((2.0 / (1.0 - LEVEL)).ln() / (2.0 * n as f64)).sqrt();
    let mut of = Ecdf { op, n, ..Ecdf::default() };
    let mut put = |ns: u64, upto: u64| {
        let share = upto as f64 / n as f64;
        of.ns.push(ns);
        of.share.push(rounded(share));
        of.low.push(rounded((share - reach).max(0.0)));
        of.high.push(rounded((share + reach).min(1.0)));
    };
    let buckets: Vec<(u64, u64, u64)> = latency.buckets().collect();
    let (mut upto, mut told) = (0, 0);
    for (nr, (lowest, width, count)) in buckets.iter().enumerate() {
        upto += count;
        // Places are equally far in share; both ends are always there.
        let due = (upto * POINTS as u64 / n) > told || nr == 0 || nr + 1 == buckets.len();
        if due || buckets.len() <= POINTS {
            told = upto * POINTS as u64 / n;
            put((lowest + width - 1).min(most), upto);
        }
    }
    of
}

/// Six digits are more than a picture shows.
fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// The values of a histogram, sorted: all of them, or [`POOLED`] order statistics at equal distances.
fn pooled(latency: &Histogram) -> Vec<f64> {
    let n = latency.count();
    let kept = n.min(POOLED);
    let (mut values, mut upto) = (Vec::with_capacity(kept as usize), 0);
    let (least, most) = (latency.min().unwrap_or(0), latency.max().unwrap_or(0));
    for (lowest, width, count) in latency.buckets() {
        upto += count;
        let value = (lowest + (width - 1) / 2).clamp(least, most) as f64;
        // The k-th of those that are kept is the order statistic in the middle of its share.
        while (values.len() as u64) < kept
            && (u128::from(2 * values.len() as u64 + 1) * u128::from(n)) <= u128::from(2 * upto) * u128::from(kept)
        {
            values.push(value);
        }
    }
    values
}

/// How quantiles of latencies shift from `a` to `b`, of the kinds of calls that both have.
pub fn shifts(a: &Tally, b: &Tally) -> Vec<Shift> {
    let mut rng = Rng::stream(1, "shifts of latencies");
    let mut all = Vec::new();
    for (kind, op) in OPS.into_iter().enumerate() {
        let [a, b] = [a, b].map(|side| pooled(&side.latency[kind]));
        let n = a.len().min(b.len()) as f64;
        let mut of = Shift { op, ..Shift::default() };
        for q in QUANTILES.iter().filter(|q| n * q.min(1.0 - **q) >= LEAST_BEYOND) {
            let shift = harrell_davis::shift(&a, &b, *q, DRAWS, LEVEL, &mut rng).units;
            // What the calls do not bound is not drawn.
            if shift.low.is_finite() && shift.high.is_finite() {
                of.quantile.push(*q);
                of.shift_ns.push(shift.estimate.round());
                of.low_ns.push(shift.low.round());
                of.high_ns.push(shift.high.round());
            }
        }
        if !of.quantile.is_empty() {
            all.push(of);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(values: impl IntoIterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        values.into_iter().for_each(|value| tally.latency[0].record(value));
        tally
    }

    /// Every point counts what the values themselves say, at every scale, within the number of points.
    #[test]
    fn a_distribution_is_exact_where_it_is_told() {
        let mut rng = Rng::stream(7, "latencies");
        for (n, scale) in [(1, 5), (10, 100), (1_000, 1), (30_000, 1_000_000)] {
            let values: Vec<u64> = (0..n).map(|_| scale + rng.below(scale * 50)).collect();
            let [of] = tally(values.iter().copied()).ecdfs().try_into().expect("reads alone");
            assert!(of.ns.len() <= 2 * POINTS + 2 && of.ns.len() == of.share.len(), "{}", of.ns.len());
            assert!(of.ns.is_sorted() && of.share.is_sorted());
            for (nr, ns) in of.ns.iter().enumerate() {
                let exact = values.iter().filter(|value| *value <= ns).count() as f64 / n as f64;
                assert!((of.share[nr] - exact).abs() < 1e-6, "{ns}: {} is not {exact}", of.share[nr]);
                assert!(of.low[nr] <= of.share[nr] && of.share[nr] <= of.high[nr]);
            }
            assert_eq!(of.share.last(), Some(&1.0));
            assert_eq!(of.ns.last(), values.iter().max());
        }
    }

    #[test]
    fn a_shift_is_found_where_it_is() {
        let base: Vec<u64> = (0..20_000).map(|nr| 100_000 + nr * 7 % 20_011).collect();
        // A tenth of the calls takes a millisecond more.
        let slow = base.iter().enumerate().map(|(nr, value)| value + if nr % 10 == 0 { 1_000_000 } else { 0 });
        let [of] = shifts(&tally(base.iter().copied()), &tally(slow)).try_into().expect("reads alone");
        let at = |q: f64| of.quantile.iter().position(|known| *known == q).expect("a quantile");
        assert!(of.shift_ns[at(0.5)].abs() < 3_000.0, "{:?}", of.shift_ns);
        assert!((of.shift_ns[at(0.95)] - 990_000.0).abs() < 20_000.0, "{:?}", of.shift_ns);
        assert!(of.low_ns[at(0.95)] > 900_000.0 && of.high_ns[at(0.95)] < 1_100_000.0);
        assert!(shifts(&tally([1, 2, 3]), &tally([1, 2, 3])).is_empty(), "three calls bound nothing");
    }

    #[test]
    fn what_stands_for_many_has_their_quantiles() {
        let all: Vec<u64> = (1..=100_000).collect();
        let few = pooled(&tally(all).latency[0]);
        assert_eq!(few.len() as u64, POOLED);
        for q in [0.001, 0.25, 0.5, 0.999] {
            let found = few[(q * POOLED as f64) as usize];
            assert!((found - q * 1e5).abs() <= q * 1e5 / 64.0 + 11.0, "{q}: {found}");
        }
        assert_eq!(pooled(&tally([3, 1, 2]).latency[0]), [1.0, 2.0, 3.0]);
    }
}
