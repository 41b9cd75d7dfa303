//! Options of built-in jobs: `key=value` words, read with one table for each job.

use iowhy_fio::value;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Span};

/// Kind of an option's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes between these two, with a suffix (`64k`, `1g`).
    Size(u64, u64),
    /// A whole number between these two.
    Number(u64, u64),
    /// 0 or 1.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, comma between.
    Words(&'static [&'static str]),
    Text,
}

/// One option of a built-in job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Opt {
    pub name: &'static str,
    /// Kind of its value.
    pub kind: Kind,
    /// Default as it would be typed; empty for none.
    pub default: &'static str,
    /// One line.
    pub help: &'static str,
}

/// An entry of a table of options.
pub const fn opt(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt { name, kind, default, help }
}

/// The CPU time that a program spends on each call, which every built-in job can set.
pub const TOOL_NS: Opt = opt(
    "tool_ns",
    Kind::Number(0, 1_000_000_000),
    "",
    "nanoseconds the program itself works for each call [the machine's, folded calls included]",
);

/// The seeks that starting a process has cost, which schedulers remember.
pub const STARTUP_SEEKS: Opt = opt(
    "startup_seeks",
    Kind::Number(0, 1000),
    "0",
    "long seeks of each process before it starts (its program is loaded from a dropped cache)",
);

/// The draw of where regions of a bare device begin, for jobs that have regions.
pub const JITTER: Opt = opt(
    "jitter",
    Kind::Size(0, 1 << 40),
    "0",
    "bytes by which each region of a device may begin later, drawn with the seed: other angles of the disk in each run",
);

/// Words that were given, checked against a table.
#[derive(Debug)]
pub struct Values<'a> {
    options: &'static [Opt],
    given: Vec<(&'static Opt, &'a str, Span)>,
}

/// Reads `key=value` words. Every mistake goes to `problems`; a wrong value counts as not given.
pub fn parse<'a>(job: &str, options: &'static [Opt], words: &'a [String], problems: &mut Problems) -> Values<'a> {
    let mut values = Values { options, given: Vec::new() };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            let text = format!("`{word}` is not an option of {job}: they are written key=value");
            let names = options.iter().map(|option| format!("{}=", option.name));
            problems.push(Problem::error(text).at(Span::whole(word)).near(word, names));
            continue;
        };
        let Some(option) = options.iter().find(|option| option.name == key) else {
            problems.push(
                Problem::error(format!("{job} has no option `{key}`"))
                    .at(Span::bytes(word, 0, key.len()))
                    .near(key, options.iter().map(|option| option.name))
                    .help(format!("`iowhy run {job} --help` lists its options")),
            );
            continue;
        };
        let span = Span::bytes(word, key.len() + 1, word.len());
        if let Some((_, known, _)) = values.given.iter().find(|(known, ..)| known.name == key) {
            if *known != value {
                let text = format!("`{key}` is given as `{known}` and as `{value}`");
                problems.push(Problem::error(text).at(span).help("keep one of them"));
            }
            continue;
        }
        match check(option, value) {
            Ok(()) => values.given.push((option, value, span)),
            Err(mut problem) => {
                problem.span = Some(span);
                problems.push(problem);
            }
        }
    }
    values
}

fn check(option: &Opt, text: &str) -> Result<(), Problem> {
    let name = option.name;
    match option.kind {
        Kind::Size(min, max) | Kind::Number(min, max) => match number(option, text) {
            Ok(value) if (min..=max).contains(&value) => Ok(()),
            Ok(_) => Err(Problem::error(format!("`{name}` must lie between {min} and {max}, not {text}"))),
            Err(message) => Err(Problem::error(format!("`{name}`: {message}"))),
        },
        Kind::Switch => match text {
            "0" | "1" => Ok(()),
            _ => Err(Problem::error(format!("`{name}` takes 0 or 1, not `{text}`"))),
        },
        Kind::Choice(words) if words.contains(&text) => Ok(()),
        Kind::Words(words) => match text.split(',').find(|word| !words.contains(word)) {
            None => Ok(()),
            Some(word) => Err(not_one_of(name, word, words)),
        },
        Kind::Choice(words) => Err(not_one_of(name, text, words)),
        Kind::Text if text.is_empty() => Err(Problem::error(format!("`{name}` needs a value"))),
        Kind::Text => Ok(()),
    }
}

fn not_one_of(name: &str, word: &str, words: &[&str]) -> Problem {
    Problem::error(format!("`{name}` does not take `{word}`"))
        .near(word, words)
        .help(format!("one of {}", words.join(", ")))
}

/// The number that a text means to an option of numbers; sizes take a suffix, counts do not.
fn number(option: &Opt, text: &str) -> Result<u64, String> {
    if matches!(option.kind, Kind::Number(..)) {
        return text.parse().map_err(|_| format!("a whole number is needed, not `{text}`"));
    }
    match value::integer(text, 1024, (0, i64::MAX)) {
        Ok(bytes) => Ok(bytes.unsigned_abs()),
        Err(fault) => Err(fault.message),
    }
}

impl Values<'_> {
    /// Whether an option was given.
    pub fn given(&self, name: &str) -> bool {
        self.given.iter().any(|(option, ..)| option.name == name)
    }

    /// The value as typed, or the default.
    ///
    /// # Panics
    /// If the table has no such option.
    pub fn text(&self, name: &str) -> &str {
        if let Some((_, value, _)) = self.given.iter().find(|(option, ..)| option.name == name) {
            return value;
        }
        self.option(name).default
    }

    /// A number or size; 0 if it was not given and has no default.
    ///
    /// # Panics
    /// If the table gives it another type.
    pub fn number(&self, name: &str) -> u64 {
        let (option, text) = (self.option(name), self.text(name));
        assert!(matches!(option.kind, Kind::Size(..) | Kind::Number(..)), "`{name}` is a number in the table");
        // The given values have been checked.
        if text.is_empty() { 0 } else { number(option, text).expect("a number") }
    }

    /// The same, for numbers whose table entry limits them to 32 bits.
    pub fn small(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }

    /// Whether a switch is on.
    ///
    /// # Panics
    /// If the table gives it another type.
    pub fn on(&self, name: &str) -> bool {
        assert_eq!(self.option(name).kind, Kind::Switch, "`{name}` is a switch in the table");
        self.text(name) == "1"
    }

    /// The words of a list; none if it is empty.
    pub fn words(&self, name: &str) -> Vec<&str> {
        self.text(name).split(',').filter(|word| !word.is_empty()).collect()
    }

    /// An error about an option.
    pub fn error(&self, name: &str, message: impl Into<String>, help: &str, problems: &mut Problems) {
        let mut problem = Problem::error(message).help(help);
        problem.span = self.given.iter().find(|(option, ..)| option.name == name).map(|(.., span)| span.clone());
        problems.push(problem);
    }

    fn option(&self, name: &str) -> &'static Opt {
        match self.options.iter().find(|option| option.name == name) {
            Some(option) => option,
            None => unreachable!("`{name}` is in the table of options"),
        }
    }
}

/// The options as text for a terminal.
pub fn help(options: &[Opt]) -> String {
    let mut out = String::new();
    for option in options {
        let kind = match option.kind {
            Kind::Size(..) => "SIZE".to_owned(),
            Kind::Number(..) => "N".to_owned(),
            Kind::Switch => "0|1".to_owned(),
            Kind::Choice(words) => words.join("|"),
            Kind::Words(_) => "WORD,..".to_owned(),
            Kind::Text => "TEXT".to_owned(),
        };
        let mut line = option.help.to_owned();
        if let Kind::Words(words) = option.kind {
            line.push_str(&format!(": {}", words.join(", ")));
        }
        if !option.default.is_empty() {
            line.push_str(&format!(" [{}]", option.default));
        }
        out.push_str(&text::item(&format!("{}={kind}", option.name), &line, 24));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt] = &[
        opt("bs", Kind::Size(1, 1 << 30), "512", "bytes of a call"),
        opt("count", Kind::Number(0, 100), "", "calls"),
        opt("stage", Kind::Words(&["write", "read"]), "write", "stages"),
        opt("fold", Kind::Switch, "1", "fold"),
    ];

    fn read(words: &str) -> (Vec<String>, [u64; 2], bool) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut problems = Problems::default();
        let values = parse("dd", OPTIONS, &words, &mut problems);
        let numbers = [values.number("bs"), values.number("count")];
        (problems.list.iter().map(Problem::render).collect(), numbers, values.on("fold"))
    }

    #[test]
    fn values_are_those_given_or_those_of_the_table() {
        assert_eq!(read("bs=4k fold=0"), (vec![], [4096, 0], false));
        assert_eq!(read("count=3"), (vec![], [512, 3], true));
    }

    #[test]
    fn every_mistake_is_told_with_what_was_perhaps_meant() {
        for (words, expected) in [
            ("cuont=3", "nearest: count"),
            ("count", "key=value"),
            ("count=4k", "whole number"),
            ("count=101", "between 0 and 100"),
            ("bs=0", "between 1"),
            ("bs=4x", "`bs`:"),
            ("stage=write,raed", "nearest: read"),
            ("fold=yes", "0 or 1"),
            ("bs=1 bs=2", "`1` and as `2`"),
        ] {
            let (problems, ..) = read(words);
            assert_eq!(problems.len(), 1, "{words}: {problems:?}");
            assert!(problems[0].contains(expected), "{words}: {problems:?}");
        }
        assert_eq!(read("cuont=3 bs=0 fold=2").0.len(), 3);
    }

    #[test]
    fn the_help_names_every_option() {
        let help = help(OPTIONS);
        assert!(OPTIONS.iter().all(|option| help.contains(&format!("  {}=", option.name))), "{help}");
    }
}
