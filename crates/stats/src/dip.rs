//! Whether samples have more than one mode: Hartigan's dip.
//!
//! The dip is the largest distance between the empirical distribution and the unimodal distribution that is nearest to
//! it. Left of its mode such a distribution is convex, right of it concave. So the greatest convex minorant and the
//! least concave majorant of the empirical distribution are drawn over an interval that starts as the whole range.
//! Where they are farthest apart the interval shrinks to the knots around that place; values outside of it are compared
//! with their own hull, and the largest distance so far is the dip. It ends when the interval can give no more.
//!
//! Reference: J. A. Hartigan and P. M. Hartigan, The Dip Test of Unimodality, Annals of Statistics 13 (1985); the
//! algorithm AS 217, Applied Statistics 34 (1985), with Maechler's correction that an interval must shrink.
//!
//! The p-value is that of the uniform distribution, the worst of all unimodal ones, so that the test is careful for any
//! other. It is read from a table made by simulation (`xtask/oracles/dip.py`): half a million samples for each size up
//! to 1,000 and fewer above, by linear interpolation in sqrt(n) times dip. Beyond the table's largest size the scaled
//! dip no longer moves.
//!
//! From 20 values on, it is within 0.01 of diptest's; between sizes of ten and twenty, where diptest's own table has
//! gaps, a simulation of 400,000 samples came out nearer to this table.
//!
//! Limits: a small second mode is below what the dip can see, and rounded values dip at every level.

use super::Method;

pub const METHOD: Method = Method {
    name: "dip",
    summary: "whether samples have more than one mode",
    reference: "Hartigan & Hartigan 1985",
    checked: "diptest 0.12",
};

/// Hartigan's dip of ascending values: 0 of fewer than four, and of values that are all equal.
///
/// # Panics
/// If there are more values than 32 bits can count.
pub fn statistic(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n < 2 || sorted[0] >= sorted[n - 1] {
        return 0.0;
    }
    assert!(u32::try_from(n).is_ok(), "a sample of more than 2^32 values");
    let below = minorant(sorted);
    let above = majorant(sorted);
    let (mut low, mut high) = (0, n - 1);
    // All distances are in counts of values; the dip is half of the largest, as a share.
    let mut dip = 0.0f64;
    let mut convex = Vec::new();
    let mut concave = Vec::new();
    loop {
        knots_down(&below, low, high, &mut convex);
        knots_up(&above, low, high, &mut concave);
        let Some(widest) = widest(sorted, &convex, &concave) else { break };
        if widest.distance < dip {
            break;
        }
        let left = convex[..=widest.convex].windows(2).map(|ends| beside(sorted, ends[0], ends[1], Side::Left));
        let right = concave[widest.concave..].windows(2).map(|ends| beside(sorted, ends[0], ends[1], Side::Right));
        dip = left.chain(right).fold(dip, f64::max);
        let shrunk = (convex[widest.convex], concave[widest.concave]);
        if shrunk == (low, high) {
            break;
        }
        (low, high) = shrunk;
    }
    dip / (2.0 * n as f64)
}

/// For each value the knot before it on the greatest convex minorant of the values up to it.
fn minorant(x: &[f64]) -> Vec<u32> {
    let mut before = vec![0u32; x.len()];
    for j in 1..x.len() {
        let mut knot = j - 1;
        while knot > 0 {
            let next = before[knot] as usize;
            // The slope falls at this knot, so it lies above the hull; products, since equal values have no slope.
            if (x[j] - x[knot]) * ((knot - next) as f64) < (x[knot] - x[next]) * ((j - knot) as f64) {
                break;
            }
            knot = next;
        }
        before[j] = knot as u32;
    }
    before
}

/// For each value the knot after it on the least concave majorant of the values from it on.
fn majorant(x: &[f64]) -> Vec<u32> {
    let last = x.len() - 1;
    let mut after = vec![last as u32; x.len()];
    for j in (0..last).rev() {
        let mut knot = j + 1;
        while knot < last {
            let next = after[knot] as usize;
            if (x[knot] - x[j]) * ((next - knot) as f64) < (x[next] - x[knot]) * ((knot - j) as f64) {
                break;
            }
            knot = next;
        }
        after[j] = knot as u32;
    }
    after
}

/// The minorant's knots from `low` to `high`, ascending.
fn knots_down(before: &[u32], low: usize, high: usize, knots: &mut Vec<usize>) {
    knots.clear();
    let mut at = high;
    while at > low {
        knots.push(at);
        at = before[at] as usize;
    }
    knots.push(low);
    knots.reverse();
}

/// The majorant's knots from `low` to `high`, ascending.
fn knots_up(after: &[u32], low: usize, high: usize, knots: &mut Vec<usize>) {
    knots.clear();
    let mut at = low;
    while at < high {
        knots.push(at);
        at = after[at] as usize;
    }
    knots.push(high);
}

/// Where the two hulls are farthest apart.
struct Widest {
    /// How far, in counts.
    distance: f64,
    /// Which knot of the minorant is there or just left of it.
    convex: usize,
    /// Which knot of the majorant is there or just right of it.
    concave: usize,
}

/// The widest place between the hulls, looked for at the knots of both; `None` if both are one straight line.
fn widest(x: &[f64], convex: &[usize], concave: &[usize]) -> Option<Widest> {
    if convex.len() == 2 && concave.len() == 2 {
        return None;
    }
    let mut widest = Widest { distance: 0.0, convex: 0, concave: concave.len() - 1 };
    let (mut down, mut up) = (1, 1);
    loop {
        let (g, l) = (convex[down], concave[up]);
        let (distance, at);
        if g > l {
            // A knot of the majorant, over an edge of the minorant. The minorant touches the steps from below.
            let start = convex[down - 1];
            let line = (x[l] - x[start]) * ((g - start) as f64) / (x[g] - x[start]);
            distance = (l as f64 - start as f64 + 1.0) - line;
            at = (down - 1, up);
            up += 1;
        } else {
            let start = concave[up - 1];
            let line = (x[g] - x[start]) * ((l - start) as f64) / (x[l] - x[start]);
            distance = line - (g as f64 - start as f64 - 1.0);
            at = (down, up);
            down += 1;
        }
        // Of equal distances the last counts; an edge between equal values is NaN and never counts.
        if distance >= widest.distance {
            widest = Widest { distance, convex: at.0, concave: at.1 };
        }
        down = down.min(convex.len() - 1);
        up = up.min(concave.len() - 1);
        if convex[down] == concave[up] {
            return Some(widest);
        }
    }
}

/// On which side of the modal interval an edge lies.
#[derive(Copy, Clone)]
enum Side {
    Left,
    Right,
}

/// The largest distance of the steps from the edge of their own hull between two of its knots.
fn beside(x: &[f64], start: usize, end: usize, side: Side) -> f64 {
    // A step is as high as one value, so that no distance is less.
    if end - start <= 1 || x[end] == x[start] {
        return 1.0;
    }
    let slope = (end - start) as f64 / (x[end] - x[start]);
    let distance = |nr: usize| {
        let line = (x[nr] - x[start]) * slope;
        let count = (nr - start) as f64;
        match side {
            Side::Left => count + 1.0 - line,
            Side::Right => line - (count - 1.0),
        }
    };
    (start..=end).map(distance).fold(1.0, f64::max)
}

/// How many quantiles each size has.
const LEVELS: usize = 19;
/// Shares of samples of the uniform distribution whose dip is smaller.
const SHARES: [f64; LEVELS] =
    [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999];
/// Sizes of samples, and the quantiles of sqrt(n) times dip for each of the shares.
const QUANTILES: [(u32, [f64; LEVELS]); 19] = [
    (
        4,
        [
            0.25000, 0.25000, 0.25000, 0.25000, 0.25000, 0.25000, 0.25000, 0.25000, 0.26497, 0.31466, 0.37482, 0.41425,
            0.44728, 0.46335, 0.47471, 0.48448, 0.48917, 0.49214, 0.49655,
        ],
    ),
    (
        5,
        [
            0.22361, 0.22361, 0.22361, 0.22361, 0.22361, 0.24355, 0.27228, 0.30065, 0.32963, 0.36046, 0.39549, 0.41697,
            0.43308, 0.43960, 0.44329, 0.44554, 0.44629, 0.44675, 0.44711,
        ],
    ),
    (
        6,
        [
            0.20412, 0.20412, 0.20412, 0.22626, 0.25439, 0.27896, 0.30146, 0.32295, 0.34410, 0.36588, 0.38979, 0.40356,
            0.43890, 0.47005, 0.49507, 0.52231, 0.53781, 0.54995, 0.57370,
        ],
    ),
    (
        7,
        [
            0.18898, 0.19222, 0.21662, 0.24899, 0.27319, 0.29344, 0.31181, 0.32883, 0.34516, 0.36167, 0.38234, 0.42392,
            0.46487, 0.48817, 0.50613, 0.52424, 0.53579, 0.54387, 0.55524,
        ],
    ),
    (
        8,
        [
            0.17678, 0.20870, 0.23185, 0.26105, 0.28187, 0.29899, 0.31405, 0.32781, 0.34096, 0.35479, 0.40094, 0.43525,
            0.46948, 0.48940, 0.50642, 0.52776, 0.55003, 0.56872, 0.60637,
        ],
    ),
    (
        9,
        [
            0.18429, 0.22007, 0.24114, 0.26706, 0.28505, 0.29964, 0.31234, 0.32403, 0.33757, 0.36865, 0.40926, 0.44008,
            0.47120, 0.49272, 0.51814, 0.54678, 0.56442, 0.57977, 0.60967,
        ],
    ),
    (
        10,
        [
            0.19272, 0.22735, 0.24660, 0.26976, 0.28563, 0.29825, 0.30916, 0.32302, 0.34742, 0.37531, 0.41265, 0.44159,
            0.47730, 0.50413, 0.52747, 0.55274, 0.56868, 0.58254, 0.61670,
        ],
    ),
    (
        12,
        [
            0.20413, 0.23444, 0.25064, 0.26934, 0.28198, 0.29570, 0.31541, 0.33537, 0.35646, 0.38114, 0.41581, 0.45025,
            0.48874, 0.51341, 0.53552, 0.56332, 0.58288, 0.60144, 0.64040,
        ],
    ),
    (
        15,
        [
            0.21128, 0.23621, 0.24891, 0.26827, 0.28870, 0.30671, 0.32380, 0.34128, 0.36064, 0.38591, 0.42598, 0.45938,
            0.49927, 0.52694, 0.55179, 0.58125, 0.60140, 0.62088, 0.66496,
        ],
    ),
    (
        20,
        [
            0.21235, 0.23578, 0.25404, 0.27741, 0.29541, 0.31152, 0.32795, 0.34708, 0.36860, 0.39496, 0.43478, 0.47035,
            0.51117, 0.53938, 0.56523, 0.59745, 0.62101, 0.64251, 0.68852,
        ],
    ),
    (
        30,
        [
            0.21692, 0.24374, 0.25979, 0.28293, 0.30182, 0.31925, 0.33680, 0.35570, 0.37773, 0.40511, 0.44679, 0.48364,
            0.52703, 0.55652, 0.58399, 0.61776, 0.64257, 0.66750, 0.71406,
        ],
    ),
    (
        40,
        [
            0.21944, 0.24702, 0.26407, 0.28725, 0.30612, 0.32399, 0.34201, 0.36134, 0.38352, 0.41157, 0.45415, 0.49154,
            0.53536, 0.56631, 0.59449, 0.62866, 0.65418, 0.67666, 0.72841,
        ],
    ),
    (
        60,
        [
            0.22380, 0.25163, 0.26886, 0.29255, 0.31185, 0.32992, 0.34815, 0.36784, 0.39048, 0.41889, 0.46225, 0.50073,
            0.54669, 0.57822, 0.60822, 0.64532, 0.67134, 0.70092, 0.75547,
        ],
    ),
    (
        100,
        [
            0.22827, 0.25651, 0.27428, 0.29851, 0.31803, 0.33633, 0.35490, 0.37504, 0.39818, 0.42745, 0.47183, 0.51115,
            0.55800, 0.59193, 0.62272, 0.66007, 0.68738, 0.71514, 0.77183,
        ],
    ),
    (
        200,
        [
            0.23308, 0.26187, 0.27966, 0.30441, 0.32431, 0.34292, 0.36183, 0.38231, 0.40578, 0.43571, 0.48070, 0.52131,
            0.57018, 0.60328, 0.63508, 0.67326, 0.70079, 0.72942, 0.78848,
        ],
    ),
    (
        500,
        [
            0.23762, 0.26657, 0.28465, 0.30957, 0.32995, 0.34891, 0.36809, 0.38865, 0.41262, 0.44291, 0.48920, 0.53055,
            0.58011, 0.61443, 0.64663, 0.68573, 0.71495, 0.74180, 0.80198,
        ],
    ),
    (
        1000,
        [
            0.24057, 0.26952, 0.28781, 0.31276, 0.33291, 0.35190, 0.37124, 0.39222, 0.41638, 0.44707, 0.49348, 0.53521,
            0.58505, 0.62028, 0.65245, 0.69406, 0.72363, 0.74784, 0.80670,
        ],
    ),
    (
        3000,
        [
            0.24233, 0.27195, 0.29053, 0.31576, 0.33596, 0.35519, 0.37463, 0.39547, 0.41970, 0.45069, 0.49726, 0.53883,
            0.59023, 0.62695, 0.66111, 0.70252, 0.73917, 0.76146, 0.82343,
        ],
    ),
    (
        10000,
        [
            0.24593, 0.27436, 0.29243, 0.31784, 0.33828, 0.35722, 0.37673, 0.39868, 0.42269, 0.45373, 0.50053, 0.54312,
            0.59141, 0.62543, 0.65555, 0.69700, 0.72301, 0.74444, 0.78353,
        ],
    ),
];

/// The chance of such a dip, or a deeper one, of uniform samples of this size: 1 of fewer than four. The table ends at
/// one in ten thousand: a deeper dip has a chance of at most that, and that is the answer.
pub fn p_value(dip: f64, n: usize) -> f64 {
    if n < QUANTILES[0].0 as usize {
        return 1.0;
    }
    let size = n as f64;
    let scaled = dip * size.sqrt();
    let next = QUANTILES.partition_point(|(rows_size, _)| (*rows_size as usize) < n);
    // Scaled quantiles go to their limit about as 1 / sqrt(n) goes to nothing.
    let (small, large) = (&QUANTILES[next.saturating_sub(1)], &QUANTILES[next.min(QUANTILES.len() - 1)]);
    let place = |(rows_size, _): &(u32, [f64; LEVELS])| 1.0 / f64::from(*rows_size).sqrt();
    let way = if small.0 == large.0 { 0.0 } else { (place(small) - 1.0 / size.sqrt()) / (place(small) - place(large)) };
    let quantile = |nr: usize| small.1[nr] + way * (large.1[nr] - small.1[nr]);
    let above = (0..LEVELS).find(|nr| quantile(*nr) > scaled);
    let share = match above {
        None => SHARES[LEVELS - 1],
        // No dip is less than half a step.
        Some(0) => {
            let least = 0.5 / size.sqrt();
            SHARES[0] * ((scaled - least) / (quantile(0) - least)).clamp(0.0, 1.0)
        }
        Some(nr) => {
            let (low, high) = (quantile(nr - 1), quantile(nr));
            SHARES[nr - 1] + (SHARES[nr] - SHARES[nr - 1]) * (scaled - low) / (high - low)
        }
    };
    1.0 - share
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../tests/vectors/dip.json")).expect("the vectors are JSON")
    }

    fn numbers(list: &Value) -> Vec<f64> {
        list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    #[test]
    fn the_dip_is_that_of_diptest() {
        let vectors = vectors();
        let cases = vectors["statistics"].as_array().expect("cases");
        assert!(cases.len() >= 100);
        for case in cases {
            let (dip, expected) = (statistic(&numbers(&case["values"])), case["dip"].as_f64().expect("a dip"));
            assert!((dip - expected).abs() <= 1e-12, "{}: {dip}, not {expected}", case["name"]);
        }
    }

    #[test]
    fn the_p_value_is_near_that_of_diptest() {
        let vectors = vectors();
        let cases = vectors["p_values"].as_array().expect("cases");
        assert!(cases.len() >= 50);
        for case in cases {
            let case = numbers(case);
            let (n, dip, expected) = (case[0] as usize, case[1], case[2]);
            let p = p_value(dip, n);
            // The smallest dip of all is a point with a mass of its own, which diptest counts in full.
            let least = dip * 2.0 * n as f64 <= 1.0 + 1e-9;
            let allowed = if least {
                0.03
            } else if n < 12 {
                0.025
            } else {
                0.01
            };
            assert!((p - expected).abs() <= allowed, "n = {n}, dip = {dip}: {p}, not {expected}");
        }
    }

    #[test]
    fn the_table_is_the_simulated_one() {
        let vectors = vectors();
        let table = &vectors["table"];
        assert_eq!(numbers(&table["levels"]), SHARES);
        assert_eq!(numbers(&table["sizes"]), QUANTILES.map(|row| f64::from(row.0)));
        for (row, simulated) in QUANTILES.iter().zip(table["rows"].as_array().expect("rows")) {
            for (quantile, simulated) in row.1.iter().zip(numbers(simulated)) {
                assert!((quantile - simulated).abs() < 1e-9, "n = {}", row.0);
            }
            assert!(row.1.is_sorted(), "n = {}", row.0);
        }
    }

    #[test]
    fn p_falls_as_the_dip_deepens_and_stays_a_chance() {
        for n in [0, 3, 4, 5, 13, 100, 2_000, 10_000, 10_000_000] {
            let p: Vec<f64> = (0..=250).map(|nr| p_value(f64::from(nr) / 1000.0, n)).collect();
            assert!(p.iter().all(|p| (1e-4 - 1e-12..=1.0).contains(p)), "n = {n}");
            assert!(p.is_sorted_by(|a, b| a >= b), "n = {n}");
        }
        assert_eq!(p_value(0.25, 3), 1.0);
        assert!(p_value(0.1, 10_000_000) < 1.1e-4);
    }

    #[test]
    fn odd_samples_have_no_dip() {
        for values in [&[][..], &[1.0], &[2.0; 30], &[0.0; 4]] {
            assert_eq!(statistic(values), 0.0);
        }
        let two_points: Vec<f64> = [vec![0.0; 10], vec![1.0; 10]].concat();
        assert!((statistic(&two_points) - 0.25).abs() < 1e-12);
    }
}
