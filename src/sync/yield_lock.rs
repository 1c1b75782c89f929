//! A lock for sections of a few instructions.
//!
//! A lock that parks its waiters must find out on every unlock whether somebody sleeps, by a second read-modify-write.
//! Here nobody ever sleeps on the lock: unlocking is one plain store, which halves what an uncontended section costs.
//! The price is that a waiter does not know when to come back. It pauses a few times, then gives its processor away:
//! with more threads than processors the holder may be one of those who wait for one. Should that not help for long,
//! the holder has been preempted by something more important, and the waiter sleeps.
//!
//! There is no queue, so there is no fairness; and because there is no queue, a preempted waiter holds up nobody.

use super::{AtomicBool, Ordering, order, relax, yield_now};
pub use lock_api::RawMutex;

/// Pauses before a waiter yields.
const PAUSES: u32 = 4;
/// Attempts, pauses included, before a waiter sleeps.
const YIELDS: u32 = 36;

/// The lock itself, without what it protects.
struct Tas(AtomicBool);

impl Tas {
    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire [Q11]: pairs with Release [Q12] in `unlock`: whoever held the lock before has finished.
        self.0.compare_exchange(false, true, order("Q11", Ordering::Acquire), Ordering::Relaxed).is_ok()
    }

    /// For whoever has tried in vain: the callers in this crate try first.
    #[cold]
    fn lock(&self) {
        let mut attempts = 0_u32;
        loop {
            // Look before the attempt: a failing read-modify-write would still take the line from the holder.
            if !self.0.load(Ordering::Relaxed) && self.try_lock() {
                return;
            }
            match attempts {
                0..PAUSES => relax(),
                PAUSES..YIELDS => yield_now(),
                _ => nap(),
            }
            attempts = attempts.saturating_add(1);
        }
    }

    /// Only for the holder.
    #[inline]
    fn unlock(&self) {
        // Release [Q12]: pairs with Acquire [Q11] in `try_lock`.
        self.0.store(false, order("Q12", Ordering::Release));
    }
}

#[cfg(percpu_ref_loom)]
use model::nap;
#[cfg(not(percpu_ref_loom))]
use real::nap;

#[cfg(percpu_ref_loom)]
pub(crate) use model::{SideGuard, SideLock};
#[cfg(not(percpu_ref_loom))]
pub(crate) use real::{SideGuard, SideLock};

#[cfg(percpu_ref_loom)]
pub use model::YieldLock;
#[cfg(not(percpu_ref_loom))]
pub use real::YieldLock;

#[cfg(not(percpu_ref_loom))]
mod real {
    use super::{AtomicBool, Ordering, RawMutex, Tas};

    pub(super) fn nap() {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }

    /// What protects one side of a [`PtrRing`](crate::ptr_ring::PtrRing): `L` around the side's state.
    pub(crate) type SideLock<L, T> = lock_api::Mutex<L, T>;
    pub(crate) type SideGuard<'a, L, T> = lock_api::MutexGuard<'a, L, T>;

    /// A lock that spins for a moment, then yields, then sleeps, and unlocks with one plain store.
    ///
    /// The default lock of each side of a [`PtrRing`](crate::ptr_ring::PtrRing). It is meant for sections of a few
    /// instructions that call nobody; it is not fair.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::ptr_ring::{PtrRing, YieldLock};
    ///
    /// let ring: PtrRing<Box<u8>, YieldLock> = PtrRing::with_lock(8)?; // what `PtrRing::new` takes, too
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub struct YieldLock(Tas);

    impl std::fmt::Debug for YieldLock {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("YieldLock").field("locked", &self.is_locked()).finish()
        }
    }

    // SAFETY: `Tas` hands the lock to one thread at a time: the exchange from false to true has one winner until the
    // store of false. Acquire and Release as the trait asks. The state is a token without a destructor, so forgetting
    // it leaves the lock locked, and a locked lock may be moved or dropped: it is a bool. Nothing here unwinds.
    unsafe impl RawMutex for YieldLock {
        const INIT: Self = YieldLock(Tas(AtomicBool::new(false)));
        type Guard = lock_api::GuardSend;

        fn lock(&self) -> Self::Guard {
            self.0.lock();
            lock_api::GuardSend::new()
        }

        #[inline]
        fn try_lock(&self) -> Option<Self::Guard> {
            self.0.try_lock().then(lock_api::GuardSend::new)
        }

        #[inline]
        unsafe fn unlock(&self, _state: Self::Guard) {
            self.0.unlock();
        }

        #[inline]
        fn is_locked(&self) -> bool {
            self.0.0.load(Ordering::Relaxed)
        }
    }
}

#[cfg(percpu_ref_loom)]
mod model {
    use super::{AtomicBool, RawMutex, Tas, yield_now};
    use loom::cell::{MutPtr, UnsafeCell};
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};

    pub(super) fn nap() {
        yield_now();
    }

    /// A model's atomics cannot be made in a constant, so there the type only names the lock.
    #[derive(Debug)]
    pub struct YieldLock;

    // SAFETY: never used as a lock: `SideLock` brings its own.
    unsafe impl RawMutex for YieldLock {
        const INIT: Self = YieldLock;
        type Guard = lock_api::GuardSend;
        fn lock(&self) -> Self::Guard {
            unreachable!("a model locks through `SideLock`")
        }
        fn try_lock(&self) -> Option<Self::Guard> {
            unreachable!("a model locks through `SideLock`")
        }
        unsafe fn unlock(&self, _state: Self::Guard) {}
        fn is_locked(&self) -> bool {
            unreachable!("a model locks through `SideLock`")
        }
    }

    /// The lock of this file around `T`, whatever `L` is.
    pub(crate) struct SideLock<L, T> {
        raw: Tas,
        value: UnsafeCell<T>,
        _lock: PhantomData<L>,
    }

    // SAFETY: the value is reached through the lock only.
    unsafe impl<L, T: Send> Sync for SideLock<L, T> {}
    // SAFETY: as above.
    unsafe impl<L, T: Send> Send for SideLock<L, T> {}

    impl<L, T> SideLock<L, T> {
        pub(crate) fn new(value: T) -> Self {
            Self { raw: Tas(AtomicBool::new(false)), value: UnsafeCell::new(value), _lock: PhantomData }
        }

        pub(crate) fn lock(&self) -> SideGuard<'_, L, T> {
            self.raw.lock();
            self.guard()
        }

        pub(crate) fn try_lock(&self) -> Option<SideGuard<'_, L, T>> {
            self.raw.try_lock().then(|| self.guard())
        }

        /// Through the lock, which nobody has: what gives an owner the ring alone, such as the count of an `Arc`, is not
        /// modelled, so the last to unlock has to be what comes before.
        pub(crate) fn get_mut(&mut self) -> SideGuard<'_, L, T> {
            self.try_lock().expect("it is borrowed exclusively")
        }

        fn guard(&self) -> SideGuard<'_, L, T> {
            SideGuard { of: self, value: Some(self.value.get_mut()) }
        }
    }

    pub(crate) struct SideGuard<'a, L, T> {
        of: &'a SideLock<L, T>,
        /// While it exists, loom reports every other access as a race.
        value: Option<MutPtr<T>>,
    }

    impl<L, T> Deref for SideGuard<'_, L, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: the guard holds the lock.
            unsafe { self.value.as_ref().expect("until it is dropped").deref() }
        }
    }

    impl<L, T> DerefMut for SideGuard<'_, L, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the guard holds the lock, and it is borrowed exclusively.
            unsafe { self.value.as_ref().expect("until it is dropped").deref() }
        }
    }

    impl<L, T> Drop for SideGuard<'_, L, T> {
        fn drop(&mut self) {
            self.value = None;
            self.of.raw.unlock();
        }
    }
}
