//! The sums of fio's verify headers, as fio 3.33 makes them.
//!
//! ```text
//! crc7, crc16, crc32, crc64  start at 0, nothing is inverted at the end; crc32 has its highest bit first
//! crc32c                     starts at all ones, not inverted at the end
//! md5, sha3                  the published ones; so is sha1, with its words little endian
//! xxhash                     XXH32 with seed 1
//! sha256                     the last block as padded (length little endian), its first 8 bytes the low bytes of the
//!                            state's words
//! sha512                     no sum: the data's first 128 bytes, with what is behind their last whole 128 bytes over
//!                            them
//! ```
//! Source: fio 3.33, by the bytes that it leaves in a file. Limits: data of fewer than 128 bytes have a sha512 of their
//! own length.

use crc::{Algorithm, Crc};
use md5::Md5;
use sha1::Sha1;
use sha2::block_api::compress256;
use sha3::{Digest, Sha3_224, Sha3_256, Sha3_384, Sha3_512};

use crate::plan::Sum;

impl Sum {
    /// Every sum: fio's name of it, its number in headers, and bytes behind the header.
    pub const ALL: &[(&str, Sum, u16, usize)] = &[
        ("meta", Sum::Header, 1, 0),
        ("md5", Sum::Md5, 2, 16),
        ("crc64", Sum::Crc64, 3, 8),
        ("crc32", Sum::Crc32, 4, 4),
        ("crc32c", Sum::Crc32c, 5, 4),
        ("crc32c-intel", Sum::Crc32c, 5, 4),
        ("crc16", Sum::Crc16, 7, 2),
        ("crc7", Sum::Crc7, 8, 1),
        ("sha256", Sum::Sha256, 9, 64),
        ("sha512", Sum::Sha512, 10, 128),
        ("sha3-224", Sum::Sha3(28), 11, 28),
        ("sha3-256", Sum::Sha3(32), 12, 32),
        ("sha3-384", Sum::Sha3(48), 13, 48),
        ("sha3-512", Sum::Sha3(64), 14, 64),
        ("xxhash", Sum::Xxhash, 15, 4),
        ("sha1", Sum::Sha1, 16, 20),
        ("pattern_hdr", Sum::PatternHeader, 17, 0),
        ("pattern", Sum::Pattern, 18, 0),
        ("null", Sum::Null, 19, 0),
    ];

    fn entry(self) -> &'static (&'static str, Sum, u16, usize) {
        Sum::ALL.iter().find(|entry| entry.1 == self).unwrap_or(&Sum::ALL[0])
    }

    /// Its number in headers.
    pub(crate) fn number(self) -> u16 {
        self.entry().2
    }

    /// fio's name of it.
    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    /// Bytes behind the header.
    pub(crate) fn bytes(self) -> usize {
        self.entry().3
    }

    /// The sum over data.
    pub(crate) fn over(self, data: &[u8]) -> Vec<u8> {
        match self {
            Sum::Header | Sum::PatternHeader | Sum::Pattern | Sum::Null => Vec::new(),
            Sum::Crc7 => vec![CRC7.checksum(data)],
            Sum::Crc16 => CRC16.checksum(data).to_le_bytes().to_vec(),
            Sum::Crc32 => CRC32.checksum(data).to_le_bytes().to_vec(),
            Sum::Crc64 => CRC64.checksum(data).to_le_bytes().to_vec(),
            Sum::Crc32c => (!crc32c::crc32c(data)).to_le_bytes().to_vec(),
            Sum::Xxhash => twox_hash::XxHash32::oneshot(1, data).to_le_bytes().to_vec(),
            Sum::Md5 => Md5::digest(data).to_vec(),
            Sum::Sha1 => Sha1::digest(data).chunks_exact(4).flat_map(|word| word.iter().rev().copied()).collect(),
            Sum::Sha256 => sha256(data),
            Sum::Sha512 => {
                let (whole, rest) = data.split_at(if data.len() < 128 { 0 } else { data.len() / 128 * 128 });
                let mut first = whole.get(..128).unwrap_or_default().to_vec();
                first.resize(first.len().max(rest.len()), 0);
                first[..rest.len()].copy_from_slice(rest);
                first
            }
            Sum::Sha3(28) => Sha3_224::digest(data).to_vec(),
            Sum::Sha3(32) => Sha3_256::digest(data).to_vec(),
            Sum::Sha3(48) => Sha3_384::digest(data).to_vec(),
            Sum::Sha3(_) => Sha3_512::digest(data).to_vec(),
        }
    }
}

const CRC7: Crc<u8> = Crc::<u8>::new(&crc::CRC_7_MMC);
const CRC16: Crc<u16> = Crc::<u16>::new(&crc::CRC_16_ARC);
const CRC32: Crc<u32> = Crc::<u32>::new(&Algorithm { xorout: 0, ..crc::CRC_32_CKSUM });
const CRC64: Crc<u64> = Crc::<u64>::new(&crc::CRC_64_REDIS);

/// The last block of the data, padded with a one, zeroes and the length in bits, with the state in its first bytes.
fn sha256(data: &[u8]) -> Vec<u8> {
    let mut state = ROOTS;
    let (whole, rest) = data.as_chunks::<64>();
    compress256(&mut state, whole);
    let mut block = [0; 64];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x80;
    if rest.len() >= 56 {
        compress256(&mut state, &[block]);
        block = [0; 64];
    }
    block[56..].copy_from_slice(&((data.len() as u64) << 3).to_le_bytes());
    compress256(&mut state, &[block]);
    for (byte, word) in block.iter_mut().zip(state) {
        *byte = word as u8;
    }
    block.to_vec()
}

/// Square roots of the first primes, 32 binary places behind the point: the state of SHA-256 before any data.
const ROOTS: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums that fio 3.33 has left in blocks of 512 bytes with the pattern `abc`, from the first byte behind the sum
    /// on.
    const FIO: &[(&str, &str)] = &[
        ("md5", "9ec7b81a7899998b0da6373658691a1d"),
        ("crc64", "5b0ab2c2d0e33908"),
        ("crc32", "5798c90f"),
        ("crc32c", "8cfc978b"),
        ("crc16", "3fd2"),
        ("crc7", "45"),
        (
            "sha256",
            "8c18cf484ab24207626361626361626361626361626361628000000000000000\
             000000000000000000000000000000000000000000000000c00c000000000000",
        ),
        ("sha3-224", "d72fb60c84e7cf0b67749816e93b5b353843bc1dcc4309d570a4e3e5"),
        ("sha3-256", "771a38d5c278b5624e9128e6f9b1dd76ed6e5289b0fd66cd9ff026fa05d67308"),
        (
            "sha3-384",
            "62fdfa338a91286b358457a9260bcb9e0bd6b0e75b96e06a93cdd80de6268263ad686acce3ae8066892f77f96205c556",
        ),
        (
            "sha3-512",
            "b544a2bcf81e76a2859c6c2ba5517715d7afd761c836023a6768f9784462ada1\
             6590669d759d477b7d0596336362060624bf05090d8c5406c4df9a624bc320a4",
        ),
        ("xxhash", "b3e61dc2"),
        ("sha1", "9258d0aab872be4df774b42336d5bf1b1310a4e4"),
    ];

    #[test]
    fn sums_are_fios() {
        let block = b"abc".repeat(171);
        let of = |name: &str, data: &[u8]| {
            let sum = Sum::ALL.iter().find(|entry| entry.0 == name).expect("it is known").1;
            sum.over(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        for (name, expected) in FIO {
            let bytes = Sum::ALL.iter().find(|entry| entry.0 == *name).expect("it is known").3;
            assert_eq!(of(name, &block[40 + bytes..512]), *expected, "{name}");
        }
        // The part behind the last whole 128 bytes, then what was there before.
        let data: Vec<u8> = (0..200).collect();
        let shown: Vec<u8> = (128..200).chain(72..128).collect();
        assert_eq!(Sum::Sha512.over(&data), shown);
    }
}
