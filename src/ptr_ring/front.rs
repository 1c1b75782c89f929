//! The front of a locked ring, beyond taking from it: looking at the oldest element, and putting elements back.
#![forbid(unsafe_code)]

use super::raw::Both;
use super::{Pointer, PtrRing, RawMutex};

impl<P: Pointer, L: RawMutex> PtrRing<P, L> {
    /// Looks at the oldest element without taking it; `None` if the ring is empty.
    ///
    /// `f` runs under the consumer's lock: other consumers wait for it. If it panics, the ring is as before.
    ///
    /// # Context
    /// As [`consume`](Self::consume), and for as long as `f` takes. In `f`, everything else may be done with this ring
    /// that does not take its consumer's lock: `produce`, `produce_batch`, `is_empty`, `is_full`, `capacity`.
    ///
    /// Into any other ring it may produce, too. But a closure that waits for another thread which consumes from this ring
    /// waits for ever, and so do two threads that each take from, put back to or resize the ring that the other one peeks
    /// into: as with any lock, rings that are used so within each other need an order.
    ///
    /// # Ordering
    /// As [`consume`](Self::consume).
    ///
    /// # Panics
    /// In the closure of another `peek` into the same ring. So do, in `f` and on the same ring, `consume`,
    /// `consume_batch`, `unconsume`, `resize` and `resize_many`, before they change anything.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(8)?;
    /// ring.produce(Box::new([1_u8; 60])).unwrap();
    /// assert_eq!(ring.peek(|packet| packet.len()), Some(60));
    /// assert!(!ring.is_empty());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn peek<R>(&self, f: impl FnOnce(&P) -> R) -> Option<R> {
        self.consumer.peek(f)
    }

    /// Puts elements back in front, in their order; what does not fit comes back in order: the oldest of them.
    ///
    /// They need not be elements that came from this ring.
    ///
    /// # Context
    /// Any thread. Takes the consumer's lock, and the producer's inside if the batch is longer than what has been consumed
    /// and not been cleared.
    ///
    /// # Ordering
    /// As [`produce`](Self::produce).
    ///
    /// # Panics
    /// In the closure of [`peek`](Self::peek) on the same ring.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(8)?;
    /// ring.produce_batch(&mut vec![Box::new(1), Box::new(2), Box::new(3)]);
    /// let mut batch = vec![];
    /// ring.consume_batch(&mut batch, 2);
    /// assert!(ring.unconsume(batch).is_empty());
    /// assert_eq!(ring.consume(), Some(Box::new(1)));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn unconsume(&self, batch: Vec<P>) -> Vec<P> {
        let mut batch = batch;
        if batch.is_empty() {
            return batch;
        }
        let mut consumer = self.consumer.lock();
        if batch.len() <= consumer.pending() {
            consumer.unconsume(&mut batch, &*self.consumer);
        } else {
            let mut producer = self.producer.lock();
            Both::new(&mut producer, &mut consumer).unconsume(&mut batch, &*self.consumer);
        }
        drop(consumer);
        batch
    }
}
