//! What can go wrong: no room, or no ring.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

/// There is no room: the element comes back.
///
/// # Examples
/// ```
/// # use percpu_ref::ptr_ring::{Full, PtrRing};
/// let ring = PtrRing::new(0)?;
/// let Full(back) = ring.produce(Box::new(5)).unwrap_err();
/// assert_eq!(*back, 5);
/// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Full<P>(
    /// The element.
    pub P,
);

impl<P> fmt::Debug for Full<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<P> fmt::Display for Full<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full")
    }
}

impl<P> Error for Full<P> {}

/// A ring of this capacity cannot be had.
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{CapacityError, spsc};
/// assert_eq!(spsc::<Box<u8>>(usize::MAX).err(), Some(CapacityError::TooLarge));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CapacityError {
    /// It exceeds [`MAX_CAPACITY`](super::MAX_CAPACITY). Nothing was allocated.
    TooLarge,
    /// The allocator has no memory for it.
    OutOfMemory,
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a ring has at most {} slots", super::MAX_CAPACITY),
            Self::OutOfMemory => f.write_str("no memory for a ring of this capacity"),
        }
    }
}

impl Error for CapacityError {}
