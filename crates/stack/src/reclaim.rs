//! Reclaim: which cached page goes when memory is needed, and the replay of page traces against such a policy.
//!
//! A policy speaks of frames, the places that pages are kept in, numbered from 0. It therefore needs arrays of the size
//! of the cache and no map, however sparse the names of the pages are; its driver knows the place of each page.
//!
//! [`replay_pages`] and [`replay_ids`] drive a policy from a trace. Since the trace is known, they look a few requests
//! ahead and touch what those will need, so that waits for memory overlap. Looking ahead never changes a result.

mod chain;
pub mod clock;
pub mod fifo;
pub mod lru;
pub mod mglru;
pub mod two_list;

use crate::origin::{Entry, OptionSpec, Options};
use two_list::{FolioId, Folios, Shadow};

/// A place for one page in the cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

/// A replacement policy. A frame is unknown to it before `inserted` and after it has been a victim.
pub trait Reclaim {
    /// The page in `frame` was used again.
    fn touched(&mut self, frame: Frame);

    /// A page was put into `frame`.
    fn inserted(&mut self, frame: Frame);

    /// The frame to empty next, which the policy forgets. `None` if it knows none.
    fn victim(&mut self) -> Option<Frame>;

    /// Reads what `touched(frame)` would need and returns some value that depends on it, so that the replay can have it
    /// fetched early. No effect; the policy need not know the frame.
    fn peek(&self, frame: Frame) -> u32 {
        frame.0
    }
}

/// The lists in which a kernel keeps a control group's folios: two, or one a generation.
pub trait Lists {
    /// Adds a folio to the cache. `shadow` is what its predecessor left; a `dropbehind` folio is never marked.
    fn add(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool) -> FolioId;

    /// A read (or the end of a mapping that used it) marks the folio.
    fn mark_accessed(&mut self, folio: FolioId);

    /// The worker folds the statistics (every two seconds), for those that decide by them.
    fn fold(&mut self) {}

    /// One call of reclaim for `nr_needed` pages. Returns how many it freed.
    fn reclaim(&mut self, nr_needed: u64, folios: &mut dyn Folios) -> u64;
}

/// The options of every kernel's lists.
const OPTIONS: &[OptionSpec] = &[OptionSpec::number(
    "min_reclaim_pages",
    32,
    (1, 4096),
    "pages that one call of reclaim frees at least (SWAP_CLUSTER_MAX)",
)];

const ORACLE: &str = "`cargo xtask oracle`: the kernel's own code on random input";

/// The priority at which reclaim of folios begins: a 4096th of them.
const FIRST_PRIORITY: u32 = 12;

/// How to make a policy: the constructor for callers that choose one at run time, and both replays, compiled for it.
#[derive(Copy, Clone)]
pub struct Build {
    /// The policy for a cache of that many frames.
    pub policy: fn(u32, &Options) -> Box<dyn Reclaim>,
    pub replay_pages: fn(u32, &Options, &[u32]) -> u64,
    pub replay_ids: fn(u32, &Options, &[u64]) -> u64,
}

/// Every policy.
pub const RECLAIMS: &[&Entry<Build>] = &[&lru::ENTRY, &fifo::ENTRY, &clock::ENTRY];

/// No frame: the page is not cached.
const NONE: u32 = u32::MAX;
/// Requests of which the table entries are fetched together.
const BATCH: usize = 32;

/// The frames of a cache that is filled once and then stays full.
struct Frames<R> {
    policy: R,
    nr_used: u32,
    capacity: u32,
}

impl<R: Reclaim> Frames<R> {
    fn new(policy: R, capacity: u32) -> Frames<R> {
        assert!(capacity > 0 && capacity < NONE, "a cache of {capacity} frames");
        Frames { policy, nr_used: 0, capacity }
    }

    /// A frame for a page that is about to be inserted, and whether another page had it until now.
    #[inline]
    fn take(&mut self) -> (Frame, bool) {
        if self.nr_used < self.capacity {
            self.nr_used += 1;
            (Frame(self.nr_used - 1), false)
        } else {
            (self.policy.victim().expect("a full cache has a victim"), true)
        }
    }
}

/// Replays `trace`, a list of page numbers, against a cache of `capacity` pages. Returns the number of misses.
///
/// Page numbers index an array, so the largest should not be far above the number of different pages.
///
/// # Panics
/// If `capacity` is 0 or 2^32 - 1.
pub fn replay_pages<R: Reclaim>(policy: R, capacity: u32, trace: &[u32]) -> u64 {
    let mut frames = Frames::new(policy, capacity);
    let nr_pages = trace.iter().max().map_or(0, |page| *page as usize + 1);
    let mut frame_of = vec![NONE; nr_pages];
    let mut page_in = vec![0u32; capacity as usize];
    let mut misses = 0;
    let mut batches = trace.chunks(BATCH).peekable();
    while let Some(batch) = batches.next() {
        if let Some(ahead) = batches.peek() {
            // Any frame will do for a page that is not cached: a branch would be mispredicted here and again below.
            let peek = |page: &u32| frames.policy.peek(Frame(frame_of[*page as usize].min(capacity - 1)));
            std::hint::black_box(ahead.iter().fold(0, |warmth, page| warmth ^ peek(page)));
        }
        for page in batch {
            let frame = frame_of[*page as usize];
            if frame != NONE {
                frames.policy.touched(Frame(frame));
                continue;
            }
            misses += 1;
            let (frame, was_used) = frames.take();
            if was_used {
                frame_of[page_in[frame.0 as usize] as usize] = NONE;
            }
            frame_of[*page as usize] = frame.0;
            page_in[frame.0 as usize] = *page;
            frames.policy.inserted(frame);
        }
    }
    misses
}

/// Replays `trace`, a list of arbitrary 64-bit names, against a cache of `capacity` pages. Returns the number of
/// misses.
///
/// # Panics
/// If `capacity` is 0 or above 2^30.
pub fn replay_ids<R: Reclaim>(policy: R, capacity: u32, trace: &[u64]) -> u64 {
    let mut frames = Frames::new(policy, capacity);
    let mut table = Table::new(capacity);
    let mut misses = 0;
    let mut batches = trace.chunks(BATCH).peekable();
    while let Some(batch) = batches.next() {
        if let Some(ahead) = batches.peek() {
            let peek = |id: &u64| {
                let guess = table.guess(*id).min(capacity - 1);
                frames.policy.peek(Frame(guess)) ^ table.ids[guess as usize] as u32
            };
            std::hint::black_box(ahead.iter().fold(0, |warmth, id| warmth ^ peek(id)));
        }
        for id in batch {
            if let Some(frame) = table.find(*id) {
                frames.policy.touched(frame);
                continue;
            }
            misses += 1;
            let (frame, was_used) = frames.take();
            if was_used {
                table.remove(frame);
            }
            table.insert(*id, frame);
            frames.policy.inserted(frame);
        }
    }
    misses
}

/// Frames by the name of the page they hold: open addressing with linear probing, at most half full.
///
/// An entry holds the leading half of the hash above the frame. A probe therefore seldom looks at a name other than the
/// wanted one, and an entry shows its home by itself, as deletion needs: it moves later entries back, without
/// tombstones. The hash is fixed: results are the same on every machine, and a hostile trace could make it slow, never
/// wrong.
struct Table {
    /// `VACANT`, or part of a hash and a frame.
    entries: Vec<u64>,
    /// The name of the page in each frame.
    ids: Vec<u64>,
    /// `64 - log2(entries.len())`: the leading bits of a hash say where to look first.
    shift: u32,
}

/// No entry looks like this, since the frame `u32::MAX` does not exist.
const VACANT: u64 = u64::MAX;

impl Table {
    fn new(capacity: u32) -> Table {
        assert!(capacity <= 1 << 30, "a cache of {capacity} frames");
        let len = (capacity as usize * 2).next_power_of_two();
        Table { entries: vec![VACANT; len], ids: vec![0; capacity as usize], shift: 64 - len.trailing_zeros() }
    }

    /// Multiply, fold, multiply: the leading bits depend on all bits of `id`.
    #[inline]
    fn hash(id: u64) -> u64 {
        let h = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// Where a hash, or the entry made of it, belongs.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn entry(hash: u64, frame: u32) -> u64 {
        (hash >> 32 << 32) | u64::from(frame)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.entries.len() - 1)
    }

    /// The frame that the first probe for `id` meets, right or wrong, or a number beyond all frames.
    #[inline]
    fn guess(&self, id: u64) -> u32 {
        self.entries[self.home(Table::hash(id))] as u32
    }

    #[inline]
    fn find(&self, id: u64) -> Option<Frame> {
        let hash = Table::hash(id);
        let mut place = self.home(hash);
        loop {
            let entry = self.entries[place];
            if entry == VACANT {
                return None;
            }
            let frame = entry as u32;
            if entry >> 32 == hash >> 32 && self.ids[frame as usize] == id {
                return Some(Frame(frame));
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn insert(&mut self, id: u64, frame: Frame) {
        let hash = Table::hash(id);
        let mut place = self.home(hash);
        while self.entries[place] != VACANT {
            place = self.after(place);
        }
        self.entries[place] = Table::entry(hash, frame.0);
        self.ids[frame.0 as usize] = id;
    }

    #[inline]
    fn remove(&mut self, frame: Frame) {
        let hash = Table::hash(self.ids[frame.0 as usize]);
        let wanted = Table::entry(hash, frame.0);
        let mut hole = self.home(hash);
        while self.entries[hole] != wanted {
            hole = self.after(hole);
        }
        // Whatever follows without a gap moves back, unless that would put it before its home.
        let mask = self.entries.len() - 1;
        let mut place = hole;
        loop {
            place = self.after(place);
            let entry = self.entries[place];
            if entry == VACANT {
                break;
            }
            if place.wrapping_sub(self.home(entry)) & mask >= place.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = place;
            }
        }
        self.entries[hole] = VACANT;
    }
}

/// A first-in first-out list of frames in an array that is allocated once.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    frames: Vec<u32>,
    first: usize,
    len: usize,
}

impl Ring {
    pub(crate) fn new(capacity: u32) -> Ring {
        Ring { frames: vec![0; capacity as usize], first: 0, len: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, frame: Frame) {
        assert!(self.len < self.frames.len(), "a frame was inserted twice");
        let end = self.first + self.len;
        let place = if end < self.frames.len() { end } else { end - self.frames.len() };
        self.frames[place] = frame.0;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        if self.len == 0 {
            return None;
        }
        let frame = self.frames[self.first];
        self.first = if self.first + 1 < self.frames.len() { self.first + 1 } else { 0 };
        self.len -= 1;
        Some(Frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::find;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn policy(name: &str) -> &'static Entry<Build> {
        find(RECLAIMS, name).expect("the policy is listed")
    }

    /// Misses by both replays, which must agree.
    fn misses(name: &str, capacity: u32, options: &Options, trace: &[u32]) -> u64 {
        let build = policy(name).build;
        // An odd multiplier spreads the names over 64 bits and keeps them different.
        let ids: Vec<u64> = trace.iter().map(|page| u64::from(*page).wrapping_mul(0xda94_2042_e4dd_58b5)).collect();
        let dense = (build.replay_pages)(capacity, options, trace);
        assert_eq!(dense, (build.replay_ids)(capacity, options, &ids), "{name}: names must not matter");
        dense
    }

    /// Each policy as one would explain it, with a vector in order of eviction: (page, counter).
    fn oracle(name: &str, capacity: u32, max_count: u32, trace: &[u32]) -> u64 {
        let mut pages: Vec<(u32, u32)> = Vec::new();
        let mut misses = 0;
        for page in trace {
            if let Some(place) = pages.iter().position(|entry| entry.0 == *page) {
                match name {
                    "lru" => {
                        let entry = pages.remove(place);
                        pages.push(entry);
                    }
                    "clock" => pages[place].1 = (pages[place].1 + 1).min(max_count),
                    _ => {}
                }
                continue;
            }
            misses += 1;
            if pages.len() == capacity as usize {
                while pages[0].1 > 0 {
                    let (page, count) = pages.remove(0);
                    pages.push((page, count - 1));
                }
                pages.remove(0);
            }
            pages.push((*page, 0));
        }
        misses
    }

    proptest! {
        #[test]
        fn replays_miss_as_often_as_the_naive_policies(
            capacity in 1..20u32,
            counter_bits in 1..4i64,
            trace in prop::collection::vec((0..30u32, 0..30u32).prop_map(|(a, b)| a.min(b)), 0..600),
        ) {
            for entry in RECLAIMS {
                let mut options = entry.defaults();
                if entry.name == "clock" {
                    options.set("counter_bits", counter_bits);
                }
                let expected = oracle(entry.name, capacity, (1 << counter_bits) - 1, &trace);
                prop_assert_eq!(misses(entry.name, capacity, &options, &trace), expected, "{}", entry.name);
            }
        }

        #[test]
        fn every_inserted_frame_is_a_victim_once(
            steps in prop::collection::vec((0..3u8, 0..8u32), 0..200),
        ) {
            for entry in RECLAIMS {
                let mut policy = (entry.build.policy)(8, &entry.defaults());
                let mut known = std::collections::BTreeSet::new();
                for (action, frame) in &steps {
                    match action {
                        0 if known.contains(frame) => policy.touched(Frame(*frame)),
                        1 if known.insert(*frame) => policy.inserted(Frame(*frame)),
                        2 => {
                            let victim = policy.victim();
                            prop_assert_eq!(victim.is_none(), known.is_empty());
                            prop_assert!(victim.is_none_or(|victim| known.remove(&victim.0)));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// 200,000 requests to 16,384 pages: half to the 1,024 hottest, a quarter anywhere, a quarter in a scan.
    fn synthetic_trace() -> Vec<u32> {
        let mut rng = Rng::stream(2004, "reclaim.trace");
        let mut scan = 0u32;
        (0..200_000)
            .map(|_| match rng.below(4) {
                0 | 1 => rng.below(1024) as u32 * 5 % 16_384,
                2 => rng.below(16_384) as u32,
                _ => {
                    scan = (scan + 1) % 16_384;
                    scan
                }
            })
            .collect()
    }

    #[test]
    fn miss_counts_are_those_of_libcachesim() {
        // Frozen from libCacheSim 0.3.5 (the Python wheel): `LRU`, `FIFO` and `Clock` with its defaults, and `Clock`
        // with `n_bit_counter=2`, fed this very trace with object size 1.
        let trace = synthetic_trace();
        let digest = trace.iter().fold(0u64, |digest, page| digest.wrapping_mul(31).wrapping_add(u64::from(*page)));
        assert_eq!(digest, DIGEST, "the counts below belong to another trace");
        for (name, counter_bits, capacity, expected) in FROZEN {
            let mut options = policy(name).defaults();
            if *name == "clock" {
                options.set("counter_bits", *counter_bits);
            }
            assert_eq!(misses(name, *capacity, &options, &trace), *expected, "{name}, {capacity} pages");
        }
    }

    const DIGEST: u64 = 15_340_811_702_874_435_587;

    /// Policy, `counter_bits` where it has one, pages in the cache, misses.
    const FROZEN: &[(&str, i64, u32, u64)] = &[
        ("lru", 1, 500, 173_150),
        ("lru", 1, 2000, 115_044),
        ("lru", 1, 8000, 63_478),
        ("fifo", 1, 500, 174_602),
        ("fifo", 1, 2000, 128_394),
        ("fifo", 1, 8000, 69_916),
        ("clock", 1, 500, 171_834),
        ("clock", 1, 2000, 108_333),
        ("clock", 1, 8000, 63_918),
        ("clock", 2, 500, 171_471),
        ("clock", 2, 2000, 98_128),
        ("clock", 2, 8000, 63_874),
    ];

    #[test]
    fn names_that_collide_are_kept_apart() {
        // All names of which only the top bits differ would share few homes under a weak hash.
        let ids: Vec<u64> = (0..20_000u64).map(|n| (n % 700) << 48).collect();
        assert_eq!(replay_ids(lru::Lru::new(700), 700, &ids), 700);
        assert_eq!(replay_ids(lru::Lru::new(699), 699, &ids), 20_000);
    }
}
