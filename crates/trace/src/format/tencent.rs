//! Block traces of Tencent's cloud block storage (SNIA IOTTA 28064): CSV, a line for each request.
//!
//! ```text
//! Timestamp,Offset,Size,IOType,VolumeID
//! seconds since 1970; sectors of 512 bytes; sectors; 0 reads, 1 writes; number
//! ```
//! Times are whole seconds: the arrivals of a second come at its begin.
//!
//! Source: README of the traces; Zhang and others, USENIX ATC 2020.

use iowhy_stack::units::{Nanos, SECTOR_BYTES};

use super::Format;
use crate::public::{Access, Epoch, Fields, Layout, Purpose, Seen, Source, Wrong};

const SOURCE: Source = Source {
    name: "tencent",
    objects: false,
    resolution: Nanos(1_000_000_000),
    epoch: Epoch::Unix,
    layout: Layout::Lines(line),
};

/// The form.
pub const FORMAT: Format =
    Format::public(&SOURCE, "CSV of Tencent's block traces, SNIA", |_, bytes| SOURCE.fits(bytes));

fn line(line: &[u8], _: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut fields = Fields::of(line);
    let at = fields.number("a time is a number of seconds since 1970")?;
    let at = at.checked_mul(1_000_000_000).ok_or((fields.began(), "the time is later than 2554"))?;
    let key = fields.number("an offset is a number of sectors")?;
    let key = key.checked_mul(SECTOR_BYTES).ok_or((fields.began(), "the offset is beyond 2^64 bytes"))?;
    let bytes = fields.short("a size is a number of sectors")?;
    let bytes = bytes.checked_mul(SECTOR_BYTES as u32).ok_or((fields.began(), "the size is beyond 4 GiB"))?;
    let purpose = match fields.word()? {
        b"0" => Purpose::Read,
        b"1" => Purpose::Write,
        _ => return Err((fields.began(), "a type is 0, a read, or 1, a write")),
    };
    let volume = fields.short("a volume is a number")?;
    fields.end()?;
    Ok(Some(Access { at: Nanos(at), took: Nanos::ZERO, key, bytes, volume, purpose, pid: 0 }))
}
