//! Reads blkparse's default text.
//!
//! A line that cannot be read is reported with its column and left out; the others are kept. The sums end the text.
//! Names of processes are those in brackets; a sector cut to 32 bits (of a split) and the bytes below a sector are
//! lost. Additions of `-t` are skipped. A passthrough command's sector is not in the text.

use std::collections::BTreeMap;

use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, SECTOR_BYTES, Sector};

use iowhy_text::diagnose::{Problem, Problems, Span};

/// Most unreadable lines that are reported one by one.
const MAX_TOLD: usize = 10;

/// A mistake in a line, and its byte.
struct Mistake {
    at: usize,
    end: usize,
    wanted: &'static str,
}

/// blkparse's line for each file it opens.
const OPENED: &str = "Input file ";

/// Whether a file with this beginning is blkparse's text: its first line is one.
pub fn detect(_: &str, bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').skip_while(|line| line.starts_with(OPENED.as_bytes()));
    let line = lines.next().unwrap_or_default();
    std::str::from_utf8(line).is_ok_and(|line| line_of(line, &mut BTreeMap::new()).is_ok_and(|found| found.is_some()))
}

/// Reads the bytes of a file.
pub fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let trace = parse(name, &String::from_utf8_lossy(bytes), problems);
    if trace.records.is_empty() {
        problems.push(Problem::error(format!("{name}: no line of it is one of blkparse's")));
        return None;
    }
    Some(trace)
}

/// Reads the text. Lines that cannot be read are warnings.
pub fn parse(name: &str, text: &str, problems: &mut Problems) -> Trace {
    let mut trace = Trace::default();
    let mut names = BTreeMap::new();
    let mut nr_wrong = 0;
    for (nr, line) in text.lines().enumerate() {
        if line.starts_with("CPU") || line.starts_with("Total (") || line.starts_with("Throughput (") {
            break;
        }
        if line.starts_with(OPENED) {
            continue;
        }
        match line_of(line, &mut names) {
            Ok(record) => trace.records.extend(record),
            Err(mistake) => {
                nr_wrong += 1;
                if nr_wrong <= MAX_TOLD {
                    problems.push(told(name, nr + 1, line, &mistake));
                }
            }
        }
    }
    if nr_wrong > MAX_TOLD {
        problems.push(Problem::warning(format!("{name}: {} more lines have such problems", nr_wrong - MAX_TOLD)));
    }
    if !trace.records.is_sorted_by_key(|record| record.at) {
        trace.records.sort_by_key(|record| record.at);
    }
    trace.names = names.into_iter().collect();
    trace
}

fn told(name: &str, number: usize, line: &str, mistake: &Mistake) -> Problem {
    /// Characters that are shown on either side.
    const AROUND: usize = 60;
    let column = line.get(..mistake.at).map_or(0, |before| before.chars().count());
    let message = format!("{name}:{number}:{}: expected {}; the line is left out", column + 1, mistake.wanted);
    let start = line.floor_char_boundary(mistake.at.saturating_sub(AROUND));
    let end = line.ceil_char_boundary((mistake.at + AROUND).min(line.len()));
    let shown = &line[start..end];
    let width = (mistake.end - mistake.at).min(shown.len().saturating_sub(mistake.at - start));
    Problem::warning(message).at(Span::bytes(shown, mistake.at - start, mistake.at - start + width))
}

/// Words of a line.
struct Words<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn rest(&self) -> &'a str {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    /// The text found instead.
    fn wrong(&self, wanted: &'static str) -> Mistake {
        let end = self.rest().find(' ').map_or(self.line.len(), |blank| self.at + blank);
        Mistake { at: self.at, end, wanted }
    }

    fn word(&mut self, wanted: &'static str) -> Result<&'a str, Mistake> {
        self.blanks();
        let word = self.rest().split(' ').next().unwrap_or_default();
        if word.is_empty() {
            return Err(self.wrong(wanted));
        }
        self.at += word.len();
        Ok(word)
    }

    /// A number up to the next character that is not a digit.
    fn number(&mut self, wanted: &'static str) -> Result<u64, Mistake> {
        self.blanks();
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let number = self.rest()[..digits].parse().map_err(|_| self.wrong(wanted))?;
        self.at += digits;
        Ok(number)
    }

    fn number32(&mut self, wanted: &'static str) -> Result<u32, Mistake> {
        self.blanks();
        let before = self.at;
        let number = self.number(wanted)?;
        u32::try_from(number).map_err(|_| Mistake { at: before, end: self.at, wanted })
    }

    fn expect(&mut self, text: &str, wanted: &'static str) -> Result<(), Mistake> {
        if !self.rest().starts_with(text) {
            return Err(self.wrong(wanted));
        }
        self.at += text.len();
        Ok(())
    }

    /// Skips `text` if it is next.
    fn skip(&mut self, text: &str) -> bool {
        self.blanks();
        let there = self.rest().starts_with(text);
        self.at += if there { text.len() } else { 0 };
        there
    }

    fn end(&mut self) -> Result<(), Mistake> {
        self.blanks();
        if self.rest().is_empty() { Ok(()) } else { Err(self.wrong("the end of the line")) }
    }

    /// A device.
    fn dev(&mut self) -> Result<Dev, Mistake> {
        const WANTED: &str = "a device, as in `8,0`";
        self.blanks();
        let before = self.at;
        let major = self.number32(WANTED)?;
        self.expect(",", WANTED)?;
        let minor = self.number32(WANTED)?;
        if major >= 1 << 12 || minor >= 1 << 20 {
            return Err(Mistake { at: before, end: self.at, wanted: WANTED });
        }
        Ok(Dev::new(major, minor))
    }

    /// `sector + sectors`, or nothing if the line goes on with a bracket. `done`: it is of a C or R.
    fn sectors(&mut self, extent: &mut Extent, done: bool) -> Result<(), Mistake> {
        self.blanks();
        if self.rest().starts_with('[') {
            return Ok(());
        }
        extent.sector = Sector(self.number("a sector")?);
        let counted = self.skip("+ ");
        if counted {
            const WANTED: &str = "a number of sectors";
            self.blanks();
            let before = self.at;
            let sectors = self.number(WANTED)?;
            let bytes = sectors.checked_mul(SECTOR_BYTES).and_then(|bytes| u32::try_from(bytes).ok());
            extent.bytes = bytes.ok_or(Mistake { at: before, end: self.at, wanted: WANTED })?;
        }
        // With `-t` there is the time it took. A command's bytes begin the same.
        if (counted || done) && self.skip("(") {
            self.number("a time in ns")?;
            self.expect(")", "`)`")?;
        }
        Ok(())
    }

    /// `[process]`, which may have brackets and blanks in it. `behind`: something follows.
    fn process(&mut self, behind: bool) -> Result<&'a str, Mistake> {
        const WANTED: &str = "a process, as in `[fio]`";
        self.blanks();
        let length = match self.rest().rfind(']') {
            Some(length) if behind || self.at + length + 1 == self.line.trim_end().len() => length,
            _ => return Err(self.wrong(WANTED)),
        };
        let name = self.rest()[..length].strip_prefix('[').ok_or_else(|| self.wrong(WANTED))?;
        self.at += length + 1;
        Ok(name)
    }

    fn error(&mut self) -> Result<i32, Mistake> {
        const WANTED: &str = "an error, as in `[0]`";
        self.blanks();
        let before = self.at;
        self.expect("[", WANTED)?;
        let minus = self.skip("-");
        let error = self.number(WANTED)?;
        self.expect("]", WANTED)?;
        let error = u16::try_from(error).map_err(|_| Mistake { at: before, end: self.at, wanted: WANTED })?;
        // The kernel's negative number is printed without its sign.
        let error = i32::from(error as i16);
        Ok(if minus { -error } else { error })
    }

    /// A command's bytes.
    fn command(&mut self) -> Result<(), Mistake> {
        if self.skip("(") {
            let length = self.rest().find(')').ok_or_else(|| self.wrong("a command, as in `(12 00 ..)`"))?;
            self.at += length + 1;
        }
        Ok(())
    }
}

/// The record of a line; an empty line has none.
fn line_of(line: &str, names: &mut BTreeMap<u32, String>) -> Result<Option<Record>, Mistake> {
    let mut words = Words { line, at: 0 };
    if line.trim().is_empty() {
        return Ok(None);
    }
    let dev = words.dev()?;
    let cpu = words.number32("a CPU")?;
    // Numbers that are too large for blkparse are negative.
    words.skip("-");
    words.number("a sequence number")?;
    let at = time(&mut words)?;
    let pid = words.number32("a process's number")?;
    words.blanks();
    let before = words.at;
    let action = words.word("an action")?;
    if action == "m" {
        words.word("RWBS letters")?;
        let text = words.rest().strip_prefix(' ').unwrap_or_default().to_owned();
        return Ok(Some(Record { at, cpu, pid, seen: Seen::Message { dev, text } }));
    }
    let rwbs = rwbs(&mut words)?;
    let mut extent = Extent { dev, rwbs, ..Extent::default() };
    let mut process = None;
    let seen = match action {
        "C" | "R" => {
            words.blanks();
            let other = words.rest().starts_with(['(', '[']);
            if other {
                words.command()?;
                extent.rwbs = extent.rwbs.with(Rwbs::PASSTHROUGH);
            } else {
                words.sectors(&mut extent, true)?;
            }
            let error = words.error()?;
            if action == "C" { Seen::Complete { extent, error } } else { Seen::Requeue(extent) }
        }
        "Q" | "I" | "D" | "B" | "M" | "F" | "G" | "S" => {
            words.blanks();
            let first = words.at;
            words.sectors(&mut extent, false)?;
            // Bytes instead of sectors: a command that is not of a file system.
            if words.at > first && !line[first..words.at].contains('+') {
                words.at = first;
                extent.sector = Sector(0);
                extent.bytes = words.number32("bytes")?;
                extent.rwbs = extent.rwbs.with(Rwbs::PASSTHROUGH);
                words.command()?;
            }
            process = Some(words.process(false)?);
            match action {
                "Q" => Seen::Queue(extent),
                "I" => Seen::Insert(extent),
                "D" => Seen::Issue(extent),
                "B" => Seen::Bounce(extent),
                "M" => Seen::BackMerge(extent),
                "F" => Seen::FrontMerge(extent),
                "G" => Seen::GetRequest(extent),
                _ => Seen::Sleep(extent),
            }
        }
        "P" => {
            process = Some(words.process(false)?);
            Seen::Plug { dev: Some(dev) }
        }
        "U" | "UT" => {
            process = Some(words.process(true)?);
            let nr_requests = words.number32("a number of requests")?;
            Seen::Unplug { dev: Some(dev), nr_requests, timer: action == "UT" }
        }
        "A" => {
            words.sectors(&mut extent, false)?;
            const WANTED: &str = "where it comes from, as in `<- (8,0) 4096`";
            words.blanks();
            words.expect("<- (", WANTED)?;
            let from = words.dev()?;
            words.expect(")", WANTED)?;
            let from_sector = Sector(words.number("a sector")?);
            Seen::Remap { extent, from, from_sector }
        }
        "X" => {
            extent.sector = Sector(words.number("a sector")?);
            words.blanks();
            words.expect("/", "`/` and the sector of the rest")?;
            let rest = Sector(words.number("the sector of the rest")?);
            process = Some(words.process(false)?);
            Seen::Split { extent, rest }
        }
        _ => return Err(Mistake { at: before, end: words.at, wanted: "an action of blkparse's" }),
    };
    words.end()?;
    if let Some(name) = process.filter(|name| *name != "(null)") {
        names.entry(pid).or_insert_with(|| name.to_owned());
    }
    Ok(Some(Record { at, cpu, pid, seen }))
}

fn time(words: &mut Words<'_>) -> Result<Nanos, Mistake> {
    const WANTED: &str = "seconds and nine digits behind a point";
    words.blanks();
    let before = words.at;
    let seconds = words.number(WANTED)?;
    words.expect(".", WANTED)?;
    let digits = words.at;
    let ns = words.number(WANTED)?;
    let time = seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(ns));
    match time {
        Some(time) if words.at - digits == 9 => Ok(Nanos(time)),
        _ => Err(Mistake { at: before, end: words.at, wanted: WANTED }),
    }
}

/// RWBS letters. `F` in front of the direction is a flush, behind it FUA.
fn rwbs(words: &mut Words<'_>) -> Result<Rwbs, Mistake> {
    const WANTED: &str = "RWBS letters";
    let word = words.word(WANTED)?;
    let mut rwbs = Rwbs::default();
    let mut direction = false;
    for letter in word.bytes() {
        let flag = match letter {
            b'F' if !direction => Rwbs::PREFLUSH,
            b'F' => Rwbs::FUA,
            b'R' => Rwbs::READ,
            b'W' => Rwbs::WRITE,
            b'D' => Rwbs::DISCARD,
            b'N' => Rwbs::default(),
            b'A' => Rwbs::AHEAD,
            b'S' => Rwbs::SYNC,
            b'M' => Rwbs::META,
            _ => return Err(Mistake { at: words.at - word.len(), end: words.at, wanted: WANTED }),
        };
        direction |= matches!(letter, b'R' | b'W' | b'D' | b'N');
        rwbs = rwbs.with(flag);
    }
    Ok(rwbs)
}
