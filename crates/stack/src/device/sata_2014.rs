//! A 1 TB SATA drive of 2014: 7200 rpm, 64 MB buffer, 31 queued commands.
//!
//! The algorithm is that of `disk.rs`. Source: calibration guesses for the class (140 MB/s outside, 70 inside, 8.5
//! ms), no data sheet consulted; look-ahead and segments as assumed in a replay of multi-reader tests of 2018. Known
//! deviations: no particular drive; the firmware's own adaptive look-ahead is not published.

use super::disk::{Disk, disk_options};
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, Origin};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "sata-2014",
    summary: "1 TB SATA drive of 2014, 31 queued commands",
    origin: &[Origin {
        kernels: "2014",
        file: "none: calibration guesses for 1 TB 7200 rpm drives",
        function: "none",
        notes: "A class of drives, not one; no data sheet was consulted.",
    }],
    options: OPTIONS,
    conformance: "the tests of disk.rs",
    build: |options, rng| Box::new(Disk::new(options, rng)),
};

const OPTIONS: &[OptionSpec] = disk_options! {
    queue_depth: 31, "NCQ as libata uses it";
    age_cap_passes: 16, "assumed";
    nr_sectors: 1_953_525_168, "IDEMA formula for 1 TB";
    rpm: 7200, "guess for the class, no document consulted";
    random_phase: false, "choice of the model";
    seek_track_us: 800, "guess for the class, no document consulted";
    seek_track_sectors: 4000, "assumed, two tracks";
    seek_min_us: 900, "guess for the class, no document consulted";
    seek_avg_us: 8500, "guess for the class, no document consulted";
    write_settle_us: 700, "guess for the class, no document consulted";
    media_rate_kb_s: 140_000, "guess for the class, no document consulted";
    inner_rate_kb_s: 70_000, "guess for the class, no document consulted";
    bus_rate_kb_s: 550_000, "SATA 6 Gb/s less protocol";
    read_overhead_us: 50, "assumed, 0.05 ms";
    cached_overhead_us: 50, "assumed, 0.05 ms";
    write_overhead_us: 50, "assumed, 0.05 ms";
    lookahead_kb: 1024, "assumed";
    history_kb: 2048, "assumed";
    read_segments: 16, "assumed";
    lookahead_interrupted: 1, "assumed for drives with large buffers";
    lookahead_during_decode: false, "assumed";
    write_cache: true, "factory setting";
    write_cache_kb: 32768, "assumed, half of the 64 MB buffer";
    write_cache_extents: 64, "assumed, 32 to 64 are typical";
    destage_order: 0, "assumed";
    destage_idle_ms: 2, "assumed";
};
