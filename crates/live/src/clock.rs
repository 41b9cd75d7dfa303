//! The clock of a run: nanoseconds since its start.
//!
//! ```text
//! counter   the processor's time stamp counter, if the kernel itself keeps time by it (then it is constant and the
//!           same on all processors); its rate is measured once against CLOCK_MONOTONIC
//! else      CLOCK_MONOTONIC
//! ```
//! A read of the counter costs less than half of what a call of the clock does, and a run reads it for each call.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use iowhy_stack::units::Nanos;

/// How long the rate of the counter is measured.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Nanoseconds since its start. Copies run together.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    /// Nanoseconds for each step of the counter, 32 binary places; 0 if the counter is not used.
    rate: u64,
    /// Counter, or nanoseconds of the system's clock, at the start.
    start: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        static RATE: OnceLock<u64> = OnceLock::new();
        let rate = *RATE.get_or_init(|| if counter_is_the_clock() { calibrate() } else { 0 });
        Clock::with_rate(rate)
    }

    /// A clock that starts now and asks the system each time.
    #[cfg(test)]
    pub fn of_the_system() -> Clock {
        Clock::with_rate(0)
    }

    fn with_rate(rate: u64) -> Clock {
        Clock { rate, start: if rate == 0 { monotonic() } else { counter() } }
    }

    /// The time since the start.
    #[inline(always)]
    pub fn now(&self) -> Nanos {
        if self.rate == 0 {
            return Nanos(monotonic() - self.start);
        }
        // A counter read just before that of the start (on another processor) must not become a huge time.
        let steps = counter().saturating_sub(self.start);
        Nanos(((u128::from(steps) * u128::from(self.rate)) >> 32) as u64)
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it only reads a register.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn counter() -> u64 {
    monotonic()
}

/// The kernel has found the counter to be constant and equal on all processors, or it would not keep time by it.
fn counter_is_the_clock() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.trim() == "tsc")
}

/// Both clocks at the same moment, as nearly as a few tries allow.
fn both() -> (u64, u64) {
    let (mut best, mut gap) = ((0, 0), u64::MAX);
    for _ in 0..16 {
        let before = counter();
        let time = monotonic();
        let after = counter();
        if after.wrapping_sub(before) < gap {
            gap = after.wrapping_sub(before);
            best = (before + gap / 2, time);
        }
    }
    best
}

/// Nanoseconds for each step of the counter, 32 binary places; 0 if it does not run sensibly.
fn calibrate() -> u64 {
    let (first, from) = both();
    let until = Instant::now() + CALIBRATION;
    while Instant::now() < until {
        std::thread::sleep(CALIBRATION / 4);
    }
    let (last, to) = both();
    let steps = last.saturating_sub(first);
    if steps == 0 {
        return 0;
    }
    u64::try_from((u128::from(to - from) << 32) / u128::from(steps)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_and_the_system_agree() {
        // Ours starts after one and before the other, so it must lie between the two, however busy the machine is.
        let earlier = Clock::of_the_system();
        let ours = Clock::start();
        let later = Clock::of_the_system();
        std::thread::sleep(Duration::from_millis(30));
        let (least, shown, most) = (later.now(), ours.now(), earlier.now());
        // A thousandth is more than the measured rate is off by.
        assert!(shown.0 + shown.0 / 1000 >= least.0 && shown.0 <= most.0 + most.0 / 1000, "{least} {shown} {most}");
    }

    #[test]
    fn time_never_runs_backwards() {
        for clock in [Clock::start(), Clock::of_the_system()] {
            let mut before = clock.now();
            for _ in 0..10_000 {
                let now = clock.now();
                assert!(now >= before, "{now} after {before}");
                before = now;
            }
        }
    }
}
