//! Writeback: when dirty pages are written without a request, and when writers must wait.

mod bdflush_2_4;
mod flusher;
mod pdflush_2_6;

use crate::origin::{Entry, OptionSpec, Options};
use crate::units::Nanos;

/// The base of the percentages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// All memory (2.6.0 .. 2.6.21).
    Total,
    /// Free memory and the page cache (2.4; 2.6.22 and later).
    Available,
}

/// The rules of one kernel, as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The base of the percentages.
    pub base: Base,
    /// Dirty share at which writers must write or wait, percent.
    pub dirty_pct: u64,
    /// Dirty share at which the daemon starts, percent.
    pub background_pct: u64,
    /// Dirty share at which it stops, percent.
    pub stop_pct: u64,
    /// Pages between two checks by a writer.
    pub check_pages: u64,
    /// Pages a throttled writer writes before it may go on; no limit: it waits until enough is clean.
    pub throttle_pages: u64,
    /// Pages the daemon takes in one round.
    pub round_pages: u64,
    /// Time between rounds for old pages.
    pub interval: Nanos,
    /// Age from which a page is old.
    pub age: Nanos,
    /// Dirty pages are taken one by one (2.4) or, file by file, in runs.
    pub by_file: bool,
}

impl Rules {
    /// The number of pages behind a percentage.
    pub fn pages(&self, pct: u64, total: u64, available: u64) -> u64 {
        let base = match self.base {
            Base::Total => total,
            Base::Available => available,
        };
        base * pct / 100
    }
}

/// Makes the rules.
pub type Build = fn(&Options) -> Rules;

/// Every way of writing back.
pub const WRITEBACKS: &[&Entry<Build>] = &[&bdflush_2_4::ENTRY, &pdflush_2_6::ENTRY, &flusher::ENTRY];

/// The tunables all of them have.
const fn options(dirty: i64, background: i64, stop: i64) -> [OptionSpec; 5] {
    const PCT: (i64, i64) = (0, 100);
    [
        OptionSpec::number("dirty_ratio", dirty, PCT, "percent dirty at which writers must write or wait"),
        OptionSpec::number("dirty_background_ratio", background, PCT, "percent dirty at which the daemon starts"),
        OptionSpec::number("background_stop_ratio", stop, PCT, "percent dirty at which it stops"),
        OptionSpec::number("writeback_interval_ms", 5_000, (10, 3_600_000), "time between rounds for old pages"),
        OptionSpec::number("expire_ms", 30_000, (0, 36_000_000), "age from which a page is old"),
    ]
}

fn rules(
    options: &Options,
    base: Base,
    by_file: bool,
    check_pages: u64,
    throttle_pages: u64,
    round_pages: u64,
) -> Rules {
    Rules {
        base,
        dirty_pct: options.unsigned("dirty_ratio"),
        background_pct: options.unsigned("dirty_background_ratio"),
        stop_pct: options.unsigned("background_stop_ratio"),
        check_pages,
        throttle_pages,
        round_pages,
        interval: Nanos::from_ms(options.unsigned("writeback_interval_ms")),
        age: Nanos::from_ms(options.unsigned("expire_ms")),
        by_file,
    }
}
