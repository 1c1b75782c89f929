//! What is found out once for the whole process.
//!
//! A [`OnceLock`](std::sync::OnceLock) that one thread is filling while another forks stays locked in the child for ever,
//! and the kernel takes milliseconds to register a process for membarrier. So nobody waits here: threads that ask at
//! the same time all look, and the first to finish is believed by everyone.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number that is found out once; 0 inside stands for "not yet".
pub(crate) struct Found(AtomicUsize);

impl Found {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The number, if it is known.
    pub(crate) fn get(&self) -> Option<usize> {
        // Acquire: who knows the number sees what was done to find it.
        self.0.load(Ordering::Acquire).checked_sub(1)
    }

    /// The number; `find` looks if it is not known, and may do so more than once and at the same time.
    pub(crate) fn get_or(&self, find: impl FnOnce() -> usize) -> usize {
        self.get().unwrap_or_else(|| {
            let found = find();
            // Release and Acquire: as in `get`.
            match self.0.compare_exchange(0, found + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => found,
                Err(first) => first - 1,
            }
        })
    }

    /// The same for a yes or no.
    pub(crate) fn is(&self, find: impl FnOnce() -> bool) -> bool {
        self.get_or(|| usize::from(find())) != 0
    }

    /// Makes the number known; false if one was.
    pub(crate) fn set(&self, found: usize) -> bool {
        // Release and Acquire: as in `get`.
        self.0.compare_exchange(0, found + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
