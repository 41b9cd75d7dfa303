//! A signal in the middle of a run. It reaches the whole process, so this test has a program of its own.

use std::cell::RefCell;
use std::time::Duration;

use iowhy_live::plan::{Allow, Cache, File, Thread};
use iowhy_live::run::{Progress, run};
use iowhy_live::{Plan, signal};
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Mix, Stream, Target};

const BYTES: u64 = 64 << 10;

/// Two groups of a thread each, both of which would read for an hour.
fn plan(engine: &'static str, path: std::path::PathBuf) -> Plan {
    let mut stream = Stream::random(Mix::Read, Target { file: 0, start: 0, len_bytes: BYTES }, 4096, 0);
    stream.max_time = Nanos::from_secs(3600);
    let jobs =
        [0, 1].map(|group| ThreadJob { spec: ThreadSpec { group, ..ThreadSpec::new(group) }, stream: stream.clone() });
    let files = vec![FileSpec { bytes: BYTES, place: Place::FileSystem }];
    let thread = Thread { engine, depth: if engine == "psync" { 1 } else { 8 }, ..Thread::default() };
    Plan {
        job: Job::new(Workload::Threads { files, threads: jobs.into() }, 1),
        files: vec![File { path, may_create: true, remove: true, reserve: false, as_found: false }],
        threads: vec![thread; 2],
        sample: Duration::ZERO,
        cache: Cache::AsFound,
        allow: Allow::default(),
    }
}

#[test]
fn a_signal_ends_the_run_with_what_was_measured() {
    for (engine, number) in [("psync", libc::SIGTERM), ("io_uring", libc::SIGINT), ("libaio", libc::SIGTERM)] {
        let path = std::env::temp_dir().join(format!("iowhy-interrupt-{}", std::process::id()));
        let plan = plan(engine, path.clone());
        let reported = RefCell::new(Vec::new());
        let outcome = run(&plan, &|progress| {
            reported.borrow_mut().push(progress);
            if matches!(progress, Progress::Running { .. }) && !signal::raised() {
                // SAFETY: the call takes a number only; the handler of the run is installed.
                unsafe { libc::raise(number) };
            }
        })
        .expect("what was measured is the result");
        assert!(outcome.interrupted, "{engine}");
        assert!(outcome.counts.reads > 0, "{engine}");
        assert_eq!(outcome.threads[1].totals.events, 0, "{engine}: later groups do not begin");
        assert_eq!(outcome.threads[0].nr_errors, 0, "{engine}");
        let running = reported.borrow().iter().any(|report| matches!(report, Progress::Running { threads: 1, .. }));
        assert!(running, "{reported:?}");
        assert!(!path.exists(), "{engine}: the file is removed");
        assert!(!signal::raised(), "the signal is forgotten with the run");
    }
}
