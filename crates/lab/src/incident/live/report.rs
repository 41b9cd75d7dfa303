//! The running kernel's results, as text and as JSON. Nothing is computed here.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{Answer, Bounded, LiveResult, SideResult, Verdict};
use iowhy_stats::figure;
use iowhy_text as text;

pub fn text(result: &LiveResult, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, result, bold);
    out
}

fn write_text(out: &mut String, result: &LiveResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let place = if result.place == super::LIVE { "the running kernel" } else { &result.place };
    writeln!(out, "{}", bold(&format!("on {place} ({})", result.kernel)))?;
    writeln!(out, "{:<25}{:>10}{:>11}{:>8}{:>17}", "ratio or percent", "published", "simulated", "live", "95 %")?;
    for answer in &result.answers {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let bounds = match answer.live {
            Some(Bounded { bounds: Some((low, high)), .. }) => format!("{low:.2} .. {high:.2}"),
            _ => "-".to_owned(),
        };
        writeln!(
            out,
            "  {:<23}{:>10}{:>11}{:>8}{bounds:>17}",
            answer.question.id,
            figure(answer.published),
            figure(answer.simulated),
            figure(answer.live.map(|live| live.value)),
        )?;
    }
    writeln!(out)?;
    for answer in &result.answers {
        let head = format!("{}: {}", answer.question.id, bold(answer.verdict.name()));
        item(out, &format!("{head}: {}{}", answer.question.text, reason(answer)))?;
    }
    result.not_shown.iter().try_for_each(|words| item(out, &format!("not shown: {words}")))?;
    for side in &result.sides {
        if let Some(refused) = &side.refused {
            item(out, &format!("{} could not be run: {refused}", side.side.id))?;
        }
    }
    if result.interrupted {
        item(out, "a signal ended it early")?;
    }
    Ok(())
}

fn reason(answer: &Answer) -> String {
    match answer.verdict {
        Verdict::Happens => String::new(),
        Verdict::NoLonger => format!(" ({})", answer.why),
        Verdict::CannotTell => format!(" (not known: {})", answer.why),
    }
}

fn item(out: &mut String, words: &str) -> std::fmt::Result {
    for (nr, line) in text::wrap(words, text::width() - 4).iter().enumerate() {
        writeln!(out, "{} {line}", if nr == 0 { "  -" } else { "   " })?;
    }
    Ok(())
}

pub fn json(result: &LiveResult) -> Value {
    json!({
        "place": result.place,
        "kernel": result.kernel,
        "interrupted": result.interrupted,
        "rows": result.answers.iter().map(answer_json).collect::<Vec<_>>(),
        "sides": result.sides.iter().map(side_json).collect::<Vec<_>>(),
        "not_shown": result.not_shown,
    })
}

fn answer_json(answer: &Answer) -> Value {
    let question = answer.question;
    let bounds = answer.live.and_then(|live| live.bounds);
    json!({
        "id": question.id,
        "text": question.text,
        "of": question.of,
        "to": question.to.side(),
        "metric": question.metric,
        "published": answer.published,
        "simulated": answer.simulated,
        "live": answer.live.map(|live| figure::finite(live.value)),
        "low": bounds.map(|(low, _)| low),
        "high": bounds.map(|(_, high)| high),
        "verdict": answer.verdict.name(),
        "why": answer.why,
    })
}

fn side_json(side: &SideResult) -> Value {
    let runs: Vec<Map<String, Value>> =
        side.runs.iter().map(|run| run.iter().map(|(name, value)| (name.clone(), json!(value))).collect()).collect();
    json!({
        "id": side.side.id,
        "command": format!("iowhy {}", side.command),
        "disk": side.side.ground.describe(),
        "runs": runs,
        "refused": side.refused,
    })
}
