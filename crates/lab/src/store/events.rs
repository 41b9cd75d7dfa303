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
//! detail     why or how: kind of window, cause of a removal, of an unplug, ..; content of a bio; step of the
//!            journal; minor or major fault; media or cache of a disk
//! file       number of the file
//! page       first page        sector     first sector       offset     first byte
//! count      pages, sectors, requests or blocks              len_bytes  bytes of a call
//! rq         request           gone       the one that is merged away
//! order      largest folio order of a window                 async_size its pages ahead of the next trigger
//! in_flight  requests at the device                          tid        transaction of the journal
//! seek_us, rotation_us         how a disk spent the time; no kernel can see this
//! ```

use std::collections::HashMap;

use iowhy_stack::event::{
    CallId, Content, Dir, Event, EventSink, Eviction, FileId, IdleEnd, JournalStep, MergeKind, Op, RaClose, RaKind,
    RqId, UnplugCause, What,
};
use iowhy_stack::units::{Nanos, PageIndex, Sector};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;

use super::data::{Draft, Item, Type};
use super::{DataFile, Kind, Sampler, Store, StoreError};

/// Columns of the table.
pub const COLUMNS: &[(&str, Type)] = &[
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

/// An event as a row: fields that its kind does not have stay empty.
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
        What::IdleEnd { cause } => Flat { detail: Some(idle_end_word(cause)), ..of("idle_end") },
        What::Writeback { file, page, nr_pages } => pages(of("writeback"), file.0, page.0, nr_pages),
        What::Journal { tid, step, nr_blocks } => {
            Flat { tid: Some(tid), detail: Some(step_word(step)), count: Some(nr_blocks), ..of("journal") }
        }
        What::Throttle { nr_dirty } => Flat { count: Some(nr_dirty), ..of("throttle") },
        What::HandOver => of("hand_over"),
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
        Op::Trim => "trim",
    }
}

fn dir_word(dir: Dir) -> &'static str {
    match dir {
        Dir::Read => "read",
        Dir::Write => "write",
    }
}

pub(crate) fn content_word(content: Content) -> &'static str {
    match content {
        Content::Data => "data",
        Content::Mapping => "mapping",
        Content::Journal => "journal",
        Content::Metadata => "metadata",
    }
}

pub(crate) fn window_word(kind: RaKind) -> &'static str {
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

fn idle_end_word(cause: IdleEnd) -> &'static str {
    match cause {
        IdleEnd::Hit => "hit",
        IdleEnd::Broken => "broken",
        IdleEnd::Timeout => "timeout",
    }
}

fn step_word(step: JournalStep) -> &'static str {
    match step {
        JournalStep::Lock => "lock",
        JournalStep::Data => "data",
        JournalStep::Log => "log",
        JournalStep::CommitBlock => "commit_block",
        JournalStep::Done => "done",
    }
}

pub(crate) fn unplug_word(cause: UnplugCause) -> &'static str {
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

/// An event as a row of [`COLUMNS`].
pub fn row_of(event: &Event) -> [Item; 19] {
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

/// An event of a row, or nothing if the row is none that this version knows.
fn event_of(at: u64, call: u32, flat: &Flat) -> Option<Event> {
    let file = || flat.file.map(FileId);
    let page = || flat.page.map(PageIndex);
    let sector = || flat.sector.map(Sector);
    let rq = || flat.rq.map(RqId);
    let dir = || match flat.op? {
        "read" => Some(Dir::Read),
        "write" => Some(Dir::Write),
        _ => None,
    };
    let op = || match flat.op? {
        "read" => Some(Op::Read),
        "write" => Some(Op::Write),
        "fsync" => Some(Op::Fsync),
        "fdatasync" => Some(Op::Fdatasync),
        "trim" => Some(Op::Trim),
        _ => None,
    };
    // Words are read back by the functions that write them.
    fn one_of<T: Copy>(word: Option<&str>, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
        all.iter().copied().find(|value| Some(name(*value)) == word)
    }
    let content = || one_of(flat.detail, &CONTENTS, content_word);
    let what = match flat.kind {
        "call_start" => What::CallStart { op: op()?, file: file()?, offset: flat.offset?, len_bytes: flat.len_bytes? },
        "call_end" => What::CallEnd { op: op()?, file: file()?, len_bytes: flat.len_bytes? },
        "hit" => What::Hit { file: file()?, page: page()?, nr_pages: flat.count? },
        "miss" => What::Miss { file: file()?, page: page()? },
        "fault" => What::Fault { file: file()?, page: page()?, major: flat.detail == Some("major") },
        "window" => What::RaWindow {
            file: file()?,
            kind: one_of(flat.detail, &WINDOWS, window_word)?,
            order: flat.order?,
            start: page()?,
            nr_pages: flat.count?,
            async_size: flat.async_size?,
        },
        "ra_closed" => What::RaClosed { file: file()?, cause: one_of(flat.detail, &CLOSES, close_word)? },
        "ra_reopened" => What::RaReopened { file: file()? },
        "page_add" => What::PageAdd { file: file()?, page: page()?, nr_pages: flat.count? },
        "page_remove" => What::PageRemove {
            file: file()?,
            page: page()?,
            nr_pages: flat.count?,
            cause: if flat.detail == Some("reclaim") { Eviction::Reclaim } else { Eviction::Dropped },
        },
        "bio" => What::BioQueue { dir: dir()?, content: content()?, sector: sector()?, nr_sectors: flat.count? },
        "get_request" => What::GetRequest { rq: rq()? },
        "merge" => What::Merge {
            rq: rq()?,
            kind: if flat.detail == Some("front") { MergeKind::Front } else { MergeKind::Back },
            nr_sectors: flat.count?,
        },
        "merge_requests" => What::MergeRequests { rq: rq()?, gone: RqId(flat.gone?) },
        "plug" => What::Plug,
        "unplug" => What::Unplug { cause: one_of(flat.detail, &UNPLUGS, unplug_word)?, nr_requests: flat.count? },
        "insert" => What::Insert { rq: rq()? },
        "issue" => What::Issue {
            rq: rq()?,
            dir: dir()?,
            content: content()?,
            sector: sector()?,
            nr_sectors: flat.count?,
            in_flight: flat.in_flight?,
        },
        "complete" => What::Complete { rq: rq()?, dir: dir()?, nr_sectors: flat.count? },
        "service_model" => What::ServiceModel {
            rq: rq()?,
            seek_us: flat.seek_us?,
            rotation_us: flat.rotation_us?,
            media: flat.detail == Some("media"),
        },
        "idle_start" => What::IdleStart,
        "idle_end" => What::IdleEnd { cause: one_of(flat.detail, &IDLE_ENDS, idle_end_word)? },
        "writeback" => What::Writeback { file: file()?, page: page()?, nr_pages: flat.count? },
        "journal" => {
            What::Journal { tid: flat.tid?, step: one_of(flat.detail, &STEPS, step_word)?, nr_blocks: flat.count? }
        }
        "throttle" => What::Throttle { nr_dirty: flat.count? },
        "hand_over" => What::HandOver,
        _ => return None,
    };
    Some(Event { at: Nanos(at), call: CallId(call), what })
}

/// Contents of bios and requests.
pub(crate) const CONTENTS: [Content; 4] = [Content::Data, Content::Mapping, Content::Journal, Content::Metadata];
/// Kinds of read-ahead windows.
pub(crate) const WINDOWS: [RaKind; 7] =
    [RaKind::Sync, RaKind::Async, RaKind::Force, RaKind::Single, RaKind::Around, RaKind::Exec, RaKind::Huge];
const CLOSES: [RaClose; 4] = [RaClose::InterleavedMisses, RaClose::Misses, RaClose::Hits, RaClose::Congestion];
/// Causes of pulled plugs.
pub(crate) const UNPLUGS: [UnplugCause; 7] = [
    UnplugCause::Waiter,
    UnplugCause::Threshold,
    UnplugCause::Timer,
    UnplugCause::SyncBio,
    UnplugCause::Finish,
    UnplugCause::Schedule,
    UnplugCause::NoRequest,
];
const IDLE_ENDS: [IdleEnd; 3] = [IdleEnd::Hit, IdleEnd::Broken, IdleEnd::Timeout];
const STEPS: [JournalStep; 5] =
    [JournalStep::Lock, JournalStep::Data, JournalStep::Log, JournalStep::CommitBlock, JournalStep::Done];

/// Every word of the columns that hold words, so that they are known as such when they are read.
const WORDS: &[&str] = &[
    "call_start",
    "call_end",
    "hit",
    "miss",
    "fault",
    "window",
    "ra_closed",
    "ra_reopened",
    "page_add",
    "page_remove",
    "bio",
    "get_request",
    "merge",
    "merge_requests",
    "plug",
    "unplug",
    "insert",
    "issue",
    "complete",
    "service_model",
    "idle_start",
    "idle_end",
    "writeback",
    "journal",
    "throttle",
    "hand_over",
    "read",
    "write",
    "fsync",
    "fdatasync",
    "major",
    "minor",
    "reclaim",
    "dropped",
    "back",
    "front",
    "media",
    "cache",
    "data",
    "mapping",
    "metadata",
    "sync",
    "async",
    "force",
    "single",
    "around",
    "exec",
    "huge",
    "interleaved_misses",
    "misses",
    "hits",
    "congestion",
    "waiter",
    "threshold",
    "timer",
    "sync_bio",
    "finish",
    "schedule",
    "no_request",
    "hit",
    "broken",
    "timeout",
    "lock",
    "log",
    "commit_block",
    "done",
];

/// Rows that are read at once.
const BATCH: usize = 1 << 16;

/// A column as it is read: values of the rows that have one, and which rows these are.
#[derive(Default)]
struct Read {
    numbers: Vec<i64>,
    words: Vec<ByteArray>,
    levels: Vec<i16>,
    /// The next value.
    at: usize,
    optional: bool,
    is_word: bool,
}

impl Read {
    fn fetch(&mut self, reader: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
        (self.at, self.optional) = (0, true);
        self.numbers.clear();
        self.words.clear();
        self.levels.clear();
        match reader {
            ColumnReader::Int64ColumnReader(column) => {
                column.read_records(rows, Some(&mut self.levels), None, &mut self.numbers)?;
                self.optional = !self.levels.is_empty();
            }
            ColumnReader::ByteArrayColumnReader(column) => {
                self.is_word = true;
                column.read_records(rows, Some(&mut self.levels), None, &mut self.words)?;
            }
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        }
        Ok(())
    }

    fn there(&mut self, row: usize) -> Option<usize> {
        let there = !self.optional || self.levels.get(row).is_some_and(|level| *level > 0);
        there.then(|| {
            self.at += 1;
            self.at - 1
        })
    }

    fn number(&mut self, row: usize) -> Option<u64> {
        let at = self.there(row)?;
        self.numbers.get(at).and_then(|value| u64::try_from(*value).ok())
    }

    fn small(&mut self, row: usize) -> Option<u32> {
        self.number(row).and_then(|value| u32::try_from(value).ok())
    }

    fn word(&mut self, row: usize, known: &HashMap<&'static [u8], &'static str>) -> Option<&'static str> {
        let at = self.there(row)?;
        self.words.get(at).and_then(|word| known.get(word.data()).copied())
    }
}

impl Store {
    /// Hands the events of a data file to a listener, in their order; yields how many.
    ///
    /// # Errors
    /// If the file cannot be read, or is none with events.
    pub fn replay(&self, hash: &str, sink: &mut dyn EventSink) -> Result<u64, StoreError> {
        let path = self.data_path(hash);
        let parquet = |source| StoreError::Parquet { action: "read", path: path.clone(), source };
        let reader = self.open_rows(hash)?;
        let found: Vec<String> =
            reader.metadata().file_metadata().schema_descr().columns().iter().map(|c| c.name().to_owned()).collect();
        if found.len() != COLUMNS.len() || found.iter().zip(COLUMNS).any(|(name, (known, _))| name != known) {
            return Err(StoreError::Damaged { what: "it has other columns than events have".to_owned(), path });
        }
        let known: HashMap<&'static [u8], &'static str> = WORDS.iter().map(|word| (word.as_bytes(), *word)).collect();
        let mut events = 0;
        for nr in 0..reader.num_row_groups() {
            let group = reader.get_row_group(nr).map_err(parquet)?;
            let mut left = group.metadata().num_rows() as usize;
            let mut columns: Vec<ColumnReader> = (0..COLUMNS.len())
                .map(|column| group.get_column_reader(column))
                .collect::<Result<_, _>>()
                .map_err(parquet)?;
            let mut read: Vec<Read> = COLUMNS.iter().map(|_| Read::default()).collect();
            while left > 0 {
                let rows = left.min(BATCH);
                for (column, read) in columns.iter_mut().zip(&mut read) {
                    read.fetch(column, rows).map_err(parquet)?;
                }
                left -= rows;
                let [
                    t,
                    call,
                    kind,
                    op,
                    detail,
                    file,
                    page,
                    sector,
                    offset,
                    count,
                    len,
                    rq,
                    gone,
                    order,
                    size,
                    flight,
                    tid,
                    seek,
                    turn,
                ] = read.as_mut_slice()
                else {
                    return Err(StoreError::Damaged { what: "it has too few columns".to_owned(), path });
                };
                for row in 0..rows {
                    let (at, call) = (t.number(row), call.small(row));
                    let flat = Flat {
                        kind: kind.word(row, &known).unwrap_or_default(),
                        op: op.word(row, &known),
                        detail: detail.word(row, &known),
                        file: file.small(row),
                        page: page.number(row),
                        sector: sector.number(row),
                        offset: offset.number(row),
                        count: count.small(row),
                        len_bytes: len.small(row),
                        rq: rq.small(row),
                        gone: gone.small(row),
                        order: order.small(row).and_then(|order| u8::try_from(order).ok()),
                        async_size: size.small(row),
                        in_flight: flight.small(row).and_then(|depth| u16::try_from(depth).ok()),
                        tid: tid.small(row),
                        seek_us: seek.small(row),
                        rotation_us: turn.small(row),
                    };
                    let event = at.zip(call).and_then(|(at, call)| event_of(at, call, &flat));
                    let Some(event) = event else {
                        let what = format!("row {} holds no event that this version knows", events + 1);
                        return Err(StoreError::Damaged { what, path });
                    };
                    sink.event(&event);
                    events += 1;
                }
            }
        }
        Ok(events)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::command::plan_of_command;

    #[test]
    fn what_was_written_is_read_back_event_by_event() {
        let folder = std::env::temp_dir().join(format!("iowhy-events-{}", std::process::id()));
        let store = Store::open(&folder).expect("a store");
        for (nr, line) in [
            "run fio --name=j --rw=randrw --bs=8k --size=8m --fsync=4 --numjobs=2 --on sim:linux-4.4 --disk sata-2014",
            "run fio --name=j --rw=read --bs=64k --size=8m --ioengine=mmap --on sim:linux-6.18 --disk nvme",
            "sysbench fileio --file-num=4 --file-total-size=64M --file-test-mode=rndrw --num-threads=8 \
             --max-requests=200 --on sim:linux-2.6.6-rc3 run",
            "run fio --name=j --rw=randread --bs=4k --size=1m --ioengine=io_uring --iodepth=8 \
             --on sim:linux-6.18,filesystem.nowait=off",
        ]
        .iter()
        .enumerate()
        {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{}", problems.render()));
            let mut events: Vec<Event> = Vec::new();
            iowhy_stack::sim::run_with(&plan, &mut events).expect("it runs");
            let mut writer = EventWriter::new(&store).expect("a draft");
            events.iter().for_each(|event| writer.event(event));
            let file = writer.finish_events().expect("a file");
            let mut back: Vec<Event> = Vec::new();
            assert_eq!(store.replay(file.hash(), &mut back).expect("it is read"), events.len() as u64);
            assert!(back == events, "job {nr}: {} events", events.len());
            assert!(events.len() > 500, "job {nr}: {} events", events.len());
        }
        std::fs::remove_dir_all(&folder).expect("it goes");
    }

    #[test]
    fn every_word_that_is_written_is_known_when_it_is_read() {
        let all = CONTENTS.iter().map(|of| content_word(*of)).chain(WINDOWS.iter().map(|of| window_word(*of)));
        let all = all.chain(CLOSES.iter().map(|of| close_word(*of))).chain(UNPLUGS.iter().map(|of| unplug_word(*of)));
        let all = all.chain(IDLE_ENDS.iter().map(|of| idle_end_word(*of))).chain(STEPS.iter().map(|of| step_word(*of)));
        for word in all {
            assert!(WORDS.contains(&word), "{word}");
        }
    }
}
