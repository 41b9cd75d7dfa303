//! A folder of files with samples as one side: results of mmtests, bench-fio, asv, or of a script.
//!
//! Files are recognised by their contents; tables and lists of numbers, which anything may look like, by their names as
//! well. Each file is of something: what its path says without the parts that only count runs (`iter-3`, `run2`, `-1`
//! at the end). Files of the same thing are runs of it, in the order of time if all have one, else of their numbers.
//! Other things have their name and a slash before their metrics. Files whose jobs have other options are other things,
//! whatever their names say. A layout that a program always writes is a line of [`LAYOUTS`].
//!
//! Limits: of files without options (sysbench, asv), names alone say which are runs of one thing. mmtests: the folder
//! of one run (`work/log/NAME`), no compressed files.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{FORMATS, asv, csv, fio, numbers, together};
use iowhy_stats::metric::{Group, Metric};
use iowhy_text::diagnose::{Problem, Problems};

/// How a program lays out its files.
struct Layout {
    name: &'static str,
    /// Subject of a file, by the parts of its path, if it is one of this layout.
    thing: fn(&[&str]) -> Option<Vec<String>>,
}

/// Every layout; the first that knows a file counts.
const LAYOUTS: &[Layout] = &[
    // NAME/iter-0/TEST/logs/FILE, and before that TEST-NAME/noprofile/FILE.
    Layout {
        name: "mmtests",
        thing: |path| {
            let (file, folders) = path.split_last()?;
            const KEPT: [&str; 3] = ["logs", "noprofile", "fine-profile-timer"];
            let (_, tests) = folders.split_last().filter(|(last, _)| KEPT.contains(last))?;
            let tests = tests.iter().filter(|part| !part.starts_with("iter-")).map(|part| (*part).to_owned());
            Some(tests.chain([uncounted(stem(file)).to_owned()]).collect())
        },
    },
    // [DEVICE/BLOCK SIZE/]MODE-DEPTH-JOBS.json
    Layout {
        name: "bench-fio",
        thing: |path| {
            let stem = path.last()?.strip_suffix(".json")?;
            let mut parts = stem.split('-');
            let mode = parts.next()?;
            let numbers = parts.clone().count() == 2 && parts.all(|part| part.parse::<u32>().is_ok());
            let (_, folders) = path.split_last()?;
            let known = MODES.contains(&mode) && numbers;
            known.then(|| folders.iter().chain([&stem]).map(|part| (*part).to_owned()).collect())
        },
    },
];

/// Directions as fio has them.
const MODES: [&str; 9] = ["read", "write", "randread", "randwrite", "rw", "readwrite", "randrw", "trim", "randtrim"];

/// A file in a folder.
pub struct File {
    /// Its path from there, with slashes.
    pub path: String,
    /// Its text, or why it has none.
    pub text: Result<String, String>,
}

/// A file's samples.
struct Taken {
    path: String,
    format: &'static str,
    layout: Option<&'static str>,
    thing: Vec<String>,
    group: Group,
}

/// Whether a file of this name is worth reading: not those of programs whose output has no samples.
///
/// # Errors
/// Why not.
pub fn worth(name: &str) -> Result<(), &'static str> {
    let log = name.strip_suffix(".log").map(|name| name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
    let each = ["_bw", "_iops", "_lat", "_clat", "_slat"];
    match name.rsplit('.').next() {
        _ if name.starts_with('.') => Err("hidden"),
        _ if log.is_some_and(|log| each.iter().any(|end| log.ends_with(end))) => Err("fio's logs of I/Os"),
        Some("gz" | "xz" | "bz2" | "zst") => Err("compressed"),
        Some("png" | "svg" | "jpg" | "pdf" | "html") => Err("pictures and pages"),
        _ if matches!(name, "machine.json" | "benchmarks.json") => Err("asv's descriptions"),
        _ => Ok(()),
    }
}

/// The samples of a folder's files. Notes in `problems` say which were recognised and which were skipped, an error that
/// there are none.
pub fn read(name: &str, files: Vec<File>, format: Option<&str>, problems: &mut Problems) -> Option<Group> {
    let mut skipped: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut taken: Vec<Taken> = Vec::new();
    for file in files {
        match file.text.and_then(|text| take(&file.path, &text, format)) {
            Ok(found) => taken.push(found),
            Err(why) => skipped.entry(why).or_default().push(file.path),
        }
    }
    let left = skipped.iter().map(|(why, paths)| format!("{why} ({})", shown(paths))).collect::<Vec<_>>().join("; ");
    if taken.is_empty() {
        let problem = Problem::error(format!("`{name}` holds no file with samples"));
        problems.push(if left.is_empty() { problem } else { problem.help(format!("skipped: {left}")) });
        return None;
    }
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for found in &taken {
        let layout = found.layout.map_or(String::new(), |layout| format!(" as {layout} lays them out"));
        *known.entry(format!("{}{layout}", found.format)).or_default() += 1;
    }
    let known: Vec<String> = known.iter().map(|(what, files)| format!("{files} {what}")).collect();
    let things = name_things(&mut taken);
    let of = if things == 1 { String::new() } else { format!(", of {things} things") };
    let mut note = Problem::note(format!("{name}: read {}{of}", known.join(", ")));
    if !left.is_empty() {
        note = note.help(format!("skipped: {left}"));
    }
    problems.push(note);
    let mut sides: BTreeMap<Vec<String>, Vec<Group>> = BTreeMap::new();
    for found in taken {
        sides.entry(found.thing).or_default().push(found.group);
    }
    let mut all = together(sides.into_values().filter_map(together).collect())?;
    name.clone_into(&mut all.label);
    Some(all)
}

/// The samples of a file, or why it has none.
fn take(path: &str, text: &str, format: Option<&str>) -> Result<Taken, String> {
    let parts: Vec<&str> = path.split('/').collect();
    let file = parts.last().copied().unwrap_or_default();
    let found = match format {
        Some(word) => FORMATS.iter().find(|format| format.name == word),
        None => FORMATS.iter().find(|format| (format.detect)(text)),
    };
    let found = found.ok_or_else(|| "not recognised".to_owned())?;
    let named = match found.name {
        _ if format.is_some() => true,
        name if name == fio::FORMAT.name => text.contains("\"fio version\"") || !text.trim_start().starts_with('{'),
        name if name == csv::FORMAT.name => [".csv", ".tsv"].iter().any(|end| file.ends_with(end)),
        name if name == numbers::FORMAT.name => file.ends_with(".txt"),
        _ => true,
    };
    let mut wrong = Problems::default();
    let group = named.then(|| super::read(path, text, Some(found.name), &mut wrong)).flatten();
    let group = group.filter(|group| group.columns.iter().any(|column| !column.values.is_empty()));
    let Some(group) = group else {
        let first = wrong.list.first().filter(|_| named && found.name != numbers::FORMAT.name);
        let reason = first.map(|problem| problem.message.trim_start_matches(path).trim_start_matches([':', ' ']));
        return Err(reason.map_or("not recognised".to_owned(), |reason| reason.chars().take(80).collect()));
    };
    let layout = LAYOUTS.iter().find_map(|layout| Some((layout.name, (layout.thing)(&parts)?)));
    let (layout, thing) = match layout {
        Some((name, thing)) => (Some(name), thing),
        // MACHINE/COMMIT-ENVIRONMENT.json
        None if found.name == asv::FORMAT.name => {
            let environment = stem(file).split_once('-').map_or(file, |(_, environment)| environment);
            let folders = parts[..parts.len() - 1].iter().copied();
            (None, folders.chain([environment]).map(str::to_owned).collect())
        }
        None => {
            let folders = parts[..parts.len() - 1].iter().copied().chain([stem(file)]).map(uncounted);
            (None, folders.filter(|part| !part.is_empty()).map(str::to_owned).collect())
        }
    };
    Ok(Taken { path: path.to_owned(), format: found.name, layout, thing, group })
}

/// Puts the name of each thing before the metrics of its files, without what all have in common. Returns their number.
fn name_things(taken: &mut [Taken]) -> usize {
    // Jobs with other options are other things.
    let options = |group: &Group| {
        let mut all: Vec<(String, String)> = group.runs.iter().flat_map(|run| run.options.clone()).collect();
        all.retain(|(name, _)| !PLACES.iter().any(|place| name.rsplit('.').next() == Some(place)));
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut known: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
    for found in taken.iter() {
        known.entry(found.thing.clone()).or_default().push(options(&found.group));
    }
    for found in taken.iter_mut().filter(|found| known[&found.thing].windows(2).any(|pair| pair[0] != pair[1])) {
        let path = found.path.rsplit_once('.').map_or(found.path.as_str(), |(path, _)| path);
        found.thing = path.split('/').map(str::to_owned).collect();
    }
    let first = taken.first().map_or(Vec::new(), |found| found.thing.clone());
    let shared = |at: usize| taken.iter().all(|found| found.thing.get(at) == first.get(at));
    let common = (0..first.len()).take_while(|at| shared(*at)).count();
    for found in taken.iter_mut() {
        found.thing.drain(..common);
        let prefix: String = found.thing.iter().map(|part| format!("{part}/")).collect();
        for column in &mut found.group.columns {
            column.metric = Metric { name: format!("{prefix}{}", column.metric.name), ..column.metric.clone() };
        }
    }
    taken.sort_by(|a, b| natural(&a.path, &b.path));
    let mut things: Vec<&[String]> = taken.iter().map(|found| found.thing.as_slice()).collect();
    things.sort_unstable();
    things.dedup();
    things.len()
}

/// Options that say where files lie, and what is written besides.
const PLACES: &[&str] =
    &["filename", "directory", "output", "name", "write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log"];

/// A name without its extension.
fn stem(file: &str) -> &str {
    file.rsplit_once('.').filter(|(stem, end)| !stem.is_empty() && !end.is_empty()).map_or(file, |(stem, _)| stem)
}

/// A name without the number of the run at its end.
fn uncounted(part: &str) -> &str {
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
    if name.len() == part.len() {
        return part;
    }
    let name = name.trim_end_matches(['-', '_', '.', ' ']);
    ["iter", "run", "iteration", "rep"].iter().find(|word| name.eq_ignore_ascii_case(word)).map_or(name, |_| "")
}

/// The order of names in which 10 comes behind 9.
pub fn natural(a: &str, b: &str) -> Ordering {
    // Words and the numbers behind them.
    let key = |text: &str| {
        let mut all = vec![(String::new(), String::new())];
        for c in text.chars() {
            match all.last_mut() {
                Some((_, digits)) if c.is_ascii_digit() => digits.push(c),
                Some((word, digits)) if digits.is_empty() => word.push(c),
                _ => all.push((c.to_string(), String::new())),
            }
        }
        let number = |digits: String| (digits.trim_start_matches('0').len(), digits.trim_start_matches('0').to_owned());
        all.into_iter().map(|(word, digits)| (word, number(digits))).collect::<Vec<_>>()
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

/// A few names of a list.
fn shown(paths: &[String]) -> String {
    match paths {
        [one] => one.clone(),
        [one, .., last] => format!("{} files, {one} .. {last}", paths.len()),
        [] => String::new(),
    }
}
