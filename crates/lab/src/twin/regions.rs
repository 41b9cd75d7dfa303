//! Regions of files that a recording shows, and no call tells: without blocks, or mapped executable.
//!
//! ```text
//! hole         a write to a part of a page adds the page and reads nothing: there was nothing to read (behind the end
//!              of a file that grows, or in a hole)
//! executable   the window of a fault begins at its page, and no part of it is asynchronous: kernels from 6.16 on
//!              read so for PROT_EXEC alone, up to the end of the mapping (`do_sync_mmap_readahead`)
//! ```
//! Known limits: pages of an executable mapping before the first that had a window count as mapped for reading.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES};
use iowhy_stack::workload::Target;
use iowhy_trace::join::{CallRecord, Joined, Pages};

/// Calls in progress, by task, as records go by in order.
pub(super) struct InProgress<'a> {
    joined: &'a Joined,
    calls: std::iter::Peekable<std::vec::IntoIter<usize>>,
    /// The last that began, and when the last of all ends.
    of: HashMap<u32, (usize, Nanos)>,
    /// Tasks that read without being in a call.
    outside: HashSet<u32>,
}

impl<'a> InProgress<'a> {
    pub(super) fn new(joined: &'a Joined, calls: &[usize]) -> InProgress<'a> {
        let mut calls = calls.to_vec();
        calls.sort_by_key(|call| joined.calls[*call].start);
        InProgress { joined, calls: calls.into_iter().peekable(), of: HashMap::new(), outside: HashSet::new() }
    }

    /// The call in which a task is, the last that it began; times come in order.
    pub(super) fn at(&mut self, at: Nanos, pid: u32) -> Option<&'a CallRecord> {
        let joined = self.joined;
        while let Some(place) = self.calls.next_if(|place| joined.calls[*place].start <= at) {
            let call = &joined.calls[place];
            let (last, until) = self.of.entry(call.pid).or_insert((place, Nanos::ZERO));
            let end = call.end.unwrap_or(Nanos(u64::MAX));
            (*last, *until) = (place, if call.is_asynchronous() { end.max(*until) } else { end });
        }
        self.of.get(&pid).filter(|(_, until)| *until >= at).map(|(place, _)| &joined.calls[*place])
    }

    /// The record belongs to a synchronous read that no call asks for: execve reads the begin of a program.
    pub(super) fn is_unasked(&mut self, record: &Record) -> bool {
        match record.seen {
            Seen::PageAdd { .. } | Seen::RaOrder { .. } | Seen::RaUnbounded { .. } => {
                self.outside.contains(&record.pid)
            }
            Seen::RaSync { .. } if self.at(record.at, record.pid).is_none() => {
                self.outside.insert(record.pid);
                true
            }
            _ => {
                self.outside.remove(&record.pid);
                false
            }
        }
    }
}

/// Pages that a call of a task writes in part without reading them.
fn written_unread(joined: &Joined, call: &CallRecord, file: u32, pages: std::ops::Range<u64>) -> Vec<u64> {
    let (Some(offset), true) = (call.offset, call.op == Op::Write && call.file == Some(file)) else {
        return Vec::new();
    };
    let end = offset.saturating_add(call.len);
    let in_part = |page: u64| {
        let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        offset < to && end > from && (offset > from || end < to)
    };
    let bios = || call.bios.iter().map(|bio| &joined.bios[*bio as usize]).filter(|bio| bio.extent.rwbs.has(Rwbs::READ));
    let has = |it: &Pages, page| it.file == file && (it.start..it.start + it.nr_pages).contains(&page);
    let reads = |page: u64| bios().any(|bio| bio.pages.is_empty() || bio.pages.iter().any(|it| has(it, page)));
    pages.filter(|page| in_part(*page) && !reads(*page)).collect()
}

/// Pages of a file, from one to before another, as a region.
pub(super) fn region((file, first, end): (u32, u64, u64)) -> Target {
    Target { file, start: first * PAGE_BYTES, len_bytes: (end - first) * PAGE_BYTES }
}

/// Holes and executable parts of the numbered files, as far as the calls show them.
pub(super) fn of(
    trace: &Trace,
    joined: &Joined,
    calls: &[usize],
    numbers: &BTreeMap<u32, u32>,
) -> (Vec<Target>, Vec<Target>) {
    let inodes: HashMap<_, u32> = numbers.keys().map(|known| (joined.files[*known as usize], *known)).collect();
    let mut progress = InProgress::new(joined, calls);
    let mut holes: BTreeSet<(u32, u64)> = BTreeSet::new();
    let mut executable: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut faults: HashMap<u32, (u32, u64)> = HashMap::new();
    for record in &trace.records {
        let known = record.seen.file().and_then(|inode| inodes.get(&inode)).copied();
        match record.seen {
            Seen::CallStart { .. } => drop(faults.remove(&record.pid)),
            Seen::Fault { index, .. } => drop(known.map(|file| faults.insert(record.pid, (file, index)))),
            Seen::RaOrder { index, size, async_size: 0, .. } => {
                if let Some(file) = known
                    && faults.remove(&record.pid) == Some((file, index))
                {
                    let (first, end) = executable.entry(numbers[&file]).or_insert((index, 0));
                    (*first, *end) = ((*first).min(index), (*end).max(index + u64::from(size)));
                }
            }
            Seen::PageAdd { index, order, .. } => {
                let Some(file) = known else { continue };
                let Some(call) = progress.at(record.at, record.pid) else { continue };
                let pages = written_unread(joined, call, file, index..index + (1 << order.min(31)));
                holes.extend(pages.into_iter().map(|page| (numbers[&file], page)));
            }
            _ => {}
        }
    }
    let holes = holes.into_iter().map(|(file, page)| region((file, page, page + 1)));
    let executable = executable.into_iter().map(|(file, (first, end))| region((file, first, end)));
    (holes.collect(), executable.collect())
}

#[cfg(test)]
mod tests {
    use iowhy_stack::trace::{Dev, Inode};
    use iowhy_trace::join::{Who, join};

    use super::*;

    #[test]
    fn windows_that_begin_at_the_fault_are_those_of_executable_mappings() {
        let file = Inode { dev: Dev(8 << 20), ino: 1 };
        // Fault, window: first page, size, asynchronous part.
        for (fault, (index, size, async_size), expected) in
            [(11, (11, 20, 0), Some((11, 20))), (1100, (76, 2048, 512), None), (11, (12, 20, 0), None)]
        {
            let window = Seen::RaOrder { file, index, order: 0, size, async_size, ra_pages: 2048 };
            let seen = [Seen::Fault { file, index: fault }, window, Seen::PageAdd { file, index, order: 0 }];
            let records = (1..).zip(seen).map(|(at, seen)| Record { at: Nanos(at), cpu: 0, pid: 7, seen }).collect();
            let trace = Trace { records, ..Trace::default() };
            let joined = join(&trace, &Who::default());
            let (holes, executable) = of(&trace, &joined, &[], &BTreeMap::from([(0, 0)]));
            let pages = |it: &Target| (it.start / PAGE_BYTES, it.len_bytes / PAGE_BYTES);
            assert_eq!(executable.first().map(pages), expected, "{fault}");
            assert!(holes.is_empty());
        }
    }
}
