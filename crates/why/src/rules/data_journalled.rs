//! Data go through the journal, and so are written twice.

use super::IO;
use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::KIND_OTHER;

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let blocks = delta.of(|d| d.sync.blocks as f64 * 4096.0 / (d.workload.bytes[1].max(1)) as f64);
    let at_device = delta.of(|d| d.commands.sectors[1] as f64 * 512.0 / (d.workload.bytes[1].max(1)) as f64);
    let time = delta.time(|time| time.within(&[1, 2, KIND_OTHER], IO));
    let mode = recorded::setting(delta, |key| key.contains("mount_options"));
    let told = mode.iter().any(|(_, [fast, slow])| slow.contains("data=journal") && !fast.contains("data=journal"));
    let syncs = delta.of(|d| (d.workload.calls[2] + d.workload.written_through) as f64);
    let as_often = told || (0.8..1.25).contains(&syncs.ratio()) || syncs.slow < 2.0;
    let equal = (0.9..1.1).contains(&written.ratio()) && written.slow > 65_536.0 && as_often;
    // More commits log more blocks as well; data that are logged reach the device twice.
    let live = delta.fast.live && delta.slow.live;
    let twice = live && blocks.rose_by(0.5) && blocks.rose(1.5) && at_device.rose_by(0.7);
    if !equal || !(twice || told) || time.difference() < 0.15 * delta.slower_by() {
        return None;
    }
    Some(Match {
        confidence: if twice && told { 0.97 } else { grade(blocks.ratio(), 1.3, 3.0).min(0.85) },
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
