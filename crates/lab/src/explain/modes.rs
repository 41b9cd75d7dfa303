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
use iowhy_text::diagnose::{Problem, Span};
use iowhy_why::Side;
use iowhy_why::delta::time_per_operation;

/// Runs that there have to be at least.
const LEAST: usize = 2;
/// Chance of reporting modes where there is one.
const ALPHA: f64 = 0.01;

/// Both modes of a set of runs, the fast one first, or the set twice if it has one mode.
///
/// # Errors
/// If there is one run only: it has nothing to be set against.
pub fn split(all: Gathered) -> Result<[Gathered; 2], Problem> {
    let runs = &all.side.runs;
    if runs.len() < LEAST {
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
            assert!(split(set(few)).expect_err("nothing to compare").message.contains("single run"));
        }
    }
}
