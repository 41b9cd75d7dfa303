//! `cargo xtask plant --live`: real programs on this machine are made slower on purpose, and `iowhy explain` is asked
//! why; next to them pairs of equal commands, for which it should not find anything.
//!
//! A case makes its ground, records both sides in turn, and hands the recordings over under neutral names; which side
//! is the slow one depends on the seed. All answers are written to a file before the labels are looked at. The wall
//! clock is taken by the recorded command itself, so that the tool's times are held to another clock.
//!
//! `--one-sided` hands over the slow side alone (see `alone.rs`).
//!
//! `--images` moves the files below loop devices to another place, perhaps a folder in memory if others use the disk;
//! `--keep` keeps the recordings, and `--table` takes another table than the built-in one.
//!
//! Needs root. Whatever is made (loop devices, file systems, modelled disks, control groups, settings) is undone at the
//! end, after an error and at ^C; the next run undoes what a killed one has left.

mod alone;
mod kinds;
mod page;
pub(crate) mod rivals;
mod score;
pub(crate) mod site;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use iowhy_lab::plant::page::LIVE_TABLE;
use iowhy_live::signal;
use iowhy_stack::rng::Rng;
use serde_json::{Value, json};

use crate::{Outcome, renew, root, target_folder};
use kinds::{Kind, Table};
use rivals::{Counters, Seen};
use score::{Label, Side};
use site::{Site, Variables};

/// The words of the command line.
struct Settings {
    seed: u64,
    only: Vec<String>,
    recordings: u32,
    json: bool,
    page: bool,
    binary: String,
    table: Option<String>,
    keep: Option<PathBuf>,
    images: Option<PathBuf>,
    one_sided: bool,
    /// `why --try`, too.
    try_it: bool,
    times: u32,
}

/// A case before it is asked about: its number says nothing.
struct Case<'t> {
    nr: usize,
    kind: &'t Kind,
    slow: Option<Side>,
}

/// Runs the cases and prints the score.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = settings(arguments)?;
    let table = Table::read(settings.table.as_deref())?;
    let (cases, skipped) = cases(&table, &settings)?;
    let started = Instant::now();
    let answers = target_folder().join(format!("plant-live-{}.jsonl", settings.seed));
    std::fs::create_dir_all(target_folder()).map_err(|error| format!("{}: {error}", target_folder().display()))?;
    let failure = |error: std::io::Error| format!("{}: {error}", answers.display());
    // A run that is interrupted keeps what it has.
    let mut file = std::fs::File::create(&answers).map_err(failure)?;
    let mut failed = Vec::new();
    let disturbed = {
        let _signals = signal::Guard::take();
        let site = Site::new(&settings.binary, settings.images.as_deref())?;
        for (n, case) in cases.iter().enumerate() {
            let from = Instant::now();
            match ask(&site, case, &settings) {
                Ok(mut answer) => {
                    answer["seconds"] = json!((from.elapsed().as_secs_f64() * 10.0).round() / 10.0);
                    writeln!(file, "{answer}").map_err(failure)?;
                }
                Err(error) if signal::raised() => return Err(format!("stopped: {error}")),
                Err(error) => {
                    eprintln!("FAILED {}: {error}", case.kind.name);
                    failed.push(json!({"name": case.kind.name, "error": error}));
                }
            }
            eprintln!("{} of {}: {:.1} s", n + 1, cases.len(), from.elapsed().as_secs_f64());
        }
        site.disturbed.get()
    };
    // Only now are the labels opened.
    let seconds = started.elapsed().as_secs();
    let text = std::fs::read_to_string(&answers).map_err(failure)?;
    let last =
        format!("{} failed, {} skipped, {disturbed} recordings disturbed, {seconds} s", failed.len(), skipped.len());
    if settings.one_sided {
        return alone::finish(&text, &cases, &settings, &last);
    }
    let labels: Vec<Label<'_>> =
        cases.iter().map(|case| Label { nr: case.nr, kind: case.kind, slow: case.slow }).collect();
    let score = score::score(&text, &labels)?;
    if settings.page {
        renew("RULES.md", LIVE_TABLE, &page::table(settings.seed, settings.recordings, &score))?;
    }
    if settings.json {
        let mut document = score.document(settings.seed);
        document["recordings"] = json!(settings.recordings);
        document["skipped"] = json!(skipped);
        document["failed"] = json!(failed);
        document["disturbed_recordings"] = json!(disturbed);
        document["seconds"] = json!(seconds);
        println!("{document:#}");
    } else {
        print!("{}", page::text(&score));
        println!("{last}");
    }
    Ok(())
}

/// A case with its label and both sides' recordings.
pub(crate) struct Kept {
    /// The kind's name and words.
    pub(crate) cause: String,
    /// Rules that name the cause, and those that name the layer; none of a healthy pair.
    pub(crate) right: Vec<String>,
    pub(crate) half: Vec<String>,
    pub(crate) recorded: Recorded,
}

/// What was recorded of the sides `a` and `b`.
pub(crate) struct Recorded {
    pub(crate) files: [Vec<PathBuf>; 2],
    /// Seconds by the command's own clock.
    walls: [Vec<f64>; 2],
    /// Counters of the last recording of each.
    pub(crate) seen: [Option<Seen>; 2],
}

/// Records all cases into `folder`, unasked. Those that fail are named and left out.
pub(crate) fn kept(seed: u64, only: &[String], folder: &Path) -> Result<Vec<Kept>, String> {
    let mut settings = settings(&[])?;
    (settings.seed, settings.only, settings.recordings) = (seed, only.to_vec(), 2);
    settings.keep = Some(folder.to_owned());
    let table = Table::read(None)?;
    let (cases, _) = cases(&table, &settings)?;
    let _signals = signal::Guard::take();
    let site = Site::new(&settings.binary, None)?;
    let mut kept = Vec::new();
    for case in &cases {
        let recorded = on_grounds(&site, case, |grounds| recorded(&site, case, &settings, grounds));
        let said = recorded.as_ref().map_or_else(String::as_str, |_| "kept");
        eprintln!("{} of {}: {said}", case.nr, cases.len());
        match recorded {
            Ok(recorded) => {
                let Kind { name, about, right, half, .. } = case.kind;
                let (right, half) = (right.clone(), half.clone());
                kept.push(Kept { cause: format!("{name}: {about}"), right, half, recorded });
            }
            Err(error) if signal::raised() => return Err(format!("stopped: {error}")),
            Err(_) => {}
        }
    }
    Ok(kept)
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let binary = root().join("target/release/iowhy").display().to_string();
    let mut settings = Settings {
        seed: 1,
        only: Vec::new(),
        recordings: 3,
        json: false,
        page: false,
        binary,
        table: None,
        keep: None,
        images: None,
        one_sided: false,
        try_it: false,
        times: 5,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = |what: &str| words.next().cloned().ok_or(format!("{word} needs {what}"));
        let number = |text: String| text.parse().map_err(|_| format!("{word}: `{text}` is not a number"));
        match word.as_str() {
            "--live" => {}
            "--one-sided" => settings.one_sided = true,
            "--try" => settings.try_it = true,
            "--times" => settings.times = u32::try_from(number(next("a number")?)?).unwrap_or(u32::MAX),
            "--seed" => settings.seed = number(next("a number")?)?,
            "--recordings" => settings.recordings = u32::try_from(number(next("a number")?)?).unwrap_or(u32::MAX),
            "--only" => settings.only = next("names")?.split(',').map(str::to_owned).collect(),
            "--json" => settings.json = true,
            "--page" => settings.page = true,
            "--binary" => settings.binary = next("a path")?,
            "--table" => settings.table = Some(next("a path")?),
            "--images" => settings.images = Some(next("a folder")?.into()),
            "--keep" => settings.keep = Some(next("a folder")?.into()),
            other => {
                return Err(format!(
                    "unknown word `{other}`: --live, --one-sided, --try, --times N, --seed S, --only NAME,.., \
                     --recordings N, --binary PATH, --table FILE, --images FOLDER, --keep FOLDER, --page, --json"
                ));
            }
        }
    }
    if settings.recordings == 0 || settings.recordings > 20 {
        return Err("--recordings: 1 to 20".to_owned());
    }
    let binary = std::fs::canonicalize(&settings.binary).map_err(|error| format!("{}: {error}", settings.binary))?;
    settings.binary = binary.display().to_string();
    Ok(settings)
}

/// All cases in an order that depends on the seed, and the names of kinds whose programs are missing.
fn cases<'t>(table: &'t Table, settings: &Settings) -> Result<(Vec<Case<'t>>, Vec<&'t str>), String> {
    let unknown: Vec<&str> =
        settings.only.iter().filter(|name| !table.all().any(|kind| kind.name == **name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(format!("no kind is called {}", unknown.join(", ")));
    }
    let mut rng = Rng::stream(settings.seed, "plant.live");
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for kind in table.all().filter(|kind| settings.only.is_empty() || settings.only.contains(&kind.name)) {
        if settings.one_sided && !kind.is_for_one_side() {
            continue;
        }
        if let Some(program) = kind.missing() {
            eprintln!("SKIPPED {}: {program} is not installed", kind.name);
            skipped.push(kind.name.as_str());
            continue;
        }
        let times = if settings.one_sided && !kind.is_healthy() { settings.times } else { kind.times };
        for _ in 0..times {
            let slow = (!kind.is_healthy()).then(|| if rng.below(2) == 0 { Side::A } else { Side::B });
            cases.push(Case { nr: 0, kind, slow });
        }
    }
    for last in (1..cases.len()).rev() {
        cases.swap(last, rng.below(last as u64 + 1) as usize);
    }
    cases.iter_mut().zip(1..).for_each(|(case, nr)| case.nr = nr);
    Ok((cases, skipped))
}

/// Makes one case and asks about it.
fn ask(site: &Site, case: &Case<'_>, settings: &Settings) -> Result<Value, String> {
    on_grounds(site, case, |grounds| {
        if settings.one_sided {
            return alone::ask(site, case, settings, grounds);
        }
        explained(settings, case.nr, &recorded(site, case, settings, grounds)?)
    })
}

/// Works on the grounds of a case, whose changes are undone whether that succeeds or not.
fn on_grounds<T>(
    site: &Site,
    case: &Case<'_>,
    work: impl FnOnce(&[Variables]) -> Result<T, String>,
) -> Result<T, String> {
    let mut grounds = Vec::new();
    let answer = made(site, case.kind, &mut grounds).and_then(|()| work(&grounds));
    let mut undone = Vec::new();
    for variables in &grounds {
        undone.push(site.step(&case.kind.teardown, variables, "undo.case"));
    }
    undone.push(site.undo("undo.recording"));
    undone.push(site.undo("undo.case"));
    let answer = answer?;
    undone.into_iter().collect::<Result<(), String>>()?;
    Ok(answer)
}

fn made(site: &Site, kind: &Kind, grounds: &mut Vec<Variables>) -> Result<(), String> {
    for (name, spec) in [("one", Some(&kind.ground)), ("two", kind.ground_b.as_ref())] {
        let Some(spec) = spec else { continue };
        let mut variables = site.ground(spec, name)?;
        site.step(&kind.setup, &variables, "undo.case")?;
        site.refresh(name, &mut variables)?;
        grounds.push(variables);
    }
    Ok(())
}

fn recorded(site: &Site, case: &Case<'_>, settings: &Settings, grounds: &[Variables]) -> Result<Recorded, String> {
    let folder = match &settings.keep {
        Some(keep) => keep.join(format!("{:03}", case.nr)),
        None => site.folder.join("recordings"),
    };
    let failed = |error| format!("{}: {error}", folder.display());
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let mut rng = Rng::stream(settings.seed, &format!("plant.live.{}", case.nr));
    let mut recorded = Recorded { files: Default::default(), walls: Default::default(), seen: [None; 2] };
    for turn in 0..settings.recordings {
        let first = rng.below(2) as usize;
        for side in [first, 1 - first] {
            let slow = case.slow.is_some_and(|slow| slow as usize == side);
            let path = folder.join(format!("{}{turn}.parquet", ["a", "b"][side]));
            let (wall, seen) = site.one(case.kind, slow, grounds, |run, variables| {
                let before = Counters::now(variables);
                let wall = site.record(&settings.binary, run, variables, &path)?;
                Ok((wall, Counters::now(variables).since(&before)))
            })?;
            recorded.walls[side].push(wall);
            recorded.seen[side] = Some(seen);
            recorded.files[side].push(path);
        }
    }
    Ok(recorded)
}

impl Site {
    /// One run of a side, with everything that belongs to it before, beside and after.
    fn one<T>(
        &self,
        kind: &Kind,
        slow: bool,
        grounds: &[Variables],
        mut work: impl FnMut(&str, &Variables) -> Result<T, String>,
    ) -> Result<T, String> {
        let variables = if slow { grounds.last() } else { grounds.first() }.ok_or("no ground")?;
        self.step(&kind.before, variables, "undo.recording")?;
        self.step(if slow { &kind.before_b } else { &kind.before_a }, variables, "undo.recording")?;
        self.calm()?;
        let both = self.beside(&kind.beside, variables)?;
        let more = if slow { self.beside(&kind.beside_b, variables)? } else { None };
        let run = match &kind.run_b {
            Some(run) if slow => run,
            _ => &kind.run,
        };
        let of = work(run, variables)?;
        drop((both, more));
        self.undo("undo.recording")?;
        Ok(of)
    }
}

/// The tool's answer, with the walls and without any label.
fn explained(settings: &Settings, nr: usize, recorded: &Recorded) -> Result<Value, String> {
    let [a, b] = recorded.files.each_ref().map(|files| {
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        files.join(",")
    });
    let output = std::process::Command::new(&settings.binary)
        .args(["explain", &a, &b, "--json"])
        .output()
        .map_err(|error| format!("{}: {error}", settings.binary))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let document: Value = match serde_json::from_str(&said) {
        Ok(document) => document,
        // Without a document it has said that it cannot tell, and nothing else.
        Err(_) if output.status.code() == Some(3) => json!({"verdict": "inconclusive"}),
        Err(error) => return Err(format!("explain: {error}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    };
    Ok(json!({
        "case": nr,
        "exit": output.status.code(),
        "wall_a_s": recorded.walls[0],
        "wall_b_s": recorded.walls[1],
        "answer": document,
    }))
}
