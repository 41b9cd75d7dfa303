//! A comparison as annotations of GitHub's workflows: an error for each regression, a warning if undecided, a notice
//! for an improvement. Metrics that stay the same are not worth an annotation.
//!
//! Source: GitHub's workflow commands; `%`, CR and LF are escaped in the text, `:` and `,` in properties as well.

use std::fmt::Write;

use super::gate::{Gate, Outcome};
use super::junit::summary;
use super::{Comparison, Verdict};
use iowhy_text::shown;

/// The lines.
pub fn text(comparison: &Comparison, gate: &Gate) -> String {
    let mut text = String::new();
    for (row, outcome) in comparison.rows.iter().zip(&gate.outcomes) {
        let (command, word) = match outcome {
            Outcome::Fail => ("error", "regression"),
            Outcome::Open => ("warning", "inconclusive"),
            Outcome::Pass if row.verdict == Verdict::Improvement => ("notice", "improvement"),
            Outcome::Pass => continue,
        };
        let title = property(&format!("{word}: {}", shown(&row.metric.name, 80)));
        let message = message(&format!(
            "{} of {} against {}: {}. {}",
            shown(&row.metric.name, 80),
            shown(&comparison.b, 80),
            shown(&comparison.a, 80),
            summary(row),
            row.because
        ));
        let _ = writeln!(text, "::{command} title={title}::{message}");
    }
    if comparison.rows.is_empty() {
        text.push_str("::warning title=inconclusive::there is nothing to compare\n");
    }
    text
}

fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use crate::text::tests::{comparison, row};
    use iowhy_stats::Better;

    #[test]
    fn each_annotation_is_a_line_whatever_is_in_it() {
        let mut rows = vec![
            row(Better::Lower, (3.0, 6.0), Verdict::Regression),
            row(Better::Lower, (-3.0, 6.0), Verdict::Inconclusive),
            row(Better::Lower, (-6.0, -3.0), Verdict::Improvement),
            row(Better::Lower, (-0.3, 0.6), Verdict::Same),
        ];
        rows[0].metric.name = "a,b:c%\r\n::error::x".to_owned();
        rows[0].because = "first\nsecond".to_owned();
        let table = comparison(rows, Verdict::Regression);
        let text = text(&table, &gate::by_verdict(&table));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("::error title=regression%3A a%2Cb%3Ac%25"), "{text}");
        assert!(lines[0].ends_with(" p 0.0246. first%0Asecond"), "{text}");
        assert!(lines[1].starts_with("::warning title=inconclusive%3A elapsed_s::"), "{text}");
        assert!(lines[2].starts_with("::notice title=improvement%3A elapsed_s::"), "{text}");
    }
}
