//! The jobs that a conformance run makes by itself: the work of each on one file of its own.
//!
//! All descriptors are opened before the first call. Each list of calls is a thread's; threads begin together.

use iowhy_stack::rng::Rng;

use iowhy_trace::recorded::Hint;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `pread`.
    Read {
        /// Number of the descriptor.
        fd: usize,
        /// First byte.
        offset: u64,
        len_bytes: u64,
    },
    /// `read`, from where the descriptor stands.
    Next {
        /// Number of the descriptor.
        fd: usize,
        len_bytes: u64,
    },
    /// `posix_fadvise`.
    Advise {
        /// Number of the descriptor.
        fd: usize,
        hint: Hint,
        /// First byte.
        offset: u64,
        len_bytes: u64,
    },
}

/// The calls of each thread, from the file's size and random numbers.
type Make = fn(u64, &mut Rng) -> Vec<Vec<Call>>;

/// A job.
#[derive(Debug)]
pub struct Builtin {
    pub name: &'static str,
    /// Size of its file.
    pub file_bytes: u64,
    /// Descriptors that it opens.
    pub descriptors: usize,
    /// The first of those that go past the page cache.
    pub first_direct: usize,
    make: Make,
}

impl Builtin {
    /// The calls of each thread.
    pub fn calls(&self) -> Vec<Vec<Call>> {
        (self.make)(self.file_bytes, &mut Rng::stream(1, self.name))
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

fn read(fd: usize, offset: u64, len_bytes: u64) -> Call {
    Call::Read { fd, offset, len_bytes }
}

fn advise(hint: Hint, offset: u64, len_bytes: u64) -> Call {
    Call::Advise { fd: 0, hint, offset, len_bytes }
}

/// Reads one after the other from `from` to `to`.
fn sequence(fd: usize, from: u64, to: u64, len_bytes: u64) -> Vec<Call> {
    (from..to).step_by(len_bytes as usize).map(|offset| read(fd, offset, len_bytes)).collect()
}

/// Reads with gaps.
fn strides(bytes: u64, len_bytes: u64, stride: u64) -> Vec<Call> {
    (0..bytes).step_by(stride as usize).map(|offset| read(0, offset, len_bytes)).collect()
}

/// Reads from the end to the start.
fn backward(bytes: u64, len_bytes: u64) -> Vec<Call> {
    let mut calls = sequence(0, 0, bytes, len_bytes);
    calls.reverse();
    calls
}

/// Reads at random multiples of `align`.
fn random(fd: usize, bytes: u64, len_bytes: u64, align: u64, n: usize, rng: &mut Rng) -> Vec<Call> {
    (0..n).map(|_| read(fd, rng.below(bytes / align) * align, len_bytes)).collect()
}

/// A call of each list in turn.
fn interleaved(lists: Vec<Vec<Call>>) -> Vec<Call> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|nr| lists.iter().filter_map(move |list| list.get(nr).copied())).collect()
}

/// Streams that divide the file among them; each has a descriptor of its own, or all have the first.
fn streams(n: u64, own: bool, bytes: u64, len_bytes: u64) -> Vec<Vec<Call>> {
    let part = bytes / n;
    (0..n).map(|nr| sequence(if own { nr as usize } else { 0 }, nr * part, (nr + 1) * part, len_bytes)).collect()
}

/// Anything, in any order, on two descriptors.
fn anything(bytes: u64, n: usize, rng: &mut Rng) -> Vec<Call> {
    let hints = [Hint::Normal, Hint::Normal, Hint::Random, Hint::Sequential, Hint::WillNeed, Hint::DontNeed];
    let mut at = [0_u64; 2];
    let mut calls = Vec::new();
    for _ in 0..n {
        let fd = rng.below(2) as usize;
        let most = 1 << rng.below(7);
        let pages = 1 + rng.below(most);
        let len_bytes = match rng.below(4) {
            0 => 1 + rng.below(3 * 4096),
            1 => pages * 4096,
            2 => 4096 << rng.below(6),
            _ => 1 + rng.below(MIB / 4),
        };
        match rng.below(40) {
            0..20 => {}
            20..26 => at[fd] = rng.below(bytes),
            26..30 => at[fd] = rng.below(bytes / 4096) * 4096,
            30..33 => at[fd] = at[fd].saturating_sub(2 * len_bytes),
            33..36 => at[fd] += len_bytes,
            36 => at[fd] = 0,
            _ => {
                let hint = hints[rng.below(6) as usize];
                let offset = rng.below(bytes / 4096) * 4096;
                let len_bytes = if rng.below(3) == 0 { 0 } else { rng.below(bytes) };
                calls.push(Call::Advise { fd, hint, offset, len_bytes });
                continue;
            }
        }
        if at[fd] >= bytes {
            at[fd] = rng.below(64) * 4096;
        }
        calls.push(read(fd, at[fd], len_bytes));
        at[fd] += len_bytes;
    }
    calls
}

/// Some of the file's pages are cached, by a descriptor that reads only what it asks for.
fn some_cached(bytes: u64, n: usize, pages: u64, rng: &mut Rng) -> Vec<Call> {
    let mut calls = vec![Call::Advise { fd: 1, hint: Hint::Random, offset: 0, len_bytes: 0 }];
    calls.extend((0..n).map(|_| read(1, rng.below(bytes / 4096) * 4096, 4096 * (1 + rng.below(pages)))));
    calls
}

const fn one(name: &'static str, file_bytes: u64, descriptors: usize, make: Make) -> Builtin {
    Builtin { name, file_bytes, descriptors, first_direct: usize::MAX, make }
}

/// One whose descriptors from `first_direct` on go past the page cache.
const fn past(name: &'static str, file_bytes: u64, descriptors: usize, first_direct: usize, make: Make) -> Builtin {
    Builtin { name, file_bytes, descriptors, first_direct, make }
}

/// Reads of whole sectors, anywhere, as long as they like.
fn sectors(fd: usize, bytes: u64, n: usize, rng: &mut Rng) -> Vec<Call> {
    let len = |rng: &mut Rng| {
        let most = 1 << rng.below(13);
        SECTOR * (1 + rng.below(most))
    };
    (0..n).map(|_| read(fd, rng.below(bytes / SECTOR) * SECTOR, len(rng))).collect()
}

/// Every job.
pub const JOBS: &[Builtin] = &[
    one("seq-1", 96 * KIB, 1, |bytes, _| vec![(0..bytes / 16).map(|_| Call::Next { fd: 0, len_bytes: 1 }).collect()]),
    one("seq-511", 512 * KIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 511)]),
    one("seq-4k", 8 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 4 * KIB)]),
    one("seq-5000", 4 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 5000)]),
    one("seq-16k", 8 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 16 * KIB)]),
    one("seq-64k-read", 8 * MIB, 1, |_, _| vec![vec![Call::Next { fd: 0, len_bytes: 64 * KIB }; 140]]),
    one("seq-100000", 8 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 100_000)]),
    one("seq-128k", 8 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 128 * KIB)]),
    one("seq-1m", 16 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, MIB)]),
    one("seq-3m", 16 * MIB, 1, |bytes, _| vec![sequence(0, 0, bytes, 3 * MIB)]),
    one("seq-from-the-middle", 8 * MIB, 1, |bytes, _| vec![sequence(0, 1_234_567, bytes, 20_000)]),
    one("random-1", 8 * MIB, 1, |bytes, rng| vec![random(0, bytes, 1, 1, 300, rng)]),
    one("random-4k", 8 * MIB, 1, |bytes, rng| vec![random(0, bytes, 4 * KIB, 4 * KIB, 500, rng)]),
    one("random-16k", 8 * MIB, 1, |bytes, rng| vec![random(0, bytes, 16 * KIB, 16 * KIB, 400, rng)]),
    one("random-unaligned", 8 * MIB, 1, |bytes, rng| vec![random(0, bytes, 30_000, 1, 300, rng)]),
    one("random-256k", 16 * MIB, 1, |bytes, rng| vec![random(0, bytes, 256 * KIB, 4 * KIB, 60, rng)]),
    one("random-1m", 16 * MIB, 1, |bytes, rng| vec![random(0, bytes, MIB, 4 * KIB, 20, rng)]),
    one("stride-4k-12k", 8 * MIB, 1, |bytes, _| vec![strides(bytes, 4 * KIB, 12 * KIB)]),
    one("stride-16k-64k", 8 * MIB, 1, |bytes, _| vec![strides(bytes, 16 * KIB, 64 * KIB)]),
    one("stride-8k-12k", 4 * MIB, 1, |bytes, _| vec![strides(bytes, 8 * KIB, 12 * KIB)]),
    one("backward-4k", 4 * MIB, 1, |bytes, _| vec![backward(bytes, 4 * KIB)]),
    one("backward-16k", 8 * MIB, 1, |bytes, _| vec![backward(bytes, 16 * KIB)]),
    one("backward-200k", 8 * MIB, 1, |bytes, _| vec![backward(bytes, 200_000)]),
    one("two-streams-own", 8 * MIB, 2, |bytes, _| vec![interleaved(streams(2, true, bytes, 16 * KIB))]),
    one("two-streams-shared", 8 * MIB, 1, |bytes, _| vec![interleaved(streams(2, false, bytes, 16 * KIB))]),
    one("four-streams-own", 8 * MIB, 4, |bytes, _| vec![interleaved(streams(4, true, bytes, 4 * KIB))]),
    one("four-streams-shared", 8 * MIB, 1, |bytes, _| vec![interleaved(streams(4, false, bytes, 4 * KIB))]),
    one("read-twice", 4 * MIB, 1, |bytes, _| {
        vec![[sequence(0, 0, bytes, 16 * KIB), sequence(0, 0, bytes, 16 * KIB)].concat()]
    }),
    one("read-again-later", 8 * MIB, 1, |bytes, rng| {
        vec![[sequence(0, 0, bytes / 2, 16 * KIB), random(0, bytes, 8 * KIB, 1, 300, rng)].concat()]
    }),
    one("some-cached-seq", 8 * MIB, 2, |bytes, rng| {
        vec![[some_cached(bytes, 60, 4, rng), sequence(0, 0, bytes, 16 * KIB)].concat()]
    }),
    one("half-cached-seq", 8 * MIB, 2, |bytes, rng| {
        vec![[some_cached(bytes, 300, 9, rng), sequence(0, 0, bytes, 40_000)].concat()]
    }),
    one("some-cached-random", 8 * MIB, 2, |bytes, rng| {
        vec![[some_cached(bytes, 100, 9, rng), random(0, bytes, 32 * KIB, 4 * KIB, 200, rng)].concat()]
    }),
    one("streams-then-random", 8 * MIB, 2, |bytes, rng| {
        vec![[sequence(1, MIB, 3 * MIB, 32 * KIB), random(0, bytes, 16 * KIB, 4 * KIB, 300, rng)].concat()]
    }),
    one("end-of-file", MIB + 1234, 1, |bytes, rng| {
        let mut calls = sequence(0, bytes - 100_000, bytes + 50_000, 7000);
        calls.extend(random(0, 2 * bytes, 64 * KIB, 1, 60, rng));
        vec![calls]
    }),
    one("tiny-1", 1, 1, |bytes, _| vec![vec![read(0, 0, 4096), read(0, 0, 1), read(0, bytes, 10)]]),
    one("tiny-4096", 4096, 1, |_, _| vec![vec![read(0, 10, 1), read(0, 0, MIB), read(0, 4096, 10)]]),
    one("tiny-4097", 4097, 1, |_, _| vec![vec![read(0, 4096, 1), read(0, 0, MIB), read(0, 0, 4096)]]),
    one("tiny-20000", 20_000, 1, |bytes, _| vec![sequence(0, 0, bytes, 3000)]),
    one("tiny-65536", 65_536, 1, |bytes, _| vec![sequence(0, 0, bytes, 4096)]),
    one("advise-sequential", 8 * MIB, 1, |bytes, _| {
        vec![[vec![advise(Hint::Sequential, 0, 0)], sequence(0, 0, bytes, 16 * KIB)].concat()]
    }),
    one("advise-random", 8 * MIB, 1, |bytes, rng| {
        let calls = [vec![advise(Hint::Random, 0, 0)], sequence(0, 0, bytes / 4, 16 * KIB)].concat();
        vec![[calls, random(0, bytes, 50_000, 1, 100, rng)].concat()]
    }),
    one("advise-willneed", 16 * MIB, 1, |bytes, _| {
        let mut calls = vec![
            advise(Hint::WillNeed, 0, 0),
            advise(Hint::WillNeed, 10_000_000, 100_000),
            advise(Hint::WillNeed, 9_900_001, 300_000),
            advise(Hint::WillNeed, bytes - 10_000, MIB),
        ];
        calls.extend(sequence(0, 0, bytes, 64 * KIB));
        vec![calls]
    }),
    one("advise-dontneed", 8 * MIB, 1, |bytes, _| {
        let mut calls = Vec::new();
        for from in (0..bytes).step_by(MIB as usize) {
            calls.extend(sequence(0, from, from + MIB, 16 * KIB));
            calls.push(advise(Hint::DontNeed, from.saturating_sub(MIB / 2), MIB / 2 + 5000));
            calls.extend(sequence(0, from, from + MIB / 4, 16 * KIB));
        }
        vec![calls]
    }),
    one("advise-changing", 8 * MIB, 1, |bytes, _| {
        let part = bytes / 4;
        let hints = [Hint::Sequential, Hint::Random, Hint::Normal, Hint::Other];
        let parts = hints.iter().zip(0..).flat_map(|(hint, nr)| {
            let reads = sequence(0, nr * part, (nr + 1) * part, 16 * KIB);
            [vec![advise(*hint, 0, 0)], reads].concat()
        });
        vec![parts.collect()]
    }),
    one("anything-1", 4 * MIB, 2, |bytes, rng| vec![anything(bytes, 500, rng)]),
    one("anything-2", 4 * MIB + 77, 2, |bytes, rng| vec![anything(bytes, 500, rng)]),
    one("anything-3", 16 * MIB, 2, |bytes, rng| vec![anything(bytes, 500, rng)]),
    one("anything-4", 300_000, 2, |bytes, rng| vec![anything(bytes, 300, rng)]),
    one("threads-2-own", 16 * MIB, 2, |bytes, _| streams(2, true, bytes, 16 * KIB)),
    one("threads-4-own", 16 * MIB, 4, |bytes, _| streams(4, true, bytes, 4 * KIB)),
    one("threads-2-shared", 16 * MIB, 1, |bytes, _| streams(2, false, bytes, 16 * KIB)),
    one("threads-4-shared-random", 16 * MIB, 1, |bytes, rng| {
        (0..4).map(|_| random(0, bytes, 16 * KIB, 4 * KIB, 300, rng)).collect()
    }),
    past("direct-4k", 2 * MIB, 1, 0, |bytes, _| vec![sequence(0, 0, bytes, 4 * KIB)]),
    past("direct-512", 64 * KIB, 1, 0, |bytes, _| vec![sequence(0, 0, bytes, SECTOR)]),
    past("direct-1m", 16 * MIB, 1, 0, |bytes, _| vec![sequence(0, 0, bytes, MIB)]),
    past("direct-5m", 16 * MIB, 1, 0, |bytes, _| vec![sequence(0, 0, bytes, 5 * MIB)]),
    past("direct-anything", 16 * MIB, 1, 0, |bytes, rng| vec![sectors(0, bytes, 200, rng)]),
    past("direct-end-of-file", MIB + 1234, 1, 0, |bytes, rng| vec![sectors(0, 2 * bytes, 100, rng)]),
    past("direct-and-cached", 8 * MIB, 2, 1, |bytes, rng| {
        let cached = sequence(0, 0, bytes, 16 * KIB);
        vec![interleaved(vec![cached, sectors(1, bytes, 200, rng)])]
    }),
    past("direct-threads-2", 8 * MIB, 2, 0, |bytes, rng| (0..2).map(|fd| sectors(fd, bytes, 150, rng)).collect()),
    one("threads-3-same-pages", 8 * MIB, 3, |bytes, _| (0..3).map(|fd| sequence(fd, 0, bytes, 16 * KIB)).collect()),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn jobs_have_names_of_their_own_and_stay_on_their_descriptors() {
        let names: BTreeSet<&str> = JOBS.iter().map(|job| job.name).collect();
        assert_eq!(names.len(), JOBS.len());
        for job in JOBS {
            let threads = job.calls();
            assert!(!threads.is_empty() && threads.iter().all(|calls| !calls.is_empty()), "{}", job.name);
            for call in threads.iter().flatten() {
                let (Call::Read { fd, .. } | Call::Next { fd, .. } | Call::Advise { fd, .. }) = call;
                assert!(*fd < job.descriptors, "{}: {call:?}", job.name);
            }
            assert_eq!(job.calls(), threads, "{} differs from one time to the next", job.name);
        }
    }
}
