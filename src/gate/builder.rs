//! How a gate begins.
#![forbid(unsafe_code)]

use super::Gate;
use super::inner::Inner;
use crate::percpu_ref::{Builder, OutOfMemory, PercpuRef};
use crate::rcu::{Flavor, Sched};
use std::borrow::Cow;
use std::sync::Arc;

/// Makes a [`Gate`]; from [`Gate::builder`].
///
/// # Examples
/// ```
/// use percpu_ref::{Gate, rcu::Plain};
///
/// let gate = Gate::builder().flavor(Plain).name("queue 3").build();
/// assert!(gate.enter().is_some());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder builds nothing before `build`"]
pub struct GateBuilder<F: Flavor = Sched> {
    count: Builder<F>,
}

impl GateBuilder<Sched> {
    pub(super) fn new() -> Self {
        Self { count: PercpuRef::builder().allow_reinit(true) }
    }
}

impl<F: Flavor> GateBuilder<F> {
    /// The flavour of the sections that passes are counted in; [`Sched`] unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Gate, rcu::Plain};
    ///
    /// let gate: Gate<Plain> = Gate::builder().flavor(Plain).build();
    /// ```
    pub fn flavor<G: Flavor>(self, flavor: G) -> GateBuilder<G> {
        GateBuilder { count: self.count.flavor(flavor) }
    }

    /// A name for errors, reports and `Debug`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Gate;
    ///
    /// let gate = Gate::builder().name(format!("queue {}", 3)).build();
    /// assert!(format!("{gate:?}").contains("queue 3"));
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.count = self.count.name(name);
        self
    }

    /// Makes the gate; it is open.
    ///
    /// # Panics
    /// If there is no memory for its counters; [`try_build`](Self::try_build) returns instead.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Gate;
    ///
    /// let gate = Gate::builder().build();
    /// assert!(!gate.is_frozen());
    /// ```
    pub fn build(self) -> Gate<F> {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes the gate; it is open.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is none for its counters.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Gate, OutOfMemory};
    ///
    /// fn queue() -> Result<Gate, OutOfMemory> {
    ///     Gate::builder().name("queue").try_build()
    /// }
    /// # queue().unwrap();
    /// ```
    pub fn try_build(self) -> Result<Gate<F>, OutOfMemory> {
        // As in `Builder::try_build`: there is no fallible `Arc::new` yet.
        Vec::<[Inner<F>; 2]>::new().try_reserve_exact(1).map_err(|_| OutOfMemory)?;
        Ok(Gate { inner: Arc::new(Inner::new(self.count.try_core()?)) })
    }
}
