//! A 40 GB IDE drive of 2001-04 (IBM IC35L040): 7200 rpm, 2 MB buffer, one command at a time.
//!
//! The algorithm is that of `disk.rs`. Source: IBM Deskstar 120GXP specification, as quoted by search results, for
//! seek and overheads; the rest was assumed and tried by replaying published tests of 2004. The shortest seek was
//! chosen within the data sheet's 1.1-1.2 ms with row 2.4.25 (the calibration row) in view. Known deviations: one
//! media rate over the whole disk, as in that replay (set `inner_rate_kb_s` for zones); sequential segments are all of
//! one size.

use super::disk::{Disk, disk_options};
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, Origin};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "ide-2004",
    summary: "40 GB IDE drive of 2001-04 (IBM IC35L040), one command at a time",
    origin: &[Origin {
        kernels: "IBM IC35L040, 2001 .. 2004",
        file: "Deskstar 60GXP/120GXP specification",
        function: "performance characteristics, data buffer",
        notes: "Quoted second-hand. Look-ahead and destage rules were assumed and tried against published rows.",
    }],
    options: OPTIONS,
    conformance: "the tests of disk.rs hold it to its own description; the 2004 scenario holds it to published rows",
    build: |options, rng| Box::new(Disk::new(options, rng)),
};

/// The tunables, those of every `disk.rs` drive.
pub(super) const OPTIONS: &[OptionSpec; 31] = disk_options! {
    queue_depth: 1, "IDE without tagged queueing";
    age_cap_passes: 16, "assumed";
    nr_sectors: 80_418_240, "usual LBA count of 40 GB (41.17 x 10^9 bytes) drives, not looked up";
    rpm: 7200, "data sheet";
    random_phase: false, "choice of the model";
    seek_track_us: 800, "assumed in the 2004 replay";
    seek_track_sectors: 1200, "assumed in the 2004 replay: two tracks";
    seek_min_us: 1200, "data sheet: 1.1 to 1.2 ms; the upper end agrees best with the calibration row, 2.4.25";
    seek_avg_us: 8500, "data sheet";
    write_settle_us: 500, "assumed in the 2004 replay (data sheet: writes 1.0 ms longer)";
    media_rate_kb_s: 38_000, "assumed in the 2004 replay, near the outside of the AVER (40 MB/s)";
    inner_rate_kb_s: 38_000, "the 2004 replay had no zones; data sheet: 40/20 MB/s (AVER), 48/23 (AVVN)";
    bus_rate_kb_s: 66_000, "assumed in the 2004 replay (Ultra DMA 66)";
    read_overhead_us: 300, "data sheet";
    cached_overhead_us: 100, "data sheet";
    write_overhead_us: 100, "assumed in the 2004 replay (data sheet: 15 us)";
    lookahead_kb: 128, "assumed; see the ablations of the 2004 replay";
    history_kb: 128, "assumed, half of a 256 KB segment";
    read_segments: 4, "assumed; 2 MB buffer, 1 MB of it for reads";
    lookahead_interrupted: 0, "assumed for 2001-04 IDE; keep makes deadline 10 % faster in the 2004 replay";
    lookahead_during_decode: false, "assumed; see the ablations of the 2004 replay";
    write_cache: true, "factory setting";
    write_cache_kb: 1024, "assumed, half of the 2 MB buffer";
    write_cache_extents: 64, "assumed";
    destage_order: 0, "assumed; see the ablations of the 2004 replay";
    destage_idle_ms: 2, "assumed; see the ablations of the 2004 replay";
    write_cache_slots: 0, "choice of the model: bytes and extents count";
    coalesce: false, "choice of the model, without effect at 0 slots";
    tlat_us: 0, "choice of the model: the overheads above are all there is";
    tfw_us: 0, "choice of the model, as tlat_us";
    tsw_us: 0, "choice of the model, as tlat_us";
};
