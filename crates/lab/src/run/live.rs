//! Runs on the running kernel: `--on live`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use iowhy_fio as fio_jobs;
use iowhy_live::capture::{Captured, Level};
use iowhy_live::disk::Spec;
use iowhy_live::plan::Cache;
use iowhy_live::run::LiveError;
use iowhy_stack::event::EventSink;
use iowhy_stack::job::{ThreadJob, Workload};
use iowhy_text as text;
use iowhy_text::diagnose::Problems;
use iowhy_trace::join::{Who, join};
use serde_json::{Map, json};

use super::backend::{
    Audience, Backend, Files, JobWords, Kind, Making, Note, Place, Refusal, RunRecord, Shared, Typed,
};
use super::knobs::{self, Knobs, WithKnobs};
use super::lines::{self, time};
use super::metrics::{self, Metrics, Totals};
use super::own_disk::on_disk;
use super::program::{Installed, Program};
use super::simulator::any_stack;
use super::{LIVE, Shape, checked, fio, options, record, replay, traced};
use crate::modelled_disk;
use crate::on_kernel::{self, Live, Traced};
use crate::recording::during;
use crate::store::{self, CommandLine, DataFile, EventWriter, Manifest, NewRun, StoreError};

pub(super) const KIND: Kind = Kind { names: knobs::is_live, read, help: knobs::help };

/// On a modelled disk, or where the files are anyway.
struct Here {
    disk: Option<modelled_disk::Wanted>,
    /// Settings of the disk that is there, and of the machine.
    knobs: Knobs,
}

fn read(typed: &Typed<'_>, problems: &mut Problems) -> Option<Box<dyn Place>> {
    let knobs = Knobs::read(typed.on, problems);
    let Some(disk) = typed.disk else { return Some(Box::new(Here { disk: None, knobs })) };
    // A disk that is made for the run is made with its settings.
    let (queue, knobs) = knobs.for_a_disk_of_its_own();
    let disk = Some(modelled_disk::parse_disk(&typed.name, &format!("{disk}{queue}"), problems)?);
    Some(Box::new(Here { disk, knobs }))
}

impl Place for Here {
    fn backend(&self, asked: &JobWords<'_>, problems: &mut Problems) -> Option<(Arc<dyn Backend>, Shape)> {
        let mount_point = self.disk.as_ref().map(|wanted| wanted.spec.mount_point());
        let asked = JobWords { folder: mount_point.as_deref().unwrap_or(asked.folder), ..*asked };
        let (does, shape) = on_this_kernel(&asked, problems)?;
        let backend: Arc<dyn Backend> = match does {
            Does::Calls(mut plan) => {
                let modelled = self.disk.as_ref().map(|wanted| put_on(wanted, Some(&mut plan)));
                Arc::new(OnKernel { plan: *plan, modelled })
            }
            Does::Program(program) => {
                Arc::new(Installed { program, modelled: self.disk.as_ref().map(|wanted| put_on(wanted, None)) })
            }
        };
        let backend = match self.knobs.is_empty() {
            true => backend,
            false => Arc::new(WithKnobs { knobs: self.knobs.clone(), runs: backend }),
        };
        Some((backend, shape))
    }
}

/// How a job is done on the running kernel.
pub(super) enum Does {
    /// By calls of ours.
    Calls(Box<iowhy_live::Plan>),
    /// By another program.
    Program(Program),
}

/// A job's form on the running kernel.
pub(super) fn on_this_kernel(asked: &JobWords<'_>, problems: &mut Problems) -> Option<(Does, Shape)> {
    let JobWords { words, world, folder, .. } = *asked;
    let (mut plan, shape) = match asked.builtin {
        Some(builtin) => {
            let mut words = words[1..].to_vec();
            // Real calls are as small as they are.
            let folds = builtin.options.iter().any(|option| option.name == "fold");
            if folds && !words.iter().any(|word| word.starts_with("fold=")) {
                words.push("fold=0".to_owned());
            }
            let values = options::parse(builtin.name, builtin.options, &words, problems);
            if problems.any_error() {
                return None;
            }
            if let Some(program) = builtin.program {
                let program = program(&values, folder, problems)?;
                return Some((Does::Program(program), Shape::default()));
            }
            let (job, shape) = (builtin.build)(&values, &mut any_stack(), problems)?;
            (on_kernel::live_plan(&job, &shape.files, folder, problems)?, shape)
        }
        None if asked.replay.form.is_some() || replay::is_trace(words) => {
            let (job, shape) = replay::build(&words[0], asked.replay, replay::ReplaySite::Live, problems)?;
            (on_kernel::live_plan(&job, &shape.files, folder, problems)?, shape)
        }
        None => {
            let file = fio::file(words, world, problems)?;
            let file = on_kernel::moved(file, folder, problems)?;
            let jobs = fio_jobs::live::jobs(file, Some(0), world, problems)?;
            let fixed = |origin: &fio_jobs::live::ThreadOf, thread: &ThreadJob| {
                jobs.file.jobs[origin.job].rand_repeat.then_some(thread.stream.seed)
            };
            let mut shape = Shape::of(&jobs.lines);
            if let Workload::Threads { threads, .. } = &jobs.plan.job.workload {
                shape.fixed_seeds =
                    jobs.threads.iter().zip(threads).map(|(origin, thread)| fixed(origin, thread)).collect();
            }
            let mut plan = jobs.plan;
            plan.allow.directory = Some(folder.to_owned());
            // What the run makes goes with it, whatever the directory is.
            plan.files.iter_mut().filter(|file| file.may_create).for_each(|file| file.remove = true);
            // Threads drop pages as they start; so that nothing is left that was written just before, all is written
            // back and dropped first.
            let dropped = plan.job.workload.threads().iter().any(|thread| thread.invalidate);
            if plan.cache == Cache::AsFound && dropped {
                plan.cache = Cache::Cold;
            }
            (plan, shape)
        }
    };
    let kept = asked.limit.apply(&mut plan.job);
    if asked.limit.is_set() {
        plan.threads.iter_mut().for_each(|thread| thread.warmup = thread.warmup.min(plan.job.warmup));
    }
    let mut used = kept.iter();
    plan.files.retain(|_| used.next() == Some(&true));
    if let Some(cache) = asked.cache {
        plan.cache = cache;
    }
    plan.allow.write.extend(asked.allow.iter().cloned());
    checked(&plan.job, problems).then_some((Does::Calls(Box::new(plan)), shape))
}

/// The disk for files that are in the folder where its file system would be mounted. A job that names nothing
/// but the disk itself gets it without a file system, unless one was asked for.
fn put_on(wanted: &modelled_disk::Wanted, plan: Option<&mut iowhy_live::Plan>) -> Spec {
    let mut spec = wanted.spec.clone();
    let folder = spec.mount_point();
    let whole = folder.join(on_kernel::ANY_DEVICE.trim_start_matches("/dev/"));
    if let Some(plan) = plan
        && spec.filesystem.is_none()
        && !plan.files.is_empty()
        && plan.files.iter().all(|file| file.path == whole)
    {
        for file in &mut plan.files {
            *file = iowhy_live::plan::File { path: spec.link(), may_create: false, remove: false, ..file.clone() };
        }
        return spec;
    }
    if !wanted.says_filesystem {
        spec.filesystem = Some(modelled_disk::FILESYSTEM.to_owned());
    }
    spec
}

/// A job on the running kernel.
#[derive(Clone, Debug)]
pub struct OnKernel {
    /// Its plan, with the first seed.
    pub plan: iowhy_live::Plan,
    /// The disk that is made for each run.
    pub modelled: Option<Spec>,
}

impl Backend for OnKernel {
    fn make(&self, making: &Making<'_>, _shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let (live, files) = self.run(making)?;
        let shape = &making.variant.shape;
        let totals = Totals {
            job: &live.plan.job,
            elapsed: live.outcome.elapsed,
            end: live.outcome.threads.iter().map(|thread| thread.totals.end).max().unwrap_or_default(),
            counts: &live.outcome.counts,
            latency: &live.outcome.latency,
            threads: live.outcome.threads.iter().map(|thread| thread.totals).collect(),
            lines: &live.outcome.jobs,
            cpu_s: live.cpu_s(),
        };
        let mut metrics = metrics::of_job(shape, &totals);
        of_machine(&mut metrics, &live);
        let early = if live.outcome.interrupted { ", ended early by a signal" } else { "" };
        let mut detail = format!("seed {}{early}\n\n", making.seed);
        // Writing to a string cannot fail.
        let _ = lines::of_job(&mut detail, shape, &totals).and_then(|()| machine(&mut detail, &live));
        let notes = live.complaints().list.into_iter().map(|problem| Note { problem, audience: Audience::Each });
        let late = live.modelled.as_deref().and_then(|state| modelled_disk::answers_late(&state.counters));
        let late = late.map(|problem| Note { problem, audience: Audience::Report });
        Ok(RunRecord {
            metrics,
            place: LIVE.to_owned(),
            made_on: format!("live, {}", place(&live)),
            detail,
            more: Map::from_iter([("live".to_owned(), live.json())]),
            began: live.outcome.started.duration_since(std::time::UNIX_EPOCH).ok(),
            notes: notes.chain(late).collect(),
            interrupted: live.outcome.interrupted,
            failed: live.failed(),
            row: files.map(|files| Ok(Box::new(row(making, &live, files?)))),
            live: Some(Box::new(live)),
            ..RunRecord::default()
        })
    }

    fn uses_folder(&self) -> bool {
        self.modelled.is_none()
    }
}

impl OnKernel {
    /// A run with its trace, and the tasks of the workload in it.
    pub(crate) fn recorded(&self, shape: &Shape, seed: u64) -> Result<(Live, Captured, Who), Refusal> {
        let mut plan = self.plan.clone();
        shape.seed(&mut plan.job, seed);
        let paths: Vec<PathBuf> = plan.files.iter().map(|file| file.path.clone()).collect();
        let (live, mut captured) = during(Level::Layers, &paths, || Live::make(plan, &|_| {}))?;
        let live = live?;
        traced::advice(&mut captured.trace, &live);
        let who = traced::prepare(&mut captured.trace, &live);
        Ok((live, captured, who))
    }

    /// A run, and its record if there is a store.
    fn run(&self, making: &Making<'_>) -> Result<(Live, Files), Refusal> {
        let (seed, store) = (making.seed, making.store);
        let mut plan = self.plan.clone();
        making.variant.shape.seed(&mut plan.job, seed);
        let paths: Vec<PathBuf> = plan.files.iter().map(|file| file.path.clone()).collect();
        let spec = self.modelled.as_ref();
        let Some(level) = making.trace() else {
            let live =
                on_disk(spec, seed, &paths, |progress| -> Result<Live, Refusal> { Ok(Live::make(plan, progress)?) })?;
            let files = store.map(|store| store::live_samples(&live, store).map(|file| vec![file]));
            return Ok((live, files));
        };
        let mut captured = None;
        let mut live = on_disk(spec, seed, &paths, |progress| -> Result<Live, Refusal> {
            let (live, events) = during(level, &paths, || Live::make(plan, progress))?;
            captured = Some(events);
            Ok(live?)
        })?;
        let Some(mut captured) = captured else { unreachable!("a run that was made was captured") };
        let mut traced = Traced::of(&captured);
        let who = traced::prepare(&mut captured.trace, &live);
        let joined = join(&captured.trace, &who);
        let foreign = joined.putters.iter().filter(|putter| !putter.own && putter.pid != std::process::id());
        traced.foreign = foreign.map(|putter| (putter.name.clone(), putter.nr_pages)).collect();
        traced.requests = on_kernel::requests::Requests::of(&joined.events);
        live.traced = Some(Box::new(traced));
        let keep = |store| -> Result<Vec<DataFile>, StoreError> {
            let mut writer = EventWriter::new(store)?;
            joined.events.iter().for_each(|event| writer.event(event));
            Ok(vec![writer.finish_events()?, store::live_samples(&live, store)?])
        };
        // Without a store there is nowhere to keep events.
        let files = store.map(keep);
        Ok((live, files))
    }
}

/// The row for the store.
fn row(making: &Making<'_>, live: &Live, files: Vec<DataFile>) -> NewRun {
    let folder = std::env::current_dir().ok();
    // So that the run can be made again with one thing switched.
    let manifest = Manifest {
        again: folder.map(|folder| CommandLine { words: making.request.again.clone(), folder }),
        // A modelled disk is gone with its run: the words for it make another.
        disk: live.disk.name.clone().filter(|_| live.modelled.is_none()),
        modelled: live.modelled.as_deref().map(modelled_disk::in_full),
        ..Manifest::default()
    };
    let mut row = NewRun {
        resolved: Some(json!(live.plan.job).to_string()),
        manifest: Some(manifest),
        files,
        ..record::of_machine(&live.machine, &live.disk)
    };
    // The machine has columns of its own.
    let mut layers = live.json();
    if let Some(layers) = layers.as_object_mut() {
        layers.retain(|key, _| key != "machine" && key != "disk");
        if let Some(traced) = &live.traced {
            layers.insert("foreign".to_owned(), json!(traced.foreign));
        }
    }
    row.layers = Some(layers);
    row
}

impl From<LiveError> for Refusal {
    fn from(error: LiveError) -> Refusal {
        Refusal { interrupted: matches!(error, LiveError::Interrupted), ..Refusal::new(error) }
    }
}

/// Metrics that only a real run has.
fn of_machine(metrics: &mut Metrics, live: &Live) {
    let calls = live.sum(|thread| thread.totals.events).max(1) as f64;
    let switches = [live.sum(|thread| thread.usage.voluntary), live.sum(|thread| thread.usage.involuntary)];
    let resident = &live.outcome.resident;
    let pages = [resident.iter().map(|file| file.before).sum::<u64>(), resident.iter().map(|file| file.after).sum()];
    let mut put = |name: &str, value: f64| metrics.push((name.to_owned(), value));
    put("cpu_ns_per_io", 1e9 * live.cpu_s() / calls);
    put("voluntary_switches", switches[0] as f64);
    put("involuntary_switches", switches[1] as f64);
    put("switches_per_io", (switches[0] + switches[1]) as f64 / calls);
    put("minor_faults", live.sum(|thread| thread.usage.minor_faults) as f64);
    put("major_faults", live.sum(|thread| thread.usage.major_faults) as f64);
    put("resident_pages_before", pages[0] as f64);
    put("resident_pages_after", pages[1] as f64);
    put("set_up_s", live.outcome.set_up.as_secs_f64());
    put("short_calls", live.sum(|thread| thread.short) as f64);
    put("failed_calls", live.sum(|thread| thread.nr_errors) as f64);
    if let Some(harness) = live.outcome.harness_ns {
        put("harness_ns", harness);
    }
}
/// The kernel and the disk of a real run.
fn place(live: &Live) -> String {
    let mut words = vec![on_kernel::machine::kernel()];
    words.extend(live.modelled.iter().map(|state| format!("modelled {}", state.spec.model)));
    words.extend(live.disk.name.clone());
    words.extend(live.disk.filesystem.clone());
    words.extend(live.disk.queue.scheduler.clone());
    words.join(", ")
}

/// The machine's part of a real run.
fn machine(out: &mut String, live: &Live) -> std::fmt::Result {
    let mut metrics = Metrics::new();
    of_machine(&mut metrics, live);
    let of = |name: &str| metrics.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value);
    writeln!(out, "\nmachine")?;
    writeln!(
        out,
        "  page cache   {}: {} pages of the files before, {} after",
        on_kernel::cache_name(live.plan.cache),
        text::grouped(of("resident_pages_before") as u64),
        text::grouped(of("resident_pages_after") as u64)
    )?;
    write!(out, "  CPU          {:.3} s, {} for each call", live.cpu_s(), time(of("cpu_ns_per_io")))?;
    match live.outcome.harness_ns {
        Some(harness) => writeln!(out, "; the harness itself takes {}", time(harness))?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "  switches     {} because it waited, {} because others had to run",
        text::grouped(of("voluntary_switches") as u64),
        text::grouped(of("involuntary_switches") as u64)
    )?;
    let odd = [("short_calls", "calls moved less than asked for"), ("failed_calls", "calls failed")];
    for (name, words) in odd.iter().filter(|(name, _)| of(name) > 0.0) {
        writeln!(out, "  {:<12} {} {words}", "", text::grouped(of(name) as u64))?;
    }
    for disk in &live.disks {
        writeln!(
            out,
            "  {:<12} {} reads, {} writes, {:.0} % busy (set-up included)",
            disk.name,
            text::grouped(disk.ios[0]),
            text::grouped(disk.ios[1]),
            disk.util_pct
        )?;
    }
    Ok(())
}
