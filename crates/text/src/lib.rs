//! Text for people: mistakes with their position, wrapped lines, sizes, pictures of characters; and files read with a
//! limit.

pub mod diagnose;
pub mod input;
pub mod openmetrics;
pub mod part;
pub mod picture;
mod quantity;

use std::sync::atomic::{AtomicUsize, Ordering};

pub use quantity::quantity;
use unicode_width::UnicodeWidthStr;

/// Columns of the output; 80 where no terminal has others.
static WIDTH: AtomicUsize = AtomicUsize::new(80);

/// Columns of the output.
pub fn width() -> usize {
    WIDTH.load(Ordering::Relaxed)
}

/// Takes a terminal's columns, from 40 to 200.
pub fn set_width(columns: usize) {
    WIDTH.store(columns.clamp(40, 200), Ordering::Relaxed);
}

/// `flag` in a column, `help` wrapped to the right of it.
pub fn item(flag: &str, help: &str, column: usize) -> String {
    let mut text = format!("  {flag}");
    let width = width().saturating_sub(column + 2).max(20);
    let lines = wrap(help, width);
    if flag.chars().count() + 2 > column {
        text.push('\n');
        text.push_str(&" ".repeat(column + 2));
    } else {
        text.push_str(&" ".repeat(column - flag.chars().count()));
    }
    for (nr, line) in lines.iter().enumerate() {
        if nr > 0 {
            text.push_str(&" ".repeat(column + 2));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// A text from outside, safe to show: control characters, marks of direction and characters without width are written
/// out, and text wider than `most` columns is cut.
pub fn shown(text: &str, most: usize) -> String {
    // Most names are short and plain.
    if text.len() <= most && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut result = String::new();
    let mut left = most;
    for c in text.chars() {
        let unfit = c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
        let piece = if unfit { c.escape_unicode().to_string() } else { c.to_string() };
        // However many are drawn over one another: the text has an end.
        let width = columns(&piece).max(1);
        if width > left {
            // The cut takes a place, too.
            if left == 0 {
                result.pop();
            }
            result.push('…');
            break;
        }
        left -= width;
        result.push_str(&piece);
    }
    result
}

/// `text` in lines of at most `width` columns, broken at spaces; a word that is wider is broken anywhere.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let words = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let options = textwrap::Options::new(width)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(&words, options);
    lines.into_iter().filter(|line| !line.is_empty()).map(std::borrow::Cow::into_owned).collect()
}

/// A number of bytes as sysbench prints it: up to five significant digits and a binary unit (`16MiB`).
pub fn size(bytes: u64) -> String {
    const UNITS: &[&str] = &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    // At most 4 digits stand before the point, so at least one may follow it.
    let before = (value.max(1.0).log10().floor() as usize) + 1;
    let mut digits = format!("{value:.*}", 5usize.saturating_sub(before));
    if digits.contains('.') {
        digits.truncate(digits.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{digits}{}", UNITS[unit])
}

/// A count of things: `1 read`, `2 reads`, with groups of three digits (`14,520 reads`).
pub fn count(n: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { singular } else { plural })
}

/// Digits in groups of three.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_like_sysbench() {
        for (bytes, expected) in [
            (0, "0B"),
            (16384, "16KiB"),
            (24 << 20, "24MiB"),
            (3 << 30, "3GiB"),
            (1536, "1.5KiB"),
            (1000, "1000B"),
            (100_000_000, "95.367MiB"),
            (u64::MAX, "16EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn long_help_wraps_into_its_column() {
        assert_eq!(item("--a", "b c", 6), "  --a   b c\n");
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("名前 bb cc", 7), ["名前 bb", "cc"]);
        assert_eq!(wrap("a bcdefgh 名前", 3), ["a", "bcd", "efg", "h", "名", "前"]);
        assert_eq!(wrap("名", 1), ["名"]);
        assert!(item("--a-very-long-flag", "help", 6).starts_with("  --a-very-long-flag\n        help"));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        for (text, expected) in [("", 0), ("plain", 5), ("größe µs ▁█", 11), ("名前", 4), ("a한😀", 5), ("e\u{301}", 1)]
        {
            assert_eq!(columns(text), expected, "{text}");
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(1, "read", "reads"), "1 read");
        assert_eq!(count(1_234_567, "read", "reads"), "1,234,567 reads");
        assert_eq!(grouped(0), "0");
    }
}
