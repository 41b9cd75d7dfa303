//! A recording of a program: its files, and what of them can be judged.
//!
//! A recording says of each file what its pages are called, how long it is, what of it was cached before, and the
//! device below ([`crate::recording`]). Everything else is left out, with its reason.

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::trace::{Inode, Seen, Trace};
use iowhy_trace::fields::{self, field};
use iowhy_trace::recorded::{Recorded, What};
use iowhy_trace::settings::Settings;

use super::{Device, File, NotJudged, Queue, Report, check, makes_known_bios, model_of, queue, records};

/// File systems that keep everything in memory.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs"];

/// The files that a recording says something of.
fn files(trace: &Trace) -> Vec<File> {
    let settings = Settings::of(trace);
    let paths: BTreeMap<Inode, &str> = trace.paths.iter().map(|(inode, path)| (*inode, path.as_str())).collect();
    let mut files: BTreeMap<Inode, File> = BTreeMap::new();
    for record in &trace.records {
        let Seen::Other { name, fields } = &record.seen else { continue };
        let number = |key: &str| field(fields, key).and_then(|value| value.parse::<u64>().ok());
        let (Some(dev), Some(ino)) = (fields::device(fields), number("ino")) else { continue };
        let inode = Inode { dev, ino };
        match name.as_str() {
            "iowhy:file" => {
                let disk = field(fields, "disk").unwrap_or_default();
                let no_elevator = settings.get(disk, "scheduler") == Some("none");
                let max_segments = settings.get(disk, "max_segments").and_then(|value| value.parse().ok());
                files.insert(
                    inode,
                    File {
                        inode,
                        device: Device {
                            filesystem: field(fields, "fs").unwrap_or_default().to_owned(),
                            block_bytes: number("block").filter(|bytes| bytes.is_power_of_two()).unwrap_or(0),
                            read_ahead_kb: number("ra_kb").unwrap_or(0),
                            max_sectors_kb: number("io_kb").unwrap_or(0),
                            max_segments: max_segments.filter(|_| no_elevator).unwrap_or(0),
                        },
                        cached: Vec::new(),
                        bytes: number("bytes").unwrap_or(0),
                        holes: number("holes") == Some(1),
                        tail: number("tail").unwrap_or(0),
                        job: paths.get(&inode).map_or_else(|| name_of(inode), |path| (*path).to_owned()),
                    },
                );
            }
            "iowhy:cached" => {
                let runs = field(fields, "runs").unwrap_or_default().split(',');
                let runs = runs.filter_map(|run| {
                    let (first, n) = run.split_once('+')?;
                    let (first, n): (u64, u64) = (first.parse().ok()?, n.parse().ok()?);
                    Some(first..first.checked_add(n).filter(|end| *end <= 1 << 40)?)
                });
                files.entry(inode).and_modify(|file| file.cached.extend(runs));
            }
            _ => {}
        }
    }
    files.into_values().collect()
}

fn name_of(inode: Inode) -> String {
    format!("inode {} on {}:{}", inode.ino, inode.dev.major(), inode.dev.minor())
}

/// Compares everything in a recording that can be compared.
pub fn compare(trace: &Trace) -> Report {
    let settings = Settings::of(trace);
    let (entry, model) = model_of(&trace.kernel, settings.get("machine", "stable").unwrap_or_default());
    let known = files(trace);
    let facts: BTreeSet<Inode> = known.iter().map(|file| file.inode).collect();
    let all = records(trace, &known);
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut leave = |what: String, why: &str| left.entry(why.to_owned()).or_default().push(what);
    let mut jobs = Vec::new();
    for recorded in &all {
        let fs = recorded.filesystem.as_str();
        let name = recorded.job.clone();
        if IN_MEMORY.contains(&fs) {
            leave(name, &format!("{fs} has its files in memory: nothing is read ahead or from a disk"));
            continue;
        }
        if recorded.lines.iter().any(|line| matches!(line.what, What::Write { .. })) {
            // A file that grows has another end at every question.
            leave(name, "written meanwhile: the end moves, and pages are added that no read asked for");
            continue;
        }
        let checked = check(entry, recorded);
        if checked.has_evidence() {
            jobs.push(checked);
        } else {
            leave(name, "all that was read of it was in the page cache: nothing was decided");
        }
    }
    let has = |wanted: fn(&Seen) -> bool| trace.records.iter().any(|record| wanted(&record.seen));
    let questions = |seen: &Seen| matches!(seen, Seen::RaSync { .. } | Seen::RaAsync { .. } | Seen::RaOrder { .. });
    if !has(|seen| matches!(seen, Seen::GetPages { .. })) && has(questions) {
        leave("reads past the page cache".to_owned(), "the recording has no look-ups: --level full has them");
    }
    let mut strange: BTreeSet<Inode> = BTreeSet::new();
    let files = trace.records.iter().filter(|record| questions(&record.seen)).filter_map(|record| record.seen.file());
    strange.extend(files.filter(|file| !facts.contains(file)));
    for inode in strange {
        leave(name_of(inode), "its size is not in the recording: it was removed, or its name was never seen");
    }
    let workload = queue::workload(trace);
    let mut disks = Vec::new();
    for (number, name) in settings.device_names() {
        let get = |key: &str| settings.get(&name, key);
        let number_of = |key: &str| get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
        let queue = Queue {
            name: name.clone(),
            number,
            scheduler: get("scheduler").unwrap_or("unknown").to_owned(),
            max_sectors_kb: number_of("max_sectors_kb"),
            max_segments: number_of("max_segments"),
            physical_block_bytes: number_of("physical_block_size"),
            nomerges: number_of("nomerges"),
            no_gaps: number_of("virt_boundary_mask") > 0,
        };
        match queue::compare(trace, &queue, &workload) {
            Some(checked) => disks.extend(Some(checked).filter(|checked| checked.requests.of > 0)),
            None => leave(
                format!("requests of {name}"),
                &format!("no rules of the scheduler {} are known", queue.scheduler),
            ),
        }
    }
    if !disks.is_empty() {
        leave("order of requests".to_owned(), "only their places and sizes are predicted");
    }
    let mut not_judged = left_out(&all);
    not_judged.extend(left.into_iter().map(|(why, mut all)| {
        let n = all.len() as u64;
        let first = all.swap_remove(0);
        NotJudged { what: if n == 1 { first } else { format!("{n} of them, for example {first}") }, why }
    }));
    Report { kernel: trace.kernel.clone(), model, jobs, disks, skipped: Vec::new(), not_judged, lost: trace.lost }
}

/// Parts of records that are not compared.
pub(super) fn left_out(all: &[Recorded]) -> Vec<NotJudged> {
    let unknown = all.iter().filter(|recorded| !makes_known_bios(recorded));
    let others: BTreeSet<&str> = unknown.map(|recorded| recorded.filesystem.as_str()).collect();
    let others = others.into_iter().filter(|fs| !IN_MEMORY.contains(fs));
    let why = "only those of ext4, XFS and erofs without compression are modelled";
    others.map(|fs| NotJudged { what: format!("bios of {fs}"), why: why.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::Op;
    use iowhy_stack::trace::{Dev, RaInput, Record};
    use iowhy_stack::units::Nanos;

    use super::*;

    /// Of a file of 8 KiB that a task reads: `fs` and `more` facts of it, and what else is seen.
    fn compared(fs: &str, more: &str, others: &[Seen]) -> Report {
        let file = Inode { dev: Dev::new(0, 40), ino: 7 };
        let note = |name: &str, fields: String| Seen::Other { name: name.to_owned(), fields };
        let input = RaInput { req_count: 2, ra_pages: 32, prev_pos: -1, ..RaInput::default() };
        let seen = [
            note("syscalls:sys_enter_openat", "flags=0".to_owned()),
            note("syscalls:sys_exit_openat", "ret=3".to_owned()),
            note("iowhy:opened", "fd=3 kind=file dev=0,40 ino=7".to_owned()),
            Seen::CallStart { op: Op::Read, fd: 3, offset: Some(0), len_bytes: 8192 },
        ];
        let asked = [
            Seen::RaSync { file, input },
            Seen::RaOrder { file, index: 0, order: 0, size: 4, async_size: 2, ra_pages: 32 },
            Seen::PageAdd { file, index: 0, order: 0 },
            Seen::PageAdd { file, index: 1, order: 0 },
        ];
        let end = [
            Seen::GetPages { file, index: 0, last_index: 1 },
            Seen::CallEnd { op: Op::Read, result: 8192 },
            note("iowhy:file", format!("dev=0,40 ino=7 bytes=8192 block=4096 fs={fs} ra_kb=128 io_kb=128")),
        ];
        let facts = (!more.is_empty()).then(|| note("iowhy:cached", format!("dev=0,40 ino=7 runs={more}")));
        let asked = if facts.is_some() { &[][..] } else { &asked[..] };
        let all = seen.iter().chain(asked).chain(&end).chain(&facts).chain(others).cloned();
        let records = all.zip(0..).map(|(seen, nr)| Record { at: Nanos(nr), cpu: 0, pid: 1, seen }).collect();
        compare(&Trace { kernel: "6.18.1".to_owned(), records, ..Trace::default() })
    }

    #[test]
    fn what_can_be_judged_is_and_the_rest_has_a_reason() {
        let strange = Inode { dev: Dev::new(0, 40), ino: 8 };
        let question = Seen::RaSync { file: strange, input: RaInput::default() };
        let written = [Seen::CallStart { op: Op::Write, fd: 3, offset: None, len_bytes: 1 }];
        // Decisions judged, and what is said of the rest.
        let rows: &[(&str, &str, &[Seen], u64, &str)] = &[
            ("btrfs", "", &[], 1, "bios of btrfs: only those"),
            ("tmpfs", "", &[], 0, "tmpfs has its files in memory"),
            ("ext4", "0+2", &[], 0, "in the page cache: nothing was decided"),
            ("btrfs", "", &[question], 1, "inode 8 on 0:40: its size is not in the recording"),
            ("btrfs", "", &written, 0, "written meanwhile"),
        ];
        for (fs, more, others, decisions, reason) in rows {
            let report = compared(fs, more, others);
            let of: u64 = report.jobs.iter().map(|job| job.counted().decisions).sum();
            let text = report.text(|line| line.to_owned());
            assert_eq!((of, report.as_expected()), (*decisions, *decisions > 0), "{fs}: {text}");
            assert!(text.contains(reason), "{reason}: {text}");
            assert_eq!(text.contains("nothing was judged"), *decisions == 0, "{text}");
            assert_eq!(text.contains("everything is as expected"), *decisions > 0, "{text}");
        }
    }

    #[test]
    fn nothing_is_never_as_expected() {
        let report = compare(&Trace { kernel: "6.18.1".to_owned(), ..Trace::default() });
        assert!(!report.as_expected() && !report.has_evidence());
        assert!(report.text(|line| line.to_owned()).contains("nothing was judged"));
    }
}
