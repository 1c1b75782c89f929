//! A [`Shared`] as an element of a ring.

use super::block::Strong;
use super::handle::Shared;
use crate::ptr_ring::Pointer;
use crate::rcu::Flavor;
use std::ptr::NonNull;

// SAFETY: 1. A handle is one pointer, and `from_raw` makes a handle of that; the reference that it stands for is counted
// whoever has it. 2. `&Shared` gives `&T` and clones, which are references of their own. 3. Both are casts.
unsafe impl<T: Send + Sync + 'static, F: Flavor> Pointer for Shared<T, F> {
    #[inline]
    fn into_raw(self) -> NonNull<()> {
        self.strong.into_raw()
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: 1. and 2. of the caller: the pointer stands for one reference.
        Self { strong: unsafe { Strong::from_raw(raw) } }
    }
}
