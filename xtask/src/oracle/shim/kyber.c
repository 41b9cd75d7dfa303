/* Kyber behind a queue, with its timer. Steps: see `elevators.rs`. Written for this command; no text of a kernel. */
#include "shim.h"
struct timer_list { unsigned long expires; void (*function)(struct timer_list *); bool pending; };
static struct timer_list *shim_timer;
#define SHIM_TIMER_NS(t) ((t)->expires * tick_ns)
#define timer_setup(t, f, flags) (shim_timer = (t), (t)->function = (f), (t)->pending = false)
#define from_timer(var, t, field) container_of(t, __typeof__(*var), field)
#define timer_container_of(var, t, field) container_of(t, __typeof__(*var), field)
#define timer_shutdown_sync(t) ((void)(t))
#define del_timer_sync(t) ((void)(t))
static int timer_reduce(struct timer_list *timer, unsigned long expires)
{
	if (!timer->pending || (long)(expires - timer->expires) < 0)
		timer->expires = expires;
	timer->pending = true;
	return 0;
}
#include "block.h"
#define disk_devt(disk) 0
#define blk_mq_get_ctx(q) (&soft_queue)
#define blk_mq_map_queue(...) (&hw_queue)
#define kmalloc_node(size, flags, node) calloc(1, size)
#define trace_kyber_latency(...) ((void)0)
#define trace_kyber_adjust(...) ((void)0)
#define trace_kyber_throttled(...) ((void)0)
#include "rbtree.c"
#include "cut.c"
#include "kyber-iosched.c"
static const char *const TUNABLES[] = { "read_lat_nsec", "write_lat_nsec" };
#include "block_main.h"
