//! Where a value is, or was: what a `Weak` has.

use super::{Memory, Strong, header_of};
use crate::rcu::Flavor;
use crate::track::Origin;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Where a value is, or was.
///
/// # Invariants
/// 1. It has a handle on the memory of the block that has its value at `value`.
pub(in crate::shared) struct Place<T: ?Sized, F: Flavor> {
    pub(super) value: NonNull<T>,
    marker: PhantomData<(F, T)>,
}

// SAFETY: it can become a `Strong` on whatever thread it is.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Send for Place<T, F> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Sync for Place<T, F> {}

impl<T: ?Sized, F: Flavor> Place<T, F> {
    /// # Safety
    /// 1. A reference on the value at `value` is held meanwhile.
    pub(super) unsafe fn new(value: NonNull<T>) -> Self {
        // SAFETY: 1: the references have a handle on the memory.
        let memory = ManuallyDrop::new(Memory::<F>(unsafe { header_of::<T, F>(value) }));
        std::mem::forget(Memory::clone(&memory));
        // INVARIANT: 1.
        Self { value, marker: PhantomData }
    }

    #[inline(always)]
    pub(super) fn memory(&self) -> ManuallyDrop<Memory<F>> {
        // SAFETY: invariant 1.
        ManuallyDrop::new(Memory(unsafe { header_of::<T, F>(self.value) }))
    }

    /// A reference, unless the count has been killed.
    #[inline(always)]
    pub(in crate::shared) fn upgrade(&self, origin: Origin) -> Option<Strong<T, F>> {
        if self.memory().header().core.tryget_live::<F>() {
            // SAFETY: a reference was just taken.
            Some(unsafe { Strong::new(self.value, origin) })
        } else {
            None
        }
    }

    pub(in crate::shared) fn as_ptr(&self) -> *const T {
        self.value.as_ptr()
    }
}

impl<T: ?Sized, F: Flavor> Clone for Place<T, F> {
    fn clone(&self) -> Self {
        std::mem::forget(Memory::clone(&self.memory()));
        // INVARIANT: 1.
        Self { value: self.value, marker: PhantomData }
    }
}

impl<T: ?Sized, F: Flavor> Drop for Place<T, F> {
    fn drop(&mut self) {
        // INVARIANT: 1: the handle goes.
        drop(ManuallyDrop::into_inner(self.memory()));
    }
}
