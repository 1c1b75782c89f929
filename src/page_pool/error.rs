//! What can be wrong with a pool, or with an allocation from it.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

/// Why there is no page, or no piece of one.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::{AllocError, PagePool};
///
/// let pool = PagePool::builder().max_pages(1).build()?;
/// let page = pool.alloc()?;
/// assert_eq!(pool.alloc().unwrap_err(), AllocError::Exhausted);
/// drop(page);
/// assert!(pool.alloc().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocError {
    /// As many pages as [`max_pages`](super::PoolBuilder::max_pages) allows are in use or in the caches of others. It may
    /// succeed when some come back.
    Exhausted,
    /// A piece that is longer than a page.
    TooLong,
    /// The pool has been shut down.
    ShutDown,
    /// The system has no memory. The pool is as before.
    OutOfMemory,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "all pages that the pool may have are in use or cached by others",
            Self::TooLong => "a piece cannot be longer than a page",
            Self::ShutDown => "the pool has been shut down",
            Self::OutOfMemory => "no memory for another page",
        })
    }
}

impl Error for AllocError {}

/// Why there is no pool.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let error = PagePool::builder().page_size(3000).build().unwrap_err();
/// assert_eq!(error.to_string(), "page_size is 3000, but has to be a power of two from 1 to 1048576");
/// assert_eq!((error.field(), error.allowed()), (Some("page_size"), Some(1..=1_048_576)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A field has a value outside of its range.
    OutOfRange {
        /// The method of [`PoolBuilder`](super::PoolBuilder) that set it.
        field: &'static str,
        /// What it was set to.
        value: usize,
        /// The values that would do, given the other fields.
        allowed: RangeInclusive<usize>,
    },
    /// A field has to be a power of two.
    NotAPowerOfTwo {
        /// The method of [`PoolBuilder`](super::PoolBuilder) that set it.
        field: &'static str,
        /// What it was set to.
        value: usize,
        /// Any power of two in this range would do.
        allowed: RangeInclusive<usize>,
    },
    /// The system has no memory for the ring or the counters.
    OutOfMemory,
}

impl BuildError {
    /// The field that is wrong.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let error = PagePool::builder().max_pages(0).build().unwrap_err();
    /// assert_eq!(error.field(), Some("max_pages"));
    /// ```
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::OutOfRange { field, .. } | Self::NotAPowerOfTwo { field, .. } => Some(field),
            Self::OutOfMemory => None,
        }
    }

    /// The range that its value has to be in.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let error = PagePool::builder().ring(1 << 20).build().unwrap_err();
    /// assert_eq!(error.allowed(), Some(0..=16_384));
    /// ```
    pub fn allowed(&self) -> Option<RangeInclusive<usize>> {
        match self {
            Self::OutOfRange { allowed, .. } | Self::NotAPowerOfTwo { allowed, .. } => Some(allowed.clone()),
            Self::OutOfMemory => None,
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, value, allowed, what) = match self {
            Self::OutOfRange { field, value, allowed } => (field, value, allowed, ""),
            Self::NotAPowerOfTwo { field, value, allowed } => (field, value, allowed, "a power of two "),
            Self::OutOfMemory => return f.write_str("no memory for another pool"),
        };
        write!(f, "{field} is {value}, but has to be {what}from {} to {}", allowed.start(), allowed.end())
    }
}

impl Error for BuildError {}
