//! Data that a device can compress or has seen before, as fio's `buffer_compress_percentage`, `dedupe_percentage` and
//! `buffer_pattern` ask for them.
//!
//! A write is cut into chunks. A chunk is new, or, in `repeats` percent of the cases, equal to an earlier one: to the
//! last new one, or to one drawn from a set that was chosen before the run. Its first part is random, `pattern_percent`
//! of it is the pattern, or zeroes.
//!
//! Source: fio 3.33's manual, and the sizes that gzip and a count of equal chunks find in files of both. The bytes
//! themselves are not fio's.

use std::sync::Arc;

use iowhy_stack::rng::Rng;

use crate::files::fill_random;
use crate::plan::Content;

/// Makes the data of one thread.
pub(crate) struct Maker {
    pub content: Arc<Content>,
    rng: Rng,
    seed: u64,
    /// Chunks so far that repeat no other.
    unique: u64,
}

/// Added to the numbers of chunks that are drawn from, so that they differ from new ones.
const DRAWN: u64 = 1 << 63;

impl Maker {
    pub(crate) fn new(content: Arc<Content>, seed: u64) -> Maker {
        Maker { content, rng: Rng::stream(seed, "content"), seed, unique: 0 }
    }

    pub(crate) fn fill(&mut self, data: &mut [u8]) {
        let Content { chunk_bytes, repeats, drawn_from, shared, pattern_percent, .. } = *self.content;
        let pattern = self.content.pattern.as_deref().unwrap_or(&[0]);
        for chunk in data.chunks_mut(chunk_bytes.max(1) as usize) {
            let again = repeats == 100 && self.unique > 0 || repeats > 0 && self.rng.below(100) < u64::from(repeats);
            let (seed, number) = match (again, drawn_from) {
                (true, 0) => (self.seed, self.unique.max(1)),
                (true, _) => (if shared { 0 } else { self.seed }, DRAWN | self.rng.below(drawn_from)),
                (false, _) => {
                    self.unique += 1;
                    (self.seed, self.unique)
                }
            };
            let random = chunk.len() * usize::from(100 - pattern_percent) / 100;
            let (random, rest) = chunk.split_at_mut(random);
            if !random.is_empty() {
                fill_random(random, &mut Rng::stream(seed ^ number.rotate_left(20), "chunk"));
            }
            rest.chunks_mut(pattern.len()).for_each(|piece| piece.copy_from_slice(&pattern[..piece.len()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn data_repeat_and_can_be_compressed_as_asked() {
        let usual =
            Content { chunk_bytes: 512, repeats: 0, drawn_from: 0, shared: false, pattern_percent: 0, pattern: None };
        let set = |nr| Content { repeats: 100, drawn_from: nr, ..usual.clone() };
        let pattern = || Some(Arc::from(&b"ab"[..]));
        for (content, equal, zeroes) in [
            (usual.clone(), 0..=0, 0..=8),
            (Content { repeats: 30, ..usual.clone() }, 250..=350, 0..=8),
            (Content { repeats: 100, ..usual.clone() }, 999..=999, 0..=8),
            (set(7), 993..=993, 0..=8),
            (Content { pattern_percent: 75, ..usual.clone() }, 0..=0, 384..=392),
            (Content { pattern_percent: 50, pattern: pattern(), ..usual.clone() }, 0..=0, 0..=8),
            (Content { pattern_percent: 100, pattern: pattern(), ..usual.clone() }, 999..=999, 0..=0),
        ] {
            let mut data = vec![0; 512 * 1000];
            let mut maker = Maker::new(Arc::new(content.clone()), 3);
            data.chunks_mut(4096).for_each(|write| maker.fill(write));
            let distinct: BTreeSet<&[u8]> = data.chunks(512).collect();
            assert!(equal.contains(&(1000 - distinct.len())), "{content:?}: {}", 1000 - distinct.len());
            let found = data[512 * 500..][..512].iter().filter(|byte| **byte == 0).count();
            assert!(zeroes.contains(&found), "{content:?}: {found} zeroes");
            assert_eq!(data.ends_with(b"abab"), content.pattern.is_some());
        }
        let first = |seed, content: Content| {
            let mut data = vec![0; 4096];
            Maker::new(Arc::new(content), seed).fill(&mut data);
            data
        };
        assert_ne!(first(1, usual.clone()), first(2, usual.clone()));
        assert_ne!(first(1, set(1)), first(2, set(1)));
        let shared = || Content { shared: true, ..set(1) };
        assert_eq!(first(1, shared()), first(2, shared()));
    }
}
