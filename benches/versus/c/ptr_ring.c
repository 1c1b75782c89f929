/*
 * The rival that ours is made after: the kernel's own ptr_ring, in user space.
 *
 * The header is the machine's, named by -DPTR_RING_H; the little of the kernel that it uses is in shim.h. Compiled at run
 * time into a shared object that is loaded and never distributed. -DLOCKED takes a lock a side for each call, as its
 * users with many threads do; without, it is called as by the kernel's one-producer one-consumer users.
 */
#include "shim.h"
#include PTR_RING_H

typedef struct ptr_ring queue;

static queue *make(unsigned int size)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 128, sizeof(queue)))
		return NULL;
	if (ptr_ring_init(memory, size, GFP_KERNEL)) {
		free(memory);
		return NULL;
	}
	return memory;
}

static void destroy(queue *q)
{
	ptr_ring_cleanup(q, NULL);
	free(q);
}

static inline bool push(queue *q, void *p)
{
#ifdef LOCKED
	return ptr_ring_produce(q, p) == 0;
#else
	return __ptr_ring_produce(q, p) == 0;
#endif
}

static inline void *pop(queue *q)
{
#ifdef LOCKED
	return ptr_ring_consume(q);
#else
	return __ptr_ring_consume(q);
#endif
}

/* It has no call for that. */
static inline unsigned int push_many(queue *q, void **from, unsigned int n)
{
	unsigned int i = 0;

	while (i < n && push(q, from[i]))
		i++;
	return i;
}

static inline unsigned int pop_many(queue *q, void **into, unsigned int n)
{
#ifdef LOCKED
	return ptr_ring_consume_batched(q, into, n);
#else
	return __ptr_ring_consume_batched(q, into, n);
#endif
}

#ifdef LOCKED
#define NAME "C ptr_ring, locked, Linux " VERSION
#else
#define NAME "C ptr_ring, Linux " VERSION
#endif
#include "loops.h"
