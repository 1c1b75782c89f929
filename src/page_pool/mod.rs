//! The kernel's page pool: buffers that are recycled instead of freed, with a shutdown that loses none.
//!
//! A program that receives a packet, reads a block or builds a message takes a buffer from the allocator and gives it
//! back, a million times a second, often on another thread. Here the buffers are pages of a pool, and their way back is
//! short:
//!
//! ```text
//!              refill: a batch, when the cache is empty
//!        +--------------------------------------------------+
//!        v                                                  |
//!  [cache of an owner] -- alloc --> user -- drop, anywhere --> [ring] -- full --> home
//!        ^                           |                                              |
//!        +------- recycle -----------+                                              |
//!        +----------------------------------- nothing in the ring ------------------+
//! ```
//!
//! - The *owner* of an [`Allocator`] takes and gives pages by a few plain loads and stores: no lock, no atomic
//!   read-modify-write.
//! - Everybody else drops a [`Page`] wherever he has it; it goes through a [`PtrRing`].
//! - The pool's life is a count like that of a [`PercpuRef`](crate::PercpuRef), and every page that is out holds a
//!   reference. [`PagePool::shutdown`] kills it: from then on nothing is handed out or cached, and a [`Drain`] waits for the
//!   pages that are still out. No timer polls for them.
//!
//! | file | concept |
//! |---|---|
//! | `page/` | pages as memory: all unsafe code |
//! | `life` | what handles and pages have in common, and how it ends |
//! | `allocator` | the owner's token, and how a cache is refilled |
//! | `recycle` | the way back through the ring |
//! | `recycler` | a way back that collects pages first |
//! | `frag` | pieces of pages, and frozen pages |
//! | `stats` | what a pool has done |
//! | `builder`, `error` | how it begins, and what can go wrong |
//!
//! After net/core/page_pool.c of Linux.
//!
//! # Examples
//! One thread receives, others work on what it got and drop it:
//! ```
//! use percpu_ref::page_pool::{Page, PagePool};
//! use std::sync::mpsc;
//!
//! let pool = PagePool::builder().max_pages(1000).build()?;
//! std::thread::scope(|s| {
//!     let (send, received) = mpsc::channel::<Page>();
//!     s.spawn(move || received.into_iter().map(|page| usize::from(page[0])).sum::<usize>());
//!     let mut local = pool.allocator();
//!     for i in 0..100 {
//!         let mut page = local.alloc().unwrap();
//!         page[0] = i;
//!         send.send(page).unwrap();
//!     }
//! });
//! assert_eq!(pool.in_flight(), 0);
//! pool.shutdown().wait();
//! # Ok::<(), percpu_ref::page_pool::BuildError>(())
//! ```
#![deny(unsafe_code)]

mod allocator;
mod builder;
mod error;
mod frag;
mod life;
#[expect(unsafe_code, reason = "pages are raw memory")]
mod page;
mod recycle;
mod recycler;
mod stats;

pub use allocator::Allocator;
pub use builder::{MAX_PAGE_SIZE, MAX_RING, PoolBuilder};
pub use error::{AllocError, BuildError};
pub use frag::{Frag, PageBytes};
pub use page::Page;
pub use recycle::recycle_bulk;
pub use recycler::Recycler;
pub use stats::Stats;

use crate::ptr_ring::PtrRing;
use crate::shared::Drain;
use crate::track::Origin;
use allocator::{HIGH_ORDER, no_page};
use life::{Hub, User};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// A pool of pages.
///
/// Clones are handles on the same pool. It is shut down when the last handle on it, [`Allocator`]s included, is dropped, or
/// by [`shutdown`](Self::shutdown); pages that are out then stay valid, and go home when they are dropped. Anything may be
/// dropped in any order, on any thread.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut page = pool.alloc()?;
/// page.fill(7);
/// drop(pool);
/// assert!(page.iter().all(|byte| *byte == 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PagePool {
    user: Arc<User>,
}

// What a panic can interrupt is the caller's code, never a step of ours.
impl UnwindSafe for PagePool {}
impl RefUnwindSafe for PagePool {}

impl PagePool {
    /// Starts to describe a pool.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().page_size(16384).build()?;
    /// # Ok::<(), percpu_ref::page_pool::BuildError>(())
    /// ```
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    fn hub(&self) -> &Hub {
        &self.user.hub
    }

    /// An owner's token, with an empty cache. There may be any number of them.
    ///
    /// # Context
    /// Any thread. Allocates.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut local = pool.allocator();
    /// std::thread::spawn(move || local.alloc().map(drop)).join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn allocator(&self) -> Allocator {
        Allocator::new(&self.user)
    }

    /// A handle that collects pages and gives them back many at once.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut recycler = pool.recycler();
    /// recycler.recycle(pool.alloc()?);
    /// recycler.flush();
    /// assert_eq!(pool.in_flight(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn recycler(&self) -> Recycler {
        Recycler::new()
    }

    /// A page, for who has no cache: from the ring, or from home.
    ///
    /// # Context
    /// Any thread. Does not block, but takes a lock for a few instructions.
    ///
    /// # Errors
    /// As [`Allocator::alloc`]. [`AllocError::Exhausted`] also when there are idle pages, but all in the caches of owners.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let pages: Vec<_> = (0..3).map(|_| pool.alloc()).collect::<Result<_, _>>()?;
    /// assert_eq!(pool.in_flight(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn alloc(&self) -> Result<Page, AllocError> {
        let origin = Origin::here();
        let hub = &self.user.hub;
        // Before anything is taken out: the reference keeps it.
        if !hub.tryget_live() {
            return Err(AllocError::ShutDown);
        }
        if let Some(page) = hub.ring().and_then(PtrRing::consume) {
            return Ok(Page::new(page).write_down(origin));
        }
        hub.counts.empty.add(1);
        let mut one = None;
        let taken = hub.take(1, |page| one = Some(page)).map_err(no_page);
        match taken.and_then(|()| one.ok_or(AllocError::Exhausted)) {
            Ok(page) => {
                let high = hub.config.page_size > HIGH_ORDER;
                if high { &hub.counts.slow_high_order } else { &hub.counts.slow }.add(1);
                Ok(Page::new(page).write_down(origin))
            }
            Err(error) => {
                hub.put(1);
                Err(error)
            }
        }
    }

    /// What the pool has done so far.
    ///
    /// # Context
    /// Any thread. Takes a lock for a moment, and reads a line or two of each owner.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// drop(pool.alloc()?);
    /// drop(pool.alloc()?);
    /// let stats = pool.stats();
    /// assert_eq!((stats.slow, stats.empty, stats.refill, stats.ring), (1, 1, 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.hub().stats()
    }

    /// Pages in users' hands: [`Page`]s, and pages of which pieces or frozen bytes are out. Exact while nobody uses the
    /// pool, and otherwise about right.
    ///
    /// # Context
    /// Any thread. Takes a lock for a moment, and reads a line of each CPU and of each owner.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let page = pool.alloc()?;
    /// assert_eq!(pool.in_flight(), 1);
    /// drop(page);
    /// assert_eq!(pool.in_flight(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_flight(&self) -> usize {
        self.hub().in_flight()
    }

    /// Bytes of address space that the pool has from the system for its pages: whole blocks, of 2 MiB at most. What has
    /// not been touched of them costs no memory.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// assert_eq!(pool.mapped_bytes(), 0);
    /// let page = pool.alloc()?;
    /// assert!(pool.mapped_bytes() >= page.len());
    /// drop(page);
    /// pool.shutdown().wait();
    /// assert_eq!(pool.mapped_bytes(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mapped_bytes(&self) -> usize {
        self.hub().mapped()
    }

    /// Bytes in a page.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().page_size(2048).build()?;
    /// assert_eq!(pool.page_size(), 2048);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn page_size(&self) -> usize {
        self.hub().config.page_size
    }

    /// Shuts the pool down: from the return of this on, every `alloc` fails with [`AllocError::ShutDown`].
    ///
    /// A grace period later, in the callback thread, the caches of all owners and the ring are emptied, wherever the owners
    /// are. A page that is dropped later goes home, and each block of memory goes back to the system with its last page. The
    /// [`Drain`] is over when nothing is out any more, and tells until then how many pages are out
    /// ([`count`](crate::Outstanding::count): the pages, once the caches are empty) and [since
    /// when](crate::Outstanding::since).
    ///
    /// It may be called any number of times: each drain waits for the same end. Dropping one changes nothing.
    ///
    /// # Context
    /// Any thread. Never blocks and runs no code of yours, unless the system has no thread to give: see
    /// [`Flavor::call`](crate::rcu::Flavor::call).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// use std::time::Duration;
    ///
    /// let pool = PagePool::builder().name("rx").build()?;
    /// let page = pool.alloc()?;
    /// let drain = pool.shutdown().wait_timeout(Duration::from_millis(20)).unwrap_err();
    /// println!("{}", drain.outstanding()); // ref `rx` still has 1 reference out, 0.0 s after its shutdown
    /// drop(page);
    /// drain.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Drain {
        Hub::shutdown(&self.user.hub)
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.hub().config;
        f.debug_struct("PagePool")
            .field("name", &config.name)
            .field("page_size", &config.page_size)
            .field("in_flight", &self.in_flight())
            .field("is_shut_down", &self.hub().is_dying())
            .finish_non_exhaustive()
    }
}
