//! A record as a row of a table, and back: the common part of CSV and Parquet.
//!
//! ```text
//! t_ns  cpu  pid         when (since the start of the trace), where, by whom (0: interrupts)
//! kind                   a word of [`KINDS`]
//! dev   ino              the device (major << 20 | minor) and the inode of a file, or the device of a request
//! sector  bytes  rwbs    of a bio or request; blkparse's letters, `N` for none of R, W and D, `P` for passthrough
//! op                     of a call: read, write, fsync, fdatasync
//! fd  offset  len        descriptor, first byte, bytes asked for
//! result                 of a call: bytes or a negative error; of a request: its error; of a switch: the task's state
//! index  count           first page and number of pages (get_pages: the page after the last); requests of an unplug;
//!                        the task that comes next, or is woken
//! order                  of folios
//! size  async_size  ra_pages  mmap_miss  prev_pos     state of read-ahead
//! from_dev  from_sector  where a bio was remapped from; of a split, where the rest begins
//! text  fields           a message; of anything else, its name and what the kernel prints
//! ```
//! Missing values of a kind are empty. A row read back gives the same record.

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Record, Rwbs, Seen};
use iowhy_stack::units::{Nanos, Sector};

/// Every kind of record, by its word; the place in the list is its number.
pub const KINDS: [&str; 30] = [
    "call_start",
    "call_end",
    "ra_sync",
    "ra_async",
    "ra_order",
    "ra_unbounded",
    "get_pages",
    "page_add",
    "page_remove",
    "fault",
    "queue",
    "get_request",
    "sleep",
    "back_merge",
    "front_merge",
    "merge_requests",
    "insert",
    "issue",
    "requeue",
    "complete",
    "split",
    "remap",
    "bounce",
    "plug",
    "unplug",
    "timer_unplug",
    "message",
    "other",
    "switch",
    "wake",
];

/// Columns of numbers behind `t_ns`, `cpu`, `pid` and `kind`.
pub const NUMBERS: [&str; NR_NUMBERS] = [
    "dev",
    "ino",
    "sector",
    "bytes",
    "rwbs",
    "op",
    "fd",
    "offset",
    "len",
    "result",
    "index",
    "count",
    "order",
    "size",
    "async_size",
    "ra_pages",
    "mmap_miss",
    "prev_pos",
    "from_dev",
    "from_sector",
];
/// How many those are.
pub const NR_NUMBERS: usize = 20;
/// Columns of text behind them.
pub const TEXTS: [&str; 2] = ["text", "fields"];

pub(crate) const DEV: usize = 0;
pub(crate) const INO: usize = 1;
pub(crate) const SECTOR: usize = 2;
pub(crate) const BYTES: usize = 3;
pub(crate) const RWBS: usize = 4;
pub(crate) const OP: usize = 5;
const FD: usize = 6;
const OFFSET: usize = 7;
const LEN: usize = 8;
const RESULT: usize = 9;
const INDEX: usize = 10;
const COUNT: usize = 11;
const ORDER: usize = 12;
const SIZE: usize = 13;
const ASYNC_SIZE: usize = 14;
const RA_PAGES: usize = 15;
const MMAP_MISS: usize = 16;
const PREV_POS: usize = 17;
const FROM_DEV: usize = 18;
const FROM_SECTOR: usize = 19;

/// Operations, by number.
const OPS: [(&str, Op); 5] =
    [("read", Op::Read), ("write", Op::Write), ("fsync", Op::Fsync), ("fdatasync", Op::Fdatasync), ("trim", Op::Trim)];

/// A row. Numbers of 64 bits without a sign are kept bit by bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Time since the start, ns.
    pub at: u64,
    /// Processor.
    pub cpu: u32,
    /// Process; 0 in interrupts.
    pub pid: u32,
    /// Its place in [`KINDS`].
    pub kind: u8,
    /// Values of [`NUMBERS`].
    pub numbers: [Option<i64>; NR_NUMBERS],
    /// Values of [`TEXTS`].
    pub texts: [Option<String>; 2],
}

/// The word of an operation.
pub fn op_word(op: Op) -> &'static str {
    OPS.iter().find(|(_, known)| *known == op).map_or("", |(word, _)| word)
}

/// The operation of a word.
pub fn op_of(word: &str) -> Option<Op> {
    OPS.iter().find(|(known, _)| *known == word).map(|(_, op)| *op)
}

pub(crate) fn op_number(op: Op) -> i64 {
    OPS.iter().position(|(_, known)| *known == op).unwrap_or(0) as i64
}

pub(crate) fn op_numbered(number: i64) -> Option<Op> {
    OPS.get(usize::try_from(number).ok()?).map(|(_, op)| *op)
}

/// blkparse's letters, one for each bit.
pub fn rwbs_letters(rwbs: Rwbs) -> String {
    let mut text = String::new();
    let mut add = |bit: Rwbs, letter: char| {
        if rwbs.has(bit) {
            text.push(letter);
        }
        rwbs.has(bit)
    };
    add(Rwbs::PREFLUSH, 'F');
    let found = [(Rwbs::DISCARD, 'D'), (Rwbs::WRITE, 'W'), (Rwbs::READ, 'R')];
    if !found.map(|(bit, letter)| add(bit, letter)).contains(&true) {
        text.push('N');
    }
    for (bit, letter) in
        [(Rwbs::FUA, 'F'), (Rwbs::AHEAD, 'A'), (Rwbs::SYNC, 'S'), (Rwbs::META, 'M'), (Rwbs::PASSTHROUGH, 'P')]
    {
        if rwbs.has(bit) {
            text.push(letter);
        }
    }
    text
}

/// Meaning of the letters of blkparse and of the kernel. A flush that the kernel shows as `FF` is a flush before.
pub fn rwbs_of(text: &str) -> Option<Rwbs> {
    let mut rwbs = Rwbs::default();
    let mut data = false;
    for letter in text.chars() {
        rwbs = rwbs.with(match letter {
            'R' => Rwbs::READ,
            'W' => Rwbs::WRITE,
            'D' => Rwbs::DISCARD,
            'F' if data => Rwbs::FUA,
            'F' => Rwbs::PREFLUSH,
            'A' => Rwbs::AHEAD,
            'S' => Rwbs::SYNC,
            'M' => Rwbs::META,
            'P' => Rwbs::PASSTHROUGH,
            // Erasing, zones and atomic writes have no bit of their own.
            'N' | 'E' | 'Z' | 'O' | 'C' | 'U' => Rwbs::default(),
            _ => return None,
        });
        data |= matches!(letter, 'R' | 'W' | 'D' | 'N');
    }
    (!text.is_empty()).then_some(rwbs)
}

impl Row {
    fn of_kind(kind: &str) -> Row {
        let number = KINDS.iter().position(|known| *known == kind);
        debug_assert!(number.is_some(), "{kind} is not a kind");
        Row { kind: number.unwrap_or(0) as u8, ..Row::default() }
    }

    fn set(mut self, column: usize, value: impl TryInto<i64>) -> Row {
        self.numbers[column] = value.try_into().ok();
        self
    }

    /// A number that uses all 64 bits.
    fn wide(mut self, column: usize, value: u64) -> Row {
        self.numbers[column] = Some(value as i64);
        self
    }

    fn file(self, file: Inode) -> Row {
        self.set(DEV, file.dev.0).wide(INO, file.ino)
    }

    fn extent(self, extent: &Extent) -> Row {
        self.set(DEV, extent.dev.0).wide(SECTOR, extent.sector.0).set(BYTES, extent.bytes).set(RWBS, extent.rwbs.0)
    }

    fn state(self, input: &RaInput) -> Row {
        self.wide(INDEX, input.index)
            .wide(COUNT, input.req_count)
            .set(ORDER, input.order)
            .set(SIZE, input.size)
            .set(ASYNC_SIZE, input.async_size)
            .set(RA_PAGES, input.ra_pages)
            .set(MMAP_MISS, input.mmap_miss)
            .set(PREV_POS, input.prev_pos)
    }

    /// The row of a record.
    pub fn of(record: &Record) -> Row {
        let of = Row::of_kind;
        let row = match &record.seen {
            Seen::CallStart { op, fd, offset, len_bytes } => {
                let row = of("call_start").set(OP, op_number(*op)).set(FD, *fd).wide(LEN, *len_bytes);
                match offset {
                    Some(offset) => row.wide(OFFSET, *offset),
                    None => row,
                }
            }
            Seen::CallEnd { op, result } => of("call_end").set(OP, op_number(*op)).set(RESULT, *result),
            Seen::RaSync { file, input } => of("ra_sync").file(*file).state(input),
            Seen::RaAsync { file, input } => of("ra_async").file(*file).state(input),
            Seen::RaOrder { file, index, order, size, async_size, ra_pages } => of("ra_order")
                .file(*file)
                .wide(INDEX, *index)
                .set(ORDER, *order)
                .set(SIZE, *size)
                .set(ASYNC_SIZE, *async_size)
                .set(RA_PAGES, *ra_pages),
            Seen::RaUnbounded { file, index, nr_to_read, lookahead_size } => of("ra_unbounded")
                .file(*file)
                .wide(INDEX, *index)
                .wide(COUNT, *nr_to_read)
                .wide(ASYNC_SIZE, *lookahead_size),
            Seen::GetPages { file, index, last_index } => {
                of("get_pages").file(*file).wide(INDEX, *index).wide(COUNT, *last_index)
            }
            Seen::PageAdd { file, index, order } => of("page_add").file(*file).wide(INDEX, *index).set(ORDER, *order),
            Seen::PageRemove { file, index, order } => {
                of("page_remove").file(*file).wide(INDEX, *index).set(ORDER, *order)
            }
            Seen::Fault { file, index } => of("fault").file(*file).wide(INDEX, *index),
            Seen::Queue(extent) => of("queue").extent(extent),
            Seen::GetRequest(extent) => of("get_request").extent(extent),
            Seen::Sleep(extent) => of("sleep").extent(extent),
            Seen::BackMerge(extent) => of("back_merge").extent(extent),
            Seen::FrontMerge(extent) => of("front_merge").extent(extent),
            Seen::MergeRequests(extent) => of("merge_requests").extent(extent),
            Seen::Insert(extent) => of("insert").extent(extent),
            Seen::Issue(extent) => of("issue").extent(extent),
            Seen::Requeue(extent) => of("requeue").extent(extent),
            Seen::Complete { extent, error } => of("complete").extent(extent).set(RESULT, *error),
            Seen::Split { extent, rest } => of("split").extent(extent).wide(FROM_SECTOR, rest.0),
            Seen::Remap { extent, from, from_sector } => {
                of("remap").extent(extent).set(FROM_DEV, from.0).wide(FROM_SECTOR, from_sector.0)
            }
            Seen::Bounce(extent) => of("bounce").extent(extent),
            Seen::Plug { dev } => match dev {
                Some(dev) => of("plug").set(DEV, dev.0),
                None => of("plug"),
            },
            Seen::Unplug { dev, nr_requests, timer } => {
                let row = of(if *timer { "timer_unplug" } else { "unplug" }).set(COUNT, *nr_requests);
                match dev {
                    Some(dev) => row.set(DEV, dev.0),
                    None => row,
                }
            }
            Seen::Switch { next, state } => of("switch").set(COUNT, *next).set(RESULT, *state),
            Seen::Wake { pid } => of("wake").set(COUNT, *pid),
            Seen::Message { dev, text } => Row { texts: [Some(text.clone()), None], ..of("message").set(DEV, dev.0) },
            Seen::Other { name, fields } => Row { texts: [Some(name.clone()), Some(fields.clone())], ..of("other") },
        };
        Row { at: record.at.0, cpu: record.cpu, pid: record.pid, ..row }
    }

    /// The record of a row, or which column has nothing, or nothing that it may have.
    pub(crate) fn record(&mut self) -> Result<Record, &'static str> {
        let seen = self.seen()?;
        Ok(Record { at: Nanos(self.at), cpu: self.cpu, pid: self.pid, seen })
    }

    fn wide_of(&self, column: usize) -> Result<u64, &'static str> {
        self.numbers[column].map(|number| number as u64).ok_or(NUMBERS[column])
    }

    fn number<N: TryFrom<i64>>(&self, column: usize) -> Result<N, &'static str> {
        self.numbers[column].and_then(|number| N::try_from(number).ok()).ok_or(NUMBERS[column])
    }

    fn seen(&mut self) -> Result<Seen, &'static str> {
        let file = |row: &Row| Ok::<_, &'static str>(Inode { dev: Dev(row.number(DEV)?), ino: row.wide_of(INO)? });
        let extent = |row: &Row| {
            Ok::<_, &'static str>(Extent {
                dev: Dev(row.number(DEV)?),
                sector: Sector(row.wide_of(SECTOR)?),
                bytes: row.number(BYTES)?,
                rwbs: Rwbs(row.number(RWBS)?),
            })
        };
        let state = |row: &Row| {
            Ok::<_, &'static str>(RaInput {
                index: row.wide_of(INDEX)?,
                req_count: row.wide_of(COUNT)?,
                order: row.number(ORDER)?,
                size: row.number(SIZE)?,
                async_size: row.number(ASYNC_SIZE)?,
                ra_pages: row.number(RA_PAGES)?,
                mmap_miss: row.number(MMAP_MISS)?,
                prev_pos: row.number(PREV_POS)?,
            })
        };
        let op = |row: &Row| row.numbers[OP].and_then(op_numbered).ok_or(NUMBERS[OP]);
        let dev = |row: &Row| match row.numbers[DEV] {
            None => Ok(None),
            Some(_) => row.number(DEV).map(|dev| Some(Dev(dev))),
        };
        let row = &*self;
        Ok(match KINDS.get(usize::from(row.kind)).copied().unwrap_or_default() {
            "call_start" => Seen::CallStart {
                op: op(row)?,
                fd: row.number(FD)?,
                offset: row.numbers[OFFSET].map(|offset| offset as u64),
                len_bytes: row.wide_of(LEN)?,
            },
            "call_end" => Seen::CallEnd { op: op(row)?, result: row.number(RESULT)? },
            "ra_sync" => Seen::RaSync { file: file(row)?, input: state(row)? },
            "ra_async" => Seen::RaAsync { file: file(row)?, input: state(row)? },
            "ra_order" => Seen::RaOrder {
                file: file(row)?,
                index: row.wide_of(INDEX)?,
                order: row.number(ORDER)?,
                size: row.number(SIZE)?,
                async_size: row.number(ASYNC_SIZE)?,
                ra_pages: row.number(RA_PAGES)?,
            },
            "ra_unbounded" => Seen::RaUnbounded {
                file: file(row)?,
                index: row.wide_of(INDEX)?,
                nr_to_read: row.wide_of(COUNT)?,
                lookahead_size: row.wide_of(ASYNC_SIZE)?,
            },
            "get_pages" => {
                Seen::GetPages { file: file(row)?, index: row.wide_of(INDEX)?, last_index: row.wide_of(COUNT)? }
            }
            "page_add" => Seen::PageAdd { file: file(row)?, index: row.wide_of(INDEX)?, order: row.number(ORDER)? },
            "page_remove" => {
                Seen::PageRemove { file: file(row)?, index: row.wide_of(INDEX)?, order: row.number(ORDER)? }
            }
            "fault" => Seen::Fault { file: file(row)?, index: row.wide_of(INDEX)? },
            "queue" => Seen::Queue(extent(row)?),
            "get_request" => Seen::GetRequest(extent(row)?),
            "sleep" => Seen::Sleep(extent(row)?),
            "back_merge" => Seen::BackMerge(extent(row)?),
            "front_merge" => Seen::FrontMerge(extent(row)?),
            "merge_requests" => Seen::MergeRequests(extent(row)?),
            "insert" => Seen::Insert(extent(row)?),
            "issue" => Seen::Issue(extent(row)?),
            "requeue" => Seen::Requeue(extent(row)?),
            "complete" => Seen::Complete { extent: extent(row)?, error: row.number(RESULT)? },
            "split" => Seen::Split { extent: extent(row)?, rest: Sector(row.wide_of(FROM_SECTOR)?) },
            "remap" => Seen::Remap {
                extent: extent(row)?,
                from: Dev(row.number(FROM_DEV)?),
                from_sector: Sector(row.wide_of(FROM_SECTOR)?),
            },
            "bounce" => Seen::Bounce(extent(row)?),
            "plug" => Seen::Plug { dev: dev(row)? },
            kind @ ("unplug" | "timer_unplug") => {
                Seen::Unplug { dev: dev(row)?, nr_requests: row.number(COUNT)?, timer: kind == "timer_unplug" }
            }
            "switch" => {
                Seen::Switch { next: row.number(COUNT)?, state: row.number::<i64>(RESULT)?.unsigned_abs() as u16 }
            }
            "wake" => Seen::Wake { pid: row.number(COUNT)? },
            "message" => {
                let dev = Dev(row.number(DEV)?);
                Seen::Message { dev, text: self.texts[0].take().ok_or(TEXTS[0])? }
            }
            "other" => Seen::Other {
                name: self.texts[0].take().ok_or(TEXTS[0])?,
                fields: self.texts[1].take().unwrap_or_default(),
            },
            _ => return Err("kind"),
        })
    }
}

#[cfg(test)]
pub(crate) mod drawn {
    //! Records as they come.

    use iowhy_stack::rng::Rng;

    use super::*;
    use iowhy_stack::trace::Trace;

    /// A trace with every kind of record, numbers small and large.
    pub(crate) fn trace(seed: u64, nr_records: usize) -> Trace {
        let mut rng = Rng::stream(seed, "records");
        let mut at = 0;
        let mut records = Vec::new();
        for nr in 0..nr_records {
            at += rng.below(5000);
            let mut row = Row { at, cpu: rng.below(4) as u32, pid: rng.below(9) as u32, ..Row::default() };
            row.kind = if nr < KINDS.len() { nr as u8 } else { rng.below(KINDS.len() as u64) as u8 };
            for (column, number) in row.numbers.iter_mut().enumerate() {
                let small = rng.below(1 << 12) as i64;
                *number = Some(match column {
                    OP => small & 3,
                    INO | SECTOR | OFFSET | INDEX if rng.below(8) == 0 => (rng.below(1 << 48)) as i64,
                    ORDER => small & 15,
                    RWBS => small & 511,
                    RESULT | PREV_POS => -(small & 7),
                    FD => small & 31,
                    _ => small,
                });
                let may_miss = matches!(column, OFFSET) || column == DEV && matches!(row.kind, 23..=25);
                if may_miss && rng.below(3) == 0 {
                    *number = None;
                }
            }
            row.texts = [Some(format!("block:x{}", small_text(&mut rng))), Some(small_text(&mut rng))];
            records.push(row.record().expect("every column has something"));
        }
        Trace {
            records,
            started_ns: 1_700_000_000_000_000_000 + seed,
            names: vec![(1, "fio".to_owned()), (3, "a \"b\", c".to_owned()), (7, "kworker/0:1".to_owned())],
            paths: vec![(Inode { dev: Dev::new(7, 1), ino: 12 }, "/x/y z,\"w\"\n".to_owned())],
            kernel: "6.18.1".to_owned(),
            lost: 3,
            inferred_windows: seed % 2 == 1,
        }
    }

    fn small_text(rng: &mut Rng) -> String {
        ["", "a", "a,b", "x=\"1\"", "two\nlines", "größe"][rng.below(6) as usize].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_record_back() {
        let trace = drawn::trace(1, 500);
        for record in &trace.records {
            assert_eq!(Row::of(record).record().as_ref(), Ok(record));
        }
        let met = |kind: &str| trace.records.iter().any(|record| KINDS[usize::from(Row::of(record).kind)] == kind);
        assert!(KINDS.iter().all(|kind| met(kind)));
    }

    #[test]
    fn letters_stand_for_bits() {
        for bits in 0..512 {
            let letters = rwbs_letters(Rwbs(bits));
            assert_eq!(rwbs_of(&letters), Some(Rwbs(bits)), "{letters}");
        }
        for (text, bits) in [
            ("RA", Some(Rwbs::READ.with(Rwbs::AHEAD))),
            ("WFSM", Some(Rwbs::WRITE.with(Rwbs::FUA).with(Rwbs::SYNC).with(Rwbs::META))),
            ("FWS", Some(Rwbs::PREFLUSH.with(Rwbs::WRITE).with(Rwbs::SYNC))),
            ("FF", Some(Rwbs::PREFLUSH)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(rwbs_of(text), bits, "{text}");
        }
    }
}
