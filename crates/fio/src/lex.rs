//! Job files and command lines as sections of options, each with its place. Values are not looked at here.
//!
//! A line that begins with `;` or `#` is a comment. On other lines the text from the first `;` is cut, then the text
//! from the first `#`, with no quoting. A section header reaches to the last closing bracket of its line.

use std::fmt;
use std::sync::Arc;

use super::World;
use iowhy_text::diagnose::{Problem, Problems, Span};

/// Files that may include one another, one below the other.
const MAX_INCLUDE_DEPTH: u32 = 16;
/// Files that may be included in all: a file that includes itself twice would never end otherwise.
const MAX_INCLUDES: u32 = 256;
/// Longest name of a section, characters.
const MAX_SECTION_NAME: usize = 255;

/// Where something stands. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or nothing for the command line.
    pub file: Option<Arc<str>>,
    /// Line in the file, or number of the argument.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{}:{}", self.line, self.column),
            None => write!(f, "argument {}", self.line),
        }
    }
}

/// A line of a file or an argument, kept to show mistakes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: Option<Arc<str>>,
    pub(super) number: u32,
    pub(super) text: Arc<str>,
}

impl Line {
    pub(super) fn place(&self, byte: usize) -> Place {
        let column = self.text.get(..byte).map_or(0, |before| before.chars().count());
        Place { file: self.file.clone(), line: self.number, column: u32::try_from(column + 1).unwrap_or(u32::MAX) }
    }

    /// A problem that names its place and underlines these bytes.
    pub(super) fn problem(&self, mut problem: Problem, (start, end): (usize, usize)) -> Problem {
        problem.message = format!("{}: {}", self.place(start), problem.message);
        problem.at(Span::bytes(&self.text, start, end))
    }
}

/// `name=value` as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawOption {
    pub(super) name: String,
    /// Nothing for a flag that stands alone.
    pub(super) value: Option<String>,
    pub(super) line: Line,
    pub(super) name_at: (usize, usize),
    pub(super) value_at: (usize, usize),
    /// Whether variables are replaced: they are in files only.
    pub(super) expand: bool,
}

/// A section header and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawSection {
    pub(super) name: String,
    pub(super) line: Line,
    /// Sets defaults for the sections behind it instead of making a job.
    pub(super) global: bool,
    /// Begins behind a barrier because another file came first.
    pub(super) barrier: bool,
    pub(super) options: Vec<RawOption>,
}

/// Whether a section of this name sets defaults. Only the beginning counts, as in fio.
pub(super) fn is_global(name: &str) -> bool {
    name.starts_with("global")
}

/// The sections of a file.
pub(super) fn sections(name: &str, text: &str, world: &World<'_>, problems: &mut Problems) -> Vec<RawSection> {
    let mut lexer = Lexer { world, problems, sections: Vec::new(), includes: 0, outside: false };
    lexer.file(&Arc::from(name), text, 0);
    lexer.sections
}

/// An argument of a command line without its dashes as an option.
pub(super) fn argument(text: &str, dashes: usize, number: usize) -> RawOption {
    let line = Line { file: None, number: u32::try_from(number).unwrap_or(u32::MAX), text: Arc::from(text) };
    split(line, dashes, text.len(), false)
}

struct Lexer<'a, 'w> {
    world: &'a World<'w>,
    problems: &'a mut Problems,
    sections: Vec<RawSection>,
    includes: u32,
    /// Whether an option outside of any section was reported.
    outside: bool,
}

impl Lexer<'_, '_> {
    fn file(&mut self, name: &Arc<str>, text: &str, depth: u32) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, text) in (1..).zip(text.lines()) {
            let trimmed = text.trim();
            if trimmed.is_empty() || trimmed.starts_with([';', '#']) {
                continue;
            }
            let start = text.len() - text.trim_start().len();
            let line = Line { file: Some(name.clone()), number, text: Arc::from(text) };
            if trimmed.starts_with('[') {
                self.header(line, start, start + trimmed.len(), depth);
                continue;
            }
            let mut end = text.len();
            for comment in [';', '#'] {
                end = text[..end].find(comment).unwrap_or(end);
            }
            let end = start.max(text[..end].trim_end().len());
            if text[start..end].starts_with("include") {
                self.include(&line, start, end, depth);
                continue;
            }
            self.option(split(line, start, end, true));
        }
    }

    fn option(&mut self, option: RawOption) {
        if self.sections.is_empty() {
            if !self.outside {
                self.outside = true;
                self.problems.push(
                    option.line.problem(
                        Problem::error(format!("option `{}` is outside of any section", option.name))
                            .help("a line `[global]` or `[NAME]` before it"),
                        (option.name_at.0, option.value_at.1),
                    ),
                );
            }
            // Its mistakes are still worth reporting, so it is kept as if it were global.
            self.sections.push(RawSection {
                name: "global".to_owned(),
                line: option.line.clone(),
                global: true,
                barrier: false,
                options: Vec::new(),
            });
        }
        if let Some(section) = self.sections.last_mut() {
            section.options.push(option);
        }
    }

    fn header(&mut self, line: Line, start: usize, end: usize, depth: u32) {
        if depth > 0 {
            self.problems.push(line.problem(
                Problem::error("an included file may not begin a section").help("only options, one a line"),
                (start, end),
            ));
            return;
        }
        let Some(close) = line.text[start..end].rfind(']') else {
            self.problems.push(
                line.problem(
                    Problem::error("the closing bracket of the section is missing").help("[NAME]"),
                    (start, end),
                ),
            );
            // What follows belongs to some section, not to the one before.
            let name = line.text[start + 1..end].to_owned();
            let global = is_global(&name);
            self.sections.push(RawSection { name, line, global, barrier: false, options: Vec::new() });
            return;
        };
        let name = line.text[start + 1..start + close].to_owned();
        if name.is_empty() {
            self.problems.push(line.problem(Problem::error("the section has no name"), (start, end)));
        } else if name.chars().count() > MAX_SECTION_NAME {
            self.problems.push(line.problem(
                Problem::error(format!("the name of a section has at most {MAX_SECTION_NAME} characters")),
                (start, end),
            ));
        }
        let global = is_global(&name);
        self.sections.push(RawSection { name, line, global, barrier: false, options: Vec::new() });
    }

    fn include(&mut self, line: &Line, start: usize, end: usize, depth: u32) {
        let text = line.text.clone();
        let rest = &text[start + "include".len()..end];
        let name = rest.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
        let at = (end - name.len(), end);
        let mut fail = |problem| self.problems.push(line.problem(problem, at));
        if name.is_empty() || name.len() == rest.len() {
            return fail(Problem::error("`include` needs the name of a file").help("include FILE"));
        }
        if depth >= MAX_INCLUDE_DEPTH {
            return fail(Problem::error(format!("files include one another more than {MAX_INCLUDE_DEPTH} deep")));
        }
        if self.includes >= MAX_INCLUDES {
            // One message is enough: the same file would give it again and again.
            if self.includes == MAX_INCLUDES {
                self.includes += 1;
                fail(Problem::error(format!("more than {MAX_INCLUDES} files are included")));
            }
            return;
        }
        self.includes += 1;
        let relative = line.file.as_deref().and_then(|file| file.rfind('/').map(|slash| &file[..=slash]));
        let loaded = self.world.job(name).map(|text| (name.to_owned(), text)).or_else(|error| {
            let Some(folder) = relative else { return Err(error) };
            let name = format!("{folder}{name}");
            self.world.job(&name).map(|text| (name, text)).map_err(|_| error)
        });
        match loaded {
            Ok((name, text)) => self.file(&Arc::from(name), &text, depth + 1),
            Err(error) => fail(Problem::error(format!("cannot read `{name}`: {error}"))),
        }
    }
}

/// `name=value` between two bytes of a line.
fn split(line: Line, start: usize, end: usize, expand: bool) -> RawOption {
    let text = line.text.clone();
    let body = &text[start..end];
    let equals = body.find('=').map(|at| start + at);
    let name_end = equals.unwrap_or(end);
    let name = text[start..name_end].trim_end();
    let value = equals.map(|at| text[at + 1..end].trim().to_owned());
    let value_start = equals.map_or(end, |at| {
        let after = &text[at + 1..end];
        at + 1 + after.len() - after.trim_start().len()
    });
    let value_end = value_start + value.as_ref().map_or(0, String::len);
    RawOption {
        name: name.to_owned(),
        value,
        name_at: (start, start + name.len()),
        value_at: (value_start, value_end),
        expand,
        line,
    }
}
