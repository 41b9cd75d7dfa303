//! Meaning of command lines, and the resulting jobs.

use std::ops::ControlFlow;

use iowhy_fio::World;
use iowhy_live::plan::Cache;
use iowhy_stack::event::Op;
use iowhy_stack::job::{CacheStart, Engine, Place, ThreadJob};
use iowhy_stack::units::PAGE_BYTES;
use iowhy_stack::workload::{BlockSizes, Distribution, Mix, Order, Service};

use super::live::OnKernel;
use super::program::Installed;
use super::simulator::Simulator;
use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The plan of a line, with the text of the job file `x.fio`.
fn variants(line: &str, file: &str) -> Result<(Vec<Variant>, Vec<String>), String> {
    let load = |name: &str| match name {
        "x.fio" => Ok(file.to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let world = World { load: &load, ..World::empty() };
    let mut problems = Problems::default();
    match resolve(&words(line), &world, &mut problems) {
        Some(Request::Run(run)) => {
            Ok((run.variants, problems.list.into_iter().map(|problem| problem.message).collect()))
        }
        Some(Request::Help(text)) => Err(text),
        None => Err(problems.render()),
    }
}

fn threads(plan: &Plan) -> Vec<ThreadJob> {
    match &plan.job.workload {
        Workload::Threads { threads, .. } => threads.clone(),
        Workload::FileIo(_) => Vec::new(),
    }
}

/// The plan of one job of fio, given by its options.
fn fio_job(options: &str) -> (Plan, Vec<String>) {
    let file = format!("[job]\n{}\n", options.replace(' ', "\n"));
    fio_file(&file)
}

fn fio_file(file: &str) -> (Plan, Vec<String>) {
    let (mut variants, warnings) = variants("x.fio --on sim:linux-4.4", file).expect("a plan");
    (simulated_plan(variants.remove(0)), warnings)
}

fn builtin(line: &str) -> Plan {
    simulated_plan(variants(&format!("{line} --on sim:linux-4.4"), "").expect(line).0.remove(0))
}

fn simulated_plan(variant: Variant) -> Plan {
    let simulator = variant.backend::<Simulator>();
    simulator.unwrap_or_else(|| panic!("{} is not simulated", variant.on)).plan.clone()
}

fn live_plan(line: &str, file: &str) -> iowhy_live::Plan {
    let variant = variants(&format!("{line} --on live --dir place"), file).expect(line).0.remove(0);
    variant.backend::<OnKernel>().unwrap_or_else(|| panic!("{line} is {:?}", variant.backend)).plan.clone()
}

#[test]
fn every_mistake_is_told_at_once() {
    let message = variants("dd bs=0 of=/dev/x cuont=1 --on sim:linux-4.5 --disk floppy --repeat 0 --labl", "");
    let message = message.expect_err("mistakes");
    for expected in
        ["`bs` must lie", "nearest: count", "linux-4.4", "unknown disk", "`--runs` takes", "nearest: --label"]
    {
        assert!(message.contains(expected), "no {expected} in\n{message}");
    }
}

#[test]
fn odd_lines_are_refused_with_a_reason() {
    for (line, expected) in [
        ("", "no job to run"),
        ("dd of=/dev/x count=1", "`--on` is missing"),
        ("ddd --on sim:linux-4.4", "nearest: dd"),
        ("x.toml --on sim:linux-4.4", "does not take yet"),
        ("x.fio dd --on sim:linux-4.4", "comes first"),
        ("dd --on sim:linux-4.4", "nothing to read or write"),
        ("dd of=/dev/x --on sim:linux-4.4", "when to end"),
        ("dd if=a of=b count=1 --on sim:linux-4.4", "a copy is two jobs"),
        ("dd of=a count=1 bs=1000 oflag=direct --on sim:linux-4.4", "whole sectors"),
        ("dd of=/dev/a size=3g writers=2 --on sim:linux-4.4", "overlap"),
        ("dd of=/dev/a size=1g writers=2 distance=1g jitter=4k --on sim:linux-4.4", "overlap"),
        ("dd of=a count=1 jitter=4k --on sim:linux-4.4", "only regions of a device"),
        ("aio-stress files=2 size=2m distance_mb=1 --on sim:linux-4.4", "overlap"),
        ("aio-stress files=2 size=2m jitter=4k --on sim:linux-4.4", "overlap"),
        ("aio-stress size=2m place=fs jitter=4k --on sim:linux-4.4", "only regions of a device"),
        ("dd of=a count=1 --trace --on sim:linux-4.4", "the store has no place"),
        ("dd of=a count=1 --blind=1 --on sim:linux-4.4", "takes no value"),
        ("dd of=a count=1 --until 0 --budget 9 --on sim:linux-4.4", "`--until` takes percent"),
        ("dd of=a count=1 --until nan --budget 9 --on sim:linux-4.4", "`--until` takes percent"),
        ("dd of=a count=1 --until 2 --on sim:linux-4.4", "`--until` needs `--budget`"),
        ("dd of=a count=1 --budget 2 --on sim:linux-4.4", "`--budget` is for `--until`"),
        ("dd of=a count=1 --warm-up x --on sim:linux-4.4", "`--warm-up` takes"),
        ("dd of=a count=1 --on live --disk nvme,fs=fat", "`fs` is one of"),
        ("dd of=a count=1 --on live --disk nvm", "unknown disk `nvm`"),
        ("dd of=a count=1 --on live --cache lukewarm", "`--cache` takes"),
        ("dd of=/tmp/a count=1 --on live", "outside of the directory"),
        ("dd of=../a count=1 --on live", "outside of the directory"),
        ("dd of=/dev/no-such-device count=1 --on live", "this machine has no"),
        ("dd of=a count=1 --size-limit 1 --on sim:linux-4.4", "`--size-limit` takes"),
        ("dd of=a count=1 --on", "needs a value"),
        ("dd of=a count=1 --on sim:linux-4.4 --disk zero --disk nvme", "2 times"),
        ("dd of=a count=1 --json=1 --on sim:linux-4.4", "takes no value"),
        ("dd of=a count=1 -x --on sim:linux-4.4", "unknown option `-x`"),
    ] {
        let message = variants(line, "").expect_err(line);
        assert!(message.contains(expected), "{line}: no {expected} in\n{message}");
    }
}

#[test]
fn the_help_comes_from_the_tables() {
    let help = variants("--help", "").expect_err("help");
    assert!(BUILTINS.iter().all(|builtin| help.contains(builtin.name)), "{help}");
    for builtin in BUILTINS {
        let help = variants(&format!("{} --help", builtin.name), "").expect_err("help");
        assert!(builtin.options.iter().all(|option| help.contains(option.name)), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

#[test]
fn small_buffered_calls_of_dd_are_folded_at_the_cost_of_all() {
    let machine = machine(&builtin("dd if=a size=1m").stack);
    let folded = threads(&builtin("dd if=a size=1m"));
    assert_eq!(folded[0].stream.blocks[0], BlockSizes::Fixed(4096));
    let cost = machine.tool * 8 + (machine.syscall + machine.page_lookup) * 7;
    assert_eq!(folded[0].spec.tool, Some(cost));
    for line in ["dd if=a size=1m fold=0", "dd if=a size=1m iflag=direct"] {
        let plain = threads(&builtin(line));
        assert_eq!((&plain[0].stream.blocks[0], plain[0].spec.tool), (&BlockSizes::Fixed(512), None), "{line}");
    }
}

#[test]
fn a_dd_may_be_held_up_after_so_many_calls() {
    let think =
        |line: &str| threads(&builtin(line))[0].stream.think.map(|think| (think.calls, think.time.0, think.spin.0));
    for (line, expected) in [
        ("dd if=a size=4m bs=1m", None),
        ("dd if=a size=4m bs=1m pause_calls=3", None),
        ("dd if=a size=4m bs=1m pause_us=20", Some((64, 20_000, 0))),
        ("dd if=a size=4m bs=1m pause_us=20 pause_calls=3", Some((3, 20_000, 0))),
        // Eight calls are folded into one.
        ("dd if=a size=4m bs=512 pause_us=20 pause_calls=16", Some((2, 20_000, 0))),
        ("dd if=a size=4m bs=512 pause_us=20 pause_calls=3", Some((1, 20_000, 0))),
    ] {
        assert_eq!(think(line), expected, "{line}");
    }
}

#[test]
fn the_writers_of_dd_have_a_region_each() {
    let plan = builtin("dd of=/dev/sdb bs=4k oflag=direct count=16 seek=2 writers=2 distance=1g start=1m");
    let starts: Vec<Place> = plan.job.workload.files().iter().map(|file| file.place).collect();
    let at = |bytes: u64| Place::Device { start: iowhy_stack::units::Sector(bytes / 512) };
    assert_eq!(starts, [at(1 << 20), at((1 << 20) + (1 << 30))]);
    let threads = threads(&plan);
    assert_eq!(threads[1].stream.targets[0].start, 8192);
    assert_eq!(threads[1].stream.targets[0].len_bytes, 65536);
    assert!(threads[1].spec.direct && threads[0].spec.process != threads[1].spec.process);
}

#[test]
fn regions_begin_elsewhere_with_each_seed() {
    for job in
        ["dd of=/dev/sdb bs=4k count=1 writers=2 distance=1g", "aio-stress files=2 threads=2 size=64k distance_mb=1024"]
    {
        assert_eq!(builtin(job).job.region_jitter, 0, "{job}");
        let mut job = builtin(&format!("{job} jitter=64k")).job;
        let mut starts = |seed: u64| {
            job.seed = seed;
            let places = job.placed_files().into_iter().map(|file| file.place);
            places
                .map(|place| match place {
                    Place::Device { start } => start.0 * 512 % (1 << 30),
                    Place::FileSystem => panic!("a region of the device"),
                })
                .collect::<Vec<u64>>()
        };
        assert_eq!(starts(1), starts(1));
        let drawn: Vec<u64> = (1..200).flat_map(&mut starts).collect();
        assert!(drawn.iter().all(|start| *start <= 65536 && start % 4096 == 0), "{drawn:?}");
        // Every step occurs, the last one too, and the regions of a run are drawn one by one.
        assert_eq!(drawn.iter().collect::<std::collections::BTreeSet<_>>().len(), 17);
        assert!(drawn.chunks(2).any(|pair| pair[0] != pair[1]));
    }
}

#[test]
fn a_thread_of_aio_stress_with_two_files_submits_pairs() {
    let one = threads(&builtin("aio-stress files=2 depth=1 size=1m"));
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].spec.engine, Engine::Aio { depth: 2, batch_submit: 2, batch_complete: 2 });
    assert_eq!(one[0].stream.service, Service::RoundRobin(1));
    let two = threads(&builtin("aio-stress files=2 threads=3 depth=1 size=1m"));
    assert_eq!(two.len(), 2);
    assert!(two.iter().all(|thread| {
        thread.spec.engine == Engine::Aio { depth: 1, batch_submit: 1, batch_complete: 1 }
            && thread.stream.targets.len() == 1
    }));
    let stages = threads(&builtin("aio-stress stage=write,rread size=1m"));
    assert_eq!(stages.iter().map(|thread| thread.spec.group).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn every_built_in_runs_on_old_and_new_kernels() {
    for job in [
        "dd of=/dev/sda bs=4k oflag=direct count=64 writers=2 distance=64m",
        "dd if=a size=256k startup_seeks=3",
        "paralleldd readers=3 size=512k files=multi",
        "aio-stress files=2 threads=2 depth=2 size=1m stage=write,read,rwrite,rread",
        "bonnie size=2m seeks=60",
        "pgbench clients=2 size=4m transactions=20",
    ] {
        for on in ["sim:linux-2.4.25", "sim:linux-3.2.0", "sim:linux-6.18"] {
            let line = format!("{job} --on {on} --repeat 2");
            let run = request(&line);
            let executed = execute(&run, &|_, _| {});
            assert!(executed.refused.is_empty(), "{job} on {on}: {:?}", executed.refused);
            let runs = executed.runs;
            let metrics = &runs[0].record.metrics;
            for figure in &run.variants[0].shape.figures {
                let value = metrics.iter().find(|(name, _)| *name == figure.name).map_or(0.0, |(_, value)| *value);
                assert!(value > 0.0, "{line}: {} is {value}", figure.name);
            }
            let names: std::collections::BTreeSet<&String> = metrics.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), metrics.len(), "{line}: a metric comes twice");
        }
    }
}

#[test]
fn bonnie_fills_twice_the_memory_unless_told_otherwise() {
    let plan = builtin("bonnie");
    assert_eq!(plan.job.workload.files()[0].bytes, 2 * machine(&plan.stack).total_pages * PAGE_BYTES);
}

#[test]
fn files_of_fio_have_the_size_that_jobs_need() {
    for (options, expected) in [
        ("size=1m", vec![1 << 20]),
        ("size=1m nrfiles=2", vec![1 << 19, 1 << 19]),
        ("size=12k nrfiles=2", vec![6144, 6144]),
        ("filesize=64k nrfiles=2", vec![65536, 65536]),
        ("size=1m numjobs=2", vec![1 << 20, 1 << 20]),
        ("size=1m numjobs=2 filename=a", vec![1 << 20]),
        ("size=1m numjobs=2 filename=a offset_increment=1m", vec![2 << 20]),
        ("size=1m filename=a:b offset=4k", vec![(1 << 19) + 4096, (1 << 19) + 4096]),
        ("size=1m offset=25%", vec![1 << 20]),
        ("size=1m offset=10000 offset_align=4k", vec![(1 << 20) + 10_000]),
        ("filesize=64k size=30%", vec![16384]),
        // Sizes of files that fio 3.33 made.
        ("filesize=100k-300k nrfiles=4", vec![131_072, 163_840, 159_744, 282_624]),
    ] {
        let plan = fio_job(options).0;
        let sizes: Vec<u64> = plan.job.workload.files().iter().map(|file| file.bytes).collect();
        assert_eq!(sizes, expected, "{options}");
        assert_eq!(plan.job.check(), Ok(()), "{options}");
    }
    let plan = fio_job("filename=/dev/sda size=1m offset=8k direct=1").0;
    let disk = device_bytes(&plan.stack);
    assert_eq!(plan.job.workload.files()[0].bytes, disk);
    assert_eq!(threads(&plan)[0].stream.targets[0].start, 8192);
    assert_eq!(threads(&fio_job("filename=/dev/sda size=50%").0)[0].stream.targets[0].len_bytes, disk / 2);
}

#[test]
fn options_of_fio_become_properties_of_streams() {
    let stream = |options: &str| threads(&fio_job(options).0).remove(0).stream;
    let random = stream("rw=randrw:8 rwmixread=70 size=1m percentage_random=80");
    assert_eq!(random.mix, Mix::Mixed(70));
    assert_eq!(
        random.order,
        Order::Random { distribution: Distribution::Uniform, once: false, run: 8, random_pct: 80 }
    );
    let zipf = stream("rw=randread size=1m random_distribution=zipf:1.2");
    let expected = Order::Random { distribution: Distribution::Zipf(1200), once: false, run: 1, random_pct: 100 };
    assert_eq!(zipf.order, expected);
    let whole = stream("rw=randread size=1m");
    let expected = Order::Random { distribution: Distribution::Uniform, once: true, run: 1, random_pct: 100 };
    assert_eq!((whole.order, whole.passes), (expected, 1));
    assert_eq!(stream("rw=read:48k size=1m").order, Order::Sequential { hole_bytes: 48 << 10 });
    assert_eq!(stream("size=1m bsrange=4k-16k").blocks[0], BlockSizes::Range(4096, 16384));
    assert_eq!(stream("size=1m bs=4k,8k").blocks, [BlockSizes::Fixed(4096), BlockSizes::Fixed(8192)]);
    let split = BlockSizes::Split(vec![(4096, 6000), (65536, 4000)]);
    assert_eq!(stream("size=1m bssplit=4k/60:64k/40").blocks[0], split);
    assert_eq!(stream("size=1m loops=3").passes, 3);
    let more = stream("size=1m io_size=3m");
    assert_eq!((more.passes, more.limit_bytes), (0, 3 << 20));
    let timed = stream("size=1m time_based runtime=3 ramp_time=1");
    assert_eq!((timed.passes, timed.max_time.0), (0, 4_000_000_000));
    assert_eq!(
        stream("rw=write size=1m fdatasync=4").sync.map(|sync| (sync.writes, sync.op)),
        Some((4, Op::Fdatasync))
    );
    assert_eq!(stream("rw=write size=1m sync=dsync end_fsync=1").synchronous_writes, Some(Op::Fdatasync));
    assert_eq!(stream("rw=read size=1m fsync=4 end_fsync=1").sync, None);
    let rate = stream("rw=rw size=1m rate_iops=50,20 rate_process=poisson").rate.expect("a rate");
    assert_eq!((rate.bytes, rate.poisson), ([50 * 4096, 20 * 4096, 0], true));
    let think = stream("size=1m thinktime=2ms thinktime_spin=500 thinktime_blocks=4").think.expect("pauses");
    assert_eq!((think.calls, think.time.0, think.spin.0), (4, 2_000_000, 500_000));
}

#[test]
fn options_of_fio_become_properties_of_threads() {
    let specs = |options: &str| threads(&fio_job(options).0).into_iter().map(|thread| thread.spec).collect::<Vec<_>>();
    let engine = specs("size=1m direct=1 ioengine=io_uring iodepth=32 iodepth_batch=8").remove(0).engine;
    assert_eq!(engine, Engine::Ring { depth: 32, batch_submit: 8, batch_complete: 1 });
    assert_eq!(specs("size=1m ioengine=mmap")[0].engine, Engine::Mmap);
    assert_eq!(specs("size=1m ioengine=psync iodepth=4")[0].engine, Engine::Sync);
    let processes = |options: &str| specs(options).iter().map(|spec| spec.process).collect::<Vec<_>>();
    assert_eq!(processes("size=1m numjobs=2 thread"), [0, 0]);
    assert_eq!(processes("size=1m numjobs=2"), [1, 2]);
    assert_eq!(processes("size=1m numjobs=2 thread iowhy_process=own"), [1, 2]);
    let descriptors = |options: &str| specs(options).iter().map(|spec| spec.descriptors).collect::<Vec<_>>();
    assert_eq!(descriptors("size=1m numjobs=2 thread"), [0, 1]);
    assert_eq!(descriptors("size=1m numjobs=2 thread iowhy_descriptors=shared"), [0, 0]);
    assert_eq!(specs("size=1m startdelay=3")[0].start_delay.0, 3_000_000_000);
    assert_eq!(specs("size=1m iowhy_startup_seeks=4 iowhy_tool_ns=90")[0].startup_seeks, 4);
    assert_eq!(fio_job("size=1m ioscheduler=deadline").0.stack.elevator.entry.name, "deadline-3.2");
}

#[test]
fn groups_of_fio_run_one_after_the_other() {
    let file =
        "[a]\nsize=1m\n[b]\nsize=1m\nstonewall\n[c]\nsize=1m\n[d]\nsize=1m\nwait_for=a\n[e]\nsize=1m\nstonewall\n";
    let (plan, warnings) = fio_file(file);
    assert_eq!(threads(&plan).iter().map(|thread| thread.spec.group).collect::<Vec<_>>(), [0, 1, 1, 1, 2]);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn what_is_cached_at_the_start_comes_last() {
    let file = "[tables]\nsize=2m\nfilename=t\niowhy_cache=warm\n[log]\nsize=1m\nfilename=l\n";
    let (plan, _) = fio_file(file);
    assert_eq!(plan.job.cache, CacheStart::Tail { bytes: 2 << 20 });
    assert_eq!(plan.job.workload.files().iter().map(|file| file.bytes).collect::<Vec<_>>(), [1 << 20, 2 << 20]);
    assert_eq!(threads(&plan)[0].stream.targets[0].file, 1);
}

#[test]
fn what_cannot_be_simulated_is_refused_or_told() {
    for (options, expected) in [
        ("ioengine=mmap direct=1 size=1m", "past the page cache"),
        ("filename=a", "how large"),
        ("size=1m ioscheduler=deadlin", "nearest: deadline"),
        ("read_iolog=x", "cannot read the iolog `x`"),
    ] {
        let file = format!("[job]\n{}\n", options.replace(' ', "\n"));
        let message = variants("x.fio --on sim:linux-4.4", &file).expect_err(options);
        assert!(message.contains(expected), "{options}: {message}");
    }
    for (options, expected) in [
        ("size=1m exitall", "own end"),
        ("size=1m rw=randtrim", "trims take no time"),
        ("size=1m ioengine=posixaio", "simulated as libaio"),
        ("size=1m write_bw_log=x", "logs are not written"),
        ("size=1m rw=randread random_distribution=zoned:50/10:50/", "both shares are needed"),
    ] {
        let warnings = fio_job(options).1;
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{options}: {warnings:?}");
    }
}

#[test]
fn positions_are_the_same_in_each_run_where_fio_says_so() {
    let positions = |options: &str, seed: u64| {
        let (variants, _) =
            variants("x.fio --on sim:linux-4.4", &format!("[j]\nrw=randread\nsize=1m\n{options}\n")).expect("a plan");
        let simulator: &Simulator = variants[0].backend().expect("a simulated place");
        let plan = variants[0].shape.seeded(&simulator.plan, seed);
        let mut generator = plan.job.workload.generator(plan.job.seed);
        format!("{:?}", generator.next(0, iowhy_stack::units::Nanos::ZERO))
    };
    assert_eq!(positions("randrepeat=1", 1), positions("randrepeat=1", 2));
    assert_ne!(positions("randrepeat=0", 1), positions("randrepeat=0", 2));
    assert_ne!(positions("randseed=5", 1), positions("randseed=6", 1));
}

#[test]
fn runs_of_several_places_are_made_in_blocks_of_random_order() {
    let line = "dd of=a count=1 --on sim:linux-4.4 --on sim:linux-6.1 --on sim:linux-6.18 --repeat 20 --label x";
    let run = request(line);
    let order = run.experiment().schedule();
    assert_eq!(order, run.experiment().schedule());
    let blocks: Vec<Vec<usize>> =
        order.chunks(3).map(|block| block.iter().map(|slot| slot.variant).collect()).collect();
    assert!(blocks.iter().any(|block| *block != blocks[0]));
    for (nr, block) in order.chunks(3).enumerate() {
        let mut variants: Vec<usize> = block.iter().map(|slot| slot.variant).collect();
        variants.sort_unstable();
        assert_eq!(variants, [0, 1, 2]);
        assert!(block.iter().all(|slot| slot.seed == 1 + nr as u64 && slot.block == nr as u64 && !slot.warm_up));
        assert_eq!(block.iter().map(|slot| slot.position).collect::<Vec<_>>(), [0, 1, 2]);
    }
    assert_eq!(run.variants[1].label, "x/sim:linux-6.1");
}

#[test]
fn a_plan_is_one_run() {
    let mut problems = Problems::default();
    let (plan, shape) =
        super::plan(&words("dd of=a count=8 --on sim:linux-4.4 --seed 7"), &mut problems).expect("a plan");
    assert_eq!((plan.job.seed, shape.lines), (7, vec!["dd".to_owned()]));
    for line in ["dd of=a count=8 --on sim:linux-4.4 --repeat 2", "dd --help", "dd of=a --on sim:linux-4.4"] {
        let mut problems = Problems::default();
        assert!(super::plan(&words(line), &mut problems).is_none() && problems.any_error(), "{line}");
    }
}

#[test]
fn names_of_live_jobs_are_inside_the_directory_and_regions_move() {
    let paths = |plan: &iowhy_live::Plan| -> Vec<String> {
        plan.files.iter().map(|file| file.path.display().to_string()).collect()
    };
    let starts = |plan: &iowhy_live::Plan| -> Vec<(u32, u64)> {
        let Workload::Threads { threads, .. } = &plan.job.workload else { panic!("threads") };
        threads.iter().map(|thread| (thread.stream.targets[0].file, thread.stream.targets[0].start)).collect()
    };
    let plan = live_plan("dd of=/dev/iowhy-disk bs=4k oflag=direct,dsync count=16 writers=2 distance=1m start=2m", "");
    assert_eq!((paths(&plan), starts(&plan)), (vec!["place/iowhy-disk".to_owned()], vec![(0, 2 << 20), (0, 3 << 20)]));
    assert_eq!(plan.job.workload.files()[0].bytes, (3 << 20) + 65536);
    assert_eq!(plan.threads[0].open_sync, Some(iowhy_live::plan::OpenSync::Dsync));
    let plan = live_plan("dd if=a bs=512 count=16 writers=2", "");
    assert_eq!(
        (paths(&plan), starts(&plan)),
        (vec!["place/a.0".to_owned(), "place/a.1".to_owned()], vec![(0, 0), (1, 0)])
    );
    assert_eq!(threads_of(&plan)[0].stream.blocks[0], BlockSizes::Fixed(512), "real calls are not folded");
    let plan = live_plan("aio-stress files=2 depth=4 size=1m place=fs direct=0", "");
    assert_eq!(paths(&plan), ["place/aio-stress.0", "place/aio-stress.1"]);
    assert_eq!((plan.threads[0].engine, plan.threads[0].depth), ("libaio", 8));
    let plan = live_plan("x.fio", "[j]\nfilename=/dev/iowhy-disk\nsize=1m\n[k]\nsize=1m\ndirectory=sub\n");
    assert_eq!(paths(&plan), ["place/iowhy-disk", "place/sub/k.0.0"]);
    assert_eq!(plan.cache, Cache::Cold);
    assert!(plan.files.iter().all(|file| file.may_create && file.remove));
    assert_eq!(plan.allow.directory.as_deref(), Some(Path::new("place")));
    let plan = live_plan("x.fio --cache warm --allow-write=/dev/loop7 --size-limit 64k", "[j]\nsize=1m\n");
    assert_eq!((plan.cache, plan.job.workload.files()[0].bytes), (Cache::Warm, 65536));
    assert_eq!(plan.allow.write, [PathBuf::from("/dev/loop7")]);
}

fn threads_of(plan: &iowhy_live::Plan) -> Vec<ThreadJob> {
    match &plan.job.workload {
        Workload::Threads { threads, .. } => threads.clone(),
        Workload::FileIo(_) => Vec::new(),
    }
}

#[test]
fn disks_go_to_the_simulated_places() {
    let (variants, _) =
        variants("dd of=a count=1 --on live --on sim:linux-4.4 --on sim:linux-6.18 --disk ide-2004 --disk nvme", "")
            .expect("a plan");
    let disks: Vec<Option<&str>> = variants.iter().map(|variant| variant.disk.as_deref()).collect();
    assert_eq!(disks, [None, Some("ide-2004"), Some("nvme")]);
    assert!(variants[0].backend::<OnKernel>().is_some());
}

#[test]
fn programs_are_told_what_they_can_be_told() {
    let program = |line: &str| {
        let variant = variants(&format!("{line} --on live --dir place"), "").expect(line).0.remove(0);
        variant.backend::<Installed>().expect("another program").program.command().join(" ")
    };
    assert_eq!(program("bonnie size=16m chunk=4k"), "bonnie++ -q -f -n 0 -m iowhy -d place -r 0 -s 16:4096 -u root");
    assert_eq!(program("pgbench clients=4 time=5 db=test"), "pgbench -c 4 -T 5 test");
    assert_eq!(program("pgbench transactions=10"), "pgbench -c 1 -t 10");
}

fn request(line: &str) -> RunRequest {
    *asked(&words(line), &World::empty()).unwrap_or_else(|problems| panic!("{line}: {}", problems.render()))
}

#[test]
fn blocks_to_warm_up_leave_the_others_as_they_are() {
    let line = "dd of=a count=1 --on sim:linux-4.4 --on sim:linux-6.18 --repeat 12 --seed 5";
    let plain = request(line).experiment().schedule();
    let warmed = request(&format!("{line} --warm-up 3")).experiment().schedule();
    assert_eq!(warmed.len(), plain.len() + 6);
    assert!(warmed[..6].iter().all(|slot| slot.warm_up && slot.seed == 5 + slot.block && slot.block < 3));
    let later = |slot: &Slot| Slot { block: slot.block + 3, ..*slot };
    assert_eq!(warmed[6..], plain.iter().map(later).collect::<Vec<_>>());
}

#[test]
fn the_order_of_an_experiment_stays_what_it_was() {
    let order = |name, seed, warm_up| {
        let experiment = Experiment { name, seed, arms: 3, warm_up, blocks: 4 };
        let slots = experiment.schedule();
        slots.chunks(3).map(|block| block.iter().map(|slot| slot.variant).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(order("order of runs", 1, 2), [[2, 0, 1], [1, 2, 0], [1, 0, 2], [1, 0, 2]]);
    assert_eq!(order("order of live runs", 1, 0), [[1, 0, 2], [2, 1, 0], [2, 1, 0], [0, 1, 2]]);
    assert_eq!(order("order of live experiments", 1, 0), [[2, 0, 1], [1, 0, 2], [0, 1, 2], [0, 2, 1]]);
    // Nothing is made once there is enough, or a run has ended the whole.
    let experiment = Experiment { name: "order of runs", seed: 1, arms: 3, warm_up: 0, blocks: 9 };
    let mut made = Vec::new();
    let enough = |made: &Vec<Slot>, _| made.len() >= 6;
    let ended = experiment.run(&mut made, enough, |made, slot| -> ControlFlow<()> {
        made.push(slot);
        ControlFlow::Continue(())
    });
    assert_eq!((ended, made.as_slice()), (ControlFlow::Continue(()), &experiment.schedule()[..6]));
    let ended = experiment.run(&mut made, |_, _| false, |_, slot| ControlFlow::Break(slot));
    assert_eq!(ended, ControlFlow::Break(made[0]));
}

#[test]
fn labels_of_places_differ_where_their_disks_do() {
    let labels =
        |line: &str| -> Vec<String> { request(line).variants.into_iter().map(|variant| variant.label).collect() };
    let on = "--on sim:linux-4.4 --on sim:linux-4.4";
    assert_eq!(
        labels(&format!("dd of=a count=1 {on} --disk nvme --disk sata-2014 --label x")),
        ["x/sim:linux-4.4@nvme", "x/sim:linux-4.4@sata-2014"]
    );
    assert_eq!(labels(&format!("dd of=a count=1 {on}")), ["sim:linux-4.4", "sim:linux-4.4#2"]);
    assert_eq!(labels(&format!("dd of=a count=1 {on} --label x --label y")), ["x", "y"]);
}

#[test]
fn the_stopping_rule_stops_on_width_and_not_on_difference() {
    // Two kernels that differ a lot: the shift is far from nothing after few runs, but not yet known so well.
    let line = "x.fio --on sim:linux-4.4 --on sim:linux-2.6.18-164.el5 --disk sata-2010";
    let file = "[j]\nrw=randread\nsize=64m\nio_size=256k\ndirect=1\nrandrepeat=0\n";
    let load = |_: &str| Ok(file.to_owned());
    let world = World { load: &load, ..World::empty() };
    let made = |more: &str| {
        let mut problems = Problems::default();
        let Some(Request::Run(run)) = resolve(&words(&format!("{line} {more}")), &world, &mut problems) else {
            panic!("{}", problems.render());
        };
        let executed = execute(&run, &|_, _| ());
        let precision = executed.runs.len().checked_div(2).map(|_| {
            let until = run.until.expect("a rule");
            design::precision(&run, &executed.runs, until.pct).expect("runs that tell")
        });
        (executed.runs.len(), precision.expect("runs"))
    };
    let (few, wide) = made("--until 40 --budget 30");
    let (many, narrow) = made("--until 6 --budget 60");
    let (all, never) = made("--until 0.01 --budget 12");
    assert!(wide.reached() && narrow.reached() && !never.reached(), "{wide:?} {narrow:?} {never:?}");
    // Five and five are the fewest that bound a shift at 99 %.
    assert!((10..many).contains(&few), "{few} and {many} runs");
    assert_eq!(all, 24);
    assert!(never.more() > Some(12) && narrow.more() == Some(0), "{never:?}");
    assert!(narrow.places[0].half_width_pct <= 6.0 && narrow.places.len() == 1);
}
