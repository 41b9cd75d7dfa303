//! Per-layer statistics from events, from whichever source they come.
//!
//! One pass, constant memory: the observer keeps the times of requests in flight, by request number. Phases are those
//! of
//! btt: Q2G (queued to allocated), G2I (to the elevator), I2D (in the elevator), D2C (at the device), Q2C (all of it).
//!
//! The rule for requests that are issued again is that of [`lifecycle`](crate::lifecycle). Its tracker is not used:
//! here every event of the simulator passes, and with it a block request took 9 to 11 % longer.

use crate::event::{CallId, Content, Dir, Event, EventSink, JournalStep, MergeKind, Op, RaKind, RqId, What};
use crate::histogram::Histogram;
use crate::lifecycle::submitter;
use crate::units::{Nanos, Sector};

/// Time between two stages of a bio or request.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// Bio queued to request allocated.
    pub q2g: Histogram,
    /// Request allocated to inserted into the elevator.
    pub g2i: Histogram,
    /// Inserted to issued to the device.
    pub i2d: Histogram,
    /// Issued to completed.
    pub d2c: Histogram,
    /// Queued to completed.
    pub q2c: Histogram,
}

/// Commands of one direction.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// Commands issued.
    pub issued: u64,
    /// Commands completed.
    pub completed: u64,
    /// Sectors completed.
    pub sectors: u64,
    /// Bios and requests that had joined the commands completed (`rrqm`, `wrqm`).
    pub merges: u64,
    /// Commands by size: index is the size in 4 KiB blocks, the last entry holds everything larger.
    pub by_pages: Vec<u64>,
    /// Commands of 4 KiB or less whose first bio carries file data.
    pub small_data: u64,
    /// Commands whose first bio carries file data.
    pub data: u64,
    /// Commands whose first bio carries mapping blocks.
    pub mapping: u64,
    /// Commands whose first bio carries journal blocks.
    pub journal: u64,
    /// Commands whose first bio carries metadata in place.
    pub metadata: u64,
    /// Sum of the times from allocation to completion (`rd_ticks`, `wr_ticks`).
    pub ticks: Nanos,
}

/// Sizes of the commands histogram: up to 2 MiB in 4 KiB steps, one for larger.
const SIZES: usize = 513;

/// Statistics of every layer.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Calls by kind: read, write, sync.
    pub calls: [u64; 3],
    /// Latency by kind of call, ns.
    pub call_latency: [Histogram; 3],
    /// Pages found in the cache by reads.
    pub hits: u64,
    /// Pages not found.
    pub misses: u64,
    /// Page faults that ended without a read, and those that had to wait for one.
    pub faults: [u64; 2],
    pub pages_added: u64,
    /// Pages evicted.
    pub pages_removed: u64,
    /// Read-ahead decisions by kind: sync, async, force, single, around, exec, huge.
    pub windows: [u64; 7],
    /// Pages in these windows.
    pub window_pages: [u64; 7],
    /// Windows closed, by cause: interleaved misses, misses, hits, congestion.
    pub closes: [u64; 4],
    /// Windows reopened.
    pub reopens: u64,
    /// Read calls that missed the cache.
    pub reads_missed: u64,
    /// Of these, calls in which more than one page was read alone, one after the other.
    pub reads_split: u64,
    pub reads: Commands,
    /// Commands written.
    pub writes: Commands,
    /// Requests united with another one.
    pub request_merges: u64,
    /// Front merges of bios.
    pub front_merges: u64,
    /// Sum over commands of the distance from the end of the previous command, sectors.
    pub seek_sectors: u64,
    /// Commands that did not start where the previous one ended.
    pub seeks: u64,
    /// Phases of requests.
    pub phases: Phases,
    /// Requests at the device when a command is issued, this one included.
    pub depth: Histogram,
    /// Deliberate waits of the elevator: hit, broken, timed out.
    pub idles: [u64; 3],
    /// Time in them.
    pub idle_time: Nanos,
    /// Unplugs by cause, in the order of [`UnplugCause`](crate::event::UnplugCause).
    pub unplugs: [u64; 7],
    /// Journal commits completed.
    pub commits: u64,
    /// Blocks written to the journal.
    pub journal_blocks: u64,
    /// Pages written back.
    pub writeback_pages: u64,
    /// Writers stopped because too much was dirty.
    pub throttles: u64,
    /// Calls that worker threads carried out for their submitter.
    pub handed_over: u64,
    /// Device time as modelled: arm moving, us.
    pub seek_us: u64,
    /// Device time as modelled: waiting for the sector, us.
    pub rotation_us: u64,
    /// Commands that needed the mechanism.
    pub media_accesses: u64,
    /// Time during which the device had at least one request.
    pub device_busy: Nanos,
    /// Time during which there was at least one request, in the queue or at the device: the basis of `%util`.
    pub queue_busy: Nanos,
    /// Integral of requests in the queue and at the device over time, ns.
    pub queue_time: u128,
    /// Last event seen.
    pub end: Nanos,
}

impl Layers {
    /// Commands of both directions.
    pub fn commands(&self) -> u64 {
        self.reads.completed + self.writes.completed
    }

    /// Share of the read calls that missed in which several pages were read one by one, 0 to 1.
    pub fn split_share(&self) -> f64 {
        ratio(self.reads_split, self.reads_missed)
    }

    /// Share of the read commands that are single pages of file data, 0 to 1.
    pub fn small_read_share(&self) -> f64 {
        ratio(self.reads.small_data, self.reads.issued)
    }

    /// All windows closed.
    pub fn closes_total(&self) -> u64 {
        self.closes.iter().sum()
    }

    /// One row of `iostat -x` over the whole run.
    pub fn iostat(&self) -> Iostat {
        let seconds = self.end.as_secs_f64();
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let direction = |c: &Commands| IostatDir {
            per_s: per_second(c.completed),
            kb_per_s: per_second(c.sectors) / 2.0,
            rqm_per_s: per_second(c.merges),
            rqm_pct: 100.0 * ratio(c.merges, c.merges + c.completed),
            await_ms: if c.completed > 0 { c.ticks.as_ms_f64() / c.completed as f64 } else { 0.0 },
            areq_sz_kb: ratio(c.sectors, c.completed) / 2.0,
        };
        let busy = self.queue_busy.as_secs_f64();
        Iostat {
            read: direction(&self.reads),
            write: direction(&self.writes),
            aqu_sz: if seconds > 0.0 { self.queue_time as f64 / 1e9 / seconds } else { 0.0 },
            util_pct: if seconds > 0.0 { 100.0 * busy / seconds } else { 0.0 },
            svctm_ms: if self.commands() > 0 { busy * 1e3 / self.commands() as f64 } else { 0.0 },
        }
    }
}

/// `part / whole`, 0 if the whole is 0.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One direction of an `iostat -x` row, with the units sysstat uses today.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct IostatDir {
    /// `r/s`, `w/s`.
    pub per_s: f64,
    /// `rkB/s`, `wkB/s`.
    pub kb_per_s: f64,
    /// `rrqm/s`, `wrqm/s`.
    pub rqm_per_s: f64,
    /// `%rrqm`, `%wrqm`.
    pub rqm_pct: f64,
    /// `r_await`, `w_await`, ms.
    pub await_ms: f64,
    /// `rareq-sz`, `wareq-sz`, KiB.
    pub areq_sz_kb: f64,
}

/// One row of `iostat -x`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Iostat {
    pub read: IostatDir,
    /// Writes.
    pub write: IostatDir,
    pub aqu_sz: f64,
    pub util_pct: f64,
    /// `svctm`, ms: removed from sysstat, kept for comparison with old reports.
    pub svctm_ms: f64,
}

#[derive(Copy, Clone, Debug, Default)]
struct RequestTimes {
    queued: Nanos,
    allocated: Nanos,
    inserted: Nanos,
    issued: Nanos,
    at_device: bool,
    /// Bios and requests that joined it.
    merges: u32,
}

#[derive(Copy, Clone, Debug, Default)]
struct OpenCall {
    id: CallId,
    start: Nanos,
    missed: bool,
    /// Pages read alone.
    singles: u32,
}

/// Turns events into [`Layers`].
#[derive(Clone, Debug, Default)]
pub struct LayerObserver {
    layers: Layers,
    requests: Vec<RequestTimes>,
    calls: Vec<OpenCall>,
    /// Bios without a request, by their submitter: when they came.
    bios: Vec<(CallId, Nanos)>,
    last_end: u64,
    idle_since: Option<Nanos>,
    in_driver: u32,
    in_queue: u64,
    accounted: Nanos,
}

impl LayerObserver {
    /// The statistics so far, taken up to `end`.
    pub fn finish(mut self, end: Nanos) -> Layers {
        self.account(end);
        self.layers.end = end;
        self.layers
    }

    #[inline]
    fn account(&mut self, now: Nanos) {
        // Most events come in groups of one time.
        if now == self.accounted {
            return;
        }
        let passed = now.saturating_sub(self.accounted);
        if self.in_driver > 0 {
            self.layers.device_busy += passed;
        }
        if self.in_queue > 0 {
            self.layers.queue_busy += passed;
        }
        self.layers.queue_time += u128::from(self.in_queue) * u128::from(passed.0);
        self.accounted = now;
    }

    #[inline]
    fn times(&mut self, rq: u32) -> &mut RequestTimes {
        let index = rq as usize;
        if index >= self.requests.len() {
            self.make_room(index);
        }
        &mut self.requests[index]
    }

    #[cold]
    fn make_room(&mut self, index: usize) {
        self.requests.resize(index + 1, RequestTimes::default());
    }

    /// The time at which the submitter's bio came; it is forgotten.
    fn came(&mut self, call: CallId) -> Option<Nanos> {
        let place = self.bios.iter().rposition(|(of, _)| *of == submitter(call))?;
        Some(self.bios.swap_remove(place).1)
    }

    fn call(&mut self, id: CallId) -> Option<&mut OpenCall> {
        if id == CallId::NONE { None } else { self.calls.iter_mut().find(|call| call.id == id) }
    }
}

impl EventSink for LayerObserver {
    fn event(&mut self, event: &Event) {
        self.observe(event);
    }
}

impl LayerObserver {
    #[inline(always)]
    fn call_end(&mut self, id: CallId, op: Op, at: Nanos) {
        let kind = match op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Fsync | Op::Fdatasync | Op::Trim => 2,
        };
        self.layers.calls[kind] += 1;
        if let Some(index) = self.calls.iter().position(|call| call.id == id) {
            let call = self.calls.swap_remove(index);
            self.layers.call_latency[kind].record(at.saturating_sub(call.start).0);
            if kind == 0 && call.missed {
                self.layers.reads_missed += 1;
                self.layers.reads_split += u64::from(call.singles > 1);
            }
        }
    }

    #[inline(always)]
    fn issue(
        &mut self,
        at: Nanos,
        rq: RqId,
        in_flight: u16,
        (dir, content): (Dir, Content),
        (sector, nr_sectors): (Sector, u32),
    ) {
        let times = self.times(rq.0);
        times.issued = at;
        if std::mem::replace(&mut times.at_device, true) {
            return;
        }
        let waited = at.saturating_sub(times.inserted).0;
        self.account(at);
        self.in_driver += 1;
        let layers = &mut self.layers;
        layers.phases.i2d.record(waited);
        layers.depth.record(u64::from(in_flight));
        if sector.0 != self.last_end {
            layers.seeks += 1;
            layers.seek_sectors += sector.0.abs_diff(self.last_end);
        }
        self.last_end = sector.0 + u64::from(nr_sectors);
        let commands = if dir == Dir::Read { &mut layers.reads } else { &mut layers.writes };
        commands.issued += 1;
        if commands.by_pages.is_empty() {
            commands.by_pages = vec![0; SIZES + 1];
        }
        commands.by_pages[(nr_sectors as usize).div_ceil(8).min(SIZES)] += 1;
        match content {
            Content::Data => {
                commands.data += 1;
                commands.small_data += u64::from(nr_sectors <= 8);
            }
            Content::Mapping => commands.mapping += 1,
            Content::Journal => commands.journal += 1,
            Content::Metadata => commands.metadata += 1,
        }
    }

    #[inline(always)]
    fn complete(&mut self, at: Nanos, rq: RqId, dir: Dir, nr_sectors: u32) {
        self.account(at);
        self.in_driver = self.in_driver.saturating_sub(1);
        self.in_queue = self.in_queue.saturating_sub(1);
        let times = self.times(rq.0);
        times.at_device = false;
        let times = *times;
        let layers = &mut self.layers;
        layers.phases.d2c.record(at.saturating_sub(times.issued).0);
        layers.phases.q2c.record(at.saturating_sub(times.queued).0);
        let commands = if dir == Dir::Read { &mut layers.reads } else { &mut layers.writes };
        commands.completed += 1;
        commands.sectors += u64::from(nr_sectors);
        commands.ticks += at.saturating_sub(times.allocated);
        commands.merges += u64::from(times.merges);
    }

    /// Takes one event. Inlined, so that where the kind of event is known only its arm remains.
    #[inline(always)]
    pub(crate) fn observe(&mut self, event: &Event) {
        let at = event.at;
        match event.what {
            What::CallStart { .. } => {
                self.calls.push(OpenCall { id: event.call, start: at, ..OpenCall::default() });
            }
            What::CallEnd { op, .. } => self.call_end(event.call, op, at),
            What::Hit { nr_pages, .. } => self.layers.hits += u64::from(nr_pages),
            What::Miss { .. } => {
                self.layers.misses += 1;
                if let Some(call) = self.call(event.call) {
                    call.missed = true;
                }
            }
            What::Fault { major, .. } => self.layers.faults[usize::from(major)] += 1,
            What::RaWindow { kind, nr_pages, .. } => {
                self.layers.windows[kind as usize] += 1;
                self.layers.window_pages[kind as usize] += u64::from(nr_pages);
                if let Some(call) = self.call(event.call) {
                    call.missed = true;
                    call.singles += u32::from(kind == RaKind::Single);
                }
            }
            What::RaClosed { cause, .. } => {
                self.layers.closes[cause as usize] += 1;
            }
            What::RaReopened { .. } => self.layers.reopens += 1,
            What::PageAdd { nr_pages, .. } => self.layers.pages_added += u64::from(nr_pages),
            What::PageRemove { nr_pages, .. } => self.layers.pages_removed += u64::from(nr_pages),
            What::BioQueue { .. } => {
                self.came(event.call);
                self.bios.push((submitter(event.call), at));
            }
            What::GetRequest { rq } => {
                self.account(at);
                self.in_queue += 1;
                let queued = self.came(event.call).unwrap_or(at);
                *self.times(rq.0) =
                    RequestTimes { queued, allocated: at, inserted: at, issued: at, ..RequestTimes::default() };
                self.layers.phases.q2g.record(at.saturating_sub(queued).0);
            }
            What::Merge { rq, kind, .. } => {
                self.came(event.call);
                self.times(rq.0).merges += 1;
                if kind == MergeKind::Front {
                    self.layers.front_merges += 1;
                }
            }
            What::MergeRequests { rq, gone } => {
                self.account(at);
                self.in_queue = self.in_queue.saturating_sub(1);
                self.layers.request_merges += 1;
                let other = *self.times(gone.0);
                let kept = self.times(rq.0);
                kept.allocated = kept.allocated.min(other.allocated);
                kept.queued = kept.queued.min(other.queued);
                kept.merges += other.merges + 1;
            }
            What::Insert { rq } => {
                let times = self.times(rq.0);
                if !times.at_device {
                    times.inserted = at;
                    let held = at.saturating_sub(times.allocated).0;
                    self.layers.phases.g2i.record(held);
                }
            }
            What::Issue { rq, dir, content, sector, nr_sectors, in_flight } => {
                self.issue(at, rq, in_flight, (dir, content), (sector, nr_sectors));
            }
            What::Complete { rq, dir, nr_sectors } => self.complete(at, rq, dir, nr_sectors),
            What::ServiceModel { seek_us, rotation_us, media, .. } => {
                self.layers.seek_us += u64::from(seek_us);
                self.layers.rotation_us += u64::from(rotation_us);
                self.layers.media_accesses += u64::from(media);
            }
            What::IdleStart => self.idle_since = Some(at),
            What::IdleEnd { cause } => {
                self.layers.idles[cause as usize] += 1;
                if let Some(since) = self.idle_since.take() {
                    self.layers.idle_time += at.saturating_sub(since);
                }
            }
            What::Unplug { cause, .. } => self.layers.unplugs[cause as usize] += 1,
            What::Journal { step, nr_blocks, .. } => match step {
                JournalStep::Done => self.layers.commits += 1,
                JournalStep::Log | JournalStep::CommitBlock => self.layers.journal_blocks += u64::from(nr_blocks),
                JournalStep::Lock | JournalStep::Data => {}
            },
            What::Writeback { nr_pages, .. } => self.layers.writeback_pages += u64::from(nr_pages),
            What::Throttle { .. } => self.layers.throttles += 1,
            What::HandOver => self.layers.handed_over += 1,
            What::Plug => {}
        }
    }
}
