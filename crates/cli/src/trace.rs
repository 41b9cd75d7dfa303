//! `iowhy trace`.

mod arm;
mod price;
mod sum;

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
pub(crate) use iowhy_lab::recording::when::duration;
use iowhy_lab::recording::{self, RecordError, Request};
use iowhy_lab::store;
use iowhy_live::capture::{Level, Via};
use iowhy_live::guard::Output;
use iowhy_stack::trace::Trace;
use iowhy_stack::units::Nanos;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_trace::format::Writing;
use iowhy_trace::public::Source;
use iowhy_trace::public::caches::Policy;
use iowhy_trace::public::figures::{CacheSize, Figures, Unit};
use iowhy_trace::{self as trace, FORMATS, Format, stat};
use serde_json::{Value, json};

use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Trace every layer of the running kernel: record, arm, convert, count")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

/// Targets of a recording: processes, files and devices.
#[derive(clap::Args)]
pub(crate) struct Targets {
    /// Processes, 1,2 or repeated, with threads and children
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pid: Vec<u32>,
    /// Processes of this name, now and later; may be repeated
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,
    /// Control group, v1 or v2, with groups below; may be repeated
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<String>,
    /// Unit of systemd, by its control group; may be repeated
    #[arg(long, value_name = "NAME")]
    unit: Vec<String>,
    /// File: its calls and pages, and no others; may be repeated
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Block device, node or name, and its partitions; may be repeated
    #[arg(long, value_name = "DEVICE")]
    device: Vec<PathBuf>,
}

impl Targets {
    /// A recording of them, with nothing else asked for.
    pub(crate) fn request(&self) -> Request {
        Request {
            pids: self.pid.clone(),
            comms: self.comm.clone(),
            cgroups: self.cgroup.clone(),
            units: self.unit.clone(),
            files: self.file.clone(),
            devices: self.device.clone(),
            ..Request::default()
        }
    }
}

#[derive(Subcommand)]
enum Action {
    /// Trace a command, processes or the whole machine; needs root
    #[command(after_help = RECORD)]
    Record {
        /// Level: requests; all layers; lookups, tasks and journals, too
        #[arg(long, value_enum, default_value_t = HowMuch::Layers)]
        level: HowMuch,
        /// Duration, for example 10s or 500ms [default: until it ends, or ^C]
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        length: Option<Duration>,
        #[command(flatten)]
        targets: Targets,
        /// Ring buffer of each CPU, KiB [default: 8192]
        #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
        buffer: Option<u32>,
        /// Source of events [default: tracefs, or bpf if denied]
        #[arg(long, value_enum, value_name = "WAY")]
        via: Option<Way>,
        /// Stacks of tasks that begin to wait, by frame pointers; needs bpf
        #[arg(long)]
        stacks: bool,
        /// Target file; the end of its name decides the format
        #[arg(short, long, value_name = "OUT")]
        output: PathBuf,
        /// Command to trace, with its arguments
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Keep the last minute in the kernel, and save it when it gets slow
    #[command(after_help = arm::HELP)]
    Arm(arm::Options),
    /// End armed recorders, and undo what killed ones left
    Disarm {
        /// Processes [default: all that are armed]
        #[arg(value_name = "PID")]
        pids: Vec<u32>,
    },
    /// Add up times in the kernel by process, file and disk, for hours
    #[command(after_help = sum::HELP)]
    Sum(sum::Options),
    /// Measure the price of watching: throughput lost, time of an event
    #[command(after_help = price::HELP)]
    Price(price::Options),
    /// Read a trace of another program and keep it
    Import {
        /// Trace, in any known format
        #[arg(value_name = "TRACE")]
        from: PathBuf,
        /// Format [default: by the end of OUT]
        #[arg(long = "format", alias = "to", value_name = "FORM")]
        to: Option<String>,
        /// Format of TRACE [default: by its contents]
        #[arg(long, value_name = "FORM")]
        of: Option<String>,
        /// Target file [default: TRACE with the end .parquet]
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
    },
    /// Write a trace for other programs
    #[command(after_help = forms())]
    Export {
        /// Trace, in any known format
        #[arg(value_name = "TRACE")]
        from: PathBuf,
        /// Format [default: by the end of OUT]
        #[arg(long = "format", alias = "to", value_name = "FORM")]
        to: Option<String>,
        /// Format of TRACE [default: by its contents]
        #[arg(long, value_name = "FORM")]
        of: Option<String>,
        /// Target file [default: standard output]
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
    },
    /// Count phases, requests, windows and devices of a trace
    #[command(after_help = STAT)]
    Stat {
        /// Trace, in any known format
        #[arg(value_name = "TRACE")]
        from: PathBuf,
        /// Length of stretches for which devices are counted, too
        #[arg(long, value_name = "TIME", value_parser = duration)]
        interval: Option<Duration>,
        /// Workload [default: all that make calls]
        #[arg(long, value_name = "PID")]
        pid: Vec<u32>,
        /// Format of TRACE [default: by its contents]
        #[arg(long, value_name = "FORM")]
        format: Option<String>,
        #[command(flatten)]
        caches: Caches,
    },
}

/// Caches to count the misses of, on a public trace.
#[derive(clap::Args)]
struct Caches {
    /// Public trace: misses of caches of these sizes, for example 64m,1g,10%
    #[arg(long = "cache", value_name = "SIZES", value_delimiter = ',', value_parser = cache_size)]
    sizes: Vec<CacheSize>,
    /// Their policies, for example lru,fifo,linux-6.18
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',', default_value = "lru", value_parser = policy)]
    policies: Vec<Policy>,
    /// Unit they keep [default: page, and object for keys]
    #[arg(long, value_enum)]
    unit: Option<UnitName>,
}

/// Units of caches.
#[derive(Copy, Clone, ValueEnum)]
enum UnitName {
    /// Pages of 4 KiB
    Page,
    /// The request as it is
    Object,
}

/// Help of `trace stat`.
const STAT: &str = "Of a public trace (MSR, Alibaba, Tencent, FIU, Twitter, libCacheSim, ..), counts,\nrates, \
    sizes, working set and reuse are shown, and the misses of caches:\n\n  \
    iowhy trace stat web_0.csv.gz\n  \
    iowhy trace stat cluster52.zst --cache 64m,1%,10% --policy lru,fifo";

/// The size of a cache: bytes with k, m, g or t behind them, or a percentage of the working set.
fn cache_size(word: &str) -> Result<CacheSize, String> {
    let wrong = || "a size is a number with k, m or g behind it, or with % of the working set".to_owned();
    if let Some(share) = word.strip_suffix('%') {
        let share = share.parse().ok().filter(|share: &f64| *share > 0.0 && share.is_finite());
        return share.map(CacheSize::Percent).ok_or_else(wrong);
    }
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let shift = match word[digits..].to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = word[..digits].parse().ok().and_then(|bytes: u64| bytes.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).map(CacheSize::Bytes).ok_or_else(wrong)
}

/// A policy by its name.
fn policy(word: &str) -> Result<Policy, String> {
    Policy::named(word).ok_or_else(|| format!("a policy is one of {}", Policy::names().join(", ")))
}

/// Levels of a capture.
#[derive(Copy, Clone, ValueEnum)]
enum HowMuch {
    /// Requests as they are issued and completed
    Light,
    /// Calls, pages, read-ahead, bios and requests
    Layers,
    /// And lookups, faults, tasks, io_uring, writeback, journals
    Full,
}

impl From<HowMuch> for Level {
    fn from(level: HowMuch) -> Level {
        match level {
            HowMuch::Light => Level::Light,
            HowMuch::Layers => Level::Layers,
            HowMuch::Full => Level::Full,
        }
    }
}

/// Where events come from.
#[derive(Copy, Clone, ValueEnum)]
pub(crate) enum Way {
    /// The kernel's own tracing
    Tracefs,
    /// Programs on raw tracepoints
    Bpf,
}

impl From<Way> for Via {
    fn from(way: Way) -> Via {
        match way {
            Way::Tracefs => Via::Tracefs,
            Way::Bpf => Via::Bpf,
        }
    }
}

/// Help of `trace record`.
const RECORD: &str = "Tasks named together are a union; --device and --file restrict what is recorded\nof them. \
    Without any, the whole machine is traced.\n\n  \
    iowhy trace record --for 10s --comm postgres -o slow.parquet\n  \
    iowhy trace record -o copy.parquet -- dd if=big of=/dev/null bs=1M";

/// Help of `trace export`: the forms and the endings that mean them.
fn forms() -> String {
    let mut text = String::from("Forms, and names of files that mean them:\n");
    for format in FORMATS.iter().filter(|format| format.is_written()) {
        let endings: Vec<String> = format.extensions.iter().map(|ending| format!(".{ending}")).collect();
        let endings = if endings.is_empty() { "by --format only".to_owned() } else { endings.join(", ") };
        text.push_str(&format!("  {:<14} {endings}\n", format.name));
    }
    text + "\n  iowhy trace export slow.parquet --format csv\n  iowhy trace export slow.parquet -o slow.pftrace"
}

/// A process by its number.
fn pid(word: &str) -> Result<u32, String> {
    word.trim().parse().map_err(|_| format!("a process is a number; `--comm {word}` finds one by its name"))
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.action {
        Action::Record { level, length, targets, buffer, via, stacks, output, command } => {
            let request = Request {
                level: (*level).into(),
                length: *length,
                command: command.clone(),
                buffer_kib: buffer.unwrap_or(0),
                via: via.map(Into::into),
                stacks: *stacks,
                ..targets.request()
            };
            record(&request, output, arguments.json)
        }
        Action::Arm(options) => arm::arm(options, arguments.json),
        Action::Sum(options) => sum::sum(options, arguments.json),
        Action::Price(options) => price::price(options, arguments.json),
        Action::Disarm { pids } => arm::disarm(pids, arguments.json),
        Action::Import { from, to, of, output } => {
            let usual = from.with_extension("parquet");
            let out = output.as_deref().unwrap_or(&usual);
            convert("import", (from, of.as_deref()), to.as_deref(), Some(out), arguments.json)
        }
        Action::Export { from, to, of, output } => {
            convert("export", (from, of.as_deref()), to.as_deref(), output.as_deref(), arguments.json)
        }
        Action::Stat { from, interval, pid, format, caches } => {
            let mut problems = Problems::default();
            let Ok(form) = read_form(format.as_deref()).map_err(output::report) else { return Ok(Exit::Usage) };
            if let Some(source) = trace::format::public_of(from, form) {
                return public(from, source, caches, arguments.json);
            }
            if !caches.sizes.is_empty() {
                let text = format!("`--cache` is for public traces, and `{}` is none", from.display());
                output::report(Problem::error(text).help("--format with one of them"));
                return Ok(Exit::Usage);
            }
            let found = trace::format::load_as(from, form, &mut problems);
            output::report_all(&problems);
            let Some(trace) = found else { return Ok(Exit::Usage) };
            let interval = interval.map(|time| Nanos(time.as_nanos() as u64));
            let stat = stat::stat(&trace, &stat::Ask { interval, workload: pid.clone() });
            if arguments.json {
                output::print_json(&stat.json())?;
            } else {
                output::print(&stat.text())?;
            }
            Ok(ending(&problems))
        }
    }
}

/// The form in which a trace is read, as it is called.
fn read_form(name: Option<&str>) -> Result<Option<&'static Format>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let known = || FORMATS.iter().filter(|format| format.is_read()).map(|format| format.name);
    let form = trace::format::format(name).filter(|format| format.is_read());
    let wrong = || Problem::error(format!("`{name}` is not a format of traces")).near(name, known());
    form.map(Some).ok_or_else(|| wrong().help(format!("one of {}", known().collect::<Vec<_>>().join(", "))))
}

/// The figures of a public trace.
fn public(from: &Path, source: &Source, caches: &Caches, json: bool) -> anyhow::Result<Exit> {
    let unit = match caches.unit {
        Some(UnitName::Object) => Unit::Object,
        None if source.objects => Unit::Object,
        Some(UnitName::Page) if source.objects => {
            output::report(Problem::error("`--unit page` is for block traces, and keys have no pages"));
            return Ok(Exit::Usage);
        }
        Some(UnitName::Page) | None => Unit::Page,
    };
    let kernel = caches.policies.iter().find(|policy| !matches!(policy, Policy::Plain(_)));
    if let (Some(policy), Unit::Object, false) = (kernel, unit, caches.sizes.is_empty()) {
        let text = format!("`--policy {}` keeps pages, and this trace is counted by objects", policy.name());
        output::report(Problem::error(text).help("a block trace, with --unit page"));
        return Ok(Exit::Usage);
    }
    let mut problems = Problems::default();
    let mut figures = Figures::new(unit, !caches.sizes.is_empty());
    let found = trace::public::stream(from, source, &mut problems, &mut |access| figures.add(access));
    output::report_all(&problems);
    let Some(provenance) = found else { return Ok(Exit::Usage) };
    let rows = figures.caches(&caches.policies, &caches.sizes);
    if json {
        output::print_json(&figures.json(&provenance, &rows))?;
    } else {
        output::print(&figures.text(&provenance, &rows))?;
    }
    Ok(Exit::Fine)
}

/// A trace of which only a part could be read is worth something, but not all that was asked for.
fn ending(problems: &Problems) -> Exit {
    if problems.any_error() { Exit::Failed } else { Exit::Fine }
}

/// The form to write in: as it is called, or else as the name ends.
fn form(name: Option<&str>, out: Option<&Path>) -> Result<&'static Format, Problem> {
    let known = || FORMATS.iter().filter(|format| format.is_written()).map(|format| format.name);
    let named = match (name, out) {
        (Some(name), _) => trace::format::format(name).filter(|format| format.is_written()).ok_or_else(|| {
            Problem::error(format!("`{name}` is not a format that traces are written in"))
                .near(name, known().map(str::to_owned))
        }),
        (None, Some(out)) => trace::format_of_name(&out.to_string_lossy())
            .ok_or_else(|| Problem::error(format!("the end of `{}` says no form to write in", out.display()))),
        (None, None) => Err(Problem::error("give a format, or a file to write")),
    };
    named.map_err(|problem| problem.help(format!("--format {}", known().collect::<Vec<_>>().join("|"))))
}

/// Where a trace goes. A path that may not be written is refused when this is made, before there is a trace.
enum Sink<'a> {
    Stdout,
    File(Output),
    /// The files of these names (blktrace has one for each CPU).
    Files(&'a Path),
}

impl Sink<'_> {
    fn begin<'a>(format: &Format, out: Option<&'a Path>) -> anyhow::Result<Result<Sink<'a>, Exit>> {
        let Some(path) = out.filter(|path| *path != Path::new("-")) else { return Ok(Ok(Sink::Stdout)) };
        if matches!(format.write, Writing::Parts(..)) {
            return Ok(Ok(Sink::Files(path)));
        }
        Ok(output::begin(path, false)?.map(Sink::File))
    }
}

/// Writes a trace.
fn write(trace: &Trace, format: &Format, sink: Sink<'_>) -> anyhow::Result<()> {
    match (sink, format.write) {
        (Sink::File(out), _) => {
            let mut file = BufWriter::new(out);
            format.write_one(trace, &mut file).context("cannot write the trace")?;
            Ok(file.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?)
        }
        (Sink::Files(path), Writing::Parts(_, write_files)) => {
            // `-o x` and `-o x.blktrace` both mean x.blktrace.0, x.blktrace.1, ..
            let named =
                path.extension().and_then(|end| end.to_str()).is_some_and(|end| format.extensions.contains(&end));
            let prefix = if named { path.with_extension("") } else { path.to_owned() };
            let failed = || format!("cannot write `{}`", path.display());
            let left_out = write_files(trace, &prefix, &mut |path, bytes| Ok(Output::write(path, bytes, false)?))
                .with_context(failed)?;
            if left_out > 0 {
                let text = format!("{left_out} records have no form in {} and were left out", format.name);
                output::report(Problem::warning(text));
            }
            Ok(())
        }
        (Sink::Stdout | Sink::Files(_), _) => {
            let mut bytes = Vec::new();
            format.write_one(trace, &mut bytes)?;
            output::print_bytes(&bytes)
        }
    }
}

/// Checks that the written trace can be read again, and has its length.
fn read_back(trace: &Trace, out: &Path) -> anyhow::Result<()> {
    let mut problems = Problems::default();
    let again = trace::load(out, &mut problems).map(|again| again.records.len());
    anyhow::ensure!(
        again == Some(trace.records.len()),
        "`{}` cannot be read again: {}",
        out.display(),
        problems.render()
    );
    Ok(())
}

/// Keeps a trace that could not be written where it should go, in the folder of the store; its place.
fn rescue(trace: &Trace) -> anyhow::Result<PathBuf> {
    let folder = store::directory(None, &|name| std::env::var(name).ok()).context("the store has no place")?;
    let folder = folder.join("rescued");
    std::fs::create_dir_all(&folder)?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let path = folder.join(format!("{}-{}.parquet", since.as_secs(), std::process::id()));
    let format = trace::format::format("parquet").context("Parquet is written")?;
    write(trace, format, Sink::File(Output::create(&path, false)?))?;
    read_back(trace, &path)?;
    Ok(path)
}

/// The messages about a written trace.
fn written(action: &str, trace: &Trace, format: &Format, out: Option<&Path>) -> Value {
    json!({
        "schema": "iowhy.trace/1",
        "action": action,
        "output": out.map(|path| path.to_string_lossy()),
        "format": format.name,
        "records": trace.records.len(),
        "lost": trace.lost,
        "inferred_windows": trace.inferred_windows,
        "kernel": trace.kernel,
    })
}

fn record(request: &Request, out: &Path, json: bool) -> anyhow::Result<Exit> {
    let format = match form(None, Some(out)) {
        Ok(format) => format,
        Err(problem) => {
            output::report(problem);
            return Ok(Exit::Usage);
        }
    };
    let sink = match Sink::begin(format, Some(out))? {
        Ok(sink) => sink,
        Err(exit) => return Ok(exit),
    };
    crate::doctor::tidy();
    let recorded = match recording::record(request, &mut |problem| output::report(problem.clone())) {
        Err(RecordError::Targets(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        recorded => recorded?,
    };
    let captured = &recorded.captured;
    let whole = matches!(sink, Sink::File(_))
        && format.name == "parquet"
        && std::fs::metadata(out).map_or(true, |it| it.is_file());
    let done = write(&captured.trace, format, sink);
    if let Err(error) = done.and_then(|()| if whole { read_back(&captured.trace, out) } else { Ok(()) }) {
        let place = rescue(&captured.trace).context("the trace is lost").context(error.to_string())?;
        output::complain(&format!("the trace is in {} instead\n", place.display()));
        return Err(error);
    }
    let mut problems = recording::complaints(captured);
    let status = recorded.status;
    let failed = status.filter(|status| !status.success());
    if let Some(status) = failed {
        problems.push(Problem::warning(format!("the command failed: {status}")));
    }
    // Standard output is the command's, if there is one.
    output::report_all(&problems);
    if json {
        let mut value = written("record", &captured.trace, format, Some(out));
        value["capture"] = recording::json(captured);
        value["interrupted"] = json!(recorded.interrupted);
        value["command"] = match status {
            Some(status) => json!({ "words": request.command, "code": status.code(), "success": status.success() }),
            None => Value::Null,
        };
        output::print_json(&value)?;
    } else {
        output::complain(&format!("{}: {}", out.display(), recording::summary(captured)));
    }
    Ok(if failed.is_some() { Exit::Failed } else { Exit::Fine })
}

fn convert(
    action: &str,
    (from, of): (&Path, Option<&str>),
    to: Option<&str>,
    out: Option<&Path>,
    json: bool,
) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let of = read_form(of).map_err(|problem| problems.push(problem)).ok().flatten();
    let format = form(to, out).map_err(|problem| problems.push(problem)).ok();
    let same = |out: &Path| {
        std::fs::canonicalize(out).is_ok_and(|out| std::fs::canonicalize(from).is_ok_and(|from| from == out))
    };
    if out.is_some_and(same) {
        problems.push(Problem::error(format!("`{}` would be overwritten by itself", from.display())).help("-o OUT"));
    }
    if json && out.is_none() {
        problems.push(Problem::error("standard output cannot be both the trace and `--json`").help("-o OUT"));
    }
    let (Some(format), false) = (format, problems.any_error()) else {
        output::report_all(&problems);
        return Ok(Exit::Usage);
    };
    let sink = match Sink::begin(format, out)? {
        Ok(sink) => sink,
        Err(exit) => return Ok(exit),
    };
    let found = trace::format::load_as(from, of, &mut problems);
    output::report_all(&problems);
    let Some(trace) = found else { return Ok(Exit::Usage) };
    write(&trace, format, sink)?;
    if json {
        output::print_json(&written(action, &trace, format, out))?;
    } else if let Some(out) = out {
        let records = text::count(trace.records.len() as u64, "record", "records");
        output::print(&format!("{}: {records}, {}\n", out.display(), format.name))?;
    }
    Ok(ending(&problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_have_units() {
        let sizes = [("4096", 4096), ("64m", 64 << 20), ("1GiB", 1 << 30), ("2TB", 2 << 40)];
        for (word, bytes) in sizes {
            assert_eq!(cache_size(word), Ok(CacheSize::Bytes(bytes)), "{word}");
        }
        assert_eq!(cache_size("0.5%"), Ok(CacheSize::Percent(0.5)));
        for word in ["", "0", "m", "-1", "%", "-1%", "nan%", "99999999999999999999", "1q", "1é"] {
            assert!(cache_size(word).is_err(), "{word}");
        }
    }
}
