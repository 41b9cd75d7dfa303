//! The modes within one set of runs, as two sides: the runs of the fast mode, and those of the slow one.
//!
//! The runs are grouped by their time for an operation ([`stats::modes`](iowhy_stats::modes)): first by the plain rule
//! for simulated runs, which repeat to the last digit, then by the test for measured ones. Of more than two modes the
//! fastest and the slowest are explained. A set of one mode is set against itself, which leaves nothing to explain.
//!
//! Known limit: fewer than eight runs have one mode in any case. Modes cannot be reproduced at will, so findings are
//! not proved by switching; the same cause between two sets of runs can be proved.

use super::gathered::Gathered;
use iowhy_stats::modes;
use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_trace::settings::Settings;
use iowhy_why::Side;
use iowhy_why::delta::time_per_operation;

/// Runs that there have to be at least.
const LEAST: usize = 2;
/// Chance of reporting modes where there is one.
const ALPHA: f64 = 0.01;

/// Of a recording of a running kernel that stands alone.
const ALONE: &str = "is a single recording: it shows what happened, and not what changed";

/// Whether it stopped at a recording that stands alone: not a mistake, but no answer is possible yet.
pub fn is_alone(problems: &Problems) -> bool {
    problems.list.iter().all(|problem| problem.message.ends_with(ALONE))
}

/// Advice for a recording that stands alone: how another one is made, and how both are compared.
fn record_twice(label: &str, settings: &Settings) -> String {
    let again = match settings.get("command", "words") {
        Some(words) => format!("-o other.parquet -- {words}"),
        None => "--for 10s --comm NAME -o other.parquet".to_owned(),
    };
    format!(
        "record twice, once while it is fast and once while it is slow:\n      iowhy trace record {again}\n      \
         iowhy explain other.parquet {label}\n    `iowhy trace stat {label}` counts what this one has"
    )
}

/// Both modes of a set of runs, the fast one first, or the set twice if it has one mode.
///
/// # Errors
/// If there is one run only: it has nothing to be set against.
pub fn split(all: Gathered) -> Result<[Gathered; 2], Problem> {
    let runs = &all.side.runs;
    if runs.len() < LEAST {
        if all.side.live {
            let label = &all.side.label;
            let settings = all.side.settings.first().cloned().unwrap_or_default();
            return Err(Problem::error(format!("`{label}` {ALONE}")).help(record_twice(label, &settings)));
        }
        let text = format!("`{}` is a single run, and has nothing to be set against", all.side.label);
        let help = "record twice, fast and slow, and name both: `iowhy explain FAST SLOW`; or name a set of several \
                    runs, of which the modes are explained";
        return Err(Problem::error(text).at(Span::whole(&all.side.label)).help(help));
    }
    let times: Vec<f64> = runs.iter().map(time_per_operation).collect();
    let found = modes::two(&times).map_or_else(|| modes::find(&times, ALPHA), Vec::from);
    let [fast, .., slow] = found.as_slice() else { return Ok([all.clone(), all]) };
    let part = |mode: &modes::Mode, word: &str| {
        let label = format!("{}, {word} mode", all.side.label);
        let runs = mode.members.iter().map(|nr| runs[*nr].clone()).collect();
        let seen = mode.members.iter().filter_map(|nr| all.seen.get(*nr).cloned()).collect();
        let side = Side { label, runs, ..all.side.clone() };
        Gathered { side, seen, row: all.row.clone(), ..Gathered::default() }
    };
    Ok([part(fast, "fast"), part(slow, "slow")])
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Nanos;

    use super::*;
    use iowhy_why::digest::Digest;

    fn set(times: &[u64]) -> Gathered {
        let run = |time: &u64| Digest { elapsed: Nanos(*time), ..Digest::default() };
        let side = Side { label: "set".to_owned(), runs: times.iter().map(run).collect(), ..Side::default() };
        Gathered { side, command: Some("run dd".to_owned()), ..Gathered::default() }
    }

    fn times(side: &Gathered) -> Vec<u64> {
        side.side.runs.iter().map(|run| run.elapsed.0).collect()
    }

    #[test]
    fn runs_are_told_apart_by_their_modes() {
        let mixed = [1000, 1500, 1001, 1002, 1501, 999, 1003, 1499, 998, 1502];
        let [fast, slow] = split(set(&mixed)).expect("there are runs");
        assert_eq!(times(&fast), [1000, 1001, 1002, 999, 1003, 998]);
        assert_eq!(times(&slow), [1500, 1501, 1499, 1502]);
        assert_eq!([fast.side.label, slow.side.label], ["set, fast mode", "set, slow mode"]);
        assert_eq!(slow.command, None, "what makes a set does not make one of its modes");
        // Three modes: the outer ones.
        let three: Vec<u64> = (0..30).map(|nr| [1000, 2000, 4000][nr % 3] + nr as u64).collect();
        let [fast, slow] = split(set(&three)).expect("there are runs");
        assert!(times(&fast).iter().all(|time| *time < 1100) && times(&slow).iter().all(|time| *time >= 4000));
    }

    #[test]
    fn one_mode_is_set_against_itself_and_one_run_is_refused() {
        for one in [&[1000, 1003, 1001, 999, 1002, 998, 1004, 997, 1005, 996][..], &[1000; 12], &[1000, 2000]] {
            let [a, b] = split(set(one)).expect("there are runs");
            assert_eq!((times(&a), &a.side.label), (one.to_vec(), &b.side.label));
            assert_eq!(times(&b), one);
        }
        for few in [&[][..], &[7]] {
            let problem = split(set(few)).expect_err("nothing to compare");
            assert!(problem.message.contains("single run") && !is_alone(&Problems { list: vec![problem] }));
        }
    }

    #[test]
    fn a_recording_alone_is_answered_with_the_commands_to_type() {
        let words = (("command".to_owned(), "words".to_owned()), "dd if=big of=/dev/null".to_owned());
        let of_command = Settings { values: [words].into(), ..Settings::default() };
        for (settings, line) in [
            (of_command, "iowhy trace record -o other.parquet -- dd if=big of=/dev/null\n"),
            (Settings::default(), "iowhy trace record --for 10s --comm NAME -o other.parquet\n"),
        ] {
            let mut one = set(&[7]);
            (one.side.live, one.side.settings) = (true, vec![settings]);
            let problem = split(one).expect_err("nothing to compare");
            let text = problem.render();
            assert!(text.contains(line) && text.contains("iowhy explain other.parquet set\n"), "{text}");
            assert!(is_alone(&Problems { list: vec![problem] }));
        }
    }
}
