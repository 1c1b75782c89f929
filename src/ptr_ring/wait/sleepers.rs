//! Those who sleep on one side of a ring, and how a thread does.
#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, AtomicUsize, Event, Mutex, Ordering, Wakers, fence};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Those who wait on one side.
pub(super) struct Sleepers {
    /// The length of the list. Written under the list's lock, read by anyone.
    number: AtomicUsize,
    /// Protects the list; nothing nests inside, and no waker is cloned, woken or dropped under it.
    list: Mutex<Wakers>,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        Self { number: AtomicUsize::new(0), list: Mutex::new(Wakers::default()) }
    }

    /// Puts a waker on the list; the caller tries again before it sleeps.
    pub(super) fn add(&self, ticket: &mut Option<u64>, waker: &Waker) {
        let waker = waker.clone();
        let old = {
            let mut list = self.list.lock();
            let old = list.put(ticket, waker);
            self.number.store(list.len(), Ordering::Relaxed);
            old
        };
        drop(old);
        // SeqCst [Q13]: pairs with SeqCst [Q14] in `wake`.
        // - We come first: `wake` sees our number.
        // - `wake` comes first: the attempt that follows sees the change of the ring.
        fence("Q13", Ordering::SeqCst);
    }

    /// Takes a waker off the list, if it is still there.
    pub(super) fn remove(&self, ticket: &mut Option<u64>) {
        if ticket.is_none() {
            return;
        }
        let waker = {
            let mut list = self.list.lock();
            let waker = list.remove(ticket);
            self.number.store(list.len(), Ordering::Relaxed);
            waker
        };
        drop(waker);
    }

    /// Wakes everyone; the caller has changed the ring.
    #[inline]
    pub(super) fn wake(&self) {
        // SeqCst [Q14]: pairs with SeqCst [Q13] in `add`.
        fence("Q14", Ordering::SeqCst);
        if self.number.load(Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let wakers = {
            let mut list = self.list.lock();
            self.number.store(0, Ordering::Relaxed);
            list.take()
        };
        wakers.wake();
    }
}

/// A thread that sleeps until it is woken.
#[derive(Default)]
struct Sleeper {
    woken: Flag,
    event: Event,
}

struct Flag(AtomicBool);

impl Default for Flag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.woken.0.store(true, Ordering::Relaxed);
        self.event.notify_all();
    }
}

/// Blocks until the future is ready or the deadline has passed; the future is polled once more then.
pub(super) fn block_on<F: Future + Unpin>(mut future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut in_time = true;
    loop {
        // Relaxed: should this undo a wake that is under way, then the one who wakes has taken our waker off the list, under
        // the list's lock, and we see his change of the ring when we take that lock to put it on again.
        sleeper.woken.0.store(false, Ordering::Relaxed);
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending if !in_time => return None,
            Poll::Pending => {}
        }
        in_time = sleeper.event.wait_until(deadline, || sleeper.woken.0.load(Ordering::Relaxed));
    }
}
