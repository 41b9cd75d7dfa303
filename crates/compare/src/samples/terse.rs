//! fio's terse format, versions 2 to 5: a line for each job, with semicolons between its fields.
//!
//! A line is read as the JSON of the same job, so that metrics have the same names: terse has IOPS in whole numbers and
//! times in us. Lines of one run have different names of jobs; a name that comes again begins the next run.
//!
//! Before its line, mmtests prints the command of a job: it begins a run, and the options in which the commands of a
//! file differ stand before the names of metrics, with a slash.
//!
//! Source: terse lines of fio 3.33 and its documentation; mmtests' `fio-bench`. Limit: clones (`numjobs` without
//! `group_reporting`) have one name, and each is taken for a run.

use serde_json::{Map, Value, json};

use super::{Format, Reader, fio, first_lines, lines};

pub const FORMAT: Format = Format {
    name: "fio-terse",
    summary: "fio --minimal or --output-format=terse, versions 2 to 5, a line for each job",
    // With `--output-format=terse,json` the JSON says more.
    detect: |text| !text.contains("\"fio version\"") && first_lines(text).any(|line| layout(line).is_some()),
    read,
};

/// Fields of a direction that all versions have, and those that version 5 adds.
const DIRECTION: usize = 41;
const ADDED: usize = 6;
/// Places in it of the percentiles, and of the total latency behind them.
const PERCENTILES: std::ops::Range<usize> = 12..32;

/// Fields before the first direction, the directions, and the fields of each.
fn layout(line: &str) -> Option<(usize, &'static [&'static str], usize)> {
    let (before, directions, each): (usize, &[&str], usize) = match line.get(..2)? {
        "2;" => (4, &["read", "write", "trim"], DIRECTION),
        "3;" => (5, &["read", "write"], DIRECTION),
        "4;" => (5, &["read", "write", "trim"], DIRECTION),
        "5;" => (5, &["read", "write", "trim"], DIRECTION + ADDED),
        _ => return None,
    };
    // The processor's part, the depths and the latencies stand behind all directions.
    const BEHIND: usize = 34;
    (line.split(';').count() >= before + directions.len() * each + BEHIND).then_some((before, directions, each))
}

fn read(reader: &mut Reader<'_>, text: &str) {
    let commands: Vec<Map<String, Value>> = lines(text).filter_map(|(_, line)| options(line)).collect();
    let differs = |name: &str| commands.iter().any(|other| other.get(name) != commands[0].get(name));
    let thing = |command: &Map<String, Value>| {
        let words = command.iter().filter(|(name, _)| !PLACES.contains(&name.as_str()) && differs(name));
        words.map(|(name, value)| format!("{name}={}/", value.as_str().unwrap_or_default())).collect::<String>()
    };
    let mut commands = commands.iter();
    let mut command: Option<&Map<String, Value>> = None;
    let mut jobs: Vec<Value> = Vec::new();
    let mut any = false;
    let run = |reader: &mut Reader<'_>, jobs: &mut Vec<Value>, command: Option<&Map<String, Value>>| {
        if !jobs.is_empty() {
            let thing = command.map_or_else(String::new, thing);
            fio::run(reader, &json!({ "jobs": std::mem::take(jobs) }), &thing);
        }
    };
    for (nr, line) in lines(text) {
        if options(line).is_some() {
            run(reader, &mut jobs, command);
            command = commands.next();
            continue;
        }
        let Some(layout) = layout(line) else {
            // The description of version 2, and other output, stand on lines of their own.
            if line.contains(";fio-") {
                reader.wrong(nr, line, 0..line.len(), "not all fields of a terse line", "fio --terse-version=2 to 5");
            }
            continue;
        };
        let mut job = job(line, layout);
        if let Some(command) = command {
            job["job options"] = Value::Object(command.clone());
        }
        if jobs.iter().any(|known| known["jobname"] == job["jobname"]) {
            run(reader, &mut jobs, command);
        }
        jobs.push(job);
        any = true;
    }
    run(reader, &mut jobs, command);
    if !any {
        reader.broken("no line of fio's terse format");
    }
}

/// Options in which commands differ without being another job.
const PLACES: &[&str] = &["name", "directory", "filename", "output"];

/// The options of a printed command.
fn options(line: &str) -> Option<Map<String, Value>> {
    let words = line.strip_prefix("fio ")?.split_whitespace();
    let option = |word: &str| {
        let word = word.strip_prefix("--")?;
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        Some((name.to_owned(), json!(value)))
    };
    Some(words.filter_map(option).collect()).filter(|options: &Map<_, _>| !options.is_empty())
}

/// The job of a line as fio's JSON has it.
fn job(line: &str, (before, directions, each): (usize, &[&'static str], usize)) -> Value {
    let fields: Vec<&str> = line.split(';').collect();
    let number = |at: usize| fields[at].trim_end_matches('%').parse::<f64>().unwrap_or(f64::NAN);
    let behind = before + directions.len() * each;
    let mut job = json!({
        "jobname": fields[before - 3],
        "usr_cpu": number(behind),
        "sys_cpu": number(behind + 1),
    });
    for (nr, direction) in directions.iter().enumerate() {
        let start = before + nr * each;
        let ns = |at: usize| 1000.0 * number(start + at);
        let percentile = |field: &&str| {
            let (share, us) = field.split_once("%=")?;
            Some((share.to_owned(), json!(1000.0 * us.parse::<f64>().ok()?)))
        };
        let percentiles: Map<String, Value> =
            fields[start + PERCENTILES.start..start + PERCENTILES.end].iter().filter_map(percentile).collect();
        job[*direction] = json!({
            "total_ios": number(start),
            "bw": number(start + 1),
            "iops": number(start + 2),
            "clat_ns": { "mean": ns(10), "max": ns(9), "percentile": percentiles },
            "lat_ns": { "mean": ns(PERCENTILES.end + 2) },
        });
    }
    job
}
