//! A write behind the end of a file writes the file's last page out first.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::KIND_SYNC;

pub(super) const RULE: Rule = Rule {
    name: "flush-before-zeroing",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "A buffered write writes out a page in front of its own range, and waits for it.",
    why: "What lies between the end of the file and the write has to be zeroed; a kernel that first writes out the \
          dirty pages there makes every such write wait for the device.",
    events: "As many writes and syncs as before; but most writes now start writeback of a page in front of their own, \
             and sleep until it is done.",
    example: "6.12-rc on XFS (c5c810b94cfd): records of odd sizes with gaps between them.",
    change: "A kernel that flushes only over unwritten extents (6.12); records that end on a page; no gaps.",
    refute: "Records without gaps wait as long.",
    since: "6.12-rc1 and its stable backports.",
    consequences: &["synchronous-writes", "device-latency", "writeback-throttling", "early-writeback"],
    switches: &[Switch::Other("filesystem.flush_gap"), Switch::OtherKind("filesystem.")],
    find,
    cost: None,
};

/// Pages for a write that are written out in front of it: on the slow side at least, on the fast one at most.
const EACH: f64 = 0.3;
const FEW: f64 = 0.1;
/// Factor by which syncs for a write may be more: beyond it the program syncs.
const MORE_SYNCS: f64 = 1.2;
/// Factors by which a write waits longer, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let for_a_write = |nr: u64, writes: u64| nr as f64 / writes.max(1) as f64;
    let front = delta.of(|d| for_a_write(d.sync.in_front, d.workload.calls[1]));
    let syncs = delta.of(|d| for_a_write(d.workload.calls[KIND_SYNC], d.workload.calls[1]));
    let takes = delta.of(|d| d.latency[1].mean());
    if front.slow < EACH || front.fast > FEW || syncs.rose(MORE_SYNCS) || takes.slow <= takes.fast {
        return None;
    }
    Some(Match {
        confidence: grade(takes.ratio(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "{:.0} % of the writes first write out the pages just in front of their own, where {:.0} % did",
            100.0 * front.slow,
            100.0 * front.fast
        ),
        evidence: vec![
            Figure::new("share of writes that write out the pages just in front", front, Unit::Share),
            Figure::new("mean time of a write call", takes, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// A hundred writes, each of which writes a page out in front of it on the slow side.
    fn flushed() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.calls = [0, 100, 100]);
            p.slow.sync.in_front = 100;
            p.fast.latency[1] = spread(10, 1000.0);
            p.slow.latency[1] = spread(10, 2000.0);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EACH", |p, x| p.slow.sync.in_front = x as u64, 30.0, 29.0),
            ("FEW", |p, x| p.fast.sync.in_front = x as u64, 10.0, 11.0),
            ("MORE_SYNCS", |p, x| p.slow.workload.calls[2] = x as u64, 119.0, 121.0),
            ("slower", |p, x| p.slow.latency[1] = spread(10, x), 1001.0, 1000.0),
        ];
        hold(&RULE, flushed, 0.7576, edges);
    }
}
