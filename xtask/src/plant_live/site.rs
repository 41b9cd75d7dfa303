//! Where a run works: its folder, its snippets of bash, and how everything is undone.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::{free_memory, signal};
use rustix::process::{Pid, Signal, kill_process_group};

const LIBRARY: &str = include_str!("lib.sh");
const PROGRAM: &str = include_str!("io.py");
/// Folders of runs are called so, with the number of the process.
const PREFIX: &str = "iowhy-plant-";
/// Where these folders are: on this machine's own disk.
const PARENT: &str = "/var/tmp";

/// How long a whole run waits for others who compute.
const PATIENCE: Duration = Duration::from_secs(45);
/// And before one recording.
const PATIENCE_ONCE: Duration = Duration::from_secs(1);
/// The processors are left alone if no more than this share of their time is taken.
const CALM: f64 = 0.3;

/// Names and values for a snippet.
pub(crate) type Variables = Vec<(String, String)>;

/// The folder of a run. Whatever is left in it is undone when it is dropped, and by the next run if this one is killed.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    variables: Variables,
    /// How long it may still wait for others to leave the processors alone.
    patience: Cell<Duration>,
    /// Recordings that began while others kept the processors busy.
    pub(crate) disturbed: Cell<u32>,
}

/// Undo logs, in the order in which they are undone.
const LOGS: [&str; 3] = ["undo.recording", "undo.case", LEFT];
/// Lines that failed. They are tried once more at the end, and no later case has to wait for them.
const LEFT: &str = "undo.left";

impl Site {
    /// A fresh one; the files below loop devices lie in `images`, or in it.
    pub(crate) fn new(binary: &str, images: Option<&Path>) -> Result<Site, String> {
        for left in left_behind() {
            eprintln!("{} was left behind by a run that was killed; undoing", left.display());
            undo_all(&left).map_err(|error| format!("{}: {error}", left.display()))?;
        }
        let folder = Path::new(PARENT).join(format!("{PREFIX}{}", std::process::id()));
        let failed = |error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder.join("shared")).map_err(failed)?;
        let text = |path: &Path| path.display().to_string();
        let python = ["/usr/bin/python3", "python3"].into_iter().find(|name| Path::new(name).exists());
        let variables = [
            ("LC_ALL", "C".to_owned()),
            ("BIN", binary.to_owned()),
            ("PY", python.unwrap_or("python3").to_owned()),
            ("IO", text(&folder.join("io.py"))),
            ("SHARED", text(&folder.join("shared"))),
            ("SCRATCH", text(&folder)),
            ("IMAGES", text(images.unwrap_or(&folder))),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let site = Site { folder, variables, patience: Cell::new(PATIENCE), disturbed: Cell::new(0) };
        site.write("lib.sh", LIBRARY)?;
        site.write("io.py", PROGRAM)?;
        Ok(site)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Bash with the library, in a process group of its own; its output goes to files.
    fn bash(&self, snippet: &str, variables: &Variables, log: &str) -> Result<Command, String> {
        let file = |name: &str| {
            let path = self.folder.join(name);
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(format!(". \"$SCRATCH/lib.sh\"\n{snippet}"))
            .envs(self.variables.iter().cloned())
            .envs(variables.iter().cloned())
            .env("UNDO", self.folder.join(log))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .process_group(0);
        Ok(command)
    }

    /// Runs a snippet; `log` undoes its changes.
    pub(crate) fn step(&self, snippet: &str, variables: &Variables, log: &str) -> Result<(), String> {
        if snippet.is_empty() {
            return Ok(());
        }
        let code = self.run(snippet, variables, log, Duration::from_secs(90))?;
        if code == 0 { Ok(()) } else { Err(format!("{snippet}: exit {code}: {}", self.said("stderr"))) }
    }

    /// The same with a limit of its own, for the exit code: 128 and the number of a signal that ended it.
    pub(crate) fn run(&self, snippet: &str, variables: &Variables, log: &str, limit: Duration) -> Result<i32, String> {
        let mut command = self.bash(snippet, variables, log)?;
        let status = wait(&mut start(&mut command)?, limit)?;
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// All that it wrote there.
    pub(crate) fn all(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
    }

    /// The end of what the last snippet, or recording, wrote there.
    pub(crate) fn said(&self, name: &str) -> String {
        self.all(name).trim().lines().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// A ground: the variables that say where it is.
    pub(crate) fn ground(&self, of: &str, name: &str) -> Result<Variables, String> {
        self.ground_with(of, name, &Variables::new())
    }

    /// One whose snippets see more variables.
    pub(crate) fn ground_with(&self, of: &str, name: &str, more: &Variables) -> Result<Variables, String> {
        let file = self.folder.join(format!("{name}.variables"));
        std::fs::write(&file, "").map_err(|error| format!("{}: {error}", file.display()))?;
        let mut variables = vec![
            ("VARIABLES".to_owned(), file.display().to_string()),
            ("HOME_OF_GROUND".to_owned(), self.folder.join(name).display().to_string()),
        ];
        variables.extend(more.iter().cloned());
        self.step(&format!("ground '{of}' \"$HOME_OF_GROUND\""), &variables, "undo.case")?;
        said_variables(&file, &mut variables)?;
        Ok(variables)
    }

    /// Additions of `say` since.
    pub(crate) fn refresh(&self, name: &str, variables: &mut Variables) -> Result<(), String> {
        said_variables(&self.folder.join(format!("{name}.variables")), variables)
    }

    /// Waits until the processors are idle, for a while.
    pub(crate) fn calm(&self) -> Result<(), String> {
        let from = Instant::now();
        let limit = PATIENCE_ONCE.min(self.patience.get());
        let mut calm = busy()? <= CALM;
        while !calm && from.elapsed() < limit && !signal::raised() {
            calm = busy()? <= CALM;
        }
        self.patience.set(self.patience.get().saturating_sub(from.elapsed()));
        self.disturbed.set(self.disturbed.get() + u32::from(!calm));
        Ok(())
    }

    /// A background process until it is dropped.
    pub(crate) fn beside(&self, snippet: &str, variables: &Variables) -> Result<Option<Companion>, String> {
        if snippet.is_empty() {
            return Ok(None);
        }
        // It ends with us even if we are killed.
        let watched =
            format!("(while kill -0 {} 2>/dev/null; do sleep 1; done; kill -- -$$) &\n{snippet}", std::process::id());
        let mut command = self.bash(&watched, variables, "undo.recording")?;
        let mut child = start(&mut command)?;
        std::thread::sleep(Duration::from_millis(400));
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("beside: {snippet}: {status}: {}", self.said("stderr")));
        }
        Ok(Some(Companion(child)))
    }

    /// Records a command: its wall clock in seconds, from inside the recording, without the recorder's start and end.
    pub(crate) fn record(&self, binary: &str, run: &str, variables: &Variables, to: &Path) -> Result<f64, String> {
        self.timed(&[binary, "trace", "record", "-o", &to.display().to_string(), "--"], run, variables, &[0])
    }

    /// Runs a command behind `words`: its own wall clock in seconds. The standard output of the words goes to the file
    /// `answer`; the command's own is dropped.
    pub(crate) fn timed(&self, words: &[&str], run: &str, variables: &Variables, fine: &[i32]) -> Result<f64, String> {
        let timed = format!(
            "printf '\nplant-clock %s 0\n' \"$EPOCHREALTIME\" >&2\n{{ {run}\n}} >/dev/null\ncode=$?\n\
             printf '\nplant-clock %s %s\n' \"$EPOCHREALTIME\" $code >&2\nexit $code"
        );
        let file = |name: &str| {
            let path = self.folder.join(name);
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let words: Vec<&str> = words.iter().copied().chain(["bash", "-c", &timed]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .envs(self.variables.iter().cloned())
            .envs(variables.iter().cloned())
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file("answer")?)
            .stderr(file("recorded")?)
            .process_group(0);
        free_memory::touch(2 * free_memory::OF_A_COMMAND);
        let status = wait(&mut start(&mut command)?, Duration::from_secs(90))?;
        let text = self.all("recorded");
        let clocks: Vec<(f64, &str)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("plant-clock ")?.split_once(' '))
            .filter_map(|(time, code)| Some((time.parse().ok()?, code)))
            .collect();
        match clocks[..] {
            [(from, _), (to, "0")] if status.code().is_some_and(|code| fine.contains(&code)) => Ok(to - from),
            _ => Err(format!("{run}: {status}: {}", self.said("recorded"))),
        }
    }

    /// Undoes what was made since the log began.
    pub(crate) fn undo(&self, log: &str) -> Result<(), String> {
        let log = self.folder.join(log);
        let failed = undo(&log);
        if !failed.is_empty() {
            let lines: String = failed.iter().rev().map(|(line, _)| format!("{line}\n")).collect();
            let path = self.folder.join(LEFT);
            let left = File::options().create(true).append(true).open(&path);
            left.and_then(|mut left| left.write_all(lines.as_bytes()))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let _ = std::fs::remove_file(log);
        told(&failed)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = undo_all(&self.folder) {
            eprintln!("not undone; the next run tries again: {error}");
        }
    }
}

/// A process group that runs during the recording.
pub(crate) struct Companion(Child);

impl Drop for Companion {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// The share of the processors' time that is taken, for a moment.
fn busy() -> Result<f64, String> {
    let now = || {
        let text = std::fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
        iowhy_live::machine::cpu_time(&text).ok_or_else(|| "/proc/stat has no line of all processors".to_owned())
    };
    let before = now()?;
    std::thread::sleep(Duration::from_millis(60));
    let after = now()?;
    let all = after.total.saturating_sub(before.total).max(1) as f64;
    Ok(1.0 - after.idle.saturating_sub(before.idle) as f64 / all)
}

fn said_variables(file: &Path, variables: &mut Variables) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        variables.retain(|(other, _)| other != name);
        variables.push((name.to_owned(), value.to_owned()));
    }
    Ok(())
}

/// Folders of runs that are no more.
fn left_behind() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(PARENT).into_iter().flatten().flatten();
    let dead = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    entries.map(|entry| entry.path()).filter(dead).collect()
}

fn undo_all(folder: &Path) -> Result<(), String> {
    for log in LOGS {
        let log = folder.join(log);
        told(&undo(&log))?;
        let _ = std::fs::remove_file(log);
    }
    std::fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// The lines of a log, the last one first; a line that fails is tried again for a while, for something may still hold
/// on to what it takes away. Those that failed, with what they said.
fn undo(log: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut failed = Vec::new();
    for line in text.lines().rev() {
        let mut said = String::new();
        let done = (0..30).any(|_| {
            let output = Command::new("bash").args(["-c", line]).stdin(Stdio::null()).process_group(0).output();
            if output.as_ref().is_ok_and(|output| output.status.success()) {
                return true;
            }
            said = output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).trim().to_owned());
            // What is to be ended has ended.
            let gone = said.ends_with("No such process");
            if !gone {
                std::thread::sleep(Duration::from_millis(100));
            }
            gone
        });
        if !done {
            failed.push((line.to_owned(), said));
        }
    }
    failed
}

/// What failed, as an error.
fn told(failed: &[(String, String)]) -> Result<(), String> {
    let said: Vec<String> = failed.iter().map(|(line, said)| format!("{line}: {said}")).collect();
    if said.is_empty() { Ok(()) } else { Err(said.join("; ")) }
}

fn start(command: &mut Command) -> Result<Child, String> {
    if signal::raised() {
        return Err("interrupted".to_owned());
    }
    command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))
}

/// Waits; ends the whole group at a signal, or when it takes too long.
fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus, String> {
    let from = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        let why = if signal::raised() {
            "interrupted"
        } else if from.elapsed() > limit {
            "it takes too long"
        } else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        end(child);
        return Err(why.to_owned());
    }
}

/// Ends a child that leads a process group, and the group: with a request, then without.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let send = |signal| group.map(|group| kill_process_group(group, signal));
    send(Signal::TERM);
    for _ in 0..100 {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    send(Signal::KILL);
    let _ = child.wait();
}
