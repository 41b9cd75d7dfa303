//! The memory that a thread's calls read into and write from.
//!
//! Each slot has a buffer for reads and, if the thread also writes, another for writes, so that written data does not
//! depend on earlier reads. A call takes its buffer along, and it is put back when the call is done.

use std::io;
use std::sync::Arc;

use iowhy_stack::event::Op;
use iowhy_stack::rng::Rng;
use iowhy_stack::workload::Call;

use crate::content::Maker;
use crate::files::fill_random;
use crate::memory::{Buffer, Pool};
use crate::plan::{Fill, Verify};
use crate::{validate, verify};

/// Bytes between two places that `Fill::Scrambled` changes.
const SCRAMBLED_BYTES: usize = 512;

pub(crate) struct Buffers {
    pool: Pool,
    /// From the number of a slot's buffer for reads to that for writes; 0 if they are the same.
    writes_at: u32,
    fill: Fill,
    verify: Option<Verify>,
    maker: Option<Maker>,
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
        let align = align.max(4096).next_power_of_two();
        let stride = size.max(1).checked_next_multiple_of(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let both = reads && writes;
        let writes_at = if both { slots } else { 0 };
        let mut rng = Rng::stream(seed, "data");
        let mut maker = match &fill {
            Fill::Made(content) => Some(Maker::new(Arc::clone(content), seed)),
            _ => None,
        };
        let pool = Pool::new(slots + writes_at, stride, align, |area| {
            let area = &mut area[writes_at as usize * stride as usize..];
            match &mut maker {
                Some(maker) if writes => area.chunks_mut(stride as usize).for_each(|buffer| maker.fill(buffer)),
                None if writes && matches!(fill, Fill::Scrambled | Fill::Same) => fill_random(area, &mut rng),
                _ => {}
            }
        })?;
        // What is the same in every write is in the buffers for good.
        let fill = if maker.as_ref().is_some_and(|maker| maker.content.is_constant()) { Fill::Same } else { fill };
        Ok(Buffers { pool, writes_at, fill, verify, maker, rng, generation: seed & ((1 << THREAD_BITS) - 1) })
    }

    /// All buffers.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The buffer of `slot` for `call`, with the data that it writes.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u32, call: &Call) -> Buffer {
        if call.op != Op::Write {
            return self.pool.take(slot);
        }
        let mut buffer = self.pool.take(self.writes_at + slot);
        if !matches!(self.fill, Fill::Same | Fill::Zeroes) {
            self.fill(&mut buffer, call);
        }
        buffer
    }

    fn fill(&mut self, buffer: &mut Buffer, call: &Call) {
        let data = &mut buffer.data_mut()[..call.len_bytes as usize];
        self.generation += 1 << THREAD_BITS;
        match (&self.fill, &self.verify) {
            (Fill::Checked, Some(verify)) => {
                let written = verify::Written {
                    generation: self.generation,
                    thread: (self.generation as u16).wrapping_add(1),
                    number: ((self.generation >> THREAD_BITS) as u16).wrapping_sub(1),
                };
                verify::fill(data, verify, call.offset, written);
            }
            (Fill::Summed, _) => validate::fill(data, call.offset),
            (Fill::Fresh, _) => fill_random(data, &mut self.rng),
            (Fill::Made(_), _) => self.maker.iter_mut().for_each(|maker| maker.fill(data)),
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
    }

    /// A call is done: the next one may have its buffer.
    #[inline(always)]
    pub(crate) fn put(&mut self, buffer: Buffer) {
        self.pool.put(buffer);
    }

    /// The generation of the write whose data were made last.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a write of generation `found` was made before `expected` by the same thread.
    pub(crate) fn is_older(found: u64, expected: u64) -> bool {
        (found ^ expected) & ((1 << THREAD_BITS) - 1) == 0 && found < expected
    }
}
