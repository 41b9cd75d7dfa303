//! `cargo xtask fit`: disks with hidden parameters, fitted and held to what they do.
//!
//! Each shipped model becomes a disk of the running kernel, and so does a file behind a loop device. `iowhy disk fit`
//! measures them without their names; then jobs that the fit has not seen run on the disk and in the simulator on the
//! profile. Medians have to agree within 10 %, 99th percentiles within 25, operations a second within 10; fields that
//! the model has within 10 %, or lie within their bounds. `--disksim FOLDER` fits the first half of DiskSim's
//! validation traces and predicts the second. Needs root. Not held here: throttles of control groups, which delay bios
//! before the device has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_lab::profile::{HeldBack, Profile, busiest};
use iowhy_text::diagnose::Problems;
use iowhy_text::part::Part;
use serde_json::Value;

use crate::plant_live::site::Site;
use crate::{Outcome, release_binary, renew};

const TABLE: Part = Part { command: "cargo xtask fit" };

/// Most that medians, 99th percentiles and operations a second may be off, and fields of the model: percent.
const BOUNDS: [f64; 3] = [10.0, 25.0, 10.0];
const FIELD_PCT: f64 = 10.0;

/// A disk: words behind `disk create --model`, and fields as its model has them.
type Hidden = (&'static [&'static str], &'static [(&'static str, f64)]);

const DISKS: &[Hidden] = &[
    (
        &["fixed", "service_us=2000", "servers=4"],
        &[("read_4k_us", 2000.0), ("read_128k_us", 2000.0), ("parallel", 4.0)],
    ),
    (&["nvme"], &[("read_4k_us", 96.3), ("read_128k_us", 140.8)]),
    (&["virtio"], &[("read_4k_us", 515.0)]),
    (&["ssd-sata-2011"], &[("read_4k_us", 110.0), ("read_128k_us", 550.0), ("read_next_4k_us", 46.3)]),
    (&["sata-2014"], &[("read_next_128k_us", 860.0), ("read_next_1m_us", 6_880.0)]),
];

/// Jobs that no fit has seen: name and words of fio.
const JOBS: &[(&str, &str)] = &[
    ("random 8k, depth 3", "--rw=randread --bs=8k --ioengine=libaio --iodepth=3"),
    ("random 64k, depth 12", "--rw=randread --bs=64k --ioengine=libaio --iodepth=12"),
    ("random 256k", "--rw=randread --bs=256k"),
    ("sequential 64k", "--rw=read --bs=64k"),
];

struct Row {
    cells: [String; 5],
    within: bool,
}

fn off(predicted: f64, seen: f64) -> f64 {
    (predicted / seen - 1.0) * 100.0
}

/// Fits everything and prints the table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (mut page, mut binary, mut disksim, mut only, mut length) = (false, None, None, None, "40s".to_owned());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--page" => page = true,
            "--binary" => binary = Some(next()?),
            "--disksim" => disksim = Some(PathBuf::from(next()?)),
            "--only" => only = Some(next()?),
            "--for" => length = next()?,
            other => return Err(format!("unknown word `{other}`")),
        }
    }
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.split(',').any(|it| it == name));
    let mut rows = Vec::new();
    if DISKS.iter().any(|(words, _)| wanted(words[0])) || wanted("loop") {
        let binary = match binary {
            Some(path) => path,
            None => release_binary()?.display().to_string(),
        };
        let site = Site::new(&binary, None)?;
        for (words, truth) in DISKS.iter().filter(|(words, _)| wanted(words[0])) {
            let disk = Disk::create(&binary, words)?;
            rows.extend(one(&site, &binary, words[0], &disk.node, truth, &length)?);
        }
        if wanted("loop") {
            let disk = Disk::on_file(&site.folder.join("loop.img"))?;
            rows.extend(one(&site, &binary, "loop", &disk.node, &[], &length)?);
        }
    }
    if let Some(folder) = disksim {
        rows.extend(drives(&folder)?);
    }
    let hold = rows.iter().filter(|row| row.within).count();
    let mut lines = vec![
        format!("`cargo xtask fit --page`: {hold} of {} hold.", rows.len()),
        String::new(),
        "| disk | what | real | profile | holds |".to_owned(),
        "| --- | --- | --- | --- | --- |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| format!("| {} |", row.cells.join(" | "))));
    println!("{hold} of {} hold", rows.len());
    if page {
        renew("BENCH.md", TABLE, &lines.join("\n"))?;
    }
    match rows.len() - hold {
        0 => Ok(()),
        nr => Err(format!("{nr} do not hold")),
    }
}

/// A disk that goes with this value.
struct Disk {
    node: PathBuf,
    remove: Vec<String>,
}

impl Disk {
    fn create(binary: &str, words: &[&str]) -> Result<Disk, String> {
        let name = format!("fit-{}", std::process::id());
        let shown =
            json(Command::new(binary).args(["disk", "create", "--json", "--name", &name, "--model"]).args(words))?;
        let node = shown["disks"][0]["node"].as_str().ok_or("the new disk has no node")?;
        let remove = [binary, "disk", "remove", &name].map(str::to_owned).to_vec();
        Ok(Disk { node: PathBuf::from(node), remove })
    }

    fn on_file(file: &Path) -> Result<Disk, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let dd = ["if=/dev/urandom", "bs=1M", "count=1024", "conv=fsync", "status=none"];
        let written = Command::new("dd").arg(format!("of={}", file.display())).args(dd).status().map_err(failed)?;
        let set_up = Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file).output();
        let set_up = set_up.map_err(failed)?;
        if !written.success() || !set_up.status.success() {
            return Err(format!("no loop device: {}", String::from_utf8_lossy(&set_up.stderr)));
        }
        let node = String::from_utf8_lossy(&set_up.stdout).trim().to_owned();
        let remove = ["losetup", "--detach", &node].map(str::to_owned).to_vec();
        Ok(Disk { node: PathBuf::from(node), remove })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What cannot be removed is reported by `iowhy doctor`.
        let _ = Command::new(&self.remove[0]).args(&self.remove[1..]).stdout(Stdio::null()).status();
    }
}

fn json(command: &mut Command) -> Result<Value, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {}: {error}", output.status))
}

/// The fit of one disk against its model and its jobs.
fn one(
    site: &Site,
    binary: &str,
    name: &str,
    node: &Path,
    truth: &[(&str, f64)],
    length: &str,
) -> Result<Vec<Row>, String> {
    let profile = site.folder.join(format!("{name}.toml"));
    let fit =
        json(Command::new(binary).args(["disk", "fit", "--json", "--for", length, "-o"]).arg(&profile).arg(node))?;
    let mut rows = Vec::new();
    for (field, real) in truth {
        let of = &fit["fields"][*field];
        let number = |key: &str| of[key].as_f64();
        let value = number("value").unwrap_or(f64::NAN);
        let inside = number("low").is_some_and(|low| low <= *real) && number("high").is_none_or(|high| *real <= high);
        let within = off(value, *real).abs() <= FIELD_PCT || of["known"] == true && inside;
        rows.push(row(name, field, format!("{real:.0}"), format!("{value:.0}"), within));
    }
    for (job, words) in JOBS {
        let run = |place: &[&str]| {
            let mut command = Command::new(binary);
            command.args(["run", "fio", "--name=job", "--direct=1", "--time_based", "--runtime=4", "--randrepeat=0"]);
            command.args(words.split(' ')).arg(format!("--filename={}", node.display())).args(place).arg("--json");
            let document = json(&mut command)?;
            let metric = |name: &str| document["runs"][0]["metrics"][name].as_f64().unwrap_or(f64::NAN);
            Ok::<_, String>([metric("p50_ns"), metric("p99_ns"), metric("iops")])
        };
        let real = run(&["--on", "live"])?;
        let ours = run(&["--on", "sim:linux-6.18", "--disk", &profile.display().to_string()])?;
        let offs: Vec<f64> = ours.iter().zip(real).map(|(ours, real)| off(*ours, real)).collect();
        let within = offs.iter().zip(BOUNDS).all(|(off, bound)| off.abs() <= bound);
        let seen = format!("{:.0} us, {:.0} us, {:.0}/s", real[0] / 1e3, real[1] / 1e3, real[2]);
        let said = format!("{:+.1} %, {:+.1} %, {:+.1} %", offs[0], offs[1], offs[2]);
        rows.push(row(name, job, seen, said, within));
    }
    Ok(rows)
}

fn row(disk: &str, what: &str, real: String, ours: String, within: bool) -> Row {
    let verdict = if within { "yes" } else { "**no**" };
    let cells = [disk.to_owned(), what.to_owned(), real, ours, verdict.to_owned()];
    println!("{}", cells.join("  "));
    Row { cells, within }
}

/// DiskSim's validation traces: the first half of each predicts the second.
fn drives(folder: &Path) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut traces: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    traces.retain(|path| path.extension().is_some_and(|end| end == "trace"));
    traces.sort();
    for path in traces {
        let mut problems = Problems::default();
        let trace = iowhy_trace::load(&path, &mut problems).ok_or_else(|| problems.render())?;
        let Some(device) = busiest(&trace) else { continue };
        let Some(held) = Profile::of_trace(&trace, device).held_back else { continue };
        let HeldBack { p50_error_pct, p99_error_pct, throughput_error_pct } = held;
        let offs = [p50_error_pct, p99_error_pct, throughput_error_pct];
        let within = offs.iter().zip(BOUNDS).all(|(off, bound)| *off <= bound);
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let said = format!("{:.1} %, {:.1} %, {:.1} %", offs[0], offs[1], offs[2]);
        rows.push(row(&name, "second half of its trace", "p50, p99, throughput".to_owned(), said, within));
    }
    Ok(rows)
}
