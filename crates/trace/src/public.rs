//! Public traces: files of block devices and of caches that others have published, read record by record.
//!
//! ```text
//! file      mapped by nothing: read in blocks, hashed (BLAKE3, as it lies on the disk), and unpacked on the way
//! packed    gzip (several members, too), Zstandard (several frames, too), and a tar archive inside of either
//! lines     text, one request a line: a mistake has its line and its column, and the first ten are reported
//! records   binary, one request in a fixed number of bytes: a rest behind the last whole one is a mistake
//! ```
//! A format is a [`Source`] in `crates/trace/src/format`. Times are those of the trace, as arrivals from its first
//! record on; memory is that of one block, however long the file.
//!
//! Source: RFC 1952, RFC 8878, POSIX `ustar`; the description of each format is named in its file. Limits: a line has
//! at most 1 MiB; a tar archive is read as one text, file after file.

use std::cell::RefCell;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::{Problem, Problems, Span};

pub mod caches;
pub mod figures;
pub mod places;

/// Purpose of a request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    #[default]
    Read,
    Write,
    /// A key is taken out of a cache.
    Delete,
}

/// One request of a trace.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Arrival.
    pub at: Nanos,
    /// Response time; zero where the trace has none.
    pub took: Nanos,
    /// First byte on the volume; of a cache, the key.
    pub key: u64,
    pub bytes: u32,
    /// Volume by its number in the trace; a device of Linux as `Dev` numbers it.
    pub volume: u32,
    /// Process or client; 0 where the trace has none.
    pub pid: u32,
    pub purpose: Purpose,
}

/// The zero of a format's times.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// The begin of the recording.
    Begin,
    /// An unknown time: the first record is the begin.
    Unknown,
    /// 1970.
    Unix,
    /// 1601.
    Windows,
}

/// Nanoseconds from 1601 to 1970.
const WINDOWS_NS: u64 = 11_644_473_600 * 1_000_000_000;

/// A mistake in a line: bytes before it, and a sentence.
pub type Wrong = (usize, &'static str);

/// Reads a line; nothing for one without a request (a header, an event of another kind).
pub type ReadLine = fn(&[u8], &mut Seen) -> Result<Option<Access>, Wrong>;

/// Reads a record of a fixed length.
pub type ReadRecord = fn(&[u8]) -> Result<Access, &'static str>;

/// How requests are laid out.
#[derive(Copy, Clone, Debug)]
pub enum Layout {
    /// A line each.
    Lines(ReadLine),
    /// A record of one of these lengths each. The last function decides whether one looks like that, from its bytes and
    /// its number.
    Records(&'static [usize], ReadRecord, fn(&[u8], u64) -> bool),
}

/// A format of public traces.
#[derive(Copy, Clone, Debug)]
pub struct Source {
    pub name: &'static str,
    /// Requests are for keys of a cache, which have no places.
    pub objects: bool,
    /// Step of its times.
    pub resolution: Nanos,
    pub epoch: Epoch,
    pub layout: Layout,
}

/// Names met so far: a volume gets its number from its first record.
#[derive(Debug, Default)]
pub struct Seen {
    names: Vec<Vec<u8>>,
    last: usize,
}

impl Seen {
    /// The number of a name.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        if self.names.get(self.last).is_none_or(|last| last != name) {
            self.last = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.to_vec());
                self.names.len() - 1
            });
        }
        self.last as u32
    }
}

/// Origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    pub format: &'static str,
    /// How the file is packed: `plain`, `gzip`, `zstd`, and `+tar`.
    pub packed: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// BLAKE3 of the file, in hexadecimal.
    pub blake3: String,
    /// Requests.
    pub records: u64,
    /// Lines without a request.
    pub skipped: u64,
    /// Requests that come before the first one of the file; their times count as its time.
    pub early: u64,
    /// Time of the first request since 1970, where the format has one, ns.
    pub started_ns: Option<u64>,
}

/// Bytes that are looked at to recognise a format.
pub(crate) const HEAD: usize = 1 << 16;
/// Bytes that are read at a time, and the longest line.
const BLOCK: usize = 1 << 20;
/// Most mistakes that are reported one by one.
const MOST_TOLD: u64 = 10;
/// Lines and records that are looked at to recognise a format.
const LOOKED_AT: usize = 12;

impl Source {
    /// Whether these first bytes of a file, packed or not, are of this format.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(HEAD)];
        let head;
        let (bytes, cut) = match packing(bytes) {
            "plain" if !is_tar(bytes) => (bytes, bytes.len() == HEAD),
            _ => {
                let mut unpacked = Vec::new();
                // The head of a packed file ends amid a block.
                let ended = unpack(Box::new(io::Cursor::new(bytes.to_vec())))
                    .and_then(|(from, _)| from.take(HEAD as u64).read_to_end(&mut unpacked))
                    .is_ok();
                head = unpacked;
                (head.as_slice(), !ended || head.len() == HEAD)
            }
        };
        match self.layout {
            Layout::Lines(read) => {
                let mut seen = Seen::default();
                let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
                if cut {
                    lines.pop();
                }
                let read = |(nr, line): (usize, &[u8])| match read(trimmed(line), &mut seen) {
                    Err(_) if nr == 0 && is_header(line) => None,
                    other => other.transpose(),
                };
                let lines = lines.into_iter().filter(|line| !trimmed(line).is_empty()).enumerate();
                let mut found = lines.filter_map(read).take(LOOKED_AT).peekable();
                found.peek().is_some() && found.all(|line| line.is_ok())
            }
            Layout::Records(..) => self.length(bytes).is_some(),
        }
    }

    /// The length of a record, by the first ones.
    fn length(&self, bytes: &[u8]) -> Option<usize> {
        let Layout::Records(lengths, read, likely) = self.layout else { return None };
        lengths.iter().copied().find(|length| {
            let fits = |(nr, record): (usize, &[u8])| read(record).is_ok() && likely(record, nr as u64);
            bytes.len() >= *length && bytes.chunks_exact(*length).take(LOOKED_AT * 8).enumerate().all(fits)
        })
    }
}

/// A line without the characters that end it and the spaces around it.
fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// Whether a first line has names of columns.
fn is_header(line: &[u8]) -> bool {
    let line = trimmed(line);
    let named = |field: &[u8]| trimmed(field).first().is_some_and(u8::is_ascii_alphabetic);
    line.iter().filter(|byte| **byte == b',').count() >= 3 && line.split(|byte| *byte == b',').all(named)
}

/// Reads a trace. Mistakes go into the problems; with any of them, the result is none.
pub fn stream(
    path: &Path,
    source: &Source,
    problems: &mut Problems,
    sink: &mut dyn FnMut(&Access),
) -> Option<Provenance> {
    let name = path.display().to_string();
    let mut reading = Reading { source, name: &name, wrong: 0, problems, sink, begin: None, found: None };
    let outcome = reading.file(path);
    let Reading { wrong, found, .. } = reading;
    if wrong > MOST_TOLD {
        let text = format!("{name}: {} more lines are wrong", wrong - MOST_TOLD);
        problems.push(Problem::error(text));
    }
    if let Err(error) = &outcome {
        let text = match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("`{name}` is cut: its packed contents go on behind its end"),
            _ => format!("cannot read the trace `{name}`: {error}"),
        };
        problems.push(Problem::error(text).at(Span::whole(&name)));
    }
    (wrong == 0 && outcome.is_ok()).then_some(found).flatten()
}

/// A file that is read.
struct Reading<'a> {
    source: &'a Source,
    name: &'a str,
    wrong: u64,
    problems: &'a mut Problems,
    sink: &'a mut dyn FnMut(&Access),
    begin: Option<Nanos>,
    found: Option<Provenance>,
}

impl Reading<'_> {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let hash = Rc::new(RefCell::new((blake3::Hasher::new(), 0)));
        let raw = Hashed { from: File::open(path)?, hash: Rc::clone(&hash) };
        let mut rest = Hashed { from: raw.from.try_clone()?, hash: Rc::clone(&hash) };
        let (mut from, packed) = unpack(Box::new(raw))?;
        let mut provenance = Provenance {
            format: self.source.name,
            packed,
            file_bytes: 0,
            blake3: String::new(),
            records: 0,
            skipped: 0,
            early: 0,
            started_ns: None,
        };
        match self.source.layout {
            Layout::Lines(read) => self.lines(&mut *from, read, &mut provenance)?,
            Layout::Records(_, read, _) => self.records(&mut *from, read, &mut provenance)?,
        }
        // A decoder may stop before the end of the file; the hash does not.
        io::copy(&mut rest, &mut io::sink())?;
        let begin = self.begin.unwrap_or_default();
        provenance.started_ns = match self.source.epoch {
            Epoch::Unix => Some(begin.0),
            Epoch::Windows => Some(begin.0.saturating_sub(WINDOWS_NS)),
            Epoch::Begin | Epoch::Unknown => None,
        };
        (provenance.file_bytes, provenance.blake3) = (hash.borrow().1, hash.borrow().0.finalize().to_hex().to_string());
        self.found = Some(provenance);
        Ok(())
    }

    fn lines(&mut self, from: &mut dyn Read, read: ReadLine, provenance: &mut Provenance) -> io::Result<()> {
        let mut block = vec![0; 2 * BLOCK];
        let (mut held, mut number, mut seen) = (0, 0_u64, Seen::default());
        loop {
            let got = from.read(&mut block[held..])?;
            held += got;
            let ends = if got == 0 { held } else { memchr::memrchr(b'\n', &block[..held]).map_or(0, |at| at + 1) };
            if ends == 0 && held >= BLOCK {
                return Err(io::Error::other(format!("line {} has more than 1 MiB", number + 1)));
            }
            let mut left = &block[..ends];
            while !left.is_empty() {
                let end = memchr::memchr(b'\n', left).unwrap_or(left.len());
                let line = &left[..end];
                left = &left[(end + 1).min(left.len())..];
                number += 1;
                match read(line, &mut seen) {
                    Ok(Some(access)) => self.found(access, provenance),
                    Ok(None) => provenance.skipped += 1,
                    Err(_) if trimmed(line).is_empty() || (number == 1 && is_header(line)) => provenance.skipped += 1,
                    Err((column, what)) => self.wrong(line, number, column, what),
                }
            }
            block.copy_within(ends..held, 0);
            held -= ends;
            if got == 0 {
                return Ok(());
            }
        }
    }

    fn records(&mut self, from: &mut dyn Read, read: ReadRecord, provenance: &mut Provenance) -> io::Result<()> {
        let mut block = vec![0; BLOCK];
        let (mut held, mut length) = (0, 0);
        loop {
            let got = from.read(&mut block[held..])?;
            held += got;
            if length == 0 && (held >= HEAD || got == 0) {
                length = match (self.source.length(&block[..held.min(HEAD)]), self.source.layout) {
                    (Some(length), _) => length,
                    (None, Layout::Records(lengths, ..)) => lengths[0],
                    (None, Layout::Lines(_)) => 1,
                };
            }
            if length == 0 {
                continue;
            }
            let whole = held / length * length;
            for record in block[..whole].chunks_exact(length) {
                match read(record) {
                    Ok(access) => self.found(access, provenance),
                    Err(what) => {
                        self.wrong += 1;
                        if self.wrong <= MOST_TOLD {
                            let number = provenance.records + self.wrong;
                            let at = (number - 1) * length as u64;
                            let text = format!("{}: record {number}, byte {at}: {what}", self.name);
                            self.problems.push(Problem::error(text).at(Span::whole(self.name)));
                        }
                    }
                }
            }
            block.copy_within(whole..held, 0);
            held -= whole;
            if got == 0 {
                break;
            }
        }
        if held > 0 {
            self.wrong += 1;
            let records = iowhy_text::count(provenance.records, "record", "records");
            let text = format!(
                "`{}` is cut: {held} bytes behind {records} are not a whole one, which has {length}",
                self.name
            );
            self.problems.push(Problem::error(text).at(Span::whole(self.name)));
        }
        Ok(())
    }

    #[inline]
    fn found(&mut self, mut access: Access, provenance: &mut Provenance) {
        let begin = match (self.begin, self.source.epoch) {
            (Some(begin), _) => begin,
            (None, Epoch::Begin) => *self.begin.insert(Nanos::ZERO),
            (None, _) => *self.begin.insert(access.at),
        };
        provenance.records += 1;
        provenance.early += u64::from(access.at < begin);
        access.at = access.at.saturating_sub(begin);
        (self.sink)(&access);
    }

    fn wrong(&mut self, line: &[u8], number: u64, column: usize, what: &str) {
        self.wrong += 1;
        if self.wrong > MOST_TOLD {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let column = String::from_utf8_lossy(&line[..column.min(line.len())]).chars().count();
        let start = text.char_indices().nth(column).map_or(text.len(), |(at, _)| at);
        let word = text[start..].find([',', ' ', '\t']).unwrap_or(text.len() - start);
        let problem = Problem::error(format!("{}:{number}:{}: {what}", self.name, column + 1));
        self.problems.push(problem.at(Span::bytes(&text, start, start + word)));
    }
}

/// A file whose bytes are counted and hashed as they are read.
struct Hashed {
    from: File,
    hash: Rc<RefCell<(blake3::Hasher, u64)>>,
}

impl Read for Hashed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(into)?;
        let mut hash = self.hash.borrow_mut();
        hash.0.update(&into[..got]);
        hash.1 += got as u64;
        Ok(got)
    }
}

/// How a file that begins with these bytes is packed.
fn packing(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => "plain",
    }
}

/// A tar archive's blocks.
const TAR: usize = 512;

fn is_tar(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

/// The contents of a file, and how it is packed.
fn unpack<'a>(from: Box<dyn Read + 'a>) -> io::Result<(Box<dyn Read + 'a>, String)> {
    let mut from = BufReader::with_capacity(BLOCK, from);
    let outer = packing(from.fill_buf()?);
    let inner: Box<dyn Read + 'a> = match outer {
        "gzip" => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
        "zstd" => Box::new(zstd::Decoder::with_buffer(from)?),
        _ => Box::new(from),
    };
    let mut inner = BufReader::with_capacity(BLOCK, inner);
    // A decoder may give less than it could.
    let mut first = Vec::new();
    inner.by_ref().take(TAR as u64).read_to_end(&mut first)?;
    let tar = is_tar(&first);
    let again = io::Cursor::new(first).chain(inner);
    Ok(if tar {
        (Box::new(Untar { from: again, left: 0, padding: 0, ended: false }), format!("{outer}+tar"))
    } else {
        (Box::new(again), outer.to_owned())
    })
}

/// The regular files in a tar archive, one behind the other.
struct Untar<R> {
    from: R,
    left: u64,
    padding: u64,
    ended: bool,
}

impl<R: Read> Read for Untar<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 && !self.ended {
            io::copy(&mut self.from.by_ref().take(self.padding), &mut io::sink())?;
            let mut head = Vec::new();
            self.from.by_ref().take(TAR as u64).read_to_end(&mut head)?;
            if !is_tar(&head) {
                self.ended = true;
                break;
            }
            let octal = head[124..136].iter().filter(|byte| byte.is_ascii_digit());
            let size = octal.fold(0_u64, |size, digit| size << 3 | u64::from(digit & 7));
            self.padding = size.next_multiple_of(TAR as u64) - size;
            if matches!(head[156], b'0' | 0) {
                self.left = size;
            } else {
                self.padding += size;
            }
        }
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.from.read(&mut into[..most])?;
        if got == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// The fields of a line, one after the other.
pub struct Fields<'a> {
    line: &'a [u8],
    at: usize,
    /// The last field begins here.
    began: usize,
}

impl<'a> Fields<'a> {
    pub fn of(line: &'a [u8]) -> Fields<'a> {
        Fields { line, at: 0, began: 0 }
    }

    /// Bytes before the last field.
    pub fn began(&self) -> usize {
        self.began
    }

    /// Bytes before the comma behind the last field.
    pub fn ended(&self) -> usize {
        (self.at - 1).min(self.line.len())
    }

    /// The next field up to a comma, without spaces around it.
    #[inline]
    pub fn word(&mut self) -> Result<&'a [u8], Wrong> {
        let Some(rest) = self.line.get(self.at..) else { return Err((self.line.len(), "a column is missing")) };
        let length = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
        let field = &rest[..length];
        let before = field.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.began = self.at + before;
        self.at += length + 1;
        Ok(field[before..].trim_ascii_end())
    }

    /// The next field as a whole number.
    #[inline]
    pub fn number(&mut self, what: &'static str) -> Result<u64, Wrong> {
        let field = self.word()?;
        decimal(field).ok_or((self.began, what))
    }

    /// The next field as a number of 32 bits.
    #[inline]
    pub fn short(&mut self, what: &'static str) -> Result<u32, Wrong> {
        let number = self.number(what)?;
        u32::try_from(number).map_err(|_| (self.began, what))
    }

    /// Nothing is left.
    #[inline]
    pub fn end(&self) -> Result<(), Wrong> {
        if self.at > self.line.len() { Ok(()) } else { Err((self.at, "the line goes on behind its last column")) }
    }
}

/// A whole number in decimal digits.
#[inline]
pub fn decimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 20 {
        return None;
    }
    field.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// A number of 64 bits for a key that is text: FNV-1a on words of eight bytes, and a last mix (MurmurHash3's). Two of
/// 10^8 keys share one with a probability of 3 in 10,000.
#[inline]
pub fn key_of(text: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut words = text.chunks_exact(8);
    let mut hash = words
        .by_ref()
        .fold(text.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(word.try_into().unwrap_or_default())));
    hash = mix(hash, words.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Maps by keys and pages: a fixed hash, so a hostile trace could make one slow, never wrong. None is iterated.
pub type Mixed = BuildHasherDefault<Mix>;

/// The hash of one number.
#[derive(Copy, Clone, Debug, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(key_of(bytes));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests;
