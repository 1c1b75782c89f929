//! Slots as the memory that they are: cleared many at once, and asked for ahead of time.

use super::AtomicPtr;
#[cfg(not(percpu_ref_loom))]
pub(crate) use crate::sys::prefetch_read;

/// A model has no cache.
#[cfg(percpu_ref_loom)]
pub(crate) fn prefetch_read<T>(_at: *const T) {}

/// Sets every slot to null with ordinary stores, which the compiler may join: it does not join atomic ones.
///
/// # Safety
/// 1. No other thread accesses these slots between the caller's last synchronisation with it and its next: the stores
///    are not atomic.
#[inline]
pub(crate) unsafe fn clear_exclusive(slots: &[AtomicPtr<()>]) {
    #[cfg(not(percpu_ref_loom))]
    // SAFETY: 1. nobody else is there; the slots are `UnsafeCell`s, so writing through `&` is allowed, and all bits zero
    // is the null pointer.
    unsafe {
        slots.as_ptr().cast::<*mut ()>().cast_mut().write_bytes(0, slots.len());
    }
    #[cfg(percpu_ref_loom)]
    for slot in slots {
        slot.store(std::ptr::null_mut(), super::Ordering::Relaxed);
    }
}
