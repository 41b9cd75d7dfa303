/* What a policy of a kernel expects around it, in user space: types, locks that nobody contends for, a clock that the
 * driver of the case sets. Written for this command; no text of a kernel. */
#ifndef SHIM_H
#define SHIM_H

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16;
typedef uint32_t u32, __u32;
typedef uint64_t u64, __u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64, ktime_t;
typedef u64 sector_t;
typedef unsigned gfp_t, blk_opf_t, blk_mq_req_flags_t, blk_insert_t, req_flags_t, fmode_t, slab_flags_t;
typedef unsigned long pgoff_t;
typedef struct { int counter; } atomic_t;
typedef struct { long counter; } atomic_long_t;
typedef atomic_long_t atomic64_t;
typedef struct { int unused; } spinlock_t, raw_spinlock_t;

struct list_head { struct list_head *next, *prev; };
struct hlist_node { struct hlist_node *next, **pprev; };
struct hlist_head { struct hlist_node *first; };
struct rcu_head { void *unused; };

#define HZ 250
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define SECTOR_SHIFT 9
#define SECTOR_SIZE 512
#define BITS_PER_LONG 64
#define BITS_PER_LONG_LONG 64
#define BITS_PER_BYTE 8
#define SMP_CACHE_BYTES 64
#define NSEC_PER_SEC 1000000000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_USEC 1000L
#define USEC_PER_SEC 1000000L
#define MSEC_PER_SEC 1000L
#define SZ_2M 0x200000
#define LIST_POISON1 NULL
#define LIST_POISON2 NULL
#define NUMA_NO_NODE (-1)

static unsigned long jiffies;
static u64 now_ns;

#define __init
#define __exit
#define __user
#define __rcu
#define __force
#define __iomem
#define __read_mostly
#define __always_inline inline
#define noinline
#define __maybe_unused __attribute__((unused))
#define __attribute_const__
#define __must_check
#define __bitwise
#define __cold
#define __latent_entropy
#define __printf(a, b)
#define __counted_by(a)
#define __nonstring
#define __acquires(a)
#define __releases(a)
#define __must_hold(a)
#define __ro_after_init
#define __private
#define ____cacheline_aligned_in_smp
#define ____cacheline_aligned
#define __cacheline_group_begin(a)
#define __cacheline_group_end(a)
#define fallthrough __attribute__((__fallthrough__))
#define notrace
#define asmlinkage
#define barrier() do { } while (0)
#define cpu_relax() do { } while (0)
#define cond_resched() 0
#define might_sleep() do { } while (0)
#define smp_mb() do { } while (0)
#define smp_mb__before_atomic() do { } while (0)
#define smp_mb__after_atomic() do { } while (0)
#define smp_rmb() do { } while (0)
#define smp_wmb() do { } while (0)
#define smp_load_acquire(p) (*(p))
#define smp_store_release(p, v) (*(p) = (v))
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, v) ((x) = (v))
#define data_race(x) (x)
#define likely(x) (x)
#define unlikely(x) (x)
#define EXPORT_SYMBOL(x) struct shim_nothing
#define EXPORT_SYMBOL_GPL(x) struct shim_nothing
#define MODULE_AUTHOR(x)
#define MODULE_LICENSE(x)
#define MODULE_DESCRIPTION(x)
#define MODULE_ALIAS(x)
#define module_init(x) static int (*shim_init)(void) __maybe_unused = x
#define module_exit(x) static void (*shim_exit)(void) __maybe_unused = x
#define THIS_MODULE NULL
#define SHIM_IS_1 0,
#define SHIM_SECOND(a, b, ...) b
#define SHIM_IS_SET(comma) SHIM_SECOND(comma 1, 0)
#define SHIM_IS(value) SHIM_IS_SET(SHIM_IS_##value)
#define IS_ENABLED(x) SHIM_IS(x)
#define IS_BUILTIN(x) 0

#define SHIM_STOP(what) (fflush(stdout), fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, what), abort())
#define BUG() SHIM_STOP("BUG")
#define BUG_ON(x) do { if (x) SHIM_STOP("BUG_ON(" #x ")"); } while (0)
#define VM_BUG_ON(x) BUG_ON(x)
#define VM_BUG_ON_FOLIO(x, folio) BUG_ON(x)
#define VM_BUG_ON_PAGE(x, page) BUG_ON(x)
#define WARN_ON(x) ({ bool shim_x = (x); if (shim_x) SHIM_STOP("WARN_ON(" #x ")"); shim_x; })
#define WARN_ON_ONCE(x) WARN_ON(x)
#define VM_WARN_ON_ONCE(x) WARN_ON(x)
#define WARN_ONCE(x, ...) WARN_ON(x)
#define WARN(x, ...) WARN_ON(x)
#define BUILD_BUG_ON(x) ((void)0)
#define BUILD_BUG_ON_MSG(x, m) ((void)0)
#define lockdep_assert_held(x) do { } while (0)
#define printk(...) ((void)0)
#define pr_warn(...) ((void)0)
#define pr_debug(...) ((void)0)

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define min(a, b) ({ __typeof__(a) shim_a = (a); __typeof__(b) shim_b = (b); shim_a < shim_b ? shim_a : shim_b; })
#define max(a, b) ({ __typeof__(a) shim_a = (a); __typeof__(b) shim_b = (b); shim_a > shim_b ? shim_a : shim_b; })
#define min_t(t, a, b) min((t)(a), (t)(b))
#define max_t(t, a, b) max((t)(a), (t)(b))
#define clamp(v, lo, hi) min(max(v, lo), hi)
#define clamp_t(t, v, lo, hi) min_t(t, max_t(t, v, lo), hi)
#define min_not_zero(a, b) ((a) == 0 ? (b) : (b) == 0 ? (a) : min(a, b))
#define swap(a, b) do { __typeof__(a) shim_t = (a); (a) = (b); (b) = shim_t; } while (0)
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP(n, d)
#define DIV_ROUND_CLOSEST(n, d) (((n) + (d) / 2) / (d))
#define round_up(x, y) ((((x) - 1) | ((__typeof__(x))(y) - 1)) + 1)
#define round_down(x, y) ((x) & ~((__typeof__(x))(y) - 1))
#define ALIGN(x, a) round_up(x, (__typeof__(x))(a))
#define ALIGN_DOWN(x, a) round_down(x, a)
#define BIT(n) (1UL << (n))
#define BIT_MASK(n) (1UL << ((n) % 64))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define div_u64(a, b) ((a) / (b))
#define div64_u64(a, b) ((a) / (b))
#define div64_ul(a, b) ((a) / (b))
#define do_div(a, b) ({ u32 shim_r = (a) % (b); (a) = (a) / (b); shim_r; })
#define ilog2(n) (63 - __builtin_clzl((unsigned long)(n)))
#define fls(n) ((n) ? 32 - __builtin_clz(n) : 0)
#define __fls(n) (63 - __builtin_clzl(n))
#define __ffs(n) ((unsigned long)__builtin_ctzl(n))
#define ffs(n) __builtin_ffs(n)
#define ffz(n) __ffs(~(n))
#define hweight_long(n) ((unsigned)__builtin_popcountl(n))
#define is_power_of_2(n) ((n) != 0 && ((n) & ((n) - 1)) == 0)
#define rounddown_pow_of_two(n) (1UL << ilog2(n))
static inline unsigned long roundup_pow_of_two(unsigned long n) { return n <= 1 ? 1 : 1UL << (ilog2(n - 1) + 1); }

#define atomic_read(v) ((v)->counter)
#define atomic_set(v, n) ((v)->counter = (n))
#define atomic_inc(v) ((v)->counter++)
#define atomic_dec(v) ((v)->counter--)
#define atomic_add(n, v) ((v)->counter += (n))
#define atomic_sub(n, v) ((v)->counter -= (n))
#define atomic_inc_return(v) (++(v)->counter)
#define atomic_dec_return(v) (--(v)->counter)
#define atomic_add_return(n, v) ((v)->counter += (n))
#define atomic_sub_return(n, v) ((v)->counter -= (n))
#define atomic_dec_and_test(v) (--(v)->counter == 0)
#define cmpxchg(p, old, new) \
	({ __typeof__(*(p)) shim_was = *(p); if (shim_was == (old)) *(p) = (new); shim_was; })
#define atomic_cmpxchg(v, old, new) cmpxchg(&(v)->counter, old, new)
#define try_cmpxchg(p, old, new) \
	({ bool shim_same = *(p) == *(old); if (shim_same) *(p) = (new); else *(old) = *(p); shim_same; })
#define atomic_try_cmpxchg(v, old, new) try_cmpxchg(&(v)->counter, old, new)
#define atomic_long_try_cmpxchg(v, old, new) try_cmpxchg(&(v)->counter, old, new)
#define atomic_long_try_cmpxchg_acquire(v, old, new) try_cmpxchg(&(v)->counter, old, new)
#define xchg(p, new) ({ __typeof__(*(p)) shim_was = *(p); *(p) = (new); shim_was; })

#define spin_lock_init(l) ((void)(l))
#define spin_lock(l) ((void)(l))
#define spin_unlock(l) ((void)(l))
#define spin_trylock(l) ((void)(l), true)
#define spin_lock_irq(l) ((void)(l))
#define spin_unlock_irq(l) ((void)(l))
#define spin_lock_irqsave(l, flags) ((void)(l), (void)((flags) = 0))
#define spin_unlock_irqrestore(l, flags) ((void)(l), (void)(flags))
#define raw_spin_lock_irqsave(l, flags) spin_lock_irqsave(l, flags)
#define raw_spin_unlock_irqrestore(l, flags) spin_unlock_irqrestore(l, flags)
#define spin_is_locked(l) ((void)(l), 0)
#define ERR_PTR(n) ((void *)(long)(n))
#define PTR_ERR(p) ((long)(p))
#define IS_ERR(p) ((unsigned long)(void *)(p) >= (unsigned long)-4095)
#define rcu_assign_pointer(p, v) ((p) = (v))
#define RCU_INIT_POINTER(p, v) ((p) = (v))
#define rcu_dereference_raw(p) (p)
#define rcu_read_lock() ((void)0)
#define rcu_read_unlock() ((void)0)
#define local_irq_save(flags) ((void)((flags) = 0))
#define local_irq_restore(flags) ((void)(flags))

#define time_after(a, b) ((long)((b) - (a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) ((long)((a) - (b)) >= 0)
#define time_before_eq(a, b) time_after_eq(b, a)
#define time_is_before_eq_jiffies(a) time_after_eq(jiffies, a)
#define time_is_before_jiffies(a) time_after(jiffies, a)
#define time_is_after_jiffies(a) time_before(jiffies, a)
#define jiffies_to_msecs(j) ((unsigned)((j) * (1000 / HZ)))
#define msecs_to_jiffies(ms) (DIV_ROUND_UP((unsigned long)(ms), 1000 / HZ))
/* Functions of a kernel may have a variable of the clock's name. */
static inline u64 shim_now(void) { return now_ns; }
#define ktime_get_ns() shim_now()
#define blk_time_get_ns() shim_now()

#define GFP_KERNEL 0
#define GFP_NOWAIT 0
#define __GFP_ZERO 1
#define kzalloc_node(size, flags, node) calloc(1, size)
#define kzalloc(size, flags) calloc(1, size)
#define kzalloc_obj(of, ...) calloc(1, sizeof(of))
#define kmalloc_objs(of, n, ...) calloc(n, sizeof(of))
#define kcalloc_node(n, size, flags, node) calloc(n, size)
#define kmalloc_array_node(n, size, flags, node) calloc(n, size)
#define kvzalloc_node(size, flags, node) calloc(1, size)
#define kvfree(p) free(p)
#define kfree(p) free((void *)(p))

#define sysfs_emit(page, ...) sprintf(page, __VA_ARGS__)
#define simple_strtol(s, end, base) strtol(s, end, base)
static inline int kstrtoint(const char *s, int base, int *value) { *value = strtol(s, NULL, base); return 0; }
static inline int kstrtoul(const char *s, int base, unsigned long *value)
{
	*value = strtoul(s, NULL, base);
	return 0;
}
static inline int kstrtoull(const char *s, int base, unsigned long long *value)
{
	*value = strtoull(s, NULL, base);
	return 0;
}

static inline bool test_bit(long nr, const volatile unsigned long *p) { return p[nr / 64] >> (nr % 64) & 1; }
static inline void set_bit(long nr, volatile unsigned long *p) { p[nr / 64] |= BIT_MASK(nr); }
static inline void clear_bit(long nr, volatile unsigned long *p) { p[nr / 64] &= ~BIT_MASK(nr); }
#define clear_bit_unlock(nr, p) clear_bit(nr, p)
#define __set_bit(nr, p) set_bit(nr, p)
#define __clear_bit(nr, p) clear_bit(nr, p)
static inline bool test_and_set_bit(long nr, volatile unsigned long *p)
{
	bool was = test_bit(nr, p);
	set_bit(nr, p);
	return was;
}
#define test_and_set_bit_lock(nr, p) test_and_set_bit(nr, p)
static inline bool test_and_clear_bit(long nr, volatile unsigned long *p)
{
	bool was = test_bit(nr, p);
	clear_bit(nr, p);
	return was;
}
#define __test_and_set_bit(nr, p) test_and_set_bit(nr, p)
#define __test_and_clear_bit(nr, p) test_and_clear_bit(nr, p)

/* A step of a case: a letter and numbers. A case is `case`, its settings as steps, its steps, and `end`, which has the
 * answers sent. */
struct step { char op; long n, arg[8]; };
static bool next_step(struct step *step)
{
	static char line[256];

	if (!fgets(line, sizeof(line), stdin))
		return false;
	char *at = line + 1;
	step->op = line[0];
	for (step->n = 0; step->n < 8; step->n++) {
		char *end;
		step->arg[step->n] = strtol(at, &end, 10);
		if (end == at)
			break;
		at = end;
	}
	for (long i = step->n; i < 8; i++)
		step->arg[i] = 0;
	return true;
}
#endif
