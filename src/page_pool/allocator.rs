//! The owner's token, and where pages come from when his cache is empty.
#![forbid(unsafe_code)]

use super::error::AllocError;
use super::frag::Frag;
use super::life::{Hub, User};
use super::page::{HubRef, Idle, NoPage, Owner, Page};
use super::recycle::give_back_many;
use crate::percpu_ref::count::Host;
use crate::report::contain;
use crate::track::Origin;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Pages above this size are taken from home one by one: a cache full of them would be a lot of memory.
pub(super) const HIGH_ORDER: usize = 4096;

/// An owner's token: the way to pages that costs a few plain loads and stores.
///
/// It has a stack of idle pages of its own, the cache. [`alloc`](Self::alloc) takes the page from it that went in last,
/// whose lines are most likely warm; [`recycle`](Self::recycle) puts one in. An empty cache is refilled from the ring,
/// with [`refill`](super::PoolBuilder::refill) pages at once, or from home; of a full one, the coldest pages go into the
/// ring.
///
/// A pool may have any number of them: one for each receive thread, say. The token is what makes somebody an owner: it can
/// be moved to another thread, but not be shared, and there is no other way to a cache.
///
/// Dropping it puts its pages into the ring. A [shutdown](super::PagePool::shutdown) empties its cache, wherever it is.
///
/// ```compile_fail
/// # use percpu_ref::page_pool::Allocator;
/// fn shared<T: Sync>() {}
/// shared::<Allocator>();
/// ```
/// ```
/// # use percpu_ref::page_pool::Allocator;
/// fn sent<T: Send>() {}
/// sent::<Allocator>();
/// ```
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut local = pool.allocator();
/// let page = local.alloc()?;
/// let address = page.as_ptr();
/// local.recycle(page);
/// assert_eq!(local.alloc()?.as_ptr(), address, "last in, first out");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Allocator {
    owner: Owner,
    /// For pages on their way, so that no path has to allocate. Empty between calls.
    scratch: Vec<Idle>,
    /// The address of the hub whose pages go straight into the cache: 0, if they have to be zeroed before.
    direct: usize,
    _user: Arc<User>,
    not_sync: PhantomData<Cell<()>>,
}

// What a panic can interrupt is the caller's code, never a step of ours.
impl UnwindSafe for Allocator {}
impl RefUnwindSafe for Allocator {}

impl Allocator {
    pub(super) fn new(user: &Arc<User>) -> Self {
        let config = &user.hub.config;
        Self {
            owner: Owner::new(user.hub.clone(), config.cache),
            scratch: Vec::with_capacity(config.cache),
            direct: if config.zero_on_recycle { 0 } else { user.hub.as_ptr().addr().get() },
            _user: Arc::clone(user),
            not_sync: PhantomData,
        }
    }

    fn hub(&self) -> &Hub {
        &self.owner.hub
    }

    /// A page.
    ///
    /// From the cache if it has one. Else from the ring: a batch is taken out, and the rest goes into the cache. Else from
    /// home, a batch as well, unless pages are larger than 4 KiB.
    ///
    /// # Context
    /// The owner. Does not block; from the cache, it takes no lock and uses no read-modify-write.
    ///
    /// # Errors
    /// [`AllocError::Exhausted`], [`AllocError::OutOfMemory`]; [`AllocError::ShutDown`] from the return of
    /// [`shutdown`](super::PagePool::shutdown) on.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().page_size(2048).build()?;
    /// let mut local = pool.allocator();
    /// let page = local.alloc()?;
    /// assert_eq!((page.len(), pool.in_flight()), (2048, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn alloc(&mut self) -> Result<Page, AllocError> {
        self.alloc_for(Origin::here())
    }

    #[inline(always)]
    fn alloc_for(&mut self, origin: Origin) -> Result<Page, AllocError> {
        match self.owner.pop() {
            Some(page) => Ok(Page::new(page).write_down(origin)),
            None => self.alloc_slowly(origin),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&mut self, origin: Origin) -> Result<Page, AllocError> {
        let batch = self.hub().config.refill;
        // Before anything is taken out: the references keep what is.
        if !self.hub().tryget_live_many(batch) {
            return Err(AllocError::ShutDown);
        }
        let result = self.refill(batch);
        self.owner.hub.put(batch - self.scratch.len());
        match result.and_then(|()| self.scratch.pop().ok_or(AllocError::Exhausted)) {
            Ok(page) => {
                self.owner.fill(&mut self.scratch);
                Ok(Page::new(page).write_down(origin))
            }
            // The page that pieces are cut from is nobody's if they are all back.
            Err(error) => self.reuse_open_page().map(|page| Page::new(page).write_down(origin)).ok_or(error),
        }
    }

    fn reuse_open_page(&mut self) -> Option<Idle> {
        let page = self.owner.put_away_unused()?;
        self.owner.count_reuse();
        Some(page)
    }

    /// Takes pages out of the ring, or from home, into `scratch`.
    fn refill(&mut self, batch: usize) -> Result<(), AllocError> {
        let (hub, counts) = (&self.owner.hub, self.owner.counts());
        if let Some(ring) = hub.ring() {
            let waived = if ring.is_empty() {
                None
            } else if hub.config.foreign.is_none() {
                ring.consume_batch(&mut self.scratch, batch);
                None
            } else {
                std::iter::from_fn(|| ring.consume()).take(batch).find_map(|page| {
                    let page = refuse_foreign(hub, page);
                    page.map_or_else(
                        |own| {
                            self.scratch.push(own);
                            None
                        },
                        Some,
                    )
                })
            };
            counts.from_ring.add(self.scratch.len() + usize::from(waived.is_some()));
            if let Some(mut page) = waived {
                counts.waive.add(1);
                page.discard();
                hub.bring_one_home(page);
            }
            if !self.scratch.is_empty() {
                counts.refill.add(1);
                return Ok(());
            }
            counts.empty.add(1);
        }
        let high = hub.config.page_size > HIGH_ORDER;
        hub.take(if high { 1 } else { batch }, |page| self.scratch.push(page)).map_err(no_page)?;
        if high { &counts.slow_high_order } else { &counts.slow }.add(1);
        Ok(())
    }

    /// Appends `n` pages to `into`, as by `n` calls of [`alloc`](Self::alloc).
    ///
    /// # Context
    /// As [`alloc`](Self::alloc).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc). What was got until then stays in `into`.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().max_pages(10).build()?;
    /// let mut local = pool.allocator();
    /// let mut pages = Vec::new();
    /// assert!(local.alloc_bulk(&mut pages, 11).is_err());
    /// assert_eq!((pages.len(), pool.in_flight()), (10, 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn alloc_bulk(&mut self, into: &mut Vec<Page>, n: usize) -> Result<(), AllocError> {
        let origin = Origin::here();
        let wanted = into.len().saturating_add(n);
        while into.len() < wanted {
            let before = into.len();
            if self.owner.pop_many(wanted - before, into) == 0 {
                into.push(self.alloc_slowly(origin)?);
            } else {
                into[before..].iter().for_each(|page| page.list(origin));
            }
        }
        Ok(())
    }

    /// Puts a page straight into the cache. A page of another pool goes back to that one, as if it had been dropped.
    ///
    /// If the cache is full, its coldest pages go into the ring first: [`refill`](super::PoolBuilder::refill) of them.
    ///
    /// # Context
    /// The owner. Does not block; it takes no lock and uses no read-modify-write, unless the cache is full.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut local = pool.allocator();
    /// let page = local.alloc()?;
    /// local.recycle(page);
    /// assert_eq!((pool.in_flight(), pool.stats().cached), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn recycle(&mut self, page: Page) {
        let page = page.taken_back();
        if page.hub().addr().get() != self.direct {
            return self.recycle_slowly(page);
        }
        if let Err(page) = self.owner.push(page) {
            self.recycle_into_full(page);
        }
    }

    #[cold]
    #[inline(never)]
    fn recycle_slowly(&mut self, mut page: Idle) {
        if page.hub() != self.owner.hub.as_ptr() {
            return drop(Page::new(page));
        }
        self.hub().clean(&mut page);
        if let Err(page) = self.owner.push(page) {
            self.recycle_into_full(page);
        }
    }

    #[cold]
    #[inline(never)]
    fn recycle_into_full(&mut self, page: Idle) {
        self.owner.counts().cache_full.add(1);
        let coldest = self.hub().config.refill;
        let mut all = std::mem::take(&mut self.scratch);
        self.owner.empty(&mut all);
        // Nothing, if the pool was shut down just now.
        let rest = all.split_off(coldest.min(all.len()));
        if !all.is_empty() {
            give_back_many(&mut all);
        }
        self.scratch = all;
        let mut rest = rest;
        rest.push(page);
        self.owner.fill(&mut rest);
    }

    /// Puts pages straight into the cache, as by a [`recycle`](Self::recycle) of each. `pages` is empty afterwards.
    ///
    /// # Context
    /// As [`recycle`](Self::recycle).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut local = pool.allocator();
    /// let mut pages = Vec::new();
    /// local.alloc_bulk(&mut pages, 64)?;
    /// local.recycle_bulk(&mut pages);
    /// assert_eq!(pool.stats().cached, 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recycle_bulk(&mut self, pages: &mut Vec<Page>) {
        pages.drain(..).for_each(|page| self.recycle(page));
    }

    /// A piece of `len` bytes of a page that others get pieces of, too.
    ///
    /// The pieces of a page can be used and dropped on different threads, in any order; the page comes back with its last
    /// piece. What is left of a page that is too short for the next piece stays unused. A piece starts at a multiple of 8
    /// bytes.
    ///
    /// # Context
    /// The owner. Does not block. One plain store more than none, unless a new page has to be opened.
    ///
    /// # Errors
    /// [`AllocError::TooLong`] if `len` exceeds the page size; those of [`alloc`](Self::alloc).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut local = pool.allocator();
    /// let packets: Vec<_> = (0..8).map(|_| local.alloc_frag(512)).collect::<Result<_, _>>()?;
    /// assert_eq!(pool.in_flight(), 1, "all of them in one page");
    /// drop(packets);
    /// assert_eq!(pool.in_flight(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn alloc_frag(&mut self, len: usize) -> Result<Frag, AllocError> {
        let page_size = self.hub().config.page_size;
        match self.owner.next_piece(len, page_size) {
            Some(piece) => Ok(Frag::new(piece)),
            None => self.alloc_frag_slowly(len, Origin::here()),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_frag_slowly(&mut self, len: usize, origin: Origin) -> Result<Frag, AllocError> {
        let page_size = self.hub().config.page_size;
        if len > page_size {
            return Err(AllocError::TooLong);
        }
        let page = match self.owner.put_away() {
            Some(page) => {
                self.owner.count_reuse();
                page.write_down(origin);
                page
            }
            None => self.alloc_for(origin)?.into_idle(),
        };
        self.owner.open(page, len, page_size).map(Frag::new).ok_or(AllocError::ShutDown)
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("pool", &self.hub().config.name).field("cached", &self.owner.len()).finish()
    }
}

/// The page as the error, if it is the caller's own to use.
fn refuse_foreign(hub: &HubRef, mut page: Idle) -> Result<Idle, Idle> {
    let mut is_foreign = false;
    if let Some(foreign) = &hub.config.foreign {
        contain(|| Some(hub.core().subject::<Hub>()), || is_foreign = foreign(page.bytes()));
    }
    if is_foreign { Ok(page) } else { Err(page) }
}

pub(super) fn no_page(why: NoPage) -> AllocError {
    match why {
        NoPage::Limit => AllocError::Exhausted,
        NoPage::Memory => AllocError::OutOfMemory,
    }
}
