//! The command from outside: exit codes, messages, JSON, text.

mod schema_check;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn iowhy(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iowhy"))
        .args(line.split_whitespace())
        .env("NO_COLOR", "1")
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Runs a command line that must be refused: exit code 2, nothing on standard output, no panic. Yields the message.
fn refused(line: &str) -> String {
    let output = iowhy(line);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}\n{message}");
    assert!(output.stdout.is_empty(), "{line} printed {}", text(&output.stdout));
    assert!(!message.contains("panicked"), "{line}\n{message}");
    message
}

fn json(line: &str) -> Value {
    let output = iowhy(line);
    assert_eq!(output.status.code(), Some(0), "{line}\n{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn check_schema(name: &str, value: &Value) {
    let path = root().join(format!("schema/iowhy.{name}.1.json"));
    let schema = fs::read_to_string(&path).expect("the schema is there");
    let schema: Value = serde_json::from_str(&schema).expect("the schema is JSON");
    let found = schema_check::violations(&schema, value, name);
    assert!(found.is_empty(), "{:#?}", &found[..found.len().min(10)]);
}

const SMALL: &str = "sysbench fileio --file-num=16 --file-total-size=64M --file-test-mode=rndrd --threads=4 \
                     --events=1000 run --json";

fn names(kind: &str) -> Vec<String> {
    let models = json(&format!("models {kind} --json"));
    let list = models["models"].as_array().expect("a list");
    list.iter().map(|model| model["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn every_kernel_runs_on_every_disk() {
    let (kernels, disks) = (names("kernel"), names("device"));
    assert!(kernels.len() >= 15 && disks.len() >= 8);
    for kernel in &kernels {
        for disk in &disks {
            let run = json(&format!("{SMALL} --on sim:{kernel} --disk {disk}"));
            let (reads, elapsed_s) = (run["counts"]["reads"].as_u64(), run["elapsed_s"].as_f64().expect("a number"));
            // Ten seconds are the default of `--time`; a slow disk does not get further in them.
            let ended = reads == Some(1000) || (reads > Some(0) && (10.0..11.0).contains(&elapsed_s));
            assert!(ended && elapsed_s > 0.0, "{kernel} on {disk}: {reads:?} reads in {elapsed_s} s");
        }
    }
}

#[test]
fn every_elevator_and_every_patch_runs_mixed_reads_and_writes() {
    let job = SMALL.replace("rndrd", "rndrw");
    for elevator in names("elevator") {
        let run = json(&format!("{job} --on sim:linux-2.6.6-rc3,elevator={elevator}"));
        assert_eq!(run["stack"]["elevator"], elevator.as_str());
        assert!(run["counts"]["fsyncs"].as_u64() > Some(0), "{elevator}");
    }
    for patch in names("patch") {
        let run = json(&format!("{job} --on sim:linux-2.6.6-rc3+{patch}"));
        assert_eq!(run["stack"]["patches"][0], patch.as_str());
    }
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_one_does_not() {
    let hash = |seed: u32| json(&format!("{SMALL} --on sim:linux-2.6.6-rc3 --seed={seed}"))["event_hash"].clone();
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

#[test]
fn the_spelling_of_2004_means_the_sysbench_of_2004() {
    let old = json(
        "sysbench --num-threads=2 --test=fileio --file-num=4 --file-total-size=16M --file-test-mode=rndrw \
         --max-requests=200 run --on=sim:linux-2.4.25 --json",
    );
    assert_eq!(old["options"]["dialect"], "0.4");
    assert_eq!(old["options"]["positions"], "glibc random(), unseeded");
    assert_eq!((&old["counts"]["reads"], &old["counts"]["writes"]), (&Value::from(120), &Value::from(80)));
    let new = json(
        "sysbench fileio --threads=2 --file-num=4 --file-total-size=16M --file-test-mode=rndrw --events=200 run \
         --on=sim:linux-2.4.25 --json",
    );
    assert_eq!(new["options"]["dialect"], "1.0");
    let preparation = iowhy("sysbench --test=fileio --file-total-size=3G prepare");
    assert_eq!(preparation.status.code(), Some(0));
    assert!(text(&preparation.stdout).contains("nothing to do"));
}

#[test]
fn every_mistake_is_told_at_once_with_what_was_perhaps_meant() {
    let message = refused(
        "sysbench fileio --thread=4 --file-total-size=1X --file-test-mode=rndr run \
         --on sim:linux-2.6.6-rc4,elevator=deadlin,read_ahead_kb=-3 --disk ide-2005",
    );
    for expected in [
        "unknown option `--thread`",
        "--threads",
        "`--file-total-size` takes a size",
        "`--file-test-mode` takes one of",
        "unknown kernel `linux-2.6.6-rc4`",
        "linux-2.6.6-rc3",
        "unknown elevator `deadlin`",
        "`read_ahead_kb` must lie between",
        "unknown disk `ide-2005`",
        "ide-2004",
    ] {
        assert!(message.contains(expected), "no `{expected}` in\n{message}");
    }
}

#[test]
fn odd_requests_are_refused_with_advice() {
    let base = "sysbench fileio --file-test-mode=rndrd --on sim:linux-4.4 run";
    for (options, expected) in [
        ("--threads=0", "`--threads` must be at least 1"),
        ("--threads=-1", "`--threads` takes a whole number"),
        ("--threads=99999999999999999999", "`--threads` takes a whole number"),
        ("--file-num=0", "`--file-num` must be at least 1"),
        ("--file-total-size=100", "files of length zero"),
        ("--file-total-size=0", "`--file-total-size` must be at least 1 byte"),
        ("--file-total-size=500T", "the device has room for"),
        ("--file-block-size=0", "`--file-block-size` must be at least 1 byte"),
        ("--file-block-size=64M", "does not fit into a file"),
        ("--file-rw-ratio=0", "`--file-rw-ratio` takes a number above 0"),
        ("--time=0", "would never end"),
        ("--time=5 --max-time=6", "`--time` is 5 and `--max-time` is 6"),
        ("--file-io-mode=mmap", "not modelled yet"),
        ("--file-extra-flags=direct --file-block-size=1000", "multiple of 512"),
        ("--on=live", "`--on` is sim:linux-4.4 and `--on` is live"),
        ("--disk=", "unknown disk"),
        ("--cache=warm", "`--cache` takes cold or tail:SIZE"),
        ("cleanup", "one command at a time"),
        ("cpu", "only the test `fileio`"),
        ("--warmup-time=20", "warm-up takes all"),
    ] {
        let message = refused(&format!("{base} {options}"));
        assert!(message.contains(expected), "{options}: no `{expected}` in\n{message}");
    }
    for line in [
        "",
        "sysbench",
        "sysbench fileio",
        "sysbench fileio run",
        "sysbench fileio --on live --file-test-mode=rndrd run",
        "sysbench fileio --on kernel:debian-6.1 --file-test-mode=rndrd run",
        "models nonsense",
        "models rule",
        "incident nonsense",
        "incident 2018-readahead-window",
        "incident list --seeds 0",
        "conform",
        "conform --golden /nonexistent/folder",
        "nonsense",
    ] {
        refused(line);
    }
}

#[test]
fn many_threads_are_no_problem() {
    let run = json(
        "sysbench fileio --threads=10000 --file-num=4 --file-total-size=64M --file-test-mode=rndrd --events=20000 \
         --time=0 --on sim:linux-6.18 --disk nvme run --json",
    );
    assert_eq!(run["threads"]["n"], 10_000);
    assert_eq!(run["counts"]["reads"], 20_000);
}

#[test]
fn flags_modes_and_rates_work_together() {
    let base = "sysbench fileio --file-num=4 --file-total-size=32M --events=300 --time=0 --on sim:linux-6.1 run --json";
    for options in [
        "--file-test-mode=seqwr --file-fsync-all",
        "--file-test-mode=seqrewr --file-extra-flags=dsync",
        "--file-test-mode=seqrd --file-merged-requests=4",
        "--file-test-mode=rndwr --file-extra-flags=direct --file-io-mode=async --file-async-backlog=8",
        "--file-test-mode=rndrw --file-extra-flags=sync --file-fsync-mode=fdatasync",
        "--file-test-mode=rndrd --rate=500 --threads=3 --report-interval=1",
        "--file-test-mode=rndrd --cache=tail:16M --mapping-cached --own-descriptors --linux-threads",
        "--file-test-mode=rndrd --file-io-mode=async --file-block-size=4K --seed=3",
    ] {
        let run = json(&format!("{base} {options}"));
        check_schema("sysbench", &run);
        assert!(run["counts"]["events"].as_u64() >= Some(300), "{options}: {}", run["counts"]);
    }
}

#[test]
fn json_has_the_shape_of_its_schema() {
    check_schema("sysbench", &json(&format!("{SMALL} --on sim:linux-2.6.6-rc3 --report-interval=1")));
    check_schema("models", &json("models --json"));
    check_schema("incident", &json("incident list --json"));
    check_schema("incident", &incident(1, 2).1);
}

/// Runs the incident of 2004 with some sequences and threads: exit code and JSON.
fn incident(sequences: u32, threads: u32) -> (Option<i32>, Value) {
    let output = iowhy(&format!("incident 2004-random-read-split --json --seeds {sequences} --threads {threads}"));
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{}", text(&output.stderr)));
    (output.status.code(), value)
}

#[test]
fn the_incident_of_2004_is_the_same_on_one_thread_and_on_two() {
    let ((_, mut one), (_, mut two)) = (incident(1, 1), incident(1, 2));
    for value in [&mut one, &mut two] {
        value.as_object_mut().expect("an object").remove("wall_s");
    }
    assert_eq!(one, two);
}

#[test]
fn every_required_claim_of_the_incident_of_2004_holds() {
    let (code, value) = incident(4, 2);
    let claims = value["incidents"][0]["claims"].as_array().expect("claims");
    let failed: Vec<&Value> =
        claims.iter().filter(|claim| claim["held"] != true && claim["required"] == true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(code, Some(0));
    assert_eq!(value["claims_total"], 13);
}

#[test]
fn the_command_of_a_row_repeats_the_row() {
    let (_, value) = incident(1, 2);
    for row in value["incidents"][0]["rows"].as_array().expect("rows") {
        let command = row["settings"]["command"].as_str().expect("a command");
        let run = json(&format!("{} --json", command.trim_start_matches("iowhy ")));
        assert_eq!(run["event_hash"], row["event_hashes"][0], "{command}");
    }
}

#[test]
fn the_page_of_models_is_fresh() {
    let path = root().join("docs/MODELS.md");
    let fresh = text(&iowhy("models --markdown").stdout);
    if std::env::var_os("IOWHY_REWRITE").is_some() {
        fs::write(&path, &fresh).expect("the page can be written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == fresh, "docs/MODELS.md is stale: IOWHY_REWRITE=1 cargo test -p iowhy models");
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    for line in ["models --json", "sysbench fileio help", "incident list"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iowhy"))
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let mut message = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut message).expect("UTF-8");
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{line}: {message}");
        assert_eq!(message, "", "{line}");
    }
}

#[test]
fn the_text_report_has_the_shape_of_sysbench() {
    let output = iowhy(
        "sysbench fileio --file-num=4 --file-total-size=32M --file-test-mode=rndrw --events=150 --histogram run \
         --on sim:linux-4.4",
    );
    let report = text(&output.stdout);
    for line in [
        "Number of threads: 1",
        "Extra file open flags: (none)",
        "4 files, 8MiB each",
        "32MiB total file size",
        "Block size 16KiB",
        "Number of IO requests: 150",
        "Read/Write ratio for combined random IO test: 1.50",
        "Periodic FSYNC enabled, calling fsync() each 100 requests.",
        "Calling fsync() at the end of test, Enabled.",
        "Using synchronous I/O mode",
        "Doing random r/w test",
        "Threads started!",
        "File operations:",
        "    reads/s:                      ",
        "Throughput:",
        "    read, MiB/s:                  ",
        "General statistics:",
        "    total number of events:              ",
        "Latency (ms):",
        "         95th percentile: ",
        "Threads fairness:",
        "    execution time (avg/stddev):   ",
        "Latency histogram (values are in milliseconds)",
    ] {
        assert!(
            report.lines().any(|known| known.starts_with(line.trim_end()) || known.contains(line)),
            "{line}\n{report}"
        );
    }
}

#[test]
fn help_is_there_at_every_level() {
    for line in [
        "--help",
        "help",
        "incident --help",
        "models --help",
        "conform --help",
        "sysbench --help",
        "sysbench fileio help",
        "sysbench fileio --help",
        "--version",
    ] {
        let output = iowhy(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(!output.stdout.is_empty(), "{line}");
    }
}

/// The literate scenarios: each fenced command is run, and what the page says about its JSON must be so.
///
/// ```text
/// NAME: iowhy ...            a run that is called NAME
/// expect NAME.PATH < NAME2.PATH * 1.2
/// ```
#[test]
fn the_scenarios_tell_the_truth() {
    let folder = root().join("scenarios");
    let mut nr_expectations = 0;
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let page = fs::read_to_string(&path).expect("a page");
        let mut runs: Vec<(String, Value)> = Vec::new();
        for line in page.lines().map(str::trim) {
            if let Some((name, command)) = line.split_once(": iowhy ") {
                runs.push((name.to_owned(), json(&format!("{command} --json"))));
            } else if let Some(expectation) = line.strip_prefix("expect ") {
                nr_expectations += 1;
                assert!(holds(expectation, &runs), "{}: {expectation}", path.display());
            }
        }
    }
    assert!(nr_expectations > 0);
}

fn holds(expectation: &str, runs: &[(String, Value)]) -> bool {
    let words: Vec<&str> = expectation.split_whitespace().collect();
    let value = |word: &str| -> f64 {
        if let Ok(number) = word.parse() {
            return number;
        }
        let (name, path) = word.split_once('.').expect("NAME.PATH");
        let (_, run) = runs.iter().find(|(known, _)| known == name).expect("a run of that name");
        let found = run.pointer(&format!("/{}", path.replace('.', "/")));
        found.and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {word}"))
    };
    let side = |words: &[&str]| match words {
        [one] => value(one),
        [a, "*", b] => value(a) * value(b),
        [a, "/", b] => value(a) / value(b),
        other => panic!("cannot read {other:?}"),
    };
    let middle = words.iter().position(|word| matches!(*word, "<" | ">" | "=")).expect("a comparison");
    let (left, right) = (side(&words[..middle]), side(&words[middle + 1..]));
    match words[middle] {
        "<" => left < right,
        ">" => left > right,
        _ => left == right,
    }
}
