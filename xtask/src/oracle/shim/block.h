/* Requests, bios and a queue, as far as elevators and the merging of requests look at them; and a device that takes
 * commands until it is full and completes those that it is told to. Written for this command; no text of a kernel. */
#include "tags.h"
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/rbtree.h>

enum { READ, WRITE };
enum { REQ_OP_READ, REQ_OP_WRITE, REQ_OP_FLUSH, REQ_OP_DISCARD, REQ_OP_SECURE_ERASE, REQ_OP_WRITE_ZEROES,
       REQ_OP_WRITE_SAME };
enum { REQ_SYNC = 1 << 8, REQ_NOMERGE = 1 << 9, REQ_FAILFAST_MASK = 1 << 10, REQ_IDLE = 1 << 11, REQ_FUA = 1 << 12,
       REQ_PREFLUSH = 1 << 13, REQ_NOMERGE_FLAGS = REQ_NOMERGE | REQ_PREFLUSH | REQ_FUA, REQ_RAHEAD = 1 << 14,
       REQ_OP_MASK = 255, REQ_META = 1 << 15, REQ_PRIO = 1 << 16 };
#define REQ_OP_BITS 8
#define REQ_PREFLUSH REQ_PREFLUSH
enum { RQF_STARTED = 1, RQF_HASHED = 2, RQF_MIXED_MERGE = 4, RQF_SORTED = 8, RQF_NOMERGE_FLAGS = RQF_STARTED,
       RQF_ELVPRIV = 16, RQF_IO_STAT = 32, RQF_USE_SCHED = 64, RQF_SPECIAL_PAYLOAD = 128, RQF_QUIET = 256, RQF_ZONE_WRITE_PLUGGING = 512, RQF_ELV = 1024,
       RQF_SCHED_TAGS = 2048, BLK_MQ_F_TAG_QUEUE_SHARED = 1 };
enum { IOPRIO_CLASS_NONE, IOPRIO_CLASS_RT, IOPRIO_CLASS_BE, IOPRIO_CLASS_IDLE };
#define IOPRIO_PRIO_CLASS(prio) ((prio) >> 13)
#define IOPRIO_PRIO_VALUE(class, data) ((class) << 13 | (data))
enum elv_merge { ELEVATOR_NO_MERGE = 0, ELEVATOR_FRONT_MERGE = 1, ELEVATOR_BACK_MERGE = 2, ELEVATOR_DISCARD_MERGE = 3 };
enum bio_merge_status { BIO_MERGE_OK, BIO_MERGE_NONE, BIO_MERGE_FAILED };
enum { QUEUE_FLAG_NOMERGES, QUEUE_FLAG_NOXMERGES, QUEUE_FLAG_SQ_SCHED, ELEVATOR_F_ZBD_SEQ_WRITE };
#define BLK_MQ_INSERT_AT_HEAD 1
#define RQ_END_IO_NONE 0

struct request;
struct io_cq;
#if SHIM_VERSION < 515
typedef struct list_head shim_plug_list;
#elif SHIM_VERSION < 612
typedef struct request *shim_plug_list;
#else
struct rq_list { struct request *head, *tail; };
typedef struct rq_list shim_plug_list;
#endif
struct blk_plug {
	shim_plug_list mq_list;
	unsigned short rq_count;
	bool multiple_queues, has_elevator;
};
#ifndef SHIM_TASK
static struct { struct blk_plug *plug; } shim_only_task;
#define current (&shim_only_task)
#endif
struct bvec_iter { sector_t bi_sector; unsigned bi_size; };
struct bio {
	struct bvec_iter bi_iter;
	struct bio *bi_next;
	void *bi_disk;
	unsigned bi_opf;
	u16 bi_ioprio, bi_write_hint, bi_write_stream, bi_flags;
};
struct request;
struct elevator_queue;
struct request_queue;
struct sbitmap_word;
#if SHIM_VERSION < 515
struct blk_mq_tags { struct sbitmap_queue *bitmap_tags, __bitmap_tags; };
#else
struct blk_mq_tags { struct sbitmap_queue bitmap_tags; };
#endif
struct blk_mq_ctx { int cpu, index_hw[3]; struct request_queue *queue; };
struct blk_mq_hw_ctx {
	struct request_queue *queue;
	struct list_head dispatch;
	spinlock_t lock;
	unsigned dispatch_busy;
	unsigned type, queue_num, nr_ctx, numa_node;
	unsigned long state, flags;
	atomic_t elevator_queued;
	struct blk_mq_tags *tags, *sched_tags;
	void *sched_data;
	struct blk_mq_ctx *ctxs[1];
};
struct blk_mq_alloc_data {
	struct request_queue *q;
	unsigned flags, shallow_depth, cmd_flags;
	struct blk_mq_ctx *ctx;
	struct blk_mq_hw_ctx *hctx;
};
struct attribute { const char *name; unsigned short mode; };
struct elv_fs_entry {
	struct attribute attr;
	ssize_t (*show)(struct elevator_queue *, char *);
	ssize_t (*store)(struct elevator_queue *, const char *, size_t);
};
#define __ATTR(_name, _mode, _show, _store) { { #_name, _mode }, _show, _store }
#define __ATTR_NULL { { NULL, 0 }, NULL, NULL }
struct elevator_mq_ops {
	int (*init_sched)(struct request_queue *, void *);
	void (*exit_sched)(struct elevator_queue *);
	int (*init_hctx)(struct blk_mq_hw_ctx *, unsigned);
	void (*exit_hctx)(struct blk_mq_hw_ctx *, unsigned);
	void *(*alloc_sched_data)(struct request_queue *);
	void (*free_sched_data)(void *);
	void (*depth_updated)(void *);
	bool (*allow_merge)(struct request_queue *, struct request *, struct bio *);
	bool (*bio_merge)();
	int (*request_merge)(struct request_queue *, struct request **, struct bio *);
	void (*request_merged)(struct request_queue *, struct request *, enum elv_merge);
	void (*requests_merged)(struct request_queue *, struct request *, struct request *);
	void (*limit_depth)(unsigned, struct blk_mq_alloc_data *);
	void (*prepare_request)(struct request *);
	void (*finish_request)(struct request *);
	void (*insert_requests)();
	struct request *(*dispatch_request)(struct blk_mq_hw_ctx *);
	bool (*has_work)(struct blk_mq_hw_ctx *);
	void (*completed_request)(struct request *, u64);
	void (*requeue_request)(struct request *);
	struct request *(*former_request)(struct request_queue *, struct request *);
	struct request *(*next_request)(struct request_queue *, struct request *);
	void (*init_icq)(void *);
	void (*exit_icq)(void *);
};
struct elevator_type {
	struct elevator_mq_ops ops;
	size_t icq_size, icq_align;
	const struct elv_fs_entry *elevator_attrs;
	const char *elevator_name, *elevator_alias;
	unsigned elevator_features;
	void *elevator_owner;
};
struct kobject { int unused; };
struct elevator_queue {
	struct elevator_type *type;
	void *elevator_data;
	struct kobject kobj;
	unsigned long flags;
	DECLARE_HASHTABLE(hash, 6);
};
struct gendisk { void *ia_ranges, *bdi; };
struct queue_limits { unsigned max_sectors, max_segments; };
struct request_queue {
	struct elevator_queue *elevator;
	struct request *last_merge;
	unsigned long queue_flags, nr_requests, async_depth;
	struct queue_limits limits;
	int node, id;
	unsigned nr_hw_queues;
	struct blk_mq_hw_ctx *hctx, *queue_hw_ctx[1];
	void *stats;
	struct gendisk *disk;
	struct { void *queue_rqs; } *mq_ops;
	spinlock_t queue_lock;
};
struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	struct blk_mq_ctx *mq_ctx;
	unsigned cmd_flags, rq_flags, __data_len, stats_sectors;
	sector_t __sector;
	unsigned short nr_phys_segments, nr_integrity_segments, ioprio, write_hint;
	u8 phys_gap_bit;
	int tag, internal_tag, state;
	u64 start_time_ns, io_start_time_ns, alloc_time_ns;
	unsigned long fifo_time;
	struct request *rq_next;
	struct list_head queuelist;
	struct hlist_node hash;
	struct rb_node rb_node;
	struct bio *bio, *biotail;
	void *part, *rq_disk;
	struct { struct io_cq *icq; void *priv[2]; } elv;
};

#define ELV_ON_HASH(rq) ((rq)->rq_flags & RQF_HASHED)
#define rq_entry_fifo(node) container_of(node, struct request, queuelist)
#define rb_entry_rq(node) container_of(node, struct request, rb_node)
static inline sector_t blk_rq_pos(const struct request *rq) { return rq->__sector; }
#define blk_rq_bytes(rq) ((rq)->__data_len)
#define blk_rq_sectors(rq) ((rq)->__data_len >> 9)
#define req_op(rq) ((rq)->cmd_flags & REQ_OP_MASK)
#define bio_op(bio) ((bio)->bi_opf & REQ_OP_MASK)
#define op_is_write(op) (((op) & REQ_OP_MASK) & 1)
#define op_is_sync(op) (((op) & REQ_OP_MASK) == REQ_OP_READ || (op) & (REQ_SYNC | REQ_FUA | REQ_PREFLUSH))
#define blk_mq_is_sync_read(op) (op_is_sync(op) && !op_is_write(op))
#define rq_data_dir(rq) (op_is_write((rq)->cmd_flags) ? WRITE : READ)
#define bio_data_dir(bio) (op_is_write((bio)->bi_opf) ? WRITE : READ)
#define bio_sectors(bio) ((bio)->bi_iter.bi_size >> 9)
#define bio_end_sector(bio) ((bio)->bi_iter.bi_sector + bio_sectors(bio))
#define req_get_ioprio(rq) ((rq)->ioprio)
#define bio_prio(bio) ((bio)->bi_ioprio)
#define blk_rq_is_passthrough(rq) false
#define rq_is_sync(rq) op_is_sync((rq)->cmd_flags)
#define rq_mergeable(rq) (!((rq)->cmd_flags & REQ_NOMERGE_FLAGS) && !((rq)->rq_flags & RQF_NOMERGE_FLAGS))
#define bio_mergeable(bio) (!((bio)->bi_opf & REQ_NOMERGE_FLAGS))
#define blk_queue_nomerges(q) test_bit(QUEUE_FLAG_NOMERGES, &(q)->queue_flags)
#define blk_queue_noxmerges(q) test_bit(QUEUE_FLAG_NOXMERGES, &(q)->queue_flags)
#define blk_queue_flag_set(flag, q) set_bit(flag, &(q)->queue_flags)
#define blk_queue_flag_clear(flag, q) clear_bit(flag, &(q)->queue_flags)
#define blk_queue_rot(q) shim_rotates
#define blk_queue_is_zoned(q) false
static bool shim_rotates;
#define blk_queue_nonrot(q) (!shim_rotates)
#define blk_discard_mergable(rq) false
#define blk_req_zone_write_lock(rq) ((void)(rq))
#define blk_req_zone_write_unlock(rq) ((void)(rq))
#define blk_req_can_dispatch_to_zone(rq) ((void)(rq), true)
#define blk_mq_sched_mark_restart_hctx(hctx) ((void)(hctx))
#define blk_mq_sched_request_inserted(rq) ((void)(rq))
static struct sbitmap_queue *tag_map;
#define blk_mq_set_min_shallow_depth(q, depth) sbitmap_queue_min_shallow_depth(tag_map, depth)
#define trace_block_rq_insert(...) ((void)0)
#define trace_block_rq_merge(...) ((void)0)
#define trace_block_bio_backmerge(...) ((void)0)
#define trace_block_bio_frontmerge(...) ((void)0)
#define rq_qos_merge(...) ((void)0)
#define blk_account_io_merge_request(rq) ((void)0)
#define blk_account_io_merge_bio(rq) ((void)0)
#define blk_account_io_merge(...) ((void)0)
#define blk_zone_write_plug_bio_merged(bio) ((void)0)
#define blk_crypto_rq_put_keyslot(rq) ((void)0)
#define blk_crypto_free_request(rq) ((void)0)
#define bio_crypt_do_front_merge(rq, bio) ((void)0)
#define bio_crypt_ctx_back_mergeable(rq, bio) true
#define bio_crypt_ctx_front_mergeable(rq, bio) true
#define bio_crypt_ctx_merge_rq(a, b) true
#define bio_crypt_rq_ctx_compatible(rq, bio) true
#define blk_integrity_rq(rq) false
#define bio_integrity(bio) NULL
#define blk_rq_count_integrity_sg(...) 0
#define bio_crypt_free_ctx(bio) ((void)0)
#define blk_integrity_merge_rq(q, a, b) true
#define blk_integrity_merge_bio(q, rq, bio) true
#define integrity_req_gap_back_merge(rq, bio) false
#define integrity_req_gap_front_merge(rq, bio) false
#define req_gap_back_merge(rq, bio) false
#define req_gap_front_merge(rq, bio) false
#define bio_seg_gap(...) 0
#define blk_cgroup_mergeable(rq, bio) true
#define blk_atomic_write_mergeable_rqs(a, b) true
#define blk_atomic_write_mergeable_rq_bio(rq, bio) true
#define blk_write_same_mergeable(a, b) true
#define blk_same_write_mergeable(a, b) true
#define bio_will_gap(...) false
#define blk_rq_set_mixed_merge(rq) ((void)(rq))
#define blk_update_mixed_merge(rq, bio, front) ((void)0)
#define bio_failfast(bio) 0
#define req_attempt_discard_merge(q, a, b) false
#define bio_attempt_discard_merge(q, rq, bio) BIO_MERGE_NONE
#define blk_rq_get_max_sectors(rq, at) ((rq)->q->limits.max_sectors)
#define blk_rq_get_max_segments(rq) ((rq)->q->limits.max_segments)
/* A plug is flushed to the elevator only; the queue is run at the end of the step. */
#define blk_mq_plug(...) (current->plug)
#define list_entry_rq(p) list_entry(p, struct request, queuelist)
#define list_sort(...) BUG()
static bool shim_wanted;
#define blk_mq_run_hw_queue(hctx, async) ((void)(shim_wanted = true))
#define blk_mq_run_dispatch_ops(q, what) BUG()
#define blk_mq_try_issue_list_directly(hctx, list) BUG()
#define blk_mq_insert_requests(...) BUG()
#define blk_mq_dispatch_multiple_queue_requests(list) BUG()
#define blk_mq_dispatch_queue_requests(list, depth) BUG()
#define blk_plug_invalidate_ts() ((void)0)
#define percpu_ref_get(r) ((void)0)
#define percpu_ref_put(r) ((void)0)
#define trace_block_plug(q) ((void)0)
#define trace_block_unplug(...) ((void)0)
#define kobject_put(k) ((void)(k))
#define queue_max_segments(q) ((q)->limits.max_segments)
#define queue_max_discard_segments(q) 1
#define blk_stat_enable_accounting(q) ((void)(q))
#define blk_stat_disable_accounting(q) ((void)(q))
#define wbt_disable_default(q) ((void)(q))
#define wbt_enable_default(q) ((void)(q))

static struct request_queue queue;
static struct gendisk disk;
static struct blk_mq_hw_ctx hw_queue;
static struct blk_mq_ctx soft_queue;
static struct elevator_queue elevator;
static void shim_free(struct request *rq);

static inline void req_set_nomerge(struct request_queue *q, struct request *rq)
{
	rq->cmd_flags |= REQ_NOMERGE;
	if (q->last_merge == rq)
		q->last_merge = NULL;
}
static inline struct elevator_queue *elevator_alloc(struct request_queue *q, struct elevator_type *type)
{
	elevator.type = type;
	return &elevator;
}
static inline void blk_mq_free_request(struct request *rq) { shim_free(rq); }
static inline void blk_mq_free_requests(struct list_head *list)
{
	while (!list_empty(list)) {
		struct request *rq = list_first_entry(list, struct request, queuelist);
		list_del_init(&rq->queuelist);
		shim_free(rq);
	}
}
static inline void blk_put_request(struct request *rq) { shim_free(rq); }
static int elv_register(struct elevator_type *type) { elevator.type = type; return 0; }
static void elv_unregister(struct elevator_type *type) { (void)type; }
static bool blk_mq_sched_allow_merge(struct request_queue *q, struct request *rq, struct bio *bio)
{
	struct elevator_type *type = q->elevator->type;
	return !type->ops.allow_merge || type->ops.allow_merge(q, rq, bio);
}
static bool elv_iosched_allow_bio_merge(struct request *rq, struct bio *bio)
{
	return blk_mq_sched_allow_merge(rq->q, rq, bio);
}
