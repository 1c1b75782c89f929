//! The same waits without a thread that blocks: futures for any executor.
//!
//! Nothing is passed on to a future that it could lose: it is told to look again, and so is everybody else who waits. So
//! one may be dropped at any moment.
#![forbid(unsafe_code)]

use super::Gate;
use super::error::Closed;
use super::frozen::Frozen;
use super::inner::go_on;
use super::pass::Pass;
use crate::rcu::{Flavor, Sched};
use crate::track::Origin;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The future of [`Gate::enter_async`].
///
/// Dropping it before it is ready enters nothing.
///
/// # Examples
/// ```
/// use percpu_ref::{Closed, Gate};
///
/// async fn handle(gate: &Gate) -> Result<(), Closed> {
///     let entering = gate.enter_async();
///     let _pass = entering.await?;
///     // Nobody freezes the gate meanwhile.
///     Ok(())
/// }
/// # let gate = Gate::new();
/// # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert_eq!(std::pin::pin!(handle(&gate)).poll(&mut cx), std::task::Poll::Ready(Ok(())));
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Entering<'a, F: Flavor = Sched> {
    gate: &'a Gate<F>,
    origin: Origin,
    ticket: Option<u64>,
}

impl<'a, F: Flavor> Entering<'a, F> {
    pub(super) fn new(gate: &'a Gate<F>, origin: Origin) -> Self {
        Self { gate, origin, ticket: None }
    }
}

impl<'a, F: Flavor> Future for Entering<'a, F> {
    type Output = Result<Pass<'a, F>, Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &*self.gate.inner;
        let entered = ready!(inner.poll_enter(&mut self.ticket, context.waker()));
        Poll::Ready(entered.map(|()| Pass::new(inner, self.origin)))
    }
}

impl<F: Flavor> Drop for Entering<'_, F> {
    fn drop(&mut self) {
        self.gate.inner.forget_entering(&mut self.ticket);
    }
}

impl<F: Flavor> fmt::Debug for Entering<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entering").field("gate", self.gate).finish_non_exhaustive()
    }
}

/// The future of [`Gate::freeze_async`].
///
/// It takes its share when it is first polled; from then on nobody new gets in. Dropping it before it is ready gives the
/// share back.
///
/// # Panics
/// When it is polled after it was ready.
///
/// # Examples
/// ```
/// use percpu_ref::Gate;
///
/// async fn rotate(gate: &Gate, log: &mut Vec<String>) {
///     let freezing = gate.freeze_async();
///     let _frozen = freezing.await;
///     log.clear(); // nobody is inside
/// }
/// # let (gate, mut log) = (Gate::new(), vec![String::new()]);
/// # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// # let mut rotate = Box::pin(rotate(&gate, &mut log));
/// # while rotate.as_mut().poll(&mut cx).is_pending() {}
/// # drop(rotate);
/// # assert!(log.is_empty());
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Freezing<'a, F: Flavor = Sched> {
    gate: &'a Gate<F>,
    begun: bool,
    share: Option<Frozen<'a, F>>,
    ticket: Option<u64>,
}

impl<'a, F: Flavor> Freezing<'a, F> {
    pub(super) fn new(gate: &'a Gate<F>) -> Self {
        Self { gate, begun: false, share: None, ticket: None }
    }
}

impl<'a, F: Flavor> Future for Freezing<'a, F> {
    type Output = Frozen<'a, F>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Frozen<'a, F>> {
        let inner = &self.gate.inner;
        if !self.begun {
            self.begun = true;
            let next = inner.take_share();
            self.share = Some(Frozen::new(inner));
            go_on(inner, next);
        }
        assert!(self.share.is_some(), "a freeze that was ready is polled again");
        if inner.poll_drained(&mut self.ticket, context.waker()) {
            return Poll::Ready(self.share.take().expect("asserted above"));
        }
        Poll::Pending
    }
}

impl<F: Flavor> Drop for Freezing<'_, F> {
    fn drop(&mut self) {
        self.gate.inner.forget_freezing(&mut self.ticket);
    }
}

impl<F: Flavor> fmt::Debug for Freezing<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freezing").field("gate", self.gate).field("begun", &self.begun).finish_non_exhaustive()
    }
}
