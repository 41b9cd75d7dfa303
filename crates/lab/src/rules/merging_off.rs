//! Bios that continue a request do not join it, although it would hold them.

use super::{Figure, Match, Rule, Switch, grade};
use crate::explain::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "merging-off",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Bios that continue a waiting request get requests of their own.",
    why: "What could be one command is several: each costs the CPU, the driver and the device once.",
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
    use crate::explain::{Delta, Side, digest::Digest};
    use crate::rules::tests::{explain_pair, names};
    use iowhy_stack::units::Nanos;

    /// Runs in which bios of a page continue one another; so many of a hundred join, so many sectors make a request.
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

    fn job(depth: u32, rw: &str, on: &str, disk: &str) -> String {
        format!(
            "run fio --name=j --rw={rw} --bs=4k --size=4m --direct=1 --ioengine=libaio --iodepth={depth} \
             --iodepth_batch_submit=16 --iodepth_batch_complete=16 --on sim:{on} --disk {disk}"
        )
    }

    #[test]
    fn nomerges_under_a_job_whose_bios_join_is_found() {
        for (rw, on, disk) in [
            ("read", "linux-2.6.38,elevator=deadline", "sata-2010"),
            ("write", "linux-3.3,elevator=deadline", "sata-2010,queue_depth=1"),
            ("read", "linux-4.4,elevator=noop", "sata-2014,queue_depth=1"),
            ("read", "linux-6.18,nr_requests=64", "sata-2014,queue_depth=1"),
        ] {
            let found = explain_pair(3, &job(32, rw, on, disk), &job(32, rw, &format!("{on},nomerges=2"), disk));
            assert_eq!(names(&found).first(), Some(&"merging-off"), "{on}: {found:#?}");
            assert!(!names(&found).contains(&"requests-cut"), "{on}: {found:#?}");
        }
    }

    #[test]
    fn what_nomerges_does_not_touch_and_smaller_requests_are_not_called_so() {
        let (old, disk) = ("linux-4.4,elevator=deadline", "sata-2014,queue_depth=1");
        for (depth, key, other) in [
            // A stream joins the request that was joined last.
            (32, "nomerges=1", disk),
            (1, "nomerges=2", disk),
            (32, "max_sectors_kb=16", disk),
            (32, "nomerges=0", "sata-2014,queue_depth=1,rpm=5400"),
        ] {
            let b = job(depth, "read", &format!("{old},{key}"), other);
            let found = explain_pair(3, &job(depth, "read", old, disk), &b);
            assert!(!names(&found).contains(&"merging-off"), "{b}: {found:#?}");
        }
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
