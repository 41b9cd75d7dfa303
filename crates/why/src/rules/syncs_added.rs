//! A program syncs more often for as much that it writes.

use super::cost::{Cost, Facts, SEEN};
use super::instead::Saved;
use super::{Figure, Match, Rule, flush_cost, foreign_sync, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::KIND_SYNC;

pub(super) const RULE: Rule = Rule {
    name: "syncs-added",
    layer: "application",
    needs: super::CALLS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "The program calls fsync, fdatasync or their like more often for as much that it writes.",
    why: "A sync waits for the data, a commit of the journal and a flush of the device's cache; without it the kernel \
          writes later, and the program does not wait.",
    events: "More syncs for each write of as many bytes, and the time is in them.",
    example: "synchronous_commit from off to on in PostgreSQL; PRAGMA synchronous; a library that calls fsync after \
              each record.",
    change: "Sync once for many writes (group commit, a larger transaction), or put the log on a device with a \
             protected cache.",
    refute: "With as few syncs as on the fast side the difference remains.",
    since: "Every kernel.",
    consequences: &[
        "flush-cost",
        "synchronous-writes",
        "journal-commit-per-fsync",
        "cpu-bound-submission",
        "queue-depth-one",
        "device-latency",
        "early-writeback",
        "writeback-throttling",
        "slow-wakeups",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Part of the difference that the syncs have to own.
const LEAST_PART: f64 = 0.3;

/// Part of the difference that makes the syncs all there is to say.
const ALL: f64 = 0.6;
/// Factor by which syncs are more, all of them and those for each write.
const MORE: f64 = 1.2;
/// Syncs more at least: one more for a file or two is not a habit of the program.
const LEAST_MORE: f64 = 4.0;
/// Ratios of bytes written that are alike: a log that is synced more often has more padding, within a factor.
const ALIKE: std::ops::Range<f64> = 0.6..1.7;
/// Factors by which syncs are more, half sure and sure.
const GRADE: (f64, f64) = (1.1, 2.0);
/// Confidence at most: time in syncs is counted, but another cause can make each of them slower besides.
const MOST_SURE: f64 = 0.97;

/// More syncs of as many bytes, and the time in them. In a job of ours the syncs are the job's, which is another one
/// then.
fn added(delta: &Delta<'_>, part: f64) -> bool {
    let syncs = delta.of(|d| d.workload.calls[2] as f64);
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let programs = delta.fast.runs.iter().chain(&delta.slow.runs).all(|run| run.command.is_some());
    let more = syncs.rose(MORE) && syncs.rose_by(LEAST_MORE) && each(delta).rose(MORE);
    let as_much = ALIKE.contains(&written.ratio());
    programs && more && as_much && time(delta).difference() >= part * delta.slower_by()
}

fn each(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| d.workload.calls[2] as f64 / d.workload.calls[1].max(1) as f64)
}

fn time(delta: &Delta<'_>) -> Contrast {
    delta.time(|time| time.within(&[2], super::IN_CALLS))
}

/// The syncs are what another job comes down to.
pub(super) fn is_all(delta: &Delta<'_>) -> bool {
    added(delta, ALL)
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !added(delta, LEAST_PART) {
        return None;
    }
    let syncs = delta.of(|d| d.workload.calls[2] as f64);
    let (each, time) = (each(delta), time(delta));
    Some(Match {
        confidence: grade(syncs.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: None,
        claim: format!(
            "{:.0} syncs, against {:.0}: {:.2} for each write (before {:.2})",
            syncs.slow, syncs.fast, each.slow, each.fast
        ),
        evidence: vec![
            Figure::new("syncs", syncs, Unit::Count),
            Figure::new("syncs for each write", each, Unit::Ratio),
            Figure::new("time in syncs", super::recorded::scaled(delta, time), Unit::Ns),
        ],
    })
}

/// Files that are synced, from which on a program does it to each of many; a database has few.
const MANY_FILES: u64 = 24;
/// Files for a sync: dpkg has its data written, waits for them, and syncs each.
const EACH: f64 = 0.25;
/// Part of the time that the syncs have to take: of package managers and loads, which sync by design, they take less.
const MUCH: f64 = 0.45;
/// Part of the cost that is the least: one sync for all has the same data to write.
const LEAST: f64 = 0.5;

/// A claim, what to change, and figures.
type Said = (String, &'static str, Vec<(&'static str, f64, Unit)>);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    // Where each flush takes long, or takes along what others wrote, that is what the syncs wait for.
    if flush_cost::cost(facts).is_some() || foreign_sync::cost(facts).is_some() {
        return None;
    }
    let time = facts.of_kinds(&[KIND_SYNC], super::IN_CALLS);
    let (claim, setting, mut evidence) = of_files(facts, time).or_else(|| in_a_loop(facts, time))?;
    evidence.push(("time in syncs", time, Unit::Ns));
    let saved = Saved::of(time, LEAST * time, time);
    let setting = setting.to_owned();
    Some(Cost { ns: saved.ns, bounds: saved.bounds, confidence: SEEN, claim, setting, evidence })
}

/// One file after the other is synced, each by itself: a log's syncs are what its writer wants.
fn of_files(facts: &Facts<'_>, time: f64) -> Option<Said> {
    let (files, syncs) = (facts.digest.sync.files, facts.digest.workload.calls[KIND_SYNC]);
    let each = files >= MANY_FILES && files as f64 >= EACH * syncs as f64;
    (each && time >= MUCH * facts.whole_ns).then(|| {
        (
            format!("{files} files are synced one by one: {syncs} syncs take {:.0} ms", time / 1e6),
            "one sync for all files (syncfs), or none",
            vec![("files that are synced", files as f64, Unit::Count), ("syncs", syncs as f64, Unit::Count)],
        )
    })
}

/// Syncs of one task that nobody waits for one by one: fewer may be a day's transactions.
const LOOPED: u64 = 300;
/// The same where each takes as long as a disk turns, ns.
const SLOW_LOOP: u64 = 100;
const A_TURN: f64 = 4e6;
/// Bytes written for each at most, 64 KiB and what else a program writes, and twice as many where they are slow: a disk
/// writes more in a tenth of the time.
const LITTLE: f64 = 69_632.0;
const LITTLE_OF_SLOW: f64 = 139_264.0;
/// Part of a command's time that they take.
const MOST: f64 = 0.5;
/// Time of all syncs, as a factor of that by the clock: of more, tasks sync at once.
const TOGETHER: f64 = 1.2;

/// A command that syncs little, again and again, with nobody else at work: a transaction for each row of a load.
fn in_a_loop(facts: &Facts<'_>, time: f64) -> Option<Said> {
    let workload = &facts.digest.workload;
    let syncs = workload.calls[KIND_SYNC];
    let each = workload.bytes[1] as f64 / syncs.max(1) as f64;
    let alone = facts.settings.command.is_some() && facts.digest.latency[KIND_SYNC].sum() <= TOGETHER * time;
    let slow = time >= A_TURN * syncs as f64;
    let (least, little) = if slow { (SLOW_LOOP, LITTLE_OF_SLOW) } else { (LOOPED, LITTLE) };
    (syncs >= least && each <= little && alone && time >= MOST * facts.whole_ns).then(|| {
        let size = if each > 0.0 { format!(", {:.1} KiB each", each / 1024.0) } else { String::new() };
        (
            format!("one task syncs {syncs} times{size}: {:.0} ms, one sync after the other", time / 1e6),
            "one sync for many writes (a transaction around the loop)",
            vec![("syncs", syncs as f64, Unit::Count), ("bytes written for each", each, Unit::Bytes)],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::{RULE, Rule, find, is_all};
    use crate::digest::Layer;
    use iowhy_stack::units::Nanos;

    /// Speaks where syncs are all that differs.
    const ALL_OF_IT: Rule = Rule { find: |delta| find(delta).filter(|_| is_all(delta)), ..RULE };

    /// 1000 writes of a program with 150 syncs in place of 100, in which 0.7 of the difference lies.
    fn more() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                (d.workload.calls[1], d.workload.bytes[1]) = (1000, 1_000_000);
                d.command = Some(Default::default());
            });
            (p.fast.workload.calls[2], p.slow.workload.calls[2]) = (100, 150);
            p.slow.time.ns[2][Layer::Device as usize] = 700_000.0;
        })
    }

    fn many() -> Pair {
        Pair::of(|p| {
            *p = more();
            p.slow.workload.calls[2] = 1000;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MORE", |p, x| (p.slow.workload.calls[1], p.slow.workload.calls[2]) = (900, x as u64), 121.0, 120.0),
            ("MORE, for each write", |p, x| p.slow.workload.calls[1] = x as u64, 1249.0, 1250.0),
            ("LEAST_MORE", |p, x| (p.fast.workload.calls[2], p.slow.workload.calls[2]) = (5, x as u64), 9.0, 8.0),
            ("ALIKE, fewer", |p, x| p.slow.workload.bytes[1] = x as u64, 601_000.0, 599_000.0),
            ("ALIKE, more", |p, x| p.slow.workload.bytes[1] = x as u64, 1_699_000.0, 1_701_000.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[2][Layer::Device as usize] = x, 300_000.0, 299_999.0),
            ("a program", |p, x| p.fast.command = (x > 0.0).then(Default::default), 1.0, 0.0),
            ("a program on both sides", |p, x| p.slow.command = (x > 0.0).then(Default::default), 1.0, 0.0),
        ];
        hold(&RULE, more, 0.7594, edges);
        let time: Edge = ("ALL", |p, x| p.slow.time.ns[2][Layer::Device as usize] = x, 600_000.0, 599_999.0);
        hold(&ALL_OF_IT, more, 0.7594, &[time]);
        hold(&RULE, many, 0.97, &[("MOST_SURE", time.1, 300_000.0, 299_999.0)]);
    }

    #[test]
    fn costs() {
        let each = || {
            Alone::of(|a| {
                (a.digest.sync.files, a.digest.workload.calls[2]) = (30, 40);
                a.digest.time.ns[2][Layer::Device as usize] = 5e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY_FILES", |a, x| a.digest.sync.files = x as u64, 24.0, 23.0),
            ("EACH", |a, x| a.digest.workload.calls[2] = x as u64, 120.0, 121.0),
            ("MUCH", |a, x| a.digest.time.ns[2][Layer::Device as usize] = x, 450_000.0, 449_999.0),
        ];
        hold_cost(&RULE, each, (50.0, 0.8), edges);
        let looped = || {
            Alone::of(|a| {
                a.settings.command = Some(Default::default());
                (a.digest.workload.calls[2], a.digest.workload.bytes[1]) = (2000, 2000 * 4096);
                a.digest.latency[2] = spread(2000, 400.0);
                a.digest.time.ns[2][Layer::Device as usize] = 8e5;
            })
        };
        fn most(a: &mut Alone, ns: f64) {
            a.digest.latency[2] = spread(2000, ns / 2000.0);
            a.digest.time.ns[2][Layer::Device as usize] = ns;
        }
        let edges: &[AloneEdge] = &[
            ("LOOPED", |a, x| a.digest.workload.calls[2] = x as u64, 300.0, 299.0),
            ("LITTLE", |a, x| a.digest.workload.bytes[1] = x as u64, 2000.0 * 69_632.0, 2000.0 * 69_633.0),
            ("MOST", most, 500_000.0, 499_999.0),
            ("TOGETHER", |a, x| a.digest.latency[2] = spread(2000, x), 480.0, 481.0),
        ];
        hold_cost(&RULE, looped, (80.0, 0.8), edges);
        let slow = || {
            Alone::of(|a| {
                a.settings.command = Some(Default::default());
                a.digest.elapsed = Nanos(500_000_000);
                (a.digest.workload.calls[2], a.digest.workload.bytes[1]) = (100, 100 * 4096);
                (a.digest.latency[2], a.digest.time.ns[2][Layer::Device as usize]) = (spread(100, 4e6), 4e8);
            })
        };
        let edges: &[AloneEdge] = &[
            ("SLOW_LOOP", |a, x| a.digest.workload.calls[2] = x as u64, 100.0, 99.0),
            ("A_TURN", |a, x| a.digest.time.ns[2][Layer::Device as usize] = x, 4e8, 3.99e8),
            ("LITTLE_OF_SLOW", |a, x| a.digest.workload.bytes[1] = x as u64, 100.0 * 139_264.0, 100.0 * 139_265.0),
        ];
        hold_cost(&RULE, slow, (80.0, 0.8), edges);
        let mut foreign = slow();
        (foreign.digest.commands.sectors[1], foreign.digest.foreign.processes_wrote) = (1000, 400_000);
        assert!(foreign.ask(&RULE).is_none());
    }
}
