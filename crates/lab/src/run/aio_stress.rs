//! `aio-stress`: asynchronous reads and writes of records on several files.
//!
//! ```text
//! files     are dealt to the threads in turn; a thread keeps a pool of depth records for each of its files
//! loop      builds per_iter records for each file of the thread and hands all of them in with one system call; when
//!           the pool is empty it waits until that many are free again
//! stages    write, read, rwrite, rread: one after the other, each with a sync at its end
//! ```
//! So a thread with two files and depth 1 hands in pairs and waits for both of a pair; two threads have a pool each.
//! Source: aio-stress 0.21. The throughput it prints is that of the stage: `STAGE.write_mib_s`, `STAGE.read_mib_s`.
//! Known deviations: the first thread to end does not stop the others, which makes no difference while all have files
//! of the same size and the same number of them; one context (`-c`); the sync is part of the stage's time.

use iowhy_stack::event::Op;
use iowhy_stack::job::{Engine, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::units::{Nanos, SECTOR_BYTES, Sector};
use iowhy_stack::workload::{Distribution, Mix, Order, Service, Stream, Target};

use super::options::{JITTER, Kind, Opt, STARTUP_SEEKS, TOOL_NS, Values, opt};
use super::{Builtin, Shape};
use crate::on_kernel::ANY_DEVICE;
use iowhy_text::diagnose::Problems;

const STAGES: &[&str] = &["write", "read", "rwrite", "rread"];

const OPTIONS: &[Opt] = &[
    opt("files", Kind::Number(1, 4096), "1", "files"),
    opt("threads", Kind::Number(1, 4096), "1", "threads (-t); no more than files"),
    opt("record", Kind::Size(512, 1 << 28), "64k", "bytes of a record (-r)"),
    opt("depth", Kind::Number(1, 65_536), "64", "records in flight for each file (-d)"),
    opt("per_iter", Kind::Number(1, 65_536), "8", "records for each file in one submission (-i)"),
    opt("size", Kind::Size(512, 1 << 50), "1g", "bytes of each file (-s)"),
    opt("direct", Kind::Switch, "1", "past the page cache (-O)"),
    opt("stage", Kind::Words(STAGES), "write", "stages (-o)"),
    opt(
        "place",
        Kind::Choice(&["device", "fs"]),
        "device",
        "files are regions of the bare device, or in a file system",
    ),
    opt("device", Kind::Text, "", "live: the device with the regions [a file iowhy-disk in the directory]"),
    opt("start_mb", Kind::Number(0, 1 << 40), "0", "where the first region of the device begins, MiB"),
    opt("distance_mb", Kind::Number(0, 1 << 40), "0", "from one region to the next, MiB; 0: no gap between them"),
    JITTER,
    opt("fsync", Kind::Switch, "1", "sync after each stage (off: -n)"),
    TOOL_NS,
    STARTUP_SEEKS,
];

pub(super) const ENTRY: Builtin = Builtin {
    name: "aio-stress",
    summary: "asynchronous records on several files, from one or several threads",
    notes: "A thread with several files submits records of all of them with one call. Its throughput is that of a \
            stage: write.write_mib_s, read.read_mib_s. No thread is stopped early when another one ends.",
    options: OPTIONS,
    build,
    program: None,
};

fn build(values: &Values<'_>, _stack: &mut Stack, problems: &mut Problems) -> Option<(Job, Shape)> {
    let before = problems.list.len();
    let (record, size) = (values.number("record"), values.number("size"));
    let (nr_files, direct) = (values.small("files"), values.on("direct"));
    let distance = match values.number("distance_mb") {
        0 => size,
        mb => mb << 20,
    };
    if direct && !record.is_multiple_of(SECTOR_BYTES) {
        values.error("record", "direct I/O needs records of whole sectors of 512 bytes", "record=64k", problems);
    }
    if record > size {
        values.error("record", "a record is larger than a file", "a smaller record= or a larger size=", problems);
    }
    let (jitter, place_is_device) = (values.number("jitter"), values.text("place") == "device");
    if nr_files > 1 && distance < size.saturating_add(jitter) {
        let longest = size.saturating_add(jitter) >> 20;
        let message = format!("regions of {longest} MiB overlap if they are {} MiB apart", distance >> 20);
        values.error("distance_mb", message, "a larger distance_mb=", problems);
    }
    if !place_is_device && values.given("jitter") {
        values.error("jitter", "only regions of a device begin elsewhere", "place=device", problems);
    }
    if problems.list.len() > before {
        return None;
    }
    let files: Vec<FileSpec> = (0..u64::from(nr_files))
        .map(|file| {
            let start = ((values.number("start_mb") << 20) + file * distance) / SECTOR_BYTES;
            let place = if place_is_device { Place::Device { start: Sector(start) } } else { Place::FileSystem };
            FileSpec { bytes: size, place }
        })
        .collect();
    // As the tool: there are never more threads than files, and the depth is at least one submission deep.
    let nr_threads = values.small("threads").min(nr_files);
    let depth = values.small("depth");
    let per_iter = values.small("per_iter").min(depth);
    let stages = values.words("stage");
    let mut threads = Vec::new();
    for (stage, name) in (0..).zip(&stages) {
        for thread in 0..nr_threads {
            let targets: Vec<Target> = (thread..nr_files)
                .step_by(nr_threads as usize)
                .map(|file| Target { file, start: 0, len_bytes: size })
                .collect();
            let share = targets.len() as u32;
            let mix = if matches!(*name, "write" | "rwrite") { Mix::Write } else { Mix::Read };
            let mut stream = Stream::sequential(mix, targets, record as u32);
            stream.service = Service::RoundRobin(per_iter);
            if matches!(*name, "rwrite" | "rread") {
                stream.order =
                    Order::Random { distribution: Distribution::Uniform, once: false, run: 1, random_pct: 100 };
            }
            stream.end_sync = (values.on("fsync") && mix == Mix::Write).then_some(Op::Fsync);
            stream.seed = u64::from(stage) << 32 | u64::from(thread);
            let spec = ThreadSpec {
                job: stage,
                group: stage,
                direct,
                // All threads are of one process, each with files of its own.
                descriptors: thread,
                engine: Engine::Aio {
                    depth: depth.saturating_mul(share),
                    batch_submit: per_iter.saturating_mul(share),
                    batch_complete: per_iter.saturating_mul(share),
                },
                tool: values.given("tool_ns").then(|| Nanos(values.number("tool_ns"))),
                startup_seeks: values.small("startup_seeks"),
                ..ThreadSpec::new(0)
            };
            threads.push(ThreadJob { spec, stream });
        }
    }
    let job = Job { region_jitter: jitter, ..Job::new(Workload::Threads { files, threads }, 1) };
    let mut shape = Shape::of(stages);
    let device = Some(values.text("device")).filter(|name| !name.is_empty()).unwrap_or(ANY_DEVICE);
    let name = |file: u32| if place_is_device { device.to_owned() } else { format!("aio-stress.{file}") };
    shape.files = (0..nr_files).map(name).collect();
    Some((job, shape))
}
