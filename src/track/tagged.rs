//! A pointer and its entry in the books, as one word.
//!
//! A `Shared` is one pointer, with and without tracking: it lies in rings, which have room for no more, and programs
//! count on its size. So the pointer to the object and the number of the entry are boxed together.

use super::Holder;
use std::ptr::NonNull;

/// A pointer, and who holds what it points to.
pub(crate) struct Tagged<T: ?Sized>(Box<(NonNull<T>, Holder)>);

impl<T: ?Sized> Tagged<T> {
    pub(crate) fn new(pointer: NonNull<T>, holder: Holder) -> Self {
        Self(Box::new((pointer, holder)))
    }

    pub(crate) fn pointer(&self) -> NonNull<T> {
        self.0.0
    }

    pub(crate) fn holder(&self) -> Holder {
        self.0.1
    }
}

impl<T> Tagged<T> {
    /// One word that stands for it.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw` of this type, and at most one of those made of it is dropped.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: 1: it comes from a box of this type, which whoever drops frees once.
        Self(unsafe { Box::from_raw(raw.as_ptr().cast()) })
    }
}
