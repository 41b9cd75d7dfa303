//! `iowhy trace sum`.

use std::time::Duration;

use clap::ValueEnum;
use iowhy_lab::recording::when::{duration, memory};
use iowhy_lab::recording::{RecordError, Request, sum};
use iowhy_live::capture::Level;
use iowhy_text::diagnose::Problem;
use serde_json::{Value, json};

use super::Targets;
use crate::output::{self, Exit};

/// Options of `trace sum`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    targets: Targets,
    /// Duration, for example 8h or 10s [default: until it ends, or ^C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    length: Option<Duration>,
    /// Level: requests; calls and missing pages, too
    #[arg(long, value_enum, default_value_t = Depth::Layers)]
    level: Depth,
    /// Memory for the sums in the kernel
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = memory)]
    memory: u64,
    /// Command to sum up, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Levels of sums.
#[derive(Copy, Clone, ValueEnum)]
enum Depth {
    /// Requests: queue and device
    Light,
    /// And calls that read, write or sync, and pages
    Layers,
}

/// Help of `trace sum`.
pub(super) const HELP: &str = "Times and bytes by process, file, disk and layer are added up by a BPF program in\n\
    the kernel, and printed at the end. Layers: call; queue, from the allocation of a\n\
    request to the driver; device, to its completion; pages that were not cached.\n\n  \
    iowhy trace sum --for 8h --level light\n  \
    iowhy trace sum --comm postgres --device nvme0n1\n  \
    iowhy trace sum -- dd if=big of=/dev/null bs=1M";

/// Sums up.
pub(super) fn sum(options: &Options, json: bool) -> anyhow::Result<Exit> {
    let level = match options.level {
        Depth::Light => Level::Light,
        Depth::Layers => Level::Layers,
    };
    let request =
        Request { level, length: options.length, command: options.command.clone(), ..options.targets.request() };
    let done = match sum::sum(&request, options.memory) {
        Err(RecordError::Targets(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        done => done?,
    };
    iowhy_live::signal::was_expected();
    if done.summed.lost > 0 {
        let text = iowhy_text::count(done.summed.lost, "event was", "events were");
        let help = "a larger --memory, or only some processes and devices";
        output::report(Problem::warning(format!("{text} not added: a table in the kernel was full")).help(help));
    }
    let failed = done.status.filter(|status| !status.success());
    if let Some(status) = failed {
        output::report(Problem::warning(format!("the command failed: {status}")));
    }
    if json {
        let mut value = json!({ "schema": "iowhy.trace-sum/1" });
        if let (Value::Object(value), Value::Object(rest)) = (&mut value, sum::json(&done)) {
            value.extend(rest);
        }
        value["command"] = match done.status {
            Some(status) => json!({ "words": options.command, "code": status.code(), "success": status.success() }),
            None => Value::Null,
        };
        output::print_json(&value)?;
    } else {
        output::print(&sum::text(&done))?;
    }
    Ok(if failed.is_some() { Exit::Failed } else { Exit::Fine })
}
