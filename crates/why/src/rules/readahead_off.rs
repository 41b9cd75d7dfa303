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
    why: "With read_ahead_kb=0, or a page of it, the page cache has no window to read with: a request has one page, or \
          those of one small call, and is waited for before the next one is asked for, or nearly so.",
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
    cost: Some(|facts| super::reads::cost_of_limit(facts, true)),
};

/// Confidence where only a limit of 0 looks like this.
const SURE: f64 = 0.95;
/// Confidence where advice looks like this, too: a little above that of the advice, for a limit is set for all files.
const EITHER: f64 = 0.6;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let claim = "every page is read for itself";
    alone::found(delta, Alone::Off, (SURE, EITHER), claim, "; advice that reads are random would look the same")
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, windows};
    use super::RULE;
    use crate::digest::Layer;
    use iowhy_stack::event::RaKind::{self, Async, Single};
    use iowhy_stack::event::UnplugCause;
    use iowhy_stack::units::PAGE_BYTES;

    /// Reads of four pages that come one by one on the slow side; events do not tell why.
    fn either() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.bytes[0] = 40 * PAGE_BYTES);
            windows(&mut p.fast, Async, 2.0, 40.0);
            windows(&mut p.slow, Single, 40.0, 40.0);
            (p.fast.time.waits, p.slow.time.waits) = (2, 40);
        })
    }

    /// The same where tasks have plugs: such kernels read calls as they are when advised to.
    fn off() -> Pair {
        Pair::of(|p| {
            *p = either();
            p.slow.plugs.unplugs[UnplugCause::Finish as usize] = 1;
        })
    }

    #[test]
    fn limits() {
        let limit: Edge = (
            "read_ahead_kb",
            |p, x| {
                let mut settings = iowhy_trace::settings::Settings::default();
                settings.values.insert(("sda".into(), "read_ahead_kb".into()), x.to_string());
                p.sides[1].settings = vec![settings];
            },
            4.0,
            5.0,
        );
        let edges: &[Edge] = &[limit, ("EITHER", |p, x| p.slow.time.waits = x as u64, 3.0, 2.0)];
        hold(&RULE, either, 0.6, edges);
        let edges: &[Edge] = &[limit, ("SURE", |p, x| p.slow.time.waits = x as u64, 3.0, 2.0)];
        hold(&RULE, off, 0.95, edges);
    }

    #[test]
    fn costs() {
        // Windows of a page and no requests: reads wait for the process that serves them.
        let served = || {
            Alone::of(|a| {
                a.set("/view", "read_ahead_kb", "0");
                a.streams = 1.0;
                a.digest.workload.calls[0] = 10;
                a.digest.windows.count[RaKind::Single as usize] = 320;
                a.digest.windows.pages[RaKind::Single as usize] = 320;
                a.digest.time.ns[0][Layer::Lock as usize] = 5e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("of a mount", |a, x| a.set("/view", "read_ahead_kb", &x.to_string()), 4.0, 256.0),
            ("windows", |a, x| a.digest.windows.pages[RaKind::Single as usize] = 320 * x as u64, 8.0, 32.0),
        ];
        hold_cost(&RULE, served, (48.4, 0.85), edges);
    }
}
