//! The options of a fio job: one table, from which come the parser, its messages, the warnings and the help.

use super::value::{self, Amount, CacheState, Distribution, Fault, Mode, Parsed, Partial, Service, Share, TimeUnit};
use iowhy_text::diagnose::nearest;

/// Kind of an option's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Any text; the option may also stand alone.
    OptionalText,
    /// Stands alone, or takes 0 or 1.
    Flag,
    /// 0 or 1.
    Bool,
    /// A whole number between these two, with a suffix of sizes.
    Int(i64, i64),
    /// Such numbers for reads, writes and trims.
    Ints(i64, i64),
    /// An amount of data of at least this.
    Amount(i64),
    /// A size, or a range of sizes.
    SizeRange,
    /// Ranges of sizes for reads, writes and trims.
    Ranges,
    /// Mixes of block sizes for reads, writes and trims.
    Split,
    /// A time; a number alone is in this unit.
    Time(TimeUnit),
    /// Seconds, or a range of them.
    TimeRange,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, comma between.
    Words(&'static [&'static str]),
    /// A decimal number between these two.
    Decimal(u64, u64),
    /// Decimal numbers, colon between.
    Decimals,
    /// A kind of I/O.
    Mode,
    /// A distribution of positions.
    Distribution,
    /// A rule for the next file.
    Service,
    /// A way of making I/O.
    Engine,
    /// A criterion of steadiness.
    Steady,
    /// A state of the page cache.
    Cache,
}

/// The simulator's treatment of an option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Model {
    Modelled,
    /// Nothing, and it could not matter; why.
    Harmless(&'static str),
    /// No effect, although it could matter; the assumption instead. The user gets a note.
    Missing(&'static str),
}

/// Subject of an option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// The job itself, and jobs next to one another.
    Job,
    Files,
    /// Where and how large I/Os are.
    Pattern,
    /// How I/O is made.
    Engine,
    /// When.
    Time,
    /// Logs and replays.
    Logs,
    Report,
    /// Contents of the buffers.
    Buffers,
    Process,
    /// Checks of the data.
    Verify,
    /// Zoned devices.
    Zones,
    /// Options that fio does not have.
    Ours,
}

impl Group {
    /// All groups with their titles, in the order of the help.
    pub const ALL: &'static [(Group, &'static str)] = &[
        (Group::Job, "Jobs"),
        (Group::Files, "Files"),
        (Group::Pattern, "Positions and sizes"),
        (Group::Engine, "How I/O is made"),
        (Group::Time, "Time and rates"),
        (Group::Logs, "Logs and replays"),
        (Group::Report, "Reports"),
        (Group::Buffers, "Buffers"),
        (Group::Process, "Processes"),
        (Group::Verify, "Checking data"),
        (Group::Zones, "Zones"),
        (Group::Ours, "Only in iowhy"),
    ];
}

/// One option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Opt {
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Subject.
    pub group: Group,
    /// Kind of its value.
    pub kind: Kind,
    /// Default as it would be written; empty for none.
    pub default: &'static str,
    /// The simulator's treatment.
    pub model: Model,
    /// Engines that have it; empty for all.
    pub engines: &'static [&'static str],
    /// One line.
    pub help: &'static str,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `lseek` and `read` or `write`.
    Sync,
    /// `pread` and `pwrite`.
    Psync,
    /// `readv` and `writev`, adjacent I/Os in one call.
    Vsync,
    /// `preadv` and `pwritev`.
    Pvsync,
    /// `preadv2` and `pwritev2`.
    Pvsync2,
    /// `io_submit` and `io_getevents`.
    Libaio,
    /// `io_uring_enter`.
    IoUring,
    /// The C library's threads.
    Posixaio,
    /// Memory mapping.
    Mmap,
    /// No I/O at all.
    Null,
}

impl Engine {
    /// Names and engines.
    pub const ALL: &'static [(&'static str, Engine)] = &[
        ("sync", Engine::Sync),
        ("psync", Engine::Psync),
        ("vsync", Engine::Vsync),
        ("pvsync", Engine::Pvsync),
        ("pvsync2", Engine::Pvsync2),
        ("libaio", Engine::Libaio),
        ("io_uring", Engine::IoUring),
        ("posixaio", Engine::Posixaio),
        ("mmap", Engine::Mmap),
        ("null", Engine::Null),
    ];

    /// Engines of fio that are not taken here.
    const STRANGE: &'static [&'static str] = &[
        "cpuio",
        "net",
        "netsplice",
        "ftruncate",
        "filecreate",
        "filestat",
        "filedelete",
        "exec",
        "falloc",
        "e4defrag",
        "splice",
        "gfapi",
        "gfapi_async",
        "mtd",
        "sg",
        "io_uring_cmd",
        "nbd",
        "rdma",
        "rados",
        "rbd",
        "http",
        "pmemblk",
        "dev-dax",
        "libpmem",
        "libblkio",
        "libcufile",
        "libhdfs",
        "libiscsi",
        "libzbc",
        "xnvme",
        "windowsaio",
        "solarisaio",
        "dircreate",
        "dirstat",
        "dirdelete",
        "fileoperations",
        "dfs",
        "nfs",
        "external",
    ];

    pub fn name(self) -> &'static str {
        Engine::ALL.iter().find(|(_, engine)| *engine == self).map_or("psync", |(name, _)| name)
    }

    /// Whether each I/O is over before the next begins, so that the depth is always one.
    pub fn one_at_a_time(self) -> bool {
        !matches!(self, Engine::Libaio | Engine::IoUring | Engine::Posixaio)
    }
}

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of `Flag` and `Bool`.
    Switch(bool),
    Int(i64),
    Ints(Partial<i64>),
    Amount(Amount),
    /// Of `SizeRange` in bytes and `TimeRange` in microseconds.
    Range(u64, u64),
    Ranges(Partial<(u64, u64)>),
    Split(Partial<Vec<Share>>),
    /// Of `Time`, microseconds.
    Micros(u64),
    /// Of `Choice`.
    Word(&'static str),
    Words(Vec<&'static str>),
    /// Of `Decimal`, millionths.
    Decimal(u64),
    /// Of `Decimals`, millionths.
    Decimals(Vec<u64>),
    /// Of `Text` and `Steady`.
    Text(String),
    Mode(Mode),
    Distribution(Distribution),
    Service(Service),
    Engine(Engine),
    Cache(CacheState),
}

impl Value {
    /// The value laid over an earlier one of the same option: empty places keep the earlier value.
    pub fn over(self, below: &Value) -> Value {
        match (self, below) {
            (Value::Ints(new), Value::Ints(old)) => Value::Ints(new.over(old)),
            (Value::Ranges(new), Value::Ranges(old)) => Value::Ranges(new.over(old)),
            (Value::Split(new), Value::Split(old)) => Value::Split(new.over(old)),
            (new, _) => new,
        }
    }
}

impl Kind {
    /// Whether the option may stand without a value.
    pub fn alone(self) -> bool {
        matches!(self, Kind::Flag | Kind::OptionalText)
    }

    /// Whether any text is a value.
    pub fn is_text(self) -> bool {
        matches!(self, Kind::Text | Kind::OptionalText)
    }

    pub fn parse(self, text: &str, kb_base: u64) -> Parsed<Value> {
        if text.is_empty() && self != Kind::OptionalText {
            return Err(value::missing());
        }
        Ok(match self {
            Kind::Text | Kind::OptionalText => Value::Text(text.to_owned()),
            Kind::Flag | Kind::Bool => Value::Switch(value::switch(text)?),
            Kind::Int(min, max) => Value::Int(value::integer(text, kb_base, (min, max))?),
            Kind::Ints(min, max) => {
                Value::Ints(value::triple(text, |piece| value::integer(piece, kb_base, (min, max)))?)
            }
            Kind::Amount(min) => Value::Amount(value::amount(text, kb_base, min)?),
            Kind::SizeRange => {
                let (min, max) = if text.contains(['-', ':']) {
                    value::range(text, kb_base)?
                } else {
                    let size = value::integer(text, kb_base, (1, i64::MAX))?.unsigned_abs();
                    (size, size)
                };
                Value::Range(min, max)
            }
            Kind::Ranges => Value::Ranges(value::ranges(text, kb_base)?),
            Kind::Split => Value::Split(value::split(text, kb_base)?),
            Kind::Time(unit) => Value::Micros(value::time(text, unit, TIMES)?),
            Kind::TimeRange => {
                let (first, second) = text.split_once(['-', ':']).unwrap_or((text, text));
                let first = value::time(first.trim(), TimeUnit::Seconds, TIMES)?;
                let second = value::time(second.trim(), TimeUnit::Seconds, TIMES)?;
                Value::Range(first.min(second), first.max(second))
            }
            Kind::Choice(words) => Value::Word(value::choice(text, words)?),
            Kind::Words(words) => {
                let list: Parsed<Vec<_>> = text.split(',').map(|word| value::choice(word.trim(), words)).collect();
                Value::Words(list?)
            }
            Kind::Decimal(min, max) => Value::Decimal(value::millionths(text, (min * 1_000_000, max * 1_000_000))?),
            Kind::Decimals => Value::Decimals(value::decimals(text, (0, 100_000_000))?),
            Kind::Mode => Value::Mode(value::mode(text, kb_base)?),
            Kind::Distribution => Value::Distribution(value::distribution(text)?),
            Kind::Service => Value::Service(value::service(text)?),
            Kind::Engine => Value::Engine(engine(text)?),
            Kind::Steady => {
                let name = text.split(':').next().unwrap_or(text);
                value::choice(name, &["iops", "iops_slope", "bw", "bw_slope"])?;
                Value::Text(text.to_owned())
            }
            Kind::Cache => Value::Cache(value::cache(text, kb_base)?),
        })
    }

    /// Placeholder of the value in the help.
    pub fn shown(self) -> String {
        match self {
            Kind::Text | Kind::OptionalText => "=TEXT".to_owned(),
            Kind::Flag => String::new(),
            Kind::Bool => "=0|1".to_owned(),
            Kind::Int(..) => "=N".to_owned(),
            Kind::Ints(..) => "=N[,N[,N]]".to_owned(),
            Kind::Amount(_) => "=SIZE|N%".to_owned(),
            Kind::SizeRange => "=SIZE[-SIZE]".to_owned(),
            Kind::Ranges => "=MIN-MAX[,..]".to_owned(),
            Kind::Split => "=SIZE/PERCENT:..".to_owned(),
            Kind::Time(_) => "=TIME".to_owned(),
            Kind::TimeRange => "=TIME[-TIME]".to_owned(),
            Kind::Choice(words) if words.len() <= 4 => format!("={}", words.join("|")),
            Kind::Choice(_) => "=WORD".to_owned(),
            Kind::Words(_) => "=WORD[,..]".to_owned(),
            Kind::Decimal(..) => "=DECIMAL".to_owned(),
            Kind::Decimals => "=DECIMAL[:..]".to_owned(),
            Kind::Mode => "=MODE[:N]".to_owned(),
            Kind::Distribution => "=NAME[:PARAMETER]".to_owned(),
            Kind::Service => "=NAME[:N]".to_owned(),
            Kind::Engine => "=ENGINE".to_owned(),
            Kind::Steady => "=WHAT:LIMIT".to_owned(),
            Kind::Cache => "=STATE".to_owned(),
        }
    }
}

fn engine(text: &str) -> Parsed<Engine> {
    if let Some((_, engine)) = Engine::ALL.iter().find(|(name, _)| *name == text) {
        return Ok(*engine);
    }
    let names = || Engine::ALL.iter().map(|(name, _)| *name);
    let strange = Engine::STRANGE.contains(&text) || text.starts_with("external:");
    Err(Fault {
        message: if strange {
            format!("the engine `{text}` is not taken here")
        } else {
            format!("unknown engine `{text}`")
        },
        part: None,
        nearest: if strange { Vec::new() } else { nearest(text, names()) },
        help: Some(format!("one of {}", names().collect::<Vec<_>>().join(", "))),
    })
}

/// Longest time, microseconds: about thirty years.
const TIMES: (i64, i64) = (0, 1_000_000_000_000_000);

const VERIFY: &[&str] = &[
    "0",
    "md5",
    "crc64",
    "crc32",
    "crc32c-intel",
    "crc32c",
    "crc16",
    "crc7",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "xxhash",
    "meta",
    "pattern",
    "pattern_hdr",
    "null",
];

const fn opt(
    group: Group,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    model: Model,
    help: &'static str,
) -> Opt {
    Opt { name, aliases: &[], group, kind, default, model, engines: &[], help }
}

const fn also(mut option: Opt, aliases: &'static [&'static str]) -> Opt {
    option.aliases = aliases;
    option
}

const fn of(mut option: Opt, engines: &'static [&'static str]) -> Opt {
    option.engines = engines;
    option
}

use Group::{
    Buffers, Engine as EngineGroup, Files, Job, Logs, Ours, Pattern, Process, Report, Time as TimeGroup, Verify, Zones,
};
use Kind::{
    Bool, Cache, Choice, Decimal, Decimals, Flag, Int, Ints, OptionalText, Ranges, SizeRange, Split, Steady, Text,
    Time, TimeRange, Words,
};
use Model::{Harmless, Missing, Modelled};
use TimeUnit::{Micros, Millis, Seconds};

/// Every option.
pub const OPTIONS: &[Opt] = &[
    opt(Job, "description", Text, "", Modelled, "purpose of the job"),
    opt(Job, "name", Text, "", Modelled, "name of the job, instead of the section's"),
    opt(Job, "wait_for", Text, "", Modelled, "start only when this job has ended"),
    opt(Job, "numjobs", Int(1, 65_536), "1", Modelled, "clones of the job"),
    opt(Job, "thread", Flag, "0", Modelled, "clones are threads of one process"),
    opt(Job, "group_reporting", Flag, "0", Modelled, "one report for all jobs of a group"),
    opt(Job, "new_group", Flag, "0", Modelled, "begins a reporting group"),
    also(opt(Job, "stonewall", Flag, "0", Modelled, "waits for all jobs before it"), &["wait_for_previous"]),
    opt(Job, "exitall", Flag, "0", Missing("each job runs to its own end"), "the end of one job ends all"),
    opt(
        Job,
        "exit_what",
        Choice(&["group", "stonewall", "all"]),
        "group",
        Missing("each job runs to its own end"),
        "jobs that exitall ends",
    ),
    opt(Job, "exitall_on_error", Flag, "0", Harmless("simulated jobs have no errors"), "an error of one job ends all"),
    opt(Job, "profile", Text, "", Missing("only plain jobs are modelled"), "built-in profile"),
    opt(Files, "filename", Text, "", Modelled, "files or devices, colon between"),
    opt(Files, "directory", Text, "", Modelled, "where the files are, colon between several"),
    opt(Files, "filename_format", Text, "$jobname.$jobnum.$filenum", Modelled, "names of files that have none"),
    opt(Files, "unique_filename", Bool, "1", Harmless("no network clients"), "names differ between network clients"),
    opt(Files, "opendir", Text, "", Missing("the simulator has no folders"), "adds all files of a folder"),
    opt(
        Files,
        "lockfile",
        Choice(&["none", "exclusive", "readwrite"]),
        "none",
        Missing("files are not locked"),
        "lock files during I/O",
    ),
    also(opt(Files, "nrfiles", Int(1, 1 << 20), "1", Modelled, "files of each clone"), &["nr_files"]),
    opt(
        Files,
        "openfiles",
        Int(0, 1 << 20),
        "",
        Missing("all files are open from the start"),
        "files open at the same time",
    ),
    opt(Files, "file_service_type", Kind::Service, "roundrobin", Modelled, "order of files"),
    opt(
        Files,
        "fallocate",
        Choice(&["none", "native", "posix", "keep", "truncate", "0", "1"]),
        "native",
        Harmless("simulated files lie as reserved ones do"),
        "reservation of space",
    ),
    opt(
        Files,
        "create_serialize",
        Bool,
        "1",
        Harmless("files are laid out before the run"),
        "make files one after the other",
    ),
    opt(
        Files,
        "create_fsync",
        Bool,
        "1",
        Harmless("files are laid out before the run"),
        "fsync files after making them",
    ),
    opt(
        Files,
        "create_on_open",
        Bool,
        "0",
        Missing("files are laid out before the run"),
        "make files when they are opened",
    ),
    opt(Files, "create_only", Bool, "0", Missing("files are laid out before the run"), "only make the files"),
    opt(
        Files,
        "allow_file_create",
        Bool,
        "1",
        Harmless("files are laid out before the run"),
        "make files that do not exist",
    ),
    opt(Files, "allow_mounted_write", Bool, "0", Harmless("no mounted device to protect"), "write to mounted devices"),
    opt(Files, "file_append", Bool, "0", Missing("I/O starts at the offset"), "start at the end of the files"),
    opt(
        Files,
        "overwrite",
        Bool,
        "0",
        Harmless("files are laid out before the run"),
        "files exist before they are written",
    ),
    opt(Files, "unlink", Bool, "0", Harmless("simulated files leave nothing behind"), "remove files at the end"),
    opt(Files, "unlink_each_loop", Bool, "0", Missing("files stay between loops"), "remove files after each loop"),
    opt(Files, "pre_read", Bool, "0", Modelled, "read files before the run"),
    opt(Files, "invalidate", Bool, "1", Modelled, "drop the files' cached pages before the run"),
    opt(
        Files,
        "fadvise_hint",
        Choice(&["0", "1", "random", "sequential", "noreuse"]),
        "1",
        Modelled,
        "advise the kernel of the pattern",
    ),
    opt(
        Files,
        "write_hint",
        Choice(&["none", "short", "medium", "long", "extreme"]),
        "none",
        Missing("devices have no use for life times"),
        "expected life time of written data",
    ),
    also(opt(Pattern, "rw", Kind::Mode, "read", Modelled, "kind of I/O"), &["readwrite"]),
    opt(Pattern, "rwmixread", Int(0, 100), "50", Modelled, "percent of reads in a mix"),
    opt(Pattern, "rwmixwrite", Int(0, 100), "50", Modelled, "percent of writes in a mix"),
    opt(
        Pattern,
        "rw_sequencer",
        Choice(&["sequential", "identical"]),
        "sequential",
        Missing("the modifier of rw skips"),
        "meaning of the modifier of rw",
    ),
    also(opt(Pattern, "bs", Ints(1, 1 << 30), "4096", Modelled, "bytes in an I/O"), &["blocksize"]),
    also(
        opt(
            Pattern,
            "ba",
            Ints(1, 1 << 30),
            "",
            Missing("positions are multiples of the smallest block"),
            "positions are multiples of this",
        ),
        &["blockalign"],
    ),
    also(opt(Pattern, "bsrange", Ranges, "", Modelled, "bytes in an I/O, from and to"), &["blocksize_range"]),
    opt(Pattern, "bssplit", Split, "", Modelled, "mix of block sizes"),
    also(
        opt(
            Pattern,
            "bs_unaligned",
            Flag,
            "0",
            Missing("sizes are multiples of the least"),
            "any size of a range, not multiples of its least",
        ),
        &["blocksize_unaligned"],
    ),
    opt(
        Pattern,
        "bs_is_seq_rand",
        Bool,
        "0",
        Missing("block sizes are for reads and writes"),
        "block sizes are for sequential and random I/O",
    ),
    opt(Pattern, "size", Kind::Amount(0), "", Modelled, "bytes of the region in all files of a clone"),
    also(opt(Pattern, "io_size", Kind::Amount(0), "", Modelled, "bytes to transfer, if not the size"), &["io_limit"]),
    opt(Pattern, "filesize", SizeRange, "", Modelled, "bytes of each file"),
    also(
        opt(
            Pattern,
            "fill_device",
            Bool,
            "0",
            Missing("simulated devices are never full"),
            "write until the device is full",
        ),
        &["fill_fs"],
    ),
    also(opt(Pattern, "offset", Kind::Amount(0), "0", Modelled, "where the region begins"), &["fileoffset"]),
    opt(Pattern, "offset_align", Int(0, 1 << 40), "0", Modelled, "offset is a multiple of this"),
    opt(Pattern, "offset_increment", Kind::Amount(0), "0", Modelled, "offset of each clone after the first"),
    opt(Pattern, "number_ios", Int(0, 1 << 60), "0", Modelled, "stop after this many I/Os"),
    opt(Pattern, "loops", Int(1, 1 << 40), "1", Modelled, "times the job is run"),
    opt(Pattern, "norandommap", Flag, "0", Modelled, "random positions may repeat"),
    opt(
        Pattern,
        "softrandommap",
        Bool,
        "0",
        Harmless("memory for the map never runs out"),
        "go on without a map if memory is short",
    ),
    opt(Pattern, "randrepeat", Bool, "1", Modelled, "the same positions in each run"),
    opt(Pattern, "allrandrepeat", Bool, "0", Modelled, "the same random numbers for everything in each run"),
    opt(Pattern, "randseed", Int(0, i64::MAX), "0x89", Modelled, "seed of the random numbers"),
    opt(
        Pattern,
        "random_generator",
        Choice(&["tausworthe", "lfsr", "tausworthe64"]),
        "tausworthe",
        Harmless("all of them visit each block once, in an order of ours"),
        "generator of positions",
    ),
    opt(Pattern, "random_distribution", Kind::Distribution, "random", Modelled, "distribution of positions"),
    opt(Pattern, "percentage_random", Ints(0, 100), "100", Modelled, "percent of random I/Os that are random"),
    opt(EngineGroup, "ioengine", Kind::Engine, "psync", Modelled, "how I/O is made"),
    opt(EngineGroup, "iodepth", Int(1, 65_536), "1", Modelled, "I/Os in flight, of asynchronous engines"),
    also(
        opt(EngineGroup, "iodepth_batch", Int(0, 65_536), "1", Modelled, "I/Os in one submission"),
        &["iodepth_batch_submit"],
    ),
    also(
        opt(EngineGroup, "iodepth_batch_complete_min", Int(0, 65_536), "1", Modelled, "I/Os to wait for at once"),
        &["iodepth_batch_complete"],
    ),
    opt(
        EngineGroup,
        "iodepth_batch_complete_max",
        Int(0, 65_536),
        "",
        Missing("every completion that is there is taken"),
        "I/Os to take at once",
    ),
    opt(
        EngineGroup,
        "iodepth_low",
        Int(0, 65_536),
        "",
        Missing("filling starts again at every completion"),
        "I/Os in flight at which filling starts again",
    ),
    opt(
        EngineGroup,
        "serialize_overlap",
        Bool,
        "0",
        Missing("overlapping I/Os are not held back"),
        "wait for overlapping I/Os",
    ),
    opt(
        EngineGroup,
        "io_submit_mode",
        Choice(&["inline", "offload"]),
        "inline",
        Missing("I/O is submitted by the job itself"),
        "submitter of I/O",
    ),
    opt(EngineGroup, "direct", Bool, "0", Modelled, "without the page cache"),
    opt(EngineGroup, "buffered", Bool, "1", Modelled, "the opposite of direct"),
    opt(EngineGroup, "atomic", Bool, "0", Missing("writes are not atomic"), "atomic direct I/O"),
    opt(
        EngineGroup,
        "sync",
        Choice(&["none", "0", "sync", "1", "dsync"]),
        "none",
        Modelled,
        "open for synchronous writes",
    ),
    opt(EngineGroup, "fsync", Int(0, 1 << 31), "0", Modelled, "writes between fsyncs"),
    opt(EngineGroup, "fdatasync", Int(0, 1 << 31), "0", Modelled, "writes between fdatasyncs"),
    opt(
        EngineGroup,
        "write_barrier",
        Int(0, 1 << 31),
        "0",
        Missing("jobs have no barrier writes"),
        "writes between barriers",
    ),
    opt(
        EngineGroup,
        "sync_file_range",
        Text,
        "",
        Missing("the call is not modelled"),
        "writes between calls of sync_file_range",
    ),
    opt(EngineGroup, "end_fsync", Bool, "0", Modelled, "fsync when the job ends"),
    opt(EngineGroup, "fsync_on_close", Bool, "0", Modelled, "fsync when a file is closed"),
    opt(
        EngineGroup,
        "max_latency",
        Time(Micros),
        "0",
        Missing("jobs are never ended by a latency"),
        "end the job at a longer latency",
    ),
    opt(EngineGroup, "ioscheduler", Text, "", Modelled, "elevator of the device"),
    of(
        opt(EngineGroup, "hipri", Flag, "0", Missing("completions come by interrupt"), "poll for completions"),
        &["io_uring", "pvsync2"],
    ),
    of(
        opt(
            EngineGroup,
            "hipri_percentage",
            Int(0, 100),
            "100",
            Missing("completions come by interrupt"),
            "percent of I/Os that poll",
        ),
        &["pvsync2"],
    ),
    of(
        opt(EngineGroup, "fixedbufs", Flag, "0", Missing("the cost of a call is the same"), "map buffers beforehand"),
        &["io_uring"],
    ),
    of(
        opt(
            EngineGroup,
            "registerfiles",
            Flag,
            "0",
            Missing("the cost of a call is the same"),
            "register files beforehand",
        ),
        &["io_uring"],
    ),
    of(
        opt(EngineGroup, "sqthread_poll", Flag, "0", Missing("each submission is a call"), "a kernel thread submits"),
        &["io_uring"],
    ),
    of(
        opt(
            EngineGroup,
            "sqthread_poll_cpu",
            Int(0, 65_536),
            "0",
            Missing("each submission is a call"),
            "processor of that thread",
        ),
        &["io_uring"],
    ),
    of(
        opt(
            EngineGroup,
            "nonvectored",
            Int(0, 1),
            "1",
            Harmless("the cost of a call is the same"),
            "plain reads and writes",
        ),
        &["io_uring"],
    ),
    of(
        opt(
            EngineGroup,
            "force_async",
            Int(0, 65_536),
            "0",
            Missing("no worker threads are modelled"),
            "I/Os handed to a worker at once",
        ),
        &["io_uring"],
    ),
    of(
        opt(EngineGroup, "uncached", Int(0, 1), "0", Missing("pages stay in the cache"), "drop pages after use"),
        &["io_uring", "pvsync2"],
    ),
    of(
        opt(EngineGroup, "nowait", Bool, "0", Missing("calls that would block do block"), "fail instead of blocking"),
        &["libaio", "io_uring", "pvsync2"],
    ),
    of(
        opt(
            EngineGroup,
            "userspace_reap",
            Flag,
            "0",
            Missing("completions are taken by a call"),
            "take completions without a call",
        ),
        &["libaio"],
    ),
    of(
        opt(EngineGroup, "libaio_vectored", Bool, "0", Harmless("the cost of a call is the same"), "vectored calls"),
        &["libaio"],
    ),
    of(opt(EngineGroup, "thp", Int(0, 1), "0", Missing("pages are small"), "huge pages"), &["mmap"]),
    also(opt(TimeGroup, "runtime", Time(Seconds), "0", Modelled, "end after this time"), &["timeout"]),
    opt(TimeGroup, "time_based", Flag, "0", Modelled, "repeat until the time is over"),
    opt(TimeGroup, "ramp_time", Time(Seconds), "0", Modelled, "time before measuring begins"),
    opt(TimeGroup, "startdelay", TimeRange, "0", Modelled, "wait before the start"),
    opt(TimeGroup, "thinktime", Time(Micros), "0", Modelled, "wait between I/Os"),
    opt(TimeGroup, "thinktime_spin", Time(Micros), "0", Modelled, "part of it spent computing"),
    opt(TimeGroup, "thinktime_blocks", Int(1, 1 << 31), "1", Modelled, "I/Os between waits"),
    opt(
        TimeGroup,
        "thinktime_blocks_type",
        Choice(&["complete", "issue"]),
        "complete",
        Harmless("I/Os are counted one by one either way"),
        "count I/Os at completion or at issue",
    ),
    opt(TimeGroup, "thinktime_iotime", Time(Seconds), "0", Missing("I/Os are counted"), "time of I/O between waits"),
    opt(TimeGroup, "rate", Ints(0, i64::MAX), "", Modelled, "bytes a second"),
    also(
        opt(
            TimeGroup,
            "rate_min",
            Ints(0, i64::MAX),
            "",
            Missing("jobs are never ended by a low rate"),
            "end the job below this",
        ),
        &["ratemin"],
    ),
    opt(TimeGroup, "rate_iops", Ints(0, i64::MAX), "", Modelled, "I/Os a second"),
    opt(
        TimeGroup,
        "rate_iops_min",
        Ints(0, i64::MAX),
        "",
        Missing("jobs are never ended by a low rate"),
        "end the job below this",
    ),
    opt(TimeGroup, "rate_process", Choice(&["linear", "poisson"]), "linear", Modelled, "even or exponential gaps"),
    also(
        opt(
            TimeGroup,
            "rate_cycle",
            Time(Millis),
            "1000",
            Harmless("only a least rate is averaged over it"),
            "time over which the rate is averaged",
        ),
        &["ratecycle"],
    ),
    opt(
        TimeGroup,
        "rate_ignore_thinktime",
        Bool,
        "0",
        Missing("thinking counts against the rate"),
        "thinking does not count against the rate",
    ),
    opt(
        TimeGroup,
        "latency_target",
        Time(Micros),
        "0",
        Missing("the depth is not searched"),
        "find the depth for this latency",
    ),
    opt(
        TimeGroup,
        "latency_window",
        Time(Micros),
        "0",
        Missing("the depth is not searched"),
        "time over which it must hold",
    ),
    opt(
        TimeGroup,
        "latency_percentile",
        Decimal(0, 100),
        "100",
        Missing("the depth is not searched"),
        "percent of I/Os that must be below",
    ),
    opt(TimeGroup, "latency_run", Bool, "0", Missing("the depth is not searched"), "go on after it is found"),
    also(
        opt(
            TimeGroup,
            "steadystate",
            Steady,
            "iops_slope:0.01%",
            Missing("runs have their full length"),
            "criterion of steadiness",
        ),
        &["ss"],
    ),
    also(
        opt(
            TimeGroup,
            "steadystate_duration",
            Time(Seconds),
            "0",
            Missing("runs have their full length"),
            "time of steadiness after which the job ends",
        ),
        &["ss_dur"],
    ),
    also(
        opt(
            TimeGroup,
            "steadystate_ramp_time",
            Time(Seconds),
            "0",
            Missing("runs have their full length"),
            "time before looking",
        ),
        &["ss_ramp"],
    ),
    also(
        opt(
            TimeGroup,
            "steadystate_check_interval",
            Time(Seconds),
            "1",
            Missing("runs have their full length"),
            "time between looks",
        ),
        &["ss_interval"],
    ),
    opt(
        TimeGroup,
        "clocksource",
        Choice(&["gettimeofday", "clock_gettime", "cpu"]),
        "",
        Harmless("simulated time has one clock"),
        "clock",
    ),
    opt(Logs, "write_bw_log", OptionalText, "", Modelled, "log of bandwidth"),
    opt(Logs, "write_lat_log", OptionalText, "", Modelled, "log of latencies"),
    opt(Logs, "write_iops_log", OptionalText, "", Modelled, "log of I/Os a second"),
    opt(Logs, "write_hist_log", OptionalText, "", Modelled, "log of histograms"),
    opt(Logs, "log_avg_msec", Time(Millis), "0", Modelled, "average logs over this"),
    opt(Logs, "log_hist_msec", Time(Millis), "0", Modelled, "time between histograms"),
    opt(Logs, "log_hist_coarseness", Int(0, 6), "0", Modelled, "halve the buckets so often"),
    also(
        opt(
            Logs,
            "log_max_value",
            Choice(&["0", "1", "avg", "max", "both"]),
            "0",
            Modelled,
            "logged value of a window",
        ),
        &["log_window_value"],
    ),
    opt(Logs, "log_offset", Bool, "0", Modelled, "log positions"),
    opt(Logs, "log_prio", Bool, "0", Missing("priorities are not logged"), "log priorities"),
    opt(Logs, "log_issue_time", Bool, "0", Modelled, "log when I/Os were issued"),
    opt(Logs, "log_entries", Int(1024, 1_048_576), "1024", Harmless("logs grow by themselves"), "first size of a log"),
    opt(Logs, "log_compression", Int(1024, 536_870_912), "", Missing("logs are plain text"), "compress logs"),
    opt(Logs, "log_compression_cpus", Text, "", Harmless("logs are plain text"), "processors that compress"),
    opt(Logs, "log_store_compressed", Bool, "0", Missing("logs are plain text"), "store logs compressed"),
    opt(Logs, "log_unix_epoch", Bool, "0", Missing("simulated time begins at 0"), "times since 1970"),
    opt(Logs, "log_alternate_epoch", Bool, "0", Missing("simulated time begins at 0"), "times of another clock"),
    opt(
        Logs,
        "log_alternate_epoch_clock_id",
        Int(0, 65_536),
        "0",
        Harmless("simulated time begins at 0"),
        "clock of times",
    ),
    opt(Logs, "per_job_logs", Bool, "1", Modelled, "number of the job in names of logs"),
    opt(Logs, "bwavgtime", Time(Millis), "500", Modelled, "window of bandwidth samples"),
    opt(Logs, "iopsavgtime", Time(Millis), "500", Modelled, "window of samples of I/Os a second"),
    opt(Logs, "write_iolog", Text, "", Modelled, "write the I/Os to this file"),
    opt(Logs, "read_iolog", Text, "", Modelled, "replay the I/Os of this file"),
    opt(Logs, "read_iolog_chunked", Bool, "0", Harmless("the file is read whole"), "read that file in pieces"),
    opt(Logs, "replay_no_stall", Bool, "0", Modelled, "replay as fast as possible"),
    opt(Logs, "replay_redirect", Text, "", Modelled, "replay onto this file"),
    opt(Logs, "replay_scale", Int(1, i64::MAX), "1", Modelled, "divide offsets by this"),
    opt(Logs, "replay_align", Int(0, i64::MAX), "0", Modelled, "round offsets down to this"),
    opt(Logs, "replay_time_scale", Int(1, 1_000_000), "100", Modelled, "percent of the speed"),
    opt(Logs, "replay_skip", Words(&["read", "write", "trim", "sync"]), "", Modelled, "kinds of I/O to leave out"),
    opt(Logs, "merge_blktrace_file", Text, "", Missing("traces are not merged"), "merge traces into this file"),
    opt(Logs, "merge_blktrace_scalars", Decimals, "", Missing("traces are not merged"), "scale of each trace"),
    opt(Logs, "merge_blktrace_iters", Decimals, "", Missing("traces are not merged"), "repetitions of each trace"),
    opt(Report, "clat_percentiles", Bool, "1", Modelled, "percentiles of completion latency"),
    opt(Report, "lat_percentiles", Bool, "0", Modelled, "percentiles of latency"),
    opt(Report, "slat_percentiles", Bool, "0", Modelled, "percentiles of submission latency"),
    opt(
        Report,
        "percentile_list",
        Decimals,
        "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99",
        Modelled,
        "percentiles to report",
    ),
    opt(Report, "significant_figures", Int(1, 10), "4", Modelled, "digits in the report"),
    opt(Report, "disable_lat", Bool, "0", Modelled, "no latencies"),
    opt(Report, "disable_clat", Bool, "0", Modelled, "no completion latencies"),
    opt(Report, "disable_slat", Bool, "0", Modelled, "no submission latencies"),
    also(opt(Report, "disable_bw_measurement", Bool, "0", Modelled, "no samples of bandwidth"), &["disable_bw"]),
    opt(Report, "gtod_reduce", Bool, "0", Modelled, "no latencies and no samples"),
    opt(
        Report,
        "gtod_cpu",
        Int(0, 65_536),
        "0",
        Harmless("simulated time has one clock"),
        "a processor that keeps the time",
    ),
    opt(Report, "disk_util", Bool, "1", Modelled, "report the device"),
    opt(Report, "stats", Bool, "1", Modelled, "report the job"),
    opt(
        Report,
        "block_error_percentiles",
        Bool,
        "0",
        Harmless("simulated devices have no errors"),
        "report trim errors",
    ),
    opt(
        Report,
        "unified_rw_reporting",
        Choice(&["none", "mixed", "both", "0", "1", "2"]),
        "none",
        Modelled,
        "one report for all directions",
    ),
    opt(Report, "unit_base", Choice(&["0", "1", "8"]), "0", Modelled, "report bits or bytes"),
    opt(Report, "kb_base", Choice(&["1000", "1024"]), "1024", Modelled, "meaning of k"),
    opt(
        Report,
        "continue_on_error",
        Choice(&["none", "read", "write", "io", "verify", "all", "0", "1"]),
        "none",
        Harmless("simulated devices have no errors"),
        "go on after errors",
    ),
    opt(Report, "ignore_error", Text, "", Harmless("simulated devices have no errors"), "errors to pass over"),
    opt(Report, "error_dump", Bool, "0", Harmless("simulated devices have no errors"), "print errors"),
    also(opt(Buffers, "mem", Text, "malloc", Harmless("data are not simulated"), "memory of buffers"), &["iomem"]),
    also(
        opt(Buffers, "iomem_align", Int(0, 1 << 30), "0", Harmless("data are not simulated"), "alignment of buffers"),
        &["mem_align"],
    ),
    opt(Buffers, "hugepage-size", Int(0, i64::MAX), "2m", Harmless("data are not simulated"), "size of a huge page"),
    opt(
        Buffers,
        "lockmem",
        Int(0, i64::MAX),
        "0",
        Missing("memory is not locked: choose the size of the machine"),
        "memory to lock",
    ),
    opt(Buffers, "zero_buffers", Flag, "0", Harmless("data are not simulated"), "write zeroes"),
    opt(Buffers, "refill_buffers", Flag, "0", Harmless("data are not simulated"), "new data for each write"),
    opt(Buffers, "scramble_buffers", Bool, "1", Harmless("data are not simulated"), "change data a little"),
    opt(Buffers, "buffer_pattern", Text, "", Harmless("data are not simulated"), "data to write"),
    opt(
        Buffers,
        "buffer_compress_percentage",
        Int(0, 100),
        "0",
        Harmless("data are not simulated"),
        "percent by which data can be compressed",
    ),
    opt(
        Buffers,
        "buffer_compress_chunk",
        Int(0, 1 << 31),
        "512",
        Harmless("data are not simulated"),
        "piece of data that can be compressed",
    ),
    opt(Buffers, "dedupe_percentage", Int(0, 100), "0", Harmless("data are not simulated"), "percent of equal data"),
    opt(
        Buffers,
        "dedupe_mode",
        Choice(&["repeat", "working_set"]),
        "repeat",
        Harmless("data are not simulated"),
        "source of equal data",
    ),
    opt(
        Buffers,
        "dedupe_working_set_percentage",
        Int(0, 100),
        "5",
        Harmless("data are not simulated"),
        "amount of equal data",
    ),
    opt(Buffers, "dedupe_global", Bool, "0", Harmless("data are not simulated"), "equal data between jobs"),
    opt(Process, "cpus_allowed", Text, "", Missing("a job runs on any processor"), "processors of the job"),
    opt(
        Process,
        "cpus_allowed_policy",
        Choice(&["shared", "split"]),
        "shared",
        Missing("a job runs on any processor"),
        "division of processors among clones",
    ),
    opt(Process, "cpumask", Int(0, i64::MAX), "", Missing("a job runs on any processor"), "processors as a mask"),
    opt(Process, "numa_cpu_nodes", Text, "", Missing("there is one memory node"), "nodes to run on"),
    opt(Process, "numa_mem_policy", Text, "", Missing("there is one memory node"), "nodes to take memory from"),
    opt(Process, "nice", Int(-20, 19), "0", Missing("jobs have equal priority"), "niceness"),
    opt(Process, "prio", Int(0, 7), "4", Missing("jobs have equal priority"), "I/O priority"),
    opt(Process, "prioclass", Int(0, 3), "0", Missing("jobs have equal priority"), "class of the I/O priority"),
    opt(Process, "cgroup", Text, "", Missing("there is one control group"), "control group"),
    opt(Process, "cgroup_nodelete", Bool, "0", Harmless("there is one control group"), "leave the group behind"),
    opt(Process, "cgroup_weight", Int(100, 1000), "", Missing("there is one control group"), "weight of the group"),
    opt(Process, "uid", Int(0, 1 << 32), "", Harmless("simulated jobs have no owner"), "user"),
    opt(Process, "gid", Int(0, 1 << 32), "", Harmless("simulated jobs have no owner"), "group"),
    opt(Process, "exec_prerun", Text, "", Missing("no command is run"), "command to run before"),
    opt(Process, "exec_postrun", Text, "", Missing("no command is run"), "command to run after"),
    opt(
        Process,
        "flow",
        Int(-1000, 1000),
        "0",
        Missing("jobs do not wait for one another"),
        "weight against other jobs",
    ),
    opt(Process, "flow_id", Int(0, 1 << 31), "0", Missing("jobs do not wait for one another"), "kind of balance"),
    opt(
        Process,
        "flow_watermark",
        Int(0, 1 << 31),
        "1024",
        Missing("jobs do not wait for one another"),
        "imbalance allowed",
    ),
    opt(Process, "flow_sleep", Time(Micros), "0", Missing("jobs do not wait for one another"), "wait when ahead"),
    opt(Verify, "verify", Choice(VERIFY), "0", Missing("data are not simulated"), "check written data"),
    opt(Verify, "do_verify", Bool, "1", Missing("data are not simulated"), "check after writing"),
    opt(Verify, "verify_only", Flag, "0", Missing("data are not simulated"), "check without writing"),
    opt(Verify, "verify_interval", Int(0, 1 << 31), "0", Missing("data are not simulated"), "bytes between check sums"),
    opt(Verify, "verify_offset", Int(0, 1 << 31), "0", Missing("data are not simulated"), "place of the check sum"),
    opt(Verify, "verify_pattern", Text, "", Missing("data are not simulated"), "pattern to write and check"),
    opt(
        Verify,
        "verify_pattern_interval",
        Bool,
        "0",
        Missing("data are not simulated"),
        "repeat the pattern in each interval",
    ),
    opt(Verify, "verify_fatal", Bool, "0", Missing("data are not simulated"), "stop at the first difference"),
    opt(Verify, "verify_dump", Bool, "0", Missing("data are not simulated"), "keep blocks that differ"),
    opt(Verify, "verify_async", Int(0, 65_536), "0", Missing("data are not simulated"), "threads that check"),
    opt(Verify, "verify_async_cpus", Text, "", Missing("data are not simulated"), "processors of these threads"),
    opt(Verify, "verify_backlog", Int(0, i64::MAX), "0", Missing("data are not simulated"), "writes before a check"),
    opt(
        Verify,
        "verify_backlog_batch",
        Int(0, 1 << 31),
        "0",
        Missing("data are not simulated"),
        "blocks to check at once",
    ),
    opt(Verify, "verify_header_seed", Bool, "1", Missing("data are not simulated"), "check the seed in the header"),
    opt(Verify, "verify_write_sequence", Bool, "1", Missing("data are not simulated"), "check the order of writes"),
    opt(Verify, "verify_state_load", Bool, "0", Missing("data are not simulated"), "load the state of an earlier run"),
    opt(Verify, "verify_state_save", Bool, "1", Harmless("data are not simulated"), "save the state for a later run"),
    opt(Verify, "experimental_verify", Bool, "0", Missing("data are not simulated"), "check by repeating the pattern"),
    opt(
        Verify,
        "trim_percentage",
        Int(0, 100),
        "0",
        Missing("data are not simulated"),
        "percent of checked blocks to trim",
    ),
    opt(Verify, "trim_verify_zero", Bool, "1", Harmless("data are not simulated"), "trimmed blocks are zero"),
    opt(Verify, "trim_backlog", Int(0, i64::MAX), "0", Missing("data are not simulated"), "writes before a trim"),
    opt(
        Verify,
        "trim_backlog_batch",
        Int(0, 1 << 31),
        "0",
        Missing("data are not simulated"),
        "blocks to trim at once",
    ),
    opt(Verify, "num_range", Int(1, 256), "1", Missing("a trim has one range"), "ranges in a trim"),
    opt(
        Zones,
        "zonemode",
        Choice(&["none", "strided", "zbd"]),
        "none",
        Missing("devices have no zones"),
        "mode of zones",
    ),
    opt(Zones, "zonesize", Int(0, i64::MAX), "0", Missing("devices have no zones"), "bytes used in a zone"),
    opt(Zones, "zonecapacity", Int(0, i64::MAX), "0", Missing("devices have no zones"), "bytes that fit into a zone"),
    opt(Zones, "zonerange", Int(0, i64::MAX), "0", Missing("devices have no zones"), "bytes from zone to zone"),
    opt(Zones, "zoneskip", Kind::Amount(0), "0", Missing("devices have no zones"), "bytes between zones"),
    opt(Zones, "read_beyond_wp", Bool, "0", Missing("devices have no zones"), "read data that was not written"),
    opt(Zones, "max_open_zones", Int(0, 4096), "0", Missing("devices have no zones"), "zones open at once"),
    opt(
        Zones,
        "job_max_open_zones",
        Int(0, 4096),
        "0",
        Missing("devices have no zones"),
        "zones open at once in a job",
    ),
    opt(Zones, "ignore_zone_limits", Bool, "0", Missing("devices have no zones"), "pass over the device's limits"),
    opt(
        Zones,
        "zone_reset_threshold",
        Decimal(0, 1),
        "0",
        Missing("devices have no zones"),
        "threshold of zone resets",
    ),
    opt(
        Zones,
        "zone_reset_frequency",
        Decimal(0, 1),
        "0",
        Missing("devices have no zones"),
        "frequency of zone resets",
    ),
    opt(
        Ours,
        "iowhy_startup_seeks",
        Int(0, 1000),
        "0",
        Modelled,
        "far reads that each process makes before it starts (loading its program)",
    ),
    opt(Ours, "iowhy_tool_ns", Int(0, 1_000_000_000), "", Modelled, "nanoseconds the tool computes between I/Os"),
    opt(
        Ours,
        "iowhy_process",
        Choice(&["own", "shared"]),
        "",
        Modelled,
        "whether clones are processes of their own, as the elevator sees them; default: as thread says",
    ),
    opt(Ours, "iowhy_cache", Cache, "", Modelled, "page cache at the start: cold, warm or tail:SIZE"),
    opt(
        Ours,
        "iowhy_mapping_cached",
        Bool,
        "0",
        Modelled,
        "the blocks that map files to the disk are cached at the start",
    ),
    opt(
        Ours,
        "iowhy_descriptors",
        Choice(&["shared", "own"]),
        "own",
        Modelled,
        "whether clones share one descriptor per file",
    ),
    opt(
        Ours,
        "iowhy_actor",
        Choice(&["none", "blkid"]),
        "none",
        Modelled,
        "a process that reacts to the close of a device that was written",
    ),
    opt(
        Ours,
        "iowhy_probe_delay",
        TimeRange,
        "5ms-100ms",
        Modelled,
        "time from such a close to the actor's first read",
    ),
    opt(Ours, "iowhy_probe_first_pages", Int(0, 1 << 20), "13", Modelled, "pages that the actor reads at the start"),
    opt(Ours, "iowhy_probe_last_pages", Int(0, 1 << 20), "12", Modelled, "pages that the actor reads at the end"),
    opt(
        Ours,
        "iowhy_open_settle",
        Time(Micros),
        "100ms",
        Modelled,
        "time from the look at the size of a watched device to the start of the threads",
    ),
    opt(
        Ours,
        "iowhy_open_stagger",
        Time(Micros),
        "50",
        Modelled,
        "longest time between the starts of two threads that open a watched device",
    ),
    opt(
        Ours,
        "iowhy_open_time",
        Time(Micros),
        "30",
        Modelled,
        "time that opening a watched device takes, in which another thread can look its name up",
    ),
    opt(
        Ours,
        "iowhy_open_fix",
        Choice(&["none", "serialise", "invalidate", "wait"]),
        "none",
        Modelled,
        "cure for two threads that open a device at once: one lock; dropping its pages where its name is found \
         already; waiting for the actor before the start",
    ),
    opt(
        Ours,
        "iowhy_found_delay",
        Time(Micros),
        "0",
        Modelled,
        "with invalidate: time from finding the name to dropping the pages",
    ),
];

/// The option called `name`, by any of its names.
pub fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|option| option.name == name || option.aliases.contains(&name))
}

/// Every name and alias.
pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|option| std::iter::once(option.name).chain(option.aliases.iter().copied()))
}

/// Whether `name` shares enough letters with `word` to be a slip of it. Each letter that only one of two words has is
/// a slip at least, so that comparing letters first spares most of the slower comparisons.
pub(super) fn similar(word: &str, name: &str) -> bool {
    let typed = word.len();
    let limit = (typed / 3).clamp(2, 6);
    let differ = |name: &[u8]| {
        let mut letters = [0i32; 256];
        word.bytes().for_each(|byte| letters[usize::from(byte.to_ascii_lowercase())] += 1);
        name.iter().for_each(|byte| letters[usize::from(*byte)] -= 1);
        let only = |sign: i32| letters.iter().map(|count| (count * sign).max(0) as usize).sum::<usize>();
        only(1).max(only(-1))
    };
    let name = name.as_bytes();
    let lower = word.to_ascii_lowercase();
    let inside = |long: &[u8], short: &[u8]| short.len() >= 3 && long.windows(short.len()).any(|part| part == short);
    inside(name, lower.as_bytes())
        || inside(lower.as_bytes(), name)
        || differ(name) <= limit
        || differ(&name[..typed.min(name.len())]) <= limit
}

/// The options as text for a terminal, from the table.
pub fn help() -> String {
    let mut text = String::new();
    for (group, title) in Group::ALL {
        text.push_str(&format!("\n{title}:\n"));
        for option in OPTIONS.iter().filter(|option| option.group == *group) {
            let mut line = option.help.to_owned();
            if !option.default.is_empty() && option.kind != Flag {
                line.push_str(&format!(" [{}]", option.default));
            }
            if !option.aliases.is_empty() {
                line.push_str(&format!(" (also {})", option.aliases.join(", ")));
            }
            match option.model {
                Modelled => {}
                Harmless(why) => line.push_str(&format!("; no effect: {why}")),
                Missing(why) => line.push_str(&format!("; not modelled: {why}")),
            }
            text.push_str(&iowhy_text::item(&format!("{}{}", option.name, option.kind.shown()), &line, 31));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_and_no_name_is_used_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} is there twice");
        }
        for option in OPTIONS.iter().filter(|option| !option.default.is_empty()) {
            assert!(option.kind.parse(option.default, 1024).is_ok(), "{}={}", option.name, option.default);
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        let help = help();
        for option in OPTIONS {
            assert!(help.contains(&format!("  {}", option.name)), "{}", option.name);
        }
    }
}
