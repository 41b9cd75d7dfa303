//! Whether samples rise or fall with time, and how fast; and how many of the first are unlike the rest.
//!
//! Mann-Kendall: of all pairs, how many rise less how many fall, counted by a merge sort in O(n log n). The p-value is
//! two-sided: exact without ties up to 50 values, by the number of permutations with as many inversions; otherwise
//! normal with the variance corrected for ties and without a correction for continuity, as SciPy has it. The slope is
//! Theil and Sen's: the median of the slopes of all pairs, by selection up to 2,000 values. Longer samples are cut into
//! up to 500 blocks of equal length, and the slope is that of the medians of the blocks.
//!
//! Warm-up: the first k values, at most a third, are one if their rank sum is further from what a shuffled sample would
//! have than 3.6 deviations, for the k where it is the furthest. Short heads cannot reach that; they are a warm-up if
//! they all lie on one side of all others: four or more by any gap, one to three by one that is wide against the
//! others' range. By simulation (normal, lognormal, exponential, uniform, Student t with 2 degrees of freedom and
//! rounded samples of 8 to 300 values) it reports a warm-up in fewer than one in a hundred samples without one.
//!
//! References: Mann 1945; Kendall 1975; Knight 1966 for the counting; Theil 1950; Sen 1968; for the scan of rank sums
//! Pettitt 1979, for cutting off a head White 1997 (MSER).
//!
//! Limits: neighbours that resemble each other look like drift and like warm-up to both tests.

use statrs::function::erf::erfc;

use super::{Method, median_sorted, sorted};

pub const METHOD: Method = Method {
    name: "drift",
    summary: "whether samples rise or fall with time, and how fast",
    reference: "Mann 1945; Kendall 1975; Theil 1950; Sen 1968",
    checked: "SciPy kendalltau, theilslopes",
};

/// How samples change with time.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Drift {
    /// Probability of such a rise or fall, or a larger one, if there is none.
    pub p: f64,
    /// Change from one sample to the next.
    pub slope: f64,
    /// Change from the first to the last.
    pub change: f64,
}

/// Up to this many values without ties the p-value is exact.
const EXACT_UP_TO: usize = 50;
/// Up to this many values all pairs have their slope taken.
const PAIRS_UP_TO: usize = 2_000;
/// Most blocks that the values are cut into.
const BLOCKS: usize = 500;

/// The drift of values in the order in which they were taken; `None` of fewer than three.
pub fn test(values: &[f64]) -> Option<Drift> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let slope = theil_sen(values);
    Some(Drift { p: mann_kendall(values), slope, change: slope * (n - 1) as f64 })
}

/// Two-sided p-value of Kendall's tau between the values and their order.
fn mann_kendall(values: &[f64]) -> f64 {
    let n = values.len();
    let pairs = n as u64 * (n as u64 - 1) / 2;
    let mut ordered = values.to_vec();
    let falling = inversions(&mut ordered, &mut vec![0.0; n]);
    let ties: Vec<u64> =
        ordered.chunk_by(|a, b| a == b).map(|tie| tie.len() as u64).filter(|length| *length > 1).collect();
    let tied: u64 = ties.iter().map(|t| t * (t - 1) / 2).sum();
    if tied == pairs {
        return 1.0;
    }
    let rising = pairs - tied - falling;
    if ties.is_empty() && n <= EXACT_UP_TO {
        return exact(n, falling.min(rising) as usize);
    }
    let spread = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let variance = (spread(n as f64) - ties.iter().map(|t| spread(*t as f64)).sum::<f64>()) / 18.0;
    let z = (rising as f64 - falling as f64).abs() / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// Sorts the values and counts the pairs that were in falling order.
fn inversions(values: &mut [f64], room: &mut [f64]) -> u64 {
    let n = values.len();
    if n < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(n / 2);
    let mut count = inversions(left, room) + inversions(right, room);
    let (mut i, mut j) = (0, 0);
    for slot in &mut room[..n] {
        if j == right.len() || (i < left.len() && left[i] <= right[j]) {
            *slot = left[i];
            i += 1;
        } else {
            count += (left.len() - i) as u64;
            *slot = right[j];
            j += 1;
        }
    }
    values.copy_from_slice(&room[..n]);
    count
}

/// Twice the share of permutations of `n` with at most `few` inversions.
fn exact(n: usize, few: usize) -> f64 {
    // The shares of permutations with 0, 1 .. inversions: another value adds 0 .. as many as there are before it.
    let mut shares = vec![0.0; few + 1];
    shares[0] = 1.0;
    for length in 2..=n {
        let mut sum = 0.0;
        let before = shares.clone();
        for k in 0..=few {
            sum += before[k];
            if k >= length {
                sum -= before[k - length];
            }
            shares[k] = sum / length as f64;
        }
    }
    (2.0 * shares.iter().sum::<f64>()).min(1.0)
}

/// The median of the slopes of all pairs.
fn theil_sen(values: &[f64]) -> f64 {
    if values.len() > PAIRS_UP_TO {
        let length = values.len().div_ceil(BLOCKS);
        let blocks: Vec<f64> = values.chunks_exact(length).map(|block| median_sorted(&sorted(block))).collect();
        return theil_sen(&blocks) / length as f64;
    }
    let n = values.len();
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (nr, first) in values.iter().enumerate() {
        slopes.extend(values[nr + 1..].iter().zip(1u32..).map(|(later, apart)| (later - first) / f64::from(apart)));
    }
    let middle = slopes.len() / 2;
    let even = slopes.len().is_multiple_of(2);
    let (below, upper, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    if even { f64::midpoint(below.iter().copied().fold(f64::NEG_INFINITY, f64::max), *upper) } else { *upper }
}

/// Fewer values than this have no warm-up.
const LEAST_WARM: usize = 8;
/// How many times the range of the others the gap to the first one, two or three values must be, times their number:
/// the more values there are, the less likely the first ones stand out by chance. From four on, no gap is asked for.
const HEAD_GAP: [f64; 3] = [40.0, 15.0, 5.0];
/// Heads of this length and longer are found by their ranks.
const LEAST_RANKED: usize = 4;
/// How extreme a rank sum is, in deviations, that makes a head unlike the rest.
const HEAD_Z: f64 = 3.6;

/// How many of the first values are unlike the rest: 0 mostly, and never more than a third.
pub fn warm_up(values: &[f64]) -> usize {
    let n = values.len();
    if n < LEAST_WARM {
        return 0;
    }
    ranked_head(values).or_else(|| far_head(values)).unwrap_or(0)
}

/// The head whose rank sum is the most extreme, if it is extreme enough.
fn ranked_head(values: &[f64]) -> Option<usize> {
    let n = values.len();
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = vec![0.0; n];
    let mut below = 0;
    let mut ties = 0.0;
    for tie in order.chunk_by(|a, b| a.0 == b.0) {
        // Centred, so that the expected sum of any head is nothing.
        let rank = below as f64 + (tie.len() as f64 - 1.0) / 2.0 - (n as f64 - 1.0) / 2.0;
        for (_, nr) in tie {
            ranks[*nr] = rank;
        }
        below += tie.len();
        ties += (tie.len() as f64).powi(3) - tie.len() as f64;
    }
    let size = n as f64;
    let per_pair = (size + 1.0) / 12.0 - ties / (12.0 * size * (size - 1.0));
    if per_pair <= 0.0 {
        return None;
    }
    let mut sum = 0.0;
    let mut best = (0.0, 0);
    for (nr, rank) in ranks[..n / 3].iter().enumerate() {
        sum += rank;
        let head = nr + 1;
        let z = sum.abs() / (head as f64 * (n - head) as f64 * per_pair).sqrt();
        if head >= LEAST_RANKED && z > best.0 {
            best = (z, head);
        }
    }
    (best.0 > HEAD_Z).then_some(best.1)
}

/// Values that lie on one side of all others, the longest such head.
fn far_head(values: &[f64]) -> Option<usize> {
    let n = values.len();
    // The range of each value and all after it.
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    let mut later: Vec<(f64, f64)> = values
        .iter()
        .rev()
        .map(|value| {
            range = (range.0.min(*value), range.1.max(*value));
            range
        })
        .collect();
    later.reverse();
    let mut head = (f64::INFINITY, f64::NEG_INFINITY);
    let mut longest = None;
    for (nr, value) in values[..n / 3].iter().enumerate() {
        head = (head.0.min(*value), head.1.max(*value));
        let (least, most) = later[nr + 1];
        let gap = (head.0 - most).max(least - head.1);
        let needed = HEAD_GAP.get(nr).map_or(0.0, |factor| factor / n as f64 * (most - least));
        if gap > needed {
            longest = Some(nr + 1);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use iowhy_stack::rng::Rng;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn p_and_slope_are_those_of_scipy() {
        let cases: Vec<Value> =
            serde_json::from_str(include_str!("../tests/vectors/drift.json")).expect("the vectors are JSON");
        assert!(cases.len() >= 50);
        for case in cases {
            let values: Vec<f64> = case["values"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            let drift = test(&values).expect("three values and more");
            let (p, slope) = (case["p"].as_f64().expect("p"), case["slope"].as_f64().expect("slope"));
            assert!((drift.p - p).abs() <= 1e-9, "{}: p {}, not {p}", case["name"], drift.p);
            assert!((drift.slope - slope).abs() <= 1e-12, "{}: slope {}, not {slope}", case["name"], drift.slope);
            assert!((drift.change - slope * (values.len() - 1) as f64).abs() <= 1e-9);
        }
    }

    proptest! {
        #[test]
        fn inversions_are_counted_as_by_hand(values in proptest::collection::vec(0u8..20, 0..60)) {
            let mut values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let by_hand: usize =
                values.iter().enumerate().map(|(nr, x)| values[nr + 1..].iter().filter(|y| *y < x).count()).sum();
            let mut room = vec![0.0; values.len()];
            prop_assert_eq!(inversions(&mut values, &mut room), by_hand as u64);
            prop_assert!(values.is_sorted());
        }
    }

    #[test]
    fn odd_samples_do_not_drift() {
        assert_eq!(test(&[]), None);
        assert_eq!(test(&[1.0, 2.0]), None);
        assert_eq!(test(&[5.0; 30]), Some(Drift { p: 1.0, slope: 0.0, change: 0.0 }));
    }

    #[test]
    fn long_samples_have_the_slope_of_their_blocks() {
        let mut rng = Rng::stream(1, "slope");
        for n in [1_000, 2_001, 10_007] {
            let values: Vec<f64> = (0..n).map(|nr| f64::from(nr) * 0.5 + rng.below(100) as f64).collect();
            let drift = test(&values).expect("many values");
            assert!((drift.slope - 0.5).abs() < 0.01 && drift.p < 1e-9, "{n}: {drift:?}");
        }
    }

    #[test]
    fn a_warm_up_is_found_and_cut_where_it_ends() {
        let mut rng = Rng::stream(2, "warm-up");
        let mut steady = |n: usize| (0..n).map(|_| 100.0 + rng.below(1_000) as f64 / 256.0).collect::<Vec<f64>>();
        // (values, length of the warm-up, its difference from 100 .. 104, result)
        for (n, head, by, expected) in
            [(10, 1, 30.0, 1), (40, 1, -20.0, 1), (20, 2, 12.0, 2), (20, 3, 8.0, 3), (40, 6, 8.0, 6), (90, 20, 5.0, 20)]
        {
            let mut values = steady(n);
            values[..head].iter_mut().for_each(|value| *value += by);
            assert_eq!(warm_up(&values), expected, "{head} of {n} by {by}");
        }
    }

    #[test]
    fn shuffled_samples_have_no_warm_up() {
        let mut rng = Rng::stream(3, "no warm-up");
        for n in [0, 1, 7, 8, 12, 30, 200] {
            let mut seen = 0;
            for _ in 0..300 {
                // A product of uniform numbers has a long tail.
                let values: Vec<f64> = (0..n).map(|_| (0..3).map(|_| rng.below(1_000) as f64).product()).collect();
                let found = warm_up(&values);
                assert!(found <= n / 3);
                seen += usize::from(found > 0);
            }
            assert!(seen <= 6, "{n} values: {seen} of 300");
        }
        assert_eq!(warm_up(&[3.0; 50]), 0);
    }
}
