//! `iowhy run --on live` and `iowhy sysbench fileio` on real files, from outside. Nothing here depends on times.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{check_schema, root, text};

/// A directory for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn run(&self, program: &str, line: &str) -> Output {
        Command::new(program)
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .env("NO_COLOR", "1")
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    fn iowhy(&self, line: &str) -> Output {
        self.run(env!("CARGO_BIN_EXE_iowhy"), line)
    }

    fn json(&self, line: &str, code: i32) -> Value {
        let output = self.iowhy(line);
        assert_eq!(output.status.code(), Some(code), "{line}\n{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Names of what is in it.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a program is installed. A test that needs it is skipped without it, and fails in CI.
fn installed(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "{program} is not installed: apt-get install {package}");
        eprintln!("SKIPPED: {program} is not installed: apt-get install {package}");
    }
    found
}

fn metric(run: &Value, name: &str) -> f64 {
    run["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", run["metrics"]))
}

#[test]
fn built_in_jobs_run_on_real_files_and_leave_nothing() {
    let scratch = Scratch::new("builtins");
    for (line, reads, writes, syncs) in [
        ("dd of=data bs=4k count=64 conv=fsync", 0, 64, 1),
        ("dd of=/dev/iowhy-disk bs=4k oflag=direct count=16 writers=2 distance=1m", 0, 32, 0),
        ("dd if=data bs=512 count=100", 100, 0, 0),
        ("paralleldd readers=3 size=128k", 768, 0, 0),
        ("paralleldd readers=2 size=64k files=multi bs=4k", 32, 0, 0),
        ("aio-stress files=2 threads=2 size=256k depth=4 direct=0 stage=write,rread", 8, 8, 2),
    ] {
        let report = scratch.json(&format!("run {line} --on live --json"), 0);
        check_schema("run", &report);
        let run = &report["runs"][0];
        assert_eq!((&run["where"], &run["event_hash"]), (&Value::from("live"), &Value::Null), "{line}");
        let time = metric(run, "elapsed_s");
        assert!(time > 0.0 && metric(run, "cpu_ns_per_io") >= 0.0 && metric(run, "failed_calls") == 0.0, "{line}");
        // Only rates are in the metrics; over the time of the lines they give the counts.
        let count = |name: &str| {
            let of = |(key, rate): (&String, &Value)| {
                let line = key.strip_suffix(&format!(".{name}"))?;
                Some(rate.as_f64()? * metric(run, &format!("{line}.elapsed_s")))
            };
            let metrics = run["metrics"].as_object().expect("metrics");
            metrics.iter().filter_map(of).sum::<f64>().round() as u64
        };
        let counts = [count("read_iops"), count("write_iops"), count("syncs_per_s")];
        assert_eq!(counts, [reads, writes, syncs], "{line}");
        assert_eq!(scratch.names(), Vec::<String>::new(), "{line}");
    }
}

#[test]
fn every_job_file_runs_live_and_small() {
    let scratch = Scratch::new("jobs");
    let mut paths: Vec<String> = fs::read_dir(root().join("jobs"))
        .expect("jobs")
        .flatten()
        .map(|entry| fs::canonicalize(entry.path()).expect("a path").display().to_string())
        .filter(|path| path.ends_with(".fio"))
        .collect();
    paths.sort();
    for path in paths {
        let line = format!("run {path} --size-limit 64k --time-limit 1 --on live --json");
        let report = scratch.json(&line, 0);
        check_schema("run", &report);
        let run = &report["runs"][0];
        assert!(metric(run, "iops") > 0.0 && metric(run, "failed_calls") == 0.0, "{path}: {}", run["metrics"]);
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn live_and_simulated_places_are_set_side_by_side() {
    let scratch = Scratch::new("both");
    let line = "run dd of=data bs=4k count=32 --on live --on sim:linux-6.18 --disk here --disk nvme --repeat 3";
    let report = scratch.json(&format!("{line} --json"), 0);
    check_schema("run", &report);
    let runs = report["runs"].as_array().expect("runs");
    let ids: std::collections::BTreeSet<&str> = runs.iter().filter_map(|run| run["run_id"].as_str()).collect();
    assert_eq!((runs.len(), ids.len()), (6, 6));
    assert_eq!(runs.iter().filter(|run| run["where"] == "live").count(), 3);
    assert!(runs.iter().all(|run| run["layers"].is_null() == (run["where"] == "live")));
    let output = scratch.iowhy(line);
    let shown = text(&output.stdout);
    assert!(shown.contains("side by side") && shown.contains("[1] live") && shown.contains("[2] sim:linux"), "{shown}");
    let row = shown.lines().rev().find(|line| line.starts_with("write_iops ")).expect("a row of the table");
    // Each figure has a unit.
    assert_eq!(row.split_whitespace().count(), 5, "{row}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn the_state_of_the_page_cache_is_chosen_and_recorded() {
    let scratch = Scratch::new("cache");
    fs::create_dir(scratch.0.join("files")).expect("a directory");
    for (cache, expected) in [("cold", 0), ("warm", 64)] {
        let line = format!("run dd if=data bs=4k count=64 --on live --dir files --cache {cache} --json");
        let report = scratch.json(&line, 0);
        let live = &report["runs"][0]["live"];
        assert_eq!(live["cache"], cache);
        let before = live["files"][0]["resident_pages_before"].as_u64();
        // File systems in memory keep their pages whatever they are told.
        let kept = matches!(live["disk"]["filesystem"].as_str(), Some("tmpfs" | "overlay"));
        assert!(before == Some(expected) || kept, "{cache}: {live}");
    }
    assert_eq!(scratch.names(), ["files"], "a directory that was given stays, and its files do not");
    assert_eq!(fs::read_dir(scratch.0.join("files")).expect("a directory").count(), 0);
}

#[test]
fn a_place_that_refuses_takes_nothing_from_the_others() {
    let scratch = Scratch::new("refused");
    fs::write(scratch.0.join("file"), "not a directory").expect("a file");
    // Nothing can be made below a file.
    let output = scratch.iowhy("run dd of=x count=8 --on live --dir file --json");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    check_schema("error", &serde_json::from_slice(&output.stdout).expect("JSON"));
    // Bytes that somebody may miss are refused; the simulated place runs all the same.
    let output = scratch.iowhy("run dd of=file count=8 --on live --dir . --on sim:linux-6.18 --json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("file"), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("run", &report);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(fs::read(scratch.0.join("file")).expect("the file"), b"not a directory");
}

#[test]
fn a_file_that_cannot_be_made_takes_its_own_job_only() {
    let scratch = Scratch::new("left-out");
    fs::write(scratch.0.join("file"), "not a directory").expect("a file");
    let job = "[bad]\nrw=write\nsize=64k\ndirectory=file\n[good]\nrw=write\nsize=64k\n";
    fs::write(scratch.0.join("job.fio"), job).expect("a file");
    let output = scratch.iowhy("run job.fio --on live --dir . --json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("run", &report);
    let run = &report["runs"][0];
    assert!(metric(run, "good.write_iops") > 0.0, "{run}");
    assert_eq!(run["live"]["left_out"].as_array().map(Vec::len), Some(1), "{run}");
    assert!(text(&output.stderr).contains("bad.0.0"), "{}", text(&output.stderr));
    assert_eq!(scratch.names(), ["file", "job.fio"]);
}

#[test]
fn other_programs_are_run_and_read() {
    let scratch = Scratch::new("programs");
    // A program of this name that says what pgbench says.
    let fake = scratch.0.join("pgbench");
    let script = "#!/bin/sh\nif [ \"$2\" = 9 ]; then echo 'no server' >&2; exit 1; fi\necho 'tps = 512.5 (x)'\n";
    fs::write(&fake, script).expect("a script");
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).expect("permissions");
    let with_path = |path: &str, line: &str| {
        Command::new(env!("CARGO_BIN_EXE_iowhy"))
            .args(line.split_whitespace())
            .current_dir(&scratch.0)
            .env("PATH", path)
            .output()
            .expect("the command starts")
    };
    let path = format!("{}:/usr/bin:/bin", scratch.0.display());
    let output = with_path(&path, "run pgbench transactions=5 --on live --json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("run", &report);
    assert_eq!(metric(&report["runs"][0], "tps"), 512.5);
    let output = with_path(&path, "run pgbench clients=9 --on live");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no server"), "{}", text(&output.stderr));
    let output = with_path("/nowhere", "run pgbench --on live");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("apt-get install"), "{}", text(&output.stderr));
}

#[test]
fn bonnie_runs_if_it_is_installed() {
    if !installed("bonnie++", "bonnie++") {
        return;
    }
    let scratch = Scratch::new("bonnie");
    let report = scratch.json("run bonnie size=4m --on live --json", 0);
    check_schema("run", &report);
    assert_eq!(report["runs"][0]["live"]["command"][0], "bonnie++");
    assert_eq!(scratch.names(), Vec::<String>::new());
}

/// Figures of a report of sysbench: those after these words.
fn figures(report: &str) -> Vec<f64> {
    let after = |words: &str| {
        let rest = report.lines().find_map(|line| line.trim().strip_prefix(words));
        let rest = rest.unwrap_or_else(|| panic!("no `{words}` in\n{report}"));
        rest.trim().trim_end_matches('s').parse::<f64>().unwrap_or_else(|_| panic!("`{words}` is followed by {rest}"))
    };
    let words = [
        "reads/s:",
        "writes/s:",
        "fsyncs/s:",
        "read, MiB/s:",
        "written, MiB/s:",
        "total number of events:",
        "total time:",
    ];
    words.iter().map(|words| after(words)).collect()
}

/// The lines of a report without its numbers and without the lines that only one of the two has.
fn skeleton(report: &str) -> Vec<String> {
    let own = ["sysbench ", "Running on:", "Initializing random"];
    report
        .lines()
        .filter(|line| !own.iter().any(|begin| line.starts_with(begin)))
        .map(|line| line.split(|c: char| c.is_ascii_digit() || c == '.').map(str::trim).collect::<Vec<_>>().join(""))
        .collect()
}

/// Reads, writes and syncs of a report that only has rates: the syncs of passes among the events are known, so the rest
/// follows from the proportions.
fn counts(report: &str) -> [u64; 3] {
    let figures = figures(report);
    let [reads, writes, syncs, events] = [figures[0], figures[1], figures[2], figures[5]];
    // The whole number of data calls at which the syncs come out whole, too; tried from the most on.
    let fits = (1..=events as u64).rev().find(|data| {
        let [r, w, s] = [reads, writes, syncs].map(|rate| rate * *data as f64 / (reads + writes));
        let whole = |n: f64| (n - n.round()).abs() < 0.02;
        let passes = events - *data as f64;
        // Passes are of four files each, and the last syncs add four more if anything is written.
        let last = if w > 0.5 { 4.0 } else { 0.0 };
        whole(r) && whole(w) && whole(s) && (s - passes - last).abs() < 0.5
    });
    let data = fits.unwrap_or_else(|| panic!("no counts fit\n{report}")) as f64;
    [reads, writes, syncs].map(|rate| (rate * data / (reads + writes)).round() as u64)
}

#[test]
fn sysbench_and_we_make_the_same_calls() {
    if !installed("sysbench", "sysbench") {
        return;
    }
    let (ours, theirs) = (Scratch::new("sysbench-ours"), Scratch::new("sysbench-theirs"));
    let files = "--file-num=4 --file-total-size=1M --file-block-size=4096";
    let run = |mode: &str, options: &str| {
        let line = format!("fileio {files} --file-test-mode={mode} --events=450 --time=0 {options} run");
        let prepare = format!("fileio {files} prepare");
        let outputs = [(&ours, env!("CARGO_BIN_EXE_iowhy"), "sysbench "), (&theirs, "sysbench", "")].map(
            |(scratch, program, verb)| {
                for line in [&prepare, &line] {
                    let output = scratch.run(program, &format!("{verb}{line}"));
                    assert!(output.status.success(), "{program} {line}: {}", text(&output.stderr));
                    if line.ends_with("run") {
                        return text(&output.stdout);
                    }
                }
                String::new()
            },
        );
        let sizes = |scratch: &Scratch| -> Vec<u64> {
            let path = |nr| scratch.0.join(format!("test_file.{nr}"));
            (0..4).map(|nr| fs::metadata(path(nr)).expect("a file").len()).collect()
        };
        assert_eq!(sizes(&ours), sizes(&theirs), "{mode} {options}");
        outputs
    };
    for mode in ["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"] {
        for options in ["", "--file-io-mode=mmap", "--file-fsync-freq=40", "--file-fsync-end=off --file-fsync-freq=0"] {
            let [own, other] = run(mode, options);
            assert_eq!(skeleton(&own), skeleton(&other), "{mode} {options}");
            let (figures, others) = (figures(&own), figures(&other));
            assert_eq!(figures[5], others[5], "{mode} {options}: events");
            if options.contains("end=off") {
                assert_eq!((figures[2], others[2]), (0.0, 0.0), "{mode} {options}: syncs");
                continue;
            }
            assert_eq!(counts(&own), counts(&other), "{mode} {options}");
        }
    }
    // Each write is synced: as many syncs as writes, and both make one event.
    let [own, other] = run("rndrw", "--file-fsync-all=on").map(|report| figures(&report));
    for figures in [&own, &other] {
        assert!((figures[1] - figures[2]).abs() < 0.02 && figures[5] == 450.0, "{figures:?}");
    }
    // Asynchronous writes: the same calls.
    let [own, other] = run("rndwr", "--file-io-mode=async").map(|report| counts(&report));
    assert_eq!(own, other);
}

#[test]
fn sysbench_files_are_made_reported_and_removed() {
    let scratch = Scratch::new("files");
    let files = "--file-num=3 --file-total-size=300K";
    let prepare = |expected: &[&str]| {
        let output = scratch.iowhy(&format!("sysbench fileio {files} prepare"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        for line in expected {
            assert!(shown.lines().any(|shown| shown.starts_with(line)), "no `{line}` in\n{shown}");
        }
    };
    prepare(&["3 files, 100Kb each, 0Mb total", "Creating file test_file.2", "307200 bytes written in"]);
    prepare(&["Reusing existing file test_file.0", "No bytes written."]);
    fs::remove_file(scratch.0.join("test_file.1")).expect("a file");
    fs::write(scratch.0.join("test_file.2"), "short").expect("a file");
    let line = format!("sysbench fileio {files} --file-test-mode=rndrd --events=10 run");
    let missing = scratch.iowhy(&line);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(2), 0));
    assert!(text(&missing.stderr).contains("`test_file.1` is not there"), "{}", text(&missing.stderr));
    prepare(&["Creating file test_file.1", "Extending existing file test_file.2"]);
    for (options, key, value) in [
        ("--file-test-mode=rndrw --file-fsync-freq=5", "events", 20),
        ("--file-test-mode=rndwr --file-io-mode=async --file-extra-flags=dsync --file-fsync-freq=0", "writes", 20),
        ("--file-test-mode=seqrd --file-io-mode=mmap --report-interval=1", "reads", 20),
        ("--file-test-mode=rndrd --threads=3 --cache=cold", "reads", 20),
    ] {
        let run = scratch.json(&format!("sysbench fileio {files} --events=20 --time=0 {options} run --json"), 0);
        check_schema("sysbench", &run);
        assert_eq!((&run["where"], &run["counts"][key]), (&Value::from("live"), &Value::from(value)), "{options}");
    }
    let output = scratch.iowhy(&format!("{line} --report-style=1.1"));
    assert!(text(&output.stdout).contains("read:  IOPS="), "{}", text(&output.stdout));
    fs::write(scratch.0.join("test_file.7"), "not one of the three").expect("a file");
    let output = scratch.iowhy(&format!("sysbench fileio {files} cleanup"));
    assert_eq!((output.status.code(), scratch.names()), (Some(0), vec!["test_file.7".to_owned()]));
    std::os::unix::fs::symlink("test_file.7", scratch.0.join("test_file.0")).expect("a link");
    let output = scratch.iowhy(&format!("sysbench fileio {files} prepare"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not a plain file"), "{}", text(&output.stderr));
}
