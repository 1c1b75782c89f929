//! The slots, without locks.
//!
//! A ring with two shared indices makes each side read a word that the other one writes, so a cache line or two bounce
//! with every element. Here a slot tells by itself whether it is taken: null is empty. The producer knows its own index,
//! the consumer its own, neither reads the other's, and a ring that is neither full nor empty shares only the lines that
//! carry the elements.
//!
//! The price is that the consumer has to write, too: it sets the slots that it has read to null. Doing so at once would
//! fight for the line that the producer fills next whenever the ring is nearly full, so it clears in batches, from the
//! last slot of a batch to the first: the first one is where the producer waits, and when that one is free all are.
//!
//! This is where the *credit rule* goes further. If batches are always whole and aligned, then the producer that finds
//! the first slot of a batch null owns all of it, and looks at no other slot until it has filled the batch. And since
//! nobody looks at the others meanwhile, the consumer may clear them with ordinary wide stores.
//!
//! After include/linux/ptr_ring.h: batched clearing is a change of 2017, moving head before it one proposed in 2021.
//!
//! # Invariants
//! Positions are indices into the slots; `[a, b)` may go round the end.
//! 1. `slots` points to `max(capacity, 1)` slots. They live until both handles are gone: each handle announces its end
//!    in the header, and the second to do so frees.
//! 2. Producer: `index <= limit <= capacity`, and the slots in `[index, limit)` are null and the producer's own: that they
//!    are null happens before this.
//! 3. Consumer: `tail <= head < flush_at <= capacity`, unless the capacity is 0: then all are 0 and the one slot is null.
//! 4. The slots in `[head, index)` hold pointers from `P::into_raw` that the ring owns, those in `[tail, head)` pointers
//!    that were handed out, and all others are null. `[tail, head)` lies within one batch, and is shorter than it.
//! 5. A slot that the producer tests (one at `limit`) is the first one of the next run to be cleared, or null already
//!    together with the rest of its run.
//!
//! # An empty ring has room
//! Let all elements be consumed: `head == index`. If `index < limit` there is room. Else the producer tests the slot at
//! `index` (or at 0, if `index == capacity`; then head has gone round as well, and `tail` with it).
//! - Credit rule: `limit` is the end of a batch. The consumer's head reached it too, and clears the batch when it does,
//!   so `tail == head`: every slot is null. (`limit` inside a batch is the `seam` below: the slots from there to the end
//!   of the batch were all cleared before head came round to it again.)
//! - Testing every slot: those that are not null are `[tail, head)`, fewer than a batch and so fewer than all slots, and
//!   the slot at head is not among them.
//!
//! By the same token the room that the producer sees lags by what is in `[tail, head)`: less than one batch.

mod batch;
mod both;
mod memory;
mod side;

pub(super) use batch::Batch;
pub(super) use both::Both;
pub(super) use memory::Shape;
pub(super) use side::{ConsumerSide, ProducerSide};

use super::{CapacityError, Pointer};
use crate::sync::{AtomicPtr, CHECKED, Ordering, clear_exclusive, order, prefetch_read};
use memory::{Header, Memory, has_left, leave};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

/// Slots in a cache line.
pub(super) const LINE: usize = 8;
/// How far ahead of its head a consumer asks for the next line.
const AHEAD: usize = 4 * LINE;
/// No seam.
const NONE: usize = usize::MAX;

type Slot = AtomicPtr<()>;

/// Makes both handles of a new queue.
pub(super) fn pair<P: Pointer>(shape: Shape) -> Result<(Producer<P>, Consumer<P>), CapacityError> {
    let Memory { header, slots } = Memory::new(shape.capacity)?;
    let edge = shape.run_end(0);
    let producer = Producer { slots, index: 0, limit: 0, edge, seam: NONE, lap: 0, shape, header, _p: PhantomData };
    let flush_at = shape.flush_end(0);
    let consumer = Consumer { slots, head: 0, tail: 0, flush_at, lap: 0, shape, header, _p: PhantomData };
    Ok((producer, consumer))
}

/// Where a consumer tells others how far it is.
pub(super) trait Publish {
    /// So many elements have been consumed.
    fn consumed(&self, count: usize);
    /// So many slots have been cleared.
    fn cleared(&self, count: usize);
}

/// Nobody asks.
impl Publish for () {
    #[inline(always)]
    fn consumed(&self, _: usize) {}
    #[inline(always)]
    fn cleared(&self, _: usize) {}
}

/// The producer's end: the only one that fills slots.
///
/// What every call needs comes first: together with a lock and a count before it, that is one cache line.
#[repr(C)]
pub(super) struct Producer<P: Pointer> {
    /// The slot to fill next, if it is below `limit`.
    index: usize,
    /// The slots before it are ours.
    limit: usize,
    /// `lap + index` elements have been produced.
    lap: usize,
    slots: NonNull<Slot>,
    /// Where the run ends that begins at `limit` (at 0, if that is the end of the slots).
    edge: usize,
    /// Where the consumer's tail was left inside a batch by `unconsume`: that batch is two runs, cut here.
    seam: usize,
    shape: Shape,
    header: NonNull<Header>,
    /// Invariant in `P`: a producer of `&'static T` must not take shorter references.
    _p: PhantomData<fn(P) -> P>,
}

/// The consumer's end: the only one that empties slots. As for the producer's, what every call needs comes first.
#[repr(C)]
pub(super) struct Consumer<P: Pointer> {
    /// The slot to hand out next.
    head: usize,
    /// Clear when head comes here.
    flush_at: usize,
    /// `lap + head` elements have been consumed.
    lap: usize,
    slots: NonNull<Slot>,
    /// The oldest slot that was handed out and is not cleared.
    tail: usize,
    shape: Shape,
    header: NonNull<Header>,
    _p: PhantomData<fn(P) -> P>,
}

// SAFETY: a handle is the only one that acts for its side, whichever thread it is on. It carries elements from thread to
// thread, so they must be `Send`; what the sides share are atomics.
unsafe impl<P: Pointer + Send> Send for Producer<P> {}
// SAFETY: as above.
unsafe impl<P: Pointer + Send> Send for Consumer<P> {}
// SAFETY: through `&self` atomics and the handle's own numbers are read, no element is reached.
unsafe impl<P: Pointer + Send> Sync for Producer<P> {}
// SAFETY: as above.
unsafe impl<P: Pointer + Send> Sync for Consumer<P> {}

impl<P: Pointer> Producer<P> {
    /// # Safety
    /// 1. `i < max(capacity, 1)`.
    #[inline(always)]
    unsafe fn slot(&self, i: usize) -> &Slot {
        // SAFETY: 1., and invariant 1.
        let slot = unsafe { self.slots.add(i) };
        // SAFETY: invariant 1: the slots live as long as this handle.
        unsafe { slot.as_ref() }
    }

    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.shape.capacity
    }

    /// Elements produced so far, modulo the word.
    #[inline(always)]
    pub(super) fn produced(&self) -> usize {
        self.lap.wrapping_add(self.index)
    }

    /// Whether the slot at `limit` is free: then its run is.
    #[inline(always)]
    fn next_run_is_free(&self) -> bool {
        let at = if self.limit == self.shape.capacity { 0 } else { self.limit };
        // SAFETY: 1. invariant 2: `limit <= capacity`, and where it is equal we have 0.
        let slot = unsafe { self.slot(at) };
        // Acquire [Q4]: pairs with Release [Q3] in `flush`. The slot is cleared last in its run (invariant 5): if it is
        // null, so is the rest, and what we store there comes after the clearing.
        self.shape.capacity != 0 && slot.load(order("Q4", Ordering::Acquire)).is_null()
    }

    /// Tries to get the next run, after the last one has been filled.
    #[inline]
    fn refill(&mut self) -> bool {
        if !self.next_run_is_free() {
            return false;
        }
        if self.limit == self.shape.capacity {
            self.lap = self.lap.wrapping_add(self.index);
            self.index = 0;
            self.limit = 0;
        }
        if self.limit < self.seam && self.seam < self.edge {
            self.limit = self.seam;
        } else {
            if self.limit == self.seam {
                self.seam = NONE;
            }
            self.limit = self.edge;
            let next = if self.limit == self.shape.capacity { 0 } else { self.limit };
            self.edge = self.shape.cut(next + self.shape.grain);
        }
        if CHECKED {
            for i in self.index..self.limit {
                // SAFETY: 1. `i < limit <= capacity`.
                let slot = unsafe { self.slot(i) };
                assert!(slot.load(Ordering::Relaxed).is_null(), "invariant 2: all of the run is null");
            }
        }
        true
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.index == self.limit && !self.next_run_is_free()
    }

    #[inline(always)]
    pub(super) fn produce(&mut self, p: P) -> Result<(), P> {
        if self.index == self.limit && !self.refill() {
            return Err(p);
        }
        self.put(self.index, p);
        self.index += 1;
        Ok(())
    }

    /// Fills a slot of the own run.
    #[inline(always)]
    fn put(&self, i: usize, p: P) {
        debug_assert!(i < self.limit);
        // SAFETY: 1. `i < limit <= capacity`, by invariant 2.
        let slot = unsafe { self.slot(i) };
        // Release [Q1]: pairs with Acquire [Q2] in `oldest`: the consumer sees what the element points to.
        slot.store(p.into_raw().as_ptr(), order("Q1", Ordering::Release));
    }

    /// Takes elements from the front of the batch while there is room.
    #[inline]
    pub(super) fn produce_batch(&mut self, batch: &mut Batch<'_, P>) {
        while batch.left() > 0 && (self.index != self.limit || self.refill()) {
            let run = batch.left().min(self.limit - self.index);
            let mut i = self.index;
            let end = i + run;
            while end - i >= LINE {
                for k in 0..LINE {
                    self.put(i + k, batch.next());
                }
                i += LINE;
            }
            while i < end {
                self.put(i, batch.next());
                i += 1;
            }
            self.index = end;
        }
    }

    /// Whether the consumer is gone.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        // SAFETY: invariant 1: this handle has not left.
        has_left(unsafe { self.header.as_ref() })
    }
}

impl<P: Pointer> Consumer<P> {
    /// # Safety
    /// 1. `i < max(capacity, 1)`.
    #[inline(always)]
    unsafe fn slot(&self, i: usize) -> &Slot {
        // SAFETY: 1., and invariant 1.
        let slot = unsafe { self.slots.add(i) };
        // SAFETY: invariant 1: the slots live as long as this handle.
        unsafe { slot.as_ref() }
    }

    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.shape.capacity
    }

    /// Elements consumed so far, modulo the word.
    #[inline(always)]
    pub(super) fn consumed(&self) -> usize {
        self.lap.wrapping_add(self.head)
    }

    /// The oldest element, which stays where it is.
    #[inline(always)]
    fn oldest(&self) -> Option<NonNull<()>> {
        // SAFETY: 1. by invariant 3.
        Self::taken(unsafe { self.slot(self.head) })
    }

    /// What is in a slot.
    #[inline(always)]
    fn taken(slot: &Slot) -> Option<NonNull<()>> {
        // Acquire [Q2]: pairs with Release [Q1] in `put`.
        NonNull::new(slot.load(order("Q2", Ordering::Acquire)))
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    #[inline(always)]
    pub(super) fn consume(&mut self, to: &impl Publish) -> Option<P> {
        let raw = self.oldest()?;
        self.head += 1;
        if self.head.is_multiple_of(LINE) {
            self.prefetch(self.head);
        }
        if self.head == self.flush_at {
            self.flush::<false>(to);
        } else {
            to.consumed(self.consumed());
        }
        // SAFETY: invariant 4: the ring owned it, and head has moved on, so that it becomes a value once.
        Some(unsafe { P::from_raw(raw) })
    }

    /// Asks for the line `AHEAD` of `i`.
    #[inline(always)]
    fn prefetch(&self, i: usize) {
        prefetch_read(self.slots.as_ptr().wrapping_add(i + AHEAD));
    }

    /// Clears `[tail, head)`, the first slot last, and goes round at the end of the slots.
    ///
    /// `WIDE` is for batches, whose next access to these lines is a whole batch away; one by one, going backwards slot by
    /// slot is kinder to a producer that is far away.
    #[inline]
    fn flush<const WIDE: bool>(&mut self, to: &impl Publish) {
        let (start, end) = (self.tail, self.head);
        if self.head == self.shape.capacity {
            self.lap = self.lap.wrapping_add(self.head);
            self.head = 0;
        }
        self.tail = self.head;
        self.flush_at = self.shape.cut(self.head + self.shape.batch);
        if self.shape.head_first {
            to.consumed(self.consumed());
        }
        self.clear::<WIDE>(start, end);
        if !self.shape.head_first {
            to.consumed(self.consumed());
        }
        to.cleared(self.consumed());
    }

    /// Clears `[start, end)`, which is what `[tail, head)` was, `start` last.
    #[inline]
    fn clear<const WIDE: bool>(&mut self, start: usize, end: usize) {
        debug_assert!(start <= end && end <= self.shape.capacity);
        if WIDE && self.shape.grain == self.shape.batch && end - start > LINE {
            let second = (start / LINE + 1) * LINE;
            // SAFETY: `second <= start + LINE < end <= capacity`; invariant 1.
            let rest = unsafe { self.range(second, end) };
            // SAFETY: 1. `[start, end)` is not the producer's, and it tests none of them but `start` (invariant 5).
            unsafe { clear_exclusive(rest) };
            // SAFETY: `start + 1 <= second`; invariant 1.
            let line = unsafe { self.range(start + 1, second) };
            // SAFETY: 1. as above.
            unsafe { clear_exclusive(line) };
        } else {
            for i in (start + 1..end).rev() {
                // Relaxed: the store of the first slot below makes these visible; and a producer that tests each slot
                // needs no more than the order of one slot's values.
                // SAFETY: 1. `i < end <= capacity`.
                unsafe { self.slot(i) }.store(null_mut(), Ordering::Relaxed);
            }
        }
        if start < end {
            // Release [Q3]: pairs with Acquire [Q4] in `next_run_is_free`.
            // SAFETY: 1. `start < end <= capacity`.
            unsafe { self.slot(start) }.store(null_mut(), order("Q3", Ordering::Release));
        }
    }

    /// # Safety
    /// 1. `start <= end <= capacity`.
    unsafe fn range(&self, start: usize, end: usize) -> &[Slot] {
        // SAFETY: 1., and invariant 1.
        let first = unsafe { self.slots.add(start) };
        // SAFETY: 1.: that many slots follow, which live as long as this handle (invariant 1).
        unsafe { NonNull::slice_from_raw_parts(first, end - start).as_ref() }
    }

    /// Appends up to `max` elements.
    #[inline]
    pub(super) fn consume_batch(&mut self, into: &mut Vec<P>, max: usize, to: &impl Publish) -> usize {
        let mut got = 0;
        while got < max && !self.is_empty() {
            let run = (max - got).min(self.flush_at - self.head);
            into.reserve(run);
            let taken = self.take_run(into, run);
            got += taken;
            if self.head == self.flush_at {
                self.flush::<true>(to);
            } else {
                break;
            }
        }
        if got > 0 {
            to.consumed(self.consumed());
        }
        got
    }

    /// Takes up to `run` elements, line by line; the caller clears.
    #[inline(always)]
    fn take_run(&mut self, into: &mut Vec<P>, run: usize) -> usize {
        debug_assert!(run <= self.flush_at - self.head);
        let room = &mut into.spare_capacity_mut()[..run];
        let start = self.head;
        let mut taken = 0;
        'all: while taken < run {
            self.prefetch(start + taken);
            let line = (run - taken).min(LINE);
            for k in 0..line {
                // SAFETY: 1. `start + taken + k < start + run <= flush_at <= capacity`.
                let slot = unsafe { self.slot(start + taken + k) };
                // Acquire [Q2]: as in `oldest`.
                let Some(raw) = NonNull::new(slot.load(order("Q2", Ordering::Acquire))) else {
                    taken += k;
                    break 'all;
                };
                // SAFETY: invariant 4: the ring owned it. Head moves past it below; should `from_raw` panic (which it must
                // not), what was made so far lies in the spare capacity and is never dropped.
                let p = unsafe { P::from_raw(raw) };
                room[taken + k].write(p);
            }
            taken += line;
        }
        self.head += taken;
        let len = into.len() + taken;
        // SAFETY: the first `taken` places of the spare capacity have been written.
        unsafe { into.set_len(len) };
        taken
    }

    /// Lends the oldest element.
    #[inline]
    pub(super) fn peek<R>(&mut self, f: impl FnOnce(&P) -> R) -> Option<R> {
        let raw = self.oldest()?;
        // SAFETY: invariant 4: the ring owns it. This second value is never dropped, and only lent while the element stays in
        // its slot, which only this handle empties, and it is borrowed.
        let p = ManuallyDrop::new(unsafe { P::from_raw(raw) });
        Some(f(&p))
    }

    /// Puts elements back in front, the last one first, into slots that are not cleared yet: nobody else looks at them.
    pub(super) fn unconsume(&mut self, batch: &mut Vec<P>, to: &impl Publish) {
        while self.head > self.tail
            && let Some(p) = batch.pop()
        {
            self.head -= 1;
            // Relaxed: only this handle reads the slot, and the producer sees it taken before as after.
            // SAFETY: 1. by invariant 3.
            unsafe { self.slot(self.head) }.store(p.into_raw().as_ptr(), Ordering::Relaxed);
        }
        to.consumed(self.consumed());
    }

    /// How many elements [`unconsume`](Self::unconsume) can take back.
    pub(super) fn pending(&self) -> usize {
        self.head - self.tail
    }

    /// Whether the producer is gone.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        // SAFETY: invariant 1: this handle has not left.
        has_left(unsafe { self.header.as_ref() })
    }
}

impl<P: Pointer> Drop for Producer<P> {
    fn drop(&mut self) {
        // SAFETY: 1. this is the handle's last act.
        unsafe { leave::<P>(self.header, self.slots) };
    }
}

impl<P: Pointer> Drop for Consumer<P> {
    fn drop(&mut self) {
        // SAFETY: invariant 1: this handle has not left.
        let header = unsafe { self.header.as_ref() };
        // Relaxed: [Q5] makes these visible. A batch that is partly handed out stays as it is: a producer that is still
        // there would take it for a free one.
        header.head.store(self.head, Ordering::Relaxed);
        header.pending.store(self.pending(), Ordering::Relaxed);
        // SAFETY: 1. this is the handle's last act.
        unsafe { leave::<P>(self.header, self.slots) };
    }
}
