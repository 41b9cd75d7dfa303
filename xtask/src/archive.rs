//! `cargo xtask archive`: a benchmark of root causes, recordings with labels for any tool (`docs/archive.json`).
//!
//! ```text
//! recordings/NNNN/{a,b}K.parquet   both sides of a live case, in the form of `iowhy trace record`
//! store/                           those of simulated cases and guests, labels NNNN-a and NNNN-b, `iowhy store`
//! counters.json                    what `iostat -x` and pressure showed of either side
//! labels.json                      causes of the open split; those of the sealed third are in the file of `--seal`
//! answers/TOOL.jsonl               an answer for each case: {"case": "0001", "found": [RULE, ..], "confidence": 0.9}
//! README.md                        the data card
//! ```
//! Simulated cases are those of `cargo xtask plant`, live ones those of `plant --live`, guests are boots of a packaged
//! kernel. Answers here are those of `iowhy explain`, of thresholds, and of the metric that changed most. `--score`
//! takes anybody's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_lab::plant;
use iowhy_stats::share::interval;
use iowhy_why::certainty;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::plant_live::rivals::{self, METRICS, POINTS, Seen};
use crate::{Outcome, plant_live, release_binary, root};

/// Runs of each side of a simulated case.
const RUNS: u32 = 6;
/// And of a guest's.
const BOOTS: u32 = 3;
/// Plants whose other process would be a job of the workload itself.
const NEIGHBOUR: &str = "a neighbour";
/// One case of this many has a sealed label.
const SEALED: usize = 3;
/// Pairs on guests: words behind the kernel of one side, and rules that name what they change. Nothing: a healthy pair.
const GUESTS: [(&str, &[&str]); 4] = [
    (",read_ahead_kb=0", &["readahead-off", "window-too-small"]),
    (",read_ahead_kb=4", &["window-too-small", "readahead-off"]),
    ("", &[]),
    ("", &[]),
];
const GUEST_JOB: &str = "fio --name=r --rw=read --bs=16k --size=24m";

/// The true cause of a case.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Label {
    /// `simulated`, `live` or `guest`.
    origin: String,
    /// In words; `none` of a healthy pair.
    cause: String,
    /// Rules that name it; with two causes, those of either.
    right: Vec<String>,
    /// Rules that name its layer, or what came of it.
    half: Vec<String>,
}

/// What a tool says of a case, the most likely cause first.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Said {
    case: String,
    found: Vec<String>,
    /// Of the first, from 0 to 1.
    confidence: Option<f64>,
}

/// An archive in the making.
struct Archive {
    folder: PathBuf,
    binary: PathBuf,
    labels: BTreeMap<String, Label>,
    counters: BTreeMap<String, [Vec<f64>; 2]>,
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (mut folder, mut seal, mut guests, mut only) = (None, None, Vec::new(), Vec::new());
    let (mut seed, mut simulated, mut live, mut scored) = (1, 240, true, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().cloned().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("{word}: `{text}` is not a number"));
        match word.as_str() {
            "--seal" => seal = Some(PathBuf::from(next()?)),
            "--seed" => seed = u64::from(number(next()?)?),
            "--simulated" => simulated = number(next()?)?,
            "--guest" => guests = next()?.split(',').map(str::to_owned).collect::<Vec<_>>(),
            "--only" => only = next()?.split(',').map(str::to_owned).collect(),
            "--no-live" => live = false,
            "--score" => scored.push(PathBuf::from(next()?)),
            word if !word.starts_with('-') && folder.is_none() => folder = Some(PathBuf::from(word)),
            other => return Err(format!("unknown word `{other}`")),
        }
    }
    let folder = folder.ok_or("archive needs a folder")?;
    let seal = seal.ok_or("archive needs --seal FILE, for labels that are not in the folder")?;
    if !scored.is_empty() {
        let labels = read_labels(&folder.join("labels.json"))?.into_iter().chain(read_labels(&seal)?).collect();
        println!("{}", table(&labels, &scored)?);
        return Ok(());
    }
    if folder.exists() || seal.exists() {
        return Err(format!("{} or {} exists", folder.display(), seal.display()));
    }
    std::fs::create_dir_all(folder.join("answers")).map_err(|error| format!("{}: {error}", folder.display()))?;
    let folder = std::fs::canonicalize(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut archive = Archive { folder, binary: release_binary()?, labels: BTreeMap::new(), counters: BTreeMap::new() };
    archive.simulated(seed, simulated)?;
    for kernel in &guests {
        archive.guests(kernel)?;
    }
    if live {
        archive.live(seed, &only)?;
    }
    let answers = archive.answers()?;
    archive.keep(&seal)?;
    println!("{}", table(&archive.labels, &answers)?);
    Ok(())
}

impl Archive {
    fn name(&self) -> String {
        format!("{:04}", self.labels.len() + 1)
    }

    fn iowhy(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.stdin(Stdio::null()).current_dir(&self.folder).env("IOWHY_STORE", self.folder.join("store"));
        command
    }

    /// Runs and keeps the sides of a case, words of a command line each; their counters.
    fn sides(&self, name: &str, sides: [&str; 2]) -> Result<[Vec<f64>; 2], String> {
        let mut counters = [Vec::new(), Vec::new()];
        for (nr, words) in sides.into_iter().enumerate() {
            let (label, seed) = (format!("{name}-{}", ["a", "b"][nr]), format!("--seed={}", 1 + 100 * nr));
            let mut command = self.iowhy();
            command.args(words.split_whitespace()).args(["--json", "--trace", "--blind", &seed]);
            let said = json_of(command.arg(format!("--label={label}")), &[0])?;
            counters[nr] = seen(&said["runs"][0]).0.to_vec();
        }
        Ok(counters)
    }

    fn add(&mut self, name: String, label: Label, counters: [Vec<f64>; 2]) {
        self.labels.insert(name.clone(), label);
        self.counters.insert(name, counters);
    }

    fn simulated(&mut self, seed: u64, count: u32) -> Outcome {
        for nr in 0..count {
            let Some(case) = plant::one(seed, nr) else { continue };
            // Other verbs keep nothing.
            let kept = case.lines.iter().all(|line| line.starts_with("run "));
            if !kept || case.plants.iter().any(|plant| plant.name.starts_with(NEIGHBOUR)) {
                continue;
            }
            let name = self.name();
            let lines = case.lines.map(|line| format!("{line} --runs={RUNS}"));
            let counters = self.sides(&name, [&lines[0], &lines[1]])?;
            let right = case.plants.iter().flat_map(|plant| plant.expected).map(|rule| (*rule).to_owned()).collect();
            let causes: Vec<&str> = case.plants.iter().map(|plant| plant.name).collect();
            let cause = if causes.is_empty() { "none".to_owned() } else { causes.join(" + ") };
            self.add(name, Label { origin: "simulated".to_owned(), cause, right, half: Vec::new() }, counters);
            if nr % 20 == 19 {
                eprintln!("simulated: {} of {count}", nr + 1);
            }
        }
        Ok(())
    }

    fn guests(&mut self, kernel: &str) -> Outcome {
        for (more, right) in GUESTS {
            let name = self.name();
            let place = |more: &&str| format!("--on=kernel:{kernel}{more} --disk=sata-2014 --runs={BOOTS}");
            let lines = ["", more].map(|more| format!("run {GUEST_JOB} {}", place(&more)));
            let counters = match self.sides(&name, [&lines[0], &lines[1]]) {
                Ok(counters) => counters,
                // An emulated machine may hang. The next case takes the name.
                Err(error) => {
                    eprintln!("{name} is left out: {error}");
                    for side in ["a", "b"] {
                        let mut remove = self.iowhy();
                        remove
                            .args(["store", "rm", &format!("{name}-{side}")])
                            .output()
                            .map_err(|it| it.to_string())?;
                    }
                    continue;
                }
            };
            let cause = if right.is_empty() { "none" } else { more.trim_start_matches(',') }.to_owned();
            let right = right.iter().map(|rule| (*rule).to_owned()).collect();
            self.add(name, Label { origin: "guest".to_owned(), cause, right, half: Vec::new() }, counters);
        }
        Ok(())
    }

    fn live(&mut self, seed: u64, only: &[String]) -> Outcome {
        let made = self.folder.join("made");
        for kept in plant_live::kept(seed, only, &made)? {
            let name = self.name();
            let folder = self.folder.join("recordings").join(&name);
            let failed = |error| format!("{}: {error}", folder.display());
            std::fs::create_dir_all(&folder).map_err(failed)?;
            for path in kept.recorded.files.iter().flatten() {
                std::fs::rename(path, folder.join(path.file_name().unwrap_or_default())).map_err(failed)?;
            }
            let counters = kept.recorded.seen.map(|seen| seen.map_or_else(Vec::new, |seen| seen.0.to_vec()));
            let cause = if kept.right.is_empty() { "none".to_owned() } else { kept.cause };
            self.add(name, Label { origin: "live".to_owned(), cause, right: kept.right, half: kept.half }, counters);
        }
        std::fs::remove_dir_all(&made).map_err(|error| format!("{}: {error}", made.display()))
    }

    /// The words that name a side's recordings.
    fn recordings(&self, name: &str, side: &str) -> String {
        let folder = self.folder.join("recordings").join(name);
        let of_side = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(side));
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.retain(of_side);
        files.sort();
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        if files.is_empty() { format!("{name}-{side}") } else { files.join(",") }
    }

    /// Answers of the three tools, a file each.
    fn answers(&self) -> Result<Vec<PathBuf>, String> {
        let mut lines = [String::new(), String::new(), String::new()];
        for name in self.labels.keys() {
            let mut explain = self.iowhy();
            let sides = ["a", "b"].map(|side| self.recordings(name, side));
            let said = json_of(explain.arg("explain").args(sides).arg("--json"), &[0, 1, 3])?;
            let findings = said["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
            let found = findings.iter().filter_map(|of| of["rule"].as_str()).map(str::to_owned).collect();
            let confidence = findings.first().and_then(|of| of["confidence"].as_f64());
            let [a, b] = self.counters[name].each_ref().map(|of| Seen(array(of)));
            // Without a verdict nobody knows which side is the slow one: the one whose device is busier, or b.
            let (fast, slow) = if a.0[8] > b.0[8] { (b, a) } else { (a, b) };
            let only = |rule: Option<&str>| rule.map(str::to_owned).into_iter().collect();
            let answers = [
                Said { case: name.clone(), found, confidence },
                Said { case: name.clone(), found: only(rivals::thresholds(&slow)), confidence: None },
                Said { case: name.clone(), found: only(Some(rivals::changed(&fast, &slow))), confidence: None },
            ];
            for (lines, said) in lines.iter_mut().zip(answers) {
                let _ = writeln!(lines, "{}", json!(said));
            }
        }
        let mut paths = Vec::new();
        for (tool, lines) in ["iowhy", "thresholds", "changed-metrics"].into_iter().zip(lines) {
            let path = self.folder.join("answers").join(format!("{tool}.jsonl"));
            write(&path, &lines)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Labels, the data card, and the manifest in the repository.
    fn keep(&self, seal: &Path) -> Outcome {
        let (mut open, mut sealed) = (BTreeMap::new(), BTreeMap::new());
        for (nr, (name, label)) in self.labels.iter().enumerate() {
            if nr % SEALED == SEALED - 1 { &mut sealed } else { &mut open }.insert(name, label);
        }
        write(&self.folder.join("labels.json"), &format!("{:#}\n", json!(open)))?;
        let names: Vec<&str> = POINTS.iter().map(|(name, ..)| *name).collect();
        write(&self.folder.join("counters.json"), &format!("{}\n", json!({"metrics": names, "cases": self.counters})))?;
        let secret = format!("{:#}\n", json!(sealed));
        write(seal, &secret)?;
        let of = |holds: &dyn Fn(&Label) -> bool| self.labels.values().filter(|label| holds(label)).count();
        let card = card(&[
            ("cases", self.labels.len()),
            ("simulated", of(&|label| label.origin == "simulated")),
            ("live", of(&|label| label.origin == "live")),
            ("guest", of(&|label| label.origin == "guest")),
            ("healthy", of(&|label| label.right.is_empty())),
            ("sealed", sealed.len()),
        ]);
        write(&self.folder.join("README.md"), &card)?;
        let mut files = Vec::new();
        hashes(&self.folder, &self.folder, &mut files)?;
        let manifest = json!({
            "cases": self.labels.len(),
            "sealed_labels_blake3": blake3::hash(secret.as_bytes()).to_hex().as_str(),
            "files": files.into_iter().collect::<BTreeMap<_, _>>(),
        });
        let manifest = format!("{manifest:#}\n");
        write(&self.folder.join("manifest.json"), &manifest)?;
        write(&root().join("docs/archive.json"), &manifest)
    }
}

/// The data card with its numbers.
fn card(numbers: &[(&str, usize)]) -> String {
    let fill = |text: String, (name, number): &(&str, usize)| text.replace(&format!("{{{name}}}"), &number.to_string());
    numbers.iter().fold(include_str!("archive/card.md").to_owned(), fill)
}

/// The columns of `iostat -x` of a run; pressure is not simulated.
fn seen(run: &Value) -> Seen {
    let device = &run["layers"]["iostat"][0];
    let number = |of: &Value| of.as_f64().unwrap_or(0.0);
    let kbytes = number(&device["rkB/s"]) + number(&device["wkB/s"]);
    let of = |name: &str| match name {
        "kB/s" => kbytes,
        "%util" => number(&device["util"]),
        "cpu" => number(&run["metrics"]["system_cpu_pct"]),
        name => number(&device[name]),
    };
    Seen(POINTS.map(|(name, ..)| of(name)))
}

fn array(of: &[f64]) -> [f64; METRICS] {
    std::array::from_fn(|nr| of.get(nr).copied().unwrap_or(0.0))
}

fn json_of(command: &mut Command, fine: &[i32]) -> Result<Value, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.code().is_some_and(|code| fine.contains(&code)) {
        return Err(format!("{command:?}: {}: {}{}", output.status, said.trim(), complaint.trim()));
    }
    // Without a document it has said that it cannot tell.
    Ok(serde_json::from_str(&said).unwrap_or_default())
}

fn write(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_labels(path: &Path) -> Result<BTreeMap<String, Label>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The hash of each file below a folder.
fn hashes(top: &Path, folder: &Path, found: &mut Vec<(String, String)>) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            hashes(top, &path, found)?;
        } else {
            let name = path.strip_prefix(top).unwrap_or(&path).display().to_string();
            let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            found.push((name, blake3::hash(&bytes).to_hex()[..16].to_owned()));
        }
    }
    Ok(())
}

/// How tools did, a row each.
fn table(labels: &BTreeMap<String, Label>, answers: &[PathBuf]) -> Result<String, String> {
    let mut out = "| tool | split | right | half | cannot tell | wrong | almost certain, right | healthy, accused |\n\
                   | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for path in answers {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut said = BTreeMap::new();
        for (nr, line) in text.lines().enumerate() {
            let answer: Said =
                serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", path.display(), nr + 1))?;
            said.insert(answer.case.clone(), answer);
        }
        let tool = path.file_stem().unwrap_or_default().to_string_lossy();
        for (split, sealed) in [("open", false), ("sealed", true)] {
            let of_split = labels.iter().enumerate().filter(|(nr, _)| (nr % SEALED == SEALED - 1) == sealed);
            let cases: Vec<(&Label, Said)> =
                of_split.map(|(_, (name, label))| (label, said.get(name).cloned().unwrap_or_default())).collect();
            let _ = writeln!(out, "| {tool} | {split} | {} |", cells(&cases).join(" | "));
        }
    }
    Ok(out)
}

fn cells(cases: &[(&Label, Said)]) -> [String; 6] {
    let share = |n: usize, all: usize| {
        let (low, high) = interval(n as f64, all as f64, 0.95);
        format!("{n} of {all} [{:.0} .. {:.0} %]", 100.0 * low, 100.0 * high)
    };
    let planted: Vec<&(&Label, Said)> = cases.iter().filter(|(label, _)| !label.right.is_empty()).collect();
    let first_in = |rules: &[String], said: &Said| said.found.first().is_some_and(|first| rules.contains(first));
    let right = |(label, said): &(&Label, Said)| first_in(&label.right, said);
    let half = |(label, said): &(&Label, Said)| !first_in(&label.right, said) && first_in(&label.half, said);
    let count = |holds: &dyn Fn(&(&Label, Said)) -> bool| planted.iter().filter(|case| holds(case)).count();
    let [right_first, halves, silent] = [count(&right), count(&half), count(&|(_, said)| said.found.is_empty())];
    let sure: Vec<&(&Label, Said)> = cases
        .iter()
        .filter(|(_, said)| said.confidence.is_some_and(|of| certainty::of(of).word == certainty::WORDS[0].word))
        .collect();
    let healthy: Vec<&(&Label, Said)> = cases.iter().filter(|(label, _)| label.right.is_empty()).collect();
    let all = planted.len();
    [
        share(right_first, all),
        share(halves, all),
        share(silent, all),
        share(all - right_first - halves - silent, all),
        share(sure.iter().filter(|case| right(case)).count(), sure.len()),
        share(healthy.iter().filter(|(_, said)| !said.found.is_empty()).count(), healthy.len()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_scored_by_their_first_cause() {
        let label = |right: &[&str], half: &[&str]| {
            let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
            Label { origin: "live".to_owned(), cause: "c".to_owned(), right: owned(right), half: owned(half) }
        };
        let said = |found: &[&str], confidence| Said {
            case: "1".to_owned(),
            found: found.iter().map(|rule| (*rule).to_owned()).collect(),
            confidence,
        };
        let (cause, nothing) = (label(&["x"], &["y"]), label(&[], &[]));
        let cells = cells(&[
            (&cause, said(&["x", "z"], Some(0.99))),
            (&cause, said(&["y"], Some(0.99))),
            (&cause, said(&[], None)),
            (&cause, said(&["z", "x"], Some(0.2))),
            (&nothing, said(&[], None)),
            (&nothing, said(&["x"], Some(0.3))),
        ]);
        let first = |cell: &String| cell.split(" [").next().unwrap_or_default().to_owned();
        let expected = ["1 of 4", "1 of 4", "1 of 4", "1 of 4", "1 of 2", "1 of 2"];
        assert_eq!(cells.each_ref().map(first), expected);
    }
}
