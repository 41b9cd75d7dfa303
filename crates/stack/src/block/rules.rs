//! Differences between the request queues of kernels, apart from plugging: options of every kernel.
//!
//! Source: `drivers/block/ll_rw_blk.c` (2.4.27, 2.6.6, 2.6.18), `block/blk-core.c` (3.2, 4.4), `block/blk-mq.c` (6.1).

use crate::origin::{OptionSpec, Options};
use crate::units::Nanos;

/// The allocator of requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One queue under one lock, with a pool of requests for each class (until 4.20).
    Legacy,
    /// Tags of the driver and of the scheduler, software and hardware queues (blk-mq).
    Multi,
}

/// The division of a legacy queue into pools.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Classes {
    /// Reads and writes (until 2.6.2x).
    Direction,
    /// Synchronous requests (reads and writes with a waiting task) and the others.
    Sync,
}

/// How a bio that empties the drive's cache is ordered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// It is a barrier: it leaves the elevator after everything queued before it, as one command (until 2.6.36).
    Ordered,
    /// Past the elevator, in up to three steps: flush, data, flush. A task that needs order waits for it (2.6.37).
    Sequenced,
}

/// When the elevator is asked for a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Budget {
    /// As SCSI for devices of at most 32 commands, as others for the rest.
    Auto,
    /// Until the driver has no tag: one request more than fits has then left the elevator.
    Tags,
    /// Only while the device has room (SCSI).
    Device,
}

/// How hard it looks for a request that a bio could join (`queue/nomerges`; 2.6.26 and later).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Wherever there may be one (0).
    All,
    /// Plug lists, and the request that was last joined or came first; no look-up (1: `QUEUE_FLAG_NOXMERGES`).
    OneHit,
    /// Nowhere (2 since 2.6.36: `QUEUE_FLAG_NOMERGES`); plug lists heed it since about 3.13.
    Never,
}

/// The rules of one kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueueRules {
    pub kind: Kind,
    pub classes: Classes,
    /// No legacy pool hands out more than 3/2 of its size to any task (2.6.18).
    pub hard_cap: bool,
    /// Order of flushes.
    pub flushes: Flushes,
    /// The drive has a cache that loses its contents with the power; without one flushes are left out.
    pub write_cache: bool,
    /// The drive takes writes that pass its cache.
    pub fua: bool,
    /// Hardware queues that are used at most (blk-mq; a driver uses no more than there are processors); 0: all.
    pub nr_hw_queues: u32,
    /// Requests that the driver takes on each of them, for any device (blk-mq); 0: as many as the device.
    pub driver_tags: u32,
    /// When the elevator is asked (blk-mq).
    pub budget: Budget,
    /// Buffered writes are throttled when reads become slow (blk-wbt).
    pub wbt: bool,
    /// Read latency that it aims at; zero: 2 ms, or 75 ms on rotating disks.
    pub wbt_latency: Nanos,
    /// Time it watches before it decides.
    pub wbt_window: Nanos,
    /// It takes every drive for one with a volatile cache (6.1-rc1).
    pub wbt_cache_always: bool,
    /// A bio without a plug has the kernel's worker thread run the queue (until 6.10); its submitter does so since.
    pub worker_runs: bool,
    /// Requests enter the scheduler when it is asked for one (mq-deadline of a series that was dropped before 6.9).
    pub late_insertion: bool,
    /// Part of the tags that an allocation is sure to see, percent; 0: a single tag (`min_shallow_depth`).
    pub shallow_pct: u32,
    /// A device that takes bios (device mapper) has no requests at all.
    pub bio_based: bool,
    /// How hard it looks for a request that a bio could join.
    pub merging: Merging,
}

/// Key of [`Merging`]: kernels before 2.6.26 do not have it.
pub const NOMERGES: OptionSpec = OptionSpec::number(
    "nomerges",
    0,
    (0, 2),
    "1: bios join only requests in plugs and the one last joined; 2 (since 2.6.36): none (2.6.26 and later)",
);

/// Options that [`QueueRules::specs`] returns.
pub const NR_OPTIONS: usize = 17;

impl QueueRules {
    /// 2.4 and 2.6.0 .. 2.6.17.
    pub const V2_6_0: QueueRules = QueueRules {
        kind: Kind::Legacy,
        classes: Classes::Direction,
        hard_cap: false,
        flushes: Flushes::Ordered,
        write_cache: true,
        fua: false,
        nr_hw_queues: 0,
        driver_tags: 0,
        budget: Budget::Auto,
        wbt: false,
        wbt_latency: Nanos::ZERO,
        wbt_window: Nanos::from_ms(100),
        wbt_cache_always: false,
        worker_runs: false,
        late_insertion: false,
        shallow_pct: 0,
        bio_based: true,
        merging: Merging::All,
    };
    /// 2.6.18 .. 2.6.2x and RHEL 5.
    pub const V2_6_18: QueueRules = QueueRules { hard_cap: true, ..QueueRules::V2_6_0 };
    /// 2.6.37 .. 4.20 with a single queue.
    pub const V2_6_38: QueueRules =
        QueueRules { classes: Classes::Sync, flushes: Flushes::Sequenced, ..QueueRules::V2_6_18 };
    /// blk-mq of 6.11 and later: every bio has a plug.
    pub const MULTI_6_11: QueueRules = QueueRules { kind: Kind::Multi, wbt: true, ..QueueRules::V2_6_38 };
    /// blk-mq of 5.0 and later.
    pub const MULTI: QueueRules = QueueRules { worker_runs: true, ..QueueRules::MULTI_6_11 };

    /// The options of a kernel whose defaults are these rules.
    pub const fn specs(&self) -> [OptionSpec; NR_OPTIONS] {
        [
            OptionSpec::choice("queue", &["legacy", "blk-mq"], self.kind as usize, "who allocates requests"),
            OptionSpec::choice(
                "request_classes",
                &["direction", "sync"],
                self.classes as usize,
                "the division of a legacy queue into two pools",
            ),
            OptionSpec::switch("request_cap", self.hard_cap, "no pool hands out more than 3/2 of nr_requests (legacy)"),
            OptionSpec::choice(
                "flush_order",
                &["ordered", "sequenced"],
                self.flushes as usize,
                "a flush is a barrier (until 2.6.36), or passes the elevator in steps",
            ),
            OptionSpec::switch(
                "write_cache",
                self.write_cache,
                "the drive's cache is volatile: flushes are sent to it",
            ),
            OptionSpec::switch("fua", self.fua, "the drive takes writes that pass its cache (libata: off by default)"),
            OptionSpec::number(
                "nr_hw_queues",
                self.nr_hw_queues as i64,
                (0, 1024),
                "hardware queues used at most (blk-mq), each with tags of its own; 0: all the device has",
            ),
            OptionSpec::number(
                "driver_tags",
                self.driver_tags as i64,
                (0, 4096),
                "requests the driver takes on each (blk-mq); those the device has no place for wait in order of \
                 arrival; 0: as many as the device",
            ),
            OptionSpec::choice(
                "budget",
                &["auto", "tags", "device"],
                self.budget as usize,
                "when blk-mq asks the elevator: until tags run out, or while the device has room (SCSI)",
            ),
            OptionSpec::switch(
                "wbt",
                self.wbt,
                "throttle buffered writes when reads are slow (blk-mq; never with BFQ)",
            ),
            OptionSpec::number(
                "wbt_lat_us",
                (self.wbt_latency.0 / 1000) as i64,
                (0, 100_000_000),
                "read latency it aims at; 0: 2000, or 75000 on rotating disks",
            ),
            OptionSpec::number(
                "wbt_window_ms",
                (self.wbt_window.0 / 1_000_000) as i64,
                (1, 100_000),
                "time it watches before it decides",
            ),
            OptionSpec::choice(
                "wbt_cache",
                &["drive", "always"],
                self.wbt_cache_always as usize,
                "whose volatile cache keeps throttled writers asleep until none of their writes is left",
            ),
            OptionSpec::choice(
                "submit_run",
                &["submitter", "worker"],
                self.worker_runs as usize,
                "who runs the queue for a bio without a plug, if there is a scheduler (blk-mq; until 6.10 the worker)",
            ),
            OptionSpec::switch(
                "late_insertion",
                self.late_insertion,
                "requests enter the scheduler when it is asked for one (blk-mq; mq-deadline of early 2024)",
            ),
            OptionSpec::number(
                "shallow_pct",
                self.shallow_pct as i64,
                (0, 100),
                "tags an allocation is sure to see, percent; with more of them waiters are woken in batches; 0: one \
                 tag",
            ),
            OptionSpec::switch("bio_based", self.bio_based, "devices that take bios (device mapper) have no requests"),
        ]
    }

    /// The rules that a kernel's options say.
    pub fn from_options(options: &Options) -> QueueRules {
        QueueRules {
            kind: if options.get("queue") == 0 { Kind::Legacy } else { Kind::Multi },
            classes: if options.get("request_classes") == 0 { Classes::Direction } else { Classes::Sync },
            hard_cap: options.is_on("request_cap"),
            flushes: if options.get("flush_order") == 0 { Flushes::Ordered } else { Flushes::Sequenced },
            write_cache: options.is_on("write_cache"),
            fua: options.is_on("fua"),
            nr_hw_queues: options.unsigned("nr_hw_queues") as u32,
            driver_tags: options.unsigned("driver_tags") as u32,
            budget: [Budget::Auto, Budget::Tags, Budget::Device][options.unsigned("budget") as usize],
            wbt: options.is_on("wbt"),
            wbt_latency: Nanos::from_us(options.unsigned("wbt_lat_us")),
            wbt_window: Nanos::from_ms(options.unsigned("wbt_window_ms")),
            wbt_cache_always: options.get("wbt_cache") == 1,
            worker_runs: options.get("submit_run") == 1,
            late_insertion: options.is_on("late_insertion"),
            shallow_pct: options.unsigned("shallow_pct") as u32,
            bio_based: options.is_on("bio_based"),
            merging: match options.iter().find(|(spec, _)| spec.name == NOMERGES.name) {
                Some((_, 1)) => Merging::OneHit,
                Some((_, 2)) => Merging::Never,
                // Kernels without the key merge.
                _ => Merging::All,
            },
        }
    }
}
