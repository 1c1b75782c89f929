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

use crate::sync::restartable::{LANE, MAX_LIMIT, THREAD_LANES, Window, possible_cpus};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU64, Lane, Ordering, Quiescent, ThreadCells, order, thread_lanes_in_use};
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

/// The mode byte: the kind, which does not change, and whether the cells are open.
mod mode {
    pub(super) const CPU: u8 = 0;
    pub(super) const LANE: u8 = 1;
    pub(super) const THREAD: u8 = 2;
    pub(super) const KIND: u8 = 3;
    pub(super) const OPEN: u8 = 4;
}

/// The cells of one count, and whether they are open for adding. `S` rides along in the padding.
///
/// # Invariants
/// 1. `cells` is null, or what the allocator for the kind gave to this count alone.
/// 2. `cells` becomes null, and what it pointed to is freed, only after `close` and a grace period, or in `drop`.
/// 3. The window's limit is not 0 only while the cells are open and the kind is `Cpu`: then it is at most the number of
///    lanes.
/// 4. While the cells are open, `cells` is not null.
#[repr(transparent)]
pub(crate) struct Cells<S> {
    window: Window<Side<S>>,
}

struct Side<S> {
    /// Written by whoever switches the count, read by anyone in a section.
    mode: AtomicU8,
    more: S,
}

impl<S> Cells<S> {
    /// Cells that are zero and closed.
    pub(crate) fn try_new(kind: Kind, more: S) -> Result<Self, NoMemory> {
        let (cells, mode) = match kind {
            Kind::Cpu => (packed::alloc(possible_cpus)?.as_ptr(), mode::CPU),
            Kind::Lane => (packed::alloc(|| THREAD_LANES)?.as_ptr(), mode::LANE),
            Kind::Thread => {
                // The standard library has no fallible `Box::new` yet: see whether there is room for one.
                Vec::<ThreadCells>::new().try_reserve_exact(1).map_err(|_| NoMemory)?;
                (Box::into_raw(Box::<ThreadCells>::default()).cast(), mode::THREAD)
            }
        };
        // INVARIANT: 1, 3, 4.
        Ok(Self { window: Window::new(cells, kind == Kind::Cpu, Side { mode: AtomicU8::new(mode), more }) })
    }

    fn kind(&self) -> Kind {
        match self.window.side.mode.load(Ordering::Relaxed) & mode::KIND {
            mode::CPU => Kind::Cpu,
            mode::LANE => Kind::Lane,
            _ => Kind::Thread,
        }
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

    /// Whether it is worth opening a section to add: only a hint.
    #[inline(always)]
    pub(crate) fn are_open_for_sections(&self) -> bool {
        self.window.side.mode.load(Ordering::Relaxed) > mode::OPEN | mode::CPU
    }

    /// Adds `n` to the cell in `lane`, which is this thread's, inside a read-side critical section; false if the cells
    /// are closed.
    #[inline(always)]
    pub(crate) fn add_in_lane(&self, lane: Lane, n: u64) -> bool {
        // Acquire [C1]: pairs with Release [C2] in `open`.
        if self.window.side.mode.load(order("C1", Ordering::Acquire)) != mode::OPEN | mode::LANE {
            return false;
        }
        let first = self.window.cells.load(Ordering::Relaxed);
        // SAFETY: the cells are open, so `first` is not null (4) and has a cell in each lane, at its offset.
        let cell = unsafe { first.add(lane.offset()) };
        // SAFETY: the cells are freed only when no section that saw them open is left (2).
        let cell = unsafe { &*cell };
        // One thread at a time has the lane, so a load and a store lose nothing.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        true
    }

    /// Adds `n` to the cell of this thread, inside a read-side critical section; false if the cells are closed or the
    /// thread cannot have one any more.
    pub(crate) fn add_in_thread(&self, n: u64) -> bool {
        // Acquire [C1]: pairs with Release [C2] in `open`.
        self.window.side.mode.load(order("C1", Ordering::Acquire)) == mode::OPEN | mode::THREAD
            && self.thread_cells().is_some_and(|cells| cells.add(n))
    }

    /// The sum of all cells, modulo 2^64. Exact after a grace period.
    pub(crate) fn sum(&self) -> u64 {
        match self.kind() {
            Kind::Thread => self.thread_cells().map_or(0, ThreadCells::sum),
            _ => self.lanes().fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed))),
        }
    }

    /// Whether adding is possible.
    pub(crate) fn is_open(&self) -> bool {
        self.window.side.mode.load(Ordering::Relaxed) & mode::OPEN != 0
    }

    /// Zeroes the cells and opens them. The caller has closed them before, waited, and keeps others from doing the same.
    pub(crate) fn open(&self) {
        debug_assert!(!self.window.cells.load(Ordering::Relaxed).is_null(), "invariant 4");
        match self.kind() {
            Kind::Thread => self.thread_cells().into_iter().for_each(ThreadCells::zero),
            _ => self.lanes().for_each(packed::zero),
        }
        let mode = self.window.side.mode.load(Ordering::Relaxed);
        // Release [C2]: pairs with Acquire [C1] in `add_in_section`. Whoever sees the cells open sees them zeroed.
        self.window.side.mode.store(mode | mode::OPEN, order("C2", Ordering::Release));
        if self.kind() == Kind::Cpu {
            let limit = u16::try_from(packed::lanes().min(MAX_LIMIT)).unwrap_or(0);
            // INVARIANT: 3. Release [R2]: pairs with the acquire [R1] in the sequence, as above.
            self.window.limit.store(limit, order("R2", Ordering::Release));
        }
    }

    /// Closes the cells: sections that begin after the next grace period do not add.
    pub(crate) fn close(&self) {
        // INVARIANT: 3.
        self.window.limit.store(0, Ordering::Relaxed);
        let mode = self.window.side.mode.load(Ordering::Relaxed);
        self.window.side.mode.store(mode & !mode::OPEN, Ordering::Relaxed);
    }

    /// Frees the cells, after `close` and a grace period.
    pub(crate) fn free(&self, _: Quiescent) {
        let cells = self.window.cells.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(cells) = NonNull::new(cells) {
            match self.kind() {
                // SAFETY: `cells` was this count's alone (1), nobody can be adding (2), and it is null from here on.
                Kind::Thread => drop(unsafe { Box::<ThreadCells>::from_raw(cells.as_ptr().cast()) }),
                // SAFETY: as above; the number is at most that of the lanes.
                _ => unsafe { packed::free(cells, self.lanes_in_use()) },
            }
        }
    }

    /// How many lanes anybody may have written to.
    fn lanes_in_use(&self) -> usize {
        match self.kind() {
            Kind::Cpu => packed::lanes(),
            Kind::Lane => packed::lanes().min(thread_lanes_in_use()),
            Kind::Thread => 0,
        }
    }

    /// The cells in the lanes that have been in use.
    fn lanes(&self) -> impl Iterator<Item = &AtomicU64> {
        let first = NonNull::new(self.window.cells.load(Ordering::Relaxed));
        (0..self.lanes_in_use()).zip(std::iter::repeat(first)).filter_map(|(lane, first)| {
            // SAFETY: `first` has a cell in each lane (1), and the lanes are `LANE` apart.
            let cell = unsafe { first?.add(lane * LANE) };
            // SAFETY: the cells are freed by whoever switches the count, which is who calls this, or in `drop` (2).
            Some(unsafe { cell.as_ref() })
        })
    }

    fn thread_cells(&self) -> Option<&ThreadCells> {
        debug_assert_eq!(self.kind(), Kind::Thread);
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
