//! A capture beside the kernel's own counters: what `iostat` would have shown during a small workload on a loop device
//! must come out of the trace of it. Only root can trace and make devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use iowhy_lab::iostat::DiskStats;
use iowhy_lab::trace::stat::{Ask, stat};
use iowhy_live::capture::{self, Capture, Level};
use iowhy_live::ledger::{Ledger, LoopOptions};
use iowhy_stack::trace::Dev;

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Something that this machine cannot do, which CI must be able to.
fn skip(why: &str) {
    println!("SKIPPED: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must be able to: {why}");
}

/// The counters of a disk now.
fn counters(name: &str) -> DiskStats {
    let text = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("the kernel counts");
    let fields: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    DiskStats::from_fields(&fields).expect("11, 15 or 17 fields")
}

#[test]
fn the_trace_counts_what_the_kernel_counts() {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root || !Path::new("/dev/loop-control").exists() {
        println!("SKIPPED: only root can make loop devices, where there are any");
        return;
    }
    let path = std::env::temp_dir().join(format!("iowhy-counters-{}", std::process::id()));
    fs::create_dir(&path).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    let (ledger, _) = Ledger::open_in(&scratch.0.join("state")).expect("a ledger");
    let (file, _file) = ledger.create_file(&scratch.0.join("backing")).expect("a file");
    file.set_len(32 << 20).expect("space");
    let (node, _device) = match ledger.attach_loop(&scratch.0.join("backing"), LoopOptions::default()) {
        Ok(made) => made,
        Err(error) => return skip(&error.to_string()),
    };
    let name = node.file_name().and_then(|name| name.to_str()).expect("a name of the kernel's").to_owned();
    let number = fs::metadata(&node).expect("it is there").rdev();
    let dev = Dev::new((number >> 8 & 0xfff) as u32, (number & 0xff | number >> 12 & 0xfff00) as u32);
    let ask = capture::Ask { level: Level::Layers, devices: vec![dev], ..capture::Ask::default() };
    let capture = match Capture::start_with(&ask, &ledger) {
        Ok(capture) => capture,
        Err(error) => return skip(&error.to_string()),
    };
    let before = counters(&name);
    let node = node.display().to_string();
    let (input, output) = (format!("if={node}"), format!("of={node}"));
    let jobs: [&[&str]; 4] = [
        &["if=/dev/zero", &output, "bs=4k", "count=200", "oflag=direct", "conv=notrunc"],
        &[&input, "of=/dev/null", "bs=64k", "count=100", "iflag=direct"],
        // Through the page cache: bios are merged, and a flush comes at the end.
        &["if=/dev/zero", &output, "bs=64k", "count=64", "seek=100", "conv=notrunc,fsync"],
        &[&input, "of=/dev/null", "bs=4k", "skip=4000", "count=1000"],
    ];
    for job in jobs {
        let done = Command::new("dd").args(job).output().expect("dd is everywhere");
        assert!(done.status.success(), "{job:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let kernel = counters(&name).since(&before);
    let captured = capture.stop().expect("it ends");
    assert_eq!(captured.trace.lost, 0, "the rings are large enough");
    let stat = stat(&captured.trace, &Ask::default());
    let (_, disk) = stat.disks.iter().find(|(known, _)| *known == dev).expect("it was used");
    let ours = *disk.readings.last().expect("a reading");
    let counts =
        |stats: &DiskStats| [stats.read, stats.write, stats.discard].map(|dir| (dir.ios, dir.merges, dir.sectors));
    assert_eq!((counts(&ours), ours.flush_ios), (counts(&kernel), kernel.flush_ios), "{:?}", stat.text());
    assert!(kernel.read.ios > 100 && kernel.write.ios > 200, "{kernel:?}");
    // Times are held loosely: the kernel's start of a request is not the event of its allocation, and was seen up to a
    // third earlier where many short requests are let go at once.
    for (name, ours, theirs) in [
        ("reads", ours.read.ticks_ms, kernel.read.ticks_ms),
        ("writes", ours.write.ticks_ms, kernel.write.ticks_ms),
        ("weighted", ours.weighted_ms, kernel.weighted_ms),
    ] {
        assert!(ours <= theirs + 3 && theirs <= 2 * ours + 10, "{name}: {ours} ms, the kernel has {theirs} ms");
    }
}
