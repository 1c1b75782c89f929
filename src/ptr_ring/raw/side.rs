//! What a locked ring has on each side: the end, its lock, and a count for those who look without one.
//!
//! The count is the position, too. Each call takes its lock by an exchange, which waits until all stores before it have
//! left for the cache, so every store in a call is felt. An index that is stored beside the count would be one of them:
//! the common calls compute it from the count, and leave the end's own where it was. Every other call catches up when
//! it gets the lock.
//!
//! # Invariants
//! 1. `produced` is `lap` plus the true index of the end behind the same lock, and `consumed` is `lap` plus the true head.
//!    Only what is in this file writes them, under the lock.
//! 2. While a guard exists, the end's own index (head) is the true one; dropping the guard makes 1 hold again. Otherwise it
//!    may be an old one.

use super::{Consumer, LINE, Producer, Publish};
use crate::ptr_ring::{Pointer, RawMutex};
use crate::sync::{AtomicUsize, Ordering, SideGuard, SideLock, local, order};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

local! {
    /// Its address names the thread.
    static HERE: u8 = 0;
}

/// The name of the calling thread; never 0.
fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// In memory, the count, the lock (if it is as small as ours) and what the end needs for every call share one cache line:
/// whoever gets the lock gets them all.
#[repr(C)]
pub(in crate::ptr_ring) struct ConsumerSide<P: Pointer, L: RawMutex> {
    /// Elements consumed so far, modulo the word. Written under the lock, read by anyone.
    consumed: AtomicUsize,
    /// Protects the consumer's end. Any ring's producer's lock may be taken inside, and, in the order of the rings' addresses,
    /// other consumers' locks.
    end: SideLock<L, Consumer<P>>,
    /// Slots cleared so far: `consumed` as it was at the last clearing. Written under the lock, read by anyone.
    cleared: AtomicUsize,
    /// The thread that runs the closure of `peek`, or 0. Written under the lock, read by anyone.
    peeker: AtomicUsize,
}

/// In memory as the consumer's.
#[repr(C)]
pub(in crate::ptr_ring) struct ProducerSide<P: Pointer, L: RawMutex> {
    /// Elements produced so far, modulo the word. Written under the lock, read by anyone.
    produced: AtomicUsize,
    /// Protects the producer's end. Nothing nests inside.
    end: SideLock<L, Producer<P>>,
}

/// The producer's end, locked.
pub(in crate::ptr_ring) struct ProducerGuard<'a, P: Pointer, L: RawMutex> {
    side: &'a ProducerSide<P, L>,
    /// Unlocked after the count is published: a field goes after `drop`.
    end: SideGuard<'a, L, Producer<P>>,
}

/// The consumer's end, locked.
pub(in crate::ptr_ring) struct ConsumerGuard<'a, P: Pointer, L: RawMutex> {
    side: &'a ConsumerSide<P, L>,
    /// Unlocked after the count is published.
    end: SideGuard<'a, L, Consumer<P>>,
}

impl<P: Pointer, L: RawMutex> ProducerSide<P, L> {
    /// Of a new queue.
    pub(in crate::ptr_ring) fn new(end: Producer<P>) -> Self {
        Self { produced: AtomicUsize::new(end.produced()), end: SideLock::new(end) }
    }

    #[inline(always)]
    fn lock_end(&self) -> SideGuard<'_, L, Producer<P>> {
        // The way that most calls go is inlined, the other one is not.
        self.end.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> SideGuard<'_, L, Producer<P>> {
        self.end.lock()
    }

    #[inline(always)]
    pub(in crate::ptr_ring) fn lock(&self) -> ProducerGuard<'_, P, L> {
        let mut end = self.lock_end();
        // Relaxed: it is written under the lock.
        end.catch_up(self.produced.load(Ordering::Relaxed));
        ProducerGuard { side: self, end }
    }

    #[inline(always)]
    fn publish(&self, count: usize) {
        // Release [Q7]: pairs with Acquire [Q8] in `is_empty`: the element is in its slot for whoever sees the count.
        self.produced.store(count, order("Q7", Ordering::Release));
    }

    /// [`Producer::produce`], locked.
    #[inline(always)]
    pub(in crate::ptr_ring) fn produce(&self, p: P) -> Result<(), P> {
        let mut end = self.lock_end();
        // Relaxed: it is written under the lock.
        let count = self.produced.load(Ordering::Relaxed);
        let mut index = count.wrapping_sub(end.lap);
        if index == end.limit {
            end.index = index;
            if !end.refill() {
                return Err(p);
            }
            index = end.index;
        }
        end.put(index, p);
        self.publish(count.wrapping_add(1));
        Ok(())
    }

    /// How many elements have been produced, for a look without the lock.
    #[inline(always)]
    pub(in crate::ptr_ring) fn count(&self, order: Ordering) -> usize {
        self.produced.load(order)
    }
}

impl<P: Pointer, L: RawMutex> ConsumerSide<P, L> {
    /// Of a new queue.
    pub(in crate::ptr_ring) fn new(end: Consumer<P>) -> Self {
        let count = || AtomicUsize::new(end.consumed());
        Self { consumed: count(), cleared: count(), peeker: AtomicUsize::new(0), end: SideLock::new(end) }
    }

    #[inline(always)]
    fn lock_end(&self) -> SideGuard<'_, L, Consumer<P>> {
        // Only who fails to get the lock can be the one that holds it.
        self.end.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> SideGuard<'_, L, Consumer<P>> {
        // Relaxed: a thread finds its own name here only if it wrote it itself.
        let own = self.peeker.load(Ordering::Relaxed) == here();
        assert!(!own, "the closure of `peek` must not consume from, peek into, unconsume to or resize its own ring");
        self.end.lock()
    }

    #[inline(always)]
    pub(in crate::ptr_ring) fn lock(&self) -> ConsumerGuard<'_, P, L> {
        let mut end = self.lock_end();
        // Relaxed: it is written under the lock.
        end.catch_up(self.consumed.load(Ordering::Relaxed));
        ConsumerGuard { side: self, end }
    }

    /// [`Consumer::consume`], locked; tells `to`, which has to tell this side.
    #[inline(always)]
    fn consume_to(&self, to: &impl Publish) -> Option<P> {
        let mut end = self.lock_end();
        // Relaxed: it is written under the lock.
        let count = self.consumed.load(Ordering::Relaxed);
        let head = count.wrapping_sub(end.lap);
        // SAFETY: 1. by invariant 1 it is the true head, and by invariant 3 of the queue that is in bounds.
        let slot = unsafe { end.slot(head) };
        let raw = Consumer::<P>::taken(slot)?;
        let next = head + 1;
        if next.is_multiple_of(LINE) {
            end.prefetch(next);
        }
        if next == end.flush_at {
            end.head = next;
            end.flush::<false>(to);
        } else {
            to.consumed(count.wrapping_add(1));
        }
        // SAFETY: invariant 4 of the queue: the ring owned it, and the count has moved on, so that it becomes a value once.
        Some(unsafe { P::from_raw(raw) })
    }

    /// [`Consumer::consume`], locked.
    #[inline(always)]
    pub(in crate::ptr_ring) fn consume(&self) -> Option<P> {
        self.consume_to(self)
    }

    /// [`consume`](Self::consume) that also says whether a batch was cleared.
    pub(in crate::ptr_ring) fn consume_telling(&self) -> (Option<P>, bool) {
        let telling = Telling(self, Cell::new(false));
        (self.consume_to(&telling), telling.1.get())
    }

    /// [`Consumer::consume_batch`], locked, that also says whether a batch was cleared.
    pub(in crate::ptr_ring) fn consume_batch_telling(&self, into: &mut Vec<P>, max: usize) -> (usize, bool) {
        let telling = Telling(self, Cell::new(false));
        (self.lock().consume_batch(into, max, &telling), telling.1.get())
    }

    /// [`Consumer::peek`], locked, and marked so that `f` cannot take the lock once more.
    pub(in crate::ptr_ring) fn peek<R>(&self, f: impl FnOnce(&P) -> R) -> Option<R> {
        struct Peeking<'a>(&'a AtomicUsize);
        impl Drop for Peeking<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let mut end = self.lock();
        self.peeker.store(here(), Ordering::Relaxed);
        // Declared after the guard, so it is gone before the lock is.
        let _peeking = Peeking(&self.peeker);
        end.peek(f)
    }

    /// How many elements have been consumed, for a look without the lock.
    #[inline(always)]
    pub(in crate::ptr_ring) fn count(&self) -> usize {
        self.consumed.load(Ordering::Relaxed)
    }

    /// How many slots have been cleared, for a look without the lock.
    #[inline(always)]
    pub(in crate::ptr_ring) fn count_of_cleared(&self, order: Ordering) -> usize {
        self.cleared.load(order)
    }
}

impl<P: Pointer, L: RawMutex> Publish for ConsumerSide<P, L> {
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
struct Telling<'a, W>(&'a W, Cell<bool>);

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

impl<P: Pointer, L: RawMutex> Drop for ConsumerSide<P, L> {
    fn drop(&mut self) {
        let Self { end, consumed, .. } = self;
        // The end tells whoever drops what is left where its head is. Relaxed: nobody else is there any more.
        end.get_mut().catch_up(consumed.load(Ordering::Relaxed));
    }
}

impl<P: Pointer> Producer<P> {
    /// So many elements have been produced.
    #[inline(always)]
    fn catch_up(&mut self, count: usize) {
        self.index = count.wrapping_sub(self.lap);
    }
}

impl<P: Pointer> Consumer<P> {
    /// So many elements have been consumed.
    #[inline(always)]
    fn catch_up(&mut self, count: usize) {
        self.head = count.wrapping_sub(self.lap);
    }
}

impl<P: Pointer, L: RawMutex> Deref for ProducerGuard<'_, P, L> {
    type Target = Producer<P>;
    #[inline(always)]
    fn deref(&self) -> &Producer<P> {
        &self.end
    }
}

impl<P: Pointer, L: RawMutex> DerefMut for ProducerGuard<'_, P, L> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Producer<P> {
        &mut self.end
    }
}

impl<P: Pointer, L: RawMutex> Drop for ProducerGuard<'_, P, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.side.publish(self.end.produced());
    }
}

impl<P: Pointer, L: RawMutex> Deref for ConsumerGuard<'_, P, L> {
    type Target = Consumer<P>;
    #[inline(always)]
    fn deref(&self) -> &Consumer<P> {
        &self.end
    }
}

impl<P: Pointer, L: RawMutex> DerefMut for ConsumerGuard<'_, P, L> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Consumer<P> {
        &mut self.end
    }
}

impl<P: Pointer, L: RawMutex> Drop for ConsumerGuard<'_, P, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.side.consumed(self.end.consumed());
    }
}
