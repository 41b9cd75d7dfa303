//! `cargo xtask twins`: jobs on a modelled disk, under the running kernel and in its simulator, for each scheduler.
//!
//! Both take turns in one command. The figures are means of the runs; a pair holds if operations a second agree
//! within 10 % and the 99th percentile within 30 %, or if the simulator warns that it cannot be trusted. Where the runs
//! of a side differ among themselves by more than that, a few decide nothing: the pair is made anew with many. With
//! `--busy` a program that computes without end keeps one processor meanwhile. Needs root.

use std::process::{Child, Command, Stdio};

use iowhy_lab::modelled_disk::NO_TWIN;
use iowhy_lab::models::TWINS;
use iowhy_live::signal;
use serde::Deserialize;
use serde_json::Value;

use crate::plant_live::site::Site;
use crate::{Outcome, release_binary, renew};

const JOBS: &str = include_str!("twins/jobs.toml");
const SCHEDULERS: &[&str] = &["none", "mq-deadline", "kyber", "bfq"];
/// Most that operations a second, and the 99th percentile, may differ, percent.
const BOUNDS: [f64; 2] = [10.0, 30.0];
/// Runs of each side where those of one side differ among themselves.
const MANY: u32 = 15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    job: Vec<Job>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    name: String,
    /// A job file behind the time of its run.
    fio: String,
}

struct Settings {
    only: Vec<String>,
    schedulers: Vec<String>,
    disk: String,
    kernel: String,
    runs: u32,
    seconds: u32,
    busy: Vec<bool>,
    binary: Option<String>,
    page: bool,
}

/// Mean of a metric here and there.
#[derive(Copy, Clone)]
struct Pair {
    live: f64,
    twin: f64,
}

impl Pair {
    /// By how much the twin differs, percent.
    fn off(self) -> f64 {
        (self.twin / self.live - 1.0) * 100.0
    }
}

struct Row {
    job: String,
    scheduler: String,
    busy: bool,
    iops: Pair,
    /// ns
    p99: Pair,
    warned: bool,
    runs: u32,
    /// The runs of a side differ by more than both sides may.
    unsteady: bool,
}

impl Row {
    fn within(&self) -> bool {
        [self.iops, self.p99].iter().zip(BOUNDS).all(|(pair, bound)| pair.off().abs() <= bound)
    }

    fn cells(&self) -> [String; 8] {
        let verdict = match (self.within(), self.warned) {
            (true, false) => "yes",
            (true, true) => "yes, though warned of",
            (false, true) => "warned of",
            (false, false) => "**no**",
        };
        [
            self.job.clone(),
            self.scheduler.clone(),
            if self.busy { "one busy" } else { "idle" }.to_owned(),
            self.runs.to_string(),
            format!("{:.0}", self.iops.live),
            format!("{:+.1} %", self.iops.off()),
            format!("{:.2} ms {:+.0} %", self.p99.live / 1e6, self.p99.off()),
            verdict.to_owned(),
        ]
    }
}

/// A program that keeps one processor; it ends with its value, and with this process.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Busy, String> {
        let mut sh = Command::new("sh");
        sh.args(["-c", "while kill -0 $PPID; do :; done"]).stdin(Stdio::null());
        sh.spawn().map(Busy).map_err(|error| format!("sh: {error}"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It only fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the pairs and prints their table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = settings(arguments)?;
    let Jobs { job: jobs } = toml::from_str(JOBS).map_err(|error| format!("jobs.toml: {error}"))?;
    let binary = match &settings.binary {
        Some(path) => path.clone(),
        None => release_binary()?.display().to_string(),
    };
    let _signals = signal::Guard::take();
    let site = Site::new(&binary, None)?;
    let mut rows = Vec::new();
    for busy in &settings.busy {
        let _kept = busy.then(Busy::start).transpose()?;
        for job in jobs.iter().filter(|job| settings.only.is_empty() || settings.only.contains(&job.name)) {
            for scheduler in &settings.schedulers {
                if signal::raised() {
                    return Err("ended by a signal".to_owned());
                }
                let asked = |runs| pair(&site, &binary, &settings, job, scheduler, *busy, runs);
                let mut row = asked(settings.runs)?;
                if row.unsteady && settings.runs < MANY {
                    row = asked(MANY)?;
                }
                println!("{}", row.cells().join("  "));
                rows.push(row);
            }
        }
    }
    let within = rows.iter().filter(|row| row.within()).count();
    let said = format!("{within} of {} within {} % and {} %", rows.len(), BOUNDS[0], BOUNDS[1]);
    println!("{said}");
    if settings.page {
        renew("MODELS.md", TWINS, &table(&settings, &rows, &said))?;
    }
    match rows.iter().filter(|row| !row.within() && !row.warned).count() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} disagree without a warning")),
    }
}

fn table(settings: &Settings, rows: &[Row], said: &str) -> String {
    let mut lines = vec![
        format!(
            "`cargo xtask twins --page`: `{}` on `{}`, runs of {} s on each side, means; {} runs, or {MANY} if those \
             of a side differ by more than {} %. {said}.",
            settings.kernel, settings.disk, settings.seconds, settings.runs, BOUNDS[0]
        ),
        String::new(),
        "| job | scheduler | processors | runs | IOPS, live | twin | p99, live and twin | within |".to_owned(),
        "| --- | --- | --- | ---: | --- | --- | --- | --- |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| format!("| {} |", row.cells().join(" | "))));
    lines.join("\n")
}

/// One job under one scheduler.
fn pair(
    site: &Site,
    binary: &str,
    settings: &Settings,
    job: &Job,
    scheduler: &str,
    busy: bool,
    nr: u32,
) -> Result<Row, String> {
    let file = site.folder.join(format!("{}.fio", job.name));
    let text = format!("[global]\ntime_based\nruntime={}\n{}", settings.seconds, job.fio.trim_start());
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new(binary);
    command.arg("run").arg(&file).args(["--on", "live", "--on", &format!("sim:{}", settings.kernel)]);
    command.args(["--disk", &format!("{},scheduler={scheduler}", settings.disk), "--json"]);
    command.args(["--runs", &nr.to_string(), "--dir"]).arg(site.folder.join("files"));
    let failed = |why: String| format!("{} under {scheduler}: {why}", job.name);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let runs: Vec<&Value> = document["runs"].as_array().into_iter().flatten().collect();
    let of = |metric: &str, live: bool| {
        let here = runs.iter().filter(|run| (run["where"] == "live") == live);
        let values: Vec<f64> = here.filter_map(|run| run["metrics"][metric].as_f64()).collect();
        if values.is_empty() { Err(failed(format!("no {metric}"))) } else { Ok(values) }
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let means =
        |metric: &str| Ok::<_, String>(Pair { live: mean(&of(metric, true)?), twin: mean(&of(metric, false)?) });
    let differ = |values: &[f64]| {
        let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        most > least * (1.0 + BOUNDS[0] / 100.0)
    };
    let warned = runs.iter().flat_map(|run| run["warnings"].as_array().into_iter().flatten());
    Ok(Row {
        job: job.name.clone(),
        scheduler: scheduler.to_owned(),
        busy,
        iops: means("iops")?,
        p99: means("p99_ns")?,
        runs: nr,
        unsteady: differ(&of("iops", true)?) || differ(&of("iops", false)?),
        warned: warned.filter_map(Value::as_str).any(|warning| warning.starts_with(NO_TWIN)),
    })
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings {
        only: Vec::new(),
        schedulers: SCHEDULERS.iter().map(|name| (*name).to_owned()).collect(),
        disk: "sata-2014".to_owned(),
        kernel: "linux-6.18".to_owned(),
        runs: 3,
        seconds: 4,
        busy: vec![false, true],
        binary: None,
        page: false,
    };
    let list = |text: String| text.split(',').map(str::to_owned).collect();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().cloned().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{word}: `{text}` is not a number"));
        match word.as_str() {
            "--only" => settings.only = list(next()?),
            "--schedulers" => settings.schedulers = list(next()?),
            "--disk" => settings.disk = next()?,
            "--kernel" => settings.kernel = next()?,
            "--runs" => settings.runs = number(next()?)?,
            "--seconds" => settings.seconds = number(next()?)?,
            "--idle" => settings.busy = vec![false],
            "--busy" => settings.busy = vec![true],
            "--binary" => settings.binary = Some(next()?),
            "--page" => settings.page = true,
            other => return Err(format!("unknown word `{other}`")),
        }
    }
    Ok(settings)
}
