//! `bonnie`: the phases of bonnie++ that move blocks, one after the other on the same file.
//!
//! ```text
//! seqout_block   writes the file in chunks
//! rewrite        reads each chunk and writes it back
//! seqin_block    reads the file
//! seeks          several processes read chunks at random places and write every tenth back
//! ```
//! Source: the manual of bonnie++. Metrics `seqout_block_k_s`, `rewrite_k_s`, `seqin_block_k_s` are KiB of the file a
//! second (a chunk that is read and written back counts once, as there), `seeks_per_s` seeks a second. Known
//! deviations: no phases of single characters and of files that are created and deleted; one file rather than pieces of
//! 1 GiB; the CPU column is of the whole run (`system_cpu_pct`), in percent of one CPU. On the running kernel the
//! installed program is run, and its line of CSV read.

use std::path::Path;

use iowhy_stack::event::Op;
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::outcome::JobTotals;
use iowhy_stack::units::{Nanos, PAGE_BYTES};
use iowhy_stack::workload::{Mix, Stream, Target};

use super::options::{Kind, Opt, TOOL_NS, Values, opt};
use super::program::{Figures, Program};
use super::{Builtin, Figure, Shape, machine};
use iowhy_text::diagnose::{Problem, Problems};

const PHASES: &[&str] = &["seqout_block", "rewrite", "seqin_block", "seeks"];

const OPTIONS: &[Opt] = &[
    opt("size", Kind::Size(1 << 20, 1 << 50), "", "bytes of the file (-s) [twice the machine's memory]"),
    opt("chunk", Kind::Size(512, 1 << 20), "8k", "bytes of a call"),
    opt("phases", Kind::Words(PHASES), "seqout_block,rewrite,seqin_block,seeks", "which phases"),
    opt("seeks", Kind::Number(1, 1 << 40), "8000", "seeks in all"),
    opt("seekers", Kind::Number(1, 1000), "3", "processes that seek"),
    opt("fsync", Kind::Switch, "1", "sync at the end of the phases that write"),
    TOOL_NS,
];

pub(super) const ENTRY: Builtin = Builtin {
    name: "bonnie",
    summary: "the block phases of bonnie++: write, rewrite, read, seek",
    notes: "Its metrics are seqout_block_k_s, rewrite_k_s, seqin_block_k_s, seeks_per_s and system_cpu_pct. Live, the \
            installed bonnie++ is run in the directory.",
    options: OPTIONS,
    build,
    program: Some(program),
};

/// The real bonnie++: the whole of it, without the phases of single characters and of small files.
fn program(values: &Values<'_>, dir: &Path, problems: &mut Problems) -> Option<Program> {
    for name in ["phases", "seeks", "seekers", "fsync", "tool_ns"] {
        if values.given(name) {
            let text = format!("`{name}` has no effect on a live run: bonnie++ has its own way");
            problems.push(Problem::warning(text));
        }
    }
    let mut arguments: Vec<String> =
        ["-q", "-f", "-n", "0", "-m", "iowhy", "-d"].iter().map(|word| (*word).to_owned()).collect();
    arguments.push(dir.to_string_lossy().into_owned());
    if values.given("size") {
        // It takes MiB only, and needs an option if the file may be smaller than memory.
        let mib = (values.number("size") >> 20).max(1);
        arguments.extend(["-r".to_owned(), "0".to_owned(), "-s".to_owned()]);
        arguments.push(format!("{mib}:{}", values.number("chunk")));
    }
    // It refuses to run as root without this option.
    arguments.extend(["-u".to_owned(), "root".to_owned()]);
    Some(Program { name: "bonnie++", package: "bonnie++", arguments, import })
}

/// The figures in the line of CSV that bonnie++ 1.9 and later end with.
fn import(text: &str) -> Result<Figures, String> {
    let line = text.lines().rev().find(|line| line.matches(',').count() > 20).ok_or("no line of CSV in it")?;
    let fields: Vec<&str> = line.split(',').collect();
    // Version, name and size come first; a phase that was too quick to be measured is a row of plus signs.
    let at = |nr: usize| fields.get(nr).and_then(|field| field.parse::<f64>().ok());
    let columns = [
        (9, "seqout_per_chr_k_s"),
        (11, "seqout_block_k_s"),
        (13, "rewrite_k_s"),
        (15, "seqin_per_chr_k_s"),
        (17, "seqin_block_k_s"),
        (19, "seeks_per_s"),
    ];
    Ok(columns.iter().filter_map(|(nr, name)| Some(((*name).to_owned(), at(*nr)?))).collect())
}

fn kib_per_s(bytes: u64, totals: &JobTotals) -> f64 {
    let seconds = totals.end.saturating_sub(totals.start).as_secs_f64();
    if seconds > 0.0 { bytes as f64 / 1024.0 / seconds } else { 0.0 }
}

fn build(values: &Values<'_>, stack: &mut Stack, problems: &mut Problems) -> Option<(Job, Shape)> {
    let memory = machine(stack).total_pages * PAGE_BYTES;
    let size = if values.given("size") { values.number("size") } else { 2 * memory };
    let chunk = values.small("chunk");
    if u64::from(chunk) > size {
        values.error("chunk", "a chunk is larger than the file", "chunk=8k", problems);
        return None;
    }
    let phases: Vec<&str> = PHASES.iter().copied().filter(|phase| values.words("phases").contains(phase)).collect();
    let whole = Target { file: 0, start: 0, len_bytes: size };
    let tool = values.given("tool_ns").then(|| Nanos(values.number("tool_ns")));
    let end_sync = values.on("fsync").then_some(Op::Fsync);
    let mut threads = Vec::new();
    let mut shape = Shape::of(phases.iter().copied());
    for (line, phase) in (0..).zip(&phases) {
        let spec = |process: u32| ThreadSpec { job: line, group: line, tool, ..ThreadSpec::new(line * 1000 + process) };
        let sequential = |mix| Stream::sequential(mix, vec![whole], chunk);
        let mut only = |stream| threads.push(ThreadJob { spec: spec(0), stream });
        let of: (String, fn(&JobTotals) -> f64) = match *phase {
            "seqout_block" => {
                only(Stream { end_sync, ..sequential(Mix::Write) });
                (format!("{phase}_k_s"), |totals| kib_per_s(totals.counts.written_bytes, totals))
            }
            "rewrite" => {
                only(Stream { end_sync, ..sequential(Mix::ReadAndWriteBack(100)) });
                (format!("{phase}_k_s"), |totals| kib_per_s(totals.counts.written_bytes, totals))
            }
            "seqin_block" => {
                only(sequential(Mix::Read));
                (format!("{phase}_k_s"), |totals| kib_per_s(totals.counts.read_bytes, totals))
            }
            _ => {
                let seekers = values.small("seekers");
                for seeker in 0..seekers {
                    let calls = (values.number("seeks") / u64::from(seekers)).max(1);
                    let mut stream = Stream::random(Mix::ReadAndWriteBack(10), whole, chunk, calls);
                    stream.seed = u64::from(seeker);
                    threads.push(ThreadJob { spec: spec(seeker), stream });
                }
                ("seeks_per_s".to_owned(), |totals| {
                    let seconds = totals.end.saturating_sub(totals.start).as_secs_f64();
                    if seconds > 0.0 { totals.counts.reads as f64 / seconds } else { 0.0 }
                })
            }
        };
        shape.figures.push(Figure { name: of.0, line: line as usize, of: of.1 });
    }
    let files = vec![FileSpec { bytes: size, place: Place::FileSystem }];
    Some((Job::new(Workload::Threads { files, threads }, 1), shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_csv_of_bonnie_is_read() {
        // The first line is from 2.00a; a phase of rows of plus signs was too quick.
        let quick = "1.98,2.00a,iowhy,1,1795278761,16M,,8192,5,,,+++++,+++,+++++,+++,,,+++++,+++,+++++,+++,,,,,,,,,,,,,\
                     ,,,,,,4067us,67us,,46us,12436us,,,,,,";
        assert_eq!(import(quick), Ok(Vec::new()));
        let slow = "1.98,2.00a,iowhy,1,1795278761,16G,,8192,5,612,99,90210,12,45001,9,1800,98,110003,10,98.5,3,,,,,,\
                    ,,,,,,,,,,,,,4067us,67us,,46us,12436us,,,,,,";
        let figures = import(&format!("some text\n{slow}\n")).expect("figures");
        let expected = [
            ("seqout_per_chr_k_s", 612.0),
            ("seqout_block_k_s", 90210.0),
            ("rewrite_k_s", 45001.0),
            ("seqin_per_chr_k_s", 1800.0),
            ("seqin_block_k_s", 110_003.0),
            ("seeks_per_s", 98.5),
        ];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(import("Can't open file\n").is_err());
    }
}
