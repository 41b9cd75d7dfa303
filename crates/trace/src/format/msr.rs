//! Block traces of Microsoft Research Cambridge (SNIA IOTTA 388): CSV, a line for each request of a volume.
//!
//! ```text
//! Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
//! 100 ns since 1601; name; number; Read or Write; bytes; bytes; 100 ns
//! ```
//! A volume is a host with a disk. The time is that of the issue.
//!
//! Source: README of the traces (SNIA IOTTA 387 and 388); Narayanan, Donnelly and Rowstron, FAST 2008.

use iowhy_stack::units::Nanos;

use super::Format;
use crate::public::{Access, Epoch, Fields, Layout, Purpose, Seen, Source, Wrong};

/// Nanoseconds of a tick.
const TICK_NS: u64 = 100;

const SOURCE: Source = Source {
    name: "msr",
    objects: false,
    resolution: Nanos(TICK_NS),
    epoch: Epoch::Windows,
    layout: Layout::Lines(line),
};

/// The form.
pub const FORMAT: Format = Format::public(&SOURCE, "CSV of MSR Cambridge, SNIA", |_, bytes| SOURCE.fits(bytes));

fn line(line: &[u8], seen: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut fields = Fields::of(line);
    let ticks = fields.number("a time is a number of 100 ns since 1601")?;
    let at = ticks.checked_mul(TICK_NS).ok_or((0, "the time is later than 2185"))?;
    fields.word()?;
    let host = fields.began();
    fields.number("a disk is a number")?;
    let volume = seen.number(line[host..].split_at(fields.ended() - host).0);
    let purpose = match fields.word()? {
        b"Read" => Purpose::Read,
        b"Write" => Purpose::Write,
        _ => return Err((fields.began(), "a type is Read or Write")),
    };
    let key = fields.number("an offset is a number of bytes")?;
    let bytes = fields.short("a size is a number of bytes below 2^32")?;
    let took = fields.number("a response time is a number of 100 ns")?;
    fields.end()?;
    let took = Nanos(took.saturating_mul(TICK_NS));
    Ok(Some(Access { at: Nanos(at), took, key, bytes, volume, purpose, pid: 0 }))
}
