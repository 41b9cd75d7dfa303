//! Named kernels and patches: nothing but a composition of policies and tunables, and the [`Stack`] a run is made on.
//!
//! A kernel names one entry of each policy table and the defaults of its queue. A patch changes some of these. Any
//! single policy of another kernel can be mixed in (`readahead=linux-2.4.25`), and every tunable is a key.

pub mod release;

use crate::block::rules::{self, QueueRules};
use crate::device::{self, DEVICES};
use crate::direct_io::{self, DIRECT_IOS};
use crate::elevator::{self, ELEVATORS};
use crate::fault::{self, FAULTS};
use crate::filesystem::{self, FILESYSTEMS};
use crate::machine::{self, MACHINES};
use crate::origin::{Entry, OptionSpec, Options, Origin, find, listed, replaced};
use crate::plug::{self, PLUGS};
use crate::readahead::{self, READAHEADS};
use crate::rng::Rng;
use crate::units::Hz;
use crate::writeback::{self, WRITEBACKS};
use release::{Levels, Near, Release, levels, series};

/// A kind of policy: how to get at what a kernel, or a stack, has of it.
#[derive(Copy, Clone, Debug)]
pub struct Kind {
    /// Name in the catalogue; the field of [`Kernel`] and [`Stack`].
    pub name: &'static str,
    /// Key `KEY=NAME` that picks another entry, and in `KEY.OPTION=VALUE` sets a tunable; [`DISK`] for the device.
    pub key: &'static str,
    /// One line for lists.
    pub title: &'static str,
    /// All entries of its table.
    pub entries: fn() -> Vec<Entry<()>>,
    /// The entry that a kernel names.
    pub of_kernel: fn(&Kernel) -> &'static str,
    /// The entry that a stack has.
    pub chosen: fn(&Stack) -> &'static str,
    /// Its tunables.
    pub options: fn(&Stack) -> &Options,
    options_mut: fn(&mut Stack) -> &mut Options,
    /// Takes the entry of this whole name, with its defaults if it is another; false if there is none.
    pick: fn(&mut Stack, &str) -> bool,
}

const READAHEAD: &str = "readahead";
const ELEVATOR: &str = "elevator";
/// Key of the device in differences. It is not a key of a kernel: `--disk` picks the device.
pub const DISK: &str = "disk";

/// Makes [`KINDS`] from the one list of them, and what has a field of each: [`Kernel`] and [`Stack`].
macro_rules! kinds {
    ($($field:ident $key:literal $build:ty, $table:expr, $title:literal;)*) => {
        /// Every kind, in the order of the lists.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: stringify!($field),
            key: $key,
            title: $title,
            entries: || listed($table),
            of_kernel: |kernel| kernel.$field,
            chosen: |stack| stack.$field.entry.name,
            options: |stack| &stack.$field.options,
            options_mut: |stack| &mut stack.$field.options,
            pick: |stack, name| stack.$field.pick($table, name),
        }),*];

        /// A kernel as a composition.
        #[derive(Copy, Clone, Debug)]
        pub struct Kernel {
            /// Name, for example `linux-2.6.6-rc3`.
            pub name: &'static str,
            /// Other names that mean the same composition.
            pub aliases: &'static [&'static str],
            /// One line for lists.
            pub summary: &'static str,
            /// Levels of stable series that it is the model of.
            pub levels: &'static [Levels],
            /// Series that it stands in for.
            pub near: &'static [Near],
            /// Sources of the composition itself.
            pub origin: &'static [Origin],
            /// Tunables of its request queue and clock.
            pub options: &'static [OptionSpec],
            /// Meanings of short elevator names in this kernel: (`cfq`, `cfq-2.6.6`).
            pub elevator_names: &'static [(&'static str, &'static str)],
            $(#[doc = concat!("The entry it has by default of: ", $title, ".")] pub $field: &'static str,)*
        }

        /// Everything between the program and the platters of a run.
        #[derive(Clone, Debug)]
        pub struct Stack {
            /// The kernel it started from.
            pub kernel: &'static Kernel,
            /// Patches applied, in order.
            pub patches: Vec<&'static Patch>,
            /// Clock and queue tunables.
            pub options: Options,
            /// Whether the user chose this elevator; otherwise it changes with the device where the kernel does so.
            elevator_chosen: bool,
            $(#[doc = concat!("Which of: ", $title, ".")] pub $field: Chosen<$build>,)*
        }

        impl Stack {
            /// `kernel` with its defaults, on the device of its time.
            pub fn new(kernel: &'static Kernel) -> Stack {
                let mut stack = Stack {
                    kernel,
                    patches: Vec::new(),
                    options: Options::defaults(kernel.options),
                    elevator_chosen: false,
                    $($field: Chosen::by_name($table, kernel.$field),)*
                };
                stack.follow_device();
                stack
            }
        }
    };
}

kinds! {
    readahead "readahead" readahead::Build, READAHEADS,
        "which pages are read before they are asked for; key `readahead=NAME`";
    fault "fault" fault::Build, FAULTS, "pages that a touch of a mapped page reads and maps; key `fault=NAME`";
    plug "plug" plug::Build, PLUGS, "how requests are held back to be merged; key `plug=NAME`";
    elevator "elevator" elevator::Build, ELEVATORS, "in which order requests reach the device; key `elevator=NAME`";
    device "disk" device::Build, DEVICES, "disks; `--disk NAME[,key=value...]`";
    direct "direct" direct_io::Build, DIRECT_IOS,
        "effect of reads and writes past the page cache on it; key `direct=NAME`";
    filesystem "filesystem" filesystem::Build, FILESYSTEMS,
        "places of blocks, and the effect of fsync; key `filesystem=NAME`";
    writeback "writeback" writeback::Build, WRITEBACKS, "when dirty pages are written; key `writeback=NAME`";
    machine "machine" machine::Build, MACHINES, "CPUs, memory and costs of code; key `machine=NAME`";
}

/// The kinds whose keys a kernel takes: all but the device.
pub fn policies() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| kind.key != DISK)
}

/// All kinds, the device last.
pub fn parts() -> impl Iterator<Item = &'static Kind> {
    policies().chain([kind(DISK)])
}

fn kind(key: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.key == key).expect("the list has it")
}

/// A change to a kernel.
#[derive(Copy, Clone, Debug)]
pub struct Patch {
    /// Name without the `+`.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Where it comes from.
    pub origin: &'static [Origin],
    /// Kernels it was made for; empty if it applies to all.
    pub kernels: &'static [&'static str],
    /// Keys it sets.
    pub sets: &'static [(&'static str, &'static str)],
}

/// Tunables that every kernel's queue has, with that kernel's defaults.
const fn queue(
    hz: i64,
    nr_requests: i64,
    max_sectors_kb: i64,
    max_segments: i64,
    rules: QueueRules,
) -> [OptionSpec; 14 + rules::NR_OPTIONS] {
    let [
        kind,
        classes,
        cap,
        flush,
        cache,
        fua,
        hw_queues,
        tags,
        budget,
        wbt,
        wbt_lat,
        wbt_window,
        wbt_cache,
        submit_run,
        late,
        shallow,
        bios,
    ] = rules.specs();
    [
        OptionSpec::number("hz", hz, (24, 10_000), "timer ticks a second (CONFIG_HZ)"),
        OptionSpec::number("read_ahead_kb", 128, (0, 1 << 20), "read-ahead limit of the device; open files copy it"),
        OptionSpec::number(
            "nr_requests",
            nr_requests,
            (0, 1 << 20),
            "requests the queue holds (each class in 2.6; 0: 128, or as the device's tags allow in blk-mq)",
        ),
        OptionSpec::number("max_sectors_kb", max_sectors_kb, (4, 1 << 20), "largest request"),
        OptionSpec::number("max_segments", max_segments, (1, 1 << 16), "most page-sized segments in a request"),
        OptionSpec::number("batch_requests", 32, (0, 1 << 16), "requests a task may take after having waited for one"),
        OptionSpec::number("batch_time_ms", 20, (0, 10_000), "for how long it may (HZ/50)"),
        OptionSpec::number(
            "max_queue_kb",
            0,
            (0, 1 << 20),
            "bytes queued at which writers wait (2.4: 4096; 0: no limit)",
        ),
        OptionSpec::number("kblockd_us", 15, (0, 100_000), "time until the kernel's worker thread runs the queue"),
        kind,
        classes,
        cap,
        flush,
        cache,
        fua,
        hw_queues,
        tags,
        budget,
        wbt,
        wbt_lat,
        wbt_window,
        wbt_cache,
        submit_run,
        late,
        shallow,
        bios,
        OptionSpec::number(
            "buffer_kb",
            0,
            (0, 4),
            "buffers of a bare device's pages, each written by a bio of its own; 0: neighbours in one bio",
        ),
        OptionSpec::choice(
            "page_wait",
            &["all", "one-by-one"],
            0,
            "who is woken when a page has been read: all who wait, or one after the other as each has had its lock \
             (read calls until 4.6)",
        ),
        RING_NOWAIT,
        io_max(0),
        rules::NOMERGES,
    ]
}

/// Which files io_uring tries without waiting; the others' calls are carried out by its worker threads.
const RING_NOWAIT: OptionSpec = ring_nowait(0);

const fn ring_nowait(default: usize) -> OptionSpec {
    OptionSpec::choice(
        "ring_nowait",
        &["regular", "marked", "polled"],
        default,
        "files io_uring tries without waiting: all regular ones (until 6.4), those that set FMODE_NOWAIT, or also \
         those whose poll says that they are ready (6.12)",
    )
}

/// Rules of a control group's limits: the place in [`crate::block::io_max::VERSIONS`].
const fn io_max(version: usize) -> OptionSpec {
    OptionSpec::choice(
        "io_max",
        &["5.10", "6.1", "6.12", "7.2"],
        version,
        "the kernel whose rules a control group's limits follow (io.max, blkio.throttle; 2.6.37 and later)",
    )
}

/// The same with these rules of limits.
const fn limited<const N: usize>(version: usize, options: [OptionSpec; N]) -> [OptionSpec; N] {
    replaced(options, &[io_max(version)])
}

/// The same since 6.5 (caec5ebe77f9).
const fn marked<const N: usize>(options: [OptionSpec; N]) -> [OptionSpec; N] {
    replaced(options, &[ring_nowait(1)])
}

/// The same since 6.12-rc3 (f7c913438533).
const fn polled<const N: usize>(options: [OptionSpec; N]) -> [OptionSpec; N] {
    replaced(options, &[ring_nowait(2)])
}

/// The same without what 2.6.26 brought.
const fn before_nomerges(options: &'static [OptionSpec]) -> &'static [OptionSpec] {
    match options {
        [older @ .., _] => older,
        [] => options,
    }
}

const QUEUE_2_4: &[OptionSpec] = before_nomerges(
    const {
        let help = "bytes queued at which writers wait";
        let max_queue = [OptionSpec::number("max_queue_kb", 4096, (0, 1 << 20), help)];
        &replaced(queue(100, 1024, 64, 128, QueueRules::V2_6_0), &max_queue)
    },
);
const QUEUE_2_6: &[OptionSpec] = before_nomerges(const { &queue(1000, 128, 128, 256, QueueRules::V2_6_0) });
const QUEUE_2_6_18: &[OptionSpec] = before_nomerges(const { &queue(1000, 128, 512, 128, QueueRules::V2_6_18) });
const QUEUE_2_6_38: &[OptionSpec] = &queue(250, 128, 512, 168, QueueRules::V2_6_38);
const QUEUE_4: &[OptionSpec] = &queue(250, 128, 1280, 168, QueueRules::V2_6_38);
const QUEUE_5: &[OptionSpec] = &queue(250, 0, 1280, 168, QueueRules::MULTI);
const QUEUE_MQ: &[OptionSpec] = &limited(1, queue(250, 0, 1280, 168, QueueRules::MULTI));
const QUEUE_6_5: &[OptionSpec] = &limited(1, marked(queue(250, 0, 1280, 168, QueueRules::MULTI)));
const QUEUE_6_11: &[OptionSpec] = &limited(1, marked(queue(250, 0, 1280, 168, QueueRules::MULTI_6_11)));
const QUEUE_6_12: &[OptionSpec] = &limited(2, polled(queue(250, 0, 1280, 168, QueueRules::MULTI_6_11)));
const QUEUE_6_18: &[OptionSpec] = &limited(3, polled(queue(250, 0, 4096, 168, QueueRules::MULTI_6_11)));

const NAMES_2_4: &[(&str, &str)] = &[];
const NAMES_2_6: &[(&str, &str)] = &[("cfq", "cfq-2.6.6"), ("as", "anticipatory")];
const NAMES_EL5_164: &[(&str, &str)] = &[("cfq", "cfq-2.6.18-164"), ("as", "anticipatory")];
const NAMES_EL5_186: &[(&str, &str)] = &[("cfq", "cfq-2.6.18-186"), ("as", "anticipatory")];
const NAMES_EL5_198: &[(&str, &str)] = &[("cfq", "cfq-2.6.18-198"), ("as", "anticipatory")];
const NAMES_2_6_38: &[(&str, &str)] = &[("cfq", "cfq-2.6.38"), ("deadline", "deadline-3.2")];
const NAMES_LEGACY: &[(&str, &str)] = &[("cfq", "cfq-3.2"), ("deadline", "deadline-3.2")];
const NAMES_4: &[(&str, &str)] = &[("cfq", "cfq-4.4"), ("deadline", "deadline-3.2")];
const NAMES_5: &[(&str, &str)] = &[
    ("noop", "none"),
    ("mq-deadline", "mq-deadline-5.10"),
    ("deadline", "mq-deadline-5.10"),
    ("kyber", "kyber-6.1"),
    ("bfq", "bfq-6.1"),
];
const NAMES_6_1: &[(&str, &str)] = &[
    ("noop", "none"),
    ("mq-deadline", "mq-deadline-6.1"),
    ("deadline", "mq-deadline-6.1"),
    ("kyber", "kyber-6.1"),
    ("bfq", "bfq-6.1"),
];
const NAMES_6_5: &[(&str, &str)] =
    &[("noop", "none"), ("deadline", "mq-deadline"), ("kyber", "kyber-6.1"), ("bfq", "bfq-6.1")];
const NAMES_6_12: &[(&str, &str)] = &[("noop", "none"), ("deadline", "mq-deadline")];
const NAMES_7: &[(&str, &str)] =
    &[("noop", "none"), ("deadline", "mq-deadline"), ("kyber", "kyber-7.2"), ("bfq", "bfq-7.2")];

const COMPOSED: &str = "the composition follows the profile table of docs/studies/block-layer.md";

/// Every kernel.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "linux-2.4.25",
        aliases: &["linux-2.4.24"],
        summary: "2.4.25 (stands for 2.4.24 too): one task queue unplugs, one sorted list of requests, forced commits",
        levels: &[],
        near: &[],
        origin: &[Origin {
            kernels: "2.4.24 .. 2.4.27",
            file: "drivers/block/ll_rw_blk.c",
            function: "__make_request",
            notes: COMPOSED,
        }],
        options: QUEUE_2_4,
        readahead: "linux-2.4.25",
        fault: "linux-2.6.6",
        plug: "queue-2.4",
        elevator: "linus",
        elevator_names: NAMES_2_4,
        direct: "dio-2.6.6",
        filesystem: "ext3-2.4",
        writeback: "bdflush-2.4",
        machine: "athlon-2004",
        device: "ide-2004",
    },
    Kernel {
        name: "linux-2.6.5-bk2",
        levels: &[levels(2, 6, 5, 5)],
        summary: "2.6.5 with two days of patches: the same models as 2.6.6-rc3",
        ..SERIES_2_6_6
    },
    Kernel {
        name: "linux-2.6.6-rc3",
        aliases: &["linux-2.6.6-rc3-mm1"],
        summary: "2.6.6-rc3: lazy read-ahead, anticipatory elevator, plugged queue",
        ..SERIES_2_6_6
    },
    Kernel {
        name: "linux-2.6.6",
        summary: "2.6.6: the same models as 2.6.6-rc3",
        levels: &[levels(2, 6, 6, 6)],
        ..SERIES_2_6_6
    },
    Kernel {
        name: "linux-2.6.7",
        levels: &[levels(2, 6, 7, 7)],
        summary: "2.6.7: read-ahead on a private copy, window from the average run length",
        readahead: "linux-2.6.7",
        ..SERIES_2_6_6
    },
    Kernel {
        name: "linux-2.6.18-164.el5",
        summary: "RHEL 5.4: CFQ that keeps all asynchronous requests, direct writes among them, in one queue",
        ..RHEL_5
    },
    Kernel {
        name: "linux-2.6.18-186.el5",
        summary: "RHEL 5.5 beta: CFQ without its hash of queues; direct writes in an asynchronous queue per task",
        elevator: "cfq-2.6.18-186",
        elevator_names: NAMES_EL5_186,
        ..RHEL_5
    },
    Kernel {
        name: "linux-2.6.18-193.el5",
        aliases: &["linux-2.6.18-194.el5"],
        summary: "RHEL 5.5: the same CFQ as in -186",
        elevator: "cfq-2.6.18-186",
        elevator_names: NAMES_EL5_186,
        ..RHEL_5
    },
    Kernel {
        name: "linux-2.6.18-198.el5",
        levels: &[levels(2, 6, 18, 18)],
        aliases: &["linux-2.6.18-238.el5"],
        summary: "RHEL 5.6: CFQ that honours the sync flag of requests; asynchronous queues are shared again",
        elevator: "cfq-2.6.18-198",
        elevator_names: NAMES_EL5_198,
        ..RHEL_5
    },
    Kernel {
        name: "linux-2.6.22",
        levels: &[levels(2, 6, 22, 22)],
        summary: "2.6.22: simplified read-ahead with a current and an ahead window, ext3; CFQ of 2.6.18 stands in",
        options: QUEUE_2_6_18,
        readahead: "linux-2.6.22",
        fault: "linux-2.6.6",
        plug: "queue-2.6.13",
        elevator: "cfq-2.6.18-164",
        elevator_names: NAMES_EL5_164,
        direct: "dio-2.6.18",
        filesystem: "ext3-2.6",
        writeback: "pdflush-2.6",
        ..LEGACY
    },
    Kernel {
        name: "linux-2.6.38",
        levels: &[levels(2, 6, 38, 38)],
        summary: "2.6.38: on-demand read-ahead, the queue still plugs itself",
        plug: "queue-2.6.13",
        elevator: "cfq-2.6.38",
        elevator_names: NAMES_2_6_38,
        direct: "dio-2.6.33",
        ..LEGACY
    },
    Kernel {
        name: "linux-2.6.39",
        levels: &[levels(2, 6, 39, 39)],
        summary: "2.6.39: the plug moves to the task and is held for the whole read call",
        plug: "task-2.6.39",
        ..LEGACY
    },
    Kernel {
        name: "linux-3.2.0",
        summary: "3.2.0: as 2.6.39, with the plug flushed at 16 requests",
        plug: "task-3.1",
        ..LEGACY
    },
    Kernel {
        name: "linux-3.3",
        summary: "3.3: the plug is held for one submission only",
        levels: &[series(3, 3)],
        ..LEGACY
    },
    Kernel {
        name: "linux-4.4",
        levels: &[series(4, 4)],
        summary: "4.4: legacy queue, 16-request plug",
        options: QUEUE_4,
        readahead: "linux-4.4",
        fault: "linux-4.4",
        elevator: "cfq-4.4",
        elevator_names: NAMES_4,
        direct: "dio-3.4",
        machine: "desktop-2015",
        device: "sata-2014",
        filesystem: "ext4-3.11",
        plug: "task-3.9",
        ..LEGACY
    },
    Kernel {
        name: "linux-4.19",
        levels: &[series(4, 19)],
        summary: "4.19: legacy queue, read-ahead that knows the largest request; CFQ of 4.4 stands in for its own",
        options: QUEUE_4,
        readahead: "linux-4.19",
        fault: "linux-4.4",
        elevator: "cfq-4.4",
        elevator_names: NAMES_4,
        direct: "dio-3.4",
        machine: "desktop-2015",
        device: "sata-2014",
        filesystem: "ext4-3.11",
        plug: "task-3.9",
        ..LEGACY
    },
    Kernel {
        name: "linux-5.4",
        summary: "5.4: blk-mq only; read-ahead of 4.19, with looks for holes that end a page earlier",
        levels: &[series(5, 4)],
        near: &[
            Near { from: (4, 20), to: (5, 3), differs: "its source was not read" },
            Near { from: (5, 5), to: (5, 9), differs: "some have the two steps of 5.10; where they came is not known" },
        ],
        filesystem: "ext4-3.11",
        readahead: "linux-5.4",
        ..MULTI_QUEUE_5
    },
    Kernel {
        name: "linux-5.10",
        summary: "5.10: blk-mq, the marker is counted from the end of the file",
        levels: &[series(5, 10)],
        near: &[Near { from: (5, 11), to: (5, 11), differs: "its source was not read" }],
        readahead: "linux-5.10",
        ..MULTI_QUEUE_5
    },
    Kernel {
        name: "linux-5.15.85",
        summary: "5.15 until its level 94: pages in batches, which have the page behind the request",
        levels: &[levels(5, 15, 0, 94)],
        near: &[
            Near {
                from: (5, 12),
                to: (5, 14),
                differs: "its source was not read; the 5.14 of RHEL 9 has page-cache code of later kernels",
            },
            Near { from: (5, 16), to: (5, 17), differs: "folios of one page; its source was not read" },
        ],
        readahead: "linux-5.15.85",
        ..MULTI_QUEUE_5
    },
    Kernel {
        name: "linux-5.15",
        summary: "5.15 from its level 95 on: pages in batches that end with the request",
        levels: &[levels(5, 15, 95, u32::MAX)],
        readahead: "linux-5.15",
        ..MULTI_QUEUE_5
    },
    Kernel {
        name: "linux-6.1.12",
        summary: "6.1 until its level 12: batches have the page behind the request",
        levels: &[levels(6, 1, 0, 12)],
        near: &[Near { from: (5, 18), to: (6, 0), differs: "the first kernels with large folios; not read" }],
        readahead: "linux-6.1.12",
        ..MULTI_QUEUE
    },
    Kernel {
        name: "linux-6.1.123",
        summary: "6.1 from its level 13 to 123: batches end with the request, windows may shrink",
        levels: &[levels(6, 1, 13, 123)],
        near: &[Near {
            from: (6, 2),
            to: (6, 5),
            differs: "read-ahead is alike as far as the mails that changed it tell; from 6.3 on use through mappings \
                      with random advice keeps no page, and 6.5 has the sweep of its mq-deadline",
        }],
        readahead: "linux-6.1.123",
        ..MULTI_QUEUE
    },
    Kernel {
        name: "linux-6.1",
        summary: "6.1 from its level 124 on: blk-mq, folios of ext4 are single pages",
        levels: &[levels(6, 1, 124, u32::MAX)],
        ..MULTI_QUEUE
    },
    Kernel {
        name: "linux-6.6.57",
        summary: "6.6 until its level 61: the position of a read is stored once a call",
        levels: &[levels(6, 6, 0, 61)],
        readahead: "linux-6.6.57",
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.6.69",
        summary: "6.6 from its level 62 to 69: folios of order 1 are used",
        levels: &[levels(6, 6, 62, 69)],
        readahead: "linux-6.6.69",
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.6",
        summary: "6.6 from its level 70 on: windows never shrink",
        levels: &[levels(6, 6, 70, u32::MAX)],
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.8",
        summary: "6.8: read-ahead of 6.6.57, faults with locks of parts of a mapping",
        levels: &[series(6, 8)],
        near: &[Near { from: (6, 7), to: (6, 7), differs: "its source was not read" }],
        readahead: "linux-6.6.57",
        fault: "linux-6.8",
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.10",
        summary: "6.9 and 6.10: as 6.8, with folios of order 1, in batches of 31",
        near: &[Near {
            from: (6, 9),
            to: (6, 10),
            differs: "read-ahead is alike as far as the mails that changed it tell; not read otherwise",
        }],
        readahead: "linux-6.10",
        fault: "linux-6.8",
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.11",
        summary: "6.11: misses and markers are decided apart, in batches of 31",
        levels: &[series(6, 11)],
        options: QUEUE_6_11,
        readahead: "linux-6.11",
        fault: "linux-6.11",
        ..MULTI_QUEUE_6_6
    },
    Kernel {
        name: "linux-6.12.4",
        summary: "6.12 until its level 4: as 6.11, with the file system's limit of folios",
        levels: &[levels(6, 12, 0, 4)],
        readahead: "linux-6.12.4",
        ..MULTI_QUEUE_6_12
    },
    Kernel {
        name: "linux-6.12.8",
        summary: "6.12 from its level 5 to 8: a cached page in the way makes a window longer",
        levels: &[levels(6, 12, 5, 8)],
        readahead: "linux-6.12.8",
        ..MULTI_QUEUE_6_12
    },
    Kernel {
        name: "linux-6.12.43",
        summary: "6.12 from its level 9 to 43: windows never shrink",
        levels: &[levels(6, 12, 9, 43)],
        near: &[Near { from: (6, 13), to: (6, 13), differs: "requests leave a plug as they came; not read otherwise" }],
        readahead: "linux-6.12.43",
        ..MULTI_QUEUE_6_12
    },
    Kernel {
        name: "linux-6.12",
        summary: "6.12 from its level 44 on: requests leave a plug as they came, which some of these levels do not",
        levels: &[levels(6, 12, 44, u32::MAX)],
        plug: "task-6.16",
        ..MULTI_QUEUE_6_12
    },
    Kernel {
        name: "linux-6.14",
        summary: "6.14: requests leave a plug as they came, bios join the first of them; folios are single pages",
        levels: &[series(6, 14)],
        near: &[
            Near { from: (6, 15), to: (6, 15), differs: "its source was not read" },
            Near {
                from: (6, 16),
                to: (6, 16),
                differs: "ext4 has large folios; from 6.16.4 on a marker with cached pages all the way behind it ends \
                          its stream; not read otherwise",
            },
        ],
        readahead: "linux-6.14",
        plug: "task-6.13",
        ..MULTI_QUEUE_6_12
    },
    Kernel {
        name: "linux-6.18",
        levels: &[series(6, 18)],
        near: &[
            Near {
                from: (6, 17),
                to: (6, 17),
                differs: "read-ahead is alike as far as the mails that changed it tell; not read otherwise",
            },
            Near { from: (6, 19), to: (7, 1), differs: "its source was not read" },
        ],
        summary: "6.18: blk-mq, large folios",
        ..MULTI_QUEUE_6_18
    },
    Kernel {
        name: "linux-7.2",
        levels: &[series(7, 2)],
        near: &[Near { from: (7, 3), to: (7, u32::MAX), differs: "its source was not read" }],
        summary: "7.2: as 6.18; windows that end with the file carry no marker",
        elevator_names: NAMES_7,
        direct: "dio-7.2",
        readahead: "linux-7.2",
        ..MULTI_QUEUE_6_18
    },
];

/// Common parts of 2.6.5 to 2.6.7.
const SERIES_2_6_6: Kernel = Kernel {
    name: "",
    aliases: &[],
    summary: "",
    levels: &[],
    near: &[],
    origin: &[Origin {
        kernels: "2.6.5 .. 2.6.7",
        file: "drivers/block/ll_rw_blk.c",
        function: "__make_request",
        notes: COMPOSED,
    }],
    options: QUEUE_2_6,
    readahead: "linux-2.6.6-rc3",
    fault: "linux-2.6.6",
    plug: "queue-2.6",
    elevator: "anticipatory",
    elevator_names: NAMES_2_6,
    direct: "dio-2.6.6",
    filesystem: "ext3-2.6",
    writeback: "pdflush-2.6",
    machine: "athlon-2004",
    device: "ide-2004",
};

/// Common parts of the kernels of RHEL 5.
const RHEL_5: Kernel = Kernel {
    name: "",
    aliases: &[],
    summary: "",
    levels: &[],
    near: &[],
    origin: &[Origin {
        kernels: "2.6.18-128.el5 .. 2.6.18-238.el5",
        file: "block/ll_rw_blk.c, block/cfq-iosched.c",
        function: "__make_request",
        notes: "profile table of the block-layer study; read-ahead of 2.6.10 .. 2.6.22 is that of 2.6.22",
    }],
    options: QUEUE_2_6_18,
    readahead: "linux-2.6.22",
    fault: "linux-2.6.6",
    plug: "queue-2.6.13",
    elevator: "cfq-2.6.18-164",
    elevator_names: NAMES_EL5_164,
    direct: "dio-2.6.18",
    filesystem: "ext3-2.6",
    writeback: "pdflush-2.6",
    machine: "xeon-2009",
    device: "sata-2010",
};

/// Common parts of later kernels with a single request queue.
const LEGACY: Kernel = Kernel {
    name: "",
    aliases: &[],
    summary: "",
    levels: &[],
    near: &[],
    origin: &[Origin {
        kernels: "2.6.22 .. 4.19",
        file: "block/blk-core.c",
        function: "__make_request, blk_queue_bio",
        notes: "profile table of the block-layer study; read-ahead is exact",
    }],
    options: QUEUE_2_6_38,
    readahead: "linux-2.6.38",
    fault: "linux-2.6.38",
    plug: "task-3.3",
    elevator: "cfq-3.2",
    elevator_names: NAMES_LEGACY,
    direct: "dio-3.2",
    filesystem: "ext4-2.6.38",
    writeback: "flusher",
    machine: "xeon-2012",
    device: "sata-2010",
};

/// Common parts of kernels with blk-mq only.
const MULTI_QUEUE: Kernel = Kernel {
    name: "",
    aliases: &[],
    summary: "",
    levels: &[],
    near: &[],
    origin: &[Origin {
        kernels: "6.1 .. 6.18",
        file: "block/blk-mq.c",
        function: "blk_mq_submit_bio",
        notes: "tags of scheduler and driver, one software queue; read-ahead is exact",
    }],
    options: QUEUE_MQ,
    readahead: "linux-6.1",
    fault: "linux-6.1",
    plug: "task-5.16",
    elevator: "none",
    elevator_names: NAMES_6_1,
    direct: "dio-6.0",
    filesystem: "ext4",
    writeback: "flusher",
    machine: "server-2024",
    device: "nvme",
};

/// Common parts of 5.x: folios are single pages, and a plug has at most 16 requests, in order of sectors.
const MULTI_QUEUE_5: Kernel = Kernel {
    origin: &[Origin {
        kernels: "5.4 .. 5.15",
        file: "block/blk-mq.c",
        function: "blk_mq_make_request, blk_mq_submit_bio",
        notes: "read-ahead is exact; queue, kyber and BFQ are those of 6.1",
    }],
    options: QUEUE_5,
    fault: "linux-5.4",
    plug: "task-5.10",
    elevator_names: NAMES_5,
    direct: "dio-4.20",
    ..MULTI_QUEUE
};

/// Common parts of 6.6 to 6.11.
const MULTI_QUEUE_6_6: Kernel =
    Kernel { options: QUEUE_6_5, elevator_names: NAMES_6_5, readahead: "linux-6.6", fault: "linux-6.6", ..MULTI_QUEUE };

/// Common parts of 6.12 and 6.14.
const MULTI_QUEUE_6_12: Kernel = Kernel {
    options: QUEUE_6_12,
    elevator_names: NAMES_6_12,
    readahead: "linux-6.12",
    fault: "linux-6.12",
    ..MULTI_QUEUE
};

/// Common parts of 6.18 and 7.2.
const MULTI_QUEUE_6_18: Kernel = Kernel {
    options: QUEUE_6_18,
    elevator_names: NAMES_6_12,
    readahead: "linux-6.18",
    fault: "linux-6.18",
    filesystem: "ext4-6.16",
    plug: "task-6.16",
    ..MULTI_QUEUE
};

const LKML_2004: &str = "linux-kernel mailing list";

/// Every patch.
pub const PATCHES: &[Patch] = &[
    Patch {
        name: "read-populate",
        summary: "reads the whole request window before the page loop (N. Piggin, 2004-05-03), as posted",
        origin: &[Origin {
            kernels: "2.6.6-rc3",
            file: "mm/filemap.c",
            function: "do_generic_mapping_read",
            notes: LKML_2004,
        }],
        kernels: KERNELS_2_6_6,
        sets: &[("readahead", "linux-2.6.6-rc3+read-populate")],
    },
    Patch {
        name: "read-populate-pages",
        summary: "the same with its byte count converted to pages, as it was meant; never posted",
        origin: &[Origin {
            kernels: "2.6.6-rc3",
            file: "mm/filemap.c",
            function: "do_generic_mapping_read",
            notes: LKML_2004,
        }],
        kernels: KERNELS_2_6_6,
        sets: &[("readahead", "linux-2.6.6-rc3+read-populate-pages")],
    },
    Patch {
        name: "private-copy",
        summary: "each read call works on a private copy of the read-ahead state (adopted for 2.6.7)",
        origin: &[Origin {
            kernels: "2.6.7-rc1",
            file: "mm/filemap.c",
            function: "do_generic_mapping_read",
            notes: "\"readahead: keep file->f_ra sane\", 2004-05-10",
        }],
        kernels: KERNELS_2_6_6,
        sets: &[("readahead", "linux-2.6.6+private-copy")],
    },
    Patch {
        name: "without-cfq-hash-removal",
        summary: "CFQ with its hash of queues, as before -186 (the reporter's kernel without the cfq patch)",
        origin: RHEL_BUG,
        kernels: KERNELS_EL5,
        sets: &[("elevator", "cfq-2.6.18-164")],
    },
    Patch {
        name: "sync-flag",
        summary: "CFQ honours the sync flag of direct writes (the test patch of the bug)",
        origin: RHEL_BUG,
        kernels: KERNELS_EL5,
        sets: &[("elevator", "cfq-2.6.18-194+sync")],
    },
    Patch {
        name: "no-outer-plug",
        summary: "no plug around the whole buffered read (the fix of 2012)",
        origin: &[Origin {
            kernels: "3.3",
            file: "mm/filemap.c",
            function: "generic_file_aio_read",
            notes: "upstream 3deaa7190a8d, \"readahead: fix pipeline break caused by block plug\"",
        }],
        kernels: &["linux-2.6.39", "linux-3.2.0"],
        sets: &[("plug", "task-3.3")],
    },
    Patch {
        name: "plug-joins-newest",
        summary: "plug lists as before e70c301faece: newest first, and bios join the newest (a revert that was posted)",
        origin: &[Origin {
            kernels: "6.13 .. 6.15",
            file: "block/blk-mq.c",
            function: "blk_add_rq_to_plug",
            notes: "revert posted for stable, June 2025",
        }],
        kernels: &["linux-6.14"],
        sets: &[("plug", "task-5.16")],
    },
    Patch {
        name: "plug-tail",
        summary: "the one attempt to join a plug list is made at its tail (the repair of 6.16)",
        origin: &[Origin {
            kernels: "6.16",
            file: "block/blk-merge.c",
            function: "blk_attempt_plug_merge",
            notes: "as Debian's 6.12.118 and 7.2 have it",
        }],
        kernels: &["linux-6.14"],
        sets: &[("plug", "task-6.16")],
    },
    Patch {
        name: "one-tag",
        summary: "mq-deadline has allocations see as little as one tag (39823b47bbd4): waiters are woken one by one",
        origin: &[Origin {
            kernels: "6.9 .. 6.18",
            file: "block/mq-deadline.c",
            function: "dd_depth_updated",
            notes: "read in Debian's 6.1.192 and 6.12.118, which have it",
        }],
        kernels: &[],
        sets: &[("shallow_pct", "0")],
    },
    Patch {
        name: "async-depth",
        summary: "mq-deadline has allocations see three quarters of the tags, as before 39823b47bbd4 and again in 7.x",
        origin: &[Origin {
            kernels: "5.14 .. 6.8, 7.x",
            file: "block/mq-deadline.c",
            function: "dd_depth_updated",
            notes: "sbitmap_queue_min_shallow_depth with dd->async_depth",
        }],
        kernels: &[],
        sets: &[("shallow_pct", "75")],
    },
    Patch {
        name: "insertion-lists",
        summary: "requests enter mq-deadline when it is asked for one (574e7779cf58, dropped before 6.9)",
        origin: &[Origin {
            kernels: "posted for 6.9",
            file: "block/mq-deadline.c",
            function: "dd_insert_requests, dd_dispatch_request",
            notes: "the message of the commit",
        }],
        kernels: &[],
        sets: &[("late_insertion", "on")],
    },
    Patch {
        name: "plug-per-bio",
        summary: "every bio has a plug: its submitter runs the queue at once (060406c61c7c, 6.11)",
        origin: &[Origin {
            kernels: "6.11 .. 6.18",
            file: "block/blk-core.c, block/blk-mq.c",
            function: "__submit_bio, blk_mq_flush_plug_list",
            notes: "read in Debian's 6.12.118",
        }],
        kernels: &[],
        sets: &[("submit_run", "submitter")],
    },
    Patch {
        name: "wbt-cache-always",
        summary: "the writeback throttle takes every drive for one with a volatile cache (8c5035dfbb94, 6.1-rc1)",
        origin: &[Origin {
            kernels: "6.1-rc1",
            file: "block/blk-wbt.c",
            function: "wbt_init",
            notes: "the message of the commit; the repair is in 6.1",
        }],
        kernels: &[],
        sets: &[("wbt_cache", "always")],
    },
    Patch {
        name: "journal-passes",
        summary: "the journal's writes pass the writeback throttle (6a3afb6ac6, 6.7)",
        origin: &[Origin {
            kernels: "6.7 .. 6.18",
            file: "include/linux/jbd2.h",
            function: "JBD2_JOURNAL_REQ_FLAGS",
            notes: "the patch as posted for stable",
        }],
        kernels: &["linux-6.1", "linux-6.6"],
        sets: &[("filesystem.journal_passes", "on")],
    },
    Patch {
        name: "ring-fmode-nowait",
        summary: "io_uring tries only files that set FMODE_NOWAIT (caec5ebe77f9, 6.5)",
        origin: &[Origin {
            kernels: "6.5 .. 7.x",
            file: "io_uring/io_uring.c, io_uring/rw.c",
            function: "__io_file_supports_nowait, io_read",
            notes: "the commit's diff, and io_file_supports_nowait as of 6.10",
        }],
        kernels: &[],
        sets: &[("ring_nowait", "marked")],
    },
    Patch {
        name: "ring-poll",
        summary: "io_uring tries files without FMODE_NOWAIT whose poll says that they are ready (f7c913438533, 6.12)",
        origin: &[Origin {
            kernels: "6.12 .. 7.x, 6.6.94",
            file: "io_uring/rw.c",
            function: "io_file_supports_nowait",
            notes: "the commit's diff and message",
        }],
        kernels: &[],
        sets: &[("ring_nowait", "polled")],
    },
    Patch {
        name: "readahead-512k",
        summary: "the default limit of read-ahead is 512 KiB instead of 128",
        origin: &[Origin {
            kernels: "posted for 4.4",
            file: "include/linux/mm.h",
            function: "VM_MAX_READAHEAD",
            notes: "shipped by a distribution",
        }],
        kernels: &[],
        sets: &[("read_ahead_kb", "512")],
    },
    Patch {
        name: "stream-table",
        summary: "a small table of recent sequential streams per open file, as readers of the 2004 report proposed",
        origin: &[Origin {
            kernels: "never merged",
            file: "a comment under the published report",
            function: "small table of structs, least recently used entry replaced",
            notes: "our design of a proposal in words",
        }],
        kernels: &[],
        sets: &[("readahead", "stream-table")],
    },
];

const RHEL_BUG: &[Origin] = &[Origin {
    kernels: "2.6.18-186.el5 .. 2.6.18-194.el5",
    file: "block/cfq-iosched.c",
    function: "cfq_get_queue",
    notes: "Red Hat bug 574285",
}];

const KERNELS_EL5: &[&str] =
    &["linux-2.6.18-164.el5", "linux-2.6.18-186.el5", "linux-2.6.18-193.el5", "linux-2.6.18-198.el5"];

const KERNELS_2_6_6: &[&str] = &["linux-2.6.5-bk2", "linux-2.6.6-rc3", "linux-2.6.6"];

/// The first kernel whose queue has a tunable of this name.
fn first_with(key: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.options.iter().any(|spec| spec.name == key))
}

/// The kernel called `name`, also by another name it has, or by a release that it is the model of (`linux-6.1.55`).
pub fn find_kernel(name: &str) -> Option<&'static Kernel> {
    let named = KERNELS.iter().find(|kernel| kernel.name == name || kernel.aliases.contains(&name));
    named.or_else(|| Release::parse(name).filter(|it| name.starts_with("linux-") && it.series.0 > 2)?.exactly())
}

/// An entry of a table with values for its tunables.
#[derive(Clone, Debug)]
pub struct Chosen<B: Copy + 'static> {
    pub entry: &'static Entry<B>,
    /// Its tunables.
    pub options: Options,
}

impl<B: Copy> Chosen<B> {
    /// `entry` with its defaults.
    pub fn new(entry: &'static Entry<B>) -> Chosen<B> {
        Chosen { entry, options: entry.defaults() }
    }

    fn by_name(table: &'static [&'static Entry<B>], name: &str) -> Chosen<B> {
        match find(table, name) {
            Some(entry) => Chosen::new(entry),
            None => panic!("a kernel names `{name}`, which no table has"),
        }
    }

    fn pick(&mut self, table: &'static [&'static Entry<B>], name: &str) -> bool {
        let entry = find(table, name);
        if let Some(entry) = entry.filter(|entry| entry.name != self.entry.name) {
            *self = Chosen::new(entry);
        }
        entry.is_some()
    }
}

/// Why a key could not be set. [`fmt::Display`](std::fmt::Display) gives the sentence; `nearest` the likely name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key or value as typed.
    pub word: String,
    pub message: String,
    /// All names that would have been accepted in its place.
    pub accepted: Vec<String>,
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}

/// One difference between two stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key: a kind of policy (`plug`), a tunable of one (`elevator.slice_idle_ms`), a tunable of the queue
    /// (`read_ahead_kb`), `disk`, or a parameter of the device (`disk.rpm`).
    pub key: String,
    /// Value in the first stack.
    pub from: String,
    /// Value in the second.
    pub to: String,
}

impl Change {
    /// Its kind: a kind of policy, `queue` or `disk`.
    pub fn kind(&self) -> &str {
        match self.key.split_once('.') {
            Some((kind, _)) => kind,
            None if KINDS.iter().any(|kind| kind.key == self.key) => &self.key,
            None => "queue",
        }
    }
}

impl Stack {
    /// Takes the elevator that the kernel takes by itself: with blk-mq `mq-deadline` for devices with one hardware
    /// queue, none for those with several and those without requests (Linux 5.0 .. 6.18, `block/elevator.c`,
    /// `elevator_get_default`). Older kernels have one for all.
    fn follow_device(&mut self) {
        if self.elevator_chosen || self.kernel.elevator != "none" {
            return;
        }
        let device = (self.device.entry.build)(&self.device.options, Rng::stream(0, "device"));
        let single = device.nr_hw_queues() == 1 && !device.bio_based();
        let name = if single { "mq-deadline" } else { "none" };
        // The name is one that every kernel with blk-mq knows.
        let known = self.choose(kind(ELEVATOR), name);
        debug_assert!(known.is_ok(), "{name} is an elevator");
    }

    /// Tick rate.
    pub fn hz(&self) -> Hz {
        Hz(self.options.unsigned("hz") as u32)
    }

    /// Applies a patch.
    ///
    /// # Errors
    /// If it was made for other kernels.
    pub fn patch(&mut self, patch: &'static Patch) -> Result<(), KeyError> {
        if !patch.kernels.is_empty() && !patch.kernels.contains(&self.kernel.name) {
            return Err(KeyError {
                word: patch.name.to_owned(),
                message: format!(
                    "patch `+{}` was made for {}; to try it on {} mix in its changes: {}",
                    patch.name,
                    patch.kernels.join(", "),
                    self.kernel.name,
                    patch.sets.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","),
                ),
                accepted: Vec::new(),
            });
        }
        for (key, value) in patch.sets {
            self.set(key, value)?;
        }
        self.patches.push(patch);
        Ok(())
    }

    /// Sets one key to a value as typed: `elevator=deadline`, `elevator.fifo_batch=4`, `read_ahead_kb=512`.
    ///
    /// # Errors
    /// If the key or the value is unknown or out of range. Nothing has changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KeyError> {
        if let Some(kind) = policies().find(|kind| kind.key == key) {
            self.choose(kind, value)?;
            self.elevator_chosen |= kind.key == ELEVATOR;
            return Ok(());
        }
        let Some((kind, option)) = key.split_once('.') else { return self.set_bare(key, value) };
        match policies().find(|known| known.key == kind) {
            Some(known) => set_option((known.options_mut)(self), option, value, kind),
            None => Err(KeyError {
                word: key.to_owned(),
                message: format!("unknown kind `{kind}` in key `{key}`"),
                accepted: policies().map(|kind| kind.key.to_owned()).collect(),
            }),
        }
    }

    /// Picks the entry called `name`, also by a short name of this kernel or as another kernel has it.
    fn choose(&mut self, kind: &Kind, name: &str) -> Result<(), KeyError> {
        let short_names = if kind.key == ELEVATOR { self.kernel.elevator_names } else { &[] };
        let wanted = short_names.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
        if (kind.pick)(self, wanted)
            || find_kernel(wanted).is_some_and(|kernel| (kind.pick)(self, (kind.of_kernel)(kernel)))
        {
            return Ok(());
        }
        let names = (kind.entries)().into_iter().map(|entry| entry.name);
        Err(KeyError {
            word: name.to_owned(),
            message: format!("unknown {} `{name}`", kind.key),
            accepted: names.chain(short_names.iter().map(|(short, _)| *short)).map(str::to_owned).collect(),
        })
    }

    /// Picks a device by name.
    ///
    /// # Errors
    /// If the device is unknown.
    pub fn set_device(&mut self, name: &str) -> Result<(), KeyError> {
        self.choose(kind(DISK), name)?;
        self.follow_device();
        Ok(())
    }

    /// Takes the device of this entry with the options and tables of a file.
    pub fn set_drive(&mut self, entry: &Entry<device::Build>, options: Options) {
        let known = self.choose(kind(DISK), entry.name);
        debug_assert!(known.is_ok(), "the device is in the table");
        self.device.options = options;
        self.follow_device();
    }

    /// Sets a parameter of the device.
    ///
    /// # Errors
    /// If the device has no such parameter or the value is out of range.
    pub fn set_device_option(&mut self, key: &str, value: &str) -> Result<(), KeyError> {
        let key = key.strip_prefix("device.").unwrap_or(key);
        set_option(&mut self.device.options, key, value, "device")?;
        self.follow_device();
        Ok(())
    }

    /// Every key that [`Stack::set`] takes, as it is typed.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = policies().map(|kind| kind.key.to_owned()).collect();
        keys.extend(self.options.specs().iter().map(|spec| spec.name.to_owned()));
        for kind in policies() {
            keys.extend((kind.options)(self).specs().iter().map(|spec| format!("{}.{}", kind.key, spec.name)));
        }
        keys
    }

    /// Differences of `bad`: policies first, in the order of the path, then tunables of the queue and the policies,
    /// then the device. A policy brings its own tunables along; those that both entries have in common, under one name
    /// and with values that both accept, are differences of their own.
    pub fn differences(good: &Stack, bad: &Stack) -> Vec<Change> {
        let (mut policies, mut tunables) = (Vec::new(), different_options("", &good.options, &bad.options));
        for kind in parts() {
            let (from, to) = ((kind.chosen)(good), (kind.chosen)(bad));
            if from != to {
                policies.push(Change { key: kind.key.to_owned(), from: from.to_owned(), to: to.to_owned() });
            }
            tunables.extend(different_options(kind.key, (kind.options)(good), (kind.options)(bad)));
        }
        policies.extend(tunables);
        policies
    }

    /// This stack with those differences to `bad` that `on` picks by their keys.
    pub fn with_changes(&self, bad: &Stack, on: &dyn Fn(&str) -> bool) -> Stack {
        // Mixed-in parts stay as they are, whatever the device.
        let mut mixed = Stack { patches: Vec::new(), elevator_chosen: true, ..self.clone() };
        mix_options("", &self.options, &bad.options, &mut mixed.options, on);
        for kind in KINDS {
            let other = (kind.chosen)(bad);
            if other != (kind.chosen)(self) && on(kind.key) {
                (kind.pick)(&mut mixed, other);
                *(kind.options_mut)(&mut mixed) = (kind.options)(bad).clone();
            }
            mix_options(kind.key, (kind.options)(self), (kind.options)(bad), (kind.options_mut)(&mut mixed), on);
        }
        mixed
    }

    /// One line that names the composition without its device: kernel, patches, and whatever differs from the kernel's
    /// defaults, or from what patches and the device would make of them. Typed for the same device it gives this stack.
    pub fn describe(&self) -> String {
        let kernel = Stack::new(self.kernel);
        let mut text = self.kernel.name.to_owned();
        let mut typed = Stack { device: self.device.clone(), ..kernel.clone() };
        typed.follow_device();
        for patch in &self.patches {
            text.push_str(&format!("+{}", patch.name));
            let applied = typed.patch(patch);
            debug_assert!(applied.is_ok(), "+{} was applied to this kernel before", patch.name);
        }
        // What patches and the device bring is written out, except a read-ahead policy: runs are stored and compared
        // under these texts, so they stay as they are.
        let (first, others): (Vec<&Kind>, Vec<&Kind>) = policies().partition(|kind| kind.key == ELEVATOR);
        for kind in first.into_iter().chain(others) {
            let name = (kind.chosen)(self);
            if name != (kind.chosen)(&typed) || kind.key != READAHEAD && name != (kind.chosen)(&kernel) {
                text.push_str(&format!(",{}={name}", kind.key));
                (kind.pick)(&mut typed, name);
            }
        }
        let mut changed = |prefix: &str, options: &Options, typed: &Options| {
            for ((spec, value), (_, typed)) in options.iter().zip(typed.iter()) {
                if value != spec.default || value != typed {
                    text.push_str(&format!(",{prefix}{}={}", spec.name, spec.show(value)));
                }
            }
        };
        changed("", &self.options, &typed.options);
        for kind in policies() {
            changed(&format!("{}.", kind.key), (kind.options)(self), (kind.options)(&typed));
        }
        text
    }

    /// A key without its kind: the queue's own, or the one policy that has it.
    fn set_bare(&mut self, key: &str, value: &str) -> Result<(), KeyError> {
        if self.options.specs().iter().any(|spec| spec.name == key) {
            return set_option(&mut self.options, key, value, "queue");
        }
        let has_key = |kind: &&Kind| (kind.options)(self).specs().iter().any(|spec| spec.name == key);
        let owners: Vec<&Kind> = policies().filter(has_key).collect();
        match owners.as_slice() {
            [kind] => set_option((kind.options_mut)(self), key, value, kind.key),
            [] => Err(KeyError {
                word: key.to_owned(),
                message: match first_with(key) {
                    Some(later) => format!(
                        "{} does not have the key `{key}` yet; the first kernel here that has it is {}",
                        self.kernel.name, later.name
                    ),
                    None => format!("{} has no key `{key}`", self.kernel.name),
                },
                accepted: self.keys(),
            }),
            several => Err(KeyError {
                word: key.to_owned(),
                message: format!(
                    "`{key}` is a key of {}: say which, as in `{}.{key}={value}`",
                    several.iter().map(|kind| kind.key).collect::<Vec<_>>().join(" and "),
                    several[0].key
                ),
                accepted: several.iter().map(|kind| format!("{}.{key}", kind.key)).collect(),
            }),
        }
    }
}

/// Key of a difference between the tables of two drives, which bring all their options along.
const TABLES: &str = "tables";

/// Tunables that both tables have, with the values as typed, where these differ and each table accepts the other's.
fn different_options(prefix: &str, good: &Options, bad: &Options) -> Vec<Change> {
    let mut changes = Vec::new();
    if good.specs() == bad.specs() && (good.surfaces(), good.service()) != (bad.surfaces(), bad.service()) {
        // Numbers of one drive mean nothing on the surfaces of another.
        let shown = |options: &Options| match (options.surfaces(), options.service()) {
            (Some(surfaces), _) => format!("{} zones, {} seek times", surfaces.zones.len(), surfaces.seek.len()),
            (_, Some(service)) => format!("{} measured sizes", service.rows.iter().flatten().count()),
            _ => "of the model".to_owned(),
        };
        return vec![Change { key: format!("{prefix}.{TABLES}"), from: shown(good), to: shown(bad) }];
    }
    for (spec, value) in good.iter() {
        let Some((other, wanted)) = bad.iter().find(|(other, _)| other.name == spec.name) else { continue };
        let (from, to) = (spec.show(value), other.show(wanted));
        if from != to && spec.parse(&to).is_ok() && other.parse(&from).is_ok() {
            let dot = if prefix.is_empty() { "" } else { "." };
            changes.push(Change { key: format!("{prefix}{dot}{}", spec.name), from, to });
        }
    }
    changes
}

/// Sets each tunable that both sides share, of `options` of either, by `on`.
fn mix_options(prefix: &str, good: &Options, bad: &Options, options: &mut Options, on: &dyn Fn(&str) -> bool) {
    for change in different_options(prefix, good, bad) {
        let name = change.key.rsplit('.').next().unwrap_or(&change.key);
        if name == TABLES {
            if on(&change.key) {
                *options = bad.clone();
            }
            continue;
        }
        let text = if on(&change.key) { &change.to } else { &change.from };
        let value = options.specs().iter().find(|spec| spec.name == name).map(|spec| spec.parse(text));
        match value {
            Some(Ok(value)) => options.set(name, value),
            _ => unreachable!("both tables have the tunable and accept both values"),
        }
    }
}

fn set_option(options: &mut Options, key: &str, value: &str, kind: &str) -> Result<(), KeyError> {
    match options.specs().iter().find(|spec| spec.name == key) {
        Some(spec) => {
            let number = spec.parse(value).map_err(|message| KeyError {
                word: value.to_owned(),
                message,
                accepted: spec.choices.iter().map(|choice| (*choice).to_owned()).collect(),
            })?;
            options.set(key, number);
            Ok(())
        }
        None => Err(KeyError {
            word: key.to_owned(),
            message: if options.specs().is_empty() {
                format!("this {kind} has no tunables, so no `{key}`")
            } else {
                format!("this {kind} has no tunable `{key}`")
            },
            accepted: options.specs().iter().map(|spec| spec.name.to_owned()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(stack: &Stack, to: &Stack) -> Vec<String> {
        Stack::differences(stack, to).into_iter().map(|change| change.key).collect()
    }

    #[test]
    fn any_part_of_the_differences_leaves_the_others() {
        for (good, bad) in [(0, 15), (2, 16), (5, 6), (8, 13), (15, 1), (13, 9), (11, 11)] {
            let (mut good, bad) = (Stack::new(&KERNELS[good]), Stack::new(&KERNELS[bad % KERNELS.len()]));
            good.set("read_ahead_kb", "64").expect("every kernel has it");
            let all = Stack::differences(&good, &bad);
            assert!(!all.is_empty());
            assert!(values(&good, &good).is_empty());
            assert!(
                values(&good.with_changes(&bad, &|_| true), &bad).is_empty(),
                "{} -> {}",
                good.kernel.name,
                bad.kernel.name
            );
            assert!(values(&good.with_changes(&bad, &|_| false), &good).is_empty());
            let mut rng = Rng::stream(all.len() as u64, "subsets");
            for _ in 0..20 {
                let on: Vec<&str> =
                    all.iter().filter(|_| rng.below(2) == 1).map(|change| change.key.as_str()).collect();
                let mixed = good.with_changes(&bad, &|key| on.contains(&key));
                let mut left = values(&mixed, &bad);
                left.sort();
                let mut off: Vec<String> = all
                    .iter()
                    .filter(|change| !on.contains(&change.key.as_str()))
                    .map(|change| change.key.clone())
                    .collect();
                off.sort();
                assert_eq!(left, off, "{} -> {} with {on:?}", good.kernel.name, bad.kernel.name);
            }
        }
    }

    #[test]
    fn kernels_before_2_6_26_refuse_nomerges() {
        for kernel in KERNELS {
            let old = ["linux-2.4", "linux-2.6.5", "linux-2.6.6", "linux-2.6.7", "linux-2.6.18", "linux-2.6.22"];
            let old = old.iter().any(|start| kernel.name.starts_with(start));
            let mut stack = Stack::new(kernel);
            match stack.set("nomerges", "2") {
                Ok(()) => assert!(!old, "{}", kernel.name),
                Err(error) => {
                    assert!(old, "{}: {error}", kernel.name);
                    let message = error.to_string();
                    assert!(message.starts_with(kernel.name) && message.ends_with("is linux-2.6.38"), "{message}");
                }
            }
            assert!(stack.set("nomerges", "3").is_err());
        }
    }

    #[test]
    fn a_change_says_what_it_belongs_to() {
        for (key, kind) in [
            ("plug", "plug"),
            ("elevator.slice_idle_ms", "elevator"),
            ("hz", "queue"),
            ("disk", "disk"),
            ("disk.rpm", "disk"),
        ] {
            let change = Change { key: key.to_owned(), from: String::new(), to: String::new() };
            assert_eq!(change.kind(), kind);
        }
    }
}
