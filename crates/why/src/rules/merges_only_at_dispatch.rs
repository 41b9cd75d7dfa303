//! Requests enter the scheduler when it is asked for one: bios find none to join.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "merges-only-at-dispatch",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Bios get requests of their own, and these are united only when the scheduler is asked for the next one.",
    why: "A request holds a tag until it is united. With a full device nobody asks, so the tags run out, submitters \
          sleep, and no more can be united than there are tags.",
    events: "Bios that joined waiting requests no longer do; requests are united with one another instead, and what \
             reaches the device is smaller.",
    example: "mq-deadline with insertion lists (574e7779cf58, early 2024): sequential writers on one disk.",
    change: "Another scheduler or kernel; a larger nr_requests, as far as memory for requests goes.",
    refute: "With nr_requests of everything in flight the requests are as small.",
    since: "Trees of early 2024 only.",
    consequences: &["merging-off", "requests-cut"],
    switches: &[Switch::Other("late_insertion"), Switch::Other("elevator")],
    find,
    cost: None,
};

/// Share of the bios that join a request on the fast side, and on the slow one.
const JOINED: f64 = 0.3;
const STILL_JOINED: f64 = 0.1;
/// By how much the share of the requests that are united with another has grown: where tags have run out few meet, and
/// where nothing merges (nomerges=2) none is united.
const UNITED: f64 = 0.02;
/// Ratio of request sizes, and those for half sure and sure.
const SMALLER: f64 = 1.2;
const GRADE: (f64, f64) = (1.1, 2.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let bios = |d: &crate::digest::Digest| (d.bios.count[0] + d.bios.count[1]).max(1) as f64;
    let joined = delta.of(|d| (d.commands.merges[0] + d.commands.merges[1]) as f64 / bios(d));
    let united = delta.of(|d| d.commands.merges[2] as f64 / bios(d));
    let size = delta.of(|d| {
        let issued = d.commands.issued[0] + d.commands.issued[1];
        (d.commands.sectors[0] + d.commands.sectors[1]) as f64 * 512.0 / issued.max(1) as f64
    });
    let moved = joined.fast > JOINED && joined.slow < STILL_JOINED && united.rose_by(UNITED);
    if !(moved && size.fell(SMALLER)) {
        return None;
    }
    Some(Match {
        confidence: grade(size.fast / size.slow.max(1.0), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "{:.0} % of the bios join a request, where {:.0} % did; {:.0} % become requests that are united later",
            100.0 * joined.slow,
            100.0 * joined.fast,
            100.0 * united.slow
        ),
        evidence: vec![
            Figure::new("share of the bios that join a request", joined, Unit::Share),
            Figure::new("requests united with another, for a bio", united, Unit::Share),
            Figure::new("mean request", size, Unit::Bytes),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold};
    use super::RULE;

    /// Of a thousand bios nine in ten join; then none does, and half of their requests are united.
    fn late() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.bios.count[1] = 1000;
                d.commands.sectors[1] = 8000;
            });
            (p.fast.commands.merges, p.fast.commands.issued) = ([900, 0, 0], [0, 100]);
            (p.slow.commands.merges, p.slow.commands.issued) = ([0, 0, 850], [0, 150]);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("JOINED", |p, x| p.fast.commands.merges[0] = x as u64, 301.0, 300.0),
            ("STILL_JOINED", |p, x| p.slow.commands.merges[0] = x as u64, 99.0, 100.0),
            ("UNITED", |p, x| p.fast.commands.merges[2] = x as u64, 829.0, 831.0),
            ("SMALLER", |p, x| p.slow.commands.issued[1] = x as u64, 121.0, 120.0),
        ];
        hold(&RULE, late, 0.7594, edges);
    }
}
