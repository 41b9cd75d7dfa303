//! What is kept of a run: the row of the store, and the samples beside it.
//!
//! The hash of the machine covers what stays when a kernel or a tunable is changed (processor, memory, disk, file
//! system; of a simulated one the machine and the device), so that runs before and after such a change are known to be
//! of one machine. Kernel, policies and tunables are columns of their own.
//!
//! A blind run keeps no word of any of these, nor of its place, its warnings and its job, which might name a device or
//! an elevator; of the job there is a hash, so that runs of different jobs are still told apart.

use std::path::Path;

use iowhy_live::machine::{Disk, Machine};
use iowhy_stack::kernel::{self, Stack};
use iowhy_stack::origin::Options;
use serde_json::{Map, Value, json};

use super::{Finished, Made, RunRequest, Variant};
use crate::modelled_disk;
use crate::on_kernel;
use crate::simulated_json;
use crate::store::{DataFile, Design, NewRun};

/// Names and values of tunables.
fn options_json(options: &Options) -> Value {
    Value::Object(options.iter().map(|(spec, value)| (spec.name.to_owned(), json!(spec.show(value)))).collect())
}

/// Sixteen digits that identify a value.
fn hash(value: &Value) -> String {
    blake3::hash(value.to_string().as_bytes()).to_hex().as_str()[..16].to_owned()
}

/// The machine and the device of a stack.
pub(crate) fn simulated_machine(stack: &Stack) -> Value {
    json!({
        "machine": stack.machine.entry.name,
        "machine_options": options_json(&stack.machine.options),
        "device": stack.device.entry.name,
        "device_options": options_json(&stack.device.options),
    })
}

/// Kernel, policies and tunables of a stack.
pub(crate) fn simulated_policies(stack: &Stack) -> Value {
    let mut all = Map::new();
    all.insert("kernel".to_owned(), json!(stack.kernel.name));
    all.insert("patches".to_owned(), stack.patches.iter().map(|patch| patch.name).collect());
    all.insert("options".to_owned(), options_json(&stack.options));
    // The machine is kept apart: what stays when a kernel is changed.
    for kind in kernel::policies().filter(|kind| kind.name != "machine") {
        let options = options_json((kind.options)(stack));
        all.insert(kind.name.to_owned(), json!({ "name": (kind.chosen)(stack), "options": options }));
    }
    Value::Object(all)
}

/// What a change of kernels and tunables leaves as it is.
fn lasting(machine: &Machine, disk: &Disk) -> Value {
    // Kernels keep different shares of the memory for themselves.
    let memory_gib = machine.memory_bytes.map(|bytes| (bytes as f64 / (1u64 << 30) as f64).round());
    json!([
        machine.cpu_model,
        machine.cpus,
        machine.is_virtual,
        memory_gib,
        disk.name,
        disk.queue.rotational,
        disk.queue.logical_block_bytes,
        disk.queue.physical_block_bytes,
        disk.filesystem,
    ])
}

/// The hash of this machine with the disk below a path, as runs on it have it.
pub fn machine_hash(path: &Path) -> String {
    hash(&lasting(&Machine::read(), &Disk::below(path)))
}

fn live_policies(machine: &Machine, disk: &Disk) -> Value {
    let queue = &disk.queue;
    json!({
        "kernel": machine.kernel_release,
        "kernel_build": machine.kernel_version,
        "governor": machine.governor,
        "elevator": queue.scheduler,
        "read_ahead_kb": queue.read_ahead_kb,
        "max_sectors_kb": queue.max_sectors_kb,
        "nr_requests": queue.nr_requests,
        "nomerges": queue.nomerges,
        "write_cache": queue.write_cache,
        "mount_options": disk.mount_options,
    })
}

/// What a real run was made on.
fn of_machine(run: &mut NewRun, machine: &Machine, disk: &Disk) {
    run.place = Some("live".to_owned());
    run.machine = Some(
        json!({ "machine": on_kernel::machine::machine_json(machine), "disk": on_kernel::machine::disk_json(disk) }),
    );
    run.machine_hash = hash(&lasting(machine, disk));
    run.policies = Some(live_policies(machine, disk));
}

/// The row of a run of `session`.
pub(super) fn row(request: &RunRequest, run: &Finished, session: &str, files: Vec<DataFile>) -> NewRun {
    let variant: &Variant = &request.variants[run.slot.variant];
    let blind = request.keep.as_ref().is_some_and(|keep| keep.blind);
    let mut row = NewRun {
        label: variant.label.clone(),
        job: request.job.join(" "),
        seed: run.slot.seed,
        started_ns: run.started_ns,
        finished_ns: run.finished_ns,
        design: Design {
            session: session.to_owned(),
            block: run.slot.block,
            position: run.slot.position,
            order_seed: request.seed,
            size: (request.blocks() * request.variants.len() as u64) as u32,
            warm_up: run.slot.warm_up,
        },
        metrics: crate::run::metrics::metrics(variant, run),
        warnings: request.warnings.clone(),
        blind,
        files,
        ..NewRun::default()
    };
    match &run.made {
        Made::Simulated(made) => {
            let (plan, outcome) = &**made;
            let machine = simulated_machine(&plan.stack);
            row.simulated = true;
            row.resolved = Some(format!("{:?}", plan.job));
            row.place = Some(format!("sim:{}", plan.stack.describe()));
            row.machine_hash = hash(&machine);
            row.machine = Some(machine);
            let mut policies = simulated_policies(&plan.stack);
            // So that the run can be made again with one thing switched.
            let typed = (variant.on.clone(), variant.disk.clone());
            let (on, disk) = variant.in_full.as_ref().unwrap_or(&typed);
            let disk = disk.iter().map(|disk| format!(" --disk {disk}")).collect::<String>();
            policies["command"] = json!(format!("run {} --on {on}{disk}", row.job));
            row.policies = Some(policies);
            row.event_hash = Some(outcome.event_hash);
            row.layers = Some(simulated_json::layers(&outcome.layers));
        }
        Made::Live(live) => {
            row.resolved = Some(format!("{:?}", live.plan.job));
            of_machine(&mut row, &live.machine, &live.disk);
            if let Some(policies) = &mut row.policies {
                // So that the run can be made again with one thing switched.
                policies["again"] = json!(request.again);
                policies["folder"] = json!(std::env::current_dir().ok().map(|path| path.display().to_string()));
                // A modelled disk is gone with its run: the words for it make another.
                policies["disk"] = json!(live.disk.name.as_ref().filter(|_| live.modelled.is_none()));
                policies["modelled"] = json!(live.modelled.as_deref().map(modelled_disk::in_full));
            }
            let complaints = live.complaints();
            row.warnings.extend(complaints.list.into_iter().map(|problem| problem.message));
            // The machine has columns of its own.
            let mut layers = live.json();
            if let Some(layers) = layers.as_object_mut() {
                layers.retain(|key, _| key != "machine" && key != "disk");
                if let Some(traced) = &live.traced {
                    layers.insert("foreign".to_owned(), json!(traced.foreign));
                }
            }
            row.layers = Some(layers);
        }
        Made::Guest(guest) => {
            let kept = &guest.row;
            row.resolved = kept.resolved.clone();
            row.place = Some(variant.on.clone());
            let mut machine = kept.machine.clone().unwrap_or_default();
            machine["guest"] = guest.json();
            // Neither the kernel nor what is set in it: those are what is compared.
            let lasting =
                json!([kept.machine_hash, guest.brought.accelerator.name(), Machine::read().cpu_model, variant.disk,]);
            row.machine_hash = hash(&lasting);
            row.machine = Some(machine);
            let mut policies = kept.policies.clone().unwrap_or_default();
            if let Some(policies) = policies.as_object_mut() {
                // It cannot be made again on the running kernel.
                ["again", "folder"].iter().for_each(|key| drop(policies.remove(*key)));
                policies.insert("modelled_disk".to_owned(), json!(variant.disk));
            }
            row.policies = Some(policies);
            row.layers = kept.layers.clone();
            row.warnings.extend(guest.warnings.iter().cloned());
        }
        Made::Program(ran) => {
            row.resolved = Some(ran.command.join(" "));
            of_machine(&mut row, &Machine::read(), &Disk::below(&request.folder.path));
            if ran.interrupted {
                row.warnings.push("a signal ended the run early".to_owned());
            }
        }
    }
    if blind {
        blindfold(&mut row);
    }
    row
}

/// Takes away everything but events and measurements.
fn blindfold(row: &mut NewRun) {
    row.job = format!("job-{}", hash(&json!(row.job)));
    row.resolved = None;
    row.place = None;
    row.machine = None;
    row.machine_hash = String::new();
    row.policies = None;
    row.warnings.clear();
    // What a real run says of its disks and files has their names.
    if !row.simulated {
        row.layers = None;
    }
}
