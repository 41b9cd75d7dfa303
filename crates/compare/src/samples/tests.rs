use proptest::prelude::*;

use super::*;
use iowhy_stats::Better;

fn good(text: &str, format: Option<&str>) -> Group {
    let mut problems = Problems::default();
    let group = read("f", text, format, &mut problems);
    assert!(!problems.any_error(), "{}\n{text}", problems.render());
    group.expect("no error, so a group")
}

fn bad(text: &str, format: Option<&str>) -> String {
    let mut problems = Problems::default();
    assert_eq!(read("f", text, format, &mut problems), None, "{text}");
    assert!(problems.any_error());
    problems.render()
}

/// Names and values of all columns, and how many values were left out.
fn columns(group: &Group) -> Vec<(&str, &[f64], usize)> {
    group.columns.iter().map(|of| (of.metric.name.as_str(), of.values.as_slice(), of.left_out)).collect()
}

#[test]
fn each_format_is_seen_in_the_text() {
    for (text, expected) in [
        ("1\n2\n", "numbers"),
        ("", "numbers"),
        ("# a comment, with commas\n1.5\n", "numbers"),
        ("a,b\n1,2\n", "csv"),
        ("# made by hand\nrun;ms\n1;2\n", "csv"),
        ("goos: linux\nBenchmarkA 1 5 ns/op\n", "benchstat"),
        ("fio: a warning\n{\n \"fio version\" : \"fio-3.33\",\n \"jobs\" : []\n}\n", "fio"),
        ("{\"schema\": \"iowhy.run/1\", \"runs\": []}", "iowhy"),
        ("sysbench 1.0.20 (using LuaJIT)\n\nGeneral statistics:\n", "sysbench"),
        ("fio: a warning\nr: (groupid=0, jobs=1): err= 0: pid=1: Thu\n  read: IOPS=1\n", "fio"),
        ("Linux 6.18 (vm)\n\nDevice            r/s     w/s  %util\nsda   1.0 0.0 2.0\n", "iostat"),
        ("{\"sysstat\": {\"hosts\": []}}", "iostat"),
        ("{\"commit_hash\": \"a\", \"results\": {}}", "asv"),
        ("{\"commit_hash\": \"a\", \"results\": {\"t\": NaN}}", "asv"),
        ("     r/s     rkB/s Device\n    1.0      2.0k sda\n\n f/s aqu-sz  %util Device\n", "iostat"),
        (
            "#[Histogram log format version 1.0]\n#Tag,Interval_Start,Interval_Length,count,min,max\nTag=a,0,1,0,0,0\n",
            "histostat",
        ),
        // A single value with a decimal comma is not a table, but a mistake in a number.
        ("1,5\n2,5\n", "numbers"),
    ] {
        let format = FORMATS.iter().find(|format| (format.detect)(text)).expect("the last one takes all");
        assert_eq!(format.name, expected, "{text}");
    }
    assert!(bad("1\n", Some("cvs")).contains("nearest: csv"));
}

#[test]
fn numbers_with_comments_and_what_is_none() {
    let group = good("\u{feff}# head\n 1.5 # first\r\n\n-2e3\nNaN\ninf\n-Infinity\n+7\n", None);
    assert_eq!(columns(&group), [("value", &[1.5, -2000.0, 7.0][..], 3)]);
    assert_eq!((group.label.as_str(), group.runs.len()), ("f", 0));
    for text in ["", "\n\n", "# nothing\n", "nan\n"] {
        let group = good(text, None);
        assert_eq!(group.columns.len(), 1, "{text:?}");
        assert!(group.columns[0].values.is_empty(), "{text:?}");
    }
}

/// A line of fio's terse format whose fields hold their places, but for those that are words.
fn terse(version: u8, job: &str) -> String {
    let before = if version == 2 { format!("2;{job};0;0") } else { format!("{version};fio-3.33;{job};0;0") };
    let each = if version == 5 { 47 } else { 41 };
    let direction = |at: usize| match at {
        12..32 => format!("{}.000000%={}", [50, 99].get(at - 12).copied().unwrap_or(0), at - 11),
        // Bytes, of which a direction without any has none.
        0 => "9".to_owned(),
        _ => at.to_string(),
    };
    let directions: Vec<String> =
        (0..if version == 3 { 2 } else { 3 }).flat_map(|_| (0..each).map(direction)).collect();
    format!("{before};{};1.5%;2.5%{}\n", directions.join(";"), ";0".repeat(32))
}

#[test]
fn terse_lines_are_jobs_of_runs() {
    for version in 2..=5 {
        let text = format!("{}{}a note\n{}", terse(version, "a"), terse(version, "b"), terse(version, "a"));
        let group = good(&text, None);
        assert_eq!(group.runs.len(), 2, "{version}");
        let of = |name: &str| group.column(name).map(|column| column.values.clone()).unwrap_or_default();
        assert_eq!(of("a.read_iops"), [2.0, 2.0], "{version}");
        assert_eq!((of("b.write_mib_s"), of("a.read_p50_ns")), (vec![1.0 / 1024.0], vec![1000.0, 1000.0]), "{version}");
        assert_eq!((of("a.read_p99_ns"), of("a.write_mean_ns")), (vec![2000.0; 2], vec![10_000.0; 2]), "{version}");
        assert_eq!((of("a.read_max_ns"), of("a.read_lat_mean_ns")), (vec![9000.0; 2], vec![34_000.0; 2]), "{version}");
        assert_eq!(of("cpu_pct"), [8.0, 4.0], "{version}");
    }
    assert!(bad("3;fio-3.33;a;0;0;1;2\n", Some("fio-terse")).contains("not all fields"));
    let normal = bad("r: (groupid=0, jobs=1): err= 0: pid=1: Thu\n  read: IOPS=1\n", None);
    assert!(normal.contains("--output-format=json"), "{normal}");
}

#[test]
fn commands_before_terse_lines_tell_jobs_apart() {
    let command = |rw: &str, jobs: u8| format!("fio --directory=/d{jobs} --rw={rw} --name=s --numjobs={jobs}\n");
    let text = |rw: &str, jobs: u8| command(rw, jobs) + &terse(5, "s");
    let group = good(&[text("read", 1), text("read", 4), text("read", 4)].concat(), None);
    let of = |name: &str| group.column(name).map_or(0, |column| column.values.len());
    assert_eq!((of("numjobs=1/s.read_iops"), of("numjobs=4/s.read_iops"), of("numjobs=4/iops")), (1, 2, 2));
    assert!(group.runs[1].options.contains(&("numjobs".to_owned(), "4".to_owned())), "{:?}", group.runs[1].options);
    // Nothing differs but the place: runs of one job.
    assert_eq!(columns(&good(&text("read", 1).repeat(2), None))[0].1.len(), 2);
}

#[test]
fn numbers_that_are_none_are_no_mistakes_in_json() {
    let text = r#"{"a": [NaN, -nan, "NaN \" inf", Infinity, 1], "nan": -inf}"#;
    let expected = serde_json::json!({"a": [null, null, "NaN \" inf", null, 1], "nan": null});
    assert_eq!(super::json(text).expect("it is JSON"), expected);
    assert!(super::json("{\"a\": none}").is_err());
    let fio = fio_document("a", 10.0).replace("\"mean\": 6", "\"mean\": -nan");
    assert_eq!(good(&fio.repeat(2), None).column("a.read_iops").map(|of| of.values.len()), Some(2));
}

#[test]
fn rows_of_histograms_have_the_percentiles_of_fios_tool() {
    let row = |wide: usize, counts: &[(usize, u64)]| {
        let mut all = vec![0; 1856 / wide];
        counts.iter().for_each(|(bucket, count)| all[*bucket] = *count);
        let all: Vec<String> = all.iter().map(u64::to_string).collect();
        format!("1000, 0, 4096, {}\n", all.join(", "))
    };
    // Those of `fio-histo-log-pctiles.py --output-unit usec`, times 1000: buckets 64 and 65 are of 1 ns, 128 of 2 ns.
    for (wide, counts, p50, p99) in [
        (1, &[(64, 100), (128, 100)][..], 128.0, 129.96),
        (1, &[(1855, 1)], 17_112_760_320.0, 17_178_527_006.72),
        (64, &[(0, 50), (1, 50)], 64.0, 126.72),
    ] {
        let group = good(&row(wide, counts), None);
        let of = |name: &str| group.column(name).map_or(f64::NAN, |column| column.values[0]);
        assert!((of("read_p50_ns") - p50).abs() < 1e-6 * p50, "{counts:?} {}", of("read_p50_ns"));
        assert!((of("read_p99_ns") / p99 - 1.0).abs() < 1e-6, "{counts:?} {}", of("read_p99_ns"));
    }
    let empty = format!("{}{}", row(1, &[]), row(1, &[(3, 1)]));
    assert_eq!(good(&empty, None).column("read_mean_ns").map(|of| of.values.clone()), Some(vec![3.5]));
    assert!(bad("1,0,4096,1,2\n", Some("fio-hist")).contains("1856 counts"));
}

#[test]
fn intervals_of_hdr_histograms_are_samples() {
    let text = "#[TimeUnit: MICROSECONDS]\n#Tag,Interval_Start,Interval_Length,count,min,p99,max\n\
                Tag=a.b,2.6,2.3,10,1,8,9\nTag=c,2.6,2.3,0,0,0,0\nTag=a.b,5.0,5.0,20,2,7,8\n";
    let expected = [
        ("a.b.count", &[10.0, 20.0][..], 0),
        ("a.b.min_us", &[1.0, 2.0], 0),
        ("a.b.p99_us", &[8.0, 7.0], 0),
        ("a.b.max_us", &[9.0, 8.0], 0),
        ("c.count", &[0.0], 0),
    ];
    let group = good(text, None);
    assert_eq!(columns(&group), expected);
    assert_eq!(group.columns[0].metric.better, Better::Higher);
    assert!(bad(&format!("{text}Tag=a,1,2,x\n"), None).contains("f:6:1"));
}

#[test]
fn folders_are_sides_whose_files_say_what_they_are_of() {
    let run = |bs: &str, iops: f64| {
        fio_document("a", iops).replace("\"jobname\"", &format!("\"job options\": {{\"bs\": \"{bs}\"}}, \"jobname\""))
    };
    let (small, large) = (run("4k", 10.0), run("64k", 12.0));
    let of = |files: &[(&str, &str)]| {
        let file =
            |(path, text): &(&str, &str)| folder::File { path: (*path).to_owned(), text: Ok((*text).to_owned()) };
        let mut problems = Problems::default();
        let group = folder::read("d", files.iter().map(file).collect(), None, &mut problems);
        let named = |column: &Column| column.metric.name.ends_with("iops") && !column.metric.name.contains("a.");
        let columns = group.into_iter().flat_map(|group| group.columns).filter(named);
        let columns: Vec<(String, usize)> = columns.map(|of| (of.metric.name, of.values.len())).collect();
        (columns, problems.render())
    };
    let one = |name: &str, values: usize| (name.to_owned(), values);
    for (files, expected, note) in [
        // Runs of one job, whatever counts them.
        (&[("run1.json", &*small), ("run2.json", &small)][..], vec![one("iops", 2)], "d: read 2 fio\n"),
        (&[("1/out.json", &*small), ("2/out.json", &small), ("10/out.json", &small)], vec![one("iops", 3)], "3 fio"),
        // Other options are another job.
        (&[("d1.json", &*small), ("d2.json", &large)], vec![one("d1/iops", 1), one("d2/iops", 1)], "of 2 things"),
        (
            &[("read-1-8.json", &*small), ("read-4-8.json", &small)],
            vec![one("read-1-8/iops", 1), one("read-4-8/iops", 1)],
            "2 fio as bench-fio",
        ),
        (
            &[("iter-0/fio/logs/fio.log", &*small), ("iter-1/fio/logs/fio.log", &small), ("iter-0/io/logs/x", &large)],
            vec![one("fio/fio/iops", 2), one("io/x/iops", 1)],
            "3 fio as mmtests",
        ),
        (
            &[("a.json", &*small), ("job.fio", "[a]\nrw=read\n"), ("m.json", "{}"), ("n.csv", "x,y\n1,2\n")],
            vec![one("a/iops", 1)],
            "1 csv, 1 fio, of 2 things",
        ),
    ] {
        let (columns, shown) = of(files);
        assert_eq!(columns, expected, "{shown}");
        assert!(shown.contains(note), "{note}: {shown}");
    }
    let (_, shown) = of(&[("a.json", &small), ("job.fio", "[a]\nrw=read\n"), ("b.json", "{\"fio version\": ")]);
    assert!(shown.contains("not JSON of fio") && shown.contains("not recognised (job.fio)"), "{shown}");
    let (none, shown) = of(&[("job.fio", "[a]\nrw=read\n")]);
    assert!(none.is_empty() && shown.contains("no file with samples"), "{shown}");
    for (name, good) in [("a_bw.1.log", false), ("a_clat_hist.1.log", true), ("fio.log", true), ("machine.json", false)]
    {
        assert_eq!(folder::worth(name).is_ok(), good, "{name}");
    }
    assert_eq!(folder::natural("run10", "run9"), std::cmp::Ordering::Greater);
}

#[test]
fn iostat_of_any_version_is_read_by_its_columns() {
    let old = "Device:  rrqm/s wrqm/s r/s w/s rsec/s wsec/s avgrq-sz avgqu-sz await svctm %util\n";
    let sda = "sda 0,00 1,00 10,00 20,00 80,00 160,00 8,00 0,50 3,00 1,00 40,00\n";
    let text =
        format!("Linux\n\n{old}{sda}\n{old}{sda}sdb 0 0 0 0 0 0 0 0 0 0 0\n\navg-cpu: %user\n 1.0\n\n{old}{sda}");
    let group = good(&text, None);
    let all: Vec<(&str, f64, usize)> =
        columns(&group).iter().map(|(name, values, _)| (*name, values[0], values.len())).collect();
    assert_eq!(
        all,
        [
            ("sda.read_iops", 10.0, 2),
            ("sda.write_iops", 20.0, 2),
            ("sda.read_kib_s", 40.0, 2),
            ("sda.write_kib_s", 80.0, 2),
            ("sda.queue", 0.5, 2),
            ("sda.await_ms", 3.0, 2),
            ("sda.util_pct", 40.0, 2)
        ]
    );
    let disk = r#"{"disk_device": "vda", "r/s": 4.0, "r_await": 0.5, "util": 9.0}"#;
    let report = format!(r#"{{"avg-cpu": {{}}, "disk": [{disk}]}}"#);
    let json = format!(r#"{{"sysstat": {{"hosts": [{{"statistics": [{report}, {report}]}}]}}}}"#);
    let group = good(&json, None);
    let mut all = columns(&group);
    all.sort_by_key(|(name, ..)| *name);
    let expected = [("vda.read_await_ms", &[0.5][..], 0), ("vda.read_iops", &[4.0], 0), ("vda.util_pct", &[9.0], 0)];
    assert_eq!(all, expected);
    // `iostat -xh`: tables side by side, disks last, amounts with their units.
    let human = "     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device\n    \
                     6.00      1.5M     0.00   0.0%    0.20     4.0k sda\n\n\
                     f/s f_await  aqu-sz  %util Device\n    0.00    0.00    0.01   2.5% sda\n\n";
    let all = good(&human.repeat(3), None);
    let all: Vec<(&str, f64, usize)> = columns(&all).iter().map(|(name, of, _)| (*name, of[0], of.len())).collect();
    assert_eq!(all[1], ("sda.read_kib_s", 1536.0, 2), "{all:?}");
    assert!(all.contains(&("sda.util_pct", 2.5, 2)), "{all:?}");
    // The same of sysstat 11: the disk above its figures.
    let above = "Device   r/s  wkB/s  %util\nloop0\n  0.00  0.0k  0.0%\nsda\n  1857.00  463.5M  100.0%\n\n";
    let expected =
        [("sda.read_iops", &[1857.0][..], 0), ("sda.write_kib_s", &[474_624.0], 0), ("sda.util_pct", &[100.0], 0)];
    assert_eq!(columns(&good(&above.repeat(2), None)), expected);
    assert!(bad("Device tps kB_read/s\nsda 1 2\n", Some("iostat")).contains("-x"));
}

#[test]
fn results_of_asv_are_samples_of_each_combination() {
    let two = r#"{"commit_hash": "c0", "date": 5, "params": {"machine": "m"}, "version": 2,
        "result_columns": ["result", "params", "samples"],
        "results": {"t.time_a": [[1.5, null, 3.0, 4.0], [["'x'", "'y'"], ["1", "2"]], [[1.0, 2.0]]],
            "t.mem_b": [[7]]}}"#;
    let group = good(two, None);
    let mut all = columns(&group);
    all.sort_by_key(|(name, ..)| *name);
    let expected = [
        ("t.mem_b", &[7.0][..], 0),
        ("t.time_a('x', 1)", &[1.0, 2.0], 0),
        ("t.time_a('y', 1)", &[3.0], 0),
        ("t.time_a('y', 2)", &[4.0], 0),
    ];
    assert_eq!(all, expected);
    let run = &group.runs[0];
    assert_eq!((run.run_id.as_str(), run.started_ns, run.machine.as_str()), ("c0", 5_000_000, "m"));
    let one =
        r#"{"commit_hash": "c", "results": {"a": 0.5, "b": {"result": [1, 2], "params": [["3", "4"]]}, "c": null}}"#;
    assert_eq!(columns(&good(one, None)), [("a", &[0.5][..], 0), ("b(3)", &[1.0], 0), ("b(4)", &[2.0], 0)]);
}

#[test]
fn mistakes_have_a_line_and_a_column_and_come_at_once() {
    let message = bad("1\n  12ms\n3\nx y\n", None);
    for expected in ["f:2:3: not a number", "  |   12ms\n  |   ^^^^\n", "f:4:1: not a number", "CSV"] {
        assert!(message.contains(expected), "no {expected:?} in\n{message}");
    }
    let many = bad(&"x\n".repeat(1_000), None);
    assert_eq!(many.matches("not a number").count(), MOST_PROBLEMS);
    assert!(many.contains("992 more lines"), "{many}");
    let long = bad(&format!("{}\u{1b}\n", "ö".repeat(100_000)), None);
    assert!(long.len() < 1_000 && !long.contains('\u{1b}'), "{long}");
}

#[test]
fn benchmarks_become_metrics_in_base_units() {
    let group = good(
        "goos: linux\nUnit B/op assume=exact\nBenchmarkRead/bs=4k-8 \t 100\t 1500 ns/op\t 2 MB/s\n\
         BenchmarkRead/bs=4k-8 100 1600 ns/op NaN MB/s\nBenchmarkRead/bs=4k-8\nPASS\nok pkg 1s\n",
        None,
    );
    assert_eq!(
        columns(&group),
        [("Read/bs=4k-8 sec/op", &[1500.0 * 1e-9, 1600.0 * 1e-9][..], 0), ("Read/bs=4k-8 B/s", &[2e6][..], 1)]
    );
    let kinds: Vec<(&str, Better)> =
        group.columns.iter().map(|of| (of.metric.unit.as_str(), of.metric.better)).collect();
    assert_eq!(kinds, [("sec/op", Better::Lower), ("B/s", Better::Higher)]);
    // What differs within the file tells benchmarks of one name apart.
    let group = good("fs: ext4\nBenchmarkA 1 5 ns/op\nfs: xfs\nBenchmarkA 1 6 ns/op\n", None);
    assert_eq!(columns(&group).iter().map(|of| of.0).collect::<Vec<_>>(), ["A fs=ext4 sec/op", "A fs=xfs sec/op"]);
    let message = bad("BenchmarkA 1 5 ns/op\nBenchmarkA 1 5\nBenchmarkA x 5 ns/op\nBenchmarkA 1 five ns/op\n", None);
    for expected in ["f:2:1: the unit", "f:3:1: the number of iterations", "f:4:1: a measurement is not a number"] {
        assert!(message.contains(expected), "no {expected:?} in\n{message}");
    }
}

#[test]
fn units_are_tidied_above_the_line_only() {
    for (unit, expected, factor) in [
        ("ns/op", "sec/op", 1e-9),
        ("MB/s", "B/s", 1e6),
        ("p99-ns", "p99-sec", 1e-9),
        ("x/ns", "x/ns", 1.0),
        ("x/ns*MB", "x/ns*B", 1e6),
        ("nsx", "nsx", 1.0),
        ("IOPS", "IOPS", 1.0),
        ("", "", 1.0),
    ] {
        let (tidied, found) = benchstat::tidy(unit);
        assert_eq!((tidied.as_str(), found), (expected, factor), "{unit}");
    }
}

/// A document as fio writes it, with one job and one direction.
fn fio_document(job: &str, iops: f64) -> String {
    format!(
        "fio: some text\n{{\n  \"fio version\" : \"fio-3.33\",\n  \"timestamp_ms\" : 1700000000123,\n  \"jobs\" : [{{\
         \"jobname\": \"{job}\", \"read\": {{\"total_ios\": 100, \"iops\": {iops}, \"bw_bytes\": 1048576, \"clat_ns\": \
         {{\"mean\": 5.5, \"max\": 9, \"percentile\": {{\"50.000000\": 5, \"99.000000\": 8}}}}, \
         \"lat_ns\": {{\"mean\": 6}}}}, \
         \"write\": {{\"total_ios\": 0, \"iops\": 0}}}}]\n}}\n"
    )
}

#[test]
fn each_document_of_fio_is_a_run() {
    let group = good(&(fio_document("a", 10.0) + &fio_document("a", 12.0) + "\nDisk stats\n"), None);
    assert_eq!(group.runs.len(), 2);
    assert_eq!((group.runs[0].started_ns, group.runs[0].job.as_str()), (1_700_000_000_123_000_000, "a"));
    for (name, values) in
        [("a.read_iops", [10.0, 12.0]), ("iops", [10.0, 12.0]), ("read_mib_s", [1.0; 2]), ("p99_ns", [8.0; 2])]
    {
        let column = group.column(name).unwrap_or_else(|| panic!("no {name} in {:?}", columns(&group)));
        assert_eq!((column.values.as_slice(), column.runs.as_slice()), (&values[..], &[0, 1][..]), "{name}");
    }
    assert!(group.column("a.write_iops").is_none(), "nothing was written");
    assert_eq!(group.column("p99_ns").map(|of| of.metric.better), Some(Better::Lower));
    for text in ["{\n\"fio version\": ", "{\n\"fio version\": \"x\"}\n"] {
        assert!(bad(text, None).contains("f: "), "{text}");
    }
}

#[test]
fn tables_have_runs_names_and_words_that_are_no_metrics() {
    let group = good("label,run,kernel,\"p99, ms\",iops\na,1,new,5,10\na,2,6.1,6,\nb,2,old,NaN,12\n", None);
    assert_eq!(
        columns(&group),
        [
            ("a.p99, ms", &[5.0, 6.0][..], 0),
            ("a.iops", &[10.0][..], 0),
            ("b.p99, ms", &[][..], 1),
            ("b.iops", &[12.0][..], 0)
        ]
    );
    let message = bad("ms,iops\n1,2\n1,fast\n1,2,3\n", None);
    for expected in ["f:3:3: not a number", "f:4:5: a value too many"] {
        assert!(message.contains(expected), "no {expected:?} in\n{message}");
    }
}

#[test]
fn reports_of_sysbench_are_runs() {
    let report = "sysbench 1.0.20 (using LuaJIT 2.1)\n\nFile operations:\n    reads/s:                      60.00\n\
                  Throughput:\n    read, MiB/s:                  0.94\nGeneral statistics:\n    total time: 2.5s\n\
                  Latency (ms):\n         avg:      0.5\n         95th percentile:      1.25\n";
    let group = good(&(report.to_owned() + report), None);
    assert_eq!(group.runs.len(), 2);
    for (name, value) in [("read_iops", 60.0), ("elapsed_s", 2.5), ("mean_ns", 5e5), ("p95_ns", 1.25e6)] {
        assert_eq!(group.column(name).map(|of| of.values.clone()), Some(vec![value; 2]), "{name}");
    }
}

#[test]
fn our_own_runs_come_back_with_what_is_known_of_them() {
    let text = "{\"schema\": \"iowhy.run/1\", \"job\": [\"dd\", \"bs=4k\"], \"runs\": [\
                {\"run_id\": \"1\", \"where\": \"sim:linux-4.4\", \"seed\": 5, \"metrics\": {\"iops\": 7}, \
                \"warnings\": [\"w\"]},\
                {\"run_id\": \"2\", \"where\": \"live\", \"metrics\": {\"iops\": 8, \"elapsed_s\": null}}]}";
    let group = good(text, None);
    assert_eq!(columns(&group), [("iops", &[7.0, 8.0][..], 0), ("elapsed_s", &[][..], 1)]);
    let facts: Vec<(bool, u64, &str)> =
        group.runs.iter().map(|run| (run.simulated, run.seed, run.job.as_str())).collect();
    assert_eq!(facts, [(true, 5, "dd bs=4k"), (false, 0, "dd bs=4k")]);
}

proptest! {
    #[test]
    fn short_numbers_are_read_as_the_library_reads_them(text in "[+-]?[0-9]{0,17}\\.?[0-9]{0,17}(e[0-9]{1,2})?") {
        let expected: Option<f64> = text.parse().ok();
        prop_assert_eq!(number(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits), "{}", text);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,200}", lines in "([a-z,:;{}\"0-9. \tB\n-]{0,40}\n){0,8}") {
        for format in FORMATS {
            for text in [&text, &lines, &format!("Benchmark{text}"), &format!("{{{text}")] {
                let mut problems = Problems::default();
                let group = read("f", text, Some(format.name), &mut problems);
                prop_assert_eq!(group.is_none(), problems.any_error());
                let finite = |group: &Group| group.columns.iter().all(|of| of.values.iter().all(|x| x.is_finite()));
                prop_assert!(group.is_none_or(|group| !group.columns.is_empty() && finite(&group)));
            }
        }
    }
}
