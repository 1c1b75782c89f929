//! Where pages come from, and where they go home to.
//!
//! All of this happens under the lock of the hub: it is the slow path of everybody. A page that is home is on the list of
//! its block; the links are the notes of the pages, so that the list costs nothing and nothing is written into a page. A
//! block whose pages are all home is given back to the system, unless it is the only one that has pages: a pool that
//! goes back and forth by one page should not map and unmap.

use super::block::{Block, Layout};
use super::{Hub, Idle};
use crate::sync::Ordering;
use std::ptr::NonNull;

/// What is known about a block.
///
/// # Invariants
/// 1. The pages below `touched` have been handed out; those of them that are home form a list: it begins at number
///    `home - 1` (0: it is empty), and each one's note is what follows, in the same form.
/// 2. `away` pages are not home.
struct Entry {
    block: Block,
    home: usize,
    touched: usize,
    away: usize,
    /// It is listed in `roomy`.
    listed: bool,
}

/// The blocks of a pool.
pub(in crate::page_pool) struct Source {
    layout: Layout,
    huge: bool,
    max_pages: usize,
    /// Pages that are not home, in all blocks.
    away: usize,
    /// By place.
    entries: Vec<Option<Entry>>,
    /// The places of blocks that have pages at home, and of some that have none.
    roomy: Vec<usize>,
    /// Nothing is kept: a block goes when its last page is home.
    closed: bool,
}

/// Why there is no page.
pub(in crate::page_pool) enum NoPage {
    Limit,
    Memory,
}

/// A block with all its pages home, that the source does not know any more. It is unmapped when this is dropped: not
/// under the lock.
#[must_use]
pub(in crate::page_pool) struct Spare(Block);

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: 1. that is what makes a spare block, and the source has forgotten it.
        unsafe { self.0.unmap() };
    }
}

impl Source {
    pub(in crate::page_pool) fn new(layout: Layout, max_pages: usize, huge: bool) -> Self {
        Self { layout, huge, max_pages, away: 0, entries: Vec::new(), roomy: Vec::new(), closed: false }
    }

    /// Takes up to `wanted` pages out, at least one unless there is an error.
    ///
    /// # Safety
    /// 1. `hub` is the hub of this source, and lives as long as a page is away or the source does.
    pub(super) unsafe fn take(
        &mut self,
        hub: NonNull<Hub>,
        wanted: usize,
        mut into: impl FnMut(Idle),
    ) -> Result<(), NoPage> {
        let wanted = wanted.min(self.max_pages - self.away);
        if wanted == 0 {
            return Err(NoPage::Limit);
        }
        let mut taken = 0;
        while taken < wanted {
            let Some(entry) = self.roomy.last().and_then(|place| self.entries[*place].as_mut()) else {
                // SAFETY: 1.
                match unsafe { self.add_block(hub) } {
                    Some(()) => continue,
                    None if taken > 0 => break,
                    None => return Err(NoPage::Memory),
                }
            };
            let index = if entry.home > 0 {
                let index = entry.home - 1;
                // SAFETY: 1. invariant 1: it is the number of a page, and a listed block has not been unmapped.
                let at = unsafe { entry.block.page_at(index) };
                // SAFETY: 1. as above.
                entry.home = unsafe { at.note() }.load(Ordering::Relaxed);
                index
            } else if entry.touched < self.layout.count {
                entry.touched += 1;
                entry.touched - 1
            } else {
                entry.listed = false;
                self.roomy.pop();
                continue;
            };
            entry.away += 1;
            self.away += 1;
            // SAFETY: 1. `index` is the number of a page, and the block is mapped.
            let at = unsafe { entry.block.page_at(index) };
            // INVARIANT: Idle's: it was home, and now it is away, and this is its only handle.
            into(Idle(at));
            taken += 1;
        }
        Ok(())
    }

    /// # Safety
    /// 1. As for `take`.
    #[cold]
    unsafe fn add_block(&mut self, hub: NonNull<Hub>) -> Option<()> {
        let place = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if place == self.entries.len() {
            self.entries.try_reserve(1).ok()?;
            // One for each entry: coming home never has to allocate.
            self.roomy.try_reserve(self.entries.len() + 1 - self.roomy.len()).ok()?;
        }
        // SAFETY: 1.: a block that has pages away lives no longer than they are, and the others no longer than the source.
        let block = unsafe { Block::map(self.layout, hub, place, self.huge) }?;
        let entry = Entry { block, home: 0, touched: 0, away: 0, listed: true };
        if place == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[place] = Some(entry);
        self.roomy.push(place);
        Some(())
    }

    /// Takes a page home. The block that has become spare by that, if one has, comes back.
    pub(in crate::page_pool) fn bring_home(&mut self, page: Idle) -> Option<Spare> {
        let at = page.into_at();
        // SAFETY: 1. an idle page that is away is a page of a mapped block.
        let place = unsafe { at.place() };
        // SAFETY: as above.
        let index = unsafe { at.index() };
        let entry = self.entries[place].as_mut().expect("a block with pages away has an entry");
        // SAFETY: as above; nobody else can reach the page.
        unsafe { at.set_note(entry.home) };
        entry.home = index + 1;
        entry.away -= 1;
        self.away -= 1;
        if !entry.listed {
            entry.listed = true;
            self.roomy.push(place);
        }
        if entry.away == 0 && (self.closed || self.roomy.len() > 1) { self.forget(place) } else { None }
    }

    /// Forgets a block whose pages are all home.
    fn forget(&mut self, place: usize) -> Option<Spare> {
        let entry = self.entries[place].take()?;
        debug_assert_eq!(entry.away, 0);
        self.roomy.retain(|listed| *listed != place);
        Some(Spare(entry.block))
    }

    /// Keeps nothing from now on; the blocks that are not in use come back.
    pub(in crate::page_pool) fn close(&mut self) -> Vec<Spare> {
        self.closed = true;
        let unused = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.away == 0);
        let places: Vec<_> = (0..self.entries.len()).filter(|place| unused(&self.entries[*place])).collect();
        places.into_iter().filter_map(|place| self.forget(place)).collect()
    }

    /// Bytes in blocks.
    pub(in crate::page_pool) fn mapped(&self) -> usize {
        self.entries.iter().flatten().count() * self.layout.mapped
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // A block with a page away stays: in a forked child, the page may be in a ring that cannot be emptied.
        drop(self.close());
    }
}
