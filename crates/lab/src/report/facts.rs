//! Known circumstances of a side: job, kernel, policies, machine, files; flat, so that two sides can be set against
//! each other key by key.
//!
//! The store's row of a run and the plan of a simulated one are described alike, in the words of the store: an object
//! with a `name` and `options` becomes the name and one key for each option.

use iowhy_stack::job::Place;
use iowhy_stack::outcome::Plan;
use serde_json::{Value, json};

use super::{Difference, Fact, File};
use crate::explain::gathered::{EventSource, Gathered};
use crate::incident::command::plan_of_command;
use crate::run::record::{simulated_machine, simulated_policies};

/// Adds the leaves of a value under a key.
fn flatten(key: &str, value: &Value, facts: &mut Vec<Fact>) {
    let below = |name: &str| match (key, name) {
        ("", "options") => String::new(),
        ("", name) => name.to_owned(),
        (key, "name" | "options") => key.to_owned(),
        (key, name) => format!("{key}.{name}"),
    };
    match value {
        Value::Null => {}
        Value::Object(all) => all.iter().for_each(|(name, value)| flatten(&below(name), value, facts)),
        Value::Array(all) => {
            let words = all.iter().map(plain).collect::<Vec<_>>().join(", ");
            if !words.is_empty() {
                facts.push(Fact { key: key.to_owned(), value: words });
            }
        }
        other => facts.push(Fact { key: key.to_owned(), value: plain(other) }),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value of an option for a thread.
type Of = fn(&Value) -> Option<String>;

/// Options of fio, and where the threads of a job have them in the form in which it is kept.
const OPTIONS: &[(&str, Of)] = &[
    ("ioengine", |thread| {
        let engine = &thread["spec"]["engine"];
        let name = engine.as_str().or_else(|| engine.as_object()?.keys().next().map(String::as_str))?;
        let known = [("Sync", "psync"), ("Aio", "libaio"), ("Ring", "io_uring"), ("Mmap", "mmap"), ("Null", "null")];
        known.iter().find(|(kept, _)| *kept == name).map(|(_, word)| (*word).to_owned())
    }),
    ("iodepth", |thread| {
        let engine = &thread["spec"]["engine"];
        let of = engine.as_object().and_then(|engine| engine.values().next()?.get("depth")).map(plain);
        of.or_else(|| engine.is_string().then(|| "1".to_owned()))
    }),
    ("direct", |thread| thread["spec"]["direct"].as_bool().map(|direct| u8::from(direct).to_string())),
    ("rw", |thread| {
        let random = if thread["stream"]["order"].get("Random").is_some() { "rand" } else { "" };
        let word = match thread["stream"]["mix"].as_str() {
            Some("Read") => "read",
            Some("Write") => "write",
            _ => "rw",
        };
        Some(format!("{random}{word}"))
    }),
    ("bs", |thread| thread["stream"]["blocks"].get(0)?.get("Fixed").map(plain)),
    ("io_size", |thread| thread["stream"].get("limit_bytes").map(plain)),
    ("fsync", |thread| thread["stream"].get("sync").filter(|sync| !sync.is_null()).map(Value::to_string)),
];

/// Options of a job, from the form in which a run keeps it: those of all of its threads.
fn of_job(resolved: &str) -> Vec<Fact> {
    let job: Value = serde_json::from_str(resolved).unwrap_or_default();
    let workload = &job["workload"]["Threads"];
    let Some(threads) = workload["threads"].as_array() else { return Vec::new() };
    let values = |of: &dyn Fn(&Value) -> Option<String>| {
        let mut all: Vec<String> = threads.iter().filter_map(of).collect();
        all.dedup();
        all.join(", ")
    };
    let size: u64 = workload["files"].as_array().into_iter().flatten().filter_map(|file| file["bytes"].as_u64()).sum();
    let own = [("numjobs", threads.len().to_string()), ("size", size.to_string())];
    let of_threads = OPTIONS.iter().map(|(key, of)| (*key, values(of)));
    let all = of_threads.chain(own).filter(|(_, value)| !value.is_empty());
    all.map(|(key, value)| Fact { key: key.to_owned(), value }).collect()
}

/// The plan of the first run of a side, if it was simulated and is known.
fn plan(side: &Gathered) -> Option<Plan> {
    match side.seen.first().map(|seen| &seen.again) {
        Some(EventSource::Plan(plan)) => Some((**plan).clone()),
        _ => {
            let words: Vec<String> = side.command.as_ref()?.split_whitespace().map(str::to_owned).collect();
            plan_of_command(&words).ok()
        }
    }
}

/// Words after `iowhy` that make a run of the side again.
pub fn command(side: &Gathered) -> Option<String> {
    let live = || {
        let recipe = side.recipe.as_ref()?;
        let disk = recipe.modelled.as_ref().map_or(String::new(), |disk| format!(" --on live --disk {disk}"));
        Some(format!("run {}{disk}", recipe.words.join(" ")))
    };
    side.command.clone().or_else(live)
}

/// All facts of a side, in order.
pub fn facts(side: &Gathered) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            facts.push(Fact { key: key.to_owned(), value: value.to_owned() });
        }
    };
    let mut described: Vec<Value> = Vec::new();
    if let Some(row) = &side.row {
        of_job(row.resolved.as_deref().unwrap_or_default()).iter().for_each(|fact| put(&fact.key, &fact.value));
        put("job", &row.job);
        put("where", row.place.as_deref().unwrap_or(""));
        put("machine_hash", &row.machine_hash);
        put("made by", &format!("iowhy {}", row.version));
        let (asked, policies) = row.asked();
        described.extend(policies);
        let disks = json!({ "disk": asked.disk, "modelled": asked.modelled, "modelled_disk": asked.modelled_disk });
        described.push(disks);
        described.extend(row.machine.clone());
    } else if let Some(plan) = plan(side) {
        put("job", side.command.as_deref().and_then(job_of).unwrap_or(""));
        put("where", &format!("sim:{}", plan.stack.describe()));
        described.push(simulated_policies(&plan.stack));
        described.push(simulated_machine(&plan.stack));
    }
    described.iter().for_each(|value| flatten("", value, &mut facts));
    facts
}

/// The job in the words of a command.
pub(super) fn job_of(command: &str) -> Option<&str> {
    let words = command.strip_prefix("run ").unwrap_or(command);
    words.split(" --on ").next()
}

/// Differences between the facts of two sides.
pub fn differences(a: &[Fact], b: &[Fact]) -> Vec<Difference> {
    let of = |facts: &[Fact], key: &str| {
        facts.iter().find(|fact| fact.key == key).map_or(String::new(), |fact| fact.value.clone())
    };
    let mut keys: Vec<&str> = a.iter().map(|fact| fact.key.as_str()).collect();
    keys.extend(b.iter().map(|fact| fact.key.as_str()).filter(|key| !a.iter().any(|fact| fact.key == *key)));
    let all = keys.into_iter().map(|key| Difference { key: key.to_owned(), a: of(a, key), b: of(b, key) });
    all.filter(|of| of.a != of.b).collect()
}

/// The files of a run, by number, as far as they are known.
pub fn files(side: &Gathered, run: usize) -> Vec<File> {
    let seen = side.seen.get(run);
    let layers = side.row.as_ref().and_then(|row| row.layers.as_ref());
    if let Some(known) = layers.and_then(|layers| layers.get("files")?.as_array()) {
        let of = |file: &Value| File {
            name: file.get("path").map_or(String::new(), plain),
            bytes: file.get("bytes").and_then(Value::as_u64).unwrap_or(0),
        };
        return known.iter().map(of).collect();
    }
    if let Some(names) = seen.map(|seen| &seen.files).filter(|names| !names.is_empty()) {
        return names.iter().map(|name| File { name: name.clone(), bytes: 0 }).collect();
    }
    let Some(plan) = plan(side) else { return Vec::new() };
    let name = |(nr, file): (usize, &iowhy_stack::job::FileSpec)| File {
        name: match file.place {
            Place::FileSystem => format!("file {nr}"),
            Place::Device { start } => format!("device from sector {}", start.0),
        },
        bytes: file.bytes,
    };
    plan.job.placed_files().iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_become_keys_and_differences_are_found() {
        let mut facts = Vec::new();
        let value = json!({
            "kernel": "linux-4.4", "patches": [], "options": { "read_ahead_kb": "128" },
            "elevator": { "name": "deadline", "options": { "fifo_batch": "16" } }, "nothing": null, "cpus": 2
        });
        flatten("", &value, &mut facts);
        let shown: Vec<String> = facts.iter().map(|fact| format!("{}={}", fact.key, fact.value)).collect();
        let expected =
            ["kernel=linux-4.4", "read_ahead_kb=128", "elevator=deadline", "elevator.fifo_batch=16", "cpus=2"];
        assert_eq!(shown, expected);
        let mut other = facts.clone();
        other[0].value = "linux-6.1".to_owned();
        other.pop();
        let found = differences(&facts, &other);
        let shown: Vec<[&str; 3]> = found.iter().map(|of| [of.key.as_str(), &of.a, &of.b]).collect();
        assert_eq!(shown, [["kernel", "linux-4.4", "linux-6.1"], ["cpus", "2", ""]]);
        assert!(differences(&facts, &facts).is_empty());
    }

    #[test]
    fn options_are_those_of_all_threads() {
        let thread = |engine: serde_json::Value, random: bool| {
            let order = if random { json!({ "Random": {} }) } else { json!({ "Sequential": {} }) };
            let stream = json!({ "mix": "Read", "order": order, "blocks": [{ "Fixed": 4096 }], "limit_bytes": 0 });
            json!({ "spec": { "engine": engine, "direct": true }, "stream": stream })
        };
        let job = |threads: Vec<serde_json::Value>| {
            let threads = json!({ "files": [{ "bytes": 8192 }, { "bytes": 4096 }], "threads": threads });
            let facts = of_job(&json!({ "workload": { "Threads": threads } }).to_string());
            facts.iter().map(|fact| format!("{}={}", fact.key, fact.value)).collect::<Vec<_>>().join(" ")
        };
        let deep = thread(json!({ "Aio": { "depth": 32, "batch_submit": 1 } }), true);
        let one = job(vec![deep.clone(), deep.clone()]);
        assert_eq!(one, "ioengine=libaio iodepth=32 direct=1 rw=randread bs=4096 io_size=0 numjobs=2 size=12288");
        let two = job(vec![deep, thread(json!("Sync"), false)]);
        assert!(two.starts_with("ioengine=libaio, psync iodepth=32, 1 direct=1 rw=randread, read bs=4096"), "{two}");
        assert_eq!(of_job("fio a.fio"), []);
    }

    #[test]
    fn the_job_is_the_command_without_its_place() {
        assert_eq!(job_of("run dd bs=64k --on sim:linux-4.4 --disk nvme"), Some("dd bs=64k"));
        assert_eq!(job_of("sysbench fileio --on sim:linux-4.4 run"), Some("sysbench fileio"));
    }
}
