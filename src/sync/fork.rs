//! Locks and forks.
//!
//! A forked child has a copy of every lock and only one of the threads: a lock that another thread held stays locked for
//! ever. So the locks of the whole process are taken before a fork and released after it on both sides, and the child
//! also forgets what its lost threads were doing. Locks of single refs are too many to be listed: whoever has one of them
//! holds a gate open, and a fork waits until it has shut the gate.

use super::{Mutex, MutexGuard};
use crate::sys;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a lock and returns what releases it; that is told whether it runs in the child.
pub(crate) type Hook = fn() -> Box<dyn FnOnce(bool)>;

static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// Read by whoever has the lock of a ref, written by a fork. Nothing but the allocator of cells is locked under it.
static GATE: RwLock<()> = RwLock::new(());

std::thread_local! {
    /// How many guards of [`hold_off`] this thread has. No destructor.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Keeps this process from being forked while it exists. Those of one thread nest: the first is to be dropped last.
pub(crate) struct HoldOff {
    /// Only the first of a thread has it: a second look at a lock that a fork waits for would wait for the fork.
    _gate: Option<RwLockReadGuard<'static, ()>>,
}

/// Keeps this process from being forked until the guard drops.
pub(crate) fn hold_off() -> HoldOff {
    install();
    let first = DEPTH.replace(DEPTH.get() + 1) == 0;
    HoldOff { _gate: first.then(|| GATE.read().unwrap_or_else(PoisonError::into_inner)) }
}

impl Drop for HoldOff {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

struct Held {
    gate: RwLockWriteGuard<'static, ()>,
    hooks: MutexGuard<'static, Vec<Hook>>,
    releases: Vec<Box<dyn FnOnce(bool)>>,
}

std::thread_local! {
    /// From `Box::into_raw`. No destructor: a thread may fork in the last of its own.
    static HELD: Cell<*mut Held> = const { Cell::new(ptr::null_mut()) };
}

/// A hook that is registered when it is first needed.
///
/// Not a `Once`: a thread that is about to register waits for the lock while another forks, and in the child a `Once` would
/// wait for that thread for ever.
pub(crate) struct OnFork {
    registered: AtomicBool,
    hook: Hook,
}

impl OnFork {
    pub(crate) const fn new(hook: Hook) -> Self {
        Self { registered: AtomicBool::new(false), hook }
    }

    /// Runs the hook before each fork from now on.
    pub(crate) fn register(&'static self) {
        if self.registered.load(Ordering::Acquire) {
            return;
        }
        install();
        let mut hooks = HOOKS.lock();
        if !self.registered.swap(true, Ordering::Release) {
            hooks.push(self.hook);
        }
    }
}

// A fork that has begun runs no handlers that come later, and it may be long about those of others, which it runs first. So
// ours are there before any thread is. Then those of the program come later, too, and run outside of ours: they may use the
// library.
sys::fork::at_load!(install);

/// Has forks run the hooks, if the loader has not done so. Nobody goes on before they do; two threads that come at the same time install them twice.
extern "C" fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        // Ours allocate. An allocator that has handlers of its own installs them when it is first used, and keeps everybody
        // out between them.
        drop(std::hint::black_box(Box::new(0_u8)));
        sys::fork::around(prepare, parent, child);
        INSTALLED.store(true, Ordering::Release);
    }
}

/// Which process something was made in: it is over in the children that are forked later.
///
/// For whoever has locks that no hook can take, because they are held for a few instructions and taken too often to
/// hold forks off: in a child, they are not taken any more.
#[derive(Clone, Copy)]
pub(crate) struct Generation(usize);

/// Forks that led to this process. Changes in a child's one thread only.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

impl Generation {
    pub(crate) fn now() -> Self {
        install();
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is a child of that process.
    #[inline(always)]
    pub(crate) fn is_over(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

/// Whether this process is a forked child of one that this library was loaded in.
pub(crate) fn is_forked() -> bool {
    GENERATION.load(Ordering::Relaxed) != 0
}

extern "C" fn prepare() {
    if !HELD.get().is_null() {
        return; // They are installed twice, and this is the second call of one fork.
    }
    // First: a holder of the gate may be about to take one of the others.
    let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let hooks = HOOKS.lock();
    let releases = hooks.iter().map(|hook| hook()).collect();
    HELD.set(Box::into_raw(Box::new(Held { gate, hooks, releases })));
}

extern "C" fn parent() {
    release(false);
}

extern "C" fn child() {
    release(true);
}

fn release(in_child: bool) {
    let held = HELD.replace(ptr::null_mut());
    if !held.is_null() {
        GENERATION.fetch_add(usize::from(in_child), Ordering::Relaxed);
        // SAFETY: it comes from `into_raw` in `prepare`, on this thread, and was taken out just now.
        let held = *unsafe { Box::from_raw(held) };
        held.releases.into_iter().rev().for_each(|release| release(in_child));
        drop(held.hooks);
        drop(held.gate);
    }
}
