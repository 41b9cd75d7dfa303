//! mmap: copies from and to shared mappings of the files; a sync is `msync(MS_SYNC)` of the whole mapping.
//!
//! ```text
//! mapping   of the whole file, made at the first call on it; others may write to it during a copy, which then has the
//!           old or the new or some of each, as with fio
//! end       what lies behind the end of the file is not touched: such a call is short
//! faults    a page that cannot be had (the file was cut off, the disk is full or broken) raises SIGBUS; the handler
//!           puts a page of zeroes there so that the copy can go on, and the call ends with EIO; the file is mapped
//!           afresh for the next one
//! ```
//! Source: fio's engine of the same name; `mm/filemap.c` (`filemap_fault`). Known deviations: fio dies of SIGBUS.

use std::io;
use std::sync::Once;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize, compiler_fence};

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};
use iowhy_stack::readahead::Advice;
use iowhy_stack::units::PAGE_BYTES;
use rustix::mm::{Advice as Hint, MapFlags, ProtFlags, mmap_anonymous};

use super::{Build, Engine, Files, Io, Open, Setup, Submit, is_apart, result_of, trim};
use crate::memory::Mapping;
use crate::signal::Before;

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "mmap",
    summary: "copies from and to shared mappings of the files",
    origin: &[Origin { kernels: "any", file: "mm/filemap.c", function: "filemap_fault", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file, one of them on a file that is cut off behind its back",
    build: Build::of::<Mmap>(),
};

thread_local! {
    /// The mapping that the thread copies from or to now, for the handler: start, end. Constant, without a destructor
    /// and atomic, so that the handler may use it.
    static TOUCHED: [AtomicUsize; 2] = const { [AtomicUsize::new(0), AtomicUsize::new(0)] };
    /// A page of it could not be had.
    static FAULTED: AtomicBool = const { AtomicBool::new(false) };
}

/// Names the mapping of the copies from here on. The handler runs on this thread: the compiler alone could move a copy
/// to the other side.
fn touches(start: usize, end: usize) {
    compiler_fence(SeqCst);
    TOUCHED.with(|touched| {
        touched[0].store(start, Relaxed);
        touched[1].store(end, Relaxed);
    });
    compiler_fence(SeqCst);
}

/// Puts a page of zeroes where the fault was if that is in a mapping of ours; anything else dies as it would have.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid structure to a handler installed with SA_SIGINFO.
    let at = unsafe { (*info).si_addr() } as usize;
    let [start, end] = TOUCHED.with(|touched| [touched[0].load(Relaxed), touched[1].load(Relaxed)]);
    if (start..end).contains(&at) {
        let page = at & !(PAGE_BYTES as usize - 1);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the page lies in a mapping that this thread's engine owns and replaces before its next use.
        if unsafe { mmap_anonymous(page as *mut libc::c_void, PAGE_BYTES as usize, access, flags) }.is_ok() {
            FAULTED.with(|faulted| faulted.store(true, Relaxed));
            return;
        }
    }
    // SAFETY: the default action takes over; the fault happens again on return and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        // SAFETY: the handler is of the kind that the flag asks for, and only uses what handlers may.
        unsafe { Before::install(libc::SIGBUS, handler as usize, libc::SA_SIGINFO) };
    });
}

struct Mmap {
    files: Files,
    mappings: Vec<Option<Mapping>>,
    advice: Hint,
}

impl Open for Mmap {
    fn open(setup: &Setup<'_>) -> io::Result<Mmap> {
        install_handler();
        let advice = match setup.advice {
            Some(Advice::Random) => Hint::Random,
            Some(Advice::Sequential) => Hint::Sequential,
            _ => Hint::Normal,
        };
        Ok(Mmap { files: Files::of(setup), mappings: setup.files.iter().map(|_| None).collect(), advice })
    }
}

impl Mmap {
    /// Maps the file of a call if it is not yet; an empty one cannot be.
    fn map(&mut self, io: &Io) -> rustix::io::Result<Option<&Mapping>> {
        let (number, bytes) = (io.file as usize, self.files.0[io.file as usize].bytes as usize);
        if self.mappings[number].is_none() && bytes > 0 {
            let write = if self.files.0[number].writable { ProtFlags::WRITE } else { ProtFlags::empty() };
            let file = self.files.of_call(io);
            let mapping = Mapping::shared(file, (0, bytes), ProtFlags::READ | write, MapFlags::empty())?;
            mapping.advise(self.advice);
            self.mappings[number] = Some(mapping);
        }
        Ok(self.mappings[number].as_ref())
    }

    fn call(&mut self, io: &mut Io) -> i32 {
        let writable = self.files.0[io.file as usize].writable;
        let mapping = match self.map(io) {
            Ok(mapping) => mapping,
            Err(error) => return result_of(Err(error)),
        };
        if io.op == Op::Trim {
            let (file, len) = (self.files.of_call(io), u64::from(io.len_bytes));
            return result_of(trim(file, io.offset, len).map(|()| io.len_bytes as usize));
        }
        if is_apart(io.op) {
            return result_of(mapping.map_or(Ok(()), Mapping::sync).map(|()| 0));
        }
        if io.op == Op::Write && !writable {
            return -libc::EBADF;
        }
        let Some(mapping) = mapping else { return 0 };
        let offset = usize::try_from(io.offset).unwrap_or(usize::MAX).min(mapping.len());
        let len = (io.len_bytes as usize).min(mapping.len() - offset);
        let start = mapping.start() as usize;
        touches(start, start + mapping.len());
        // A page that cannot be had is replaced by the handler.
        match io.op {
            Op::Read => mapping.read(offset, &mut io.data_mut()[..len]),
            _ => mapping.write(offset, &io.data()[..len]),
        }
        touches(0, 0);
        if FAULTED.with(|faulted| faulted.swap(false, Relaxed)) {
            self.mappings[io.file as usize] = None;
            return -libc::EIO;
        }
        len as i32
    }
}

impl Engine for Mmap {
    fn submit(&mut self, mut io: Io) -> Submit {
        let result = self.call(&mut io);
        Submit::Done(io.done(result))
    }

    fn unmap(&mut self, file: u32) {
        self.mappings[file as usize] = None;
    }

    fn synchronous(&self) -> bool {
        true
    }
}
