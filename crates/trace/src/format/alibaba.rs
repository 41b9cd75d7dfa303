//! Block traces of Alibaba Cloud (2020): CSV, a line for each request of a virtual disk.
//!
//! ```text
//! device_id,opcode,offset,length,timestamp
//! number; R or W; bytes; bytes; microseconds since 1970, when the server received it
//! ```
//! Source: README of github.com/alibaba/block-traces; Li and others, IISWC 2020.

use iowhy_stack::units::Nanos;

use super::Format;
use crate::public::{Access, Epoch, Fields, Layout, Purpose, Seen, Source, Wrong};

const SOURCE: Source = Source {
    name: "alibaba",
    objects: false,
    resolution: Nanos(1000),
    epoch: Epoch::Unix,
    layout: Layout::Lines(line),
};

/// The form.
pub const FORMAT: Format = Format::public(&SOURCE, "CSV of Alibaba's block traces", |_, bytes| SOURCE.fits(bytes));

fn line(line: &[u8], _: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut fields = Fields::of(line);
    let volume = fields.short("a device is a number")?;
    let purpose = match fields.word()? {
        b"R" => Purpose::Read,
        b"W" => Purpose::Write,
        _ => return Err((fields.began(), "an opcode is R or W")),
    };
    let key = fields.number("an offset is a number of bytes")?;
    let bytes = fields.short("a length is a number of bytes below 2^32")?;
    let at = fields.number("a time is a number of microseconds since 1970")?;
    let at = at.checked_mul(1000).ok_or((fields.began(), "the time is later than 2554"))?;
    fields.end()?;
    Ok(Some(Access { at: Nanos(at), took: Nanos::ZERO, key, bytes, volume, purpose, pid: 0 }))
}
