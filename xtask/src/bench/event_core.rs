//! The event queue: take the next event out, put it in again later, with a number of events pending.
//!
//! All contestants draw the same gaps, in the order in which events come out, and fold the order into a digest. Times
//! are multiples of a power of two plus the number of the event, so no two are equal: simrs does not say which of
//! equal events comes first.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Sample, Setting, compare, timed};
use iowhy_stack::queue::EventQueue;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::Nanos;
use serde_json::json;
use std::cell::RefCell;

/// Gaps of a table that all go round in.
const GAPS: usize = 1 << 16;
/// More than the largest number of pending events.
const UNIT: u64 = 1 << 14;

/// Payload of a simulator's event: eight bytes.
#[derive(Copy, Clone)]
enum Happening {
    Timer(u32),
    Completion(u32),
}

/// Pending events, and what is aimed at there: ns, ratio to simrs, nexosim and SimPy.
type Case = (usize, Option<f64>, [Option<f64>; 3]);

const CASES: &[Case] = &[
    (32, None, [None, None, None]),
    (1_000, Some(20.0), [Some(3.5), Some(14.0), Some(45.0)]),
    (10_000, Some(30.0), [None, None, None]),
];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let mut rng = Rng::stream(1, "bench.gaps");
    let gaps: Vec<u64> = (0..GAPS).map(|_| exponential(&mut rng)).collect();
    let simpy = Peer::start(setting, "simpy==4.1.2", include_str!("peers/simpy_peer.py"))
        .and_then(|mut peer| peer.measure(&json!({ "kind": "gaps", "gaps": gaps })).map(|_| RefCell::new(peer)));
    let mut figures = Vec::new();
    for (pending, limit, goals) in CASES {
        let mut against = |peer_name, goal: Option<f64>, events: usize, peer: Result<Measure<'_>, String>| {
            let events = events / setting.divisor;
            let aim = Aim { unit: "ns/event", peer_name, goal, limit: *limit };
            let name = format!("event core, {pending} pending");
            let mut ours = || Ok(ours(&gaps, *pending, events));
            compare(setting, name, aim, &mut ours, peer).map(|figure| figures.push(figure))
        };
        let divided = |events: usize| events / setting.divisor;
        let mut simrs = || crates::simrs(&gaps, *pending, divided(4_000_000));
        let mut nexosim = || crates::nexosim(&gaps, *pending, divided(1_000_000));
        let missing = || match &setting.no_crates {
            Some(reason) => Err(reason.clone()),
            None => crates::PRESENT.then_some(()).ok_or_else(|| "built without the feature `peers`".to_owned()),
        };
        against("simrs", goals[0], 4_000_000, missing().map(|()| &mut simrs as Measure<'_>))?;
        against("nexosim", goals[1], 1_000_000, missing().map(|()| &mut nexosim as Measure<'_>))?;
        let mut simpy = simpy.as_ref().map_err(Clone::clone).map(|peer| {
            let request = json!({ "kind": "hold", "pending": pending, "events": divided(200_000), "unit": UNIT });
            move || peer.borrow_mut().measure(&request)
        });
        let simpy = simpy.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
        against("simpy", goals[2], 200_000, simpy)?;
    }
    Ok(figures)
}

/// Exponential gaps with a mean of 100,000, at least 1.
fn exponential(rng: &mut Rng) -> u64 {
    let uniform = (rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
    (-uniform.ln() * 100_000.0) as u64 + 1
}

/// Ours, through the public interface. A run of few events is repeated until the clock can see it.
fn ours(gaps: &[u64], pending: usize, events: usize) -> Sample {
    let repeats = (2_000_000 / events).max(1);
    let mut total = 0.0;
    let mut answer = 0;
    for _ in 0..repeats {
        let mut queue = EventQueue::default();
        for payload in 0..pending {
            let happening = if payload % 2 == 0 { Happening::Timer } else { Happening::Completion };
            queue.push(Nanos(gaps[payload % GAPS] * UNIT + payload as u64), happening(payload as u32));
        }
        let sample = timed(events, || {
            let mut digest = 0u64;
            for drawn in pending..pending + events {
                let Some((now, happening)) = queue.pop() else { return 0 };
                let (Happening::Timer(payload) | Happening::Completion(payload)) = happening;
                digest = digest.wrapping_mul(31).wrapping_add(u64::from(payload));
                queue.push(Nanos(now.0 + gaps[drawn % GAPS] * UNIT), happening);
            }
            digest
        });
        total += sample.ns;
        answer = sample.answer;
    }
    Sample { ns: total / repeats as f64, answer }
}

/// Peers that are Rust crates.
#[cfg(feature = "peers")]
mod crates {
    use super::{GAPS, UNIT};
    use crate::bench::{Sample, timed};
    use nexosim::model::{Context, Model, schedulable};
    use nexosim::simulation::{Mailbox, SimInit};
    use nexosim::time::MonotonicTime;
    use serde::{Deserialize, Serialize};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    pub(super) const PRESENT: bool = true;

    /// A component that reschedules each event it gets.
    struct Rescheduler {
        gaps: Vec<u64>,
        drawn: Cell<usize>,
        digest: Rc<Cell<u64>>,
    }

    impl simrs::Component for Rescheduler {
        type Event = u32;

        fn process_event(
            &self,
            self_id: simrs::ComponentId<u32>,
            payload: &u32,
            scheduler: &mut simrs::Scheduler,
            _: &mut simrs::State,
        ) {
            self.digest.set(self.digest.get().wrapping_mul(31).wrapping_add(u64::from(*payload)));
            let drawn = self.drawn.get();
            self.drawn.set(drawn + 1);
            scheduler.schedule(Duration::from_nanos(self.gaps[drawn % GAPS] * UNIT), self_id, *payload);
        }
    }

    pub(super) fn simrs(gaps: &[u64], pending: usize, events: usize) -> Result<Sample, String> {
        let digest = Rc::new(Cell::new(0));
        let mut simulation = simrs::Simulation::default();
        let component = Rescheduler { gaps: gaps.to_vec(), drawn: Cell::new(pending), digest: Rc::clone(&digest) };
        let component = simulation.add_component(component);
        for payload in 0..pending {
            let time = Duration::from_nanos(gaps[payload % GAPS] * UNIT + payload as u64);
            simulation.schedule(time, component, payload as u32);
        }
        Ok(timed(events, || {
            for _ in 0..events {
                simulation.step();
            }
            digest.get()
        }))
    }

    /// A model that reschedules each event it gets.
    #[derive(Serialize, Deserialize)]
    struct Timers {
        gaps: Vec<u64>,
        pending: usize,
        drawn: usize,
        #[serde(skip)]
        digest: Arc<AtomicU64>,
    }

    #[Model]
    impl Timers {
        #[nexosim(init)]
        async fn init(&mut self, context: &Context<Self>, _: &mut ()) {
            for payload in 0..self.pending {
                let time = Duration::from_nanos(self.gaps[payload % GAPS] * UNIT + payload as u64);
                context.schedule_event(time, schedulable!(Self::fire), payload as u32).expect("a time ahead");
            }
        }

        #[nexosim(schedulable)]
        async fn fire(&mut self, payload: u32, context: &Context<Self>) {
            let digest = self.digest.load(Ordering::Relaxed).wrapping_mul(31).wrapping_add(u64::from(payload));
            self.digest.store(digest, Ordering::Relaxed);
            let gap = Duration::from_nanos(self.gaps[self.drawn % GAPS] * UNIT);
            self.drawn += 1;
            context.schedule_event(gap, schedulable!(Self::fire), payload).expect("a time ahead");
        }
    }

    pub(super) fn nexosim(gaps: &[u64], pending: usize, events: usize) -> Result<Sample, String> {
        let digest = Arc::new(AtomicU64::new(0));
        let model = Timers { gaps: gaps.to_vec(), pending, drawn: pending, digest: Arc::clone(&digest) };
        let bench = SimInit::with_num_threads(1).add_model(model, Mailbox::new(), "timers");
        let mut simulation = bench.init(MonotonicTime::EPOCH).map_err(|error| format!("nexosim: {error}"))?;
        let mut failed = None;
        let sample = timed(events, || {
            for _ in 0..events {
                if let Err(error) = simulation.step() {
                    failed = Some(format!("nexosim: {error}"));
                    break;
                }
            }
            digest.load(Ordering::Relaxed)
        });
        failed.map_or(Ok(sample), Err)
    }
}

/// Without them.
#[cfg(not(feature = "peers"))]
mod crates {
    use crate::bench::Sample;

    pub(super) const PRESENT: bool = false;

    pub(super) fn simrs(_: &[u64], _: usize, _: usize) -> Result<Sample, String> {
        Err("built without the feature `peers`".to_owned())
    }

    pub(super) fn nexosim(_: &[u64], _: usize, _: usize) -> Result<Sample, String> {
        Err("built without the feature `peers`".to_owned())
    }
}
