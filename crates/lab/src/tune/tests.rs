use super::*;

fn tried(key: &'static str, more: usize, obtained_pct: f64, low: f64) -> Tried {
    let settings = std::iter::repeat_n((key, "1".to_owned()), 1 + more).collect();
    let obtained = Saving { pct: obtained_pct, ci_pct: [low, 2.0 * obtained_pct - low] };
    Tried { obtained, believed_pct: obtained_pct, least_pct: low, ..Tried::new(settings, Origin::Twin, None) }
}

#[test]
fn the_best_is_surely_better_and_simple() {
    // Changes, saving and lower end of each; the place of the best.
    type Case = (&'static [(usize, f64, f64)], Option<usize>);
    let cases: &[Case] = &[
        (&[(1, 30.0, 20.0), (1, 40.0, 35.0)], Some(1)),
        // Alike: fewer changes.
        (&[(2, 40.5, 35.0), (1, 40.0, 35.0)], Some(1)),
        // Not sure; too little.
        (&[(1, 30.0, -1.0), (1, 1.9, 1.0)], None),
        (&[(1, 2.0, 0.1)], Some(0)),
        (&[(1, -5.0, -9.0)], None),
        (&[], None),
    ];
    for (all, expected) in cases {
        let all: Vec<Tried> = all.iter().map(|(more, saved, low)| tried("nomerges", more - 1, *saved, *low)).collect();
        assert_eq!(best(&all), *expected, "{all:?}");
    }
}

#[test]
fn work_is_measured_by_bytes_then_calls_then_the_clock() {
    let metrics =
        |all: &[(&str, f64)]| all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Metrics>();
    let all = [("elapsed_s", 4.0), ("iops", 10.0), ("read_mb_s", 1.5), ("write_mb_s", 0.5)];
    for (from, expected) in [(4, Some(0.5)), (2, Some(0.1)), (1, Some(4.0)), (0, None)] {
        assert_eq!(time_of(&metrics(&all[..from])), expected, "{from} metrics");
    }
}

#[test]
fn values_that_no_kernel_offers_are_not_tried() {
    assert!(!is_possible("nowhere", "read_ahead_kb", "128"));
    assert!(is_possible("nowhere", "vm.dirty_ratio", "10"));
}

#[test]
fn what_the_twin_sees_in_nearly_all_draws_or_a_rule_is_expected() {
    let saving = |pct: f64, low: f64| Some(Saving { pct, ci_pct: [low, 2.0 * pct - low] });
    let cases: &[(Origin, Option<Saving>, bool)] = &[
        (Origin::Twin, saving(10.0, 1.0), true),
        (Origin::Twin, saving(10.0, -1.0), false),
        (Origin::Twin, saving(1.0, 0.5), false),
        (Origin::Rule, None, true),
        (Origin::Guess, None, false),
        (Origin::Untested, None, false),
    ];
    for (origin, predicted, expected) in cases {
        assert_eq!(Tried::new(Vec::new(), *origin, *predicted).is_expected(), *expected, "{origin:?} {predicted:?}");
    }
}

#[test]
fn a_prediction_counts_as_one_more_measurement() {
    // Predicted, obtained, half of its interval; believed, and what it surely is.
    for (predicted, obtained, half, expected) in [
        (Some(30.0), 20.0, TWIN_HALF, [25.0, 25.0 - TWIN_HALF / 2.0_f64.sqrt()]),
        (Some(30.0), 10.0, 1e-9, [10.0, 10.0]),
        // Outside the interval of the trial, which refutes it.
        (Some(74.0), 10.0, 8.0, [10.0, -10.0]),
        (None, 20.0, 5.0, [20.0, 0.0]),
        (Some(30.0), 20.0, f64::INFINITY, [20.0, 0.0]),
    ] {
        let predicted = predicted.map(|pct| Saving { pct, ci_pct: [pct - 1.0, pct + 1.0] });
        let tried = Tried::new(Vec::new(), Origin::Twin, predicted);
        let found = tried.judged(Saving { pct: obtained, ci_pct: [obtained - 20.0, obtained + 20.0] }, half);
        for (found, expected) in [found.believed_pct, found.least_pct].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{predicted:?} and {obtained}: {found}");
        }
    }
}
