//! psync: one `pread` or `pwrite` after the other; and sync: `lseek`, then `read` or `write`.
//!
//! ```text
//! psync    the offset is part of the call
//! sync     the descriptor is moved only if it is not there already, as fio does; it must not be shared then, and the
//!          runner gives each thread descriptors of its own
//! ```
//! Source: fio's engines of the same names (`engines/sync.c`). Known deviations: none.

use std::io;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};
use rustix::fs::SeekFrom;

use super::{Build, Engine, Files, Io, Open, Setup, Submit, is_apart, result_of};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "psync",
    summary: "one pread or pwrite after the other",
    origin: &[Origin { kernels: "2.1.60 ..", file: "fs/read_write.c", function: "pread64, pwrite64", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's psync",
    build: Build::of::<Psync>(),
};

pub(super) const SYNC_ENTRY: Entry<Build> = Entry {
    name: "sync",
    summary: "one read or write after the other, with lseek where the place is another",
    origin: &[Origin { kernels: "any", file: "fs/read_write.c", function: "read, write, lseek", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's sync",
    build: Build::of::<Sync>(),
};

struct Psync(Files);

impl Open for Psync {
    fn open(setup: &Setup<'_>) -> io::Result<Psync> {
        Ok(Psync(Files::of(setup)))
    }
}

impl Engine for Psync {
    #[inline(always)]
    fn submit(&mut self, mut io: Io) -> Submit {
        let (file, offset) = (self.0.of_call(&io), io.offset);
        let moved = match io.op {
            Op::Read => rustix::io::pread(file, io.data_mut(), offset),
            Op::Write => rustix::io::pwrite(file, io.data(), offset),
            Op::Fsync | Op::Fdatasync | Op::Trim => return Submit::Done(self.0.sync(io)),
        };
        Submit::Done(io.done(result_of(moved)))
    }

    fn synchronous(&self) -> bool {
        true
    }
}

struct Sync {
    files: Files,
    /// Where each file's descriptor is.
    places: Vec<Option<u64>>,
}

impl Open for Sync {
    fn open(setup: &Setup<'_>) -> io::Result<Sync> {
        Ok(Sync { files: Files::of(setup), places: vec![None; setup.files.len()] })
    }
}

impl Engine for Sync {
    fn submit(&mut self, mut io: Io) -> Submit {
        if is_apart(io.op) {
            return Submit::Done(self.files.sync(io));
        }
        let (file, place) = (self.files.of_call(&io), &mut self.places[io.file as usize]);
        if *place != Some(io.offset)
            && let Err(error) = rustix::fs::seek(file, SeekFrom::Start(io.offset))
        {
            return Submit::Done(io.done(result_of(Err(error))));
        }
        let moved = match io.op {
            Op::Read => rustix::io::read(file, io.data_mut()),
            _ => rustix::io::write(file, io.data()),
        };
        *place = moved.ok().map(|bytes| io.offset + bytes as u64);
        Submit::Done(io.done(result_of(moved)))
    }

    fn synchronous(&self) -> bool {
        true
    }
}
