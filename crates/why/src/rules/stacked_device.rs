//! The files lie behind another layer.

use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "stacked-device",
    layer: "device",
    needs: super::STATES,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "The files lie behind one more layer: a loop device, FUSE, a device mapper.",
    why: "Each request is taken through another queue, another process or another file system before it \
          reaches the disk.",
    events: "The file system or the disk is of another kind than on the fast side, and calls wait or compute longer.",
    example: "A container image on a loop device; sshfs or an encrypting FUSE file system in place of ext4.",
    change: "Put the data on the file system below; use direct I/O on loop devices (losetup --direct-io=on).",
    refute: "On the file system below, the same calls take as long.",
    since: "Every kernel.",
    // Below it the loop's own thread writes and flushes for the workload.
    consequences: &[
        "device-latency",
        "device-bandwidth",
        "cpu-bound-submission",
        "device-iops-cap",
        "foreign-sync",
        "flush-cost",
        "journal-commit-per-fsync",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

fn kind(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let fuse = recorded::setting(delta, |key| key.ends_with(" filesystem"));
    let fuse = fuse.iter().find(|(_, [fast, slow])| slow.contains("fuse") && !fast.contains("fuse"));
    let disks = |side: &crate::Side| {
        let of = side.settings.first()?;
        let name = of.get("recording", "disk").map(str::to_owned);
        let buffered = |((disk, key), dio): (&(String, String), &String)| {
            key == "loop.dio" && dio == "0" && Some(disk) == name.as_ref()
        };
        let buffered = of.values.iter().any(buffered);
        Some((name, buffered))
    };
    let (fast, slow) = (disks(delta.fast)?, disks(delta.slow)?);
    let of = |name: &Option<String>| name.as_deref().map(kind).unwrap_or("").to_owned();
    let stacked = |kind: &str| matches!(kind, "loop" | "dm-" | "nbd" | "md" | "zram" | "ublkb");
    let deeper = stacked(&of(&slow.0)) && !stacked(&of(&fast.0)) && !of(&fast.0).is_empty();
    let buffered = slow.1 && !fast.1 && stacked(&of(&fast.0));
    // A run that finds its pages in memory uses no disk at all. Writes go to both devices, and to both journals.
    let used = delta.of(|d| (d.commands.sectors[0] + d.commands.sectors[1]) as f64);
    let alike = used.slow > 0.0 && (0.5..4.0).contains(&used.ratio());
    if fuse.is_none() && !(alike && (deeper || buffered)) {
        return None;
    }
    let what = match fuse {
        Some((_, [fast, slow])) => format!("the file system is {slow}, against {fast}"),
        None if buffered => {
            "the loop device reads through the page cache of the file below, against direct I/O".to_owned()
        }
        None => format!("the disk is {}, against {}", slow.0.unwrap_or_default(), fast.0.unwrap_or_default()),
    };
    let waits = delta.time(|time| super::Owns::Calls.of(time));
    Some(Match {
        confidence: grade(waits.ratio(), 1.3, 3.0).min(0.85),
        share_ns: None,
        claim: what,
        evidence: vec![Figure::new("time in calls", recorded::scaled(delta, waits), Unit::Ns)],
    })
}
