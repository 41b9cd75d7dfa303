//! Mistakes in typed input: all at once, each with its position, likely names and advice.

use std::fmt::Write;

/// A part of one argument: columns count characters from 0, the end is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The argument as it was typed.
    pub text: String,
    /// First column of the part meant.
    pub start: usize,
    /// Column after the part meant.
    pub end: usize,
}

impl Span {
    pub fn whole(text: &str) -> Span {
        Span { text: text.to_owned(), start: 0, end: text.chars().count() }
    }

    /// The bytes `start .. end` of `text`.
    pub fn bytes(text: &str, start: usize, end: usize) -> Span {
        let column = |byte: usize| text.get(..byte).map_or(0, |before| before.chars().count());
        Span { text: text.to_owned(), start: column(start), end: column(end) }
    }
}

/// Whether a problem stops the command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It does.
    Error,
    /// It does not, but the user should know.
    Warning,
    /// It changes no result: it is in JSON only.
    Note,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether it stops the command.
    pub severity: Severity,
    /// The mistake, one sentence.
    pub message: String,
    /// Where.
    pub span: Option<Span>,
    /// Names that were perhaps meant, nearest first.
    pub nearest: Vec<String>,
    /// Advice.
    pub help: Option<String>,
}

impl Problem {
    pub fn error(message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Error, message: message.into(), span: None, nearest: Vec::new(), help: None }
    }

    pub fn warning(message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Warning, ..Problem::error(message) }
    }

    pub fn note(message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Note, ..Problem::error(message) }
    }

    /// The same, at a place.
    pub fn at(mut self, span: Span) -> Problem {
        self.span = Some(span);
        self
    }

    /// The same, with the names of `accepted` that are nearest to `word`.
    pub fn near<S: AsRef<str>>(mut self, word: &str, accepted: impl IntoIterator<Item = S>) -> Problem {
        self.nearest = nearest(word, accepted);
        self
    }

    /// The same, with advice.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// The problem as text: message, the argument with the part underlined, names and advice.
    pub fn render(&self) -> String {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let mut text = format!("{word}: {}\n", self.message);
        if let Some(span) = &self.span {
            let width = span.end.saturating_sub(span.start).max(1);
            let shown: String = span.text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            let _ = writeln!(text, "  | {shown}");
            let _ = writeln!(text, "  | {}{}", " ".repeat(span.start), "^".repeat(width));
        }
        if !self.nearest.is_empty() {
            let _ = writeln!(text, "  = nearest: {}", self.nearest.join(", "));
        }
        if let Some(help) = &self.help {
            let _ = writeln!(text, "  = try: {help}");
        }
        text
    }
}

/// Problems found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// In the order they were found.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.list.push(problem);
    }

    /// Whether any of them stops the command.
    pub fn any_error(&self) -> bool {
        self.any_error_since(0)
    }

    /// Whether any of those added after the first `nr` does.
    pub fn any_error_since(&self, nr: usize) -> bool {
        self.list.iter().skip(nr).any(|problem| problem.severity == Severity::Error)
    }

    /// All of them as text.
    pub fn render(&self) -> String {
        self.list.iter().map(Problem::render).collect()
    }
}

/// The names nearest to `word`, nearest first: at most five, and only those that could be a slip of it.
pub fn nearest<S: AsRef<str>>(word: &str, accepted: impl IntoIterator<Item = S>) -> Vec<String> {
    // Insertions, deletions, substitutions and swaps of neighbours; nobody types words that are longer.
    let short = |text: &str| text.to_lowercase().chars().take(64).collect::<String>();
    let distance = strsim::osa_distance;
    let lower = short(word);
    let limit = (lower.chars().count() / 3).clamp(2, 6);
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in accepted {
        let name = name.as_ref();
        let candidate = short(name);
        // `slice_idle` means `elevator.slice_idle_ms`.
        let last = candidate.rsplit('.').next().unwrap_or(&candidate);
        let contained = lower.len() >= 3 && (candidate.contains(&lower) || lower.contains(last) && last.len() >= 4);
        let mut far = distance(&lower, &candidate).min(distance(&lower, last) + 1);
        // Long names are cut short when they are typed: `2004-random` is the beginning of one.
        let typed = lower.chars().count();
        if typed >= 6 {
            let beginning: String = candidate.chars().take(typed).collect();
            far = far.min(distance(&lower, &beginning) + 1);
        }
        if contained {
            far = far.min(1 + candidate.len().abs_diff(lower.len()) / 4);
        }
        if (far <= limit || contained) && !found.iter().any(|(_, known)| known == name) {
            found.push((far, name.to_owned()));
        }
    }
    // Stable: names equally near stay in the order of their table. Far ones are noise next to a near one.
    found.sort_by_key(|(far, _)| *far);
    let best = found.first().map_or(0, |(far, _)| *far);
    found.into_iter().filter(|(far, _)| *far <= best + 1).take(5).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_strangers_not_at_all() {
        let kernels = ["linux-2.4.25", "linux-2.6.6-rc3", "linux-2.6.6", "linux-4.4", "linux-6.18"];
        assert_eq!(nearest("linux-2.6.6-rc4", kernels)[0], "linux-2.6.6-rc3");
        assert_eq!(nearest("qqqqqqq", kernels), Vec::<String>::new());
        assert_eq!(nearest("2004-randm-reed", ["2010-writers", "2004-random-read-split"]), ["2004-random-read-split"]);
        assert_eq!(nearest("slice_idle", ["elevator.quantum", "elevator.slice_idle_ms"]), ["elevator.slice_idle_ms"]);
    }

    #[test]
    fn a_problem_shows_where_it_is() {
        let text = "sim:linux-4.5,elevator=cfq";
        let problem = Problem::error("unknown kernel `linux-4.5`")
            .at(Span::bytes(text, 4, 13))
            .near("linux-4.5", ["linux-4.4"])
            .help("iowhy models kernel");
        assert_eq!(
            problem.render(),
            "error: unknown kernel `linux-4.5`\n  | sim:linux-4.5,elevator=cfq\n  |     ^^^^^^^^^\n  \
             = nearest: linux-4.4\n  = try: iowhy models kernel\n"
        );
    }

    #[test]
    fn spans_count_characters_not_bytes() {
        let span = Span::bytes("sim:größe=1", 4, 11);
        assert_eq!((span.start, span.end), (4, 9));
    }
}
