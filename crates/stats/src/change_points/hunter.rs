//! Hunter, as Otava runs it: windows that overlap by half are split by t-tests with a relaxed p; of the points so found
//! the weakest is taken out until all are significant and large enough.
//!
//! Otava's deviations are those of the whole, not of a sample, and after removing a point it recomputes the figures of
//! the next two, not of the neighbours on both sides. Both are kept, since its indexes depend on them.

use super::{Candidate, ChangePoint, energy, scaled, sum};
use statrs::function::beta::checked_beta_reg;

/// The criteria by which a change counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Values of a window.
    pub window: usize,
    /// Largest p of a change that counts.
    pub max_p: f64,
    /// Least relative change that counts: 0.05 is 5 %.
    pub min_magnitude: f64,
    /// Least values between changes; Otava has 1.
    pub min_segment: usize,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { window: 50, max_p: 0.001, min_magnitude: 0.0, min_segment: 1 }
    }
}

/// A t-test of two neighbouring parts.
#[derive(Copy, Clone)]
struct Test {
    p: f64,
    before: f64,
    after: f64,
}

/// A change that may be taken out again.
#[derive(Copy, Clone)]
struct Weak {
    candidate: Candidate,
    test: Test,
}

impl Test {
    fn of(before: &[f64], after: &[f64]) -> Test {
        let moments = |values: &[f64]| {
            let mean = super::mean(values);
            let squares: Vec<f64> = values.iter().map(|value| (value - mean) * (value - mean)).collect();
            let deviation = (sum(&squares) / values.len() as f64).sqrt();
            (mean, if values.len() < 2 { 0.0 } else { deviation }, values.len() as f64)
        };
        let ((a, deviation_a, n), (b, deviation_b, m)) = (moments(before), moments(after));
        let free = n + m - 2.0;
        if free <= 0.0 {
            return Test { p: 1.0, before: a, after: b };
        }
        let pooled = ((n - 1.0) * (deviation_a * deviation_a) + (m - 1.0) * (deviation_b * deviation_b)) / free;
        let t = (a - b) / (pooled * (1.0 / n + 1.0 / m)).sqrt();
        // Two parts of one and the same value: NaN, which is smaller than no level. That is what Otava has.
        let p = if t.is_nan() {
            f64::NAN
        } else {
            checked_beta_reg(free / 2.0, 0.5, free / (free + t * t)).unwrap_or(f64::NAN)
        };
        Test { p, before: a, after: b }
    }

    /// The larger of the relative changes forwards and backwards.
    fn magnitude(&self) -> f64 {
        let change = |from: f64, to: f64| if from == 0.0 { 0.0 } else { (to / from - 1.0).abs() };
        change(self.before, self.after).max(change(self.after, self.before))
    }
}

/// Changes by windows and t-tests.
///
/// # Panics
/// If a value is not finite, or the window has fewer than two values.
pub fn windowed(series: &[f64], settings: &Windows) -> Vec<ChangePoint> {
    assert!(settings.window >= 2, "a window has two parts");
    let (values, scale) = scaled(series);
    let least = settings.min_segment.max(1);
    let first_p = match settings.max_p {
        p if p < 0.05 => p * 10.0,
        p if p < 0.5 => p * 2.0,
        p => p,
    };
    let mut weak: Vec<Candidate> = Vec::new();
    let mut start = 0;
    while start < values.len() {
        let end = values.len().min(start + settings.window);
        let new = within(&values[start..end], first_p, least);
        let last = new.last().map_or(0, |candidate| candidate.index + start);
        for candidate in new {
            let candidate = Candidate { index: candidate.index + start, ..candidate };
            if weak.iter().rev().all(|other| other.index != candidate.index) {
                weak.push(candidate);
            }
        }
        start = last.max(start + settings.window / 2);
    }
    weak.sort_by_key(|candidate| candidate.index);
    let points = merge(&weak, &values, settings, least);
    let point = |weak: &Weak| ChangePoint {
        index: weak.candidate.index,
        q: weak.candidate.q / scale,
        p: weak.test.p,
        mean_before: weak.test.before / scale,
        mean_after: weak.test.after / scale,
    };
    points.iter().map(point).collect()
}

/// Changes of one window, in the order of the series.
fn within(window: &[f64], max_p: f64, least: usize) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    // Start, end, candidate of each piece; a piece is searched once.
    let search = |start: usize, end: usize| {
        let best = energy::best(&window[start..end], least);
        (start, end, best.map(|best| Candidate { index: best.index + start, ..best }))
    };
    let mut pieces = vec![search(0, window.len())];
    loop {
        let mut chosen: Option<(usize, Candidate)> = None;
        for (nr, (_, _, best)) in pieces.iter().enumerate() {
            if let Some(best) = best
                && chosen.is_none_or(|(_, other)| best.q > other.q)
            {
                chosen = Some((nr, *best));
            }
        }
        let Some((nr, candidate)) = chosen else { break };
        let (start, end, _) = pieces[nr];
        let test = Test::of(&window[start..candidate.index], &window[candidate.index..end]);
        if test.p.is_nan() || test.p > max_p {
            break;
        }
        found.push(candidate);
        pieces.splice(nr..=nr, [search(start, candidate.index), search(candidate.index, end)]);
    }
    found.sort_by_key(|candidate| candidate.index);
    found
}

/// Takes out the weakest until none is weak.
fn merge(weak: &[Candidate], values: &[f64], settings: &Windows, least: usize) -> Vec<Weak> {
    let test = |before: usize, at: usize, after: usize| Test::of(&values[before..at], &values[at..after]);
    let around = |points: &[Candidate], nr: usize| {
        let before = if nr == 0 { 0 } else { points[nr - 1].index };
        (before, points.get(nr + 1).map_or(values.len(), |next| next.index))
    };
    let mut points: Vec<Weak> = (0..weak.len())
        .map(|nr| {
            let (before, after) = around(weak, nr);
            Weak { candidate: weak[nr], test: test(before, weak[nr].index, after) }
        })
        .collect();
    while !points.is_empty() {
        let Some(out) = weakest(&points, values.len(), settings, least) else { break };
        points.remove(out);
        for nr in out..points.len().min(out + 2) {
            let before = if nr == 0 { 0 } else { points[nr - 1].candidate.index };
            let after = points.get(nr + 1).map_or(values.len(), |next| next.candidate.index);
            points[nr].test = test(before, points[nr].candidate.index, after);
        }
    }
    points
}

/// The next point to remove: one next to a part that is too short, one that is not significant, one that is too small.
fn weakest(points: &[Weak], n: usize, settings: &Windows, least: usize) -> Option<usize> {
    // The first of equal ones. A NaN is only chosen if it is the first: that is what Python's `max` does.
    let most = |nrs: &mut dyn Iterator<Item = usize>| {
        nrs.reduce(|best, nr| if points[nr].test.p > points[best].test.p { nr } else { best })
    };
    let start = |nr: usize| points[nr].candidate.index;
    let short = |nr: usize| {
        let before = if nr == 0 { 0 } else { start(nr - 1) };
        let after = if nr + 1 == points.len() { n } else { start(nr + 1) };
        start(nr) - before < least || after - start(nr) < least
    };
    if let Some(nr) = most(&mut (0..points.len()).filter(|nr| short(*nr))) {
        return Some(nr);
    }
    let nr = most(&mut (0..points.len()))?;
    if points[nr].test.p < settings.max_p {
        let magnitude = |nr: usize| points[nr].test.magnitude();
        let nr = (0..points.len()).reduce(|best, nr| if magnitude(nr) < magnitude(best) { nr } else { best })?;
        return (magnitude(nr).partial_cmp(&settings.min_magnitude) != Some(std::cmp::Ordering::Greater)).then_some(nr);
    }
    Some(nr)
}
