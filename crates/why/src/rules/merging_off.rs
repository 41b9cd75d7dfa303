//! Bios that continue a request do not join it, although it would hold them.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "merging-off",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Bios that continue a waiting request get requests of their own.",
    why: "Several commands replace a single one: each costs the CPU, the driver and the device once.",
    events: "Bios are as large as before, and as many continue a request that has not been issued; before, most of \
             these joined it, now none does, though it has room.",
    example: "nomerges=2 left in sysfs after a benchmark; a stacked device that hands on each bio at once.",
    change: "Write 0 to queue/nomerges; have the program ask for larger pieces.",
    refute: "With nomerges at 0 on the slow side the bios still do not join.",
    since: "nomerges in sysfs since 2.6.26, its value 2 since 2.6.36; before, elevators without merging.",
    // Where nothing joins, the largest request is the largest bio.
    consequences: &["requests-cut"],
    switches: &[
        Switch::Other("nomerges"),
        Switch::Key("nomerges", "0"),
        Switch::Queue("nomerges"),
        Switch::QueueTo("nomerges", "0"),
        Switch::Other("elevator"),
    ],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    for (way, name) in ["read", "write"].into_iter().enumerate() {
        let part = |joined: u64, could: u64| if could == 0 { 0.0 } else { joined as f64 / could as f64 };
        let joined = delta.of(|d| part(d.bios.joined[way], d.bios.could_join[way]));
        let could = delta.of(|d| part(d.bios.could_join[way], d.bios.count[way]));
        let size = delta.of(|d| d.bios.sizes[way].mean() * 512.0);
        let request = delta.of(|d| d.commands.sizes[way].mean() * 512.0);
        let equal = (0.9..1.1).contains(&size.ratio());
        if equal && could.fast > 0.1 && could.slow > 0.1 && joined.fast > 0.3 && joined.slow < 0.1 && request.fell(1.2)
        {
            return Some(Match {
                confidence: grade(request.fast / request.slow.max(1.0), 1.1, 2.0),
                share_ns: None,
                claim: format!(
                    "{name} bios that continue a request no longer join it: {:.0} % do, where {:.0} % did",
                    100.0 * joined.slow,
                    100.0 * joined.fast
                ),
                evidence: vec![
                    Figure::new(format!("share of the {name} bios that could join and did"), joined, Unit::Share),
                    Figure::new(format!("share of {name} bios that could join"), could, Unit::Share),
                    Figure::new(format!("mean {name} bio"), size, Unit::Bytes),
                    Figure::new(format!("mean {name} request"), request, Unit::Bytes),
                ],
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::{Delta, Side, digest::Digest};
    use iowhy_stack::units::Nanos;

    /// Runs in which bios of a page continue one another, with bios joined of a hundred, and sectors of a request.
    fn side(joined: u64, sectors: u64, bio: u64, time: u64) -> Side {
        let run = |nr: u64| {
            let mut run = Digest { elapsed: Nanos(time + nr), ..Digest::default() };
            (0..10).for_each(|_| run.latency[0].add(time / 10));
            run.bios.count[0] = 100;
            run.bios.could_join[0] = 90;
            run.bios.joined[0] = joined;
            run.bios.sizes[0].add(bio);
            run.commands.sizes[0].add(sectors);
            run
        };
        Side { runs: (0..3).map(run).collect(), ..Side::default() }
    }

    #[test]
    fn nothing_joins_any_more() {
        // Joined, sectors of a request and of a bio on the slow side; is it found?
        for (joined, sectors, bio, expected) in
            [(0, 8, 8, true), (8, 9, 8, true), (80, 64, 8, false), (40, 16, 8, false), (0, 64, 64, false)]
        {
            let (fast, slow) = (side(88, 80, 8, 1_000_000), side(joined, sectors, bio, 2_000_000));
            let found = super::find(&Delta::new(&fast, &slow));
            assert_eq!(found.is_some(), expected, "{joined} {sectors} {bio}: {found:?}");
        }
    }
}
