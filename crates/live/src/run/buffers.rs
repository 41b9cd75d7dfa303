//! The memory that a thread's calls read into and write from.
//!
//! One aligned area; each slot has a buffer for reads and, if the thread also writes, another for writes, so that what
//! is written does not depend on what was read before.

use std::io;

use iowhy_stack::rng::Rng;
use iowhy_stack::workload::Call;

use crate::files::fill_random;
use crate::plan::{Fill, Verify};
use crate::verify;

/// Bytes between two places that `Fill::Scrambled` changes.
const SCRAMBLED_BYTES: usize = 512;

pub(crate) struct Buffers {
    start: *mut u8,
    len: usize,
    aligned: *mut u8,
    stride: usize,
    /// From a slot's buffer for reads to that for writes; 0 if they are the same.
    writes_at: usize,
    fill: Fill,
    verify: Option<Verify>,
    rng: Rng,
    /// Number of the last write, and of the thread in the low bits: makes each one's data different.
    generation: u64,
}

/// Bits of a generation that have the number of the thread.
const THREAD_BITS: u32 = 16;

impl Buffers {
    /// Buffers of `size` bytes each for `slots` calls; the low bits of `seed` name the thread.
    pub(crate) fn new(
        slots: u32,
        size: u32,
        align: u32,
        (reads, writes): (bool, bool),
        fill: Fill,
        verify: Option<Verify>,
        seed: u64,
    ) -> io::Result<Buffers> {
        let align = (align.max(4096) as usize).next_power_of_two();
        let stride = (size.max(1) as usize).next_multiple_of(align);
        let both = reads && writes;
        let used = stride * slots as usize * if both { 2 } else { 1 };
        let len = used + align;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: new anonymous memory at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: *mut u8 = start.cast();
        let aligned = start.wrapping_add(start.align_offset(align));
        let writes_at = if both { stride * slots as usize } else { 0 };
        let mut buffers = Buffers {
            start,
            len,
            aligned,
            stride,
            writes_at,
            fill,
            verify,
            rng: Rng::stream(seed, "data"),
            generation: seed & ((1 << THREAD_BITS) - 1),
        };
        if writes && matches!(fill, Fill::Scrambled | Fill::Same) {
            // SAFETY: the range lies within the memory mapped above, and nothing else refers to it yet.
            let area = unsafe { std::slice::from_raw_parts_mut(aligned.add(writes_at), used - writes_at) };
            fill_random(area, &mut buffers.rng);
        }
        Ok(buffers)
    }

    /// The whole area.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.start, self.len)
    }

    /// The buffer of `slot` for reads.
    #[inline(always)]
    pub(crate) fn read(&self, slot: u32) -> *mut u8 {
        self.aligned.wrapping_add(slot as usize * self.stride)
    }

    /// The buffer of `slot` with the data that `call` writes.
    #[inline]
    pub(crate) fn write(&mut self, slot: u32, call: &Call) -> *mut u8 {
        let start = self.aligned.wrapping_add(self.writes_at + slot as usize * self.stride);
        if matches!(self.fill, Fill::Same | Fill::Zeroes) {
            return start;
        }
        debug_assert!(call.len_bytes as usize <= self.stride);
        // SAFETY: the buffer is `stride` long, no call that uses it is in flight, and `self` is borrowed mutably.
        let data = unsafe { std::slice::from_raw_parts_mut(start, call.len_bytes as usize) };
        self.generation += 1 << THREAD_BITS;
        match (self.fill, &self.verify) {
            (Fill::Checked, Some(verify)) => verify::fill(data, verify, call.file, call.offset, self.generation),
            (Fill::Fresh, _) => fill_random(data, &mut self.rng),
            _ => {
                let mut stamp = self.generation ^ call.offset.rotate_left(32);
                for sector in data.chunks_mut(SCRAMBLED_BYTES) {
                    if let Some(word) = sector.first_chunk_mut::<8>() {
                        *word = stamp.to_le_bytes();
                    }
                    stamp = stamp.wrapping_add(0x9e37_79b9_7f4a_7c15);
                }
            }
        }
        start
    }

    /// The generation of the write whose data were made last.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a write of generation `found` was made before `expected` by the same thread.
    pub(crate) fn is_older(found: u64, expected: u64) -> bool {
        (found ^ expected) & ((1 << THREAD_BITS) - 1) == 0 && found < expected
    }

    /// What a read of `slot` has brought.
    pub(crate) fn data(&self, slot: u32, len_bytes: u32) -> &[u8] {
        debug_assert!(len_bytes as usize <= self.stride);
        // SAFETY: the buffer is `stride` long, it has been initialised by the kernel, and its call is done.
        unsafe { std::slice::from_raw_parts(self.read(slot), len_bytes as usize) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`; no call is in flight, since engines wait for theirs when they go.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
