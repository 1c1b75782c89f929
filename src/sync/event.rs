//! Waiting for a condition that others make true without taking a lock.
//!
//! A condition variable needs a mutex around every change of the condition. The change here is often one atomic
//! operation, made by a `put` that may run in a signal handler, where no lock may be taken. So the waiter announces
//! itself in the word first and looks at the condition afterwards; whoever changes the condition bumps the word
//! afterwards and wakes if somebody had announced himself. Both use a read-modify-write on the one word, and these
//! have one order: either the waker's comes second and sees the announcement, or the waiter's comes second, reads what
//! the waker released, and finds the condition true. (Eventcounts: Dmitry Vyukov, 2007; futex(2).)

use super::{Futex, Ordering, order};
use std::time::Instant;

/// Somebody may be asleep on the word.
const WAITING: u32 = 1;
/// One notification.
const ONE: u32 = 2;

/// A word to sleep on until a condition holds.
///
/// |  bits 1..32          | bit 0   |
/// |----------------------|---------|
/// | notifications so far | WAITING |
#[derive(Default)]
pub(crate) struct Event(Futex);

impl Event {
    /// Blocks until `done` returns true, or until `deadline`; returns what `done` said last.
    pub(crate) fn wait_until(&self, deadline: Option<Instant>, mut done: impl FnMut() -> bool) -> bool {
        loop {
            if done() {
                return true;
            }
            // Acquire [E1]: pairs with Release [E2] in `notify_all`.
            let seen = self.0.word.fetch_or(WAITING, order("E1", Ordering::Acquire)) | WAITING;
            if done() {
                return true;
            }
            if !self.0.wait(seen, deadline) {
                return done();
            }
        }
    }

    /// Wakes everyone who waits. The caller has made the change that they wait for.
    ///
    /// # Context
    /// Any, a signal handler included: one read-modify-write, and a system call if somebody waits.
    pub(crate) fn notify_all(&self) {
        // Release [E2]: pairs with Acquire [E1] in `wait_until`.
        let old = self.0.word.fetch_add(ONE, order("E2", Ordering::Release));
        if old & WAITING != 0 {
            self.0.word.fetch_and(!WAITING, Ordering::Relaxed);
            self.0.wake_all();
        }
    }
}
