//! Processor time of calls, pages, bios and interrupts, from the gaps between the records of a trace.
//!
//! ```text
//! syscall, page copy   calls of a task between whose begin and end nothing but lookups was traced: a line over pages
//! page add             from a page added to the next one of the same task
//! bio                  from the page before a bio, or the begin of a call without pages, to the bio
//! command              from a request that a task inserted, or got, to the one that the same task issued
//! interrupt            from a completion to the wake-up on the same processor
//! switch, wake         from a wake-up to the switch to that task; without records of these, from the completion of the
//!                      last command that a call waited for to the task's next record
//! ```
//! Each is a median with its interval. Costs include that of the trace points in between: they are those of the
//! recorded run.

use std::collections::BTreeMap;

use iowhy_stack::machine::SERVER_2024;
use iowhy_stack::service::{QUARTER, Service, at};
use iowhy_stack::trace::{Dev, Seen, Trace};
use iowhy_stack::units::PAGE_SECTORS;
use iowhy_stats::bootstrap::{quantile, quantile_interval};
use iowhy_trace::settings::Settings;

use super::fit::sorted;
use super::{FIELDS, Field, To};

/// Gaps of which a cost is made.
const LEAST: usize = 20;
/// A longer gap is not code: another task, a page fault or an interrupt came between.
const LONGEST: u64 = 1_000_000;

/// A task while the trace goes on.
#[derive(Default)]
struct Task {
    /// When its call began, pages it found, and whether it did anything else.
    call: Option<(u64, u64)>,
    busy: bool,
    last: Option<(u64, Last)>,
    woken: Option<u64>,
    /// The completion of a command of its own that may have ended its sleep.
    done: Option<u64>,
}

#[derive(Copy, Clone, PartialEq)]
enum Last {
    Begin,
    Page,
    Request,
    Other,
}

/// Gaps by cost.
#[derive(Default)]
struct Gaps {
    /// Pages and time of calls that found everything.
    calls: Vec<(f64, f64)>,
    page_add: Vec<f64>,
    bio: Vec<f64>,
    command: Vec<f64>,
    interrupt: Vec<f64>,
    switch: Vec<f64>,
    /// From a completion to the task's next record.
    back: Vec<f64>,
}

/// The costs that a trace shows.
pub(super) fn costs(trace: &Trace, device: Dev) -> BTreeMap<String, Field> {
    let gaps = gaps(trace, device);
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, values: &[f64], q: f64, unit: &'static str, scale: f64| {
        let values = sorted(values.iter().copied());
        if values.len() >= LEAST {
            let interval = quantile_interval(&values, q, 0.95);
            let [value, low, high] = [interval.estimate, interval.low.max(0.0), interval.high].map(|ns| ns / scale);
            fields.insert(name.to_owned(), Field { value, low, high, unit, known: true });
        }
    };
    let (syscall, copy) = line(&gaps.calls);
    add("syscall_ns", &syscall, 0.5, "ns", 1.0);
    add("page_copy_ns", &copy, 0.5, "ns", 1.0);
    add("page_add_ns", &gaps.page_add, 0.5, "ns", 1.0);
    add("bio_ns", &gaps.bio, 0.5, "ns", 1.0);
    add("command_ns", &gaps.command, 0.5, "ns", 1.0);
    add("interrupt_ns", &gaps.interrupt, 0.5, "ns", 1.0);
    // The least is the switch itself; what varies above it is the processor waking up.
    let back = if gaps.switch.len() >= LEAST { &gaps.switch } else { &gaps.back };
    add("switch_ns", back, 0.05, "ns", 1.0);
    let least = quantile(&sorted(back.iter().copied()), 0.05);
    let above: Vec<f64> = back.iter().map(|ns| (ns - least).max(0.0)).collect();
    // Uniform between two ends has its quarters here.
    let quarters = [0.25, 0.75].map(|q| quantile(&sorted(above.iter().copied()), q));
    let ends = [(3.0 * quarters[0] - quarters[1]) / 2.0, (3.0 * quarters[1] - quarters[0]) / 2.0];
    for (name, end) in [("wake_min_us", ends[0]), ("wake_max_us", ends[1])] {
        if above.len() >= LEAST {
            let (value, high) = (end.max(0.0) / 1000.0, quantile(&sorted(above.iter().copied()), 0.95) / 1000.0);
            let known = true;
            fields.insert(name.to_owned(), Field { value, low: 0.0, high: high.max(value), unit: "us", known });
        }
    }
    let said = Settings::of(trace).get("machine", "cpus").and_then(|cpus| cpus.parse().ok());
    let seen = trace.records.iter().map(|record| record.cpu + 1).max().unwrap_or(1);
    let value = f64::from(said.unwrap_or(seen));
    let high = if said.is_some() { value } else { f64::INFINITY };
    fields.insert("cpus".to_owned(), Field { value, low: value, high, unit: "CPUs", known: said.is_some() });
    for (name, unit, to, _) in FIELDS {
        // What was not measured is that of a server of today, or anything.
        if let To::Machine(option) = to {
            let value = SERVER_2024.defaults().get(option) as f64;
            fields.entry((*name).to_owned()).or_insert(Field::guess(unit, value, 0.0, f64::INFINITY));
        }
    }
    fields
}

/// Costs of a small read between the program and the device in ns, and the bounds of what a wake-up adds in us.
const PATH: [&str; 4] = ["bio_ns", "command_ns", "interrupt_ns", "switch_ns"];
const WAKE: [&str; 2] = ["wake_min_us", "wake_max_us"];
/// Sizes of the probe's calls on cached pages, in pages.
const CACHED: [(&str, f64); 2] = [("cached-4k", 1.0), ("cached-64k", 16.0)];
/// Small reads of the probe, and whether they are in sequence.
const SMALL: [(&str, bool); 2] = [("read-4k-1-0-", true), ("randread-4k-1-0-", false)];

/// Least share of the recorded costs that is taken for the machine's.
const LEAST_LEFT: f64 = 0.1;

/// Takes off what the recorder added: cached calls have a line over their pages, and all else is scaled to the time
/// that is left of a small read without its time at the device. `median` is the time of calls of a load in ns.
pub(super) fn unrecorded(
    fields: &mut BTreeMap<String, Field>,
    service: &Service,
    median: &dyn Fn(&str) -> Option<f64>,
) {
    let tool = SERVER_2024.defaults().get("tool_ns") as f64;
    let known =
        |fields: &BTreeMap<String, Field>, name: &str| fields.get(name).filter(|of| of.known).map(|of| of.value);
    let scale = |fields: &mut BTreeMap<String, Field>, name: &str, by: f64| {
        if let Some(field) = fields.get_mut(name).filter(|field| field.known) {
            [&mut field.value, &mut field.low, &mut field.high].into_iter().for_each(|ns| *ns *= by);
        }
    };
    if let [Some(one), Some(many)] = CACHED.map(|(load, _)| median(load))
        && let Some(before) = known(fields, "page_copy_ns").zip(known(fields, "syscall_ns"))
        && let copy = (many - one) / (CACHED[1].1 - CACHED[0].1)
        && (0.0..one - tool).contains(&copy)
    {
        scale(fields, "page_copy_ns", (copy / before.0).min(1.0));
        scale(fields, "syscall_ns", ((one - tool - copy) / before.1.max(1.0)).min(1.0));
    }
    // An arm hides everything else; sequences do not move it.
    let path = SMALL.iter().filter_map(|(load, next)| {
        let row = service.rows_of(false, *next).first().filter(|row| u64::from(row.sectors) == PAGE_SECTORS)?;
        Some((at(&row.ns, 2 * QUARTER), median(load)?))
    });
    let path = path.min_by_key(|(device, _)| *device).map(|(device, call)| call - device as f64 - tool);
    let recorded = PATH.iter().filter_map(|name| known(fields, name)).sum::<f64>()
        + WAKE.iter().filter_map(|name| known(fields, name)).sum::<f64>() * 1000.0 / 2.0;
    if let Some(path) = path.map(|path| path - known(fields, "syscall_ns").unwrap_or(0.0))
        && recorded > 0.0
    {
        let by = (path / recorded).clamp(LEAST_LEFT, 1.0);
        PATH.iter().chain(&WAKE).for_each(|name| scale(fields, name, by));
    }
}

fn gaps(trace: &Trace, device: Dev) -> Gaps {
    let mut gaps = Gaps::default();
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    // Who queued the sectors, and the last completion of each processor.
    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    let mut completions: BTreeMap<u32, u64> = BTreeMap::new();
    // With others at the device its completions keep processors busy: what a task waits for then is its turn.
    let mut flying: u64 = 0;
    let short = |from: u64, to: u64| Some((to - from) as f64).filter(|_| to - from <= LONGEST);
    for record in &trace.records {
        let at = record.at.0;
        match &record.seen {
            Seen::Complete { extent, .. } => {
                completions.insert(record.cpu, at);
                flying = flying.saturating_sub(u64::from(extent.dev == device));
                if extent.dev == device
                    && let Some(owner) = owners.remove(&extent.sector.0)
                    && let Some(task) = tasks.get_mut(&owner)
                {
                    task.done = Some(at).filter(|_| flying == 0);
                }
                continue;
            }
            Seen::Issue(extent) => flying += u64::from(extent.dev == device),
            Seen::Wake { pid } => {
                gaps.interrupt.extend(completions.remove(&record.cpu).and_then(|done| short(done, at)));
                let task = tasks.entry(*pid).or_default();
                if task.done.is_some() {
                    task.woken = Some(at);
                }
                continue;
            }
            Seen::Switch { next, .. } => {
                let task = tasks.entry(*next).or_default();
                if let Some(woken) = task.woken.take() {
                    gaps.switch.extend(short(woken, at));
                    (task.done, task.last) = (None, None);
                }
                if let Some(left) = tasks.get_mut(&record.pid) {
                    left.last = None;
                    left.busy = true;
                }
                continue;
            }
            _ => {}
        }
        if record.pid == 0 {
            continue;
        }
        let task = tasks.entry(record.pid).or_default();
        if let Some(done) = task.done.take().filter(|_| task.woken.is_none()) {
            gaps.back.extend(short(done, at));
            task.last = None;
        }
        let gap = |task: &Task, lasts: &[Last]| {
            let (from, _) = task.last.filter(|(_, last)| lasts.contains(last))?;
            short(from, at)
        };
        let mut last = Last::Other;
        match &record.seen {
            Seen::CallStart { .. } => {
                (task.call, task.busy, last) = (Some((at, 0)), false, Last::Begin);
            }
            Seen::CallEnd { result, .. } => {
                if let Some((from, pages)) = task.call.take().filter(|_| !task.busy && *result > 0) {
                    // Without records of lookups the result tells how many pages were copied.
                    let pages = pages.max((*result as u64).div_ceil(4096));
                    gaps.calls.extend(short(from, at).map(|ns| (pages as f64, ns)));
                }
            }
            Seen::GetPages { index, last_index, .. } => {
                if let Some((_, pages)) = &mut task.call {
                    *pages += last_index.saturating_sub(*index);
                }
            }
            Seen::PageAdd { order, .. } => {
                let pages = f64::from(1u32 << order.min(&10));
                gaps.page_add.extend(gap(task, &[Last::Page]).map(|ns| ns / pages));
                (task.busy, last) = (true, Last::Page);
            }
            Seen::Queue(extent) => {
                gaps.bio.extend(gap(task, &[Last::Begin, Last::Page]));
                task.busy = true;
                if extent.dev == device {
                    owners.insert(extent.sector.0, record.pid);
                }
            }
            Seen::GetRequest(_) | Seen::Insert(_) => (task.busy, last) = (true, Last::Request),
            Seen::Issue(_) => gaps.command.extend(gap(task, &[Last::Request])),
            Seen::Other { name, .. } if name.starts_with("iowhy:") => continue,
            _ => task.busy = true,
        }
        task.last = Some((at, last));
    }
    gaps
}

/// Times of calls as a part for each and a part for each page: calls with the fewest pages, less their share of the
/// slope, and slopes of the largest over the median of those.
fn line(calls: &[(f64, f64)]) -> (Vec<f64>, Vec<f64>) {
    let pages = sorted(calls.iter().map(|(pages, _)| *pages));
    let (Some(least), Some(most)) = (pages.first().copied(), pages.last().copied()) else { return Default::default() };
    let of = |nr: f64| sorted(calls.iter().filter(|(pages, _)| *pages == nr).map(|(_, ns)| *ns));
    let few = of(least);
    if most <= least {
        // One size: a copy of 4 KiB is guessed to be two fifths of such a call.
        return (
            few.iter().map(|ns| (ns - ns * 0.4).max(0.0)).collect(),
            few.iter().map(|ns| ns * 0.4 / least).collect(),
        );
    }
    let base = quantile(&few, 0.5);
    let large = calls.iter().filter(|(pages, _)| *pages > (least + most) / 2.0);
    let slopes: Vec<f64> = large.map(|(pages, ns)| ((ns - base) / (pages - least)).max(0.0)).collect();
    let slope = quantile(&sorted(slopes.iter().copied()), 0.5);
    (few.iter().map(|ns| (ns - slope * least).max(0.0)).collect(), slopes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::service::{NR_LEVELS, Row};

    #[test]
    fn what_the_recorder_added_is_taken_off() {
        let row = |us: u64| vec![Row { sectors: PAGE_SECTORS as u32, ns: [us * 1000; NR_LEVELS] }];
        let service = Service { rows: [row(5_000), row(40), vec![], vec![]], ..Service::default() };
        let recorded = [
            ("syscall_ns", "ns", 800.0, true),
            ("page_copy_ns", "ns", 500.0, true),
            ("bio_ns", "ns", 4_000.0, true),
            ("command_ns", "ns", 700.0, false),
            ("interrupt_ns", "ns", 1_000.0, true),
            ("switch_ns", "ns", 5_000.0, true),
            ("wake_min_us", "us", 0.0, true),
            ("wake_max_us", "us", 20.0, true),
        ];
        for (sequence_us, path_ns) in [(50.3, 10_000.0), (100.3, 20_000.0), (30.0, 2_000.0)] {
            let field = |(name, unit, value, known): &(&str, &'static str, f64, bool)| {
                (name.to_string(), Field { value: *value, low: value / 2.0, high: value * 2.0, unit, known: *known })
            };
            let mut fields: BTreeMap<String, Field> = recorded.iter().map(field).collect();
            // 100 ns are the program's own, 200 those of the call, 300 those of each page.
            let median = |load: &str| match load {
                "cached-4k" => Some(600.0),
                "cached-64k" => Some(5_100.0),
                "read-4k-1-0-" => Some(sequence_us * 1000.0),
                _ => Some(5_300_000.0),
            };
            unrecorded(&mut fields, &service, &median);
            let of = |name: &str| fields[name].value;
            assert_eq!([of("syscall_ns"), of("page_copy_ns"), of("command_ns")], [200.0, 300.0, 700.0]);
            let path = of("bio_ns") + of("interrupt_ns") + of("switch_ns") + of("wake_max_us") * 500.0;
            assert!((path - path_ns).abs() < 1.0, "{sequence_us} us: {path}");
            assert!(fields.values().all(|of| of.low <= of.value && of.value <= of.high));
        }
    }
}
