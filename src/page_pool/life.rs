//! The hub of a pool: what its handles and its pages have in common, and how it ends.
//!
//! A shutdown kills the count. Nothing is handed out from then on; when the kill is confirmed, the caches of all owners
//! and the ring have been emptied, and what is late goes home by itself. A block goes back to the system when its last
//! page is home, so a page that is never returned keeps its block and no more. The last put finds everything home.
//!
//! A page that is being returned while the pool is shut down may land in the ring after that was emptied. Whoever returned
//! it finds out when he puts its reference: either he still counts in a cell, and then the end of the grace period comes
//! after that, and the confirm finds the page; or he does not, and then he empties the ring himself, before he puts.
//!
//! The kernel does the same by polling once a second (net/core/page_pool.c, page_pool_release_retry).
#![forbid(unsafe_code)]

use super::page::{CLOSED, Cache, FENCED, HubRef, Idle, Source, Spare, Taken};
use super::stats::{SharedCounts, Stats};
use crate::percpu_ref::Outstanding;
use crate::percpu_ref::count::{Core, Host};
use crate::percpu_ref::switch;
use crate::ptr_ring::PtrRing;
use crate::rcu::{Backend, Flavor, Sched, Sealed};
use crate::report::{Wait, Watch};
use crate::shared::drain;
use crate::sync::{AtomicBool, Generation, Ordering, Packed, Wakers, fence, heavy, order};
use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Judges pages that come out of the ring.
pub(super) type Foreign = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// What does not change.
pub(super) struct Config {
    pub(super) page_size: usize,
    pub(super) cache: usize,
    pub(super) refill: usize,
    pub(super) zero_on_recycle: bool,
    pub(super) foreign: Option<Foreign>,
    pub(super) name: Option<Cow<'static, str>>,
}

/// The hub. The count lies at its start, as the fast path of everybody who is not an owner begins there.
#[repr(C)]
pub(super) struct Hub {
    core: Core,
    pub(super) config: Config,
    /// The process that the pool was built in. The locks of the ring are not taken in its children.
    born: Generation,
    /// Everything is home. Written by the release.
    is_over: AtomicBool,
    pub(super) counts: SharedCounts,
    ring: PtrRing<Idle>,
    /// No user code runs under it, and no lock is taken in it.
    state: Packed<State, ()>,
}

/// What the lock protects.
pub(super) struct State {
    pub(super) source: Source,
    /// The caches of the owners that there are.
    caches: Vec<Registered>,
    /// What owners counted that are gone, and how many pages they took from the ring.
    retired: (Stats, u64),
    /// When the first shutdown began.
    since: Option<Instant>,
    /// Of drains that are polled.
    wakers: Wakers,
}

struct Registered {
    cache: Arc<Cache>,
    /// What a closer took, and the owner has not noticed; or that the owner has closed it himself.
    taken: Option<Taken>,
}

impl Host for Hub {
    type Flavor = Sched;
    const WHAT: &'static str = "a `PagePool`";

    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }

    fn release(&self) {
        // Whoever put a page into the ring did so before it put the page's reference.
        self.drain_ring();
        debug_assert!(self.born.is_over() || self.mapped() == 0, "everything is home");
        // Release: pairs with Acquire [U4] in `Waiter::is_over`: whoever is told sees that all is done. (One of the fences [L2]
        // and [L5] has run here, so no model can tell it from a relaxed store.)
        self.is_over.store(true, Ordering::Release);
        let wakers = self.lock().wakers.take();
        wakers.wake();
    }
}

impl Hub {
    pub(super) fn new(core: Core, config: Config, ring: PtrRing<Idle>, source: Source) -> Self {
        let state = State {
            source,
            caches: Vec::new(),
            retired: (Stats::default(), 0),
            since: None,
            wakers: Wakers::default(),
        };
        Self {
            core,
            config,
            born: Generation::now(),
            is_over: AtomicBool::new(false),
            counts: SharedCounts::default(),
            ring,
            state: Packed::new(state, ()),
        }
    }

    pub(super) fn lock(&self) -> impl std::ops::DerefMut<Target = State> {
        self.state.lock()
    }

    /// The ring, unless this is a forked child: a thread that the child does not have may have held a lock of it.
    #[inline(always)]
    pub(super) fn ring(&self) -> Option<&PtrRing<Idle>> {
        (!self.born.is_over()).then_some(&self.ring)
    }

    /// Whether the pool has been shut down: a hint, unless the caller knows of the shutdown.
    #[inline(always)]
    pub(super) fn is_dying(&self) -> bool {
        self.core.is_dying()
    }

    /// Takes a reference, unless the pool has been shut down.
    #[inline(always)]
    pub(super) fn tryget_live(&self) -> bool {
        self.core.tryget_live::<Sched>()
    }

    /// Takes `n` references, unless the pool has been shut down.
    #[inline]
    pub(super) fn tryget_live_many(&self, n: usize) -> bool {
        self.core.tryget_live_many::<Sched>(n)
    }

    /// Zeroes a page, if others must not see what is in it.
    #[inline(always)]
    pub(super) fn clean(&self, page: &mut Idle) {
        if self.config.zero_on_recycle {
            page.bytes().fill(0);
        }
    }

    /// Takes pages home; their references are the caller's.
    pub(super) fn bring_home(&self, pages: &mut Vec<Idle>) {
        if !pages.is_empty() {
            let mut state = self.lock();
            let spare: Vec<Spare> = pages.drain(..).filter_map(|page| state.source.bring_home(page)).collect();
            drop(state);
            // Unmapped under no lock.
            drop(spare);
        }
    }

    /// Takes a page home; its reference is the caller's.
    #[cold]
    pub(super) fn bring_one_home(&self, page: Idle) {
        let spare = self.lock().source.bring_home(page);
        // Unmapped under no lock.
        drop(spare);
    }

    /// Sends all pages in the ring home.
    fn drain_ring(&self) {
        while let Some(page) = self.ring().and_then(PtrRing::consume) {
            self.counts.drained.add(1);
            self.bring_one_home(page);
        }
    }

    /// A put could not be counted in a cell: perhaps because of a kill.
    pub(super) fn closed_meanwhile(&self) {
        // SeqCst [L5]: pairs with [L2] in `close_caches`, which comes before the confirm empties the ring.
        // - We come first: the confirm finds what we have put there.
        // - The confirm comes first: we see that the pool is dying.
        fence("L5", Ordering::SeqCst);
        if self.is_dying() {
            self.drain_ring();
        }
    }

    /// Lists a new cache, made with the gate as it has to be.
    pub(super) fn register(&self, new: impl FnOnce(u8) -> Arc<Cache>) -> Arc<Cache> {
        let fenced = if Sched::backend() == Backend::Fence { FENCED } else { 0 };
        let cache = new(fenced);
        let mut state = self.lock();
        if state.since.is_some() {
            cache.gate.fetch_or(CLOSED, Ordering::Relaxed);
        }
        let taken = state.since.map(|_| Taken::NOTHING);
        state.caches.push(Registered { cache: Arc::clone(&cache), taken });
        cache
    }

    /// Strikes a cache, whose owner has emptied it, from the list.
    pub(super) fn unregister(&self, cache: &Arc<Cache>) {
        let mut state = self.lock();
        let State { caches, retired, .. } = &mut *state;
        caches.retain(|registered| !Arc::ptr_eq(&registered.cache, cache));
        retired.0.add(cache, &mut retired.1);
    }

    /// What a closer took out of a cache; nobody takes anything out of it afterwards but the owner.
    pub(super) fn acknowledge(&self, cache: &Cache) -> Taken {
        let mut state = self.lock();
        let registered = state.caches.iter_mut().find(|registered| std::ptr::eq(&*registered.cache, cache));
        let registered = registered.expect("a cache is listed as long as its owner lives");
        registered.taken.replace(Taken::NOTHING).unwrap_or(Taken::NOTHING)
    }

    /// What `look` says about a cache, under the lock; false if a closer has emptied it.
    pub(super) fn while_not_taken(&self, cache: &Cache, look: impl FnOnce() -> bool) -> bool {
        let state = self.lock();
        let mut caches = state.caches.iter();
        caches.any(|registered| std::ptr::eq(&*registered.cache, cache) && registered.taken.is_none()) && look()
    }

    /// Begins the end: shuts the gates of all caches, then kills. Whoever asks for a page after this returns gets none.
    fn shut(hub: &HubRef) {
        {
            let mut state = hub.lock();
            if state.since.is_none() {
                state.since = Some(Instant::now());
                for registered in &state.caches {
                    registered.cache.gate.fetch_or(CLOSED, Ordering::Relaxed);
                }
            }
        }
        let closer = hub.clone();
        // An error: somebody was first.
        let _ = switch::kill(hub, Some(Box::new(move || Self::close_caches(&closer))));
    }

    /// The confirm of the kill: empties the caches, the ring and what is home.
    fn close_caches(hub: &HubRef) {
        // heavy [L2]: pairs with light [L1] in `Owner::is_open`, after the gates were shut; and with [L5].
        if Sched::backend() == Backend::Fence {
            fence("L2", Ordering::SeqCst);
        } else {
            heavy("L2");
        }
        let (mut pages, mut rests) = (Vec::new(), Vec::new());
        let mut state = hub.lock();
        for registered in state.caches.iter_mut().filter(|registered| registered.taken.is_none()) {
            registered.taken = Some(registered.cache.close(&mut pages, &mut rests));
        }
        let spare = state.source.close();
        drop(state);
        drop(spare);
        pages.extend(rests.into_iter().filter_map(|rest| rest.give_up()));
        let count = pages.len();
        hub.bring_home(&mut pages);
        hub.drain_ring();
        // The first reference, which the kill drops after this, keeps the count.
        hub.put(count);
    }

    /// Shuts the pool down, if that has not been done, and waits for it in the way that the drain's owner likes.
    pub(super) fn shutdown(hub: &HubRef) -> drain::Drain {
        Self::shut(hub);
        drain::Drain::new(Waiter { hub: hub.clone(), ticket: None, watch: None })
    }

    /// Pages in users' hands: exact while nobody uses the pool.
    pub(super) fn in_flight(&self) -> usize {
        let references = usize::try_from(self.core.references_of_users()).unwrap_or(usize::MAX);
        let state = self.lock();
        let idle: usize = state.caches.iter().map(|registered| registered.cache.idle_pages(registered.taken)).sum();
        references.saturating_sub(idle)
    }

    /// Bytes that the pool has from the system for its pages.
    pub(super) fn mapped(&self) -> usize {
        self.lock().source.mapped()
    }

    pub(super) fn stats(&self) -> Stats {
        let state = self.lock();
        let (mut stats, mut from_ring) = state.retired;
        state.caches.iter().for_each(|registered| stats.add(&registered.cache, &mut from_ring));
        drop(state);
        self.counts.complete(&mut stats, from_ring, self.ring.totals());
        stats
    }

    fn outstanding(&self) -> Outstanding {
        let since = self.lock().since;
        self.core.outstanding::<Self>().with_since(since)
    }
}

/// What a handle of a user stands for: when the last one goes, the pool is shut down.
pub(super) struct User {
    pub(super) hub: HubRef,
}

impl Drop for User {
    fn drop(&mut self) {
        Hub::shut(&self.hub);
    }
}

/// Waits for a pool.
struct Waiter {
    hub: HubRef,
    /// Which of the wakers is its own.
    ticket: Option<u64>,
    /// Of a wait without a thread, from the first poll on.
    watch: Option<Watch>,
}

impl drain::Source<()> for Waiter {
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), Outstanding> {
        let core = self.hub.core();
        core.wait_zero::<Hub>(limit).map_err(|_| self.hub.outstanding())
    }

    fn outstanding(&self) -> Outstanding {
        self.hub.outstanding()
    }

    fn poll(&mut self, waker: &Waker) -> bool {
        if self.is_over() {
            return true;
        }
        let waker = waker.clone();
        let mut state = self.hub.lock();
        let old = state.wakers.put(&mut self.ticket, waker);
        drop(state);
        drop(old);
        // The release says that it is over first and takes the lock afterwards: either it takes the waker, or this sees it.
        if self.is_over() {
            return true;
        }
        Sched::kick();
        if let Some(waited) = self.watch.get_or_insert_with(Watch::start).overdue() {
            self.hub.core().report_stall::<Hub>(Wait::Zero, waited);
        }
        self.is_over()
    }

    fn take(&mut self) {}
}

impl Waiter {
    fn is_over(&self) -> bool {
        // Acquire [U4]: pairs with Release in `release`.
        self.hub.is_over.load(order("U4", Ordering::Acquire))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        let own = state.wakers.remove(&mut self.ticket);
        drop(state);
        drop(own);
    }
}
