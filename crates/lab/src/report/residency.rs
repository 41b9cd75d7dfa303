//! Pages in the page cache at the begin of a run, in its middle, and at its end.
//!
//! ```text
//! added     from then on in the cache
//! removed   from then on not; a page that was not spoken of before had been there since the begin
//! hit       a page that was not spoken of before has been there since the begin
//! missed    absent until it is added
//! ```
//! Limits: pages that no event speaks of are taken as absent; of many, a trace without hits knows only those that were
//! added.

use iowhy_stack::event::{Event, EventSink, What};

use super::survey::{Pages, Survey};

/// An event has spoken of the page.
const KNOWN: u8 = 1;
const NOW: u8 = 2;
const BEGIN: u8 = 4;
const MIDDLE: u8 = 8;

/// Follows them, of a surveyed run.
#[derive(Debug)]
pub struct Residency {
    middle: u64,
    /// The middle has passed.
    later: bool,
    pages: Pages,
}

impl Residency {
    pub fn new(survey: &Survey) -> Residency {
        Residency { middle: u64::midpoint(survey.begins(), survey.ends()), later: false, pages: Pages::default() }
    }

    /// Shares of each strip of a file, thousandths: at the begin, in the middle, at the end.
    pub fn strips(&self, file: u32, strip_pages: u64, strips: usize) -> [Vec<u32>; 3] {
        let now = |bit: u8| {
            let counted = self.pages.sums(file, strip_pages, strips, |byte| u64::from(byte & bit != 0));
            counted.into_iter().map(|pages| (pages * 1000).div_ceil(strip_pages) as u32).collect()
        };
        [now(BEGIN), now(MIDDLE), now(NOW)]
    }
}

impl EventSink for Residency {
    fn event(&mut self, event: &Event) {
        if !self.later && event.at.0 > self.middle {
            self.later = true;
            self.pages.all(|byte| *byte |= if *byte & NOW > 0 { MIDDLE } else { 0 });
        }
        // What was there all the time was there in the middle.
        let since = KNOWN | NOW | BEGIN | if self.later { MIDDLE } else { 0 };
        match event.what {
            What::PageAdd { file, page, nr_pages } => {
                self.pages.each(file.0, page.0, u64::from(nr_pages), |byte| *byte |= KNOWN | NOW);
            }
            What::PageRemove { file, page, nr_pages, .. } => {
                let gone = |byte: &mut u8| *byte = (*byte | if *byte & KNOWN == 0 { since } else { 0 }) & !NOW;
                self.pages.each(file.0, page.0, u64::from(nr_pages), gone);
            }
            What::Hit { file, page, nr_pages } => {
                let there = |byte: &mut u8| *byte |= if *byte & KNOWN == 0 { since } else { 0 };
                self.pages.each(file.0, page.0, u64::from(nr_pages), there);
            }
            What::Miss { file, page } => self.pages.each(file.0, page.0, 1, |byte| *byte |= KNOWN),
            _ => {}
        }
    }
}
