/* Read-ahead of one open file on a page cache of the kernel's own making: `mm/readahead.c` whole, the looks for holes of
 * `mm/filemap.c`, and `lib/xarray.c`. Pages are valid as soon as they are read. Written for this command; no text of a
 * kernel. */
#include "shim.h"
#define CONFIG_XARRAY_MULTI 1
#define _LINUX_RADIX_TREE_H
#define __GFP_BITS_SHIFT 24
#define CONFIG_BASE_SMALL 0
#define __GFP_NOWARN 0
#define __GFP_ACCOUNT 0
#define GFP_ATOMIC 0
#define GFP_NOFS 0
#define ___GFP_DIRECT_RECLAIM 0
#define gfpflags_allow_blocking(gfp) 1
#define might_alloc(gfp) ((void)0)
#define memalloc_nofs_save() 0
#define memalloc_nofs_restore(flags) ((void)(flags))
#define rcu_dereference_check(p, c) (p)
#define rcu_dereference_protected(p, c) (p)
#define lockdep_is_held(l) 1
#define call_rcu(head, function) (function)(head)
#define kmem_cache_alloc(cache, gfp) calloc(1, sizeof(struct xa_node))
#define kmem_cache_alloc_lru(cache, lru, gfp) calloc(1, sizeof(struct xa_node))
#define kmem_cache_free(cache, p) free(p)
#define radix_tree_node_rcu_free shim_node_free
#define __SPIN_LOCK_UNLOCKED(x) { 0 }
#define spin_lock_bh(l) ((void)(l))
#define spin_unlock_bh(l) ((void)(l))
#define spin_lock_nested(l, n) ((void)(l))
#define spin_lock_irqsave_nested(l, f, n) ((void)(l))
#define DECLARE_BITMAP(name, bits) unsigned long name[DIV_ROUND_UP(bits, 64)]
#define BITS_TO_LONGS(bits) DIV_ROUND_UP(bits, 64)
#define bitmap_empty(map, bits) (*(map) == 0)
#define bitmap_fill(map, bits) (*(map) = ~0UL)
#define bitmap_clear(map, from, bits) (*(map) &= ~(((1UL << (bits)) - 1) << (from)))
#define MAX_ERRNO 4095
#define IS_ERR_VALUE(x) IS_ERR(x)
static inline unsigned long find_next_bit(const unsigned long *map, unsigned long size, unsigned long from)
{
	while (from < size && !test_bit(from, map))
		from++;
	return from;
}
static inline unsigned long find_next_zero_bit(const unsigned long *map, unsigned long size, unsigned long from)
{
	while (from < size && test_bit(from, map))
		from++;
	return from;
}
#define BITS_PER_XA_VALUE 63
struct list_lru;
struct kmem_cache;
static struct kmem_cache *radix_tree_node_cachep;
static void shim_node_free(struct rcu_head *head);
#include <linux/list.h>
#include <linux/xarray.h>
static void shim_node_free(struct rcu_head *head) { free(container_of(head, struct xa_node, rcu_head)); }
#include "xarray.c"

/* Pages and folios are one thing here. */
#define folio page
#define FMODE_READ 1
#define FMODE_RANDOM 2
#define POSIX_FADV_WILLNEED 3
struct backing_dev_info { unsigned long ra_pages, io_pages; };
struct inode { long long i_size; unsigned i_mode; };
struct address_space;
struct readahead_control;
struct file;
struct page;
struct address_space_operations {
	void (*readahead)(struct readahead_control *);
	int (*read_folio)(struct file *, struct page *);
	int (*readpage)(struct file *, struct page *);
	int (*readpages)(struct file *, struct address_space *, struct list_head *, unsigned);
};
struct address_space {
	struct inode *host;
	struct xarray i_pages;
	const struct address_space_operations *a_ops;
	int invalidate_lock;
};
struct page {
	struct list_head lru;
	struct address_space *mapping;
	pgoff_t index;
	unsigned order;
	bool marked, writeback, valid;
};
struct file_ra_state {
	pgoff_t start;
	unsigned size, async_size, ra_pages;
	unsigned short order, mmap_miss;
	long long prev_pos;
};
struct file {
	unsigned f_mode;
	struct file_ra_state f_ra;
	struct address_space *f_mapping;
};
struct readahead_control {
	struct file *file;
	struct address_space *mapping;
	struct file_ra_state *ra;
	pgoff_t _index;
	unsigned _nr_pages, _batch_count;
	bool _workingset, dropbehind;
	unsigned long _pflags;
};
struct blk_plug { int unused; };
struct fd { struct file *file; };

static struct backing_dev_info device;
static struct inode inode;
static struct address_space mapping;
static struct file file;
static unsigned max_order;
static bool congested;

#define blk_start_plug(p) ((void)0)
#define blk_finish_plug(p) ((void)0)
#define psi_memstall_enter(p) ((void)0)
#define psi_memstall_leave(p) ((void)0)
#define blk_cgroup_congested() false
#define inode_read_congested(i) congested
#define inode_to_bdi(i) (&device)
#define i_size_read(i) ((i)->i_size)
#define readahead_gfp_mask(m) 0
#define filemap_invalidate_lock_shared(m) ((void)0)
#define filemap_invalidate_unlock_shared(m) ((void)0)
#define mapping_large_folio_support(m) (max_order > 0)
#define mapping_max_folio_order(m) max_order
#define mapping_min_folio_order(m) 0U
#define mapping_min_folio_nrpages(m) 1UL
#define mapping_align_index(m, index) (index)
#define MAX_PAGECACHE_ORDER 9
#define folio_order(f) ((f)->order)
#define folio_nr_pages(f) (1UL << (f)->order)
#define folio_pos(f) ((f)->index << PAGE_SHIFT)
#define folio_get(f) ((void)(f))
#define folio_lock(f) ((void)(f))
#define folio_unlock(f) ((void)(f))
#define unlock_page(f) ((void)(f))
#define trylock_page(f) true
#define page_has_private(f) false
#define do_invalidatepage(...) ((void)0)
#define put_page(f) ((void)(f))
#define put_pages_list(l) ((void)(l))
#define lru_to_page(l) list_entry((l)->prev, struct page, lru)
#define task_io_account_read(n) ((void)0)
#define folio_test_workingset(f) false
#define PageWorkingset(f) false
#define __folio_set_dropbehind(f) ((void)(f))
#define folio_set_readahead(f) ((void)((f)->marked = true))
#define folio_clear_readahead(f) ((void)((f)->marked = false))
#define SetPageReadahead(f) folio_set_readahead(f)
#define ClearPageReadahead(f) folio_clear_readahead(f)
#define folio_test_writeback(f) ((f)->writeback)
#define PageWriteback(f) ((f)->writeback)
#define folio_put(f) free(f)
#define readahead_index(r) ((r)->_index)
#define readahead_count(r) ((r)->_nr_pages)
#define readahead_pos(r) ((long long)(r)->_index << PAGE_SHIFT)
#define trace_page_cache_ra_unbounded(...) ((void)0)
#define trace_page_cache_ra_order(...) ((void)0)
#define trace_page_cache_sync_ra(...) ((void)0)
#define trace_page_cache_async_ra(...) ((void)0)
/* System calls are not compiled: their heads become functions that nobody calls. */
#define CLASS(kind, name) struct fd name = fdget
#define fd_empty(f) true
#define fd_file(f) ((f).file)
#define fdget(n) ((struct fd) { NULL })
#define fdput(f) ((void)0)
#define file_inode(f) (&inode)
#define S_ISREG(m) true
#define S_ISBLK(m) false
#define IS_ANON_FILE(i) false
#define IS_ALIGNED(x, a) (((x) & ((a) - 1)) == 0)
#define vfs_fadvise(...) 0
#define SYSCALL_DEFINE3(name, t1, a1, t2, a2, t3, a3) static long shim_call_##name(t1 a1, t2 a2, t3 a3)

static struct page *shim_page(unsigned order)
{
	struct page *page = calloc(1, sizeof(*page));

	page->order = order;
	return page;
}
#define __page_cache_alloc(gfp) shim_page(0)
#define filemap_alloc_folio(gfp, order, ...) shim_page(order)

static int filemap_add_folio(struct address_space *to, struct page *page, pgoff_t index, gfp_t gfp)
{
	XA_STATE_ORDER(xas, &to->i_pages, index, page->order);

	for (pgoff_t at = index; at < index + (1UL << page->order); at++)
		if (xa_load(&to->i_pages, at))
			return -EEXIST;
	page->index = index;
	page->mapping = to;
	do {
		xas_lock_irq(&xas);
		xas_store(&xas, page);
		xas_unlock_irq(&xas);
	} while (xas_nomem(&xas, gfp));
	BUG_ON(xas_error(&xas));
	return 0;
}
#define add_to_page_cache_lru(page, to, index, gfp) filemap_add_folio(to, page, index, gfp)

static void filemap_remove_folio(struct page *page)
{
	XA_STATE_ORDER(xas, &page->mapping->i_pages, page->index, page->order);

	xas_lock_irq(&xas);
	xas_store(&xas, NULL);
	xas_unlock_irq(&xas);
}

/* The file system: everything is read at once. */
static void shim_readahead(struct readahead_control *ractl)
{
	printf(" %lu+%u", ractl->_index, ractl->_nr_pages);
	for (pgoff_t at = ractl->_index; at < ractl->_index + ractl->_nr_pages;) {
		struct page *page = xa_load(&ractl->mapping->i_pages, at);

		page->valid = true;
		if (page->marked)
			printf("!%lu", page->index);
		if (page->order)
			printf("/%u", page->order);
		at += 1UL << page->order;
	}
	ractl->_index += ractl->_nr_pages;
	ractl->_nr_pages = 0;
}
static struct page *readahead_folio(struct readahead_control *ractl) { return NULL; }
static struct page *readahead_page(struct readahead_control *ractl) { return NULL; }

static const struct address_space_operations operations = { .readahead = shim_readahead };
#include "cut.c"
#include "readahead.c"

static struct page *present(pgoff_t index) { return xa_load(&mapping.i_pages, index); }

static void miss(pgoff_t index, unsigned long wanted)
{
	struct readahead_control ractl = { &file, &mapping, &file.f_ra, index };

	printf(" m");
#if SHIM_VERSION < 515
	page_cache_sync_ra(&ractl, &file.f_ra, wanted);
#else
	page_cache_sync_ra(&ractl, wanted);
#endif
}

static void marker(struct page *page, pgoff_t index, unsigned long wanted)
{
	struct readahead_control ractl = { &file, &mapping, &file.f_ra, index };

	printf(" a");
#if SHIM_VERSION < 515
	page_cache_async_ra(&ractl, &file.f_ra, page, wanted);
#else
	page_cache_async_ra(&ractl, page, wanted);
#endif
}

/* A plain loop over the pages of a read. */
static void read_range(pgoff_t first, pgoff_t end)
{
	for (pgoff_t at = first; at < end;) {
		struct page *page = present(at);

		if (!page) {
			miss(at, end - at);
			page = present(at);
		}
		if (!page) {
			page = shim_page(0);
			filemap_add_folio(&mapping, page, at, 0);
		}
		if (page->marked)
			marker(page, page->index, end - page->index);
		at = page->index + (1UL << page->order);
	}
}

static void forced(pgoff_t index, unsigned long wanted)
{
	struct readahead_control ractl = { &file, &mapping, &file.f_ra, index };

	printf(" f");
#if SHIM_VERSION < 515
	force_page_cache_ra(&ractl, &file.f_ra, wanted);
#else
	force_page_cache_ra(&ractl, wanted);
#endif
}

static void evict(pgoff_t first, pgoff_t end)
{
	struct page *page;
	unsigned long at = first;

	while ((page = xa_find(&mapping.i_pages, &at, end - 1, XA_PRESENT))) {
		at = page->index + (1UL << page->order);
		if (page->index >= first && at <= end && !page->writeback) {
			filemap_remove_folio(page);
			free(page);
		}
		if (at >= end)
			break;
	}
}

int main(void)
{
	struct step step;

	while (next_step(&step)) {
		struct page *page;

		if (step.op == '.') {
			fflush(stdout);
			continue;
		}
		if (step.op == '#') {
			unsigned long at = 0;
			while (mapping.a_ops && (page = xa_find(&mapping.i_pages, &at, ULONG_MAX, XA_PRESENT))) {
				filemap_remove_folio(page);
				free(page);
			}
			inode.i_size = step.arg[0];
			device = (struct backing_dev_info) { step.arg[1], step.arg[2] };
			max_order = step.arg[3];
			congested = false;
			xa_init_flags(&mapping.i_pages, XA_FLAGS_LOCK_IRQ | XA_FLAGS_ACCOUNT);
			mapping.host = &inode;
			mapping.a_ops = &operations;
			file = (struct file) { FMODE_READ, .f_mapping = &mapping };
			file_ra_state_init(&file.f_ra, &mapping);
			continue;
		}
		putchar(step.op);
		switch (step.op) {
		case 'r':
			read_range(step.arg[0], step.arg[0] + step.arg[1]);
			/* The loop of the call stores where it ended, older ones as the last page and a place in it. */
			file.f_ra.prev_pos = (step.arg[0] + step.arg[1]) * PAGE_SIZE - step.arg[2];
			if (SHIM_VERSION < 515 && step.arg[2] == 0)
				file.f_ra.prev_pos -= PAGE_SIZE;
			break;
		case 'm':
			if (!present(step.arg[0]))
				miss(step.arg[0], step.arg[1]);
			break;
		case 'a':
			page = present(step.arg[0]);
			if (page && page->marked)
				marker(page, page->index, step.arg[1]);
			break;
		case 'e':
			evict(step.arg[0], step.arg[0] + step.arg[1]);
			break;
		case 'w':
			page = present(step.arg[0]);
			if (page)
				page->writeback = !page->writeback;
			break;
		case 'g':
			congested = step.arg[0];
			break;
		case 'f':
			file.f_mode = FMODE_READ | (step.arg[0] == 1 ? FMODE_RANDOM : 0);
			if (step.arg[0] != 1)
				file.f_ra.ra_pages = device.ra_pages * (step.arg[0] == 2 ? 2 : 1);
			break;
		case 'n':
			forced(step.arg[0], step.arg[1]);
			break;
		}
		printf(" =%ld,%d,%d,%d,%lld", (long)file.f_ra.start, file.f_ra.size, file.f_ra.async_size, file.f_ra.ra_pages,
			file.f_ra.prev_pos);
		if (SHIM_VERSION >= 618)
			printf(",%u", file.f_ra.order);
		putchar('\n');
	}
	return 0;
}
