//! Differences between arms that were run in blocks.
//!
//! Each block has every arm once. A value is the sum of what its arm and its block are worth, and of noise that is
//! alike in all; what neither explains, over (arms - 1)(blocks - 1) degrees of freedom, is the noise, and the
//! difference of an arm from the first follows Student's law (Fisher 1935; two-way layout without interaction). Pooled
//! over all arms the noise is known from few blocks: with four arms two are enough.
//! Limits: arms that spread more than others get too narrow an interval, the others too wide a one; with several arms
//! each interval has its own level, not all together.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Method;

pub const METHOD: Method = Method {
    name: "blocks",
    summary: "differences of several arms from the first, from few blocks that have each of them once",
    reference: "Fisher 1935",
    checked: "an example worked by hand, and coverage of drawn blocks",
};

/// Difference of an arm from the first, and its interval.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Difference {
    pub centre: f64,
    pub low: f64,
    pub high: f64,
}

/// Differences of the arms behind the first from it, at `level`; `blocks` are the values of each block by arm. The
/// interval of a single block, or arm, is infinite.
pub fn differences(blocks: &[Vec<f64>], level: f64) -> Vec<Difference> {
    let arms = blocks.iter().map(Vec::len).min().unwrap_or(0);
    let count = blocks.len() as f64;
    let means: Vec<f64> = (0..arms).map(|arm| blocks.iter().map(|block| block[arm]).sum::<f64>() / count).collect();
    let whole = means.iter().sum::<f64>() / arms.max(1) as f64;
    let rest: f64 = blocks
        .iter()
        .flat_map(|block| {
            let own = block[..arms].iter().sum::<f64>() / arms.max(1) as f64;
            block.iter().zip(&means).map(move |(value, mean)| (value - mean - own + whole).powi(2))
        })
        .sum();
    let freedom = (arms.max(1) - 1) as f64 * (count - 1.0);
    let half = if freedom > 0.0 {
        let quantile =
            StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |law| law.inverse_cdf(0.5 + level / 2.0));
        quantile * (rest / freedom * 2.0 / count).sqrt()
    } else {
        f64::INFINITY
    };
    let of = |mean: &f64| {
        let centre = mean - means[0];
        Difference { centre, low: centre - half, high: centre + half }
    };
    means.iter().skip(1).map(of).collect()
}

#[cfg(test)]
mod tests {
    use iowhy_stack::rng::Rng;

    use super::*;

    #[test]
    fn an_example_worked_by_hand() {
        // Means 11, 14, 16 of the arms, 13 and 14.33 of the blocks; residuals 1/3, 1/3, -2/3 with both signs: their
        // squares are 4/3 with 2 degrees of freedom, and t is 4.302653.
        let found = differences(&[vec![10.0, 13.0, 16.0], vec![12.0, 15.0, 16.0]], 0.95);
        let half = 4.302_652_73 * (2.0_f64 / 3.0).sqrt();
        for (found, centre) in found.iter().zip([3.0, 5.0]) {
            let expected = [centre, centre - half, centre + half];
            for (is, should) in [found.centre, found.low, found.high].iter().zip(expected) {
                assert!((is - should).abs() < 1e-6, "{found:?}");
            }
        }
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn one_block_bounds_nothing_and_equal_blocks_leave_no_doubt() {
        let one = differences(&[vec![1.0, 2.0]], 0.9);
        assert_eq!((one[0].centre, one[0].high), (1.0, f64::INFINITY));
        let equal = differences(&[vec![1.0, 2.0], vec![5.0, 6.0]], 0.9);
        assert_eq!(equal, [Difference { centre: 1.0, low: 1.0, high: 1.0 }]);
        assert!(differences(&[], 0.9).is_empty());
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut rng = Rng::stream(7, "blocks");
        let mut noise = || (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
        let mut held = 0;
        for _ in 0..4000 {
            let block =
                |of: f64, noise: &mut dyn FnMut() -> f64| (0..4).map(|arm| of + f64::from(arm) + noise()).collect();
            let found = differences(&[block(0.0, &mut noise), block(9.0, &mut noise)], 0.9);
            held += usize::from(found[1].low <= 2.0 && 2.0 <= found[1].high);
        }
        assert!((3500..3700).contains(&held), "{held} of 4000 at 90 %");
    }
}
