//! `paralleldd`: the reader test of mmtests, which is several dd processes on one file or on one each.
//!
//! Each process reads a file from its beginning to its end with calls of 512 bytes. mmtests reports the time of each
//! process; the mean over them is `mean_process_elapsed_s`. Source: mmtests of January 2016
//! (`shellpack_src/src/paralleldd`). Known deviations: calls are folded into one for each page with the CPU cost of all
//! (`fold=0` does not); the file was laid out in one piece; sampling and creation are not part of the run.

use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::workload::{Mix, Stream, Target};

use super::dd::folded;
use super::options::{Kind, Opt, STARTUP_SEEKS, TOOL_NS, Values, opt};
use super::{Builtin, Shape};
use iowhy_text::diagnose::Problems;

const OPTIONS: &[Opt] = &[
    opt("readers", Kind::Number(1, 10_000), "4", "processes"),
    opt("size", Kind::Size(4096, 1 << 50), "687m", "bytes of a file"),
    opt("files", Kind::Choice(&["single", "multi"]), "single", "all read one file, or one each"),
    opt("bs", Kind::Size(1, 1 << 30), "512", "bytes of a call"),
    opt("fold", Kind::Switch, "1", "fold calls smaller than a page into one with the CPU cost of all"),
    TOOL_NS,
    STARTUP_SEEKS,
];

pub(super) const ENTRY: Builtin = Builtin {
    name: "paralleldd",
    summary: "several dd processes that read one file, or one each (mmtests)",
    notes: "The metric of mmtests is mean_process_elapsed_s. Calls of 512 bytes are folded, eight to a page.",
    options: OPTIONS,
    build,
    program: None,
};

fn build(values: &Values<'_>, stack: &mut Stack, _problems: &mut Problems) -> Option<(Job, Shape)> {
    let (readers, bytes) = (values.small("readers"), values.number("size"));
    let multi = values.text("files") == "multi";
    let tool = values.given("tool_ns").then(|| values.number("tool_ns"));
    let (block, tool) = folded(stack, values.number("bs"), tool, values.on("fold"));
    let nr_files = if multi { readers } else { 1 };
    let files = vec![FileSpec { bytes, place: Place::FileSystem }; nr_files as usize];
    let threads = (0..readers)
        .map(|reader| {
            let file = if multi { reader } else { 0 };
            let target = Target { file, start: 0, len_bytes: bytes };
            let startup_seeks = values.small("startup_seeks");
            ThreadJob {
                spec: ThreadSpec { tool, startup_seeks, ..ThreadSpec::new(reader) },
                stream: Stream::sequential(Mix::Read, vec![target], block.min(1 << 30) as u32),
            }
        })
        .collect();
    let mut shape = Shape::of(["dd"]);
    shape.files = (0..nr_files).map(|file| format!("paralleldd.{file}")).collect();
    Some((Job::new(Workload::Threads { files, threads }, 1), shape))
}
