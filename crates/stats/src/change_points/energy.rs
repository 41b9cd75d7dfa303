//! The statistic over all places and all ends of the second part, one value at a time: each new value adds its
//! distances to the running sums of every place before it, so that no matrix is kept.
//!
//! Random orders are searched several at once, one in each lane: the sums of distances depend on their predecessors
//! within an order, and not on those of the others.

use super::Candidate;
use super::divide::{Statistic, reorder};
use iowhy_stack::rng::Rng;

/// Orders searched at once.
const LANES: usize = 4;

/// The search and its tables.
pub(super) struct Energy {
    /// Least values of either part.
    least: usize,
    /// 1/(k-1); 0 for 0 and 1, without distances within.
    inverse: Vec<f64>,
    /// Distances between the parts, for each place.
    cross: Vec<[f64; LANES]>,
    /// Distances within the first k values.
    within: Vec<[f64; LANES]>,
}

impl Energy {
    pub(super) fn new(least: usize) -> Energy {
        Energy { least: least.max(1), inverse: vec![0.0; 2], cross: Vec::new(), within: Vec::new() }
    }

    fn make_ready(&mut self, n: usize) {
        let known = self.inverse.len();
        self.inverse.extend((known..=n).map(|k| 1.0 / (k - 1) as f64));
        self.cross.clear();
        self.cross.resize(n + 1, [0.0; LANES]);
        self.within.clear();
        self.within.resize(n + 1, [0.0; LANES]);
    }
}

/// Best place of `piece`, in the arithmetic of Otava: sums of whole numbers give the same bits, so that the same one of
/// equal places wins, the first.
pub(super) fn best(piece: &[f64], least: usize) -> Option<Candidate> {
    let n = piece.len();
    if n < 2 * least {
        return None;
    }
    let mut cross = vec![0.0; n];
    let mut inner = vec![0.0; n];
    let mut within = vec![0.0; n + 1];
    let mut peaks = vec![f64::NEG_INFINITY; n];
    let mut sums = vec![0.0; n];
    for end in 2..=n {
        let new = piece[end - 1];
        let mut total = 0.0;
        for (sum, value) in sums[1..end].iter_mut().zip(piece) {
            total += (value - new).abs();
            *sum = total;
        }
        within[end] = within[end - 1] + total;
        for place in 1..end {
            cross[place] += sums[place];
            inner[place] += total - sums[place];
        }
        if end < 2 * least {
            continue;
        }
        let whole = end as f64;
        let places = least..end - least + 1;
        let (cross, inner, within) = (&cross[places.clone()], &inner[places.clone()], &within[places.clone()]);
        for (offset, peak) in peaks[places].iter_mut().enumerate() {
            let before = (least + offset) as f64;
            let after = whole - before;
            // A part of one value has no distances within: any divisor but 0 will do.
            let first = 2.0 * after / (whole * (before - 1.0).max(1.0)) * within[offset];
            let second = 2.0 * before / (whole * (after - 1.0).max(1.0)) * inner[offset];
            let q = 2.0 / whole * cross[offset] - first - second;
            *peak = if q > *peak { q } else { *peak };
        }
    }
    let mut candidate = Candidate { index: least, q: peaks[least] };
    for (index, q) in peaks.iter().copied().enumerate().take(n - least + 1).skip(least + 1) {
        if q > candidate.q {
            candidate = Candidate { index, q };
        }
    }
    Some(candidate)
}

impl Energy {
    /// The largest statistic of each of several orders.
    fn peaks(&mut self, orders: &[[f64; LANES]]) -> [f64; LANES] {
        let (n, least) = (orders.len(), self.least);
        self.make_ready(n);
        let Energy { inverse, cross, within, .. } = self;
        let mut peaks = [f64::NEG_INFINITY; LANES];
        for (nr, value) in orders[..least].iter().enumerate() {
            for other in &orders[..nr] {
                for lane in 0..LANES {
                    within[least][lane] += (value[lane] - other[lane]).abs();
                }
            }
        }
        let mut end = least + 1;
        // Two new values in each pass halve the traffic of the sums.
        while end < n {
            let (new, newer) = (orders[end - 1], orders[end]);
            let (mut total, mut total_newer) = ([0.0; LANES], [0.0; LANES]);
            for value in &orders[..end - 1] {
                for lane in 0..LANES {
                    total[lane] += (value[lane] - new[lane]).abs();
                    total_newer[lane] += (value[lane] - newer[lane]).abs();
                }
            }
            let mut all = within[end - 1];
            for lane in 0..LANES {
                total_newer[lane] += (new[lane] - newer[lane]).abs();
                all[lane] += total[lane];
            }
            let mut all_newer = all;
            for lane in 0..LANES {
                all_newer[lane] += total_newer[lane];
            }
            within[end] = all;
            within[end + 1] = all_newer;
            let (mut sum, mut sum_newer) = ([0.0; LANES], [0.0; LANES]);
            for value in &orders[..least - 1] {
                for lane in 0..LANES {
                    sum[lane] += (value[lane] - new[lane]).abs();
                    sum_newer[lane] += (value[lane] - newer[lane]).abs();
                }
            }
            let (mut peak, mut peak_newer) = ([f64::NEG_INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
            let last = (end - least).max(least - 1);
            let rows = cross[least..=last].iter_mut().zip(&within[least..=last]).zip(&orders[least - 1..last]);
            // The second part has end - place values: its table is read backwards.
            let tables = inverse[least..=last].iter().zip(inverse[end - last..=end - least].iter().rev());
            let tables = tables.zip(inverse[end + 1 - last..=end + 1 - least].iter().rev());
            let mut before = least as f64;
            let whole = end as f64;
            for (((row, inner), value), ((first, second), second_newer)) in rows.zip(tables) {
                let first_share = first * (whole - before);
                let first_share_newer = first * (whole + 1.0 - before);
                let second_share = second * before;
                let second_share_newer = second_newer * before;
                for lane in 0..LANES {
                    sum[lane] += (value[lane] - new[lane]).abs();
                    sum_newer[lane] += (value[lane] - newer[lane]).abs();
                    let between = row[lane] + sum[lane];
                    let between_newer = between + sum_newer[lane];
                    row[lane] = between_newer;
                    let rest = all[lane] - inner[lane] - between;
                    let q = between - first_share * inner[lane] - second_share * rest;
                    let rest = all_newer[lane] - inner[lane] - between_newer;
                    let q_newer = between_newer - first_share_newer * inner[lane] - second_share_newer * rest;
                    peak[lane] = if q > peak[lane] { q } else { peak[lane] };
                    peak_newer[lane] = if q_newer > peak_newer[lane] { q_newer } else { peak_newer[lane] };
                }
                before += 1.0;
            }
            // Places so near the end that the second part is too short yet, but not for the last of the two.
            for place in last + 1..=end {
                let share = inverse[place] * (end + 1 - place) as f64;
                let share_newer = inverse[end + 1 - place] * place as f64;
                for lane in 0..LANES {
                    if place < end {
                        sum[lane] += (orders[place - 1][lane] - new[lane]).abs();
                        cross[place][lane] += sum[lane];
                    }
                    sum_newer[lane] += (orders[place - 1][lane] - newer[lane]).abs();
                    cross[place][lane] += sum_newer[lane];
                    if place + least <= end + 1 {
                        let (between, inner) = (cross[place][lane], within[place][lane]);
                        let rest = all_newer[lane] - inner - between;
                        peak_newer[lane] = peak_newer[lane].max(between - share * inner - share_newer * rest);
                    }
                }
            }
            for lane in 0..LANES {
                peaks[lane] = peaks[lane].max(peak[lane] * 2.0 / whole).max(peak_newer[lane] * 2.0 / (whole + 1.0));
            }
            end += 2;
        }
        if end == n {
            self.last_peaks(orders, &mut peaks);
        }
        peaks
    }

    /// Adds the last value to the peaks where it has no partner to be taken in with.
    fn last_peaks(&self, orders: &[[f64; LANES]], peaks: &mut [f64; LANES]) {
        let (n, least) = (orders.len(), self.least);
        let Energy { inverse, cross, within, .. } = self;
        let (new, whole) = (orders[n - 1], n as f64);
        let mut sums = vec![[0.0; LANES]; n];
        let mut total = [0.0; LANES];
        for (sum, value) in sums[1..].iter_mut().zip(orders) {
            for lane in 0..LANES {
                total[lane] += (value[lane] - new[lane]).abs();
            }
            *sum = total;
        }
        for place in least..=n - least {
            let share = inverse[place] * (n - place) as f64;
            let share_rest = inverse[n - place] * place as f64;
            for lane in 0..LANES {
                let (between, inner) = (cross[place][lane] + sums[place][lane], within[place][lane]);
                let rest = within[n - 1][lane] + total[lane] - inner - between;
                let q = between - share * inner - share_rest * rest;
                peaks[lane] = peaks[lane].max(q * 2.0 / whole);
            }
        }
    }
}

/// A piece of the series.
pub(super) struct Piece {
    values: Vec<f64>,
    coefficient: f64,
    orders: Vec<[f64; LANES]>,
}

impl Statistic for Energy {
    type Piece = Piece;

    fn prepare(&mut self, values: &[f64], coefficient: f64) -> (Piece, Option<Candidate>) {
        let orders = vec![[0.0; LANES]; values.len()];
        (Piece { values: values.to_vec(), coefficient, orders }, best(values, self.least))
    }

    fn draw(&mut self, piece: &mut Piece, rng: &mut Rng, peaks: &mut Vec<f64>) {
        for lane in 0..LANES {
            let mut values = piece.values.clone();
            reorder(&mut values, piece.coefficient, rng);
            for (order, value) in piece.orders.iter_mut().zip(&values) {
                order[lane] = *value;
            }
        }
        peaks.extend(self.peaks(&piece.orders));
    }
}
