//! The store from outside: what is recorded is there, whatever happens meanwhile.
//!
//! For some tests this program starts itself once more: with [`ROLE`] set, the test of that name is the process that
//! records until it is killed, or until it has recorded as many runs as it was told.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_compare::{Calibration, Design as Order};
use iowhy_fio::World;
use iowhy_lab::run::simulator::Simulator;
use iowhy_lab::run::{self, Request, RunRequest};
use iowhy_lab::store::{
    CommandLine, Design, EventWriter, Filter, Format, Kind, MOST, Manifest, NewRun, Sampler, Store, StoreError,
    run_json,
};
use iowhy_stack::event::{CallId, Event, EventSink, FileId, Op, What};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::Problems;
use rusqlite::Connection;
use serde_json::{Value, json};

/// Set for the process that records: the store, and how many runs (0: until it is killed).
const ROLE: &str = "IOWHY_TEST_RECORDS_IN";

/// How many are killed.
const ROUNDS: u64 = 100;

/// The longest that one lives after its first run.
const LIFE: Duration = Duration::from_millis(30);

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("iowhy-store-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    Scratch(path)
}

/// A call that took so long.
fn call(sink: &mut dyn EventSink, number: u32, begin: u64, took: u64) {
    let (call, op, file) = (CallId(number), Op::Read, FileId(0));
    sink.event(&Event { at: Nanos(begin), call, what: What::CallStart { op, file, offset: 0, len_bytes: 4096 } });
    sink.event(&Event { at: Nanos(begin + took), call, what: What::CallEnd { op, file, len_bytes: 4096 } });
}

/// A run that differs from those of other numbers.
fn new_run(label: &str, number: u64) -> NewRun {
    NewRun {
        label: label.to_owned(),
        job: "dd if=a".to_owned(),
        place: Some("sim:linux-6.18".to_owned()),
        simulated: true,
        machine: Some(json!({ "device": "nvme" })),
        machine_hash: "0123456789abcdef".to_owned(),
        seed: number,
        event_hash: Some(number),
        started_ns: 1_000_000_000 + number,
        finished_ns: 1_000_000_100 + number,
        design: Design { session: "s".to_owned(), block: number, size: 9, ..Design::default() },
        metrics: vec![("elapsed_s".to_owned(), 1.0 + number as f64), ("odd_s".to_owned(), f64::NAN)],
        ..NewRun::default()
    }
}

/// The same with samples and events.
fn with_files(store: &Store, mut run: NewRun) -> NewRun {
    let mut writer = EventWriter::new(store).expect("a file");
    for nr in 0..40 {
        call(&mut writer, nr + 1, u64::from(nr) * 100, 10 + run.seed);
    }
    run.files = writer.finish(store).expect("files").into();
    run
}

/// Every file of every run is there and as it was written; the database is whole.
fn sound(directory: &Path) -> Store {
    let store = Store::open_existing(directory).expect("the store opens");
    for run in store.runs(&Filter::default()).expect("runs") {
        for file in &run.files {
            store.verify(&file.hash).expect("the file is whole");
            assert_eq!(store.rows(&file.hash).expect("rows").len() as u64, file.rows);
        }
    }
    let database = Connection::open(directory.join("store.sqlite")).expect("a database");
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(check, "ok");
    let strangers: Vec<i64> = database
        .prepare("PRAGMA foreign_key_check")
        .expect("a check")
        .query_map([], |row| row.get(1))
        .expect("an answer")
        .collect::<Result<_, _>>()
        .expect("rows");
    assert_eq!(strangers, Vec::<i64>::new());
    store
}

/// Starts this program as a process that records.
fn recorder(directory: &Path, runs: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "recorder_process", "--nocapture"])
        .env(ROLE, format!("{runs} {}", directory.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

#[test]
fn recorder_process() {
    // As a test of its own it has nothing to do.
    let Ok(role) = std::env::var(ROLE) else { return };
    let (runs, directory) = role.split_once(' ').expect("a number and a folder");
    let runs: u64 = runs.parse().expect("a number");
    let store = Store::open(Path::new(directory)).expect("a store");
    let label = format!("process {}", std::process::id());
    // The id of the process makes runs of different ones differ.
    for nr in (0..).take_while(|nr| runs == 0 || *nr < runs) {
        let run = with_files(&store, new_run(&label, u64::from(std::process::id()) << 20 | nr));
        let id = store.record(&run).expect("it is recorded");
        println!("\nrecorded {id}");
        std::io::stdout().flush().expect("the parent listens");
    }
}

/// The ids that a recorder has printed.
fn ids(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // A line that the end cut short was not printed.
    lines.map_while(Result::ok).filter_map(|line| Some(line.strip_prefix("recorded ")?.to_owned())).collect()
}

#[test]
fn no_run_that_was_recorded_is_lost_when_the_process_is_killed() {
    let folder = scratch("killed");
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing");
    let (mut printed, started) = (BTreeSet::new(), Instant::now());
    for round in 0..ROUNDS / 2 {
        // Two at a time, so that some die while another one waits for them.
        let mut pair: Vec<(Child, std::thread::JoinHandle<Vec<String>>)> = Vec::new();
        let (sender, first) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let mut child = recorder(&folder.0, 0);
            let (out, sender) = (child.stdout.take().expect("a pipe"), sender.clone());
            let reader = std::thread::spawn(move || {
                let mut ids = Vec::new();
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if let Some(id) = line.strip_prefix("recorded ").filter(|id| id.len() == 16) {
                        ids.push(id.to_owned());
                        let _ = sender.send(());
                    }
                }
                ids
            });
            pair.push((child, reader));
        }
        // Some are killed while they open the store; most when one of them has begun to record.
        if round % 10 != 0 {
            first.recv_timeout(Duration::from_secs(30)).expect("it records");
        }
        for (mut child, reader) in pair {
            std::thread::sleep(Duration::from_nanos(rng.below(LIFE.as_nanos() as u64)));
            child.kill().expect("it can be killed");
            let status = child.wait().expect("it has ended");
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "round {round}: {status}");
            printed.extend(reader.join().expect("the reader ends"));
        }
        // Whatever happened, the next one opens it; and now and then all of it is looked through.
        if round % 25 == 24 {
            sound(&folder.0);
        }
    }
    let store = sound(&folder.0);
    let stored: BTreeSet<String> =
        store.runs(&Filter::default()).expect("runs").into_iter().map(|run| run.id.0).collect();
    let lost: Vec<&String> = printed.difference(&stored).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), printed.len());
    assert!(printed.len() as u64 >= ROUNDS / 4, "{} were recorded: nothing was tested", printed.len());
    // What the killed left goes, what runs have stays.
    let swept = store.gc(false).expect("a sweep");
    println!("{} runs, {} files left behind, {:?}", stored.len(), swept.files.len(), started.elapsed());
    assert_eq!(sound(&folder.0).gc(true).expect("a look").files, Vec::<String>::new());
}

#[test]
fn two_processes_that_record_at_once_both_land() {
    let folder = scratch("two");
    // Both find no store, and make one.
    let mut children = [recorder(&folder.0, 25), recorder(&folder.0, 25)];
    let ids: Vec<String> = children.iter_mut().flat_map(ids).collect();
    for child in &mut children {
        assert!(child.wait().expect("it has ended").success());
    }
    let store = sound(&folder.0);
    let stored: Vec<String> = store.runs(&Filter::default()).expect("runs").into_iter().map(|run| run.id.0).collect();
    assert_eq!((ids.len(), stored.len()), (50, 50));
    assert!(ids.iter().all(|id| stored.contains(id)));
}

#[test]
fn what_was_recorded_is_read_back() {
    let folder = scratch("back");
    let store = Store::open(&folder.0).expect("a store");
    let mut run = with_files(&store, new_run("a, b", 7));
    run.warnings = vec!["noise".to_owned()];
    // Seeds have all 64 bits.
    run.seed = u64::MAX;
    let id = store.record(&run).expect("it is recorded");
    assert_eq!(store.record(&run).expect("it is there already"), id);
    let found = store.find("a, b").expect("a label with a comma");
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!((&found.id, found.seed, found.started_ns), (&id, u64::MAX, 1_000_000_007));
    assert_eq!(found.design, run.design);
    assert_eq!((found.machine.clone(), found.warnings.clone()), (run.machine.clone(), run.warnings.clone()));
    assert_eq!(found.event_hash.as_deref(), Some("0000000000000007"));
    assert_eq!(found.metrics[0], ("elapsed_s".to_owned(), 8.0));
    assert!(found.metrics[1].1.is_nan());
    let kinds: Vec<(Kind, u64)> = found.files.iter().map(|file| (file.kind, file.rows)).collect();
    assert_eq!(kinds, [(Kind::Events, 80), (Kind::Samples, 40)]);
    let group = store.group(&id.0[..6]).expect("the beginning of an id");
    assert_eq!((group.runs.len(), group.columns.len()), (1, 2));
    let odd = group.column("odd_s").expect("a column");
    assert_eq!((odd.values.len(), odd.left_out), (0, 1));
    // Another order of the same measurements is another content, and so is another time.
    let other = NewRun { started_ns: 5, ..run.clone() };
    assert_ne!(other.id(), run.id());
}

#[test]
fn names_are_labels_tags_ids_and_their_beginnings() {
    let folder = scratch("names");
    let store = Store::open(&folder.0).expect("a store");
    let ids: Vec<String> = (0..6)
        .map(|nr| {
            let mut run = new_run(["base", "candidate"][nr as usize % 2], 10 - nr);
            run.design.warm_up = nr == 5;
            store.record(&run).expect("it is recorded").0
        })
        .collect();
    let seeds = |what: &str| -> Vec<u64> { store.group(what).expect(what).runs.iter().map(|run| run.seed).collect() };
    // In the order in which they began, without the one that only warms up.
    assert_eq!(seeds("base"), [6, 8, 10]);
    assert_eq!(seeds("candidate"), [7, 9]);
    assert_eq!(seeds("base,candidate"), [6, 7, 8, 9, 10]);
    assert_eq!(seeds(&format!("{}, {}", ids[1], &ids[0][..8])), [9, 10]);
    // One that is named by its id is meant.
    assert_eq!(seeds(&ids[5]), [5]);
    assert_eq!(store.tag("base", "release", false).expect("a tag"), 3);
    assert_eq!(store.tag("base", "release", false).expect("a tag"), 0);
    assert_eq!(seeds("release"), [6, 8, 10]);
    assert_eq!(store.tag(&ids[0], "release", true).expect("a tag"), 1);
    assert_eq!(seeds("release"), [6, 8]);
    for (tag, expected) in [("", "empty"), ("a,b", "commas"), ("a\nb", "control")] {
        let error = store.tag("base", tag, false).expect_err("no tag").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = store.group("bsae").expect_err("nothing").to_string();
    assert!(error.contains("`bsae`") && error.contains("nearest: base"), "{error}");
    assert!(matches!(store.group("base,nothing"), Err(StoreError::Unknown { what, .. }) if what == "nothing"));
    // Sixteen times as many runs as first digits: some ids begin alike.
    (20..276).for_each(|nr| drop(store.record(&new_run("many", nr)).expect("it is recorded")));
    let mut all: Vec<String> = store.runs(&Filter::default()).expect("runs").into_iter().map(|run| run.id.0).collect();
    all.sort();
    let pair = all.windows(2).map(|pair| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count());
    let longest = pair.max().expect("pairs");
    assert!(longest < 16);
    if longest >= 4 {
        let at = all.windows(2).position(|pair| pair[0][..longest] == pair[1][..longest]).expect("a pair");
        let begin = &all[at][..longest];
        assert!(matches!(store.group(begin), Err(StoreError::Ambiguous { .. })), "{begin}");
    }
    let last = store.runs(&Filter { last: Some(2), ..Filter::default() }).expect("runs");
    assert_eq!(last.iter().map(|run| run.seed).collect::<Vec<_>>(), [274, 275]);
}

#[test]
fn series_of_a_history_are_of_one_job_and_machine() {
    let folder = scratch("history");
    let store = Store::open(&folder.0).expect("a store");
    for nr in 0..12 {
        let mut run = new_run("nightly", nr);
        run.simulated = nr % 2 == 0;
        run.place = Some(if run.simulated { format!("sim:linux-{}", nr % 3) } else { "live".to_owned() });
        run.job = if nr < 10 { "one".to_owned() } else { "two".to_owned() };
        run.design.warm_up = nr == 0;
        store.record(&run).expect("it is recorded");
    }
    let lengths = |filter: &Filter| -> Vec<(String, usize)> {
        let groups = store.groups_for_history(filter).expect("series");
        groups.into_iter().map(|group| (group.label, group.runs.len())).collect()
    };
    let machine = "machine 01234567";
    assert_eq!(
        lengths(&Filter { job: Some("one".to_owned()), ..Filter::default() }),
        [
            (format!("one on live, {machine}"), 5),
            (format!("one on sim:linux-2, {machine}"), 2),
            (format!("one on sim:linux-1, {machine}"), 1),
            (format!("one on sim:linux-0, {machine}"), 1),
        ]
    );
    let named = Filter { label: Some("nightly".to_owned()), job: Some("one".to_owned()), ..Filter::default() };
    assert_eq!(lengths(&named).iter().map(|(_, runs)| runs).sum::<usize>(), 9);
    assert_eq!(lengths(&named).len(), 1);
}

#[test]
fn runs_can_be_neither_changed_nor_removed() {
    let folder = scratch("kept");
    let store = Store::open(&folder.0).expect("a store");
    let run = with_files(&store, new_run("a", 1));
    store.record(&run).expect("it is recorded");
    let calibration = calibration("elapsed_s", 3);
    store.record_calibration("m", &calibration, 1, &json!({})).expect("it is recorded");
    let database = Connection::open(folder.0.join("store.sqlite")).expect("a database");
    for table in ["run", "metric", "data", "calibration"] {
        for statement in [format!("DELETE FROM {table}"), format!("UPDATE {table} SET rowid = rowid")] {
            let statement = statement.replace("metric SET rowid = rowid", "metric SET value = 0");
            let statement = statement.replace("data SET rowid = rowid", "data SET rows = 0");
            let error = database.execute(&statement, []).expect_err(&statement).to_string();
            assert!(error.contains("never"), "{statement}: {error}");
        }
    }
}

fn calibration(metric: &str, false_alarms: usize) -> Calibration {
    Calibration {
        job: "job".to_owned(),
        metric: metric.to_owned(),
        design: Order::Interleaved,
        runs: 40,
        per_side: 10,
        comparisons: 500,
        false_alarms,
        false_alarm_ci: (0.001, f64::NAN),
        detectable_pct: 2.5,
    }
}

#[test]
fn the_latest_calibration_of_each_metric_counts() {
    let folder = scratch("calibrations");
    let store = Store::open(&folder.0).expect("a store");
    for (metric, alarms, when) in [("b", 9, 5), ("a", 1, 1), ("a", 3, 3), ("a", 2, 2)] {
        store.record_calibration("m", &calibration(metric, alarms), when, &json!({ "x": 1 })).expect("recorded");
    }
    store
        .record_calibration("m", &Calibration { design: Order::Sequential, ..calibration("a", 7) }, 9, &Value::Null)
        .expect("recorded");
    let found = store.calibrations("m", "job").expect("calibrations");
    let short: Vec<(&str, &str, usize)> =
        found.iter().map(|c| (c.metric.as_str(), c.design.word(), c.false_alarms)).collect();
    assert_eq!(short, [("a", "interleaved", 3), ("a", "sequential", 7), ("b", "interleaved", 9)]);
    assert!(found[0].false_alarm_ci.0 == 0.001 && found[0].false_alarm_ci.1.is_nan());
    assert_eq!(store.calibrations("m", "other").expect("none"), []);
    assert_eq!(store.calibrations("n", "job").expect("none"), []);
}

#[test]
fn merging_brings_all_once() {
    let (here, there) = (scratch("here"), scratch("there"));
    let (one, two) = (Store::open(&here.0).expect("a store"), Store::open(&there.0).expect("a store"));
    let shared = with_files(&one, new_run("shared", 1));
    one.record(&shared).expect("recorded");
    two.record(&with_files(&two, new_run("shared", 1))).expect("recorded");
    one.record(&with_files(&one, new_run("mine", 2))).expect("recorded");
    for nr in 3..6 {
        two.record(&with_files(&two, new_run("theirs", nr))).expect("recorded");
    }
    two.tag("shared", "good", false).expect("a tag");
    two.record_calibration("m", &calibration("a", 1), 1, &json!({})).expect("recorded");
    let merged = one.merge(&there.0).expect("a merge");
    assert_eq!((merged.runs, merged.known, merged.tags, merged.calibrations), (3, 1, 1, 1));
    // Three runs have samples and events of their own.
    assert_eq!(merged.files, 6);
    let again = one.merge(&there.0).expect("a merge");
    assert_eq!((again.runs, again.known, again.files, again.tags, again.calibrations), (0, 4, 0, 0, 0));
    let store = sound(&here.0);
    assert_eq!(store.runs(&Filter::default()).expect("runs").len(), 5);
    assert_eq!(store.group("good").expect("a tag").runs.len(), 1);
    assert_eq!(store.group("theirs").expect("runs").column("elapsed_s").expect("a column").values, [4.0, 5.0, 6.0]);
    // Nothing comes from a file that is not what its name says.
    let hash = two.find("theirs").expect("runs")[0].files[0].hash.clone();
    let fresh = scratch("fresh");
    fs::write(two.data_path(&hash), b"other bytes").expect("a file");
    let error = Store::open(&fresh.0).expect("a store").merge(&there.0).expect_err("damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(matches!(one.merge(Path::new("nowhere at all")), Err(StoreError::Missing { .. })));
}

#[test]
fn sweeping_removes_what_belongs_to_no_run_and_nothing_else() {
    let folder = scratch("swept");
    let store = Store::open(&folder.0).expect("a store");
    store.record(&with_files(&store, new_run("a", 1))).expect("recorded");
    let orphans = with_files(&store, new_run("b", 2));
    // While somebody holds them, they may yet be recorded.
    assert!(matches!(store.gc(false), Err(StoreError::Busy { .. })));
    drop(orphans);
    let data = folder.0.join("data");
    fs::write(data.join("events-1-0.tmp"), b"half").expect("a file");
    fs::write(data.join("notes.txt"), b"mine").expect("a file");
    let looked = store.gc(true).expect("a look");
    assert_eq!((looked.files.len(), looked.removed), (3, false));
    let swept = store.gc(false).expect("a sweep");
    assert_eq!((swept.files, swept.bytes, swept.removed), (looked.files, looked.bytes, true));
    assert!(data.join("notes.txt").exists());
    sound(&folder.0);
    assert_eq!(fs::read_dir(&data).expect("the folder").count(), 3);
}

#[test]
fn a_store_of_version_1_is_brought_up_to_date() {
    let folder = scratch("old");
    fs::create_dir_all(folder.0.join("data")).expect("a folder");
    let database = Connection::open(folder.0.join("store.sqlite")).expect("a database");
    database.execute_batch(include_str!("store/version-1.sql")).expect("the fixture");
    drop(database);
    let store = Store::open_existing(&folder.0).expect("the store opens");
    let runs = store.runs(&Filter::default()).expect("runs");
    assert_eq!(runs.len(), 2);
    assert_eq!((runs[0].id.0.as_str(), runs[0].seed), ("00000000000000a1", u64::MAX));
    assert_eq!(store.group("old").expect("a label").column("elapsed_s").expect("a column").values, [1.5, 2.5]);
    assert_eq!(store.group("golden").expect("a tag").runs.len(), 1);
    store.record_calibration("m", &calibration("a", 1), 1, &json!({})).expect("a table of version 2");
    let database = Connection::open(folder.0.join("store.sqlite")).expect("a database");
    let n: i64 = database.query_row("SELECT count(*) FROM measurement", [], |row| row.get(0)).expect("a view");
    assert_eq!(n, 2);
    let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    assert_eq!(version, 4);
    // A later one is not touched.
    database.execute_batch("PRAGMA user_version = 5").expect("a version");
    let error = Store::open(&folder.0).expect_err("too new").to_string();
    assert!(error.contains("version 5") && error.contains("up to 4"), "{error}");
}

/// Its manifests stand among the policies, and its seals cover them there.
#[test]
fn a_store_of_version_3_keeps_its_seals_and_its_manifests() {
    let folder = scratch("sealed");
    fs::create_dir_all(folder.0.join("data")).expect("a folder");
    let database = Connection::open(folder.0.join("store.sqlite")).expect("a database");
    for tables in [include_str!("../src/store/1.sql"), include_str!("../src/store/2.sql")] {
        database.execute_batch(tables).expect("tables");
    }
    database.execute_batch(include_str!("../src/store/3.sql")).expect("tables");
    database.execute_batch(include_str!("store/version-3.sql")).expect("the fixture");
    drop(database);
    let store = Store::open_existing(&folder.0).expect("the store opens");
    let runs = store.runs(&Filter::default()).expect("the seals hold");
    let [(simulated, policies), (live, _)] = [runs[0].asked(), runs[1].asked()];
    let command = "run fio --name=a --rw=read --bs=64k --size=1m --on sim:linux-6.18";
    assert_eq!((simulated.version, simulated.command.as_deref()), (1, Some(command)));
    let policies = policies.expect("policies");
    assert_eq!((&policies["kernel"], policies.get("command")), (&json!("linux-6.18"), None));
    let words = ["fio", "--name=a", "--rw=read", "--bs=64k", "--size=1m"].map(str::to_owned).to_vec();
    assert_eq!(live.again, Some(CommandLine { words, folder: "/srv/jobs".into() }));
    assert_eq!((live.disk.as_deref(), live.modelled), (Some("vda"), None));
    // What is recorded from now on answers alike, and `--json` has it at the same place.
    let (mut run, manifest) = (new_run("a", 1), Manifest { command: Some("run x".into()), ..Manifest::default() });
    (run.policies, run.manifest) = (Some(json!({ "kernel": "linux-6.18" })), Some(manifest.clone()));
    store.record(&run).expect("recorded");
    let run = &store.runs(&Filter { label: Some("a".into()), ..Filter::default() }).expect("runs")[0];
    assert_eq!(run.asked(), (manifest, Some(json!({ "kernel": "linux-6.18" }))));
    let both = [run, &runs[0]].map(|run| run_json(run)["policies"]["command"].clone());
    assert_eq!(both, [json!("run x"), json!(command)]);
}

#[test]
fn what_is_no_store_is_refused_with_a_reason() {
    let folder = scratch("foreign");
    assert!(matches!(Store::open_existing(&folder.0), Err(StoreError::Missing { .. })));
    assert!(fs::read_dir(&folder.0).expect("the folder").next().is_none(), "looking for one makes none");
    let path = folder.0.join("store.sqlite");
    fs::write(&path, "these are no pages of a database, however one looks at them").expect("a file");
    assert!(matches!(Store::open(&folder.0), Err(StoreError::Foreign { .. })));
    fs::remove_file(&path).expect("it goes");
    let database = Connection::open(&path).expect("a database");
    database.execute_batch("CREATE TABLE other (a)").expect("a table");
    drop(database);
    let error = Store::open(&folder.0).expect_err("of another program").to_string();
    assert!(error.contains("another program") && error.contains("--store DIR"), "{error}");
    // A file where the directory should be.
    let error = Store::open(&path).expect_err("a file").to_string();
    assert!(error.contains("cannot make the directory") && error.contains("--store DIR"), "{error}");
}

#[test]
fn what_cannot_be_written_is_told_and_leaves_the_store_whole() {
    let folder = scratch("unwritable");
    let store = Store::open(&folder.0).expect("a store");
    store.record(&with_files(&store, new_run("a", 1))).expect("recorded");
    let (data, elsewhere) = (folder.0.join("data"), folder.0.join("elsewhere"));
    // The data directory is a file: nothing can be written to it, whoever tries.
    fs::rename(&data, &elsewhere).expect("it moves");
    fs::write(&data, b"").expect("a file");
    let error = EventWriter::new(&store).err().expect("no place").to_string();
    assert!(error.contains("cannot make the directory") && error.contains("--store DIR"), "{error}");
    let request = request(&format!("dd of=a count=1 --on sim:linux-4.4 --store {}", folder.0.display()));
    let executed = run::execute_into(&request, Some(&store), &|_, _| ());
    assert!(executed.runs.len() == 1 && executed.runs[0].id.is_none(), "what was made is not lost");
    assert!(matches!(executed.unrecorded, Some(StoreError::Folder { .. })));
    fs::remove_file(&data).expect("it goes");
    fs::rename(&elsewhere, &data).expect("it moves back");
    assert_eq!(sound(&folder.0).runs(&Filter::default()).expect("runs").len(), 1);
    // So is one whose database is a directory.
    let other = scratch("directory");
    fs::create_dir(other.0.join("store.sqlite")).expect("a folder");
    let error = Store::open(&other.0).expect_err("a folder").to_string();
    assert!(error.contains("cannot open") && error.contains("writable"), "{error}");
}

fn request(line: &str) -> RunRequest {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    *run::asked(&words, &World::empty()).unwrap_or_else(|problems| panic!("{line}: {}", problems.render()))
}

/// Every event of a run, gathered.
fn events(request: &RunRequest) -> Vec<Event> {
    let simulator: &Simulator = request.variants[0].backend().expect("simulated");
    let mut events: Vec<Event> = Vec::new();
    sim::run_with(&simulator.plan, &mut events).expect("it runs");
    events
}

#[test]
fn what_happened_is_in_the_files_and_recording_changes_nothing() {
    let folder = scratch("events");
    let directory = folder.0.join("store");
    let job = "pgbench clients=3 size=8m transactions=12 --on sim:linux-2.6.38 --disk sata-2010";
    let request = request(&format!("{job} --trace --label x --store {}", directory.display()));
    let plain = run::execute(&request, &|_, _| ());
    let store = Store::open(&directory).expect("a store");
    let kept = run::execute_into(&request, Some(&store), &|_, _| ());
    let hash = |executed: &run::Executed| executed.runs[0].record.events.expect("simulated");
    assert_eq!(hash(&plain), hash(&kept));
    assert!(kept.unrecorded.is_none(), "{:?}", kept.unrecorded);
    let stored = &store.find("x").expect("a run")[0];
    assert_eq!(Some(&stored.id), kept.runs[0].id.as_ref());
    let rows_of = |kind: Kind| {
        let file = stored.files.iter().find(|file| file.kind == kind).expect("a file");
        store.rows(&file.hash).expect("rows")
    };
    let (rows, events) = (rows_of(Kind::Events), events(&request));
    assert_eq!(rows.len(), events.len());
    let mut kinds = BTreeSet::new();
    for (row, event) in rows.iter().zip(&events) {
        assert_eq!((row["t_ns"].as_u64(), row["call"].as_u64()), (Some(event.at.0), Some(u64::from(event.call.0))));
        let kind = row["kind"].as_str().expect("a kind");
        kinds.insert(kind.to_owned());
        // What an event says of itself has the same numbers, whatever its columns are called.
        match event.what {
            What::CallStart { offset, len_bytes, file, .. } => {
                assert_eq!(kind, "call_start");
                let found = ["offset", "len_bytes", "file"].map(|name| row[name].as_u64());
                assert_eq!(found, [Some(offset), Some(u64::from(len_bytes)), Some(u64::from(file.0))]);
            }
            What::Issue { rq, sector, nr_sectors, in_flight, .. } => {
                assert_eq!(kind, "issue");
                let found = ["rq", "sector", "count", "in_flight"].map(|name| row[name].as_u64());
                let expected = [u64::from(rq.0), sector.0, u64::from(nr_sectors), u64::from(in_flight)];
                assert_eq!(found, expected.map(Some));
            }
            What::RaWindow { start, nr_pages, async_size, order, .. } => {
                assert_eq!(kind, "window");
                let found = ["page", "count", "async_size", "order"].map(|name| row[name].as_u64());
                let expected = [start.0, u64::from(nr_pages), u64::from(async_size), u64::from(order)];
                assert_eq!(found, expected.map(Some));
            }
            What::ServiceModel { rq, seek_us, rotation_us, .. } => {
                assert_eq!(kind, "service_model");
                let found = ["rq", "seek_us", "rotation_us"].map(|name| row[name].as_u64());
                assert_eq!(found, [rq.0, seek_us, rotation_us].map(|n| Some(u64::from(n))));
            }
            What::Plug => {
                assert!(row.as_object().expect("a row").values().filter(|value| !value.is_null()).count() == 3)
            }
            _ => {}
        }
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
    // Every call that ended is a sample, with the time between its ends.
    let calls = events.iter().filter(|event| matches!(event.what, What::CallEnd { .. })).count();
    let samples = rows_of(Kind::Samples);
    assert_eq!(samples.len(), calls);
    let sum: u64 = samples.iter().map(|row| row["latency_ns"].as_u64().expect("a time")).sum();
    let ends = |end: bool| -> u64 {
        let of = |event: &&Event| match event.what {
            What::CallStart { .. } => !end,
            What::CallEnd { .. } => end,
            _ => false,
        };
        events.iter().filter(of).map(|event| event.at.0).sum()
    };
    assert_eq!(sum, ends(true) - ends(false));
}

#[test]
fn many_calls_are_thinned_out_with_weights() {
    let folder = scratch("many");
    let store = Store::open(&folder.0).expect("a store");
    let mut sampler = Sampler::default();
    let calls = 3 * MOST as u32;
    (1..=calls).for_each(|nr| call(&mut sampler, nr, u64::from(nr) * 10, 5));
    let file = sampler.finish(&store).expect("a file");
    assert!(file.rows() <= MOST as u64 && file.rows() > MOST as u64 / 2, "{}", file.rows());
    let rows = store.rows(file.hash()).expect("rows");
    assert!(rows.iter().all(|row| row["weight"] == 4 && row["latency_ns"] == 5));
}

#[test]
fn a_blind_run_has_no_word_of_what_it_was_made_on() {
    let folder = scratch("blind");
    let directory = folder.0.join("store");
    let places = "--on sim:linux-2.6.18-164.el5,elevator=deadline-3.2 --on sim:linux-6.18 --disk nvme --disk sata-2010";
    let line = format!("dd of=/dev/sda bs=4k oflag=direct count=64 {places} --blind --trace --label mine");
    let request = request(&format!("{line} --store {}", directory.display()));
    let store = Store::open(&directory).expect("a store");
    let executed = run::execute_into(&request, Some(&store), &|_, _| ());
    assert!(executed.unrecorded.is_none() && executed.runs.len() == 2);
    let runs = store.runs(&Filter::default()).expect("runs");
    let labels: BTreeSet<&str> = runs.iter().map(|run| run.label.as_str()).collect();
    assert_eq!(labels, BTreeSet::from(["mine/1", "mine/2"]));
    assert_eq!(runs[0].job, runs[1].job, "runs of the same job are known to be");
    drop(store);
    // Not one word anywhere in the store, whichever table or file somebody looks into.
    let database = Connection::open(directory.join("store.sqlite")).expect("a database");
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); VACUUM").expect("one file");
    drop(database);
    let mut bytes = fs::read(directory.join("store.sqlite")).expect("the database");
    for entry in fs::read_dir(directory.join("data")).expect("the folder") {
        bytes.extend(fs::read(entry.expect("an entry").path()).expect("a file"));
    }
    let text = String::from_utf8_lossy(&bytes);
    for word in ["linux", "deadline", "nvme", "sata", "/dev/", "sim:"] {
        assert!(!text.contains(word), "`{word}` is in the store");
    }
    // And without --blind they are, so that the search would have found them.
    let open = run::resolve(
        &line.replace("--blind", "").split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        &World { variable: &|_| Some(directory.display().to_string()), ..World::empty() },
        &mut Problems::default(),
    );
    let Some(Request::Run(open)) = open else { panic!("{line} is refused") };
    assert_eq!(open.keep.as_ref().map(|keep| &keep.directory), Some(&directory));
    let store = Store::open(&directory).expect("a store");
    run::execute_into(&open, Some(&store), &|_, _| ());
    let shown = store.runs(&Filter { last: Some(2), ..Filter::default() }).expect("runs");
    let text = format!("{shown:?}");
    assert!(["linux-6.18", "deadline", "nvme", "sda"].iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn exports_have_what_the_store_has() {
    let folder = scratch("export");
    let store = Store::open(&folder.0.join("store")).expect("a store");
    let mut run = with_files(&store, new_run("a \"b\", c", 1));
    run.metrics.push(("iops".to_owned(), 1.0 / 3.0));
    let id = store.record(&run).expect("recorded");
    let runs = store.runs(&Filter::default()).expect("runs");
    let to = folder.0.join("csv");
    let exported = store.export(&runs, Format::Csv, &to).expect("files");
    assert_eq!((exported.runs, exported.files.len()), (1, 4));
    let read = |name: &str| fs::read_to_string(to.join(name)).expect(name);
    assert!(read("runs.csv").contains(&format!("{id},\"a \"\"b\"\", c\",dd if=a,sim:linux-6.18,true,")));
    assert_eq!(
        read("metrics.csv"),
        format!("run_id,metric,value\r\n{id},elapsed_s,2\r\n{id},iops,0.3333333333333333\r\n{id},odd_s,\r\n")
    );
    let samples = read(&format!("{id}-samples.csv"));
    let mut lines = samples.lines();
    assert_eq!(lines.next(), Some("source,t_ns,thread,file,op,bytes,latency_ns,weight"));
    assert_eq!(lines.next(), Some("call,0,,0,read,4096,11,1"));
    assert_eq!(lines.count(), 39);
    store.export(&runs, Format::Json, &to).expect("files");
    let json: Value = serde_json::from_str(&read("runs.json")).expect("JSON");
    assert_eq!((&json[0]["run_id"], &json[0]["metrics"]["odd_s"]), (&json!(id.0), &Value::Null));
    let events: Value = serde_json::from_str(&read(&format!("{id}-events.json"))).expect("JSON");
    assert_eq!(events.as_array().map(Vec::len), Some(80));
    assert_eq!(events[1]["kind"], "call_end");
}

#[test]
fn the_place_of_the_store_is_the_named_one_or_the_usual_one() {
    let of = |named: Option<&str>, variables: &[(&str, &str)]| {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        iowhy_lab::store::directory(named.map(Path::new), &variable).map(|path| path.display().to_string())
    };
    let all = [("IOWHY_STORE", "/a"), ("XDG_DATA_HOME", "/b"), ("HOME", "/c")];
    for (named, variables, expected) in [
        (Some("here"), &all[..], Some("here")),
        (None, &all[..], Some("/a")),
        (None, &all[1..], Some("/b/iowhy")),
        (None, &all[2..], Some("/c/.local/share/iowhy")),
        (None, &[("IOWHY_STORE", ""), ("XDG_DATA_HOME", "relative"), ("HOME", "/c")], Some("/c/.local/share/iowhy")),
        (None, &[], None),
    ] {
        assert_eq!(of(named, variables).as_deref(), expected, "{named:?} {variables:?}");
    }
}

/// Everything that can be asked of a store, as text; the error if there is one.
fn answers(directory: &Path) -> Result<String, StoreError> {
    let store = Store::open_existing(directory)?;
    let mut text = String::new();
    let runs = store.runs(&Filter::default())?;
    for run in &runs {
        text.push_str(&format!("{run:?}\n"));
        for file in &run.files {
            text.push_str(&format!("{:?}\n", store.rows(&file.hash)?));
        }
    }
    text.push_str(&format!("{:?}\n", store.latencies(&runs, 100)?));
    for label in ["a", "b", "mine"] {
        text.push_str(&format!("{:?}\n", store.find(label)?.iter().map(|run| &run.id).collect::<Vec<_>>()));
    }
    text.push_str(&format!("{:?}\n", store.calibrations("0123456789abcdef", "job")?));
    Ok(text)
}

/// A store with some of everything.
fn furnished(directory: &Path) -> Store {
    let store = Store::open(directory).expect("a store");
    for (nr, label) in (0..).zip(["a", "a", "b", "b", "b"]) {
        store.record(&with_files(&store, new_run(label, nr))).expect("recorded");
    }
    store.tag("b", "mine", false).expect("tagged");
    store
        .record_calibration("0123456789abcdef", &calibration("elapsed_s", 3), 7, &json!({ "runs": [1, 2] }))
        .expect("recorded");
    store
}

#[test]
fn flipped_bits_are_noticed_or_change_no_answer() {
    let flips: u64 = std::env::var("IOWHY_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(300);
    let whole = scratch("whole");
    drop(furnished(&whole.0));
    let expected = answers(&whole.0).expect("it is whole");
    let files: Vec<PathBuf> = fs::read_dir(whole.0.join("data"))
        .expect("data")
        .map(|entry| entry.expect("a file").path())
        .chain([whole.0.join("store.sqlite")])
        .collect();
    let mut rng = Rng::stream(17, "flips");
    let (mut noticed, mut without) = (0, 0);
    for nr in 0..flips {
        // The database, where most can go wrong, as often as all others.
        let path = if nr % 2 == 0 { &files[files.len() - 1] } else { &files[rng.below(files.len() as u64) as usize] };
        let bytes = fs::read(path).expect("a file");
        let (at, bit) = (rng.below(bytes.len() as u64) as usize, rng.below(8));
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        fs::write(path, &flipped).expect("written");
        let name = path.file_name().expect("a name").to_string_lossy();
        match answers(&whole.0) {
            Err(_) => noticed += 1,
            Ok(found) => {
                assert!(found == expected, "bit {bit} of byte {at} of {name} changes an answer");
                without += 1;
            }
        }
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(whole.0.join(format!("store.sqlite{end}")));
        }
        fs::write(path, &bytes).expect("written");
    }
    println!("{flips} flips: {noticed} noticed, {without} without effect");
    assert!(noticed > flips / 2);
}

#[test]
fn what_is_damaged_is_put_aside_and_the_rest_is_kept() {
    let folder = scratch("damaged");
    let store = furnished(&folder.0);
    let runs = store.runs(&Filter::default()).expect("runs");
    let broken_file = store.data_path(&runs[0].files[0].hash);
    drop(store);
    let database = Connection::open(folder.0.join("store.sqlite")).expect("a database");
    database.execute_batch("DROP TRIGGER metric_is_kept; UPDATE metric SET value = 99 WHERE run = 3").expect("changed");
    let trigger = "CREATE TRIGGER metric_is_kept BEFORE UPDATE ON metric BEGIN SELECT RAISE(ABORT, 'runs are never \
                   changed'); END";
    database.execute_batch(trigger).expect("as before");
    drop(database);
    let mut bytes = fs::read(&broken_file).expect("a file");
    bytes[100] ^= 4;
    fs::write(&broken_file, &bytes).expect("written");
    assert!(matches!(answers(&folder.0), Err(StoreError::Damaged { .. })));
    let open = || Store::open_unchecked(&folder.0).expect("it opens");
    let checked = open().check().expect("an answer");
    assert_eq!((checked.damage.len(), checked.repaired), (2, false), "{:#?}", checked.damage);
    assert!(open().repair().expect("repaired").repaired);
    let store = Store::open_existing(&folder.0).expect("it opens");
    let left = store.runs(&Filter::default()).expect("runs");
    assert_eq!(left.iter().map(|run| run.seed).collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert_eq!(store.find("mine").expect("the tag").len(), 2);
    assert!(store.calibrations("0123456789abcdef", "job").expect("kept").len() == 1);
    assert_eq!(fs::read_dir(folder.0.join("damaged")).expect("a folder").count(), 2);
}

#[test]
fn a_store_that_cannot_be_written_can_be_read() {
    let folder = scratch("read-only");
    drop(furnished(&folder.0));
    let expected = answers(&folder.0).expect("it is whole");
    // Root writes whatever the permissions say: only a mount keeps it from that.
    let mount = |flags: &[&str]| Command::new("mount").args(flags).arg(&folder.0).arg(&folder.0).status();
    if !mount(&["--bind"]).is_ok_and(|status| status.success()) {
        println!("skipped: a read-only mount needs root");
        return;
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }
    let mounted = Mounted(&folder.0);
    let read_only = Command::new("mount").args(["-o", "remount,ro,bind"]).arg(&folder.0).status();
    assert!(read_only.is_ok_and(|status| status.success()));
    assert_eq!(answers(&folder.0).expect("it can be read"), expected);
    let store = Store::open_existing(&folder.0).expect("it opens");
    assert!(store.record(&new_run("c", 9)).is_err());
    let here = scratch("here");
    assert_eq!(Store::open(&here.0).expect("a store").merge(&folder.0).expect("merged").runs, 5);
    drop((store, mounted));
    assert_eq!(answers(&folder.0).expect("it can be read"), expected);
}
