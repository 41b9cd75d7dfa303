//! Where the time of the calls goes: the wait of each one at each moment, adding up to the whole.
//!
//! With `C` the most calls that were ever in progress at once, the run has `C x elapsed` of time to give away. A call
//! spends its own in [`Layer`]s: at the device if a request it waits for is there, else with the elevator if one is
//! there, else held in a plug, else in code. The rest of the whole is the application's: fewer calls in progress than
//! possible.
//!
//! A sync call without requests of its own waits for those of others: for the device while any write is there, for the
//! elevator while any waits, for the journal otherwise. A throttled writer waits for writeback.

use std::collections::HashMap;

use iowhy_stack::event::{Dir, Op};
use iowhy_stack::lifecycle::Stage;
use iowhy_stack::units::Nanos;

use super::Digest;

/// The uses of a call's time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Between calls: the program's own time.
    Application,
    /// The workload neither runs nor waits for I/O: it sleeps, or waits for another process.
    Pause,
    /// Ready to run, and no CPU is free, or none may be used.
    Ready,
    /// In calls, without waiting for I/O: system call, look-up, copying.
    Cpu,
    /// The same, far beyond what calls of the kind usually take: locks and run queues.
    Lock,
    /// Journal commits that wait for no request at that moment, and writers that are held back.
    Journal,
    /// Requests on their way to the elevator.
    Plug,
    /// Requests that wait to be issued, and bios that wait for a request (a tag, the writeback throttle).
    Elevator,
    /// Requests at the device.
    Device,
}

/// Every layer, from the top down, with its name.
pub const LAYERS: &[(Layer, &str)] = &[
    (Layer::Application, "application"),
    (Layer::Pause, "pauses"),
    (Layer::Ready, "CPU wait"),
    (Layer::Cpu, "CPU"),
    (Layer::Lock, "lock/wait"),
    (Layer::Journal, "journal/writeback"),
    (Layer::Plug, "plug"),
    (Layer::Elevator, "elevator"),
    (Layer::Device, "device"),
];

/// Number of layers.
const NR: usize = LAYERS.len();

/// Layers in which calls wait for I/O.
pub const WAITS: [Layer; 3] = [Layer::Plug, Layer::Elevator, Layer::Device];

/// Kinds of calls that time is split by: reads, writes, syncs, and others.
pub const KINDS: usize = 4;
/// Syncs.
pub const KIND_SYNC: usize = 2;
/// Neither reads, writes nor syncs.
pub const KIND_OTHER: usize = 3;

/// Time of a run by layer.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Time {
    /// Calls that could be in progress at once.
    pub slots: u32,
    /// ns, summed over these, by kind of call in the order of [`LAYERS`].
    pub ns: [[f64; NR]; KINDS],
    /// Calls that waited for a request.
    pub waited: u64,
    /// How often calls began to wait for I/O: one read that comes in four pieces, one after the other, waits four
    /// times.
    pub waits: u64,
}

impl Time {
    /// Time in a layer, ns.
    pub fn of(&self, layer: Layer) -> f64 {
        self.ns.iter().map(|of| of[layer as usize]).sum()
    }

    /// Time of some kinds of calls in some layers, ns.
    pub fn within(&self, kinds: &[usize], layers: &[Layer]) -> f64 {
        kinds.iter().flat_map(|kind| layers.iter().map(|layer| self.ns[*kind][*layer as usize])).sum()
    }

    /// All of it, ns.
    pub fn total(&self) -> f64 {
        self.ns.iter().flatten().sum()
    }
}

#[derive(Clone, Debug, Default)]
struct Flying {
    stage: Stage,
    write: bool,
    /// Calls that wait for it, by [`Waiter::nr`].
    waiters: Vec<u64>,
    pages: Vec<(u32, u64, u32)>,
}

#[derive(Clone, Debug)]
struct Waiter {
    nr: u64,
    file: u32,
    kind: usize,
    sync: bool,
    /// It has bios or requests on their way.
    busy: bool,
    since: Nanos,
    /// Requests in each stage.
    stages: [u32; 3],
    /// Bios without a request yet.
    bios: u32,
    throttled: bool,
    ns: [u64; NR],
    nr_requests: u64,
    nr_waits: u64,
    waiting: bool,
    /// When the last of its requests was done, while it has no others.
    done: Option<Nanos>,
}

/// I/O in progress for the calls on a file.
#[derive(Copy, Clone, Debug, Default)]
struct Busy {
    calls: u32,
    /// When one of them last had nothing left.
    last_done: Nanos,
}

/// The bookkeeping of waits. Calls are named by their place, as in the observer's own list.
#[derive(Debug, Default)]
pub(super) struct Waits {
    calls: Vec<Waiter>,
    /// Where the call of a number is.
    places: HashMap<u64, usize>,
    next: u64,
    flying: HashMap<u32, Flying>,
    /// Those with pages, in the order of their allocation: few at a time.
    with_pages: Vec<u32>,
    /// Writes that are with the elevator, and at the device.
    writes: [u32; 2],
    syncs: u32,
    ns: [[f64; NR]; KINDS],
    waited: u64,
    waits: u64,
    any_request: bool,
    files: HashMap<u32, Busy>,
}

impl Waiter {
    /// Counts the call among those of its file that have something on its way, or no longer.
    fn mark(&mut self, now: Nanos, files: &mut HashMap<u32, Busy>) {
        let busy = self.bios > 0 || self.stages != [0; 3];
        if busy != self.busy {
            self.busy = busy;
            let file = files.entry(self.file).or_default();
            if busy {
                file.calls += 1;
            } else {
                file.calls -= 1;
                file.last_done = now;
            }
        }
    }

    fn layer(&self, writes: [u32; 2]) -> Layer {
        let [plug, elevator, device] = self.stages;
        if device > 0 {
            Layer::Device
        } else if elevator + self.bios > 0 {
            Layer::Elevator
        } else if plug > 0 {
            Layer::Plug
        } else if self.throttled {
            Layer::Journal
        } else if self.sync {
            match writes {
                [0, 0] => Layer::Journal,
                [_, 0] => Layer::Elevator,
                _ => Layer::Device,
            }
        } else {
            Layer::Cpu
        }
    }

    fn pass(&mut self, now: Nanos, writes: [u32; 2]) {
        let passed = now.saturating_sub(self.since).0;
        if passed > 0 {
            let layer = self.layer(writes);
            let waiting = matches!(layer, Layer::Plug | Layer::Elevator | Layer::Device) && !self.sync;
            self.nr_waits += u64::from(waiting && !self.waiting);
            self.waiting = waiting;
            self.ns[layer as usize] += passed;
            self.since = now;
        }
    }
}

impl Waits {
    /// Calls on the file that have bios or requests on their way, and when one of them last had done.
    pub(super) fn on_file(&self, file: u32) -> (u32, Nanos) {
        self.files.get(&file).map_or((0, Nanos::ZERO), |busy| (busy.calls, busy.last_done))
    }

    pub(super) fn begin(&mut self, now: Nanos, op: Op, file: u32) {
        self.next += 1;
        let sync = matches!(op, Op::Fsync | Op::Fdatasync);
        self.syncs += u32::from(sync);
        self.places.insert(self.next, self.calls.len());
        self.calls.push(Waiter {
            nr: self.next,
            file,
            kind: super::kind_of(op),
            sync,
            busy: false,
            since: now,
            stages: [0; 3],
            bios: 0,
            throttled: false,
            ns: [0; NR],
            nr_requests: 0,
            nr_waits: 0,
            waiting: false,
            done: None,
        });
    }

    /// When the call at this place had all that it waited for; nothing if it has waited for no request.
    pub(super) fn done(&self, place: usize) -> Option<Nanos> {
        let call = &self.calls[place];
        call.done.filter(|_| call.bios == 0 && call.stages == [0; 3])
    }

    /// The call at this place has ended; yields its time without I/O, ns.
    pub(super) fn end(&mut self, now: Nanos, place: usize) -> u64 {
        let writes = self.writes;
        let mut call = self.calls.swap_remove(place);
        self.places.remove(&call.nr);
        if let Some(moved) = self.calls.get(place) {
            self.places.insert(moved.nr, place);
        }
        call.pass(now, writes);
        (call.bios, call.stages) = (0, [0; 3]);
        call.mark(now, &mut self.files);
        self.syncs -= u32::from(call.sync);
        let code = call.ns[Layer::Cpu as usize];
        self.add(&call);
        code
    }

    fn add(&mut self, call: &Waiter) {
        self.ns[call.kind].iter_mut().zip(call.ns).for_each(|(sum, ns)| *sum += ns as f64);
        self.waited += u64::from(call.nr_requests > 0);
        self.waits += call.nr_waits;
    }

    /// The call queues a bio that it will wait for.
    pub(super) fn bio(&mut self, now: Nanos, place: usize) {
        let writes = self.writes;
        let call = &mut self.calls[place];
        call.pass(now, writes);
        call.bios += 1;
        call.mark(now, &mut self.files);
    }

    pub(super) fn throttle(&mut self, now: Nanos, place: usize) {
        let writes = self.writes;
        let call = &mut self.calls[place];
        call.pass(now, writes);
        call.throttled = true;
    }

    pub(super) fn allocate(&mut self, rq: u32, dir: Dir, pages: Option<(u32, u64, u32)>) {
        self.any_request = true;
        self.with_pages.retain(|known| *known != rq);
        if pages.is_some() {
            self.with_pages.push(rq);
        }
        let flying = Flying { write: dir == Dir::Write, pages: pages.into_iter().collect(), ..Flying::default() };
        self.flying.insert(rq, flying);
    }

    pub(super) fn merge(&mut self, rq: u32, pages: Option<(u32, u64, u32)>) {
        let (Some(flying), Some(pages)) = (self.flying.get_mut(&rq), pages) else { return };
        if flying.pages.is_empty() {
            self.with_pages.push(rq);
        }
        flying.pages.push(pages);
    }

    /// A call waits for a request; `own` if one of its own bios is in it.
    pub(super) fn attach(&mut self, now: Nanos, place: usize, rq: u32, own: bool) {
        let writes = self.writes;
        let (call, Some(flying)) = (&mut self.calls[place], self.flying.get_mut(&rq)) else { return };
        call.pass(now, writes);
        if own {
            call.bios = call.bios.saturating_sub(1);
        }
        if !flying.waiters.contains(&call.nr) {
            flying.waiters.push(call.nr);
            call.stages[flying.stage as usize] += 1;
            call.nr_requests += 1;
        }
        call.mark(now, &mut self.files);
    }

    /// A read asks for pages that are on their way already.
    pub(super) fn join_flying(&mut self, now: Nanos, place: usize, file: u32, first: u64, last: u64) {
        let overlaps =
            |(of, start, nr): &(u32, u64, u32)| *of == file && *start <= last && *start + u64::from(*nr) > first;
        let wanted = |rq: &&u32| self.flying.get(rq).is_some_and(|flying| flying.pages.iter().any(overlaps));
        let found: Vec<u32> = self.with_pages.iter().filter(wanted).copied().collect();
        found.iter().for_each(|rq| self.attach(now, place, *rq, false));
    }

    pub(super) fn unite(&mut self, now: Nanos, rq: u32, gone: u32) {
        let Some(old) = self.flying.remove(&gone) else { return };
        self.with_pages.retain(|known| *known != gone);
        let Some(kept) = self.flying.get_mut(&rq) else { return };
        if kept.pages.is_empty() && !old.pages.is_empty() {
            self.with_pages.push(rq);
        }
        kept.pages.extend(old.pages);
        let stage = kept.stage;
        for nr in old.waiters {
            let Some(call) = self.places.get(&nr).and_then(|place| self.calls.get_mut(*place)) else { continue };
            call.pass(now, self.writes);
            call.stages[old.stage as usize] -= 1;
            if kept.waiters.contains(&nr) {
                call.nr_requests -= 1;
            } else {
                kept.waiters.push(nr);
                call.stages[stage as usize] += 1;
            }
        }
        if old.write {
            self.count_write(now, old.stage, u32::saturating_sub);
        }
    }

    pub(super) fn issue(&mut self, now: Nanos, rq: u32, dir: Dir) {
        // Waits count even if their begin was not seen (a flush, a trace that starts in the middle).
        let write = dir == Dir::Write;
        self.flying.entry(rq).or_insert_with(|| Flying { write, ..Flying::default() });
        self.enter(now, rq, Stage::Issued);
    }

    /// Syncs without requests of their own wait for whatever is written, and so their time passes whenever that
    /// changes.
    fn count_write(&mut self, now: Nanos, stage: Stage, change: fn(u32, u32) -> u32) {
        if self.syncs > 0 {
            let writes = self.writes;
            self.calls.iter_mut().filter(|call| call.sync).for_each(|call| call.pass(now, writes));
        }
        match stage {
            Stage::Held => {}
            Stage::Waiting => self.writes[0] = change(self.writes[0], 1),
            Stage::Issued => self.writes[1] = change(self.writes[1], 1),
        }
    }

    pub(super) fn enter(&mut self, now: Nanos, rq: u32, stage: Stage) {
        let Some(flying) = self.flying.get_mut(&rq) else { return };
        let before = std::mem::replace(&mut flying.stage, stage);
        let write = flying.write;
        for nr in &flying.waiters {
            if let Some(call) = self.places.get(nr).and_then(|place| self.calls.get_mut(*place)) {
                call.pass(now, self.writes);
                call.stages[before as usize] -= 1;
                call.stages[stage as usize] += 1;
            }
        }
        if write {
            self.count_write(now, before, u32::saturating_sub);
            self.count_write(now, stage, u32::saturating_add);
        }
    }

    pub(super) fn complete(&mut self, now: Nanos, rq: u32) {
        let Some(flying) = self.flying.remove(&rq) else { return };
        if !flying.pages.is_empty() {
            self.with_pages.retain(|known| *known != rq);
        }
        for nr in &flying.waiters {
            if let Some(call) = self.places.get(nr).and_then(|place| self.calls.get_mut(*place)) {
                call.pass(now, self.writes);
                call.stages[flying.stage as usize] -= 1;
                call.done = Some(now);
                call.mark(now, &mut self.files);
            }
        }
        if flying.write {
            self.count_write(now, flying.stage, u32::saturating_sub);
        }
    }

    /// The time of all calls, those included that have not ended.
    pub(super) fn finish(mut self, now: Nanos, elapsed: Nanos, digest: &Digest) -> Time {
        let writes = self.writes;
        for mut call in std::mem::take(&mut self.calls) {
            call.pass(now, writes);
            self.add(&call);
        }
        for (kind, ns) in self.ns.iter_mut().enumerate() {
            if !self.any_request {
                // A device that takes bios as they are has no requests, and all but code is its own.
                ns[Layer::Device as usize] += std::mem::take(&mut ns[Layer::Plug as usize]);
            }
            let Some(without_io) = digest.without_io.get(kind).filter(|_| kind < 2) else { continue };
            let code = ns[Layer::Cpu as usize];
            let lock = without_io.excess_over(4.0 * without_io.median()).min(code);
            ns[Layer::Cpu as usize] = code - lock;
            ns[Layer::Lock as usize] += lock;
        }
        let slots = digest.workload.concurrency;
        let whole = f64::from(slots) * elapsed.0 as f64;
        let own = (whole - self.ns.iter().flatten().sum::<f64>()).max(0.0);
        self.ns[KIND_OTHER][Layer::Application as usize] = own;
        Time { slots, ns: self.ns, waited: self.waited, waits: self.waits }
    }
}
