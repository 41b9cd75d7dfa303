//! 2010: direct writers whose requests CFQ took for asynchronous ones. Evidence: the number of commands at the device.

use iowhy_stack::layers::Layers;

use super::{Checks, ClaimResult, percent, ratios};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult, RunResult};
use iowhy_stats::figure::share;
use iowhy_text as text;

/// Checks of the claims that compare more than two rows.
pub(in crate::incident) const CHECKS: Checks = &[("depth-one", depth_one), ("driver-depth-one", driver_depth_one)];

/// How far old and new may lie apart and be called equal.
const EQUAL: f64 = 0.01;
/// CFQ that has one asynchronous queue for all tasks.
const SHARED_QUEUE: &str = "cfq-2.6.18-164";
/// CFQ that has one for each task, and takes direct writes for asynchronous.
const QUEUE_PER_TASK: &str = "cfq-2.6.18-186";
/// Mean requests in the queue and at the device from which on both of two writers "have one".
const BOTH_HAVE_ONE: f64 = 1.75;

fn has_elevator(run: &RunResult, name: &str) -> bool {
    run.plan.stack.elevator.entry.name == name
}

/// The mean number of requests in the queue and at the device.
fn outstanding(row: &RowResult) -> f64 {
    let sum = |of: fn(&Layers) -> u128| row.samples().map(|sample| of(sample.layers()) as f64).sum::<f64>();
    let (requests, time) = (sum(|layers| layers.queue_time), sum(|layers| u128::from(layers.end.0)));
    if time > 0.0 { requests / time } else { 0.0 }
}

/// How many commands were at the device when one was issued, at most: the least and the most of the repetitions.
fn depths(row: &RowResult) -> (u64, u64) {
    let most = || row.samples().map(|sample| sample.layers().depth.max().unwrap_or(0));
    (most().min().unwrap_or(0), most().max().unwrap_or(0))
}

/// With two writers the device never has more than one command if each task has an asynchronous queue, and has two if
/// all share one; either way both writers have a request on its way. With more writers the bound is the same.
fn depth_one(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let mut held = true;
    let (mut one, mut several) = (Vec::new(), Vec::new());
    for row in &result.rows {
        // Rows of several threads only: one thread can have a pair on its way, which is another story.
        let nr_writers = row.run().map_or(0, |run| run.plan.job.workload.threads().len() as u64);
        let (Some(run), 2..) = (row.run(), nr_writers) else { continue };
        let (least, most) = depths(row);
        let outstanding = outstanding(row);
        let seen = format!("{} {most} of {outstanding:.1}", row.id);
        if has_elevator(run, QUEUE_PER_TASK) {
            held &= most == 1 && outstanding > BOTH_HAVE_ONE;
            one.push(seen);
        } else if has_elevator(run, SHARED_QUEUE) {
            held &= least >= 2 && most <= nr_writers && outstanding > BOTH_HAVE_ONE;
            several.push(seen);
        }
    }
    checked.held = held && !one.is_empty() && !several.is_empty();
    checked.evidence = vec![
        format!("a queue per task; most commands at the device, and requests on their way: {}", one.join(", ")),
        format!("one queue for all; the same: {}", several.join(", ")),
    ];
}

/// The compared pairs, new against old with one request at a time, are equal.
fn driver_depth_one(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    (checked.lower, checked.upper) = (Some(1.0 - EQUAL), Some(1.0 + EQUAL));
    let ratios = ratios(result, claim, checked);
    if let Some(farthest) = ratios.into_iter().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())) {
        checked.judge(farthest);
    }
}

/// Commands that were issued while another one was at the device.
fn share_with_another(row: &RowResult) -> f64 {
    let alone = row.sum(|layers| layers.depth.buckets().filter(|(lowest, ..)| *lowest <= 1).map(|(.., n)| n).sum());
    let all = row.sum(|layers| layers.depth.count());
    share(all - alone, all)
}

/// Bytes that the arm writes before it goes elsewhere.
fn bytes_a_visit(row: &RowResult) -> u64 {
    let sum = |of: fn(&crate::incident::Sample) -> u64| row.samples().map(of).sum::<u64>();
    let visits = sum(|sample| sample.outcome.device.destages);
    sum(|sample| sample.outcome.counts.written_bytes) / visits.max(1)
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.1} {}", row.simulated(), row.metric.unit);
    let mut words = format!(
        "In {} the two writers have {:.1} requests on their way, but never more than {} at the disk; in {} {} of the \
         commands are issued while another one is there. The direct writes count as asynchronous. Once each task has \
         an asynchronous queue of its own, a writer's next request waits until the other's has come back: nothing else \
         is dispatched while the active queue has a request in flight. No timer runs meanwhile: the scheduler idles \
          {}. ",
        broken.id,
        outstanding(broken),
        text::count(depths(broken).1, "command", "commands"),
        before.id,
        percent(share_with_another(before)),
        text::count(broken.sum(|layers| layers.idles.iter().sum()), "time", "times"),
    );
    words.push_str(&format!(
        "The write cache of the disk takes commands more slowly like that, and the arm finds less to write when it \
         comes: {} KB a visit instead of {}, {} instead of {}. ",
        bytes_a_visit(broken) / 1000,
        bytes_a_visit(before) / 1000,
        rate(broken),
        rate(before),
    ));
    if let (Some(old), Some(new)) = (result.part("old_at_one"), result.part("new_at_one")) {
        words.push_str(&format!(
            "With a driver that takes one command at a time old and new do not differ ({} and {}): the loss was queue \
             depth. ",
            rate(old),
            rate(new),
        ));
    }
    if let Some(fixed) = result.part("fixed") {
        words.push_str(&format!(
            "With the sync flag honoured each writer has the disk to itself for a while: the scheduler waits for its \
             next request, {} of the times with success, and {} reaches {}. ",
            percent(share(fixed.sum(|layers| layers.idles[0]), fixed.sum(|layers| layers.idles.iter().sum()))),
            fixed.id,
            rate(fixed),
        ));
    }
    if let (Some(sync), Some(idle_0)) = (result.part("sync"), result.part("sync_idle_0")) {
        words.push_str(&format!(
            "On a disk without a write cache the same waiting is a loss, as a writer alone gets one record a \
             revolution: {} reaches {}, and {} with slice_idle=0.",
            sync.id,
            rate(sync),
            rate(idle_0),
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};
    use crate::incident::{Entry, How, run_entry};

    #[test]
    fn every_pair_must_be_equal() {
        let rows: [(&str, &[f64]); 3] = [("old", &[10.0]), ("new", &[10.1]), ("slow", &[8.0])];
        let mut result = result("write_mb_s", &rows);
        let checks: Checks = &[("c", driver_depth_one)];
        compare(&mut result, &[("new", "old"), ("new", "old")]);
        assert!(checked(&result, "kind='mechanism'", checks).held);
        compare(&mut result, &[("new", "old"), ("slow", "old")]);
        assert!(!checked(&result, "kind='mechanism'", checks).held);
    }

    const INCIDENT: &str = "id = 'a'\ntitle = 't'\ndate = 'd'\n\
        metric = { name = 'write speed', unit = 'MB/s', better = 'higher' }\n\
        [[row]]\nid = 'old'\nvariant = 'old'\nvalue = 1.0\nrole = 'prediction'\n\
        [[row]]\nid = 'new'\nvariant = 'new'\nvalue = 1.0\nrole = 'prediction'\n\
        [[claim]]\nid = 'depth-one'\nkind = 'mechanism'\n";

    const SCENARIO: &str = "incident = 'a'\nrule = 'r'\nmetric = 'write_mb_s'\nsequences = 2\nunexplained = ''\n\
        assumption = []\n\
        command = 'run dd of=/dev/sdb bs=4096 count=200 oflag=direct writers=2 distance=64m jitter=1m'\n\
        [why]\nbroken = 'new'\nbefore = 'old'\nfixed = 'old'\n\
        [variants]\nold = 'linux-2.6.18-164.el5'\nnew = 'linux-2.6.18-186.el5'\n\
        [reports.default]\ndisk = 'sata-2010'\n";

    fn simulated(scenario: &str) -> IncidentResult {
        let entry = Entry { id: "a", file: INCIDENT, scenario: None, checks: CHECKS, why: Some(why) };
        run_entry(&entry, scenario, How { threads: 1, ..How::default() }, &|_, _| {}).expect("a result")
    }

    #[test]
    fn the_depth_at_the_device_is_one_with_a_queue_per_task_and_two_with_a_shared_one() {
        for (from, to, held) in [
            ("", "", true),
            // The new kernel is none, or the old one.
            ("old = 'linux-2.6.18-164.el5'", "old = 'linux-2.6.18-198.el5'", false),
            ("new = 'linux-2.6.18-186.el5'", "new = 'linux-2.6.18-164.el5'", false),
            // The driver takes one command: the old kernel has one as well.
            ("'sata-2010'", "'sata-2010,queue_depth=1'", false),
            // There is nobody else who could have a request.
            ("writers=2", "writers=1", false),
        ] {
            let result = simulated(&SCENARIO.replace(from, to));
            let claim = &result.claims[0];
            assert_eq!(claim.held, held, "{to}: {claim:?}");
            assert_eq!(claim.evidence.len(), 2);
        }
    }

    #[test]
    fn the_cause_is_told_from_the_events() {
        let told = simulated(SCENARIO).why;
        for part in ["In new the two writers have", "never more than 1 command at the disk", "idles 0 times"] {
            assert!(told.contains(part), "no `{part}` in {told}");
        }
        // Rows that were not run are not mentioned.
        assert!(!told.contains("slice_idle") && !told.contains("one command at a time"), "{told}");
        assert_eq!(simulated(&SCENARIO.replace("broken = 'new'", "")).why, "");
    }
}
