//! `iowhy disk fit` of recordings, and `--disk` with the profiles that it keeps.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Folder, check_schema, text};

fn iowhy(folder: &Folder, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
    command.args(line.split_whitespace()).env("NO_COLOR", "1").env("IOWHY_STORE", folder.0.join("store"));
    command.current_dir(&folder.0).output().expect("it runs")
}

/// Reads of 4 KiB in 500 us and of 128 KiB in 2 ms, one after the other, as blkparse prints them.
fn recording() -> String {
    let (mut lines, mut at) = (String::new(), 1_000_000u64);
    for nr in 0..300u64 {
        let (sectors, ns) = if nr % 2 == 0 { (8, 500_000) } else { (256, 2_000_000) };
        let place = nr * 7919 % 1000 * 2048;
        for (action, at, pid, end) in [("D", at, 77, "[x]"), ("C", at + ns, 0, "[0]")] {
            let (s, ns) = (at / 1_000_000_000, at % 1_000_000_000);
            let what = format!("{action}   R {place} + {sectors} {end}");
            let _ = writeln!(lines, "  8,0    0 {:8} {s:5}.{ns:09} {pid:5}  {what}", nr + 1);
        }
        at += ns + 100_000;
    }
    lines
}

#[test]
fn a_recording_becomes_a_disk_of_simulated_runs() {
    let folder = Folder::new("disk-fit");
    fs::write(folder.0.join("slow.blkparse"), recording()).expect("written");
    let found = iowhy(&folder, "disk fit --trace slow.blkparse --json");
    assert!(found.status.success(), "{}", text(&found.stderr));
    let fit: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    check_schema("disk-fit", &fit);
    for (name, us) in [("read_4k_us", 500.0), ("read_128k_us", 2000.0)] {
        assert_eq!(
            (fit["fields"][name]["value"].as_f64(), fit["fields"][name]["known"].as_bool()),
            (Some(us), Some(true))
        );
    }
    assert_eq!(fit["fields"]["parallel"]["known"], false, "one at a time shows nothing of more");
    assert!(fit["held_back"]["p50_error_pct"].as_f64().expect("a number") < 1.0, "{fit}");
    let shown = iowhy(&folder, "disk fit --trace slow.blkparse -o own.toml");
    assert!(text(&shown.stdout).contains("--disk own.toml"), "{}", text(&shown.stdout));
    for disk in ["slow", "own.toml", "slow,servers=2"] {
        let line = format!(
            "run fio --name=j --rw=randread --bs=4k --direct=1 --size=64m --number_ios=200 --on sim:linux-6.18 \
             --disk {disk} --json"
        );
        let run = iowhy(&folder, &line);
        assert!(run.status.success(), "{disk}: {}", text(&run.stderr));
        assert!(text(&run.stdout).contains("measured"), "{disk}");
    }
}

#[test]
fn what_is_no_profile_is_refused_with_advice() {
    let folder = Folder::new("disk-fit-wrong");
    fs::write(folder.0.join("bad.toml"), "kind = \"measured\"\nname = 7\n").expect("written");
    fs::write(folder.0.join("mine.toml"), "important = true\n").expect("written");
    fs::write(folder.0.join("slow.blkparse"), recording()).expect("written");
    let run = "run fio --name=j --rw=read --size=1m --on sim:linux-6.18 --disk";
    for (line, says) in [
        (format!("{run} bad.toml"), "bad.toml"),
        (format!("{run} here"), "iowhy disk fit ."),
        ("disk fit --trace none.parquet".to_owned(), "none.parquet"),
        ("disk fit --trace slow.blkparse -o mine.toml".to_owned(), "mine.toml"),
    ] {
        let found = iowhy(&folder, &line);
        assert_eq!(found.status.code(), Some(2), "{line}: {}", text(&found.stderr));
        assert!(text(&found.stderr).contains(says), "{line}: {}", text(&found.stderr));
    }
    assert_eq!(fs::read_to_string(folder.0.join("mine.toml")).expect("still there"), "important = true\n");
}
