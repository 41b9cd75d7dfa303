//! Resampling, ours and SciPy's, with 9,999 draws: the difference of two medians and the permutation of two means.
//!
//! Both have the same samples in the same order; ours sorts them within the time measured. The answer is 1 if the
//! interval or the p-value is where a far larger number of draws found it, as near as 9,999 draws can tell. The p-value
//! is so small that drawing may not stop early: all draws are made.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Sample, Setting, compare, timed};
use iowhy_compare::trials;
use iowhy_compare::{Settings, Verdict};
use iowhy_stack::rng::Rng;
use iowhy_stats::{bootstrap, permutation, sorted};
use serde_json::json;
use std::cell::RefCell;

/// Values of each side of a whole comparison, and the tails it must show.
const WHOLE: usize = 10_000;
const TAILS: usize = 4;
const DRAWS: u32 = 9_999;
const LEVEL: f64 = 0.95;
const PEER: &str = "scipy";

/// Two samples of `n` and what is found in them.
struct Case {
    n: usize,
    /// How much larger the second sample is.
    shift: f64,
    /// Interval of the difference of medians, and how near it must be found.
    interval: [f64; 2],
    interval_within: f64,
    /// P-value of the difference of means, and how near it must be found.
    p: f64,
    p_within: f64,
    /// Smallest ratios aimed at.
    bootstrap_goal: f64,
    permutation_goal: f64,
    /// Draws that SciPy makes at a time, of medians and of means: the fastest for it of 10, 25, 100, 500 and all.
    batches: [u32; 2],
    /// Measurements of ours that make one.
    rounds: usize,
}

const CASES: &[Case] = &[
    Case {
        n: 100,
        shift: 35.0,
        interval: [7.300, 62.58],
        interval_within: 3.0,
        p: 0.0088,
        p_within: 0.007,
        bootstrap_goal: 25.0,
        permutation_goal: 15.0,
        batches: [500, 100],
        rounds: 20,
    },
    Case {
        n: 1_000,
        shift: 12.0,
        interval: [3.290, 20.93],
        interval_within: 0.9,
        p: 0.0089,
        p_within: 0.007,
        bootstrap_goal: 150.0,
        permutation_goal: 15.0,
        batches: [500, 25],
        rounds: 20,
    },
    Case {
        n: 10_000,
        shift: 3.65,
        interval: [0.901, 6.441],
        interval_within: 0.28,
        p: 0.0096,
        p_within: 0.007,
        bootstrap_goal: 1_500.0,
        permutation_goal: 15.0,
        batches: [100, 25],
        rounds: 8,
    },
];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let peer = Peer::start(setting, "scipy==1.16.3", include_str!("peers/scipy_peer.py")).map(RefCell::new);
    let mut figures = Vec::new();
    for case in CASES {
        let a = spread(case.n, 0.618_033_988_749_894_9, 0.0);
        let b = spread(case.n, 0.754_877_666_246_692_7, case.shift);
        if let Ok(peer) = &peer {
            peer.borrow_mut().measure(&json!({ "kind": "samples", "a": a, "b": b }))?;
        }
        let theirs = |kind: &str, expected: &[f64], within: f64, batch: u32| {
            let request = json!({
                "kind": kind, "draws": DRAWS, "batch": batch, "level": LEVEL,
                "expected": expected, "within": within,
            });
            peer.as_ref().map_err(Clone::clone).map(|peer| move || peer.borrow_mut().measure(&request))
        };
        let mut rng = Rng::stream(1, "bench.statistics");

        let mut theirs_medians = theirs("bootstrap", &case.interval, case.interval_within, case.batches[0]);
        let mut ours = || {
            Ok(milliseconds(timed(case.rounds, || {
                let near = (0..case.rounds).all(|_| {
                    let (a, b) = (sorted(&a), sorted(&b));
                    let found = bootstrap::quantile_difference(&a, &b, 0.5, DRAWS, LEVEL, &mut rng);
                    (found.low - case.interval[0]).abs() <= case.interval_within
                        && (found.high - case.interval[1]).abs() <= case.interval_within
                });
                u64::from(near)
            })))
        };
        let aim = Aim { unit: "ms", peer_name: PEER, goal: Some(case.bootstrap_goal), limit: None };
        let name = format!("bootstrap of medians, n = {}", case.n);
        figures.push(compare(setting, name, aim, &mut ours, measure(&mut theirs_medians))?);

        let mut theirs_means = theirs("permutation", &[case.p], case.p_within, case.batches[1]);
        let mut ours = || {
            Ok(milliseconds(timed(case.rounds, || {
                let near = (0..case.rounds).all(|_| {
                    permutation::means(&a, &b, DRAWS, &mut rng)
                        .is_some_and(|found| found.draws == DRAWS && (found.p - case.p).abs() <= case.p_within)
                });
                u64::from(near)
            })))
        };
        let aim = Aim { unit: "ms", peer_name: PEER, goal: Some(case.permutation_goal), limit: None };
        let name = format!("permutation of means, n = {}", case.n);
        figures.push(compare(setting, name, aim, &mut ours, measure(&mut theirs_means))?);
    }
    figures.push(whole(setting)?);
    Ok(figures)
}

/// A comparison with all remarks on two runs of 10,000 values each. No peer does all of it.
fn whole(setting: &Setting) -> Result<Figure, String> {
    let mut rng = Rng::stream(1, "bench.comparison");
    let source = trials::SOURCES.iter().find(|source| source.name == "lognormal");
    let source = source.ok_or("there is no lognormal source")?;
    let [a, b] = ["a", "b"].map(|label| trials::group(label, (source.draw)(&mut rng, WHOLE)));
    let mut ours = || {
        Ok(milliseconds(timed(1, || {
            let row = &iowhy_compare::compare(&a, &b, &Settings::default()).rows[0];
            u64::from(row.tails.len() == TAILS && row.verdict != Verdict::Regression)
        })))
    };
    let aim = Aim { unit: "ms", peer_name: "no peer", goal: None, limit: Some(200.0) };
    let name = format!("whole comparison, n = {WHOLE}");
    compare(setting, name, aim, &mut ours, Err("nothing else says all of it".to_owned()))
}

/// A peer's measurement as [`compare`] takes it.
fn measure<M: FnMut() -> Result<Sample, String>>(peer: &mut Result<M, String>) -> Result<Measure<'_>, String> {
    peer.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone())
}

/// The same cost in another unit.
fn milliseconds(sample: Sample) -> Sample {
    Sample { ns: sample.ns / 1e6, ..sample }
}

/// Exponential values around 100, in an order that looks random; the vectors of the tests have the same.
fn spread(n: usize, step: f64, shift: f64) -> Vec<f64> {
    (0..n).map(|i| shift - 100.0 * (1.0 - ((i + 1) as f64 * step) % 1.0).ln()).collect()
}
