//! An explanation for people: what happened and why in a paragraph, then the figures, in 80 columns.

use std::fmt::Write;

use super::{Advice, Counterfactual, Evidence, Explanation, Finding, Unit};
use crate::compare::Verdict;
use crate::compare::text::{Style, quantity, shown};
use crate::text::wrap;

/// Widest line.
const WIDTH: usize = 80;
/// Longest label within a sentence.
const LABEL: usize = 40;
/// Characters of a bar.
const BAR: usize = 24;

/// A figure with its unit.
fn figure(value: f64, unit: Unit) -> String {
    match unit {
        // What is left of a difference of means is no time.
        Unit::Ns if value.abs() < 0.05 => "0 s".to_owned(),
        Unit::Ns => quantity(value / 1e9, "s", 3),
        Unit::Share => format!("{:.1} %", 100.0 * value),
        Unit::Bytes => {
            let kib = value / 1024.0;
            if kib >= 1024.0 { format!("{:.1} MiB", kib / 1024.0) } else { format!("{kib:.1} KiB") }
        }
        Unit::BytesPerS => quantity(value, "B/s", 3),
        Unit::Pages => format!("{} pages", plain(value)),
        Unit::Count | Unit::Ratio => plain(value),
    }
}

/// A number without digits that say nothing.
fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

fn indented(text: &mut String, first: &str, rest: &str, content: &str) {
    let width = WIDTH - first.chars().count().max(rest.chars().count());
    for (nr, line) in wrap(content, width).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if nr == 0 { first } else { rest });
    }
}

/// How sure, in a word.
fn sure(confidence: f64) -> &'static str {
    match confidence {
        c if c >= 0.9 => "almost certain",
        c if c >= 0.75 => "likely",
        _ => "possible",
    }
}

/// The difference in a sentence.
pub fn difference(explanation: &Explanation) -> String {
    let (a, b) = (shown(&explanation.a, LABEL), shown(&explanation.b, LABEL));
    let [before, after] = explanation.time_ns.map(|ns| figure(ns, Unit::Ns));
    let runs = format!("{} and {} runs", explanation.runs[0], explanation.runs[1]);
    let times = format!("an operation takes {before} in `{a}` and {after} in `{b}` ({runs})");
    let change = explanation.change_pct;
    match explanation.verdict {
        Verdict::Same if explanation.a == explanation.b => {
            format!("`{a}` has one mode: an operation takes {before} ({} runs).", explanation.runs[0])
        }
        Verdict::Same => format!("No difference to explain: {times}."),
        Verdict::Inconclusive => format!("Cannot tell: {times}; {}.", explanation.because),
        Verdict::Regression => format!("`{b}` is slower: {times}, {change:+.1} %."),
        Verdict::Improvement => format!("`{b}` is faster: {times}, {change:+.1} %."),
    }
}

/// The explanation as text.
pub fn text(explanation: &Explanation, style: Style) -> String {
    let bold = |words: &str| if style.colour { format!("\x1b[1m{words}\x1b[0m") } else { words.to_owned() };
    let mut text = String::new();
    indented(&mut text, "", "", &difference(explanation));
    let paragraph = summary(explanation);
    if !paragraph.is_empty() {
        text.push('\n');
        indented(&mut text, "", "", &paragraph);
    }
    for (nr, finding) in explanation.findings.iter().enumerate() {
        text.push('\n');
        let head = format!(
            "{} ({}): {:.0} % of the difference, {}",
            finding.rule.name,
            finding.rule.layer,
            finding.share_pct,
            sure(finding.confidence)
        );
        for (line, words) in wrap(&head, WIDTH - 3).iter().enumerate() {
            let number = if line == 0 { format!("{}. ", nr + 1) } else { "   ".to_owned() };
            let _ = writeln!(text, "{}", bold(&format!("{number}{words}")));
        }
        one_finding(&mut text, explanation, finding);
    }
    text.push('\n');
    let _ = writeln!(text, "{}", bold("Where the time of an operation goes"));
    waterfall(&mut text, explanation);
    if !explanation.warnings.is_empty() {
        text.push('\n');
        explanation.warnings.iter().for_each(|warning| indented(&mut text, "! ", "  ", &shown(warning, 400)));
    }
    text
}

/// The paragraph that whoever runs the database reads; empty if there is no difference to speak of.
pub fn summary(explanation: &Explanation) -> String {
    if matches!(explanation.verdict, Verdict::Same | Verdict::Inconclusive) {
        return String::new();
    }
    let Some(first) = explanation.findings.first() else {
        let largest = explanation.layers.iter().max_by(|x, y| x.delta().abs().total_cmp(&y.delta().abs()));
        let place = largest.map_or(String::new(), |layer| format!(" Most of it is in the layer {}.", layer.layer));
        return format!("None of the rules explains this.{place}");
    };
    let gone = explanation.change_pct < 0.0;
    let begin = if gone { "What is gone:" } else { "Why:" };
    let mut paragraph = format!("{begin} {} {}", first.rule.what, first.rule.why);
    match &first.counterfactual {
        Some(of) => {
            let _ = write!(
                paragraph,
                " Proved: with {} the change is {:+.1} % instead of {:+.1} %.",
                of.setting, of.change_pct_after, of.change_pct_before
            );
        }
        None => {
            let _ = write!(paragraph, " What to do: {}", first.rule.change);
        }
    }
    let others = explanation.findings.len() - 1;
    if others > 0 {
        let names: Vec<&str> = explanation.findings[1..].iter().map(|finding| finding.rule.name).collect();
        let _ = write!(paragraph, " It is not alone: {} as well.", names.join(", "));
    }
    paragraph
}

fn one_finding(text: &mut String, explanation: &Explanation, finding: &Finding) {
    indented(text, "   ", "   ", &finding.claim);
    if !finding.evidence.is_empty() {
        text.push('\n');
        let _ = writeln!(text, "   {:<45}{:>14}{:>16}", "", "A", "B");
        finding.evidence.iter().for_each(|of| line(text, of));
        text.push('\n');
    }
    if let Some(of) = &finding.counterfactual {
        indented(text, "   proved       ", "                ", &proved(of, explanation));
    }
    if let Some(of) = &finding.advice {
        indented(text, "   set          ", "                ", &advice(of));
    }
    indented(text, "   change       ", "                ", finding.rule.change);
    indented(text, "   refuted if   ", "                ", finding.rule.refute);
    indented(text, "   since        ", "                ", finding.rule.since);
}

fn line(text: &mut String, evidence: &Evidence) {
    let (a, b) = (figure(evidence.a, evidence.unit), figure(evidence.b, evidence.unit));
    let lines = wrap(&evidence.what, 44);
    for (nr, what) in lines.iter().enumerate() {
        if nr + 1 == lines.len() {
            let _ = writeln!(text, "   {what:<45}{a:>14}{b:>16}");
        } else {
            let _ = writeln!(text, "   {what}");
        }
    }
}

fn advice(of: &Advice) -> String {
    let measured = of.measured_pct.map_or(String::new(), |pct| format!(", measured {pct:+.1} %"));
    format!("{}: time for an operation on the slow side {:+.1} % by prediction{measured}", of.set, of.predicted_pct)
}

fn proved(of: &Counterfactual, explanation: &Explanation) -> String {
    let removed =
        if of.change_pct_before.abs() > 0.0 { 100.0 * (1.0 - of.change_pct_after / of.change_pct_before) } else { 0.0 };
    format!(
        "`{}` with {}: {:+.1} % instead of {:+.1} % against `{}`, interval [{:+.1}, {:+.1}] % from {} runs; \
         {removed:.0} % of the difference is gone",
        shown(&of.side, LABEL),
        of.setting,
        of.change_pct_after,
        of.change_pct_before,
        shown(if of.side == explanation.b { &explanation.a } else { &explanation.b }, LABEL),
        of.ci_pct.0,
        of.ci_pct.1,
        of.runs,
    )
}

/// Layers with their part of the difference, as bars to the left (less) or right (more).
fn waterfall(text: &mut String, explanation: &Explanation) {
    let most = explanation.layers.iter().map(|layer| layer.delta().abs()).fold(0.0, f64::max);
    let _ = writeln!(text, "   {:<18}{:>10}{:>11}{:>12}", "layer", "A", "B", "B - A");
    for layer in &explanation.layers {
        let delta = layer.delta();
        if layer.a.abs() + layer.b.abs() < 0.5 {
            continue;
        }
        let length = if most > 0.0 { (delta.abs() / most * BAR as f64).round() as usize } else { 0 };
        let bar = if delta < 0.0 { "-".repeat(length) } else { "#".repeat(length) };
        let sign = if delta < 0.0 { "-" } else { "+" };
        let of_a = if layer.a == 0.0 { String::new() } else { figure(layer.a, Unit::Ns) };
        let row = format!(
            "   {:<18}{of_a:>10}{:>11}{:>12} {bar}",
            layer.layer,
            figure(layer.b, Unit::Ns),
            format!("{sign}{}", figure(delta.abs(), Unit::Ns)),
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let [a, b] = explanation.time_ns;
    let sign = if b < a { "-" } else { "+" };
    let _ = writeln!(
        text,
        "   {:<18}{:>10}{:>11}{:>12}",
        "all",
        figure(a, Unit::Ns),
        figure(b, Unit::Ns),
        format!("{sign}{}", figure((b - a).abs(), Unit::Ns)),
    );
    if explanation.unexplained_pct > 0.05 {
        let _ =
            writeln!(text, "   {:.0} % of the difference is not explained by a finding", explanation.unexplained_pct);
    }
}
