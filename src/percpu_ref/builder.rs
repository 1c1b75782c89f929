//! How a ref begins.
#![forbid(unsafe_code)]

use super::count::{Cold, Core, flag, kind_for};
use super::state::{BIAS, DEAD, FIRST};
use super::{Inner, OutOfMemory, PercpuRef};
use crate::percpu::Cells;
use crate::rcu::{Flavor, Sched, check_what_is_asked_for};
use crate::sync::{AtomicU8, AtomicU64, Event, Packed};
use crate::track::Holders;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

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

/// The state that a ref starts in.
///
/// # Examples
/// ```
/// use percpu_ref::{Mode, PercpuRef, Start};
///
/// let young = PercpuRef::builder().start(Start::Atomic).build(|| {});
/// assert_eq!(young.mode(), Mode::Atomic);
/// young.switch_to_percpu().unwrap(); // it has lived long enough
/// assert_eq!(young.mode(), Mode::Percpu);
/// # young.kill_sync().unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// Alive, counting per CPU, with the first reference.
    #[default]
    Percpu,
    /// Alive, counting in one atomic, with the first reference; per CPU after
    /// [`switch_to_percpu`](PercpuRef::switch_to_percpu). For objects of which most die young: killing one needs no grace
    /// period.
    Atomic,
    /// Killed and released, with no reference; alive after [`reinit`](PercpuRef::reinit). For gates that start shut.
    Dead,
}

/// Makes a [`PercpuRef`]; from [`PercpuRef::builder`].
///
/// # Examples
/// ```
/// use percpu_ref::rcu::Plain;
/// use percpu_ref::{PercpuRef, Start};
///
/// let gate: PercpuRef<Plain> = PercpuRef::builder()
///     .flavor(Plain)
///     .start(Start::Dead)
///     .name("gate")
///     .build(|| println!("everybody is out"));
/// assert!(gate.enter().is_none());
/// gate.reinit().unwrap();
/// assert!(gate.enter().is_some());
/// # gate.kill_sync().unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder builds nothing before `build`"]
pub struct Builder<F: Flavor = Sched> {
    flavor: PhantomData<F>,
    start: Start,
    allow_reinit: bool,
    name: Option<Cow<'static, str>>,
}

impl Builder<Sched> {
    pub(super) fn new() -> Self {
        Self { flavor: PhantomData, start: Start::Percpu, allow_reinit: false, name: None }
    }
}

impl<F: Flavor> Builder<F> {
    /// The flavour of the sections that the count is touched in; [`Sched`] unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{PercpuRef, rcu::Plain};
    ///
    /// let r: PercpuRef<Plain> = PercpuRef::builder().flavor(Plain).build(|| {});
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn flavor<G: Flavor>(self, _flavor: G) -> Builder<G> {
        Builder { flavor: PhantomData, start: self.start, allow_reinit: self.allow_reinit, name: self.name }
    }

    /// The state to start in; [`Start::Percpu`] unless told otherwise. The other two imply
    /// [`allow_reinit`](Self::allow_reinit).
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Mode, PercpuRef, Start};
    ///
    /// let r = PercpuRef::builder().start(Start::Atomic).build(|| {});
    /// assert_eq!(r.mode(), Mode::Atomic);
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Whether the ref may go back to per-CPU mode and have another life. If not, its counters are given up at the first
    /// switch to atomic mode.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::builder().allow_reinit(true).build(|| {});
    /// r.kill_sync().unwrap();
    /// r.reinit().unwrap();
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn allow_reinit(mut self, allow: bool) -> Self {
        self.allow_reinit = allow;
        self
    }

    /// A name for reports, errors and `Debug`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::builder().name(format!("connection {}", 7)).build(|| {});
    /// assert!(format!("{r:?}").contains("connection 7"));
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the ref. `release` runs once for each life, when the last reference is gone.
    ///
    /// # Panics
    /// If there is no memory for its counters; [`try_build`](Self::try_build) returns instead.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::builder().build(|| println!("released"));
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn build(self, release: impl Fn() + Send + Sync + 'static) -> PercpuRef<F> {
        self.try_build(release).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes the ref. `release` runs once for each life, when the last reference is gone.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is none for its counters.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{OutOfMemory, PercpuRef};
    ///
    /// fn admit() -> Result<PercpuRef, OutOfMemory> {
    ///     PercpuRef::builder().try_build(|| println!("released"))
    /// }
    /// # admit().unwrap().kill_sync().unwrap();
    /// ```
    pub fn try_build(self, release: impl Fn() + Send + Sync + 'static) -> Result<PercpuRef<F>, OutOfMemory> {
        let core = self.try_core()?;
        // The standard library has no fallible `Arc::new` yet: see whether there is room for one. It has to be a room of that
        // size, two counts included, because allocators keep what is freed apart by size. Boxing `release`, and a name, is
        // left to the program's handler of allocation failures, as everywhere in Rust.
        let size = size_of::<[usize; 2]>() + size_of::<Inner<F>>();
        Vec::<u8>::new().try_reserve_exact(size).map_err(|_| OutOfMemory)?;
        Ok(PercpuRef { inner: Arc::new(Inner { core, release: Box::new(release), flavor: PhantomData }) })
    }

    /// The count in the state asked for.
    pub(crate) fn try_core(self) -> Result<Core, OutOfMemory> {
        check_what_is_asked_for();
        let (word, flags) = match self.start {
            Start::Percpu => (BIAS | FIRST, 0),
            Start::Atomic => (FIRST, flag::STICKY | flag::ALLOW_REINIT),
            Start::Dead => (DEAD, flag::ALLOW_REINIT | flag::RELEASING | flag::RELEASED),
        };
        let flags = flags | if self.allow_reinit { flag::ALLOW_REINIT } else { 0 };
        let cells = Cells::try_new(kind_for::<F>(), AtomicU8::new(flags)).map_err(|_| OutOfMemory)?;
        if self.start == Start::Percpu {
            cells.open();
        }
        let cold = self.name.map(|name| Box::new(Cold { name: Some(name), confirms: Vec::new() }));
        let slow = Packed::new(cold, Event::default());
        Ok(Core { cells, shared: AtomicU64::new(word), slow, holders: Holders::default() })
    }
}
