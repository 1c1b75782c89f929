//! A reference on a value.

use super::{Place, header_of, put};
use crate::rcu::Flavor;
use crate::track::{HolderKind, Origin, Tagged};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// A reference on a value.
///
/// # Invariants
/// 1. It is one of the references that the count of the value's block counts, so the value is initialised.
pub(in crate::shared) struct Strong<T: ?Sized, F: Flavor> {
    value: Tagged<T>,
    marker: PhantomData<(F, T)>,
}

// SAFETY: it hands `&T` out, and may drop the `T`, on whatever thread it is.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Send for Strong<T, F> {}
// SAFETY: as above: through `&Strong` another thread can make a `Strong` of its own.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Sync for Strong<T, F> {}

impl<T: ?Sized, F: Flavor> Strong<T, F> {
    /// # Safety
    /// 1. The caller has taken a reference on the count of the block that `value` is in, and hands it over.
    #[inline(always)]
    pub(super) unsafe fn new(value: NonNull<T>, origin: Origin) -> Self {
        // SAFETY: 1: the reference keeps the memory.
        let header = unsafe { header_of::<T, F>(value) };
        // SAFETY: as above.
        let holder = unsafe { header.as_ref() }.core.holders.hold(HolderKind::Shared, origin);
        // INVARIANT: 1.
        Self { value: Tagged::new(value, holder), marker: PhantomData }
    }

    /// A reference more, on a value on which somebody holds one.
    ///
    /// # Safety
    /// 1. A reference on the value is held meanwhile.
    #[inline(always)]
    pub(super) unsafe fn another(value: NonNull<T>, origin: Origin) -> Self {
        // SAFETY: 1: the references hold the memory.
        let header = unsafe { header_of::<T, F>(value) };
        // SAFETY: as above.
        unsafe { header.as_ref() }.core.get::<F>();
        // SAFETY: a reference was just taken.
        unsafe { Self::new(value, origin) }
    }

    #[inline(always)]
    pub(in crate::shared) fn share(&self, origin: Origin) -> Self {
        // SAFETY: invariant 1.
        unsafe { Self::another(self.value.pointer(), origin) }
    }

    pub(in crate::shared) fn as_ptr(&self) -> *const T {
        self.value.pointer().as_ptr()
    }

    /// A place to come back to.
    pub(in crate::shared) fn place(&self) -> Place<T, F> {
        // SAFETY: invariant 1.
        unsafe { Place::new(self.value.pointer()) }
    }
}

impl<T, F: Flavor> Strong<T, F> {
    /// The pointer that stands for this reference until [`from_raw`](Self::from_raw) takes it back.
    #[inline(always)]
    pub(in crate::shared) fn into_raw(self) -> NonNull<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is not dropped, and not used again.
        unsafe { ptr::read(&raw const this.value) }.into_raw()
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw` of this type, and at most one of those made of it is dropped.
    #[inline(always)]
    pub(in crate::shared) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // INVARIANT: 1. SAFETY: 1.
        Self { value: unsafe { Tagged::from_raw(raw) }, marker: PhantomData }
    }
}

impl<T: ?Sized, F: Flavor> std::ops::Deref for Strong<T, F> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        let value = self.value.pointer();
        // SAFETY: invariant 1.
        unsafe { value.as_ref() }
    }
}

impl<T: ?Sized, F: Flavor> Drop for Strong<T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { put::<T, F>(self.value.pointer(), self.value.holder()) };
    }
}

/// A reference on a block whose value is at `value`, for a caller who has taken it.
///
/// # Safety
/// 1. The caller has taken a reference on the block's count, and hands it over.
#[inline(always)]
pub(in crate::shared) unsafe fn adopt<T, F: Flavor>(value: NonNull<T>, origin: Origin) -> Strong<T, F> {
    // SAFETY: 1.
    unsafe { Strong::new(value, origin) }
}
