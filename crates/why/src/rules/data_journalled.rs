//! Data go through the journal, and so are written twice.

use std::ops::Range;

use super::IO;
use super::cost::{Cost, Facts, MARKED};
use super::instead::{Saved, kinds};
use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{KIND_OTHER, KIND_SYNC, Layer};
use iowhy_stack::units::PAGE_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "data-journalled",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Data are written to the journal first, and to their place later.",
    why: "data=journal (and files with the attribute j) write every block twice, the second time at random.",
    events: "As many bytes written by calls, but the device is given many more, and commits log more blocks.",
    example: "An ext4 volume mounted with data=journal; chattr +j.",
    change: "data=ordered, or an external journal on a fast device.",
    refute: "With data=ordered as many bytes reach the device.",
    since: "ext3 and ext4.",
    consequences: &[
        "synchronous-writes",
        "flush-cost",
        "journal-commit-per-fsync",
        "writeback-throttling",
        "device-latency",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Bytes that calls write, slow over fast, if they write equally many.
const AS_MUCH: Range<f64> = 0.9..1.1;
/// Syncs, slow over fast, if they are equally many: their number varies with the time that the run takes.
const AS_OFTEN: Range<f64> = 0.8..1.25;
/// Syncs, below which they log next to nothing.
const FEW_SYNCS: f64 = 2.0;
/// Bytes that calls write, beyond which data outweigh the metadata of a commit.
const LEAST_BYTES: f64 = 65_536.0;
/// Growth of the bytes logged for each byte written, absolute: half of the data, for some are overwritten in memory.
const LOGGED: f64 = 0.5;
/// The same, relative: metadata are logged on both sides.
const MORE_LOGGED: f64 = 1.5;
/// Growth of the bytes at the device for each byte written: one more, less what is still to be put in its place.
const TWICE: f64 = 0.7;
/// Part of the difference that writes and syncs have to wait longer.
const LEAST_PART: f64 = 0.15;
/// Confidence of bytes written twice where the mount options have changed.
const BOTH_SURE: f64 = 0.97;
/// Growth of the bytes logged for each byte written, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);
/// Highest confidence of one of both.
const MOST_SURE: f64 = 0.85;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let blocks = delta.of(|d| d.sync.blocks as f64 * PAGE_BYTES as f64 / (d.workload.bytes[1].max(1)) as f64);
    let at_device = delta.of(|d| d.commands.sectors[1] as f64 * 512.0 / (d.workload.bytes[1].max(1)) as f64);
    let time = delta.time(|time| time.within(&[1, KIND_SYNC, KIND_OTHER], IO));
    let mode = recorded::setting(delta, |key| key.contains("mount_options"));
    let told = mode.iter().any(|(_, [fast, slow])| slow.contains("data=journal") && !fast.contains("data=journal"));
    let syncs = delta.of(|d| (d.workload.calls[2] + d.workload.written_through) as f64);
    let as_often = told || AS_OFTEN.contains(&syncs.ratio()) || syncs.slow < FEW_SYNCS;
    let equal = AS_MUCH.contains(&written.ratio()) && written.slow > LEAST_BYTES && as_often;
    // More commits log more blocks as well; data that are logged reach the device twice.
    let live = delta.fast.live && delta.slow.live;
    let twice = live && blocks.rose_by(LOGGED) && blocks.rose(MORE_LOGGED) && at_device.rose_by(TWICE);
    if !equal || !(twice || told) || time.difference() < LEAST_PART * delta.slower_by() {
        return None;
    }
    Some(Match {
        confidence: if twice && told { BOTH_SURE } else { grade(blocks.ratio(), GRADE.0, GRADE.1).min(MOST_SURE) },
        share_ns: None,
        claim: format!(
            "the journal logs {:.2} bytes for each byte written, against {:.2}{}",
            blocks.slow,
            blocks.fast,
            if told { " (data=journal)" } else { "" }
        ),
        evidence: vec![
            Figure::new("bytes logged for each byte written", blocks, Unit::Ratio),
            Figure::new("bytes at the device for each byte written", at_device, Unit::Ratio),
        ],
    })
}

/// The part of the code in writes that the journal adds, block by block: likely, and at most (a `dd` in 6.18: 0.32 s
/// against 0.06 s).
const CODE: f64 = 0.5;
const MOST_CODE: f64 = 0.9;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let bytes = facts.digest.workload.bytes[1] as f64;
    if bytes < LEAST_BYTES {
        return None;
    }
    let logged = facts.digest.sync.blocks as f64 * PAGE_BYTES as f64;
    let (marked, setting) = match facts.mounted_with("data=journal") {
        Some(point) => (format!("{point} is mounted with data=journal"), "data=ordered"),
        // Others may have been written.
        None if logged < LOGGED * bytes => return None,
        None => {
            let (point, files) = facts.journalled_files()?;
            (
                format!("files on {point} have the attribute j ({files} of those seen)"),
                "chattr -j, before they are written",
            )
        }
    };
    let time = facts.of_kinds(&[1, KIND_SYNC, KIND_OTHER], IO);
    let twice = facts.digest.commands.sectors[1] as f64 * 512.0 / bytes;
    let (commands, sync) = (&facts.digest.commands, &facts.digest.sync);
    let [ready, busy] = [facts.of_kinds(kinds(1), &[Layer::Ready]), commands.own_busy[1] as f64];
    // Once, the device has fewer bytes by that factor, and the journal commits when it is asked to instead of whenever
    // it is full of data; waits for a CPU come with waits for the device. At least the bytes are fewer; at most nobody
    // waits.
    // One with nothing before it: others last as long as the data that they wait for.
    let flushes = (sync.flush.count() as f64 * sync.flush.min() as f64).min(busy);
    let syncs = (facts.digest.workload.calls[2] + facts.digest.workload.written_through).max(1) as f64;
    let fewer = (syncs / sync.commits.max(1) as f64).min(1.0);
    let once = 1.0 / twice.max(1.0);
    let [bytes, commits] = [busy * once, (busy - flushes) * once + flushes * fewer];
    let waits = time + ready;
    let gain = |device: f64| waits - (device + ready * device / busy.max(1.0)).min(waits);
    let code = facts.of_kinds(&[1, KIND_SYNC], &[Layer::Cpu]);
    // Who writes into the cache only, as with data in their own place, waits for nothing until there is a sync: half of
    // the way to that.
    let likely = f64::midpoint(gain(commits), waits) + CODE * code;
    let saved = Saved::of(likely, gain(bytes), waits + MOST_CODE * code);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!("{marked}: {twice:.2} bytes go to the device for each one written"),
        setting: setting.to_owned(),
        evidence: vec![
            ("bytes at the device for each byte written", twice, Unit::Ratio),
            ("time that writes and syncs wait", time, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use crate::digest::Layer;

    const DEVICE: usize = Layer::Device as usize;

    /// Writes of a thousand blocks, that are logged once and reach the device once; on the slow side twice.
    fn twice() -> Pair {
        Pair::of(|p| {
            p.sides.iter_mut().for_each(|side| side.live = true);
            p.both(|d| d.workload.bytes[1] = 4_096_000);
            (p.fast.sync.blocks, p.fast.commands.sectors[1]) = (1000, 8000);
            (p.slow.sync.blocks, p.slow.commands.sectors[1]) = (2000, 16_000);
            p.slow.time.ns[1][DEVICE] = 1e6;
        })
    }

    /// The mount options are others, and so are the syncs; nothing is seen of the device.
    fn told() -> Pair {
        let mut pair = twice();
        pair.both(|d| d.commands.sectors[1] = 8000);
        pair.fast.workload.calls[2] = 1000;
        pair.set("file system", "mount_options", ["rw", "rw,data=journal"]);
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MUCH", |p, x| p.slow.workload.bytes[1] = x as u64, 4_505_599.0, 4_505_600.0),
            ("AS_MUCH, less", |p, x| p.slow.workload.bytes[1] = x as u64, 3_686_400.0, 3_686_399.0),
            ("AS_OFTEN", |p, x| syncs(p, 1000, x), 1249.0, 1250.0),
            ("AS_OFTEN, less", |p, x| syncs(p, 1000, x), 800.0, 799.0),
            ("FEW_SYNCS", |p, x| syncs(p, 100, x), 1.0, 2.0),
            ("LEAST_BYTES", |p, x| p.both(|d| d.workload.bytes[1] = x as u64), 65_537.0, 65_536.0),
            ("LOGGED", |p, x| (p.fast.sync.blocks, p.slow.sync.blocks) = (100, x as u64), 600.0, 599.0),
            ("MORE_LOGGED", |p, x| p.slow.sync.blocks = x as u64, 1501.0, 1500.0),
            ("TWICE", |p, x| p.slow.commands.sectors[1] = x as u64, 13_600.0, 13_599.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[1][DEVICE] = x, 150_000.0, 149_999.0),
            (
                "written through",
                |p, x| (p.fast.workload.calls[2], p.slow.workload.written_through) = (9, x as u64),
                8.0,
                7.0,
            ),
            ("recorded", |p, x| p.sides[1].live = x > 0.0, 1.0, 0.0),
            ("recorded, fast", |p, x| p.sides[0].live = x > 0.0, 1.0, 0.0),
        ];
        hold(&RULE, twice, 0.758, edges);
        let edges: &[Edge] = &[
            ("data=journal", |p, x| p.set("file system", "mount_options", ["rw", MODES[x as usize]]), 1.0, 0.0),
            (
                "another mode before",
                |p, x| p.set("file system", "mount_options", [MODES[x as usize], MODES[2]]),
                0.0,
                1.0,
            ),
        ];
        hold(&RULE, told, 0.758, edges);
        sure(
            &RULE,
            twice,
            &[
                ("MOST_SURE", |p, x| p.slow.sync.blocks = x as u64, 3000.0, 0.85),
                ("BOTH_SURE", |p, _| p.set("file system", "mount_options", ["rw", MODES[1]]), 1.0, 0.97),
            ],
        );
    }

    const MODES: [&str; 3] = ["data=ordered", "data=journal", "data=journal,noatime"];

    fn syncs(p: &mut Pair, fast: u64, slow: f64) {
        (p.fast.workload.calls[2], p.slow.workload.calls[2]) = (fast, slow as u64);
    }

    #[test]
    fn costs() {
        let journalled = || {
            Alone::of(|a| {
                a.set("/x", "mount_options", "rw,data=journal");
                a.digest.workload.bytes[1] = 1 << 20;
                a.requests(1, 100, 8, 8e5);
                a.digest.commands.sectors[1] = 4096;
            })
        };
        let edges: &[AloneEdge] =
            &[("LEAST_BYTES, alone", |a, x| a.digest.workload.bytes[1] = x as u64, 65_536.0, 65_535.0)];
        hold_cost(&RULE, journalled, (60.0, 0.85), edges);
        let marked = || {
            let mut marked = journalled();
            marked.set("/x", "mount_options", "rw");
            marked.set("/x", "journalled_files", "2");
            marked.digest.sync.blocks = 200;
            marked
        };
        let edges: &[AloneEdge] = &[("LOGGED, alone", |a, x| a.digest.sync.blocks = x as u64, 128.0, 127.0)];
        hold_cost(&RULE, marked, (60.0, 0.85), edges);
        let with_code = || {
            let mut journalled = journalled();
            journalled.digest.time.ns[1][Layer::Cpu as usize] = 2e5;
            journalled
        };
        let found = with_code().ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 70.0).abs() < 0.1, "{}: {found:?}", "CODE");
        assert!((found.bounds_pct[1] - 99.0).abs() < 0.1, "{}: {found:?}", "MOST_CODE");
    }
}
