//! Numbers, one a line.
//!
//! `#` begins a comment; blank lines are skipped. Values that are not finite are counted and left out. Anything else is
//! a mistake with its line and column.

use super::{Format, Reader, UNNAMED, lines, number};
use iowhy_stats::metric::Metric;

pub const FORMAT: Format =
    Format { name: "numbers", summary: "one number a line, `#` begins a comment", detect: |_| true, read };

fn read(reader: &mut Reader<'_>, text: &str) {
    let mut values = Vec::new();
    let mut left_out = 0;
    for (nr, line) in lines(text) {
        let told = line.split('#').next().unwrap_or_default();
        let word = told.trim();
        if word.is_empty() {
            continue;
        }
        match number(word.as_bytes()) {
            Some(value) if value.is_finite() => values.push(value),
            Some(_) => left_out += 1,
            None => {
                let start = told.find(word).unwrap_or_default();
                let help = if word.contains([' ', ',', ';', '\t']) {
                    "one number a line; or a first line with names of columns (CSV)"
                } else {
                    "one number a line; anything else goes behind #"
                };
                reader.wrong(nr, line, start..start + word.len(), "not a number", help);
            }
        }
    }
    let column = reader.column(UNNAMED, || Metric::of(UNNAMED));
    column.values = values;
    column.left_out = left_out;
}
