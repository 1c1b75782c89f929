//! A reference that puts itself.
#![forbid(unsafe_code)]

use super::{PercpuRef, count};
use crate::rcu::{Flavor, Sched};
use crate::track::{Holder, HolderKind, Origin};
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
    holder: Holder,
}

impl<'a, F: Flavor> Ref<'a, F> {
    /// For a reference that the caller has taken.
    #[inline(always)]
    pub(super) fn new(of: &'a PercpuRef<F>, origin: Origin) -> Self {
        Self { of, holder: of.inner.core.holders.hold(HolderKind::Ref, origin) }
    }
}

impl<F: Flavor> Clone for Ref<'_, F> {
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    fn clone(&self) -> Self {
        self.of.inner.core.get::<F>();
        Self::new(self.of, Origin::here())
    }
}

impl<F: Flavor> Drop for Ref<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.of.inner.core.holders.let_go(self.holder);
        let _released = count::put(&*self.of.inner);
    }
}

impl<F: Flavor> fmt::Debug for Ref<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref").field(self.of).finish()
    }
}
