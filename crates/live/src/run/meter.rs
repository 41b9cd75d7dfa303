//! Counters and clocks of a running thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::outcome::Counts;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::Call;

use super::task::usage;
use crate::outcome::{CallError, CallRecord, Latency, MAX_ERRORS, Sample, ThreadOutcome, Usage};
use crate::plan::Thread;

/// How often a thread publishes what it has done.
const PUBLISHED_EVERY: Nanos = Nanos::from_ms(50);

/// Classes of the depths: 1, 2, 4, 8, 16, 32, 64 or more.
#[inline]
fn depth_class(in_flight: u32) -> usize {
    in_flight.max(1).ilog2().min(6) as usize
}

/// Classes of the batches: 0, 1..4, ..8, ..16, ..32, ..64, more.
#[inline]
fn batch_class(calls: u32) -> usize {
    match calls {
        0 => 0,
        1..=4 => 1,
        _ => ((calls - 1).ilog2() as usize).min(6),
    }
}

fn kind_of(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Fsync | Op::Fdatasync => 2,
        Op::Trim => 3,
    }
}

/// A thread's progress, for others to look at.
#[derive(Debug, Default)]
pub(crate) struct Published {
    progress: Mutex<Progress>,
    /// How often its results so far were asked for.
    asked: AtomicU64,
    results: Mutex<Option<ThreadOutcome>>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Progress {
    counts: Counts,
    at: Nanos,
    began: Nanos,
}

impl Published {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the results so far: they are there a little later.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps results if anybody has asked for some.
    pub(crate) fn keep(&self, results: &ThreadOutcome) {
        if self.asked.load(Ordering::Relaxed) > 0 {
            *self.results.lock().unwrap_or_else(PoisonError::into_inner) = Some(results.clone());
        }
    }

    /// The latest results; none before the first.
    pub(crate) fn results(&self) -> Option<ThreadOutcome> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self, now: Nanos) {
        *self.progress() = Progress { at: now, began: now, ..Progress::default() };
    }

    fn set(&self, counts: &Counts, now: Nanos) {
        let mut progress = self.progress();
        (progress.counts, progress.at) = (*counts, now);
    }

    /// The counts, and when they were those.
    pub(crate) fn get(&self) -> (Counts, Nanos) {
        let progress = self.progress();
        (progress.counts, progress.at)
    }

    /// When the thread began.
    pub(crate) fn began(&self) -> Nanos {
        self.progress().began
    }
}

/// When what happened to a call.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Times {
    /// It should have begun.
    pub due: Nanos,
    /// It was prepared.
    pub begin: Nanos,
    /// The kernel had it.
    pub handed: Nanos,
    /// It was done.
    pub end: Nanos,
}

#[derive(Clone)]
pub(crate) struct Meter<'a> {
    /// Everything that is reported of the thread.
    pub out: ThreadOutcome,
    published: &'a Published,
    counts: Counts,
    latency: [Latency; 4],
    /// Nothing is counted before.
    warm_at: Nanos,
    /// It is before that.
    cold: bool,
    /// Usage when it was warm, if there was a time before that.
    pub warm: Option<Usage>,
    /// Calls are handed in and done at different times.
    asynchronous: bool,
    /// Calls may be due before they begin.
    rated: bool,
    /// The parts of the latency are recorded call by call (else they are made from the whole at the end).
    parts: bool,
    keep_calls: bool,
    sample: Nanos,
    sampled: Counts,
    /// Latencies up to the last sample, if they are kept with each.
    sampled_latency: Option<Histogram>,
    sample_from: Nanos,
    next_sample: Nanos,
    next_publication: Nanos,
    /// The earlier of the two.
    next_tick: Nanos,
    /// How often results were given.
    answered: u64,
    split: bool,
}

impl<'a> Meter<'a> {
    /// `rated`: calls may be due before they begin.
    pub(crate) fn new(
        thread: &Thread,
        sample: Nanos,
        (asynchronous, rated): (bool, bool),
        published: &'a Published,
    ) -> Meter<'a> {
        Meter {
            out: ThreadOutcome::default(),
            published,
            counts: Counts::default(),
            latency: <[Latency; 4]>::default(),
            warm_at: Nanos::ZERO,
            cold: false,
            warm: None,
            asynchronous,
            rated,
            parts: (asynchronous || rated) && thread.split_latency,
            keep_calls: thread.keep_calls,
            sample,
            sampled: Counts::default(),
            sampled_latency: thread.sample_latency.then(Histogram::default),
            sample_from: Nanos::ZERO,
            next_sample: Nanos(u64::MAX),
            next_publication: Nanos::ZERO,
            next_tick: Nanos::ZERO,
            answered: 0,
            split: thread.split_latency,
        }
    }

    /// The thread begins; calls that end before `warm_at` do not count.
    pub(crate) fn begin(&mut self, now: Nanos, warm_at: Nanos) {
        self.out.totals.start = now;
        self.published.begin(now);
        self.warm_from(now, warm_at);
    }

    /// Forgets the counts so far.
    #[cold]
    pub(crate) fn restart(&mut self, now: Nanos) {
        let start = self.out.totals.start;
        self.out = ThreadOutcome::default();
        self.out.totals.start = start;
        (self.counts, self.sampled, self.latency) = Default::default();
        self.warm_from(now, now);
    }

    fn warm_from(&mut self, now: Nanos, warm_at: Nanos) {
        self.warm_at = warm_at;
        self.out.warm_at = warm_at;
        self.sample_from = now.max(warm_at);
        if self.sample > Nanos::ZERO {
            self.next_sample = self.sample_from + self.sample;
        }
        self.cold = warm_at > now;
        self.next_publication = now + PUBLISHED_EVERY;
        self.next_tick = self.following_tick();
    }

    fn following_tick(&self) -> Nanos {
        let warm_at = if self.cold { self.warm_at } else { Nanos(u64::MAX) };
        self.next_publication.min(self.next_sample).min(warm_at)
    }

    /// A call is done; it moved `bytes` bytes.
    #[inline(always)]
    pub(crate) fn count(&mut self, call: &Call, moved: u32, times: &Times) {
        let now = times.end;
        if now >= self.next_tick {
            self.tick(now);
        }
        if self.keep_calls {
            self.keep(call, times);
        }
        if !call.counted || now < self.warm_at {
            return;
        }
        self.counts.add(call.op, u64::from(moved));
        let latency = &mut self.latency[kind_of(call.op)];
        let total = now.saturating_sub(times.due).0;
        latency.total.record(total);
        latency.squares[2] += total as f64 * total as f64;
        if self.rated {
            let whole = now.saturating_sub(times.begin).0;
            latency.begun.record(whole);
            latency.squares[3] += whole as f64 * whole as f64;
        }
        if self.parts {
            let completion = now.saturating_sub(times.handed).0;
            latency.completion.record(completion);
            latency.squares[1] += completion as f64 * completion as f64;
            if self.asynchronous {
                let submission = times.handed.saturating_sub(times.begin).0;
                latency.submission.record(submission);
                latency.squares[0] += submission as f64 * submission as f64;
            }
        }
    }

    /// The latency of a call once more, by its I/O priority.
    #[cold]
    pub(crate) fn count_priority(&mut self, call: &Call, priority: u16, times: &Times) {
        let kind = kind_of(call.op);
        if !call.counted || times.end < self.warm_at || kind > 1 {
            return;
        }
        let latency = self.out.by_priority.entry((kind, priority)).or_default();
        for (part, since) in [(1, times.handed), (2, times.begin)] {
            let ns = times.end.saturating_sub(since).0;
            latency.squares[part] += ns as f64 * ns as f64;
            if part == 1 { latency.completion.record(ns) } else { latency.total.record(ns) }
        }
    }

    #[cold]
    fn keep(&mut self, call: &Call, times: &Times) {
        self.out.calls.push(CallRecord {
            at: times.begin,
            took: times.end.saturating_sub(times.due),
            late: times.begin.saturating_sub(times.due),
            submission: times.handed.saturating_sub(times.begin),
            op: call.op,
            file: call.file,
            offset: call.offset,
            len_bytes: call.len_bytes,
        });
    }

    /// A call begins with this number in flight, itself included.
    #[inline(always)]
    pub(crate) fn depth(&mut self, in_flight: u32) {
        self.out.depths[depth_class(in_flight)] += 1;
    }

    /// Calls handed in at once.
    #[inline(always)]
    pub(crate) fn submitted(&mut self, calls: u32) {
        self.out.submitted[batch_class(calls)] += 1;
    }

    /// Completions taken at once.
    #[inline(always)]
    pub(crate) fn completed(&mut self, calls: u32) {
        self.out.completed[batch_class(calls)] += 1;
    }

    /// The operation of an error.
    #[cold]
    pub(crate) fn error(&mut self, call: &Call, at: Nanos, errno: i32, message: String) {
        self.out.nr_errors += 1;
        if self.out.errors.len() < MAX_ERRORS {
            let Call { op, file, offset, len_bytes, .. } = *call;
            self.out.errors.push(CallError { file, op, offset, len_bytes, at, errno, message });
        }
    }

    #[cold]
    fn tick(&mut self, now: Nanos) {
        if self.cold && now >= self.warm_at {
            self.cold = false;
            self.warm = Some(usage());
            (self.out.depths, self.out.submitted, self.out.completed) = Default::default();
        }
        while now >= self.next_sample {
            let end = self.next_sample;
            self.close_sample(end);
            self.next_sample = end + self.sample;
        }
        if now >= self.next_publication {
            self.published.set(&self.counts, now);
            self.next_publication = now + PUBLISHED_EVERY;
            let asked = self.published.asked.load(Ordering::Relaxed);
            if asked != std::mem::replace(&mut self.answered, asked) {
                // It is ended as if the run were over.
                let so_far = Meter { next_sample: Nanos(u64::MAX), ..self.clone() };
                self.published.keep(&so_far.end(now, self.split, Usage::default()));
            }
        }
        self.next_tick = self.following_tick();
    }

    fn close_sample(&mut self, end: Nanos) {
        let counts = self.counts.since(&self.sampled);
        let latency = self.sampled_latency.as_mut().map_or_else(Histogram::default, |before| {
            let mut all = Histogram::default();
            self.latency.iter().for_each(|kind| all.merge(&kind.total));
            let since = all.since(before);
            *before = all;
            since
        });
        self.out.samples.push(Sample { end, length: end.saturating_sub(self.sample_from), counts, latency });
        self.sampled = self.counts;
        self.sample_from = end;
    }

    /// The thread has ended.
    pub(crate) fn end(mut self, now: Nanos, split: bool, usage: Usage) -> ThreadOutcome {
        if self.sample > Nanos::ZERO && now >= self.warm_at {
            self.tick(now);
            if now > self.sample_from {
                self.close_sample(now);
            }
        }
        self.published.set(&self.counts, now);
        let mut out = self.out;
        let total = self.counts.total();
        if !self.asynchronous {
            out.depths[0] = total;
            out.submitted[1] = total;
            out.completed[1] = total;
            if split && !self.parts {
                for latency in &mut self.latency {
                    latency.completion = latency.total.clone();
                    latency.squares[1] = latency.squares[2];
                }
            }
        }
        out.totals.events = total;
        out.totals.counts = self.counts;
        out.totals.busy = Nanos(self.latency.iter().map(|latency| latency.total.sum() as u64).sum());
        out.totals.end = now;
        out.latency = self.latency;
        out.usage = usage;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    #[test]
    fn classes_are_those_of_the_report() {
        let depths = [1, 2, 3, 4, 7, 8, 16, 32, 63, 64, 1000].map(depth_class);
        assert_eq!(depths, [0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 6]);
        let batches = [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 1000].map(batch_class);
        assert_eq!(batches, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
    }

    proptest! {
        #[test]
        fn submission_and_completion_are_the_whole(
            calls in proptest::collection::vec((0_u64..1000, 0_u64..100, 0_u64..100, 0_u64..100), 1..20),
            asynchronous: bool,
            rated: bool,
        ) {
            let published = Published::default();
            let mut meter = Meter::new(&Thread::default(), Nanos::ZERO, (asynchronous, rated), &published);
            meter.begin(Nanos::ZERO, Nanos::ZERO);
            let call = Call { op: Op::Write, file: 0, offset: 0, len_bytes: 1, then: None, counted: true, how: None };
            for (due, late, handed, took) in &calls {
                let begin = due + if rated { *late } else { 0 };
                let handed = begin + if asynchronous { *handed } else { 0 };
                let [due, begin, handed, end] = [*due, begin, handed, handed + took].map(Nanos);
                meter.count(&call, 1, &Times { due, begin, handed, end });
            }
            let ended = meter.end(Nanos(9999), true, Usage::default());
            let Latency { submission, completion, total, begun, .. } = &ended.latency[1];
            let whole = if rated { begun } else { total };
            prop_assert_eq!(whole.sum(), submission.sum() + completion.sum());
            prop_assert_eq!(whole.count(), calls.len() as u64);
        }
    }

    #[test]
    fn nothing_of_the_warm_up_is_left() {
        let published = Published::default();
        let mut meter = Meter::new(&Thread::default(), Nanos::ZERO, (true, false), &published);
        meter.begin(Nanos(10), Nanos(50));
        let call = Call { op: Op::Read, file: 0, offset: 0, len_bytes: 1, then: None, counted: true, how: None };
        for end in [30, 40, 60, 70, 80] {
            meter.depth(1);
            meter.submitted(1);
            meter.completed(1);
            let begin = Nanos(end - 5);
            meter.count(&call, 1, &Times { due: begin, begin, handed: begin, end: Nanos(end) });
        }
        assert!(meter.warm.is_some(), "the usage of before is known");
        let out = meter.end(Nanos(90), true, Usage::default());
        // The counts of the call that ended the warm-up were before its end.
        assert_eq!((out.totals.events, out.depths[0], out.submitted[1], out.completed[1]), (3, 2, 2, 2));
    }

    #[test]
    fn samples_tile_the_run_and_add_up() {
        let published = Published::default();
        let mut meter = Meter::new(&Thread::default(), Nanos(100), (false, false), &published);
        meter.begin(Nanos(10), Nanos(50));
        let call = Call { op: Op::Read, file: 0, offset: 0, len_bytes: 4096, then: None, counted: true, how: None };
        for end in [40, 60, 149, 150, 420] {
            let begin = Nanos(end - 5);
            meter.count(&call, 4096, &Times { due: begin, begin, handed: begin, end: Nanos(end) });
        }
        let out = meter.end(Nanos(430), true, Usage::default());
        let samples: Vec<_> = out.samples.iter().map(|s| (s.end.0, s.length.0, s.counts.reads)).collect();
        // The first call is part of the warm-up; the stall shows as an empty sample.
        assert_eq!(samples, [(150, 100, 2), (250, 100, 1), (350, 100, 0), (430, 80, 1)]);
        assert_eq!((out.totals.events, out.latency[0].total.count()), (4, 4));
        assert_eq!(out.latency[0].completion, out.latency[0].total);
        assert_eq!(published.get(), (out.totals.counts, Nanos(430)));
    }
}
