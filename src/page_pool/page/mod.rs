//! Pages, as memory. All unsafe code of the pool is in this directory.
//!
//! | file | concept |
//! |---|---|
//! | [`block`] | where pages lie, and what is known about each |
//! | [`source`] | where they come from and go home to |
//! | [`cache`] | an owner's stack of idle pages, which a shutdown can empty |
//! | [`share`] | the count of a page that is handed out in pieces or frozen |
//! | [`keep`] | who keeps the hub |
//!
//! # Who has a page
//!
//! | state | the page is in | holds a reference on the pool's count | may return to |
//! |---|---|---|---|
//! | home | the list of its block | no | cache, user |
//! | ringed | the ring | no | cache, user |
//! | cached | an owner's cache | yes | user, ring, home |
//! | out | a [`Page`], [`Frag`](super::Frag)s or [`PageBytes`](super::PageBytes) | yes | cache, ring, home |
//!
//! The count's release runs when nothing is cached and nothing out. So whoever moves a page out of the cache or the
//! user's hands puts the reference *after* it has put the page where it belongs: the release finds it there.

mod block;
mod cache;
mod keep;
mod share;
mod source;

pub(super) use block::{BLOCK, Layout};
pub(super) use cache::{CLOSED, Cache, FENCED, MAX_CACHE, Owner, Taken};
pub(super) use keep::{HubRef, return_many, return_one};
pub(super) use share::{Common, Unique};
pub(super) use source::{NoPage, Source, Spare};

use super::frag::PageBytes;
use super::life::Hub;
use super::recycle;
use crate::percpu_ref::count::Host;
use crate::ptr_ring::Pointer;
use crate::track::Origin;
use block::At;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A page that nobody uses, on its way: the only handle on it. It has no destructor: dropping it loses the page.
///
/// # Invariants
/// 1. It is a page, away, of a block that is mapped; nobody else reaches it, and its bytes are initialised.
#[must_use]
pub(super) struct Idle(At);

// SAFETY: it is the only handle on memory that belongs to no thread.
unsafe impl Send for Idle {}

impl Idle {
    #[inline(always)]
    fn into_at(self) -> At {
        self.0
    }

    /// The hub of its pool.
    #[inline(always)]
    pub(super) fn hub(&self) -> NonNull<Hub> {
        // SAFETY: 1. invariant 1.
        unsafe { self.0.hub() }
    }

    /// Its bytes.
    #[inline(always)]
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: 1. invariant 1.
        let len = unsafe { self.0.size() };
        // SAFETY: invariant 1: as many bytes lie there, initialised, and nobody else reaches them.
        unsafe { NonNull::slice_from_raw_parts(self.0.0, len).as_mut() }
    }

    /// Writes down that a user gets it.
    #[inline(always)]
    pub(super) fn write_down(&self, origin: Origin) {
        // SAFETY: the page's pool lives: the page is out, and holds a reference.
        unsafe { self.hub().as_ref() }.core().holders.hold_page(self.0.0.addr().get(), origin);
    }

    /// Crosses it out: no user has it any more. It still holds its reference.
    #[inline(always)]
    fn cross_out(&self) {
        // SAFETY: as above.
        unsafe { self.hub().as_ref() }.core().holders.let_go_page(self.0.0.addr().get());
    }

    /// Zeroes it, if others must not see what is in it.
    #[inline]
    pub(super) fn clean(&mut self) {
        // SAFETY: the page's pool lives: it is out, and holds a reference.
        unsafe { self.hub().as_ref() }.clean(self);
    }

    /// Gives its memory back to the system, if whole pages of the system lie in it; the page stays.
    #[cold]
    pub(super) fn discard(&mut self) {
        let bytes = self.bytes();
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: 1. invariant 1.
        unsafe { crate::sync::pages::discard(start, len) };
    }
}

// SAFETY: 1. Both are moves of an address. 2. Nothing is reached through `&Idle` but the hub. 3. They only convert.
unsafe impl Pointer for Idle {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        self.0.0.cast()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // INVARIANT: 1: by the caller's promise it was one.
        Self(At(raw.cast()))
    }
}

/// A page of a [`PagePool`](super::PagePool): a buffer of the pool's page size that goes back to the pool when it is
/// dropped, on whatever thread that is.
///
/// Its bytes are initialised: zero when the page is fresh; later what its last user left, unless the pool has
/// [`zero_on_recycle`](super::PoolBuilder::zero_on_recycle). It starts at a multiple of its size.
///
/// A page holds a reference on its pool: it outlives the [`PagePool`](super::PagePool), and a
/// [shutdown](super::PagePool::shutdown) waits for it. It is one pointer, so it can travel through a
/// [`PtrRing`](crate::ptr_ring::PtrRing).
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut page = pool.allocator().alloc()?;
/// page[..5].copy_from_slice(b"hello");
/// std::thread::spawn(move || {
///     assert_eq!(&page[..5], b"hello");
/// }) // dropped there, and back in the pool
/// .join()
/// .unwrap();
/// assert_eq!(pool.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Page(ManuallyDrop<Idle>);

// SAFETY: `&Page` gives `&[u8]` only.
unsafe impl Sync for Page {}

impl Page {
    /// Hands an idle page to a user.
    ///
    /// The reference that it holds is the caller's, who took it.
    #[inline(always)]
    pub(super) fn new(page: Idle) -> Self {
        Self(ManuallyDrop::new(page))
    }

    /// Writes down that a user gets it.
    #[inline(always)]
    pub(super) fn list(&self, origin: Origin) {
        self.0.write_down(origin);
    }

    /// The same, in passing.
    #[inline(always)]
    pub(super) fn write_down(self, origin: Origin) -> Self {
        self.list(origin);
        self
    }

    /// Takes it back; the reference is the caller's.
    #[inline(always)]
    pub(super) fn into_idle(self) -> Idle {
        let page = ManuallyDrop::new(self);
        Idle(page.0.0)
    }

    /// The same, from its last user.
    #[inline(always)]
    pub(super) fn taken_back(self) -> Idle {
        let page = self.into_idle();
        page.cross_out();
        page
    }

    /// Makes the page immutable and cloneable, without a copy.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut page = pool.alloc()?;
    /// page[..4].copy_from_slice(b"GET ");
    /// let request = page.freeze();
    /// let method = request.slice(..3);
    /// drop(request);
    /// assert_eq!(&method[..], b"GET");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn freeze(self) -> PageBytes {
        PageBytes::new(Common::whole(self.into_idle()))
    }
}

impl Deref for Page {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        let at = self.0.0;
        // SAFETY: 1. invariant 1 of `Idle`.
        let len = unsafe { at.size() };
        // SAFETY: invariant 1 of `Idle`: as many initialised bytes, borrowed through `&self`.
        unsafe { NonNull::slice_from_raw_parts(at.0, len).as_ref() }
    }
}

impl DerefMut for Page {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Page {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({} bytes at {:p})", self.len(), self.as_ptr())
    }
}

impl Drop for Page {
    #[inline]
    fn drop(&mut self) {
        recycle::give_back(Idle(self.0.0));
    }
}

// SAFETY: 1. Both are moves of the one handle. 2. `&Page` gives `&[u8]`, nothing moves the pointer. 3. They only convert.
unsafe impl Pointer for Page {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        self.into_idle().into_raw()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller's promise is the same.
        Self::new(unsafe { Idle::from_raw(raw) })
    }
}
