//! A 10 000 rpm server drive of 2009-10 with its write cache off: 4.7 ms, 31 queued commands.
//!
//! The algorithm is that of `disk.rs`. Without a write cache a lone writer that waits for each record misses the next
//! one's place and gets one record a revolution: 64 KB in 6 ms and the time of the record, 9 to 10 MiB/s. Two writers
//! close together, served in turn, get up to two: the second record is written in the same revolution if seek and
//! angle permit.
//!
//! Source: docs/studies/incident-2010-2018.md, a study of a report of 2010 (aio-stress on RHEL 5.5): 9.86 MB/s of a
//! lone stream points at 10 000 rpm, a cache that is off and records of 64 KB. The report names no drive: rpm, cache
//! and rates are inferred. Known deviations: no particular drive; no zones; depth and firmware times as `sata_2010.rs`.

use super::disk::{Disk, disk_options};
use super::sata_2010;
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, Origin, replaced};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "sas-2010",
    summary: "147 GB drive of 2009-10 at 10 000 rpm, write cache off, 31 queued commands",
    origin: &[Origin {
        kernels: "2009 .. 2010",
        file: "none: a study of the aio-stress report of 2010",
        function: "none",
        notes: "A class of drives, not one; rpm and write cache are inferred from the published rates.",
    }],
    options: OPTIONS,
    conformance: "closed loops of 64 KB writers against the records a revolution of the study",
    build: |options, rng| Box::new(Disk::new(options, rng)),
};

/// Those of the SATA drive with other mechanics.
const OPTIONS: &[OptionSpec] = &replaced(
    *sata_2010::OPTIONS,
    disk_options! {
        nr_sectors: 287_140_277, "usual size of 147 GB drives, not looked up";
        rpm: 10_000, "inferred from one record of 64 KB a revolution at 9.86 MB/s";
        seek_track_us: 400, "guess for the class, no document consulted";
        seek_track_sectors: 3000, "assumed, about three tracks";
        seek_min_us: 500, "guess for the class, no document consulted";
        seek_avg_us: 4700, "the study of 2010, usual for the class";
        write_cache: false, "inferred: with the cache on the rates are five times higher";
    },
);
