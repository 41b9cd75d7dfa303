//! The trace of a live run, before it is joined: facts of the run itself that its trace does not have.
//!
//! ```text
//! threads    calls of the run's own threads are the workload; those of others are not
//! requests   those before the clock started made the files: the device's figures are of the workload
//! files      a job of one file needs no descriptors to be followed: each of its calls is on that file, even if it
//!            never touches the page cache and the file was opened by a thread that was not traced
//! touches    a thread on a mapping makes no calls; each fault of it becomes one, a read of a page, that lasts until
//!            the
//!            thread faults again. Touches that did not fault are added, so that there are as many as the run counted:
//!            behind the faults, evenly, on the same pages, and without any time
//! ```
//! Known limits: which pages were touched without a fault, and when, is not seen; the last touch of a thread ends with
//! the last completion or fault of the trace; touches that write count as reads.

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use iowhy_stack::event::Op;
use iowhy_stack::readahead::Advice;
use iowhy_stack::trace::{Inode, Record, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES};

use crate::on_kernel::Live;
use crate::recording;
use iowhy_trace::join::Who;

/// Descriptors that stand for mappings count down from here: processes do not have this many files open.
const MAPPINGS: i32 = i32::MAX;

/// The engine whose accesses are faults.
const MMAP: &str = "mmap";

/// Makes the trace of a run ready, and returns the tasks of the workload.
pub(super) fn prepare(trace: &mut Trace, live: &Live) -> Who {
    let tids: Vec<u32> = live.outcome.threads.iter().map(|thread| thread.tid).filter(|tid| *tid != 0).collect();
    let threads = live.plan.threads.iter().zip(&live.outcome.threads);
    let mapping = threads.filter(|(plan, _)| plan.engine == MMAP).map(|(_, thread)| {
        let counts = &thread.totals.counts;
        (thread.tid, counts.reads + counts.writes)
    });
    let mapping: Vec<(u32, u64)> = mapping.collect();
    let started = live.outcome.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let start = Nanos(started.saturating_sub(trace.started_ns));
    trace.records.retain(|record| record.at >= start || record.seen.extent().is_none());
    forget_descriptors(trace, &tids, std::process::id());
    let mut who = Who { pids: tids, ..Who::default() };
    if let [only] = live.plan.files.as_slice() {
        one_file(trace, &only.path, &mut who);
    }
    if !mapping.is_empty() {
        touches(trace, &mapping, &mut who);
    }
    who
}

/// The advice of a run's threads on their files, which the thread that opens the files gives for them, untraced.
pub(super) fn advice(trace: &mut Trace, live: &Live) {
    let mut given = Vec::new();
    for (spec, thread) in live.plan.job.workload.threads().iter().zip(&live.outcome.threads) {
        let number = match spec.advice {
            Some(Advice::Random) => 1,
            Some(Advice::Sequential) => 2,
            _ => continue,
        };
        let of = |record: &Record| match record.seen {
            Seen::CallStart { fd, .. } if record.pid == thread.tid => Some(fd),
            _ => None,
        };
        let descriptors: BTreeSet<i32> = trace.records.iter().filter_map(of).collect();
        given.extend(descriptors.into_iter().map(|fd| {
            let fields = format!("fd={fd} offset=0 len=0 advice={number}");
            let seen = Seen::Other { name: "syscalls:sys_enter_fadvise64".to_owned(), fields };
            Record { at: Nanos(0), cpu: 0, pid: thread.tid, seen }
        }));
    }
    trace.records.splice(0..0, given);
}

/// Descriptors open when the trace began do not matter to the run: its files are opened later, by the thread that asked
/// for the trace, whose activity is not in it. A number that was something else before would be taken for that.
fn forget_descriptors(trace: &mut Trace, tids: &[u32], process: u32) {
    let own = |pid: u32| pid == process || tids.contains(&pid);
    let tells = |name: &str| name.starts_with("iowhy:") || name == "task:task_newtask";
    trace.records.retain(|record| match &record.seen {
        Seen::Other { name, .. } => !(own(record.pid) && tells(name)),
        _ => true,
    });
}

/// The only file of a run: the one that its threads touch, or the one of that name.
fn one_file(trace: &Trace, path: &std::path::Path, who: &mut Who) {
    let own = |record: &&Record| who.pids.contains(&record.pid);
    let touched = trace.records.iter().filter(own).find_map(|record| record.seen.file());
    let named = trace.paths.iter().find(|(_, known)| std::path::Path::new(known) == path).map(|(inode, _)| *inode);
    let Some(file) = touched.or(named).or_else(|| recording::inode_of(path)) else { return };
    who.files.push(file);
    for record in trace.records.iter().filter(own) {
        if let Seen::CallStart { fd, .. } = record.seen
            && !who.descriptors.iter().any(|(pid, known, _)| (*pid, *known) == (record.pid, fd))
        {
            who.descriptors.push((record.pid, fd, file));
        }
    }
}

/// A thread on a mapping, while its touches are made into calls.
struct Toucher {
    pid: u32,
    /// Touches without a fault: all of them, and those that are made so far.
    hits: (u64, u64),
    faults: (u64, u64),
    /// The touch in progress: descriptor and place.
    open: Option<(i32, u64)>,
}

impl Toucher {
    fn begin(&mut self, records: &mut Vec<Record>, at: Nanos, cpu: u32, (fd, offset): (i32, u64)) {
        self.open = Some((fd, offset));
        self.faults.1 += 1;
        let seen = Seen::CallStart { op: Op::Read, fd, offset: Some(offset), len_bytes: PAGE_BYTES };
        records.push(Record { at, cpu, pid: self.pid, seen });
    }

    /// Ends the touch in progress, and adds those behind it that did not fault.
    fn end(&mut self, records: &mut Vec<Record>, at: Nanos, cpu: u32) {
        let Some((fd, offset)) = self.open.take() else { return };
        let of = |seen| Record { at, cpu, pid: self.pid, seen };
        let end = Seen::CallEnd { op: Op::Read, result: PAGE_BYTES as i64 };
        let start = Seen::CallStart { op: Op::Read, fd, offset: Some(offset), len_bytes: PAGE_BYTES };
        records.push(of(end.clone()));
        let due = (u128::from(self.hits.0) * u128::from(self.faults.1) / u128::from(self.faults.0.max(1))) as u64;
        while self.hits.1 < due {
            records.extend([of(start.clone()), of(end.clone())]);
            self.hits.1 += 1;
        }
    }
}

/// Faults of these threads, with their numbers of touches, become calls.
fn touches(trace: &mut Trace, threads: &[(u32, u64)], who: &mut Who) {
    let faults_of = |pid| {
        let is = |record: &&Record| record.pid == pid && matches!(record.seen, Seen::Fault { .. });
        trace.records.iter().filter(is).count() as u64
    };
    let toucher = |(pid, touches): &(u32, u64)| {
        let faults = faults_of(*pid);
        Toucher { pid: *pid, hits: (touches.saturating_sub(faults), 0), faults: (faults, 0), open: None }
    };
    let mut touchers: Vec<Toucher> = threads.iter().map(toucher).collect();
    let ends = |record: &Record| matches!(record.seen, Seen::Complete { .. } | Seen::Fault { .. });
    let last = trace.records.iter().rposition(ends);
    let mut mappings: Vec<Inode> = Vec::new();
    let mut records = Vec::with_capacity(trace.records.len());
    for (nr, record) in std::mem::take(&mut trace.records).into_iter().enumerate() {
        let (at, cpu) = (record.at, record.cpu);
        if let Seen::Fault { file, index } = record.seen
            && let Some(toucher) = touchers.iter_mut().find(|toucher| toucher.pid == record.pid)
        {
            let known = mappings.iter().position(|known| *known == file);
            let place = known.unwrap_or_else(|| {
                mappings.push(file);
                mappings.len() - 1
            });
            let fd = MAPPINGS - place as i32;
            if !who.descriptors.iter().any(|(pid, known, _)| (*pid, *known) == (record.pid, fd)) {
                who.descriptors.push((record.pid, fd, file));
            }
            toucher.end(&mut records, at, cpu);
            toucher.begin(&mut records, at, cpu, (fd, index.saturating_mul(PAGE_BYTES)));
        }
        records.push(record);
        if Some(nr) == last {
            touchers.iter_mut().for_each(|toucher| toucher.end(&mut records, at, cpu));
        }
    }
    trace.records = records;
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::What;
    use iowhy_stack::trace::Dev;

    use super::*;
    use iowhy_trace::join::join;
    use iowhy_why::digest::Digest;

    const FILE: Inode = Inode { dev: Dev::new(7, 1), ino: 12 };

    fn fault(at: u64, pid: u32, index: u64) -> Record {
        Record { at: Nanos(at), cpu: 0, pid, seen: Seen::Fault { file: FILE, index } }
    }

    #[test]
    fn faults_of_the_threads_become_calls_that_last_until_the_next() {
        let records = vec![fault(10, 5, 3), fault(20, 9, 4), fault(30, 5, 8), fault(70, 5, 1)];
        let mut trace = Trace { records, ..Trace::default() };
        let mut who = Who { pids: vec![5], ..Who::default() };
        touches(&mut trace, &[(5, 5)], &mut who);
        let joined = join(&trace, &who);
        let calls: Vec<_> =
            joined.calls.iter().map(|call| (call.start.0, call.end.map(|end| end.0), call.offset)).collect();
        let page = |start, end, page: u64| (start, Some(end), Some(page << 12));
        // Two of five touches did not fault.
        let expected = [page(10, 30, 3), page(30, 70, 8), page(70, 70, 8), page(70, 70, 1), page(70, 70, 1)];
        assert_eq!(calls, expected);
        let digest = Digest::of(&joined.events);
        assert_eq!((digest.operations(), digest.workload.mapped, digest.elapsed), (5, 3, Nanos(60)));
        let faults = joined.events.iter().filter(|event| matches!(event.what, What::Fault { .. }));
        assert_eq!(faults.count(), 4, "those of others stay what they are");
    }

    #[test]
    fn a_descriptor_that_was_something_else_before_the_run_is_not_taken_for_that() {
        let other = |pid, name: &str, fields: &str| {
            let seen = Seen::Other { name: name.to_owned(), fields: fields.to_owned() };
            Record { at: Nanos(1), cpu: 0, pid, seen }
        };
        let call = Seen::CallStart { op: Op::Read, fd: 7, offset: Some(0), len_bytes: 4096 };
        let records = vec![
            other(4, "iowhy:descriptor", "fd=7 kind=pipe pos=0 cloexec=1"),
            other(4, "task:task_newtask", "pid=5 clone_flags=1024"),
            other(9, "iowhy:descriptor", "fd=7 kind=pipe pos=0 cloexec=1"),
            Record { at: Nanos(2), cpu: 0, pid: 5, seen: call },
            Record { at: Nanos(3), cpu: 0, pid: 5, seen: Seen::PageAdd { file: FILE, index: 0, order: 0 } },
        ];
        let mut trace = Trace { records, ..Trace::default() };
        let who = Who { pids: vec![5], ..Who::default() };
        forget_descriptors(&mut trace, &[5], 4);
        assert_eq!((trace.records.len(), join(&trace, &who).calls[0].file), (3, Some(0)));
    }

    #[test]
    fn direct_calls_on_the_only_file_are_on_that_file() {
        let call = |at, seen| Record { at: Nanos(at), cpu: 0, pid: 5, seen };
        let start = Seen::CallStart { op: Op::Write, fd: 7, offset: Some(4096), len_bytes: 4096 };
        let foreign = Record { at: Nanos(1), cpu: 0, pid: 9, seen: Seen::PageAdd { file: FILE, index: 0, order: 0 } };
        let records = vec![foreign, call(2, start), call(3, Seen::CallEnd { op: Op::Write, result: 4096 })];
        let paths = vec![(FILE, "device".to_owned())];
        let trace = Trace { records, paths, ..Trace::default() };
        let mut who = Who { pids: vec![5], ..Who::default() };
        one_file(&trace, std::path::Path::new("device"), &mut who);
        let digest = Digest::of(&join(&trace, &who).events);
        assert_eq!((digest.cache.direct_over_foreign, digest.foreign.pages), (1, 1));
    }
}
