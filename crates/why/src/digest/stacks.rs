//! Where tasks of the workload wait, by the functions that have called one another until then: folded stacks.
//!
//! A wait begins with the switch behind an `iowhy:stack` of its task, and ends with the switch to it, so that the time
//! until it gets a CPU is in it; one that goes on when the recording ends is counted up to there. The outermost frame
//! is the name of the task: functions of two programs may have one name.
//!
//! Known limits: waits of several tasks add up, and so may exceed the time by the clock; programs that are compiled
//! without frame pointers have short stacks, in which callers are missing; what has no stack (threads of the kernel, a
//! stack that was lost) is left out.

use std::collections::BTreeMap;

use iowhy_stack::trace::{Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_trace::fields::field;
use iowhy_trace::join::Joined;

/// Most stacks that are kept, those with the longest waits.
pub const MOST: usize = 50;

/// A stack that tasks have waited with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The outermost one first.
    pub frames: Vec<String>,
    /// Time of its waits, ns.
    pub ns: u64,
    /// How many waits.
    pub count: u64,
}

/// The stacks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Time of all waits that have a stack, ns: also of those that are not listed.
    pub all_ns: u64,
    /// At most [`MOST`], the longest waits first.
    pub list: Vec<Stack>,
}

impl Stacks {
    /// Of waits by their frames: time, ns, and number.
    fn new(by: BTreeMap<Vec<String>, (u64, u64)>) -> Stacks {
        let all_ns = by.values().map(|(ns, _)| ns).sum();
        let mut list: Vec<Stack> = by.into_iter().map(|(frames, (ns, count))| Stack { frames, ns, count }).collect();
        // Stable: equal ones stay in the order of their frames.
        list.sort_by_key(|stack| std::cmp::Reverse(stack.ns));
        list.truncate(MOST);
        Stacks { all_ns, list }
    }

    /// Those of several runs as one.
    pub fn merged<'a>(runs: impl Iterator<Item = &'a Stacks>) -> Stacks {
        let (mut by, mut all_ns) = (BTreeMap::<_, (u64, u64)>::new(), 0);
        for run in runs {
            all_ns += run.all_ns;
            for stack in &run.list {
                let (ns, count) = by.entry(stack.frames.clone()).or_default();
                (*ns, *count) = (*ns + stack.ns, *count + stack.count);
            }
        }
        Stacks { all_ns, ..Stacks::new(by) }
    }

    /// A stack's part of the waiting time, percent.
    pub fn pct(&self, stack: &Stack) -> f64 {
        100.0 * stack.ns as f64 / self.all_ns.max(1) as f64
    }
}

/// The stacks of the workload's waits.
pub fn of(trace: &Trace, joined: &Joined) -> Stacks {
    let own = |pid: u32| joined.tree.as_ref().is_none_or(|tree| tree.contains(&pid));
    // By task: the stack that its next switch is of, and since when it waits with which.
    let mut recorded: BTreeMap<u32, &str> = BTreeMap::new();
    let mut waiting: BTreeMap<u32, (Nanos, &str)> = BTreeMap::new();
    let mut waits: BTreeMap<(u32, &str), (u64, u64)> = BTreeMap::new();
    let mut end = |pid: u32, (since, frames): (Nanos, _), at: Nanos| {
        let (ns, count) = waits.entry((pid, frames)).or_default();
        (*ns, *count) = (*ns + at.saturating_sub(since).0, *count + 1);
    };
    for record in &trace.records {
        match &record.seen {
            Seen::Other { name, fields } if name == "iowhy:stack" && own(record.pid) => {
                if let Some(frames) = field(fields, "frames") {
                    recorded.insert(record.pid, frames);
                }
            }
            Seen::Switch { next, .. } => {
                if let Some(frames) = recorded.remove(&record.pid) {
                    waiting.insert(record.pid, (record.at, frames));
                }
                if let Some(wait) = waiting.remove(next) {
                    end(*next, wait, record.at);
                }
            }
            _ => {}
        }
    }
    let last = trace.records.last().map_or(Nanos::ZERO, |record| record.at);
    waiting.into_iter().for_each(|(pid, wait)| end(pid, wait, last));
    let mut by: BTreeMap<Vec<String>, (u64, u64)> = BTreeMap::new();
    for ((pid, frames), wait) in waits {
        let name = trace.name(pid).map(str::to_owned);
        let frames = name.into_iter().chain(frames.split(';').map(str::to_owned)).collect();
        let (ns, count) = by.entry(frames).or_default();
        (*ns, *count) = (*ns + wait.0, *count + wait.1);
    }
    Stacks::new(by)
}

#[cfg(test)]
mod tests {
    use iowhy_text::diagnose::Problems;
    use iowhy_trace::join::{Who, join};

    use super::*;

    /// Stacks of these lines: a task's number, when, ns, and what.
    fn folded(lines: &[(u32, u64, &str)]) -> Stacks {
        let mut text = String::from("# tracer: nop\n");
        for (pid, at, event) in lines {
            text.push_str(&format!("            t-{pid}     [000] ..... 0.{at:09}: {event}\n"));
        }
        let mut problems = Problems::default();
        let trace = iowhy_trace::format::read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
        of(&trace, &join(&trace, &Who::default()))
    }

    fn stack(frames: &str, ns: u64, count: u64) -> Stack {
        Stack { frames: frames.split(';').map(str::to_owned).collect(), ns, count }
    }

    const OUT: &str = "sched_switch: prev_comm=t prev_state=D ==> next_pid=0";
    const IN: &str = "sched_switch: prev_comm=swapper prev_state=R ==> next_pid=7";
    const READ: &str = "iowhy:stack: frames=main;row;read";
    const SYNC: &str = "iowhy:stack: frames=main;fsync";
    const WORKLOAD: &str = "iowhy:workload: pid=7";

    #[test]
    fn waits_are_folded_by_stack_the_longest_first() {
        let found = folded(&[
            (7, 0, WORKLOAD),
            (7, 10, READ),
            (7, 10, OUT),
            (0, 110, IN),
            (7, 200, SYNC),
            (7, 200, OUT),
            (0, 1200, IN),
            (7, 1300, READ),
            (7, 1301, OUT),
            (0, 1351, IN),
            // It is preempted, or has no stack: no wait of these.
            (7, 1400, OUT),
            (0, 1900, IN),
        ]);
        assert_eq!(found.list, [stack("t;main;fsync", 1000, 1), stack("t;main;row;read", 150, 2)]);
        assert_eq!((found.all_ns, found.pct(&found.list[1]).round()), (1150, 13.0));
    }

    #[test]
    fn a_wait_goes_on_until_the_end_and_others_do_not_count() {
        let found = folded(&[(7, 0, WORKLOAD), (9, 5, SYNC), (9, 5, OUT), (7, 10, READ), (7, 10, OUT), (0, 400, OUT)]);
        assert_eq!(found.list, [stack("t;main;row;read", 390, 1)]);
        assert_eq!(folded(&[(7, 10, OUT), (0, 20, IN)]), Stacks::default());
    }

    #[test]
    fn the_list_ends_and_the_whole_does_not() {
        let lines: Vec<(u64, String)> =
            (0..60).map(|nr| (nr * 10, format!("iowhy:stack: frames=main;f{nr}"))).collect();
        let lines: Vec<(u32, u64, &str)> =
            lines.iter().flat_map(|(at, text)| [(7, *at, text.as_str()), (7, *at, OUT), (0, at + 5, IN)]).collect();
        let found = folded(&lines);
        assert_eq!((found.list.len(), found.all_ns), (MOST, 300));
        let twice = Stacks::merged([&found, &found].into_iter());
        assert_eq!((twice.list.len(), twice.all_ns, twice.list[0].ns, twice.list[0].count), (MOST, 600, 10, 2));
    }
}
