//! Random operations on a gate, one after another, against a model that counts on its fingers; and the same spread over
//! threads, with books that have to balance.

use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{Closed, Entering, Freezing, Frozen, Gate, Pass};
use proptest::prelude::*;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Op {
    Enter,
    /// `enter_wait`, where it would not wait.
    EnterWait,
    Clone(usize),
    Leave(usize),
    /// On another thread.
    LeaveThere(usize),
    /// `freeze`, where it would not wait for ever.
    Freeze,
    FreezeTimeout,
    TryFreeze,
    Thaw(usize),
    ThawThere(usize),
    /// A future is made and polled.
    BeginFreeze,
    PollFreeze(usize),
    DropFreeze(usize),
    BeginEnter,
    PollEnter(usize),
    DropEnter(usize),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    let n = any::<usize>;
    prop_oneof![
        6 => Just(Op::Enter),
        3 => Just(Op::EnterWait),
        2 => n().prop_map(Op::Clone),
        6 => n().prop_map(Op::Leave),
        3 => n().prop_map(Op::LeaveThere),
        4 => Just(Op::Freeze),
        2 => Just(Op::FreezeTimeout),
        3 => Just(Op::TryFreeze),
        6 => n().prop_map(Op::Thaw),
        2 => n().prop_map(Op::ThawThere),
        3 => Just(Op::BeginFreeze),
        6 => n().prop_map(Op::PollFreeze),
        2 => n().prop_map(Op::DropFreeze),
        3 => Just(Op::BeginEnter),
        6 => n().prop_map(Op::PollEnter),
        2 => n().prop_map(Op::DropEnter),
        1 => Just(Op::Close),
    ]
}

fn pick<T>(from: &[T], i: usize) -> Option<usize> {
    (!from.is_empty()).then(|| i % from.len())
}

fn poll<T: Future + Unpin>(future: &mut T) -> Poll<T::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What has to become ready does so soon: the grace period runs in another thread.
fn ready<T: Future + Unpin>(future: &mut T) -> Option<T::Output> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Poll::Ready(value) = poll(future) {
            return Some(value);
        }
        thread::yield_now();
    }
    None
}

fn run<F: Flavor>(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let gate = Gate::builder().flavor(F::default()).build();
    let mut passes: Vec<Pass<'_, F>> = Vec::new();
    let mut shares: Vec<Frozen<'_, F>> = Vec::new();
    let mut freezing: Vec<Freezing<'_, F>> = Vec::new();
    let mut entering: Vec<Entering<'_, F>> = Vec::new();
    let mut closed = false;
    for op in ops {
        // The model: who is inside is in `passes`, and who keeps the gate shut is in `shares` and `freezing`.
        let open = shares.is_empty() && freezing.is_empty() && !closed;
        match op {
            Op::Enter => {
                let pass = gate.enter();
                prop_assert_eq!(pass.is_some(), open);
                passes.extend(pass);
            }
            Op::EnterWait if open || closed => match gate.enter_wait() {
                Ok(pass) => {
                    prop_assert!(!closed);
                    passes.push(pass);
                }
                Err(Closed) => prop_assert!(closed),
            },
            Op::EnterWait => {}
            Op::Clone(i) => passes.extend(pick(&passes, i).map(|i| passes[i].clone())),
            Op::Leave(i) => drop(pick(&passes, i).map(|i| passes.swap_remove(i))),
            Op::LeaveThere(i) => {
                if let Some(i) = pick(&passes, i) {
                    let pass = passes.swap_remove(i);
                    thread::scope(|s| s.spawn(move || drop(pass)).join()).expect("no panic");
                }
            }
            Op::Freeze if passes.is_empty() => shares.push(gate.freeze()),
            Op::Freeze => {}
            Op::FreezeTimeout => {
                let limit = if passes.is_empty() { Duration::from_secs(20) } else { Duration::ZERO };
                let frozen = gate.freeze_timeout(limit);
                prop_assert_eq!(frozen.is_ok(), passes.is_empty());
                shares.extend(frozen);
            }
            Op::TryFreeze => match gate.try_freeze() {
                Ok(frozen) => {
                    prop_assert!(passes.is_empty());
                    shares.push(frozen);
                }
                Err(out) => prop_assert_eq!(out.count(), passes.len() as u64),
            },
            Op::Thaw(i) => drop(pick(&shares, i).map(|i| shares.swap_remove(i))),
            Op::ThawThere(i) => {
                if let Some(i) = pick(&shares, i) {
                    let share = shares.swap_remove(i);
                    thread::scope(|s| s.spawn(move || drop(share)).join()).expect("no panic");
                }
            }
            Op::BeginFreeze => {
                let mut future = gate.freeze_async();
                match poll(&mut future) {
                    Poll::Ready(share) => {
                        prop_assert!(passes.is_empty());
                        shares.push(share);
                    }
                    Poll::Pending => freezing.push(future),
                }
            }
            Op::PollFreeze(i) => {
                if let Some(i) = pick(&freezing, i) {
                    if passes.is_empty() {
                        let mut future = freezing.swap_remove(i);
                        let share = ready(&mut future);
                        prop_assert!(share.is_some(), "nobody is inside");
                        shares.extend(share);
                    } else {
                        prop_assert!(poll(&mut freezing[i]).is_pending());
                    }
                }
            }
            Op::DropFreeze(i) => drop(pick(&freezing, i).map(|i| freezing.swap_remove(i))),
            Op::BeginEnter => {
                let mut future = gate.enter_async();
                match poll(&mut future) {
                    Poll::Ready(Ok(pass)) => {
                        prop_assert!(open);
                        passes.push(pass);
                    }
                    Poll::Ready(Err(Closed)) => prop_assert!(closed),
                    Poll::Pending => {
                        prop_assert!(!open && !closed);
                        entering.push(future);
                    }
                }
            }
            Op::PollEnter(i) => {
                if let Some(i) = pick(&entering, i) {
                    match poll(&mut entering[i]) {
                        Poll::Ready(Ok(pass)) => {
                            prop_assert!(open);
                            passes.push(pass);
                            drop(entering.swap_remove(i));
                        }
                        Poll::Ready(Err(Closed)) => {
                            prop_assert!(closed);
                            drop(entering.swap_remove(i));
                        }
                        Poll::Pending => prop_assert!(!open && !closed),
                    }
                }
            }
            Op::DropEnter(i) => drop(pick(&entering, i).map(|i| entering.swap_remove(i))),
            Op::Close => {
                gate.close();
                closed = true;
            }
        }
        if shares.is_empty() && freezing.is_empty() {
            // A freeze that was called off as the last one left is undone by whoever ends it: wait for that.
            prop_assert_eq!(gate.enter_wait().is_ok(), !closed);
        }
        prop_assert_eq!(gate.is_frozen(), !(shares.is_empty() && freezing.is_empty()));
        prop_assert_eq!(gate.is_closed(), closed);
        prop_assert_eq!(gate.inside(), passes.len() as u64);
    }
    drop((passes, shares, freezing, entering));
    prop_assert_eq!(gate.enter_wait().is_ok(), !closed);
    drop(gate.freeze());
    prop_assert_eq!((gate.inside(), gate.enter().is_some()), (0, !closed));
    Ok(())
}

/// What one thread does, in order.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Enter, waiting for a thaw, and look.
    Look,
    /// Enter if it is open, and look.
    Peek,
    Freeze,
    FreezeForAMoment,
    Try,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Look),
        2 => Just(Step::Peek),
        2 => Just(Step::Freeze),
        1 => Just(Step::FreezeForAMoment),
        1 => Just(Step::Try),
    ]
}

/// Threads write two numbers while they keep everybody out, and look at them while they are inside.
fn run_threads<F: Flavor>(threads: Vec<Vec<Step>>) -> Result<(), TestCaseError> {
    let gate = Gate::builder().flavor(F::default()).build();
    let (left, right) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Freezers do not exclude each other.
    let alone = std::sync::Mutex::new(0);
    let write = |_share: Frozen<'_, F>| {
        let mut times = alone.lock().expect("no panic");
        *times += 1;
        left.store(*times, Relaxed);
        thread::yield_now();
        right.store(*times, Relaxed);
        1
    };
    let look = |_pass: Pass<'_, F>| assert_eq!(left.load(Relaxed), right.load(Relaxed));
    let written: usize = thread::scope(|s| {
        let (gate, write, look) = (&gate, &write, &look);
        let threads: Vec<_> = threads
            .into_iter()
            .map(|steps| {
                s.spawn(move || {
                    let mut written = 0;
                    for step in steps {
                        match step {
                            Step::Look => look(gate.enter_wait().expect("it is not closed")),
                            Step::Peek => gate.enter().into_iter().for_each(look),
                            Step::Freeze => written += write(gate.freeze()),
                            Step::FreezeForAMoment => {
                                written += gate.freeze_timeout(Duration::from_micros(50)).map_or(0, write);
                            }
                            Step::Try => written += gate.try_freeze().map_or(0, write),
                        }
                    }
                    written
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    prop_assert_eq!((left.into_inner(), right.into_inner()), (written, written));
    // In time: a freeze that was called off as the last one left is undone by whoever ends it.
    prop_assert!(gate.enter_wait().is_ok());
    prop_assert_eq!((gate.inside(), gate.enter().is_some(), gate.is_frozen()), (0, true, false));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn gates_do_what_the_model_does_sched(ops in prop::collection::vec(op(), 0..80)) {
        run::<Sched>(ops)?;
    }

    #[test]
    fn gates_do_what_the_model_does_plain(ops in prop::collection::vec(op(), 0..80)) {
        run::<Plain>(ops)?;
    }

    #[test]
    fn threads_see_what_freezers_wrote_as_a_whole_sched(
        threads in prop::collection::vec(prop::collection::vec(step(), 0..12), 1..5)
    ) {
        run_threads::<Sched>(threads)?;
    }

    #[test]
    fn threads_see_what_freezers_wrote_as_a_whole_plain(
        threads in prop::collection::vec(prop::collection::vec(step(), 0..12), 1..5)
    ) {
        run_threads::<Plain>(threads)?;
    }
}
