//! The same primitives inside the loom model checker.
//!
//! loom runs a body again and again, once for each interleaving that could matter, on one real thread. So nothing here
//! blocks for real or looks at a clock, statics are made anew for each run, and whatever a model does not explore is
//! replaced by the smallest thing that keeps its promise.

use std::sync::LazyLock;
use std::time::Instant;

pub(crate) use super::Ordering;
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    };
}
pub(crate) use loom::thread::yield_now;

/// A model has no clock.
pub(crate) fn now() -> Option<Instant> {
    None
}

/// All threads of a model are one.
pub(crate) fn identity() -> super::Identity {
    super::Identity::default()
}

/// The ledger entry that this run weakens.
static MUTANT: LazyLock<String> = LazyLock::new(|| std::env::var("PERCPU_REF_MUTANT").unwrap_or_default());

fn is_mutant(id: &str) -> bool {
    *MUTANT == id
}

/// The ordering of a ledger entry, or `Relaxed` for the mutant.
pub(crate) fn order(id: &str, order: Ordering) -> Ordering {
    if is_mutant(id) { Ordering::Relaxed } else { order }
}

/// A fence that is a ledger entry; nothing for the mutant.
pub(crate) fn fence(id: &str, order: Ordering) {
    if !is_mutant(id) {
        loom::sync::atomic::fence(order);
    }
}

/// Fails the model unless everything that others did with the atomic comes before this.
pub(crate) fn settled(atomic: &mut atomic::AtomicUsize) {
    atomic.with_mut(|_| ());
}

/// Half of the asymmetric fence; a full fence is the nearest thing that loom knows.
pub(crate) fn light(id: &str) {
    fence(id, Ordering::SeqCst);
}

/// The model's machine has every kernel feature.
pub(crate) fn register_membarrier() -> bool {
    true
}

/// The other half.
pub(crate) fn heavy(id: &str) {
    fence(id, Ordering::SeqCst);
}

/// There is one process only.
pub(crate) struct OnFork;

impl OnFork {
    pub(crate) const fn new(_hook: fn() -> Box<dyn FnOnce(bool)>) -> Self {
        Self
    }

    pub(crate) fn register(&'static self) {}
}

/// There is one process only.
#[derive(Clone, Copy)]
pub(crate) struct Generation;

impl Generation {
    pub(crate) fn now() -> Self {
        Self
    }

    pub(crate) fn is_over(self) -> bool {
        false
    }
}

/// Tells somebody, if anybody reads.
pub(crate) fn complain(message: &str) {
    eprint!("{message}");
}

/// Memory from the global allocator.
pub(crate) mod pages {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    /// Small, because each execution fills it with zeroes.
    pub(crate) const BLOCK: usize = 1 << 12;

    /// A model's atomic is a number by which loom knows it.
    pub(crate) const ZEROES_ARE_ATOMICS: bool = false;

    pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(len, align).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    pub(crate) fn wish_for_huge(_start: NonNull<u8>, _len: usize) {}

    /// # Safety
    /// 1. The range is part of a mapping, and nobody else uses it.
    pub(crate) unsafe fn discard(_start: NonNull<u8>, _len: usize) {}

    /// # Safety
    /// 1. The arguments are those of a mapping, and nobody uses it any more.
    pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize, align: usize) {
        let layout = Layout::from_size_align(len, align).expect("`map` made one of it");
        // SAFETY: 1.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

/// A model waits by letting the others go on.
#[derive(Default)]
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn snooze(&mut self) {
        yield_now();
    }

    pub(crate) fn is_asleep(&self) -> bool {
        false
    }
}

/// A model sleeps at once.
pub(crate) const PATIENCE: usize = 0;

/// Lets the other threads go on: whoever spins in a model spins for ever otherwise.
pub(crate) fn relax() {
    yield_now();
}

macro_rules! global {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        loom::lazy_static! { $(#[$m])* static ref $name: $t = $init; }
    };
}
pub(crate) use global;

macro_rules! local {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        loom::thread_local! { $(#[$m])* static $name: $t = $init; }
    };
}
pub(crate) use local;

/// A model has the threads that it starts itself, so callbacks take the path of a system without threads to give.
pub(crate) fn spawn(_name: &str, _body: impl FnOnce() + Send + 'static) -> bool {
    false
}

/// loom's lock, without poisoning.
#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);
pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a model that panics is over")
    }
}

/// loom's condition variable.
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect("a model that panics is over")
    }

    /// There is no clock, so there is no deadline.
    pub(crate) fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, _deadline: Option<Instant>) -> MutexGuard<'a, T> {
        self.wait(guard)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// What the kernel does for a futex: the look at the word and the falling asleep are one step for the waker.
#[derive(Default)]
pub(crate) struct Futex {
    pub(crate) word: atomic::AtomicU32,
    bucket: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
}

impl Futex {
    /// Sleeps while the word is `seen`. A model has no time: a deadline has always passed.
    pub(crate) fn wait(&self, seen: u32, deadline: Option<Instant>) -> bool {
        if deadline.is_some() {
            return false;
        }
        let bucket = self.bucket.lock().expect("a model that panics is over");
        if self.word.load(Ordering::Relaxed) == seen {
            drop(self.sleepers.wait(bucket).expect("a model that panics is over"));
        }
        true
    }

    pub(crate) fn wake_all(&self) {
        drop(self.bucket.lock().expect("a model that panics is over"));
        self.sleepers.notify_all();
    }
}

/// The packed lock, as two fields.
pub(crate) struct Packed<T, S> {
    guarded: Mutex<T>,
    pub(crate) side: S,
}

impl<T, S> Packed<T, S> {
    pub(crate) fn new(guarded: T, side: S) -> Self {
        Self { guarded: Mutex::new(guarded), side }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.guarded.lock()
    }
}

/// Numbers the threads of one execution: the lanes that they count in.
mod lanes {
    loom::lazy_static! {
        // std's: the number of a thread is not a question for the model.
        static ref NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    }
    loom::thread_local! {
        static LANE: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn here() -> usize {
        LANE.with(|lane| *lane)
    }
}

/// Epochs: a word for each thread that is odd while the thread is pinned, with a full fence after the pin.
pub(crate) mod epoch {
    use super::atomic::AtomicUsize;
    use super::{Ordering, fence, lanes, order, yield_now};

    const THREADS: usize = 4;

    loom::lazy_static! {
        static ref PINNED: [AtomicUsize; THREADS] = std::array::from_fn(|_| AtomicUsize::new(0));
    }
    loom::thread_local! {
        static DEPTH: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    pub(crate) struct Guard(std::marker::PhantomData<*const ()>);

    pub(crate) fn pin() -> Guard {
        if DEPTH.with(|d| d.replace(d.get() + 1)) == 0 {
            let word = &PINNED[lanes::here()];
            // Whoever finds the thread pinned again sees what it did when it was pinned before.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
            fence("P1", Ordering::SeqCst);
        }
        Guard(std::marker::PhantomData)
    }

    /// Of interest after a fork only.
    pub(crate) fn section_ended() {}

    impl Drop for Guard {
        fn drop(&mut self) {
            if DEPTH.with(|d| d.replace(d.get() - 1)) == 1 {
                let word = &PINNED[lanes::here()];
                word.store(word.load(Ordering::Relaxed) + 1, order("P3", Ordering::Release));
            }
        }
    }

    pub(crate) fn is_pinned() -> bool {
        DEPTH.with(|d| d.get() > 0)
    }

    pub(crate) fn wait_for_readers(_look: impl FnMut()) {
        fence("P2", Ordering::SeqCst);
        for word in PINNED.iter() {
            let seen = word.load(order("P4", Ordering::Acquire));
            while seen % 2 == 1 && word.load(order("P4", Ordering::Acquire)) == seen {
                yield_now();
            }
        }
    }
}

/// A cell for each of the model's threads.
pub(crate) struct ThreadCells([atomic::AtomicU64; 4]);

impl Default for ThreadCells {
    fn default() -> Self {
        Self(std::array::from_fn(|_| atomic::AtomicU64::new(0)))
    }
}

impl ThreadCells {
    pub(crate) fn add(&self, n: u64) -> bool {
        let cell = &self.0[lanes::here()];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        true
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
    }

    pub(crate) fn zero(&self) {
        self.0.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
}

/// Restartable sequences: nobody else gets in between, and `heavy` comes before or after each one as a whole.
pub(crate) mod restartable {
    use super::atomic::{AtomicPtr, AtomicU16, AtomicU64};
    use super::{Mutex, Ordering, is_mutant, lanes};
    use std::ptr::NonNull;

    /// Cells in a lane.
    pub(crate) const LANE: usize = 64;
    /// Lanes where threads, not CPUs, count.
    pub(crate) const THREAD_LANES: usize = 4;
    const CPUS: usize = 2;
    /// The largest limit of a window.
    pub(crate) const MAX_LIMIT: usize = CPUS;

    pub(crate) fn possible_cpus() -> usize {
        CPUS
    }

    /// One cell in each lane is enough for a model that makes few refs; the rest is address space.
    pub(crate) struct Region(Box<[AtomicU64]>);

    impl Region {
        pub(crate) fn map(lanes: usize) -> Option<Self> {
            Some(Self((0..lanes * LANE).map(|_| AtomicU64::new(0)).collect()))
        }

        pub(crate) fn start(&self) -> NonNull<AtomicU64> {
            NonNull::from(&self.0[0])
        }
    }

    loom::lazy_static! {
        static ref CPU: [Mutex<()>; CPUS] = std::array::from_fn(|_| Mutex::new(()));
    }

    /// Whether this process uses sequences; what the offset of the rseq area tells for real.
    static IN_USE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    pub(crate) fn available() -> bool {
        IN_USE.store(true, Ordering::Relaxed);
        true
    }

    /// Restarts the sequences under way: in the model, it waits for each CPU's to be over.
    pub(crate) fn heavy(id: &str) {
        if !is_mutant(id) {
            for cpu in CPU.iter() {
                drop(cpu.lock());
            }
        }
    }

    pub(crate) struct Window<S> {
        pub(crate) cells: AtomicPtr<AtomicU64>,
        pub(crate) limit: AtomicU16,
        pub(crate) side: S,
    }

    impl<S> Window<S> {
        pub(crate) fn new(cells: *mut AtomicU64, _for_sequences: bool, side: S) -> Self {
            Self { cells: AtomicPtr::new(cells), limit: AtomicU16::new(0), side }
        }

        pub(crate) fn add<const N: i32>(&self) -> bool {
            self.add_many(i64::from(N).cast_unsigned())
        }

        pub(crate) unsafe fn get_from<T, const BACK: usize>(slot: &AtomicPtr<T>) -> Option<NonNull<T>> {
            if !IN_USE.load(Ordering::Relaxed) {
                return None;
            }
            let cpu = lanes::here() % CPUS;
            let _sequence = CPU[cpu].lock();
            let value = NonNull::new(slot.load(super::order("K3", Ordering::Acquire)))?;
            // SAFETY: the caller says that a window lies there.
            let window = unsafe { value.cast::<u8>().sub(BACK) };
            // SAFETY: as above.
            let window = unsafe { window.cast::<Self>().as_ref() };
            window.add_in_sequence(cpu, 1).then_some(value)
        }

        pub(crate) fn add_many(&self, n: u64) -> bool {
            if self.limit.load(Ordering::Relaxed) == 0 {
                return false;
            }
            let cpu = lanes::here() % CPUS;
            let _sequence = CPU[cpu].lock();
            self.add_in_sequence(cpu, n)
        }

        fn add_in_sequence(&self, cpu: usize, n: u64) -> bool {
            if cpu >= self.limit.load(super::order("R1", Ordering::Acquire)) as usize {
                return false;
            }
            let cells = self.cells.load(Ordering::Relaxed);
            // SAFETY: the window is open, so `cells` points to `limit` lanes.
            let cell = unsafe { &*cells.add(cpu * LANE) };
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            true
        }
    }
}
