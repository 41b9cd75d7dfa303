//! Peers written in Python: a virtual environment below the target folder, and a process that measures on request.

use super::{Sample, Setting};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running Python script that answers each line of JSON with one.
pub(super) struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts `script` with `package` (`name==version`) installed. The error says why that cannot be.
    pub(super) fn start(setting: &Setting, package: &str, script: &str) -> Result<Peer, String> {
        let environment = setting.folder.join("venv");
        let python = environment.join("bin/python");
        if !python.exists() {
            call(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        }
        let stamp = environment.join(format!("{package}.installed"));
        if !stamp.exists() {
            eprintln!("bench: installing {package}");
            let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            call(Command::new(&python).args(options).arg(package))?;
            std::fs::write(&stamp, "").map_err(|error| format!("{}: {error}", stamp.display()))?;
        }
        let mut child = Command::new(&python)
            .args(["-u", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("python could not be started: {error}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("python has no pipes".to_owned());
        };
        Ok(Peer { child, to, from: BufReader::new(from) })
    }

    /// Sends one request and waits for the answer: `{"ns": CPU time of an operation, "answer": "digest"}`.
    pub(super) fn measure(&mut self, request: &Value) -> Result<Sample, String> {
        let mut line = String::new();
        writeln!(self.to, "{request}").map_err(|error| format!("the peer is gone: {error}"))?;
        self.from.read_line(&mut line).map_err(|error| format!("the peer is gone: {error}"))?;
        let reply: Value = serde_json::from_str(&line).map_err(|error| format!("the peer says `{line}`: {error}"))?;
        let answer = reply["answer"].as_str().and_then(|text| text.parse().ok());
        match (reply["ns"].as_f64(), answer) {
            (Some(ns), Some(answer)) => Ok(Sample { ns, answer }),
            _ => Err(format!("the peer says {reply}")),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The script ends by itself at this request; waiting keeps no zombie behind.
        if writeln!(self.to, "{}", json!({ "end": true })).is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// Runs a command quietly; the error is the last line it wrote.
fn call(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{}: {last}", command.get_program().to_string_lossy()))
}
