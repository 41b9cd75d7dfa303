//! benchstat's table of 1,000 benchmarks with 40 values a side, as whole processes: files read, table printed.
//!
//! CPU time of the process comes from `wait4`, by way of Python, which has it without unsafe code. Both must print the
//! same text. `IOWHY_BENCHSTAT` names a benchstat that is not on the PATH.

use super::{Aim, Figure, Sample, Setting, compare};
use crate::release_binary;
use iowhy_stack::rng::Rng;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Runs what it is given and prints CPU time in ns and a checksum of what that printed.
const SCRIPT: &str = "\
import os, subprocess, sys, zlib
child = subprocess.Popen(sys.argv[2:], cwd=sys.argv[1], stdout=subprocess.PIPE)
text = child.stdout.read()
_, status, used = os.wait4(child.pid, 0)
assert status == 0, status
print(round((used.ru_utime + used.ru_stime) * 1e9), zlib.crc32(text))
sys.stdout.flush()
os._exit(0)
";

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let ours = release_binary().map_err(|error| format!("table: {error}"))?;
    let benchstat = std::env::var("IOWHY_BENCHSTAT").unwrap_or_else(|_| "benchstat".to_owned());
    let folder = setting.folder.join("table");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Eight digits hardly ever repeat, so that p-values are exact; three do, as in what Go prints.
    [("table, all values differ", 8, Some(10.0)), ("table, values repeat", 3, None)]
        .into_iter()
        .map(|(name, digits, goal)| {
            for (file, stream, factor) in [("old.txt", "bench.table.old", 1.0), ("new.txt", "bench.table.new", 1.02)] {
                let text = benchmarks(stream, factor, digits, 1_000 / setting.divisor);
                std::fs::write(folder.join(file), text).map_err(|error| format!("{file}: {error}"))?;
            }
            let line = ["compare", "--samples", "old.txt", "new.txt", "--as", "benchstat"];
            let mut measure_ours = || measure(&folder, Command::new(&ours).args(line));
            let mut measure_peer = || measure(&folder, Command::new(&benchstat).args(["old.txt", "new.txt"]));
            let there = Command::new(&benchstat).arg("old.txt").current_dir(&folder).output();
            let peer: Result<super::Measure<'_>, String> = match there {
                Ok(output) if output.status.success() => Ok(&mut measure_peer),
                _ => Err("benchstat is not installed; IOWHY_BENCHSTAT names one".to_owned()),
            };
            let aim = Aim { unit: "ms/table", peer_name: "benchstat", goal, limit: None };
            compare(setting, name.to_owned(), aim, &mut measure_ours, peer)
        })
        .collect()
}

/// CPU time of a process in ms, and a checksum of what it printed.
fn measure(folder: &Path, command: &Command) -> Result<Sample, String> {
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .map_err(|error| format!("python3 could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next()) {
        (Some(Ok(ns)), Some(Ok(answer))) => Ok(Sample { ns: ns as f64 / 1e6, answer }),
        _ => Err(format!("{}: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr))),
    }
}

/// A file of benchmarks: 40 values each, with a spread of a few percent.
fn benchmarks(stream: &str, factor: f64, digits: usize, count: usize) -> String {
    let mut rng = Rng::stream(1, stream);
    let mut text = "goos: linux\npkg: example/io\n".to_owned();
    for nr in 0..count {
        let centre = factor * 10_f64.powf(1.0 + 6.0 * nr as f64 / count as f64);
        for _ in 0..40 {
            let noise = (0..8).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() / 4.0 - 1.0;
            let value = centre * (1.0 + 0.1 * noise);
            let behind = (digits as f64 - 1.0 - value.log10().floor()).max(0.0) as usize;
            let _ = writeln!(text, "BenchmarkRead/job=j{nr}/bs=4k-8 \t 100000\t {value:.behind$} ns/op");
        }
    }
    text
}
