//! What the models share.
#![cfg(percpu_ref_loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// Explores `body` with at most `preemptions` forced switches in each execution.
pub fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(body);
}

/// Each model for both flavours, as `fn name<F>(preemptions) { body }`; the file has the flavours in scope.
#[macro_export]
macro_rules! both {
    ($($(#[$m:meta])* fn $name:ident<$F:ident>($preemptions:literal) $body:block)*) => {$(
        mod $name {
            use super::*;
            $(#[$m])*
            fn body<$F: Flavor>() {
                $crate::model($preemptions, || $body);
            }
            #[test]
            fn plain() { body::<Plain>(); }
            #[test]
            fn sched() { body::<Sched>(); }
        }
    )*};
}

/// Polls a future once.
pub fn poll<T: Future + Unpin>(future: &mut T, waker: &Waker) -> Poll<T::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future, and once more when it has been woken: it has to be ready then.
pub fn finish<T: Future + Unpin>(mut future: T) -> T::Output {
    let bell = Bell::new();
    let waker = Waker::from(std::sync::Arc::new(bell.clone()));
    match poll(&mut future, &waker) {
        Poll::Ready(value) => value,
        Poll::Pending => {
            bell.wait();
            let Poll::Ready(value) = poll(&mut future, &waker) else { panic!("woken for nothing") };
            value
        }
    }
}

/// What one thread writes and another reads, with nothing of its own to order the two: loom fails the model if an
/// access and a write are concurrent.
#[derive(Clone)]
pub struct Note(Arc<UnsafeCell<usize>>);

// SAFETY: loom runs all threads of a model on one, and checks every access.
unsafe impl Send for Note {}
// SAFETY: as above.
unsafe impl Sync for Note {}

impl Note {
    pub fn new() -> Self {
        Self(Arc::new(UnsafeCell::new(0)))
    }

    pub fn write(&self, value: usize) {
        // SAFETY: loom checks that no other access is concurrent.
        self.0.with_mut(|note| unsafe { *note = value });
    }

    pub fn read(&self) -> usize {
        // SAFETY: loom checks that no write is concurrent.
        self.0.with(|note| unsafe { *note })
    }
}

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts, and orders nothing.
#[derive(Clone)]
pub struct Tally(Arc<AtomicUsize>);

impl Tally {
    pub fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    pub fn up(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// Wakes a thread of the model.
#[derive(Clone)]
pub struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    pub fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub fn wait(&self) {
        let mut rung = self.0.0.lock().unwrap();
        while !*rung {
            rung = self.0.1.wait(rung).unwrap();
        }
    }
}

// SAFETY: loom runs all threads of a model on one.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}
