//! Capabilities of this machine, disturbances of measurements, and leftovers of earlier runs.
//!
//! Abilities are tried out, not guessed from versions: a container may forbid what its kernel can do. Trying leaves
//! nothing behind. Disturbances are judged ([`disturbances`]) from [`Signs`] taken over a quarter of a second.

mod probe;
mod purpose;

pub use purpose::{Purpose, purposes};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ledger::{self, LedgerError, Left, State};
use crate::machine::{self, CpuTime, Disk, DiskDelta, Machine, Neighbours, Pressure};

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The folder whose disk and alignment were looked at.
    pub directory: PathBuf,
    pub machine: Machine,
    /// The disk below the folder.
    pub disk: Disk,
    pub disks: Vec<Disk>,
    pub abilities: Vec<Ability>,
    pub purposes: Vec<Purpose>,
    /// Checked disturbances, found or not.
    pub disturbances: Vec<Disturbance>,
    /// Where ledgers are kept.
    pub state_directory: PathBuf,
    /// Living processes that have made something.
    pub running: Vec<u32>,
    /// Leftovers of dead processes; after a repair: its result.
    pub left: Vec<Left>,
}

impl Report {
    /// Nothing is left behind that a repair could undo, or that it has failed to undo.
    pub fn is_clean(&self) -> bool {
        self.left.iter().all(|left| left.state == State::Undone)
    }
}

/// Whether something can be done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Has {
    /// It can.
    Yes,
    /// Some of it can.
    Partly,
    /// It cannot.
    No,
    /// It could not be tried.
    Unknown,
}

impl Has {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Has::Yes => "yes",
            Has::Partly => "partly",
            Has::No => "no",
            Has::Unknown => "unknown",
        }
    }
}

/// Something that a machine may or may not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Its stable name.
    pub name: &'static str,
    /// Its purpose here.
    pub purpose: &'static str,
    /// Whether it can be done.
    pub has: Has,
    /// Evidence.
    pub detail: String,
    /// Advice if it is missing; empty if it is not, or if nothing helps.
    pub advice: String,
}

/// Something that may disturb a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// Its stable name.
    pub name: &'static str,
    /// Whether it does; `None` if that cannot be seen.
    pub disturbs: Option<bool>,
    /// Evidence.
    pub detail: String,
    /// Advice if it does.
    pub advice: &'static str,
}

/// Evidence for the judgement of disturbances.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signs {
    pub machine: Machine,
    /// The processor may run faster than its nominal clock.
    pub turbo: Option<bool>,
    /// Swap space in use.
    pub swap_used_bytes: Option<u64>,
    /// Pages swapped in and out in the meantime.
    pub swapped_pages: Option<u64>,
    /// Dirty pages, and those being written.
    pub unwritten_bytes: Option<u64>,
    /// A hypervisor takes back what has been free for seconds.
    pub free_memory_goes: bool,
    /// CPU time in the meantime.
    pub cpu: Option<CpuTime>,
    /// Activity of the disks in the meantime.
    pub disks: Vec<DiskDelta>,
    /// How long that was.
    pub elapsed: Duration,
    /// Other runs of ours.
    pub running: usize,
}

/// For how long signs are taken.
const LOOK: Duration = Duration::from_millis(250);

/// Looks at everything. With `fix`, leftovers of dead processes are undone.
///
/// # Errors
/// If the folder of the ledgers cannot be read, or is not ours.
pub fn examine(directory: &Path, fix: bool) -> Result<Report, LedgerError> {
    let state_directory = ledger::state_directory();
    if fix {
        crate::disk::end_silent();
    }
    let left = if fix { ledger::sweep(&state_directory)? } else { ledger::left_behind(&state_directory)? };
    let running = ledger::running(&state_directory);
    let signs = Signs::take(running.len());
    let machine = signs.machine.clone();
    Ok(Report {
        directory: directory.to_owned(),
        disk: Disk::below(directory),
        disks: machine::disks(),
        abilities: probe::abilities(directory),
        purposes: purposes(),
        disturbances: disturbances(&signs),
        state_directory,
        machine,
        running,
        left,
    })
}

/// Counters that signs are differences of.
struct Counters {
    cpu: Option<CpuTime>,
    swapped: Option<u64>,
    disks: Vec<machine::DiskStat>,
    at: Instant,
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl Counters {
    fn read() -> Counters {
        Counters {
            cpu: text("/proc/stat").and_then(|stat| machine::cpu_time(&stat)),
            swapped: text("/proc/vmstat").and_then(|vmstat| swapped_pages(&vmstat)),
            disks: machine::current_diskstats(),
            at: Instant::now(),
        }
    }
}

/// Pages swapped in and out since the start of the machine, from `/proc/vmstat`.
fn swapped_pages(vmstat: &str) -> Option<u64> {
    let of = |key: &str| vmstat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    Some(of("pswpin ")? + of("pswpout ")?)
}

impl Signs {
    fn take(running: usize) -> Signs {
        // Read before anything is tried out, which would be seen as load.
        let machine = Machine::read();
        let before = Counters::read();
        std::thread::sleep(LOOK);
        let after = Counters::read();
        let elapsed = after.at - before.at;
        let memory = text("/proc/meminfo").unwrap_or_default();
        let of = |key: &str| machine::meminfo(&memory, key);
        let swap = of("SwapTotal").zip(of("SwapFree"));
        Signs {
            machine,
            turbo: turbo(
                text("/sys/devices/system/cpu/intel_pstate/no_turbo").as_deref(),
                text("/sys/devices/system/cpu/cpufreq/boost").as_deref(),
            ),
            swap_used_bytes: swap.map(|(total, free)| total.saturating_sub(free)),
            swapped_pages: before.swapped.zip(after.swapped).map(|(before, after)| after.saturating_sub(before)),
            unwritten_bytes: of("Dirty").zip(of("Writeback")).map(|(dirty, writeback)| dirty + writeback),
            free_memory_goes: crate::free_memory::is_taken_back(),
            cpu: before.cpu.zip(after.cpu).map(|(before, after)| CpuTime {
                total: after.total.saturating_sub(before.total),
                idle: after.idle.saturating_sub(before.idle),
                steal: after.steal.saturating_sub(before.steal),
            }),
            disks: DiskDelta::all(&before.disks, &after.disks, elapsed),
            elapsed,
            running,
        }
    }
}

/// Whether the processor may exceed its nominal clock, from `no_turbo` of intel_pstate or `boost` of other drivers.
fn turbo(no_turbo: Option<&str>, boost: Option<&str>) -> Option<bool> {
    no_turbo.map(|text| text.trim() == "0").or_else(|| boost.map(|text| text.trim() == "1"))
}

/// Tasks that want to run, for each CPU, from which on the load disturbs.
const LOAD_PER_CPU: f64 = 0.5;
/// Share of the time in which tasks wait, per cent.
const PRESSURE_PCT: f64 = 1.0;
/// Share of CPU time stolen by the hypervisor, per cent. A quarter of a second has some fifty ticks.
const STEAL_PCT: f64 = 1.0;
/// Dirty memory that will be written some time soon.
const UNWRITTEN_BYTES: u64 = 64 << 20;
/// Requests of others, a second.
const OTHERS_IOPS: f64 = 10.0;
/// Clock sources that are read without leaving user mode.
const QUICK_CLOCKS: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];

/// Waiting tasks, by resource: name, whether it disturbs, evidence, advice.
fn pressures(near: &Neighbours) -> [(&'static str, Option<bool>, String, &'static str); 3] {
    [
        ("cpu-pressure", near.cpu_pressure, "tasks wait for a CPU: end some, or use fewer threads than CPUs"),
        ("io-pressure", near.io_pressure, "tasks wait for I/O: `iotop` or `pidstat -d` list them"),
        ("memory-pressure", near.memory_pressure, "memory is short: the page cache will shrink in the middle of a run"),
    ]
    .map(|(name, pressure, advice): (_, Option<Pressure>, _)| {
        let detail = pressure.map_or_else(
            || "pressure (PSI) cannot be seen here".to_owned(),
            |pressure| format!("tasks waited in {:.2} % of the last 10 s", pressure.some_avg10_pct),
        );
        (name, pressure.map(|pressure| pressure.some_avg10_pct >= PRESSURE_PCT), detail, advice)
    })
}

/// Disks that others keep busy, with their rates.
fn busy_disks(signs: &Signs) -> Vec<String> {
    let per_second = |n: u64| n as f64 / signs.elapsed.as_secs_f64().max(1e-3);
    signs
        .disks
        .iter()
        .filter(|disk| per_second(disk.ios[0] + disk.ios[1]) >= OTHERS_IOPS)
        .map(|disk| {
            let [reads, writes] = disk.ios.map(|n| per_second(n).round());
            format!("{}: {reads} reads and {writes} writes a second", disk.name)
        })
        .collect()
}

/// Judges the signs.
pub fn disturbances(signs: &Signs) -> Vec<Disturbance> {
    let machine = &signs.machine;
    let near = &machine.neighbours;
    let mut all = Vec::new();
    let mut add = |name, disturbs, detail: String, advice| {
        all.push(Disturbance { name, disturbs, detail, advice });
    };
    let unseen = |what: &str| format!("{what} cannot be seen here");

    let governor = machine.governor.as_deref();
    add(
        "governor",
        governor.map(|name| name != "performance"),
        governor.map_or_else(|| unseen("the governor of the CPUs' clock"), |name| format!("governor {name}")),
        "the clock follows the load: echo performance > /sys/devices/system/cpu/cpuN/cpufreq/scaling_governor",
    );
    add(
        "turbo",
        signs.turbo,
        match signs.turbo {
            Some(true) => "the clock may exceed its nominal rate".to_owned(),
            Some(false) => "off".to_owned(),
            None => unseen("turbo"),
        },
        "the clock depends on the temperature: echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or \
         echo 0 > /sys/devices/system/cpu/cpufreq/boost",
    );
    let clock = machine.clocksource.as_deref();
    add(
        "clocksource",
        clock.map(|name| !QUICK_CLOCKS.contains(&name)),
        clock.map_or_else(|| unseen("the clock source"), |name| format!("clock source {name}")),
        "each look at the clock is a system call or worse; see available_clocksource next to \
         /sys/devices/system/clocksource/clocksource0/current_clocksource",
    );
    let load = near.load.zip(machine.cpus);
    add(
        "load",
        load.map(|(load, cpus)| load[0] / f64::from(cpus.max(1)) >= LOAD_PER_CPU),
        load.map_or_else(
            || unseen("the load"),
            |(load, cpus)| format!("load {:.2} on {cpus} CPUs, {} tasks runnable", load[0], near.running.unwrap_or(0)),
        ),
        "others use the CPUs: end them, or wait until the load has fallen",
    );
    pressures(near).into_iter().for_each(|(name, disturbs, detail, advice)| add(name, disturbs, detail, advice));
    let steal = signs.cpu.filter(|cpu| cpu.total > 0).map(|cpu| 100.0 * cpu.steal as f64 / cpu.total as f64);
    add(
        "steal",
        steal.map(|pct| pct >= STEAL_PCT),
        steal.map_or_else(
            || unseen("stolen CPU time"),
            |pct| format!("{pct:.1} % of the CPU time went to other guests"),
        ),
        "the host is shared: repeat often, compare interleaved runs only",
    );
    add(
        "swap",
        signs.swapped_pages.map(|pages| pages > 0),
        match (signs.swap_used_bytes, signs.swapped_pages) {
            (used, Some(pages)) => format!("{} MiB in use, {pages} pages moved just now", used.unwrap_or(0) >> 20),
            _ => unseen("swapping"),
        },
        "swapping is I/O, too: `swapoff -a`, or end what needs the memory",
    );
    add(
        "dirty-pages",
        signs.unwritten_bytes.map(|bytes| bytes >= UNWRITTEN_BYTES),
        signs
            .unwritten_bytes
            .map_or_else(|| unseen("dirty memory"), |bytes| format!("{} MiB wait to be written", bytes >> 20)),
        "they will be written in the middle of a run: `sync` first",
    );
    add(
        "free-memory",
        Some(signs.free_memory_goes),
        format!("the hypervisor {} free memory back", if signs.free_memory_goes { "takes" } else { "does not take" }),
        "cached I/O is slower after a pause of seconds, by what the host needs to make memory again: `iowhy run` \
         touches memory before each run; other programs: compare runs without pauses",
    );
    let busy = busy_disks(signs);
    add(
        "other-io",
        Some(!busy.is_empty()),
        if busy.is_empty() { "the disks are quiet".to_owned() } else { busy.join("; ") },
        "others use the disks: `iotop` or `pidstat -d` say who",
    );
    add(
        "other-runs",
        Some(signs.running > 0),
        format!("{} other live runs", signs.running),
        "wait until they have ended",
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Signs {
        let calm = Some(Pressure::default());
        Signs {
            machine: Machine {
                governor: Some("performance".into()),
                clocksource: Some("tsc".into()),
                cpus: Some(4),
                neighbours: Neighbours {
                    load: Some([0.1, 0.2, 0.3]),
                    running: Some(1),
                    cpu_pressure: calm,
                    io_pressure: calm,
                    memory_pressure: calm,
                },
                ..Machine::default()
            },
            turbo: Some(false),
            swap_used_bytes: Some(5 << 20),
            swapped_pages: Some(0),
            unwritten_bytes: Some(1 << 20),
            free_memory_goes: false,
            cpu: Some(CpuTime { total: 100, idle: 95, steal: 0 }),
            disks: vec![disk([1, 1])],
            elapsed: Duration::from_millis(250),
            running: 0,
        }
    }

    fn disk(ios: [u64; 2]) -> DiskDelta {
        DiskDelta { name: "sda".into(), ios, ..DiskDelta::default() }
    }

    /// Names of what disturbs, and of what cannot be seen.
    fn judged(signs: &Signs) -> (Vec<&'static str>, Vec<&'static str>) {
        let all = disturbances(signs);
        let of = |wanted| all.iter().filter(|it| it.disturbs == wanted).map(|it| it.name).collect();
        (of(Some(true)), of(None))
    }

    #[test]
    fn each_sign_is_judged_by_itself() {
        assert_eq!(judged(&quiet()), (vec![], vec![]));
        let pressed = Some(Pressure { some_avg10_pct: 1.0, full_avg10_pct: 0.0 });
        type Change = fn(&mut Signs, Option<Pressure>);
        let cases: [(&str, Change); 14] = [
            ("governor", |signs, _| signs.machine.governor = Some("schedutil".into())),
            ("turbo", |signs, _| signs.turbo = Some(true)),
            ("clocksource", |signs, _| signs.machine.clocksource = Some("hpet".into())),
            ("load", |signs, _| signs.machine.neighbours.load = Some([2.0, 0.0, 0.0])),
            ("cpu-pressure", |signs, pressed| signs.machine.neighbours.cpu_pressure = pressed),
            ("io-pressure", |signs, pressed| signs.machine.neighbours.io_pressure = pressed),
            ("memory-pressure", |signs, pressed| signs.machine.neighbours.memory_pressure = pressed),
            ("steal", |signs, _| signs.cpu = Some(CpuTime { total: 100, idle: 0, steal: 1 })),
            ("swap", |signs, _| signs.swapped_pages = Some(1)),
            ("dirty-pages", |signs, _| signs.unwritten_bytes = Some(64 << 20)),
            ("free-memory", |signs, _| signs.free_memory_goes = true),
            ("other-io", |signs, _| signs.disks = vec![disk([0, 3])]),
            ("other-io", |signs, _| signs.disks = vec![disk([3, 0])]),
            ("other-runs", |signs, _| signs.running = 1),
        ];
        for (name, change) in cases {
            let mut signs = quiet();
            change(&mut signs, pressed);
            assert_eq!(judged(&signs), (vec![name], vec![]), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_said_to_be_so() {
        let (disturbing, unseen) = judged(&Signs::default());
        assert_eq!(disturbing, [""; 0]);
        assert_eq!(unseen.len(), 10, "{unseen:?}");
        assert!(disturbances(&Signs::default()).iter().all(|it| !it.detail.is_empty() && !it.advice.is_empty()));
    }

    #[test]
    fn sources_are_read_as_the_kernel_writes_them() {
        assert_eq!(swapped_pages("pgpgin 7\npswpin 3\npswpout 4\n"), Some(7));
        assert_eq!(swapped_pages("pgpgin 7\n"), None);
        let cases = [
            (Some("0\n"), None, Some(true)),
            (Some("1\n"), Some("1\n"), Some(false)),
            (None, Some("1\n"), Some(true)),
            (None, Some("0\n"), Some(false)),
            (None, None, None),
        ];
        for (no_turbo, boost, on) in cases {
            assert_eq!(turbo(no_turbo, boost), on);
        }
    }

    #[test]
    fn every_ability_is_tried_out_once_and_explained() {
        let abilities = probe::abilities(&std::env::temp_dir());
        let mut names: Vec<&str> = abilities.iter().map(|ability| ability.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == count && count >= 12, "{names:?}");
        for ability in &abilities {
            assert!(!ability.detail.is_empty() && !ability.purpose.is_empty(), "{ability:?}");
            assert!(
                ability.has == Has::Yes || ability.has == Has::Unknown || !ability.advice.is_empty(),
                "{ability:?}"
            );
        }
    }
}
