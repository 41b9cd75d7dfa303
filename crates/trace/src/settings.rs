//! Circumstances of a recording: the command and its resource usage, the settings of its machine, and the kernel's
//! counters meanwhile. They are records of our own, so that every form of a trace that keeps text keeps them.
//!
//! ```text
//! iowhy:workload  pid=N                          the process that was started or named
//! iowhy:command   begin_ns= end_ns= exit= ..     when it ran, in the trace's own time, and `rusage`
//! iowhy:setting   of=WHERE key=NAME value=TEXT   queues, mounts, control groups, sysctls, the command's words
//! iowhy:counter   key=NAME value=N               what grew while it ran: throttled time, other tasks' CPU time
//! iowhy:silent    target=TEXT                    a target of the recording that made no call
//! ```

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::trace::{Dev, Seen, Trace};
use iowhy_stack::units::Nanos;

use crate::fields::field;

/// The key of a device's number, `MAJOR:MINOR`.
pub const NUMBER: &str = "number";

/// The key of a mount's named files whose data go through the journal by an attribute (`chattr +j`): how many, if any.
pub const JOURNALLED_FILES: &str = "journalled_files";

/// The place of settings of the recording itself: its disk, and the price, which are not differences of the workload.
pub const RECORDING: &str = "recording";
/// Its events, what one costs the task that causes it, picoseconds, and its length, ns.
pub const EVENTS: &str = "events";
pub const EVENT_PS: &str = "event_ps";
pub const LENGTH_NS: &str = "length_ns";

/// Resource usage of a command.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// When it began and ended, in the trace's time.
    pub span: [Nanos; 2],
    /// How it ended; -1 for a signal.
    pub exit: i32,
    /// Processor time in the program and in the kernel, ns.
    pub cpu_ns: [u64; 2],
    /// Page faults without and with I/O.
    pub faults: [u64; 2],
    /// Bytes read from devices and made dirty.
    pub bytes: [u64; 2],
    /// How often it slept, and was preempted.
    pub switches: [u64; 2],
}

impl Command {
    /// Its time by the clock, ns.
    pub fn wall_ns(&self) -> u64 {
        self.span[1].saturating_sub(self.span[0]).0
    }

    pub fn json(&self) -> serde_json::Value {
        let s = |ns: u64| ns as f64 / 1e9;
        serde_json::json!({
            "wall_s": s(self.wall_ns()),
            "exit": self.exit,
            "user_s": s(self.cpu_ns[0]),
            "system_s": s(self.cpu_ns[1]),
            "minor_faults": self.faults[0],
            "major_faults": self.faults[1],
            "read_bytes": self.bytes[0],
            "written_bytes": self.bytes[1],
            "sleeps": self.switches[0],
            "preemptions": self.switches[1],
        })
    }
}

/// Circumstances of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Processes that were started or named.
    pub roots: Vec<u32>,
    /// The command, if there was one.
    pub command: Option<Command>,
    /// Settings by where they are and what they are called.
    pub values: BTreeMap<(String, String), String>,
    /// Counter differences.
    pub counters: BTreeMap<String, u64>,
    /// Targets of the recording that made no call.
    pub silent: Vec<String>,
}

/// The message about a target without calls.
pub fn silent_text(target: &str) -> String {
    format!("{target} made no traced call: nothing in this recording is of it")
}

impl Settings {
    /// The setting `key` of `place`.
    pub fn get(&self, place: &str, key: &str) -> Option<&str> {
        self.values.get(&(place.to_owned(), key.to_owned())).map(String::as_str)
    }

    /// The price of the recording: the part of the time of those recorded that its events took, percent, and the cost
    /// of an event, ns. An estimate; nothing of traces that do not say it.
    pub fn price(&self) -> Option<[f64; 2]> {
        let number = |key| self.get(RECORDING, key)?.parse::<f64>().ok();
        let (events, ps, length) = (number(EVENTS)?, number(EVENT_PS)?, number(LENGTH_NS)?);
        // Commands that keep several processors busy share it among them.
        let cpu = self.command.map_or(0, |command| command.cpu_ns[0] + command.cpu_ns[1]) as f64;
        let pct = 100.0 * events * ps / 1000.0 / length.max(cpu).max(1.0);
        Some([pct.min(100.0), ps / 1000.0])
    }

    pub fn of(trace: &Trace) -> Settings {
        let mut all = Settings::default();
        for record in &trace.records {
            let Seen::Other { name, fields } = &record.seen else { continue };
            let number = |key: &str| field(fields, key).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            match name.as_str() {
                "iowhy:workload" => all.roots.extend(field(fields, "pid").and_then(|pid| pid.parse::<u32>().ok())),
                "iowhy:silent" => all.silent.extend(fields.strip_prefix("target=").map(str::to_owned)),
                "iowhy:setting" => {
                    let value = fields.split_once(" value=").map_or("", |(_, value)| value);
                    let of = |key| field(fields, key).unwrap_or_default().to_owned();
                    let held = all.values.entry((of("of"), of("key"))).or_default();
                    if !held.is_empty() {
                        held.push_str("; ");
                    }
                    held.push_str(value);
                }
                "iowhy:counter" => {
                    *all.counters.entry(field(fields, "key").unwrap_or_default().to_owned()).or_default() +=
                        number("value");
                }
                "iowhy:command" => {
                    all.command = Some(Command {
                        span: [Nanos(number("begin_ns")), Nanos(number("end_ns"))],
                        exit: field(fields, "exit").and_then(|exit| exit.parse().ok()).unwrap_or(-1),
                        cpu_ns: [number("user_ns"), number("system_ns")],
                        faults: [number("minor_faults"), number("major_faults")],
                        bytes: [number("read_bytes"), number("written_bytes")],
                        switches: [number("sleeps"), number("preemptions")],
                    });
                }
                _ => {}
            }
        }
        all
    }

    /// Names of devices, by the numbers that events have.
    pub fn device_names(&self) -> Vec<(Dev, String)> {
        let numbered = self.values.iter().filter(|((_, key), _)| key == NUMBER);
        let dev = |value: &str| {
            let (major, minor) = value.split_once(':')?;
            Some(Dev::new(major.parse().ok()?, minor.parse().ok()?))
        };
        numbered.filter_map(|((name, _), value)| Some((dev(value)?, name.clone()))).collect()
    }

    /// Subjects of the settings.
    fn places(&self) -> BTreeSet<&str> {
        self.values.keys().map(|(of, _)| of.as_str()).collect()
    }

    /// Settings that differ: what, and the values of both.
    pub fn differences(&self, other: &Settings) -> Vec<(String, [String; 2])> {
        if self.values.is_empty() || other.values.is_empty() {
            return Vec::new();
        }
        // Disks and folders that only one side has are matched with their only counterpart.
        let (mine, theirs) = (self.places(), other.places());
        let only = |some: &BTreeSet<&str>, others: &BTreeSet<&str>, path: bool| -> Vec<String> {
            let alone = some.iter().filter(|of| !others.contains(**of) && of.starts_with('/') == path);
            alone.map(|of| (*of).to_owned()).collect()
        };
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        for path in [false, true] {
            if let ([a], [b]) = (only(&mine, &theirs, path).as_slice(), only(&theirs, &mine, path).as_slice())
                && a != "cgroup"
                && b != "cgroup"
            {
                renamed.insert(a.clone(), b.clone());
            }
        }
        let counterpart = |of: &str| renamed.get(of).map_or(of, String::as_str).to_owned();
        let mut found = Vec::new();
        for ((of, key), value) in &self.values {
            let there = other.values.get(&(counterpart(of), key.clone()));
            let compared = mine.contains(of.as_str()) && theirs.contains(counterpart(of).as_str());
            match there {
                Some(there) if there != value && key == "words" => {
                    found.push((format!("{of} {key}"), unlike_words(value, there)));
                }
                Some(there) if there != value => found.push((format!("{of} {key}"), [value.clone(), there.clone()])),
                None if compared || of == "cgroup" => {
                    found.push((format!("{of} {key}"), [value.clone(), "unset".to_owned()]));
                }
                _ => {}
            }
        }
        let back = |of: &str| renamed.iter().find(|(_, b)| *b == of).map_or(of, |(a, _)| a).to_owned();
        for ((of, key), value) in &other.values {
            let compared = mine.contains(back(of).as_str()) && theirs.contains(of.as_str());
            if !self.values.contains_key(&(back(of), key.clone())) && (compared || of == "cgroup") {
                found.push((format!("{of} {key}"), ["unset".to_owned(), value.clone()]));
            }
        }
        let of_itself = |name: &str| name.ends_with(" loop.backing_file") || name.ends_with(&format!(" {NUMBER}"));
        let own = ["disk", EVENTS, EVENT_PS, LENGTH_NS].map(|key| format!("{RECORDING} {key}"));
        found.retain(|(name, _)| !of_itself(name) && !own.contains(name));
        found
    }
}

/// Words of two commands from the first to the last that differ, which in long ones are hard to see.
fn unlike_words(a: &str, b: &str) -> [String; 2] {
    let mut sides = [a, b].map(|words| words.split_whitespace().collect::<Vec<_>>());
    let [a, b] = &sides;
    let least = a.len().min(b.len());
    let front = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let back = a.iter().rev().zip(b.iter().rev()).take(least - front).take_while(|(a, b)| a == b).count();
    for words in &mut sides {
        words.truncate(words.len() - back);
        words.drain(..front);
    }
    sides.map(|words| if words.is_empty() { "none".to_owned() } else { words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_the_events_against_the_time() {
        let mut trace = Trace::default();
        let note = |trace: &mut Trace, name: &str, fields: &str| {
            let seen = Seen::Other { name: name.to_owned(), fields: fields.to_owned() };
            trace.records.push(iowhy_stack::trace::Record { at: Nanos(0), cpu: 0, pid: 1, seen });
        };
        for (key, value) in [(EVENTS, 1000), (EVENT_PS, 200_000), (LENGTH_NS, 10_000_000)] {
            note(&mut trace, "iowhy:setting", &format!("of=recording key={key} value={value}"));
        }
        assert_eq!(Settings::of(&trace).price(), Some([2.0, 200.0]));
        // Two processors that are busy all the time.
        let busy = "begin_ns=0 end_ns=10000000 exit=0 user_ns=12000000 system_ns=8000000";
        note(&mut trace, "iowhy:command", busy);
        assert_eq!(Settings::of(&trace).price(), Some([1.0, 200.0]));
        assert_eq!(Settings::of(&Trace::default()).price(), None);
    }

    #[test]
    fn of_long_commands_the_words_that_differ_are_shown() {
        for (a, b, expected) in [
            ("db --n=1 --db=x", "db --n=1 --db=x --mmap=1", ["none", "--mmap=1"]),
            ("dd if=a bs=4k of=b", "dd if=a bs=64k of=b", ["bs=4k", "bs=64k"]),
            ("a b b", "a b", ["b", "none"]),
            ("one", "two", ["one", "two"]),
        ] {
            assert_eq!(unlike_words(a, b), expected, "{a} / {b}");
        }
    }
}
