//! What is told about holders.
#![forbid(unsafe_code)]

use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// What kind of thing holds references.
///
/// # Examples
/// ```
/// use percpu_ref::{HolderKind, PercpuRef};
///
/// let r = PercpuRef::new(|| {});
/// r.get();
/// let _inside = r.enter();
/// let out = r.outstanding();
/// let by_hand = out.holders().iter().filter(|holding| holding.kind() == HolderKind::Get);
/// assert_eq!(by_hand.count(), usize::from(cfg!(feature = "track")));
/// # r.put();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HolderKind {
    /// An [`Owner`](crate::Owner), or the [`RcuCell`](crate::RcuCell) that has the value.
    Owner,
    /// A [`Shared`](crate::Shared) handle.
    Shared,
    /// A [`Ref`](crate::Ref) guard.
    Ref,
    /// A [`Pass`](crate::Pass), or an [`OwnedPass`](crate::OwnedPass).
    Pass,
    /// Gets by hand.
    Get,
    /// A [`Page`](crate::page_pool::Page), or what was made of it: its [`Frag`](crate::page_pool::Frag)s or
    /// [`PageBytes`](crate::page_pool::PageBytes). It is listed where it was allocated: for pieces, the first of them.
    Page,
}

/// References that are out, of one kind, taken at one place: from [`Outstanding::holders`](crate::Outstanding::holders).
///
/// There are none unless the crate is built with the feature `track`.
///
/// # Examples
/// ```
/// use percpu_ref::Owner;
///
/// let owner = Owner::new(7);
/// let _handles = [Owner::share(&owner), Owner::share(&owner)];
/// for holding in Owner::outstanding(&owner).holders() {
///     println!("{holding}"); // 1 by Shared from src/main.rs:4:17, taken 1.2s ago by thread `main`
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub(super) kind: HolderKind,
    pub(super) place: Option<&'static Location<'static>>,
    pub(super) count: u64,
    pub(super) oldest: Duration,
    pub(super) thread: Option<String>,
}

impl Holding {
    /// What holds them.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let _inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     assert_eq!(format!("{:?}", holding.kind()), "Ref");
    /// }
    /// ```
    pub fn kind(&self) -> HolderKind {
        self.kind
    }

    /// Where the program took them: the call of `enter`, `share`, `clone`, `get`... `None` for gets that
    /// could not be written down: in a signal handler that interrupted its own thread in the books, or for want of memory.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let _inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     assert_eq!(holding.place().map(|place| place.file()), Some(file!()));
    /// }
    /// ```
    pub fn place(&self) -> Option<&'static Location<'static>> {
        self.place
    }

    /// How many.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let _inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     assert_eq!(holding.count(), 1);
    /// }
    /// ```
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long ago the oldest of them was taken, when the list was made.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let _inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     println!("held for {:?}", holding.oldest());
    /// }
    /// ```
    pub fn oldest(&self) -> Duration {
        self.oldest
    }

    /// The name of the thread that took the oldest. It may have passed it on since.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let _inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     println!("by {}", holding.thread_name().unwrap_or("a thread without a name"));
    /// }
    /// ```
    pub fn thread_name(&self) -> Option<&str> {
        self.thread.as_deref()
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {:?} ", self.count, self.kind)?;
        match self.place {
            // Where the standard library was built, its sources have no place of their own.
            Some(place) if place.file().starts_with("/rustc/") => {
                write!(f, "from {place} (the standard library, on behalf of its caller)")?;
            }
            Some(place) => write!(f, "from {place}")?,
            None => f.write_str("from a place that could not be written down")?,
        }
        let oldest = if self.count == 1 { "taken" } else { "the oldest taken" };
        write!(f, ", {oldest} {:.1?} ago", self.oldest)?;
        match &self.thread {
            Some(name) => write!(f, " by thread `{name}`"),
            None => Ok(()),
        }
    }
}
