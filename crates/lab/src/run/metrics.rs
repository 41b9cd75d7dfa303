//! Everything that is measured of a run, as flat numbers with their unit in the name.
//!
//! Metrics of a line of the report have its name and a point in front. Rates are over the time in which their threads
//! worked, without the warm-up.

use iowhy_stack::histogram::Histogram;
use iowhy_stack::job::{Job, Workload};
use iowhy_stack::outcome::{Counts, JobTotals, ThreadTotals};
use iowhy_stack::units::Nanos;
use iowhy_stats::figure;

use super::Shape;

pub(super) const MIB: f64 = 1_048_576.0;

/// Names and values of the metrics of a run.
pub type Metrics = Vec<(String, f64)>;

pub(super) fn per_second(n: f64, time: Nanos) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { n / seconds } else { 0.0 }
}

/// Rates of some calls made in some time.
fn rates(metrics: &mut Metrics, prefix: &str, counts: &Counts, time: Nanos) {
    let mut put = |name: &str, n: f64| metrics.push((format!("{prefix}{name}"), per_second(n, time)));
    put("read_mb_s", counts.read_bytes as f64 / 1e6);
    put("read_mib_s", counts.read_bytes as f64 / MIB);
    put("write_mb_s", counts.written_bytes as f64 / 1e6);
    put("write_mib_s", counts.written_bytes as f64 / MIB);
    put("read_iops", counts.reads as f64);
    put("write_iops", counts.writes as f64);
    put("syncs_per_s", counts.syncs as f64);
    put("iops", (counts.reads + counts.writes) as f64);
}

fn latencies(metrics: &mut Metrics, prefix: &str, histogram: &Histogram) {
    if histogram.count() == 0 {
        return;
    }
    let mut put = |name: &str, n: f64| metrics.push((format!("{prefix}{name}_ns"), n));
    put("mean", figure::mean(histogram));
    put("p50", figure::quantile(histogram, 50) as f64);
    put("p99", figure::quantile(histogram, 99) as f64);
    put("max", figure::largest(histogram) as f64);
}

/// The time in which a line was measured.
pub(super) fn measured(totals: &JobTotals, warmup: Nanos) -> Nanos {
    totals.end.saturating_sub(totals.start.max(warmup))
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    if n == 0 { 0.0 } else { values.sum::<f64>() / n as f64 }
}

/// Totals that a run of a job has at any place.
pub(super) struct Totals<'a> {
    pub(super) job: &'a Job,
    pub(super) elapsed: Nanos,
    /// When the last call had ended, by the clock of the threads. A real run's clock starts before its first call.
    pub(super) end: Nanos,
    pub(super) counts: &'a Counts,
    pub(super) latency: &'a Histogram,
    pub(super) threads: Vec<ThreadTotals>,
    pub(super) lines: &'a [JobTotals],
    pub(super) cpu_s: f64,
}

/// A job's measurements.
pub(super) fn of_job(shape: &Shape, totals: &Totals<'_>) -> Metrics {
    let warmup = totals.job.warmup;
    let mut metrics = vec![("elapsed_s".to_owned(), totals.elapsed.as_secs_f64())];
    let elapsed = |thread: &ThreadTotals| thread.elapsed().as_secs_f64();
    metrics.push(("mean_process_elapsed_s".to_owned(), mean(totals.threads.iter().map(elapsed))));
    let first = totals.threads.iter().map(|thread| thread.start).min().unwrap_or_default();
    rates(&mut metrics, "", totals.counts, totals.end.saturating_sub(first.max(warmup)));
    let sum = |bytes: fn(&ThreadTotals) -> u64| {
        let of = |thread: &ThreadTotals| {
            per_second(bytes(thread) as f64 / 1e6, thread.end.saturating_sub(thread.start.max(warmup)))
        };
        totals.threads.iter().map(of).sum::<f64>()
    };
    metrics.push(("sum_of_read_mb_s".to_owned(), sum(|thread| thread.counts.read_bytes)));
    metrics.push(("sum_of_write_mb_s".to_owned(), sum(|thread| thread.counts.written_bytes)));
    latencies(&mut metrics, "", totals.latency);
    metrics.push(("cpu_s".to_owned(), totals.cpu_s));
    metrics.push(("system_cpu_pct".to_owned(), 100.0 * per_second(totals.cpu_s, totals.elapsed)));
    for figure in &shape.figures {
        if let Some(line) = totals.lines.get(figure.line) {
            metrics.push((figure.name.clone(), (figure.of)(line)));
        }
    }
    for (name, line) in shape.lines.iter().zip(totals.lines) {
        let time = measured(line, warmup);
        metrics.push((format!("{name}.elapsed_s"), line.end.saturating_sub(line.start).as_secs_f64()));
        rates(&mut metrics, &format!("{name}."), &line.counts, time);
        for (direction, histogram) in ["read", "write", "sync"].iter().zip(&line.latency) {
            latencies(&mut metrics, &format!("{name}.{direction}_"), histogram);
        }
    }
    metrics
}

/// Names of the metrics that every job has.
pub fn names() -> Vec<String> {
    let mut latency = Histogram::default();
    latency.record(0);
    let totals = Totals {
        job: &Job::new(Workload::Threads { files: Vec::new(), threads: Vec::new() }, 1),
        elapsed: Nanos::ZERO,
        end: Nanos::ZERO,
        counts: &Counts::default(),
        latency: &latency,
        threads: Vec::new(),
        lines: &[],
        cpu_s: 0.0,
    };
    of_job(&Shape::of::<&str>([]), &totals).into_iter().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_leave_the_warm_up_out() {
        let counts = Counts { reads: 40, read_bytes: 40_000_000, ..Counts::default() };
        // Warm-up, start of the only thread, both in seconds of a run that ends after 5 s; what it reads a second.
        for (warmup, start, iops) in [(0, 0, 8.0), (1, 0, 10.0), (1, 3, 20.0), (3, 1, 20.0)] {
            let (start, end, warmup) = (Nanos::from_secs(start), Nanos::from_secs(5), Nanos::from_secs(warmup));
            let line = JobTotals { counts, start, end, ..JobTotals::default() };
            let totals = Totals {
                job: &Job { warmup, ..Job::new(Workload::Threads { files: Vec::new(), threads: Vec::new() }, 1) },
                elapsed: end,
                end,
                counts: &counts,
                latency: &Histogram::default(),
                threads: vec![ThreadTotals { counts, start, end, ..ThreadTotals::default() }],
                lines: &[line],
                cpu_s: 1.0,
            };
            let metrics = of_job(&Shape::of(["j"]), &totals);
            let of = |name: &str| metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
            for name in ["read_iops", "iops", "read_mb_s", "sum_of_read_mb_s", "j.read_iops", "j.read_mb_s"] {
                assert_eq!(of(name), Some(iops), "{name}, warm-up {warmup:?}, start {start:?}");
            }
            assert_eq!(of("system_cpu_pct"), Some(20.0));
        }
    }
}
