//! libCacheSim's binary traces of caches (`oracleGeneral`), in which CloudPhysics', Twitter's and many others are kept.
//!
//! ```text
//! u32 time, s    u64 key    u32 bytes    i64 number of the request that is for this key again, or -1
//! ```
//! 24 bytes, little-endian, without a header: recognised by keys that come again where the last column says so. Each is
//! a read; the last column is checked and not kept. A trace of a block device has its places as keys.
//!
//! Source: documentation of libCacheSim (trace formats), github.com/1a1a11a/libCacheSim.

use iowhy_stack::units::Nanos;

use super::Format;
use crate::public::{Access, Epoch, Layout, Purpose, Source};

const SOURCE: Source = Source {
    name: "oracleGeneral",
    objects: true,
    resolution: Nanos(1_000_000_000),
    epoch: Epoch::Unknown,
    layout: Layout::Records(&[24], record, likely),
};

/// The form.
pub const FORMAT: Format =
    Format::public(&SOURCE, "binary traces of libCacheSim, CloudPhysics and others", |_, bytes| SOURCE.fits(bytes));

fn wide(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn record(record: &[u8]) -> Result<Access, &'static str> {
    let next = wide(record, 16) as i64;
    if next < -1 {
        return Err("the next use of its key has a negative number");
    }
    let (time, bytes) = (wide(record, 0) as u32, (wide(record, 8) >> 32) as u32);
    let at = Nanos(u64::from(time) * 1_000_000_000);
    Ok(Access { at, key: wide(record, 4), bytes, purpose: Purpose::Read, ..Access::default() })
}

/// The next use is later than this one, and there are fewer requests than 2^40 (or `i64::MAX` stands for never).
fn likely(record: &[u8], number: u64) -> bool {
    let next = wide(record, 16) as i64;
    let bytes = (wide(record, 8) >> 32) as u32;
    bytes < 1 << 31 && (next == -1 || next == i64::MAX || (next > number as i64 && next < 1 << 40))
}
