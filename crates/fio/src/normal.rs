//! fio's normal report.
//!
//! Lines and fields are those of fio 3.33, so that what reads fio's report reads this one. Different from fio: the
//! version names both; blank lines stand where fio's do without a progress line; failed calls are reported on standard
//! error with place and reason, and the report has their number in `err=`.

use std::fmt::Write;

use iowhy_live::plan::Measure;

use super::FioJob;
use super::json::VERSION;
use super::live;
use super::options::Engine;
use super::result::{CLASSES, Direction, Entry, Results, Samples, Times, date, percent};

/// fio's lines before the jobs start.
pub fn banner(jobs: &[FioJob]) -> String {
    let mut out = String::new();
    for job in jobs {
        let sizes = |blocks: &super::job::Blocks| format!("{}-{}", binary(blocks.min, "B"), binary(blocks.max, "B"));
        let _ = writeln!(
            out,
            "{}: (g={}): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={}, iodepth={}",
            job.name,
            job.group,
            job.mode.name(),
            sizes(&job.blocks.read),
            sizes(&job.blocks.write),
            sizes(&job.blocks.trim),
            job.engine.name(),
            job.iodepth
        );
        if job.numjobs > 1 {
            out.push_str("...\n");
        }
    }
    let nr_threads: u32 = jobs.iter().map(|job| job.numjobs).sum();
    let _ = writeln!(out, "{VERSION}\nStarting {nr_threads} thread{}\n", if nr_threads == 1 { "" } else { "s" });
    out
}

pub fn report(results: &Results<'_>) -> String {
    let mut out = String::new();
    for entry in &results.entries {
        job(&mut out, results, entry);
    }
    for group in results.groups() {
        out.push_str(&status(results, group));
    }
    if !results.disks.is_empty() {
        out.push_str("\nDisk stats (read/write):\n");
        for disk in &results.disks {
            let _ = writeln!(
                out,
                "  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:.2}%",
                disk.name,
                disk.ios[0],
                disk.ios[1],
                disk.merges[0],
                disk.merges[1],
                disk.ticks_ms[0],
                disk.ticks_ms[1],
                disk.in_queue_ms,
                disk.util_pct
            );
        }
    }
    out
}

/// A number with at most `digits` characters before its unit: whole as long as it fits, else in a larger unit, with a
/// point if there is room for it.
fn short(number: f64, digits: usize, binary: bool, unit: &str) -> String {
    const UNITS: [(&str, &str); 6] = [("", ""), ("k", "Ki"), ("M", "Mi"), ("G", "Gi"), ("T", "Ti"), ("P", "Pi")];
    let step = if binary { 1024.0 } else { 1000.0 };
    let mut scaled = number.max(0.0);
    let mut power = 0;
    let whole = |value: f64| format!("{:.0}", value.floor()).len();
    while whole(scaled) > digits && power + 1 < UNITS.len() {
        scaled /= step;
        power += 1;
    }
    let prefix = if binary { UNITS[power].1 } else { UNITS[power].0 };
    let decimals = digits.saturating_sub(whole(scaled) + 1);
    if power == 0 || decimals == 0 {
        format!("{:.0}{prefix}{unit}", scaled.round())
    } else {
        format!("{scaled:.decimals$}{prefix}{unit}")
    }
}

/// Bytes a second in both manners.
fn speed(bytes: u64) -> String {
    format!("{} ({})", binary(bytes, "B/s"), short(bytes as f64, 4, false, "B/s"))
}

/// Bytes in powers of 1024.
fn binary(bytes: u64, unit: &str) -> String {
    short(bytes as f64, 4, true, unit)
}

/// The unit that fits latencies: nanoseconds in it, and its name.
fn unit_of(min: u64, max: u64, deviation: f64) -> (u64, &'static str) {
    if min > 2_000_000 && max > 99_999_999 && deviation > 1e6 {
        (1_000_000, "msec")
    } else if min > 2_000 && max > 99_999 && deviation > 1e3 {
        (1_000, "usec")
    } else {
        (1, "nsec")
    }
}

fn latency(out: &mut String, name: &str, times: &Times) {
    if times.count() == 0 {
        return;
    }
    let (unit, unit_name) = unit_of(times.min(), times.max(), times.deviation());
    let scaled = |value: f64| value / unit as f64;
    let _ = writeln!(
        out,
        "    {name} ({unit_name}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        short((times.min() / unit) as f64, 6, false, ""),
        short((times.max() / unit) as f64, 6, false, ""),
        scaled(times.mean()),
        scaled(times.deviation())
    );
}

fn percentiles(out: &mut String, name: &str, times: &Times, list: &[u64]) {
    let found = times.percentiles(list);
    let (Some((_, least)), Some((_, most))) = (found.first(), found.last()) else { return };
    let (steps, unit) = match (*least, *most) {
        (least, most) if least > 2_000_000 && most > 99_999_999 => (2, "msec"),
        (least, most) if least > 2_000 && most > 99_999 => (1, "usec"),
        _ => (0, "nsec"),
    };
    // As many digits behind the point as the longest percentile needs, two at least.
    let digits = found
        .iter()
        .map(|(wanted, _)| format!("{:06}", wanted % 1_000_000).trim_end_matches('0').len())
        .fold(2, usize::max);
    let per_line = (80 - 7) / (digits + 14);
    let _ = writeln!(out, "    {name} percentiles ({unit}):");
    for line in found.chunks(per_line) {
        let fields: Vec<String> = line
            .iter()
            .map(|(wanted, at)| {
                let value = (0..steps).fold(*at, |value, _| value.div_ceil(1000));
                format!(" {:width$.digits$}th=[{value:5}]", *wanted as f64 / 1e6, width = digits + 3)
            })
            .collect();
        let more = if line.as_ptr_range().end == found.as_ptr_range().end { "" } else { "," };
        let _ = writeln!(out, "     |{}{more}", fields.join(","));
    }
}

fn job(out: &mut String, results: &Results<'_>, entry: &Entry<'_>) {
    let reporting = &entry.job.reporting;
    let ended = results.started + std::time::Duration::from_nanos(entry.end.0);
    let error = match entry.error {
        0 => "err= 0".to_owned(),
        number => {
            format!("err={number:2} (file:{}, error={})", entry.nr_errors, std::io::Error::from_raw_os_error(number))
        }
    };
    let _ = writeln!(
        out,
        "{}: (groupid={}, jobs={}): {error}: pid={}: {}",
        entry.job.name,
        entry.group,
        entry.threads,
        entry.tid,
        date(ended)
    );
    if let Some(text) = &entry.job.description {
        let _ = writeln!(out, "  Description  : [{text}]");
    }
    let all: u64 = entry.ios();
    for (number, (name, direction)) in entry.named_directions().into_iter().enumerate() {
        if direction.ios > 0 {
            one_direction(out, results, entry, name, number, direction);
        }
    }
    if let Some(all) = entry.together().filter(|all| all.ios > 0) {
        one_direction(out, results, entry, "mixed", 3, &all);
    }
    for (unit, first) in [("nsec", 0), ("usec", 10), ("msec", 20)] {
        classes(out, entry, unit, first, all);
    }
    if entry.sync.count() > 0 {
        out.push_str("  fsync/fdatasync/sync_file_range:\n");
        latency(out, "sync", &entry.sync);
        if reporting.clat {
            percentiles(out, "sync", &entry.sync, &reporting.percentiles);
        }
    }
    let share = |time: std::time::Duration| match entry.job_runtime_ms {
        0 => 0.0,
        ms => time.as_secs_f64() * 1e5 / ms as f64,
    };
    let usage = &entry.usage;
    let _ = writeln!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        share(usage.user),
        share(usage.system),
        usage.voluntary + usage.involuntary,
        usage.major_faults,
        usage.minor_faults
    );
    row(out, "  IO depths    : ", ["1", "2", "4", "8", "16", "32", ">=64"], &entry.depths, entry.with_depths());
    let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
    row(out, "     submit    : ", batches, &entry.submitted, entry.submitted.iter().sum());
    row(out, "     complete  : ", batches, &entry.completed, entry.completed.iter().sum());
    let [read, write, trim] = &entry.directions;
    let _ = writeln!(
        out,
        "     issued rwts: total={},{},{},{} short={},{},0,0 dropped=0,0,0,0",
        read.ios, write.ios, trim.ios, entry.syncs, read.short, write.short
    );
    let target = live::target(entry.job);
    let _ = writeln!(
        out,
        "     latency   : target={}, window={}, percentile={:.2}%, depth={}",
        target.target.0,
        target.window.0 / 1000,
        target.percent,
        entry.depth
    );
    if let (Some(terms), Some(found)) = (live::steady(entry.job), entry.steady) {
        let mean = |values: &[u64]| values.iter().sum::<u64>() / u64::from(terms.looks.max(1));
        let _ = writeln!(
            out,
            "  steadystate  : attained={}, bw={}, iops={}, {}{}={:.3}{}",
            if found.attained { "yes" } else { "no" },
            speed(mean(&found.bytes)),
            short(mean(&found.calls) as f64, 4, false, ""),
            if terms.measure == Measure::Calls { "iops" } else { "bw" },
            if terms.slope { " slope" } else { " mean dev" },
            found.criterion,
            if terms.percent { "%" } else { "" }
        );
    }
}

fn one_direction(
    out: &mut String,
    results: &Results<'_>,
    entry: &Entry<'_>,
    name: &str,
    number: usize,
    direction: &Direction,
) {
    let reporting = &entry.job.reporting;
    let zones = if name == "write" { "; 0 zone resets" } else { "" };
    let _ = writeln!(
        out,
        "  {name}: IOPS={}, BW={}({}/{}msec){zones}",
        short(direction.calls_a_second().floor(), 4, false, ""),
        speed(direction.bandwidth_bytes()),
        binary(direction.bytes, "B"),
        direction.runtime_ms
    );
    latency(out, "slat", &direction.slat);
    latency(out, "clat", &direction.clat);
    latency(out, " lat", &direction.lat);
    for (wanted, name, times) in [
        (reporting.slat, "slat", &direction.slat),
        (reporting.clat, "clat", &direction.clat),
        (reporting.lat, "lat", &direction.lat),
    ] {
        if wanted {
            percentiles(out, name, times, &reporting.percentiles);
        }
    }
    let Samples { min, max, mean, deviation, count } = direction.bandwidth;
    if count == 0 {
        return;
    }
    let share = results.share_pct(entry, number);
    let (scale, unit) = if mean > 1024.0 * 1024.0 { (1024, "MiB") } else { (1, "KiB") };
    let scaled = |value: f64| value / scale as f64;
    let _ = writeln!(
        out,
        "   bw ({unit:>5}/s): min={:5}, max={:5}, per={share:.2}%, avg={:5.2}, stdev={:5.2}, samples={count}",
        min / scale,
        max / scale,
        scaled(mean),
        scaled(deviation)
    );
    let iops = &direction.iops;
    let _ = writeln!(
        out,
        "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
        iops.min, iops.max, iops.mean, iops.deviation, iops.count
    );
}

/// Shares in percent. A value above 0 is not shown as nothing.
fn classes(out: &mut String, entry: &Entry<'_>, unit: &str, first: usize, all: u64) {
    let upper = |class: usize| match CLASSES.get(class) {
        Some(end) => end.to_string(),
        None if class == 10 => "2000".to_owned(),
        None => ">=2000".to_owned(),
    };
    let last = if first == 20 { 12 } else { 10 };
    let shown: Vec<String> = (0..last)
        .filter(|class| entry.classes[first + class] > 0)
        .map(|class| format!("{}={:.2}%", upper(class), percent(entry.classes[first + class], all).max(0.01)))
        .collect();
    for line in shown.chunks(5) {
        let _ = writeln!(out, "  lat ({unit})   : {}", line.join(", "));
    }
}

fn row(out: &mut String, title: &str, names: [&str; 7], counts: &[u64; 7], of: u64) {
    let shown = |(name, count): (&str, &u64)| {
        let share = percent(*count, of);
        format!("{name}={:.1}%", if *count > 0 { share.max(0.1) } else { share })
    };
    let fields: Vec<String> = names.into_iter().zip(counts).map(shown).collect();
    let _ = writeln!(out, "{title}{}", fields.join(", "));
}

/// The lines of a group.
fn status(results: &Results<'_>, group: u32) -> String {
    let mut out = format!("\nRun status group {group} (all jobs):\n");
    let mixed = results.entries.iter().any(|entry| entry.group == group && entry.mixed());
    for (numbers, name) in
        [(0..1, if mixed { "MIXED" } else { "READ" }), (1..2, "WRITE"), (2..3, "TRIM"), (0..3, "MIXED")]
    {
        let directions: Vec<&Direction> = (results.entries.iter())
            .filter(|entry| entry.group == group && (numbers.len() == 1 || entry.job.reporting.unified == "both"))
            .flat_map(|entry| &entry.directions[numbers.clone()])
            .filter(|direction| direction.ios > 0)
            .collect();
        let bytes: u64 = directions.iter().map(|direction| direction.bytes).sum();
        let runtimes = || directions.iter().map(|direction| direction.runtime_ms);
        let speeds = || directions.iter().map(|direction| direction.bandwidth_bytes());
        let (Some(shortest), Some(longest)) = (runtimes().min(), runtimes().max()) else { continue };
        let (Some(slowest), Some(fastest)) = (speeds().min(), speeds().max()) else { continue };
        let whole = (bytes * 1000).checked_div(longest).unwrap_or(0);
        let _ = writeln!(
            out,
            "{name:>7}: bw={}, {}-{} ({}-{}), io={} ({}), run={shortest}-{longest}msec",
            speed(whole),
            binary(slowest, "B/s"),
            binary(fastest, "B/s"),
            short(slowest as f64, 4, false, "B/s"),
            short(fastest as f64, 4, false, "B/s"),
            binary(bytes, "B"),
            short(bytes as f64, 4, false, "B")
        );
    }
    out
}

/// The engines, for `--enghelp`.
pub fn engines() -> String {
    let mut out = String::from("Available IO engines:\n");
    for (name, _) in Engine::ALL {
        let _ = writeln!(out, "\t{name}");
    }
    out
}

#[cfg(test)]
mod tests;
