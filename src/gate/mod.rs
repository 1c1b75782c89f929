//! Freeze and thaw: keeping everybody out for a while, and once for all.
//!
//! | file | concept |
//! |---|---|
//! | [`inner`] | the protocol: who is kept out, who is inside, who is told |
//! | [`pass`] | being inside |
//! | [`frozen`] | keeping everybody out |
//! | [`future`] | the same waits without a thread that blocks |
//! | [`builder`] | how a gate begins |
//!
//! After blk_queue_enter, blk_mq_freeze_queue and blk_mq_unfreeze_queue of Linux, block/blk-core.c and block/blk-mq.c.
#![forbid(unsafe_code)]

mod builder;
mod error;
mod frozen;
mod future;
mod inner;
mod pass;

pub use builder::GateBuilder;
pub use error::Closed;
pub use frozen::Frozen;
pub use future::{Entering, Freezing};
pub use pass::{OwnedPass, Pass};

use crate::percpu_ref::Outstanding;
use crate::percpu_ref::switch::Next;
use crate::rcu::{Flavor, Sched};
use crate::report::{Report, ReportKind};
use crate::sync::DEBUG;
use crate::track::Origin;
use inner::{Inner, go_on};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// A gate that many threads pass at the cost of a [`PercpuRef`](crate::PercpuRef), and that can be frozen and thawed.
///
/// It is for whatever is used all the time and must be changed once in a while with nobody in it: a queue whose size
/// changes, a device that is suspended, a file that is rotated, a table that is rebuilt in place. Whoever uses it
/// [enters](Self::enter) and is inside as long as he keeps his [`Pass`]. Whoever changes it [freezes](Self::freeze) the
/// gate: nobody new gets in, everybody gets out, and then he has a [`Frozen`] and the thing to himself. Dropping that
/// thaws the gate. A reader-writer lock does the same, and its readers fight for a cache line; here they touch only memory
/// of their CPU, and the writer pays with a grace period.
///
/// Freezers do not exclude each other: several may be at it at once, each with a share, and the gate thaws when the last
/// share is dropped. Those who have to be alone with each other need a lock of their own, inside the freeze.
///
/// # Waiting for oneself
///
/// - A freeze waits for every pass, also for one that the same thread or task holds: leave first. Nothing can tell whose a
///   pass is, because passes are handed on, so this hangs; [`freeze_timeout`](Self::freeze_timeout) says what is out.
/// - [`enter_wait`](Self::enter_wait) waits for the thaw, also where the same thread holds the [`Frozen`].
/// - A wait inside a read-side critical section of `F` panics, because the freeze could be waiting for the section.
///
/// # Cost
///
/// Entering is a [`tryget_live`](crate::PercpuRef::tryget_live) and leaving a [`put`](crate::PercpuRef::put), with nothing
/// added. A freeze is a kill: a grace period, a look at each CPU's cell, and the wait for those inside. A thaw is a
/// revival, and a wake-up if somebody waits. A gate takes 8 bytes for each CPU that can exist and less than 256 more.
///
/// # Callbacks and forks
///
/// Everything here may be called in callbacks of refs and of [`Flavor::call`], also what blocks: the other callbacks go
/// on. A gate itself has no callbacks. A forked child has a copy of the gate as it was: what other threads of the parent
/// held, passes and shares, stays out in the child, where nobody can give it back, and a freeze that another thread was in the
/// middle of never ends there. So a child should wait for such a gate with a limit only.
///
/// # Examples
/// ```
/// use percpu_ref::Gate;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::thread;
///
/// let gate = Gate::new();
/// let (size, done) = (AtomicUsize::new(1), AtomicUsize::new(0));
/// thread::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| {
///             while let Ok(_pass) = gate.enter_wait() {
///                 let before = size.load(Ordering::Relaxed);
///                 done.fetch_add(1, Ordering::Relaxed);
///                 assert_eq!(size.load(Ordering::Relaxed), before, "it does not change while we are inside");
///             }
///         });
///     }
///     for new in 2..50 {
///         let frozen = gate.freeze();
///         size.store(new, Ordering::Relaxed); // nobody is inside
///         drop(frozen);
///     }
///     gate.close(); // the others get an error now, and stop
/// });
/// ```
pub struct Gate<F: Flavor = Sched> {
    inner: Arc<Inner<F>>,
}

// A panic in between leaves guards that go on; there is no step of ours that it could interrupt.
impl<F: Flavor> UnwindSafe for Gate<F> {}
impl<F: Flavor> RefUnwindSafe for Gate<F> {}

impl Gate<Sched> {
    /// Makes an open gate of the [`Sched`] flavour.
    ///
    /// # Panics
    /// If there is no memory for its counters; [`GateBuilder::try_build`] returns instead.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Gate;
    /// use std::sync::LazyLock;
    ///
    /// static REQUESTS: LazyLock<Gate> = LazyLock::new(Gate::new);
    /// assert!(REQUESTS.enter().is_some());
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to describe a gate; also the way to one of another flavour.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Gate, rcu::Plain};
    ///
    /// let gate: Gate<Plain> = Gate::builder().flavor(Plain).name("queue 3").build();
    /// ```
    pub fn builder() -> GateBuilder<Sched> {
        GateBuilder::new()
    }
}

impl Default for Gate<Sched> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Flavor> Gate<F> {
    /// Enters, unless the gate is frozen or closed.
    ///
    /// # Context
    /// Any thread, destructors of thread-locals included, also inside a section. Never blocks.
    ///
    /// # Ordering
    /// Whoever gets in sees what preceded each thaw before.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// match gate.enter() {
    ///     Some(_pass) => println!("inside"),
    ///     None => println!("come back later"),
    /// }
    /// ```
    #[inline]
    #[must_use = "you have left again at once unless the pass is kept: `let _pass = ...`, not `let _ = ...`"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter(&self) -> Option<Pass<'_, F>> {
        let (inner, origin) = (&*self.inner, Origin::here());
        inner.core.tryget_live::<F>().then(|| Pass::new(inner, origin))
    }

    /// Enters, unless the gate is frozen or closed, for something that outlives the borrow of the gate. `gate` is whatever
    /// keeps it, and is cloned: a [`Shared`](crate::Shared), an `Arc`, a `&'static Gate`.
    ///
    /// Cloning a `Shared` touches no shared memory; cloning an `Arc` does.
    ///
    /// # Context
    /// As [`enter`](Self::enter).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// use std::sync::Arc;
    ///
    /// let gate = Arc::new(Gate::new());
    /// let pass = Gate::enter_owned(&gate).expect("the gate is open");
    /// std::thread::spawn(move || drop(pass)).join().unwrap();
    /// ```
    #[inline]
    #[must_use = "you have left again at once unless the pass is kept: `let _pass = ...`, not `let _ = ...`"]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter_owned<H: Deref<Target = Self> + Clone>(gate: &H) -> Option<OwnedPass<H, F>> {
        // The clone may panic: the pass leaves then.
        let pass = gate.enter()?;
        let gate = gate.clone();
        Some(OwnedPass::new(gate, pass.into_holder()))
    }

    /// Enters, after waiting for a thaw where the gate is frozen.
    ///
    /// # Context
    /// Blocks as long as the gate is frozen.
    ///
    /// # Ordering
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// If it has to wait inside a section of `F`: the freeze could be waiting for that section.
    ///
    /// # Errors
    /// [`Closed`], also if the gate is closed during the wait.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// std::thread::scope(|s| {
    ///     let frozen = gate.freeze();
    ///     let user = s.spawn(|| gate.enter_wait().is_ok());
    ///     drop(frozen);
    ///     assert!(user.join().unwrap());
    /// });
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter_wait(&self) -> Result<Pass<'_, F>, Closed> {
        let (inner, origin) = (&*self.inner, Origin::here());
        if !inner.core.tryget_live::<F>() {
            inner.enter_slowly()?;
        }
        Ok(Pass::new(inner, origin))
    }

    /// Enters, as soon as the gate is not frozen: a future for any executor.
    ///
    /// # Context
    /// Nothing happens until it is polled; polling never blocks. It may be dropped at any moment.
    ///
    /// # Errors
    /// [`Closed`], when the gate is closed.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::{Closed, Gate};
    /// async fn serve(gate: &Gate) -> Result<&'static str, Closed> {
    ///     let _pass = gate.enter_async().await?;
    ///     Ok("served")
    /// }
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn enter_async(&self) -> Entering<'_, F> {
        Entering::new(self, Origin::here())
    }

    /// Freezes the gate: keeps everybody out, and waits until nobody is inside.
    ///
    /// From the moment it is called nobody new gets in, also while it still waits. It has no precedence over other
    /// freezers, and needs none: all who wait at the same time get their [`Frozen`] together. On a closed gate it waits in
    /// the same way, and tells that everybody has left.
    ///
    /// # Context
    /// Blocks for a grace period and for everybody inside; also for a pass of this thread, which is for ever.
    ///
    /// # Ordering
    /// What everybody did inside is visible afterwards.
    ///
    /// # Panics
    /// Inside a section of `F`: it could be waiting for that section. If the count is saturated, which takes 2^60
    /// forgotten passes.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// let frozen = gate.freeze();
    /// assert!(gate.enter().is_none());
    /// drop(frozen);
    /// assert!(gate.enter().is_some());
    /// ```
    #[track_caller]
    pub fn freeze(&self) -> Frozen<'_, F> {
        self.inner.core.assert_may_wait::<Inner<F>>("freeze");
        let (next, share) = self.begin();
        if let Some(next) = next {
            self.inner.finish_here(next);
        }
        if let Err(never) = self.inner.wait_until_drained(None) {
            panic!("{never}");
        }
        share
    }

    /// Freezes the gate if everybody gets out in time; otherwise takes its share in the freeze back.
    ///
    /// Nobody new gets in meanwhile. If the time is up and no other freezer is there, the gate opens again: before this
    /// returns, or, if the last one was leaving at that very moment, when he has left.
    ///
    /// # Context
    /// Blocks, at most that long. The grace period runs in the callback thread, so that not even that makes it late.
    ///
    /// # Ordering
    /// As [`freeze`](Self::freeze).
    ///
    /// # Panics
    /// Inside a section of `F`.
    ///
    /// # Errors
    /// [`Outstanding`] says how many were still inside. Zero: the grace period had not ended, or the last one was just leaving.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// use std::time::Duration;
    ///
    /// let gate = Gate::builder().name("queue 3").build();
    /// let pass = gate.enter();
    /// let late = gate.freeze_timeout(Duration::from_millis(50)).unwrap_err();
    /// assert!(late.to_string().starts_with("ref `queue 3` still has 1 reference out"));
    /// assert!(gate.enter().is_some(), "it was called off");
    /// ```
    #[track_caller]
    pub fn freeze_timeout(&self, limit: Duration) -> Result<Frozen<'_, F>, Outstanding> {
        self.inner.core.assert_may_wait::<Inner<F>>("freeze_timeout");
        let (next, share) = self.begin();
        go_on(&self.inner, next);
        self.inner.wait_until_drained(Some(limit))?;
        Ok(share)
    }

    /// Freezes the gate if nobody is inside; otherwise changes nothing, but that nobody got in while it looked. The gate
    /// opens again as after [`freeze_timeout`](Self::freeze_timeout).
    ///
    /// # Context
    /// Blocks for a grace period: without one nobody can tell who is inside.
    ///
    /// # Ordering
    /// As [`freeze`](Self::freeze).
    ///
    /// # Panics
    /// Inside a section of `F`.
    ///
    /// # Errors
    /// [`Outstanding`] says how many were inside.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// let pass = gate.enter();
    /// assert_eq!(gate.try_freeze().unwrap_err().count(), 1);
    /// drop(pass);
    /// assert!(gate.try_freeze().is_ok());
    /// ```
    #[track_caller]
    pub fn try_freeze(&self) -> Result<Frozen<'_, F>, Outstanding> {
        self.inner.core.assert_may_wait::<Inner<F>>("try_freeze");
        let (next, share) = self.begin();
        self.inner.finish_here(next.unwrap_or(Next::Nothing));
        self.inner.look_whether_drained()?;
        Ok(share)
    }

    /// Freezes the gate without blocking: a future for any executor.
    ///
    /// It takes its share when it is first polled: nobody new gets in from then on. Dropping it gives the share back; the gate opens
    /// again as after [`freeze_timeout`](Self::freeze_timeout).
    ///
    /// # Context
    /// Nothing happens until it is polled. Polling never blocks, unless the system has no thread to give: see
    /// [`Flavor::call`]. Not to be awaited by whoever holds a pass.
    ///
    /// # Ordering
    /// As [`freeze`](Self::freeze).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// async fn resize(gate: &Gate, sizes: &std::sync::Mutex<usize>) {
    ///     let _frozen = gate.freeze_async().await;
    ///     *sizes.lock().unwrap() *= 2;
    /// }
    /// ```
    pub fn freeze_async(&self) -> Freezing<'_, F> {
        Freezing::new(self)
    }

    /// Takes a share in the freeze: what has to happen next, and what gives the share back.
    fn begin(&self) -> (Option<Next>, Frozen<'_, F>) {
        let next = self.inner.take_share();
        (next, Frozen::new(&self.inner))
    }

    /// Closes the gate for good: whoever wants to enter is refused, whoever waits to is woken and refused.
    ///
    /// Those inside stay inside; [`freeze`](Self::freeze) waits for them. A thaw opens a closed gate no more. Closing it
    /// again does nothing.
    ///
    /// # Context
    /// Any thread, inside sections and callbacks too. Never blocks, unless the system has no thread to give: see
    /// [`Flavor::call`]. Threads that do not know of it yet may still get in for a moment; when a `freeze` has returned,
    /// that is over.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::{Closed, Gate};
    /// let gate = Gate::new();
    /// let pass = gate.enter_wait().expect("the gate is open");
    /// gate.close();
    /// assert_eq!(gate.enter_wait().unwrap_err(), Closed);
    /// drop(pass);
    /// let _frozen = gate.freeze(); // everybody has left
    /// ```
    pub fn close(&self) {
        let next = self.inner.close();
        go_on(&self.inner, next);
    }

    /// Whether the gate has been closed.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// assert!(!gate.is_closed());
    /// gate.close();
    /// assert!(gate.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Whether somebody freezes the gate, or waits until it is frozen.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// let frozen = gate.freeze();
    /// assert!(gate.is_frozen());
    /// drop(frozen);
    /// assert!(!gate.is_frozen());
    /// ```
    pub fn is_frozen(&self) -> bool {
        self.inner.shares() > 0
    }

    /// Roughly how many are inside; exact if nobody enters or leaves meanwhile. For people and metrics.
    ///
    /// # Context
    /// Any thread but a signal handler. Reads every cell.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::new();
    /// let passes = [gate.enter(), gate.enter()];
    /// assert_eq!(gate.inside(), 2);
    /// # drop(passes);
    /// ```
    pub fn inside(&self) -> u64 {
        self.inner.core.references_of_users()
    }

    /// The name given to the [builder](GateBuilder::name).
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::Gate;
    /// let gate = Gate::builder().name("queue 3").build();
    /// assert_eq!(gate.name().as_deref(), Some("queue 3"));
    /// ```
    pub fn name(&self) -> Option<Cow<'static, str>> {
        self.inner.core.name()
    }
}

impl<F: Flavor> fmt::Debug for Gate<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("flavor", &F::default())
            .field("name", &self.name())
            .field("inside", &self.inside())
            .field("freezers", &self.inner.shares())
            .field("closed", &self.is_closed())
            .finish()
    }
}

impl<F: Flavor> Drop for Gate<F> {
    /// Nobody can be inside but by a pass that was forgotten: that is looked for in builds with debug assertions.
    fn drop(&mut self) {
        if DEBUG {
            match self.inside() {
                0 => {}
                n => Report::new(Some(self.inner.core.subject::<Inner<F>>()), ReportKind::DroppedWithReferences(n))
                    .send(),
            }
        }
    }
}
