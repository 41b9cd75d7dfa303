//! Recorded runs, replayed.

use iowhy_stack::event::{Event, EventSink, What};
use iowhy_stack::kernel::{KERNELS, Stack};
use iowhy_stack::outcome::Plan;
use iowhy_stack::sim;

use super::*;
use iowhy_trace::bridge::trace_of_events;
use iowhy_trace::format::trace_parquet;

const BIG: ReplaySite = ReplaySite::Simulated(1 << 50);

/// A plan with two threads that read or write a file each.
fn plan(mix: Mix, block: u32) -> Plan {
    let stack = Stack::new(KERNELS.last().expect("there are kernels"));
    let bytes = 1 << 20;
    let files = vec![FileSpec { bytes, place: Place::FileSystem }; 2];
    let threads = (0..2)
        .map(|nr| ThreadJob {
            spec: ThreadSpec { descriptors: nr, ..ThreadSpec::new(nr) },
            stream: Stream::sequential(mix, vec![Target { file: nr, start: 0, len_bytes: bytes }], block),
        })
        .collect();
    Plan { stack, job: Job::new(Workload::Threads { files, threads }, 1) }
}

/// The events of a simulated run.
fn events(plan: &Plan) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn EventSink = &mut events;
    sim::run_with(plan, sink).expect("the plan can be run");
    events
}

/// Calls of a run: operation, offset, length, by file, in the order of each file.
fn calls(events: &[Event]) -> BTreeMap<u32, Vec<(Op, u64, u32)>> {
    let mut calls: BTreeMap<u32, Vec<(Op, u64, u32)>> = BTreeMap::new();
    for event in events {
        if let What::CallStart { op, file, offset, len_bytes } = event.what {
            calls.entry(file.0).or_default().push((op, offset, len_bytes));
        }
    }
    calls
}

fn replayed(trace: &Trace, stack: &Plan, mode: Mode) -> Vec<Event> {
    let mut problems = Problems::default();
    let (job, _) = job_of(trace, "t", mode, BIG, &mut problems).expect("there are calls");
    assert_eq!(problems.render(), "");
    events(&Plan { stack: stack.stack.clone(), job })
}

#[test]
fn a_recorded_run_makes_the_same_calls_again() {
    for mix in [Mix::Read, Mix::Write] {
        let plan = plan(mix, 65536);
        let first = events(&plan);
        // By way of a file.
        let mut bytes = Vec::new();
        trace_parquet::write(&trace_of_events(&first), &mut bytes).expect("memory takes everything");
        let trace = trace_parquet::read("t", &bytes, &mut Problems::default()).expect("it was written");
        let again = replayed(&trace, &plan, Mode::Closed);
        assert_eq!(calls(&again), calls(&first), "{mix:?}");
        let open = replayed(&trace, &plan, Mode::Open);
        assert_eq!(calls(&open), calls(&first), "{mix:?}");
        // No call is earlier than it was recorded, but for what the starts of the threads differ.
        let starts = |events: &[Event]| -> Vec<u64> {
            let start = |event: &&Event| matches!(event.what, What::CallStart { .. });
            events.iter().filter(start).map(|event| event.at.0).collect()
        };
        let first_of = |events: &[Event]| starts(events)[0];
        let (was, is) = (starts(&first), starts(&open));
        assert!(was.iter().zip(&is).all(|(was, is)| is - first_of(&open) + 100_000 >= was - first_of(&first)));
    }
}

#[test]
fn pauses_are_kept_and_what_cannot_be_made_again_is_told() {
    let trace = iowhy_trace::format::trace_csv::read(
        "t.csv",
        b"t_ns,cpu,pid,kind,dev,ino,op,fd,offset,len,result,index,count\n\
          100,0,5,call_start,,,read,3,0,4096,,,\n\
          110,0,5,get_pages,7,9,,,,,,0,1\n\
          200,0,5,call_end,,,read,,,,4096,,\n\
          700,0,5,call_start,,,read,3,4096,4096,,,\n\
          900,0,5,call_end,,,read,,,,0,,\n\
          950,0,5,call_start,,,write,3,4096,100,,,\n\
          990,0,5,call_end,,,write,,,,100,,\n\
          995,0,5,call_start,,,fsync,3,,0,,,\n\
          999,0,5,call_end,,,fsync,,,,0,,\n\
          1000,0,6,call_start,,,read,8,,10,,,\n\
          1001,0,6,call_end,,,read,,,,10,,\n",
        &mut Problems::default(),
    );
    let trace = trace.expect("it is one");
    let mut problems = Problems::default();
    let (job, shape) = job_of(&trace, "t", Mode::Closed, BIG, &mut problems).expect("there are calls");
    let told = problems.render();
    assert!(told.contains("1 calls without a file in the trace"), "{told}");
    assert!(told.contains("1 calls that moved no bytes"), "{told}");
    assert_eq!(shape.files, ["replay.0.file"]);
    let Workload::Threads { files, threads } = &job.workload else { panic!("threads") };
    assert_eq!((files.len(), files[0].bytes, threads.len()), (1, 8192, 1));
    let script = threads[0].stream.script.as_ref().expect("a script");
    let steps: Vec<(Op, u64, u32, u64)> =
        script.iter().map(|step| (step.call.op, step.call.offset, step.call.len_bytes, step.pause.0)).collect();
    // The read of nothing is part of the pause.
    assert_eq!(steps, [(Op::Read, 0, 4096, 0), (Op::Write, 4096, 100, 750), (Op::Fsync, 0, 0, 5)]);
    assert!(!threads[0].spec.direct);
    assert_eq!(job.check(), Ok(()));
}

#[test]
fn bios_alone_are_direct_calls_on_the_device() {
    let text = b"a-7 [000] 1.000000: block_bio_queue: 7,1 R 8 + 8 [a]\n\
                 a-7 [000] 1.000001: block_bio_queue: 7,1 W 64 + 16 [a]\n\
                 a-7 [000] 1.000002: block_bio_queue: 7,1 FF 0 + 0 [a]\n\
                 a-7 [000] 1.000010: block_rq_complete: 7,1 R () 8 + 8 [0]\n\
                 a-7 [000] 1.000020: block_rq_complete: 7,1 W () 64 + 16 [0]\n\
                 a-7 [000] 1.000050: block_bio_queue: 7,1 R 8 + 8 [a]\n";
    let trace = iowhy_trace::format::tracefs_text::read("t", text, &mut Problems::default()).expect("it is one");
    let mut problems = Problems::default();
    let (job, _) = job_of(&trace, "t", Mode::Closed, BIG, &mut problems).expect("there are bios");
    assert!(problems.render().contains("1 bios that neither read nor write"), "{}", problems.render());
    let Workload::Threads { files, threads } = &job.workload else { panic!("threads") };
    assert_eq!(files, &[FileSpec { bytes: 40960, place: Place::Device { start: Sector(0) } }]);
    assert_eq!(threads[0].spec.engine, Engine::Aio { depth: 2, batch_submit: 1, batch_complete: 1 });
    assert!(threads[0].spec.direct);
    let script = threads[0].stream.script.as_ref().expect("a script");
    let pauses: Vec<u64> = script.iter().map(|step| step.pause.0).collect();
    assert_eq!(pauses, [0, 0, 30_000]);
    // A disk that is too small is refused.
    let mut problems = Problems::default();
    assert!(job_of(&trace, "t", Mode::Closed, ReplaySite::Simulated(4096), &mut problems).is_none());
    assert!(problems.render().contains("the disk has 4096"), "{}", problems.render());
}

#[test]
fn a_trace_in_a_file_runs_on_a_simulated_stack_and_on_this_kernel() {
    let folder = std::env::temp_dir().join(format!("iowhy-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the directory for temporary files can be written");
    let path = folder.join("t.parquet");
    let first = events(&plan(Mix::Write, 65536));
    let mut bytes = Vec::new();
    trace_parquet::write(&trace_of_events(&first), &mut bytes).expect("memory takes everything");
    std::fs::write(&path, bytes).expect("it can be written");
    let name = path.display().to_string();
    let made = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut problems = Problems::default();
        let request = super::super::resolve(&words, &iowhy_fio::World::empty(), &mut problems);
        let Some(super::super::Request::Run(request)) = request else { panic!("{}", problems.render()) };
        super::super::execute(&request, &|_, _| ())
    };
    let dir = format!("--dir={}", folder.join("files").display());
    let simulated = made(&[&name, "--on=sim:linux-4.4", "--disk=sata-2014"]);
    let live = made(&[&name, "--on=live", &dir, "--replay=open"]);
    std::fs::remove_dir_all(&folder).expect("it is there");
    assert!(simulated.refused.is_empty(), "{:?}", simulated.refused);
    assert!(live.refused.is_empty(), "{:?}", live.refused);
    let nr_calls = first.iter().filter(|event| matches!(event.what, What::CallStart { .. })).count() as u64;
    let live = live.runs[0].record.live.as_ref().expect("a live run");
    let counts = live.outcome.counts;
    let made = counts.reads + counts.writes + counts.syncs;
    assert_eq!(made, nr_calls);
}

/// The job of a public trace of Alibaba's form, or what is wrong with it.
fn public_job(name: &str, lines: &str, how: Replay, disk: u64) -> Result<Job, String> {
    let path = std::env::temp_dir().join(format!("iowhy-replay-{}-{name}", std::process::id()));
    std::fs::write(&path, lines).expect("a file");
    let mut problems = Problems::default();
    let built = build(&path.to_string_lossy(), how, ReplaySite::Simulated(disk), &mut problems);
    let _ = std::fs::remove_file(&path);
    built.map(|(job, _)| job).ok_or_else(|| problems.render())
}

/// Times, pauses, offsets and lengths of each thread, with the engine's depth and the first sector of its file.
type Steps = Vec<(u32, u64, Vec<(u64, u64, u64, u32)>)>;

fn steps(job: &Job) -> Steps {
    let Workload::Threads { files, threads } = &job.workload else { panic!("threads") };
    let of = |thread: &ThreadJob| {
        let script = thread.stream.script.as_ref().expect("a script");
        let depth = if let Engine::Aio { depth, .. } = thread.spec.engine { depth } else { 1 };
        let Place::Device { start } = files[script[0].call.file as usize].place else { panic!("a device") };
        let step = |step: &Scripted| (step.at.0, step.pause.0, step.call.offset, step.call.len_bytes);
        (depth, start.0, script.iter().map(step).collect())
    };
    threads.iter().map(of).collect()
}

#[test]
fn public_traces_keep_arrivals_or_dependence() {
    let lines = "5,R,0,4096,1000\n9,W,512,700,1010\n5,R,8192,4096,1030\n";
    let open = Replay { mode: Mode::Open, ..Replay::default() };
    let job = public_job("open", lines, open, 1 << 30).expect("a job");
    let volumes = |times: [u64; 3]| {
        vec![(2, 0, vec![(times[0], 0, 0, 4096), (times[2], 0, 8192, 4096)]), (1, 2048, vec![(times[1], 0, 512, 1024)])]
    };
    assert_eq!(steps(&job), volumes([1, 10_000, 30_000]));
    let job = public_job("fast", lines, Replay { speed: 2 * Replay::ONE, ..open }, 1 << 30).expect("a job");
    assert_eq!(steps(&job), volumes([1, 5000, 15_000]));
    // Nothing tells what waited for what: one at a time.
    let job = public_job("closed", lines, Replay::default(), 1 << 30).expect("a job");
    assert_eq!(steps(&job), [(1, 0, vec![(0, 0, 0, 4096), (0, 0, 8192, 4096)]), (1, 2048, vec![(0, 0, 512, 1024)])]);
    let told = public_job("small", lines, open, 1 << 20).expect_err("too small a disk");
    assert!(told.contains("2 volumes") && told.contains("--disk"), "{told}");
}

#[test]
fn response_times_tell_what_was_in_flight() {
    // Two at once, and the third 600 ns after the second has ended; times are in steps of 100 ns.
    let lines = "116444736000000000,a,0,Read,0,4096,10\n116444736000000002,a,0,Read,4096,4096,20\n\
                 116444736000000028,a,0,Write,8192,4096,5\n";
    let job = public_job("closed-msr", lines, Replay::default(), 1 << 30).expect("a job");
    assert_eq!(steps(&job), [(2, 0, vec![(0, 0, 0, 4096), (0, 0, 4096, 4096), (0, 600, 8192, 4096)])]);
}
