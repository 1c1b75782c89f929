//! One producer, one consumer, no locks.
//!
//! What the locks of a [`PtrRing`](super::PtrRing) see to, that there is one producer and one consumer at a time, the
//! types see to here: neither handle can be cloned, and what changes a handle takes `&mut self`. The state of each side
//! lives in its handle, out of the other one's sight.
#![forbid(unsafe_code)]

use super::raw::{self, Batch, Shape};
use super::{CapacityError, Clearing, Full, Pointer};
use std::fmt;

/// Makes a ring for one producer and one consumer, with the default clearing.
///
/// The elements that are left when both handles are gone are dropped by whoever goes last, oldest first.
///
/// # Context
/// Allocates.
///
/// # Errors
/// As [`PtrRing::new`](super::PtrRing::new).
///
/// # Examples
/// ```
/// let (mut tx, mut rx) = percpu_ref::ptr_ring::spsc(1000)?;
/// std::thread::spawn(move || tx.produce(Box::new("hello")).expect("room"));
/// loop {
///     match rx.consume() {
///         Some(word) => break assert_eq!(*word, "hello"),
///         None => std::thread::yield_now(),
///     }
/// }
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub fn spsc<P: Pointer>(capacity: usize) -> Result<(Producer<P>, Consumer<P>), CapacityError> {
    spsc_with_clearing(capacity, Clearing::default())
}

/// [`spsc`] with a rule of clearing of your choice.
///
/// # Context
/// Allocates.
///
/// # Errors
/// As [`PtrRing::new`](super::PtrRing::new).
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{Clearing, spsc_with_clearing};
/// let (mut tx, mut rx) = spsc_with_clearing(64, Clearing::Kernel)?;
/// (0..64).for_each(|i| tx.produce(Box::new(i)).unwrap());
/// (0..15).for_each(|_| drop(rx.consume()));
/// assert!(tx.is_full());
/// rx.consume();
/// assert!(!tx.is_full());
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub fn spsc_with_clearing<P: Pointer>(
    capacity: usize,
    clearing: Clearing,
) -> Result<(Producer<P>, Consumer<P>), CapacityError> {
    let (producer, consumer) = raw::pair(Shape::new(capacity, clearing, true)?)?;
    Ok((Producer(producer), Consumer(consumer)))
}

/// The only producer of a ring made by [`spsc`].
///
/// # Examples
/// ```
/// # use percpu_ref::ptr_ring::{Producer, spsc};
/// fn send(tx: &mut Producer<Box<u8>>, x: u8) -> bool {
///     !tx.is_abandoned() && tx.produce(Box::new(x)).is_ok()
/// }
/// let (mut tx, rx) = spsc(4)?;
/// assert!(send(&mut tx, 1));
/// drop(rx);
/// assert!(!send(&mut tx, 2));
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
///
/// A producer of `&'static T` does not take shorter references:
/// ```compile_fail
/// # use percpu_ref::ptr_ring::Producer;
/// fn shorten<'a>(producer: Producer<&'static u8>) -> Producer<&'a u8> { producer }
/// ```
/// ```
/// # use percpu_ref::ptr_ring::Producer;
/// fn keep(producer: Producer<&'static u8>) -> Producer<&'static u8> { producer }
/// ```
pub struct Producer<P: Pointer>(raw::Producer<P>);

/// The only consumer of a ring made by [`spsc`].
///
/// # Examples
/// ```
/// # use percpu_ref::ptr_ring::{Consumer, spsc};
/// fn drain(rx: &mut Consumer<Box<u8>>) -> usize {
///     std::iter::from_fn(|| rx.consume()).count()
/// }
/// let (mut tx, mut rx) = spsc(4)?;
/// tx.produce_batch(&mut vec![Box::new(1), Box::new(2)]);
/// assert_eq!(drain(&mut rx), 2);
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub struct Consumer<P: Pointer>(raw::Consumer<P>);

impl<P: Pointer> Producer<P> {
    /// Appends an element.
    ///
    /// # Context
    /// Never blocks, takes no lock: one store, and one load at the start of a batch.
    ///
    /// # Ordering
    /// What the caller did before is visible to whoever consumes the element.
    ///
    /// # Errors
    /// [`Full`] hands the element back. Elements that were consumed may still count, see [`Clearing`]; an empty ring
    /// of capacity above 0 is never full.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::{Full, spsc};
    /// let (mut tx, _rx) = spsc(1)?;
    /// assert!(tx.produce(Box::new(1)).is_ok());
    /// assert_eq!(tx.produce(Box::new(2)), Err(Full(Box::new(2))));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn produce(&mut self, p: P) -> Result<(), Full<P>> {
        self.0.produce(p).map_err(Full)
    }

    /// Moves as many elements as there is room for from the front of `from` into the ring, and returns how many.
    ///
    /// # Context
    /// Never blocks.
    ///
    /// # Ordering
    /// As [`produce`](Self::produce), for each element.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, _rx) = spsc(2)?;
    /// let mut from = vec![Box::new(1), Box::new(2), Box::new(3)];
    /// assert_eq!(tx.produce_batch(&mut from), 2);
    /// assert_eq!(from, [Box::new(3)]);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn produce_batch(&mut self, from: &mut Vec<P>) -> usize {
        let mut batch = Batch::new(from);
        self.0.produce_batch(&mut batch);
        batch.taken()
    }

    /// Whether there is no room; false means that [`produce`](Self::produce) succeeds.
    ///
    /// # Context
    /// Never blocks: at most one load of what the consumer writes.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, _rx) = spsc(1)?;
    /// assert!(!tx.is_full());
    /// tx.produce(Box::new(1)).unwrap();
    /// assert!(tx.is_full());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// How many slots the ring has.
    ///
    /// # Context
    /// Never blocks.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (tx, rx) = spsc::<Box<u8>>(1000)?;
    /// assert_eq!((tx.capacity(), rx.capacity()), (1000, 1000));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Whether the consumer is gone: nobody will take what is produced from now on.
    ///
    /// # Context
    /// Never blocks: one load.
    ///
    /// # Ordering
    /// True makes visible what the consumer did before it went.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (tx, rx) = spsc::<Box<u8>>(1)?;
    /// drop(rx);
    /// assert!(tx.is_abandoned());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl<P: Pointer> Consumer<P> {
    /// Takes the oldest element; `None` if the ring is empty.
    ///
    /// # Context
    /// Never blocks, takes no lock: one load, and the clearing of a batch at its end.
    ///
    /// # Ordering
    /// What the producer did before it produced the element is visible.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, mut rx) = spsc(1)?;
    /// tx.produce(Box::new(1)).unwrap();
    /// assert_eq!(rx.consume(), Some(Box::new(1)));
    /// assert_eq!(rx.consume(), None);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn consume(&mut self) -> Option<P> {
        self.0.consume(&())
    }

    /// Appends up to `max` of the oldest elements to `into`, and returns how many.
    ///
    /// # Context
    /// Never blocks. `into` grows unless it has spare capacity.
    ///
    /// # Ordering
    /// As [`consume`](Self::consume), for each element.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, mut rx) = spsc(8)?;
    /// tx.produce_batch(&mut vec![Box::new(1), Box::new(2), Box::new(3)]);
    /// let mut into = vec![];
    /// assert_eq!(rx.consume_batch(&mut into, 2), 2);
    /// assert_eq!(into, [Box::new(1), Box::new(2)]);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn consume_batch(&mut self, into: &mut Vec<P>, max: usize) -> usize {
        self.0.consume_batch(into, max, &())
    }

    /// Looks at the oldest element without taking it; `None` if the ring is empty.
    ///
    /// # Context
    /// Never blocks. The producer goes on meanwhile. If `f` panics, the ring is as before.
    ///
    /// # Ordering
    /// As [`consume`](Self::consume).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, mut rx) = spsc(1)?;
    /// tx.produce(Box::new(1)).unwrap();
    /// assert_eq!(rx.peek(|x| **x), Some(1));
    /// assert_eq!(rx.consume(), Some(Box::new(1)));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn peek<R>(&mut self, f: impl FnOnce(&P) -> R) -> Option<R> {
        self.0.peek(f)
    }

    /// Puts elements back in front, in their order; what does not fit comes back in order: the oldest of them.
    ///
    /// Only slots that were consumed and have not been cleared yet are left to the consumer, so up to one batch less one
    /// fit ([`Clearing`]), and just after the clearing of a batch none do.
    ///
    /// # Context
    /// Never blocks.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, mut rx) = spsc(64)?; // batches of 16
    /// tx.produce_batch(&mut (0..20).map(Box::new).collect());
    /// let mut batch = vec![];
    /// rx.consume_batch(&mut batch, 18); // 16 of them are cleared
    /// assert_eq!(rx.unconsume(batch).len(), 16);
    /// assert_eq!(rx.consume(), Some(Box::new(16)));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn unconsume(&mut self, batch: Vec<P>) -> Vec<P> {
        let mut batch = batch;
        self.0.unconsume(&mut batch, &());
        batch
    }

    /// Whether there is nothing to consume; false means that [`consume`](Self::consume) has an element.
    ///
    /// # Context
    /// Never blocks: one load.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, rx) = spsc(1)?;
    /// assert!(rx.is_empty());
    /// tx.produce(Box::new(1)).unwrap();
    /// assert!(!rx.is_empty());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many slots the ring has.
    ///
    /// # Context
    /// Never blocks.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (tx, rx) = spsc::<Box<u8>>(1000)?;
    /// assert_eq!((tx.capacity(), rx.capacity()), (1000, 1000));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Whether the producer is gone: what the ring holds is all that will ever come.
    ///
    /// # Context
    /// Never blocks: one load.
    ///
    /// # Ordering
    /// True makes all visible that was produced: if the ring is empty afterwards, it remains so.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::spsc;
    /// let (mut tx, mut rx) = spsc(1)?;
    /// tx.produce(Box::new(1)).unwrap();
    /// drop(tx);
    /// assert!(rx.is_abandoned());
    /// assert_eq!(rx.consume(), Some(Box::new(1)));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl<P: Pointer> fmt::Debug for Producer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl<P: Pointer> fmt::Debug for Consumer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
