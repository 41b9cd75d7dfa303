//! Options that runs on the running kernel accept and do not carry out.

/// Options that a live run accepts without carrying them out, and its behaviour instead. All others that matter on a
/// real machine are carried out.
pub const NOT_CARRIED_OUT: &[(&str, &str)] = &[
    ("profile", "only plain jobs are run"),
    ("opendir", "the names of the job's files, or making them"),
    ("lockfile", "files are not locked"),
    ("openfiles", "all files are open from the start"),
    ("create_on_open", LAID_OUT),
    ("unlink_each_loop", "files stay between loops"),
    ("write_hint", "no life times are given"),
    ("fill_device", "a full device is an error"),
    ("atomic", "writes are not atomic"),
    ("write_barrier", "jobs have no barrier writes"),
    ("sync_file_range", "the call is not made"),
    ("ioscheduler", "the scheduler of a device is left as it is"),
    ("hipri_percentage", "every I/O polls or none"),
    ("force_async", "the kernel decides what a worker does"),
    ("uncached", "pages stay in the cache"),
    ("nowait", "calls that would block do block"),
    ("userspace_reap", "completions are taken by a call"),
    ("thp", "the size of pages is the kernel's choice"),
    ("steadystate_check_interval", "a look is taken once a second"),
    ("log_prio", "priorities are not logged"),
    ("log_compression", "logs are plain text"),
    ("log_alternate_epoch", "times are from the start of the run"),
    ("merge_blktrace_file", "traces are not merged"),
    ("merge_blktrace_scalars", "traces are not merged"),
    ("merge_blktrace_iters", "traces are not merged"),
    ("unit_base", "reports are in bytes"),
    ("lockmem", "memory is not locked"),
    ("numa_cpu_nodes", "the kernel chooses the node"),
    ("numa_mem_policy", "the kernel chooses the node"),
    ("cgroup", "jobs stay in the control group they are started in"),
    ("cgroup_weight", "jobs stay in the control group they are started in"),
    ("uid", "jobs run as the user who started them"),
    ("gid", "jobs run as the user who started them"),
    ("exec_prerun", "no command is run"),
    ("exec_postrun", "no command is run"),
    ("verify_pattern_interval", "data are those of the check sum"),
    ("verify_dump", "the message has the difference"),
    ("verify_async", "the job itself checks"),
    ("verify_async_cpus", "the job itself checks"),
    ("num_range", "a trim has one range"),
    ("zonecapacity", NO_ZONES),
    ("read_beyond_wp", NO_ZONES),
    ("max_open_zones", NO_ZONES),
    ("job_max_open_zones", NO_ZONES),
    ("ignore_zone_limits", NO_ZONES),
    ("zone_reset_threshold", NO_ZONES),
    ("zone_reset_frequency", NO_ZONES),
    ("iowhy_startup_seeks", SIMULATOR),
    ("iowhy_tool_ns", SIMULATOR),
    ("iowhy_process", SIMULATOR),
    ("iowhy_mapping_cached", SIMULATOR),
    ("iowhy_actor", SIMULATOR),
];

const LAID_OUT: &str = "files are laid out before the run";
const NO_ZONES: &str = "zones are not known";
const SIMULATOR: &str = "it is for the simulator";

/// Why a live run does not carry an option out, if so.
pub fn not_carried_out(name: &str) -> Option<&'static str> {
    NOT_CARRIED_OUT.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// Those among them without which the figures of a run are the same: a warning is not given for them.
const CHANGES_NOTHING: &[&str] = &[
    "opendir",
    "lockfile",
    "openfiles",
    "create_on_open",
    "write_hint",
    "userspace_reap",
    "log_prio",
    "log_compression",
    "unit_base",
    "lockmem",
    "uid",
    "gid",
    "verify_dump",
    "verify_async",
    "verify_async_cpus",
    // Without zonemode=zbd, which is refused, fio passes over them, too.
    "zonecapacity",
    "read_beyond_wp",
    "max_open_zones",
    "job_max_open_zones",
    "ignore_zone_limits",
    "zone_reset_threshold",
    "zone_reset_frequency",
    "iowhy_startup_seeks",
    "iowhy_tool_ns",
    "iowhy_process",
    "iowhy_mapping_cached",
    "iowhy_actor",
];

/// Whether figures are the same although a live run does not carry an option out.
pub fn changes_nothing(name: &str) -> bool {
    CHANGES_NOTHING.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_not_carried_out() {
        for name in CHANGES_NOTHING {
            assert!(not_carried_out(name).is_some(), "{name}");
        }
    }
}
