//! Direct reads and writes: how memory and extents become bios, and their parts within the limits of a disk

use iowhy_stack::direct_io::bios::{Blocks, Buffer, Call, Disk, Extent, File, Part, Refused, of_disk, of_file};
use iowhy_stack::event::Dir;
use iowhy_stack::kernel::Stack;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::SECTOR_BYTES;

use super::{Case, Policy, Step};

pub(super) const DIRECT: Policy = Policy {
    name: "direct",
    program: "direct.c",
    files: &[],
    headers: &[],
    cuts: &[
        (
            "include/linux/iomap.h",
            &[
                "IOMAP_HOLE",
                "IOMAP_DELALLOC",
                "IOMAP_MAPPED",
                "IOMAP_UNWRITTEN",
                "IOMAP_INLINE",
                "IOMAP_F_NEW",
                "IOMAP_F_DIRTY",
                "IOMAP_F_SHARED",
                "IOMAP_F_ZONE_APPEND",
                "IOMAP_F_STALE",
                "IOMAP_F_ATOMIC_BIO",
                "IOMAP_F_INTEGRITY",
                "IOMAP_F_ANON_WRITE",
                "IOMAP_F_FOLIO_BATCH",
                "IOMAP_NULL_ADDR",
                "IOMAP_WRITE",
                "IOMAP_DIRECT",
                "IOMAP_NOWAIT",
                "IOMAP_OVERWRITE_ONLY",
                "IOMAP_ATOMIC",
                "IOMAP_DIO_UNWRITTEN",
                "IOMAP_DIO_COW",
                "IOMAP_DIO_FORCE_WAIT",
                "IOMAP_DIO_OVERWRITE_ONLY",
                "IOMAP_DIO_PARTIAL",
                "IOMAP_DIO_NOSYNC",
                "IOMAP_DIO_FSBLOCK_ALIGNED",
                "IOMAP_DIO_BOUNCE",
                "struct iomap",
                "struct iomap_iter",
                "struct iomap_ops",
                "struct iomap_dio_ops",
                "iomap_sector",
                "iomap_length",
                "iomap_length_trim",
                "iomap_iter_next",
            ],
        ),
        ("fs/iomap/iter.c", ITERATION),
        ("fs/iomap/apply.c", &["iomap_apply"]),
        (
            "fs/iomap/direct-io.c",
            &[
                "IOMAP_DIO_NO_INVALIDATE",
                "IOMAP_DIO_CALLER_COMP",
                "IOMAP_DIO_INLINE_COMP",
                "IOMAP_DIO_COMP_WORK",
                "IOMAP_DIO_WRITE_THROUGH",
                "IOMAP_DIO_WRITE_FUA",
                "IOMAP_DIO_NEED_SYNC",
                "IOMAP_DIO_WRITE",
                "IOMAP_DIO_DIRTY",
                "IOMAP_DIO_USER_BACKED",
                "struct iomap_dio",
                "iomap_dio_alloc_bio",
                "iomap_dio_submit_bio",
                "iomap_dio_err_type",
                "should_report_dio_fserror",
                "iomap_dio_complete",
                "iomap_dio_set_error",
                "iomap_dio_zero",
                "iomap_dio_bio_opflags",
                "iomap_dio_bio_iter_one",
                "iomap_dio_bio_iter",
                "iomap_dio_hole_iter",
                "iomap_dio_iter",
                "iomap_dio_bio_actor",
                "iomap_dio_hole_actor",
                "iomap_dio_actor",
                "__iomap_dio_rw",
                "iomap_dio_rw",
            ],
        ),
        ("block/fops.c", OF_DEVICES),
        ("fs/block_dev.c", OF_DEVICES),
        (
            "block/bio.c",
            &[
                "bio_full",
                "page_is_mergeable",
                "bvec_try_merge_page",
                "__bio_try_merge_page",
                "__bio_add_page",
                "bio_add_folio_nofail",
                "bio_iov_add_page",
                "bio_iov_add_folio",
                "get_contig_folio_len",
                "bio_iov_iter_align_down",
                "__bio_iov_iter_get_pages",
                "bio_iov_iter_get_pages",
            ],
        ),
        ("lib/iov_iter.c", &["get_contig_folio_len", "iov_iter_extract_bvecs"]),
        ("include/linux/bio.h", &["bio_full"]),
        (
            "include/linux/blkdev.h",
            &["blk_chunk_sectors_left", "blk_boundary_sectors_left", "blk_max_size_offset", "bio_split_rw_at"],
        ),
        (
            "block/blk.h",
            &[
                "bvec_gap_to_prev",
                "__bvec_gap_to_prev",
                "get_max_segment_size",
                "bio_may_exceed_limits",
                "bio_may_need_split",
                "__bio_split_to_limits",
            ],
        ),
        (
            "block/blk-merge.c",
            &[
                "blk_boundary_sectors",
                "get_max_io_size",
                "get_max_segment_size",
                "bvec_split_segs",
                "bvec_seg_gap",
                "bio_split_alignment",
                "bio_split_rw_at",
                "bio_split_io_at",
                "bio_split_rw",
                "bio_submit_split_bioset",
                "bio_submit_split",
                "blk_bio_segment_split",
                "__blk_queue_split",
                "__bio_split_to_limits",
            ],
        ),
    ],
    draw,
    valid,
    model,
    legend: &[
        (
            '#',
            "logical and physical block, sectors and segments of a request, bytes of a segment, sectors between \
             boundaries, bits of memory that DMA wants to be 0",
        ),
        (
            '=',
            "0: a file, its bytes and its block; 1: pages of folios that the memory begins with; 2: an extent: first \
             block, blocks, sector, 0 mapped, 1 new, 2 unwritten",
        ),
        ('r', "a read: offset, bytes, where its memory begins, whether nobody waits. Answer: parts, bytes moved"),
        ('w', "a write: the same"),
    ],
    not_decisions: &[],
};

const ITERATION: &[&str] =
    &["iomap_iter_clean_fbatch", "iomap_iter_advance", "iomap_iter_done", "iomap_iter_continue", "iomap_iter"];

const OF_DEVICES: &[&str] = &[
    "DIO_INLINE_BIO_VECS",
    "struct blkdev_dio",
    "dio_bio_write_op",
    "blkdev_dio_unaligned",
    "blkdev_dio_invalid",
    "blkdev_iov_iter_get_pages",
    "__blkdev_direct_IO_simple",
    "__blkdev_direct_IO_async",
    "__blkdev_direct_IO",
    "blkdev_direct_IO",
];

/// What a call answers that nobody waits for (`EIOCBQUEUED`), and one that was refused (`EINVAL`).
const QUEUED: &str = "=-529";
const REFUSED: &str = "=-22";

/// Blocks that a write gets where there are none: their sectors begin here.
const NEW_SECTORS: u64 = 1 << 31;

fn draw(rng: &mut Rng, _: &Stack) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let logical = [512, 512, 512, 4096][between(0, 3) as usize];
    let physical = [logical, 4096][between(0, 1) as usize].max(logical);
    let max_sectors = [16, 64, 255, 256, 1024, 2560, 2560, 8192, between(2, 400) * 8][between(0, 8) as usize];
    let max_segments = [2, 16, 127, 128, 168, 168, 256, between(2, 300)][between(0, 7) as usize];
    let segment_bytes = [4096, 65_536, 65_536, 4_294_963_200][between(0, 3) as usize];
    let chunk_sectors = [0, 0, 0, 8, 256, 1024, between(1, 300) * 8][between(0, 6) as usize];
    let dma_mask = [511, 3][between(0, 1) as usize];
    let mut settings =
        vec![Step::new('#', &[logical, physical, max_sectors, max_segments, segment_bytes, chunk_sectors, dma_mask])];
    for _ in 0..between(0, 4) {
        let most = [4, 40, 512][between(0, 2) as usize];
        let mut folios = vec![1];
        folios.extend((0..7).map(|_| between(1, most)));
        settings.push(Step::new('=', &folios));
    }
    let is_file = between(0, 2) > 0;
    let mut bytes = 64 << 20;
    if is_file {
        let block = [4096, 4096, 1024, logical][between(0, 3) as usize].max(logical);
        let blocks = [8, 200, 3000][between(0, 2) as usize];
        let (mut at, mut sector) = (0, between(0, 100) * 8);
        for _ in 0..between(0, 12) {
            at += [0, 0, between(1, blocks)][between(0, 2) as usize];
            let length = between(1, blocks);
            settings.push(Step::new('=', &[2, at, length, sector, [0, 0, 0, 1, 2][between(0, 4) as usize]]));
            at += length;
            sector += length * block / 512 + [0, between(1, 500) * block / 512][between(0, 1) as usize];
        }
        bytes = [at * block, at * block - between(0, block), between(0, at.max(1) * block)][between(0, 2) as usize];
        bytes = bytes.max(0);
        settings.insert(1, Step::new('=', &[0, bytes, block]));
    }
    let largest = [8, 64, 600, 2500][between(0, 3) as usize];
    let steps = (0..between(5, 40)).map(|_| {
        let pages = between(0, largest);
        let len = [pages * 4096, pages * 4096, pages * logical, between(1, 4 * logical)][between(0, 3) as usize];
        let near_end = (bytes - between(-8, 8) * 4096).max(0) / 4096 * 4096;
        let anywhere = between(0, bytes.max(1) / 4096 + 2);
        let offset =
            [anywhere * 4096, anywhere * logical, near_end, near_end + between(0, 7) * logical][between(0, 3) as usize];
        let offset = if between(0, 60) == 0 { offset + between(1, 511) } else { offset };
        let memory = between(0, 40) * 4096 + [0, 0, between(0, 7) * 512, between(0, 1023) * 4][between(0, 3) as usize];
        Step::new(['r', 'w'][between(0, 1) as usize], &[offset, len, memory, between(0, 1)])
    });
    let steps = steps.collect();
    Case { settings, steps }
}

/// Limits as kernels have them; extents in order; memory within that of the shim.
fn valid(case: &Case) -> bool {
    let Some(limits) = case.settings.first().filter(|step| step.op == '#') else { return false };
    let power = |at: usize, low: u64, high: u64| {
        (low..=high).contains(&limits.unsigned(at)) && limits.unsigned(at).is_power_of_two()
    };
    let mut at = 0;
    let mut settings = case.settings[1..].iter();
    let files = case.settings.iter().filter(|step| step.op == '=' && step.get(0) == 0).count();
    let extents = settings.all(|step| match step.get(0) {
        0 => step.unsigned(2) >= limits.unsigned(0) && step.unsigned(2).is_power_of_two() && step.get(2) <= 4096,
        1 => step.arguments[1..].iter().all(|pages| *pages > 0),
        _ => {
            let after = step.get(1) >= at && step.get(2) > 0 && step.get(3) * 512 % limits.get(0) == 0;
            at = step.get(1) + step.get(2);
            after
        }
    });
    let bounded = |step: &Step| step.get(1) <= 16 << 20 && step.get(2) <= 1 << 20;
    extents
        && files <= 1
        && power(0, 512, 4096)
        && power(1, limits.unsigned(0), 4096)
        && limits.get(2) >= 16
        && limits.get(3) >= 2
        && limits.get(4) >= 4096
        && limits.get(5) % 8 == 0
        && [3, 511].contains(&limits.get(6))
        && case.steps.iter().all(bounded)
}

/// The extent at a byte of a file; a write gets blocks where there are none.
fn extent(extents: &[Extent], block: u64, call: &Call, at: u64) -> Extent {
    if let Some(found) = extents.iter().find(|extent| (extent.start..extent.end).contains(&at)) {
        return *found;
    }
    let start = at / block * block;
    let next = extents.iter().map(|extent| extent.start).filter(|next| *next > at).min().unwrap_or(u64::MAX);
    match call.dir {
        Dir::Read => Extent { start, end: next, sector: 0, blocks: Blocks::Hole },
        Dir::Write => {
            let end = next.min((call.offset + call.len).next_multiple_of(block));
            Extent { start, end, sector: NEW_SECTORS + start / SECTOR_BYTES, blocks: Blocks::New }
        }
    }
}

/// The model's answers.
fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let limits = &case.settings[0];
    let disk = Disk {
        logical: limits.unsigned(0),
        physical: limits.unsigned(1),
        max_sectors: limits.unsigned(2),
        max_segments: limits.unsigned(3),
        segment_bytes: limits.unsigned(4),
        chunk_sectors: limits.unsigned(5),
        dma_mask: limits.unsigned(6),
    };
    let of_kind = |kind: i64| case.settings[1..].iter().filter(move |step| step.get(0) == kind);
    let file = of_kind(0).next().map(|step| File { bytes: step.unsigned(1), block: step.unsigned(2) });
    let folios: Vec<u64> = of_kind(1).flat_map(|step| &step.arguments[1..]).map(|pages| pages.unsigned_abs()).collect();
    let block = file.map_or(4096, |file| file.block);
    let extents = of_kind(2).map(|step| Extent {
        start: step.unsigned(1) * block,
        end: (step.unsigned(1) + step.unsigned(2)) * block,
        sector: step.unsigned(3),
        blocks: [Blocks::Mapped, Blocks::New, Blocks::Unwritten][step.unsigned(4).min(2) as usize],
    });
    let extents: Vec<Extent> = extents.collect();
    let assembly = (stack.direct.entry.build)(&stack.direct.options).assembly;
    let buffer = Buffer { folios: &folios };
    let answer = |step: &Step| {
        let dir = if step.op == 'w' { Dir::Write } else { Dir::Read };
        let call = Call { dir, offset: step.unsigned(0), len: step.unsigned(1), memory: step.unsigned(2) };
        let (parts, moved) = match file {
            Some(file) => of_file(assembly, &disk, buffer, call, file, |at| extent(&extents, block, &call, at)),
            None => of_disk(assembly, &disk, buffer, call),
        };
        let waits = file.is_some() || step.get(3) == 0;
        said(dir, &parts, moved, waits || call.len == 0)
    };
    case.steps.iter().map(answer).collect()
}

/// The answer to a call.
fn said(dir: Dir, parts: &[Part], moved: Result<u64, Refused>, waits: bool) -> String {
    let letter = if dir == Dir::Read { 'R' } else { 'W' };
    let parts: String = parts.iter().map(|(sector, nr_sectors)| format!("{letter}{sector}+{nr_sectors} ")).collect();
    parts
        + &match moved {
            Err(Refused) => REFUSED.to_owned(),
            Ok(_) if !waits => QUEUED.to_owned(),
            Ok(bytes) => format!("={bytes}"),
        }
}
