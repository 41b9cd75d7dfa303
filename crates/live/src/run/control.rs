//! How the threads of a run bear on one another, and when one is ended from outside.
//!
//! ```text
//! ends      a thread that has ended ends others: those of its reporting group, those that run, or all; after an error
//!           perhaps others
//! flow      threads of one number share calls by weight: each counts its calls, and all count together. One whose part
//!           of the calls is above its part of the weights waits. One that ends takes its calls and its weight along
//! least     a direction that is slower than asked for over a cycle ends its thread; not in the first two seconds
//! steady    once a second the calls and bytes since the last look are put into a window; if it is full, and the slope
//!           of the line through it, or the largest distance from its mean, is below the limit, the threads end
//! ```
//! Source: fio's manual (exitall, flow, rate_min, steadystate), and fio 3.33's figures for it. Known deviation: figures
//! are those that threads publish, each with its time, a twentieth of a second old at most.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use iowhy_stack::outcome::Counts;
use iowhy_stack::units::Nanos;

use super::meter::Published;
use crate::outcome::Steadiness;
use crate::plan::{Ends, Measure, Plan, Steady, Terms};

/// Time before a least rate is asked for.
const SETTLED: Nanos = Nanos::from_secs(2);

pub(crate) struct Control<'p> {
    seats: Vec<Seat<'p>>,
    watched: Mutex<Watched>,
}

struct Seat<'p> {
    terms: &'p Terms,
    stop: AtomicBool,
    began: AtomicBool,
    ended: AtomicBool,
    /// It was too slow.
    slow: AtomicBool,
    /// The number of the flow that it takes part in, among `flows`.
    flow: Option<std::sync::Arc<Flow>>,
}

/// Calls and weights of a flow. The calls begin with 1, so that nobody divides by zero.
#[derive(Debug)]
pub(crate) struct Flow {
    calls: AtomicU64,
    weight: AtomicU64,
}

impl Flow {
    /// Whether a thread with this weight, which has made `own` calls, may make another; it is counted then.
    pub(crate) fn take(&self, own: &mut u64, weight: u32) -> bool {
        let all = u128::from(self.calls.load(Ordering::Relaxed));
        if u128::from(*own) * u128::from(self.weight.load(Ordering::Relaxed)) > u128::from(weight) * all {
            return false;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        *own += 1;
        true
    }
}

/// Memory of the thread that watches.
#[derive(Default)]
struct Watched {
    next_look: Option<Nanos>,
    steady: Vec<Past>,
    least: Vec<[Option<(u64, u64, Nanos)>; 2]>,
    windows: Vec<Steadiness>,
    /// Threads that were too slow.
    slow: Vec<(u32, String)>,
}

/// A thread's counts at the last look.
#[derive(Copy, Clone, Default)]
struct Past {
    calls: u64,
    bytes: u64,
    at: Nanos,
    warm: bool,
}

impl<'p> Control<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Control<'p> {
        let mut flows: Vec<((u32, u32), std::sync::Arc<Flow>)> = Vec::new();
        let specs = plan.job.workload.threads();
        let seats = (plan.threads.iter().zip(&specs))
            .map(|(thread, spec)| {
                let flow = thread.terms.flow.map(|flow| {
                    let key = (spec.group, flow.number);
                    let known = flows.iter().find(|(other, _)| *other == key).map(|(_, flow)| flow.clone());
                    let shared = known.unwrap_or_else(|| {
                        let new = std::sync::Arc::new(Flow { calls: AtomicU64::new(1), weight: AtomicU64::new(0) });
                        flows.push((key, new.clone()));
                        new
                    });
                    shared.weight.fetch_add(u64::from(flow.weight), Ordering::Relaxed);
                    shared
                });
                let [stop, began, ended, slow] = [false; 4].map(AtomicBool::new);
                Seat { terms: &thread.terms, stop, began, ended, slow, flow }
            })
            .collect();
        Control { seats, watched: Mutex::default() }
    }

    /// The flag that ends a thread.
    pub(crate) fn stop_of(&self, number: u32) -> &AtomicBool {
        &self.seats[number as usize].stop
    }

    /// The flow that a thread takes part in.
    pub(crate) fn flow_of(&self, number: u32) -> Option<&Flow> {
        self.seats[number as usize].flow.as_deref()
    }

    /// Whether all of these threads have ended.
    pub(crate) fn have_ended(&self, threads: &[u32]) -> bool {
        threads.iter().all(|number| self.seats[*number as usize].ended.load(Ordering::Relaxed))
    }

    /// A thread begins.
    pub(crate) fn begin(&self, number: u32) {
        self.seats[number as usize].began.store(true, Ordering::Relaxed);
    }

    /// A thread has ended after `calls` calls of its flow.
    pub(crate) fn end(&self, number: u32, failed: bool, calls: u64) {
        let seat = &self.seats[number as usize];
        if seat.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        if let (Some(shared), Some(flow)) = (&seat.flow, &seat.terms.flow) {
            shared.calls.fetch_sub(calls, Ordering::Relaxed);
            shared.weight.fetch_sub(u64::from(flow.weight), Ordering::Relaxed);
        }
        let failed = failed || seat.slow.load(Ordering::Relaxed);
        let ends = if failed && seat.terms.error_ends != Ends::None { seat.terms.error_ends } else { seat.terms.ends };
        let ended = |other: &&Seat<'_>| match ends {
            Ends::None => false,
            Ends::Group => other.terms.group == seat.terms.group,
            Ends::Running => other.began.load(Ordering::Relaxed),
            Ends::All => true,
        };
        self.seats.iter().filter(ended).for_each(|other| other.stop.store(true, Ordering::Relaxed));
    }

    /// Looks at figures of the threads, and ends those that are too slow or steady. `since` is when the group began.
    pub(crate) fn look(&self, now: Nanos, since: Nanos, published: &[Published]) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let nr = self.seats.len();
        watched.steady.resize(nr, Past::default());
        watched.least.resize(nr, [None; 2]);
        watched.windows.resize(nr, Steadiness::default());
        for (number, seat) in self.seats.iter().enumerate().filter(|(_, seat)| seat.runs()) {
            if let Some(slow) = too_slow(seat.terms, &published[number], &mut watched.least[number]) {
                watched.slow.push((number as u32, slow));
                seat.slow.store(true, Ordering::Relaxed);
                seat.stop.store(true, Ordering::Relaxed);
            }
        }
        let due = *watched.next_look.get_or_insert(since + Nanos::from_secs(1));
        if now < due {
            return;
        }
        watched.next_look = Some(due + Nanos::from_secs(1 + now.saturating_sub(due).0 / 1_000_000_000));
        for number in 0..nr {
            self.steadiness(number, now.saturating_sub(since), published, &mut watched);
        }
    }

    /// A look at a thread that is to end when it is steady. With one report for a group, its last thread stands for
    /// all.
    fn steadiness(&self, number: usize, elapsed: Nanos, published: &[Published], watched: &mut Watched) {
        let seat = &self.seats[number];
        let Some(steady) = &seat.terms.steady else { return };
        let mates =
            |other: &Seat<'_>| steady.together && other.terms.steady.is_some() && other.terms.group == seat.terms.group;
        if self.seats[number + 1..].iter().any(mates) || watched.windows[number].attained {
            return;
        }
        let members: Vec<usize> = (0..=number).filter(|other| *other == number || mates(&self.seats[*other])).collect();
        let (mut rates, mut warm, mut running) = ([0, 0], false, false);
        for member in members.iter().copied().filter(|member| self.seats[*member].runs()) {
            running = true;
            let (counts, at) = published[member].get();
            let past = &mut watched.steady[member];
            let spent = at.saturating_sub(past.at).0;
            let (calls, bytes) = (counts.reads + counts.writes, counts.read_bytes + counts.written_bytes);
            if past.warm || steady.ramp == Nanos::ZERO {
                warm = true;
                let rate =
                    |more: u64| (u128::from(more) * 1_000_000_000).checked_div(u128::from(spent)).unwrap_or(0) as u64;
                rates[0] += rate(calls - past.calls);
                rates[1] += rate(bytes - past.bytes);
            }
            *past = Past { calls, bytes, at, warm: elapsed >= steady.ramp };
        }
        if !running || !warm {
            return;
        }
        let window = &mut watched.windows[number];
        window.add(steady, rates);
        if window.attained {
            members.iter().for_each(|member| self.seats[*member].stop.store(true, Ordering::Relaxed));
        }
    }

    /// Findings about a thread: how steady it was, and why it was ended as too slow.
    pub(crate) fn found(&self, number: u32) -> (Option<Steadiness>, Option<String>) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = self.seats[number as usize].terms.steady.as_ref();
        let slow = watched.slow.iter().find(|(other, _)| *other == number).map(|(_, why)| why.clone());
        (steady.map(|_| watched.windows.get(number as usize).cloned().unwrap_or_default()), slow)
    }
}

impl Seat<'_> {
    fn runs(&self) -> bool {
        self.began.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed)
    }
}

/// Whether a thread is slower than it must be, in words.
fn too_slow(terms: &Terms, published: &Published, past: &mut [Option<(u64, u64, Nanos)>; 2]) -> Option<String> {
    let least = terms.least.as_ref()?;
    let (counts, at) = published.get();
    let Counts { reads, writes, read_bytes, written_bytes, .. } = counts;
    for (dir, (calls, bytes)) in [(reads, read_bytes), (writes, written_bytes)].into_iter().enumerate() {
        let (wanted_calls, wanted_bytes) = (least.calls[dir], least.bytes[dir]);
        if wanted_calls == 0 && wanted_bytes == 0 || at.saturating_sub(published.began()) < SETTLED {
            continue;
        }
        if let Some((old_calls, old_bytes, then)) = past[dir] {
            let spent = at.saturating_sub(then);
            if spent < least.cycle || spent == Nanos::ZERO {
                continue;
            }
            let rate = |more: u64| (u128::from(more) * 1_000_000_000 / u128::from(spent.0)) as u64;
            let (now_calls, now_bytes) = (rate(calls - old_calls), rate(bytes - old_bytes));
            if now_bytes < wanted_bytes {
                return Some(format!("rate_min={wanted_bytes}B/s not met, got {now_bytes}B/s"));
            }
            if now_calls < wanted_calls {
                return Some(format!("rate_iops_min={wanted_calls} not met, got {now_calls} IOPS"));
            }
        }
        past[dir] = Some((calls, bytes, at));
    }
    None
}

impl Steadiness {
    /// Puts a look into the window, and judges it if it is full.
    pub(crate) fn add(&mut self, steady: &Steady, [calls, bytes]: [u64; 2]) {
        for (window, value) in [(&mut self.calls, calls), (&mut self.bytes, bytes)] {
            if window.len() == steady.looks.max(1) as usize {
                window.remove(0);
            }
            window.push(value);
        }
        let values = if steady.measure == Measure::Calls { &self.calls } else { &self.bytes };
        if values.len() < steady.looks.max(1) as usize {
            return;
        }
        let nr = values.len() as f64;
        let sum: f64 = values.iter().map(|value| *value as f64).sum();
        let mean = sum / nr;
        let found = if steady.slope {
            let products: f64 = values.iter().enumerate().map(|(x, y)| x as f64 * *y as f64).sum();
            let (xs, squares) = (nr * (nr - 1.0) / 2.0, (nr - 1.0) * nr * (2.0 * nr - 1.0) / 6.0);
            let spread = squares - xs * xs / nr;
            self.slope = if spread > 0.0 { (products - xs * sum / nr) / spread } else { 0.0 };
            self.slope
        } else {
            self.deviation = values.iter().map(|value| (*value as f64 - mean).abs()).fold(0.0, f64::max);
            self.deviation
        };
        self.criterion = match (steady.percent, mean > 0.0) {
            (true, true) => 100.0 * found / mean,
            (true, false) => 0.0,
            (false, _) => found,
        };
        self.attained = self.criterion.abs() < steady.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn steady(slope: bool, percent: bool, limit: f64, looks: u32) -> Steady {
        Steady { measure: Measure::Calls, slope, percent, limit, looks, ramp: Nanos::ZERO, together: false }
    }

    #[test]
    fn a_window_is_steady_when_it_is_full_and_below_the_limit() {
        for (slope, percent, limit, values, criterion, attained) in [
            (true, false, 1.1, &[10, 11, 12][..], 1.0, true),
            (true, false, 1.0, &[10, 11, 12], 1.0, false),
            (true, true, 10.0, &[10, 11, 12], 100.0 / 11.0, true),
            (true, false, 0.5, &[90, 12, 12, 12], 0.0, true),
            (false, false, 2.1, &[10, 12, 14], 2.0, true),
            (false, true, 16.0, &[10, 12, 14], 200.0 / 12.0, false),
            (true, false, 9.0, &[10, 11], 0.0, false),
        ] {
            let mut window = Steadiness::default();
            values.iter().for_each(|value| window.add(&steady(slope, percent, limit, 3), [*value, 7]));
            assert!((window.criterion - criterion).abs() < 1e-9, "{values:?}: {}", window.criterion);
            assert_eq!(window.attained, attained, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn calls_of_a_flow_are_shared_by_weight(weights in proptest::collection::vec(1_u32..20, 2..5)) {
            let total: u32 = weights.iter().sum();
            let flow = Flow { calls: AtomicU64::new(1), weight: AtomicU64::new(u64::from(total)) };
            let mut own = vec![0_u64; weights.len()];
            for _ in 0..5000 {
                for (own, weight) in own.iter_mut().zip(&weights) {
                    flow.take(own, *weight);
                }
            }
            let all: u64 = own.iter().sum();
            for (own, weight) in own.iter().zip(&weights) {
                let (part, wanted) = (*own as f64 / all as f64, f64::from(*weight) / f64::from(total));
                prop_assert!((part - wanted).abs() < 0.02, "{own} of {all}, {weight} of {total}");
            }
        }
    }
}
