//! fio's logs of bandwidth, IOPS and latencies, written of a live run and read again.
//!
//! ```text
//! name      PREFIX_KIND.N.log with the number of the job from 1, or PREFIX_KIND.log for all jobs together
//! kinds     bw KiB/s, iops, and ns: lat (all of an I/O, from when it was due), clat (from the kernel's having it),
//!           slat (from its beginning until then)
//! columns   ms, value[, greatest value], direction, block size[, offset], priority[, ns when it was issued]
//! rows      one for each I/O as it completed, or, with `log_avg_msec`, one for each window and direction, with block
//!           size and offset 0
//! packed    PREFIX_KIND.N.log.fz (`log_store_compressed`): streams of zlib, one behind the other, of rows in binary,
//!           little endian: ms 8, value 8, direction 4 with marks of an offset and of priorities in its top bits,
//!           priority 2, nothing 2, block size 8[, offset 8]
//! hist      clat_hist: ms, direction, block size, counts of fio's buckets since the row before
//! ```
//! [`write_all`] writes what a job asks for, [`parse`] reads a log of either program, [`unpack`] one that is packed.
//!
//! Source: fio's `stat.c` and `iolog.c`, through docs/studies/compatibility.md 4.5, and logs of fio 3.33. Known
//! deviations: a window ends on time, where fio ends it with the first I/O behind it (rows at 511 ms instead of 500);
//! the last window has a row even if it is short; packed rows have neither greatest values nor times of issue, and
//! histograms are not packed.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;
use iowhy_live::outcome::{CallRecord, ThreadOutcome};
use iowhy_stack::event::Op;
use iowhy_stack::units::Nanos;

use crate::job::{LogWindow, Logs};
use iowhy_text::diagnose::{Problem, Problems, Span};

/// Buckets of fio's histograms.
const NR_BUCKETS: usize = 29 * 64;
/// Most unreadable rows that are reported one by one.
const MAX_TOLD: usize = 10;

/// Quantity of a log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bandwidth.
    Bw,
    /// I/Os a second.
    Iops,
    /// Latency.
    Lat,
    /// Completion latency.
    Clat,
    /// Submission latency.
    Slat,
    /// Histograms of completion latency.
    ClatHist,
}

impl Kind {
    /// The part of a log's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bw => "bw",
            Kind::Iops => "iops",
            Kind::Lat => "lat",
            Kind::Clat => "clat",
            Kind::Slat => "slat",
            Kind::ClatHist => "clat_hist",
        }
    }
}

/// One thread (clone of a job) whose logs are written.
#[derive(Copy, Clone, Debug)]
pub struct LogThread<'a> {
    /// Number of the clone among all of the run, from 1.
    pub number: u32,
    /// Name of its job: the prefix if the option has no value.
    pub job: &'a str,
    /// Its settings.
    pub logs: &'a Logs,
    /// Its results. Logs of bandwidth and IOPS with `log_avg_msec` need `samples` only, each no longer than the window;
    /// all others need `calls`.
    pub outcome: &'a ThreadOutcome,
    /// Its engine is asynchronous: others have no submission latency.
    pub asynchronous: bool,
    /// Added to all times, ms (`log_unix_epoch`).
    pub epoch_ms: u64,
}

impl LogThread<'_> {
    /// Whether any log needs every call (`Thread::keep_calls`).
    pub fn needs_calls(logs: &Logs) -> bool {
        let each = logs.average_us == 0 && (logs.bandwidth.is_some() || logs.iops.is_some());
        each || logs.latency.is_some() || logs.histogram.is_some()
    }

    /// The logs: kind and name.
    pub fn names(&self) -> Vec<(Kind, String)> {
        let logs = self.logs;
        let wanted = [
            (&logs.latency, &[Kind::Lat, Kind::Slat, Kind::Clat][..]),
            (&logs.histogram, &[Kind::ClatHist][..]),
            (&logs.bandwidth, &[Kind::Bw][..]),
            (&logs.iops, &[Kind::Iops][..]),
        ];
        let mut names = Vec::new();
        for (prefix, kinds) in wanted {
            let Some(prefix) = prefix else { continue };
            let prefix = if prefix.is_empty() { self.job } else { prefix };
            for kind in kinds {
                let number = if logs.per_job { format!(".{}", self.number) } else { String::new() };
                let packed = if logs.packed && *kind != Kind::ClatHist { ".fz" } else { "" };
                names.push((*kind, format!("{prefix}_{}{number}.log{packed}", kind.name())));
            }
        }
        names
    }
}

/// Writes every log that the threads ask for; `create` opens a file by its name. Logs that several threads share
/// (`per_job_logs=0`) hold their rows one thread after the other. Returns them by name, flushed.
///
/// # Errors
/// The error of `create` or a writer, with the name in front.
pub fn write_all<W: Write>(
    threads: &[LogThread<'_>],
    create: &mut dyn FnMut(&str) -> io::Result<W>,
) -> io::Result<BTreeMap<String, W>> {
    let mut open: BTreeMap<String, W> = BTreeMap::new();
    for thread in threads {
        for (kind, name) in thread.names() {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("log `{name}`: {error}"));
            let out = match open.entry(name.clone()) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => free.insert(create(&name).map_err(named)?),
            };
            write(thread, kind, out).map_err(named)?;
        }
    }
    for (name, out) in &mut open {
        out.flush().map_err(|error| io::Error::new(error.kind(), format!("log `{name}`: {error}")))?;
    }
    Ok(open)
}

/// Writes one log of a thread.
///
/// # Errors
/// The error of `out`.
pub fn write(thread: &LogThread<'_>, kind: Kind, out: &mut impl Write) -> io::Result<()> {
    let logs = thread.logs;
    if kind == Kind::ClatHist {
        return write_histograms(thread, out);
    }
    if kind == Kind::Slat && !thread.asynchronous {
        return Ok(());
    }
    let columns = Columns::of(logs);
    if !logs.packed {
        return rows(thread, kind, &mut |row| columns.write(row, out));
    }
    let mut packed = ZlibEncoder::new(out, Compression::default());
    rows(thread, kind, &mut |row| packed.write_all(&row.packed(logs.offset)))?;
    packed.finish().map(|_| ())
}

/// The rows of a log of a thread, in their order.
fn rows(thread: &LogThread<'_>, kind: Kind, row: &mut dyn FnMut(&Row) -> io::Result<()>) -> io::Result<()> {
    let logs = thread.logs;
    if logs.average_us == 0 {
        for call in completed(&thread.outcome.calls) {
            let Some(direction) = Direction::of(call.op) else { continue };
            let issued = if matches!(kind, Kind::Clat | Kind::Slat) { call.at.0 + call.submission.0 } else { 0 };
            row(&Row {
                time_ms: thread.epoch_ms + end(call) / 1_000_000,
                value: value(kind, call),
                greatest: 0,
                direction,
                block_bytes: u64::from(call.len_bytes),
                offset: call.offset,
                priority: 0,
                issued_ns: issued,
            })?;
        }
        return Ok(());
    }
    for (end_ms, direction, (mean, greatest)) in windows(thread, kind) {
        let value = if logs.window == LogWindow::Max { greatest } else { mean };
        let (block_bytes, offset, priority, issued_ns) = (0, 0, 0, 0);
        row(&Row {
            time_ms: thread.epoch_ms + end_ms,
            value,
            greatest,
            direction,
            block_bytes,
            offset,
            priority,
            issued_ns,
        })?;
    }
    Ok(())
}

/// When a call was over, ns from the start of the run.
fn end(call: &CallRecord) -> u64 {
    call.at.0 + call.took.0.saturating_sub(call.late.0)
}

/// Data calls in the order of their ends.
fn completed(calls: &[CallRecord]) -> Vec<&CallRecord> {
    let mut calls: Vec<&CallRecord> = calls.iter().collect();
    calls.sort_by_key(|call| end(call));
    calls
}

/// The value of one call.
fn value(kind: Kind, call: &CallRecord) -> u64 {
    let clat = call.took.0.saturating_sub(call.late.0 + call.submission.0);
    match kind {
        // Of a single I/O fio reckons with thousands of bytes, and without its submission.
        Kind::Bw => (u64::from(call.len_bytes) * 1_000_000).checked_div(clat).unwrap_or(0),
        Kind::Iops => 1,
        Kind::Lat => call.took.0.saturating_sub(call.late.0),
        Kind::Clat | Kind::ClatHist => clat,
        Kind::Slat => call.submission.0,
    }
}

/// Values of a window: their sum with weights, the weights, and the greatest.
#[derive(Copy, Clone, Default)]
struct Window {
    sum: u128,
    weight: u128,
    greatest: u64,
}

impl Window {
    fn add(&mut self, value: u64, weight: u64) {
        self.sum += u128::from(value) * u128::from(weight);
        self.weight += u128::from(weight);
        self.greatest = self.greatest.max(value);
    }

    /// Mean and greatest, if there was anything.
    fn row(&self) -> Option<(u64, u64)> {
        let mean = (self.sum + self.weight / 2).checked_div(self.weight)?;
        Some((u64::try_from(mean).unwrap_or(u64::MAX), self.greatest))
    }
}

/// Logs of the whole run's bandwidth (`--bandwidth-log`), by direction.
pub const TOTALS: [&str; 3] = ["agg-read_bw.log", "agg-write_bw.log", "agg-trim_bw.log"];

/// Their rows: the bandwidth of all threads in each sample of `length`, KiB/s.
pub fn totals(threads: &[ThreadOutcome], length: Nanos) -> [String; 3] {
    let mut found: BTreeMap<u64, (u64, [u128; 3])> = BTreeMap::new();
    for sample in threads.iter().flat_map(|thread| &thread.samples).filter(|sample| sample.length.0 > 0) {
        let middle = sample.end.0.saturating_sub(sample.length.0 / 2);
        let (end, rates) = found.entry(middle / length.0.max(1)).or_default();
        *end = sample.end.0.max(*end);
        let counts = &sample.counts;
        let bytes = [counts.read_bytes, counts.written_bytes, counts.trimmed_bytes];
        for (rate, bytes) in rates.iter_mut().zip(bytes) {
            *rate += u128::from(bytes) * 1_000_000_000 / u128::from(sample.length.0);
        }
    }
    std::array::from_fn(|number| {
        let row = |(end, rates): &(u64, [u128; 3])| {
            format!("{}, {}, {number}, 0, 0\n", end / 1_000_000, rates[number] / 1024)
        };
        found.values().map(row).collect()
    })
}

/// Rows of averages: the end of the window in ms, direction, mean and greatest.
fn windows(thread: &LogThread<'_>, kind: Kind) -> Vec<(u64, Direction, (u64, u64))> {
    let length = thread.logs.average_us.saturating_mul(1000).max(1);
    let mut found: BTreeMap<u64, [Window; 3]> = BTreeMap::new();
    let mut last = 0;
    if matches!(kind, Kind::Bw | Kind::Iops) {
        for sample in &thread.outcome.samples {
            // A sample belongs to the window that its middle is in: the clock is never quite on time.
            let middle = sample.end.0.saturating_sub(sample.length.0 / 2);
            let windows = found.entry(middle / length).or_default();
            last = last.max(sample.end.0);
            let counts = &sample.counts;
            let done = [
                (counts.reads, counts.read_bytes),
                (counts.writes, counts.written_bytes),
                (counts.trims, counts.trimmed_bytes),
            ];
            for (window, (calls, bytes)) in windows.iter_mut().zip(done) {
                let amount = u128::from(if kind == Kind::Bw { bytes } else { calls });
                if amount == 0 || sample.length.0 == 0 {
                    continue;
                }
                let rate = amount * 1_000_000_000 / u128::from(sample.length.0);
                let rate = if kind == Kind::Bw { rate / 1024 } else { rate };
                window.add(u64::try_from(rate).unwrap_or(u64::MAX), sample.length.0);
            }
        }
    } else {
        for call in &thread.outcome.calls {
            let Some(direction) = Direction::of(call.op) else { continue };
            last = last.max(end(call));
            found.entry(end(call) / length).or_default()[direction as usize].add(value(kind, call), 1);
        }
    }
    let mut rows = Vec::new();
    for (number, windows) in found {
        let end_ms = ((number + 1) * length).min(last).div_ceil(1_000_000);
        for (direction, window) in [Direction::Read, Direction::Write, Direction::Trim].into_iter().zip(windows) {
            rows.extend(window.row().map(|row| (end_ms, direction, row)));
        }
    }
    rows
}

/// The log of histograms: a row for each direction as soon as an I/O completes an interval after the row before.
fn write_histograms(thread: &LogThread<'_>, out: &mut impl Write) -> io::Result<()> {
    let logs = thread.logs;
    let interval_ms = logs.histogram_us / 1000;
    if interval_ms == 0 {
        return Ok(());
    }
    let stride = 1 << logs.coarseness.min(6);
    let mut counts: [Vec<u64>; 3] = std::array::from_fn(|_| vec![0; NR_BUCKETS]);
    let mut last: [Option<u64>; 3] = [None; 3];
    for call in completed(&thread.outcome.calls) {
        let Some(direction) = Direction::of(call.op) else { continue };
        let (counts, last) = (&mut counts[direction as usize], &mut last[direction as usize]);
        counts[bucket(value(Kind::ClatHist, call))] += 1;
        let now = end(call) / 1_000_000;
        let since = now - *last.get_or_insert(now);
        if since < interval_ms {
            continue;
        }
        // The excess over the interval counts for the next one.
        *last = Some(now - (since - interval_ms));
        write!(out, "{}, {}, {}", thread.epoch_ms + now, direction as u32, call.len_bytes)?;
        for run in counts.chunks(stride) {
            write!(out, ", {}", run.iter().sum::<u64>())?;
        }
        writeln!(out)?;
        counts.fill(0);
    }
    Ok(())
}

/// fio's bucket of a latency: one for each value below 128, then 64 for each power of two.
fn bucket(ns: u64) -> usize {
    if ns < 128 {
        return ns as usize;
    }
    let shift = ns.ilog2() - 6;
    let within = (ns >> shift) as usize & 63;
    ((shift as usize + 1) * 64 + within).min(NR_BUCKETS - 1)
}

/// Direction of an I/O, with fio's numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// 0.
    Read,
    /// 1.
    Write,
    /// 2.
    Trim,
}

impl Direction {
    fn of(op: Op) -> Option<Direction> {
        match op {
            Op::Read => Some(Direction::Read),
            Op::Write => Some(Direction::Write),
            Op::Trim => Some(Direction::Trim),
            Op::Fsync | Op::Fdatasync => None,
        }
    }
}

/// A row of a log; missing columns are 0.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When, ms from the start.
    pub time_ms: u64,
    /// The value: KiB/s, I/Os a second, or ns.
    pub value: u64,
    /// The greatest value, if the log has both and is one of averages.
    pub greatest: u64,
    pub direction: Direction,
    /// Bytes of the I/O; 0 in rows of averages.
    pub block_bytes: u64,
    /// Where.
    pub offset: u64,
    pub priority: u32,
    /// When it was handed to the kernel, ns from the start (clat and slat).
    pub issued_ns: u64,
}

/// Marks in the direction of a packed row: an offset follows, and priorities are whole.
const WITH_OFFSET: u32 = 1 << 31;
const WITH_PRIORITY: u32 = 1 << 30;

impl Row {
    /// The row in binary, with its offset or without.
    fn packed(&self, offset: bool) -> Vec<u8> {
        let mut bytes = vec![0; if offset { 40 } else { 32 }];
        let marks = if offset { WITH_OFFSET } else { 0 };
        bytes[..8].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.direction as u32 | marks).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.block_bytes.to_le_bytes());
        if offset {
            bytes[32..].copy_from_slice(&self.offset.to_le_bytes());
        }
        bytes
    }
}

/// Writes the rows of a packed log (`log_store_compressed`) of either program as text.
///
/// # Errors
/// That of `from`, which may not be such a log, or of `out`.
pub fn unpack(mut from: impl BufRead, out: &mut impl Write) -> io::Result<()> {
    while !from.fill_buf()?.is_empty() {
        let mut stream = io::BufReader::new(ZlibDecoder::new(&mut from));
        while !stream.fill_buf()?.is_empty() {
            let mut row = [0; 32];
            stream.read_exact(&mut row)?;
            let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
            let (time, value, size) = (number(0), number(8), number(24));
            let (marks, priority) = (number(16) as u32, (number(16) >> 32) as u16);
            write!(out, "{time}, {}, {}, {size}, ", value.cast_signed(), marks & !(WITH_OFFSET | WITH_PRIORITY))?;
            if marks & WITH_OFFSET > 0 {
                let mut offset = [0; 8];
                stream.read_exact(&mut offset)?;
                write!(out, "{}, ", u64::from_le_bytes(offset))?;
            }
            if marks & WITH_PRIORITY > 0 {
                writeln!(out, "{priority:#06x}")?;
            } else {
                // The class for real time, as fio has it.
                writeln!(out, "{}", u32::from(priority >> 13 == 1))?;
            }
        }
    }
    Ok(())
}

/// Which columns a log has besides those that all have.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Mean and greatest value (`log_window_value=both`).
    pub both: bool,
    /// Offset (`log_offset`).
    pub offset: bool,
    /// Time of issue (`log_issue_time`).
    pub issued: bool,
}

impl Columns {
    /// Those of the logs of a job.
    pub fn of(logs: &Logs) -> Columns {
        Columns { both: logs.window == LogWindow::Both, offset: logs.offset, issued: logs.issue_time }
    }

    fn write(self, row: &Row, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{}, {}", row.time_ms, row.value)?;
        if self.both {
            write!(out, ", {}", row.greatest)?;
        }
        write!(out, ", {}, {}", row.direction as u32, row.block_bytes)?;
        if self.offset {
            write!(out, ", {}", row.offset)?;
        }
        write!(out, ", {}", row.priority)?;
        if self.issued {
            write!(out, ", {}", row.issued_ns)?;
        }
        writeln!(out)
    }
}

/// Reads a log (not one of histograms). `name` is what problems call it. Rows of before fio 3.20 end with the block
/// size and have no priority; others must have the columns.
pub fn parse(name: &str, text: &str, columns: Columns, problems: &mut Problems) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut nr_bad = 0_usize;
    for (number, line) in (1_u64..).zip(text.lines()) {
        match parse_row(line, columns) {
            Ok(row) => rows.push(row),
            Err(what) => {
                nr_bad += 1;
                if nr_bad <= MAX_TOLD {
                    let shown: String = line.chars().take(100).collect();
                    problems.push(Problem::error(format!("{name}:{number}: {what}")).at(Span::whole(&shown)));
                }
            }
        }
    }
    if nr_bad > MAX_TOLD {
        problems.push(Problem::error(format!("{name}: {} more rows have such problems", nr_bad - MAX_TOLD)));
    }
    rows
}

fn parse_row(line: &str, columns: Columns) -> Result<Row, String> {
    let nr_columns = line.split(',').count();
    let mut nr_fields = 0;
    let mut fields = line.split(',').map(str::trim);
    let mut take = |what: &str| -> Result<u64, String> {
        nr_fields += 1;
        let field = fields.next().ok_or_else(|| format!("column {nr_fields}, {what}, is missing"))?;
        let value = match field.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => field.parse(),
        };
        value.map_err(|_| format!("column {nr_fields}, {what}, is `{field}`, which is not a number"))
    };
    let time_ms = take("the time")?;
    let value = take("the value")?;
    let greatest = if columns.both { take("the greatest value")? } else { 0 };
    let direction = match take("the direction")? {
        0 => Direction::Read,
        1 => Direction::Write,
        2 => Direction::Trim,
        other => return Err(format!("the direction is {other}: 0, 1 and 2 are read, write and trim")),
    };
    let block_bytes = take("the block size")?;
    let offset = if columns.offset { take("the offset")? } else { 0 };
    let without_priority = !columns.issued && nr_columns == 4 + usize::from(columns.both) + usize::from(columns.offset);
    let priority = if without_priority { 0 } else { take("the priority")? };
    let issued_ns = if columns.issued { take("the time of issue")? } else { 0 };
    if fields.next().is_some() {
        return Err(format!("there are more than {nr_fields} columns"));
    }
    let priority = u32::try_from(priority).unwrap_or(u32::MAX);
    Ok(Row { time_ms, value, greatest, direction, block_bytes, offset, priority, issued_ns })
}

#[cfg(test)]
mod tests;
