//! `iowhy trace price`.

use std::time::Duration;

use iowhy_lab::price::{self, Asked, PriceError};
use iowhy_lab::recording::when::duration;

use super::HowMuch;
use crate::output::{self, Exit};

/// Options of `trace price`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Job, as `iowhy run` takes it [default: direct reads of memory]
    #[arg(value_name = "JOB", allow_hyphen_values = true, conflicts_with = "command")]
    job: Vec<String>,
    /// Blocks: in each the job runs once in every way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Length of a run of the default job
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = duration)]
    length: Duration,
    /// Level of iowhy's own recordings
    #[arg(long, value_enum, default_value_t = HowMuch::Layers)]
    level: HowMuch,
    /// Seed of the first run, and of the order
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Command to repeat, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Help of `trace price`.
pub(super) const HELP: &str = "Ways: tracefs armed and recording, BPF recording and adding up, and blktrace,\n\
    bpftrace and perf trace where they are installed; each in blocks of\n\
    random order with the job alone.\n\n  \
    iowhy trace price --runs 10\n  \
    iowhy trace price --disk=nvme fio --name=j --rw=randread --bs=4k --direct=1\n  \
    iowhy trace price --level light -- dd if=big of=/dev/null bs=64k";

/// Measures.
pub(super) fn price(options: &Options, json: bool) -> anyhow::Result<Exit> {
    crate::doctor::tidy();
    let asked = Asked {
        job: options.job.clone(),
        command: options.command.clone(),
        runs: options.runs,
        seed: options.seed,
        level: options.level.into(),
        length: options.length,
    };
    let tell = |words: &str| {
        if !output::look().quiet && !json {
            output::complain(&format!("{words}\n"));
        }
    };
    let prices = match price::price(&asked, &tell) {
        Ok(prices) => prices,
        Err(PriceError::Words(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        output::print_json(&price::json(&prices))?;
    } else {
        output::print(&price::text(&prices))?;
    }
    Ok(Exit::Fine)
}
