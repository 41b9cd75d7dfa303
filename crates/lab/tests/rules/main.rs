//! Simulated runs in which one thing is slower, and the rules that have to find it and those that must not.

mod async_queue_per_task;
mod cache_too_small;
mod calls_to_workers;
mod calls_wait_in_submission;
mod changed_job;
mod cpu_bound_submission;
mod device_bandwidth;
mod device_idle_exit;
mod device_iops_cap;
mod device_latency;
mod early_writeback;
mod flush_cost;
mod hinted_pages_evicted;
mod idling_for_the_wrong_reader;
mod invalidation_cost;
mod journal_commit_per_fsync;
mod lock_serialisation;
mod lost_locality;
mod merging_off;
mod metadata_reads;
mod mixed_direct_and_buffered;
mod mmap_read_around;
mod noisy_neighbour;
mod plug_around_read;
mod program_pauses;
mod queue_depth_one;
mod random_advice;
mod read_larger_than_window;
mod readahead_off;
mod reads_starved;
mod requests_cut;
mod shared_readahead_state;
mod slice_idling;
mod slow_wakeups;
mod stale_pages_under_direct_io;
mod window_too_large;
mod window_too_small;
mod writeback_throttling;
mod writes_starved;

use iowhy_lab::explain::source::simulate;
use iowhy_lab::incident::command::plan_of_command;
use iowhy_why::{Explanation, explain};

/// Explains the difference of two command lines from `runs` runs each, with different seeds.
fn explain_pair(runs: u32, a: &str, b: &str) -> Explanation {
    let side = |line: &str, first| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{line}: {}", problems.render()));
        simulate(line, &plan, (first, runs), &|| {}).expect("it runs")
    };
    explain(&side(a, 0), &side(b, runs), None)
}

/// The names of what is found, best first.
fn names(explanation: &Explanation) -> Vec<&'static str> {
    explanation.findings.iter().map(|finding| finding.rule.name).collect()
}
