//! Being inside.
#![forbid(unsafe_code)]

use super::Gate;
use super::inner::Inner;
use crate::percpu_ref::count;
use crate::rcu::{Flavor, Sched};
use crate::track::{Holder, HolderKind, Origin};
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Being inside a [`Gate`]: until it is dropped, no freeze is complete.
///
/// It may be dropped on another thread than the one that entered, and in a panic. Cloning it lets somebody in through
/// whoever is inside already; that works during a freeze too, which then waits for both. A forgotten pass (`mem::forget`)
/// never leaves: every later [`freeze`](Gate::freeze) waits for ever, and [`freeze_timeout`](Gate::freeze_timeout) says
/// what is out.
///
/// # Context
/// Dropping one never blocks. It is a put, and where the last one inside has gone during a freeze, the freezers are
/// woken. Not in a signal handler.
///
/// # Ordering
/// What precedes the drop of each pass is visible to whoever gets a [`Frozen`](super::Frozen) then.
///
/// # Examples
/// ```
/// use percpu_ref::{Gate, Pass};
///
/// let gate = Gate::new();
/// let pass: Pass<'_> = gate.enter().expect("the gate is open");
/// let colleague = pass.clone();
/// drop(pass);
/// assert!(gate.try_freeze().is_err());
/// drop(colleague);
/// assert!(gate.try_freeze().is_ok());
/// ```
#[must_use = "dropping it at once is entering and leaving"]
pub struct Pass<'a, F: Flavor = Sched> {
    inside: &'a Inner<F>,
    holder: Holder,
}

// What a panic interrupts is what the program does inside, never a step of ours.
impl<F: Flavor> UnwindSafe for Pass<'_, F> {}
impl<F: Flavor> RefUnwindSafe for Pass<'_, F> {}

impl<'a, F: Flavor> Pass<'a, F> {
    /// For a reference that the caller has taken.
    #[inline(always)]
    pub(super) fn new(inside: &'a Inner<F>, origin: Origin) -> Self {
        Self { inside, holder: inside.core.holders.hold(HolderKind::Pass, origin) }
    }

    /// Takes the reference out, for a guard of another kind.
    #[inline(always)]
    pub(super) fn into_holder(self) -> Holder {
        let holder = self.holder;
        std::mem::forget(self);
        holder
    }
}

impl<F: Flavor> Clone for Pass<'_, F> {
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    fn clone(&self) -> Self {
        self.inside.core.get::<F>();
        Self::new(self.inside, Origin::here())
    }
}

impl<F: Flavor> Drop for Pass<'_, F> {
    #[inline]
    fn drop(&mut self) {
        leave(self.inside, self.holder);
    }
}

/// Drops a reference: a put.
#[inline(always)]
fn leave<F: Flavor>(inside: &Inner<F>, holder: Holder) {
    inside.core.holders.let_go(holder);
    if !inside.core.put_in_cell() {
        leave_slowly(inside);
    }
}

/// In one piece, so that the way above has nothing to keep for it.
#[cold]
#[inline(never)]
fn leave_slowly<F: Flavor>(inside: &Inner<F>) {
    if count::put_elsewhere(inside) {
        inside.drained();
    }
}

impl<F: Flavor> fmt::Debug for Pass<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("gate", &self.inside.core.name()).finish_non_exhaustive()
    }
}

/// A [`Pass`] that keeps its gate, for what outlives the borrow of one: a task that is spawned, a request in a queue. From
/// [`Gate::enter_owned`].
///
/// # Examples
/// ```
/// use percpu_ref::{Gate, OwnedPass, Owner, Shared};
///
/// let gate = Owner::new(Gate::new());
/// let handle = Owner::share(&gate);
/// let request: OwnedPass<Shared<Gate>> = Gate::enter_owned(&handle).expect("the gate is open");
/// let worker = std::thread::spawn(move || drop(request));
/// let frozen = gate.freeze(); // the request is done
/// # worker.join().unwrap();
/// ```
#[must_use = "dropping it at once is entering and leaving"]
pub struct OwnedPass<H: Deref<Target = Gate<F>>, F: Flavor = Sched> {
    gate: H,
    holder: Holder,
}

impl<H: Deref<Target = Gate<F>>, F: Flavor> UnwindSafe for OwnedPass<H, F> {}
impl<H: Deref<Target = Gate<F>>, F: Flavor> RefUnwindSafe for OwnedPass<H, F> {}

impl<H: Deref<Target = Gate<F>>, F: Flavor> OwnedPass<H, F> {
    /// For a reference that the caller has taken on that very gate.
    #[inline(always)]
    pub(super) fn new(gate: H, holder: Holder) -> Self {
        Self { gate, holder }
    }

    /// The gate that this is inside of.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Gate;
    /// use std::sync::Arc;
    ///
    /// let gate = Arc::new(Gate::builder().name("queue 3").build());
    /// let pass = Gate::enter_owned(&gate).expect("the gate is open");
    /// assert_eq!(pass.gate().name().as_deref(), Some("queue 3"));
    /// ```
    pub fn gate(&self) -> &Gate<F> {
        &self.gate
    }
}

impl<H: Deref<Target = Gate<F>>, F: Flavor> Drop for OwnedPass<H, F> {
    #[inline]
    fn drop(&mut self) {
        leave(&self.gate.inner, self.holder);
    }
}

impl<H: Deref<Target = Gate<F>>, F: Flavor> fmt::Debug for OwnedPass<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPass").field("gate", &self.gate.name()).finish_non_exhaustive()
    }
}
