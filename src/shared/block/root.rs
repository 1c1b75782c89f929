//! The reference that all others descend from.

use super::{Header, Memory, Place, Remains, Room, Strong, fate, header_of, put};
use crate::percpu_ref::count::{Confirm, Core};
use crate::percpu_ref::{AlreadyDying, Builder, Outstanding, PercpuRef, switch};
use crate::rcu::Flavor;
use crate::sync::Ordering;
use crate::track::Origin;
use std::alloc::Layout;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// The reference that all others descend from, with the right to kill.
///
/// Dropping it kills, without waiting.
///
/// # Invariants
/// 1. It is the one root of the block of `value`, and has one of the references that the count of the block counts; so the
///    value is initialised.
pub(in crate::shared) struct Root<T: ?Sized, F: Flavor> {
    pub(super) value: NonNull<T>,
    pub(super) marker: PhantomData<(F, T)>,
}

// SAFETY: as for `Strong`.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Send for Root<T, F> {}
// SAFETY: as for `Strong`.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Sync for Root<T, F> {}

impl<T: Send + Sync + 'static, F: Flavor> Root<T, F> {
    /// # Panics
    /// If there is no memory for the counters.
    pub(in crate::shared) fn new(value: T, origin: Origin) -> Self {
        Self::in_block(new_core::<F>(PercpuRef::builder()), value, origin)
    }

    /// As `new`, with a name for reports and errors.
    pub(in crate::shared) fn with_name(value: T, name: Cow<'static, str>, origin: Origin) -> Self {
        Self::in_block(new_core::<F>(PercpuRef::builder().name(name)), value, origin)
    }

    fn in_block(core: Core, value: T, origin: Origin) -> Self {
        let room = Room::new::<F>(Layout::new::<T>());
        let place = room.value.cast::<T>();
        // SAFETY: the room is for a `T`.
        unsafe { place.write(value) };
        // SAFETY: 1. `place` is the room's value. 2. `T: Send + Sync`.
        unsafe { room.into_root(core, place, origin) }
    }

    /// The value.
    ///
    /// # Safety
    /// 1. Nobody else has ever had the value or its place: no reference was made, no kill begun.
    pub(in crate::shared) unsafe fn into_inner_unseen(self) -> T {
        let root = ManuallyDrop::new(self);
        // SAFETY: 1: it is ours alone, and nothing drops it afterwards.
        let value = unsafe { root.value.read() };
        // The handle that belonged to all references.
        drop(ManuallyDrop::into_inner(root.memory()));
        value
    }

    /// Has the last put leave the value to what is returned, until that is dropped.
    ///
    /// # Panics
    /// If there is one already.
    pub(in crate::shared) fn remains(&self) -> Remains<T, F> {
        let fate = &self.header().drain.side.fate;
        // Relaxed: the put of this root comes later and publishes it.
        let claimed = fate.compare_exchange(fate::DROP, fate::WANTED, Ordering::Relaxed, Ordering::Relaxed);
        assert!(claimed.is_ok(), "one drain at a time waits for a value");
        // INVARIANT: Remains' 1.
        // SAFETY: invariant 1.
        let place = unsafe { Place::new(self.value) };
        Remains { place, taken: false, watch: None }
    }
}

fn new_core<F: Flavor>(builder: Builder) -> Core {
    builder.flavor(F::default()).try_core().unwrap_or_else(|error| panic!("{error}"))
}

impl<T: ?Sized + Send + Sync + 'static, F: Flavor> Root<T, F> {
    /// Moves the value out of its box, into a block.
    ///
    /// # Panics
    /// If there is no memory for the counters.
    pub(in crate::shared) fn from_box(value: Box<T>, origin: Origin) -> Self {
        let core = new_core::<F>(PercpuRef::builder());
        let layout = Layout::for_value(&*value);
        let room = Room::new::<F>(layout);
        let old = Box::into_raw(value);
        // SAFETY: both are `layout.size()` bytes, and the room is new.
        unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), room.value.as_ptr(), layout.size()) };
        let new = with_address(old, room.value);
        // SAFETY: it comes from `into_raw`. The value has moved away, so only the box is to be freed.
        drop(unsafe { Box::from_raw(old as *mut ManuallyDrop<T>) });
        // SAFETY: 1. `new` is the room's value, with the old one's metadata. 2. `T: Send + Sync`.
        unsafe { room.into_root(core, new, origin) }
    }

    /// A reference for others.
    #[inline(always)]
    pub(in crate::shared) fn share(&self, origin: Origin) -> Strong<T, F> {
        self.hand_out();
        // SAFETY: invariant 1.
        unsafe { Strong::another(self.value, origin) }
    }

    pub(in crate::shared) fn place(&self) -> Place<T, F> {
        self.hand_out();
        // SAFETY: invariant 1.
        unsafe { Place::new(self.value) }
    }

    fn hand_out(&self) {
        let handed_out = &self.header().drain.side.handed_out;
        // The line is read by everybody; it is written once.
        if !handed_out.load(Ordering::Relaxed) {
            handed_out.store(true, Ordering::Relaxed);
        }
    }

    /// The value, if nobody else has it or can get it.
    pub(in crate::shared) fn get_mut(&mut self) -> Option<&mut T> {
        let header = self.header();
        // Relaxed: whoever set it had `&Root`, and now there is `&mut Root`.
        if header.drain.side.handed_out.load(Ordering::Relaxed) && !header.core.is_last() {
            return None;
        }
        // SAFETY: either every reference and place would have been made by `hand_out`, and none was; or the one reference
        // left is ours, and no place can come back, because the kill is over. New ones need `&Root`.
        Some(unsafe { self.value.as_mut() })
    }

    pub(in crate::shared) fn kill(&self, confirm: Option<Confirm>) -> Result<(), AlreadyDying> {
        switch::kill(&*self.memory(), confirm)
    }
}

impl<T: ?Sized, F: Flavor> Root<T, F> {
    #[inline(always)]
    fn header(&self) -> &Header<F> {
        // SAFETY: invariant 1: as long as the reference is held, the references hold the memory.
        let header = unsafe { header_of::<T, F>(self.value) };
        // SAFETY: as above.
        unsafe { header.as_ref() }
    }

    /// The handle on the memory that all references have together, to be cloned only.
    fn memory(&self) -> ManuallyDrop<Memory<F>> {
        // SAFETY: invariant 1.
        ManuallyDrop::new(Memory(unsafe { header_of::<T, F>(self.value) }))
    }

    /// What is out now.
    pub(in crate::shared) fn outstanding(&self) -> Outstanding {
        self.header().core.outstanding::<Header<F>>()
    }

    /// Without the kill.
    pub(in crate::shared) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw`, and no other root was made of it since.
    pub(in crate::shared) unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // INVARIANT: 1.
        Self { value: raw, marker: PhantomData }
    }
}

impl<T: ?Sized, F: Flavor> std::ops::Deref for Root<T, F> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, F: Flavor> Drop for Root<T, F> {
    fn drop(&mut self) {
        // An error: it has been killed before.
        let _ = switch::kill(&*self.memory(), None);
        let holder = self.header().root;
        // SAFETY: invariant 1.
        unsafe { put::<T, F>(self.value, holder) };
    }
}

/// `fat`, pointing to `address` instead.
fn with_address<T: ?Sized>(mut fat: *mut T, address: NonNull<u8>) -> NonNull<T> {
    // SAFETY: a pointer begins with its address, in every compiler there is; if not, the assertion below fails.
    unsafe { (&raw mut fat).cast::<*mut u8>().write(address.as_ptr()) };
    assert_eq!(fat.cast::<u8>(), address.as_ptr(), "the address comes first");
    NonNull::new(fat).expect("the address is not null")
}
