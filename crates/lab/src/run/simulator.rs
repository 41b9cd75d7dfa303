//! Runs in the simulator: `--on sim:KERNEL`.

use std::fmt::Write;
use std::sync::Arc;

use iowhy_fio::World;
use iowhy_stack::kernel::Stack;
use iowhy_stack::layers::Layers;
use iowhy_stack::outcome::{Outcome, Plan, RunError};
use iowhy_stack::sim;
use iowhy_stack::units::PAGE_BYTES;
use iowhy_stats::figure;
use iowhy_text as text;
use iowhy_text::diagnose::Problems;
use serde_json::json;

use super::backend::{Backend, Files, JobWords, Kind, Making, Place, Refusal, RunRecord, Shared, Typed};
use super::lines::{self, time};
use super::metrics::{self, Totals};
use super::{Shape, checked, device_bytes, fio, machine, options, record, replay};
use crate::store::{DataFile, EventWriter, Manifest, NewRun, Sampler};
use crate::{modelled_disk, place, simulated_json};

/// Everything that names no other kind.
pub(super) const KIND: Kind = Kind { names: |_| true, read, help: String::new };

/// A stack, with the words for it in full.
struct Simulated {
    stack: Stack,
    in_full: (String, Option<String>),
}

fn read(typed: &Typed<'_>, problems: &mut Problems) -> Option<Box<dyn Place>> {
    let twin = typed.disk.map(|disk| modelled_disk::twin(typed.on, disk, typed.beside));
    let (on, disk) = twin.as_ref().map_or((typed.on, None), |(on, disk, _)| (on.as_str(), Some(disk.as_str())));
    let stack = place::parse(on, disk, problems);
    let in_full = (on.to_owned(), disk.map(str::to_owned));
    match twin {
        // A mistake in the disk is reported once, by the side that shows best where it is.
        Some((.., wrong)) if stack.is_some() && wrong.any_error() => {
            problems.list.extend(wrong.list);
            None
        }
        _ => Some(Box::new(Simulated { stack: stack?, in_full })),
    }
}

/// A stack to check jobs with that are not simulated.
pub(super) fn any_stack() -> Stack {
    Stack::new(&iowhy_stack::kernel::KERNELS[iowhy_stack::kernel::KERNELS.len() - 1])
}

/// Some place, for jobs without one.
pub(super) fn anywhere() -> Box<dyn Place> {
    Box::new(Simulated { stack: any_stack(), in_full: (String::new(), None) })
}

impl Place for Simulated {
    fn backend(&self, asked: &JobWords<'_>, problems: &mut Problems) -> Option<(Arc<dyn Backend>, Shape)> {
        let (plan, shape) = plan(asked, &self.stack, problems)?;
        let plan = shape.seeded(&plan, asked.seed);
        Some((Arc::new(Simulator { plan, in_full: self.in_full.clone() }), shape))
    }
}

/// The world as it is on the simulated machine.
fn world_of<'a>(stack: &Stack, world: &World<'a>) -> World<'a> {
    let machine = machine(stack);
    World {
        page_bytes: PAGE_BYTES,
        memory_mib: (machine.total_pages * PAGE_BYTES) >> 20,
        cpus: u64::from(machine.nr_cpus),
        ..*world
    }
}

/// The plan of a job on a simulated stack.
fn plan(asked: &JobWords<'_>, stack: &Stack, problems: &mut Problems) -> Option<(Plan, Shape)> {
    let mut stack = stack.clone();
    let words = asked.words;
    let (mut job, shape) = match asked.builtin {
        Some(builtin) => {
            let values = options::parse(builtin.name, builtin.options, &words[1..], problems);
            if problems.any_error() { None } else { (builtin.build)(&values, &mut stack, problems) }
        }
        None if asked.replay.form.is_some() || replay::is_trace(words) => {
            replay::build(&words[0], asked.replay, replay::ReplaySite::Simulated(device_bytes(&stack)), problems)
        }
        None => {
            let world = world_of(&stack, asked.world);
            fio::file(words, &world, problems).and_then(|file| fio::build(&file, &world, &mut stack, problems))
        }
    }?;
    let _ = asked.limit.apply(&mut job);
    checked(&job, problems).then_some((Plan { stack, job }, shape))
}

/// A job in the simulator.
#[derive(Clone, Debug)]
pub struct Simulator {
    /// Its plan, with the first seed.
    pub plan: Plan,
    /// `--on` and `--disk` in full: they mean the same in any company.
    in_full: (String, Option<String>),
}

impl Backend for Simulator {
    fn make(&self, making: &Making<'_>, _shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let shape = &making.variant.shape;
        let plan = shape.seeded(&self.plan, making.seed);
        let (outcome, files) = simulate(&plan, making)?;
        let totals = Totals {
            job: &plan.job,
            elapsed: outcome.elapsed,
            end: outcome.end,
            counts: &outcome.counts,
            latency: &outcome.latency,
            threads: outcome.threads.clone(),
            lines: &outcome.jobs,
            cpu_s: outcome.cpu_busy.as_secs_f64(),
        };
        let mut measured = metrics::of_job(shape, &totals);
        let opening = &outcome.opening;
        if plan.job.opening.is_some() {
            measured.push(("open_races".to_owned(), f64::from(u8::from(opening.raced))));
            measured.push(("stale_pages".to_owned(), opening.stale_pages as f64));
        }
        let mut detail = format!("seed {}, event hash {}\n\n", making.seed, figure::hash(outcome.event_hash));
        // Writing to a string cannot fail.
        let _ = lines::of_job(&mut detail, shape, &totals)
            .and_then(|()| device(&mut detail, &outcome.layers))
            .and_then(|()| layers(&mut detail, &outcome));
        let mut run = RunRecord {
            metrics: measured,
            place: format!("sim:{}", plan.stack.describe()),
            disk: Some(plan.stack.device.entry.name.to_owned()),
            made_on: format!("sim:{}, disk {}", plan.stack.describe(), plan.stack.device.entry.name),
            detail,
            events: Some((outcome.event_hash, outcome.nr_events)),
            layers: Some(simulated_json::layers(&outcome.layers)),
            device: Some(simulated_json::device(&outcome.device)),
            opening: Some(json!({
                "raced": opening.raced, "probes": opening.probes, "stale_pages": opening.stale_pages
            })),
            ..RunRecord::default()
        };
        run.row = files.map(|files| Ok(Box::new(self.row(making, &plan, &run, files?))));
        Ok(run)
    }

    fn is_real(&self) -> bool {
        false
    }
}

impl Simulator {
    /// The row for the store.
    fn row(&self, making: &Making<'_>, plan: &Plan, run: &RunRecord, files: Vec<DataFile>) -> NewRun {
        let machine = record::simulated_machine(&plan.stack);
        // So that the run can be made again with one thing switched.
        let (on, disk) = &self.in_full;
        let disk = disk.iter().map(|disk| format!(" --disk {disk}")).collect::<String>();
        let command = format!("run {} --on {on}{disk}", making.request.job.join(" "));
        NewRun {
            simulated: true,
            resolved: Some(json!(plan.job).to_string()),
            place: Some(run.place.clone()),
            machine_hash: record::hash(&machine),
            machine: Some(machine),
            policies: Some(record::simulated_policies(&plan.stack)),
            manifest: Some(Manifest { command: Some(command), ..Manifest::default() }),
            event_hash: run.events.map(|(hash, _)| hash),
            layers: run.layers.clone(),
            files,
            ..NewRun::default()
        }
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Refusal {
        Refusal::new(error)
    }
}

/// A simulated run, and its record if there is a store.
fn simulate(plan: &Plan, making: &Making<'_>) -> Result<(Outcome, Files), RunError> {
    let Some(store) = making.store else { return Ok((sim::run(plan)?, None)) };
    if making.trace().is_some() {
        let mut writer = match EventWriter::new(store) {
            Ok(writer) => writer,
            Err(error) => return Ok((sim::run(plan)?, Some(Err(error)))),
        };
        let outcome = sim::run_with(plan, &mut writer)?;
        return Ok((outcome, Some(writer.finish(store).map(Vec::from))));
    }
    let mut sampler = Sampler::default();
    let outcome = sim::run_with(plan, &mut sampler)?;
    Ok((outcome, Some(sampler.finish(store).map(|file| vec![file]))))
}

fn device(out: &mut String, layers: &Layers) -> std::fmt::Result {
    let row = layers.iostat();
    writeln!(out, "\ndevice (iostat -x)")?;
    for (letter, dir) in [("r", &row.read), ("w", &row.write)] {
        let names = ["/s", "kB/s", "rqm/s"].map(|name| format!("{letter}{name}"));
        let names =
            names.into_iter().chain([format!("%{letter}rqm"), format!("{letter}_await"), format!("{letter}areq-sz")]);
        writeln!(out, "  {}", names.map(|name| format!("{name:>12}")).collect::<String>())?;
        let values = [dir.per_s, dir.kb_per_s, dir.rqm_per_s, dir.rqm_pct, dir.await_ms, dir.areq_sz_kb];
        writeln!(out, "  {}", values.map(|value| format!("{value:>12.2}")).concat())?;
    }
    writeln!(out, "  {:>12}{:>12}{:>12}", "aqu-sz", "%util", "svctm")?;
    writeln!(out, "  {:>12.2}{:>12.2}{:>12.2}", row.aqu_sz, row.util_pct, row.svctm_ms)
}

fn layers(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let layers = &outcome.layers;
    let grouped = text::grouped;
    let [sync, asynchronous, force, single, around, exec, huge] = layers.windows;
    let [hit, broken, timeout] = layers.idles;
    writeln!(out, "\nlayers")?;
    writeln!(
        out,
        "  page cache   {} hits, {} misses, {} pages added, {} written back",
        grouped(layers.hits),
        grouped(layers.misses),
        grouped(layers.pages_added),
        grouped(layers.writeback_pages)
    )?;
    writeln!(
        out,
        "  read-ahead   windows: {} sync, {} async, {} forced; {} single pages",
        grouped(sync),
        grouped(asynchronous),
        grouped(force),
        grouped(single)
    )?;
    let [minor, major] = layers.faults;
    if minor + major > 0 {
        writeln!(
            out,
            "  mappings     {} minor faults, {} major; windows: {} around a fault, {} huge or executable",
            grouped(minor),
            grouped(major),
            grouped(around),
            grouped(exec + huge)
        )?;
    }
    writeln!(
        out,
        "  requests     {} read, {} written; {} bios merged",
        grouped(layers.reads.completed),
        grouped(layers.writes.completed),
        grouped(layers.reads.merges + layers.writes.merges)
    )?;
    writeln!(
        out,
        "  elevator     waited {} times, {} in all ({} hit, {} broken, {} timed out)",
        grouped(hit + broken + timeout),
        time(layers.idle_time.0 as f64),
        grouped(hit),
        grouped(broken),
        grouped(timeout)
    )?;
    writeln!(
        out,
        "  device       {} seeks, mean depth {:.2}",
        grouped(layers.seeks),
        figure::finite(figure::mean(&layers.depth))
    )?;
    let opening = &outcome.opening;
    if opening.probes > 0 || opening.raced {
        let raced = if opening.raced { "two threads raced" } else { "no race" };
        writeln!(
            out,
            "  opening      {raced}, {}, {} left in the cache",
            text::count(u64::from(opening.probes), "probe", "probes"),
            text::count(opening.stale_pages, "page", "pages")
        )?;
    }
    if layers.commits > 0 {
        writeln!(
            out,
            "  journal      {}, {}",
            text::count(layers.commits, "commit", "commits"),
            text::count(layers.journal_blocks, "block", "blocks")
        )?;
    }
    writeln!(out, "  CPU          {:.3} s", outcome.cpu_busy.as_secs_f64())
}
