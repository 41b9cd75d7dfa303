//! The final report of a run of `sysbench fileio`: sysbench's text, or JSON.
//!
//! The text has the shape of sysbench 1.0.20 (and of the 1.1 development series with `--report-style=1.1`), line by
//! line, with one line more that names the place. Percentiles and the histogram come from our histogram, whose buckets
//! are finer than sysbench's. As there, the syncs at the end count as calls a second and not as events, and a write
//! that `--file-fsync-all` syncs is one event (but two calls in the latencies, which is not so there).

use std::fmt::Write;

use iowhy_live::outcome::Sample;
use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::job::{CacheStart, Job};
use iowhy_stack::outcome::{Counts, Interval, Outcome, Plan, ThreadTotals};
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Dialect, FileIo, Mode, PositionSource};
use serde_json::{Value, json};

use super::{IoMode, Settings};
use crate::on_kernel;
use crate::on_kernel::Live;
use crate::simulated_json;
use iowhy_stats::figure;
use iowhy_text as text;
use iowhy_text::diagnose::Problems;

const MIB: f64 = 1_048_576.0;

fn mode_name(mode: Mode) -> &'static str {
    Mode::NAMES.iter().find(|(_, known)| *known == mode).map_or("", |(name, _)| name)
}

fn mode_words(mode: Mode) -> &'static str {
    match mode {
        Mode::SeqWrite => "sequential write (creation)",
        Mode::SeqRewrite => "sequential rewrite",
        Mode::SeqRead => "sequential read",
        Mode::RandomRead => "random read",
        Mode::RandomWrite => "random write",
        Mode::RandomReadWrite => "random r/w",
    }
}

/// The line that names the program.
pub fn version(style_1_1: bool, place: &str) -> String {
    let version = if style_1_1 { "1.1.0" } else { "1.0.20" };
    format!("sysbench {version} (iowhy {}, {place})", env!("CARGO_PKG_VERSION"))
}

/// Measurements of a run at any place.
pub struct Measured<'a> {
    job: &'a Job,
    origin: Origin<'a>,
    elapsed: Nanos,
    counts: Counts,
    latency: &'a Histogram,
    threads: Vec<ThreadTotals>,
    intervals: Vec<Interval>,
}

/// Where it was made.
enum Origin<'a> {
    Simulated(&'a Plan, &'a Outcome),
    Live(&'a Live),
}

impl<'a> Measured<'a> {
    /// A run of the simulator.
    pub fn simulated(plan: &'a Plan, outcome: &'a Outcome) -> Measured<'a> {
        Measured {
            job: &plan.job,
            origin: Origin::Simulated(plan, outcome),
            elapsed: outcome.elapsed,
            counts: outcome.counts,
            latency: &outcome.latency,
            threads: outcome.threads.clone(),
            intervals: outcome.intervals.clone(),
        }
    }

    /// A run on real files.
    pub fn live(live: &'a Live) -> Measured<'a> {
        let outcome = &live.outcome;
        Measured {
            job: &live.plan.job,
            origin: Origin::Live(live),
            elapsed: outcome.elapsed,
            counts: outcome.counts,
            latency: &outcome.latency,
            threads: outcome.threads.iter().map(|thread| thread.totals).collect(),
            intervals: live.intervals(),
        }
    }

    /// The job of a sysbench plan.
    fn fileio(&self) -> &'a FileIo {
        match self.job.fileio() {
            Some(fileio) => fileio,
            None => unreachable!("this report is made of sysbench plans only"),
        }
    }

    /// The samples of each thread on real files.
    fn samples(&self) -> Vec<&'a [Sample]> {
        match self.origin {
            Origin::Simulated(..) => Vec::new(),
            Origin::Live(live) => live.outcome.threads.iter().map(|thread| thread.samples.as_slice()).collect(),
        }
    }

    /// Seconds that the counts were made in: all but the warm-up.
    fn seconds(&self) -> f64 {
        self.elapsed.saturating_sub(self.job.warmup).as_secs_f64()
    }

    /// Syncs in the rates of 1.0: those at the end too, which are not events.
    fn syncs(&self) -> u64 {
        let fileio = self.fileio();
        let last = fileio.fsync_end && fileio.mode.writes() && fileio.dialect == Dialect::V1_0;
        let last = if last { u64::from(fileio.threads) * u64::from(fileio.nr_files) } else { 0 };
        self.counts.syncs + last
    }

    /// Events among some calls.
    fn events(&self, counts: &Counts) -> u64 {
        let fileio = self.fileio();
        let folded = fileio.fsync_all && fileio.dialect == Dialect::V1_0;
        if folded { counts.reads + counts.writes } else { counts.total() }
    }
}

fn per_second(n: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { n / seconds } else { 0.0 }
}

/// The output of `prepare` and `cleanup`.
pub fn nothing_to_do(command: &str) -> String {
    let version = version(false, "simulated");
    format!("{version}\n\n{command}: nothing to do, the files of a simulated run exist from its start.\n")
}

/// The text report.
pub fn text(run: &Measured<'_>, settings: &Settings) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = header(&mut out, run, settings);
    let reported = progress(&mut out, settings, run).unwrap_or_default();
    let whole = Part::whole(run);
    let last = if reported.threads.is_empty() { whole } else { whole.without(&reported) };
    if settings.histogram {
        let _ = histogram(&mut out, &last.latency);
    }
    let _ = totals(&mut out, &last, settings);
    out
}

fn header(out: &mut String, run: &Measured<'_>, settings: &Settings) -> std::fmt::Result {
    let job = run.job;
    let fileio = run.fileio();
    let place = if matches!(run.origin, Origin::Live(_)) { "live" } else { "simulated" };
    writeln!(out, "{}\n", version(settings.style_1_1, place))?;
    writeln!(out, "Running the test with following options:")?;
    match run.origin {
        Origin::Simulated(plan, _) => {
            writeln!(out, "Simulated on: {}, disk {}", plan.stack.describe(), plan.stack.device.entry.name)?;
        }
        Origin::Live(live) => {
            let pages: u64 = live.outcome.resident.iter().map(|file| file.before).sum();
            writeln!(
                out,
                "Running on: {}, {} of the files cached",
                on_kernel::machine::kernel(),
                text::size(pages * 4096)
            )?;
        }
    }
    writeln!(out, "Number of threads: {}", fileio.threads)?;
    if settings.style_1_1 && job.warmup > Nanos::ZERO {
        writeln!(out, "Warmup time: {}s", job.warmup.0 / 1_000_000_000)?;
    }
    if fileio.rate > 0 {
        writeln!(out, "Target transaction rate: {}/sec", fileio.rate)?;
    }
    if settings.report_interval > 0 {
        writeln!(out, "Report intermediate results every {} second(s)", settings.report_interval)?;
    }
    if !settings.checkpoints.is_empty() {
        let seconds: Vec<String> = settings.checkpoints.iter().map(u64::to_string).collect();
        writeln!(out, "Report checkpoint(s) at {} seconds", seconds.join(", "))?;
    }
    if settings.validate {
        writeln!(out, "Validation checks: on.\n")?;
    }
    match fileio.positions {
        PositionSource::GlibcUnseeded => writeln!(out, "Random number generator of the C library, unseeded.\n")?,
        PositionSource::Seeded(seed) => writeln!(out, "Initializing random number generator from seed ({seed}).\n")?,
    }
    writeln!(out, "\nExtra file open flags: {}", extra_flags(&settings.extra_flags))?;
    writeln!(out, "{} files, {} each", fileio.nr_files, text::size(fileio.file_bytes()))?;
    writeln!(out, "{} total file size", text::size(fileio.file_bytes() * u64::from(fileio.nr_files)))?;
    writeln!(out, "Block size {}", text::size(u64::from(fileio.block_bytes)))?;
    if fileio.merged_requests > 0 {
        writeln!(
            out,
            "Merging requests up to {} for sequential IO.",
            text::size(u64::from(fileio.merged_requests) * u64::from(fileio.block_bytes))
        )?;
    }
    if matches!(fileio.mode, Mode::RandomRead | Mode::RandomWrite | Mode::RandomReadWrite) {
        writeln!(out, "Number of IO requests: {}", fileio.max_events)?;
        writeln!(out, "Read/Write ratio for combined random IO test: {:.2}", fileio.rw_ratio_milli as f64 / 1000.0)?;
    }
    // sysbench says fsync() here whichever call `--file-fsync-mode` picks.
    if fileio.fsync_freq > 0 && !fileio.fsync_all {
        writeln!(out, "Periodic FSYNC enabled, calling fsync() each {} requests.", fileio.fsync_freq)?;
    }
    if fileio.fsync_end {
        writeln!(out, "Calling fsync() at the end of test, Enabled.")?;
    }
    if fileio.fsync_all {
        writeln!(out, "Calling fsync() after each write operation.")?;
    }
    match settings.io_mode {
        IoMode::Sync => writeln!(out, "Using synchronous I/O mode")?,
        IoMode::Async => writeln!(out, "Using asynchronous I/O mode")?,
        IoMode::Mmap => writeln!(out, "Using fast mmaped I/O mode")?,
    }
    if settings.validate {
        writeln!(out, "Using checksums validation.")?;
    }
    writeln!(out, "Doing {} test", mode_words(fileio.mode))?;
    writeln!(out, "Initializing worker threads...\n\nThreads started!\n")
}

/// The flags in the order and spelling of sysbench, which leaves a blank behind two of them.
pub(super) fn extra_flags(flags: &[&str]) -> String {
    if flags.is_empty() {
        return "(none)".to_owned();
    }
    [("sync", "sync "), ("dsync", "dsync "), ("direct", "directio")]
        .iter()
        .filter(|(flag, _)| flags.contains(flag))
        .map(|(_, shown)| *shown)
        .collect()
}

/// A latency at the percentile asked for, ms; 0 if none was.
fn at_percentile(histogram: &Histogram, percentile: u64) -> f64 {
    if percentile == 0 { 0.0 } else { figure::quantile(histogram, percentile) as f64 / 1e6 }
}

/// A part of a run: all of it, or what lies between two checkpoints.
#[derive(Clone, Default)]
struct Part {
    counts: Counts,
    /// Syncs, those at the end too.
    syncs: u64,
    events: u64,
    latency: Histogram,
    /// Of each thread its events, and the time that they took, s.
    threads: Vec<(f64, f64)>,
    /// Time that rates are of, s.
    seconds: f64,
    /// From the start of the run to its end, s.
    total_s: f64,
}

impl Part {
    fn whole(run: &Measured<'_>) -> Part {
        let thread = |thread: &ThreadTotals| (run.events(&thread.counts) as f64, thread.busy.as_secs_f64());
        Part {
            counts: run.counts,
            syncs: run.syncs(),
            events: run.events(&run.counts),
            latency: run.latency.clone(),
            threads: run.threads.iter().map(thread).collect(),
            seconds: run.seconds(),
            total_s: run.elapsed.as_secs_f64(),
        }
    }

    fn add(&mut self, run: &Measured<'_>, nr: usize, interval: &Interval) {
        self.counts.merge(&interval.counts);
        self.latency.merge(&interval.latency);
        self.threads.resize(run.threads.len(), (0.0, 0.0));
        let samples = run.samples().into_iter().map(|samples| samples.get(nr));
        for ((events, busy), sample) in self.threads.iter_mut().zip(samples) {
            let Some(sample) = sample else { continue };
            *events += run.events(&sample.counts) as f64;
            *busy += sample.latency.sum() as f64 / 1e9;
        }
        (self.syncs, self.events) = (self.counts.syncs, run.events(&self.counts));
    }

    /// The rest of this without the part before the last checkpoint.
    fn without(&self, before: &Part) -> Part {
        Part {
            counts: self.counts.since(&before.counts),
            syncs: self.syncs - before.syncs,
            events: self.events - before.events,
            latency: self.latency.since(&before.latency),
            threads: self.threads.iter().zip(&before.threads).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect(),
            seconds: self.seconds - before.seconds,
            total_s: self.total_s,
        }
    }
}

/// Lines of intervals and reports of checkpoints; yields what the checkpoints have reported. A line has the calls since
/// the line or the checkpoint before, over the time since the line, as sysbench has it.
fn progress(out: &mut String, settings: &Settings, run: &Measured<'_>) -> Result<Part, std::fmt::Error> {
    let percentile = settings.percentile;
    let (mut all, mut reported, mut line) = (Part::default(), Part::default(), Part::default());
    let mut line_from = Nanos::ZERO;
    for (nr, interval) in run.intervals.iter().enumerate() {
        let second = (interval.end.0 + 500_000_000) / 1_000_000_000;
        all.add(run, nr, interval);
        line.add(run, nr, interval);
        if settings.checkpoints.contains(&second) && matches!(run.origin, Origin::Live(_)) {
            all.total_s = interval.end.as_secs_f64();
            all.seconds = interval.end.saturating_sub(run.job.warmup).as_secs_f64();
            writeln!(out, "[ {second}s ] Checkpoint report:")?;
            if reported.threads.is_empty() {
                reported.threads.resize(run.threads.len(), (0.0, 0.0));
            }
            totals(out, &all.without(&reported), settings)?;
            reported = all.clone();
            line = Part::default();
        }
        if settings.report_interval == 0 || !second.is_multiple_of(settings.report_interval) {
            continue;
        }
        let seconds = interval.end.saturating_sub(line_from).as_secs_f64();
        let Counts { read_bytes, written_bytes, syncs, .. } = line.counts;
        writeln!(
            out,
            "[ {:.0}s ] reads: {:.2} MiB/s writes: {:.2} MiB/s fsyncs: {:.2}/s latency (ms,{percentile}%): {:.3}",
            interval.end.as_secs_f64(),
            per_second(read_bytes as f64 / MIB, seconds),
            per_second(written_bytes as f64 / MIB, seconds),
            per_second(syncs as f64, seconds),
            at_percentile(&line.latency, percentile)
        )?;
        (line, line_from) = (Part::default(), interval.end);
    }
    Ok(reported)
}

fn histogram(out: &mut String, latency: &Histogram) -> std::fmt::Result {
    writeln!(out, "Latency histogram (values are in milliseconds)")?;
    writeln!(out, "       value  ------------- distribution ------------- count")?;
    let buckets: Vec<(u64, u64)> = latency.buckets().map(|(low, width, n)| (low + width / 2, n)).collect();
    let largest = buckets.iter().map(|(_, n)| *n).max().unwrap_or(0).max(1);
    for (value_ns, n) in buckets {
        let stars = ((n * 40 + largest / 2) / largest) as usize;
        writeln!(out, "{:12.3} |{:<40} {n}", value_ns as f64 / 1e6, "*".repeat(stars))?;
    }
    writeln!(out, " ")
}

fn totals(out: &mut String, part: &Part, settings: &Settings) -> std::fmt::Result {
    let seconds = part.seconds;
    let Counts { reads, writes, read_bytes, written_bytes, .. } = part.counts;
    let [reads, writes, syncs] = [reads, writes, part.syncs].map(|n| per_second(n as f64, seconds));
    let [read, written] = [read_bytes, written_bytes].map(|n| per_second(n as f64, seconds));
    writeln!(out)?;
    if settings.style_1_1 {
        writeln!(out, "Throughput:")?;
        writeln!(out, "         read:  IOPS={reads:.2} {:.2} MiB/s ({:.2} MB/s)", read / MIB, read / 1e6)?;
        writeln!(out, "         write: IOPS={writes:.2} {:.2} MiB/s ({:.2} MB/s)", written / MIB, written / 1e6)?;
        writeln!(out, "         fsync: IOPS={syncs:.2}")?;
    } else {
        writeln!(out, "File operations:")?;
        writeln!(out, "    reads/s:                      {reads:.2}")?;
        writeln!(out, "    writes/s:                     {writes:.2}")?;
        writeln!(out, "    fsyncs/s:                     {syncs:.2}")?;
        writeln!(out, "\nThroughput:")?;
        writeln!(out, "    read, MiB/s:                  {:.2}", read / MIB)?;
        writeln!(out, "    written, MiB/s:               {:.2}", written / MIB)?;
        writeln!(out, "\nGeneral statistics:")?;
        writeln!(out, "    total time:                          {:.4}s", part.total_s)?;
        writeln!(out, "    total number of events:              {}", part.events)?;
    }
    latency(out, settings, &part.latency)?;
    // The 1.1 series no longer says how evenly the threads were served.
    if settings.style_1_1 {
        return writeln!(out);
    }
    let fairness = Fairness::of(part);
    writeln!(out, "\nThreads fairness:")?;
    writeln!(out, "    events (avg/stddev):           {:.4}/{:.2}", fairness.events.0, fairness.events.1)?;
    writeln!(out, "    execution time (avg/stddev):   {:.4}/{:.2}\n", fairness.time_s.0, fairness.time_s.1)
}

/// The block of latencies. The 1.1 series ends its numbers two columns earlier.
fn latency(out: &mut String, settings: &Settings, latency: &Histogram) -> std::fmt::Result {
    let end = if settings.style_1_1 { 51 } else { 53 };
    let line = |out: &mut String, name: &str, ns: f64| {
        let value = format!("{:10.2}", ns / 1e6);
        writeln!(out, "{name}{value:>width$}", width = end - name.len())
    };
    writeln!(out, "\nLatency (ms):")?;
    line(out, "         min:", figure::smallest(latency) as f64)?;
    line(out, "         avg:", figure::mean(latency))?;
    line(out, "         max:", figure::largest(latency) as f64)?;
    if settings.percentile > 0 {
        let name = format!("        {:3}th percentile:", settings.percentile);
        line(out, &name, 1e6 * at_percentile(latency, settings.percentile))?;
    } else {
        writeln!(out, "         percentile stats:               disabled")?;
    }
    line(out, "         sum:", latency.sum() as f64)
}

/// Mean and standard deviation over threads.
struct Fairness {
    events: (f64, f64),
    time_s: (f64, f64),
}

impl Fairness {
    fn of(part: &Part) -> Fairness {
        let (events, times): (Vec<f64>, Vec<f64>) = part.threads.iter().copied().unzip();
        Fairness { events: mean_and_deviation(&events), time_s: mean_and_deviation(&times) }
    }
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

fn counts(run: &Measured<'_>, counts: &Counts) -> Value {
    json!({
        "reads": counts.reads,
        "writes": counts.writes,
        "fsyncs": counts.syncs,
        "events": run.events(counts),
        "read_bytes": counts.read_bytes,
        "written_bytes": counts.written_bytes,
    })
}

/// The JSON report (`iowhy.sysbench/1`).
pub fn json(run: &Measured<'_>, settings: &Settings, warnings: &Problems) -> Value {
    let seconds = run.seconds();
    let latency = run.latency;
    let fairness = Fairness::of(&Part::whole(run));
    let c = &run.counts;
    let mut start = Nanos::ZERO;
    let intervals: Vec<Value> = run
        .intervals
        .iter()
        .map(|interval| {
            let length = interval.end.saturating_sub(start);
            start = interval.end;
            json!({
                "end_s": interval.end.as_secs_f64(),
                "length_s": length.as_secs_f64(),
                "counts": counts(run, &interval.counts),
                "latency_percentile_ms": figure::finite(at_percentile(&interval.latency, settings.percentile)),
            })
        })
        .collect();
    let simulated = match run.origin {
        Origin::Simulated(plan, outcome) => Some((plan, outcome)),
        Origin::Live(_) => None,
    };
    let live = match run.origin {
        Origin::Simulated(..) => None,
        Origin::Live(live) => Some(live),
    };
    let mut report = json!({
        "schema": "iowhy.sysbench/1",
        "where": simulated.map_or_else(|| "live".to_owned(), |(plan, _)| format!("sim:{}", plan.stack.describe())),
        "disk": simulated.map(|(plan, _)| plan.stack.device.entry.name),
        "stack": simulated.map(|(plan, _)| stack(plan)),
        "seed": run.job.seed,
        "options": options(run, settings),
        "event_hash": simulated.map(|(_, outcome)| figure::hash(outcome.event_hash)),
        "events": simulated.map(|(_, outcome)| outcome.nr_events),
        "elapsed_s": run.elapsed.as_secs_f64(),
        "cpu_s": match (simulated, live) {
            (Some((_, outcome)), _) => outcome.cpu_busy.as_secs_f64(),
            (None, live) => live.map_or(0.0, Live::cpu_s),
        },
        "counts": counts(run, c),
        "rates": {
            "reads_per_s": per_second(c.reads as f64, seconds),
            "writes_per_s": per_second(c.writes as f64, seconds),
            "fsyncs_per_s": per_second(run.syncs() as f64, seconds),
            "read_mib_per_s": per_second(c.read_bytes as f64 / MIB, seconds),
            "written_mib_per_s": per_second(c.written_bytes as f64 / MIB, seconds),
        },
        "latency": {
            "min_ms": figure::smallest(latency) as f64 / 1e6,
            "avg_ms": figure::mean(latency) / 1e6,
            "max_ms": figure::largest(latency) as f64 / 1e6,
            "percentile": settings.percentile,
            "percentile_ms": figure::finite(at_percentile(latency, settings.percentile)),
            "sum_ms": latency.sum() as f64 / 1e6,
        },
        "threads": {
            "n": run.threads.len(),
            "events_avg": fairness.events.0,
            "events_stddev": fairness.events.1,
            "time_avg_s": fairness.time_s.0,
            "time_stddev_s": fairness.time_s.1,
        },
        "intervals": intervals,
        "layers": simulated.map(|(_, outcome)| simulated_json::layers(&outcome.layers)),
        "device": simulated.map(|(_, outcome)| simulated_json::device(&outcome.device)),
        "warnings": warnings.list.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>(),
    });
    if let Some(live) = live {
        report["live"] = live.json();
    }
    report
}

/// Which model of each kind the run was made with.
fn stack(plan: &Plan) -> Value {
    let stack = &plan.stack;
    json!({
        "kernel": stack.kernel.name,
        "patches": stack.patches.iter().map(|patch| patch.name).collect::<Vec<_>>(),
        "readahead": stack.readahead.entry.name,
        "plug": stack.plug.entry.name,
        "elevator": stack.elevator.entry.name,
        "filesystem": stack.filesystem.entry.name,
        "writeback": stack.writeback.entry.name,
        "machine": stack.machine.entry.name,
        "device": stack.device.entry.name,
        "device_options": stack
            .device
            .options
            .iter()
            .map(|(spec, value)| (spec.name.to_owned(), spec.show(value).into()))
            .collect::<serde_json::Map<_, _>>(),
    })
}

/// The options as resolved, by their names of today.
fn options(run: &Measured<'_>, settings: &Settings) -> Value {
    let job = run.job;
    let fileio = run.fileio();
    json!({
        "on": settings.on,
        "disk": settings.disk,
        "dialect": if fileio.dialect == Dialect::V0_4 { "0.4" } else { "1.0" },
        "threads": fileio.threads,
        "events": fileio.max_events,
        "time": fileio.max_time.0 / 1_000_000_000,
        "warmup-time": job.warmup.0 / 1_000_000_000,
        "rate": fileio.rate,
        "report-interval": settings.report_interval,
        "report-checkpoints": settings.checkpoints,
        "validate": settings.validate,
        "percentile": settings.percentile,
        "file-num": fileio.nr_files,
        "file-block-size": fileio.block_bytes,
        "file-total-size": fileio.total_bytes,
        "file-test-mode": mode_name(fileio.mode),
        "file-io-mode": match settings.io_mode {
            IoMode::Sync => "sync",
            IoMode::Async => "async",
            IoMode::Mmap => "mmap",
        },
        "file-async-backlog": fileio.in_flight,
        "file-extra-flags": settings.extra_flags,
        "file-fsync-freq": fileio.fsync_freq,
        "file-fsync-all": fileio.fsync_all,
        "file-fsync-end": fileio.fsync_end,
        "file-fsync-mode": if fileio.fsync_op == Op::Fdatasync { "fdatasync" } else { "fsync" },
        "file-merged-requests": fileio.merged_requests,
        "file-rw-ratio": fileio.rw_ratio_milli as f64 / 1000.0,
        "positions": match fileio.positions {
            PositionSource::GlibcUnseeded => "glibc random(), unseeded".to_owned(),
            PositionSource::Seeded(seed) => format!("seed {seed}"),
        },
        "cache": match (&run.origin, job.cache) {
            (Origin::Live(live), _) => on_kernel::cache_name(live.plan.cache).to_owned(),
            (_, CacheStart::Cold) => "cold".to_owned(),
            (_, CacheStart::Tail { bytes }) => format!("tail:{bytes}"),
        },
        "mapping-cached": job.mapping_cached,
        "own-descriptors": fileio.own_descriptors,
        "linux-threads": fileio.linux_threads,
    })
}
