//! Whether means differ, by relabelling, stopped early when it is clear.
//!
//! If the labels of two samples mean nothing, every choice of `n` among all `n + m` values is as likely to be the first
//! sample. The p-value is twice the smaller share of the choices whose sum is at most, or at least, the one seen
//! (Fisher 1935), as SciPy has it. Few choices are all enumerated, one exchange at a time (the revolving door,
//! Nijenhuis & Wilf 1975). Of many, some are drawn: p = (hits + 1) / (draws + 1); drawing ends early when both tails
//! have had enough hits, and p is then hits / draws (Besag & Clifford 1991), which is as valid.
//!
//! A draw gives each value one random bit, eight values at a time: a table of the 256 sums of eight values is looked up
//! once for each of many draws. Then as many values are moved in or out, at random, as are missing from `n` or too
//! many; given its size the set is uniform before and after. For uneven sizes several random words are combined into
//! bits that are set about as often as needed.
//!
//! Limits: it tests whether the samples are exchangeable, so unequal spread and size are differences, too. Above
//! 500,000 values it does not answer: the means are then normal for all draws.

use super::Method;
use iowhy_stack::rng::Rng;

pub const METHOD: Method = Method {
    name: "permutation",
    summary: "whether means differ, by relabelling, stopped early when it is clear",
    reference: "Fisher 1935; Besag & Clifford 1991",
    checked: "SciPy permutation_test",
};

/// The outcome of a permutation test.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Permutation {
    /// Two-sided p-value.
    pub p: f64,
    /// Relabellings that were looked at.
    pub draws: u32,
    /// Whether these were all there are.
    pub exact: bool,
    /// Whether drawing ended before the number asked for, because the p-value was clearly not small.
    pub stopped_early: bool,
}

/// Most relabellings that are all enumerated: two samples of ten have 184,756.
const ENUMERATED: u64 = 200_000;

/// More values than this are not relabelled.
const LARGEST: usize = 500_000;

/// Memory for the random bits of the draws made together, bytes.
const BITS: usize = 1 << 21;

/// Whether the means of `a` and `b` differ, by at most `draws` relabellings.
///
/// Drawing ends when each tail has a hundredth of `draws` hits (20 at least): a p-value above 0.02 needs no more, and
/// has then an error of a tenth at 9,999 draws. `None` if a side is empty, no draws are asked for, or there are more
/// than 500,000 values.
pub fn means(a: &[f64], b: &[f64], draws: u32, rng: &mut Rng) -> Option<Permutation> {
    let total = a.len() + b.len();
    if a.is_empty() || b.is_empty() || total > LARGEST || draws == 0 {
        return None;
    }
    let (chosen, others) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let pool = pool(chosen, others);
    let choices = choices(total, chosen.len());
    if let Some(choices) = choices.filter(|choices| *choices <= ENUMERATED) {
        return Some(enumerate(&pool, chosen.len(), choices));
    }
    let enough = (draws / 100).max(20);
    let mut tails = Tails::new(&pool, chosen.len());
    let mut done = 0;
    let mut round = Round::new(&pool, chosen.len());
    // The first rounds are short: most comparisons end in them.
    let mut size = 2 * enough as usize;
    while done < draws {
        let count = size.min((draws - done) as usize).min(round.largest());
        for sum in round.sums(count, rng) {
            tails.count(*sum);
            done += 1;
            if tails.smaller() >= enough && done < draws {
                let p = 2.0 * f64::from(tails.smaller()) / f64::from(done);
                return Some(Permutation { p: p.min(1.0), draws: done, exact: false, stopped_early: true });
            }
        }
        size = round.largest().min(2 * size);
    }
    let p = 2.0 * f64::from(tails.smaller() + 1) / (f64::from(draws) + 1.0);
    Some(Permutation { p: p.min(1.0), draws, exact: false, stopped_early: false })
}

/// The values of both samples, the chosen ones first, less their mean: small numbers lose fewer digits in sums.
fn pool(chosen: &[f64], others: &[f64]) -> Vec<f64> {
    let total = (chosen.len() + others.len()) as f64;
    // Divided before they are added, so that no sum is too large.
    let mean: f64 = chosen.iter().chain(others).map(|value| value / total).sum();
    // A whole number leaves whole numbers whole, whose sums are then exact and ties are ties.
    let mean = mean.round();
    chosen.iter().chain(others).map(|value| value - mean).collect()
}

/// Ways to choose `k` of `n`, if they fit.
fn choices(n: usize, k: usize) -> Option<u64> {
    (0..k as u64).try_fold(1u64, |ways, i| ways.checked_mul(n as u64 - i).map(|product| product / (i + 1)))
}

/// Hits on either side.
struct Tails {
    /// A sum up to this is a hit of the lower tail, one from that on a hit of the upper tail.
    low_to: f64,
    high_from: f64,
    low: u32,
    high: u32,
}

impl Tails {
    fn new(pool: &[f64], size: usize) -> Tails {
        let seen: f64 = pool[..size].iter().sum();
        // Sums of the same values in another order are the same sum.
        let rounding = 1e-13 * pool.iter().map(|value| value.abs()).sum::<f64>();
        Tails { low_to: seen + rounding, high_from: seen - rounding, low: 0, high: 0 }
    }

    #[inline]
    fn count(&mut self, sum: f64) {
        self.low += u32::from(sum <= self.low_to);
        self.high += u32::from(sum >= self.high_from);
    }

    #[inline]
    fn smaller(&self) -> u32 {
        self.low.min(self.high)
    }
}

/// Looks at every choice of `size` values of the pool.
fn enumerate(pool: &[f64], size: usize, choices: u64) -> Permutation {
    let mut tails = Tails::new(pool, size);
    // `places` ascend; the sums of all up to each place are kept, so that a step changes few of them.
    let mut places: Vec<usize> = (0..size).collect();
    let mut sums = vec![0.0; size + 1];
    let mut changed = 0;
    loop {
        for i in changed..size {
            sums[i + 1] = sums[i] + pool[places[i]];
        }
        tails.count(sums[size]);
        // The next choice in lexicographic order: the last place that can move, moves.
        let Some(moved) = (0..size).rev().find(|i| places[*i] < pool.len() - size + i) else { break };
        places[moved] += 1;
        for i in moved + 1..size {
            places[i] = places[i - 1] + 1;
        }
        changed = moved;
    }
    let p = 2.0 * f64::from(tails.smaller()) / choices as f64;
    Permutation { p: p.min(1.0), draws: choices as u32, exact: true, stopped_early: false }
}

/// Draws made together.
struct Round<'a> {
    pool: &'a [f64],
    size: usize,
    /// Of 32 values how many a random bit chooses.
    rate: u32,
    /// The choice of each draw: eight values of one draw after those of the draw before, then the next eight values.
    bits: Vec<u8>,
    sums: Vec<f64>,
    counts: Vec<u32>,
}

impl<'a> Round<'a> {
    fn new(pool: &'a [f64], size: usize) -> Round<'a> {
        // Rounded down, because values are more quickly put in than found and taken out.
        let rate = (32 * size / pool.len()) as u32;
        Round { pool, size, rate, bits: Vec::new(), sums: Vec::new(), counts: Vec::new() }
    }

    /// Most draws that can be made together.
    fn largest(&self) -> usize {
        (BITS / self.pool.len().div_ceil(8)).clamp(64, 2_048)
    }

    /// Sums of the values that `draws` draws choose.
    fn sums(&mut self, draws: usize, rng: &mut Rng) -> &[f64] {
        // Eight draws share a random word.
        let lanes = draws.next_multiple_of(8);
        let groups = self.pool.len().div_ceil(8);
        self.bits.clear();
        self.bits.resize(groups * lanes, 0);
        self.sums.clear();
        self.sums.resize(lanes, 0.0);
        self.counts.clear();
        self.counts.resize(lanes, 0);
        if self.rate > 0 {
            for (values, bits) in self.pool.chunks(8).zip(self.bits.chunks_exact_mut(lanes)) {
                add_group(values, self.rate, bits, &mut self.sums, &mut self.counts, rng);
            }
        }
        for draw in 0..draws {
            self.complete(draw, lanes, rng);
        }
        &self.sums[..draws]
    }

    /// Moves values in or out until there are as many as the sample has.
    fn complete(&mut self, draw: usize, lanes: usize, rng: &mut Rng) {
        let total = self.pool.len() as u64;
        let has = self.counts[draw] as usize;
        let put_in = has < self.size;
        let mut left = has.abs_diff(self.size);
        let mut sum = self.sums[draw];
        while left > 0 {
            let value = rng.below(total) as usize;
            let byte = &mut self.bits[(value / 8) * lanes + draw];
            let bit = 1 << (value % 8);
            if (*byte & bit == 0) == put_in {
                *byte ^= bit;
                sum += if put_in { self.pool[value] } else { -self.pool[value] };
                left -= 1;
            }
        }
        self.sums[draw] = sum;
    }
}

/// A word whose bits are set with probability `rate / 32`: from the lowest bit of the rate on, each bit of it halves
/// the probability and adds a half if it is set.
#[inline]
fn random_bits(rate: u32, rng: &mut Rng) -> u64 {
    let lowest = rate.trailing_zeros();
    let mut word = rng.next_u64();
    for bit in lowest + 1..5 {
        let next = rng.next_u64();
        word = if rate >> bit & 1 == 1 { word | next } else { word & next };
    }
    word
}

/// Chooses among up to eight values, for every draw.
fn add_group(values: &[f64], rate: u32, bits: &mut [u8], sums: &mut [f64], counts: &mut [u32], rng: &mut Rng) {
    // The sum of every set of the eight values; values that are not there count as none.
    let mut table = [0.0f64; 256];
    for (i, value) in values.iter().enumerate() {
        let half = 1 << i;
        for set in 0..half {
            table[half + set] = table[set] + value;
        }
    }
    let present = u64::from_ne_bytes([(0xff >> (8 - values.len())) as u8; 8]);
    let lanes = bits.chunks_exact_mut(8).zip(sums.chunks_exact_mut(8)).zip(counts.chunks_exact_mut(8));
    for ((bits, sums), counts) in lanes {
        let word = random_bits(rate, rng) & present;
        let bytes = word.to_le_bytes();
        bits.copy_from_slice(&bytes);
        // How many bits are set in each byte, all eight bytes at once.
        let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
        let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
        let ones = ((fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes();
        for lane in 0..8 {
            sums[lane] += table[usize::from(bytes[lane])];
            counts[lane] += u32::from(ones[lane]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn list(value: &Value) -> Vec<f64> {
        value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
    }

    fn vectors(kind: &str) -> Vec<Value> {
        let all: Value =
            serde_json::from_str(include_str!("../tests/vectors/resampling.json")).expect("the vectors are JSON");
        all["permutations"][kind].as_array().expect("cases").clone()
    }

    /// The values that the generator of the vectors makes, too.
    fn spread(n: usize, step: f64, shift: f64) -> Vec<f64> {
        (0..n).map(|i| shift - 100.0 * (1.0 - ((i + 1) as f64 * step) % 1.0).ln()).collect()
    }

    #[test]
    fn few_choices_have_scipys_exact_p() {
        for case in vectors("exact") {
            let (a, b) = (list(&case["a"]), list(&case["b"]));
            let p = case["p"].as_f64().expect("a number");
            for (a, b) in [(&a, &b), (&b, &a)] {
                let ours = means(a, b, 99, &mut Rng::stream(1, "test")).expect("samples");
                assert!(ours.exact && !ours.stopped_early, "{ours:?}");
                assert!((ours.p - p).abs() < 1e-12, "{a:?} {b:?}: {} and SciPy's {p}", ours.p);
                assert_eq!(u64::from(ours.draws), choices(a.len() + b.len(), a.len()).expect("few"));
            }
        }
    }

    #[test]
    fn drawn_ones_have_scipys_p() {
        for case in vectors("drawn") {
            let n = |key: &str| case[key].as_u64().expect("a number") as usize;
            let a = spread(n("n_a"), 0.618_033_988_749_894_9, 0.0);
            let b = spread(n("n_b"), 0.754_877_666_246_692_7, case["shift"].as_f64().expect("a number"));
            let p = case["p"].as_f64().expect("a number");
            for (a, b) in [(&a, &b), (&b, &a)] {
                let ours = means(a, b, 19_999, &mut Rng::stream(1, "test")).expect("samples");
                let error = 2.0 * (p / 2.0 * (1.0 - p / 2.0) / f64::from(ours.draws)).sqrt();
                assert!((ours.p - p).abs() < 4.0 * error + 2e-4, "{case}: {ours:?}");
                assert!(!ours.exact);
            }
        }
    }

    /// Sums of random choices by shuffling the values.
    fn shuffled(pool: &[f64], size: usize, draws: usize, rng: &mut Rng) -> Vec<f64> {
        let mut values = pool.to_vec();
        (0..draws)
            .map(|_| {
                for i in 0..size {
                    let other = i + rng.below((values.len() - i) as u64) as usize;
                    values.swap(i, other);
                }
                values[..size].iter().sum()
            })
            .collect()
    }

    #[test]
    fn choices_are_uniform() {
        const DRAWS: usize = 20_000;
        let mut rng = Rng::stream(4, "test");
        // Sizes of every rate, from none to a half, and a last group that is not full.
        for (total, size) in [(21, 10), (64, 1), (50, 3), (37, 11), (90, 45), (133, 37)] {
            let pool: Vec<f64> = (0..total).map(|i| f64::from(i * i % 91)).collect();
            let mut round = Round::new(&pool, size);
            let mut ours = Vec::new();
            let mut members = vec![0u32; total as usize];
            while ours.len() < DRAWS {
                let count = 1_000.min(DRAWS - ours.len());
                ours.extend_from_slice(round.sums(count, &mut rng));
                let lanes = count.next_multiple_of(8);
                for draw in 0..count {
                    let chosen = |value: usize| round.bits[value / 8 * lanes + draw] >> (value % 8) & 1 == 1;
                    let set: Vec<usize> = (0..total as usize).filter(|value| chosen(*value)).collect();
                    assert_eq!(set.len(), size);
                    let sum: f64 = set.iter().map(|value| pool[*value]).sum();
                    assert_eq!(sum, ours[ours.len() - count + draw]);
                    set.iter().for_each(|value| members[*value] += 1);
                }
            }
            let expected = DRAWS as f64 * size as f64 / f64::from(total);
            let far = members.iter().map(|count| (f64::from(*count) - expected).abs() / expected.sqrt());
            assert!(far.fold(0.0, f64::max) < 4.5, "{total} {size}: {members:?} for {expected}");
            let slow = super::super::sorted(&shuffled(&pool, size, DRAWS, &mut rng));
            let ours = super::super::sorted(&ours);
            let share = |drawn: &[f64], at: f64| drawn.partition_point(|sum| *sum <= at) as f64 / DRAWS as f64;
            let far = slow.iter().map(|at| (share(&ours, *at) - share(&slow, *at)).abs()).fold(0.0, f64::max);
            assert!(far < 0.0195, "{total} {size}: {far}");
        }
    }

    #[test]
    fn p_is_not_too_small_when_nothing_differs() {
        let mut rng = Rng::stream(8, "test");
        let mut small = [0u32; 2];
        let mut draws = 0u64;
        const ROUNDS: usize = 400;
        for _ in 0..ROUNDS {
            let mut draw = |n: usize| (0..n).map(|_| rng.below(1_000) as f64).collect::<Vec<f64>>();
            let (a, b) = (draw(15), draw(12));
            let found = means(&a, &b, 999, &mut rng).expect("samples");
            draws += u64::from(found.draws);
            small[0] += u32::from(found.p <= 0.05);
            small[1] += u32::from(found.p <= 0.2);
        }
        // 20 and 80 expected; 4 deviations of a binomial number.
        assert!((3..38).contains(&small[0]) && (48..112).contains(&small[1]), "{small:?}");
        assert!(draws < 200 * ROUNDS as u64, "early stopping saves most draws: {draws}");
    }

    #[test]
    fn clear_differences_take_all_draws_and_none_take_few() {
        let (a, b) = (spread(200, 0.618_033_988_749_894_9, 0.0), spread(200, 0.754_877_666_246_692_7, 90.0));
        let clear = means(&a, &b, 9_999, &mut Rng::stream(1, "test")).expect("samples");
        assert_eq!((clear.p, clear.draws, clear.stopped_early), (2.0 / 10_000.0, 9_999, false));
        let same = means(&a, &a, 9_999, &mut Rng::stream(1, "test")).expect("samples");
        assert!(same.p > 0.8 && same.stopped_early && same.draws < 400, "{same:?}");
        let constant = means(&[3.0; 50], &[3.0; 70], 9_999, &mut Rng::stream(1, "test")).expect("samples");
        assert_eq!((constant.p, constant.stopped_early), (1.0, true));
    }

    #[test]
    fn many_draws_are_many_rounds() {
        let (a, b) = (spread(13, 0.618_033_988_749_894_9, 0.0), spread(12, 0.754_877_666_246_692_7, 256.0));
        let found = means(&a, &b, 200_000, &mut Rng::stream(1, "test")).expect("samples");
        assert_eq!(found.draws, 200_000, "{found:?}");
    }

    #[test]
    fn some_samples_are_not_relabelled() {
        let mut rng = Rng::stream(1, "test");
        assert_eq!(means(&[], &[1.0], 99, &mut rng), None);
        assert_eq!(means(&[1.0], &[1.0], 0, &mut rng), None);
        assert_eq!(means(&vec![0.0; LARGEST], &[1.0], 99, &mut rng), None);
        assert_eq!(means(&[1.0], &[1.0], 99, &mut rng).map(|found| found.p), Some(1.0));
    }
}
