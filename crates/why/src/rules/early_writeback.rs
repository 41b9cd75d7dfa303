//! Dirty pages are written while the program still works, and its reads wait behind them.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "early-writeback",
    layer: "journal/writeback",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Writing back begins early and competes with the program's reads; no writer is stopped.",
    why: "Dirty pages have to be written some day; if that is at once, pages that are changed again are written again, \
          and each write takes the device from a read with a waiting task.",
    events: "Writes at the device that no call waits for, more of them for an operation, while reads wait; no writer \
             sleeps.",
    example: "dirty_background_ratio=0 (or dirty_background_bytes of a few kilobytes) set to keep pauses short.",
    change: "Raise dirty_background_ratio and dirty_expire_centisecs; a scheduler that prefers reads (deadline, BFQ).",
    refute: "With the other side's limits for the background the reads take as long.",
    since: "Every kernel.",
    consequences: &["lost-locality", "reads-starved", "device-latency"],
    switches: &[Switch::OtherKind("writeback."), Switch::Other("machine.memory_mb")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let buffered = delta.of(|d| d.workload.calls[1].saturating_sub(d.workload.direct[1]) as f64);
    let written = delta.per_operation(|d| d.commands.written_back as f64);
    let behind = delta.per_operation(|d| d.commands.behind_writeback as f64);
    let reads = delta.per_operation(|d| d.latency[0].sum() / f64::from(d.time.slots.max(1)));
    let throttles = delta.per_operation(|d| d.sync.throttles as f64);
    // A drive takes writes into its cache at once and has to put them down later: each takes a command's time then.
    let price = delta.of(|d| {
        let commands = (d.commands.issued[0] + d.commands.issued[1]).max(1);
        d.commands.busy as f64 / commands as f64 / f64::from(d.time.slots.max(1))
    });
    let later = written.difference() * price.fast;
    let owned = behind.difference().max(later).min(reads.difference());
    if buffered.slow < 10.0
        || !written.rose(1.5)
        || throttles.slow > 1.2 * throttles.fast
        || owned < 0.1 * delta.slower_by()
    {
        return None;
    }
    Some(Match {
        confidence: grade(written.ratio(), 1.2, 3.0),
        share_ns: Some(owned),
        claim: format!(
            "{:.2} requests of an operation write dirty pages back while the program reads (before {:.2}), though no \
             writer is stopped",
            written.slow, written.fast
        ),
        evidence: vec![
            Figure::new("requests that write back for an operation", written, Unit::Count),
            Figure::new("time of reads behind them for an operation", behind, Unit::Ns),
            Figure::new("time of reads for an operation", reads, Unit::Ns),
            Figure::new("stops of writers for an operation", throttles, Unit::Count),
        ],
    })
}
