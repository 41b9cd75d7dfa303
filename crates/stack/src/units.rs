//! Units of the simulated machine as types, so that a sector can never be added to a page.
//!
//! Positions (`Nanos`, `Sector`, `PageIndex`, `Jiffies`) are newtypes. Counts are plain integers whose name has
//! what they count (`nr_sectors`, `nr_pages`, `len_bytes`). Simulated time is integer nanoseconds.

use serde::Serialize;

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// Bytes in a page of the page cache.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes in a sector, the unit of the block layer.
pub const SECTOR_BYTES: u64 = 512;
pub const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;

/// A point in simulated time, or a length of it, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero: the start of a run, or no time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// The time as seconds, for reports only: never fed back into the simulation.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time as milliseconds, for reports only: never fed back into the simulation.
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `self - earlier`, or zero if `earlier` is later.
    pub fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, earlier: Nanos) -> Nanos {
        debug_assert!(self.0 >= earlier.0, "time went backwards: {self} - {earlier}");
        Nanos(self.0 - earlier.0)
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0 * times)
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        if ns >= 1_000_000_000 {
            write!(f, "{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
        } else if ns >= 1_000_000 {
            write!(f, "{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
        } else if ns >= 1_000 {
            write!(f, "{}.{:03} us", ns / 1_000, ns % 1_000)
        } else {
            write!(f, "{ns} ns")
        }
    }
}

/// A 512-byte sector of a whole disk, counted from its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector `nr_sectors` further on.
    pub const fn plus(self, nr_sectors: u64) -> Sector {
        Sector(self.0 + nr_sectors)
    }

    /// How many sectors lie between the two, whichever comes first.
    pub const fn distance(self, other: Sector) -> u64 {
        self.0.abs_diff(other.0)
    }
}

/// A page of a file, counted from its start (`index` in the kernel).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u64);

impl PageIndex {
    /// The page `nr_pages` further on.
    pub const fn plus(self, nr_pages: u64) -> PageIndex {
        PageIndex(self.0 + nr_pages)
    }

    /// The page that holds byte `offset` of the file.
    pub const fn of(offset: u64) -> PageIndex {
        PageIndex(offset / PAGE_BYTES)
    }
}

/// Ticks of the kernel's timer since the start of the run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Jiffies(pub u64);

/// Timer ticks a second (`CONFIG_HZ`): every kernel time below this resolution is rounded as that kernel rounds it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hz(pub u32);

impl Hz {
    /// The tick that has last happened at `now`.
    pub const fn at(self, now: Nanos) -> Jiffies {
        Jiffies(now.0 / (1_000_000_000 / self.0 as u64))
    }

    /// When tick `jiffies` happens.
    pub const fn start(self, jiffies: Jiffies) -> Nanos {
        Nanos(jiffies.0 * (1_000_000_000 / self.0 as u64))
    }

    /// `ms` milliseconds in ticks, rounded down but at least one for a time that is not zero.
    pub const fn from_ms(self, ms: u64) -> u64 {
        let ticks = ms * self.0 as u64 / 1_000;
        if ticks == 0 && ms > 0 { 1 } else { ticks }
    }

    /// When a timer set at `now` to run after `ticks` ticks fires: on a tick, never early.
    pub const fn timer(self, now: Nanos, ticks: u64) -> Nanos {
        self.start(Jiffies(self.at(now).0 + ticks))
    }
}

/// A tick count that is asked for again and again at times that hardly differ: it divides only when the tick has
/// changed, since a division costs as much as everything else an elevator does with the time.
#[derive(Copy, Clone, Debug)]
pub struct TickClock {
    hz: Hz,
    tick: Jiffies,
    /// When that tick happens, and when the next one does.
    from: Nanos,
    until: Nanos,
}

impl TickClock {
    /// A clock at this rate.
    pub const fn new(hz: Hz) -> TickClock {
        TickClock { hz, tick: Jiffies(0), from: Nanos::ZERO, until: hz.start(Jiffies(1)) }
    }

    /// The tick that has last happened at `now`: [`Hz::at`].
    #[inline]
    pub fn at(&mut self, now: Nanos) -> Jiffies {
        if now < self.from || now >= self.until {
            self.tick = self.hz.at(now);
            self.from = self.hz.start(self.tick);
            self.until = self.hz.start(Jiffies(self.tick.0.saturating_add(1)));
        }
        self.tick
    }
}

/// Ascending page numbers as runs: first page, pages.
pub fn runs(pages: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((start, nr_pages)) if *start + *nr_pages == page => *nr_pages += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_round_down_and_timers_fire_on_a_tick() {
        let hz = Hz(1000);
        assert_eq!(hz.at(Nanos(1_999_999)), Jiffies(1));
        assert_eq!(hz.timer(Nanos(1_500_000), 3), Nanos(4_000_000));
        assert_eq!(Hz(100).from_ms(3), 1);
        assert_eq!(Hz(100).from_ms(0), 0);
    }

    #[test]
    fn a_tick_clock_agrees_with_the_division_whichever_way_time_goes() {
        for hz in [Hz(100), Hz(250), Hz(1000), Hz(1024)] {
            let mut clock = TickClock::new(hz);
            let tick = hz.start(Jiffies(1)).0;
            for at in [0, 1, tick - 1, tick, tick + 1, 7 * tick, 7 * tick - 1, 3 * tick, 1 << 60, 5] {
                assert_eq!(clock.at(Nanos(at)), hz.at(Nanos(at)), "{at} at {hz:?}");
            }
        }
    }

    #[test]
    fn times_print_in_the_unit_a_person_would_choose() {
        let shown: Vec<String> = [7, 7_300, 8_500_000, 65_432_100_000].map(|ns| Nanos(ns).to_string()).into();
        assert_eq!(shown, ["7 ns", "7.300 us", "8.500 ms", "65.432 s"]);
    }
}
