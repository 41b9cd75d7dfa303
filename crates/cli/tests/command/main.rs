//! The command from outside: exit codes, messages, JSON, text.

mod arm;
mod attach;
mod bisect;
mod calibrate;
mod check;
mod compare;
mod conform;
mod disk;
mod disk_fit;
mod doctor;
mod explain;
mod explain_disk;
mod explain_live;
mod files;
mod fio;
mod generate;
mod guest;
mod guide;
mod harm;
mod history;
mod incident_live;
mod killed;
mod live;
mod mcp;
mod openmetrics;
mod own;
mod report;
mod run;
mod schema_check;
mod serve;
mod store;
mod surface;
mod sweep;
mod trace;
mod tune;
mod why;

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

/// Notes that a test could not be decided on this machine: `cargo xtask test` counts these notes.
fn not_decided(what: &str) {
    use std::io::Write;
    println!("not decided: {what}");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-decided");
    let file = fs::File::options().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{what}")).expect("the note is kept");
}

/// A folder of a test's own that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("iowhy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the temporary folder's business.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Whether modelled disks can be made. CI must be able to; elsewhere a test says that it was skipped.
fn can_make_disks() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let opens = |path: &str| fs::OpenOptions::new().read(true).write(true).open(path).is_ok();
    let able = root && opens("/dev/fuse") && opens("/dev/loop-control");
    if !able {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run the tests of modelled disks as root");
        println!("skipped: modelled disks need root, FUSE and loop devices");
    }
    able
}

/// Runs a command line that must be refused: exit code 2, nothing on standard output but errors as JSON where that was
/// asked for, no panic. Yields the message.
fn refused(line: &str) -> String {
    let output = iowhy(line);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}\n{message}");
    if !output.stdout.is_empty() && line.split(' ').any(|word| word == "--json") {
        check_schema("error", &serde_json::from_slice(&output.stdout).expect("JSON"));
    } else {
        assert!(output.stdout.is_empty(), "{line} printed {}", text(&output.stdout));
    }
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
    for patch in json("models patch --json")["models"].as_array().expect("a list") {
        let (name, conformance) = (&patch["name"], patch["conformance"].as_str().expect("a text"));
        let kernels = conformance.split_once("applies to ").expect("which kernels").1;
        let kernel = kernels.split(", ").next().filter(|name| name.starts_with("linux")).unwrap_or("linux-2.6.6-rc3");
        let run = json(&format!("{job} --on sim:{kernel}+{}", name.as_str().expect("a name")));
        assert_eq!(&run["stack"]["patches"][0], name);
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
    let preparation = iowhy("sysbench --test=fileio --file-total-size=3G prepare --on=sim:linux-2.4.25");
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
        "sysbench",
        "sysbench fileio",
        "sysbench fileio run",
        "sysbench fileio --on live --file-test-mode=rndrd run",
        "sysbench fileio --on kernel:debian-6.1 --file-test-mode=rndrd run",
        "models nonsense",
        "incident nonsense",
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
    check_schema("models-against", &json("models kernel linux-6.6 --against linux-6.8 --json"));
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
    // The rows of two more days of patches make the same events.
    assert_eq!(value["claims_total"], 9);
    assert_eq!(claims.iter().filter(|claim| claim["follows"].is_string()).count(), 4);
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

/// Holds a document to what the command prints now; with `IOWHY_REWRITE` set it is written anew first.
fn is_fresh(path: &Path, fresh: &str) {
    if std::env::var_os("IOWHY_REWRITE").is_some() {
        fs::write(path, fresh).expect("the page can be written");
    }
    let page = fs::read_to_string(path).unwrap_or_default();
    assert!(page == fresh, "{} is stale: IOWHY_REWRITE=1 cargo test -p iowhy fresh", path.display());
}

#[test]
fn kernels_are_compared_in_words() {
    let words = text(&iowhy("models kernel linux-6.6 --against linux-6.8").stdout);
    for expected in ["readahead: linux-6.6 against linux-6.6.57", "the next window of a stream", "never less"] {
        assert!(words.contains(expected), "{words}");
    }
    let levels = iowhy("models kernel linux-5.15.85 --against linux-5.15.135");
    assert!(text(&levels.stdout).contains("one page behind the request"), "{}", text(&levels.stdout));
    let nearest = iowhy("models kernel linux-6.7 --against linux-6.8");
    assert!(text(&nearest.stderr).contains("linux-6.8 is the nearest"), "{}", text(&nearest.stderr));
    assert!(text(&nearest.stdout).contains("nothing differs"), "{}", text(&nearest.stdout));
    assert!(refused("models elevator bfq --against kyber").contains("of kernels"));
    assert!(refused("models kernel linux-6.6 --against linux-6.88").contains("unknown kernel"));
}

#[test]
fn the_page_of_models_is_fresh() {
    is_fresh_but_for("docs/MODELS.md", "models --markdown", &[iowhy_lab::models::TWINS, iowhy_lab::models::ROBUST]);
}

#[test]
fn the_page_of_rules_is_fresh() {
    use iowhy_lab::plant::page::{LIVE_TABLE, ONE_SIDED_TABLE, TABLE};
    is_fresh_but_for("docs/RULES.md", "models rule --markdown", &[TABLE, LIVE_TABLE, ONE_SIDED_TABLE]);
}

/// Parts take minutes, and are other commands'.
fn is_fresh_but_for(page: &str, command: &str, parts: &[iowhy_text::part::Part]) {
    let path = root().join(page);
    let earlier = fs::read_to_string(&path).unwrap_or_default();
    let fresh = text(&iowhy(command).stdout);
    is_fresh(&path, &parts.iter().fold(fresh, |fresh, part| part.keep(&earlier, &fresh)));
}

#[test]
fn the_run_in_the_guide_is_fresh() {
    const COMMAND: &str = "$ cargo run --release -- incident 2004-random-read-split\n";
    let run = text(&iowhy("incident 2004-random-read-split").stdout);
    // The guide shows the table, the first claims and the cause; what is assumed and not explained is left to the run.
    let part = |from: &str, to: &str| {
        let (start, end) = (run.find(from).expect(from), run.find(to).expect(to));
        &run[start..end]
    };
    for line in run.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
    let shown = format!(
        "{}  ...\n{}",
        part("2004-random-read-split", "  held      rc3-deadline/2.4.25"),
        part("9 of 9 claims held", "\nassumed")
    );
    let path = root().join("docs/guide/src/incidents.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(COMMAND).expect("the page shows the command");
    let (_, after) = rest.split_once("```").expect("the block ends");
    is_fresh(&path, &format!("{before}{COMMAND}{shown}```{after}"));
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

/// A report with every number that has a point replaced by `*`, and the block of latencies held to its last column.
fn shape(report: &str, last_column: usize) -> Vec<String> {
    report
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let starred: Vec<String> = words.iter().map(|word| star(word)).collect();
            let line_shape = starred.join(" ");
            if !line.starts_with("        ") || line.contains("IOPS") {
                return line_shape;
            }
            assert_eq!(line.chars().count(), last_column, "{line}");
            line_shape.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn star(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |n| start + n);
        out.push_str(&rest[..start]);
        let number = &rest[start..end];
        out.push_str(if number.trim_end_matches('.').contains('.') { "*" } else { number });
        rest = &rest[end..];
    }
    out + rest
}

#[test]
fn the_text_report_has_the_shape_of_sysbench() {
    let run = |style: &str| {
        let output = iowhy(&format!(
            "sysbench fileio --file-num=4 --file-total-size=32M --file-test-mode=rndrw --events=150 {style} run \
             --on sim:linux-4.4"
        ));
        text(&output.stdout)
    };
    let head = "\n\
Running the test with following options:
Simulated on: linux-*, disk sata-2014
Number of threads: 1
Initializing random number generator from seed (1).


Extra file open flags: (none)
4 files, 8MiB each
32MiB total file size
Block size 16KiB
Number of IO requests: 150
Read/Write ratio for combined random IO test: *
Periodic FSYNC enabled, calling fsync() each 100 requests.
Calling fsync() at the end of test, Enabled.
Using synchronous I/O mode
Doing random r/w test
Initializing worker threads...

Threads started!


";
    let latency = "\n\
Latency (ms):
min: *
avg: *
max: *
95th percentile: *
sum: *

";
    let old = "\
File operations:
    reads/s:                      *
    writes/s:                     *
    fsyncs/s:                     *

Throughput:
    read, MiB/s:                  *
    written, MiB/s:               *

General statistics:
    total time:                          *s
    total number of events:              150
";
    let fairness = "\
Threads fairness:
    events (avg/stddev):           */*
    execution time (avg/stddev):   */*

";
    let new = "\
Throughput:
         read:  IOPS=* * MiB/s (* MB/s)
         write: IOPS=* * MiB/s (* MB/s)
         fsync: IOPS=*
";
    for (style, last_column, expected) in [
        ("", 53, format!("{head}{old}{latency}{fairness}")),
        ("--report-style=1.1", 51, format!("{head}{new}{latency}")),
    ] {
        let report = run(style);
        let (_, body) = report.split_once('\n').expect("a line with the version");
        assert_eq!(shape(body, last_column), expected.lines().collect::<Vec<_>>(), "{report}");
    }
    let histogram = run("--histogram");
    assert!(histogram.contains(
        "Latency histogram (values are in milliseconds)\n       value  ------------- distribution ------------- count\n"
    ));
}

#[test]
fn flags_and_intervals_are_printed_as_sysbench_does() {
    let report = text(
        &iowhy(
            "sysbench fileio --file-num=4 --file-total-size=32M --file-test-mode=seqwr --time=2 --report-interval=1 \
             --file-extra-flags=direct,sync --file-fsync-all --percentile=0 run --on sim:linux-4.4",
        )
        .stdout,
    );
    for line in [
        "Extra file open flags: sync directio\n",
        "\nCalling fsync() after each write operation.\nUsing synchronous I/O mode\n",
        "Doing sequential write (creation) test\n",
        "\n[ 1s ] reads: 0.00 MiB/s writes: ",
        "/s latency (ms,0%): 0.000\n",
        "\n         percentile stats:               disabled\n",
    ] {
        assert!(report.contains(line), "no {line:?} in\n{report}");
    }
    assert!(!report.contains("at the end of test") && !report.contains("Periodic FSYNC"), "{report}");
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
        "explain --help",
        "report --help",
        "bisect --help",
        "--version",
    ] {
        let output = iowhy(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        let help = text(&output.stdout);
        assert!(!help.is_empty(), "{line}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{line} is wider than a terminal:\n{help}");
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
