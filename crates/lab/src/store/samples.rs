//! The calls of a run as a table: when, what, how large, how long.
//!
//! ```text
//! source      call: a call (weight: as many calls as it stands for); interval: calls of a thread in a stretch of
//!             time; histogram: calls of a thread of about one latency
//! t_ns        begin of the call or the interval, from the start of the run; nothing for a histogram
//! thread      number of the thread; nothing where events do not say it (the simulator's)
//! file        number of the file; nothing where it is not known
//! op          read, write or sync
//! bytes       moved by the call, or by all calls of the interval
//! latency_ns  from the begin of the call to its end; nothing for an interval; for a histogram the middle of a bucket
//! weight      calls that the row stands for
//! ```
//! Up to [`MOST`] calls of a run are all there. Of more, those are kept whose number has a hash that ends in L zero
//! bits, with the L that leaves at most that number; each stands for 2^L calls (Gibbons & Tirthapura 2001, distinct
//! sampling: the level rises while the run goes on, and calls that will not be kept need not be remembered). The choice
//! depends on nothing but the numbers of calls, so it is the same each time and follows no rhythm of the threads. Known
//! limit: rare, slow calls may be missing; the metrics `max_ns` and `p99_ns` of a run are of all calls.

use std::collections::HashMap;

use iowhy_stack::event::{Event, EventSink, Op, What};

use super::data::{Draft, Item, Type};
use super::{DataFile, Kind, Store, StoreError};
use crate::on_kernel::Live;

/// Most calls that are kept of a run.
pub const MOST: usize = 1 << 16;

/// Columns of the table.
pub(super) const COLUMNS: &[(&str, Type)] = &[
    ("source", Type::MaybeWord),
    ("t_ns", Type::MaybeNumber),
    ("thread", Type::MaybeNumber),
    ("file", Type::MaybeNumber),
    ("op", Type::MaybeWord),
    ("bytes", Type::MaybeNumber),
    ("latency_ns", Type::MaybeNumber),
    ("weight", Type::Number),
];

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Call {
    number: u64,
    thread: Option<u32>,
    file: u32,
    op: Op,
    bytes: u64,
    begin: u64,
    latency: u64,
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Fsync | Op::Fdatasync => "sync",
        Op::Trim => "trim",
    }
}

/// How many zero bits the hash of a call's number ends in.
fn level_of(number: u64) -> u32 {
    // The finaliser of splitmix64: every bit of the number reaches every bit of the hash.
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).trailing_zeros()
}

/// Listens to a simulated run and keeps its calls.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Calls in progress that will be kept: when they began.
    open: HashMap<u32, u64>,
    kept: Vec<Call>,
    level: u32,
    calls: u64,
}

impl Sampler {
    fn keep(&mut self, call: Call) {
        self.kept.push(call);
        while self.kept.len() > MOST {
            self.level += 1;
            let level = self.level;
            self.kept.retain(|call| level_of(call.number) >= level);
        }
    }

    /// Calls that were seen.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Writes them to a file of a store.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self, store: &Store) -> Result<DataFile, StoreError> {
        let mut draft = Draft::new(store, Kind::Samples, COLUMNS)?;
        let weight = 1 << self.level;
        self.kept.iter().for_each(|call| draft.row(&row_of(call, weight)));
        let rule = format!("calls whose number's hash ends in {} zero bits", self.level);
        draft.finish(&[("iowhy.calls", self.calls.to_string()), ("iowhy.kept", rule)])
    }
}

impl EventSink for Sampler {
    #[inline]
    fn event(&mut self, event: &Event) {
        let number = event.call.0;
        match event.what {
            What::CallStart { .. } => {
                self.calls += 1;
                if self.level == 0 || level_of(u64::from(number)) >= self.level {
                    self.open.insert(number, event.at.0);
                }
            }
            What::CallEnd { op, file, len_bytes } => {
                let Some(begin) = self.open.remove(&number) else { return };
                if level_of(u64::from(number)) >= self.level {
                    let latency = event.at.0.saturating_sub(begin);
                    let (number, bytes) = (u64::from(number), u64::from(len_bytes));
                    self.keep(Call { number, thread: None, file: file.0, op, bytes, begin, latency });
                }
            }
            _ => {}
        }
    }
}

fn number(value: u64) -> Item {
    Item::Number(value as i64)
}

fn row_of(call: &Call, weight: i64) -> [Item; 8] {
    [
        Item::Word("call"),
        number(call.begin),
        call.thread.map_or(Item::None, |thread| Item::Number(i64::from(thread))),
        Item::Number(i64::from(call.file)),
        Item::Word(word(call.op)),
        number(call.bytes),
        number(call.latency),
        Item::Number(weight),
    ]
}

/// Writes the samples of a real run: each call if it kept them, else its intervals and histograms.
///
/// # Errors
/// If the file cannot be written.
pub fn live_samples(live: &Live, store: &Store) -> Result<DataFile, StoreError> {
    let threads = &live.outcome.threads;
    if threads.iter().any(|thread| !thread.calls.is_empty()) {
        let mut sampler = Sampler::default();
        for (thread, outcome) in (0..).zip(threads) {
            for call in &outcome.calls {
                sampler.calls += 1;
                if level_of(sampler.calls) < sampler.level {
                    continue;
                }
                sampler.keep(Call {
                    number: sampler.calls,
                    thread: Some(thread),
                    file: call.file,
                    op: call.op,
                    bytes: u64::from(call.len_bytes),
                    begin: call.at.0,
                    latency: call.took.0.saturating_sub(call.late.0),
                });
            }
        }
        return sampler.finish(store);
    }
    let mut draft = Draft::new(store, Kind::Samples, COLUMNS)?;
    let mut calls = 0;
    for (thread, outcome) in (0..).zip(threads) {
        for sample in &outcome.samples {
            let counts = &sample.counts;
            let begin = sample.end.saturating_sub(sample.length);
            for (op, n, bytes) in [
                ("read", counts.reads, number(counts.read_bytes)),
                ("write", counts.writes, number(counts.written_bytes)),
                ("sync", counts.syncs, Item::None),
            ] {
                if n > 0 {
                    draft.row(&[
                        Item::Word("interval"),
                        number(begin.0),
                        Item::Number(thread),
                        Item::None,
                        Item::Word(op),
                        bytes,
                        Item::None,
                        number(n),
                    ]);
                }
            }
        }
        for (op, latency) in ["read", "write", "sync"].into_iter().zip(&outcome.latency) {
            for (low, width, n) in latency.total.buckets() {
                calls += n;
                draft.row(&[
                    Item::Word("histogram"),
                    Item::None,
                    Item::Number(thread),
                    Item::None,
                    Item::Word(op),
                    Item::None,
                    number(low + width / 2),
                    number(n),
                ]);
            }
        }
    }
    draft.finish(&[("iowhy.calls", calls.to_string()), ("iowhy.kept", "intervals and histograms".to_owned())])
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::{CallId, FileId};
    use iowhy_stack::units::Nanos;

    use super::*;

    /// Calls of two threads that take turns, each of the second slow.
    fn sampled(calls: u32) -> Sampler {
        let mut sampler = Sampler::default();
        for nr in 1..=calls {
            let (file, op) = (FileId(0), Op::Read);
            let call = CallId(nr);
            let start = What::CallStart { op, file, offset: 0, len_bytes: 4096 };
            let end = What::CallEnd { op, file, len_bytes: 4096 };
            let begin = u64::from(nr) * 100;
            sampler.event(&Event { at: Nanos(begin), call, what: start });
            let took = if nr % 2 == 0 { 90 } else { 10 };
            sampler.event(&Event { at: Nanos(begin + took), call, what: end });
        }
        sampler
    }

    #[test]
    fn few_calls_are_all_kept_and_many_are_thinned_out_without_a_rhythm() {
        for calls in [0, 1, 1000, MOST as u32] {
            let sampler = sampled(calls);
            assert_eq!((sampler.kept.len(), sampler.level, sampler.calls), (calls as usize, 0, u64::from(calls)));
        }
        let calls = 20 * MOST as u32 + 7;
        let sampler = sampled(calls);
        let kept = sampler.kept.len();
        assert!(sampler.level == 5 && kept <= MOST && kept > MOST / 2, "{kept} at level {}", sampler.level);
        // The kept calls stand for all within the error of a binomial draw: four deviations.
        let estimate = (kept << sampler.level) as f64;
        let deviation = (f64::from(calls) * f64::from(1u32 << sampler.level)).sqrt();
        assert!((estimate - f64::from(calls)).abs() < 4.0 * deviation, "{estimate} of {calls}");
        let slow = sampler.kept.iter().filter(|call| call.latency == 90).count() as f64 / kept as f64;
        assert!((slow - 0.5).abs() < 4.0 * 0.5 / (kept as f64).sqrt(), "{slow} are slow");
        assert!(sampler.open.is_empty());
    }
}
