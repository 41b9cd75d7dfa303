//! A recorded trace as a job: its calls (or its bios) made again.
//!
//! ```text
//! calls    a trace with system calls: a thread for each that made some, its calls in their order, on files as large as
//!          the highest byte; past the page cache if its reads and writes went to the device themselves
//! bios     a trace without: a thread for each that queued some, direct I/O on the bare device (on the running kernel
//!          on a file), with as many in flight as it had
//! closed   each call when the one before has ended, after the pause there was between the two
//! open     each call at its time in the trace, or as soon as the thread is free after that
//! ```
//! The idea is that of fio's `read_iolog` with and without `replay_no_stall`, and of `btreplay`. Known limits: calls
//! without file or offset in the trace are left out, and so are those that failed, that read nothing at the end of
//! a file, discards and flushes; each is reported, with the reason. A closed replay of bios keeps the depth, not which
//! one of them another waited for. The contents of the page cache are unknown: the replay begins with a cold one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use iowhy_stack::event::Op;
use iowhy_stack::job::{Engine, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::trace::{Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES, Sector};
use iowhy_stack::workload::{Call, Mix, Scripted, Stream, Target};

mod public;

use super::Shape;
use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_trace as trace;
use iowhy_trace::Format;
use iowhy_trace::join::{CallRecord, Joined, NoFile, Who, join};

/// How times of a trace are kept.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The next call when the last has ended, and the pause between them is over.
    #[default]
    Closed,
    /// At the recorded times.
    Open,
}

impl Mode {
    pub fn parse(word: &str) -> Option<Mode> {
        match word {
            "closed" => Some(Mode::Closed),
            "open" => Some(Mode::Open),
            _ => None,
        }
    }
}

/// How a trace is replayed.
#[derive(Copy, Clone, Debug)]
pub struct Replay {
    pub mode: Mode,
    /// Times are divided by this, millionths.
    pub speed: u64,
    /// Its form; by its contents otherwise.
    pub form: Option<&'static Format>,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay { mode: Mode::default(), speed: Replay::ONE, form: None }
    }
}

impl Replay {
    /// Times as they are.
    pub(crate) const ONE: u64 = 1_000_000;

    /// A time of the trace in the replay.
    fn scaled(self, time: Nanos) -> Nanos {
        match self.speed {
            Replay::ONE => time,
            speed => {
                let time = u128::from(time.0) * u128::from(Replay::ONE) / u128::from(speed.max(1));
                Nanos(u64::try_from(time).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Where a trace is replayed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplaySite {
    /// On a simulated disk of this number of bytes.
    Simulated(u64),
    /// On files of the running kernel.
    Live,
}

/// Whether these words name one file that a trace is in.
pub(crate) fn is_trace(words: &[String]) -> bool {
    let [name] = words else { return false };
    let path = Path::new(name);
    let mut bytes = Vec::new();
    let read = |path: &Path, bytes: &mut Vec<u8>| {
        use std::io::Read;
        std::fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(bytes)).is_ok()
    };
    if path.is_file() {
        return read(path, &mut bytes) && trace::detect(name, &bytes).is_some();
    }
    let first = format!("{name}.blktrace.0");
    !path.exists() && read(Path::new(&first), &mut bytes) && trace::detect(&first, &bytes).is_some()
}

/// The job that a file with a trace is.
pub(crate) fn build(name: &str, how: Replay, ground: ReplaySite, problems: &mut Problems) -> Option<(Job, Shape)> {
    if let Some(source) = trace::format::public_of(Path::new(name), how.form) {
        let found = public::found(name, source, how, ground, problems)?;
        return job_of_found(found, name, ground, problems);
    }
    let mut trace = trace::format::load_as(Path::new(name), how.form, problems)?;
    if how.speed != Replay::ONE {
        trace.records.iter_mut().for_each(|record| record.at = how.scaled(record.at));
    }
    job_of(&trace, name, how.mode, ground, problems)
}

/// The job that a trace is. `name` is what problems call it.
pub(crate) fn job_of(
    trace: &Trace,
    name: &str,
    mode: Mode,
    ground: ReplaySite,
    problems: &mut Problems,
) -> Option<(Job, Shape)> {
    if trace.lost > 0 {
        let text = format!("{name}: the kernel lost {} events of this trace: calls may be missing", trace.lost);
        problems.push(Problem::warning(text));
    }
    let has_calls = trace.records.iter().any(|record| matches!(record.seen, Seen::CallStart { .. }));
    let found = if has_calls { of_calls(trace, mode) } else { of_bios(trace, mode, ground, &|_| true) };
    job_of_found(found, name, ground, problems)
}

/// The job that the contents of a trace are.
fn job_of_found(mut found: Found, name: &str, ground: ReplaySite, problems: &mut Problems) -> Option<(Job, Shape)> {
    for (nr, what) in &found.left_out {
        problems.push(Problem::warning(format!("{name}: {nr} {what} are left out")));
    }
    found.threads.retain(|thread| !thread.steps.is_empty());
    if found.threads.is_empty() {
        let help = "a trace with system calls, or with queued bios [Q]";
        problems
            .push(Problem::error(format!("{name}: there is nothing in it to replay")).at(Span::whole(name)).help(help));
        return None;
    }
    for file in &mut found.files {
        file.bytes = file.bytes.max(1).next_multiple_of(PAGE_BYTES);
        if let (ReplaySite::Simulated(bytes), Place::Device { start }) = (ground, file.place)
            && file.bytes.saturating_add(start.0 * SECTOR_BYTES) > bytes
        {
            let text = format!("{name}: it goes up to byte {}, and the disk has {bytes}", file.bytes);
            problems.push(Problem::error(text).at(Span::whole(name)).help("--disk with a larger device"));
            return None;
        }
    }
    let lines: Vec<String> = found.threads.iter().map(|thread| thread.name.clone()).collect();
    let mut threads = Vec::new();
    for (nr, thread) in (0..).zip(found.threads) {
        let mut used: Vec<u32> = thread.steps.iter().map(|step| step.call.file).collect();
        used.sort_unstable();
        used.dedup();
        let target = |file: u32| Target { file, start: 0, len_bytes: found.files[file as usize].bytes };
        let targets = used.into_iter().map(target).collect();
        let stream = Stream { script: Some(Arc::from(thread.steps)), ..Stream::sequential(Mix::Read, targets, 4096) };
        let spec = ThreadSpec {
            job: nr,
            descriptors: nr,
            direct: thread.direct,
            engine: thread.engine,
            // The pauses are those of the recorded program, whose own work is in them.
            tool: Some(Nanos::ZERO),
            ..ThreadSpec::new(nr)
        };
        threads.push(ThreadJob { spec, stream });
    }
    let mut shape = Shape::of(lines);
    shape.files = found.names;
    Some((Job::new(Workload::Threads { files: found.files, threads }, 1), shape))
}

/// A thread that is made again.
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) steps: Vec<Scripted>,
    direct: bool,
    pub(crate) engine: Engine,
}

/// The contents of a trace.
pub(crate) struct Found {
    pub(crate) files: Vec<FileSpec>,
    names: Vec<String>,
    pub(crate) threads: Vec<Thread>,
    left_out: Vec<(u64, &'static str)>,
}

/// Why a call is not made again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    NoData,
    Untold,
    Unseen,
    NoOffset,
    Failed,
    Empty,
    Buffered,
}

impl LeftOut {
    const ALL: [(LeftOut, &'static str); 7] = [
        (LeftOut::NoData, "calls on pipes, terminals and devices without data"),
        (
            LeftOut::Untold,
            "calls without a file in the trace (their descriptors were opened in it, but not on which file)",
        ),
        (
            LeftOut::Unseen,
            "calls without a file in the trace (the open of their descriptors is not in it; maybe pipes)",
        ),
        (LeftOut::NoOffset, "calls of which the trace tells no offset"),
        (LeftOut::Failed, "calls that failed"),
        (LeftOut::Empty, "calls that moved no bytes"),
        (LeftOut::Buffered, "calls through the page cache of threads that go past it"),
    ];
}

/// The call that a recorded one is, on a file by its number in the join.
pub(crate) fn again(joined: &Joined, call: &CallRecord) -> Result<Call, LeftOut> {
    let data = matches!(call.op, Op::Read | Op::Write);
    let (file, offset) = match (call.file, call.offset) {
        (Some(file), Some(offset)) => (file, offset),
        (Some(file), None) if !data => (file, 0),
        (Some(_), None) => return Err(LeftOut::NoOffset),
        (None, _) => {
            return Err(match joined.no_file.get(&call.call) {
                Some(NoFile::NoData) => LeftOut::NoData,
                Some(NoFile::Untold) => LeftOut::Untold,
                Some(NoFile::Unseen) | None => LeftOut::Unseen,
            });
        }
    };
    let len = match call.result {
        Some(..0) => return Err(LeftOut::Failed),
        // Bytes behind the end of the file were not read.
        // A vectored call has its length in memory that no trace shows.
        Some(result) if data && call.len == 0 => result as u64,
        Some(result) if data => call.len.min(result as u64),
        _ if data => call.len,
        _ => 0,
    };
    if data && len == 0 {
        return Err(LeftOut::Empty);
    }
    let len_bytes = u32::try_from(len).unwrap_or(u32::MAX);
    let offset = if data { offset } else { 0 };
    Ok(Call { op: call.op, file, offset, len_bytes, then: None, counted: true, how: None })
}

fn name_of(trace: &Trace, pid: u32) -> String {
    trace.name(pid).map_or_else(|| format!("pid {pid}"), |name| format!("{name}-{pid}"))
}

/// When a call begins.
fn timed(mode: Mode, at: Nanos, ready: Nanos, call: Call) -> Scripted {
    match mode {
        // Zero would be as soon as possible.
        Mode::Open => Scripted { at: at.max(Nanos(1)), ..Scripted::new(call) },
        Mode::Closed => Scripted { pause: at.saturating_sub(ready), ..Scripted::new(call) },
    }
}

/// The system calls of a trace.
fn of_calls(trace: &Trace, mode: Mode) -> Found {
    let joined = join(trace, &Who::default());
    let first = joined.calls.first().map_or(Nanos::ZERO, |call| call.start);
    let mut files = vec![FileSpec { bytes: 0, place: Place::FileSystem }; joined.files.len()];
    let mut threads: BTreeMap<u32, (Vec<Scripted>, Nanos)> = BTreeMap::new();
    let mut left_out = LeftOut::ALL.map(|(why, text)| (why, 0_u64, text));
    let mut leave = |why: LeftOut| left_out.iter_mut().filter(|of| of.0 == why).for_each(|of| of.1 += 1);
    let direct = direct_threads(&joined);
    let mut used = vec![false; files.len()];
    for call in &joined.calls {
        let again = match again(&joined, call) {
            Ok(again) => again,
            Err(why) => {
                leave(why);
                continue;
            }
        };
        // For example those of the dynamic linker: past the page cache they would fail.
        let end = again.offset.saturating_add(u64::from(again.len_bytes));
        if direct.contains(&call.pid) && !(again.offset | end).is_multiple_of(SECTOR_BYTES) {
            leave(LeftOut::Buffered);
            continue;
        }
        let bytes = &mut files[again.file as usize].bytes;
        *bytes = (*bytes).max(end);
        used[again.file as usize] = true;
        let (steps, ready) = threads.entry(call.pid).or_insert((Vec::new(), first));
        steps.push(timed(mode, call.start.saturating_sub(first), ready.saturating_sub(first), again));
        *ready = call.end.unwrap_or(call.start);
    }
    let moved = Moved::of(&used);
    let name = |number: usize| {
        let known = trace.paths.iter().find(|(file, _)| *file == joined.files[number]);
        // Only the last part of a path: the replay has a directory of its own.
        let last = known.and_then(|(_, path)| path.rsplit('/').find(|part| !part.is_empty()));
        let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let text: String = last.unwrap_or("file").chars().map(plain).collect();
        format!("replay.{number}.{text}")
    };
    Found {
        names: moved.kept.iter().map(|number| name(*number)).collect(),
        files: moved.kept.iter().map(|number| files[*number]).collect(),
        threads: threads
            .into_iter()
            .map(|(pid, (mut steps, _))| {
                steps.iter_mut().for_each(|step| step.call.file = moved.numbers[step.call.file as usize]);
                Thread { name: name_of(trace, pid), steps, direct: direct.contains(&pid), engine: Engine::Sync }
            })
            .collect(),
        left_out: left_out.iter().filter(|(_, nr, _)| *nr > 0).map(|(_, nr, text)| (*nr, *text)).collect(),
    }
}

/// Files that are used get new numbers, without gaps.
struct Moved {
    kept: Vec<usize>,
    numbers: Vec<u32>,
}

impl Moved {
    fn of(used: &[bool]) -> Moved {
        let kept: Vec<usize> = (0..used.len()).filter(|number| used[*number]).collect();
        let mut numbers = vec![0; used.len()];
        for (new, old) in (0..).zip(&kept) {
            numbers[*old] = new;
        }
        Moved { kept, numbers }
    }
}

/// Whether a call went past the page cache: it has bios for data without pages, and adds none.
pub(crate) fn bare(joined: &Joined, call: &CallRecord) -> bool {
    call.pages_added == 0
        && call.bios.iter().any(|bio| {
            let bio = &joined.bios[*bio as usize];
            let bits = if call.op == Op::Write { Rwbs::WRITE } else { Rwbs::READ };
            bio.pages.is_empty()
                && bio.extent.rwbs.has(bits)
                && !bio.extent.rwbs.has(Rwbs::META)
                && bio.extent.bytes > 0
        })
}

/// The threads that go past the page cache: more than half the bytes of their calls on files are those of such calls.
fn direct_threads(joined: &Joined) -> BTreeSet<u32> {
    let mut bytes: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for call in joined.calls.iter().filter(|call| matches!(call.op, Op::Read | Op::Write) && call.file.is_some()) {
        bytes.entry(call.pid).or_default()[usize::from(bare(joined, call))] += call.moved();
    }
    bytes.into_iter().filter(|(_, [cached, bare])| bare > cached).map(|(pid, _)| pid).collect()
}

/// The bios of a trace that `keep` picks.
pub(crate) fn of_bios(trace: &Trace, mode: Mode, ground: ReplaySite, keep: &dyn Fn(&Record) -> bool) -> Found {
    struct Task {
        steps: Vec<Scripted>,
        ready: Nanos,
        in_flight: u32,
        depth: u32,
    }
    let first = trace.records.iter().find(|record| matches!(record.seen, Seen::Queue(_)) && keep(record));
    let first = first.map_or(Nanos::ZERO, |record| record.at);
    let mut devices: Vec<(iowhy_stack::trace::Dev, u64)> = Vec::new();
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    // Ends of bios that are on their way, by the device's sectors.
    let mut open: HashMap<(u32, u64), Vec<(u32, u64)>> = HashMap::new();
    let mut others = 0;
    for record in &trace.records {
        match &record.seen {
            Seen::Queue(extent) if keep(record) => {
                let op = match (extent.rwbs.has(Rwbs::WRITE), extent.rwbs.has(Rwbs::READ)) {
                    _ if extent.bytes == 0 || extent.rwbs.has(Rwbs::DISCARD) => None,
                    (true, _) => Some(Op::Write),
                    (false, true) => Some(Op::Read),
                    (false, false) => None,
                };
                let Some(op) = op else {
                    others += 1;
                    continue;
                };
                let file = devices.iter().position(|(dev, _)| *dev == extent.dev).unwrap_or_else(|| {
                    devices.push((extent.dev, 0));
                    devices.len() - 1
                });
                let offset = extent.sector.0.saturating_mul(SECTOR_BYTES);
                let bytes = &mut devices[file].1;
                *bytes = (*bytes).max(offset.saturating_add(u64::from(extent.bytes)));
                let call = Call {
                    op,
                    file: file as u32,
                    offset,
                    len_bytes: extent.bytes,
                    then: None,
                    counted: true,
                    how: None,
                };
                let task =
                    tasks.entry(record.pid).or_insert(Task { steps: Vec::new(), ready: first, in_flight: 0, depth: 1 });
                // While others are in flight nobody knows whether the task has waited or thought.
                let ready = if task.in_flight == 0 { task.ready } else { record.at };
                task.steps.push(timed(mode, record.at.saturating_sub(first), ready.saturating_sub(first), call));
                task.in_flight += 1;
                task.depth = task.depth.max(task.in_flight);
                let end = extent.sector.0 + u64::from(extent.bytes) / SECTOR_BYTES;
                open.entry((extent.dev.major(), extent.sector.0)).or_default().push((record.pid, end));
            }
            Seen::Complete { extent, .. } => {
                // All bios of the request's sectors, one behind the other.
                let mut sector = extent.sector.0;
                let end = sector + u64::from(extent.bytes) / SECTOR_BYTES;
                while sector < end
                    && let Some(list) = open.get_mut(&(extent.dev.major(), sector))
                    && let Some((pid, next)) = list.pop()
                {
                    sector = next.max(sector + 1);
                    if let Some(task) = tasks.get_mut(&pid) {
                        task.in_flight = task.in_flight.saturating_sub(1);
                        task.ready = record.at;
                    }
                }
            }
            _ => {}
        }
    }
    let place = match ground {
        ReplaySite::Simulated(_) => Place::Device { start: Sector(0) },
        ReplaySite::Live => Place::FileSystem,
    };
    let engine = |depth: u32| match depth {
        1 => Engine::Sync,
        depth => Engine::Aio { depth, batch_submit: 1, batch_complete: 1 },
    };
    Found {
        names: devices.iter().map(|(dev, _)| format!("replay.{}-{}", dev.major(), dev.minor())).collect(),
        files: devices.iter().map(|(_, bytes)| FileSpec { bytes: *bytes, place }).collect(),
        threads: tasks
            .into_iter()
            .map(|(pid, task)| Thread {
                name: name_of(trace, pid),
                steps: task.steps,
                direct: true,
                engine: engine(task.depth),
            })
            .collect(),
        left_out: if others > 0 {
            vec![(others, "bios that neither read nor write (flushes, discards)")]
        } else {
            vec![]
        },
    }
}

#[cfg(test)]
mod tests;
