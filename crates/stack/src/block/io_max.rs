//! Limits of a control group (blk-throttle: `io.max`, `blkio.throttle`): bios wait until their slice has room for them.
//!
//! ```text
//! slice    a tenth of a second. It begins with a bio that comes when none waits and the last slice is over, and grows
//!          in whole slices of the machine's clock while bios are held back
//! allowed  bytes: the rate times the slice's time, in whole slices; bios: the same, one tick more of time
//! passes   a bio whose bytes, and which itself, are allowed and before which none waits in its direction
//! waits    until what is missing has come in at the rate, and until the end of this slice; at least a tick, and from
//!          6.12 on for the time of a bio. A timer sets out when the first bio of a direction is held back; it looks
//!          again after 8 slices at most, and lets go 6 reads and 2 writes in turn. Reads are then issued before writes
//! trim     after a bio has passed, the whole slices that are gone are taken off with what they allowed; from 7.2 on
//!          one slice is kept, and nothing is taken off before two are gone
//! 7.2      bytes and bios are asked one after the other: a bio whose bytes are allowed is charged for them and waits
//!          for its turn among bios only
//! ```
//! Source: Linux 5.10, 6.1, 6.12 and 7.2, `block/blk-throttle.c` (`tg_may_dispatch`, `tg_dispatch_time`,
//! `throtl_trim_slice`, `throtl_dispatch_tg`). Known deviations: one group without a parent; limits do not change while
//! it is in use; what a bio is cut into afterwards is not counted again; bios that all others would wait for pass like
//! any other (6.12). The simulator counts each part of a bio, and its submitter sleeps until the part may pass.

use std::collections::VecDeque;

use crate::event::Dir;
use crate::job::Throttle;
use crate::units::{Hz, Jiffies, Nanos};

/// Whose slices they are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2.6.37 to 5.19, as 5.10 has them.
    V5_10,
    /// 6.0 to 6.11, as 6.1 has them.
    V6_1,
    V6_12,
    /// As 7.2 has them; 6.18 was not read.
    V7_2,
}

/// Every version, by its number in the option `io_max`.
pub const VERSIONS: [Version; 4] = [Version::V5_10, Version::V6_1, Version::V6_12, Version::V7_2];

/// Reads and writes that are let go in turn (`THROTL_GRP_QUANTUM`).
const QUANTUM: [u32; 2] = [6, 2];
/// Slices after which the timer looks again.
const LONGEST_SLICES: u64 = 8;
/// Seconds that the machine has been up before.
const UPTIME_S: u64 = 1000;

/// A bio that waits, by its submitter's number.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    bio: u32,
    bytes: u64,
    /// Its bytes are counted already.
    charged: bool,
    /// It came into the line of those whose bytes were not (7.2).
    for_bytes: bool,
}

/// Reads or writes.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Bytes and bios a second; none: no limit.
    bytes_limit: Option<u64>,
    bios_limit: Option<u64>,
    start: u64,
    end: u64,
    bytes: i64,
    bios: i64,
    line: VecDeque<Waiting>,
}

/// A group's limits.
#[derive(Clone, Debug)]
pub struct IoMax {
    version: Version,
    hz: Hz,
    /// A slice in ticks.
    slice: u64,
    ways: [Way; 2],
    /// When the first bio may go: what the timer waits for, and when it fires.
    due: Option<u64>,
    timer: Option<u64>,
}

impl IoMax {
    pub fn new(version: Version, limits: &Throttle, hz: Hz) -> IoMax {
        let limit = |rate: u64| (rate > 0).then_some(rate);
        let way = |kind: usize| Way {
            bytes_limit: limit(limits.bytes[kind]),
            bios_limit: limit(limits.bios[kind]),
            ..Way::default()
        };
        let slice = u64::from(hz.0) / 10;
        IoMax { version, hz, slice, ways: [way(0), way(1)], due: None, timer: None }
    }

    /// Ticks of a machine that has been up for long.
    fn tick(&self, now: Nanos) -> u64 {
        self.hz.at(now).0 + UPTIME_S * u64::from(self.hz.0)
    }

    /// Whether a bio passes; else it has joined the line.
    pub fn submit(&mut self, now: Nanos, dir: Dir, bytes: u64, bio: u32) -> bool {
        let (tick, kind) = (self.tick(now), dir as usize);
        let way = &self.ways[kind];
        if way.bytes_limit.is_none() && way.bios_limit.is_none() {
            return true;
        }
        let mut new = Waiting { bio, bytes, charged: false, for_bytes: false };
        let first = way.line.is_empty();
        if !first {
            if self.version == Version::V7_2 && !way.line.iter().any(|waiting| waiting.for_bytes) {
                new.charged = self.bytes_pass(kind, &mut new, tick);
            }
        } else if self.wait(kind, &mut new, tick) == 0 {
            self.pass(kind, &new, tick);
            return true;
        }
        new.for_bytes = !new.charged;
        self.ways[kind].line.push_back(new);
        if first {
            self.set_due(tick);
            self.set_timer(tick);
        }
        false
    }

    /// When the limits have to be asked again.
    pub fn timer(&self) -> Option<Nanos> {
        self.timer.map(|tick| self.hz.start(Jiffies(tick - UPTIME_S * u64::from(self.hz.0))))
    }

    /// The bios that may go by now, if the timer's time has come.
    pub fn fire(&mut self, now: Nanos) -> Vec<u32> {
        let tick = self.tick(now);
        let mut gone = [Vec::new(), Vec::new()];
        if self.timer.is_none_or(|at| at > tick) {
            return Vec::new();
        }
        self.timer = None;
        while self.due.is_some_and(|due| due <= tick) {
            for kind in [0, 1] {
                let mut left = QUANTUM[kind];
                while left > 0 && self.head_wait(kind, tick) == Some(0) {
                    let Some(head) = self.ways[kind].line.pop_front() else { break };
                    self.pass(kind, &head, tick);
                    gone[kind].push(head.bio);
                    left -= 1;
                }
            }
            self.set_due(tick);
        }
        if self.due.is_some() {
            self.set_timer(tick);
        }
        gone.concat()
    }

    /// When the first of those that wait may go.
    fn set_due(&mut self, tick: u64) {
        let waits = [self.head_wait(0, tick), self.head_wait(1, tick)];
        self.due = waits.into_iter().flatten().min().map(|wait| tick + wait);
    }

    fn set_timer(&mut self, tick: u64) {
        let latest = tick + LONGEST_SLICES * self.slice;
        self.timer = self.due.map(|due| due.min(latest).max(tick + 1));
    }

    /// Ticks until the first in line may go.
    fn head_wait(&mut self, kind: usize, tick: u64) -> Option<u64> {
        let mut head = *self.ways[kind].line.front()?;
        let wait = self.wait(kind, &mut head, tick);
        self.ways[kind].line[0] = head;
        Some(wait)
    }

    /// Ticks until a bio may go (`tg_may_dispatch`, `tg_dispatch_time`).
    fn wait(&mut self, kind: usize, bio: &mut Waiting, tick: u64) -> u64 {
        if self.version == Version::V7_2 {
            if !self.bytes_pass(kind, bio, tick) {
                return self.bytes_wait(kind, bio, tick);
            }
            return self.bios_turn(kind, tick);
        }
        self.renew(kind, tick);
        let bytes = self.bytes_wait(kind, bio, tick);
        // Until 6.1 nobody asks for the second limit if the first is reached.
        let bios = if bytes > 0 && self.version < Version::V6_12 { 0 } else { self.bios_wait(kind, tick) };
        let wait = bytes.max(bios);
        self.extend(kind, tick + wait);
        wait
    }

    /// Whether a bio's bytes are allowed, which are counted then (7.2).
    fn bytes_pass(&mut self, kind: usize, bio: &mut Waiting, tick: u64) -> bool {
        if !bio.charged && self.ways[kind].bytes_limit.is_some() {
            self.renew(kind, tick);
            let wait = self.bytes_wait(kind, bio, tick);
            self.extend(kind, tick + wait);
            if wait > 0 {
                return false;
            }
        }
        if !bio.charged {
            bio.charged = true;
            self.ways[kind].bytes += bio.bytes as i64;
        }
        true
    }

    /// Ticks until one more bio is allowed (7.2).
    fn bios_turn(&mut self, kind: usize, tick: u64) -> u64 {
        if self.ways[kind].bios_limit.is_none() {
            return 0;
        }
        self.renew(kind, tick);
        let wait = self.bios_wait(kind, tick);
        self.extend(kind, tick + wait);
        wait
    }

    fn is_used(&self, kind: usize, tick: u64) -> bool {
        !(self.ways[kind].start..=self.ways[kind].end).contains(&tick)
    }

    /// A new slice, or a longer one.
    fn renew(&mut self, kind: usize, tick: u64) {
        if self.is_used(kind, tick) && self.ways[kind].line.is_empty() {
            let way = &mut self.ways[kind];
            (way.start, way.end, way.bytes, way.bios) = (tick, tick + self.slice, 0, 0);
        } else {
            self.extend(kind, tick + self.slice);
        }
    }

    fn extend(&mut self, kind: usize, until: u64) {
        if self.ways[kind].end < until {
            self.ways[kind].end = until.next_multiple_of(self.slice);
        }
    }

    /// Bytes at this rate in a time.
    fn bytes_in(&self, rate: u64, ticks: u64) -> i64 {
        (u128::from(rate) * u128::from(ticks) / u128::from(self.hz.0)) as i64
    }

    fn bios_in(&self, rate: u64, ticks: u64) -> i64 {
        (rate * ticks / u64::from(self.hz.0)) as i64
    }

    /// Ticks until a bio's bytes are allowed.
    fn bytes_wait(&self, kind: usize, bio: &Waiting, tick: u64) -> u64 {
        let way = &self.ways[kind];
        let Some(rate) = way.bytes_limit else { return 0 };
        let elapsed = tick - way.start;
        let whole = elapsed.max(1).next_multiple_of(self.slice);
        let missing = way.bytes + bio.bytes as i64 - self.bytes_in(rate, whole);
        if missing <= 0 {
            return 0;
        }
        let ticks = missing as u64 * u64::from(self.hz.0) / rate;
        ticks.max(1) + (whole - elapsed)
    }

    /// Ticks until one more bio is allowed.
    fn bios_wait(&self, kind: usize, tick: u64) -> u64 {
        let way = &self.ways[kind];
        let Some(rate) = way.bios_limit else { return 0 };
        let elapsed = tick - way.start;
        let whole = (elapsed + 1).next_multiple_of(self.slice);
        if way.bios < self.bios_in(rate, whole) {
            return 0;
        }
        let of_one = if self.version < Version::V6_12 { 0 } else { u64::from(self.hz.0) / rate + 1 };
        (whole - elapsed).max(of_one)
    }

    /// A bio goes: it is counted, and what is over of its slice is taken off.
    fn pass(&mut self, kind: usize, bio: &Waiting, tick: u64) {
        let way = &mut self.ways[kind];
        if !bio.charged {
            way.bytes += bio.bytes as i64;
        }
        way.bios += 1;
        if self.is_used(kind, tick) {
            return;
        }
        self.ways[kind].end = (tick + self.slice).next_multiple_of(self.slice);
        let elapsed = (tick - self.ways[kind].start) / self.slice * self.slice;
        if self.version == Version::V7_2 { self.trim(kind, elapsed) } else { self.trim_early(kind, elapsed) }
    }

    /// Takes whole slices off, but for one.
    fn trim(&mut self, kind: usize, elapsed: u64) {
        if elapsed < 2 * self.slice {
            return;
        }
        let elapsed = elapsed - self.slice;
        let way = &self.ways[kind];
        let of = |rate: Option<u64>, used: i64, allowed: &dyn Fn(u64) -> i64| match rate.map(allowed) {
            None => 0,
            Some(allowed) if allowed <= 0 || used < allowed => used,
            Some(allowed) => allowed,
        };
        let bytes = of(way.bytes_limit, way.bytes, &|rate| self.bytes_in(rate, elapsed));
        let bios = of(way.bios_limit, way.bios, &|rate| self.bios_in(rate, elapsed));
        if bytes != 0 || bios != 0 {
            let way = &mut self.ways[kind];
            way.bytes -= bytes;
            way.bios -= bios;
            way.start += elapsed;
        }
    }

    /// Takes whole slices off. Without a limit much was allowed, unless the number overflows (6.0 and later).
    fn trim_early(&mut self, kind: usize, elapsed: u64) {
        if elapsed == 0 {
            return;
        }
        let way = &self.ways[kind];
        let overflows = self.version > Version::V5_10;
        let bytes = match way.bytes_limit {
            Some(rate) => self.bytes_in(rate, elapsed),
            None if overflows && elapsed.ilog2() > u64::from(self.hz.0).ilog2() - 1 => -1,
            None => i64::MAX,
        };
        let bios = match way.bios_limit {
            Some(rate) => self.bios_in(rate, elapsed),
            None if overflows && elapsed * u64::from(u32::MAX) / u64::from(self.hz.0) > i32::MAX as u64 => -1,
            None => i64::MAX,
        };
        if bytes <= 0 && bios <= 0 {
            return;
        }
        let way = &mut self.ways[kind];
        way.bytes = if way.bytes >= bytes { way.bytes - bytes } else { 0 };
        way.bios = if way.bios >= bios { way.bios - bios } else { 0 };
        way.start += elapsed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds at which `nr` bios of `size` bytes go that come at once.
    fn times(version: Version, bytes: u64, bios: u64, (nr, size): (u32, u64)) -> Vec<u64> {
        let limits = Throttle { bytes: [bytes, 0], bios: [bios, 0] };
        let mut limits = IoMax::new(version, &limits, Hz(250));
        let mut times: Vec<u64> =
            (0..nr).filter(|bio| limits.submit(Nanos::ZERO, Dir::Read, size, *bio)).map(|_| 0).collect();
        while let Some(at) = limits.timer() {
            times.extend(limits.fire(at).iter().map(|_| at.0 / 1_000_000));
        }
        times
    }

    #[test]
    fn bios_go_as_the_rate_has_it() {
        for version in VERSIONS {
            // 1 MB/s: 100 kB in a slice; what is missing takes its time, and the rest of the slice.
            assert_eq!(times(version, 1_000_000, 0, (3, 50_000))[..2], [0, 0], "{version:?}");
            let last = times(version, 1_000_000, 0, (40, 50_000)).pop();
            assert!(last.is_some_and(|ms| (1_800..=2_100).contains(&ms)), "{version:?} {last:?}");
            let last = times(version, 0, 20, (40, 4096)).pop();
            assert!(last.is_some_and(|ms| (1_700..=2_200).contains(&ms)), "{version:?} {last:?}");
        }
    }

    #[test]
    fn a_slice_begins_when_nobody_waits_and_the_last_is_over() {
        for version in VERSIONS {
            let limits = Throttle { bytes: [1_000_000, 0], bios: [0, 0] };
            let mut limits = IoMax::new(version, &limits, Hz(250));
            // Nothing is saved up in between, and writes have no limit.
            for at in [0, 10_000] {
                let now = Nanos::from_ms(at);
                assert!(limits.submit(now, Dir::Read, 100_000, 0) && limits.submit(now, Dir::Write, 1 << 30, 1));
                assert!(!limits.submit(now, Dir::Read, 100_000, 2) && limits.timer() > Some(now));
                while let Some(at) = limits.timer() {
                    limits.fire(at);
                }
            }
        }
    }

    #[test]
    fn reads_and_writes_take_turns_and_reads_are_issued_first() {
        let limits = Throttle { bytes: [0; 2], bios: [100, 100] };
        let mut limits = IoMax::new(Version::V6_1, &limits, Hz(250));
        for bio in 0..40 {
            limits.submit(Nanos::ZERO, if bio % 2 == 0 { Dir::Read } else { Dir::Write }, 4096, bio);
        }
        let gone = limits.timer().map(|at| limits.fire(at)).unwrap_or_default();
        assert_eq!(gone, [20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39]);
    }
}
