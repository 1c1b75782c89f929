//! What a ring can hold: anything that is one pointer.

use std::ptr::NonNull;
use std::sync::Arc;

/// An owned value that can travel as one non-null pointer.
///
/// A slot of a ring is one word, and null means that it is empty. So an element must be able to become a non-null
/// pointer and back: `Box`, `Arc`, `&T`, `NonNull`, or a type of your own around one of these.
///
/// # Safety
/// 1. `from_raw(into_raw(p))` is `p`: it owns what `p` owned, also on another thread if `Self: Send`.
/// 2. Nothing reachable through `&Self` moves the pointer out or changes it: a ring lends an element that it is going to
///    hand out later ([`PtrRing::peek`](super::PtrRing::peek)) by making `Self` of the pointer, and forgets that `Self`
///    afterwards.
/// 3. Both functions only convert. They do not panic and do not use a ring: a ring may call them under its locks.
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{Pointer, PtrRing};
/// use std::ptr::NonNull;
///
/// struct Packet(Box<[u8; 1500]>);
/// // SAFETY: the conversions are those of the box, which nobody replaces through `&Packet`.
/// unsafe impl Pointer for Packet {
///     fn into_raw(self) -> NonNull<()> {
///         self.0.into_raw()
///     }
///     unsafe fn from_raw(raw: NonNull<()>) -> Self {
///         // SAFETY: the caller's promise is the same.
///         Packet(unsafe { Pointer::from_raw(raw) })
///     }
/// }
///
/// let ring = PtrRing::new(8)?;
/// ring.produce(Packet(Box::new([7; 1500]))).unwrap();
/// assert_eq!(ring.consume().unwrap().0[1499], 7);
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
pub unsafe trait Pointer: Sized {
    /// Gives the value up for a pointer that stands for it.
    fn into_raw(self) -> NonNull<()>;

    /// Takes back the value that a pointer stands for.
    ///
    /// # Safety
    /// 1. `raw` comes from [`into_raw`](Self::into_raw) of this type.
    /// 2. Each such pointer becomes a value once; a second value may be made of it only if it is never dropped and only
    ///    lent while the first does not exist.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

// SAFETY: 1. `Box` documents that its raw pointer makes it whole again. 2. Through `&Box<T>` only `&T` is reached. 3. Both
// are casts.
unsafe impl<T> Pointer for Box<T> {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: 1. and 2. of the caller: the pointer is that of a box which was given up.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }
}

// SAFETY: 1. `Arc` documents that its raw pointer makes it whole again. 2. `&Arc<T>` gives `&T` and clones, which are counts of
// their own. 3. Both are an addition.
unsafe impl<T> Pointer for Arc<T> {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        // SAFETY: an `Arc` points to its value, never to nothing.
        unsafe { NonNull::new_unchecked(Arc::into_raw(self).cast_mut().cast()) }
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: 1. and 2. of the caller: the pointer stands for one count of an `Arc`.
        unsafe { Arc::from_raw(raw.cast().as_ptr()) }
    }
}

// SAFETY: 1. and 2. A shared reference is a pointer that is never null, copied freely; the lifetime stays in the type. 3. Casts.
unsafe impl<T> Pointer for &T {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(self).cast()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: 1. of the caller: the pointer was such a reference, with the lifetime of this type.
        unsafe { raw.cast().as_ref() }
    }
}

// SAFETY: 1. and 2. It is the pointer itself, and nothing is reached through it. 3. Casts.
unsafe impl<T> Pointer for NonNull<T> {
    #[inline(always)]
    fn into_raw(self) -> NonNull<()> {
        self.cast()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        raw.cast()
    }
}
