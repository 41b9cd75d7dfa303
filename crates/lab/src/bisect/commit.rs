//! One commit of a bisection: is it like the good one or like the bad one?
//!
//! ```text
//! references values measured at a good commit and at a bad one, kept in a file; or two numbers
//! border      the value that separates both references best (Kolmogorov and Smirnov's place of the largest distance)
//! sign        each new value is on the good or on the bad side of the border
//! test        sequential: values are taken until one of two likelihood ratios reaches 1 / error
//! ```
//! With `g` and `b` the shares of values on the bad side at the good and the bad commit and `m = (g + b) / 2`, the
//! ratios are those of `b` against `m` and of `g` against `m`. If the true share is at most `m`, the first is a
//! supermartingale, and by Ville's inequality it ever reaches `1 / error` with a probability of at most `error`,
//! however often one looks; the other way round for the second. Nothing is assumed of the distribution of the noise:
//! outliers count as one sign like any other, and a change that strikes only some runs has a share like any other.
//! References that hardly differ are refused. Literature: A. Wald, Sequential Tests of Statistical Hypotheses, 1945;
//! J. Ville, 1939. Known limits: values are taken to be independent of one another, and the machine to be the one
//! that it was when the references were measured; a commit whose share is near `m` takes the whole budget and is
//! skipped. A share of the references is accurate to about half a value, which `m` in the middle allows for.

use iowhy_stats::Better;
use serde_json::{Value, json};

use super::Verdict;

/// Shares nearer to 0 or 1 than this are taken as this: no reference has enough values to know better.
const EDGE: f64 = 0.05;
/// Least distance of the shares of both references.
const LEAST_DISTANCE: f64 = 0.5;
/// Least number of values of a measured reference.
pub const LEAST_VALUES: usize = 5;

/// Values measured at the good and the bad commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// Values of the good one.
    pub good: Vec<f64>,
    /// Values of the bad one.
    pub bad: Vec<f64>,
}

impl References {
    /// Reads what [`References::json`] has written.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn parse(text: &str) -> Result<References, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if value["schema"] != "iowhy.bisect-references/1" {
            return Err("it is not a file of references".to_owned());
        }
        let side = |name: &str| -> Result<Vec<f64>, String> {
            let values = value[name].as_array().ok_or_else(|| format!("no values for `{name}`"))?;
            let number = |value: &Value| value.as_f64().filter(|value| value.is_finite());
            values.iter().map(number).collect::<Option<_>>().ok_or_else(|| {
                format!(
                    "`{name}` has a value that is not a \
                number"
                )
            })
        };
        Ok(References { good: side("good")?, bad: side("bad")? })
    }

    /// For the file.
    pub fn json(&self) -> Value {
        json!({ "schema": "iowhy.bisect-references/1", "good": self.good, "bad": self.bad })
    }
}

/// A border between values, and what shares of the references are on its bad side.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Border {
    /// Where it is.
    pub at: f64,
    /// Bad values are larger.
    pub bad_is_larger: bool,
    /// Share of the good reference on the bad side.
    pub good: f64,
    /// Share of the bad reference there.
    pub bad: f64,
}

impl Border {
    /// Between two groups of values.
    ///
    /// # Errors
    /// If there are too few of them, or if they do not separate the commits.
    pub fn between(references: &References) -> Result<Border, String> {
        let References { good, bad } = references;
        for (name, values) in [("good", good), ("bad", bad)] {
            if values.len() < LEAST_VALUES {
                return Err(format!(
                    "{} values of the {name} commit are known, and {LEAST_VALUES} are needed: --learn {name}",
                    values.len()
                ));
            }
        }
        let mut all: Vec<f64> = good.iter().chain(bad).copied().collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let above = |values: &[f64], at: f64| values.iter().filter(|value| **value > at).count() as f64;
        let share = |values: &[f64], at: f64| above(values, at) / values.len() as f64;
        let distance = |at: f64| share(bad, at) - share(good, at);
        // Of several borders that are equally good the middle one is farthest from both.
        let borders: Vec<f64> = all.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2.0).collect();
        let best = borders.iter().map(|at| distance(*at).abs()).fold(0.0, f64::max);
        let equal: Vec<f64> = borders.into_iter().filter(|at| distance(*at).abs() >= best).collect();
        let Some(at) = equal.get(equal.len() / 2).copied().filter(|_| best >= LEAST_DISTANCE) else {
            return Err(format!(
                "the good and the bad commit look alike: no border has more than {:.0} % more values of one on its \
                 side",
                100.0 * best
            ));
        };
        let bad_is_larger = distance(at) > 0.0;
        let on_bad_side = |values: &[f64]| if bad_is_larger { share(values, at) } else { 1.0 - share(values, at) };
        Ok(Border {
            at,
            bad_is_larger,
            good: on_bad_side(good).clamp(EDGE, 1.0 - EDGE),
            bad: on_bad_side(bad).clamp(EDGE, 1.0 - EDGE),
        })
    }

    /// Half-way between two numbers.
    ///
    /// # Errors
    /// If they are equal or no numbers.
    pub fn of_values(good: f64, bad: f64) -> Result<Border, String> {
        if !good.is_finite() || !bad.is_finite() || good == bad {
            return Err("the good and the bad value must be two different numbers".to_owned());
        }
        Ok(Border { at: good + (bad - good) / 2.0, bad_is_larger: bad > good, good: EDGE, bad: 1.0 - EDGE })
    }

    /// Fails if bad values are the better ones of a metric whose better direction is known.
    ///
    /// # Errors
    /// What to do instead.
    pub fn directed(self, name: &str, better: Option<Better>) -> Result<Border, String> {
        let wrong = better.is_some_and(|better| (better == Better::Higher) == self.bad_is_larger);
        if wrong {
            let direction = if self.bad_is_larger { "higher" } else { "lower" };
            return Err(format!(
                "the bad commit is better, not worse: its {name} is {direction}; swap good and bad, or learn them again"
            ));
        }
        Ok(self)
    }

    fn is_bad(&self, value: f64) -> bool {
        if self.bad_is_larger { value > self.at } else { value < self.at }
    }
}

/// The sequential test of one commit.
#[derive(Clone, Debug)]
pub struct Sequential {
    border: Border,
    error: f64,
    /// Logarithms of the two likelihood ratios: bad and good against the middle.
    ratios: [f64; 2],
    /// Values so far, and how many of them are on the bad side.
    pub taken: [usize; 2],
}

impl Sequential {
    /// A test that errs with a probability of `error` at most.
    ///
    /// # Panics
    /// If `error` is not between 0 and 1.
    pub fn new(border: Border, error: f64) -> Sequential {
        assert!(error > 0.0 && error < 1.0, "an error of {error}");
        Sequential { border, error, ratios: [0.0; 2], taken: [0; 2] }
    }

    /// Takes a value; yields the verdict if there is one now.
    pub fn take(&mut self, value: f64) -> Option<Verdict> {
        let Border { good, bad, .. } = self.border;
        let middle = (good + bad) / 2.0;
        let is_bad = self.border.is_bad(value);
        self.taken[0] += 1;
        self.taken[1] += usize::from(is_bad);
        for (ratio, share) in self.ratios.iter_mut().zip([bad, good]) {
            *ratio += if is_bad { (share / middle).ln() } else { ((1.0 - share) / (1.0 - middle)).ln() };
        }
        let enough = -self.error.ln();
        match self.ratios {
            [bad, _] if bad >= enough => Some(Verdict::Bad),
            [_, good] if good >= enough => Some(Verdict::Good),
            _ => None,
        }
    }

    /// Values that are needed if all fall on one side.
    pub fn least_values(border: Border, error: f64) -> usize {
        let count = |value: f64| {
            let mut test = Sequential::new(border, error);
            (1..=10_000).find(|_| test.take(value).is_some()).unwrap_or(usize::MAX)
        };
        let step = border.at.abs().max(1.0);
        count(border.at - step).max(count(border.at + step))
    }
}

/// The number that a command has printed: the last line with anything on it is one, or, with a name, the value of this
/// name in its JSON (the first one, whichever object it is in).
///
/// # Errors
/// If there is none.
pub fn number(output: &str, metric: Option<&str>) -> Result<f64, String> {
    let found = match metric {
        None => {
            let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
            line.parse::<f64>()
                .map_err(|_| format!("the last line of the command's output is not a number: `{line}`"))?
        }
        Some(name) => {
            let value: Value = serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))?;
            named(&value, name).ok_or_else(|| format!("the command's JSON has no number `{name}`"))?
        }
    };
    if found.is_finite() { Ok(found) } else { Err(format!("{found} is not a value")) }
}

fn named(value: &Value, name: &str) -> Option<f64> {
    match value {
        Value::Object(members) => {
            let own = members.get(name).and_then(|value| value.as_f64().or_else(|| value["value"].as_f64()));
            own.or_else(|| members.values().find_map(|value| named(value, name)))
        }
        Value::Array(values) => values.iter().find_map(|value| named(value, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::rng::Rng;

    fn uniform(rng: &mut Rng) -> f64 {
        rng.below(1 << 30) as f64 / (1u64 << 30) as f64
    }

    /// Values around `mean`: noise of 10 %, and one in ten three times as large.
    fn value(rng: &mut Rng, mean: f64) -> f64 {
        let noise = mean * (0.9 + 0.2 * uniform(rng));
        if rng.below(10) == 0 { 3.0 * noise } else { noise }
    }

    fn verdict(test: &mut Sequential, rng: &mut Rng, most: usize, mean: f64) -> Verdict {
        (0..most).find_map(|_| test.take(value(rng, mean))).unwrap_or(Verdict::Unsure)
    }

    #[test]
    fn it_is_right_far_more_often_than_it_promises_and_skips_what_lies_between() {
        let mut rng = Rng::stream(7, "commits");
        let mut counts = std::collections::BTreeMap::<(&str, &str), u32>::new();
        for _ in 0..2_000 {
            let mut side = |mean| (0..12).map(|_| value(&mut rng, mean)).collect::<Vec<f64>>();
            let references = References { good: side(100.0), bad: side(125.0) };
            let border = Border::between(&references).expect("they differ");
            for (name, mean) in [("good", 100.0), ("bad", 125.0)] {
                let mut test = Sequential::new(border, 0.01);
                *counts.entry((name, verdict(&mut test, &mut rng, 200, mean).word())).or_default() += 1;
            }
        }
        for (name, wrong) in [("good", "bad"), ("bad", "good")] {
            let errors = counts.get(&(name, wrong)).copied().unwrap_or(0);
            assert!(errors <= 20, "{counts:?}");
            assert!(counts.get(&(name, name)).copied().unwrap_or(0) >= 1_950, "{counts:?}");
        }
    }

    #[test]
    fn the_bound_holds_at_the_very_middle() {
        // Half of the values on each side: whatever it answers is wrong.
        let border = Border::of_values(0.0, 1.0).expect("two numbers");
        let mut rng = Rng::stream(8, "middle");
        let answers = (0..3_000)
            .filter(|_| {
                let mut test = Sequential::new(border, 0.05);
                (0..300).any(|_| test.take(uniform(&mut rng)).is_some())
            })
            .count();
        // Two sides of 5 % each, and three deviations of the count.
        assert!(answers <= 350, "{answers}");
        assert!(answers > 0);
    }

    #[test]
    fn a_change_of_some_runs_only_is_told_and_too_alike_references_are_refused() {
        let mut rng = Rng::stream(9, "chance");
        let mut side = |share: u64| -> Vec<f64> {
            (0..40).map(|_| if rng.below(100) < share { 200.0 } else { 100.0 } + uniform(&mut rng)).collect()
        };
        let border = Border::between(&References { good: side(0), bad: side(70) }).expect("they differ");
        assert!(border.bad < 0.9 && border.good < 0.1, "{border:?}");
        let run = |share: u64, seed| {
            let mut rng = Rng::stream(seed, "runs");
            let mut test = Sequential::new(border, 0.001);
            (0..500).find_map(|_| test.take(if rng.below(100) < share { 200.0 } else { 100.5 }))
        };
        for seed in 0..50 {
            assert_eq!(run(70, seed), Some(Verdict::Bad));
            assert_eq!(run(0, seed), Some(Verdict::Good));
        }
        let alike = References { good: side(10), bad: side(30) };
        assert!(Border::between(&alike).expect_err("alike").contains("look alike"));
        let few = References { good: vec![1.0; 4], bad: vec![2.0; 9] };
        assert!(Border::between(&few).expect_err("few").contains("--learn good"));
        assert!(Border::between(&References { good: vec![1.0; 9], bad: vec![1.0; 9] }).is_err());
        assert!(Border::of_values(2.0, 2.0).is_err());
    }

    #[test]
    fn sizes_and_directions() {
        let border = Border::of_values(100.0, 50.0).expect("two numbers");
        assert!(!border.bad_is_larger && border.is_bad(60.0) && !border.is_bad(80.0));
        // ln 1000 / ln 1.9 is 10.8.
        assert_eq!(Sequential::least_values(border, 0.001), 11);
        let references = References { good: vec![1.0, 2.5], bad: vec![3.0] };
        assert_eq!(References::parse(&references.json().to_string()), Ok(references));
        assert!(References::parse("{}").is_err());
    }

    #[test]
    fn numbers_are_read_from_what_commands_print() {
        for (output, metric, expected) in [
            ("warming up\n 12.5 \n\n", None, Some(12.5)),
            ("12.5 s", None, None),
            ("", None, None),
            ("inf", None, None),
            ("{\"runs\": [{\"metrics\": {\"elapsed_s\": 3}}]}", Some("elapsed_s"), Some(3.0)),
            ("{\"elapsed_s\": {\"value\": 4.5, \"unit\": \"s\"}}", Some("elapsed_s"), Some(4.5)),
            ("{}", Some("elapsed_s"), None),
            ("3", Some("elapsed_s"), None),
        ] {
            assert_eq!(number(output, metric).ok(), expected, "{output}");
        }
    }
}
