//! How references are taken and dropped.
#![forbid(unsafe_code)]

use super::{PercpuRef, Ref, count};
use crate::rcu::Flavor;
use crate::track::Origin;

impl<F: Flavor> PercpuRef<F> {
    /// Takes a reference. The caller holds one already, so this cannot fail.
    ///
    /// # Context
    /// Any thread, destructors of thread-locals included; with the `Rseq` backend, and without the feature `track`, a
    /// signal handler too. Never blocks.
    ///
    /// # Ordering
    /// None: whoever holds a reference already sees what he needs.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.get();
    /// r.put();
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn get(&self) {
        self.inner.core.get::<F>();
        self.inner.core.holders.get(1, Origin::here());
    }

    /// Takes `n` references at the cost of one. Zero does nothing.
    ///
    /// A count above `u32::MAX` saturates the ref and is reported.
    ///
    /// # Context
    /// As [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.get_many(64); // a batch of requests
    /// r.put_many(64);
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn get_many(&self, n: usize) {
        self.inner.core.get_many::<F>(n);
        self.inner.core.holders.get(n, Origin::here());
    }

    /// Drops a reference. If it was the last, `release` runs here.
    ///
    /// # Context
    /// Any thread, also another than the one that took the reference; destructors of thread-locals included; with the
    /// `Rseq` backend, and without the feature `track`, a signal handler too (if the reference may be the last, `release`
    /// has to suit a handler, and so has a subscriber of the feature `tracing`). Never blocks, unless `release` does.
    ///
    /// # Ordering
    /// What precedes any put of the ref is visible in `release`, and after [`wait_zero`](Self::wait_zero).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// # use std::sync::Arc;
    /// let r = Arc::new(PercpuRef::new(|| {}));
    /// r.get();
    /// let other = Arc::clone(&r);
    /// std::thread::spawn(move || other.put()).join().unwrap();
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    pub fn put(&self) {
        self.inner.core.holders.put(1);
        let _released = count::put(&*self.inner);
    }

    /// Drops `n` references at the cost of one. Zero does nothing.
    ///
    /// A count above `u32::MAX` saturates the ref and is reported.
    ///
    /// # Context
    /// As [`put`](Self::put).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.get_many(3);
    /// r.put();
    /// r.put_many(2);
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    pub fn put_many(&self, n: usize) {
        self.inner.core.holders.put(n);
        let _released = count::put_many(&*self.inner, n);
    }

    /// Takes a reference unless none is left.
    ///
    /// It ignores kills: as long as anybody holds a reference it succeeds. For a caller who cannot be sure that somebody
    /// does, but who has to get in as long as there is something to get into.
    ///
    /// # Context
    /// As [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.get();
    /// r.kill_sync().unwrap();
    /// assert!(r.tryget(), "killed, but somebody holds a reference");
    /// r.put_many(2);
    /// assert!(!r.tryget(), "nobody does");
    /// ```
    #[inline]
    #[must_use = "a reference that was taken has to be put"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn tryget(&self) -> bool {
        self.got(self.inner.core.tryget::<F>(), 1, Origin::here())
    }

    /// Takes `n` references unless none is left: all or nothing, at the cost of one.
    ///
    /// `tryget_many(0)` takes nothing and tells whether anything could be taken. A count above `u32::MAX` saturates the
    /// ref and is reported.
    ///
    /// # Context
    /// As [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// if r.tryget_many(8) {
    ///     r.put_many(8);
    /// }
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    #[must_use = "references that were taken have to be put"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn tryget_many(&self, n: usize) -> bool {
        self.got(self.inner.core.tryget_many::<F>(n), n, Origin::here())
    }

    /// Takes a reference unless the ref has been killed.
    ///
    /// `false` is final until [`resurrect`](Self::resurrect) or [`reinit`](Self::reinit). `true` may race with a kill:
    /// only once its `confirm` runs does every thread get `false`.
    ///
    /// # Context
    /// As [`get`](Self::get).
    ///
    /// # Ordering
    /// A thread that gets into a life sees what preceded the `reinit` or `resurrect` that began it.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// assert!(r.tryget_live());
    /// r.kill_sync().unwrap();
    /// assert!(!r.tryget_live());
    /// r.put();
    /// ```
    #[inline]
    #[must_use = "a reference that was taken has to be put"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn tryget_live(&self) -> bool {
        self.got(self.inner.core.tryget_live::<F>(), 1, Origin::here())
    }

    /// Whether `n` references were taken by hand, which is written down if so.
    #[inline(always)]
    fn got(&self, got: bool, n: usize, origin: Origin) -> bool {
        if got {
            self.inner.core.holders.get(n, origin);
        }
        got
    }

    /// Takes a reference as a guard, unless the ref has been killed: [`tryget_live`](Self::tryget_live) with the put
    /// built in.
    ///
    /// # Context
    /// As [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// if let Some(_inside) = r.enter() {
    ///     // `release` will not run before `_inside` is dropped
    /// }
    /// # r.kill_sync().unwrap();
    /// ```
    #[inline]
    #[must_use = "the reference is put at once unless the guard is kept: `let _inside = ...`, not `let _ = ...`"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter(&self) -> Option<Ref<'_, F>> {
        let origin = Origin::here();
        self.inner.core.tryget_live::<F>().then(|| Ref::new(self, origin))
    }
}
