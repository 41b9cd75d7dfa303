//! One side alone: `iowhy why` is asked about the slow side of a case, and never sees the other.
//!
//! ```text
//! walls     both sides run bare, in turn: the effect of the plant, and the gain that its removal really brings
//! question  `iowhy why --json -- COMMAND` on the slow side; a healthy kind runs as it is
//! right     the first finding is one of the kind's `alone`; among three: one of the first three is
//! accused   a healthy side with any finding
//! gain      the first right finding's `saves_pct` beside the gain by the clock, within 15 points
//! tried     with `--try`: what `why --try` obtained with a safe setting, within 15 points of what it predicts
//! rivals    thresholds of operators, and a list of changed metrics (`rivals.rs`), of the bare runs
//! ```

use std::fmt::Write;

use iowhy_lab::plant::page::ONE_SIDED_TABLE;
use iowhy_stack::rng::Rng;
use iowhy_why::certainty::WORDS;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::page::share;
use super::rivals::{self, Counters, Seen};
use super::site::{Site, Variables};
use super::{Case, Settings};
use crate::{Outcome, renew};

/// A plant that makes the program slower by less is not scored.
const LEAST_SLOWER: f64 = 1.1;
/// Points between a predicted gain and the obtained one that are still right.
const POINTS: f64 = 15.0;

/// Runs the case and asks about it.
pub(super) fn ask(site: &Site, case: &Case<'_>, settings: &Settings, grounds: &[Variables]) -> Result<Value, String> {
    let kind = case.kind;
    let (mut walls, mut seen) = ([Vec::new(), Vec::new()], [None; 2]);
    let mut rng = Rng::stream(settings.seed, &format!("plant.alone.{}", case.nr));
    for _ in 0..if kind.is_healthy() { 0 } else { settings.recordings } {
        let first = rng.below(2) as usize;
        for side in [first, 1 - first] {
            let (wall, of) = bare(site, kind, side == 1, grounds)?;
            walls[side].push(wall);
            seen[side] = Some(of);
        }
    }
    let mut answer = Value::Null;
    let wall = site.one(kind, !kind.is_healthy(), grounds, |run, variables| {
        let asked = [&*settings.binary, "why", "--json", "--try", "--"];
        let tries = settings.try_it && !kind.is_healthy();
        let words: Vec<&str> = asked.into_iter().filter(|word| tries || *word != "--try").collect();
        let wall = site.timed(&words, run, variables, &[0, 3])?;
        let said = site.all("answer");
        answer = serde_json::from_str(&said).map_err(|error| format!("why: {error}: {}", site.said("recorded")))?;
        Ok(wall)
    })?;
    let rivals = match seen {
        [Some(fast), Some(slow)] => {
            json!({"thresholds": rivals::thresholds(&slow), "changed metrics": rivals::changed(&fast, &slow)})
        }
        _ => Value::Null,
    };
    Ok(json!({"case": case.nr, "fast_s": walls[0], "slow_s": walls[1], "asked_s": wall, "answer": answer,
              "rivals": rivals}))
}

/// One bare run of a side.
fn bare(site: &Site, kind: &Kind, slow: bool, grounds: &[Variables]) -> Result<(f64, Seen), String> {
    site.one(kind, slow, grounds, |run, variables| {
        let before = Counters::now(variables);
        let wall = site.timed(&[], run, variables, &[0])?;
        Ok((wall, Counters::now(variables).since(&before)))
    })
}

/// The worth of an answer about a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    Right,
    AmongThree,
    Half,
    CannotTell,
    Wrong,
    NoEffect,
    Accused,
    Quiet,
}

impl Worth {
    /// The worst first.
    const ALL: [(Worth, &'static str); 8] = [
        (Worth::Wrong, "wrong"),
        (Worth::Accused, "accused"),
        (Worth::CannotTell, "cannot tell"),
        (Worth::Half, "half"),
        (Worth::AmongThree, "among three"),
        (Worth::Right, "right"),
        (Worth::NoEffect, "no effect"),
        (Worth::Quiet, "quiet"),
    ];

    fn word(self) -> &'static str {
        Worth::ALL.iter().find(|(worth, _)| *worth == self).map_or("", |(_, word)| word)
    }
}

/// An answer, with its label opened.
struct Scored<'t> {
    kind: &'t Kind,
    found: Vec<String>,
    confidence: Option<f64>,
    /// Gain by the clock, and as the finding that names the cause predicts it, percent.
    gain: Option<f64>,
    predicted: Option<f64>,
    /// Savings of settings that were tried: predicted, and obtained.
    tried: Vec<(f64, f64)>,
    twin: Option<bool>,
    rivals: Vec<(String, bool)>,
    worth: Worth,
}

impl Scored<'_> {
    fn new<'t>(kind: &'t Kind, line: &Value) -> Scored<'t> {
        let answer = &line["answer"];
        let findings = answer["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let rule = |finding: &Value| finding["rule"].as_str().unwrap_or_default().to_owned();
        let found: Vec<String> = findings.iter().map(rule).collect();
        let median = |walls: &Value| {
            let mut walls: Vec<f64> = walls.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            walls.sort_unstable_by(f64::total_cmp);
            walls.get(walls.len() / 2).copied()
        };
        let slower = median(&line["slow_s"]).zip(median(&line["fast_s"])).map(|(slow, fast)| slow / fast);
        let is = |rule: &String| kind.alone.contains(rule);
        let worth = match found.first() {
            first if kind.is_healthy() => first.map_or(Worth::Quiet, |_| Worth::Accused),
            _ if slower.is_none_or(|slower| slower < LEAST_SLOWER) => Worth::NoEffect,
            None => Worth::CannotTell,
            Some(first) if is(first) => Worth::Right,
            Some(_) if found.iter().take(3).any(is) => Worth::AmongThree,
            Some(first) if kind.alone_half.contains(first) => Worth::Half,
            Some(_) => Worth::Wrong,
        };
        let named = findings.iter().take(3).find(|finding| is(&rule(finding)));
        let rivals = line["rivals"].as_object().into_iter().flatten();
        Scored {
            kind,
            confidence: findings.first().and_then(|finding| finding["confidence"].as_f64()),
            gain: slower.map(|slower| 100.0 * (1.0 - 1.0 / slower)),
            predicted: named.and_then(|finding| finding["saves_pct"].as_f64()),
            tried: findings
                .iter()
                .filter_map(|finding| finding["saves_pct"].as_f64().zip(finding["tried"]["saves_pct"].as_f64()))
                .collect(),
            twin: answer["twin"]["usable"].as_bool(),
            rivals: rivals
                .map(|(who, said)| (who.clone(), said.as_str().is_some_and(|it| is(&it.to_owned()))))
                .collect(),
            worth,
            found,
        }
    }

    fn first(&self) -> &str {
        self.found.first().map_or("nothing", String::as_str)
    }

    fn near(&self) -> bool {
        matches!(self.worth, Worth::Right | Worth::Half)
    }
}

/// Pairs within 15 points, and all.
fn near(pairs: &[(f64, f64)]) -> (usize, usize) {
    (pairs.iter().filter(|(predicted, gain)| (predicted - gain).abs() <= POINTS).count(), pairs.len())
}

/// All answers.
struct Score<'t>(Vec<Scored<'t>>);

impl Score<'_> {
    fn planted(&self) -> impl Iterator<Item = &Scored<'_>> {
        self.0.iter().filter(|case| !matches!(case.worth, Worth::NoEffect | Worth::Accused | Worth::Quiet))
    }

    fn count(&self, worth: Worth) -> usize {
        self.0.iter().filter(|case| case.worth == worth).count()
    }

    /// How often each word was used of a first finding, and how often that named the cause.
    fn words(&self) -> Vec<(&'static str, usize, usize)> {
        let mut above = f64::INFINITY;
        let mut rows = Vec::new();
        for word in WORDS {
            let holds = |case: &&Scored<'_>| {
                case.worth != Worth::NoEffect && case.confidence.is_some_and(|sure| sure >= word.from && sure < above)
            };
            let said: Vec<_> = self.0.iter().filter(holds).collect();
            rows.push((word.word, said.len(), said.iter().filter(|case| case.worth == Worth::Right).count()));
            above = word.from;
        }
        rows
    }

    /// A first finding that is neither the cause nor near it, without any doubt.
    fn sure_and_wrong(&self) -> usize {
        let sure = |case: &&Scored<'_>| case.confidence.is_some_and(|sure| sure >= WORDS[0].from);
        self.0.iter().filter(|case| case.worth != Worth::NoEffect && !case.near()).filter(sure).count()
    }

    /// Predicted gains within 15 points of the clock's, and all predicted ones.
    fn gains(&self) -> (usize, usize) {
        near(&self.planted().filter_map(|case| case.predicted.zip(case.gain)).collect::<Vec<_>>())
    }

    /// The same of gains that `--try` obtained.
    fn tried(&self) -> (usize, usize) {
        near(&self.planted().flat_map(|case| case.tried.iter().copied()).collect::<Vec<_>>())
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let planted = self.planted().count();
        let healthy = self.count(Worth::Accused) + self.count(Worth::Quiet);
        let three = self.count(Worth::Right) + self.count(Worth::AmongThree);
        let rival = |name: &str| {
            let said = self.planted().filter(|case| case.rivals.iter().any(|(who, right)| who == name && *right));
            share(said.count(), planted)
        };
        let (within, predicted) = self.gains();
        let (tried, all_tried) = self.tried();
        let usable = self.0.iter().filter(|case| case.twin == Some(true)).count();
        let mut rows = vec![
            ("the first finding is the cause", share(self.count(Worth::Right), planted)),
            ("one of the first three is", share(three, planted)),
            ("the first finding is its layer, or what came of it", share(self.count(Worth::Half), planted)),
            ("cannot tell", share(self.count(Worth::CannotTell), planted)),
            ("the first finding is something else", share(self.count(Worth::Wrong), planted)),
            ("wrong and almost certain, healthy ones included", share(self.sure_and_wrong(), planted + healthy)),
            ("healthy sides with a finding", share(self.count(Worth::Accused), healthy)),
            ("predicted gains within 15 points of the clock", share(within, predicted)),
            ("the twin agrees with the recording", share(usable, self.0.len())),
            ("rival: thresholds of iostat and pressure", rival("thresholds")),
            ("rival: the metric that changed most (sees both sides)", rival("changed metrics")),
        ];
        if all_tried > 0 {
            rows.push(("predicted gains within 15 points of what `--try` obtains", share(tried, all_tried)));
        }
        rows
    }

    /// The plant, the first finding, its worth, how often, the mean gains by the clock and as predicted; worst first.
    fn kinds(&self) -> Vec<(&str, &str, &'static str, usize, String)> {
        let mut groups: std::collections::BTreeMap<_, Vec<&Scored<'_>>> = std::collections::BTreeMap::new();
        for case in &self.0 {
            let order = Worth::ALL.iter().position(|(worth, _)| *worth == case.worth);
            groups.entry((order, case.kind.name.as_str(), case.first())).or_default().push(case);
        }
        let mean = |of: Vec<f64>| match of.len() {
            0 => "-".to_owned(),
            n => format!("{:.0} %", of.iter().sum::<f64>() / n as f64),
        };
        let row = |((_, name, first), cases): (_, Vec<&Scored<'_>>)| {
            let gain = mean(cases.iter().filter_map(|case| case.gain).collect());
            let predicted = mean(cases.iter().filter_map(|case| case.predicted).collect());
            (name, first, cases[0].worth.word(), cases.len(), format!("{gain}, {predicted}"))
        };
        groups.into_iter().map(row).collect()
    }

    fn document(&self, settings: &Settings) -> Value {
        let pct = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        let planted = self.planted().count();
        let mut names: Vec<&str> = self.planted().map(|case| case.kind.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let (within, predicted) = self.gains();
        json!({
            "schema": "iowhy.plant-one-sided/1",
            "seed": settings.seed,
            "count": planted,
            "kinds": names.len(),
            "right_first_pct": pct(self.count(Worth::Right), planted),
            "right_among_three_pct": pct(self.count(Worth::Right) + self.count(Worth::AmongThree), planted),
            "cannot_tell_pct": pct(self.count(Worth::CannotTell), planted),
            "wrong_pct": pct(self.count(Worth::Wrong), planted),
            "sure_and_wrong_pct": pct(self.sure_and_wrong(), planted),
            "healthy": self.count(Worth::Accused) + self.count(Worth::Quiet),
            "healthy_accused": self.count(Worth::Accused),
            "gain_within_15_points_pct": pct(within, predicted),
            "gains": predicted,
            "tried_within_15_points_pct": pct(self.tried().0, self.tried().1),
            "tried": self.tried().1,
            "reliability": self.words().into_iter()
                .map(|(word, said, right)| json!({"word": word, "said": said, "right": right})).collect::<Vec<_>>(),
            "cases": self.0.iter().map(|case| json!({
                "name": case.kind.name, "found": case.found, "confidence": case.confidence, "score": case.worth.word(),
                "gain_pct": case.gain, "predicted_pct": case.predicted, "tried": case.tried, "twin": case.twin,
            })).collect::<Vec<_>>(),
        })
    }
}

/// Opens the labels, and prints the score or writes it on its page.
pub(super) fn finish(text: &str, cases: &[Case<'_>], settings: &Settings, last: &str) -> Outcome {
    let mut scored = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).map_err(|error| format!("answers: {error}"))?;
        let case = cases.iter().find(|case| line["case"] == case.nr).ok_or("an answer without a label")?;
        scored.push(Scored::new(case.kind, &line));
    }
    let score = Score(scored);
    if settings.page {
        renew("RULES.md", ONE_SIDED_TABLE, &table(settings, &score))?;
    }
    if settings.json {
        println!("{:#}", score.document(settings));
        return Ok(());
    }
    let mut out = String::new();
    for (asked, share) in score.rows() {
        let _ = writeln!(out, "{asked:<55} {share}");
    }
    let _ = writeln!(out, "\n{:<16} {:>5} {:>5}", "said", "times", "right");
    for (word, said, right) in score.words() {
        let _ = writeln!(out, "{word:<16} {said:>5} {right:>5}");
    }
    let _ = writeln!(out, "\n{:<22} {:<24} {:<12} times, gain by the clock, predicted", "planted", "first", "score");
    for (name, first, word, n, gains) in score.kinds() {
        let _ = writeln!(out, "{name:<22} {first:<24} {word:<12} {n:>3}, {gains}");
    }
    print!("{out}");
    println!("{} plants had no effect; {last}", score.count(Worth::NoEffect));
    Ok(())
}

/// For the page.
fn table(settings: &Settings, score: &Score<'_>) -> String {
    let mut lines = vec![
        format!(
            "`cargo xtask plant --live --one-sided --seed {} --times {} --page`, rules `{}`: the slow side alone;\nin \
             brackets the exact interval at 95 %.",
            settings.seed,
            settings.times,
            crate::tidy::rules_stamp()
        ),
        String::new(),
        "| asked | held |".to_owned(),
        "| --- | --- |".to_owned(),
    ];
    lines.extend(score.rows().into_iter().map(|(asked, share)| format!("| {asked} | {share} |")));
    lines.extend(["", "| said | times | right |", "| --- | --- | --- |"].map(str::to_owned));
    lines.extend(score.words().into_iter().map(|(word, said, right)| format!("| {word} | {said} | {right} |")));
    lines.push(String::new());
    lines.push("| planted | first finding | score | times | gain by the clock, predicted |".to_owned());
    lines.push("| --- | --- | --- | --- | --- |".to_owned());
    lines.extend(
        score
            .kinds()
            .into_iter()
            .map(|(name, first, word, n, gains)| format!("| {name} | {first} | {word} | {n} | {gains} |")),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_one_side_are_worth_what_they_say() {
        let text = "name = 'x'\nground = 'plain'\nrun = ':'\nright = ['r']\nalone = ['cause']\nalone_half = ['layer']";
        let kind: Kind = toml::from_str(text).unwrap();
        let healthy: Kind = toml::from_str("name = 'x'\nground = 'plain'\nrun = ':'").unwrap();
        let line = |rules: &[&str], slow: f64| {
            let findings: Vec<Value> =
                rules.iter().map(|rule| json!({"rule": rule, "confidence": 0.95, "saves_pct": 50.0})).collect();
            json!({"fast_s": [1.0], "slow_s": [slow], "answer": {"findings": findings}})
        };
        for (kind, rules, slow, worth) in [
            (&kind, &["cause"][..], 2.0, Worth::Right),
            (&kind, &["other", "cause"], 2.0, Worth::AmongThree),
            (&kind, &["layer"], 2.0, Worth::Half),
            (&kind, &["other"], 2.0, Worth::Wrong),
            (&kind, &[], 2.0, Worth::CannotTell),
            (&kind, &["other"], 1.05, Worth::NoEffect),
            (&healthy, &["other"], 1.0, Worth::Accused),
            (&healthy, &[], 1.0, Worth::Quiet),
        ] {
            assert_eq!(Scored::new(kind, &line(rules, slow)).worth, worth, "{rules:?} {slow}");
        }
        let score = Score([["cause"], ["other"]].iter().map(|rules| Scored::new(&kind, &line(rules, 2.0))).collect());
        assert_eq!((score.gains(), score.sure_and_wrong(), score.words()[0]), ((1, 1), 1, (WORDS[0].word, 2, 1)));
    }
}
