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

use super::{Build, Completion, Engine, Io, Open, Setup, Submit, result_of, sync_now};

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

struct Psync;

impl Open for Psync {
    fn open(_setup: &Setup<'_>) -> io::Result<Psync> {
        Ok(Psync)
    }
}

impl Engine for Psync {
    #[inline(always)]
    fn submit(&mut self, io: &Io) -> Submit {
        let (len, offset) = (io.len_bytes as usize, io.offset as libc::off64_t);
        let moved = match io.op {
            // SAFETY: the runner keeps `buffer` valid for `len_bytes` until the call is done.
            Op::Read => unsafe { libc::pread64(io.fd, io.buffer.cast(), len, offset) },
            // SAFETY: as above.
            Op::Write => unsafe { libc::pwrite64(io.fd, io.buffer.cast(), len, offset) },
            Op::Fsync | Op::Fdatasync => return Submit::Done(sync_now(io)),
        };
        Submit::Done(Completion { slot: io.slot, result: result_of(moved) })
    }

    fn synchronous(&self) -> bool {
        true
    }
}

struct Sync {
    /// Where each file's descriptor is.
    places: Vec<Option<u64>>,
}

impl Open for Sync {
    fn open(setup: &Setup<'_>) -> io::Result<Sync> {
        Ok(Sync { places: vec![None; setup.files.len()] })
    }
}

impl Engine for Sync {
    fn submit(&mut self, io: &Io) -> Submit {
        if matches!(io.op, Op::Fsync | Op::Fdatasync) {
            return Submit::Done(sync_now(io));
        }
        let place = &mut self.places[io.file as usize];
        if *place != Some(io.offset) {
            // SAFETY: the call takes numbers only.
            let to = unsafe { libc::lseek64(io.fd, io.offset as libc::off64_t, libc::SEEK_SET) };
            if to < 0 {
                return Submit::Done(Completion { slot: io.slot, result: result_of(-1) });
            }
        }
        let len = io.len_bytes as usize;
        let moved = if io.op == Op::Read {
            // SAFETY: the runner keeps `buffer` valid for `len_bytes` until the call is done.
            unsafe { libc::read(io.fd, io.buffer.cast(), len) }
        } else {
            // SAFETY: as above.
            unsafe { libc::write(io.fd, io.buffer.cast(), len) }
        };
        *place = (moved >= 0).then(|| io.offset + moved as u64);
        Submit::Done(Completion { slot: io.slot, result: result_of(moved) })
    }

    fn synchronous(&self) -> bool {
        true
    }
}
