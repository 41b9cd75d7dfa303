//! The text of `/sys/kernel/tracing/trace`; that of `trace-cmd report` and `perf script` is read, too.
//!
//! ```text
//! tracefs      `  fio-1234  [001] d..1.  1234.567890: block_rq_issue: 7,1 R 4096 () 8 + 8 none,0,0 [fio]`
//!              `  fio-1234  [001] .....  1234.567890: sys_pread64(fd: 3, buf: 0, count: 1000, pos: 0)`
//! trace-cmd    the same without flags, `sys_enter_pread64: fd: 0x03, .. pos: 0x0`
//! perf         `fio  1234 [001]  1234.567890: block:block_rq_issue: 7,1 R ..`
//! ```
//! Events that are none of [`Seen`]'s kinds are kept as [`Seen::Other`]; meaningless lines are reported with line and
//! column and skipped. Written is the first form, with nanoseconds, and lines with `# iowhy` about the whole trace.
//! Known limits of the form: it does not have devices of plugs, bytes other than whole sectors, the device of a message
//! in a kernel's own file, and the kind of a system call beyond its operation.
//!
//! Source: the print formats of 6.18 (`events/*/format`) and of older kernels, which have less behind the numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES, Sector};

use super::{Format, Reading, Writing};
use crate::row::{rwbs_letters, rwbs_of};
use iowhy_text::diagnose::{Problem, Problems, Span};

/// The form.
pub const FORMAT: Format = Format {
    name: "tracefs",
    summary: "text as in /sys/kernel/tracing/trace; that of trace-cmd and perf script is read, too",
    extensions: &["trace", "txt"],
    detect,
    read: Reading::One(read),
    write: Writing::One(|trace, mut out| write(trace, &mut out)),
};

/// Most mistakes that are reported one by one.
const MAX_TOLD: usize = 10;

/// Whether a file of this name that begins with these bytes is one.
pub fn detect(_name: &str, bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(8192)];
    let text = String::from_utf8_lossy(head);
    let line = |line: &str| Line::parse(line).is_ok_and(|line| line.is_some());
    text.starts_with("# tracer:") || text.starts_with("# iowhy-trace") || text.lines().take(30).any(line)
}

/// A line that is an event.
struct Line<'a> {
    comm: &'a str,
    pid: u32,
    cpu: u32,
    ns: u64,
    event: &'a str,
}

/// A mistake, and its byte in the line.
type Wrong = (usize, String);

impl<'a> Line<'a> {
    /// Nothing for a line that is a comment or empty.
    fn parse(line: &'a str) -> Result<Option<Line<'a>>, Wrong> {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        // The name of a task may hold brackets; the CPU is in the first that hold digits only and follow a blank.
        let mut from = 0;
        let (open, cpu, rest) = loop {
            let Some(open) = line[from..].find(" [").map(|at| from + at + 1) else {
                return Err((0, "no CPU in brackets".to_owned()));
            };
            let inside = &line[open + 1..];
            if let Some((number, rest)) = inside.split_once(']')
                && let Ok(cpu) = number.parse::<u32>()
            {
                break (open, cpu, rest);
            }
            from = open + 1;
        };
        let (comm, pid) = task(&line[..open]).ok_or((0, "this names no task with a number".to_owned()))?;
        let at = line.len() - rest.len();
        let mut found = None;
        for word in rest.split_whitespace().take(3) {
            if let Some(ns) = word.strip_suffix(':').and_then(time) {
                let end = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
                found = Some((ns, end));
                break;
            }
        }
        let (ns, end) = found.ok_or((at, "no time behind the CPU".to_owned()))?;
        Ok(Some(Line { comm, pid, cpu, ns, event: line[end..].trim() }))
    }
}

/// Name and number of a task: `fio-12`, `fio-12 (  12)` or `fio  12`.
fn task(text: &str) -> Option<(&str, u32)> {
    let mut text = text.trim();
    if let Some(group) = text.strip_suffix(')').and_then(|text| text.rfind('(').map(|at| &text[..at])) {
        text = group.trim_end();
    }
    let at = text.rfind(|c: char| !c.is_ascii_digit())?;
    // Whatever stands before the digits may take more than one byte.
    let digits = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
    let pid = text[digits..].parse().ok()?;
    Some((text[..at].trim_end(), pid))
}

/// Seconds with a fraction, as nanoseconds.
fn time(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()? * scale)
}

/// Reads one. Meaningless lines are reported and skipped.
pub fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let text = super::text_of(name, bytes, problems);
    let mut trace = Trace::default();
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    let mut base = None;
    let mut nr_told = 0;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(rest) = line.strip_prefix("# iowhy-") {
            base = Some(0);
            about(&mut trace, rest);
            continue;
        }
        if let Some(nr) = lost(line) {
            trace.lost = trace.lost.saturating_add(nr);
            continue;
        }
        let parsed = Line::parse(line).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let begin = found.event.as_ptr() as usize - line.as_ptr() as usize;
            let seen = event(found.event).map_err(|(at, text)| (begin + at, text))?;
            Ok(Some((found, seen)))
        });
        match parsed {
            Ok(None) => {}
            Ok(Some((found, seen))) => {
                let base = *base.get_or_insert(found.ns);
                names.entry(found.pid).or_insert(found.comm);
                let at = Nanos(found.ns.saturating_sub(base));
                trace.records.push(Record { at, cpu: found.cpu, pid: found.pid, seen });
            }
            Err((at, text)) => {
                nr_told += 1;
                if nr_told <= MAX_TOLD {
                    let column = line.get(..at).map_or(0, |before| before.chars().count());
                    let shown: String = line.chars().take(200).collect();
                    let end = shown.chars().count();
                    let message = format!("{name}:{number}:{}: {text}: the line is left out", column + 1);
                    let span = Span { text: shown, start: column.min(end), end };
                    problems.push(Problem::warning(message).at(span));
                }
            }
        }
    }
    if nr_told > MAX_TOLD {
        let text = format!("{name}: {} more lines have such problems", nr_told - MAX_TOLD);
        problems.push(Problem::warning(text));
    }
    if trace.records.is_empty() && base.is_none() && !text.starts_with("# tracer") {
        problems.push(Problem::error(format!("{name}: no event of a trace in it")));
        return None;
    }
    // Files of several CPUs one behind the other are in no order of time.
    trace.records.sort_by_key(|record| record.at);
    let idle = |(pid, comm): &(u32, &str)| *pid != 0 && !comm.is_empty() && *comm != "<...>";
    trace.names = names.into_iter().filter(idle).map(|(pid, comm)| (pid, comm.to_owned())).collect();
    Some(trace)
}

/// Takes in a line about the whole trace.
fn about(trace: &mut Trace, rest: &str) {
    let Some((key, value)) = rest.split_once(' ') else { return };
    match key {
        "kernel" => trace.kernel = value.to_owned(),
        "started_ns" => trace.started_ns = value.parse().unwrap_or(0),
        "lost" => trace.lost = value.parse().unwrap_or(0),
        "inferred_windows" => trace.inferred_windows = value == "true",
        "path" => {
            let mut words = value.splitn(3, ' ');
            let file = words.next().and_then(|dev| dev.parse().ok()).zip(words.next().and_then(|ino| ino.parse().ok()));
            if let (Some((dev, ino)), Some(path)) = (file, words.next()) {
                trace.paths.push((Inode { dev: Dev(dev), ino }, path.to_owned()));
            }
        }
        _ => {}
    }
}

/// `CPU:1 [LOST 12 EVENTS]`.
fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.trim().strip_prefix("CPU:")?.split_once("[LOST ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The words of the fields of an event, with their places.
struct Words<'a> {
    text: &'a str,
    words: Vec<(usize, &'a str)>,
    next: usize,
}

impl<'a> Words<'a> {
    fn of(text: &'a str, begin: usize) -> Words<'a> {
        let place = |word: &'a str| (begin + word.as_ptr() as usize - text.as_ptr() as usize, word);
        let separate = |c: char| c.is_whitespace() || c == '=';
        let words = text.split(separate).filter(|word| !word.is_empty()).map(place).collect();
        Words { text, words, next: 0 }
    }

    fn word(&mut self, what: &str) -> Result<(usize, &'a str), Wrong> {
        let end = self.words.last().map_or(0, |(at, word)| at + word.len());
        self.next += 1;
        self.words.get(self.next - 1).copied().ok_or_else(|| (end, format!("{what} is missing")))
    }

    fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, Wrong> {
        let (at, word) = self.word(what)?;
        word.parse().map_err(|_| (at, format!("{what} is a number, not `{word}`")))
    }

    fn literal(&mut self, literal: &str) -> Result<(), Wrong> {
        let (at, word) = self.word(literal)?;
        if word == literal { Ok(()) } else { Err((at, format!("`{literal}` belongs here, not `{word}`"))) }
    }

    fn dev(&mut self) -> Result<Dev, Wrong> {
        let (at, word) = self.word("the device")?;
        let numbers = word.trim_matches(['(', ')']).split_once([',', ':']);
        let dev = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match dev {
            Some((major, minor)) if major < 4096 && minor < 1 << 20 => Ok(Dev::new(major, minor)),
            _ => Err((at, format!("`{word}` is not a device (`MAJOR,MINOR`)"))),
        }
    }

    /// Device and letters, then bytes and a command in brackets if there are some, then the sectors.
    fn extent(&mut self, has_bytes: bool, has_command: bool) -> Result<Extent, Wrong> {
        let dev = self.dev()?;
        let (at, letters) = self.word("the kind of request")?;
        let rwbs = rwbs_of(letters).ok_or_else(|| (at, format!("`{letters}` are none of blkparse's letters")))?;
        let bytes: u32 = if has_bytes { self.number("the number of bytes")? } else { 0 };
        if has_command {
            while !self.word("a command in brackets")?.1.ends_with(')') {}
        }
        let sector = Sector(self.number("the sector")?);
        let (at, sign) = self.word("+")?;
        if sign == "/" {
            // A split: the word after it is where the rest begins, which the caller reads.
            return Ok(Extent { dev, sector, bytes: 0, rwbs });
        }
        if sign != "+" {
            return Err((at, format!("`+` belongs here, not `{sign}`")));
        }
        let (at, _) = self.words.get(self.next).copied().unwrap_or((0, ""));
        let sectors: u32 = self.number("the number of sectors")?;
        let sized = sectors
            .checked_mul(SECTOR_BYTES as u32)
            .ok_or((at, "a request does not have that many sectors".to_owned()))?;
        Ok(Extent { dev, sector, bytes: if sectors == 0 { bytes } else { sized }, rwbs })
    }

    /// The word behind this one.
    fn value(&self, key: &str) -> Result<(usize, &'a str), Wrong> {
        let place = self.words.iter().position(|(_, word)| *word == key);
        let begin = self.words.first().map_or(0, |(at, _)| *at);
        place.and_then(|place| self.words.get(place + 1)).copied().ok_or_else(|| (begin, format!("`{key}` is missing")))
    }

    fn of_key<N: std::str::FromStr>(&self, key: &str) -> Result<N, Wrong> {
        let (at, word) = self.value(key)?;
        word.parse().map_err(|_| (at, format!("`{key}` is a number, not `{word}`")))
    }

    fn file(&mut self) -> Result<Inode, Wrong> {
        let (at, word) = self.value("dev")?;
        let dev = Words { text: self.text, words: vec![(at, word)], next: 0 }.dev()?;
        let (at, ino) = self.value("ino")?;
        let number = u64::from_str_radix(ino.trim_start_matches("0x"), 16);
        let ino = number.map_err(|_| (at, format!("`{ino}` is not an inode (in hexadecimal)")))?;
        Ok(Inode { dev, ino })
    }

    /// Bytes `from-to` or one place, as pages: the first, and the one after the last.
    fn pages(&self) -> Result<(u64, u64), Wrong> {
        let (at, word) = self.value("ofs")?;
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        match (from.parse::<u64>(), to.parse::<u64>()) {
            (Ok(from), Ok(to)) => Ok((from / PAGE_BYTES, to.saturating_add(1).div_ceil(PAGE_BYTES))),
            _ => Err((at, format!("`{word}` is not a place in a file"))),
        }
    }
}

/// Hexadecimal, with `0x` or without.
fn hex(text: &str) -> Option<u64> {
    let text = text.trim();
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Operation of a system call; nothing for those that are kept as text.
fn op_of_call(name: &str) -> Option<Op> {
    match name {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => Some(Op::Read),
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => Some(Op::Write),
        "fsync" => Some(Op::Fsync),
        "fdatasync" => Some(Op::Fdatasync),
        _ => None,
    }
}

/// The begin of a call from `fd: 3, buf: 7f, count: 1000, pos: 0`.
fn call_start(op: Op, fields: &str, begin: usize) -> Result<Seen, Wrong> {
    let value = |key: &str| {
        let found = fields.split(',').find_map(|field| field.trim().strip_prefix(key)?.strip_prefix(':'));
        found
            .map(|text| hex(text).ok_or((begin, format!("`{key}` is a hexadecimal number, not `{}`", text.trim()))))
            .transpose()
    };
    let fd = value("fd")?.ok_or((begin, "`fd` is missing".to_owned()))? as i32;
    let offset = match value("pos")? {
        Some(pos) => Some(pos),
        None => value("pos_l")?,
    };
    Ok(Seen::CallStart { op, fd, offset, len_bytes: value("count")?.unwrap_or(0) })
}

/// Parses an event.
fn event(text: &str) -> Result<Seen, Wrong> {
    // The kernel's own form of system calls.
    if let Some(call) = text.strip_prefix("sys_") {
        if let Some((name, rest)) = call.split_once('(')
            && let Some(op) = op_of_call(name)
        {
            return call_start(op, rest.trim_end_matches(')'), 4 + name.len() + 1);
        }
        if let Some((name, result)) = call.split_once(" -> ")
            && let Some(op) = op_of_call(name)
        {
            let result = hex(result).ok_or((4 + name.len() + 4, format!("`{result}` is not a result")))?;
            return Ok(Seen::CallEnd { op, result: result as i64 });
        }
    }
    let (full, fields) = match text.split_once(": ") {
        Some((name, fields)) => (name, fields),
        None => (text.trim_end_matches(':'), ""),
    };
    let begin = if fields.is_empty() { text.len() } else { fields.as_ptr() as usize - text.as_ptr() as usize };
    if full.is_empty() || full.contains(' ') || full.contains('(') {
        // Messages of the tracer itself, and system calls that neither read nor write.
        return Ok(Seen::Other { name: "text".to_owned(), fields: text.to_owned() });
    }
    let name = full.rsplit(':').next().unwrap_or(full);
    let mut words = Words::of(fields, begin);
    if let Some((op, fields)) = name.strip_prefix("sys_enter_").and_then(op_of_call).map(|op| (op, fields)) {
        return call_start(op, fields, begin);
    }
    if let Some(op) = name.strip_prefix("sys_exit_").and_then(op_of_call) {
        let result = hex(fields).ok_or((begin, format!("`{fields}` is not a result")))?;
        return Ok(Seen::CallEnd { op, result: result as i64 });
    }
    let seen = match name {
        "sched_switch" if words.value("next_pid").is_ok() && words.value("prev_state").is_ok() => {
            Some(Seen::Switch { next: words.of_key("next_pid")?, state: state_of(words.value("prev_state")?.1) })
        }
        "sched_waking" if words.value("pid").is_ok() => Some(Seen::Wake { pid: words.of_key("pid")? }),
        _ if name.starts_with("bl") => block_event(name, fields, &mut words, begin)?,
        _ => page_event(name, &mut words)?,
    };
    Ok(seen.unwrap_or_else(|| Seen::Other { name: full.to_owned(), fields: fields.to_owned() }))
}

/// Parses an event of the block layer.
fn block_event(name: &str, fields: &str, words: &mut Words<'_>, begin: usize) -> Result<Option<Seen>, Wrong> {
    Ok(Some(match name {
        "block_bio_queue" => Seen::Queue(words.extent(false, false)?),
        "block_getrq" => Seen::GetRequest(words.extent(false, false)?),
        "block_sleeprq" => Seen::Sleep(words.extent(false, false)?),
        "block_bio_bounce" => Seen::Bounce(words.extent(false, false)?),
        "block_bio_backmerge" => Seen::BackMerge(words.extent(false, false)?),
        "block_bio_frontmerge" => Seen::FrontMerge(words.extent(false, false)?),
        "block_rq_merge" => Seen::MergeRequests(words.extent(true, true)?),
        "block_rq_insert" => Seen::Insert(words.extent(true, true)?),
        "block_rq_issue" => Seen::Issue(words.extent(true, true)?),
        "block_rq_requeue" => Seen::Requeue(words.extent(false, true)?),
        "block_rq_complete" | "block_bio_complete" => {
            let extent = words.extent(false, name == "block_rq_complete")?;
            let (at, word) = words.words.last().copied().unwrap_or((begin, ""));
            let error = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')?.parse().ok());
            Seen::Complete { extent, error: error.ok_or((at, "an error in brackets comes last".to_owned()))? }
        }
        "block_split" => {
            let mut extent = words.extent(false, false)?;
            let rest: u64 = words.number("the sector")?;
            let bytes = rest.saturating_sub(extent.sector.0).saturating_mul(SECTOR_BYTES);
            extent.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Seen::Split { extent, rest: Sector(rest) }
        }
        "block_bio_remap" | "block_rq_remap" => {
            let extent = words.extent(false, false)?;
            words.literal("<-")?;
            let from = words.dev()?;
            Seen::Remap { extent, from, from_sector: Sector(words.number("the sector")?) }
        }
        "block_plug" => Seen::Plug { dev: None },
        "block_unplug" | "block_unplug_timer" | "block_unplug_io" => {
            let (at, word) = words.words.last().copied().unwrap_or((begin, ""));
            let nr_requests = word.parse().map_err(|_| (at, format!("`{word}` is not a number of requests")))?;
            Seen::Unplug { dev: None, nr_requests, timer: name == "block_unplug_timer" }
        }
        "blk_message" => {
            let dev = words.dev()?;
            let text = fields.split_once(' ').map_or("", |(_, text)| text).to_owned();
            Seen::Message { dev, text }
        }
        _ => return Ok(None),
    }))
}

/// Parses an event of the page cache.
fn page_event(name: &str, words: &mut Words<'_>) -> Result<Option<Seen>, Wrong> {
    Ok(Some(match name {
        "mm_filemap_add_to_page_cache" | "mm_filemap_delete_from_page_cache" => {
            let (file, index) = (words.file()?, words.pages()?.0);
            let order = if words.value("order").is_ok() { words.of_key("order")? } else { 0 };
            match name {
                "mm_filemap_add_to_page_cache" => Seen::PageAdd { file, index, order },
                _ => Seen::PageRemove { file, index, order },
            }
        }
        "mm_filemap_get_pages" => {
            let (file, (index, last_index)) = (words.file()?, words.pages()?);
            Seen::GetPages { file, index, last_index }
        }
        "mm_filemap_fault" => Seen::Fault { file: words.file()?, index: words.pages()?.0 },
        "page_cache_sync_ra" | "page_cache_async_ra" => {
            let file = words.file()?;
            let input = RaInput {
                index: words.of_key("index")?,
                req_count: words.of_key("req_count")?,
                order: words.of_key("order")?,
                size: words.of_key("size")?,
                async_size: words.of_key("async_size")?,
                ra_pages: words.of_key("ra_pages")?,
                mmap_miss: words.of_key("mmap_miss")?,
                prev_pos: words.of_key("prev_pos")?,
            };
            if name == "page_cache_sync_ra" { Seen::RaSync { file, input } } else { Seen::RaAsync { file, input } }
        }
        "page_cache_ra_order" => Seen::RaOrder {
            file: words.file()?,
            index: words.of_key("index")?,
            order: words.of_key("order")?,
            size: words.of_key("size")?,
            async_size: words.of_key("async_size")?,
            ra_pages: words.of_key("ra_pages")?,
        },
        "page_cache_ra_unbounded" => Seen::RaUnbounded {
            file: words.file()?,
            index: words.of_key("index")?,
            nr_to_read: words.of_key("nr_to_read")?,
            lookahead_size: words.of_key("lookahead_size")?,
        },
        _ => return Ok(None),
    }))
}

/// States of tasks by their letters, one for each bit; `+` is a task that was preempted.
const STATES: &str = "SDTtXZPI";

fn state_of(letters: &str) -> u16 {
    let bit = |letter| STATES.find(letter).map_or(u16::from(letter == '+') << STATES.len(), |bit| 1 << bit);
    letters.chars().map(bit).fold(0, |state, bit| state | bit)
}

fn letters_of(state: u16) -> String {
    let known = STATES.chars().enumerate().filter(|(bit, _)| state & 1 << bit != 0).map(|(_, letter)| letter);
    let letters: String = known.collect();
    let letters = if letters.is_empty() { "R".to_owned() } else { letters };
    if state & 1 << STATES.len() != 0 { letters + "+" } else { letters }
}

/// Writes one.
///
/// # Errors
/// The error of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let line = |text: &str| text.replace(['\n', '\r'], " ");
    writeln!(out, "# tracer: nop\n#")?;
    writeln!(out, "# iowhy-kernel {}", line(&trace.kernel))?;
    writeln!(out, "# iowhy-started_ns {}", trace.started_ns)?;
    writeln!(out, "# iowhy-lost {}", trace.lost)?;
    writeln!(out, "# iowhy-inferred_windows {}", trace.inferred_windows)?;
    for (file, path) in &trace.paths {
        writeln!(out, "# iowhy-path {} {} {}", file.dev.0, file.ino, line(path))?;
    }
    writeln!(out, "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION")?;
    for record in &trace.records {
        let comm = match record.pid {
            0 => "<idle>".to_owned(),
            pid => line(trace.name(pid).unwrap_or("<...>")),
        };
        let (seconds, ns) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
        write!(out, "{comm:>16}-{:<7} [{:03}] ..... {seconds}.{ns:09}: ", record.pid, record.cpu)?;
        writeln!(out, "{}", text_of(&record.seen, &comm))?;
    }
    out.flush()
}

fn dev(dev: Dev) -> String {
    format!("{},{}", dev.major(), dev.minor())
}

fn of_file(file: Inode) -> String {
    format!("dev={}:{} ino={:x}", file.dev.major(), file.dev.minor(), file.ino)
}

/// The kernel's letters: it shows one operation only.
fn letters(rwbs: Rwbs) -> String {
    let only = |bit: Rwbs, others: u16| if rwbs.has(bit) { Rwbs(rwbs.0 & !others) } else { rwbs };
    let rwbs = match rwbs {
        _ if rwbs.has(Rwbs::DISCARD) => only(Rwbs::DISCARD, Rwbs::WRITE.0 | Rwbs::READ.0),
        _ => only(Rwbs::WRITE, Rwbs::READ.0),
    };
    rwbs_letters(Rwbs(rwbs.0 & !Rwbs::PASSTHROUGH.0))
}

fn text_of_pages(seen: &Seen) -> String {
    let state = |file: &Inode, input: &RaInput| {
        format!(
            "{} index={} req_count={} order={} size={} async_size={} ra_pages={} mmap_miss={} prev_pos={}",
            of_file(*file),
            input.index,
            input.req_count,
            input.order,
            input.size,
            input.async_size,
            input.ra_pages,
            input.mmap_miss,
            input.prev_pos
        )
    };
    let folio = |file: &Inode, index: u64, order: u8| {
        let (dev, ino) = (file.dev, file.ino);
        let bytes = index.wrapping_mul(PAGE_BYTES);
        format!("dev {}:{} ino {ino:x} pfn=0x0 ofs={bytes} order={order}", dev.major(), dev.minor())
    };
    match seen {
        Seen::RaSync { file, input } => format!("page_cache_sync_ra: {}", state(file, input)),
        Seen::RaAsync { file, input } => format!("page_cache_async_ra: {}", state(file, input)),
        Seen::RaOrder { file, index, order, size, async_size, ra_pages } => {
            let file = of_file(*file);
            format!(
                "page_cache_ra_order: {file} index={index} order={order} size={size} async_size={async_size} \
                 ra_pages={ra_pages}"
            )
        }
        Seen::RaUnbounded { file, index, nr_to_read, lookahead_size } => {
            let file = of_file(*file);
            format!(
                "page_cache_ra_unbounded: {file} index={index} nr_to_read={nr_to_read} lookahead_size={lookahead_size}"
            )
        }
        Seen::GetPages { file, index, last_index } => {
            let (from, to) = (index.wrapping_mul(PAGE_BYTES), last_index.wrapping_mul(PAGE_BYTES).wrapping_sub(1));
            format!("mm_filemap_get_pages: {} ofs={from}-{to}", of_file(*file))
        }
        Seen::PageAdd { file, index, order } => {
            format!("mm_filemap_add_to_page_cache: {}", folio(file, *index, *order))
        }
        Seen::PageRemove { file, index, order } => {
            format!("mm_filemap_delete_from_page_cache: {}", folio(file, *index, *order))
        }
        Seen::Fault { file, index } => {
            format!("mm_filemap_fault: {} ofs={}", of_file(*file), index.wrapping_mul(PAGE_BYTES))
        }
        other => unreachable!("{other:?} is not about pages"),
    }
}

fn text_of(seen: &Seen, comm: &str) -> String {
    let place = |extent: &Extent| format!("{} + {}", extent.sector.0, u64::from(extent.bytes) / SECTOR_BYTES);
    let bio = |extent: &Extent| format!("{} {} {} [{comm}]", dev(extent.dev), letters(extent.rwbs), place(extent));
    let request = |extent: &Extent| {
        let (dev, kind) = (dev(extent.dev), letters(extent.rwbs));
        format!("{dev} {kind} {} () {} none,0,0 [{comm}]", extent.bytes, place(extent))
    };
    let word = |op: &Op, places: bool| match (op, places) {
        (Op::Read, true) => "pread64",
        (Op::Read, false) => "read",
        (Op::Write, true) => "pwrite64",
        (Op::Write, false) => "write",
        (Op::Fsync, _) => "fsync",
        (Op::Fdatasync, _) => "fdatasync",
        (Op::Trim, _) => "fallocate",
    };
    match seen {
        Seen::CallStart { op, fd, offset, len_bytes } => {
            let name = word(op, offset.is_some());
            match (op, offset) {
                (Op::Fsync | Op::Fdatasync, _) => format!("sys_{name}(fd: {:x})", *fd as u32),
                (_, None) => format!("sys_{name}(fd: {:x}, buf: 0, count: {len_bytes:x})", *fd as u32),
                (_, Some(offset)) => {
                    format!("sys_{name}(fd: {:x}, buf: 0, count: {len_bytes:x}, pos: {offset:x})", *fd as u32)
                }
            }
        }
        Seen::CallEnd { op, result } => format!("sys_{} -> 0x{result:x}", word(op, true)),
        Seen::RaSync { .. }
        | Seen::RaAsync { .. }
        | Seen::RaOrder { .. }
        | Seen::RaUnbounded { .. }
        | Seen::GetPages { .. }
        | Seen::PageAdd { .. }
        | Seen::PageRemove { .. }
        | Seen::Fault { .. } => text_of_pages(seen),
        Seen::Queue(extent) => format!("block_bio_queue: {}", bio(extent)),
        Seen::GetRequest(extent) => format!("block_getrq: {}", bio(extent)),
        Seen::Sleep(extent) => format!("block_sleeprq: {}", bio(extent)),
        Seen::BackMerge(extent) => format!("block_bio_backmerge: {}", bio(extent)),
        Seen::FrontMerge(extent) => format!("block_bio_frontmerge: {}", bio(extent)),
        Seen::Bounce(extent) => format!("block_bio_bounce: {}", bio(extent)),
        Seen::MergeRequests(extent) => format!("block_rq_merge: {}", request(extent)),
        Seen::Insert(extent) => format!("block_rq_insert: {}", request(extent)),
        Seen::Issue(extent) => format!("block_rq_issue: {}", request(extent)),
        Seen::Requeue(extent) => {
            format!("block_rq_requeue: {} {} () {} none,0,0 [0]", dev(extent.dev), letters(extent.rwbs), place(extent))
        }
        Seen::Complete { extent, error } => {
            let (dev, kind) = (dev(extent.dev), letters(extent.rwbs));
            format!("block_rq_complete: {dev} {kind} () {} none,0,0 [{error}]", place(extent))
        }
        Seen::Split { extent, rest } => {
            let (dev, kind) = (dev(extent.dev), letters(extent.rwbs));
            format!("block_split: {dev} {kind} {} / {} [{comm}]", extent.sector.0, rest.0)
        }
        Seen::Remap { extent, from, from_sector } => {
            let (to, kind) = (dev(extent.dev), letters(extent.rwbs));
            format!("block_bio_remap: {to} {kind} {} <- ({}) {}", place(extent), dev(*from), from_sector.0)
        }
        Seen::Plug { .. } => format!("block_plug: [{comm}]"),
        Seen::Unplug { nr_requests, timer, .. } => {
            format!("block_unplug{}: [{comm}] {nr_requests}", if *timer { "_timer" } else { "" })
        }
        Seen::Switch { next, state } => {
            format!("sched_switch: prev_comm={comm} prev_state={} ==> next_pid={next}", letters_of(*state))
        }
        Seen::Wake { pid } => format!("sched_waking: pid={pid}"),
        Seen::Message { dev: of, text } => format!("blk_message: {} {}", dev(*of), text.replace(['\n', '\r'], " ")),
        Seen::Other { name, fields } if name == "text" => fields.replace(['\n', '\r'], " "),
        Seen::Other { name, fields } => format!("{name}: {fields}").replace(['\n', '\r'], " "),
    }
}

#[cfg(test)]
mod tests;
