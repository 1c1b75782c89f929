//! Which callbacks run on this thread right now.
//!
//! Waiting for a ref inside that ref's own callback never ends. To say so instead of hanging, a callback's run is marked
//! on its thread. The marks are a list on the stack: nothing is allocated, because a callback can run in a signal
//! handler.

use super::local;
use std::cell::Cell;
use std::ptr;

struct Mark {
    key: usize,
    outer: *const Mark,
}

local! {
    static INNERMOST: Cell<*const Mark> = Cell::new(ptr::null());
}

/// Runs `f`, and meanwhile [`is_within`] is true for `key` on this thread.
pub(crate) fn within<R>(key: usize, f: impl FnOnce() -> R) -> R {
    struct Restore(*const Mark);
    impl Drop for Restore {
        fn drop(&mut self) {
            INNERMOST.with(|innermost| innermost.set(self.0));
        }
    }
    let outer = INNERMOST.with(Cell::get);
    let mark = Mark { key, outer };
    INNERMOST.with(|innermost| innermost.set(&raw const mark));
    // Declared after `mark`, so that the list is restored before `mark` goes, in a panic too.
    let _restore = Restore(outer);
    f()
}

/// Whether this thread is inside [`within`] for `key`.
pub(crate) fn is_within(key: usize) -> bool {
    let mut at = INNERMOST.with(Cell::get);
    // SAFETY: each mark in the list lives in a frame of `within` below this one, on this thread's stack.
    while let Some(mark) = unsafe { at.as_ref() } {
        if mark.key == key {
            return true;
        }
        at = mark.outer;
    }
    false
}
