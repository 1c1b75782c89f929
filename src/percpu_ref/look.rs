//! What a ref tells of itself.
#![forbid(unsafe_code)]

use super::{Inner, Mode, Outstanding, PercpuRef};
use crate::rcu::Flavor;
use std::borrow::Cow;
use std::fmt;

impl<F: Flavor> PercpuRef<F> {
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

    /// The name given to the [builder](crate::Builder::name).
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
