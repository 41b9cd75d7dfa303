//! Read-ahead held in the plug of the task that waits for other pages.
//!
//! From 2.6.39 to 3.2 a buffered read call has one plug around all of it. Its read-ahead is let go when the task goes
//! to sleep (or at 16 requests since 3.1), not when it is submitted. The signs: plugs are pulled because a task sleeps,
//! requests are held where they were not, and the device has nothing to do meanwhile, for equal windows.

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
};

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
    let same_windows = (0.8..=1.25).contains(&windows.ratio()) && buffered.slow > 0.5;
    // Requests that are held for a moment on their way cause nothing.
    let idle = starved.rose(1.2) && starved.difference() > 0.005 * slower;
    if !(same_windows && asleep.rose_by(0.1) && held.rose(1.2) && idle) {
        return None;
    }
    Some(Match {
        confidence: grade(asleep.difference(), 0.1, 0.5).max(0.8),
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
