use super::trials::{self, SOURCES, group};
use super::*;
use iowhy_stats::Better;
use iowhy_stats::metric::{Column, RunFacts};

fn row(a: &[f64], b: &[f64]) -> Row {
    compare(&group("a", a.to_vec()), &group("b", b.to_vec()), &Settings::default()).rows.remove(0)
}

fn kinds(warnings: &[Warning]) -> Vec<&'static str> {
    warnings.iter().map(|warning| warning.kind().word).collect()
}

/// Values around 100 without a pattern.
fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = iowhy_stack::rng::Rng::stream(seed, "noise");
    (SOURCES[0].draw)(&mut rng, n)
}

fn scaled(values: &[f64], by: f64) -> Vec<f64> {
    values.iter().map(|value| value * by).collect()
}

#[test]
fn odd_samples_get_a_clear_answer_and_never_a_false_verdict() {
    use Verdict::{Improvement, Inconclusive, Regression, Same};
    let (ten, other) = (noise(10, 1), noise(10, 2));
    type Case<'a> = (&'a str, &'a [f64], &'a [f64], Verdict, &'a str);
    // The metric is a rate: more is better.
    let table: [Case<'_>; 14] = [
        ("nothing", &[], &[], Inconclusive, "no-samples"),
        ("nothing on one side", &ten, &[], Inconclusive, "no-samples"),
        ("one and one", &[1.0], &[5.0], Inconclusive, "one-sample"),
        ("one and many", &[1.0], &ten, Inconclusive, "one-sample"),
        ("four and four", &ten[..4], &scaled(&ten[..4], 9.0), Inconclusive, "too-few"),
        ("five and five", &ten[..5], &scaled(&ten[..5], 0.5), Regression, ""),
        ("the same values", &ten, &ten, Inconclusive, ""),
        ("other values", &ten, &other, Inconclusive, ""),
        ("constant and equal", &[7.0; 10], &[7.0; 10], Same, "constant"),
        ("constant and different", &[7.0; 10], &[8.0; 10], Improvement, "constant"),
        ("all zero", &[0.0; 10], &[0.0; 10], Same, "not-positive"),
        ("a total loss", &ten, &[0.0; 10], Regression, "not-positive"),
        ("out of nothing", &[0.0; 10], &ten, Improvement, "not-positive"),
        ("negative", &scaled(&ten, -1.0), &scaled(&other, -1.0), Inconclusive, "not-positive"),
    ];
    for (name, a, b, verdict, warning) in table {
        let row = row(a, b);
        assert_eq!(row.verdict, verdict, "{name}: {row:?}");
        let kinds = kinds(&row.warnings);
        assert!(warning.is_empty() || kinds.contains(&warning), "{name}: {kinds:?}");
        assert!(!row.because.is_empty() && (0.0..=1.0).contains(&row.p), "{name}: {row:?}");
    }
}

#[test]
fn values_that_are_no_numbers_are_said_to_be_left_out() {
    let mut a = group("a", noise(10, 1));
    a.columns[0].left_out = 3;
    let comparison = compare(&a, &group("b", noise(10, 2)), &Settings::default());
    assert!(comparison.rows[0].warnings.contains(&Warning::LeftOut { values: 3 }));
}

#[test]
fn the_change_is_that_of_the_candidate_and_its_interval_holds_it() {
    for (by, better, verdict) in [
        (1.1, Better::Higher, Verdict::Improvement),
        (1.1, Better::Lower, Verdict::Regression),
        (0.9, Better::Higher, Verdict::Regression),
        (0.9, Better::Lower, Verdict::Improvement),
    ] {
        let (mut a, mut b) = (group("a", noise(20, 1)), group("b", scaled(&noise(20, 2), by)));
        for group in [&mut a, &mut b] {
            group.columns[0].metric.better = better;
        }
        let row = compare(&a, &b, &Settings::default()).rows.remove(0);
        assert_eq!(row.verdict, verdict);
        let change = 100.0 * (by - 1.0);
        assert!(row.ci_pct.0 < change && change < row.ci_pct.1, "{row:?}");
        assert!((row.change_pct - change).abs() < 3.0, "{row:?}");
    }
}

#[test]
fn a_difference_within_the_margin_is_none() {
    let (a, b) = (noise(400, 1), noise(400, 2));
    let found = row(&a, &b);
    assert_eq!((found.verdict, found.runs_needed), (Verdict::Same, Some(0)), "{found:?}");
    // The same noise, but fewer runs: it takes more to say so, and the answer says how many.
    let few = row(&a[..10], &b[..10]);
    assert_eq!(few.verdict, Verdict::Inconclusive);
    let needed = few.runs_needed.expect("the spread is known");
    assert!((30..200).contains(&needed), "{needed}");
}

/// Runs of two labels in blocks, with a machine that gets slower from block to block.
fn blocks(n: usize, by: f64) -> (Group, Group) {
    let drift = |nr: usize| 1.0 - 0.03 * nr as f64;
    let side = |label: &str, seed: u64, by: f64| {
        let values: Vec<f64> =
            noise(n, seed).iter().enumerate().map(|(nr, x)| by * drift(nr) * (100.0 + 0.1 * (x - 100.0))).collect();
        let facts = |nr: usize| RunFacts { block: Some(nr as u64), ..RunFacts::default() };
        let column = Column { runs: (0..n).collect(), ..group(label, values).columns.remove(0) };
        Group { label: label.to_owned(), runs: (0..n).map(facts).collect(), columns: vec![column] }
    };
    (side("a", 1, 1.0), side("b", 2, by))
}

#[test]
fn runs_in_blocks_are_paired_and_drift_cancels() {
    let (a, b) = blocks(12, 0.97);
    let paired = compare(&a, &b, &Settings::default()).rows.remove(0);
    assert_eq!(paired.verdict, Verdict::Regression, "{paired:?}");
    assert_eq!(paired.methods[0].name, "signed-rank");
    assert!((paired.change_pct + 3.0).abs() < 0.5, "{paired:?}");
    // The same values without the knowledge of blocks say nothing.
    let strip = |group: &Group| Group { runs: Vec::new(), ..group.clone() };
    let blind = compare(&strip(&a), &strip(&b), &Settings::default()).rows.remove(0);
    assert_eq!(blind.verdict, Verdict::Inconclusive, "{blind:?}");
    assert!(kinds(&blind.warnings).contains(&"drift"), "{:?}", blind.warnings);
    // Too few blocks for the test to be certain: as if there were none.
    let (a, b) = blocks(7, 0.97);
    assert_eq!(compare(&a, &b, &Settings::default()).rows[0].methods[0].name, "mann-whitney");
}

#[test]
fn a_slow_mode_is_found_although_the_centre_stays() {
    let base = noise(40, 1);
    let candidate: Vec<f64> =
        noise(40, 2).iter().enumerate().map(|(nr, x)| if nr % 4 == 1 { 0.63 * x } else { *x }).collect();
    let row = row(&base, &candidate);
    assert_eq!((row.a.modes.len(), row.b.modes.len()), (1, 2), "{row:?}");
    let told = (row.p, row.p_adjusted, row.change_pct, row.ci_pct, &row.because);
    assert_eq!(row.verdict, Verdict::Regression, "{told:?}");
    let shares: Vec<f64> = row.b.modes.iter().map(|mode| mode.share).collect();
    assert_eq!(shares, [0.25, 0.75]);
    assert!(row.methods.iter().any(|method| method.name == iowhy_stats::fisher::METHOD.name), "{:?}", row.methods);
}

#[test]
fn many_rows_of_noise_raise_no_alarm_that_one_would() {
    let columns = |from: u64| -> Vec<Column> {
        let column = |nr: u64| Column {
            metric: Metric::of(&format!("m{nr}")),
            ..group("", noise(12, from + nr)).columns.remove(0)
        };
        (0..100).map(column).collect()
    };
    let side = |label: &str, from: u64| Group { label: label.to_owned(), runs: Vec::new(), columns: columns(from) };
    let comparison = compare(&side("a", 1_000), &side("b", 2_000), &Settings { alpha: 0.05, ..Settings::default() });
    let below = |p: fn(&Row) -> f64| comparison.rows.iter().filter(|row| p(row) < 0.05).count();
    assert!(below(|row| row.p) > 0, "of a hundred rows some look different");
    assert_eq!(below(|row| row.p_adjusted), 0);
    assert!(comparison.rows.iter().all(|row| row.verdict != Verdict::Regression), "{comparison:?}");
}

#[test]
fn a_simulator_that_says_the_same_with_every_seed_is_no_broken_instrument() {
    let side = |label: &str, value: f64| {
        let runs = vec![RunFacts { simulated: true, ..RunFacts::default() }; 6];
        Group { runs, ..group(label, vec![value; 6]) }
    };
    let row = compare(&side("a", 7.0), &side("b", 8.0), &Settings::default()).rows.remove(0);
    assert_eq!((row.verdict, kinds(&row.warnings)), (Verdict::Improvement, vec!["same-events"]));
}

#[test]
fn calls_of_one_run_are_no_evidence_about_the_next() {
    // Ten runs, whose levels differ by more than their calls do: thousands of calls say no more than ten runs.
    let runs = |seed: u64, by: f64| -> Vec<Vec<f64>> {
        let levels = noise(10, seed);
        let run = |(nr, level): (u64, &f64)| scaled(&noise(300, seed + 100 + nr), by * level / 100.0 * level / 100.0);
        (0..).zip(&levels).map(run).collect()
    };
    let settings = Settings { draws: 499, ..Settings::default() };
    let equal = latencies(&runs(1, 1.0), &runs(2, 1.0), &settings);
    let quantiles: Vec<f64> = equal.iter().map(|tail| tail.quantile_pct).collect();
    assert_eq!(quantiles, [50.0, 90.0, 99.0]);
    assert!(equal.iter().all(|tail| tail.ci_pct.0 < 0.0 && tail.ci_pct.1 > 0.0), "{equal:?}");
    // As if the calls were independent, the same medians would differ for certain.
    let pooled = |seed: u64| runs(seed, 1.0).concat();
    let single = latencies(&[pooled(1)], &[pooled(2)], &settings);
    assert_eq!(single, [], "one run is no sample of runs");
    let slower = latencies(&runs(1, 1.0), &runs(2, 1.2), &settings);
    assert!(slower.iter().all(|tail| tail.ci_pct.0 > 0.0 && tail.ci_pct.0 < 20.0), "{slower:?}");
}

#[test]
fn the_worst_row_decides() {
    use Verdict::{Improvement, Inconclusive, Regression, Same};
    for (rows, expected) in [
        (&[][..], Inconclusive),
        (&[Same, Improvement][..], Improvement),
        (&[Same, Inconclusive, Improvement][..], Inconclusive),
        (&[Inconclusive, Regression, Improvement][..], Regression),
    ] {
        assert_eq!(overall(rows.iter().copied()), expected);
    }
}

#[test]
fn headlines_are_compared_unless_others_are_asked_for() {
    let side = |label: &str| {
        let column = |name: &str, value: f64| Column {
            metric: Metric::of(name),
            ..group("", scaled(&noise(6, 1), value)).columns.remove(0)
        };
        let columns = vec![column("cpu_s", 1.0), column("write_mib_s", 0.0), column("iops", 1.0)];
        Group { label: label.to_owned(), runs: Vec::new(), columns }
    };
    let names = |settings: &Settings| -> Vec<String> {
        compare(&side("a"), &side("b"), settings).rows.into_iter().map(|row| row.metric.name).collect()
    };
    assert_eq!(names(&Settings::default()), ["iops"]);
    assert_eq!(names(&Settings { metrics: vec!["cpu_s".to_owned()], ..Settings::default() }), ["cpu_s"]);
    let mut b = side("b");
    b.columns.pop();
    let warnings = compare(&side("a"), &b, &Settings::default()).warnings;
    assert_eq!(kinds(&warnings), ["only-one-side"]);
}

#[test]
fn the_same_samples_give_the_same_bytes() {
    let (a, b) = (noise(150, 1), scaled(&noise(150, 2), 1.02));
    assert_eq!(format!("{:?}", row(&a, &b)), format!("{:?}", row(&a, &b)));
}

/// The table of docs/METHODS.md has more; these few must hold on every machine, because the draws are seeded.
#[test]
fn false_alarms_stay_below_alpha_and_changes_are_found() {
    let settings = Settings { detail: false, draws: 199, ..Settings::default() };
    for source in SOURCES {
        let trial = trials::trial(source, 20, 0.0, &settings, 300);
        assert!(trial.found.ci_pct().0 <= 1.0, "{}: {trial:?}", source.name);
        assert!(trial.covered.ci_pct().1 >= 98.0, "{}: {trial:?}", source.name);
    }
    let found = trials::trial(&SOURCES[0], 10, 5.0, &settings, 300);
    assert!(found.found.pct() >= 95.0 && found.wrong.count == 0, "{found:?}");
    assert!(trials::second_mode(40, 0.2, 0.63, 0.01, 300).pct() >= 90.0);
}
