//! The worth of the answers, once the labels are open.

use iowhy_why::certainty::{WORDS, Word};
use serde_json::{Value, json};

use super::kinds::Kind;

/// One of the two that the tool was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The base.
    A,
    /// The candidate.
    B,
}

/// The cause of a case.
pub(super) struct Label<'t> {
    pub(super) nr: usize,
    pub(super) kind: &'t Kind,
    pub(super) slow: Option<Side>,
}

/// The worth of an answer about a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    Right,
    Half,
    CannotTell,
    Wrong,
    /// The plant did not slow the program down: nobody's mistake but ours.
    NoEffect,
}

impl Worth {
    pub(super) fn word(self) -> &'static str {
        match self {
            Worth::Right => "right",
            Worth::Half => "half",
            Worth::CannotTell => "cannot tell",
            Worth::Wrong => "wrong",
            Worth::NoEffect => "no effect",
        }
    }
}

/// A plant that makes the program slower by less is not scored.
const LEAST_SLOWER: f64 = 1.1;
/// A headline against the clock is one by more than this.
const CLOCK: f64 = 0.02;

/// A case with its answer.
pub(super) struct Scored<'t> {
    pub(super) kind: &'t Kind,
    pub(super) slow: Option<Side>,
    pub(super) found: Vec<String>,
    pub(super) confidence: Option<f64>,
    pub(super) verdict: String,
    pub(super) exit: Option<i64>,
    pub(super) change_pct: Option<f64>,
    /// Mean wall clocks of A and B in seconds.
    pub(super) wall: [f64; 2],
    /// Duration of the whole case.
    pub(super) seconds: Option<f64>,
    /// Of a cause.
    pub(super) worth: Option<Worth>,
}

impl Scored<'_> {
    fn new<'t>(label: &Label<'t>, line: &Value) -> Scored<'t> {
        let answer = &line["answer"];
        let findings = answer["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let mean = |walls: &Value| {
            let walls: Vec<f64> = walls.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            walls.iter().sum::<f64>() / walls.len() as f64
        };
        let mut scored = Scored {
            kind: label.kind,
            slow: label.slow,
            found: findings.iter().filter_map(|finding| finding["rule"].as_str()).map(str::to_owned).collect(),
            confidence: findings.first().and_then(|finding| finding["confidence"].as_f64()),
            verdict: answer["verdict"].as_str().unwrap_or("none").to_owned(),
            exit: line["exit"].as_i64(),
            change_pct: answer["change_pct"].as_f64(),
            wall: [mean(&line["wall_a_s"]), mean(&line["wall_b_s"])],
            seconds: line["seconds"].as_f64(),
            worth: None,
        };
        scored.worth = scored.slow.map(|slow| scored.worth_of(slow));
        scored
    }

    fn worth_of(&self, slow: Side) -> Worth {
        let slower = self.wall[slow as usize] / self.wall[1 - slow as usize];
        let settled = matches!(self.verdict.as_str(), "regression" | "improvement") && self.exit != Some(3);
        match self.found.first() {
            _ if slower < LEAST_SLOWER => Worth::NoEffect,
            Some(first) if settled && self.kind.right.contains(first) => Worth::Right,
            Some(first) if settled && self.kind.half.contains(first) => Worth::Half,
            Some(_) if settled => Worth::Wrong,
            _ => Worth::CannotTell,
        }
    }

    /// A first finding that is neither the cause nor near it, said as if there were no doubt; whatever the verdict.
    pub(super) fn sure_and_wrong(&self) -> bool {
        let near = |first: &String| self.kind.right.contains(first) || self.kind.half.contains(first);
        self.found.first().is_some_and(|first| !near(first))
            && self.confidence.is_some_and(|sure| sure >= WORDS[0].from)
    }

    /// Called faster or slower, rightly or not.
    pub(super) fn called(&self) -> bool {
        matches!(self.verdict.as_str(), "regression" | "improvement")
    }

    /// The verdict says one way, the wall clock another.
    pub(super) fn against_the_clock(&self) -> bool {
        let [a, b] = self.wall;
        match self.verdict.as_str() {
            "regression" => b < a * (1.0 - CLOCK),
            "improvement" => b > a * (1.0 + CLOCK),
            _ => false,
        }
    }

    fn document(&self) -> Value {
        let round = |seconds: f64| (seconds * 1e4).round() / 1e4;
        json!({
            "name": self.kind.name,
            "about": self.kind.about,
            "side": match self.slow { None => "none", Some(Side::A) => "a", Some(Side::B) => "b" },
            "expected": self.kind.right,
            "first": self.found.first(),
            "found": self.found,
            "confidence": self.confidence,
            "verdict": self.verdict,
            "change_pct": self.change_pct,
            "wall_a_s": round(self.wall[0]),
            "wall_b_s": round(self.wall[1]),
            "seconds": self.seconds,
            "score": self.word(),
        })
    }

    /// Its worth, in a word; of a healthy pair the claim about it.
    pub(super) fn word(&self) -> &'static str {
        match self.worth {
            Some(worth) => worth.word(),
            None if !self.found.is_empty() => "accused",
            None if self.called() => "called",
            None => "quiet",
        }
    }
}

/// How often a word was used, and how often it held.
pub(super) struct Reliability {
    pub(super) word: &'static str,
    pub(super) said: usize,
    pub(super) right: usize,
    pub(super) half: usize,
}

/// Everything.
pub(super) struct Score<'t> {
    pub(super) cases: Vec<Scored<'t>>,
}

/// Opens the labels.
pub(super) fn score<'t>(answers: &str, labels: &[Label<'t>]) -> Result<Score<'t>, String> {
    let mut cases = Vec::new();
    for line in answers.lines() {
        let line: Value = serde_json::from_str(line).map_err(|error| format!("answers: {error}"))?;
        let label = labels.iter().find(|label| line["case"] == label.nr).ok_or("an answer without a label")?;
        cases.push(Scored::new(label, &line));
    }
    Ok(Score { cases })
}

impl Score<'_> {
    /// Causes that had an effect.
    pub(super) fn planted(&self) -> usize {
        self.cases.iter().filter(|case| case.worth.is_some_and(|worth| worth != Worth::NoEffect)).count()
    }

    pub(super) fn worth(&self, worth: Worth) -> usize {
        self.cases.iter().filter(|case| case.worth == Some(worth)).count()
    }

    pub(super) fn healthy(&self) -> impl Iterator<Item = &Scored<'_>> {
        self.cases.iter().filter(|case| case.worth.is_none())
    }

    /// Healthy pairs with a finding.
    pub(super) fn accused(&self) -> usize {
        self.healthy().filter(|case| !case.found.is_empty()).count()
    }

    /// Healthy pairs that are called faster or slower.
    pub(super) fn called(&self) -> usize {
        self.healthy().filter(|case| case.called()).count()
    }

    /// Healthy pairs that the clock does not see as equal: others were at work.
    pub(super) fn uneven(&self) -> usize {
        self.healthy().filter(|case| (case.wall[0] / case.wall[1]).ln().abs() > LEAST_SLOWER.ln()).count()
    }

    pub(super) fn sure_and_wrong(&self) -> usize {
        let scored = |case: &&Scored<'_>| case.worth.is_some_and(|worth| worth != Worth::NoEffect);
        self.cases.iter().filter(scored).filter(|case| case.sure_and_wrong()).count()
    }

    pub(super) fn against_the_clock(&self) -> usize {
        self.cases.iter().filter(|case| case.against_the_clock()).count()
    }

    /// First findings by their word. A claim about a healthy pair is wrong.
    pub(super) fn reliability(&self) -> Vec<Reliability> {
        let mut above = f64::INFINITY;
        let mut table = Vec::new();
        for Word { word, from: least, .. } in WORDS {
            let said = |case: &&Scored<'_>| {
                case.worth != Some(Worth::NoEffect) && case.confidence.is_some_and(|sure| sure >= least && sure < above)
            };
            let among = |rules: fn(&Kind) -> &Vec<String>| {
                let holds = |case: &Scored<'_>| case.found.first().is_some_and(|it| rules(case.kind).contains(it));
                self.cases.iter().filter(said).filter(|case| holds(case)).count()
            };
            let (right, half) = (among(|kind| &kind.right), among(|kind| &kind.half));
            table.push(Reliability { word, said: self.cases.iter().filter(said).count(), right, half });
            above = least;
        }
        table
    }

    /// The planted cause, the first finding, its worth, how often; the worst first.
    pub(super) fn confusions(&self) -> Vec<(&str, &str, &'static str, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for case in &self.cases {
            let first = case.found.first().map_or("nothing", String::as_str);
            let order = ["wrong", "cannot tell", "half", "right", "no effect", "accused", "called", "quiet"];
            let order = order.iter().position(|word| *word == case.word());
            *counts.entry((order, case.kind.name.as_str(), first, case.word())).or_insert(0) += 1;
        }
        counts.into_iter().map(|((_, name, first, word), n)| (name, first, word, n)).collect()
    }

    pub(super) fn document(&self, seed: u64) -> Value {
        let pct = |n: usize| 100.0 * n as f64 / self.planted().max(1) as f64;
        let reliability: Vec<_> = self
            .reliability()
            .iter()
            .map(|row| json!({"word": row.word, "said": row.said, "right": row.right, "half": row.half}))
            .collect();
        json!({
            "schema": "iowhy.plant-live/1",
            "seed": seed,
            "kinds": self.planted(),
            "no_effect": self.worth(Worth::NoEffect),
            "right_pct": pct(self.worth(Worth::Right)),
            "half_pct": pct(self.worth(Worth::Half)),
            "cannot_tell_pct": pct(self.worth(Worth::CannotTell)),
            "wrong_pct": pct(self.worth(Worth::Wrong)),
            "sure_and_wrong_pct": pct(self.sure_and_wrong()),
            "healthy": self.healthy().count(),
            "healthy_accused": self.accused(),
            "healthy_called": self.called(),
            "healthy_quiet": self.healthy().filter(|case| case.found.is_empty() && !case.called()).count(),
            "healthy_uneven": self.uneven(),
            "against_the_clock": self.against_the_clock(),
            "reliability": reliability,
            "cases": self.cases.iter().map(Scored::document).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        toml::from_str(&format!("name = 'x'\nground = 'plain'\nrun = ':'\n{text}")).unwrap()
    }

    fn line(verdict: &str, rule: Option<(&str, f64)>, wall: [f64; 2]) -> String {
        let findings: Vec<Value> =
            rule.iter().map(|(rule, confidence)| json!({"rule": rule, "confidence": confidence})).collect();
        json!({"case": 1, "exit": 0, "wall_a_s": [wall[0]], "wall_b_s": [wall[1]],
               "answer": {"verdict": verdict, "findings": findings, "change_pct": 1.0}})
        .to_string()
    }

    #[test]
    fn answers_are_worth_what_they_say() {
        let kind = kind("right = ['cause']\nhalf = ['layer']");
        let labels = [Label { nr: 1, kind: &kind, slow: Some(Side::B) }];
        for (verdict, rule, wall, worth, sure_and_wrong, clock) in [
            ("regression", Some(("cause", 0.5)), [1.0, 2.0], Worth::Right, 0, 0),
            ("improvement", Some(("layer", 0.95)), [1.0, 2.0], Worth::Half, 0, 1),
            ("regression", Some(("other", 0.95)), [1.0, 2.0], Worth::Wrong, 1, 0),
            ("regression", Some(("other", 0.8)), [1.0, 2.0], Worth::Wrong, 0, 0),
            ("regression", None, [1.0, 2.0], Worth::CannotTell, 0, 0),
            ("same", Some(("other", 0.95)), [1.0, 2.0], Worth::CannotTell, 1, 0),
            ("regression", Some(("other", 0.95)), [1.0, 1.05], Worth::NoEffect, 0, 0),
        ] {
            let score = score(&line(verdict, rule, wall), &labels).unwrap();
            assert_eq!(score.cases[0].worth, Some(worth), "{verdict} {rule:?}");
            assert_eq!((score.sure_and_wrong(), score.against_the_clock()), (sure_and_wrong, clock), "{verdict}");
        }
    }

    #[test]
    fn a_finding_about_a_healthy_pair_is_said_and_not_right() {
        let kind = kind("");
        let labels = [Label { nr: 1, kind: &kind, slow: None }];
        let score = score(&line("same", Some(("cause", 0.8)), [1.0, 1.0]), &labels).unwrap();
        assert_eq!((score.accused(), score.called(), score.planted()), (1, 0, 0));
        let said: Vec<_> = score.reliability().iter().map(|row| (row.said, row.right)).collect();
        assert_eq!(said, [(0, 0), (1, 0), (0, 0)]);
    }
}
