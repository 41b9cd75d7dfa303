//! Latency targets of control groups (blk-iolatency: `io.latency`): who misses its target has its siblings slowed down.
//!
//! ```text
//! window   16 targets, at least 100 ms, at most 1 s; it ends with the group's first completion after that
//! missed   flash: a tenth of the window's bios, and at least one, took the target or longer; rotating: their mean is
//!          above it. A window that is fine counts only while somebody is slowed down
//! cookie   of the siblings, 10^6 at first, moved by half a second's windows at most: down by a quarter of the queue's
//!          requests (by 1 below one queue's, never below two queues') when the group with the lowest target misses; up
//!          by a sixteenth (by 1) when the group that pushed it down is fine in 5 bios or more, or each second if
//!          there is none: it is forgotten after 5 s without a move
//! depth    a group compares cookies with each bio. Lower than before: if its target is above the one missed, and it
//!          did more than 5 % of the siblings' bios, or it has no target, its depth halves, from the queue's requests
//!          to 1, and then it collects uses of a delay; higher: a use is given back, or the depth grows by a sixteenth;
//!          10^6: no limit
//! waits    a bio that comes when others of its group wait, or when as many as the depth are in flight
//! root     metadata and swap pass and are not measured while there is a depth: what they were faster than the target
//!          is added to the delay, which falls by up to a second a second, and its tasks sleep for at most 250 ms of it
//!          on their way out of a system call
//! ```
//! Source: Linux 5.10, 6.1, 6.12 and 7.2, `block/blk-iolatency.c` (`check_scale_change`, `scale_cookie_change`,
//! `iolatency_check_latencies`, `scale_change`), `block/blk-cgroup.c` (`blkcg_scale_delay`), `block/blk-stat.c`. Known
//! deviations: siblings right below the root, no groups below them; groups do not come or go, and the queue's requests
//! and the number of processors stay; tasks that are being killed, which wait for nothing, are not told apart; a bio
//! that is cut is one bio; the running mean that `io.stat` shows decides nothing and is left out. Of rotating devices
//! the kernels keep a mean over windows that is always 0, so that the window alone decides: as here. The simulator has
//! one group and does not ask this model.

use std::collections::VecDeque;

use crate::units::{Hz, Jiffies, Nanos};

/// Whose code it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// 5.10 to 6.12: the times of bios have 51 bits, which are over after 26 days; a bio across that is not measured.
    V6_1,
    /// As 7.2 has it; 6.18 was not read.
    V7_2,
}

/// The cookie of siblings nobody slows down.
pub const NO_SCALE: u32 = 1_000_000;
const WINDOW_NS: [u64; 2] = [100_000_000, 1_000_000_000];
/// Time between two moves of the cookie.
const ADJUST_NS: u64 = 500_000_000;
/// Bios without which a fine window moves nothing.
const GOOD_SAMPLES: u64 = 5;
/// A group that missed is forgotten if nothing has moved for this long.
const FORGOTTEN_NS: u64 = 5_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const LONGEST_DELAY_NS: u64 = 250_000_000;
/// Bits of a bio's time until 6.12.
const TIME_BITS: u32 = 51;

/// The device and the machine.
#[derive(Copy, Clone, Debug)]
pub struct Setup {
    /// A disk with heads, whose windows have means.
    pub rotating: bool,
    /// Requests of the queue (`nr_requests`).
    pub nr_requests: u32,
    /// Processors, which count completions apart.
    pub processors: usize,
    /// Ticks a second.
    pub hz: Hz,
}

/// A bio that has been completed.
#[derive(Copy, Clone, Debug)]
pub struct Done {
    /// Whose it is: the place among the targets.
    pub group: usize,
    /// When it was submitted, before it waited here.
    pub submitted: Nanos,
    /// The processor that was told, from 0.
    pub processor: usize,
    /// Metadata or swap, which the root issues.
    pub as_root: bool,
    /// It was refused (`BLK_STS_AGAIN`) and is not measured.
    pub again: bool,
}

/// The fate of a bio.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// It goes on; else it has joined its group's line.
    pub passes: bool,
    /// Its task has to look at the delay ([`IoLatency::delay`]) before it returns from its system call.
    pub delayed: bool,
}

/// Completions of a window, in one of two ways.
#[derive(Copy, Clone, Debug, Default)]
struct Stat {
    samples: u64,
    /// Flash: those that took the target or longer.
    missed: u64,
    /// Rotating: nanoseconds that are not in the mean yet, and the mean.
    sum: u64,
    mean: u64,
}

impl Stat {
    /// Adds another's; a sum is merged into the mean and not kept.
    fn merge(&mut self, other: Stat) {
        let samples = self.samples + other.samples;
        if other.samples > 0 {
            self.mean = (other.sum + self.mean * self.samples) / samples;
        }
        self.missed += other.missed;
        self.samples = samples;
    }

    fn is_fine(&self, rotating: bool, target: u64) -> bool {
        if rotating { self.mean <= target } else { self.missed < (self.samples / 10).max(1) }
    }
}

/// Sleep that tasks of a group owe, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Delay {
    uses: u32,
    ns: u64,
    /// Of the last look: when, and what was left then.
    looked: u64,
    left: u64,
    uses_then: u32,
}

impl Delay {
    /// Takes off what has passed, once a second; half of it at least if a use was given back.
    fn decay(&mut self, now: u64) {
        if self.looked + SECOND_NS >= now {
            return;
        }
        let mut over = self.left.min(now - self.looked);
        if self.uses < self.uses_then {
            over = over.max(self.left / 2);
        }
        self.ns = self.ns.saturating_sub(over);
        (self.left, self.looked, self.uses_then) = (self.ns, now, self.uses);
    }
}

#[derive(Clone, Debug)]
struct Group {
    /// Nanoseconds; 0: none.
    target: u64,
    window: u64,
    window_start: u64,
    of_processors: Vec<Stat>,
    /// Windows since the cookie was moved for this group, and their bios as the siblings count them.
    kept: Stat,
    samples: u64,
    /// The siblings' cookie as last seen.
    cookie: u32,
    depth: Option<u32>,
    in_flight: u32,
    line: VecDeque<u32>,
    delay: Delay,
}

/// Sibling groups below the root.
#[derive(Clone, Debug)]
pub struct IoLatency {
    version: Version,
    setup: Setup,
    groups: Vec<Group>,
    cookie: u32,
    /// When the cookie was moved last, the lowest target missed, and whose it is.
    moved: u64,
    missed_target: u64,
    missed_by: Option<usize>,
    timer: Option<Jiffies>,
    woken: Vec<u32>,
}

impl IoLatency {
    /// Groups with these targets; zero: none.
    pub fn new(version: Version, setup: Setup, now: Nanos, targets: &[Nanos]) -> IoLatency {
        let group = Group {
            target: 0,
            window: WINDOW_NS[0],
            window_start: now.0,
            of_processors: vec![Stat::default(); setup.processors],
            kept: Stat::default(),
            samples: 0,
            cookie: NO_SCALE,
            depth: None,
            in_flight: 0,
            line: VecDeque::new(),
            delay: Delay::default(),
        };
        let mut new = IoLatency {
            version,
            setup,
            groups: vec![group; targets.len()],
            cookie: NO_SCALE,
            moved: 0,
            missed_target: 0,
            missed_by: None,
            timer: None,
            woken: Vec::new(),
        };
        targets.iter().enumerate().for_each(|(group, target)| new.set_target(group, *target));
        new
    }

    /// A group's target; zero takes it away. The first comes and the last goes while no bio is in flight.
    pub fn set_target(&mut self, group: usize, target: Nanos) {
        let of = &mut self.groups[group];
        let before = std::mem::replace(&mut of.target, target.0);
        of.window = (target.0 << 4).clamp(WINDOW_NS[0], WINDOW_NS[1]);
        if before > 0 && target.0 == 0 {
            of.delay.uses = 0;
        }
        if before != target.0 {
            (self.cookie, self.moved, self.missed_target, self.missed_by) = (NO_SCALE, 0, 0, None);
        }
    }

    /// Whether any group has a target: else nothing is counted.
    pub fn is_enabled(&self) -> bool {
        self.groups.iter().any(|group| group.target > 0)
    }

    /// A group's depth; none: no limit.
    pub fn depth(&self, group: usize) -> Option<u32> {
        self.groups[group].depth
    }

    /// How often a group at depth 1 should have been slower still.
    pub fn delay_uses(&self, group: usize) -> u32 {
        self.groups[group].delay.uses
    }

    /// The number that groups compare to know whether to be slower or faster.
    pub fn cookie(&self) -> u32 {
        self.cookie
    }

    /// Bios that may go on now, in their order.
    pub fn take_woken(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.woken)
    }

    /// A bio of a group, by its submitter's number.
    pub fn submit(&mut self, now: Nanos, group: usize, as_root: bool, bio: u32) -> Submitted {
        if !self.is_enabled() {
            return Submitted { passes: true, delayed: false };
        }
        self.check_scale(now, group);
        let of = &mut self.groups[group];
        let passes = as_root || (of.line.is_empty() && of.depth.is_none_or(|depth| of.in_flight < depth));
        let delayed = of.delay.uses > 0;
        if passes {
            of.in_flight += 1;
            self.start_timer(now);
        } else {
            of.line.push_back(bio);
        }
        Submitted { passes, delayed }
    }

    /// A bio has been completed: the next of its line may go on.
    pub fn complete(&mut self, now: Nanos, done: &Done) {
        if !self.is_enabled() {
            return;
        }
        let of = &mut self.groups[done.group];
        of.in_flight -= 1;
        if of.target > 0 && !done.again {
            self.measure(now, done);
            let of = &mut self.groups[done.group];
            if now.0 > of.window_start && now.0 - of.window_start >= of.window {
                of.window_start = now.0;
                self.end_window(now.0, done.group);
            }
        }
        self.wake(now, done.group, 1);
    }

    /// When the siblings have to be looked at.
    pub fn timer(&self) -> Option<Nanos> {
        self.timer.map(|tick| self.setup.hz.start(tick))
    }

    /// Looks at the siblings, if it is time.
    pub fn fire(&mut self, now: Nanos) {
        if self.timer().is_none_or(|at| at > now) {
            return;
        }
        self.timer = None;
        if self.cookie >= NO_SCALE || self.moved >= now.0 {
            return;
        }
        if self.missed_by.is_none() {
            self.move_cookie(true);
        } else if now.0 - self.moved >= FORGOTTEN_NS {
            self.missed_by = None;
        }
    }

    /// How long a task of a group sleeps before it returns from its system call.
    pub fn delay(&mut self, now: Nanos, group: usize) -> Nanos {
        let delay = &mut self.groups[group].delay;
        if delay.uses == 0 {
            return Nanos::ZERO;
        }
        delay.decay(now.0);
        Nanos(delay.ns.min(LONGEST_DELAY_NS))
    }

    /// It runs once, a second after the first bio that passes while it does not run.
    fn start_timer(&mut self, now: Nanos) {
        let hz = self.setup.hz;
        self.timer.get_or_insert(Jiffies(hz.at(now).0 + u64::from(hz.0)));
    }

    /// Up to `most` of a line go on, as the depth has it.
    fn wake(&mut self, now: Nanos, group: usize, most: usize) {
        let of = &mut self.groups[group];
        let room = of.depth.map_or(usize::MAX, |depth| depth.saturating_sub(of.in_flight) as usize);
        let nr = room.min(most).min(of.line.len());
        of.in_flight += nr as u32;
        self.woken.extend(of.line.drain(..nr));
        if nr > 0 {
            self.start_timer(now);
        }
    }

    /// Steps of the cookie and of depths.
    fn step(&self, up: bool) -> u32 {
        (self.setup.nr_requests >> if up { 4 } else { 2 }).max(1)
    }

    fn move_cookie(&mut self, up: bool) {
        let nr_requests = self.setup.nr_requests;
        let below = NO_SCALE - self.cookie;
        let whole = self.step(up);
        let step = if below > nr_requests { 1 } else { whole };
        if up {
            self.cookie += if whole > below { below } else { step };
        } else if below < 2 * nr_requests {
            self.cookie -= step;
        }
    }

    /// Follows the siblings' cookie (`check_scale_change`).
    fn check_scale(&mut self, now: Nanos, group: usize) {
        let all: u64 = self.groups.iter().map(|group| group.samples).sum();
        let (cookie, missed) = (self.cookie, self.missed_target);
        let of = &mut self.groups[group];
        let before = std::mem::replace(&mut of.cookie, cookie);
        if cookie == before {
            return;
        }
        let down = cookie < before;
        if down && of.target > 0 {
            let is_stricter = missed == 0 || of.target <= missed;
            if is_stricter || of.samples <= (all * 5 / 100).max(1) {
                return;
            }
        }
        if down && of.depth == Some(1) {
            of.delay.uses += 1;
        } else if cookie == NO_SCALE {
            of.delay.uses = 0;
            of.depth = None;
            self.wake(now, group, usize::MAX);
        } else {
            self.change_depth(now, group, down);
        }
    }

    fn change_depth(&mut self, now: Nanos, group: usize, down: bool) {
        let (step, nr_requests) = (self.step(true), self.setup.nr_requests);
        let of = &mut self.groups[group];
        let depth = of.depth.map_or(nr_requests, |depth| depth.min(nr_requests));
        if down {
            of.depth = Some((depth / 2).max(1));
        } else if depth == 1 && of.delay.uses > 0 {
            of.delay.uses -= 1;
        } else if depth < nr_requests {
            of.depth = Some((depth + step).min(nr_requests));
            self.wake(now, group, usize::MAX);
        }
    }

    /// Counts how long a bio took, or what it adds to the delay.
    fn measure(&mut self, now: Nanos, done: &Done) {
        let short = |time: Nanos| match self.version {
            Version::V6_1 => time.0 & ((1 << TIME_BITS) - 1),
            Version::V7_2 => time.0,
        };
        let (now, submitted) = (short(now), short(done.submitted));
        if now <= submitted {
            return;
        }
        let took = now - submitted;
        let of = &mut self.groups[done.group];
        if done.as_root && of.depth.is_some() {
            if took < of.target {
                of.delay.decay(now);
                of.delay.ns += of.target - took;
            }
            return;
        }
        let stat = &mut of.of_processors[done.processor];
        stat.samples += 1;
        stat.sum += took;
        stat.missed += u64::from(took >= of.target);
    }

    /// The end of a group's window (`iolatency_check_latencies`).
    fn end_window(&mut self, now: u64, group: usize) {
        let rotating = self.setup.rotating;
        let of = &mut self.groups[group];
        let target = of.target;
        let mut stat = Stat::default();
        of.of_processors.iter_mut().for_each(|one| stat.merge(std::mem::take(one)));
        let is_fine = stat.is_fine(rotating, target);
        if is_fine && self.cookie == NO_SCALE {
            return;
        }
        of.kept.merge(stat);
        of.samples = of.kept.samples;
        if self.moved >= now || now - self.moved < ADJUST_NS {
            return;
        }
        if is_fine && of.kept.is_fine(rotating, target) {
            if of.samples < GOOD_SAMPLES {
                return;
            }
            of.kept = Stat::default();
            if self.missed_by == Some(group) {
                self.moved = now;
                self.move_cookie(true);
            }
            return;
        }
        of.kept = Stat::default();
        if self.missed_target == 0 || self.missed_target >= target {
            self.moved = now;
            if self.missed_by.is_none() || self.missed_target > target {
                (self.missed_target, self.missed_by) = (target, Some(group));
            }
            self.move_cookie(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup { rotating: false, nr_requests: 64, processors: 1, hz: Hz(250) };

    /// Two groups, the first with a target of 10 ms, the second with this one.
    fn groups(setup: Setup, second_ms: u64) -> IoLatency {
        IoLatency::new(Version::V7_2, setup, Nanos::ZERO, &[Nanos::from_ms(10), Nanos::from_ms(second_ms)])
    }

    fn submit(groups: &mut IoLatency, ms: u64, group: usize, as_root: bool) -> Submitted {
        groups.submit(Nanos::from_ms(ms), group, as_root, 0)
    }

    fn complete(groups: &mut IoLatency, ms: u64, group: usize, took_ms: u64, as_root: bool) {
        let submitted = Nanos::from_ms(ms - took_ms);
        groups.complete(Nanos::from_ms(ms), &Done { group, submitted, processor: 0, as_root, again: false });
    }

    /// A window in which each group completes 20 bios in 1 ms each, but the first group's last ones in 20 ms.
    fn second(groups: &mut IoLatency, ms: u64, slow: u64) {
        groups.groups.iter_mut().for_each(|group| group.window_start = ms * 1_000_000);
        for bio in 0..20 {
            for group in [1, 0] {
                submit(groups, ms, group, true);
                // The last one ends the window.
                let at = if bio == 19 { ms + 999 } else { ms + 50 };
                let took = if group == 0 && bio >= 20 - slow { 20 } else { 1 };
                complete(groups, at, group, took, true);
            }
        }
    }

    #[test]
    fn siblings_are_slowed_down_for_a_tenth_of_slow_bios() {
        // Slow ones of 20, the second group's target: how far down the cookie is, and its depth.
        let table: [(u64, u64, u32, Option<u32>); 5] =
            [(0, 0, 0, None), (1, 0, 0, None), (2, 0, 16, Some(32)), (20, 30, 16, Some(32)), (20, 5, 16, None)];
        for (slow, second_ms, down, depth) in table {
            let mut groups = groups(SETUP, second_ms);
            // The second group has to have told of its bios: its own window is not fine.
            groups.cookie = NO_SCALE - u32::from(second_ms > 10);
            groups.groups.iter_mut().for_each(|group| group.cookie = NO_SCALE - u32::from(second_ms > 10));
            let before = groups.cookie;
            second(&mut groups, 1_000, slow);
            assert_eq!(before - groups.cookie, down, "{slow} {second_ms}");
            submit(&mut groups, 2_100, 1, true);
            assert_eq!((groups.depth(0), groups.depth(1)), (None, depth), "{slow} {second_ms}");
        }
    }

    #[test]
    fn the_cookie_falls_fast_and_rises_slowly() {
        // Requests of the queue, windows that missed: how far down; then the same up until nobody is slowed down.
        for (nr_requests, windows, down, seconds) in [(64, 1, 16, 4), (64, 5, 80, 32), (64, 99, 128, 80), (1, 9, 2, 2)]
        {
            let mut groups = groups(Setup { nr_requests, ..SETUP }, 0);
            (0..windows).for_each(|_| groups.move_cookie(false));
            assert_eq!(NO_SCALE - groups.cookie, down, "{nr_requests} {windows}");
            let mut nr = 0;
            while groups.cookie < NO_SCALE {
                groups.move_cookie(true);
                nr += 1;
            }
            assert_eq!(nr, seconds, "{nr_requests} {windows}");
        }
    }

    #[test]
    fn a_depth_halves_down_to_uses_of_a_delay_and_grows_again() {
        let mut groups = groups(SETUP, 0);
        let mut follow = |cookie_down: u32| {
            groups.cookie = NO_SCALE - cookie_down;
            submit(&mut groups, 0, 1, true);
            (groups.depth(1), groups.delay_uses(1))
        };
        let table = [(1, Some(32), 0), (2, Some(16), 0), (3, Some(8), 0), (4, Some(4), 0), (5, Some(2), 0)];
        let then = [(6, Some(1), 0), (7, Some(1), 1), (6, Some(1), 0), (5, Some(5), 0), (4, Some(9), 0), (0, None, 0)];
        for (down, depth, uses) in table.into_iter().chain(then) {
            assert_eq!(follow(down), (depth, uses), "{down}");
        }
    }

    #[test]
    fn bios_wait_for_the_depth_and_metadata_does_not() {
        let mut groups = groups(SETUP, 0);
        groups.groups[1].depth = Some(2);
        let passes: Vec<bool> = (0..4).map(|bio| submit(&mut groups, 0, 1, bio == 3).passes).collect();
        assert_eq!(passes, [true, true, false, true]);
        // Three are in flight, and the one that waits goes when one is.
        let woken = [1, 2, 3].map(|ms| {
            complete(&mut groups, ms, 1, 1, false);
            groups.take_woken().len()
        });
        assert_eq!(woken, [0, 1, 0]);
    }

    #[test]
    fn the_delay_is_what_metadata_was_faster_than_the_target() {
        let mut groups = groups(SETUP, 100);
        groups.groups[1].depth = Some(1);
        groups.groups[1].delay.uses = 1;
        for bio in 0..4 {
            assert!(submit(&mut groups, 50, 1, true).delayed, "{bio}");
            complete(&mut groups, 60, 1, 10, true);
        }
        // Four times 90 ms, of which a task sleeps 250 at most; what is left is over two looks later.
        let sleeps = [70, 1_100, 2_200, 3_300].map(|ms| groups.delay(Nanos::from_ms(ms), 1).0 / 1_000_000);
        assert_eq!(sleeps, [250, 250, 0, 0]);
    }

    #[test]
    fn a_delay_falls_by_the_time_or_by_half_when_a_use_is_given_back() {
        // Seconds that were left, uses then and now, seconds gone; what is left.
        let table = [(8, 1, 1, 2, 6), (8, 2, 1, 2, 4), (3, 2, 1, 2, 1), (1, 1, 1, 2, 0), (8, 1, 1, 1, 8)];
        for (left, uses_then, uses, gone, then) in table {
            let mut delay = Delay { uses, ns: left * SECOND_NS, looked: 0, left: left * SECOND_NS, uses_then };
            delay.decay(gone * SECOND_NS);
            assert_eq!(delay.ns, then * SECOND_NS, "{left} {uses_then} {uses} {gone}");
        }
    }

    #[test]
    fn a_group_that_is_gone_is_forgotten_and_the_cookie_rises() {
        let mut groups = groups(SETUP, 0);
        second(&mut groups, 1_000, 20);
        let mut cookies = Vec::new();
        for second in 0..10 {
            submit(&mut groups, 2_100 + second * 1_000, 1, true);
            if let Some(at) = groups.timer() {
                groups.fire(at);
            }
            cookies.push(NO_SCALE - groups.cookie());
        }
        assert_eq!(cookies, [16, 16, 16, 16, 16, 12, 8, 4, 0, 0]);
    }
}
