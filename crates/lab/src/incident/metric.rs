//! Metrics of a run.

use iowhy_stack::outcome::{Outcome, ThreadTotals};

use iowhy_stats::{Better, figure};
use iowhy_text::diagnose::Problem;
use iowhy_trace::iostat::{DiskStats, Sample, monitor_value};

/// A figure of a run.
#[derive(Debug)]
pub struct Metric {
    /// Its name in scenarios.
    pub name: &'static str,
    pub unit: &'static str,
    /// Which direction is better; sizes and the like have none, and are taken as better when larger.
    pub better: Better,
    pub summary: &'static str,
    /// Takes it from a run.
    pub of: fn(&Outcome) -> f64,
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    summary: &'static str,
    of: fn(&Outcome) -> f64,
) -> Metric {
    Metric { name, unit, better, summary, of }
}

use Better::{Higher, Lower};

impl Metric {
    /// A change from `good` to `bad` is for the worse; a size has no better or worse.
    pub fn is_worse(&self, good: f64, bad: f64) -> bool {
        match self.better {
            _ if matches!(self.unit, "sectors" | "requests") => true,
            Better::Lower => bad > good,
            Better::Higher => bad < good,
        }
    }
}

/// Every metric. The `iostat_` ones are over the whole run, in the units of the old layouts, under the names of
/// mmtests' monitor.
pub const METRICS: &[Metric] = &[
    metric("elapsed_s", "s", Lower, "from the first call to the end of the last", |o| o.elapsed.as_secs_f64()),
    metric(
        "process_mean_s",
        "s",
        Lower,
        "mean over the threads of the time from their first call to the end of their last",
        process_mean_s,
    ),
    metric("read_mb_s", "MB/s", Higher, "bytes read, of 10^6", |o| per_s(o, o.counts.read_bytes as f64 / 1e6)),
    metric("write_mb_s", "MB/s", Higher, "bytes written, of 10^6", |o| per_s(o, o.counts.written_bytes as f64 / 1e6)),
    metric("read_mib_s", "MiB/s", Higher, "bytes read, of 2^20", |o| per_s(o, o.counts.read_bytes as f64 / MIB)),
    metric("write_mib_s", "MiB/s", Higher, "bytes written, of 2^20", |o| per_s(o, o.counts.written_bytes as f64 / MIB)),
    metric("read_k_s", "KiB/s", Higher, "KiB read", |o| per_s(o, o.counts.read_bytes as f64 / 1024.0)),
    metric("write_k_s", "KiB/s", Higher, "KiB written", |o| per_s(o, o.counts.written_bytes as f64 / 1024.0)),
    metric("reads_per_s", "1/s", Higher, "read calls", |o| per_s(o, o.counts.reads as f64)),
    metric(
        "counted_write_mb_s",
        "MB/s",
        Higher,
        "bytes of 10^6 written after the warm-up, over the time since then",
        |o| {
            let seconds = o.end.saturating_sub(o.counted_from).as_secs_f64();
            if seconds > 0.0 { o.counts.written_bytes as f64 / 1e6 / seconds } else { 0.0 }
        },
    ),
    metric(
        "sum_of_write_mb_s",
        "MB/s",
        Higher,
        "sum over the threads of each one's written bytes, over its own time",
        |o| {
            let rate = |thread: &ThreadTotals| {
                let seconds = thread.end.saturating_sub(thread.start.max(o.counted_from)).as_secs_f64();
                if seconds > 0.0 { thread.counts.written_bytes as f64 / 1e6 / seconds } else { 0.0 }
            };
            o.threads.iter().map(rate).sum()
        },
    ),
    metric("calls_per_s", "1/s", Higher, "calls", |o| per_s(o, o.counts.total() as f64)),
    metric("handles_for_a_commit", "handles", Higher, "handles of the journal for a commit", |o| {
        figure::share(o.handles, o.layers.commits)
    }),
    metric("mean_latency_us", "us", Lower, "mean time of a call", |o| figure::mean(&o.latency) / 1e3),
    metric("cpu_s", "s", Lower, "time the CPUs worked", |o| o.cpu_busy.as_secs_f64()),
    metric("read_request_sectors", "sectors", Higher, "mean size of a read command", |o| {
        figure::share(o.layers.reads.sectors, o.layers.reads.completed)
    }),
    metric("write_request_sectors", "sectors", Higher, "mean size of a write command", |o| {
        figure::share(o.layers.writes.sectors, o.layers.writes.completed)
    }),
    metric("iostat_avgqusz", "requests", Lower, "requests in the queue and at the device", |o| iostat(o, "avgqusz")),
    metric("iostat_avgrqsz", "sectors", Higher, "mean size of a command", |o| iostat(o, "avgrqsz")),
    metric("iostat_await", "ms", Lower, "mean time of a request", |o| iostat(o, "await")),
    metric("iostat_r_await", "ms", Lower, "mean time of a read request", |o| iostat(o, "r_await")),
    metric("iostat_w_await", "ms", Lower, "mean time of a write request", |o| iostat(o, "w_await")),
    metric("iostat_svctm", "ms", Lower, "busy time for each command", |o| iostat(o, "svctm")),
    metric("iostat_rrqm", "1/s", Higher, "reads merged", |o| iostat(o, "rrqm")),
    metric("iostat_wrqm", "1/s", Higher, "writes merged", |o| iostat(o, "wrqm")),
];

/// Change of one row against another: not taken from a run but from two rows.
pub const CHANGE_PCT: &Metric =
    &metric("change_pct", "%", Higher, "change against another row, in percent of it", |_| 0.0);

const MIB: f64 = 1_048_576.0;

fn per_s(outcome: &Outcome, n: f64) -> f64 {
    let seconds = outcome.elapsed.as_secs_f64();
    if seconds > 0.0 { n / seconds } else { 0.0 }
}

fn process_mean_s(outcome: &Outcome) -> f64 {
    super::mean(outcome.threads.iter().map(|thread| thread.elapsed().as_secs_f64()))
}

fn iostat(outcome: &Outcome, name: &str) -> f64 {
    let layers = &outcome.layers;
    let sample = Sample { counted: DiskStats::of_layers(layers), elapsed_ms: layers.end.0 / 1_000_000 };
    monitor_value(name, &sample).unwrap_or(0.0)
}

/// The metric called so.
///
/// # Errors
/// If there is none; the problem has the likely names.
pub fn find(name: &str) -> Result<&'static Metric, Problem> {
    METRICS.iter().find(|metric| metric.name == name).ok_or_else(|| {
        Problem::error(format!("unknown metric `{name}`")).near(name, METRICS.iter().map(|metric| metric.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_trace::iostat::MONITOR;

    #[test]
    fn every_name_is_there_once_and_every_monitor_row_has_its_metric() {
        for metric in METRICS {
            assert_eq!(METRICS.iter().filter(|other| other.name == metric.name).count(), 1, "{}", metric.name);
        }
        for (name, _) in MONITOR {
            assert!(find(&format!("iostat_{name}")).is_ok(), "{name}");
        }
        assert_eq!(find("elapsed").expect_err("unknown").nearest[0], "elapsed_s");
    }
}
