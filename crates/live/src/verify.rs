//! Data that can be checked: each block has its place and the time of its write.
//!
//! ```text
//! block     verify.interval_bytes long (0: as long as the call); the last of a call may be shorter
//! header    40 bytes, little endian: mark (names the kind of sum) 8, offset in the file 8, generation 8, length 4,
//!           file 4, sum 8
//! data      words that follow from file, offset of the block and generation (splitmix64), so that they can be made
//!           again when a sum is wrong, and the first wrong byte named
//! sum       over the first 32 bytes of the header and the data; `Sum::Header` leaves the data out
//! rest      of fewer than 40 bytes: no header, data that follow from the place alone (generation 0)
//! ```
//! A reader must cut blocks as the writer did: read with the writer's block size, or with any multiple of
//! `interval_bytes` if every block is whole.

use std::fmt;

use crate::plan::{Sum, Verify};

/// Bytes before the data of a block.
pub const HEADER_BYTES: usize = 40;

/// Part of the header that the sum covers.
const SUMMED_BYTES: usize = 32;

/// Step of the data's word counter (the golden ratio).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

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

/// Fills the buffer of a write: blocks of `verify.interval_bytes`, each with its header. `offset` is the file's byte
/// that the buffer's first belongs to; `generation` separates this write from earlier ones of the same place.
pub fn fill(buffer: &mut [u8], verify: &Verify, file: u32, offset: u64, generation: u64) {
    for (place, block) in blocks_mut(buffer, verify, file, offset) {
        let Some((header, data)) = block.split_first_chunk_mut::<HEADER_BYTES>() else {
            place.data(0, block);
            continue;
        };
        place.data(generation, data);
        header[..SUMMED_BYTES].copy_from_slice(&place.summed(generation));
        let sum = sum(verify.sum, &header[..SUMMED_BYTES], data);
        header[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Checks what a read has brought. The answer is the lowest generation among the blocks (0 if the buffer is too short
/// for a header): lower than that of the last write means that the write was lost.
///
/// # Errors
/// The first block that is not what [`fill`] made of any generation, down to the byte.
pub fn check(buffer: &[u8], verify: &Verify, file: u32, offset: u64) -> Result<u64, Mismatch> {
    let mut lowest = None;
    for (place, block) in blocks(buffer, verify, file, offset) {
        let Some((header, data)) = block.split_first_chunk::<HEADER_BYTES>() else {
            place.compare(0, block, place.offset)?;
            continue;
        };
        place.check_header(header)?;
        let generation = word(&header[16..24]);
        let stored = word(&header[SUMMED_BYTES..]);
        let made = sum(verify.sum, &header[..SUMMED_BYTES], data);
        if made != stored {
            return Err(place.name(generation, stored, made, data));
        }
        lowest = Some(lowest.map_or(generation, |lowest: u64| lowest.min(generation)));
    }
    Ok(lowest.unwrap_or(0))
}

/// Where a block belongs, and how it is summed.
#[derive(Copy, Clone)]
struct PlaceOfBlock {
    sum: Sum,
    file: u32,
    offset: u64,
    len_bytes: u32,
}

fn block_bytes(verify: &Verify, len_bytes: usize) -> usize {
    if verify.interval_bytes == 0 { len_bytes.max(1) } else { verify.interval_bytes as usize }
}

fn blocks_mut<'a>(
    buffer: &'a mut [u8],
    verify: &Verify,
    file: u32,
    mut offset: u64,
) -> impl Iterator<Item = (PlaceOfBlock, &'a mut [u8])> {
    let (size, sum) = (block_bytes(verify, buffer.len()), verify.sum);
    buffer.chunks_mut(size).map(move |block| {
        let place = PlaceOfBlock { sum, file, offset, len_bytes: block.len() as u32 };
        offset += block.len() as u64;
        (place, block)
    })
}

fn blocks<'a>(
    buffer: &'a [u8],
    verify: &Verify,
    file: u32,
    mut offset: u64,
) -> impl Iterator<Item = (PlaceOfBlock, &'a [u8])> {
    let (size, sum) = (block_bytes(verify, buffer.len()), verify.sum);
    buffer.chunks(size).map(move |block| {
        let place = PlaceOfBlock { sum, file, offset, len_bytes: block.len() as u32 };
        offset += block.len() as u64;
        (place, block)
    })
}

impl PlaceOfBlock {
    /// The first 32 bytes of the header.
    fn summed(&self, generation: u64) -> [u8; SUMMED_BYTES] {
        let mut bytes = [0; SUMMED_BYTES];
        bytes[..8].copy_from_slice(&mark(self.sum));
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&generation.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[28..].copy_from_slice(&self.file.to_le_bytes());
        bytes
    }

    /// Where the words of all generations start from.
    fn key(&self) -> u64 {
        mix(self.offset ^ mix(u64::from(self.file).wrapping_add(STEP)))
    }

    /// Makes the data of a generation.
    fn data(&self, generation: u64, data: &mut [u8]) {
        let mut counter = self.key() ^ mix(generation);
        let mut words = data.chunks_exact_mut(8);
        for word in &mut words {
            counter = counter.wrapping_add(STEP);
            word.copy_from_slice(&mix(counter).to_le_bytes());
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&mix(counter.wrapping_add(STEP)).to_le_bytes()[..rest.len()]);
    }

    /// The fields that follow from the place.
    fn check_header(&self, header: &[u8; HEADER_BYTES]) -> Result<(), Mismatch> {
        let right = self.summed(word(&header[16..24]));
        let fields = [("mark", 0..8), ("offset", 8..16), ("length", 24..28), ("file", 28..32)];
        for (name, range) in fields {
            let (expected, found) = (&right[range.clone()], &header[range.clone()]);
            if let Some(first) = first_difference(expected, found) {
                return Err(Mismatch {
                    offset: self.offset + (range.start + first) as u64,
                    expected: format!("{name} {} of the block's header", number(expected)),
                    found: number(found),
                });
            }
        }
        Ok(())
    }

    /// Compares data with those of a generation; `start` is where in the file they begin.
    fn compare(&self, generation: u64, found: &[u8], start: u64) -> Result<(), Mismatch> {
        let mut expected = vec![0; found.len()];
        self.data(generation, &mut expected);
        let Some(first) = first_difference(&expected, found) else { return Ok(()) };
        let end = found.len().min(first + 8);
        Err(Mismatch {
            offset: start + first as u64,
            expected: bytes(&expected[first..end]),
            found: bytes(&found[first..end]),
        })
    }

    /// The mistake in a block whose sum is wrong.
    fn name(&self, generation: u64, stored: u64, made: u64, data: &[u8]) -> Mismatch {
        // A header's generation may be wrong: the data know better, from their first or second word.
        let written = [Some(generation), self.recover(data, 0), self.recover(data, 1)].into_iter().flatten();
        let mut again = vec![0; data.len()];
        for candidate in written {
            self.data(candidate, &mut again);
            if sum(self.sum, &self.summed(candidate), &again) != stored {
                continue;
            }
            return match first_difference(&candidate.to_le_bytes(), &generation.to_le_bytes()) {
                Some(first) => Mismatch {
                    offset: self.offset + 16 + first as u64,
                    expected: format!("generation {candidate:#018x} of the block's header"),
                    found: format!("{generation:#018x}"),
                },
                // The sum was right when it was written, so that the data must differ.
                None => self.compare(candidate, data, self.offset + HEADER_BYTES as u64).err().unwrap_or(Mismatch {
                    offset: self.offset + SUMMED_BYTES as u64,
                    expected: format!("sum {made:#018x} of the block's header"),
                    found: format!("{stored:#018x}"),
                }),
            };
        }
        // Nothing has the stored sum. If the data are those of the generation, the sum is wrong; if not, both are, or
        // more than one place: the sum comes first.
        let first = first_difference(&made.to_le_bytes(), &stored.to_le_bytes()).unwrap_or(0);
        Mismatch {
            offset: self.offset + (SUMMED_BYTES + first) as u64,
            expected: format!("sum {made:#018x} of the block's header"),
            found: format!("{stored:#018x}"),
        }
    }

    /// The generation that word `index` of the data was made for.
    fn recover(&self, data: &[u8], index: usize) -> Option<u64> {
        let found = word(data.get(index * 8..index * 8 + 8)?);
        let counter = unmix(found).wrapping_sub(STEP.wrapping_mul(index as u64 + 1));
        Some(unmix(counter ^ self.key()))
    }
}

/// The first bytes of a header.
fn mark(sum: Sum) -> [u8; 8] {
    *match sum {
        Sum::Crc32c => b"iowhy 1c",
        Sum::Crc32 => b"iowhy 1i",
        Sum::Xxh64 => b"iowhy 1x",
        Sum::Header => b"iowhy 1h",
    }
}

fn sum(sum: Sum, header: &[u8], data: &[u8]) -> u64 {
    match sum {
        Sum::Crc32c => u64::from(crc32c::crc32c_append(crc32c::crc32c(header), data)),
        Sum::Crc32 => {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(header);
            hasher.update(data);
            u64::from(hasher.finalize())
        }
        Sum::Xxh64 => twox_hash::XxHash64::oneshot(twox_hash::XxHash64::oneshot(0, header), data),
        Sum::Header => u64::from(crc32c::crc32c(header)),
    }
}

/// Spreads the bits of a number; no two numbers give the same (the finish of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number that [`mix`] makes `x` of.
fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}

/// Up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

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
    use super::*;
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

    fn verify(sum: Sum, interval_bytes: u32) -> Verify {
        Verify { sum, interval_bytes, after_writes: false, fatal: false }
    }

    fn sums() -> impl Strategy<Value = Sum> {
        prop_oneof![Just(Sum::Crc32c), Just(Sum::Crc32), Just(Sum::Xxh64), Just(Sum::Header)]
    }

    #[test]
    fn sums_are_the_published_ones() {
        // Check values of the catalogue of CRCs, and of XXH64 by its specification.
        assert_eq!(sum(Sum::Crc32c, b"1234", b"56789"), 0xe306_9283);
        assert_eq!(sum(Sum::Crc32, b"1234", b"56789"), 0xcbf4_3926);
        assert_eq!(twox_hash::XxHash64::oneshot(0, b""), 0xef46_db37_51d8_e999);
    }

    #[test]
    fn what_is_on_disk_stays_readable() {
        // Reckoned apart from this program. A change of layout must change the mark: what earlier versions wrote would
        // be called damaged otherwise.
        let mut buffer = [0; 48];
        fill(&mut buffer, &verify(Sum::Crc32c, 0), 2, 0x1000, 7);
        assert_eq!(&buffer[..8], b"iowhy 1c");
        assert_eq!(word(&buffer[8..16]), 0x1000);
        assert_eq!(word(&buffer[16..24]), 7);
        assert_eq!((word(&buffer[24..28]), word(&buffer[28..32])), (48, 2));
        assert_eq!(bytes(&buffer[40..]), "ae f7 11 b7 65 5a eb 09");
        assert_eq!(word(&buffer[32..40]), 0x4151_99ee);
    }

    #[test]
    fn a_mismatch_is_told_with_place_and_both_values() {
        let verify = verify(Sum::Xxh64, 512);
        let mut buffer = [0; 1024];
        fill(&mut buffer, &verify, 0, 4096, 3);
        let right = buffer;
        let told = |change: &dyn Fn(&mut [u8; 1024])| {
            let mut buffer = right;
            change(&mut buffer);
            check(&buffer, &verify, 0, 4096).unwrap_err().to_string()
        };
        let data = told(&|buffer| buffer[700] ^= 0xff);
        let (expected, found) = (bytes(&right[700..708]), bytes(&[&[!right[700]], &right[701..708]].concat()));
        assert_eq!(data, format!("data differ at byte 4796: expected {expected}, found {found}"));
        assert_eq!(
            told(&|buffer| buffer[512 + 17] = 1),
            "data differ at byte 4625: expected generation 0x0000000000000003 of the block's header, found \
             0x0000000000000103"
        );
        assert_eq!(
            told(&|buffer| buffer.copy_within(..512, 512)),
            "data differ at byte 4617: expected offset 0x0000000000001200 of the block's header, found \
             0x0000000000001000"
        );
        assert_eq!(
            told(&|buffer| buffer[512..].fill(0)),
            "data differ at byte 4608: expected mark 0x7831207968776f69 of the block's header, found \
             0x0000000000000000"
        );
    }

    #[test]
    fn the_lowest_generation_tells_a_lost_write() {
        let verify = verify(Sum::Crc32c, 64);
        let mut buffer = [0; 192];
        fill(&mut buffer, &verify, 1, 0, 8);
        fill(&mut buffer[64..128], &verify, 1, 64, 5);
        assert_eq!(check(&buffer, &verify, 1, 0), Ok(5));
    }

    proptest! {
        #[test]
        fn mixing_can_be_undone(x in any::<u64>()) {
            prop_assert_eq!(unmix(mix(x)), x);
        }

        #[test]
        fn what_was_filled_is_accepted(
            kind in sums(),
            interval in 0u32..700,
            len in 1usize..3000,
            (file, offset, generation) in any::<(u32, u32, u64)>(),
        ) {
            let verify = verify(kind, interval);
            let mut buffer = vec![0; len];
            fill(&mut buffer, &verify, file, u64::from(offset), generation);
            let any_header = len.min(block_bytes(&verify, len)) >= HEADER_BYTES;
            prop_assert_eq!(
                check(&buffer, &verify, file, u64::from(offset)),
                Ok(if any_header { generation } else { 0 })
            );
        }

        #[test]
        fn a_flipped_bit_is_found_and_named(
            kind in sums(),
            interval in 0u32..700,
            len in 1usize..3000,
            (file, offset, generation) in any::<(u32, u32, u64)>(),
            at in any::<proptest::sample::Index>(),
            bit in 0u32..8,
        ) {
            let verify = verify(kind, interval);
            let mut buffer = vec![0; len];
            let offset = u64::from(offset);
            fill(&mut buffer, &verify, file, offset, generation);
            let at = at.index(len);
            buffer[at] ^= 1 << bit;
            let size = block_bytes(&verify, len);
            let (start, within) = (at / size * size, at % size);
            let block_len = size.min(len - start);
            let result = check(&buffer, &verify, file, offset);
            if kind == Sum::Header && block_len >= HEADER_BYTES && within >= HEADER_BYTES {
                // The header alone is checked.
                prop_assert!(result.is_ok());
                return Ok(());
            }
            let mismatch = result.unwrap_err();
            // Blocks whose data are shorter than a word do not tell their generation.
            let blind = block_len < HEADER_BYTES + 8;
            if blind && (16..24).contains(&within) {
                prop_assert!((offset + start as u64 + 16..offset + start as u64 + 40).contains(&mismatch.offset));
            } else {
                prop_assert_eq!(mismatch.offset, offset + at as u64, "{}", mismatch);
            }
            prop_assert!(mismatch.expected != mismatch.found);
        }

        #[test]
        fn any_damage_is_found(
            len in 48usize..600,
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let verify = verify(Sum::Xxh64, 0);
            let mut right = vec![0; len];
            fill(&mut right, &verify, 1, 512, 9);
            let mut wrong = right.clone();
            damage.iter().for_each(|(at, byte)| wrong[at.index(len)] = *byte);
            prop_assert_eq!(check(&wrong, &verify, 1, 512).is_ok(), wrong == right);
        }
    }
}
