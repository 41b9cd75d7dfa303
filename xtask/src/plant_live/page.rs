//! The score as text, and as markdown on docs/RULES.md.

use std::fmt::Write;

use iowhy_stats::share::interval;

use super::score::{Score, Worth};

/// A count with its exact interval at 95 %.
pub(super) fn share(n: usize, all: usize) -> String {
    let (low, high) = interval(n as f64, all as f64, 0.95);
    let pct = 100.0 * n as f64 / all.max(1) as f64;
    format!("{n} of {all}: {pct:.1} % [{:.1} .. {:.1}]", 100.0 * low, 100.0 * high)
}

/// Each question, and how often it holds.
fn rows(score: &Score<'_>) -> Vec<(&'static str, &'static str, String)> {
    let (planted, healthy) = (score.planted(), score.healthy().count());
    let all = planted + healthy;
    vec![
        ("a cause", "the first finding is it", share(score.worth(Worth::Right), planted)),
        ("a cause", "the first finding is its layer or what came of it", share(score.worth(Worth::Half), planted)),
        ("a cause", "cannot tell", share(score.worth(Worth::CannotTell), planted)),
        ("a cause", "the first finding is something else", share(score.worth(Worth::Wrong), planted)),
        ("a cause", "and said as almost certain", share(score.sure_and_wrong(), planted)),
        ("nothing", "a finding", share(score.accused(), healthy)),
        ("nothing", "called faster or slower", share(score.called(), healthy)),
        ("nothing", "sides differ by 10 % or more by the clock", share(score.uneven(), healthy)),
        ("either", "faster or slower against the clock", share(score.against_the_clock(), all)),
    ]
}

/// For the terminal.
pub(super) fn text(score: &Score<'_>) -> String {
    let mut out = String::new();
    for (planted, asked, share) in rows(score) {
        let _ = writeln!(out, "{:<9} {asked:<51} {share}", format!("{planted}:"));
    }
    let _ = writeln!(out, "\n{:<16} {:>5} {:>6} {:>5}", "said", "times", "right", "half");
    for row in score.reliability() {
        let _ = writeln!(out, "{:<16} {:>5} {:>6} {:>5}", row.word, row.said, row.right, row.half);
    }
    let _ = writeln!(out, "\n{:<26} {:<26} {:<12} times", "planted", "first finding", "score");
    for (name, first, word, n) in score.confusions() {
        let _ = writeln!(out, "{name:<26} {first:<26} {word:<12} {n:>5}");
    }
    let _ = writeln!(out, "\n{} plants had no effect", score.worth(Worth::NoEffect));
    out
}

/// For the page.
pub(super) fn table(seed: u64, recordings: u32, score: &Score<'_>) -> String {
    let mut lines = vec![
        format!(
            "`cargo xtask plant --live --seed {seed} --recordings {recordings} --page`, rules `{}`: real programs on \
             this machine;\nin brackets the exact interval at 95 %.",
            crate::tidy::rules_stamp()
        ),
        String::new(),
        "| planted | asked | held |".to_owned(),
        "| --- | --- | --- |".to_owned(),
    ];
    lines.extend(rows(score).into_iter().map(|(planted, asked, share)| format!("| {planted} | {asked} | {share} |")));
    lines.extend(["", "| said | times | right | half |", "| --- | --- | --- | --- |"].map(str::to_owned));
    let reliability = score.reliability();
    lines.extend(reliability.iter().map(|r| format!("| {} | {} | {} | {} |", r.word, r.said, r.right, r.half)));
    lines.extend(["", "| planted | first finding | score | times |", "| --- | --- | --- | --- |"].map(str::to_owned));
    lines.extend(
        score.confusions().into_iter().map(|(name, first, word, n)| format!("| {name} | {first} | {word} | {n} |")),
    );
    lines.join("\n")
}
