//! `iowhy report`: the five incidents, the stall of 2012 in the lanes, stored and hostile runs, files, mistakes.

use std::fs;
use std::path::Path;

use iowhy_lab::incident::{explained_rows, row};
use iowhy_lab::report::{MOST_BYTES, html};
use serde_json::Value;

use super::{Folder, check_schema, iowhy, json as json_of, refused, text as utf8};

impl Folder {
    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The page in a file, which has to be one of ours, and its data.
    fn page(&self, name: &str) -> (String, Value) {
        let page = fs::read_to_string(self.0.join(name)).expect("the file is there");
        let data = html::unpack(&page).expect("a report");
        (page, data)
    }
}

fn column(lane: &Value, name: &str) -> Vec<i64> {
    let column = lane[name].as_array().unwrap_or_else(|| panic!("no column {name}"));
    column.iter().map(|value| value.as_i64().expect("a number")).collect()
}

/// What every report has to be, whatever it is of.
fn check(data: &Value, what: &str) {
    check_schema("report", data);
    check_schema("explain", &data["explanation"]);
    if !data["comparison"].is_null() {
        check_schema("compare", &data["comparison"]);
    }
    let sides = data["sides"].as_array().expect("sides");
    assert_eq!(sides.len(), 2, "{what}");
    for side in sides {
        let line = &side["timeline"];
        let lanes = ["calls", "pages", "windows", "plugs", "requests"].map(|name| (name, &line[name]));
        for (name, lane) in lanes.into_iter().chain([("overview", &line["overview"])]) {
            let lane = lane.as_object().expect("columns");
            let lengths: Vec<usize> = lane.values().filter_map(|column| column.as_array().map(Vec::len)).collect();
            assert!(lengths.windows(2).all(|two| two[0] == two[1]), "{what}: {name}: {lengths:?}");
        }
        let calls = column(&line["calls"], "start").len() as i64;
        assert!(calls > 0, "{what}: no calls");
        for name in ["pages", "windows", "plugs", "requests"] {
            assert!(column(&line[name], "call").iter().all(|call| *call < calls), "{what}: {name}");
        }
        let files = line["files"].as_array().expect("files").len() as i64;
        for name in ["calls", "pages", "windows", "requests"] {
            assert!(column(&line[name], "file").iter().all(|file| *file < files), "{what}: {name}");
        }
        let detail = line["detail"].as_array().expect("parts");
        assert!(!detail.is_empty(), "{what}");
        for part in detail.windows(2) {
            assert!(part[0]["to_ns"].as_i64() <= part[1]["from_ns"].as_i64(), "{what}: {detail:?}");
        }
        assert!(side["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{what}");
        assert!(side["facts"].as_array().is_some_and(|facts| facts.len() > 20), "{what}");
        assert!(side["latency"].as_array().is_some_and(|ops| !ops.is_empty()), "{what}");
    }
    assert!(data["differences"].as_array().is_some_and(|keys| !keys.is_empty()), "{what}");
}

/// Keeps a report and what `--json` printed, for the tests in a browser.
fn keep(id: &str, page: &str, printed: &[u8]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(format!("{id}.html")), page).expect("the page is kept");
    fs::write(folder.join(format!("{id}.json")), printed).expect("its data is kept");
}

/// The report of an incident, made by the command; `code` is how it ends.
fn report_of(id: &str, options: &str, code: i32) -> Value {
    let folder = Folder::new(&format!("report-{id}"));
    let line = format!("report {id} {options} --json -o {}", folder.file("x.html"));
    let output = iowhy(&line);
    assert_eq!(output.status.code(), Some(code), "{line}\n{}", utf8(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (page, packed) = folder.page("x.html");
    assert!(page.len() <= MOST_BYTES, "{id}: {} bytes", page.len());
    assert_eq!(packed, printed, "{id}: the page has other data than the command prints");
    check(&printed, id);
    keep(id, &page, &output.stdout);
    printed
}

#[test]
fn the_read_split_of_2004_is_reported() {
    let data = report_of("2004-random-read-split", "--runs 1", 0);
    assert_eq!(data["headline"]["verdict"], "regression");
    // The broken kernel reads pages one at a time within calls of several.
    let side = &data["sides"][1]["timeline"];
    let single = side["window_kinds"].as_array().expect("kinds").iter().position(|kind| kind == "single");
    let kinds = column(&side["windows"], "kind");
    assert!(kinds.iter().filter(|kind| **kind == single.expect("a kind") as i64).count() > 100);
    assert!(side["first_difference"].is_u64());
}

#[test]
fn the_direct_writers_of_2010_are_reported() {
    // Too few runs to tell, on purpose: there is a report of that, too.
    let data = report_of("2010-cfq-direct-writers", "--runs 2", 3);
    assert_eq!(data["headline"]["verdict"], "inconclusive");
    let dirs = column(&data["sides"][1]["timeline"]["requests"], "dir");
    assert!(!dirs.is_empty() && dirs.iter().all(|dir| *dir == 1), "writers write");
}

#[test]
fn the_stale_pages_of_2012_are_on_the_map() {
    let data = report_of("2012-direct-io-stale-cache", "--runs 1", 0);
    for side in data["sides"].as_array().expect("sides") {
        let strips = &side["timeline"]["map"][0];
        let by = strips["by"].as_array().expect("names");
        let foreign =
            column(strips, "state").iter().zip(by).filter(|(state, by)| **state == 4 && by.is_string()).count();
        assert!(foreign > 0, "{}: nobody else's pages", side["label"]);
    }
}

#[test]
fn the_insertion_lists_of_2024_are_reported() {
    let data = report_of("2024-deadline-insertion-lists", "--runs 1", 0);
    assert_eq!(data["headline"]["verdict"], "regression");
    assert_eq!(data["explanation"]["findings"][0]["rule"], "merges-only-at-dispatch");
}

#[test]
fn the_poll_of_2025_is_reported() {
    let data = report_of("2025-fuse-ring-poll", "--runs 1", 0);
    assert_eq!(data["headline"]["verdict"], "regression");
    assert_eq!(data["explanation"]["findings"][0]["rule"], "calls-wait-in-submission");
}

#[test]
fn the_punted_calls_of_2025_are_reported() {
    let data = report_of("2025-uring-nowait", "--runs 1", 0);
    assert_eq!(data["headline"]["verdict"], "regression");
    assert_eq!(data["explanation"]["findings"][0]["rule"], "calls-to-workers");
}

#[test]
fn the_fsyncs_of_2023_are_reported() {
    let data = report_of("2023-fsyncs-share-less", "--runs 1", 0);
    assert_eq!(data["headline"]["verdict"], "regression");
    assert_eq!(data["explanation"]["findings"][0]["rule"], "syncs-share-less");
}

/// Requests that are held in a plug for long while the device has nothing to do, and requests in all.
fn held(side: &Value) -> (usize, usize) {
    let requests = &side["timeline"]["requests"];
    let held: Vec<i64> = column(requests, "i").iter().zip(column(requests, "g")).map(|(i, g)| i - g).collect();
    (held.iter().filter(|ns| **ns > 50_000).count(), held.len())
}

#[test]
fn the_plug_of_2012_holds_requests_between_windows_and_the_kernel_before_does_not() {
    let id = "2012-plugged-readahead";
    let data = report_of(id, "--runs 1 --prove", 0);
    let [fixed, broken] = [&data["sides"][0], &data["sides"][1]];
    let ((none, all), (many, of)) = (held(fixed), held(broken));
    assert!(none == 0 && all > 100, "{none} of {all} requests are held before");
    assert!(many * 4 > of && of > 100, "{many} of {of} requests are held");
    // A plug that is held is still there when the next window is decided.
    let across = |side: &Value| {
        let (plugs, at) = (&side["timeline"]["plugs"], column(&side["timeline"]["windows"], "at"));
        let spans = column(plugs, "start").into_iter().zip(column(plugs, "end"));
        spans.filter(|(start, end)| at.iter().any(|at| start <= at && at < end)).count()
    };
    let plugs = across(broken);
    assert!(plugs * 10 > of && across(fixed) == 0, "{plugs} and {} plugs last over a window", across(fixed));
    let starved = |side: &Value| -> f64 {
        let view = &side["timeline"]["overview"]["starved"];
        view.as_array().expect("shares").iter().filter_map(Value::as_f64).sum()
    };
    assert!(starved(broken) > 10.0 * starved(fixed) + 0.1, "{} and {}", starved(broken), starved(fixed));
    assert_eq!(data["explanation"]["findings"][0]["rule"], "plug-around-read");
    let proof = &data["explanation"]["findings"][0]["counterfactual"]["setting"];
    assert!(proof.is_string(), "not proved");
    assert!(data["headline"]["why"].as_str().is_some_and(|why| why.contains("Confirmed:")));
    let shift = data["shift"][0]["shift_ns"].as_array().expect("shifts");
    assert!(shift[shift.len() / 2].as_f64() > Some(1e6), "{shift:?}");
    // The words at the top are those of the explanation.
    let explained = utf8(&iowhy(&format!("explain {id} --runs 1")).stdout).replace('\n', " ");
    let sentence = data["headline"]["sentence"].as_str().expect("a sentence");
    assert!(explained.contains(sentence), "{sentence}\n{explained}");
}

#[test]
fn the_idling_of_2018_is_reported() {
    let id = "2018-readahead-window";
    let commands = explained_rows(id).expect("rows").map(|name| row(id, &name).expect("a row").command);
    // An unoptimised build has no time for the whole job.
    let part = |command: &str| -> [String; 3] {
        let command = command.replace("size=687m", "size=16m");
        let (job, rest) = command.strip_prefix("run ").and_then(|line| line.split_once(" --on ")).expect("a place");
        let (place, disk) = rest.split_once(" --disk ").expect("a disk");
        [job, place, disk].map(str::to_owned)
    };
    let [[job, a, disk], [other, b, _]] = commands.each_ref().map(|command| part(command));
    assert_eq!(job, other);
    let folder = Folder::new("report-2018");
    let line = format!("report {a} {b} --disk {disk} --runs 2 -o {} --json -- {job}", folder.file("x.html"));
    let output = iowhy(&line);
    let data: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check(&data, id);
    let (page, packed) = folder.page("x.html");
    assert_eq!(packed, data);
    keep(id, &page, &output.stdout);
    let threads = column(&data["sides"][1]["timeline"]["calls"], "thread");
    assert_eq!(threads.iter().max(), Some(&2), "three readers");
}

#[test]
fn an_incident_writes_a_report_as_well() {
    let folder = Folder::new("report-incident");
    let file = folder.file("x.html");
    let line = format!("incident 2012-plugged-readahead --seeds 1 --report {file}");
    let output = iowhy(&line);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", utf8(&output.stderr));
    assert!(!output.stdout.is_empty());
    let (_, data) = folder.page("x.html");
    check(&data, "incident");
    assert!(data["explanation"]["findings"][0]["counterfactual"].is_object(), "it is proved");
    let told = |key: &str| data["incident"][key].as_array().map_or(0, Vec::len);
    assert!(told("rows") > 2 && told("claims") > 2 && told("assumptions") > 2, "{}", data["incident"]);
    assert!(data["incident"]["unexplained"].as_str().is_some_and(|text| text.len() > 100));
    for which in ["all", "list"] {
        let message = refused(&format!("incident {which} --report {file}"));
        assert!(message.contains("a report is of one incident"), "{message}");
    }
}

const JOB: &str = "dd if=/dev/sda bs=64k count=400";

#[test]
fn stored_runs_are_reported_with_their_history_and_hostile_labels_are_text() {
    let folder = Folder::new("report-stored");
    let store = folder.file("store");
    let hostile = "<script>alert(1)</script>\"'&\u{202e}";
    for nr in 0..4 {
        for (label, place) in [(hostile, "sim:linux-4.4"), ("other", "sim:linux-4.4,read_ahead_kb=16")] {
            let seed = nr + 1;
            let line = format!("run {JOB} --on {place} --trace --label {label} --seed {seed} --store {store} --json");
            json_of(&line);
        }
    }
    let file = folder.file("x.html");
    let line = format!("report {hostile} other --store {store} -o {file} --json");
    let printed = json_of(&line);
    check(&printed, "stored");
    assert!(printed["comparison"].is_object());
    assert_eq!(printed["sides"][0]["label"], hostile);
    let keys = printed["differences"].as_array().expect("keys").iter();
    assert!(keys.clone().any(|of| of["key"] == "read_ahead_kb" && of["b"] == "16"), "{}", printed["differences"]);
    let values = |series: &Value| series["value"].as_array().map(Vec::len);
    let series = &printed["history"]["series"][0];
    assert_eq!((values(series), series["at"].as_array().map(Vec::len)), (Some(4), Some(4)), "{series}");
    let (page, data) = folder.page("x.html");
    assert_eq!(data, printed);
    assert!(!page.contains("<script>alert"), "a label became markup");
    let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).expect("a title").0;
    assert!(title.contains("&lt;script&gt;alert(1)") && !title.contains('\u{202e}'), "{title}");
    // A blind run says nothing of its kernel, and is shown all the same.
    json_of(&format!("run {JOB} --on sim:linux-4.4 --trace --blind --label blind --store {store} --json"));
    let blind = iowhy(&format!("report blind other --store {store} --json"));
    let blind: Value = serde_json::from_slice(&blind.stdout).expect("JSON");
    check_schema("report", &blind);
    assert!(blind["sides"][0]["command"].is_null());
    let facts = blind["sides"][0]["facts"].to_string();
    assert!(!facts.contains("linux"), "{facts}");
}

#[test]
fn files_that_are_no_reports_are_kept_and_mistakes_are_told() {
    let folder = Folder::new("report-files");
    let (mine, theirs) = (folder.file("mine.html"), folder.file("theirs.html"));
    fs::write(&theirs, "a letter").expect("a file");
    let sides = "sim:linux-2.6.38 sim:linux-2.6.39 --runs 1";
    let job = "-- dd if=/dev/sda bs=1M count=20";
    let made = |file: &str, more: &str| iowhy(&format!("report {sides} -o {file} {more} {job}"));
    let message = refused(&format!("report {sides} -o {theirs} {job}"));
    assert!(message.contains("no run of iowhy made it") && message.contains("--allow-write="), "{message}");
    assert_eq!(fs::read_to_string(&theirs).expect("it is there"), "a letter");
    // Ours is written again; theirs if that is what is wanted.
    for (file, more) in [(&mine, ""), (&mine, ""), (&theirs, "--force")] {
        let output = made(file, more);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", utf8(&output.stderr));
        assert!(utf8(&output.stdout).contains("KiB"), "{}", utf8(&output.stdout));
    }
    let left: Vec<String> = fs::read_dir(&folder.0)
        .expect("a folder")
        .map(|file| file.expect("a file").path().display().to_string())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(folder.page("mine.html").0, folder.page("theirs.html").0);
    assert_eq!(utf8(&made("-", "").stdout), folder.page("mine.html").0);
    for (words, expected) in [
        (format!("report {sides} {job}"), &["-o why.html"][..]),
        (format!("report {sides} -o - --json {job}"), &["cannot both"]),
        (
            format!("report {sides} -o {}/nowhere/x.html {job}", folder.0.display()),
            &["cannot write", "No such file or directory"],
        ),
        (format!("report {sides} -o {} {job}", folder.0.display()), &["it is a folder"]),
        (format!("report sim:linux-4.5 sim:linux-4.44 -o {mine} {job}"), &["linux-4.5", "linux-4.44"]),
        (format!("report 2012-pluged-readahead -o {mine}"), &["unknown incident", "2012-plugged-readahead"]),
        (format!("report -o {mine}"), &["nothing to report on"]),
    ] {
        let message = refused(&words);
        for part in expected {
            assert!(message.contains(part), "{words}: no `{part}` in\n{message}");
        }
    }
}
