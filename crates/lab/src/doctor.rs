//! The report of `iowhy doctor` as text and as JSON.

use std::fmt::Write;

use iowhy_live::doctor::{Has, Report};
use iowhy_live::ledger::State;
use iowhy_live::machine::Disk;
use serde_json::{Value, json};

use crate::on_kernel::machine::{disk_json, machine_json};
use iowhy_text as text;

/// Where the second column of the text begins.
const COLUMN: usize = 20;

/// The purposes that this machine allows.
pub fn text(report: &Report, bold: fn(&str) -> String) -> String {
    let mut out = format!("{}\n", bold("what you can do here"));
    for purpose in &report.purposes {
        let advice = &purpose.advice;
        let words = match purpose.has {
            Has::Yes if advice.is_empty() => format!("yes: {}", purpose.command),
            Has::Yes => format!("yes: {} ({advice})", purpose.command),
            has => format!("{}: {advice}", has.name()),
        };
        out.push_str(&text::item(purpose.name, &words, COLUMN));
    }
    out
}

/// The evidence behind it.
pub fn details(report: &Report, bold: fn(&str) -> String) -> String {
    let mut out = String::from("\n");
    let machine = &report.machine;
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
    let _ = writeln!(out, "{}", bold("machine"));
    out.push_str(&text::item("kernel", &or(&machine.kernel_release), COLUMN));
    let kind = if machine.is_virtual == Some(true) { ", virtual" } else { "" };
    let cpus = machine.cpus.map_or_else(|| "?".to_owned(), |cpus| cpus.to_string());
    out.push_str(&text::item("cpu", &format!("{cpus} x {}{kind}", or(&machine.cpu_model)), COLUMN));
    let memory = machine.memory_bytes.map_or_else(|| "?".to_owned(), text::size);
    out.push_str(&text::item("memory", &memory, COLUMN));
    let disk = &report.disk;
    let place = format!("{} on {}", or(&disk.filesystem), disk.name.as_deref().unwrap_or("no disk"));
    let options = disk.mount_options.as_deref().unwrap_or("?").replace(',', ", ");
    let here = format!("{}: {place}, mounted with {options}", report.directory.display());
    out.push_str(&text::item("folder", &here, COLUMN));

    let _ = writeln!(out, "\n{}", bold("disks"));
    for disk in &report.disks {
        out.push_str(&text::item(disk.name.as_deref().unwrap_or("?"), &queue(disk), COLUMN));
    }

    let _ = writeln!(out, "\n{}", bold("capabilities of this machine"));
    for ability in &report.abilities {
        let advice = if ability.advice.is_empty() { String::new() } else { format!(": {}", ability.advice) };
        let words = match ability.has {
            Has::Yes => format!("yes: {}", ability.detail),
            has => format!("{}: {}; for {}{advice}", has.name(), ability.detail, ability.purpose),
        };
        out.push_str(&text::item(ability.name, &words, COLUMN));
    }

    let _ = writeln!(out, "\n{}", bold("disturbances of measurements"));
    let of = |wanted| report.disturbances.iter().filter(move |it| it.disturbs == wanted);
    for disturbance in of(Some(true)) {
        let words = format!("{}; {}", disturbance.detail, disturbance.advice);
        out.push_str(&text::item(disturbance.name, &words, COLUMN));
    }
    if of(Some(true)).next().is_none() {
        out.push_str("  nothing that can be seen\n");
    }
    let quiet: Vec<&str> = of(Some(false)).map(|it| it.name).collect();
    let unseen: Vec<&str> = of(None).map(|it| it.name).collect();
    for (title, names) in [("no matter", quiet), ("cannot be seen", unseen)] {
        if !names.is_empty() {
            out.push_str(&text::item(title, &names.join(", "), COLUMN));
        }
    }

    let _ = writeln!(out, "\n{}", bold("leftovers of earlier runs"));
    for left in &report.left {
        out.push_str(&text::item("-", &left.to_string(), 4));
    }
    if report.left.is_empty() {
        out.push_str("  nothing\n");
    } else if !report.is_clean() {
        out.push_str("\n  `iowhy doctor --fix` undoes those that are still there and ours.\n");
    }
    if !report.running.is_empty() {
        let pids: Vec<String> = report.running.iter().map(u32::to_string).collect();
        let _ = writeln!(out, "  (still running, and left alone: {})", pids.join(", "));
    }
    out
}

/// Driver and settings of a disk's queue, in a line.
fn queue(disk: &Disk) -> String {
    let queue = &disk.queue;
    let schedulers: Vec<String> = queue
        .schedulers
        .iter()
        .map(|name| if Some(name) == queue.scheduler.as_ref() { format!("[{name}]") } else { name.clone() })
        .collect();
    let mut parts = vec![if schedulers.is_empty() { "no scheduler".to_owned() } else { schedulers.join(" ") }];
    let numbers = [
        ("read_ahead_kb", queue.read_ahead_kb),
        ("max_sectors_kb", queue.max_sectors_kb),
        ("nr_requests", queue.nr_requests),
        ("rotational", queue.rotational.map(u64::from)),
        ("logical_block_size", queue.logical_block_bytes),
    ];
    parts.extend(numbers.iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))));
    parts.join(" ")
}

pub fn json(report: &Report) -> Value {
    let abilities: Vec<Value> = report
        .abilities
        .iter()
        .map(|it| {
            json!({
                "name": it.name,
                "purpose": it.purpose,
                "has": it.has.name(),
                "detail": it.detail,
                "advice": it.advice,
            })
        })
        .collect();
    let purposes: Vec<Value> = report
        .purposes
        .iter()
        .map(|it| json!({ "name": it.name, "command": it.command, "has": it.has.name(), "advice": it.advice }))
        .collect();
    let disturbances: Vec<Value> = report
        .disturbances
        .iter()
        .map(|it| json!({ "name": it.name, "disturbs": it.disturbs, "detail": it.detail, "advice": it.advice }))
        .collect();
    let left: Vec<Value> = report
        .left
        .iter()
        .map(|it| {
            let (state, reason) = match &it.state {
                State::There => ("there", None),
                State::Gone => ("gone", None),
                State::Undone => ("undone", None),
                State::NotOurs(reason) => ("not-ours", Some(reason)),
                State::Stuck(reason) => ("stuck", Some(reason)),
            };
            json!({ "pid": it.pid, "what": it.what, "state": state, "reason": reason })
        })
        .collect();
    let disks: Vec<Value> = report
        .disks
        .iter()
        .map(|disk| {
            let mut value = disk_json(disk);
            value["schedulers"] = json!(disk.queue.schedulers);
            value
        })
        .collect();
    json!({
        "schema": "iowhy.doctor/1",
        "clean": report.is_clean(),
        "directory": report.directory.to_string_lossy(),
        "machine": machine_json(&report.machine),
        "disk": disk_json(&report.disk),
        "disks": disks,
        "abilities": abilities,
        "purposes": purposes,
        "disturbances": disturbances,
        "state_directory": report.state_directory.to_string_lossy(),
        "running": report.running,
        "left": left,
    })
}
