//! Shares of a page: pieces and clones.
//!
//! Counting each piece when it is handed out and again when it comes back would be two atomics a piece. So an owner who
//! hands a page out in pieces writes a large number into its note once, the bias, counts the pieces by itself, and gives
//! back what it has not handed out in one subtraction when it is done with the page. A piece costs one atomic, when it
//! is dropped, and the last one none: who finds that the count is his own share alone needs no read-modify-write.
//!
//! After page_pool_fragment_page of Linux, whose bias was halved in 2023 so that further references to a piece could not
//! overflow the count.

use super::block::At;
use super::{Idle, recycle};
use crate::sync::{AtomicUsize, Ordering, fence, order};
use std::ptr::NonNull;

/// A share of a page: it keeps the page, and the reference on the pool that comes with it, until all shares are dropped.
///
/// # Invariants
/// 1. It is one of the shares that the page's note counts; while there is one, the page is out and its block is mapped.
pub(in crate::page_pool) struct Share(At);

// SAFETY: a share is a counted handle; what it leads to is the note, which is atomic, and bytes that its owner answers for.
unsafe impl Send for Share {}
// SAFETY: as above.
unsafe impl Sync for Share {}

impl Share {
    /// One of `shares` of a page whose others are the caller's to hand out.
    pub(super) fn first_of(page: Idle, shares: usize) -> Self {
        let at = page.into_at();
        // SAFETY: 1. invariant 1 of `Idle`; nobody else reaches the page.
        unsafe { at.set_note(shares) };
        // INVARIANT: 1.
        Self(at)
    }

    /// Another one of the shares that a page was given by `first_of`.
    ///
    /// # Safety
    /// 1. The caller has a share of the page that it has not handed out yet, and hands it out with this.
    #[inline(always)]
    pub(super) unsafe fn another(at: At) -> Self {
        // INVARIANT: 1.
        Self(at)
    }
}

impl Clone for Share {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: 1. invariant 1.
        // Relaxed: the caller has a share, so nothing is learnt here.
        let old = unsafe { self.0.note() }.fetch_add(1, Ordering::Relaxed);
        if old > isize::MAX.cast_unsigned() {
            // Somebody forgets clones in a loop. A wrapped count would hand out a page that is in use.
            std::process::abort();
        }
        // INVARIANT: 1.
        Self(self.0)
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1. invariant 1.
        if unsafe { drop_shares(self.0, 1) } {
            // INVARIANT: Idle's: it was the last share.
            recycle::give_back(Idle(self.0));
        }
    }
}

/// Drops `shares` of a page; true if they were the last ones: the page is the caller's then.
///
/// # Safety
/// 1. The caller has as many shares of the page.
#[inline(always)]
pub(super) unsafe fn drop_shares(at: At, shares: usize) -> bool {
    // SAFETY: 1. the shares keep the page.
    let note: &AtomicUsize = unsafe { at.note() };
    // Acquire [U1]: pairs with Release [U2] below: whoever recycles the page comes after the last use of each share. If
    // all that is left is ours, nobody can take another share, and the count need not be changed.
    if note.load(order("U1", Ordering::Acquire)) == shares {
        return true;
    }
    // Release [U2]: pairs with Acquire [U1] above, and with the fence [U3] below.
    if note.fetch_sub(shares, order("U2", Ordering::Release)) != shares {
        return false;
    }
    // Acquire [U3]: pairs with Release [U2], as [U1].
    fence("U3", Ordering::Acquire);
    true
}

/// Bytes of a page that belong to one share alone.
///
/// # Invariants
/// 1. `start` and `len` lie in the share's page, and no other share's bytes overlap while this exists.
pub(in crate::page_pool) struct Unique {
    start: NonNull<u8>,
    len: usize,
    share: Share,
}

// SAFETY: it owns its bytes, which belong to no thread.
unsafe impl Send for Unique {}
// SAFETY: `&Unique` gives `&[u8]` only.
unsafe impl Sync for Unique {}

impl Unique {
    /// # Safety
    /// 1. `share` is one of those that the page was divided into, and no other one has any of the `len` bytes from `start`
    ///    on.
    ///
    /// # Panics
    /// If they lie beyond the page.
    #[inline(always)]
    pub(super) unsafe fn new(share: Share, start: usize, len: usize) -> Self {
        // SAFETY: 1. invariant 1 of `Share`.
        let size = unsafe { share.0.size() };
        assert!(start <= size && len <= size - start, "a piece lies in its page");
        // SAFETY: just asserted: in the page, or at its end.
        let start = unsafe { share.0.0.add(start) };
        // INVARIANT: 1.
        Self { start, len, share }
    }

    #[inline(always)]
    pub(in crate::page_pool) fn bytes(&self) -> &[u8] {
        // SAFETY: invariant 1; the share keeps the page, whose bytes are initialised.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }

    #[inline(always)]
    pub(in crate::page_pool) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to these bytes.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }

    /// Gives up the right to change them.
    pub(in crate::page_pool) fn freeze(self) -> Common {
        // INVARIANT: Common's 1.
        Common { start: self.start, len: self.len, share: self.share }
    }
}

/// Bytes of a page that several may read and nobody writes.
///
/// # Invariants
/// 1. `start` and `len` lie in the share's page; as long as any share of them exists, nobody writes there.
#[derive(Clone)]
pub(in crate::page_pool) struct Common {
    start: NonNull<u8>,
    len: usize,
    share: Share,
}

// SAFETY: it gives `&[u8]` only, of memory that belongs to no thread.
unsafe impl Send for Common {}
// SAFETY: as above.
unsafe impl Sync for Common {}

impl Common {
    /// All of a page.
    pub(super) fn whole(page: Idle) -> Self {
        let at = page.0;
        // SAFETY: 1. invariant 1 of `Idle`.
        let len = unsafe { at.size() };
        // INVARIANT: 1: it is the only share.
        Self { start: at.0, len, share: Share::first_of(page, 1) }
    }

    #[inline(always)]
    pub(in crate::page_pool) fn bytes(&self) -> &[u8] {
        // SAFETY: invariant 1; the share keeps the page, whose bytes are initialised.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }

    /// The `len` bytes from `start` on, with the same share.
    ///
    /// # Panics
    /// If there are fewer.
    pub(in crate::page_pool) fn narrow(self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "a part lies in the whole");
        // SAFETY: just asserted: among the bytes, or at their end.
        let start = unsafe { self.start.add(start) };
        // INVARIANT: 1.
        Self { start, len, share: self.share }
    }
}
