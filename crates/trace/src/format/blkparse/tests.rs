use super::*;
use crate::format::blktrace::tests::{folder, merge_of, other_order, random_trace, record};
use crate::format::blktrace::{self, collect};
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Extent, Rwbs, Seen};
use iowhy_stack::units::{Nanos, Sector};
use iowhy_text::diagnose::Problems;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

/// Whether the judge is there; without it a test prints that and passes, with CI=true it fails.
fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("-V").output().is_ok();
    if !there {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{program} is not installed: apt-get install blktrace");
        eprintln!("SKIPPED: {program} is not installed: apt-get install blktrace");
    }
    there
}

/// blkparse's output for the files `t.blktrace.N` in a folder, and its complaints. Where no locale is found,
/// it does not separate thousands.
fn blkparse(folder: &Path, arguments: &[&str]) -> (Vec<u8>, String) {
    let mut command = Command::new("blkparse");
    command.current_dir(folder).env("LOCPATH", "none").args(["-i", "t", "-o", "text"]).args(arguments);
    let output = command.output().expect("it was found");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");
    (std::fs::read(folder.join("text")).expect("blkparse writes it"), complaints)
}

fn options() -> Options {
    Options { name: "t".to_owned(), ..Options::default() }
}

fn text_of(files: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    export(&mut merge_of(files), &options(), &mut text).expect("memory");
    text
}

/// Says the first line that differs.
fn assert_same(ours: &[u8], peers: &[u8]) {
    if ours != peers {
        let lines = ours.split(|byte| *byte == b'\n').zip(peers.split(|byte| *byte == b'\n')).enumerate();
        for (nr, (ours, peers)) in lines {
            let show = |line| String::from_utf8_lossy(line).into_owned();
            assert_eq!(show(ours), show(peers), "line {}", nr + 1);
        }
        panic!("{} bytes and {}", ours.len(), peers.len());
    }
}

#[test]
fn blkparse_writes_the_same_text_of_traces_written_here() {
    if !is_there("blkparse") {
        return;
    }
    for seed in 0..8 {
        let folder = folder(&format!("text-{seed}"));
        let trace = random_trace(100 + seed, 4000);
        blktrace::write(&trace, &folder.join("t"), &mut |path, bytes| std::fs::write(path, bytes))
            .expect("a folder of our own");
        let (peers, complaints) = blkparse(&folder, &[]);
        let mut ours = Vec::new();
        assert_eq!(write(&trace, &options(), &mut ours).expect("memory"), 0);
        // Passed-through requests are never merged; the trace has such records so that this is seen.
        assert!(complaints.is_empty(), "{complaints}");
        assert_same(&ours, &peers);
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}

/// Files as no kernel writes them: names that come late, twice or never, unknown actions, commands, drivers' data,
/// sequence numbers and times of any size.
fn odd_files(seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::stream(seed, "blkparse.odd");
    let mut files = vec![Vec::new(); 3];
    for (cpu, file) in files.iter_mut().enumerate() {
        let mut time_ns = 5_000_000_000 + rng.below(100_000);
        let nr_records = 500 + rng.below(1500);
        for _ in 0..nr_records {
            // Times run backwards now and then, too.
            time_ns = (time_ns + rng.below(20_000_000)).saturating_sub(rng.below(100) / 99 * 50_000_000);
            let shift = rng.below(31);
            let mut raw = Raw {
                time_ns,
                sector: rng.next_u64() >> rng.below(63),
                bytes: (rng.next_u64() >> 32 >> shift) as u32,
                action: (rng.next_u64() as u32 & 0xffff_0000 & !bits::NOTIFY) | rng.below(17) as u32,
                pid: 1 + rng.below(200) as u32,
                device: Dev::new(rng.below(300) as u32, rng.below(2000) as u32).0,
                cpu: cpu as u32,
                sequence: rng.next_u64() as u32,
                error: rng.next_u64() as u16 >> rng.below(16),
                ..Raw::default()
            };
            let mut payload = Vec::new();
            match rng.below(10) {
                0 => {
                    raw.action = bits::NOTIFY | bits::PROCESS;
                    payload = format!("{:\0<16}", format!("p{} [{}]", raw.pid, rng.below(9))).into_bytes();
                }
                1 => {
                    raw.action = bits::NOTIFY | bits::MESSAGE;
                    payload = b"a message\0 and what is behind it"[..rng.below(30) as usize].to_vec();
                }
                2 => raw.action = bits::NOTIFY | 77,
                3 if rng.below(5) == 0 => raw.action &= 0xffff,
                4 | 5 => {
                    raw.action |= bits::TC_PC;
                    payload = (0..rng.below(20)).map(|_| (rng.next_u64() >> 60) as u8 & 3).collect();
                }
                _ => {}
            }
            // Of those that must have one, blkparse reads it wherever that is.
            let missing = bits::payload_bytes(raw.action).saturating_sub(payload.len());
            payload.extend((0..missing).map(|_| rng.next_u64() as u8));
            file.extend(record(&raw, &payload));
        }
    }
    files
}

#[test]
fn blkparse_writes_the_same_text_of_odd_files_in_both_byte_orders() {
    if !is_there("blkparse") {
        return;
    }
    for seed in 0..12 {
        let folder = folder(&format!("odd-{seed}"));
        let mut files = odd_files(seed);
        if seed % 3 == 2 {
            files = files.iter().map(|file| other_order(file)).collect();
        }
        // A file that is cut is read as far as it goes.
        let length = files[1].len();
        files[1].truncate(length - 20);
        for (cpu, bytes) in files.iter().enumerate() {
            std::fs::write(folder.join(format!("t.blktrace.{cpu}")), bytes).expect("a folder of our own");
        }
        assert_same(&text_of(&files), &blkparse(&folder, &[]).0);
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}

#[test]
fn btt_accepts_what_is_written() {
    if !is_there("blkparse") || !is_there("btt") {
        return;
    }
    let folder = folder("btt");
    let trace = random_trace(9, 4000);
    blktrace::write(&trace, &folder.join("t"), &mut |path, bytes| std::fs::write(path, bytes))
        .expect("a folder of our own");
    let (_, complaints) = blkparse(&folder, &["-d", "merged"]);
    assert!(complaints.is_empty(), "{complaints}");
    let output = Command::new("btt").current_dir(&folder).args(["-i", "merged", "-o", "b"]).output();
    let output = output.expect("it was found");
    let text = std::fs::read_to_string(folder.join("b.avg")).expect("btt writes it");
    assert!(output.status.success() && text.contains("Q2C"), "{}", String::from_utf8_lossy(&output.stderr));
    // What blkparse merged is the trace again.
    let (merged, faults) = blktrace::read(&[folder.join("merged")]).expect("blkparse writes it");
    assert_eq!(faults, []);
    let (parts, _) = blktrace::read(&[folder.join("t")]).expect("it was written");
    assert_eq!((merged.records, merged.names), (parts.records, parts.names));
    std::fs::remove_dir_all(folder).expect("it is ours");
}

/// The same without what the text does not say.
fn as_text_has_it(mut trace: Trace) -> Trace {
    for record in &mut trace.records {
        let extent = match &mut record.seen {
            Seen::Split { extent, rest } => {
                extent.bytes = 0;
                rest.0 &= 0xffff_ffff;
                Some(extent)
            }
            Seen::Queue(extent)
            | Seen::GetRequest(extent)
            | Seen::Sleep(extent)
            | Seen::BackMerge(extent)
            | Seen::FrontMerge(extent)
            | Seen::Insert(extent)
            | Seen::Issue(extent)
            | Seen::Bounce(extent) => {
                if extent.bytes == 0 {
                    extent.sector = Sector(0);
                }
                Some(extent)
            }
            Seen::Requeue(extent) | Seen::Complete { extent, .. } => Some(extent),
            Seen::Message { .. } => {
                record.pid = 0;
                None
            }
            _ => None,
        };
        if let Some(extent) = extent
            && extent.rwbs.has(Rwbs::PASSTHROUGH)
        {
            extent.sector = Sector(0);
            extent.rwbs = Rwbs(extent.rwbs.0 & !Rwbs::PASSTHROUGH.0);
            extent.bytes = 0;
        }
    }
    trace
}

#[test]
fn the_text_is_read_again() {
    for seed in 0..10 {
        let trace = random_trace(seed, 1000);
        let mut text = Vec::new();
        write(&trace, &options(), &mut text).expect("memory");
        assert!(detect("t", &text));
        let mut problems = Problems::default();
        let mut read = read("t.txt", &text, &mut problems).expect("it is blkparse's");
        assert!(problems.list.is_empty(), "{}", problems.render());
        let encoded = blktrace::write::encode(&trace, false).expect("three CPUs");
        let (mut expected, _) = collect(merge_of(&encoded.files));
        assert_eq!(read.records.len(), expected.records.len());
        // G and S of commands look like those of others.
        for nr in (0..expected.records.len()).rev() {
            if let Seen::GetRequest(extent) | Seen::Sleep(extent) = &expected.records[nr].seen
                && extent.rwbs.has(Rwbs::PASSTHROUGH)
            {
                read.records.remove(nr);
                expected.records.remove(nr);
            }
        }
        assert_eq!(as_text_has_it(read).records, as_text_has_it(expected).records);
    }
}

#[test]
fn lines_say_what_they_say() {
    let text = "  8,0    1        7     3.000000042  4711  D  FWFSM 2048 + 8 [my [odd] name]\n\
                259,3   12       -1     4.100000000     0  C   R 2048 + 8 [65531]\n\
                \n\
                  8,0    1        8     4.100000001  4711  A  WS 100 + 8 <- (253,2) 64\n\
                  8,0    1        9     4.100000002  4711 UT   N [fio] 12\n\
                  8,0    1        0     4.100000003     0  m   N cfq 1  slice\n\
                  8,0    1       10     4.100000004  4711  D   R 36 (12 00 ..) [fio]\n\
                  8,0    1       11     4.100000005  4711  C   R 8 + 8 (  123456) [0]\n\
                CPU0 (t):\n nonsense\n";
    let mut problems = Problems::default();
    let trace = parse("t", text, &mut problems);
    assert!(problems.list.is_empty(), "{}", problems.render());
    let dev = Dev::new(8, 0);
    let extent = |sector, bytes, rwbs| Extent { dev, sector: Sector(sector), bytes, rwbs };
    let all = Rwbs::PREFLUSH.with(Rwbs::WRITE).with(Rwbs::FUA).with(Rwbs::SYNC).with(Rwbs::META);
    let seen: Vec<&Seen> = trace.records.iter().map(|record| &record.seen).collect();
    assert_eq!(
        seen,
        [
            &Seen::Issue(extent(2048, 4096, all)),
            &Seen::Complete { extent: Extent { dev: Dev::new(259, 3), ..extent(2048, 4096, Rwbs::READ) }, error: -5 },
            &Seen::Remap {
                extent: extent(100, 4096, Rwbs::WRITE.with(Rwbs::SYNC)),
                from: Dev::new(253, 2),
                from_sector: Sector(64)
            },
            &Seen::Unplug { dev: Some(dev), nr_requests: 12, timer: true },
            &Seen::Message { dev, text: "cfq 1  slice".to_owned() },
            &Seen::Issue(extent(0, 36, Rwbs::READ.with(Rwbs::PASSTHROUGH))),
            &Seen::Complete { extent: extent(8, 4096, Rwbs::READ), error: 0 },
        ]
    );
    assert_eq!((trace.records[0].at, trace.records[0].cpu), (Nanos(3_000_000_042), 1));
    assert_eq!(trace.names, [(4711, "my [odd] name".to_owned())]);
}

#[test]
fn mistakes_have_a_line_and_a_column() {
    let good = "  8,0    1        7     3.000000042  4711  D   R 2048 + 8 [fio]";
    for (from, to, place) in [
        ("8,0", "8.0", 4),
        ("3.000000042", "3.42", 25),
        ("4711", "x", 38),
        (" D ", " Y ", 44),
        ("  R ", " RX ", 47),
        ("2048", "-", 50),
        ("+ 8", "+ 99999999999", 57),
        ("[fio]", "fio", 59),
        ("[fio]", "[fio] more", 59),
    ] {
        let mut problems = Problems::default();
        let text = format!("{good}\n{}\n{good}\n", good.replacen(from, to, 1));
        assert_eq!(parse("t", &text, &mut problems).records.len(), 2, "{to}");
        let message = &problems.list[0].message;
        assert!(problems.list.len() == 1 && message.starts_with(&format!("t:2:{place}: ")), "{message}");
    }
    // What blkparse says of its files goes to the same place.
    let text = format!("Input file t.blktrace.0 added\n{good}\n");
    assert!(detect("t", text.as_bytes()));
    let mut problems = Problems::default();
    assert_eq!((parse("t", &text, &mut problems).records.len(), problems.list.len()), (1, 0));
    assert!(read("t", b"something else\n", &mut problems).is_none() && problems.any_error());
    assert!(!detect("t", b"something else\n"));
}

#[test]
fn thousands_are_separated_on_request() {
    let options = Options { grouped: true, ..options() };
    let mut text = Vec::new();
    write(&random_trace(1, 5000), &options, &mut text).expect("memory");
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("Events (t): 5,000 entries"), "{}", &text[text.len() - 300..]);
}

#[test]
fn numbers_are_written_as_format_does() {
    for number in [0, 7, 10, 99, 100, 101, 12_345, u64::from(u32::MAX), u64::MAX] {
        for width in [0, 1, 5, 8, 20] {
            let mut text = Vec::new();
            unsigned(&mut text, number, width);
            assert_eq!(String::from_utf8_lossy(&text), format!("{number:>width$}"));
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(seed in 0_u64..20, at in 0.0..1.0_f64, byte: u8, cut: bool) {
        let mut text = Vec::new();
        write(&random_trace(seed, 30), &options(), &mut text).expect("memory");
        let place = (text.len() as f64 * at) as usize;
        if cut { text.truncate(place) } else { text[place] = byte }
        let mut problems = Problems::default();
        let _ = read("t", &text, &mut problems);
        prop_assert!(problems.list.len() <= 12);
        let _ = problems.render();
    }
}
