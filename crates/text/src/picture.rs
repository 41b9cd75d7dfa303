//! Pictures of characters: sparklines, floating bars, lanes of load, axes. Numbers in, one line out.
//!
//! ```text
//! sparkline   ▁▂▃▄▅▆▇█    a value in eighths of the range; half of it where all are equal; a blank for no number
//! counts      ▁▂ ▄▅▆ █    a count in eighths of the largest, a blank for none
//! bar           ███       from one value to another; a length too short for a character is a thin line, or nothing
//! calls       r=2=        a letter where one begins, a number where several do, = while one is in progress
//! windows     s..A        a letter for the reason, a capital for several, a dot where pages were found
//! load        ░▒▓█2..9+   how many at once on average: up to a quarter, a half, less than one, one, that many
//! device      ██!█2       the same, with a mark where it is idle while requests wait
//! axis        |0   |5 ms  labels whose marks are at their columns, as many as have room
//! ```
//! Nothing here is coloured, and nothing is wider than it was asked for. All characters are one column wide; in
//! terminals that show characters of ambiguous width in two (East Asian locales), pictures are wider than requested.

/// Eighths of a character, from below.
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values in their order, from `low` to `high`.
pub fn sparkline(values: &[f64], low: f64, high: f64) -> String {
    let block = |value: &f64| {
        let height = (value - low) / (high - low);
        match value.is_finite() {
            false => ' ',
            true if height.is_finite() => EIGHTHS[((height * 8.0).max(0.0) as usize).min(7)],
            true => EIGHTHS[3],
        }
    };
    values.iter().map(block).collect()
}

/// Counts, of which the largest may be `most`; every count above 0 can be seen.
pub fn counts(values: &[f64], most: f64) -> String {
    let block = |value: &f64| match (value / most * 8.0).ceil() {
        height if *value > 0.0 && height.is_finite() => EIGHTHS[(height as usize).clamp(1, 8) - 1],
        _ => ' ',
    };
    values.iter().map(block).collect()
}

/// A bar between two values on a scale from 0 to `most`, which is `width` characters long.
pub fn bar((from, to): (f64, f64), most: f64, width: usize, of: char) -> String {
    let place = |value: f64| {
        let place = (value / most * width as f64).round();
        if place.is_finite() { (place.max(0.0) as usize).min(width) } else { 0 }
    };
    let (low, high) = (place(from.min(to)), place(from.max(to)));
    if low < high {
        return " ".repeat(low) + &of.to_string().repeat(high - low);
    }
    if (to - from).abs() >= most / 1000.0 && most > 0.0 {
        return " ".repeat(low.min(width.saturating_sub(1))) + "│";
    }
    String::new()
}

/// How many of something there are at once, on average over the time that a character stands for.
pub fn load(mean: f64) -> char {
    match mean {
        mean if mean > 9.5 => '+',
        mean if mean >= 1.5 => char::from_digit(mean.round() as u32, 10).unwrap_or('9'),
        mean if mean > 0.95 => '█',
        mean if mean > 0.5 => '▓',
        mean if mean > 0.25 => '▒',
        mean if mean > 0.0 => '░',
        _ => ' ',
    }
}

/// Calls in a character's time: how many begin, the first of them with this letter, and how many are in progress.
pub fn calls(letter: Option<char>, begun: u32, open: f64) -> char {
    match (begun, letter) {
        (0, _) if open > 0.0 => '=',
        (0, _) => ' ',
        (1, Some(letter)) => letter,
        (begun, _) => char::from_digit(begun, 10).unwrap_or('+'),
    }
}

/// Windows in a character's time: the letter of the first, a capital if there are several, and whether pages are found.
pub fn windows(letter: Option<char>, number: u32, found: bool) -> char {
    match letter {
        Some(letter) if number > 1 => letter.to_ascii_uppercase(),
        Some(letter) => letter,
        None if found => '.',
        None => ' ',
    }
}

/// Requests at a device, or a mark where it has nothing to do for more than a tenth of the time while requests wait.
pub fn device(mean: f64, stalled: f64) -> char {
    if stalled > 0.1 { '!' } else { load(mean) }
}

/// The legend of [`load`].
pub const LOAD: &str = "░▒▓ part of the time, █ one, 2-9 that many, + more";

/// Labels that begin with a mark at their columns. One that would overlap with the label before it, or go beyond
/// `width`, is left out.
pub fn axis(labels: &[(usize, String)], width: usize) -> String {
    let (mut line, mut end) = (String::new(), 0);
    for (at, label) in labels {
        let long = label.chars().count();
        if at + long <= width && *at >= end {
            line += &" ".repeat(at - end);
            line += label;
            end = at + long;
        }
    }
    line
}

/// Characters at columns; several at one are a star.
pub fn marks(marks: &[(usize, char)]) -> String {
    let mut line: Vec<char> = Vec::new();
    for (at, mark) in marks {
        if line.len() <= *at {
            line.resize(at + 1, ' ');
        }
        line[*at] = if line[*at] == ' ' { *mark } else { '*' };
    }
    line.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_become_blocks() {
        for (values, low, high, expected) in [
            (&[0.0, 4.0, 8.0][..], 0.0, 8.0, "▁▅█"),
            (&[5.0, 5.0], 5.0, 5.0, "▄▄"),
            (&[], 0.0, 1.0, ""),
            (&[-1.0, f64::NAN, 9.0], 0.0, 8.0, "▁ █"),
            (&[1.0], f64::NEG_INFINITY, f64::INFINITY, "▄"),
        ] {
            assert_eq!(sparkline(values, low, high), expected, "{values:?}");
        }
        for (values, most, expected) in [
            (&[0.0, 1.0, 4.0, 8.0][..], 8.0, " ▁▄█"),
            (&[0.0, 0.001, 100.0], 100.0, " ▁█"),
            (&[0.0, 0.0], 0.0, "  "),
            (&[], 1.0, ""),
            (&[f64::NAN, 1.0], 1.0, " █"),
        ] {
            assert_eq!(counts(values, most), expected, "{values:?}");
        }
    }

    #[test]
    fn bars_float_and_short_ones_are_lines() {
        for (span, most, expected) in [
            ((0.0, 8.0), 8.0, "########"),
            ((2.0, 4.0), 8.0, "  ##"),
            ((4.0, 2.0), 8.0, "  ##"),
            ((2.0, 2.1), 8.0, "  │"),
            ((8.0, 7.9), 8.0, "       │"),
            ((2.0, 2.0), 8.0, ""),
            ((2.0, 2.001), 8.0, ""),
            ((0.0, 0.0), 0.0, ""),
            ((-4.0, 100.0), 8.0, "########"),
        ] {
            assert_eq!(bar(span, most, 8, '#'), expected, "{span:?} of {most}");
        }
    }

    #[test]
    fn load_is_told_in_one_character() {
        let all = [0.0, 0.01, 0.25, 0.26, 0.5, 0.6, 0.96, 1.0, 1.49, 1.5, 2.4, 9.4, 9.6, 1e9, f64::NAN];
        assert_eq!(all.map(load).iter().collect::<String>(), " ░░▒▒▓███229++ ");
        assert_eq!([device(2.0, 0.1), device(0.8, 0.2), device(0.0, 1.0)], ['2', '!', '!']);
    }

    #[test]
    fn calls_and_windows_have_letters() {
        for (letter, begun, open, expected) in [
            (Some('r'), 1, 1.0, 'r'),
            (Some('w'), 3, 1.0, '3'),
            (Some('w'), 10, 1.0, '+'),
            (None, 0, 0.1, '='),
            (None, 0, 0.0, ' '),
        ] {
            assert_eq!(calls(letter, begun, open), expected);
        }
        for (letter, number, found, expected) in
            [(Some('s'), 1, true, 's'), (Some('a'), 2, false, 'A'), (None, 0, true, '.'), (None, 0, false, ' ')]
        {
            assert_eq!(windows(letter, number, found), expected);
        }
    }

    #[test]
    fn labels_leave_room_for_one_another() {
        let labels = |all: &[(usize, &str)]| all.iter().map(|(at, of)| (*at, (*of).to_owned())).collect::<Vec<_>>();
        for (all, expected) in [
            (&[(0, "|0"), (5, "|1 ms"), (11, "|2 ms")][..], "|0   |1 ms |2 ms"),
            (&[(0, "|0"), (1, "|1"), (2, "|2"), (3, "|3")], "|0|2"),
            (&[(0, "|0"), (14, "|long")], "|0"),
            (&[(3, "|late")], "   |late"),
            (&[], ""),
        ] {
            assert_eq!(axis(&labels(all), 16), expected);
        }
        assert_eq!(marks(&[(2, 'a'), (5, 'b'), (2, 'c')]), "  *  b");
        assert_eq!(marks(&[]), "");
    }

    proptest! {
        /// Whatever the numbers, a picture has at most its width, and only printable characters.
        #[test]
        fn pictures_keep_to_their_width(
            values in prop::collection::vec(prop_oneof![any::<f64>(), Just(0.0), Just(1.0)], 0..40),
            (low, high) in (any::<f64>(), any::<f64>()),
            columns in prop::collection::vec((0..90usize, "[a-z]{0,9}"), 0..9),
        ) {
            let lines = [
                sparkline(&values, low, high),
                counts(&values, high),
                values.iter().map(|value| load(*value)).collect(),
            ];
            for line in &lines {
                prop_assert_eq!(line.chars().count(), values.len());
            }
            let bar = bar((low, high), values.first().copied().unwrap_or(1.0), 24, '█');
            prop_assert!(bar.chars().count() <= 24, "{}", bar);
            let mut columns = columns;
            columns.sort();
            let axis = axis(&columns, 64);
            prop_assert!(axis.chars().count() <= 64, "{}", axis);
            prop_assert!(!lines.concat().chars().chain(bar.chars()).any(char::is_control));
        }
    }
}
