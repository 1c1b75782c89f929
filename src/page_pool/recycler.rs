//! A way back that collects pages first.
#![forbid(unsafe_code)]

use super::page::{Idle, Page};
use super::recycle::give_back_many;
use std::fmt;

/// Pages that are collected before they are given back: as many as the kernel gives back at once.
const STAGED: usize = 16;

/// Gives pages back many at once: from [`PagePool::recycler`](super::PagePool::recycler).
///
/// Dropping a page takes the lock of the ring and writes a line that its owner reads. Here that happens once for 16
/// pages. It is for a thread that gets pages faster than it can afford to drop them one by one.
///
/// A page that is collected is still out, so [`flush`](Self::flush) before the thread sleeps: otherwise a
/// [shutdown](super::PagePool::shutdown) waits for it. Dropping the recycler flushes.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut pages = Vec::new();
/// pool.allocator().alloc_bulk(&mut pages, 20)?;
/// let mut recycler = pool.recycler();
/// for page in pages {
///     recycler.recycle(page);
/// }
/// assert_eq!(pool.in_flight(), 4, "16 of them are back");
/// recycler.flush();
/// assert_eq!(pool.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recycler {
    /// Zeroed, if they have to be; all of one pool, and each with its reference.
    staged: Vec<Idle>,
}

impl Recycler {
    pub(super) fn new() -> Self {
        Self { staged: Vec::with_capacity(STAGED) }
    }

    /// Collects a page, and gives back what has been collected if it is 16 pages. A page of another pool than the last
    /// one's gives back those before it.
    ///
    /// # Context
    /// Any thread. Does not block.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().build()?;
    /// let mut recycler = pool.recycler();
    /// recycler.recycle(pool.alloc()?);
    /// assert_eq!(pool.in_flight(), 1, "it is not back yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn recycle(&mut self, page: Page) {
        let mut page = page.into_idle();
        page.clean();
        if self.staged.first().is_some_and(|first| first.hub() != page.hub()) {
            self.flush();
        }
        self.staged.push(page);
        if self.staged.len() >= STAGED {
            self.flush();
        }
    }

    /// Gives back what has been collected.
    ///
    /// # Context
    /// As [`recycle`](Self::recycle).
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::page_pool::PagePool;
    ///
    /// let pool = PagePool::builder().build()?;
    /// let mut recycler = pool.recycler();
    /// recycler.recycle(pool.alloc()?);
    /// recycler.flush(); // before this thread sleeps
    /// assert_eq!(pool.in_flight(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(never)]
    pub fn flush(&mut self) {
        if !self.staged.is_empty() {
            give_back_many(&mut self.staged);
        }
    }
}

impl Drop for Recycler {
    fn drop(&mut self) {
        self.flush();
    }
}

impl fmt::Debug for Recycler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recycler").field("collected", &self.staged.len()).finish()
    }
}
