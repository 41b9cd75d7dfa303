/* The writeback throttle with tasks that sleep in it, a device that completes what it is told to, and the window's timer.
 * Steps: see `throttle.rs`. Written for this command; no text of a kernel. */
#include "shim.h"
#define CONFIG_BLK_WBT 1
#include <ucontext.h>
#include <linux/list.h>
enum { READ, WRITE };
enum { REQ_OP_READ, REQ_OP_WRITE, REQ_OP_DISCARD = 3, REQ_OP_MASK = 255, REQ_SYNC = 1 << 8, REQ_IDLE = 1 << 9,
       REQ_META = 1 << 10, REQ_PRIO = 1 << 11, REQ_BACKGROUND = 1 << 12, REQ_SWAP = 1 << 13 };
enum req_op { SHIM_REQ_OP };
#define REQ_OP_BITS 8
enum { WB_REASON_NOTHING, TASK_UNINTERRUPTIBLE, QUEUE_FLAG_WC, ELEVATOR_FLAG_DISABLE_WBT, QUEUE_FLAG_STATS,
       QUEUE_FLAG_QOS_ENABLED };
#define blk_queue_nonrot(q) (!shim_rotates)
#define blk_queue_rot(q) shim_rotates
#define blk_queue_write_cache(q) shim_caches
#define blk_queue_registered(q) true
#define blk_queue_disable_wbt(q) false
#define blk_queue_depth(q) shim_depth
#define queue_is_mq(q) true
#define req_op(rq) ((rq)->cmd_flags & REQ_OP_MASK)
#define bio_op(bio) ((bio)->bi_opf & REQ_OP_MASK)
#define op_is_write(op) ((op) & 1)
static bool shim_rotates, shim_caches;
static unsigned shim_depth;

#include "waits.h"
#define current_is_kswapd() false
#define ktime_get() shim_now()
#define ktime_to_ns(t) (t)
#define blk_queue_flag_clear(...) ((void)0)
#define blk_stat_deactivate(cb) ((cb)->timer.pending = false)
#define blk_mq_debugfs_register_rqos(...) ((void)0)
#define blk_mq_debugfs_unregister_rqos(...) ((void)0)
#define blk_mq_debugfs_unregister_queue_rqos(q) ((void)(q))

/* A task is a bio that goes to the device; asleep it has a stack of its own. */
enum { BIO_QOS_THROTTLED, BIO_QOS_MERGED };
struct block_device { struct request_queue *bd_queue; struct gendisk *bd_disk; };
struct bio { unsigned bi_opf, bi_flags; struct block_device *bi_bdev; };
#define bio_set_flag(bio, flag) ((void)(bio))
#define bio_flagged(bio, flag) false
#define bdev_get_queue(bdev) ((bdev)->bd_queue)
struct request { unsigned cmd_flags, wbt_flags; u64 io_start_time_ns; };
struct task_struct { ucontext_t context; bool runs, asleep, tagless; struct bio bio; struct request *rq; char *stack; };
static struct task_struct *current;
static void wake_up_process(struct task_struct *task);
static ucontext_t shim_main;
#define STACK 65536
static struct task_struct tasks[512], *runnable[512];
static unsigned nr_runnable;
static void wake_up_process(struct task_struct *task) { runnable[nr_runnable++] = task; }
static void io_schedule(void)
{
	current->asleep = true;
	swapcontext(&current->context, &shim_main);
}

struct bdi_writeback { unsigned long dirty_sleep; };
struct backing_dev_info { unsigned long last_bdp_sleep; struct bdi_writeback wb; };
static struct backing_dev_info shim_bdi;
struct gendisk;
struct rq_qos;
struct elevator_queue { unsigned long flags; };
struct mutex { int unused; };
#define mutex_lock(m) ((void)(m))
#define mutex_unlock(m) ((void)(m))
struct request_queue {
	struct gendisk *disk;
	struct rq_qos *rq_qos;
	struct elevator_queue *elevator;
	struct mutex rq_qos_mutex, debugfs_mutex;
	unsigned long queue_flags;
	/* Until 5.15. */
	spinlock_t queue_lock;
	struct backing_dev_info *backing_dev_info;
};
struct gendisk { struct backing_dev_info *bdi; struct request_queue *queue; struct mutex rqos_state_mutex; char disk_name[1]; };
struct blk_mq_debugfs_attr { int unused; };

/* Statistics of a window, which runs while its timer does. */
struct blk_rq_stat { u64 mean, min, max; u32 nr_samples; u64 batch; };
struct timer_list { unsigned long expires; bool pending; };
struct blk_stat_callback {
	struct timer_list timer;
	void (*timer_fn)(struct blk_stat_callback *);
	int (*bucket_fn)(const struct request *);
	struct blk_rq_stat stat[2], now[2];
	void *data;
};
static struct blk_stat_callback *shim_stat;
#define blk_stat_is_active(cb) ((cb)->timer.pending)
#define nsecs_to_jiffies(ns) ((unsigned long)((ns) / (1000000000 / HZ)))
static void blk_stat_activate_nsecs(struct blk_stat_callback *cb, u64 nsecs)
{
	cb->timer.expires = jiffies + nsecs_to_jiffies(nsecs);
	cb->timer.pending = true;
}
static struct blk_stat_callback *blk_stat_alloc_callback(void (*timer)(struct blk_stat_callback *),
	int (*bucket)(const struct request *), unsigned buckets, void *data)
{
	struct blk_stat_callback *cb = calloc(1, sizeof(*cb));

	cb->timer_fn = timer;
	cb->bucket_fn = bucket;
	cb->data = data;
	return shim_stat = cb;
}
#define blk_stat_add_callback(q, cb) ((void)0)
#define blk_stat_remove_callback(q, cb) ((void)0)
#define blk_stat_free_callback(cb) free(cb)
#define blk_mq_debugfs_register_rq_qos(q) ((void)0)
#define blk_debugfs_lock(q) 0
#define blk_debugfs_unlock(q, flags) ((void)0)
#define blk_mq_freeze_queue(q) 0
#define blk_mq_unfreeze_queue(...) ((void)0)
#define blk_mq_quiesce_queue(q) ((void)0)
#define blk_mq_unquiesce_queue(q) ((void)0)
#define blk_queue_flag_set(...) ((void)0)
#define trace_wbt_lat(...) ((void)0)
#define trace_wbt_stat(...) ((void)0)
#define trace_wbt_step(...) ((void)0)
#define trace_wbt_timer(...) ((void)0)
#define tracepoint_string(s) (s)
static u32 int_sqrt(unsigned long x)
{
	unsigned long root = 0;

	while ((root + 1) * (root + 1) <= x)
		root++;
	return root;
}
#include "blk-rq-qos.h"
#include "blk-rq-qos.c"
#include "blk-wbt.c"

static struct request_queue queue;
static struct gendisk disk;
static struct request *in_flight[4096];
static unsigned nr_flying;
static u64 tick_ns;
static struct rq_qos *qos;

static void shim_start_request(struct task_struct *task)
{
	struct request *rq = calloc(1, sizeof(*rq));

	rq->cmd_flags = task->bio.bi_opf;
	rq->io_start_time_ns = now_ns;
	if (qos->ops->track)
		qos->ops->track(qos, rq, &task->bio);
	qos->ops->issue(qos, rq);
	in_flight[nr_flying++] = rq;
}

/* Tasks that have their place and wait for a tag, in their order. */
static struct task_struct *tagless[512];
static unsigned nr_tagless;

static void shim_body(unsigned number)
{
	struct task_struct *task = &tasks[number];

	qos->ops->throttle(qos, &task->bio);
	if (nr_flying >= shim_depth) {
		tagless[nr_tagless++] = task;
		task->tagless = true;
		swapcontext(&task->context, &shim_main);
		task->tagless = false;
	}
	shim_start_request(task);
	task->runs = false;
	swapcontext(&task->context, &shim_main);
}

static void shim_resume(struct task_struct *task)
{
	current = task;
	task->asleep = false;
	swapcontext(&shim_main, &task->context);
	current = NULL;
}

/* Those that were woken go on, those for a tag first; how many by the throttle. */
static void shim_wake(void)
{
	unsigned woken = 0;

	while (nr_tagless && nr_flying < shim_depth) {
		struct task_struct *first = tagless[0];
		memmove(tagless, tagless + 1, --nr_tagless * sizeof(*tagless));
		shim_resume(first);
	}
	for (; woken < nr_runnable; woken++)
		shim_resume(runnable[woken]);
	nr_runnable = 0;
	if (woken)
		printf(" %u", woken);
}

static void shim_submit(unsigned opf)
{
	unsigned number = 0;

	while (tasks[number].runs)
		number++;
	struct task_struct *task = &tasks[number];
	if (!task->stack)
		task->stack = malloc(STACK);
	task->runs = true;
	task->bio.bi_opf = opf;
	getcontext(&task->context);
	task->context.uc_stack.ss_sp = task->stack;
	task->context.uc_stack.ss_size = STACK;
	task->context.uc_link = &shim_main;
	makecontext(&task->context, (void (*)(void))shim_body, 1, number);
	shim_resume(task);
	putchar(task->asleep ? 's' : task->tagless ? 't' : 'n');
}

static void shim_complete(unsigned which)
{
	struct request *rq = in_flight[which % nr_flying];

	nr_flying--;
	for (unsigned i = which % (nr_flying + 1); i < nr_flying; i++)
		in_flight[i] = in_flight[i + 1];
	if (shim_stat->timer.pending) {
		struct blk_rq_stat *stat = &shim_stat->now[shim_stat->bucket_fn(rq)];
		u64 took = now_ns - rq->io_start_time_ns;
		stat->min = stat->nr_samples ? min(stat->min, took) : took;
		stat->nr_samples++;
	}
	qos->ops->done(qos, rq);
	free(rq);
}

static void shim_clock(u64 now)
{
	now_ns = now;
	jiffies = (1ULL << 32) + now_ns / tick_ns;
}

static void shim_pass(u64 until)
{
	while (shim_stat->timer.pending && (shim_stat->timer.expires - (1ULL << 32)) * tick_ns <= until) {
		shim_clock((shim_stat->timer.expires - (1ULL << 32)) * tick_ns);
		shim_stat->timer.pending = false;
		memcpy(shim_stat->stat, shim_stat->now, sizeof(shim_stat->stat));
		memset(shim_stat->now, 0, sizeof(shim_stat->now));
		shim_stat->timer_fn(shim_stat);
		shim_wake();
	}
	shim_clock(until);
}

static void shim_begin(const struct step *step)
{
	memset(tasks, 0, sizeof(tasks));
	memset(&queue, 0, sizeof(queue));
	memset(&disk, 0, sizeof(disk));
	memset(&shim_bdi, 0, sizeof(shim_bdi));
	nr_flying = nr_runnable = nr_tagless = 0;
	queue.disk = &disk;
	queue.backing_dev_info = &shim_bdi;
	disk.queue = &queue;
	disk.bdi = &shim_bdi;
	shim_depth = step->arg[0];
	shim_rotates = step->arg[1];
	shim_caches = step->arg[2];
	if (shim_caches)
		set_bit(QUEUE_FLAG_WC, &queue.queue_flags);
#if SHIM_VERSION >= 700
	wbt_init(&disk, wbt_alloc());
#elif SHIM_VERSION >= 612
	wbt_init(&disk);
#else
	wbt_init(&queue);
#endif
	qos = queue.rq_qos;
}

int main(void)
{
	static const unsigned OPF[] = { REQ_OP_READ, REQ_OP_WRITE | REQ_BACKGROUND, REQ_OP_WRITE | REQ_SYNC,
					REQ_OP_WRITE | REQ_SYNC | REQ_IDLE };
	struct step step;

	while (next_step(&step)) {
		switch (step.op) {
		case '#':
			tick_ns = 1000000000 / HZ;
			shim_clock(100000000000ULL + tick_ns);
			shim_begin(&step);
			continue;
		case '.':
			fflush(stdout);
			continue;
		case 'b':
			shim_submit(OPF[step.arg[0] & 3]);
			break;
		case 'c':
			putchar('c');
			if (nr_flying)
				shim_complete(step.arg[0]);
			break;
		case 'd':
			putchar('d');
			shim_bdi.last_bdp_sleep = shim_bdi.wb.dirty_sleep = jiffies;
			break;
		case 'w':
			putchar('w');
			shim_pass(now_ns + step.arg[0] * 1000);
			break;
		}
		shim_wake();
		putchar('\n');
	}
	return 0;
}
