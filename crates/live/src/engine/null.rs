//! null: calls are done at once and nothing happens. A run with it shows the harness's own time.
//!
//! ```text
//! depth 1    a call is done when it is submitted
//! deeper     calls are queued, go in flight with the commit, and are done when they are reaped
//! ```
//! Source: fio's engine of the same name. Known deviations: none.

use std::io;
use std::time::Duration;

use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Io, Open, Setup, Submit};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "null",
    summary: "no I/O at all: measures the harness",
    origin: &[Origin { kernels: "any", file: "engines/null.c", function: "fio_null_queue", notes: "no kernel code" }],
    options: &[],
    conformance: "engine tests; fio's null engine makes the same calls of the same job",
    build: Build::of::<Null>(),
};

struct Null {
    depth: usize,
    queued: usize,
    calls: Vec<Completion>,
}

impl Open for Null {
    fn open(setup: &Setup<'_>) -> io::Result<Null> {
        let depth = setup.depth.max(1) as usize;
        Ok(Null { depth, queued: 0, calls: Vec::with_capacity(depth) })
    }
}

impl Engine for Null {
    #[inline(always)]
    fn submit(&mut self, io: Io) -> Submit {
        let result = io.len_bytes as i32;
        if self.depth == 1 {
            return Submit::Done(io.done(result));
        }
        if self.calls.len() == self.depth {
            return Submit::Full(io);
        }
        self.calls.push(io.done(result));
        self.queued += 1;
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        Ok(std::mem::take(&mut self.queued) as u32)
    }

    fn reap(&mut self, _min: u32, max: u32, _timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let ready = (self.calls.len() - self.queued).min(max as usize);
        done.extend(self.calls.drain(..ready));
        Ok(())
    }

    fn synchronous(&self) -> bool {
        self.depth == 1
    }
}
