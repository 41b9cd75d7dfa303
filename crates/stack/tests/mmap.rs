//! Faults on mapped files: what a program that touches pages makes the kernels read.

use iowhy_stack::event::RaKind;
use iowhy_stack::fault::{FAULTS, MapAdvice, Protection};
use iowhy_stack::origin;
use iowhy_stack::readahead::READAHEADS;
use iowhy_stack::replay_mmap::{Case, Map, MemoryAdvice, Op, Replayed, replay};
use iowhy_stack::units::PAGE_BYTES;
use proptest::prelude::*;

const FILE_PAGES: u64 = 4096;

fn case(ra_pages: u64, exec: bool, ops: Vec<Op>) -> Case {
    Case {
        file_bytes: FILE_PAGES * PAGE_BYTES,
        ra_pages,
        io_pages: 256,
        max_folio_order: 0,
        fault_around_pages: 16,
        fds: vec![0],
        mappings: vec![Map {
            id: 0,
            fd: 0,
            file_page: 0,
            nr_pages: FILE_PAGES,
            protection: Protection { exec, shared: false },
            slot: 0,
        }],
        ops,
        ..Case::default()
    }
}

fn run(kernel: &str, case: &Case) -> Replayed {
    let fault = origin::find(FAULTS, kernel).expect("a kernel");
    let readahead = origin::find(READAHEADS, kernel).expect("a kernel");
    let mut rules = (fault.build)(&fault.defaults());
    rules.fault_around_pages = rules.fault_around_pages.min(case.fault_around_pages);
    let case = Case { fault_around_pages: rules.fault_around_pages, ..case.clone() };
    replay(&rules, &rules.advice, (readahead, &readahead.defaults()), &case)
}

/// `start+pages` and a letter for the kind, a word for every run.
fn words(replayed: &Replayed) -> String {
    let letter = |kind| match kind {
        RaKind::Sync => 's',
        RaKind::Async => 'a',
        RaKind::Force => 'f',
        RaKind::Single => '.',
        RaKind::Around => 'o',
        RaKind::Exec => 'x',
        RaKind::Huge => 'h',
    };
    let words = replayed.submissions.iter().map(|s| format!("{}+{}{}", s.start, s.nr_pages, letter(s.kind)));
    words.collect::<Vec<_>>().join(" ")
}

fn touch(pages: impl IntoIterator<Item = u64>) -> Op {
    Op::Touch { mapping: 0, pages: pages.into_iter().collect(), write: false }
}

fn expect(advice: MapAdvice) -> Op {
    let len_bytes = FILE_PAGES * PAGE_BYTES;
    Op::Madvise { mapping: 0, offset: 0, len_bytes, advice: MemoryAdvice::Expect(advice) }
}

#[test]
fn what_a_few_touches_read() {
    let rows: [(&str, u64, bool, Vec<Op>, &str); 8] = [
        ("linux-6.18", 32, false, vec![touch(0..40)], "0+32o 32+32a 64+32a"),
        ("linux-6.18", 32, false, vec![touch([1000, 2000])], "984+32o 1984+32o"),
        ("linux-6.18", 32, false, vec![expect(MapAdvice::Random), touch([7, 8, 1000])], "7+1. 8+1. 1000+1."),
        ("linux-6.18", 0, false, vec![touch([7, 8])], "7+1. 8+1."),
        ("linux-6.18", 32, true, vec![touch([1000])], "1000+32x"),
        ("linux-6.12", 32, true, vec![touch([1000])], "984+32o"),
        // 2.6.38 has no marker in a window around a page; the next miss is where the window ended, so the stream's next
        // window is read with the one after it.
        ("linux-2.6.38", 32, false, vec![touch(1000..1017)], "984+32o 1016+64s"),
        ("linux-4.4", 32, false, vec![touch(1000..1017)], "984+32o 1016+32a 1048+32a"),
    ];
    for (kernel, ra_pages, exec, ops, expected) in rows {
        assert_eq!(words(&run(kernel, &case(ra_pages, exec, ops))), expected, "{kernel} {ra_pages}");
    }
}

#[test]
fn a_hundred_misses_without_hits_stop_reading_around() {
    // Stores to a private mapping are not mapped around, so nothing takes their misses back.
    let pages = (0..102).map(|n| 40 * n).collect();
    let replayed = run("linux-6.18", &case(32, false, vec![Op::Touch { mapping: 0, pages, write: true }]));
    let kinds: Vec<RaKind> = replayed.submissions.iter().map(|submission| submission.kind).collect();
    assert_eq!(kinds[99..], [RaKind::Around, RaKind::Single, RaKind::Single]);
    // Loads take sixteen back each.
    let replayed = run("linux-6.18", &case(32, false, vec![touch((0..102).map(|n| 40 * n))]));
    assert!(replayed.submissions.iter().all(|submission| submission.kind == RaKind::Around));
}

#[test]
fn willing_a_mapping_reads_its_parts_and_maps_nothing() {
    let part = |offset: u64, nr_pages: u64, advice| Op::Madvise {
        mapping: 0,
        offset: offset * PAGE_BYTES,
        len_bytes: nr_pages * PAGE_BYTES,
        advice,
    };
    let ops = vec![
        part(100, 50, MemoryAdvice::Expect(MapAdvice::Random)),
        part(90, 30, MemoryAdvice::WillNeed),
        part(100, 50, MemoryAdvice::Expect(MapAdvice::Normal)),
        part(200, 30, MemoryAdvice::WillNeed),
    ];
    let replayed = run("linux-6.18", &case(32, false, ops));
    assert_eq!(words(&replayed), "90+10f 100+20f 200+30f");
    assert_eq!(replayed.mapped_runs[&0], []);
}

fn op() -> impl Strategy<Value = Op> {
    let range = || (0..FILE_PAGES, 1u64..600);
    prop_oneof![
        4 => (prop::collection::vec(0..FILE_PAGES, 1..20), any::<bool>())
            .prop_map(|(pages, write)| Op::Touch { mapping: 0, pages, write }),
        4 => range().prop_map(|(first, nr)| touch(first..(first + nr).min(FILE_PAGES))),
        2 => range().prop_map(|(first, nr)| Op::Read { fd: 0, offset: first * PAGE_BYTES, len_bytes: nr * 1000 }),
        1 => range().prop_map(|(first, nr)| Op::Evict { offset: first * PAGE_BYTES, len_bytes: nr * PAGE_BYTES }),
        2 => (range(), 0..6).prop_map(|((first, nr), what)| Op::Madvise {
            mapping: 0,
            offset: first * PAGE_BYTES,
            len_bytes: nr.min(FILE_PAGES - first) * PAGE_BYTES,
            advice: match what {
                0 => MemoryAdvice::Expect(MapAdvice::Normal),
                1 => MemoryAdvice::Expect(MapAdvice::Random),
                2 => MemoryAdvice::Expect(MapAdvice::Sequential),
                3 => MemoryAdvice::Huge(true),
                4 => MemoryAdvice::DontNeed,
                _ => MemoryAdvice::PopulateRead,
            },
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The replayer itself asserts that no page is added to the cache twice.
    #[test]
    fn every_touched_page_is_mapped_in_the_end_and_repetition_reads_nothing(
        ops in prop::collection::vec(op(), 1..8),
        ra_pages in prop::sample::select(vec![0u64, 1, 3, 8, 32, 512]),
        kernel in prop::sample::select(vec!["linux-2.6.38", "linux-4.4", "linux-6.1", "linux-6.12", "linux-6.18"]),
        large in any::<bool>(),
    ) {
        let mut ops = ops;
        ops.extend([touch(100..300), expect(MapAdvice::Random)]);
        let folios = kernel.starts_with("linux-6.") && large;
        let case = Case { max_folio_order: if folios { 9 } else { 0 }, ..case(ra_pages, false, ops.clone()) };
        let replayed = run(kernel, &case);
        prop_assert!(replayed.returned.iter().all(|&returned| returned >= 0));
        let is_mapped = |page| replayed.mapped_runs[&0].iter().any(|&(start, nr)| (start..start + nr).contains(&page));
        prop_assert!((100..300).all(is_mapped));
        ops.push(touch(100..300));
        let again = run(kernel, &Case { ops, ..case });
        prop_assert_eq!(again.submissions.len(), replayed.submissions.len());
        prop_assert_eq!(again.trace.len(), replayed.trace.len());
    }
}
