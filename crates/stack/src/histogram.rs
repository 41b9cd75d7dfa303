//! Latency histogram: 64 buckets to a power of two, exact count, sum, minimum and maximum.
//!
//! The scheme is fio's: values below 128 have a bucket each; above, the seven leading bits choose the bucket. A bucket
//! is at most 1/64 of its lowest value wide, and a quantile is reported as the middle of its bucket (kept within the
//! exact minimum and maximum), so it is off by less than 1/128 of the true order statistic, and not at all below 128.
//! Integers only, so equal data give equal quantiles on every machine. Memory grows with the largest value seen: 15 KiB
//! up to 34 seconds in nanoseconds, 30 KiB at most.

/// Leading bits that choose the bucket, apart from the first.
const BITS: u32 = 6;
/// Buckets to a power of two.
const PER_OCTAVE: usize = 1 << BITS;

/// Counts of values by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Values in each bucket; a whole number of octaves, the last of which was needed.
    counts: Vec<u64>,
    /// Sum of the values: the low half, and how often it has run over. One number of 128 bits costs twice as much.
    sum: u64,
    carries: u64,
    min: u64,
    max: u64,
}

/// How far to shift `value` so that its leading bits remain.
#[inline]
fn shift_of(value: u64) -> u32 {
    (value | PER_OCTAVE as u64).ilog2() - BITS
}

#[inline]
fn bucket_of(value: u64) -> usize {
    let shift = shift_of(value);
    shift as usize * PER_OCTAVE + (value >> shift) as usize
}

/// The lowest value of a bucket, and how many values it has: fio's histograms have the same buckets.
pub fn range_of(bucket: usize) -> (u64, u64) {
    let shift = (bucket / PER_OCTAVE).saturating_sub(1);
    (((bucket - shift * PER_OCTAVE) as u64) << shift, 1 << shift)
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Vec::new(), sum: 0, carries: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Adds `value`.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        match self.counts.get_mut(bucket) {
            Some(count) => *count += 1,
            None => self.grow(bucket),
        }
        let (sum, carry) = self.sum.overflowing_add(value);
        self.sum = sum;
        // Carries and new extremes are rare: a branch that is never taken is cheaper than work with each value.
        if carry {
            self.carry();
        }
        if value < self.min {
            self.lower(value);
        }
        if value > self.max {
            self.raise(value);
        }
    }

    /// Adds everything that `other` has counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        let (sum, carry) = self.sum.overflowing_add(other.sum);
        self.sum = sum;
        self.carries += other.carries + u64::from(carry);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The values added since `before` was a copy of this. The smallest and largest are known as well as their buckets.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let old = before.counts.iter().chain(std::iter::repeat(&0));
        let mut since = Histogram {
            counts: self.counts.iter().zip(old).map(|(count, old)| count - old).collect(),
            sum: self.sum.wrapping_sub(before.sum),
            carries: self.carries - before.carries - u64::from(self.sum < before.sum),
            ..Histogram::default()
        };
        let held = |(_, count): &(usize, &u64)| **count > 0;
        let bucket = |(bucket, _): (usize, &u64)| range_of(bucket);
        let first = since.counts.iter().enumerate().find(held).map(bucket);
        let last = since.counts.iter().enumerate().rfind(held).map(bucket);
        let (Some((low, _)), Some((high, width))) = (first, last) else { return Histogram::default() };
        (since.min, since.max) = (low.max(self.min), (high + (width - 1)).min(self.max));
        since
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values.
    pub fn sum(&self) -> u128 {
        u128::from(self.carries) << 64 | u128::from(self.sum)
    }

    /// The smallest value, if there is one.
    pub fn min(&self) -> Option<u64> {
        (!self.counts.is_empty()).then_some(self.min)
    }

    /// The largest value, if there is one.
    pub fn max(&self) -> Option<u64> {
        (!self.counts.is_empty()).then_some(self.max)
    }

    /// The value below or at which `numerator / denominator` of the values lie (nearest rank), within 1/128 of it.
    /// `None` without values.
    ///
    /// # Panics
    /// If the fraction is above 1 or the denominator is 0.
    pub fn quantile(&self, numerator: u64, denominator: u64) -> Option<u64> {
        assert!(
            denominator > 0 && numerator <= denominator,
            "{numerator}/{denominator} is not a fraction of the values"
        );
        let wanted = (u128::from(self.count()) * u128::from(numerator)).div_ceil(u128::from(denominator)).max(1);
        let mut seen = 0u128;
        let bucket = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= wanted
        })?;
        let (lowest, width) = range_of(bucket);
        Some((lowest + (width - 1) / 2).clamp(self.min, self.max))
    }

    /// Buckets that hold values: lowest value, how many values the bucket spans, how many were recorded.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| {
            let (lowest, width) = range_of(bucket);
            (lowest, width, *count)
        })
    }

    /// Makes room up to the end of the octave that has `bucket`, and counts a value in it.
    #[cold]
    fn grow(&mut self, bucket: usize) {
        self.counts.resize((bucket / PER_OCTAVE + 1) * PER_OCTAVE, 0);
        self.counts[bucket] += 1;
    }

    #[cold]
    fn carry(&mut self) {
        self.carries += 1;
    }

    #[cold]
    fn lower(&mut self, value: u64) {
        self.min = value;
    }

    #[cold]
    fn raise(&mut self, value: u64) {
        self.max = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_numbers_without_gap_or_overlap() {
        let last = bucket_of(u64::MAX);
        let mut next = 0u128;
        for bucket in 0..=last {
            let (lowest, width) = range_of(bucket);
            assert_eq!(u128::from(lowest), next, "bucket {bucket}");
            assert_eq!((bucket_of(lowest), bucket_of(lowest + (width - 1))), (bucket, bucket));
            assert!(width == 1 || u128::from(width) * 64 <= u128::from(lowest), "bucket {bucket} is too wide");
            next = u128::from(lowest) + u128::from(width);
        }
        assert_eq!(next, 1 << 64, "the last bucket ends where the numbers do");
    }

    #[test]
    fn small_values_and_extremes_are_exact() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(1, 2), histogram.min(), histogram.max()), (None, None, None));
        [3, 90, 100, 101, u64::MAX].into_iter().for_each(|value| histogram.record(value));
        let quantiles: Vec<_> = (0..=5).map(|fifth| histogram.quantile(fifth, 5).unwrap()).collect();
        assert_eq!(quantiles[..5], [3, 3, 90, 100, 101]);
        assert!(u64::MAX - quantiles[5] <= u64::MAX / 128, "{}", quantiles[5]);
        assert_eq!((histogram.min(), histogram.max()), (Some(3), Some(u64::MAX)));
        assert_eq!(histogram.sum(), 294 + u128::from(u64::MAX));
    }

    #[test]
    fn latencies_up_to_half_a_minute_fit_fifteen_kibibytes() {
        let mut histogram = Histogram::default();
        histogram.record((1 << 35) - 1);
        assert!(histogram.counts.len() * size_of::<u64>() <= 15 * 1024, "{} buckets", histogram.counts.len());
    }

    /// Values of every size, not only large ones.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn the_values_since_are_those_added(
            first in prop::collection::vec(value(), 0..50),
            then in prop::collection::vec(value(), 0..50),
        ) {
            let mut whole = Histogram::default();
            first.iter().for_each(|value| whole.record(*value));
            let before = whole.clone();
            let mut added = Histogram::default();
            then.iter().for_each(|value| {
                whole.record(*value);
                added.record(*value);
            });
            let since = whole.since(&before);
            prop_assert!(since.buckets().eq(added.buckets()));
            prop_assert_eq!((since.sum(), since.count()), (added.sum(), added.count()));
            if let (Some(least), Some(most)) = (added.min(), added.max()) {
                let (low, high) = (since.min().expect("values"), since.max().expect("values"));
                prop_assert!(low <= least && most <= high && high - most <= most / 64 && least - low <= least / 64);
            }
        }

        #[test]
        fn quantiles_stay_within_the_stated_error(
            mut values in prop::collection::vec(value(), 1..300),
            (numerator, denominator) in (1..1000u64).prop_flat_map(|d| (0..=d, Just(d))),
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum(), values.iter().map(|value| u128::from(*value)).sum::<u128>());
            prop_assert_eq!((histogram.min(), histogram.max()), (values.first().copied(), values.last().copied()));
            let rank = (values.len() as u64 * numerator).div_ceil(denominator).max(1);
            let exact = values[rank as usize - 1];
            let estimate = histogram.quantile(numerator, denominator).unwrap();
            prop_assert!(
                u128::from(estimate.abs_diff(exact)) * 128 <= u128::from(exact),
                "{} for {}", estimate, exact
            );
        }

        #[test]
        fn merging_is_recording_everything_in_one(
            left in prop::collection::vec(value(), 0..50),
            right in prop::collection::vec(value(), 0..50),
        ) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|value| histogram.record(*value));
                histogram
            };
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged, of(&[left, right].concat()));
        }
    }
}
