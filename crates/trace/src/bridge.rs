//! Simulated events as the records that a kernel's trace of the same run would hold.
//!
//! There is one device, 8:0. Each call in progress gets the lowest free process from 1000 on, so what one process does
//! is never nested; files are inodes from 1 on of that device, and descriptors from 3 on. Events that belong to no call
//! are done by process 0. Hits and misses become lookups, windows become `RaUnbounded`, because a run knows the
//! decision and not the kernel's arguments. Left out: events that no kernel trace shows (models of the drive), and
//! reasons that a kernel does not record (why read-ahead was closed, why a plug was pulled, journals, throttling).

use iowhy_stack::event::{CallId, Dir, Event, MergeKind, Op, UnplugCause, What};
use iowhy_stack::lifecycle::submitter;
use iowhy_stack::trace::{Dev, Extent, Inode, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{PageIndex, Sector};
use std::collections::HashMap;

/// The process of the first call; others in progress at the same time follow.
const FIRST_PID: u32 = 1000;
/// The only device.
const DEV: Dev = Dev(8 << 20);

#[derive(Default)]
struct Bridge {
    records: Vec<Record>,
    /// Calls in progress: the place is the process.
    slots: Vec<Option<CallId>>,
    /// The last bio of each submitter.
    bios: HashMap<CallId, Extent>,
    requests: HashMap<u32, Extent>,
}

fn inode(file: u32) -> Inode {
    Inode { dev: DEV, ino: u64::from(file) + 1 }
}

fn descriptor(file: u32) -> i32 {
    i32::try_from(file).unwrap_or(i32::MAX - 3) + 3
}

/// An extent of `nr_sectors`; requests of a simulated run are far below 4 GiB.
fn extent(dir: Dir, sector: Sector, nr_sectors: u32) -> Extent {
    let rwbs = match (dir, nr_sectors) {
        (Dir::Read, _) => Rwbs::READ,
        (Dir::Write, 0) => Rwbs::PREFLUSH,
        (Dir::Write, _) => Rwbs::WRITE,
    };
    Extent { dev: DEV, sector, bytes: nr_sectors.saturating_mul(512), rwbs }
}

impl Bridge {
    fn pid(&mut self, call: CallId) -> u32 {
        if call == CallId::NONE {
            return 0;
        }
        let slot = self.slots.iter().position(|slot| *slot == Some(call));
        slot.map_or(0, |slot| FIRST_PID + slot as u32)
    }

    fn begin(&mut self, call: CallId) {
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(call),
            None => self.slots.push(Some(call)),
        }
    }

    /// Folios of whole powers of two that cover the pages.
    fn folios(page: PageIndex, nr_pages: u32, each: &mut dyn FnMut(u64, u8)) {
        let mut index = page.0;
        let end = index + u64::from(nr_pages);
        while index < end {
            let order = (end - index).ilog2().min(index.trailing_zeros()).min(9);
            each(index, order as u8);
            index += 1 << order;
        }
    }

    fn event(&mut self, event: &Event) {
        if let What::CallStart { .. } = event.what {
            self.begin(event.call);
        }
        let pid = self.pid(event.call);
        let mut seen = Vec::new();
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => {
                let offset = matches!(op, Op::Read | Op::Write).then_some(offset);
                seen.push(Seen::CallStart { op, fd: descriptor(file.0), offset, len_bytes: len_bytes.into() });
            }
            What::CallEnd { op, len_bytes, .. } => {
                seen.push(Seen::CallEnd { op, result: len_bytes.into() });
                if let Some(slot) = self.slots.iter_mut().find(|slot| **slot == Some(event.call)) {
                    *slot = None;
                }
            }
            What::Hit { file, page, nr_pages } => {
                let last_index = page.0 + u64::from(nr_pages);
                seen.push(Seen::GetPages { file: inode(file.0), index: page.0, last_index });
            }
            What::Miss { file, page } => {
                seen.push(Seen::GetPages { file: inode(file.0), index: page.0, last_index: page.0 + 1 });
            }
            What::Fault { file, page, .. } => seen.push(Seen::Fault { file: inode(file.0), index: page.0 }),
            What::RaWindow { file, start, nr_pages, async_size, .. } => seen.push(Seen::RaUnbounded {
                file: inode(file.0),
                index: start.0,
                nr_to_read: nr_pages.into(),
                lookahead_size: async_size.into(),
            }),
            What::PageAdd { file, page, nr_pages } => Bridge::folios(page, nr_pages, &mut |index, order| {
                seen.push(Seen::PageAdd { file: inode(file.0), index, order });
            }),
            What::PageRemove { file, page, nr_pages, .. } => Bridge::folios(page, nr_pages, &mut |index, order| {
                seen.push(Seen::PageRemove { file: inode(file.0), index, order });
            }),
            What::BioQueue { dir, sector, nr_sectors, .. } => {
                let bio = extent(dir, sector, nr_sectors);
                self.bios.insert(submitter(event.call), bio);
                seen.push(Seen::Queue(bio));
            }
            What::GetRequest { rq } => {
                let bio = self.bios.remove(&submitter(event.call)).unwrap_or_default();
                self.requests.insert(rq.0, bio);
                seen.push(Seen::GetRequest(bio));
            }
            What::Merge { rq, kind, .. } => {
                let bio = self.bios.remove(&submitter(event.call)).unwrap_or_default();
                let request = self.requests.entry(rq.0).or_insert(bio);
                request.bytes = request.bytes.saturating_add(bio.bytes);
                if kind == MergeKind::Front {
                    request.sector = bio.sector;
                }
                seen.push(if kind == MergeKind::Front { Seen::FrontMerge(bio) } else { Seen::BackMerge(bio) });
            }
            What::MergeRequests { rq, gone } => {
                if let Some(gone) = self.requests.remove(&gone.0) {
                    seen.push(Seen::MergeRequests(gone));
                    if let Some(request) = self.requests.get_mut(&rq.0) {
                        request.bytes = request.bytes.saturating_add(gone.bytes);
                        request.sector = request.sector.min(gone.sector);
                    }
                }
            }
            What::Insert { rq } => seen.extend(self.requests.get(&rq.0).copied().map(Seen::Insert)),
            What::Issue { rq, dir, sector, nr_sectors, .. } => {
                let issued = extent(dir, sector, nr_sectors);
                self.requests.insert(rq.0, issued);
                seen.push(Seen::Issue(issued));
            }
            What::Complete { rq, .. } => {
                if let Some(extent) = self.requests.remove(&rq.0) {
                    seen.push(Seen::Complete { extent, error: 0 });
                }
            }
            What::Plug => seen.push(Seen::Plug { dev: None }),
            What::Unplug { cause, nr_requests } => {
                seen.push(Seen::Unplug { dev: None, nr_requests, timer: cause == UnplugCause::Timer });
            }
            What::RaClosed { .. }
            | What::RaReopened { .. }
            | What::ServiceModel { .. }
            | What::IdleStart
            | What::IdleEnd { .. }
            | What::Writeback { .. }
            | What::Journal { .. }
            | What::Throttle { .. }
            | What::HandOver => {}
        }
        self.records.extend(seen.into_iter().map(|seen| Record { at: event.at, cpu: 0, pid, seen }));
    }
}

/// The records that a kernel's trace would have shown of a simulated run.
pub fn trace_of_events(events: &[Event]) -> Trace {
    let mut bridge = Bridge::default();
    events.iter().for_each(|event| bridge.event(event));
    let names = (0..bridge.slots.len() as u32).map(|slot| (FIRST_PID + slot, "simulated".to_owned())).collect();
    Trace { records: bridge.records, names, ..Trace::default() }
}
