//! A 500 GB SATA drive of 2009-10: 7200 rpm, 16 MB buffer, 31 queued commands.
//!
//! The algorithm is that of `disk.rs`. Source: calibration guesses for the class (95-125 MB/s outside, 50-60 inside,
//! 8.5-9 ms); no data sheet was consulted, and values lie in the middle of those ranges. Known deviations: no
//! particular drive; a budget of cache slots shared by streams, and firmware time that does not overlap, which the
//! reports of 2010 may depend on, are not modelled.

use super::disk::{Disk, disk_options};
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, Origin};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "sata-2010",
    summary: "500 GB SATA drive of 2009-10, 31 queued commands",
    origin: &[Origin {
        kernels: "2009 .. 2010",
        file: "none: calibration guesses for 500 GB 7200 rpm drives",
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
    nr_sectors: 976_773_168, "IDEMA formula for 500 GB";
    rpm: 7200, "guess for the class, no document consulted";
    random_phase: false, "choice of the model";
    seek_track_us: 800, "guess for the class, no document consulted";
    seek_track_sectors: 4000, "assumed, two tracks";
    seek_min_us: 900, "guess for the class, no document consulted";
    seek_avg_us: 8700, "guess for the class, no document consulted";
    write_settle_us: 700, "guess for the class, no document consulted";
    media_rate_kb_s: 110_000, "guess for the class, no document consulted";
    inner_rate_kb_s: 55_000, "guess for the class, no document consulted";
    bus_rate_kb_s: 270_000, "SATA 3 Gb/s less protocol";
    read_overhead_us: 75, "assumed, 0.05 to 0.1 ms";
    cached_overhead_us: 50, "assumed, 0.05 to 0.1 ms";
    write_overhead_us: 50, "assumed, 0.05 to 0.1 ms";
    lookahead_kb: 512, "assumed";
    history_kb: 512, "assumed";
    read_segments: 16, "assumed";
    lookahead_interrupted: 1, "assumed for drives with large buffers";
    lookahead_during_decode: false, "assumed";
    write_cache: true, "factory setting";
    write_cache_kb: 8192, "assumed, half of the 16 MB buffer";
    write_cache_extents: 64, "assumed, 32 to 64 are typical";
    destage_order: 0, "assumed";
    destage_idle_ms: 2, "assumed";
};
