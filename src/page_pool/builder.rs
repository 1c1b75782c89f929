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
pub const MAX_PAGE_SIZE: usize = BLOCK / 2;
/// The largest ring: the kernel's limit.
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
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_size = bytes;
        self
    }

    /// The most pages that the cache of an [`Allocator`](super::Allocator) holds: from the [`refill`](Self::refill) to
    /// 4096; 128 unless told otherwise.
    pub fn cache(mut self, pages: usize) -> Self {
        self.cache = pages;
        self
    }

    /// How many pages move at once between a cache and the ring: from 1 to the [`cache`](Self::cache); 64 unless told
    /// otherwise.
    pub fn refill(mut self, pages: usize) -> Self {
        self.refill = pages;
        self
    }

    /// The capacity of the ring: up to [`MAX_RING`]; 1024 unless told otherwise. With 0, every page that is dropped goes
    /// home at once.
    pub fn ring(mut self, pages: usize) -> Self {
        self.ring = pages;
        self
    }

    /// The most pages that may be anywhere but home: in use, in caches and in the ring. At least 1; as many as there is
    /// memory for, unless told otherwise.
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.max_pages = pages;
        self
    }

    /// Whether a page is zeroed when its user gives it back, so that the next one cannot see what he left in it.
    pub fn zero_on_recycle(mut self, zero: bool) -> Self {
        self.zero_on_recycle = zero;
        self
    }

    /// Whether the system is asked for huge pages under the blocks, which are 2 MiB. It need not have any.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// A name for errors, for [`Outstanding`](crate::Outstanding) and for `Debug`.
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
