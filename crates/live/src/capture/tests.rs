//! Tests of the parsers of bytes; those with a kernel are in `tests/capture.rs`.

use std::collections::BTreeMap;

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Record, Rwbs, Seen};
use iowhy_stack::units::{Nanos, Sector};
use proptest::prelude::*;

use super::decode::{Decoded, Own};
use super::events::{EVENTS, Event, Place, filter};
use super::format;
use super::instance::{lost_in_stats, parse_names};
use super::letters::rwbs;
use super::reader::Page;
use super::ring::{self, Events, HEAD, Head};
use super::shape::Shape;
use super::{Ask, CaptureError, Level, Prepared, instead};

/// As Linux 6.18 describes it on x86-64.
const ISSUE: &str = "name: block_rq_issue
ID: 2104
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;
\tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
\tfield:char comm[16];\toffset:44;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;

print fmt: \"%d,%d %s %u (%s) %llu + %u %s,%u,%u [%s]\", field:is no field here
";

/// The same kernel's, without the fields that all have.
const SYNC_RA: &str = "name: page_cache_sync_ra
ID: 617
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;
\tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned int order;\toffset:32;\tsize:4;\tsigned:0;
\tfield:unsigned int size;\toffset:36;\tsize:4;\tsigned:0;
\tfield:unsigned int async_size;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int ra_pages;\toffset:44;\tsize:4;\tsigned:0;
\tfield:unsigned int mmap_miss;\toffset:48;\tsize:4;\tsigned:0;
\tfield:loff_t prev_pos;\toffset:56;\tsize:8;\tsigned:1;
\tfield:unsigned long req_count;\toffset:64;\tsize:8;\tsigned:0;
";

const PREAD: &str = "name: sys_enter_pread64
ID: 838
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char * buf;\toffset:24;\tsize:8;\tsigned:0;
\tfield:size_t count;\toffset:32;\tsize:8;\tsigned:0;
\tfield:loff_t pos;\toffset:40;\tsize:8;\tsigned:0;
";

const SWITCH: &str = "name: sched_switch
ID: 372
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:pid_t next_pid;\toffset:40;\tsize:4;\tsigned:1;
";

fn shape(name: &str, text: &str) -> Shape {
    let event = EVENTS.iter().find(|event| event.names.contains(&name)).expect("it is in the table");
    Shape::of(event, name, format::parse(text).expect("a description")).expect("a shape")
}

fn shapes() -> BTreeMap<u16, Shape> {
    // One that is kept as text, with the same fields.
    let text = SWITCH.replace("372", "371");
    let all = [
        ("block/block_rq_issue", ISSUE),
        ("readahead/page_cache_sync_ra", SYNC_RA),
        ("syscalls/sys_enter_pread64", PREAD),
        ("jbd2/jbd2_end_commit", &text),
        ("sched/sched_switch", SWITCH),
    ];
    all.map(|(name, text)| shape(name, text)).map(|shape| (shape.id, shape)).into()
}

/// An event of `len` bytes with these fields at these offsets.
fn event(len: usize, id: u16, pid: i32, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut event = vec![0; len];
    event[..2].copy_from_slice(&id.to_ne_bytes());
    event[4..8].copy_from_slice(&pid.to_ne_bytes());
    for (at, bytes) in fields {
        event[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    event
}

/// The head of an event in a ring.
fn entry(kind: u32, delta: u32) -> [u8; 4] {
    let bits = if cfg!(target_endian = "big") { kind << 27 | delta } else { delta << 5 | kind };
    bits.to_ne_bytes()
}

/// An event as a ring holds it.
fn framed(delta: u32, event: &[u8]) -> Vec<u8> {
    let words = event.len().div_ceil(4);
    let mut out = entry(if words <= 28 { words as u32 } else { 0 }, delta).to_vec();
    if words > 28 {
        out.extend_from_slice(&(event.len() as u32 + 4).to_ne_bytes());
    }
    out.extend_from_slice(event);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn page(time: u64, flags: u64, data: &[u8]) -> Vec<u8> {
    let mut page = time.to_ne_bytes().to_vec();
    page.extend_from_slice(&(data.len() as u64 | flags).to_ne_bytes());
    page.extend_from_slice(data);
    page
}

fn decode(page: &[u8], start_ns: u64) -> Decoded {
    let mut decoded = Decoded::default();
    decoded.page(&Page { cpu: 3, bytes: page }, &shapes(), start_ns);
    decoded
}

fn issue() -> Vec<u8> {
    event(
        64,
        2104,
        77,
        &[
            (8, &(254_u32 << 20 | 1).to_ne_bytes()),
            (16, &123_456_u64.to_ne_bytes()),
            (24, &8_u32.to_ne_bytes()),
            (28, &4096_u32.to_ne_bytes()),
            (34, b"RAM\0"),
            (44, b"reader\0"),
        ],
    )
}

#[test]
fn the_last_name_of_a_process_is_kept_whichever_cpu_comes_first() {
    let mut before = issue();
    before[44..51].copy_from_slice(b"shell\0\0");
    let (before, after) = (page(1000, 0, &framed(0, &before)), page(2000, 0, &framed(0, &issue())));
    for order in [[&before, &after], [&after, &before]] {
        let mut decoded = Decoded::default();
        for (cpu, bytes) in (0..).zip(order) {
            decoded.page(&Page { cpu, bytes }, &shapes(), 0);
        }
        assert_eq!(decoded.last_names(), BTreeMap::from([(77, "reader".to_owned())]));
    }
}

#[test]
fn a_description_is_read_with_its_offsets() {
    let format = format::parse(ISSUE).expect("a description");
    assert_eq!((format.id, format.fields.len()), (2104, 8));
    let of = |name: &str| format.fields.iter().find(|field| field.name == name).expect("the field");
    assert_eq!((of("sector").offset, of("sector").size, of("sector").signed), (16, 8, false));
    assert!(of("rwbs").text && !of("rwbs").located);
    assert!(of("cmd").text && of("cmd").located);
    assert_eq!((of("nr_sector").kind.as_str(), of("nr_sector").text), ("unsigned int", false));
    let mut event = vec![0; 64];
    event[60..].copy_from_slice(&(4_u32 << 16 | 8).to_ne_bytes());
    event[8..12].copy_from_slice(b"abc\0");
    assert_eq!(of("cmd").text(&event), Some(&b"abc"[..]));
    event[60..].copy_from_slice(&(60_u32 << 16 | 8).to_ne_bytes());
    assert_eq!(of("cmd").text(&event), None, "it says that it stands beyond the end");
    for (text, what) in
        [("", "no ID"), ("ID: 70000\n", "no ID"), ("ID: 7\n", "common_pid"), ("field:x;\nID: 7", "not a field")]
    {
        let error = format::parse(text).expect_err(text);
        assert!(error.contains(what), "{text}: {error}");
    }
}

#[test]
fn events_become_records() {
    let ra = event(
        72,
        617,
        78,
        &[
            (8, &42_u64.to_ne_bytes()),
            (16, &(254_u32 << 20).to_ne_bytes()),
            (24, &9_u64.to_ne_bytes()),
            (36, &32_u32.to_ne_bytes()),
            (40, &16_u32.to_ne_bytes()),
            (44, &64_u32.to_ne_bytes()),
            (56, &(-1_i64).to_ne_bytes()),
            (64, &4_u64.to_ne_bytes()),
        ],
    );
    let fields: &[(usize, &[u8])] =
        &[(16, &5_u64.to_ne_bytes()), (32, &8192_u64.to_ne_bytes()), (40, &65536_u64.to_ne_bytes())];
    let pread = event(48, 838, 78, fields);
    let text: &[(usize, &[u8])] = &[(8, b"fio\0"), (24, &78_i32.to_ne_bytes()), (32, &(-2_i64).to_ne_bytes())];
    let text = event(40, 371, 78, text);
    let switch: &[(usize, &[u8])] = &[(8, b"fio\0"), (32, &2_i64.to_ne_bytes()), (40, &79_i32.to_ne_bytes())];
    let switch = event(48, 372, 78, switch);
    let data = [framed(0, &issue()), framed(10, &ra), framed(5, &pread), framed(1, &text), framed(2, &switch)].concat();
    let mut decoded = decode(&page(1000, 0, &data), 900);
    assert_eq!((decoded.events, decoded.undecoded, decoded.missed), (5, 0, 0));
    assert_eq!(decoded.last_names().get(&77).map(String::as_str), Some("reader"));
    let extent = Extent {
        dev: Dev::new(254, 1),
        sector: Sector(123_456),
        bytes: 4096,
        rwbs: Rwbs::READ.with(Rwbs::AHEAD).with(Rwbs::META),
    };
    let file = Inode { dev: Dev::new(254, 0), ino: 42 };
    let input = RaInput {
        index: 9,
        req_count: 4,
        order: 0,
        size: 32,
        async_size: 16,
        ra_pages: 64,
        mmap_miss: 0,
        prev_pos: -1,
    };
    let at = |ns, pid, seen| Record { at: Nanos(ns), cpu: 3, pid, seen };
    assert_eq!(
        decoded.records,
        [
            at(100, 77, Seen::Issue(extent)),
            at(110, 78, Seen::RaSync { file, input }),
            at(115, 78, Seen::CallStart { op: Op::Read, fd: 5, offset: Some(65536), len_bytes: 8192 }),
            at(
                116,
                78,
                Seen::Other {
                    name: "jbd2:jbd2_end_commit".into(),
                    fields: "prev_comm=fio prev_pid=78 prev_state=-2".into(),
                }
            ),
            at(118, 78, Seen::Switch { next: 79, state: 2 }),
        ]
    );
}

/// `cat` (pid 78) gets its name by its exec and wakes its parent, named by another event than its own.
#[test]
fn a_name_belongs_to_the_task_that_the_event_is_about() {
    let rename = "name: task_rename\nID: 90\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:char oldcomm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
        \tfield:char newcomm[16];\toffset:28;\tsize:16;\tsigned:0;\n";
    let waking = "name: sched_waking\nID: 92\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
    let shapes = [shape("task/task_rename", rename), shape("sched/sched_waking", waking)];
    let shapes: BTreeMap<u16, Shape> = shapes.map(|shape| (shape.id, shape)).into();
    let named: &[(usize, &[u8])] = &[(8, &78_i32.to_ne_bytes()), (12, b"parent\0"), (28, b"cat\0")];
    let woken: &[(usize, &[u8])] = &[(8, b"parent\0"), (24, &77_i32.to_ne_bytes())];
    let data = [event(44, 90, 78, named), event(28, 92, 78, woken)];
    let data = data.iter().map(|event| framed(1, event)).collect::<Vec<_>>().concat();
    let mut decoded = Decoded::default();
    decoded.page(&Page { cpu: 3, bytes: &page(1000, 0, &data) }, &shapes, 0);
    let names = [(77, "parent"), (78, "cat")].map(|(pid, name)| (pid, name.to_owned()));
    assert_eq!(decoded.last_names(), BTreeMap::from(names));
}

#[test]
fn only_what_the_own_threads_do_themselves_is_left_out() {
    let read: &[(usize, &[u8])] = &[(16, &5_u64.to_ne_bytes())];
    // By the flags of the event: which context, and whether the request or the call of an own thread is kept.
    let table = [
        (0x00, [true, false]),
        (0x01, [true, false]),
        // Flags of other things: interrupts off, a task is to be scheduled, bottom halves off.
        (0xa7, [true, false]),
        (0x08, [true, true]),
        (0x11, [true, true]),
        (0x40, [true, true]),
    ];
    for (flags, kept) in table {
        let with_flags = |mut event: Vec<u8>| {
            event[2] = flags;
            framed(1, &event)
        };
        let data = [issue(), event(48, 2105, 77, read), event(48, 2105, 78, read)].map(with_flags).concat();
        let pread = PREAD
            .replace("ID: 838", "ID: 2105")
            .replace("format:\n", "format:\n\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n");
        let mut shapes = shapes();
        shapes.insert(2105, shape("syscalls/sys_enter_pread64", &pread));
        let own = Own { threads: vec![77], children: false };
        let mut decoded = Decoded { own, ..Decoded::default() };
        decoded.page(&Page { cpu: 3, bytes: &page(7, 0, &data) }, &shapes, 0);
        let has = |what: fn(&Record) -> bool| decoded.records.iter().any(what);
        let request = has(|record| matches!(record.seen, Seen::Issue(_)));
        let call = has(|record| record.pid == 77 && matches!(record.seen, Seen::CallStart { .. }));
        assert_eq!([request, call], kept, "flags {flags:#x}");
        assert!(has(|record| record.pid == 78), "of another task");
        assert_eq!((decoded.events, decoded.undecoded), (3, 0));
    }
}

#[test]
fn time_is_extended_set_and_kept_over_what_was_discarded() {
    let word = |value: u32| value.to_ne_bytes().to_vec();
    let discarded = [entry(29, 7).to_vec(), word(12), vec![9; 8]].concat();
    let extended = [entry(30, 3).to_vec(), word(2)].concat();
    let absolute = [entry(31, 5).to_vec(), word(100)].concat();
    let long = vec![1; 130];
    let data = [
        framed(1, b"aaaa"),
        discarded,
        framed(2, b"bbbb"),
        extended,
        framed(0, &long),
        absolute,
        framed(1, b"cccc"),
        entry(29, 0).to_vec(),
        framed(1, b"behind the end"),
    ]
    .concat();
    let mut events = Events::new(&data, 10);
    let found: Vec<(u64, Vec<u8>)> = events.by_ref().map(|(time, event)| (time, event.to_vec())).collect();
    let third = 10 + 1 + 7 + 2 + 3 + (2 << 27);
    let set = 5 + (100 << 27);
    assert_eq!(found, [(11, b"aaaa".to_vec()), (20, b"bbbb".to_vec()), (third, long), (set + 1, b"cccc".to_vec())]);
    assert!(!events.broken);
    // The highest five bits are those of the time before.
    let high = 3 << 59;
    let data = [entry(31, 5).to_vec(), word(100), framed(1, b"cccc")].concat();
    assert_eq!(Events::new(&data, high + 17).next().map(|(time, _)| time), Some(high + set + 1));
}

#[test]
fn lost_events_are_told_by_the_sub_buffer() {
    let data = framed(1, b"aaaa");
    assert_eq!(ring::head(&page(5, 0, &data)), Some(Head { time: 5, len: 8, missed: None }));
    assert_eq!(ring::head(&page(5, 1 << 31, &data)), Some(Head { time: 5, len: 8, missed: Some(0) }));
    let mut stored = page(5, 3 << 30, &data);
    stored.extend_from_slice(&41_u64.to_ne_bytes());
    assert_eq!(ring::head(&stored), Some(Head { time: 5, len: 8, missed: Some(41) }));
    assert_eq!(decode(&stored, 0).missed, 41);
    assert_eq!(decode(&page(5, 1 << 31, &data), 0).missed, 1, "at least one");
    // What says that it is longer than it is.
    assert_eq!(ring::head(&page(5, 4096, &[])), None);
    assert_eq!(ring::head(&[0; HEAD - 1]), None);
    assert_eq!(decode(&[0; 3], 0).undecoded, 1);
}

#[test]
fn an_event_of_an_unknown_number_is_counted() {
    let data = [framed(1, &event(64, 9, 1, &[])), framed(1, &issue())].concat();
    let decoded = decode(&page(0, 0, &data), 0);
    assert_eq!((decoded.events, decoded.undecoded, decoded.records.len()), (2, 1, 1));
    // An event of a program has its time in front.
    let single = |bytes: &[u8]| {
        let mut decoded = Decoded::default();
        decoded.single(&Page { cpu: 3, bytes }, &shapes(), 7);
        (decoded.events, decoded.undecoded, decoded.records.first().map(|record| record.at))
    };
    let bytes = [&9_u64.to_ne_bytes()[..], &issue()].concat();
    assert_eq!(single(&bytes), (1, 0, Some(Nanos(2))));
    assert_eq!([single(&bytes[..8]), single(&bytes[..7])], [(1, 1, None), (0, 1, None)]);
    // So is one that is too short for its fields, and a sub-buffer that breaks off.
    let decoded = decode(&page(0, 0, &framed(1, &issue()[..40])), 0);
    assert_eq!((decoded.events, decoded.undecoded), (1, 1));
    let data = [framed(1, &issue()), entry(20, 1).to_vec()].concat();
    let decoded = decode(&page(0, 0, &data), 0);
    assert_eq!((decoded.events, decoded.undecoded, decoded.records.len()), (1, 1, 1));
}

#[test]
fn letters_of_the_kernel() {
    let cases = [
        ("R", Rwbs::READ),
        ("WS", Rwbs::WRITE.with(Rwbs::SYNC)),
        ("RA", Rwbs::READ.with(Rwbs::AHEAD)),
        ("RSM", Rwbs::READ.with(Rwbs::SYNC).with(Rwbs::META)),
        ("FF", Rwbs::PREFLUSH),
        ("FFF", Rwbs::PREFLUSH.with(Rwbs::FUA)),
        ("F", Rwbs::PREFLUSH),
        ("FWFSM", Rwbs::PREFLUSH.with(Rwbs::WRITE).with(Rwbs::FUA).with(Rwbs::SYNC).with(Rwbs::META)),
        ("WFS", Rwbs::WRITE.with(Rwbs::FUA).with(Rwbs::SYNC)),
        ("DE", Rwbs::DISCARD),
        ("N", Rwbs::PASSTHROUGH),
        ("", Rwbs::default()),
    ];
    for (letters, expected) in cases {
        assert_eq!(rwbs(letters.as_bytes()), expected, "{letters}");
    }
}

#[test]
fn filters_name_files_and_devices() {
    let inode = |dev, ino| Inode { dev: Dev(dev), ino };
    let files = Ask { inodes: vec![inode(9, 3), inode(5, 2), inode(9, 1), inode(9, 3)], ..Ask::default() };
    let text = "(s_dev == 5 && (i_ino == 2)) || (s_dev == 9 && (i_ino == 1 || i_ino == 3))";
    assert_eq!(filter(Place::Page, &files).as_deref(), Some(text));
    assert_eq!(filter(Place::Block, &files), None);
    let devices = Ask { devices: vec![Dev(7), Dev(8)], ..Ask::default() };
    assert_eq!(filter(Place::Block, &devices).as_deref(), Some("dev == 7 || dev == 8"));
    let text = "dev == 7 || old_dev == 7 || dev == 8 || old_dev == 8";
    assert_eq!(filter(Place::Remap, &devices).as_deref(), Some(text));
    let text = "s_dev == 7 || (i_ino == 7 && s_dev < 1048576) || s_dev == 8 || (i_ino == 8 && s_dev < 1048576)";
    assert_eq!(filter(Place::Page, &devices).as_deref(), Some(text));
    assert_eq!(filter(Place::Task, &devices), None);
    assert_eq!(filter(Place::Worker, &devices).as_deref(), Some("comm ~ \"iou-wrk-*\""));
    // A kernel takes no filter longer than a page.
    let many = Ask { inodes: (0..1000).map(|ino| inode(9, ino)).collect(), ..Ask::default() };
    assert_eq!(filter(Place::Page, &many).as_deref(), Some("s_dev == 9"));
}

#[test]
fn every_event_has_a_name_and_levels_grow() {
    for event in EVENTS {
        assert!(!event.names.is_empty() && event.names.iter().all(|name| name.matches('/').count() == 1), "{event:?}");
    }
    // The completions of io_uring's workers are one more entry.
    let of_workers = |event: &Event| event.place == Place::Worker;
    let names = EVENTS.iter().flat_map(|event| event.names.iter().map(move |name| (*name, of_workers(event))));
    let mut names: Vec<(&str, bool)> = names.collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, other| one < other), "each is there once");
    let of = |level| EVENTS.iter().filter(|event| event.level <= level).count();
    assert!(of(Level::Light) == 2 && of(Level::Light) < of(Level::Layers) && of(Level::Layers) < of(Level::Full));
}

#[test]
fn what_was_lost_is_in_the_statistics_of_a_ring() {
    let stats = "entries: 12\noverrun: 3\ncommit overrun: 1\nbytes: 900\noldest event ts:  12.5\nnow ts: 13.0\n\
                 dropped events: 7\nread events: 5\n";
    assert_eq!(lost_in_stats(stats, false), 11);
    assert_eq!(lost_in_stats("overrun: many\n:::\n", false), 0);
}

#[test]
fn where_tracefs_is_denied_the_programs_take_its_place_and_say_so() {
    let prepared = || Prepared { source: (), guard: None, shapes: shapes(), missing: Vec::new(), event_ps: 0 };
    let denied = || Err(CaptureError::NoEvents(Level::Light));
    let first = instead(Ok(prepared()), || panic!("nobody asked")).map(|it| it.missing);
    assert_eq!(first.expect("the first"), Vec::<String>::new());
    let second = instead(denied(), || Ok(prepared())).map(|it| it.missing).expect("the second");
    assert!(second.len() == 1 && second[0].starts_with("tracefs, so BPF recorded"), "{second:?}");
    let neither = instead::<()>(denied(), || Err(CaptureError::Bpf("no room".into()))).map(|it| it.missing);
    let both = neither.expect_err("neither").to_string();
    assert!(both.starts_with("this kernel offers none") && both.ends_with("refuses BPF programs, no room"), "{both}");
}

#[test]
fn saved_names_may_have_spaces() {
    let names = parse_names("12 kworker/0:1 x\n77 fio\nnonsense\n78 <...>\n");
    assert_eq!(names, BTreeMap::from([(12, "kworker/0:1 x".to_owned()), (77, "fio".to_owned())]));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        decode(&bytes, 5);
        let framed = page(7, 0, &bytes);
        let decoded = decode(&framed, 5);
        prop_assert!(decoded.records.len() as u64 <= decoded.events);
        let text = String::from_utf8_lossy(&bytes);
        let _ = format::parse(&text);
        Decoded::default().single(&Page { cpu: 0, bytes: &bytes }, &shapes(), 5);
        let _ = lost_in_stats(&text, false);
        let _ = parse_names(&text);
        let _ = rwbs(&bytes);
    }

    #[test]
    fn flipped_bits_and_cut_ends_are_survived(cut in 0_usize..400, at in 0_usize..400, bit in 0_u8..8) {
        let data: Vec<u8> = (0..4).flat_map(|nr| framed(nr, &issue())).collect();
        let mut page = page(7, 0, &data);
        let len = page.len();
        page[at % len] ^= 1 << bit;
        page.truncate(cut.max(1));
        let decoded = decode(&page, 5);
        prop_assert!(decoded.records.len() <= 4 + len / 4);
    }

    #[test]
    fn a_flipped_description_is_survived(
        at in 0_usize..900,
        to in any::<u8>(),
        bytes in proptest::collection::vec(any::<u8>(), 64),
    ) {
        let mut text = ISSUE.as_bytes().to_vec();
        let len = text.len();
        text[at % len] = to;
        if let Ok(format) = format::parse(&String::from_utf8_lossy(&text)) {
            for field in &format.fields {
                let _ = (field.number(&bytes), field.text(&bytes));
            }
        }
    }

    #[test]
    fn what_is_written_is_read(events in proptest::collection::vec((0_u32..1 << 27, 1_usize..60), 0..40)) {
        let mut data = Vec::new();
        let mut time = 1000_u64;
        let mut expected = Vec::new();
        for (delta, words) in events {
            let event = vec![words as u8; words * 4];
            data.extend(framed(delta, &event));
            time += u64::from(delta);
            expected.push((time, event));
        }
        let found: Vec<(u64, Vec<u8>)> = Events::new(&data, 1000).map(|(time, event)| (time, event.to_vec())).collect();
        prop_assert_eq!(found, expected);
    }
}
