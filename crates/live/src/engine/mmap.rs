//! mmap: copies from and to shared mappings of the files; a sync is `msync(MS_SYNC)` of the whole mapping.
//!
//! ```text
//! mapping   of the whole file, made at the first call on it
//! end       what lies behind the end of the file is not touched: such a call is short
//! faults    a page that cannot be had (the file was cut off, the disk is full or broken) raises SIGBUS; the handler
//!           puts a page of zeroes there so that the copy can go on, and the call ends with EIO; the file is mapped
//!           afresh for the next one
//! ```
//! Source: fio's engine of the same name; `mm/filemap.c` (`filemap_fault`). Known deviations: fio dies of SIGBUS.

use std::cell::Cell;
use std::io;
use std::sync::Once;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};
use iowhy_stack::readahead::Advice;
use iowhy_stack::units::PAGE_BYTES;

use super::{Build, Completion, Engine, Io, Open, OpenFile, Setup, Submit, negative_errno};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "mmap",
    summary: "copies from and to shared mappings of the files",
    origin: &[Origin { kernels: "any", file: "mm/filemap.c", function: "filemap_fault", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file, one of them on a file that is cut off behind its back",
    build: Build::of::<Mmap>(),
};

thread_local! {
    /// The mapping that the thread copies from or to now, for the handler: start, end. Constant and without a
    /// destructor, so that the handler may use it.
    static TOUCHED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// A page of it could not be had.
    static FAULTED: Cell<bool> = const { Cell::new(false) };
}

/// Puts a page of zeroes where the fault was if that is in a mapping of ours; anything else dies as it would have.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid structure to a handler installed with SA_SIGINFO.
    let at = unsafe { (*info).si_addr() } as usize;
    let (start, end) = TOUCHED.get();
    if (start..end).contains(&at) {
        let page = at & !(PAGE_BYTES as usize - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a mapping that this thread's engine owns and replaces before its next use.
        let got = unsafe {
            libc::mmap(page as *mut libc::c_void, PAGE_BYTES as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if got != libc::MAP_FAILED {
            FAULTED.set(true);
            return;
        }
    }
    // SAFETY: the default action takes over; the fault happens again on return and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a sigaction of zeroes is a valid value of the C structure.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the structure lives through the call; the handler only uses what handlers may.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    });
}

#[derive(Copy, Clone)]
struct Mapping {
    start: *mut u8,
    len: usize,
}

struct Mmap {
    files: Vec<OpenFile>,
    mappings: Vec<Option<Mapping>>,
    advice: libc::c_int,
}

impl Open for Mmap {
    fn open(setup: &Setup<'_>) -> io::Result<Mmap> {
        install_handler();
        let advice = match setup.advice {
            Some(Advice::Random) => libc::MADV_RANDOM,
            Some(Advice::Sequential) => libc::MADV_SEQUENTIAL,
            _ => libc::MADV_NORMAL,
        };
        Ok(Mmap { files: setup.files.to_vec(), mappings: vec![None; setup.files.len()], advice })
    }
}

impl Mmap {
    /// The mapping of a file; negative error number if there can be none. An empty file has an empty one.
    fn mapping(&mut self, number: u32) -> Result<Mapping, i32> {
        let slot = &mut self.mappings[number as usize];
        if let Some(mapping) = slot {
            return Ok(*mapping);
        }
        let file = self.files[number as usize];
        let len = file.bytes as usize;
        if len == 0 {
            return Ok(Mapping { start: std::ptr::null_mut(), len: 0 });
        }
        let protection = if file.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(negative_errno());
        }
        // SAFETY: the mapping was made just now. The advice is only that: an error changes nothing.
        unsafe { libc::madvise(start, len, self.advice) };
        let mapping = Mapping { start: start.cast(), len };
        *slot = Some(mapping);
        Ok(mapping)
    }

    fn unmap(&mut self, number: u32) {
        if let Some(mapping) = self.mappings[number as usize].take() {
            // SAFETY: the mapping was made by this engine, and nothing else knows its address.
            unsafe { libc::munmap(mapping.start.cast(), mapping.len) };
        }
    }

    fn call(&mut self, io: &Io) -> i32 {
        let mapping = match self.mapping(io.file) {
            Ok(mapping) => mapping,
            Err(error) => return error,
        };
        if matches!(io.op, Op::Fsync | Op::Fdatasync) {
            if mapping.len == 0 {
                return 0;
            }
            // SAFETY: the mapping is this engine's and as long as it says.
            let result = unsafe { libc::msync(mapping.start.cast(), mapping.len, libc::MS_SYNC) };
            return if result == 0 { 0 } else { negative_errno() };
        }
        if io.op == Op::Write && !self.files[io.file as usize].writable {
            return -libc::EBADF;
        }
        let offset = usize::try_from(io.offset).unwrap_or(usize::MAX).min(mapping.len);
        let len = (io.len_bytes as usize).min(mapping.len - offset);
        let start = mapping.start as usize;
        TOUCHED.set((start, start + mapping.len));
        // SAFETY: the place lies within the mapping, the runner keeps the buffer valid for `len_bytes`, and the two do
        // not overlap. A page that cannot be had is replaced by the handler.
        unsafe {
            let place = mapping.start.wrapping_add(offset);
            if io.op == Op::Read {
                std::ptr::copy_nonoverlapping(place, io.buffer, len);
            } else {
                std::ptr::copy_nonoverlapping(io.buffer, place, len);
            }
        }
        // The handler runs on this thread: the compiler must not move its flag across the copy.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        TOUCHED.set((0, 0));
        if FAULTED.replace(false) {
            self.unmap(io.file);
            return -libc::EIO;
        }
        len as i32
    }
}

impl Engine for Mmap {
    fn submit(&mut self, io: &Io) -> Submit {
        let result = self.call(io);
        Submit::Done(Completion { slot: io.slot, result })
    }

    fn synchronous(&self) -> bool {
        true
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        (0..self.mappings.len() as u32).for_each(|number| self.unmap(number));
    }
}
