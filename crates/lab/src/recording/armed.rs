//! A recorder that is always armed: rings in the kernel that go round, and what has to happen for their contents to be
//! kept.
//!
//! ```text
//! armed      nothing is written; ten times a second: the cheap counters of the triggers, processes that are to be
//!            followed
//! triggered  it goes on for the aftermath, then the rings are cut and the recording is handed over
//! after it   the rings begin empty; other triggers than the signal wait until they hold `keep` again
//! ```
//! Known limits: the times of requests are those from the scheduler (with the level `light` from the driver) to the
//! completion; a disk of which some requests complete does not stall.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

use iowhy_live::capture::flight::{Flight, Pressure};
use iowhy_live::capture::{Ask, CaptureError, Captured, monotonic_ns};
use iowhy_live::ledger::Ledger;
use iowhy_live::signal;
use iowhy_stack::trace::{Dev, Record, Seen};
use iowhy_text::quantity;

use super::circumstances::Watch;
use super::targets::{self, Targets};
use super::when::When;
use super::{Named, RecordError, Request, ask, files, of_files};

/// A flight recorder.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Its targets and its level.
    pub request: Request,
    /// How much before a trigger is kept.
    pub keep: Duration,
    /// How much after it.
    pub after: Duration,
    /// Bytes for the rings.
    pub memory: u64,
    pub when: Vec<When>,
    /// It ends after this number of recordings.
    pub most: Option<u32>,
}

/// A recording.
#[derive(Debug)]
pub struct Caught {
    pub captured: Captured,
    /// The trigger, and what it saw.
    pub trigger: String,
    /// The rings held less than was to be kept, because newer events overwrote it.
    pub short: bool,
}

/// How often counters are looked at.
const TICK: Duration = Duration::from_millis(100);
/// The window of pressure: without CAP_SYS_RESOURCE the kernel takes multiples of two seconds only.
const PRESSED: Duration = Duration::from_secs(2);
/// The window of times of requests.
const WINDOW: Duration = Duration::from_secs(1);
/// The longest window of times of requests where there are few, ns.
const LONGEST: u64 = 10_000_000_000;
/// Counters of the machine are kept from this many moments in what a recording keeps.
const MOMENTS: u32 = 8;

/// The triggers, and the state of each.
struct Triggers<'a> {
    when: &'a [When],
    /// Times of requests: when each ended, and its time, ns.
    times: VecDeque<(u64, u64)>,
    stalls: Stalls,
    pressures: Vec<Pressure>,
    /// Which trigger each of them is.
    pressed: Vec<usize>,
}

impl<'a> Triggers<'a> {
    fn new(when: &'a [When], devices: &[Dev]) -> Result<Triggers<'a>, RecordError> {
        let (mut pressures, mut pressed) = (Vec::new(), Vec::new());
        for (nr, when) in when.iter().enumerate() {
            if let When::Pressure { of, who, pct } = when {
                let found = Pressure::watch(of, who, PRESSED.mul_f64(pct / 100.0), PRESSED);
                pressures.push(found.map_err(|error| RecordError::Pressure { when: when.to_string(), error })?);
                pressed.push(nr);
            }
        }
        let stalls = Stalls { devices: devices.to_vec(), ..Stalls::default() };
        Ok(Triggers { when, times: VecDeque::new(), stalls, pressures, pressed })
    }

    /// Looks at the counters; yields the first trigger that has come.
    fn look(&mut self, flight: &mut Flight, members: &BTreeSet<u32>) -> Option<String> {
        self.times.extend(flight.completed());
        for pressure in &mut self.pressures {
            pressure.look();
        }
        let now = monotonic_ns();
        let mut found = None;
        for when in self.when {
            let seen = match when {
                When::Tail { quantile, limit } => tail(&mut self.times, *quantile, now)
                    .filter(|ns| u128::from(*ns) > limit.as_nanos())
                    .map(|ns| format!("it was {}", quantity(ns as f64, "ns", 3))),
                When::Stall(time) => self.stalls.look(now, *time, members),
                When::Pressure { .. } | When::Signal => None,
            };
            found = found.or(seen.map(|seen| format!("{when}: {seen}")));
        }
        found
    }
}

/// The quantile of the times of the last second, or of as many as it needs, in at most ten; nothing without that.
fn tail(times: &mut VecDeque<(u64, u64)>, quantile: f64, now: u64) -> Option<u64> {
    let least = (1.0 / (1.0 - quantile)).round() as usize;
    let aged = |ns: u64| move |(end, _): &&(u64, u64)| end + ns >= now;
    while times.front().is_some_and(|(end, _)| end + LONGEST < now) {
        times.pop_front();
    }
    let recent = times.iter().rev().take_while(aged(WINDOW.as_nanos() as u64)).count();
    let mut last: Vec<u64> = times.iter().rev().take(recent.max(least)).map(|(_, ns)| *ns).collect();
    if last.len() < least {
        return None;
    }
    let place = ((last.len() as f64 * quantile).ceil() as usize).clamp(1, last.len()) - 1;
    Some(*last.select_nth_unstable(place).1)
}

/// Disks and tasks that do not get on, each with the count that stands still and since when, ns.
#[derive(Default)]
struct Stalls {
    /// These disks; all if there is none.
    devices: Vec<Dev>,
    disks: BTreeMap<String, (u64, u64)>,
    tasks: BTreeMap<u32, (u64, u64)>,
}

/// A line of `/proc/diskstats`: the device, its name, completed requests, requests in progress.
fn disk(line: &str) -> Option<(Dev, &str, u64, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |nr: usize| fields.get(nr).and_then(|field| field.parse::<u64>().ok());
    let completed = [3, 7, 14, 18].into_iter().filter_map(number).fold(0, u64::wrapping_add);
    Some((Dev::new(number(0)? as u32, number(1)? as u32), fields.get(2)?, completed, number(11)?))
}

/// Moves a count on; yields how long it has stood still, ns.
fn stood<K: Ord>(known: &mut BTreeMap<K, (u64, u64)>, key: K, count: u64, now: u64) -> u64 {
    let entry = known.entry(key).or_insert((count, now));
    if entry.0 != count {
        *entry = (count, now);
    }
    now.saturating_sub(entry.1)
}

impl Stalls {
    fn look(&mut self, now: u64, time: Duration, members: &BTreeSet<u32>) -> Option<String> {
        let limit = time.as_nanos() as u64;
        let stats = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        let mut found = self.disks(&stats, now, limit);
        let mut waiting = BTreeSet::new();
        for pid in members {
            for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
                let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                    continue;
                };
                if !read("stat").rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D')) {
                    continue;
                }
                let switches = read("status");
                let switches = switches.lines().filter_map(|line| line.split_once("ctxt_switches:"));
                let count = switches.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum();
                waiting.insert(thread);
                let ns = stood(&mut self.tasks, thread, count, now);
                if ns >= limit {
                    found.get_or_insert(format!("task {thread} waits for {}", quantity(ns as f64, "ns", 2)));
                }
            }
        }
        self.tasks.retain(|thread, _| waiting.contains(thread));
        found
    }

    fn disks(&mut self, stats: &str, now: u64, limit: u64) -> Option<String> {
        let mut found = None;
        for (dev, name, completed, busy) in stats.lines().filter_map(disk) {
            if busy == 0 || !self.devices.is_empty() && !self.devices.contains(&dev) {
                self.disks.remove(name);
                continue;
            }
            let ns = stood(&mut self.disks, name.to_owned(), completed, now);
            if ns >= limit {
                let requests = if busy == 1 { "request" } else { "requests" };
                let for_ = quantity(ns as f64, "ns", 2);
                found.get_or_insert(format!("{name} has {busy} {requests} and completes none for {for_}"));
            }
        }
        found
    }
}

/// Counters of the machine at some moments.
struct Moments {
    every: Duration,
    all: VecDeque<(u64, Watch)>,
    last: Instant,
}

impl Moments {
    fn look(&mut self, members: &BTreeSet<u32>) {
        if !self.all.is_empty() && self.last.elapsed() < self.every {
            return;
        }
        let mut watch = Watch::new(members.iter().copied().collect());
        watch.look();
        self.all.push_back((monotonic_ns(), watch));
        while self.all.len() > MOMENTS as usize + 2 {
            self.all.pop_front();
        }
        self.last = Instant::now();
    }

    /// The last one before a time, or the first of all; the others go.
    fn before(&mut self, ns: u64) -> Option<Watch> {
        let place = self.all.iter().rposition(|(at, _)| *at <= ns).unwrap_or(0);
        let found = self.all.drain(..).nth(place);
        found.map(|(_, watch)| watch)
    }
}

/// Arms, and hands over recordings until `caught` says that it is enough, a signal asks for the end, the targets have
/// ended, or it is the last recording; `armed` is called once all is ready. Yields the number of recordings.
///
/// # Errors
/// If something that was named is not there, or the kernel cannot be traced.
pub fn arm(arm: &Arm, armed: &mut dyn FnMut(), caught: &mut dyn FnMut(Caught) -> bool) -> Result<u32, RecordError> {
    let request = &arm.request;
    let (mut ask, named): (Ask, Named) = ask(request)?;
    let targets = Targets::find(request).map_err(RecordError::Targets)?;
    let mut members: BTreeSet<u32> = targets.members(&targets::processes()).into_iter().collect();
    ask.pids = members.iter().copied().collect();
    ask.named = !targets.all.is_empty();
    let mut triggers = Triggers::new(&arm.when, &ask.devices)?;
    let tails = arm.when.iter().any(|when| matches!(when, When::Tail { .. }));
    let _signals = signal::Guard::take();
    let call = signal::Call::take();
    let (ledger, _) = Ledger::open().map_err(CaptureError::from)?;
    let mut flight = Flight::start(&ask, &ledger, arm.memory, tails)?;
    let when: Vec<String> = arm.when.iter().map(When::to_string).collect();
    let _mark = iowhy_live::capture::flight::announce(&ledger, &when.join(", ")).map_err(CaptureError::from)?;
    armed();
    let mut moments = Moments { every: arm.keep / MOMENTS, all: VecDeque::new(), last: Instant::now() };
    let mut number = 0;
    let [mut looked, mut searched, mut ticked] = [Instant::now(); 3];
    let (mut due, mut quiet_until): (Option<(Instant, String)>, Option<Instant>) = (None, None);
    while !signal::raised() {
        moments.look(&members);
        if looked.elapsed() >= arm.keep {
            flight.look();
            looked = Instant::now();
        }
        if ask.named && searched.elapsed() >= TICK {
            let begun = Instant::now();
            let now = targets::processes();
            let new: Vec<u32> = targets.members(&now).into_iter().filter(|pid| members.insert(*pid)).collect();
            flight.follow(&new)?;
            members.retain(|pid| now.iter().any(|it| it.pid == *pid));
            if members.is_empty() && !targets.live(&now) && due.is_none() {
                break;
            }
            searched = begun + targets::pause(begun.elapsed()).saturating_sub(TICK);
        }
        let rest = due.as_ref().map_or(TICK, |(at, _)| at.saturating_duration_since(Instant::now()).min(TICK));
        let pressed = flight.wait(&triggers.pressures, rest);
        let tick = ticked.elapsed() >= TICK;
        let pressed = pressed.filter(|nr| triggers.pressures[*nr].look());
        let pressed = pressed.map(|nr| arm.when[triggers.pressed[nr]].to_string());
        if tick {
            ticked = Instant::now();
        }
        let seen = pressed.or_else(|| tick.then(|| triggers.look(&mut flight, &members)).flatten());
        let seen = seen.filter(|_| quiet_until.is_none_or(|until| Instant::now() >= until));
        let seen = call.came().then(|| When::Signal.to_string()).or(seen);
        if let Some(seen) = seen.filter(|_| due.is_none()) {
            due = Some((Instant::now() + arm.after, seen));
        }
        let Some((_, trigger)) = due.take_if(|(at, _)| *at <= Instant::now()) else { continue };
        let before = flight.since();
        let mut captured = flight.cut(arm.keep + arm.after)?;
        triggers.times.clear();
        let short = captured.length + TICK < (arm.keep + arm.after).min(before);
        let fields = format!("of=recording key=trigger value={trigger}");
        let setting = Seen::Other { name: "iowhy:setting".to_owned(), fields };
        let at = captured.trace.records.last().map_or_else(Default::default, |record| record.at);
        captured.trace.records.push(Record { at, cpu: 0, pid: 0, seen: setting });
        if let Some(mut watch) = moments.before(captured.monotonic_ns) {
            watch.write(&mut captured, &[], None);
        }
        named.write(&mut captured);
        files::write(&mut captured);
        if !request.files.is_empty() {
            of_files(&mut captured.trace, &named);
        }
        number += 1;
        quiet_until = Some(Instant::now() + arm.keep);
        if !caught(Caught { captured, trigger, short }) || arm.most.is_some_and(|most| number >= most) {
            break;
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_of_the_last_second_or_of_as_many_as_it_needs() {
        const S: u64 = 1_000_000_000;
        let now = 1000 * S;
        for (times, quantile, expected) in [
            // 200 in the last second, of which the slowest three are slow.
            ((0..200).map(|nr| (now - nr, if nr < 3 { 50 } else { 7 })).collect::<Vec<_>>(), 0.99, Some(50)),
            ((0..200).map(|nr| (now - nr, if nr < 2 { 50 } else { 7 })).collect(), 0.99, Some(7)),
            // Few a second: the last 100 are enough, those of ten seconds ago do not count.
            ((0..100).map(|nr| (now - nr * S / 20, if nr == 99 { 50 } else { 7 })).collect(), 0.99, Some(7)),
            ((0..100).map(|nr| (now - nr * S / 20, if nr > 97 { 50 } else { 7 })).collect(), 0.99, Some(50)),
            ((0..99).map(|nr| (now - nr * S / 20, 50)).collect(), 0.99, None),
            ((0..200).map(|nr| (now - nr * S, 50)).collect(), 0.99, None),
            (vec![(now, 9), (now - 1, 5)], 0.5, Some(5)),
            (vec![], 0.5, None),
        ] {
            let mut times: VecDeque<(u64, u64)> = times.into_iter().rev().collect();
            let what = times.len();
            assert_eq!(tail(&mut times, quantile, now), expected, "{what} {quantile}");
        }
    }

    #[test]
    fn a_disk_stalls_if_it_has_requests_and_completes_none() {
        let stats = |completed: u64, busy: u64| {
            format!("   8  0 sda {completed} 0 8 1 0 0 0 0 {busy} 5 6 0 0 0 0 0 0\n   8 16 sdb 5 0 8 1 0 0 0 0 0 5 6\n")
        };
        let mut stalls = Stalls::default();
        for (at, completed, busy, stalled) in [
            (0, 7, 2, false),
            (90, 7, 2, false),
            (100, 7, 2, true),
            (110, 8, 2, false),
            (150, 8, 0, false),
            (210, 8, 1, false),
            (309, 8, 1, false),
            (310, 8, 1, true),
        ] {
            let found = stalls.disks(&stats(completed, busy), at, 100);
            assert_eq!(found.is_some(), stalled, "{at}: {found:?}");
            assert!(found.is_none_or(|text| text.starts_with("sda has ")));
        }
        let mut other = Stalls { devices: vec![Dev::new(8, 16)], ..Stalls::default() };
        assert!([0, 200].iter().all(|at| other.disks(&stats(1, 1), *at, 100).is_none()));
        assert_eq!(disk("nonsense"), None);
    }
}
