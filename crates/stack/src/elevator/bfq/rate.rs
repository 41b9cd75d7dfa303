//! The device's peak rate, estimated from dispatches (`bfq_update_peak_rate`, `bfq_update_rate_reset`).
//!
//! An observation lasts a second from its first dispatch, and ends early when the device was idle for 100 ms, or too
//! slow with a completion to have worked at its peak. It counts from 32 dispatches and 300 ms on; one
//! that is not sequential by three quarters may raise the estimate but not lower it. The more sequential and the longer
//! it was, the more it weighs, up to one half.

use super::queue::is_far;
use super::{FLASH, MIN_THINK, Now, ROTATING};
use crate::request::Request;
use crate::units::Nanos;

/// Fixed point of sectors a microsecond.
pub(super) const SHIFT: u32 = 16;
const MIN_SAMPLES: u32 = 32;
const MIN_INTERVAL: Nanos = Nanos::from_ms(300);
const REF_INTERVAL: Nanos = Nanos::from_secs(1);
const IDLE: Nanos = Nanos::from_ms(100);
/// Sectors a microsecond that no device does.
const ABSURD: u64 = 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    /// Sectors a microsecond, fixed point; 0 before the first request.
    pub(super) peak: u64,
    first_dispatch: Nanos,
    last_dispatch: Nanos,
    /// `None`: nothing has been completed yet.
    pub(super) last_completion: Option<Nanos>,
    samples: u32,
    sequential: u32,
    sectors: u64,
    largest: u32,
    interval: Nanos,
    /// Sector behind the last request that was dispatched.
    pub(super) last_position: u64,
}

impl Rate {
    /// Starts with two thirds of the reference drive's rate.
    pub(super) fn begin(&mut self, rotational: bool) {
        self.peak = if rotational { ROTATING.0 } else { FLASH.0 } * 2 / 3;
    }

    fn reset(&mut self, request: Option<&Request>, now: Now) {
        self.samples = 0;
        if let Some(request) = request {
            (self.first_dispatch, self.last_dispatch) = (now.at, now.at);
            (self.samples, self.sequential) = (1, 0);
            self.sectors = u64::from(request.nr_sectors);
            self.largest = request.nr_sectors;
        }
    }

    /// Takes the observation into account, if it is worth anything. Says whether the estimate has changed.
    fn conclude(&mut self) -> bool {
        if self.samples < MIN_SAMPLES || self.interval < MIN_INTERVAL {
            return false;
        }
        let until_completion = self.last_completion.map_or(Nanos::ZERO, |at| at.saturating_sub(self.first_dispatch));
        self.interval = self.interval.max(until_completion);
        let rate = (self.sectors << SHIFT) / (self.interval.0 / 1000);
        let scattered = self.sequential < (3 * self.samples) >> 2;
        if (scattered && rate <= self.peak) || rate > ABSURD << SHIFT {
            return false;
        }
        let weight = u64::from(9 * self.sequential / self.samples);
        let divisor = 10 - (weight * self.interval.0 / REF_INTERVAL.0).min(8);
        self.peak = (self.peak * (divisor - 1) / divisor + rate / divisor).max(1);
        true
    }

    /// A request goes to the device, which has `in_driver` others. Says whether the estimate has changed.
    pub(super) fn dispatched(&mut self, request: &Request, in_driver: u32, rotational: bool, now: Now) -> bool {
        let mut changed = false;
        if self.samples == 0 {
            self.reset(Some(request), now);
        } else {
            let was_idle = in_driver == 0 && now.at.saturating_sub(self.last_dispatch) > IDLE;
            if !was_idle {
                self.samples += 1;
                let recent = self.last_completion.is_some_and(|at| now.at.saturating_sub(at) < MIN_THINK);
                if (in_driver > 0 || recent) && !is_far(self.last_position, request, rotational) {
                    self.sequential += 1;
                }
                self.sectors += u64::from(request.nr_sectors);
                let largest = if self.samples.is_multiple_of(32) { 0 } else { self.largest };
                self.largest = largest.max(request.nr_sectors);
                self.interval = now.at.saturating_sub(self.first_dispatch);
            }
            if was_idle || self.interval >= REF_INTERVAL {
                changed = self.conclude();
                self.reset(Some(request), now);
            }
        }
        self.last_position = request.end().0;
        self.last_dispatch = now.at;
        changed
    }

    /// A request is done. Says whether the estimate has changed.
    pub(super) fn completed(&mut self, now: Now) -> bool {
        let took_us = self.last_completion.map_or(u64::MAX, |last| now.at.saturating_sub(last).0 / 1000);
        // Less than a sector a millisecond: not a device at its peak.
        let slow = took_us > MIN_THINK.0 / 1000 && (u64::from(self.largest) << SHIFT) / took_us < 1 << (SHIFT - 10);
        let changed = slow && self.conclude();
        if slow {
            self.reset(None, now);
        }
        self.last_completion = Some(now.at);
        changed
    }
}
