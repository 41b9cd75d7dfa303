//! Draws that workloads need, with integers only, so that every machine draws the same.
//!
//! ```text
//! uniform   Lemire's method (rng.rs)
//! once      every block of a pass exactly once: a four-round Feistel network over the next power of four, walked until
//!           the number is in range
//! zipf      ranks weighted 1/r^theta: the first 4096 exactly, then segments that grow by a sixteenth
//! pareto    n * u^(log h / log (1 - h)), as fio defines it
//! normal    the middle plus a sum of twelve uniform numbers times the deviation
//! zones     a zone by its share of the draws, then uniform in it
//! exponential   -mean * ln u
//! ```
//! Logarithms and powers are fixed-point with 32 binary places; the error of a weight is below 1 in 10^6. Source: fio's
//! manual (`random_distribution`). Known deviation: fio's own numbers differ, the shapes do not.

use serde::Serialize;

use crate::rng::Rng;
use crate::units::Nanos;

/// How often which place is visited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Distribution {
    /// All equally.
    Uniform,
    /// Rank r with weight 1/r^theta, theta in thousandths.
    Zipf(u32),
    /// Pareto with that h in thousandths (1 .. 999).
    Pareto(u32),
    /// Around the middle, standard deviation in thousandths of the range.
    Normal(u32),
    /// One zone behind the other: share of the draws, and of the range, percent.
    Zones([[u8; 2]; MAX_ZONES]),
}

/// Zones that a range may have.
pub const MAX_ZONES: usize = 16;

const ONE: u64 = 1 << 32;

/// log2 of `x` (at least 1), 32 binary places.
fn log2(x: u64) -> u64 {
    let whole = 63 - x.leading_zeros();
    // The mantissa in 1 .. 2 with 63 binary places; each squaring yields one bit.
    let mut mantissa = u128::from(x << (63 - whole));
    let mut fraction = 0u64;
    for _ in 0..32 {
        mantissa = (mantissa * mantissa) >> 63;
        fraction <<= 1;
        if mantissa >> 64 != 0 {
            fraction |= 1;
            mantissa >>= 1;
        }
    }
    u64::from(whole) * ONE + fraction
}

/// 2^-`x`, both with 32 binary places, the result with 40.
fn exp2_neg(x: u64) -> u64 {
    let whole = x >> 32;
    if whole >= 40 {
        return 0;
    }
    // 2^-(2^-k) with 62 binary places, from repeated square roots of one half.
    let mut root = 1u128 << 61;
    let mut value = 1u128 << 62;
    for bit in (0..32).rev() {
        root = isqrt(root << 62);
        if x & (1 << bit) != 0 {
            value = (value * root) >> 62;
        }
    }
    ((value >> 22) >> whole) as u64
}

fn isqrt(x: u128) -> u128 {
    if x == 0 {
        return 0;
    }
    let mut guess = 1u128 << (128 - x.leading_zeros()).div_ceil(2);
    loop {
        let next = (guess + x / guess) / 2;
        if next >= guess {
            return guess;
        }
        guess = next;
    }
}

/// An exponential time with that mean: -ln(u) in 32.32 fixed point from the position of the leading bit and a
/// quadratic for the rest (error below 0.5 %).
pub(super) fn exponential(rng: &mut Rng, mean: Nanos) -> Nanos {
    let draw = rng.next_u64() | 1;
    let zeros = draw.leading_zeros();
    // fraction in 0 .. 2^32 of how far the mantissa lies between 1 and 2.
    let fraction = ((draw << zeros) << 1) >> 32;
    // log2(1 + f) is close to f + 0.343 f (1 - f).
    let bend = (fraction * (ONE - fraction)) >> 32;
    let log2 = fraction + bend * 343 / 1000;
    let minus_log2 = (u64::from(zeros) + 1) * ONE - log2;
    // ln 2 = 0.693147
    Nanos((u128::from(minus_log2) * 693_147 * u128::from(mean.0) / 1_000_000 / u128::from(ONE)) as u64)
}

/// A permutation of `0 .. n` that depends on a key and needs no memory.
#[derive(Copy, Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    pub(super) fn new(n: u64, key: u64) -> Permutation {
        assert!(n > 0, "a permutation of nothing");
        let bits = 64 - (n - 1).leading_zeros();
        Permutation { n, half_bits: bits.div_ceil(2).max(1), key }
    }

    pub(super) fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.n);
        let mut x = index;
        loop {
            x = self.scramble(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn scramble(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..4u64 {
            let mixed = (right ^ self.key.rotate_left(16 * round as u32)).wrapping_add(round + 1);
            let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((mixed ^ (mixed >> 29)) & mask));
        }
        left << self.half_bits | right
    }
}

/// Draws places in `0 .. n`.
#[derive(Clone, Debug)]
pub(super) struct Places {
    n: u64,
    shape: Shape,
    /// Spreads the ranks of skewed distributions over the file.
    spread: Permutation,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    /// First rank of each segment and the weight of all segments up to and with it.
    Zipf(Vec<(u64, u64)>),
    /// The exponent, 32 binary places.
    Pareto(u64),
    /// The deviation in places.
    Normal(u64),
    /// Shares of the draws up to and with a zone, percent; its first place, and its end.
    Zones(Vec<[u64; 3]>),
}

/// Ranks that have a segment each.
const EXACT_RANKS: u64 = 4096;

impl Places {
    pub(super) fn new(n: u64, distribution: Distribution, key: u64) -> Places {
        assert!(n > 0, "a range must not be empty");
        let shape = match distribution {
            Distribution::Uniform => Shape::Uniform,
            Distribution::Zipf(theta_milli) => {
                let mut segments = Vec::new();
                let (mut first, mut total) = (1u64, 0u64);
                while first <= n {
                    let length = if first <= EXACT_RANKS { 1 } else { (first / 16).min(n + 1 - first) };
                    let middle = first + length / 2;
                    let exponent = (u128::from(log2(middle)) * u128::from(theta_milli) / 1000) as u64;
                    total += (exp2_neg(exponent) * length).max(1);
                    segments.push((first - 1, total));
                    first += length;
                }
                Shape::Zipf(segments)
            }
            Distribution::Pareto(h_milli) => {
                let h = u64::from(h_milli.clamp(1, 999));
                // Both logarithms are negative: of h/1000 and of 1 - h/1000.
                let minus_log = |milli: u64| log2(1000) - log2(milli);
                Shape::Pareto((u128::from(minus_log(h)) * u128::from(ONE) / u128::from(minus_log(1000 - h))) as u64)
            }
            Distribution::Normal(deviation_milli) => {
                Shape::Normal((u128::from(n) * u128::from(deviation_milli) / 1000) as u64)
            }
            Distribution::Zones(zones) => {
                let (mut draws, mut percent) = (0, 0);
                let place = |percent: u64| (u128::from(n) * u128::from(percent) / 100) as u64;
                let zones = zones.map(|[share, size]| {
                    let start = place(percent).min(n - 1);
                    draws += u64::from(share);
                    percent += u64::from(size);
                    [draws, start, place(percent).clamp(start + 1, n)]
                });
                Shape::Zones(zones.into())
            }
        };
        Places { n, shape, spread: Permutation::new(n, key) }
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.shape {
            Shape::Uniform => rng.below(self.n),
            Shape::Zipf(segments) => {
                let total = segments.last().map_or(1, |(_, total)| *total);
                let point = rng.below(total);
                let index = segments.partition_point(|(_, upto)| *upto <= point);
                let first = segments[index].0;
                let end = segments.get(index + 1).map_or(self.n, |(next, _)| *next);
                self.spread.at(first + rng.below(end - first))
            }
            Shape::Pareto(exponent) => {
                let u = (rng.next_u64() >> 32).max(1);
                let minus_log = 32 * ONE - log2(u);
                let scaled = ((u128::from(minus_log) * u128::from(*exponent)) >> 32).min(u128::from(u64::MAX)) as u64;
                let rank = (u128::from(self.n - 1) * u128::from(exp2_neg(scaled))) >> 40;
                self.spread.at(rank as u64)
            }
            Shape::Normal(deviation) => {
                // Twelve uniform numbers have mean 6 and variance 1.
                let sum: u128 = (0..12).map(|_| u128::from(rng.next_u64() >> 32)).sum();
                let away = ((sum as i128 - 6 * i128::from(ONE)) * i128::from(*deviation)) >> 32;
                let place = i128::from(self.n / 2) + away;
                place.clamp(0, i128::from(self.n - 1)) as u64
            }
            Shape::Zones(zones) => {
                let point = rng.below(100);
                let [_, start, end] = zones[zones.partition_point(|zone| zone[0] <= point).min(MAX_ZONES - 1)];
                start + rng.below(end - start)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::{any, prop_assert, proptest};

    #[test]
    fn logarithms_and_powers_are_close() {
        for (x, log) in [(1u64, 0.0), (2, 1.0), (3, 1.584_962_5), (1000, 9.965_784_3), (1 << 40, 40.0)] {
            assert!((log2(x) as f64 / ONE as f64 - log).abs() < 1e-6, "log2({x})");
        }
        for x in [0.0f64, 0.5, 1.0, 3.25, 17.9] {
            let ours = exp2_neg((x * ONE as f64) as u64) as f64 / (1u64 << 40) as f64;
            assert!((ours - (-x).exp2()).abs() < 1e-9, "2^-{x}: {ours}");
        }
    }

    #[test]
    fn zipf_gives_the_first_rank_its_share() {
        let places = Places::new(100_000, Distribution::Zipf(1000), 7);
        let favourite = places.spread.at(0);
        let mut rng = Rng::stream(1, "test");
        let draws = 100_000;
        let hits = (0..draws).filter(|_| places.draw(&mut rng) == favourite).count();
        // 1 / H(100000) = 8.27 %.
        assert!((7_900..=8_700).contains(&hits), "{hits} of {draws}");
    }

    #[test]
    fn pareto_and_normal_are_as_skewed_as_asked() {
        let mut rng = Rng::stream(2, "test");
        let pareto = Places::new(1000, Distribution::Pareto(200), 3);
        let low: Vec<u64> = (0..200).map(|rank| pareto.spread.at(rank)).collect();
        let in_low = (0..20_000).filter(|_| low.contains(&pareto.draw(&mut rng))).count();
        // h = 0.2: a fifth of the places gets four fifths of the visits.
        assert!((15_400..=16_600).contains(&in_low), "{in_low}");
        let normal = Places::new(10_000, Distribution::Normal(100), 3);
        let near = (0..20_000).filter(|_| (4000..6000).contains(&normal.draw(&mut rng))).count();
        assert!((13_200..=14_100).contains(&near), "68 % within one deviation, got {near}");
        let mut zones = [[0; 2]; MAX_ZONES];
        zones[..3].copy_from_slice(&[[50, 5], [30, 15], [20, 80]]);
        let places = Places::new(10_000, Distribution::Zones(zones), 3);
        let mut found = [0; 3];
        (0..20_000).for_each(|_| {
            let place = places.draw(&mut rng);
            found[usize::from(place >= 500) + usize::from(place >= 2000)] += 1;
        });
        assert!((9_700..=10_300).contains(&found[0]) && (5_700..=6_300).contains(&found[1]), "{found:?}");
    }

    proptest! {
        #[test]
        fn a_permutation_hits_everything_once(n in 1u64..3000, key in any::<u64>()) {
            let permutation = Permutation::new(n, key);
            let mut seen = vec![false; n as usize];
            for index in 0..n {
                let place = permutation.at(index) as usize;
                prop_assert!(!seen[place]);
                seen[place] = true;
            }
        }

        #[test]
        fn every_draw_is_in_range(n in 1u64..100_000, kind in 0u32..5, key in any::<u64>()) {
            let distribution = match kind {
                0 => Distribution::Uniform,
                1 => Distribution::Zipf(1200),
                2 => Distribution::Pareto(300),
                3 => Distribution::Zones([[6, 6]; MAX_ZONES]),
                _ => Distribution::Normal(400),
            };
            let places = Places::new(n, distribution, key);
            let mut rng = Rng::stream(key, "test");
            for _ in 0..200 {
                prop_assert!(places.draw(&mut rng) < n);
            }
        }
    }
}
