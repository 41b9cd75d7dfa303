//! Lines as the kernel, trace-cmd and perf write them, and damaged ones.

use proptest::prelude::*;

use super::*;
use crate::row::drawn;

const READ: Rwbs = Rwbs(1);

fn extent(sector: u64, bytes: u32, rwbs: Rwbs) -> Extent {
    Extent { dev: Dev::new(7, 1), sector: Sector(sector), bytes, rwbs }
}

#[test]
fn every_form_of_a_line_is_the_same_record() {
    let file = Inode { dev: Dev::new(8, 2), ino: 0x1a };
    let issue = Seen::Issue(extent(8, 4096, READ.with(Rwbs::AHEAD)));
    let start = Seen::CallStart { op: Op::Read, fd: 3, offset: Some(0x2000), len_bytes: 0x1000 };
    for (line, seen) in [
        (
            "             fio-1234    [001] d..1.   12.000005: block_rq_issue: 7,1 RA 4096 () 8 + 8 none,0,0 [fio]",
            &issue,
        ),
        ("             fio-1234    (1234) [001] d..1.   12.000005: block_rq_issue: 7,1 RA 4096 () 8 + 8 [fio]", &issue),
        ("             fio-1234  [001]   12.000005: block_rq_issue:       7,1 RA 4096 () 8 + 8 [fio]", &issue),
        ("fio  1234 [001]   12.000005: block:block_rq_issue: 7,1 RA 4096 () 8 + 8 [fio]", &issue),
        ("fio-1234 [001] ..... 12.000005: sys_pread64(fd: 3, buf: 7ffd0, count: 1000, pos: 2000)", &start),
        (
            "fio-1234 [001] 12.000005: sys_enter_pread64: fd: 0x00000003, buf: 0x0, count: 0x00001000, pos: 0x00002000",
            &start,
        ),
        ("fio-1234 [001] 12.000005: sys_pread64 -> 0x1000", &Seen::CallEnd { op: Op::Read, result: 4096 }),
        ("fio-1234 [001] 12.000005: sys_write -> 0xfffffffffffffffb", &Seen::CallEnd { op: Op::Write, result: -5 }),
        (
            "fio-1234 [001] 12.000005: mm_filemap_add_to_page_cache: dev 8:2 ino 1a pfn=0x5 ofs=8192 order=2",
            &Seen::PageAdd { file, index: 2, order: 2 },
        ),
        (
            "fio-1234 [001] 12.000005: mm_filemap_add_to_page_cache: dev 8:2 ino 1a page=0000 pfn=5 ofs=8192",
            &Seen::PageAdd { file, index: 2, order: 0 },
        ),
        (
            "fio-1234 [001] 12.000005: mm_filemap_get_pages: dev=8:2 ino=1a ofs=4096-12287",
            &Seen::GetPages { file, index: 1, last_index: 3 },
        ),
        (
            "fio-1234 [001] 12.000005: block_rq_complete: 7,1 R () 8 + 8 none,0,0 [-5]",
            &Seen::Complete { extent: extent(8, 4096, READ), error: -5 },
        ),
        ("fio-1234 [001] 12.000005: block_unplug: [a b] 3", &Seen::Unplug { dev: None, nr_requests: 3, timer: false }),
        (
            "fio-1234 [001] 12.000005: sched_switch: prev=a",
            &Seen::Other { name: "sched_switch".to_owned(), fields: "prev=a".to_owned() },
        ),
    ] {
        let mut problems = Problems::default();
        let trace = read("t", line.as_bytes(), &mut problems).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(problems.render(), "", "{line}");
        assert_eq!(trace.records, [Record { at: Nanos(0), cpu: 1, pid: 1234, seen: seen.clone() }], "{line}");
        assert_eq!(trace.names, [(1234, "fio".to_owned())], "{line}");
        assert!(detect("t", line.as_bytes()), "{line}");
    }
}

#[test]
fn mistakes_are_told_with_line_and_column_and_the_rest_is_kept() {
    let text = "# tracer: nop\nCPU:1 [LOST 12 EVENTS]\n\
                a-1 [000] 1.000000: block_bio_queue: 7,1 R 8 * 8 [a]\n\
                a-1 [000] 1.000000: block_bio_queue: 7,1 R 8 + 8 [a]\n\
                a-1 1.000000: block_bio_queue: 7,1 R 8 + 8 [a]\n\
                a-1 [000] 2.5: block_bio_queue: 7,1 Q 8 + 8 [a]\n";
    let mut problems = Problems::default();
    let trace = read("t", text.as_bytes(), &mut problems).expect("there is an event");
    assert_eq!((trace.records.len(), trace.lost), (1, 12));
    let told: Vec<&str> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("t:3:46: `+` belongs here"), "{}", told[0]);
    assert!(told[1].starts_with("t:5:1: no CPU"), "{}", told[1]);
    assert!(told[2].starts_with("t:6:37: `Q`"), "{}", told[2]);
    assert_eq!(read("t", b"hello\n", &mut problems), None);
}

fn text(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(trace, &mut bytes).expect("memory takes everything");
    bytes
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..4 {
        let mut drawn = drawn::trace(seed, 300);
        drawn.paths[0].1 = "/x/y z".to_owned();
        let written = text(&drawn);
        let mut problems = Problems::default();
        let once = read("t", &written, &mut problems).expect("it is one");
        assert_eq!(problems.render(), "");
        assert_eq!(once.records.len(), drawn.records.len());
        assert_eq!((once.lost, once.started_ns, &once.paths), (drawn.lost, drawn.started_ns, &drawn.paths));
        // What the form cannot hold is lost the first time, and nothing the second.
        let twice = read("t", &text(&once), &mut problems).expect("it is one");
        assert_eq!(once.records, twice.records);
        let same = once.records.iter().zip(&drawn.records).filter(|(a, b)| a == b).count();
        assert!(same * 3 > drawn.records.len(), "{same} of {}", drawn.records.len());
    }
}

proptest! {
    #[test]
    fn damaged_files_are_no_trouble(
        seed in 0_u64..4,
        cut in 0_usize..12000,
        flips in prop::collection::vec((0_usize..12000, any::<u8>()), 0..6),
    ) {
        let mut bytes = text(&drawn::trace(seed, 60));
        for (at, value) in flips {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        bytes.truncate(cut.max(1));
        let mut problems = Problems::default();
        let read = read("t", &bytes, &mut problems);
        prop_assert!(read.is_some() || problems.any_error());
    }
}
