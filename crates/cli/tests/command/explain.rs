//! `iowhy explain`: the five incidents with their proofs and texts, stored and blind runs, traces, modes, mistakes.

use std::fs;
use std::process::Command;

use iowhy_compare::text::Style;
use iowhy_lab::explain::gathered::Gathered;
use iowhy_lab::explain::source::{ExplainRequest, Simulated, gather};
use iowhy_lab::explain::{advice, prove};
use iowhy_lab::incident::command::plan_of_command;
use iowhy_lab::incident::{explained_rows, row};
use iowhy_lab::report::{first_screen, glance, text};
use iowhy_lab::store::StoreError;
use iowhy_text::columns;
use iowhy_why::{self as explain, json};
use serde_json::Value;

use super::{Folder, check_schema, iowhy, is_fresh, json as json_of, refused, root, text as utf8};

/// What a publication says that its fix removed.
enum Fix {
    /// Three published rows: before, broken, repaired.
    Rows([&'static str; 3]),
    /// There is no row that is repaired and not one of the two that are explained: the whole difference.
    Whole,
}

/// An incident with its published cause.
struct Incident {
    id: &'static str,
    /// Runs of each side.
    runs: u32,
    /// A word of its commands, and what stands in its place here: an unoptimised build has no time for the whole job.
    smaller: Option<[&'static str; 2]>,
    cause: &'static str,
    fix: Fix,
}

const INCIDENTS: &[Incident] = &[
    Incident {
        id: "2004-random-read-split",
        runs: 2,
        smaller: None,
        cause: "shared-readahead-state",
        fix: Fix::Rows(["nick-2.4.24", "nick-mm1", "nick-populate"]),
    },
    Incident { id: "2010-cfq-direct-writers", runs: 32, smaller: None, cause: "async-queue-per-task", fix: Fix::Whole },
    Incident {
        id: "2012-direct-io-stale-cache",
        runs: 2,
        smaller: None,
        cause: "stale-pages-under-direct-io",
        fix: Fix::Whole,
    },
    Incident { id: "2012-plugged-readahead", runs: 2, smaller: None, cause: "plug-around-read", fix: Fix::Whole },
    Incident {
        id: "2018-readahead-window",
        runs: 16,
        smaller: Some(["size=687m", "size=32m"]),
        cause: "idling-for-the-wrong-reader",
        fix: Fix::Whole,
    },
];

/// Simulates both rows of an incident.
fn sides(incident: &Incident) -> [Gathered; 2] {
    let Incident { id, runs, .. } = incident;
    let Some([word, other]) = incident.smaller else {
        let asked = ExplainRequest { names: vec![(*id).to_owned()], runs: Some(*runs), ..ExplainRequest::default() };
        let sides = gather(&asked, &|| Err(StoreError::NoPlace), &|_, _| {});
        return sides.unwrap_or_else(|problems| panic!("{id}: {}", problems.render()));
    };
    explained_rows(id).expect("two rows").map(|name| {
        let whole = row(id, &name).expect("a row").command;
        assert!(whole.contains(word), "{whole}");
        let command = whole.replace(word, other);
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{id}: {}", problems.render()));
        Simulated { label: name, command, plan, runs: *runs, assumed: Vec::new() }.make(false, &|| {}).expect("it runs")
    })
}

/// The share of the change that the repair of a publication has to remove here, percent: nine tenths of what it removed
/// there.
fn wanted_pct(id: &str, fix: &Fix) -> f64 {
    let Fix::Rows(rows) = fix else { return 90.0 };
    let path = root().join(format!("crates/lab/incidents/{id}.toml"));
    let published = fs::read_to_string(path).expect("the publication is there");
    let value = |row: &str| -> f64 {
        let (_, rest) = published.split_once(&format!("id = \"{row}\"")).unwrap_or_else(|| panic!("no row {row}"));
        let line = rest.lines().find_map(|line| line.strip_prefix("value = ")).expect("a value");
        line.trim().parse().expect("a number")
    };
    let [before, broken, repaired] = rows.map(value);
    90.0 * (broken - repaired) / (broken - before)
}

#[test]
fn figures_of_publications_are_read_rightly() {
    let wanted = wanted_pct(INCIDENTS[0].id, &INCIDENTS[0].fix);
    assert!((wanted - 78.0).abs() < 1e-9, "{wanted}");
}

/// `IOWHY_REWRITE=1 cargo test -p iowhy fresh` writes the texts anew.
#[test]
fn incidents_have_their_published_cause_a_proof_and_a_fresh_text() {
    let mut wrong = Vec::new();
    for incident in INCIDENTS {
        let Incident { id, cause, fix, .. } = incident;
        let sides = sides(incident);
        let mut explanation = explain::explain(&sides[0].side, &sides[1].side, None);
        advice::notes(&mut explanation, &sides);
        prove::prove(&mut explanation, &sides, &|| {});
        advice::advise(&mut explanation, &sides);
        check_schema("explain", &json::explain(&explanation));
        let style = |verbose| Style { colour: false, verbose };
        let first = first_screen(&sides, &explanation);
        let screen = text::text(&explanation, &first, None, style(false));
        assert!(screen.lines().count() <= text::SCREEN, "{id}: more than a screen:\n{screen}");
        for line in ["Cause ", "Proof ", "Assumed ", "What to do "] {
            assert!(screen.lines().any(|shown| shown.starts_with(line)), "{id}: no {line}in\n{screen}");
        }
        let shown = text::text(&explanation, &first, Some(&glance::of(&sides)), style(true));
        let narrow = shown.lines().all(|line| columns(line) <= 80 && line.trim_end() == line);
        assert!(narrow, "wider than 80 columns, or blanks at the end of a line:\n{shown}");
        is_fresh(&root().join(format!("crates/cli/tests/command/explained/{id}.txt")), &shown);
        let Some(first) = explanation.findings.first().filter(|first| first.rule.name == *cause) else {
            wrong.push(format!("{id}: the first finding is not {cause}\n{shown}"));
            continue;
        };
        let wanted = wanted_pct(id, fix);
        let removed = first.counterfactual.as_ref().map_or(0.0, |of| of.gone_pct);
        if removed < wanted {
            wrong.push(format!("{id}: {removed:.1} % of the change is removed, {wanted:.1} % are asked for\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The command says what the library says, in both forms.
#[test]
fn the_command_prints_the_explanation_of_an_incident() {
    let Incident { id, runs, cause, .. } = &INCIDENTS[3];
    let line = format!("explain {id} --prove --runs {runs}");
    let shown = utf8(&iowhy(&format!("{line} --verbose")).stdout);
    let screen = utf8(&iowhy(&line).stdout);
    let kept = root().join(format!("crates/cli/tests/command/explained/{id}.txt"));
    assert_eq!(shown, fs::read_to_string(kept).expect("the text is there"));
    // The guide shows it with parts left out.
    let page = fs::read_to_string(root().join("docs/guide/src/tour.md")).expect("the page is there");
    let (_, rest) = page.split_once(&format!("$ iowhy explain {id} --prove\n")).expect("the page shows it");
    let (block, _) = rest.split_once("```").expect("the block ends");
    for part in block.lines().filter(|part| part.trim() != "...") {
        assert!(
            shown.lines().chain(screen.lines()).any(|line| line == part),
            "tour.md shows what is not in {id}.txt: {part}"
        );
    }
    let value = json_of(&format!("{line} --json"));
    check_schema("explain", &value);
    assert_eq!(value["findings"][0]["rule"], *cause);
    // Both rows by name are the same as the incident.
    assert_eq!(json_of(&format!("explain {id}/2.6.38 {id}/2.6.39 --prove --runs {runs} --json")), value);
}

impl Folder {
    fn line(&self, line: &str) -> String {
        format!("{line} --store {}", self.0.display())
    }
}

const JOB: &str = "dd if=/dev/sda bs=1M count=48 pause_us=1000 pause_calls=16 \
                   --disk ssd-sata-2011,idle_threshold_us=200,idle_exit_us=6000";
const BASE: &str = "sim:linux-2.6.38,machine=laptop-2011";
const CANDIDATE: &str = "sim:linux-2.6.39,machine=laptop-2011";

#[test]
fn blind_runs_of_the_store_are_explained_as_the_others_are() {
    let folder = Folder::new("explain-blind");
    // A label of each place, since a blind run does not say where it was.
    for blind in ["", "--blind"] {
        for (label, place) in [("before", BASE), ("after", CANDIDATE)] {
            let line = format!("run {JOB} --on {place} --repeat 5 --trace --label {label}{blind} {blind} --json");
            json_of(&folder.line(&line));
        }
    }
    let seen = json_of(&folder.line("explain before after --json"));
    check_schema("explain", &seen);
    check_schema("compare", &seen["comparison"]);
    assert_eq!(seen["findings"][0]["rule"], "plug-around-read");
    assert_eq!((&seen["runs_a"], &seen["runs_b"]), (&Value::from(5), &Value::from(5)));
    let mut blind = json_of(&folder.line("explain before--blind after--blind --json"));
    check_schema("explain", &blind);
    for name in ["findings", "layers", "verdict", "because", "unexplained_pct"] {
        assert_eq!(blind[name], seen[name], "{name}");
    }
    // What is proved needs to know what was run; blind runs stay without.
    let proved = json_of(&folder.line("explain before after --prove --json"));
    assert!(proved["findings"][0]["counterfactual"]["setting"].is_string(), "{}", proved["findings"][0]);
    blind = json_of(&folder.line("explain before--blind after--blind --prove --json"));
    assert!(blind["findings"][0]["counterfactual"].is_null());
    // The same pair as places, without a store.
    let places = json_of(&format!("explain {BASE} {CANDIDATE} --json {}", of_places()));
    assert_eq!(places["findings"][0]["rule"], "plug-around-read");
    assert!(places["comparison"].is_null());
    // A set against itself, and backwards.
    let same = json_of(&folder.line("explain before before --json"));
    assert_eq!((&same["verdict"], same["findings"].as_array().map(Vec::len)), (&Value::from("same"), Some(0)));
    let backwards = json_of(&folder.line("explain after before --json"));
    assert_eq!(backwards["verdict"], "improvement");
    assert_eq!(backwards["findings"][0]["rule"], "plug-around-read");
}

/// The options and the job, as places want them.
fn of_places() -> String {
    let (job, disk) = JOB.split_once(" --disk ").expect("a disk");
    format!("--disk {disk} -- {job}")
}

#[test]
fn modes_of_one_set_are_explained_and_one_mode_is_said_to_be_one() {
    let folder = Folder::new("explain-modes");
    for place in [BASE, CANDIDATE] {
        json_of(&folder.line(&format!("run {JOB} --on {place} --repeat 6 --trace --blind --label both --json")));
        json_of(&folder.line(&format!("run {JOB} --on {BASE} --repeat 4 --trace --blind --label one --json")));
    }
    let both = json_of(&folder.line("explain both --json"));
    check_schema("explain", &both);
    assert_eq!((&both["a"], &both["b"]), (&Value::from("both, fast mode"), &Value::from("both, slow mode")));
    assert_eq!((&both["runs_a"], &both["runs_b"]), (&Value::from(6), &Value::from(6)));
    assert_eq!(both["findings"][0]["rule"], "plug-around-read");
    let one = iowhy(&folder.line("explain one"));
    assert_eq!(one.status.code(), Some(0), "{}", utf8(&one.stderr));
    let shown = utf8(&one.stdout);
    assert!(shown.starts_with("`one` has one mode: an operation takes "), "{shown}");
    json_of(&folder.line(&format!("run {JOB} --on {BASE} --trace --label single --json")));
    let message = refused(&folder.line("explain single"));
    assert!(message.contains("`single` is a single run"), "{message}");
}

#[test]
fn a_difference_that_may_be_chance_is_not_explained() {
    // Places of one row differ from run to run more than the rows do, with so few runs.
    let output = iowhy("explain 2010-cfq-direct-writers --runs 2 --json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("explain", &value);
    assert_eq!((output.status.code(), &value["verdict"]), (Some(3), &Value::from("inconclusive")));
    assert_eq!(value["findings"].as_array().map(Vec::len), Some(0));
}

/// Reads of 4 KiB, one after the other and each `took_us` at the device, as blkparse prints them.
fn blkparse(took_us: u64) -> String {
    let (mut lines, mut ns, mut nr) = (String::new(), 0, 0);
    for read in 0..200u64 {
        let sector = read * 7_919 % 10_007 * 800;
        for (action, after_us) in [('Q', 5), ('G', 1), ('I', 1), ('D', 1), ('C', took_us + read % 7)] {
            ns += after_us * 1000;
            nr += 1;
            let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let who = if action == 'C' { "[0]" } else { "[dd]" };
            lines += &format!("  8,0    0 {nr:8} {whole:5}.{part:09} {:5}  {action}   R {sector} + 8 {who}\n", 700);
        }
    }
    lines
}

#[test]
fn traces_are_explained_without_a_store() {
    let folder = Folder::new("explain-traces");
    let file = |name: &str, took_us: u64| {
        let path = folder.0.join(name);
        fs::write(&path, blkparse(took_us)).expect("a file");
        path.display().to_string()
    };
    let (a, b) = (file("a.txt", 100), file("b.txt", 250));
    let value = json_of(&format!("explain {a} {b} --json"));
    check_schema("explain", &value);
    assert_eq!(value["verdict"], "regression");
    assert_eq!(value["findings"][0]["rule"], "device-latency", "{value:#}");
    assert!(value["comparison"].is_null());
    let warnings = value["warnings"].as_array().expect("warnings");
    for expected in ["single runs", "a run has no calls"] {
        assert!(warnings.iter().any(|warning| warning.to_string().contains(expected)), "{warnings:?}");
    }
    // Off a terminal there are no colours, whatever the environment says; requests alone have a timeline, too.
    let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
    let shown =
        command.args(["explain", "--verbose", &a, &b]).env_remove("NO_COLOR").output().expect("the command starts");
    let shown = utf8(&shown.stdout);
    assert!(!shown.contains('\u{1b}') && shown.lines().all(|line| columns(line) <= 80), "{shown}");
    for lane in ["   A  device    ▓", "   B  device    █", "   0: the run begins; requests: "] {
        assert!(shown.contains("How they begin\n") && shown.contains(lane), "no `{lane}` in\n{shown}");
    }
    // Single runs that do not differ may differ by chance; traces of a side may be several.
    assert_eq!(iowhy(&format!("explain {a} {a}")).status.code(), Some(3));
    let several = json_of(&format!("explain {a},{a} {b},{b},{b} --json"));
    assert_eq!((&several["runs_a"], &several["runs_b"]), (&Value::from(2), &Value::from(3)));
    assert_eq!(several["findings"][0]["rule"], "device-latency");
}

#[test]
fn mistakes_are_told_with_advice() {
    let folder = Folder::new("explain-mistakes");
    json_of(&folder.line(&format!("run {JOB} --on {BASE} --label plain --json")));
    json_of(&folder.line(&format!("run {JOB} --on {BASE} --label traced --trace --json")));
    for (words, expected) in [
        ("explain traced trased", &["trased", "traced"][..]),
        ("explain traced plain", &["without events", "--trace"]),
        ("explain 2012-pluged-readahead", &["unknown incident", "2012-plugged-readahead"]),
        ("explain 2012-plugged-readahead/2.6.40 traced", &["2.6.40", "2.6.39"]),
        ("explain sim:linux-4.4 traced", &["needs a job to run there"]),
        ("explain sim:linux-4.5 sim:linux-4.4", &["needs a job to run there"]),
        ("explain a b c", &["Usage"]),
        ("explain", &["nothing to explain"]),
        ("explain traced traced --runs 0", &["--runs"]),
    ] {
        let message = refused(&folder.line(words));
        for part in expected {
            assert!(message.contains(part), "{words}: no `{part}` in\n{message}");
        }
    }
    let message = refused(&format!("explain sim:linux-4.5 sim:linux-4.4 {}", of_places()));
    assert!(message.contains("unknown kernel `linux-4.5`") && message.contains("linux-4.4"), "{message}");
    let message = refused("explain sim:linux-4.4 sim:linux-6.1 -- ddd bs=1M count=4");
    assert!(message.contains("ddd"), "{message}");
    let message = refused("explain a b --store there-is-no-such-store");
    assert!(message.contains("there-is-no-such-store"), "{message}");
}
