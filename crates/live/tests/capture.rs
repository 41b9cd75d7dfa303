//! The running kernel is traced: the events of a process that reads a file, two captures at the same time, one that is
//! killed. Needs root; without it these tests say so and pass, but fail in CI.
//!
//! The program starts itself once more for the last: with [`ROLE`] set, it captures until it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use iowhy_live::cache;
use iowhy_live::capture::flight::Flight;
use iowhy_live::capture::{Ask, Capture, Captured, Level, STACKS, Via, monotonic_ns};
use iowhy_live::ledger::{self, Guard, Ledger, LoopOptions, State};
use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Inode, Record, Rwbs, Seen};
use iowhy_stack::units::Nanos;

/// Set for the process to be killed: the folder of its ledger.
const ROLE: &str = "IOWHY_TEST_CAPTURES_IN";

/// Both ways in.
const VIAS: [Via; 2] = [Via::Tracefs, Via::Bpf];

/// One test at a time: each looks at what is left on the machine.
static ALONE: Mutex<()> = Mutex::new(());

fn permitted() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run the tests of tracing as root");
        println!("skipped: tracing the kernel needs root");
    }
    root
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        // Not a file system in memory: that has no block layer.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capture-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Scratch(path)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn ledger(&self) -> Ledger {
        Ledger::open_in(&self.state()).expect("a ledger").0
    }

    /// A file of this many pages on the disk, none of them cached.
    fn cold(&self, name: &str, pages: usize) -> (PathBuf, Inode) {
        let path = self.0.join(name);
        let mut file = File::create(&path).expect("a file");
        file.write_all(&vec![7; pages * 4096]).expect("space");
        file.sync_all().expect("it is synced");
        cache::drop_clean(&file).expect("it is synced");
        let metadata = file.metadata().expect("it is there");
        let dev = Dev::new(libc::major(metadata.dev()), libc::minor(metadata.dev()));
        (path, Inode { dev, ino: metadata.ino() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Mounts of ours.
fn mounts(of: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    all.lines().filter(|line| line.contains(&*of.to_string_lossy())).map(str::to_owned).collect()
}

fn cat(path: &Path) -> u32 {
    let mut child = Command::new("cat").arg(path).stdout(Stdio::null()).spawn().expect("cat starts");
    let pid = child.id();
    assert!(child.wait().expect("it ends").success());
    pid
}

fn pages_added(captured: &Captured, file: Inode) -> u64 {
    let of = |seen: &Seen| match seen {
        Seen::PageAdd { file: of, order, .. } if *of == file => 1 << order,
        _ => 0,
    };
    captured.trace.records.iter().map(|record| of(&record.seen)).sum()
}

#[test]
fn a_process_that_reads_a_file_is_seen_on_every_layer() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("layers");
    for (level, via) in Level::ALL.into_iter().flat_map(|level| VIAS.map(|via| (level, via))) {
        let (path, inode) = scratch.cold("data", 200);
        let ask = Ask { level, children: true, via: Some(via), ..Ask::default() };
        let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
        let pid = cat(&path);
        let captured = capture.stop().expect("it ends");
        println!(
            "{level:?} via {}: {:?}, {} records, missing {:?}",
            via.name(),
            captured.cost,
            captured.trace.records.len(),
            captured.missing
        );
        let trace = &captured.trace;
        assert_eq!((trace.lost, captured.undecoded, captured.over_memory), (0, 0, 0));
        assert!(trace.records.is_sorted_by_key(|record| record.at));
        let last = trace.records.last().expect("something was seen");
        assert!(Duration::from_nanos(last.at.0) <= captured.length, "{} {:?}", last.at, captured.length);
        let count = |what: fn(&Seen) -> bool| trace.records.iter().filter(|record| what(&record.seen)).count();
        // A file on the disk of the machine is read by requests, whatever that disk is.
        let read = |seen: &Seen| matches!(seen, Seen::Issue(extent) if extent.rwbs.has(Rwbs::READ));
        let done = |seen: &Seen| matches!(seen, Seen::Complete { extent, error: 0 } if extent.rwbs.has(Rwbs::READ));
        assert!(count(read) > 0 && count(done) > 0, "{} issued, {} completed", count(read), count(done));
        if level == Level::Light {
            assert_eq!(count(|seen| !matches!(seen, Seen::Issue(_) | Seen::Complete { .. })), 0);
            continue;
        }
        assert_eq!(pages_added(&captured, inode), 200);
        assert_eq!(trace.name(pid), Some("cat"));
        let bytes: i64 = (trace.records.iter())
            .filter(|record| record.pid == pid)
            .map(|record| match record.seen {
                Seen::CallEnd { op: Op::Read, result } if result > 0 => result,
                _ => 0,
            })
            .sum();
        // The dynamic linker reads, too; `cat` may copy within the kernel, but not to a device such as /dev/null.
        assert!(bytes >= 200 * 4096, "{bytes} bytes read");
        assert!(count(|seen| matches!(seen, Seen::Queue(_))) > 0);
        assert_eq!(count(|seen| matches!(seen, Seen::GetPages { .. })) > 0, level == Level::Full);
        // When tasks run is known where tasks are named; what says which file a descriptor is belongs to the calls, and
        // rare events of reclaim, journals and dirty limits are of the usual level; the rest is of the highest one.
        assert!(count(|seen| matches!(seen, Seen::Switch { .. })) > 0);
        let of_files = ["syscalls:", "task:", "iowhy:", "vmscan:", "jbd2:", "writeback:balance_dirty_pages"];
        let others = |of_files_too: bool| {
            let of = |seen: &Seen| match seen {
                Seen::Other { name, .. } => of_files_too == of_files.iter().any(|group| name.starts_with(group)),
                _ => false,
            };
            trace.records.iter().filter(|record| of(&record.seen)).count()
        };
        assert!(others(true) > 0);
        assert!(others(false) == 0 || level == Level::Full);
        if !trace.inferred_windows {
            let window = |seen: &Seen| matches!(seen, Seen::RaOrder { .. } | Seen::RaUnbounded { .. });
            assert!(trace.records.iter().any(|record| record.pid == pid && window(&record.seen)));
            let asked =
                |seen: &Seen| matches!(seen, Seen::RaSync { file, input } if file.ino != 0 && input.ra_pages > 0);
            assert!(count(asked) > 0);
        }
        // Nobody else's calls.
        let calls = |seen: &Seen| matches!(seen, Seen::CallStart { .. } | Seen::CallEnd { .. });
        assert!(trace.records.iter().filter(|record| calls(&record.seen)).all(|record| record.pid == pid));
    }
    assert_eq!(mounts(&scratch.0), Vec::<String>::new());
    assert_eq!(fs::read_dir(scratch.state()).expect("the folder").count(), 0, "nothing is left");
}

/// A program with frame pointers that waits for its standard input, in a function that another one has called.
const WAITS: &str = "#include <unistd.h>
__attribute__((noinline)) long row_is_read(char *to) { long n = read(0, to, 1); __asm__ volatile(\"\"); return n; }
__attribute__((noinline)) long table_is_read(char *to) { long n = row_is_read(to); __asm__ volatile(\"\"); return n; }
int main(void) { char byte; return table_is_read(&byte) != 1; }
";

/// Who has called a task that waits is known by name, from BPF; tracefs says that it has no stacks.
#[test]
fn stacks_of_waiting_tasks_are_recorded_on_request() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("stacks");
    let (source, program) = (scratch.0.join("waits.c"), scratch.0.join("waits"));
    fs::write(&source, WAITS).expect("space");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]).args([&program, &source]);
    assert!(compiler.status().expect("a C compiler, which links this test, too").success());
    for (via, stacks) in [(Some(Via::Bpf), true), (None, true), (Some(Via::Tracefs), true), (Some(Via::Bpf), false)] {
        let ask = Ask { children: true, via, stacks, ..Ask::default() };
        let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
        let mut waits = Command::new(&program).stdin(Stdio::piped()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(100));
        waits.stdin.take().expect("a pipe").write_all(b"x").expect("it reads");
        assert!(waits.wait().expect("it ends").success());
        let captured = capture.stop().expect("it ends");
        let records = &captured.trace.records;
        let of = |record: &Record| match &record.seen {
            Seen::Other { name, fields } if name == "iowhy:stack" => Some(fields.clone()),
            _ => None,
        };
        let found: Vec<String> = records.iter().filter(|record| record.pid == waits.id()).filter_map(of).collect();
        println!("{via:?}, {stacks}: {found:?}, missing {:?}, {:?}", captured.missing, captured.cost);
        let recorded = stacks && via != Some(Via::Tracefs);
        assert_eq!(captured.missing.iter().any(|missing| missing == STACKS), stacks && !recorded);
        let whole = |fields: &String| fields.ends_with(";main;table_is_read;row_is_read;read");
        assert_eq!(found.iter().any(whole), recorded, "{found:?}");
        assert_eq!(found.is_empty(), !recorded);
        // Each stands before the switch that it is of.
        for (nr, _) in records.iter().enumerate().filter(|(_, record)| of(record).is_some()) {
            let mut rest = records[nr + 1..].iter().filter(|record| record.pid == records[nr].pid);
            assert!(matches!(rest.next().expect("a switch").seen, Seen::Switch { state, .. } if state != 0));
        }
    }
}

/// What was opened and when nobody told more than a descriptor: records of our own say which file that is.
#[test]
fn descriptors_are_known_by_their_files() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("descriptors");
    let (path, inode) = scratch.cold("data", 8);
    // All of it is cached now, and no page of it will be added.
    cat(&path);
    let held = File::open(&path).expect("the file");
    let capture = Capture::start_with(&Ask { children: true, ..Ask::default() }, &scratch.ledger()).expect("a capture");
    let opener = cat(&path);
    let mut inherits = Command::new("cat").stdin(held).stdout(Stdio::null()).spawn().expect("cat starts");
    let inheritor = inherits.id();
    assert!(inherits.wait().expect("it ends").success());
    let captured = capture.stop().expect("it ends");
    assert_eq!(pages_added(&captured, inode), 0);
    let said = |pid: u32, wanted: &str| {
        let fields = format!("kind=file dev={},{} ino={}", inode.dev.major(), inode.dev.minor(), inode.ino);
        let of =
            |seen: &Seen| matches!(seen, Seen::Other { name, fields: all } if name == wanted && all.contains(&fields));
        captured.trace.records.iter().any(|record| record.pid == pid && of(&record.seen))
    };
    assert!(said(opener, "iowhy:opened"));
    assert!(!said(inheritor, "iowhy:opened"));
    assert!(captured.trace.paths.iter().any(|(file, name)| *file == inode && Path::new(name) == path));
    // What the child has was copied from what we had.
    let own = rustix::thread::gettid().as_raw_pid().unsigned_abs();
    assert!(said(own, "iowhy:descriptor"));
    let other = |pid: u32, wanted: &str| {
        let of = |seen: &Seen| matches!(seen, Seen::Other { name, .. } if name.contains(wanted));
        captured.trace.records.iter().any(|record| record.pid == pid && of(&record.seen))
    };
    assert!(other(own, "task_newtask") && other(inheritor, "sys_enter_dup2") && other(inheritor, "sys_exit_execve"));
}

#[test]
fn only_the_files_and_devices_asked_for_are_seen() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("filters");
    for via in VIAS {
        only_files_and_devices(&scratch, via);
    }
}

fn only_files_and_devices(scratch: &Scratch, via: Via) {
    let (wanted, inode) = scratch.cold("wanted", 64);
    let (other, _) = scratch.cold("other", 64);
    // No device has this number, so no bio or request may be seen.
    let ask = Ask { inodes: vec![inode], devices: vec![Dev::new(4000, 3)], via: Some(via), ..Ask::default() };
    let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
    let pid = cat(&wanted);
    cat(&other);
    let mut captured = capture.stop().expect("it ends");
    captured.name_files([(inode, "wanted".to_owned())]);
    assert_eq!(pages_added(&captured, inode), 64);
    assert!(!captured.missing.iter().any(|missing| missing.contains("filter")), "{:?}", captured.missing);
    for record in &captured.trace.records {
        match &record.seen {
            Seen::PageAdd { file, .. } | Seen::RaSync { file, .. } | Seen::RaOrder { file, .. } => {
                assert_eq!((*file, record.pid), (inode, pid));
            }
            Seen::Queue(_) | Seen::Issue(_) | Seen::Complete { .. } => panic!("{record:?}"),
            _ => {}
        }
    }
    // No process was named: the calls of all are seen, but not our own.
    let me = std::process::id();
    assert!(
        captured.trace.records.iter().any(|record| record.pid == pid && matches!(record.seen, Seen::CallEnd { .. }))
    );
    assert!(!captured.trace.records.iter().any(|record| record.pid == me));
}

#[test]
fn pages_that_others_take_away_are_seen_until_the_cache_was_looked_at() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("leaving");
    let (path, inode) = scratch.cold("data", 50);
    // Started before, so it is not followed. Each line makes it drop the pages.
    let mut other = Command::new("sh")
        .args(["-c", "while read -r line; do dd if=\"$0\" iflag=nocache count=0 status=none; echo; done"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let (mut ask_other, told) = (other.stdin.take().expect("a pipe"), other.stdout.take().expect("a pipe"));
    let mut told = BufReader::new(told);
    let mut drop_pages = || {
        ask_other.write_all(b"\n").expect("it reads");
        told.read_line(&mut String::new()).expect("it answers");
    };
    let all = [(Level::Layers, 0), (Level::Full, 100)];
    for ((level, seen), via) in all.into_iter().flat_map(|one| VIAS.map(|via| (one, via))) {
        let ask = Ask { level, children: true, via: Some(via), ..Ask::default() };
        let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
        cat(&path);
        drop_pages();
        cat(&path);
        let captured = capture.stop_and(|_| drop_pages()).expect("it ends");
        let pages = |record: &Record| match record.seen {
            Seen::PageRemove { file, order, .. } if file == inode => 1 << order,
            _ => 0,
        };
        assert!(captured.trace.records.is_sorted_by_key(|record| record.at));
        let left: u64 = captured.trace.records.iter().map(pages).sum();
        assert_eq!(
            (pages_added(&captured, inode), left),
            (100, seen),
            "{level:?} {via:?}: pages added, pages that left"
        );
    }
    drop(ask_other);
    other.wait().expect("it ends");
}

#[test]
fn threads_of_a_process_are_followed_and_lost_events_counted() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("threads");
    let (path, inode) = scratch.cold("data", 64);
    const CALLS: u64 = 50_000;
    let work = || {
        let file = File::open(&path).expect("the file");
        let mut page = [0; 4096];
        (0..CALLS).for_each(|nr| file.read_exact_at(&mut page, nr % 64 * 4096).expect("bytes"));
    };
    let calls = |captured: &Captured| {
        let of = |seen: &Seen| matches!(seen, Seen::CallStart { op: Op::Read, len_bytes: 4096, offset: Some(_), .. });
        captured.trace.records.iter().filter(|record| of(&record.seen)).count() as u64
    };
    let all = [(Vec::new(), 256), (vec![std::process::id()], 256), (Vec::new(), 1)];
    for ((pids, memory_mib), via) in all.into_iter().flat_map(|one| VIAS.map(|via| (one.clone(), Some(via)))) {
        let ask = Ask { children: pids.is_empty(), pids, inodes: vec![inode], memory_mib, via, ..Ask::default() };
        let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
        std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.into_iter().for_each(|thread| thread.join().expect("it works"));
        });
        let captured = capture.stop().expect("it ends");
        println!("{via:?}: {} calls, {} lost, {:?}", calls(&captured), captured.trace.lost, captured.cost);
        assert_eq!(captured.undecoded, 0);
        if memory_mib == 1 {
            assert!(captured.over_memory > 0 && captured.trace.lost >= captured.over_memory);
            assert!(captured.trace.records.len() as u64 + captured.over_memory >= 4 * CALLS, "all are accounted for");
        } else if captured.trace.lost == 0 {
            assert_eq!(calls(&captured), 2 * CALLS);
        } else {
            // A machine that is too slow says so; all are accounted for.
            assert!(captured.trace.records.len() as u64 + captured.trace.lost >= 4 * CALLS);
        }
    }
    // A ring this small cannot hold what comes between two looks of a reader that has to wait for a CPU: more threads
    // work than there are. Should one capture keep up all the same, all of it must be there, and another is tried.
    const THREADS: u64 = 8;
    for via in VIAS {
        let mut lost = 0;
        for _ in 0..10 {
            let ask = Ask { children: true, buffer_kib: 4, via: Some(via), ..Ask::default() };
            let capture = Capture::start_with(&ask, &scratch.ledger()).expect("a capture");
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                threads.into_iter().for_each(|thread| thread.join().expect("it works"));
            });
            let captured = capture.stop().expect("it ends");
            println!("{via:?}, small ring: {} calls, {} lost", calls(&captured), captured.trace.lost);
            assert!(captured.trace.records.len() as u64 + captured.trace.lost >= 2 * THREADS * CALLS);
            lost = captured.trace.lost;
            if lost > 0 {
                break;
            }
            assert_eq!(calls(&captured), THREADS * CALLS, "nothing was lost");
        }
        assert!(lost > 0, "ten captures with a ring of 4 KiB lost nothing, {via:?}");
    }
}

#[test]
fn two_captures_at_once_do_not_disturb_each_other() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("two");
    let ask = |inode| Ask { inodes: vec![inode], ..Ask::default() };
    let (one, inode_one) = scratch.cold("one", 64);
    let (two, inode_two) = scratch.cold("two", 96);
    let first = Capture::start_with(&ask(inode_one), &scratch.ledger()).expect("a capture");
    let second = Capture::start_with(&ask(inode_two), &scratch.ledger()).expect("another");
    cat(&one);
    let first = first.stop().expect("it ends while the other goes on");
    cat(&two);
    let second = second.stop().expect("it ends");
    assert_eq!((pages_added(&first, inode_one), pages_added(&first, inode_two)), (64, 0));
    assert_eq!((pages_added(&second, inode_one), pages_added(&second, inode_two)), (0, 96));
    assert_eq!(mounts(&scratch.0), Vec::<String>::new());
    assert_eq!(fs::read_dir(scratch.state()).expect("the folder").count(), 0, "nothing is left");
}

#[test]
fn the_next_start_removes_what_a_killed_capture_left() {
    if let Some(state) = std::env::var_os(ROLE) {
        let (ledger, _) = Ledger::open_in(Path::new(&state)).expect("a ledger");
        let _capture = Capture::start_with(&Ask::default(), &ledger).expect("a capture");
        println!("\nstarted");
        std::io::stdout().flush().expect("the parent listens");
        // Until it is killed.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("killed");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_next_start_removes_what_a_killed_capture_left", "--nocapture"])
        .env(ROLE, scratch.state())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts once more");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "started")), "it did not start");
    let living = ledger::sweep(&scratch.state()).expect("a sweep");
    assert_eq!(living, [], "what a living one has made is left alone");
    child.kill().expect("it can be killed");
    child.wait().expect("it has ended");
    let left = ledger::left_behind(&scratch.state()).expect("a list");
    assert!(left.len() >= 2 && left.iter().all(|left| left.state == State::There), "{left:#?}");
    let undone = ledger::sweep(&scratch.state()).expect("a sweep");
    assert!(undone.iter().all(|left| left.state == State::Undone), "{undone:#?}");
    assert_eq!(ledger::left_behind(&scratch.state()).expect("a list"), []);
    assert_eq!(mounts(&scratch.0), Vec::<String>::new());
}

/// Reads of one page each, by a process of their own, past the cache: its number.
fn read_directly(path: &Path, nr: usize) -> u32 {
    let words = [format!("if={}", path.display()), format!("count={nr}")];
    let mut child = Command::new("dd");
    child.args(words).args(["of=/dev/null", "bs=4k", "iflag=direct"]).stderr(Stdio::null());
    let mut child = child.spawn().expect("dd starts");
    let pid = child.id();
    assert!(child.wait().expect("it ends").success());
    pid
}

/// The number of calls of a page on standard input, and of requests, of a process.
fn counted(captured: &Captured, process: u32) -> (usize, usize) {
    let of = |wanted: fn(&Seen) -> bool| {
        captured.trace.records.iter().filter(|record| record.pid == process && wanted(&record.seen)).count()
    };
    let call = |seen: &Seen| matches!(seen, Seen::CallStart { op: Op::Read, fd: 0, len_bytes: 4096, .. });
    (of(call), of(|seen| matches!(seen, Seen::Insert(extent) | Seen::Issue(extent) if extent.bytes == 4096)))
}

#[test]
fn a_flight_recorder_has_the_last_while_whole_and_in_order() {
    const NR: usize = 300;
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("flight");
    let (path, inode) = scratch.cold("data", NR);
    let ledger = scratch.ledger();
    let start = |memory, watch| Flight::start(&Ask::default(), &ledger, memory, watch).expect("it is armed");
    // Two of them, one of which is watched, and somebody else's capture: none disturbs another.
    let (mut first, mut second, mut small) = (start(64 << 20, false), start(64 << 20, true), start(1 << 20, false));
    let other = Capture::start_with(&Ask::default(), &ledger).expect("a capture");
    let whole = Duration::from_secs(600);
    let mut latencies = 0;
    for _ in 0..5 {
        let process = read_directly(&path, NR);
        latencies += second.completed().len();
        let captured = first.cut(whole).expect("a cut");
        assert_eq!((captured.trace.lost, captured.undecoded), (0, 0));
        assert!(captured.trace.records.is_sorted_by_key(|record| record.at));
        assert!(captured.length >= Duration::from_nanos(captured.trace.records.last().expect("records").at.0));
        assert_eq!(counted(&captured, process).0, NR, "{:?}", captured.cost);
        assert!(captured.trace.paths.iter().any(|(file, _)| *file == inode), "the file has its name");
    }
    let process = read_directly(&path, NR);
    // What the kernel has yet to hand out comes with one of the next looks.
    let begun = std::time::Instant::now();
    while latencies < 6 * NR && begun.elapsed() < Duration::from_secs(10) {
        latencies += second.completed().len();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(latencies >= 6 * NR, "{latencies}");
    let captured = second.cut(whole).expect("a cut");
    let all = counted(&captured, process);
    assert_eq!((all.0, captured.trace.lost), (NR, 0));
    // The window is the end of it, and shorter.
    let process = read_directly(&path, NR);
    let captured = second.cut(Duration::from_millis(1)).expect("a cut");
    assert!(captured.length == Duration::from_millis(1) && counted(&captured, process).0 < NR);
    // What was overwritten is cut off where the first ring begins: of what is left no call lacks its request.
    let mut process = 0;
    for _ in 0..20 {
        process = read_directly(&path, NR);
    }
    let captured = small.cut(whole).expect("a cut");
    let (calls, requests) = counted(&captured, process);
    assert!(captured.trace.lost == 0 && calls > 10 && captured.length < small.since() + whole, "{calls} calls");
    assert!(all.1 == 0 || requests.abs_diff(calls * all.1 / NR) <= 2, "{calls} calls, {requests} requests");
    assert_eq!(counted(&other.stop().expect("it ends"), process).0, NR);
    drop((first, second, small));
    assert_eq!(ledger::left_behind(&scratch.state()).expect("a list"), []);
}

/// Set for the process that does the work of [`both_ways_record_the_same`]: the device.
const WORKS_ON: &str = "IOWHY_TEST_WORKS_ON";

/// Reads through the page cache and past it, writes with syncs, discards, faults of a mapping, a thread and a process.
fn work_on(device: &Path) {
    let mut file = File::options().read(true).write(true).open(device).expect("the device");
    let mut buffer = vec![0; 64 << 10];
    (0..32).for_each(|_| file.read_exact(&mut buffer).expect("bytes"));
    (0..4).for_each(|nr| file.read_exact_at(&mut buffer[..5000], 9_999_000 * (4 - nr)).expect("bytes"));
    let past = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(device).expect("the device");
    let mut pages = vec![0; 9 << 10];
    let from = pages.as_ptr().align_offset(512);
    (0..200).for_each(|nr| past.read_exact_at(&mut pages[from..from + 4096], nr * 4096 * 7).expect("bytes"));
    (0..8).for_each(|nr| file.write_all_at(&buffer, (40 << 20) + (nr << 16)).expect("space"));
    file.sync_data().expect("it is synced");
    past.write_all_at(&pages[from..from + 4096], 50 << 20).expect("space");
    file.sync_all().expect("it is synced");
    use rustix::fs::{FallocateFlags, fallocate};
    for flags in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
        // A device that does not support it is none the worse.
        let _ = fallocate(&file, flags | FallocateFlags::KEEP_SIZE, 52 << 20, 1 << 20);
    }
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping, where the kernel likes, of a device that stays as large as it is; it is never undone.
    let pages: &[u8] = unsafe {
        let at = mmap(std::ptr::null_mut(), 8 << 20, ProtFlags::READ, MapFlags::SHARED, &file, 20 << 20);
        std::slice::from_raw_parts(at.expect("a mapping").cast(), 8 << 20)
    };
    assert_eq!((0..64).map(|nr| u32::from(pages[(nr * 29) << 12])).sum::<u32>(), 64);
    std::thread::scope(|scope| scope.spawn(|| file.read_at(&mut [0; 100], 30 << 20)).join())
        .expect("a thread")
        .expect("bytes");
    assert!(Command::new("true").status().expect("a process").success());
}

/// A loop device on a file in memory, and its number.
fn disk(scratch: &Scratch) -> (PathBuf, Dev, Guard) {
    let path = Path::new("/dev/shm").join(format!("iowhy-capture-{}", std::process::id()));
    let ledger = scratch.ledger();
    let (files, file) = ledger.create_files(std::slice::from_ref(&path)).expect("a file");
    files[0].write_all_at(&vec![1; 64 << 20], 0).expect("space");
    let (node, attached) = ledger.attach_loop(&path, LoopOptions::default()).expect("a loop device");
    let number = fs::metadata(&node).expect("the device").rdev();
    (node, Dev::new(libc::major(number), libc::minor(number)), file.and(attached))
}

/// Records of the same kind, task and CPU have to be the same in both, in their order, and within a millisecond; yields
/// how many there are, and what differs.
fn compare(one: &[Record], other: &[Record]) -> (BTreeMap<String, usize>, Vec<String>) {
    const APART_NS: u64 = 1_000_000;
    type Key = (String, u32, u32);
    let sorted = |records: &[Record]| -> BTreeMap<Key, Vec<Record>> {
        let mut all: BTreeMap<Key, Vec<Record>> = BTreeMap::new();
        for record in records {
            let kind = match &record.seen {
                Seen::Other { name, .. } => name.clone(),
                seen => format!("{seen:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
            };
            all.entry((kind, record.pid, record.cpu)).or_default().push(record.clone());
        }
        all
    };
    let (one, other) = (sorted(one), sorted(other));
    let (mut counts, mut differ) = (BTreeMap::new(), Vec::new());
    let keys: BTreeSet<&Key> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let [one, other] = [&one, &other].map(|all| all.get(key).map_or(&[][..], Vec::as_slice));
        *counts.entry(key.0.clone()).or_default() += one.len();
        if one.len() != other.len() {
            let longer = if one.len() > other.len() { one } else { other };
            let more = &longer[one.len().min(other.len())..];
            differ.push(format!("{key:?}: {} and {}: {:?} at the end", one.len(), other.len(), more.first()));
        }
        let apart =
            |(one, other): &(&Record, &Record)| one.seen != other.seen || one.at.0.abs_diff(other.at.0) > APART_NS;
        differ.extend(one.iter().zip(other).find(apart).map(|pair| format!("{pair:?}")));
    }
    (counts, differ)
}

#[test]
fn both_ways_record_the_same() {
    if let Some(device) = std::env::var_os(WORKS_ON) {
        std::io::stdin().read_line(&mut String::new()).expect("the parent says when");
        return work_on(Path::new(&device));
    }
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("both");
    let (device, number, _made) = disk(&scratch);
    // By process with what it starts, where block events are those of the whole machine; by device; of all.
    for (by_process, by_device) in [(true, false), (false, true), (true, true)] {
        let mut worker = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "both_ways_record_the_same", "--nocapture"])
            .env(WORKS_ON, &device)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts once more");
        let pid = worker.id();
        std::thread::sleep(Duration::from_millis(200));
        let captures = VIAS.map(|via| {
            let pids = Vec::from_iter(by_process.then_some(pid));
            let devices = Vec::from_iter(by_device.then_some(number));
            let ask = Ask { level: Level::Full, pids, devices, via: Some(via), ..Ask::default() };
            Capture::start_with(&ask, &scratch.ledger()).expect("a capture")
        });
        let begun = monotonic_ns();
        worker.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        assert!(worker.wait().expect("it ends").success());
        let ended = monotonic_ns();
        let ours: BTreeSet<u32> = fs::read_dir("/proc/self/task")
            .expect("threads")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let captured = captures.map(|capture| {
            let captured = capture.stop().expect("it ends");
            assert_eq!((captured.trace.lost, captured.undecoded), (0, 0));
            println!("missing {:?}, {:?}", captured.missing, captured.cost);
            captured
        });
        // Wherever tracefs is mounted, or not.
        assert_eq!(captured[0].missing, captured[1].missing);
        // Neither sees itself, but the other; what names descriptors is not of the kernel.
        let names = |seen: &Seen| matches!(seen, Seen::Other { name, .. } if name.starts_with("iowhy:"));
        // With a filter by process, tracefs of Linux 6.18 has no switch from the idle task of any CPU but the first.
        let idle = |record: &Record| record.pid == 0 && matches!(record.seen, Seen::Switch { .. });
        let records = captured.each_ref().map(|captured| {
            let of = |record: &&Record| {
                let at = record.at.0 + captured.monotonic_ns;
                let whole = by_process || record.seen.extent().is_some() || record.seen.file().is_some();
                at > begun
                    && at < ended
                    && whole
                    && !ours.contains(&record.pid)
                    && !names(&record.seen)
                    && !idle(record)
            };
            let all = captured.trace.records.iter().filter(of).map(|record| {
                let mut record = Record { at: Nanos(record.at.0 + captured.monotonic_ns), ..record.clone() };
                // The parent of a task that ends (0x20) may make it a dead one (0x10) meanwhile.
                if let Seen::Switch { state: state @ 0x10, .. } = &mut record.seen {
                    *state = 0x20;
                }
                record
            });
            let mut all: Vec<Record> = all.collect();
            // A capture keeps pages that others drop if these, or the files, have to do with the rest of it: here with
            // the rest of what both have, since one begins earlier and ends later.
            let removed = |record: &Record| matches!(record.seen, Seen::PageRemove { .. });
            let rest = || all.iter().filter(|record| !removed(record));
            let at_work: BTreeSet<u32> = rest().map(|record| record.pid).collect();
            let touched: BTreeSet<Inode> = rest().filter_map(|record| record.seen.file()).collect();
            let wanted = |record: &Record| {
                at_work.contains(&record.pid) || record.seen.file().is_some_and(|file| touched.contains(&file))
            };
            all.retain(|record| !removed(record) || wanted(record));
            all
        });
        let (counts, differ) = compare(&records[0], &records[1]);
        println!("by process {by_process}, by device {by_device}: {counts:?}");
        assert!(differ.is_empty(), "{} differ: {:#?}", differ.len(), &differ[..differ.len().min(8)]);
        let least = |kind: &str, least: usize| {
            let count = counts.get(kind).copied().unwrap_or(0);
            assert!(count >= least, "{count} of {kind}");
        };
        for (kind, nr) in [("Queue", 200), ("Issue", 200), ("Complete", 250), ("PageAdd", 100), ("Fault", 40)] {
            least(kind, nr);
        }
        if by_process {
            for (kind, nr) in [("CallStart", 250), ("CallEnd", 250), ("Switch", 100), ("Plug", 10)] {
                least(kind, nr);
            }
            least("task:task_newtask", 2);
            least("task:task_rename", 1);
            least("syscalls:sys_enter_openat", 2);
        }
        // It can fail: one that is missing, altered or late is noticed.
        let place = records[1].iter().position(|record| matches!(record.seen, Seen::Issue(_))).expect("an issue");
        let mut altered = records[1].clone();
        altered[place].at.0 += 2_000_000;
        assert_eq!(compare(&records[0], &altered).1.len(), 1);
        altered.remove(place);
        assert_ne!(compare(&records[0], &altered).1, Vec::<String>::new());
        let mut altered = records[1].clone();
        let Seen::Issue(extent) = &mut altered[place].seen else { panic!("it is one") };
        extent.rwbs = extent.rwbs.with(Rwbs::META);
        assert_eq!(compare(&records[0], &altered).1.len(), 1);
    }
}
