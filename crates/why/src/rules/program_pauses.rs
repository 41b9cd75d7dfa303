//! The program itself takes longer between its calls.

use super::{Figure, Match, Rule, Switch, changed_job, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, Layer, Spread};

pub(super) const RULE: Rule = Rule {
    name: "program-pauses",
    layer: "application",
    needs: super::CALLS,
    owns: super::Owns::Pauses,
    single: super::Single::Times,
    what: "The program makes the same calls, with longer pauses between them.",
    why: "Work on the data, sleeps and waits elsewhere in the program are not I/O; nothing below it can make them \
          shorter.",
    events: "The calls are equal, and the time from the end of one to the begin of the next is longer.",
    example: "A think time or a rate limit in a job file; a program that compresses the data it has read.",
    change: "Look at the program (perf record, strace -c between the calls); more threads hide pauses.",
    refute: "Without the pauses the calls follow one another as late.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[Switch::OtherJob],
    find,
};

/// Calls take as long up to this ratio.
const EQUAL: f64 = 1.15;

fn latency(d: &Digest) -> f64 {
    d.latency.iter().map(Spread::sum).sum::<f64>() / d.calls().max(1) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let pauses = delta.per_operation(|d| d.pauses.sum() / f64::from(d.time.slots.max(1)));
    let silent = delta.per_operation(|d| d.silent as f64);
    // Where tasks' states are known, computing is not pausing.
    let computing = if delta.stated() { 0.0 } else { 1.0 };
    let application = delta.time(|time| time.of(Layer::Pause) + computing * time.of(Layer::Application));
    // Of several calls in flight, the next may have to wait for others: that is not a pause, and all of them are
    // slower. But while none is in flight, the program is at work with something else.
    let equal = delta.of(latency).ratio() < EQUAL;
    let whole = if equal { pauses.difference() } else { silent.difference() };
    let owned = whole.min(application.difference());
    let least = 0.1 * delta.slower_by();
    if !pauses.rose(1.2) || !silent.rose(1.2) || silent.difference() < least || owned < least {
        return None;
    }
    // Pauses that only coincide more often are not longer; and where most calls follow at once, only a program with one
    // of them in flight can tell.
    let median = delta.of(|d| d.pauses.median());
    let most = delta.of(|d| f64::from(d.workload.concurrency));
    let longer = median.rose(1.1) || median.slow == 0.0 && most.slow <= 1.0;
    if !longer || !(0.9..=1.1).contains(&most.ratio()) || (changed_job::RULE.find)(delta).is_some() {
        return None;
    }
    let each = delta.of(|d| d.pauses.mean());
    Some(Match {
        confidence: grade(pauses.ratio(), 1.1, 2.0),
        share_ns: Some(owned),
        claim: format!(
            "the program lets {:.1} us pass between two calls (before {:.1} us), which are equal",
            each.slow / 1e3,
            each.fast / 1e3
        ),
        evidence: vec![
            Figure::new("time between two calls", each, Unit::Ns),
            Figure::new("time with no call in progress for an operation", silent, Unit::Ns),
            Figure::new("time of a call", delta.of(latency), Unit::Ns),
        ],
    })
}
