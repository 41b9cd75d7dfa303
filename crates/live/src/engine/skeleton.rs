//! skeleton: how an engine is written. Copy this file, rename it, and add a line to `ENGINES`.
//!
//! ```text
//! open      is called once by the thread that uses the engine, before the clock starts: do everything slow there.
//!           Setup has the depth, the open files, and the memory that all buffers lie in
//! submit    takes a call and may only look at it: hand it over in `commit`, so that many go in one system call.
//!           Answers Done if it is done already, Full if there is no room (the runner commits, reaps and submits the
//!           same call again)
//! commit    hands in what is queued
//! reap      waits for `min` completions (never for more than are in flight, or it waits for ever) and takes `max`
//! errors    are results: the negative error number. Only a failure of the engine itself is an `Err`
//! ```
//! A call that moves fewer bytes than asked for is no matter of the engine: the runner submits the rest. A slot is used
//! again only after its completion was reaped. An engine whose submit always answers Done says so with `synchronous`
//! and leaves the other verbs alone (psync.rs).
//!
//! This one carries its calls out in `commit`, one after the other, by pread and pwrite. Source: none, it is an
//! example. Known deviations: nothing is in flight at any time.

use std::io;
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Io, Open, Setup, Submit, result_of, sync_now};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "skeleton",
    summary: "an example of an engine: queued calls are carried out by pread and pwrite when they are committed",
    origin: &[Origin { kernels: "any", file: "fs/read_write.c", function: "pread64, pwrite64", notes: "an example" }],
    options: &[],
    conformance: "engine tests on a real file",
    build: Build::of::<Skeleton>(),
};

struct Skeleton {
    depth: usize,
    queued: Vec<Io>,
    done: Vec<Completion>,
}

impl Open for Skeleton {
    fn open(setup: &Setup<'_>) -> io::Result<Skeleton> {
        let depth = setup.depth.max(1) as usize;
        Ok(Skeleton { depth, queued: Vec::with_capacity(depth), done: Vec::with_capacity(depth) })
    }
}

impl Engine for Skeleton {
    fn submit(&mut self, io: &Io) -> Submit {
        if self.queued.len() + self.done.len() == self.depth {
            return Submit::Full;
        }
        self.queued.push(*io);
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        let nr_queued = self.queued.len() as u32;
        for io in self.queued.drain(..) {
            let (len, offset) = (io.len_bytes as usize, io.offset as libc::off64_t);
            let moved = match io.op {
                // SAFETY: the runner keeps the buffer of a call valid until the call is reaped.
                Op::Read => unsafe { libc::pread64(io.fd, io.buffer.cast(), len, offset) },
                // SAFETY: as above.
                Op::Write => unsafe { libc::pwrite64(io.fd, io.buffer.cast(), len, offset) },
                Op::Fsync | Op::Fdatasync => {
                    self.done.push(sync_now(&io));
                    continue;
                }
            };
            self.done.push(Completion { slot: io.slot, result: result_of(moved) });
        }
        Ok(nr_queued)
    }

    fn reap(&mut self, _min: u32, max: u32, _timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let ready = self.done.len().min(max as usize);
        done.extend(self.done.drain(..ready));
        Ok(())
    }
}
