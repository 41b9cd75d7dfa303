/* Queues of those who sleep. Written for this command; no text of a kernel. */
/* Sleepers are called in their order until one refuses. */
typedef struct wait_queue_head { spinlock_t lock; struct list_head head; } wait_queue_head_t;
struct wait_queue_entry {
	unsigned flags;
	void *private;
	int (*func)(struct wait_queue_entry *, unsigned, int, void *);
	struct list_head entry;
};
#define init_waitqueue_head(q) INIT_LIST_HEAD(&(q)->head)
#define wq_has_sleeper(q) (!list_empty(&(q)->head))
#define list_del_init_careful(entry) list_del_init(entry)
#define set_current_state(state) ((void)0)
#define finish_wait(q, e) list_del_init(&(e)->entry)
#define waitqueue_active(q) (!list_empty(&(q)->head))
#define init_wait_func(e, f) ((e)->func = (f), (e)->private = current, INIT_LIST_HEAD(&(e)->entry))
#define default_wake_function(e, ...) (wake_up_process((e)->private), 1)
static bool prepare_to_wait_exclusive(wait_queue_head_t *queue, struct wait_queue_entry *entry, int state)
{
	bool empty = list_empty(&queue->head);

	list_add_tail(&entry->entry, &queue->head);
	return empty;
}
static void shim_wake_up(wait_queue_head_t *queue, unsigned most)
{
	struct wait_queue_entry *at, *next;

	list_for_each_entry_safe(at, next, &queue->head, entry)
		if (at->func(at, 3, 0, NULL) < 0 || --most == 0)
			break;
}
#define wake_up(queue) shim_wake_up(queue, 1)
#define wake_up_all(queue) shim_wake_up(queue, 0)
