//! How the life of a ref ends, and how another begins.
#![forbid(unsafe_code)]

use super::{AlreadyDying, Inner, NotReinitable, Outstanding, PercpuRef, ReviveError, switch};
use crate::rcu::Flavor;
use std::time::Duration;

impl<F: Flavor> PercpuRef<F> {
    /// Kills the ref: nobody new gets in soon, and when everybody is out, `release` runs.
    ///
    /// The rest happens in the callback thread: a grace period, then the first reference is dropped. When this returns,
    /// other threads may still get in for a moment; [`kill_and_confirm`](Self::kill_and_confirm) tells when that is
    /// over, [`kill_sync`](Self::kill_sync) waits for it.
    ///
    /// # Context
    /// Any thread, inside sections and callbacks too. Never blocks and runs no callback here, unless the system has no
    /// thread to give: see [`Flavor::call`].
    ///
    /// # Errors
    /// [`AlreadyDying`] if somebody was first; then nothing happened.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::{AlreadyDying, PercpuRef};
    /// let r = PercpuRef::new(|| println!("released"));
    /// assert_eq!(r.kill(), Ok(()));
    /// assert_eq!(r.kill(), Err(AlreadyDying));
    /// r.wait_zero();
    /// ```
    pub fn kill(&self) -> Result<(), AlreadyDying> {
        switch::kill(&self.inner, None)
    }

    /// Kills the ref, and runs `confirm` when every thread knows: no [`tryget_live`](Self::tryget_live) that starts after
    /// `confirm` has begun succeeds.
    ///
    /// `confirm` runs once, in the callback thread, before the first reference is dropped and so before `release`. It
    /// may use this ref, even [`resurrect`](Self::resurrect) it, but not wait for it.
    ///
    /// # Context
    /// As [`kill`](Self::kill).
    ///
    /// # Errors
    /// [`AlreadyDying`] if somebody was first; `confirm` is dropped then.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// use std::sync::mpsc;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let (tell, told) = mpsc::channel();
    /// r.kill_and_confirm(move || tell.send("no new users").unwrap()).unwrap();
    /// assert_eq!(told.recv(), Ok("no new users"));
    /// ```
    pub fn kill_and_confirm(&self, confirm: impl FnOnce() + Send + 'static) -> Result<(), AlreadyDying> {
        switch::kill(&self.inner, Some(Box::new(confirm)))
    }

    /// Kills the ref and waits until every thread knows and the first reference has been dropped.
    ///
    /// Everything happens in this thread, `release` included if nobody holds a reference; the callback thread is not
    /// needed. But if another switch of the ref is under way, whoever finishes that does it, and `release` may run a little
    /// later: [`wait_zero`](Self::wait_zero) tells.
    ///
    /// # Context
    /// Blocks for a grace period.
    ///
    /// # Panics
    /// Inside a section of `F`, and inside a callback of this ref: it would wait for itself.
    ///
    /// # Errors
    /// [`AlreadyDying`] if somebody was first.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.kill_sync().unwrap();
    /// assert!(r.is_zero() && r.enter().is_none());
    /// ```
    #[track_caller]
    pub fn kill_sync(&self) -> Result<(), AlreadyDying> {
        switch::kill_sync(&*self.inner)
    }

    /// Blocks until `release` has returned: the caller may then free what it uses. It does not kill: on a live ref it
    /// waits until somebody does.
    ///
    /// # Context
    /// Blocks. A callback may wait for another ref: the other callbacks go on.
    ///
    /// # Ordering
    /// What `release` did, and what precedes each put, is visible afterwards.
    ///
    /// # Panics
    /// Inside a section of `F`, and inside a callback of this ref: it would wait for itself. If the ref is saturated:
    /// it will never be released.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| println!("released"));
    /// r.kill().unwrap();
    /// r.wait_zero();
    /// ```
    #[track_caller]
    pub fn wait_zero(&self) {
        if let Err(never) = self.inner.core.wait_zero::<Inner<F>>(None) {
            panic!("{never}");
        }
    }

    /// Blocks until `release` has returned, or until the time is up.
    ///
    /// # Context
    /// As [`wait_zero`](Self::wait_zero).
    ///
    /// # Panics
    /// Inside a section of `F`, and inside a callback of this ref.
    ///
    /// # Errors
    /// [`Outstanding`]: how many references are out, of which ref. At once if the ref is saturated.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// use std::time::Duration;
    ///
    /// let r = PercpuRef::builder().name("cache").build(|| {});
    /// r.get();
    /// r.kill_sync().unwrap();
    /// let out = r.wait_zero_timeout(Duration::from_millis(10)).unwrap_err();
    /// assert!(out.to_string().starts_with("ref `cache` still has 1 reference out"));
    /// r.put();
    /// ```
    #[track_caller]
    pub fn wait_zero_timeout(&self, d: Duration) -> Result<(), Outstanding> {
        self.inner.core.wait_zero::<Inner<F>>(Some(d))
    }

    /// Has the ref count in one atomic from now on, dead or alive, and runs `confirm` when every thread does. It stays
    /// so until [`switch_to_percpu`](Self::switch_to_percpu).
    ///
    /// # Context
    /// As [`kill`](Self::kill).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// use std::sync::mpsc;
    ///
    /// let r = PercpuRef::builder().allow_reinit(true).build(|| {});
    /// let (tell, told) = mpsc::channel();
    /// r.switch_to_atomic(move || tell.send(()).unwrap());
    /// told.recv().unwrap();
    /// assert_eq!(r.estimate(), 1); // exact, for the time being
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn switch_to_atomic(&self, confirm: impl FnOnce() + Send + 'static) {
        switch::switch_to_atomic(&self.inner, Box::new(confirm));
    }

    /// Has the ref count in one atomic, and waits until every thread does: from then on, until somebody switches back,
    /// the count is exact.
    ///
    /// # Context
    /// Blocks for a grace period.
    ///
    /// # Panics
    /// As [`kill_sync`](Self::kill_sync).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::builder().allow_reinit(true).build(|| {});
    /// r.get_many(2);
    /// r.switch_to_atomic_sync();
    /// assert_eq!(r.estimate(), 3, "ours and the first one");
    /// r.put_many(2);
    /// r.switch_to_percpu().unwrap();
    /// # r.kill_sync().unwrap();
    /// ```
    #[track_caller]
    pub fn switch_to_atomic_sync(&self) {
        switch::switch_to_atomic_sync(&*self.inner);
    }

    /// Lets the ref count per CPU again. A switch to atomic mode that is under way is finished first, by whoever does
    /// it; for a dying ref, it takes effect with its next life.
    ///
    /// # Context
    /// Any thread. Never blocks for long.
    ///
    /// # Errors
    /// [`NotReinitable`] if the ref was not built with [`allow_reinit`](crate::Builder::allow_reinit).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::{Mode, PercpuRef, Start};
    /// let r = PercpuRef::builder().start(Start::Atomic).build(|| {});
    /// r.switch_to_percpu().unwrap();
    /// assert_eq!(r.mode(), Mode::Percpu);
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn switch_to_percpu(&self) -> Result<(), NotReinitable> {
        self.inner.core.switch_to_percpu::<F>()
    }

    /// Takes a kill back, if the last reference is not gone: the ref is alive again, with its first reference.
    ///
    /// A kill that is under way is waited for, its `confirm` included; in that very `confirm`, it is cut short instead.
    ///
    /// # Context
    /// May block for a grace period, and for other callbacks of this ref.
    ///
    /// # Panics
    /// Inside a section of `F`, if the ref is dying and may be revived.
    ///
    /// # Errors
    /// [`ReviveError::NotDying`], [`NotReinitable`](ReviveError::NotReinitable), [`Released`](ReviveError::Released).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::builder().allow_reinit(true).build(|| {});
    /// r.get();
    /// r.kill().unwrap();
    /// r.resurrect().unwrap(); // a reload was called off
    /// assert!(r.enter().is_some());
    /// r.put();
    /// # r.kill_sync().unwrap();
    /// ```
    #[track_caller]
    pub fn resurrect(&self) -> Result<(), ReviveError> {
        self.inner.core.resurrect::<Inner<F>>()
    }

    /// Begins a new life after `release` has returned: alive, with a first reference.
    ///
    /// # Context
    /// Any thread, the own `release` not (it has not returned). Never blocks for long.
    ///
    /// # Errors
    /// [`ReviveError::NotDying`], [`NotReinitable`](ReviveError::NotReinitable),
    /// [`StillReferenced`](ReviveError::StillReferenced) (also while `release` runs).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::builder().allow_reinit(true).build(|| println!("drained"));
    /// r.kill().unwrap();
    /// r.wait_zero();
    /// r.reinit().unwrap();
    /// assert!(r.enter().is_some());
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn reinit(&self) -> Result<(), ReviveError> {
        self.inner.core.reinit::<F>()
    }
}
