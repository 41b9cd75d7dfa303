//! A comparison as JUnit's XML: a test case for each metric, a failure for a regression, skipped if undecided, and the
//! numbers as properties. Characters that XML cannot hold are left out.
//!
//! Source: the schema that Jenkins and GitLab read (testsuites, testsuite, testcase, properties, failure, skipped).

use std::fmt::Write;

use super::gate::{Gate, Outcome};
use super::{Comparison, Row};
use iowhy_text::quantity;

/// The document.
pub fn text(comparison: &Comparison, gate: &Gate) -> String {
    let count = |outcome: Outcome| gate.outcomes.iter().filter(|of| **of == outcome).count();
    let totals = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
        comparison.rows.len(),
        count(Outcome::Fail),
        count(Outcome::Open)
    );
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let suite = escaped(&format!("{} against {}", comparison.b, comparison.a));
    let _ = writeln!(text, "<testsuites name=\"iowhy\" {totals}>\n <testsuite name=\"{suite}\" {totals}>");
    for (row, outcome) in comparison.rows.iter().zip(&gate.outcomes) {
        case(&mut text, row, *outcome);
    }
    text.push_str(" </testsuite>\n</testsuites>\n");
    text
}

fn case(text: &mut String, row: &Row, outcome: Outcome) {
    let name = escaped(&row.metric.name);
    let _ = writeln!(text, "  <testcase classname=\"iowhy\" name=\"{name}\">\n   <properties>");
    let numbers = [
        ("a.n", row.a.n as f64),
        ("a.median", row.a.median),
        ("a.mean", row.a.mean),
        ("b.n", row.b.n as f64),
        ("b.median", row.b.median),
        ("b.mean", row.b.mean),
        ("change_pct", row.change_pct),
        ("ci_low_pct", row.ci_pct.0),
        ("ci_high_pct", row.ci_pct.1),
        ("p", row.p),
        ("p_adjusted", row.p_adjusted),
    ];
    let numbers = numbers.iter().map(|(name, value)| (*name, value.to_string()));
    let words = [
        ("unit", row.metric.unit.clone()),
        ("better", row.metric.better.word().to_owned()),
        ("verdict", row.verdict.word().to_owned()),
    ];
    for (name, value) in numbers.chain(words) {
        let _ = writeln!(text, "    <property name=\"{name}\" value=\"{}\"/>", escaped(&value));
    }
    text.push_str("   </properties>\n");
    let message = escaped(&summary(row));
    let because = escaped(&row.because);
    match outcome {
        Outcome::Fail => {
            let _ = writeln!(text, "   <failure type=\"regression\" message=\"{message}\">{because}</failure>");
        }
        Outcome::Open => {
            let _ = writeln!(text, "   <skipped message=\"{message}\"/>");
        }
        Outcome::Pass => {}
    }
    if !row.warnings.is_empty() {
        let warnings = row.warnings.iter().map(|warning| format!("warning: {}\n", warning.text())).collect::<String>();
        let _ = writeln!(text, "   <system-out>{}</system-out>", escaped(&warnings));
    }
    text.push_str("  </testcase>\n");
}

/// A row in a line.
pub(super) fn summary(row: &Row) -> String {
    let (low, high) = row.ci_pct;
    format!(
        "{}: {} -> {}, {:+.2} % [{low:+.2} % .. {high:+.2} %], p {:.4}",
        row.verdict.word(),
        quantity(row.a.median, &row.metric.unit, 4),
        quantity(row.b.median, &row.metric.unit, 4),
        row.change_pct,
        row.p_adjusted
    )
}

/// For text and attributes alike. XML 1.0 has no control characters but three, and not the last two of a plane.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&apos;"),
            // As references, or a parser would make blanks of them within attributes.
            '\t' | '\n' | '\r' => {
                let _ = write!(result, "&#{};", c as u32);
            }
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::{comparison, row};
    use crate::{Verdict, gate};
    use iowhy_stats::Better;

    #[test]
    fn a_case_for_each_metric_with_what_became_of_it() {
        let rows = vec![
            row(Better::Lower, (3.0, 6.0), Verdict::Regression),
            row(Better::Lower, (-3.0, 6.0), Verdict::Inconclusive),
            row(Better::Lower, (-0.3, 0.6), Verdict::Same),
        ];
        let table = comparison(rows, Verdict::Regression);
        let xml = text(&table, &gate::by_verdict(&table));
        assert!(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"iowhy\" tests=\"3\" "));
        assert_eq!(xml.matches("<testcase ").count(), 3);
        assert_eq!((xml.matches("<failure ").count(), xml.matches("<skipped ").count()), (1, 1));
        assert!(xml.contains("failures=\"1\" errors=\"0\" skipped=\"1\""), "{xml}");
        assert!(xml.contains("message=\"regression: 1.250 s -&gt; 1.500 s, +4.50 % [+3.00 % .. +6.00 %], p 0.0246\""));
        for tag in ["testsuites", "testsuite", "testcase", "properties", "failure"] {
            let (open, close) = (xml.matches(&format!("<{tag} ")).count(), xml.matches(&format!("</{tag}>")).count());
            assert_eq!(open + xml.matches(&format!("<{tag}>")).count(), close, "{tag}");
        }
    }

    #[test]
    fn whatever_a_label_holds_the_document_stays_one() {
        let mut table = comparison(vec![row(Better::Lower, (3.0, 6.0), Verdict::Regression)], Verdict::Regression);
        table.b = "</testsuite>\"'&\u{0}\u{1b}\u{ffff}\nx".to_owned();
        let xml = text(&table, &gate::by_verdict(&table));
        assert!(xml.contains("name=\"&lt;/testsuite&gt;&quot;&apos;&amp;&#10;x against old\""), "{xml}");
        assert!(!xml.chars().any(|c| c.is_control() && c != '\n'));
    }
}
