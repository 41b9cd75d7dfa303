//! `dd`: one or several processes that read or write one behind the other.
//!
//! ```text
//! if=FILE            reads it; of= is /dev/null
//! of=FILE            writes it; if= is /dev/zero
//! /dev/NAME          the bare device: each process has a region (a partition) of its own, `distance` behind the last
//! any other name     a file in the file system; several processes have one each
//! ```
//! Source: the manual of GNU dd; the writers of 2010 are one dd for each partition. Known deviations: with `fold=1`
//! (the default) buffered calls smaller than a page are folded into one call of a page whose CPU cost is that of all of
//! them, which saves time and changes nothing that is visible below the page cache; dd's other system call (on
//! /dev/null or /dev/zero) is part of the program's own work; files exist and have their blocks before the run.

use iowhy_stack::event::Op;
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES, Sector};
use iowhy_stack::workload::{Mix, Stream, Target, Think};

use super::options::{JITTER, Kind, Opt, STARTUP_SEEKS, TOOL_NS, Values, opt};
use super::{Builtin, Shape, machine};
use iowhy_text::diagnose::Problems;

const FLAGS: Kind = Kind::Words(&["direct", "sync", "dsync"]);

const OPTIONS: &[Opt] = &[
    opt("if", Kind::Text, "", "source: a file, or a device /dev/NAME"),
    opt("of", Kind::Text, "", "target: a file, or a device /dev/NAME"),
    opt("bs", Kind::Size(1, 1 << 30), "512", "bytes of a call"),
    opt("count", Kind::Number(1, 1 << 50), "", "calls"),
    opt("size", Kind::Size(1, 1 << 60), "", "bytes in all, instead of count"),
    opt("iflag", FLAGS, "", "how the input is opened"),
    opt("oflag", FLAGS, "", "how the output is opened"),
    opt("conv", Kind::Words(&["fsync", "fdatasync", "notrunc"]), "", "a sync at the end"),
    opt("skip", Kind::Number(0, 1 << 50), "0", "blocks of the input to pass over"),
    opt("seek", Kind::Number(0, 1 << 50), "0", "blocks of the output to pass over"),
    opt("writers", Kind::Number(1, 10_000), "1", "processes, each with a region or file of its own"),
    opt("start", Kind::Size(0, 1 << 60), "0", "where the first region of a device begins"),
    opt("distance", Kind::Size(512, 1 << 60), "2g", "from the start of one region of a device to the next"),
    JITTER,
    opt("fold", Kind::Switch, "1", "fold calls smaller than a page into one with the CPU cost of all"),
    TOOL_NS,
    opt("pause_us", Kind::Number(0, 10_000_000), "0", "microseconds each process is held up after pause_calls calls"),
    opt("pause_calls", Kind::Number(1, 1 << 31), "64", "calls from one such pause to the next"),
    STARTUP_SEEKS,
];

pub(super) const ENTRY: Builtin = Builtin {
    name: "dd",
    summary: "processes that read or write a file or device from one end to the other",
    notes: "if= alone reads, of= alone writes. Buffered calls smaller than a page are folded (fold=0 does not): the \
            CPU cost is that of all of them.",
    options: OPTIONS,
    build,
    program: None,
};

/// Whether a name is that of a bare device.
pub(super) fn is_device(name: &str) -> bool {
    name.starts_with("/dev/")
}

/// CPU cost and size of a call of `block` bytes, folded to a page if asked for.
pub(super) fn folded(stack: &Stack, block: u64, tool: Option<u64>, fold: bool) -> (u64, Option<Nanos>) {
    let calls = if fold && block < PAGE_BYTES && PAGE_BYTES.is_multiple_of(block) { PAGE_BYTES / block } else { 1 };
    if calls == 1 {
        return (block, tool.map(Nanos));
    }
    let machine = machine(stack);
    let each = tool.map_or(machine.tool, Nanos);
    // The folded call enters the kernel and looks its page up once by itself; the others' share is added here.
    (PAGE_BYTES, Some(each * calls + (machine.syscall + machine.page_lookup) * (calls - 1)))
}

fn build(values: &Values<'_>, stack: &mut Stack, problems: &mut Problems) -> Option<(Job, Shape)> {
    let before = problems.list.len();
    let input = Some(values.text("if")).filter(|name| !matches!(*name, "" | "/dev/zero"));
    let output = Some(values.text("of")).filter(|name| !matches!(*name, "" | "/dev/null"));
    let (name, write) = match (input, output) {
        (Some(name), None) => (name, false),
        (None, Some(name)) => (name, true),
        (Some(_), Some(_)) => {
            let message = "dd reads or writes here: a copy is two jobs";
            values.error("of", message, "of=/dev/null to read, if=/dev/zero to write", problems);
            return None;
        }
        (None, None) => {
            values.error("of", "dd has nothing to read or write", "if=FILE to read, of=FILE to write", problems);
            return None;
        }
    };
    let flags = values.words(if write { "oflag" } else { "iflag" });
    for (flag, other) in [("oflag", !write), ("iflag", write)] {
        if other && values.given(flag) {
            let message = format!("`{flag}` has nothing to do with what is {}", if write { "written" } else { "read" });
            values.error(flag, message, if write { "oflag=" } else { "iflag=" }, problems);
        }
    }
    let direct = flags.contains(&"direct");
    let block = values.number("bs");
    if direct && !block.is_multiple_of(SECTOR_BYTES) {
        values.error("bs", "direct I/O needs blocks of whole sectors of 512 bytes", "bs=4k", problems);
    }
    let bytes = match (values.given("count"), values.given("size")) {
        (true, true) => {
            values.error("size", "`count` and `size` exclude each other", "keep one of them", problems);
            0
        }
        (true, false) => values.number("count").saturating_mul(block),
        (false, true) => values.number("size"),
        (false, false) => {
            values.error("count", "dd does not know when to end", "count=N or size=SIZE", problems);
            0
        }
    };
    let from = values.number(if write { "seek" } else { "skip" }).saturating_mul(block);
    let (device, writers) = (is_device(name), values.small("writers"));
    let (start, distance) = (values.number("start"), values.number("distance"));
    let file_bytes = from.saturating_add(bytes);
    let jitter = values.number("jitter");
    if device && writers > 1 && file_bytes.saturating_add(jitter) > distance {
        let longest = file_bytes.saturating_add(jitter);
        let message = format!("regions of {longest} bytes overlap if they are {distance} bytes apart");
        values.error("distance", message, "a larger distance=", problems);
    }
    if !device && values.given("jitter") {
        values.error("jitter", "only regions of a device begin elsewhere", "if= or of=/dev/NAME", problems);
    }
    if file_bytes > 1 << 60 {
        values.error("count", "that is more than any device holds", "a smaller count=", problems);
    }
    if problems.list.len() > before {
        return None;
    }
    let tool = values.given("tool_ns").then(|| values.number("tool_ns"));
    let (block, tool) = folded(stack, block, tool, values.on("fold") && !direct);
    // After as many bytes if calls are folded.
    let pause_calls = (values.number("pause_calls") * values.number("bs") / block).max(1) as u32;
    let think = Some(Nanos::from_us(values.number("pause_us"))).filter(|time| *time > Nanos::ZERO).map(|time| Think {
        calls: pause_calls,
        time,
        spin: Nanos::ZERO,
        io_time: Nanos::ZERO,
    });
    let mut files = Vec::new();
    let mut threads = Vec::new();
    for writer in 0..writers {
        let sector = (start + u64::from(writer) * distance) / SECTOR_BYTES;
        let place = if device { Place::Device { start: Sector(sector) } } else { Place::FileSystem };
        files.push(FileSpec { bytes: file_bytes, place });
        let target = Target { file: writer, start: from, len_bytes: bytes };
        let mix = if write { Mix::Write } else { Mix::Read };
        let mut stream = Stream::sequential(mix, vec![target], block.min(1 << 30) as u32);
        stream.seed = u64::from(writer);
        stream.think = think;
        let sync = |words: &[&str], [all, data]: [&str; 2]| match (words.contains(&all), words.contains(&data)) {
            (true, _) => Some(Op::Fsync),
            (false, true) => Some(Op::Fdatasync),
            (false, false) => None,
        };
        stream.synchronous_writes = sync(&flags, ["sync", "dsync"]);
        stream.end_sync = sync(&values.words("conv"), ["fsync", "fdatasync"]);
        let startup_seeks = values.small("startup_seeks");
        threads.push(ThreadJob { spec: ThreadSpec { direct, tool, startup_seeks, ..ThreadSpec::new(writer) }, stream });
    }
    let job = Job { region_jitter: jitter, ..Job::new(Workload::Threads { files, threads }, 1) };
    let mut shape = Shape::of(["dd"]);
    shape.files = match writers {
        1 => vec![name.to_owned()],
        _ if device => vec![name.to_owned(); writers as usize],
        _ => (0..writers).map(|writer| format!("{name}.{writer}")).collect(),
    };
    Some((job, shape))
}
