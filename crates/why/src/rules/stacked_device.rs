//! The files lie behind another layer.

use super::cost::{Bounds, Cost, Facts, MARKED, SEEN, TRIPS};
use super::instead::Saved;
use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::Side;
use crate::delta::{Delta, Unit};
use crate::digest::Layer;
use iowhy_stack::units::SECTOR_BYTES;
use iowhy_trace::settings::Settings;

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
    cost: Some(cost),
};

/// Ratios of sectors that are alike: writes go to both devices and journals, and the loop caches some reads.
const ALIKE: std::ops::Range<f64> = 0.5..4.0;
/// Factors by which calls take longer, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);
/// Confidence at most: the layer is there, but its part of the time has no figure.
const MOST_SURE: f64 = 0.85;

fn kind(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

/// The layers from a disk down to one that is none: no more than what is written down, even if that goes round.
fn layers<'a>(of: &'a Settings, name: &'a str) -> Vec<&'a str> {
    let stacked = |name: &&str| matches!(kind(name), "loop" | "dm-" | "nbd" | "md" | "zram" | "ublkb");
    let chain = std::iter::successors(Some(name), |name| of.get(name, "loop.disk")).take(of.values.len());
    chain.take_while(stacked).collect()
}

/// A side's disk: its name, its layers, and whether it reads through the page cache below.
struct Path<'a> {
    name: &'a str,
    layers: Vec<&'a str>,
    buffered: bool,
}

fn path(side: &Side) -> Option<Path<'_>> {
    let of = side.settings.first()?;
    let name = of.get("recording", "disk").unwrap_or_default();
    Some(Path { name, layers: layers(of, name), buffered: of.get(name, "loop.dio") == Some("0") })
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let fuse = recorded::setting(delta, |key| key.ends_with(" filesystem"));
    let fuse = fuse.iter().find(|(_, [fast, slow])| slow.contains("fuse") && !fast.contains("fuse"));
    let (fast, slow) = (path(delta.fast)?, path(delta.slow)?);
    let deeper = slow.layers.len() > fast.layers.len() && !fast.name.is_empty();
    let buffered = slow.buffered && !fast.buffered && !fast.layers.is_empty();
    // A run that finds its pages in memory uses no disk at all.
    let used = delta.of(|d| (d.commands.sectors[0] + d.commands.sectors[1]) as f64);
    let alike = used.slow > 0.0 && ALIKE.contains(&used.ratio());
    if fuse.is_none() && !(alike && (deeper || buffered)) {
        return None;
    }
    let what = match fuse {
        Some((_, [fast, slow])) => format!("the file system is {slow}, against {fast}"),
        None if deeper => {
            let fast = if fast.layers.is_empty() { fast.name.to_owned() } else { fast.layers.join(" on ") };
            format!("the disk is {}, against {fast}", slow.layers.join(" on "))
        }
        None => "the loop device reads through the page cache of the file below, against direct I/O".to_owned(),
    };
    let waits = delta.time(|time| super::Owns::Calls.of(time));
    Some(Match {
        confidence: grade(waits.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: None,
        claim: what,
        evidence: vec![Figure::new("time in calls", recorded::scaled(delta, waits), Unit::Ns)],
    })
}

/// Parts of the cost: on the file system below the calls have its own time.
const PARTS: Bounds = [0.3, 1.0];
/// Bytes that the target's own requests move for each one that it reads and writes, beyond which it uses another file
/// system, too.
const ELSEWHERE: f64 = 0.1;
/// Layers of a call that is served: each wait for it ends with one for a CPU, as that of the server's does.
const SERVED: [Layer; 3] = [Layer::Lock, Layer::Journal, Layer::Ready];

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    served(facts).or_else(|| looped(facts))
}

/// File systems that write elsewhere what is written in place.
const COPYING: [&str; 4] = ["btrfs", "zfs", "bcachefs", "nilfs2"];

/// Of an image on a loop device that lies in another image, or on a file system that copies: the layers between.
fn looped(facts: &Facts<'_>) -> Option<Cost> {
    let disk = facts.settings.get("recording", "disk")?;
    let layers = layers(facts.settings, disk);
    let copies = facts.of_disk("loop.filesystem").filter(|of| COPYING.contains(of));
    if layers.len() <= 1 && copies.is_none() {
        return None;
    }
    let between = (facts.digest.commands.in_layers as f64).min(facts.in_layers(&TRIPS));
    let saved = Saved::of(between, PARTS[0] * between, facts.in_layers(&TRIPS));
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: match copies {
            Some(of) => {
                format!("{disk} is an image on {of}: {:.0} ms of its requests pass without data below", between / 1e6)
            }
            None => format!("{}: {:.0} ms of its requests pass without data below", layers.join(" on "), between / 1e6),
        },
        setting: "the files on the file system below, or the image on the disk itself".to_owned(),
        evidence: vec![("time of requests without data at the disk below", between, Unit::Ns)],
    })
}

/// Of a file system in user space: who calls it waits for the process that serves it.
fn served(facts: &Facts<'_>) -> Option<Cost> {
    let (place, kind) = facts.filesystem(|kind| kind.contains("fuse") && kind != "fuseblk")?;
    let d = facts.digest;
    let there = |ways: &[usize]| {
        let own: u64 = ways.iter().map(|way| d.commands.own_sectors[*way] * SECTOR_BYTES).sum();
        own as f64 <= ELSEWHERE * ways.iter().map(|way| d.workload.bytes[*way]).sum::<u64>() as f64
    };
    let waits = if there(&[0, 1]) {
        facts.in_layers(&[&[Layer::Pause], &SERVED[..]].concat()) - facts.asleep()
    } else {
        // It reads there and writes elsewhere, or the other way.
        let way = [0, 1].into_iter().find(|way| there(&[*way]))?;
        facts.of_kinds(&[way], &SERVED)
    };
    Some(Cost {
        ns: waits,
        bounds: PARTS,
        confidence: MARKED,
        claim: format!("calls on {place} ({kind}) wait for the process that serves it"),
        setting: "the files on the file system below".to_owned(),
        evidence: vec![("time that calls wait without a request of their own", waits, Unit::Ns)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::RULE;
    use crate::digest::Layer;

    fn set(p: &mut Pair, values: [&str; 2], place: &str, key: &str) {
        for (side, value) in p.sides.iter_mut().zip(values) {
            side.settings.resize_with(1, Default::default);
            side.settings[0].values.insert((place.to_owned(), key.to_owned()), value.to_owned());
        }
    }

    /// The same sectors of a disk and of a loop device, on which calls take 1.8 times as long.
    fn looped() -> Pair {
        Pair::of(|p| {
            set(p, ["sda", "loop0"], "recording", "disk");
            p.both(|d| d.commands.sectors = [500, 500]);
            p.fast.time.ns[0][Layer::Device as usize] = 1e6;
            p.slow.time.ns[0][Layer::Device as usize] = 1.8e6;
        })
    }

    fn slow() -> Pair {
        Pair::of(|p| {
            *p = looped();
            p.slow.time.ns[0][Layer::Device as usize] = 1e7;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("ALIKE, fewer", |p, x| p.slow.commands.sectors = [x as u64, 0], 500.0, 499.0),
            ("ALIKE, more", |p, x| p.slow.commands.sectors[0] = x as u64, 3499.0, 3500.0),
            ("a disk in use", |p, x| p.both(|d| d.commands.sectors = [x as u64, 0]), 1.0, 0.0),
            (
                "a disk on the fast side",
                |p, x| set(p, [["sda", "dm-3", ""][x as usize], "loop0"], "recording", "disk"),
                0.0,
                1.0,
            ),
            (
                "a disk known on the fast side",
                |p, x| set(p, [["sda", "dm-3", ""][x as usize], "loop0"], "recording", "disk"),
                0.0,
                2.0,
            ),
            (
                "FUSE without a disk in use",
                |p, x| {
                    p.both(|d| d.commands.sectors = [0, 0]);
                    set(p, ["ext4", ["xfs", "fuse.sshfs"][x as usize]], "recording", "/ filesystem");
                },
                1.0,
                0.0,
            ),
            (
                "FUSE on one side",
                |p, x| {
                    p.both(|d| d.commands.sectors = [0, 0]);
                    set(p, [["ext4", "fuseblk"][x as usize], "fuse.sshfs"], "recording", "/ filesystem");
                },
                0.0,
                1.0,
            ),
            (
                "a loop device without direct I/O",
                |p, x| {
                    set(p, ["loop1", "loop1"], "recording", "disk");
                    set(p, ["1", ["0", "1"][x as usize]], "loop1", "loop.dio");
                },
                0.0,
                1.0,
            ),
            (
                "another loop device without direct I/O",
                |p, x| {
                    set(p, ["loop1", "loop1"], "recording", "disk");
                    set(p, ["1", "0"], ["loop1", "loop2"][x as usize], "loop.dio");
                },
                0.0,
                1.0,
            ),
            (
                "direct I/O on the fast side",
                |p, x| {
                    set(p, ["loop1", "loop1"], "recording", "disk");
                    set(p, [["1", "0"][x as usize], "0"], "loop1", "loop.dio");
                },
                0.0,
                1.0,
            ),
        ];
        hold(&RULE, looped, 0.6946, edges);
        // A loop device on another one, against one on a disk.
        let nested = || {
            Pair::of(|p| {
                *p = looped();
                set(p, ["loop0", "loop2"], "recording", "disk");
                set(p, ["vda", "loop1"], "loop0", "loop.disk");
                set(p, ["vda", "loop1"], "loop2", "loop.disk");
            })
        };
        let below: Edge =
            ("deeper", |p, x| set(p, ["vda", ["loop1", "vda"][x as usize]], "loop2", "loop.disk"), 0.0, 1.0);
        hold(&RULE, nested, 0.6946, &[below]);
        let kinds: Edge = (
            "MOST_SURE",
            |p, x| {
                let disk = ["loop12", "dm-0", "nbd1", "md127", "zram0", "ublkb2", "nvme0n1"][x as usize];
                set(p, ["sda", disk], "recording", "disk");
            },
            0.0,
            6.0,
        );
        let kinds = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|nr| (kinds.0, kinds.1, nr, kinds.3));
        hold(&RULE, slow, 0.85, &kinds);
    }

    #[test]
    fn costs() {
        let served = || {
            Alone::of(|a| {
                a.set("/mnt", "filesystem", "fuse.sshfs");
                a.sleeps = vec![super::super::cost::Sleeps { ns: 1e5, ..Default::default() }];
                a.digest.time.ns[3][Layer::Pause as usize] = 6e5;
                a.digest.time.ns[0][Layer::Lock as usize] = 1e5;
            })
        };
        let kind: fn(&mut Alone, f64) = |a, x| a.set("/mnt", "filesystem", ["fuse", "fuseblk", "ext4"][x as usize]);
        let edges: &[AloneEdge] = &[
            ("in user space", kind, 0.0, 1.0),
            ("FUSE", kind, 0.0, 2.0),
            ("ELSEWHERE", |a, x| a.digest.commands.own_sectors = [x as u64; 2], 4.0, 9.0),
        ];
        hold_cost(&RULE, served, (60.0, 0.85), edges);
        // What is written goes to a disk.
        let mut elsewhere = served();
        (elsewhere.digest.commands.own_sectors[1], elsewhere.digest.time.ns[0][Layer::Lock as usize]) = (1000, 4e5);
        assert!((elsewhere.ask(&RULE).expect("a cost").saves_pct - 40.0).abs() < 0.1);
        let nested = || {
            Alone::of(|a| {
                a.set("recording", "disk", "loop1");
                a.set("loop1", "loop.disk", "loop0");
                a.set("loop0", "loop.disk", "vda");
                a.digest.commands.in_layers = 500_000;
                a.digest.time.ns[0][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] =
            &[("nested", |a, x| a.set("loop1", "loop.disk", ["loop0", "vda"][x as usize]), 0.0, 1.0)];
        hold_cost(&RULE, nested, (50.0, 0.8), edges);
        let copying = || {
            Alone::of(|a| {
                *a = nested();
                a.set("loop1", "loop.disk", "vda");
                a.set("loop1", "loop.filesystem", "btrfs");
            })
        };
        let kind: fn(&mut Alone, f64) = |a, x| a.set("loop1", "loop.filesystem", ["zfs", "ext4"][x as usize]);
        hold_cost(&RULE, copying, (50.0, 0.8), &[("COPYING", kind, 0.0, 1.0)]);
    }
}
