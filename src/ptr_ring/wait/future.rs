//! Waiting as futures: a blocking call is one of them, polled by a thread that sleeps in between.
#![forbid(unsafe_code)]

use super::Waiting;
use crate::ptr_ring::{Full, Pointer, RawMutex, YieldLock};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of [`Waiting::produce_async`].
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::Waiting;
///
/// async fn send(ring: &Waiting<Box<u32>>, n: u32) {
///     let producing = ring.produce_async(Box::new(n));
///     producing.await; // waits for room
/// }
/// # let ring = Waiting::new(1).unwrap();
/// # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(std::pin::pin!(send(&ring, 1)).poll(&mut cx).is_ready());
/// # assert!(std::pin::pin!(send(&ring, 2)).poll(&mut cx).is_pending());
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Producing<'a, P: Pointer, L: RawMutex = YieldLock> {
    on: &'a Waiting<P, L>,
    element: Option<P>,
    ticket: Option<u64>,
}

/// The future of [`Waiting::consume_async`].
///
/// # Examples
/// ```
/// use percpu_ref::ptr_ring::Waiting;
///
/// async fn receive(ring: &Waiting<Box<u32>>) -> Box<u32> {
///     let consuming = ring.consume_async();
///     consuming.await // waits for an element
/// }
/// # let ring = Waiting::new(1).unwrap();
/// # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(std::pin::pin!(receive(&ring)).poll(&mut cx).is_pending());
/// # ring.produce(Box::new(5));
/// # assert_eq!(std::pin::pin!(receive(&ring)).poll(&mut cx), std::task::Poll::Ready(Box::new(5)));
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Consuming<'a, P: Pointer, L: RawMutex = YieldLock> {
    on: &'a Waiting<P, L>,
    ticket: Option<u64>,
}

/// The element is not pinned: it moves into the ring.
impl<P: Pointer, L: RawMutex> Unpin for Producing<'_, P, L> {}

impl<'a, P: Pointer, L: RawMutex> Producing<'a, P, L> {
    pub(super) fn new(on: &'a Waiting<P, L>, p: P) -> Self {
        Self { on, element: Some(p), ticket: None }
    }

    /// The element, of a future that is not ready.
    pub(super) fn into_element(mut self) -> P {
        self.element.take().expect("it was not produced")
    }

    fn attempt(&mut self) -> bool {
        let p = self.element.take().expect("a future that is ready is not polled again");
        match self.on.try_produce(p) {
            Ok(()) => true,
            Err(Full(p)) => {
                self.element = Some(p);
                false
            }
        }
    }
}

impl<'a, P: Pointer, L: RawMutex> Consuming<'a, P, L> {
    pub(super) fn new(on: &'a Waiting<P, L>) -> Self {
        Self { on, ticket: None }
    }
}

impl<P: Pointer, L: RawMutex> Future for Producing<'_, P, L> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !this.attempt() {
            this.on.for_room.add(&mut this.ticket, cx.waker());
            if !this.attempt() {
                return Poll::Pending;
            }
        }
        this.on.for_room.remove(&mut this.ticket);
        Poll::Ready(())
    }
}

impl<P: Pointer, L: RawMutex> Future for Consuming<'_, P, L> {
    type Output = P;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P> {
        let this = &mut *self;
        let p = match this.on.try_consume() {
            Some(p) => p,
            None => {
                this.on.for_elements.add(&mut this.ticket, cx.waker());
                let Some(p) = this.on.try_consume() else { return Poll::Pending };
                p
            }
        };
        this.on.for_elements.remove(&mut this.ticket);
        Poll::Ready(p)
    }
}

impl<P: Pointer, L: RawMutex> Drop for Producing<'_, P, L> {
    fn drop(&mut self) {
        self.on.for_room.remove(&mut self.ticket);
    }
}

impl<P: Pointer, L: RawMutex> Drop for Consuming<'_, P, L> {
    fn drop(&mut self) {
        self.on.for_elements.remove(&mut self.ticket);
    }
}

impl<P: Pointer, L: RawMutex> fmt::Debug for Producing<'_, P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producing").field("on", self.on).finish_non_exhaustive()
    }
}

impl<P: Pointer, L: RawMutex> fmt::Debug for Consuming<'_, P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consuming").field("on", self.on).finish_non_exhaustive()
    }
}
