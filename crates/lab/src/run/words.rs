//! The words behind `iowhy run`: options and job, and the help.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use iowhy_fio::World;
use iowhy_live::capture::Level;
use iowhy_live::plan::Cache;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_trace as trace;

use super::knobs::is_live;
use super::limit::Limit;
use super::own::OwnCommand;
use super::own_report::Export;
use super::{BUILTINS, Builtin, FIO, KINDS, Keep, Own, Until, guest, options, replay};
use crate::on_kernel;
use crate::store::{self, StoreError};

/// The command line as typed: every option once, for the parser, the help and the completion. [`resolve`] makes a
/// request of it.
///
/// [`resolve`]: super::resolve::resolve
#[derive(Default, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
#[command(allow_negative_numbers = true)]
pub(super) struct Line {
    /// jobs, with their options
    #[arg(value_name = "JOB")]
    pub(super) job: Vec<String>,
    /// live, sim:KERNEL[+PATCH..][,key=value..] or kernel:KERNEL[,key=value..]; several times to compare
    #[arg(long)]
    pub(super) on: Vec<String>,
    /// NAME[,key=value..]: the modelled device, simulated also the FILE of a drive; live and kernel, as root: one made
    /// for each run, with file system (fs=ext4) and queue (`iowhy disk create --help`); `here` for none; once, or once
    /// for each --on
    #[arg(long)]
    pub(super) disk: Vec<String>,
    /// runs at each place, with seeds S, S+1, .. [1]; of each command [10]
    #[arg(long, alias = "repeat")]
    runs: Vec<String>,
    /// seed of the first run [1]
    #[arg(long)]
    seed: Vec<String>,
    /// blocks of runs that only warm up, outside of comparisons [0]
    #[arg(long, alias = "warmup")]
    warm_up: Vec<String>,
    /// half-width, percent, of the interval of the median, or of the shift between places, at which to stop (level
    /// 99 %)
    #[arg(long)]
    until: Vec<String>,
    /// with --until: most runs at each place
    #[arg(long)]
    budget: Vec<String>,
    /// label of the runs, which are then kept; once, or once for each --on
    #[arg(long)]
    pub(super) label: Vec<String>,
    /// keep the runs in this directory [IOWHY_STORE; with --label, else the user's data directory]
    #[arg(long)]
    store: Vec<String>,
    /// keep all events, too; live (as root): --trace=light, layers or full [layers]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = Level::default().name())]
    trace: Option<String>,
    /// keep runs without kernel, policies, tunables, disk and place
    #[arg(long)]
    pub(super) blind: bool,
    /// live: directory of the files [a new one here, removed afterwards]
    #[arg(long)]
    pub(super) dir: Vec<String>,
    /// live: cold, warm or as-found: the files' pages at the start [the job's]
    #[arg(long)]
    cache: Vec<String>,
    /// live: a device or file that may be written whatever it holds; may be repeated
    #[arg(long)]
    pub(super) allow_write: Vec<String>,
    /// most bytes that each job works on, for example 4m
    #[arg(long)]
    size_limit: Vec<String>,
    /// most seconds that each job works
    #[arg(long = "for", alias = "time-limit")]
    time_limit: Vec<String>,
    /// kernel: most seconds of a boot with its run [by the job, at least 180]
    #[arg(long)]
    timeout: Vec<String>,
    /// of a trace: closed (each call when the last has ended) or open (at the recorded times) [closed]
    #[arg(long)]
    replay: Vec<String>,
    /// of a trace: factor that its times and pauses are divided by, for example 2 or 0.5 [1]
    #[arg(long)]
    speed: Vec<String>,
    /// of a trace: its format [by its contents]
    #[arg(long)]
    format: Vec<String>,
    /// commands: a shell command before all runs of each, outside of its time
    #[arg(long)]
    setup: Option<String>,
    /// commands: a shell command before each run; once for all, or once for each command
    #[arg(long)]
    prepare: Vec<String>,
    /// commands: a shell command after all runs of each
    #[arg(long)]
    cleanup: Option<String>,
    /// commands: NAME V1,V2,..: one command for each value, which stands for {NAME}; may be repeated
    #[arg(long, short = 'L', num_args = 2)]
    parameter_list: Vec<String>,
    /// commands: their output on standard error
    #[arg(long)]
    show_output: bool,
    /// commands: take failures as results
    #[arg(long, short = 'i')]
    ignore_failure: bool,
    /// commands: write hyperfine's JSON to this file
    #[arg(long)]
    export_json: Option<String>,
    /// commands: write a table as CSV
    #[arg(long)]
    export_csv: Option<String>,
    /// commands: write a table in Markdown
    #[arg(long)]
    export_markdown: Option<String>,
    /// one JSON object (iowhy.run/1)
    #[arg(long)]
    pub(super) json: bool,
    /// print this text; with a built-in job, its options
    #[arg(long, short)]
    pub(super) help: bool,
    /// Its words, to find places of mistakes.
    #[arg(skip)]
    words: Vec<String>,
    /// Behind each `--` a command of the user.
    #[arg(skip)]
    pub(super) commands: Vec<Vec<String>>,
}

/// An option with a value.
struct OptionValue<'a> {
    name: &'static str,
    value: &'a str,
    span: Span,
}

impl Line {
    /// The first value of an option.
    fn given<'a>(&self, name: &'static str, values: &'a [String]) -> Option<OptionValue<'a>> {
        let value = values.first()?;
        Some(OptionValue { name, value, span: self.span(name, value) })
    }

    /// The word of a value, which may have the option before it.
    fn span(&self, name: &str, value: &str) -> Span {
        let whole = format!("--{name}={value}");
        Span::whole(if self.words.contains(&whole) { &whole } else { value })
    }

    /// A number; one that is given twice must be the same.
    fn number(
        &self,
        name: &'static str,
        values: &[String],
        (min, max): (u64, u64),
        problems: &mut Problems,
    ) -> Option<u64> {
        let given = self.given(name, values)?;
        if let Some(other) = values.iter().find(|other| *other != given.value) {
            let text = format!("`--{name}` is {} and {other}", given.value);
            problems.push(Problem::error(text).at(self.span(name, other)).help("keep one of them"));
        }
        let number = given.value.parse().ok().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            given.wrong(&format!("a whole number of at least {min}"), problems);
        }
        number
    }
}

impl OptionValue<'_> {
    fn wrong(&self, takes: &str, problems: &mut Problems) {
        let text = format!("`--{}` takes {takes}, not `{}`", self.name, self.value);
        problems.push(Problem::error(text).at(self.span.clone()));
    }
}

impl Line {
    /// Options that shape the job wherever it is run.
    pub(super) fn shaping(&self) -> Vec<String> {
        let all = [
            ("cache", &self.cache),
            ("size-limit", &self.size_limit),
            ("for", &self.time_limit),
            ("replay", &self.replay),
            ("speed", &self.speed),
            ("format", &self.format),
        ];
        all.iter().flat_map(|(name, values)| values.iter().map(move |value| format!("--{name}={value}"))).collect()
    }

    /// The job and all other words that shape a live run, with whole paths; each run has its own words for its disk.
    pub(super) fn again(&self) -> Vec<String> {
        let whole =
            |path: &String| std::path::absolute(path).map_or_else(|_| path.clone(), |it| it.display().to_string());
        let paths = [("dir", &self.dir), ("allow-write", &self.allow_write)];
        let paths =
            paths.iter().flat_map(|(name, paths)| paths.iter().map(move |path| format!("--{name}={}", whole(path))));
        self.job.iter().cloned().chain(paths).chain(self.shaping()).collect()
    }

    /// Cached state of the files at the start of live runs. Warns of options that no place takes.
    pub(super) fn cache(&self, problems: &mut Problems) -> Option<Cache> {
        let given = self.given("cache", &self.cache);
        let known = [Cache::AsFound, Cache::Cold, Cache::Warm];
        let cache = given.as_ref().and_then(|given| {
            let found = known.into_iter().find(|cache| on_kernel::cache_name(*cache) == given.value);
            if found.is_none() {
                given.wrong("cold, warm or as-found", problems);
            }
            found
        });
        if !self.on.iter().any(|on| is_live(on)) {
            let of_guest = self.in_guest();
            let all = [
                ("dir", !self.dir.is_empty()),
                ("cache", given.is_some() && !of_guest),
                ("allow-write", !self.allow_write.is_empty()),
            ];
            for (name, _) in all.iter().filter(|(_, given)| *given) {
                let text = format!("`--{name}` is for live runs, and there is none");
                problems.push(Problem::warning(text).help("--on live"));
            }
        }
        cache
    }

    fn in_guest(&self) -> bool {
        self.on.iter().any(|on| on.starts_with(guest::PREFIX))
    }

    /// Runs at each place.
    pub(super) fn repeat(&self, problems: &mut Problems) -> u32 {
        let usual = if self.commands.is_empty() { 1 } else { COMMAND_RUNS };
        self.number("runs", &self.runs, (1, 10_000), problems).map_or(usual, |runs| runs as u32)
    }

    /// The seed of the first run.
    pub(super) fn seed(&self, problems: &mut Problems) -> u64 {
        self.number("seed", &self.seed, (0, u64::MAX / 2), problems).unwrap_or(1)
    }

    /// Blocks of runs that only warm up.
    pub(super) fn warm_up(&self, problems: &mut Problems) -> u32 {
        self.number("warm-up", &self.warm_up, (0, 10_000), problems).unwrap_or(0) as u32
    }

    /// The recorded level of a run.
    fn trace(&self, problems: &mut Problems) -> Option<Level> {
        let named = self.trace.as_ref()?;
        let level = Level::ALL.into_iter().find(|level| level.name() == named);
        if level.is_none() {
            let text = format!("`--trace` takes light, layers or full, not `{named}`");
            problems.push(Problem::error(text).at(Span::whole(&format!("--trace={named}"))));
        }
        level
    }

    /// The time for a guest.
    pub(super) fn timeout(&self, problems: &mut Problems) -> Option<Duration> {
        let seconds = self.number("timeout", &self.timeout, (1, 1_000_000), problems)?;
        if !self.in_guest() {
            let text = "`--timeout` is for kernels that are booted, and there is none";
            problems.push(Problem::warning(text).help("--on kernel:debian-6.1"));
        }
        Some(Duration::from_secs(seconds))
    }

    /// The stopping rule.
    pub(super) fn until(&self, problems: &mut Problems) -> Option<Until> {
        let budget = self.number("budget", &self.budget, (2, 10_000), problems);
        let Some(given) = self.given("until", &self.until) else {
            if !self.budget.is_empty() {
                problems.push(Problem::error("`--budget` is for `--until`, which is missing").help("--runs N"));
            }
            return None;
        };
        let pct = given.value.trim_end_matches('%').parse().ok().filter(|pct: &f64| *pct > 0.0 && *pct <= 1000.0);
        if pct.is_none() {
            given.wrong("percent above 0, for example 2", problems);
        }
        if self.budget.is_empty() {
            let help = "--budget 40: it ends there even if the interval is still wide";
            problems.push(Problem::error("`--until` needs `--budget`").at(given.span).help(help));
        }
        Some(Until { pct: pct?, budget: budget? as u32 })
    }

    /// Where runs are kept: if a store is named, or if the request makes sense of kept runs only.
    pub(super) fn keep(&self, world: &World<'_>, problems: &mut Problems) -> Option<Keep> {
        let named = self.store.first().map(PathBuf::from);
        let variable = (world.variable)(store::VARIABLE).is_some_and(|value| !value.is_empty());
        let trace = self.trace(problems);
        let asked = named.is_some() || variable || trace.is_some() || self.blind;
        if !asked && self.label.is_empty() {
            return None;
        }
        let Some(directory) = store::directory(named.as_deref(), world.variable) else {
            let text = StoreError::NoPlace.to_string();
            problems.push(if asked { Problem::error(text) } else { Problem::warning(text) });
            return None;
        };
        Some(Keep { directory, asked, trace, blind: self.blind })
    }

    /// How a trace is replayed.
    pub(super) fn replay(&self, problems: &mut Problems) -> replay::Replay {
        let mut how = replay::Replay::default();
        if let Some(given) = self.given("format", &self.format) {
            how.form = trace::format::format(given.value).filter(|format| format.is_read());
            if how.form.is_none() {
                let names = trace::FORMATS.iter().filter(|format| format.is_read()).map(|format| format.name);
                let text = format!("`--format` takes a format of traces, not `{}`", given.value);
                problems.push(Problem::error(text).at(given.span.clone()).near(given.value, names));
            }
        }
        let given = [("replay", &self.replay), ("speed", &self.speed)];
        let mut given = given.iter().filter_map(|(name, values)| self.given(name, values));
        if let Some(given) = given.next()
            && how.form.is_none()
            && !replay::is_trace(&self.job)
        {
            let text = format!("`--{}` is for traces, and this job is none", given.name);
            problems.push(Problem::warning(text).at(given.span));
        }
        if let Some(given) = self.given("replay", &self.replay) {
            how.mode = replay::Mode::parse(given.value).unwrap_or_else(|| {
                given.wrong("closed or open", problems);
                replay::Mode::default()
            });
        }
        if let Some(given) = self.given("speed", &self.speed) {
            let factor = given.value.parse::<f64>().ok().filter(|factor| (1e-6..=1e6).contains(factor));
            match factor {
                Some(factor) => how.speed = (factor * replay::Replay::ONE as f64).round() as u64,
                None => given.wrong("a factor from 0.000001 to 1000000", problems),
            }
        }
        how
    }

    /// The commands of the user, one for each combination of parameters.
    pub(super) fn own_commands(&self, problems: &mut Problems) -> Vec<OwnCommand> {
        let mut wrong = |text: String, help: &str| problems.push(Problem::error(text).help(help));
        let for_jobs = [
            ("disk", &self.disk),
            ("cache", &self.cache),
            ("size-limit", &self.size_limit),
            ("for", &self.time_limit),
            ("timeout", &self.timeout),
            ("replay", &self.replay),
            ("speed", &self.speed),
            ("format", &self.format),
        ];
        for (name, _) in for_jobs.iter().filter(|(_, given)| !given.is_empty()) {
            wrong(format!("`--{name}` is for jobs, and commands follow"), "--prepare can do it before each run");
        }
        if let Some(word) = self.job.first() {
            wrong(format!("`{word}` is a job, and commands follow"), "iowhy run JOB --on .., or iowhy run -- COMMAND");
        }
        if self.commands.iter().any(Vec::is_empty) {
            wrong("a `--` has no command behind it".to_owned(), "iowhy run -- './old args' -- './new args'");
        }
        let nr_prepare = self.prepare.len();
        if nr_prepare > 1 && nr_prepare != self.commands.len() {
            let text = format!("`--prepare` is given {nr_prepare} times, with {} commands", self.commands.len());
            wrong(text, "one `--prepare` for all, or one for each command");
        }
        let mut settings: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for pair in self.parameter_list.chunks_exact(2) {
            let (name, values) = (&pair[0], &pair[1]);
            let holder = format!("{{{name}}}");
            let hooks = self.setup.iter().chain(&self.cleanup).chain(&self.prepare);
            if !self.commands.iter().flatten().chain(hooks).any(|word| word.contains(&holder)) {
                wrong(format!("no command has the parameter {holder}"), "--parameter-list NAME V1,V2 -- 'cmd {NAME}'");
            }
            let with = |known: &Vec<(String, String)>, value: &str| {
                known.iter().cloned().chain([(name.clone(), value.to_owned())]).collect()
            };
            settings =
                settings.iter().flat_map(|known| values.split(',').map(move |value| with(known, value))).collect();
        }
        let commands = self.commands.iter().enumerate();
        let all = commands.flat_map(|(nr, words)| settings.iter().map(move |parameters| (nr, words, parameters)));
        all.map(|(nr, words, parameters)| {
            let fill = |text: &String| {
                let put = |text: String, (name, value): &(String, String)| text.replace(&format!("{{{name}}}"), value);
                parameters.iter().fold(text.clone(), put)
            };
            OwnCommand {
                words: words.iter().map(fill).collect(),
                parameters: parameters.clone(),
                setup: self.setup.as_ref().map(fill),
                prepare: self.prepare.get(nr).or(self.prepare.first()).map(fill),
                cleanup: self.cleanup.as_ref().map(fill),
                show_output: self.show_output,
                ignore_failure: self.ignore_failure,
            }
        })
        .collect()
    }

    /// Files for the results of commands.
    pub(super) fn exports(&self) -> Own {
        let path = |path: &Option<String>, form| path.as_ref().map(|path| (PathBuf::from(path), form));
        let all = [
            path(&self.export_json, Export::Json),
            path(&self.export_csv, Export::Csv),
            path(&self.export_markdown, Export::Markdown),
        ];
        Own { commands: Vec::new(), exports: all.into_iter().flatten().collect() }
    }

    /// Options of commands, which a job does not take.
    pub(super) fn refuse_of_commands(&self, problems: &mut Problems) {
        let given = [
            ("setup", self.setup.is_some()),
            ("prepare", !self.prepare.is_empty()),
            ("cleanup", self.cleanup.is_some()),
            ("parameter-list", !self.parameter_list.is_empty()),
            ("show-output", self.show_output),
            ("ignore-failure", self.ignore_failure),
            ("export-json", self.export_json.is_some()),
            ("export-csv", self.export_csv.is_some()),
            ("export-markdown", self.export_markdown.is_some()),
        ];
        for (name, _) in given.iter().filter(|(_, given)| *given) {
            let text = format!("`--{name}` is for commands, and there is none");
            problems.push(Problem::error(text).help("iowhy run [OPTIONS] -- './old args' -- './new args'"));
        }
    }

    /// The limits of jobs.
    pub(super) fn limit(&self, problems: &mut Problems) -> Limit {
        let bytes = self.given("size-limit", &self.size_limit).and_then(|given| {
            let bytes = iowhy_fio::value::integer(given.value, 1024, (4096, 1 << 60)).map(i64::unsigned_abs);
            if bytes.is_err() {
                given.wrong("a size of at least 4k, for example 4m", problems);
            }
            bytes.ok()
        });
        let seconds = self.number("for", &self.time_limit, (1, 1_000_000), problems);
        Limit { bytes, time: seconds.map(Duration::from_secs) }
    }
}

/// Takes a command line apart. Every mistake goes to `problems`; a wrong value counts as not given.
pub(super) fn take_apart(words: &[String], problems: &mut Problems) -> Line {
    let command = Line::command().mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.value_parser(NonEmptyStringValueParser::new()),
        false => arg,
    });
    let is_own = |word: &str| {
        let name = word.trim_start_matches('-').split('=').next();
        let is = |arg: &clap::Arg| {
            let names = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            names.into_iter().any(|own| Some(own) == name)
        };
        word == "-h" || command.get_arguments().any(is)
    };
    let mut groups = words.split(|word| word == "--").map(<[String]>::to_vec);
    let mut words = groups.next().unwrap_or_default();
    let commands: Vec<Vec<String>> = groups.collect();
    // fio's own options are words of the job, as they stand.
    if let Some(fio) = words.iter().position(|word| word == FIO) {
        let foreign = |word: &&mut String| word.len() > 2 && word.starts_with("--") && !is_own(word);
        words[fio..].iter_mut().filter(foreign).for_each(|word| word.insert(0, OF_THE_JOB));
    }
    loop {
        let error = match command.clone().try_get_matches_from(&words) {
            Ok(matches) => {
                let mut line = Line::from_arg_matches(&matches).unwrap_or_default();
                line.job.iter_mut().for_each(|word| *word = word.trim_start_matches(OF_THE_JOB).to_owned());
                (line.words, line.commands) = (words, commands);
                return line;
            }
            Err(error) => error,
        };
        // A wrong word is put aside, so that the next mistake is found, too.
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        let invalid = text(ContextKind::InvalidArg);
        let name = invalid.split([' ', '=', '[']).next().unwrap_or_default();
        let of_name =
            |word: &String| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        let at = match words.iter().rposition(of_name) {
            Some(at) if !name.is_empty() => at,
            _ => {
                problems.push(Problem::error(error.to_string()));
                return Line::default();
            }
        };
        let word = words.remove(at);
        let value = word.split_once('=').map_or("", |(_, value)| value);
        problems.push(match error.kind() {
            ErrorKind::UnknownArgument if name.starts_with("--") => {
                let names = command.get_arguments().filter_map(|arg| arg.get_long()).map(|name| format!("--{name}"));
                Problem::error(format!("unknown option `{name}`"))
                    .at(Span::bytes(&word, 0, name.len()))
                    .near(name, names)
                    .help("`iowhy run --help` lists the options")
            }
            ErrorKind::UnknownArgument => Problem::error(format!("unknown option `{word}`")).at(Span::whole(&word)),
            ErrorKind::TooManyValues => {
                Problem::error(format!("`{name}` takes no value, and has `{value}`")).at(Span::whole(&word))
            }
            _ => Problem::error(format!("`{name}` needs a value")).at(Span::whole(&word)),
        });
    }
}

/// Runs of each command unless another number is asked for: enough for a verdict at the usual level.
const COMMAND_RUNS: u32 = 10;

/// Stands before words that are the job's, though they look like options.
const OF_THE_JOB: char = '\0';

/// The options, for man pages and completion.
pub fn command() -> clap::Command {
    Line::command()
}

/// The help of the verb.
pub fn help() -> String {
    let mut out = String::from(
        "iowhy run JOB.. --on WHERE [--on WHERE2 ..] [OPTIONS]\n\
         iowhy run [OPTIONS] -- COMMAND [-- COMMAND2 ..]\n\nRun a job on the running kernel (--on live), in the \
         simulator\n(--on sim:KERNEL), or on a kernel that QEMU boots (--on kernel:KERNEL). JOB is\none or more fio \
         job files (- is standard input), `fio` with words of fio's\ncommand line, a recorded trace, or a \
         built-in job with key=value words; COMMAND is a shell command in one word, or a\n\
         program with its arguments. Several are run in random order and compared with the\n\
         first; the start of the shell is not in their times.\n\n",
    );
    for builtin in BUILTINS {
        out.push_str(&text::item(builtin.name, builtin.summary, 14));
    }
    out.push_str("\n`iowhy run NAME --help` lists the options of a built-in job.\n\n");
    for arg in Line::command().get_arguments() {
        let Some(name) = arg.get_long() else { continue };
        let value = if arg.get_action().takes_values() && name != "trace" { "=VALUE" } else { "" };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        out.push_str(&text::item(&format!("--{name}{value}"), &help, 18));
    }
    KINDS.iter().for_each(|kind| out.push_str(&(kind.help)()));
    out.push_str(
        "\nExamples:\n  iowhy run --runs 20 --prepare sync -- './old args' -- './new args'\n  \
         iowhy run --on live,read_ahead_kb=4 --on live,read_ahead_kb=512 -- 'cat big > /dev/null'\n  \
         iowhy run jobs/seq-read.fio --on sim:linux-6.1 --on sim:linux-6.18 --disk sata-2014\n  \
         iowhy run paralleldd size=64m readers=3 --on live --cache cold --runs 5\n  \
         iowhy run dd of=/dev/sda bs=4k oflag=direct count=4096 writers=2 \\\n    \
         --on sim:linux-2.6.18-164.el5 --on sim:linux-2.6.18-186.el5 --runs 5\n",
    );
    out
}

/// The help of a built-in job.
pub(super) fn help_of(builtin: &Builtin) -> String {
    let mut out = format!("iowhy run {} [KEY=VALUE ..] --on WHERE [OPTIONS]\n\n", builtin.name);
    for line in text::wrap(&format!("{}. {}", capital(builtin.summary), builtin.notes), text::width() - 2) {
        out.push_str(&line);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&options::help(builtin.options));
    out
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}
