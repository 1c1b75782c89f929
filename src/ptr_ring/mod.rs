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
//! | `resize`, `resize_many` | held | held: of all the rings, in the order of their addresses |
//! | `is_empty`, `is_full`, `capacity` | | |
//!
//! Where both are taken, the consumer's comes first. Under them runs no code of yours but the closure of
//! [`peek`](PtrRing::peek) and the conversions of [`Pointer`]; elements are dropped, and queues allocated and freed,
//! outside.
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

mod error;
#[expect(unsafe_code, reason = "an unsafe trait and its implementations")]
mod pointer;
#[expect(unsafe_code, reason = "slots are raw memory shared by two ends")]
mod raw;
mod resize;
mod spsc;
mod wait;

pub use crate::sync::{RawMutex, YieldLock};
pub use error::{CapacityError, Full};
pub use pointer::Pointer;
pub use spsc::{Consumer, Producer, spsc, spsc_with_clearing};
pub use wait::{Consuming, Producing, Waiting};

use crate::sync::{AtomicUsize, CachePadded, Ordering, SideGuard, SideLock, local, order};
use raw::{Batch, Both, Publish, Shape};
use std::panic::RefUnwindSafe;

/// The most slots that a ring can have: 2^28, which are 2 GiB of slots where a pointer has 64 bits.
pub const MAX_CAPACITY: usize = 1 << 28;

/// When the slots that were consumed become room for the producer.
///
/// A batch is never longer than half of the ring: if it would be, slots are cleared one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clearing {
    /// Whole batches at fixed places: a quarter of the ring, at least 1 slot and at most 64. The producer looks only at
    /// the first slot of each batch and then owns all of it.
    ///
    /// From a full ring the first `n` elements consumed make room for `n` rounded down to whole batches.
    #[default]
    Credit,
    /// The kernel's rule: two cache lines (16 slots), and 1 in a ring of fewer than 32. The producer looks at each slot.
    Kernel,
    /// As in the kernel before 2017: each element consumed makes room for one.
    OneByOne,
    /// The kernel's rule with a batch of one's own; 0 counts as 1.
    Batch(usize),
}

impl Clearing {
    fn batch(self, capacity: usize) -> usize {
        let wanted = match self {
            Self::Credit => return (capacity / 4).clamp(1, 64),
            Self::Kernel => 2 * raw::LINE,
            Self::OneByOne => 1,
            Self::Batch(n) => n,
        };
        if wanted > capacity / 2 { 1 } else { wanted.max(1) }
    }
}

local! {
    /// Its address names the thread.
    static HERE: u8 = 0;
}

fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

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

struct ConsumerSide<P: Pointer, L> {
    /// Protects the consumer's end. The producer's lock may be taken inside.
    end: SideLock<L, raw::Consumer<P>>,
    /// Elements consumed so far, modulo the word. Written under the lock, read by anyone.
    consumed: AtomicUsize,
    /// Slots cleared so far: `consumed` as it was at the last clearing. Written under the lock, read by anyone.
    cleared: AtomicUsize,
    /// The thread that runs the closure of `peek`, or 0. Written under the lock, read by anyone.
    peeker: AtomicUsize,
}

struct ProducerSide<P: Pointer, L> {
    /// Protects the producer's end. Nothing nests inside.
    end: SideLock<L, raw::Producer<P>>,
    /// Elements produced so far, modulo the word. Written under the lock, read by anyone.
    produced: AtomicUsize,
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
struct Telling<'a, W>(&'a W, std::cell::Cell<bool>);

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
    fn publish(&self, end: &raw::Producer<P>) {
        // Release [Q7]: pairs with Acquire [Q8] in `is_empty`: the element is in its slot for whoever sees the count.
        self.produced.store(end.produced(), order("Q7", Ordering::Release));
    }
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
        let zero = || AtomicUsize::new(0);
        let consumer = ConsumerSide { end: SideLock::new(consumer), consumed: zero(), cleared: zero(), peeker: zero() };
        let producer = ProducerSide { end: SideLock::new(producer), produced: zero() };
        Ok(Self {
            consumer: CachePadded::new(consumer),
            producer: CachePadded::new(producer),
            capacity: AtomicUsize::new(capacity),
            clearing,
            head_first,
        })
    }

    #[inline(always)]
    fn lock_producer(&self) -> SideGuard<'_, L, raw::Producer<P>> {
        // The way that most calls go is inlined, the other one is not.
        self.producer.end.try_lock().unwrap_or_else(|| self.wait_for_producer())
    }

    #[cold]
    fn wait_for_producer(&self) -> SideGuard<'_, L, raw::Producer<P>> {
        self.producer.end.lock()
    }

    #[inline(always)]
    fn lock_consumer(&self) -> SideGuard<'_, L, raw::Consumer<P>> {
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
        let mut end = self.lock_producer();
        end.produce(p).map_err(Full)?;
        self.producer.publish(&end);
        Ok(())
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
        let mut end = self.lock_producer();
        end.produce_batch(&mut batch);
        self.producer.publish(&end);
        drop(end);
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
        self.lock_consumer().consume(&*self.consumer)
    }

    /// [`consume`](Self::consume) that also says whether it made room.
    fn consume_telling(&self) -> (Option<P>, bool) {
        let telling = Telling(&*self.consumer, false.into());
        let p = self.lock_consumer().consume(&telling);
        (p, telling.1.get())
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
        self.lock_consumer().consume_batch(into, max, &*self.consumer)
    }

    /// [`consume_batch`](Self::consume_batch) that also says whether it made room.
    fn consume_batch_telling(&self, into: &mut Vec<P>, max: usize) -> (usize, bool) {
        let telling = Telling(&*self.consumer, false.into());
        let got = self.lock_consumer().consume_batch(into, max, &telling);
        (got, telling.1.get())
    }

    /// Looks at the oldest element without taking it; `None` if the ring is empty.
    ///
    /// `f` runs under the consumer's lock: other consumers wait for it. If it panics, the ring is as before.
    ///
    /// # Context
    /// As [`consume`](Self::consume), and for as long as `f` takes. In `f`, everything else may be done with this ring
    /// that does not take its consumer's lock: `produce`, `produce_batch`, `is_empty`, `is_full`, `capacity`.
    ///
    /// A closure that waits for another thread which consumes from this ring waits for ever, and so do two threads
    /// that each take from the ring that the other one peeks into: as with any lock, rings that are used within each
    /// other need an order.
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
        struct Peeking<'a>(&'a AtomicUsize);
        impl Drop for Peeking<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let mut end = self.lock_consumer();
        self.consumer.peeker.store(here(), Ordering::Relaxed);
        // Declared after the guard, so it is gone before the lock is.
        let _peeking = Peeking(&self.consumer.peeker);
        end.peek(f)
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
        let mut consumer = self.lock_consumer();
        if batch.len() <= consumer.pending() {
            consumer.unconsume(&mut batch, &*self.consumer);
        } else {
            let mut producer = self.lock_producer();
            Both::new(&mut producer, &mut consumer).unconsume(&mut batch, &*self.consumer);
        }
        drop(consumer);
        batch
    }

    /// Whether there is nothing to consume.
    ///
    /// True means that every element whose `produce` returned before this call has been consumed. False means that there was
    /// one at some time during the call; for the only consumer of a ring it means that `consume` has one.
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
        let consumed = self.consumer.consumed.load(Ordering::Relaxed);
        // Acquire [Q8]: pairs with Release [Q7] in `publish`.
        let produced = self.producer.produced.load(order("Q8", Ordering::Acquire));
        produced.wrapping_sub(consumed).cast_signed() <= 0
    }

    /// Whether there is no room, by what has been cleared (see [`Clearing`]).
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
        let produced = self.producer.produced.load(Ordering::Relaxed);
        // Acquire [Q10]: pairs with Release [Q9] in `cleared`.
        let cleared = self.consumer.cleared.load(order("Q10", Ordering::Acquire));
        produced.wrapping_sub(cleared).cast_signed() >= self.capacity().cast_signed()
    }

    /// How many elements have been produced and consumed so far, each modulo the word: exact while nobody does either.
    pub(crate) fn totals(&self) -> (usize, usize) {
        (self.producer.produced.load(Ordering::Relaxed), self.consumer.consumed.load(Ordering::Relaxed))
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

impl<P: Pointer, L: RawMutex> std::fmt::Debug for PtrRing<P, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PtrRing")
            .field("capacity", &self.capacity())
            .field("is_empty", &self.is_empty())
            .field("is_full", &self.is_full())
            .finish_non_exhaustive()
    }
}
