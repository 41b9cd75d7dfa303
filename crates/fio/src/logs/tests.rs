use super::*;
use iowhy_live::outcome::Sample;
use iowhy_stack::outcome::Counts;
use proptest::prelude::{any, prop_assert_eq, proptest};

fn logs() -> Logs {
    Logs {
        bandwidth: None,
        latency: None,
        iops: None,
        histogram: None,
        average_us: 0,
        histogram_us: 0,
        coarseness: 0,
        window: LogWindow::Average,
        offset: false,
        issue_time: false,
        per_job: true,
        packed: false,
        bandwidth_sample_us: 500_000,
        iops_sample_us: 500_000,
    }
}

/// A call: when it began (us), how long it took and how much of that was its submission (ns).
fn call(op: Op, at_us: u64, took: u64, submission: u64, offset: u64) -> CallRecord {
    let (at, took, submission) = (Nanos::from_us(at_us), Nanos(took), Nanos(submission));
    CallRecord { at, took, late: Nanos::ZERO, submission, op, file: 0, offset, len_bytes: 4096 }
}

/// The calls of a hand-made run, in no order.
fn outcome() -> ThreadOutcome {
    ThreadOutcome {
        calls: vec![
            call(Op::Write, 9_000, 700_000, 5_000, 8192),
            call(Op::Read, 1_000, 250_000, 3_000, 4096),
            call(Op::Fsync, 2_000, 9_000_000, 0, 0),
            call(Op::Read, 1_100, 50_000, 2_000, 0),
            call(Op::Read, 12_000, 10_001, 1_000, 12_288),
        ],
        ..ThreadOutcome::default()
    }
}

fn text(logs: &Logs, outcome: &ThreadOutcome, kind: Kind) -> String {
    let thread = LogThread { number: 1, job: "j", logs, outcome, asynchronous: true, epoch_ms: 0 };
    let mut out = Vec::new();
    write(&thread, kind, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_call_has_a_row_when_it_ended() {
    for (kind, expected) in [
        (Kind::Lat, "1, 50000, 0, 4096, 0\n1, 250000, 0, 4096, 0\n9, 700000, 1, 4096, 0\n12, 10001, 0, 4096, 0\n"),
        (Kind::Clat, "1, 48000, 0, 4096, 0\n1, 247000, 0, 4096, 0\n9, 695000, 1, 4096, 0\n12, 9001, 0, 4096, 0\n"),
        (Kind::Slat, "1, 2000, 0, 4096, 0\n1, 3000, 0, 4096, 0\n9, 5000, 1, 4096, 0\n12, 1000, 0, 4096, 0\n"),
        (Kind::Bw, "1, 85333, 0, 4096, 0\n1, 16582, 0, 4096, 0\n9, 5893, 1, 4096, 0\n12, 455060, 0, 4096, 0\n"),
        (Kind::Iops, "1, 1, 0, 4096, 0\n1, 1, 0, 4096, 0\n9, 1, 1, 4096, 0\n12, 1, 0, 4096, 0\n"),
    ] {
        assert_eq!(text(&logs(), &outcome(), kind), expected, "{kind:?}");
    }
}

#[test]
fn a_late_call_began_and_ended_when_it_did() {
    let late = CallRecord { late: Nanos(400_000), ..call(Op::Read, 1_900, 520_000, 20_000, 0) };
    let outcome = ThreadOutcome { calls: vec![late], ..ThreadOutcome::default() };
    let rows = [Kind::Lat, Kind::Clat, Kind::Slat].map(|kind| text(&logs(), &outcome, kind));
    assert_eq!(rows, ["2, 120000, 0, 4096, 0\n", "2, 100000, 0, 4096, 0\n", "2, 20000, 0, 4096, 0\n"]);
}

#[test]
fn columns_are_those_that_were_asked_for() {
    let first = |change: &dyn Fn(&mut Logs)| {
        let mut logs = logs();
        change(&mut logs);
        text(&logs, &outcome(), Kind::Clat).lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(first(&|logs| logs.offset = true), "1, 247000, 0, 4096, 4096, 0");
    assert_eq!(first(&|logs| (logs.offset, logs.issue_time) = (true, true)), "1, 247000, 0, 4096, 4096, 0, 1003000");
    assert_eq!(first(&|logs| logs.window = LogWindow::Both), "1, 247000, 0, 0, 4096, 0");
}

#[test]
fn packed_logs_have_the_same_rows() {
    for offset in [false, true] {
        let plain = Logs { offset, ..logs() };
        let packed = Logs { packed: true, ..plain.clone() };
        let thread =
            LogThread { number: 1, job: "j", logs: &packed, outcome: &outcome(), asynchronous: true, epoch_ms: 0 };
        let (mut bytes, mut found) = (Vec::new(), Vec::new());
        write(&thread, Kind::Clat, &mut bytes).unwrap();
        write(&thread, Kind::Bw, &mut bytes).unwrap();
        unpack(&bytes[..], &mut found).unwrap();
        let expected = [Kind::Clat, Kind::Bw].map(|kind| text(&plain, &outcome(), kind)).concat();
        assert_eq!(String::from_utf8(found).unwrap(), expected);
        assert!(unpack(&bytes[..bytes.len() - 9], &mut Vec::new()).is_err(), "cut off");
        assert!(unpack(&b"1, 2, 0, 4096, 0"[..], &mut Vec::new()).is_err(), "no such log");
    }
    // A row of fio 3.33 with priorities.
    let mut row = [0; 32];
    (row[0], row[8], row[16], row[19], row[21], row[25]) = (5, 9, 1, 0x40, 0x20, 16);
    let mut stream = ZlibEncoder::new(Vec::new(), Compression::default());
    stream.write_all(&row).unwrap();
    let mut found = Vec::new();
    unpack(&stream.finish().unwrap()[..], &mut found).unwrap();
    assert_eq!(String::from_utf8(found).unwrap(), "5, 9, 1, 4096, 0x2000\n");
}

#[test]
fn averages_have_a_row_for_each_window_and_direction() {
    let averaged = |window| Logs { average_us: 10_000, window, ..logs() };
    let lat = |window| text(&averaged(window), &outcome(), Kind::Lat);
    // The mean of 50 and 250 us; the last window is short.
    assert_eq!(lat(LogWindow::Average), "10, 150000, 0, 0, 0\n10, 700000, 1, 0, 0\n13, 10001, 0, 0, 0\n");
    assert_eq!(lat(LogWindow::Max), "10, 250000, 0, 0, 0\n10, 700000, 1, 0, 0\n13, 10001, 0, 0, 0\n");
    assert_eq!(
        lat(LogWindow::Both),
        "10, 150000, 250000, 0, 0, 0\n10, 700000, 700000, 1, 0, 0\n13, 10001, 10001, 0, 0, 0\n"
    );
}

#[test]
fn rates_are_averages_of_samples() {
    let sample = |end: u64, length: u64, reads: u64, writes: u64| Sample {
        end: Nanos::from_us(end * 1000),
        length: Nanos::from_us(length * 1000),
        counts: Counts {
            reads,
            writes,
            syncs: 7,
            read_bytes: reads * 8192,
            written_bytes: writes * 4096,
            ..Counts::default()
        },
        ..Sample::default()
    };
    // Two samples a window; in the last, one that is half as long and counts half as much.
    let samples = vec![
        sample(500, 500, 100, 0),
        // No clock is quite on time.
        sample(1001, 500, 300, 50),
        sample(1500, 500, 0, 0),
        sample(2000, 500, 0, 0),
        sample(2500, 500, 100, 0),
        sample(2750, 250, 125, 0),
    ];
    let outcome = ThreadOutcome { samples, ..ThreadOutcome::default() };
    let shown = |window, kind| text(&Logs { average_us: 1_000_000, window, ..logs() }, &outcome, kind);
    let iops = "1000, 400, 0, 0, 0\n1000, 100, 1, 0, 0\n2750, 300, 0, 0, 0\n";
    assert_eq!(shown(LogWindow::Average, Kind::Iops), iops);
    let bw = "1000, 3200, 0, 0, 0\n1000, 400, 1, 0, 0\n2750, 2400, 0, 0, 0\n";
    assert_eq!(shown(LogWindow::Average, Kind::Bw), bw);
    let max = "1000, 600, 0, 0, 0\n1000, 100, 1, 0, 0\n2750, 500, 0, 0, 0\n";
    assert_eq!(shown(LogWindow::Max, Kind::Iops), max);
}

#[test]
fn trims_have_rows_in_every_log() {
    let trims: Vec<CallRecord> = (0..4).map(|nr| call(Op::Trim, nr * 10_000, 5_000_000, 0, 0)).collect();
    let sample = Sample {
        end: Nanos::from_ms(40),
        length: Nanos::from_ms(40),
        counts: Counts { trims: 4, trimmed_bytes: 16_384, ..Counts::default() },
        ..Sample::default()
    };
    let outcome = ThreadOutcome { calls: trims, samples: vec![sample], ..ThreadOutcome::default() };
    let averaged = Logs { average_us: 20_000, histogram_us: 10_000, ..logs() };
    assert_eq!(text(&averaged, &outcome, Kind::Clat), "20, 5000000, 2, 0, 0\n35, 5000000, 2, 0, 0\n");
    assert_eq!(text(&averaged, &outcome, Kind::Iops), "40, 100, 2, 0, 0\n");
    let histograms = text(&averaged, &outcome, Kind::ClatHist);
    assert_eq!(histograms.lines().filter(|line| line.contains(", 2, 4096, ")).count(), 3, "{histograms}");
}

#[test]
fn totals_are_those_of_all_threads() {
    let sample = |end_ms: u64, read_bytes, written_bytes| Sample {
        end: Nanos::from_ms(end_ms),
        length: Nanos::from_ms(500),
        counts: Counts { read_bytes, written_bytes, ..Counts::default() },
        ..Sample::default()
    };
    let thread = |samples| ThreadOutcome { samples, ..ThreadOutcome::default() };
    let threads =
        [thread(vec![sample(500, 51_200, 0), sample(1001, 102_400, 1024)]), thread(vec![sample(502, 51_200, 512)])];
    let [reads, writes, trims] = totals(&threads, Nanos::from_ms(500));
    assert_eq!(reads, "502, 200, 0, 0, 0\n1001, 200, 0, 0, 0\n");
    assert_eq!(writes, "502, 1, 1, 0, 0\n1001, 2, 1, 0, 0\n");
    assert_eq!(trims, "502, 0, 2, 0, 0\n1001, 0, 2, 0, 0\n");
}

#[test]
fn names_and_contents_are_fios() {
    let wanted = Logs {
        bandwidth: Some("p".to_owned()),
        iops: Some(String::new()),
        latency: Some("dir/p".to_owned()),
        ..logs()
    };
    let outcome = outcome();
    let collect = |wanted: &Logs, asynchronous| {
        let threads = [(1, "first"), (2, "second")];
        let threads = threads.map(|(number, job)| LogThread {
            number,
            job,
            logs: wanted,
            outcome: &outcome,
            asynchronous,
            epoch_ms: 0,
        });
        let files = std::cell::RefCell::new(Vec::new());
        let names = write_all(&threads, &mut |name| {
            files.borrow_mut().push(name.to_owned());
            Ok(Vec::new())
        });
        let names: Vec<String> = names.unwrap().into_keys().collect();
        let mut opened = files.into_inner();
        opened.sort();
        assert_eq!(opened, names);
        names
    };
    let expected = [
        "dir/p_clat.1.log",
        "dir/p_clat.2.log",
        "dir/p_lat.1.log",
        "dir/p_lat.2.log",
        "dir/p_slat.1.log",
        "dir/p_slat.2.log",
        "first_iops.1.log",
        "p_bw.1.log",
        "p_bw.2.log",
        "second_iops.2.log",
    ];
    assert_eq!(collect(&wanted, true), expected);
    let together = Logs { per_job: false, ..wanted.clone() };
    let expected =
        ["dir/p_clat.log", "dir/p_lat.log", "dir/p_slat.log", "first_iops.log", "p_bw.log", "second_iops.log"];
    assert_eq!(collect(&together, true), expected);
    let thread = LogThread { number: 1, job: "j", logs: &wanted, outcome: &outcome, asynchronous: false, epoch_ms: 0 };
    let mut out = Vec::new();
    write(&thread, Kind::Slat, &mut out).unwrap();
    assert!(out.is_empty(), "synchronous engines have no submission latency");
}

#[test]
fn a_log_that_cannot_be_made_is_named() {
    let wanted = Logs { bandwidth: Some("no/such".to_owned()), ..logs() };
    let outcome = outcome();
    let thread = LogThread { number: 3, job: "j", logs: &wanted, outcome: &outcome, asynchronous: true, epoch_ms: 0 };
    let error = write_all(&[thread], &mut |_| Err::<Vec<u8>, _>(io::Error::from(io::ErrorKind::NotFound)));
    assert_eq!(error.unwrap_err().to_string(), "log `no/such_bw.3.log`: entity not found");
}

#[test]
fn calls_are_kept_only_for_logs_of_calls() {
    let name = || Some("p".to_owned());
    let needs = |logs: Logs| LogThread::needs_calls(&logs);
    assert!(!needs(logs()));
    assert!(needs(Logs { bandwidth: name(), ..logs() }));
    assert!(!needs(Logs { bandwidth: name(), iops: name(), average_us: 1000, ..logs() }));
    assert!(needs(Logs { latency: name(), average_us: 1000, ..logs() }));
    assert!(needs(Logs { histogram: name(), average_us: 1000, ..logs() }));
}

#[test]
fn buckets_are_fios() {
    for (ns, expected) in [
        (0, 0),
        (127, 127),
        (128, 128),
        (129, 128),
        (130, 129),
        (255, 191),
        (256, 192),
        (17_179_869_183, 1855),
        (u64::MAX, 1855),
    ] {
        assert_eq!(bucket(ns), expected, "{ns}");
    }
    // As the histograms of the runs have them.
    for ns in (0..3_000).chain((12..33).map(|power| (1 << power) + 77)) {
        let mut histogram = iowhy_stack::histogram::Histogram::default();
        histogram.record(ns);
        let Some((low, width, _)) = histogram.buckets().next() else { panic!("{ns} is in no bucket") };
        assert_eq!((bucket(low), bucket(low + width - 1)), (bucket(ns), bucket(ns)), "{ns}");
        assert_eq!(bucket(low + width), bucket(ns) + 1, "{ns}");
    }
}

#[test]
fn histograms_count_what_came_since_the_row_before() {
    let logs = Logs { histogram_us: 10_000, coarseness: 6, ..logs() };
    let calls = (0..40).map(|n| call(Op::Read, n * 1000, 100 + n * 100, 0, 0)).collect();
    let outcome = ThreadOutcome { calls, ..ThreadOutcome::default() };
    let rows: Vec<Vec<u64>> = text(&logs, &outcome, Kind::ClatHist)
        .lines()
        .map(|line| line.split(", ").map(|field| field.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), [10, 20, 30]);
    assert!(rows.iter().all(|row| row.len() == 3 + 29 && row[1..3] == [0, 4096]));
    assert_eq!(rows.iter().map(|row| row[3..].iter().sum()).collect::<Vec<u64>>(), [11, 10, 10]);
    // 64 buckets each: from 64, 128, 256, 512 and 1024 ns on.
    assert_eq!(rows[0][3..11], [0, 1, 1, 3, 5, 1, 0, 0]);
    assert_eq!(text(&Logs { histogram_us: 0, ..logs }, &outcome, Kind::ClatHist), "");
}

/// Output of fio 3.33, and its columns.
#[test]
fn logs_of_fio_are_read() {
    let row = |time_ms, value, direction, block_bytes| Row {
        time_ms,
        value,
        greatest: 0,
        direction,
        block_bytes,
        offset: 0,
        priority: 0,
        issued_ns: 0,
    };
    let offset = Columns { offset: true, ..Columns::default() };
    let (read, write) = (Direction::Read, Direction::Write);
    for (text, columns, expected) in [
        ("0, 18063, 0, 4096, 0\n", Columns::default(), vec![row(0, 18063, read, 4096)]),
        (
            "510, 95806, 0, 0, 0, 0\n511, 4759, 1, 0, 0, 0\n",
            offset,
            vec![row(510, 95806, read, 0), row(511, 4759, write, 0)],
        ),
        ("7, 44, 1, 512, 65536, 0\n", offset, vec![Row { offset: 65536, ..row(7, 44, write, 512) }]),
        (
            "7, 44, 2, 512, 0x4001\n",
            Columns::default(),
            vec![Row { priority: 0x4001, ..row(7, 44, Direction::Trim, 512) }],
        ),
        // Older ones.
        ("7, 44, 0, 512\n", Columns::default(), vec![row(7, 44, read, 512)]),
    ] {
        let mut problems = Problems::default();
        assert_eq!(parse("log", text, columns, &mut problems), expected);
        assert_eq!(problems, Problems::default());
    }
}

#[test]
fn rows_that_cannot_be_read_are_told_with_their_line() {
    for (line, expected) in [
        ("1, 2, 3, 4096, 0", "log:2: the direction is 3: 0, 1 and 2 are read, write and trim"),
        ("1, x, 0, 4096, 0", "log:2: column 2, the value, is `x`, which is not a number"),
        ("1, 2, 0", "log:2: column 4, the block size, is missing"),
        ("1, 2, 0, 4096, what", "log:2: column 5, the priority, is `what`, which is not a number"),
        ("1, 2, 0, 4096, 0, 0", "log:2: there are more than 5 columns"),
    ] {
        let mut problems = Problems::default();
        let rows = parse("log", &format!("1, 2, 0, 4096, 0\n{line}\n"), Columns::default(), &mut problems);
        assert_eq!((rows.len(), problems.list.len()), (1, 1));
        assert_eq!(problems.list[0].message, expected);
    }
    let mut problems = Problems::default();
    parse("log", &"x\n".repeat(15), Columns::default(), &mut problems);
    assert_eq!(
        problems.list.last().map(|problem| problem.message.as_str()),
        Some("log: 5 more rows have such problems")
    );
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        list in proptest::collection::vec((any::<[u32; 4]>(), any::<bool>()), 0..40),
        (both, offset, issued) in any::<(bool, bool, bool)>(),
    ) {
        let columns = Columns { both, offset, issued };
        let mut out = Vec::new();
        let mut rows = Vec::new();
        for ([time, value, other, place], write) in list {
            let row = Row {
                time_ms: u64::from(time),
                value: u64::from(value),
                greatest: if both { u64::from(other) } else { 0 },
                direction: if write { Direction::Write } else { Direction::Read },
                block_bytes: 4096,
                offset: if offset { u64::from(place) } else { 0 },
                priority: other,
                issued_ns: if issued { u64::from(value) << 20 } else { 0 },
            };
            columns.write(&row, &mut out).unwrap();
            rows.push(row);
        }
        let mut problems = Problems::default();
        prop_assert_eq!(parse("log", &String::from_utf8(out).unwrap(), columns, &mut problems), rows);
        prop_assert_eq!(problems, Problems::default());
    }

    #[test]
    fn averages_keep_the_mean_of_all(took in proptest::collection::vec(1..50_000_000_u64, 1..200)) {
        let calls = (0..).zip(&took).map(|(n, took)| call(Op::Read, n * 700, *took, 0, 0)).collect();
        let outcome = ThreadOutcome { calls, ..ThreadOutcome::default() };
        let all = Logs { average_us: 1_000_000_000, ..logs() };
        let rows = parse("log", &text(&all, &outcome, Kind::Lat), Columns::default(), &mut Problems::default());
        let (sum, nr_calls) = (took.iter().sum::<u64>(), took.len() as u64);
        prop_assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [(sum + nr_calls / 2) / nr_calls]);
    }
}
