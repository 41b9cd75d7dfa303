//! System calls of `sysbench fileio`: six modes, each with twelve sets of options, on four files of 1 MiB.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ground, Row, SIDES, Side};

const MODES: &[&str] = &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"];
const OPTIONS: &[&str] = &[
    "",
    "--file-fsync-freq=0",
    "--file-fsync-all=on",
    "--file-fsync-end=off",
    "--file-fsync-mode=fdatasync",
    "--file-io-mode=async",
    "--file-io-mode=mmap",
    "--file-merged-requests=4",
    "--file-extra-flags=direct",
    "--file-extra-flags=sync",
    "--file-rw-ratio=3",
    "--validate",
];
/// Calls that are counted.
const CALLS: &[&str] =
    &["pread64", "pwrite64", "preadv", "pwritev", "fsync", "fdatasync", "msync", "io_submit", "unlink"];
const FILES: &[&str] = &["fileio", "--file-num=4", "--file-total-size=4M"];

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let mut cells = Vec::new();
    for (m, mode) in MODES.iter().enumerate() {
        // In the short form a third, with every mode and every option.
        for (_, option) in OPTIONS.iter().enumerate().filter(|(o, _)| ground.whole || (m + o) % 3 == 0) {
            let [peer, ours] = SIDES.map(|side| counts(ground, side, mode, option));
            let (peer, ours) = (peer?, ours?);
            if peer.get("exit") != Some(&0) {
                return Err(format!("sysbench itself fails: {mode} {option}"));
            }
            let name = format!("{mode} {option}").trim().to_owned();
            let of = |found: &BTreeMap<String, u64>, call: &str| found.get(call).copied().unwrap_or(0);
            let differ = peer.keys().chain(ours.keys()).filter(|call| of(&peer, call) != of(&ours, call));
            let differ = differ.map(|call| format!("{call} {} and {}", of(&peer, call), of(&ours, call)));
            let differ: BTreeSet<String> = differ.collect();
            let words = differ.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
            cells.push((if words.is_empty() { name } else { format!("{name} ({words})") }, differ.is_empty()));
        }
    }
    Ok(vec![Row::new("sysbench fileio, equal counts of system calls", 100, cells)])
}

/// The exit code, and how often each call was made.
fn counts(ground: &Ground, side: Side, mode: &str, option: &str) -> Result<BTreeMap<String, u64>, String> {
    let folder = ground.cell(side)?;
    // Both sides read files that sysbench has made.
    let mut prepare = ground.command(side, ground.program(Side::Peer, "sysbench"), &folder);
    prepare.args(FILES).args((option == "--validate").then_some(option)).arg("prepare");
    ground.run(&mut prepare, 60)?;
    let mut command = ground.command(side, "strace", &folder);
    command.args(["-f", "-c", "-o", "calls.txt"]).arg(ground.program(side, "sysbench")).args(FILES);
    command.args([&format!("--file-test-mode={mode}"), "--events=300", "--time=0"]);
    command.args((!option.is_empty()).then_some(option)).arg("run");
    let code = ground.run(&mut command, 60)?.code;
    let text = std::fs::read_to_string(folder.join("calls.txt")).unwrap_or_default();
    let mut found = counted(&text);
    found.insert("exit".to_owned(), code.map_or(u64::MAX, |code| code.unsigned_abs().into()));
    Ok(found)
}

/// The columns of calls and names in the table of `strace -c`.
fn counted(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, calls, .., name] = columns[..]
            && CALLS.contains(&name)
            && let Ok(calls) = calls.parse()
        {
            found.insert(name.to_owned(), calls);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_table_of_strace() {
        let text = "% time  seconds usecs/call calls errors syscall\n------ -- -- -- -- ----\n\
                    50.00 0.1 10 300 pread64\n 9.00 0.1 10 12 4 unlink\n 9.00 0.1 10 7 read\n\
                    100.00 0.2 5 319 4 total\n";
        let found: Vec<(String, u64)> = counted(text).into_iter().collect();
        assert_eq!(found, [("pread64".to_owned(), 300), ("unlink".to_owned(), 12)]);
    }
}
