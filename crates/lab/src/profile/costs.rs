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
use iowhy_stack::trace::{Dev, Seen, Trace};
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

fn gaps(trace: &Trace, device: Dev) -> Gaps {
    let mut gaps = Gaps::default();
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    // Who queued the sectors, and the last completion of each processor.
    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    let mut completions: BTreeMap<u32, u64> = BTreeMap::new();
    let short = |from: u64, to: u64| Some((to - from) as f64).filter(|_| to - from <= LONGEST);
    for record in &trace.records {
        let at = record.at.0;
        match &record.seen {
            Seen::Complete { extent, .. } => {
                completions.insert(record.cpu, at);
                if extent.dev == device
                    && let Some(owner) = owners.remove(&extent.sector.0)
                    && let Some(task) = tasks.get_mut(&owner)
                {
                    task.done = Some(at);
                }
                continue;
            }
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
