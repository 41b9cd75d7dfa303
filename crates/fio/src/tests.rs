use super::job::{Advice, SyncMode};
use super::options::{Engine, Group, Model, OPTIONS};
use super::value::{Amount, CacheState, Distribution, ModeSuffix};
use super::*;
use proptest::prelude::*;

/// The jobs of a text that must be right; warnings are returned as messages.
fn accepted(text: &str) -> (FioFile, Vec<String>) {
    let mut problems = Problems::default();
    match parse("t.fio", text, &World::empty(), &mut problems) {
        Some(file) => (file, problems.list.into_iter().map(|problem| problem.message).collect()),
        None => panic!("refused:\n{}", problems.render()),
    }
}

/// The only job of a section `[a]` with a size and these lines.
fn job(lines: &str) -> FioJob {
    let (mut file, _) = accepted(&format!("[a]\nsize=64k\n{lines}\n"));
    assert_eq!(file.jobs.len(), 1);
    file.jobs.remove(0)
}

fn refused(text: &str) -> String {
    let mut problems = Problems::default();
    assert!(parse("t.fio", text, &World::empty(), &mut problems).is_none(), "accepted: {text}");
    problems.render()
}

fn arguments(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn defaults_are_those_of_fio() {
    let job = job("");
    assert!(job.mode.read && !job.mode.write && !job.mode.random);
    assert_eq!((job.blocks.read.min, job.blocks.write.max, job.align.read), (4096, 4096, 4096));
    assert_eq!((job.engine, job.iodepth, job.iodepth_low, job.iodepth_batch), (Engine::Psync, 1, 1, 1));
    assert_eq!((job.numjobs, job.loops, job.nr_files, job.open_files), (1, 1, 1, 1));
    assert_eq!((job.direct, job.invalidate, job.random_map, job.rand_repeat), (false, true, true, true));
    assert_eq!((job.sync, job.advice, job.rand_seed), (SyncMode::None, Advice::Pattern, 0x89));
    assert_eq!((job.size, job.io_size, job.offset), (Some(Amount::Bytes(65_536)), None, Amount::Bytes(0)));
    assert_eq!((job.reporting.percentiles.len(), job.reporting.percentiles[13]), (17, 99_500_000));
    assert_eq!(job.file_names(0), ["a.0.0"]);
    assert!(job.ours.own_process && job.ours.cache.is_none() && !job.ours.blkid);
}

#[test]
fn lines_are_cut_at_comments_without_quoting() {
    let (file, _) = accepted(
        "; head\n  # head\n[a] ; a comment\n\tsize=64k # k\ndescription=hello;world\nfilename=a#b\n\n\
         [x]y]\r\nsize=4k\r\n",
    );
    assert_eq!(file.jobs[0].description.as_deref(), Some("hello"));
    assert_eq!(file.jobs[0].filenames, ["a"]);
    assert_eq!((file.jobs[0].name.as_str(), file.jobs[1].name.as_str()), ("a", "x]y"));
}

#[test]
fn global_sections_hold_for_what_is_below_them() {
    let (file, _) = accepted(
        "[global]\nsize=1m\nbs=8k\nname=all\n[a]\n[globalish]\nrw=randread\n[b]\nbs=16k\n[global]\nbs=32k\n\
         [c]\nbs=,64k\nname=d\n",
    );
    let seen: Vec<_> = file
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.mode.name(), job.blocks.read.min, job.blocks.write.min))
        .collect();
    let expected = [("a", "read", 8192, 8192), ("b", "randread", 16_384, 16_384), ("d", "randread", 32_768, 65_536)];
    assert_eq!(seen, expected);
    assert_eq!(file.globals.len(), 5);
    let own: Vec<_> = file.jobs[2].options.iter().filter(|option| !option.global).map(|option| &option.name).collect();
    assert_eq!(own, ["bs", "name"]);
    assert_eq!(file.jobs[2].options[0].place.to_string(), "t.fio:2:1");
}

#[test]
fn block_sizes_of_each_direction() {
    for (lines, read, write, trim) in [
        ("bs=8k", 8192, 8192, 8192),
        ("bs=,16k", 4096, 16_384, 16_384),
        ("blocksize=1k,2k,512", 1024, 2048, 512),
        ("bsrange=1k-1k,2k:2k", 1024, 2048, 2048),
        ("bsrange=512/25:1k:25:2k:25:4k/25", 512, 512, 1024),
        ("bsrange=4k-1k/2k-8k", 1024, 1024, 4096),
        ("kb_base=1000\nbs=4k", 4000, 4000, 4000),
        ("bs=1kib\nkb_base=1000", 1024, 1024, 1024),
    ] {
        let blocks = job(lines).blocks;
        assert_eq!((blocks.read.min, blocks.write.min, blocks.trim.max), (read, write, trim), "{lines}");
    }
    let blocks = job("bssplit=4k/50:8k/50,16k/100").blocks;
    assert_eq!((blocks.read.min, blocks.read.max, blocks.read.split.len(), blocks.write.min), (4096, 8192, 2, 16_384));
}

#[test]
fn the_last_of_two_opposites_counts() {
    assert!(job("direct=0\nbuffered=0").direct);
    assert!(!job("direct=1\nbuffered=1").direct);
    assert_eq!(job("rwmixread=70\nrwmixwrite=40").rwmix_read, 60);
    assert_eq!(job("rwmixwrite=40\nrwmixread=70").rwmix_read, 70);
}

#[test]
fn depths_depend_on_the_engine_and_on_one_another() {
    let depths = |lines: &str| {
        let job = job(lines);
        [job.iodepth, job.iodepth_batch, job.batch_complete_min, job.batch_complete_max, job.iodepth_low]
    };
    assert_eq!(depths("iodepth=8"), [1, 1, 1, 1, 1]);
    assert_eq!(depths("ioengine=libaio\niodepth=8"), [8, 1, 1, 1, 8]);
    assert_eq!(depths("ioengine=libaio\niodepth=8\niodepth_low=99\niodepth_batch=0"), [8, 8, 1, 1, 8]);
    assert_eq!(depths("ioengine=io_uring\niodepth=8\niodepth_batch_complete=4\niodepth_low=2"), [8, 1, 4, 4, 2]);
}

#[test]
fn every_modelled_field_is_reached() {
    let job = job("rw=randrw:8\nrwmixread=60\nfilename=x:y\\:z\ndirectory=/d1:/d2\nnumjobs=2\nthread\n\
        size=50%\n\
        io_size=1g\noffset=10%\noffset_increment=1m\nnumber_ios=7\nloops=3\ndirect=1\nsync=dsync\n\
        fsync=5\nfdatasync=6\n\
        end_fsync=1\nfsync_on_close=1\nfadvise_hint=random\npre_read=1\nnorandommap\nrandrepeat=0\nrandseed=42\n\
        percentage_random=50,60\ngroup_reporting\nnew_group\nruntime=1m\ntime_based\nramp_time=500ms\nstartdelay=1-2\n\
        thinktime=5ms\nthinktime_spin=10\nthinktime_blocks=4\nthinktime_blocks_type=issue\nrate=1m,2m\n\
        rate_process=poisson\nioscheduler=deadline\nwrite_bw_log=p\nwrite_lat_log\nlog_avg_msec=100\nlog_offset=1\n\
        iowhy_startup_seeks=4\niowhy_tool_ns=2000\niowhy_process=own\niowhy_cache=tail:1m\niowhy_descriptors=shared\n\
        iowhy_actor=blkid\niowhy_mapping_cached=1");
    assert_eq!((job.mode.name(), job.mode.suffix, job.rwmix_read), ("randrw", ModeSuffix::PerOffset(8), 60));
    assert_eq!(
        (job.file_names(0), job.file_names(1)),
        (vec!["/d1/x".to_owned(), "/d1/y:z".to_owned()], vec!["/d2/x".to_owned(), "/d2/y:z".to_owned()],)
    );
    assert_eq!((job.numjobs, job.thread, job.nr_files), (2, true, 2));
    assert_eq!((job.size, job.io_size), (Some(Amount::Percent(50)), Some(Amount::Bytes(1 << 30))));
    assert_eq!((job.offset, job.offset_increment), (Amount::Percent(10), Amount::Bytes(1 << 20)));
    assert_eq!((job.number_ios, job.loops, job.direct, job.sync), (7, 3, true, SyncMode::Dsync));
    assert_eq!((job.fsync, job.fdatasync, job.end_fsync, job.fsync_on_close), (5, 6, true, true));
    assert_eq!((job.advice, job.pre_read, job.invalidate), (Advice::Random, true, false));
    assert_eq!((job.random_map, job.rand_repeat, job.rand_seed), (false, false, 42));
    assert_eq!((job.percentage_random.read, job.percentage_random.trim), (50, 60));
    assert!(job.group_reporting && job.new_group && job.time_based);
    assert_eq!((job.runtime_us, job.ramp_us, job.start_delay_us), (60_000_000, 500_000, (1_000_000, 2_000_000)));
    assert_eq!((job.think.time_us, job.think.spin_us, job.think.blocks, job.think.at_issue), (5000, 10, 4, true));
    assert_eq!((job.rate.bytes.read, job.rate.bytes.write, job.rate.poisson), (1 << 20, 2 << 20, true));
    assert_eq!(job.ioscheduler.as_deref(), Some("deadline"));
    assert_eq!((job.logs.bandwidth.as_deref(), job.logs.latency.as_deref()), (Some("p"), Some("")));
    assert_eq!((job.logs.average_us, job.logs.offset), (100_000, true));
    assert_eq!((job.ours.startup_seeks, job.ours.tool_ns, job.ours.own_process), (4, Some(2000), true));
    assert_eq!((job.ours.cache, job.ours.shared_descriptors), (Some(CacheState::Tail(1 << 20)), true));
    assert!(job.ours.blkid && job.ours.mapping_cached);
}

#[test]
fn distributions_switch_the_map_off() {
    let job = job("rw=randread\nrandom_distribution=zipf:1.2");
    assert_eq!(job.distribution.read, Distribution::Zipf { theta: 1_200_000, center: None });
    assert!(!job.random_map);
}

#[test]
fn groups_are_split_by_barriers_and_by_new_group() {
    let text = "[global]\nsize=4k\n[a]\nstonewall\n[b]\n[c]\nnew_group\n[d]\nstonewall\n[e]\n";
    let groups: Vec<u32> = accepted(text).0.jobs.iter().map(|job| job.group).collect();
    assert_eq!(groups, [0, 0, 1, 2, 2]);
}

#[test]
fn variables_are_replaced_in_files_only() {
    let variable = |name: &str| (name == "SIZE").then(|| "64k".to_owned());
    let world = World { variable: &variable, cpus: 3, ..World::empty() };
    let mut problems = Problems::default();
    let text = "[a]\nsize=${SIZE}\nbs=2*$pagesize\nnumjobs=$ncpus\ndescription=x${NONE}y\nfilename=f/$ncpus\n";
    let file = parse("t", text, &world, &mut problems).unwrap_or_else(|| panic!("{}", problems.render()));
    let job = &file.jobs[0];
    assert_eq!((job.size, job.blocks.read.min, job.numjobs), (Some(Amount::Bytes(65_536)), 8192, 3));
    assert_eq!((job.description.as_deref(), job.filenames[0].as_str()), (Some("xy"), "f/3"));
    assert_eq!(job.options[1].value, "8192");
    assert!(command_line(&arguments("--name=a --size=${SIZE}"), &world, &mut problems).is_none());
}

#[test]
fn files_include_others() {
    let load = |name: &str| match name {
        "d/main.fio" => Ok("[a]\ninclude common.inc\nrw=write\n".to_owned()),
        "d/common.inc" => Ok("size=1m\ninclude=deep.inc\n".to_owned()),
        "deep.inc" => Ok("bs=16k\n".to_owned()),
        "loop.fio" => Ok("[a]\nsize=4k\ninclude loop.inc\n".to_owned()),
        "loop.inc" => Ok("include loop.inc\ninclude loop.inc\n".to_owned()),
        "head.fio" => Ok("[a]\nsize=4k\ninclude head.inc\n".to_owned()),
        "head.inc" => Ok("[b]\nbs=3q\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let world = World { load: &load, ..World::empty() };
    let mut problems = Problems::default();
    let file = parse_files(&["d/main.fio", "d/main.fio"], &world, &mut problems).expect("two good files");
    assert_eq!(
        (file.jobs.len(), file.jobs[0].size, file.jobs[0].blocks.read.min),
        (2, Some(Amount::Bytes(1 << 20)), 16_384)
    );
    assert_eq!((file.jobs[0].stonewall, file.jobs[1].stonewall, file.jobs[1].group), (false, true, 1));
    assert_eq!(file.jobs[0].options[1].place.to_string(), "deep.inc:1:1");
    for (name, expected) in [
        ("loop.fio", "files include one another more than 16 deep"),
        ("head.fio", "head.inc:1:1: an included file may not begin a section"),
        ("none.fio", "cannot read `none.fio`: no such file"),
    ] {
        let mut problems = Problems::default();
        assert!(parse_files(&[name], &world, &mut problems).is_none());
        let text = problems.render();
        assert!(text.contains(expected) && text.lines().count() < 1500, "{text}");
    }
}

#[test]
fn all_mistakes_are_shown_where_they_are() {
    let shown = refused(
        "[global]\nioengin=libaio\n\n[first]\nsize=64k\n  blocksze = 4k\nrw=randraed\niodepth=0\nbs=4k,8q\n\
         [second]\nruntime=10x\nsize\ndirect=yes\n",
    );
    let expected = "\
error: t.fio:2:1: unknown option `ioengin`
  | ioengin=libaio
  | ^^^^^^^
  = nearest: ioengine
error: t.fio:6:3: unknown option `blocksze`
  |   blocksze = 4k
  |   ^^^^^^^^
  = nearest: blocksize
error: t.fio:7:4: option `rw`: `randraed` is not one of its values
  | rw=randraed
  |    ^^^^^^^^
  = nearest: randread
  = try: one of read, write, trim, randread, randwrite, randtrim, rw, randrw, trimwrite, randtrimwrite
error: t.fio:8:9: option `iodepth`: `0` is below the least value, 1
  | iodepth=0
  |         ^
error: t.fio:9:8: option `bs`: `q` is not a unit of a number
  | bs=4k,8q
  |        ^
error: t.fio:11:11: option `runtime`: `x` is not a unit of a time
  | runtime=10x
  |           ^
error: t.fio:12:1: option `size` needs a value
  | size
  | ^^^^
  = try: size=SIZE|N%
error: t.fio:13:8: option `direct`: `yes` is neither 0 nor 1
  | direct=yes
  |        ^^^
  = try: 0 or 1
";
    assert_eq!(shown, expected);
}

#[test]
fn what_no_option_can_say_alone_is_checked() {
    for (text, expected) in [
        ("bs=4k\n[a]\nsize=64k\n", "t.fio:1:1: option `bs` is outside of any section"),
        ("[a\nsize=64k\n", "t.fio:1:1: the closing bracket of the section is missing"),
        ("[]\nsize=64k\n", "t.fio:1:1: the section has no name"),
        ("[a]\nrw=read\n", "t.fio:1:1: job `a` has no size"),
        ("[a]\nsize=1k\n", "t.fio:2:1: a size of 1024 is below the smallest block of 4096 bytes"),
        ("[a]\nsize=1m\ndirect=1\nbs=1000\n", "t.fio:4:1: direct I/O needs blocks of whole sectors of 512 bytes"),
        ("[a]\nsize=1m\nrate=1m\nrate_iops=5\n", "t.fio:4:1: `rate` and `rate_iops` exclude each other"),
        (
            "[a]\nsize=1m\n[b]\nsize=1m\nwait_for=c\n",
            "t.fio:5:1: `wait_for` names `c`, which is not a job before this one",
        ),
        ("[a]\nsize=1m\nhipri\n", "t.fio:3:1: `hipri` is an option of io_uring and pvsync2, not of psync"),
        ("[global]\nhipri\n[a]\nsize=1m\n", "t.fio:2:1: `hipri` is an option of io_uring and pvsync2, not of psync"),
        ("[a]\nsize=1m\nioengine=rdb\n", "t.fio:3:10: option `ioengine`: unknown engine `rdb`"),
        ("[a]\nsize=$pagesize+1k\n", "t.fio:2:6: option `size`: `4096+1k` cannot be computed: `k` is not a unit"),
        ("[a]\nsize=1m\n=5\n", "t.fio:3:1: the name of an option is missing"),
        ("[a]\nsize=1m\ntime_based=\n", "t.fio:3:1: option `time_based`: the value is missing"),
        ("[global]\nbs=4k\n", "t.fio: it has no job"),
        ("", "t.fio: it has no job"),
    ] {
        let shown = refused(text);
        assert!(shown.contains(&format!("error: {expected}\n")), "{text}\n{shown}");
        assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
    }
}

#[test]
fn options_of_an_engine_end_with_it() {
    let (file, _) = accepted("[global]\nioengine=io_uring\nhipri\n[a]\nsize=1m\nioengine=psync\n");
    assert_eq!(file.jobs[0].engine.name(), "psync");
}

#[test]
fn what_is_not_modelled_is_named_once() {
    let (_, warnings) = accepted(
        "[global]\nsize=64k\nflow_sleep=1\nmem=shm\n[a]\nflow_sleep=2\nnice=5\n[b]\nflow_sleep=2\nverify_async=0\n",
    );
    assert_eq!(
        warnings,
        [
            "t.fio:3:1: option `flow_sleep` is accepted but not modelled: jobs do not wait for one another",
            "t.fio:7:1: option `nice` is accepted but not modelled: jobs have equal priority",
        ]
    );
    let (_, warnings) = accepted("[a]\nsize= 64k\nbs=4k\nbsrange=4k-8k\niodepth=4\ntime_based\n");
    assert_eq!(
        warnings,
        [
            "t.fio:2:7: option `size`: fio itself loses the unit behind a blank",
            "t.fio:3:1: option `bs` has no effect next to `bsrange`",
            "t.fio:6:1: `time_based` has no effect without a runtime",
            "t.fio:5:1: the engine `psync` makes one I/O at a time: the depth is 1",
        ]
    );
    for option in OPTIONS {
        if let Model::Missing(why) | Model::Harmless(why) = option.model {
            assert!(!why.is_empty() && option.group != Group::Ours, "{}", option.name);
        }
    }
}

#[test]
fn command_lines_make_jobs() {
    let mut problems = Problems::default();
    let line = "--output-format=json,normal --on sim:linux-6.18 --bs=8k --name=a --size=64k --rw randread --time_based \
                --runtime=5 -name=b -size 32k";
    let invocation = command_line(&arguments(line), &World::empty(), &mut problems).expect("a good command line");
    assert_eq!(problems.render(), "");
    assert_eq!(invocation.settings.formats, [Format::Json, Format::Normal]);
    assert!(!invocation.settings.late_format);
    assert_eq!(invocation.settings.on.as_deref(), Some("sim:linux-6.18"));
    let jobs = &invocation.file.jobs;
    assert_eq!((jobs.len(), jobs[0].mode.name(), jobs[0].blocks.read.min), (2, "randread", 8192));
    assert_eq!((jobs[1].name.as_str(), jobs[1].size, jobs[1].runtime_us), ("b", Some(Amount::Bytes(32_768)), 0));
    for (line, warnings) in [
        ("--max-jobs=4 --eta=never --alloc-size=65536", 0),
        ("--debug=io --status-interval=5 --warnings-fatal", 0),
        ("--trigger=true", 1),
    ] {
        let mut problems = Problems::default();
        let line = arguments(&format!("{line} --name=a --size=4k"));
        assert!(command_line(&line, &World::empty(), &mut problems).is_some());
        assert_eq!(problems.list.len(), warnings, "{:?}", problems.list);
    }
    let late = command_line(&arguments("--name=a --size=4k --output-format=json"), &World::empty(), &mut problems);
    assert!(late.expect("a good command line").settings.late_format);

    let load =
        |name: &str| if name == "j.fio" { Ok("[a]\nsize=4k\n[b]\nsize=8k\n".to_owned()) } else { Err("?".into()) };
    let world = World { load: &load, ..World::empty() };
    let invocation =
        command_line(&arguments("j.fio --section=b --readonly"), &world, &mut problems).expect("a section");
    assert_eq!((invocation.file.jobs.len(), invocation.file.jobs[0].name.as_str()), (1, "b"));
    for (line, action) in [
        ("--help", Action::Help),
        ("-v", Action::Version),
        ("--cmdhelp=bs", Action::Options(Some("bs".to_owned()))),
        ("--cmdhelp=all", Action::Options(None)),
        ("--enghelp", Action::Engines),
    ] {
        let invocation = command_line(&arguments(line), &World::empty(), &mut problems).expect(line);
        assert_eq!(invocation.settings.action, action);
    }
}

#[test]
fn bad_command_lines_say_everything_at_once() {
    let mut problems = Problems::default();
    let line = "--nmae=a --name=a --size=64k --bs=4q --output-format=jsn --direct";
    assert!(command_line(&arguments(line), &World::empty(), &mut problems).is_none());
    let messages: Vec<&str> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "unknown option `--nmae`",
            "unknown output format `jsn`",
            "`--direct` needs a value",
            "argument 4: option `bs`: `q` is not a unit of a number",
        ]
    );
    assert_eq!(problems.list[0].nearest[0], "--name");
    for line in
        ["", "none.fio", "--name=a", "--section=x --name=a --size=4k", "--readonly --name=a --size=4k --rw=write"]
    {
        assert!(command_line(&arguments(line), &World::empty(), &mut Problems::default()).is_none(), "{line}");
    }
}

/// The job files that come with the project: all right, all explained, none that warns.
#[test]
fn shipped_jobs_are_accepted_and_documented() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../jobs");
    let mut count = 0;
    let mut entries: Vec<_> = std::fs::read_dir(&folder).expect("the folder of jobs").flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let text = std::fs::read_to_string(entry.path()).expect("a job file");
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut problems = Problems::default();
        let file = parse(&name, &text, &World::empty(), &mut problems);
        assert_eq!(problems.render(), "", "{name}");
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("# ")).collect();
        assert!(head.len() >= 2 && text.contains("# Look for: "), "{name} does not say what it is");
        for job in file.expect("no problems, so there are jobs").jobs {
            let bytes = match job.size {
                Some(Amount::Bytes(bytes)) => bytes * u64::from(job.numjobs) * job.loops,
                _ => panic!("{name}: a size that depends on the file"),
            };
            let paced = job.think.time_us > 0 || job.rate.iops.read > 0;
            let bounded = job.number_ios * u64::from(job.numjobs);
            let block = if job.mode.write { job.blocks.write.min } else { job.blocks.read.min };
            let ios = if bounded > 0 { bounded } else { bytes / block };
            assert!(ios <= 150_000 || (job.time_based && paced), "{name}: {ios} I/Os");
            assert!(!job.time_based || paced, "{name}: as many I/Os as a fast device can do");
        }
        count += 1;
    }
    assert!(count >= 28, "{count} jobs");
}

/// Texts that look like job files, with a share of nonsense.
fn job_text() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = options::names().chain(["include", "", "nosuch", "[a]", "[global]"]).collect();
    let value = prop_oneof![
        Just(String::new()),
        "[0-9]{1,25}[kmgtpibzs%]{0,3}",
        "[0-9a-z$(){}%,:/+*^=.; #\\-]{0,24}",
        "\\PC{0,12}",
        Just("${X}$pagesize*9999999999999999999".to_owned()),
    ];
    let line = (prop::sample::select(names), prop::bool::weighted(0.85), value)
        .prop_map(|(name, equals, value)| if equals { format!("{name}={value}") } else { format!("{name}{value}") });
    prop::collection::vec(line, 0..12).prop_map(|lines| format!("[a]\n{}", lines.join("\n")))
}

/// Options that are right, as name and value; empty for an option that stands alone.
fn right_options() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let one = prop_oneof![
        (1u64..200).prop_map(|n| ("bs", format!("{}", n * 512))),
        (1u64..200).prop_map(|n| ("bs", format!(",{n}k"))),
        (1u64..9, 1u64..99).prop_map(|(n, share)| ("bssplit", format!("{n}k/{share}:64k/{}", 100 - share))),
        prop::sample::select(vec!["read", "randrw:4", "write", "randread", "readwrite"])
            .prop_map(|m| ("rw", m.to_owned())),
        (1u32..100).prop_map(|n| ("numjobs", n.to_string())),
        (1u32..100).prop_map(|n| ("runtime", format!("{n}s"))),
        prop::sample::select(vec!["stonewall", "thread", "group_reporting", "norandommap", "new_group"])
            .prop_map(|name| (name, String::new())),
        "[a-z/][a-z0-9/ ._]{0,10}[a-z]".prop_map(|name| ("filename", name)),
        (0u32..=100).prop_map(|n| ("rwmixwrite", n.to_string())),
        (1u32..2000).prop_map(|n| ("iowhy_tool_ns", n.to_string())),
    ];
    prop::collection::vec(one, 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_fail(text in job_text(), noise in "\\PC{0,200}") {
        for text in [text, noise] {
            let mut problems = Problems::default();
            let file = parse("t", &text, &World::empty(), &mut problems);
            prop_assert_eq!(file.is_none(), problems.any_error());
            for problem in &problems.list {
                let span = problem.span.as_ref();
                prop_assert!(span.is_none_or(|span| span.start <= span.end && span.end <= span.text.chars().count()));
            }
            let arguments: Vec<String> = text.lines().map(|line| format!("--{line}")).collect();
            let _ = command_line(&arguments, &World::empty(), &mut Problems::default());
            prop_assert!(!problems.render().is_empty() || file.is_some());
        }
    }

    #[test]
    fn what_is_printed_means_the_same(chosen in right_options()) {
        let mut text = String::from("[job one]\nsize=1g\n");
        for (name, value) in &chosen {
            text.push_str(&if value.is_empty() { format!("{name}\n") } else { format!("{name}={value}\n") });
        }
        let (file, _) = accepted(&text);
        let (again, _) = accepted(&file.jobs[0].to_text());
        prop_assert_eq!(&file.jobs, &again.jobs);
        let mut problems = Problems::default();
        let line = command_line(&file.jobs[0].to_arguments(true), &World::empty(), &mut problems);
        let typed = line.expect("a good command line").file.jobs.remove(0);
        let (mut typed, mut read) = (typed, file.jobs[0].clone());
        // Where an option stands differs, and a name is an option of its own on a command line.
        typed.options.clear();
        read.options.clear();
        typed.place = read.place.clone();
        prop_assert_eq!(typed, read);
    }
}

#[test]
fn jobs_are_short_and_their_logs_need_not_be() {
    let comment = format!("; {}\n", "x".repeat(120));
    let long = comment.repeat((iowhy_text::input::JOB as usize).div_ceil(comment.len()));
    let log = format!("fio version 2 iolog\n/x add\n/x open\n{}/x close\n", "/x read 0 4096\n".repeat(1_200_000));
    let load = |name: &str| match name {
        "long.fio" => Ok(long.clone()),
        "short.fio" => Ok("[a]\nread_iolog=log\n".to_owned()),
        "include.fio" => Ok("[a]\ninclude long.fio\n".to_owned()),
        _ => Ok(log.clone()),
    };
    let world = World { load: &load, ..World::empty() };
    for (name, fits) in [("short.fio", true), ("long.fio", false), ("include.fio", false)] {
        let mut problems = Problems::default();
        let file = parse_files(&[name], &world, &mut problems);
        assert_eq!(file.is_some(), fits, "{name}: {}", problems.render());
        assert_eq!(problems.render().contains("longer than 16MiB"), !fits, "{name}: {}", problems.render());
    }
    assert!(log.len() as u64 > iowhy_text::input::JOB);
    let replay = crate::job::Replay {
        logs: vec!["log".to_owned()],
        no_stall: true,
        redirect: None,
        scale: 1,
        align: 0,
        time_scale: 100,
        skip: Vec::new(),
    };
    let mut problems = Problems::default();
    assert!(crate::iolog::load(&replay, 0, world.load, &mut problems).is_some(), "{}", problems.render());
}
