use super::*;
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::Rwbs;
use proptest::prelude::*;

/// A trace with every kind of event, over three CPUs; many have the same time.
pub(crate) fn random_trace(seed: u64, nr_records: usize) -> Trace {
    let mut rng = Rng::stream(seed, "blktrace.trace");
    let directions = [
        Rwbs::READ,
        Rwbs::WRITE,
        Rwbs::READ.with(Rwbs::AHEAD),
        Rwbs::WRITE.with(Rwbs::SYNC),
        Rwbs::DISCARD,
        Rwbs::WRITE.with(Rwbs::FUA).with(Rwbs::SYNC).with(Rwbs::META),
        Rwbs::WRITE.with(Rwbs::PREFLUSH).with(Rwbs::FUA),
        Rwbs::READ.with(Rwbs::META),
        Rwbs::READ.with(Rwbs::PASSTHROUGH),
        Rwbs::WRITE.with(Rwbs::PASSTHROUGH),
    ];
    let mut trace = Trace { started_ns: 1_700_000_000_123_456_789, ..Trace::default() };
    trace.names = vec![(0, "swapper/0".into()), (7, "fio".into()), (4711, "a name too long for it".into())];
    let mut at = 1000 * rng.below(5);
    for _ in 0..nr_records {
        at += [0, 0, 700, 12_345_678][rng.below(4) as usize] * rng.below(1000) / 100;
        let dev = [Dev::new(8, 0), Dev::new(8, 17), Dev::new(259, 1_000)][rng.below(3) as usize];
        let sectors = [0, 1, 8, 256, 100_000][rng.below(5) as usize];
        let bits = 4 + rng.below(50);
        let mut extent = Extent {
            dev,
            sector: Sector(rng.below(1 << bits)),
            bytes: sectors * 512,
            rwbs: directions[rng.below(directions.len() as u64) as usize],
        };
        if extent.rwbs == Rwbs::READ && sectors == 0 {
            // An empty flush.
            extent.rwbs = Rwbs::PREFLUSH;
        }
        if sectors == 0 && !extent.rwbs.has(Rwbs::WRITE) && !extent.rwbs.has(Rwbs::DISCARD) {
            extent.rwbs = Rwbs(extent.rwbs.0 & !Rwbs::READ.0);
        }
        let plain = Extent { rwbs: Rwbs(extent.rwbs.0 & !Rwbs::PASSTHROUGH.0), ..extent };
        let from = Dev::new(253, 2);
        let seen = match rng.below(18) {
            0 | 1 => Seen::Queue(extent),
            2 => Seen::GetRequest(extent),
            3 => Seen::Sleep(extent),
            4 => Seen::BackMerge(plain),
            5 => Seen::FrontMerge(plain),
            6 => Seen::Insert(extent),
            7 | 8 => Seen::Issue(extent),
            9 => Seen::Requeue(extent),
            10 | 11 => Seen::Complete { extent, error: [0, 0, -5, 11][rng.below(4) as usize] },
            12 => Seen::Split { extent: plain, rest: Sector(plain.sector.0 + 8) },
            13 => Seen::Remap { extent: plain, from, from_sector: Sector(rng.below(1 << 40)) },
            14 => Seen::Bounce(plain),
            15 => Seen::Plug { dev: Some(dev) },
            16 => Seen::Unplug { dev: Some(dev), nr_requests: rng.below(40) as u32, timer: rng.below(2) == 0 },
            _ => Seen::Message { dev, text: "cfq 7 slice expired".to_owned() },
        };
        let pid = [0, 7, 4711, 99][rng.below(4) as usize];
        trace.records.push(Record { at: Nanos(at), cpu: rng.below(3) as u32, pid, seen });
    }
    trace
}

/// Files of these contents.
pub(crate) fn merge_of(files: &[Vec<u8>]) -> Merge {
    let sources = files.iter().enumerate().map(|(cpu, bytes)| {
        let source: Box<dyn Read + Send> = Box::new(io::Cursor::new(bytes.clone()));
        (format!("t.blktrace.{cpu}"), source)
    });
    Merge::new(sources.collect())
}

/// A record of these fields, little-endian.
pub(crate) fn record(raw: &Raw, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (MAGIC | VERSION).to_le_bytes().to_vec();
    bytes.extend(raw.sequence.to_le_bytes());
    bytes.extend(raw.time_ns.to_le_bytes());
    bytes.extend(raw.sector.to_le_bytes());
    for number in [raw.bytes, raw.action, raw.pid, raw.device, raw.cpu] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(raw.error.to_le_bytes());
    bytes.extend((payload.len() as u16).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// The same files as a machine of the other byte order writes them.
pub(crate) fn other_order(file: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let payload = usize::from(u16::from_le_bytes([bytes[at + 46], bytes[at + 47]]));
        let action = number32(&bytes[at + 28..], false);
        for (start, length) in
            [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)]
        {
            bytes[at + start..at + start + length].reverse();
        }
        at += RECORD_BYTES;
        if action == bits::NOTIFY | bits::TIMESTAMP {
            bytes[at..at + 4].reverse();
            bytes[at + 4..at + 8].reverse();
        }
        at += payload;
    }
    bytes
}

fn written(trace: &Trace) -> Vec<Vec<u8>> {
    write::encode(trace, false).expect("three CPUs").files
}

/// The common form of both ends of a trip: times count from the first record, records of equal times are in the order
/// of their files, a name that is too long is cut, an unknown one is marked.
fn normal(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    let start = trace.records.first().map_or(Nanos::ZERO, |record| record.at);
    trace.started_ns += start.0;
    trace.names.push((99, "unknown".to_owned()));
    trace.names.sort();
    for (_, name) in &mut trace.names {
        name.truncate(15);
    }
    for record in &mut trace.records {
        record.at = record.at - start;
    }
    trace.records.sort_by_key(|record| (record.at, record.cpu));
    trace
}

#[test]
fn what_is_written_is_read_in_both_byte_orders() {
    for seed in 0..20 {
        let trace = random_trace(seed, 2000);
        let files = written(&trace);
        let swapped: Vec<Vec<u8>> = files.iter().map(|file| other_order(file)).collect();
        let (mut read, faults) = collect(merge_of(&files));
        assert_eq!(faults, []);
        assert_eq!(collect(merge_of(&swapped)), (read.clone(), faults));
        assert_eq!(read.lost, 0);
        assert!(read.records.is_sorted_by_key(|record| record.at));
        read.records.sort_by_key(|record| (record.at, record.cpu));
        assert_eq!(read, normal(&trace));
    }
}

#[test]
fn a_merged_file_is_the_same_trace() {
    let trace = random_trace(3, 3000);
    let files = written(&trace);
    let mut merged = Vec::new();
    assert_eq!(write_merged(&trace, &mut merged).expect("memory"), 0);
    let alone = Merge::new(vec![("t.bin".to_owned(), Box::new(io::Cursor::new(merged)))]);
    let (alone, faults) = collect(alone);
    assert_eq!(faults, []);
    // Those of equal times are as they were in the trace, not in the order of their files.
    let mut parts = collect(merge_of(&files)).0;
    let mut sorted = alone.clone();
    sorted.records.sort_by_key(|record| (record.at, record.cpu));
    parts.records.sort_by_key(|record| (record.at, record.cpu));
    assert_eq!(sorted, parts);
    assert!(alone.records.iter().map(|record| &record.seen).eq(trace.records.iter().map(|record| &record.seen)));
}

#[test]
fn the_ways_to_read_agree() {
    let folder = folder("ways");
    let trace = random_trace(4, 1500);
    let report = write(&trace, &folder.join("t"), &mut create).expect("a folder of our own");
    assert_eq!((report.files.len(), report.events, report.left_out), (3, 1500, 0));
    let (all, faults) = read(&[folder.join("t")]).expect("they were written");
    assert!(faults.is_empty());
    // A name of one file means all of them, once.
    let again = read(&[folder.join("t.blktrace.1"), folder.join("t")]).expect("they were written");
    assert_eq!(again, (all.clone(), faults));
    let items: Result<Vec<Record>, Fault> = Reader::open(&[folder.join("t")]).expect("they were written").collect();
    assert_eq!(items.as_ref(), Ok(&all.records));
    let mut seen = Vec::new();
    let heading = for_each(&[folder.join("t")], |record| seen.push(record.clone())).expect("they were written");
    assert_eq!(seen, all.records);
    assert_eq!(heading.names(), all.names);
    let error = Reader::open(&[folder.join("none")]).expect_err("there is no such file");
    assert!(error.to_string().contains("none.blktrace.0"), "{error}");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_file_of_another_trace_is_not_made_part_of_this_one() {
    let folder = folder("stale");
    std::fs::write(folder.join("t.blktrace.3"), "old").expect("a folder of our own");
    let error = write(&random_trace(1, 100), &folder.join("t"), &mut create).expect_err("CPUs 0 to 2");
    assert!(error.to_string().contains("t.blktrace.3"), "{error}");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

/// Creates a file of a trace.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)
}

/// An empty folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("iowhy-blktrace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    folder
}

#[test]
fn records_of_other_layers_are_left_out_and_counted() {
    let mut trace = random_trace(1, 10);
    trace.records[4].seen = Seen::Other { name: "sched:sched_switch".into(), fields: String::new() };
    let encoded = write::encode(&trace, false).expect("three CPUs");
    assert_eq!((encoded.events, encoded.left_out), (9, 1));
    trace.records[4].cpu = 1 << 20;
    assert!(write::encode(&trace, false).is_err());
}

#[test]
fn lost_events_are_gaps_in_the_sequence() {
    let mut file = Vec::new();
    for sequence in [1, 2, 5, 6, 1 << 30, 8] {
        let action = bits::QUEUE | bits::TC_QUEUE | bits::TC_READ;
        file.extend(record(&Raw { sequence, action, ..Raw::default() }, &[]));
    }
    assert_eq!(collect(merge_of(&[file])).0.lost, 2);
}

#[test]
fn the_number_of_a_cgroup_is_skipped() {
    let action = bits::UNPLUG | bits::TC_QUEUE | bits::CGROUP;
    let payload = [[9; 8], [0, 0, 0, 0, 0, 0, 0, 3]].concat();
    let mut file = record(&Raw { action, ..Raw::default() }, &payload);
    let action = bits::MESSAGE | bits::NOTIFY | bits::CGROUP;
    file.extend(record(&Raw { action, ..Raw::default() }, &[&[9; 8], &b"hello"[..]].concat()));
    let (trace, faults) = collect(merge_of(&[file]));
    assert_eq!(faults, []);
    assert_eq!(trace.records[0].seen, Seen::Unplug { dev: Some(Dev(0)), nr_requests: 3, timer: false });
    assert_eq!(trace.records[1].seen, Seen::Message { dev: Dev(0), text: "hello".to_owned() });
}

#[test]
fn faults_say_where_and_what_was_expected() {
    let action = bits::UNPLUG | bits::TC_QUEUE;
    let good = record(&Raw { action, ..Raw::default() }, &[0; 8]);
    let short = record(&Raw { action, ..Raw::default() }, &[0; 4]);
    let elsewhere = record(&Raw { action, cpu: 3, ..Raw::default() }, &[0; 8]);
    let mut version = good.clone();
    version[0] = 8;
    for (file, kept, place, what) in [
        (good[..30].to_vec(), 0, 0, "inside a record: 30 of 48"),
        ([&good[..], &good[..50]].concat(), 1, 56, "inside a payload: 2 of 8"),
        ([&good[..], b"GET / HTTP/1.1\r\nHost: www.example.org\r\nAccept: */*\r\n"].concat(), 1, 56, "no record"),
        ([&good[..], &version].concat(), 1, 56, "version 8"),
        ([&good[..], &short, &good].concat(), 2, 56, "4 bytes, expected 8"),
        ([&good[..], &elsewhere, &good].concat(), 2, 56, "CPU 3 in the file of CPU 0"),
    ] {
        let (trace, faults) = collect(merge_of(&[file]));
        assert_eq!(trace.records.len(), kept, "{what}");
        assert!(faults.len() == 1 && faults[0].offset == place && faults[0].what.contains(what), "{faults:?}");
        assert!(faults[0].to_string().starts_with(&format!("t.blktrace.0: at byte {place}: ")));
    }
    // More faults than are listed.
    let many = elsewhere.repeat(1000);
    let mut merge = merge_of(&[many]);
    assert!(merge.next_raw().is_none());
    assert_eq!((merge.heading().faults.len() as u64, merge.heading().more_faults), (MAX_TOLD, 990));
}

proptest! {
    #[test]
    fn what_was_read_before_a_cut_or_a_flip_is_kept(
        seed in 0_u64..50, at in 0.0..1.0_f64, bit in 0_u8..8, cut: bool
    ) {
        let whole = written(&random_trace(seed, 60));
        let mut files = whole.clone();
        let place = (files[0].len() as f64 * at) as usize;
        if cut {
            files[0].truncate(place);
        } else if let Some(byte) = files[0].get_mut(place) {
            *byte ^= 1 << bit;
        }
        let mut merge = merge_of(&files);
        let mut read = Vec::new();
        while let Some((raw, payload)) = merge.next_raw() {
            read.push((raw.cpu, record(raw, payload)));
        }
        // Records of the damaged file that end before the place, and all of the others, are as they were.
        let mut expected = merge_of(&whole);
        let mut end = 0;
        while let Some((raw, payload)) = expected.next_raw() {
            let bytes = record(raw, payload);
            if raw.cpu == 0 {
                end = whole[0][end..].windows(bytes.len()).position(|part| part == bytes).expect("it is there")
                    + end + bytes.len();
            }
            if raw.cpu > 0 || end <= place {
                prop_assert!(read.contains(&(raw.cpu, bytes)));
            }
        }
        let faults = &merge.heading().faults;
        prop_assert!(!cut || faults.len() <= 1 && faults.iter().all(|fault| fault.offset as usize <= place));
        let _ = collect(merge_of(&files));
    }

    #[test]
    fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), record_first: bool) {
        let mut file = if record_first { record(&Raw::default(), &[]) } else { Vec::new() };
        let before = file.len() as u64;
        file.extend(&bytes);
        let (trace, faults) = collect(merge_of(&[file]));
        prop_assert_eq!(trace.records.len() as u64, before / RECORD_BYTES as u64);
        prop_assert!(bytes.is_empty() || faults.len() == 1 && faults[0].offset == before);
    }
}
