//! pvsync2: `preadv2` and `pwritev2` with one vector, polled (`RWF_HIPRI`) if asked for.
//!
//! Source: fio's engine of the same name (`engines/sync.c`), the manual page of `preadv2`. Known deviations: where a
//! file system cannot poll, the flag is left out from then on, and the thread's notes say so.

use std::io;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Io, Open, Setup, Submit, result_of, sync_now};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "pvsync2",
    summary: "one preadv2 or pwritev2 after the other, polled if asked for",
    origin: &[Origin { kernels: "4.6 ..", file: "fs/read_write.c", function: "preadv2, pwritev2", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's pvsync2",
    build: Build::of::<Pvsync2>(),
};

struct Pvsync2 {
    flags: libc::c_int,
    gave_up_polling: bool,
}

impl Open for Pvsync2 {
    fn open(setup: &Setup<'_>) -> io::Result<Pvsync2> {
        Ok(Pvsync2 { flags: if setup.poll { libc::RWF_HIPRI } else { 0 }, gave_up_polling: false })
    }
}

impl Pvsync2 {
    fn call(&self, io: &Io) -> isize {
        let vector = libc::iovec { iov_base: io.buffer.cast(), iov_len: io.len_bytes as usize };
        let offset = io.offset as libc::off_t;
        if io.op == Op::Read {
            // SAFETY: the vector lives through the call and its buffer is kept valid by the runner.
            unsafe { libc::preadv2(io.fd, &raw const vector, 1, offset, self.flags) }
        } else {
            // SAFETY: as above.
            unsafe { libc::pwritev2(io.fd, &raw const vector, 1, offset, self.flags) }
        }
    }
}

impl Engine for Pvsync2 {
    fn submit(&mut self, io: &Io) -> Submit {
        if matches!(io.op, Op::Fsync | Op::Fdatasync) {
            return Submit::Done(sync_now(io));
        }
        let mut result = result_of(self.call(io));
        if result == -libc::EOPNOTSUPP && self.flags != 0 {
            self.flags = 0;
            self.gave_up_polling = true;
            result = result_of(self.call(io));
        }
        Submit::Done(Completion { slot: io.slot, result })
    }

    fn synchronous(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        let note = "the files cannot be polled (RWF_HIPRI): calls were made without";
        self.gave_up_polling.then(|| note.to_owned()).into_iter().collect()
    }
}
