/* What the generations of a group are made of, and what their functions call. Written for this command; no text of a
 * kernel. */
#define CONFIG_LRU_GEN
#define lru_gen_enabled() true
#define lru_gen_switching() false
#define lru_gen_in_fault() in_fault
#define should_walk_mmu() false
#define arch_has_hw_pte_young() false
#define get_cap(cap) false
static bool in_fault;

enum { LRU_GEN_ANON, LRU_GEN_FILE };
/* Without statistics of past generations. */
#define NR_HIST_GENS 1U
#define LRU_GEN_PGOFF 40
#define LRU_GEN_WIDTH 3
#define LRU_REFS_PGOFF 38
#define LRU_REFS_WIDTH 2
#define SHIM_GENS 4
#define SHIM_TIERS 4

/* Its name was another in 6.1. */
#define lru_gen_struct lru_gen_folio
struct lru_gen_folio {
	unsigned long max_seq, min_seq[2], timestamps[SHIM_GENS];
	unsigned long avg_refaulted[2][SHIM_TIERS], avg_total[2][SHIM_TIERS], protected[1][2][SHIM_TIERS];
	long nr_pages[SHIM_GENS][2][1];
	atomic_long_t evicted[1][2][SHIM_TIERS], refaulted[1][2][SHIM_TIERS];
	struct list_head folios[SHIM_GENS][2][1];
	bool enabled;
};
struct lru_gen_mm_state {
	unsigned long seq;
	struct list_head *head, *tail;
	int nr_walkers, wait;
};
struct lru_gen_mm_walk {
	struct lruvec *lruvec;
	unsigned long seq, max_seq;
	int batched, swappiness;
	bool can_swap, force_scan;
};
static struct lru_gen_mm_list { struct list_head fifo; spinlock_t lock; } mm_list;
enum zone_watermarks { WMARK_HIGH, WMARK_PROMO };

#define get_mm_state(l) (&(l)->mm_state)
#define get_mm_list(m) (&mm_list)
#define wait_event_killable(queue, condition) ((void)0)
#define sysctl_numa_balancing_mode 0
#define NUMA_BALANCING_MEMORY_TIERING 2
#define compact_gap(order) (2UL << (order))
#define rcu_read_lock_held() true
#define atomic_long_set(v, n) atomic_set(v, n)
#define init_waitqueue_head(queue) ((void)0)
#define MEMCG_LRU_YOUNG 0
#define MIN_SWAPPINESS 0
#define folio_mapped(f) ((f)->mapped)
#define try_to_unmap(f, flags) ((void)((f)->mapped = false))
#define folio_test_pmd_mappable(f) false
#define __update_lru_size(l, lru, zone, n) ((void)(exact[lru] += (n)))
#define abs_diff(a, b) ((a) > (b) ? (a) - (b) : (b) - (a))
#define order_base_2(n) ((n) > 1 ? ilog2((n) - 1) + 1 : 0)
#define set_mask_bits(p, mask, bits) \
	({ __typeof__(*(p)) shim_before = *(p); *(p) = (shim_before & ~(mask)) | (bits); shim_before; })
