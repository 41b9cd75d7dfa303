//! What must hold for every read-ahead policy, and worked examples of the family of 2004.

use iowhy_stack::event::{RaClose, RaKind};
use iowhy_stack::origin;
use iowhy_stack::readahead::{Advice, READAHEADS};
use iowhy_stack::replay::{Case, Happening, IoModel, Read, Replayed, replay};
use iowhy_stack::units::PAGE_BYTES;
use proptest::prelude::*;

fn run(name: &str, case: &Case) -> Replayed {
    let entry = origin::find(READAHEADS, name).expect("a policy of this name");
    replay(entry, &entry.defaults(), case)
}

/// Reads of whole pages on one open file.
fn page_reads(pages: &[(u64, u64)]) -> Vec<Read> {
    pages.iter().map(|(page, n)| Read { offset: page * PAGE_BYTES, len_bytes: n * PAGE_BYTES, fd: 0 }).collect()
}

/// `start+pages` and a letter for the kind, a word for every run.
fn words(replayed: &Replayed) -> String {
    let letter = |kind| match kind {
        RaKind::Sync => "s",
        RaKind::Async => "a",
        RaKind::Force => "f",
        RaKind::Single => ".",
        RaKind::Around | RaKind::Exec | RaKind::Huge => unreachable!("no page faults here"),
    };
    let words: Vec<String> =
        replayed.submissions.iter().map(|s| format!("{}+{}{}", s.start, s.nr_pages, letter(s.kind))).collect();
    words.join(" ")
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0u64..300, 1u64..300).prop_map(|(start, nr_pages)| Happening::Evict { start, nr_pages }),
        any::<bool>().prop_map(Happening::Congested),
        (0u64..2, advice()).prop_map(|(fd, advice)| Happening::Advise { fd, advice }),
    ]
}

fn advice() -> impl Strategy<Value = Advice> {
    prop_oneof![
        Just(Advice::Normal),
        Just(Advice::Random),
        Just(Advice::Sequential),
        (0u64..1_400_000, 0u64..1_400_000).prop_map(|(offset, len_bytes)| Advice::WillNeed { offset, len_bytes }),
    ]
}

fn read() -> impl Strategy<Value = Read> {
    let offset = prop_oneof![0u64..1_300_000, (0u64..310).prop_map(|page| page * PAGE_BYTES)];
    let len = prop_oneof![1u64..20_000, 1u64..400_000, (1u64..80).prop_map(|pages| pages * PAGE_BYTES)];
    (offset, len, 0u64..2).prop_map(|(offset, len_bytes, fd)| Read { offset, len_bytes, fd })
}

prop_compose! {
    /// Anything that may happen to a small file: odd sizes and limits, cached pages, sequential and random reads,
    /// concurrent calls, evictions, advice, congestion.
    fn case()(
        file_bytes in prop_oneof![Just(0u64), 1u64..5_000, 1u64..1_228_800, (1u64..300).prop_map(|n| n * PAGE_BYTES)],
        ra_pages in prop::sample::select(vec![0u64, 1, 2, 3, 4, 8, 16, 20, 32, 128]),
        io_pages in prop::sample::select(vec![1u64, 32, 256, 1024]),
        max_folio_order in prop::sample::select(vec![0u8, 2, 4, 9]),
        io_model in prop::sample::select(vec![IoModel::Instant, IoModel::Fifo, IoModel::Batch]),
        mut reads in prop::collection::vec(read(), 1..16),
        streams in prop::collection::vec(any::<bool>(), 16),
        group_len in 1usize..5,
        cached in prop::collection::vec((0u64..300, 1u64..20), 0..6),
        mut happenings in prop::collection::vec((0usize..16, happening()), 0..5),
    ) -> Case {
        for index in 1..reads.len() {
            if streams[index] {
                let Read { offset, len_bytes, fd } = reads[index - 1];
                reads[index].offset = offset + len_bytes;
                reads[index].fd = fd;
            }
        }
        happenings.sort_by_key(|(before, _)| *before);
        let numbers: Vec<usize> = (0..reads.len()).collect();
        let file_pages = file_bytes.div_ceil(PAGE_BYTES);
        let in_file = |(start, nr_pages): (u64, u64)| {
            let start = start.min(file_pages);
            (start, nr_pages.min(file_pages - start))
        };
        Case {
            file_bytes,
            ra_pages,
            io_pages,
            max_folio_order,
            io_model,
            groups: numbers.chunks(group_len).map(<[usize]>::to_vec).collect(),
            reads,
            cached_initially: cached.into_iter().map(in_file).collect(),
            happenings,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The replayer itself asserts that no page is added twice and none is copied before it is up to date.
    #[test]
    fn every_read_ends_with_exactly_the_bytes_that_exist(case in case()) {
        let file_pages = case.file_bytes.div_ceil(PAGE_BYTES);
        for entry in READAHEADS {
            let replayed = replay(entry, &entry.defaults(), &case);
            for (read, &copied) in case.reads.iter().zip(&replayed.copied) {
                let expected = read.len_bytes.min(case.file_bytes.saturating_sub(read.offset));
                prop_assert_eq!(copied, expected, "{}: {:?}", entry.name, read);
            }
            for submission in &replayed.submissions {
                // A page after the end of the file is read alone where a kernel looks at the size last.
                let limit = if submission.kind == RaKind::Single { u64::MAX } else { file_pages };
                prop_assert!(submission.start + submission.nr_pages <= limit, "{}: {:?}", entry.name, submission);
            }
        }
    }

    /// Without other calls in between, scheduling points and page-by-page copying change nothing.
    #[test]
    fn the_shortcut_for_runs_of_hits_changes_no_decision(mut case in case()) {
        case.io_model = IoModel::Instant;
        case.groups = Vec::new();
        let mut stepped = case.clone();
        // A group of two is walked page by page; the second read of each ends at once.
        let nr_reads = case.reads.len();
        for number in 0..nr_reads {
            stepped.reads.push(Read { offset: 0, len_bytes: 0, fd: 9 });
            stepped.groups.push(vec![number, nr_reads + number]);
        }
        for entry in READAHEADS {
            let (whole, stepped) =
                (replay(entry, &entry.defaults(), &case), replay(entry, &entry.defaults(), &stepped));
            prop_assert_eq!(&whole.submissions, &stepped.submissions, "{}", entry.name);
            prop_assert_eq!(&whole.trace[..], &stepped.trace[..nr_reads], "{}", entry.name);
            prop_assert_eq!(&whole.cached_runs, &stepped.cached_runs, "{}", entry.name);
        }
    }

    #[test]
    fn off_is_a_limit_of_zero(mut case in case()) {
        case.ra_pages = 0;
        case.happenings.retain(|(_, happening)| !matches!(happening, Happening::Advise { .. }));
        let (off, zero) = (run("off", &case), run("linux-2.6.38", &case));
        prop_assert_eq!(off.submissions, zero.submissions);
        prop_assert_eq!(off.cached_runs, zero.cached_runs);
    }
}

#[test]
fn two_readers_turn_the_shared_state_off_and_private_copies_do_not() {
    // Pages 100, 200, 101, 201, ... of two calls in progress together.
    let case = Case {
        file_bytes: 1024 * PAGE_BYTES,
        reads: page_reads(&[(100, 4), (200, 4)]),
        groups: vec![vec![0, 1]],
        ..Case::default()
    };
    let shared = run("linux-2.6.6-rc3", &case);
    assert_eq!(words(&shared), "100+16s 200+2s 202+1. 203+1.");
    assert_eq!(shared.closed, [RaClose::InterleavedMisses]);
    let private = run("linux-2.6.6+private-copy", &case);
    assert_eq!(words(&private), "100+16s 200+16s");
    assert_eq!(private.closed, []);
    for name in ["linux-2.6.6-rc3+read-populate", "linux-2.6.6-rc3+read-populate-pages"] {
        assert!(words(&run(name, &case)).starts_with("100+4f 200+4f"), "{name}");
    }
}

#[test]
fn calls_one_after_the_other_close_by_misses_of_their_own_pattern() {
    let alternating: Vec<(u64, u64)> = (0..16).map(|n| (100 + 300 * (n % 2) + n / 2, 1)).collect();
    let case = Case { file_bytes: 1024 * PAGE_BYTES, reads: page_reads(&alternating), ..Case::default() };
    assert_eq!(run("linux-2.6.6-rc3", &case).closed, [RaClose::Misses]);
    assert_eq!(run("linux-2.6.6+private-copy", &case).closed, [RaClose::Misses]);
}

#[test]
fn sixteen_random_reads_turn_it_on_again() {
    // Two interleaved reads close the window; the k-th 16 KiB read after that reaches 3 + 2 (k - 1) sequential misses.
    let mut pages = vec![(100, 4), (200, 4)];
    pages.extend((0..17).map(|n| (1000 + 50 * ((7 * n) % 17), 4)));
    let case =
        Case { file_bytes: 4096 * PAGE_BYTES, reads: page_reads(&pages), groups: vec![vec![0, 1]], ..Case::default() };
    let replayed = run("linux-2.6.6-rc3", &case);
    assert_eq!((replayed.closed.len(), replayed.nr_reopened), (1, 1));
    let next_size = |read: usize| replayed.trace[read][2];
    let reopened = (2..pages.len()).find(|&read| next_size(read) != -1);
    assert_eq!(reopened, Some(2 + 15), "the sixteenth read after the close");
    let sizes = |read: usize| -> Vec<u64> {
        replayed.submissions.iter().filter(|s| s.read == read).map(|s| s.nr_pages).collect()
    };
    assert_eq!(sizes(16), [1, 1, 1, 1]);
    assert_eq!(sizes(17), [1, 1, 1, 30], "on again at its third page, and the fourth opens a window");
    assert_eq!(sizes(18), [2, 4]);
}

#[test]
fn a_cached_file_closes_by_hits_and_the_next_miss_reopens() {
    let reads: Vec<(u64, u64)> = (0..120).map(|n| (4 * n, 4)).collect();
    let case = Case {
        file_bytes: 4096 * PAGE_BYTES,
        reads: page_reads(&reads),
        cached_initially: vec![(0, 460)],
        ..Case::default()
    };
    let replayed = run("linux-2.6.22", &case);
    assert_eq!((replayed.closed, replayed.nr_reopened), (vec![RaClose::Hits], 1));
}

#[test]
fn congestion_and_hits_are_told_apart() {
    // A limit of 3 opens with a window of one page, after which one fruitless window is enough.
    let case = |cached_initially, happening| Case {
        file_bytes: 1024 * PAGE_BYTES,
        ra_pages: 3,
        reads: page_reads(&[(10, 1), (11, 1)]),
        cached_initially,
        happenings: vec![(1, happening)],
        ..Case::default()
    };
    let congested = case(vec![], Happening::Congested(true));
    assert_eq!(run("linux-2.6.6-rc3", &congested).closed, [RaClose::Congestion]);
    let cached = case(vec![(11, 100)], Happening::Congested(false));
    assert_eq!(run("linux-2.6.6-rc3", &cached).closed, [RaClose::Hits]);
}

#[test]
fn an_empty_file_and_a_read_at_the_end_read_nothing() {
    for entry in READAHEADS {
        for file_bytes in [0, 1, PAGE_BYTES, 10_000] {
            let reads = vec![
                Read { offset: file_bytes, len_bytes: 16_384, fd: 0 },
                Read { offset: file_bytes + 100_000, len_bytes: 1, fd: 0 },
                Read { offset: 0, len_bytes: 0, fd: 0 },
            ];
            let case = Case { file_bytes, io_model: IoModel::Fifo, reads, ..Case::default() };
            assert_eq!(run(entry.name, &case).copied, [0, 0, 0], "{} {file_bytes}", entry.name);
        }
    }
}
