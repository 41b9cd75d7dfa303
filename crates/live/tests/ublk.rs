//! Modelled disks with the front ublk, in a guest whose kernel has its driver: the machine of a test seldom has.
//!
//! This program is packed into the guest. There it is the first process, then the keeper and the server of disks, and
//! the [`inside`] of the test; outside it boots the guest and looks how that ended. Without QEMU or the kernel it says
//! so and passes, but fails in CI.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::disk::{self, Change, Front, Spec, State};
use iowhy_live::guest::{self, Accelerator, Backing};
use iowhy_live::ledger::{self, Ledger};
use iowhy_stack::rng::Rng;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The kernel of the guest.
const KERNEL: &str = "debian-6.12";
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Nothing in the guest may hang longer.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if guest::is_init() {
        guest::init();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        ["disk", "keep"] => return if disk::keep() { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        ["disk", "serve"] => disk::serve().expect("it can serve"),
        ["inside"] => inside(),
        ["outside"] => outside(),
        // As a harness does: words without dashes choose tests by their names.
        ref words if words.iter().any(|word| !word.starts_with('-') && !NAME.contains(word)) => {}
        ref words if words.contains(&"--list") => println!("{NAME}: test"),
        _ if !possible() => {}
        _ => return apart(),
    }
    ExitCode::SUCCESS
}

const NAME: &str = "a_disk_with_the_front_ublk_in_a_guest";

/// Whether the guest can be made here.
fn possible() -> bool {
    let missing = |why: &str| {
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "no guest can be made: {why}");
        println!("SKIPPED: {NAME}: {why}");
        false
    };
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return missing("apt-get install qemu-system-x86");
    }
    let names = Command::new("apt-cache").args(["pkgnames", "linux-image-6.12."]).output();
    let offered = names.is_ok_and(|names| String::from_utf8_lossy(&names.stdout).contains("-cloud-amd64"));
    let cached = cache().join("iowhy/kernels").join(KERNEL).is_dir();
    offered || cached || missing("apt offers no linux-image-6.12.*-cloud-amd64; apt-get update")
}

/// Kernels that were got stay, so that the next test run need not get them again.
fn cache() -> PathBuf {
    std::env::temp_dir().join("iowhy-test-cache")
}

/// Runs the outside as a process with a state of its own.
fn apart() -> ExitCode {
    let folder = std::env::temp_dir().join(format!("iowhy-test-ublk-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&folder, private).expect("it is ours");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("outside").env("XDG_STATE_HOME", &folder).env("XDG_CACHE_HOME", cache());
    let status = command.status().expect("it starts");
    fs::remove_dir_all(&folder).expect("it was ours");
    println!("test {NAME} ... {}", if status.success() { "ok" } else { "FAILED" });
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn outside() {
    let (ledger, _) = Ledger::open().expect("a ledger");
    let (scratch, guard) = guest::scratch(&ledger).expect("a folder");
    let kernel = guest::find(KERNEL, &scratch, &ledger).expect("a kernel");
    let data = scratch.join("data");
    guest::image(&data, 1 << 20).expect("a sparse file");
    let spec = guest::Spec {
        kernel,
        backing: Backing { path: data, timed: false, depth: None },
        filesystem: None,
        settings: Vec::new(),
        modules: vec!["mq-deadline".to_owned(), "ublk".to_owned()],
        memory_mib: 512,
        cpus: 2,
        accelerator: Some(Accelerator::Tcg),
        words: vec!["inside".to_owned()],
        variables: vec![("XDG_STATE_HOME".to_owned(), "/state".to_owned())],
        files: Vec::new(),
        folder: PathBuf::from("/job"),
        input: None,
        limit: LIMIT,
    };
    let results = scratch.join("out");
    let brought = guest::run(&spec, &scratch, &results, &ledger, &|_| {}).unwrap_or_else(|error| panic!("{error}"));
    let printed = fs::read_to_string(results.join(guest::PRINTED)).unwrap_or_default();
    println!("boot {:.1} s, all {:.1} s\n{printed}", brought.boot.as_secs_f64(), brought.took.as_secs_f64());
    assert_eq!(brought.status, 0, "{}", brought.messages.join("\n"));
    assert!(printed.ends_with("done\n"), "it came to its end");
    guard.undo().expect("nothing is left");
}

/// A buffer that direct I/O takes.
#[repr(C, align(4096))]
struct Aligned([u8; 256 << 10]);

fn buffer() -> Box<Aligned> {
    Box::new(Aligned([0; 256 << 10]))
}

fn open(node: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(node).expect("the disk")
}

/// Prints a line, and writes it to the console, which the host has even when the guest never ends.
macro_rules! say {
    ($($text:tt)*) => {{
        let line = format!($($text)*);
        println!("{line}");
        let _ = fs::write("/dev/kmsg", format!("<3>{line}"));
    }};
}

/// Leaves what every thread waits for in the kernel's messages when the test does not come to its end.
fn watch() {
    std::thread::sleep(LIMIT / 2);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("task"));
    for task in processes.filter_map(|tasks| fs::read_dir(tasks).ok()).flatten().flatten() {
        let part = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        // The console keeps its last lines only: one for each thread, with the innermost functions.
        let stack = part("stack");
        let functions: Vec<&str> = stack.lines().filter_map(|line| line.split([' ', '+']).nth(1)).take(5).collect();
        if !functions.is_empty() {
            let (task, name) = (task.path(), part("comm"));
            let line = format!("<3>{} {}: {}", task.display(), name.trim(), functions.join(" < "));
            let _ = fs::write("/dev/kmsg", line);
        }
    }
}

fn number(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

/// Folders of all devices of the driver: of the block devices, and of those for the servers.
fn devices() -> Vec<PathBuf> {
    let entries = ["/sys/block", "/sys/class/ublk-char"].map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ublk")));
    found
}

fn gone() {
    let begun = Instant::now();
    while !devices().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "still there: {:?}", devices());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn spec(depth: u32) -> Spec {
    let mut spec = Spec::new("u", "fixed").expect("a model");
    // Nothing asks for the front: this kernel has it.
    (spec.bytes, spec.depth, spec.lead_ns) = (16 << 20, depth, Some(0));
    if depth < 4 {
        spec.front = Some(Front::Ublk);
    }
    spec
}

fn inside() {
    std::thread::spawn(watch);
    // A kernel is kept without the modules that nobody loaded when it was got.
    let why = "this kernel has no ublk_drv; remove the folder debian-6.12 from iowhy-test-cache";
    assert!(Path::new("/dev/ublk-control").exists(), "{why}");
    // Fewer than a loop device can have; a scheduler that holds as many as there.
    let mut wanted = spec(1);
    wanted.set_queue("scheduler", "mq-deadline");
    wanted.lead_ns = None;
    let state = disk::create(wanted).unwrap_or_else(|error| panic!("{error}"));
    settings(&state, (1, "mq-deadline", "256"));
    assert_eq!(devices().len(), 2, "{:?}", devices());
    data(&state.node);
    times(&state);
    faults(&state);
    power(&state);
    disk::remove("u").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(devices(), [] as [PathBuf; 0]);
    say!("removed");
    depths_and_partitions();
    deaths();
    unfinished();
    let left = ledger::left_behind(&ledger::state_directory()).expect("the ledgers");
    assert_eq!(left, []);
    say!("done");
}

/// What the kernel says of the disk.
fn settings(state: &State, (depth, scheduler, requests): (u32, &str, &str)) {
    assert_eq!((state.front, state.depth_found), (Front::Ublk, depth));
    let folder = Path::new("/sys/block").join(state.node.file_name().expect("a name"));
    let queue = |name: &str| number(&folder.join("queue").join(name));
    assert_eq!(number(&folder.join("size")), (state.spec.bytes / 512).to_string());
    assert!(queue("scheduler").contains(&format!("[{scheduler}]")), "{}", queue("scheduler"));
    let found = ["nr_requests", "max_hw_sectors_kb", "logical_block_size", "fua", "discard_max_bytes"].map(queue);
    assert_eq!(found, [requests, "1024", "512", "0", "0"]);
    say!("{} depth {} scheduler {scheduler} nr_requests {requests}", state.node.display(), state.depth_found);
}

/// What is written is read: by all sizes, in one queue.
fn data(node: &Path) {
    const BYTES: usize = 16 << 20;
    let (device, mut buffer, mut rng) = (open(node), buffer(), Rng::stream(1, "data"));
    let mut expected = vec![0_u8; BYTES];
    let begun = Instant::now();
    for nr in 0..150_u64 {
        let bytes = 512 << rng.below(10);
        let at = rng.below(((BYTES - bytes) / 512 + 1) as u64) as usize * 512;
        for (place, sector) in (0_u64..).zip(buffer.0[..bytes].chunks_mut(512)) {
            sector.fill((nr + place) as u8);
        }
        device.write_all_at(&buffer.0[..bytes], at as u64).expect("written");
        expected[at..at + bytes].copy_from_slice(&buffer.0[..bytes]);
        if nr % 16 == 0 {
            device.sync_all().expect("synced");
        }
    }
    for at in (0..BYTES).step_by(buffer.0.len()) {
        device.read_exact_at(&mut buffer.0, at as u64).expect("read");
        assert!(buffer.0[..] == expected[at..at + buffer.0.len()], "what was written is not read at {at}");
    }
    let took = begun.elapsed();
    // The page cache goes the same way.
    let cached = OpenOptions::new().read(true).write(true).open(node).expect("the disk");
    cached.write_all_at(&[7; 100_000], 12_345).expect("written");
    cached.sync_all().expect("synced");
    drop(cached);
    device.read_exact_at(&mut buffer.0, 0).expect("read");
    assert!(buffer.0[12_345..112_345] == [7; 100_000]);
    let counters = disk::stat("u").expect("it lives").counters;
    assert!(counters.writes >= 150 && counters.reads >= 64 && counters.flushes >= 10, "{counters:?}");
    say!("150 writes and 16 MiB of reads without a difference in {} ms", took.as_millis());
}

/// The model's times are there. A slow machine makes them longer, and nothing makes them shorter.
fn times(state: &State) {
    let (device, mut buffer) = (open(&state.node), buffer());
    let mut times: Vec<Duration> = (0..60)
        .map(|nr| {
            let begun = Instant::now();
            device.read_exact_at(&mut buffer.0[..4096], nr * 4096).expect("read");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[30] > Duration::from_micros(600), "a service takes 1 ms: {times:?}");
    let late = disk::stat("u").expect("it lives").counters;
    say!(
        "60 reads of 1 ms: median {} us, 90 % {} us; answers late by {:?} ns (median); lead {} ns",
        times[30].as_micros(),
        times[54].as_micros(),
        late.late_p50_ns,
        state.lead.ns
    );
}

fn faults(state: &State) {
    let (device, mut buffer) = (open(&state.node), buffer());
    let fault = |text: &str| {
        let change = Change::parse("fault", text).expect("a fault");
        disk::set("u", vec![change]).expect("it is set")
    };
    fault("eio:from=1m:to=2m:on=read");
    device.read_exact_at(&mut buffer.0[..4096], 0).expect("beside it");
    let error = device.read_exact_at(&mut buffer.0[..4096], 1 << 20).expect_err("a bad place");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    device.write_all_at(&buffer.0[..4096], 1 << 20).expect("it can be written");
    let errors = fault("none").counters.errors;
    device.read_exact_at(&mut buffer.0[..4096], 1 << 20).expect("it is well again");
    assert!(errors >= 1, "{errors}");
    say!("a fault failed {errors} reads");
}

/// A power cut takes what was not flushed, and nothing else.
fn power(state: &State) {
    let (device, mut buffer) = (open(&state.node), buffer());
    buffer.0.fill(1);
    device.write_all_at(&buffer.0, 0).expect("written");
    device.sync_all().expect("synced");
    buffer.0.fill(2);
    device.write_all_at(&buffer.0, 4 << 20).expect("written");
    let cut = disk::crash("u", 3).expect("it comes up again");
    let losses = cut.counters.losses.expect("there was a cut");
    let blocks = losses.kept + losses.lost + losses.torn;
    assert!(cut.counters.power && (1..=64).contains(&blocks), "{losses:?}");
    device.read_exact_at(&mut buffer.0, 0).expect("read");
    assert!(buffer.0 == [1; 256 << 10], "it was flushed");
    device.read_exact_at(&mut buffer.0, 4 << 20).expect("read");
    let kept = buffer.0.chunks(512).filter(|sector| *sector == [2; 512]).count();
    let lost = buffer.0.chunks(512).filter(|sector| sector[0] != 2).count();
    assert!(kept > 0 && lost > 0 && kept + lost == 512, "sectors are old or new: {kept} + {lost}");
    say!("a power cut kept {kept} of 512 sectors that were not flushed ({blocks} blocks)");
}

/// The front that nobody asked for is this one; as many requests are under way as were asked for; partitions.
fn depths_and_partitions() {
    let mut wanted = spec(32);
    wanted.set_queue("scheduler", "none");
    wanted.partitions = 2;
    let state = disk::create(wanted).unwrap_or_else(|error| panic!("{error}"));
    settings(&state, (32, "none", "32"));
    let (whole, part) = (open(&state.node), open(&state.partitions[1]));
    let mut buffer = buffer();
    buffer.0.fill(5);
    part.write_all_at(&buffer.0[..4096], 0).expect("written");
    buffer.0.fill(0);
    whole.read_exact_at(&mut buffer.0[..4096], 8 << 20).expect("read");
    assert!(buffer.0[..4096].iter().all(|byte| *byte == 5), "the second partition begins in the middle");
    drop(part);
    // As many tags as there were once, or fewer; another scheduler has as many requests.
    disk::set("u", vec![Change::Queue("scheduler".to_owned(), "mq-deadline".to_owned())]).expect("it is set");
    for depth in [6, 32] {
        let state = disk::set("u", vec![Change::Depth(depth)]).expect("it is set");
        settings(&state, (depth, "mq-deadline", "256"));
    }
    let more = disk::set("u", vec![Change::Depth(33)]).expect_err("there are no more").to_string();
    assert!(more.contains("4 to 32 requests") && more.contains("depth=33"), "{more}");
    // Who has it open is not waited for: it fails for them, and goes when they do.
    let begun = Instant::now();
    let message = disk::remove("u").expect_err("it is open").to_string();
    assert!(message.contains("still open elsewhere"), "{message}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    whole.read_exact_at(&mut buffer.0[..4096], 0).expect_err("there is no disk any more");
    drop(whole);
    gone();
    ledger::sweep(&ledger::state_directory()).expect("the ledgers can be read");
    say!("removed while it was open in {} ms", begun.elapsed().as_millis());
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
    pidfd_send_signal(process, Signal::KILL).expect("it is ours");
}

/// Whoever is killed, nothing hangs, and nothing is left after the ledgers have been looked through.
fn deaths() {
    for (who, both) in [("server", false), ("keeper", false), ("keeper and server", true)] {
        let state = disk::create(spec(4)).unwrap_or_else(|error| panic!("{error}"));
        let node = state.node.clone();
        // Requests are under way when it happens.
        let reader = std::thread::spawn(move || {
            let (device, mut buffer) = (open(&node), buffer());
            (0..u64::MAX).find(|nr| device.read_exact_at(&mut buffer.0[..4096], nr % 4096 * 4096).is_err())
        });
        std::thread::sleep(Duration::from_millis(50));
        let begun = Instant::now();
        if who == "server" {
            kill(state.server);
        } else {
            kill(state.keeper);
            if both {
                kill(state.server);
            }
        }
        let read = reader.join().expect("it ends").unwrap_or_default();
        if who != "server" {
            // Until its processes are gone the ledger is not looked at.
            while ledger::started(state.keeper).is_some() || ledger::started(state.server).is_some() {
                assert!(begun.elapsed() < PATIENCE, "a process lives on");
                std::thread::sleep(Duration::from_millis(5));
            }
            ledger::sweep(&ledger::state_directory()).expect("the ledgers can be read");
            assert_eq!(devices(), [] as [PathBuf; 0]);
        }
        gone();
        assert!(begun.elapsed() < PATIENCE, "{who}: {:?}", begun.elapsed());
        // The server's death is seen by its keeper, which takes away the rest a little later.
        while disk::list().expect("a folder").iter().any(|(name, _)| name == "u") {
            assert!(begun.elapsed() < PATIENCE, "{who}: it is still listed");
            std::thread::sleep(Duration::from_millis(5));
        }
        say!("{who} killed after {read} reads; everything gone after {} ms", begun.elapsed().as_millis());
    }
}

/// Keepers that are killed while they make a disk, at moments of their own.
fn unfinished() {
    const ROUNDS: u64 = 6;
    let begun = Instant::now();
    drop(disk::hold(spec(4)).unwrap_or_else(|error| panic!("{error}")));
    let whole = begun.elapsed();
    assert_eq!(devices(), [] as [PathBuf; 0]);
    let (mut rng, mut found) = (Rng::stream(7, "deaths"), 0);
    for _ in 0..ROUNDS {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(disk::KEEP).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().expect("it starts");
        let text = serde_json::to_string(&spec(4)).expect("JSON") + "\n";
        // Our end stays open: it is not the end of its maker that it hears.
        let mut line = keeper.stdin.take().expect("a pipe");
        line.write_all(text.as_bytes()).expect("it listens");
        std::thread::sleep(whole.mul_f64(rng.below(1000) as f64 / 1000.0));
        kill(keeper.id());
        keeper.wait().expect("it ends");
        found += u64::from(!devices().is_empty());
        let begun = Instant::now();
        ledger::sweep(&ledger::state_directory()).expect("the ledgers can be read");
        gone();
        let left = ledger::left_behind(&ledger::state_directory()).expect("the ledgers");
        assert!(left.is_empty() && disk::list().expect("a folder").is_empty(), "{left:?}");
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
    assert!(found > 0, "no device was there at any death");
    say!("{ROUNDS} keepers killed within {} ms of their start; {found} had a device", whole.as_millis());
}
