// Shared by the programs: structures of the kernel with the fields that some of them use, and places of things in them.
// The loader finds the places of fields in the kernel's BTF.
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

#define KERNEL __attribute__((preserve_access_index))

struct super_block { u32 s_dev; } KERNEL;
struct inode { u16 i_mode; struct super_block *i_sb; unsigned long i_ino; } KERNEL;
struct address_space { struct inode *host; } KERNEL;
struct gendisk { int major, first_minor; } KERNEL;
struct request_queue { struct gendisk *disk; } KERNEL;
struct bio;
struct request {
	struct request_queue *q;
	u32 cmd_flags;
	unsigned int __data_len;
	u64 __sector;
	struct bio *bio;
	u64 start_time_ns;
} KERNEL;
struct request___before_6_1 { struct gendisk *rq_disk; } KERNEL;
struct pt_regs { unsigned long di, si, dx, r10, r8, r9, ax, orig_ax; } KERNEL;
struct pt_regs___arm64 { u64 regs[31]; u64 orig_x0; int syscallno; } KERNEL;

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	struct request___before_6_1 *old = (void *)rq;
	if (bpf_core_field_exists(old->rq_disk))
		return old->rq_disk;
	return rq->q->disk;
}

// The number of the system call that ends.
static __always_inline u64 number_of(struct pt_regs *regs)
{
	if (bpf_core_field_exists(regs->orig_ax))
		return regs->orig_ax;
	return (u32)((struct pt_regs___arm64 *)regs)->syscallno;
}
