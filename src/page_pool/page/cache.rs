//! An owner's stack of idle pages, which a shutdown can empty.
//!
//! The stack is what makes a pool fast: whoever has it takes and gives pages by a few plain loads and stores, with no
//! atomic read-modify-write and no counting (a cached page keeps the reference that it held outside). But its owner may be
//! asleep when the pool is shut down, for ever perhaps, and then somebody else has to take the pages out and put their
//! references. A lock would cost more than the stack saves, so the two use an asymmetric fence.
//!
//! - The owner changes the stack by one store, of `given` or `taken`, and looks at the gate afterwards, with only `light`
//!   in between.
//! - The closer shuts the gate, runs `heavy`, and then reads both.
//!
//! Either the owner sees that the gate is shut, or the closer sees the change; perhaps both. So every change after which
//! the gate was open is what the closer finds, and at most one, the last, may or may not be. Under the hub's lock the
//! closer notes what it took, and the owner, who found the gate shut, compares that with what he has: a page that the
//! closer took is lost to the owner, and one that it did not see is the owner's to bring home. Both know the number of
//! pages before and after the last change, and these differ, so there is no doubt.
//!
//! Pages put in and pages taken out are two numbers, and not one of how many there are, because a number that each
//! operation changes is a chain through the store buffer: `pop` and `push` would wait for each other's store.
//!
//! The page that is being handed out in pieces is treated in the same way: `open` and `handed` are what the two numbers are
//! to the stack.
//!
//! Once the gate is shut the stack stays empty: whatever the owner puts in he takes out again.

use super::block::At;
use super::share::{Share, Unique, drop_shares};
use super::{HubRef, Idle, Page, recycle};
use crate::ptr_ring::Pointer;
use crate::sync::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence, light, order};
use std::hint::cold_path;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// The most pages that a cache can hold.
pub(in crate::page_pool) const MAX_CACHE: usize = 4096;

/// The gate is shut.
pub(in crate::page_pool) const CLOSED: u8 = 1;
/// This process has no membarrier: the owner runs a fence of his own.
pub(in crate::page_pool) const FENCED: u8 = 2;

/// Shares that an owner gives the page that he hands out in pieces.
const BIAS: usize = usize::MAX / 4;

/// What an owner and the rest of the world share.
///
/// # Invariants
/// 1. The slots below `given - taken` hold pages, each with a reference on the count; there are as many slots as the cache
///    was made for.
/// 2. `open` is null or a page of whose `BIAS` shares `handed` have been handed out and the others are the owner's.
/// 3. When the gate is shut and the closer has noted what it took, that is not the owner's any more.
#[repr(C, align(128))]
pub(in crate::page_pool) struct Cache {
    /// Pages put into the stack so far, and taken out of it. Written by the owner; read by the closer, and for statistics.
    given: AtomicUsize,
    taken: AtomicUsize,
    /// CLOSED is set under the hub's lock, FENCED never changes.
    pub(in crate::page_pool) gate: AtomicU8,
    /// Written by the owner.
    open: AtomicPtr<u8>,
    handed: AtomicUsize,
    slots: Box<[AtomicPtr<()>]>,
    /// Written by the owner, each by a load and a store.
    pub(in crate::page_pool) counts: Counts,
}

/// What an owner counts on his slow paths.
#[derive(Default)]
pub(in crate::page_pool) struct Counts {
    pub(in crate::page_pool) slow: Count,
    pub(in crate::page_pool) slow_high_order: Count,
    pub(in crate::page_pool) empty: Count,
    pub(in crate::page_pool) refill: Count,
    pub(in crate::page_pool) waive: Count,
    pub(in crate::page_pool) cache_full: Count,
    /// Pages that came out of the ring.
    pub(in crate::page_pool) from_ring: Count,
    /// Pages that were put into the stack otherwise than by recycling them, and taken out otherwise than by allocating.
    moved_in: Count,
    moved_out: Count,
    /// Pages that were recycled and allocated again without going through the stack.
    reused: Count,
}

/// A number with one writer.
#[derive(Default)]
pub(in crate::page_pool) struct Count(AtomicU64);

impl Count {
    /// Only for the owner.
    #[inline(always)]
    pub(in crate::page_pool) fn add(&self, n: usize) {
        self.0.store(self.get() + n as u64, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(in crate::page_pool) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a closer took out of a cache.
#[derive(Clone, Copy)]
pub(in crate::page_pool) struct Taken {
    pages: usize,
    open: *mut u8,
    handed: usize,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for Taken {}

impl Taken {
    pub(in crate::page_pool) const NOTHING: Self = Self { pages: 0, open: null_mut(), handed: 0 };
}

/// A page whose pieces are out, and the shares of it that were not handed out.
pub(in crate::page_pool) struct Rest {
    at: At,
    shares: usize,
}

impl Rest {
    /// Drops the shares; if they were the last, the page is the caller's, cleaned, with its reference.
    pub(in crate::page_pool) fn give_up(self) -> Option<Idle> {
        // SAFETY: 1. they were the owner's, and whoever made this took them over.
        let last = unsafe { drop_shares(self.at, self.shares) };
        last.then(|| {
            // INVARIANT: Idle's: they were the last shares.
            let mut page = Idle(self.at);
            page.cross_out();
            // Pieces may have been written to, and the page may be handed out again.
            page.clean();
            page
        })
    }
}

impl Cache {
    fn new(capacity: usize, gate: u8) -> Self {
        debug_assert!(capacity <= MAX_CACHE);
        Self {
            given: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            gate: AtomicU8::new(gate),
            open: AtomicPtr::new(null_mut()),
            handed: AtomicUsize::new(0),
            slots: (0..capacity).map(|_| AtomicPtr::new(null_mut())).collect(),
            counts: Counts::default(),
        }
    }

    /// Puts `n` pages, which are in their slots, into the stack: only for the owner.
    #[inline(always)]
    fn add_given(&self, n: usize) {
        // Release [L3]: pairs with Acquire [L4] in `close`.
        let given = self.given.load(Ordering::Relaxed).wrapping_add(n);
        self.given.store(given, order("L3", Ordering::Release));
    }

    /// Takes the uppermost `n` pages out of the stack: only for the owner.
    #[inline(always)]
    fn add_taken(&self, n: usize) {
        // Relaxed: the pages stay in their slots until `is_open` has told whose they are.
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(n);
        self.taken.store(taken, Ordering::Relaxed);
    }

    /// Whether the gate is open, after a change; if not, `settle` has to be called.
    #[inline(always)]
    fn is_open(&self) -> bool {
        // light [L1]: pairs with heavy [L2] in `Hub::close_caches`.
        // - We come first: the closer sees the change.
        // - The closer comes first: we see that the gate is shut.
        light("L1");
        self.gate.load(Ordering::Relaxed) == 0 || self.is_open_after_fence()
    }

    #[cold]
    fn is_open_after_fence(&self) -> bool {
        fence("L1", Ordering::SeqCst);
        self.gate.load(Ordering::Relaxed) & CLOSED == 0
    }

    /// # Safety
    /// 1. `i` is below the number of slots.
    #[inline(always)]
    unsafe fn slot(&self, i: usize) -> &AtomicPtr<()> {
        debug_assert!(i < self.slots.len());
        // SAFETY: 1.
        unsafe { self.slots.get_unchecked(i) }
    }

    /// Pages in the stack: exact for the owner.
    #[inline(always)]
    fn count(&self) -> usize {
        // Relaxed: the owner wrote both.
        self.given.load(Ordering::Relaxed).wrapping_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Pages in the stack: exact while the owner does nothing.
    pub(in crate::page_pool) fn len(&self) -> usize {
        // The two numbers need not be of one moment.
        self.count().cast_signed().clamp(0, self.slots.len().cast_signed()).cast_unsigned()
    }

    /// Pages that were allocated from the stack.
    pub(in crate::page_pool) fn fast(&self) -> u64 {
        at_least_0(self.taken.load(Ordering::Relaxed), &self.counts.moved_out) + self.counts.reused.get()
    }

    /// Pages that were recycled into the stack.
    pub(in crate::page_pool) fn cached(&self) -> u64 {
        at_least_0(self.given.load(Ordering::Relaxed), &self.counts.moved_in) + self.counts.reused.get()
    }

    /// Pages in it that hold a reference and that nobody uses: exact while the owner does nothing. `taken`: what a closer
    /// took and the owner does not know yet. To be called under the hub's lock.
    pub(in crate::page_pool) fn idle_pages(&self, taken: Option<Taken>) -> usize {
        let pages = self.len().saturating_sub(taken.map_or(0, |taken| taken.pages));
        // A closer that has been here may have put the open page away, and the owner may not have struck it out yet, even
        // if it knows: its block may be gone.
        pages + usize::from(taken.is_none() && self.open_is_unused())
    }

    /// Whether there is an open page of which no piece is out.
    ///
    /// To be called under the hub's lock, and not if a closer has put the page away: a page that is open then is not home,
    /// and its block cannot be unmapped before the lock is released.
    fn open_is_unused(&self) -> bool {
        // Acquire, as in `close`.
        let open = self.open.load(Ordering::Acquire);
        NonNull::new(open).is_some_and(|open| {
            let handed = self.handed.load(Ordering::Relaxed);
            // SAFETY: 1. by the rule above it is a page of a mapped block.
            let left = unsafe { At(open).note() }.load(Ordering::Acquire);
            left.wrapping_add(handed) == BIAS
        })
    }

    /// Takes out all that is in the cache, after the gate was shut and `heavy` has run: under the hub's lock, unless it has
    /// been done before. The pages hold their references still.
    pub(in crate::page_pool) fn close(&self, pages: &mut Vec<Idle>, rests: &mut Vec<Rest>) -> Taken {
        // Acquire [L4]: pairs with Release [L3] in `add_given`: the slots are filled.
        let given = self.given.load(order("L4", Ordering::Acquire));
        let count = given.wrapping_sub(self.taken.load(Ordering::Relaxed));
        // INVARIANT: 3: by what is returned, and noted under the lock.
        pages.extend(self.slots[..count].iter().map(|slot| {
            // SAFETY: 1. it comes from `into_raw`. 2. The note tells the owner that it is not his.
            unsafe { idle(slot.load(Ordering::Relaxed)) }
        }));
        // Acquire: pairs with Release in `open`: the note is written before anybody subtracts from it. (No model has a
        // store that comes after another thread's read-modify-write and was made before it.)
        let open = self.open.load(Ordering::Acquire);
        let handed = self.handed.load(Ordering::Relaxed);
        rests.extend(NonNull::new(open).map(|page| Rest { at: At(page), shares: BIAS - handed }));
        Taken { pages: count, open, handed }
    }
}

/// What is left of `all` without `others`. While the owner works, one of the two may be behind the other.
fn at_least_0(all: usize, others: &Count) -> u64 {
    (all as u64).wrapping_sub(others.get()).cast_signed().max(0).cast_unsigned()
}

/// # Safety
/// 1. `raw` comes from `into_raw` of an idle page.
/// 2. It becomes one again once.
#[inline(always)]
unsafe fn idle(raw: *mut ()) -> Idle {
    // SAFETY: 1.: not null.
    let raw = unsafe { NonNull::new_unchecked(raw) };
    // SAFETY: 1., 2.
    unsafe { Idle::from_raw(raw) }
}

/// The owner's end of a cache.
pub(in crate::page_pool) struct Owner {
    cache: Arc<Cache>,
    pub(in crate::page_pool) hub: HubRef,
    /// Where the next piece of the open page begins.
    offset: usize,
}

/// A change under way that the closer may or may not have seen.
enum Change {
    /// A page was pushed.
    Pushed,
    /// Many were moved in.
    Filled,
    /// Pages were popped from the stack, which had so many before.
    Popped(usize),
    /// Everything was taken from the stack, which had so many before.
    Emptied(usize),
    /// A piece was handed out, perhaps the first one.
    Piece,
    /// The open page was put away.
    PutAway(At),
}

impl Owner {
    pub(in crate::page_pool) fn new(hub: HubRef, capacity: usize) -> Self {
        let cache = hub.register(|gate| Arc::new(Cache::new(capacity, gate)));
        Self { cache, hub, offset: 0 }
    }

    /// Pages in the stack.
    pub(in crate::page_pool) fn len(&self) -> usize {
        self.cache.count()
    }

    pub(in crate::page_pool) fn counts(&self) -> &Counts {
        &self.cache.counts
    }

    /// Takes the page that was put in last, with its reference. `None`: there is none, or the pool has been shut down.
    #[inline(always)]
    pub(in crate::page_pool) fn pop(&mut self) -> Option<Idle> {
        let cache = &*self.cache;
        let count = cache.count();
        if count == 0 {
            return None;
        }
        // SAFETY: 1. invariant 1.
        let raw = unsafe { cache.slot(count - 1) }.load(Ordering::Relaxed);
        cache.add_taken(1);
        if !cache.is_open() {
            cold_path();
            self.settle(Change::Popped(count));
            return None;
        }
        // SAFETY: 1. invariant 1. 2. The slot is not counted any more, and the closer does not have the page.
        Some(unsafe { idle(raw) })
    }

    /// Takes up to `max` pages, as by so many calls of [`pop`](Self::pop).
    pub(in crate::page_pool) fn pop_many(&mut self, max: usize, into: &mut Vec<Page>) -> usize {
        let count = self.len();
        let n = max.min(count);
        into.reserve(n);
        self.cache.add_taken(n);
        if !self.cache.is_open() {
            self.settle(Change::Popped(count));
            return 0;
        }
        into.extend(self.cache.slots[count - n..count].iter().rev().map(|slot| {
            // SAFETY: 1. invariant 1. 2. As in `pop`.
            Page::new(unsafe { idle(slot.load(Ordering::Relaxed)) })
        }));
        n
    }

    /// Puts a page in, with its reference; gives it back if there is no room. After a shutdown, the page goes home.
    #[inline(always)]
    pub(in crate::page_pool) fn push(&mut self, page: Idle) -> Result<(), Idle> {
        let cache = &*self.cache;
        let count = cache.count();
        if count == cache.slots.len() {
            return Err(page);
        }
        // SAFETY: 1. just compared.
        unsafe { cache.slot(count) }.store(page.into_raw().as_ptr(), Ordering::Relaxed);
        cache.add_given(1);
        if !cache.is_open() {
            cold_path();
            self.settle(Change::Pushed);
        }
        Ok(())
    }

    /// Moves pages, with their references, into the stack, which is empty and has room for them.
    pub(in crate::page_pool) fn fill(&mut self, pages: &mut Vec<Idle>) {
        let count = pages.len();
        assert!(self.len() == 0 && count <= self.cache.slots.len(), "there is room");
        for (slot, page) in self.cache.slots.iter().zip(pages.drain(..)) {
            slot.store(page.into_raw().as_ptr(), Ordering::Relaxed);
        }
        self.cache.counts.moved_in.add(count);
        self.cache.add_given(count);
        if !self.cache.is_open() {
            self.settle(Change::Filled);
        }
    }

    /// Takes all pages out of the stack, with their references: the coldest comes first. After a shutdown, nothing.
    pub(in crate::page_pool) fn empty(&mut self, into: &mut Vec<Idle>) {
        debug_assert!(into.is_empty());
        let count = self.len();
        self.cache.counts.moved_out.add(count);
        self.cache.add_taken(count);
        if !self.cache.is_open() {
            return self.settle(Change::Emptied(count));
        }
        into.extend(self.cache.slots[..count].iter().map(|slot| {
            // SAFETY: 1. invariant 1. 2. As in `pop`.
            unsafe { idle(slot.load(Ordering::Relaxed)) }
        }));
    }

    /// Hands out the next `len` bytes of the open page, or `None` if it has not enough left, or there is none, or the
    /// pool has been shut down.
    #[inline]
    pub(in crate::page_pool) fn next_piece(&mut self, len: usize, page_size: usize) -> Option<Unique> {
        let at = At(NonNull::new(self.cache.open.load(Ordering::Relaxed))?);
        if len.max(1) > page_size - self.offset {
            return None;
        }
        self.cache.handed.store(self.cache.handed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if !self.cache.is_open() {
            self.settle(Change::Piece);
            return None;
        }
        // SAFETY: 1. invariant 2: one of the owner's shares was just handed out.
        let share = unsafe { Share::another(at) };
        let start = self.offset;
        self.offset = piece_end(start, len, page_size);
        // SAFETY: 1. pieces are handed out from `offset` on, which only grows while the page is open.
        Some(unsafe { Unique::new(share, start, len) })
    }

    /// Opens a page, which comes with its reference, and hands out its first `len` bytes. `None`: the pool has been shut
    /// down, and the page is home.
    pub(in crate::page_pool) fn open(&mut self, page: Idle, len: usize, page_size: usize) -> Option<Unique> {
        debug_assert!(self.cache.open.load(Ordering::Relaxed).is_null());
        let at = page.0;
        let share = Share::first_of(page, BIAS);
        self.cache.handed.store(1, Ordering::Relaxed);
        // INVARIANT: 2. Release: pairs with Acquire in `close`.
        self.cache.open.store(at.0.as_ptr(), Ordering::Release);
        self.offset = piece_end(0, len, page_size);
        if !self.cache.is_open() {
            std::mem::forget(share);
            self.settle(Change::Piece);
            return None;
        }
        // SAFETY: 1. it is the first piece.
        Some(unsafe { Unique::new(share, 0, len) })
    }

    /// Puts the open page away. If all of its pieces have come back already, it is the caller's, cleaned, with its
    /// reference; otherwise the last piece recycles it.
    pub(in crate::page_pool) fn put_away(&mut self) -> Option<Idle> {
        let at = At(NonNull::new(self.cache.open.load(Ordering::Relaxed))?);
        let shares = BIAS - self.cache.handed.load(Ordering::Relaxed);
        self.cache.open.store(null_mut(), Ordering::Relaxed);
        if !self.cache.is_open() {
            self.settle(Change::PutAway(at));
            return None;
        }
        // By invariant 2 the shares were the owner's, and they are not in the cache any more.
        Rest { at, shares }.give_up()
    }

    /// As `put_away`, but only if all pieces have come back.
    pub(in crate::page_pool) fn put_away_unused(&mut self) -> Option<Idle> {
        let unused = self.hub.while_not_taken(&self.cache, || self.cache.open_is_unused());
        if unused { self.put_away() } else { None }
    }

    /// The recycling and taking again of a page that `put_away` returned, for the statistics.
    pub(in crate::page_pool) fn count_reuse(&self) {
        self.cache.counts.reused.add(1);
    }

    /// The gate was found shut after a change: brings home what the closer did not take.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, change: Change) {
        let (cache, hub) = (&*self.cache, &self.hub);
        // What a closer took, or nothing: then none will come any more.
        let taken = hub.acknowledge(cache);
        let count = self.len();
        // The pages that the stack had before or has after the change, which is more. The closer knew one of the two numbers,
        // so either he has all of these pages, or those below are his and the others the owner's.
        let all = match change {
            Change::Popped(before) | Change::Emptied(before) => before,
            _ => count,
        };
        let mut pages: Vec<Idle> = Vec::new();
        for slot in cache.slots.iter().take(all).skip(taken.pages) {
            // SAFETY: 1. invariant 1. 2. The closer did not take it, and the stack is emptied below.
            pages.push(unsafe { idle(slot.load(Ordering::Relaxed)) });
        }
        // Pages that were popped were not handed out, and one that was pushed is released rather than cached.
        let (popped, pushed) = match change {
            Change::Popped(before) => (before - count, 0),
            Change::Pushed => (0, 1),
            _ => (0, 0),
        };
        cache.counts.moved_out.add(count + popped);
        cache.counts.moved_in.add(pushed);
        hub.counts.released_refcnt.add(pushed as u64);
        self.cache.add_taken(count);
        let handed = cache.handed.load(Ordering::Relaxed);
        let open = cache.open.load(Ordering::Relaxed);
        cache.open.store(null_mut(), Ordering::Relaxed);
        let mut shares = if open == taken.open { 0 } else { BIAS - handed };
        let mut at = NonNull::new(open).map(At);
        match change {
            Change::Pushed | Change::Filled | Change::Popped(_) | Change::Emptied(_) => {}
            Change::Piece => {
                // The share of the piece that is not handed out after all: ours if the closer left it, or if all are.
                shares += usize::from(open != taken.open || handed == taken.handed);
            }
            Change::PutAway(page) if page.0.as_ptr() != taken.open => {
                at = Some(page);
                shares = BIAS - handed;
            }
            Change::PutAway(_) => {}
        }
        if let Some(at) = at
            && shares > 0
        {
            pages.extend(Rest { at, shares }.give_up());
        }
        let count = pages.len();
        hub.bring_home(&mut pages);
        hub.put(count);
    }
}

/// Where the piece after one of `len` bytes at `start` begins: pieces are aligned, and each takes something.
fn piece_end(start: usize, len: usize, page_size: usize) -> usize {
    (start + len.max(1)).next_multiple_of(size_of::<u64>()).min(page_size)
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut pages = Vec::new();
        let reuse = self.put_away();
        self.empty(&mut pages);
        pages.extend(reuse);
        if !pages.is_empty() {
            recycle::give_back_many(&mut pages);
        }
        self.hub.unregister(&self.cache);
    }
}
