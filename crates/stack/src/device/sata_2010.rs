//! A 500 GB SATA drive of 2009-10: 7200 rpm, write cache of 32 commands, 31 queued commands.
//!
//! The algorithm is that of `disk.rs` with the cache of `write_slots.rs`. Each command costs 45 us that overlap with
//! others, 60 us of firmware that do not, and 16 us in which 4 KB cross the cable and the firmware waits. The cache
//! takes 32 commands of any stream, and the arm goes round the streams. With 4 KB writers, one after another or all at
//! once, the slots are what two and four of them share; the firmware stays with a write until there is a slot for it,
//! so that two commands at once are as good as many. The disk of the report with aio-stress is `sas_2010.rs`, or this
//! one with `rpm=10000 seek_avg_us=4700 write_cache=off`.
//!
//! Source: docs/studies/incident-2010-2018.md, a study of the two reports of 2010 (RHEL 5.5, dd with O_DIRECT) which
//! found cache, latencies and media rate by simulation; a class of drives for the rest (8.5-9 ms), no data sheet
//! consulted. Known deviations: no particular drive and no zones; a lone stream of 4 KB writes reaches 17 MB/s, where
//! the report has 23 (48 slots: 23).

use super::disk::{Disk, disk_options};
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, Origin};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "sata-2010",
    summary: "500 GB SATA drive of 2009-10, write cache of 32 commands, 31 queued commands",
    origin: &[Origin {
        kernels: "2009 .. 2010",
        file: "none: a study of two reports of 2010, and guesses for 500 GB 7200 rpm drives",
        function: "none",
        notes: "A class of drives, not one; no data sheet was consulted.",
    }],
    options: OPTIONS,
    conformance: "the tests of disk.rs; closed loops of 1, 2 and 4 writers against the table of the study",
    build: |options, rng| Box::new(Disk::new(options, rng)),
};

/// The tunables, those of every `disk.rs` drive.
pub(super) const OPTIONS: &[OptionSpec; 31] = disk_options! {
    queue_depth: 31, "NCQ as libata uses it";
    age_cap_passes: 16, "assumed";
    nr_sectors: 976_773_168, "IDEMA formula for 500 GB";
    rpm: 7200, "the class of drives";
    random_phase: false, "choice of the model";
    seek_track_us: 800, "guess for the class, no document consulted";
    seek_track_sectors: 4000, "assumed, about three tracks";
    seek_min_us: 900, "guess for the class, no document consulted";
    seek_avg_us: 8500, "the study of 2010";
    write_settle_us: 700, "the study of 2010";
    media_rate_kb_s: 80_000, "the study of 2010, inferred: 70 to 90 MB/s change its ratios little";
    inner_rate_kb_s: 80_000, "the study of 2010 had no zones; the class has 95-125 outside, 50-60 MB/s inside";
    bus_rate_kb_s: 250_000, "the study of 2010; SATA 3 Gb/s less protocol";
    read_overhead_us: 0, "inside tlat_us and tfw_us";
    cached_overhead_us: 0, "inside tlat_us and tfw_us";
    write_overhead_us: 0, "inside tlat_us and tfw_us";
    lookahead_kb: 512, "assumed";
    history_kb: 2048, "assumed, as for the drive of 2014";
    read_segments: 16, "assumed";
    lookahead_interrupted: 1, "assumed for drives with large buffers";
    lookahead_during_decode: false, "assumed";
    write_cache: true, "factory setting";
    write_cache_kb: 8192, "assumed, half of the 16 MB buffer";
    write_cache_extents: 64, "assumed, 32 to 64 are typical; without effect while slots count";
    destage_order: 2, "the study of 2010, inferred";
    destage_idle_ms: 0, "the study of 2010: dirty data is written at once";
    write_cache_slots: 32, "the study of 2010, inferred from one row (two writers before the update)";
    coalesce: false, "the study of 2010, inferred";
    tlat_us: 45, "the study of 2010, inferred: with tfw_us one constant, 175 us for each 4 KB of one dd";
    tfw_us: 60, "the study of 2010, inferred, as tlat_us";
    tsw_us: 0, "choice of the model; 60 to 110 us in the other reading of the same report";
};
