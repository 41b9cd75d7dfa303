//! The machine and its disks as JSON.

use iowhy_live::machine::{Disk, DiskDelta, Machine, Pressure};
use serde_json::{Value, json};

/// The release of the running kernel.
pub fn kernel() -> String {
    format!("Linux {}", Machine::read().kernel_release.as_deref().unwrap_or("of unknown release"))
}

pub(crate) fn machine_json(machine: &Machine) -> Value {
    let near = &machine.neighbours;
    let pressure = |of: Option<Pressure>| {
        of.map(|of| json!({ "some_avg10_pct": of.some_avg10_pct, "full_avg10_pct": of.full_avg10_pct }))
    };
    json!({
        "kernel": machine.kernel_release,
        "kernel_build": machine.kernel_version,
        "cpu": machine.cpu_model,
        "cpus": machine.cpus,
        "virtual": machine.is_virtual,
        "memory_bytes": machine.memory_bytes,
        "governor": machine.governor,
        "clocksource": machine.clocksource,
        "load": near.load,
        "running": near.running,
        "pressure": {
            "cpu": pressure(near.cpu_pressure),
            "io": pressure(near.io_pressure),
            "memory": pressure(near.memory_pressure),
        },
    })
}

pub(crate) fn disk_json(disk: &Disk) -> Value {
    let queue = &disk.queue;
    json!({
        "name": disk.name,
        "filesystem": disk.filesystem,
        "mount_options": disk.mount_options,
        "scheduler": queue.scheduler,
        "read_ahead_kb": queue.read_ahead_kb,
        "max_sectors_kb": queue.max_sectors_kb,
        "nr_requests": queue.nr_requests,
        "rotational": queue.rotational,
        "logical_block_bytes": queue.logical_block_bytes,
        "physical_block_bytes": queue.physical_block_bytes,
        "write_cache": queue.write_cache,
    })
}

pub(super) fn delta_json(delta: &DiskDelta) -> Value {
    let both = |[read, write]: [u64; 2]| json!({ "read": read, "write": write });
    json!({
        "name": delta.name,
        "requests": both(delta.ios),
        "merges": both(delta.merges),
        "sectors": both(delta.sectors),
        "ticks_ms": both(delta.ticks_ms),
        "in_queue_ms": delta.in_queue_ms,
        "util_pct": delta.util_pct,
    })
}
