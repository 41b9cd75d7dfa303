//! `sysbench fileio`: its command line, its rules, its report.
//!
//! A command line is taken apart ([`options`]), resolved into a [`Request`] with every mistake reported at once, run on
//! real files ([`live`], as sysbench does, and by default) or by the simulator (`--on sim:..`), and shown in sysbench's
//! own shape or as JSON ([`report`]).

pub mod live;
pub mod options;
pub mod report;

use iowhy_live::plan::Cache;
use iowhy_stack::event::Op;
use iowhy_stack::job::{CacheStart, Job, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::outcome::Plan;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Dialect, FileIo, Mode, PositionSource};

use crate::place;
use iowhy_text::diagnose::{Problem, Problems, Severity, Span};
use live::FileSet;
use options::{Command, CommandLine, Kind, Opt, OptionUse};

/// How files are accessed (`--file-io-mode`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// One call after the other.
    Sync,
    /// libaio.
    Async,
    /// A mapping of each file.
    Mmap,
}

/// The report's facts that the plan does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// As typed: where.
    pub on: String,
    /// As typed: disk.
    pub disk: Option<String>,
    /// Print JSON.
    pub json: bool,
    /// Shape of 1.1 rather than 1.0.
    pub style_1_1: bool,
    pub percentile: u64,
    /// Print the histogram.
    pub histogram: bool,
    /// Seconds between progress lines; 0 for none.
    pub report_interval: u64,
    /// Seconds at which all statistics are printed and begin anew, in order.
    pub checkpoints: Vec<u64>,
    /// Data have sums, and what is read is held to them.
    pub validate: bool,
    /// Nothing but errors is printed.
    pub silent: bool,
    /// Access mode.
    pub io_mode: IoMode,
    /// Flags as typed, normalised.
    pub extra_flags: Vec<&'static str>,
}

/// A command line that means something.
#[derive(Clone, Debug)]
pub enum Request {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// `prepare` of these files; none in the simulator, where there is nothing to do.
    Prepare(Option<FileSet>),
    /// `cleanup` of these files; none in the simulator, where there is nothing to do.
    Cleanup(Option<FileSet>),
    /// `run` in the simulator.
    Run(Box<(Plan, Settings)>),
    /// `run` on real files.
    RunLive(Box<LiveRun>),
}

/// A run on real files.
#[derive(Clone, Debug)]
pub struct LiveRun {
    pub job: Job,
    /// How it is reported.
    pub settings: Settings,
    pub files: FileSet,
    /// Contents of the page cache at its start.
    pub cache: Cache,
}

/// Where a run happens.
enum Where {
    Simulated(Box<Stack>),
    Live,
}

/// Result of a command line.
struct Resolved {
    place: Option<Where>,
    files: FileSet,
    /// For a run only.
    job: Option<(Job, Settings, Cache)>,
}

/// Meaning of a command line, or all mistakes in it. Warnings are left in `problems` in either case.
pub fn resolve(arguments: &[String], problems: &mut Problems) -> Option<Request> {
    let line = options::parse(arguments, problems);
    if let Some(Command::Help | Command::Version) = line.command {
        problems.list.clear();
        return Some(if line.command == Some(Command::Help) { Request::Help } else { Request::Version });
    }
    if arguments.is_empty() {
        problems.push(Problem::error("nothing to do").help("iowhy sysbench fileio help"));
        return None;
    }
    if !line.fileio && !line.old_test {
        problems
            .push(Problem::error("no test").help("iowhy sysbench fileio OPTIONS run (or --test=fileio, as in 0.4)"));
    }
    if line.command.is_none() {
        problems.push(Problem::error("no command: prepare, run or cleanup is missing").help("add the word `run`"));
    }
    let resolved = Resolver { dialect: dialect(&line), line: &line, problems }.run();
    if problems.any_error() {
        return None;
    }
    let Resolved { place, files, job } = resolved?;
    let live = matches!(place, Some(Where::Live));
    match line.command {
        Some(Command::Prepare) => Some(Request::Prepare(live.then_some(files))),
        Some(Command::Cleanup) => Some(Request::Cleanup(live.then_some(files))),
        _ => {
            let (job, settings, cache) = job?;
            Some(match place? {
                Where::Simulated(stack) => Request::Run(Box::new((Plan { stack: *stack, job }, settings))),
                Where::Live => Request::RunLive(Box::new(LiveRun { job, settings, files, cache })),
            })
        }
    }
}

/// The dialect of sysbench: that of `--dialect`, else 0.4 if only old spellings are used.
fn dialect(line: &CommandLine) -> Dialect {
    match line.get("dialect").map(|given| given.value.as_str()) {
        Some("0.4") => Dialect::V0_4,
        Some(_) => Dialect::V1_0,
        None if line.any_old().is_some() && !line.any_new() => Dialect::V0_4,
        None => Dialect::V1_0,
    }
}

struct Resolver<'a> {
    line: &'a CommandLine,
    dialect: Dialect,
    problems: &'a mut Problems,
}

/// The sync that goes with each write by the flags of the files.
fn synchronous(flags: &[&str]) -> Option<Op> {
    let writes = [("sync", Op::Fsync), ("dsync", Op::Fdatasync)];
    writes.iter().find(|(flag, _)| flags.contains(flag)).map(|(_, op)| *op)
}

impl Resolver<'_> {
    fn run(mut self) -> Option<Resolved> {
        self.dialect_is_known();
        let running = self.line.command == Some(Command::Run);
        let on_files = self.on_files();
        let threads = self.number("threads");
        let nr_files = self.number("file-num");
        let block_bytes = self.size("file-block-size");
        let total_bytes = self.size("file-total-size");
        let mode = self.mode(running);
        let io_mode = self.io_mode(on_files);
        let extra_flags = self.extra_flags();
        let rw_ratio_milli = self.milli("file-rw-ratio");
        let fsync_freq = self.number("file-fsync-freq");
        let fsync_all = self.switch("file-fsync-all");
        // As in sysbench: who syncs each write wants neither passes nor a sync at the end.
        let fsync_end = self.switch("file-fsync-end") && !fsync_all;
        let datasync = self.choice("file-fsync-mode") == Some("fdatasync");
        let fsync_op = if datasync { Op::Fdatasync } else { Op::Fsync };
        let merged_requests = self.number("file-merged-requests");
        let backlog = self.number("file-async-backlog");
        let max_events = self.number("events");
        let time = self.number("time");
        let warmup = self.number("warmup-time");
        let rate = self.number("rate");
        let interval = self.number("report-interval");
        let percentile = self.number("percentile");
        let seed = self.seed();
        let cache = if on_files { CacheStart::Cold } else { self.cache().unwrap_or(CacheStart::Cold) };
        let cache_of_files = if on_files { self.cache_of_files() } else { Cache::AsFound };
        let validate = self.switch("validate");
        let (report_interval, checkpoints, stretch) = self.reports(on_files, interval.unwrap_or(0), validate);
        let silent = self.number("verbosity").is_some_and(|verbosity| verbosity < 3);
        let settings = self.settings(percentile, io_mode, &extra_flags);
        let settings = settings.map(|of| Settings { report_interval, checkpoints, validate, silent, ..of });
        for option in options::OPTIONS.iter().filter(|option| option.group == options::Group::Ignored) {
            self.ignored(option);
        }
        let place = self.place();
        if on_files {
            self.of_the_simulator();
        }
        self.warn_of_syncs(fsync_all);
        // From here on values are combined, so all that are needed must be there.
        let (nr_files, total_bytes, block_bytes) = (nr_files?, total_bytes?, block_bytes?);
        self.sizes(nr_files, total_bytes, block_bytes, merged_requests.unwrap_or(0));
        let direct = extra_flags.contains(&"direct");
        self.check_direct(direct, block_bytes, running && io_mode == IoMode::Async);
        let files = FileSet {
            nr_files: nr_files as u32,
            file_bytes: total_bytes / nr_files,
            total_bytes,
            block_bytes,
            extra_flags: extra_flags.clone(),
            validate,
        };
        let (max_events, time) = (max_events?, time?);
        self.check_length(running, max_events, time, warmup);
        let warmup = warmup?;
        if let (Some(mode), Some(backlog)) = (mode, backlog) {
            self.warn_of_other_modes(mode);
            let positions = match self.dialect {
                // Nobody seeded the generator of 0.4, so everybody had the same positions.
                Dialect::V0_4 if !self.wants_seed() => PositionSource::GlibcUnseeded,
                _ => PositionSource::Seeded(seed),
            };
            let fileio = FileIo {
                threads: threads? as u32,
                nr_files: nr_files as u32,
                total_bytes,
                block_bytes: block_bytes as u32,
                mode,
                rw_ratio_milli: rw_ratio_milli?,
                fsync_freq: fsync_freq?,
                fsync_all,
                fsync_end,
                fsync_op,
                synchronous_writes: synchronous(&extra_flags),
                merged_requests: merged_requests? as u32,
                max_events,
                max_time: Nanos::from_secs(time),
                rate: rate?,
                dialect: self.dialect,
                positions,
                own_descriptors: self.switch("own-descriptors"),
                linux_threads: self.switch("linux-threads"),
                direct,
                // A simulated buffered call is never in flight; real ones are handed to the kernel anyway.
                in_flight: if io_mode == IoMode::Async && (direct || on_files) { backlog as u32 } else { 1 },
            };
            let job = Job {
                cache,
                mapping_cached: self.switch("mapping-cached"),
                warmup: Nanos::from_secs(warmup),
                interval: Nanos::from_secs(stretch),
                ..Job::new(Workload::FileIo(fileio), seed)
            };
            return Some(Resolved { place, files, job: Some((job, settings?, cache_of_files)) });
        }
        Some(Resolved { place, files, job: None })
    }

    /// The interval of lines, the checkpoints, and the longest stretch that all of them are made of, s.
    fn reports(&mut self, on_files: bool, interval: u64, validate: bool) -> (u64, Vec<u64>, u64) {
        let checkpoints = self.checkpoints();
        if !on_files && (validate || !checkpoints.is_empty()) {
            let message = "`--validate` and `--report-checkpoints` have an effect on real files only";
            self.problems.push(Problem::warning(message));
        }
        let divisor = |a: u64, b: u64| (1..=a.max(b)).rev().find(|d| a.is_multiple_of(*d) && b.is_multiple_of(*d));
        let of_lines = checkpoints.iter().filter(|_| on_files);
        let stretch = of_lines.fold(interval, |all, second| divisor(all, *second).unwrap_or(1));
        (interval, checkpoints, stretch)
    }

    fn check_direct(&mut self, direct: bool, block_bytes: u64, asynchronous: bool) {
        if direct && !block_bytes.is_multiple_of(512) {
            self.error_at(
                "file-block-size",
                "direct I/O needs blocks of a multiple of 512 bytes",
                "--file-block-size=4K",
            );
        }
        if asynchronous && !direct {
            self.advise(
                Problem::warning(
                    "`--file-io-mode=async` on buffered files is synchronous: the call does not return before the data \
                     are there",
                )
                .help("--file-extra-flags=direct makes it asynchronous"),
            );
        }
    }

    fn on_files(&self) -> bool {
        self.line.get("on").is_none_or(|on| on.value == "live")
    }

    /// A remark that changes no figure: on real files it is in JSON only, because sysbench is silent there.
    fn advise(&mut self, problem: Problem) {
        self.problems.push(if self.on_files() { Problem { severity: Severity::Note, ..problem } } else { problem });
    }

    fn check_length(&mut self, running: bool, max_events: u64, time: u64, warmup: Option<u64>) {
        if running && max_events == 0 && time == 0 {
            self.problems.push(
                Problem::error("with neither a number of events nor a time the run would never end")
                    .help("--events=10000 or --time=10"),
            );
        }
        if time > 0 && warmup.is_some_and(|warmup| warmup >= time) {
            self.error_at(
                "warmup-time",
                "the warm-up takes all of the time, so nothing would be reported",
                "--warmup-time=0",
            );
        }
    }

    fn warn_of_other_modes(&mut self, mode: Mode) {
        if self.line.get("file-rw-ratio").is_some() && mode != Mode::RandomReadWrite {
            self.advise(Problem::warning("`--file-rw-ratio` has an effect in rndrw only"));
        }
        if self.line.get("file-merged-requests").is_some_and(|given| given.value != "0")
            && matches!(mode, Mode::RandomRead | Mode::RandomWrite | Mode::RandomReadWrite)
        {
            self.advise(Problem::warning("`--file-merged-requests` has an effect in sequential modes only"));
        }
    }

    fn warn_of_syncs(&mut self, fsync_all: bool) {
        if fsync_all && self.line.get("file-fsync-freq").is_some_and(|given| given.value != "0") {
            self.advise(
                Problem::warning("`--file-fsync-all` syncs after each write, so `--file-fsync-freq` has no effect")
                    .help("leave one of them out"),
            );
        }
    }

    fn settings(&mut self, percentile: Option<u64>, io_mode: IoMode, extra_flags: &[&'static str]) -> Option<Settings> {
        let style_1_1 = self.choice("report-style") == Some("1.1");
        let histogram = self.switch("histogram");
        let json = self.switch("json");
        Some(Settings {
            on: self.text("on").unwrap_or("live").to_owned(),
            disk: self.text("disk").map(str::to_owned),
            json,
            style_1_1,
            percentile: percentile?,
            histogram,
            report_interval: 0,
            checkpoints: Vec::new(),
            validate: false,
            silent: false,
            io_mode,
            extra_flags: extra_flags.to_vec(),
        })
    }

    fn dialect_is_known(&mut self) {
        self.choice("dialect");
        if self.dialect == Dialect::V1_0
            && self.line.get("dialect").is_none()
            && let Some(old) = self.line.any_old()
        {
            self.problems.push(
                Problem::warning(format!(
                    "`--{}` is a spelling of 0.4 among others of 1.0: 1.0 is meant",
                    old.trim_start_matches('-')
                ))
                .help("--dialect=0.4 if the request rules of 2004 are wanted"),
            );
        }
    }

    fn given(&self, name: &str) -> Option<&OptionUse> {
        self.line.get(name)
    }

    fn option(&self, name: &str) -> &'static Opt {
        match options::find(name) {
            Some((option, _)) => option,
            None => unreachable!("`{name}` is in the table of options"),
        }
    }

    /// The value as typed, or the default of this dialect, with the spelling used and where it stands.
    fn value(&self, name: &str) -> (&str, &'static str, Option<Span>) {
        let option = self.option(name);
        match self.given(name) {
            Some(given) => {
                let spelling = if given.old { option.old.unwrap_or(option.name) } else { option.name };
                (&given.value, spelling, Some(given.span.clone()))
            }
            None => {
                let default = match self.dialect {
                    Dialect::V0_4 => option.default_0_4.unwrap_or(option.default),
                    Dialect::V1_0 => option.default,
                };
                (default, option.name, None)
            }
        }
    }

    fn report<T>(&mut self, result: Result<T, String>, span: Option<Span>, help: Option<String>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(message) => {
                let mut problem = Problem::error(message);
                problem.span = span;
                problem.help = help;
                self.problems.push(problem);
                None
            }
        }
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let (text, spelling, span) = self.value(name);
        let Kind::Number(min, max) = self.option(name).kind else { unreachable!("`{name}` is a number") };
        let mut result = options::number(text, (min, max), spelling);
        // sysbench of 2004 took percentages and counts as signed numbers; -1 never meant anything here.
        if text == "0" && min == 1 {
            result = Err(format!("`--{spelling}` must be at least 1"));
        }
        self.report(result, span, None)
    }

    fn size(&mut self, name: &str) -> Option<u64> {
        let (text, spelling, span) = self.value(name);
        let Kind::Size(min, max) = self.option(name).kind else { unreachable!("`{name}` is a size") };
        let result = options::size(text, (min, max), spelling);
        self.report(result, span, None)
    }

    fn milli(&mut self, name: &str) -> Option<u64> {
        let (text, spelling, span) = self.value(name);
        let result = options::milli(text, spelling);
        self.report(result, span, Some("--file-test-mode=rndwr for writes only, rndrd for reads only".to_owned()))
    }

    fn switch(&mut self, name: &str) -> bool {
        let (text, spelling, span) = self.value(name);
        let result = match text {
            "on" | "1" | "true" | "yes" => Ok(true),
            "off" | "0" | "false" | "no" => Ok(false),
            _ => Err(format!("`--{spelling}` takes on or off, not `{text}`")),
        };
        let reported = self.problems.list.iter().any(|known| result.as_ref().err() == Some(&known.message));
        if reported { false } else { self.report(result, span, None).unwrap_or(false) }
    }

    fn choice(&mut self, name: &str) -> Option<&'static str> {
        let Kind::Choice(choices) = self.option(name).kind else { unreachable!("`{name}` is a choice") };
        let (text, spelling, span) = self.value(name);
        if text.is_empty() && span.is_none() {
            return None;
        }
        match choices.iter().find(|choice| **choice == text) {
            Some(choice) => Some(choice),
            None => {
                let mut problem =
                    Problem::error(format!("`--{spelling}` takes one of {}, not `{text}`", choices.join(", ")))
                        .near(text, choices);
                problem.span = span;
                self.problems.push(problem);
                None
            }
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.given(name).map(|given| given.value.as_str())
    }

    fn error_at(&mut self, name: &str, message: &str, help: &str) {
        let mut problem = Problem::error(message).help(help);
        problem.span = self.given(name).map(|given| given.span.clone());
        self.problems.push(problem);
    }

    fn mode(&mut self, running: bool) -> Option<Mode> {
        if self.given("file-test-mode").is_none() {
            if running {
                self.problems.push(
                    Problem::error("`--file-test-mode` is missing")
                        .help("--file-test-mode=seqwr|seqrewr|seqrd|rndrd|rndwr|rndrw"),
                );
            }
            return None;
        }
        let name = self.choice("file-test-mode")?;
        Mode::NAMES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
    }

    fn io_mode(&mut self, on_files: bool) -> IoMode {
        match self.choice("file-io-mode") {
            Some("async") => IoMode::Async,
            Some("mmap") if on_files => IoMode::Mmap,
            Some("mmap") => {
                self.error_at(
                    "file-io-mode",
                    "mmap I/O is not modelled yet: a page fault reads around its page, a read call ahead of it",
                    "--file-io-mode=sync, or async with --file-extra-flags=direct",
                );
                IoMode::Sync
            }
            _ => IoMode::Sync,
        }
    }

    fn extra_flags(&mut self) -> Vec<&'static str> {
        const FLAGS: &[&str] = &["sync", "dsync", "direct"];
        let mut flags: Vec<&'static str> = Vec::new();
        let Some(given) = self.given("file-extra-flags").cloned() else { return flags };
        for word in given.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match FLAGS.iter().find(|flag| **flag == word) {
                Some(flag) if !flags.contains(flag) => flags.push(flag),
                Some(_) => {}
                None => self.problems.push(
                    Problem::error(format!("`--file-extra-flags` takes sync, dsync and direct, not `{word}`"))
                        .at(given.span.clone())
                        .near(word, FLAGS),
                ),
            }
        }
        if flags.contains(&"sync") && flags.contains(&"dsync") {
            self.problems.push(Problem::warning("`sync` includes `dsync`: only `sync` counts").at(given.span));
            flags.retain(|flag| *flag != "dsync");
        }
        flags
    }

    /// Seconds of checkpoints, in order.
    fn checkpoints(&mut self) -> Vec<u64> {
        let Some(given) = self.given("report-checkpoints").cloned() else { return Vec::new() };
        let mut seconds = Vec::new();
        for word in given.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let number = options::number(word, (1, options::MAX_SECONDS), "report-checkpoints");
            seconds.extend(self.report(number, Some(given.span.clone()), None));
        }
        seconds.sort_unstable();
        seconds.dedup();
        seconds
    }

    /// Whether the user asked for positions of a seed rather than those of the unseeded generator.
    fn wants_seed(&self) -> bool {
        let rand_seed = self.text("rand-seed").is_some_and(|text| text != "0");
        let switched = |name| self.text(name).is_some_and(|text| text != "off");
        self.given("seed").is_some() || rand_seed || switched("init-rng") || switched("rand-init")
    }

    fn seed(&mut self) -> u64 {
        let seed = self.number("seed").unwrap_or(1);
        match self.number("rand-seed").unwrap_or(0) {
            0 => seed,
            rand_seed => {
                if self.given("seed").is_some() && seed != rand_seed {
                    self.error_at("rand-seed", "`--seed` and `--rand-seed` differ", "leave one of them out");
                }
                rand_seed
            }
        }
    }

    fn cache(&mut self) -> Option<CacheStart> {
        let (text, _, span) = self.value("cache");
        if span.is_none() {
            return Some(CacheStart::Cold);
        }
        let result = match text.split_once(':') {
            None if text == "cold" => Ok(CacheStart::Cold),
            Some(("tail", size)) => {
                options::size(size, (1, 1 << 60), "cache=tail:SIZE").map(|bytes| CacheStart::Tail { bytes })
            }
            _ => Err(format!("`--cache` takes cold or tail:SIZE, not `{text}`")),
        };
        self.report(result, span, None)
    }

    fn cache_of_files(&mut self) -> Cache {
        match self.text("cache") {
            None | Some("as-found") => Cache::AsFound,
            Some("cold") => Cache::Cold,
            Some("warm") => Cache::Warm,
            Some(other) => {
                let message = format!("`--cache` takes as-found, cold or warm on real files, not `{other}`");
                self.error_at("cache", &message, "--cache=cold");
                Cache::AsFound
            }
        }
    }

    /// Options that only a simulated machine has.
    fn of_the_simulator(&mut self) {
        for name in ["mapping-cached", "linux-threads"] {
            if self.text(name).is_some_and(|value| value != "off") {
                let text = format!("`--{name}` has an effect in the simulator only");
                self.problems.push(Problem::warning(text).help("--on sim:linux-6.18"));
            }
        }
    }

    fn ignored(&mut self, option: &'static Opt) {
        let Some(given) = self.given(option.name) else { return };
        // These two do have an effect on the dialect and the seed; switches that are off ask for nothing.
        if matches!(option.name, "init-rng" | "rand-init") || given.value == "off" {
            return;
        }
        let spelling = given.option.name;
        self.advise(Problem::warning(format!("`--{spelling}` has no effect here: {}", option.help)));
    }

    fn place(&mut self) -> Option<Where> {
        let on = self.text("on").map(str::to_owned);
        let disk = self.text("disk").map(str::to_owned);
        match on.as_deref() {
            None | Some("live") => {
                if let Some(disk) = disk {
                    place::check_disk(&disk, self.problems);
                    self.error_at(
                        "disk",
                        "`--disk` is for simulated runs: real files are where they are",
                        "--on sim:..",
                    );
                }
                Some(Where::Live)
            }
            Some(on) => place::parse(on, disk.as_deref(), self.problems).map(|stack| Where::Simulated(Box::new(stack))),
        }
    }

    fn sizes(&mut self, nr_files: u64, total_bytes: u64, block_bytes: u64, merged_requests: u64) {
        let file_bytes = total_bytes / nr_files;
        if file_bytes == 0 {
            self.error_at(
                "file-total-size",
                &format!("{total_bytes} bytes in {nr_files} files make files of length zero"),
                "a larger --file-total-size or a smaller --file-num",
            );
        } else if block_bytes > file_bytes {
            let help = format!("--file-block-size={file_bytes} or less, or a larger --file-total-size");
            self.error_at(
                "file-block-size",
                &format!(
                    "a block of {} does not fit into a file of {}",
                    iowhy_text::size(block_bytes),
                    iowhy_text::size(file_bytes)
                ),
                &help,
            );
        }
        if merged_requests.saturating_mul(block_bytes) > 1 << 30 {
            self.error_at(
                "file-merged-requests",
                "merged requests would be larger than 1 GiB",
                "a smaller --file-merged-requests or --file-block-size",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str) -> Result<Box<(Plan, Settings)>, Vec<String>> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let mut problems = Problems::default();
        match resolve(&arguments, &mut problems) {
            Some(Request::Run(run)) => Ok(run),
            other => {
                assert!(other.is_none(), "{other:?}");
                Err(problems.list.into_iter().map(|problem| problem.message).collect())
            }
        }
    }

    fn accepted(arguments: &str) -> (Plan, Settings) {
        match check(arguments) {
            Ok(run) => *run,
            Err(problems) => panic!("`{arguments}` is refused: {problems:#?}"),
        }
    }

    #[test]
    fn the_command_line_of_2004_means_what_it_meant() {
        let (plan, _) = accepted(
            "--num-threads=16 --test=fileio --file-total-size=3G --file-test-mode=rndrw run --on=sim:linux-2.4.25",
        );
        let fileio = plan.job.fileio().expect("a sysbench job");
        assert_eq!(fileio.dialect, Dialect::V0_4);
        assert_eq!((fileio.max_events, fileio.max_time), (10_000, Nanos::ZERO));
        assert_eq!(fileio.positions, PositionSource::GlibcUnseeded);
        assert_eq!((fileio.threads, fileio.nr_files, fileio.fsync_freq), (16, 128, 100));
        assert_eq!((fileio.block_bytes, fileio.rw_ratio_milli, fileio.fsync_end), (16_384, 1500, true));
    }

    #[test]
    fn todays_command_line_has_todays_defaults() {
        let (plan, settings) = accepted("fileio --file-test-mode rndrd --on sim:linux-6.18 run --threads 4");
        let fileio = plan.job.fileio().expect("a sysbench job");
        assert_eq!(fileio.dialect, Dialect::V1_0);
        assert_eq!((fileio.max_events, fileio.max_time), (0, Nanos::from_secs(10)));
        assert_eq!(fileio.positions, PositionSource::Seeded(1));
        assert_eq!((settings.percentile, settings.json), (95, false));
    }

    #[test]
    fn direct_and_synchronous_flags_reach_the_job() {
        let base = "fileio --file-test-mode=rndwr --on sim:linux-6.18 run";
        let (plan, _) =
            accepted(&format!("{base} --file-extra-flags=direct,dsync --file-io-mode=async --file-async-backlog=8"));
        let fileio = plan.job.fileio().expect("a sysbench job");
        assert!(fileio.direct);
        assert_eq!((fileio.in_flight, fileio.synchronous_writes), (8, Some(Op::Fdatasync)));
        let (plan, _) = accepted(&format!("{base} --file-io-mode=async --cache=tail:64M"));
        let fileio = plan.job.fileio().expect("a sysbench job");
        assert_eq!((fileio.in_flight, plan.job.cache), (1, CacheStart::Tail { bytes: 64 << 20 }));
        let (plan, _) = accepted(&format!("{base} --file-fsync-all"));
        let fileio = plan.job.fileio().expect("a sysbench job");
        assert!(fileio.fsync_all && !fileio.fsync_end);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        for (arguments, expected) in [
            (
                "fileio --threads=0 --file-block-size=x --file-rw-ratio=0 --on sim:linux-9.9 run",
                vec![
                    "`--threads` must be at least 1",
                    "`--file-block-size` takes a size, for example 16384, 16K, 512M or 3G, not `x`",
                    "`--file-test-mode` is missing",
                    "`--file-rw-ratio` takes a number above 0 and up to 1000000, for example 1.5, not `0`",
                    "unknown kernel `linux-9.9`",
                ],
            ),
            (
                "fileio --file-test-mode=rndrd --file-total-size=100 --time=0 --on sim:linux-4.4 run",
                vec![
                    "100 bytes in 128 files make files of length zero",
                    "with neither a number of events nor a time the run would never end",
                ],
            ),
            (
                "fileio --file-test-mode=rndrd --file-block-size=64M --file-io-mode=mmap --on sim:linux-9.9 run",
                vec![
                    "mmap I/O is not modelled yet: a page fault reads around its page, a read call ahead of it",
                    "unknown kernel `linux-9.9`",
                    "a block of 64MiB does not fit into a file of 16MiB",
                ],
            ),
            (
                "fileio --file-test-mode=rndrd --seed=1 --rand-seed=2 --time=5 --max-time=6 --cache=tail:1M run",
                vec![
                    "`--time` is 5 and `--max-time` is 6",
                    "`--seed` and `--rand-seed` differ",
                    "`--cache` takes as-found, cold or warm on real files, not `tail:1M`",
                ],
            ),
            (
                "fileio --file-test-mode=rndrd --disk nvme run",
                vec!["`--disk` is for simulated runs: real files are where they are"],
            ),
            ("--file-num=4", vec!["no test", "no command: prepare, run or cleanup is missing"]),
            ("", vec!["nothing to do"]),
        ] {
            let problems = check(arguments).expect_err("a bad command line");
            assert_eq!(problems, expected, "{arguments}");
        }
    }

    #[test]
    fn files_are_made_unless_a_simulator_is_named() {
        let prepared = |words: &[&str]| {
            let mut problems = Problems::default();
            let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            match resolve(&arguments, &mut problems) {
                Some(Request::Prepare(files)) => files.map(|files| (files.nr_files, files.file_bytes)),
                other => panic!("{words:?}: {other:?} {problems:?}"),
            }
        };
        let line = ["fileio", "--file-total-size=3G", "prepare"];
        assert_eq!(prepared(&line), Some((128, 24 << 20)));
        assert_eq!(prepared(&[&line[..], &["--on", "live"]].concat()), Some((128, 24 << 20)));
        assert_eq!(prepared(&[&line[..], &["--on", "sim:linux-6.18"]].concat()), None);
    }

    #[test]
    fn a_run_without_a_place_is_on_real_files() {
        let arguments: Vec<String> =
            "fileio --file-test-mode=rndrw --file-io-mode=async --cache=cold --file-extra-flags=dsync run"
                .split(' ')
                .map(str::to_owned)
                .collect();
        let Some(Request::RunLive(run)) = resolve(&arguments, &mut Problems::default()) else { panic!("a live run") };
        let plan = live::plan(&run.job, &run.settings, run.cache, std::path::Path::new("dir"));
        assert_eq!((plan.threads.len(), plan.threads[0].engine, plan.threads[0].depth), (1, "libaio", 128));
        assert_eq!(plan.threads[0].open_sync, Some(iowhy_live::plan::OpenSync::Dsync));
        assert_eq!((plan.files.len(), plan.cache), (128, Cache::Cold));
        assert_eq!(plan.files[7].path, std::path::Path::new("dir/test_file.7"));
    }
}
