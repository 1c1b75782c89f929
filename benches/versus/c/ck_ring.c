/* The rival ck_ring of Concurrency Kit, one producer and one consumer; compiled at run time if its header is there. */
#include <ck_ring.h>
#include <ck_md.h>
#include <stdlib.h>

typedef struct {
	ck_ring_t ring;
	ck_ring_buffer_t *slots;
} queue;

static queue *make(unsigned int size)
{
	void *memory = NULL, *slots = NULL;
	unsigned int room = 2;
	queue *q;

	/* One slot of a power of two stays empty. */
	while (room <= size)
		room *= 2;
	if (posix_memalign(&memory, 128, sizeof(queue)))
		return NULL;
	if (posix_memalign(&slots, 128, room * sizeof(ck_ring_buffer_t))) {
		free(memory);
		return NULL;
	}
	q = memory;
	q->slots = slots;
	ck_ring_init(&q->ring, room);
	return q;
}

static void destroy(queue *q)
{
	free(q->slots);
	free(q);
}

static inline bool push(queue *q, void *p)
{
	return ck_ring_enqueue_spsc(&q->ring, q->slots, p);
}

static inline void *pop(queue *q)
{
	void *p;

	return ck_ring_dequeue_spsc(&q->ring, q->slots, &p) ? p : NULL;
}

/* It has no calls for batches. */
static inline unsigned int push_many(queue *q, void **from, unsigned int n)
{
	unsigned int i = 0;

	while (i < n && push(q, from[i]))
		i++;
	return i;
}

static inline unsigned int pop_many(queue *q, void **into, unsigned int n)
{
	unsigned int i = 0;

	while (i < n && (into[i] = pop(q)))
		i++;
	return i;
}

#define NAME "ck_ring " CK_VERSION
#include "loops.h"
