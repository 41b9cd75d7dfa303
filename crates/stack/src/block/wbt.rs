//! Writeback throttling (blk-wbt): buffered writes wait while reads are slow.
//!
//! ```text
//! throttled   writes except direct ones, and what empties the drive's cache after an fsync; limits: the whole depth
//!             (synchronous, or a task was stopped for dirty pages within the last second), or a quarter of it
//!             (background). A write that is flushed after has its place until its data is written
//! window      100 ms, shorter by the square root of the step; one begins with a throttled write, and with the end of
//!             the last one if such are in flight or the step is not 0. At its end:
//!               the fastest of some reads was slower than the target, or one read is out for longer: step + 1
//!               reads were fine, or there were only writes: step - 1, below 0 too
//!               nothing, five times: one step towards 0
//! wait        in line, newcomers behind those who sleep, room or not
//! wake        when a write has ended: with a volatile cache in the drive, once none is in flight (unless a task was
//!             stopped for dirty pages lately); without, once fewer than half the depth are, by some; and when the
//!             depth has risen. From the head of the line on, each takes its place before it runs, until one has none
//! depth       of min(16, device's depth): 1 + (depth - 1) >> step, below 0 (depth - 1) << -step up to 3/4 of the
//!             device; a device of one command: 2, or 1 when throttled
//! ```
//! Source: Linux 6.1 to 7.2, `block/blk-wbt.c`, `block/blk-rq-qos.c` (`rq_depth_calc_max_depth`, `rq_qos_wait`). Known
//! deviations: discards do not exist; every asynchronous write is taken for background writeback. In 6.1-rc1 a change
//! of order in `wbt_init` (8c5035dfbb94) left the flag of the drive's cache set for every drive: `wbt_cache=always`.

use std::collections::VecDeque;

use super::rules::QueueRules;
use crate::event::Dir;
use crate::request::Bio;
use crate::units::{Hz, Jiffies, Nanos};

/// Depth that the steps start from.
const DEFAULT_DEPTH: u32 = 16;
/// Least samples of reads and writes for a judgement.
const MIN_READS: u32 = 1;
const MIN_WRITES: u32 = 3;
/// Windows without a judgement after which the step drifts towards 0.
const UNKNOWN_WINDOWS: u32 = 5;
/// A task that was stopped for dirty pages counts for this time.
const RECENT_WAIT_S: u64 = 1;

/// State of one queue.
#[derive(Clone, Debug)]
pub(super) struct Wbt {
    hz: Hz,
    target: Nanos,
    base_window: Nanos,
    device_depth: u32,
    /// Writers sleep until nothing of theirs is in flight.
    drains: bool,
    step: i32,
    /// Deeper than this there is nothing to gain.
    scaled_max: bool,
    max_depth: u32,
    unknown: u32,
    window: Nanos,
    /// End of the window, if there is one.
    ends: Option<Nanos>,
    reads: u32,
    fastest_read: Nanos,
    writes: u32,
    /// Writes with a place, the next two kinds among them.
    inflight: u32,
    /// Writes with a place whose submitters will come again: they have been woken, or wait for a tag.
    again: u32,
    /// Those woken since the queue last asked.
    woken: u32,
    /// Those that sleep for a place: whether the whole depth is theirs.
    line: VecDeque<bool>,
    /// A synchronous read that is watched: its number and when it was issued.
    watched: Option<(u32, Nanos)>,
    last_dirty_wait: Option<Jiffies>,
}

/// Result of a window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum WindowResult {
    Exceeded,
    Fine,
    OnlyWrites,
    Unknown,
}

impl Wbt {
    pub(super) fn new(rules: &QueueRules, rotational: bool, device_depth: u32, hz: Hz) -> Wbt {
        let default = if rotational { Nanos::from_ms(75) } else { Nanos::from_ms(2) };
        let target = if rules.wbt_latency > Nanos::ZERO { rules.wbt_latency } else { default };
        let mut wbt = Wbt {
            hz,
            target,
            base_window: rules.wbt_window,
            device_depth,
            drains: rules.wbt_cache_always || rules.write_cache,
            step: 0,
            scaled_max: false,
            max_depth: 0,
            unknown: 0,
            window: rules.wbt_window,
            ends: None,
            reads: 0,
            fastest_read: Nanos::ZERO,
            writes: 0,
            inflight: 0,
            again: 0,
            woken: 0,
            line: VecDeque::new(),
            watched: None,
            last_dirty_wait: None,
        };
        wbt.calculate();
        wbt
    }

    /// Whether a bio is of the kind that is throttled: direct writes (synchronous, with more to follow) are not; what
    /// empties the drive's cache after an fsync is (`submit_bio_wait` marks it synchronous only).
    #[inline]
    pub(super) fn concerns(bio: &Bio) -> bool {
        bio.dir == Dir::Write && (!bio.sync || bio.no_idle)
    }

    /// Sets the depth from the step. Whether it cannot rise any more.
    fn calculate(&mut self) -> bool {
        if self.device_depth == 1 {
            self.max_depth = if self.step > 0 { 1 } else { 2 };
            return self.step <= 0;
        }
        let depth = DEFAULT_DEPTH.min(self.device_depth);
        if self.step > 0 {
            self.max_depth = 1 + ((depth - 1) >> self.step.min(31));
            return false;
        }
        let most = 3 * self.device_depth / 4;
        let deep = 1 + ((u64::from(depth) - 1) << self.step.unsigned_abs().min(31));
        let too_deep = self.step < 0 && deep > u64::from(most);
        self.max_depth = if too_deep { most } else { deep as u32 };
        too_deep
    }

    /// Most throttled writes in flight while one of this kind comes.
    fn limit(&self, urgent: bool, now: Nanos) -> u32 {
        if urgent || self.stopped_lately(now) { self.max_depth } else { self.background() }
    }

    fn stopped_lately(&self, now: Nanos) -> bool {
        self.last_dirty_wait.is_some_and(|at| self.hz.at(now).0 < at.0 + RECENT_WAIT_S * u64::from(self.hz.0))
    }

    /// Depth of writeback in the background.
    fn background(&self) -> u32 {
        if self.max_depth <= 2 { 1 } else { self.max_depth.div_ceil(4) }
    }

    /// A bio of the throttled kind has a place, or joins the line. One that comes `again` has its place.
    pub(super) fn may_write(&mut self, bio: &Bio, again: bool, now: Nanos) -> bool {
        self.look(now);
        if again {
            assert!(self.again > 0, "a task that comes again has a place");
            self.again -= 1;
            self.begin_window(now);
            return true;
        }
        let urgent = bio.sync || bio.prio;
        let may = self.line.is_empty() && self.inflight < self.limit(urgent, now);
        if may {
            self.inflight += 1;
            self.begin_window(now);
        } else {
            self.line.push_back(urgent);
        }
        may
    }

    /// When the throttle has to look again, as somebody may be woken then.
    pub(super) fn timer(&self) -> Option<Nanos> {
        self.ends.filter(|_| !self.line.is_empty())
    }

    /// A bio with a place has no tag: its submitter will come again.
    pub(super) fn comes_again(&mut self) {
        self.again += 1;
    }

    /// A place is given back: its request has ended, or was united with another (`wbt_rqw_done`).
    pub(super) fn gave_back(&mut self, now: Nanos) {
        self.look(now);
        self.inflight -= 1;
        let normal = if self.max_depth <= 2 { self.max_depth } else { self.max_depth.div_ceil(2) };
        let limit = if self.drains && !self.stopped_lately(now) { 0 } else { normal };
        let room = limit.saturating_sub(self.inflight);
        if self.inflight == 0 || (room > 0 && room >= self.background() / 2) {
            self.wake(now);
        }
    }

    /// Gives places to the line, from its head until one has none (`rq_qos_wake_function`).
    fn wake(&mut self, now: Nanos) {
        while let Some(&urgent) = self.line.front()
            && self.inflight < self.limit(urgent, now)
        {
            self.line.pop_front();
            self.inflight += 1;
            self.again += 1;
            self.woken += 1;
        }
    }

    /// How many of those that wait have been woken since the last call.
    pub(super) fn take_woken(&mut self) -> u32 {
        std::mem::take(&mut self.woken)
    }

    /// A task has been stopped because too much was dirty.
    pub(super) fn dirty_wait(&mut self, now: Nanos) {
        self.look(now);
        self.last_dirty_wait = Some(self.hz.at(now));
    }

    #[inline]
    pub(super) fn issued(&mut self, tag: u32, dir: Dir, now: Nanos) {
        if dir == Dir::Read && self.watched.is_none() {
            self.watched = Some((tag, now));
        }
    }

    /// A request has ended.
    #[inline]
    pub(super) fn completed(&mut self, tag: u32, dir: Dir, took: Nanos, now: Nanos) {
        self.look(now);
        let counts = u32::from(self.ends.is_some());
        match dir {
            Dir::Read => {
                if counts > 0 {
                    self.fastest_read = if self.reads == 0 { took } else { self.fastest_read.min(took) };
                }
                self.reads += counts;
                if self.watched.is_some_and(|(watched, _)| watched == tag) {
                    self.watched = None;
                }
            }
            Dir::Write => self.writes += counts,
        }
    }

    /// Closes the windows that are over.
    #[inline]
    pub(super) fn look(&mut self, now: Nanos) {
        if self.ends.is_some_and(|ends| ends <= now) {
            self.close_windows(now);
        }
    }

    /// A window begins, unless there is one.
    fn begin_window(&mut self, now: Nanos) {
        if self.ends.is_none() {
            self.set_window(now);
        }
    }

    fn set_window(&mut self, now: Nanos) {
        self.window = self.base_window;
        if self.step > 0 {
            // 16 times the window over the root of 256 times the step, as the kernel does without fractions.
            let root = (u64::from(self.step.unsigned_abs() + 1) << 8).isqrt();
            self.window = Nanos((self.base_window.0 << 4) / root);
        }
        self.ends = Some(self.hz.timer(now, self.hz.at(self.window).0));
    }

    #[cold]
    fn close_windows(&mut self, now: Nanos) {
        while let Some(end) = self.ends.filter(|end| *end <= now) {
            self.ends = None;
            let inflight = self.inflight;
            self.decide(self.judge(end), end);
            (self.reads, self.writes) = (0, 0);
            if self.step != 0 || inflight > 0 {
                self.set_window(end);
            }
        }
    }

    fn judge(&self, now: Nanos) -> WindowResult {
        let out_for = self.watched.map_or(Nanos::ZERO, |(_, at)| now.saturating_sub(at));
        if out_for > self.window || (out_for > self.target && self.reads == 0) {
            return WindowResult::Exceeded;
        }
        if self.reads >= MIN_READS && self.writes >= MIN_WRITES {
            if self.fastest_read > self.target { WindowResult::Exceeded } else { WindowResult::Fine }
        } else if self.writes > 0 || self.inflight > 0 || self.stopped_lately(now) {
            WindowResult::OnlyWrites
        } else {
            WindowResult::Unknown
        }
    }

    fn decide(&mut self, seen: WindowResult, now: Nanos) {
        match seen {
            // From beyond the usual depth straight back to it.
            WindowResult::Exceeded => self.down(if self.step < 0 { 0 } else { self.step + 1 }),
            WindowResult::Fine | WindowResult::OnlyWrites => self.up(now),
            WindowResult::Unknown => {
                self.unknown += 1;
                if self.unknown < UNKNOWN_WINDOWS {
                    return;
                }
                if self.step > 0 {
                    self.up(now);
                } else if self.step < 0 {
                    self.down(self.step + 1);
                }
            }
        }
    }

    fn down(&mut self, step: i32) {
        if self.max_depth > 1 {
            (self.step, self.scaled_max, self.unknown) = (step, false, 0);
            self.calculate();
        }
    }

    fn up(&mut self, now: Nanos) {
        if !self.scaled_max {
            self.step -= 1;
            self.scaled_max = self.calculate();
            self.unknown = 0;
            self.wake(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::rules::QueueRules;

    /// A queue whose windows see `reads` of that latency and `writes`, one after the other; the depths it ends at.
    fn depths(device_depth: u32, windows: &[(u32, u64, u32)]) -> Vec<u32> {
        let mut wbt = Wbt::new(&QueueRules::MULTI, false, device_depth, Hz(250));
        let mut depths = vec![wbt.max_depth];
        let mut now = Nanos::from_ms(4);
        for &(reads, read_us, writes) in windows {
            wbt.begin_window(now);
            (0..reads).for_each(|tag| wbt.completed(tag, Dir::Read, Nanos::from_us(read_us), now));
            (0..writes).for_each(|tag| wbt.completed(tag, Dir::Write, Nanos::from_us(50), now));
            now = wbt.ends.expect("a window has begun");
            wbt.look(now);
            depths.push(wbt.max_depth);
        }
        depths
    }

    #[test]
    fn slow_reads_halve_the_depth_and_fast_ones_give_it_back() {
        let (slow, fast, nothing) = ((5, 2_001, 10), (5, 2_000, 10), (0, 0, 0));
        assert_eq!(depths(128, &[slow, slow, slow, slow, slow]), [16, 8, 4, 2, 1, 1]);
        assert_eq!(depths(128, &[slow, slow, fast, fast]), [16, 8, 4, 8, 16]);
        // Without anything to protect it goes up to three quarters of the device.
        assert_eq!(depths(128, &[(0, 0, 9); 5]), [16, 31, 61, 96, 96, 96]);
        // The first bad window afterwards leads back to the middle.
        assert_eq!(depths(128, &[(0, 0, 9), (0, 0, 9), slow]), [16, 31, 61, 16]);
        // Reads alone say nothing about writes.
        assert_eq!(depths(128, &[(5, 9_000, 0); 4]), [16; 5]);
        assert_eq!(depths(1, &[slow, fast]), [2, 1, 2]);
        // Nothing happens in five windows: the step goes back by one.
        let idle = [slow, slow, nothing, nothing, nothing, nothing, nothing, nothing];
        assert_eq!(depths(128, &idle)[2..], [4, 4, 4, 4, 4, 8, 8]);
    }

    #[test]
    fn windows_shrink_by_the_root_of_the_step() {
        let mut wbt = Wbt::new(&QueueRules::MULTI, false, 128, Hz(250));
        let mut windows = vec![wbt.window.0];
        for _ in 0..3 {
            wbt.decide(WindowResult::Exceeded, Nanos::ZERO);
            wbt.set_window(Nanos::ZERO);
            windows.push(wbt.window.0);
        }
        // 16 * 100 ms / isqrt(256 * (step + 1)): 16, 22, 27, 32.
        assert_eq!(windows, [100_000_000, 72_727_272, 59_259_259, 50_000_000]);
    }
}
