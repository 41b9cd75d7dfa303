//! fio's list of calls ([`iowhy_fio::iolog`]) as a trace, and a trace as such a list.

use std::collections::BTreeMap;
use std::io::{self, Write};

use iowhy_fio::iolog::{Action, Entry, Iolog, Version, can_hold};
use iowhy_fio::job::Replay;
use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Inode, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES};
use iowhy_text::diagnose::Problems;

use super::{Format, Reading, Writing};
use crate::join::{Way, Who, join};

/// The form.
pub const FORMAT: Format = Format {
    name: "iolog",
    summary: "fio's list of calls, version 3",
    extensions: &["iolog"],
    detect,
    read: Reading::One(read),
    write: Writing::One(|trace, mut out| write(trace, Version::Three, &mut out)),
};

/// The form.
pub const FORMAT_2: Format = Format {
    name: "iolog2",
    summary: "fio's list of calls, version 2",
    extensions: &[],
    detect: |_, _| false,
    read: Reading::Never,
    write: Writing::One(|trace, mut out| write(trace, Version::Two, &mut out)),
};

/// Whether a file of this name that begins with these bytes is a log.
pub(super) fn detect(_name: &str, bytes: &[u8]) -> bool {
    [Version::Two, Version::Three].iter().any(|version| bytes.starts_with(version.header().as_bytes()))
}

/// Reads a log as the trace of one thread's calls: each ends when it begins, for a log has no durations. Files have
/// made-up inodes 1, 2, .. of no device.
pub(super) fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let text = super::text_of(name, bytes, problems);
    let log = Iolog::parse(name, text, None, problems)?;
    let options = Replay {
        logs: Vec::new(),
        no_stall: false,
        redirect: None,
        scale: 1,
        align: 0,
        time_scale: 100,
        skip: Vec::new(),
    };
    let replayed = log.replay(&options);
    let mut trace = Trace::default();
    let inode = |file: u32| Inode { dev: Dev(0), ino: u64::from(file) + 1 };
    for (file, name) in (0..).zip(&log.files) {
        trace.paths.push((inode(file), name.clone()));
    }
    let mut last = Nanos::ZERO;
    for step in replayed.calls.iter().filter(|step| step.call.op != Op::Trim) {
        let call = step.call;
        last = last.max(step.at);
        let mut add = |seen| trace.records.push(Record { at: last, cpu: 0, pid: 1, seen });
        // The descriptor is the number of the file; what the call looks up tells which file that is.
        let fd = i32::try_from(call.file).unwrap_or(i32::MAX);
        let len_bytes = u64::from(call.len_bytes);
        add(Seen::CallStart { op: call.op, fd, offset: Some(call.offset), len_bytes });
        let page = |byte: u64| byte / PAGE_BYTES;
        let last_index = page(call.offset.saturating_add(len_bytes).saturating_add(PAGE_BYTES - 1));
        add(Seen::GetPages { file: inode(call.file), index: page(call.offset), last_index });
        add(Seen::CallEnd { op: call.op, result: i64::from(call.len_bytes) });
    }
    trace.names.push((1, "iolog".to_owned()));
    Some(trace)
}

/// Writes the calls of a trace as a log; if it has none, its bios, with each device as a file. Calls are as long as the
/// data that they moved; calls without data are left out, because fio takes the end of a file for an I/O error. The
/// touch of a mapping needs one byte of its page, and the file may not have the others.
///
/// # Errors
/// The error of `out`.
pub(super) fn write(trace: &Trace, version: Version, out: &mut impl Write) -> io::Result<()> {
    let joined = join(trace, &Who::default());
    let us = |at: Nanos| if version == Version::Three { at.0 / 1000 } else { 0 };
    let mut log = Iolog { version, files: Vec::new(), entries: Vec::new() };
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    let mut entries = Vec::new();
    let mut file = |log: &mut Iolog, name: String| {
        *numbers.entry(name.clone()).or_insert_with(|| {
            log.files.push(name);
            log.files.len() as u32 - 1
        })
    };
    for call in &joined.calls {
        let data = matches!(call.op, Op::Read | Op::Write | Op::Trim);
        let (Some(number), Some(offset)) = (call.file, call.offset.or((!data).then_some(0))) else { continue };
        let inode = joined.files[number as usize];
        let known = trace.paths.iter().find(|(file, _)| *file == inode).map(|(_, path)| path.clone());
        let name = known.filter(|path| can_hold(path));
        let name = name.unwrap_or_else(|| format!("inode-{}-{}-{}", inode.dev.major(), inode.dev.minor(), inode.ino));
        let action = match call.op {
            Op::Read => Action::Read,
            Op::Write => Action::Write,
            Op::Fsync => Action::Sync,
            Op::Fdatasync => Action::Datasync,
            Op::Trim => Action::Trim,
        };
        let moved = call.moved().min(call.len);
        if data && moved == 0 {
            continue;
        }
        let len_bytes = match call.beside {
            _ if !data => 0,
            Some(Way::Fault) => 1,
            _ => u32::try_from(moved).unwrap_or(u32::MAX),
        };
        let file = file(&mut log, name);
        let offset = if data { offset } else { 0 };
        entries.push(Entry { at_us: us(call.start), file, action, offset, len_bytes });
    }
    if joined.calls.is_empty() {
        for bio in joined.bios.iter().filter(|bio| bio.extent.bytes > 0) {
            let extent = bio.extent;
            let action = match (extent.rwbs.has(Rwbs::DISCARD), extent.rwbs.has(Rwbs::WRITE)) {
                (true, _) => Action::Trim,
                (false, true) => Action::Write,
                (false, false) => Action::Read,
            };
            let file = file(&mut log, format!("/dev/block/{}:{}", extent.dev.major(), extent.dev.minor()));
            let offset = extent.sector.0.saturating_mul(SECTOR_BYTES);
            entries.push(Entry { at_us: us(bio.at), file, action, offset, len_bytes: extent.bytes });
        }
    }
    let begin = entries.first().map_or(0, |entry: &Entry| entry.at_us);
    let end = entries.last().map_or(0, |entry| entry.at_us);
    let of_files = |at_us: u64, action: Action| {
        (0..log.files.len() as u32).map(move |file| Entry { at_us, file, action, offset: 0, len_bytes: 0 })
    };
    let mut all: Vec<Entry> = of_files(begin, Action::Add).chain(of_files(begin, Action::Open)).collect();
    all.append(&mut entries);
    all.extend(of_files(end, Action::Close));
    Iolog { entries: all, ..log }.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_as_long_as_what_they_moved() {
        let file = Inode { dev: Dev::new(8, 1), ino: 7 };
        let mut trace = Trace { paths: vec![(file, "/data".to_owned())], ..Trace::default() };
        // The end of a file of 6000 bytes, and a call that fails.
        for (nr, (offset, result)) in [(0, 4096), (4096, 1904), (6000, 0), (0, -5)].into_iter().enumerate() {
            let mut add = |us: u64, seen| {
                let at = Nanos((100 * nr as u64 + us) * 1000);
                trace.records.push(Record { at, cpu: 0, pid: 1, seen });
            };
            add(0, Seen::CallStart { op: Op::Read, fd: 3, offset: Some(offset), len_bytes: 4096 });
            let index = offset / PAGE_BYTES;
            add(1, Seen::GetPages { file, index, last_index: index + 1 });
            add(2, Seen::CallEnd { op: Op::Read, result });
        }
        let mut out = Vec::new();
        write(&trace, Version::Three, &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let reads: Vec<&str> = text.lines().filter(|line| line.contains(" read ")).collect();
        assert_eq!(reads, ["0 /data read 0 4096", "100 /data read 4096 1904"]);
    }
}
