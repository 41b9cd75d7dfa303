//! The process that is the disk: it takes requests from the front, asks the model when each is done, and answers then.
//!
//! Three threads: one reads requests (and copies the data of writes), one keeps the times, one hears the keeper. The
//! second sleeps until shortly before a time and then watches the clock, for a processor that has slept does not wake
//! in time. Both of the first go before other programs where that is allowed. This process touches no disk that it
//! serves, and makes nothing on the machine: when it dies, in whatever way, the kernel fails all requests and nothing
//! hangs. It ends when its keeper does, or when the file system is taken away.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iowhy_stack::histogram::Histogram;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::Nanos;

use crate::guard;

use super::control::{Counters, Mode, Order, Wire};
use super::front_ublk::Queue;
use super::fuse::{self, BUFFER_BYTES, Incoming, parse};
use super::pace::{Done, Kind, Pace, Request};
use super::store::{Image, Losses, Undo};
use super::vigil::Vigil;
use super::{Front, Spec};

/// Least time before a deadline for which the clock is watched instead of slept: a processor that has slept wakes late,
/// and the last times show how late.
const WATCH: Duration = Duration::from_micros(60);
/// And at most.
const WATCH_LONGEST: Duration = Duration::from_micros(400);

/// Longest time for which requests are held. A keeper that is killed while its own reads are held keeps its end of the
/// wire open until they are answered, so nothing else would end them.
const HOLD: Nanos = Nanos::from_secs(10);

/// Priority among threads that go before others: the lowest.
const FIRST: libc::c_int = 1;

/// Changing state, under one lock.
struct Core {
    pace: Pace,
    mode: Mode,
    power: bool,
    /// Requests that are held, in the mode that holds, or answered after a fixed time, with that time.
    parked: Vec<(Nanos, Request)>,
    /// Times of arrival are not kept; numbers are.
    outstanding: u64,
    /// Where the last read or write began.
    last_offset: u64,
    counters: Counters,
    late: Histogram,
    /// Number of power-ups: each time the model draws again.
    starts: u64,
}

/// Where requests come from and answers go: all that the server knows of its front.
enum Channel<'a> {
    Fuse(fuse::Channel<'a>),
    Ublk(Queue<'a>),
}

/// State that all threads use.
struct Server<'a> {
    spec: &'a Spec,
    channel: Channel<'a>,
    image: Image,
    undo: Mutex<Undo>,
    core: Mutex<Core>,
    wake: Condvar,
    /// Grows when the next time may have come nearer.
    news: AtomicU64,
    begun: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics takes the process along (see `abort_on_panic`), so that nothing half done is seen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a disk until its front is gone, or its keeper. `device` is `/dev/fuse`, mounted, or the character device of
/// ublk.
///
/// # Errors
/// If the model or its memory cannot be had, or the kernel refuses to talk.
pub(super) fn serve(spec: &Spec, device: BorrowedFd<'_>, keeper: Wire) -> io::Result<()> {
    let backing = match &spec.backing {
        Some(path) => Some(guard::open_named(path).map_err(io::Error::other)?),
        None => None,
    };
    let channel = match spec.front {
        Some(Front::Ublk) => Channel::Ublk(Queue::new(device, spec)?),
        Some(Front::Loop) | None => Channel::Fuse(fuse::Channel(device)),
    };
    let model = spec.device(0).map_err(io::Error::other)?;
    let core = Core {
        pace: Pace::new(model),
        mode: Mode::Instant,
        power: true,
        parked: Vec::new(),
        outstanding: 0,
        last_offset: 0,
        counters: Counters::default(),
        late: Histogram::default(),
        starts: 0,
    };
    let server = Server {
        spec,
        channel,
        image: Image::new(spec.bytes, backing.as_ref())?,
        undo: Mutex::new(Undo::new(spec.cache_bytes())),
        core: Mutex::new(core),
        wake: Condvar::new(),
        news: AtomicU64::new(0),
        begun: Instant::now(),
    };
    abort_on_panic();
    std::thread::scope(|scope| {
        std::thread::Builder::new().name("iowhy-times".into()).spawn_scoped(scope, || server.keep_times())?;
        let server = &server;
        std::thread::Builder::new().name("iowhy-keeper".into()).spawn_scoped(scope, move || {
            // Without a keeper nobody could take the disk away any more.
            let heard = server.hear(keeper);
            std::process::exit(i32::from(heard.is_err()));
        })?;
        go_first();
        let ended = server.receive();
        // The other threads wait for what will not come any more.
        std::process::exit(i32::from(ended.is_err()))
    })
}

/// A thread that panics ends the process: then the kernel fails the requests in flight, and nothing waits for ever.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Lets this thread go before other programs, and be woken on time. Whether that is allowed.
fn go_first() -> bool {
    // The kernel's structure is this one number. Not by way of libc: musl's function always answers ENOSYS.
    let priority: libc::c_int = FIRST;
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    // SAFETY: the call concerns the calling thread; the number lives until it is over.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

impl Server<'_> {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn has_power(&self) -> bool {
        locked(&self.core).power
    }

    /// Takes requests until there will be none.
    fn receive(&self) -> io::Result<()> {
        match &self.channel {
            Channel::Fuse(channel) => self.receive_files(*channel),
            Channel::Ublk(queue) => queue.receive(&mut |request, data| self.take(self.now(), request, data)),
        }
    }

    /// Takes requests to the file.
    fn receive_files(&self, channel: fuse::Channel<'_>) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(n) = channel.receive(&mut buffer)? {
            let now = self.now();
            match parse(&buffer[..n], self.spec.bytes) {
                Incoming::Disk { ticket, kind, offset, bytes, data } => {
                    self.take(now, Request { ticket, kind, offset, bytes, layer: 0 }, data);
                }
                Incoming::Answer(answer) => channel.send(&answer),
                Incoming::Nothing => {}
            }
        }
        Ok(())
    }

    /// A request for the disk has arrived.
    fn take(&self, now: Nanos, mut request: Request, data: &[u8]) {
        // Who has this lock keeps the power as it is: a flush is not promised after what it was for has been lost.
        let mut undo = locked(&self.undo);
        if !self.has_power() {
            drop(undo);
            locked(&self.core).counters.errors += 1;
            return self.reply(&request, libc::EIO);
        }
        match request.kind {
            Kind::Write => request.layer = undo.write(&self.image, request.offset, data),
            Kind::Flush => request.layer = undo.seal(),
            Kind::Read => {}
        }
        let mut core = locked(&self.core);
        drop(undo);
        core.outstanding += 1;
        core.counters.most = core.counters.most.max(core.outstanding);
        if request.kind != Kind::Flush {
            core.counters.forward += u64::from(request.offset > core.last_offset);
            core.last_offset = request.offset;
        }
        match core.mode {
            Mode::Model => core.pace.submit(now, request),
            Mode::Instant => {
                drop(core);
                return self.finish(&[Done { request, due: now, failed: false }], false);
            }
            Mode::Hold => core.parked.push((now + HOLD, request)),
            Mode::After(time) => core.parked.push((now + Nanos(time), request)),
        }
        let done = due(&mut core, self.now());
        drop(core);
        if request.kind == Kind::Read {
            // Its pages are there before the time comes.
            self.image.touch(request.offset, request.bytes);
        }
        self.finish(&done, true);
        self.news.fetch_add(1, Ordering::Release);
        self.wake.notify_one();
    }

    /// Answers due requests.
    fn keep_times(&self) {
        locked(&self.core).counters.first = go_first();
        let mut core = locked(&self.core);
        let mut watch = WATCH;
        let mut vigil = Vigil::new(self.spec.awake);
        loop {
            let seen = self.news.load(Ordering::Acquire);
            let done = due(&mut core, self.now());
            if !done.is_empty() {
                drop(core);
                self.finish(&done, true);
                core = locked(&self.core);
                continue;
            }
            let Some(at) = next(&core) else {
                if vigil.is_kept() {
                    let (again, waited) =
                        self.wake.wait_timeout(core, Vigil::AFTER).unwrap_or_else(PoisonError::into_inner);
                    core = again;
                    // Requests stuck for good are not waited for in time.
                    if waited.timed_out() {
                        vigil.end();
                    }
                } else {
                    core = self.wake.wait(core).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            };
            vigil.keep();
            let left = Duration::from_nanos(at.saturating_sub(self.now()).0);
            if left > watch {
                let begun = Instant::now();
                let (again, waited) =
                    self.wake.wait_timeout(core, left - watch).unwrap_or_else(PoisonError::into_inner);
                core = again;
                if waited.timed_out() {
                    let overslept = begun.elapsed().saturating_sub(left - watch);
                    watch = ((7 * watch + 2 * overslept) / 8).clamp(WATCH, WATCH_LONGEST);
                }
                continue;
            }
            drop(core);
            while self.now() < at && self.news.load(Ordering::Acquire) == seen {
                std::hint::spin_loop();
            }
            core = locked(&self.core);
        }
    }

    /// Answers requests that are done. Only commands timed by the model count for lateness.
    fn finish(&self, done: &[Done], timed: bool) {
        for done in done {
            let request = &done.request;
            match request.kind {
                Kind::Write => locked(&self.undo).written(request.layer),
                Kind::Flush => locked(&self.undo).flushed(request.layer),
                Kind::Read => {}
            }
            {
                let mut core = locked(&self.core);
                core.outstanding -= 1;
                let counters = &mut core.counters;
                match request.kind {
                    _ if done.failed => counters.errors += 1,
                    Kind::Read => {
                        (counters.reads, counters.read_bytes) = more(counters.reads, counters.read_bytes, request)
                    }
                    Kind::Write => {
                        (counters.writes, counters.write_bytes) = more(counters.writes, counters.write_bytes, request);
                    }
                    Kind::Flush => counters.flushes += 1,
                }
            }
            let late = self.now().saturating_sub(done.due);
            self.reply(request, if done.failed { libc::EIO } else { 0 });
            if timed {
                locked(&self.core).late.record(late.0);
            }
        }
    }

    fn reply(&self, request: &Request, error: i32) {
        match &self.channel {
            Channel::Fuse(channel) => {
                channel.reply(&self.image, request.ticket, request.kind, request.offset, request.bytes, error);
            }
            Channel::Ublk(queue) => queue.reply(&self.image, request, error),
        }
    }

    /// Carries out the keeper's messages, until the last.
    fn hear(&self, mut wire: Wire) -> io::Result<()> {
        wire.say(&self.counters())?;
        while let Some(order) = wire.hear()? {
            self.obey(order);
            let counters = self.counters();
            wire.say(&counters)?;
        }
        Ok(())
    }

    fn obey(&self, order: Order) {
        match order {
            Order::Count => {}
            Order::Lead(lead) => locked(&self.core).pace.set_lead(lead),
            Order::Fault(fault) => {
                let now = self.now();
                locked(&self.core).pace.set_fault(now, fault);
            }
            Order::Mode(mode) => {
                let mut core = locked(&self.core);
                if (core.mode, mode, core.outstanding) == (Mode::Instant, Mode::Model, 0) {
                    // What went by without the model has been through the drive, too: it remembers nothing older, as
                    // in the simulator, whose files are there from the start.
                    self.start_anew(&mut core);
                }
                core.mode = mode;
                core.counters.most = core.outstanding;
                core.late = Histogram::default();
                let now = self.now();
                // Parked requests are done; the model's are not taken back.
                let parked = std::mem::take(&mut core.parked);
                drop(core);
                let done: Vec<Done> =
                    parked.into_iter().map(|(_, request)| Done { request, due: now, failed: false }).collect();
                self.finish(&done, false);
            }
            Order::Crash { seed } => {
                let losses = self.lose_power(Some(seed));
                locked(&self.core).counters.losses = losses;
            }
            Order::Power(false) => drop(self.lose_power(None)),
            Order::Power(true) => {
                let mut core = locked(&self.core);
                if !core.power {
                    core.starts += 1;
                    self.start_anew(&mut core);
                    core.power = true;
                }
            }
        }
        self.news.fetch_add(1, Ordering::Release);
        self.wake.notify_one();
    }

    /// Puts a fresh model in the place of one that has nothing to do.
    fn start_anew(&self, core: &mut Core) {
        if let Ok(device) = self.spec.device(core.starts) {
            let lost = core.pace.restart(self.now(), device);
            assert!(lost.is_empty(), "no request is in flight");
        }
    }

    /// Fails everything from now on; with a seed, data that is not on the medium is lost, torn or kept.
    fn lose_power(&self, seed: Option<u64>) -> Option<Losses> {
        let mut undo = locked(&self.undo);
        let mut core = locked(&self.core);
        core.power = false;
        let mut lost: Vec<Request> = std::mem::take(&mut core.parked).into_iter().map(|(_, request)| request).collect();
        if let Ok(device) = self.spec.device(core.starts) {
            let now = self.now();
            lost.extend(core.pace.restart(now, device));
        }
        drop(core);
        let losses = seed.map(|seed| undo.crash(&self.image, &mut Rng::stream(seed, "power cut")));
        drop(undo);
        let now = self.now();
        let failed: Vec<Done> = lost.into_iter().map(|request| Done { request, due: now, failed: true }).collect();
        self.finish(&failed, false);
        losses
    }

    fn counters(&self) -> Counters {
        let unsafe_blocks = locked(&self.undo).len() as u64;
        let core = locked(&self.core);
        let stats = core.pace.stats();
        Counters {
            outstanding: core.outstanding,
            late_p50_ns: core.late.quantile(1, 2),
            late_p99_ns: core.late.quantile(99, 100),
            late_max_ns: core.late.max(),
            unsafe_blocks,
            media_accesses: stats.media_accesses,
            destages: stats.destages,
            cache_hits: stats.cache_hits,
            busy_ns: stats.busy.0,
            power: core.power,
            faults: core.pace.faults(),
            ..core.counters.clone()
        }
    }
}

fn more(requests: u64, bytes: u64, request: &Request) -> (u64, u64) {
    (requests + 1, bytes + u64::from(request.bytes))
}

/// Everything that is due.
fn due(core: &mut Core, now: Nanos) -> Vec<Done> {
    let mut done: Vec<Done> = std::iter::from_fn(|| core.pace.advance(now)).collect();
    core.parked.retain(|&(due, request)| {
        let is_due = due <= now;
        if is_due {
            done.push(Done { request, due, failed: false });
        }
        !is_due
    });
    done
}

/// When something next happens.
fn next(core: &Core) -> Option<Nanos> {
    let parked = core.parked.iter().map(|(due, _)| *due).min();
    [core.pace.next(), parked].into_iter().flatten().min()
}
