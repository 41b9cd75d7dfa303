//! `cargo xtask tune`: what `iowhy tune` finds against an exhaustive sweep of the same settings.
//!
//! Twenty short jobs on loop devices and modelled disks. The sweep runs every combination of the settings that matter
//! to a job once, in random order; `tune` gets the job and nothing else. Then the default, the choice of `tune` and the
//! best few of the sweep run again, side by side, in rounds of five: the best of many noisy runs flatters, its median
//! of new ones does less, and the best of several medians still does. So there are further rounds until the interval
//! of the choice against the best (signed ranks of runs of one block) is on one side of 5 %, or six were run. A job
//! holds if the choice is within 5 % of the best of all medians, at 5 % of the sweep's runs, and not more than 2 %
//! below the default. Needs root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_stats::signed_rank;
use iowhy_text::part::Part;
use serde_json::Value;

use crate::plant_live::site::Site;
use crate::{Outcome, release_binary, renew};

const TABLE: Part = Part { command: "cargo xtask tune" };

/// Most that the choice may be behind the best, and behind the default, percent; share of the sweep's runs, percent.
const BOUNDS: [f64; 3] = [5.0, 2.0, 5.0];
/// Combinations of the sweep that run again, how often in a round, and rounds at most.
const AGAIN: usize = 4;
const TIMES: usize = 5;
const ROUNDS: usize = 6;
/// Coverage of the interval that ends the rounds.
const LEVEL: f64 = 0.95;
/// The file that jobs read.
const DATA_MB: u64 = 192;

/// Values of settings: those that a kind of jobs is swept over.
type Grid = &'static [(&'static str, &'static [&'static str])];

const SCHEDULERS: &[&str] = &["none", "mq-deadline", "kyber", "bfq"];

const CACHED: Grid = &[
    ("read_ahead_kb", &["16", "64", "128", "256", "512", "1024", "4096"]),
    ("scheduler", SCHEDULERS),
    ("max_sectors_kb", &["128", "512", "1024"]),
    ("nomerges", &["0", "2"]),
];
const DIRECT: Grid = &[
    ("scheduler", SCHEDULERS),
    ("nr_requests", &["16", "32", "64", "128"]),
    ("max_sectors_kb", &["64", "128", "512", "1024"]),
    ("nomerges", &["0", "1", "2"]),
];
const WRITES: Grid = &[
    ("scheduler", SCHEDULERS),
    ("nr_requests", &["16", "64", "128"]),
    ("max_sectors_kb", &["64", "128", "512", "1024"]),
    ("nomerges", &["0", "2"]),
    ("vm.dirty_background_ratio", &["5", "20"]),
];

/// Name, disk, options of fio (a file `data` is there), what it is swept over.
type Job = (&'static str, &'static str, &'static str, Grid);

const JOBS: &[Job] = &[
    ("sequential 64k", "loop-ext4", "rw=read bs=64k filename=data", CACHED),
    ("sequential 4k", "loop-xfs", "rw=read bs=4k filename=data", CACHED),
    ("random 4k", "loop-ext4", "rw=randread bs=4k filename=data", CACHED),
    ("32k of every 256k", "loop-xfs", "rw=read:224k bs=32k filename=data", CACHED),
    ("four readers", "loop-ext4", "rw=read bs=64k filename=data numjobs=4 offset_increment=48m size=48m", CACHED),
    ("direct 4k, depth 16", "loop-ext4", "rw=randread bs=4k filename=data direct=1 ioengine=libaio iodepth=16", DIRECT),
    ("log with fsync", "loop-ext4", "rw=write bs=8k size=8m fsync=1", WRITES),
    ("sequential writes", "loop-xfs", "rw=write bs=128k size=96m end_fsync=1", WRITES),
    ("sequential 64k", "sata-2014", "rw=read bs=64k filename=data", CACHED),
    ("two readers", "sata-2014", "rw=read bs=64k filename=data numjobs=2 offset_increment=96m size=96m", CACHED),
    ("random 16k", "sata-2014", "rw=randread bs=16k filename=data", CACHED),
    ("direct 4k, depth 16", "sata-2014", "rw=randread bs=4k filename=data direct=1 ioengine=libaio iodepth=16", DIRECT),
    ("sequential 16k", "ssd-sata-2011", "rw=read bs=16k filename=data", CACHED),
    ("random 64k", "ssd-sata-2011", "rw=randread bs=64k filename=data", CACHED),
    (
        "direct 8k, depth 32",
        "ssd-sata-2011",
        "rw=randread bs=8k filename=data direct=1 ioengine=libaio iodepth=32",
        DIRECT,
    ),
    ("sequential 64k", "nvme", "rw=read bs=64k filename=data", CACHED),
    ("four readers", "nvme", "rw=read bs=64k filename=data numjobs=4 offset_increment=48m size=48m", CACHED),
    ("sequential 64k", "virtio", "rw=read bs=64k filename=data", CACHED),
    ("mixed 16k", "virtio", "rw=randrw rwmixread=80 bs=16k size=64m", CACHED),
    ("direct 128k, depth 4", "virtio", "rw=read bs=128k filename=data direct=1 ioengine=libaio iodepth=4", DIRECT),
];

/// A disk with a file system that goes with this value.
struct Disk {
    mount: PathBuf,
    remove: Vec<Vec<String>>,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn must(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|error| format!("{}: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disk {
    fn new(name: &str, binary: &str, folder: &Path) -> Result<Disk, String> {
        let mut disk = Disk { mount: PathBuf::new(), remove: Vec::new() };
        if let Some(filesystem) = name.strip_prefix("loop-") {
            let image = folder.join("tune.img").display().to_string();
            must(&["rm", "-f", &image])?;
            must(&["fallocate", "-l", "1G", &image])?;
            let node = must(&["losetup", "--find", "--show", "--direct-io=on", &image])?;
            disk.remove.push(words(&["losetup", "--detach", &node]));
            must(&[&format!("mkfs.{filesystem}"), "-q", &node])?;
            disk.mount = folder.join("tune");
            let mount = disk.mount.display().to_string();
            must(&["mkdir", "-p", &mount])?;
            must(&["mount", &node, &mount])?;
            disk.remove.push(words(&["umount", &mount]));
        } else {
            let own = format!("tune-{}", std::process::id());
            let shown = must(&[
                binary, "disk", "create", "--json", "--name", &own, "--model", name, "--size", "1G", "--fs", "ext4",
            ])?;
            disk.remove.push(words(&[binary, "disk", "remove", &own]));
            let shown: Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
            disk.mount = shown["disks"][0]["mount"].as_str().map(PathBuf::from).ok_or("the new disk is not mounted")?;
        }
        let data = disk.mount.join("data").display().to_string();
        must(&["dd", "if=/dev/urandom", &format!("of={data}"), "bs=1M", &format!("count={DATA_MB}"), "conv=fsync"])?;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for words in self.remove.iter().rev() {
            // What cannot be removed is reported by `iowhy doctor`.
            let _ = Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).status();
        }
    }
}

/// What a verb printed; its exit code does not matter where places may refuse a setting.
fn json(command: &mut Command) -> Result<Value, String> {
    let output = command.stderr(Stdio::piped()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: {error}: {}", output.status, said()))
}

/// All combinations of a grid as words behind `live`.
fn combinations(grid: Grid) -> Vec<String> {
    let mut all = vec![String::new()];
    for (key, values) in grid {
        all = all.iter().flat_map(|before| values.iter().map(move |value| format!("{before},{key}={value}"))).collect();
    }
    all
}

/// Times for the same work, by place as it was typed.
fn times(binary: &str, job: &Path, folder: &Path, ons: &[String], runs: usize) -> Result<Vec<Vec<f64>>, String> {
    let mut command = Command::new(binary);
    command.arg("run").arg(job).arg("--json").arg(format!("--dir={}", folder.display())).arg(format!("--runs={runs}"));
    let labels: Vec<String> = ons.iter().map(|on| format!("live{on}")).collect();
    for label in &labels {
        command.args(["--on", label]);
    }
    let document = json(&mut command)?;
    let mut found = vec![Vec::new(); ons.len()];
    for run in document["runs"].as_array().into_iter().flatten() {
        let metric = |name: &str| run["metrics"][name].as_f64().unwrap_or(0.0);
        let rate = metric("read_mb_s") + metric("write_mb_s");
        let place = labels.iter().position(|label| run["label"] == label.as_str());
        if let Some(place) = place.filter(|_| rate > 0.0) {
            found[place].push(1.0 / rate);
        }
    }
    Ok(found)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Times of each place, in rounds until the one at `own` is surely within the bound of the best, or surely not.
fn again(own: usize, mut round: impl FnMut() -> Result<Vec<Vec<f64>>, String>) -> Result<Vec<Vec<f64>>, String> {
    let bound = (1.0 + BOUNDS[0] / 100.0).ln();
    let mut all = round()?;
    for _ in 1..ROUNDS {
        let others = (0..all.len()).filter(|at| *at != own);
        let Some(best) = others.min_by(|a, b| median(&all[*a]).total_cmp(&median(&all[*b]))) else { break };
        let behind: Vec<f64> = all[own].iter().zip(&all[best]).map(|(own, best)| (own / best).ln()).collect();
        let open = signed_rank::test(&behind, LEVEL).is_none_or(|of| of.low <= bound && of.high > bound);
        if !open {
            break;
        }
        for (times, more) in all.iter_mut().zip(round()?) {
            times.extend(more);
        }
    }
    Ok(all)
}

struct Row {
    cells: Vec<String>,
    holds: bool,
    predicted: Vec<(f64, f64)>,
}

fn one(job: &Job, binary: &str, folder: &Path, seed: u64) -> Result<Row, String> {
    let (name, disk, options, grid) = job;
    let here = Disk::new(disk, binary, folder)?;
    let file = folder.join("tune.fio");
    // Of few calls the last one decides.
    let runtime = if disk.starts_with("sata") && options.contains("rand") { "runtime=1200ms" } else { "runtime=300ms" };
    let text = format!("[job]\n{runtime}\n{}\n", options.replace(' ', "\n"));
    std::fs::write(&file, text).map_err(|error| error.to_string())?;
    let ons = combinations(grid);
    let swept = times(binary, &file, &here.mount, &ons, 1)?;
    let mut order: Vec<usize> = (0..ons.len()).filter(|at| !swept[*at].is_empty()).collect();
    order.sort_by(|a, b| swept[*a][0].total_cmp(&swept[*b][0]));
    let mut command = Command::new(binary);
    command.args(["tune", "--json", "--dir"]).arg(&here.mount).arg(format!("--seed={seed}")).arg(&file);
    let tuned = json(&mut command)?;
    let choice = tuned["best"].as_str().map_or(String::new(), |best| format!(",{best}"));
    let mut places = vec![String::new()];
    places.extend((!choice.is_empty()).then(|| choice.clone()));
    let own = places.len() - 1;
    places.extend(order.iter().take(AGAIN).map(|at| ons[*at].clone()).filter(|on| *on != choice));
    let measured = again(own, || times(binary, &file, &here.mount, &places, TIMES))?;
    let medians: Vec<f64> = measured.iter().map(|values| median(values)).collect();
    let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let behind = 100.0 * (medians[own] / best - 1.0);
    let below = 100.0 * (medians[own] / medians[0] - 1.0);
    let sweep = order.len() + AGAIN * TIMES;
    let runs = tuned["runs"].as_f64().unwrap_or(f64::NAN);
    let share = 100.0 * runs / sweep as f64;
    let holds = behind <= BOUNDS[0] && below <= BOUNDS[1] && share <= BOUNDS[2];
    let gain = 100.0 * (1.0 - best / medians[0]);
    let at = medians.iter().position(|time| *time == best).unwrap_or(0);
    let cells = vec![
        format!("{name}, {disk}"),
        if choice.is_empty() { "-".to_owned() } else { choice[1..].to_owned() },
        if places[at].is_empty() { "-".to_owned() } else { places[at][1..].to_owned() },
        format!("{gain:.0} %"),
        format!("{behind:.1} %"),
        format!("{below:+.1} %"),
        measured[own].len().to_string(),
        format!("{runs} of {sweep}"),
        if holds { "yes" } else { "**no**" }.to_owned(),
    ];
    println!("{}", cells.join("  "));
    let tried = tuned["tried"].as_array().cloned().unwrap_or_default();
    for of in &tried {
        println!("      {of}");
    }
    println!("      {} {}", tuned["twin"], tuned["refused"]);
    let pair = |of: &Value| Some((of["predicted_pct"].as_f64()?, of["obtained_pct"].as_f64()?));
    Ok(Row { cells, holds, predicted: tried.iter().filter_map(pair).collect() })
}

/// Runs all jobs and prints the table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (mut page, mut binary, mut only, mut jobs, mut seed) = (false, None, None, JOBS.len(), 1);
    let mut given = arguments.iter();
    while let Some(word) = given.next() {
        let mut next = || given.next().cloned().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{word}: {error}"));
        match word.as_str() {
            "--page" => page = true,
            "--binary" => binary = Some(next()?),
            "--only" => only = Some(next()?),
            "--jobs" => jobs = number(next()?)? as usize,
            "--seed" => seed = number(next()?)?,
            other => return Err(format!("unknown word `{other}`")),
        }
    }
    let binary = match binary {
        Some(path) => path,
        None => release_binary()?.display().to_string(),
    };
    let site = Site::new(&binary, None)?;
    let wanted = |job: &&Job| only.as_deref().is_none_or(|only| format!("{}, {}", job.0, job.1).contains(only));
    // Of few jobs some of each kind.
    let all: Vec<&Job> = JOBS.iter().filter(wanted).collect();
    let step = all.len().div_ceil(jobs.max(1)).max(1);
    let mut rows: Vec<Row> = Vec::new();
    for job in all.iter().step_by(step).take(jobs) {
        rows.push(one(job, &binary, &site.folder, seed)?);
    }
    let hold = rows.iter().filter(|row| row.holds).count();
    let pairs: Vec<(f64, f64)> = rows.iter().flat_map(|row| row.predicted.clone()).collect();
    let near = pairs.iter().filter(|(said, got)| (said - got).abs() <= 15.0).count();
    let summary = format!(
        "{hold} of {} jobs hold; {near} of {} predictions within 15 points of what was obtained",
        rows.len(),
        pairs.len()
    );
    println!("{summary}");
    if page {
        let mut lines = vec![
            format!("`cargo xtask tune --page`: {summary}."),
            String::new(),
            "| job | choice | best | gain of the best | choice behind it | choice against default | runs of each | \
             runs | holds |"
                .to_owned(),
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |".to_owned(),
        ];
        lines.extend(rows.iter().map(|row| format!("| {} |", row.cells.join(" | "))));
        renew("BENCH.md", TABLE, &lines.join("\n"))?;
    }
    match rows.len() - hold {
        0 => Ok(()),
        nr => Err(format!("{nr} do not hold")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_when_the_choice_is_surely_near_or_surely_not() {
        // Times of the other place, the choice takes 1; rounds.
        let cases: &[(&[f64], usize)] = &[
            // Alike, within 5 %; a third faster.
            (&[0.99, 1.0, 1.01, 0.99, 1.0], 2),
            (&[0.66, 0.67, 0.68, 0.66, 0.67], 2),
            // Either, for ever.
            (&[0.8, 0.95, 1.1, 0.85, 1.0], ROUNDS),
        ];
        for (others, expected) in cases {
            let mut rounds = 0;
            let measured = again(0, || {
                rounds += 1;
                Ok(vec![vec![1.0; others.len()], others.to_vec()])
            });
            assert_eq!((rounds, measured.unwrap()[1].len()), (*expected, expected * others.len()), "{others:?}");
        }
    }
}
