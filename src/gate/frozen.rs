//! Keeping everybody out for a while.
#![forbid(unsafe_code)]

use super::inner::Inner;
use crate::rcu::{Flavor, Sched};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A share in the freeze of a [`Gate`](super::Gate): nobody is inside, and nobody gets in, until the last share is
/// dropped.
///
/// It may be dropped on another thread, and in a panic: the gate thaws then, too. A forgotten one (`mem::forget`) keeps
/// the gate frozen for good.
///
/// # Context
/// Dropping one never blocks. Where it is the last share, those who wait are woken. Not in a signal handler.
///
/// # Ordering
/// What precedes the drop of each share is visible to whoever gets in afterwards.
///
/// # Examples
/// ```
/// use percpu_ref::{Frozen, Gate};
///
/// let gate = Gate::new();
/// let mine: Frozen<'_> = gate.freeze();
/// let other = gate.freeze();
/// drop(mine);
/// assert!(gate.enter().is_none());
/// drop(other);
/// assert!(gate.enter().is_some());
/// ```
#[doc(alias = "thaw")]
#[must_use = "the gate thaws at once unless this is kept: `let _frozen = ...`, not `let _ = ...`"]
pub struct Frozen<'a, F: Flavor = Sched> {
    of: &'a Inner<F>,
}

// Dropping one in a panic thaws, as it does otherwise.
impl<F: Flavor> UnwindSafe for Frozen<'_, F> {}
impl<F: Flavor> RefUnwindSafe for Frozen<'_, F> {}

impl<'a, F: Flavor> Frozen<'a, F> {
    /// For a share that the caller has taken. Nobody else is to see it before the gate is drained.
    pub(super) fn new(of: &'a Inner<F>) -> Self {
        Self { of }
    }
}

impl<F: Flavor> Drop for Frozen<'_, F> {
    fn drop(&mut self) {
        self.of.give_back();
    }
}

impl<F: Flavor> fmt::Debug for Frozen<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("gate", &self.of.core.name()).finish_non_exhaustive()
    }
}
