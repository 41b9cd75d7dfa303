//! `iowhy why`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use iowhy_lab::armed::kept;
use iowhy_lab::recording::{self, RecordError, Request};
use iowhy_lab::store::{self, Store, StoreError};
use iowhy_lab::why::{self, Answer, Probe, flame, json, text, trial};
use iowhy_live::capture::Level;
use iowhy_live::guard::Output;
use iowhy_stack::trace::Trace;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_trace as trace;

use crate::output::{self, Exit};
use crate::trace::{Targets, duration};

/// Arguments about a live target, of which a recording has none.
const LIVE: [&str; 10] = ["length", "pid", "comm", "cgroup", "unit", "device", "file", "command", "try_it", "stacks"];

#[derive(clap::Args)]
#[command(about = "Explain one side alone: where its time goes, why, and what would help")]
#[command(after_help = "\
Targets named together are a union; --device and --file restrict what is seen of
them. Without a target the whole machine is recorded, the busiest first. A --json at
the very end is for iowhy, behind a command, too.

  iowhy why -- dd if=big of=/dev/null bs=64k
  iowhy why before.parquet
  iowhy why --flame waits.svg -- dd if=big of=/dev/null bs=64k

Exit codes: 0 explained, or nothing here makes it faster, 2 a usage or input
error, 3 cannot tell.")]
pub(crate) struct Arguments {
    /// Duration, for example 10s or 500ms [default: 10s, or the command's]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    length: Option<Duration>,
    #[command(flatten)]
    targets: Targets,
    /// Recording, a file or a run in the store, instead of a target
    #[arg(conflicts_with_all = LIVE, conflicts_with = "from")]
    recording: Option<PathBuf>,
    /// The same as an option
    #[arg(long, value_name = "RECORDING", conflicts_with_all = LIVE)]
    from: Option<PathBuf>,
    /// Also record stacks of tasks that begin to wait; needs BPF programs
    #[arg(long)]
    stacks: bool,
    /// File for a flame graph of waits (SVG); records --stacks, too
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    /// Try the best safe settings on the target, and restore them
    #[arg(long = "try")]
    try_it: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let flame = arguments.flame.as_deref().map(|path| output::begin(path, false)).transpose()?.transpose();
    let flame = match flame {
        Ok(flame) => flame,
        Err(exit) => return Ok(exit),
    };
    if let Some(from) = arguments.recording.as_ref().or(arguments.from.as_ref()) {
        let Some(trace) = recorded(from)? else { return Ok(Exit::Usage) };
        let answer = why::of_trace(from.display().to_string(), trace, Probe::Elsewhere);
        show(arguments, &answer)?;
        draw(flame, &answer)?;
        return Ok(exit(&answer));
    }
    let length = arguments.length.or(arguments.command.is_empty().then_some(why::LENGTH));
    let request = Request {
        level: Level::Layers,
        length,
        command: arguments.command.clone(),
        stacks: arguments.stacks || flame.is_some(),
        ..arguments.targets.request()
    };
    crate::doctor::tidy();
    let recorded = match why::record(&request, arguments.json, &mut |problem| output::report(problem.clone())) {
        Err(RecordError::Targets(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        recorded => recorded?,
    };
    output::report_all(recording::complaints(&recorded.captured));
    if let Some(status) = recorded.status.filter(|status| !status.success() && !recorded.interrupted) {
        output::report(Problem::warning(format!("the command failed: {status}")));
    }
    // What runs on is not disturbed by a probe.
    let probe = if request.command.is_empty() || recorded.interrupted { Probe::Fitted } else { Probe::Read };
    let mut answer = why::of_capture(target(&request), recorded.captured, probe);
    if arguments.try_it && !recorded.interrupted {
        let tried = trial::try_safe(&mut answer, &request, &|setting| {
            if !output::look().quiet {
                output::complain(&format!("trying {setting}\n"));
            }
        });
        match tried {
            Ok(0) => output::report(Problem::warning("nothing here can be tried: no finding is about a safe setting")),
            Ok(_) => {}
            Err(error) => output::report(Problem::warning(error.to_string())),
        }
    }
    show(arguments, &answer)?;
    draw(flame, &answer)?;
    // What was recorded up to the signal is shown, and the signal is how it ended.
    Ok(match iowhy_live::signal::exit_code() {
        Some(code) if recorded.interrupted => Exit::Signal(code),
        _ => exit(&answer),
    })
}

/// A recording in a file, or else in the store; the reason is shown if there is none.
fn recorded(from: &Path) -> anyhow::Result<Option<Trace>> {
    let name = from.to_string_lossy();
    if !from.exists() && !name.contains(['/', '.']) {
        let directory = store::directory(None, &|name| std::env::var(name).ok()).ok_or(StoreError::NoPlace)?;
        return Ok(Some(kept(&Store::open_existing(&directory)?, &name)?));
    }
    let mut problems = Problems::default();
    let found = trace::load(from, &mut problems);
    output::report_all(&problems);
    Ok(found)
}

fn show(arguments: &Arguments, answer: &Answer) -> anyhow::Result<()> {
    if arguments.json {
        output::print_json(&json::why(answer))
    } else {
        output::print(&text::text(answer, output::look().brief, output::style()))
    }
}

/// Writes the flame graph, if there is one.
fn draw(file: Option<Output>, answer: &Answer) -> anyhow::Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    let stacks = &answer.facts.digest.stacks;
    if stacks.list.is_empty() {
        let problem = Problem::warning("no flame graph was written: the recording has no stacks");
        output::report(problem.help("--stacks, of named tasks, records them by BPF programs"));
        return Ok(());
    }
    file.write_all(flame::svg(stacks, &answer.target).as_bytes()).context("cannot write the flame graph")?;
    Ok(file.finish()?)
}

fn exit(answer: &Answer) -> Exit {
    if answer.is_told() { Exit::Fine } else { Exit::Inconclusive }
}

/// The target in words.
fn target(request: &Request) -> String {
    let pids: Vec<String> = request.pids.iter().map(u32::to_string).collect();
    let paths = |of: &[PathBuf]| of.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let parts = [
        request.command.join(" "),
        if pids.is_empty() { String::new() } else { format!("process {}", pids.join(", ")) },
        request.comms.join(", "),
        request.cgroups.join(", "),
        request.units.join(", "),
        paths(&request.devices),
        paths(&request.files),
    ];
    let named: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if named.is_empty() { "this machine".to_owned() } else { named.join("; ") }
}
