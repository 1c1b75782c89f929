//! The tasks that wait for something.
//!
//! The list lies under a lock of whoever has it, so nothing in it clones, wakes or drops a waker there: that is the
//! program's code. What comes out is woken or dropped after the lock.

use std::collections::BTreeMap;
use std::mem::{forget, replace, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers in the order in which they came.
#[derive(Default)]
pub(crate) struct Wakers {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Wakers {
    /// Puts a waker on the list, or in the place that the ticket stands for; the one that was there comes back.
    pub(crate) fn put(&mut self, ticket: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        if let Some(place) = ticket.and_then(|ticket| self.waiting.get_mut(&ticket)) {
            return Some(replace(place, waker));
        }
        *ticket = Some(self.next);
        self.waiting.insert(self.next, waker);
        self.next += 1;
        None
    }

    /// Takes a waker off the list, if it is still there.
    pub(crate) fn remove(&mut self, ticket: &mut Option<u64>) -> Option<Waker> {
        self.waiting.remove(&ticket.take()?)
    }

    /// Takes all of them off the list.
    pub(crate) fn take(&mut self) -> WakeAll {
        WakeAll(take(&mut self.waiting))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// Those who were waiting.
#[must_use = "they sleep until they are woken"]
pub(crate) struct WakeAll(BTreeMap<u64, Waker>);

impl WakeAll {
    /// Wakes all of them, even if wakers panic; the first of these panics goes on afterwards. Under no lock.
    pub(crate) fn wake(self) {
        let mut first = None;
        for waker in self.0.into_values() {
            match catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                Err(panic) if first.is_none() => first = Some(panic),
                // What a panic carries may panic as it drops.
                Err(panic) => forget(panic),
                Ok(()) => {}
            }
        }
        if let Some(panic) = first {
            resume_unwind(panic);
        }
    }
}
