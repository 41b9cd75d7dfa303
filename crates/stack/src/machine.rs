//! Machines: CPUs, memory, and what kernel code costs on them.
//!
//! Costs are charged to the CPU that runs the task. On the 2004 machine scaling all of them by 0.3 or 3 moves no
//! result of the 2004 incident by more than about 3 %, so they are round numbers, not measurements.

use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;

/// CPUs, memory, costs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub nr_cpus: u32,
    /// Speed of a CPU while the other thread of its core is busy, percent; 100: each CPU is a core.
    pub smt_pct: u64,
    /// Pages that the page cache may hold.
    pub cache_pages: u64,
    /// Pages of memory (for dirty limits).
    pub total_pages: u64,
    /// The program's own work for each call, within the call's latency as the program reports it.
    pub tool: Nanos,
    /// Entering and leaving a system call.
    pub syscall: Nanos,
    /// Looking up a page and touching it.
    pub page_lookup: Nanos,
    /// Copying a page to or from the program.
    pub page_copy: Nanos,
    /// Allocating a page and adding it to the cache.
    pub page_add: Nanos,
    /// Building and submitting a bio.
    pub bio: Nanos,
    /// Starting a command on the device.
    pub command: Nanos,
    /// Handling an interrupt.
    pub interrupt: Nanos,
    /// Waking a task up and switching to it.
    pub switch: Nanos,
    /// How long a task may run while others wait.
    pub timeslice: Nanos,
    /// How long an idle CPU takes to wake up, uniform between the two.
    pub wake: (Nanos, Nanos),
    /// How long one wake-up of [`RARE`] takes at most.
    pub wake_tail: Nanos,
    /// The first thread's start, uniform from 0 to this.
    pub start: Nanos,
    /// Between the starts of a job's threads, in order, uniform between the two.
    pub start_gap: (Nanos, Nanos),
    /// Fetching the completion of an asynchronous call.
    pub fetch: Nanos,
    /// Entering and leaving a page fault.
    pub fault: Nanos,
    /// Mapping one page.
    pub map_page: Nanos,
    /// By how much every cost may be off, percent to both sides.
    pub noise_pct: u64,
}

/// One wake-up of this many has a tail.
pub const RARE: u64 = 128;

/// Makes a machine.
pub type Build = fn(&Options) -> Machine;

/// Every machine.
pub const MACHINES: &[&Entry<Build>] =
    &[&ATHLON_2004, &XEON_2009, &LAPTOP_2011, &XEON_2012, &DESKTOP_2015, &SERVER_2024];

/// CPUs, memory in MB, kernel's own share of it in MB, then costs in ns: tool, system call, lookup, copy, add, bio,
/// command, interrupt, switch, fault, page mapped.
const fn options(cpus: i64, memory_mb: i64, reserved_mb: i64, costs: [i64; 11]) -> [OptionSpec; 24] {
    const NS: (i64, i64) = (0, 10_000_000);
    [
        OptionSpec::number("cpus", cpus, (1, 256), "processors"),
        OptionSpec::number(
            "smt_pct",
            100,
            (1, 100),
            "speed of a processor while the other thread of its core is busy; 100: each is a core",
        ),
        OptionSpec::number("memory_mb", memory_mb, (16, 1 << 24), "memory"),
        OptionSpec::number("reserved_mb", reserved_mb, (0, 1 << 24), "memory that the page cache cannot have"),
        OptionSpec::number("tool_ns", costs[0], NS, "the program's own work for each call"),
        OptionSpec::number("syscall_ns", costs[1], NS, "entering and leaving a system call"),
        OptionSpec::number("page_lookup_ns", costs[2], NS, "looking a page up"),
        OptionSpec::number("page_copy_ns", costs[3], NS, "copying a page"),
        OptionSpec::number("page_add_ns", costs[4], NS, "adding a page to the cache"),
        OptionSpec::number("bio_ns", costs[5], NS, "building and submitting a bio"),
        OptionSpec::number("command_ns", costs[6], NS, "starting a command on the device"),
        OptionSpec::number("interrupt_ns", costs[7], NS, "handling an interrupt"),
        OptionSpec::number("switch_ns", costs[8], NS, "waking a task up and switching to it"),
        OptionSpec::number("timeslice_ms", 100, (1, 10_000), "how long a task may run while others wait"),
        OptionSpec::number("wake_min_us", 0, (0, 10_000), "least time an idle CPU takes to wake up"),
        OptionSpec::number("wake_max_us", 0, (0, 10_000), "most time it takes; uniform in between"),
        OptionSpec::number("wake_tail_us", 0, (0, 100_000), "most time that one wake-up of 128 takes"),
        OptionSpec::number("start_gap_us", 0, (0, 10_000), "time between the starts of a job's threads, in order"),
        OptionSpec::number("start_gap_max_us", 0, (0, 10_000), "most time between them; uniform in between"),
        OptionSpec::number("start_max_ms", 0, (0, 1_000), "latest start of the first one; uniform from 0"),
        OptionSpec::number("fetch_ns", 0, NS, "fetching the completion of an asynchronous call"),
        OptionSpec::number("fault_ns", costs[9], NS, "entering and leaving a page fault"),
        OptionSpec::number("map_page_ns", costs[10], NS, "mapping a page"),
        OptionSpec::number("noise_pct", 0, (0, 100), "by how much each cost may be off, to both sides"),
    ]
}

const fn origin(notes: &'static str) -> [Origin; 1] {
    [Origin { kernels: "any", file: "-", function: "-", notes }]
}

const NO_VECTORS: &str = "round numbers; the test of the 2004 ablations shows that they hardly matter there";

/// The machine of the 2004 report.
pub const ATHLON_2004: Entry<Build> = Entry {
    name: "athlon-2004",
    summary: "Athlon 800 MHz, 640 MB (the first report of 2004)",
    origin: &origin("results page of the 2004 report; costs from its study (docs/studies/incident-2004.md)"),
    options: &options(1, 640, 100, [15_000, 10_000, 0, 20_000, 4_000, 12_000, 20_000, 25_000, 8_000, 0, 0]),
    conformance: NO_VECTORS,
    build,
};

/// The server of the first report of 2010.
pub const XEON_2009: Entry<Build> = Entry {
    name: "xeon-2009",
    summary: "two Xeons of 2.27 GHz, 8 CPUs, 4 GB (the first report of 2010)",
    origin: &origin("host times of the study of that incident: wake 8 us, dispatch 6 us, completion 10 us"),
    options: &options(8, 4_096, 256, [10_000, 5_000, 300, 700, 500, 5_000, 6_000, 10_000, 8_000, 1_000, 80]),
    conformance: NO_VECTORS,
    build,
};

/// The laptop of the reports of 2012.
pub const LAPTOP_2011: Entry<Build> = Entry {
    name: "laptop-2011",
    summary: "laptop with 2 CPUs and 4 GB (the plug report of 2012)",
    origin: &origin("the kernel-list thread: 21.7 s of system time for 20 GiB, 1.06 ms per MiB, most of it per page"),
    options: &options(2, 4_096, 512, [300, 500, 500, 2_400, 1_000, 2_000, 3_000, 5_000, 4_000, 800, 60]),
    conformance: "per MiB as published; the split between copying and adding is an assumption",
    build,
};

/// A server of the years of per-task plugging.
pub const XEON_2012: Entry<Build> = Entry {
    name: "xeon-2012",
    summary: "8 CPUs of 2012, 8 GB",
    origin: &origin("order of magnitude of published system call and copy costs of the time"),
    options: &options(8, 8_192, 512, [300, 400, 60, 500, 250, 800, 1_000, 2_500, 2_000, 500, 40]),
    conformance: NO_VECTORS,
    build,
};

/// The machine with one socket of the report on the read-ahead window.
pub const DESKTOP_2015: Entry<Build> = Entry {
    name: "desktop-2015",
    summary: "8 CPUs of 2015, 16 GB (the UMA machine of the 2018 report)",
    origin: &origin("8 cores: the report; 16 GB and the costs: the study of that incident (1 us per page added)"),
    options: &options(8, 16_384, 1_024, [150, 250, 100, 300, 1_000, 1_000, 1_500, 3_000, 2_000, 400, 30]),
    conformance: NO_VECTORS,
    build,
};

/// A server of today.
pub const SERVER_2024: Entry<Build> = Entry {
    name: "server-2024",
    summary: "8 CPUs of 2024, 32 GB",
    origin: &origin("a cached 4 KiB pread takes 1.0 us on such a machine: 0.13 entry, 0.44 page cache, 0.43 copy"),
    options: &options(8, 32_768, 1_024, [100, 130, 440, 430, 300, 500, 400, 1_000, 1_200, 250, 25]),
    conformance: NO_VECTORS,
    build,
};

fn build(options: &Options) -> Machine {
    let ns = |name| Nanos(options.unsigned(name));
    let us = |name| Nanos::from_us(options.unsigned(name));
    let pages = |mb: u64| mb * 256;
    let memory = options.unsigned("memory_mb");
    Machine {
        nr_cpus: options.unsigned("cpus") as u32,
        smt_pct: options.unsigned("smt_pct"),
        cache_pages: pages(memory.saturating_sub(options.unsigned("reserved_mb")).max(4)),
        total_pages: pages(memory),
        tool: ns("tool_ns"),
        syscall: ns("syscall_ns"),
        page_lookup: ns("page_lookup_ns"),
        page_copy: ns("page_copy_ns"),
        page_add: ns("page_add_ns"),
        bio: ns("bio_ns"),
        command: ns("command_ns"),
        interrupt: ns("interrupt_ns"),
        switch: ns("switch_ns"),
        timeslice: Nanos::from_ms(options.unsigned("timeslice_ms")),
        wake: (us("wake_min_us"), us("wake_max_us")),
        wake_tail: us("wake_tail_us"),
        start: Nanos::from_ms(options.unsigned("start_max_ms")),
        start_gap: (us("start_gap_us"), us("start_gap_max_us")),
        fetch: ns("fetch_ns"),
        fault: ns("fault_ns"),
        map_page: ns("map_page_ns"),
        noise_pct: options.unsigned("noise_pct"),
    }
}
