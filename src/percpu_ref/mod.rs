//! The reference counter: its public face.
//!
//! | file | concept |
//! |---|---|
//! | [`state`] | the shared word, as arithmetic |
//! | [`count`] | the count: get, put, tryget, release |
//! | [`switch`] | kill, confirm, switches, revival |
//! | [`builder`] | how a ref begins |
//! | [`guard`] | a reference that puts itself |
//! | [`error`] | what can be wrong with a call |
//!
//! After lib/percpu-refcount.c of Linux.
#![forbid(unsafe_code)]

mod builder;
pub(crate) mod count;
mod error;
mod guard;
mod state;
pub(crate) mod switch;

pub use builder::{Builder, Start};
pub use error::{AlreadyDying, NotReinitable, OutOfMemory, Outstanding, ReviveError};
pub use guard::Ref;

use crate::rcu::{Flavor, Sched};
use crate::report::{Report, ReportKind};
use crate::sync::DEBUG;
use crate::track::Origin;
use count::{Core, Host, flag};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Where a ref counts.
///
/// # Examples
/// ```
/// use percpu_ref::{Mode, PercpuRef};
///
/// let r = PercpuRef::new(|| {});
/// assert_eq!(r.mode(), Mode::Percpu);
/// r.kill_sync().unwrap();
/// assert_eq!(r.mode(), Mode::Atomic);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In a cell of the CPU, or thread, that counts.
    Percpu,
    /// In one atomic word.
    Atomic,
}

/// A reference counter that many threads use at once and that can be torn down without a race.
///
/// It is born with one reference, the *first* one, which belongs to whoever kills it. Others take references
/// ([`get`](Self::get), [`tryget`](Self::tryget), [`tryget_live`](Self::tryget_live), [`enter`](Self::enter)) and drop
/// them ([`put`](Self::put)). A [`kill`](Self::kill) waits for one grace period of the flavour `F`, folds all counters
/// into one atomic, runs `confirm` (from its beginning on nobody gets in with `tryget_live`), and drops the first
/// reference. When the last reference is gone, `release` runs, once.
///
/// # Cost
///
/// Before a kill, on the `Rseq` backend: a get or a put is one test and one restartable sequence of six instructions;
/// it writes to a line of this CPU and to one of this thread, and has no locked instruction. In a flavour that counts in
/// sections: a section, and a load, an addition and a store in it. After a kill or
/// [`switch_to_atomic`](Self::switch_to_atomic): one atomic read-modify-write on a shared line.
///
/// A ref takes 8 bytes for each CPU that can exist and less than 96 more.
///
/// # Promises
///
/// 1. No `tryget_live` that starts after `confirm` has begun succeeds, on any thread and whatever the mode was, until
///    [`resurrect`](Self::resurrect) or [`reinit`](Self::reinit).
/// 2. `confirm` runs once and before `release`; `release` runs once for each life.
/// 3. User code runs under no lock and in no section of this library. `confirm` and `release` may call anything that does
///    not wait for this ref, and may drop what holds it.
/// 4. A second `kill` is an error. A surplus `put`, and a `get` after the release, are caught in every build as soon as
///    the count gives them away: the ref then *saturates*, [reports](crate::set_report_hook) it once with its name, and
///    never reaches zero or releases (again). A surplus put that somebody else's reference hides is found at that one's
///    put.
/// 5. When [`wait_zero`](Self::wait_zero) returns, `release` has returned.
/// 6. No get or put holds a switch up for longer than it takes itself.
/// 7. A ref may be dropped at any moment. A live one that is dropped does not release; a dying one still confirms and
///    releases.
///
/// # Examples
/// ```
/// use percpu_ref::PercpuRef;
/// use std::thread;
///
/// let table = PercpuRef::new(|| println!("nobody uses the table: it can be freed"));
/// thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| {
///             while let Some(_inside) = table.enter() {
///                 // use the table
///             }
///         });
///     }
///     table.kill_and_confirm(|| println!("nobody gets in any more")).unwrap();
/// });
/// table.wait_zero();
/// ```
#[must_use = "a ref that is dropped alive never releases"]
pub struct PercpuRef<F: Flavor = Sched> {
    inner: Arc<Inner<F>>,
}

/// What a ref allocates; switches under way keep it alive too.
#[repr(C)]
struct Inner<F> {
    core: Core,
    release: Box<dyn Fn() + Send + Sync>,
    flavor: PhantomData<F>,
}

impl<F: Flavor> Host for Inner<F> {
    type Flavor = F;
    const WHAT: &'static str = "a ref";

    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }

    fn release(&self) {
        (self.release)();
    }
}

// What a panic can interrupt is the program's closure, never a step of ours.
impl<F: Flavor> UnwindSafe for PercpuRef<F> {}
impl<F: Flavor> RefUnwindSafe for PercpuRef<F> {}

impl PercpuRef<Sched> {
    /// Makes a ref of the [`Sched`] flavour, alive and counting per CPU. `release` runs when the last reference is gone.
    ///
    /// # Panics
    /// If there is no memory for its counters; [`Builder::try_build`] returns instead.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| println!("released"));
    /// r.kill_sync().unwrap();
    /// r.wait_zero();
    /// ```
    pub fn new(release: impl Fn() + Send + Sync + 'static) -> Self {
        Self::builder().build(release)
    }

    /// Starts to describe a ref; also the way to one of another flavour.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{PercpuRef, rcu::Plain};
    ///
    /// let r = PercpuRef::builder().flavor(Plain).name("plain").build(|| {});
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn builder() -> Builder<Sched> {
        Builder::new()
    }
}

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
    #[must_use = "the reference is put at once unless the guard is kept"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter(&self) -> Option<Ref<'_, F>> {
        let origin = Origin::here();
        self.inner.core.tryget_live::<F>().then(|| Ref::new(self, origin))
    }

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
    pub fn kill_sync(&self) -> Result<(), AlreadyDying> {
        switch::kill_sync(&*self.inner)
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
    /// [`NotReinitable`] if the ref was not built with [`allow_reinit`](Builder::allow_reinit).
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

    /// Whether the ref has been killed.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// assert!(!r.is_dying());
    /// r.kill().unwrap();
    /// assert!(r.is_dying());
    /// ```
    pub fn is_dying(&self) -> bool {
        self.inner.core.is_dying()
    }

    /// Whether no reference is left. False while the ref counts per CPU.
    ///
    /// This is only a look at the count: `release` may not have run yet. Whoever frees what `release` uses has to
    /// [`wait_zero`](Self::wait_zero).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.kill_sync().unwrap();
    /// assert!(r.is_zero());
    /// ```
    pub fn is_zero(&self) -> bool {
        self.inner.core.is_zero()
    }

    /// Where the ref counts now.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::{Mode, PercpuRef};
    /// let r = PercpuRef::new(|| {});
    /// assert_eq!(r.mode(), Mode::Percpu);
    /// r.kill_sync().unwrap();
    /// assert_eq!(r.mode(), Mode::Atomic);
    /// ```
    pub fn mode(&self) -> Mode {
        if self.inner.core.cells.is_open() { Mode::Percpu } else { Mode::Atomic }
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
    pub fn wait_zero_timeout(&self, d: Duration) -> Result<(), Outstanding> {
        self.inner.core.wait_zero::<Inner<F>>(Some(d))
    }

    /// Roughly how many references are out, the first one included; exact in atomic mode, and whenever nobody counts
    /// meanwhile. For people and metrics: while the ref counts per CPU, the sum can miss a get and see its put.
    /// `i64::MAX` if the ref is saturated.
    ///
    /// # Context
    /// Any thread but a signal handler. Reads every cell.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::new(|| {});
    /// r.get_many(2);
    /// assert_eq!(r.estimate(), 3);
    /// # r.put_many(2);
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn estimate(&self) -> i64 {
        self.inner.core.estimate()
    }

    /// What is out now: the name, as many references as [`estimate`](Self::estimate) tells and, with the feature `track`,
    /// [who holds them](Outstanding::holders).
    ///
    /// # Context
    /// As [`estimate`](Self::estimate).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::builder().name("sessions").build(|| {});
    /// r.get();
    /// println!("{}", r.outstanding()); // ref `sessions` has not been killed; 1 reference is out besides its first
    /// assert_eq!(r.outstanding().count(), 2, "ours and the first one");
    /// # r.put();
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn outstanding(&self) -> Outstanding {
        self.inner.core.outstanding::<Inner<F>>()
    }

    /// The name given to the [builder](Builder::name).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::PercpuRef;
    /// let r = PercpuRef::builder().name("table 7").build(|| {});
    /// assert_eq!(r.name().as_deref(), Some("table 7"));
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn name(&self) -> Option<Cow<'static, str>> {
        self.inner.core.name()
    }
}

impl<F: Flavor> fmt::Debug for PercpuRef<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.inner.core;
        let mut out = f.debug_struct("PercpuRef");
        out.field("flavor", &F::default()).field("name", &core.name()).field("mode", &self.mode());
        if core.is_saturated() {
            out.field("count", &format_args!("saturated"));
        } else {
            out.field("count", &self.estimate());
        }
        out.field("dying", &self.is_dying());
        let out_now = core.holders.list();
        if !out_now.holders().is_empty() {
            out.field("holders", &out_now.holders());
        }
        out.finish()
    }
}

impl<F: Flavor> Drop for PercpuRef<F> {
    fn drop(&mut self) {
        if !DEBUG {
            return;
        }
        let core = &self.inner.core;
        let busy = core.flags().load(crate::sync::Ordering::Relaxed) & flag::BUSY != 0;
        let kind = if busy {
            ReportKind::DroppedInSwitch
        } else {
            match core.references_of_users() {
                0 => return,
                n => ReportKind::DroppedWithReferences(n),
            }
        };
        Report::new(Some(core.subject::<Inner<F>>()), kind).send();
    }
}
