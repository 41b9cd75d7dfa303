//! Command lines as plans: every row of an incident can be typed after `iowhy`.

use iowhy_stack::outcome::Plan;
use iowhy_stack::workload::PositionSource;

use crate::sysbench::{self, Request};
use iowhy_text::diagnose::{Problem, Problems};

/// Verbs that describe a run.
const VERBS: &[&str] = &["sysbench", "run"];

/// The plan that a command line stands for. Its first word is a verb of `iowhy`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn plan_of_command(words: &[String]) -> Result<Plan, Problems> {
    let mut problems = Problems::default();
    let (verb, arguments) = words.split_first().map_or(("", &[][..]), |(verb, rest)| (verb.as_str(), rest));
    let plan = match verb {
        "sysbench" => match sysbench::resolve(arguments, &mut problems) {
            Some(Request::Run(run)) => Some(run.0),
            _ => None,
        },
        "run" => crate::run::plan(arguments, &mut problems).map(|(plan, _)| plan),
        _ => None,
    };
    plan.ok_or_else(|| {
        if problems.list.is_empty() {
            problems.push(Problem::error(format!("`{}` describes no run", words.join(" "))).near(verb, VERBS));
        }
        problems
    })
}

/// The plan of one repetition: the first one of sysbench has the positions that the program saw, all others are seeded.
/// Other jobs have the seed of their command line first, and then the ones behind it.
pub fn repetition(plan: &Plan, sequence: u32) -> Plan {
    let mut plan = plan.clone();
    let first = if plan.job.fileio().is_some() { 1 } else { plan.job.seed };
    let seed = first + u64::from(sequence);
    plan.job.seed = seed;
    if let Some(fileio) = plan.job.fileio_mut() {
        fileio.positions = if sequence == 0 { PositionSource::GlibcUnseeded } else { PositionSource::Seeded(seed) };
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_command_is_a_run_or_says_why_not() {
        let run = "sysbench fileio --file-test-mode=rndrd --on sim:linux-6.18 run";
        assert!(plan_of_command(&words(run)).is_ok());
        for (line, expected) in [
            ("", "describes no run"),
            ("sysbnch fileio run", "nearest: sysbench"),
            ("sysbench fileio help", "describes no run"),
            ("sysbench fileio --file-test-mode=rndrd --threats=3 run", "threats"),
        ] {
            let problems = plan_of_command(&words(line)).expect_err(line).render();
            assert!(problems.contains(expected), "{line}: {problems}");
        }
    }

    #[test]
    fn the_first_repetition_is_what_the_program_saw() {
        let plan =
            plan_of_command(&words("sysbench fileio --file-test-mode=rndrd --on sim:linux-6.18 run")).expect("a plan");
        let positions = |sequence: u32| repetition(&plan, sequence).job.fileio().map(|fileio| fileio.positions);
        assert_eq!(positions(0), Some(PositionSource::GlibcUnseeded));
        assert_eq!(positions(2), Some(PositionSource::Seeded(3)));
        assert_ne!(repetition(&plan, 1).job.seed, repetition(&plan, 2).job.seed);
    }
}
