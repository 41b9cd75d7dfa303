/* Direct reads and writes of a file or a device: memory of folios that lie apart, a mapping of blocks, and bios that
 * are split and printed as they are submitted. Steps: see `direct.rs`. Written for this command; no text of a kernel. */
#include "shim.h"

#define CONFIG_BLOCK 1
#define IS_ERR_OR_NULL(p) (!(p) || IS_ERR(p))
#define PTR_ERR_OR_ZERO(p) (IS_ERR(p) ? PTR_ERR(p) : 0)
#define READ 0
#define WRITE 1
#define BIO_MAX_VECS 256U
#define BIO_MAX_PAGES 256
#define BIO_MAX_SIZE UINT_MAX
#define U64_MAX UINT64_MAX
#define BLK_QC_T_NONE 0
#define EIOCBQUEUED 529
#define min3(a, b, c) min(min(a, b), c)
enum { REQ_OP_READ, REQ_OP_WRITE, REQ_OP_FLUSH, REQ_OP_DISCARD, REQ_OP_SECURE_ERASE, REQ_OP_WRITE_ZEROES,
       REQ_OP_WRITE_SAME, REQ_OP_ZONE_APPEND, REQ_OP_MASK = 255 };
enum { REQ_SYNC = 1 << 8, REQ_IDLE = 1 << 9, REQ_NOMERGE = 1 << 10, REQ_NOWAIT = 1 << 11, REQ_ATOMIC = 1 << 12,
       REQ_FUA = 1 << 13, REQ_POLLED = 1 << 14, REQ_ALLOC_CACHE = 1 << 15, REQ_HIPRI = 1 << 16 };
enum { IOCB_NOWAIT = 1, IOCB_HIPRI = 2, IOCB_DSYNC = 4, IOCB_SYNC = 8, IOCB_ATOMIC = 16, IOCB_ALLOC_CACHE = 32,
       IOCB_HAS_METADATA = 64, IOCB_DIO_CALLER_COMP = 128 };
enum { BLK_STS_OK, BLK_STS_AGAIN, BLK_STS_IOERR, BLK_STS_RESOURCE };
enum { BIO_CLONED, BIO_PAGE_PINNED, BIO_NO_PAGE_REF, BIO_REFFED, BIO_QUEUE_ENTERED };
enum { ITER_ALLOW_P2PDMA = 1, TASK_UNINTERRUPTIBLE, TASK_RUNNING, GFP_NOFS, GFP_NOIO };
enum { DIO_SHOULD_DIRTY = 1, DIO_IS_SYNC = 2 };
typedef unsigned iov_iter_extraction_t;
typedef u64 phys_addr_t;
typedef int blk_status_t;
typedef unsigned blk_qc_t;
enum rw_hint { SHIM_HINT };
enum fserror_type { FSERR_DIRECTIO_READ, FSERR_DIRECTIO_WRITE };

/* Memory: pages, of which those of a folio lie side by side. */
struct page { unsigned first, pages; };
struct folio { struct page page; };
#define SHIM_PAGES 16384
static struct page frames[2 * SHIM_PAGES + 64], *buffer[SHIM_PAGES];
#define zero_frames (frames + 2 * SHIM_PAGES)
static unsigned nr_frames;
#define page_to_phys(p) ((phys_addr_t)((p) - frames + 4096) << PAGE_SHIFT)
#define page_folio(p) ((struct folio *)&frames[(p)->first])
#define folio_page_idx(f, p) ((p) - &(f)->page)
#define folio_size(f) ((size_t)(f)->page.pages << PAGE_SHIFT)
#define folio_page(f, n) (&(f)->page + (n))
#define largest_zero_folio() ((struct folio *)zero_frames)
#define zero_page zero_frames
#define ZERO_PAGE(n) zero_frames
#define IOMAP_ZERO_PAGE_SIZE (64 * 1024)
#define get_page(p) ((void)(p))
#define put_page(p) ((void)(p))
#define unpin_user_page(p) ((void)(p))
#define unpin_user_folio(f, n) ((void)(f))
#define bio_release_page(bio, p) ((void)(p))
#define xen_domain() false
#define xen_biovec_phys_mergeable(a, b) true
#define zone_device_pages_have_same_pgmap(a, b) true
#define is_pci_p2pdma_page(p) false
#define blk_queue_pci_p2pdma(q) false

/* The caller's buffer. */
struct iov_iter { size_t count, at; int dir; };
struct iovec { void *iov_base; size_t iov_len; };
#define iov_iter_count(i) ((i)->count)
#define iov_iter_rw(i) ((i)->dir)
#define iov_iter_truncate(i, n) ((void)((i)->count = min((u64)(i)->count, (u64)(n))))
#define iov_iter_reexpand(i, n) ((void)((i)->count = (n)))
#define iov_iter_is_bvec(i) false
#define iter_is_iovec(i) false
#define iter_is_ubuf(i) true
#define iov_iter_is_kvec(i) false
#define user_backed_iter(i) true
#define iov_iter_extract_will_pin(i) false
#define iter_iov_addr(i) ((i)->at)
#define iter_iov_len(i) ((i)->count)
#define iov_iter_alignment(i) ((unsigned)((i)->at | (i)->count))
#define bio_iov_bvec_set(bio, i) BUG()
#define bio_iov_bvec_aligned(bio, mask) true
#define bio_iov_iter_bounce(...) (-EINVAL)
#define bio_iov_iter_unbounce(...) ((void)0)
#define bio_iov_bounce_nr_vecs(...) 0
#define iomap_max_bio_size(m) 0
static void iov_iter_advance(struct iov_iter *iter, size_t n) { iter->at += n; iter->count -= n; }
static void iov_iter_revert(struct iov_iter *iter, size_t n) { iter->at -= n; iter->count += n; }
static size_t shim_zero(struct iov_iter *iter, size_t n)
{
	n = min(n, iter->count);
	iov_iter_advance(iter, n);
	return n;
}
#define iov_iter_zero(n, i) shim_zero(i, n)
static int iov_iter_npages(const struct iov_iter *iter, int most)
{
	if (!iter->count)
		return 0;
	return min((size_t)most, (size_t)DIV_ROUND_UP((iter->at & ~PAGE_MASK) + iter->count, PAGE_SIZE));
}
#define bio_iov_vecs_to_alloc(iter, most) iov_iter_npages(iter, most)
#define bio_max_segs(n) min((unsigned)(n), BIO_MAX_VECS)
static bool iov_iter_is_aligned(const struct iov_iter *iter, unsigned addr_mask, unsigned len_mask)
{
	return !(iter->at & addr_mask) && !(iter->count & len_mask);
}
/* Pages from the present place on, and how many bytes they have. */
static ssize_t shim_pages(struct iov_iter *iter, struct page **pages, size_t most, unsigned nr, size_t *offset)
{
	size_t from = iter->at & ~PAGE_MASK;
	size_t size = min3(most, iter->count, (size_t)nr * PAGE_SIZE - from);

	if (!size)
		return 0;
	for (size_t i = 0; i < DIV_ROUND_UP(from + size, PAGE_SIZE); i++)
		pages[i] = buffer[(iter->at >> PAGE_SHIFT) + i];
	*offset = from;
	return size;
}
#define iov_iter_get_pages(i, pages, most, nr, offset) shim_pages(i, pages, most, nr, offset)
static ssize_t iov_iter_get_pages2(struct iov_iter *iter, struct page **pages, size_t most, unsigned nr, size_t *offset)
{
	ssize_t size = shim_pages(iter, pages, most, nr, offset);
	iov_iter_advance(iter, max(size, (ssize_t)0));
	return size;
}
#define iov_iter_extract_pages(i, pages, most, nr, flags, offset) iov_iter_get_pages2(i, *(pages), most, nr, offset)

/* A disk and its limits. */
struct queue_limits {
	unsigned logical_block_size, physical_block_size, max_sectors, max_segments, max_segment_size, chunk_sectors;
	unsigned dma_alignment, max_fast_segment_size, zone_write_granularity, max_write_zeroes_sectors;
	unsigned atomic_write_max_sectors, atomic_write_boundary_sectors, max_zone_append_sectors;
	unsigned max_discard_sectors, max_secure_erase_sectors, max_dev_sectors;
	unsigned long seg_boundary_mask, virt_boundary_mask;
};
struct request_queue { struct queue_limits limits; int bio_split; };
struct gendisk { struct request_queue *queue; int bio_split; };
struct block_device { struct gendisk *bd_disk; struct request_queue *bd_queue; struct inode *bd_inode; };
static struct request_queue queue;
static struct gendisk disk = { &queue };
static struct block_device device = { &disk, &queue };
#define bdev_get_queue(b) ((b)->bd_queue)
#define bdev_limits(b) (&(b)->bd_queue->limits)
#define bdev_logical_block_size(b) ((b)->bd_queue->limits.logical_block_size)
#define bdev_dma_alignment(b) ((b)->bd_queue->limits.dma_alignment)
#define bdev_iter_is_aligned(b, i) iov_iter_is_aligned(i, bdev_dma_alignment(b), bdev_logical_block_size(b) - 1)
#define bdev_fua(b) false
#define bdev_write_cache(b) true
#define bdev_nowait(b) true
#define bdev_max_write_streams(b) 0
#define blk_queue_fua(q) false
#define queue_logical_block_size(q) ((q)->limits.logical_block_size)
#define queue_physical_block_size(q) ((q)->limits.physical_block_size)
#define queue_segment_boundary(q) ((q)->limits.seg_boundary_mask)
#define queue_virt_boundary(q) ((q)->limits.virt_boundary_mask)
#define queue_max_segment_size(q) ((q)->limits.max_segment_size)
#define queue_max_segments(q) ((q)->limits.max_segments)
#define blksize_bits(n) ilog2(n)
#define offset_in_page(p) ((unsigned long)(p) & ~PAGE_MASK)
#define sector_div(n, base) do_div(n, base)

/* Bios. */
struct bio_vec { struct page *bv_page; unsigned bv_len, bv_offset; };
struct bvec_iter { sector_t bi_sector; unsigned bi_size, bi_idx, bi_bvec_done; };
struct bio {
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
	unsigned short bi_vcnt, bi_max_vecs, bi_flags;
	unsigned bi_opf;
	int bi_status, bi_ioprio, bi_write_hint, bi_write_stream, bi_bvec_gap_bit;
	struct block_device *bi_bdev;
	struct gendisk *bi_disk;
	void *bi_private;
	void (*bi_end_io)(struct bio *);
	struct bio_vec own[BIO_MAX_VECS];
};
struct bio_set { int unused; };
static struct bio_set fs_bio_set;
struct bio_crypt_ctx { struct { struct { unsigned data_unit_size; } crypto_cfg; } *bc_key; };
#define bio_crypt_ctx(bio) ((struct bio_crypt_ctx *)NULL)
#define bio_op(bio) ((bio)->bi_opf & REQ_OP_MASK)
#define op_is_write(op) ((op) & 1)
#define bio_sectors(bio) ((bio)->bi_iter.bi_size >> 9)
#define bio_flagged(bio, f) false
#define bio_set_flag(bio, f) ((void)(bio))
#define bio_clear_flag(bio, f) ((void)(bio))
#define bio_clear_polled(bio) ((void)(bio))
#define bio_set_polled(bio, iocb) ((void)(bio))
#define bio_set_dev(bio, b) ((void)((bio)->bi_bdev = (b), (bio)->bi_disk = &disk))
#define bio_set_op_attrs(bio, op, flags) ((void)((bio)->bi_opf = (op) | (flags)))
#define bio_set_pages_dirty(bio) ((void)(bio))
#define bio_check_pages_dirty(bio) ((void)(bio))
#define bio_release_pages(bio, dirty) ((void)(bio))
#define bio_put(bio) ((void)(bio))
#define bio_get(bio) ((void)(bio))
#define bio_uninit(bio) ((void)(bio))
#define bio_chain(a, b) ((void)(a))
#define bio_integrity(bio) false
#define bio_integrity_map_iter(...) 0
#define bio_integrity_unmap_user(bio) ((void)(bio))
#define bio_zone_write_plugging(bio) false
#define bvec_phys(bv) (page_to_phys((bv)->bv_page) + (bv)->bv_offset)
#define bvec_set_page(bv, p, len, offset) (*(bv) = (struct bio_vec) { p, len, offset })
#define __bvec_iter_bvec(vecs, iter) (&(vecs)[(iter).bi_idx])
#define PAGE_PTRS_PER_BVEC (sizeof(struct bio_vec) / sizeof(struct page *))
static struct bio_vec shim_bvec(const struct bio *bio, const struct bvec_iter *iter)
{
	struct bio_vec vec = bio->bi_io_vec[iter->bi_idx];

	vec.bv_page += (vec.bv_offset + iter->bi_bvec_done) >> PAGE_SHIFT;
	vec.bv_len = min(vec.bv_len - iter->bi_bvec_done, iter->bi_size);
	vec.bv_offset = (vec.bv_offset + iter->bi_bvec_done) & ~PAGE_MASK;
	return vec;
}
static void shim_advance(const struct bio *bio, struct bvec_iter *iter, unsigned bytes)
{
	iter->bi_sector += bytes >> 9;
	iter->bi_size -= bytes;
	iter->bi_bvec_done += bytes;
	while (iter->bi_bvec_done && iter->bi_bvec_done >= bio->bi_io_vec[iter->bi_idx].bv_len)
		iter->bi_bvec_done -= bio->bi_io_vec[iter->bi_idx++].bv_len;
}
#define bio_for_each_bvec(bv, bio, iter) \
	for (iter = (bio)->bi_iter; iter.bi_size && ((bv) = shim_bvec(bio, &iter), true); \
	     shim_advance(bio, &iter, (bv).bv_len))
static struct bio *shim_init(struct bio *bio, struct block_device *bdev, unsigned vecs, unsigned opf)
{
	BUG_ON(vecs > BIO_MAX_VECS);
	memset(bio, 0, offsetof(struct bio, own));
	bio->bi_io_vec = bio->own;
	bio->bi_max_vecs = vecs;
	bio->bi_opf = opf;
	bio->bi_bdev = bdev;
	bio->bi_disk = &disk;
	return bio;
}
/* The oldest of them are long done with. */
static struct bio *shim_bio(struct block_device *bdev, unsigned vecs, unsigned opf)
{
	static struct bio all[4096];
	static unsigned nr;

	return shim_init(&all[nr++ % 4096], bdev, vecs, opf);
}
#if SHIM_VERSION < 515
#define bio_alloc(gfp, vecs) shim_bio(&device, vecs, 0)
#define bio_alloc_bioset(gfp, vecs, set) bio_alloc(gfp, vecs)
#define blk_throtl_charge_bio_split(bio) ((void)(bio))
#define PageWorkingset(p) false
#define bio_init(bio, vecs, nr) shim_init(bio, &device, nr, 0)
#else
#define bio_alloc(b, vecs, opf, gfp) shim_bio(b, vecs, opf)
#define bio_alloc_bioset(b, vecs, opf, gfp, set) shim_bio(b, vecs, opf)
#define bio_init(bio, b, vecs, nr, opf) shim_init(bio, b, nr, opf)
#endif
static struct bio *bio_split(struct bio *bio, int sectors, gfp_t gfp, void *set)
{
	struct bio *front = shim_bio(bio->bi_bdev, 1, bio->bi_opf);

	BUG_ON(sectors <= 0 || sectors >= bio_sectors(bio));
	front->bi_iter = bio->bi_iter;
	front->bi_iter.bi_size = sectors << 9;
	front->bi_io_vec = bio->bi_io_vec;
	front->bi_vcnt = bio->bi_vcnt;
	shim_advance(bio, &bio->bi_iter, sectors << 9);
	return front;
}
#define blkcg_bio_issue_init(bio) ((void)(bio))
#define trace_block_split(...) ((void)0)
#define errno_to_blk_status(e) (-(e))
#define blk_status_to_errno(s) (-(s))
#define bio_endio(bio) ((void)(bio)->bi_end_io(bio))
#define bio_endio_status(bio, s) ((void)((bio)->bi_status = (s), bio_endio(bio)))
/* The rest of a bio that was split comes next. */
static struct bio *shim_rest;
#define submit_bio_noacct(bio) ((void)(shim_rest = (bio)))
#define submit_bio_noacct_nocheck(bio, split) submit_bio_noacct(bio)
#define should_fail_bio(bio) 0
#define blk_throtl_bio(bio) false
#define bio_io_error(bio) BUG()
#define SHIM_NEVER() ({ BUG(); NULL; })
#define bio_split_discard(...) SHIM_NEVER()
#define bio_split_write_zeroes(...) SHIM_NEVER()
#define bio_split_zone_append(...) SHIM_NEVER()
#define blk_bio_discard_split(...) SHIM_NEVER()
#define blk_bio_write_zeroes_split(...) SHIM_NEVER()
#define blk_bio_write_same_split(...) SHIM_NEVER()
#define bio_iov_add_zone_append_page(...) (BUG(), 0)
#define bio_iov_add_zone_append_folio(...) (BUG(), 0)
#define __bio_iov_append_get_pages(...) (BUG(), 0)
#define __bio_iov_bvec_add_pages(...) (BUG(), 0)
#define iomap_dio_inline_iter(...) (BUG(), 0)
#define iomap_dio_inline_actor(...) (BUG(), 0)

/* Files. */
typedef unsigned umode_t;
struct work_struct { int unused; };
struct task_struct { int unused; };
struct dax_device;
struct folio_batch;
struct iomap_page_ops;
struct iomap_folio_ops;
struct workqueue_struct;
struct super_block { void *s_dio_done_wq; };
struct address_space;
struct inode {
	loff_t i_size;
	unsigned i_blkbits;
	int i_write_hint;
	struct super_block *i_sb;
	struct address_space *i_mapping;
};
struct address_space { struct inode *host; unsigned long nrpages; };
struct file { struct address_space *f_mapping; void *private_data; };
struct kiocb {
	struct file *ki_filp;
	loff_t ki_pos;
	int ki_flags, ki_ioprio, ki_hint, ki_write_stream;
	void *private;
	void *ki_complete, *dio_complete;
	size_t ki_queued;
	unsigned ki_cookie;
};
struct blk_plug { int unused; };
static struct super_block super = { &super };
static struct inode inode = { .i_sb = &super };
static struct address_space mapping = { &inode };
static struct file file = { &mapping, &device };
static struct task_struct *current = (struct task_struct *)&file;
#define file_inode(f) ((f)->f_mapping->host)
#define bdev_file_inode(f) (&inode)
#define I_BDEV(i) (&device)
#define i_size_read(i) ((i)->i_size)
#define i_blocksize(i) (1U << (i)->i_blkbits)
#define is_sync_kiocb(iocb) (!(iocb)->ki_complete)
#define iocb_is_dsync(iocb) false
#define task_io_account_write(n) ((void)(n))
#define inode_dio_begin(i) ((void)(i))
#define inode_dio_end(i) ((void)(i))
#define blk_start_plug(p) ((void)(p))
#define blk_finish_plug(p) ((void)(p))
#define blk_io_schedule() BUG()
#define blk_poll(...) 0
#define set_current_state(s) ((void)0)
#define __set_current_state(s) ((void)0)
#define sb_init_dio_done_wq(s) 0
#define kiocb_write_and_wait(...) 0
#define kiocb_invalidate_pages(...) 0
#define kiocb_invalidate_post_direct_write(...) ((void)0)
#define filemap_write_and_wait_range(...) 0
#define filemap_range_needs_writeback(...) 0
#define filemap_range_has_page(...) 0
#define invalidate_inode_pages2_range(...) 0
#define dio_warn_stale_pagecache(f) ((void)0)
#define generic_write_sync(iocb, n) (n)
#define fscrypt_set_bio_crypt_ctx(...) ((void)0)
#define fs_bio_integrity_generate(bio) ((void)0)
#define fs_bio_integrity_alloc(bio) ((void)0)
#define fserror_report_io(...) ((void)0)
#define trace_iomap_dio_rw_begin(...) ((void)0)
#define trace_iomap_dio_rw_queued(...) ((void)0)
#define trace_iomap_dio_complete(...) ((void)0)
#define trace_iomap_dio_invalidate_fail(...) ((void)0)
#define trace_iomap_iter(...) ((void)0)
#define trace_iomap_iter_dstmap(...) ((void)0)
#define trace_iomap_iter_srcmap(...) ((void)0)
#define trace_iomap_apply(...) ((void)0)
#define trace_iomap_apply_dstmap(...) ((void)0)
#define trace_iomap_apply_srcmap(...) ((void)0)
#define folio_batch_count(b) 0
#define folio_batch_release(b) ((void)0)
#define folio_batch_reinit(b) ((void)0)
#define pr_warn_ratelimited(...) ((void)0)
#define kmalloc(size, flags) calloc(1, size)
#define kmalloc_obj(of, ...) calloc(1, sizeof(of))
#define kmalloc_array(n, size, flags) calloc(n, size)
#undef WARN_ON_ONCE
#define WARN_ON_ONCE(x) ({ bool shim_x = (x); if (shim_x) SHIM_STOP("WARN_ON_ONCE(" #x ")"); shim_x; })
void iomap_dio_bio_end_io(struct bio *bio);
static void blkdev_bio_end_io(struct bio *bio);
static void blkdev_bio_end_io_async(struct bio *bio);
#define blkdev_bio_end_io_simple blkdev_bio_end_io_async
void shim_submit(struct bio *bio);
static void shim_submit_wait(struct bio *bio) { shim_submit(bio); }
#define submit_bio(bio) (shim_submit(bio), 0)
#define submit_bio_wait(bio) shim_submit_wait(bio)
#define blk_crypto_submit_bio(bio) shim_submit(bio)
#define blk_wake_io_task(t) ((void)(t))
static struct bio_set blkdev_dio_pool;
struct iomap_iter;
struct iomap;
struct iomap_dio;
struct iomap_ops;
struct iomap_dio_ops;
#if SHIM_VERSION < 515
typedef loff_t (*iomap_actor_t)(struct inode *, loff_t, loff_t, void *, struct iomap *, struct iomap *);
#endif
#if SHIM_VERSION >= 700
typedef int (*iomap_iter_begin_fn)(struct inode *, loff_t, loff_t, unsigned, struct iomap *, struct iomap *);
typedef int (*iomap_iter_end_fn)(struct inode *, loff_t, loff_t, ssize_t, unsigned, struct iomap *);
typedef int (*iomap_iter_next_fn)(const struct iomap_iter *, struct iomap *, struct iomap *);
#endif
#include "cut.c"

void iomap_dio_bio_end_io(struct bio *bio)
{
	struct iomap_dio *dio = bio->bi_private;

	if (bio->bi_status)
		dio->error = -bio->bi_status;
	atomic_dec(&dio->ref);
}
static int shim_status;
static void blkdev_bio_end_io(struct bio *bio)
{
	struct blkdev_dio *dio = bio->bi_private;

	shim_status |= bio->bi_status;
	if (bio->bi_status && !dio->bio.bi_status)
		dio->bio.bi_status = bio->bi_status;
#if SHIM_VERSION < 515
	if (!dio->multi_bio) {
		dio->waiter = NULL;
		return;
	}
#endif
	if (atomic_dec_and_test(&dio->ref))
		dio->waiter = NULL;
}
/* Until 5.15 somebody waits for this. */
static void blkdev_bio_end_io_async(struct bio *bio) { bio->bi_private = NULL; }

/* To the disk: its parts, each within the limits. */
void shim_submit(struct bio *bio)
{
	struct bio *whole = bio, *front;
	unsigned segments;

	do {
		shim_rest = NULL;
#if SHIM_VERSION < 515
		front = bio;
		__blk_queue_split(&front, &segments);
#else
		front = bio;
#if SHIM_VERSION < 612
		if (bio_may_exceed_limits(bio, &queue.limits))
			front = __bio_split_to_limits(bio, &queue.limits, &segments);
#else
		front = __bio_split_to_limits(bio, &queue.limits, &segments);
#endif
#endif
		if (!front)
			return;
		printf("%c%llu+%u ", op_is_write(bio_op(front)) ? 'W' : 'R', (unsigned long long)front->bi_iter.bi_sector,
		       bio_sectors(front));
		bio = shim_rest;
	} while (bio);
	if (whole->bi_end_io)
		whole->bi_end_io(whole);
}

/* Extents, in blocks: where, how many, first sector on the disk, kind. */
static struct { u64 at, blocks, sector; long kind; } extents[64];
static unsigned nr_extents;
static bool shim_is_file;
static int shim_begin(struct inode *inode, loff_t pos, loff_t length, unsigned flags, struct iomap *map,
		      struct iomap *source)
{
	static const unsigned TYPES[] = { IOMAP_MAPPED, IOMAP_MAPPED, IOMAP_UNWRITTEN };
	u64 block = pos >> inode->i_blkbits, end = -1ULL >> 1 >> inode->i_blkbits;

	map->bdev = &device;
	map->flags = 0;
	for (unsigned i = 0; i < nr_extents; i++) {
		if (extents[i].at <= block && block < extents[i].at + extents[i].blocks) {
			map->type = TYPES[extents[i].kind];
			map->flags = extents[i].kind == 1 && flags & IOMAP_WRITE ? IOMAP_F_NEW : 0;
			map->offset = extents[i].at << inode->i_blkbits;
			map->length = extents[i].blocks << inode->i_blkbits;
			map->addr = extents[i].sector << 9;
			return 0;
		}
		if (extents[i].at > block)
			end = min(end, extents[i].at);
	}
	map->offset = block << inode->i_blkbits;
	map->length = (end - block) << inode->i_blkbits;
	map->type = IOMAP_HOLE;
	map->addr = IOMAP_NULL_ADDR;
	/* A write gets new blocks, far behind all others, and not more than it needs. */
	if (flags & IOMAP_WRITE) {
		map->length = min((u64)map->length, (u64)round_up(pos + length, i_blocksize(inode)) - map->offset);
		map->type = IOMAP_MAPPED;
		map->flags = IOMAP_F_NEW;
		map->addr = (1ULL << 40) + map->offset;
	}
	return 0;
}

static void shim_call(int dir, const struct step *step)
{
	static const struct iomap_ops ops = { .iomap_begin = shim_begin };
	struct iov_iter iter = { .count = step->arg[1], .at = step->arg[2], .dir = dir };
	struct kiocb iocb = { .ki_filp = &file, .ki_pos = step->arg[0] };
	ssize_t size;

	shim_status = 0;
	if (step->arg[3])
		iocb.ki_complete = &iocb;
	if (shim_is_file) {
		iocb.ki_complete = NULL;
#if SHIM_VERSION < 515
		size = iomap_dio_rw(&iocb, &iter, &ops, NULL, true);
#else
		size = iomap_dio_rw(&iocb, &iter, &ops, NULL, 0, NULL, 0);
#endif
	} else {
		size = blkdev_direct_IO(&iocb, &iter);
	}
	/* 7.2 refuses large calls that nobody waits for with their completion only. */
	if (size == -EIOCBQUEUED && shim_status)
		size = -EINVAL;
	printf("=%zd\n", size);
}

static void shim_run(unsigned pages)
{
	static unsigned at;

	for (unsigned i = 0; i < pages && at < SHIM_PAGES; i++, at++) {
		frames[nr_frames + i] = (struct page) { nr_frames, pages };
		buffer[at] = &frames[nr_frames + i];
	}
	nr_frames += pages + 1;
	if (!pages)
		nr_frames = at = 0;
}

static void shim_fill(void)
{
	for (unsigned i = 0; i < SHIM_PAGES; i++)
		if (!buffer[i]) {
			frames[nr_frames] = (struct page) { nr_frames, 1 };
			buffer[i] = &frames[nr_frames];
			nr_frames += 2;
		}
}

static void shim_limits(const long *arg)
{
	memset(&queue, 0, sizeof(queue));
	queue.limits = (struct queue_limits) {
		.logical_block_size = arg[0], .physical_block_size = arg[1], .max_sectors = arg[2], .max_segments = arg[3],
		.max_segment_size = arg[4], .chunk_sectors = arg[5], .dma_alignment = arg[6],
		.max_fast_segment_size = min(arg[4], (long)PAGE_SIZE), .seg_boundary_mask = 0xffffffff,
	};
	nr_extents = 0;
	memset(buffer, 0, sizeof(buffer));
	shim_run(0);
}

int main(void)
{
	struct step step;
	bool filled = false;

	zero_frames[0] = (struct page) { 2 * SHIM_PAGES, 64 };
	while (next_step(&step)) {
		switch (step.op) {
		case '#':
			shim_limits(step.arg);
			shim_is_file = false;
			filled = false;
			inode.i_size = LLONG_MAX;
			inode.i_blkbits = 12;
			break;
		case '=':
			if (step.arg[0] == 0) {
				shim_is_file = true;
				inode.i_size = step.arg[1];
				inode.i_blkbits = ilog2(max(step.arg[2], 512L));
			} else if (step.arg[0] == 1) {
				for (int i = 1; i < step.n; i++)
					if (step.arg[i])
						shim_run(step.arg[i]);
			} else if (nr_extents < 64) {
				extents[nr_extents].at = step.arg[1];
				extents[nr_extents].blocks = step.arg[2];
				extents[nr_extents].sector = step.arg[3];
				extents[nr_extents++].kind = step.arg[4];
			}
			break;
		case '.':
			fflush(stdout);
			break;
		default:
			if (!filled)
				shim_fill();
			filled = true;
			shim_call(step.op == 'w', &step);
		}
	}
	return 0;
}
