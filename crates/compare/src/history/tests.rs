//! Tests of histories.

use super::*;
use iowhy_stack::rng::Rng;
use iowhy_stats::metric::{Column, RunFacts};
use iowhy_text::diagnose::Problems;

/// Roughly normal noise with deviation 1: the sum of twelve uniform values.
fn noise(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.below(1 << 32) as f64 / (1u64 << 32) as f64).sum::<f64>() - 6.0
}

fn series(metric: &str, values: impl IntoIterator<Item = f64>) -> Series {
    let points = values.into_iter().enumerate().map(|(nr, value)| Point {
        run_id: format!("r{nr}"),
        started_ns: nr as u64,
        value,
    });
    Series {
        metric: Metric::of(metric),
        machine: "m".to_owned(),
        job: "j".to_owned(),
        place: "live".to_owned(),
        points: points.collect(),
        left_out: 0,
        machines: 1,
    }
}

fn around(seed: u64, levels: &[(f64, usize)]) -> Vec<f64> {
    let mut rng = Rng::stream(seed, "history");
    let all = levels.iter().flat_map(|(level, count)| std::iter::repeat_n(*level, *count));
    all.map(|level| level + noise(&mut rng)).collect()
}

#[test]
fn a_change_has_its_run_its_percentage_and_an_interval_around_it() {
    for (search, _) in SEARCHES.iter().map(|(_, search, word)| (*search, word)) {
        let settings = Settings { search: Some(search), ..Settings::default() };
        let history = trace(vec![series("p99_ns", around(1, &[(100.0, 40), (110.0, 40)]))], &settings);
        let [change] = history.series[0].changes.as_slice() else { panic!("{history:?}") };
        assert_eq!((change.index, change.run_id.as_str(), change.started_ns, change.worse), (40, "r40", 40, true));
        let (low, high) = change.ci_pct;
        assert!((9.0..11.0).contains(&change.change_pct) && low < change.change_pct && change.change_pct < high);
        assert!((0.3..2.0).contains(&(high - low)), "{change:?}");
        assert_eq!(history.verdict, Verdict::Worse);
    }
}

#[test]
fn intervals_cover_the_true_change_where_the_place_is_known() {
    let covered = (0..300).filter(|seed| {
        let values = around(*seed, &[(20.0, 8), (22.0, 12)]);
        let of = series("p99_ns", values.clone());
        let point = ChangePoint { index: 8, q: 1.0, p: 0.0, mean_before: 0.0, mean_after: 0.0 };
        let (low, high) = change(&of, point, &values[..8], &values[8..], 0.1).ci_pct;
        low <= 10.0 && 10.0 <= high
    });
    // Three deviations of a share of 90 % in 300 are 16.
    let covered = covered.count();
    assert!((254..=286).contains(&covered), "{covered}");
}

#[test]
fn the_verdict_is_of_the_newest_segment() {
    for (metric, levels, verdict) in [
        ("p99_ns", &[(100.0, 30), (110.0, 30)][..], Verdict::Worse),
        ("read_iops", &[(100.0, 30), (110.0, 30)], Verdict::Fine),
        ("p99_ns", &[(100.0, 30), (120.0, 30), (110.0, 30)], Verdict::Fine),
        ("read_iops", &[(100.0, 30), (120.0, 30), (110.0, 30)], Verdict::Worse),
        ("p99_ns", &[(-110.0, 30), (-100.0, 30)], Verdict::Worse),
        ("p99_ns", &[(100.0, 60)], Verdict::Fine),
        ("p99_ns", &[(100.0, 4), (900.0, 4)], Verdict::TooShort),
    ] {
        let history = trace(vec![series(metric, around(2, levels))], &Settings::default());
        assert_eq!(history.verdict, verdict, "{metric} {levels:?} {history:?}");
    }
    assert_eq!(trace(Vec::new(), &Settings::default()).verdict, Verdict::TooShort);
}

#[test]
fn changes_that_do_not_matter_are_taken_out_and_their_segments_joined() {
    let values = around(3, &[(1000.0, 40), (1005.0, 40), (1100.0, 40)]);
    let indexes = |min_change_pct| {
        let settings = Settings { min_change_pct, ..Settings::default() };
        let history = trace(vec![series("p99_ns", values.clone())], &settings);
        history.series[0].changes.iter().map(|change| (change.index, change.before.round())).collect::<Vec<_>>()
    };
    assert_eq!(indexes(0.0).iter().map(|(index, _)| *index).collect::<Vec<_>>(), [40, 80]);
    let joined = indexes(1.0);
    assert_eq!(joined.len(), 1);
    assert!(joined[0].0 == 80 && (1002.0..=1003.0).contains(&joined[0].1), "{joined:?}");
}

#[test]
fn short_constant_and_zero_series_raise_no_alarm_of_percent() {
    for values in [vec![], vec![1.0; 60], vec![0.0; 60], vec![1.0, 9.0]] {
        let history = trace(vec![series("p99_ns", values.clone())], &Settings::default());
        assert!(history.series[0].changes.is_empty(), "{values:?} {history:?}");
    }
    let from_zero = trace(vec![series("p99_ns", [vec![0.0; 30], vec![5.0; 30]].concat())], &Settings::default());
    let [change] = from_zero.series[0].changes.as_slice() else { panic!("{from_zero:?}") };
    assert!(change.change_pct.is_nan() && change.worse && change.index == 30);
    assert!(report::json(&from_zero)["points"][0]["change_pct"].is_null());
}

#[test]
fn among_many_series_a_change_must_be_clearer() {
    // At this level one in five stable series changes by chance; with sixty of them hardly any remains.
    let settings = Settings { search: Some(Search::Fast), alpha: 0.2, min_change_pct: 0.0, ..Settings::default() };
    let all: Vec<Series> = (0..60).map(|nr| series("p99_ns", around(nr, &[(100.0, 24)]))).collect();
    let alone: usize =
        all.iter().map(|one| usize::from(!trace(vec![one.clone()], &settings).series[0].changes.is_empty())).sum();
    let history = trace(all, &settings);
    let left = history.series.iter().filter(|traced| !traced.changes.is_empty()).count();
    let warned = history.series.iter().filter(|t| t.warnings == [Warning::OneOfMany { series: 60 }]).count();
    assert!(alone >= 2 && left < alone && left + warned == alone, "{alone} {left} {warned}");
}

#[test]
fn stable_series_raise_no_more_alarms_than_said() {
    // The single-series rate is tested next to the statistic; here with everything a history adds.
    let settings = Settings { search: Some(Search::Fast), alpha: 0.05, min_change_pct: 0.0, ..Settings::default() };
    let history = trace((0..100).map(|nr| series("p99_ns", around(nr, &[(100.0, 30)]))).collect(), &settings);
    assert_eq!(history.series.iter().filter(|traced| !traced.changes.is_empty()).count(), 0);
    let drifting = history.series.iter().filter(|traced| traced.drift.is_some()).count();
    assert!(drifting <= 10, "{drifting} of 100 drift");
}

#[test]
fn a_slow_drift_is_told_with_its_direction() {
    let settings = Settings::default();
    let rising: Vec<f64> = around(9, &[(100.0, 60)]).iter().zip(0..).map(|(v, nr)| v + 0.1 * f64::from(nr)).collect();
    for (metric, worse) in [("p99_ns", true), ("read_iops", false)] {
        let drift = slope(&series(metric, rising.clone()), 0, &settings).expect("it drifts");
        assert!(drift.worse == worse && (4.0..8.0).contains(&drift.change_pct) && drift.p < 0.01, "{drift:?}");
        // Too few of its values are left to tell.
        assert_eq!(slope(&series(metric, rising.clone()), 55, &settings), None);
    }
    let falling = series("p99_ns", rising.iter().rev().copied());
    assert!(slope(&falling, 0, &settings).is_some_and(|drift| !drift.worse && drift.slope < 0.0));
    let small = Settings { min_change_pct: 10.0, ..settings.clone() };
    assert_eq!(slope(&falling, 0, &small), None);
    assert_eq!(slope(&series("p99_ns", around(9, &[(100.0, 60)])), 0, &settings), None);
}

#[test]
fn groups_become_series_of_the_metrics_asked_for() {
    let run = |nr: usize, machine: &str| RunFacts {
        run_id: format!("r{nr}"),
        started_ns: nr as u64,
        machine: machine.to_owned(),
        job: "randread".to_owned(),
        ..RunFacts::default()
    };
    let column = |name: &str, values: Vec<f64>, runs: Vec<usize>| Column {
        metric: Metric::of(name),
        left_out: 3 - values.len(),
        values,
        runs,
    };
    let group = Group {
        label: "g".to_owned(),
        runs: vec![run(0, "a"), run(1, "b"), run(2, "b")],
        columns: vec![
            column("p99_ns", vec![1.0, 3.0], vec![0, 2]),
            column("other", vec![1.0, 2.0, 3.0], vec![0, 1, 2]),
        ],
    };
    let place = |run: &str| format!("place of {run}");
    let headlines = of_groups(std::slice::from_ref(&group), &[], &place);
    assert_eq!(headlines.len(), 1);
    let one = &headlines[0];
    let runs: Vec<&str> = one.points.iter().map(|point| point.run_id.as_str()).collect();
    assert_eq!((runs, one.left_out, one.machines), (vec!["r0", "r2"], 1, 2));
    assert_eq!((one.place.as_str(), one.job.as_str()), ("place of r2", "randread"));
    let asked = of_groups(&[group], &["other".to_owned()], &place);
    assert_eq!((asked.len(), asked[0].points.len()), (1, 3));
    let warnings = &trace(asked, &Settings::default()).series[0].warnings;
    assert_eq!(*warnings, [Warning::TooShort { least: 10 }, Warning::MixedMachines { machines: 2 }]);
}

#[test]
fn files_are_numbers_or_tables() {
    let read = |text: &str, metrics: &[&str]| {
        let mut problems = Problems::default();
        let metrics: Vec<String> = metrics.iter().map(|metric| (*metric).to_owned()).collect();
        let all = read::read(text, "f", &metrics, &mut problems);
        let values = |series: &Series| series.points.iter().map(|point| point.value).collect::<Vec<_>>();
        let all: Vec<_> = all.iter().map(|s| (s.metric.name.clone(), values(s), s.left_out)).collect();
        (all, problems.list.len())
    };
    let of = |name: &str, values: &[f64], left_out| (name.to_owned(), values.to_vec(), left_out);
    assert_eq!(read("# c\n1\n2.5\n\nnan\n-3e2\n", &[]), (vec![of("value", &[1.0, 2.5, -300.0], 1)], 0));
    assert_eq!(read("1\n2\n", &["tps"]), (vec![of("tps", &[1.0, 2.0], 0)], 0));
    assert_eq!(read("1\n", &["a", "b"]).1, 1);
    assert_eq!(read("m\n1\n2\n", &[]), (vec![of("m", &[1.0, 2.0], 0)], 0));
    let table = "time,a,b,who\n3,1,\"2\",x\n1,4,,\"y, \"\"z\"\"\"\n";
    assert_eq!(read(table, &[]), (vec![of("a", &[4.0, 1.0], 0), of("b", &[2.0], 1)], 0));
    assert_eq!(read(table, &["b"]), (vec![of("b", &[2.0], 1)], 0));
    assert_eq!(read(table, &["who"]).1, 1);
    assert_eq!(read("", &[]).1, 1);
    // As Apache Otava's sample-semicolons.csv and sample_multi_branch.csv are: dates order the runs, branches are
    // apart.
    let semicolons = "time;commit;m\n2024.01.02 3:00:00 +0100;b;2\n2024.01.01 23:00:00 -0400;c;3\n2024-01-01;a;1\n";
    assert_eq!(read(semicolons, &[]), (vec![of("m", &[1.0, 2.0, 3.0], 0)], 0));
    let branches = "time,branch,m\n3,main,1\n2,x,9\n1,main,2\n";
    assert_eq!(read(branches, &[]), (vec![of("m", &[2.0, 1.0], 0), of("m", &[9.0], 0)], 0));
    let started = read::read("time\tm\n2024-02-29T12:30:00Z\t5\n", "f", &[], &mut Problems::default());
    assert_eq!(started[0].points[0].started_ns, 1_709_209_800_000_000_000);
    // A file full of mistakes is not repeated in full.
    assert_eq!(read(&format!("1\n{}", "x\n".repeat(100)), &[]).1, 10);
}

mod any {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c0-9,.\"\n é-]{0,60}") {
            let mut problems = Problems::default();
            let all = read::read(&text, "f", &[], &mut problems);
            for problem in &problems.list {
                problem.render();
            }
            prop_assert!(problems.any_error() || !all.is_empty());
            prop_assert!(all.iter().all(|series| series.points.iter().all(|point| point.value.is_finite())));
        }
    }
}
