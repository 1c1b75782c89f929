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
//! After `std::sync::Arc`, and rust/kernel/sync/arc.rs of Linux for what belongs to whom.

use crate::percpu_ref::count::{self, Confirm, Core, Handle, Host};
use crate::percpu_ref::{AlreadyDying, Builder, Outstanding, PercpuRef, switch};
use crate::rcu::Flavor;
use crate::report::{Wait, Watch};
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering, Packed, fence, order, settled};
use crate::track::{Holder, HolderKind, Origin, Tagged};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::task::Waker;
use std::time::Duration;

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
    const WHAT: &'static str = "an `Owner`";

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

/// A reference on a value.
///
/// # Invariants
/// 1. It is one of the references that the count of the value's block counts, so the value is initialised.
pub(super) struct Strong<T: ?Sized, F: Flavor> {
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
    unsafe fn new(value: NonNull<T>, origin: Origin) -> Self {
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
    unsafe fn another(value: NonNull<T>, origin: Origin) -> Self {
        // SAFETY: 1: the references hold the memory.
        let header = unsafe { header_of::<T, F>(value) };
        // SAFETY: as above.
        unsafe { header.as_ref() }.core.get::<F>();
        // SAFETY: a reference was just taken.
        unsafe { Self::new(value, origin) }
    }

    #[inline(always)]
    pub(super) fn share(&self, origin: Origin) -> Self {
        // SAFETY: invariant 1.
        unsafe { Self::another(self.value.pointer(), origin) }
    }

    pub(super) fn as_ptr(&self) -> *const T {
        self.value.pointer().as_ptr()
    }

    /// A place to come back to.
    pub(super) fn place(&self) -> Place<T, F> {
        // SAFETY: invariant 1.
        unsafe { Place::new(self.value.pointer()) }
    }
}

impl<T, F: Flavor> Strong<T, F> {
    /// The pointer that stands for this reference until [`from_raw`](Self::from_raw) takes it back.
    #[inline(always)]
    pub(super) fn into_raw(self) -> NonNull<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is not dropped, and not used again.
        unsafe { ptr::read(&raw const this.value) }.into_raw()
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw` of this type, and at most one of those made of it is dropped.
    #[inline(always)]
    pub(super) unsafe fn from_raw(raw: NonNull<()>) -> Self {
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

/// The reference that all others descend from, with the right to kill.
///
/// Dropping it kills, without waiting.
///
/// # Invariants
/// 1. It is the one root of the block of `value`, and has one of the references that the count of the block counts; so the
///    value is initialised.
pub(super) struct Root<T: ?Sized, F: Flavor> {
    value: NonNull<T>,
    marker: PhantomData<(F, T)>,
}

// SAFETY: as for `Strong`.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Send for Root<T, F> {}
// SAFETY: as for `Strong`.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Sync for Root<T, F> {}

impl<T: Send + Sync + 'static, F: Flavor> Root<T, F> {
    /// # Panics
    /// If there is no memory for the counters.
    pub(super) fn new(value: T, origin: Origin) -> Self {
        Self::in_block(new_core::<F>(PercpuRef::builder()), value, origin)
    }

    /// As `new`, with a name for reports and errors.
    pub(super) fn with_name(value: T, name: Cow<'static, str>, origin: Origin) -> Self {
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
    pub(super) unsafe fn into_inner_unseen(self) -> T {
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
    pub(super) fn remains(&self) -> Remains<T, F> {
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
    pub(super) fn from_box(value: Box<T>, origin: Origin) -> Self {
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
    pub(super) fn share(&self, origin: Origin) -> Strong<T, F> {
        self.hand_out();
        // SAFETY: invariant 1.
        unsafe { Strong::another(self.value, origin) }
    }

    pub(super) fn place(&self) -> Place<T, F> {
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
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        let header = self.header();
        // Relaxed: whoever set it had `&Root`, and now there is `&mut Root`.
        if header.drain.side.handed_out.load(Ordering::Relaxed) && !header.core.is_last() {
            return None;
        }
        // SAFETY: either every reference and place would have been made by `hand_out`, and none was; or the one reference
        // left is ours, and no place can come back, because the kill is over. New ones need `&Root`.
        Some(unsafe { self.value.as_mut() })
    }

    pub(super) fn kill(&self, confirm: Option<Confirm>) -> Result<(), AlreadyDying> {
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
    pub(super) fn outstanding(&self) -> Outstanding {
        self.header().core.outstanding::<Header<F>>()
    }

    /// Without the kill.
    pub(super) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw`, and no other root was made of it since.
    pub(super) unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // INVARIANT: 1.
        Self { value: raw, marker: PhantomData }
    }
}

/// A reference on a block whose value is at `value`, for a caller who has taken it.
///
/// # Safety
/// 1. The caller has taken a reference on the block's count, and hands it over.
#[inline(always)]
pub(super) unsafe fn adopt<T, F: Flavor>(value: NonNull<T>, origin: Origin) -> Strong<T, F> {
    // SAFETY: 1.
    unsafe { Strong::new(value, origin) }
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

/// Where a value is, or was.
///
/// # Invariants
/// 1. It has a handle on the memory of the block that has its value at `value`.
pub(super) struct Place<T: ?Sized, F: Flavor> {
    value: NonNull<T>,
    marker: PhantomData<(F, T)>,
}

// SAFETY: it can become a `Strong` on whatever thread it is.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Send for Place<T, F> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, F: Flavor> Sync for Place<T, F> {}

impl<T: ?Sized, F: Flavor> Place<T, F> {
    /// # Safety
    /// 1. A reference on the value at `value` is held meanwhile.
    unsafe fn new(value: NonNull<T>) -> Self {
        // SAFETY: 1: the references have a handle on the memory.
        let memory = ManuallyDrop::new(Memory::<F>(unsafe { header_of::<T, F>(value) }));
        std::mem::forget(Memory::clone(&memory));
        // INVARIANT: 1.
        Self { value, marker: PhantomData }
    }

    #[inline(always)]
    fn memory(&self) -> ManuallyDrop<Memory<F>> {
        // SAFETY: invariant 1.
        ManuallyDrop::new(Memory(unsafe { header_of::<T, F>(self.value) }))
    }

    /// A reference, unless the count has been killed.
    #[inline(always)]
    pub(super) fn upgrade(&self, origin: Origin) -> Option<Strong<T, F>> {
        if self.memory().header().core.tryget_live::<F>() {
            // SAFETY: a reference was just taken.
            Some(unsafe { Strong::new(self.value, origin) })
        } else {
            None
        }
    }

    pub(super) fn as_ptr(&self) -> *const T {
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

/// The claim of a drain on a value.
///
/// # Invariants
/// 1. There is one for a block; while it lives and has not `taken`, the fate is WANTED or READY, and if it is READY the
///    value is initialised and this claim's alone.
pub(super) struct Remains<T, F: Flavor> {
    place: Place<T, F>,
    taken: bool,
    /// Of a wait without a thread, from the first poll on.
    watch: Option<Watch>,
}

impl<T: Send + Sync + 'static, F: Flavor> super::drain::Source<T> for Remains<T, F> {
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), Outstanding> {
        self.place.memory().header().core.wait_zero::<Header<F>>(limit)
    }

    fn outstanding(&self) -> Outstanding {
        self.place.memory().header().core.outstanding::<Header<F>>()
    }

    fn poll(&mut self, waker: &Waker) -> bool {
        if self.is_ready() {
            return true;
        }
        let waker = waker.clone();
        let old = self.place.memory().header().drain.lock().replace(waker);
        drop(old);
        // The last put changes the fate first and takes the lock afterwards: either it takes the waker, or this sees it.
        if self.is_ready() {
            return true;
        }
        F::kick();
        if let Some(waited) = self.watch.get_or_insert_with(Watch::start).overdue() {
            self.place.memory().header().core.report_stall::<Header<F>>(Wait::Zero, waited);
        }
        self.is_ready()
    }

    fn take(&mut self) -> T {
        assert!(!self.taken && self.is_ready(), "a drain yields its value once");
        self.taken = true;
        // SAFETY: invariant 1, and it is read once.
        unsafe { self.place.value.read() }
    }
}

impl<T, F: Flavor> Remains<T, F> {
    fn is_ready(&self) -> bool {
        // Acquire [N2]: pairs with Release [N1] in `release`.
        let fate = self.place.memory().header().drain.side.fate.load(order("N2", Ordering::Acquire));
        fate == fate::READY
    }
}

impl<T, F: Flavor> Drop for Remains<T, F> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let memory = self.place.memory();
        let waker = memory.header().drain.lock().take();
        drop(waker);
        // Acquire [N2]: as in `is_ready`.
        let fate = &memory.header().drain.side.fate;
        let acquire = order("N2", Ordering::Acquire);
        if fate.compare_exchange(fate::WANTED, fate::DROP, Ordering::Relaxed, acquire).is_err() {
            // SAFETY: invariant 1.
            unsafe { self.place.value.drop_in_place() };
        }
    }
}
