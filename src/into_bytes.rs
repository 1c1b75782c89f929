//! Frozen pages as `bytes::Bytes`, for the feature `bytes`.
#![forbid(unsafe_code)]

use crate::page_pool::PageBytes;
use bytes::Bytes;

/// Without a copy: the page goes back to its pool when the last clone of the `Bytes` is dropped.
///
/// # Examples
/// ```
/// use bytes::Bytes;
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let bytes: Bytes = pool.alloc()?.freeze().into();
/// assert_eq!(pool.in_flight(), 1);
/// drop(bytes);
/// assert_eq!(pool.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<PageBytes> for Bytes {
    fn from(bytes: PageBytes) -> Self {
        Self::from_owner(bytes)
    }
}
