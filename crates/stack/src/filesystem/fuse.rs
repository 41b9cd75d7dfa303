//! FUSE, as far as direct reads of files that exist are concerned.
//!
//! ```text
//! server   is the device: a request of the kernel is a command, and a server that answers several side by side is a
//!          device that serves several
//! asked    no file says that it can be asked without waiting (FMODE_NOWAIT), but all have poll, which says "ready" if
//!          the server knows none (no_poll)
//! direct   a call sends its requests and waits for the answers, asynchronous or not; with `async_dio`, which the
//!          server has to ask for (FUSE_ASYNC_DIO), an asynchronous one goes on when they are sent
//! ```
//! Source: Linux 6.11 and 6.14, `fs/fuse/file.c`, `fuse_direct_IO` and `fuse_file_poll`. Known deviations: what the
//! server itself needs of the processors, its wake-ups and copies are part of the device's times; the limit of requests
//! in the background (12) and of pages in one are left out; writes and fsync find the journal of this simulator, which
//! FUSE has not.

use super::{Build, Rules};
use crate::origin::{Entry, OptionSpec, Options, Origin};

/// Key of what [`Rules::direct_waits`] is not.
const ASYNC_DIO: OptionSpec = OptionSpec::switch(
    "async_dio",
    false,
    "the server asks for FUSE_ASYNC_DIO (libfuse does): asynchronous direct calls do not wait for its answers",
);

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "fuse",
    summary: "FUSE: the disk is the server; direct calls wait for its answers unless it asks for asynchronous ones",
    origin: &[Origin {
        kernels: "3.10 .. 7.x",
        file: "fs/fuse/file.c",
        function: "fuse_direct_IO, fuse_file_poll",
        notes: "direct reads of files that exist",
    }],
    options: &[ASYNC_DIO],
    conformance: "held by the tests of the simulator; no recorded traces yet",
    build,
};

fn build(options: &Options) -> Rules {
    Rules {
        mapping_cached: true,
        shares_direct_writes: true,
        nowait: false,
        polls: true,
        direct_waits: !options.is_on(ASYNC_DIO.name),
        ..Rules::PLAIN
    }
}
