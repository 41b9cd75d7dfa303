//! Read-ahead held in the plug of the task that waits for other pages.
//!
//! From 2.6.39 to 3.2 a buffered read call has one plug around all of it. Its read-ahead is let go when the task goes
//! to sleep (or at 16 requests since 3.1), not when it is submitted. The signs: plugs are pulled because a task sleeps,
//! requests are held where they were not, and the device has nothing to do meanwhile, for equal windows.

use std::ops::RangeInclusive;

use iowhy_stack::event::UnplugCause;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "plug-around-read",
    layer: "plug",
    needs: super::REQUESTS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "The requests of a buffered read stay in the plug of the reading task, while the device has nothing to do.",
    why: "The plug lies around the whole call. Windows that are started ahead of the reader stay in it while the \
          reader copies pages that are there; they leave when it sleeps, and so reading and copying no longer overlap. \
          A device that saves power when it is idle has time to fall asleep.",
    events: "Plugs are pulled because their task goes to sleep; read requests are held for as long as copying takes; \
             the device starves below the plug; commands find it rested.",
    example: "2012: reads of 1 MiB from an SSD fell from 250 to 40 MB/s from 2.6.38 to 2.6.39.",
    change: "A kernel from 3.3 on, calls no larger than a window, or O_DIRECT.",
    refute: "Without the plug around the call the difference stays.",
    since: "2.6.39 to 3.2.",
    consequences: &["device-idle-exit"],
    switches: &[super::Switch::Patch("no-outer-plug"), super::Switch::Other("plug")],
    find,
    cost: None,
};

/// Ratio of windows per call: other windows are read-ahead's doing.
const SAME: RangeInclusive<f64> = 0.8..=1.25;
/// Share of cached pages that windows bring: the plug in question holds read-ahead.
const BUFFERED: f64 = 0.5;
/// Growth of the share of plugs pulled by sleep: other waits put tasks to sleep, too.
const ASLEEP: f64 = 0.1;
/// Growth of the times that reads are held and the device starves: less may be chance.
const LONGER: f64 = 1.2;
/// Part of the difference that the device starves: each request stays in a plug for a moment.
const STARVED: f64 = 0.005;
/// Growth of the share of plugs pulled by sleep, half sure and sure.
const GRADE: (f64, f64) = (0.1, 0.5);
/// Lower bound: only a plug around the call starves the device until the reader sleeps.
const LEAST_SURE: f64 = 0.8;

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    let windows = delta.per_operation(|d| d.windows.count.iter().sum::<u64>() as f64);
    let buffered = delta.of(|d| reads::share(reads::all_pages(d), d.cache.added));
    let asleep =
        delta.of(|d| reads::share(d.plugs.unplugs[UnplugCause::Schedule as usize], d.plugs.unplugs.iter().sum()));
    let held = delta.per_operation(|d| d.plugs.held.sum() + d.plugs.held_ahead.sum());
    let starved = delta.per_operation(|d| d.plugs.device_starved as f64);
    let slower = delta.slower_by();
    let same_windows = SAME.contains(&windows.ratio()) && buffered.slow > BUFFERED;
    let idle = starved.rose(LONGER) && starved.difference() > STARVED * slower;
    if !(same_windows && asleep.rose_by(ASLEEP) && held.rose(LONGER) && idle) {
        return None;
    }
    Some(Match {
        confidence: grade(asleep.difference(), GRADE.0, GRADE.1).max(LEAST_SURE),
        share_ns: None,
        claim: format!(
            "reads are held in the plug of the task that asks for them until it sleeps ({:.0} % of the plugs, against \
             {:.0} %), and the device has nothing to do for {:.0} us of a call",
            100.0 * asleep.slow,
            100.0 * asleep.fast,
            starved.slow / 1e3
        ),
        evidence: vec![
            Figure::new("plugs pulled because the task sleeps", asleep, Unit::Share),
            Figure::new("time that reads are held, for each call", held, Unit::Ns),
            Figure::new("time that the device starves meanwhile, for each call", starved, Unit::Ns),
            Figure::new("waits for each call", reads::waits(delta), Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, sure};
    use super::{RULE, UnplugCause};

    /// A thousand plugs, of which three in ten are pulled by sleep on the slow side; the device starves meanwhile.
    fn plugs() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.windows.count[0] = 1000;
                d.windows.pages[0] = 1000;
                d.cache.added = 1000;
            });
            asleep(p, 300.0);
            p.fast.plugs.held = spread(1, 1000.0);
            p.slow.plugs.held = spread(1, 2000.0);
            (p.fast.plugs.device_starved, p.slow.plugs.device_starved) = (100_000, 200_000);
        })
    }

    fn asleep(p: &mut Pair, slow: f64) {
        for (d, asleep) in [(&mut p.fast, 0), (&mut p.slow, slow as u64)] {
            d.plugs.unplugs[UnplugCause::Finish as usize] = 1000 - asleep;
            d.plugs.unplugs[UnplugCause::Schedule as usize] = asleep;
        }
    }

    /// Only what is read ahead is held.
    fn ahead(p: &mut Pair, slow: f64) {
        p.both(|d| d.plugs.held = spread(1, 0.0));
        p.fast.plugs.held_ahead = spread(1, 1000.0);
        p.slow.plugs.held_ahead = spread(1, slow);
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("equal reads", |p, x| p.slow.workload.sequential[0] = x as u64, 0.0, 10.0),
            ("SAME, fewer", |p, x| p.slow.windows.count[0] = x as u64, 800.0, 799.0),
            ("SAME, more", |p, x| p.slow.windows.count[0] = x as u64, 1250.0, 1251.0),
            ("BUFFERED", |p, x| p.slow.cache.added = x as u64, 1999.0, 2000.0),
            ("ASLEEP", asleep, 100.0, 99.0),
            ("LONGER, held", |p, x| p.slow.plugs.held = spread(1, x), 1201.0, 1200.0),
            ("LONGER, held ahead", ahead, 1201.0, 1200.0),
            ("LONGER, starved", |p, x| p.slow.plugs.device_starved = x as u64, 120_001.0, 120_000.0),
            (
                "STARVED",
                |p, x| (p.fast.plugs.device_starved, p.slow.plugs.device_starved) = (0, x as u64),
                5001.0,
                5000.0,
            ),
        ];
        hold(&RULE, plugs, 0.8413, edges);
        sure(&RULE, plugs, &[("LEAST_SURE", asleep, 150.0, 0.8)]);
    }
}
