//! Blocks: where pages lie, and what is known about each of them.
//!
//! A page must know its pool and its length, and a handle on it should be one pointer. So pages lie in blocks that are
//! aligned to their greatest size: clear the low bits of any address in a page, and there is the block's header.
//!
//! ```text
//! multiple of BLOCK                                                             at most BLOCK later
//! |  LEAD  | Header | note of page 0 | note of page 1 | ...  | page 0 | page 1 | page 2 | ...  |
//!                                                            ^ a multiple of the page size
//! ```
//!
//! The header does not lie at the very start, because the first bytes of all pages fall into the same set of a cache, and
//! the header, which is needed for each of them, would compete with them there.
//!
//! The *note* of a page is one word, in a cache line of its own where pages are large enough to afford it. It is the
//! share count of a page that is handed out in pieces or frozen, and the link of a page that is home: the pages
//! themselves are the users' from the first byte to the last.

use super::Hub;
use crate::sync::{AtomicUsize, Ordering, pages};
use std::ptr::NonNull;

/// What blocks are aligned to, and the most that one takes.
pub(in crate::page_pool) const BLOCK: usize = pages::BLOCK;
/// Mappings are whole numbers of this, which is a multiple of every system's page size.
const GRAIN: usize = if BLOCK < 1 << 16 { BLOCK } else { 1 << 16 };

/// How far into a block its header lies: an odd number of lines, a quarter of a small page.
const LEAD: usize = 17 * 64;

/// What lies at the start of a block.
///
/// # Invariants
/// 1. It lies `LEAD` bytes behind a multiple of `BLOCK`, which is the start of a mapping of `mapped` bytes, at most `BLOCK`.
/// 2. `count` notes of `1 << note_shift` bytes follow it, initialised, and `count` pages of `1 << page_shift` bytes lie
///    from `first` bytes into the block on: all within the mapping, none of them over another.
/// 3. `hub` lives as long as the block.
#[repr(C, align(64))]
struct Header {
    hub: NonNull<Hub>,
    first: usize,
    page_shift: u32,
    note_shift: u32,
    count: usize,
    mapped: usize,
    /// Where the source keeps what it knows about this block.
    place: usize,
}

/// How the blocks of a pool are laid out.
#[derive(Clone, Copy, Debug)]
pub(in crate::page_pool) struct Layout {
    page_shift: u32,
    note_shift: u32,
    /// Pages in a block.
    pub(in crate::page_pool) count: usize,
    first: usize,
    /// Bytes in a block.
    pub(super) mapped: usize,
}

impl Layout {
    /// Blocks for pages of `page_size`, a power of two and at most half of `BLOCK`, of which no more than `wanted` are
    /// needed; at least one fits.
    pub(in crate::page_pool) fn new(page_size: usize, wanted: usize) -> Self {
        const { assert!(size_of::<AtomicUsize>() <= 64) };
        // 1/64 of the page, a cache line at most.
        let note = (page_size / 64).clamp(size_of::<AtomicUsize>().next_power_of_two(), 64);
        let first = |count: usize| (LEAD + size_of::<Header>() + count * note).next_multiple_of(page_size);
        let mut count = ((BLOCK - LEAD - size_of::<Header>()) / (page_size + note)).min(wanted).max(1);
        while count > 1 && first(count) + count * page_size > BLOCK {
            count -= 1;
        }
        let mapped = (first(count) + count * page_size).next_multiple_of(GRAIN);
        debug_assert!(mapped <= BLOCK);
        Self { page_shift: page_size.ilog2(), note_shift: note.ilog2(), count, first: first(count), mapped }
    }
}

/// A block. Copies of it are as good as it is, until one is freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Block(NonNull<Header>);

// SAFETY: it is an address; what is done with it is up to the unsafe functions.
unsafe impl Send for Block {}

impl Block {
    /// Maps a block, or not, if there is no memory.
    ///
    /// # Safety
    /// 1. `hub` lives until the block is freed.
    pub(super) unsafe fn map(layout: Layout, hub: NonNull<Hub>, place: usize, huge: bool) -> Option<Self> {
        let start = pages::map(layout.mapped, BLOCK)?;
        if huge {
            pages::wish_for_huge(start, layout.mapped);
        }
        // SAFETY: a layout has room for a header there.
        let header = unsafe { start.add(LEAD) }.cast::<Header>();
        let Layout { page_shift, note_shift, count, first, mapped } = layout;
        // SAFETY: the mapping is new, aligned, and longer than a header.
        unsafe { header.write(Header { hub, first, page_shift, note_shift, count, mapped, place }) };
        let block = Self(header);
        if !pages::ZEROES_ARE_ATOMICS {
            for i in 0..count {
                // SAFETY: 1. `i < count`.
                let note = unsafe { block.note_at(i) };
                // SAFETY: invariant 2: there is room for the note, and nobody else knows the block. INVARIANT: 2.
                unsafe { note.write(AtomicUsize::new(0)) };
            }
        }
        // INVARIANT: 1, 2, 3: by the layout.
        Some(block)
    }

    /// Gives the block back to the system.
    ///
    /// # Safety
    /// 1. All of its pages are home, and nobody uses the block afterwards.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: 1. and invariant 1.
        let mapped = unsafe { self.header() }.mapped;
        const { assert!(!std::mem::needs_drop::<AtomicUsize>()) };
        // SAFETY: 1. as above; invariant 1.
        unsafe { pages::unmap(self.start(), mapped, BLOCK) };
    }

    fn start(self) -> NonNull<u8> {
        // SAFETY: invariant 1 of the header: the mapping begins there.
        unsafe { self.0.byte_sub(LEAD) }.cast()
    }

    /// # Safety
    /// 1. The block has not been unmapped, and is not while the result is used.
    #[inline(always)]
    unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: 1.: there is a header, which nobody changes.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// 1. `i` is below the number of pages, and the block has not been unmapped.
    #[inline(always)]
    unsafe fn note_at(self, i: usize) -> NonNull<AtomicUsize> {
        // SAFETY: 1.
        let offset = size_of::<Header>() + (i << unsafe { self.header() }.note_shift);
        // SAFETY: invariant 2 of the header: the note is in the mapping.
        unsafe { self.0.byte_add(offset) }.cast()
    }

    /// Page number `i`.
    ///
    /// # Safety
    /// 1. `i` is below the number of pages, and the block has not been unmapped.
    pub(super) unsafe fn page_at(self, i: usize) -> At {
        // SAFETY: 1.
        let header = unsafe { self.header() };
        // SAFETY: invariant 2 of the header: the page is in the mapping.
        At(unsafe { self.start().add(header.first + (i << header.page_shift)) })
    }
}

/// The address of a page: nothing is known about who may use what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At(pub(super) NonNull<u8>);

impl At {
    #[inline(always)]
    pub(super) fn block(self) -> Block {
        let header = self.0.as_ptr().map_addr(|addr| (addr & !(BLOCK - 1)) | LEAD);
        // SAFETY: `LEAD` is not 0.
        Block(unsafe { NonNull::new_unchecked(header) }.cast())
    }

    /// The hub of its pool.
    ///
    /// # Safety
    /// 1. It is a page of a block that has not been unmapped.
    #[inline(always)]
    pub(super) unsafe fn hub(self) -> NonNull<Hub> {
        // SAFETY: 1.
        unsafe { self.block().header() }.hub
    }

    /// # Safety
    /// 1. It is a page of a block that has not been unmapped.
    #[inline(always)]
    pub(super) unsafe fn size(self) -> usize {
        // SAFETY: 1.
        1 << unsafe { self.block().header() }.page_shift
    }

    /// # Safety
    /// 1. It is a page of a block that has not been unmapped.
    pub(super) unsafe fn place(self) -> usize {
        // SAFETY: 1.
        unsafe { self.block().header() }.place
    }

    /// Which page of its block it is.
    ///
    /// # Safety
    /// 1. It is a page of a block that has not been unmapped.
    #[inline(always)]
    pub(super) unsafe fn index(self) -> usize {
        // SAFETY: 1.
        let header = unsafe { self.block().header() };
        ((self.0.addr().get() & (BLOCK - 1)) - header.first) >> header.page_shift
    }

    /// Its note.
    ///
    /// # Safety
    /// 1. It is a page of a block that has not been unmapped, and is not while the result is used.
    #[inline(always)]
    pub(super) unsafe fn note<'a>(self) -> &'a AtomicUsize {
        // SAFETY: 1.
        let index = unsafe { self.index() };
        // SAFETY: invariant 2 of the header: the index is that of a page.
        let note = unsafe { self.block().note_at(index) };
        // SAFETY: 1., and the note is initialised (invariant 2).
        unsafe { note.as_ref() }
    }

    /// Writes the note of a page that nobody else can reach.
    ///
    /// # Safety
    /// 1. As for [`note`](Self::note).
    #[inline(always)]
    pub(super) unsafe fn set_note(self, value: usize) {
        // Relaxed: whoever reaches the page later does so by something that orders.
        // SAFETY: 1.
        unsafe { self.note() }.store(value, Ordering::Relaxed);
    }
}
