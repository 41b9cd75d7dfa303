//! A 1 TB SATA drive of 2014: 7200 rpm, 64 MB buffer, 31 queued commands.
//!
//! The algorithm is that of `disk.rs`. Source: docs/studies/incident-2010-2018.md, a study of the multi-reader report
//! of 2018 for the rate outside (150 MB/s, from one reader's time), look-ahead (1 MB), history (2 MB) and segments
//! (16); guesses for the class for the rest, no data sheet consulted. Known deviations: no particular drive; the
//! firmware's own adaptive look-ahead is not published. For one rate all over the disk set `media_rate_kb_s` and
//! `inner_rate_kb_s` to it.

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
    media_rate_kb_s: 152_400, "a study of a report of 2018: 150 MB/s at the outside, here the first of 16 zones";
    inner_rate_kb_s: 75_000, "assumed, half; the study has 103 MB/s further in, which is a place at two thirds";
    bus_rate_kb_s: 550_000, "SATA 6 Gb/s less protocol";
    read_overhead_us: 50, "assumed, 0.05 ms";
    cached_overhead_us: 50, "assumed, 0.05 ms";
    write_overhead_us: 50, "assumed, 0.05 ms";
    lookahead_kb: 1024, "the study of 2018, assumed there";
    history_kb: 2048, "the study of 2018, assumed there";
    read_segments: 16, "the study of 2018, assumed there";
    lookahead_interrupted: 1, "assumed for drives with large buffers";
    lookahead_during_decode: false, "assumed";
    write_cache: true, "factory setting";
    write_cache_kb: 32768, "assumed, half of the 64 MB buffer";
    write_cache_extents: 64, "assumed, 32 to 64 are typical";
    destage_order: 0, "assumed";
    destage_idle_ms: 2, "assumed";
    write_cache_slots: 0, "assumed: a cache of this size counts extents";
    coalesce: false, "choice of the model, without effect at 0 slots";
    tlat_us: 0, "choice of the model: the overheads above are all there is";
    tfw_us: 0, "choice of the model, as tlat_us";
    tsw_us: 0, "choice of the model, as tlat_us";
};
