// Sums of calls and requests in the kernel: times and bytes by process, file, disk and layer.
//
// calls      sys_enter keeps time and file in the place of the task's number, sys_exit adds to the sum; regular files
//            and block devices only. Of two tasks whose numbers end alike the call that began later counts
// requests   insert, issue and completion find each other by the request's address
// tables     arrays, but for calls with open addressing: the kernel inlines their lookup, and a helper costs as much as all the rest
// sums       keys have the number of the CPU: each sum has one writer, so nothing is locked; user space merges them
// names      a new key of a call goes to user space by a ring buffer, which looks up the descriptor
//
// The kernel lends these helpers to programs under the GPL only: of this file, "Dual MIT/GPL". `sum.bpf.o` is made of
// it by the command in bpf.rs.
#include "kernel.h"

struct list_head { struct list_head *next; } KERNEL;
struct file { struct address_space *f_mapping; } KERNEL;
struct fdtable { unsigned int max_fds; struct file **fd; } KERNEL;
struct files_struct { struct fdtable *fdt; } KERNEL;
struct task_struct {
	int pid, tgid;
	struct task_struct *group_leader;
	struct files_struct *files;
	char comm[16];
} KERNEL;
struct page { unsigned long compound_head; struct address_space *mapping; } KERNEL;
struct folio { struct address_space *mapping; } KERNEL;
struct bio_vec { struct page *bv_page; } KERNEL;
struct bio { struct bio_vec *bi_io_vec; } KERNEL;

enum { CALL, QUEUE, DEVICE, PAGES };
enum { NOTHING, READ, WRITE, SYNC, DISCARD, OTHER };

// Four buckets for each power of two from 64 ns on.
#define BUCKETS 128
#define FIRST 6
#define SLOTS 65536
#define TRIES 6
#define NO_FD ~0U

struct key { u64 what, ino; u32 dev, tgid; };
struct sum { struct key key; u64 count, bytes, ns, longest, failed; char comm[16]; u64 buckets[BUCKETS]; };
struct file_id { u64 ino; u32 dev, unused; };
struct call { u64 start, ino; u32 task, dev, fd, op; };
struct slot { u64 rq, start, from, issued, ino; u32 dev, tgid, disk, bytes, op, unused; };
struct news { u64 ino; u32 dev, tgid, fd, unused; };

const volatile u32 own;
const volatile u8 by_task, by_file, by_device, casts;
// Operations of system calls, by their numbers here.
const volatile u8 ops[512];
// Sums less one: a power of two.
const volatile u32 mask = 16383;
// Sums, requests, names: without room.
u64 lost[3];

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 16384); __type(key, u32); __type(value, struct sum); }
	sums SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 65536); __type(key, u32); __type(value, u8); }
	tasks SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, struct file_id); __type(value, u8); }
	files SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, u32); __type(value, u8); }
	devices SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, SLOTS); __type(key, u32); __type(value, struct slot); }
	slots SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, SLOTS); __type(key, u32); __type(value, struct call); }
	calls SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 18); } names SEC(".maps");

static __always_inline u32 log2_of(u64 v)
{
	u32 r = 0, s;
	s = (v > 0xffffffff) << 5; v >>= s; r |= s;
	s = (v > 0xffff) << 4; v >>= s; r |= s;
	s = (v > 0xff) << 3; v >>= s; r |= s;
	s = (v > 0xf) << 2; v >>= s; r |= s;
	s = (v > 3) << 1; v >>= s; r |= s;
	return r | (v >> 1);
}

static __always_inline u32 bucket_of(u64 ns)
{
	if (ns < 1 << FIRST)
		return 0;
	u32 power = log2_of(ns), nr = 4 * (power - FIRST) + ((ns >> (power - 2)) & 3) + 1;
	return nr < BUCKETS ? nr : BUCKETS - 1;
}

// Where the search for a key begins.
static __always_inline u32 place_of(u64 key)
{
	return (key * 0x9e3779b97f4a7c15) >> 40;
}

// The slot of the request at this address; else, if it is to be made, a free one.
static __always_inline struct slot *slot_of(u64 rq, int make)
{
#pragma unroll
	for (u32 nr = 0; nr < TRIES; nr++) {
		u32 place = (place_of(rq) + nr) & (SLOTS - 1);
		struct slot *slot = bpf_map_lookup_elem(&slots, &place);
		if (slot && slot->rq == rq)
			return slot;
	}
	if (!make)
		return NULL;
#pragma unroll
	for (u32 nr = 0; nr < TRIES; nr++) {
		u32 place = (place_of(rq) + nr) & (SLOTS - 1);
		struct slot *slot = bpf_map_lookup_elem(&slots, &place);
		if (slot && !slot->rq && !__sync_val_compare_and_swap(&slot->rq, 0, rq))
			return slot;
	}
	__sync_fetch_and_add(&lost[1], 1);
	return NULL;
}

// The place of a task's call, and the call if it is there.
static __always_inline struct call *call_place(u32 task)
{
	u32 place = task & (SLOTS - 1);
	return bpf_map_lookup_elem(&calls, &place);
}

static __always_inline struct call *call_of(u32 task)
{
	struct call *call = call_place(task);
	return call && call->task == task ? call : NULL;
}

// The sum of a key, which is made if there is none.
static __always_inline struct sum *sum_of(struct key *key, int *new)
{
	u32 first = place_of(key->what ^ (key->ino << 20) ^ ((u64)key->tgid << 40) ^ key->dev);
#pragma unroll
	for (u32 nr = 0; nr < TRIES; nr++) {
		u32 place = (first + nr) & mask;
		struct sum *sum = bpf_map_lookup_elem(&sums, &place);
		if (!sum)
			return NULL;
		if (!sum->key.what && !__sync_val_compare_and_swap(&sum->key.what, 0, key->what)) {
			sum->key.ino = key->ino;
			sum->key.dev = key->dev;
			sum->key.tgid = key->tgid;
			*new = 1;
			return sum;
		}
		if (sum->key.what == key->what && sum->key.ino == key->ino && sum->key.dev == key->dev &&
		    sum->key.tgid == key->tgid)
			return sum;
	}
	return NULL;
}

// Disk, CPU, layer and operation, which is not 0.
static __always_inline u64 what(u32 disk, u32 layer, u32 op)
{
	return (u64)disk << 32 | bpf_get_smp_processor_id() << 8 | layer << 4 | op;
}

// Adds to a sum; `task` is whoever does it, if that is the current one, `fd` what names the file.
static __always_inline void add(struct key *key, u64 ns, u64 bytes, u64 failed, struct task_struct *task, u32 fd)
{
	int new = 0;
	struct sum *sum = sum_of(key, &new);
	if (!sum) {
		__sync_fetch_and_add(&lost[0], 1);
		return;
	}
	if (new && task) {
		bpf_probe_read_kernel_str(sum->comm, sizeof(sum->comm), task->group_leader->comm);
		struct news news = { key->ino, key->dev, key->tgid, fd, 0 };
		if (fd != NO_FD && bpf_ringbuf_output(&names, &news, sizeof(news), 0))
			__sync_fetch_and_add(&lost[2], 1);
	}
	sum->count++;
	sum->bytes += bytes;
	sum->ns += ns;
	sum->failed += failed;
	if (ns > sum->longest)
		sum->longest = ns;
	sum->buckets[bucket_of(ns) & (BUCKETS - 1)]++;
}

static __always_inline int is_ours(u32 tgid)
{
	return tgid != own && (!by_task || bpf_map_lookup_elem(&tasks, &tgid));
}

// A block device's own pages are of an inode with its number.
static __always_inline int is_asked(u64 ino, u32 dev, u32 disk)
{
	struct file_id id = { ino, dev, 0 };
	u32 as_file = ino;
	if (by_file && !bpf_map_lookup_elem(&files, &id))
		return 0;
	return !by_device || bpf_map_lookup_elem(&devices, &dev) || bpf_map_lookup_elem(&devices, &disk) ||
	       (!(dev >> 20) && bpf_map_lookup_elem(&devices, &as_file));
}

// The loader writes the number of the kernel's function bpf_rdonly_cast into these calls: the fields of what it returns
// are read without a helper. Where there is none, the call becomes a move, and `casts` is 0.
static __always_inline void *cast(void *of, u32 type)
{
	void *out;
	asm volatile("r1 = %1; r2 = %2; .byte 0x85, 0x20, 0, 0; .long 0x49b0f00d; %0 = r0"
		     : "=r"(out) : "r"(of), "r"((u64)type) : "r0", "r1", "r2", "r3", "r4", "r5");
	return out;
}

// Keeps the begin of a call on a regular file or a block device.
static __always_inline void begin(struct task_struct *task, u32 fd, u32 op, u32 mode, u64 ino, u32 dev)
{
	if ((mode & 0170000) != 0100000 && (mode & 0170000) != 0060000)
		return;
	if ((by_file || by_device) && !is_asked(ino, dev, 0))
		return;
	struct call *call = call_place(task->pid);
	if (!call)
		return;
	call->task = task->pid;
	call->ino = ino;
	call->dev = dev;
	call->fd = fd;
	call->op = op;
	call->start = bpf_ktime_get_ns();
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter, struct pt_regs *regs, long id)
{
	if ((unsigned long)id >= sizeof(ops) || !ops[id])
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_ours(task->tgid))
		return 0;
	u32 fd;
	if (bpf_core_field_exists(regs->di))
		fd = regs->di;
	else
		fd = ((struct pt_regs___arm64 *)regs)->regs[0];
	struct fdtable *table = task->files->fdt;
	if (fd >= table->max_fds)
		return 0;
	if (casts) {
		// What a pointer points to is read as the first field of something that begins with a pointer.
		struct list_head *slot = cast(table->fd + fd, bpf_core_type_id_kernel(struct list_head));
		struct file *typed = cast(slot->next, bpf_core_type_id_kernel(struct file));
		if (!typed)
			return 0;
		struct inode *inode = typed->f_mapping->host;
		begin(task, fd, ops[id], inode->i_mode, inode->i_ino, inode->i_sb->s_dev);
		return 0;
	}
	struct file *file = NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	if (!file)
		return 0;
	struct inode *inode = BPF_CORE_READ(file, f_mapping, host);
	u32 dev = BPF_CORE_READ(inode, i_sb, s_dev);
	begin(task, fd, ops[id], BPF_CORE_READ(inode, i_mode), BPF_CORE_READ(inode, i_ino), dev);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(leave, struct pt_regs *regs, long result)
{
	u64 id = number_of(regs);
	if (id >= sizeof(ops) || !ops[id])
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct call *call = call_of(task->pid);
	if (!call)
		return 0;
	u64 ns = bpf_ktime_get_ns() - call->start;
	struct key key = { what(0, CALL, call->op), call->ino, call->dev, task->tgid };
	u32 fd = call->fd;
	call->task = 0;
	add(&key, ns, result > 0 ? result : 0, result < 0, task, fd);
	return 0;
}

// The address of the request in the arguments as a number, which the verifier does not make of a pointer.
static __always_inline u64 address(void *arguments)
{
	u64 rq = 0;
	bpf_probe_read_kernel(&rq, sizeof(rq), arguments);
	return rq;
}

// The slot of a request that goes to the scheduler or the driver; nothing if it is not asked for.
static __always_inline struct slot *seen(struct request *rq, u64 at, struct task_struct *task, u64 now)
{
	struct gendisk *gone = disk_of(rq);
	u32 disk = (u32)gone->major << 20 | gone->first_minor, tgid = task->tgid, flags = rq->cmd_flags & 0xff;
	struct slot *slot = slot_of(at, 0);
	// One that was merged away has no completion, and its address comes again.
	if (slot && slot->start == rq->start_time_ns)
		return slot;
	u64 ino = 0;
	u32 dev = 0;
	struct page *page = rq->bio->bi_io_vec->bv_page;
	u64 head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (void *)(head - 1);
	struct address_space *mapping = BPF_CORE_READ(page, mapping);
	struct inode *host = mapping && !((u64)mapping & 3) ? BPF_CORE_READ(mapping, host) : NULL;
	if (host) {
		ino = BPF_CORE_READ(host, i_ino);
		dev = BPF_CORE_READ(host, i_sb, s_dev);
	} else {
		struct call *call = call_of(task->pid);
		if (call) {
			ino = call->ino;
			dev = call->dev;
		}
	}
	if (!is_ours(tgid) || ((by_file || by_device) && !is_asked(ino, dev, disk))) {
		if (slot)
			slot->rq = 0;
		return NULL;
	}
	if (!slot)
		slot = slot_of(at, 1);
	if (!slot)
		return NULL;
	slot->start = rq->start_time_ns;
	slot->from = slot->start ? slot->start : now;
	slot->issued = 0;
	slot->ino = ino;
	slot->dev = dev;
	slot->tgid = tgid;
	slot->disk = disk;
	slot->op = flags == 0 ? READ : flags == 1 ? WRITE : flags == 2 ? SYNC : flags == 3 ? DISCARD : OTHER;
	return slot;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(insert, struct request *rq)
{
	seen(rq, address(ctx), bpf_get_current_task_btf(), bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issue, struct request *rq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_ns();
	struct slot *slot = seen(rq, address(ctx), task, now);
	if (!slot)
		return 0;
	u64 again = slot->issued;
	slot->issued = now;
	slot->bytes = rq->__data_len;
	struct key key = { what(slot->disk, QUEUE, slot->op), slot->ino, slot->dev, slot->tgid };
	if (!again)
		add(&key, now > slot->from ? now - slot->from : 0, slot->bytes, 0, slot->tgid == task->tgid ? task : NULL, NO_FD);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(complete, struct request *rq, int error, unsigned int bytes)
{
	struct slot *slot = slot_of(address(ctx), 0);
	if (!slot || bytes < rq->__data_len)
		return 0;
	struct key key = { what(slot->disk, DEVICE, slot->op), slot->ino, slot->dev, slot->tgid };
	u64 issued = slot->issued, size = slot->bytes;
	slot->rq = 0;
	if (issued)
		add(&key, bpf_ktime_get_ns() - issued, size, (error & 0xff) != 0, NULL, NO_FD);
	return 0;
}

// Pages that the page cache did not have.
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_added, struct folio *folio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct inode *host = folio->mapping->host;
	u64 ino = host->i_ino;
	u32 dev = host->i_sb->s_dev;
	if (!is_ours(task->tgid) || ((by_file || by_device) && !is_asked(ino, dev, 0)))
		return 0;
	struct key key = { what(0, PAGES, READ), ino, dev, task->tgid };
	add(&key, 0, 0, 0, task, NO_FD);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 one = 1;
	if (by_task && bpf_map_lookup_elem(&tasks, &from))
		bpf_map_update_elem(&tasks, &to, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(freed, struct task_struct *task)
{
	u32 tgid = task->tgid;
	if (by_task && task->pid == task->tgid)
		bpf_map_delete_elem(&tasks, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
