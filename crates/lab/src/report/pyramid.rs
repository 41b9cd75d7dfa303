//! The whole run by lanes, in bins of equal length: the base of a pyramid whose upper layers a reader makes by joining
//! neighbours.
//!
//! ```text
//! calls, plug, queue, device   least and most at once, and the share of the bin in which there is any, in thousandths;
//!                              queue: requests on their way to the device, in a plug or with the elevator
//! starved                      share with something in the queue and nothing at the device, in thousandths
//! pages                        hit, missed, added, removed in the bin
//! windows                      decided in the bin, and the pages of the largest
//! ```
//! A run has a bin for each [`EVENTS`] events, and between the fewest and the most bins. Events before and after the
//! run are in no bin. A number of a moment without length counts as the most, not as the least.

use iowhy_stack::event::{Event, EventSink, What};
use iowhy_stack::lifecycle::Lifecycle;
use serde::Serialize;

use super::survey::Survey;

/// Fewest bins, and most.
pub const LEAST_BINS: u64 = 1 << 10;
pub const MOST_BINS: u64 = 1 << 16;
/// Events for a bin.
const EVENTS: u64 = 16;
/// All of a bin.
const WHOLE: u64 = 1000;

/// A number that rises and falls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Fewest at once.
    pub least: Vec<u32>,
    /// Most at once.
    pub most: Vec<u32>,
    /// Share of the bin in which there is any, thousandths.
    pub share: Vec<u32>,
}

/// Pages in each bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    pub hit: Vec<u32>,
    pub missed: Vec<u32>,
    pub added: Vec<u32>,
    pub removed: Vec<u32>,
}

/// Windows in each bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WindowCounts {
    pub nr: Vec<u32>,
    /// Pages of the largest.
    pub pages: Vec<u32>,
}

/// All lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pyramid {
    /// Length of a bin; 0 without bins.
    pub bin_ns: u64,
    pub calls: Level,
    pub pages: PageCounts,
    pub windows: WindowCounts,
    pub plug: Level,
    pub queue: Level,
    pub device: Level,
    /// Share of the bin that is a stall, thousandths.
    pub starved: Vec<u32>,
}

/// A level while it is counted.
#[derive(Debug)]
struct Counted {
    now: u32,
    of: Level,
    /// Time with any, ns.
    busy: Vec<u64>,
}

/// Makes it, of a surveyed run.
#[derive(Debug)]
pub struct Base {
    begin: u64,
    end: u64,
    bin_ns: u64,
    bins: usize,
    at: u64,
    /// Calls, plug, queue, device.
    levels: [Counted; 4],
    starved: Vec<u64>,
    pages: [Vec<u32>; 4],
    windows: [Vec<u32>; 2],
    life: Lifecycle<()>,
}

impl Base {
    /// With at most this many bins.
    pub fn new(survey: &Survey, most: u64) -> Base {
        let (begin, end) = (survey.begins(), survey.ends() + 1);
        let wanted = (survey.nr_events / EVENTS).next_power_of_two().clamp(LEAST_BINS, MOST_BINS);
        let bin_ns = (end - begin).div_ceil(wanted.min(most).max(1)).max(1);
        let bins = (end - begin).div_ceil(bin_ns) as usize;
        let level = || Counted {
            now: 0,
            of: Level { least: vec![u32::MAX; bins], most: vec![0; bins], share: Vec::new() },
            busy: vec![0; bins],
        };
        let counts = || vec![0; bins];
        Base {
            begin,
            end,
            bin_ns,
            bins,
            at: begin,
            levels: [level(), level(), level(), level()],
            starved: vec![0; bins],
            pages: [counts(), counts(), counts(), counts()],
            windows: [counts(), counts()],
            life: Lifecycle::default(),
        }
    }

    /// Levels stay until `now`.
    fn pass(&mut self, now: u64) {
        let now = now.min(self.end);
        while self.at < now {
            let bin = ((self.at - self.begin) / self.bin_ns) as usize;
            let upto = now.min(self.begin + (bin as u64 + 1) * self.bin_ns);
            let long = upto - self.at;
            for level in &mut self.levels {
                level.of.least[bin] = level.of.least[bin].min(level.now);
                level.of.most[bin] = level.of.most[bin].max(level.now);
                level.busy[bin] += if level.now > 0 { long } else { 0 };
            }
            self.starved[bin] += if self.life.queued > 0 && self.life.depth == 0 { long } else { 0 };
            self.at = upto;
        }
    }

    /// The kind of event counted.
    pub fn finish(mut self) -> Pyramid {
        self.pass(self.end);
        let (begin, end, bin_ns) = (self.begin, self.end, self.bin_ns);
        let thousandths = |all: &[u64]| -> Vec<u32> {
            let share = |(bin, ns): (usize, &u64)| {
                let from = begin + bin as u64 * bin_ns;
                (ns * WHOLE).div_ceil((end.min(from + bin_ns) - from).max(1)) as u32
            };
            all.iter().enumerate().map(share).collect()
        };
        let [calls, plug, queue, device] = self.levels.map(|counted| {
            let share = thousandths(&counted.busy);
            Level { share, ..counted.of }
        });
        let [hit, missed, added, removed] = self.pages;
        let [nr, pages] = self.windows;
        Pyramid {
            bin_ns: if self.bins == 0 { 0 } else { bin_ns },
            calls,
            pages: PageCounts { hit, missed, added, removed },
            windows: WindowCounts { nr, pages },
            plug,
            queue,
            device,
            starved: thousandths(&self.starved),
        }
    }
}

impl EventSink for Base {
    fn event(&mut self, event: &Event) {
        self.pass(event.at.0);
        self.life.event(event);
        let inside = (self.begin..self.end).contains(&event.at.0);
        let bin = (event.at.0.saturating_sub(self.begin) / self.bin_ns) as usize;
        let mut count = |kind: usize, nr: u32| {
            if inside {
                self.pages[kind][bin] = self.pages[kind][bin].saturating_add(nr);
            }
        };
        match event.what {
            What::CallStart { .. } => self.levels[0].now += 1,
            What::CallEnd { .. } => self.levels[0].now = self.levels[0].now.saturating_sub(1),
            What::Hit { nr_pages, .. } => count(0, nr_pages),
            What::Fault { major, .. } => count(usize::from(major), 1),
            What::Miss { .. } => count(1, 1),
            What::PageAdd { nr_pages, .. } => count(2, nr_pages),
            What::PageRemove { nr_pages, .. } => count(3, nr_pages),
            What::RaWindow { nr_pages, .. } if inside => {
                self.windows[0][bin] += 1;
                self.windows[1][bin] = self.windows[1][bin].max(nr_pages);
            }
            What::Plug => self.levels[1].now += 1,
            What::Unplug { .. } => self.levels[1].now = self.levels[1].now.saturating_sub(1),
            _ => {}
        }
        (self.levels[2].now, self.levels[3].now) = (self.life.queued, self.life.depth);
        if inside {
            for level in &mut self.levels {
                level.of.most[bin] = level.of.most[bin].max(level.now);
            }
        }
    }
}

/// Two listeners to one replay.
#[derive(Debug)]
pub struct Both<'a, A, B>(pub &'a mut A, pub &'a mut B);

impl<A: EventSink, B: EventSink> EventSink for Both<'_, A, B> {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
    }
}
