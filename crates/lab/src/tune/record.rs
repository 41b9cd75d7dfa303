//! The recorded run of a job, and its twin.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use iowhy_live::capture::{Captured, Level};
use iowhy_live::command::Running;
use iowhy_stack::trace::Trace;
use iowhy_stack::units::PAGE_BYTES;
use iowhy_trace::join::Who;
use iowhy_trace::settings::Settings;
use iowhy_why::rules::cost;

use super::{Asked, TuneError, request};
use crate::recording::{self, RecordError, Recorded, Request};
use crate::run;
use crate::run::live::OnKernel;
use crate::twin::{Agreement, Twin};
use crate::why::facts::{Facts, is_of_queue};
use crate::why::trial::make_cold;
use crate::why::{self, Probe};

/// A job that was recorded.
pub(super) struct Seen {
    trace: Trace,
    settings: Settings,
    who: Who,
    /// Empty if it used none.
    pub(super) disk: String,
    /// Where the file system of its files is mounted.
    pub(super) mount: Option<String>,
    /// Its files, of a command.
    pub(super) files: Arc<[PathBuf]>,
    /// It reads through the page cache.
    pub(super) cached: bool,
    /// Settings of rules that read their cost off the recording, the most expensive first.
    pub(super) rules: Vec<(&'static str, String)>,
    /// Runs that it took.
    pub(super) runs: u32,
}

impl Seen {
    /// A setting as it is.
    pub(super) fn value(&self, key: &str) -> Option<String> {
        let of = if key.starts_with("vm.") { "sysctl" } else { &self.disk };
        self.settings.get(of, key).map(str::to_owned)
    }
}

/// Records the job.
pub(super) fn job(asked: &Asked) -> Result<Seen, TuneError> {
    let found = if asked.command.is_empty() {
        let (captured, who) = of_job(asked)?;
        seen(captured, who, 1).0
    } else {
        let (first, warm) = seen(of_command(&asked.command)?, Who::default(), 1);
        if (warm || first.disk.is_empty()) && !first.files.is_empty() {
            // The trial reads from the disk, and so has what is predicted.
            make_cold(&first.files);
            seen(of_command(&asked.command)?, Who::default(), 2).0
        } else {
            first
        }
    };
    if found.disk.is_empty() { Err(TuneError::NoDisk) } else { Ok(found) }
}

fn of_job(asked: &Asked) -> Result<(Captured, Who), TuneError> {
    let request = request(asked, &["live".to_owned()], 1)?;
    let held = run::hold(&request)?;
    let variant = &request.variants[0];
    let job: &OnKernel = variant.backend().ok_or(TuneError::Program)?;
    let (live, mut captured, who) = job.recorded(&variant.shape, request.seed)?;
    drop(held);
    if live.outcome.interrupted {
        return Err(TuneError::Signal);
    }
    recording::circumstances(&mut captured);
    Ok((captured, who))
}

fn of_command(words: &[String]) -> Result<Captured, TuneError> {
    let shell = ["sh".to_owned(), "-c".to_owned()];
    let words: Vec<String> = match words {
        [one] => shell.into_iter().chain([one.clone()]).collect(),
        words => words.to_vec(),
    };
    let request = Request { level: Level::Layers, command: words.clone(), ..Request::default() };
    let start = || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let started = Running::spawn(command).map(Some);
        started.map_err(|error| RecordError::Command { program: words[0].clone(), error })
    };
    let Recorded { captured, status, interrupted, .. } = recording::record_started(&request, start, &mut |_| {})?;
    match status {
        _ if interrupted => Err(TuneError::Signal),
        Some(status) if !status.success() => Err(TuneError::Failed(status.to_string())),
        _ => Ok(captured),
    }
}

/// Everything that is wanted of a recording, and whether much of it came from the cache.
fn seen(captured: Captured, who: Who, runs: u32) -> (Seen, bool) {
    let trace = captured.trace;
    let facts = Facts::of(&mut trace.clone(), &Who::default());
    let settings = Settings::of(&trace);
    let disk = settings.get("recording", "disk").unwrap_or_default().to_owned();
    let mount = settings.values.keys().find(|(of, key)| of.starts_with('/') && key == "filesystem");
    let files = facts.files.iter().map(|file| PathBuf::from(&file.name)).filter(|path| path.is_absolute());
    let read: u64 = facts.processes.iter().map(|of| of.bytes[0]).sum();
    let pages: u64 = facts.processes.iter().map(|of| of.pages).sum();
    let rules = cost::found(&facts.for_rules()).into_iter().filter_map(|of| {
        let (key, value) = is_of_queue(&of.cost.setting)?;
        Some((key, value.to_owned()))
    });
    let seen = Seen {
        disk,
        mount: mount.map(|(of, _)| of.clone()),
        files: files.collect(),
        cached: pages > 0 && facts.what == "read",
        rules: rules.collect(),
        runs,
        settings,
        who,
        trace,
    };
    (seen, pages * PAGE_BYTES * 2 < read)
}

/// The twin of a recording that agrees with it best: on the disk that it shows, joined with a probe if there is one.
pub(super) fn twin(seen: &Seen) -> (Option<Twin>, Agreement) {
    let build = |disk: Option<&crate::profile::Profile>| Twin::of(&seen.trace, &seen.settings, &seen.who, disk);
    let probed = why::measured(&seen.disk, Probe::Read).map(|profile| build(Some(&profile)));
    let usable = |twin: &Result<Twin, String>| twin.as_ref().is_ok_and(|twin| twin.agreement().usable);
    let chosen = match probed {
        Some(twin) if usable(&twin) => twin,
        probed => {
            let alone = build(None);
            if usable(&alone) { alone } else { probed.unwrap_or(alone) }
        }
    };
    match chosen {
        Ok(twin) => {
            let agreement = twin.agreement().clone();
            (Some(twin), agreement)
        }
        Err(why) => (None, Agreement { why_not: Some(why), ..Agreement::default() }),
    }
}
