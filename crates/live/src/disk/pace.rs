//! A model of a device in real time: when it gets each command, and when each is to be answered.
//!
//! Times are ns since the server began. A command is given to the model at the time of its arrival, less the `lead`:
//! the time that the layers between a program and here take by themselves, so that a program sees the times of the
//! model. The model's own clock never goes back. It gets each of its events with the event's own time, however late we
//! are awake, and commands that wait for a place in the device get it at that time, too: lateness never adds up. Only
//! the answer is late.
//!
//! It has neither clock nor thread, so that all of it can be tested with times made up; `server` keeps them.

use std::collections::{BTreeMap, VecDeque};

use iowhy_stack::device::{Command, Completion, Device, DeviceStats};
use iowhy_stack::event::Dir;
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES, Sector};

use super::Lead;
use super::fault::{Fault, Faults};

/// A front's request to the disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// By which the front knows it.
    pub(super) ticket: u64,
    pub(super) kind: Kind,
    /// First byte.
    pub(super) offset: u64,
    /// How many.
    pub(super) bytes: u32,
    /// The layer of the store that is settled when it is done.
    pub(super) layer: u64,
}

/// Kind of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Empty the volatile cache.
    Flush,
}

/// A request that is done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Which.
    pub(super) request: Request,
    /// When it was to be answered.
    pub(super) due: Nanos,
    pub(super) failed: bool,
}

/// A command in the device.
#[derive(Copy, Clone, Debug)]
struct Slot {
    request: Request,
    given: Nanos,
}

/// A model and its commands.
pub(super) struct Pace {
    device: Box<dyn Device>,
    depth: usize,
    lead: Lead,
    /// The model's clock.
    last: Nanos,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Those for which the device has no place.
    waiting: VecDeque<Request>,
    /// Those that the model has finished and a fault holds back; each keeps its place.
    held: BTreeMap<(Nanos, u32), Done>,
    done: VecDeque<Done>,
    faults: Faults,
}

impl Pace {
    /// A model whose clock begins at 0.
    pub(super) fn new(device: Box<dyn Device>) -> Pace {
        let depth = device.queue_depth() as usize * device.nr_hw_queues() as usize;
        Pace {
            device,
            depth,
            lead: Lead::default(),
            last: Nanos::ZERO,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            held: BTreeMap::new(),
            done: VecDeque::new(),
            faults: Faults::default(),
        }
    }

    /// Sets the time that the layers above need.
    pub(super) fn set_lead(&mut self, lead: Lead) {
        self.lead = lead;
    }

    /// Puts another model in the place of this one, as after a loss of power. Its commands are handed back.
    pub(super) fn restart(&mut self, now: Nanos, device: Box<dyn Device>) -> Vec<Request> {
        let mut lost: Vec<Request> = std::mem::take(&mut self.waiting).into();
        lost.extend(self.slots.drain(..).flatten().map(|slot| slot.request));
        lost.extend(std::mem::take(&mut self.held).into_values().map(|done| done.request));
        lost.extend(self.done.drain(..).map(|done| done.request));
        self.free.clear();
        self.device = device;
        self.last = self.last.max(now);
        lost
    }

    /// Sets a fault, or takes all away.
    pub(super) fn set_fault(&mut self, now: Nanos, fault: Option<Fault>) {
        if fault.is_none() {
            // Stuck commands come loose.
            for ((_, tag), done) in std::mem::take(&mut self.held) {
                self.free.push(tag);
                self.done.push_back(Done { due: now, ..done });
            }
        }
        self.faults.set(now, fault);
    }

    /// The faults in force.
    pub(super) fn faults(&self) -> Vec<Fault> {
        self.faults.list()
    }

    /// Counters of the model.
    pub(super) fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    /// Requests that are not answered yet.
    #[cfg(test)]
    fn outstanding(&self) -> usize {
        self.slots.iter().flatten().count() + self.held.len() + self.waiting.len() + self.done.len()
    }

    /// A request has arrived.
    pub(super) fn submit(&mut self, now: Nanos, request: Request) {
        let at = now.saturating_sub(self.lead.of(request.bytes)).max(self.last);
        // What the model does until then comes first.
        self.run(at);
        self.waiting.push_back(request);
        self.fill(at);
    }

    /// Gives the device what it has places for.
    fn fill(&mut self, now: Nanos) {
        self.last = self.last.max(now);
        while let Some(&request) = self.waiting.front() {
            let tag = match self.free.pop() {
                Some(tag) => tag,
                None if self.slots.len() < self.depth => {
                    self.slots.push(None);
                    (self.slots.len() - 1) as u32
                }
                None => break,
            };
            self.waiting.pop_front();
            let first = request.offset / SECTOR_BYTES;
            let end = (request.offset + u64::from(request.bytes)).div_ceil(SECTOR_BYTES);
            let command = Command {
                tag,
                sector: Sector(first),
                nr_sectors: u32::try_from(end - first).unwrap_or(u32::MAX),
                dir: if request.kind == Kind::Read { Dir::Read } else { Dir::Write },
                flush: request.kind == Kind::Flush,
                fua: false,
            };
            assert!(end <= self.device.nr_sectors(), "the front keeps to the size of the disk");
            self.slots[tag as usize] = Some(Slot { request, given: self.last });
            self.device.submit(self.last, command);
        }
    }

    /// When something next happens.
    pub(super) fn next(&self) -> Option<Nanos> {
        let held = self.held.keys().next().map(|(due, _)| *due);
        let done = self.done.front().map(|done| done.due);
        [self.device.next(), held, done].into_iter().flatten().min()
    }

    /// Everything until `now` has happened: the next request that is done.
    pub(super) fn advance(&mut self, now: Nanos) -> Option<Done> {
        self.run(now);
        self.done.pop_front()
    }

    /// Lets everything until `now` happen, in order of time.
    fn run(&mut self, now: Nanos) {
        loop {
            let device = self.device.next().filter(|at| *at <= now);
            let held = self.held.keys().next().copied().filter(|(due, _)| *due <= now);
            match (device, held) {
                (Some(at), held) if held.is_none_or(|(due, _)| at <= due) => {
                    let at = at.max(self.last);
                    self.last = at;
                    while let Some(completion) = self.device.advance(at) {
                        self.complete(at, completion);
                    }
                    self.fill(at);
                }
                (_, Some(key)) => {
                    if let Some(done) = self.held.remove(&key) {
                        self.done.push_back(done);
                        self.free.push(key.1);
                    }
                    self.fill(key.0);
                }
                (_, None) => return,
            }
        }
    }

    fn complete(&mut self, at: Nanos, completion: Completion) {
        let slot = self.slots[completion.tag as usize].take();
        let Some(Slot { request, given }) = slot else { panic!("the device has completed an unknown command") };
        let dir = if request.kind == Kind::Read { Dir::Read } else { Dir::Write };
        let failed = request.kind != Kind::Flush && self.faults.fails(dir, request.offset, u64::from(request.bytes));
        let delay = self.faults.delay(at, at.saturating_sub(given));
        let done = Done { request, due: Nanos(at.0.saturating_add(delay.0)), failed };
        if delay == Nanos::ZERO {
            self.done.push_back(done);
            self.free.push(completion.tag);
        } else {
            self.held.insert((done.due, completion.tag), done);
        }
    }
}

/// The median time of reads of a page one at a time, all over a disk of `bytes`.
pub(super) fn usual(device: Box<dyn Device>, bytes: u64) -> Nanos {
    const NR: u64 = 33;
    let (mut pace, mut now) = (Pace::new(device), Nanos::ZERO);
    let times = (0..NR).filter_map(|nr| {
        // Far from one to the next, and each somewhere else.
        let offset = (bytes / PAGE_BYTES).max(1) * (nr * 13 % NR) / NR * PAGE_BYTES;
        let request = Request { ticket: nr, kind: Kind::Read, offset, bytes: PAGE_BYTES as u32, layer: 0 };
        let begun = now;
        pace.submit(begun, request);
        loop {
            now = pace.next()?.max(now);
            if let Some(done) = pace.advance(now) {
                return Some(done.due.saturating_sub(begun));
            }
        }
    });
    let mut times: Vec<Nanos> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use iowhy_stack::device::DEVICES;
    use iowhy_stack::origin::find;
    use iowhy_stack::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    fn device(name: &str, options: &[(&str, i64)]) -> Box<dyn Device> {
        let entry = find(DEVICES, name).expect("a device");
        let mut values = entry.defaults();
        options.iter().for_each(|(name, value)| values.set(name, *value));
        (entry.build)(&values, Rng::stream(1, "device"))
    }

    fn read(ticket: u64, offset: u64) -> Request {
        Request { ticket, kind: Kind::Read, offset, bytes: 4096, layer: 0 }
    }

    fn all(pace: &mut Pace, now: Nanos) -> Vec<(u64, Nanos)> {
        std::iter::from_fn(|| pace.advance(now)).map(|done| (done.request.ticket, done.due)).collect()
    }

    #[test]
    fn lateness_is_not_added_up() {
        let mut pace = Pace::new(device("fixed", &[("queue_depth", 1)]));
        (0..4).for_each(|nr| pace.submit(Nanos::from_us(nr), read(nr, nr << 20)));
        // Nobody looks for 10 ms: each has begun when the one before had ended.
        let expected: Vec<(u64, Nanos)> = (0..4).map(|nr| (nr, Nanos::from_ms(nr + 1))).collect();
        assert_eq!(all(&mut pace, Nanos::from_ms(10)), expected);
        assert_eq!((pace.next(), pace.outstanding()), (None, 0));
    }

    #[test]
    fn the_lead_hides_the_way_here_but_the_clock_never_goes_back() {
        let mut pace = Pace::new(device("fixed", &[]));
        pace.set_lead(Lead { ns: 38_000, ns_per_mib: 512_000 });
        pace.submit(Nanos::from_us(140), read(1, 0));
        assert_eq!(pace.next(), Some(Nanos::from_us(1100)));
        assert_eq!(all(&mut pace, Nanos::from_us(1100)), [(1, Nanos::from_us(1100))]);
        // 10 us later; the device was free, but not before that completion.
        pace.submit(Nanos::from_us(1110), read(2, 0));
        assert_eq!(pace.next(), Some(Nanos::from_us(2100)));
    }

    #[test]
    fn faults_delay_or_fail_and_keep_the_place_in_the_device() {
        let mut pace = Pace::new(device("fixed", &[("queue_depth", 1)]));
        pace.set_fault(Nanos::ZERO, Fault::parse("stuck:for=5ms").expect("a fault"));
        pace.set_fault(Nanos::ZERO, Fault::parse("eio:from=1m").expect("a fault"));
        pace.submit(Nanos::ZERO, read(1, 0));
        pace.submit(Nanos::ZERO, read(2, 1 << 20));
        let done: Vec<Done> = std::iter::from_fn(|| pace.advance(Nanos::from_ms(20))).collect();
        assert_eq!(
            done.iter().map(|done| (done.due, done.failed)).collect::<Vec<_>>(),
            [(Nanos::from_ms(6), false), (Nanos::from_ms(7), true)]
        );
        pace.set_fault(Nanos::ZERO, Fault::parse("stuck:for=900s").expect("a fault"));
        pace.submit(Nanos::from_ms(20), read(3, 0));
        assert_eq!(all(&mut pace, Nanos::from_ms(40)), []);
        pace.set_fault(Nanos::from_ms(41), None);
        assert_eq!(all(&mut pace, Nanos::from_ms(41)), [(3, Nanos::from_ms(41))]);
        pace.submit(Nanos::from_ms(50), read(4, 0));
        assert_eq!(all(&mut pace, Nanos::from_ms(60)), [(4, Nanos::from_ms(51))]);
    }

    #[test]
    fn a_restart_hands_everything_back() {
        let mut pace = Pace::new(device("fixed", &[("queue_depth", 2)]));
        (0..5).for_each(|nr| pace.submit(Nanos::ZERO, read(nr, 0)));
        let mut lost: Vec<u64> =
            pace.restart(Nanos::from_ms(9), device("fixed", &[])).iter().map(|request| request.ticket).collect();
        lost.sort_unstable();
        assert_eq!((lost, pace.outstanding(), pace.next()), ((0..5).collect(), 0, None));
        pace.submit(Nanos::from_ms(10), read(9, 0));
        assert_eq!(all(&mut pace, Nanos::from_ms(30)), [(9, Nanos::from_ms(11))]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Served as the simulator's queue does it, event by event, every device gives the same times, whenever we
        /// wake.
        #[test]
        fn when_we_are_awake_changes_no_time(
            steps in prop::collection::vec((0u64..3_000, 0u64..1_000_000, 0u8..8), 1..60), late in 1u64..40_000,
        ) {
            for entry in DEVICES {
                let play = |late_us: u64| {
                    let mut pace = Pace::new(device(entry.name, &[]));
                    let (mut now, mut log) = (Nanos::ZERO, Vec::new());
                    for (nr, (gap, place, kind)) in steps.iter().enumerate() {
                        now += Nanos::from_us(*gap);
                        while late_us == 0 && pace.next().is_some_and(|at| at <= now) {
                            let at = pace.next().unwrap_or(now);
                            log.extend(all(&mut pace, at));
                        }
                        let kind = match kind { 0 => Kind::Flush, 1..4 => Kind::Write, _ => Kind::Read };
                        let bytes = if kind == Kind::Flush { 0 } else { 4096 };
                        let offset = if kind == Kind::Flush { 0 } else { place * 512 };
                        pace.submit(now, Request { ticket: nr as u64, kind, offset, bytes, layer: 0 });
                    }
                    while let Some(at) = pace.next() {
                        log.extend(all(&mut pace, at + Nanos::from_us(late_us)));
                    }
                    log
                };
                let on_time = play(0);
                prop_assert_eq!(on_time.len(), steps.len(), "{}", entry.name);
                prop_assert_eq!(&on_time, &play(late), "{}", entry.name);
            }
        }
    }
}
