//! The trace of a live run, before it is joined: what the run itself knows and its trace does not.
//!
//! ```text
//! threads    calls of the run's own threads are the workload; whoever else makes some is not
//! files      a job of one file needs no descriptors to be followed: each of its calls is on that file, even if it
//!            never touches the page cache and the file was opened by a thread that was not traced
//! touches    a thread on a mapping makes no calls; each fault of it becomes one, a read of a page, that lasts until the
//!            thread faults again, or to its last event
//! ```
//! Known limits: a touch that does not fault is not seen, so the time to the next fault is longer by those; the last
//! touch of a thread ends with the last completion of the trace.

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Inode, Record, Seen, Trace};
use iowhy_stack::units::PAGE_BYTES;

use crate::backend::Live;
use crate::trace::join::Who;
use crate::trace::record;

/// Descriptors that stand for mappings count down from here: no process has so many files open.
const MAPPINGS: i32 = i32::MAX;

/// The engine whose accesses are faults.
const MMAP: &str = "mmap";

/// Makes the trace of a run ready, and says who is the workload.
pub(super) fn prepare(trace: &mut Trace, live: &Live) -> Who {
    let tids: Vec<u32> = live.outcome.threads.iter().map(|thread| thread.tid).filter(|tid| *tid != 0).collect();
    let on_mapping = |(thread, _): &(&iowhy_live::plan::Thread, &u32)| thread.engine == MMAP;
    let mapping: Vec<u32> = live.plan.threads.iter().zip(&tids).filter(on_mapping).map(|(_, tid)| *tid).collect();
    let mut who = Who { pids: tids, ..Who::default() };
    if let [only] = live.plan.files.as_slice() {
        one_file(trace, &only.path, &mut who);
    }
    if !mapping.is_empty() {
        touches(trace, &mapping, &mut who);
    }
    who
}

/// The only file of a run: the one that its threads touch, or the one of that name.
fn one_file(trace: &Trace, path: &std::path::Path, who: &mut Who) {
    let own = |record: &&Record| who.pids.contains(&record.pid);
    let touched = trace.records.iter().filter(own).find_map(|record| record::file_of(&record.seen));
    let named = trace.paths.iter().find(|(_, known)| std::path::Path::new(known) == path).map(|(inode, _)| *inode);
    let Some(file) = touched.or(named).or_else(|| record::inode_of(path)) else { return };
    who.files.push(file);
    for record in trace.records.iter().filter(own) {
        if let Seen::CallStart { fd, .. } = record.seen
            && !who.descriptors.iter().any(|(pid, known, _)| (*pid, *known) == (record.pid, fd))
        {
            who.descriptors.push((record.pid, fd, file));
        }
    }
}

/// Faults become calls.
fn touches(trace: &mut Trace, tids: &[u32], who: &mut Who) {
    let mut mappings: Vec<Inode> = Vec::new();
    let mut open: Vec<u32> = Vec::new();
    let mut records = Vec::with_capacity(trace.records.len());
    let last = trace.records.iter().rfind(|record| matches!(record.seen, Seen::Complete { .. } | Seen::Fault { .. }));
    let last = last.map(|record| record.at);
    let end = |pid, at, cpu| {
        let seen = Seen::CallEnd { op: Op::Read, result: PAGE_BYTES as i64 };
        Record { at, cpu, pid, seen }
    };
    for record in std::mem::take(&mut trace.records) {
        if let Seen::Fault { file, index } = record.seen
            && tids.contains(&record.pid)
        {
            if open.contains(&record.pid) {
                records.push(end(record.pid, record.at, record.cpu));
            } else {
                open.push(record.pid);
            }
            let nr = mappings.iter().position(|known| *known == file).unwrap_or_else(|| {
                mappings.push(file);
                mappings.len() - 1
            });
            let fd = MAPPINGS - nr as i32;
            if !who.descriptors.iter().any(|(pid, known, _)| (*pid, *known) == (record.pid, fd)) {
                who.descriptors.push((record.pid, fd, file));
            }
            let offset = Some(index.saturating_mul(PAGE_BYTES));
            let seen = Seen::CallStart { op: Op::Read, fd, offset, len_bytes: PAGE_BYTES };
            records.push(Record { at: record.at, cpu: record.cpu, pid: record.pid, seen });
        }
        let at = record.at;
        records.push(record);
        if Some(at) == last && records.last().is_some_and(|record| is_end(&record.seen)) {
            for pid in open.drain(..) {
                records.push(end(pid, at, 0));
            }
        }
    }
    trace.records = records;
}

/// What may end the last touch.
fn is_end(seen: &Seen) -> bool {
    matches!(seen, Seen::Complete { .. } | Seen::Fault { .. })
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::What;
    use iowhy_stack::trace::Dev;
    use iowhy_stack::units::Nanos;

    use super::*;
    use crate::explain::digest::Digest;
    use crate::trace::join::join;

    const FILE: Inode = Inode { dev: Dev::new(7, 1), ino: 12 };

    fn fault(at: u64, pid: u32, index: u64) -> Record {
        Record { at: Nanos(at), cpu: 0, pid, seen: Seen::Fault { file: FILE, index } }
    }

    #[test]
    fn faults_of_the_threads_become_calls_that_last_until_the_next() {
        let records = vec![fault(10, 5, 3), fault(20, 9, 4), fault(30, 5, 8), fault(70, 5, 1)];
        let mut trace = Trace { records, ..Trace::default() };
        let mut who = Who { pids: vec![5], ..Who::default() };
        touches(&mut trace, &[5], &mut who);
        let joined = join(&trace, &who);
        let calls: Vec<_> = joined.calls.iter().map(|call| (call.start.0, call.end.map(|end| end.0), call.offset)).collect();
        let expected = [(10, Some(30), Some(3 << 12)), (30, Some(70), Some(8 << 12)), (70, Some(70), Some(1 << 12))];
        assert_eq!(calls, expected);
        let digest = Digest::of(&joined.events);
        assert_eq!((digest.operations(), digest.workload.mapped, digest.elapsed), (3, 3, Nanos(60)));
        let faults = joined.events.iter().filter(|event| matches!(event.what, What::Fault { .. }));
        assert_eq!(faults.count(), 4, "those of others stay what they are");
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
