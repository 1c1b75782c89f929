//! Taking elements out of a vector from its front.

/// The elements of a vector, to be taken from its front; dropping it closes the gap.
pub(in crate::ptr_ring) struct Batch<'a, P> {
    vec: &'a mut Vec<P>,
    /// `[taken, len)` of the vector's memory are elements; the vector's own length is 0 meanwhile.
    taken: usize,
    len: usize,
}

impl<'a, P> Batch<'a, P> {
    pub(in crate::ptr_ring) fn new(vec: &'a mut Vec<P>) -> Self {
        let len = vec.len();
        // SAFETY: 0 elements are always initialised. Should this be forgotten, they leak.
        unsafe { vec.set_len(0) };
        Self { vec, taken: 0, len }
    }

    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.len - self.taken
    }

    pub(in crate::ptr_ring) fn taken(&self) -> usize {
        self.taken
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> P {
        debug_assert!(self.taken < self.len);
        // SAFETY: every caller has looked at `left`, so this lies within the vector.
        let at = unsafe { self.vec.as_ptr().add(self.taken) };
        self.taken += 1;
        // SAFETY: an element, read once: `taken` has moved on.
        unsafe { at.read() }
    }
}

impl<P> Drop for Batch<'_, P> {
    fn drop(&mut self) {
        let left = self.left();
        let start = self.vec.as_mut_ptr();
        // SAFETY: `taken <= len`, within the vector.
        let rest = unsafe { start.add(self.taken) };
        // SAFETY: both lie within the vector, and may overlap.
        unsafe { start.copy_from(rest, left) };
        // SAFETY: the first `left` places are elements now, each of them once.
        unsafe { self.vec.set_len(left) };
    }
}
