//! The options of a fio job: one table, from which come the parser, its messages, the warnings and the help.

mod table;

pub use table::OPTIONS;
use table::TIMES;

use super::value::{self, Amount, CacheState, Distribution, Fault, Mode, Parsed, Partial, Service, Share, TimeUnit};
use iowhy_live::engine::ENGINES;
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
    /// Of engines that are not run here.
    Foreign,
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
        (Group::Foreign, "Engines that are not run"),
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
    /// One of [`ENGINES`] that fio does not have; it counts as one that has several calls in flight.
    Ours(&'static str),
    /// One of fio's that is not run here: jobs of it can be read.
    Foreign(&'static str),
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

    /// Engines of fio that are not run here.
    const FOREIGN: &'static [&'static str] = &[
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
        "librpma_apm_client",
        "librpma_apm_server",
        "librpma_gpspm_client",
        "librpma_gpspm_server",
        "ime_psync",
        "ime_psyncv",
        "ime_aio",
        "cpp_null",
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
        let (Engine::Ours(name) | Engine::Foreign(name)) = self else {
            return Engine::ALL.iter().find(|(_, engine)| *engine == self).map_or("psync", |(name, _)| name);
        };
        name
    }

    /// Jobs of it are read and not run.
    pub fn is_foreign(self) -> bool {
        matches!(self, Engine::Foreign(_))
    }

    /// Whether each I/O is over before the next begins, so that the depth is always one.
    pub fn one_at_a_time(self) -> bool {
        !matches!(
            self,
            Engine::Libaio | Engine::IoUring | Engine::Posixaio | Engine::Null | Engine::Ours(_) | Engine::Foreign(_)
        )
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
    // fio's other names of one engine.
    let text = if matches!(text, "aio" | "linuxaio") { "libaio" } else { text };
    if let Some((_, engine)) = Engine::ALL.iter().find(|(name, _)| *name == text) {
        return Ok(*engine);
    }
    if let Some(entry) = iowhy_stack::origin::find(ENGINES, text) {
        return Ok(Engine::Ours(entry.name));
    }
    let names = || Engine::ALL.iter().map(|(name, _)| *name);
    let plain = if text.starts_with("external:") { "external" } else { text };
    if let Some(name) = Engine::FOREIGN.iter().find(|name| **name == plain) {
        return Ok(Engine::Foreign(name));
    }
    Err(Fault {
        message: format!("unknown engine `{text}`"),
        part: None,
        nearest: nearest(text, names()),
        help: Some(format!("one of {}", names().collect::<Vec<_>>().join(", "))),
    })
}

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
            if !option.default.is_empty() && option.kind != Kind::Flag {
                line.push_str(&format!(" [{}]", option.default));
            }
            if !option.aliases.is_empty() {
                line.push_str(&format!(" (also {})", option.aliases.join(", ")));
            }
            match option.model {
                Model::Modelled => {}
                Model::Harmless(why) => line.push_str(&format!("; no effect: {why}")),
                Model::Missing(why) => line.push_str(&format!("; not modelled: {why}")),
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
