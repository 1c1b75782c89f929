//! Looking at a locked ring without a lock.
//!
//! Nobody looks at the slots here, which a resize may free at any moment, but at counts that both sides publish and that
//! outlive every queue.
#![forbid(unsafe_code)]

use super::{Pointer, PtrRing, RawMutex};
use crate::sync::{Ordering, order};

impl<P: Pointer, L: RawMutex> PtrRing<P, L> {
    /// Whether there is nothing to consume.
    ///
    /// True means that every element whose `produce` returned before this call has been consumed (one that is put back
    /// meanwhile may count as consumed). False means that there was one at some time during the call; for the only
    /// consumer of a ring it means that `consume` has one.
    ///
    /// # Context
    /// Any thread, also in the closure of [`peek`](Self::peek). Two loads, no lock. During a `resize` it answers for
    /// the ring before or after it.
    ///
    /// # Ordering
    /// None that a caller could build on; consuming the element orders.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(8)?;
    /// assert!(ring.is_empty());
    /// ring.produce(Box::new(1)).unwrap();
    /// assert!(!ring.is_empty());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Both counts only ever run behind, and what the caller knows of is in them. They are compared as a difference:
        // the consumer may be ahead of what the producer has published.
        let consumed = self.consumer.count();
        // Acquire [Q8]: pairs with Release [Q7] in `publish`.
        let produced = self.producer.count(order("Q8", Ordering::Acquire));
        produced.wrapping_sub(consumed).cast_signed() <= 0
    }

    /// Whether there is no room, by what has been cleared (see [`Clearing`](super::Clearing)).
    ///
    /// False means that there was room at some time during the call; for the only producer of a ring it means that
    /// `produce` succeeds. True may be late: a batch may have been cleared just now.
    ///
    /// # Context
    /// Any thread, also in the closure of [`peek`](Self::peek). Three loads, no lock. During a `resize` it answers for
    /// the ring before or after it, or for the one's elements in the other's capacity.
    ///
    /// # Ordering
    /// None that a caller could build on.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(1)?;
    /// assert!(!ring.is_full());
    /// ring.produce(Box::new(1)).unwrap();
    /// assert!(ring.is_full());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_full(&self) -> bool {
        let produced = self.producer.count(Ordering::Relaxed);
        // Acquire [Q10]: pairs with Release [Q9] in `cleared`.
        let cleared = self.consumer.count_of_cleared(order("Q10", Ordering::Acquire));
        produced.wrapping_sub(cleared).cast_signed() >= self.capacity().cast_signed()
    }

    /// How many elements have been produced and consumed so far, each modulo the word: exact while nobody does either.
    pub(crate) fn totals(&self) -> (usize, usize) {
        (self.producer.count(Ordering::Relaxed), self.consumer.count())
    }

    /// How many slots the ring has.
    ///
    /// # Context
    /// Any thread. One load. `resize` may change it at any time.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// assert_eq!(PtrRing::<Box<u8>>::new(1000)?.capacity(), 1000);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }
}
