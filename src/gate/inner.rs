//! The protocol: who is kept out, who is inside, and who is told.
//!
//! Freezing is a kill, thawing a revival, and the count underneath does both without a race. What is left to get wrong is
//! their order, and the kernel did get it wrong: two freezers that counted themselves with an atomic and killed and
//! revived outside any lock could swap the two, and a waiter slept for ever. So the number of freezers, the phase and the
//! kill or revival that follows from them change together, under one lock.
//!
//! | phase | the count | ends when |
//! |---|---|---|
//! | Open | alive | a first share is taken, or the gate is closed: kill |
//! | Freezing | killed; its grace period runs, or passes are out | the release has returned: Drained; or, before that, the last share is given back: resurrect, Open |
//! | Drained | released | the last share is given back: reinit, Open |
//!
//! A share that is given back *while* the release runs can do neither: there is no reference left to resurrect, and the
//! life is not over. Whoever runs the release looks at the shares afterwards and does it. So exactly one release belongs
//! to each life, and none comes late and is taken for the next one's.
//!
//! Nothing here waits for a kill in order to take it back, because shares are given back in destructors, of guards and of
//! futures. A new freeze then joins the switch that is still under way: it covers everybody who saw the cells open.
//!
//! After blk_freeze_queue_start and blk_mq_unfreeze_queue of Linux, block/blk-mq.c.
#![forbid(unsafe_code)]

use super::error::Closed;
use crate::percpu_ref::Outstanding;
use crate::percpu_ref::count::{Core, Handle, Host};
use crate::percpu_ref::switch::{Next, finish_here, finish_later};
use crate::rcu::{Flavor, about_to_block};
use crate::report::Wait;
use crate::sync::{Event, Packed, WakeAll, Wakers};
use crate::trace::Step;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How far a freeze has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Freezing,
    Drained,
}

/// Who wants what.
///
/// # Invariants
/// 1. The phase is Open exactly when the count is not dead.
/// 2. Where there are shares, or the gate is closed, it is not Open. Otherwise it is, except while a release runs.
struct State {
    /// Freezers: those who hold a [`Frozen`](super::Frozen), and those who still wait for theirs.
    shares: usize,
    closed: bool,
    phase: Phase,
    /// Those who wait to get in, as far as they are futures.
    entering: Wakers,
    /// Those who wait for the last one inside, as far as they are futures.
    freezing: Wakers,
}

/// A thaw that has not been told yet.
#[must_use = "those who wait have to be told"]
struct Opened {
    wake: WakeAll,
    /// How the count came back.
    step: Step,
    /// Whether it counts per CPU at once.
    cells: bool,
}

/// What a gate allocates; switches under way keep it alive too.
#[repr(C)]
pub(super) struct Inner<F> {
    pub(super) core: Core,
    /// Inside it, the count's own lock is taken. No user code runs under it, and nothing under it blocks.
    ///
    /// The event beside it announces that the gate is open, or closed; the count's own one, that it is drained.
    state: Packed<State, Event>,
    flavor: PhantomData<F>,
}

impl<F: Flavor> Host for Inner<F> {
    type Flavor = F;
    const WHAT: &'static str = "a `Gate`";

    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }

    /// Too early: the life ends when this has returned. See [`Inner::drained`].
    fn release(&self) {}
}

/// What a switch holds.
#[derive(Clone)]
struct InSwitch<F>(Arc<Inner<F>>);

impl<F: Flavor> Handle for InSwitch<F> {
    type Host = Inner<F>;

    fn host(&self) -> &Inner<F> {
        &self.0
    }

    fn released(&self) {
        self.0.drained();
    }
}

/// Runs what a freeze or a close has begun, in the callback thread.
pub(super) fn go_on<F: Flavor>(inner: &Arc<Inner<F>>, next: Option<Next>) {
    if let Some(next) = next {
        finish_later(&InSwitch(Arc::clone(inner)), next);
    }
}

impl<F: Flavor> Inner<F> {
    pub(super) fn new(core: Core) -> Self {
        let state = State {
            shares: 0,
            closed: false,
            phase: Phase::Open,
            entering: Wakers::default(),
            freezing: Wakers::default(),
        };
        Self { core, state: Packed::new(state, Event::default()), flavor: PhantomData }
    }

    /// The last one is out, and the release has returned.
    #[cold]
    pub(super) fn drained(&self) {
        let (opened, freezers) = {
            let mut state = self.state.lock();
            state.phase = Phase::Drained;
            match self.open(&mut state) {
                Some(opened) => (Some(opened), None),
                None => (None, Some(state.freezing.take())),
            }
        };
        self.tell_opened(opened);
        if let Some(freezers) = freezers {
            self.core.event().notify_all();
            freezers.wake();
        }
    }

    /// What follows from a thaw, not under the lock.
    fn tell_opened(&self, opened: Option<Opened>) {
        if let Some(Opened { wake, step, cells }) = opened {
            self.state.side.notify_all();
            self.core.tell_alive::<F>(step, cells);
            wake.wake();
        }
    }

    /// Kills the count of an open gate. The caller has the rest of the switch run, not under the lock.
    fn shut(&self, state: &mut State) -> Option<Next> {
        if state.phase != Phase::Open {
            return None;
        }
        state.phase = Phase::Freezing;
        let next = self.core.begin_kill(None).ok();
        debug_assert!(next.is_some(), "the count of an open gate is alive");
        next
    }

    /// Revives the count, if nobody wants it dead and its state allows it; then that is to be told.
    fn open(&self, state: &mut State) -> Option<Opened> {
        if state.shares > 0 || state.closed {
            return None;
        }
        let (alive, step) = match state.phase {
            Phase::Open => return None,
            Phase::Freezing => (self.core.resurrect_now(), Step::Resurrect),
            Phase::Drained => (self.core.reinit_now(), Step::Reinit),
        };
        let cells = alive.ok()?;
        state.phase = Phase::Open;
        Some(Opened { wake: state.entering.take(), step, cells })
    }

    /// Takes a share in the freeze, which the caller gives back.
    pub(super) fn take_share(&self) -> Option<Next> {
        let next = {
            let mut state = self.state.lock();
            state.shares += 1;
            self.shut(&mut state)
        };
        self.tell_shut(next.as_ref());
        next
    }

    fn tell_shut(&self, next: Option<&Next>) {
        if next.is_some() {
            self.core.tell::<F>(Step::Kill);
        }
    }

    /// Gives a share back, drained or not.
    pub(super) fn give_back(&self) {
        let opened = {
            let mut state = self.state.lock();
            state.shares -= 1;
            self.open(&mut state)
        };
        self.tell_opened(opened);
    }

    /// Keeps everybody out for good; what has to happen next.
    pub(super) fn close(&self) -> Option<Next> {
        let (next, wake) = {
            let mut state = self.state.lock();
            state.closed = true;
            (self.shut(&mut state), state.entering.take())
        };
        self.state.side.notify_all();
        self.tell_shut(next.as_ref());
        wake.wake();
        next
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(super) fn shares(&self) -> usize {
        self.state.lock().shares
    }

    fn is_drained(&self) -> bool {
        self.state.lock().phase == Phase::Drained
    }

    /// Finishes a switch here, or waits for whoever does: a grace period, not more.
    pub(super) fn finish_here(&self, next: Next) {
        if finish_here(self, next) {
            self.drained();
        }
    }

    /// Blocks until nobody is inside; the caller has a share. An error: the time is up, or it will never be so.
    pub(super) fn wait_until_drained(&self, limit: Option<Duration>) -> Result<(), Outstanding> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.core.wait::<Self>(Wait::Zero, deadline, || self.is_drained() || self.core.is_saturated());
        if self.is_drained() { Ok(()) } else { Err(self.core.outstanding_of_users::<Self>()) }
    }

    /// Whether nobody is inside, after the grace period; the caller has a share.
    pub(super) fn look_whether_drained(&self) -> Result<(), Outstanding> {
        // At zero the last one has left, and somebody is about to say so: nothing of the program's is in the way.
        let limit = if self.core.is_zero() { None } else { Some(Duration::ZERO) };
        self.wait_until_drained(limit)
    }

    /// The same for a future: if not, `waker` is woken when it is so.
    pub(super) fn poll_drained(&self, ticket: &mut Option<u64>, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock();
        if state.phase == Phase::Drained {
            let known = state.freezing.remove(ticket);
            drop(state);
            drop((known, waker));
            return true;
        }
        let old = state.freezing.put(ticket, waker);
        drop(state);
        drop(old);
        false
    }

    /// Takes a reference, after waiting for the gate to open.
    #[cold]
    pub(super) fn enter_slowly(&self) -> Result<(), Closed> {
        if self.is_closed() {
            return Err(Closed);
        }
        self.core.assert_may_wait::<Self>("enter_wait");
        F::kick();
        about_to_block();
        let mut inside = false;
        self.state.side.wait_until(None, || {
            inside = self.core.tryget_live::<F>();
            inside || self.is_closed()
        });
        if inside { Ok(()) } else { Err(Closed) }
    }

    /// The same for a future: if it is pending, `waker` is woken when it is worth another try.
    pub(super) fn poll_enter(&self, ticket: &mut Option<u64>, waker: &Waker) -> Poll<Result<(), Closed>> {
        loop {
            // Not under the lock: a section may run what others have deferred.
            if self.core.tryget_live::<F>() {
                self.forget_entering(ticket);
                return Poll::Ready(Ok(()));
            }
            let waker = waker.clone();
            let mut state = self.state.lock();
            if state.closed {
                let known = state.entering.remove(ticket);
                drop(state);
                drop((known, waker));
                return Poll::Ready(Err(Closed));
            }
            if state.phase != Phase::Open {
                let old = state.entering.put(ticket, waker);
                drop(state);
                drop(old);
                return Poll::Pending;
            }
            drop(state);
        }
    }

    /// A future that wanted to get in wants to no more.
    pub(super) fn forget_entering(&self, ticket: &mut Option<u64>) {
        if ticket.is_some() {
            let known = self.state.lock().entering.remove(ticket);
            drop(known);
        }
    }

    /// A future that waited for the last one inside waits no more.
    pub(super) fn forget_freezing(&self, ticket: &mut Option<u64>) {
        if ticket.is_some() {
            let known = self.state.lock().freezing.remove(ticket);
            drop(known);
        }
    }
}
