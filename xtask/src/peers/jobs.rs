//! Job files of fio's repository: which are accepted, and whether short forms of them do the same.
//!
//! A short form has 4 MiB a file and neither times nor devices, and its files are in the folder of the run.
//! Two runs are equal if jobs agree in names, groups, errors, bytes, calls and syncs, and iowhy's JSON lacks no key of
//! fio's. Files that fio does not run, does not end in time, or runs differently the second time, because counts depend
//! on chance or on times, are not compared, nor are those with an engine that iowhy refuses by name.
//! What iowhy runs on this kernel, the simulator has to run, with the same bytes and calls up to the rounding of times.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{Ground, ITSELF, Row, SIDES, Side};

/// Longest file, bytes.
const LONGEST: u64 = 4 << 20;
/// Options that a short form does without: times, places, and reports in intervals.
const DROPPED: &[&str] = &[
    "runtime",
    "timeout",
    "time_based",
    "ramp_time",
    "startdelay",
    "directory",
    "steadystate",
    "ss",
    "steadystate_duration",
    "ss_dur",
    "steadystate_ramp_time",
    "ss_ramp",
    "thinktime",
    "rate",
    "rate_iops",
    "status_interval",
];
/// Options with a size that is cut.
const SIZES: &[&str] = &["size", "filesize", "file_size", "io_size", "io_limit", "fill_device"];
/// In the short form one file of this number is looked at.
const SHARE: usize = 4;

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let mut files = Vec::new();
    for folder in ["examples", "t/jobs"] {
        files.extend(crate::tidy::files(&ground.source.join(folder), "fio"));
    }
    let (mut accepted, mut equal, mut simulated) = (Vec::new(), Vec::new(), Vec::new());
    for path in files.iter().step_by(if ground.whole { 1 } else { SHARE }) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let [peer, ours] = SIDES.map(|side| accepts(ground, side, path));
        if !peer? {
            continue;
        }
        let ours = ours?;
        accepted.push((name.clone(), ours));
        if !ours {
            continue;
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = shortened(&text);
        let Ok(peer) = outcome(ground, Side::Peer, &text)? else { continue };
        if !outcome(ground, Side::Peer, &text)?.is_ok_and(|again| difference(&peer, &again).is_none()) {
            continue;
        }
        let differs = match outcome(ground, Side::Iowhy, &text)? {
            // An engine that is refused by name, as the page says.
            Err(said) if said.contains("` is not run here") => continue,
            Err(_) => Some("fails".to_owned()),
            Ok(ours) => {
                simulated.push(cell(&name, simulator(ground, &text, &ours)?));
                difference(&peer, &ours)
            }
        };
        equal.push(cell(&name, differs));
    }
    // A quarter of the files may have more of the engines that are refused.
    let least = if ground.whole { [92, 95, 95] } else { [60, 85, 90] };
    Ok(vec![
        Row::new(format!("job files of fio, accepted{}", ground.version), least[0], accepted),
        Row::new(
            format!("short forms that both run, equal bytes, calls, syncs, names, groups and keys{}", ground.version),
            least[1],
            equal,
        ),
        Row::new(
            format!("the same short forms in the simulator, bytes and calls{}", ground.version),
            least[2],
            simulated,
        ),
    ])
}

/// A cell that holds if nothing differs.
fn cell(name: &str, differs: Option<String>) -> (String, bool) {
    (differs.as_ref().map_or(name.to_owned(), |what| format!("{name} ({what})")), differs.is_none())
}

/// Loss by rates in print.
const ROUNDING: f64 = 1e-3;

/// What differs between a run on this kernel and the same job in the simulator.
fn simulator(ground: &Ground, text: &str, live: &Value) -> Result<Option<String>, String> {
    let folder = ground.cell(Side::Iowhy)?;
    std::fs::write(folder.join("job.fio"), text).map_err(|error| error.to_string())?;
    let mut command = ground.command(Side::Iowhy, "sh", &folder);
    command.args(["-c", "exec \"$@\" 2>errors", "sh"]).arg(ground.program(Side::Iowhy, ITSELF));
    let said = ground.run(command.args(["run", "job.fio", "--on", "sim:linux-6.18", "--json"]), 60)?;
    let Ok(run) = serde_json::from_str::<Value>(&said.text) else { return Ok(Some("does not end".to_owned())) };
    if said.code != Some(0) {
        return Ok(Some(run["problems"][0]["message"].as_str().unwrap_or("fails").to_owned()));
    }
    let jobs = live["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let metrics = &run["runs"][0]["metrics"];
    let number = |key: &str| metrics[key].as_f64().unwrap_or(0.0);
    // A rate is over the time of its job.
    let names = metrics.as_object().into_iter().flat_map(|all| all.keys());
    let names: Vec<&str> = names.filter_map(|key| key.strip_suffix(".elapsed_s")).collect();
    for direction in ["read", "write"] {
        for (key, rate, unit) in [("io_bytes", "mb_s", 1e6), ("total_ios", "iops", 1.0)] {
            let real: f64 = jobs.iter().filter_map(|job| job[direction][key].as_f64()).sum();
            let of = |name: &&str| number(&format!("{name}.elapsed_s")) * number(&format!("{name}.{direction}_{rate}"));
            let here = (names.iter().map(of).sum::<f64>() * unit).round();
            if (real - here).abs() > ROUNDING * real.max(here) {
                return Ok(Some(format!("{direction} {key} {real} and {here}")));
            }
        }
    }
    Ok(None)
}

fn accepts(ground: &Ground, side: Side, path: &Path) -> Result<bool, String> {
    let folder = ground.cell(side)?;
    let mut command = ground.command(side, ground.program(side, "fio"), &folder);
    Ok(ground.run(command.arg("--parse-only").arg(path), 20)?.code == Some(0))
}

/// The jobs of a run that has ended well, or what was said of it.
fn outcome(ground: &Ground, side: Side, text: &str) -> Result<Result<Value, String>, String> {
    let folder = ground.cell(side)?;
    std::fs::write(folder.join("job.fio"), text).map_err(|error| error.to_string())?;
    // Offsets are not cut: a file of terabytes would fill the disk.
    let mut command = ground.command(side, "sh", &folder);
    command.args(["-c", "ulimit -f 524288; exec \"$@\"", "sh"]).arg(ground.program(side, "fio"));
    command.args(["--output-format=json+", "--output=out.json", "job.fio"]);
    // What is short for the peer has to end here, if not as soon.
    let patience = match side {
        Side::Peer if !ground.whole => 5,
        Side::Peer => 20,
        Side::Iowhy => 40,
    };
    let said = ground.run(&mut command, patience)?;
    if said.code != Some(0) {
        return Ok(Err(said.text));
    }
    let text = std::fs::read_to_string(folder.join("out.json")).unwrap_or_default();
    let begin = text.find('{').unwrap_or(0);
    let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
    Ok(values.next().and_then(Result::ok).ok_or("no JSON".to_owned()))
}

/// The first difference in words.
fn difference(peer: &Value, ours: &Value) -> Option<String> {
    let jobs = [peer, ours].map(|of| of["jobs"].as_array().map(Vec::as_slice).unwrap_or_default());
    let names =
        jobs.map(|jobs| jobs.iter().map(|job| [&job["jobname"], &job["groupid"], &job["error"]]).collect::<Vec<_>>());
    if names[0] != names[1] {
        return Some("names or groups".to_owned());
    }
    for (peer, ours) in jobs[0].iter().zip(jobs[1]) {
        for direction in ["read", "write", "trim", "mixed", "sync"] {
            for key in ["io_bytes", "total_ios"] {
                let [a, b] = [peer, ours].map(|job| &job[direction][key]);
                if a != b && !a.is_null() {
                    return Some(format!("{direction} {key} {a} and {b}"));
                }
            }
        }
    }
    let [all, have] = [peer, ours].map(|of| {
        let mut found = BTreeSet::new();
        keys(of, "", &mut found);
        found
    });
    all.difference(&have).next().map(|key| format!("no key {key}"))
}

/// Paths of all keys. Bins differ from run to run, and devices may be idle in one of them.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = format!("{path}.{key}");
                if !["bins", "disk_util"].contains(&key.as_str()) {
                    keys(value, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(array) => array.iter().for_each(|value| keys(value, path, found)),
        _ => {}
    }
}

/// The short form of a job file.
fn shortened(text: &str) -> String {
    let mut short = format!("[global]\nsize={LONGEST}\n");
    for line in text.lines().map(|line| line.split([';', '#']).next().unwrap_or_default().trim()) {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (key.trim(), value.trim());
        let device = key == "filename" && (value.contains("/dev/") || value.contains("${"));
        if DROPPED.contains(&key) || device || line.is_empty() {
            continue;
        }
        match bytes(value) {
            Some(size) if SIZES.contains(&key) && size > LONGEST => short += &format!("{key}={LONGEST}\n"),
            _ if SIZES.contains(&key) && value.contains("${") => {}
            _ if key == "filename" => {
                let names: Vec<&str> = value.split(':').filter_map(|name| name.rsplit('/').next()).collect();
                short += &format!("{key}={}\n", names.join(":"));
            }
            _ => short += &format!("{line}\n"),
        }
    }
    short
}

/// A size as fio's files have them: a number with one letter behind it, or more.
fn bytes(value: &str) -> Option<u64> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..end].parse().ok()?;
    let power = match value[end..].chars().next().map(|c| c.to_ascii_lowercase()) {
        None => 0,
        Some(letter) => 1 + "kmgtp".find(letter)? as u32,
    };
    number.checked_mul(1024u64.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_forms_have_neither_times_nor_devices() {
        let text = "; a\n[global]\nruntime=30\nsize=1g\nfilename=/dev/sda\nbs=4k\n\n[a]\ntime_based\nio_size=64k\n\
             size=50%\nfilename=/tmp/a:b ; or /dev/sda\n";
        let short = "[global]\nsize=4194304\n[global]\nsize=4194304\nbs=4k\n[a]\nio_size=64k\nsize=50%\nfilename=a:b\n";
        assert_eq!(shortened(text), short);
    }

    #[test]
    fn differences_are_found_and_additions_are_not() {
        let job = |calls: u64, key: &str| json!({"jobs": [{"jobname": "a", "read": {"total_ios": calls, key: {}}}]});
        assert_eq!(difference(&job(1, "x"), &job(1, "x")), None);
        assert_eq!(difference(&job(1, "bins"), &job(2, "bins")), Some("read total_ios 1 and 2".to_owned()));
        assert_eq!(difference(&job(1, "x"), &job(1, "y")), Some("no key .jobs.read.x".to_owned()));
        assert_eq!(difference(&json!({"jobs": []}), &job(1, "y")), Some("names or groups".to_owned()));
        let more = json!({"jobs": [{"jobname": "a", "read": {"total_ios": 1, "x": {"more": 1}}}]});
        assert_eq!(difference(&job(1, "x"), &more), None);
    }
}
