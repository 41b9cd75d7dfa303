/* Sibling groups with latency targets: tasks that sleep in them, a device that completes what it is told to, and a
 * timer. Steps: see `io_latency.rs`. Written for this command; no text of a kernel. */
#include "shim.h"
#include <ucontext.h>
#include <linux/list.h>
enum { REQ_META = 1, REQ_SWAP = 2, BIO_QOS_THROTTLED = 0, BLK_STS_AGAIN = 12, TASK_UNINTERRUPTIBLE = 0,
       TASK_KILLABLE = 0, HRTIMER_MODE_ABS = 0 };
#define __percpu
#define atomic64_read(v) atomic_read(v)
#define atomic64_set(v, n) atomic_set(v, n)
#define atomic64_add(n, v) atomic_add(n, v)
#define atomic64_sub(n, v) atomic_sub(n, v)
#define atomic64_try_cmpxchg(v, old, new) try_cmpxchg(&(v)->counter, old, new)
#define atomic64_cmpxchg(v, old, new) cmpxchg(&(v)->counter, old, new)
#define time_before64(a, b) ((s64)((a) - (b)) < 0)
#define ktime_add_ns(t, ns) ((t) + (ns))
#define NR_GROUPS 4
#define NR_CPUS 4

/* Tasks that sleep have a stack of their own. */
struct task_struct { ucontext_t context; bool asleep; char *stack; unsigned number; };
static struct task_struct *current, tasks[4096], *runnable[4096];
static unsigned nr_tasks, nr_runnable;
static ucontext_t shim_main;
#define STACK 32768
static void wake_up_process(struct task_struct *task) { runnable[nr_runnable++] = task; }
static void io_schedule(void)
{
	current->asleep = true;
	swapcontext(&current->context, &shim_main);
}
#include "waits.h"

struct timer_list { unsigned long expires; bool pending; };
#define timer_pending(t) ((t)->pending)
#define mod_timer(t, when) ((void)((t)->expires = (when), (t)->pending = true))
#define from_timer(var, t, member) container_of(t, __typeof__(*(var)), member)
#define timer_container_of(var, t, member) from_timer(var, t, member)
struct work_struct { int unused; };
#define schedule_work(w) ((void)(w))

/* Control groups: the root and its children. */
struct cgroup_subsys_state { int unused; };
struct cgroup { atomic_t congestion_count; };
struct blkcg { struct { struct cgroup *cgroup; } css; atomic_t congestion_count; };
struct blkg_policy_data { struct blkcg_gq *blkg; };
struct blkcg_gq {
	struct request_queue *q;
	struct blkcg *blkcg;
	struct blkcg_gq *parent;
	struct blkg_policy_data *pd;
	atomic_t use_delay;
	atomic64_t delay_nsec, delay_start;
	u64 last_delay;
	int last_use;
};
struct gendisk { struct request_queue *queue; };
struct request_queue { struct gendisk *disk; struct blkcg_gq *root_blkg; unsigned long nr_requests; };
static struct gendisk disk;
static struct request_queue queue = { .disk = &disk };
static struct gendisk disk = { .queue = &queue };
static struct cgroup cgroup;
static struct blkcg blkcg = { { &cgroup } };
static struct blkcg_gq blkgs[1 + NR_GROUPS];
static unsigned shim_cpu, shim_cpus;
static bool shim_rotates, shim_delayed;
static u64 shim_sleeps;
#define pd_to_blkg(p) ((p)->blkg)
#define blkg_to_pd(g, policy) ((g)->pd)
#define blkg_tryget(g) true
#define blkg_put(g) ((void)(g))
#define blkg_for_each_descendant_pre(g, pos, root) \
	for ((g) = blkgs; (g) < blkgs + ARRAY_SIZE(blkgs); (g)++)
#define blkcg_rq_qos(q) (&shim_latency->rqos)
#define iolat_rq_qos(q) blkcg_rq_qos(q)
#define blk_queue_nonrot(q) (!shim_rotates)
#define blk_queue_rot(q) shim_rotates
#define blkcg_schedule_throttle(...) ((void)(shim_delayed = true))
#define fatal_signal_pending(task) false
#define preempt_disable() ((void)0)
#define preempt_enable() ((void)0)
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < shim_cpus; (cpu)++)
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu)
#define per_cpu_ptr(p, cpu) (&(p)[cpu])
#define get_cpu_ptr(p) per_cpu_ptr(p, shim_cpu)
#define put_cpu_ptr(p) ((void)(p))
/* A task on its way out of a system call. */
#define psi_memstall_enter(flags) ((void)(flags))
#define psi_memstall_leave(flags) ((void)(flags))
#define io_schedule_prepare() 0
#define io_schedule_finish(token) ((void)(token))
#define __set_current_state(state) ((void)0)
#define schedule_hrtimeout(until, mode) (shim_sleeps = *(until) - now_ns, 0)

#define ktime_get() shim_now()
#define ktime_to_ns(t) (t)
struct rq_wait;
typedef bool (acquire_inflight_cb_t)(struct rq_wait *rqw, void *private_data);
typedef void (cleanup_cb_t)(struct rq_wait *rqw, void *private_data);
#if SHIM_VERSION < 700
struct bio_issue { u64 value; };
#define SHIM_ISSUE struct bio_issue bi_issue;
#define shim_issue(bio) bio_issue_init(&(bio)->bi_issue, 8)
#else
#define SHIM_ISSUE u64 issue_time_ns;
#define shim_issue(bio) ((bio)->issue_time_ns = now_ns)
#endif
struct bio { SHIM_ISSUE struct blkcg_gq *bi_blkg; unsigned bi_opf, bi_status; };
#define bio_flagged(bio, flag) true
/* The mean that is only shown. */
#define iolat_update_total_lat_avg(...) ((void)0)
static struct blk_iolatency *shim_latency;
static int blkcg_policy_iolatency;
#include "cut.c"

static struct bio bios[4096];
static unsigned flying[4096], nr_flying;
static u64 tick_ns;
static struct iolatency_grp *groups[1 + NR_GROUPS];
static struct { unsigned cookie, depth[NR_GROUPS]; int uses[NR_GROUPS]; } said;

static unsigned shim_depth(struct iolatency_grp *group)
{
#if SHIM_VERSION < 612
	return group->rq_depth.max_depth;
#else
	return group->max_depth;
#endif
}

/* News since the last answer. */
static void shim_say(void)
{
	unsigned cookie = atomic_read(&groups[0]->child_lat.scale_cookie);

	if (xchg(&said.cookie, cookie) != cookie)
		printf(" k%u", DEFAULT_SCALE_COOKIE - cookie);
	for (int i = 0; i < NR_GROUPS; i++) {
		unsigned depth = shim_depth(groups[1 + i]);
		int uses = atomic_read(&blkgs[1 + i].use_delay);
		if (xchg(&said.depth[i], depth) != depth)
			printf(depth == UINT_MAX ? " d%d=max" : " d%d=%u", i, depth);
		if (xchg(&said.uses[i], uses) != uses)
			printf(" u%d=%d", i, uses);
	}
}

static void shim_body(unsigned number)
{
	blkcg_iolatency_throttle(&shim_latency->rqos, &bios[number]);
	flying[nr_flying++] = number;
	swapcontext(&tasks[number].context, &shim_main);
}

static void shim_resume(struct task_struct *task)
{
	current = task;
	swapcontext(&shim_main, &task->context);
	current = NULL;
}

static void shim_submit(unsigned group, unsigned opf)
{
	struct task_struct *task = &tasks[nr_tasks];
	struct bio *bio = &bios[nr_tasks];

	BUG_ON(nr_tasks == ARRAY_SIZE(tasks));
	*bio = (struct bio) { .bi_blkg = &blkgs[1 + group], .bi_opf = opf };
	shim_issue(bio);
	if (!task->stack)
		task->stack = malloc(STACK);
	task->asleep = shim_delayed = false;
	task->number = nr_tasks;
	getcontext(&task->context);
	task->context.uc_stack.ss_sp = task->stack;
	task->context.uc_stack.ss_size = STACK;
	task->context.uc_link = &shim_main;
	makecontext(&task->context, (void (*)(void))shim_body, 1, nr_tasks++);
	shim_resume(task);
	printf("%c%s", task->asleep ? 's' : 'p', shim_delayed ? "!" : "");
}

static void shim_complete(unsigned which, unsigned cpu, bool refused)
{
	struct bio *bio = &bios[flying[which %= nr_flying]];

	memmove(flying + which, flying + which + 1, (--nr_flying - which) * sizeof(*flying));
	shim_cpu = cpu % shim_cpus;
	bio->bi_status = refused ? BLK_STS_AGAIN : 0;
	blkcg_iolatency_done_bio(&shim_latency->rqos, bio);
}

/* Groups are enabled by a work that waits until nothing is in flight. */
static void shim_target(unsigned group, u64 target)
{
	struct blkcg_gq *blkg = &blkgs[1 + group];
	u64 was = groups[1 + group]->min_lat_nsec;

	iolatency_set_min_lat_nsec(blkg, target);
	if (was != target)
		iolatency_clear_scaling(blkg);
	shim_latency->enabled = atomic_read(&shim_latency->enable_cnt);
}

static bool shim_switches(unsigned group, u64 target)
{
	int others = atomic_read(&shim_latency->enable_cnt) - (groups[1 + group]->min_lat_nsec > 0);
	return shim_latency->enabled != (others + (target > 0) > 0);
}

static void shim_clock(u64 now)
{
	now_ns = now;
	jiffies = (1UL << 32) + now_ns / tick_ns;
}

static void shim_pass(u64 until)
{
	struct timer_list *timer = &shim_latency->timer;

	while (timer->pending && (timer->expires - (1UL << 32)) * tick_ns <= until) {
		shim_clock((timer->expires - (1UL << 32)) * tick_ns);
		timer->pending = false;
		printf(" @%llu", (unsigned long long)(now_ns / tick_ns));
		blkiolatency_timer_fn(timer);
		shim_say();
	}
	shim_clock(until);
}

static void shim_begin(const struct step *step)
{
	nr_tasks = nr_runnable = nr_flying = 0;
	queue.nr_requests = max(step->arg[0], 1L);
	queue.root_blkg = blkgs;
	shim_rotates = step->arg[1];
	shim_cpus = min(max(step->arg[2], 1L), (long)NR_CPUS);
	shim_clock(tick_ns + step->arg[3] * 1000);
	free(shim_latency);
	shim_latency = calloc(1, sizeof(*shim_latency));
#if SHIM_VERSION < 612
	shim_latency->rqos.q = &queue;
#else
	shim_latency->rqos.disk = &disk;
#endif
	memset(blkgs, 0, sizeof(blkgs));
	memset(&said, 0, sizeof(said));
	said.cookie = DEFAULT_SCALE_COOKIE;
	for (int i = 0; i <= NR_GROUPS; i++) {
		if (groups[i])
			free(groups[i]->stats);
		free(groups[i]);
		groups[i] = calloc(1, sizeof(*groups[i]));
		groups[i]->stats = calloc(NR_CPUS, sizeof(*groups[i]->stats));
		groups[i]->pd.blkg = &blkgs[i];
		blkgs[i] = (struct blkcg_gq) { &queue, &blkcg, i ? blkgs : NULL, &groups[i]->pd };
		iolatency_pd_init(&groups[i]->pd);
	}
	for (int i = 0; i < NR_GROUPS; i++) {
		said.depth[i] = UINT_MAX;
		shim_target(i, step->arg[4 + i] * 1000);
	}
}

int main(void)
{
	struct step step;

	tick_ns = 1000000000 / HZ;
	while (next_step(&step)) {
		unsigned group = step.arg[0] % NR_GROUPS;
		switch (step.op) {
		case '#':
			shim_begin(&step);
			continue;
		case '.':
			fflush(stdout);
			continue;
		case 'b':
			shim_submit(group, step.arg[1] & 1 ? REQ_META : 0);
			break;
		case 'c':
			putchar('c');
			if (nr_flying)
				shim_complete(step.arg[0], step.arg[1], step.arg[2] & 1);
			break;
		case 't':
			putchar('t');
			if (!nr_flying || !shim_switches(group, step.arg[1] * 1000))
				shim_target(group, step.arg[1] * 1000);
			break;
		case 'r':
			shim_sleeps = 0;
			blkcg_maybe_throttle_blkg(&blkgs[1 + group], false);
			printf("r %llu", (unsigned long long)shim_sleeps);
			break;
		case 'w':
			putchar('w');
			shim_pass(now_ns + step.arg[0] * 1000);
			break;
		}
		for (unsigned i = 0; i < nr_runnable; i++) {
			printf(" ^%u", runnable[i]->number);
			shim_resume(runnable[i]);
		}
		nr_runnable = 0;
		shim_say();
		putchar('\n');
	}
	return 0;
}
