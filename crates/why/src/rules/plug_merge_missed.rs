//! A bio is compared with the wrong request of a plug list.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "plug-merge-missed",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "A bio that continues the newest request of its task's plug list is compared with the oldest, and joins \
           none.",
    why: "blk-mq makes one attempt to merge a bio into a plug list; at the wrong end it finds a neighbour only while \
          the list has a single request, and several commands replace one.",
    events: "Bios are as large as before, and as many continue a request that has not been issued; before, most joined \
             it, now one for each list does.",
    example: "Linux 6.13 to 6.15 (e70c301faece): buffered writes to a device whose buffers are half a page.",
    change: "A kernel with the repair (6.16, and stable kernels); larger bios, for example by a larger block size.",
    refute: "With the order of lists of 6.12 (a revert of e70c301faece) the bios still do not join.",
    since: "6.13 to 6.15, and stable kernels until the repair.",
    consequences: &["merging-off", "requests-cut"],
    switches: &[Switch::Patch("plug-tail"), Switch::Other("plug")],
    find,
    cost: None,
};

/// Ratio of bio sizes: larger bios leave less to merge.
const EQUAL: Range<f64> = 0.9..1.1;
/// Share of bios that could join: with fewer, merging saves few commands.
const COULD: f64 = 0.1;
/// Share of these that join on the fast side, and on the slow one.
const JOINED: f64 = 0.3;
const STILL_JOINED: f64 = 0.2;
/// Bios that join for each list that is let go: the second one of the list does.
const A_LIST: Range<f64> = 0.5..1.5;
/// Ratio of request sizes, and those for half sure and sure.
const SMALLER: f64 = 1.2;
const GRADE: (f64, f64) = (1.1, 1.8);

fn find(delta: &Delta<'_>) -> Option<Match> {
    for (way, name) in ["read", "write"].into_iter().enumerate() {
        let part = |joined: u64, could: u64| if could == 0 { 0.0 } else { joined as f64 / could as f64 };
        let joined = delta.of(|d| part(d.bios.joined[way], d.bios.could_join[way]));
        let could = delta.of(|d| part(d.bios.could_join[way], d.bios.count[way]));
        let size = delta.of(|d| d.bios.sizes[way].mean() * 512.0);
        let request = delta.of(|d| d.commands.sizes[way].mean() * 512.0);
        let a_list = delta.of(|d| part(d.bios.joined[way], d.plugs.batch.count()));
        let lost = joined.fast > JOINED && joined.slow < STILL_JOINED && could.slow > COULD;
        if lost && EQUAL.contains(&size.ratio()) && A_LIST.contains(&a_list.slow) && request.fell(SMALLER) {
            return Some(Match {
                confidence: grade(request.fast / request.slow.max(1.0), GRADE.0, GRADE.1),
                share_ns: None,
                claim: format!(
                    "of {name} bios that continue a request in their task's plug only {:.0} % join it, one a list, \
                     where {:.0} % did",
                    100.0 * joined.slow,
                    100.0 * joined.fast
                ),
                evidence: vec![
                    Figure::new(format!("share of the {name} bios that could join and did"), joined, Unit::Share),
                    Figure::new("bios that join for each list", a_list, Unit::Count),
                    Figure::new(format!("mean {name} request"), request, Unit::Bytes),
                ],
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// A thousand bios in 50 lists, half of which continue another: all of these join, then one a list does.
    fn missed() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                (d.bios.count[1], d.bios.could_join[1]) = (1000, 500);
                d.bios.sizes[1] = spread(1, 1000.0);
                d.plugs.batch = spread(50, 16.0);
            });
            (p.fast.bios.joined[1], p.slow.bios.joined[1]) = (500, 50);
            p.fast.commands.sizes[1] = spread(1, 1500.0);
            p.slow.commands.sizes[1] = spread(1, 1000.0);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL, smaller", |p, x| p.slow.bios.sizes[1] = spread(1, x), 900.0, 899.0),
            ("EQUAL, larger", |p, x| p.slow.bios.sizes[1] = spread(1, x), 1099.0, 1100.0),
            ("COULD", |p, x| p.slow.bios.count[1] = x as u64, 4999.0, 5000.0),
            ("JOINED", |p, x| p.fast.bios.joined[1] = x as u64, 151.0, 150.0),
            ("STILL_JOINED", |p, x| p.slow.bios.could_join[1] = x as u64, 251.0, 250.0),
            ("A_LIST, fewer", |p, x| p.slow.bios.joined[1] = x as u64, 25.0, 24.0),
            ("A_LIST, more", |p, x| p.slow.bios.joined[1] = x as u64, 74.0, 75.0),
            ("SMALLER", |p, x| p.fast.commands.sizes[1] = spread(1, x), 1201.0, 1200.0),
        ];
        hold(&RULE, missed, 0.8149, edges);
    }
}
