//! What can be wrong with a call, each with what to do about it.
#![forbid(unsafe_code)]

use crate::report::Subject;
use crate::track::{Holding, List};
use std::error::Error;
use std::fmt;
use std::time::Instant;

/// The ref has been killed already; this kill changed nothing, and its `confirm` was dropped unrun.
///
/// # Examples
/// ```
/// use percpu_ref::{AlreadyDying, PercpuRef};
///
/// let r = PercpuRef::new(|| {});
/// assert_eq!(r.kill(), Ok(()));
/// assert_eq!(r.kill(), Err(AlreadyDying));
/// # r.wait_zero();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlreadyDying;

impl fmt::Display for AlreadyDying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ref has been killed already; only the first kill counts")
    }
}

impl Error for AlreadyDying {}

/// The ref gives its counters up at its first switch to atomic mode, because it was not built with
/// [`allow_reinit`](crate::Builder::allow_reinit).
///
/// # Examples
/// ```
/// use percpu_ref::{NotReinitable, PercpuRef};
///
/// let r = PercpuRef::new(|| {});
/// r.switch_to_atomic_sync();
/// assert_eq!(r.switch_to_percpu(), Err(NotReinitable));
/// # r.kill_sync().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotReinitable;

impl fmt::Display for NotReinitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ref cannot go back to per-CPU mode; build it with allow_reinit(true)")
    }
}

impl Error for NotReinitable {}

/// Why a ref was not brought back to life. Nothing was changed.
///
/// # Examples
/// ```
/// use percpu_ref::{PercpuRef, ReviveError};
///
/// let r = PercpuRef::builder().allow_reinit(true).build(|| {});
/// assert_eq!(r.reinit(), Err(ReviveError::NotDying));
/// r.get();
/// r.kill_sync().unwrap();
/// assert_eq!(r.reinit(), Err(ReviveError::StillReferenced));
/// r.put();
/// r.wait_zero();
/// assert_eq!(r.resurrect(), Err(ReviveError::Released));
/// assert_eq!(r.reinit(), Ok(()));
/// # r.kill_sync().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviveError {
    /// It is alive.
    NotDying,
    /// It was not built with [`allow_reinit`](crate::Builder::allow_reinit).
    NotReinitable,
    /// It was to be reinitialised, and references are out or `release` has not returned:
    /// [`wait_zero`](crate::PercpuRef::wait_zero) first.
    StillReferenced,
    /// It was to be resurrected, and no reference is left: [`reinit`](crate::PercpuRef::reinit) starts a new life.
    Released,
}

impl fmt::Display for ReviveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDying => "the ref is alive; only a killed ref can be revived",
            Self::NotReinitable => "the ref cannot be revived; build it with allow_reinit(true)",
            Self::StillReferenced => "references are out or release still runs; call wait_zero before reinit",
            Self::Released => "the last reference is gone; start a new life with reinit",
        })
    }
}

impl Error for ReviveError {}

/// A wait ran out of time: references are still out, or `release` has not returned.
///
/// # Examples
/// ```
/// use percpu_ref::PercpuRef;
/// use std::time::Duration;
///
/// let r = PercpuRef::builder().name("queue 3").build(|| {});
/// r.get();
/// r.kill().unwrap();
/// if let Err(late) = r.wait_zero_timeout(Duration::from_millis(5)) {
///     println!("{late}");
/// }
/// # r.put();
/// # r.wait_zero();
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Outstanding {
    pub(super) about: Subject,
    pub(super) dying: bool,
    /// The first reference is in `count`.
    pub(super) first: bool,
    pub(super) count: u64,
    pub(super) saturated: bool,
    pub(super) released: bool,
    pub(super) holders: List,
    pub(super) since: Option<Instant>,
}

impl Outstanding {
    /// The name of the ref, if it has one.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    /// use std::time::Duration;
    ///
    /// let r = PercpuRef::builder().name("queue 3").build(|| {});
    /// let late = r.wait_zero_timeout(Duration::ZERO).unwrap_err(); // nobody has killed it
    /// assert_eq!(late.name(), Some("queue 3"));
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.about.name()
    }

    /// How many references were out at the end of the wait, the first one, which a kill drops, included. 0: `release`
    /// was still running.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    /// use std::time::Duration;
    ///
    /// let r = PercpuRef::new(|| {});
    /// r.get_many(3);
    /// r.kill_sync().unwrap();
    /// assert_eq!(r.wait_zero_timeout(Duration::ZERO).unwrap_err().count(), 3);
    /// # r.put_many(3);
    /// ```
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the ref had been killed. A live one is never released, however long anybody waits.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    /// use std::time::Duration;
    ///
    /// let r = PercpuRef::new(|| {});
    /// let late = r.wait_zero_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert!(!late.is_dying(), "we forgot to kill it");
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn is_dying(&self) -> bool {
        self.dying
    }

    /// Who holds the references, with the feature `track`: one entry for each kind of holder and each place in the program
    /// where they were taken, the oldest first. Without the feature, none.
    ///
    /// Guards and handles are listed for certain. [`PercpuRef::put`](crate::PercpuRef::put) does not say which reference
    /// it drops: it takes the newest [`Get`](crate::HolderKind::Get) of its thread off the list, or else the oldest of all. The
    /// first reference is not listed.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{HolderKind, PercpuRef};
    ///
    /// let r = PercpuRef::new(|| {});
    /// let inside = r.enter();
    /// for holding in r.outstanding().holders() {
    ///     println!("{holding}"); // 1 by Ref from src/main.rs:4:16, taken 1.2s ago by thread `main`
    ///     assert_eq!((holding.kind(), holding.count()), (HolderKind::Ref, 1));
    /// }
    /// # drop(inside);
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn holders(&self) -> &[Holding] {
        self.holders.holders()
    }

    /// With the feature `track`: how many puts by hand found no get by hand to take off the list. A guard that was forgotten
    /// and then put by hand is still listed, and counted here.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    ///
    /// let r = PercpuRef::new(|| {});
    /// std::mem::forget(r.enter()); // a guard that is never dropped
    /// r.put();
    /// let tracked = cfg!(feature = "track"); // of this example, which is compiled with and without
    /// assert_eq!(r.outstanding().unmatched_puts(), u64::from(tracked));
    /// # r.kill_sync().unwrap();
    /// ```
    pub fn unmatched_puts(&self) -> u64 {
        self.holders.unmatched_puts()
    }

    /// When the teardown began, where that is known: for the [`Drain`](crate::Drain) of a
    /// [`PagePool`](crate::page_pool::PagePool), the moment of its first shutdown.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().build()?;
    /// let page = pool.alloc()?;
    /// let drain = pool.shutdown();
    /// if let Some(began) = drain.outstanding().since() {
    ///     println!("shutting down for {:?}", began.elapsed());
    /// }
    /// # drop(page);
    /// # drain.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The same, where whoever waits has seen to the kill, and a cell's readers may be in its way.
    pub(crate) fn of_dying(self) -> Self {
        Self { dying: true, ..self }
    }

    /// Without the first reference.
    pub(super) fn of_users(&self) -> u64 {
        self.count.saturating_sub(u64::from(self.first))
    }

    /// The same, and since when.
    pub(crate) fn with_since(self, since: Option<Instant>) -> Self {
        Self { since, ..self }
    }

    /// Whether the ref is saturated: after a surplus put, say, it will never be released.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::PercpuRef;
    /// use std::time::Duration;
    ///
    /// let r = PercpuRef::new(|| {});
    /// r.put(); // nobody had taken that one
    /// r.kill_sync().unwrap();
    /// assert!(r.wait_zero_timeout(Duration::from_secs(60)).unwrap_err().is_saturated());
    /// ```
    pub fn is_saturated(&self) -> bool {
        self.saturated
    }
}

/// What [`Display`](fmt::Display) says: an `unwrap` of a wait shows it.
impl fmt::Debug for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outstanding({self})")
    }
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.about)?;
        match self.count {
            _ if self.saturated => f.write_str("is saturated after misuse and will never be released"),
            _ if self.first => {
                f.write_str(if self.dying { "is being killed; " } else { "has not been killed; " })?;
                match self.of_users() {
                    0 => f.write_str("no reference is out but its first"),
                    1 => f.write_str("1 reference is out besides its first"),
                    n => write!(f, "{n} references are out besides its first"),
                }
            }
            0 if self.released => f.write_str("has been released; no reference is out"),
            0 => f.write_str("has no reference out, but its release has not returned"),
            1 => f.write_str("still has 1 reference out"),
            n => write!(f, "still has {n} references out"),
        }?;
        if let Some(since) = self.since.filter(|_| !self.saturated) {
            write!(f, ", {:.1} s after its shutdown", since.elapsed().as_secs_f64())?;
        }
        self.holders.told(if self.saturated { 0 } else { self.of_users() }).fmt(f)
    }
}

impl Error for Outstanding {}

/// There is no memory for the counters of another ref.
///
/// # Examples
/// ```
/// use percpu_ref::{OutOfMemory, PercpuRef};
///
/// fn open() -> Result<PercpuRef, OutOfMemory> {
///     PercpuRef::builder().try_build(|| {})
/// }
/// # open().unwrap().kill_sync().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for the counters of another ref; drop some that are not needed")
    }
}

impl Error for OutOfMemory {}
