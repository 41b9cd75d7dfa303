/* BFQ behind a queue, with its timer, one group and tasks that come and go. Steps: see `elevators.rs`. Written for this
 * command; no text of a kernel. */
#include "shim.h"
#define CONFIG_BFQ_GROUP_IOSCHED 1
#define MAX_JIFFY_OFFSET ((LONG_MAX >> 1) - 1)
#define USEC_PER_MSEC 1000L
#define __GFP_NOWARN 0
#define GFP_NOIO 0
#define IOPRIO_NR_LEVELS 8
#define IOPRIO_BE_NR 8
#define IOPRIO_NORM 4
#define IOPRIO_BE_NORM 4
#define ELEVATOR_FLAG_DISABLE_WBT 0
#define QUEUE_FLAG_DISABLE_WBT_DEF 5
#define IOPRIO_PRIO_DATA(prio) ((prio) & 0x1fff)
#define IOPRIO_PRIO_LEVEL(prio) ((prio) & 7)
#define ioprio_valid(prio) ((prio) != 0)
enum hrtimer_restart { HRTIMER_NORESTART, HRTIMER_RESTART };
enum { HRTIMER_MODE_REL, CLOCK_MONOTONIC };
struct hrtimer { u64 expires; enum hrtimer_restart (*function)(struct hrtimer *); bool pending; };
static struct hrtimer *shim_timer;
#define SHIM_TIMER_NS(t) ((t)->expires)
#define hrtimer_init(t, clock, mode) ((void)(shim_timer = (t)))
#define hrtimer_setup(t, f, clock, mode) ((void)(shim_timer = (t), (t)->function = (f)))
#define hrtimer_start(t, delay, mode) ((void)((t)->expires = shim_now() + (delay), (t)->pending = true))
#define hrtimer_try_to_cancel(t) xchg(&(t)->pending, false)
#define hrtimer_cancel(t) hrtimer_try_to_cancel(t)
#define ns_to_ktime(ns) (ns)
#define us_to_ktime(us) ((us) * 1000)
#define ms_to_ktime(ms) ((ms) * 1000000)
#define ktime_get() shim_now()
#define blk_time_get() shim_now()
#define hweight32(n) __builtin_popcount(n)
#define max3(a, b, c) max(max(a, b), c)
#define time_is_after_eq_jiffies(a) time_before_eq(jiffies, a)
#define ktime_to_us(t) ((t) / 1000)
#define ktime_sub(a, b) ((a) - (b))
#define nsecs_to_jiffies(ns) ((unsigned long)((ns) / (1000000000 / HZ)))
#define SHIM_TASK
/* The machine has been up for long. */
#define SHIM_UPTIME 100000000000ULL
#define SHIM_JIFFIES (1ULL << 32)
/* It asks for a run itself when a completion makes room for more. */
#define SHIM_RUNS_ALWAYS 0
struct io_context;
struct io_cq { struct request_queue *q; struct io_context *ioc; };
struct io_context { int ioprio; atomic_t active_ref; struct io_cq *icq; };
struct task_struct { struct blk_plug *plug; struct io_context *io_context; int pid; };
static struct task_struct *current;
#include "block.h"
#define get_io_context(ioc) ((void)(ioc))
#define put_io_context(ioc) ((void)(ioc))
#define ioc_lookup_icq(...) (current->io_context ? current->io_context->icq : NULL)
#define ioc_find_get_icq(q) ioc_lookup_icq(q)
#define task_nice_ioprio(task) 4
#define task_nice_ioclass(task) IOPRIO_CLASS_BE
#define get_capacity(disk) (1ULL << 40)
#define queue_is_rq_based(q) true
#define kmem_cache_alloc_node(cache, flags, node) calloc(1, (size_t)(cache))
#define kmem_cache_free(cache, p) free(p)
#define kmem_cache_destroy(cache) ((void)0)
#define KMEM_CACHE(type, flags) ((struct kmem_cache *)sizeof(struct type))
#define kmalloc_array(n, size, flags) calloc(n, size)
#define pr_crit(...) ((void)0)
#define pr_err(...) ((void)0)
/* With SHIM_LOG set its own log goes to standard error. */
#define blk_trace_note_message_enabled(q) (getenv("SHIM_LOG") != NULL)
#define SHIM_LOG(fmt, ...) ((void)fprintf(stderr, "%llu: " fmt "\n", (unsigned long long)shim_now() / 1000, ##__VA_ARGS__))
#define blk_add_trace_msg(q, ...) (blk_trace_note_message_enabled(q) ? SHIM_LOG(__VA_ARGS__) : (void)0)
#define blk_add_cgroup_trace_msg(q, css, ...) SHIM_LOG(__VA_ARGS__)
#define blk_mq_run_hw_queues(q, async) ((void)(shim_wanted = true))
#define blkcg_policy_register(p) 0
#define blkcg_policy_unregister(p) ((void)(p))
#define blkcg_deactivate_policy(...) ((void)0)
#define bdi_dev_name(bdi) ""
struct percpu_counter { int unused; };
struct blkg_rwstat { int unused; };
struct blkg_policy_data { int unused; };
struct blkcg_policy_data { int unused; };
struct blkcg_policy { int unused; };
struct cftype { int unused; };
#define io_cgrp_subsys_on_dfl 1
#define cgroup_subsys_on_dfl(x) x##_on_dfl
struct blk_independent_access_range { sector_t sector, nr_sectors; };
struct blk_independent_access_ranges { unsigned nr_ia_ranges; struct blk_independent_access_range ia_range[1]; };
struct cgroup { int level; };
struct cgroup_subsys_state { struct cgroup *cgroup; };
struct blkcg { struct cgroup_subsys_state css; };
struct blkcg_gq { struct blkcg *blkcg; };
#define refcount_t int
struct kmem_cache;
#include "rbtree.c"
#include "bfq-iosched.h"

static struct cgroup root_cgroup;
static struct blkcg root_blkcg = { { &root_cgroup } };
static struct blkcg_gq root_blkg = { &root_blkcg };
struct blkcg_policy blkcg_policy_bfq;
struct blkcg_gq *bfqg_to_blkg(struct bfq_group *group) { return &root_blkg; }
struct bfq_group *bfqq_group(struct bfq_queue *queue) { return queue->bfqd->root_group; }
/* What an account gets from its queue, which may be none of BFQ's spare one. */
void bfq_init_entity(struct bfq_entity *account, struct bfq_group *group)
{
	struct bfq_queue *queue = bfq_entity_to_bfqq(account);

	account->sched_data = &group->sched_data;
	account->orig_weight = account->weight = account->new_weight;
	if (queue) {
		queue->ioprio_class = queue->new_ioprio_class;
		queue->ioprio = queue->new_ioprio;
	}
}
void bfqg_and_blkg_put(struct bfq_group *group) {}
void bfq_bic_update_cgroup(struct bfq_io_cq *bic, struct bio *bio) {}
void bfq_bfqq_move(struct bfq_data *data, struct bfq_queue *queue, struct bfq_group *group) {}
struct bfq_group *bfq_bio_bfqg(struct bfq_data *data, struct bio *bio) { return data->root_group; }
struct bfq_group *bfq_create_group_hierarchy(struct bfq_data *data, int node)
{
	struct bfq_group *group = calloc(1, sizeof(*group));

	group->entity.weight = group->entity.new_weight = group->entity.orig_weight = 100;
	group->entity.my_sched_data = &group->sched_data;
	group->bfqd = data;
	return group;
}
void bfq_end_wr_async(struct bfq_data *data) { bfq_end_wr_async_queues(data, data->root_group); }
#define bfqg_stats_update_io_add(...) ((void)0)
#define bfqg_stats_update_io_remove(...) ((void)0)
#define bfqg_stats_update_io_merged(...) ((void)0)
#define bfqg_stats_update_completion(...) ((void)0)
#define bfqg_stats_update_legacy_io(...) ((void)0)
#define bfqg_stats_update_dequeue(...) ((void)0)
#define bfqg_stats_set_start_idle_time(...) ((void)0)
/* A moment passes between the making of a queue, whose last end is a nanosecond ahead of it, and its first request. */
#undef blk_time_get_ns
#undef ktime_get_ns
#define blk_time_get_ns() (shim_now() - !strcmp(__func__, "bfq_init_bfqq"))
#define ktime_get_ns() blk_time_get_ns()
#include "cut.c"
#include "bfq-wf2q.c"
#include "bfq-iosched.c"
static const char *const TUNABLES[] = { "slice_idle_us", "timeout_sync", "max_budget", "fifo_expire_sync",
	"fifo_expire_async", "back_seek_max", "back_seek_penalty", "low_latency" };

#define TASKS 64
static struct task_struct tasks[TASKS];
static struct io_context contexts[TASKS];
static struct bfq_io_cq *icqs[TASKS];

static struct blk_plug plug;

static void shim_forget_tasks(void)
{
	memset(tasks, 0, sizeof(tasks));
	current = tasks;
}

/* The task that acts from here on. Its context is made as it has its first request. */
static void shim_task(unsigned number)
{
	struct task_struct *task = &tasks[number];

	task->plug = &plug;
	task->pid = 100 + number;
	current = task;
}

static void shim_context(void)
{
	unsigned number = current - tasks;

	if (current->io_context)
		return;
	icqs[number] = calloc(1, sizeof(**icqs));
	icqs[number]->icq = (struct io_cq) { &queue, &contexts[number] };
	contexts[number] = (struct io_context) { .active_ref = { 1 }, .icq = &icqs[number]->icq };
	current->io_context = &contexts[number];
	if (elevator.type->ops.init_icq)
		elevator.type->ops.init_icq(&icqs[number]->icq);
}

static void shim_exit_task(unsigned number)
{
	shim_task(number);
	if (!current->io_context)
		return;
	elevator.type->ops.exit_icq(&icqs[number]->icq);
	/* Requests in flight still count down in it. */
	current->io_context = NULL;
}
#include "block_main.h"
