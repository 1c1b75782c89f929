//! A value that is replaced while it is read.
//!
//! A configuration, a route table: read by everybody all the time, replaced as a whole now and then. A lock around an
//! `Arc` makes all readers write to two shared lines. Here a reader either looks at the value inside a section, which
//! touches nothing that is shared, or takes a reference on it, counted per CPU.
//!
//! After rcu_assign_pointer and rcu_dereference of Linux, and the arc-swap crate.
#![forbid(unsafe_code)]

use super::block::Root;
use super::slot::{Replaced, Slot};
use super::{Drain, Shared};
use crate::rcu::{Flavor, Sched};
use crate::track::Origin;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A value that many threads read and some replace.
///
/// Readers never wait. [`load`](Self::load) takes a handle that can be kept; [`read`](Self::read) looks at the value
/// within a section and costs least. Writers do not wait either: a value that has been replaced goes when its last holder
/// does, and [`swap`](Self::swap) gives it back then.
///
/// A handle from `load` counts as any other: a replaced value is *killed*, so a [`Weak`](crate::Weak) of it no longer upgrades.
///
/// # Cost
///
/// `load`, on the `Rseq` backend: one restartable sequence, which loads the pointer and counts. `read`: a section
/// and a load. A replacement: an allocation, an exchange, and, in the callback thread, a grace period or two that
/// replacements at the same time share.
///
/// # Examples
/// ```
/// use percpu_ref::{RcuCell, Shared};
/// use std::thread;
///
/// struct Config {
///     workers: usize,
/// }
///
/// let config = RcuCell::new(Config { workers: 2 });
/// thread::scope(|s| {
///     s.spawn(|| assert!(config.read(|c| c.workers) >= 2));
///     s.spawn(|| config.store(Config { workers: 4 }));
/// });
/// let now: Shared<Config> = config.load();
/// assert_eq!(now.workers, 4);
/// ```
///
/// Readers share it, so its value has to allow that:
/// ```
/// fn shared<T: Sync>() {}
/// shared::<percpu_ref::RcuCell<String>>();
/// ```
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<percpu_ref::RcuCell<std::cell::Cell<u8>>>();
/// ```
pub struct RcuCell<T: Send + Sync + 'static, F: Flavor = Sched> {
    slot: Slot<T, F>,
}

// As for `Shared`.
impl<T: Send + Sync + 'static, F: Flavor> UnwindSafe for RcuCell<T, F> {}
impl<T: Send + Sync + 'static, F: Flavor> RefUnwindSafe for RcuCell<T, F> {}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell with this value, of the [`Sched`] flavour.
    ///
    /// # Panics
    /// If there is no memory for the counters; so does everything that puts a value into a cell.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    /// use std::sync::LazyLock;
    ///
    /// static GREETING: LazyLock<RcuCell<String>> = LazyLock::new(|| RcuCell::new("hello".into()));
    /// assert_eq!(*GREETING.load(), "hello");
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn new(value: T) -> Self {
        Self::with_flavor(value, Sched)
    }
}

impl<T: Send + Sync + 'static, F: Flavor> RcuCell<T, F> {
    /// A cell with this value, read in sections of the given flavour.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{RcuCell, rcu::Plain};
    ///
    /// let cell: RcuCell<u8, Plain> = RcuCell::with_flavor(1, Plain);
    /// assert_eq!(*cell.load(), 1);
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn with_flavor(value: T, _flavor: F) -> Self {
        Self { slot: Slot::new(Root::new(value, Origin::here())) }
    }

    /// A handle on the value of now.
    ///
    /// # Context
    /// Any thread, destructors of thread-locals included; not a signal handler. Never blocks.
    ///
    /// # Ordering
    /// What preceded the store of the value is visible. Loads on one thread never go back.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(vec![1]);
    /// let old = cell.load();
    /// cell.store(vec![1, 2]);
    /// assert_eq!((old.len(), cell.load().len()), (1, 2));
    /// ```
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn load(&self) -> Shared<T, F> {
        Shared { strong: self.slot.load(Origin::here()) }
    }

    /// Runs `f` on the value of now, inside a read-side critical section of `F`.
    ///
    /// # Context
    /// Any thread; not a signal handler. Never blocks. While `f` runs, nothing that was replaced meanwhile goes, so it
    /// should be short; whoever needs the value for longer [loads](Self::load) it. `f` may use this cell, but not
    /// wait for anything of the flavour.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(vec![1, 2, 3]);
    /// assert_eq!(cell.read(|v| v.iter().sum::<i32>()), 6);
    /// ```
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        self.slot.read(f)
    }

    /// Replaces the value. The old one is dropped by its last holder.
    ///
    /// # Context
    /// Any thread, inside sections and callbacks too. Does not wait for readers, and drops nothing here, unless the system
    /// has no thread to give: see [`Flavor::call`].
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(1);
    /// cell.store(2);
    /// assert_eq!(*cell.load(), 2);
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn store(&self, new: T) {
        drop(self.slot.swap(Root::new(new, Origin::here())));
    }

    /// Replaces the value, and gives the old one back once nobody else holds it.
    ///
    /// # Context
    /// As [`store`](Self::store); the [`Drain`] is what is waited for.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(String::from("old"));
    /// let old: String = cell.swap("new".into()).wait();
    /// assert_eq!(old, "old");
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn swap(&self, new: T) -> Drain<T> {
        Self::drain(self.slot.swap(Root::new(new, Origin::here())))
    }

    fn drain(old: Replaced<T, F>) -> Drain<T> {
        Drain::new(old.root().remains())
    }

    /// Replaces the value if it is still `current`: the same object, not an equal one.
    ///
    /// # Errors
    /// `new`, if the value has been replaced since.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(1);
    /// let seen = cell.load();
    /// assert!(cell.compare_and_swap(&seen, 2).is_ok());
    /// assert_eq!(cell.compare_and_swap(&seen, 3).unwrap_err(), 3);
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn compare_and_swap(&self, current: &Shared<T, F>, new: T) -> Result<Drain<T>, T> {
        self.slot.compare_and_swap(current.strong.as_ptr(), new, Origin::here()).map(Self::drain)
    }

    /// Replaces the value by `f` of it, so that no other replacement is lost: if there was one meanwhile, `f` is asked
    /// again.
    ///
    /// # Context
    /// As [`store`](Self::store). `f` runs under no lock and in no section.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    /// use std::thread;
    ///
    /// let cell = RcuCell::new(0);
    /// thread::scope(|s| {
    ///     for _ in 0..4 {
    ///         s.spawn(|| cell.update(|n| n + 1));
    ///     }
    /// });
    /// assert_eq!(*cell.load(), 4);
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn update(&self, mut f: impl FnMut(&T) -> T) {
        let origin = Origin::here();
        loop {
            let current = self.load();
            if self.slot.compare_and_swap(current.strong.as_ptr(), f(&current), origin).is_ok() {
                return;
            }
        }
    }

    /// The value, once nobody else holds it.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(vec![1]);
    /// assert_eq!(cell.into_inner().wait(), [1]);
    /// ```
    pub fn into_inner(self) -> Drain<T> {
        Drain::new(self.slot.into_root().remains())
    }
}

impl<T: Send + Sync + 'static> RcuCell<Option<T>> {
    /// An empty cell.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::<Option<String>>::none();
    /// assert!(cell.load().is_none());
    /// cell.store(Some("plugin".into()));
    /// assert!(cell.read(Option::is_some));
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn none() -> Self {
        Self::new(None)
    }
}

impl<T: Send + Sync + 'static, F: Flavor> RcuCell<Option<T>, F> {
    /// Empties the cell, and gives back what was in it once nobody else holds it.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::RcuCell;
    ///
    /// let cell = RcuCell::new(Some(5));
    /// assert_eq!(cell.take().wait(), Some(5));
    /// assert!(cell.load().is_none());
    /// ```
    #[cfg_attr(feature = "track", track_caller)]
    pub fn take(&self) -> Drain<Option<T>> {
        self.swap(None)
    }
}

impl<T: Default + Send + Sync + 'static, F: Flavor> Default for RcuCell<T, F> {
    #[cfg_attr(feature = "track", track_caller)]
    fn default() -> Self {
        Self::with_flavor(T::default(), F::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for RcuCell<T> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug + Send + Sync + 'static, F: Flavor> fmt::Debug for RcuCell<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCell").field(&self.load()).finish()
    }
}
