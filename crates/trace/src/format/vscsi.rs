//! VMware's traces of virtual SCSI disks (`vscsiStats`), the first form of CloudPhysics' traces.
//!
//! ```text
//! 1, 32 bytes    u32 number    u32 bytes    u32 parts    u16 command  u16 version  u64 block    u64 time, us
//! 2, 40 bytes    u16 command   u16 version  u32 number   u32 bytes    u32 parts    u64 block    u64 time  u64 response
//! ```
//! Little-endian; the upper byte of the version is 1 or 2. A block has 512 bytes. The command is SCSI's: 0x28 reads,
//! 0x2a writes, and their forms of 6, 12 and 16 bytes.
//!
//! Source: documentation of libCacheSim (trace formats); SCSI Block Commands 3; Waldspurger and others, FAST 2015.

use iowhy_stack::units::{Nanos, SECTOR_BYTES};

use super::Format;
use crate::public::{Access, Epoch, Layout, Purpose, Source};

const SOURCE: Source = Source {
    name: "vscsi",
    objects: false,
    resolution: Nanos(1000),
    epoch: Epoch::Unknown,
    layout: Layout::Records(&[40, 32], record, |record, _| command(record).is_ok()),
};

/// The form.
pub const FORMAT: Format =
    Format::public(&SOURCE, "binary traces of virtual SCSI disks, VMware and CloudPhysics", |_, bytes| {
        SOURCE.fits(bytes)
    });

fn part<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

/// Purpose of a record of the version that has its length.
fn command(record: &[u8]) -> Result<Purpose, &'static str> {
    let (at, version) = if record.len() == 40 { (0, 2) } else { (12, 1) };
    if record[at + 3] != version {
        return Err("its version is another than that of the first records");
    }
    match u16::from_le_bytes(part(record, at)) {
        0x08 | 0x28 | 0x88 | 0xa8 => Ok(Purpose::Read),
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e => Ok(Purpose::Write),
        _ => Err("its command neither reads nor writes"),
    }
}

fn record(record: &[u8]) -> Result<Access, &'static str> {
    let purpose = command(record)?;
    let (bytes, block, took) =
        if record.len() == 40 { (8, 16, u64::from_le_bytes(part(record, 32))) } else { (4, 16, 0) };
    let micros = |time: u64| Nanos(time.saturating_mul(1000));
    let key = u64::from_le_bytes(part(record, block));
    let key = key.checked_mul(SECTOR_BYTES).ok_or("its place is beyond 2^64 bytes")?;
    let at = micros(u64::from_le_bytes(part(record, block + 8)));
    let bytes = u32::from_le_bytes(part(record, bytes));
    Ok(Access { at, took: micros(took), key, bytes, purpose, ..Access::default() })
}
