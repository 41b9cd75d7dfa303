//! A bar chart in the language of Mermaid, which comments in Markdown show as a picture.

use super::Comparison;
use iowhy_text::shown;

/// Bars of the changes of each metric, in percent of the base.
pub fn text(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.rows.iter().filter(|row| row.change_pct.is_finite()).collect();
    // A quote ends a text, and has no escape.
    let quoted = |text: &str| format!("\"{}\"", shown(text, 40).replace('"', "'"));
    let names: Vec<String> = rows.iter().map(|row| quoted(&row.metric.name)).collect();
    let bars: Vec<String> = rows.iter().map(|row| format!("{:.2}", row.change_pct)).collect();
    let title = format!("{} to {}: {}", shown(&comparison.a, 30), shown(&comparison.b, 30), comparison.verdict.word());
    format!(
        "```mermaid\nxychart-beta\n    title \"{}\"\n    x-axis [{}]\n    y-axis \"change, %\"\n    bar [{}]\n```\n",
        title.replace('"', "'"),
        names.join(", "),
        bars.join(", ")
    )
}
