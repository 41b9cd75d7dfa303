/* The driver of an elevator: reads steps, answers each with what the device was given. */
#define MOST 4096
#ifndef SHIM_UPTIME
#define SHIM_UPTIME 0
#define SHIM_JIFFIES 0
#endif
#ifndef SHIM_RUNS_ALWAYS
#define SHIM_RUNS_ALWAYS 1
#endif
static struct request slots[MOST], *in_flight[MOST];
static struct bio bios[1 << 16];
static unsigned nr_flying, depth, nr_bios;
static u64 tick_ns;
static struct blk_mq_tags tags;

static void shim_free(struct request *rq)
{
	struct elevator_type *type = elevator.type;

	if (type->ops.finish_request)
		type->ops.finish_request(rq);
	sbitmap_queue_clear(tag_map, rq->internal_tag, 0);
	rq->q = NULL;
}

/* A request with a scheduler tag, as far as the elevator lets this bio have one. */
static struct request *shim_request(struct bio *bio, unsigned segments)
{
	struct blk_mq_alloc_data data = { .q = &queue, .hctx = &hw_queue, .ctx = &soft_queue, .cmd_flags = bio->bi_opf };
	struct request *rq = slots;
	int tag;

	if (elevator.type->ops.limit_depth)
		elevator.type->ops.limit_depth(bio->bi_opf, &data);
	tag = data.shallow_depth ? sbitmap_queue_get_shallow(tag_map, data.shallow_depth) : __sbitmap_queue_get(tag_map);
	if (tag < 0)
		return NULL;

	while (rq->q)
		rq++;
	*rq = (struct request) { .q = &queue, .mq_hctx = &hw_queue, .mq_ctx = &soft_queue, .cmd_flags = bio->bi_opf,
		.__sector = bio->bi_iter.bi_sector, .__data_len = bio->bi_iter.bi_size, .nr_phys_segments = segments,
		.ioprio = bio->bi_ioprio, .bio = bio, .biotail = bio, .rq_flags = RQF_ELVPRIV | RQF_USE_SCHED | RQF_ELV | RQF_SCHED_TAGS,
		.start_time_ns = now_ns, .tag = -1, .internal_tag = tag };
	INIT_LIST_HEAD(&rq->queuelist);
	RB_CLEAR_NODE(&rq->rb_node);
#ifdef SHIM_TASK
	rq->elv.icq = current->io_context->icq;
#endif
	if (elevator.type->ops.prepare_request)
		elevator.type->ops.prepare_request(rq);
	return rq;
}

static struct bio *shim_bio(const struct step *step)
{
	struct bio *bio = &bios[nr_bios++ % ARRAY_SIZE(bios)];

	*bio = (struct bio) { .bi_iter = { step->arg[1], step->arg[2] << 9 },
		.bi_opf = (step->arg[0] & 1) | (step->arg[0] & 2 ? REQ_SYNC : 0),
		.bi_ioprio = IOPRIO_PRIO_VALUE(step->arg[3] ? step->arg[3] : IOPRIO_CLASS_BE, 0) };
	return bio;
}

static bool shim_refused;

static void shim_run(void)
{
	while (elevator.type->ops.has_work(&hw_queue)) {
		if (nr_flying >= depth) {
			shim_refused = true;
			break;
		}
		struct request *rq = elevator.type->ops.dispatch_request(&hw_queue);
		if (!rq)
			break;
		rq->rq_flags |= RQF_STARTED;
		rq->io_start_time_ns = now_ns;
		in_flight[nr_flying++] = rq;
		printf(" %c%llu+%u", rq_data_dir(rq) ? 'W' : 'R', (unsigned long long)blk_rq_pos(rq), blk_rq_sectors(rq));
	}
}

static void shim_insert(struct request *rq, bool at_head)
{
	LIST_HEAD(list);

	list_add(&rq->queuelist, &list);
	elevator.type->ops.insert_requests(&hw_queue, &list, (int)at_head);
}

static struct blk_plug plug;

/* 5.10 looks whether the list is full where it takes a bio. */
static void shim_plug(struct request *rq)
{
#if SHIM_VERSION < 515
	if (plug.rq_count && (plug.rq_count >= blk_plug_max_rq_count(&plug) ||
			      blk_rq_bytes(list_last_entry(&plug.mq_list, struct request, queuelist)) >= BLK_PLUG_FLUSH_SIZE))
		blk_mq_flush_plug_list(&plug, false);
#endif
	blk_add_rq_to_plug(&plug, rq);
}

static bool shim_joins_plug(struct bio *bio, unsigned segments)
{
#if SHIM_VERSION < 515
	return blk_attempt_plug_merge(&queue, bio, segments, NULL);
#else
	return blk_attempt_plug_merge(&queue, bio, segments);
#endif
}

static void shim_complete(unsigned which)
{
	struct request *rq = in_flight[which % nr_flying];

	nr_flying--;
	for (unsigned i = which % (nr_flying + 1); i < nr_flying; i++)
		in_flight[i] = in_flight[i + 1];
	if (elevator.type->ops.completed_request)
		elevator.type->ops.completed_request(rq, now_ns);
	shim_free(rq);
}

/* A tunable, through the elevator's own parser. */
static void shim_set(const char *name, long value)
{
	const struct elv_fs_entry *entry = elevator.type->elevator_attrs;
	char text[32];

	while (entry->attr.name && strcmp(entry->attr.name, name))
		entry++;
	sprintf(text, "%ld", value);
	/* Older kernels have fewer. */
	if (entry->attr.name)
		entry->store(&elevator, text, strlen(text));
}

static void shim_start(unsigned nr_requests, unsigned driver_tags)
{
	memset(slots, 0, sizeof(slots));
	memset(&queue, 0, sizeof(queue));
	memset(&elevator.hash, 0, sizeof(elevator.hash));
	hw_queue.queue = soft_queue.queue = &queue;
	hw_queue.nr_ctx = 1;
	hw_queue.ctxs[0] = &soft_queue;
	atomic_set(&hw_queue.elevator_queued, 0);
	queue.hctx = &hw_queue;
	queue.disk = &disk;
	queue.nr_hw_queues = 1;
	queue.nr_requests = nr_requests;
	queue.async_depth = driver_tags;
	queue.limits = (struct queue_limits) { 1 << 20, 1 << 15 };
	nr_flying = 0;
	shim_refused = shim_wanted = false;
	memset(&plug, 0, sizeof(plug));
#ifdef SHIM_TASK
	shim_forget_tasks();
#endif
	current->plug = &plug;
#if SHIM_VERSION < 515
	INIT_LIST_HEAD(&plug.mq_list);
#endif
	depth = 1;
	queue.queue_hw_ctx[0] = &hw_queue;
	hw_queue.sched_tags = &tags;
#if SHIM_VERSION < 515
	tags.bitmap_tags = tag_map = &tags.__bitmap_tags;
#else
	tag_map = &tags.bitmap_tags;
#endif
	if (tag_map->ws)
		sbitmap_queue_free(tag_map);
	sbitmap_queue_init_node(tag_map, queue.nr_requests, -1, false, 0, 0);
	shim_init();
	if (elevator.type->ops.alloc_sched_data)
		elevator.elevator_data = elevator.type->ops.alloc_sched_data(&queue);
	elevator.type->ops.init_sched(&queue, SHIM_VERSION >= 700 ? (void *)&elevator : (void *)elevator.type);
	if (elevator.type->ops.init_hctx)
		elevator.type->ops.init_hctx(&hw_queue, 0);
}

static void shim_clock(u64 now)
{
	now_ns = now;
	jiffies = SHIM_JIFFIES + now_ns / tick_ns;
}

static void shim_pass(u64 until)
{
#ifdef SHIM_TIMER_NS
	while (shim_timer->pending && SHIM_TIMER_NS(shim_timer) <= until) {
		shim_clock(max(SHIM_TIMER_NS(shim_timer), now_ns));
		shim_timer->pending = false;
		shim_timer->function(shim_timer);
		if (shim_wanted)
			shim_run();
		shim_wanted = false;
	}
#endif
	shim_clock(until);
}

int main(void)
{
	struct step step;

	while (next_step(&step)) {
		switch (step.op) {
		case '#':
			tick_ns = 1000000000 / HZ;
			shim_clock(SHIM_UPTIME + tick_ns);
			shim_rotates = step.arg[5];
			shim_start(step.arg[4], step.arg[0]);
			depth = step.arg[0];
			queue.limits.max_sectors = step.arg[1];
			queue.limits.max_segments = step.arg[2];
			if (step.arg[3])
				set_bit(step.arg[3] == 2 ? QUEUE_FLAG_NOMERGES : QUEUE_FLAG_NOXMERGES, &queue.queue_flags);
			continue;
		case '=':
			shim_set(TUNABLES[step.arg[0]], step.arg[1]);
			continue;
		case '.':
			fflush(stdout);
			continue;
		case 'b':
		case 'p': {
			struct bio *bio = shim_bio(&step);
#ifdef SHIM_TASK
			shim_task(step.arg[4]);
#endif
			unsigned segments = DIV_ROUND_UP(step.arg[2], 8);
			bool may = !blk_queue_nomerges(&queue), plugs = step.op == 'p';
			bool joined = may && ((plugs && shim_joins_plug(bio, segments)) ||
					      elevator.type->ops.bio_merge(&queue, bio, segments));
#ifdef SHIM_TASK
			shim_context();
#endif
			struct request *rq = joined ? NULL : shim_request(bio, segments);
			putchar(joined ? 'j' : rq ? 'n' : 'x');
			if (rq && plugs)
				shim_plug(rq);
			else if (rq)
				shim_insert(rq, false);
			shim_wanted |= rq && !plugs;
			break;
		}
		case 'u':
			putchar('u');
#ifdef SHIM_TASK
			shim_task(0);
#endif
			blk_mq_flush_plug_list(&plug, false);
			break;
		case 'c':
			putchar('c');
			if (nr_flying)
				shim_complete(step.arg[0]);
			shim_wanted |= SHIM_RUNS_ALWAYS || xchg(&shim_refused, false);
			break;
#ifdef SHIM_TASK
		case 'e':
			putchar('e');
			shim_exit_task(step.arg[0]);
			break;
#endif
		case 'w':
			putchar('w');
			shim_pass(now_ns + step.arg[0] * 1000);
			break;
		}
		if (shim_wanted)
			shim_run();
		shim_wanted = false;
		putchar('\n');
	}
	return 0;
}
