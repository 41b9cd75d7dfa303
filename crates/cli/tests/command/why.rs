//! `iowhy why`: one recording, a command, processes, a signal. What records needs root, as in `trace`.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::check_schema;
use super::trace::{Scratch, TRACEFS, permitted};

fn why(scratch: &Scratch, line: &str, code: i32) -> Value {
    let (out, message) = scratch.ends(&format!("why --json {line}"), code);
    let answer = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}\n{out}{message}"));
    check_schema("why", &answer);
    answer
}

/// An answer about a recording made now: what else goes on here, for example a setting that somebody else has changed,
/// decides whether there is one, and the exit code tells.
fn told(scratch: &Scratch, line: &str) -> Value {
    let output = scratch.command(&format!("why {line}")).output().expect("the command starts");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"));
    check_schema("why", &answer);
    let is_told =
        answer["findings"].as_array().is_some_and(|of| !of.is_empty()) || answer["nothing_faster"].is_string();
    assert_eq!(output.status.code(), Some(if is_told { 0 } else { 3 }), "{line}: {answer:#}");
    answer
}

/// The parts of a call add up to it.
fn adds_up(answer: &Value) {
    let facts = &answer["facts"];
    let number = |value: &Value| value.as_f64().expect("a number");
    let parts: f64 = facts["layers"].as_array().expect("layers").iter().map(|part| number(&part["ns"])).sum();
    assert!((parts - number(&facts["per_call_ns"])).abs() < 1.0, "{facts:#}");
}

#[test]
fn json_has_the_shape_of_its_schema() {
    let scratch = Scratch::new("why");
    scratch.write("in.txt", TRACEFS.as_bytes());
    // Requests alone do not show what anybody waited for.
    let answer = why(&scratch, "--from in.txt", 3);
    assert_eq!((&answer["facts"]["what"], &answer["facts"]["calls"]), (&"request".into(), &2.into()));
    assert_eq!(answer["price"], Value::Null);
    assert!(answer["cannot_ask"].as_array().is_some_and(|rules| rules.len() > 20), "{answer:#}");
    adds_up(&answer);
    let (text, _) = scratch.ends("why --from in.txt", 3);
    assert!(text.starts_with("2 requests of"), "{text}");
    assert!(text.contains("Cannot tell why: the recording has no calls"), "{text}");
    scratch.ends("why --from nowhere.parquet", 2);
    scratch.ends("why --from in.txt --pid 1", 2);
    if !permitted() {
        return;
    }
    scratch.write("data", &vec![1; 4 << 20]);
    // What the command prints is not a part of the answer.
    let of = told(&scratch, "--json -- sh -c echo;cat<data>/dev/null");
    assert_eq!(of["target"], "sh -c echo;cat<data>/dev/null");
    told(&scratch, "-- dd if=data of=/dev/null bs=4k --json");
    let answer = told(&scratch, "--json -- dd if=data of=/dev/null bs=4k");
    assert!(answer["facts"]["calls"].as_u64() >= Some(1024) && answer["price"]["ns_per_event"].as_f64() > Some(0.0));
    adds_up(&answer);
    scratch.ends("why --pid 999999999 --for 1s", 2);
    assert!(scratch.is_tidy());
}

#[test]
fn a_signal_ends_the_recording_and_not_the_answer() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("why-signal");
    scratch.write("data", &vec![1; 1 << 20]);
    let words = "while :; do dd if=data of=/dev/null bs=64k status=none; sleep 0.05; done";
    let mut reader = Command::new("sh").args(["-c", words]).current_dir(&scratch.0).spawn().expect("sh starts");
    let mut line = scratch.command(&format!("why --json --for 60s --pid {}", reader.id()));
    let answering = line.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_millis(1500));
    let sent = Command::new("kill").args(["-INT", &answering.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = answering.wait_with_output().expect("it ends");
    let _ = reader.kill();
    let _ = reader.wait();
    assert_eq!(output.status.code(), Some(130), "{}", super::text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
    check_schema("why", &answer);
    assert!(answer["facts"]["calls"].as_u64() > Some(0), "{answer:#}");
    assert!(scratch.is_tidy());
}

/// Waits of a recording by stack, in JSON, in the text and as a picture; a recording without stacks says so.
#[test]
fn waits_are_folded_by_what_has_called_them() {
    let scratch = Scratch::new("why-stacks");
    let line = |at: u32, pid: u32, event: &str| format!("            dd-{pid}     [000] ..... 0.{at:06}: {event}\n");
    let out = "sched_switch: prev_comm=dd prev_state=D ==> next_pid=0";
    let text: String = [
        line(0, 7, "iowhy:workload: pid=7"),
        line(5, 7, "iowhy:descriptor: fd=3 kind=file dev=7,0 ino=5 pos=0 cloexec=0"),
        line(10, 7, "sys_read(fd: 3, buf: 0, count: 1000)"),
        line(20, 7, "iowhy:stack: frames=main;copy;read"),
        line(20, 7, out),
        line(920, 0, "sched_switch: prev_comm=swapper prev_state=R ==> next_pid=7"),
        line(930, 7, "sys_read -> 0x1000"),
    ]
    .concat();
    scratch.write("in.txt", format!("# tracer: nop\n{text}").as_bytes());
    let stacks = |name: &str, code: i32| {
        let (json, message) = scratch.ends(&format!("why --json --flame {name}.svg {name}.txt"), code);
        let answer: Value = serde_json::from_str(&json).expect("one object");
        check_schema("why", &answer);
        (answer["facts"]["stacks"].clone(), message)
    };
    let expected = serde_json::json!([
        { "frames": ["dd", "main", "copy", "read"], "ns": 900_000, "count": 1, "pct": 100.0 }
    ]);
    assert_eq!(stacks("in", 0).0, expected);
    let picture = std::fs::read_to_string(scratch.0.join("in.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains(">copy: 900 µs, 100.0 %, 1 wait<"), "{picture}");
    let (shown, _) = scratch.ends("why in.txt", 0);
    assert!(shown.contains("100 %, 900 µs in 1 wait: dd > main > copy > read"), "{shown}");
    scratch.write("none.txt", TRACEFS.as_bytes());
    let (none, message) = stacks("none", 3);
    assert_eq!(none, serde_json::json!([]));
    assert!(message.contains("no flame graph was written") && !scratch.0.join("none.svg").exists(), "{message}");
}
