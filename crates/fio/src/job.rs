//! Jobs: the options of sections, put together, checked against one another and given types.

mod read;

pub(super) use read::build;

use super::lex::Place;
use super::options::{Engine, Group, Kind, Opt, Value};
use super::value::{Amount, CacheState, Distribution, Mode, PerDirection, Service, Share};

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
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
    /// Rows are stored compressed.
    pub packed: bool,
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
    pub options: Vec<Setting>,
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
    /// The value of an option that has no field of its own, if it was given.
    pub(crate) fn given(&self, name: &str) -> Option<Value> {
        let written = self.options.iter().rfind(|written| written.option.name == name)?;
        let flag = written.option.kind == Kind::Flag && written.value.is_empty();
        written.option.kind.parse(if flag { "1" } else { &written.value }, self.reporting.kb_base).ok()
    }

    /// Calls can be in flight together: the engine's, or those that other threads make.
    pub(crate) fn asynchronous(&self) -> bool {
        let alone = self.engine.one_at_a_time() || self.engine == Engine::Null && self.iodepth <= 1;
        !alone || self.word("io_submit_mode") == "offload"
    }

    /// Whether written data are checked: a pattern alone asks for it as well.
    pub(crate) fn verifies(&self) -> bool {
        self.word("verify") != "0" || self.given("verify").is_none() && self.given("verify_pattern").is_some()
    }

    pub(crate) fn on(&self, name: &str) -> bool {
        self.given(name) == Some(Value::Switch(true))
    }

    /// A number; 0 if the option was not given.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.given(name) {
            Some(Value::Int(number)) => number.unsigned_abs(),
            _ => 0,
        }
    }

    /// A word; `0` if the option was not given.
    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.given(name) {
            Some(Value::Word(word)) => word,
            _ => "0",
        }
    }

    /// A time, us; 0 if the option was not given.
    pub(crate) fn micros(&self, name: &str) -> u64 {
        match self.given(name) {
            Some(Value::Micros(micros)) => micros,
            _ => 0,
        }
    }

    /// A number with decimals, if the option was given.
    pub(crate) fn decimal(&self, name: &str) -> Option<f64> {
        match self.given(name) {
            Some(Value::Decimal(millionths)) => Some(millionths as f64 / 1e6),
            _ => None,
        }
    }

    /// Two numbers for reads and writes; 0 where none was given.
    pub(crate) fn pair(&self, name: &str) -> [u64; 2] {
        match self.given(name) {
            Some(Value::Ints(each)) => [each.read, each.write].map(|value| value.map_or(0, i64::unsigned_abs)),
            _ => [0, 0],
        }
    }

    /// The options of the job as arguments of a command line that makes the same job. Those that fio does not have are
    /// left out unless `ours`.
    pub fn to_arguments(&self, ours: bool) -> Vec<String> {
        let mut arguments = vec![format!("--name={}", self.name)];
        let shown = |option: &&Setting| option.option.name != "name" && (ours || option.option.group != Group::Ours);
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
