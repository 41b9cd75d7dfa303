// Events of the kernel's I/O path, with the fields that tracefs has of them; their kinds and offsets are those of the
// tables in programs.rs.
//
// raw        a program on each raw tracepoint that records have a meaning for; it reads the kernel's structures
// calls      one program for the begin of all system calls, and one for their ends: number, arguments, result
// others     a program on each classic tracepoint that copies the event as the kernel has laid it out
// filters    tasks with their children, files, devices, as for tracefs
// stacks     on request: of a task that leaves the CPU to wait, before its switch, by frame pointers
// ring       one for all CPUs, read every few milliseconds: nobody is woken by an event
//
// Known limits: an event has no context (interrupts off, in an interrupt), which a program cannot ask for. A program
// that interrupts itself does not run; the kernel counts these, and they count as lost. The kernel lends the helpers to
// programs under the GPL only: of this file, "Dual MIT/GPL". `record.bpf.o` is made of it by the command in bpf.rs.
#include "kernel.h"

struct folio { struct address_space *mapping; unsigned long index, _flags_1; } KERNEL;
struct file_ra_state {
	unsigned int size, async_size, ra_pages;
	unsigned short order, mmap_miss;
	s64 prev_pos;
} KERNEL;
struct file_ra_state___wide { unsigned int mmap_miss; } KERNEL;
struct signal_struct { short oom_score_adj; } KERNEL;
struct thread_info { u32 status; } KERNEL;
struct pt_regs___sp { unsigned long sp; } KERNEL;
struct task_struct {
	struct thread_info thread_info;
	int pid, exit_state;
	struct signal_struct *signal;
	char comm[16];
} KERNEL;
struct block_device { u32 bd_dev; } KERNEL;
struct bvec_iter { u64 bi_sector; unsigned int bi_size; } KERNEL;
struct bio { struct block_device *bi_bdev; u32 bi_opf; u8 bi_status; struct bvec_iter bi_iter; } KERNEL;

enum req_op { REQ_OP_WRITE, REQ_OP_FLUSH, REQ_OP_DISCARD, REQ_OP_SECURE_ERASE, REQ_OP_DRV_IN, REQ_OP_DRV_OUT };
enum req_flag_bits { __REQ_SYNC, __REQ_META, __REQ_FUA, __REQ_PREFLUSH, __REQ_RAHEAD };
enum pageflags { PG_head };

// Whose records there are: nobody's, everybody's, or only of pages that leave the page cache.
enum { OFF, ALL, LEAVING };
// Kinds of tasks.
enum { FOLLOWED = 1, OWN };
// Filters of copied tracepoints.
enum { TASK, DEVICE };
// Numbers of the records' kinds: those of system calls are their own number and CALL_BEGIN or CALL_END.
enum {
	RQ_ISSUE = 1, RQ_COMPLETE, BIO_COMPLETE, BIO_QUEUE, GETRQ, BACKMERGE, FRONTMERGE, RQ_MERGE, RQ_INSERT, RQ_REQUEUE,
	SPLIT, REMAP, PLUG, UNPLUG, RA_SYNC, RA_ASYNC, RA_ORDER, RA_UNBOUNDED, PAGE_ADD, PAGE_REMOVE, GET_PAGES, FAULT,
	SWITCH, WAKING, NEWTASK, RENAME, STACK,
	COPIED = 0x100, CALL_BEGIN = 0x1000, CALL_END = 0x2000,
};

#define CALLS 512
#define BEGINS 1
#define ENDS 2
// It has four arguments at most.
#define FEW 4
#define COPIES 32
#define MINORS 20
// The most calls of a stack that are recorded, the innermost ones.
#define DEEP 24
// Words on top of a stack.
#define TOP 8

// The head of a record: time and CPU, then the fields that all events begin with.
struct head { u64 time; u32 cpu, unused; u16 kind; u8 flags, count; u32 pid; };
struct block { struct head head; u32 dev, nr_sector; u64 sector; u32 bytes; s32 error; u64 rwbs; char comm[16]; };
struct two { struct block block; u64 sector; u32 dev; };
struct plug { struct head head; s32 nr_rq; char comm[16]; };
struct pages { struct head head; u64 i_ino, index, last_index; u32 s_dev, order; };
struct window {
	struct head head;
	u64 i_ino, index, req_count, nr_to_read, lookahead_size;
	s64 prev_pos;
	u32 s_dev, order, size, async_size, ra_pages, mmap_miss;
};
struct switched { struct head head; u32 next_pid, prev_state; char comm[16]; };
struct stacked { struct head head; u32 tgid, count; u64 calls[DEEP], top[TOP]; };
struct woken { struct head head; s32 pid; char comm[16]; };
struct started { struct head head; s32 pid; char comm[16]; u64 clone_flags; s16 oom_score_adj; };
struct renamed { struct head head; s32 pid; char oldcomm[16], newcomm[16]; s16 oom_score_adj; };
struct begun { struct head head; u64 number, few[4], more[2]; };
struct ended { struct head head; u64 number; s64 result; };
struct file_id { u64 ino; u32 dev, unused; };

const volatile u8 by_task, by_file, by_device;
// Pages that leave are wanted whoever takes them away.
const volatile u8 all_leaving;
// Stacks of tasks that begin to wait are wanted.
const volatile u8 stacks;
const volatile u8 calls[CALLS];
// Of each tracepoint that is copied: bytes of its record, filter, and where its device is; 0 if it has none.
const volatile u16 sizes[COPIES], devices_at[COPIES];
const volatile u8 places[COPIES];
volatile u32 state SEC(".data");
u64 lost;

struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 65536); __type(key, u32); __type(value, u8); }
	tasks SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, struct file_id); __type(value, u8); }
	files SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, u32); __type(value, u8); }
	devices SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 20); } ring SEC(".maps");

#define CURRENT ((struct task_struct *)bpf_get_current_task_btf())

static __always_inline int passes(u32 pid)
{
	u8 *is = bpf_map_lookup_elem(&tasks, &pid);
	return by_task ? is && *is == FOLLOWED : !is || *is != OWN;
}

static __always_inline int on_device(u32 dev)
{
	return !by_device || bpf_map_lookup_elem(&devices, &dev);
}

// A block device's own pages are of an inode with its number, in a file system without a device.
static __always_inline int page_passes(u64 ino, u32 dev)
{
	struct file_id id = { ino, dev, 0 };
	u32 as_device = ino;
	if (!by_file && !by_device)
		return 1;
	if (by_file && bpf_map_lookup_elem(&files, &id))
		return 1;
	if (!by_device)
		return 0;
	if (!by_file && bpf_map_lookup_elem(&devices, &dev))
		return 1;
	return !(dev >> MINORS) && as_device == ino && bpf_map_lookup_elem(&devices, &as_device);
}

// Without such a filter it depends on the task.
static __always_inline int page_passes_of(u32 pid, int anybody)
{
	return by_file || by_device || anybody || passes(pid);
}

// Room for a record of this kind, with its head; `pid` is the current task's.
static __always_inline void *room(u32 size, u16 kind, u32 pid)
{
	u64 time = bpf_ktime_get_ns();
	struct head *head = bpf_ringbuf_reserve(&ring, size, 0);
	if (!head) {
		__sync_fetch_and_add(&lost, 1);
		return NULL;
	}
	head->time = time;
	head->cpu = bpf_get_smp_processor_id();
	head->unused = 0;
	head->kind = kind;
	head->flags = head->count = 0;
	head->pid = pid;
	return head;
}

static __always_inline int done(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

#define FLAG(name) (1U << bpf_core_enum_value(enum req_flag_bits, name))
// Numbers of operations have not changed since they got them; the names have, of the type.
#define OP(name, number) \
	(bpf_core_enum_value_exists(enum req_op, name) ? bpf_core_enum_value(enum req_op, name) : number)
#define LETTER(is, letter) \
	if (is) { \
		letters |= (u64)(letter) << shift; \
		shift += 8; \
	}

static __always_inline u64 rwbs(u32 flags)
{
	u64 letters = 0, shift = 0;
	u8 op = flags;
	LETTER(flags & FLAG(__REQ_PREFLUSH), 'F');
	if (op == OP(REQ_OP_FLUSH, 2))
		op = 'F';
	else if (op == OP(REQ_OP_DISCARD, 3) || op == OP(REQ_OP_SECURE_ERASE, 5))
		op = 'D';
	else
		op = op == 0 ? 'R' : op == OP(REQ_OP_WRITE, 1) ? 'W' : 'N';
	LETTER(1, op);
	LETTER(flags & FLAG(__REQ_FUA), 'F');
	LETTER(flags & FLAG(__REQ_RAHEAD), 'A');
	LETTER(flags & FLAG(__REQ_SYNC), 'S');
	LETTER(flags & FLAG(__REQ_META), 'M');
	return letters;
}

// The error number of a status; tracepoints of older kernels have a negative error number already.
static __always_inline s32 error_of(u32 status)
{
	const u8 numbers[] = { 0, 95, 110, 28, 67, 121, 52, 61, 84, 12, 5, 78, 11, 16, 109, 75, 19, 62, 22, 0 };
	s32 error = -5;
	status &= 0xff;
	if (status > 127)
		return (s32)status - 256;
#pragma unroll
	for (u32 nr = 0; nr < sizeof(numbers); nr++)
		if (status == nr)
			error = -(s32)numbers[nr];
	return error;
}

// The fields that all bios and requests have.
static __always_inline void fill(struct block *out, u32 dev, u64 sector, u32 nr_sector, u32 bytes, s32 error, u32 flags,
				 struct task_struct *task)
{
	out->dev = dev;
	out->sector = sector;
	out->nr_sector = nr_sector;
	out->bytes = bytes;
	out->error = error;
	out->rwbs = rwbs(flags);
	__builtin_memcpy(out->comm, task->comm, sizeof(out->comm));
}

static __always_inline int of_bio(u16 kind, struct bio *bio, s32 error)
{
	u32 dev = bio->bi_bdev->bd_dev;
	if (state != ALL || !on_device(dev))
		return 0;
	struct task_struct *task = CURRENT;
	struct block *out = room(sizeof(*out), kind, task->pid);
	if (!out)
		return 0;
	fill(out, dev, bio->bi_iter.bi_sector, bio->bi_iter.bi_size >> 9, 0, error, bio->bi_opf, task);
	return done(out);
}

static __always_inline u32 device_of(struct request *rq)
{
	struct gendisk *disk = disk_of(rq);
	return disk ? (u32)disk->major << MINORS | disk->first_minor : 0;
}

// `bytes` of it have completed, or else all of it is meant. Commands of drivers have no place.
static __always_inline int of_request(u16 kind, struct request *rq, s32 error, u32 bytes, int completed)
{
	u32 dev = device_of(rq), flags = rq->cmd_flags;
	u64 sector = rq->__sector;
	u8 op = flags;
	if (state != ALL || !on_device(dev))
		return 0;
	struct task_struct *task = CURRENT;
	struct block *out = room(sizeof(*out), kind, task->pid);
	if (!out)
		return 0;
	int foreign = op == OP(REQ_OP_DRV_IN, 34) || op == OP(REQ_OP_DRV_OUT, 35);
	u32 length = completed ? bytes : foreign ? 0 : rq->__data_len;
	if (!completed && (foreign || sector == (u64)-1))
		sector = 0;
	fill(out, dev, sector, length >> 9, completed ? 0 : rq->__data_len, error, flags, task);
	return done(out);
}

#define OF_REQUEST(name, event, kind) \
	SEC("tp_btf/" #event) int BPF_PROG(name, struct request *rq) { return of_request(kind, rq, 0, 0, 0); }
#define OF_BIO(name, event, kind) \
	SEC("tp_btf/" #event) int BPF_PROG(name, struct bio *bio) { return of_bio(kind, bio, 0); }

OF_REQUEST(rq_issue, block_rq_issue, RQ_ISSUE)
OF_REQUEST(rq_merge, block_rq_merge, RQ_MERGE)
OF_REQUEST(rq_insert, block_rq_insert, RQ_INSERT)
OF_REQUEST(rq_requeue, block_rq_requeue, RQ_REQUEUE)
OF_BIO(bio_queue, block_bio_queue, BIO_QUEUE)
OF_BIO(getrq, block_getrq, GETRQ)
OF_BIO(backmerge, block_bio_backmerge, BACKMERGE)
OF_BIO(frontmerge, block_bio_frontmerge, FRONTMERGE)

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int bytes)
{
	return of_request(RQ_COMPLETE, rq, error_of(error), bytes, 1);
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete, struct request_queue *q, struct bio *bio)
{
	return of_bio(BIO_COMPLETE, bio, error_of(bio->bi_status));
}

static __always_inline int of_two(u16 kind, struct bio *bio, u64 other, u32 other_dev)
{
	u32 dev = bio->bi_bdev->bd_dev;
	if (state != ALL || (!on_device(dev) && !(kind == REMAP && on_device(other_dev))))
		return 0;
	struct task_struct *task = CURRENT;
	struct two *out = room(sizeof(*out), kind, task->pid);
	if (!out)
		return 0;
	fill(&out->block, dev, bio->bi_iter.bi_sector, bio->bi_iter.bi_size >> 9, 0, 0, bio->bi_opf, task);
	out->sector = other;
	out->dev = other_dev;
	return done(out);
}

SEC("tp_btf/block_split")
int BPF_PROG(split, struct bio *bio, unsigned int new_sector)
{
	return of_two(SPLIT, bio, new_sector, 0);
}

SEC("tp_btf/block_bio_remap")
int BPF_PROG(remap, struct bio *bio, u32 dev, u64 from)
{
	return of_two(REMAP, bio, from, dev);
}

static __always_inline int of_plug(u16 kind, s32 nr_rq)
{
	struct task_struct *task = CURRENT;
	if (state != ALL || !passes(task->pid))
		return 0;
	struct plug *out = room(sizeof(*out), kind, task->pid);
	if (!out)
		return 0;
	out->nr_rq = nr_rq;
	__builtin_memcpy(out->comm, task->comm, sizeof(out->comm));
	return done(out);
}

SEC("tp_btf/block_plug")
int BPF_PROG(plug)
{
	return of_plug(PLUG, 0);
}

SEC("tp_btf/block_unplug")
int BPF_PROG(unplug, struct request_queue *q, unsigned int depth)
{
	return of_plug(UNPLUG, depth);
}

static __always_inline int of_pages(u16 kind, struct inode *inode, u64 index, u64 last, u32 order, int anybody)
{
	u64 ino = inode->i_ino;
	u32 dev = inode->i_sb->s_dev;
	if (!page_passes(ino, dev))
		return 0;
	u32 pid = CURRENT->pid;
	if (!page_passes_of(pid, anybody))
		return 0;
	struct pages *out = room(sizeof(*out), kind, pid);
	if (!out)
		return 0;
	out->i_ino = ino;
	out->s_dev = dev;
	out->index = index;
	out->last_index = last;
	out->order = order;
	return done(out);
}

static __always_inline int of_folio(u16 kind, struct folio *folio, int anybody)
{
	// The flags come first; their type has changed.
	u64 flags = *(u64 *)folio;
	u32 order = flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1 ? folio->_flags_1 & 0xff : 0;
	return of_pages(kind, folio->mapping->host, folio->index, 0, order, anybody);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_add, struct folio *folio)
{
	return state == ALL ? of_folio(PAGE_ADD, folio, 0) : 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(page_remove, struct folio *folio)
{
	return state != OFF ? of_folio(PAGE_REMOVE, folio, all_leaving) : 0;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(get_pages, struct address_space *mapping, unsigned long index, unsigned long last)
{
	return state == ALL ? of_pages(GET_PAGES, mapping->host, index, last, 0, 0) : 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(fault, struct address_space *mapping, unsigned long index)
{
	return state == ALL ? of_pages(FAULT, mapping->host, index, 0, 0, 0) : 0;
}

static __always_inline int of_window(u16 kind, struct inode *inode, u64 index, struct file_ra_state *ra, u64 count,
				     u64 ahead)
{
	u64 ino = inode->i_ino;
	u32 dev = inode->i_sb->s_dev;
	if (state != ALL || !page_passes(ino, dev))
		return 0;
	u32 pid = CURRENT->pid;
	if (!page_passes_of(pid, 0))
		return 0;
	struct window *out = room(sizeof(*out), kind, pid);
	if (!out)
		return 0;
	out->i_ino = ino;
	out->s_dev = dev;
	out->index = index;
	out->req_count = out->nr_to_read = count;
	out->lookahead_size = ahead;
	out->prev_pos = 0;
	out->order = out->size = out->async_size = out->ra_pages = out->mmap_miss = 0;
	if (ra) {
		struct file_ra_state___wide *wide = (void *)ra;
		out->prev_pos = ra->prev_pos;
		out->order = ra->order;
		out->size = ra->size;
		out->async_size = ra->async_size;
		out->ra_pages = ra->ra_pages;
		out->mmap_miss = bpf_core_field_size(wide->mmap_miss) == 4 ? wide->mmap_miss : ra->mmap_miss;
	}
	return done(out);
}

SEC("tp_btf/page_cache_sync_ra")
int BPF_PROG(ra_sync, struct inode *inode, unsigned long index, struct file_ra_state *ra, unsigned long count)
{
	return of_window(RA_SYNC, inode, index, ra, count, 0);
}

SEC("tp_btf/page_cache_async_ra")
int BPF_PROG(ra_async, struct inode *inode, unsigned long index, struct file_ra_state *ra, unsigned long count)
{
	return of_window(RA_ASYNC, inode, index, ra, count, 0);
}

SEC("tp_btf/page_cache_ra_order")
int BPF_PROG(ra_order, struct inode *inode, unsigned long index, struct file_ra_state *ra)
{
	return of_window(RA_ORDER, inode, index, ra, 0, 0);
}

SEC("tp_btf/page_cache_ra_unbounded")
int BPF_PROG(ra_unbounded, struct inode *inode, unsigned long index, unsigned long count, unsigned long ahead)
{
	return of_window(RA_UNBOUNDED, inode, index, NULL, count, ahead);
}

// The calls that the current task has come to wait through; a thread of the kernel has none. The innermost function of
// a library has often no frame of its own: its caller is among the words on top of the stack, or in a register.
static __always_inline void of_stack(void *ctx, struct task_struct *task)
{
	struct stacked *out = room(sizeof(*out), STACK, task->pid);
	if (!out)
		return;
	long bytes = bpf_get_stack(ctx, out->calls, sizeof(out->calls), BPF_F_USER_STACK);
	if (bytes <= 0) {
		bpf_ringbuf_discard(out, BPF_RB_NO_WAKEUP);
		return;
	}
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	struct pt_regs___sp *at = (void *)regs;
	struct pt_regs___arm64 *arm = (void *)regs;
	__builtin_memset(out->top, 0, sizeof(out->top));
	if (bpf_core_field_exists(regs->di))
		bpf_probe_read_user(out->top, sizeof(out->top), (void *)at->sp);
	else
		out->top[0] = arm->regs[30];
	out->tgid = bpf_get_current_pid_tgid() >> 32;
	out->count = bytes / sizeof(u64);
	done(out);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, u8 preempted, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	if (state != ALL || (!passes(prev->pid) && !passes(next->pid)))
		return 0;
	// Of the states the kernel reports the highest, the idle one (0x402) as 0x80, those that wait for a lock or are
	// frozen (0x1000, 0x8000) as uninterruptible; one that lost the CPU as 0x100.
	u32 reported = (prev_state | prev->exit_state) & 0x7f;
	reported = (prev_state & 0x402) == 0x402 ? 0x80 : prev_state & 0x9000 ? 2 : reported;
#pragma unroll
	for (u32 bit = 0x80; bit > 1; bit >>= 1)
		if (reported & bit)
			reported = bit;
	// One that ends (0x10, 0x20) waits for nothing.
	if (stacks && !(preempted & 1) && reported && !(reported & 0x30) && passes(prev->pid))
		of_stack(ctx, prev);
	struct switched *out = room(sizeof(*out), SWITCH, prev->pid);
	if (!out)
		return 0;
	out->prev_state = preempted & 1 ? 0x100 : reported;
	out->next_pid = next->pid;
	__builtin_memcpy(out->comm, prev->comm, sizeof(out->comm));
	return done(out);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	u32 pid = CURRENT->pid;
	if (state != ALL || (!passes(pid) && !passes(task->pid)))
		return 0;
	struct woken *out = room(sizeof(*out), WAKING, pid);
	if (!out)
		return 0;
	out->pid = task->pid;
	__builtin_memcpy(out->comm, task->comm, sizeof(out->comm));
	return done(out);
}

SEC("tp_btf/task_newtask")
int BPF_PROG(newtask, struct task_struct *task, unsigned long clone_flags)
{
	u32 pid = CURRENT->pid;
	if (state != ALL || !passes(pid))
		return 0;
	struct started *out = room(sizeof(*out), NEWTASK, pid);
	if (!out)
		return 0;
	out->pid = task->pid;
	__builtin_memcpy(out->comm, task->comm, sizeof(out->comm));
	out->clone_flags = clone_flags;
	out->oom_score_adj = task->signal->oom_score_adj;
	return done(out);
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_renamed, struct task_struct *task, const char *name)
{
	u32 pid = CURRENT->pid;
	if (state != ALL || !passes(pid))
		return 0;
	struct renamed *out = room(sizeof(*out), RENAME, pid);
	if (!out)
		return 0;
	out->pid = task->pid;
	__builtin_memcpy(out->oldcomm, task->comm, sizeof(out->oldcomm));
	bpf_probe_read_kernel_str(out->newcomm, sizeof(out->newcomm), name);
	out->oom_score_adj = task->signal->oom_score_adj;
	return done(out);
}

static __always_inline int is_wanted(u64 number, u32 bit)
{
	return number < CALLS && calls[number] & bit && state == ALL;
}

// Numbers of calls of 32-bit programs mean others.
static __always_inline int calls_pass(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.status) && task->thread_info.status & 2)
		return 0;
	return passes(task->pid);
}

// `more` is a constant: a record's size and its fields are decided once. Were its number asked again behind the
// reservation, the verifiers of older kernels (6.1) would follow the small record into the fields of the large one.
static __always_inline int of_call(struct pt_regs *regs, u64 number, u32 pid, int more)
{
	struct pt_regs___arm64 *arm = (void *)regs;
	struct begun *out = room(more ? sizeof(*out) : offsetof(struct begun, more), CALL_BEGIN | number, pid);
	if (!out)
		return 0;
	out->number = number;
	if (bpf_core_field_exists(regs->di)) {
		out->few[0] = regs->di;
		out->few[1] = regs->si;
		out->few[2] = regs->dx;
		out->few[3] = regs->r10;
		if (more) {
			out->more[0] = regs->r8;
			out->more[1] = regs->r9;
		}
	} else {
		out->few[0] = arm->orig_x0;
#pragma unroll
		for (int nr = 1; nr < 4; nr++)
			out->few[nr] = arm->regs[nr];
		if (more) {
			out->more[0] = arm->regs[4];
			out->more[1] = arm->regs[5];
		}
	}
	return done(out);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter, struct pt_regs *regs, long number)
{
	if (!is_wanted(number, BEGINS))
		return 0;
	struct task_struct *task = CURRENT;
	if (!calls_pass(task))
		return 0;
	if (calls[number & (CALLS - 1)] & FEW)
		return of_call(regs, number, task->pid, 0);
	return of_call(regs, number, task->pid, 1);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(leave, struct pt_regs *regs, long result)
{
	u64 number = number_of(regs);
	if (!is_wanted(number, ENDS))
		return 0;
	struct task_struct *task = CURRENT;
	if (!calls_pass(task))
		return 0;
	struct ended *out = room(sizeof(*out), CALL_END | number, task->pid);
	if (!out)
		return 0;
	out->number = number;
	out->result = result;
	return done(out);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->pid, to = child->pid;
	u8 *is = bpf_map_lookup_elem(&tasks, &from), followed = FOLLOWED;
	if (by_task && is && *is == FOLLOWED && bpf_map_update_elem(&tasks, &to, &followed, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(freed, struct task_struct *task)
{
	u32 pid = task->pid;
	bpf_map_delete_elem(&tasks, &pid);
	return 0;
}

// The first eight bytes of what the program gets are no part of the event.
static __always_inline int copy(void *event, u32 nr)
{
	u32 size = sizes[nr], dev = 0, pid = CURRENT->pid;
	if (state != ALL || size <= sizeof(struct head))
		return 0;
	if (places[nr] == TASK && !passes(pid))
		return 0;
	if (by_device && devices_at[nr]) {
		bpf_probe_read_kernel(&dev, sizeof(dev), event + devices_at[nr]);
		if (!on_device(dev))
			return 0;
	}
	struct head *out = room(size, COPIED | nr, pid);
	if (!out)
		return 0;
	bpf_probe_read_kernel(out + 1, size - sizeof(*out), event + 8);
	return done(out);
}

#define COPY(nr) SEC("tracepoint") int copy##nr(void *event) { return copy(event, nr); }
COPY(0) COPY(1) COPY(2) COPY(3) COPY(4) COPY(5) COPY(6) COPY(7)
COPY(8) COPY(9) COPY(10) COPY(11) COPY(12) COPY(13) COPY(14) COPY(15)
COPY(16) COPY(17) COPY(18) COPY(19) COPY(20) COPY(21) COPY(22) COPY(23)
COPY(24) COPY(25) COPY(26) COPY(27) COPY(28) COPY(29) COPY(30) COPY(31)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
