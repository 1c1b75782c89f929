//! The way back of a page that somebody else than the owner of a cache has used.
//!
//! Through the ring if it has room, else home. The reference is put last, and nothing touches the pool afterwards: it may
//! be gone. (The kernel had that bug twice: statistics and unlocking after the last return, in 2025 and, for bulks, 2026.)
#![forbid(unsafe_code)]

use super::page::{Idle, Page, return_many, return_one};
use crate::ptr_ring::Full;

/// Pages that are put into the ring under one lock, at most.
const BULK: usize = 64;

/// Takes a page, with its reference, from a user.
#[inline]
pub(super) fn give_back(page: Idle) {
    return_one(page, |hub, mut page| {
        hub.clean(&mut page);
        if hub.is_dying() {
            hub.counts.released_refcnt.add(1);
            return hub.bring_one_home(page);
        }
        let rest = match hub.ring() {
            Some(ring) => ring.produce(page).err().map(|Full(page)| page),
            None => Some(page),
        };
        if let Some(page) = rest {
            hub.counts.ring_full.add(1);
            hub.bring_one_home(page);
        }
    });
}

/// Takes pages, with their references, from a user: at least one, all of one pool, zeroed if they have to be. None is left.
pub(super) fn give_back_many(pages: &mut Vec<Idle>) {
    return_many(pages, |hub, pages| {
        if hub.is_dying() {
            hub.counts.released_refcnt.add(pages.len() as u64);
        } else {
            if let Some(ring) = hub.ring() {
                ring.produce_batch(pages);
            }
            hub.counts.ring_full.add(pages.len() as u64);
        }
        hub.bring_home(pages);
    });
}

/// Drops pages at once: for each run of pages of one pool, one lock of that pool's ring and one addition to its count.
///
/// `pages` is empty afterwards, and keeps its memory. Nothing is wrong with dropping pages one by one; this costs less.
///
/// # Context
/// Any thread. Takes the producer's lock of the ring once for each 64 pages.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::{PagePool, recycle_bulk};
///
/// let pool = PagePool::builder().build()?;
/// let mut pages = Vec::new();
/// pool.allocator().alloc_bulk(&mut pages, 100)?;
/// recycle_bulk(&mut pages);
/// assert_eq!((pages.len(), pool.in_flight()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recycle_bulk(pages: &mut Vec<Page>) {
    let mut run: Vec<Idle> = Vec::with_capacity(pages.len().min(BULK));
    for page in pages.drain(..) {
        let mut page = page.into_idle();
        page.clean();
        if run.len() == BULK || run.first().is_some_and(|first| first.hub() != page.hub()) {
            give_back_many(&mut run);
        }
        run.push(page);
    }
    if !run.is_empty() {
        give_back_many(&mut run);
    }
}
