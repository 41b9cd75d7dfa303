//! A read-ahead limit of 0: no window at all.
//!
//! The rule looks for pages that come one by one, though calls ask for several; see `alone.rs` for causes that look
//! like advice.

use super::alone::{self, Alone};
use super::{Match, Rule};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "readahead-off",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "The read-ahead limit is 0, and so every page is read for itself.",
    why: "With read_ahead_kb=0 the page cache has no window to read with. Each missing page becomes a request of 4 KiB \
          that is waited for before the next one is asked for, however large the call is.",
    events: "No windows: single pages, one after the other, as many waits as pages.",
    example: "`blockdev --setra 0` under a sequential reader with calls of 64 KiB: 16 waits a call instead of one for \
              four calls.",
    change: "Set read_ahead_kb of the device back to 128 or more, and open the files again.",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel since 2.6; the limit is copied when a file is opened.",
    consequences: &["window-too-small", "slice-idling", "lost-locality", "device-latency", "device-bandwidth"],
    switches: &[
        super::Switch::Other("read_ahead_kb"),
        super::Switch::Queue("read_ahead_kb"),
        super::Switch::QueueTo("read_ahead_kb", "128"),
    ],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let claim = "every page is read for itself";
    alone::found(delta, Alone::Off, (0.95, 0.6), claim, "; advice that reads are random would look the same")
}
