//! Every engine on a real file: the same pattern goes in and comes out, errors are the system's own numbers, and the
//! three verbs keep their promises.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use iowhy_stack::origin::find;

use super::*;
use crate::testing::Scratch;

const BLOCK: usize = 4096;

/// A file of `blocks` blocks, each filled with its number, open for both.
fn file_of(scratch: &Scratch, blocks: u8) -> File {
    let path = scratch.path("data");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
    for block in 0..blocks {
        file.write_all_at(&[block; BLOCK], u64::from(block) * BLOCK as u64).expect("its data");
    }
    file
}

/// An engine, the file it works on, and the buffers of its slots, with one more.
struct Bench {
    engine: Box<dyn Engine>,
    file: Arc<File>,
    pool: Pool,
    synchronous: bool,
    depth: u32,
}

/// Before the name of an engine whose calls are made by other threads.
const OFFLOADED: &str = "offload ";

/// Number of the same file, open for writing only.
const NOT_READABLE: u32 = 1;

impl Bench {
    fn new(name: &str, depth: u32, file: File, change: impl Fn(&mut Setup<'_>)) -> Bench {
        let inner = name.strip_prefix(OFFLOADED);
        let entry = find(ENGINES, inner.unwrap_or(name)).expect("an engine of the table");
        let pool = Pool::new(depth + 1, BLOCK as u32, BLOCK as u32, |_| ()).expect("memory");
        let bytes = file.metadata().expect("its size").len();
        let through = crate::mark::through(&file);
        let write_only = OpenOptions::new().write(true).open(through).expect("the file once more");
        let open = |file: &Arc<File>| OpenFile { file: Some(Arc::clone(file)), bytes, writable: true, direct: false };
        let file = Arc::new(file);
        let mut setup = Setup {
            engine: entry.name,
            depth,
            files: &[open(&file), open(&Arc::new(write_only))],
            buffers: &pool,
            fixed_buffers: false,
            registered_files: false,
            poll: false,
            kernel_thread: None,
            advice: None,
        };
        change(&mut setup);
        let open = if inner.is_some() { boxed::<offload::Offload> } else { entry.build.open };
        let engine = open(&setup).expect("the engine is made");
        let synchronous = engine.synchronous();
        Bench { engine, file, pool, synchronous, depth }
    }

    fn io(&mut self, slot: u32, op: Op, block: u64) -> Io {
        let len_bytes = if matches!(op, Op::Read | Op::Write) { BLOCK as u32 } else { 0 };
        Io {
            slot,
            op,
            file: 0,
            offset: block * BLOCK as u64,
            buffer: self.pool.take(slot),
            from: 0,
            len_bytes,
            priority: 0,
        }
    }

    /// Does something with the buffer of a slot that is not in use.
    fn with<R>(&mut self, slot: u32, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.pool.take(slot);
        let result = act(buffer.data_mut());
        self.pool.put(buffer);
        result
    }

    fn fill(&mut self, slot: u32, byte: u8) {
        self.with(slot, |data| data.fill(byte));
    }

    fn holds(&mut self, slot: u32, byte: u8) -> bool {
        self.with(slot, |data| data.iter().all(|other| *other == byte))
    }

    /// One call from submission to completion.
    fn call(&mut self, slot: u32, op: Op, block: u64) -> i32 {
        let io = self.io(slot, op, block);
        self.carry_out(io)
    }

    fn carry_out(&mut self, io: Io) -> i32 {
        let slot = io.slot;
        let Completion { io, result } = match self.engine.submit(io) {
            Submit::Done(completion) => completion,
            Submit::Queued => {
                assert!(!self.synchronous, "a synchronous engine answers Done");
                assert_eq!(self.engine.commit().expect("a commit"), 1);
                let mut done = Vec::new();
                self.engine.reap(1, 1, None, &mut done).expect("a reap");
                assert_eq!(done.len(), 1);
                done.remove(0)
            }
            Submit::Full(_) => panic!("nothing is in flight"),
        };
        assert_eq!(io.slot, slot);
        self.pool.put(io.buffer);
        result
    }

    /// Takes the buffers of these back, and yields slots and results in the order of the slots.
    fn results(&mut self, done: Vec<Completion>) -> Vec<(u32, i32)> {
        let mut results: Vec<_> = done.iter().map(|done| (done.io.slot, done.result)).collect();
        done.into_iter().for_each(|done| self.pool.put(done.io.buffer));
        results.sort_unstable();
        results
    }
}

/// Engines that move data: all but `null`.
fn real() -> impl Iterator<Item = &'static str> {
    let offloaded = ["offload psync", "offload io_uring"];
    ENGINES.iter().map(|entry| entry.name).filter(|name| *name != "null").chain(offloaded)
}

/// Those that can have several calls in flight.
fn deep() -> impl Iterator<Item = &'static str> {
    real().filter(|name| !Bench::new(name, 1, file_of(&Scratch::new(), 1), |_| ()).synchronous)
}

#[test]
fn what_is_written_is_read_back_and_is_in_the_file() {
    for name in real() {
        let scratch = Scratch::new();
        let mut bench = Bench::new(name, 1, file_of(&scratch, 8), |_| ());
        // Forwards, backwards, and the same place twice: a file position must not get lost.
        for block in [0, 1, 2, 7, 3, 3] {
            bench.fill(0, 100 + block as u8);
            assert_eq!(bench.call(0, Op::Write, block), BLOCK as i32, "{name}: write of block {block}");
            bench.fill(0, 0);
            assert_eq!(bench.call(0, Op::Read, block), BLOCK as i32, "{name}: read of block {block}");
            assert!(bench.holds(0, 100 + block as u8), "{name}: block {block}");
        }
        for op in [Op::Fsync, Op::Fdatasync] {
            assert_eq!(bench.call(0, op, 0), 0, "{name}: {op:?}");
        }
        let found: Vec<u8> = (0..8)
            .map(|block| {
                let mut byte = [0];
                bench.file.read_exact_at(&mut byte, block * BLOCK as u64).expect("the block");
                byte[0]
            })
            .collect();
        assert_eq!(found, [100, 101, 102, 103, 4, 5, 6, 107], "{name}");
    }
}

#[test]
fn the_end_of_the_file_is_a_short_read() {
    for name in real() {
        let scratch = Scratch::new();
        let file = file_of(&scratch, 2);
        file.set_len(BLOCK as u64 + 100).expect("a size");
        let mut bench = Bench::new(name, 1, file, |_| ());
        assert_eq!((bench.call(0, Op::Read, 1), bench.call(0, Op::Read, 5)), (100, 0), "{name}");
    }
}

#[test]
fn errors_are_the_numbers_of_the_system() {
    for name in real().filter(|name| *name != "mmap") {
        let scratch = Scratch::new();
        let mut bench = Bench::new(name, 2, file_of(&scratch, 2), |_| ());
        let bad = Io { file: NOT_READABLE, ..bench.io(1, Op::Read, 0) };
        assert_eq!(bench.carry_out(bad), -libc::EBADF, "{name}");
        assert_eq!(bench.call(0, Op::Read, 1), BLOCK as i32, "{name}: an error must not spoil the next call");
    }
}

#[test]
fn many_calls_are_in_flight_and_each_slot_comes_back_once() {
    for name in deep() {
        let (scratch, depth) = (Scratch::new(), 16);
        let mut bench = Bench::new(name, depth, file_of(&scratch, 32), |_| ());
        for round in 0..4u64 {
            for slot in 0..depth {
                let io = bench.io(slot, Op::Read, (u64::from(slot) * 7 + round) % 32);
                assert_eq!(bench.engine.submit(io), Submit::Queued, "{name}: slot {slot}");
            }
            let one_more = bench.io(depth, Op::Read, 0);
            let Submit::Full(back) = bench.engine.submit(one_more) else { panic!("{name}: the depth is {depth}") };
            bench.pool.put(back.buffer);
            assert_eq!(bench.engine.commit().expect("a commit"), depth, "{name}");
            let mut done = Vec::new();
            bench.engine.reap(3, 5, None, &mut done).expect("a reap");
            assert!((3..=5).contains(&done.len()), "{name}: asked for 3 to 5, got {}", done.len());
            while done.len() < depth as usize {
                bench.engine.reap(1, depth, None, &mut done).expect("a reap");
            }
            assert_eq!(bench.results(done), (0..depth).map(|slot| (slot, BLOCK as i32)).collect::<Vec<_>>(), "{name}");
            for slot in 0..depth {
                let block = ((u64::from(slot) * 7 + round) % 32) as u8;
                assert!(bench.holds(slot, block), "{name}: slot {slot}");
            }
        }
    }
}

#[test]
fn a_bad_call_in_a_batch_takes_no_other_with_it() {
    for name in deep() {
        let scratch = Scratch::new();
        let mut bench = Bench::new(name, 8, file_of(&scratch, 8), |_| ());
        for slot in 0..8 {
            let mut io = bench.io(slot, Op::Read, u64::from(slot));
            if slot == 3 {
                io.file = NOT_READABLE;
            }
            assert_eq!(bench.engine.submit(io), Submit::Queued, "{name}");
        }
        assert!(bench.engine.commit().is_ok(), "{name}");
        let mut done = Vec::new();
        for _ in 0..100 {
            bench.engine.commit().expect("a commit");
            bench.engine.reap(1, 8, None, &mut done).expect("a reap");
            if done.len() == 8 {
                break;
            }
        }
        let results: Vec<_> = bench.results(done).into_iter().map(|(_, result)| result).collect();
        let whole = BLOCK as i32;
        assert_eq!(results, [whole, whole, whole, -libc::EBADF, whole, whole, whole, whole], "{name}");
    }
}

#[test]
fn waiting_with_nothing_in_flight_or_with_a_timeout_returns() {
    for name in deep() {
        let scratch = Scratch::new();
        let mut bench = Bench::new(name, 4, file_of(&scratch, 2), |_| ());
        let mut done = Vec::new();
        bench.engine.reap(1, 4, None, &mut done).expect("nothing is in flight");
        bench.engine.reap(0, 4, None, &mut done).expect("a look");
        bench.engine.reap(1, 4, Some(Duration::from_millis(1)), &mut done).expect("a timeout");
        assert_eq!(done, [], "{name}");
        assert_eq!(bench.depth, 4);
    }
}

#[test]
fn a_ring_works_the_same_with_buffers_and_files_registered() {
    for (fixed_buffers, registered_files) in [(true, false), (false, true), (true, true)] {
        let scratch = Scratch::new();
        let mut bench = Bench::new("io_uring", 4, file_of(&scratch, 8), |setup| {
            setup.fixed_buffers = fixed_buffers;
            setup.registered_files = registered_files;
        });
        assert_eq!(bench.engine.notes(), Vec::<String>::new(), "both can be had everywhere");
        bench.fill(2, 200);
        assert_eq!((bench.call(2, Op::Write, 5), bench.call(1, Op::Read, 5)), (BLOCK as i32, BLOCK as i32));
        assert!(bench.holds(1, 200));
        assert_eq!(bench.call(0, Op::Fdatasync, 0), 0);
    }
}

#[test]
fn polling_of_what_cannot_be_polled_is_left_out_and_said() {
    for name in ["io_uring", "pvsync2"] {
        let scratch = Scratch::new();
        let mut bench = Bench::new(name, 1, file_of(&scratch, 4), |setup| setup.poll = true);
        assert_eq!(bench.call(0, Op::Read, 3), BLOCK as i32, "{name}");
        assert!(bench.holds(0, 3), "{name}");
        // Buffered calls through a ring are never polled; a file system may take RWF_HIPRI and not heed it.
        assert!(name == "pvsync2" || bench.engine.notes()[0].contains("polled"), "{name}");
    }
}

#[test]
fn a_mapping_survives_a_file_that_is_cut_off_behind_its_back() {
    let scratch = Scratch::new();
    let mut bench = Bench::new("mmap", 1, file_of(&scratch, 8), |_| ());
    let read = |bench: &mut Bench, block| bench.call(0, Op::Read, block);
    assert_eq!((read(&mut bench, 0), read(&mut bench, 7)), (BLOCK as i32, BLOCK as i32));
    bench.file.set_len(BLOCK as u64).expect("a size");
    assert_eq!((read(&mut bench, 7), read(&mut bench, 0)), (-libc::EIO, BLOCK as i32));
    bench.file.set_len(8 * BLOCK as u64).expect("a size");
    assert_eq!(read(&mut bench, 7), BLOCK as i32, "it is mapped afresh");
}

#[test]
fn null_moves_nothing_at_any_depth() {
    let scratch = Scratch::new();
    for depth in [1, 4] {
        let mut bench = Bench::new("null", depth, file_of(&scratch, 1), |_| ());
        assert_eq!(bench.synchronous, depth == 1);
        for slot in 0..depth {
            assert_eq!(bench.call(slot, Op::Read, 1000), BLOCK as i32);
        }
        assert!(bench.holds(0, 0));
    }
}
