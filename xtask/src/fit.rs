//! `cargo xtask fit`: disks with hidden parameters, fitted and held to what they do.
//!
//! Each shipped model becomes a disk of the running kernel, and so does a file behind a loop device. `iowhy disk fit`
//! measures them without their names; jobs that the fit has not seen run on the disk, once before the fit and
//! twice after it, and in the simulator on the profile. The middle one of the three is the truth: medians
//! have to agree within 10 %, 99th percentiles within 25, operations a second within 10. Fields that the model has must
//! agree within 10 %, or lie within their bounds; times are those that a program sees (a modelled disk hides the layers
//! above it), so the costs of the machine are added. A limit of a control group must be found within 3 %, and what it
//! grants at once within 5. `--disksim FOLDER` fits the first half of DiskSim's validation traces and predicts the
//! second; the demerit figure must be no larger than that of DiskSim, whose parameters were measured otherwise
//! (p50, p99 and operations a second of the whole are shown: half of a drive's commands can lie on either side of a
//! gap).
//!
//! What does not agree is a miss, with two exceptions that are counted apart: the profile has said so (the field is
//! unknown, or its own held-back error is at least half as large), or the disk does not repeat itself (no figure would
//! be within the bound of all three runs, and this one is within that of one of them or lies among them). Needs root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_lab::profile::{Profile, Sample, busiest, samples};
use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::Problems;
use iowhy_text::part::Part;
use serde_json::Value;

use crate::disksim::{Buckets, Validation, rms, validations};
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

/// Limits on reads: file of the control group, its value, the field, and its value.
const LIMITS: &[(&str, &str, &str, f64)] = &[
    ("read_bps_device", "17300000", "bw_limit_mb_s", 17.3),
    ("read_bps_device", "5000000", "bw_limit_mb_s", 5.0),
    ("read_iops_device", "730", "iops_limit", 730.0),
    ("read_iops_device", "2000", "iops_limit", 2000.0),
];
const BELOW_LIMITS: &[&str] = &["fixed", "service_us=300", "servers=8"];
/// Time that a limit grants at once, and bounds in percent of limit and grant.
const SLICE_MS: f64 = 100.0;
const LIMIT_BOUNDS: [f64; 2] = [3.0, 5.0];

/// Runs of each job on the disk.
const RUNS: usize = 3;

/// How a row ends.
#[derive(Copy, Clone, PartialEq)]
enum Verdict {
    Holds,
    Misses,
    /// The profile says that it does not know.
    Unknown,
    /// The disk does not repeat itself.
    Unsteady,
}

impl Verdict {
    fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Misses }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "yes",
            Verdict::Misses => "**no**",
            Verdict::Unknown => "says unknown",
            Verdict::Unsteady => "disk unsteady",
        }
    }
}

struct Row {
    cells: [String; 5],
    verdict: Verdict,
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
    if DISKS.iter().any(|(words, _)| wanted(words[0])) || wanted("loop") || wanted("limits") {
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
        for limit in LIMITS.iter().filter(|_| wanted("limits")) {
            rows.extend(limited(&site, &binary, limit, &length)?);
        }
    }
    if let Some(folder) = disksim {
        rows.extend(drives(&folder)?);
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let misses = count(Verdict::Misses);
    let sum = format!(
        "{} of {} hold, {misses} do not; {} are reported as unknown, {} disks did not repeat themselves",
        count(Verdict::Holds),
        rows.len(),
        count(Verdict::Unknown),
        count(Verdict::Unsteady)
    );
    let mut lines = vec![
        format!("`cargo xtask fit --page`: {sum}."),
        String::new(),
        "| disk | what | real | profile | holds |".to_owned(),
        "| --- | --- | --- | --- | --- |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| format!("| {} |", row.cells.join(" | "))));
    println!("{sum}");
    if page {
        renew("BENCH.md", TABLE, &lines.join("\n"))?;
    }
    match misses {
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
    let run = |words: &str, place: &[&str]| {
        let mut command = Command::new(binary);
        command.args(["run", "fio", "--name=job", "--direct=1", "--time_based", "--runtime=3", "--randrepeat=0"]);
        command.args(words.split(' ')).arg(format!("--filename={}", node.display())).args(place).arg("--json");
        let document = json(&mut command)?;
        let metric = |name: &str| document["runs"][0]["metrics"][name].as_f64().unwrap_or(f64::NAN);
        Ok::<_, String>([metric("p50_ns"), metric("p99_ns"), metric("iops")])
    };
    let live = || JOBS.iter().map(|(_, words)| run(words, &["--on", "live"])).collect::<Result<Vec<_>, _>>();
    let mut real = vec![live()?];
    let fit =
        json(Command::new(binary).args(["disk", "fit", "--json", "--for", length, "-o"]).arg(&profile).arg(node))?;
    while real.len() < RUNS {
        real.push(live()?);
    }
    let mut rows = Vec::new();
    let number = |field: &str, key: &str| fit["fields"][field][key].as_f64();
    let path = |key: &str| -> f64 {
        let [costs, wakes] = [PATH, WAKE].map(|names| names.iter().filter_map(|cost| number(cost, key)).sum::<f64>());
        costs / 1000.0 + wakes / 2.0
    };
    for (field, truth) in truth {
        let above = |key: &str| if field.ends_with("_us") { path(key) } else { 0.0 };
        let of = |key: &str| number(field, key).map(|value| value + above(key));
        let value = of("value").unwrap_or(f64::NAN);
        let inside = of("low").is_some_and(|low| low <= *truth) && of("high").is_none_or(|high| *truth <= high);
        let known = fit["fields"][*field]["known"] == true;
        let verdict = match off(value, *truth).abs() <= FIELD_PCT || known && inside {
            true => Verdict::Holds,
            false if known => Verdict::Misses,
            false => Verdict::Unknown,
        };
        rows.push(row(name, field, format!("{truth:.0}"), format!("{value:.0}"), verdict));
    }
    let held = ["p50_error_pct", "p99_error_pct", "throughput_error_pct"]
        .map(|key| fit["held_back"][key].as_f64().unwrap_or(f64::INFINITY));
    for (nr, (job, words)) in JOBS.iter().enumerate() {
        let ours = run(words, &["--on", "sim:linux-6.18", "--disk", &profile.display().to_string()])?;
        let mut verdict = Verdict::Holds;
        let (mut seen, mut said) = (Vec::new(), Vec::new());
        for (metric, bound) in BOUNDS.iter().enumerate() {
            let mut runs: Vec<f64> = real.iter().map(|jobs| jobs[nr][metric]).collect();
            runs.sort_by(f64::total_cmp);
            let (least, middle, most) = (runs[0], runs[RUNS / 2], runs[RUNS - 1]);
            let off = off(ours[metric], middle);
            let repeats = most * (100.0 - bound) <= least * (100.0 + bound);
            let among =
                ours[metric] * 100.0 >= least * (100.0 - bound) && ours[metric] * 100.0 <= most * (100.0 + bound);
            let of = match off.abs() <= *bound {
                true => Verdict::Holds,
                false if !repeats && among => Verdict::Unsteady,
                false if off.abs() <= 2.0 * held[metric] => Verdict::Unknown,
                false => Verdict::Misses,
            };
            // The worst of the three is that of the row.
            let order = [Verdict::Holds, Verdict::Unsteady, Verdict::Unknown, Verdict::Misses];
            let place = |of| order.iter().position(|it| *it == of);
            verdict = if place(of) > place(verdict) { of } else { verdict };
            let (unit, scale) = if metric < 2 { (" us", 1e3) } else { ("/s", 1.0) };
            seen.push(format!("{:.0}{unit} ({:.0} to {:.0})", middle / scale, least / scale, most / scale));
            said.push(format!("{off:+.1} %"));
        }
        rows.push(row(name, job, seen.join(", "), said.join(", "), verdict));
    }
    Ok(rows)
}

/// Costs of the machine between a program and the disk, and the bounds of what a processor that wakes up adds.
const PATH: &[&str] = &["syscall_ns", "bio_ns", "command_ns", "interrupt_ns", "switch_ns"];
const WAKE: &[&str] = &["wake_min_us", "wake_max_us"];

/// The fit of a disk from within a control group with a limit.
fn limited(
    site: &Site,
    binary: &str,
    (file, limit, field, truth): &(&str, &str, &str, f64),
    length: &str,
) -> Result<Vec<Row>, String> {
    let disk = Disk::create(binary, BELOW_LIMITS)?;
    let group = Group::new()?;
    let name = disk.node.file_name().unwrap_or_default().to_string_lossy();
    let number = std::fs::read_to_string(format!("/sys/block/{name}/dev")).map_err(|error| error.to_string())?;
    let value = format!("{} {limit}", number.trim());
    std::fs::write(group.0.join(format!("blkio.throttle.{file}")), value).map_err(|error| error.to_string())?;
    let profile = site.folder.join("limit.toml");
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&group.0).args([binary, "disk", "fit", "--json", "--for", length, "-o"]);
    let fit = json(command.arg(&profile).arg(&disk.node))?;
    let number = |field: &str| fit["fields"][field]["value"].as_f64().unwrap_or(f64::NAN);
    let found = [number(field), number(field) * number("slice_ms") / 1000.0];
    let truths = [("limit", *truth), ("granted at once", truth * SLICE_MS / 1000.0)];
    let rows = truths.iter().zip(found).zip(LIMIT_BOUNDS).map(|(((what, truth), found), bound)| {
        let of = format!("{:+.1} %", off(found, *truth));
        let known = fit["fields"][*field]["known"] == true;
        let verdict = if known { Verdict::of(off(found, *truth).abs() <= bound) } else { Verdict::Unknown };
        row(file, what, truth.to_string(), of, verdict)
    });
    Ok(rows.collect())
}

/// A control group that goes with this value.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Group, String> {
        let path = PathBuf::from(format!("/sys/fs/cgroup/blkio/iowhy-fit-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may still be on its way out; an empty group is harmless.
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn row(disk: &str, what: &str, real: String, ours: String, verdict: Verdict) -> Row {
    let cells = [disk.to_owned(), what.to_owned(), real, ours, verdict.word().to_owned()];
    println!("{}", cells.join("  "));
    Row { cells, verdict }
}

/// DiskSim's validation traces: the first half of each predicts the second.
fn drives(folder: &Path) -> Result<Vec<Row>, String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let buckets = Buckets::read(&read("statdefs")?)?;
    let mut rows = Vec::new();
    for Validation { name, drive, disksims } in validations(&read("runvalid")?) {
        let mut problems = Problems::default();
        let trace = iowhy_trace::load(&folder.join(format!("{name}.trace")), &mut problems);
        let trace = trace.ok_or_else(|| problems.render())?;
        let Some(device) = busiest(&trace) else { continue };
        let all = samples(&trace, device);
        let (first, second) = all.split_at(all.len() / 2);
        let times = |samples: &[Sample]| -> Vec<Nanos> { samples.iter().map(|of| Nanos(of.done - of.at)).collect() };
        let predicted = Profile::of_samples(first).predicted(second);
        let demerit = rms(&buckets.distribution(&times(&predicted)), &buckets.distribution(&times(second)));
        let figures = |samples: &[Sample]| {
            let mut took = times(samples);
            took.sort_unstable();
            let at = |share: usize| took[(took.len() - 1) * share / 100].0 as f64;
            let span = samples.iter().map(|of| of.done).max().unwrap_or(0) - samples[0].at;
            [at(50), at(99), took.len() as f64 / span as f64]
        };
        let offs: Vec<f64> = figures(&predicted).iter().zip(figures(second)).map(|(ours, of)| off(*ours, of)).collect();
        let real = format!("DiskSim's demerit {disksims:.3} ms");
        let said = format!("{demerit:.3} ms; {:+.1} %, {:+.1} %, {:+.1} %", offs[0], offs[1], offs[2]);
        rows.push(row(&drive, "second half of its trace", real, said, Verdict::of(demerit <= disksims)));
    }
    Ok(rows)
}
