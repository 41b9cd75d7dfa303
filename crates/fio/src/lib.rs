//! fio: its job files and its command line.
//!
//! Text is taken apart into sections and options ([`lex`]), values are read by the kind that the table of options gives
//! them ([`options`], [`value`]), and put together into jobs with types ([`job`]). Every mistake is reported at once,
//! with its position; options that are accepted but not modelled are listed once. No file is read here except through
//! [`World`].

pub mod carried_out;
mod expr;
pub mod iolog;
pub mod job;
pub mod json;
mod lex;
pub mod live;
pub mod logs;
pub mod map;
pub mod normal;
pub mod options;
pub mod result;
pub mod state;
pub mod terse;
pub mod value;

pub use job::{FioJob, Setting};
pub use lex::Place;

use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_text::input;
use lex::RawSection;

/// A job file's view of the machine: other files, the environment and three numbers.
#[derive(Copy, Clone)]
pub struct World<'a> {
    /// The text of a file, or why there is none. `-` is standard input.
    pub load: &'a dyn Fn(&str) -> Result<String, String>,
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// `$pagesize`.
    pub page_bytes: u64,
    /// `$mb_memory`.
    pub memory_mib: u64,
    /// `$ncpus`.
    pub cpus: u64,
    /// Jobs are for the running kernel rather than for the simulator: the notes on options differ.
    pub live: bool,
}

impl World<'_> {
    /// The text of a job file: at most [`input::JOB`] bytes.
    pub(crate) fn job(&self, name: &str) -> Result<String, String> {
        let text = (self.load)(name)?;
        if text.len() as u64 > input::JOB { Err(input::longer(input::JOB).to_string()) } else { Ok(text) }
    }
}

impl World<'static> {
    /// A world without files and variables: one processor, 1 GiB, pages of 4 KiB.
    pub fn empty() -> World<'static> {
        World {
            load: &|_| Err("files do not exist here".to_owned()),
            variable: &|_| None,
            page_bytes: 4096,
            memory_mib: 1024,
            cpus: 1,
            live: false,
        }
    }
}

/// Jobs in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FioFile {
    /// The jobs. Each stands for all its clones.
    pub jobs: Vec<FioJob>,
    /// The options of global sections.
    pub globals: Vec<Setting>,
}

/// The jobs of one text; nothing if there is an error in it. `name` is shown with mistakes, and its includes are looked
/// for in the same folder.
pub fn parse(name: &str, text: &str, world: &World<'_>, problems: &mut Problems) -> Option<FioFile> {
    let mut found = Problems::default();
    let sections = lex::sections(name, text, world, &mut found);
    let file = finish(&sections, world, &mut found, name);
    problems.list.append(&mut found.list);
    file
}

/// The jobs of several files, each begun behind a barrier.
pub fn parse_files<S: AsRef<str>>(names: &[S], world: &World<'_>, problems: &mut Problems) -> Option<FioFile> {
    let mut found = Problems::default();
    let mut sections = Vec::new();
    load(names, world, &mut sections, &mut found);
    let shown: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let file = finish(&sections, world, &mut found, &shown.join(", "));
    problems.list.append(&mut found.list);
    file
}

fn load<S: AsRef<str>>(names: &[S], world: &World<'_>, sections: &mut Vec<RawSection>, problems: &mut Problems) {
    for (index, name) in names.iter().enumerate() {
        let name = name.as_ref();
        match world.job(name) {
            Ok(text) => {
                let from = sections.len();
                sections.extend(lex::sections(name, &text, world, problems));
                let first = sections[from..].iter_mut().find(|section| !section.global);
                if let Some(first) = first
                    && index > 0
                {
                    first.barrier = true;
                }
            }
            Err(error) => problems.push(Problem::error(format!("cannot read `{name}`: {error}")).at(Span::whole(name))),
        }
    }
}

fn finish(sections: &[RawSection], world: &World<'_>, problems: &mut Problems, name: &str) -> Option<FioFile> {
    let (jobs, globals) = job::build(sections, world, problems);
    if jobs.is_empty() && !problems.any_error() {
        problems.push(Problem::error(format!("{name}: it has no job")).help("a section [NAME] with a size"));
    }
    (!problems.any_error()).then_some(FioFile { jobs, globals })
}

/// Shape of the report.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text.
    Normal,
    /// Fields with semicolons.
    Terse,
    Json,
    /// JSON with histograms.
    JsonPlus,
}

/// The request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the jobs.
    Run,
    /// Check the jobs only.
    ParseOnly,
    /// Print each job as a command line.
    ShowCommand,
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
    /// Print the options, or one of them.
    Options(Option<String>),
    /// Print the engines.
    Engines,
    /// Print the rows of a log that is stored compressed.
    Unpack(String),
}

/// Settings of a command line, without its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub action: Action,
    /// Shapes of the report; several may be asked for.
    pub formats: Vec<Format>,
    /// Version of the terse format.
    pub terse_version: u8,
    /// The format was named behind the first `--name`: fio then prints its banner before JSON.
    pub late_format: bool,
    /// File for the report.
    pub output: Option<String>,
    /// Where to run.
    pub on: Option<String>,
    /// Device.
    pub disk: Option<String>,
    pub seed: Option<u64>,
    /// Refuse jobs that write.
    pub readonly: bool,
    /// Devices and files that may be written whatever they hold.
    pub allow_write: Vec<String>,
    /// Folder of verify states.
    pub aux_path: Option<String>,
    /// Show what values mean (`--debug=parse`).
    pub debug_parse: bool,
    /// Time between reports of a run that goes on; zero for none.
    pub status_every: std::time::Duration,
    /// The bandwidth of all jobs together goes to the files [`logs::TOTALS`].
    pub bandwidth_log: bool,
}

/// A command line that means something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub settings: Settings,
    /// The jobs; none unless they are to be run, checked or shown.
    pub file: FioFile,
}

/// How a general option takes its value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// Only with `=`.
    Maybe,
}

/// Why an option without effect need not be spoken of: results are the same.
const SAME: &str = "";

/// Options that are not of a job: name, value, and why it has no effect or nothing if it has one.
const GENERAL: &[(&str, Takes, Option<&str>)] = &[
    ("on", Takes::Value, None),
    ("disk", Takes::Value, None),
    ("seed", Takes::Value, None),
    ("output", Takes::Value, None),
    ("output-format", Takes::Value, None),
    ("minimal", Takes::Nothing, None),
    ("append-terse", Takes::Nothing, None),
    ("terse-version", Takes::Value, None),
    ("parse-only", Takes::Nothing, None),
    ("showcmd", Takes::Maybe, None),
    ("section", Takes::Value, None),
    ("readonly", Takes::Nothing, None),
    ("allow-write", Takes::Value, None),
    ("help", Takes::Nothing, None),
    ("version", Takes::Nothing, None),
    ("cmdhelp", Takes::Maybe, None),
    ("enghelp", Takes::Maybe, None),
    ("eta", Takes::Value, Some(SAME)),
    ("eta-newline", Takes::Value, Some(SAME)),
    ("eta-interval", Takes::Value, Some(SAME)),
    ("status-interval", Takes::Value, None),
    ("inflate-log", Takes::Value, None),
    ("bandwidth-log", Takes::Maybe, None),
    ("debug", Takes::Value, None),
    ("alloc-size", Takes::Value, Some(SAME)),
    ("max-jobs", Takes::Value, Some(SAME)),
    ("warnings-fatal", Takes::Nothing, Some(SAME)),
    ("idle-prof", Takes::Value, Some(SAME)),
    ("aux-path", Takes::Value, None),
    ("trigger", Takes::Value, Some("triggers do not exist")),
    ("trigger-file", Takes::Value, Some("triggers do not exist")),
    ("trigger-timeout", Takes::Value, Some("triggers do not exist")),
    ("trigger-remote", Takes::Value, Some("triggers do not exist")),
];

/// Parses the arguments of `iowhy fio`, or reports all mistakes in them. Warnings are left in `problems` in either
/// case.
pub fn command_line(arguments: &[String], world: &World<'_>, problems: &mut Problems) -> Option<Invocation> {
    let mut found = Problems::default();
    let mut line = Arguments::new(&mut found);
    line.take(arguments);
    let Arguments { mut settings, mut sections, files, wanted, .. } = line;
    let describes = !matches!(settings.action, Action::Run | Action::ParseOnly | Action::ShowCommand);
    if describes {
        return Some(Invocation { settings, file: FioFile::default() });
    }
    if settings.formats.is_empty() {
        settings.formats.push(Format::Normal);
    }
    load(&files, world, &mut sections, &mut found);
    if !wanted.is_empty() {
        for name in wanted.iter().filter(|name| !sections.iter().any(|section| section.name == **name)) {
            let names = sections.iter().filter(|section| !section.global).map(|section| &section.name);
            found.push(Problem::error(format!("unknown section `{name}`")).near(name, names));
        }
        sections.retain(|section| section.global || wanted.contains(&section.name));
    }
    let mut file = if arguments.is_empty() {
        found.push(Problem::error("nothing to do").help("iowhy fio JOBFILE, or iowhy fio --help"));
        None
    } else if settings.action == Action::ParseOnly && !sections.is_empty() && sections.iter().all(|one| one.global) {
        // As fio: options without a job can be checked.
        let (jobs, globals) = job::build(&sections, world, &mut found);
        Some(FioFile { jobs, globals })
    } else {
        finish(&sections, world, &mut found, "the command line")
    };
    if settings.readonly {
        // As fio: a recorded list may have writes, which are left out.
        let replays = file.iter_mut().flat_map(|file| &mut file.jobs).filter_map(|job| job.replay.as_mut());
        replays.for_each(|replay| replay.skip.extend(["write", "trim"]));
    }
    if let Some(file) = &file
        && settings.readonly
        && let Some(job) = file.jobs.iter().find(|job| job.mode.write || job.mode.trim)
    {
        found.push(Problem::error(format!("job `{}` writes, and `--readonly` was given", job.name)));
    }
    let failed = found.any_error();
    problems.list.append(&mut found.list);
    if failed { None } else { file.map(|file| Invocation { settings, file }) }
}

/// A command line being taken apart.
struct Arguments<'a> {
    settings: Settings,
    sections: Vec<RawSection>,
    files: Vec<String>,
    wanted: Vec<String>,
    problems: &'a mut Problems,
}

impl<'a> Arguments<'a> {
    fn new(problems: &'a mut Problems) -> Arguments<'a> {
        let settings = Settings {
            action: Action::Run,
            formats: Vec::new(),
            terse_version: terse::USUAL,
            late_format: false,
            output: None,
            on: None,
            disk: None,
            seed: None,
            readonly: false,
            allow_write: Vec::new(),
            debug_parse: false,
            aux_path: None,
            status_every: std::time::Duration::ZERO,
            bandwidth_log: false,
        };
        Arguments { settings, sections: Vec::new(), files: Vec::new(), wanted: Vec::new(), problems }
    }

    fn take(&mut self, arguments: &[String]) {
        let mut rest = (1..).zip(arguments).peekable();
        while let Some((number, argument)) = rest.next() {
            if argument == "--" {
                self.files.extend(rest.map(|(_, name)| name.clone()));
                return;
            }
            // As fio reads them, one dash is as good as two; a dash alone is standard input.
            let dashes = if argument.starts_with("--") { 2 } else { usize::from(argument.starts_with('-')) };
            if dashes == 0 || argument == "-" {
                self.files.push(argument.clone());
                continue;
            }
            let body = &argument[dashes..];
            let (name, inline) = match body.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (body, None),
            };
            let name = match name {
                "h" => "help",
                "v" => "version",
                name => name,
            };
            let general = GENERAL.iter().find(|(known, ..)| *known == name);
            let takes = match (general, options::find(name)) {
                (Some((_, takes, _)), _) => *takes,
                (None, Some(option)) if option.kind.alone() => Takes::Maybe,
                (None, Some(_)) => Takes::Value,
                (None, None) => {
                    let names = GENERAL.iter().map(|(name, ..)| *name).chain(options::names());
                    let names = names.filter(|known| options::similar(name, known));
                    self.problems.push(
                        Problem::error(format!(
                            "unknown option `{}`",
                            &argument[..dashes + name.len().min(body.len())]
                        ))
                        .at(Span::bytes(argument, 0, dashes + name.len()))
                        .near(&format!("--{name}"), names.map(|name| format!("--{name}")))
                        .help("`iowhy fio --help` and `iowhy fio --cmdhelp` list the options"),
                    );
                    continue;
                }
            };
            let separate = match (takes, inline) {
                (Takes::Value, None) => {
                    rest.next_if(|(_, next)| !next.starts_with("--")).map(|(_, next)| next.as_str())
                }
                _ => None,
            };
            let value = inline.or(separate);
            if takes == Takes::Value && value.is_none_or(str::is_empty) {
                self.problems.push(Problem::error(format!("`--{name}` needs a value")).at(Span::whole(argument)));
                continue;
            }
            match general {
                Some((name, _, no_effect)) => self.general(name, value, *no_effect, argument),
                None => self.of_job(name, argument, dashes, separate, number),
            }
        }
    }

    fn of_job(&mut self, name: &str, argument: &str, dashes: usize, separate: Option<&str>, number: usize) {
        // A value in an argument of its own is shown as if it stood behind an equals sign.
        let joined = separate.map(|value| format!("{argument}={value}"));
        let option = lex::argument(joined.as_deref().unwrap_or(argument), dashes, number);
        let section = |name: &str| RawSection {
            name: name.to_owned(),
            line: option.line.clone(),
            global: lex::is_global(name),
            barrier: false,
            options: Vec::new(),
        };
        if name == "name" {
            let job = option.value.clone().unwrap_or_default();
            self.sections.push(section(&job));
        } else if self.sections.is_empty() {
            // As in fio, options before the first name are for all jobs.
            self.sections.push(section("global"));
        }
        if let Some(last) = self.sections.last_mut()
            && !(name == "name" && last.global)
        {
            last.options.push(option);
        }
    }

    fn general(&mut self, name: &str, value: Option<&str>, no_effect: Option<&str>, argument: &str) {
        if let Some(why) = no_effect {
            if why != SAME {
                self.problems.push(Problem::warning(format!("`--{name}` has no effect here: {why}")));
            }
            return;
        }
        let text = || value.unwrap_or_default().to_owned();
        match name {
            "on" => self.settings.on = Some(text()),
            "disk" => self.settings.disk = Some(text()),
            "output" => self.settings.output = Some(text()),
            "seed" => match text().parse() {
                Ok(seed) => self.settings.seed = Some(seed),
                Err(_) => {
                    let message = format!("`--seed` takes a whole number, not `{}`", text());
                    self.problems.push(Problem::error(message).at(Span::whole(argument)));
                }
            },
            "debug" => self.settings.debug_parse |= text().split(',').any(|what| matches!(what, "parse" | "all")),
            "status-interval" => match value::time(&text(), value::TimeUnit::Seconds, (1, i64::MAX)) {
                Ok(us) => self.settings.status_every = std::time::Duration::from_micros(us),
                Err(fault) => {
                    let problem = Problem::error(format!("`--status-interval`: {}", fault.message));
                    self.problems.push(problem.at(Span::whole(argument)).help("--status-interval=10"));
                }
            },
            "aux-path" => self.settings.aux_path = Some(text()),
            "section" => self.wanted.push(text()),
            "readonly" => self.settings.readonly = true,
            "allow-write" => self.settings.allow_write.push(text()),
            "minimal" => self.format(Format::Terse),
            "append-terse" => [Format::Normal, Format::Terse].into_iter().for_each(|format| self.format(format)),
            "terse-version" => match text().parse() {
                Ok(version) if terse::VERSIONS.contains(&version) => self.settings.terse_version = version,
                _ => {
                    let message = format!("the terse format has no version `{}`", text());
                    self.problems.push(Problem::error(message).at(Span::whole(argument)).help("2, 3, 4 or 5"));
                }
            },
            "output-format" => {
                for word in text().split(',') {
                    match word.trim() {
                        "normal" => self.format(Format::Normal),
                        "terse" => self.format(Format::Terse),
                        "json" => self.format(Format::Json),
                        "json+" => self.format(Format::JsonPlus),
                        other => self.problems.push(
                            Problem::error(format!("unknown output format `{other}`"))
                                .at(Span::whole(argument))
                                .near(other, ["normal", "terse", "json", "json+"])
                                .help("normal, terse, json or json+, comma between"),
                        ),
                    }
                }
            }
            "parse-only" => self.settings.action = Action::ParseOnly,
            "showcmd" => {
                self.settings.action = Action::ShowCommand;
                self.files.extend(value.map(str::to_owned));
            }
            "bandwidth-log" => self.settings.bandwidth_log = true,
            "inflate-log" => self.settings.action = Action::Unpack(text()),
            "help" => self.settings.action = Action::Help,
            "version" => self.settings.action = Action::Version,
            "cmdhelp" => self.settings.action = Action::Options(value.filter(|name| *name != "all").map(str::to_owned)),
            _ => self.settings.action = Action::Engines,
        }
    }

    fn format(&mut self, format: Format) {
        self.settings.late_format |= !self.sections.is_empty();
        if !self.settings.formats.contains(&format) {
            self.settings.formats.push(format);
        }
    }
}

#[cfg(test)]
mod tests;
