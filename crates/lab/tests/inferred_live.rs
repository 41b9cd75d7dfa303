//! The same run traced twice at once: as this kernel can, and as if it had no tracepoints of read-ahead. The windows
//! that are inferred from the second trace are compared with those of the first. Needs root; without it the test says
//! so and passes, but fails in CI.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use iowhy_lab::recording;
use iowhy_live::capture::{Ask, Capture, Captured, Level};
use iowhy_live::ledger::Ledger;
use iowhy_stack::trace::Inode;
use iowhy_trace::join::{Joined, Who, join};

/// Windows of a file by process and first page, up to its end.
fn windows(captured: &Captured, file: Inode, pages: u64) -> Vec<(u32, u64, u64)> {
    let joined: Joined = join(&captured.trace, &Who { files: vec![file], ..Who::default() });
    let mut all = Vec::new();
    for call in &joined.calls {
        for window in call.windows.iter().filter(|window| window.file == 0) {
            assert_eq!(window.inferred, captured.trace.inferred_windows);
            all.push((call.pid, window.start, (window.start + window.nr_pages).min(pages)));
        }
    }
    all.retain(|(_, start, end)| start < end);
    all
}

#[test]
fn windows_inferred_from_pages_are_those_that_the_kernel_decided_on() {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run the tests of tracing as root");
        println!("skipped: tracing the kernel needs root");
        return;
    }
    const PAGES: u64 = 1000;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inferred-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("data");
    let mut file = File::create(&path).expect("a file");
    file.write_all(&vec![3; PAGES as usize * 4096]).expect("space");
    file.sync_all().expect("it is synced");
    let metadata = file.metadata().expect("it is there");
    let inode = Inode { dev: recording::dev(metadata.dev()), ino: metadata.ino() };
    let (ledger, _) = Ledger::open_in(&folder.join("state")).expect("a ledger");
    let dd = |words: &[&str]| {
        let source = format!("if={}", path.display());
        let mut command = Command::new("dd");
        command.args([source.as_str(), "of=/dev/null", "status=none"]).args(words).stderr(Stdio::null());
        assert!(command.status().expect("dd starts").success());
    };
    let begin = |without: &[&str]| {
        let without = without.iter().map(|group| (*group).to_owned()).collect();
        let ask = Ask { level: Level::Layers, children: true, without, ..Ask::default() };
        Capture::start_with(&ask, &ledger).expect("a capture")
    };
    let (full, without) = (begin(&[]), begin(&["readahead"]));
    for words in [&["bs=4k"][..], &["bs=64k"], &["bs=16k", "skip=3", "count=1"], &["bs=100k", "skip=2"]] {
        dd(&["oflag=nocache", "iflag=nocache", "count=0"]);
        dd(words);
    }
    let (full, without) = (full.stop().expect("it ends"), without.stop().expect("it ends"));
    fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!((full.trace.lost, without.trace.lost), (0, 0));
    assert!(
        without.trace.inferred_windows && without.missing.iter().any(|name| name == "readahead:page_cache_sync_ra")
    );
    // What is inferred is said to be, whatever the kernel.
    let told = recording::complaints(&without).render();
    assert!(told.contains("no events of read-ahead"), "{told}");
    if full.trace.inferred_windows {
        println!("skipped: this kernel has no tracepoints of read-ahead");
        return;
    }
    let (decided, inferred) = (windows(&full, inode, PAGES), windows(&without, inode, PAGES));
    let same = inferred.iter().filter(|window| decided.contains(window)).count();
    println!("{} decided on, {} inferred, {same} the same", decided.len(), inferred.len());
    // However large this disk's windows are, there is one for each start of a read and some ahead of it.
    assert!(decided.len() > 8, "{decided:?}");
    assert!(same * 100 >= decided.len() * 95 && same * 100 >= inferred.len() * 95, "{decided:?}\n{inferred:?}");
}
