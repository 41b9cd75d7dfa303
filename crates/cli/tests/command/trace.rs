//! `iowhy trace`, and `iowhy run --on live --trace`. What traces the kernel needs root; without it those tests say so
//! and pass, but fail in CI.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::ledger::{Ledger, LoopOptions};
use serde_json::Value;

use super::{check_schema, not_decided, text};

/// A folder for one test, with the ledgers of what is run in it.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Scratch {
        // On a disk: a file system in memory has no block layer.
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Scratch(fs::canonicalize(path).expect("it is there"))
    }

    pub(super) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).current_dir(&self.0);
        command.env("NO_COLOR", "1").env("XDG_STATE_HOME", &self.0);
        command
    }

    fn iowhy(&self, line: &str) -> Output {
        self.command(line).output().expect("the command starts")
    }

    /// Runs a line that must end with this code; yields standard output and standard error.
    pub(super) fn ends(&self, line: &str, code: i32) -> (String, String) {
        let output = self.iowhy(line);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}\n{message}");
        assert!(!message.contains("panicked"), "{line}\n{message}");
        (text(&output.stdout), message)
    }

    fn json(&self, line: &str) -> Value {
        let (out, _) = self.ends(line, 0);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}\n{out}"))
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.0.join(name)).expect("a file")).into_owned()
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    /// Nothing is mounted here, and no ledger is left.
    pub(super) fn is_tidy(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let ledgers = fs::read_dir(self.0.join("iowhy")).map_or(0, |entries| entries.count());
        !mounts.contains(&*self.0.to_string_lossy()) && ledgers == 0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn permitted() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run the tests of tracing as root");
        println!("skipped: tracing the kernel needs root");
    }
    root
}

/// Two requests of a disk, as text of tracefs.
pub(super) const TRACEFS: &str = "# tracer: nop\n#\n\
     dd-77      [001] .....   100.000050: block_bio_queue: 8,0 R 800 + 8 [dd]\n\
     dd-77      [001] .....   100.000060: block_getrq: 8,0 R 800 + 8 [dd]\n\
     dd-77      [001] .....   100.000100: block_rq_issue: 8,0 R 4096 () 800 + 8 none,0,0 [dd]\n\
     <idle>-0   [000] ..s..   100.000350: block_rq_complete: 8,0 R () 800 + 8 none,0,0 [0]\n\
     dd-77      [001] .....   100.000370: block_bio_queue: 8,0 R 808 + 8 [dd]\n\
     dd-77      [001] .....   100.000380: block_getrq: 8,0 R 808 + 8 [dd]\n\
     dd-77      [001] .....   100.000400: block_rq_issue: 8,0 R 4096 () 808 + 8 none,0,0 [dd]\n\
     <idle>-0   [000] ..s..   100.000600: block_rq_complete: 8,0 R () 808 + 8 none,0,0 [0]\n";

#[test]
fn traces_are_taken_in_and_written_out() {
    let scratch = Scratch::new("convert");
    scratch.write("in.txt", TRACEFS.as_bytes());
    let imported = scratch.json("trace import in.txt --json");
    assert_eq!((&imported["action"], &imported["format"]), (&"import".into(), &"parquet".into()));
    assert_eq!(imported["records"], 8);
    check_schema("trace", &imported);
    // There and back: the same records.
    scratch.ends("trace export in.parquet -o one.csv", 0);
    scratch.ends("trace import one.csv -o two.parquet", 0);
    let (out, _) = scratch.ends("trace export two.parquet --to csv", 0);
    assert_eq!(out, scratch.read("one.csv"));
    assert_eq!(out.lines().filter(|line| line.contains(",issue,")).count(), 2, "{out}");
    let (text, _) = scratch.ends("trace stat in.parquet", 0);
    assert!(text.contains("D2C"), "{text}");
    let stat = scratch.json("trace stat in.parquet --json");
    assert_eq!(stat["schema"], "iowhy.trace/1");
    // 250 and 200 us.
    let d2c = &stat["phases"]["D2C"];
    assert_eq!(
        (d2c["n"].as_u64(), d2c["min_ns"].as_u64(), d2c["max_ns"].as_u64()),
        (Some(2), Some(200_000), Some(250_000))
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new("refused");
    scratch.write("in.txt", TRACEFS.as_bytes());
    scratch.write("noise", &[7; 999]);
    scratch.ends("trace import in.txt", 0);
    for (line, says) in [
        ("trace import missing", "missing"),
        ("trace import noise -o out.parquet", "noise"),
        ("trace import noise -o noise.csv --to parquett", "parquet"),
        ("trace export in.parquet", "give a format, or a file"),
        ("trace export in.parquet -o out.nothing", "out.nothing"),
        ("trace export in.parquet -o in.parquet", "overwritten"),
        ("trace export in.parquet --to csv --json", "--json"),
        ("trace stat noise", "noise"),
        ("trace stat in.parquet --interval never", "never"),
        ("trace record -o out.bad -- true", "out.bad"),
        ("trace record --file nowhere -o out.csv -- true", "nowhere"),
        ("trace record --device /dev/null -o out.csv -- true", "not a block device"),
        ("trace record --buffer 1 -o out.csv -- true", "--buffer"),
        ("trace record -- true", "--output"),
        ("run dd of=file bs=4k count=10 --on live --trace=everything", "everything"),
    ] {
        let (out, message) = scratch.ends(line, 2);
        assert!(out.is_empty() || line.contains("--json"), "{line} printed {out}");
        assert!(message.contains(says), "{line}: {message}");
    }
    assert!(!scratch.exists("out.parquet") && !scratch.exists("out.csv") && !scratch.exists("noise.csv"));
    // What could be read in spite of an error is kept.
    let whole = fs::read(scratch.0.join("in.txt")).expect("the file");
    scratch.write("cut.txt", &whole[..whole.len() - 30]);
    let output = scratch.iowhy("trace import cut.txt");
    assert!(matches!(output.status.code(), Some(0..=2)), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("panicked"));
}

#[test]
fn a_command_is_recorded() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("record");
    scratch.write("data", &vec![1; 1 << 20]);
    let record = |rest: &str| scratch.json(&format!("trace record --json {rest}"));
    let dd = "dd if=data of=/dev/null bs=64k status=none iflag=fullblock";
    let value = record(&format!("--file data -o one.parquet -- {dd}"));
    check_schema("trace", &value);
    assert_eq!((&value["capture"]["level"], &value["command"]["code"]), (&"layers".into(), &0.into()));
    let (csv, _) = scratch.ends("trace export one.parquet --to csv", 0);
    assert!(csv.lines().any(|line| line.starts_with("#path,") && line.ends_with(",data")), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("#name,") && line.ends_with(",dd")), "{csv}");
    assert!(
        csv.lines().filter(|line| line.contains(",call_start,") && line.contains(",65536,")).count() >= 16,
        "{csv}"
    );
    let (out, message) = scratch.ends("trace record --level light -o two.csv -- sh -c exit", 0);
    assert!(out.is_empty() && message.contains("records in") && message.contains("ns an event"), "{out}{message}");
    // The end of the command is told, and the trace kept.
    let (_, message) = scratch.ends("trace record -o three.csv -- false", 1);
    assert!(message.contains("the command failed") && scratch.exists("three.csv"), "{message}");
    scratch.ends("trace record -o four.csv -- ./no-such-program", 2);
    assert!(!scratch.exists("four.csv"));
    let begun = Instant::now();
    let value = record("--for 100ms -o five.csv --level full");
    assert!(begun.elapsed() >= Duration::from_millis(100) && value["command"].is_null());
    assert!(value["capture"]["length_s"].as_f64().is_some_and(|length| length >= 0.1), "{value}");
    assert!(scratch.is_tidy());
}

/// A control group of memory, which goes with the value.
struct Memory(PathBuf);

impl Memory {
    fn limited(bytes: u64) -> Option<Memory> {
        let group = Memory(PathBuf::from(format!("/sys/fs/cgroup/memory/iowhy-test-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok().map(|()| group)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_recorder_stays_within_the_memory_of_its_control_group() {
    if !permitted() {
        return;
    }
    let Some(group) = Memory::limited(96 << 20) else {
        not_decided("recorder in 96 MiB: no control groups of memory, version 1");
        return;
    };
    let scratch = Scratch::new("memory");
    scratch.write("data", &vec![1; 1 << 20]);
    let procs = group.0.join("cgroup.procs");
    let record = scratch.command("trace record --json -o out.parquet -- dd if=data of=/dev/null bs=16 status=none");
    let mut inside = Command::new("sh");
    inside.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(&procs);
    inside.arg(record.get_program()).args(record.get_args()).current_dir(&scratch.0);
    inside.envs(record.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = inside.output().expect("sh starts");
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    assert!(text(&output.stderr).contains("for want of memory"), "{}", text(&output.stderr));
    scratch.ends("trace stat out.parquet", 0);
    assert!(scratch.is_tidy());
}

/// The calls that read so many bytes and are replayed, of a trace of `command` which reads the file `data`.
fn replayed_reads(scratch: &Scratch, command: &[&str], len: u64) -> (u64, u64, String) {
    let mut record = scratch.command("trace record -o calls.parquet --");
    let output = record.args(command).output().expect("the command starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = |line: &str| {
        let (out, message) = scratch.ends(&format!("run calls.parquet {line}"), 0);
        (serde_json::from_str::<Value>(&out).unwrap_or_else(|error| panic!("{error}\n{out}")), message)
    };
    let (simulated, message) = run("--on sim:linux-6.18 --json");
    let (live, _) = run("--on live --dir files --json");
    // Both make the same calls.
    let bytes = |value: &Value| -> u64 {
        let metrics = value["runs"][0]["metrics"].as_object().expect("metrics");
        let of = |name: String| metrics[&name].as_f64().unwrap_or_else(|| panic!("no {name} in {metrics:#?}"));
        let threads = metrics.keys().filter_map(|name| name.strip_suffix(".read_mb_s"));
        let of_thread = |thread: &str| of(format!("{thread}.read_mb_s")) * of(format!("{thread}.elapsed_s")) * 1e6;
        threads.map(|thread| of_thread(thread).round() as u64).sum()
    };
    assert_eq!(bytes(&simulated), bytes(&live), "{simulated:#} {live:#}");
    let (csv, _) = scratch.ends("trace export calls.parquet --to csv", 0);
    let begun = csv.lines().filter(|line| line.contains(",call_start,") && line.contains(&format!(",{len},"))).count();
    (bytes(&simulated), begun as u64, message)
}

#[test]
fn every_read_of_a_file_in_the_page_cache_is_replayed() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("replay");
    scratch.write("data", &vec![1; 1 << 20]);
    // Nothing but the calls tells the file: no page is added, nothing goes to a disk.
    let dd = "dd if=data bs=64k status=none";
    for (command, shown) in [
        (&["dd", "if=data", "of=/dev/null", "bs=64k", "status=none"][..], "devices without data"),
        (&["sh", "-c", &format!("{dd} | cat > /dev/null")], "maybe pipes"),
        // What was open before it began, and twice from where it stood.
        (&["sh", "-c", "exec 7< data; dd bs=64k count=8 <&7 | cat; dd bs=64k count=8 <&7"], "maybe pipes"),
    ] {
        let (bytes, begun, message) = replayed_reads(&scratch, command, 65536);
        assert!(bytes >= 1 << 20, "{command:?}: {bytes} bytes of {begun} calls\n{message}");
        assert!(begun >= 16 && message.contains(shown), "{command:?}: {begun} calls\n{message}");
        assert!(!message.contains("it does not say on what"), "{command:?}: {message}");
    }
    assert!(scratch.is_tidy());
}

#[test]
fn requests_alone_have_their_time_at_the_device() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("light");
    scratch.write("data", &vec![1; 1 << 20]);
    scratch.ends("trace record --level light -o light.parquet -- dd if=data of=/dev/null bs=64k iflag=direct", 0);
    let stat = scratch.json("trace stat light.parquet --json");
    let phases = &stat["phases"];
    assert!(phases["D2C"]["n"].as_u64() >= Some(16), "{phases:#}");
    for absent in ["Q2Q", "Q2G", "G2I", "I2D", "Q2C"] {
        assert_eq!(phases[absent]["n"].as_u64(), Some(0), "{phases:#}");
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill starts");
    assert!(status.success());
}

/// Waits until something is mounted or made, so that the capture goes on.
fn wait_for_capture(scratch: &Scratch) {
    let begun = Instant::now();
    while fs::read_dir(scratch.0.join("iowhy")).map_or(0, |entries| entries.count()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn signals_end_a_recording_and_a_killed_one_is_cleaned_up() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("signals");
    let begin = |line: &str| {
        let mut command = scratch.command(line);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts")
    };
    for name in ["-INT", "-TERM"] {
        let mut child = begin("trace record -o out.csv");
        wait_for_capture(&scratch);
        signal(&child, name);
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{name}");
        assert!(scratch.exists("out.csv") && scratch.is_tidy(), "{name}");
        fs::remove_file(scratch.0.join("out.csv")).expect("it is there");
    }
    let mut child = begin("trace record -o out.csv");
    wait_for_capture(&scratch);
    signal(&child, "-KILL");
    child.wait().expect("it ends");
    assert!(!scratch.is_tidy(), "nothing was left: the test has tested nothing");
    let (out, message) = scratch.ends("doctor --fix", 0);
    assert!(scratch.is_tidy(), "{out}{message}");
    // Or the next run does it.
    let mut child = begin("trace record -o out.csv");
    wait_for_capture(&scratch);
    signal(&child, "-KILL");
    child.wait().expect("it ends");
    scratch.ends("trace record -o out.csv -- true", 0);
    assert!(scratch.is_tidy());
}

#[test]
fn whoever_reads_a_device_is_named() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("device");
    scratch.write("disk", &vec![0; 4 << 20]);
    let (ledger, _) = Ledger::open_in(&scratch.0.join("loops")).expect("a ledger");
    let attached = ledger.attach_loop(&scratch.0.join("disk"), LoopOptions::default());
    let (node, guard) = match attached {
        Ok(attached) => attached,
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have loop devices: {error}");
            println!("skipped: {error}");
            return;
        }
    };
    let node = node.to_string_lossy().into_owned();
    let mut child = scratch
        .command(&format!("trace record --for 1500ms --device {node} -o out.parquet"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    // However slow the machine is, some of these come while the capture goes on.
    for nr in 0_u32.. {
        if let Some(status) = child.try_wait().expect("it is ours") {
            assert_eq!(status.code(), Some(0));
            break;
        }
        let skip = format!("skip={}", nr * 37 % 1024);
        let words = [format!("if={node}"), skip, "of=/dev/null".into(), "bs=4k".into(), "count=1".into()];
        let read = Command::new("dd").args(words).stderr(Stdio::null()).status().expect("dd starts");
        assert!(read.success());
        std::thread::sleep(Duration::from_millis(20));
    }
    guard.undo().expect("the device goes");
    let (csv, _) = scratch.ends("trace export out.parquet --to csv", 0);
    let mut readers = csv.lines().filter(|line| line.starts_with("#name,") && line.ends_with(",dd"));
    let added = |reader: &str| {
        let pid = reader.split(',').nth(1).unwrap_or_default();
        csv.lines().any(|line| line.contains(&format!(",{pid},page_add,")))
    };
    assert!(readers.any(added), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("#path,") && line.ends_with(&node)), "{csv}");
}

#[test]
fn a_live_run_is_traced() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("run");
    let job = "run fio --name=a --filename=data --size=256k --rw=read --bs=4k --direct=1 --unlink=1";
    let value = scratch.json(&format!("{job} --on live --trace=layers --store kept --dir . --json"));
    check_schema("run", &value);
    let found = find(&value, "monotonic_ns").unwrap_or_else(|| panic!("no trace in {value:#}"));
    assert_eq!((found["level"].as_str(), found["lost"].as_u64()), (Some("layers"), Some(0)));
    assert!(found["cost"]["events"].as_u64() > Some(4 * 64), "{found}");
    let kept = scratch.json("store show live --store kept --json");
    assert!(kept.to_string().contains("\"events\""), "{kept:#}");
    assert!(scratch.is_tidy());
}

/// The object that has a key, wherever it is.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(object) if object.contains_key(key) => Some(value),
        Value::Object(object) => object.values().find_map(|value| find(value, key)),
        Value::Array(list) => list.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

#[test]
fn public_traces_are_counted_replayed_and_imported() {
    let scratch = Scratch::new("public");
    let lines: String = (0..200_u64).map(|nr| format!("0,R,{},4096,{}\n", nr % 50 * 8192, nr * 1000)).collect();
    scratch.write("disk.csv", lines.as_bytes());
    scratch.write("keys.csv", b"0,a,1,99,1,get,0\n1,b,1,99,1,set,0\n2,a,1,99,1,get,0\n");
    let stat = scratch.json("trace stat disk.csv --cache 100k,100% --policy lru,fifo,linux-6.18 --json");
    check_schema("trace-public", &stat);
    let misses: Vec<Option<u64>> =
        stat["caches"].as_array().expect("rows").iter().map(|row| row["misses"].as_u64()).collect();
    // A loop over 50 pages: 25 are always the wrong ones of a plain list.
    assert_eq!(misses[..4], [200, 50, 200, 50].map(Some));
    let keys = scratch.json("trace stat keys.csv --cache 150 --json");
    check_schema("trace-public", &keys);
    assert_eq!((keys["unit"].as_str(), keys["caches"][0]["misses"].as_u64()), (Some("object"), Some(3)));
    let seconds = ["", "--replay open", "--replay open --speed 4", "--format alibaba"].map(|how| {
        let run = scratch.json(&format!("run disk.csv --on sim:linux-6.18 --disk nvme {how} --json"));
        check_schema("run", &run);
        assert_eq!(run["runs"][0]["device"]["media_accesses"].as_u64(), Some(200), "{how}");
        run["runs"][0]["metrics"]["elapsed_s"].as_f64().expect("a time")
    });
    // The last arrival is at 199 ms; one at a time, a request takes less than the millisecond between two.
    assert!(seconds[1] > 0.199 && seconds[2] > 0.049 && seconds[2] < 0.055, "{seconds:?}");
    assert!(seconds[0] < 0.1 && seconds[0].to_bits() == seconds[3].to_bits(), "{seconds:?}");
    scratch.ends("trace import disk.csv -o disk.parquet", 0);
    assert_eq!(scratch.json("trace stat disk.parquet --json")["records"].as_u64(), Some(400));
    scratch.write("wrong.csv", format!("{lines}0,R,x,4096,5\n0,R,0,4096\n").as_bytes());
    for line in ["trace stat wrong.csv", "trace import wrong.csv", "run wrong.csv --on sim:linux-6.18"] {
        let (_, message) = scratch.ends(line, 2);
        assert!(message.contains(":201:5:") && message.contains(":202:11:"), "{line}: {message}");
    }
    for (line, says) in [
        ("trace stat disk.csv --format alibab", "alibaba"),
        ("trace stat keys.csv --cache 1m --policy linux-6.18", "objects"),
        ("trace stat disk.csv --cache 1m --policy lfu", "lru"),
        ("trace export disk.csv --format msr", "msr"),
        ("run disk.csv --on sim:linux-6.18 --speed 0", "--speed"),
    ] {
        let (_, message) = scratch.ends(line, 2);
        assert!(message.contains(says), "{line}: {message}");
    }
}
