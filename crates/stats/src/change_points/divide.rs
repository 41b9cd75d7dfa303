//! Split by split: the best candidate of all pieces is tested, and either splits its piece or ends the search.

use super::{Candidate, ChangePoint, Found, Settings, scaled, with_means};
use iowhy_stack::rng::Rng;

/// A statistic of the places of a piece.
pub(super) trait Statistic {
    /// State kept for a piece.
    type Piece;

    /// The state for these values, and their best place if there are enough of them.
    fn prepare(&mut self, values: &[f64], coefficient: f64) -> (Self::Piece, Option<Candidate>);

    /// Appends the largest statistics of one or more random orders.
    fn draw(&mut self, piece: &mut Self::Piece, rng: &mut Rng, peaks: &mut Vec<f64>);
}

/// A piece of the series with its candidate, and what random orders of it had. Orders of different pieces are
/// independent, so a piece keeps its own when another one is split.
struct Part<P> {
    start: usize,
    end: usize,
    piece: P,
    best: Option<Candidate>,
    rng: Rng,
    peaks: Vec<f64>,
}

impl<P> Part<P> {
    fn new<S: Statistic<Piece = P>>(
        statistic: &mut S,
        series: &[f64],
        start: usize,
        end: usize,
        settings: &Settings,
    ) -> Part<P> {
        let values = &series[start..end];
        let coefficient = if settings.serial { autoregression(values) } else { 0.0 };
        let (piece, best) = statistic.prepare(values, coefficient);
        let best = best.map(|best| Candidate { index: best.index + start, ..best });
        let rng = Rng::stream(settings.seed, &format!("change-points {start} {end}"));
        Part { start, end, piece, best, rng, peaks: Vec::new() }
    }

    /// The largest statistic of the order `nr`; nothing of a piece too short for any.
    fn peak<S: Statistic<Piece = P>>(&mut self, statistic: &mut S, nr: usize) -> f64 {
        if self.best.is_none() {
            return f64::NEG_INFINITY;
        }
        while self.peaks.len() <= nr {
            statistic.draw(&mut self.piece, &mut self.rng, &mut self.peaks);
        }
        self.peaks[nr]
    }
}

/// Changes of the series.
pub(super) fn divide<S: Statistic>(statistic: &mut S, series: &[f64], settings: &Settings) -> Found {
    let (values, scale) = scaled(series);
    let mut found = Found { points: Vec::new(), p: 1.0 };
    let mut parts = vec![Part::new(statistic, &values, 0, values.len(), settings)];
    let mut tests = 0;
    loop {
        // The first of equal ones, as everywhere.
        let mut chosen: Option<(usize, Candidate)> = None;
        for (nr, part) in parts.iter().enumerate() {
            if let Some(best) = part.best
                && chosen.is_none_or(|(_, other)| best.q > other.q)
            {
                chosen = Some((nr, best));
            }
        }
        let Some((nr, candidate)) = chosen else { break };
        let p = test(statistic, &mut parts, candidate.q, settings);
        if tests == 0 {
            found.p = p;
        }
        tests += 1;
        if p > settings.max_p {
            break;
        }
        let part = parts.remove(nr);
        for (start, end) in [(candidate.index, part.end), (part.start, candidate.index)] {
            parts.insert(nr, Part::new(statistic, &values, start, end, settings));
        }
        found.points.push(ChangePoint {
            index: candidate.index,
            q: candidate.q / scale,
            p,
            mean_before: f64::NAN,
            mean_after: f64::NAN,
        });
    }
    found.points.sort_unstable_by_key(|point| point.index);
    with_means(&mut found.points, series);
    found
}

/// Share of the random orders whose largest statistic is at least `q`. It ends when too many have reached it: the rest
/// could not change that (Besag & Clifford 1991).
fn test<S: Statistic>(statistic: &mut S, parts: &mut [Part<S::Piece>], q: f64, settings: &Settings) -> f64 {
    // Sums in another order differ in their last digits: an order that only swaps equal values must count.
    let reached = q - q.abs() * 1e-12;
    let all = f64::from(settings.permutations) + 1.0;
    let mut hits = f64::from(u8::from(settings.counts_itself));
    for nr in 0..settings.permutations as usize {
        if parts.iter_mut().any(|part| part.peak(statistic, nr) >= reached) {
            hits += 1.0;
            if hits / all > settings.max_p {
                return hits / (nr as f64 + 2.0);
            }
        }
    }
    hits / all
}

/// Coefficient of a first-order autoregression. The mean square of differences over two steps is 1 + coefficient times
/// that over one; squares are cut off at three deviations, so that steps and spikes hardly count. 1.3 standard errors
/// are added, because too small a coefficient raises false alarms. 0 if it is negative.
fn autoregression(values: &[f64]) -> f64 {
    if values.len() < 8 {
        return 0.0;
    }
    let differences = |step: usize| values.iter().zip(&values[step..]).map(|(a, b)| (b - a).abs());
    let mut sizes: Vec<f64> = differences(1).collect();
    let middle = sizes.len() / 2;
    let (_, middle, _) = sizes.select_nth_unstable_by(middle, f64::total_cmp);
    let most = *middle * 1.4826 * 3.0;
    if most == 0.0 {
        return 0.0;
    }
    let square = |step: usize| {
        let squares = differences(step).map(|size| size.min(most) * size.min(most));
        squares.sum::<f64>() / (values.len() - step) as f64
    };
    let coefficient = square(2) / square(1) - 1.0;
    (coefficient + 1.3 / (values.len() as f64).sqrt()).clamp(0.0, 0.9)
}

/// The innovation of each value: the value less its prediction from the one before by a first-order autoregression. The
/// first has none before it and is left out.
pub fn innovations(values: &[f64]) -> Vec<f64> {
    let coefficient = autoregression(values);
    values.windows(2).map(|pair| pair[1] - coefficient * pair[0]).collect()
}

/// Puts the innovations of an autoregression in random order; with coefficient 0 these are the values.
pub(super) fn reorder(values: &mut [f64], coefficient: f64, rng: &mut Rng) {
    if coefficient != 0.0 {
        for place in (1..values.len()).rev() {
            values[place] -= coefficient * values[place - 1];
        }
        // As if the first value had stood there for ever.
        values[0] *= 1.0 - coefficient;
    }
    for place in (1..values.len()).rev() {
        values.swap(place, rng.below(place as u64 + 1) as usize);
    }
    if coefficient != 0.0 {
        values[0] /= 1.0 - coefficient;
        for place in 1..values.len() {
            values[place] += coefficient * values[place - 1];
        }
    }
}
