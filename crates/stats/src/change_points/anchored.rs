//! The statistic with the second part reaching to the end: one value's distances to those before it come from a
//! Fenwick tree over ranks, those to the others from its distances to all, which no order changes.

use super::Candidate;
use super::divide::{Statistic, reorder};
use iowhy_stack::rng::Rng;

/// The search.
pub(super) struct Anchored {
    /// Least values of either part.
    least: usize,
    /// Count and sum of the values so far, over ranks.
    tree: Vec<[f64; 2]>,
    /// For each place the distances within what lies before it.
    within: Vec<f64>,
}

/// A piece in an order.
pub(super) struct Ranked {
    /// The values as they stand.
    values: Vec<f64>,
    /// Coefficient of the autoregression.
    coefficient: f64,
    /// Ranks of the values from 1, ties in any order; the random orders are orders of these.
    ranks: Vec<u32>,
    /// For each rank from 1 the value, less the middle one, and the sum of its distances to all others.
    by_rank: Vec<(f64, f64)>,
}

impl Ranked {
    fn new(values: Vec<f64>, coefficient: f64) -> Ranked {
        let n = values.len();
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_unstable_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
        // Less the middle value, sums lose fewer digits.
        let middle = order.get(n / 2).map_or(0.0, |index| values[*index as usize]);
        let total: f64 = values.iter().map(|value| value - middle).sum();
        let mut ranks = vec![0; n];
        let mut by_rank = vec![(0.0, 0.0); n + 1];
        let mut below = 0.0;
        for (rank, index) in (1..).zip(&order) {
            let value = values[*index as usize] - middle;
            let (lower, higher) = (rank as f64 - 1.0, (n - rank) as f64);
            by_rank[rank] = (value, value * lower - below + (total - below - value) - value * higher);
            below += value;
            ranks[*index as usize] = rank as u32;
        }
        Ranked { values, coefficient, ranks, by_rank }
    }
}

impl Anchored {
    pub(super) fn new(least: usize) -> Anchored {
        Anchored { least: least.max(1), tree: Vec::new(), within: Vec::new() }
    }

    /// The best place of values in the order of `ranks`.
    fn walk(&mut self, ranks: &[u32], by_rank: &[(f64, f64)]) -> Candidate {
        let (n, least) = (ranks.len(), self.least);
        self.tree.clear();
        self.tree.resize(n + 1, [0.0; 2]);
        self.within.clear();
        self.within.push(0.0);
        let (mut so_far, mut within) = (0.0, 0.0);
        for (before, rank) in ranks.iter().enumerate() {
            let (value, _) = by_rank[*rank as usize];
            let (mut count, mut below) = (0.0, 0.0);
            let mut node = *rank as usize;
            while node > 0 {
                count += self.tree[node][0];
                below += self.tree[node][1];
                node &= node - 1;
            }
            within += value * (2.0 * count - before as f64) + so_far - 2.0 * below;
            self.within.push(within);
            so_far += value;
            let mut node = *rank as usize;
            while node <= n {
                self.tree[node][0] += 1.0;
                self.tree[node][1] += value;
                node += node & node.wrapping_neg();
            }
        }
        let all = within;
        let whole = n as f64;
        let mut best = Candidate { index: least, q: f64::NEG_INFINITY };
        // Distances of the values after a place to all, each distance within counted twice.
        let mut to_all = 2.0 * all;
        for place in 1..=n - least {
            to_all -= by_rank[ranks[place - 1] as usize].1;
            if place < least {
                continue;
            }
            let (before, after) = (place as f64, whole - place as f64);
            let first = self.within[place];
            let second = to_all - (all - first);
            let cross = all - first - second;
            // A part of one value has no distances within: any divisor but 0 will do.
            let first = after * first / (before - 1.0).max(1.0);
            let second = before * second / (after - 1.0).max(1.0);
            let q = (cross - first - second) * 2.0 / whole;
            if q > best.q {
                best = Candidate { index: place, q };
            }
        }
        best
    }
}

impl Statistic for Anchored {
    type Piece = Ranked;

    fn prepare(&mut self, values: &[f64], coefficient: f64) -> (Ranked, Option<Candidate>) {
        let piece = Ranked::new(values.to_vec(), coefficient);
        let best = (values.len() >= 2 * self.least).then(|| self.walk(&piece.ranks, &piece.by_rank));
        (piece, best)
    }

    fn draw(&mut self, piece: &mut Ranked, rng: &mut Rng, peaks: &mut Vec<f64>) {
        if piece.coefficient == 0.0 {
            for place in (1..piece.ranks.len()).rev() {
                piece.ranks.swap(place, rng.below(place as u64 + 1) as usize);
            }
            peaks.push(self.walk(&piece.ranks, &piece.by_rank).q);
        } else {
            let mut values = piece.values.clone();
            reorder(&mut values, piece.coefficient, rng);
            let piece = Ranked::new(values, 0.0);
            peaks.push(self.walk(&piece.ranks, &piece.by_rank).q);
        }
    }
}
