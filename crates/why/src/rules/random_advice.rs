//! Advice that reads are random (POSIX_FADV_RANDOM, MADV_RANDOM), given for reads that are not.
//!
//! Reads go exactly as asked, with nothing ahead. The rule looks for pages that come without windows on the slow side
//! only, in pieces as large as calls; see `alone.rs` for causes that look like a limit of 0.

use super::alone::{self, Alone};
use super::{Match, Rule};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "random-advice",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "The file or mapping was advised to be read at random, and so nothing is read ahead.",
    why: "With POSIX_FADV_RANDOM or MADV_RANDOM every read goes to the device exactly as it was asked for, and is \
          waited for. Sequential readers lose the overlap of reading and computing, and large requests. Kernels before \
          2.6.34 read each page of a call alone.",
    events: "No windows: reads are as large as the calls (before 2.6.34, and in mappings, single pages), and every \
             call waits.",
    example: "`fio --rw=read --bs=16k --fadvise_hint=random` against the same without: 1.6 times the time on an SSD.",
    change: "Leave the advice out, or give it only to files that are read at random.",
    refute: "Without the advice the difference stays.",
    since: "Every kernel since 2.6; page by page until 2.6.33.",
    consequences: &["window-too-small", "slice-idling", "lost-locality", "device-latency", "device-bandwidth"],
    switches: &[super::Switch::Word("--fadvise_hint=0"), super::Switch::OtherJob, super::Switch::NoAdvice],
    find,
    cost: Some(super::alone::cost_of_advice),
};

/// Confidence with reads as large as calls, and where a limit of 0 looks the same: then either may be it.
const SURE: (f64, f64) = (0.95, 0.55);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let claim = "reads go as they were asked for, without windows";
    alone::found(delta, Alone::Advice, SURE, claim, "; a limit of 0 would look the same")
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Pair, hold, sure};
    use super::RULE;
    use iowhy_stack::event::RaKind;

    /// Windows on the fast side; on the slow one ten reads of ten pages each, without any.
    fn advised() -> Pair {
        Pair::of(|p| {
            p.fast.windows.pages[RaKind::Sync as usize] = 100;
            p.slow.windows.pages[RaKind::Force as usize] = 100;
            p.slow.windows.count[RaKind::Force as usize] = 10;
            (p.fast.time.waits, p.slow.time.waits) = (5, 10);
        })
    }

    #[test]
    fn limits() {
        let pages_alone: fn(&mut Pair, f64) = |p, x| p.slow.windows.count[RaKind::Force as usize] = x as u64;
        hold(&RULE, advised, 0.95, &[("no windows", |p, x| p.slow.windows.pages[0] = x as u64, 1.0, 2.0)]);
        sure(&RULE, advised, &[("SURE", pages_alone, 66.0, 0.95), ("SURE, either", pages_alone, 67.0, 0.55)]);
    }
}
