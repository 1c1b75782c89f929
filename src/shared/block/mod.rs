//! One allocation for count and value.
//!
//! A `PercpuRef` beside an `Arc` would be two allocations and two counts. Here the count lies right before the value, in
//! one block, and every handle points to the *value*: a handle on a `Sized` value is one word, reading through it needs
//! no arithmetic, and a fat pointer to a slice or a trait object works as it is.
//!
//! ```text
//!            | Header: count, memory, how to drop, drain | value |
//!            ^ value - size_of::<Header>()               ^ every handle points here
//! ```
//!
//! # Two lives
//!
//! The *value* lives until the last reference is put. The *memory* lives until nobody can reach the header any more,
//! which is later: a `Weak` still asks the count, a kill is still under way in the callback thread, and the very put
//! that found zero still has to say so in the flags. So the memory has a count of its own, one atomic, touched rarely:
//!
//! | who | holds |
//! |---|---|
//! | all references together, until one of them has released | one |
//! | each `Weak`, each switch under way, a `Drain` | one |
//!
//! A put that is not the last touches the block no more, because the next one may free it. (The kernel had that bug:
//! "zero seen before release".)
//!
//! | file | concept |
//! |---|---|
//! | [`root`] | the reference that all others descend from |
//! | [`strong`] | the others |
//! | [`place`] | where a value is, or was: what a `Weak` has |
//! | [`remains`] | what is left of a value for its drain |
//!
//! After `std::sync::Arc`, and rust/kernel/sync/arc.rs of Linux for what belongs to whom.

mod place;
mod remains;
mod root;
mod strong;

pub(super) use place::Place;
pub(super) use remains::Remains;
pub(super) use root::Root;
pub(super) use strong::{Strong, adopt};

use crate::percpu_ref::count::{self, Core, Handle, Host};
use crate::rcu::Flavor;
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering, Packed, fence, order, settled};
use crate::track::{Holder, HolderKind, Origin};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::task::Waker;

/// A pointer to the value, whatever its type: up to two words.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "read as the pointer that it is")]
struct Erased([MaybeUninit<*mut u8>; 2]);

impl Erased {
    fn new<T: ?Sized>(value: NonNull<T>) -> Self {
        const { assert!(size_of::<NonNull<T>>() <= size_of::<Self>()) };
        let mut erased = Self([MaybeUninit::uninit(); 2]);
        // SAFETY: a pointer to `T` fits, as just asserted, and is aligned as a word is.
        unsafe { (&raw mut erased).cast::<NonNull<T>>().write(value) };
        erased
    }

    /// # Safety
    /// 1. It was made from a pointer to this `T`.
    unsafe fn get<T: ?Sized>(&self) -> NonNull<T> {
        // SAFETY: 1.
        unsafe { (&raw const *self).cast::<NonNull<T>>().read() }
    }
}

/// What becomes of the value at the last put.
mod fate {
    /// Whoever puts last drops it.
    pub(super) const DROP: u8 = 0;
    /// A drain waits for it.
    pub(super) const WANTED: u8 = 1;
    /// The last put has come: it is the drain's.
    pub(super) const READY: u8 = 2;
}

/// What rides along in the padding of the waker's lock.
struct Side {
    /// | fate | who changes it | to |
    /// |---|---|---|
    /// | DROP | who makes a drain, before the kill | WANTED |
    /// | WANTED | the last put | READY |
    /// | WANTED | a drain that is dropped | DROP |
    fate: AtomicU8,
    /// A `Shared` or a `Weak` has been made from the root. Written by who can see the root, read by who has it alone.
    handed_out: AtomicBool,
}

/// What lies before a value.
///
/// # Invariants
/// 1. It is followed by the value, both in one allocation with `layout`; the value is initialised until `core` has been
///    released and its fate was DROP, or a drain has taken it.
/// 2. `value` points to that value and `drop_value` is for its type.
/// 3. `memory` is the number of handles on the memory; the allocation is freed when it reaches zero.
/// 4. While `core` has not been released, one of the handles belongs to all its references together.
/// 5. A `Root` has the first reference of `core`, which only a kill drops.
#[repr(C)]
pub(super) struct Header<F: Flavor> {
    core: Core,
    value: Erased,
    drop_value: unsafe fn(Erased),
    /// The waker of a drain. No user code runs under its lock.
    drain: Packed<Option<Waker>, Side>,
    memory: AtomicUsize,
    layout: Layout,
    /// The root's entry in the books.
    root: Holder,
    flavor: PhantomData<F>,
}

/// How far before a value its header lies, which does not depend on the flavour.
pub(super) const BACK: usize = size_of::<Header<crate::rcu::Sched>>();

// SAFETY: the pointer in it is to a value that is `Send` and `Sync`, as whoever makes a block demands; all else is atomics
// and a lock.
unsafe impl<F: Flavor> Send for Header<F> {}
// SAFETY: as above.
unsafe impl<F: Flavor> Sync for Header<F> {}

impl<F: Flavor> Host for Header<F> {
    type Flavor = F;
    const WHAT: &'static str = "a `Shared` value";

    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }

    fn release(&self) {
        // Release [N1]: pairs with Acquire [N2] in `Remains::is_ready`: who takes the value sees what its users did, which
        // this thread has seen by D2.
        let fate = &self.drain.side.fate;
        match fate.compare_exchange(fate::WANTED, fate::READY, order("N1", Ordering::Release), Ordering::Relaxed) {
            Ok(_) => {
                let waker = self.drain.lock().take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // SAFETY: invariants 1 and 2: this is the only release, nobody has a reference, and no drain wants it.
            Err(_) => unsafe { (self.drop_value)(self.value) },
        }
    }
}

/// # Safety
/// 1. `value` was made from a pointer to a `T` that nobody has and that is initialised.
unsafe fn drop_value<T: ?Sized>(value: Erased) {
    // SAFETY: 1.
    let value = unsafe { value.get::<T>() };
    // SAFETY: 1.
    unsafe { value.drop_in_place() };
}

/// The header of the block of a value.
///
/// # Safety
/// 1. `value` points to the value of a block of flavour `F` whose memory has not been freed.
#[inline(always)]
unsafe fn header_of<T: ?Sized, F: Flavor>(value: NonNull<T>) -> NonNull<Header<F>> {
    // SAFETY: 1: a header lies that far before, in the same allocation, which the pointer was derived from.
    unsafe { value.cast::<u8>().sub(size_of::<Header<F>>()).cast() }
}

/// A handle on the memory of a block, not on its value.
///
/// # Invariants
/// 1. It is one of the handles that `memory` counts, so what it points to is a header.
pub(super) struct Memory<F: Flavor>(NonNull<Header<F>>);

// SAFETY: it is a counted pointer to something that is `Send` and `Sync`.
unsafe impl<F: Flavor> Send for Memory<F> {}
// SAFETY: as above.
unsafe impl<F: Flavor> Sync for Memory<F> {}

impl<F: Flavor> Memory<F> {
    #[inline(always)]
    fn header(&self) -> &Header<F> {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }
}

impl<F: Flavor> Clone for Memory<F> {
    fn clone(&self) -> Self {
        // Relaxed: the caller has a handle, so nothing is learnt here.
        let old = self.header().memory.fetch_add(1, Ordering::Relaxed);
        if old > isize::MAX.cast_unsigned() {
            // Somebody forgets handles in a loop. A wrapped count would free what is in use.
            std::process::abort();
        }
        Self(self.0)
    }
}

impl<F: Flavor> Drop for Memory<F> {
    fn drop(&mut self) {
        // Release [M1]: pairs with the fence [M2] of whoever frees: what others did with the header comes before.
        if self.header().memory.fetch_sub(1, order("M1", Ordering::Release)) == 1 {
            fence("M2", Ordering::Acquire);
            // SAFETY: invariant 3 of the header: it was the last handle.
            unsafe { free(self.0) };
        }
    }
}

/// # Safety
/// 1. No handle on the memory is left, and with it nobody else who uses the header or the value.
#[cold]
unsafe fn free<F: Flavor>(header: NonNull<Header<F>>) {
    // SAFETY: 1.
    let layout = unsafe { header.as_ref() }.layout;
    // SAFETY: 1.
    settled(unsafe { &mut (*header.as_ptr()).memory });
    // SAFETY: 1. The value has been dropped, or taken, or leaked with the references that would have dropped it.
    unsafe { header.drop_in_place() };
    // SAFETY: the block begins where `Room::new` put the header that far from.
    let start = unsafe { header.cast::<u8>().sub(padding::<F>(layout)) };
    // SAFETY: the allocation was made with this layout (header's invariant 1).
    unsafe { dealloc(start.as_ptr(), layout) };
}

/// How far into a block with this layout the header lies: more than 0 for a value that is aligned more than a header.
fn padding<F: Flavor>(layout: Layout) -> usize {
    size_of::<Header<F>>().next_multiple_of(layout.align()) - size_of::<Header<F>>()
}

impl<F: Flavor> Handle for Memory<F> {
    type Host = Header<F>;

    fn host(&self) -> &Header<F> {
        self.header()
    }

    fn released(&self) {
        // SAFETY: invariant 4 of the header: the handle that belonged to all references is left to whoever released.
        drop(Self(self.0));
    }
}

/// A block without a header or a value.
struct Room {
    /// Where the value goes.
    value: NonNull<u8>,
    /// The whole block's.
    layout: Layout,
}

impl Room {
    fn new<F: Flavor>(value: Layout) -> Self {
        let extended = Layout::new::<Header<F>>().extend(value);
        let (layout, offset) = extended.expect("a value of almost the whole address space has no room for a count");
        debug_assert_eq!(offset, padding::<F>(layout) + size_of::<Header<F>>());
        // SAFETY: a header has a size.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: the offset is inside the block, or at its end if the value has no size.
        let value = unsafe { start.add(offset) };
        Self { value, layout }
    }

    /// Writes the header, which makes it a block with a root.
    ///
    /// # Safety
    /// 1. `value` points to `self.value`, which has been initialised as a `T`, and was derived from it.
    /// 2. Sharing a `T` between threads, and dropping it on any, is allowed.
    unsafe fn into_root<T: ?Sized, F: Flavor>(self, core: Core, value: NonNull<T>, origin: Origin) -> Root<T, F> {
        // The reference that a root has besides the first one.
        core.get::<F>();
        let root = core.holders.hold(HolderKind::Owner, origin);
        let side = Side { fate: AtomicU8::new(fate::DROP), handed_out: AtomicBool::new(false) };
        let header = Header {
            core,
            value: Erased::new(value),
            drop_value: drop_value::<T>,
            drain: Packed::new(None, side),
            memory: AtomicUsize::new(1),
            layout: self.layout,
            root,
            flavor: PhantomData,
        };
        // SAFETY: there is room for a header right before the value, and it is aligned.
        let place = unsafe { header_of::<T, F>(value) };
        // SAFETY: as above. INVARIANT: header's 1 to 5; Root's 1.
        unsafe { place.write(header) };
        Root { value, marker: PhantomData }
    }
}

/// Drops a reference on the value of a block.
///
/// # Safety
/// 1. It is one of the references that the count of the block counts, and the caller's to drop.
#[inline(always)]
unsafe fn put<T: ?Sized, F: Flavor>(value: NonNull<T>, holder: Holder) {
    // SAFETY: 1: as long as the reference is held, the references hold the memory.
    let header = unsafe { header_of::<T, F>(value) };
    // SAFETY: as above.
    unsafe { header.as_ref() }.core.holders.let_go(holder);
    // SAFETY: as above. When `put` returns false, the header may be gone, and nothing touches it; a reference to
    // something that consists of cells does not promise more.
    if count::put(unsafe { header.as_ref() }) {
        // SAFETY: invariant 4 of the header: this put released, so the handle of all references is left to us.
        drop(Memory(header));
    }
}
