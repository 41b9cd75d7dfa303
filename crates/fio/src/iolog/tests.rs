use super::*;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

fn options() -> Replay {
    Replay {
        logs: vec!["log".to_owned()],
        no_stall: false,
        redirect: None,
        scale: 1,
        align: 0,
        time_scale: 100,
        skip: Vec::new(),
    }
}

/// The log and the problems, one a line.
fn parse(text: &str, redirect: Option<&str>) -> (Option<Iolog>, Vec<String>) {
    let mut problems = Problems::default();
    let log = Iolog::parse("log", text, redirect, &mut problems);
    assert_eq!(log.is_none(), problems.any_error(), "{}", problems.render());
    (log, problems.list.into_iter().map(|problem| problem.message).collect())
}

/// The calls of a log without problems: microseconds, letter, file, offset, length.
fn replay(text: &str, options: &Replay) -> Vec<(u64, char, u32, u64, u32)> {
    let (log, problems) = parse(text, options.redirect.as_deref());
    assert_eq!(problems, [""; 0]);
    let replayed = log.unwrap().replay(options);
    let letter = |op| match op {
        Op::Read => 'r',
        Op::Write => 'w',
        Op::Fsync => 's',
        Op::Fdatasync => 'd',
        Op::Trim => 't',
    };
    let step = |step: &Scripted| {
        let Call { op, file, offset, len_bytes, .. } = step.call;
        (step.at.0 / 1000, letter(op), file, offset, len_bytes)
    };
    replayed.calls.iter().map(step).collect()
}

/// fio 3.33's log of a short job.
const BY_FIO: &str = "fio version 3 iolog\n26 f1 add\n152 f1 open\n157 f1 read 0 4096\n433 f1 read 45056 4096\n\
                      578 f1 write 28672 4096\n761 f1 sync 28672 0\n5336 f1 datasync 0 0\n6018 f1 close\n";

#[test]
fn a_log_of_fio_has_its_times_and_calls() {
    let expected = [
        (131, 'r', 0, 0, 4096),
        (407, 'r', 0, 45056, 4096),
        (552, 'w', 0, 28672, 4096),
        (735, 's', 0, 0, 0),
        (5310, 'd', 0, 0, 0),
    ];
    assert_eq!(replay(BY_FIO, &options()), expected);
}

#[test]
fn a_log_of_fio_is_written_as_it_was_read() {
    let mut out = Vec::new();
    parse(BY_FIO, None).0.unwrap().write(&mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), BY_FIO);
}

#[test]
fn options_of_replaying_change_times_and_places() {
    let text = "fio version 3 iolog\n1000 a add\n1000 a read 10000 512\n3000 a write 20000 512\n4000 a read 0 512\n";
    let at = |change: &dyn Fn(&mut Replay)| {
        let mut options = options();
        change(&mut options);
        replay(text, &options).into_iter().map(|call| (call.0, call.1, call.3)).collect::<Vec<_>>()
    };
    let plain = [(0, 'r', 10000), (2000, 'w', 20000), (3000, 'r', 0)];
    assert_eq!(at(&|_| ()), plain);
    assert_eq!(at(&|options| options.no_stall = true), plain.map(|(_, op, offset)| (0, op, offset)));
    assert_eq!(at(&|options| options.time_scale = 200), [(0, 'r', 10000), (1000, 'w', 20000), (1500, 'r', 0)]);
    assert_eq!(at(&|options| options.time_scale = 50), [(0, 'r', 10000), (4000, 'w', 20000), (6000, 'r', 0)]);
    assert_eq!(at(&|options| options.scale = 3), [(0, 'r', 3333), (2000, 'w', 6666), (3000, 'r', 0)]);
    assert_eq!(at(&|options| options.align = 4096), [(0, 'r', 8192), (2000, 'w', 16384), (3000, 'r', 0)]);
    let both = |options: &mut Replay| (options.scale, options.align) = (4, 512);
    assert_eq!(at(&both), [(0, 'r', 2048), (2000, 'w', 4608), (3000, 'r', 0)]);
    // The gap before a skipped entry goes with it, as in fio.
    assert_eq!(at(&|options| options.skip = vec!["write"]), [(0, 'r', 10000), (1000, 'r', 0)]);
    assert_eq!(at(&|options| options.skip = vec!["read"]), [(2000, 'w', 20000)]);
}

#[test]
fn skipping_syncs_leaves_datasyncs_as_fio_does() {
    let mut options = options();
    options.skip = vec!["sync"];
    let story: String = replay(BY_FIO, &options).iter().map(|call| call.1).collect();
    assert_eq!(story, "rrwd");
}

#[test]
fn gaps_are_nothing_for_the_first_line_for_time_running_backwards_and_behind_time_0() {
    let times = |times: [u64; 4]| {
        let lines: String = times.iter().map(|time| format!("{time} a read 0 512\n")).collect();
        let text = format!("fio version 3 iolog\n{} a add\n{lines}", times[0]);
        replay(&text, &options()).iter().map(|call| call.0).collect::<Vec<_>>()
    };
    assert_eq!(times([500, 600, 700, 800]), [0, 100, 200, 300]);
    assert_eq!(times([500, 600, 400, 450]), [0, 100, 100, 150]);
    assert_eq!(times([0, 600, 700, 700]), [0, 0, 100, 100]);
}

#[test]
fn version_2_goes_on_as_calls_end_and_waits_until_a_time() {
    let text = "fio version 2 iolog\na add\na open\na read 0 512\na wait 30 0\na read 512 512\na read 1024 512\n\
                a wait 20 0\na read 1536 512\na close\n";
    let times = |options: &Replay| replay(text, options).iter().map(|call| call.0).collect::<Vec<_>>();
    assert_eq!(times(&options()), [0, 30_000, 0, 0]);
    assert_eq!(times(&Replay { no_stall: true, ..options() }), [0, 0, 0, 0]);
    assert_eq!(times(&Replay { time_scale: 200, ..options() }), [0, 30_000, 0, 0], "only times of version 3 scale");
}

#[test]
fn redirection_leads_everything_to_one_file() {
    let text = "fio version 3 iolog\n5 a add\n5 b add\n6 a read 0 512\n7 b read 512 512\n8 c read 1024 512\n";
    let redirected = Replay { redirect: Some("/dev/sdx".to_owned()), ..options() };
    let calls = replay(text, &redirected);
    assert!(calls.iter().all(|call| call.2 == 0) && calls.len() == 3);
    assert_eq!(parse(text, Some("/dev/sdx")).0.unwrap().files, ["/dev/sdx"]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let first = |text: &str| parse(text, None).1.into_iter().next().unwrap_or_default();
    let after = |lines: &str| first(&format!("fio version 3 iolog\n1 a add\n{lines}\n"));
    for (lines, expected) in [
        ("2 b read 0 512", "log:3: `b` is used before it was added"),
        ("2 a raed 0 512", "log:3: unknown action `raed`: the line is left out"),
        ("2 a wait 5 0", "log:3: version 3 has times instead of `wait`: the line is left out"),
        ("2 a read 0", "log:3: `read` has an offset and a length: the line is left out"),
        ("2 a read", "log:3: `read` has an offset and a length: the line is left out"),
        ("2 a open 0 512", "log:3: `open` has neither offset nor length: the line is left out"),
        ("2 a", "log:3: an entry has a file and an action"),
        ("a read 0 512", "log:3: a line begins with its time in microseconds"),
        ("", "log:3: an empty line is not an entry"),
        ("2 a read 0 4294967808", "log:3: a length has 32 bits: 4294967808 is read as 512"),
        ("2 a read 0 512 more", ""),
    ] {
        assert_eq!(after(lines), expected, "{lines}");
    }
    let name = "n".repeat(257);
    assert_eq!(after(&format!("2 {name} add")), "log:3: a name of a file has at most 256 bytes");
    assert_eq!(after(&format!("2 {} add", &name[1..])), "");
    assert_eq!(first("fio version 1 iolog\n"), "log:1: version 1 of the iolog is not read, as fio no longer does");
    assert_eq!(first("0, 4096, 4096\n"), "log:1: version 1 of the iolog is not read, as fio no longer does");
    assert!(first("").starts_with("log:1: not an iolog"));
}

#[test]
fn lines_that_are_left_out_leave_the_rest() {
    let text = "fio version 2 iolog\na add\na bogus 0 1\na read 0 512\nnonsense\na write 512 512\n";
    let (log, problems) = parse(text, None);
    assert_eq!(problems.len(), 2);
    let actions: Vec<Action> = log.unwrap().entries.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::Add, Action::Read, Action::Write]);
}

#[test]
fn a_thousand_bad_lines_are_ten_and_a_number() {
    let text = format!("fio version 2 iolog\n{}", "what\n".repeat(1000));
    let (_, problems) = parse(&text, None);
    assert_eq!(problems.len(), 11);
    assert_eq!(problems[10], "log: 990 more lines have such problems");
}

#[test]
fn clones_take_the_logs_in_turn_and_trims_are_replayed() {
    let one = |name: &str| Ok(format!("fio version 3 iolog\n1 {name} add\n1 {name} trim 0 512\n2 {name} read 0 512\n"));
    let options = Replay { logs: vec!["x".to_owned(), "y".to_owned()], ..options() };
    for (clone, expected) in [(0, "x"), (1, "y"), (2, "x")] {
        let mut problems = Problems::default();
        let replayed = load(&options, clone, &one, &mut problems).unwrap();
        assert_eq!(replayed.files, [ReplayedFile { name: expected.to_owned(), bytes: 512 }]);
        assert_eq!(problems.render(), "");
        assert_eq!(replayed.calls.iter().map(|step| step.call.op).collect::<Vec<_>>(), [Op::Trim, Op::Read]);
    }
    for (text, expected) in [
        (Err("no such file".to_owned()), "cannot read the iolog `x`: no such file"),
        (Ok("fio version 2 iolog\na add\n".to_owned()), "x: there is nothing in it to replay"),
    ] {
        let mut problems = Problems::default();
        assert_eq!(load(&options, 0, &|_| text.clone(), &mut problems), None);
        assert_eq!(problems.list[0].message, expected);
    }
}

#[test]
fn a_stream_has_the_numbers_of_the_job() {
    let text = "fio version 3 iolog\n1 a add\n1 b add\n1 c add\n2 a read 4096 512\n3 c sync 0 0\n";
    let (log, _) = parse(text, None);
    let replayed = log.unwrap().replay(&options());
    let stream = replayed.stream(&[7, 0, 3]).unwrap();
    let target = |file, len_bytes| Target { file, start: 0, len_bytes };
    assert_eq!(stream.targets, [target(7, 4608), target(3, 4096)]);
    let files: Vec<u32> = stream.script.unwrap().iter().map(|step| step.call.file).collect();
    assert_eq!(files, [7, 3]);
}

#[test]
fn calls_are_logged_in_the_order_in_which_they_began() {
    let call = |at, op, file, offset| CallRecord {
        at: Nanos::from_us(at),
        took: Nanos(1),
        late: Nanos(0),
        submission: Nanos(0),
        op,
        file,
        offset,
        len_bytes: if matches!(op, Op::Read | Op::Write) { 512 } else { 0 },
    };
    let calls = [call(9, Op::Write, 2, 512), call(4, Op::Read, 0, 0), call(20, Op::Fdatasync, 2, 0)];
    let files = ["a", "unused", "c"].map(str::to_owned);
    let log = Iolog::of_calls(&files, &calls);
    let mut out = Vec::new();
    log.write(&mut out).unwrap();
    let expected = "fio version 3 iolog\n1 a add\n1 c add\n1 a open\n1 c open\n5 a read 0 512\n10 c write 512 512\n\
                    21 c datasync 0 0\n21 a close\n21 c close\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let times: Vec<u64> = replay(expected, &options()).iter().map(|call| call.0).collect();
    assert_eq!(times, [4, 9, 20]);
}

#[test]
fn what_a_log_cannot_hold_is_not_written() {
    let entry = |action| Entry { at_us: 0, file: 0, action, offset: 0, len_bytes: 0 };
    let error = |version, name: &str, action| {
        let log = Iolog { version, files: vec![name.to_owned()], entries: vec![entry(action)] };
        log.write(&mut Vec::new()).unwrap_err().to_string()
    };
    assert!(error(Version::Two, "a b", Action::Add).starts_with("an iolog cannot name the file `a b`"));
    assert_eq!(error(Version::Three, "a", Action::Wait), "version 3 of the iolog has no `wait`");
}

fn logs() -> impl Strategy<Value = Iolog> {
    let entry = (any::<u64>(), 0..4_u32, 1..ACTIONS.len(), any::<u64>(), any::<u32>());
    (
        prop_oneof![Just(Version::Two), Just(Version::Three)],
        proptest::collection::btree_set("[!-~äß]{1,20}", 4),
        proptest::collection::vec(entry, 0..40),
    )
        .prop_map(|(version, files, list)| {
            let none = Entry { at_us: 0, file: 0, action: Action::Add, offset: 0, len_bytes: 0 };
            let mut entries: Vec<Entry> = (0..4).map(|file| Entry { file, ..none }).collect();
            for (at_us, file, action, offset, len_bytes) in list {
                let action = ACTIONS[action].1;
                if action == Action::Wait && version == Version::Three {
                    continue;
                }
                let at_us = if version == Version::Three { at_us } else { 0 };
                let (offset, len_bytes) = if action.of_file() { (0, 0) } else { (offset, len_bytes) };
                entries.push(Entry { at_us, file, action, offset, len_bytes });
            }
            Iolog { version, files: files.into_iter().collect(), entries }
        })
}

proptest! {
    #[test]
    fn what_was_written_is_read(log in logs()) {
        let mut out = Vec::new();
        log.write(&mut out).unwrap();
        let (read, problems) = parse(&String::from_utf8(out).unwrap(), None);
        prop_assert_eq!(problems, [""; 0]);
        prop_assert_eq!(read, Some(log));
    }

    #[test]
    fn any_text_is_read_or_refused_and_times_never_run_backwards(
        version in 2..4,
        lines in proptest::collection::vec(
            "([0-9]{1,20} )?(a|b) (add|open|close|read|write|sync|wait|x) ?[0-9]{0,20} ?[0-9]{0,11}",
            0..20,
        ),
        time_scale in 1..300_u64,
    ) {
        let text = format!("fio version {version} iolog\n{version} a add\na add\n{}", lines.join("\n"));
        let mut problems = Problems::default();
        let Some(log) = Iolog::parse("log", &text, None, &mut problems) else {
            prop_assert!(problems.any_error());
            return Ok(());
        };
        let options = Replay { time_scale, ..options() };
        let replayed = log.replay(&options);
        let mut last = Nanos::ZERO;
        for step in replayed.calls.iter().filter(|step| step.at > Nanos::ZERO) {
            prop_assert!(step.at >= last);
            last = step.at;
            let end = step.call.offset.saturating_add(u64::from(step.call.len_bytes));
            prop_assert!(end <= replayed.files[step.call.file as usize].bytes);
        }
    }
}
