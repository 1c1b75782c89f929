/*
 * The rival liburcu, flavour memb: loops over its public API, for the versus bench to call.
 *
 * Compiled at run time, if the header is there, into a shared object that is loaded and never distributed. The bench
 * defines _LGPL_SOURCE for it, so that liburcu's own headers inline the read side, as its documentation recommends for
 * speed: the rival shall run at its best.
 */
#include <stdatomic.h>
#include <urcu/urcu-memb.h>

void versus_urcu_register(void)
{
	urcu_memb_register_thread();
}

void versus_urcu_unregister(void)
{
	urcu_memb_unregister_thread();
}

/* n read-side critical sections. */
void versus_urcu_sections(unsigned long n)
{
	while (n--) {
		urcu_memb_read_lock();
		urcu_memb_read_unlock();
	}
}

/* n grace periods. */
void versus_urcu_synchronize(unsigned long n)
{
	while (n--)
		urcu_memb_synchronize_rcu();
}
