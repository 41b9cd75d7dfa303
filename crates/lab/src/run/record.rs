//! The record of a run: the row of the store, and the samples.
//!
//! The hash of the machine covers the parts that stay when a kernel or a tunable is changed (processor, memory, disk,
//! file system; of a simulated one the machine and the device), so that runs before and after such a change share their
//! machine. Kernel, policies and tunables are columns of their own.
//!
//! A blind run keeps no word of any of these, nor of its place, its warnings and its job, which might name a device or
//! an elevator; of the job there is a hash, so that different jobs remain different.

use iowhy_live::machine::{Disk, Machine};
use iowhy_stack::kernel::{self, Stack};
use iowhy_stack::origin::Options;
use serde_json::{Map, Value, json};

use super::{Finished, LIVE, RunRequest};
use crate::on_kernel;
use crate::store::{Design, NewRun};

/// Names and values of tunables.
fn options_json(options: &Options) -> Value {
    Value::Object(options.iter().map(|(spec, value)| (spec.name.to_owned(), json!(spec.show(value)))).collect())
}

/// Sixteen digits that identify a value.
pub(super) fn hash(value: &Value) -> String {
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

/// The parts that a change of kernels and tunables leaves as they are.
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

/// The row of a run on this machine.
pub(crate) fn of_machine(machine: &Machine, disk: &Disk) -> NewRun {
    let described =
        json!({ "machine": on_kernel::machine::machine_json(machine), "disk": on_kernel::machine::disk_json(disk) });
    NewRun {
        place: Some(LIVE.to_owned()),
        machine: Some(described),
        machine_hash: hash(&lasting(machine, disk)),
        policies: Some(live_policies(machine, disk)),
        ..NewRun::default()
    }
}

/// The whole row of a run of `session`, of which its backend made `part`.
pub(super) fn row(request: &RunRequest, run: &Finished, session: &str, part: NewRun) -> NewRun {
    let blind = request.keep.as_ref().is_some_and(|keep| keep.blind);
    let told = run.record.notes.iter().map(|note| note.problem.message.clone());
    let mut row = NewRun {
        label: request.variants[run.slot.variant].label.clone(),
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
        metrics: run.record.metrics.clone(),
        warnings: request.warnings.iter().cloned().chain(told).collect(),
        blind,
        ..part
    };
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
    (row.policies, row.manifest) = (None, None);
    row.warnings.clear();
    // What a real run says of its disks and files has their names.
    if !row.simulated {
        row.layers = None;
    }
}
