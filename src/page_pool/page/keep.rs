//! Who keeps the hub: handles, and the pages that are out.
//!
//! A page that is out may be the last thing that is left of its pool, and it has no room for a counted pointer. It holds
//! a reference on the pool's count, and all references together own one handle on the hub, which whoever releases gives
//! up. So a page reaches its hub through a plain pointer in its block, as long as it holds its reference.

use super::{Hub, Idle, NoPage};
use crate::percpu_ref::count::{self, Handle};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A counted handle on a hub.
///
/// # Invariants
/// 1. Besides all these handles there is one more count, which belongs to the references on the hub's count until one of
///    them has released.
#[derive(Clone)]
pub(in crate::page_pool) struct HubRef(Arc<Hub>);

impl Deref for HubRef {
    type Target = Hub;

    #[inline(always)]
    fn deref(&self) -> &Hub {
        &self.0
    }
}

impl HubRef {
    pub(in crate::page_pool) fn new(hub: Hub) -> Self {
        let hub = Arc::new(hub);
        // INVARIANT: 1.
        std::mem::forget(Arc::clone(&hub));
        Self(hub)
    }

    #[inline(always)]
    pub(in crate::page_pool) fn as_ptr(&self) -> NonNull<Hub> {
        // SAFETY: an `Arc` does not point to nothing.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(&self.0).cast_mut()) }
    }

    /// Takes up to `wanted` pages from home, at least one unless there is an error.
    ///
    /// The caller holds references for them.
    pub(in crate::page_pool) fn take(&self, wanted: usize, into: impl FnMut(Idle)) -> Result<(), NoPage> {
        let mut state = self.lock();
        // SAFETY: 1. it is the hub's own source, and the references that the pages are going to hold keep the hub.
        unsafe { state.source.take(self.as_ptr(), wanted, into) }
    }

    /// Puts `n` references that the caller holds. What he has put into the ring before is not lost.
    #[inline]
    pub(in crate::page_pool) fn put(&self, n: usize) {
        if n > 0 {
            // SAFETY: 1. the caller holds them.
            unsafe { put(self.as_ptr(), n) };
        }
    }
}

/// Drops `n` references, at least one, and with the last one the handle that all of them had.
///
/// # Safety
/// 1. The caller holds as many, and does not touch the hub afterwards unless something else keeps it.
#[inline(always)]
unsafe fn put(hub: NonNull<Hub>, n: usize) {
    // SAFETY: 1.: the references keep the hub. When this returns false the hub may be gone, and nothing touches it; a
    // reference to something that consists of cells does not promise more.
    if count::put_many_unless(unsafe { hub.as_ref() }, n, Hub::closed_meanwhile) {
        // SAFETY: invariant 1: it comes from `Arc::as_ptr`, and the count of all references is left to who released.
        drop(unsafe { Arc::from_raw(hub.as_ptr()) });
    }
}

/// Has `send` put a page that comes out of a user's hands where it belongs, and then puts the reference that it held.
#[inline(always)]
pub(in crate::page_pool) fn return_one(page: Idle, send: impl FnOnce(&Hub, Idle)) {
    let hub = page.hub();
    page.cross_out();
    // SAFETY: the page holds a reference, which keeps the hub.
    send(unsafe { hub.as_ref() }, page);
    // SAFETY: 1. the page's.
    unsafe { put(hub, 1) };
}

/// The same for many, at least one, all of one pool. `send` leaves none.
pub(in crate::page_pool) fn return_many(pages: &mut Vec<Idle>, send: impl FnOnce(&Hub, &mut Vec<Idle>)) {
    let (n, hub) = (pages.len(), pages[0].hub());
    pages.iter().for_each(Idle::cross_out);
    // SAFETY: the pages hold references, which keep the hub.
    send(unsafe { hub.as_ref() }, pages);
    debug_assert!(pages.is_empty());
    // SAFETY: 1. the pages'.
    unsafe { put(hub, n) };
}

impl Handle for HubRef {
    type Host = Hub;

    fn host(&self) -> &Hub {
        &self.0
    }

    fn released(&self) {
        // SAFETY: invariant 1: the count of all references is left to who released.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(&self.0)) });
    }
}
