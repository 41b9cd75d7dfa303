/* Reclaim from one control group's two lists: functions out of `mm/vmscan.c`, `mm/swap.c` and `mm/workingset.c`. One
 * node with one zone, one processor, clean folios of a file; statistics are read as last folded. Steps: see
 * `reclaim.rs`. Written for this command; no text of a kernel. */
#include "shim.h"
/* Until folios came, a page was one. */
#if SHIM_VERSION < 600
#define folio page
#define page_folio(p) (p)
#define folio_page(f) (f)
#else
struct page { int unused; };
#define page_folio(p) container_of(p, struct folio, page)
#define folio_page(f) (&(f)->page)
#endif
typedef struct { int unused; } local_lock_t;
typedef unsigned xa_mark_t, isolate_mode_t, vm_flags_t;
#include <linux/list.h>
#include <linux/vm_event_item.h>

enum zone_type { ZONE_NORMAL, __MAX_NR_ZONES };
#define MAX_NR_ZONES 1
enum lru_list {
	LRU_INACTIVE_ANON, LRU_ACTIVE_ANON, LRU_INACTIVE_FILE, LRU_ACTIVE_FILE, LRU_UNEVICTABLE, NR_LRU_LISTS
};
#define LRU_BASE 0
#define LRU_ACTIVE 1
#define LRU_FILE 2
#define for_each_evictable_lru(lru) for (lru = 0; lru <= LRU_ACTIVE_FILE; lru++)
#define is_file_lru(lru) ((lru) == LRU_INACTIVE_FILE || (lru) == LRU_ACTIVE_FILE)
#define is_active_lru(lru) ((lru) == LRU_ACTIVE_ANON || (lru) == LRU_ACTIVE_FILE)
/* Statistics; those that nobody reads share one. */
enum node_stat_item {
	NR_LRU_BASE, NR_INACTIVE_ANON = NR_LRU_BASE, NR_ACTIVE_ANON, NR_INACTIVE_FILE, NR_ACTIVE_FILE, NR_UNEVICTABLE,
	WORKINGSET_ACTIVATE_BASE, WORKINGSET_ACTIVATE_ANON = WORKINGSET_ACTIVATE_BASE, WORKINGSET_ACTIVATE_FILE,
	WORKINGSET_REFAULT_BASE, WORKINGSET_REFAULT_ANON = WORKINGSET_REFAULT_BASE, WORKINGSET_REFAULT_FILE,
	WORKINGSET_RESTORE_BASE, WORKINGSET_RESTORE_ANON = WORKINGSET_RESTORE_BASE, WORKINGSET_RESTORE_FILE,
	NR_ISOLATED_ANON, NR_ISOLATED_FILE, NR_ZONE_LRU_BASE, NR_FREE_PAGES, NR_VMSCAN_IMMEDIATE,
	NR_STATS = NR_VMSCAN_IMMEDIATE + 2
};
enum { WORKINGSET_ANON, WORKINGSET_FILE, ANON_AND_FILE };

enum { PGDAT_DIRTY, PGDAT_WRITEBACK, LRUVEC_CONGESTED, LRUVEC_CGROUP_CONGESTED, LRUVEC_NODE_CONGESTED };
enum { VMSCAN_THROTTLE_WRITEBACK, VMSCAN_THROTTLE_ISOLATED, VMSCAN_THROTTLE_CONGESTED };
enum { PAGE_KEEP, PAGE_ACTIVATE, PAGE_SUCCESS, PAGE_CLEAN };
enum ttu_flags { TTU_NONE };
typedef struct { unsigned long val; } swp_entry_t;
typedef int nodemask_t;
struct mem_cgroup_reclaim_cookie { struct pglist_data *pgdat; };
struct mem_cgroup;
struct pglist_data;
#ifdef SHIM_LRU_GEN
#include "mglru.h"
#endif
struct lruvec {
#ifdef SHIM_LRU_GEN
	struct lru_gen_folio lrugen;
	struct lru_gen_mm_state mm_state;
#endif
	struct list_head lists[NR_LRU_LISTS];
	spinlock_t lru_lock;
	unsigned long anon_cost, file_cost, flags, refaults[2];
	atomic_long_t nonresident_age;
	struct pglist_data *pgdat;
};
struct zone { struct pglist_data *zone_pgdat; };
typedef struct pglist_data {
	struct zone node_zones[1];
	spinlock_t lru_lock;
	int node_id, kswapd_failures;
	unsigned long flags;
	struct lruvec *lruvec;
} pg_data_t;
struct mem_cgroup { struct lruvec lruvec; };
struct inode { int i_lock; };
struct address_space_operations { void (*free_folio)(struct folio *), (*freepage)(struct folio *); int migratepage; };
struct address_space {
	struct inode *host;
	const struct address_space_operations *a_ops;
	int i_pages;
};
/* The flags of a folio, which are a structure by now. */
#if SHIM_VERSION < 700
typedef unsigned long folio_flags_t;
#define FLAGS(folio) ((folio)->flags)
#else
typedef struct { unsigned long f; } folio_flags_t;
#define FLAGS(folio) ((folio)->flags.f)
#endif
struct folio {
	folio_flags_t flags;
	struct list_head lru;
	struct address_space *mapping;
	pgoff_t index;
	unsigned order, mappings;
	bool exec, mapped;
	unsigned mlock_count;
	swp_entry_t swap;
	struct list_head _deferred_list;
#if SHIM_VERSION >= 600
	struct page page;
#endif
};

struct zonelist;
struct zoneref;
struct blk_plug { int unused; };

static struct { unsigned flags; struct reclaim_state *reclaim_state; } task;
static struct mem_cgroup group;
static struct pglist_data node;
static struct inode inode;
static const struct address_space_operations operations;
static struct address_space mapping = { &inode, &operations };
static long exact[NR_STATS], folded[NR_STATS];

/* Flags of a folio, by the names of folios and of pages. */
#define FLAG(Name, name, bit) \
	static inline bool folio_test_##name(const struct folio *f) { return FLAGS(f) >> bit & 1; } \
	static inline void folio_set_##name(struct folio *f) { FLAGS(f) |= 1UL << bit; } \
	static inline void folio_clear_##name(struct folio *f) { FLAGS(f) &= ~(1UL << bit); } \
	static inline void __folio_set_##name(struct folio *f) { folio_set_##name(f); } \
	static inline void __folio_clear_##name(struct folio *f) { folio_clear_##name(f); } \
	static inline bool folio_test_clear_##name(struct folio *f) { return test_and_clear_bit(bit, &FLAGS(f)); } \
	static inline bool folio_test_set_##name(struct folio *f) { return test_and_set_bit(bit, &FLAGS(f)); } \
	static inline bool Page##Name(const struct folio *f) { return folio_test_##name(f); } \
	static inline void SetPage##Name(struct folio *f) { folio_set_##name(f); } \
	static inline void ClearPage##Name(struct folio *f) { folio_clear_##name(f); } \
	static inline void __ClearPage##Name(struct folio *f) { folio_clear_##name(f); } \
	static inline bool TestClearPage##Name(struct folio *f) { return folio_test_clear_##name(f); } \
	static inline bool TestSetPage##Name(struct folio *f) { return folio_test_set_##name(f); }
FLAG(LRU, lru, 0)
FLAG(Active, active, 1)
FLAG(Referenced, referenced, 2)
FLAG(Workingset, workingset, 3)
FLAG(Locked, locked, 4)
FLAG(Unevictable, unevictable, 5)
FLAG(Mlocked, mlocked, 6)
FLAG(Writeback, writeback, 7)
FLAG(Dirty, dirty, 8)
FLAG(Reclaim, reclaim, 9)
FLAG(SwapCache, swapcache, 10)
FLAG(SwapBacked, swapbacked, 11)
FLAG(Anon, anon, 12)
FLAG(Idle, idle, 13)
#define PG_active 1
#define PG_referenced 2
#define PG_workingset 3
#define PG_reclaim 9

/* What the functions call. */
#define DEF_PRIORITY 12
#define SWAP_CLUSTER_MAX 32UL
#define SWAP_CLUSTER_MAX_SKIPPED (SWAP_CLUSTER_MAX << 10)
#define SWAPPINESS_ANON_ONLY 201
#define SWAP_COUNT_SHIFT 0
#define MTHP_STAT_SWPOUT_FALLBACK 0
#define for_each_managed_zone_pgdat(zone, pgdat, at, last) \
	for ((at) = 0, (zone) = node.node_zones; (at) < 1; (at)++)
#define NODES_SHIFT 0
#define MEM_CGROUP_ID_SHIFT 16
#define BITS_PER_XA_VALUE 63
#define xa_mk_value(v) ((void *)((unsigned long)(v) << 1 | 1))
#define xa_to_value(p) ((unsigned long)(p) >> 1)
#define noinline_for_stack
#define __percpu
#define PF_MEMALLOC 1
#define PGDEMOTE_KSWAPD 0
#define PGSCAN_SKIP 0
#define buffer_heads_over_limit false
#define total_swap_pages 0
#define current (&task)
#define prefetchw_prev_lru_page(f, base, field) ((void)0)
#define prefetchw_prev_lru_folio(f, base, field) ((void)0)
#define folio_swap_entry(f) ((f)->swap)
#define for_each_zone_zonelist_nodemask(zone, z, list, last, mask) \
	for ((void)(z), (zone) = node.node_zones; (zone); (zone) = NULL)
#define shrink_zones(list, sc) shrink_node(&node, sc)
#define int_sqrt(n) shim_sqrt(n)
#define __GFP_IO 1
#define __GFP_FS 2
#define MEMCG_LOW 0
#define ALLOCSTALL PGALLOC_NORMAL
#define ISOLATE_UNMAPPED 2
#define ISOLATE_ASYNC_MIGRATE 4
#define ISOLATE_UNEVICTABLE 8
#define TTU_SPLIT_HUGE_PMD 0
#define TTU_BATCH_FLUSH 0
#define TTU_SYNC 0
#define WB_REASON_VMSCAN 0
#define BLK_RW_ASYNC 0
#define MAX_SWAPPINESS 200
#define VM_LOCKED 1
#define VM_EXEC 2
#define this_cpu_ptr(p) (p)
#define per_cpu(v, cpu) (v)
#define local_lock(l) ((void)(l))
#define local_unlock(l) ((void)(l))
#define local_lock_irqsave(l, flags) ((void)((flags) = 0))
#define local_unlock_irqrestore(l, flags) ((void)(flags))
#define xa_lock_irq(x) ((void)(x))
#define xa_unlock_irq(x) ((void)(x))
#define smp_processor_id() 0

#define folio_order(f) ((f)->order)
#define folio_nr_pages(f) (1L << (f)->order)
#define compound_nr(f) folio_nr_pages(f)
#define thp_nr_pages(f) folio_nr_pages(f)
#define folio_test_large(f) ((f)->order > 0)
#define PageCompound(f) folio_test_large(f)
#define PageTransHuge(f) folio_test_large(f)
#define compound_head(f) (f)
#define folio_trylock(f) (!folio_test_set_locked(f))
#define trylock_page(f) folio_trylock(f)
#define folio_unlock(f) folio_clear_locked(f)
#define unlock_page(f) folio_unlock(f)
#define folio_get(f) ((void)(f))
#define folio_put(f) ((void)(f))
#define get_page(f) ((void)(f))
#define put_page(f) ((void)(f))
#define folio_try_get(f) ((void)(f), true)
#define get_page_unless_zero(f) ((void)(f), true)
#define folio_put_testzero(f) ((void)(f), false)
#define put_page_testzero(f) ((void)(f), false)
#define folio_ref_freeze(f, n) ((n) > 1)
#define page_ref_freeze(f, n) ((n) > 1)
#define folio_ref_unfreeze(f, n) ((void)(n))
#define page_ref_unfreeze(f, n) ((void)(n))
#define folio_ref_count(f) 0
#define page_count(f) 0
#ifndef SHIM_LRU_GEN
#define folio_mapped(f) false
#endif
#define page_mapped(f) false
#define folio_evictable(f) (!folio_test_unevictable(f))
#define page_evictable(f) folio_evictable(f)
#define folio_mapping(f) ((f)->mapping)
#define page_mapping(f) ((f)->mapping)
#define folio_zonenum(f) 0
#define page_zonenum(f) 0
#define folio_pgdat(f) (&node)
#define page_pgdat(f) (&node)
#define folio_memcg(f) (&group)
#define lru_to_folio(l) list_entry((l)->prev, struct folio, lru)
#define lru_to_page(l) lru_to_folio(l)
#define lruvec_pgdat(l) (&node)
#define lruvec_memcg(l) (&group)
#define parent_lruvec(l) ((struct lruvec *)NULL)
#define mem_cgroup_lruvec(m, n) (&group.lruvec)
#define mem_cgroup_page_lruvec(f, n) (&group.lruvec)
#define folio_lruvec(f) (&group.lruvec)
#if SHIM_VERSION < 612
#define folio_lruvec_relock_irqsave(f, l, flags) (*(flags) = 0, &group.lruvec)
#else
#define folio_lruvec_relock_irqsave(f, l, flags) (*(flags) = 0, *(l) = &group.lruvec)
#endif
#define unlock_page_lruvec_irqrestore(l, flags) ((void)(flags))
#define mem_cgroup_disabled() false
#define mem_cgroup_id(m) 1
#define mem_cgroup_from_id(id) (&group)
#define mem_cgroup_iter(root, prev, cookie) ((prev) ? NULL : (root))
#define mem_cgroup_iter_break(root, prev) ((void)0)
#define mem_cgroup_get_zone_lru_size(l, lru, zone) ((unsigned long)exact[lru])
#define mem_cgroup_get_nr_swap_pages(m) 0L
#define NODE_DATA(n) (&node)
#define node_page_state(n, item) ((unsigned long)exact[item])
#define lruvec_page_state(l, item) ((unsigned long)folded[item])
#define mod_lruvec_state(l, item, n) ((void)(exact[item] += (n)))
#define __mod_lruvec_state(l, item, n) mod_lruvec_state(l, item, n)
#define inc_lruvec_state(l, item) mod_lruvec_state(l, item, 1)
#define __mod_node_page_state(n, item, by) ((void)0)
#define update_lru_size(l, lru, zone, n) ((void)(exact[lru] += (n)))
static unsigned long shim_sqrt(unsigned long n)
{
	unsigned long root = 0;

	while ((root + 1) * (root + 1) <= n)
		root++;
	return root;
}
/* What happens to nobody here, or tells of nothing. */
#define NO(name) static long name() { return 0; }
NO(DIV64_U64_ROUND_UP) NO(VM_WARN_ON_ONCE_FOLIO) NO(__count_memcg_events) NO(__count_vm_events)
NO(__count_zid_vm_events) NO(__delete_from_swap_cache) NO(__memcg1_swapout) NO(__swap_cache_del_folio) NO(add_to_swap)
NO(blk_finish_plug) NO(blk_start_plug) NO(can_demote) NO(can_reclaim_anon_pages) NO(can_split_folio)
NO(can_split_huge_page) NO(clear_page_idle) NO(compound_mapcount) NO(cond_resched_tasks_rcu_qs) NO(congestion_wait)
NO(count_memcg_events) NO(count_memcg_folio_events) NO(count_memcg_page_event) NO(count_mthp_stat) NO(count_vm_event)
NO(count_vm_events) NO(current_is_kswapd) NO(current_may_throttle) NO(dax_mapping) NO(delayacct_freepages_end)
NO(delayacct_freepages_start) NO(demote_folio_list) NO(destroy_compound_page) NO(destroy_large_folio)
NO(fatal_signal_pending) NO(filemap_release_folio) NO(flush_reclaim_state) NO(folio_alloc_swap)
NO(folio_contain_hwpoisoned_page) NO(folio_entire_mapcount) NO(folio_expected_ref_count) NO(folio_free_swap)
NO(folio_mark_dirty) NO(folio_maybe_dma_pinned) NO(folio_needs_release) NO(folio_pfn) NO(folio_putback_lru)
NO(folio_test_dropbehind) NO(folio_test_lazyfree) NO(folio_test_partially_mapped) NO(folio_unqueue_deferred_split)
NO(folio_wait_writeback) NO(free_unref_page_list) NO(handle_reclaim_writeback) NO(high_wmark_pages)
NO(inc_node_page_state) NO(inode_add_lru) NO(inode_write_congested) NO(kswapd_try_clear_hopeless) NO(lru_cache_disabled)
NO(lru_gen_shrink_node) NO(lru_note_cost) NO(lru_note_cost_folio) NO(lru_note_cost_page) NO(lru_note_cost_refault)
NO(lru_note_cost_unlock_irq) NO(lruvec_lock_irq) NO(lruvec_unlock_irq) NO(lruvec_unlock_irqrestore) NO(mapping_exiting)
NO(mapping_shrinkable) NO(mapping_writeback_may_deadlock_on_reclaim) NO(may_enter_fs) NO(mem_cgroup_below_low)
NO(mem_cgroup_below_min) NO(mem_cgroup_calculate_protection) NO(mem_cgroup_flush_stats)
NO(mem_cgroup_flush_stats_delayed) NO(mem_cgroup_flush_stats_ratelimited) NO(mem_cgroup_put) NO(mem_cgroup_size)
NO(mem_cgroup_swap_full) NO(mem_cgroup_swapout) NO(mem_cgroup_swappiness) NO(mem_cgroup_uncharge_folios)
NO(mem_cgroup_uncharge_list) NO(memcg_memory_event) NO(mlock_drain_local) NO(mlock_page_drain_local)
NO(mod_node_page_state) NO(msleep) NO(node_stat_mod_folio) NO(page_has_private) NO(page_is_idle)
NO(page_maybe_dma_pinned) NO(page_private) NO(pageout) NO(put_swap_folio) NO(put_swap_page) NO(putback_lru_page)
NO(reclaim_throttle) NO(reclaimer_offset) NO(root_reclaim) NO(sc_swappiness) NO(should_continue_reclaim) NO(shrink_slab)
NO(split_folio_to_list) NO(split_huge_page_to_list) NO(sum_zone_node_page_state) NO(swap_cluster_get_and_lock_irq)
NO(swap_cluster_unlock_irq) NO(swap_write_unplug) NO(thp_migration_supported) NO(too_many_isolated)
NO(trace_mm_lru_activate) NO(trace_mm_lru_insertion) NO(trace_mm_vmscan_lru_isolate)
NO(trace_mm_vmscan_lru_shrink_active) NO(trace_mm_vmscan_lru_shrink_inactive) NO(try_to_free_swap)
NO(try_to_release_page) NO(try_to_unmap_flush) NO(try_to_unmap_flush_dirty) NO(unmap_poisoned_folio) NO(vmpressure)
NO(vmpressure_prio) NO(wait_iff_congested) NO(wait_on_page_writeback) NO(wakeup_flusher_threads)
#ifndef SHIM_LRU_GEN
NO(folio_inc_refs) NO(lru_gen_add_folio) NO(lru_gen_del_folio) NO(lru_gen_enabled) NO(lru_gen_eviction)
NO(lru_gen_in_fault) NO(lru_gen_refault) NO(lru_gen_shrink_lruvec) NO(lru_gen_switching) NO(lru_gen_test_recent)
#else
NO(clear_mm_walk) NO(iterate_mm_list) NO(low_wmark_pages) NO(lru_gen_rotate_memcg) NO(reset_batch_size)
NO(reset_mm_stats) NO(set_mm_walk) NO(signal_pending) NO(wake_up_all) NO(walk_mm) NO(wmark_pages) NO(wq_has_sleeper)
NO(zone_page_state) NO(zone_watermark_ok)
#endif
#define mem_cgroup_online(m) true
#define mem_cgroup_private_id(m) 1
#define mem_cgroup_from_private_id(id) (&group)
#define get_mem_cgroup_from_folio(f) (&group)
#define folio_memcg_charged(f) true
#define folio_lruvec_relock_irq(f, l) (&group.lruvec)
#define mem_cgroup_tryget(m) true
#define managed_zone(z) true
#define folio_matches_lruvec(f, l) true
#define folio_memcg_rcu(f) (&group)
#define page_memcg_rcu(f) (&group)
#define page_memcg(f) (&group)
#define mem_cgroup_protection(root, m, min, low, ...) ((void)(*(min) = *(low) = 0))
#define folio_check_dirty_writeback(f, dirty, writeback) ((void)(*(dirty) = *(writeback) = false))
#define page_check_dirty_writeback(f, dirty, writeback) ((void)(*(dirty) = *(writeback) = false))
#define atomic_long_read(v) atomic_read(v)
#define atomic_long_add(n, v) atomic_add(n, v)
#define xa_lock_irqsave(x, flags) ((void)((flags) = 0))
#define xa_unlock_irqrestore(x, flags) ((void)(flags))
/* Until 6.8 the caller empties a batch that it gives away. */
#define release_pages(pages, nr) ((void)0)
#if SHIM_VERSION < 612
#define folios_put(folios, nr) ((void)0)
#else
#define folios_put(batch) folio_batch_reinit(batch)
#endif
#define free_unref_folios(batch) folio_batch_reinit(batch)
/* Bits in page tables, which this clears. */
static int folio_referenced(struct folio *f, int locked, struct mem_cgroup *memcg, unsigned long *vm_flags)
{
	int mappings = f->mappings;

	*vm_flags = mappings && f->exec ? VM_EXEC : 0;
	f->mappings = 0;
	return mappings;
}
#define page_referenced(f, locked, memcg, vm_flags) folio_referenced(f, locked, memcg, vm_flags)
static void __filemap_remove_folio(struct folio *f, void *shadow);
#define __delete_from_page_cache(f, shadow) __filemap_remove_folio(f, shadow)

#define static_assert(x)
#if SHIM_VERSION < 700
#include <linux/pagevec.h>
#else
#include <linux/folio_batch.h>
#endif
/* The processor's batches, by the names of all kernels. */
#if SHIM_VERSION < 600
#define folio_batch pagevec
#endif
static struct cpu_fbatches {
	local_lock_t lock, lock_irq;
	struct folio_batch pvec, fbatch, lru_add, lru_deactivate_file, lru_deactivate, lru_lazyfree, activate_page, activate,
		lru_activate, lru_move_tail;
} lru_pvecs, lru_rotate, cpu_fbatches;
typedef void (*move_fn_t)(struct lruvec *, struct folio *);
#if SHIM_VERSION < 700
static unsigned bucket_order;
#else
static unsigned bucket_order[ANON_AND_FILE];
#define PGSCAN_KSWAPD NR_VMSCAN_IMMEDIATE
#define PGSCAN_ANON NR_VMSCAN_IMMEDIATE
#define PGSTEAL_KSWAPD NR_VMSCAN_IMMEDIATE
#define PGSTEAL_ANON NR_VMSCAN_IMMEDIATE
#define PGREFILL NR_VMSCAN_IMMEDIATE
#endif

#include "cut.c"
#ifdef SHIM_LRU_GEN
static struct reclaim_state reclaim_state;
static void gen_begin(void), gen_answer(void), gen_show(void), age(void);
static void gen_touched(const struct folio *f), promote(struct folio *f);
#endif

/* The file: a folio at each page, or what the last one left. */
#define MOST 65536
static struct folio *at[MOST];
static void *shadows[MOST];
static struct folio *gone[MOST];
static long nr_pages, nr_gone;

static void __filemap_remove_folio(struct folio *f, void *shadow)
{
	int id;
	struct pglist_data *pgdat;
	unsigned long age;
	bool workingset;

	unpack_shadow(shadow, &id, &pgdat, &age, &workingset);
	printf(" %lu@%lu%s", f->index, age, workingset ? "w" : "");
	at[f->index] = NULL;
	shadows[f->index] = shadow;
	gone[nr_gone++] = f;
}

static void add(pgoff_t index, unsigned order)
{
	struct folio *f = calloc(1, sizeof(*f));

	f->index = index;
	f->order = order;
	f->mapping = &mapping;
	at[index] = f;
	folio_set_locked(f);
	if (shadows[index])
		workingset_refault(f, shadows[index]);
	folio_unlock(f);
	shadows[index] = NULL;
#if SHIM_VERSION < 600
	lru_cache_add(f);
#else
	folio_add_lru(f);
#endif
}

static void touch(const struct step *step, struct folio *f)
{
	switch (step->op) {
	case 'm':
#if SHIM_VERSION < 600
		mark_page_accessed(f);
#else
		folio_mark_accessed(f);
#endif
		break;
#ifdef SHIM_LRU_GEN
	case 'p':
		promote(f);
		break;
#endif
	case 'r':
		f->mappings = step->arg[2];
		f->mapped = f->mappings > 0;
		f->exec = step->arg[3];
		break;
	case 'b':
		FLAGS(f) ^= 1UL << 4;
		break;
	case 'c':
		/* As the advice has it for a page that no page table used. */
		folio_clear_referenced(f);
#if SHIM_VERSION < 612
		deactivate_page(folio_page(f));
#else
		folio_deactivate(f);
#endif
		break;
	}
}

static long reclaim(long wanted)
{
	struct scan_control sc = {
		.nr_to_reclaim = max(wanted, (long)SWAP_CLUSTER_MAX), .priority = DEF_PRIORITY, .target_mem_cgroup = &group,
		.may_writepage = 1, .may_unmap = 1, .may_swap = 1,
	};

	lru_add_drain();
	do_try_to_free_pages(NULL, &sc);
	while (nr_gone > 0)
		free(gone[--nr_gone]);
	return sc.nr_reclaimed;
}

static void begin(long pages)
{
	memset(&group, 0, sizeof(group));
	memset(&cpu_fbatches, 0, sizeof(cpu_fbatches));
	memset(&lru_pvecs, 0, sizeof(lru_pvecs));
	memset(exact, 0, sizeof(exact));
	memset(folded, 0, sizeof(folded));
	for (int lru = 0; lru < NR_LRU_LISTS; lru++)
		INIT_LIST_HEAD(&group.lruvec.lists[lru]);
	for (long index = 0; index < nr_pages; index++) {
		free(at[index]);
		at[index] = shadows[index] = NULL;
	}
	node.node_zones[0].zone_pgdat = &node;
#ifdef SHIM_LRU_GEN
	gen_begin();
#endif
	nr_pages = min(pages, (long)MOST);
}

int main(void)
{
	struct step step;

	while (next_step(&step)) {
		if (step.op == '.') {
			fflush(stdout);
			continue;
		}
		if (step.op == '#') {
			begin(step.arg[0]);
			continue;
		}
		putchar(step.op);
#ifdef SHIM_LRU_GEN
		in_fault = step.op == 'A';
		if (step.op == 'g')
			age();
		if (step.op == 's')
			gen_show();
#endif
		if (step.op == 'q')
			printf(" %ld", reclaim(step.arg[0]));
		else if (step.op == 'f')
			memcpy(folded, exact, sizeof(exact));
		else
			for (long index = step.arg[0]; index < min(step.arg[0] + step.arg[1], nr_pages); index++) {
				if (at[index])
					touch(&step, at[index]);
				else if (step.op == 'a' || step.op == 'A')
					add(index, step.arg[2]);
			}
#ifdef SHIM_LRU_GEN
		if (step.n > 1 && step.arg[0] < nr_pages && at[step.arg[0]])
			gen_touched(at[step.arg[0]]);
		gen_answer();
#else
		printf(" =%ld,%ld\n", exact[NR_ACTIVE_FILE], exact[NR_INACTIVE_FILE]);
#endif
	}
	return 0;
}
