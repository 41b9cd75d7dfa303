//! A recording of a program: its files, and what of them can be judged.
//!
//! A recording says of each file what its pages are called, how long it is, what of it was cached before, and the
//! device below ([`crate::recording`]). Everything else is left out, with its reason.

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::trace::{Dev, Inode, Seen, Trace};
use iowhy_trace::fields::{self, field};
use iowhy_trace::recorded::{Recorded, What};
use iowhy_trace::settings::Settings;

use super::{Checked, Device, File, NotJudged, Report, check, makes_known_bios, model_of, records};
use iowhy_text as text;

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
                let opened = field(fields, "opened_dev").and_then(|text| text.split_once(','));
                let opened = opened.and_then(|(major, minor)| {
                    Some(Inode { dev: Dev::new(major.parse().ok()?, minor.parse().ok()?), ino: number("opened_ino")? })
                });
                let disk = field(fields, "disk").unwrap_or_default();
                let no_elevator = settings.get(disk, "scheduler") == Some("none");
                let max_segments = settings.get(disk, "max_segments").and_then(|value| value.parse().ok());
                files.insert(
                    inode,
                    File {
                        inode,
                        opened: opened.unwrap_or(inode),
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
    let (entry, exact) = model_of(&trace.kernel);
    let known = files(trace);
    let facts: BTreeSet<Inode> = known.iter().map(|file| file.inode).collect();
    let all = records(trace, &known);
    let mut not_judged = left_out(&all);
    let mut leave = |what: String, why: &str| not_judged.push(NotJudged { what, why: why.to_owned() });
    let mut judged = Vec::new();
    for recorded in all {
        let fs = recorded.filesystem.as_str();
        if IN_MEMORY.contains(&fs) {
            leave(recorded.job, &format!("{fs} has its files in memory: nothing is read ahead or from a disk"));
        } else if recorded.lines.iter().any(|line| matches!(line.what, What::Write { .. })) {
            // A file that grows has another end at every question.
            leave(recorded.job, "it was written meanwhile: its end moves, and pages are added that no read asked for");
        } else {
            judged.push(recorded);
        }
    }
    let has = |wanted: fn(&Seen) -> bool| trace.records.iter().any(|record| wanted(&record.seen));
    let questions = |seen: &Seen| matches!(seen, Seen::RaSync { .. } | Seen::RaAsync { .. } | Seen::RaOrder { .. });
    if !has(|seen| matches!(seen, Seen::GetPages { .. })) && has(questions) {
        leave("reads past the page cache".to_owned(), "the recording has no look-ups: --level full has them");
    }
    let mut strange: BTreeMap<Inode, u64> = BTreeMap::new();
    for record in trace.records.iter().filter(|record| questions(&record.seen)) {
        let others = record.seen.file().filter(|file| !facts.contains(file));
        others.into_iter().for_each(|file| *strange.entry(file).or_default() += 1);
    }
    for (inode, n) in strange {
        let why = format!("{}; its size is not in the recording", text::count(n, "decision", "decisions"));
        leave(name_of(inode), &format!("{why}: it was removed, or its name was never seen"));
    }
    let jobs: Vec<Checked> = judged.iter().map(|recorded| check(entry, recorded)).filter(Checked::has_evidence).collect();
    Report {
        kernel: trace.kernel.clone(),
        model: entry.name,
        exact,
        jobs,
        skipped: Vec::new(),
        not_judged,
        lost: trace.lost,
    }
}

/// Parts of records that are not compared.
pub(super) fn left_out(all: &[Recorded]) -> Vec<NotJudged> {
    let bios = all.iter().filter(|recorded| recorded.lines.iter().any(|line| line.what.bio().is_some()));
    let others: BTreeSet<&str> =
        bios.map(|recorded| recorded.filesystem.as_str()).filter(|fs| !makes_known_bios(fs)).collect();
    let why = "only those of ext4, XFS and erofs are modelled";
    others.into_iter().map(|fs| NotJudged { what: format!("bios of {fs}"), why: why.to_owned() }).collect()
}
