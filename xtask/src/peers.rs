//! `cargo xtask peers`: judges that other projects wrote for their own programs, on iowhy and on the program itself.
//!
//! A judge is an entry of [`JUDGES`]: it runs the peer and iowhy on the same cells and yields, for each question, the
//! cells that the peer passes and those among them that iowhy does not. A row holds if iowhy passes `least` percent of
//! the peer's cells. fio's suite, scripts, job files and tools come from Debian's source package of the installed
//! version, unpacked below the target folder, or from `--fio-source PATH`, whose rows name its version; neither is ever
//! committed.
//!
//! Without `--whole` it takes the cells that end soon, less than three minutes in all: a step of `cargo xtask test`.
//! `--page` writes docs/COMPATIBILITY.md, with `--only` the rows of those judges.

mod jobs;
mod readers;
mod suite;
mod sysbench;
mod tools;

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_text::part::Part;

use crate::steps::{self, Steps, is_installed};
use crate::{Outcome, release_binary, renew, root, target_folder};

/// The table on docs/COMPATIBILITY.md.
const PART: Part = Part { command: "cargo xtask peers" };

/// A judge: its name, the programs that it needs, and whether it needs fio's source.
struct Judge {
    name: &'static str,
    needs: &'static [&'static str],
    of_fio: bool,
    run: fn(&Ground) -> Result<Vec<Row>, String>,
}

const JUDGES: &[Judge] = &[
    Judge { name: "suite", needs: &["fio", "python3"], of_fio: true, run: suite::run },
    Judge { name: "jobs", needs: &["fio"], of_fio: true, run: jobs::run },
    Judge { name: "tools", needs: &["fio", "python3"], of_fio: true, run: tools::run },
    Judge { name: "readers", needs: &["fio", "sysbench", "python3"], of_fio: false, run: readers::run },
    Judge { name: "sysbench", needs: &["sysbench", "strace"], of_fio: false, run: sysbench::run },
];

/// Which of the two programs.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Peer,
    Iowhy,
}

const SIDES: [Side; 2] = [Side::Peer, Side::Iowhy];

/// Name of iowhy's program for what it does not take over from a peer.
const ITSELF: &str = "iowhy";

/// What judges work with.
struct Ground {
    /// A folder of this run.
    folder: PathBuf,
    /// A folder for each side with programs called `fio` and `sysbench`.
    programs: [PathBuf; 2],
    /// Folder of the interpreter with the packages that judges import; nothing in the short form.
    python: Option<PathBuf>,
    /// fio's source; nothing if no judge asks for it.
    source: PathBuf,
    /// Behind the names of rows that come from a checkout: its version.
    version: String,
    /// Checkouts of mmtests and Phoronix Test Suite.
    mmtests: Option<PathBuf>,
    phoronix: Option<PathBuf>,
    whole: bool,
    /// Folders handed out.
    cells: Cell<u32>,
}

/// Output of a command, and its exit code; without one it did not end in time.
struct Said {
    text: String,
    code: Option<i32>,
}

impl Ground {
    fn program(&self, side: Side, name: &str) -> PathBuf {
        self.programs[side as usize].join(name)
    }

    /// An empty folder for a cell; that of the side's last cell goes, unless a program that its parent forgot is in it.
    fn cell(&self, side: Side) -> Result<PathBuf, String> {
        let cell = self.cells.get();
        self.cells.set(cell + 1);
        let parent = self.folder.join(["peer", "ours"][side as usize]);
        let folder = parent.join(cell.to_string());
        let _ = fs::remove_dir_all(parent);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// A command whose `fio` and `sysbench` are those of a side.
    fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let first = [Some(self.programs[side as usize].clone()), self.python.clone()];
        let path = std::env::join_paths(first.into_iter().flatten().chain(std::env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_default()).current_dir(folder);
        // Where Python's matplotlib keeps its list of fonts.
        command.env("MPLCONFIGDIR", self.folder.join("fonts"));
        command
    }

    /// Runs a command to its end; standard output and error in one text.
    fn run(&self, command: &mut Command, seconds: u64) -> Result<Said, String> {
        let path = self.folder.join("said");
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::create(&path).map_err(failed)?;
        let again = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(again);
        let child = command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let status = steps::wait(child, Duration::from_secs(seconds)).map_err(failed)?;
        let text = fs::read(&path).map_err(failed)?;
        Ok(Said {
            text: String::from_utf8_lossy(&text).into_owned(),
            code: status.ok().and_then(|status| status.code()),
        })
    }
}

/// Answers of both sides to one question.
struct Row {
    judge: String,
    /// Cells that the peer passes.
    cells: usize,
    /// Those among them that iowhy does not pass.
    missed: Vec<String>,
    /// Least share that iowhy has to pass, percent.
    least: usize,
}

impl Row {
    /// `passed` has each cell that the peer passes, and whether iowhy does.
    fn new(judge: impl Into<String>, least: usize, passed: impl IntoIterator<Item = (String, bool)>) -> Row {
        let passed: Vec<(String, bool)> = passed.into_iter().collect();
        let missed = passed.iter().filter(|(_, held)| !held).map(|(cell, _)| cell.clone()).collect();
        Row { judge: judge.into(), cells: passed.len(), missed, least }
    }

    fn equal(&self) -> usize {
        self.cells - self.missed.len()
    }

    /// A peer that passes nothing is a judge that does not work here.
    fn holds(&self) -> bool {
        self.cells > 0 && self.equal() * 100 >= self.cells * self.least
    }

    /// `run` has its day and form.
    fn line(&self, run: &str) -> String {
        let missed = if self.missed.is_empty() { "-".to_owned() } else { self.missed.join(", ") };
        format!("| {} | {} | {} | {} % | {missed} | {run} |", self.judge, self.cells, self.equal(), self.least)
    }
}

/// The words of the command line.
#[derive(Default)]
struct Settings {
    whole: bool,
    page: bool,
    only: Vec<String>,
    binary: Option<PathBuf>,
    source: Option<PathBuf>,
    mmtests: Option<PathBuf>,
    phoronix: Option<PathBuf>,
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--whole" => settings.whole = true,
            "--page" => settings.page = true,
            "--only" => settings.only = next()?.split(',').map(str::to_owned).collect(),
            "--binary" => settings.binary = Some(next()?.into()),
            "--fio-source" => settings.source = Some(next()?.into()),
            "--mmtests" => settings.mmtests = Some(next()?.into()),
            "--phoronix" => settings.phoronix = Some(next()?.into()),
            other => return Err(format!("unknown word `{other}`")),
        }
    }
    match settings.only.iter().find(|name| !JUDGES.iter().any(|judge| judge.name == **name)) {
        Some(name) => Err(format!("no judge is called `{name}`")),
        None => Ok(settings),
    }
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = settings(arguments)?;
    let binary = match &settings.binary {
        Some(path) => path.clone(),
        None => release_binary()?,
    };
    let mut steps = Steps::default();
    let rows = judged(&binary, &settings, &mut steps)?;
    let [day, machine] = circumstances();
    let run = format!("{day}{}", if settings.whole { "" } else { ", short" });
    println!("{}", table("", &rows, &run));
    if settings.page {
        let path = root().join("docs/COMPATIBILITY.md");
        let page = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let before = PART.of(&page).unwrap_or_default();
        renew("COMPATIBILITY.md", PART, &format!("{machine}.\n\n{}", table(before, &rows, &run)))?;
    }
    steps.end()
}

/// The short form, with the build that tests have made.
pub(crate) fn steps(steps: &mut Steps) {
    match judged(&target_folder().join("debug/iowhy"), &Settings::default(), steps) {
        Ok(rows) => eprintln!("{}", table("", &rows, "now")),
        Err(message) => steps.fail("peers", &message),
    }
}

/// The rows of all judges whose programs are there.
fn judged(binary: &Path, settings: &Settings, steps: &mut Steps) -> Result<Vec<Row>, String> {
    let binary = fs::canonicalize(binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    let folder = std::env::temp_dir().join(format!("iowhy-peers-{}", std::process::id()));
    let checkout = |path: &Option<PathBuf>| {
        let found =
            path.as_ref().map(|path| fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display())));
        found.transpose()
    };
    let ground = Ground {
        python: if settings.whole { Some(python()?) } else { None },
        programs: SIDES.map(|side| folder.join(["bin-peer", "bin-ours"][side as usize])),
        version: settings.source.as_deref().map(suite::version).transpose()?.unwrap_or_default(),
        source: checkout(&settings.source)?.unwrap_or_default(),
        mmtests: checkout(&settings.mmtests)?,
        phoronix: checkout(&settings.phoronix)?,
        whole: settings.whole,
        cells: Cell::default(),
        folder,
    };
    let folder = ground.folder.clone();
    let rows = wrap(&ground, &binary).and_then(|()| all(ground, settings, steps));
    let _ = fs::remove_dir_all(folder);
    rows
}

fn all(mut ground: Ground, settings: &Settings, steps: &mut Steps) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for judge in
        JUDGES.iter().filter(|judge| settings.only.is_empty() || settings.only.iter().any(|it| it == judge.name))
    {
        let name = format!("peers: {}", judge.name);
        let missing: Vec<&str> = judge.needs.iter().copied().filter(|program| !is_installed(program)).collect();
        if !missing.is_empty() {
            steps.skip(&name, &format!("not installed: {}", missing.join(", ")));
            continue;
        }
        if judge.of_fio && ground.source.as_os_str().is_empty() {
            match suite::source() {
                Ok(path) => ground.source = path,
                Err(message) => {
                    steps.skip(&name, &message);
                    continue;
                }
            }
        }
        eprintln!("xtask: {name}");
        let from = Instant::now();
        let found = (judge.run)(&ground).map_err(|error| format!("{}: {error}", judge.name))?;
        for row in found.iter().filter(|row| !row.holds()) {
            let text = format!("{} of {}, at least {} %: {}", row.equal(), row.cells, row.least, row.missed.join(", "));
            steps.fail(&format!("{name}: {}", row.judge), &text);
        }
        rows.extend(found);
        eprintln!("xtask: {name}: {:.1} s", from.elapsed().as_secs_f64());
    }
    Ok(rows)
}

/// A virtual environment with what scripts of the whole form import.
fn python() -> Result<PathBuf, String> {
    let folder = std::path::absolute(target_folder().join("peers/venv")).map_err(|error| error.to_string())?;
    // The list names the mark, too: another list is installed again.
    let packages = "numpy scipy pandas six statsmodels fio-plot";
    let mark = folder.join(packages.replace(' ', "-"));
    if !mark.is_file() {
        let script = format!("python3 -m venv \"$1\" && \"$1/bin/pip\" install -q {packages} && touch \"$2\"");
        let status = Command::new("sh").args(["-c", &script, "sh"]).args([&folder, &mark]).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("{}: its packages cannot be installed", folder.display()));
        }
    }
    Ok(folder.join("bin"))
}

/// Programs with the peers' names in a folder for each side, and iowhy under its own name.
fn wrap(ground: &Ground, binary: &Path) -> Outcome {
    let ours = format!("'{}'", binary.display());
    for (side, name, command) in [
        (Side::Peer, "fio", "/usr/bin/fio"),
        (Side::Peer, "sysbench", "/usr/bin/sysbench"),
        (Side::Iowhy, "fio", &format!("{ours} fio")),
        (Side::Iowhy, "sysbench", &format!("{ours} sysbench")),
        (Side::Iowhy, ITSELF, &ours),
    ] {
        let folder = &ground.programs[side as usize];
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {command} \"$@\"\n")).map_err(failed)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).map_err(failed)?;
    }
    Ok(())
}

/// The head of each table.
const HEAD: [&str; 2] =
    ["| judge | the peer passes | iowhy of these | at least | not | run |", "| --- | --- | --- | --- | --- | --- |"];

/// A table of rows in the place of earlier ones of the same judges; others stay.
fn table(before: &str, rows: &[Row], run: &str) -> String {
    let mut lines: Vec<String> = HEAD.map(str::to_owned).into();
    lines.extend(before.lines().filter(|line| line.starts_with("| ") && !HEAD.contains(line)).map(str::to_owned));
    for row in rows {
        let line = row.line(run);
        match lines.iter_mut().find(|earlier| earlier.starts_with(&format!("| {} |", row.judge))) {
            Some(earlier) => *earlier = line,
            None => lines.push(line),
        }
    }
    lines.join("\n")
}

/// The day, and versions and machine.
fn circumstances() -> [String; 2] {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let sysbench = said("sysbench", &["--version"]);
    let machine = format!(
        "{}, {}, Linux {}, {processors} processors",
        said("fio", &["--version"]),
        sysbench.split(" (").next().unwrap_or_default(),
        said("uname", &["-r"])
    );
    [said("date", &["-u", "+%-d %B %Y"]), machine]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_from_its_least_share_on() {
        let row = |cells: usize, passed: usize, least: usize| {
            Row::new("a", least, (0..cells).map(|cell| (cell.to_string(), cell < passed)))
        };
        for (cells, passed, least, holds) in
            [(20, 19, 95, true), (20, 18, 95, false), (3, 3, 100, true), (200, 199, 100, false), (0, 0, 95, false)]
        {
            assert_eq!(row(cells, passed, least).holds(), holds, "{passed} of {cells}, {least} %");
        }
        assert_eq!(row(2, 1, 95).line("now"), "| a | 2 | 1 | 95 % | 1 | now |");
        assert_eq!(row(2, 2, 95).line("now"), "| a | 2 | 2 | 95 % | - | now |");
    }

    #[test]
    fn rows_of_other_judges_stay() {
        let row = |judge: &str| Row::new(judge, 95, [("1".to_owned(), true)]);
        let first = table("", &[row("a"), row("a b")], "then");
        let second = table(&format!("fio\n\n{first}"), &[row("a"), row("c")], "now");
        let names: Vec<&str> = second.lines().skip(2).collect();
        let lines =
            ["| a | 1 | 1 | 95 % | - | now |", "| a b | 1 | 1 | 95 % | - | then |", "| c | 1 | 1 | 95 % | - | now |"];
        assert_eq!(names, lines);
        assert_eq!(second.lines().take(2).collect::<Vec<_>>(), HEAD);
    }
}
