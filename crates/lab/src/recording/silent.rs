//! Targets of a recording that make no call: said early, from the kernel's counters of reads and writes, and at the
//! end, from the trace itself.
//!
//! `/proc/PID/io` counts read and write calls of all threads (`syscr`, `syscw`), also those on pipes and sockets; calls
//! of io_uring and touches of mapped files are not in it. So the early message counts reads and writes, and the one at
//! the end counts whatever the trace has of the target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use iowhy_live::capture::{Captured, Level};
use iowhy_live::machine;
use iowhy_stack::trace::{Record, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::Problem;
use iowhy_trace::fields::field;

use super::targets::{Process, Target, Targets, processes, with_descendants};

/// A target that makes no call for this time is mentioned.
const PATIENCE: Duration = Duration::from_secs(2);

/// Processes in a list.
const MOST: usize = 3;

/// Read and write calls of a process so far.
fn calls(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let of = |key: &str| io.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    of("syscr:").unwrap_or(0) + of("syscw:").unwrap_or(0)
}

/// The processes of a moment, with their calls.
#[derive(Clone, Debug, Default)]
struct Moment {
    processes: Vec<Process>,
    calls: BTreeMap<u32, u64>,
}

impl Moment {
    fn now() -> Moment {
        let processes = processes();
        let calls = processes.iter().map(|it| (it.pid, calls(it.pid))).collect();
        Moment { processes, calls }
    }

    /// How many calls a process made since an earlier moment.
    fn since(&self, before: &Moment, pid: u32) -> u64 {
        let of = |moment: &Moment| moment.calls.get(&pid).copied().unwrap_or(0);
        of(self).saturating_sub(of(before))
    }

    fn ticks(&self, pid: u32) -> u64 {
        self.processes.iter().find(|it| it.pid == pid).map_or(0, |it| it.ticks)
    }

    /// Names and numbers of a few processes.
    fn names(&self, pids: &[u32]) -> String {
        let name = |pid: &u32| {
            let known = self.processes.iter().find(|it| it.pid == *pid);
            known.map_or_else(|| pid.to_string(), |it| format!("{pid} ({})", it.comm))
        };
        let names: Vec<String> = pids.iter().take(MOST).map(name).collect();
        let more = if pids.len() > MOST { format!(" and {} more", pids.len() - MOST) } else { String::new() };
        format!("{}{more}", names.join(", "))
    }
}

/// The message about a target, if it needs one.
fn message(target: &Target, before: &Moment, after: &Moment) -> Option<Problem> {
    let roots = target.roots(&after.processes);
    let family = with_descendants(&roots, &after.processes);
    let made = |pids: &[u32]| pids.iter().map(|pid| after.since(before, *pid)).sum::<u64>();
    if made(&roots) > 0 {
        return None;
    }
    let seconds = PATIENCE.as_secs();
    let of = &target.label;
    let children: Vec<u32> = family.into_iter().filter(|pid| !roots.contains(pid)).collect();
    let busy: Vec<u32> = children.iter().copied().filter(|pid| after.since(before, *pid) > 0).collect();
    if !busy.is_empty() {
        return Some(Problem::warning(format!(
            "{of} has made no read or write in {seconds} s; its children have, and are recorded: {}",
            after.names(&busy)
        )));
    }
    let mut text = format!("{of} has made no read or write in {seconds} s, and no child of it has");
    let whole: Vec<u32> = roots.iter().chain(&children).copied().collect();
    let cpu: u64 = whole.iter().map(|pid| after.ticks(*pid).saturating_sub(before.ticks(*pid))).sum();
    if roots.is_empty() {
        text = format!("{of} has no process after {seconds} s");
    } else if cpu >= 20 {
        text.push_str(&format!(
            ", but it ran for {:.1} s: mapped files and io_uring are not counted here",
            cpu as f64 / 100.0
        ));
    }
    let mut others: Vec<(u64, u32)> = (after.processes.iter())
        .filter(|it| !whole.contains(&it.pid))
        .map(|it| (after.since(before, it.pid), it.pid))
        .filter(|(made, _)| *made > 0)
        .collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    let others: Vec<u32> = others.into_iter().map(|(_, pid)| pid).take(MOST).collect();
    let problem = Problem::warning(text);
    Some(match others.first() {
        None => problem,
        Some(first) => problem.help(format!("is it --pid {first}? most calls here: {}", after.names(&others))),
    })
}

/// Calls of the targets while a recording goes on.
#[derive(Debug)]
pub(super) struct Silence {
    begun: Instant,
    before: Option<Moment>,
    /// Every process that belonged to each target, and the threads that it had then.
    seen: Vec<BTreeSet<u32>>,
}

impl Silence {
    /// Begins, if there are targets.
    pub(super) fn new(targets: &Targets) -> Silence {
        let before = (!targets.all.is_empty()).then(Moment::now);
        Silence { begun: Instant::now(), before, seen: vec![BTreeSet::new(); targets.all.len()] }
    }

    /// Whether it is time for the messages.
    pub(super) fn is_due(&self) -> bool {
        self.before.is_some() && self.begun.elapsed() >= PATIENCE
    }

    /// Notes the members of now, and yields the messages once it is time for them.
    pub(super) fn look(&mut self, targets: &Targets, now: &[Process]) -> Vec<Problem> {
        for (target, seen) in targets.all.iter().zip(&mut self.seen) {
            for pid in with_descendants(&target.roots(now), now) {
                if seen.insert(pid) {
                    // Its threads of now; those of later have events.
                    seen.extend(machine::numbers_in(&format!("/proc/{pid}/task")));
                }
            }
        }
        let Some(before) = self.before.take_if(|_| self.begun.elapsed() >= PATIENCE) else { return Vec::new() };
        let after = Moment::now();
        targets.all.iter().filter_map(|target| message(target, &before, &after)).collect()
    }

    /// Writes into the trace which targets it has nothing of: a record `iowhy:silent` each.
    pub(super) fn write(&self, targets: &Targets, captured: &mut Captured) {
        // Requests alone belong to nobody.
        if captured.level == Level::Light {
            return;
        }
        let end = captured.trace.records.last().map_or(Nanos(0), |record| record.at);
        for (target, seen) in targets.all.iter().zip(&self.seen) {
            if !has_calls(&captured.trace, seen) {
                let seen = Seen::Other { name: "iowhy:silent".to_owned(), fields: format!("target={}", target.label) };
                captured.trace.records.push(Record { at: end, cpu: 0, pid: 0, seen });
            }
        }
    }
}

/// Whether processes, or what they started, have calls or added pages in a trace.
fn has_calls(trace: &Trace, roots: &BTreeSet<u32>) -> bool {
    let mut tasks = roots.clone();
    trace.records.iter().any(|record| match &record.seen {
        Seen::Other { name, fields } if name == "task:task_newtask" && tasks.contains(&record.pid) => {
            tasks.extend(field(fields, "pid").and_then(|pid| pid.parse::<u32>().ok()));
            false
        }
        Seen::Other { name, .. } => name.starts_with("syscalls:sys_enter_io_") && tasks.contains(&record.pid),
        Seen::CallStart { .. } | Seen::PageAdd { .. } => tasks.contains(&record.pid),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::Op;

    use super::super::Request;
    use super::*;

    fn moment(of: &[(u32, u32, &str, u64, u64)]) -> Moment {
        let one = |(pid, parent, comm, _, ticks): &(u32, u32, &str, u64, u64)| Process {
            pid: *pid,
            parent: *parent,
            comm: (*comm).to_owned(),
            ended: false,
            ticks: *ticks,
        };
        Moment {
            processes: of.iter().map(one).collect(),
            calls: of.iter().map(|(pid, .., calls, _)| (*pid, *calls)).collect(),
        }
    }

    #[test]
    fn a_target_without_calls_is_mentioned_with_who_makes_them() {
        // The test's own process is there for sure, whatever it is called.
        let own = std::os::unix::process::parent_id();
        let request = Request { pids: vec![own], ..Request::default() };
        let targets = Targets::find(&request).expect("who started us is there");
        let target = &targets.all[0];
        let before = moment(&[(own, 1, "pg", 5, 0), (2, own, "pg", 9, 0), (3, own, "pg", 9, 0), (4, 1, "fio", 0, 0)]);
        let after = |own_calls: u64, child: u64, ticks: u64| {
            let children = [(2, own, "pg", 9 + child, ticks), (3, own, "pg", 9, 0)];
            moment(&[&[(own, 1, "pg", 5 + own_calls, 0)][..], &children, &[(4, 1, "fio", 70, 0)]].concat())
        };
        for (own_calls, child, ticks, expected) in [
            (1, 0, 0, None),
            (0, 3, 0, Some("has made no read or write in 2 s; its children have, and are recorded: 2 (pg)")),
            (0, 0, 0, Some("and no child of it has\n  = try: is it --pid 4? most calls here: 4 (fio)")),
            (0, 0, 150, Some("but it ran for 1.5 s: mapped files")),
        ] {
            let found = message(target, &before, &after(own_calls, child, ticks)).map(|problem| problem.render());
            match (&found, expected) {
                (Some(text), Some(part)) => assert!(text.contains(part), "{text}"),
                (found, expected) => assert_eq!(found.as_deref(), expected),
            }
        }
    }

    #[test]
    fn only_calls_of_the_target_or_its_children_count() {
        let record = |pid, seen| Record { at: Nanos(1), cpu: 0, pid, seen };
        let call = Seen::CallStart { op: Op::Read, fd: 3, offset: None, len_bytes: 1 };
        let started = Seen::Other { name: "task:task_newtask".into(), fields: "pid=4000002 comm=a".into() };
        let ring = Seen::Other { name: "syscalls:sys_enter_io_uring_enter".into(), fields: String::new() };
        for (records, expected) in [
            (vec![record(4_000_001, call.clone())], true),
            (vec![record(4_000_002, call.clone())], false),
            (vec![record(4_000_001, started), record(4_000_002, call)], true),
            (vec![record(4_000_001, ring)], true),
            (vec![], false),
        ] {
            let trace = Trace { records, ..Trace::default() };
            assert_eq!(has_calls(&trace, &BTreeSet::from([4_000_001])), expected, "{:?}", trace.records);
        }
    }
}
