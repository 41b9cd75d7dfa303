//! The options of the device `drive`, and these options as numbers.
//!
//! Shared with `drive.rs`, which has the rules; itself in no table. Source: DiskSim 4.0 reference manual (2008), which
//! describes each parameter; the defaults are made up.

use crate::origin::{OptionSpec, Options};
use crate::surfaces::{Layout, SPARES_PER, Surfaces, Zone};

macro_rules! ns {
    ($name:literal, $default:expr, $help:literal) => {
        OptionSpec::number($name, $default, (0, 1_000_000_000), concat!($help, ". Source: made up; the file has it."))
    };
}

macro_rules! number {
    ($name:literal, $default:expr, $range:expr, $help:literal) => {
        OptionSpec::number($name, $default, $range, concat!($help, ". Source: made up; the file has it."))
    };
}

macro_rules! switch {
    ($name:literal, $default:expr, $help:literal) => {
        OptionSpec::switch($name, $default, concat!($help, ". Source: made up; the file has it."))
    };
}

macro_rules! choice {
    ($name:literal, $choices:expr, $default:expr, $help:literal) => {
        OptionSpec::choice($name, $choices, $default, concat!($help, ". Source: made up; the file has it."))
    };
}

/// The tunables.
pub(super) const OPTIONS: &[OptionSpec] = &[
    number!("queue_depth", 1, (1, 1024), "Commands accepted at once"),
    choice!(
        "scheduling",
        &["fcfs", "sstf", "sptf"],
        0,
        "Next command: in order, nearest cylinder, shortest positioning time"
    ),
    number!("nr_sectors", 81_600_000, (1, u32::MAX as i64), "Capacity used, at most that of the zones"),
    number!("rpm", 10_000, (60, 100_000), "Revolutions a minute"),
    number!("heads", 12, (1, 1_000), "Surfaces with data"),
    choice!(
        "head_order",
        &["forward", "back-in-zone", "back"],
        0,
        "Heads on every second cylinder of a zone, or on odd cylinders, in reverse order"
    ),
    choice!("spares_per", SPARES_PER, 0, "Unit that the `spares` of a zone are kept for"),
    number!("range_cylinders", 1, (1, 1_000_000), "Cylinders of a range, for `spares_per` = `range`"),
    ns!("head_switch_ns", 500_000, "Change of the head"),
    OptionSpec::number(
        "write_settle_ns",
        400_000,
        (-1_000_000_000, 1_000_000_000),
        "More for a seek or head switch of a write; can be negative. Source: made up; the file has it.",
    ),
    ns!("write_seek_least_ns", 0, "A write's seek takes at least this"),
    ns!("bus_read_ns", 12_800, "A sector on the bus, of a read"),
    ns!("bus_write_ns", 12_800, "A sector on the bus, of a write"),
    switch!("hold_bus_read", false, "A read that waits for sectors keeps the bus"),
    switch!("never_disconnect", false, "The bus is kept from the command to its end"),
    ns!("request_overhead_ns", 0, "Before any command"),
    ns!("read_hit_after_read_ns", 100_000, "Command overhead of a read from a segment, after a read"),
    ns!("read_hit_after_write_ns", 100_000, "The same after a write"),
    ns!("read_miss_after_read_ns", 300_000, "Command overhead of a read from the medium, after a read"),
    ns!("read_miss_after_write_ns", 300_000, "The same after a write"),
    ns!("write_hit_after_read_ns", 200_000, "Command overhead of a fast write, after a read"),
    ns!("write_hit_after_write_ns", 200_000, "The same after a write"),
    ns!("write_miss_after_read_ns", 300_000, "Command overhead of a write that waits for the medium, after a read"),
    ns!("write_miss_after_write_ns", 300_000, "The same after a write"),
    ns!("data_preparation_ns", 0, "Before data cross the bus"),
    ns!("read_completion_ns", 0, "After the data of a read"),
    ns!("write_completion_ns", 0, "After a write"),
    number!("segments", 8, (1, 4_096), "Segments of the buffer"),
    number!("segment_sectors", 1_024, (1, 16_777_216), "Sectors of a segment"),
    switch!("write_segment", false, "Writes use one segment and reads the others"),
    switch!("cache", true, "Sectors stay in their segment when the command is done"),
    switch!("hits_on_writes", true, "Written sectors stay as well"),
    switch!("almost_hits", false, "A read that begins where reading ahead has arrived is a hit"),
    switch!("partial_hit_at_once", true, "A read that is partly in a segment begins on the bus at once"),
    number!("read_water_permille", 0, (0, 1_000), "Share of a read, or segment, in the buffer before it takes the bus"),
    number!(
        "write_water_permille",
        0,
        (0, 1_000),
        "Share of a write, or segment, left in a full segment when more is fetched"
    ),
    switch!("water_of_request", true, "These shares are of the request, else of the segment"),
    choice!(
        "read_ahead",
        &["none", "track", "cylinder", "segment", "track-twice"],
        3,
        "Reading goes on to the end of the track, of the cylinder, up to `read_ahead_sectors`, or as in DEC's drives \
         to the end of this or the next track"
    ),
    number!("read_ahead_sectors", 0, (0, 16_777_216), "Read beyond the request; 0: a segment"),
    number!("read_ahead_least_sectors", 0, (0, 16_777_216), "Read beyond the request before another may interrupt"),
    switch!("read_ahead_on_hit", false, "A hit starts reading ahead again"),
    switch!("free_reads", false, "Sectors of the track before the request are kept if the head meets them first"),
    switch!("stop_in_sector", false, "Reading ahead stops at once, else after the sector"),
    switch!("fast_writes", true, "A write is done when its data are in the buffer"),
    switch!("combine_writes", true, "A write that continues the one on its way joins its segment"),
    switch!("zero_latency_reads", false, "A read begins with any of its sectors"),
    switch!("zero_latency_writes", false, "A write begins with any of its sectors"),
];

/// The tables of the drive without a file.
pub(super) fn made_up() -> Surfaces {
    let zone = |first_cylinder, sectors_per_track| Zone {
        first_cylinder,
        last_cylinder: first_cylinder + 7_999,
        sectors_per_track,
        track_skew_sectors: sectors_per_track / 8,
        cylinder_skew_sectors: sectors_per_track / 5,
        ..Zone::default()
    };
    let seek = vec![(1, 600_000), (100, 1_500_000), (2_000, 3_500_000), (15_999, 9_000_000)];
    Surfaces { seek, zones: vec![zone(0, 500), zone(8_000, 350)] }
}

/// The layout that `options` describe.
pub fn layout(options: &Options) -> Layout {
    Layout {
        heads: options.unsigned("heads") as u32,
        spares_per: options.unsigned("spares_per") as usize,
        range_cylinders: options.unsigned("range_cylinders") as u32,
        head_order: options.unsigned("head_order") as u32,
        head_switch: options.unsigned("head_switch_ns"),
        write_settle: options.get("write_settle_ns"),
    }
}

/// Options as numbers.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) queue_depth: u32,
    pub(super) scheduling: i64,
    pub(super) nr_sectors: u64,
    pub(super) revolution: u64,
    pub(super) write_seek_least: u64,
    pub(super) bus: [u64; 2],
    pub(super) hold_bus_read: bool,
    pub(super) never_disconnect: bool,
    pub(super) request_overhead: u64,
    /// By: write; hit; after a write.
    pub(super) overhead: [[[u64; 2]; 2]; 2],
    pub(super) data_preparation: u64,
    pub(super) completion: [u64; 2],
    pub(super) segment_sectors: u64,
    pub(super) write_segment: bool,
    pub(super) cache: bool,
    pub(super) hits_on_writes: bool,
    pub(super) almost_hits: bool,
    pub(super) partial_hit_at_once: bool,
    pub(super) water_permille: [u64; 2],
    pub(super) water_of_request: bool,
    pub(super) read_ahead: i64,
    pub(super) read_ahead_sectors: u64,
    pub(super) read_ahead_least: u64,
    pub(super) read_ahead_on_hit: bool,
    pub(super) free_reads: bool,
    pub(super) stop_in_sector: bool,
    pub(super) fast_writes: bool,
    pub(super) combine_writes: bool,
    pub(super) zero_latency: [bool; 2],
}

/// Values of `read_ahead`.
pub(super) const NONE: i64 = 0;
pub(super) const TRACK: i64 = 1;
pub(super) const CYLINDER: i64 = 2;
pub(super) const TRACK_TWICE: i64 = 4;

impl Rules {
    /// The numbers of a drive with `nr_sectors` on its surfaces.
    pub(super) fn new(options: &Options, nr_sectors: u64) -> Rules {
        let number = |name: &str| options.unsigned(name);
        let pair = |name: &str| [number(&format!("{name}_after_read_ns")), number(&format!("{name}_after_write_ns"))];
        Rules {
            queue_depth: number("queue_depth") as u32,
            scheduling: options.get("scheduling"),
            nr_sectors: number("nr_sectors").min(nr_sectors),
            revolution: 60_000_000_000 / number("rpm"),
            write_seek_least: number("write_seek_least_ns"),
            bus: [number("bus_read_ns"), number("bus_write_ns")],
            hold_bus_read: options.is_on("hold_bus_read"),
            never_disconnect: options.is_on("never_disconnect"),
            request_overhead: number("request_overhead_ns"),
            overhead: [[pair("read_miss"), pair("read_hit")], [pair("write_miss"), pair("write_hit")]],
            data_preparation: number("data_preparation_ns"),
            completion: [number("read_completion_ns"), number("write_completion_ns")],
            segment_sectors: number("segment_sectors"),
            write_segment: options.is_on("write_segment") && number("segments") > 1,
            cache: options.is_on("cache"),
            hits_on_writes: options.is_on("hits_on_writes"),
            almost_hits: options.is_on("almost_hits"),
            partial_hit_at_once: options.is_on("partial_hit_at_once"),
            water_permille: [number("read_water_permille"), number("write_water_permille")],
            water_of_request: options.is_on("water_of_request"),
            read_ahead: options.get("read_ahead"),
            read_ahead_sectors: number("read_ahead_sectors"),
            read_ahead_least: number("read_ahead_least_sectors"),
            read_ahead_on_hit: options.is_on("read_ahead_on_hit"),
            free_reads: options.is_on("free_reads"),
            stop_in_sector: options.is_on("stop_in_sector"),
            fast_writes: options.is_on("fast_writes"),
            combine_writes: options.is_on("combine_writes"),
            zero_latency: [options.is_on("zero_latency_reads"), options.is_on("zero_latency_writes")],
        }
    }

    /// Sectors of the mark of a request of `nr` sectors.
    pub(super) fn water(&self, write: bool, nr: u64) -> u64 {
        let permille = self.water_permille[usize::from(write)];
        match self.water_of_request {
            true => (nr.min(self.segment_sectors) * permille / 1_000).max(1),
            false => (self.segment_sectors * permille).div_ceil(1_000),
        }
    }
}
