//! What a pool has done, by the kernel's names.
//!
//! An owner counts in his own cache line, by plain stores. On the fastest path he writes only the numbers that his stack
//! needs anyway, how many pages went in and out; what of that was recycling and allocating follows from what his slow
//! paths count, and what went through the ring the ring knows. So the statistics cost nothing, and are exact when nobody
//! uses the pool.
#![forbid(unsafe_code)]

use super::page::Cache;
use crate::sync::{AtomicU64, Ordering};
use std::fmt;

/// What a pool has done since it was built, as of [`PagePool::stats`](super::PagePool::stats).
///
/// The names are those of the kernel's page pool; `Display` prints them as `ethtool -S` does. They are exact while nobody
/// uses the pool, and otherwise each is as of about now.
///
/// The number of pages that were handed out is `fast + slow + slow_high_order + refill`.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut local = pool.allocator();
/// for _ in 0..3 {
///     let page = local.alloc()?;
///     local.recycle(page);
/// }
/// let stats = pool.stats();
/// assert_eq!((stats.slow, stats.fast, stats.cached), (1, 2, 3));
/// print!("{stats}"); //      pp_alloc_fast: 2 ...
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Allocations served from an owner's cache.
    pub fast: u64,
    /// Allocations for which pages were taken from where they are home: not one for each page that was taken, but one for
    /// each time. The others went into the cache.
    pub slow: u64,
    /// The same for pages of more than 4 KiB, which are taken one by one.
    pub slow_high_order: u64,
    /// Times that the ring was looked into in vain.
    pub empty: u64,
    /// Allocations for which pages were taken from the ring: not one for each page that was taken, but one for each time.
    pub refill: u64,
    /// Pages from the ring that were [foreign](super::PoolBuilder::foreign), and sent home.
    pub waive: u64,
    /// Pages that were recycled into an owner's cache.
    pub cached: u64,
    /// Pages that were to be recycled into an owner's cache when that was full: so its coldest pages went to the ring.
    pub cache_full: u64,
    /// Pages that went into the ring, for whatever reason.
    pub ring: u64,
    /// Pages that went home because the ring was full.
    pub ring_full: u64,
    /// Pages that went home because the pool had been shut down.
    pub released_refcnt: u64,
}

impl Stats {
    fn rows(&self) -> [(&'static str, u64); 11] {
        [
            ("alloc_fast", self.fast),
            ("alloc_slow", self.slow),
            ("alloc_slow_high_order", self.slow_high_order),
            ("alloc_empty", self.empty),
            ("alloc_refill", self.refill),
            ("alloc_waive", self.waive),
            ("recycle_cached", self.cached),
            ("recycle_cache_full", self.cache_full),
            ("recycle_ring", self.ring),
            ("recycle_ring_full", self.ring_full),
            ("recycle_released_ref", self.released_refcnt),
        ]
    }

    /// Adds what an owner has counted; `from_ring` is the pages that he took out of the ring.
    pub(super) fn add(&mut self, cache: &Cache, from_ring: &mut u64) {
        let counts = &cache.counts;
        self.fast += cache.fast();
        self.slow += counts.slow.get();
        self.slow_high_order += counts.slow_high_order.get();
        self.empty += counts.empty.get();
        self.refill += counts.refill.get();
        self.waive += counts.waive.get();
        self.cached += cache.cached();
        self.cache_full += counts.cache_full.get();
        *from_ring += counts.from_ring.get();
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows().iter().try_for_each(|(name, value)| writeln!(f, "     pp_{name}: {value}"))
    }
}

/// A number that anybody may count up, on a slow path.
#[derive(Default)]
pub(super) struct Shared(AtomicU64);

impl Shared {
    pub(super) fn add(&self, n: u64) {
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted for the pool as a whole.
#[derive(Default)]
pub(super) struct SharedCounts {
    pub(super) slow: Shared,
    pub(super) slow_high_order: Shared,
    pub(super) empty: Shared,
    pub(super) ring_full: Shared,
    pub(super) released_refcnt: Shared,
    /// Pages that were taken out of the ring to be sent home.
    pub(super) drained: Shared,
}

impl SharedCounts {
    /// `retired` and what the pool as a whole has counted; `ring`: pages that went into the ring and came out of it.
    pub(super) fn complete(&self, stats: &mut Stats, from_ring: u64, ring: (usize, usize)) {
        stats.slow += self.slow.get();
        stats.slow_high_order += self.slow_high_order.get();
        stats.empty += self.empty.get();
        stats.ring = ring.0 as u64;
        stats.ring_full = self.ring_full.get();
        stats.released_refcnt = self.released_refcnt.get();
        // What neither an owner nor a drain took out was taken by the shared path, one by one.
        stats.refill += (ring.1 as u64).saturating_sub(from_ring + self.drained.get());
    }
}
