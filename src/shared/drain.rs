//! Waiting for the last holder, in whichever way suits the one who waits.
//!
//! A drain is the end of something that others may still use: it yields what is left once nobody does. It blocks, or
//! blocks for a while, or is a future; dropping it leaves what is left to the last holder. The future needs no runtime:
//! the last put wakes the waker.
#![forbid(unsafe_code)]

use crate::percpu_ref::Outstanding;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a drain waits for. Dropping one that has not yielded leaves what there is to the last holder.
pub(crate) trait Source<T>: Send + Sync {
    /// Blocks until nothing is out. An error: the time is up, or it will never be so.
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), Outstanding>;

    /// What is out now.
    fn outstanding(&self) -> Outstanding;

    /// Whether nothing is out; if not, `waker` is woken when it is so, and earlier wakers need not be.
    fn poll(&mut self, waker: &Waker) -> bool;

    /// What is left. To be called once, when nothing is out.
    fn take(&mut self) -> T;
}

/// Yields a value once nobody else holds it: from [`Owner::shutdown`](crate::Owner::shutdown) and
/// [`RcuCell::swap`](crate::RcuCell::swap).
///
/// It is waited for in one of three ways: [`wait`](Self::wait) blocks, [`wait_timeout`](Self::wait_timeout) blocks for a
/// while, and `.await` needs no thread and no particular runtime.
///
/// Dropping a drain does not block and does not leak: the last holder drops the value.
///
/// # Examples
/// ```
/// use percpu_ref::{Drain, Owner};
/// use std::time::Duration;
///
/// let pool = Owner::new(vec!["connection"]);
/// let user = Owner::share(&pool);
/// let drain: Drain<Vec<&str>> = Owner::shutdown(pool);
/// let drain = drain.wait_timeout(Duration::from_millis(10)).unwrap_err();
/// println!("{}", drain.outstanding()); // a `Shared` value without a name still has 1 reference out
/// drop(user);
/// assert_eq!(drain.wait(), ["connection"]);
/// ```
#[must_use = "a drain that is dropped leaves the value to the last holder"]
pub struct Drain<T = ()> {
    source: Box<dyn Source<T>>,
}

// A step that panics leaves the source as it was: it either has yielded or has not.
impl<T> UnwindSafe for Drain<T> {}
impl<T> RefUnwindSafe for Drain<T> {}

impl<T> Drain<T> {
    pub(crate) fn new(source: impl Source<T> + 'static) -> Self {
        Self { source: Box::new(source) }
    }

    /// Blocks until nobody else holds the value, and returns it.
    ///
    /// # Context
    /// Blocks. A callback may wait for another value: the other callbacks go on.
    ///
    /// # Ordering
    /// What every holder did before it let go is visible afterwards.
    ///
    /// # Panics
    /// Inside a section of the value's flavour, and inside a callback of the same value (its `confirm`): it would wait
    /// for itself. The value is left to the last holder then. If the count is saturated, which takes 2^60 forgotten
    /// handles.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let log = Owner::new(String::from("line\n"));
    /// let text: String = Owner::shutdown(log).wait();
    /// assert_eq!(text, "line\n");
    /// ```
    pub fn wait(mut self) -> T {
        if let Err(never) = self.source.wait(None) {
            panic!("{never}");
        }
        self.source.take()
    }

    /// Blocks until nobody else holds the value, or until the time is up.
    ///
    /// # Context
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait), but for saturation, which is an error here.
    ///
    /// # Errors
    /// The drain itself, to go on with; [`outstanding`](Self::outstanding) tells what is out.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    /// use std::time::Duration;
    ///
    /// let cache = Owner::new([1, 2, 3]);
    /// match Owner::shutdown(cache).wait_timeout(Duration::from_secs(1)) {
    ///     Ok(cache) => println!("flushing {cache:?}"),
    ///     Err(drain) => eprintln!("giving up: {}", drain.outstanding()),
    /// }
    /// ```
    pub fn wait_timeout(mut self, limit: Duration) -> Result<T, Self> {
        match self.source.wait(Some(limit)) {
            Ok(()) => Ok(self.source.take()),
            Err(_) => Err(self),
        }
    }

    /// How many references are out now: roughly, while the kill is under way; exactly, when it is over and nobody clones
    /// or drops meanwhile. The first reference, which the end of the kill drops, is included.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(1);
    /// let holders = [Owner::share(&owner), Owner::share(&owner)];
    /// let drain = Owner::shutdown(owner);
    /// assert!(drain.outstanding().count() >= 2);
    /// drop(holders);
    /// assert_eq!(drain.wait(), 1);
    /// ```
    pub fn outstanding(&self) -> Outstanding {
        self.source.outstanding()
    }
}

/// Ready once nobody else holds the value. The waker of the last poll is the one that is woken.
///
/// # Panics
/// When it is polled after it was ready.
impl<T> Future for Drain<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.source.poll(context.waker()) { Poll::Ready(self.source.take()) } else { Poll::Pending }
    }
}

impl<T> fmt::Debug for Drain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out_now = self.source.outstanding();
        let mut out = f.debug_struct("Drain");
        out.field("outstanding", &out_now.count());
        if !out_now.holders().is_empty() {
            out.field("holders", &out_now.holders());
        }
        out.finish_non_exhaustive()
    }
}
