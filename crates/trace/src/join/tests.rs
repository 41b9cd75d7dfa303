//! Drawn traces, and simulated runs whose links are known.

use iowhy_stack::event::EventSink;
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::{KERNELS, Stack};
use iowhy_stack::outcome::Plan;
use iowhy_stack::sim;
use iowhy_stack::trace::RaInput;
use iowhy_stack::workload::{Mix, Stream, Target};

use crate::recorded::{Recorded, What as Line};

use super::samples::{FILE, add, buffered_read, by, end, extent, read_call, trace};
use super::*;

#[test]
fn a_buffered_read_has_its_window_its_pages_and_its_request() {
    let joined = join(&buffered_read(), &Who::default());
    assert_eq!(joined.leftovers, Leftovers::default());
    let [call] = &joined.calls[..] else { panic!("{} calls", joined.calls.len()) };
    assert_eq!((call.file, call.offset, call.pages_added), (Some(0), Some(0), 4));
    assert_eq!(call.windows.len(), 1, "the kernel traces it twice");
    let window = call.windows[0];
    assert_eq!((window.kind, window.nr_pages, window.async_size, window.inferred), (RaKind::Sync, 4, Some(2), false));
    assert_eq!((&call.bios[..], &call.requests[..], &call.waited_for[..]), (&[0, 1][..], &[0][..], &[0][..]));
    assert_eq!((call.device, call.by_others), (Nanos(54), 0));
    let pages: Vec<Pages> = joined.bios.iter().flat_map(|bio| bio.pages.clone()).collect();
    let run = |start, nr_pages| Pages { file: 0, start, nr_pages };
    assert_eq!(pages, [run(0, 3), run(3, 1)]);
    assert_eq!(joined.requests[0].bios, [0, 1]);
    let request = &joined.requests[0];
    let times = [request.queued, request.inserted, request.issued, request.completed];
    assert_eq!(times, [20, 25, 26, 80].map(|at| Some(Nanos(at))));
    assert_eq!(joined.putters, [Putter { file: 0, pid: 5, name: "fio".to_owned(), nr_pages: 4, own: true }]);
    assert!(!joined.inferred_windows);
}

#[test]
fn a_split_bio_becomes_two_with_a_share_of_the_pages_each() {
    let ahead = Rwbs::READ.with(Rwbs::AHEAD);
    let mut records = buffered_read().records;
    // The bio of three pages is split after the first: sectors 800 to 807, and the rest from 808.
    let split = Seen::Split { extent: extent(800, 1, ahead), rest: Sector(808) };
    let at = records.iter().position(|record| matches!(record.seen, Seen::GetRequest(_))).expect("a request");
    records.insert(at, by(5, [(20, split)]).remove(0));
    let joined = join(&trace(records), &Who::default());
    let bios: Vec<(u64, u32, Vec<Pages>)> =
        joined.bios.iter().map(|bio| (bio.extent.sector.0, bio.extent.bytes / 4096, bio.pages.clone())).collect();
    let run = |start, nr_pages| vec![Pages { file: 0, start, nr_pages }];
    assert_eq!(bios[..2], [(800, 1, run(0, 1)), (808, 2, run(1, 2))]);
}

#[test]
fn a_call_waits_for_requests_that_complete_while_it_runs() {
    // When the request completes, and when a second reader of pages 2 and 3 begins and ends; what each waits for.
    for (complete, [begin, ends], first, second) in [
        (80, [70, 85], true, true),
        (80, [80, 85], true, true),
        (80, [81, 85], true, false),
        (80, [60, 79], true, false),
        (90, [60, 95], true, true),
        (91, [60, 95], false, true),
    ] {
        let mut records = buffered_read().records;
        for record in &mut records {
            if matches!(record.seen, Seen::Complete { .. }) {
                record.at = Nanos(complete);
            }
        }
        records.extend(by(6, [(begin, read_call(8192, 8192)), (ends, end(8192))]));
        // A file is that of the descriptor, or of the pages that a call looks up.
        let looked_up = Seen::GetPages { file: FILE, index: 2, last_index: 4 };
        records.extend(by(6, [(begin, looked_up)]));
        let mut trace = trace(records);
        // The kernel completes a request before the reader that waits for it goes on.
        trace.records.sort_by_key(|record| (record.at, matches!(record.seen, Seen::CallEnd { .. })));
        let joined = join(&trace, &Who::default());
        let waits: Vec<bool> = joined.calls.iter().map(|call| call.waited_for == [0]).collect();
        assert_eq!(waits, [first, second], "completes at {complete}, second from {begin} to {ends}");
    }
}

#[test]
fn windows_are_inferred_where_the_kernel_has_no_tracepoints() {
    let mut trace = buffered_read();
    trace
        .records
        .retain(|record| !matches!(record.seen, Seen::RaSync { .. } | Seen::RaOrder { .. } | Seen::RaUnbounded { .. }));
    let joined = join(&trace, &Who::default());
    assert!(joined.inferred_windows);
    let window = joined.calls[0].windows[0];
    assert_eq!((window.start, window.nr_pages, window.async_size, window.inferred), (0, 4, None, true));
    let place = |wanted: fn(&What) -> bool| joined.events.iter().position(|event| wanted(&event.what));
    let window = place(|what| matches!(what, What::RaWindow { .. }));
    assert!(window < place(|what| matches!(what, What::PageAdd { .. })), "a decision comes before its pages");
}

#[test]
fn pages_that_come_one_by_one_were_read_without_a_window() {
    // Two calls of two pages, then one of a single page, which nothing tells from a window of one page.
    let read = |pages: &[u64], offset, len_bytes| {
        let begin = Seen::CallStart { op: Op::Read, fd: 3, offset: Some(offset), len_bytes };
        let page = |&index: &u64| {
            let bytes = PAGE_BYTES as u32;
            [
                Seen::PageAdd { file: FILE, index, order: 0 },
                Seen::Queue(Extent { bytes, ..extent(index * 8, 0, Rwbs::READ) }),
            ]
        };
        let end = Seen::CallEnd { op: Op::Read, result: len_bytes as i64 };
        std::iter::once(begin).chain(pages.iter().flat_map(page)).chain([end]).collect::<Vec<_>>()
    };
    let seen = [read(&[0, 1], 0, 8192), read(&[2, 3], 8192, 8192), read(&[9], 9 * PAGE_BYTES, PAGE_BYTES)].concat();
    let records = (0_u64..).zip(seen).map(|(nr, seen)| Record { at: Nanos(nr), cpu: 0, pid: 100, seen }).collect();
    let joined = join(&trace(records), &Who::default());
    let kinds: Vec<RaKind> = joined.calls.iter().flat_map(|call| &call.windows).map(|window| window.kind).collect();
    assert_eq!(kinds, [RaKind::Single, RaKind::Single, RaKind::Single, RaKind::Single, RaKind::Sync]);
}

/// A kernel's behaviour as records: those of the file `traces/` were made of.
fn of_recorded(recorded: &Recorded) -> Trace {
    let mut records = Vec::new();
    for (nr, line) in (0_u64..).zip(&recorded.lines) {
        let seen = match line.what {
            Line::Read { fd, offset, len_bytes } => {
                Seen::CallStart { op: Op::Read, fd, offset: Some(offset), len_bytes }
            }
            Line::End { result } => Seen::CallEnd { op: Op::Read, result },
            Line::Sync(input) => Seen::RaSync { file: FILE, input },
            Line::Async(input) => Seen::RaAsync { file: FILE, input },
            Line::Order { index, order, size, async_size, ra_pages } => {
                Seen::RaOrder { file: FILE, index, order, size, async_size, ra_pages }
            }
            Line::Unbounded { index, nr_pages, lookahead } => {
                Seen::RaUnbounded { file: FILE, index, nr_to_read: nr_pages, lookahead_size: lookahead }
            }
            Line::Add { index, order } => Seen::PageAdd { file: FILE, index, order },
            Line::Bio { sector, bytes } => Seen::Queue(Extent { bytes, ..extent(sector, 0, Rwbs::READ) }),
            _ => continue,
        };
        records.push(Record { at: Nanos(nr), cpu: 0, pid: 100 + line.task, seen });
    }
    trace(records)
}

/// As a kernel without the tracepoints would have traced it.
fn without_readahead(trace: &Trace) -> Trace {
    let own = |seen: &Seen| {
        matches!(seen, Seen::RaSync { .. } | Seen::RaAsync { .. } | Seen::RaOrder { .. } | Seen::RaUnbounded { .. })
    };
    let mut left = trace.clone();
    left.records.retain(|record| !own(&record.seen));
    left.inferred_windows = true;
    left
}

/// Pages that calls read ahead, first page and the one after the last, but not beyond the end of the file.
fn windows(joined: &Joined, pages: u64) -> Vec<(u32, u64, u64)> {
    let of = |call: &CallRecord| {
        let id = call.call;
        let ends = |window: &Window| (id, window.start, (window.start + window.nr_pages).min(pages));
        call.windows.iter().map(ends).collect::<Vec<_>>()
    };
    joined.calls.iter().flat_map(of).filter(|(_, start, end)| start < end).collect()
}

/// Of a record: windows decided on, windows inferred, how many of those are the same, how many lie within one.
fn inferred(recorded: &Recorded) -> [usize; 4] {
    let trace = of_recorded(recorded);
    let (told, inferred) = (join(&trace, &Who::default()), join(&without_readahead(&trace), &Who::default()));
    assert!(!told.inferred_windows && inferred.inferred_windows);
    assert!(told.calls.iter().flat_map(|call| &call.windows).all(|window| !window.inferred));
    assert!(inferred.calls.iter().flat_map(|call| &call.windows).all(|window| window.inferred));
    let pages = recorded.file_bytes.div_ceil(PAGE_BYTES);
    let (told, inferred) = (windows(&told, pages), windows(&inferred, pages));
    let same = inferred.iter().filter(|window| told.contains(window)).count();
    let holds = |(call, start, end): &(u32, u64, u64)| {
        told.iter().any(|(of, from, to)| (call, from <= start, end <= to) == (of, true, true))
    };
    [told.len(), inferred.len(), same, inferred.iter().filter(|window| holds(window)).count()]
}

/// Where nothing of a file is cached, every inferred window is the kernel's. Where parts of it are, less is added than
/// was decided on: an inferred window is a part of the kernel's.
#[test]
fn inferred_windows_are_those_that_a_kernel_decided_on_as_far_as_pages_tell() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/linux-6.18");
    let mut all = [0; 4];
    for entry in std::fs::read_dir(folder).expect("the records are there when tests run") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let recorded = Recorded::from_text(&text).expect("a record");
        let found = inferred(&recorded);
        println!("{} decided on, inferred, the same, within: {found:?}", recorded.job);
        let [decided, inferred, same, within] = found;
        if ["seq-", "stride-", "tiny-"].iter().any(|job| recorded.job.starts_with(job)) {
            assert_eq!([inferred, same], [decided; 2], "{}", path.display());
        }
        assert!(within * 100 >= inferred * 95, "{}: {found:?}", path.display());
        all.iter_mut().zip(found).for_each(|(all, found)| *all += found);
    }
    let [decided, inferred, same, within] = all;
    println!("all: {all:?}");
    assert!(decided > 100, "{decided} are too few to say anything");
    assert!(same * 100 >= decided * 80 && within * 100 >= inferred * 98, "{all:?}");
}

#[test]
fn whose_pages_they_are_is_told_by_name() {
    // blkid reads a page, and fio waits for blkid's request.
    let read = Rwbs::READ;
    let mut records =
        by(6, [(1, add(0)), (2, Seen::Queue(extent(800, 1, read))), (3, Seen::Issue(extent(800, 1, read)))]);
    let look = Seen::GetPages { file: FILE, index: 0, last_index: 1 };
    records.extend(by(5, [(5, read_call(0, 4096)), (6, look), (60, end(4096))]));
    records.extend(by(0, [(50, Seen::Complete { extent: extent(800, 1, read), error: 0 })]));
    let joined = join(&trace(records), &Who { pids: vec![5], ..Who::default() });
    let call = &joined.calls[0];
    assert_eq!((call.waited_for.len(), call.by_others, call.device, call.bios.len()), (1, 1, Nanos(45), 0));
    assert_eq!((joined.putters[0].name.as_str(), joined.putters[0].own), ("blkid", false));
    assert_eq!((joined.requests[0].calls.len(), &joined.requests[0].pids[..]), (0, &[6][..]));
    assert_eq!(joined.leftovers, Leftovers::default());
}

#[test]
fn positions_follow_the_descriptor_and_direct_calls_wait_for_their_own_bios() {
    let start = |len_bytes| Seen::CallStart { op: Op::Read, fd: 3, offset: None, len_bytes };
    let look = Seen::GetPages { file: FILE, index: 4, last_index: 5 };
    let read = extent(64, 1, Rwbs::READ);
    let records = by(
        5,
        [
            (1, start(100)),
            (2, look),
            (3, end(100)),
            (4, start(4096)),
            (5, Seen::Queue(read)),
            (6, Seen::GetRequest(read)),
            (7, Seen::Issue(read)),
            (17, Seen::Complete { extent: read, error: 0 }),
            (18, Seen::Complete { extent: read, error: 0 }),
            (20, end(4096)),
        ],
    );
    let joined = join(&trace(records), &Who::default());
    let places: Vec<(Option<u32>, Option<u64>)> = joined.calls.iter().map(|call| (call.file, call.offset)).collect();
    assert_eq!(places, [(Some(0), Some(16384)), (Some(0), Some(16484))]);
    assert_eq!((&joined.calls[1].waited_for[..], joined.calls[1].device), (&[0][..], Nanos(10)));
    // The second completion is the bio's own.
    assert_eq!(joined.leftovers, Leftovers::default());
}

/// The task starts a worker and gives it a write; the worker looks at a page of it, or nobody sees any.
#[test]
fn a_sync_of_a_mapping_is_of_the_file_that_was_touched_last() {
    let sync = Seen::CallStart { op: Op::Fsync, fd: -1, offset: None, len_bytes: 0 };
    let done = Seen::CallEnd { op: Op::Fsync, result: 0 };
    let touched = Seen::Fault { file: FILE, index: 3 };
    for (before, file) in [(vec![(20, touched)], Some(0)), (vec![], None)] {
        let records = by(5, before.into_iter().chain([(30, sync.clone()), (40, done.clone())]));
        let joined = join(&trace(records), &Who::default());
        assert_eq!(joined.calls.iter().find(|call| call.op == Op::Fsync).expect("a sync").file, file);
    }
}

#[test]
fn a_cached_call_of_a_worker_has_its_page_or_is_data_all_the_same() {
    for (looks, file, offset) in [(true, Some(0), Some(16384)), (false, None, None)] {
        let text = |name: &str, fields: &str| Seen::Other { name: name.to_owned(), fields: fields.to_owned() };
        let of_task = [
            (0, text("iowhy:workload", "pid=5")),
            (2, text("io_uring:io_uring_submit_req", "req=0x1 opcode=23")),
            (3, text("io_uring:io_uring_queue_async_work", "req=0x1 opcode=23")),
            (9, text("io_uring:io_uring_complete", "req=0x1 res=4096")),
        ];
        let look = Seen::GetPages { file: FILE, index: 4, last_index: 5 };
        let of_worker = looks.then_some((5, look));
        let mut trace = trace([by(5, of_task), by(17, of_worker)].concat());
        trace.names.push((17, "iou-wrk-5".to_owned()));
        let joined = join(&trace, &Who::default());
        let [call] = &joined.calls[..] else { panic!("{} calls", joined.calls.len()) };
        assert_eq!((call.file, call.offset, call.result), (file, offset, Some(4096)));
        let ends = joined.events.iter().filter(|event| matches!(event.what, What::CallEnd { .. }));
        assert_eq!(ends.count(), 1, "it is data, and no pipe's");
    }
}

#[test]
fn what_cannot_be_linked_is_counted() {
    let read = |sector| extent(sector, 1, Rwbs::READ);
    let records = by(
        5,
        [
            (1, end(1)),
            (2, Seen::BackMerge(read(8))),
            (3, Seen::Issue(read(16))),
            (4, Seen::Complete { extent: read(800), error: 0 }),
            (5, Seen::Queue(read(40))),
            (6, Seen::CallStart { op: Op::Write, fd: 1, offset: None, len_bytes: 5 }),
        ],
    );
    let left = join(&trace(records), &Who::default()).leftovers;
    let expected = Leftovers {
        call_ends: 1,
        open_calls: 1,
        calls_without_file: 1,
        pages_without_bio: 0,
        bios: 1,
        merges: 1,
        requests_without_bio: 1,
        open_requests: 1,
        completions: 1,
    };
    assert_eq!((left, left.total()), (expected, 8));
}

#[test]
fn requests_merge_and_come_back_and_complete_in_parts() {
    let write = |sector, pages| extent(sector, pages, Rwbs::WRITE);
    let records = by(
        9,
        [
            (1, Seen::Queue(write(0, 1))),
            (2, Seen::GetRequest(write(0, 1))),
            (3, Seen::Queue(write(16, 1))),
            (4, Seen::GetRequest(write(16, 1))),
            (5, Seen::Queue(write(8, 1))),
            (6, Seen::FrontMerge(write(8, 1))),
            (7, Seen::MergeRequests(write(8, 2))),
            (8, Seen::Issue(write(0, 3))),
            (9, Seen::Requeue(write(0, 3))),
            (10, Seen::Issue(write(0, 3))),
            (11, Seen::Complete { extent: write(0, 1), error: 0 }),
            (12, Seen::Complete { extent: write(8, 2), error: 0 }),
        ],
    );
    let joined = join(&trace(records), &Who::default());
    assert_eq!(joined.leftovers, Leftovers::default());
    assert_eq!(joined.requests.len(), 2);
    let request = &joined.requests[0];
    assert_eq!((request.bios.len(), request.issued, request.completed), (3, Some(Nanos(10)), Some(Nanos(12))));
    assert!(joined.requests[1].merged);
}

#[test]
fn a_flush_is_completed_wherever_the_kernel_says_it_was() {
    let flush = |sector| Extent { bytes: 0, ..extent(sector, 0, Rwbs::PREFLUSH) };
    // Sector -1, in the largest place that there is.
    let done = |sector| Seen::Complete { extent: flush(sector), error: 0 };
    let nowhere = 1 << 53;
    let events = [(1, Seen::Issue(flush(0))), (20, done(nowhere)), (30, Seen::Issue(flush(0))), (55, done(0))];
    let joined = join(&trace(by(4, events)), &Who::default());
    assert_eq!(joined.leftovers, Leftovers::default());
    let times: Vec<_> = joined.requests.iter().map(|request| (request.issued, request.completed)).collect();
    assert_eq!(times, [(Some(Nanos(1)), Some(Nanos(20))), (Some(Nanos(30)), Some(Nanos(55)))]);
}

/// A simulated run's events as a kernel would trace them: a task for each call that is open at once.
fn bridge(events: &[Event]) -> Trace {
    const FILES: Dev = Dev(8 << 20);
    let (mut tasks, mut requests): (Vec<u32>, HashMap<u32, Extent>) = (Vec::new(), HashMap::new());
    let mut bio = Extent::default();
    let mut records = Vec::new();
    for event in events {
        let call = event.call.0;
        let inode = |file: FileId| Inode { dev: FILES, ino: u64::from(file.0) + 10 };
        let task = tasks.iter().position(|open| *open == call && call != 0).or_else(|| match event.what {
            What::CallStart { .. } => tasks.iter().position(|open| *open == 0).or_else(|| {
                tasks.push(0);
                Some(tasks.len() - 1)
            }),
            _ => None,
        });
        let mut add = |seen| {
            let pid = task.map_or(900, |task| 100 + task as u32);
            records.push(Record { at: event.at, cpu: 0, pid, seen });
        };
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => {
                add(Seen::CallStart { op, fd: file.0 as i32, offset: Some(offset), len_bytes: u64::from(len_bytes) });
                if matches!(op, Op::Read | Op::Write) {
                    let last_index = (offset + u64::from(len_bytes)).div_ceil(PAGE_BYTES);
                    add(Seen::GetPages { file: inode(file), index: offset / PAGE_BYTES, last_index });
                }
                tasks[task.expect("a task was made")] = call;
            }
            What::CallEnd { op, len_bytes, .. } => {
                add(Seen::CallEnd { op, result: i64::from(len_bytes) });
                if let Some(task) = task {
                    tasks[task] = 0;
                }
            }
            What::Miss { file, page } => {
                add(Seen::RaSync { file: inode(file), input: RaInput { index: page.0, ..RaInput::default() } })
            }
            What::RaWindow { file, kind, start, nr_pages, async_size, order } => {
                let input = RaInput { index: start.0, ..RaInput::default() };
                match kind {
                    RaKind::Async => add(Seen::RaAsync { file: inode(file), input }),
                    _ => add(Seen::RaSync { file: inode(file), input }),
                }
                add(Seen::RaOrder {
                    file: inode(file),
                    index: start.0,
                    order: u32::from(order),
                    size: nr_pages,
                    async_size,
                    ra_pages: 32,
                });
            }
            What::PageAdd { file, page, nr_pages } => {
                for nr in 0..u64::from(nr_pages) {
                    add(Seen::PageAdd { file: inode(file), index: page.0 + nr, order: 0 });
                }
            }
            What::BioQueue { dir, content, sector, nr_sectors } => {
                let rwbs = if dir == Dir::Read { Rwbs::READ } else { Rwbs::WRITE };
                let rwbs = if content == Content::Data { rwbs } else { rwbs.with(Rwbs::META) };
                bio = Extent { dev: FILES, sector, bytes: nr_sectors * 512, rwbs };
                add(Seen::Queue(bio));
            }
            What::GetRequest { rq } => {
                requests.insert(rq.0, bio);
                add(Seen::GetRequest(bio));
            }
            What::Merge { rq, kind, .. } => {
                let to = requests.get_mut(&rq.0).expect("it was made");
                to.bytes += bio.bytes;
                if kind == MergeKind::Front {
                    to.sector = bio.sector;
                }
                add(if kind == MergeKind::Back { Seen::BackMerge(bio) } else { Seen::FrontMerge(bio) });
            }
            What::MergeRequests { rq, gone } => {
                let gone = requests.remove(&gone.0).expect("it was made");
                requests.get_mut(&rq.0).expect("it was made").bytes += gone.bytes;
                add(Seen::MergeRequests(gone));
            }
            What::Plug => add(Seen::Plug { dev: None }),
            What::Unplug { nr_requests, .. } => add(Seen::Unplug { dev: None, nr_requests, timer: false }),
            What::Insert { rq } => add(Seen::Insert(requests[&rq.0])),
            What::Issue { rq, .. } => add(Seen::Issue(requests[&rq.0])),
            What::Complete { rq, .. } => {
                let extent = requests.remove(&rq.0).expect("it was made");
                add(Seen::Complete { extent, error: 0 });
            }
            _ => {}
        }
    }
    Trace { records, ..Trace::default() }
}

/// A plan with two threads that read or write a file each.
fn plan(mix: Mix, block: u32) -> Plan {
    let stack = Stack::new(KERNELS.last().expect("there are kernels"));
    let bytes = 1 << 20;
    let files = vec![FileSpec { bytes, place: Place::FileSystem }; 2];
    let threads = (0..2)
        .map(|nr| ThreadJob {
            spec: ThreadSpec { descriptors: nr, ..ThreadSpec::new(nr) },
            stream: Stream::sequential(mix, vec![Target { file: nr, start: 0, len_bytes: bytes }], block),
        })
        .collect();
    Plan { stack, job: Job::new(Workload::Threads { files, threads }, 1) }
}

/// The events of a simulated run.
fn events(plan: &Plan) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn EventSink = &mut events;
    sim::run_with(plan, sink).expect("the plan can be run");
    events
}

#[test]
fn a_simulated_run_is_joined_as_it_was() {
    let events = events(&plan(Mix::Read, 16384));
    let joined = join(&bridge(&events), &Who::default());
    assert_eq!(joined.leftovers, Leftovers::default());
    // Calls of the simulator and of the join begin in the same order, so numbers are the same.
    let words = |events: &[Event], wanted: fn(&What) -> bool| -> Vec<Event> {
        events.iter().filter(|event| wanted(&event.what)).copied().collect()
    };
    let place = |events: Vec<Event>| -> Vec<(u64, u32, String)> {
        events.iter().map(|event| (event.at.0, event.call.0, format!("{:?}", event.what))).collect()
    };
    for wanted in [
        (|what| matches!(what, What::CallStart { .. } | What::CallEnd { .. })) as fn(&What) -> bool,
        |what| matches!(what, What::RaWindow { .. }),
        |what| matches!(what, What::BioQueue { .. }),
        |what| matches!(what, What::Issue { .. }),
    ] {
        // Requests are renumbered, and content other than data is metadata to a kernel's trace.
        let strip = |list: Vec<(u64, u32, String)>| -> Vec<(u64, u32, String)> {
            let part = |text: String| match (text.find("RqId("), text.find("dir: ")) {
                (Some(_), Some(at)) => text[at..].split(", content").next().unwrap_or_default().to_owned(),
                _ => text.replace("content: Mapping", "content: Metadata"),
            };
            list.into_iter().map(|(at, call, text)| (at, call, part(text))).collect()
        };
        let (ours, theirs) = (strip(place(words(&joined.events, wanted))), strip(place(words(&events, wanted))));
        assert!(!theirs.is_empty());
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
    }
    // Every page was carried by one bio, and every call that added pages has requests.
    let carried: u64 = joined.bios.iter().flat_map(|bio| &bio.pages).map(|pages| pages.nr_pages).sum();
    assert_eq!(carried, 2 * (1 << 20) / PAGE_BYTES);
    assert!(joined.calls.iter().all(|call| (call.pages_added > 0) != call.requests.is_empty()));
    // A call that took long has waited for a request, and for no longer than it took.
    for call in &joined.calls {
        let took = call.end.expect("it ended") - call.start;
        assert!(call.device <= took);
        assert!(took < Nanos::from_ms(1) || !call.waited_for.is_empty(), "call {} took {took}", call.call);
    }
}

#[test]
fn letters_of_an_operation_say_where_it_goes_and_whose_it_is() {
    for (rwbs, dir, content) in [
        (Rwbs::READ.with(Rwbs::AHEAD), Dir::Read, Content::Data),
        (Rwbs::READ.with(Rwbs::META), Dir::Read, Content::Metadata),
        (Rwbs::WRITE.with(Rwbs::SYNC), Dir::Write, Content::Data),
        (Rwbs::DISCARD, Dir::Write, Content::Data),
        // A flush, and zeroes.
        (Rwbs::PREFLUSH, Dir::Write, Content::Data),
        (Rwbs::PASSTHROUGH, Dir::Write, Content::Metadata),
    ] {
        let extent = extent(0, 1, rwbs);
        assert_eq!((super::dir_of(&extent), super::content_of(&extent)), (dir, content), "{rwbs:?}");
    }
}
