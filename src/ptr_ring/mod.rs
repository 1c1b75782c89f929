//! The kernel's pointer ring: a bounded queue of pointers in which an empty slot is a null pointer.
//!
//! A ring with a head and a tail that both sides read moves a cache line or two with every element. Here a slot itself
//! says whether it is taken, so a producer and a consumer share only the lines that carry elements, and the consumer
//! gives slots back in batches, so that the two meet on a line once in a batch and not once in an element.
//!
//! | use | when |
//! |---|---|
//! | [`PtrRing`] | any number of threads on each side, resizing; a lock a side, held for a few instructions |
//! | [`spsc`] | one thread on each side: no locks and no read-modify-write at all |
//! | [`Waiting`] | a `PtrRing` with blocking and async calls |
//!
//! # Room comes back late
//!
//! Consuming an element does not make room for another one. Room appears when a whole batch has been consumed and
//! cleared, so a producer may be told that a ring is full while up to one batch less one of its slots have been consumed.
//! [`Clearing`] says how long a batch is. An empty ring always has room, whatever the batch. Whoever sleeps until there
//! is room has to wait for *cleared* slots: [`Waiting`] does.
//!
//! # Exclusion
//!
//! | call | consumer's lock | producer's lock |
//! |---|---|---|
//! | `produce`, `produce_batch` | | held |
//! | `consume`, `consume_batch`, `peek` | held | |
//! | `unconsume` | held | held, if the batch exceeds what is not cleared yet |
//! | `resize`, `resize_many` | held: of all the rings, in the order of their addresses | then held, in the same order |
//! | `is_empty`, `is_full`, `capacity` | | |
//!
//! Where both are taken, the consumer's comes first, and of several rings all the consumers' locks come before the
//! producers'. Under them runs no code of yours but the closure of [`peek`](PtrRing::peek) and the conversions of
//! [`Pointer`]; elements are dropped, and queues allocated and freed, outside.
//!
//! The locks are ordinary ones. A signal handler must not use a ring that the code it interrupts may be using, and in a
//! forked child a side stays locked for ever that another thread was in when the process forked. The handles of [`spsc`]
//! have no locks: they go on in a child, each process with its own copy of the elements.
//!
//! The design is that of include/linux/ptr_ring.h in the Linux kernel.
//!
//! # Examples
//! ```
//! use percpu_ref::ptr_ring::PtrRing;
//!
//! let ring = PtrRing::new(1000)?;
//! std::thread::scope(|s| {
//!     s.spawn(|| {
//!         for i in 1..=100 {
//!             ring.produce(Box::new(i)).expect("there is room for all of them");
//!         }
//!     });
//!     let mut sum = 0;
//!     while sum < 5050 {
//!         sum += ring.consume().map_or(0, |i| *i);
//!     }
//! });
//! # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
//! ```

#![deny(unsafe_code)]

mod clearing;
mod error;
mod front;
mod look;
#[expect(unsafe_code, reason = "an unsafe trait and its implementations")]
mod pointer;
#[expect(unsafe_code, reason = "slots are raw memory shared by two ends")]
mod raw;
mod resize;
mod spsc;
mod wait;

pub use crate::sync::{RawMutex, YieldLock};
pub use clearing::Clearing;
pub use error::{CapacityError, Full};
pub use pointer::Pointer;
pub use spsc::{Consumer, Producer, spsc, spsc_with_clearing};
pub use wait::{Consuming, Producing, Waiting};

use crate::sync::{AtomicUsize, CachePadded};
use raw::{Batch, ConsumerSide, ProducerSide, Shape};
use std::panic::RefUnwindSafe;

/// The most slots that a ring can have: 2^28, which are 2 GiB of slots where a pointer has 64 bits.
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{MAX_CAPACITY, PtrRing};
///
/// assert!(PtrRing::<Box<u8>>::new(MAX_CAPACITY + 1).is_err());
/// ```
pub const MAX_CAPACITY: usize = 1 << 28;

/// A ring for any number of producers and consumers, with a lock for each side.
///
/// A producer never waits for consumers or the other way round, unless `resize` or `unconsume` is under way. Elements come
/// out in the order in which they went in. Dropping the ring drops what it holds, oldest first.
///
/// `L` is the lock of a side. The default one, [`YieldLock`], is made for such short sections; `parking_lot::RawMutex`, or
/// whatever else implements [`RawMutex`] of `lock_api`, fits too.
///
/// A ring of `&'static T` is not a ring of shorter references:
/// ```compile_fail
/// # use percpu_ref::ptr_ring::PtrRing;
/// fn shorten<'a, 'b>(ring: &'b PtrRing<&'static u8>) -> &'b PtrRing<&'a u8> { ring }
/// ```
/// ```
/// # use percpu_ref::ptr_ring::PtrRing;
/// fn keep<'b>(ring: &'b PtrRing<&'static u8>) -> &'b PtrRing<&'static u8> { ring }
/// ```
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{Full, PtrRing};
///
/// let ring = PtrRing::new(2)?;
/// ring.produce(Box::new("a")).unwrap();
/// ring.produce(Box::new("b")).unwrap();
/// let Err(Full(c)) = ring.produce(Box::new("c")) else { panic!("no room") };
/// assert_eq!(ring.consume().as_deref(), Some(&"a"));
/// ring.produce(c).unwrap();
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub struct PtrRing<P: Pointer, L: RawMutex = YieldLock> {
    consumer: CachePadded<ConsumerSide<P, L>>,
    producer: CachePadded<ProducerSide<P, L>>,
    /// Written under both locks, read by anyone.
    capacity: AtomicUsize,
    clearing: Clearing,
    head_first: bool,
}

/// A panic, also one in the closure of `peek`, leaves a ring as it was.
impl<P: Pointer, L: RawMutex> RefUnwindSafe for PtrRing<P, L> {}

impl<P: Pointer> PtrRing<P> {
    /// Makes a ring of `capacity` slots, with the default lock and the default clearing.
    ///
    /// Any size will do, it need not be a power of two. A ring of capacity 0 is always empty and always full.
    ///
    /// # Context
    /// Allocates.
    ///
    /// # Errors
    /// [`CapacityError::TooLarge`] above [`MAX_CAPACITY`], before anything is allocated;
    /// [`CapacityError::OutOfMemory`] if the allocator has no memory for it.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::ptr_ring::{CapacityError, MAX_CAPACITY, PtrRing};
    ///
    /// assert_eq!(PtrRing::<Box<u8>>::new(1000)?.capacity(), 1000);
    /// assert_eq!(PtrRing::<Box<u8>>::new(MAX_CAPACITY + 1).unwrap_err(), CapacityError::TooLarge);
    /// # Ok::<(), CapacityError>(())
    /// ```
    pub fn new(capacity: usize) -> Result<Self, CapacityError> {
        Self::with_lock(capacity)
    }
}

impl<P: Pointer, L: RawMutex> PtrRing<P, L> {
    /// [`new`](PtrRing::new) with a lock type of your choice.
    ///
    /// # Context
    /// Allocates.
    ///
    /// # Errors
    /// As [`new`](PtrRing::new).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring: PtrRing<Box<u8>, parking_lot::RawMutex> = PtrRing::with_lock(8)?;
    /// assert!(ring.produce(Box::new(1)).is_ok());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn with_lock(capacity: usize) -> Result<Self, CapacityError> {
        Self::with_clearing(capacity, Clearing::default())
    }

    /// [`with_lock`](Self::with_lock) with a rule of clearing of your choice.
    ///
    /// # Context
    /// Allocates.
    ///
    /// # Errors
    /// As [`new`](PtrRing::new).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::{Clearing, PtrRing};
    /// let ring = PtrRing::<_>::with_clearing(8, Clearing::OneByOne)?;
    /// (0..8).for_each(|i| ring.produce(Box::new(i)).unwrap());
    /// ring.consume();
    /// assert!(ring.produce(Box::new(8)).is_ok());
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn with_clearing(capacity: usize, clearing: Clearing) -> Result<Self, CapacityError> {
        Self::with_order(capacity, clearing, true)
    }

    /// For the benchmark of the 2021 change: whether `consumed` moves before the slots are cleared, or after it.
    #[doc(hidden)]
    pub fn with_order(capacity: usize, clearing: Clearing, head_first: bool) -> Result<Self, CapacityError> {
        let (producer, consumer) = raw::pair(Shape::new(capacity, clearing, head_first)?)?;
        Ok(Self {
            consumer: CachePadded::new(ConsumerSide::new(consumer)),
            producer: CachePadded::new(ProducerSide::new(producer)),
            capacity: AtomicUsize::new(capacity),
            clearing,
            head_first,
        })
    }

    /// Appends an element.
    ///
    /// # Context
    /// Any thread. Takes the producer's lock for a few instructions. Also in the closure of [`peek`](Self::peek).
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
    /// # use percpu_ref::ptr_ring::{Full, PtrRing};
    /// let ring = PtrRing::new(1)?;
    /// assert!(ring.produce(Box::new(1)).is_ok());
    /// assert_eq!(ring.produce(Box::new(2)), Err(Full(Box::new(2))));
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn produce(&self, p: P) -> Result<(), Full<P>> {
        self.producer.produce(p).map_err(Full)
    }

    /// Moves as many elements as there is room for from the front of `from` into the ring, and returns how many.
    ///
    /// They lie next to each other in the ring. The rest stays in `from`.
    ///
    /// # Context
    /// As [`produce`](Self::produce); the lock is taken once, and held for as long as the moving takes.
    ///
    /// # Ordering
    /// As [`produce`](Self::produce), for each element.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(2)?;
    /// let mut from = vec![Box::new(1), Box::new(2), Box::new(3)];
    /// assert_eq!(ring.produce_batch(&mut from), 2);
    /// assert_eq!(from, [Box::new(3)]);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn produce_batch(&self, from: &mut Vec<P>) -> usize {
        // Declared before the lock is taken: the gap is closed after it is released.
        let mut batch = Batch::new(from);
        self.producer.lock().produce_batch(&mut batch);
        batch.taken()
    }

    /// Takes the oldest element; `None` if the ring is empty.
    ///
    /// # Context
    /// Any thread. Takes the consumer's lock for a few instructions, or for one batch's clearing.
    ///
    /// # Ordering
    /// What the producer of the element did before it produced it is visible.
    ///
    /// # Panics
    /// In the closure of [`peek`](Self::peek) on the same ring.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(1)?;
    /// ring.produce(Box::new(1)).unwrap();
    /// assert_eq!(ring.consume(), Some(Box::new(1)));
    /// assert_eq!(ring.consume(), None);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    #[inline]
    pub fn consume(&self) -> Option<P> {
        self.consumer.consume()
    }

    /// [`consume`](Self::consume) that also says whether it made room.
    fn consume_telling(&self) -> (Option<P>, bool) {
        self.consumer.consume_telling()
    }

    /// Appends up to `max` of the oldest elements to `into`, and returns how many.
    ///
    /// # Context
    /// As [`consume`](Self::consume); the lock is taken once, and held for as long as the moving takes. `into` grows
    /// under it unless it has spare capacity.
    ///
    /// # Ordering
    /// As [`consume`](Self::consume), for each element.
    ///
    /// # Panics
    /// In the closure of [`peek`](Self::peek) on the same ring.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(8)?;
    /// ring.produce_batch(&mut vec![Box::new(1), Box::new(2), Box::new(3)]);
    /// let mut into = vec![];
    /// assert_eq!(ring.consume_batch(&mut into, 2), 2);
    /// assert_eq!(into, [Box::new(1), Box::new(2)]);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn consume_batch(&self, into: &mut Vec<P>, max: usize) -> usize {
        self.consumer.lock().consume_batch(into, max, &*self.consumer)
    }

    /// [`consume_batch`](Self::consume_batch) that also says whether it made room.
    fn consume_batch_telling(&self, into: &mut Vec<P>, max: usize) -> (usize, bool) {
        self.consumer.consume_batch_telling(into, max)
    }
}

impl<P: Pointer, L: RawMutex> std::fmt::Debug for PtrRing<P, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PtrRing")
            .field("capacity", &self.capacity())
            .field("is_empty", &self.is_empty())
            .field("is_full", &self.is_full())
            .finish_non_exhaustive()
    }
}
