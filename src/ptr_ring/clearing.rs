//! When consumed slots become room again.
#![forbid(unsafe_code)]

use super::raw;

/// When the slots that were consumed become room for the producer.
///
/// A batch is never longer than half of the ring: if it would be, slots are cleared one by one.
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::{Clearing, PtrRing};
///
/// // Batches of four; with the default, batches of two in so small a ring.
/// let ring: PtrRing<_> = PtrRing::with_clearing(8, Clearing::Batch(4)).unwrap();
/// for n in 0..8 {
///     ring.produce(Box::new(n)).unwrap();
/// }
/// for _ in 0..3 {
///     ring.consume();
///     assert!(ring.produce(Box::new(0)).is_err(), "the batch is not complete");
/// }
/// ring.consume();
/// assert!(ring.produce(Box::new(8)).is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clearing {
    /// Whole batches at fixed places: a quarter of the ring, at least 1 slot and at most 64. The producer looks only at
    /// the first slot of each batch and then owns all of it.
    ///
    /// From a full ring the first `n` elements consumed make room for `n` rounded down to whole batches.
    #[default]
    Credit,
    /// The kernel's rule: two cache lines (16 slots), and 1 in a ring of fewer than 32. The producer looks at each slot.
    Kernel,
    /// As in the kernel before 2017: each element consumed makes room for one.
    OneByOne,
    /// The kernel's rule with a batch of one's own; 0 counts as 1.
    Batch(usize),
}

impl Clearing {
    pub(super) fn batch(self, capacity: usize) -> usize {
        let wanted = match self {
            Self::Credit => return (capacity / 4).clamp(1, 64),
            Self::Kernel => 2 * raw::LINE,
            Self::OneByOne => 1,
            Self::Batch(n) => n,
        };
        if wanted > capacity / 2 { 1 } else { wanted.max(1) }
    }
}
