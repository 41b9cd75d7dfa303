/* Reclaim by generations (CONFIG_LRU_GEN): what the shim of the two lists needs for them. Page tables are not walked;
 * steps that a walk would take are the driver's. Steps: see `mglru.rs`. Written for this command; no text of a
 * kernel. */
#define SHIM_LRU_GEN
#include "reclaim.c"

/* Flags that reads leave: referenced, workingset, active, on the LRU. */
static unsigned marks(const struct folio *f)
{
	return folio_test_referenced(f) | folio_test_workingset(f) << 1 | folio_test_active(f) << 2 | folio_test_lru(f) << 3;
}

static unsigned refs(const struct folio *f)
{
	return (FLAGS(f) & LRU_REFS_MASK) >> LRU_REFS_PGOFF;
}

static struct folio *of(struct list_head *at)
{
	return list_entry(at, struct folio, lru);
}

static void gen_begin(void)
{
	task.reclaim_state = &reclaim_state;
	lru_gen_init_lruvec(&group.lruvec);
}

/* What a walk over page tables does to a page that was used. */
static void promote(struct folio *f)
{
	struct lru_gen_folio *gens = &group.lruvec.lrugen;
	int to = gens->max_seq % MAX_NR_GENS, from = folio_update_gen(f, to);

	if (from >= 0 && from != to) {
		gens->nr_pages[from][LRU_GEN_FILE][0] -= folio_nr_pages(f);
		gens->nr_pages[to][LRU_GEN_FILE][0] += folio_nr_pages(f);
	}
}

/* A new generation on demand, as the file in debugfs makes one. */
static void age(void)
{
	struct lru_gen_folio *gens = &group.lruvec.lrugen;

	group.lruvec.mm_state.seq++;
#if SHIM_VERSION < 612
	inc_max_seq(&group.lruvec, false, true);
#elif SHIM_VERSION < 700
	inc_max_seq(&group.lruvec, gens->max_seq, false, true);
#else
	inc_max_seq(&group.lruvec, gens->max_seq, 0);
#endif
}

static u64 digest;
static void note(u64 value)
{
	digest = (digest ^ value) * 0x100000001b3;
}

/* The generations, oldest first, with their sizes; then a digest of the order of all folios, their marks, and the
 * counters of the tiers. */
static void gen_answer(void)
{
	struct lru_gen_folio *gens = &group.lruvec.lrugen;
	unsigned long seq = gens->min_seq[LRU_GEN_FILE];

	digest = 0xcbf29ce484222325;
	printf(" =%lu", gens->max_seq);
	for (; seq <= gens->max_seq; seq++) {
		int index = seq % MAX_NR_GENS;
		struct list_head *head = &gens->folios[index][LRU_GEN_FILE][0];

		printf(",%ld", gens->nr_pages[index][LRU_GEN_FILE][0]);
		note(~seq);
		for (struct list_head *at = head->prev; at != head; at = at->prev) {
			note(of(at)->index);
			note(folio_lru_gen(of(at)));
			note(refs(of(at)) << 4 | marks(of(at)));
		}
	}
	for (int tier = 0; tier < MAX_NR_TIERS; tier++) {
		note(gens->avg_refaulted[LRU_GEN_FILE][tier]);
		note(gens->avg_total[LRU_GEN_FILE][tier]);
		note(atomic_read(&gens->refaulted[0][LRU_GEN_FILE][tier]));
		note(atomic_read(&gens->evicted[0][LRU_GEN_FILE][tier]));
#if SHIM_VERSION < 700
		note(tier ? gens->protected[0][LRU_GEN_FILE][tier - 1] : 0);
#else
		note(gens->protected[0][LRU_GEN_FILE][tier]);
#endif
	}
	printf(" #%08lx\n", digest >> 32);
}

/* All lists, for the eye. */
static void gen_show(void)
{
	struct lru_gen_folio *gens = &group.lruvec.lrugen;

	for (unsigned long seq = gens->min_seq[LRU_GEN_FILE]; seq <= gens->max_seq; seq++) {
		struct list_head *head = &gens->folios[seq % MAX_NR_GENS][LRU_GEN_FILE][0];

		printf(" |%lu", seq);
		for (struct list_head *at = head->prev; at != head; at = at->prev)
			printf(" %lu:%d.%u.%x", of(at)->index, folio_lru_gen(of(at)), refs(of(at)), marks(of(at)));
	}
}

/* A folio that was touched: its generation, reads beyond the mark, marks. */
static void gen_touched(const struct folio *f)
{
	printf(" %lu:%d.%u.%x", f->index, folio_lru_gen((struct folio *)f), refs(f), marks(f));
}
