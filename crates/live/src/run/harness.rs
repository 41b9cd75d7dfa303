//! The price of a call that does nothing.

use super::*;

/// The harness's time for each call of the first thread: the same calls with the null engine, as fast as they
/// come.
pub(super) fn harness(plan: &Plan, parts: &[Part<'_>]) -> Option<f64> {
    let part = parts.first()?;
    let thread = Thread {
        engine: "null",
        verify: None,
        keep_calls: false,
        cpus: Vec::new(),
        terms: Terms::default(),
        search: None,
        max_latency: Nanos::ZERO,
        warmup: Nanos::ZERO,
        ..part.thread.clone()
    };
    let engine = find(ENGINES, "null")?;
    let spec = ThreadSpec { start_delay: Nanos::ZERO, ..part.spec.clone() };
    let part = Part { spec, thread: &thread, engine, files: Vec::new(), rated: false, ..*part };
    let shared;
    let calls = match &plan.job.workload {
        Workload::FileIo(fileio) => {
            let endless = FileIo { max_events: 0, max_time: HARNESS_TIME, rate: 0, ..fileio.clone() };
            shared = Mutex::new(FileIoGenerator::new(endless, plan.job.seed));
            Calls::Shared(&shared)
        }
        Workload::Threads { threads, .. } => {
            let endless = Stream {
                limit_bytes: 0,
                limit_calls: 0,
                passes: 0,
                max_time: HARNESS_TIME,
                end_sync: None,
                think: None,
                rate: None,
                script: None,
                walk: None,
                checks: None,
                drop_between_passes: false,
                ..threads.first()?.stream.clone()
            };
            Calls::Stream(Box::new(StreamGenerator::new(vec![endless], plan.job.seed)))
        }
    };
    let published = Published::default();
    let files = vec![OpenFile::default(); plan.files.len()];
    let alone = Plan { threads: vec![thread.clone(); plan.threads.len()], ..plan.clone() };
    let control = Control::new(&alone);
    let mut worker = worker(plan, &part, 0, files, None, calls, (None, &control), &published);
    worker.warmup = Nanos::ZERO;
    worker.sample = Nanos::ZERO;
    // A thread of its own: what threads change about themselves must not stay with the caller.
    std::thread::scope(|scope| scope.spawn(|| (engine.build.drive)(&mut worker)).join()).ok()?;
    let totals = &worker.outcome.totals;
    (totals.events > 0).then(|| totals.elapsed().0 as f64 / totals.events as f64)
}
