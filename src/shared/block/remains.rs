//! What is left of a value for its drain.

use super::{Header, Place, fate};
use crate::percpu_ref::Outstanding;
use crate::rcu::Flavor;
use crate::report::{Wait, Watch};
use crate::sync::{Ordering, order};
use std::task::Waker;
use std::time::Duration;

/// The claim of a drain on a value.
///
/// # Invariants
/// 1. There is one for a block; while it lives and has not `taken`, the fate is WANTED or READY, and if it is READY the
///    value is initialised and this claim's alone.
pub(in crate::shared) struct Remains<T, F: Flavor> {
    pub(super) place: Place<T, F>,
    pub(super) taken: bool,
    /// Of a wait without a thread, from the first poll on.
    pub(super) watch: Option<Watch>,
}

impl<T: Send + Sync + 'static, F: Flavor> crate::shared::drain::Source<T> for Remains<T, F> {
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), Outstanding> {
        let memory = self.place.memory();
        memory.header().core.wait_zero::<Header<F>>(limit).map_err(Outstanding::of_dying)
    }

    fn outstanding(&self) -> Outstanding {
        self.place.memory().header().core.outstanding::<Header<F>>().of_dying()
    }

    fn poll(&mut self, waker: &Waker) -> bool {
        if self.is_ready() {
            return true;
        }
        let waker = waker.clone();
        let old = self.place.memory().header().drain.lock().replace(waker);
        drop(old);
        // The last put changes the fate first and takes the lock afterwards: either it takes the waker, or this sees it.
        if self.is_ready() {
            return true;
        }
        F::kick();
        if let Some(waited) = self.watch.get_or_insert_with(Watch::start).overdue() {
            self.place.memory().header().core.report_stall::<Header<F>>(Wait::Zero, waited);
        }
        self.is_ready()
    }

    fn take(&mut self) -> T {
        assert!(!self.taken && self.is_ready(), "a drain yields its value once");
        self.taken = true;
        // SAFETY: invariant 1, and it is read once.
        unsafe { self.place.value.read() }
    }
}

impl<T, F: Flavor> Remains<T, F> {
    fn is_ready(&self) -> bool {
        // Acquire [N2]: pairs with Release [N1] in `release`.
        let fate = self.place.memory().header().drain.side.fate.load(order("N2", Ordering::Acquire));
        fate == fate::READY
    }
}

impl<T, F: Flavor> Drop for Remains<T, F> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let memory = self.place.memory();
        let waker = memory.header().drain.lock().take();
        drop(waker);
        // Acquire [N2]: as in `is_ready`.
        let fate = &memory.header().drain.side.fate;
        let acquire = order("N2", Ordering::Acquire);
        if fate.compare_exchange(fate::WANTED, fate::DROP, Ordering::Relaxed, acquire).is_err() {
            // SAFETY: invariant 1.
            unsafe { self.place.value.drop_in_place() };
        }
    }
}
