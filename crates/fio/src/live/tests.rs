use super::*;
use crate::World;
use crate::carried_out::NOT_CARRIED_OUT;
use iowhy_live::plan::Pattern;
use iowhy_text::diagnose::Severity;

fn made(text: &str) -> (Option<LiveJobs>, Problems) {
    let world = World { live: true, ..World::empty() };
    let mut problems = Problems::default();
    let file = crate::parse("test.fio", text, &world, &mut problems);
    let jobs = file.and_then(|file| jobs(file, None, &world, &mut problems));
    (jobs, problems)
}

fn thread(options: &str) -> Thread {
    let (jobs, problems) = made(&format!("[a]\nsize=64k\n{}\n", options.replace(' ', "\n")));
    jobs.unwrap_or_else(|| panic!("{options}\n{}", problems.render())).plan.threads[0].clone()
}

#[test]
fn the_table_names_options_once_and_every_option_that_matters_is_carried_out_or_in_it() {
    let mut seen = std::collections::BTreeSet::new();
    for (name, why) in NOT_CARRIED_OUT {
        assert_eq!(options::find(name).map(|option| option.name), Some(*name), "{name} is an option");
        assert!(seen.insert(name), "{name} is there twice");
        assert!(!why.is_empty());
    }
    // What the simulator has no model of and a live run carries out.
    const CARRIED_OUT: &[&str] = &[
        "exitall",
        "exit_what",
        "iodepth_low",
        "max_latency",
        "rate_min",
        "rate_iops_min",
        "latency_target",
        "latency_window",
        "latency_percentile",
        "latency_run",
        "steadystate",
        "steadystate_duration",
        "steadystate_ramp_time",
        "flow",
        "flow_id",
        "flow_watermark",
        "flow_sleep",
        "iodepth_batch_complete_max",
        "hipri",
        "fixedbufs",
        "registerfiles",
        "cpus_allowed",
        "cpus_allowed_policy",
        "cpumask",
        "verify",
        "do_verify",
        "verify_interval",
        "verify_only",
        "verify_offset",
        "verify_pattern",
        "verify_backlog",
        "verify_backlog_batch",
        "trim_percentage",
        "trim_backlog",
        "trim_backlog_batch",
        "serialize_overlap",
        "io_submit_mode",
        "experimental_verify",
        "sqthread_poll",
        "sqthread_poll_cpu",
        "verify_state_load",
        "verify_fatal",
        "verify_header_seed",
        "verify_write_sequence",
        "log_unix_epoch",
        "nice",
        "prio",
        "prioclass",
    ];
    for option in options::OPTIONS {
        if matches!(option.model, options::Model::Missing(_)) {
            let listed = not_carried_out(option.name).is_some();
            assert_ne!(listed, CARRIED_OUT.contains(&option.name), "{}: exactly one of both", option.name);
        }
    }
}

#[test]
fn what_is_not_carried_out_is_told_once_and_only_if_it_was_asked_for() {
    let (_, problems) = made("[global]\nsize=4k\natomic=1\nlockfile=none\n[a]\n[b]\n");
    assert_eq!(problems.list.len(), 1, "{}", problems.render());
    let message = &problems.list[0].message;
    assert!(message.contains("option `atomic` is accepted but not carried out"), "{message}");
}

#[test]
fn options_become_what_the_runner_knows() {
    assert_eq!(thread("").engine, "psync");
    let same = ["sync", "pvsync2", "mmap", "skeleton"].map(|name| (name, name));
    for (name, engine) in same.into_iter().chain([("vsync", "pvsync2")]) {
        assert_eq!(thread(&format!("ioengine={name}")).engine, engine);
    }
    let queued = thread("ioengine=io_uring iodepth=8 iodepth_batch=4 iodepth_batch_complete_min=2 fixedbufs hipri");
    assert_eq!((queued.depth, queued.batch_submit, queued.batch_complete), (8, 4, (2, 2)));
    assert!(queued.fixed_buffers && queued.poll && !queued.registered_files);
    assert_eq!(thread("sync=dsync rw=write").open_sync, Some(OpenSync::Dsync));
    assert_eq!(thread("").fill, Fill::Scrambled);
    assert_eq!(thread("scramble_buffers=0").fill, Fill::Same);
    assert_eq!(thread("zero_buffers").fill, Fill::Zeroes);
    assert_eq!(thread("refill_buffers").fill, Fill::Fresh);
    let content = |options: &str| match thread(options).fill {
        Fill::Made(content) => (content.chunk_bytes, content.repeats, content.drawn_from, content.pattern_percent),
        other => panic!("{options}: {other:?}"),
    };
    for (options, expected) in [
        ("dedupe_percentage=40 bs=8k", (8192, 40, 0, 0)),
        ("dedupe_percentage=40 dedupe_mode=working_set bs=4k size=1m", (4096, 40, 12, 0)),
        ("buffer_compress_percentage=70", (512, 0, 0, 70)),
        ("buffer_compress_percentage=70 buffer_compress_chunk=0", (4096, 0, 0, 70)),
        ("buffer_pattern=0xab", (4096, 0, 0, 100)),
        ("buffer_pattern=0xab bsrange=4k-8k dedupe_percentage=5", (4096, 5, 0, 0)),
    ] {
        assert_eq!(content(options), expected, "{options}");
    }
    let both = thread("nice=-3 prio=6");
    assert_eq!((both.nice, both.io_priority), (Some(-3), Some(2 << 13 | 6)));
    assert_eq!(thread("prioclass=3 prio=1").io_priority, Some(3 << 13 | 1));
    assert_eq!((thread("").nice, thread("").io_priority), (None, None));
    for (options, reads, writes) in [
        ("", &[][..], &[][..]),
        ("continue_on_error=all", &[5, 84], &[5, 84]),
        ("continue_on_error=read ignore_error=,ENOSPC:5", &[5, 84], &[28, 5]),
        ("ignore_error=121", &[121], &[]),
    ] {
        assert_eq!(thread(options).forgives, [reads, writes], "{options}");
    }
    let (jobs, problems) = made("[a]\nsize=4k\nignore_error=ENOSPACE\n");
    assert!(jobs.is_none() && problems.render().contains("nearest: ENOSPC"), "{}", problems.render());
    assert!(!thread("gtod_reduce=1").split_latency && thread("").split_latency);
    assert!(thread("write_iolog=log").keep_calls && !thread("").keep_calls);
    assert_eq!(thread("cpus_allowed=0,2-3").cpus, [0, 2, 3]);
    assert_eq!(thread("cpumask=5").cpus, [0, 2]);
    let (jobs, _) = made("[a]\nsize=4k\nnumjobs=3\ncpus_allowed=1-2\ncpus_allowed_policy=split\n");
    let cpus: Vec<Vec<usize>> = jobs.expect("jobs").plan.threads.into_iter().map(|thread| thread.cpus).collect();
    assert_eq!(cpus, [[1], [2], [1]]);
}

#[test]
fn ends_and_shares_are_those_of_the_options() {
    let none = Terms::default();
    let flow = |number, weight, us| Some(plan::Flow { number, weight, sleep: Nanos::from_us(us) });
    let least = |calls, bytes, ms| Some(plan::Least { calls, bytes, cycle: Nanos::from_ms(ms) });
    let steady = |measure, slope, percent, limit, looks, ramp, together| {
        Some(plan::Steady { measure, slope, percent, limit, looks, ramp: Nanos::from_secs(ramp), together })
    };
    for (options, expected) in [
        ("", none.clone()),
        ("exit_what=all", none.clone()),
        ("exitall", Terms { ends: Ends::Group, ..none.clone() }),
        ("exitall exit_what=stonewall", Terms { ends: Ends::Running, ..none.clone() }),
        ("exitall_on_error exit_what=all", Terms { error_ends: Ends::All, ..none.clone() }),
        ("flow=8", Terms { flow: flow(0, 8, 0), ..none.clone() }),
        ("flow=1 flow_id=3 flow_sleep=100", Terms { flow: flow(3, 1, 100), ..none.clone() }),
        ("rate_min=1m,2k", Terms { least: least([0, 0], [1 << 20, 2048], 1000), ..none.clone() }),
        ("rate_iops_min=50 rate_cycle=500", Terms { least: least([50, 50], [0, 0], 500), ..none.clone() }),
        ("steadystate=bw:12", none.clone()),
        (
            "ss_dur=10s ss=iops_slope:0.3% ss_ramp=5",
            Terms { steady: steady(Measure::Calls, true, true, 0.3, 10, 5, false), ..none.clone() },
        ),
        (
            "ss_dur=3 ss=bw:12 group_reporting",
            Terms { steady: steady(Measure::Bytes, false, false, 12.0, 3, 0, true), ..none.clone() },
        ),
    ] {
        assert_eq!(thread(options).terms, expected, "{options}");
    }
    let search =
        thread("ioengine=libaio iodepth=8 latency_target=500 latency_window=2s latency_percentile=99.5").search;
    let wanted =
        plan::Search { target: Nanos::from_us(500), window: Nanos::from_secs(2), percent: 99.5, goes_on: false };
    assert_eq!((search, thread("").search), (Some(wanted), None));
    let ramped = made("[a]\nsize=4k\nramp_time=1\nstartdelay=2\n").0.expect("jobs").plan;
    assert_eq!((ramped.job.warmup, ramped.threads[0].warmup), (Nanos::ZERO, Nanos::from_secs(1)));
}

#[test]
fn what_changes_no_figure_is_a_note() {
    let (jobs, problems) = made("[a]\nsize=4k\natomic=1\nverify_dump=1\nioengine=posixaio\n");
    let warned = problems.list.iter().filter(|problem| problem.severity == Severity::Warning).count();
    let notes = jobs.expect("jobs").notes;
    assert_eq!((warned, notes.len()), (1, 3), "{notes:?}");
}

#[test]
fn pages_go_between_passes_where_fio_drops_them() {
    for (options, expected) in [
        ("loops=3", true),
        ("loops=3 invalidate=0", false),
        ("loops=3 direct=1", true),
        ("runtime=1 time_based", true),
        ("runtime=1 time_based direct=1", false),
        ("runtime=1 time_based rw=randread", true),
        ("runtime=1 time_based rw=randread norandommap", false),
        ("io_size=1m rw=randread norandommap", true),
        ("loops=3 iowhy_cache=warm", false),
        ("loops=3 pre_read=1", false),
    ] {
        let jobs = made(&format!("[a]\nsize=64k\n{}\n", options.replace(' ', "\n"))).0.expect(options);
        let Workload::Threads { threads, .. } = &jobs.plan.job.workload else { panic!("threads") };
        assert_eq!(threads[0].stream.drop_between_passes, expected, "{options}");
    }
}

#[test]
fn steadiness_is_shown_as_fio_shows_what_it_parsed() {
    let mut text = String::new();
    for value in ["iops:10", "iops:.1%", "bw:12"] {
        let globals = format!("[global]\nss_dur=10s\nss={value}\n[a]\nsize=4k\nioengine=null\n");
        text += &parsed(&made(&globals).0.expect("jobs").file);
    }
    let values: Vec<&str> = text.lines().map(|line| line.trim_start_matches("parse    set steady state ")).collect();
    let twice = ["IOPS threshold to 10.000000", "threshold to 0.100000%", "BW threshold to 12"].map(|line| [line; 2]);
    assert_eq!(values, twice.concat());
}

#[test]
fn verify_is_after_writes_or_with_reads() {
    let of = |options: &str| thread(options).verify;
    let checks = |options: &str| {
        let (jobs, _) = made(&format!("[a]\nsize=64k\n{}\n", options.replace(' ', "\n")));
        let Workload::Threads { threads, .. } = jobs.expect("a job").plan.job.workload else { unreachable!() };
        *threads[0].stream.checks.clone().expect("it is checked")
    };
    assert_eq!(of("rw=write"), None);
    let written = of("rw=write verify=crc32c verify_interval=512 verify_fatal=1").expect("it is checked");
    let wanted = Verify { interval_bytes: 512, fatal: true, ..Verify::default() };
    assert_eq!(written, wanted);
    assert_eq!(thread("rw=write verify=crc32c").fill, Fill::Checked);
    assert!(checks("rw=write verify=crc32c").after_writes);
    assert!(!checks("rw=write verify=xxhash do_verify=0").after_writes);
    assert_eq!(of("rw=read verify=sha3-256").map(|read| read.sum), Some(Sum::Sha3(32)));
    let read = checks("rw=read verify=sha3-256");
    assert_eq!((read.reads, read.after_writes), (true, false));
    assert!(!checks("rw=rw verify=md5 do_verify=0").reads, "not in the order of fio's writes");
    for (options, bytes) in
        [("bs=4k", 4096), ("bsrange=4k-64k", 4096), ("bsrange=4k-6k", 2048), ("verify_interval=1k", 1024)]
    {
        assert_eq!(of(&format!("rw=write verify=md5 {options}")).expect("checked").interval_bytes, bytes, "{options}");
    }
    assert_eq!(of("rw=write verify_pattern=1").expect("it is checked").sum, Sum::PatternHeader);
    assert_eq!(of("rw=write ioengine=null verify=md5").expect("reads are made").sum, Sum::Null);
    let (jobs, problems) = made("[a]\nsize=4k\nrw=read\nverify_pattern=0xg\n");
    assert!(jobs.is_none() && problems.render().contains("verify_pattern"), "{}", problems.render());
}

#[test]
fn what_is_not_run_here_can_be_read_and_is_refused_by_name() {
    for (options, expected) in [
        ("ioengine=net\nhostname=h\nlisten\nrw=write", "the engine `net` is not run here"),
        ("ioengine=cpuio\ncpuload=50", "the engine `cpuio` is not run here"),
        ("size=1m\nrw=write\nzonemode=zbd\nzonesize=64k\nmax_open_zones=2", "`zonemode=zbd` is for zoned devices"),
    ] {
        let mut problems = Problems::default();
        let text = format!("[a]\n{options}\n");
        let world = World { live: true, ..World::empty() };
        assert!(crate::parse("test.fio", &text, &world, &mut problems).is_some(), "{}", problems.render());
        let (jobs, problems) = made(&text);
        let told: Vec<_> = problems.list.iter().filter(|problem| problem.severity != Severity::Note).collect();
        assert!(jobs.is_none() && told.len() == 1 && told[0].message.contains(expected), "{}", problems.render());
    }
}

#[test]
fn jobs_wait_for_the_clones_of_one_that_is_named_alone() {
    let (jobs, _) = made("[global]\nsize=4k\n[a]\nnumjobs=2\n[b]\n[c]\nwait_for=a\n[d]\nstonewall\n");
    let plan = jobs.expect("jobs").plan;
    let after: Vec<&[u32]> = plan.threads.iter().map(|thread| &thread.terms.after[..]).collect();
    assert_eq!(after, [&[][..], &[], &[], &[0, 1], &[]]);
    let Workload::Threads { threads, .. } = &plan.job.workload else { panic!("threads") };
    assert_eq!(threads.iter().map(|thread| thread.spec.group).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
}

#[test]
fn offloaded_jobs_of_synchronous_engines_have_a_depth() {
    for (options, expected) in [("", (false, 1)), ("io_submit_mode=offload", (true, 8))] {
        let made = thread(&format!("iodepth=8 {options}"));
        assert_eq!((made.offload, made.depth), expected, "{options}");
    }
}

#[test]
fn patterns_are_read_as_fio_reads_them() {
    for (text, bytes, offsets) in [
        ("0xff0x01", &[0xff, 1][..], &[][..]),
        ("0xabc", &[0x0a, 0xbc], &[]),
        ("-1024", &[0, 0xfc, 0xff, 0xff], &[]),
        ("66", &[66], &[]),
        ("0", &[0], &[]),
        ("\"ab\"%o0x7", &[b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 0, 7], &[2]),
    ] {
        let wanted = Pattern { bytes: bytes.into(), offsets: offsets.into() };
        assert_eq!(data::pattern(text), Ok(wanted), "{text}");
    }
}

#[test]
fn files_are_where_the_job_says() {
    let (jobs, _) = made("[a]\nsize=8k\ndirectory=/tmp\nnrfiles=2\nunlink=1\n[b]\nfilename=x\nsize=4k\n");
    let files = jobs.expect("jobs").plan.files;
    let shown: Vec<(String, bool)> = files.iter().map(|file| (file.path.display().to_string(), file.remove)).collect();
    assert_eq!(shown, [("/tmp/a.0.0", true), ("/tmp/a.0.1", true), ("x", false)].map(|(at, gone)| (at.into(), gone)));
    assert!(files.iter().all(|file| file.may_create && file.reserve));
    for (word, reserve) in [("none", false), ("truncate", false), ("0", false), ("posix", true), ("1", true)] {
        let (jobs, _) = made(&format!("[a]\nsize=8k\nfallocate={word}\n"));
        assert_eq!(jobs.expect("jobs").plan.files[0].reserve, reserve, "{word}");
    }
    let world = World { live: true, ..World::empty() };
    let mut problems = Problems::default();
    let file = crate::parse("test.fio", "[a]\nsize=8k\ndirectory=/tmp/no/such/folder\n", &world, &mut problems);
    check_folders(&file.expect("a job file"), &mut problems);
    assert!(problems.render().contains("is not a directory"), "{}", problems.render());
    let (jobs, _) = made("[a]\nsize=8k\nioengine=null\n[b]\nsize=8k\nallow_file_create=0\n");
    assert!(jobs.expect("jobs").plan.files.iter().all(|file| !file.may_create));
}

#[test]
fn the_same_draws_each_time_unless_told_otherwise() {
    let seeds = |options: &str| {
        let jobs = made(&format!("[a]\nsize=4k\nnumjobs=2\n{options}\n")).0.expect("jobs");
        let Workload::Threads { threads, .. } = &jobs.plan.job.workload else { panic!("threads") };
        threads.iter().map(|thread| thread.stream.seed).collect::<Vec<_>>()
    };
    let fixed = seeds("");
    assert_eq!(fixed, seeds(""));
    assert_ne!(fixed[0], fixed[1], "clones draw for themselves");
    assert_ne!(fixed, seeds("randrepeat=0"));
    assert_ne!(fixed, seeds("randseed=7"));
}

#[test]
fn the_page_cache_is_as_asked_for() {
    let cache = |options: &str| made(&format!("[a]\nsize=4k\n{options}\n")).0.expect("jobs").plan.cache;
    assert_eq!(cache(""), Cache::AsFound);
    assert_eq!(cache("pre_read=1"), Cache::Warm);
    assert_eq!(cache("iowhy_cache=cold"), Cache::Cold);
    assert_eq!(cache("iowhy_cache=warm"), Cache::Warm);
}

#[test]
fn a_recorded_list_becomes_a_script() {
    let log = "fio version 3 iolog\n1 f add\n1 f open\n5 f read 0 4096\n1005 f write 8192 512\n1006 f sync 0 0\n";
    let load = |name: &str| if name == "log" { Ok(log.to_owned()) } else { Err("no such file".to_owned()) };
    let world = World { live: true, load: &load, ..World::empty() };
    let mut problems = Problems::default();
    let file = crate::parse("test.fio", "[a]\nread_iolog=log\n", &world, &mut problems).expect("it parses");
    let made = jobs(file, None, &world, &mut problems).unwrap_or_else(|| panic!("{}", problems.render()));
    assert_eq!(made.plan.files[0].path, PathBuf::from("f"));
    let Workload::Threads { files, threads } = &made.plan.job.workload else { panic!("threads") };
    assert_eq!((files[0].bytes, made.plan.job.check()), (8704, Ok(())));
    let script = threads[0].stream.script.as_ref().expect("a script");
    let gap = script[1].at.0 - script[0].at.0;
    assert_eq!((script.len(), gap), (3, 1_000_000));
    let file = crate::parse("test.fio", "[a]\nread_iolog=other\n", &world, &mut problems).expect("it parses");
    assert!(jobs(file, None, &world, &mut problems).is_none() && problems.render().contains("no such file"));
}
