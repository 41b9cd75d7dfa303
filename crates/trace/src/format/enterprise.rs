//! Disk events of Windows as text (SNIA IOTTA 149, 158 and others: Microsoft's servers).
//!
//! ```text
//! DiskRead or DiskWrite, TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, DiskNum..
//!                        us         name (number)        number    hex     hex         hex     us           number
//! ```
//! A header between `BeginHeader` and `EndHeader` has the columns of each kind of event; other kinds are left out.
//! Windows logs an event when the request is done: the arrival is that time less the elapsed one, so arrivals may come
//! out of order.
//!
//! Source: README of the traces (SNIA IOTTA 149); Kavalanekar and others, IISWC 2008; Microsoft's reference of ETW,
//! `DiskIo_TypeGroup1`. Known limit: names of files and IRP flags are not read.

use iowhy_stack::units::Nanos;

use super::Format;
use crate::public::{Access, Epoch, Fields, Layout, Purpose, Seen, Source, Wrong, decimal};

const SOURCE: Source = Source {
    name: "enterprise",
    objects: false,
    resolution: Nanos(1000),
    epoch: Epoch::Begin,
    layout: Layout::Lines(line),
};

/// The form.
pub const FORMAT: Format = Format::public(&SOURCE, "disk events of Windows as text, SNIA", |_, bytes| {
    SOURCE.fits(bytes) || bytes.starts_with(b"BeginHeader")
});

fn line(line: &[u8], _: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut fields = Fields::of(line);
    let purpose = match fields.word()? {
        b"DiskRead" => Purpose::Read,
        b"DiskWrite" => Purpose::Write,
        other if other.first().is_some_and(u8::is_ascii_alphabetic) => return Ok(None),
        _ => return Err((fields.began(), "an event begins with its kind, for example DiskRead")),
    };
    let time = fields.word()?;
    if time == b"TimeStamp" {
        return Ok(None);
    }
    let done = decimal(time).ok_or((fields.began(), "a time is a number of microseconds"))?;
    let process = fields.word()?;
    // System ( 4)
    let number = process.strip_suffix(b")").and_then(|name| name.rsplit(|byte| *byte == b'(').next());
    let pid = number.and_then(|number| decimal(number.trim_ascii()));
    let pid = pid.and_then(|pid| u32::try_from(pid).ok()).ok_or((fields.began(), "a process is NAME (NUMBER)"))?;
    fields.word()?;
    fields.word()?;
    let key = hex(fields.word()?).ok_or((fields.began(), "an offset is a hexadecimal number"))?;
    let bytes = hex(fields.word()?).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.ok_or((fields.began(), "a size is a hexadecimal number below 2^32"))?;
    let took = fields.number("an elapsed time is a number of microseconds")?;
    let volume = fields.short("a disk is a number")?;
    let (at, took) = (Nanos(done.saturating_sub(took).saturating_mul(1000)), Nanos(took.saturating_mul(1000)));
    Ok(Some(Access { at, took, key, bytes, volume, pid, purpose }))
}

fn hex(field: &[u8]) -> Option<u64> {
    let digits = field.strip_prefix(b"0x").filter(|digits| (1..=16).contains(&digits.len()))?;
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}
