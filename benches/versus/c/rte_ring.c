/*
 * The rival rte_ring of DPDK; compiled at run time if its headers are there. -DLOCKED is its mode for many threads on each
 * side (it takes no lock, but it is what one compares a locked ring with), without it is for one on each side.
 */
#include <rte_ring.h>
#include <rte_version.h>
#include <stdlib.h>

typedef struct rte_ring queue;

#ifdef LOCKED
#define FLAGS RING_F_EXACT_SZ
#define MODE "mp/mc"
#else
#define FLAGS (RING_F_EXACT_SZ | RING_F_SP_ENQ | RING_F_SC_DEQ)
#define MODE "sp/sc"
#endif

static queue *make(unsigned int size)
{
	ssize_t bytes = rte_ring_get_memsize(rte_align32pow2(size + 1));
	void *memory = NULL;

	if (bytes < 0 || posix_memalign(&memory, 128, bytes))
		return NULL;
	if (rte_ring_init(memory, "versus", size, FLAGS)) {
		free(memory);
		return NULL;
	}
	return memory;
}

static void destroy(queue *q)
{
	free(q);
}

static inline bool push(queue *q, void *p)
{
#ifdef LOCKED
	return rte_ring_mp_enqueue(q, p) == 0;
#else
	return rte_ring_sp_enqueue(q, p) == 0;
#endif
}

static inline void *pop(queue *q)
{
	void *p;

#ifdef LOCKED
	return rte_ring_mc_dequeue(q, &p) == 0 ? p : NULL;
#else
	return rte_ring_sc_dequeue(q, &p) == 0 ? p : NULL;
#endif
}

static inline unsigned int push_many(queue *q, void **from, unsigned int n)
{
#ifdef LOCKED
	return rte_ring_mp_enqueue_burst(q, from, n, NULL);
#else
	return rte_ring_sp_enqueue_burst(q, from, n, NULL);
#endif
}

static inline unsigned int pop_many(queue *q, void **into, unsigned int n)
{
#ifdef LOCKED
	return rte_ring_mc_dequeue_burst(q, into, n, NULL);
#else
	return rte_ring_sc_dequeue_burst(q, into, n, NULL);
#endif
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define NAME "rte_ring " MODE ", DPDK " TEXT(RTE_VER_YEAR) "." TEXT(RTE_VER_MONTH) "." TEXT(RTE_VER_MINOR)
#include "loops.h"
