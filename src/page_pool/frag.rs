//! Pieces of a page, and pages that are frozen.
#![forbid(unsafe_code)]

use super::page::{Common, Unique};
use std::fmt;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};

/// A piece of a page, from [`Allocator::alloc_frag`](super::Allocator::alloc_frag).
///
/// The page goes back to its pool when its last piece is dropped, on whatever thread that is.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::PagePool;
///
/// let pool = PagePool::builder().build()?;
/// let mut local = pool.allocator();
/// let mut header = local.alloc_frag(64)?;
/// let body = local.alloc_frag(1500)?;
/// header.fill(0);
/// std::thread::spawn(move || drop((body, header))).join().unwrap();
/// assert_eq!(pool.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Frag(Unique);

impl Frag {
    #[inline(always)]
    pub(super) fn new(piece: Unique) -> Self {
        Self(piece)
    }

    /// Makes the piece immutable and cloneable, without a copy.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let mut piece = pool.allocator().alloc_frag(3)?;
    /// piece.copy_from_slice(b"abc");
    /// let frozen = piece.freeze();
    /// assert_eq!((&frozen.clone()[..], &frozen.slice(1..)[..]), (&b"abc"[..], &b"bc"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn freeze(self) -> PageBytes {
        PageBytes(self.0.freeze())
    }
}

impl Deref for Frag {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Frag {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl AsRef<[u8]> for Frag {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Frag {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frag({} bytes at {:p})", self.len(), self.as_ptr())
    }
}

/// Bytes of a page that nobody changes any more: cloned and cut without a copy.
///
/// From [`Page::freeze`](super::Page::freeze) and [`Frag::freeze`]. The page goes back to its pool when the last part of
/// it is dropped, on whatever thread that is. With the feature `bytes` it can become a `bytes::Bytes`, without a copy.
///
/// # Examples
/// ```
/// use percpu_ref::page_pool::{PageBytes, PagePool};
///
/// let pool = PagePool::builder().build()?;
/// let mut page = pool.alloc()?;
/// page[..11].copy_from_slice(b"key = value");
/// let line: PageBytes = page.freeze();
/// let (key, value) = (line.slice(..3), line.slice(6..11));
/// drop(line);
/// assert_eq!((&key[..], &value[..], pool.in_flight()), (&b"key"[..], &b"value"[..], 1));
/// drop((key, value));
/// assert_eq!(pool.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PageBytes(Common);

impl PageBytes {
    pub(super) fn new(whole: Common) -> Self {
        Self(whole)
    }

    /// A part of it, which keeps the page too.
    ///
    /// # Context
    /// Any thread. One atomic addition.
    ///
    /// # Panics
    /// If the range does not lie in it.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::page_pool::PagePool;
    /// let pool = PagePool::builder().build()?;
    /// let whole = pool.alloc()?.freeze();
    /// assert_eq!(whole.slice(16..32).as_ptr(), whole[16..].as_ptr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.checked_add(1).expect("the range begins after all numbers"),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1).expect("the range ends after all numbers"),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        assert!(start <= end && end <= self.len(), "the range {start}..{end} does not lie in {} bytes", self.len());
        Self(self.0.clone().narrow(start, end - start))
    }
}

impl Deref for PageBytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for PageBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBytes({} bytes at {:p})", self.len(), self.as_ptr())
    }
}
