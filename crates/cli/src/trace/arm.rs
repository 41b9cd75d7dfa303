//! `iowhy trace arm` and `iowhy trace disarm`.

use std::path::PathBuf;
use std::time::Duration;

use iowhy_lab::armed as stored;
use iowhy_lab::recording::armed::{self, Arm, Caught};
use iowhy_lab::recording::when::{When, duration, memory};
use iowhy_lab::recording::{self, RecordError, Request};
use iowhy_lab::store::{self, Store, StoreError};
use iowhy_live::capture::flight::{self, Armed};
use iowhy_live::ledger::{self, State};
use iowhy_text::diagnose::Problem;
use serde_json::{Value, json};

use super::{HowMuch, Targets, rescue};
use crate::output::{self, Exit};

/// Options of `trace arm`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    targets: Targets,
    /// Time before a trigger that is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    keep: Duration,
    /// Time after a trigger that is kept, too
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    after: Duration,
    /// Memory for the rings in the kernel
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = memory)]
    memory: u64,
    /// Trigger, see below; may be repeated [default: signal]
    #[arg(long, value_name = "TRIGGER", value_parser = When::parse)]
    when: Vec<When>,
    /// Recordings after which it ends
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    max: u32,
    /// Level: requests; all layers; lookups, tasks and journals, too
    #[arg(long, value_enum, default_value_t = HowMuch::Layers)]
    level: HowMuch,
    /// Directory of the store [default: IOWHY_STORE, ~/.local/share/iowhy]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

/// Help of `trace arm`.
pub(super) const HELP: &str = "Triggers, besides SIGUSR1, which always is one:\n  \
    p99>20ms          times of requests in the last second; p50 to p99.99\n  \
    psi io some>30%   pressure of io, memory or cpu, some or full, in 2 s\n  \
    stall 1s          a disk that completes nothing, a named task that sleeps\n  \
    signal            only SIGUSR1\n\n\
    Recordings are runs in the store, labelled `armed`; ^C or `iowhy trace disarm`\n\
    ends it.\n\n  \
    iowhy trace arm --comm postgres --when 'p99>20ms' --when 'stall 1s'\n  \
    iowhy trace arm --level light --keep 5m --memory 256M --when 'psi io some>30%'";

/// The recording as one object.
fn described(caught: &Caught, run: Option<&str>, file: Option<&PathBuf>) -> Value {
    json!({
        "run": run,
        "file": file.map(|path| path.to_string_lossy()),
        "trigger": caught.trigger,
        "short": caught.short,
        "capture": recording::json(&caught.captured),
    })
}

/// Arms.
pub(super) fn arm(options: &Options, json: bool) -> anyhow::Result<Exit> {
    let directory = store::directory(options.store.as_deref(), &|name| std::env::var(name).ok());
    let directory = directory.ok_or(StoreError::NoPlace)?;
    let request = Request { level: options.level.into(), ..options.targets.request() };
    let mut when = options.when.clone();
    if when.is_empty() {
        when.push(When::Signal);
    }
    let (keep, after, most) = (options.keep, options.after, Some(options.max));
    let arm = Arm { request, keep, after, memory: options.memory, when, most };
    crate::doctor::tidy();
    let store = Store::open(&directory)?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut all = Vec::new();
    let mut failed = None;
    let mut armed = || {
        let when: Vec<String> = arm.when.iter().map(When::to_string).collect();
        let pid = std::process::id();
        output::complain(&format!(
            "armed (process {pid}): the last {} s in {} MiB, kept at {}, or `kill -USR1 {pid}`\n",
            arm.keep.as_secs_f64(),
            arm.memory >> 20,
            when.join(", "),
        ));
    };
    let mut caught = |caught: Caught| {
        output::report_all(recording::complaints(&caught.captured));
        if caught.short {
            let held = caught.captured.length.as_secs_f64();
            let problem = Problem::warning(format!("the rings held {held:.1} s only: newer events overwrote the rest"));
            output::report(problem.help("a larger --memory, a lower --level, or only some processes and devices"));
        }
        let (run, file) = match stored::keep(&store, &caught, &words) {
            Ok(run) => (Some(run.0), None),
            Err(error) => match rescue(&caught.captured.trace) {
                Ok(path) => {
                    output::report(Problem::warning(format!("{error}; the trace is in {} instead", path.display())));
                    (None, Some(path))
                }
                Err(lost) => {
                    failed = Some(lost.context(error.to_string()).context("the trace is lost"));
                    return false;
                }
            },
        };
        let place = run.clone().or(file.as_ref().map(|path| path.display().to_string())).unwrap_or_default();
        let summary = recording::summary(&caught.captured);
        output::complain(&format!("{place} ({}): {summary}", caught.trigger));
        all.push(described(&caught, run.as_deref(), file.as_ref()));
        true
    };
    let number = match armed::arm(&arm, &mut armed, &mut caught) {
        Err(RecordError::Targets(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        number => number?,
    };
    if let Some(error) = failed {
        return Err(error);
    }
    iowhy_live::signal::was_expected();
    if json {
        output::print_json(&json!({
            "schema": "iowhy.trace-arm/1",
            "store": directory.to_string_lossy(),
            "when": arm.when.iter().map(When::to_string).collect::<Vec<_>>(),
            "keep_s": arm.keep.as_secs_f64(),
            "memory_bytes": arm.memory,
            "kept": all,
        }))?;
    } else {
        let words = iowhy_text::count(u64::from(number), "recording", "recordings");
        output::complain(&format!("disarmed after {words}\n"));
    }
    Ok(Exit::Fine)
}

/// How long a recorder may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends recorders that are armed, and undoes what killed ones left.
pub(super) fn disarm(pids: &[u32], json: bool) -> anyhow::Result<Exit> {
    let directory = ledger::state_directory();
    let armed = flight::armed(&directory);
    let missing: Vec<&u32> = pids.iter().filter(|pid| armed.iter().all(|armed| armed.pid != **pid)).collect();
    for pid in &missing {
        let known = armed.iter().map(|armed| armed.pid.to_string());
        let problem = Problem::error(format!("process {pid} is not armed")).near(&pid.to_string(), known);
        output::report(problem.help("without a number all are disarmed"));
    }
    if !missing.is_empty() {
        return Ok(Exit::Usage);
    }
    let mut ended = Vec::new();
    let mut exit = Exit::Fine;
    let meant = |armed: &Armed| pids.contains(&armed.pid) || pids.is_empty() && armed.of_other.is_none();
    for (other, one) in armed.iter().filter(|one| !meant(one)).filter_map(|one| Some((one.of_other?, one))) {
        let problem = Problem::warning(format!("process {} of user {other} is armed, too: {}", one.pid, one.what));
        output::report(problem.help(format!("`iowhy trace disarm {}` ends it; a unit is ended by systemctl", one.pid)));
    }
    for one in armed.iter().filter(|one| meant(one)) {
        let gone = one.end(PATIENCE)?;
        if !gone {
            output::report(Problem::error(format!("process {} does not end", one.pid)).help("kill -KILL, then again"));
            exit = Exit::Failed;
        }
        ended.push(json!({ "pid": one.pid, "when": one.what, "ended": gone }));
        if !json {
            output::print(&format!("process {} ({}): {}\n", one.pid, one.what, if gone { "ended" } else { "runs" }))?;
        }
    }
    let left = ledger::sweep(&directory)?;
    if json {
        output::print_json(&json!({
            "schema": "iowhy.trace-disarm/1",
            "ended": ended,
            "undone": left.iter().filter(|left| left.state == State::Undone).map(|left| &left.what).collect::<Vec<_>>(),
        }))?;
        return Ok(exit);
    }
    for left in &left {
        output::print(&format!("{left}\n"))?;
    }
    if ended.is_empty() && left.is_empty() && armed.is_empty() {
        output::print("nothing is armed\n")?;
    }
    Ok(exit)
}
