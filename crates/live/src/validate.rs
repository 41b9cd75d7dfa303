//! Data as `sysbench fileio --validate` has them: a sum at the end of each call's bytes.
//!
//! ```text
//! data      any, but for the last 12 bytes
//! sum       CRC-32 (IEEE) over the data, 4 bytes, little endian
//! offset    byte of the file at which the call began, 8 bytes, little endian
//! ```
//! Source: files that sysbench 1.0.20 prepared. A call of fewer bytes has no sum.

use crate::verify::word;

/// Bytes behind the data.
const TAIL_BYTES: usize = 12;

/// Enters sum and offset for a write at `offset` bytes of a file.
pub fn fill(bytes: &mut [u8], offset: u64) {
    let Some((data, tail)) = bytes.split_last_chunk_mut::<TAIL_BYTES>() else { return };
    *tail = made(data, offset);
}

/// Checks the bytes of a read at `offset`.
///
/// # Errors
/// What differs, in words.
pub fn check(bytes: &[u8], offset: u64) -> Result<(), String> {
    let Some((data, tail)) = bytes.split_last_chunk::<TAIL_BYTES>() else { return Ok(()) };
    let made = made(data, offset);
    let differ = |what: &str, of: std::ops::Range<usize>| {
        let (expected, found) = (word(&made[of.clone()]), word(&tail[of]));
        format!("{what} of the block at byte {offset}: {expected:#x} expected, {found:#x} found")
    };
    match () {
        () if made[..4] != tail[..4] => Err(differ("sum", 0..4)),
        () if made[4..] != tail[4..] => Err(differ("offset", 4..TAIL_BYTES)),
        () => Ok(()),
    }
}

fn made(data: &[u8], offset: u64) -> [u8; TAIL_BYTES] {
    let mut tail = [0; TAIL_BYTES];
    tail[..4].copy_from_slice(&crc32fast::hash(data).to_le_bytes());
    tail[4..].copy_from_slice(&offset.to_le_bytes());
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let mut block = *b"123456789............";
        fill(&mut block, 0x4000);
        // The check value of CRC-32.
        assert_eq!(block[9..], [0x26, 0x39, 0xf4, 0xcb, 0, 0x40, 0, 0, 0, 0, 0, 0]);
        assert_eq!(check(&block, 0x4000), Ok(()));
        assert_eq!(check(&block, 0), Err("offset of the block at byte 0: 0x0 expected, 0x4000 found".to_owned()));
        for at in 0..block.len() {
            let mut damaged = block;
            damaged[at] ^= 1;
            assert!(check(&damaged, 0x4000).is_err(), "{at}");
        }
        assert_eq!(check(b"short", 7), Ok(()));
    }
}
