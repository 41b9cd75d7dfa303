//! `cargo xtask plant`: hides causes in simulated runs and counts how often they are found (`iowhy_lab::plant`);
//! `--page` writes the table on docs/RULES.md; `--invariants` looks for impossible statements; `--live` is another
//! command, see `plant_live.rs`.

use std::sync::atomic::{AtomicU32, Ordering};

use iowhy_compare::text::Style;
use iowhy_lab::plant::page::TABLE;
use iowhy_lab::plant::{self, Case, Score};
use iowhy_lab::report::first::First;
use iowhy_lab::report::text::text as explain_text;
use iowhy_stats::share::interval;
use serde_json::json;

use crate::tidy::{EARLIER, rules_stamp, unmarked_live_table};
use crate::{Outcome, root};

/// Makes the cases and prints the score; `--cases` also prints each one that was not found.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    if arguments.iter().any(|word| word == "--live") {
        return crate::plant_live::run(arguments);
    }
    let (mut seed, mut count, mut json, mut cases, mut page) = (1, 200, false, false, false);
    let (mut show, mut pairs) = (None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = |name: &str| {
            let text = words.next().ok_or(format!("{name} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{name}: `{text}` is not a number"))
        };
        match word.as_str() {
            "--seed" => seed = number("--seed")?,
            "--count" => count = u32::try_from(number("--count")?).map_err(|_| "--count is too large".to_owned())?,
            "--json" => json = true,
            "--cases" => cases = true,
            "--page" => page = true,
            "--invariants" => {
                let count = u32::try_from(number("--invariants")?);
                pairs = Some(count.map_err(|_| "--invariants is too large".to_owned())?);
            }
            "--show" => show = Some(u32::try_from(number("--show")?).map_err(|_| "--show is too large".to_owned())?),
            other => {
                return Err(format!(
                    "unknown word `{other}`: --seed S, --count N, --cases, --show NR, --invariants COUNT, \
                     --page, --json"
                ));
            }
        }
    }
    if let Some(nr) = show {
        let case = plant::one(seed, nr).ok_or("no case came of it")?;
        let plants: Vec<&str> = case.plants.iter().map(|plant| plant.name).collect();
        println!("{}: {}", case.base, plants.join(" + "));
        case.lines.iter().for_each(|line| println!("  \"{line}\""));
        print!("{}", explain_text(&case.explanation, &First::default(), None, Style { colour: false, verbose: true }));
        return Ok(());
    }
    if let Some(count) = pairs {
        let broken = plant::invariants(seed, count, &|| {});
        broken.iter().take(50).for_each(|what| println!("{what}"));
        println!("{count} pairs explained, {} impossible statements", broken.len());
        return if broken.is_empty() { Ok(()) } else { Err("explanations say what cannot be".to_owned()) };
    }
    let done = AtomicU32::new(0);
    let score = plant::run(seed, count, &|| {
        let n = done.fetch_add(1, Ordering::Relaxed) + 1;
        if n.is_multiple_of(20) {
            eprintln!("{n} of {count}");
        }
    });
    if page {
        let path = root().join("docs/RULES.md");
        let failed = |error| format!("{}: {error}", path.display());
        let before = std::fs::read_to_string(&path).map_err(failed)?;
        let after = TABLE.put(&before, &table(seed, &score));
        let marked = unmarked_live_table(&after, &rules_stamp()).map(|line| {
            let marked = line.replacen(": real programs", &format!(", {EARLIER}: real programs"), 1);
            after.replacen(line, &marked, 1)
        });
        std::fs::write(&path, marked.unwrap_or(after)).map_err(failed)?;
    }
    if json {
        println!("{}", document(seed, &score));
    } else {
        text(&score, cases);
    }
    Ok(())
}

/// A share with its exact interval at 95 %.
fn share(score: &Score, causes: usize, holds: fn(&Case) -> bool) -> String {
    let (all, n) = (score.with(causes).count(), score.with(causes).filter(|case| holds(case)).count());
    let (low, high) = interval(n as f64, all as f64, 0.95);
    format!("{n} of {all}: {:.1} % [{:.1} .. {:.1}]", score.pct(causes, holds), 100.0 * low, 100.0 * high)
}

/// The score as it stands on the page of rules.
fn table(seed: u64, score: &Score) -> String {
    let mut lines = vec![
        format!(
            "`cargo xtask plant --seed {seed} --count {} --page`, rules `{}`; in brackets the exact interval at 95 %.",
            score.cases.len(),
            rules_stamp()
        ),
        String::new(),
        "| planted | asked | right |".to_owned(),
        "| --- | --- | --- |".to_owned(),
        format!("| one cause | the first finding is it | {} |", share(score, 1, Case::first_right)),
        format!("| none | no finding | {} |", share(score, 0, |case| case.found.is_empty())),
        format!("| two causes | both are among the findings | {} |", share(score, 2, Case::all_found)),
        String::new(),
        "| word | first findings | right |".to_owned(),
        "| --- | --- | --- |".to_owned(),
    ];
    lines.extend(score.reliability().into_iter().map(|(word, said, right)| format!("| {word} | {said} | {right} |")));
    lines.extend([String::new(), "| planted | first finding | times |".to_owned(), "| --- | --- | --- |".to_owned()]);
    lines.extend(score.confusions().into_iter().map(|(plant, found, n)| format!("| {plant} | {found} | {n} |")));
    lines.join("\n")
}

fn document(seed: u64, score: &Score) -> serde_json::Value {
    let confusions: Vec<_> = score
        .confusions()
        .into_iter()
        .map(|(plant, found, n)| json!({"plant": plant, "found": found, "n": n}))
        .collect();
    json!({
        "schema": "iowhy.plant/1",
        "seed": seed,
        "count": score.cases.len(),
        "redrawn": score.redrawn,
        "single": score.with(1).count(),
        "single_right_pct": score.pct(1, Case::first_right),
        "none": score.with(0).count(),
        "none_false_pct": score.pct(0, |case| !case.found.is_empty()),
        "double": score.with(2).count(),
        "double_both_pct": score.pct(2, Case::all_found),
        "confusions": confusions,
        "reliability": score
            .reliability()
            .into_iter()
            .map(|(word, said, right)| json!({"word": word, "said": said, "right": right}))
            .collect::<Vec<_>>(),
    })
}

fn text(score: &Score, cases: bool) {
    let (one, none, two) = (score.with(1).count(), score.with(0).count(), score.with(2).count());
    println!("one cause:   {:5.1} % of {one} named first", score.pct(1, Case::first_right));
    println!("no cause:    {:5.1} % of {none} with a finding", score.pct(0, |case| !case.found.is_empty()));
    println!("two causes:  {:5.1} % of {two} with both found", score.pct(2, Case::all_found));
    println!("{} draws were made again", score.redrawn);
    for (plant, found, n) in score.confusions() {
        println!("{n:5}  {plant} -> {found}");
    }
    if !cases {
        return;
    }
    for case in &score.cases {
        let fine = match case.plants.len() {
            0 => case.found.is_empty(),
            1 => case.first_right(),
            _ => case.all_found(),
        };
        if fine {
            continue;
        }
        let plants: Vec<&str> = case.plants.iter().map(|plant| plant.name).collect();
        println!("\n#{} {}: {} -> {}", case.nr, case.base, plants.join(" + "), case.found.join(", "));
        println!("  {:+.1} %", case.explanation.change_pct);
        case.lines.iter().for_each(|line| println!("  \"{line}\""));
    }
}
