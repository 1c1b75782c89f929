//! What a locked ring has on each side: the end, its lock, and the counts for those who look without one.
#![forbid(unsafe_code)]

use super::raw::{self, Publish};
use super::{Pointer, PtrRing, RawMutex};
use crate::sync::{AtomicUsize, Ordering, SideGuard, SideLock, local, order};
use std::cell::Cell;

local! {
    /// Its address names the thread.
    static HERE: u8 = 0;
}

/// The name of the calling thread; never 0.
pub(super) fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// In memory, the count, the lock (if it is as small as ours) and what the end needs for every call share one cache line:
/// whoever gets the lock gets them all.
#[repr(C)]
pub(super) struct ConsumerSide<P: Pointer, L> {
    /// Elements consumed so far, modulo the word. Written under the lock, read by anyone.
    pub(super) consumed: AtomicUsize,
    /// Protects the consumer's end. Any ring's producer's lock may be taken inside, and, in the order of the rings' addresses,
    /// other consumers' locks.
    pub(super) end: SideLock<L, raw::Consumer<P>>,
    /// Slots cleared so far: `consumed` as it was at the last clearing. Written under the lock, read by anyone.
    pub(super) cleared: AtomicUsize,
    /// The thread that runs the closure of `peek`, or 0. Written under the lock, read by anyone.
    pub(super) peeker: AtomicUsize,
}

/// In memory as the consumer's.
#[repr(C)]
pub(super) struct ProducerSide<P: Pointer, L> {
    /// Elements produced so far, modulo the word. Written under the lock, read by anyone.
    pub(super) produced: AtomicUsize,
    /// Protects the producer's end. Nothing nests inside.
    pub(super) end: SideLock<L, raw::Producer<P>>,
}

impl<P: Pointer, L> Publish for ConsumerSide<P, L> {
    #[inline(always)]
    fn consumed(&self, count: usize) {
        // Relaxed: whoever reads an old value takes the ring for fuller than it is, and an element that was consumed before
        // the reader looks, by its own knowledge, has been counted.
        self.consumed.store(count, Ordering::Relaxed);
    }

    #[inline(always)]
    fn cleared(&self, count: usize) {
        // Release [Q9]: pairs with Acquire [Q10] in `is_full`: the slots are clear for whoever sees the count.
        self.cleared.store(count, order("Q9", Ordering::Release));
    }
}

/// Also notes whether a batch was cleared.
pub(super) struct Telling<'a, W>(&'a W, Cell<bool>);

impl<'a, W> Telling<'a, W> {
    pub(super) fn new(to: &'a W) -> Self {
        Self(to, Cell::new(false))
    }

    pub(super) fn cleared(&self) -> bool {
        self.1.get()
    }
}

impl<W: Publish> Publish for Telling<'_, W> {
    #[inline(always)]
    fn consumed(&self, count: usize) {
        self.0.consumed(count);
    }

    #[inline(always)]
    fn cleared(&self, count: usize) {
        self.0.cleared(count);
        self.1.set(true);
    }
}

impl<P: Pointer, L> ProducerSide<P, L> {
    #[inline(always)]
    pub(super) fn publish(&self, end: &raw::Producer<P>) {
        // Release [Q7]: pairs with Acquire [Q8] in `is_empty`: the element is in its slot for whoever sees the count.
        self.produced.store(end.produced(), order("Q7", Ordering::Release));
    }
}

impl<P: Pointer, L: RawMutex> PtrRing<P, L> {
    #[inline(always)]
    pub(super) fn lock_producer(&self) -> SideGuard<'_, L, raw::Producer<P>> {
        // The way that most calls go is inlined, the other one is not.
        self.producer.end.try_lock().unwrap_or_else(|| self.wait_for_producer())
    }

    #[cold]
    fn wait_for_producer(&self) -> SideGuard<'_, L, raw::Producer<P>> {
        self.producer.end.lock()
    }

    #[inline(always)]
    pub(super) fn lock_consumer(&self) -> SideGuard<'_, L, raw::Consumer<P>> {
        // Only who fails to get the lock can be the one that holds it.
        self.consumer.end.try_lock().unwrap_or_else(|| self.wait_for_consumer())
    }

    #[cold]
    fn wait_for_consumer(&self) -> SideGuard<'_, L, raw::Consumer<P>> {
        // Relaxed: a thread finds its own name here only if it wrote it itself.
        let own = self.consumer.peeker.load(Ordering::Relaxed) == here();
        assert!(!own, "the closure of `peek` must not consume from, peek into, unconsume to or resize its own ring");
        self.consumer.end.lock()
    }
}
