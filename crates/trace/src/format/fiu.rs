//! Block traces of Florida International University (SRCMap, I/O Deduplication; SNIA IOTTA).
//!
//! ```text
//! ts pid process lba size W-or-R major minor MD5
//! ns             sectors of 512 bytes        of each 4 KiB
//! ```
//! The name of a process may have spaces; the hashes may be missing, and are not read.
//!
//! Source: READMEs of the traces; Verma and others, FAST 2010; Koller and Rangaswami, FAST 2010.

use iowhy_stack::trace::Dev;
use iowhy_stack::units::{Nanos, SECTOR_BYTES};

use super::Format;
use crate::public::{Access, Epoch, Layout, Purpose, Seen, Source, Wrong, decimal};

const SOURCE: Source =
    Source { name: "fiu", objects: false, resolution: Nanos(1), epoch: Epoch::Unknown, layout: Layout::Lines(line) };

/// The form.
pub const FORMAT: Format =
    Format::public(&SOURCE, "SRCMap and I/O Deduplication of FIU, SNIA", |_, bytes| SOURCE.fits(bytes));

/// Words of a line that are looked at: a name of many words is none.
const WORDS: usize = 24;

fn line(line: &[u8], _: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut places = [(0, 0); WORDS];
    let mut nr_words = 0;
    let mut at = 0;
    while nr_words < WORDS {
        let Some(start) = line[at..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|skip| at + skip) else {
            break;
        };
        let end = line[start..].iter().position(u8::is_ascii_whitespace).map_or(line.len(), |length| start + length);
        places[nr_words] = (start, end);
        nr_words += 1;
        at = end;
    }
    let words = &places[..nr_words];
    let word = |nr: usize| {
        words.get(nr).map_or((line.len(), &line[line.len()..]), |(start, end)| (*start, &line[*start..*end]))
    };
    let number = |nr: usize, what: &'static str| {
        let (start, word) = word(nr);
        decimal(word).ok_or((start, if word.is_empty() { "a column is missing" } else { what }))
    };
    let short = |nr: usize, what: &'static str| {
        number(nr, what).and_then(|number| u32::try_from(number).map_err(|_| (word(nr).0, what)))
    };
    let at = Nanos(number(0, "a time is a number of nanoseconds")?);
    let pid = short(1, "a process is a number")?;
    // The letter is behind the two numbers that are behind the name.
    let letter = (5..nr_words).find(|nr| matches!(word(*nr).1, b"R" | b"W" | b"r" | b"w")).unwrap_or(5);
    let purpose = match word(letter).1 {
        b"R" | b"r" => Purpose::Read,
        b"W" | b"w" => Purpose::Write,
        _ => return Err((word(letter).0, "a request is R or W")),
    };
    let sector = number(letter - 2, "a place is a number of sectors")?;
    let key = sector.checked_mul(SECTOR_BYTES).ok_or((word(letter - 2).0, "the place is beyond 2^64 bytes"))?;
    let bytes = short(letter - 1, "a size is a number of sectors")?;
    let bytes = bytes.checked_mul(SECTOR_BYTES as u32).ok_or((word(letter - 1).0, "the size is beyond 4 GiB"))?;
    let major = short(letter + 1, "a major number is below 4096")?;
    let minor = short(letter + 2, "a minor number is below 2^20")?;
    if major >= 1 << 12 {
        return Err((word(letter + 1).0, "a major number is below 4096"));
    }
    Ok(Some(Access { at, took: Nanos::ZERO, key, bytes, volume: Dev::new(major, minor).0, pid, purpose }))
}
