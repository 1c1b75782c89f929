//! A place that holds one block, and from which references are taken while others replace it.
//!
//! Loading a pointer and then counting on what it points to is two steps, and between them the block could go. So both
//! happen in one section or in one restartable sequence, and a block that has been replaced is killed only when
//! every section that was open at that moment is over, and keeps its memory for a grace period of the counters after
//! that:
//!
//! | a reader that has the old pointer | is waited for by |
//! |---|---|
//! | in a restartable sequence | the grace period of the kill (membarrier restarts sequences) |
//! | in a section | [`after_sections`](crate::rcu::Sealed::after_sections), before the kill; or, in flavours that count in sections, the kill's grace period |
//!
//! Until then the first reference, which only the end of the kill drops, keeps the value: so a reader simply gets.
//!
//! After the load of arc-swap, whose readers leave debts instead; and rcu_dereference with kref_get_unless_zero in Linux.

use super::block::{BACK, Root, Strong, adopt};
use crate::percpu_ref::count::CountCells;
use crate::rcu::Flavor;
use crate::sync::{AtomicPtr, Ordering, order};
use crate::track::Origin;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// # Invariants
/// 1. `value` comes from [`Root::into_raw`], and the slot owns that root.
/// 2. A root that leaves the slot through `&self` is killed, and dropped, only inside `F::after_sections`.
pub(super) struct Slot<T, F: Flavor> {
    value: AtomicPtr<T>,
    marker: PhantomData<(F, T)>,
}

// SAFETY: it owns a root, and hands references on its value out to whatever thread asks.
unsafe impl<T: Send + Sync, F: Flavor> Send for Slot<T, F> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, F: Flavor> Sync for Slot<T, F> {}

/// A root that has been replaced: readers may still be coming from where it was.
pub(super) struct Replaced<T: Send + Sync + 'static, F: Flavor>(ManuallyDrop<Root<T, F>>);

impl<T: Send + Sync + 'static, F: Flavor> Replaced<T, F> {
    pub(super) fn root(&self) -> &Root<T, F> {
        &self.0
    }
}

impl<T: Send + Sync + 'static, F: Flavor> Drop for Replaced<T, F> {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let root = unsafe { ManuallyDrop::take(&mut self.0) };
        F::after_sections(move || drop(root));
    }
}

impl<T: Send + Sync + 'static, F: Flavor> Slot<T, F> {
    pub(super) fn new(root: Root<T, F>) -> Self {
        // INVARIANT: 1.
        Self { value: AtomicPtr::new(root.into_raw().as_ptr()), marker: PhantomData }
    }

    /// A reference on the value of now.
    #[inline]
    pub(super) fn load(&self, origin: Origin) -> Strong<T, F> {
        if F::SEQUENCES {
            // SAFETY: 1. The slot points to a value (1) that has a header, which begins with its cells, `BACK` bytes
            // before it. 2. Once replaced it is killed (2), which closes the cells and waits for the sequences.
            if let Some(value) = unsafe { CountCells::get_from::<T, BACK>(&self.value) } {
                // SAFETY: a reference was taken in the sequence.
                return unsafe { adopt(value, origin) };
            }
        }
        self.load_in_section(origin)
    }

    #[inline(never)]
    fn load_in_section(&self, origin: Origin) -> Strong<T, F> {
        let _section = F::read_lock();
        // SAFETY: the section keeps what it finds (2).
        let root = unsafe { self.peek() };
        // The cells may be closed by now, but the first reference is there, so another can be taken.
        root.share(origin)
    }

    /// Runs `f` on the value of now, inside a section.
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub(super) fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _section = F::read_lock();
        // SAFETY: the section keeps what it finds (2).
        let root = unsafe { self.peek() };
        f(&root)
    }

    /// # Safety
    /// 1. The caller is in a section of `F`, and does not use the result after it.
    #[inline(always)]
    unsafe fn peek(&self) -> ManuallyDrop<Root<T, F>> {
        // Acquire [K2]: pairs with Release [K1] of who put it there: the value is seen as it was made.
        let value = self.value.load(order("K2", Ordering::Acquire));
        // SAFETY: invariant 1: never null.
        let value = unsafe { NonNull::new_unchecked(value) };
        // SAFETY: it is not dropped, so it is no second root.
        ManuallyDrop::new(unsafe { Root::from_raw(value) })
    }

    /// Puts another root in place.
    pub(super) fn swap(&self, new: Root<T, F>) -> Replaced<T, F> {
        // Release [K1]: pairs with Acquire [K2] in `peek` and [K3] in the sequence. Acquire [K4]: pairs with K1 of who put
        // the old one there.
        let old = self.value.swap(new.into_raw().as_ptr(), order("K1", Ordering::AcqRel));
        self.replaced(old)
    }

    /// Puts another root in place of the one with `current`, if that is the one.
    pub(super) fn compare_and_swap(&self, current: *const T, new: T, origin: Origin) -> Result<Replaced<T, F>, T> {
        let raw = Root::<T, F>::new(new, origin).into_raw();
        // K1, K4, as in `swap`.
        let put = order("K1", Ordering::AcqRel);
        match self.value.compare_exchange(current.cast_mut(), raw.as_ptr(), put, Ordering::Relaxed) {
            Ok(old) => Ok(self.replaced(old)),
            Err(_) => {
                // SAFETY: it was made of this root above, and was not put in place.
                let root = unsafe { Root::<T, F>::from_raw(raw) };
                // SAFETY: it was made for this slot, where nobody has seen it.
                Err(unsafe { root.into_inner_unseen() })
            }
        }
    }

    fn replaced(&self, old: *mut T) -> Replaced<T, F> {
        // SAFETY: invariant 1: never null.
        let old = unsafe { NonNull::new_unchecked(old) };
        // SAFETY: invariant 1: it was the slot's, and whoever took it out has it alone.
        Replaced(ManuallyDrop::new(unsafe { Root::from_raw(old) }))
    }

    /// The root, when nobody can be reading any more.
    pub(super) fn into_root(self) -> Root<T, F> {
        // SAFETY: the slot is not used or dropped afterwards.
        unsafe { ManuallyDrop::new(self).take() }
    }
}

impl<T, F: Flavor> Slot<T, F> {
    /// # Safety
    /// 1. The slot is not used afterwards.
    unsafe fn take(&self) -> Root<T, F> {
        // Relaxed: the caller has the slot alone.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: invariant 1: never null.
        let value = unsafe { NonNull::new_unchecked(value) };
        // SAFETY: invariant 1, and 1.
        unsafe { Root::from_raw(value) }
    }
}

impl<T, F: Flavor> Drop for Slot<T, F> {
    fn drop(&mut self) {
        // Nobody has `&self`, so no reader comes from here: the root can be killed at once.
        // SAFETY: this is the end of the slot.
        drop(unsafe { self.take() });
    }
}
