//! Lines of the report as text: rates and latencies of each, for any kind of place.

use std::fmt::Write;

use iowhy_stack::histogram::Histogram;
use iowhy_stack::outcome::JobTotals;
use iowhy_stack::units::Nanos;
use iowhy_stats::figure;
use iowhy_text as text;

use super::Shape;
use super::metrics::{MIB, Totals, mean, measured, per_second};

/// Nanoseconds with a unit that suits them.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} us", ns / 1e3),
    }
}

/// A job's measurements.
pub(super) fn of_job(out: &mut String, shape: &Shape, totals: &Totals<'_>) -> std::fmt::Result {
    let specs = totals.job.workload.threads();
    for (nr, (name, of_line)) in shape.lines.iter().zip(totals.lines).enumerate() {
        let threads = specs.iter().filter(|thread| thread.job as usize == nr).count();
        let elapsed = of_line.end.saturating_sub(of_line.start).as_secs_f64();
        writeln!(out, "{name}: {}, {elapsed:.3} s", text::count(threads as u64, "thread", "threads"))?;
        line(out, of_line, totals.job.warmup)?;
    }
    for figure in &shape.figures {
        if let Some(of_line) = totals.lines.get(figure.line) {
            writeln!(out, "{:<24}{:.1}", figure.name, (figure.of)(of_line))?;
        }
    }
    if totals.threads.len() > 1 {
        let elapsed = mean(totals.threads.iter().map(|thread| thread.elapsed().as_secs_f64()));
        writeln!(out, "all: {:.3} s, mean of the threads {elapsed:.3} s", totals.elapsed.as_secs_f64())?;
    }
    Ok(())
}

fn line(out: &mut String, totals: &JobTotals, warmup: Nanos) -> std::fmt::Result {
    let time_of = measured(totals, warmup);
    let counts = &totals.counts;
    let parts = [("read", counts.reads, counts.read_bytes), ("write", counts.writes, counts.written_bytes)];
    for ((name, calls, bytes), histogram) in parts.iter().zip(&totals.latency) {
        if *calls == 0 {
            continue;
        }
        let rate = per_second(*bytes as f64, time_of);
        let calls = per_second(*calls as f64, time_of);
        writeln!(out, "  {name:<6}{:.2} MB/s ({:.2} MiB/s), {calls:.1} IOPS", rate / 1e6, rate / MIB)?;
        latency(out, histogram)?;
    }
    if counts.syncs > 0 {
        writeln!(out, "  sync  {:.1} a second", per_second(counts.syncs as f64, time_of))?;
        latency(out, &totals.latency[2])?;
    }
    Ok(())
}

fn latency(out: &mut String, histogram: &Histogram) -> std::fmt::Result {
    writeln!(
        out,
        "        latency mean {}, p50 {}, p99 {}, max {}",
        time(figure::mean(histogram)),
        time(figure::quantile(histogram, 50) as f64),
        time(figure::quantile(histogram, 99) as f64),
        time(figure::largest(histogram) as f64)
    )
}
