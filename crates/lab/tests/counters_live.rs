//! A capture beside the kernel's own counters and beside `iostat`: every column of `iostat -x` must come out of the
//! trace of the same work. Only root can trace and make devices.
//!
//! What may differ, and by how much, follows from how both are made; nothing here is fitted to what was seen.
//! - Counts are equal. The interval is iostat's own, in hundredths of a second; its counts over the interval that it
//!   printed say which. So rates and sizes differ by their rounding to two digits, 0.01 at most.
//! - The kernel gives each sum of times in whole ms. A difference of two such is off by less than 1 ms either way; ours
//!   is up to 1 ms too small.
//! - The kernel takes the end of a request after the ends of its bios, where no event is that we capture; we take C.
//!   `block_io_done` comes right after the kernel's. The sum of the times between the two is measured beside the
//!   capture and is what the kernel may have more. Its text is rounded to us.
//! - A kernel from 6.9 on may or may not keep the start of a plug while its task is preempted (it should not, but did
//!   until 2026). One of the two must fit all columns.
//! - `%util` is the number of ticks of the clock at which something was in flight. The same is counted in our trace,
//!   with the kernel's ends, for 16 phases of the clock; the kernel's must be among them, give or take a tick that
//!   comes late. On a machine that is busy, more of them do, and nothing tells when: then, if all else fits, it is done
//!   once more, and in one attempt this must fit, too.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::capture::{self, Capture, Captured, Level};
use iowhy_live::ledger::{Guard, Ledger, LoopOptions};
use iowhy_stack::trace::{Dev, Rwbs, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_trace::iostat::{self, DiskStats, Host, Sample};
use iowhy_trace::stat::{Ask, stat};
use serde_json::Value;

/// The intervals that iostat is asked for, one after the other: a machine that has much else to do needs longer, and
/// its clock ticks late now and then.
const INTERVALS: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// Phases of the clock that are tried.
const PHASES: u64 = 16;

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

/// Waits until nobody uses a new disk any more: udev looks at it.
fn settle(name: &str) {
    let mut before = counters(name);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(200));
        let now = counters(name);
        if now == before {
            return;
        }
        before = now;
    }
    panic!("somebody else uses {name}");
}

/// Length of a tick of the kernel's clock, ns: how far its count gets while we look.
fn tick_ns() -> Option<u64> {
    let look = || {
        let text = fs::read_to_string("/proc/timer_list").ok()?;
        let now: u64 = text.lines().find_map(|line| line.strip_prefix("now at ")?.split(' ').next()?.parse().ok())?;
        let jiffies: u64 = text.lines().find_map(|line| line.strip_prefix("jiffies: ")?.parse().ok())?;
        Some((now, jiffies))
    };
    let before = look()?;
    std::thread::sleep(Duration::from_millis(500));
    let after = look()?;
    let hz = (after.1 - before.1) as f64 * 1e9 / (after.0 - before.0) as f64;
    let known = [100_u32, 250, 300, 1000];
    let near = known.into_iter().min_by_key(|known| (f64::from(*known) - hz).abs() as u64);
    near.map(|hz| 1_000_000_000 / u64::from(hz))
}

/// Which of the four groups of counters, by the kernel's letters.
fn group(read: bool, write: bool, discard: bool) -> usize {
    match (discard, read, write) {
        (true, ..) => 2,
        (_, true, _) => 0,
        (_, _, true) => 1,
        _ => 3,
    }
}

/// An instance of tracefs that notes when requests end for the kernel's counters.
struct Ends {
    folder: PathBuf,
    _made: Guard,
    _mounted: Option<Guard>,
}

impl Ends {
    fn start(ledger: &Ledger, dev: Dev) -> Result<Ends, String> {
        let (tracefs, mounted) = capture::tracefs(ledger).map_err(|error| error.to_string())?;
        let (folder, made) = ledger.create_trace_instance(&tracefs).map_err(|error| error.to_string())?;
        let ends = Ends { folder, _made: made, _mounted: mounted };
        let filter = format!("dev == {}", dev.0);
        for (file, value) in [
            ("trace_clock", "mono"),
            ("buffer_size_kb", "1024"),
            ("events/block/block_io_done/filter", &filter),
            ("events/block/block_io_done/enable", "1"),
        ] {
            fs::write(ends.folder.join(file), value).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(ends)
    }

    /// Times by group, in order, ns.
    fn stop(self) -> [Vec<u64>; 4] {
        fs::write(self.folder.join("tracing_on"), "0").expect("it is ours");
        let text = fs::read_to_string(self.folder.join("trace")).expect("it is ours");
        let mut ends = [const { Vec::new() }; 4];
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (before, after) = line.split_once(": block_io_done: ").expect("no other events are enabled");
            let (seconds, us) = before.rsplit(' ').next().and_then(|at| at.split_once('.')).expect("a time");
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let letters = after.split(' ').nth(1).expect("what for");
            let group = group(letters.contains('R'), letters.contains('W'), letters.contains('D'));
            ends[group].push(number(seconds) * 1_000_000_000 + number(us) * 1000);
        }
        ends.iter_mut().for_each(|ends| ends.sort_unstable());
        ends
    }
}

/// The trace with each completion at the time at which the kernel counted it, and by group how much later that is in
/// all, ns.
fn as_counted(captured: &Captured, dev: Dev, ends: [Vec<u64>; 4]) -> (Trace, [u64; 4]) {
    let mut trace = captured.trace.clone();
    let mut later_ns = [0; 4];
    let mut ends = ends.map(Vec::into_iter);
    for record in &mut trace.records {
        if let Seen::Complete { extent, .. } = &record.seen
            && extent.dev == dev
        {
            let has = |letter| extent.rwbs.has(letter);
            let group = group(has(Rwbs::READ), has(Rwbs::WRITE), has(Rwbs::DISCARD));
            let end = ends[group].next().expect("each request that is done has an end");
            let later = (end - captured.monotonic_ns).saturating_sub(record.at.0);
            record.at.0 += later;
            // Half a us of each end is rounding.
            later_ns[group] += later + 500;
        }
    }
    assert!(ends.iter().all(|rest| rest.len() == 0), "each end is of a request that is done");
    trace.records.sort_by_key(|record| record.at);
    (trace, later_ns)
}

/// The counters over a whole trace.
fn counted(trace: &Trace, dev: Dev) -> DiskStats {
    let stat = stat(trace, &Ask::default());
    let (_, disk) = stat.disks.iter().find(|(known, _)| *known == dev).expect("it was used");
    *disk.readings.last().expect("a reading")
}

/// The same trace if no task ever lost its CPU but by waiting: each on one of its own.
fn undisturbed(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    trace.records.retain(|record| !matches!(&record.seen, Seen::Switch { .. }));
    trace.records.iter_mut().for_each(|record| record.cpu = record.pid);
    trace
}

/// Ticks at which something is in flight, the fewest and the most over the phases of the clock.
fn busy_ticks(trace: &Trace, dev: Dev, tick: u64) -> (u64, u64) {
    let of = |phase: u64| {
        let mut trace = trace.clone();
        trace.records.iter_mut().for_each(|record| record.at = Nanos(record.at.0 + phase * tick / PHASES));
        let stat = stat(&trace, &Ask { interval: Some(Nanos(tick)), ..Ask::default() });
        let (_, disk) = stat.disks.iter().find(|(known, _)| *known == dev).expect("it was used");
        disk.readings.iter().filter(|reading| reading.in_flight > 0).count() as u64
    };
    let counts: Vec<u64> = (0..PHASES).map(of).collect();
    let least = counts.iter().copied().min().expect("there are phases");
    (least, counts.into_iter().max().expect("there are phases"))
}

/// The interval that iostat took, in hundredths of a second: the one in which its counts have the rates it printed.
fn interval(theirs: &Value, ours: &DiskStats, asked: Duration) -> u64 {
    let asked = asked.as_millis() as u64 / 10;
    let fits = |hundredths: &u64| {
        [("r/s", ours.read.ios), ("w/s", ours.write.ios), ("wkB/s", ours.write.sectors / 2)].iter().all(|(key, n)| {
            let rate = *n as f64 * 100.0 / *hundredths as f64;
            (theirs[key].as_f64().expect("a number") - rate).abs() <= 0.005 + 1e-6
        })
    };
    let found: Vec<u64> = (asked - 5..asked * 2).filter(fits).collect();
    assert!(!found.is_empty(), "no interval has the counts {ours:?} of {theirs}");
    found[0]
}

/// What iostat may have more than we, from and to, by column; what is not named is equal.
fn latitudes(ours: &Sample, later_ns: [u64; 4], ticks: (u64, u64), tick: u64) -> BTreeMap<&'static str, (f64, f64)> {
    let stats = &ours.counted;
    let ms = |ns: u64| ns as f64 / 1e6;
    // Two roundings to two digits.
    let print = 0.01 + 1e-6;
    let of_mean = |ios: u64, later: u64| {
        let ios = ios.max(1) as f64;
        (-1.0 / ios - print, (2.0 + ms(later)) / ios + print)
    };
    let elapsed = ours.elapsed_ms as f64;
    let (least, most) = (ticks.0.saturating_sub(1) as f64 * ms(tick), (ticks.1 + 1) as f64 * ms(tick));
    let of_util = |busy: f64| 100.0 * (busy - stats.io_ticks_ms as f64) / elapsed;
    BTreeMap::from([
        ("r_await", of_mean(stats.read.ios, later_ns[0])),
        ("w_await", of_mean(stats.write.ios, later_ns[1])),
        ("d_await", of_mean(stats.discard.ios, later_ns[2])),
        ("f_await", of_mean(stats.flush_ios, later_ns[3])),
        ("aqu-sz", (-1.0 / elapsed - print, (2.0 + ms(later_ns.iter().sum())) / elapsed + print)),
        // Ours lacks up to a ms.
        ("util", (of_util(least) - 100.0 / elapsed - print, of_util(most) + print)),
    ])
}

/// Columns of iostat that are not ours, with both figures and what would have been allowed.
fn strange(theirs: &Value, ours: &Value, latitudes: &BTreeMap<&'static str, (f64, f64)>) -> BTreeMap<String, String> {
    let columns = theirs.as_object().expect("columns");
    assert!(ours.as_object().expect("columns").keys().eq(columns.keys()), "{theirs} {ours}");
    let mut found = BTreeMap::new();
    for (key, value) in columns.iter().filter(|(key, _)| *key != "disk_device") {
        let (theirs, ours) = (value.as_f64().expect("a number"), ours[key].as_f64().expect("a number"));
        let (from, to) = latitudes.get(key.as_str()).copied().unwrap_or((-0.01 - 1e-6, 0.01 + 1e-6));
        if !(from..=to).contains(&(theirs - ours)) {
            let what = format!("iostat has {theirs}, we have {ours}, allowed {from:.3} to {to:.3} more");
            found.insert(key.clone(), what);
        }
    }
    found
}

/// The titles of iostat's text and ours.
fn titles(name: &str) -> [String; 2] {
    let mut iostat = Command::new("iostat");
    let output =
        iostat.args(["-x", name]).env("LC_ALL", "C").env("S_COLORS", "never").output().expect("it is installed");
    let ours = iostat::text(iostat::Version::V12, &[(name, Sample::default())]);
    [String::from_utf8_lossy(&output.stdout).into_owned(), ours].map(|text| {
        let line = text.lines().find(|line| line.starts_with("Device")).expect("a line of titles");
        line.trim_end().to_owned()
    })
}

/// The disk that all is done to.
struct Bench<'a> {
    ledger: &'a Ledger,
    node: &'a str,
    name: &'a str,
    dev: Dev,
    tick: u64,
}

/// What one attempt came to.
enum Done {
    /// Everything was held against everything.
    Compared,
    /// The machine was too slow for the interval, or its clock for the count of ticks.
    TooSlow(String),
    /// It cannot be done here.
    Cannot(String),
}

impl Bench<'_> {
    fn attempt(&self, what: &str, jobs: &[Vec<String>], asked: Duration) -> Done {
        settle(self.name);
        let ends = match Ends::start(self.ledger, self.dev) {
            Ok(ends) => ends,
            Err(why) => return Done::Cannot(format!("block_io_done: {why}")),
        };
        // The scheduler of tasks belongs to the full level.
        let ask = capture::Ask { level: Level::Full, devices: vec![self.dev], ..capture::Ask::default() };
        let capture = match Capture::start_with(&ask, self.ledger) {
            Ok(capture) => capture,
            Err(error) => return Done::Cannot(error.to_string()),
        };
        let before = counters(self.name);
        let began = Instant::now();
        let seconds = asked.as_secs().to_string();
        let mut iostat = Command::new("iostat");
        iostat.args(["-y", "-x", "-o", "JSON", self.name, &seconds, "1"]).stdout(Stdio::piped());
        let iostat = iostat.spawn().expect("it is installed");
        // Its first look at the counters comes within this.
        std::thread::sleep(asked / 4);
        for job in jobs {
            let done = Command::new("dd").args(job).output().expect("dd is everywhere");
            assert!(done.status.success(), "{job:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let in_time = began.elapsed() < asked - Duration::from_millis(100);
        let kernel = counters(self.name).since(&before);
        let report = iostat.wait_with_output().expect("it ends");
        let captured = capture.stop().expect("it ends");
        let ends = ends.stop();
        if !in_time {
            return Done::TooSlow(format!("{jobs:?} on {} takes longer than {asked:?}", self.node));
        }
        assert_eq!(captured.trace.lost, 0, "the rings are large enough");
        self.compare(what, &kernel, (&report.stdout, asked), &captured, ends)
    }

    fn compare(
        &self,
        what: &str,
        kernel: &DiskStats,
        (report, asked): (&[u8], Duration),
        captured: &Captured,
        ends: [Vec<u64>; 4],
    ) -> Done {
        let ours = counted(&captured.trace, self.dev);
        let counts =
            |stats: &DiskStats| [stats.read, stats.write, stats.discard].map(|dir| (dir.ios, dir.merges, dir.sectors));
        let ended: usize = ends.iter().map(Vec::len).sum();
        let told = format!("{what}: {ended} ends, {} events not decoded", captured.undecoded);
        assert_eq!((counts(&ours), ours.flush_ios), (counts(kernel), kernel.flush_ios), "{told}");
        let (as_counted, later_ns) = as_counted(captured, self.dev, ends);
        let report: Value = serde_json::from_slice(report).expect("iostat prints JSON");
        let theirs = &report["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
        let elapsed_ms = interval(theirs, &ours, asked) * 10;
        let ticks = busy_ticks(&as_counted, self.dev, self.tick);
        let host = Host { nodename: String::new(), release: String::new(), cpus: 0 };
        let strange =
            [counted(&captured.trace, self.dev), counted(&undisturbed(&captured.trace), self.dev)].map(|stats| {
                let sample = Sample { counted: stats, elapsed_ms };
                let report = iostat::json(&host, &[vec![(self.name, sample)]]);
                let ours = &report["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
                println!("{what}: iostat {theirs}\n{what}: ours   {ours}");
                strange(theirs, ours, &latitudes(&sample, later_ns, ticks, self.tick))
            });
        println!("{what}: {elapsed_ms} ms, ends take {later_ns:?} ns, {ticks:?} ticks of {} ns", self.tick);
        if strange.iter().any(BTreeMap::is_empty) {
            return Done::Compared;
        }
        assert!(strange.iter().any(|columns| columns.keys().eq(["util"])), "{what}: {strange:#?}");
        Done::TooSlow(format!("{strange:#?}"))
    }
}

#[test]
fn the_columns_are_those_of_iostat() {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root || !Path::new("/dev/loop-control").exists() {
        println!("SKIPPED: only root can make loop devices, where there are any");
        return;
    }
    if !Command::new("iostat").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return skip("iostat is not installed (Debian: sysstat)");
    }
    let Some(tick) = tick_ns() else { return skip("/proc/timer_list does not tell the clock's ticks") };
    let path = std::env::temp_dir().join(format!("iowhy-counters-{}", std::process::id()));
    fs::create_dir(&path).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    let (ledger, _) = Ledger::open_in(&scratch.0.join("state")).expect("a ledger");
    let (mut files, _file) = ledger.create_files(&[scratch.0.join("backing")]).expect("a file");
    let file = files.remove(0);
    file.set_len(32 << 20).expect("space");
    let (node, _device) = match ledger.attach_loop(&scratch.0.join("backing"), LoopOptions::default()) {
        Ok(made) => made,
        Err(error) => return skip(&error.to_string()),
    };
    let name = node.file_name().and_then(|name| name.to_str()).expect("a name of the kernel's").to_owned();
    let number = fs::metadata(&node).expect("it is there").rdev();
    let dev = Dev::new((number >> 8 & 0xfff) as u32, (number & 0xff | number >> 12 & 0xfff00) as u32);
    let node = node.display().to_string();
    let (from, to) = (format!("if={node}"), format!("of={node}"));
    let table: [(&str, &[&str]); 2] = [
        // Request by request: a start is its own, an end is that of one bio.
        (
            "direct",
            &[
                "if=/dev/zero TO bs=4k count=2000 oflag=direct conv=notrunc",
                "FROM of=/dev/null bs=64k count=500 iflag=direct",
            ],
        ),
        // Through the page cache: bios are merged under a plug, and a flush comes at the end.
        (
            "cached",
            &[
                "if=/dev/zero TO bs=64k count=256 conv=notrunc,fsync",
                "FROM of=/dev/null bs=4k skip=5000 count=3000",
                "if=/dev/zero TO bs=64k count=256 seek=200 conv=notrunc,fsync",
            ],
        ),
    ];
    let [theirs, ours] = titles(&name);
    assert_eq!(ours, theirs);
    let bench = Bench { ledger: &ledger, node: &node, name: &name, dev, tick };
    for (what, jobs) in table {
        let word = |word: &str| word.replace("FROM", &from).replace("TO", &to);
        let jobs: Vec<Vec<String>> = jobs.iter().map(|job| job.split(' ').map(word).collect()).collect();
        let mut done = Done::TooSlow(String::new());
        for asked in INTERVALS {
            done = bench.attempt(what, &jobs, asked);
            if !matches!(done, Done::TooSlow(_)) {
                break;
            }
        }
        match done {
            Done::Compared => {}
            Done::TooSlow(why) => panic!("{what}: {why}"),
            Done::Cannot(why) => return skip(&why),
        }
    }
}
