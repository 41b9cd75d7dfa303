//! The rule of a gate: how much worse a candidate may be.
//!
//! The interval of the change decides, seen so that positive is worse. A metric fails if it is surely worse than the
//! allowance: the comparison calls it a regression (over all rows of the table) and the whole interval lies beyond the
//! allowance. It passes if it is surely not: the whole interval lies within. Everything else is open, and so is
//! every metric whose samples allow no test. A gate fails if one metric fails; it passes if all do.

use super::warning::Warning;
use super::{Comparison, Row, Verdict};
use iowhy_stats::Better;

/// A gate's decision on a metric, or on all.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Surely not worse than allowed.
    Pass,
    /// Surely worse than allowed.
    Fail,
    /// The samples do not say.
    Open,
}

impl Outcome {
    /// As JSON and tables have it.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Open => "inconclusive",
        }
    }
}

/// The rule, for help and for what comes out.
pub const RULE: &str = "fails if a regression beyond the allowance is certain (the whole interval lies beyond it), \
    passes if one is certainly not there (the whole interval lies within it), and is inconclusive otherwise";

/// A gate's decision on a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Allowed change for the worse, percent; none if the verdicts of the comparison decide.
    pub allowance_pct: Option<f64>,
    /// One for each row.
    pub outcomes: Vec<Outcome>,
    /// Of all.
    pub outcome: Outcome,
}

/// The interval of a row's change for the worse, percent: its near and its far end.
pub fn worse_pct(row: &Row) -> (f64, f64) {
    match row.metric.better {
        Better::Lower => row.ci_pct,
        Better::Higher => (-row.ci_pct.1, -row.ci_pct.0),
    }
}

/// Judges a table by how much worse it may be.
pub fn by_allowance(comparison: &Comparison, allowance_pct: f64) -> Gate {
    let outcomes: Vec<Outcome> = comparison.rows.iter().map(|row| judge(row, allowance_pct)).collect();
    Gate { allowance_pct: Some(allowance_pct), outcome: all(&outcomes), outcomes }
}

/// Judges a table by the verdicts of its rows.
pub fn by_verdict(comparison: &Comparison) -> Gate {
    let of = |verdict: Verdict| match verdict {
        Verdict::Regression => Outcome::Fail,
        Verdict::Inconclusive => Outcome::Open,
        Verdict::Same | Verdict::Improvement => Outcome::Pass,
    };
    let outcomes = comparison.rows.iter().map(|row| of(row.verdict)).collect();
    Gate { allowance_pct: None, outcomes, outcome: of(comparison.verdict) }
}

fn judge(row: &Row, allowance_pct: f64) -> Outcome {
    let untested = |warning: &Warning| {
        matches!(
            warning,
            Warning::NoSamples | Warning::OneSample | Warning::TooFew { .. } | Warning::TooDependent { .. }
        )
    };
    let (near, far) = worse_pct(row);
    // Equal medians leave no change that could exceed a limit, whatever the samples are.
    if row.verdict == Verdict::Same && far <= allowance_pct {
        return Outcome::Pass;
    }
    if row.warnings.iter().any(untested) {
        return Outcome::Open;
    }
    if row.verdict == Verdict::Regression && near > allowance_pct {
        Outcome::Fail
    } else if far <= allowance_pct {
        Outcome::Pass
    } else {
        Outcome::Open
    }
}

/// Nothing compared is nothing known.
fn all(outcomes: &[Outcome]) -> Outcome {
    if outcomes.contains(&Outcome::Fail) {
        Outcome::Fail
    } else if outcomes.is_empty() || outcomes.contains(&Outcome::Open) {
        Outcome::Open
    } else {
        Outcome::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::row;

    #[test]
    fn certainty_on_either_side_decides_and_nothing_else() {
        use Better::{Higher, Lower};
        use Outcome::{Fail, Open, Pass};
        use Verdict::{Improvement, Inconclusive, Regression, Same};
        let infinite = (f64::NEG_INFINITY, f64::INFINITY);
        let table = [
            ("surely beyond", Lower, (6.0, 9.0), Regression, Fail),
            ("worse, but perhaps within", Lower, (4.0, 9.0), Regression, Open),
            ("worse, and surely within", Lower, (2.0, 4.9), Regression, Pass),
            ("a rate that falls", Higher, (-9.0, -6.0), Regression, Fail),
            ("a rate that rises", Higher, (6.0, 9.0), Improvement, Pass),
            ("better", Lower, (-9.0, -6.0), Improvement, Pass),
            ("same", Lower, (-0.5, 0.5), Same, Pass),
            ("too wide to say", Lower, (-9.0, 9.0), Inconclusive, Open),
            ("no difference shown, and surely within", Lower, (-2.0, 3.0), Inconclusive, Pass),
            ("beyond in its own row, not over all rows", Lower, (6.0, 9.0), Inconclusive, Open),
            ("nothing bounded", Lower, infinite, Inconclusive, Open),
            ("no number", Lower, (f64::NAN, f64::NAN), Inconclusive, Open),
        ];
        for (name, better, ci, verdict, expected) in table {
            assert_eq!(judge(&row(better, ci, verdict), 5.0), expected, "{name}");
        }
    }

    #[test]
    fn samples_that_allow_no_test_pass_nothing() {
        for warning in
            [Warning::NoSamples, Warning::OneSample, Warning::TooFew { least: 6 }, Warning::TooDependent { lag1: 1.0 }]
        {
            let mut row = row(Better::Lower, (-1.0, 1.0), Verdict::Inconclusive);
            row.warnings.push(warning);
            assert_eq!(judge(&row, 5.0), Outcome::Open);
        }
    }

    #[test]
    fn one_failure_fails_and_nothing_is_no_pass() {
        use Outcome::{Fail, Open, Pass};
        for (outcomes, expected) in
            [(&[][..], Open), (&[Pass, Pass], Pass), (&[Pass, Open], Open), (&[Open, Fail, Pass], Fail)]
        {
            assert_eq!(all(outcomes), expected, "{outcomes:?}");
        }
    }
}
