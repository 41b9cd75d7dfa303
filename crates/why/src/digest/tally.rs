//! Small containers of a digest: how values spread, and which pages of which file are in a set.

use std::collections::BTreeMap;

/// Buckets of a [`Spread`]: values below 8 have their own, larger ones four an octave, up to 2^47.
const BUCKETS: usize = 8 + 4 * 45;

/// How values (ns, bytes, pages) spread: counted in buckets a quarter of an octave wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    buckets: [u32; BUCKETS],
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { buckets: [0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Spread {
    fn bucket(value: u64) -> usize {
        if value < 8 {
            return value as usize;
        }
        let log = value.ilog2();
        let quarter = (value >> (log - 2)) & 3;
        (8 + 4 * (log as usize - 3) + quarter as usize).min(BUCKETS - 1)
    }

    fn middle(bucket: usize) -> f64 {
        if bucket < 8 {
            return bucket as f64;
        }
        let (log, quarter) = ((bucket - 8) / 4 + 3, (bucket - 8) % 4);
        let width = 2f64.powi(log as i32 - 2);
        2f64.powi(log as i32) + (quarter as f64 + 0.5) * width
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.buckets[Spread::bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts what another one has counted.
    pub fn merge(&mut self, other: &Spread) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> f64 {
        self.sum as f64
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The smallest; 0 of none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest; 0 of none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that a share `q` of all reach at most, to an eighth of its size; 0 of none.
    pub fn quantile(&self, q: f64) -> f64 {
        let wanted = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= wanted && self.count > 0 {
                return Spread::middle(bucket).clamp(self.min as f64, self.max as f64);
            }
        }
        0.0
    }

    /// Buckets, from the one with the smallest value to the one with the largest: where each begins, and how many
    /// values it has. Equal buckets of two spreads begin equally; there are none of no values.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let lowest = |bucket: usize| match bucket.checked_sub(8) {
            None => bucket as u64,
            Some(above) => (4 + above as u64 % 4) << (above / 4 + 1),
        };
        let (first, last) = (Spread::bucket(self.min()), Spread::bucket(self.max()));
        let count = if self.count == 0 { 0 } else { last - first + 1 };
        (first..first + count).map(move |bucket| (lowest(bucket), self.buckets[bucket]))
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Sum over the values of what exceeds `limit`, to the width of a bucket.
    pub fn excess_over(&self, limit: f64) -> f64 {
        self.excess_beyond(limit, limit)
    }

    /// Sum over the values above `limit` of what exceeds `usual`, to the width of a bucket.
    pub fn excess_beyond(&self, limit: f64, usual: f64) -> f64 {
        let of = |(bucket, n): (usize, &u32)| match Spread::middle(bucket) {
            middle if middle > limit => (middle - usual) * f64::from(*n),
            _ => 0.0,
        };
        self.buckets.iter().enumerate().map(of).sum()
    }
}

/// Pages in a chunk of a [`PageSet`].
const CHUNK: u64 = 4096;

/// A set of pages of several files: chunks of bits, which are made as they are needed.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    chunks: BTreeMap<(u32, u64), Box<[u64; 64]>>,
}

impl PageSet {
    /// Calls `each` with the existing words of a range, or all of them with `make`, and a mask of the range's bits in
    /// them.
    fn words(&mut self, file: u32, start: u64, nr: u64, make: bool, each: &mut dyn FnMut(&mut u64, u64)) {
        let end = start.saturating_add(nr);
        let mut at = start;
        while at < end {
            let chunk = at / CHUNK;
            let chunk_end = (chunk + 1).saturating_mul(CHUNK).min(end);
            let words = if make {
                Some(self.chunks.entry((file, chunk)).or_insert_with(|| Box::new([0; 64])))
            } else {
                self.chunks.get_mut(&(file, chunk))
            };
            let Some(words) = words else {
                at = chunk_end;
                continue;
            };
            while at < chunk_end {
                let bit = at % 64;
                let n = (64 - bit).min(chunk_end - at);
                let mask = if n == 64 { u64::MAX } else { ((1 << n) - 1) << bit };
                each(&mut words[(at % CHUNK / 64) as usize], mask);
                at += n;
            }
        }
    }

    /// Puts pages in; yields how many were in it before.
    pub fn insert(&mut self, file: u32, start: u64, nr: u64) -> u64 {
        let mut before = 0;
        self.words(file, start, nr, true, &mut |word, mask| {
            before += u64::from((*word & mask).count_ones());
            *word |= mask;
        });
        before
    }

    /// Takes pages out; yields how many were in it.
    pub fn remove(&mut self, file: u32, start: u64, nr: u64) -> u64 {
        let mut there = 0;
        self.words(file, start, nr, false, &mut |word, mask| {
            there += u64::from((*word & mask).count_ones());
            *word &= !mask;
        });
        there
    }

    /// How many of these pages are in it.
    pub fn count(&mut self, file: u32, start: u64, nr: u64) -> u64 {
        let mut there = 0;
        self.words(file, start, nr, false, &mut |word, mask| there += u64::from((*word & mask).count_ones()));
        there
    }

    pub fn nr_pages(&self) -> u64 {
        self.chunks.values().flat_map(|words| words.iter()).map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_the_values_to_an_eighth() {
        for scale in [1, 7, 1000, 1_000_003] {
            let mut spread = Spread::default();
            (1..=1000u64).for_each(|n| spread.add(n * scale));
            for q in [0.01, 0.25, 0.5, 0.99, 1.0] {
                let exact = q * 1000.0 * scale as f64;
                let found = spread.quantile(q);
                assert!((found - exact).abs() <= exact / 8.0 + 1.0, "{q} of {scale}: {found} against {exact}");
            }
            assert_eq!((spread.count(), spread.min(), spread.max()), (1000, scale, 1000 * scale));
            let buckets: Vec<(u64, u32)> = spread.buckets().collect();
            for (nr, (from, count)) in buckets.iter().enumerate() {
                let to = buckets.get(nr + 1).map_or(u64::MAX, |next| next.0);
                assert_eq!((1..=1000).filter(|n| (*from..to).contains(&(n * scale))).count() as u32, *count, "{from}");
            }
            assert!(buckets.first().is_some_and(|first| first.1 > 0) && buckets.last().is_some_and(|last| last.1 > 0));
        }
        assert_eq!(Spread::default().quantile(0.5), 0.0);
    }

    proptest! {
        #[test]
        fn a_set_of_pages_is_a_set_of_pages(
            steps in prop::collection::vec((0u8..3, 0u32..2, 0u64..9000, 1u64..5000), 1..30)
        ) {
            let (mut set, mut slow) = (PageSet::default(), BTreeSet::new());
            for (what, file, start, nr) in steps {
                let pages = (start..start + nr).map(|page| (file, page));
                let there = pages.clone().filter(|page| slow.contains(page)).count() as u64;
                match what {
                    0 => {
                        prop_assert_eq!(set.insert(file, start, nr), there);
                        slow.extend(pages);
                    }
                    1 => {
                        prop_assert_eq!(set.remove(file, start, nr), there);
                        pages.for_each(|page| { slow.remove(&page); });
                    }
                    _ => prop_assert_eq!(set.count(file, start, nr), there),
                }
                prop_assert_eq!(set.nr_pages(), slow.len() as u64);
            }
        }
    }
}
