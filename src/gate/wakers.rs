//! The tasks that wait for something. Everything here happens under the gate's lock, so nothing here clones, wakes or drops
//! a waker: that is the program's code.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::mem::{replace, take};
use std::task::Waker;

/// Wakers in the order in which they came.
#[derive(Default)]
pub(super) struct Wakers {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Wakers {
    /// Puts a waker on the list, or in the place that the ticket stands for; the one that was there comes back.
    pub(super) fn put(&mut self, ticket: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        if let Some(place) = ticket.and_then(|ticket| self.waiting.get_mut(&ticket)) {
            return Some(replace(place, waker));
        }
        *ticket = Some(self.next);
        self.waiting.insert(self.next, waker);
        self.next += 1;
        None
    }

    /// Takes a waker off the list, if it is still there.
    pub(super) fn remove(&mut self, ticket: &mut Option<u64>) -> Option<Waker> {
        self.waiting.remove(&ticket.take()?)
    }

    /// Takes all of them off the list.
    pub(super) fn take(&mut self) -> WakeAll {
        WakeAll(take(&mut self.waiting))
    }
}

/// Those who were waiting; all of them are woken, even if one of the wakers panics.
#[must_use = "they sleep until they are woken"]
pub(super) struct WakeAll(BTreeMap<u64, Waker>);

impl WakeAll {
    /// Under no lock.
    pub(super) fn wake(mut self) {
        self.go();
    }

    fn go(&mut self) {
        while let Some((_, waker)) = self.0.pop_first() {
            waker.wake();
        }
    }
}

/// Whoever is left after a panic.
impl Drop for WakeAll {
    fn drop(&mut self) {
        self.go();
    }
}
