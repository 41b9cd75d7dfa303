//! A capture that keeps the last while only: rings that overwrite their oldest events, read when that is asked for.
//!
//! ```text
//! rings      of both instances, as in a capture, with the option `overwrite`: nothing is read and nothing written
//! cut        both are switched off, read, emptied and switched on again; the records begin where the first ring that
//!            was overwritten begins, so that none is missing in between
//! watch      for latencies of requests, the devices' sub-buffers are taken as they fill, and kept as long as the rings
//!            keep theirs: no event is recorded twice
//! files      descriptors are looked at once in a while and at the cut; positions at the cut are counted back to the
//!            beginning by the calls in between
//! ```
//! Known limits: while it is read (a millisecond for a MiB) nothing is recorded, and the next cut begins there; a
//! process that moved its position by other means than reads and writes has it wrong at the beginning.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use iowhy_stack::trace::{Dev, Record, Seen};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::decode::{Decoded, Own};
use super::opened::{self, OpenDescriptor, Opens};
use super::reader::{Page, drain};
use super::shape::Shape;
use super::tracefs::Instances;
use super::{Ask, CaptureError, Captured, Cost, Level, On, Prepared, Source, monotonic_ns, ring, thread_id, trace_of};
use crate::ledger::{self, Guard, Ledger, LedgerError};
use crate::machine;
use crate::state::of_others;
use crate::system::{readable, urgent};

/// A sub-buffer that was taken out of a ring.
#[derive(Debug)]
struct Sub {
    /// Which ring.
    ring: usize,
    cpu: u32,
    /// When it begins, CLOCK_MONOTONIC, ns.
    time: u64,
    /// Events before it were overwritten.
    after_loss: bool,
    bytes: Vec<u8>,
}

/// Requests without an end for longer are forgotten, ns.
const FORGOTTEN: u64 = 120_000_000_000;
/// By how much an issue may be handed out later than its completion, ns.
const LATE: u64 = 10_000_000_000;
/// Requests from which on those are looked for.
const MANY: usize = 1 << 14;

/// The part of the memory, in sixteenths, that the events of tasks get: most, unless only requests are recorded.
fn of_tasks(level: Level) -> u64 {
    if level == Level::Light { 1 } else { 12 }
}

/// Requests in progress and their times. The ring of a CPU may hand out an issue later than another one the completion.
#[derive(Debug, Default)]
struct Latencies {
    /// When each was issued, ns.
    pending: HashMap<(Dev, u64), u64>,
    /// Completions whose issue is not there yet, and whether it has come since.
    early: HashMap<(Dev, u64), (u64, bool)>,
}

impl Latencies {
    /// A request goes to the scheduler or the driver; its time if it is over already.
    fn begins(&mut self, request: (Dev, u64), at: u64) -> Option<(u64, u64)> {
        match self.early.get_mut(&request) {
            Some((end, matched)) if *end >= at => {
                let first = !std::mem::replace(matched, true);
                return first.then_some((*end, *end - at));
            }
            Some(_) => drop(self.early.remove(&request)),
            None => {}
        }
        self.pending.entry(request).or_insert(at);
        None
    }

    /// A request is completed; its time, ns, if its begin is known.
    fn ends(&mut self, request: (Dev, u64), at: u64) -> Option<(u64, u64)> {
        let Some(begun) = self.pending.get(&request).copied().filter(|begun| *begun <= at) else {
            self.early.insert(request, (at, false));
            return None;
        };
        self.pending.remove(&request);
        Some((at, at - begun))
    }

    fn forget(&mut self, now: u64) {
        if self.pending.len() + self.early.len() > MANY {
            self.pending.retain(|_, begun| *begun + FORGOTTEN > now);
            self.early.retain(|_, (end, _)| *end + LATE > now);
        }
    }
}

/// Rings that go round.
#[derive(Debug)]
pub struct Flight {
    /// Those of the tasks, then those of the devices. They are closed before the guard removes the instances.
    rings: Vec<(u32, File)>,
    nr_of_tasks: usize,
    page: Vec<u8>,
    /// Sub-buffers of devices that were taken to look at latencies, and how many bytes may be kept.
    kept: VecDeque<Sub>,
    kept_bytes: usize,
    room: Option<usize>,
    /// From when on all of them are kept, ns.
    floor_ns: u64,
    /// Records behind the last look.
    waiting: Vec<Record>,
    latencies: Latencies,
    opens: Option<Opens>,
    /// Looks at the open files, with their times.
    looks: VecDeque<(u64, Vec<OpenDescriptor>)>,
    /// Whose files are of interest; everybody's if there is none.
    pids: Option<BTreeSet<u32>>,
    source: Instances,
    shapes: BTreeMap<u16, Shape>,
    missing: Vec<String>,
    event_ps: u64,
    level: Level,
    own: u32,
    since_ns: u64,
    _guard: Option<Guard>,
}

impl Flight {
    /// Arms. `memory` bytes are for all rings together; with `watch` [`completed`](Flight::completed) can be asked.
    ///
    /// # Errors
    /// If this user may not, or the kernel cannot.
    pub fn start(ask: &Ask, ledger: &Ledger, memory: u64, watch: bool) -> Result<Flight, CaptureError> {
        super::allowed()?;
        let cpus = machine::Machine::read().cpus.map_or(1, u64::from).max(1);
        let tasks_bytes = memory / 16 * of_tasks(ask.level);
        let devices_bytes = memory - tasks_bytes;
        // Watched, the rings only have to last from one look to the next.
        let in_rings = if watch { devices_bytes / 4 } else { devices_bytes };
        let kib = |bytes: u64| u32::try_from((bytes / cpus) >> 10).unwrap_or(u32::MAX).clamp(16, 1 << 20);
        let Prepared { mut source, guard, shapes, mut missing, event_ps } =
            Instances::make(ask, ledger, [kib(tasks_bytes), kib(in_rings)])?;
        if shapes.is_empty() {
            return Err(CaptureError::NoEvents(ask.level));
        }
        source.tasks.overwrite()?;
        source.devices.overwrite()?;
        let opens = (ask.level > Level::Light).then(Opens::start).and_then(|opens| {
            opens.map_err(|error| missing.push(format!("telling who opens which file ({error})"))).ok()
        });
        let own = thread_id();
        source.aim(ask, &[own])?;
        let mut rings = source.tasks.rings()?;
        let nr_of_tasks = rings.len();
        rings.extend(source.devices.rings()?);
        let sub_buffer = source.tasks.sub_buffer().max(source.devices.sub_buffer());
        source.switch(On::All)?;
        // Earlier events are not all there.
        let since_ns = monotonic_ns();
        let mut flight = Flight {
            rings,
            nr_of_tasks,
            page: vec![0; sub_buffer],
            kept: VecDeque::new(),
            kept_bytes: 0,
            room: watch.then_some((devices_bytes - in_rings) as usize),
            floor_ns: 0,
            waiting: Vec::new(),
            latencies: Latencies::default(),
            opens,
            looks: VecDeque::new(),
            pids: ask.of_tasks().then(|| ask.pids.iter().copied().collect()),
            source,
            shapes,
            missing,
            event_ps,
            level: ask.level,
            own,
            since_ns,
            _guard: guard,
        };
        flight.look();
        Ok(flight)
    }

    /// Looks at the files that are open, and forgets all but the look before: to be called as often as a cut is long.
    pub fn look(&mut self) {
        if self.level == Level::Light {
            return;
        }
        let pids = self.pids.as_ref().map_or_else(opened::everybody, |pids| pids.iter().copied().collect());
        let before = self.looks.back().map_or(0, |(at, _)| *at);
        self.looks.push_back((monotonic_ns(), opened::held(&pids)));
        while self.looks.len() > 2 {
            self.looks.pop_front();
        }
        if let Some(opens) = &mut self.opens {
            opens.forget(before);
        }
    }

    /// Follows more processes.
    ///
    /// # Errors
    /// If a file of tracefs cannot be written.
    pub fn follow(&mut self, pids: &[u32]) -> Result<(), CaptureError> {
        if let Some(known) = &mut self.pids {
            known.extend(pids);
            self.source.follow(pids, 0)?;
        }
        Ok(())
    }

    /// Waits until one of these is pressed, or the time is over; yields the first that is.
    pub fn wait(&mut self, pressures: &[Pressure], time: Duration) -> Option<usize> {
        let files: Vec<BorrowedFd<'_>> = pressures.iter().map(|pressure| pressure.file.as_fd()).collect();
        let pressed = urgent(&files, self.opens.as_ref().map(Opens::as_fd), time);
        if let Some(opens) = &mut self.opens {
            opens.take();
        }
        pressed
    }

    /// Takes sub-buffers of the rings from one place on, and keeps them.
    fn take(&mut self, first: usize, into: &mut VecDeque<Sub>) {
        let mut take = |place: usize, cpu: u32, page: &[u8]| {
            let Some((head, used)) = ring::used(page) else { return 0 };
            if head.len > 0 || head.missed.is_some() {
                let (time, after_loss) = (head.time, head.missed.is_some());
                into.push_back(Sub { ring: first + place, cpu, time, after_loss, bytes: used.to_vec() });
            }
            head.len
        };
        drain(&mut self.rings[first..], &mut self.page, &mut take);
    }

    /// Requests that have completed since the last call: when, CLOCK_MONOTONIC, and the time since they were issued to
    /// the driver or, where the level has it, to the scheduler, ns. Nothing unless it was started to `watch`.
    pub fn completed(&mut self) -> Vec<(u64, u64)> {
        let Some(room) = self.room else { return Vec::new() };
        // A CPU that is read first may have an issue later than the completion of one that is read last.
        let now = monotonic_ns();
        let mut new = VecDeque::new();
        self.take(self.nr_of_tasks, &mut new);
        let mut decoded = Decoded { records: std::mem::take(&mut self.waiting), ..Decoded::default() };
        for sub in &new {
            decoded.page(&Page { cpu: sub.cpu, bytes: &sub.bytes }, &self.shapes, 0);
        }
        self.kept_bytes += new.iter().map(|sub| sub.bytes.len()).sum::<usize>();
        self.kept.append(&mut new);
        while self.kept_bytes > room
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.bytes.len();
            let next = self.kept.iter().find(|sub| sub.ring == oldest.ring);
            self.floor_ns = self.floor_ns.max(next.map_or(now, |sub| sub.time));
        }
        decoded.records.sort_by_key(|record| record.at);
        let ready = decoded.records.partition_point(|record| record.at.0 < now);
        self.waiting = decoded.records.split_off(ready);
        let mut done = Vec::new();
        for record in decoded.records {
            done.extend(match record.seen {
                Seen::Insert(extent) | Seen::Issue(extent) if extent.bytes > 0 => {
                    self.latencies.begins((extent.dev, extent.sector.0), record.at.0)
                }
                Seen::Complete { extent, .. } if extent.bytes > 0 => {
                    self.latencies.ends((extent.dev, extent.sector.0), record.at.0)
                }
                _ => None,
            });
        }
        self.latencies.forget(now);
        done
    }

    /// How long ago it began, or was cut.
    pub fn since(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.since_ns))
    }

    /// Events in the rings since then, those with them that newer ones overwrote.
    pub fn events(&self) -> u64 {
        self.source.tasks.written() + self.source.devices.written()
    }

    /// The last `keep` of it, or as much of that as the rings hold; it goes on from here.
    ///
    /// # Errors
    /// If a file of tracefs cannot be read or written.
    pub fn cut(&mut self, keep: Duration) -> Result<Captured, CaptureError> {
        // Later events are not all there: one instance is off before the other.
        let end = monotonic_ns();
        self.source.switch(On::Nothing)?;
        let opened = self.opens.as_mut().map_or(Vec::new(), Opens::so_far);
        let mut subs = std::mem::take(&mut self.kept);
        self.kept_bytes = 0;
        self.waiting.clear();
        self.latencies = Latencies::default();
        loop {
            let before = subs.len();
            self.take(0, &mut subs);
            if subs.len() == before {
                break;
            }
        }
        let lost = self.source.tasks.lost(true).events + self.source.devices.lost(true).events;
        let mut begin = self
            .since_ns
            .max(self.floor_ns)
            .max(end.saturating_sub(u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX)));
        for sub in subs.iter().filter(|sub| sub.after_loss) {
            begin = begin.max(sub.time).min(end);
        }
        for instance in [&self.source.tasks, &self.source.devices] {
            instance.empty()?;
        }
        self.source.switch(On::All)?;
        self.since_ns = monotonic_ns();
        Ok(self.decode(subs, [begin, end], lost, opened))
    }

    /// The records of these sub-buffers between two times.
    fn decode(
        &mut self,
        subs: VecDeque<Sub>,
        [begin, end]: [u64; 2],
        lost: u64,
        opened: Vec<opened::Opened>,
    ) -> Captured {
        let own = Own { threads: vec![self.own], children: false };
        let mut decoded = Decoded { own, ..Decoded::default() };
        let mut next = vec![u64::MAX; self.rings.len()];
        let mut wanted = vec![false; subs.len()];
        // One that ends before the beginning, because the next one of its ring does not begin later, is left out.
        for (sub, wanted) in subs.iter().zip(&mut wanted).rev() {
            *wanted = next[sub.ring] > begin;
            next[sub.ring] = sub.time;
        }
        let mut bytes = 0;
        for (sub, _) in subs.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            bytes += sub.bytes.len() as u64;
            decoded.page(&Page { cpu: sub.cpu, bytes: &sub.bytes }, &self.shapes, begin);
        }
        drop(subs);
        decoded.records.retain(|record| record.at.0 <= end - begin);
        decoded.records.sort_by_key(|record| record.at);
        let held = self.held_at(begin, &decoded.records);
        let known = self.source.names();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let wall = now.saturating_sub(monotonic_ns().saturating_sub(begin));
        let mut trace = trace_of(&mut decoded, [begin, wall], &held, opened, &known, &self.missing);
        trace.lost = lost;
        Captured {
            trace,
            level: self.level,
            length: Duration::from_nanos(end - begin),
            cost: Cost { events: decoded.events, bytes, reader_cpu: Duration::ZERO, event_ps: self.event_ps },
            missing: self.missing.clone(),
            monotonic_ns: begin,
            undecoded: decoded.undecoded,
            over_memory: 0,
        }
    }

    /// Descriptors at the beginning of these records, which are in order: those of now that were not opened since, with
    /// their positions then, and those of the last look before the beginning.
    fn held_at(&self, begin: u64, records: &[Record]) -> Vec<OpenDescriptor> {
        if self.level == Level::Light {
            return Vec::new();
        }
        let process = |thread: u32| {
            let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok())
        };
        let threads: BTreeSet<u32> = records.iter().map(|record| record.pid).filter(|pid| *pid != 0).collect();
        let processes: HashMap<u32, u32> =
            threads.iter().map(|thread| (*thread, process(*thread).unwrap_or(*thread))).collect();
        let own = std::process::id();
        let pids: BTreeSet<u32> = processes.values().copied().filter(|pid| *pid != own).collect();
        let moved = moved(records, &processes);
        let mut held: BTreeMap<(u32, i32), OpenDescriptor> = BTreeMap::new();
        let before = self.looks.iter().rev().find(|(at, _)| *at <= begin).or_else(|| self.looks.front());
        for one in before.iter().flat_map(|(_, all)| all) {
            held.insert((one.pid, one.fd), OpenDescriptor { at: begin, ..one.clone() });
        }
        for one in opened::held(&pids.into_iter().collect::<Vec<_>>()) {
            match moved.get(&(one.pid, one.fd)) {
                Some(Moved::Opened) => {}
                Some(Moved::By(bytes)) => {
                    let pos = one.pos.saturating_sub(*bytes);
                    held.insert((one.pid, one.fd), OpenDescriptor { at: begin, pos, ..one });
                }
                None => drop(held.insert((one.pid, one.fd), OpenDescriptor { at: begin, ..one })),
            }
        }
        held.into_values().collect()
    }
}

/// The effect of calls on a descriptor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Moved {
    /// It was opened.
    Opened,
    /// Its position is behind these bytes.
    By(u64),
}

/// The effect of these records' calls on the descriptors of each process.
fn moved(records: &[Record], processes: &HashMap<u32, u32>) -> HashMap<(u32, i32), Moved> {
    let mut all = HashMap::new();
    let mut calling: HashMap<u32, i32> = HashMap::new();
    for record in records {
        let process = processes.get(&record.pid).copied().unwrap_or(record.pid);
        match &record.seen {
            Seen::CallStart { fd, offset, .. } => {
                calling.remove(&record.pid);
                if offset.is_none() {
                    calling.insert(record.pid, *fd);
                }
            }
            Seen::CallEnd { result, .. } => {
                if let (Some(fd), Ok(bytes)) = (calling.remove(&record.pid), u64::try_from(*result)) {
                    let before = all.entry((process, fd)).or_insert(Moved::By(0));
                    if let Moved::By(sum) = before {
                        *sum += bytes;
                    }
                }
            }
            Seen::Other { name, fields } => {
                if let Some(fd) = opened::opens_descriptor(name, fields) {
                    all.insert((process, fd), Moved::Opened);
                }
            }
            _ => {}
        }
    }
    all
}

/// A threshold of pressure (PSI) that the kernel itself watches.
///
/// Known limit of kernels since 6.4: a watch without CAP_SYS_RESOURCE begins with the waits of all the time before, and
/// so is pressed in its first two windows whatever happens. So the waits are looked at, too.
#[derive(Debug)]
pub struct Pressure {
    file: File,
    path: PathBuf,
    who: String,
    stall: Duration,
    window: Duration,
    /// Waits so far, us, at some moments of the last window, CLOCK_MONOTONIC, ns.
    waits: VecDeque<(u64, u64)>,
}

impl Pressure {
    /// Of `cpu`, `io` or `memory`: pressed when `some` or `full` of the tasks have waited for `stall` within `window`
    /// (half a second to ten).
    ///
    /// # Errors
    /// If this kernel has no such file, or refuses the values.
    pub fn watch(of: &str, who: &str, stall: Duration, window: Duration) -> io::Result<Pressure> {
        let path = PathBuf::from("/proc/pressure").join(of);
        let mut file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        file.write_all(format!("{who} {} {}\0", stall.as_micros(), window.as_micros()).as_bytes())?;
        let mut made = Pressure { file, path, who: who.to_owned(), stall, window, waits: VecDeque::new() };
        made.look();
        Ok(made)
    }

    /// Looks at the waits, several times in a window. Whether they have grown by the threshold in the last.
    pub fn look(&mut self) -> bool {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        waits(&text, &self.who).is_some_and(|us| self.grown(monotonic_ns(), us))
    }

    fn grown(&mut self, now: u64, us: u64) -> bool {
        self.waits.push_back((now, us));
        let begin = now.saturating_sub(self.window.as_nanos() as u64);
        // The last one before the window is where it begins.
        while self.waits.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.waits.pop_front();
        }
        let before = self.waits.front().map_or(us, |(_, before)| *before);
        u128::from(us.saturating_sub(before)) >= self.stall.as_micros()
    }
}

/// The waits so far, us, in a file of pressure.
fn waits(text: &str, who: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(who))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// A process that is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Armed {
    pub pid: u32,
    /// When it started, in ticks since the system did.
    start: u64,
    /// In words of its own.
    pub what: String,
    /// Another user's, whom root sees.
    pub of_other: Option<u32>,
}

/// Files that say who is armed are called so, and something behind it.
const ARMED: &str = "armed";

/// Says in the folder of ledgers that this process is armed, until the guard goes.
///
/// # Errors
/// If that cannot be written.
pub fn announce(ledger: &Ledger, what: &str) -> Result<Guard, LedgerError> {
    let path = ledger.scratch_path(ARMED);
    let (mut files, guard) = ledger.create_files(std::slice::from_ref(&path))?;
    let pid = std::process::id();
    let text = format!("{pid} {} {what}\n", ledger::started(pid).unwrap_or(0));
    let written = files.first_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()));
    written.map_err(crate::state::io("write", &path, ""))?;
    Ok(guard)
}

/// The living processes that are armed, by the files in this folder, and for root by those of other users.
pub fn armed(directory: &Path) -> Vec<Armed> {
    let mut all = armed_in(directory, None);
    all.extend(of_others().iter().flat_map(|(directory, owner)| armed_in(directory, Some(*owner))));
    all.sort_by_key(|armed| armed.pid);
    all
}

fn armed_in(directory: &Path, of_other: Option<u32>) -> Vec<Armed> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(ARMED);
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let (pid, rest) = text.trim_end().split_once(' ')?;
        let (start, what) = rest.split_once(' ')?;
        let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
        (ledger::started(pid) == Some(start)).then(|| Armed { pid, start, what: what.to_owned(), of_other })
    };
    entries.filter(ours).filter_map(read).collect()
}

impl Armed {
    /// Asks it to end, and waits until it has; whether it has within `time`.
    ///
    /// # Errors
    /// If this user may not.
    pub fn end(&self, time: Duration) -> io::Result<bool> {
        let number = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        // Its number may go to another process at any time, its descriptor cannot: it is opened before the look.
        let process = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) if ledger::started(self.pid) == Some(self.start) => process,
            Ok(_) | Err(Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        pidfd_send_signal(&process, Signal::TERM)?;
        Ok(readable(&[process.as_fd()], time) == [true])
    }
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::Op;
    use iowhy_stack::units::Nanos;

    use super::*;

    #[test]
    fn pressure_is_what_the_waits_grew_by_in_the_window() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=700\nfull avg10=0.00 total=30\n";
        assert_eq!((waits(text, "some"), waits(text, "full"), waits("", "some")), (Some(700), Some(30), None));
        let mut pressure = Pressure {
            file: File::open("/dev/null").expect("it is there"),
            path: PathBuf::new(),
            who: "some".to_owned(),
            stall: Duration::from_micros(600),
            window: Duration::from_nanos(2000),
            waits: VecDeque::new(),
        };
        // What was before is of no interest, and neither is what is older than the window.
        for (at, us, pressed) in
            [(0, 9000, false), (1000, 9500, false), (2000, 9600, true), (3000, 9650, false), (4000, 10_200, true)]
        {
            assert_eq!(pressure.grown(at, us), pressed, "{at}");
        }
    }

    #[test]
    fn requests_have_their_times_in_whatever_order_the_rings_hand_them_out() {
        // `b`egin and `e`nd of requests by number, with times; the times of those that are over, in this order.
        for (events, expected) in [
            ("b1@10 e1@30", &[20][..]),
            ("b1@10 b1@12 e1@30", &[20]),
            ("e1@30 b1@10 b1@12", &[20]),
            ("e1@30 b1@10 b1@40 e1@90", &[20, 50]),
            ("b1@40 e1@30 b1@10 e1@90", &[20, 50]),
            ("e1@30 b1@40 e1@90 e2@95", &[50]),
            ("b1@10 e2@30 b2@20 e1@40", &[10, 30]),
        ] {
            let mut latencies = Latencies::default();
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let of = |event: &str| {
                let (request, at) = event[1..].split_once('@').expect("a time");
                let (request, at) = ((Dev(1), number(request)), number(at));
                if event.starts_with('b') { latencies.begins(request, at) } else { latencies.ends(request, at) }
            };
            let times: Vec<u64> = events.split(' ').filter_map(of).map(|(_, ns)| ns).collect();
            assert_eq!(times, expected, "{events}");
        }
    }

    #[test]
    fn positions_are_counted_back_by_the_calls_of_all_threads() {
        let at = |pid, seen| Record { at: Nanos(0), cpu: 0, pid, seen };
        let begin = |fd, offset| Seen::CallStart { op: Op::Read, fd, offset, len_bytes: 9 };
        let end = |result| Seen::CallEnd { op: Op::Read, result };
        let open = Seen::Other { name: "syscalls:sys_exit_openat".to_owned(), fields: "ret=7".to_owned() };
        let records = [
            at(1, begin(3, None)),
            at(2, begin(3, None)),
            at(1, end(4096)),
            at(2, end(-5)),
            at(2, begin(3, None)),
            at(2, end(100)),
            at(1, begin(4, Some(8))),
            at(1, end(8)),
            at(1, begin(7, None)),
            at(1, end(50)),
            at(1, open),
            at(1, begin(7, None)),
            at(1, end(60)),
        ];
        let found = moved(&records, &HashMap::from([(1, 1), (2, 1)]));
        assert_eq!(found, HashMap::from([((1, 3), Moved::By(4196)), ((1, 7), Moved::Opened)]));
    }
}
