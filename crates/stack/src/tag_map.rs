//! A map of tags or tokens: which number is given out next, and when none is (blk-mq's `sbitmap`).
//!
//! ```text
//! words   64 numbers each; maps of fewer than 256 are spread over at least four words
//! get     the first free number of the word of the hint, else of the next words; with a limit from the hint itself on
//! limit   until 6.1 each word gives out its first numbers up to the limit, later a share of each word, so that the
//!         whole map gives out that many
//! free    the number becomes the hint, and stays taken until its word has no other: then all freed ones come back
//! waking  an eighth of the map's (or the lowest limit's) numbers at a time, 1 to 8
//! hint    goes on behind a number that was the hint itself, back to 0 from the last but one, and when none is free
//! ```
//! Source: Linux 5.10, 6.1, 6.12, 7.2, `lib/sbitmap.c`, `sbitmap_get`, `sbitmap_get_shallow`, `sbitmap_resize`,
//! `sbq_calc_wake_batch`. Deviations: one processor, so there is one hint; it begins at 0 rather than anywhere.

/// Most numbers that somebody may have taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All.
    None,
    /// This many of each word (until 6.1).
    OfWord(u32),
    /// This many of the map (later).
    OfMap(u32),
}

#[derive(Copy, Clone, Debug, Default)]
struct Word {
    taken: u64,
    /// Of these, numbers that were freed and have not come back.
    freed: u64,
}

impl Word {
    /// The first free number below `depth` from `from` on, else from 0 on; it is taken.
    fn take(&mut self, depth: u32, from: u32) -> Option<u32> {
        let below = |number: u32| if number >= 64 { u64::MAX } else { (1 << number) - 1 };
        loop {
            let free = !self.taken & below(depth);
            let ahead = free & !below(from);
            let free = if ahead == 0 { free } else { ahead };
            if free != 0 {
                self.taken |= 1 << free.trailing_zeros();
                return Some(free.trailing_zeros());
            }
            if self.freed == 0 {
                return None;
            }
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        self.taken &= !self.freed;
        self.freed = 0;
    }
}

/// How many numbers there are, and how they are spread over words.
#[derive(Copy, Clone, Debug)]
pub struct Shape {
    /// Log2 of the numbers of a word.
    shift: u32,
    depth: u32,
}

impl Shape {
    /// That of a map of `depth` numbers.
    pub fn new(depth: u32) -> Shape {
        let mut shift = 6;
        while depth >= 4 && 4 << shift > depth {
            shift -= 1;
        }
        Shape { shift, depth }
    }

    /// Numbers of a full word.
    pub fn of_word(self) -> u32 {
        1 << self.shift
    }

    fn nr_words(self) -> u32 {
        self.depth.div_ceil(self.of_word())
    }

    /// How many numbers of a word may be taken.
    fn most_of_word(self, word: u32, limit: Limit) -> u32 {
        let all = (self.depth - (word << self.shift)).min(self.of_word());
        match limit {
            Limit::OfWord(most) => most.min(all),
            Limit::OfMap(most) if most < self.depth => {
                let share = all * most;
                share / self.depth + u32::from(share % self.depth >= (word + 1) * all)
            }
            _ => all,
        }
    }

    /// How many numbers may be taken.
    pub fn most(self, limit: Limit) -> u32 {
        (0..self.nr_words()).map(|word| self.most_of_word(word, limit)).sum()
    }

    /// Waiters that are woken at a time if this is the lowest limit in use.
    pub fn wake_batch(self, lowest: Limit) -> u32 {
        let most = match lowest {
            Limit::OfMap(most) => most.min(self.depth),
            _ => self.most(lowest),
        };
        (most / 8).clamp(1, 8)
    }
}

/// The map.
#[derive(Clone, Debug)]
pub struct TagMap {
    shape: Shape,
    words: Vec<Word>,
    hint: u32,
}

impl TagMap {
    /// A map of `depth` free numbers.
    pub fn new(depth: u32) -> TagMap {
        let shape = Shape::new(depth);
        TagMap { shape, words: vec![Word::default(); shape.nr_words() as usize], hint: 0 }
    }

    /// How many numbers there are, and how they are spread.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How many numbers there are.
    pub fn depth(&self) -> u32 {
        self.shape.depth
    }

    /// Takes a number, if one is free for somebody with this limit.
    pub fn get(&mut self, limit: Limit) -> Option<u32> {
        let Shape { shift, depth } = self.shape;
        let hint = if self.hint < depth { self.hint } else { 0 };
        self.hint = hint;
        let (mut word, mut from) = (hint >> shift, 0);
        if limit != Limit::None {
            from = hint & (self.shape.of_word() - 1);
        }
        for _ in 0..self.shape.nr_words() {
            let depth_of_word = self.shape.most_of_word(word, limit);
            // A word without a share is not looked at, so its freed numbers do not come back.
            let found = (depth_of_word > 0).then(|| self.words[word as usize].take(depth_of_word, from));
            if let Some(number) = found.flatten() {
                let number = (word << shift) + number;
                if number == hint {
                    self.hint = if number + 2 >= depth { 0 } else { number + 1 };
                }
                return Some(number);
            }
            from = 0;
            word = (word + 1) % self.shape.nr_words();
        }
        self.hint = 0;
        None
    }

    /// Gives a number back.
    pub fn free(&mut self, number: u32) {
        let Shape { shift, depth } = self.shape;
        self.words[(number >> shift) as usize].freed |= 1 << (number & (self.shape.of_word() - 1));
        if number < depth {
            self.hint = number;
        }
    }

    /// Changes how many numbers there are, at most as many as at first. Those beyond stay with their requests.
    pub fn resize(&mut self, depth: u32) {
        let words = self.shape.nr_words() as usize;
        self.words[..words].iter_mut().for_each(Word::give_back);
        self.shape.depth = depth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_words_or_of_the_map() {
        for (limit, given) in
            [(Limit::None, 256), (Limit::OfWord(48), 192), (Limit::OfMap(192), 192), (Limit::OfMap(7), 7)]
        {
            let mut map = TagMap::new(256);
            assert_eq!(std::iter::from_fn(|| map.get(limit)).count(), given, "{limit:?}");
        }
    }

    #[test]
    fn numbers_that_were_freed_come_back_when_their_word_is_used_up() {
        let mut map = TagMap::new(4);
        let taken: Vec<u32> = std::iter::from_fn(|| map.get(Limit::None)).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        map.free(2);
        assert_eq!([map.get(Limit::None), map.get(Limit::None)], [Some(2), None]);
        map.resize(2);
        map.free(3);
        assert_eq!(map.get(Limit::None), None, "number 3 is no more");
    }
}
