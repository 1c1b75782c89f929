/*
 * What the kernel's ptr_ring.h expects of its surroundings, in user space; written for the versus bench. Only names that the
 * header uses are here, and only what they promise.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int gfp_t;

#define SMP_CACHE_BYTES 64
#define ____cacheline_aligned_in_smp __attribute__((aligned(SMP_CACHE_BYTES)))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))

/* On x86 stores become visible in their order: only the compiler has to be told. */
#if defined(__x86_64__)
#define smp_wmb() __asm__ volatile("" ::: "memory")
#else
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#define data_race(x) (x)

/*
 * The kernel's spinlock is a queue, which user space cannot have: a waiter that is not running would hold up the others.
 * So a lock is a word: one exchange in, one store out, and whoever waits gives way now and then.
 */
typedef struct {
	unsigned char taken;
} spinlock_t;

static inline void spin_lock_init(spinlock_t *lock)
{
	__atomic_store_n(&lock->taken, 0, __ATOMIC_RELAXED);
}

static inline void spin_lock(spinlock_t *lock)
{
	for (unsigned int tries = 1;; tries++) {
		unsigned char open = 0;

		if (__atomic_compare_exchange_n(&lock->taken, &open, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
		while (__atomic_load_n(&lock->taken, __ATOMIC_RELAXED)) {
			if (tries++ % 16 == 0)
				sched_yield();
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		}
	}
}

static inline void spin_unlock(spinlock_t *lock)
{
	__atomic_store_n(&lock->taken, 0, __ATOMIC_RELEASE);
}

/* There are no interrupts here. */
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irqsave(lock, flags) ((void)((flags) = 0), spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))

/* Memory is always zeroed, which is more than is asked for. */
#define GFP_KERNEL 0u
#define __GFP_ZERO 1u
#define KMALLOC_MAX_SIZE (1ul << 30)

static inline void *versus_array(size_t n, size_t size)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 128, n ? n * size : 1))
		return NULL;
	return memset(memory, 0, n * size);
}

/* Kernels from 6.10 on call the names with the suffix. */
#define kmalloc_array(n, size, gfp) ((void)(gfp), versus_array(n, size))
#define kvmalloc_array(n, size, gfp) ((void)(gfp), versus_array(n, size))
#define kcalloc(n, size, gfp) ((void)(gfp), versus_array(n, size))
#define kmalloc_array_noprof(n, size, gfp) ((void)(gfp), versus_array(n, size))
#define kvmalloc_array_noprof(n, size, gfp) ((void)(gfp), versus_array(n, size))
#define kfree(p) free(p)
#define kvfree(p) free(p)
#define alloc_hooks(call) call
