//! Sub-buffers of the rings as records. Nothing that the bytes may say makes it panic.
//!
//! Activity of the capture's own threads is left out. An event has the number of whichever task was on the CPU, and an
//! interrupt comes while any task runs: the reading thread, too, which is woken by the work it watches. So an event of
//! that number is left out only if it happened in the task itself (`common_flags`). Issues and completions are kept
//! always: a task may run the queue for others, and a request with one of the two counts wrongly. A BPF program cannot
//! ask for its context: of an own thread that is interrupted, inserts and requeues are left out, too.

use std::collections::BTreeMap;
use std::fmt::Write;

use iowhy_stack::trace::{Dev, Record, Seen};
use iowhy_stack::units::Nanos;

use super::format::{Field, Values};
use super::reader::{Page, TIME};
use super::ring::{self, Events, HEAD};
use super::shape::Shape;

/// In `common_flags`: a hard interrupt, a soft one, one that cannot be masked (`enum trace_flag_type`).
const INTERRUPT: u8 = 0x08 | 0x10 | 0x40;

/// Which tasks' doings are of no interest.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    pub(super) threads: Vec<u32>,
    /// But what they start inherits their descriptors.
    pub(super) children: bool,
}

impl Own {
    /// Whether this is to be left out.
    fn hides(&self, pid: u32, interrupt: bool, seen: &Seen) -> bool {
        if interrupt || !self.threads.contains(&pid) {
            return false;
        }
        match seen {
            // A switch tells of the task that comes, too.
            Seen::Issue(_) | Seen::Complete { .. } | Seen::Switch { .. } | Seen::Wake { .. } => false,
            Seen::Other { name, .. } => !(self.children && name == "task:task_newtask"),
            _ => true,
        }
    }
}

/// The decoded events.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) own: Own,
    pub(super) records: Vec<Record>,
    /// Events that the rings held.
    pub(super) events: u64,
    /// Events that made no sense, and sub-buffers of which the rest did not.
    pub(super) undecoded: u64,
    /// Events that the sub-buffers say were lost before them.
    pub(super) missed: u64,
    /// Names of processes as events have them, the last one of each with its time, ns: sub-buffers come one CPU after
    /// the other, and who moves between them is renamed on either.
    pub(super) names: BTreeMap<u32, (u64, String)>,
}

impl Decoded {
    /// The last name of each process.
    pub(super) fn last_names(&mut self) -> BTreeMap<u32, String> {
        std::mem::take(&mut self.names).into_iter().map(|(pid, (_, name))| (pid, name)).collect()
    }

    /// Takes in a sub-buffer. Times become those since `start_ns`; what was earlier is left out.
    pub(super) fn page(&mut self, page: &Page<'_>, shapes: &BTreeMap<u16, Shape>, start_ns: u64) {
        let Some(head) = ring::head(page.bytes) else {
            self.undecoded += 1;
            return;
        };
        // At least one, where the kernel does not say how many.
        self.missed += head.missed.map_or(0, |missed| missed.max(1));
        let mut events = Events::new(&page.bytes[HEAD..HEAD + head.len], head.time);
        for (time, event) in events.by_ref() {
            self.take(time, page.cpu, event, shapes, start_ns);
        }
        self.undecoded += u64::from(events.broken);
    }

    /// The same with an event of a program.
    pub(super) fn single(&mut self, page: &Page<'_>, shapes: &BTreeMap<u16, Shape>, start_ns: u64) {
        match page.bytes.split_first_chunk::<TIME>() {
            Some((time, event)) => self.take(u64::from_ne_bytes(*time), page.cpu, event, shapes, start_ns),
            None => self.undecoded += 1,
        }
    }

    fn take(&mut self, time: u64, cpu: u32, event: &[u8], shapes: &BTreeMap<u16, Shape>, start_ns: u64) {
        if time < start_ns {
            return;
        }
        self.events += 1;
        let Some((pid, interrupt, mut seen)) = self.event(time, event, shapes) else {
            self.undecoded += 1;
            return;
        };
        if !self.own.hides(pid, interrupt, &seen) {
            seen.bound();
            self.records.push(Record { at: Nanos(time.saturating_sub(start_ns)), cpu, pid, seen });
        }
    }

    /// The task that was on the CPU, whether it was interrupted, and what happened.
    fn event(&mut self, time: u64, event: &[u8], shapes: &BTreeMap<u16, Shape>) -> Option<(u32, bool, Seen)> {
        let shape = shapes.get(&u16::from_ne_bytes(event.get(..2)?.try_into().ok()?))?;
        let pid = shape.pid.number(event)? as u32;
        let flags = shape.flags.as_ref().and_then(|flags| flags.number(event)).unwrap_or(0) as u8;
        let named = shape.named.as_ref().and_then(|(of, comm)| Some((of.number(event)? as u32, comm.text(event)?)));
        if let Some((of, comm)) = named {
            // Most events are of tasks whose name is known.
            match self.names.get_mut(&of) {
                Some((at, known)) if known.as_bytes() == comm => *at = time.max(*at),
                Some((at, _)) if *at > time => {}
                _ => drop(self.names.insert(of, (time, String::from_utf8_lossy(comm).into_owned()))),
            }
        }
        let seen = match shape.show {
            Some(show) => show(&Values { event, fields: &shape.used })?,
            None => Seen::Other { name: shape.name.clone(), fields: text(&shape.all, event) },
        };
        Some((pid, flags & INTERRUPT != 0, seen))
    }
}

/// All fields as `name=value`; those that are neither numbers nor text are left out.
fn text(fields: &[Field], event: &[u8]) -> String {
    let mut out = String::new();
    for field in fields {
        let space = if out.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = if field.text {
            let Some(text) = field.text(event) else { continue };
            write!(out, "{space}{}={}", field.name, String::from_utf8_lossy(text))
        } else {
            let Some(number) = field.number(event) else { continue };
            match (field.kind.as_str(), field.signed) {
                ("dev_t", _) => {
                    let dev = Dev(number as u32);
                    write!(out, "{space}{}={},{}", field.name, dev.major(), dev.minor())
                }
                (kind, _) if kind.ends_with('*') => write!(out, "{space}{}={number:#x}", field.name),
                (_, true) => write!(out, "{space}{}={number}", field.name),
                (_, false) => write!(out, "{space}{}={}", field.name, number as u64),
            }
        };
    }
    out
}
