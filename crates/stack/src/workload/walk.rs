//! The walk of a fio job over its files: which place, how many bytes and which direction each call has, as fio itself
//! draws them, number by number.
//!
//! ```text
//! numbers    a generator of Tausworthe's kind (three words of 32 bits, or five of 64) for each purpose: places, sizes
//!            of each direction, mix, files, share of random calls; seeded from the job's seed and the thread's number
//! place      random: a block of the region; one that is done already gives way to the next that is not (the map wraps
//!            once). lfsr: a shift register walks all numbers. Else behind the last call, plus the step, which wraps
//! every      after that number of random calls a new place; between them the next place, or the same one (identical)
//! size       drawn until it fits into the region, in multiples of the least size; with a map cut where the map is done
//! mix        a new draw after as many calls as the other direction's share of those so far
//! zones      a zone's bytes are done before the next zone begins, range and skip further on
//! trims      a trim, then a write of the same place (trimwrite)
//! pass       until each file has had a place that does not fit, or (with a queue) its bytes are moved; another follows
//!            while loops are left, or at least a block of the size
//! ```
//! Source: fio 3.33, its manual and the behaviour of `io_u.c`, `backend.c`, `lib/rand.c`, `lib/axmap.c`, `lib/lfsr.c`;
//! L'Ecuyer, "Maximally equidistributed combined Tausworthe generators" (1996) and "Tables of maximally equidistributed
//! combined LFSR generators" (1999); taps of shift registers: Xilinx XAPP 052. Known deviations: Zipf, Pareto and
//! normal draws have our numbers.

mod numbers;

use serde::Serialize;

use super::draw::{Distribution, Places};
use crate::rng::Rng;
use numbers::{Map, Register, Tausworthe};

/// Directions, as indices: reads, writes, trims.
pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const TRIM: usize = 2;

/// Which numbers places are drawn from (`random_generator`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Numbers {
    /// 32 bits.
    Tausworthe,
    /// 64 bits.
    Tausworthe64,
    /// A shift register, which visits each number once.
    Lfsr,
}

/// Kinds of calls.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Directions {
    /// One direction.
    Only(usize),
    /// Reads with this chance, percent; else writes.
    Mixed(u32),
    /// A trim and then a write of the same place.
    TrimWrite,
}

/// Sizes of one direction, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    pub least: u64,
    pub most: u64,
    /// Sizes with their shares, percent; empty for a range.
    pub split: Vec<(u64, u32)>,
    /// Random places are multiples of this.
    pub align: u64,
    /// Share of random calls that go to a new place, percent.
    pub random_pct: u32,
}

/// Regions of a file that are used in turn (`zonemode=strided`), bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zones {
    /// Moved before the next.
    pub size: u64,
    pub range: u64,
    /// Between two.
    pub skip: u64,
}

/// A file of the job, bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub start: u64,
    pub len: u64,
    /// Of the whole file.
    pub file: u64,
}

/// Which file comes next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Turns {
    /// This number of calls to one, then the next.
    RoundRobin(u32),
    Sequential,
    /// This number of calls to one, then a drawn one.
    Random(u32),
}

/// A fio job's walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Walk {
    /// Number of the thread in the run, from 1.
    pub number: u64,
    /// The job's seed (`randseed`).
    pub seed: u64,
    /// The same places in each run, whatever the seed (`randrepeat`).
    pub same_places: bool,
    /// The same numbers in each pass.
    pub repeat: bool,
    /// Other numbers in each run.
    pub fresh: bool,
    pub numbers: Numbers,
    pub directions: Directions,
    pub random: bool,
    /// Places are visited once a pass.
    pub map: bool,
    pub distribution: Distribution,
    /// Sizes of reads, writes and trims.
    pub sizes: [Sizes; 3],
    /// Sizes need not be multiples of the least.
    pub unaligned: bool,
    /// The first sizes are for sequential calls, the second for random ones.
    pub sizes_by_order: bool,
    /// Writes are checked: they have the sizes that reads would have.
    pub verified: bool,
    /// They are read again behind each pass, which counts.
    pub checked: bool,
    /// Calls are handed in and complete later: a pass ends with its bytes, too.
    pub queued: bool,
    /// Added to the place behind the last sequential call.
    pub step: i64,
    /// Calls to a random place and behind it.
    pub every: u32,
    /// These calls go to the same place instead.
    pub identical: bool,
    pub zones: Option<Zones>,
    pub spans: Vec<Span>,
    pub turns: Turns,
    /// Bytes of a pass.
    pub size: u64,
    /// Bytes in all, if not the size (`io_size`); 0 for none.
    pub io_size: u64,
    pub loops: u64,
    /// Calls of a loop at most; 0 for no limit.
    pub calls: u64,
    /// It ends by its time alone.
    pub time_based: bool,
}

/// The next call: direction, number of the file, place in the file and length, bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub direction: usize,
    pub target: usize,
    pub offset: u64,
    pub len_bytes: u64,
}

/// No place yet.
const NOWHERE: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct File {
    /// First byte; moves on with zones.
    start: u64,
    next: [u64; 3],
    last: [u64; 3],
    map: Option<Map>,
    register: Option<Register>,
    places: Option<Places>,
    done: bool,
}

impl File {
    fn reset(&mut self, seed: u64) {
        self.next = [self.start; 3];
        self.last = [NOWHERE; 3];
        if let Some(map) = &mut self.map {
            map.reset();
        }
        if let Some(register) = &mut self.register {
            register.reset(seed);
        }
    }
}

/// Generators of one thread.
#[derive(Clone, Debug)]
struct Draws {
    places: Tausworthe,
    sizes: [Tausworthe; 3],
    mix: Tausworthe,
    files: Tausworthe,
    order: [Tausworthe; 3],
    /// Of distributions that are not uniform.
    ours: Rng,
}

impl Draws {
    fn new(walk: &Walk, place_seed: u64) -> Draws {
        let long = walk.numbers == Numbers::Tausworthe64;
        let seed = |purpose| walk.seed_of(purpose);
        let sizes =
            [0, if walk.verified { 0 } else { 1 }, if walk.directions == Directions::TrimWrite { 1 } else { 2 }];
        Draws {
            places: Tausworthe::new(place_seed, long || walk.blocks_exceed_32_bits()),
            sizes: sizes.map(|purpose| Tausworthe::new(seed(purpose), long)),
            mix: Tausworthe::new(seed(4), false),
            files: Tausworthe::new(seed(5), long),
            order: std::array::from_fn(|_| Tausworthe::new(seed(10), false)),
            ours: Rng::stream(place_seed, "walk"),
        }
    }
}

/// fio's factor between seeds.
const SPREAD: u64 = 0x9e37_0001;
/// The seed of places that are the same in each run, for thread 1.
const PLACES: u64 = 0xb189_9bed;
/// Which of a thread's seeds is for places.
const OF_PLACES: u64 = 6;
/// And which is for sizes of files.
const OF_FILE_SIZES: u64 = 7;

/// The seed of one purpose of thread `number`.
fn seed_of(seed: u64, number: u64, purpose: u64) -> u64 {
    let seed = (0..4 + purpose).fold(seed, |seed, _| seed.wrapping_mul(SPREAD));
    seed.wrapping_mul(number).wrapping_add(purpose)
}

/// Sizes from `least` up to `most` bytes, multiples of `block`, as fio draws them for the files of thread `number`, one
/// after the other; `long` for numbers of 64 bits.
pub fn file_sizes(
    (seed, number, long): (u64, u64, bool),
    (least, most): (u64, u64),
    block: u64,
) -> impl Iterator<Item = u64> {
    let mut numbers = Tausworthe::new(seed_of(seed, number, OF_FILE_SIZES), long);
    std::iter::from_fn(move || {
        let size = least + numbers.below(most.saturating_sub(least));
        Some(size - size % block.max(1))
    })
}

impl Walk {
    fn seed_of(&self, purpose: u64) -> u64 {
        seed_of(self.seed, self.number, purpose)
    }

    fn place_seed(&self) -> u64 {
        if self.same_places && self.random { PLACES.wrapping_mul(self.number) } else { self.seed_of(OF_PLACES) }
    }

    /// The smallest block of any direction: a bit of the map.
    fn block(&self) -> u64 {
        self.sizes.iter().map(|sizes| sizes.least).min().unwrap_or(1).max(1)
    }

    /// Blocks of a file that the map has.
    fn blocks(&self, span: &Span) -> u64 {
        self.zones.map_or(span.len.min(span.file), |zones| zones.range) / self.block()
    }

    fn blocks_exceed_32_bits(&self) -> bool {
        self.spans.iter().any(|span| self.blocks(span) > u64::from(u32::MAX))
    }

    /// Places of a direction that can be drawn.
    fn nr_places(&self, direction: usize, span: &Span) -> u64 {
        let sizes = &self.sizes[direction];
        let len = self.zones.map_or(span.len.min(span.file), |zones| zones.range);
        len.saturating_sub(sizes.least.saturating_sub(sizes.align)) / sizes.align.max(1)
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().map(|sizes| sizes.most).max().unwrap_or(1)
    }
}

/// Where a walk is.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    draws: Draws,
    files: Vec<File>,
    /// Calls by direction, over all passes.
    issues: [u64; 3],
    /// Bytes over all passes, and in this one.
    moved: u64,
    written: u64,
    pass_moved: u64,
    mix: usize,
    /// A new direction is drawn at this number of calls of the present one.
    mix_until: u64,
    next_file: usize,
    file: Option<usize>,
    turns_left: u32,
    /// Calls until the next new place.
    every: u32,
    zone_moved: u64,
    loops: u64,
    pass: u64,
    state: State,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    BeforePass,
    InPass,
    /// A pass has ended; nothing fits any more.
    Exhausted,
    Over,
}

impl Walker {
    /// At the start; `key` is for what fio does not define.
    pub(super) fn new(walk: &Walk, key: u64) -> Walker {
        let mut walk = walk.clone();
        if walk.fresh {
            // Runs differ in the upper half of the key, of which numbers of 32 bits see nothing.
            walk.seed ^= key ^ key.rotate_left(32);
        }
        let seed = walk.place_seed();
        let files = walk.spans.iter().enumerate().map(|(index, span)| {
            let blocks = walk.blocks(span);
            let once = walk.random && walk.distribution == Distribution::Uniform;
            let lfsr = once && walk.numbers == Numbers::Lfsr;
            let mut file = File {
                start: span.start,
                next: [0; 3],
                last: [NOWHERE; 3],
                map: (once && walk.map && !lfsr && blocks > 0).then(|| Map::new(blocks)),
                register: (lfsr && blocks > 0).then(|| Register::new(blocks, seed)),
                places: (walk.random && !once)
                    .then(|| Places::new(blocks.max(1), walk.distribution, key ^ index as u64)),
                done: false,
            };
            file.reset(seed);
            file
        });
        Walker {
            draws: Draws::new(&walk, seed),
            files: files.collect(),
            issues: [0; 3],
            moved: 0,
            written: 0,
            pass_moved: 0,
            mix: READ,
            mix_until: 0,
            next_file: 0,
            file: None,
            turns_left: 0,
            every: 1,
            zone_moved: 0,
            loops: walk.loops,
            pass: 0,
            state: State::BeforePass,
        }
    }

    /// Whether another call may follow; begins the next pass if need be.
    pub(super) fn goes_on(&mut self, walk: &Walk) -> bool {
        let pass_bytes = match walk.directions {
            Directions::TrimWrite => walk.size + walk.limit(),
            // Random writes without a map write as much as was asked for in one pass.
            directions if directions != Directions::Only(READ) && walk.random && !walk.map => {
                walk.size.max(walk.io_size)
            }
            _ => walk.size,
        };
        let full = |walker: &Walker| {
            walk.queued && walker.pass_moved >= pass_bytes && (!walk.time_based || walk.verified)
                || !walk.time_based
                    && (walker.moved >= walk.limit_moved()
                        || walk.calls > 0 && walker.calls() >= walk.calls * walk.loops * walk.calls_of_a_place())
        };
        if self.state == State::InPass && full(self) {
            self.end_pass();
        }
        if matches!(self.state, State::BeforePass | State::Exhausted) {
            if !self.another_pass(walk) {
                self.state = State::Over;
                return false;
            }
            self.begin_pass(walk);
            if full(self) {
                self.state = State::Over;
            }
        }
        self.state == State::InPass
    }

    /// Number of the pass, from 1.
    pub(super) fn pass(&self) -> u64 {
        self.pass
    }

    fn calls(&self) -> u64 {
        self.issues.iter().sum()
    }

    fn end_pass(&mut self) {
        self.state = if self.pass_moved == 0 {
            State::Over
        } else if self.files.iter().all(|file| file.done) {
            State::Exhausted
        } else {
            State::BeforePass
        };
    }

    fn another_pass(&mut self, walk: &Walk) -> bool {
        if walk.time_based {
            return true;
        }
        if self.loops > 0 {
            self.loops -= 1;
            return true;
        }
        if walk.calls > 0 && self.calls() >= walk.calls * walk.loops {
            return false;
        }
        let limit = if walk.io_size > 0 { walk.io_size } else { walk.size };
        let checked = if walk.checked { self.written } else { 0 };
        let left = limit.saturating_sub(self.moved + checked);
        left > 0 && left >= walk.largest() && (walk.io_size > 0 || self.state != State::Exhausted)
    }

    fn begin_pass(&mut self, walk: &Walk) {
        let first = self.moved == 0;
        let seed = walk.place_seed();
        self.state = State::InPass;
        self.pass += 1;
        self.pass_moved = 0;
        self.zone_moved = 0;
        self.mix_until = 0;
        self.file = None;
        for (file, span) in self.files.iter_mut().zip(&walk.spans) {
            file.done = false;
            file.start = span.start;
            file.reset(seed);
        }
        if !first && walk.repeat {
            self.draws = Draws::new(walk, seed);
        }
    }

    /// The next call; none if the pass has ended with the last one. `pick` may put the other direction in the place of
    /// one that was drawn.
    pub(super) fn step(&mut self, walk: &Walk, pick: impl Fn(usize) -> usize) -> Option<Step> {
        loop {
            let Some(target) = self.pick_file(walk) else {
                self.end_pass();
                return None;
            };
            let direction = self.direction(walk, target, &pick);
            if let Some((offset, len_bytes)) = self.fill(walk, target, direction) {
                let file = &mut self.files[target];
                file.last[direction] = offset;
                file.next[direction] = offset + len_bytes;
                self.zone_moved += len_bytes;
                self.issues[direction] += 1;
                self.moved += len_bytes;
                self.written += if direction == WRITE { len_bytes } else { 0 };
                self.pass_moved += len_bytes;
                return Some(Step { direction, target, offset, len_bytes });
            }
            self.files[target].done = true;
            self.file = None;
        }
    }

    fn pick_file(&mut self, walk: &Walk) -> Option<usize> {
        if self.files.iter().all(|file| file.done) {
            return None;
        }
        if let Some(file) = self.file {
            if walk.turns == Turns::Sequential {
                return Some(file);
            }
            if self.turns_left > 0 {
                self.turns_left -= 1;
                return Some(file);
            }
        }
        let nr = self.files.len();
        let file = loop {
            let file = match walk.turns {
                Turns::Random(_) => self.draws.files.below(nr as u64) as usize,
                Turns::RoundRobin(_) | Turns::Sequential => {
                    let file = self.next_file;
                    self.next_file = (file + 1) % nr;
                    file
                }
            };
            if !self.files[file].done {
                break file;
            }
        };
        self.file = Some(file);
        self.turns_left = match walk.turns {
            Turns::RoundRobin(calls) | Turns::Random(calls) => calls.max(1) - 1,
            Turns::Sequential => 0,
        };
        Some(file)
    }

    fn direction(&mut self, walk: &Walk, target: usize, pick: impl Fn(usize) -> usize) -> usize {
        match walk.directions {
            Directions::Only(direction) => direction,
            Directions::TrimWrite => {
                let last = self.files[target].last;
                if last[WRITE] == last[TRIM] { TRIM } else { WRITE }
            }
            Directions::Mixed(read_pct) => {
                if self.issues[self.mix] >= self.mix_until {
                    let drawn = if self.draws.mix.percent(read_pct) { READ } else { WRITE };
                    if drawn != self.mix {
                        let other = if self.mix == READ { 100 - read_pct } else { read_pct };
                        self.mix_until = self.issues[self.mix] * u64::from(other) / 100;
                    }
                    self.mix = drawn;
                }
                self.mix = pick(self.mix);
                self.mix
            }
        }
    }

    /// Place in the file and length.
    fn fill(&mut self, walk: &Walk, target: usize, direction: usize) -> Option<(u64, u64)> {
        let span = &walk.spans[target];
        if let Some(zones) = &walk.zones {
            self.zone(walk, zones, target, direction);
        }
        let mut new_place = false;
        if walk.every > 0 {
            self.every -= 1;
            if self.every == 0 {
                self.every = walk.every;
                new_place = true;
            }
        }
        let pair = walk.random && walk.directions == Directions::TrimWrite && direction == WRITE;
        let (place, random, mark) = if pair {
            (self.files[target].last[TRIM].checked_sub(self.files[target].start)?, true, false)
        } else if !new_place {
            let place = if walk.identical {
                Some(self.files[target].last[direction])
                    .filter(|last| *last != NOWHERE)
                    .map_or(0, |last| last.saturating_sub(self.files[target].start))
            } else {
                self.sequential(walk, target, direction).or_else(|| self.random(walk, target, direction))?
            };
            (place, false, false)
        } else if !walk.random {
            (self.sequential(walk, target, direction)?, false, false)
        } else if walk.sizes[direction].random_pct >= 100
            || self.draws.order[direction].percent(walk.sizes[direction].random_pct)
        {
            (self.random(walk, target, direction)?, true, true)
        } else {
            let place = self.sequential(walk, target, direction);
            (place.or_else(|| self.random(walk, target, direction))?, false, false)
        };
        if place >= span.len {
            return None;
        }
        let offset = place + self.files[target].start;
        if offset >= span.file {
            return None;
        }
        let twin = walk.random && walk.directions == Directions::TrimWrite;
        let file = &mut self.files[target];
        if twin && direction == TRIM && file.last[TRIM] == offset {
            file.last[WRITE] = file.last[WRITE].wrapping_sub(1);
        }
        let mut len =
            if pair { file.next[TRIM] - file.last[TRIM] } else { self.length(walk, span, offset, direction, random)? };
        if offset + len > span.file {
            return None;
        }
        let file = &mut self.files[target];
        let least = walk.sizes[direction].least;
        if mark && let Some(map) = &mut file.map {
            len = len.min(map.mark((offset - file.start) / least, len.div_ceil(least)) * least);
        }
        (len > 0).then_some((offset, len))
    }

    fn zone(&mut self, walk: &Walk, zones: &Zones, target: usize, direction: usize) {
        let (file, span) = (&mut self.files[target], &walk.spans[target]);
        if self.zone_moved >= zones.size {
            self.zone_moved = 0;
            file.start += zones.range + zones.skip;
            if file.start >= span.file {
                file.start = span.start;
            }
            file.next[direction] = file.start;
        }
        if file.next[direction] >= file.start + zones.range {
            file.next[direction] = file.start;
        }
        if self.zone_moved.is_multiple_of(zones.range) {
            file.reset(walk.place_seed());
        }
    }

    fn random(&mut self, walk: &Walk, target: usize, direction: usize) -> Option<u64> {
        let block = self.block(walk, target, direction).or_else(|| {
            walk.time_based.then(|| self.files[target].reset(walk.place_seed()))?;
            self.block(walk, target, direction)
        })?;
        Some(block * walk.sizes[direction].align)
    }

    fn block(&mut self, walk: &Walk, target: usize, direction: usize) -> Option<u64> {
        let file = &mut self.files[target];
        if let Some(places) = &file.places {
            return Some(places.draw(&mut self.draws.ours));
        }
        let n = walk.nr_places(direction, &walk.spans[target]);
        if n == 0 {
            return None;
        }
        if let Some(register) = &mut file.register {
            return register.next();
        }
        let block = self.draws.places.below(n);
        file.map.as_ref().map_or(Some(block), |map| map.free_from(block))
    }

    /// The place behind the last call, from the file's start on.
    fn sequential(&mut self, walk: &Walk, target: usize, direction: usize) -> Option<u64> {
        let (file, span) = (&mut self.files[target], &walk.spans[target]);
        if file.next[direction] >= span.len + span.start && walk.time_based && walk.spans.len() == 1 {
            file.next[direction] = file.start;
        }
        if file.next[direction] >= span.file {
            return None;
        }
        let end = span.len.min(span.file);
        if walk.step < 0 && file.start > 0 && file.next[direction] == file.start {
            file.next[direction] = end;
        }
        let place = file.next[direction].wrapping_sub(file.start);
        if place == 0 || walk.step == 0 {
            return Some(place);
        }
        let next = place.wrapping_add_signed(walk.step);
        Some(match walk.step {
            _ if next < span.file => next,
            1.. => file.start,
            _ => end.wrapping_add_signed(walk.step),
        })
    }

    fn length(&mut self, walk: &Walk, span: &Span, offset: u64, direction: usize, random: bool) -> Option<u64> {
        let kind = if walk.sizes_by_order { usize::from(random) } else { direction };
        let sizes = &walk.sizes[kind];
        if sizes.least == sizes.most {
            return Some(sizes.least);
        }
        let fits = |len: u64| offset + len <= span.len + span.start;
        if !fits(sizes.least) {
            return None;
        }
        let draw = &mut self.draws.sizes[kind];
        let hundredth = (u64::MAX >> (64 - draw.bits())) / 100;
        loop {
            let mut len = 0;
            if sizes.split.is_empty() {
                len = sizes.least + draw.below(sizes.most);
            } else {
                let (number, mut share) = (draw.next(), 0);
                for (size, percent) in sizes.split.iter().filter(|(_, percent)| *percent > 0) {
                    len = *size;
                    share += u64::from(*percent);
                    if number / share <= hundredth && fits(len) {
                        break;
                    }
                }
            }
            if !walk.unaligned {
                len -= len % sizes.least;
            }
            let len = len.min(sizes.most);
            if fits(len) {
                return Some(len);
            }
        }
    }
}

impl Walk {
    /// Bytes that are asked for in all.
    fn limit(&self) -> u64 {
        (if self.io_size > 0 { self.io_size } else { self.size }).saturating_mul(self.loops)
    }

    /// Calls that the limits count once: a trim and its write.
    fn calls_of_a_place(&self) -> u64 {
        if self.directions == Directions::TrimWrite { 2 } else { 1 }
    }

    fn limit_moved(&self) -> u64 {
        self.limit().saturating_mul(self.calls_of_a_place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    /// Reads of blocks of 4 KiB in a file of 1 MiB.
    fn walk() -> Walk {
        let sizes = Sizes { least: 4096, most: 4096, split: Vec::new(), align: 4096, random_pct: 100 };
        Walk {
            number: 1,
            seed: 0x89,
            same_places: true,
            repeat: true,
            fresh: false,
            numbers: Numbers::Tausworthe,
            directions: Directions::Only(READ),
            random: true,
            map: true,
            distribution: Distribution::Uniform,
            sizes: [sizes.clone(), sizes.clone(), sizes],
            unaligned: false,
            sizes_by_order: false,
            verified: false,
            checked: false,
            queued: false,
            step: 0,
            every: 1,
            identical: false,
            zones: None,
            spans: vec![Span { start: 0, len: 1 << 20, file: 1 << 20 }],
            turns: Turns::RoundRobin(1),
            size: 1 << 20,
            io_size: 0,
            loops: 1,
            calls: 0,
            time_based: false,
        }
    }

    fn range(walk: &mut Walk, least: u64, most: u64) {
        walk.sizes.iter_mut().for_each(|sizes| (sizes.least, sizes.most, sizes.align) = (least, most, least));
    }

    fn file(walk: &mut Walk, start: u64, len: u64, file: u64) {
        (walk.spans, walk.size) = (vec![Span { start, len, file }], len);
    }

    fn steps(walk: &Walk) -> Vec<Step> {
        let mut walker = Walker::new(walk, 1);
        let mut steps = Vec::new();
        while walker.goes_on(walk) {
            steps.extend(walker.step(walk, |drawn| drawn));
            assert!(steps.len() < 100_000);
        }
        steps
    }

    /// A job of fio's, and what fio 3.33 logs of it (`--ioengine=null --write_iolog`): how many calls, and the FNV-1a
    /// hash of file, direction, offset and length of each.
    type Logged = (&'static str, fn(&mut Walk), usize, u64);

    const FIO: &[Logged] = &[
        (
            "rw=randread bsrange=4k-64k size=4m",
            |walk| {
                file(walk, 0, 4 << 20, 4 << 20);
                range(walk, 4096, 65536);
            },
            179,
            0x589e_cad5_3aea_6b95,
        ),
        (
            "rw=randrw bssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10 rwmixread=80 size=4m",
            |walk| {
                file(walk, 0, 4 << 20, 4 << 20);
                range(walk, 512, 65536);
                walk.directions = Directions::Mixed(80);
                // Small shares first, equal ones in the order of the option.
                let split = [(16, 2), (32, 4), (64, 4), (2, 5), (4, 5), (1, 10), (128, 10), (8, 60)];
                let split = split.map(|(sectors, percent)| (sectors * 512, percent));
                walk.sizes.iter_mut().for_each(|sizes| sizes.split = split.to_vec());
            },
            803,
            0xac76_5e1d_6578_1b2a,
        ),
        (
            "rw=randrw bs=4k,16k size=1m",
            |walk| {
                range(walk, 16384, 16384);
                (walk.sizes[READ].least, walk.sizes[READ].most, walk.sizes[READ].align) = (4096, 4096, 4096);
                walk.directions = Directions::Mixed(50);
            },
            25,
            0xd693_4df7_e389_1ec5,
        ),
        ("rw=read:64k bs=4k size=1m", |walk| (walk.random, walk.step) = (false, 65536), 16, 0x22e5_5fdf_0ea1_c825),
        ("rw=read:-8k bs=4k size=1m", |walk| (walk.random, walk.step) = (false, -8192), 256, 0xc60e_8a9c_ae2b_4325),
        ("rw=randread:8 bs=4k size=1m", |walk| walk.every = 8, 256, 0xf410_c332_d561_1325),
        (
            "rw=randread bs=4k zonemode=strided zonesize=16k zonerange=64k size=512k filesize=1m",
            |walk| {
                walk.zones = Some(Zones { size: 16384, range: 65536, skip: 0 });
                walk.size = 512 << 10;
            },
            128,
            0x430b_ff1f_89a6_0b25,
        ),
        (
            "rw=randread bs=4k size=1000k random_generator=lfsr offset=8k norandommap",
            |walk| {
                file(walk, 8192, 1000 << 10, 1008 << 10);
                (walk.numbers, walk.map) = (Numbers::Lfsr, false);
            },
            250,
            0x718c_bbce_20d3_d745,
        ),
        (
            "rw=randread bsrange=4k-32k size=1m random_generator=tausworthe64",
            |walk| {
                range(walk, 4096, 32768);
                walk.numbers = Numbers::Tausworthe64;
            },
            75,
            0x2f38_38f5_00d5_8315,
        ),
        (
            "rw=randtrimwrite bs=4k size=256k",
            |walk| {
                file(walk, 0, 256 << 10, 256 << 10);
                walk.directions = Directions::TrimWrite;
            },
            128,
            0x06a8_2cdc_c398_4725,
        ),
        (
            "rw=randrw bs=4k size=1m nrfiles=4 file_service_type=random loops=3",
            |walk| {
                walk.spans = vec![Span { start: 0, len: 256 << 10, file: 256 << 10 }; 4];
                (walk.directions, walk.turns, walk.loops) = (Directions::Mixed(50), Turns::Random(1), 3);
            },
            768,
            0x7a9f_5a53_70a2_7d39,
        ),
        (
            "rw=randrw bsrange=4k-32k size=1m randseed=77 loops=2",
            |walk| {
                range(walk, 4096, 32768);
                (walk.directions, walk.seed, walk.repeat, walk.loops) = (Directions::Mixed(50), 77, false, 2);
            },
            157,
            0x1b37_5cec_858c_e945,
        ),
    ];

    #[test]
    fn calls_are_those_that_fio_makes() {
        for (job, change, nr_calls, hash) in FIO {
            let mut walk = walk();
            change(&mut walk);
            let steps = steps(&walk);
            let numbers =
                steps.iter().flat_map(|step| [step.target as u64, step.direction as u64, step.offset, step.len_bytes]);
            let found = numbers
                .fold(0xcbf2_9ce4_8422_2325u64, |hash, number| (hash ^ number).wrapping_mul(0x0000_0100_0000_01b3));
            assert_eq!((steps.len(), found), (*nr_calls, *hash), "{job}");
        }
    }

    proptest! {
        #[test]
        fn with_a_map_every_block_is_moved_once(
            blocks in 1u64..3000,
            most in 1u64..20,
            seed in any::<u64>(),
        ) {
            let mut walk = walk();
            file(&mut walk, 12288, blocks * 4096, blocks * 4096 + 12288);
            range(&mut walk, 4096, most.min(blocks) * 4096);
            (walk.seed, walk.same_places) = (seed, false);
            let mut seen = vec![0; blocks as usize];
            for step in steps(&walk) {
                let first = (step.offset - 12288) / 4096;
                (first..first + step.len_bytes / 4096).for_each(|block| seen[block as usize] += 1);
            }
            prop_assert!(seen.iter().all(|times| *times <= 1));
            prop_assert_eq!(seen.iter().sum::<u64>(), blocks);
        }
    }
}
