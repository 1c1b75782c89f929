//! The cells of a count: add here, sum, zero.
//!
//! One counter bounces between the caches of everybody who uses it. So each CPU, or each thread, gets a cell of its own,
//! adds to that without a locked instruction, and nobody asks for the sum until a grace period has made all of them
//! stop. A single cell means nothing: a get may be counted in one cell and its put in another, and a cell may wrap.
//! Only the sum, modulo 2^64, is a number.
//!
//! | kind | a cell for each | found by | adds |
//! |---|---|---|---|
//! | `Cpu` | CPU that can exist | the rseq area of the thread | one restartable sequence |
//! | `Lane` | thread that is alive | the lane number in its section record | load and store, inside a section |
//! | `Thread` | thread that is alive | the thread_local crate | load and store, inside an epoch pin |
//!
//! After lib/percpu-refcount.c and mm/percpu.c of Linux.

mod packed;

use crate::sync::restartable::{LANE, Window, possible_cpus};
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, Quiescent, ThreadCells, order, thread_lanes_in_use,
};
use std::ptr::{self, NonNull};

/// Memory for the cells could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// What a cell belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cpu,
    Lane,
    Thread,
}

/// The cells of one count, and whether they are open for adding. `S` rides along in the padding.
///
/// # Invariants
/// 1. `cells` is null, or what the allocator for `kind` gave to this count alone.
/// 2. `cells` becomes null, and what it pointed to is freed, only after `close` and a grace period, or in `drop`.
/// 3. `limit` is not 0 only while the cells are open and `kind` is `Cpu`: then it is the number of lanes.
#[repr(transparent)]
pub(crate) struct Cells<S> {
    window: Window<Side<S>>,
}

struct Side<S> {
    kind: Kind,
    /// Written by whoever switches the count, read by anyone in a section.
    open: AtomicBool,
    more: S,
}

impl<S> Cells<S> {
    /// Cells that are zero and closed.
    pub(crate) fn try_new(kind: Kind, more: S) -> Result<Self, NoMemory> {
        let cells = match kind {
            Kind::Cpu => packed::alloc(possible_cpus())?.as_ptr(),
            Kind::Lane => packed::alloc(crate::sync::restartable::THREAD_LANES)?.as_ptr(),
            Kind::Thread => Box::into_raw(Box::<ThreadCells>::default()).cast(),
        };
        let side = Side { kind, open: AtomicBool::new(false), more };
        // INVARIANT: 1, 3.
        Ok(Self { window: Window { cells: AtomicPtr::new(cells), limit: AtomicU32::new(0), side } })
    }

    /// What rides along.
    pub(crate) fn side(&self) -> &S {
        &self.window.side.more
    }

    /// Adds `N` in a restartable sequence; false if the cells are closed, of another kind, or this thread cannot tell
    /// its CPU.
    #[inline(always)]
    pub(crate) fn add<const N: i32>(&self) -> bool {
        self.window.add::<N>()
    }

    /// As [`add`](Self::add).
    #[inline]
    pub(crate) fn add_many(&self, n: u64) -> bool {
        self.window.add_many(n)
    }

    /// Loads `slot` and adds 1 to the count whose cells' header lies `BACK` bytes before what `slot` points to, in one
    /// restartable sequence. `None`: nothing was added, because the process has no sequences, this one was cut short, or
    /// the cells are closed or of another kind.
    ///
    /// # Safety
    /// 1. `slot` points into an allocation that has a `Cells<S>` that many bytes before.
    /// 2. After another pointer has taken its place, the allocation stays until these cells have been closed and a grace
    ///    period of the sequences has passed.
    #[inline(always)]
    pub(crate) unsafe fn get_from<T, const BACK: usize>(slot: &AtomicPtr<T>) -> Option<NonNull<T>> {
        // SAFETY: 1, 2; and a window of this type is one that `Cells` opened, or closed.
        unsafe { Window::<Side<S>>::get_from::<T, BACK>(slot) }
    }

    /// Adds `n` to the cell of this thread, whose lane is `lane`, inside a read-side critical section of the flavour
    /// that the cells are for; false if they are closed or the thread has no cell.
    #[inline]
    pub(crate) fn add_in_section(&self, lane: Option<usize>, n: u64) -> bool {
        // Acquire [C1]: pairs with Release [C2] in `open`.
        if !self.window.side.open.load(order("C1", Ordering::Acquire)) {
            return false;
        }
        match self.window.side.kind {
            Kind::Lane => {
                let Some(cell) = lane.and_then(|lane| self.cell(lane)) else { return false };
                // One thread at a time has the lane, so a load and a store lose nothing.
                cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
                true
            }
            Kind::Thread => self.thread_cells().is_some_and(|cells| cells.add(n)),
            Kind::Cpu => false,
        }
    }

    /// The sum of all cells, modulo 2^64. Exact after a grace period.
    pub(crate) fn sum(&self) -> u64 {
        match self.window.side.kind {
            Kind::Thread => self.thread_cells().map_or(0, ThreadCells::sum),
            _ => self.lanes().fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed))),
        }
    }

    /// Whether the cells are added to inside sections, not in sequences.
    pub(crate) fn counts_in_sections(&self) -> bool {
        self.window.side.kind != Kind::Cpu
    }

    /// Whether adding is possible.
    pub(crate) fn is_open(&self) -> bool {
        self.window.side.open.load(Ordering::Relaxed)
    }

    /// Zeroes the cells and opens them. The caller has closed them before, waited, and keeps others from doing the same.
    pub(crate) fn open(&self) {
        match self.window.side.kind {
            Kind::Thread => self.thread_cells().into_iter().for_each(ThreadCells::zero),
            _ => self.lanes().for_each(packed::zero),
        }
        // Release [C2]: pairs with Acquire [C1] in `add_in_section`. Whoever sees the cells open sees them zeroed.
        self.window.side.open.store(true, order("C2", Ordering::Release));
        if self.window.side.kind == Kind::Cpu {
            // INVARIANT: 3. Release [R2]: pairs with the acquire [R1] in the sequence, as above.
            let limit = u32::try_from(packed::lanes()).unwrap_or(0);
            self.window.limit.store(limit, order("R2", Ordering::Release));
        }
    }

    /// Closes the cells: sections that begin after the next grace period do not add.
    pub(crate) fn close(&self) {
        // INVARIANT: 3.
        self.window.limit.store(0, Ordering::Relaxed);
        self.window.side.open.store(false, Ordering::Relaxed);
    }

    /// Frees the cells, after `close` and a grace period.
    pub(crate) fn free(&self, _: Quiescent) {
        let cells = self.window.cells.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(cells) = NonNull::new(cells) {
            match self.window.side.kind {
                // SAFETY: `cells` was this count's alone (1), nobody can be adding (2), and it is null from here on.
                Kind::Thread => drop(unsafe { Box::<ThreadCells>::from_raw(cells.as_ptr().cast()) }),
                // SAFETY: as above; the number is at most that of the lanes.
                _ => unsafe { packed::free(cells, self.lanes_in_use()) },
            }
        }
    }

    /// How many lanes anybody may have written to.
    fn lanes_in_use(&self) -> usize {
        match self.window.side.kind {
            Kind::Cpu => packed::lanes(),
            Kind::Lane => packed::lanes().min(thread_lanes_in_use()),
            Kind::Thread => 0,
        }
    }

    /// The cells in the lanes that have been in use.
    fn lanes(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..self.lanes_in_use()).filter_map(|lane| self.cell(lane))
    }

    /// The cell in `lane`, if there is one.
    fn cell(&self, lane: usize) -> Option<&AtomicU64> {
        debug_assert_ne!(self.window.side.kind, Kind::Thread);
        let lanes = packed::lanes();
        let first = NonNull::new(self.window.cells.load(Ordering::Relaxed))?;
        if lane >= lanes {
            return None;
        }
        // SAFETY: `first` has a cell in each of `lanes` lanes (1), which are `LANE` cells apart.
        let cell = unsafe { first.add(lane * LANE) };
        // SAFETY: the cell is freed only when no section that saw it open is left (2), and `&self` outlives the use.
        Some(unsafe { cell.as_ref() })
    }

    fn thread_cells(&self) -> Option<&ThreadCells> {
        debug_assert_eq!(self.window.side.kind, Kind::Thread);
        let cells = self.window.cells.load(Ordering::Relaxed).cast::<ThreadCells>();
        // SAFETY: null, or a box that `try_new` made (1) and that is freed when no section is left that may use it (2).
        unsafe { cells.as_ref() }
    }
}

impl<S> Drop for Cells<S> {
    fn drop(&mut self) {
        // Whoever can add borrows the count, and nobody does: that is as good as a grace period.
        self.free(Quiescent::reached());
    }
}
