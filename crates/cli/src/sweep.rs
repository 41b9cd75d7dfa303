//! `iowhy sweep`.

use std::path::PathBuf;

use iowhy_lab::sweep::pool::{self, Swept};
use iowhy_lab::sweep::{Plan, Row};
use iowhy_text::diagnose::{Problem, Problems};
use serde_json::{Value, json};

use crate::output::{self, Bar, Exit};

#[derive(clap::Args)]
#[command(about = "Simulate a job at every combination of places, disks, options and seeds")]
#[command(after_help = "\
FILE is TOML; every list is combined with every other, and a value of an option
is filled in for ${NAME}:

  job = \"fio --name=r --rw=randread --bs=${bs} --size=4m\"
  on = [\"sim:linux-4.4\", \"sim:linux-6.18,read_ahead_kb=${ra}\"]
  disk = [\"sata-2014\", \"nvme\"]
  seeds = 10
  [options]
  bs = [\"4k\", \"64k\"]
  ra = [0, 128, 512]

`job` may be a job file, too. Each task of up to 1000 points becomes a Parquet file.
The same call again makes what is missing, and points without a result.

Exit codes: 0 every point has a result, 1 some have none, 2 a usage or input error.")]
pub(crate) struct Arguments {
    /// Grid, as TOML
    #[arg(value_name = "FILE")]
    file: String,
    /// Folder of the results
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    output: PathBuf,
    /// Only part I of N, for several machines or an array job
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = shard)]
    shard: (usize, usize),
    /// Worker threads; results do not change [default: CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

fn shard(word: &str) -> Result<(usize, usize), String> {
    let parts = word.split_once('/').and_then(|(nr, of)| Some((nr.parse().ok()?, of.parse().ok()?)));
    match parts {
        Some((nr, of)) if (1..=of).contains(&nr) => Ok((nr, of)),
        _ => Err("it takes a part and their number, for example 1/8".to_owned()),
    }
}

/// Points without a result that are named.
const NAMED: usize = 5;

fn failure(row: &Row) -> Value {
    let point = &row.point;
    json!({ "point": row.nr, "on": point.on, "disk": point.disk, "options": point.options, "seed": point.seed,
        "error": row.error })
}

fn text(plan: &Plan, arguments: &Arguments, swept: &Swept) -> String {
    let count = iowhy_text::count;
    let Swept { tasks, made, points, failed } = swept;
    let there = tasks - made;
    let mut text = format!(
        "{} in {}, {} made now, {there} there before: {}\n",
        count(*points as u64, "point", "points"),
        count(*tasks as u64, "task", "tasks"),
        made,
        arguments.output.join("task-*.parquet").display()
    );
    text += &format!("plan {}: {}\n", plan.hash(), count(plan.points() as u64, "point", "points"));
    for row in failed.iter().take(NAMED) {
        let disk = row.point.disk.as_ref().map_or(String::new(), |disk| format!(" --disk {disk}"));
        let error = row.error.as_deref().unwrap_or_default();
        text +=
            &format!("point {} has no result: --on {}{disk}, seed {}\n{error}\n", row.nr, row.point.on, row.point.seed);
    }
    if failed.len() > NAMED {
        text += &format!("{} more have no result: the column `error`\n", failed.len() - NAMED);
    }
    text
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let plan = match iowhy_text::input::text(arguments.file.as_ref(), iowhy_text::input::JOB) {
        Ok(text) => Plan::parse(&arguments.file, &text, &mut problems),
        Err(error) => {
            problems.push(Problem::error(format!("cannot read `{}`: {error}", arguments.file)));
            None
        }
    };
    output::report_all(&problems);
    let Some(plan) = plan else { return Ok(Exit::Usage) };
    let threads = arguments.threads.map_or(0, |threads| threads as usize);
    let bar = Bar::new("sweeping", "points", arguments.json);
    let swept = pool::run(&plan, &arguments.output, arguments.shard, threads, &|done, of| bar.advance(done, of));
    drop(bar);
    let swept = match swept {
        Ok(swept) => swept,
        Err(error) => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Usage);
        }
    };
    if arguments.json {
        let (nr, of) = arguments.shard;
        output::print_json(&json!({
            "schema": "iowhy.sweep/1",
            "plan": plan.hash(),
            "points": plan.points(),
            "shard": [nr, of],
            "tasks": swept.tasks,
            "made": swept.made,
            "points_made": swept.points,
            "failed": swept.failed.iter().map(failure).collect::<Vec<_>>(),
            "folder": arguments.output,
        }))?;
    } else {
        output::print(&text(&plan, arguments, &swept))?;
    }
    Ok(if swept.failed.is_empty() { Exit::Fine } else { Exit::Failed })
}
