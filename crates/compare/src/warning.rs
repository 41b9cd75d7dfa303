//! Warnings of a comparison: a closed list, each with what to do next.

use iowhy_text::shown;

#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// No values on one side or both.
    NoSamples,
    /// One value on a side has no spread.
    OneSample,
    /// Too few values for any test to be certain enough at the level.
    TooFew {
        /// Values of each side it takes at least.
        least: usize,
    },
    /// Values that were not finite were left out.
    LeftOut {
        /// How many, on both sides.
        values: usize,
    },
    /// All values of both sides are equal, or all of each side.
    Constant,
    /// Values repeat because they were rounded, or counted.
    Quantised {
        /// Different values of both sides.
        distinct: usize,
    },
    /// Zero or negative values: changes in percent are of the median, and not a ratio.
    NotPositive,
    /// Neighbouring values resemble each other, and say less than as many independent ones.
    Autocorrelated {
        /// Lag-1 correlation.
        lag1: f64,
        /// As many independent values say as much, of the smaller side.
        effective: f64,
    },
    /// Neighbouring values depend too strongly on each other for any test.
    TooDependent {
        /// Lag-1 correlation.
        lag1: f64,
    },
    /// Values rise or fall with time.
    Drift {
        /// Which side: its label.
        side: String,
        /// From the first to the last, in percent of the median.
        change_pct: f64,
    },
    /// The first values are unlike the others.
    WarmUp {
        /// Which side.
        side: String,
        /// How many.
        values: usize,
    },
    /// One side has modes: its mean describes none.
    Modes {
        /// Which side.
        side: String,
        /// How many.
        modes: usize,
    },
    /// The order of the values is unknown, and these allow for some dependence.
    Allowed {
        /// How much larger the variance was taken to be.
        inflation: f64,
    },
    /// The order of the values is unknown, and they are too few to show dependence.
    FewUnordered,
    /// The sides were made one after the other, so that whatever changed with time is in the difference.
    NotInterleaved,
    /// The sides come from different machines.
    OtherMachine,
    /// The sides ran different jobs.
    OtherJob,
    /// A metric that only one side has.
    OnlyOneSide {
        /// Which side has it.
        side: String,
        metric: String,
    },
    /// Runs warned of something themselves.
    RunsWarned {
        /// The first of them.
        text: String,
        /// How many runs.
        runs: usize,
    },
    /// The spread of one side is much larger.
    UnequalSpread {
        /// Deviation of the larger over the smaller.
        ratio: f64,
    },
    /// This machine's calibration shows false alarms.
    NoisyMachine {
        /// Share of false alarms of its own calibration, percent.
        false_alarms_pct: f64,
    },
    /// Simulated runs that differ in nothing but the seed, and the seed changes nothing.
    SameEvents,
}

/// A warning's name, its condition, and the advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The word for programs.
    pub word: &'static str,
    /// When it is given.
    pub when: &'static str,
    /// The advice.
    pub next: &'static str,
}

/// Every kind of warning.
pub const KINDS: &[Kind] = &[
    Kind {
        word: "no-samples",
        when: "one side or both have no values",
        next: "run the job, or look whether the file holds the metric under another name",
    },
    Kind {
        word: "one-sample",
        when: "a side has one value, which says nothing of its spread",
        next: "repeat both sides: `iowhy run JOB --on A --on B --repeat 10`",
    },
    Kind {
        word: "too-few",
        when: "too few values for any test to be certain enough at the level of the table",
        next: "repeat both sides until each has that many values, or accept a larger --alpha",
    },
    Kind {
        word: "left-out",
        when: "values that are not finite (NaN, inf) were left out",
        next: "find out why the runs measured none: they are missing on one side only if the failure is the news",
    },
    Kind {
        word: "constant",
        when: "all values of both sides are equal, or all of each side",
        next: "look whether the figure was measured at all; more runs of something constant show nothing new",
    },
    Kind {
        word: "quantised",
        when: "values repeat because they were rounded, or counted",
        next: "record the metric with more digits, or make the job longer",
    },
    Kind {
        word: "not-positive",
        when: "there are zero or negative values, of which no ratio can be made",
        next: "read the medians next to the percentage; compare a metric that is above zero",
    },
    Kind {
        word: "autocorrelated",
        when: "neighbouring values resemble each other, and say less than as many independent ones",
        next: "make more runs, let time pass between them, or compare one value for each run",
    },
    Kind {
        word: "too-dependent",
        when: "neighbouring values depend too strongly on each other for any test",
        next: "compare one value for each run: `iowhy run --repeat N` makes independent ones",
    },
    Kind {
        word: "order-unknown",
        when: "the order in which values were taken is not known, and they may depend on one another a little",
        next: "--order random if they were taken in random order, or cannot influence one another: then less is missed",
    },
    Kind {
        word: "few-unordered",
        when: "fewer than 12 values a side do not show whether they depend on one another; the level holds if not",
        next: "--order serial if one run can influence the next, --order random if not; or 12 runs a side",
    },
    Kind {
        word: "drift",
        when: "values of a side rise or fall with time",
        next: "run A and B alternately in one command, and wait until temperature and free space no longer change",
    },
    Kind {
        word: "warm-up",
        when: "the first values of a side are unlike the others",
        next: "let the job warm up before it measures (fio: ramp_time), or leave the first runs out",
    },
    Kind {
        word: "modes",
        when: "values of a side fall into groups; their mean describes none",
        next: "compare the shares of the modes, and find the switch between them: `iowhy run --json` shows each run",
    },
    Kind {
        word: "not-interleaved",
        when: "the sides were made one after the other, so that whatever changed with time is in the difference",
        next: "run both sides in one command: `iowhy run JOB --on A --on B --repeat N` alternates them at random",
    },
    Kind {
        word: "other-machine",
        when: "the sides come from different machines",
        next: "repeat the base on the machine of the candidate",
    },
    Kind {
        word: "other-job",
        when: "the sides ran different jobs",
        next: "run one job on both sides, or compare only metrics that both measure in the same way",
    },
    Kind {
        word: "only-one-side",
        when: "a metric is there on one side only",
        next: "look at the names of both sides with --all-metrics; a job that failed has no metrics",
    },
    Kind {
        word: "runs-warned",
        when: "runs warned of something themselves",
        next: "look at them: `iowhy store show RUN`",
    },
    Kind {
        word: "unequal-spread",
        when: "the spread of one side is much larger",
        next: "look for a disturbance of that side only; a change of the spread can be the regression itself",
    },
    Kind {
        word: "noisy-machine",
        when: "this machine raised more false alarms in its own calibration than were asked for",
        next: "run `iowhy doctor`, then `iowhy calibrate` again; until then trust large changes only",
    },
    Kind {
        word: "same-events",
        when: "simulated runs differ in nothing but the seed, and the seed changes nothing",
        next: "one run says it all; vary the job or the stack to learn how much the figure depends on them",
    },
];

impl Warning {
    pub fn kind(&self) -> &'static Kind {
        let word = match self {
            Warning::NoSamples => "no-samples",
            Warning::OneSample => "one-sample",
            Warning::TooFew { .. } => "too-few",
            Warning::LeftOut { .. } => "left-out",
            Warning::Constant => "constant",
            Warning::Quantised { .. } => "quantised",
            Warning::NotPositive => "not-positive",
            Warning::Autocorrelated { .. } => "autocorrelated",
            Warning::TooDependent { .. } => "too-dependent",
            Warning::Allowed { .. } => "order-unknown",
            Warning::FewUnordered => "few-unordered",
            Warning::Drift { .. } => "drift",
            Warning::WarmUp { .. } => "warm-up",
            Warning::Modes { .. } => "modes",
            Warning::NotInterleaved => "not-interleaved",
            Warning::OtherMachine => "other-machine",
            Warning::OtherJob => "other-job",
            Warning::OnlyOneSide { .. } => "only-one-side",
            Warning::RunsWarned { .. } => "runs-warned",
            Warning::UnequalSpread { .. } => "unequal-spread",
            Warning::NoisyMachine { .. } => "noisy-machine",
            Warning::SameEvents => "same-events",
        };
        KINDS.iter().find(|kind| kind.word == word).expect("the table has every kind; a test holds it to that")
    }

    /// The warning with its figures, one sentence. Names in it are fit to be shown.
    pub fn text(&self) -> String {
        match self {
            Warning::TooFew { least } => {
                format!("too few values for any test to be certain; it takes {least} of each side")
            }
            Warning::LeftOut { values } => match values {
                1 => "1 value is not finite and was left out".to_owned(),
                values => format!("{values} values are not finite and were left out"),
            },
            Warning::Quantised { distinct } => {
                format!(
                    "values repeat: both sides have {distinct} different ones, because they were rounded or counted"
                )
            }
            Warning::Autocorrelated { lag1, effective } => format!(
                "neighbouring values resemble each other (correlation {lag1:.2}): they say as much as {effective:.0} \
                 independent ones"
            ),
            Warning::TooDependent { lag1 } => {
                format!("neighbouring values depend too strongly on each other (correlation {lag1:.2}) for any test")
            }
            Warning::Drift { side, change_pct } => {
                format!("values of {} change by {change_pct:+.1} % from the first to the last", name(side))
            }
            Warning::WarmUp { side, values } => match values {
                1 => format!("the first value of {} is unlike the others", name(side)),
                values => format!("the first {values} values of {} are unlike the others", name(side)),
            },
            Warning::Modes { side, modes } => {
                format!("values of {} fall into {modes} groups; their mean describes none", name(side))
            }
            Warning::OnlyOneSide { side, metric } => format!("only {} has {}", name(side), name(metric)),
            Warning::RunsWarned { text, runs } => match runs {
                1 => format!("a run warned: {}", shown(text, LONGEST_TEXT)),
                runs => format!("{runs} runs warned, the first of them: {}", shown(text, LONGEST_TEXT)),
            },
            Warning::UnequalSpread { ratio } => format!("the spread of one side is {ratio:.1} times that of the other"),
            Warning::NoisyMachine { false_alarms_pct } => {
                format!("{false_alarms_pct:.1} % of comparisons of equal things on this machine raised an alarm")
            }
            Warning::Allowed { inflation } => format!(
                "the order in which values were taken is not known: p and interval allow for dependence (variance \
                 x{inflation:.2})"
            ),
            Warning::NoSamples
            | Warning::OneSample
            | Warning::FewUnordered
            | Warning::Constant
            | Warning::NotPositive
            | Warning::NotInterleaved
            | Warning::OtherMachine
            | Warning::OtherJob
            | Warning::SameEvents => self.kind().when.to_owned(),
        }
    }
}

/// A warning of a run may have any length.
const LONGEST_TEXT: usize = 200;

fn name(label: &str) -> String {
    format!("`{}`", shown(label, 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each variant.
    fn all() -> Vec<Warning> {
        let side = "new\u{1b}[31m\u{202e}".to_owned();
        vec![
            Warning::NoSamples,
            Warning::OneSample,
            Warning::TooFew { least: 5 },
            Warning::LeftOut { values: 1 },
            Warning::Constant,
            Warning::Quantised { distinct: 3 },
            Warning::NotPositive,
            Warning::Autocorrelated { lag1: 0.5, effective: 7.2 },
            Warning::TooDependent { lag1: 0.99 },
            Warning::Allowed { inflation: 1.25 },
            Warning::FewUnordered,
            Warning::Drift { side: side.clone(), change_pct: -3.25 },
            Warning::WarmUp { side: side.clone(), values: 2 },
            Warning::Modes { side: side.clone(), modes: 2 },
            Warning::NotInterleaved,
            Warning::OtherMachine,
            Warning::OtherJob,
            Warning::OnlyOneSide { side: side.clone(), metric: "x\n".repeat(5_000) },
            Warning::RunsWarned { text: side, runs: 2 },
            Warning::UnequalSpread { ratio: 8.0 },
            Warning::NoisyMachine { false_alarms_pct: 12.0 },
            Warning::SameEvents,
        ]
    }

    #[test]
    fn each_kind_is_in_the_table_once_and_says_what_to_do() {
        let words: Vec<&str> = all().iter().map(|warning| warning.kind().word).collect();
        assert_eq!(words, KINDS.iter().map(|kind| kind.word).collect::<Vec<_>>());
        for kind in KINDS {
            assert!(kind.next.split_whitespace().count() >= 5, "{}", kind.word);
        }
    }

    #[test]
    fn no_warning_lets_a_label_write_to_the_terminal() {
        for warning in all() {
            let text = warning.text();
            assert!(text.chars().count() < 300, "{text}");
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    }
}
