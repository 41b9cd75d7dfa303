//! fio's terse format: a line of fields for each job, with semicolons between.
//!
//! ```text
//! version 2     without fio's version and disks; with trims
//! version 3     the usual one: reads and writes, then the job's, the first disk's, the description
//! version 4     with trims
//! version 5     with samples of bandwidth, and I/Os a second, in each direction
//! ```
//! Times are in microseconds. Source: fio's documentation, and the output of fio 3.33.

use std::fmt::Write;

use super::json::VERSION;
use super::result::{Direction, Entry, Results, Times, percent};

/// Versions that can be written, and the usual one.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 2..=5;
pub const USUAL: u8 = 3;

/// Percentiles of a direction: those that a job does not have are `0%=0`.
const PERCENTILES: usize = 20;

/// The lines of all jobs.
pub fn lines(results: &Results<'_>, version: u8) -> String {
    results.entries.iter().map(|entry| line(results, entry, version) + "\n").collect()
}

/// Least, largest, mean and deviation, us.
fn times(out: &mut String, of: &Times) {
    let [mean, deviation] = [of.mean(), of.deviation()].map(|ns| ns / 1000.0);
    let _ = write!(out, ";{};{};{mean:.6};{deviation:.6}", of.min() / 1000, of.max() / 1000);
}

fn direction(out: &mut String, results: &Results<'_>, entry: &Entry<'_>, number: Option<usize>, version: u8) {
    let none = Direction::default();
    let of = number.map_or(&none, |number| &entry.directions[number]);
    let kib = of.bandwidth_bytes() / 1024;
    let _ = write!(out, ";{};{kib};{};{}", of.bytes / 1024, of.calls_a_second() as u64, of.runtime_ms);
    times(out, &of.slat);
    times(out, &of.clat);
    let list = &entry.job.reporting.percentiles;
    // Of the whole latency, if those are asked for.
    let reporting = &entry.job.reporting;
    let shown = reporting.clat || reporting.lat;
    let times_shown = if reporting.lat { &of.lat } else { &of.clat };
    let found = if shown { times_shown.percentiles(list) } else { Vec::new() };
    for nr in 0..PERCENTILES {
        // Without values they have their names only.
        let empty = || list.get(nr).filter(|_| shown).map(|wanted| (*wanted, 0));
        let _ = match found.get(nr).copied().or_else(empty) {
            Some((wanted, ns)) => write!(out, ";{}.{:06}%={}", wanted / 1_000_000, wanted % 1_000_000, ns / 1000),
            None => write!(out, ";0%=0"),
        };
    }
    times(out, &of.lat);
    let (samples, iops) = (&of.bandwidth, &of.iops);
    let share = number.map_or(0.0, |number| results.share_pct(entry, number));
    let _ = write!(out, ";{};{};{share:.6}%;{:.6};{:.6}", samples.min, samples.max, samples.mean, samples.deviation);
    if version >= 5 {
        let _ = write!(
            out,
            ";{};{};{};{:.6};{:.6};{}",
            samples.count, iops.min, iops.max, iops.mean, iops.deviation, iops.count
        );
    }
}

fn line(results: &Results<'_>, entry: &Entry<'_>, version: u8) -> String {
    let mut out = match version {
        2 => format!("2;{}", entry.job.name),
        _ => format!("{version};{VERSION};{}", entry.job.name),
    };
    let _ = write!(out, ";{};{}", entry.group, entry.error);
    direction(&mut out, results, entry, Some(0), version);
    direction(&mut out, results, entry, Some(1).filter(|_| !entry.mixed()), version);
    if version != 3 {
        direction(&mut out, results, entry, Some(2).filter(|_| !entry.mixed()), version);
    }
    let usage = &entry.usage;
    for time in [usage.user, usage.system] {
        let share = time.as_secs_f64() * 1e5 / entry.job_runtime_ms.max(1) as f64;
        let _ = write!(out, ";{share:.6}%");
    }
    let switches = usage.voluntary + usage.involuntary;
    let _ = write!(out, ";{switches};{};{}", usage.major_faults, usage.minor_faults);
    for count in entry.depths {
        let _ = write!(out, ";{:.1}%", percent(count, entry.with_depths()));
    }
    // What takes less than 2 us is in the first class of microseconds.
    let first: u64 = entry.classes[..=10].iter().sum();
    for count in [first].iter().chain(&entry.classes[11..]) {
        let _ = write!(out, ";{:.2}%", percent(*count, entry.ios()));
    }
    for disk in results.disks.iter().filter(|_| version > 2) {
        let ([reads, writes], [read_merges, write_merges]) = (disk.ios, disk.merges);
        let [read_ms, write_ms] = disk.ticks_ms;
        let _ = write!(
            out,
            ";{};{reads};{writes};{read_merges};{write_merges};{read_ms};{write_ms};{};{:.2}%",
            disk.name, disk.in_queue_ms, disk.util_pct
        );
    }
    if let Some(text) = &entry.job.description {
        // A line of its own in the oldest version.
        let _ = write!(out, "{};{text}", if version == 2 { "\n" } else { "" });
    }
    out
}
