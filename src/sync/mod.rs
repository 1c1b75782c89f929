//! The one place that names atomics, locks, thread-locals, crossbeam and loom.
//!
//! Everything above this layer is written against these names only, so the same protocol code runs on the real
//! machine ([`real`]) and inside the model checker ([`model`]). What the two do differently is small enough to read
//! side by side: that is the point of the layer.
//!
//! # The ledger
//!
//! Every ordering that a proof needs carries its id from `docs/ordering.md`: `word.store(1, order("S3", Release))`. In
//! a normal build `order` is its second argument and vanishes. In a model build the id named by the environment
//! variable `PERCPU_REF_MUTANT` is weakened to `Relaxed` (fences and `light`/`heavy` disappear), and
//! `tests/loom/mutants.sh` demands that a model then fails. An ordering that no mutant can break has no place here.
//!
//! # Asymmetric fences
//!
//! [`light`] and [`heavy`] are the two halves of one barrier: a reader runs `light` (a compiler fence) as often as it
//! likes, and the rare `heavy` (a membarrier system call) makes every thread of the process run a full fence at that
//! moment. For each pair, either what precedes `heavy` is visible after `light`, or what precedes `light` is visible
//! after `heavy`. Neither language nor model knows this barrier: the model maps both to `fence(SeqCst)`, which is
//! stronger, so a model can show that a pair is needed, and docs/ordering.md argues why the pair is enough.

#[cfg(not(percpu_ref_loom))]
mod fork;
#[cfg(percpu_ref_loom)]
mod model;
#[cfg(not(percpu_ref_loom))]
mod real;

#[cfg(percpu_ref_loom)]
use model as chosen;
#[cfg(not(percpu_ref_loom))]
use real as chosen;

pub(crate) use chosen::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};
pub(crate) use chosen::{
    Backoff, Condvar, Futex, Generation, Mutex, MutexGuard, OnFork, PATIENCE, Packed, ThreadCells, complain, epoch,
    fence, global, heavy, identity, light, local, now, order, pages, register_membarrier, relax, restartable, settled,
    spawn, yield_now,
};
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use std::sync::atomic::Ordering;

/// Whether misuse that costs something to look for is looked for.
pub(crate) const DEBUG: bool = cfg!(debug_assertions);

/// As [`DEBUG`], and in every model: a check whose failure is how a model sees that an ordering is missing.
pub(crate) const CHECKED: bool = cfg!(any(debug_assertions, percpu_ref_loom));

/// What can be known about a thread, in case that it is one day found in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: Option<String>,
    /// The system's number.
    pub(crate) os_id: Option<u32>,
}

/// A proof that a grace period has passed: every section that saw a count open, before it was closed, is over.
///
/// Only [`rcu`](crate::rcu) makes one, at the end of a wait.
#[derive(Clone, Copy)]
pub struct Quiescent(());

impl Quiescent {
    /// To be called where a grace period has just ended.
    pub(crate) fn reached() -> Self {
        Self(())
    }
}

/// A lane for a thread to count in.
#[derive(Clone, Copy)]
pub struct Lane {
    /// From lane 0's cell to this one's.
    offset: usize,
}

impl Lane {
    /// Of no use: it stands where a lane is missing.
    pub(crate) const NONE: Self = Self { offset: 0 };

    /// Lane number `lane`, if there is one.
    pub(crate) fn new(lane: usize) -> Option<Self> {
        (lane < restartable::THREAD_LANES).then(|| Self { offset: lane * restartable::LANE })
    }

    /// How many cells it lies behind lane 0: less than a whole region.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset
    }
}

global! {
    /// How many lanes threads have had. Written under the lock of the registry of section words.
    static THREAD_LANES_IN_USE: AtomicUsize = AtomicUsize::new(0);
}

/// How many lanes threads have counted in: exact after a grace period, or once nobody counts.
pub(crate) fn thread_lanes_in_use() -> usize {
    THREAD_LANES_IN_USE.load(Ordering::Relaxed)
}

/// To be called under the lock that hands lanes out.
pub(crate) fn set_thread_lanes_in_use(lanes: usize) {
    THREAD_LANES_IN_USE.store(lanes, Ordering::Relaxed);
}

mod event;
mod found;
mod scope;
mod wakers;
pub(crate) use event::Event;
pub(crate) use found::Found;
pub(crate) use wakers::{WakeAll, Wakers};

mod slots;
pub(crate) use slots::{clear_exclusive, prefetch_read};

mod yield_lock;
pub(crate) use scope::{is_within, within};
pub use yield_lock::{RawMutex, YieldLock};
pub(crate) use yield_lock::{SideGuard, SideLock};
