/* What `lib/sbitmap.c` stands on: one processor, wait queues whose entries are called in their order, no chance. Written
 * for this command; no text of a kernel. */
#include "shim.h"
#define __percpu
#define alloc_percpu_gfp(type, gfp) ((type *)calloc(1, sizeof(type)))
#define alloc_percpu(type) alloc_percpu_gfp(type, 0)
#define free_percpu(p) free(p)
#define per_cpu_ptr(p, cpu) (p)
#define get_cpu_ptr(p) (p)
#define put_cpu_ptr(p) ((void)(p))
#define raw_cpu_ptr(p) (p)
#define this_cpu_ptr(p) (p)
#define this_cpu_read(x) (x)
#define this_cpu_write(x, v) ((x) = (v))
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < 1; (cpu)++)
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu)
#define raw_smp_processor_id() 0
#define get_random_u32_below(n) 0
#define prandom_u32_max(n) 0
#define prandom_u32() 0U
#define guard(kind) shim_guard
#define shim_guard(lock) ((void)(lock))
#define raw_spin_lock_init(l) ((void)(l))
#define atomic_long_andnot(mask, v) ((v)->counter &= ~(mask))
#define atomic_xchg(v, n) xchg(&(v)->counter, n)
#define clamp_val(v, lo, hi) clamp_t(__typeof__(v), v, lo, hi)
#define seq_printf(...) ((void)0)
#define seq_puts(...) ((void)0)
#define seq_putc(...) ((void)0)
#define bitmap_weight(map, bits) ((unsigned)__builtin_popcountl((bits) < 64 ? *(map) & ((1UL << (bits)) - 1) : *(map)))
#define find_first_zero_bit(map, size) find_next_zero_bit(map, size, 0)
#define TASK_NORMAL 3
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
struct seq_file;
#include <linux/list.h>
typedef struct wait_queue_head { spinlock_t lock; struct list_head head; } wait_queue_head_t;
typedef struct wait_queue_entry wait_queue_entry_t;
struct wait_queue_entry {
	unsigned flags;
	void *private;
	int (*func)(wait_queue_entry_t *, unsigned, int, void *);
	struct list_head entry;
};
#define init_waitqueue_head(q) INIT_LIST_HEAD(&(q)->head)
#define init_waitqueue_func_entry(e, f) ((e)->flags = 0, (e)->func = (f))
#define waitqueue_active(q) (!list_empty(&(q)->head))
#define wake_up(q) wake_up_nr(q, 1)
#define add_wait_queue(q, e) list_add(&(e)->entry, &(q)->head)
#define __add_wait_queue(q, e) list_add(&(e)->entry, &(q)->head)
#define DEFINE_WAIT(name) wait_queue_entry_t name
#define prepare_to_wait_exclusive(q, e, state) list_add_tail(&(e)->entry, &(q)->head)
#define finish_wait(q, e) list_del_init(&(e)->entry)
#define autoremove_wake_function NULL
static int wake_up_nr(wait_queue_head_t *queue, int nr)
{
	wait_queue_entry_t *at, *next;
	int woken = 0;

	list_for_each_entry_safe(at, next, &queue->head, entry) {
		if (nr - woken <= 0)
			break;
		woken += at->func(at, TASK_NORMAL, 0, NULL);
	}
	return woken;
}
#include <linux/sbitmap.h>
#include "sbitmap.c"
#if SHIM_VERSION < 600
#define sbitmap_queue_get_shallow __sbitmap_queue_get_shallow
#endif
