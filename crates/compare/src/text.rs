//! A comparison for people: 80 columns, a sentence first, then each metric with its samples in order, medians, the
//! change with its interval, modes apart and where their samples lie, and warnings with what to do next. The method
//! stands at the end, with its literature if that is asked for.
//!
//! Labels and names come from files and command lines. They may hold anything, so nothing of them reaches a terminal
//! that is not fit to be shown ([`shown`]).

use std::fmt::Write;

use super::drawn::{self, COLUMNS, Drawn};
use super::gate::{self, Gate, Outcome};
use super::options;
use super::warning::Warning;
use super::{Calibration, Comparison, Row, Summary, Verdict};
use iowhy_stats::modes::Mode;
use iowhy_text::picture;
use iowhy_text::{columns, quantity, shown, wrap};

/// Longest label within a sentence.
const LABEL: usize = 40;

/// Whether to use colours: on a terminal that wants them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colours and bold words.
    pub colour: bool,
    /// Methods with their literature.
    pub verbose: bool,
}

impl Style {
    /// Words that stand out, if there are colours.
    pub fn bold(self, words: &str) -> String {
        self.paint("1", words)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn verdict(self, verdict: Verdict, text: &str) -> String {
        self.paint(
            match verdict {
                Verdict::Regression => "1;31",
                Verdict::Improvement => "1;32",
                Verdict::Same => "1",
                Verdict::Inconclusive => "1;33",
            },
            text,
        )
    }
}

/// A change in percent, with its sign.
fn percent(value: f64) -> String {
    match value {
        value if value.is_nan() => "?".to_owned(),
        f64::INFINITY => "+∞".to_owned(),
        f64::NEG_INFINITY => "-∞".to_owned(),
        value if value.abs() < 9.995 => format!("{value:+.2} %"),
        value if value.abs() < 99.95 => format!("{value:+.1} %"),
        value => format!("{value:+.0} %"),
    }
}

fn interval((low, high): (f64, f64)) -> String {
    if low.is_finite() || high.is_finite() {
        format!("[{}, {}]", percent(low), percent(high))
    } else {
        "[no bounds]".to_owned()
    }
}

fn probability(p: f64) -> String {
    match p {
        p if p.is_nan() => "p ?".to_owned(),
        p if p < 0.0001 => "p < 0.0001".to_owned(),
        p => format!("p {p:.4}"),
    }
}

/// A comparison as text; with a gate, its decision comes first.
pub fn text(comparison: &Comparison, gate: Option<&Gate>, style: Style) -> String {
    let mut text = String::new();
    let (word, sentence) = match gate {
        Some(gate) => of_gate(comparison, gate),
        None => of_verdict(comparison),
    };
    if let Some(sentence) = options::sentence(&comparison.options) {
        paragraph(&mut text, "", &sentence);
    }
    let lines = wrap(&format!("{word}: {sentence}"), iowhy_text::width());
    let painted = match gate.map(|gate| gate.outcome) {
        None => style.verdict(comparison.verdict, word),
        Some(Outcome::Fail) => style.verdict(Verdict::Regression, word),
        Some(Outcome::Pass) => style.verdict(Verdict::Same, word),
        Some(Outcome::Open) => style.verdict(Verdict::Inconclusive, word),
    };
    text += &lines.join("\n").replacen(word, &painted, 1);
    text += "\n\n";
    paragraph(&mut text, "A  ", &format!("base: {}", shown(&comparison.a, 60)));
    paragraph(&mut text, "B  ", &format!("candidate: {}", shown(&comparison.b, 60)));
    for (nr, row) in comparison.rows.iter().enumerate() {
        text.push('\n');
        let outcome = gate.and_then(|gate| gate.outcomes.get(nr));
        one_row(&mut text, comparison, row, outcome.copied(), style);
    }
    if !comparison.warnings.is_empty() {
        text.push('\n');
        warnings(&mut text, "", &comparison.warnings);
    }
    if !comparison.latencies.is_empty() {
        let line = format!("latencies of single calls, runs drawn before calls: {}", tails(&comparison.latencies));
        text.push('\n');
        paragraph(&mut text, "", &line);
    }
    for known in &comparison.calibration {
        text.push('\n');
        paragraph(&mut text, "", &calibration(known));
    }
    text.push('\n');
    match style.verbose {
        true => methods(&mut text, comparison, gate),
        false => paragraph(&mut text, "", &method(comparison, gate)),
    }
    text
}

/// The verdict in a sentence.
pub fn sentence(comparison: &Comparison) -> String {
    of_verdict(comparison).1
}

fn of_verdict(comparison: &Comparison) -> (&'static str, String) {
    let label = |label: &str| format!("`{}`", shown(label, LABEL));
    let (a, b) = (label(&comparison.a), label(&comparison.b));
    let of = |verdict: Verdict| comparison.rows.iter().filter(move |row| row.verdict == verdict);
    let shift = |row: &Row| {
        let direction = if row.change_pct < 0.0 { "lower" } else { "higher" };
        format!(
            "{} of {b} is {} {direction} than that of {a}, {} % interval {}",
            shown(&row.metric.name, LABEL),
            percent(row.change_pct.abs()).trim_start_matches('+'),
            level(comparison),
            interval(row.ci_pct)
        )
    };
    let more = |verdict: Verdict| match of(verdict).count().saturating_sub(1) {
        0 => ".".to_owned(),
        1 => "; one more metric, too.".to_owned(),
        more => format!("; {more} more metrics, too."),
    };
    match comparison.verdict {
        Verdict::Regression => {
            ("Regression", of(Verdict::Regression).next().map_or(String::new(), shift) + &more(Verdict::Regression))
        }
        Verdict::Improvement => {
            ("Improvement", of(Verdict::Improvement).next().map_or(String::new(), shift) + &more(Verdict::Improvement))
        }
        Verdict::Same => (
            "Same",
            format!("{b} is certainly within {} % of {a} in all that was compared.", comparison.settings.margin_pct),
        ),
        Verdict::Inconclusive if comparison.rows.is_empty() => {
            ("Cannot tell", format!("{a} and {b} have no metric in common."))
        }
        Verdict::Inconclusive => {
            let names: Vec<String> = of(Verdict::Inconclusive).map(|row| shown(&row.metric.name, LABEL)).collect();
            let more = match names.len() {
                0..=3 => String::new(),
                n => format!(" and {} more", n - 3),
            };
            let names = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            ("Cannot tell", format!("the samples do not say whether {b} differs from {a} in {names}{more}."))
        }
    }
}

fn of_gate(comparison: &Comparison, gate: &Gate) -> (&'static str, String) {
    let allowance = gate.allowance_pct.unwrap_or(comparison.settings.margin_pct);
    let of = |outcome: Outcome| {
        let rows = comparison.rows.iter().zip(&gate.outcomes).filter(move |(_, of)| **of == outcome);
        let names: Vec<String> = rows.map(|(row, _)| shown(&row.metric.name, LABEL)).collect();
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        names.iter().take(3).cloned().collect::<Vec<_>>().join(", ") + &more
    };
    let b = format!("`{}`", shown(&comparison.b, LABEL));
    match gate.outcome {
        Outcome::Fail => {
            ("FAIL", format!("{} of {b} got worse by more than {allowance} %, certainly.", of(Outcome::Fail)))
        }
        Outcome::Pass => ("PASS", format!("nothing of {b} got worse by more than {allowance} %, certainly.")),
        Outcome::Open if comparison.rows.is_empty() => ("CANNOT TELL", "there is nothing to compare.".to_owned()),
        Outcome::Open => (
            "CANNOT TELL",
            format!(
                "the samples do not say whether {} of {b} got worse by more than {allowance} %.",
                of(Outcome::Open)
            ),
        ),
    }
}

/// The level of the intervals, percent, without digits that only the binary fraction has.
fn level(comparison: &Comparison) -> f64 {
    ((1.0 - comparison.settings.alpha) * 1e6).round() / 1e4
}

fn one_row(text: &mut String, comparison: &Comparison, row: &Row, outcome: Option<Outcome>, style: Style) {
    let name = shown(&row.metric.name, 52);
    let better = row.metric.better.word();
    let verdict = match outcome {
        None => row.verdict.word().to_owned(),
        Some(outcome) => format!("{} ({})", outcome.word(), row.verdict.word()),
    };
    let line = format!("{name} ({better} is better): ");
    if columns(&line) + columns(&verdict) > iowhy_text::width() {
        let _ = writeln!(text, "{}\n  {}", line.trim_end(), style.verdict(row.verdict, &verdict));
    } else {
        let _ = writeln!(text, "{line}{}", style.verdict(row.verdict, &verdict));
    }
    let drawn = drawn::of(row);
    for (letter, side, values) in [("A", &row.a, &drawn.columns[0]), ("B", &row.b, &drawn.columns[1])] {
        let sparks = picture::sparkline(values, drawn.range.0, drawn.range.1);
        let _ = write!(text, "  {letter}  {sparks:<COLUMNS$}  n {:<7}", side.n);
        if side.n > 0 {
            let _ = write!(text, " median {:<14}", quantity(side.median, &row.metric.unit, 4));
        }
        if side.cv_pct.is_finite() {
            let _ = write!(text, " cv {:.1} %", side.cv_pct);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if drawn.per_column > 1.0 {
        let _ =
            writeln!(text, "  a column is the median of up to {:.0} samples in their order", drawn.per_column.ceil());
    }
    if !row.change_pct.is_nan() {
        let adjusted =
            if comparison.rows.len() > 1 { format!(", {:.4} over all rows", row.p_adjusted) } else { String::new() };
        let change =
            format!("change {} {}; {}{adjusted}", percent(row.change_pct), interval(row.ci_pct), probability(row.p));
        paragraph(text, "  ", &change);
    }
    paragraph(text, "  ", &shown(&row.because, 400));
    if row.a.modes.len() > 1 || row.b.modes.len() > 1 {
        let unit = &row.metric.unit;
        paragraph(text, "  ", &format!("A: {}; B: {}", modes(&row.a, unit), modes(&row.b, unit)));
        places(text, &drawn, unit);
    }
    if !row.tails.is_empty() {
        paragraph(text, "  ", &format!("tails: {}", tails(&row.tails)));
    }
    if row.verdict == Verdict::Inconclusive {
        if row.detectable_pct.is_finite() {
            let digits = if row.detectable_pct < 10.0 { 1 } else { 0 };
            paragraph(text, "  ", &format!("these samples would show a change of {:.digits$} %", row.detectable_pct));
        }
        if let Some(runs) = row.runs_needed.filter(|runs| *runs > 0) {
            let margin = comparison.settings.margin_pct;
            paragraph(text, "  ", &format!("{runs} more runs of each side would be needed to see {margin} %"));
        }
    }
    warnings(text, "  ", &row.warnings);
}

/// Modes in words: `two, 71 % near 1.9 GB/s, 29 % near 1.2 GB/s`.
fn modes(side: &Summary, unit: &str) -> String {
    const WORDS: [&str; 5] = ["no mode", "one mode", "two", "three", "four"];
    let word = WORDS.get(side.modes.len()).map_or_else(|| side.modes.len().to_string(), |word| (*word).to_owned());
    if side.modes.len() < 2 {
        return word;
    }
    let mut order: Vec<&Mode> = side.modes.iter().collect();
    order.sort_by_key(|mode| std::cmp::Reverse(mode.count));
    let one = |mode: &&Mode| format!(", {:.0} % near {}", 100.0 * mode.share, quantity(mode.centre, unit, 2));
    word + &order.iter().map(one).collect::<String>()
}

/// How many samples lie where, from the smallest of both sides to the largest.
fn places(text: &mut String, drawn: &Drawn, unit: &str) {
    let Some(sides) = &drawn.places else { return };
    for (letter, counts) in [("A", &sides[0]), ("B", &sides[1])] {
        let most = counts.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(text, "{}", format!("  {letter}  {}", picture::counts(counts, most)).trim_end());
    }
    let [low, high] = [drawn.range.0, drawn.range.1].map(|value| quantity(value, unit, 3));
    let right = drawn::PLACES.saturating_sub(columns(&high));
    let line = picture::axis(&[(0, low), (right, high)], drawn::PLACES);
    let _ = writeln!(text, "     {line}");
}

fn warnings(text: &mut String, indent: &str, list: &[Warning]) {
    for warning in list {
        paragraph(text, indent, &format!("warning: {}", warning.text()));
        paragraph(text, &format!("{indent}  "), &format!("next: {}", warning.kind().next));
    }
}

fn tails(tails: &[super::TailShift]) -> String {
    let one = |tail: &super::TailShift| {
        format!("p{} {} {}", tail.quantile_pct, percent(tail.change_pct), interval(tail.ci_pct))
    };
    tails.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn calibration(known: &Calibration) -> String {
    format!(
        "This machine, from {} runs of `{}` ({}): {} of {} comparisons of equal runs ({} a side) raised an alarm \
         ({:.1} .. {:.1} %); the smallest change it shows is {:.1} %.",
        known.runs,
        shown(&known.job, 60),
        shown(&known.metric, LABEL),
        known.false_alarms,
        known.comparisons,
        known.per_side,
        100.0 * known.false_alarm_ci.0,
        100.0 * known.false_alarm_ci.1,
        known.detectable_pct
    )
}

/// The deciding method and its levels.
pub(super) fn method(comparison: &Comparison, gate: Option<&Gate>) -> String {
    let settings = &comparison.settings;
    let mut names: Vec<&str> = Vec::new();
    for method in comparison.rows.iter().filter_map(|row| row.methods.first()) {
        if !names.contains(&method.name) {
            names.push(method.name);
        }
    }
    let name = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (level, margin) = (level(comparison), settings.margin_pct);
    let rule = gate
        .and_then(|gate| gate.allowance_pct)
        .map_or_else(String::new, |allowance| format!(" The gate allows {allowance} % and {}.", gate::RULE));
    format!("Method: {name}; {level} % intervals; up to {margin} % counts as no change.{rule}")
}

fn methods(text: &mut String, comparison: &Comparison, gate: Option<&Gate>) {
    let settings = &comparison.settings;
    let mut how = format!(
        "Levels: alpha {} over all rows, intervals at {} %, no difference up to {} %; {} draws, seed {}.",
        settings.alpha,
        level(comparison),
        settings.margin_pct,
        settings.draws,
        settings.seed
    );
    if let Some(Gate { allowance_pct: Some(allowance), .. }) = gate {
        let _ = write!(how, " The gate allows {allowance} % and {}.", gate::RULE);
    }
    paragraph(text, "", &how);
    let mut told: Vec<&str> = Vec::new();
    for method in comparison.rows.iter().flat_map(|row| &row.methods) {
        if !told.contains(&method.name) {
            told.push(method.name);
            paragraph(text, "  ", &format!("{}: {} ({})", method.name, method.summary, method.reference));
        }
    }
}

/// A paragraph in lines that fit, all of them indented; the first begins with `indent` itself.
fn paragraph(text: &mut String, indent: &str, words: &str) {
    let width = indent.chars().count();
    for (nr, line) in wrap(words, iowhy_text::width().saturating_sub(width).max(20)).iter().enumerate() {
        let before = if nr == 0 { indent.to_owned() } else { " ".repeat(width) };
        let _ = writeln!(text, "{before}{line}");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Settings;
    use iowhy_stats::metric::Metric;
    use iowhy_stats::{Better, mann_whitney};

    fn side(values: &[f64]) -> Summary {
        let n = values.len();
        Summary {
            n,
            median: values.get(n / 2).copied().unwrap_or(f64::NAN),
            median_ci: (f64::NEG_INFINITY, f64::INFINITY),
            mean: values.iter().sum::<f64>() / n as f64,
            cv_pct: if n > 1 { 2.5 } else { f64::NAN },
            range: (values.iter().copied().fold(f64::NAN, f64::min), values.iter().copied().fold(f64::NAN, f64::max)),
            modes: Vec::new(),
            shown: values.to_vec(),
        }
    }

    /// A row for tests of what renders rows.
    pub(crate) fn row(better: Better, ci_pct: (f64, f64), verdict: Verdict) -> Row {
        Row {
            metric: Metric { name: "elapsed_s".to_owned(), unit: "s".to_owned(), better },
            a: side(&[1.0, 1.25, 1.5]),
            b: side(&[1.25, 1.5, 2.0]),
            change_pct: f64::midpoint(ci_pct.0, ci_pct.1),
            ci_pct,
            p: 0.0123,
            p_adjusted: 0.0246,
            verdict,
            runs_needed: Some(7),
            detectable_pct: 4.5,
            tails: Vec::new(),
            effects: Vec::new(),
            methods: vec![&mann_whitney::METHOD],
            because: "the interval says so".to_owned(),
            warnings: Vec::new(),
        }
    }

    /// A table of such rows.
    pub(crate) fn comparison(rows: Vec<Row>, verdict: Verdict) -> Comparison {
        Comparison {
            a: "old".to_owned(),
            b: "new".to_owned(),
            settings: Settings::default(),
            rows,
            verdict,
            warnings: vec![Warning::NotInterleaved],
            calibration: Vec::new(),
            latencies: Vec::new(),
            options: Vec::new(),
        }
    }

    const PLAIN: Style = Style { colour: false, verbose: false };

    fn samples() -> BoxedStrategy<Vec<f64>> {
        let one = prop_oneof![Just(0.0), -1e3..1e3, 0.0..1e300];
        prop_oneof![
            Just(Vec::new()),
            (one.clone(), 1..100usize).prop_map(|(value, n)| vec![value; n]),
            prop::collection::vec(one, 1..100),
        ]
        .boxed()
    }

    #[test]
    fn a_sentence_comes_first_and_methods_last() {
        let row = row(Better::Lower, (3.0, 6.0), Verdict::Regression);
        let table = comparison(vec![row], Verdict::Regression);
        let text = text(&table, None, PLAIN);
        assert!(
            text.starts_with(
                "Regression: elapsed_s of `new` is 4.50 % higher than that of `old`, 99 %\ninterval [+3.00"
            ),
            "{text}"
        );
        for expected in [
            "elapsed_s (lower is better): regression\n",
            "  A  ▁▃▅                       n 3       median 1.250 s        cv 2.5 %\n",
            "  change +4.50 % [+3.00 %, +6.00 %]; p 0.0123\n",
            "warning: the sides were made one after the other",
            "  next: run both sides in one command",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        assert!(text.ends_with("\nMethod: mann-whitney; 99 % intervals; up to 1 % counts as no change.\n"), "{text}");
        assert!(!text.contains("mann-whitney: "), "{text}");
        let verbose = super::text(&table, None, Style { verbose: true, ..PLAIN });
        let last = verbose.lines().last().expect("lines");
        assert!(verbose.contains("  mann-whitney: ") && last.ends_with("1966)"), "{verbose}");
    }

    #[test]
    fn modes_are_told_apart_with_scaled_units() {
        let mode = |centre: f64, count: usize, share: f64| Mode {
            mean: centre,
            centre,
            min: centre,
            max: centre,
            count,
            share,
            members: (0..count).collect(),
        };
        let mut row = row(Better::Higher, (-30.0, 1.0), Verdict::Inconclusive);
        row.metric.unit = "MB/s".to_owned();
        row.a.modes = vec![mode(1_905.0, 3, 1.0)];
        row.b.modes = vec![mode(1_204.0, 29, 0.29), mode(1_900.0, 71, 0.71)];
        let text = text(&comparison(vec![row], Verdict::Inconclusive), None, PLAIN);
        let (_, places) =
            text.split_once("A: one mode; B: two, 71 % near 1.9 GB/s, 29 % near 1.2 GB/s\n").expect("modes");
        let blank = |n: usize| " ".repeat(n);
        let expected = format!(
            "  A  █{0}█{0}█\n  B  {1}█{0}█{2}█\n     1.00 MB/s{3}2.00 MB/s\n",
            blank(14),
            blank(15),
            blank(28),
            blank(42)
        );
        assert!(places.starts_with(&expected), "{text}");
        assert!(text.contains("7 more runs of each side would be needed to see 1 %"), "{text}");
    }

    #[test]
    fn nothing_of_a_label_reaches_the_terminal_that_is_not_fit_to() {
        for (label, expected) in [
            ("plain größe 名", "plain größe 名"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("a\nb\tc", "a\\u{a}b\\u{9}c"),
        ] {
            assert_eq!(shown(label, 40), expected);
        }
        for long in ["x".repeat(10_000), "名".repeat(10_000), "x名".repeat(10_000)] {
            let long = shown(&long, 40);
            assert!((39..=40).contains(&columns(&long)) && long.ends_with('…'), "{long}");
        }
        assert_eq!([shown("", 4), shown("x", 0)], ["", "…"]);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_whatever_the_labels_are() {
        for label in [
            "x".repeat(10_000),
            "\u{1b}".repeat(5_000),
            "wörter ".repeat(2_000),
            "名".repeat(999),
            "\u{202e}".to_owned(),
        ] {
            let mut row = row(Better::Higher, (f64::NEG_INFINITY, 1e9), Verdict::Inconclusive);
            row.metric.name.clone_from(&label);
            row.metric.unit.clone_from(&label);
            row.because.clone_from(&label);
            row.warnings.push(Warning::Drift { side: label.clone(), change_pct: 1.0 });
            let mut table = comparison(vec![row], Verdict::Inconclusive);
            (table.a, table.b) = (label.clone(), label.clone());
            for gate in [None, Some(gate::by_allowance(&table, 5.0))] {
                let text = text(&table, gate.as_ref(), PLAIN);
                for line in text.lines() {
                    assert!(columns(line) <= iowhy_text::width(), "{} columns: {line}", columns(line));
                    assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
                }
            }
        }
    }

    proptest! {
        /// Of no samples, one, equal ones and any others, with modes and without.
        #[test]
        fn samples_are_drawn_within_the_width(
            sides in [samples(), samples()],
            modes in [0..4usize, 0..4],
            unit in prop_oneof![Just(String::new()), Just("ns".to_owned()), any::<String>()],
        ) {
            let mut row = row(Better::Lower, (f64::NEG_INFINITY, f64::INFINITY), Verdict::Inconclusive);
            row.metric.unit = unit;
            let mode = |value: f64| {
                Mode { mean: value, centre: value, min: value, max: value, count: 1, share: 0.5, members: vec![0] }
            };
            [row.a, row.b] = [0, 1].map(|nr: usize| {
                let modes = vec![mode(sides[nr].first().copied().unwrap_or(0.0)); modes[nr]];
                Summary { modes, ..side(&sides[nr]) }
            });
            let shown = text(&comparison(vec![row], Verdict::Inconclusive), None, PLAIN);
            for line in shown.lines() {
                prop_assert!(columns(line) <= iowhy_text::width() && line.trim_end() == line, "{:?}", line);
                prop_assert!(!line.chars().any(char::is_control) && !line.contains("NaN"), "{:?}", line);
            }
            let places = modes.iter().any(|modes| *modes > 1);
            let drawn = shown.lines().filter(|line| *line == "  A" || line.starts_with("  A  "));
            prop_assert_eq!(drawn.count(), 1 + usize::from(places));
            let long = sides.iter().any(|side| side.len() > COLUMNS);
            prop_assert_eq!(shown.contains("a column is the median of up to"), long);
        }
    }

    #[test]
    fn colours_are_for_terminals() {
        let table = comparison(vec![row(Better::Lower, (3.0, 6.0), Verdict::Regression)], Verdict::Regression);
        let coloured = text(&table, None, Style { colour: true, verbose: false });
        assert!(coloured.starts_with("\u{1b}[1;31mRegression\u{1b}[0m: "), "{coloured}");
        let bare = coloured.replace("\u{1b}[1;31m", "").replace("\u{1b}[0m", "");
        assert_eq!(bare, text(&table, None, PLAIN));
    }
}
