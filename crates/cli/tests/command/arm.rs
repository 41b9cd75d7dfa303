//! `iowhy trace arm`, `disarm`, `sum` and `price`. They need root, as `trace` does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::trace::{Scratch, permitted};
use super::{check_schema, text};

/// A recorder that is armed.
struct Armed {
    child: Child,
    lines: Vec<String>,
}

fn arm(scratch: &Scratch, options: &str) -> Armed {
    let mut command = scratch.command(&format!("trace arm --json --keep 20s --after 50ms --store store {options}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = Vec::new();
    let mut line = String::new();
    while !line.starts_with("armed") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("text") > 0, "{lines:?}");
        lines.push(line.clone());
    }
    // What it says later is of no interest, but has to go somewhere.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Armed { child, lines }
}

impl Armed {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a number");
        kill_process(pid, signal).expect("it lives");
    }

    /// It ends by itself.
    fn end(self) -> Value {
        let output = self.child.wait_with_output().expect("it ends");
        let value: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", text(&output.stdout), self.lines));
        check_schema("trace-arm", &value);
        value
    }
}

fn read(scratch: &Scratch) {
    let dd = ["if=data", "of=/dev/null", "bs=4k", "count=256"];
    let status = Command::new("dd").args(dd).current_dir(&scratch.0).stderr(Stdio::null()).status();
    assert!(status.expect("dd starts").success());
}

#[test]
fn a_signal_saves_the_last_while_and_why_reads_it() {
    let scratch = Scratch::new("arm");
    for (options, mistake) in [
        ("--when p99", "a trigger is"),
        ("--keep soon", "a time is"),
        ("--memory 1T", "an amount"),
        ("--pid 999999999", "no process 999999999"),
    ] {
        let (_, message) = scratch.ends(&format!("trace arm --store store {options}"), 2);
        assert!(message.contains(mistake), "{options}: {message}");
    }
    if !permitted() {
        return;
    }
    scratch.write("data", &vec![1; 1 << 20]);
    let armed = arm(&scratch, "--max 1 --when signal --when p99>1h");
    read(&scratch);
    armed.signal(Signal::USR1);
    let value = armed.end();
    let kept = value["kept"].as_array().expect("recordings");
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0]["trigger"], &kept[0]["short"]), (&"signal".into(), &false.into()));
    let run = kept[0]["run"].as_str().expect("it is in the store");
    let mut why = scratch.command(&format!("why --json --from {run}"));
    let output = why.env("IOWHY_STORE", scratch.0.join("store")).output().expect("the command starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
    check_schema("why", &answer);
    assert!(answer["facts"]["calls"].as_u64() >= Some(256), "{answer:#}");
    assert!(answer["price"]["ns_per_event"].as_f64() > Some(0.0));
    assert!(scratch.is_tidy());
}

#[test]
fn what_a_killed_recorder_left_is_named_and_undone() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("arm-killed");
    let mut killed = arm(&scratch, "--memory 1M");
    let other = arm(&scratch, "--memory 1M");
    killed.child.kill().expect("it lives");
    killed.child.wait().expect("it ends");
    let (report, _) = scratch.ends("doctor", 1);
    assert!(report.contains("the trace instance"), "{report}");
    scratch.ends("doctor --fix", 0);
    // The other one is armed still.
    let (out, _) = scratch.ends("trace disarm --json", 0);
    let value: Value = serde_json::from_str(&out).expect("one object");
    check_schema("trace-disarm", &value);
    assert_eq!((&value["ended"][0]["pid"], &value["ended"][0]["ended"]), (&other.child.id().into(), &true.into()));
    assert_eq!(other.end()["kept"].as_array().map(Vec::len), Some(0));
    assert!(scratch.is_tidy());
    let (out, _) = scratch.ends("trace disarm", 0);
    assert_eq!(out, "nothing is armed\n");
    scratch.ends("trace disarm 1", 2);
    assert!(fs::exists(scratch.0.join("store/store.sqlite")).expect("it can be looked at"));
}

#[test]
fn each_way_of_watching_has_a_price() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("price");
    let (out, _) = scratch.ends("trace price --json --runs 2 --for 50ms", 0);
    let value: Value = serde_json::from_str(&out).expect("one object");
    check_schema("trace-price", &value);
    for (mode, way) in [("armed", "tracefs"), ("recording", "tracefs"), ("aggregating", "bpf")] {
        let row = value["rows"].as_array().expect("rows").iter().find(|row| row["mode"] == mode && row["way"] == way);
        assert!(row.is_some_and(|row| row["events"].as_f64() > Some(100.0)), "{value:#}");
    }
    assert!(scratch.is_tidy());
    // Options behind the job are the job's.
    let (_, message) = scratch.ends("trace price --runs 2 fio --name=j --nonsense=1", 2);
    assert!(message.contains("unknown option `--nonsense`"), "{message}");
}

#[test]
fn the_kernel_adds_up_what_a_command_does() {
    let scratch = Scratch::new("sum");
    scratch.write("data", &vec![1; 1 << 20]);
    let (_, message) = scratch.ends("trace sum --pid 999999999", 2);
    assert!(message.contains("no process 999999999"), "{message}");
    if !permitted() {
        return;
    }
    let line = "trace sum --json -- dd if=data of=copy bs=4k conv=fsync status=none";
    let (out, message) = scratch.ends(line, 0);
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {message}"));
    check_schema("trace-sum", &value);
    assert_eq!((&value["lost"], &value["command"]["code"]), (&0.into(), &0.into()));
    let rows = value["rows"].as_array().expect("rows");
    let of = |layer: &str, op: &str, name: &str| {
        let named = |row: &&Value| row["file"]["path"].as_str().is_some_and(|path| path.ends_with(name));
        let row = rows.iter().filter(named).find(|row| row["layer"] == layer && row["op"] == op);
        row.unwrap_or_else(|| panic!("no {layer} {op} of {name}: {value:#}"))
    };
    // The last read finds the end.
    for (op, name, count) in [("read", "/data", 257), ("write", "/copy", 256)] {
        let row = of("call", op, name);
        assert_eq!((&row["count"], &row["bytes"], &row["comm"]), (&count.into(), &(1 << 20).into(), &"dd".into()));
        let buckets = row["buckets"].as_array().expect("buckets").iter();
        assert_eq!(buckets.filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), count);
        let [all, longest, half] = ["ns", "longest_ns", "p50_ns"].map(|key| row[key].as_u64());
        assert!(all >= longest && longest >= half && half > Some(0), "{row:#}");
    }
    assert_eq!(of("call", "sync", "/copy")["count"], 1);
    let (text, _) = scratch.ends("trace sum --file data --for 300ms --level layers", 0);
    assert!(text.contains("level layers") && text.contains("longest"), "{text}");
    assert!(scratch.is_tidy());
}
