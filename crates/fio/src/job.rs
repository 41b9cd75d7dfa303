//! Jobs: the options of sections, put together, checked against one another and given types.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::lex::{Place, RawOption, RawSection};
use super::options::{self, Engine, Kind, Model, Opt, Value};
use super::value::{Amount, CacheState, Distribution, Fault, Mode, PerDirection, Service, Share};
use iowhy_text::diagnose::{Problem, Problems, Severity};

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its entry in the table.
    pub option: &'static Opt,
    /// The name that was used.
    pub name: String,
    /// The value with variables replaced; empty for an option that stands alone.
    pub value: String,
    /// Where it stands.
    pub place: Place,
    /// Whether it comes from a global section.
    pub global: bool,
}

/// Block sizes of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Smallest, bytes.
    pub min: u64,
    /// Largest, bytes.
    pub max: u64,
    /// A mix; empty if every size of the range is equally likely.
    pub split: Vec<Share>,
}

/// Synchronous writes (`sync`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// None.
    None,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    Dsync,
}

/// Advice to the kernel (`fadvise_hint`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// None.
    None,
    /// That of the pattern: random or sequential.
    Pattern,
    /// `POSIX_FADV_RANDOM`.
    Random,
    /// `POSIX_FADV_SEQUENTIAL`.
    Sequential,
    /// `POSIX_FADV_NOREUSE`.
    Noreuse,
}

/// Pauses between I/Os.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Think {
    /// Length of a pause, microseconds.
    pub time_us: u64,
    /// How much of it is spent computing, microseconds.
    pub spin_us: u64,
    /// I/Os between pauses.
    pub blocks: u64,
    /// I/Os are counted when they are issued rather than when they complete.
    pub at_issue: bool,
    /// Time of I/O between pauses, microseconds; 0 to count I/Os.
    pub io_time_us: u64,
}

/// Limits of the speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second, 0 for no limit.
    pub bytes: PerDirection<u64>,
    /// I/Os a second, 0 for no limit.
    pub iops: PerDirection<u64>,
    /// Gaps are exponential rather than even.
    pub poisson: bool,
    /// Pauses do not count against the rate.
    pub ignore_think: bool,
}

/// The value of a window that goes into a log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LogWindow {
    /// The mean.
    Average,
    /// The largest.
    Max,
    Both,
}

/// Logs. A name is the beginning of the files' names; empty stands for the job's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    pub bandwidth: Option<String>,
    pub latency: Option<String>,
    /// Of I/Os a second.
    pub iops: Option<String>,
    pub histogram: Option<String>,
    /// Window over which is averaged, microseconds; 0 for every I/O.
    pub average_us: u64,
    /// Time between histograms, microseconds.
    pub histogram_us: u64,
    /// How often the buckets of histograms are halved.
    pub coarseness: u32,
    /// The logged value of a window.
    pub window: LogWindow,
    /// Log positions.
    pub offset: bool,
    /// Log when I/Os were issued.
    pub issue_time: bool,
    /// The number of the job is in the names.
    pub per_job: bool,
    /// Window of bandwidth samples, microseconds.
    pub bandwidth_sample_us: u64,
    /// Window of samples of I/Os a second, microseconds.
    pub iops_sample_us: u64,
}

/// Replay of a recorded list of I/Os.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The files, one per clone in turn.
    pub logs: Vec<String>,
    /// Without the recorded pauses.
    pub no_stall: bool,
    /// One file for all I/O.
    pub redirect: Option<String>,
    /// Offsets are divided by this.
    pub scale: u64,
    /// Offsets are rounded down to a multiple of this; 0 for no rounding.
    pub align: u64,
    /// Percent of the recorded speed.
    pub time_scale: u64,
    /// Kinds of I/O to leave out: read, write, trim, sync.
    pub skip: Vec<&'static str>,
}

/// How results are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporting {
    /// Percentiles of completion latency.
    pub clat: bool,
    /// Percentiles of latency.
    pub lat: bool,
    /// Percentiles of submission latency.
    pub slat: bool,
    /// Which percentiles, millionths of a percent.
    pub percentiles: Vec<u64>,
    pub digits: u32,
    /// Without latencies.
    pub disable_lat: bool,
    /// Without completion latencies.
    pub disable_clat: bool,
    /// Without submission latencies.
    pub disable_slat: bool,
    /// Without samples of bandwidth.
    pub disable_bandwidth: bool,
    /// `none`, `mixed` or `both`.
    pub unified: &'static str,
    /// Report the device.
    pub disk_util: bool,
    /// Report the job at all.
    pub stats: bool,
    /// 1000 or 1024.
    pub kb_base: u64,
    /// 8 for bytes, 1 for bits, 0 for either.
    pub unit_base: u32,
}

/// Settings that fio has no words for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ours {
    /// Far reads of each process before it starts.
    pub startup_seeks: u64,
    /// Nanoseconds the tool computes between I/Os, if given.
    pub tool_ns: Option<u64>,
    /// Clones are processes of their own for the elevator.
    pub own_process: bool,
    /// Page cache at the start; nothing: as `invalidate` and `pre_read` leave it.
    pub cache: Option<CacheState>,
    /// The blocks that map files are cached at the start.
    pub mapping_cached: bool,
    /// Clones share one descriptor per file.
    pub shared_descriptors: bool,
    /// The actor `blkid` reacts to closes.
    pub blkid: bool,
    /// How it and the program open a device.
    pub opening: Opening,
}

/// How a watched device is opened. Times are in microseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// From a close to the actor's first read.
    pub probe_delay_us: (u64, u64),
    /// Pages it reads at the start and at the end.
    pub probe_pages: (u32, u32),
    /// From the look at the device's size to the start of the threads.
    pub settle_us: u64,
    /// Longest time between the starts of two threads.
    pub stagger_us: u64,
    /// Duration of one open.
    pub open_us: u64,
    /// `none`, `serialise`, `invalidate` or `wait`.
    pub fix: &'static str,
    /// From finding the name to dropping the pages.
    pub found_delay_us: u64,
}

/// A job: one section, or one `--name`, with all its clones.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct FioJob {
    pub name: String,
    /// Name of its section; the same unless the option `name` was used.
    pub section: String,
    /// Where it begins.
    pub place: Place,
    /// Options as given: those of global sections first, then its own.
    pub options: Vec<Written>,
    /// Number of its reporting group, from 0.
    pub group: u32,
    pub description: Option<String>,
    /// Job to wait for.
    pub wait_for: Option<String>,
    /// Waits for all jobs before it.
    pub stonewall: bool,
    /// Begins a reporting group.
    pub new_group: bool,
    /// One report for its group.
    pub group_reporting: bool,
    /// Its end ends all jobs.
    pub exitall: bool,
    /// Clones.
    pub numjobs: u32,
    /// Clones are threads of one process.
    pub thread: bool,
    /// Files by name; empty if names are made from the format.
    pub filenames: Vec<String>,
    /// Folders, used in turn by the clones; empty for none.
    pub directories: Vec<String>,
    /// Format of made names.
    pub filename_format: String,
    /// Files of each clone.
    pub nr_files: u32,
    /// Files open at once.
    pub open_files: u32,
    /// How the next file is picked.
    pub service: Service,
    /// Kind of I/O.
    pub mode: Mode,
    /// Percent of reads in a mix.
    pub rwmix_read: u32,
    /// Block sizes.
    pub blocks: PerDirection<Blocks>,
    /// Positions are multiples of this, bytes.
    pub align: PerDirection<u64>,
    /// Any size of a range may occur.
    pub unaligned: bool,
    /// The region in all files of a clone.
    pub size: Option<Amount>,
    /// Amount to transfer, if not the size.
    pub io_size: Option<Amount>,
    /// Bytes of each file, from and to.
    pub file_size: Option<(u64, u64)>,
    /// Where the region begins.
    pub offset: Amount,
    /// Multiple to which the offset is aligned, 0 for none.
    pub offset_align: u64,
    /// Added to the offset for each clone.
    pub offset_increment: Amount,
    /// I/Os after which the job ends, 0 for no limit.
    pub number_ios: u64,
    /// Times it is run.
    pub loops: u64,
    /// Random positions never repeat in a pass. Off with a distribution that is not uniform.
    pub random_map: bool,
    /// The same positions in each run.
    pub rand_repeat: bool,
    pub rand_seed: u64,
    /// How positions are drawn.
    pub distribution: PerDirection<Distribution>,
    /// Percent of random I/Os that are random.
    pub percentage_random: PerDirection<u32>,
    /// How I/O is made.
    pub engine: Engine,
    /// I/Os in flight: 1 for engines that make one at a time.
    pub iodepth: u32,
    /// I/Os in one submission.
    pub iodepth_batch: u32,
    /// I/Os to wait for at once.
    pub batch_complete_min: u32,
    /// I/Os to take at once.
    pub batch_complete_max: u32,
    /// I/Os in flight at which filling starts again.
    pub iodepth_low: u32,
    /// Without the page cache.
    pub direct: bool,
    /// Synchronous writes.
    pub sync: SyncMode,
    /// fsync after this number of writes, 0 for never.
    pub fsync: u64,
    /// fdatasync after this number of writes, 0 for never.
    pub fdatasync: u64,
    /// fsync at the end.
    pub end_fsync: bool,
    /// fsync when a file is closed.
    pub fsync_on_close: bool,
    /// Advice to the kernel.
    pub advice: Advice,
    /// Drop cached pages before the run. Off with `pre_read`.
    pub invalidate: bool,
    /// Read files before the run.
    pub pre_read: bool,
    /// Files exist before they are written.
    pub overwrite: bool,
    /// Elevator of the device.
    pub ioscheduler: Option<String>,
    /// End after this, microseconds; 0 for no limit.
    pub runtime_us: u64,
    /// Repeat until the time is over.
    pub time_based: bool,
    /// Time before measuring begins, microseconds.
    pub ramp_us: u64,
    /// Wait before the start, microseconds, from and to.
    pub start_delay_us: (u64, u64),
    /// Pauses.
    pub think: Think,
    /// Limits of the speed.
    pub rate: Rate,
    pub logs: Logs,
    /// Write the I/Os to this file.
    pub write_iolog: Option<String>,
    pub replay: Option<Replay>,
    pub reporting: Reporting,
    pub ours: Ours,
}

impl FioJob {
    /// The options of the job as arguments of a command line that makes the same job. Those that fio does not have are
    /// left out unless `ours`.
    pub fn to_arguments(&self, ours: bool) -> Vec<String> {
        let mut arguments = vec![format!("--name={}", self.name)];
        let shown =
            |option: &&Written| option.option.name != "name" && (ours || option.option.group != options::Group::Ours);
        arguments.extend(self.options.iter().filter(shown).map(|option| match option.value.as_str() {
            "" => format!("--{}", option.name),
            value => format!("--{}={value}", option.name),
        }));
        if self.stonewall && !self.options.iter().any(|option| option.option.name == "stonewall") {
            arguments.push("--stonewall".to_owned());
        }
        arguments
    }

    /// The job as a section of a job file. Values are those after variables were replaced, so this is exact for jobs
    /// that come from files; a command line may hold `;`, `#` or `${`, which a file cannot.
    pub fn to_text(&self) -> String {
        let mut text = format!("[{}]\n", self.section);
        for option in &self.options {
            match option.value.as_str() {
                "" => text.push_str(&format!("{}\n", option.name)),
                value => text.push_str(&format!("{}={value}\n", option.name)),
            }
        }
        if self.stonewall && !self.options.iter().any(|option| option.option.name == "stonewall") {
            text.push_str("stonewall\n");
        }
        text
    }

    /// Names of the files of a clone, counted from 0.
    pub fn file_names(&self, clone: u32) -> Vec<String> {
        let folder = match self.directories.len() {
            0 => String::new(),
            count => format!("{}/", self.directories[clone as usize % count].trim_end_matches('/')),
        };
        if !self.filenames.is_empty() {
            let place = |name: &String| if name.starts_with('/') { name.clone() } else { format!("{folder}{name}") };
            return self.filenames.iter().map(place).collect();
        }
        // Without a number of the file all of them would have one name; fio then has one file as well.
        (0..self.nr_files)
            .map(|file| {
                let name = self
                    .filename_format
                    .replace("$jobname", &self.name)
                    .replace("$jobnum", &clone.to_string())
                    .replace("$filenum", &file.to_string())
                    .replace("$clientuid", "localhost");
                format!("{folder}{name}")
            })
            .collect()
    }
}

/// The options that hold for a job so far.
#[derive(Clone, Default)]
struct Settings {
    values: BTreeMap<&'static str, (Value, RawOption)>,
    written: Vec<Written>,
}

/// The jobs of these sections, and the options of global sections. Mistakes go to `problems`.
pub(super) fn build(
    sections: &[RawSection],
    world: &World<'_>,
    problems: &mut Problems,
) -> (Vec<FioJob>, Vec<Written>) {
    let mut builder = Builder { world, problems, warned: BTreeSet::new() };
    let mut globals = Settings::default();
    let mut jobs: Vec<FioJob> = Vec::new();
    let mut group = 0;
    for section in sections {
        if section.global {
            builder.apply(&mut globals, section);
            continue;
        }
        let mut settings = globals.clone();
        builder.apply(&mut settings, section);
        let mut job = builder.job(&settings, section, &jobs);
        job.stonewall |= section.barrier;
        if (job.stonewall || job.new_group) && !jobs.is_empty() {
            group += 1;
        }
        job.group = group;
        jobs.push(job);
    }
    (jobs, globals.written)
}

struct Builder<'a, 'w> {
    world: &'a World<'w>,
    problems: &'a mut Problems,
    /// Options whose note "not modelled" was given.
    warned: BTreeSet<&'static str>,
}

impl Builder<'_, '_> {
    fn apply(&mut self, settings: &mut Settings, section: &RawSection) {
        let mut order: Vec<(usize, &RawOption)> = section.options.iter().enumerate().collect();
        // The meaning of k must be known before any size is read.
        order.sort_by_key(|(_, raw)| raw.name != "kb_base");
        let mut written: Vec<(usize, Written)> = Vec::new();
        for (index, raw) in order {
            if let Some(option) = self.option(settings, raw, section.global) {
                written.push((index, option));
            }
        }
        written.sort_by_key(|(index, _)| *index);
        settings.written.extend(written.into_iter().map(|(_, option)| option));
    }

    fn option(&mut self, settings: &mut Settings, raw: &RawOption, global: bool) -> Option<Written> {
        let Some(option) = options::find(&raw.name) else {
            let problem = if raw.name.is_empty() {
                Problem::error("the name of an option is missing").help("name=value")
            } else {
                Problem::error(format!("unknown option `{}`", raw.name))
                    .near(&raw.name, options::names().filter(|name| options::similar(&raw.name, name)))
            };
            let problem = if problem.nearest.is_empty() && problem.help.is_none() {
                problem.help("`iowhy fio --cmdhelp` lists the options")
            } else {
                problem
            };
            let at = if raw.name.is_empty() { (raw.name_at.0, raw.value_at.1) } else { raw.name_at };
            self.problems.push(raw.line.problem(problem, at));
            return None;
        };
        let (text, expanded) = match &raw.value {
            Some(value) if raw.expand => self.expand(value, option, raw)?,
            Some(value) => (value.clone(), false),
            None if option.kind.alone() => (String::new(), false),
            None => {
                let help = format!("{}{}", raw.name, option.kind.shown());
                let problem = Problem::error(format!("option `{}` needs a value", raw.name)).help(help);
                self.problems.push(raw.line.problem(problem, raw.name_at));
                return None;
            }
        };
        let kb_base = match settings.values.get("kb_base") {
            Some((Value::Word("1000"), _)) => 1000,
            _ => 1024,
        };
        let spoken = if raw.value.is_none() && option.kind == Kind::Flag { "1" } else { text.as_str() };
        let value = match option.kind.parse(spoken, kb_base) {
            Ok(value) => value,
            Err(fault) => {
                self.fault(raw, fault, expanded, &text);
                return None;
            }
        };
        self.notices(option, raw, &value, kb_base);
        let (key, value) = match (option.name, value) {
            ("buffered", Value::Switch(on)) => ("direct", Value::Switch(!on)),
            ("rwmixwrite", Value::Int(percent)) => ("rwmixread", Value::Int(100 - percent)),
            (name, value) => (name, value),
        };
        let value = match settings.values.get(key) {
            Some((below, _)) => value.over(below),
            None => value,
        };
        settings.values.insert(key, (value, raw.clone()));
        let place = raw.line.place(raw.name_at.0);
        Some(Written { option, name: raw.name.clone(), value: text, place, global })
    }

    /// The value with `${NAME}` and `$pagesize`, `$mb_memory`, `$ncpus` replaced, and whether anything was.
    fn expand(&mut self, value: &str, option: &'static Opt, raw: &RawOption) -> Option<(String, bool)> {
        let mut text = String::new();
        let mut rest = value;
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}') else { break };
            text.push_str(&rest[..start]);
            let name = &rest[start + 2..start + end];
            text.push_str(&(self.world.variable)(name).unwrap_or_default());
            rest = &rest[start + end + 1..];
        }
        text.push_str(rest);
        let mut computed = text.clone();
        let keywords =
            [("$pagesize", self.world.page_bytes), ("$mb_memory", self.world.memory_mib), ("$ncpus", self.world.cpus)];
        for (keyword, number) in keywords {
            computed = computed.replace(keyword, &number.to_string());
        }
        if computed == text {
            let changed = text != value;
            return Some((text, changed));
        }
        match super::expr::evaluate(&computed, &|_| None) {
            Ok(worth) => Some((worth.value.to_string(), true)),
            // A path with a number in it is not an expression.
            Err(_) if option.kind.is_text() => Some((computed, true)),
            Err(failure) => {
                let problem = Problem::error(format!(
                    "option `{}`: `{computed}` cannot be computed: {}",
                    raw.name, failure.message
                ))
                .help("numbers and + - * / % ^ with parentheses, without units");
                self.problems.push(raw.line.problem(problem, raw.value_at));
                None
            }
        }
    }

    fn fault(&mut self, raw: &RawOption, fault: Fault, expanded: bool, text: &str) {
        let mut message = format!("option `{}`: {}", raw.name, fault.message);
        if expanded {
            message.push_str(&format!(" (the value became `{text}`)"));
        }
        let at = match fault.part {
            Some((start, end)) if !expanded => (raw.value_at.0 + start, raw.value_at.0 + end),
            _ if raw.value.as_deref().is_none_or(str::is_empty) => (raw.name_at.0, raw.value_at.1),
            _ => raw.value_at,
        };
        let mut problem = Problem::error(message);
        problem.nearest = fault.nearest;
        problem.help = fault.help;
        self.problems.push(raw.line.problem(problem, at));
    }

    /// Notes on an option that is right.
    fn notices(&mut self, option: &'static Opt, raw: &RawOption, value: &Value, kb_base: u64) {
        let (done, why) = match option.model {
            _ if self.world.live => ("carried out", super::carried_out::not_carried_out(option.name)),
            Model::Missing(why) => ("modelled", Some(why)),
            Model::Modelled | Model::Harmless(_) => ("modelled", None),
        };
        if let Some(why) = why
            && option.kind.parse(option.default, kb_base).as_ref() != Ok(value)
            && self.warned.insert(option.name)
        {
            let problem = Problem::warning(format!("option `{}` is accepted but not {done}: {why}", raw.name));
            self.problems.push(raw.line.problem(problem, raw.name_at));
        }
        let blank = raw.line.text.get(..raw.value_at.0).is_some_and(|before| before.ends_with(char::is_whitespace));
        let has_unit = raw.value.as_deref().is_some_and(|text| text.ends_with(|c: char| c.is_ascii_alphabetic()));
        let counts = matches!(option.kind, Kind::Int(..) | Kind::Ints(..) | Kind::Amount(_) | Kind::SizeRange);
        if blank && has_unit && counts {
            let problem = Problem::warning(format!("option `{}`: fio itself loses the unit behind a blank", raw.name))
                .help(format!("{}={}", raw.name, raw.value.as_deref().unwrap_or_default()));
            self.problems.push(raw.line.problem(problem, raw.value_at));
        }
    }

    fn job(&mut self, settings: &Settings, section: &RawSection, before: &[FioJob]) -> FioJob {
        let mut reader = Reader { settings, section, problems: self.problems };
        reader.job(before)
    }
}

/// Reads typed values out of settings; defaults come from the table.
struct Reader<'a> {
    settings: &'a Settings,
    section: &'a RawSection,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The value of an option: given, or the default of the table.
    ///
    /// # Panics
    /// If the table has no such option: names are written out here, and every job reads them all.
    fn value(&self, name: &str) -> Option<Value> {
        let Some(option) = options::find(name) else { unreachable!("`{name}` is in the table of options") };
        if let Some((value, _)) = self.settings.values.get(name) {
            return Some(value.clone());
        }
        // An option has a default exactly if its table line gives one.
        if option.default.is_empty() { None } else { option.kind.parse(option.default, 1024).ok() }
    }

    /// The same as `take` has it out of the type that the table gives the option.
    ///
    /// # Panics
    /// If that is another type.
    fn typed<T>(&self, name: &str, take: fn(Value) -> Option<T>) -> Option<T> {
        let taken = |value| take(value).unwrap_or_else(|| unreachable!("`{name}` has another type"));
        self.value(name).map(taken)
    }

    fn given(&self, name: &str) -> bool {
        self.settings.values.contains_key(name)
    }

    fn switch(&self, name: &str) -> bool {
        self.typed(name, |value| if let Value::Switch(on) = value { Some(on) } else { None }).unwrap_or(false)
    }

    fn int(&self, name: &str) -> i64 {
        self.typed(name, |value| if let Value::Int(value) = value { Some(value) } else { None }).unwrap_or(0)
    }

    fn count(&self, name: &str) -> u64 {
        self.int(name).unsigned_abs()
    }

    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.int(name)).unwrap_or(u32::MAX)
    }

    fn micros(&self, name: &str) -> u64 {
        self.typed(name, |value| if let Value::Micros(value) = value { Some(value) } else { None }).unwrap_or(0)
    }

    fn word(&self, name: &str) -> &'static str {
        self.typed(name, |value| if let Value::Word(word) = value { Some(word) } else { None }).unwrap_or("")
    }

    fn text(&self, name: &str) -> Option<String> {
        self.typed(name, |value| if let Value::Text(text) = value { Some(text) } else { None })
    }

    fn amount(&self, name: &str) -> Option<Amount> {
        self.typed(name, |value| if let Value::Amount(amount) = value { Some(amount) } else { None })
    }

    fn ints(&self, name: &str, default: u64) -> PerDirection<u64> {
        let given = self.typed(name, |value| if let Value::Ints(triple) = value { Some(triple) } else { None });
        given.unwrap_or_default().map(|value| value.map_or(default, i64::unsigned_abs))
    }

    /// Reports something about an option, or about the section if the option was not given.
    fn report(&mut self, name: &str, problem: Problem) {
        let problem = match self.settings.values.get(name) {
            Some((_, raw)) => raw.line.problem(problem, (raw.name_at.0, raw.value_at.1.max(raw.name_at.1))),
            None => {
                let text = &self.section.line.text;
                let start = text.len() - text.trim_start().len();
                self.section.line.problem(problem, (start, text.trim_end().len().max(start)))
            }
        };
        // A mistake of a global section would be found again in every job.
        if !self.problems.list.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn blocks(&self) -> PerDirection<Blocks> {
        let sizes = self.ints("bs", 4096);
        let ranges = self.typed("bsrange", |value| if let Value::Ranges(ranges) = value { Some(ranges) } else { None });
        let splits = self.typed("bssplit", |value| if let Value::Split(splits) = value { Some(splits) } else { None });
        let (ranges, splits) = (ranges.unwrap_or_default(), splits.unwrap_or_default());
        let one = |size: u64, range: Option<(u64, u64)>, split: Option<Vec<Share>>| match (split, range) {
            (Some(split), _) => {
                let sizes = || split.iter().map(|share| share.bytes);
                Blocks { min: sizes().min().unwrap_or(size), max: sizes().max().unwrap_or(size), split }
            }
            (None, Some((min, max))) => Blocks { min, max, split: Vec::new() },
            (None, None) => Blocks { min: size, max: size, split: Vec::new() },
        };
        PerDirection {
            read: one(sizes.read, ranges.read, splits.read),
            write: one(sizes.write, ranges.write, splits.write),
            trim: one(sizes.trim, ranges.trim, splits.trim),
        }
    }

    fn job(&mut self, before: &[FioJob]) -> FioJob {
        let engine = match self.value("ioengine") {
            Some(Value::Engine(engine)) => engine,
            _ => Engine::Psync,
        };
        let mode = match self.value("rw") {
            Some(Value::Mode(mode)) => mode,
            _ => Mode { read: true, write: false, trim: false, random: false, suffix: super::value::ModeSuffix::None },
        };
        let name = self.text("name").unwrap_or_else(|| self.section.name.clone());
        let blocks = self.blocks();
        let aligns = self.ints("ba", 0);
        let align = |given: u64, blocks: &Blocks| if given == 0 { blocks.min } else { given };
        let align = PerDirection {
            read: align(aligns.read, &blocks.read),
            write: align(aligns.write, &blocks.write),
            trim: align(aligns.trim, &blocks.trim),
        };
        let filenames = names(self.text("filename"));
        let nr_files = match filenames.len() {
            0 => self.small("nrfiles").max(1),
            count => u32::try_from(count).unwrap_or(u32::MAX),
        };
        let distribution = match self.value("random_distribution") {
            Some(Value::Distribution(distribution)) => distribution,
            _ => Distribution::Uniform,
        };
        let service = match self.value("file_service_type") {
            Some(Value::Service(service)) => service,
            _ => Service { kind: super::value::ServiceKind::RoundRobin, every: 1 },
        };
        let asked_depth = self.small("iodepth").max(1);
        let iodepth = if engine.one_at_a_time() { 1 } else { asked_depth };
        // As fio: zero, or more than the depth, becomes the depth.
        let within = |value: u32| if value == 0 || value > iodepth { iodepth } else { value };
        let batch_complete_min = self.small("iodepth_batch_complete_min").min(iodepth);
        let percent = |value: u64| u32::try_from(value).unwrap_or(100);
        let gtod_reduce = self.switch("gtod_reduce");
        let thread = self.switch("thread");
        let pre_read = self.switch("pre_read");
        let runtime_us = self.micros("runtime");
        let job = FioJob {
            section: self.section.name.clone(),
            place: self.section.line.place(0),
            options: self.settings.written.clone(),
            group: 0,
            description: self.text("description"),
            wait_for: self.text("wait_for"),
            stonewall: self.switch("stonewall"),
            new_group: self.switch("new_group"),
            group_reporting: self.switch("group_reporting"),
            exitall: self.switch("exitall"),
            numjobs: self.small("numjobs"),
            thread,
            directories: names(self.text("directory")),
            filename_format: self.text("filename_format").unwrap_or_default(),
            nr_files,
            open_files: match self.small("openfiles") {
                0 => nr_files,
                open => open.min(nr_files),
            },
            service,
            rwmix_read: self.small("rwmixread").min(100),
            align,
            unaligned: self.switch("bs_unaligned"),
            size: self.amount("size"),
            io_size: self.amount("io_size"),
            file_size: match self.value("filesize") {
                Some(Value::Range(min, max)) => Some((min, max)),
                _ => None,
            },
            offset: self.amount("offset").unwrap_or(Amount::Bytes(0)),
            offset_align: self.count("offset_align"),
            offset_increment: self.amount("offset_increment").unwrap_or(Amount::Bytes(0)),
            number_ios: self.count("number_ios"),
            loops: self.count("loops").max(1),
            random_map: !self.switch("norandommap") && distribution == Distribution::Uniform,
            rand_repeat: self.switch("randrepeat") || self.switch("allrandrepeat"),
            rand_seed: self.count("randseed"),
            distribution: PerDirection::all(distribution),
            percentage_random: self.ints("percentage_random", 100).map(percent),
            engine,
            iodepth,
            iodepth_batch: within(self.small("iodepth_batch")),
            batch_complete_min,
            batch_complete_max: self.small("iodepth_batch_complete_max").clamp(batch_complete_min, iodepth),
            iodepth_low: within(self.small("iodepth_low")),
            direct: self.switch("direct"),
            sync: match self.word("sync") {
                "sync" | "1" => SyncMode::Sync,
                "dsync" => SyncMode::Dsync,
                _ => SyncMode::None,
            },
            fsync: self.count("fsync"),
            fdatasync: self.count("fdatasync"),
            end_fsync: self.switch("end_fsync"),
            fsync_on_close: self.switch("fsync_on_close"),
            advice: match self.word("fadvise_hint") {
                "0" => Advice::None,
                "random" => Advice::Random,
                "sequential" => Advice::Sequential,
                "noreuse" => Advice::Noreuse,
                _ => Advice::Pattern,
            },
            invalidate: self.switch("invalidate") && !pre_read,
            pre_read,
            overwrite: self.switch("overwrite"),
            ioscheduler: self.text("ioscheduler"),
            runtime_us,
            time_based: self.switch("time_based") && runtime_us > 0,
            ramp_us: self.micros("ramp_time"),
            start_delay_us: match self.value("startdelay") {
                Some(Value::Range(min, max)) => (min, max),
                _ => (0, 0),
            },
            think: Think {
                time_us: self.micros("thinktime"),
                spin_us: self.micros("thinktime_spin").min(self.micros("thinktime")),
                blocks: self.count("thinktime_blocks").max(1),
                at_issue: self.word("thinktime_blocks_type") == "issue",
                io_time_us: self.micros("thinktime_iotime"),
            },
            rate: Rate {
                bytes: self.ints("rate", 0),
                iops: self.ints("rate_iops", 0),
                poisson: self.word("rate_process") == "poisson",
                ignore_think: self.switch("rate_ignore_thinktime"),
            },
            logs: self.logs(),
            write_iolog: self.text("write_iolog"),
            replay: self.replay(),
            reporting: Reporting {
                clat: self.switch("clat_percentiles"),
                lat: self.switch("lat_percentiles"),
                slat: self.switch("slat_percentiles"),
                percentiles: match self.value("percentile_list") {
                    Some(Value::Decimals(list)) => list,
                    _ => Vec::new(),
                },
                digits: self.small("significant_figures"),
                disable_lat: self.switch("disable_lat") || gtod_reduce,
                disable_clat: self.switch("disable_clat") || gtod_reduce,
                disable_slat: self.switch("disable_slat") || gtod_reduce,
                disable_bandwidth: self.switch("disable_bw_measurement") || gtod_reduce,
                unified: match self.word("unified_rw_reporting") {
                    "mixed" | "1" => "mixed",
                    "both" | "2" => "both",
                    _ => "none",
                },
                disk_util: self.switch("disk_util"),
                stats: self.switch("stats"),
                kb_base: if self.word("kb_base") == "1000" { 1000 } else { 1024 },
                unit_base: match self.word("unit_base") {
                    "1" => 1,
                    "8" => 8,
                    _ => 0,
                },
            },
            ours: Ours {
                startup_seeks: self.count("iowhy_startup_seeks"),
                tool_ns: self.given("iowhy_tool_ns").then(|| self.count("iowhy_tool_ns")),
                own_process: match self.word("iowhy_process") {
                    "own" => true,
                    "shared" => false,
                    _ => !thread,
                },
                cache: match self.value("iowhy_cache") {
                    Some(Value::Cache(cache)) => Some(cache),
                    _ => None,
                },
                mapping_cached: self.switch("iowhy_mapping_cached"),
                shared_descriptors: self.word("iowhy_descriptors") == "shared",
                blkid: self.word("iowhy_actor") == "blkid",
                opening: Opening {
                    probe_delay_us: match self.value("iowhy_probe_delay") {
                        Some(Value::Range(least, most)) => (least, most),
                        _ => (0, 0),
                    },
                    probe_pages: (self.small("iowhy_probe_first_pages"), self.small("iowhy_probe_last_pages")),
                    settle_us: self.micros("iowhy_open_settle"),
                    stagger_us: self.micros("iowhy_open_stagger"),
                    open_us: self.micros("iowhy_open_time"),
                    fix: self.word("iowhy_open_fix"),
                    found_delay_us: self.micros("iowhy_found_delay"),
                },
            },
            name,
            filenames,
            mode,
            blocks,
        };
        self.check(&job, asked_depth, before);
        job
    }

    fn logs(&self) -> Logs {
        Logs {
            bandwidth: self.text("write_bw_log"),
            latency: self.text("write_lat_log"),
            iops: self.text("write_iops_log"),
            histogram: self.text("write_hist_log"),
            average_us: self.micros("log_avg_msec"),
            histogram_us: self.micros("log_hist_msec"),
            coarseness: self.small("log_hist_coarseness"),
            window: match self.word("log_max_value") {
                "1" | "max" => LogWindow::Max,
                "both" => LogWindow::Both,
                _ => LogWindow::Average,
            },
            offset: self.switch("log_offset"),
            issue_time: self.switch("log_issue_time"),
            per_job: self.switch("per_job_logs"),
            bandwidth_sample_us: self.micros("bwavgtime"),
            iops_sample_us: self.micros("iopsavgtime"),
        }
    }

    fn replay(&self) -> Option<Replay> {
        Some(Replay {
            logs: names(Some(self.text("read_iolog")?)),
            no_stall: self.switch("replay_no_stall"),
            redirect: self.text("replay_redirect"),
            scale: self.count("replay_scale").max(1),
            align: self.count("replay_align"),
            time_scale: self.count("replay_time_scale").max(1),
            skip: match self.value("replay_skip") {
                Some(Value::Words(words)) => words,
                _ => Vec::new(),
            },
        })
    }

    /// Mistakes in combinations of options.
    fn check(&mut self, job: &FioJob, asked_depth: u32, before: &[FioJob]) {
        let used: Vec<&Blocks> =
            [(job.mode.read, &job.blocks.read), (job.mode.write, &job.blocks.write), (job.mode.trim, &job.blocks.trim)]
                .into_iter()
                .filter_map(|(used, blocks)| used.then_some(blocks))
                .collect();
        let smallest = used.iter().map(|blocks| blocks.min).min().unwrap_or(1);
        let has_size = job.size.is_some() || job.file_size.is_some() || job.replay.is_some();
        // Without a size a file must exist already; a device does, and so may a file that is named.
        if !has_size && job.filenames.is_empty() && !self.failed_at_section("size") {
            self.report("size", Problem::error(format!("job `{}` has no size", job.name)).help("size=1g"));
        }
        if let Some(Amount::Bytes(size)) = job.size
            && size < smallest
            && job.replay.is_none()
        {
            let problem = Problem::error(format!("a size of {size} is below the smallest block of {smallest} bytes"));
            self.report("size", problem);
        }
        let uneven = |blocks: &&Blocks| {
            let mut sizes = [blocks.min, blocks.max].into_iter().chain(blocks.split.iter().map(|share| share.bytes));
            sizes.any(|bytes| !bytes.is_multiple_of(512))
        };
        if job.direct && job.engine != Engine::Null && job.replay.is_none() && used.iter().any(uneven) {
            let name = ["bssplit", "bsrange", "bs"].into_iter().find(|name| self.given(name)).unwrap_or("direct");
            let problem = Problem::error("direct I/O needs blocks of whole sectors of 512 bytes");
            self.report(name, problem);
        }
        for (name, wins) in [("bs", "bssplit"), ("bs", "bsrange"), ("bsrange", "bssplit")] {
            if self.given(name) && self.given(wins) && job.blocks.read == job.blocks.write {
                let problem = Problem::warning(format!("option `{name}` has no effect next to `{wins}`"));
                self.report(name, problem);
            }
        }
        let both = |bytes: u64, iops: u64| bytes > 0 && iops > 0;
        let (bytes, iops) = (job.rate.bytes, job.rate.iops);
        if both(bytes.read, iops.read) || both(bytes.write, iops.write) || both(bytes.trim, iops.trim) {
            self.report(
                "rate_iops",
                Problem::error("`rate` and `rate_iops` exclude each other").help("keep one of them"),
            );
        }
        if self.switch("time_based") && job.runtime_us == 0 {
            let problem = Problem::warning("`time_based` has no effect without a runtime").help("runtime=30");
            self.report("time_based", problem);
        }
        if asked_depth > 1 && job.engine.one_at_a_time() {
            let name = job.engine.name();
            let problem = Problem::warning(format!("the engine `{name}` makes one I/O at a time: the depth is 1"))
                .help("ioengine=libaio or io_uring");
            self.report("iodepth", problem);
        }
        if let Some(wanted) = &job.wait_for
            && !before.iter().any(|known| known.name == *wanted)
        {
            let problem = Problem::error(format!("`wait_for` names `{wanted}`, which is not a job before this one"))
                .near(wanted, before.iter().map(|known| &known.name));
            self.report("wait_for", problem);
        }
        let engine = job.engine.name();
        let foreign: Vec<(&'static str, &'static [&'static str])> = (self.settings.values.keys())
            .filter_map(|name| options::find(name))
            .filter(|option| !option.engines.is_empty() && !option.engines.contains(&engine))
            .map(|option| (option.name, option.engines))
            .collect();
        for (name, engines) in foreign {
            let text = format!("`{name}` is an option of {}, not of {engine}", engines.join(" and "));
            self.report(name, Problem::error(text).help(format!("ioengine={}", engines[0])));
        }
    }

    /// Whether this option was given but could not be read, which was reported already.
    fn failed_at_section(&self, name: &str) -> bool {
        let tried = |raw: &RawOption| options::find(&raw.name).is_some_and(|option| option.name == name);
        // A global size that failed is not in the settings either; any error about it is enough.
        self.section.options.iter().any(tried)
            || self.problems.list.iter().any(|problem| {
                problem.severity == Severity::Error && problem.message.contains(&format!("option `{name}`"))
            })
    }
}

/// Names with a colon between; `\:` is a colon in a name.
fn names(text: Option<String>) -> Vec<String> {
    let Some(text) = text else { return Vec::new() };
    let mut names = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&':') => {
                characters.next();
                if let Some(name) = names.last_mut() {
                    name.push(':');
                }
            }
            ':' => names.push(String::new()),
            _ => {
                if let Some(name) = names.last_mut() {
                    name.push(character);
                }
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}
