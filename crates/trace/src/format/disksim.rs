//! DiskSim's traces: text with a line for each request of a disk.
//!
//! ```text
//! ascii     arrival (ms)  device  block  blocks  flags (bit 0: a read)
//! validate  R or W  Hit, Miss, Doub or Trip  block  blocks  response time (us)  pause until the next (us)
//! ```
//! A block has 512 bytes. The first form, DiskSim's default, has the arrivals of requests and nothing more; the second,
//! of drives that were measured with one request at a time, also the time that each took. Read as requests of the
//! queue, from which the command is issued at once. A trace is written in the first form: its issues, or its bios.
//!
//! Source: DiskSim 4.0 reference manual (2008), chapter on input traces; the validation traces that come with it.

use std::io::{self, Write};

use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, SECTOR_BYTES, Sector};
use iowhy_text::diagnose::{Problem, Problems, Span};

use super::{Format, Reading, Writing};

/// The form.
pub const FORMAT: Format = Format {
    name: "disksim",
    summary: "DiskSim's ASCII trace; read as well: its validation traces",
    extensions: &["disksim"],
    detect,
    read: Reading::One(read),
    write: Writing::One(write),
};

/// One line.
enum Line {
    Arrival { at: Nanos, extent: Extent },
    Measured { extent: Extent, took: Nanos, pause: Nanos },
}

/// Lines that are looked at for the form.
const LOOKED_AT: usize = 3;

fn detect(_: &str, bytes: &[u8]) -> bool {
    let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    let lines: Vec<&str> = beginning.lines().filter(|line| !line.trim().is_empty()).take(LOOKED_AT + 1).collect();
    let whole = lines.len().min(if bytes.len() > 4096 { lines.len().saturating_sub(1) } else { lines.len() });
    let lines = &lines[..whole.min(LOOKED_AT)];
    !lines.is_empty() && lines.iter().all(|line| parse(line).is_ok())
}

fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let text = super::text_of(name, bytes, problems);
    let mut trace = Trace::default();
    let mut now = Nanos::ZERO;
    for (nr, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut add = |at, seen| trace.records.push(Record { at, cpu: 0, pid: 1, seen });
        match parse(line) {
            Ok(Line::Arrival { at, extent }) => {
                add(at, Seen::Queue(extent));
                add(at, Seen::Issue(extent));
            }
            Ok(Line::Measured { extent, took, pause }) => {
                let done = Nanos(now.0.saturating_add(took.0));
                add(now, Seen::Queue(extent));
                add(now, Seen::Issue(extent));
                add(done, Seen::Complete { extent, error: 0 });
                now = Nanos(done.0.saturating_add(pause.0));
            }
            Err((column, message)) => {
                let start = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
                let word = line[start..].split_whitespace().next().map_or(0, str::len);
                let problem = Problem::error(format!("{name}:{}:{}: {message}", nr + 1, column + 1));
                problems.push(problem.at(Span::bytes(line, start, start + word)));
            }
        }
    }
    // Arrivals of several devices need not be in order.
    trace.records.sort_by_key(|record| record.at);
    trace.names.push((1, "disksim".to_owned()));
    Some(trace)
}

/// The device of a number: our traces have loop devices for those that are only numbers.
fn dev(number: u32) -> Dev {
    Dev::new(7, number)
}

/// A line, or the column (from 0) and the mistake.
fn parse(line: &str) -> Result<Line, (usize, String)> {
    let words: Vec<(usize, &str)> = line.split_whitespace().map(|word| (column(line, word), word)).collect();
    let measured = matches!(words.first(), Some((_, "R" | "W")));
    let wanted = if measured { 6 } else { 5 };
    if words.len() != wanted {
        let text = format!("a line has 5 columns, or 6 after R or W: these are {}", words.len());
        return Err((words.get(wanted).map_or(0, |(column, _)| *column), text));
    }
    let whole = |nr: usize, most: u64, what: &str| {
        let (column, word) = words[nr];
        let found = word.parse::<u64>().ok().filter(|number| *number <= most);
        found.ok_or_else(|| (column, format!("the {what} is a whole number up to {most}, not `{word}`")))
    };
    let time = |nr: usize, unit_ns: f64, what: &str| {
        let (column, word) = words[nr];
        let found = word.parse::<f64>().ok().map(|time| time * unit_ns).filter(|ns| (0.0..4e18).contains(ns));
        let ns = found.ok_or_else(|| (column, format!("the {what} is a number from 0 on, not `{word}`")))?;
        Ok(Nanos(ns.round() as u64))
    };
    let most_blocks = u64::from(u32::MAX) / SECTOR_BYTES;
    let extent = |dev: Dev, read: bool| {
        let (sector, blocks) = (whole(2, 1 << 53, "block")?, whole(3, most_blocks, "number of blocks")?);
        let rwbs = if read { Rwbs::READ } else { Rwbs::WRITE };
        Ok(Extent { dev, sector: Sector(sector), bytes: (blocks * SECTOR_BYTES) as u32, rwbs })
    };
    if !measured {
        let at = time(0, 1e6, "arrival")?;
        let (device, flags) = (whole(1, 0xf_ffff, "device")?, whole(4, u64::from(u32::MAX), "flags")?);
        return Ok(Line::Arrival { at, extent: extent(dev(device as u32), flags & 1 == 1)? });
    }
    let (column, kind) = words[1];
    if !["Hit", "Miss", "Doub", "Trip"].contains(&kind) {
        return Err((column, format!("Hit, Miss, Doub or Trip, not `{kind}`")));
    }
    Ok(Line::Measured {
        extent: extent(dev(0), words[0].1 == "R")?,
        took: time(4, 1e3, "response time")?,
        pause: time(5, 1e3, "pause")?,
    })
}

/// The column, from 0, of a part of a line.
fn column(line: &str, part: &str) -> usize {
    line[..part.as_ptr() as usize - line.as_ptr() as usize].chars().count()
}

fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let issued = trace.records.iter().any(|record| matches!(record.seen, Seen::Issue(_)));
    for record in &trace.records {
        let ((Seen::Issue(extent), true) | (Seen::Queue(extent), false)) = (&record.seen, issued) else { continue };
        let blocks = u64::from(extent.bytes).div_ceil(SECTOR_BYTES);
        if blocks == 0 || !extent.rwbs.has(Rwbs::READ) && !extent.rwbs.has(Rwbs::WRITE) {
            continue;
        }
        let (ms, ns) = (record.at.0 / 1_000_000, record.at.0 % 1_000_000);
        let read = u8::from(!extent.rwbs.has(Rwbs::WRITE));
        writeln!(out, "{ms}.{ns:06} {} {} {blocks} {read}", extent.dev.minor(), extent.sector.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> (Trace, Vec<String>) {
        let mut problems = Problems::default();
        let trace = read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
        (trace, problems.list.into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn both_forms_are_read_and_the_first_is_written() {
        let ascii = "1.500000 2 100 8 1\n2.000000 0 7 1 0\n";
        let (trace, problems) = records(ascii);
        assert_eq!(problems, [""; 0]);
        let mut written = Vec::new();
        write(&trace, &mut written).expect("a buffer");
        assert_eq!(String::from_utf8_lossy(&written), ascii);
        let (trace, problems) = records("R Hit    1975456   4  15362.00000  56074.00000\nW Miss 9 12 500.5 0\n");
        assert_eq!(problems, [""; 0]);
        let extent =
            |sector, blocks: u32, rwbs| Extent { dev: dev(0), sector: Sector(sector), bytes: blocks * 512, rwbs };
        let (first, second) = (extent(1_975_456, 4, Rwbs::READ), extent(9, 12, Rwbs::WRITE));
        let seen: Vec<(u64, Seen)> = trace.records.into_iter().map(|record| (record.at.0, record.seen)).collect();
        assert_eq!(
            seen,
            [
                (0, Seen::Queue(first)),
                (0, Seen::Issue(first)),
                (15_362_000, Seen::Complete { extent: first, error: 0 }),
                (71_436_000, Seen::Queue(second)),
                (71_436_000, Seen::Issue(second)),
                (71_936_500, Seen::Complete { extent: second, error: 0 }),
            ]
        );
    }

    #[test]
    fn mistakes_have_line_and_column_and_the_rest_is_read() {
        let (trace, problems) = records("1 0 5 8 1\nx 0 5 8 1\n1 0 5 8\nR Hat 1 1 1 1\nW Hit 1 1 1 -1\n2 0 6 8 1\n");
        assert_eq!(
            problems,
            [
                "t.trace:2:1: the arrival is a number from 0 on, not `x`",
                "t.trace:3:1: a line has 5 columns, or 6 after R or W: these are 4",
                "t.trace:4:3: Hit, Miss, Doub or Trip, not `Hat`",
                "t.trace:5:13: the pause is a number from 0 on, not `-1`",
            ]
        );
        assert_eq!(trace.records.len(), 4);
        assert!(!detect("t", b"a b c d e\n") && !detect("t", b"") && detect("t", b"1 0 5 8 1\n"));
    }
}
