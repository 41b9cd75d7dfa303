//! Otava's answers, slow definitions, and error rates.

use super::anchored::Anchored;
use super::divide::Statistic;
use super::energy::Energy;
use super::{Found, Neighbours, Settings, Windows, adaptive, e_divisive, end_anchored, windowed};
use iowhy_stack::rng::Rng;
use proptest::prelude::*;
use serde_json::Value;

const OTAVA: &str = include_str!("../../tests/vectors/change_points.json");

fn entries() -> Vec<Value> {
    let entries: Vec<Value> = serde_json::from_str(OTAVA).expect("the vectors are JSON");
    assert!(entries.len() >= 20, "{}", entries.len());
    entries
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn indexes(found: &Found) -> Vec<usize> {
    found.points.iter().map(|point| point.index).collect()
}

fn close(a: f64, b: f64, share: f64) -> bool {
    a == b || (a - b).abs() <= share * a.abs().max(b.abs())
}

#[test]
fn windows_find_what_otava_finds() {
    let mut compared = 0;
    for entry in entries() {
        let values = numbers(&entry["values"]);
        for case in entry["windowed"].as_array().expect("a list") {
            let settings = Windows {
                window: case["window"].as_u64().expect("a number") as usize,
                max_p: case["max_p"].as_f64().expect("a number"),
                min_magnitude: case["magnitude"].as_f64().expect("a number"),
                min_segment: 1,
            };
            let ours = windowed(&values, &settings);
            let theirs: Vec<Vec<f64>> = case["points"].as_array().expect("a list").iter().map(numbers).collect();
            let (a, b): (Vec<usize>, Vec<usize>) =
                (ours.iter().map(|p| p.index).collect(), theirs.iter().map(|p| p[0] as usize).collect());
            assert_eq!(a, b, "{} {settings:?}", entry["name"]);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let pairs = [(ours.q, theirs[1]), (ours.p, theirs[2]), (ours.mean_before, theirs[3])];
                for (a, b) in pairs.into_iter().chain([(ours.mean_after, theirs[4])]) {
                    assert!(close(a, b, 1e-9), "{} {settings:?}: {ours:?} {theirs:?}", entry["name"]);
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 150, "{compared}");
}

#[test]
fn the_series_of_tigerbeetle_changes_where_otavas_tests_say() {
    let entries = entries();
    let entry = entries.iter().find(|entry| entry["name"] == "tigerbeetle").expect("it is there");
    let values = numbers(&entry["values"]);
    for (max_p, min_magnitude, expected) in [
        (0.01, 0.05, &[15, 71][..]),
        (0.05, 0.05, &[15, 71]),
        (0.1, 0.05, &[10, 11, 15, 71, 363]),
        (0.001, 0.0, &[15, 61, 71, 95, 117, 131, 142, 148, 192, 212, 260]),
        (0.000_01, 0.0, &[71, 95, 131, 192, 212]),
    ] {
        let settings = Windows { window: 30, max_p, min_magnitude, min_segment: 1 };
        let found: Vec<usize> = windowed(&values, &settings).iter().map(|point| point.index).collect();
        assert_eq!(found, expected, "{settings:?}");
    }
    // Its one spike, at 10, is not a change when segments have a length.
    let settings = Windows { window: 30, max_p: 0.1, min_magnitude: 0.05, min_segment: 3 };
    assert!(windowed(&values, &settings).iter().all(|point| point.index != 10 && point.index != 11));
}

#[test]
fn splits_are_those_of_otavas_original() {
    let mut compared = 0;
    for entry in entries() {
        if entry["e_divisive"].is_null() {
            continue;
        }
        let theirs: Vec<Vec<f64>> = entry["e_divisive"].as_array().expect("a list").iter().map(numbers).collect();
        let found = e_divisive(&numbers(&entry["values"]), &Settings::otava(0.05, 1));
        let places: Vec<usize> = theirs.iter().map(|point| point[0] as usize).collect();
        assert_eq!(indexes(&found), places, "{}", entry["name"]);
        for (ours, theirs) in found.points.iter().zip(&theirs) {
            assert!(close(ours.q, theirs[1], 1e-9), "{}: {ours:?} {theirs:?}", entry["name"]);
        }
        compared += 1;
    }
    assert!(compared >= 12, "{compared}");
}

/// The statistic as it is defined.
fn slow(values: &[f64], place: usize, end: usize) -> f64 {
    let within = |part: &[f64]| {
        let pairs = part.iter().enumerate().flat_map(|(nr, a)| part[nr + 1..].iter().map(move |b| (a - b).abs()));
        pairs.sum::<f64>() / (part.len() as f64 - 1.0).max(1.0)
    };
    let (before, after) = (&values[..place], &values[place..end]);
    let cross: f64 = before.iter().flat_map(|a| after.iter().map(move |b| (a - b).abs())).sum();
    let (n, m) = (before.len() as f64, after.len() as f64);
    2.0 / (n + m) * (cross - m * within(before) - n * within(after))
}

/// The largest statistic over all places, and over all ends or the last one.
fn slowest(values: &[f64], least: usize, anchored: bool) -> f64 {
    let n = values.len();
    let first = if anchored { n } else { 2 * least };
    let all = (first..=n).flat_map(|end| (least..=end - least).map(move |place| (place, end)));
    all.map(|(place, end)| slow(values, place, end)).fold(f64::NEG_INFINITY, f64::max)
}

fn largest<S: Statistic>(statistic: &mut S, values: &[f64]) -> (Option<f64>, Vec<f64>) {
    let (mut piece, best) = statistic.prepare(values, 0.0);
    let mut peaks = Vec::new();
    if best.is_some() {
        statistic.draw(&mut piece, &mut Rng::stream(1, "test"), &mut peaks);
    }
    (best.map(|best| best.q), peaks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn scans_find_the_largest_statistic(
        values in prop::collection::vec(prop_oneof![-100.0..100.0f64, (0..4).prop_map(f64::from)], 0..28),
        least in 1usize..6,
    ) {
        for anchored in [false, true] {
            let (found, peaks) = if anchored {
                largest(&mut Anchored::new(least), &values)
            } else {
                largest(&mut Energy::new(least), &values)
            };
            if values.len() < 2 * least {
                prop_assert_eq!((found, peaks.len()), (None, 0));
                continue;
            }
            let expected = slowest(&values, least, anchored);
            let found = found.expect("long enough");
            prop_assert!((found - expected).abs() < 1e-9, "{anchored} {found} {expected}");
            // The orders that were drawn, drawn again.
            let mut rng = Rng::stream(1, "test");
            let mut order = values.clone();
            for peak in peaks {
                if !anchored {
                    order.clone_from(&values);
                }
                super::divide::reorder(&mut order, 0.0, &mut rng);
                let expected = slowest(&order, least, anchored);
                prop_assert!((peak - expected).abs() < 1e-9, "{anchored} {peak} {expected}");
            }
        }
    }

    #[test]
    fn answers_are_within_the_series_and_the_same_every_time(
        values in prop::collection::vec(
            prop_oneof![-1e300..1e300f64, Just(0.0), Just(1e-300), (0..3).prop_map(f64::from)],
            0..40,
        ),
        least in 1usize..6,
    ) {
        let settings = Settings { permutations: 19, max_p: 0.2, min_segment: least, ..Settings::default() };
        for method in [e_divisive, end_anchored] {
            let found = method(&values, &settings);
            prop_assert_eq!(&found, &method(&values, &settings));
            let mut start = 0;
            for index in indexes(&found).into_iter().chain([values.len()]) {
                prop_assert!(found.points.is_empty() || index >= start + least, "{found:?}");
                start = index;
            }
            for point in &found.points {
                prop_assert!(point.q.is_finite() && (0.0..=0.2).contains(&point.p), "{found:?}");
            }
        }
        let windows = Windows { window: 10, max_p: 0.05, min_magnitude: 0.0, min_segment: least };
        let mut start = 0;
        let points = windowed(&values, &windows);
        for index in points.iter().map(|point| point.index).chain([values.len()]) {
            prop_assert!(points.is_empty() || index >= start + least, "{points:?}");
            start = index;
        }
    }
}

#[test]
fn little_or_equal_data_have_no_changes() {
    for values in [&[][..], &[1.0], &[1.0, 9.0], &[1.0, 9.0, 1.0], &[5.0; 50], &[0.1; 33]] {
        for method in [e_divisive, end_anchored] {
            assert_eq!(method(values, &Settings::default()), Found { points: Vec::new(), p: 1.0 }, "{values:?}");
        }
        assert_eq!(windowed(values, &Windows::default()), [], "{values:?}");
    }
}

/// A standard normal value (Box-Muller).
fn normal(rng: &mut Rng) -> f64 {
    let uniform = |rng: &mut Rng| (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

/// A series around levels, each with a count, with deviation 1.
fn around(rng: &mut Rng, levels: &[(f64, usize)]) -> Vec<f64> {
    let all = levels.iter().flat_map(|(level, count)| std::iter::repeat_n(*level, *count));
    all.map(|level| level + normal(rng)).collect()
}

/// A series that does not change: normal, lognormal, with spikes, or with neighbours that resemble each other.
fn stable(kind: usize, n: usize, rng: &mut Rng) -> Vec<f64> {
    let mut last = 0.0;
    let mut next = || match kind {
        0 => normal(rng),
        1 => normal(rng).exp(),
        2 if rng.below(30) == 0 => 500.0,
        2 => normal(rng) / (1.0 - rng.below(1000) as f64 / 1000.0).sqrt(),
        _ => {
            last = 0.25 * last + normal(rng);
            last
        }
    };
    (0..n).map(|_| next()).collect()
}

/// Share of stable series in which a method finds a change.
fn false_alarms(kinds: &[usize], series: u64, n: usize, settings: &Settings, full: bool) -> f64 {
    let method = if full { e_divisive } else { end_anchored };
    let alarm = |nr: &u64| {
        let mut rng = Rng::stream(*nr, "stable");
        let kind = kinds[*nr as usize % kinds.len()];
        !method(&stable(kind, n, &mut rng), settings).points.is_empty()
    };
    (0..series).filter(alarm).count() as f64 / series as f64
}

#[test]
fn stable_series_raise_no_more_alarms_than_said() {
    let settings = Settings { max_p: 0.05, permutations: 99, ..Settings::default() };
    let fast = false_alarms(&[0, 1, 2, 3], 1_000, 50, &settings, false);
    let full = false_alarms(&[0, 1, 2, 3], 120, 40, &settings, true);
    assert!(fast <= 0.05 && full <= 0.05, "{fast} {full}");
    // Those whose neighbours resemble each other would, if nothing was done about it; the others would not.
    let plain = Settings { serial: false, ..settings };
    let (alike, others) =
        (false_alarms(&[3], 200, 100, &plain, false), false_alarms(&[0, 1, 2], 400, 100, &plain, false));
    // Three deviations of a share of 5 % in 400.
    assert!(alike > 0.1 && others <= 0.083, "{alike} {others}");
}

/// Share of series in which all changes are found within three places, and no others.
fn detection(levels: &[(f64, usize)], full: bool) -> f64 {
    let method = if full { e_divisive } else { end_anchored };
    let settings = Settings { permutations: 199, ..Settings::default() };
    let series = 30;
    let good = |nr: &u64| {
        let found = method(&around(&mut Rng::stream(*nr, "detection"), levels), &settings);
        let mut at = 0;
        let expected = levels[..levels.len() - 1].iter().map(|(_, count)| {
            at += count;
            at
        });
        found.points.len() == levels.len() - 1
            && found.points.iter().zip(expected).all(|(point, at)| point.index.abs_diff(at) <= 3)
    };
    (0..series).filter(good).count() as f64 / series as f64
}

/// Series of Apache Otava 0.8 (tests/analysis_test.py, change_point_divisive_test.py, series_test.py,
/// resources/sample.csv), the p that its tests ask for, and where they change: `windowed` at that p, and `adaptive` at
/// 1 %. Two are not found by the latter: the small step with 1.97 behind it, an outlier, and five values around 1
/// before five around 0.8, which might be walks.
#[test]
fn short_series_of_otavas_tests_change_where_it_says() {
    const STEP: &[f64] = &[1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
    const SMALL: &[f64] = &[2.02, 2.03, 2.01, 2.04, 1.82, 1.85, 1.79, 1.81, 1.80, 1.76, 1.78];
    const LONG: &[f64] = &[
        1.02, 0.95, 0.99, 1.00, 1.12, 1.00, 1.01, 0.98, 1.01, 0.96, 0.50, 0.51, 0.48, 0.48, 0.55, 0.50, 0.49, 0.51,
        0.50, 0.49,
    ];
    const TWO: &[f64] = &[0.3, 2.4, 1.5, -0.9, -0.5, 99.7, 98.3, 99.1, 149.0, 149.7, 149.5, 149.1, 148.8, 150.0];
    const THERE_AND_BACK: &[f64] = &[0.0, 0.0, 0.0, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
    const METRIC1: &[f64] =
        &[154023.0, 138455.0, 143112.0, 149190.0, 132098.0, 151344.0, 155145.0, 148889.0, 149466.0, 148209.0];
    let small = [SMALL, &[1.97]].concat();
    let two = vec![1.00, 1.02, 1.05, 0.95, 0.98, 0.80, 0.82, 0.85, 0.79, 0.77];
    for (values, max_p, expected) in [
        (STEP.to_vec(), 0.001, &[6][..]),
        (SMALL.to_vec(), 0.001, &[4]),
        ([STEP, &[0.5]].concat(), 0.001, &[6]),
        ([STEP, &[0.5, 0.51]].concat(), 0.001, &[6]),
        (LONG.to_vec(), 0.0001, &[10]),
        (TWO.to_vec(), 0.01, &[5, 8]),
        (THERE_AND_BACK.to_vec(), 0.001, &[3, 6]),
        (vec![10.43, 10.23, 10.29, 10.91, 10.34, 10.69, 9.23, 9.11, 9.13, 9.03], 0.001, &[6]),
        (vec![1.00, 1.02, 1.05, 0.95, 0.98, 1.00, 1.02, 1.05, 0.95, 0.98], 0.001, &[]),
        (METRIC1.to_vec(), 0.001, &[]),
        (small.clone(), 0.001, &[4]),
        (two.clone(), 0.001, &[5]),
    ] {
        let (found, neighbours) = adaptive(&values, &Settings::default(), e_divisive);
        let walks = found.points.is_empty() && !expected.is_empty();
        assert_eq!(walks, values == small || values == two, "{values:?} {found:?}");
        assert!(walks || (indexes(&found).as_slice(), neighbours) == (expected, Neighbours::Independent), "{values:?}");
        let windowed = windowed(&values, &Windows { max_p, ..Windows::default() });
        assert_eq!(windowed.iter().map(|point| point.index).collect::<Vec<_>>(), expected, "{values:?}");
    }
}

#[test]
fn steps_are_found_in_twelve_values_and_correlation_is_no_step() {
    let settings = Settings { permutations: 299, ..Settings::default() };
    let ar1 = |phi: f64, n: usize, seed: u64| {
        let mut rng = Rng::stream(seed, "alike");
        let mut last = normal(&mut rng);
        let next = |_| {
            last = phi * last + (1.0 - phi * phi).sqrt() * normal(&mut rng);
            last
        };
        (0..n).map(next).collect::<Vec<f64>>()
    };
    let found = |phi: f64, n: usize, step: f64, search: fn(&[f64], &Settings) -> bool| {
        let with_step = |seed: &u64| {
            let mut values = ar1(phi, n, *seed);
            values[n / 2..].iter_mut().for_each(|value| *value -= step);
            search(&values, &settings)
        };
        (0..100).filter(with_step).count()
    };
    let ours = |values: &[f64], settings: &Settings| !adaptive(values, settings, e_divisive).0.points.is_empty();
    let cautious = |values: &[f64], settings: &Settings| !e_divisive(values, settings).points.is_empty();
    for n in [12, 20] {
        // A step of 20 % where the coefficient of variation is 2 %.
        assert!(found(0.0, n, 10.0, ours) >= 95 && found(0.0, n, 10.0, cautious) <= 60, "{n}");
        assert!(found(0.0, n, 0.0, ours) <= 3, "{n}");
    }
    for (n, phi) in [(12, 0.5), (12, 0.9), (20, 0.7), (30, 0.5)] {
        let (ours, cautious) = (found(phi, n, 0.0, ours), found(phi, n, 0.0, cautious));
        assert!(ours <= cautious + 2, "{n} values of {phi}: {ours} and {cautious} of 100");
    }
}

#[test]
fn changes_are_placed_in_all_ways_that_leave_segments() {
    for (n, changes, least, expected) in
        [(10, 1, 3, 5.0), (10, 2, 3, 3.0), (12, 3, 3, 1.0), (5, 1, 3, 0.0), (11, 1, 1, 10.0)]
    {
        assert_eq!(super::steps::ways(n, changes, least), expected, "{n} {changes} {least}");
    }
}

proptest! {
    #[test]
    fn the_segments_have_the_least_squares(values in prop::collection::vec(-9.0..9.0f64, 4..12), least in 1usize..4) {
        let squares = |places: &[usize]| {
            let bounds: Vec<usize> = [&[0][..], places, &[values.len()]].concat();
            let part = |pair: &[usize]| {
                let part = &values[pair[0]..pair[1]];
                let mean = part.iter().sum::<f64>() / part.len() as f64;
                part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
            };
            bounds.windows(2).map(part).sum::<f64>()
        };
        let n = values.len();
        for places in super::steps::best(&values, least) {
            let all: Vec<Vec<usize>> = match places.len() {
                1 => (least..=n - least).map(|a| vec![a]).collect(),
                2 => (least..=n).flat_map(|a| (a + least..=n - least).map(move |b| vec![a, b])).collect(),
                _ => continue,
            };
            let smallest = all.iter().map(|places| squares(places)).fold(f64::INFINITY, f64::min);
            prop_assert!((squares(&places) - smallest).abs() < 1e-9, "{places:?}");
        }
    }
}

#[test]
fn the_fixed_end_finds_steps_as_well_and_bumps_less_often() {
    for full in [true, false] {
        let step = detection(&[(0.0, 30), (3.0, 30)], full);
        assert!(step >= 0.9, "full {full}: {step}");
    }
    let bump = [(0.0, 30), (3.0, 8), (0.0, 30)];
    let (full, anchored) = (detection(&bump, true), detection(&bump, false));
    assert!(full > anchored, "{full} {anchored}");
}

#[test]
fn one_spike_is_no_change_but_three_runs_in_a_row_can_be() {
    let mut rng = Rng::stream(3, "spike");
    let mut values = around(&mut rng, &[(100.0, 60)]);
    values[30] = 500.0;
    for method in [e_divisive, end_anchored] {
        assert_eq!(method(&values, &Settings::default()).points, [], "{values:?}");
    }
    let mut values = around(&mut rng, &[(100.0, 60)]);
    values[57..].iter_mut().for_each(|value| *value += 50.0);
    assert_eq!(indexes(&e_divisive(&values, &Settings { serial: false, ..Settings::default() })), [57]);
}

#[test]
fn fewer_tests_do_not_change_what_a_seed_gives() {
    let values = around(&mut Rng::stream(5, "seed"), &[(0.0, 40), (2.0, 40), (0.5, 40)]);
    let settings = Settings::default();
    let found = e_divisive(&values, &settings);
    assert_eq!(indexes(&found).len(), 2, "{found:?}");
    // A level that no p exceeds tests every order: decisions at any other level are those of its p.
    let all = e_divisive(&values, &Settings { max_p: 0.999, ..settings });
    assert!(
        all.points.len() > 2
            && found
                .points
                .iter()
                .all(|point| all.points.iter().any(|other| { other.index == point.index && other.p == point.p })),
        "{found:?} {all:?}"
    );
}
