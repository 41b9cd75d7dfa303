/* The limits of one control group: bios that come, a timer, and the work that issues those that were let go. Steps: see
 * `io_max.rs`. Written for this command; no text of a kernel. */
#include "shim.h"
#include <linux/list.h>
#include <linux/rbtree.h>
#include "rbtree.c"
#define READ 0
#define WRITE 1
#define U64_MAX UINT64_MAX
#define __percpu
#define time_in_range(a, b, c) (time_after_eq(a, b) && time_before_eq(a, c))
#define atomic_xchg(v, n) xchg(&(v)->counter, n)
#define roundup(x, y) ((((x) + ((y) - 1)) / (y)) * (y))
#define rounddown(x, y) ((x) - (x) % (y))
#define mul_u64_u64_div_u64(a, b, c) ((u64)((unsigned __int128)(a) * (b) / (c)))
#define order_base_2(n) ((n) > 1 ? ilog2((n) - 1) + 1 : 0)
enum { REQ_OP_READ, REQ_OP_WRITE, REQ_OP_DISCARD = 3 };
enum { BIO_THROTTLED, BIO_BPS_THROTTLED, BIO_TG_BPS_THROTTLED, BIO_CGROUP_ACCT, BIO_ISSUE_THROTL_SKIP_LATENCY };
struct request_queue;
struct block_device { struct request_queue *bd_queue; struct gendisk *bd_disk; };
struct blkcg_gq;
struct bio {
	struct bio *bi_next;
	struct { unsigned bi_size; } bi_iter;
	unsigned bi_opf, bi_flags;
	struct blkcg_gq *bi_blkg;
	struct block_device *bi_bdev;
	struct gendisk *bi_disk;
	struct { u64 value; } bi_issue;
	unsigned number;
};
#define bio_op(bio) ((bio)->bi_opf)
#define bio_data_dir(bio) ((bio)->bi_opf & 1)
#define op_is_write(op) ((op) & 1)
#define bio_flagged(bio, f) ((bio)->bi_flags >> (f) & 1)
#define bio_set_flag(bio, f) ((void)((bio)->bi_flags |= 1 << (f)))
#define bio_clear_flag(bio, f) ((void)((bio)->bi_flags &= ~(1 << (f))))
#define bio_issue_as_root_blkg(bio) false
#define bio_io_error(bio) BUG()
struct bio_list { struct bio *head, *tail; };
static void bio_list_init(struct bio_list *list) { list->head = list->tail = NULL; }
#define bio_list_empty(list) ((list)->head == NULL)
#define bio_list_peek(list) ((list)->head)
static void bio_list_add(struct bio_list *list, struct bio *bio)
{
	bio->bi_next = NULL;
	if (list->tail)
		list->tail->bi_next = bio;
	else
		list->head = bio;
	list->tail = bio;
}
static struct bio *bio_list_pop(struct bio_list *list)
{
	struct bio *bio = list->head;

	if (bio && !(list->head = bio->bi_next))
		list->tail = NULL;
	return bio;
}

struct timer_list { unsigned long expires; void (*function)(struct timer_list *); bool pending; };
static struct timer_list *shim_timer;
#define timer_setup(t, f, flags) ((t)->function = (f))
#define from_timer(var, t, field) container_of(t, __typeof__(*var), field)
#define timer_container_of(var, t, field) container_of(t, __typeof__(*var), field)
#define del_timer_sync(t) ((void)((t)->pending = false))
#define timer_delete_sync(t) del_timer_sync(t)
static void mod_timer(struct timer_list *timer, unsigned long expires)
{
	timer->expires = max(expires, jiffies + 1);
	timer->pending = true;
	shim_timer = timer;
}
struct work_struct { void (*function)(struct work_struct *); };
struct workqueue_struct;
static struct work_struct *shim_work;
#define INIT_WORK(w, f) ((w)->function = (f))
#define queue_work(wq, w) ((void)(shim_work = (w)))
#define cancel_work_sync(w) ((void)(w))
#define alloc_workqueue(...) NULL
#define panic(...) BUG()
struct blk_plug { int unused; };
#define blk_start_plug(p) ((void)(p))
#define blk_finish_plug(p) ((void)(p))
static void shim_issue(struct bio *bio);
#define submit_bio_noacct(bio) shim_issue(bio)
#define submit_bio_noacct_nocheck(bio, ...) shim_issue(bio)
#define generic_make_request(bio) shim_issue(bio)

/* Control groups. */
struct cgroup { int unused; };
struct cgroup_subsys_state { struct cgroup *cgroup; struct list_head children; };
struct blkcg { struct cgroup_subsys_state css; };
struct blkg_policy_data { struct blkcg_gq *blkg; struct rcu_head rcu_head; };
struct blkcg_gq { struct request_queue *q; struct blkcg *blkcg; struct blkcg_gq *parent; struct blkg_policy_data *pd; };
struct gendisk { struct request_queue *queue; int node_id; struct { void *unused; } *bdi; };
struct request_queue { void *td; spinlock_t queue_lock; struct blkcg_gq *root_blkg; int node; unsigned long queue_flags;
	struct gendisk *disk; };
struct blkg_rwstat { int unused; };
#define io_cgrp_subsys_on_dfl 1
#define cgroup_subsys_on_dfl(x) x##_on_dfl
#define pd_to_blkg(p) ((p)->blkg)
#define blkg_to_pd(g, policy) ((g)->pd)
#define blkg_get(g) ((void)(g))
#define blkg_put(g) ((void)(g))
#define blkg_rwstat_init(...) 0
#define blkg_rwstat_exit(...) ((void)0)
#define blkg_rwstat_add(...) ((void)0)
#define blkcg_policy_enabled(...) true
#define bdev_get_queue(b) ((b)->bd_queue)
#define bdev_limits(b) NULL
#define queue_is_mq(q) true
#define blk_queue_nonrot(q) false
#define blk_queue_root_blkg(q) ((q)->root_blkg)
#define blk_stat_enable_accounting(q) ((void)(q))
#define blk_trace_note_message_enabled(q) false
#define blk_add_cgroup_trace_msg(...) ((void)0)
#define blk_add_trace_msg(...) ((void)0)
#define blkg_for_each_descendant_pre(g, pos, root) for (pos = NULL, (g) = (root); (g); (g) = NULL)
#define blkg_for_each_descendant_post(g, pos, root) blkg_for_each_descendant_pre(g, pos, root)
#define call_rcu(...) ((void)0)
#define free_percpu(p) free(p)
/* Limits that a device's latency decides about (io.low) are not built. */
enum { LIMIT_LOW, LIMIT_MAX, LIMIT_CNT };
#define throtl_downgrade_check(tg) ((void)(tg))
#define throtl_upgrade_check(tg) ((void)(tg))
#define throtl_upgrade_state(td) ((void)(td))
#define throtl_can_upgrade(...) false
#define throtl_update_latency_buckets(td) ((void)(td))
#define blk_throtl_update_idletime(tg) ((void)(tg))
static struct workqueue_struct *kthrotld_workqueue;
struct throtl_grp;
static void throtl_pending_timer_fn(struct timer_list *t);
#include "cut.c"
#if SHIM_VERSION >= 600
static bool blk_throtl_bio(struct bio *bio) { return blk_should_throtl(bio) && __blk_throtl_bio(bio); }
#endif

static struct request_queue queue;
static struct gendisk disk = { &queue };
static struct block_device device = { &queue, &disk };
static struct blkcg blkcg;
static struct blkcg_gq root, group = { &queue, &blkcg, &root };
static struct throtl_data *data;
static struct throtl_grp *limits;
static u64 tick_ns;
static struct bio bios[8192];
static unsigned nr_bios;

static void shim_issue(struct bio *bio) { printf(" %u", bio->number); }

static void shim_clock(u64 now)
{
	/* A whole number of slices. */
	now_ns = now;
	jiffies = (1UL << 32) / (HZ / 10) * (HZ / 10) + 1000 * HZ + now_ns / tick_ns;
}
static u64 shim_when(unsigned long tick)
{
	return (tick - ((1UL << 32) / (HZ / 10) * (HZ / 10) + 1000 * HZ)) * tick_ns;
}

/* What is due until then: when, and who goes. */
static void shim_pass(u64 until)
{
	while (shim_timer && shim_timer->pending && shim_when(shim_timer->expires) <= until) {
		shim_clock(shim_when(shim_timer->expires));
		shim_timer->pending = false;
		shim_timer->function(shim_timer);
		printf(" @%llu", (unsigned long long)(now_ns / tick_ns));
		if (shim_work)
			xchg(&shim_work, NULL)->function(&data->dispatch_work);
	}
	shim_clock(until);
}

static void shim_begin(const struct step *step)
{
	shim_timer = NULL;
	shim_work = NULL;
	nr_bios = 0;
	free(data);
	free(limits);
	data = calloc(1, sizeof(*data));
	limits = calloc(1, sizeof(*limits));
	queue.td = data;
	queue.root_blkg = &root;
	data->queue = &queue;
	INIT_WORK(&data->dispatch_work, blk_throtl_dispatch_work_fn);
	throtl_service_queue_init(&data->service_queue);
	throtl_service_queue_init(&limits->service_queue);
	for (int rw = READ; rw <= WRITE; rw++) {
		throtl_qnode_init(&limits->qnode_on_self[rw], limits);
		throtl_qnode_init(&limits->qnode_on_parent[rw], limits);
	}
	RB_CLEAR_NODE(&limits->rb_node);
	group.pd = &limits->pd;
	limits->pd.blkg = &group;
	limits->td = data;
	limits->service_queue.parent_sq = &data->service_queue;
	for (int rw = READ; rw <= WRITE; rw++) {
		u64 bps = step->arg[rw] ? step->arg[rw] : U64_MAX;
		unsigned iops = step->arg[2 + rw] ? step->arg[2 + rw] : UINT_MAX;
#if SHIM_VERSION < 612
		limits->bps[rw][LIMIT_MAX] = bps;
		limits->iops[rw][LIMIT_MAX] = iops;
#else
		limits->bps[rw] = bps;
		limits->iops[rw] = iops;
#endif
	}
#if SHIM_VERSION < 612
	data->limit_index = LIMIT_MAX;
	data->limit_valid[LIMIT_MAX] = true;
#endif
#if SHIM_VERSION < 700
	data->throtl_slice = HZ / 10;
#endif
	tg_update_has_rules(limits);
}

int main(void)
{
	struct step step;

	tick_ns = 1000000000 / HZ;
	while (next_step(&step)) {
		switch (step.op) {
		case '#':
			shim_clock(tick_ns);
			shim_begin(&step);
			continue;
		case '.':
			fflush(stdout);
			continue;
		case 'b':
			BUG_ON(nr_bios == ARRAY_SIZE(bios));
			bios[nr_bios] = (struct bio) {
				.number = nr_bios, .bi_opf = step.arg[0] & 1, .bi_iter = { max(step.arg[1], 1L) * 512 },
				.bi_blkg = &group, .bi_bdev = &device, .bi_disk = &disk,
			};
			putchar(blk_throtl_bio(&bios[nr_bios++]) ? 's' : 'p');
			break;
		case 'w':
			putchar('w');
			shim_pass(now_ns + step.arg[0] * 1000);
			break;
		}
		putchar('\n');
	}
	return 0;
}
