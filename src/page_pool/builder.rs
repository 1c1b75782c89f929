//! How a pool begins.
#![forbid(unsafe_code)]

use super::PagePool;
use super::error::BuildError;
use super::life::{Config, Foreign, Hub, User};
use super::page::{BLOCK, HubRef, Layout, MAX_CACHE, Source};
use crate::percpu_ref::PercpuRef;
use crate::ptr_ring::PtrRing;
use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// The largest page, in bytes.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::{MAX_PAGE_SIZE, PagePool};
///
/// assert!(PagePool::builder().page_size(MAX_PAGE_SIZE).build().is_ok());
/// assert!(PagePool::builder().page_size(2 * MAX_PAGE_SIZE).build().is_err());
/// ```
pub const MAX_PAGE_SIZE: usize = BLOCK / 2;
/// The largest ring: the kernel's limit.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::{MAX_RING, PagePool};
///
/// assert!(PagePool::builder().ring(MAX_RING).build().is_ok());
/// assert!(PagePool::builder().ring(MAX_RING + 1).build().is_err());
/// ```
pub const MAX_RING: usize = 16_384;

/// Makes a [`PagePool`]; from [`PagePool::builder`].
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder()
///     .name("receive queue 0")
///     .page_size(4096)
///     .cache(128)
///     .refill(64)
///     .ring(1024)
///     .max_pages(10_000)
///     .zero_on_recycle(false)
///     .huge_pages(true)
///     .build()?;
/// # Ok::<(), percpu_ref::page_pool::BuildError>(())
/// ```
#[must_use = "a builder builds nothing before `build`"]
pub struct PoolBuilder {
    page_size: usize,
    cache: usize,
    refill: usize,
    ring: usize,
    max_pages: usize,
    zero_on_recycle: bool,
    huge_pages: bool,
    name: Option<Cow<'static, str>>,
    foreign: Option<Foreign>,
}

// A builder only keeps the predicate.
impl UnwindSafe for PoolBuilder {}
impl RefUnwindSafe for PoolBuilder {}

fn in_range(field: &'static str, value: usize, allowed: RangeInclusive<usize>) -> Result<(), BuildError> {
    if allowed.contains(&value) { Ok(()) } else { Err(BuildError::OutOfRange { field, value, allowed }) }
}

impl PoolBuilder {
    pub(super) fn new() -> Self {
        Self {
            page_size: 4096,
            cache: 128,
            refill: 64,
            ring: 1024,
            max_pages: usize::MAX,
            zero_on_recycle: false,
            huge_pages: false,
            name: None,
            foreign: None,
        }
    }

    /// Bytes in a page: a power of two up to [`MAX_PAGE_SIZE`]; 4096 unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().page_size(64 << 10).build()?;
    /// assert_eq!(pool.alloc()?.len(), 64 << 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_size = bytes;
        self
    }

    /// The most pages that the cache of an [`Allocator`](super::Allocator) holds: from the [`refill`](Self::refill) to
    /// 4096; 128 unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// // An owner that bursts to 200 pages takes them from its cache, once it has had them.
    /// let pool = PagePool::builder().cache(256).build()?;
    /// let error = PagePool::builder().cache(32).refill(64).build().unwrap_err();
    /// assert_eq!(error.to_string(), "cache is 32, but has to be from 64 to 4096");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache(mut self, pages: usize) -> Self {
        self.cache = pages;
        self
    }

    /// How many pages move at once between a cache and the ring: from 1 to the [`cache`](Self::cache); 64 unless told
    /// otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// // Few pages for each owner: a ring of small moves.
    /// let pool = PagePool::builder().cache(16).refill(8).build()?;
    /// let error = PagePool::builder().refill(0).build().unwrap_err();
    /// assert_eq!(error.to_string(), "refill is 0, but has to be from 1 to 4096");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refill(mut self, pages: usize) -> Self {
        self.refill = pages;
        self
    }

    /// The capacity of the ring: up to [`MAX_RING`]; 1024 unless told otherwise. With 0, every page that is dropped goes
    /// home at once.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().ring(0).build()?;
    /// let page = pool.alloc()?;
    /// drop(page);
    /// assert_eq!(pool.in_flight(), 0);
    /// assert_eq!(pool.stats().ring, 0, "it went home");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ring(mut self, pages: usize) -> Self {
        self.ring = pages;
        self
    }

    /// The most pages that may be anywhere but home: in use, in caches and in the ring. At least 1; as many as there is
    /// memory for, unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::{AllocError, PagePool};
    ///
    /// let pool = PagePool::builder().max_pages(2).build()?;
    /// let pages = [pool.alloc()?, pool.alloc()?];
    /// assert_eq!(pool.alloc().unwrap_err(), AllocError::Exhausted);
    /// drop(pages);
    /// assert!(pool.alloc().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.max_pages = pages;
        self
    }

    /// Whether a page is zeroed when its user gives it back, so that the next one cannot see what he left in it.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().zero_on_recycle(true).build()?;
    /// let mut page = pool.alloc()?;
    /// page.fill(7); // a secret
    /// drop(page);
    /// assert!(pool.alloc()?.iter().all(|byte| *byte == 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn zero_on_recycle(mut self, zero: bool) -> Self {
        self.zero_on_recycle = zero;
        self
    }

    /// Whether the system is asked for huge pages under the blocks, which are 2 MiB. It need not have any.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().huge_pages(true).page_size(256 << 10).build()?;
    /// drop(pool.alloc()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// A name for errors, for [`Outstanding`](crate::Outstanding) and for `Debug`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().name("rx 0").build()?;
    /// assert_eq!(pool.shutdown().outstanding().name(), Some("rx 0"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Tells which pages an owner should not get again from the ring: those on another memory node, say. The first such page
    /// ends a refill; its memory is given back to the system, so that whoever touches the page next gets memory that is
    /// near him.
    ///
    /// It runs in [`alloc`](super::Allocator::alloc), under no lock. If it panics, that is
    /// [reported](crate::set_report_hook), and the page is used.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// fn node_of(_page: &[u8]) -> u32 { 0 } // ask the system
    /// let pool = PagePool::builder().foreign(|page| node_of(page) != 0).build()?;
    /// drop(pool.alloc()?);
    /// assert!(pool.allocator().alloc().is_ok());
    /// assert_eq!(pool.stats().waive, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn foreign(mut self, is_foreign: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        self.foreign = Some(Box::new(is_foreign));
        self
    }

    /// Makes the pool.
    ///
    /// # Context
    /// Allocates; maps no pages yet.
    ///
    /// # Errors
    /// [`BuildError`] names the first field that is wrong, and the range that its value has to be in.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().max_pages(1000).build()?;
    /// assert_eq!(pool.mapped_bytes(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<PagePool, BuildError> {
        let Self { page_size, cache, refill, ring, max_pages, zero_on_recycle, huge_pages, name, foreign } = self;
        in_range("page_size", page_size, 1..=MAX_PAGE_SIZE)?;
        if !page_size.is_power_of_two() {
            let allowed = 1..=MAX_PAGE_SIZE;
            return Err(BuildError::NotAPowerOfTwo { field: "page_size", value: page_size, allowed });
        }
        in_range("refill", refill, 1..=MAX_CACHE)?;
        in_range("cache", cache, refill..=MAX_CACHE)?;
        in_range("ring", ring, 0..=MAX_RING)?;
        in_range("max_pages", max_pages, 1..=usize::MAX)?;
        let counter = PercpuRef::builder();
        let counter = if let Some(name) = &name { counter.name(name.clone()) } else { counter };
        let core = counter.try_core().map_err(|_| BuildError::OutOfMemory)?;
        let ring = PtrRing::new(ring).map_err(|_| BuildError::OutOfMemory)?;
        let source = Source::new(Layout::new(page_size, max_pages), max_pages, huge_pages);
        let config = Config { page_size, cache, refill, zero_on_recycle, foreign, name };
        let hub = HubRef::new(Hub::new(core, config, ring, source));
        Ok(PagePool { user: Arc::new(User { hub }) })
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("name", &self.name)
            .field("page_size", &self.page_size)
            .field("cache", &self.cache)
            .field("refill", &self.refill)
            .field("ring", &self.ring)
            .field("max_pages", &self.max_pages)
            .field("zero_on_recycle", &self.zero_on_recycle)
            .field("huge_pages", &self.huge_pages)
            .finish_non_exhaustive()
    }
}
