//! Numbers as fio draws them, and its map of the blocks of a pass.

#[derive(Clone, Debug)]
pub(super) enum Tausworthe {
    Short([u32; 3]),
    Long([u64; 5]),
}

impl Tausworthe {
    pub(super) fn new(seed: u64, long: bool) -> Tausworthe {
        // The words are not below the least values that each component needs.
        let raised = |x: u64, least: u64| if x < least { x + least } else { x };
        let mut numbers = if long {
            let mut before = 53u64;
            Tausworthe::Long([1, 7, 15, 33, 49].map(|least| {
                before = raised(before.wrapping_mul(6_906_969_069) ^ seed, least);
                before
            }))
        } else {
            let mut before = 53u32;
            Tausworthe::Short([1, 7, 15].map(|least| {
                before = raised(u64::from(before.wrapping_mul(69_069) ^ seed as u32), least) as u32;
                before
            }))
        };
        for _ in 0..6 {
            numbers.next();
        }
        numbers
    }

    pub(super) fn next(&mut self) -> u64 {
        match self {
            Tausworthe::Short(words) => {
                let step = |s: u32, a: u32, b: u32, mask: u32, c: u32| ((s & mask) << c) ^ (((s << a) ^ s) >> b);
                let [x, y, z] = *words;
                *words = [step(x, 13, 19, !1, 12), step(y, 2, 25, !7, 4), step(z, 3, 11, !15, 17)];
                u64::from(words[0] ^ words[1] ^ words[2])
            }
            Tausworthe::Long(words) => {
                let step = |s: u64, a: u32, b: u32, low: u32, c: u32| ((s >> low << low) << c) ^ (((s << a) ^ s) >> b);
                let [v, w, x, y, z] = *words;
                *words = [
                    step(v, 1, 53, 1, 10),
                    step(w, 24, 50, 9, 5),
                    step(x, 3, 23, 12, 29),
                    step(y, 5, 24, 17, 23),
                    step(z, 3, 33, 23, 8),
                ];
                words.iter().fold(0, |all, word| all ^ word)
            }
        }
    }

    pub(super) fn bits(&self) -> u32 {
        if matches!(self, Tausworthe::Short(_)) { 32 } else { 64 }
    }

    /// A number in `0 .. bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(bound) * u128::from(self.next())) >> self.bits()) as u64
    }

    /// Whether a chance in percent has come.
    pub(super) fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < u64::from(chance)
    }
}

/// A shift register that goes through `0 .. n` and leaves out what is above.
#[derive(Clone, Debug)]
pub(super) struct Register {
    n: u64,
    top: u64,
    taps: u64,
    value: u64,
    given: u64,
    /// The first number is left out, once.
    fresh: bool,
}

/// Taps of registers of 3 bits and more, counted from 1.
pub(super) const TAPS: [&[u32]; 38] = [
    &[3, 2],
    &[4, 3],
    &[5, 3],
    &[6, 5],
    &[7, 6],
    &[8, 6, 5, 4],
    &[9, 5],
    &[10, 7],
    &[11, 9],
    &[12, 6, 4, 1],
    &[13, 4, 3, 1],
    &[14, 5, 3, 1],
    &[15, 14],
    &[16, 15, 13, 4],
    &[17, 14],
    &[18, 11],
    &[19, 6, 2, 1],
    &[20, 17],
    &[21, 19],
    &[22, 21],
    &[23, 18],
    &[24, 23, 22, 17],
    &[25, 22],
    &[26, 6, 2, 1],
    &[27, 5, 2, 1],
    &[28, 25],
    &[29, 27],
    &[30, 6, 4, 1],
    &[31, 28],
    &[32, 31, 29, 1],
    &[33, 20],
    &[34, 27, 2, 1],
    &[35, 33],
    &[36, 25],
    &[37, 5, 4, 3, 2, 1],
    &[38, 6, 5, 1],
    &[39, 35],
    &[40, 38, 21, 19],
];

impl Register {
    pub(super) fn new(n: u64, seed: u64) -> Register {
        let bits = (64 - n.leading_zeros()).max(3);
        let taps = TAPS[(bits as usize - 3).min(TAPS.len() - 1)];
        let mut register = Register {
            n,
            top: 1 << (taps[0] - 1),
            taps: taps.iter().fold(0, |mask, tap| mask | 1 << (tap - 1)),
            value: 0,
            given: 0,
            fresh: true,
        };
        register.reset(seed);
        register
    }

    pub(super) fn reset(&mut self, seed: u64) {
        self.value = seed & ((self.top << 1) - 1);
        self.given = 0;
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        if self.given >= self.n {
            return None;
        }
        self.given += 1;
        loop {
            let odd = self.value & 1 == 1;
            self.value = (self.value >> 1 | self.top) ^ if odd { 0 } else { self.taps };
            if !std::mem::take(&mut self.fresh) && self.value < self.n {
                return Some(self.value);
            }
        }
    }
}

/// Which blocks have been visited. A level above has a bit for each full word below it.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    n: u64,
    levels: Vec<Vec<u64>>,
}

impl Map {
    pub(super) fn new(n: u64) -> Map {
        let mut levels = Vec::new();
        let mut words = n;
        loop {
            words = words.div_ceil(64);
            levels.push(vec![0; words as usize]);
            if words <= 1 {
                return Map { n, levels };
            }
        }
    }

    pub(super) fn reset(&mut self) {
        self.levels.iter_mut().for_each(|level| level.fill(0));
    }

    pub(super) fn is_set(&self, bit: u64) -> bool {
        self.levels[0].get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Marks up to `nr` blocks from one on that are free; how many that were.
    pub(super) fn mark(&mut self, mut bit: u64, mut nr: u64) -> u64 {
        let mut marked = 0;
        while nr > 0 {
            let Some(word) = self.levels[0].get_mut((bit / 64) as usize) else { break };
            let room = nr.min(64 - bit % 64);
            let free = u64::from((*word >> (bit % 64)).trailing_zeros()).min(room);
            if free > 0 {
                *word |= (u64::MAX >> (64 - free)) << (bit % 64);
                if *word == u64::MAX {
                    self.full(bit / 64);
                }
            }
            marked += free;
            nr -= free;
            bit += free;
            if free < room {
                break;
            }
        }
        marked
    }

    pub(super) fn full(&mut self, mut word: u64) {
        for level in &mut self.levels[1..] {
            level[(word / 64) as usize] |= 1 << (word % 64);
            if level[(word / 64) as usize] != u64::MAX {
                break;
            }
            word /= 64;
        }
    }

    /// The first free block from one on.
    pub(super) fn first_free(&self, bit: u64) -> Option<u64> {
        let (mut level, mut bit) = (0, bit);
        loop {
            let rest = self.levels[level].get((bit / 64) as usize).map(|word| !word >> (bit % 64));
            match rest {
                Some(rest) if rest != 0 => {
                    let mut found = bit + u64::from(rest.trailing_zeros());
                    while level > 0 {
                        level -= 1;
                        found = found * 64 + u64::from(self.levels[level].get(found as usize)?.trailing_ones());
                    }
                    return (found < self.n).then_some(found);
                }
                _ if level + 1 == self.levels.len() => return None,
                _ => {
                    level += 1;
                    bit = bit / 64 + 1;
                }
            }
        }
    }

    /// The block itself, or the first free one behind it, or from the start on.
    pub(super) fn free_from(&self, bit: u64) -> Option<u64> {
        if !self.is_set(bit) {
            return Some(bit);
        }
        self.first_free(bit + 1).or_else(|| self.first_free(0))
    }
}
