//! A control group's limit holds bios back.

use iowhy_stack::units::SECTOR_BYTES;
use iowhy_trace::settings::NUMBER;

use super::cost::{Bounds, Cost, Facts};
use super::recorded;
use super::{Figure, Match, Rule};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "cgroup-io-throttle",
    layer: "lock/wait",
    needs: super::STATES,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "A limit on a control group's I/O (io.max, blkio.throttle) holds bios back before they reach a queue.",
    why: "Beyond the limit a bio waits until its share of the next slice comes, however idle the device is.",
    events: "Calls sleep before their bios are queued, and a worker of the kernel queues them; the device itself is as \
             fast as before.",
    example: "A container with io.max riops=500; docker run --device-read-bps.",
    change: "Raise or remove the limit (io.max, blkio.throttle.*), or make fewer and larger requests if \
             operations are limited.",
    refute: "Without the limit calls sleep as long before their bios are queued.",
    since: "blk-throttle, since 2.6.37; io.max of control groups v2 since 4.5.",
    consequences: &[
        "device-iops-cap",
        "device-bandwidth",
        "device-latency",
        "lock-serialisation",
        "writeback-throttling",
        "queue-depth-one",
        "cpu-bound-submission",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Growth of the bios held back for a call: a limit that is met at all is met again and again.
const MORE_HELD: f64 = 2.0;
/// Growth of the bios held back for a call, absolute: a limit on one in 200 slows nothing.
const LEAST_HELD: f64 = 0.005;
/// Part of the difference that calls have to sleep before their bios are queued.
const LEAST_PART: f64 = 0.2;
/// Confidence of bios held back, or of a new limit.
const ONE_SURE: f64 = 0.85;
/// Confidence of both.
const BOTH_SURE: f64 = 0.98;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let held = delta.per_operation(|d| d.wall.as_ref().map_or(0.0, |wall| wall.held_back as f64));
    let asleep = delta.time(|time| time.of(Layer::Lock) + time.of(Layer::Journal));
    let limits = recorded::setting(delta, |key| {
        key.contains("throttle.") || key.contains("io.max") || key.contains("io.latency")
    });
    let new_limit = limits.first().filter(|(_, [_, slow])| slow != "unset");
    let seen = held.rose(MORE_HELD) && held.rose_by(LEAST_HELD);
    let grew = asleep.difference() > LEAST_PART * delta.slower_by();
    if !grew || !(seen || new_limit.is_some()) {
        return None;
    }
    let set = new_limit.map_or(String::new(), |(name, [fast, slow])| format!(" ({name}: {fast} | {slow})"));
    Some(Match {
        confidence: if seen && new_limit.is_some() { BOTH_SURE } else { ONE_SURE },
        share_ns: None,
        claim: format!(
            "bios are held back before they are queued: {:.2} for each call, against {:.2}{set}",
            held.slow, held.fast
        ),
        evidence: vec![
            Figure::new("bios held back for each call", held, Unit::Ratio),
            Figure::new("time asleep before a bio is queued", recorded::scaled(delta, asleep), Unit::Ns),
        ],
    })
}

/// Bios held back, from which on a limit that is in sight is met, however many calls have none.
const MET: u64 = 16;
/// Confidence of the cost without and with a limit in sight, and its bounds.
const ALONE: (f64, f64, Bounds) = (0.8, 0.89, [0.7, 1.0]);

/// Limits of a group on a disk: the file of version 1, the word of `io.max`, whether of writes, whether of operations.
const LIMITS: [(&str, &str, bool, bool); 4] = [
    ("blkio.throttle.read_bps_device", "rbps", false, false),
    ("blkio.throttle.write_bps_device", "wbps", true, false),
    ("blkio.throttle.read_iops_device", "riops", false, true),
    ("blkio.throttle.write_iops_device", "wiops", true, true),
];
/// Rates that are at a limit: requests of a loop device are not those of the disk below.
const AT_LIMIT: std::ops::Range<f64> = 0.7..1.15;

/// A limit that is met: its file and its value, the rate, the direction.
type Met = (&'static str, f64, f64, usize);

/// The limit of the group on a disk that bytes or operations of each direction meet in some time, ns.
fn met(facts: &Facts<'_>, disk: &str, operations_of: [u64; 2], ns: [u64; 2]) -> Option<Met> {
    let (settings, sectors) = (facts.settings, facts.digest.commands.own_sectors);
    let number = settings.get(disk, NUMBER)?;
    let met = |(file, word, write, operations): (&'static str, &str, bool, bool)| {
        let of_disk = |text: &str| {
            // Lines are joined by "; ".
            let words = text.split([' ', ';']).filter(|word| !word.is_empty());
            let mut words = words.skip_while(|word| *word != number).skip(1);
            let plain = words.clone().next().and_then(|word| word.parse::<f64>().ok());
            plain.or_else(|| words.find_map(|limit| limit.strip_prefix(word)?.strip_prefix('=')?.parse().ok()))
        };
        let limit = of_disk(settings.get("cgroup", file).or_else(|| settings.get("cgroup", "io.max"))?)?;
        let way = usize::from(write);
        let amount = if operations { operations_of[way] } else { sectors[way] * SECTOR_BYTES };
        let rate = amount as f64 * 1e9 / ns[way].max(1) as f64;
        AT_LIMIT.contains(&(rate / limit)).then_some((file, limit, rate, way))
    };
    LIMITS.into_iter().find_map(met)
}

/// A limit on the disk below a loop device holds the loop's bios back, where nobody's calls sleep for them.
fn below(facts: &Facts<'_>) -> Option<Cost> {
    let lower = facts.of_disk("loop.disk")?;
    let commands = &facts.digest.commands;
    let (file, limit, rate, way) = met(facts, lower, commands.issued, commands.own_busy)?;
    let waits = facts.in_layers(&[Layer::Device, Layer::Elevator, Layer::Journal]);
    let (confidence, _, bounds) = ALONE;
    Some(Cost {
        ns: waits.min(commands.own_busy[way] as f64),
        bounds,
        confidence,
        claim: format!("the control group's {file} of {lower}, below the loop device, is {limit:.0}: the rate here"),
        setting: format!("{file} of {lower} removed or raised"),
        evidence: vec![
            ("bytes or operations a second while something is at the device", rate, Unit::Count),
            ("time that calls wait for the device", waits, Unit::Ns),
        ],
    })
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    held(facts).or_else(|| unseen(facts)).or_else(|| below(facts))
}

/// Part of the time that tasks sleep without a request at the device.
const ASLEEP: f64 = 0.5;

/// Bios without a recorded call (of lookups, of lists of a directory) come at the rate of a limit.
fn unseen(facts: &Facts<'_>) -> Option<Cost> {
    let disk = facts.settings.get("recording", "disk")?;
    let asleep = facts.in_layers(&[Layer::Lock, Layer::Journal]);
    if asleep < ASLEEP * facts.whole_ns {
        return None;
    }
    let (file, limit, rate, _) = met(facts, disk, facts.digest.bios.count, [facts.whole_ns as u64; 2])?;
    let (confidence, _, bounds) = ALONE;
    Some(Cost {
        ns: asleep,
        bounds,
        confidence,
        claim: format!("the control group's {file} of {disk} is {limit:.0}: the rate of its bios"),
        setting: format!("{file} of {disk} removed or raised"),
        evidence: vec![
            ("bytes or bios a second", rate, Unit::Count),
            ("time asleep without a request at the device", asleep, Unit::Ns),
        ],
    })
}

/// Bios that calls sleep for before they are queued.
fn held(facts: &Facts<'_>) -> Option<Cost> {
    let times = facts.digest.wall.as_ref()?.held_back;
    let held = times as f64 / facts.operations();
    let asleep = facts.in_layers(&[Layer::Lock, Layer::Journal]);
    let limit = facts.setting(|of, key| of == "cgroup" && (key.contains("throttle.") || key.contains("io.max")));
    if held < LEAST_HELD && (limit.is_none() || times < MET) {
        return None;
    }
    let (without, with, bounds) = ALONE;
    Some(Cost {
        ns: asleep,
        bounds,
        confidence: if limit.is_some() { with } else { without },
        claim: match limit {
            Some((key, value)) => format!("the control group's {key} ({value}) holds bios back before they are queued"),
            None => "a limit on the control group's I/O holds bios back before they are queued".to_owned(),
        },
        setting: limit.map_or("io.max".to_owned(), |(key, _)| key.to_owned()) + " removed or raised",
        evidence: vec![
            ("bios held back for each call", held, Unit::Ratio),
            ("time asleep before a bio is queued", asleep, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, sure};
    use super::RULE;
    use crate::digest::Layer;
    use crate::digest::wall::Wall;

    /// Ten thousand reads of 100 and 200 ns; all of the difference they sleep.
    fn asleep() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.latency[0] = spread(10_000, 1e5));
            p.slow.time.ns[0][Layer::Lock as usize] = 1e6;
        })
    }

    fn held() -> Pair {
        let mut pair = asleep();
        hold_back(&mut pair, [0, 100]);
        pair
    }

    fn limited() -> Pair {
        let mut pair = asleep();
        pair.set("cgroup", "io.max", ["unset", "500"]);
        pair
    }

    fn hold_back(p: &mut Pair, bios: [u64; 2]) {
        for (run, held_back) in [&mut p.fast, &mut p.slow].into_iter().zip(bios) {
            run.wall = Some(Wall { held_back, ..Wall::default() });
        }
    }

    fn set_instead(p: &mut Pair, key: &str) {
        p.sides = Default::default();
        p.set("cgroup", key, ["1000", "500"]);
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MORE_HELD", |p, x| hold_back(p, [100, x as u64]), 201.0, 200.0),
            ("LEAST_HELD", |p, x| hold_back(p, [0, x as u64]), 50.0, 49.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[0][Layer::Lock as usize] = x, 200_001.0, 200_000.0),
        ];
        hold(&RULE, held, 0.85, edges);
        let edges: &[Edge] = &[
            ("LEAST_PART", |p, x| p.slow.time.ns[0][Layer::Lock as usize] = x, 200_001.0, 200_000.0),
            ("a limit set", |p, x| p.set("cgroup", "io.max", ["1000", ["500", "unset"][x as usize]]), 0.0, 1.0),
            ("io.latency", |p, x| set_instead(p, ["io.latency", "cpu.max"][x as usize]), 0.0, 1.0),
            ("throttle", |p, x| set_instead(p, ["blkio.throttle.io", "cpu.max"][x as usize]), 0.0, 1.0),
        ];
        hold(&RULE, limited, 0.85, edges);
        sure(
            &RULE,
            limited,
            &[
                ("ONE_SURE", |p, x| hold_back(p, [0, x as u64]), 49.0, 0.85),
                ("BOTH_SURE", |p, x| hold_back(p, [0, x as u64]), 50.0, 0.98),
            ],
        );
    }

    #[test]
    fn costs() {
        let throttled = || {
            Alone::of(|a| {
                a.digest.wall = Some(Wall { held_back: 10, ..Wall::default() });
                a.digest.time.ns[0][Layer::Lock as usize] = 5e5;
                a.set("cgroup", "blkio.throttle.read_bps_device", "7:0 1000000");
            })
        };
        fn held(a: &mut Alone, held_back: f64) {
            a.digest.latency[0] = spread(1000, 1e3);
            a.digest.wall = Some(Wall { held_back: held_back as u64, ..Wall::default() });
        }
        fn of_many(a: &mut Alone, held_back: f64) {
            held(a, held_back);
            a.digest.latency[0] = spread(100_000, 10.0);
        }
        let edges: &[AloneEdge] = &[("LEAST_HELD, alone", held, 5.0, 4.0), ("MET", of_many, 16.0, 15.0)];
        hold_cost(&RULE, throttled, (50.0, 0.89), edges);
        // 20 bios in 1 ms.
        let unseen = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "number", "8:0");
                a.set("cgroup", "blkio.throttle.read_iops_device", "8:0 20000");
                a.digest.bios.count = [20, 0];
                a.digest.time.ns[3][Layer::Lock as usize] = 6e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("ASLEEP", |a, x| a.digest.time.ns[3][Layer::Lock as usize] = x, 5e5, 4.99e5),
            ("bios", |a, x| a.digest.bios.count[0] = x as u64, 22.0, 24.0),
        ];
        hold_cost(&RULE, unseen, (60.0, 0.8), edges);
        // 80 KiB in 0.8 ms: 102 MB/s.
        let below = || {
            Alone::of(|a| {
                a.set("recording", "disk", "loop0");
                a.set("loop0", "loop.disk", "vda");
                a.set("vda", "number", "254:0");
                a.set("cgroup", "blkio.throttle.read_bps_device", "7:0 5; 254:0 100000000; 8:0 7");
                a.requests(0, 20, 8, 8e5);
            })
        };
        let read: fn(&mut Alone, f64) = |a, x| a.set("cgroup", "blkio.throttle.read_bps_device", &format!("254:0 {x}"));
        let edges: &[AloneEdge] = &[
            ("AT_LIMIT, above", read, 90_000_000.0, 89_000_000.0),
            ("AT_LIMIT, below", read, 146_000_000.0, 147_000_000.0),
            (
                "LIMITS",
                |a, x| {
                    a.set("cgroup", "blkio.throttle.read_bps_device", "254:0 1");
                    a.set("cgroup", "blkio.throttle.read_iops_device", &format!("254:0 {x}"));
                },
                25_000.0,
                50_000.0,
            ),
        ];
        hold_cost(&RULE, below, (80.0, 0.8), edges);
    }
}
