//! `cargo xtask guide`: questions of users, typed as they would type them, and held to the answers that they deserve.
//!
//! A task of `guide/tasks.toml` has a situation (`setup`), the lines that a person types, the exit code of the last
//! line, and words that the output must or must not have. The lines find `iowhy` in their path: unpacked from the
//! newest package of `cargo xtask dist`, or the program of `--binary`. Needs root; everything is undone as by `plant
//! --live`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use iowhy_live::signal;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::plant_live::site::{Site, Variables};
use crate::steps::{in_ci, is_installed};
use crate::{Outcome, root, target_folder};

const TASKS: &str = include_str!("guide/tasks.toml");
const LIBRARY: &str = include_str!("guide/lib.sh");
/// One task takes no longer.
const LIMIT: Duration = Duration::from_secs(600);
/// A situation cannot be made on this machine: the code with which automake's tests skip.
const CANNOT_BE_ASKED: i32 = 77;
/// `iowhy` cannot tell.
const UNDECIDED: i32 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tasks {
    task: Vec<Task>,
}

/// A question, and the signs of its answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    name: String,
    /// The question, in the words of the one who asks.
    asks: String,
    /// Programs without which it is skipped.
    #[serde(default)]
    needs: Vec<String>,
    /// Where it works; see `ground` in `plant_live/lib.sh`.
    #[serde(default = "plain")]
    ground: String,
    /// Makes the situation.
    #[serde(default)]
    setup: String,
    /// The typed lines; the first that fails is the last.
    typed: String,
    /// The exit code of the last one.
    #[serde(default)]
    exit: i32,
    /// Each must be in the output; `|` stands between words of which one suffices. Blanks and line ends are equal.
    says: Vec<String>,
    /// None may be in it.
    #[serde(default)]
    never: Vec<String>,
}

fn plain() -> String {
    "plain".to_owned()
}

/// The result of one task.
enum Answer {
    Yes,
    No(String),
    Skipped(String),
}

#[derive(Default)]
struct Settings {
    only: Vec<String>,
    binary: Option<PathBuf>,
    json: bool,
    verbose: bool,
}

/// Runs the tasks, and prints a line for each and their number.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = settings(arguments)?;
    let Tasks { task: tasks } = toml::from_str(TASKS).map_err(|error| format!("tasks.toml: {error}"))?;
    let unknown: Vec<&str> =
        settings.only.iter().filter(|name| !tasks.iter().any(|task| task.name == **name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        return Err(format!("no task is called {}; tasks: {}", unknown.join(", "), names.join(", ")));
    }
    let _signals = signal::Guard::take();
    let site = Site::new("iowhy", None)?;
    let package = package();
    let programs = installed(&site, settings.binary.as_deref(), package.as_deref())?;
    let mut rows = Vec::new();
    for task in tasks.iter().filter(|task| settings.only.is_empty() || settings.only.contains(&task.name)) {
        let from = Instant::now();
        let (answer, said) = ask(&site, task, &programs, package.as_deref())?;
        if signal::raised() {
            return Err("stopped".to_owned());
        }
        let (word, why) = match &answer {
            Answer::Yes => ("yes", ""),
            Answer::No(why) => ("no", why.as_str()),
            Answer::Skipped(why) => ("skipped", why.as_str()),
        };
        let seconds = from.elapsed().as_secs_f64();
        if !settings.json {
            println!("{:<24} {word:<8}{seconds:>6.1} s  {why}", task.name);
        }
        if settings.verbose || word == "no" {
            eprintln!("{}\n{}", task.asks, said.trim_end().lines().map(|l| format!("    {l}\n")).collect::<String>());
        }
        rows.push(json!({"name": task.name, "asks": task.asks, "answered": word, "why": why,
            "seconds": (seconds * 10.0).round() / 10.0}));
    }
    end(&settings, &rows)
}

fn end(settings: &Settings, rows: &[Value]) -> Outcome {
    let count = |word: &str| rows.iter().filter(|row| row["answered"] == word).count();
    let (yes, no, skipped) = (count("yes"), count("no"), count("skipped"));
    if settings.json {
        let document = json!({"tasks": rows, "answered": yes, "not_answered": no, "skipped": skipped});
        println!("{document:#}");
    } else {
        println!("{yes} of {} answered, {no} not, {skipped} skipped", rows.len());
    }
    match (no, skipped) {
        (0, 0) => Ok(()),
        (0, _) if !in_ci() => Ok(()),
        (0, _) => Err(format!("{skipped} skipped, which CI=true does not allow")),
        _ => Err(format!("{no} not answered")),
    }
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = |what: &str| words.next().cloned().ok_or(format!("{word} needs {what}"));
        match word.as_str() {
            "--only" => settings.only.extend(next("names")?.split(',').map(str::to_owned)),
            "--binary" => {
                let path = next("a path")?;
                let whole = std::fs::canonicalize(&path).map_err(|error| format!("{path}: {error}"))?;
                settings.binary = Some(whole);
            }
            "--json" => settings.json = true,
            "--verbose" => settings.verbose = true,
            other => {
                return Err(format!("unknown word `{other}`: --only NAME,.., --binary PATH, --json, --verbose"));
            }
        }
    }
    Ok(settings)
}

/// The newest package of `cargo xtask dist`.
fn package() -> Option<PathBuf> {
    let entries = std::fs::read_dir(target_folder().join("dist")).ok()?;
    let packages = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("iowhy_") && name.ends_with(".deb")
    });
    packages.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// A folder with the `iowhy` that the typed lines find.
fn installed(site: &Site, binary: Option<&Path>, package: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(binary) = binary {
        let folder = site.folder.join("bin");
        let made = std::fs::create_dir_all(&folder).and_then(|()| symlink(binary, folder.join("iowhy")));
        return made.map(|()| folder.clone()).map_err(|error| format!("{}: {error}", folder.display()));
    }
    let package = package.ok_or("no package in target/dist: run `cargo xtask dist` first, or give --binary PATH")?;
    let folder = site.folder.join("installed");
    let mut unpack = Command::new("dpkg-deb");
    let status = unpack.arg("-x").args([package, &folder]).status().map_err(|error| format!("dpkg-deb: {error}"))?;
    if status.success() {
        Ok(folder.join("usr/bin"))
    } else {
        Err(format!("{}: dpkg-deb: {status}", package.display()))
    }
}

/// One task, and its output. Its changes are undone whether it is answered or not; if that fails, nothing later could
/// be trusted.
fn ask(site: &Site, task: &Task, programs: &Path, package: Option<&Path>) -> Result<(Answer, String), String> {
    let missing: Vec<&str> = task.needs.iter().filter(|name| !is_installed(name)).map(String::as_str).collect();
    if !missing.is_empty() {
        return Ok((Answer::Skipped(format!("not installed: {}", missing.join(", "))), String::new()));
    }
    let asked = asked(site, task, programs, package);
    let said = site.all("stdout") + &site.all("stderr");
    site.undo("undo.case").map_err(|error| format!("{}: not undone: {error}", task.name))?;
    Ok((asked.unwrap_or_else(Answer::No), said))
}

fn asked(site: &Site, task: &Task, programs: &Path, package: Option<&Path>) -> Result<Answer, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let text = |path: &Path| path.display().to_string();
    let more: Variables = [
        ("PATH", format!("{}:{path}:/usr/sbin:/sbin", programs.display())),
        ("BIN", text(&programs.join("iowhy"))),
        ("ROOT", text(root())),
        ("KEPT", text(&target_folder().join("guide"))),
        ("PACKAGE", package.map_or_else(String::new, text)),
        ("IOWHY_STORE", text(&site.folder.join("store"))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let mut variables = site.ground_with(&task.ground, "one", &more)?;
    let run = |snippet: &str, variables: &Variables| {
        site.run(&format!("{LIBRARY}\ncd \"$DIR\"\n{snippet}"), variables, "undo.case", LIMIT)
    };
    let code = run(&task.setup, &variables)?;
    if code == CANNOT_BE_ASKED {
        return Ok(Answer::Skipped(site.said("stderr")));
    }
    if code != 0 {
        return Err(format!("setup: exit {code}"));
    }
    site.refresh("one", &mut variables)?;
    let code = run(&task.typed, &variables)?;
    let said = words(&(site.all("stdout") + " " + &site.all("stderr")));
    Ok(task.held(code, &said))
}

/// Without differences of lines and blanks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Task {
    fn held(&self, code: i32, said: &str) -> Answer {
        let said = said.to_lowercase();
        let has = |text: &str| said.contains(&text.to_lowercase());
        let mut wrong = Vec::new();
        if code == UNDECIDED && self.exit != UNDECIDED {
            wrong.push("cannot tell (exit 3)".to_owned());
        } else if code != self.exit {
            wrong.push(format!("exit {code} instead of {}", self.exit));
        }
        let missing = self.says.iter().filter(|text| !text.split('|').any(|one| has(one.trim())));
        wrong.extend(missing.map(|text| format!("does not say `{text}`")));
        wrong.extend(self.never.iter().filter(|text| has(text)).map(|text| format!("says `{text}`")));
        if wrong.is_empty() { Answer::Yes } else { Answer::No(wrong.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, TASKS, Tasks};

    #[test]
    fn tasks_have_names_of_their_own_and_signs_of_an_answer() {
        let Tasks { task: tasks } = toml::from_str(TASKS).expect("TOML");
        for (nr, task) in tasks.iter().enumerate() {
            assert!(tasks[..nr].iter().all(|other| other.name != task.name), "{} is there twice", task.name);
            assert!(!task.says.is_empty() && !task.setup.contains("exit 0"), "{}", task.name);
        }
    }

    #[test]
    fn an_answer_has_its_exit_code_and_words() {
        let Tasks { task: mut tasks } = toml::from_str(TASKS).expect("TOML");
        let mut task = tasks.remove(0);
        (task.exit, task.says) = (0, vec!["slower".to_owned(), "one|another".to_owned()]);
        task.never = vec!["wrong".to_owned()];
        for (code, said, expected) in [
            (0, "Slower for another reason", None),
            (1, "slower: one", Some("exit 1 instead of 0")),
            (3, "slower: one", Some("cannot tell (exit 3)")),
            (0, "slower", Some("does not say `one|another`")),
            (0, "slower: one, wrong", Some("says `wrong`")),
        ] {
            let found = match task.held(code, said) {
                Answer::No(why) => Some(why),
                _ => None,
            };
            assert_eq!(found.as_deref(), expected, "{said}");
        }
    }
}
