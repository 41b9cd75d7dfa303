//! skeleton: how an engine is written. Copy this file, rename it, and add a line to `ENGINES`.
//!
//! ```text
//! open      is called once by the thread that uses the engine, before the clock starts: do everything slow there.
//!           Setup has the depth, the open files, and the pool of all buffers
//! submit    takes a call, which is the engine's until it is done: hand it over in `commit`, so that many go in one
//!           system call. Returns Done if it is done already, and hands the call back with Full if the ring is full
//!           (the runner commits, reaps and submits it again)
//! commit    hands in queued calls
//! reap      waits for `min` completions (never for more than are in flight, or it waits for ever) and takes `max`;
//!           each brings its call back, and the runner reads and fills the buffer again
//! drop      keeps calls that the kernel may still work on: their memory is never unmapped then
//! errors    are results: the negative error number. Only a failure of the engine itself is an `Err`
//! ```
//! The engine ignores a call that moves fewer bytes than asked for: the runner submits the rest. A slot is used again
//! only after its completion was reaped. An engine whose submit always answers Done sets `synchronous` and leaves the
//! other verbs alone (psync.rs).
//!
//! This one carries its calls out in `commit`, one after the other, by pread and pwrite. Source: none, it is an
//! example. Known deviations: nothing is in flight at any time.

use std::io;
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Files, Io, Open, Setup, Submit, result_of};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "skeleton",
    summary: "an example of an engine: queued calls are carried out by pread and pwrite when they are committed",
    origin: &[Origin { kernels: "any", file: "fs/read_write.c", function: "pread64, pwrite64", notes: "an example" }],
    options: &[],
    conformance: "engine tests on a real file",
    build: Build::of::<Skeleton>(),
};

struct Skeleton {
    files: Files,
    depth: usize,
    queued: Vec<Io>,
    done: Vec<Completion>,
}

impl Open for Skeleton {
    fn open(setup: &Setup<'_>) -> io::Result<Skeleton> {
        let depth = setup.depth.max(1) as usize;
        let (queued, done) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        Ok(Skeleton { files: Files::of(setup), depth, queued, done })
    }
}

impl Engine for Skeleton {
    fn submit(&mut self, io: Io) -> Submit {
        if self.queued.len() + self.done.len() == self.depth {
            return Submit::Full(io);
        }
        self.queued.push(io);
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        let nr_queued = self.queued.len() as u32;
        for mut io in self.queued.drain(..) {
            let (file, offset) = (self.files.of_call(&io), io.offset);
            let moved = match io.op {
                Op::Read => rustix::io::pread(file, io.data_mut(), offset),
                Op::Write => rustix::io::pwrite(file, io.data(), offset),
                Op::Fsync | Op::Fdatasync | Op::Trim => {
                    self.done.push(self.files.sync(io));
                    continue;
                }
            };
            self.done.push(io.done(result_of(moved)));
        }
        Ok(nr_queued)
    }

    fn reap(&mut self, _min: u32, max: u32, _timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let ready = self.done.len().min(max as usize);
        done.extend(self.done.drain(..ready));
        Ok(())
    }
}
