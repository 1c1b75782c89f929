//! Random operations on handles, one after another and spread over threads, against a model that counts on its fingers.

use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{Drain, Owner, RcuCell, Shared, Weak};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Op {
    Share,
    Clone(usize),
    DropShared(usize),
    Downgrade(usize),
    Upgrade(usize),
    DropWeak(usize),
    GetMut,
    /// On another thread.
    DropThere(usize),
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Share),
        3 => any::<usize>().prop_map(Op::Clone),
        4 => any::<usize>().prop_map(Op::DropShared),
        2 => any::<usize>().prop_map(Op::Downgrade),
        3 => any::<usize>().prop_map(Op::Upgrade),
        2 => any::<usize>().prop_map(Op::DropWeak),
        2 => Just(Op::GetMut),
        2 => any::<usize>().prop_map(Op::DropThere),
        1 => Just(Op::Kill),
    ]
}

/// What the end of a run is.
#[derive(Clone, Copy, Debug)]
enum End {
    DropOwner,
    DropDrain,
    Wait,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::DropOwner), Just(End::DropDrain), Just(End::Wait)]
}

#[derive(Debug)]
struct Counted(usize, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

fn eventually(done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn pick<T>(from: &[T], i: usize) -> Option<usize> {
    (!from.is_empty()).then(|| i % from.len())
}

fn run<F: Flavor>(ops: Vec<Op>, end: End) -> Result<(), TestCaseError> {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut owner = Owner::with_flavor(Counted(0, dropped.clone()), F::default());
    let mut shared: Vec<Shared<Counted, F>> = Vec::new();
    let mut weak: Vec<Weak<Counted, F>> = Vec::new();
    // The model.
    let (mut number, mut handed_out, mut killed) = (0, false, false);
    for op in ops {
        match op {
            Op::Share => {
                shared.push(Owner::share(&owner));
                handed_out = true;
            }
            Op::Clone(i) => {
                if let Some(i) = pick(&shared, i) {
                    shared.push(shared[i].clone());
                }
            }
            Op::DropShared(i) => {
                if let Some(i) = pick(&shared, i) {
                    drop(shared.swap_remove(i));
                }
            }
            Op::DropThere(i) => {
                if let Some(i) = pick(&shared, i) {
                    let there = shared.swap_remove(i);
                    thread::spawn(move || drop(there)).join().expect("no panic");
                }
            }
            Op::Downgrade(i) => {
                weak.push(pick(&shared, i).map_or_else(|| Owner::downgrade(&owner), |i| Shared::downgrade(&shared[i])));
                handed_out = true;
            }
            Op::Upgrade(i) => {
                if let Some(i) = pick(&weak, i) {
                    let upgraded = weak[i].upgrade();
                    prop_assert_eq!(upgraded.is_some(), !killed);
                    shared.extend(upgraded);
                }
            }
            Op::DropWeak(i) => {
                if let Some(i) = pick(&weak, i) {
                    drop(weak.swap_remove(i));
                }
            }
            Op::GetMut => {
                let alone = !handed_out || (killed && shared.is_empty());
                // A kill that has confirmed drops its own reference a moment later.
                let deadline = Instant::now() + Duration::from_secs(20);
                while alone && killed && Owner::get_mut(&mut owner).is_none() && Instant::now() < deadline {
                    thread::yield_now();
                }
                let got = Owner::get_mut(&mut owner);
                prop_assert_eq!(got.is_some(), alone);
                if let Some(value) = got {
                    value.0 += 1;
                    number += 1;
                }
            }
            Op::Kill => {
                let (tell, told) = std::sync::mpsc::channel();
                let kill = Owner::kill_and_confirm(&owner, move || tell.send(()).expect("it is waited for"));
                prop_assert_eq!(kill.is_err(), killed);
                if !killed {
                    prop_assert!(told.recv_timeout(Duration::from_secs(20)).is_ok());
                }
                killed = true;
            }
        }
        prop_assert!(shared.iter().all(|s| s.0 == number));
        prop_assert_eq!(dropped.load(SeqCst), 0);
    }
    match end {
        End::DropOwner => {
            drop(owner);
            drop(shared);
        }
        End::DropDrain => {
            drop(Owner::shutdown(owner));
            drop(shared);
        }
        End::Wait => {
            let drain: Drain<Counted> = Owner::shutdown(owner);
            drop(shared);
            prop_assert_eq!(drain.wait().0, number);
        }
    }
    prop_assert!(eventually(|| dropped.load(SeqCst) == 1));
    prop_assert!(weak.iter().all(|w| w.upgrade().is_none()));
    Ok(())
}

/// What one thread does to a cell.
#[derive(Clone, Copy, Debug)]
enum Change {
    Add,
    Keep,
    Swap,
    LoseExchange,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => Just(Change::Add), 3 => Just(Change::Keep), 1 => Just(Change::Swap), 1 => Just(Change::LoseExchange)]
}

/// Threads add to a cell, and swap without changing the sum of what is in it and what they took out.
fn run_cell<F: Flavor>(threads: Vec<Vec<Change>>) -> Result<(), TestCaseError> {
    let (made, dropped) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let new = |n| {
        made.fetch_add(1, SeqCst);
        Counted(n, dropped.clone())
    };
    let cell = RcuCell::with_flavor(new(0), F::default());
    let added: usize = threads.iter().flatten().filter(|change| matches!(change, Change::Add)).count();
    let taken: usize = thread::scope(|s| {
        let changers: Vec<_> = threads
            .iter()
            .map(|changes| {
                let (cell, new) = (&cell, &new);
                s.spawn(move || {
                    let (mut kept, mut taken) = (Vec::new(), 0);
                    for change in changes {
                        match change {
                            Change::Add => cell.update(|value| new(value.0 + 1)),
                            Change::Keep => kept.push((cell.read(|value| value.0), cell.load())),
                            Change::Swap => {
                                kept.clear(); // Others may wait for these.
                                taken += cell.swap(new(0)).wait().0;
                            }
                            Change::LoseExchange => {
                                let seen = cell.load();
                                if let Err(back) = cell.compare_and_swap(&seen, new(seen.0)) {
                                    assert_eq!(back.0, seen.0);
                                }
                            }
                        }
                    }
                    taken
                })
            })
            .collect();
        changers.into_iter().map(|changer| changer.join().expect("no panic")).sum()
    });
    let left = cell.into_inner().wait();
    prop_assert_eq!(left.0 + taken, added);
    drop(left);
    prop_assert!(eventually(|| dropped.load(SeqCst) == made.load(SeqCst)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn handles_do_what_the_model_does_sched(ops in prop::collection::vec(op(), 0..60), end in end()) {
        run::<Sched>(ops, end)?;
    }

    #[test]
    fn handles_do_what_the_model_does_plain(ops in prop::collection::vec(op(), 0..60), end in end()) {
        run::<Plain>(ops, end)?;
    }

    #[test]
    fn cells_lose_no_change_sched(threads in prop::collection::vec(prop::collection::vec(change(), 0..12), 1..4)) {
        run_cell::<Sched>(threads)?;
    }

    #[test]
    fn cells_lose_no_change_plain(threads in prop::collection::vec(prop::collection::vec(change(), 0..12), 1..4)) {
        run_cell::<Plain>(threads)?;
    }
}
