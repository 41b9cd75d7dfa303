//! Bios that merge into one large request are all done when the last of them is.
//!
//! Known limit: no pair of simulated runs has been found in which this makes a job slower by itself (2.6.38 with noop
//! and larger requests is faster, for a command costs more than the wait for its last page): the rule is held by
//! made-up digests only.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "merge-delays-first-page",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Small reads wait for a large merged request: their page is done only when all of the request is.",
    why: "A page that is asked for is put behind, or in one request with, pages that are not yet; the caller sleeps \
          until the whole request has been transferred.",
    events: "Bios are as large as before but more of them join; read requests are larger, and a call that needs a \
             small part of one waits longer at the device, though the device moves as many bytes a second.",
    example: "A lazy plug that joins the read-ahead of two windows; noop, which merges whatever stands side by side.",
    change: "Lower max_sectors_kb to about the size that the application asks for, or read ahead less.",
    refute: "With requests as small as on the other side the calls wait as long.",
    since: "Every kernel that merges.",
    consequences: &[],
    switches: &[Switch::Other("max_sectors_kb"), Switch::OtherKind("plug."), Switch::Other("elevator")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let request = delta.of(|d| d.commands.sizes[0].mean() * 512.0);
    let bio = delta.of(|d| d.bios.sizes[0].mean() * 512.0);
    let call = delta.of(|d| d.workload.bytes[0] as f64 / d.workload.calls[0].max(1) as f64);
    let joined = delta.of(|d| d.bios.joined[0] as f64 / d.bios.count[0].max(1) as f64);
    let wait = delta.of(|d| d.latency[0].quantile(0.99));
    let bytes = delta.per_operation(|d| d.commands.sectors[0] as f64 * 512.0);
    let equal = (0.9..1.1).contains(&bio.ratio()) && (0.9..1.1).contains(&bytes.ratio());
    let merged = request.rose(1.3) && joined.rose_by(0.1);
    if !(equal && merged && call.slow * 2.0 <= request.slow && wait.rose(1.2)) {
        return None;
    }
    Some(Match {
        confidence: grade(request.ratio(), 1.2, 3.0).min(0.8),
        share_ns: None,
        claim: format!(
            "reads of {:.0} KB wait for requests of {:.0} KB, into which {:.0} % of the bios were merged",
            call.slow / 1024.0,
            request.slow / 1024.0,
            100.0 * joined.slow
        ),
        evidence: vec![
            Figure::new("mean read request", request, Unit::Bytes),
            Figure::new("mean read bio", bio, Unit::Bytes),
            Figure::new("share of bios that joined a request", joined, Unit::Share),
            Figure::new("longest read calls (99 %)", wait, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::{Delta, Side, digest::Digest};
    use iowhy_stack::units::Nanos;

    /// Reads of a page, with bios joined of a hundred, and sectors of a request.
    fn side(joined: u64, sectors: u64, call: u64, time: u64) -> Side {
        let run = |nr: u64| {
            let mut run = Digest { elapsed: Nanos(time + nr), ..Digest::default() };
            (0..100).for_each(|_| run.latency[0].add(time / 100));
            run.workload.calls[0] = 100;
            run.workload.bytes[0] = 100 * call;
            run.bios.count[0] = 100;
            run.bios.joined[0] = joined;
            run.bios.sizes[0].add(8);
            run.commands.sizes[0].add(sectors);
            run.commands.sectors[0] = 800;
            run
        };
        Side { runs: (0..3).map(run).collect(), ..Side::default() }
    }

    #[test]
    fn small_reads_in_large_requests_wait_for_all_of_them() {
        for (joined, sectors, call, expected) in
            [(90, 80, 4096, true), (90, 80, 40_960, false), (5, 80, 4096, false), (90, 8, 4096, false)]
        {
            let (fast, slow) = (side(0, 8, call, 1_000_000), side(joined, sectors, call, 2_000_000));
            let found = super::find(&Delta::new(&fast, &slow));
            assert_eq!(found.is_some(), expected, "{joined} {sectors} {call}: {found:?}");
        }
    }
}
