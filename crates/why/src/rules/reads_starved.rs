//! Reads wait with the elevator while writes pass.

use super::cost::{Cost, Facts, MARKED};
use super::instead;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{KIND_SYNC, Layer};

pub(super) const RULE: Rule = Rule {
    name: "reads-starved",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Reads wait with the elevator while writes pass them.",
    why: "A task waits for each read, and hardly ever for a buffered write; a scheduler without a preference for reads \
          lets a batch of hundreds of writes go first.",
    events: "The time from insertion to issue grows for reads much more than for writes, at as many commands of each.",
    example: "noop under writeback; deadline with fifo_batch raised to hundreds; the elevator of 2.4.",
    change: "deadline or mq-deadline with writes_starved at 2 or more, a smaller fifo_batch; CFQ or BFQ; wbt.",
    refute: "With the other side's scheduler and its tunables reads wait as long.",
    since: "Every kernel; deadline with its preference for reads since 2.5.39.",
    consequences: &[],
    switches: &[
        Switch::Other("elevator"),
        Switch::OtherKind("elevator."),
        Switch::Other("wbt"),
        Switch::Queue("scheduler"),
    ],
    find,
    cost: Some(|facts| by_preference(facts, 0).or_else(|| by_batches(facts))),
};

/// Requests of each direction on each side, from which on means of their waits say anything.
const ENOUGH: f64 = 20.0;
/// Ratios of requests and calls that are alike: jobs that run for a given time make fewer of the calls that are slower.
const ALIKE: std::ops::Range<f64> = 0.7..1.43;
/// Time added to the wait of the other direction, ns: below it nothing waits, and a ratio of such times means nothing.
const NO_WAIT: f64 = 1000.0;
/// Part of its time that a call waits longer with the elevator: with less the call is slow for another reason.
const PART: f64 = 0.1;
/// Factor by which the wait has grown: queues vary by less from run to run.
const LONGER: f64 = 1.5;
/// Factor by which it has grown beyond that of the other direction: a slower device makes both longer in proportion.
const PASSED: f64 = 1.5;
/// Waits of the other direction that it takes by now, if these have grown, too.
const BEHIND: f64 = 1.5;
/// Factor by which the wait of the other direction has grown at most, otherwise: it then gains by the order.
const OTHERS: f64 = 1.1;
/// Factor by which calls are slower, for anybody to notice.
const SLOWER: f64 = 1.05;
/// Growths of the wait relative to that of the other direction, half sure and sure.
const GRADE: (f64, f64) = (1.2, 3.0);

/// Requests of one direction wait while the other passes: `way` is the one that waits, 0 for reads.
pub(super) fn starved(delta: &Delta<'_>, way: usize) -> Option<Match> {
    let other = 1 - way;
    let names = ["reads", "writes"];
    let wait = |way: usize| delta.of(move |d| d.commands.i2d[way].mean());
    let enough = |way: usize| delta.of(move |d| d.commands.issued[way] as f64);
    let (own, others) = (wait(way), wait(other));
    let enough = [enough(0), enough(1)].iter().all(|n| n.fast.min(n.slow) >= ENOUGH);
    let nr = delta.per_operation(|d| d.commands.issued[way] as f64);
    let calls = delta.per_operation(|d| d.workload.calls[way] as f64);
    let equal = ALIKE.contains(&nr.ratio()) && ALIKE.contains(&calls.ratio());
    let relative = delta.of(|d| d.commands.i2d[way].mean() / (d.commands.i2d[other].mean() + NO_WAIT));
    let latency = delta.of(|d| {
        // Syncs miss pages written back in the background.
        let own = d.latency[way].mean();
        if own > 0.0 { own } else { d.latency[2].mean() }
    });
    let material = own.difference() > PART * latency.slow && latency.rose(SLOWER);
    let first = relative.rose(PASSED) && (relative.slow > BEHIND || others.ratio() <= OTHERS);
    if !(enough && equal && own.rose(LONGER) && first && material) {
        return None;
    }
    let share = delta.time(|time| time.of(crate::digest::Layer::Elevator));
    Some(Match {
        confidence: grade(relative.ratio(), GRADE.0, GRADE.1),
        share_ns: (share.difference() > 0.0).then_some(share.difference()),
        claim: format!(
            "{} wait {:.1} ms with the elevator (before {:.1}), {} {:.1} ms (before {:.1})",
            names[way],
            own.slow / 1e6,
            own.fast / 1e6,
            names[other],
            others.slow / 1e6,
            others.fast / 1e6
        ),
        evidence: vec![
            Figure::new(format!("wait of {} with the elevator", names[way]), own, Unit::Ns),
            Figure::new(format!("wait of {} with the elevator", names[other]), others, Unit::Ns),
            Figure::new(
                "changes of direction for a command",
                delta.of(|d| d.commands.turns as f64 / (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64),
                Unit::Share,
            ),
        ],
    })
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    starved(delta, 0)
}

/// Batches of reads before one of writes, as the kernel sets them.
const USUAL: f64 = 2.0;
/// Factor by which one direction waits longer than the other: before a batch of its own stand others.
const WAITS: f64 = 2.0;
/// Requests that pass a read while it waits, at least.
const PASS: f64 = 8.0;
/// Time of calls, as a part of the whole, up to which they come one after the other.
const ONE_TASK: f64 = 1.2;
/// The least part of the cost: requests that no longer pass are before the others, too.
const LEAST: f64 = 0.5;

/// The cost of a preference for the other direction that somebody has set: `way` is the one that waits.
pub(super) fn by_preference(facts: &Facts<'_>, way: usize) -> Option<Cost> {
    let against = |batches: &f64| if way == 0 { *batches == 0.0 } else { *batches > USUAL };
    let starved = facts.number_of_disk("iosched/writes_starved").filter(against)?;
    let [reads, writes] = [0, 1].map(|way| facts.digest.commands.i2d[way].mean());
    let (own, others) = if way == 0 { (reads, writes) } else { (writes, reads) };
    let commands = &facts.digest.commands;
    let each = commands.busy as f64 / (commands.issued[0] + commands.issued[1]).max(1) as f64;
    // Writes that are many wait for each other, too; a read that is preferred waits for what is at the device.
    let passed = way == 0 && own >= PASS * each.max(1.0);
    if own < WAITS * others.max(1.0) && !passed {
        return None;
    }
    let kinds: &[usize] = if way == 0 { &[0] } else { &[1, KIND_SYNC] };
    // One task among many that the scheduler prefers has a small part of their time, and the run ends with it.
    let latency: f64 = kinds.iter().map(|kind| facts.digest.latency[*kind].sum()).sum();
    let alone = latency <= ONE_TASK * facts.whole_ns;
    let of_one = if alone { latency.min(commands.i2d[way].sum()) } else { 0.0 };
    Some(Cost {
        ns: of_one.max(facts.of_kinds(kinds, &[Layer::Elevator])),
        bounds: [LEAST, 1.0],
        confidence: MARKED,
        claim: format!(
            "writes_starved={starved:.0}: writes wait {:.1} ms with the scheduler, reads {:.1} ms",
            writes / 1e6,
            reads / 1e6
        ),
        setting: format!("iosched/writes_starved={USUAL:.0}"),
        evidence: vec![
            ("time that a write waits with the scheduler", writes, Unit::Ns),
            ("time that a read waits with the scheduler", reads, Unit::Ns),
        ],
    })
}

/// Requests of one direction in a batch of mq-deadline, as the kernel sets them.
const BATCH: f64 = 16.0;
/// Factor by which batches are larger, and more writes pass a read than a batch has.
const LARGER: f64 = 4.0;

/// The cost of batches that somebody has made longer: reads wait with the scheduler while writes go on.
fn by_batches(facts: &Facts<'_>) -> Option<Cost> {
    let batch = facts.number_of_disk("iosched/fifo_batch").filter(|batch| *batch >= LARGER * BATCH)?;
    let commands = &facts.digest.commands;
    let each = commands.busy as f64 / (commands.issued[0] + commands.issued[1]).max(1) as f64;
    let waits = commands.i2d[0].mean();
    let passed = waits / each.max(1.0);
    if passed < LARGER * BATCH || commands.issued[0] > commands.issued[1] {
        return None;
    }
    let held = facts.of_kinds(instead::kinds(0), &[Layer::Elevator]);
    let part = 1.0 - BATCH / passed.min(batch);
    Some(Cost {
        ns: held * part,
        bounds: [LEAST, 1.0],
        confidence: MARKED,
        claim: format!(
            "fifo_batch={batch:.0}: a read waits {:.0} ms with the scheduler, while {passed:.0} requests pass it",
            waits / 1e6
        ),
        setting: format!("iosched/fifo_batch={BATCH:.0}"),
        evidence: vec![
            ("time that a read waits with the scheduler", waits, Unit::Ns),
            ("requests that pass a read meanwhile", passed, Unit::Count),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::super::writes_starved;
    use super::{KIND_SYNC, Layer, RULE};

    #[test]
    fn costs() {
        let starved = |way: usize, batches: &str| {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "iosched/writes_starved", batches);
                a.digest.commands.i2d[way] = spread(10, 80_000.0);
                a.digest.commands.i2d[1 - way] = spread(10, 1000.0);
                a.digest.time.ns[[0, KIND_SYNC][way]][Layer::Elevator as usize] = 8e5;
            })
        };
        let batches: fn(&mut Alone, f64) = |a, x| a.set("sda", "iosched/writes_starved", &format!("{x}"));
        let edges: &[AloneEdge] = &[
            ("USUAL", batches, 3.0, 2.0),
            ("WAITS", |a, x| a.digest.commands.i2d[0] = spread(10, x), 40_000.0, 40_001.0),
        ];
        hold_cost(&writes_starved::RULE, || starved(1, "100"), (80.0, 0.85), edges);
        let found = starved(1, "100").ask(&writes_starved::RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 40.0).abs() < 0.1, "{}: {found:?}", "LEAST");
        hold_cost(&RULE, || starved(0, "0"), (80.0, 0.85), &[("USUAL, reads", batches, 0.0, 1.0)]);
        let among_many = || {
            let mut alone = starved(0, "0");
            (alone.digest.commands.issued, alone.digest.commands.i2d[1]) = ([10, 990], spread(10, 80_000.0));
            alone
        };
        let one = || {
            let mut alone = among_many();
            alone.digest.time.ns[0] = Default::default();
            (alone.digest.commands.i2d[0], alone.digest.latency[0]) = (spread(10, 80_000.0), spread(10, 120_000.0));
            alone
        };
        let edges: &[AloneEdge] = &[("ONE_TASK", |a, x| a.digest.latency[0] = spread(10, x), 120_000.0, 120_001.0)];
        hold_cost(&RULE, one, (80.0, 0.85), edges);
        let edges: &[AloneEdge] = &[("PASS", |a, x| a.digest.commands.busy = x as u64, 1e7, 1.01e7)];
        hold_cost(&RULE, among_many, (80.0, 0.85), edges);
        let swept = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "iosched/fifo_batch", "1000");
                a.digest.commands.i2d[0] = spread(10, 160_000.0);
                (a.digest.commands.issued, a.digest.commands.busy) = ([10, 990], 1_000_000);
                a.digest.time.ns[0][Layer::Elevator as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("BATCH", |a, x| a.set("sda", "iosched/fifo_batch", &format!("{x}")), 64.0, 63.0),
            ("LARGER", |a, x| a.digest.commands.i2d[0] = spread(10, x), 64_000.0, 63_999.0),
            ("few writes", |a, x| a.digest.commands.issued = [x as u64, 1000 - x as u64], 500.0, 501.0),
        ];
        hold_cost(&RULE, swept, (72.0, 0.85), edges);
    }

    /// Times of requests with the elevator, fast and slow: reads and writes, ns.
    fn wait(p: &mut Pair, fast: [f64; 2], slow: [f64; 2]) {
        p.fast.commands.i2d = fast.map(|ns| spread(1, ns));
        p.slow.commands.i2d = slow.map(|ns| spread(1, ns));
    }

    /// Reads that wait 50 us instead of 20, while writes wait 9.
    fn waiting() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.workload.calls[0], d.commands.issued) = (1000, [1000; 2]));
            wait(p, [20_000.0, 9_000.0], [50_000.0, 9_000.0]);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            (
                "ENOUGH, fast side",
                |p, x| (p.fast.commands.issued[0], p.slow.commands.issued[0]) = (x as u64, 26),
                20.0,
                19.0,
            ),
            (
                "ENOUGH, slow side",
                |p, x| (p.fast.commands.issued[0], p.slow.commands.issued[0]) = (26, x as u64),
                20.0,
                19.0,
            ),
            ("ENOUGH, others of the fast side", |p, x| p.fast.commands.issued[1] = x as u64, 20.0, 19.0),
            ("ENOUGH, others of the slow side", |p, x| p.slow.commands.issued[1] = x as u64, 20.0, 19.0),
            ("ALIKE, fewer requests", |p, x| p.slow.commands.issued[0] = x as u64, 701.0, 699.0),
            ("ALIKE, more requests", |p, x| p.slow.commands.issued[0] = x as u64, 1429.0, 1431.0),
            ("ALIKE, fewer calls", |p, x| p.slow.workload.calls[0] = x as u64, 701.0, 699.0),
            ("ALIKE, more calls", |p, x| p.slow.workload.calls[0] = x as u64, 1429.0, 1431.0),
            ("NO_WAIT", |p, x| wait(p, [20_000.0, 0.0], [50_000.0, x]), 666.0, 667.0),
            ("PART", |p, x| p.slow.latency[0] = spread(10, x), 299_999.0, 300_000.0),
            ("LONGER", |p, x| wait(p, [60_000.0, 9_000.0], [x, 1_000.0]), 90_001.0, 90_000.0),
            ("PASSED", |p, x| wait(p, [20_000.0, 9_000.0], [50_000.0, x]), 15_666.0, 15_667.0),
            ("BEHIND", |p, x| wait(p, [20_000.0, 49_000.0], [150_000.0, x]), 98_999.0, 99_000.0),
            ("OTHERS", |p, x| wait(p, [20_000.0, 49_000.0], [60_000.0, x]), 53_900.0, 53_901.0),
            ("SLOWER", |p, x| p.slow.latency[0] = spread(10, x), 105_001.0, 105_000.0),
        ];
        hold(&RULE, waiting, 0.9005, edges);
    }
}
