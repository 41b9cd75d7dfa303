//! Tasks that read one file in turn because the program has a lock of its own around its calls.
//!
//! The kernel's events do not show such a lock. Its mark: a task that sleeps outside of any call is woken by another
//! one that reads the same file. Tasks that wait for a descriptor are woken so as well and do not count.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Seen, Trace};
use iowhy_trace::fields::WAITS_FOR_DESCRIPTORS;
use iowhy_trace::join::Joined;

/// Reads of a file by a task from which on it is one of its readers.
const READER: u64 = 16;

/// How often a reader wakes another one of its file, and how many readers are woken so.
pub fn of(trace: &Trace, joined: &Joined) -> (u64, u32) {
    let mut reads: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for call in joined.calls.iter().filter(|call| call.op == Op::Read) {
        if let Some(file) = call.file {
            *reads.entry((call.pid, file)).or_default() += 1;
        }
    }
    let mut files: HashMap<u32, Vec<u32>> = HashMap::new();
    for ((pid, file), _) in reads.iter().filter(|(_, nr)| **nr >= READER) {
        files.entry(*pid).or_default().push(*file);
    }
    let shared = |a: u32, b: u32| {
        let (Some(a), Some(b)) = (files.get(&a), files.get(&b)) else { return false };
        a.iter().any(|file| b.contains(file))
    };
    if files.len() < 2 {
        return (0, 0);
    }
    // By reader: a call is in progress, or it waits for a descriptor; it sleeps.
    let (mut busy, mut asleep) = (HashSet::new(), HashSet::new());
    let set = |of: &mut HashSet<u32>, pid: u32, is: bool| if is { of.insert(pid) } else { of.remove(&pid) };
    let (mut wakes, mut woken) = (0, BTreeSet::new());
    for record in &trace.records {
        let pid = record.pid;
        match &record.seen {
            Seen::CallStart { .. } => drop(set(&mut busy, pid, true)),
            Seen::CallEnd { .. } => drop(set(&mut busy, pid, false)),
            Seen::Other { name, .. } => {
                if let Some(call) = name.strip_prefix("syscalls:sys_enter_") {
                    set(&mut busy, pid, WAITS_FOR_DESCRIPTORS.contains(&call));
                }
            }
            Seen::Switch { state, .. } => drop(set(&mut asleep, pid, state & 0xff == 1 && !busy.contains(&pid))),
            Seen::Wake { pid: other } if *other != pid && shared(*other, pid) && asleep.remove(other) => {
                wakes += 1;
                woken.insert(*other);
            }
            _ => {}
        }
    }
    (wakes, woken.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::{READER, of};
    use iowhy_text::diagnose::Problems;
    use iowhy_trace::join::{Who, join};

    /// Two tasks read a file in turn; the sleeper is woken once, between its calls or where it waits for a descriptor.
    fn turns(reads: u64, polls: bool) -> (u64, u32) {
        let mut text = String::from("# tracer: nop\n");
        let mut at = 0;
        let mut line = |pid: u32, event: &str| {
            at += 10;
            text.push_str(&format!("            t-{pid}     [000] ..... 0.{at:09}: {event}\n"));
        };
        for pid in [7, 8] {
            line(pid, "syscalls:sys_enter_openat: __syscall_nr=257 dfd=4294967196 filename=0x1 flags=0 mode=0");
            line(pid, "syscalls:sys_exit_openat: __syscall_nr=257 ret=3");
            line(pid, "iowhy:opened: fd=3 kind=file dev=7,0 ino=5");
            for _ in 0..reads {
                line(pid, "sys_read(fd: 3, buf: 0, count: 1000)");
                line(pid, "sys_read -> 0x1000");
            }
        }
        if polls {
            line(7, "syscalls:sys_enter_poll: __syscall_nr=7 ufds=0x1 nfds=1 timeout_msecs=1");
        }
        line(7, "sched_switch: prev_comm=t prev_state=S ==> next_pid=8");
        line(8, "sched_waking: pid=7");
        let mut problems = Problems::default();
        let trace = iowhy_trace::format::read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
        let joined = join(&trace, &Who::default());
        of(&trace, &joined)
    }

    #[test]
    fn readers_that_wake_each_other_between_their_calls_are_counted() {
        assert_eq!(turns(READER, false), (1, 1));
        assert_eq!(turns(READER - 1, false), (0, 0));
        assert_eq!(turns(READER, true), (0, 0));
    }
}
