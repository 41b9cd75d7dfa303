//! Bios of direct calls: how much of a program's memory and of a file one takes, and its parts within a disk's limits.
//!
//! ```text
//! refused  a place, a length or memory that is not aligned (EINVAL): memory to logical blocks of the disk until 5.19,
//!          to what its DMA asks for from 6.0 on; from 7.2 on a file's extents are looked at one by one
//! bio      up to 256 vectors within an extent. Pages come in rounds of as many as there are vectors left; pages that
//!          lie side by side in memory are one vector, from 7.2 on only those of one round. From 6.0 on each round,
//!          from 7.2 on the bio, ends with a whole logical block
//! parts    the block layer cuts off as much as a request may have: `max_sectors`, or less to end with a physical
//!          block or at a boundary (`chunk_sectors`), `max_segments` pieces of `max_segment_size`; then the rest. One
//!          vector within a page is left alone if the disk has no boundaries
//! zeroes   writes to new or unwritten blocks, and those that end beyond the file, fill up the blocks at their ends
//! end      a read returns no more than the file has, and reads whole blocks. Holes and unwritten blocks are not read.
//!          5.10 stops with the extent in which the file ends
//! ```
//! Source: Linux 5.10, 6.1, 6.12 and 7.2, `fs/iomap/direct-io.c` (`iomap_dio_bio_iter`), `block/fops.c`
//! (`blkdev_direct_IO`), `block/bio.c` (`bio_iov_iter_get_pages`), `block/blk-merge.c` (`bio_split_rw`). Known
//! deviations: a call has one buffer (no `readv`), and only segments' sizes are bounded, not their places in memory;
//! requests have at least 16 sectors, blocks of files at most 4 KiB; atomic and polled calls do not exist. In the
//! simulator memory is pages that lie apart, and logical and physical blocks are sectors.

use crate::event::Dir;
use crate::units::{PAGE_BYTES, SECTOR_BYTES};

/// Vectors of a bio (`BIO_MAX_VECS`).
const MAX_VECTORS: u64 = 256;

/// Reasons to refuse a direct call, and how pages become vectors.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Assembly {
    /// A bio is never larger than a request (`bio_add_page` until 4.2; taken for all until 4.19).
    Requests,
    /// Memory is aligned to logical blocks (4.20).
    Blocks,
    /// Memory is aligned to what DMA asks for; each round ends with a logical block (6.0).
    Rounds,
    /// The same; vectors end with their round, and the bio ends with a logical block (7.2).
    Bios,
}

/// Limits of a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Logical and physical block, bytes.
    pub logical: u64,
    pub physical: u64,
    /// Largest request, sectors.
    pub max_sectors: u64,
    /// Pieces of memory in a request, and the size of one.
    pub max_segments: u64,
    pub segment_bytes: u64,
    /// No request crosses a multiple of it; 0 for no such boundary.
    pub chunk_sectors: u64,
    /// Bits of an address that DMA wants to be 0.
    pub dma_mask: u64,
}

impl Disk {
    /// Most sectors from a sector on.
    fn max_from(&self, sector: u64) -> u64 {
        let mut most = self.max_sectors;
        if self.chunk_sectors > 0 {
            most = most.min(self.chunk_sectors - sector % self.chunk_sectors);
        }
        let (logical, physical) = (self.logical / SECTOR_BYTES, self.physical / SECTOR_BYTES);
        let start = sector % physical;
        let end = (start + most) / physical * physical;
        if end > start { end - start } else { most / logical * logical }
    }
}

/// Memory of a program, whose bytes count from the start of its first page.
#[derive(Copy, Clone, Debug)]
pub struct Buffer<'a> {
    /// Pages of the folios that it begins with; behind them every page lies apart.
    pub folios: &'a [u64],
}

impl Buffer<'_> {
    /// A usual one: pages that lie apart.
    pub const APART: Buffer<'static> = Buffer { folios: &[] };

    /// Where the folio of a byte begins and ends.
    fn folio(&self, at: u64) -> (u64, u64) {
        let mut start = 0;
        for pages in self.folios {
            let end = start + pages * PAGE_BYTES;
            if at < end {
                return (start, end);
            }
            start = end;
        }
        let page = at / PAGE_BYTES * PAGE_BYTES;
        (page, page + PAGE_BYTES)
    }
}

/// Memory that is one piece: where, and how many bytes.
type Vector = (u64, u64);

/// A bio that has yet to be cut.
#[derive(Clone, Debug, Default)]
pub struct Bio {
    vectors: Vec<Vector>,
    /// The first vector that is left, and how much of it is gone.
    next: usize,
    gone: u64,
}

impl Bio {
    /// The next bio of the `left` bytes of an extent; memory from byte `at` on.
    pub fn assemble(assembly: Assembly, disk: &Disk, buffer: Buffer<'_>, at: u64, left: u64) -> Bio {
        let pages = (at % PAGE_BYTES + left).div_ceil(PAGE_BYTES);
        let most = pages.min(MAX_VECTORS);
        let mut vectors: Vec<Vector> = Vec::with_capacity(most as usize);
        let mut taken = 0;
        while taken < left && (vectors.len() as u64) < most {
            let from = at + taken;
            let room = (most - vectors.len() as u64) * PAGE_BYTES - from % PAGE_BYTES;
            let mut round = room.min(left - taken);
            if assembly == Assembly::Rounds {
                round -= round % disk.logical;
            }
            if round == 0 {
                break;
            }
            add_round(&mut vectors, buffer, (from, from + round), assembly != Assembly::Bios);
            taken += round;
        }
        if assembly == Assembly::Bios {
            drop_end(&mut vectors, taken % disk.logical);
        }
        Bio { vectors, next: 0, gone: 0 }
    }

    /// Bytes that are left of it.
    pub fn bytes(&self) -> u64 {
        self.vectors[self.next..].iter().map(|(_, len)| len).sum::<u64>() - self.gone
    }

    /// Cuts off what one request from this sector on may have; how many bytes.
    pub fn cut(&mut self, disk: &Disk, sector: u64) -> u64 {
        let bytes = if self.is_simple(disk) { self.bytes() } else { self.fitting(disk, sector) };
        let mut left = bytes;
        while left > 0 {
            let rest = self.vectors[self.next].1 - self.gone;
            if left < rest {
                self.gone += left;
                break;
            }
            left -= rest;
            (self.next, self.gone) = (self.next + 1, 0);
        }
        bytes
    }

    /// One vector within a page.
    fn is_simple(&self, disk: &Disk) -> bool {
        let within = |(start, len): &Vector| start % PAGE_BYTES + len <= PAGE_BYTES;
        disk.chunk_sectors == 0 && self.vectors.len() == 1 && self.vectors.iter().all(within)
    }

    /// Bytes of the first request.
    fn fitting(&self, disk: &Disk, sector: u64) -> u64 {
        let max_bytes = disk.max_from(sector) * SECTOR_BYTES;
        let (mut segments, mut bytes, mut gone) = (0, 0, self.gone);
        for (_, len) in &self.vectors[self.next..] {
            let len = len - gone;
            gone = 0;
            // As many segments as there are left, of what there is room for.
            let wanted = len.min(max_bytes - bytes);
            let nr = wanted.div_ceil(disk.segment_bytes).min(disk.max_segments - segments);
            let fits = wanted.min(nr * disk.segment_bytes);
            segments += nr;
            bytes += fits;
            if fits < len {
                return bytes / disk.logical * disk.logical;
            }
        }
        bytes
    }
}

/// Adds the memory from one byte to another; those of a folio that continue a vector may join it.
fn add_round(vectors: &mut Vec<Vector>, buffer: Buffer<'_>, (mut from, end): (u64, u64), joins: bool) {
    while from < end {
        let (start, folio_end) = buffer.folio(from);
        let len = folio_end.min(end) - from;
        match vectors.last_mut() {
            Some((at, before)) if joins && from > start && *at + *before == from => *before += len,
            _ => vectors.push((from, len)),
        }
        from += len;
    }
}

/// Takes bytes away from the end.
fn drop_end(vectors: &mut Vec<Vector>, mut bytes: u64) {
    while let Some((_, len)) = vectors.last_mut() {
        if bytes < *len {
            *len -= bytes;
            return;
        }
        bytes -= *len;
        vectors.pop();
    }
}

/// The state of a file at a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks with data.
    Mapped,
    /// Blocks that a write has just got.
    New,
    /// Blocks without data.
    Unwritten,
    Hole,
}

/// Blocks of a file that are one piece on the disk: bytes of the file, and the sector of the first.
#[derive(Copy, Clone, Debug)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    pub sector: u64,
    pub blocks: Blocks,
}

/// A file, or a disk as such.
#[derive(Copy, Clone, Debug)]
pub struct File {
    pub bytes: u64,
    /// Its file system's block.
    pub block: u64,
}

/// A direct call.
#[derive(Copy, Clone, Debug)]
pub struct Call {
    pub dir: Dir,
    pub offset: u64,
    pub len: u64,
    /// Where its memory begins.
    pub memory: u64,
}

/// A part of a bio: its first sector, and how many.
pub type Part = (u64, u64);

/// The call was refused (`EINVAL`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Refused;

/// A call as it proceeds.
struct Progress<'a> {
    assembly: Assembly,
    disk: &'a Disk,
    buffer: Buffer<'a>,
    call: Call,
    at: u64,
    parts: Vec<Part>,
}

/// The parts of a call on a disk, and the bytes that it moves.
pub fn of_disk(assembly: Assembly, disk: &Disk, buffer: Buffer<'_>, call: Call) -> (Vec<Part>, Result<u64, Refused>) {
    let mut progress = Progress { assembly, disk, buffer, call, at: call.offset, parts: Vec::new() };
    let aligned = progress.is_aligned(call.offset | call.len) && progress.memory_is_aligned();
    if call.len > 0 && !aligned {
        return (Vec::new(), Err(Refused));
    }
    progress.transfer(call.offset + call.len, call.offset / SECTOR_BYTES);
    (progress.parts, Ok(call.len))
}

/// The parts of a call on a file, and the bytes that it moves. `extent` has the blocks at a byte of the file.
pub fn of_file(
    assembly: Assembly,
    disk: &Disk,
    buffer: Buffer<'_>,
    call: Call,
    file: File,
    extent: impl Fn(u64) -> Extent,
) -> (Vec<Part>, Result<u64, Refused>) {
    let mut progress = Progress { assembly, disk, buffer, call, at: call.offset, parts: Vec::new() };
    let end = call.offset + call.len;
    if call.dir == Dir::Read && call.offset >= file.bytes {
        return (Vec::new(), Ok(0));
    }
    while progress.at < end {
        let extent = extent(progress.at);
        let until = end.min(extent.end);
        let is_read = match (call.dir, extent.blocks) {
            (Dir::Read, blocks) => blocks == Blocks::Mapped || blocks == Blocks::New,
            (Dir::Write, _) => true,
        };
        if !is_read {
            progress.at = until;
        } else {
            match progress.extent(&extent, until, end, file) {
                Ok(true) => {}
                Ok(false) => break,
                Err(refused) => return (progress.parts, Err(refused)),
            }
        }
        if assembly == Assembly::Blocks && call.dir == Dir::Read && progress.at >= file.bytes {
            break;
        }
    }
    let moved = progress.at - call.offset;
    let most = if call.dir == Dir::Read { file.bytes - call.offset } else { moved };
    (progress.parts, Ok(moved.min(most)))
}

impl Progress<'_> {
    fn is_aligned(&self, bits: u64) -> bool {
        bits.is_multiple_of(self.disk.logical)
    }

    /// The memory that comes next.
    fn memory(&self) -> u64 {
        self.call.memory + (self.at - self.call.offset)
    }

    fn memory_is_aligned(&self) -> bool {
        match self.assembly {
            Assembly::Requests | Assembly::Blocks => self.is_aligned(self.memory()),
            Assembly::Rounds | Assembly::Bios => self.memory() & self.disk.dma_mask == 0,
        }
    }

    /// The part of the call within an extent; whether it goes on.
    fn extent(&mut self, extent: &Extent, until: u64, end: u64, file: File) -> Result<bool, Refused> {
        let looked_at = if self.assembly == Assembly::Bios { until } else { end };
        let late = self.assembly == Assembly::Bios;
        if !self.is_aligned(self.at | (looked_at - self.at)) || (!late && !self.memory_is_aligned()) {
            return Err(Refused);
        }
        let write = self.call.dir == Dir::Write;
        let fresh = write && matches!(extent.blocks, Blocks::New | Blocks::Unwritten);
        let sector = |at: u64| extent.sector + (at - extent.start) / SECTOR_BYTES;
        let before = self.at % file.block;
        if fresh && before > 0 {
            self.parts.push((sector(self.at - before), before / SECTOR_BYTES));
        }
        let transferred = self.memory_is_aligned();
        if transferred {
            self.transfer(until, sector(self.at));
        }
        let behind = self.at % file.block;
        let zeroes = behind > 0 && (fresh || (write && self.at >= file.bytes));
        if zeroes {
            self.parts.push((sector(self.at), (file.block - behind) / SECTOR_BYTES));
        }
        match (transferred, zeroes) {
            (true, _) => Ok(true),
            // The zeroes succeed, and nobody remembers the refusal.
            (false, true) => Ok(false),
            (false, false) => Err(Refused),
        }
    }

    /// Bios from where the call is to a byte of the file, whose blocks begin with this sector.
    fn transfer(&mut self, until: u64, mut sector: u64) {
        while self.at < until {
            let mut bio = Bio::assemble(self.assembly, self.disk, self.buffer, self.memory(), until - self.at);
            while bio.bytes() > 0 {
                let bytes = bio.cut(self.disk, sector);
                self.parts.push((sector, bytes / SECTOR_BYTES));
                sector += bytes / SECTOR_BYTES;
                self.at += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1280 KiB, 168 pieces of memory.
    const SATA: Disk = Disk {
        logical: 512,
        physical: 4096,
        max_sectors: 2560,
        max_segments: 168,
        segment_bytes: 65_536,
        chunk_sectors: 0,
        dma_mask: 511,
    };

    fn call(dir: Dir, offset: u64, len: u64, memory: u64) -> Call {
        Call { dir, offset, len, memory }
    }

    #[test]
    fn bios_have_256_pages_and_are_cut_to_what_requests_may_have() {
        let parts =
            |disk: &Disk, folios: &[u64], call: Call| of_disk(Assembly::Rounds, disk, Buffer { folios }, call).0;
        let read = |offset, len, memory| call(Dir::Read, offset, len, memory);
        for (disk, folios, call, expected) in [
            (SATA, vec![], read(0, 4096, 0), vec![(0, 8)]),
            // 168 pages and the 88 that are left of 256, twice.
            (SATA, vec![], read(512, 2 << 20, 0), vec![(1, 1344), (1345, 704), (2049, 1344), (3393, 704)]),
            // Pages that lie side by side: as many as 1280 KiB have, and the end of a physical block.
            (SATA, vec![1024], read(512, 2 << 20, 0), vec![(1, 2559), (2560, 1537)]),
            // A boundary every 64 KiB.
            (Disk { chunk_sectors: 128, ..SATA }, vec![], read(61_440, 8192, 0), vec![(120, 8), (128, 8)]),
        ] {
            assert_eq!(parts(&disk, &folios, call), expected, "{disk:?} {folios:?} {call:?}");
        }
    }

    #[test]
    fn what_is_not_aligned_is_refused() {
        let refused = |assembly, call| of_disk(assembly, &SATA, Buffer::APART, call).1 == Err(Refused);
        let disk = Disk { dma_mask: 3, ..SATA };
        for assembly in [Assembly::Blocks, Assembly::Rounds, Assembly::Bios] {
            assert!(!refused(assembly, call(Dir::Read, 512, 512, 512)));
            assert!(refused(assembly, call(Dir::Read, 256, 512, 0)) && refused(assembly, call(Dir::Read, 512, 256, 0)));
            assert!(refused(assembly, call(Dir::Read, 512, 512, 256)) && !refused(assembly, call(Dir::Read, 1, 0, 0)));
            let moved = of_disk(assembly, &disk, Buffer::APART, call(Dir::Read, 512, 512, 4)).1;
            assert_eq!(moved == Err(Refused), assembly == Assembly::Blocks);
        }
    }

    #[test]
    fn files_end_with_a_block_and_new_blocks_are_filled_up() {
        let file = File { bytes: 10_000, block: 4096 };
        let of = |call: Call, blocks: Blocks| {
            let extent = |_| Extent { start: 0, end: 16_384, sector: 800, blocks };
            of_file(Assembly::Rounds, &SATA, Buffer::APART, call, file, extent)
        };
        for (call, blocks, expected) in [
            (call(Dir::Read, 8192, 4096, 0), Blocks::Mapped, (vec![(816, 8)], Ok(1808))),
            (call(Dir::Read, 0, 4096, 0), Blocks::Unwritten, (vec![], Ok(4096))),
            (call(Dir::Read, 12_288, 4096, 0), Blocks::Mapped, (vec![], Ok(0))),
            (call(Dir::Write, 512, 512, 0), Blocks::Mapped, (vec![(801, 1)], Ok(512))),
            (call(Dir::Write, 512, 512, 0), Blocks::New, (vec![(800, 1), (801, 1), (802, 6)], Ok(512))),
            // Behind the end of the file.
            (call(Dir::Write, 12_288, 512, 0), Blocks::Mapped, (vec![(824, 1), (825, 7)], Ok(512))),
        ] {
            assert_eq!(of(call, blocks), expected, "{call:?} {blocks:?}");
        }
    }
}
