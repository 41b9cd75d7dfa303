//! Requests leave the order of their sectors: the arm travels farther for the same requests.

use std::ops::Range;

use super::cost::{Cost, Facts, SEEN};
use super::device::has_arm;
use super::device_latency::keeps_busy;
use super::instead::{self, Saved, kinds, own};
use super::{Figure, Match, Rule, Switch, grade, metadata_reads};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::scattered::Scattered;
use crate::digest::{Layer, WAITS, Ways};
use iowhy_stack::units::SECTOR_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "lost-locality",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Waiting requests leave the order of their sectors, or streams are mixed up on their way.",
    why: "Each jump of the arm takes milliseconds, in which a disk could transfer a megabyte; an order that jumps \
          between streams loses the look-ahead of the disk, too.",
    events: "As many requests of the same sizes as before, but more of them begin where the one before did not end, or \
             farther away from it; of those that wait, the next one up from the head is taken less often.",
    example: "noop or none on a disk with many random readers; slice_idle=0 with several sequential streams.",
    change: "A scheduler that sorts (deadline, mq-deadline, CFQ, BFQ), more requests in the queue, idling for streams.",
    refute: "With the other side's scheduler the distance between commands remains.",
    since: "Every kernel, since the elevator can be chosen (2.6.10); no sorting is the default of blk-mq with many \
            queues.",
    // Streams find the drive reading ahead; others do not, however equal the commands.
    consequences: &["device-latency", "device-bandwidth", "device-idle-exit"],
    switches: &[
        Switch::Other("elevator"),
        Switch::OtherKind("elevator."),
        Switch::Other("nr_requests"),
        Switch::Queue("scheduler"),
        Switch::Queue("nr_requests"),
    ],
    find,
    cost: Some(cost),
};

/// Ratio of command sizes, and of commands per operation: other commands go other ways.
const EQUAL: Range<f64> = 0.8..1.25;
/// Choices per command: without waiting requests no order can be lost.
const CHOICES: f64 = 0.2;
/// Fall of the share of choices that take the next one up: less may come from deadlines and batches.
const DISORDER: f64 = 0.15;
/// Growth of the mean root distance: lowest here, as the lost order confirms it.
const FARTHER_DISORDERED: f64 = 1.15;
/// Ratio of seek shares: mixed streams seek at each change of the stream.
const SEEKS_TIMES: f64 = 1.5;
/// Growth of the seek share: a high ratio of rare seeks costs nothing.
const SEEKS_MORE: f64 = 0.05;
/// Growth of the mean root distance where more commands seek.
const FARTHER_MIXED: f64 = 1.3;
/// Share of commands that seek: the distance of rare seeks costs nothing.
const OFTEN: f64 = 0.1;
/// Growth of the mean root distance alone: highest here, as no second sign confirms it.
const FARTHER: f64 = 1.4;
/// Ratio of seek shares: fewer and longer seeks are another pattern, not a lost order.
const SEEKS_KEPT: f64 = 0.9;
/// Ratio of regions with calls: a job over more of the disk has longer ways by itself.
const REGIONS: f64 = 1.1;
/// Growth of the device time per command: without an arm distance costs nothing.
const LONGER: f64 = 1.02;
/// Ratios of mean root distances, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.6);

fn find(delta: &Delta<'_>) -> Option<Match> {
    // Those seeks are none of the order's.
    if (metadata_reads::RULE.find)(delta).is_some() {
        return None;
    }
    let size = delta.of(|d| (d.commands.sectors[0] + d.commands.sectors[1]) as f64 / d.commands.number());
    let nr = delta.per_operation(|d| d.commands.number());
    if !EQUAL.contains(&size.ratio()) || !EQUAL.contains(&nr.ratio()) {
        return None;
    }
    let mut seeks = delta.of(|d| d.commands.seek_share());
    let mut root = delta.of(|d| d.commands.within.values().map(|w| w.root_distance).sum::<f64>() / d.commands.number());
    let mut distance = delta.of(|d| d.commands.distance / d.commands.number() * 512.0);
    let choices = delta.of(|d| d.commands.choices as f64 / d.commands.number());
    let next_up = delta.of(|d| d.commands.next_up as f64 / d.commands.choices.max(1) as f64);
    let chosen = choices.slow > CHOICES && choices.fast > CHOICES;
    let disordered = chosen && next_up.fell_by(DISORDER) && root.rose(FARTHER_DISORDERED);
    let is_mixed = |seeks: &Contrast, root: &Contrast| {
        seeks.rose(SEEKS_TIMES) && seeks.rose_by(SEEKS_MORE) && root.rose(FARTHER_MIXED)
    };
    let mut mixed = is_mixed(&seeks, &root);
    // A drive that queues mixes the streams that it is given at once: it takes commands in the order of their ends.
    let ended = |of: fn(&Ways) -> f64| delta.of(|d| of(&d.commands.ended) / d.commands.number());
    let of_ends = [ended(|of| of.elsewhere as f64), ended(|of| of.root_distance), ended(|of| of.distance * 512.0)];
    if !mixed && is_mixed(&of_ends[0], &of_ends[1]) && has_arm(delta) {
        ([seeks, root, distance], mixed) = (of_ends, true);
    }
    // A long way is nobody's concern if hardly a command goes it.
    let farther = seeks.slow > OFTEN
        && root.rose(FARTHER)
        && seeks.ratio() > SEEKS_KEPT
        && delta.of(|d| d.workload.regions as f64).ratio() < REGIONS;
    // Where seeks cost nothing their number is nobody's concern: the device has to be slower for it.
    let took = delta.of(|d| d.commands.busy as f64 / d.commands.number());
    if !(disordered || mixed || farther) || !took.rose(LONGER) {
        return None;
    }
    Some(Match {
        confidence: grade(root.ratio(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "requests are taken in an order that jumps: {:.0} % of the commands seek (before {:.0} %), {:.1} MB apart \
             on average (before {:.1})",
            100.0 * seeks.slow,
            100.0 * seeks.fast,
            distance.slow / 1e6,
            distance.fast / 1e6
        ),
        evidence: vec![
            Figure::new("share of commands that begin elsewhere", seeks, Unit::Share),
            Figure::new("mean distance from the command before", distance, Unit::Bytes),
            Figure::new("share of choices that take the next one up", next_up, Unit::Share),
            Figure::new("time of the busy device for a command", took, Unit::Ns),
        ],
    })
}

/// Reads of streams: fewer are the beginnings of files. Share of the calls that go on where another one ended.
const ENOUGH: f64 = 16.0;
const STREAMS: f64 = 0.8;
/// Part of the requests that the arm has to move for.
const MOVES: f64 = 0.3;
/// Factor over the time of a read in order, from which on it is the arm that takes it.
const SLOWER: f64 = 1.5;
/// The same where one task jumps.
const JUMPS_SLOWER: f64 = 3.0;
/// Bytes a second of a disk in order, where that was not measured.
const USUAL: f64 = 150e6;

/// Time that an arm takes for a read besides, at least, ns: what has none may say that it turns.
const ARM: f64 = 1e6;
/// The same where one task jumps: shorter jumps are those from file to file of a program that reads a folder.
const JUMP: f64 = 3e6;
/// Reads that begin elsewhere, and the way between them in ways over all, from which on they come in no order.
const JUMPS: u64 = 32;
const WAYS: f64 = 8.0;

/// Part of the reads that wait for the drive to take them, from which on there is something to sort.
const LATE: f64 = 0.5;
/// The part of its time that an arm saves if a few dozens of them are sorted: likely, and at most.
const SORTED: f64 = 0.45;
const BEST_SORTED: f64 = 0.8;

/// A deadline, ms, that reads have passed by when they come, and a batch that is a single request: together they keep
/// the order of arrival. Then the usual ones, and the part of a read's waits in which something could be sorted.
const PASSED: f64 = 50.0;
const SINGLE: f64 = 1.0;
const DEADLINES: (f64, f64) = (500.0, 16.0);
const HELD: f64 = 0.3;

/// Reads at places that jump, which nobody sorts before a drive with an arm takes them as they came.
fn unsorted(facts: &Facts<'_>) -> Option<Cost> {
    let commands = &facts.digest.commands;
    let waits = facts.of_kinds(kinds(0), &WAITS);
    let (late, least, claim, setting) = match facts.of_disk("scheduler")? {
        "none" => {
            let [late, _] = commands.late_shares();
            let claim = format!("scheduler=none: {:.0} % of the reads wait", 100.0 * late);
            (late, LATE, claim, "scheduler=mq-deadline".to_owned())
        }
        "mq-deadline" | "deadline" => {
            let expire = facts.number_of_disk("iosched/read_expire").filter(|expire| *expire <= PASSED)?;
            let batch = facts.number_of_disk("iosched/fifo_batch").filter(|batch| *batch <= SINGLE)?;
            let held = facts.of_kinds(kinds(0), &[Layer::Elevator]) / waits.max(1.0);
            let (expires, batches) = DEADLINES;
            let claim = format!(
                "read_expire={expire:.0} and fifo_batch={batch:.0}: {:.0} % of a read's wait is for others",
                100.0 * held
            );
            (held, HELD, claim, format!("iosched/read_expire={expires:.0}, iosched/fifo_batch={batches:.0}"))
        }
        _ => return None,
    };
    let moves = commands.seek_share();
    // One reader in order has nothing to sort, whatever waits for its read-ahead.
    let several = facts.digest.workload.scattered.readers > 1;
    let in_order = facts.streams >= STREAMS && !several;
    if !facts.turns()? || late < least || moves < MOVES || in_order || !keeps_busy(facts) {
        return None;
    }
    let saved = Saved::of(SORTED * waits, 0.0, BEST_SORTED * waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!("{claim}, and the disk takes them in the order of their arrival"),
        setting,
        evidence: vec![
            ("part that waits for others to end", late, Unit::Share),
            ("time that reads wait", waits, Unit::Ns),
        ],
    })
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    jumps(facts).or_else(|| unsorted(facts))
}

/// Several streams at once on a disk with an arm, which goes from one to the other; or reads in an order that jumps.
fn jumps(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let (size, nr) = own(facts, 0);
    let moves = d.commands.seek_share();
    // Calls on pipes are at once with those of the one task that reads.
    let several = d.workload.concurrency > 1 && d.workload.scattered.readers > 1;
    let turns = facts.streams >= STREAMS && several && moves >= MOVES;
    let Scattered { jumps, span, ways, .. } = d.workload.scattered;
    let jumping = jumps >= JUMPS && ways >= WAYS;
    if !facts.turns()? || nr < ENOUGH || !(turns || jumping) || !keeps_busy(facts) {
        return None;
    }
    let each = d.commands.own_busy[0] as f64 / nr;
    let usual = size * SECTOR_BYTES as f64 * 1e9 / USUAL;
    // In the order of their places the arm passes over what is between them.
    let between = if turns { 0.0 } else { (span as f64 / nr - size).max(0.0) * SECTOR_BYTES as f64 * 1e9 / USUAL };
    let alone = instead::measured(facts.service, size).unwrap_or(usual) + between;
    // Files in the order of their folder jump a little, as most programs read them.
    let (slower, arm) = if turns { (SLOWER, ARM) } else { (JUMPS_SLOWER, JUMP) };
    if each < slower * alone || each < alone + arm {
        return None;
    }
    let waits = facts.of_kinds(kinds(0), &WAITS);
    let part = 1.0 - alone / each;
    let saved = Saved::of(waits * part, f64::midpoint(0.0, waits * part), waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{}: a read takes {:.1} ms of the disk's time, and {:.1} in order",
            match turns {
                true => format!("{} streams take turns on one arm", d.workload.concurrency),
                false => format!("{jumps} reads jump: their order takes the arm {ways:.0} times over all of them"),
            },
            each / 1e6,
            alone / 1e6
        ),
        setting: match turns {
            true => "one stream after the other, or a larger read_ahead_kb".to_owned(),
            false => "reads in the order of their places (rows by key, files by inode: tar --sort=inode)".to_owned(),
        },
        evidence: vec![
            ("time of the disk for a read", each, Unit::Ns),
            ("the same in order", alone, Unit::Ns),
            ("part of the requests that begin elsewhere", moves, Unit::Share),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::RULE;
    use crate::digest::scattered::Scattered;
    use crate::digest::{Class, Digest, Layer, Place, WAITS, Ways};

    /// Root of the way of all commands.
    fn root(d: &mut Digest, root_distance: f64) {
        d.commands.within.entry(Default::default()).or_default().root_distance = root_distance;
    }

    /// Ten thousand commands of 8 sectors, which take 1 us and 2 us, with this way on the slow side.
    fn commands(slow: f64) -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.commands.issued[0] = 10_000;
                d.commands.sectors[0] = 80_000;
            });
            (p.fast.commands.busy, p.slow.commands.busy) = (10_000_000, 20_000_000);
            root(&mut p.fast, 1e7);
            root(&mut p.slow, slow);
        })
    }

    /// All choices take the next one up, then half of them.
    fn disordered() -> Pair {
        let mut pair = commands(1.3e7);
        pair.both(|d| d.commands.choices = 10_000);
        (pair.fast.commands.next_up, pair.slow.commands.next_up) = (10_000, 5000);
        pair
    }

    /// One command in ten seeks, then one in five.
    fn mixed() -> Pair {
        let mut pair = commands(1.35e7);
        (pair.fast.commands.seeks, pair.slow.commands.seeks) = (1000, 2000);
        pair
    }

    /// The same in the order in which commands end, of a disk whose arm takes this long, ns.
    fn by_the_drive(arm: f64) -> Pair {
        let mut pair = commands(1e7);
        pair.both(|d| {
            let within = d.commands.within.entry(Class { place: Place::Far, ..Class::default() }).or_default();
            within.took.add(arm);
        });
        let ways = |elsewhere, root_distance| Ways { elsewhere, root_distance, distance: 0.0 };
        (pair.fast.commands.ended, pair.slow.commands.ended) = (ways(1000, 1e7), ways(2000, 1.35e7));
        pair
    }

    /// Half of the commands seek on both sides, and farther.
    fn farther() -> Pair {
        let mut pair = commands(1.45e7);
        pair.both(|d| {
            d.commands.seeks = 5000;
            d.workload.regions = 1000;
        });
        pair
    }

    /// This many commands of 8 sectors on the slow side, with as long a way for each.
    fn number(p: &mut Pair, slow: f64) {
        p.slow.commands.issued[0] = slow as u64;
        p.slow.commands.sectors[0] = 8 * slow as u64;
        root(&mut p.slow, 1300.0 * slow);
    }

    /// Blocks that map the file are read, and waited for.
    fn metadata(p: &mut Pair, reads: f64) {
        p.slow.commands.meta[0] = reads as u64;
        p.slow.commands.meta_reads = 1_000_000;
        p.slow.time.ns[0][crate::digest::Layer::Device as usize] = 1e6;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL, smaller", |p, x| p.slow.commands.sectors[0] = x as u64, 64_000.0, 63_999.0),
            ("EQUAL, larger", |p, x| p.slow.commands.sectors[0] = x as u64, 99_999.0, 100_000.0),
            ("EQUAL, fewer", number, 8000.0, 7999.0),
            ("EQUAL, more", number, 12_499.0, 12_500.0),
            ("CHOICES", |p, x| (p.slow.commands.choices, p.slow.commands.next_up) = (x as u64, 0), 2001.0, 2000.0),
            ("CHOICES, fast", |p, x| p.fast.commands.choices = x as u64, 2001.0, 2000.0),
            ("DISORDER", |p, x| p.slow.commands.next_up = x as u64, 8500.0, 8501.0),
            ("FARTHER_DISORDERED", |p, x| root(&mut p.slow, x), 11_500_001.0, 11_500_000.0),
            ("LONGER", |p, x| p.slow.commands.busy = x as u64, 10_200_001.0, 10_200_000.0),
            ("reads of metadata", metadata, 4.0, 5.0),
        ];
        hold(&RULE, disordered, 0.7229, edges);
        let edges: &[Edge] = &[
            ("SEEKS_TIMES", |p, x| (p.fast.commands.seeks, p.slow.commands.seeks) = (2000, x as u64), 3001.0, 3000.0),
            ("SEEKS_MORE", |p, x| (p.fast.commands.seeks, p.slow.commands.seeks) = (0, x as u64), 500.0, 499.0),
            ("FARTHER_MIXED", |p, x| root(&mut p.slow, x), 13_000_001.0, 13_000_000.0),
        ];
        hold(&RULE, mixed, 0.7733, edges);
        let edges: &[Edge] = &[
            ("SEEKS_TIMES, ends", |p, x| p.slow.commands.ended.elsewhere = x as u64, 1501.0, 1500.0),
            ("FARTHER_MIXED, ends", |p, x| p.slow.commands.ended.root_distance = x, 13_000_001.0, 13_000_000.0),
            ("arm", |p, x| *p = by_the_drive(x), 2_000_001.0, 2_000_000.0),
        ];
        hold(&RULE, || by_the_drive(4e6), 0.7733, edges);
        let edges: &[Edge] = &[
            ("OFTEN", |p, x| p.both(|d| d.commands.seeks = x as u64), 1001.0, 1000.0),
            ("FARTHER", |p, x| root(&mut p.slow, x), 14_000_001.0, 14_000_000.0),
            ("SEEKS_KEPT", |p, x| p.slow.commands.seeks = x as u64, 4501.0, 4500.0),
            ("REGIONS", |p, x| p.slow.workload.regions = x as u64, 1099.0, 1100.0),
        ];
        hold(&RULE, farther, 0.8686, edges);
    }

    #[test]
    fn costs() {
        // 20 reads of 128 KiB, each of 4 ms in place of 1.
        fn reads(a: &mut Alone, elapsed: u64, ns: f64) {
            a.digest.elapsed = iowhy_stack::units::Nanos(elapsed);
            a.requests(0, 20, 256, ns);
        }
        let turns = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "rotational", "1");
                a.streams = 1.0;
                a.service = vec![(8, 1e5), (256, 1e6)];
                reads(a, 100_000_000, 8e7);
                (a.digest.workload.concurrency, a.digest.workload.scattered.readers) = (2, 2);
                a.digest.commands.seeks = 20;
            })
        };
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.requests(0, x as u64, 256, 8e7), 16.0, 15.0),
            ("STREAMS", |a, x| a.streams = x, 0.8, 0.79),
            ("MOVES", |a, x| a.digest.commands.seeks = x as u64, 6.0, 5.0),
            ("SLOWER", |a, x| a.service[1].1 = x, 2.6e6, 2.7e6),
            ("ARM", |a, x| reads(a, 60_000_000, x), 4e7, 3.9e7),
            ("readers", |a, x| a.digest.workload.scattered.readers = x as u32, 2.0, 1.0),
            ("streams at once", |a, x| a.digest.workload.concurrency = x as u32, 2.0, 1.0),
            ("an arm", |a, x| a.set("sda", "rotational", &x.to_string()), 1.0, 0.0),
        ];
        hold_cost(&RULE, turns, (60.0, 0.8), edges);
        let jumps = || {
            Alone::of(|a| {
                *a = turns();
                a.digest.workload.concurrency = 1;
                a.digest.workload.scattered = Scattered { jumps: 40, span: 20 * 256, ways: 10.0, readers: 1 };
            })
        };
        let edges: &[AloneEdge] = &[
            ("JUMPS", |a, x| a.digest.workload.scattered.jumps = x as u64, 32.0, 31.0),
            ("WAYS", |a, x| a.digest.workload.scattered.ways = x, 8.0, 7.9),
            ("JUMPS_SLOWER", |a, x| a.requests(0, 20, 256, x), 8e7, 5e7),
            ("JUMP", |a, x| a.requests(0, 20, 256, x), 8e7, 7.9e7),
        ];
        hold_cost(&RULE, jumps, (60.0, 0.8), edges);
        let unsorted = || {
            Alone::of(|a| {
                *a = turns();
                a.set("sda", "scheduler", "none");
                (a.digest.workload.concurrency, a.digest.commands.late_tags[0]) = (1, 20);
            })
        };
        let edges: &[AloneEdge] = &[
            ("LATE", |a, x| a.digest.commands.late_tags[0] = x as u64, 10.0, 9.0),
            ("MOVES", |a, x| a.digest.commands.seeks = x as u64, 6.0, 5.0),
            ("one reader in order", |a, x| (a.streams, a.digest.workload.scattered.readers) = (x, 1), 0.79, 0.8),
            ("an arm", |a, x| a.set("sda", "rotational", &x.to_string()), 1.0, 0.0),
        ];
        // 80 % are waits; at most 64 % go, and half of what is left.
        hold_cost(&RULE, unsorted, (36.0, 0.8), edges);
        let expired = || {
            Alone::of(|a| {
                *a = unsorted();
                a.set("sda", "scheduler", "mq-deadline");
                a.set("sda", "iosched/read_expire", "50");
                a.set("sda", "iosched/fifo_batch", "1");
                held(a, 3e7);
            })
        };
        fn held(a: &mut Alone, ns: f64) {
            let of = &mut a.digest.time.ns[0];
            let all: f64 = WAITS.iter().map(|layer| of[*layer as usize]).sum();
            WAITS.iter().for_each(|layer| of[*layer as usize] = 0.0);
            (of[Layer::Elevator as usize], of[Layer::Device as usize]) = (ns, all - ns);
        }
        let edges: &[AloneEdge] = &[
            ("PASSED", |a, x| a.set("sda", "iosched/read_expire", &x.to_string()), 50.0, 51.0),
            ("SINGLE", |a, x| a.set("sda", "iosched/fifo_batch", &x.to_string()), 1.0, 2.0),
            ("HELD", held, 2.5e7, 2.3e7),
        ];
        hold_cost(&RULE, expired, (36.0, 0.8), edges);
        let setting = "iosched/read_expire=500, iosched/fifo_batch=16";
        assert_eq!(expired().ask(&RULE).expect("a cost").cost.setting, setting, "{}", "DEADLINES");
        assert!((unsorted().ask(&RULE).expect("a cost").saves_pct - 36.0).abs() < 0.1, "{}", "SORTED");
        let found = unsorted().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[1] - 82.0).abs() < 0.1, "{}: {found:?}", "BEST_SORTED");
        // A sector at 150 MB/s is 3.4 us.
        let unmeasured = || {
            Alone::of(|a| {
                *a = turns();
                a.service.clear();
                a.requests(0, 20, 1, 8e7);
            })
        };
        let edges: &[AloneEdge] = &[("USUAL", |a, x| a.requests(0, 20, x as u64, 8e7), 781.0, 782.0)];
        hold_cost(&RULE, unmeasured, (79.9, 0.8), edges);
    }
}
