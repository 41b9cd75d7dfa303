use super::*;
use crate::digest::wall::{BLOCKS, Wall};
use iowhy_stack::units::Nanos;
use iowhy_trace::settings::Command;

/// Runs of ten reads of a page each, by the time of a read, ns.
fn side(times: &[f64]) -> Side {
    let run = |each: &f64| {
        let mut run = Digest { elapsed: Nanos((10.0 * each) as u64), ..Digest::default() };
        run.workload.calls[0] = 10;
        run.workload.bytes[0] = 40_960;
        (0..10).for_each(|_| run.latency[0].add(*each as u64));
        run
    };
    Side { runs: times.iter().map(run).collect(), ..Side::default() }
}

/// The figure of both sides, which is the time of a read.
fn contrast(fast: &[f64], slow: &[f64]) -> Contrast {
    Delta::of_roles(&side(fast), &side(slow), false).of(time_per_operation)
}

#[test]
fn a_difference_is_sure_beyond_the_runs_own() {
    // Two runs of 10,000 -+ 100 on each side: the standard error of the difference is 141.42.
    for (by, expected) in [(707.0, false), (708.0, true)] {
        let (low, high) = ([9_900.0, 10_100.0], [9_900.0 + by, 10_100.0 + by]);
        assert_eq!(contrast(&low, &high).sure(), expected, "{by}");
        assert_eq!(contrast(&high, &low).sure(), expected, "{by}");
    }
    let equal = Contrast { fast: 1.0, slow: 1.0, error: Some(0.0), apart: true };
    assert!(!equal.sure());
    assert!(Contrast { slow: 1.1, ..equal }.sure(), "without noise any difference is sure");
    assert!(Contrast { slow: 1.1, error: Some(1.0), ..equal }.sure(), "all of one side are beyond the other");
    for (slow, expected) in [(1.0203, false), (1.0205, true)] {
        assert_eq!(Contrast::of_means(1.0, slow).sure(), expected, "{slow}");
    }
}

#[test]
fn factors_and_amounts_have_a_direction() {
    let up = Contrast::of_means(2.0, 3.0);
    let down = Contrast::of_means(3.0, 2.0);
    assert_eq!((up.difference(), up.ratio()), (1.0, 1.5));
    assert!(up.rose(1.49) && !up.rose(1.5) && !up.fell(1.0));
    assert!(down.fell(1.49) && !down.fell(1.5) && !down.rose(1.0));
    assert!(up.rose_by(1.0) && !up.rose_by(1.01) && !up.fell_by(0.1));
    assert!(down.fell_by(1.0) && !down.fell_by(1.01));
    let unsure = Contrast { error: Some(1.0), ..up };
    assert!(!unsure.rose(1.0) && !unsure.rose_by(0.1) && !Contrast { error: Some(1.0), ..down }.fell(1.0));
    assert!(!Contrast { error: Some(1.0), ..down }.fell_by(0.1));
    assert_eq!(Contrast::of_means(0.0, 0.0).ratio(), 1.0);
    assert_eq!(Contrast::of_means(0.0, 1.0).ratio(), f64::INFINITY);
}

#[test]
fn sides_are_apart_if_all_of_one_are_beyond_the_other_by_a_quarter() {
    for (least, expected) in [(1_250.0, false), (1_251.0, true)] {
        assert_eq!(contrast(&[900.0, 1_000.0], &[least, 9_000.0]).apart, expected, "{least}");
        assert_eq!(contrast(&[least, 9_000.0], &[900.0, 1_000.0]).apart, expected, "{least}");
    }
}

/// Two live sides of single recordings whose own stretches differ by this relative deviation.
fn single(slow: f64, deviation: f64) -> Verdict {
    let sides = [10_000.0, slow].map(|each| {
        let mut side = side(&[each]);
        side.live = true;
        let blocks = (0..BLOCKS).map(|nr| 1.0 + deviation * [-1.0, 0.0, 1.0][nr % 3]).collect();
        side.runs[0].wall = Some(Wall { blocks, ..Wall::default() });
        side
    });
    Delta::new(&sides[0], &sides[1]).verdict().0
}

#[test]
fn single_recordings_have_to_differ_by_more_than_equal_ones_do() {
    for (slow, deviation, expected) in [
        (12_490.0, 0.0, Verdict::Inconclusive),
        (12_510.0, 0.0, Verdict::Regression),
        // Median deviation 0.3: standard error 1.4826 * 0.3 / sqrt(BLOCKS) on each side.
        (least(0.3) * 9_990.0, 0.3, Verdict::Inconclusive),
        (least(0.3) * 10_010.0, 0.3, Verdict::Regression),
        (15_990.0, 0.9, Verdict::Inconclusive),
        (16_010.0, 0.9, Verdict::Regression),
        (10_000.0 / 1.26, 0.0, Verdict::Improvement),
    ] {
        assert_eq!(single(slow, deviation), expected, "{slow} {deviation}");
    }
}

/// The ratio that single recordings of this deviation have to exceed.
fn least(deviation: f64) -> f64 {
    (2.5 * 2f64.sqrt() * 1.4826 * deviation / (BLOCKS as f64).sqrt()).exp()
}

#[test]
fn simulated_single_runs_have_to_differ_by_two_percent() {
    for (slow, expected) in [(10_199.0, Verdict::Inconclusive), (10_201.0, Verdict::Regression)] {
        assert_eq!(Delta::new(&side(&[10_000.0]), &side(&[slow])).verdict().0, expected, "{slow}");
    }
}

#[test]
fn several_runs_are_judged_by_their_spread() {
    let shifted = |by: f64, n: usize| -> Vec<f64> { (0..n).map(|nr| by + 10_000.0 + nr as f64).collect() };
    let verdict = |a: &[f64], b: &[f64], live: bool| {
        let [a, b] = [a, b].map(|times| Side { live, ..side(times) });
        Delta::new(&a, &b).verdict().0
    };
    for (by, n, live, expected) in [
        (99.0, 3, false, Verdict::Same),
        (101.0, 3, false, Verdict::Regression),
        (-150.0, 3, false, Verdict::Improvement),
        // Few live recordings have to differ by 5 %, more of them by what their ranks say.
        (499.0, 4, true, Verdict::Inconclusive),
        (502.0, 4, true, Verdict::Regression),
        (150.0, 5, true, Verdict::Regression),
    ] {
        assert_eq!(verdict(&shifted(0.0, n), &shifted(by, n), live), expected, "{by} {n} {live}");
    }
    assert_eq!(verdict(&[9_000.0, 11_000.0], &[9_500.0, 12_000.0], false), Verdict::Inconclusive);
    // Five of each: p is 0.0079 if all of one side are beyond the other, and 0.0159 if one pair has changed places.
    let (fast, slow) = ([100e3, 102e3, 104e3, 106e3, 108e3], [110e3, 112e3, 114e3, 116e3, 118e3]);
    assert_eq!(verdict(&fast, &slow, false), Verdict::Regression);
    assert_eq!(verdict(&fast, &[107e3, 112e3, 114e3, 116e3, 118e3], false), Verdict::Inconclusive);
    assert_eq!(verdict(&[], &slow, false), Verdict::Inconclusive);
    assert_eq!(verdict(&[0.0], &[5.0], false), Verdict::Inconclusive);
}

/// Both sides changed, and the basis of their comparison.
fn basis_of(change: impl Fn(&mut Digest, &mut Digest)) -> Basis {
    let (mut fast, mut slow) = (side(&[100e6]), side(&[200e6]));
    change(&mut fast.runs[0], &mut slow.runs[0]);
    Delta::of_roles(&fast, &slow, false).basis
}

#[test]
fn the_basis_is_what_both_sides_have_in_common() {
    let calls = |size: u64| {
        basis_of(|_, slow| {
            slow.workload.bytes[0] = 10 * size;
        })
    };
    assert_eq!(calls(4_096), Basis::Call);
    assert_eq!((calls(4_550), calls(4_552)), (Basis::Call, Basis::Bytes));
    // As many bytes in other calls.
    let bytes = |all: u64| {
        basis_of(|_, slow| {
            (0..10).for_each(|_| slow.latency[0].add(1));
            slow.workload.bytes[0] = all;
        })
    };
    assert_eq!((bytes(42_226), bytes(42_228)), (Basis::Run, Basis::Bytes));
}

#[test]
fn commands_are_compared_by_the_clock_unless_it_ended_both() {
    let ended = |elapsed: [f64; 2], calls: u64, writes: u64| {
        basis_of(|fast, slow| {
            for (run, elapsed, calls, writes) in [(fast, elapsed[0], 1_000, 0), (slow, elapsed[1], calls, writes)] {
                run.command = Some(Command {
                    span: [Nanos(0), Nanos(elapsed as u64)],
                    exit: 0,
                    cpu_ns: [0; 2],
                    faults: [0; 2],
                    bytes: [0; 2],
                    switches: [0; 2],
                });
                run.elapsed = Nanos(elapsed as u64);
                run.latency[0] = Default::default();
                (0..calls).for_each(|_| run.latency[0].add(1));
                run.workload.calls = [calls - writes, writes, 0];
                run.workload.bytes = [4_096 * calls, 0, 0];
            }
        })
    };
    for (elapsed, calls, writes, expected) in [
        ([1e9, 1e9], 500, 0, Basis::Call),
        ([1e9, 1.052e9], 500, 0, Basis::Call),
        ([1e9, 1.054e9], 500, 0, Basis::Run),
        ([0.91e9, 0.91e9], 500, 0, Basis::Call),
        ([0.89e9, 0.89e9], 500, 0, Basis::Run),
        // As much work in the same time is one run like the other.
        ([1e9, 1e9], 1_000, 0, Basis::Run),
        ([1e9, 1e9], 899, 0, Basis::Call),
        ([1e9, 1e9], 901, 0, Basis::Run),
        ([1e9, 1e9], 500, 50, Basis::Call),
        ([1e9, 1e9], 500, 51, Basis::Run),
    ] {
        assert_eq!(ended(elapsed, calls, writes), expected, "{elapsed:?} {calls} {writes}");
    }
}

#[test]
fn requests_are_compared_without_calls_if_there_are_some_of_one_kind() {
    let requests = |issued: [u64; 2], sectors: u64| {
        basis_of(|fast, slow| {
            for run in [&mut *fast, &mut *slow] {
                run.latency[0] = Default::default();
                run.commands.issued = [100, 0];
                run.commands.sectors = [800, 0];
            }
            slow.commands.issued = issued;
            slow.commands.sectors = [sectors, 0];
        })
    };
    for (issued, sectors, expected) in [
        ([100, 0], 800, Basis::Request),
        ([20, 0], 160, Basis::Request),
        ([19, 0], 152, Basis::Nothing),
        ([90, 10], 800, Basis::Request),
        ([89, 11], 800, Basis::Nothing),
        ([100, 0], 888, Basis::Request),
        ([100, 0], 889, Basis::Nothing),
    ] {
        assert_eq!(requests(issued, sectors), expected, "{issued:?} {sectors}");
    }
}

#[test]
fn times_are_for_as_much_work() {
    let delta = |basis: Basis| {
        let (fast, slow) = (Box::leak(Box::new(side(&[100.0]))), Box::leak(Box::new(side(&[200.0]))));
        for (side, requests) in [(&mut *fast, 4), (&mut *slow, 8)] {
            side.runs[0].commands.issued = [requests, 0];
            side.runs[0].time.slots = 2;
        }
        fast.runs[0].workload.bytes[0] = 81_920;
        let mut delta = Delta::of_roles(fast, slow, false);
        delta.basis = basis;
        delta
    };
    let per = |basis| delta(basis).of_work(|digest| digest.elapsed.0 as f64);
    assert_eq!(per(Basis::Call), Contrast { apart: true, ..Contrast::of_means(100.0, 200.0) });
    assert_eq!(per(Basis::Run), Contrast { apart: true, ..Contrast::of_means(100.0, 200.0) });
    assert_eq!(per(Basis::Bytes), Contrast { apart: true, ..Contrast::of_means(50.0, 200.0) });
    assert_eq!(per(Basis::Request), Contrast { apart: false, ..Contrast::of_means(250.0, 250.0) });
    assert_eq!(delta(Basis::Run).time_ns(), [1_000.0, 2_000.0]);
    assert_eq!(delta(Basis::Bytes).time_ns(), [50.0, 200.0]);
    assert_eq!(delta(Basis::Call).change_pct(), 100.0);
    assert_eq!(delta(Basis::Run).slower_by(), 100.0);
    assert_eq!(delta(Basis::Call).apart(), 2.0);
}
