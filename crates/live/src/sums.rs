//! The sums of fio's verify headers, as fio 3.33 makes them.
//!
//! ```text
//! crc7, crc16, crc32, crc64   start at 0, nothing is inverted at the end; crc32c starts at all ones, not inverted at
//! the end md5, sha1, sha3             the published ones; words of sha1 little endian
//! xxhash                      XXH32 with seed 1
//! sha256                      the last block as padded (length little endian), its first 8 bytes the low bytes of the
//!                             state's words
//! sha512                      no sum: the data's first 128 bytes, with what is behind their last whole 128 bytes over
//!                             them
//! ```
//! Source: RFC 1321, FIPS 180-4, FIPS 202, Williams, "A painless guide to CRC error detection algorithms" (1993); fio's
//! behaviour for what differs from them. Limits: data of fewer than 128 bytes have a sha512 of their own length.

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
            Sum::Crc7 => vec![data.iter().fold(0, |crc, byte| CRC7[usize::from(crc << 1 ^ byte)])],
            Sum::Crc16 => {
                let crc = data.iter().fold(0u16, |crc, byte| CRC16[usize::from(crc as u8 ^ byte)] as u16 ^ crc >> 8);
                crc.to_le_bytes().to_vec()
            }
            Sum::Crc32 => {
                let step = |crc: u32, byte: &u8| CRC32[usize::from((crc >> 24) as u8 ^ byte)] ^ crc << 8;
                data.iter().fold(0, step).to_le_bytes().to_vec()
            }
            Sum::Crc64 => {
                let step = |crc: u64, byte: &u8| CRC64[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
                data.iter().fold(0, step).to_le_bytes().to_vec()
            }
            Sum::Crc32c => (!crc32c::crc32c(data)).to_le_bytes().to_vec(),
            Sum::Xxhash => twox_hash::XxHash32::oneshot(1, data).to_le_bytes().to_vec(),
            Sum::Md5 => md5(data),
            Sum::Sha1 => sha1(data),
            Sum::Sha256 => sha256(data),
            Sum::Sha512 => {
                let (whole, rest) = data.split_at(if data.len() < 128 { 0 } else { data.len() / 128 * 128 });
                let mut first = whole.get(..128).unwrap_or_default().to_vec();
                first.resize(first.len().max(rest.len()), 0);
                first[..rest.len()].copy_from_slice(rest);
                first
            }
            Sum::Sha3(bytes) => sha3(data, usize::from(bytes)),
        }
    }
}

/// A table of remainders for a polynomial whose highest coefficient is its lowest bit.
const fn reflected(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

const CRC16: [u64; 256] = reflected(0xa001);
const CRC64: [u64; 256] = reflected(0x95ac_9329_ac4b_c9b5);

const CRC32: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const CRC7: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // Seven bits, kept one to the left.
        let mut crc = byte as u8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 7 == 1 { 0x09 << 1 } else { 0 };
            bit += 1;
        }
        table[byte] = crc >> 1;
        byte += 1;
    }
    table
};

/// The data in blocks, the last one or two padded with a one, zeroes and the length in bits.
fn padded(data: &[u8], bits: [u8; 8], mut each: impl FnMut(&[u8; 64])) -> [u8; 64] {
    let (whole, rest) = data.as_chunks::<64>();
    whole.iter().for_each(&mut each);
    let mut block = [0; 64];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x80;
    if rest.len() >= 56 {
        each(&block);
        block = [0; 64];
    }
    block[56..].copy_from_slice(&bits);
    each(&block);
    block
}

fn bits(data: &[u8]) -> u64 {
    (data.len() as u64) << 3
}

/// The words that sums begin with.
const START: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

fn md5(data: &[u8]) -> Vec<u8> {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state = [START[0], START[1], START[2], START[3]];
    padded(data, bits(data).to_le_bytes(), |block| {
        let word = |index: usize| u32::from_le_bytes(block[index * 4..].first_chunk().copied().unwrap_or_default());
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mixed, at) = match i / 16 {
                0 => (d ^ b & (c ^ d), i),
                1 => (c ^ d & (b ^ c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), 7 * i % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[i]).wrapping_add(word(at));
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4])));
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d]) {
            *word = word.wrapping_add(new);
        }
    });
    state.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn sha1(data: &[u8]) -> Vec<u8> {
    let mut state = START;
    padded(data, bits(data).to_be_bytes(), |block| {
        let mut words = [0; 80];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for i in 16..80 {
            words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (mixed, constant) = match i / 20 {
                0 => (d ^ b & (c ^ d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | d & (b | c), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(new);
        }
    });
    state.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn sha256(data: &[u8]) -> Vec<u8> {
    let mut state = ROOTS.map(|root| root);
    let mut last = padded(data, bits(data).to_le_bytes(), |block| {
        let mut words = [0u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for i in 16..64 {
            let (x, y) = (words[i - 15], words[i - 2]);
            let low = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
            let high = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
            words[i] = words[i - 16].wrapping_add(low).wrapping_add(words[i - 7]).wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (word, constant) in words.iter().zip(&CUBES) {
            let choice = g ^ e & (f ^ g);
            let first = h
                .wrapping_add(e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25))
                .wrapping_add(choice)
                .wrapping_add(*constant)
                .wrapping_add(*word);
            let majority = a & b | c & (a | b);
            let second = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add(majority);
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(new);
        }
    });
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word as u8;
    }
    last.to_vec()
}

fn sha3(data: &[u8], bytes: usize) -> Vec<u8> {
    let rate = 200 - 2 * bytes;
    let mut state = [0u64; 25];
    let mut absorb = |block: &[u8]| {
        for (lane, bytes) in state.iter_mut().zip(block.as_chunks().0) {
            *lane ^= u64::from_le_bytes(*bytes);
        }
        keccak(&mut state);
    };
    let blocks = data.chunks_exact(rate);
    let mut last = blocks.remainder().to_vec();
    blocks.for_each(&mut absorb);
    last.push(6);
    last.resize(rate, 0);
    last[rate - 1] |= 0x80;
    absorb(&last);
    state.iter().flat_map(|lane| lane.to_le_bytes()).take(bytes).collect()
}

/// The permutation Keccak-f[1600].
fn keccak(a: &mut [u64; 25]) {
    // The round constants come from a shift register of eight bits.
    let mut register = 1u8;
    for _ in 0..24 {
        let columns: [u64; 5] = std::array::from_fn(|x| (0..5).fold(0, |all, y| all ^ a[x + 5 * y]));
        for (at, lane) in a.iter_mut().enumerate() {
            *lane ^= columns[(at + 4) % 5] ^ columns[(at + 1) % 5].rotate_left(1);
        }
        let (mut x, mut y, mut moved) = (1, 0, a[1]);
        for step in 0..24 {
            (x, y) = (y, (2 * x + 3 * y) % 5);
            moved = std::mem::replace(&mut a[x + 5 * y], moved.rotate_left((step + 1) * (step + 2) / 2 % 64));
        }
        for row in a.as_chunks_mut::<5>().0 {
            let old = *row;
            for (x, lane) in row.iter_mut().enumerate() {
                *lane = old[x] ^ !old[(x + 1) % 5] & old[(x + 2) % 5];
            }
        }
        for bit in 0..7 {
            a[0] ^= u64::from(register & 1) << ((1 << bit) - 1);
            register = register << 1 ^ if register >> 7 == 1 { 0x71 } else { 0 };
        }
    }
}

/// Sines of 1, 2, .. in 32 binary places.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// Cube roots of the first primes, 32 binary places behind the point.
const CUBES: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// Their square roots.
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
