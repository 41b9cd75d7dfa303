//! Random numbers: one seeded generator, split per component by name.
//!
//! Our own because golden results must survive library churn. xoshiro256++ seeded by SplitMix64 (Blackman and Vigna,
//! 2019); integer sampling only. [`GlibcRandom`] is the additive-feedback `random()` of the GNU C library, needed to
//! replay programs of 2004 that never seeded it.

/// xoshiro256++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream `name` of the run with seed `seed`. Streams of different names are independent, so that a new
    /// component does not shift the draws of the others.
    pub fn stream(seed: u64, name: &str) -> Rng {
        // FNV-1a over the name keeps equal names equal on every machine.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut state = seed ^ hash;
        Rng { state: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A uniform number in `0 .. bound` without bias (Lemire's multiply-shift with rejection).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range must not be empty");
        let mut wide = u128::from(self.next_u64()) * u128::from(bound);
        if (wide as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (wide as u64) < threshold {
                wide = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (wide >> 64) as u64
    }
}

/// `random()` of the GNU C library: additive feedback over 31 words (TYPE_3).
#[derive(Clone, Debug)]
pub struct GlibcRandom {
    words: [u32; 31],
    front: usize,
}

impl GlibcRandom {
    /// The state after `srandom(seed)`; an unseeded program behaves as with seed 1.
    pub fn new(seed: u32) -> GlibcRandom {
        let mut words = [0u32; 31];
        words[0] = if seed == 0 { 1 } else { seed };
        for i in 1..31 {
            // 16807 * x mod (2^31 - 1), negative results brought back into range, as the library does it.
            let previous = i64::from(words[i - 1] as i32);
            let mut word = 16807 * previous % 2_147_483_647;
            if word < 0 {
                word += 2_147_483_647;
            }
            words[i] = word as u32;
        }
        let mut random = GlibcRandom { words, front: 0 };
        for _ in 0..310 {
            random.next_u31();
        }
        random
    }

    /// The next value, 0 to 2^31 - 1.
    pub fn next_u31(&mut self) -> u32 {
        // The front pointer is three places ahead of the rear one.
        let front = (self.front + 3) % 31;
        let rear = self.front;
        self.words[front] = self.words[front].wrapping_add(self.words[rear]);
        self.front = (self.front + 1) % 31;
        self.words[front] >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_fixed_for_all_time() {
        let mut rng = Rng::stream(1, "test");
        let mut again = Rng::stream(1, "test");
        let mut other = Rng::stream(1, "tesu");
        assert_eq!(rng.next_u64(), again.next_u64());
        assert_ne!(rng.next_u64(), other.next_u64());
    }

    #[test]
    fn xoshiro_matches_the_published_reference() {
        // Reference outputs of xoshiro256++ from the state {1, 2, 3, 4}.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205];
        for value in expected {
            assert_eq!(rng.next_u64(), value);
        }
    }

    #[test]
    fn glibc_random_is_the_sequence_every_unseeded_program_sees() {
        let mut random = GlibcRandom::new(1);
        let first: Vec<u32> = (0..5).map(|_| random.next_u31()).collect();
        assert_eq!(first, [1804289383, 846930886, 1681692777, 1714636915, 1957747793]);
    }

    #[test]
    fn bounded_draws_stay_in_range_and_reach_it() {
        let mut rng = Rng::stream(7, "bounded");
        let mut seen = [0u32; 5];
        for _ in 0..5_000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 850), "{seen:?}");
    }
}
