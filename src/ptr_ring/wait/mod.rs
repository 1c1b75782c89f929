//! A ring on which one can wait.
//!
//! The ring itself knows nothing of sleepers, so that nobody pays for them who does not sleep. Whoever waits puts a
//! waker on a list, *then* tries once more, and sleeps only if that fails, too; whoever changes the ring looks at the
//! list *afterwards*. Each of the two writes one thing and then reads the other's, so a full fence on each side keeps
//! both from missing the other (Dekker).
//!
//! Producers wait for cleared slots: a consumer that has only taken elements of an unfinished batch has made no room, and
//! wakes nobody. Everyone who waits on a side is woken and tries again. That is one attempt too many for all but one of
//! them, but a wake can never be lost with a sleeper that has given up meanwhile.
//!
//! A full ring does not stay full when it is drained: an empty ring has room, so the last consumer to come before all
//! fall silent clears a batch and wakes the producers.
#![forbid(unsafe_code)]

mod future;
mod sleepers;

pub use future::{Consuming, Producing};

use super::{CapacityError, Full, Pointer, PtrRing, RawMutex, YieldLock};
use crate::sync::CachePadded;
use sleepers::{Sleepers, block_on};
use std::fmt;
use std::time::{Duration, Instant};

/// A [`PtrRing`] with calls that wait: blocking ones, and futures for any executor.
///
/// Should a waker panic, so does the call that ran it, after it has changed the ring and woken the others; an element that it
/// had consumed is dropped.
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::Waiting;
///
/// let ring = Waiting::new(2)?;
/// std::thread::scope(|s| {
///     s.spawn(|| (0..100).for_each(|i| ring.produce(Box::new(i)))); // waits for room
///     (0..100).for_each(|i| assert_eq!(*ring.consume(), i)); // waits for elements
/// });
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub struct Waiting<P: Pointer, L: RawMutex = YieldLock> {
    ring: PtrRing<P, L>,
    /// Consumers, who wait for an element.
    for_elements: CachePadded<Sleepers>,
    /// Producers, who wait for cleared slots.
    for_room: CachePadded<Sleepers>,
}

impl<P: Pointer> Waiting<P> {
    /// Makes a ring of `capacity` slots to wait on.
    ///
    /// # Context
    /// Allocates.
    ///
    /// # Errors
    /// As [`PtrRing::new`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// assert_eq!(Waiting::<Box<u8>>::new(10)?.ring().capacity(), 10);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn new(capacity: usize) -> Result<Self, CapacityError> {
        Ok(Self::from(PtrRing::new(capacity)?))
    }
}

/// Makes any ring one to wait on.
impl<P: Pointer, L: RawMutex> From<PtrRing<P, L>> for Waiting<P, L> {
    fn from(ring: PtrRing<P, L>) -> Self {
        let (for_elements, for_room) = (Sleepers::new(), Sleepers::new());
        Self { ring, for_elements: CachePadded::new(for_elements), for_room: CachePadded::new(for_room) }
    }
}

impl<P: Pointer, L: RawMutex> Waiting<P, L> {
    /// The ring, to look at.
    ///
    /// What changes the ring by way of this reference wakes nobody.
    ///
    /// # Context
    /// Never blocks.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// assert!(Waiting::<Box<u8>>::new(10)?.ring().is_empty());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn ring(&self) -> &PtrRing<P, L> {
        &self.ring
    }

    /// Gives the ring back.
    ///
    /// # Context
    /// Never blocks: nobody can be waiting.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(1)?;
    /// ring.produce(Box::new(1));
    /// assert_eq!(ring.into_inner().consume(), Some(Box::new(1)));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn into_inner(self) -> PtrRing<P, L> {
        self.ring
    }

    /// Appends an element if there is room, and wakes the consumers.
    ///
    /// # Context
    /// As [`PtrRing::produce`]. Runs the wakers of those who wait.
    ///
    /// # Errors
    /// [`Full`] hands the element back.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(1)?;
    /// assert!(ring.try_produce(Box::new(1)).is_ok());
    /// assert!(ring.try_produce(Box::new(2)).is_err());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn try_produce(&self, p: P) -> Result<(), Full<P>> {
        self.ring.produce(p)?;
        self.for_elements.wake();
        Ok(())
    }

    /// Takes the oldest element if there is one, and wakes the producers if that has cleared slots.
    ///
    /// # Context
    /// As [`PtrRing::consume`]. Runs the wakers of those who wait.
    ///
    /// # Panics
    /// As [`PtrRing::consume`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// assert_eq!(Waiting::<Box<u8>>::new(1)?.try_consume(), None);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn try_consume(&self) -> Option<P> {
        let (p, cleared) = self.ring.consume_telling();
        if cleared {
            self.for_room.wake();
        }
        p
    }

    /// [`PtrRing::produce_batch`], and wakes the consumers.
    ///
    /// # Context
    /// As [`PtrRing::produce_batch`]. Runs the wakers of those who wait.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// assert_eq!(Waiting::new(2)?.produce_batch(&mut vec![Box::new(1), Box::new(2), Box::new(3)]), 2);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn produce_batch(&self, from: &mut Vec<P>) -> usize {
        let n = self.ring.produce_batch(from);
        if n > 0 {
            self.for_elements.wake();
        }
        n
    }

    /// [`PtrRing::consume_batch`], and wakes the producers if that has cleared slots.
    ///
    /// # Context
    /// As [`PtrRing::consume_batch`]. Runs the wakers of those who wait.
    ///
    /// # Panics
    /// As [`PtrRing::consume_batch`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(2)?;
    /// ring.produce(Box::new(1));
    /// assert_eq!(ring.consume_batch(&mut vec![], 9), 1);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn consume_batch(&self, into: &mut Vec<P>, max: usize) -> usize {
        let (n, cleared) = self.ring.consume_batch_telling(into, max);
        if cleared {
            self.for_room.wake();
        }
        n
    }

    /// [`PtrRing::unconsume`], and wakes the consumers.
    ///
    /// # Context
    /// As [`PtrRing::unconsume`]. Runs the wakers of those who wait.
    ///
    /// # Panics
    /// As [`PtrRing::unconsume`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(1)?;
    /// assert_eq!(ring.unconsume(vec![Box::new(1), Box::new(2)]), [Box::new(1)]);
    /// assert_eq!(ring.consume(), Box::new(2));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn unconsume(&self, batch: Vec<P>) -> Vec<P> {
        let rest = self.ring.unconsume(batch);
        // It may also have cleared what had been consumed.
        self.for_elements.wake();
        self.for_room.wake();
        rest
    }

    /// [`PtrRing::resize`], and wakes everyone.
    ///
    /// # Context
    /// As [`PtrRing::resize`]. Runs the wakers of those who wait.
    ///
    /// # Panics
    /// As [`PtrRing::resize`].
    ///
    /// # Errors
    /// As [`PtrRing::resize`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(0)?;
    /// assert!(ring.resize(1)?.is_empty());
    /// ring.produce(Box::new(1));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn resize(&self, capacity: usize) -> Result<Vec<P>, CapacityError> {
        let rest = self.ring.resize(capacity)?;
        self.for_room.wake();
        self.for_elements.wake();
        Ok(rest)
    }

    /// Appends an element, after waiting for room if there is none.
    ///
    /// # Context
    /// Blocks until slots have been cleared. In a ring of capacity 0 that takes a `resize`.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(1)?;
    /// std::thread::scope(|s| {
    ///     s.spawn(|| (0..10).for_each(|i| ring.produce(Box::new(i)))); // waits for room nine times
    ///     assert!((0..10).all(|i| *ring.consume() == i));
    /// });
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn produce(&self, p: P) {
        if let Err(Full(p)) = self.try_produce(p) {
            block_on(self.produce_async(p), None).expect("without a deadline it ends well");
        }
    }

    /// [`produce`](Self::produce) that waits for a limited time.
    ///
    /// # Context
    /// Blocks until slots have been cleared, or the time is over.
    ///
    /// # Errors
    /// [`Full`] hands the element back when the time is over.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::{Full, Waiting};
    /// # use std::time::Duration;
    /// let ring = Waiting::new(0)?;
    /// assert_eq!(ring.produce_timeout(Box::new(1), Duration::from_millis(1)), Err(Full(Box::new(1))));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn produce_timeout(&self, p: P, limit: Duration) -> Result<(), Full<P>> {
        let Err(Full(p)) = self.try_produce(p) else { return Ok(()) };
        let mut producing = self.produce_async(p);
        match block_on(&mut producing, Instant::now().checked_add(limit)) {
            Some(()) => Ok(()),
            None => Err(Full(producing.into_element())),
        }
    }

    /// Takes the oldest element, after waiting for one if there is none.
    ///
    /// # Context
    /// Blocks until an element has been produced.
    ///
    /// # Panics
    /// As [`PtrRing::consume`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// let ring = Waiting::new(1)?;
    /// std::thread::scope(|s| {
    ///     let worker = s.spawn(|| ring.consume()); // waits if it comes first
    ///     ring.produce(Box::new("job"));
    ///     assert_eq!(worker.join().unwrap(), Box::new("job"));
    /// });
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn consume(&self) -> P {
        self.try_consume()
            .unwrap_or_else(|| block_on(self.consume_async(), None).expect("without a deadline it ends well"))
    }

    /// [`consume`](Self::consume) that waits for a limited time.
    ///
    /// # Context
    /// Blocks until an element has been produced, or the time is over: then it is `None`.
    ///
    /// # Panics
    /// As [`PtrRing::consume`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// # use std::time::Duration;
    /// assert_eq!(Waiting::<Box<u8>>::new(1)?.consume_timeout(Duration::from_millis(1)), None);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn consume_timeout(&self, limit: Duration) -> Option<P> {
        self.try_consume().or_else(|| block_on(self.consume_async(), Instant::now().checked_add(limit)))
    }

    /// Appends an element, as soon as there is room: a future for any executor.
    ///
    /// Dropping the future before it is ready drops the element.
    ///
    /// # Context
    /// Nothing happens until it is polled; polling never blocks beyond the ring's locks.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// async fn echo(ring: &Waiting<Box<u8>>) -> u8 {
    ///     ring.produce_async(Box::new(7)).await;
    ///     *ring.consume_async().await
    /// }
    /// ```
    pub fn produce_async(&self, p: P) -> Producing<'_, P, L> {
        Producing::new(self, p)
    }

    /// Takes the oldest element, as soon as there is one: a future for any executor.
    ///
    /// Dropping the future takes nothing from the ring.
    ///
    /// # Context
    /// Nothing happens until it is polled; polling never blocks beyond the ring's locks.
    ///
    /// # Panics
    /// When it is polled, as [`PtrRing::consume`].
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::Waiting;
    /// async fn sum(ring: &Waiting<Box<u64>>, of: usize) -> u64 {
    ///     let mut sum = 0;
    ///     for _ in 0..of {
    ///         sum += *ring.consume_async().await;
    ///     }
    ///     sum
    /// }
    /// ```
    pub fn consume_async(&self) -> Consuming<'_, P, L> {
        Consuming::new(self)
    }
}

impl<P: Pointer, L: RawMutex> fmt::Debug for Waiting<P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.ring).finish()
    }
}
