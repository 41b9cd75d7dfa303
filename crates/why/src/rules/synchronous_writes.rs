//! Each write waits until its data are on the medium.

use super::IO;
use super::cost::{Cost, Facts, MARKED, SEEN};
use super::instead::Saved;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{Digest, KIND_OTHER, KIND_SYNC, Layer};
use iowhy_stack::units::PAGE_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "synchronous-writes",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Each write waits until its data, and the metadata to find them, are on the medium.",
    why: "O_SYNC and O_DSYNC, and the mount option sync, make an fsync of every write: the data, a commit of \
          the journal, a flush.",
    events: "As many writes and syncs as before, but writes have bios of their own, or commits and flushes come \
             with each of them, and they wait for these.",
    example: "open(.., O_DSYNC) in a library; mount -o sync; dd oflag=sync; innodb_flush_method=O_DSYNC.",
    change: "Drop the flag or the mount option and sync once for many writes, or put the log on a device with a \
             protected cache.",
    refute: "Without the flag or the mount option writes wait as long.",
    since: "Every kernel.",
    consequences: &[
        "flush-cost",
        "journal-commit-per-fsync",
        "cpu-bound-submission",
        "device-latency",
        "writeback-throttling",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Ratios of writes that are alike.
const ALIKE: std::ops::Range<f64> = 0.8..1.25;
/// Factor by which syncs for a write may be more: beyond it the program syncs, and `syncs-added` is asked.
const MORE_SYNCS: f64 = 1.2;
/// Syncs for a write that may come besides: one at the end of some files.
const SPARE_SYNCS: f64 = 0.02;
/// By how much the share of writes with bios of their own has grown: O_SYNC gives every write some.
const THROUGH: f64 = 0.5;
/// Share of direct writes, which have bios in any case, from which on these say nothing.
const DIRECT: f64 = 0.5;
/// By how much commits and flushes for a write have grown: several threads can share one commit.
const FORCED: f64 = 0.3;
/// Factor by which they have grown: the timer commits on both sides.
const TIMES_FORCED: f64 = 2.0;
/// Writes on the slow side: a share of fewer is chance.
const ENOUGH: f64 = 4.0;
/// By how much the share of the time has grown that the dirty limits stop writers: then these make them wait.
const STOPPED: f64 = 0.2;
/// Part of the difference that waits of writes have to own.
const PART: f64 = 0.3;
/// Factors by which a write waits longer, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);
/// Confidence at most: flags and mount options are not in the events.
const MOST_SURE: f64 = 0.97;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let writes = delta.of(|d| d.workload.calls[1] as f64);
    let of_writes = |figure: &dyn Fn(&Digest) -> f64| delta.of(|d| figure(d) / d.workload.calls[1].max(1) as f64);
    let syncs = of_writes(&|d| d.workload.calls[2] as f64);
    let through = of_writes(&|d| d.workload.written_through as f64);
    let forced = of_writes(&|d| (d.sync.commits + d.sync.flush.count()) as f64);
    let time = delta.time(|time| time.within(&[1], IO));
    let direct = of_writes(&|d| d.workload.direct[1] as f64);
    let as_many = ALIKE.contains(&writes.ratio()) && syncs.slow <= MORE_SYNCS * syncs.fast + SPARE_SYNCS;
    let through_new = through.rose_by(THROUGH) && direct.slow < DIRECT;
    let new = through_new || forced.rose_by(FORCED) && forced.rose(TIMES_FORCED);
    let stopped = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.dirty_ns / wall.span_ns.max(1) as f64));
    let owned = time.difference() >= PART * delta.slower_by();
    if writes.slow < ENOUGH || !as_many || !new || stopped.rose_by(STOPPED) || !owned {
        return None;
    }
    let each = Contrast::of_means(time.fast * delta.scale() / writes.fast, time.slow * delta.scale() / writes.slow);
    Some(Match {
        confidence: grade(each.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(time.difference()),
        claim: format!(
            "{:.0} % of the writes go to the device within the call (before {:.0} %), with {:.2} commits and \
            flushes each \
             (before {:.2})",
            100.0 * through.slow,
            100.0 * through.fast,
            forced.slow,
            forced.fast
        ),
        evidence: vec![
            Figure::new("share of writes with bios of their own", through, Unit::Share),
            Figure::new("commits and flushes for each write", forced, Unit::Ratio),
            Figure::new("time that a write waits for the medium", each, Unit::Ns),
        ],
    })
}

/// Share of writes that reach the device within their call, from which on each is synchronous.
const MOSTLY_THROUGH: f64 = 0.8;
/// Commits that nobody asked for, from which on names wait for them.
const MANY_COMMITS: f64 = 16.0;
/// Confidence of the cost without and with the mount option.
const ALONE: (f64, f64) = (0.8, 0.89);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    of_writes(facts).or_else(|| of_some_files(facts)).or_else(|| of_names(facts))
}

/// Parts of the writes' time, from which on those of some files are what counts.
const MOSTLY: f64 = 0.5;
/// The least part of the cost: what is written may have to be on the medium all the same, at fewer times.
const LEAST: f64 = 0.3;

/// Files that were opened with O_DSYNC among others, or with O_DIRECT as well.
fn of_some_files(facts: &Facts<'_>) -> Option<Cost> {
    let (writes, took) = facts.digest.workload.synchronous;
    let part = took / facts.digest.latency[1].sum().max(1.0);
    if (writes as f64) < ENOUGH || part < MOSTLY {
        return None;
    }
    let time = part.min(1.0) * (waited(facts, &[1]) + code(facts));
    let saved = Saved::of(time, LEAST * time, time);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: ALONE.0,
        claim: format!(
            "{writes} writes are on files that are opened with O_DSYNC or O_SYNC: each waits {:.2} ms until it is on \
             the medium",
            took / writes as f64 / 1e6
        ),
        setting: "no O_SYNC or O_DSYNC".to_owned(),
        evidence: vec![
            ("share of the writes' time that goes to these files", part, Unit::Share),
            ("time that they wait for the medium", time, Unit::Ns),
        ],
    })
}

/// Names that are made, moved or removed wait for a commit each.
fn of_names(facts: &Facts<'_>) -> Option<Cost> {
    let mounted = ["dirsync", "wsync", "sync"].into_iter().find_map(|of| Some((of, facts.mounted_with(of)?)));
    // File systems without a journal of jbd2 write their log themselves.
    let sync = &facts.digest.sync;
    let commits = if sync.commits > 0 { sync.commits } else { sync.flush.count() } as f64;
    if commits < ENOUGH {
        return None;
    }
    // What is written has to reach the device at the end all the same.
    let trips = [IO, &[Layer::Ready]].concat();
    let waits = facts.in_layers(&trips) - facts.of_kinds(&[0], &trips);
    let saved = Saved::of(waits, waits - facts.of_kinds(&[1, KIND_SYNC], IO), waits);
    // Whoever links, moves or removes files waits for a commit only if it has to.
    let of_names = facts.of_kinds(&[KIND_OTHER], IO);
    let d = facts.digest;
    let unread = d.commands.issued[0] as f64 <= commits;
    let alone = commits >= MANY_COMMITS && unread && d.workload.calls[KIND_SYNC] == 0;
    if mounted.is_none() && !(alone && of_names >= MOSTLY * facts.whole_ns) {
        return None;
    }
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: if mounted.is_some() { MARKED } else { SEEN },
        claim: match mounted {
            Some((option, point)) => {
                format!("{point} is mounted with {option}: {commits:.0} commits make changes of directories wait")
            }
            None => {
                format!("changes of directories wait for {commits:.0} commits, though nobody syncs (chattr +D, +S)")
            }
        },
        setting: match mounted {
            Some(_) => "async (mount -o remount,async)".to_owned(),
            None => "no attribute D or S (chattr -D -S)".to_owned(),
        },
        evidence: vec![
            ("commits of the journal", commits, Unit::Count),
            ("time that calls other than reads wait", waits, Unit::Ns),
        ],
    })
}

/// Time in which some kinds of calls wait for I/O, and for a CPU after it, ns.
fn waited(facts: &Facts<'_>, kinds: &[usize]) -> f64 {
    facts.of_kinds(kinds, &[IO, &[Layer::Ready]].concat())
}

/// Time of the kernel's code that writes cost beyond calls that copy pages, ns.
fn code(facts: &Facts<'_>) -> f64 {
    let workload = &facts.digest.workload;
    let pages = workload.bytes[1] as f64 / PAGE_BYTES as f64;
    let cpu = facts.of_kinds(&[1], &[Layer::Cpu]);
    facts.code.map_or(0.0, |code| (cpu - code.call_ns * workload.calls[1] as f64 - code.page_ns * pages).max(0.0))
}

fn of_writes(facts: &Facts<'_>) -> Option<Cost> {
    let workload = &facts.digest.workload;
    let writes = workload.calls[1] as f64;
    let [through, direct] = [workload.written_through, workload.direct[1]].map(|n| n as f64 / writes.max(1.0));
    if writes < ENOUGH || through < MOSTLY_THROUGH || direct > DIRECT {
        return None;
    }
    let mounted = facts.mounted_with("sync");
    let (without, with) = ALONE;
    let time = facts.of_kinds(&[1], IO);
    // Each wait ends with one for a CPU, and what is not submitted is no code. Names wait on such a mount, too.
    // The least is for data that have to be on the medium at the end: the device's own time is waited for then.
    let names = if mounted.is_some() { waited(facts, &[KIND_OTHER]) } else { 0.0 };
    let all = time + facts.of_kinds(&[1], &[Layer::Ready]) + code(facts) + names;
    let saved = Saved::of(all, all - (facts.digest.commands.own_busy[1] as f64).min(time), all);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: if mounted.is_some() { with } else { without },
        claim: format!(
            "{:.0} % of the writes wait until they are on the medium{}",
            100.0 * through,
            mounted.map_or(String::new(), |point| format!(": {point} is mounted with sync"))
        ),
        setting: if mounted.is_some() { "async (mount -o remount,async)" } else { "no O_SYNC or O_DSYNC" }.to_owned(),
        evidence: vec![
            ("share of writes with bios of their own", through, Unit::Share),
            ("time that writes wait for the medium", time, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::{KIND_OTHER, Layer, wall::Wall};

    /// 1000 writes, which have bios of their own on the slow side, and wait twice as long.
    fn through() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.calls = [0, 1000, 0]);
            p.slow.workload.written_through = 1000;
            p.fast.time.ns[1][Layer::Device as usize] = 400_000.0;
            p.slow.time.ns[1][Layer::Device as usize] = 800_000.0;
        })
    }

    /// The same with commits in place of the bios.
    fn forced() -> Pair {
        Pair::of(|p| {
            *p = through();
            (p.slow.workload.written_through, p.slow.sync.commits) = (0, 1000);
        })
    }

    fn slow() -> Pair {
        Pair::of(|p| {
            *p = through();
            p.slow.time.ns[1][Layer::Device as usize] = 4_000_000.0;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("ALIKE, fewer", |p, x| p.slow.workload.calls[1] = x as u64, 801.0, 799.0),
            ("ALIKE, more", |p, x| p.slow.workload.calls[1] = x as u64, 1249.0, 1251.0),
            ("MORE_SYNCS", |p, x| (p.fast.workload.calls[2], p.slow.workload.calls[2]) = (500, x as u64), 619.0, 621.0),
            ("SPARE_SYNCS", |p, x| p.slow.workload.calls[2] = x as u64, 20.0, 21.0),
            ("THROUGH", |p, x| p.slow.workload.written_through = x as u64, 500.0, 499.0),
            ("DIRECT", |p, x| p.slow.workload.direct[1] = x as u64, 499.0, 500.0),
            (
                "ENOUGH",
                |p, x| {
                    p.both(|d| d.workload.calls[1] = x as u64);
                    p.slow.workload.written_through = x as u64;
                },
                4.0,
                3.0,
            ),
            (
                "STOPPED",
                |p, x| p.slow.wall = Some(Wall { span_ns: 1000, dirty_ns: x, ..Wall::default() }),
                199.0,
                200.0,
            ),
            ("PART", |p, x| p.slow.time.ns[1][Layer::Device as usize] = x, 700_000.0, 699_999.0),
        ];
        hold(&RULE, through, 0.7576, edges);
        let edges: &[Edge] = &[
            ("FORCED", |p, x| p.slow.sync.commits = x as u64, 300.0, 299.0),
            (
                "FORCED, flushes",
                |p, x| (p.slow.sync.commits, p.slow.sync.flush) = (0, spread(x as u64, 1.0)),
                300.0,
                299.0,
            ),
            ("TIMES_FORCED", |p, x| (p.fast.sync.commits, p.slow.sync.commits) = (400, x as u64), 801.0, 800.0),
        ];
        hold(&RULE, forced, 0.7576, edges);
        hold(&RULE, slow, 0.97, &[("MOST_SURE", |p, x| p.slow.workload.calls[2] = x as u64, 20.0, 21.0)]);
    }

    #[test]
    fn costs() {
        let synced = || {
            Alone::of(|a| {
                (a.digest.workload.calls[1], a.digest.workload.written_through) = (10, 10);
                a.set("/x", "mount_options", "rw,sync,noatime");
                a.digest.time.ns[1][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            (
                "ENOUGH, alone",
                |a, x| (a.digest.workload.calls[1], a.digest.workload.written_through) = (x as u64, x as u64),
                4.0,
                3.0,
            ),
            ("MOSTLY_THROUGH", |a, x| a.digest.workload.written_through = x as u64, 8.0, 7.0),
            ("DIRECT, alone", |a, x| a.digest.workload.direct[1] = x as u64, 5.0, 6.0),
        ];
        hold_cost(&RULE, synced, (80.0, 0.89), edges);
        let names = || {
            Alone::of(|a| {
                a.set("/x", "mount_options", "rw,dirsync");
                a.digest.sync.commits = 10;
                a.digest.time.ns[KIND_OTHER][Layer::Lock as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[("ENOUGH, commits", |a, x| a.digest.sync.commits = x as u64, 4.0, 3.0)];
        hold_cost(&RULE, names, (80.0, 0.85), edges);
        let marked = || {
            Alone::of(|a| {
                a.digest.sync.commits = 20;
                a.digest.time.ns[KIND_OTHER][Layer::Device as usize] = 8e5;
                a.digest.commands.issued[0] = 0;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY_COMMITS", |a, x| a.digest.sync.commits = x as u64, 16.0, 15.0),
            ("MOSTLY, names", |a, x| a.digest.time.ns[KIND_OTHER][Layer::Device as usize] = x, 5e5, 4.9e5),
            ("reads", |a, x| a.digest.commands.issued[0] = x as u64, 20.0, 21.0),
            ("syncs", |a, x| a.digest.workload.calls[2] = x as u64, 0.0, 1.0),
        ];
        hold_cost(&RULE, marked, (80.0, 0.8), edges);
        let files = || {
            Alone::of(|a| {
                (a.digest.workload.synchronous, a.digest.latency[1]) = ((10, 8e5), spread(20, 5e4));
                a.digest.time.ns[1][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("ENOUGH, files", |a, x| a.digest.workload.synchronous.0 = x as u64, 4.0, 3.0),
            ("MOSTLY", |a, x| a.digest.workload.synchronous.1 = x, 5e5, 4.9e5),
            ("LEAST", |a, x| a.digest.workload.synchronous.1 = x, 5e5, 4.9e5),
        ];
        hold_cost(&RULE, files, (64.0, 0.8), edges);
    }
}
