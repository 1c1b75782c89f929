//! The memory of a queue, and how two handles leave it.

use super::{Pointer, Slot};
use crate::ptr_ring::{CapacityError, Clearing, MAX_CAPACITY};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, order};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// How a queue is cut into batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ptr_ring) struct Shape {
    pub(in crate::ptr_ring) capacity: usize,
    /// The consumer clears this many slots at once, cut at the end of the slots.
    pub(super) batch: usize,
    /// The producer tests one slot in this many: `batch` under the credit rule, else 1.
    pub(super) grain: usize,
    /// Head moves before the clearing rather than after it.
    pub(super) head_first: bool,
}

impl Shape {
    pub(in crate::ptr_ring) fn new(
        capacity: usize,
        clearing: Clearing,
        head_first: bool,
    ) -> Result<Self, CapacityError> {
        if capacity > MAX_CAPACITY {
            return Err(CapacityError::TooLarge);
        }
        let batch = clearing.batch(capacity);
        let grain = if clearing == Clearing::Credit { batch } else { 1 };
        Ok(Self { capacity, batch, grain, head_first })
    }

    pub(super) fn cut(self, end: usize) -> usize {
        end.min(self.capacity)
    }

    /// Where the producer's run that begins at or contains `at` ends.
    pub(super) fn run_end(self, at: usize) -> usize {
        self.cut((at / self.grain + 1) * self.grain)
    }

    /// Where the consumer clears next if its tail is `at`.
    pub(super) fn flush_end(self, at: usize) -> usize {
        self.cut(if self.grain == self.batch { (at / self.batch + 1) * self.batch } else { at + self.batch })
    }
}

/// What the handles share besides the slots. Nobody touches it while elements flow.
#[repr(C, align(128))]
pub(super) struct Header {
    /// One of the handles is gone. Written by both as their last act.
    pub(super) left: AtomicBool,
    /// The consumer's head and how many slots before it are not cleared. Written by the consumer before it leaves.
    pub(super) head: AtomicUsize,
    pub(super) pending: AtomicUsize,
    capacity: usize,
}

fn layout(capacity: usize) -> Option<(Layout, usize)> {
    Layout::new::<Header>().extend(Layout::array::<Slot>(capacity.max(1)).ok()?).ok()
}

/// A pointer to the header, and one to the slots.
pub(super) struct Memory {
    pub(super) header: NonNull<Header>,
    pub(super) slots: NonNull<Slot>,
}

impl Memory {
    pub(super) fn new(capacity: usize) -> Result<Self, CapacityError> {
        let (layout, offset) = layout(capacity).ok_or(CapacityError::TooLarge)?;
        // SAFETY: the layout holds a header, so it has a size.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or(CapacityError::OutOfMemory)?;
        let header = memory.cast::<Header>();
        let left = AtomicBool::new(false);
        let (head, pending) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // SAFETY: the memory begins with room for a header, and nobody else knows it.
        unsafe { header.write(Header { left, head, pending, capacity }) };
        // SAFETY: the layout says that the slots begin at `offset`.
        let slots = unsafe { memory.byte_add(offset) }.cast::<Slot>();
        for i in 0..capacity.max(1) {
            // SAFETY: the layout has `max(capacity, 1)` slots.
            let slot = unsafe { slots.add(i) };
            // SAFETY: as above, and nobody else knows the memory.
            unsafe { slot.write(Slot::new(null_mut())) };
        }
        Ok(Self { header, slots })
    }
}

/// Says that a handle leaves. The second to leave destroys what is left and frees.
///
/// # Safety
/// 1. `header` is that of a queue whose handle calls this as its last act.
pub(super) unsafe fn leave<P: Pointer>(header: NonNull<Header>, slots: NonNull<Slot>) {
    // SAFETY: invariant 1: this handle has not left, so the header lives.
    let shared = unsafe { header.as_ref() };
    // AcqRel [Q5]: the two handles' swaps pair with each other.
    // - We come first: what we did is visible to the other handle when it frees.
    // - The other came first: we see all that it did, and nobody else is left.
    if shared.left.swap(true, order("Q5", Ordering::AcqRel)) {
        let (capacity, head) = (shared.capacity, shared.head.load(Ordering::Relaxed));
        let left = capacity - shared.pending.load(Ordering::Relaxed);
        drop(Remains::<P> { header, slots, capacity, head, left, _p: PhantomData });
    }
}

/// What both handles left behind: dropping it destroys the elements, oldest first, and frees the memory, even if
/// destroying one of them panics.
struct Remains<P: Pointer> {
    header: NonNull<Header>,
    slots: NonNull<Slot>,
    capacity: usize,
    head: usize,
    left: usize,
    _p: PhantomData<P>,
}

impl<P: Pointer> Remains<P> {
    fn next(&mut self) -> Option<P> {
        if self.left == 0 {
            return None;
        }
        // SAFETY: invariants 1 and 3: head is the index of a slot.
        let slot = unsafe { self.slots.add(self.head) };
        // SAFETY: invariant 1: the memory lives until `self` frees it.
        let raw = NonNull::new(unsafe { slot.as_ref() }.load(Ordering::Relaxed))?;
        self.head = if self.head + 1 == self.capacity { 0 } else { self.head + 1 };
        self.left -= 1;
        // SAFETY: invariant 4: the ring owns it, and head has moved on, so that it becomes a value once.
        Some(unsafe { P::from_raw(raw) })
    }
}

impl<P: Pointer> Drop for Remains<P> {
    fn drop(&mut self) {
        /// Goes on after a panic, as `Vec` does.
        struct Rest<'a, P: Pointer>(&'a mut Remains<P>);
        impl<P: Pointer> Drop for Rest<'_, P> {
            fn drop(&mut self) {
                while let Some(p) = self.0.next() {
                    drop(p);
                }
                // SAFETY: invariant 1: both handles are gone, and nobody else knows the memory.
                unsafe { free(self.0.header, self.0.slots) };
            }
        }
        let rest = Rest(self);
        while let Some(p) = rest.0.next() {
            drop(p);
        }
    }
}

/// # Safety
/// 1. The memory comes from `Memory::new`, and nobody uses it any more.
unsafe fn free(header: NonNull<Header>, slots: NonNull<Slot>) {
    // SAFETY: 1.
    let capacity = unsafe { header.as_ref() }.capacity;
    let slots = NonNull::slice_from_raw_parts(slots, capacity.max(1));
    // SAFETY: 1. (Only a model's atomics have a destructor.)
    unsafe { slots.drop_in_place() };
    // SAFETY: 1.
    unsafe { header.drop_in_place() };
    let (layout, _) = layout(capacity).expect("it was allocated with it");
    // SAFETY: 1., and the layout is the one that it was allocated with.
    unsafe { std::alloc::dealloc(header.as_ptr().cast(), layout) };
}

/// Whether one of the handles, which is not the caller's, has left.
#[inline]
pub(super) fn has_left(header: &Header) -> bool {
    // Acquire [Q6]: pairs with Release [Q5] in `leave`: what the other did before it left is visible.
    header.left.load(order("Q6", Ordering::Acquire))
}
