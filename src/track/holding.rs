//! What is told about holders.
#![forbid(unsafe_code)]

use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// What kind of thing holds references.
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
    pub fn kind(&self) -> HolderKind {
        self.kind
    }

    /// Where the program took them: the call of `enter`, `share`, `clone`, `get`... `None` for gets that
    /// could not be written down: in a signal handler that interrupted its own thread in the books, or for want of memory.
    pub fn place(&self) -> Option<&'static Location<'static>> {
        self.place
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long ago the oldest of them was taken, when the list was made.
    pub fn oldest(&self) -> Duration {
        self.oldest
    }

    /// The name of the thread that took the oldest. It may have passed it on since.
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
