//! A number that passes for a pointer, as in the kernel's selftest: a ring can be measured without an allocator.

use percpu_ref::ptr_ring::Pointer;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The number, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Item(pub(crate) NonZeroUsize);

// SAFETY: 1. the number is the address and the address the number. 2. Nothing is reached through it. 3. Casts.
unsafe impl Pointer for Item {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        NonNull::without_provenance(self.0)
    }
    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.addr())
    }
}

/// The item of a number from 0 on.
#[inline(always)]
pub(crate) fn item(i: u64) -> Item {
    Item(NonZeroUsize::new(i as usize + 1).expect("numbers begin with 0"))
}
