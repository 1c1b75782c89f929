//! A reference that puts itself.
#![forbid(unsafe_code)]

use super::PercpuRef;
use crate::rcu::{Flavor, Sched};
use std::fmt;

/// A reference on a [`PercpuRef`], from [`enter`](PercpuRef::enter). Dropping it is a put, cloning it a get.
///
/// It may be dropped on another thread than the one that took it. A forgotten one (`mem::forget`) stays counted until
/// somebody puts by hand.
///
/// # Examples
/// ```
/// use percpu_ref::{PercpuRef, Ref};
///
/// let r = PercpuRef::new(|| println!("nobody is inside any more"));
/// let inside: Ref<'_> = r.enter().expect("not killed");
/// let too = inside.clone();
/// r.kill_sync().unwrap();
/// assert!(r.enter().is_none());
/// drop((inside, too));
/// r.wait_zero();
/// ```
#[must_use = "dropping it at once is a get and a put"]
pub struct Ref<'a, F: Flavor = Sched> {
    of: &'a PercpuRef<F>,
}

impl<'a, F: Flavor> Ref<'a, F> {
    /// For a reference that the caller has taken.
    pub(super) fn new(of: &'a PercpuRef<F>) -> Self {
        Self { of }
    }
}

impl<F: Flavor> Clone for Ref<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        self.of.get();
        Self { of: self.of }
    }
}

impl<F: Flavor> Drop for Ref<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.of.put();
    }
}

impl<F: Flavor> fmt::Debug for Ref<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref").field(self.of).finish()
    }
}
