//! A cap on jobs: bytes, time. A trial of a job that would take long.
//!
//! ```text
//! bytes    the most that each thread works on: its regions become shorter, those at the same place for all
//!          threads alike, and move together so that no hole is left; calls and bytes to move are capped too, and
//!          without a warm-up
//! time     the longest that each thread works
//! ```
//! A thread that has more regions than fit keeps the first of them, each with at least one call; unused files are left
//! out. Regions that overlap do so no more.

use std::collections::BTreeMap;
use std::time::Duration;

use iowhy_stack::job::{Job, Workload};
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::BlockSizes;

/// Limits of jobs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    /// Bytes of each thread.
    pub(super) bytes: Option<u64>,
    /// Time of each thread.
    pub(super) time: Option<Duration>,
}

fn largest(blocks: &[BlockSizes; 2]) -> u64 {
    u64::from(blocks[0].largest().max(blocks[1].largest()))
}

/// The smaller of two limits of which 0 is none.
fn smaller(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, n) | (n, 0) => n,
        (one, other) => one.min(other),
    }
}

impl Limit {
    pub(super) fn is_set(&self) -> bool {
        self.bytes.is_some() || self.time.is_some()
    }

    /// Caps a job, and returns which of its files are left.
    pub(super) fn apply(&self, job: &mut Job) -> Vec<bool> {
        let Workload::Threads { files, threads } = &mut job.workload else { return Vec::new() };
        let mut left = vec![true; files.len()];
        if let Some(time) = self.time {
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            for thread in threads.iter_mut() {
                thread.stream.max_time = Nanos(smaller(thread.stream.max_time.0, time));
            }
            job.warmup = Nanos(job.warmup.0.min(time / 2));
        }
        let Some(bytes) = self.bytes else { return left };
        // With this few calls, all would be in the warm-up.
        job.warmup = Nanos::ZERO;
        // Where each region that is used will end up: by file and by its old beginning.
        let mut regions: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for thread in threads.iter_mut() {
            let stream = &mut thread.stream;
            let block = largest(&stream.blocks);
            // fio's numbers are for the regions that it would have.
            stream.walk = None;
            stream.targets.truncate((bytes / block).max(1).try_into().unwrap_or(usize::MAX));
            let share = (bytes / stream.targets.len() as u64 / block * block).max(block);
            stream.limit_bytes = match stream.passes {
                0 => smaller(stream.limit_bytes, bytes.max(block)),
                _ => stream.limit_bytes,
            };
            stream.limit_calls = smaller(stream.limit_calls, (bytes / block).max(1));
            // As many places of the log as there are calls would be too fine: it is written round and round.
            let log = stream.log.map_or(block, |log| u64::from(log.len_bytes));
            let last = stream.targets.len();
            for (nr, target) in stream.targets_mut().enumerate() {
                let cap = if nr == last { (bytes / log * log).max(log) } else { share };
                target.len_bytes = target.len_bytes.min(cap);
                let length = regions.entry((target.file, target.start)).or_default();
                *length = (*length).max(target.len_bytes);
            }
        }
        let mut places: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for ((file, start), length) in regions {
            let end = ends.entry(file).or_default();
            places.insert((file, start), *end);
            // Direct calls need whole sectors, and pages suit every other.
            *end += length.next_multiple_of(4096);
        }
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        for thread in threads.iter_mut() {
            for target in thread.stream.targets_mut() {
                if let Some(place) = places.get(&(target.file, target.start)) {
                    target.start = *place;
                }
                let size = sizes.entry(target.file).or_default();
                *size = (*size).max(target.start + target.len_bytes);
            }
        }
        let mut moved = Vec::new();
        for (nr, file) in (0..).zip(files.iter_mut()) {
            moved.push(sizes.keys().take_while(|used| **used < nr).count() as u32);
            left[nr as usize] = sizes.contains_key(&nr);
            file.bytes = sizes.get(&nr).copied().unwrap_or(file.bytes);
        }
        for thread in threads.iter_mut() {
            thread.stream.targets_mut().for_each(|target| target.file = moved[target.file as usize]);
        }
        let mut used = left.iter();
        files.retain(|_| used.next() == Some(&true));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::job::{FileSpec, Place, ThreadJob, ThreadSpec};
    use iowhy_stack::workload::{Mix, Stream, Target};

    fn job(regions: &[(u64, u64)]) -> Job {
        let files = vec![FileSpec { bytes: 1 << 40, place: Place::FileSystem }];
        let threads = regions
            .iter()
            .map(|(start, len_bytes)| {
                let target = Target { file: 0, start: *start, len_bytes: *len_bytes };
                ThreadJob { spec: ThreadSpec::new(0), stream: Stream::sequential(Mix::Read, vec![target], 4096) }
            })
            .collect();
        Job::new(Workload::Threads { files, threads }, 1)
    }

    #[test]
    fn regions_become_short_and_move_together() {
        let mut job = job(&[(0, 1 << 30), (6 << 30, 1 << 30), (6 << 30, 4096)]);
        assert_eq!(Limit { bytes: Some(1 << 20), time: None }.apply(&mut job), [true]);
        let Workload::Threads { files, threads } = &job.workload else { panic!("threads") };
        let regions: Vec<(u64, u64)> =
            threads.iter().map(|thread| (thread.stream.targets[0].start, thread.stream.targets[0].len_bytes)).collect();
        assert_eq!(regions, [(0, 1 << 20), (1 << 20, 1 << 20), (1 << 20, 4096)]);
        assert_eq!((files[0].bytes, threads[0].stream.limit_calls), (2 << 20, 256));
        assert_eq!(job.check(), Ok(()));
    }

    #[test]
    fn regions_that_overlapped_make_a_file_longer() {
        let mut job = job(&[(0, 64 << 20), (8 << 20, 56 << 20), (16 << 20, 48 << 20)]);
        let _ = Limit { bytes: Some(16 << 20), time: None }.apply(&mut job);
        let Workload::Threads { files, .. } = &job.workload else { panic!("threads") };
        assert_eq!((files[0].bytes, job.check()), (48 << 20, Ok(())));
    }

    #[test]
    fn what_is_within_the_limits_stays() {
        let mut capped = job(&[(0, 1 << 20)]);
        let _ = Limit { bytes: Some(1 << 40), time: Some(Duration::from_secs(3)) }.apply(&mut capped);
        let Workload::Threads { threads, .. } = &capped.workload else { panic!("threads") };
        assert_eq!(threads[0].stream.targets[0].len_bytes, 1 << 20);
        assert_eq!(threads[0].stream.max_time, Nanos::from_secs(3));
        let mut free = job(&[(0, 1 << 20)]);
        let before = free.clone();
        let _ = Limit::default().apply(&mut free);
        assert_eq!(free, before);
    }

    #[test]
    fn files_that_nobody_uses_any_more_are_left_out() {
        let mut job = job(&[(0, 4096)]);
        let Workload::Threads { files, threads } = &mut job.workload else { panic!("threads") };
        *files = vec![FileSpec { bytes: 4096, place: Place::FileSystem }; 10];
        threads[0].stream.targets = (0..10).rev().map(|file| Target { file, start: 0, len_bytes: 4096 }).collect();
        let left = Limit { bytes: Some(8192), time: None }.apply(&mut job);
        assert_eq!(left.iter().map(|left| u8::from(*left)).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        let Workload::Threads { files, threads } = &job.workload else { panic!("threads") };
        let used: Vec<u32> = threads[0].stream.targets.iter().map(|target| target.file).collect();
        assert_eq!((files.len(), used), (2, vec![1, 0]));
        assert_eq!(job.check(), Ok(()));
    }
}
