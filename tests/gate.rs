//! The gate through its public API: who gets in, who waits, who is woken, and what goes wrong.

mod common;

use common::{
    Flavor, MOMENT, Plain, Sched, Tally, eventually, in_both_flavours, panics, reports_on, soon, tests, together,
    unique,
};
use percpu_ref::{
    Closed, Entering, Freezing, Frozen, Gate, OwnedPass, Owner, Pass, PercpuRef, ReportKind, Shared, Weak,
};
use std::mem::forget;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

fn gate<F: Flavor>() -> Gate<F> {
    Gate::builder().flavor(F::default()).build()
}

/// A gate for threads and tasks that outlive the borrow of one.
fn shared<F: Flavor>() -> Arc<Gate<F>> {
    Arc::new(gate())
}

/// A waker that counts.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker that must not be woken.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), Waker::from(bell))
}

fn poll<T: Future + Unpin>(future: &mut T, waker: &Waker) -> Poll<T::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

/// Polls a freeze until it is ready; the grace period runs elsewhere.
fn finish<'a, F: Flavor>(freezing: &mut Freezing<'a, F>) -> Frozen<'a, F> {
    let (_, waker) = bell();
    let deadline = Instant::now() + soon();
    loop {
        if let Poll::Ready(frozen) = poll(freezing, &waker) {
            return frozen;
        }
        assert!(Instant::now() < deadline, "the freeze does not end");
        thread::yield_now();
    }
}

/// Whether the gate is open, told by going through it.
fn is_open<F: Flavor>(gate: &Gate<F>) -> bool {
    gate.enter().is_some()
}

in_both_flavours! {
    fn a_gate_is_open_until_it_is_frozen_and_again_after_the_thaw<F>() {
        let gate = gate::<F>();
        for _ in 0..3 {
            let passes = [gate.enter().unwrap(), gate.enter_wait().unwrap()];
            assert_eq!((gate.inside(), gate.is_frozen(), gate.is_closed()), (2, false, false));
            drop(passes);
            let frozen = gate.freeze();
            assert_eq!((gate.inside(), gate.is_frozen(), gate.enter().is_none()), (0, true, true));
            drop(frozen);
            assert_eq!((gate.is_frozen(), is_open(&gate)), (false, true));
        }
    }

    fn a_freeze_waits_for_everybody_inside<F>() {
        let gate = gate::<F>();
        let left = AtomicUsize::new(0);
        thread::scope(|s| {
            let (enter, entered) = mpsc::channel();
            for i in 1..=4 {
                let (gate, left, enter) = (&gate, &left, enter.clone());
                s.spawn(move || {
                    let pass = gate.enter().unwrap();
                    enter.send(()).unwrap();
                    thread::sleep(MOMENT * i);
                    left.fetch_add(1, Relaxed);
                    drop(pass);
                });
            }
            (0..4).for_each(|_| entered.recv().unwrap());
            let _frozen = gate.freeze();
            assert_eq!(left.load(Relaxed), 4);
        });
    }

    fn nobody_new_gets_in_while_a_freeze_waits<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        thread::scope(|s| {
            let freezer = s.spawn(|| drop(gate.freeze()));
            eventually("the freezer has begun", || gate.is_frozen());
            eventually("it keeps us out", || !is_open(&gate));
            thread::sleep(MOMENT);
            assert!(!freezer.is_finished(), "we are inside");
            drop(pass);
            freezer.join().unwrap();
        });
        assert!(is_open(&gate));
    }

    fn the_last_of_several_freezers_thaws<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        let (all, got) = (AtomicUsize::new(0), mpsc::channel());
        thread::scope(|s| {
            for i in 0..4_u32 {
                let (gate, all, give) = (&gate, &all, got.0.clone());
                s.spawn(move || {
                    let frozen = gate.freeze();
                    give.send(()).unwrap();
                    eventually("all have theirs at once", || all.load(SeqCst) == 4);
                    thread::sleep(MOMENT * i / 4);
                    assert!(gate.enter().is_none());
                    drop(frozen);
                });
            }
            thread::sleep(MOMENT);
            assert!(got.1.try_recv().is_err(), "we are inside");
            drop(pass);
            (0..4).for_each(|_| got.1.recv_timeout(soon()).unwrap());
            all.store(4, SeqCst);
            drop(gate.enter_wait().unwrap());
        });
        assert!(is_open(&gate));
    }

    fn a_freeze_that_runs_out_of_time_takes_its_own_share_back<F>() {
        let name = unique("a gate");
        let gate = Gate::builder().flavor(F::default()).name(name.clone()).build();
        let pass = gate.enter().unwrap();
        let late = gate.freeze_timeout(MOMENT).unwrap_err();
        assert_eq!((late.count(), late.name(), late.is_saturated()), (1, Some(name.as_str()), false));
        assert_eq!((gate.is_frozen(), is_open(&gate), gate.inside()), (false, true, 1), "it is called off");

        // Somebody else's share stays.
        thread::scope(|s| {
            let other = s.spawn(|| {
                drop(gate.freeze());
            });
            eventually("the other one has begun", || gate.is_frozen());
            assert!(gate.freeze_timeout(MOMENT).is_err());
            assert!(gate.is_frozen() && gate.enter().is_none());
            drop(pass);
            other.join().unwrap();
        });
        drop(gate.freeze_timeout(soon()).unwrap());
        assert!(is_open(&gate));
    }

    fn a_freeze_that_is_called_off_again_and_again_loses_nobody<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        for _ in 0..1000 {
            assert!(gate.freeze_timeout(Duration::ZERO).is_err());
            assert!(is_open(&gate));
            let (_, waker) = bell();
            assert!(poll(&mut gate.freeze_async(), &waker).is_pending());
            assert!(is_open(&gate));
        }
        assert_eq!(gate.inside(), 1);
        drop(pass);
        drop(gate.freeze());
        assert!(is_open(&gate));
    }

    fn whoever_waits_gets_in_when_a_freeze_is_called_off<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        let (_, waker) = bell();
        let mut freezing = gate.freeze_async();
        assert!(poll(&mut freezing, &waker).is_pending());
        thread::scope(|s| {
            let waiter = s.spawn(|| drop(gate.enter_wait().unwrap()));
            thread::sleep(MOMENT);
            assert!(!waiter.is_finished());
            drop(freezing);
            waiter.join().unwrap();
        });
        drop(pass);
    }

    fn a_try_fails_only_if_somebody_is_inside<F>() {
        let gate = gate::<F>();
        for inside in 0..3 {
            let passes: Vec<_> = (0..inside).map(|_| gate.enter().unwrap()).collect();
            match gate.try_freeze() {
                Ok(_frozen) => assert!(inside == 0 && gate.enter().is_none()),
                Err(out) => assert_eq!(out.count(), inside),
            }
            assert_eq!((is_open(&gate), gate.inside()), (true, inside));
            drop(passes);
        }
        let first = gate.try_freeze().unwrap();
        let second = gate.try_freeze().unwrap();
        drop(first);
        assert!(gate.enter().is_none());
        drop(second);
        assert!(is_open(&gate));
    }

    fn waiting_passes_through_freezes_and_ends_with_the_gate<F>() {
        let gate = gate::<F>();
        thread::scope(|s| {
            let frozen = gate.freeze();
            let waiters: Vec<_> = (0..4).map(|_| s.spawn(|| gate.enter_wait().map(drop))).collect();
            thread::sleep(MOMENT);
            assert!(waiters.iter().all(|w| !w.is_finished()));
            drop(frozen);
            assert!(waiters.into_iter().all(|w| w.join().unwrap() == Ok(())));

            let frozen = gate.freeze();
            let waiters: Vec<_> = (0..4).map(|_| s.spawn(|| gate.enter_wait().map(drop))).collect();
            thread::sleep(MOMENT);
            gate.close();
            assert!(waiters.into_iter().all(|w| w.join().unwrap() == Err(Closed)));
            drop(frozen);
        });
        assert_eq!(gate.enter_wait().unwrap_err(), Closed);
    }

    fn a_closed_gate_stays_closed<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        gate.close();
        assert_eq!((gate.is_closed(), gate.is_frozen(), gate.inside()), (true, false, 1));
        gate.close();
        assert!(gate.enter().is_none());
        assert_eq!(gate.enter_wait().unwrap_err(), Closed);
        assert_eq!(gate.freeze_timeout(MOMENT).unwrap_err().count(), 1);
        assert_eq!(gate.try_freeze().unwrap_err().count(), 1);
        drop(pass);
        drop(gate.freeze());
        drop(gate.try_freeze().unwrap());
        assert!(gate.enter().is_none() && gate.is_closed());
    }

    fn a_gate_that_is_closed_while_it_is_frozen_does_not_thaw<F>() {
        let gate = gate::<F>();
        let (one, other) = (gate.freeze(), gate.freeze());
        gate.close();
        drop(one);
        assert!(gate.enter().is_none());
        drop(other);
        assert_eq!((gate.is_frozen(), gate.enter().is_none()), (false, true));
        drop(gate.freeze());
    }

    fn a_close_that_meets_a_freeze_called_off_is_final<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        assert!(gate.freeze_timeout(Duration::ZERO).is_err());
        gate.close();
        assert!(gate.enter().is_none());
        drop(pass);
        drop(gate.freeze());
        assert!(gate.enter().is_none());
    }

    fn guards_may_be_dropped_on_other_threads<F>() {
        let gate = gate::<F>();
        for _ in 0..100 {
            let pass = gate.enter().unwrap();
            thread::scope(|s| {
                s.spawn(move || drop(pass));
                let frozen = gate.freeze();
                s.spawn(move || drop(frozen));
                drop(gate.enter_wait().unwrap());
            });
        }
        assert_eq!(gate.inside(), 0);
    }

    fn a_panic_leaves_and_thaws<F>() {
        let gate = gate::<F>();
        assert!(panics(|| {
            let _pass = gate.enter().unwrap();
            panic!("on purpose");
        }));
        assert!(panics(|| {
            let _frozen = gate.freeze();
            panic!("on purpose");
        }));
        assert_eq!((is_open(&gate), gate.inside(), gate.is_frozen()), (true, 0, false));
    }

    fn a_forgotten_share_keeps_the_gate_frozen<F>() {
        let gate = gate::<F>();
        forget(gate.freeze());
        drop(gate.freeze());
        assert!(gate.is_frozen() && gate.enter().is_none());
        gate.close();
        assert_eq!(gate.enter_wait().unwrap_err(), Closed);
    }

    fn a_forgotten_pass_is_told_by_the_timeout_and_by_the_drop<F>() {
        let name = unique("a gate");
        let gate = Gate::builder().flavor(F::default()).name(name.clone()).build();
        forget(gate.enter().unwrap());
        forget(gate.enter().unwrap().clone());
        let late = gate.freeze_timeout(MOMENT).unwrap_err().to_string();
        assert_eq!(late.lines().next(), Some(&*format!("ref `{name}` still has 2 references out")));
        drop(gate);
        let expected = if cfg!(debug_assertions) { vec![ReportKind::DroppedWithReferences(2)] } else { vec![] };
        assert_eq!(reports_on(&name), expected);
    }

    fn whoever_freezes_inside_his_own_pass_is_told_by_the_timeout<F>() {
        let gate = gate::<F>();
        let _pass = gate.enter().unwrap();
        assert_eq!(gate.freeze_timeout(MOMENT).unwrap_err().count(), 1);
        assert_eq!(gate.try_freeze().unwrap_err().count(), 1);
        assert!(is_open(&gate));
    }

    fn waits_inside_a_section_panic_and_change_nothing<F>() {
        let gate = gate::<F>();
        let section = F::read_lock();
        assert!(panics(|| drop(gate.freeze())));
        assert!(panics(|| drop(gate.freeze_timeout(Duration::ZERO))));
        assert!(panics(|| drop(gate.try_freeze())));
        assert!(!gate.is_frozen() && is_open(&gate));
        drop(gate.enter_wait().unwrap());
        drop(section);

        let frozen = gate.freeze();
        let section = F::read_lock();
        assert!(panics(|| drop(gate.enter_wait())));
        drop(frozen); // a thaw waits for nothing
        assert!(is_open(&gate));
        gate.close(); // nor does this
        assert_eq!(gate.enter_wait().unwrap_err(), Closed);
        drop(section);
        drop(gate.freeze());
    }

    fn freezes_work_in_callbacks<F>() {
        let (tell, told) = mpsc::channel();
        let cycle = || {
            let gate = gate::<F>();
            let pass = gate.enter_wait().unwrap();
            let late = gate.freeze_timeout(Duration::from_millis(1)).is_err();
            drop(pass);
            let frozen = gate.freeze();
            let shut = gate.enter().is_none();
            drop(frozen);
            late && shut && is_open(&gate)
        };
        let r = PercpuRef::builder().flavor(F::default()).build({
            let tell = tell.clone();
            move || tell.send(cycle()).unwrap()
        });
        r.kill_and_confirm({ let tell = tell.clone(); move || tell.send(cycle()).unwrap() }).unwrap();
        F::call(move || tell.send(cycle()).unwrap());
        for _ in 0..3 {
            assert_eq!(told.recv_timeout(soon()), Ok(true));
        }
    }

    fn a_callback_that_waits_for_a_thaw_holds_up_no_other<F>() {
        let gate = shared::<F>();
        let frozen = gate.freeze();
        let (tell, told) = mpsc::channel();
        F::call({
            let (gate, tell) = (gate.clone(), tell.clone());
            move || tell.send(gate.enter_wait().is_ok()).unwrap()
        });
        thread::sleep(MOMENT);
        let done = Tally::default();
        F::call({ let done = done.clone(); move || done.up() });
        eventually("the other one runs", || done.get() == 1);
        drop(frozen);
        assert_eq!(told.recv_timeout(soon()), Ok(true));
    }

    fn a_clone_gets_in_during_a_freeze_and_is_waited_for<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        thread::scope(|s| {
            let freezer = s.spawn(|| drop(gate.freeze()));
            eventually("the freezer has begun", || gate.is_frozen() && !is_open(&gate));
            let too = pass.clone();
            drop(pass);
            thread::sleep(MOMENT);
            assert!(!freezer.is_finished());
            drop(too);
        });
    }

    fn an_owned_pass_keeps_its_gate<F>() {
        let gate = shared::<F>();
        let pass: OwnedPass<Arc<Gate<F>>, F> = Gate::enter_owned(&gate).unwrap();
        assert!(std::ptr::eq(pass.gate(), &*gate));
        assert_eq!((gate.inside(), Arc::strong_count(&gate)), (1, 2));
        assert_eq!(gate.try_freeze().unwrap_err().count(), 1);
        let frozen = {
            thread::scope(|s| s.spawn(move || drop(pass)).join().unwrap());
            gate.freeze()
        };
        assert!(Gate::enter_owned(&gate).is_none());
        assert_eq!(Arc::strong_count(&gate), 1, "who is refused keeps nothing");
        drop(frozen);
        let pass = Gate::enter_owned(&gate).unwrap();
        drop(gate);
        assert_eq!(pass.gate().inside(), 1);
    }

    fn an_owned_pass_holds_whatever_keeps_the_gate<F>() {
        let owner = Owner::with_flavor(gate::<F>(), F::default());
        let handle = Owner::share(&owner);
        let weak: Weak<Gate<F>, F> = Owner::downgrade(&owner);
        let pass: OwnedPass<Shared<Gate<F>, F>, F> = Gate::enter_owned(&handle).unwrap();
        drop(handle);
        drop(owner);
        assert!(weak.upgrade().is_none());
        assert_eq!(pass.gate().inside(), 1);
        let gate: &'static Gate<F> = Box::leak(Box::new(gate()));
        let pass = Gate::enter_owned(&gate).unwrap();
        assert_eq!(gate.inside(), 1);
        drop(pass);
        assert_eq!(gate.inside(), 0);
    }

    fn a_clone_of_the_handle_that_panics_enters_nothing<F>() {
        struct Handle<F: Flavor>(Arc<Gate<F>>);
        impl<F: Flavor> Clone for Handle<F> {
            fn clone(&self) -> Self {
                panic!("on purpose")
            }
        }
        impl<F: Flavor> std::ops::Deref for Handle<F> {
            type Target = Gate<F>;
            fn deref(&self) -> &Gate<F> {
                &self.0
            }
        }
        let handle = Handle(shared::<F>());
        assert!(panics(|| drop(Gate::enter_owned(&handle))));
        assert_eq!(handle.0.inside(), 0);
        drop(handle.0.freeze());
    }

    fn a_gate_may_be_dropped_while_a_freeze_that_was_called_off_still_runs<F>() {
        for _ in 0..200 {
            let gate = gate::<F>();
            let (_, waker) = bell();
            assert!(poll(&mut gate.freeze_async(), &waker).is_pending() || gate.enter().is_some());
            gate.close();
        }
    }

    fn an_entering_future_is_ready_at_once_pending_or_refused<F>() {
        let gate = gate::<F>();
        let (rung, waker) = bell();
        let Poll::Ready(Ok(pass)) = poll(&mut gate.enter_async(), &waker) else { panic!("the gate is open") };
        drop(pass);
        let frozen = gate.freeze();
        let mut entering = gate.enter_async();
        for _ in 0..3 {
            assert!(poll(&mut entering, &waker).is_pending());
        }
        assert_eq!(rung.rung(), 0);
        drop(frozen);
        assert_eq!(rung.rung(), 1, "once, however often it was polled");
        assert!(matches!(poll(&mut entering, &waker), Poll::Ready(Ok(_))));
        let frozen = gate.freeze();
        let mut entering = gate.enter_async();
        assert!(poll(&mut entering, &waker).is_pending());
        gate.close();
        assert_eq!(rung.rung(), 2);
        assert!(matches!(poll(&mut entering, &waker), Poll::Ready(Err(Closed))));
        drop(frozen);
        assert_eq!(rung.rung(), 2);
    }

    fn a_future_that_is_dropped_is_not_woken_and_enters_nothing<F>() {
        let gate = gate::<F>();
        let frozen = gate.freeze();
        let (dropped, waker) = bell();
        let mut entering = gate.enter_async();
        assert!(poll(&mut entering, &waker).is_pending());
        drop(entering);
        assert_eq!(Arc::strong_count(&dropped), 2, "the gate has given the waker back");
        let (old, old_waker) = bell();
        let (new, new_waker) = bell();
        let mut entering = gate.enter_async();
        assert!(poll(&mut entering, &old_waker).is_pending());
        assert!(poll(&mut entering, &new_waker).is_pending());
        drop(frozen);
        assert_eq!((dropped.rung(), old.rung(), new.rung()), (0, 0, 1), "the last waker counts");
        drop(entering);
        assert_eq!(gate.inside(), 0);
    }

    fn a_woken_future_that_finds_the_gate_frozen_again_waits_again<F>() {
        let gate = gate::<F>();
        let (rung, waker) = bell();
        let mut entering = gate.enter_async();
        for cycle in 1..10 {
            let frozen = gate.freeze();
            assert!(poll(&mut entering, &waker).is_pending());
            drop(frozen);
            assert_eq!(rung.rung(), cycle);
        }
        assert!(matches!(poll(&mut entering, &waker), Poll::Ready(Ok(_))));
    }

    fn a_freezing_future_begins_when_it_is_polled_and_is_woken_by_the_last_pass<F>() {
        let gate = gate::<F>();
        let mut freezing = gate.freeze_async();
        assert!(!gate.is_frozen() && is_open(&gate));
        let (pass, too) = (gate.enter().unwrap(), gate.enter().unwrap());
        let (rung, waker) = bell();
        assert!(poll(&mut freezing, &waker).is_pending());
        assert!(gate.is_frozen() && gate.enter().is_none());
        drop(pass);
        thread::sleep(MOMENT);
        assert!(poll(&mut freezing, &waker).is_pending());
        assert_eq!(rung.rung(), 0);
        drop(too);
        eventually("it is woken", || rung.rung() == 1);
        let Poll::Ready(frozen) = poll(&mut freezing, &waker) else { panic!("woken for nothing") };
        assert!(panics(|| _ = poll(&mut freezing, &waker)), "it has been ready");
        drop(freezing);
        assert!(gate.enter().is_none(), "the share is ours");
        drop(frozen);
        assert!(is_open(&gate));
        let frozen = finish(&mut gate.freeze_async());
        assert!(gate.enter().is_none());
        drop(frozen);
    }

    fn a_freezing_future_that_is_dropped_gives_its_share_back<F>() {
        let gate = gate::<F>();
        let pass = gate.enter().unwrap();
        let (rung, waker) = bell();
        let (entered, enterer) = bell();
        let mut freezing = gate.freeze_async();
        assert!(poll(&mut freezing, &waker).is_pending());
        let mut entering = gate.enter_async();
        assert!(poll(&mut entering, &enterer).is_pending());
        drop(freezing);
        assert_eq!((entered.rung(), rung.rung(), Arc::strong_count(&rung)), (1, 0, 2));
        assert!(matches!(poll(&mut entering, &enterer), Poll::Ready(Ok(_))));
        drop(pass);

        // One that is ready, but was not polled again.
        let mut freezing = gate.freeze_async();
        let pass = gate.enter().unwrap();
        assert!(poll(&mut freezing, &waker).is_pending());
        drop(pass);
        eventually("it is woken", || rung.rung() == 1);
        drop(freezing);
        assert!(is_open(&gate) && !gate.is_frozen());
    }

    fn a_waker_that_panics_takes_no_wake_from_others<F>() {
        let gate = gate::<F>();
        let frozen = gate.freeze();
        let (before, before_waker) = bell();
        let (after, after_waker) = bell();
        let bomb = Waker::from(Arc::new(Bomb));
        let (mut one, mut two, mut three) = (gate.enter_async(), gate.enter_async(), gate.enter_async());
        assert!(poll(&mut one, &before_waker).is_pending());
        assert!(poll(&mut two, &bomb).is_pending());
        assert!(poll(&mut three, &after_waker).is_pending());
        assert!(panics(|| drop(frozen)));
        assert_eq!((before.rung(), after.rung(), is_open(&gate)), (1, 1, true));
    }

    fn what_a_second_panic_carries_takes_no_wake_either<F>() {
        struct Carries;
        impl Drop for Carries {
            fn drop(&mut self) {
                panic!("in the drop of what a panic carries");
            }
        }
        struct SecondBomb;
        impl Wake for SecondBomb {
            fn wake(self: Arc<Self>) {
                std::panic::panic_any(Carries);
            }
        }
        let gate = gate::<F>();
        let frozen = gate.freeze();
        let (after, after_waker) = bell();
        let (mut one, mut two, mut three) = (gate.enter_async(), gate.enter_async(), gate.enter_async());
        assert!(poll(&mut one, &Waker::from(Arc::new(Bomb))).is_pending());
        assert!(poll(&mut two, &Waker::from(Arc::new(SecondBomb))).is_pending());
        assert!(poll(&mut three, &after_waker).is_pending());
        assert!(panics(|| drop(frozen)));
        assert_eq!((after.rung(), is_open(&gate)), (1, true));
    }

    fn tasks_pass_through_freezes_and_stop_when_the_gate_closes<F>() {
        const CYCLES: usize = 50;
        let gate = shared::<F>();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let counter = || Arc::new(AtomicUsize::new(0));
        let (inside, entries, frozen) = (counter(), counter(), Arc::new(AtomicBool::new(false)));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..32).map(|_| {
                let (gate, inside, entries, frozen) = (gate.clone(), inside.clone(), entries.clone(), frozen.clone());
                tokio::spawn(async move {
                    while let Ok(pass) = gate.enter_async().await {
                        inside.fetch_add(1, SeqCst);
                        tokio::task::yield_now().await;
                        assert!(!frozen.load(SeqCst));
                        inside.fetch_sub(1, SeqCst);
                        drop(pass);
                        entries.fetch_add(1, SeqCst);
                        tokio::task::yield_now().await;
                    }
                })
            }).collect();
            for _ in 0..CYCLES {
                let share = gate.freeze_async().await;
                frozen.store(true, SeqCst);
                let before = entries.load(SeqCst);
                tokio::task::yield_now().await;
                assert_eq!(inside.load(SeqCst), 0);
                frozen.store(false, SeqCst);
                drop(share);
                // Somebody gets in each time: all are waiting.
                while entries.load(SeqCst) == before {
                    tokio::task::yield_now().await;
                }
            }
            gate.close();
            for task in tasks {
                task.await.unwrap();
            }
            drop(gate.freeze_async().await);
        });
        assert!(entries.load(SeqCst) >= CYCLES);
        assert_eq!(gate.inside(), 0);
    }

    fn waits_that_a_runtime_calls_off_leave_nothing_behind<F>() {
        let gate = shared::<F>();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async {
            let pass = gate.enter_async().await.unwrap();
            let late = tokio::time::timeout(Duration::from_millis(5), gate.freeze_async()).await;
            assert!(late.is_err());
            assert!(is_open(&gate) && !gate.is_frozen());
            drop(pass);
            let share = gate.freeze_async().await;
            let late = tokio::time::timeout(Duration::from_millis(5), gate.enter_async()).await;
            assert!(late.is_err());
            let aborted = tokio::spawn({ let gate = gate.clone(); async move { gate.enter_async().await.map(drop) } });
            tokio::task::yield_now().await;
            aborted.abort();
            assert!(aborted.await.unwrap_err().is_cancelled());
            drop(share);
        });
        assert_eq!((gate.inside(), is_open(&gate)), (0, true));
    }

    fn freezers_that_give_up_at_random_lose_no_wake_and_let_nobody_in<F>() {
        let gate = gate::<F>();
        // Two halves, which only whoever is alone writes.
        let (left, right, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let alone = std::sync::Mutex::new(0_usize);
        let entries = together(7, |i| {
            let mut dice = common::Dice::new(i);
            let mut done = 0_usize;
            if i < 4 {
                while let Ok(_pass) = gate.enter_wait() {
                    let seen = left.load(Relaxed);
                    if dice.below(8) == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(right.load(Relaxed), seen);
                    done += 1;
                }
                return done;
            }
            let end = Instant::now() + Duration::from_millis(400);
            while Instant::now() < end {
                let frozen = match dice.below(4) {
                    0 => Some(gate.freeze()),
                    1 => gate.freeze_timeout(Duration::from_micros(dice.below(200))).ok(),
                    2 => gate.try_freeze().ok(),
                    _ => {
                        let (_, waker) = bell();
                        match poll(&mut gate.freeze_async(), &waker) {
                            Poll::Ready(frozen) => Some(frozen),
                            Poll::Pending => None,
                        }
                    }
                };
                if frozen.is_some() {
                    let mut times = alone.lock().unwrap();
                    *times += 1;
                    left.store(*times, Relaxed);
                    right.store(*times, Relaxed);
                }
                drop(frozen);
                thread::yield_now();
            }
            if i == 6 {
                stop.store(true, SeqCst);
                gate.close();
            }
            0
        });
        assert!(stop.load(SeqCst) && entries.iter().sum::<usize>() > 0);
        assert_eq!(gate.inside(), 0);
        drop(gate.freeze());
    }
}

/// Nobody is inside while the gate is frozen, and nobody sleeps through a thaw, a hundred thousand times.
fn cycles<F: Flavor>() {
    const THREADS: usize = 16;
    const CYCLES: usize = 100_000;
    let gate = gate::<F>();
    let (left, right) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let entries: [AtomicUsize; THREADS] = std::array::from_fn(|_| AtomicUsize::new(0));
    thread::scope(|s| {
        let submitters: Vec<_> = (0..THREADS)
            .map(|i| {
                let (gate, left, right, entries) = (&gate, &left, &right, &entries[i]);
                s.spawn(move || {
                    let mut n = 0;
                    while let Ok(pass) = gate.enter_wait() {
                        assert_eq!(left.load(Relaxed), right.load(Relaxed));
                        drop(pass);
                        n += 1;
                        entries.store(n, Relaxed);
                        if n % 4 == i % 4 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for cycle in 1..=CYCLES {
            let frozen = gate.freeze();
            left.store(cycle, Relaxed);
            right.store(cycle, Relaxed);
            drop(frozen);
            if cycle % 500 == 0 {
                // Each of them has been woken, or was not asleep.
                let before: Vec<_> = entries.iter().map(|n| n.load(Relaxed)).collect();
                eventually("everybody gets in", || {
                    entries.iter().zip(&before).all(|(now, before)| now.load(Relaxed) > *before)
                });
            }
        }
        gate.close();
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    });
    drop(gate.freeze());
    assert_eq!(gate.inside(), 0);
}

mod a_hundred_thousand_cycles_against_sixteen_threads {
    use super::{Plain, Sched, cycles, soon};

    #[test]
    fn plain() {
        crate::common::bounded_by(soon() * 6, cycles::<Plain>);
    }

    #[test]
    fn sched() {
        crate::common::bounded_by(soon() * 6, cycles::<Sched>);
    }
}

tests! {
    fn gates_passes_and_shares_may_go_from_thread_to_thread() {
        fn anywhere<T: Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
        fn unpinned<T: Send + Sync + Unpin>() {}
        anywhere::<Gate>();
        anywhere::<Gate<Plain>>();
        anywhere::<Pass<'_>>();
        anywhere::<Frozen<'_>>();
        anywhere::<OwnedPass<Shared<Gate>>>();
        unpinned::<Entering<'_>>();
        unpinned::<Freezing<'_, Plain>>();
    }

    fn a_gate_may_be_a_static() {
        static GATE: LazyLock<Gate> = LazyLock::new(Gate::default);
        let pass: Pass<'static> = GATE.enter().unwrap();
        thread::spawn(move || drop(pass)).join().unwrap();
        drop(GATE.freeze());
        assert_eq!(GATE.name(), None);
        assert!(format!("{:?}", *GATE).contains("inside: 0"));
    }

    fn errors_are_errors() {
        fn is_error<T: std::error::Error + Clone + PartialEq + Send + Sync + 'static>(_: &T) {}
        is_error(&Closed);
        assert!(Closed.to_string().contains("closed"));
    }

    fn everything_works_in_the_destructors_of_thread_locals() {
        struct Last(&'static Gate);
        impl Drop for Last {
            fn drop(&mut self) {
                let pass = self.0.enter().unwrap();
                assert!(self.0.try_freeze().is_err());
                drop(pass);
                drop(self.0.freeze());
                drop(self.0.enter_wait().unwrap());
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
        }
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        thread::spawn(move || {
            LAST.with(|last| *last.borrow_mut() = Some(Last(gate)));
            drop(gate.enter());
        })
        .join()
        .unwrap();
        assert_eq!((gate.inside(), gate.is_frozen()), (0, false));
    }
}
