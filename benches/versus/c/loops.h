/*
 * What the ring cases of the versus bench do, in C, so that a rival in C is inlined as ours is: the same loops as in
 * ring.rs. A rival's file defines the names in capitals below and includes this.
 *
 * Everything here is called from Rust, through the table at the end. Elements are the numbers from 1 on.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* typedef ... queue;
 * static queue *make(unsigned int size), NULL if it cannot; static void destroy(queue *);
 * static inline bool push(queue *, void *); static inline void *pop(queue *);
 * static inline unsigned int push_many(queue *, void **, unsigned int); the same for pop_many. */

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Between two threads: spin, and give way now and then. */
static inline void wait_once(uint32_t *spins)
{
	if (++*spins % 4096 == 0)
		sched_yield();
	else
		relax();
}

/* Between many threads: give way. */
static inline void give_way(void)
{
	for (int i = 0; i < 16; i++)
		relax();
	sched_yield();
}

static void *item(uint64_t i)
{
	return (void *)(uintptr_t)(i + 1);
}

static uint64_t number(void *p)
{
	return (uint64_t)(uintptr_t)p - 1;
}

#define MAX_BATCH 64

/* One thread: in and out. 0 if all came out right. */
static int run_alone(void *of, uint64_t n)
{
	queue *q = of;

	for (uint64_t i = 0; i < n; i++) {
		if (!push(q, item(i)) || pop(q) != item(i))
			return 1;
	}
	return 0;
}

/* One thread: a batch in, a batch out. */
static int run_alone_batched(void *of, uint64_t n, unsigned int batch)
{
	queue *q = of;
	void *from[MAX_BATCH], *into[MAX_BATCH];

	for (uint64_t i = 0; i < n / batch; i++) {
		for (unsigned int k = 0; k < batch; k++)
			from[k] = item(i + k);
		if (push_many(q, from, batch) != batch || pop_many(q, into, batch) != batch || into[0] != item(i))
			return 1;
	}
	return 0;
}

/* The producer of two threads. */
static void run_produce(void *of, uint64_t n, unsigned int batch)
{
	queue *q = of;
	void *from[MAX_BATCH];
	uint32_t spins = 0;

	if (batch == 1) {
		for (uint64_t i = 0; i < n; i++) {
			while (!push(q, item(i)))
				wait_once(&spins);
		}
		return;
	}
	for (uint64_t next = 0; next < n;) {
		unsigned int len = n - next < batch ? n - next : batch, done = 0;

		for (unsigned int k = 0; k < len; k++)
			from[k] = item(next + k);
		next += len;
		while (done < len) {
			unsigned int pushed = push_many(q, from + done, len - done);

			done += pushed;
			if (!pushed)
				wait_once(&spins);
		}
	}
}

/* The consumer of two threads. */
static int run_consume(void *of, uint64_t n, unsigned int batch)
{
	queue *q = of;
	void *into[MAX_BATCH];
	uint32_t spins = 0;

	for (uint64_t next = 0; next < n;) {
		unsigned int got = 1;

		if (batch == 1)
			got = (into[0] = pop(q)) != NULL;
		else
			got = pop_many(q, into, batch);
		if (!got)
			wait_once(&spins);
		for (unsigned int k = 0; k < got; k++) {
			if (into[k] != item(next++))
				return 1;
		}
	}
	return 0;
}

/* One of many producers. */
static void run_produce_many(void *of, uint64_t n, unsigned int batch)
{
	queue *q = of;
	void *from[MAX_BATCH];

	for (uint64_t next = 0; next < n;) {
		unsigned int len = n - next < batch ? n - next : batch, done = 0;

		for (unsigned int k = 0; k < len; k++)
			from[k] = item(next + k);
		next += len;
		while (done < len) {
			unsigned int pushed = batch == 1 ? push(q, from[0]) : push_many(q, from + done, len - done);

			done += pushed;
			if (!pushed)
				give_way();
		}
	}
}

/* One of many consumers: `left` is how many elements nobody has got yet; what it adds up to goes to `sum`. */
static void run_consume_many(void *of, uint64_t *left, uint64_t *sum, unsigned int batch)
{
	queue *q = of;
	void *into[MAX_BATCH];
	uint64_t taken = 0, own = 0;

	while (__atomic_load_n(left, __ATOMIC_RELAXED) > taken) {
		unsigned int got;

		if (batch == 1)
			got = (into[0] = pop(q)) != NULL;
		else
			got = pop_many(q, into, batch);
		for (unsigned int k = 0; k < got; k++)
			own += number(into[k]);
		taken += got;
		if (!got || taken >= 1024) {
			__atomic_fetch_sub(left, taken, __ATOMIC_RELAXED);
			taken = 0;
		}
		if (!got)
			give_way();
	}
	__atomic_fetch_sub(left, taken, __ATOMIC_RELAXED);
	__atomic_fetch_add(sum, own, __ATOMIC_RELAXED);
}

static void *run_make(unsigned int size)
{
	return make(size);
}

static void run_destroy(void *q)
{
	destroy(q);
}

/* `struct Table` in c_rings.rs. */
const struct {
	const char *name;
	void *(*make)(unsigned int);
	void (*destroy)(void *);
	int (*alone)(void *, uint64_t);
	int (*alone_batched)(void *, uint64_t, unsigned int);
	void (*produce)(void *, uint64_t, unsigned int);
	int (*consume)(void *, uint64_t, unsigned int);
	void (*produce_many)(void *, uint64_t, unsigned int);
	void (*consume_many)(void *, uint64_t *, uint64_t *, unsigned int);
} versus_ring = {
	NAME, run_make, run_destroy, run_alone, run_alone_batched, run_produce, run_consume, run_produce_many, run_consume_many,
};
