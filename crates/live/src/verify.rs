//! Data that can be checked: blocks with fio's verify headers, so that either program can check what the other wrote.
//!
//! ```text
//! block     verify.interval_bytes long, the whole call if that is less
//! header    40 bytes, little endian: 0xacca 2, kind of sum 2, length 4, generation (fio: seed) 8, offset in the file
//!           8, time s 4 and ns 4, number of the thread 2, number of the write 2, crc32c of these 4; then the sum
//! sum       over what follows it; header and sum change places with the bytes at verify.at_bytes
//! data      words that follow from offset and generation (splitmix64), so that they can be made again when a sum is
//!           wrong, and the first wrong byte named; or a pattern, that begins with the call
//! pattern   without header: the pattern alone (Sum::Pattern); nothing is written or checked for Sum::Null
//! ```
//! A reader must cut blocks as the writer did. Source: fio 3.33, `verify.h`, by the bytes that it leaves in a file.
//! Known deviations: fio's data follow from its own numbers, so that a wrong byte in them has no name, only its block.

use std::fmt;
use std::time::SystemTime;

use crate::plan::{Pattern, Sum, Verify};

/// Bytes before the sum of a block.
pub const HEADER_BYTES: usize = 40;

/// Part of the header that its own sum covers.
const SUMMED_BYTES: usize = 36;

const MAGIC: u16 = 0xacca;

/// Step of the data's word counter (the golden ratio).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Pattern {
    /// The pattern of a call.
    fn of(&self, offset: u64) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        for at in self.offsets.iter() {
            bytes[*at..].iter_mut().zip(offset.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        bytes
    }
}

/// Data that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The first wrong byte of the file, as far as it is known.
    pub offset: u64,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data differ at byte {}: expected {}, found {}", self.offset, self.expected, self.found)
    }
}

impl std::error::Error for Mismatch {}

/// A write, as its headers name it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Separates it from earlier ones of the same place.
    pub generation: u64,
    /// Number of the thread, from 1.
    pub thread: u16,
    /// Number of the write in the thread.
    pub number: u16,
}

/// Bytes of header and sum.
fn head_bytes(verify: &Verify) -> usize {
    if verify.sum == Sum::Pattern { 0 } else { HEADER_BYTES + verify.sum.bytes() }
}

/// Bytes of a block of a call.
fn block_bytes(verify: &Verify, len_bytes: usize) -> usize {
    match verify.interval_bytes as usize {
        interval if interval > 0 && interval <= len_bytes => interval,
        _ => len_bytes.max(1),
    }
}

/// Fills the buffer of a write; `offset` is the file's byte that the buffer's first belongs to.
pub fn fill(buffer: &mut [u8], verify: &Verify, offset: u64, written: Written) {
    if verify.sum == Sum::Null {
        return;
    }
    if let Some(pattern) = &verify.pattern {
        let pattern = pattern.of(offset);
        buffer.chunks_mut(pattern.len()).for_each(|piece| piece.copy_from_slice(&pattern[..piece.len()]));
    }
    let (size, head) = (block_bytes(verify, buffer.len()), head_bytes(verify));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for (place, block) in (offset..).step_by(size).zip(buffer.chunks_mut(size)) {
        if block.len() <= head {
            continue;
        }
        let len = block.len() as u32;
        let (header, data) = block.split_at_mut(head);
        if verify.pattern.is_none() {
            words(place, written.generation, data);
        }
        if head == 0 {
            continue;
        }
        header[..2].copy_from_slice(&MAGIC.to_le_bytes());
        header[2..4].copy_from_slice(&verify.sum.number().to_le_bytes());
        header[4..8].copy_from_slice(&len.to_le_bytes());
        header[8..16].copy_from_slice(&written.generation.to_le_bytes());
        header[16..24].copy_from_slice(&place.to_le_bytes());
        header[24..28].copy_from_slice(&(now.as_secs() as u32).to_le_bytes());
        header[28..32].copy_from_slice(&now.subsec_nanos().to_le_bytes());
        header[32..34].copy_from_slice(&written.thread.to_le_bytes());
        header[34..36].copy_from_slice(&written.number.to_le_bytes());
        let own = header_sum(header);
        header[SUMMED_BYTES..HEADER_BYTES].copy_from_slice(&own.to_le_bytes());
        let sum = verify.sum.over(data);
        header[HEADER_BYTES..].fill(0);
        header[HEADER_BYTES..][..sum.len()].copy_from_slice(&sum);
        swap(block, verify.at_bytes as usize, head);
    }
}

/// Header and sum change places with what is further behind; as in fio one byte after the other where both overlap.
fn swap(block: &mut [u8], at: usize, head: usize) {
    if at > 0 && at + head <= block.len() {
        (0..head).for_each(|byte| block.swap(byte, at + byte));
    }
}

fn header_sum(header: &[u8]) -> u32 {
    !crc32c::crc32c(&header[..SUMMED_BYTES])
}

/// Checks what a read has brought. The answer is the lowest generation among the blocks, if there are headers: lower
/// than that of the last write means that the write was lost.
///
/// # Errors
/// The first block that is not what [`fill`], or fio, made, down to the byte if we made it.
pub fn check(buffer: &[u8], verify: &Verify, offset: u64) -> Result<Option<u64>, Mismatch> {
    if verify.sum == Sum::Null {
        return Ok(None);
    }
    let mut lowest: Option<u64> = None;
    let (size, head) = (block_bytes(verify, buffer.len()), head_bytes(verify));
    let mut moved;
    for (start, block) in (0..).step_by(size).zip(buffer.chunks(size)) {
        if block.len() <= head {
            continue;
        }
        let place = offset + start as u64;
        let mut block = block;
        if verify.at_bytes > 0 && head > 0 {
            moved = block.to_vec();
            swap(&mut moved, verify.at_bytes as usize, head);
            block = &moved;
        }
        let (header, data) = block.split_at(head);
        if head > 0 {
            let generation = check_header(header, place, block.len())?;
            lowest = Some(lowest.map_or(generation, |lowest| lowest.min(generation)));
            check_sum(verify, header, data, place, generation)?;
        }
        // With a sum it is the sum that counts.
        if let (Some(pattern), true) = (&verify.pattern, verify.sum.bytes() == 0) {
            compare_pattern(&pattern.of(offset), data, start + head, place + head as u64)?;
        }
    }
    Ok(lowest)
}

/// The generation that a header names.
fn check_header(header: &[u8], place: u64, len: usize) -> Result<u64, Mismatch> {
    let field = |name: &str, range: std::ops::Range<usize>, right: u64| {
        let bytes = &header[range.clone()];
        if word(bytes) == right {
            return Ok(());
        }
        let width = bytes.len();
        let first = first_difference(&right.to_le_bytes()[..width], bytes).unwrap_or(0);
        Err(Mismatch {
            offset: place + (range.start + first) as u64,
            expected: format!("{name} {} of the block's header", number(&right.to_le_bytes()[..width])),
            found: number(bytes),
        })
    };
    field("mark", 0..2, u64::from(MAGIC))?;
    field("length", 4..8, len as u64)?;
    field("offset", 16..24, place)?;
    field("sum", SUMMED_BYTES..HEADER_BYTES, u64::from(header_sum(header)))?;
    Ok(word(&header[8..16]))
}

fn check_sum(verify: &Verify, header: &[u8], data: &[u8], place: u64, generation: u64) -> Result<(), Mismatch> {
    let (made, stored) = (verify.sum.over(data), &header[HEADER_BYTES..]);
    let Some(first) = first_difference(&made, stored) else { return Ok(()) };
    let mut right = vec![0; data.len()];
    words(place, generation, &mut right);
    let start = place + header.len() as u64;
    if verify.pattern.is_none()
        && first_difference(&verify.sum.over(&right), stored).is_none()
        && let Some(first) = first_difference(&right, data)
    {
        return Err(differ(&right, data, first, start));
    }
    let kind = word(&header[2..4]) as u16;
    let other = Sum::ALL.iter().find(|entry| entry.2 == kind && kind != verify.sum.number());
    Err(Mismatch {
        offset: place + (HEADER_BYTES + first) as u64,
        expected: format!("{} {} of the block", verify.sum.name(), bytes(&made)),
        found: other.map_or_else(|| bytes(&stored[..made.len()]), |other| format!("a block with {}", other.0)),
    })
}

/// Compares data with a pattern that they begin `start` bytes behind the beginning of.
fn compare_pattern(pattern: &[u8], data: &[u8], start: usize, place: u64) -> Result<(), Mismatch> {
    let right = pattern.iter().cycle().skip(start % pattern.len());
    if data.iter().zip(right.clone()).all(|(found, right)| found == right) {
        return Ok(());
    }
    let right: Vec<u8> = right.take(data.len()).copied().collect();
    let first = first_difference(&right, data).unwrap_or(0);
    Err(differ(&right, data, first, place))
}

fn differ(right: &[u8], found: &[u8], first: usize, start: u64) -> Mismatch {
    let end = found.len().min(first + 8);
    Mismatch { offset: start + first as u64, expected: bytes(&right[first..end]), found: bytes(&found[first..end]) }
}

/// Makes the data of a generation at a place.
fn words(place: u64, generation: u64, data: &mut [u8]) {
    let mut counter = mix(place ^ mix(STEP)) ^ mix(generation);
    let mut words = data.chunks_exact_mut(8);
    for word in &mut words {
        counter = counter.wrapping_add(STEP);
        word.copy_from_slice(&mix(counter).to_le_bytes());
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&mix(counter.wrapping_add(STEP)).to_le_bytes()[..rest.len()]);
}

/// Spreads the bits of a number; no two numbers give the same (the finish of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Up to eight bytes as a number.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Where two runs differ, as far as both go.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

fn number(field: &[u8]) -> String {
    format!("{:#0width$x}", word(field), width = 2 + 2 * field.len())
}

fn bytes(run: &[u8]) -> String {
    run.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const WRITTEN: Written = Written { generation: 7, thread: 1, number: 0 };

    fn verify(sum: Sum, interval_bytes: u32) -> Verify {
        Verify { sum, interval_bytes, ..Verify::default() }
    }

    #[test]
    fn what_is_on_disk_stays_readable() {
        // The bytes that fio 3.33 has left of a block of 64 with crc32c, but for time and data.
        let mut buffer = [0; 64];
        fill(&mut buffer, &verify(Sum::Crc32c, 0), 0x1000, WRITTEN);
        assert_eq!(bytes(&buffer[..8]), "ca ac 05 00 40 00 00 00");
        assert_eq!((word(&buffer[8..16]), word(&buffer[16..24])), (7, 0x1000));
        assert_eq!(bytes(&buffer[32..36]), "01 00 00 00");
        assert_eq!(word(&buffer[36..40]) as u32, !crc32c::crc32c(&buffer[..36]));
        assert_eq!(word(&buffer[40..44]) as u32, !crc32c::crc32c(&buffer[44..]));
    }

    #[test]
    fn a_mismatch_is_told_with_place_and_both_values() {
        let verify = verify(Sum::Xxhash, 512);
        let mut buffer = [0; 1024];
        fill(&mut buffer, &verify, 4096, WRITTEN);
        let right = buffer;
        let told = |change: &dyn Fn(&mut [u8; 1024])| {
            let mut buffer = right;
            change(&mut buffer);
            check(&buffer, &verify, 4096).unwrap_err().to_string()
        };
        let data = told(&|buffer| buffer[700] ^= 0xff);
        let (expected, found) = (bytes(&right[700..708]), bytes(&[&[!right[700]], &right[701..708]].concat()));
        assert_eq!(data, format!("data differ at byte 4796: expected {expected}, found {found}"));
        assert_eq!(
            told(&|buffer| buffer.copy_within(..512, 512)),
            "data differ at byte 4625: expected offset 0x0000000000001200 of the block's header, found \
             0x0000000000001000"
        );
        assert_eq!(
            told(&|buffer| buffer[512..].fill(0)),
            "data differ at byte 4608: expected mark 0xacca of the block's header, found 0x0000"
        );
    }

    #[test]
    fn the_lowest_generation_tells_a_lost_write() {
        let verify = verify(Sum::Crc32c, 64);
        let mut buffer = [0; 192];
        fill(&mut buffer, &verify, 0, Written { generation: 8, ..WRITTEN });
        fill(&mut buffer[64..128], &verify, 64, Written { generation: 5, ..WRITTEN });
        assert_eq!(check(&buffer, &verify, 0), Ok(Some(5)));
    }

    #[test]
    fn a_pattern_is_repeated_and_has_the_offset_in_it() {
        let pattern = Pattern { bytes: vec![0; 9].into_iter().chain([0xab]).collect(), offsets: Arc::from([1]) };
        let verify = Verify { pattern: Some(pattern), ..verify(Sum::Pattern, 0) };
        let mut buffer = [0; 24];
        fill(&mut buffer, &verify, 0x0102, WRITTEN);
        assert_eq!(bytes(&buffer), "00 02 01 00 00 00 00 00 00 ab 00 02 01 00 00 00 00 00 00 ab 00 02 01 00");
        assert_eq!(check(&buffer, &verify, 0x0102), Ok(None));
        buffer[9] = 0xaa;
        assert_eq!(
            check(&buffer, &verify, 0x0102).unwrap_err().to_string(),
            "data differ at byte 267: expected ab 00 02 01 00 00 00 00, found aa 00 02 01 00 00 00 00"
        );
    }

    proptest! {
        #[test]
        fn what_was_filled_is_accepted_and_a_changed_byte_is_not(
            kind in 0..Sum::ALL.len() - 1,
            interval in 0u32..700,
            at in 0u32..300,
            len in 1usize..3000,
            (offset, generation) in any::<(u32, u64)>(),
            changed in any::<usize>(),
        ) {
            // Headers that overlap their own place cannot be found again, in fio as well.
            let head = head_bytes(&verify(Sum::ALL[kind].1, interval));
            let at = if (at as usize) < head { 0 } else { at };
            let verify = Verify { at_bytes: at, ..verify(Sum::ALL[kind].1, interval) };
            let size = block_bytes(&verify, len);
            let mut buffer = vec![0; len];
            fill(&mut buffer, &verify, u64::from(offset), Written { generation, ..WRITTEN });
            let found = check(&buffer, &verify, u64::from(offset));
            let headers = head > 0 && (size > head);
            prop_assert_eq!(found, Ok(headers.then_some(generation)));
            let place = changed % len;
            // sha512 has no sum over the middle of the data; the last block may be too short for a header.
            let covered = verify.sum.bytes() > 0 && verify.sum != Sum::Sha512 && place / size < len / size && at == 0;
            if covered && headers && place % size >= head {
                buffer[place] ^= 1;
                prop_assert!(check(&buffer, &verify, u64::from(offset)).is_err());
            }
        }
    }
}
