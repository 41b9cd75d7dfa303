//! Metrics: names, units and directions, and samples of them.
//!
//! A metric's name has its unit (`p99_ns`, `read_mib_s`), so that unit and direction are known for files of any origin.

use crate::Better;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    pub name: String,
    /// Its unit; empty if unknown.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
}

/// Ends of names, their unit and direction. The first that fits counts.
const ENDS: &[(&str, &str, Better)] = &[
    ("read_mb_s", "MB/s", Better::Higher),
    ("write_mb_s", "MB/s", Better::Higher),
    ("_mb_s", "MB/s", Better::Higher),
    ("_mib_s", "MiB/s", Better::Higher),
    ("_kib_s", "KiB/s", Better::Higher),
    ("_k_s", "KiB/s", Better::Higher),
    ("B/s", "B/s", Better::Higher),
    ("bw_bytes", "B/s", Better::Higher),
    (".bw", "KiB/s", Better::Higher),
    ("iops", "1/s", Better::Higher),
    ("IOPS", "1/s", Better::Higher),
    ("tps", "1/s", Better::Higher),
    ("_per_s", "1/s", Better::Higher),
    ("/op", "", Better::Lower),
    ("_ns", "ns", Better::Lower),
    ("_us", "us", Better::Lower),
    ("_ms", "ms", Better::Lower),
    ("_s", "s", Better::Lower),
    ("_pct", "%", Better::Lower),
];

impl Metric {
    /// The metric of a name, with unit and direction as far as the name has them. Less is better where it does not.
    pub fn of(name: &str) -> Metric {
        let end = ENDS.iter().find(|(end, ..)| name.ends_with(end));
        let (unit, better) = end.map_or(("", Better::Lower), |(_, unit, better)| (*unit, *better));
        Metric { name: name.to_owned(), unit: unit.to_owned(), better }
    }
}

/// Samples of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Of what.
    pub metric: Metric,
    /// Finite values in the order in which they were taken.
    pub values: Vec<f64>,
    /// For each value the run it belongs to, an index into [`Group::runs`]; empty if nothing is known of runs, and each
    /// value is one.
    pub runs: Vec<usize>,
    /// Values that were not finite, and were left out.
    pub left_out: usize,
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// A label, a file.
    pub label: String,
    /// Its runs, in the order in which they were made. Empty for files of numbers.
    pub runs: Vec<RunFacts>,
    /// Its metrics.
    pub columns: Vec<Column>,
}

/// Properties of a run that a comparison needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// Its id in the store.
    pub run_id: String,
    /// When it began, ns since 1970; 0 if unknown.
    pub started_ns: u64,
    /// The block of the design it was made in: runs of one block were made one after the other, in random order.
    pub block: Option<u64>,
    pub seed: u64,
    /// In the simulator: it has no noise but that of its seed.
    pub simulated: bool,
    /// A hash of what identifies the machine (kernel, CPU, disk), or of the simulated stack's machine.
    pub machine: String,
    /// The job as typed.
    pub job: String,
    pub warnings: Vec<String>,
    /// Options of its jobs, where a file lists them.
    pub options: Vec<(String, String)>,
    pub origin: Origin,
}

/// How a run is made again; empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub command: String,
    pub kernel: String,
    pub disk: String,
}

impl Group {
    /// The samples of a metric.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.metric.name == name)
    }
}

/// Metrics that are compared unless others are asked for, best first: those a job of any kind has. All others say the
/// same in other units, or are parts of these.
pub const HEADLINES: &[&str] = &["elapsed_s", "iops", "read_mib_s", "write_mib_s", "p50_ns", "p99_ns", "tps"];

/// Whether a metric is a headline, of the whole or, behind a slash, of a part.
pub fn headline(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| HEADLINES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_units_and_directions() {
        for (name, unit, better) in [
            ("elapsed_s", "s", Better::Lower),
            ("read_iops", "1/s", Better::Higher),
            ("job.read_p99_ns", "ns", Better::Lower),
            ("read_mib_s", "MiB/s", Better::Higher),
            ("syncs_per_s", "1/s", Better::Higher),
            ("sec/op", "", Better::Lower),
            ("B/s", "B/s", Better::Higher),
            ("whatever", "", Better::Lower),
        ] {
            let metric = Metric::of(name);
            assert_eq!((metric.unit.as_str(), metric.better), (unit, better), "{name}");
        }
    }
}
