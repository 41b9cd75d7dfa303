//! pvsync2: `preadv2` and `pwritev2` with one vector, polled (`RWF_HIPRI`) if asked for.
//!
//! Source: fio's engine of the same name (`engines/sync.c`), the manual page of `preadv2`. Known deviations: where a
//! file system cannot poll, the flag is left out from then on, and the thread's notes say so.

use std::io::{self, IoSlice, IoSliceMut};

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::{Build, Engine, Files, Io, Open, Setup, Submit, is_apart, result_of};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "pvsync2",
    summary: "one preadv2 or pwritev2 after the other, polled if asked for",
    origin: &[Origin { kernels: "4.6 ..", file: "fs/read_write.c", function: "preadv2, pwritev2", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's pvsync2",
    build: Build::of::<Pvsync2>(),
};

struct Pvsync2 {
    files: Files,
    flags: ReadWriteFlags,
    gave_up_polling: bool,
}

impl Open for Pvsync2 {
    fn open(setup: &Setup<'_>) -> io::Result<Pvsync2> {
        let flags = if setup.poll { ReadWriteFlags::HIPRI } else { ReadWriteFlags::empty() };
        Ok(Pvsync2 { files: Files::of(setup), flags, gave_up_polling: false })
    }
}

impl Pvsync2 {
    fn call(&self, io: &mut Io) -> i32 {
        let (file, offset) = (self.files.of_call(io), io.offset);
        result_of(match io.op {
            Op::Read => preadv2(file, &mut [IoSliceMut::new(io.data_mut())], offset, self.flags),
            _ => pwritev2(file, &[IoSlice::new(io.data())], offset, self.flags),
        })
    }
}

impl Engine for Pvsync2 {
    fn submit(&mut self, mut io: Io) -> Submit {
        if is_apart(io.op) {
            return Submit::Done(self.files.sync(io));
        }
        let mut result = self.call(&mut io);
        if result == -libc::EOPNOTSUPP && !self.flags.is_empty() {
            self.flags = ReadWriteFlags::empty();
            self.gave_up_polling = true;
            result = self.call(&mut io);
        }
        Submit::Done(io.done(result))
    }

    fn synchronous(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        let note = "the files cannot be polled (RWF_HIPRI): calls were made without";
        self.gave_up_polling.then(|| note.to_owned()).into_iter().collect()
    }
}
