//! The events of a simulated run as a table: one row each, in the order in which they happened.
//!
//! Every kind of event has the columns it needs, and nothing in the others; nothing of an event is lost.
//!
//! ```text
//! t_ns       simulated time from the start of the run
//! call       the call it happened for; 0 for daemons
//! kind       call_start, call_end, hit, miss, fault, window, ra_closed, ra_reopened, page_add, page_remove, bio,
//!            get_request, merge, merge_requests, plug, unplug, insert, issue, complete, service_model, idle_start,
//!            idle_end, writeback, journal, throttle
//! op         of a call: read, write, fsync, fdatasync; of a bio or request: read, write
//! detail     why or how: kind of window, cause of a removal, of an unplug, ..; what a bio carries; step of the
//!            journal; minor or major fault; media or cache of a disk
//! file       number of the file
//! page       first page        sector     first sector       offset     first byte
//! count      pages, sectors, requests or blocks              len_bytes  bytes of a call
//! rq         request           gone       the one that is merged away
//! order      largest folio order of a window                 async_size its pages ahead of the next trigger
//! in_flight  requests at the device                          tid        transaction of the journal
//! seek_us, rotation_us         how a disk spent the time; no kernel can see this
//! ```

use iowhy_stack::event::{
    Content, Dir, Event, EventSink, Eviction, IdleEnd, JournalStep, MergeKind, Op, RaClose, RaKind, UnplugCause, What,
};

use super::data::{Draft, Item, Type};
use super::{DataFile, Kind, Sampler, Store, StoreError};

/// Columns of the table.
pub(super) const COLUMNS: &[(&str, Type)] = &[
    ("t_ns", Type::Number),
    ("call", Type::Number),
    ("kind", Type::MaybeWord),
    ("op", Type::MaybeWord),
    ("detail", Type::MaybeWord),
    ("file", Type::MaybeNumber),
    ("page", Type::MaybeNumber),
    ("sector", Type::MaybeNumber),
    ("offset", Type::MaybeNumber),
    ("count", Type::MaybeNumber),
    ("len_bytes", Type::MaybeNumber),
    ("rq", Type::MaybeNumber),
    ("gone", Type::MaybeNumber),
    ("order", Type::MaybeNumber),
    ("async_size", Type::MaybeNumber),
    ("in_flight", Type::MaybeNumber),
    ("tid", Type::MaybeNumber),
    ("seek_us", Type::MaybeNumber),
    ("rotation_us", Type::MaybeNumber),
];

/// An event as a row: what its kind does not have stays nothing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Flat {
    kind: &'static str,
    op: Option<&'static str>,
    detail: Option<&'static str>,
    file: Option<u32>,
    page: Option<u64>,
    sector: Option<u64>,
    offset: Option<u64>,
    count: Option<u32>,
    len_bytes: Option<u32>,
    rq: Option<u32>,
    gone: Option<u32>,
    order: Option<u8>,
    async_size: Option<u32>,
    in_flight: Option<u16>,
    tid: Option<u32>,
    seek_us: Option<u32>,
    rotation_us: Option<u32>,
}

fn flat(what: &What) -> Flat {
    let of = |kind| Flat { kind, ..Flat::default() };
    match *what {
        What::CallStart { op, file, offset, len_bytes } => Flat {
            op: Some(op_word(op)),
            file: Some(file.0),
            offset: Some(offset),
            len_bytes: Some(len_bytes),
            ..of("call_start")
        },
        What::CallEnd { op, file, len_bytes } => {
            Flat { op: Some(op_word(op)), file: Some(file.0), len_bytes: Some(len_bytes), ..of("call_end") }
        }
        What::Hit { file, page, nr_pages } => pages(of("hit"), file.0, page.0, nr_pages),
        What::Miss { file, page } => pages(of("miss"), file.0, page.0, 1),
        What::Fault { file, page, major } => {
            Flat { detail: Some(if major { "major" } else { "minor" }), ..pages(of("fault"), file.0, page.0, 1) }
        }
        What::RaWindow { file, kind, order, start, nr_pages, async_size } => Flat {
            detail: Some(window_word(kind)),
            order: Some(order),
            async_size: Some(async_size),
            ..pages(of("window"), file.0, start.0, nr_pages)
        },
        What::RaClosed { file, cause } => {
            Flat { file: Some(file.0), detail: Some(close_word(cause)), ..of("ra_closed") }
        }
        What::RaReopened { file } => Flat { file: Some(file.0), ..of("ra_reopened") },
        What::PageAdd { file, page, nr_pages } => pages(of("page_add"), file.0, page.0, nr_pages),
        What::PageRemove { file, page, nr_pages, cause } => {
            let detail = match cause {
                Eviction::Reclaim => "reclaim",
                Eviction::Dropped => "dropped",
            };
            Flat { detail: Some(detail), ..pages(of("page_remove"), file.0, page.0, nr_pages) }
        }
        What::BioQueue { dir, content, sector, nr_sectors } => Flat {
            op: Some(dir_word(dir)),
            detail: Some(content_word(content)),
            sector: Some(sector.0),
            count: Some(nr_sectors),
            ..of("bio")
        },
        What::GetRequest { rq } => Flat { rq: Some(rq.0), ..of("get_request") },
        What::Merge { rq, kind, nr_sectors } => {
            let detail = match kind {
                MergeKind::Back => "back",
                MergeKind::Front => "front",
            };
            Flat { rq: Some(rq.0), detail: Some(detail), count: Some(nr_sectors), ..of("merge") }
        }
        What::MergeRequests { rq, gone } => Flat { rq: Some(rq.0), gone: Some(gone.0), ..of("merge_requests") },
        What::Plug => of("plug"),
        What::Unplug { cause, nr_requests } => {
            Flat { detail: Some(unplug_word(cause)), count: Some(nr_requests), ..of("unplug") }
        }
        What::Insert { rq } => Flat { rq: Some(rq.0), ..of("insert") },
        What::Issue { rq, dir, content, sector, nr_sectors, in_flight } => Flat {
            rq: Some(rq.0),
            op: Some(dir_word(dir)),
            detail: Some(content_word(content)),
            sector: Some(sector.0),
            count: Some(nr_sectors),
            in_flight: Some(in_flight),
            ..of("issue")
        },
        What::Complete { rq, dir, nr_sectors } => {
            Flat { rq: Some(rq.0), op: Some(dir_word(dir)), count: Some(nr_sectors), ..of("complete") }
        }
        What::ServiceModel { rq, seek_us, rotation_us, media } => Flat {
            rq: Some(rq.0),
            seek_us: Some(seek_us),
            rotation_us: Some(rotation_us),
            detail: Some(if media { "media" } else { "cache" }),
            ..of("service_model")
        },
        What::IdleStart => of("idle_start"),
        What::IdleEnd { cause } => {
            let detail = match cause {
                IdleEnd::Hit => "hit",
                IdleEnd::Broken => "broken",
                IdleEnd::Timeout => "timeout",
            };
            Flat { detail: Some(detail), ..of("idle_end") }
        }
        What::Writeback { file, page, nr_pages } => pages(of("writeback"), file.0, page.0, nr_pages),
        What::Journal { tid, step, nr_blocks } => {
            let detail = match step {
                JournalStep::Lock => "lock",
                JournalStep::Data => "data",
                JournalStep::Log => "log",
                JournalStep::CommitBlock => "commit_block",
                JournalStep::Done => "done",
            };
            Flat { tid: Some(tid), detail: Some(detail), count: Some(nr_blocks), ..of("journal") }
        }
        What::Throttle { nr_dirty } => Flat { count: Some(nr_dirty), ..of("throttle") },
    }
}

fn pages(flat: Flat, file: u32, page: u64, nr_pages: u32) -> Flat {
    Flat { file: Some(file), page: Some(page), count: Some(nr_pages), ..flat }
}

fn op_word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Fsync => "fsync",
        Op::Fdatasync => "fdatasync",
    }
}

fn dir_word(dir: Dir) -> &'static str {
    match dir {
        Dir::Read => "read",
        Dir::Write => "write",
    }
}

fn content_word(content: Content) -> &'static str {
    match content {
        Content::Data => "data",
        Content::Mapping => "mapping",
        Content::Journal => "journal",
        Content::Metadata => "metadata",
    }
}

fn window_word(kind: RaKind) -> &'static str {
    match kind {
        RaKind::Sync => "sync",
        RaKind::Async => "async",
        RaKind::Force => "force",
        RaKind::Single => "single",
        RaKind::Around => "around",
        RaKind::Exec => "exec",
        RaKind::Huge => "huge",
    }
}

fn close_word(cause: RaClose) -> &'static str {
    match cause {
        RaClose::InterleavedMisses => "interleaved_misses",
        RaClose::Misses => "misses",
        RaClose::Hits => "hits",
        RaClose::Congestion => "congestion",
    }
}

fn unplug_word(cause: UnplugCause) -> &'static str {
    match cause {
        UnplugCause::Waiter => "waiter",
        UnplugCause::Threshold => "threshold",
        UnplugCause::Timer => "timer",
        UnplugCause::SyncBio => "sync_bio",
        UnplugCause::Finish => "finish",
        UnplugCause::Schedule => "schedule",
        UnplugCause::NoRequest => "no_request",
    }
}

/// The row of an event.
pub(super) fn row_of(event: &Event) -> [Item; 19] {
    let flat = flat(&event.what);
    let number = |value: Option<u64>| value.map_or(Item::None, |value| Item::Number(value as i64));
    let small = |value: Option<u32>| value.map_or(Item::None, |value| Item::Number(i64::from(value)));
    let word = |value: Option<&'static str>| value.map_or(Item::None, Item::Word);
    [
        Item::Number(event.at.0 as i64),
        Item::Number(i64::from(event.call.0)),
        Item::Word(flat.kind),
        word(flat.op),
        word(flat.detail),
        small(flat.file),
        number(flat.page),
        number(flat.sector),
        number(flat.offset),
        small(flat.count),
        small(flat.len_bytes),
        small(flat.rq),
        small(flat.gone),
        small(flat.order.map(u32::from)),
        small(flat.async_size),
        small(flat.in_flight.map(u32::from)),
        small(flat.tid),
        small(flat.seek_us),
        small(flat.rotation_us),
    ]
}

/// Listens to a simulated run and writes what happens, and keeps its calls as well.
pub struct EventWriter {
    draft: Draft,
    sampler: Sampler,
}

impl EventWriter {
    /// One that writes to a store.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn new(store: &Store) -> Result<EventWriter, StoreError> {
        Ok(EventWriter { draft: Draft::new(store, Kind::Events, COLUMNS)?, sampler: Sampler::default() })
    }

    /// Ends the file of events; that of the samples is not made.
    ///
    /// # Errors
    /// If something could not be written.
    pub fn finish_events(self) -> Result<DataFile, StoreError> {
        self.draft.finish(&[])
    }

    /// Ends the files: events and samples.
    ///
    /// # Errors
    /// If something could not be written.
    pub fn finish(self, store: &Store) -> Result<[DataFile; 2], StoreError> {
        Ok([self.draft.finish(&[])?, self.sampler.finish(store)?])
    }
}

impl EventSink for EventWriter {
    fn event(&mut self, event: &Event) {
        self.draft.row(&row_of(event));
        self.sampler.event(event);
    }
}
