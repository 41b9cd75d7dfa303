//! Recording a latency, count, sum, minimum and maximum included.

use super::{Aim, Figure, Setting, compare, timed};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::rng::Rng;

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let mut rng = Rng::stream(1, "bench.histogram");
    let values: Vec<u64> = (0..1 << 16).map(|_| latency(&mut rng)).collect();
    let rounds = 400 / setting.divisor;
    let exact: u128 = values.iter().map(|value| u128::from(*value)).sum::<u128>() * rounds as u128;
    let mut ours = || {
        let mut histogram = Histogram::default();
        let sample = timed(rounds * values.len(), || {
            for _ in 0..rounds {
                // Each round is told apart, or the compiler could do one and multiply.
                std::hint::black_box(&values).iter().for_each(|value| histogram.record(*value));
            }
            histogram.count()
        });
        if histogram.sum() == exact {
            Ok(sample)
        } else {
            Err("histogram: WRONG ANSWER: the sum is not exact".to_owned())
        }
    };
    let aim = Aim { unit: "ns/record", peer_name: "none", goal: None, limit: Some(1.1) };
    compare(setting, "histogram record".to_owned(), aim, &mut ours, Err("no peer: an absolute limit".to_owned()))
        .map(|figure| vec![figure])
}

/// Latencies around 80 us with a long tail, in ns.
fn latency(rng: &mut Rng) -> u64 {
    let spread = (0..8).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 4.0;
    (80_000.0 * (spread * 1.2).exp()) as u64
}
