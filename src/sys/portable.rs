//! Any system: what the standard library alone can do.

/// No membarrier: readers pay for their fence themselves.
pub(crate) mod membarrier {
    pub(crate) fn register() -> bool {
        false
    }

    /// A full fence of the caller only.
    pub(crate) fn heavy(_id: &str) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Sleeping on a word, by way of a table of condition variables.
pub(crate) mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    const BUCKETS: usize = 64;
    static TABLE: [(Mutex<()>, Condvar); BUCKETS] = [const { (Mutex::new(()), Condvar::new()) }; BUCKETS];

    fn bucket(word: &AtomicU32) -> &'static (Mutex<()>, Condvar) {
        &TABLE[(word.as_ptr().addr() / 64) % BUCKETS]
    }

    /// Sleeps while `word` is `seen`, at most for `limit`. May return early, for no reason.
    pub(crate) fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
        let (lock, condition) = bucket(word);
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // The waker takes the lock after its change, so it either comes before this look or finds us asleep.
        if word.load(Ordering::Acquire) == seen {
            let limit = limit.unwrap_or(Duration::from_secs(3600)).min(Duration::from_secs(3600));
            drop(condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes everyone who sleeps on `word`.
    pub(crate) fn wake_all(word: &AtomicU32) {
        let (lock, condition) = bucket(word);
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        condition.notify_all();
    }
}

/// Memory from the global allocator.
pub(crate) mod pages {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    /// `len` zeroed bytes, aligned to `align`.
    pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(len, align).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    /// The allocator takes no wishes.
    pub(crate) fn wish_for_huge(_start: NonNull<u8>, _len: usize) {}

    /// The allocator takes nothing back piecemeal.
    ///
    /// # Safety
    /// 1. The range is part of a mapping of [`map`], and nobody else uses it.
    pub(crate) unsafe fn discard(_start: NonNull<u8>, _len: usize) {}

    /// Gives memory back.
    ///
    /// # Safety
    /// 1. `[start, start + len)` is a whole mapping of [`map`] with that `align`, and nobody uses it any more.
    pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize, align: usize) {
        let layout = Layout::from_size_align(len, align).expect("`map` made one of it");
        // SAFETY: 1.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

/// Only a system with restartable sequences counts by CPU.
pub(crate) mod cpus {
    pub(crate) fn possible() -> usize {
        1
    }
}

/// The standard library knows no fork.
pub(crate) mod fork {
    pub(crate) fn around(_prepare: extern "C" fn(), _parent: extern "C" fn(), _child: extern "C" fn()) {}

    macro_rules! at_load {
        ($function:path) => {
            const _: extern "C" fn() = $function;
        };
    }
    pub(crate) use at_load;
}

/// Standard error, as the standard library has it.
pub(crate) mod stderr {
    /// Writes a message. Not with `eprintln`, which panics if nobody reads: in the middle of a switch that would be its end.
    pub(crate) fn write(message: &[u8]) {
        drop(std::io::Write::write_all(&mut std::io::stderr(), message));
    }
}

/// Nor signals.
pub(crate) mod signals {
    pub(crate) fn with_all_blocked<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// Threads, as the standard library knows them.
pub(crate) mod threads {
    /// No number that a debugger would show.
    pub(crate) fn id() -> Option<u32> {
        None
    }

    /// The name. The standard library panics where it has forgotten its own part of the thread.
    pub(crate) fn name() -> Option<String> {
        let thread = std::panic::catch_unwind(std::thread::current).ok()?;
        thread.name().map(str::to_owned)
    }
}
