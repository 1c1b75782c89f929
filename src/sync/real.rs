//! The real primitives.

use crate::sys;
use std::cell::UnsafeCell;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(crate) use super::Ordering;
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
}
use super::fork::is_forked;
pub(crate) use super::fork::{Generation, OnFork};
pub(crate) use std::thread::yield_now;
pub(crate) use sys::Backoff;
pub(crate) use sys::membarrier::{heavy, register as register_membarrier};

/// Tells somebody, if anybody reads.
pub(crate) fn complain(message: &str) {
    sys::stderr::write(message.as_bytes());
}

/// Memory from the system, in large pieces.
pub(crate) mod pages {
    pub(crate) use super::sys::pages::{discard, map, unmap, wish_for_huge};

    /// A good size for such a piece: that of a huge page on most machines.
    pub(crate) const BLOCK: usize = 1 << 21;

    /// Zeroed memory is as good as atomics that are zero.
    pub(crate) const ZEROES_ARE_ATOMICS: bool = true;
}

/// The ordering of a ledger entry.
#[inline(always)]
pub(crate) const fn order(_id: &str, order: Ordering) -> Ordering {
    order
}

/// A fence that is a ledger entry.
#[inline(always)]
pub(crate) fn fence(_id: &str, order: Ordering) {
    std::sync::atomic::fence(order);
}

/// The reader's half of the asymmetric fence: it stops the compiler only.
#[inline(always)]
pub(crate) fn light(_id: &str) {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Nobody else uses the atomic any more, and what they did with it comes before this: a model checks that.
#[inline(always)]
pub(crate) fn settled(_atomic: &mut atomic::AtomicUsize) {}

/// How often a thread yields before it sleeps on something that takes microseconds.
pub(crate) const PATIENCE: usize = 64;

/// Tells the processor that this thread spins.
#[inline]
pub(crate) fn relax() {
    std::hint::spin_loop();
}

/// A `static` of this layer's types.
macro_rules! global {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        $(#[$m])* static $name: $t = $init;
    };
}
pub(crate) use global;

/// A thread-local whose initial value is a constant.
macro_rules! local {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        std::thread_local! { $(#[$m])* static $name: $t = const { $init }; }
    };
}
pub(crate) use local;

/// What the clock says.
pub(crate) fn now() -> Option<Instant> {
    Some(Instant::now())
}

/// This thread.
pub(crate) fn identity() -> super::Identity {
    super::Identity { name: sys::threads::name(), os_id: sys::threads::id() }
}

/// Starts a detached thread with the given name; false if the system has none to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    sys::signals::with_all_blocked(|| std::thread::Builder::new().name(name.to_owned()).spawn(body).is_ok())
}

/// A lock for state of the whole process.
///
/// It is the standard library's rather than parking_lot's: that one keeps its waiters in a table of its own, which a
/// fork can leave locked in the child, whereas this one is a word that [`sys::fork`] can lock before and unlock after.
#[derive(Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);
pub(crate) type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Poisoning is ignored: no user code runs under a lock of ours, and ours leaves no invariant broken when it panics.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable for [`Mutex`].
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As `wait`, and returns at the deadline too.
    pub(crate) fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        let Some(deadline) = deadline else { return self.wait(guard) };
        let left = deadline.saturating_duration_since(Instant::now());
        self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A word to sleep on; see [`Event`](super::Event).
#[derive(Default)]
pub(crate) struct Futex {
    pub(crate) word: atomic::AtomicU32,
}

impl Futex {
    /// Sleeps while the word is `seen`; false only if the deadline has passed. May return early.
    pub(crate) fn wait(&self, seen: u32, deadline: Option<Instant>) -> bool {
        let left = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return false,
            left => left,
        };
        sys::futex::wait(&self.word, seen, left);
        true
    }

    pub(crate) fn wake_all(&self) {
        sys::futex::wake_all(&self.word);
    }
}

/// A lock of one byte around `T`, with an `S` beside it that needs no lock: an object that exists a million times
/// cannot afford the padding that a lock and a word cost when they are two fields.
pub(crate) struct Packed<T, S> {
    guarded: UnsafeCell<T>,
    /// Not protected by the lock.
    pub(crate) side: S,
    raw: parking_lot::RawMutex,
}

// SAFETY: `guarded` is reached only through `lock`, that is by one thread at a time, so sharing `Packed` hands `T`
// from thread to thread but never shares it; `S` is shared.
unsafe impl<T: Send, S: Sync> Sync for Packed<T, S> {}

impl<T, S> Packed<T, S> {
    pub(crate) const fn new(guarded: T, side: S) -> Self {
        Self { guarded: UnsafeCell::new(guarded), side, raw: <parking_lot::RawMutex as lock_api::RawMutex>::INIT }
    }

    pub(crate) fn lock(&self) -> PackedGuard<'_, T, S> {
        let no_fork = super::fork::hold_off();
        let state = lock_api::RawMutex::lock(&self.raw);
        PackedGuard { of: self, state: Some(state), _no_fork: no_fork }
    }
}

/// Holds the lock of a [`Packed`].
pub(crate) struct PackedGuard<'a, T, S> {
    of: &'a Packed<T, S>,
    state: Option<<parking_lot::RawMutex as lock_api::RawMutex>::Guard>,
    /// Dropped after the lock: these locks are too many to be listed for a fork, so forks wait for them.
    _no_fork: super::fork::HoldOff,
}

impl<T, S> std::ops::Deref for PackedGuard<'_, T, S> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so nobody else has a reference into `guarded`.
        unsafe { &*self.of.guarded.get() }
    }
}

impl<T, S> std::ops::DerefMut for PackedGuard<'_, T, S> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference made from the guard.
        unsafe { &mut *self.of.guarded.get() }
    }
}

impl<T, S> Drop for PackedGuard<'_, T, S> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            // SAFETY: the guard holds the lock, which gave it this state, and is going away.
            unsafe { lock_api::RawMutex::unlock(&self.of.raw, state) }
        }
    }
}

/// The epochs of crossbeam, as far as [`Plain`](crate::rcu::Plain) needs them.
///
/// A forked child has a copy of crossbeam's default collector, and in it the pins of threads that the child does not have:
/// they would hold up its epochs for ever. So a child starts over with a collector of its own. The one section that
/// goes on in it is that of the thread that forked, which pins the new collector too until it is over.
pub(crate) mod epoch {
    use super::atomic::{AtomicBool, AtomicPtr};
    use super::{OnFork, Ordering, is_forked, sys};
    pub(crate) use crossbeam_epoch::Guard;
    use crossbeam_epoch::{Collector, LocalHandle};
    use std::cell::RefCell;
    use std::ptr;
    use std::rc::Rc;
    use std::sync::Arc;

    /// Null: crossbeam's default collector. UNPREPARED: the same, and a fork would not be noticed yet. Otherwise this
    /// process is a forked child, and this is its own, which is never freed. Changes at the first use, and in a child's one
    /// thread.
    static COLLECTOR: AtomicPtr<Collector> = AtomicPtr::new(UNPREPARED);
    const UNPREPARED: *mut Collector = ptr::without_provenance_mut(1);

    /// In a forked child.
    struct Own {
        collector: &'static Collector,
        handle: LocalHandle,
    }

    std::thread_local! {
        /// This thread's places in the collectors of forked children; the last is in use. Those before are from before
        /// later forks, and kept because a section may have begun in them.
        static OWN: RefCell<Vec<Rc<Own>>> = const { RefCell::new(Vec::new()) };
        /// Stands for a section that was open when this thread forked.
        static CARRIED: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }

    /// Begins a section.
    #[inline]
    pub(crate) fn pin() -> Guard {
        if COLLECTOR.load(Ordering::Relaxed).is_null() { crossbeam_epoch::pin() } else { pin_otherwise() }
    }

    #[cold]
    fn pin_otherwise() -> Guard {
        prepare_for_forks();
        let Some(collector) = own_collector() else { return crossbeam_epoch::pin() };
        let own = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if !own.last().is_some_and(|own| ptr::eq(own.collector, collector)) {
                own.push(Rc::new(Own { collector, handle: collector.register() }));
            }
            own.last().cloned()
        });
        match own.ok().flatten() {
            // Not while `OWN` is borrowed: a pin may run what the program has deferred.
            Some(own) => own.handle.pin(),
            // In the last destructors of a thread a place is taken for the section only.
            None => collector.register().pin(),
        }
    }

    fn own_collector() -> Option<&'static Collector> {
        // Acquire: pairs with Release in `prepare_for_forks`.
        let collector = COLLECTOR.load(Ordering::Acquire);
        // SAFETY: neither null nor UNPREPARED: then it was leaked in `start_over` or `prepare_for_forks`.
        (!collector.is_null() && collector != UNPREPARED).then(|| unsafe { &*collector })
    }

    /// Notices forks from now on.
    fn prepare_for_forks() {
        static FORKS: OnFork = OnFork::new(|| {
            // It is made by whoever asks first, while others wait, and a child would wait for ever for a lost thread. (One that
            // has a collector of its own may be such a child.)
            if own_collector().is_none() {
                crossbeam_epoch::default_collector();
            }
            Box::new(|in_child| {
                if in_child {
                    start_over();
                }
            })
        });
        if COLLECTOR.load(Ordering::Relaxed) == UNPREPARED {
            FORKS.register();
            // In a child, threads that it does not have may be pinned in the default one, whoever used that.
            let own = is_forked().then(|| Box::into_raw(Box::new(Collector::new())));
            let chosen = own.unwrap_or(ptr::null_mut());
            // Release: pairs with Acquire in `own_collector`.
            let first = COLLECTOR.compare_exchange(UNPREPARED, chosen, Ordering::Release, Ordering::Relaxed).is_ok();
            if let Some(own) = own.filter(|_| !first) {
                // SAFETY: it comes from `into_raw`, and nobody has seen it.
                drop(unsafe { Box::from_raw(own) });
            }
        }
    }

    /// In a forked child, which has one thread.
    fn start_over() {
        let goes_on = is_pinned();
        let collector: &'static Collector = Box::leak(Box::new(Collector::new()));
        COLLECTOR.store(ptr::from_ref(collector).cast_mut(), Ordering::Relaxed);
        let carried = goes_on.then(|| collector.register().pin());
        let before = CARRIED.try_with(|slot| slot.replace(carried));
        // The collector that it pinned is nobody's any more.
        drop(before);
    }

    /// Whether this thread is in a section.
    pub(crate) fn is_pinned() -> bool {
        prepare_for_forks();
        // The default collector is not asked where nothing of ours can be pinned in it: it may be half made, by a thread that
        // this child does not have.
        let ask_default =
            own_collector().is_none() || CARRIED.try_with(|slot| slot.borrow().is_some()).unwrap_or(false);
        ask_default && crossbeam_epoch::is_pinned()
            || OWN.try_with(|own| own.borrow().iter().any(|own| own.handle.is_pinned())).unwrap_or(false)
    }

    /// To be called when a section ends: in a child whose thread forked inside one, that may have been it.
    #[inline]
    pub(crate) fn section_ended() {
        if !COLLECTOR.load(Ordering::Relaxed).is_null() {
            end_carried();
        }
    }

    #[cold]
    fn end_carried() {
        if !is_pinned() {
            drop(CARRIED.try_with(RefCell::take));
        }
    }

    /// Blocks until every section that is open now has ended; if that takes long, `look` is called now and then, outside
    /// any section.
    ///
    /// crossbeam runs deferred work only when somebody pins. Nobody may, in an idle process, so this loop does.
    pub(crate) fn wait_for_readers(mut look: impl FnMut()) {
        section_ended();
        let over = Arc::new(AtomicBool::new(false));
        let collector;
        {
            let guard = pin();
            collector = COLLECTOR.load(Ordering::Relaxed);
            let over = Arc::clone(&over);
            guard.defer(move || over.store(true, Ordering::Release));
            guard.flush();
        }
        let mut wait = sys::Backoff::default();
        while !over.load(Ordering::Acquire) {
            pin().flush();
            wait.snooze();
            if wait.is_asleep() {
                look();
            }
            if COLLECTOR.load(Ordering::Relaxed) != collector {
                return; // This thread has forked in `look`, and this is the child: the sections have gone with their threads.
            }
        }
    }
}

/// A cell for each thread that counts, in the care of the thread_local crate: a cell outlives its thread and passes to
/// the next thread that takes over its number.
#[derive(Default)]
pub(crate) struct ThreadCells(thread_local::ThreadLocal<atomic::AtomicU64>);

/// Whether this thread has been seen by the thread_local crate.
static SEEN: thread_local::ThreadLocal<()> = thread_local::ThreadLocal::new();
local! {
    static WAS_SEEN: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

impl ThreadCells {
    /// Adds to this thread's cell; false if the thread is past the point where it can have one.
    pub(crate) fn add(&self, n: u64) -> bool {
        let cell = match self.0.get() {
            Some(cell) => cell,
            None if Self::may_ask() && Self::has_room() => self.0.get_or_default(),
            None => return false,
        };
        // One thread at a time adds, and reads follow a grace period.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        true
    }

    /// The crate panics in a thread whose number it has taken back already: then the number is gone that it had once.
    #[cold]
    fn may_ask() -> bool {
        WAS_SEEN.with(|seen| {
            if !seen.replace(true) {
                // The numbers are given out under a lock of the crate's.
                let _no_fork = super::fork::hold_off();
                SEEN.get_or_default();
            }
            SEEN.get().is_some()
        })
    }

    /// The crate aborts the process where it finds no memory for a cell: see whether there is room for a few hundred,
    /// which is how many it allocates together at most.
    #[cold]
    fn has_room() -> bool {
        Vec::<[u64; 2]>::new().try_reserve_exact(256).is_ok()
    }

    /// The sum, modulo 2^64.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
    }

    /// Zeroes the cells.
    pub(crate) fn zero(&self) {
        self.0.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
}

/// Counting in restartable sequences.
pub(crate) mod restartable {
    use super::atomic::{AtomicPtr, AtomicU16, AtomicU64};
    use super::sys;
    use std::ptr::NonNull;
    pub(crate) use sys::cpus::possible as possible_cpus;
    pub(crate) use sys::rseq::{MAX_LIMIT, heavy};

    /// Whether this process can count in sequences.
    pub(crate) fn available() -> bool {
        sys::rseq::area().is_some()
    }

    /// Cells in a lane: the distance between two cells of one count, in cells.
    pub(crate) const LANE: usize = 1 << (sys::rseq::LANE_SHIFT - 3);
    /// Lanes where threads, not CPUs, count.
    pub(crate) const THREAD_LANES: usize = 256;

    /// Zeroed cells, [`LANE`] in each of some lanes, straight from the system: no two lanes share a page, and a page
    /// that nobody touches costs nothing.
    pub(crate) struct Region {
        start: NonNull<AtomicU64>,
        lanes: usize,
    }

    // SAFETY: a region is memory that consists of atomics.
    unsafe impl Send for Region {}

    impl Region {
        pub(crate) fn map(lanes: usize) -> Option<Self> {
            let lane = 1 << sys::rseq::LANE_SHIFT;
            let start = sys::pages::map(lanes.checked_mul(lane)?, lane)?.cast();
            Some(Self { start, lanes })
        }

        /// Lane 0's first cell.
        pub(crate) fn start(&self) -> NonNull<AtomicU64> {
            self.start
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            let lane = 1 << sys::rseq::LANE_SHIFT;
            // SAFETY: `start`, the length and the alignment are those of `map`, and the owner of the region says that it is
            // unused.
            unsafe { sys::pages::unmap(self.start.cast(), self.lanes * lane, lane) };
        }
    }

    /// Where a count's cells are, and whether a sequence may add to them; `S` uses the padding.
    #[repr(C)]
    pub(crate) struct Window<S> {
        /// Lane 0's cell. Changes only while no sequence can be under way.
        pub(crate) cells: AtomicPtr<AtomicU64>,
        /// How many lanes a sequence may use: 0 closes the window.
        pub(crate) limit: AtomicU16,
        /// Not for the sequence: two bytes.
        pub(crate) side: S,
        /// Where a thread has its rseq area.
        area: i32,
    }

    impl<S> Window<S> {
        /// A closed window. It may be opened only if `for_sequences` is true.
        pub(crate) fn new(cells: *mut AtomicU64, for_sequences: bool, side: S) -> Self {
            const {
                assert!(size_of::<S>() == 2 && std::mem::offset_of!(Self, limit) == 8);
                assert!(std::mem::offset_of!(Self, area) == 12);
            }
            let area = if for_sequences { sys::rseq::area() } else { None }.unwrap_or(0);
            Self { cells: AtomicPtr::new(cells), limit: AtomicU16::new(0), side, area }
        }

        /// Adds `N` to the cell of this CPU unless the window is closed or this thread cannot tell its CPU.
        #[inline(always)]
        pub(crate) fn add<const N: i32>(&self) -> bool {
            // SAFETY: 1. `new` made the area what it has to be. 2. `Cells` opens only windows that are for sequences and
            // whose `cells` point to `limit` lanes, and keeps it so until the window is closed and `heavy` has run.
            unsafe { sys::rseq::add_const::<N>((&raw const *self).cast()) }
        }

        /// Loads `slot` and [adds](Self::add) 1 through the window that lies `BACK` bytes before what it points to, in
        /// one sequence; `None` if nothing was added.
        ///
        /// # Safety
        /// 1. `slot` points into an allocation with a window of this type, as `Cells` treats it, that many bytes before.
        /// 2. After another pointer has taken its place, the allocation stays until the window has been closed and
        ///    `heavy` has run.
        #[inline(always)]
        pub(crate) unsafe fn get_from<T, const BACK: usize>(slot: &AtomicPtr<T>) -> Option<NonNull<T>> {
            // SAFETY: 1, 2, and an open window points to `limit` lanes.
            let value = unsafe { sys::rseq::get_from::<BACK>(slot.as_ptr().cast()) };
            NonNull::new(value.cast())
        }

        /// [`add`](Self::add) for a count that is not known at compile time.
        #[inline]
        pub(crate) fn add_many(&self, n: u64) -> bool {
            // SAFETY: as in `add`.
            unsafe { sys::rseq::add((&raw const *self).cast(), n) }
        }
    }
}
