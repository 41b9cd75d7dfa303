//! Memory that does not belong to Rust alone: mappings, and the buffers of calls.
//!
//! ```text
//! mapping    of a file, or of nothing; others may change it at any time, so it is only copied from and to, by
//!            instructions about which the compiler assumes nothing
//! buffer     a piece of a mapping with one owner. A call takes its buffer along and brings it back when it is done, so
//!            that the kernel's writes are not looked at meanwhile. Its pool alone makes it; it cannot be copied
//! pool       unmaps its memory if all buffers have come back; otherwise the kernel may still write there, and the
//!            memory stays until the process ends
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use iowhy_stack::units::PAGE_BYTES;
use rustix::io::Result;
use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

/// Memory that is mapped, and unmapped when this goes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address and a length; the memory is only touched by raw accesses that may race (see `copy`), or
// through buffers, which have one owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New memory, all zeroes.
    pub(crate) fn anonymous(len: usize, flags: MapFlags) -> Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing of ours is replaced.
        let start = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags)? };
        Ok(Mapping::at_place(start, len))
    }

    /// A part of a file, shared with all who use it.
    pub(crate) fn shared(
        file: impl AsFd,
        (offset, len): (u64, usize),
        access: ProtFlags,
        more: MapFlags,
    ) -> Result<Mapping> {
        // SAFETY: as above.
        let start = unsafe { mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED | more, file, offset)? };
        Ok(Mapping::at_place(start, len))
    }

    fn at_place(start: *mut libc::c_void, len: usize) -> Mapping {
        Mapping { start: NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 by itself"), len }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place of a range, which must lie inside.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "{offset} + {len} of {}", self.len);
        self.start().wrapping_add(offset)
    }

    /// madvise(2). That it fails changes nothing.
    pub(crate) fn advise(&self, advice: Advice) {
        // SAFETY: the range is the mapping.
        let _ = unsafe { mm::madvise(self.start().cast(), self.len, advice) };
    }

    /// Writes back changes, and waits for it.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: the range is the mapping.
        unsafe { mm::msync(self.start().cast(), self.len, MsyncFlags::SYNC) }
    }

    /// Pages of it that are in memory; none if the system cannot tell.
    pub(crate) fn resident_pages(&self) -> Option<u64> {
        Some(self.residency()?.iter().filter(|page| **page).count() as u64)
    }

    /// Whether each page of it is in memory; none if the system cannot tell.
    pub(crate) fn residency(&self) -> Option<Vec<bool>> {
        let mut map = vec![0; self.len.div_ceil(PAGE_BYTES as usize)];
        // SAFETY: the range is the mapping, and `map` has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.start().cast(), self.len, map.as_mut_ptr()) };
        (result == 0).then(|| map.iter().map(|page| page & 1 != 0).collect())
    }

    /// Writes `head` and a range behind it with one call: at an offset of a file, or where it stands. Yields the bytes.
    pub(crate) fn write_to(
        &self,
        file: impl AsFd,
        at: Option<u64>,
        head: &[u8],
        (offset, len): (usize, usize),
    ) -> io::Result<usize> {
        let file = file.as_fd().as_raw_fd();
        let range = libc::iovec { iov_base: self.at(offset, len).cast(), iov_len: len };
        let parts = [libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() }, range];
        let parts = &parts[usize::from(head.is_empty())..];
        // SAFETY: the parts live until the call is over, and the kernel only reads them.
        let moved = unsafe {
            match at {
                None => libc::writev(file, parts.as_ptr(), parts.len() as libc::c_int),
                Some(at) => libc::pwritev(file, parts.as_ptr(), parts.len() as libc::c_int, at as libc::off_t),
            }
        };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }

    /// Copies the current contents. Concurrent changes are in the copy, or not, or in part.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: the range lies inside, and the mapping does not overlap what Rust lends out.
        unsafe { copy(self.at(offset, into.len()), into.as_mut_ptr(), into.len()) };
    }

    /// Copies `data` there. Concurrent readers find the old, or the new, or some of each.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        // SAFETY: as above.
        unsafe { copy(data.as_ptr(), self.at(offset, data.len()), data.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this type, and nothing refers to it any more.
        let _ = unsafe { mm::munmap(self.start().cast(), self.len) };
    }
}

/// Copies where others may write at the same time: other threads, other programs, the kernel. That must not be a copy
/// that the compiler knows, for it could read twice, or merge and move accesses.
///
/// # Safety
/// `from` can be read and `to` written for `len` bytes, and they do not overlap.
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // As fast as memcpy, and opaque: to the compiler it may touch any memory.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it touches what the caller has named; the direction flag is clear as everywhere in Rust.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
        let words = if (from as usize | to as usize).is_multiple_of(8) { len / 8 } else { 0 };
        for at in 0..words {
            // SAFETY: the words lie in the ranges that the caller has named, and are aligned.
            unsafe {
                let word = AtomicU64::from_ptr(from.cast_mut().cast::<u64>().add(at)).load(Relaxed);
                AtomicU64::from_ptr(to.cast::<u64>().add(at)).store(word, Relaxed);
            }
        }
        for at in words * 8..len {
            // SAFETY: as above, byte by byte.
            unsafe {
                let byte = AtomicU8::from_ptr(from.cast_mut().add(at)).load(Relaxed);
                AtomicU8::from_ptr(to.add(at)).store(byte, Relaxed);
            }
        }
    }
}

/// Memory of this process's own that direct I/O takes.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    bytes: usize,
}

impl Aligned {
    /// Zeroes.
    pub(crate) fn new(bytes: usize) -> Aligned {
        Aligned { memory: vec![0; bytes + PAGE_BYTES as usize], bytes }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let offset = self.memory.as_ptr().align_offset(PAGE_BYTES as usize);
        &mut self.memory[offset..offset + self.bytes]
    }
}

/// A piece of a pool's memory, for one call at a time.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    start: NonNull<u8>,
    bytes: u32,
    number: u32,
}

// SAFETY: it is the only way to its memory, and whoever has it may use that.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Its contents.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        // SAFETY: a buffer has its memory to itself, and it stays mapped until the buffer is back in its pool.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes as usize) }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes as usize) }
    }
}

/// Where buffers come from.
#[derive(Debug)]
pub struct Pool {
    /// None once it was left to the kernel.
    mapping: Option<Mapping>,
    /// Where the first buffer begins, and the bytes of all.
    range: (usize, usize),
    buffers: Vec<Option<Buffer>>,
}

impl Pool {
    /// `count` buffers of `bytes` each, the first of them aligned to `align` and each behind the one before. `fill`
    /// gets them all, as one area of zeroes.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn new(count: u32, bytes: u32, align: u32, fill: impl FnOnce(&mut [u8])) -> Result<Pool> {
        let align = align as usize;
        let used = bytes as usize * count as usize;
        let mapping = Mapping::anonymous(used + align, MapFlags::PRIVATE | MapFlags::POPULATE)?;
        let skip = mapping.start().align_offset(align);
        let first = mapping.at(skip, used);
        // SAFETY: the range lies inside the mapping, which is new: nobody else knows it, and it is all zeroes.
        fill(unsafe { std::slice::from_raw_parts_mut(first, used) });
        let buffer = |number| {
            let start = NonNull::new(first.wrapping_add(number as usize * bytes as usize))?;
            Some(Buffer { start, bytes, number })
        };
        let buffers = (0..count).map(buffer).collect();
        Ok(Pool { mapping: Some(mapping), range: (first as usize, used), buffers })
    }

    /// Hands a buffer out; it must be here.
    #[inline(always)]
    pub fn take(&mut self, number: u32) -> Buffer {
        self.buffers[number as usize].take().expect("a buffer is used by one call at a time")
    }

    /// Takes one back.
    #[inline(always)]
    pub fn put(&mut self, buffer: Buffer) {
        let (first, bytes) = self.range;
        let inside = (buffer.start.as_ptr() as usize).wrapping_sub(first) < bytes;
        assert!(inside, "a buffer goes back to its own pool");
        let number = buffer.number as usize;
        self.buffers[number] = Some(buffer);
    }

    /// No buffer is out.
    fn is_whole(&self) -> bool {
        self.buffers.iter().all(Option::is_some)
    }

    /// All of the memory, to be named to the kernel and not to be touched.
    pub(crate) fn area(&self) -> (*mut u8, usize) {
        self.mapping.as_ref().map_or((std::ptr::null_mut(), 0), |mapping| (mapping.start(), mapping.len()))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_whole() {
            std::mem::forget(self.mapping.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn pool(byte: u8) -> Pool {
        Pool::new(2, 4096, 8192, |area| area.fill(byte)).expect("memory")
    }

    #[test]
    fn memory_stays_as_long_as_a_buffer_is_out() {
        let mut pool = pool(7);
        let mut buffer = pool.take(1);
        assert_eq!(buffer.start.as_ptr() as usize % 8192, 4096, "the first is aligned");
        assert!(!pool.is_whole() && buffer.data() == [7; 4096]);
        buffer.data_mut()[4095] = 8;
        pool.put(buffer);
        assert!(pool.is_whole());
        let buffer = pool.take(1);
        drop(pool);
        assert_eq!(buffer.data()[4094..], [7, 8]);
    }

    #[test]
    fn a_buffer_is_handed_out_once_and_goes_back_where_it_came_from() {
        let (mut pool, mut other) = (pool(1), pool(2));
        let buffer = pool.take(0);
        assert!(catch_unwind(AssertUnwindSafe(|| pool.take(0))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| other.put(buffer))).is_err());
    }

    #[test]
    fn pages_are_counted_that_are_in_memory() {
        let pages = |flags| Mapping::anonymous(8193, MapFlags::PRIVATE | flags).expect("memory").resident_pages();
        assert_eq!((pages(MapFlags::empty()), pages(MapFlags::POPULATE)), (Some(0), Some(3)));
    }

    #[test]
    fn copies_of_any_length_arrive_and_stay_inside() {
        let mapping = Mapping::anonymous(8192, MapFlags::PRIVATE).expect("memory");
        let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for (offset, len) in [(0, 0), (1, 1), (8, 64), (3, 4999), (4096, 4096), (8192, 0)] {
            mapping.write(offset, &data[..len]);
            let mut found = vec![0xa5; len];
            mapping.read(offset, &mut found);
            assert_eq!(found, data[..len], "{len} at {offset}");
        }
        for (offset, len) in [(8192, 1), (4097, 4096), (usize::MAX, 2)] {
            assert!(catch_unwind(|| mapping.read(offset, &mut vec![0; len])).is_err(), "{len} at {offset}");
        }
    }
}
