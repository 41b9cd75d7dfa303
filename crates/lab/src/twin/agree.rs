//! How well the twin reproduces a recording.
//!
//! ```text
//! windows    of read-ahead, as they were carried out, each run of pages that was added for one: file, first page,
//!            pages; of a kernel that has no events of read-ahead, each run of pages that a call adds
//! pages      that calls which read added to the page cache: file, page
//! requests   for data, of its calls: direction, sectors; writeback by the kernel's own threads is not compared
//! time       from the begin of the first call to the end of the last
//! ```
//! Reads that no call asks for (execve's of a program's first page) are part of neither.
//! Each but the time is the share of both together, as sets with repetition: what both have, of what the one with more
//! of them has. Nothing is fitted to reach agreement.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iowhy_stack::event::{CallId, Content, Dir, Event, EventSink, Op, RaKind, RqId, What};
use iowhy_stack::outcome::{Outcome, Plan, RunError};
use iowhy_stack::sim;
use iowhy_stack::trace::{Rwbs, Seen, Trace};
use iowhy_trace::join::Joined;
use iowhy_why::digest::{Digest, Observer};

use super::Agreement;
use super::calls::Recorded;
use super::regions::InProgress;

/// Least agreement of what has to be equal, and of times, percent.
const LEAST: f64 = 90.0;
const LEAST_TIME: f64 = 85.0;

/// Things that may be there several times.
#[derive(Clone, Debug, Default)]
struct Bag<T: Eq + Hash>(HashMap<T, u64>, u64);

impl<T: Eq + Hash> Bag<T> {
    fn add(&mut self, thing: T) {
        *self.0.entry(thing).or_default() += 1;
        self.1 += 1;
    }

    /// Common part of the larger one, percent; nothing if both are empty.
    fn common(&self, other: &Bag<T>) -> Option<f64> {
        let both: u64 = self.0.iter().map(|(it, nr)| *nr.min(other.0.get(it).unwrap_or(&0))).sum();
        let most = self.1.max(other.1);
        (most > 0).then(|| 100.0 * both as f64 / most as f64)
    }
}

/// Runs of pages that are added for a window, by task or call.
#[derive(Clone, Debug, Default)]
struct Carried(HashMap<u32, Option<(u32, u64, u64)>>);

impl Carried {
    /// A window is decided on, or with `over` whatever comes is for none.
    fn decided(&mut self, by: u32, over: bool, windows: &mut Bag<(u32, u64, u64)>) {
        let before = if over { self.0.remove(&by) } else { self.0.insert(by, None) };
        if let Some(Some(run)) = before {
            windows.add(run);
        }
    }

    fn added(&mut self, by: u32, (file, page, nr): (u32, u64, u64), windows: &mut Bag<(u32, u64, u64)>) {
        let Some(run) = self.0.get_mut(&by) else { return };
        match run {
            Some((known, start, length)) if *known == file && *start + *length == page => *length += nr,
            other => {
                if let Some(run) = other.replace((file, page, nr)) {
                    windows.add(run);
                }
            }
        }
    }
}

/// The part of a run that is compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Traits {
    windows: Bag<(u32, u64, u64)>,
    pages: Bag<(u32, u64)>,
    requests: Bag<(bool, u64)>,
    /// Time of the workload, ns.
    pub(super) time: f64,
}

impl Traits {
    /// Share of the sectors that are in requests of more than this.
    pub(super) fn share_beyond(&self, sectors: u64) -> f64 {
        let sum = |least: u64| -> u64 {
            self.requests.0.iter().filter(|((_, size), _)| *size > least).map(|((_, size), nr)| size * nr).sum()
        };
        sum(sectors) as f64 / sum(0).max(1) as f64
    }

    /// Of the recording.
    pub(super) fn of(trace: &Trace, joined: &Joined, recorded: &Recorded) -> Traits {
        let mut out = Traits { time: recorded.span.1.saturating_sub(recorded.span.0).0 as f64, ..Traits::default() };
        let numbers: HashMap<u32, u32> = (0..).zip(&recorded.files).map(|(number, file)| (*file, number)).collect();
        let own: HashSet<u32> = recorded.calls.iter().map(|place| joined.calls[*place].pid).collect();
        let inodes: HashMap<_, u32> = numbers.iter().map(|(file, nr)| (joined.files[*file as usize], *nr)).collect();
        let mut carried = Carried::default();
        let mut progress = InProgress::new(joined, &recorded.calls);
        for record in trace.records.iter().filter(|record| recorded.within(record.at) && own.contains(&record.pid)) {
            let pid = record.pid;
            if progress.is_unasked(record) {
                continue;
            }
            match record.seen {
                Seen::PageAdd { file, index, order } => {
                    let Some(file) = inodes.get(&file) else { continue };
                    let nr = 1 << order.min(31);
                    if progress.at(record.at, pid).is_none_or(|call| call.op == Op::Read) {
                        (index..index + nr).for_each(|page| out.pages.add((*file, page)));
                    }
                    carried.added(pid, (*file, index, nr), &mut out.windows);
                }
                Seen::RaOrder { .. } | Seen::RaUnbounded { .. } => carried.decided(pid, false, &mut out.windows),
                Seen::CallStart { .. } if recorded.inferred => carried.decided(pid, false, &mut out.windows),
                Seen::CallStart { .. } | Seen::CallEnd { .. } | Seen::Fault { .. } => {
                    carried.decided(pid, true, &mut out.windows);
                }
                _ => {}
            }
        }
        own.iter().for_each(|pid| carried.decided(*pid, true, &mut out.windows));
        for request in &joined.requests {
            let extent = &request.extent;
            let at = request.issued.filter(|at| recorded.within(*at));
            let ours = request.bios.iter().any(|bio| joined.bios[*bio as usize].call != 0);
            let journal = request.pids.iter().any(|pid| trace.name(*pid).is_some_and(|name| name.starts_with("jbd2/")));
            let data = !extent.rwbs.has(Rwbs::META) && !extent.rwbs.has(Rwbs::DISCARD) && extent.bytes > 0 && !journal;
            if at.is_some() && ours && data && extent.dev == recorded.device && !request.merged {
                out.requests.add((extent.rwbs.has(Rwbs::READ), u64::from(extent.bytes) / 512));
            }
        }
        out
    }
}

/// Listens to a twin: calls of others are not the workload's.
struct Listener<'a> {
    recorded: &'a Recorded,
    strangers: HashSet<u32>,
    /// Calls that write.
    writes: HashSet<u32>,
    /// Requests with bios of the workload's calls.
    owned: HashSet<RqId>,
    traits: Traits,
    carried: Carried,
    observer: Observer,
}

impl EventSink for Listener<'_> {
    fn event(&mut self, event: &Event) {
        let others = self.recorded.files.len() as u32;
        let call = event.call.0;
        if let What::CallStart { file, .. } = event.what
            && file.0 >= others
        {
            self.strangers.insert(call);
            return;
        }
        if let What::CallStart { op: Op::Write, .. } = event.what {
            self.writes.insert(call);
        }
        let strange = event.call != CallId::NONE && self.strangers.contains(&call);
        if strange {
            if let What::CallEnd { .. } = event.what {
                return;
            }
            return self.observer.event(&Event { call: CallId::NONE, ..*event });
        }
        self.observer.event(event);
        match event.what {
            What::CallStart { .. } if self.recorded.inferred => {
                self.carried.decided(call, false, &mut self.traits.windows)
            }
            What::RaWindow { kind, .. } if !self.recorded.inferred => {
                self.carried.decided(call, kind == RaKind::Single, &mut self.traits.windows);
            }
            What::CallEnd { .. } => self.carried.decided(call, true, &mut self.traits.windows),
            What::PageAdd { file, page, nr_pages } => {
                let nr = u64::from(nr_pages);
                if !self.writes.contains(&call) {
                    (page.0..page.0 + nr).for_each(|page| self.traits.pages.add((file.0, page)));
                }
                self.carried.added(call, (file.0, page.0, nr), &mut self.traits.windows);
            }
            What::GetRequest { rq } | What::Merge { rq, .. } if event.call != CallId::NONE => {
                self.owned.insert(rq);
            }
            What::MergeRequests { rq, gone } if self.owned.remove(&gone) => drop(self.owned.insert(rq)),
            What::Issue { rq, dir, content, nr_sectors, .. }
                if self.owned.remove(&rq) && content == Content::Data && nr_sectors > 0 =>
            {
                self.traits.requests.add((dir == Dir::Read, u64::from(nr_sectors)));
            }
            _ => {}
        }
    }
}

/// A run of a twin.
pub(super) struct Run {
    pub(super) traits: Traits,
    pub(super) digest: Digest,
    /// Time of a call of each of the others, ns.
    pub(super) others: Vec<f64>,
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a twin: an assertion of a model that fails then costs the prediction, not the facts.
pub fn runs() -> bool {
    RUNS.get()
}

/// Whatever a recording makes a model do, the answer has its facts.
fn guarded<T>(run: impl FnOnce() -> Result<T, RunError>) -> Result<T, RunError> {
    let before = RUNS.replace(true);
    let failed =
        |_| Err(RunError::Job("the model failed on this recording: a defect of iowhy, please report it".into()));
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(failed);
    RUNS.set(before);
    result
}

/// Makes a twin's run with a seed.
pub(super) fn run(plan: &Plan, recorded: &Recorded, seed: u64) -> Result<Run, RunError> {
    let mut plan = plan.clone();
    plan.job.seed = seed;
    let traits = Traits::default();
    let (strangers, writes, owned) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (carried, observer) = (Carried::default(), Observer::default());
    let mut listener = Listener { recorded, strangers, writes, owned, traits, carried, observer };
    let outcome: Outcome = guarded(|| sim::run_with(&plan, &mut listener))?;
    let (own, others) = outcome.threads.split_at(recorded.own.min(outcome.threads.len()));
    listener.traits.time = own.iter().map(|thread| thread.end.0).max().unwrap_or(0) as f64;
    let each = |thread: &iowhy_stack::outcome::ThreadTotals| thread.busy.0 as f64 / thread.events.max(1) as f64;
    Ok(Run { traits: listener.traits, digest: listener.observer.finish(), others: others.iter().map(each).collect() })
}

/// How well runs of the twin agree with the recording: the median of each.
pub(super) fn agreement(seen: &Traits, runs: &[Run]) -> Agreement {
    let median = |of: &dyn Fn(&Traits) -> Option<f64>| {
        let mut all: Vec<f64> = runs.iter().filter_map(|run| of(&run.traits)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let windows_pct = median(&|run| run.windows.common(&seen.windows));
    let pages_pct = median(&|run| run.pages.common(&seen.pages));
    let requests_pct = median(&|run| run.requests.common(&seen.requests));
    let time_pct =
        median(&|run| Some(100.0 - 100.0 * (run.time / seen.time.max(1.0) - 1.0).abs())).map(|it| it.max(0.0));
    let slower = median(&|run| Some(run.time / seen.time.max(1.0))).unwrap_or(1.0);
    let short = [("read-ahead windows", windows_pct), ("pages read", pages_pct), ("requests", requests_pct)];
    let mut why_not: Vec<String> = (short.iter())
        .filter_map(|(what, pct)| Some((what, (*pct)?)))
        .filter(|(_, pct)| *pct < LEAST)
        .map(|(what, pct)| format!("{pct:.0} % of the {what} are reproduced, and {LEAST:.0} % are needed"))
        .collect();
    if time_pct.is_some_and(|pct| pct < LEAST_TIME) {
        let apart = if slower > 1.0 { "longer" } else { "shorter" };
        let by = 100.0 * (slower - 1.0).abs();
        why_not.push(format!("the twin takes {by:.0} % {apart}, and {:.0} % are allowed", 100.0 - LEAST_TIME));
    }
    Agreement {
        usable: why_not.is_empty(),
        why_not: (!why_not.is_empty()).then(|| why_not.join("; ")),
        windows_pct,
        pages_pct,
        requests_pct,
        time_pct,
        nearest: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_that_fails_is_an_error_of_the_run() {
        let failed = guarded::<()>(|| {
            assert!(runs());
            panic!("a queue is empty");
        });
        assert!(matches!(failed, Err(RunError::Job(text)) if text.contains("report")));
        assert!(!runs() && matches!(guarded(|| Ok(7)), Ok(7)));
    }
}
