//! Locks and forks.
//!
//! A forked child has a copy of every lock and only one of the threads: a lock that another thread held stays locked for
//! ever. So the locks of the whole process are taken before a fork and released after it on both sides, and the child
//! also forgets what its lost threads were doing. Locks of single refs cannot be listed; a ref that another thread was
//! changing at that moment stays as it was.

use super::{Mutex, MutexGuard};
use crate::sys;
use std::cell::RefCell;
use std::sync::Once;

/// Takes a lock and returns what releases it; that is told whether it runs in the child.
pub(crate) type Hook = fn() -> Box<dyn FnOnce(bool)>;

static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

struct Held {
    hooks: MutexGuard<'static, Vec<Hook>>,
    releases: Vec<Box<dyn FnOnce(bool)>>,
}

std::thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Runs `hook` before each fork from now on.
pub(crate) fn on_fork(hook: Hook) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| sys::fork::around(prepare, parent, child));
    HOOKS.lock().push(hook);
}

extern "C" fn prepare() {
    let hooks = HOOKS.lock();
    let releases = hooks.iter().map(|hook| hook()).collect();
    // A thread that forks from one of its last destructors has nowhere to keep the locks: it goes without.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(Held { hooks, releases }));
}

extern "C" fn parent() {
    release(false);
}

extern "C" fn child() {
    release(true);
}

fn release(in_child: bool) {
    if let Ok(Some(held)) = HELD.try_with(|held| held.borrow_mut().take()) {
        held.releases.into_iter().rev().for_each(|release| release(in_child));
        drop(held.hooks);
    }
}
