//! The reference counter: each method, each promise, and the ways in which twelve years of kernel code went wrong.

mod common;

use common::{
    Backend, Dice, Flavor, MOMENT, OnDrop, Plain, Sched, Tally, eventually, in_both_flavours, in_children, panics,
    reports_on, soon, tests, together, unique,
};
use percpu_ref::{
    AlreadyDying, Mode, NotReinitable, OutOfMemory, PercpuRef, Ref, Report, ReportKind, ReviveError, Start,
    set_report_hook,
};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A ref that may live again, and how often it was released.
fn gate<F: Flavor>() -> (Arc<PercpuRef<F>>, Tally) {
    named_gate("a gate")
}

fn named_gate<F: Flavor>(name: &str) -> (Arc<PercpuRef<F>>, Tally) {
    let released = Tally::default();
    let r =
        PercpuRef::builder().flavor(F::default()).allow_reinit(true).name(name.to_owned()).build(released.counter());
    (Arc::new(r), released)
}

/// A ref with one life.
fn mortal<F: Flavor>() -> (Arc<PercpuRef<F>>, Tally) {
    let released = Tally::default();
    (Arc::new(PercpuRef::builder().flavor(F::default()).build(released.counter())), released)
}

/// What the four ways to try to get in say now: tryget, tryget_many, tryget_live, enter. What they take is put back.
fn tries<F: Flavor>(r: &PercpuRef<F>) -> [bool; 4] {
    let one = r.tryget();
    let many = r.tryget_many(3);
    let live = r.tryget_live();
    let entered = r.enter().is_some();
    r.put_many(usize::from(one) + 3 * usize::from(many) + usize::from(live));
    [one, many, live, entered]
}

/// Waits for a kill or a switch that runs in the callback thread.
fn settled<F: Flavor>(r: &PercpuRef<F>, count: i64) {
    eventually("the switch ends", || r.mode() == Mode::Atomic && r.estimate() == count);
}

in_both_flavours! {
    fn what_gets_in_depends_on_the_life_and_not_on_the_mode<F>() {
        let (r, released) = gate::<F>();
        assert_eq!((r.mode(), r.is_dying(), r.is_zero(), r.estimate()), (Mode::Percpu, false, false, 1));
        assert_eq!(tries(&r), [true; 4]);
        r.switch_to_atomic_sync();
        assert_eq!((r.mode(), r.is_dying(), r.is_zero(), r.estimate()), (Mode::Atomic, false, false, 1));
        assert_eq!(tries(&r), [true; 4]);
        r.get();
        r.kill_sync().unwrap();
        assert_eq!((r.mode(), r.is_dying(), r.is_zero(), r.estimate()), (Mode::Atomic, true, false, 1));
        assert_eq!(tries(&r), [true, true, false, false]);
        assert!(r.tryget_many(0), "something could be taken");
        r.put();
        assert_eq!((r.is_dying(), r.is_zero(), r.estimate(), released.get()), (true, true, 0, 1));
        assert_eq!(tries(&r), [false; 4]);
        assert!(!r.tryget_many(0), "nothing could be taken");
    }

    fn each_start_is_as_the_kernel_has_it<F>() {
        for (start, mode, count, live) in
            [(Start::Percpu, Mode::Percpu, 1, true), (Start::Atomic, Mode::Atomic, 1, true), (Start::Dead, Mode::Atomic, 0, false)]
        {
            let released = Tally::default();
            let r = PercpuRef::builder().flavor(F::default()).start(start).allow_reinit(true).build(released.counter());
            assert_eq!((r.mode(), r.estimate(), !r.is_dying()), (mode, count, live), "{start:?}");
            if !live {
                r.wait_zero();
                assert_eq!(r.kill(), Err(AlreadyDying));
                r.reinit().unwrap();
            }
            assert_eq!(tries(&r), [true; 4]);
            assert_eq!(r.mode(), if start == Start::Atomic { Mode::Atomic } else { Mode::Percpu }, "atomic is sticky");
            r.kill().unwrap();
            r.wait_zero();
            assert_eq!(released.get(), 1);
        }
    }

    fn atomic_stays_through_deaths_until_it_is_switched_back<F>() {
        let (r, _) = gate::<F>();
        r.switch_to_atomic_sync();
        r.get();
        r.kill_sync().unwrap();
        r.resurrect().unwrap();
        assert_eq!(r.mode(), Mode::Atomic);
        r.put();
        r.kill_sync().unwrap();
        r.reinit().unwrap();
        assert_eq!(r.mode(), Mode::Atomic);
        r.kill_sync().unwrap();
        r.switch_to_percpu().unwrap();
        assert_eq!(r.mode(), Mode::Atomic, "it is dead: that is for its next life");
        r.reinit().unwrap();
        assert_eq!(r.mode(), Mode::Percpu);
        r.kill_sync().unwrap();
    }

    fn every_refusal_is_typed_and_changes_nothing<F>() {
        let (r, released) = mortal::<F>();
        assert_eq!((r.resurrect(), r.reinit()), (Err(ReviveError::NotDying), Err(ReviveError::NotDying)));
        assert_eq!(r.switch_to_percpu(), Err(NotReinitable));
        assert_eq!(r.mode(), Mode::Percpu);
        r.get();
        r.kill_sync().unwrap();
        assert_eq!((r.resurrect(), r.reinit()), (Err(ReviveError::NotReinitable), Err(ReviveError::NotReinitable)));
        let (unrun, dropped) = (Tally::default(), Tally::default());
        let carried = OnDrop(dropped.counter());
        let confirm = { let unrun = unrun.clone(); move || { let _carried = &carried; unrun.up() } };
        assert_eq!(r.kill_and_confirm(confirm), Err(AlreadyDying));
        assert_eq!((r.kill(), r.kill_sync()), (Err(AlreadyDying), Err(AlreadyDying)));
        assert_eq!((unrun.get(), dropped.get()), (0, 1), "a refused confirm is dropped, not run");
        assert_eq!((r.estimate(), released.get()), (1, 0));
        r.put();
        r.wait_zero();
        assert_eq!((r.resurrect(), r.reinit()), (Err(ReviveError::NotReinitable), Err(ReviveError::NotReinitable)));

        let (r, _) = gate::<F>();
        r.get();
        r.kill_sync().unwrap();
        assert_eq!(r.reinit(), Err(ReviveError::StillReferenced));
        r.put();
        assert_eq!(r.resurrect(), Err(ReviveError::Released));
        assert!(r.is_zero() && r.is_dying());
        r.reinit().unwrap();
        r.kill_sync().unwrap();
    }

    fn of_many_killers_one_wins<F>() {
        for round in 0..60 {
            let (r, released) = mortal::<F>();
            let confirmed = Tally::default();
            let won: usize = together(4, |i| usize::from(match (i + round) % 3 {
                0 => r.kill(),
                1 => r.kill_sync(),
                _ => r.kill_and_confirm(confirmed.counter()),
            }.is_ok())).into_iter().sum();
            r.wait_zero();
            assert_eq!((won, released.get()), (1, 1));
            assert!(confirmed.get() <= 1);
        }
    }

    fn confirms_run_once_each_in_the_order_asked_for_and_before_release<F>() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let r = Arc::new(PercpuRef::builder().flavor(F::default()).build({
            let log = Arc::clone(&log);
            move || log.lock().unwrap().push(100)
        }));
        let section = F::read_lock();
        for n in 0..5 {
            let log = Arc::clone(&log);
            r.switch_to_atomic(move || log.lock().unwrap().push(n));
        }
        r.kill_and_confirm({ let log = Arc::clone(&log); move || log.lock().unwrap().push(5) }).unwrap();
        drop(section);
        r.wait_zero();
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4, 5, 100]);
    }

    fn nobody_gets_in_after_confirm_has_begun_whatever_the_mode_was<F>() {
        for round in 0..60 {
            let (r, released) = gate::<F>();
            let confirmed = Arc::new(AtomicBool::new(false));
            match round % 3 {
                0 => {}
                1 => r.switch_to_atomic_sync(),
                _ => r.switch_to_atomic(|| {}),
            }
            together(4, |i| {
                if i == 0 {
                    let confirmed = Arc::clone(&confirmed);
                    r.kill_and_confirm(move || confirmed.store(true, SeqCst)).unwrap();
                    return;
                }
                loop {
                    let late = confirmed.load(SeqCst);
                    let got = r.tryget_live();
                    assert!(!(late && got), "got in after confirm");
                    if !got {
                        break;
                    }
                    r.put();
                }
                eventually("confirm", || confirmed.load(SeqCst));
                assert!(!r.tryget_live() && r.enter().is_none());
            });
            r.wait_zero();
            assert_eq!(released.get(), 1);
        }
    }

    fn what_holders_did_is_visible_in_release_and_after_the_wait<F>() {
        for _ in 0..60 {
            let done = Arc::new([const { AtomicUsize::new(0) }; 4]);
            let seen = Arc::new(AtomicUsize::new(0));
            let r = PercpuRef::builder().flavor(F::default()).build({
                let (done, seen) = (Arc::clone(&done), Arc::clone(&seen));
                move || seen.store(done.iter().map(|d| d.load(Relaxed)).sum(), Relaxed)
            });
            r.get_many(4);
            together(5, |i| {
                if i == 4 {
                    r.kill().unwrap();
                    r.wait_zero();
                    assert_eq!(seen.load(Relaxed), 4);
                } else {
                    done[i].store(1, Relaxed);
                    r.put();
                }
            });
        }
    }

    fn what_precedes_a_new_life_is_visible_to_who_gets_in<F>() {
        let (r, _) = gate::<F>();
        let value = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let life = AtomicUsize::new(0);
        together(3, |i| {
            if i == 2 {
                for n in 1..200 {
                    r.kill_sync().unwrap();
                    r.wait_zero();
                    life.store(n, SeqCst);
                    value.store(n, Relaxed);
                    r.reinit().unwrap();
                }
                over.store(true, SeqCst);
                return;
            }
            while !over.load(Relaxed) {
                let Some(_inside) = r.enter() else { continue };
                let value = value.load(Relaxed);
                assert_eq!(value, life.load(SeqCst), "the life cannot end while we are inside");
            }
        });
        r.kill_sync().unwrap();
    }

    fn the_books_balance_whatever_happens_meanwhile<F>() {
        let (r, released) = gate::<F>();
        let (over, revived) = (AtomicBool::new(false), AtomicUsize::new(0));
        let held: i64 = together(5, |i| {
            let mut dice = Dice::new(i);
            if i >= 3 {
                // One reference of our own lets every kill be taken back.
                r.get();
                for _ in 0..150 {
                    match dice.below(6) {
                        0 => { let _ = r.kill(); }
                        1 => { let _ = r.kill_sync(); }
                        2 => { let _ = r.kill_and_confirm(|| {}); }
                        3 => r.switch_to_atomic(|| {}),
                        4 => r.switch_to_atomic_sync(),
                        _ => r.switch_to_percpu().unwrap(),
                    }
                    if r.resurrect().is_ok() {
                        revived.fetch_add(1, Relaxed);
                    }
                }
                over.store(true, SeqCst);
                return 1;
            }
            let mut held = 0_i64;
            while !over.load(Relaxed) {
                match dice.below(8) {
                    0 if held > 0 => r.get(),
                    1 if held > 0 => { r.get_many(5); held += 4 }
                    2 => if r.tryget() {} else { continue },
                    3 => if r.tryget_many(2) { held += 1 } else { continue },
                    4 => if r.tryget_live() {} else { continue },
                    5 => { drop(r.enter().map(|guard| (guard.clone(), guard))); continue }
                    6 if held > 0 => { r.put(); held -= 1; continue }
                    7 if held > 3 => { r.put_many(3); held -= 3; continue }
                    _ => continue,
                }
                held += 1;
            }
            held
        }).into_iter().sum();
        assert!(revived.load(Relaxed) > 0);
        let _ = r.resurrect();
        r.switch_to_atomic_sync();
        assert_eq!(r.estimate(), held + 1);
        r.switch_to_percpu().unwrap();
        assert_eq!(released.get(), 0);
        r.put_many(usize::try_from(held).unwrap());
        r.kill().unwrap();
        r.wait_zero();
        assert_eq!(released.get(), 1);
    }

    fn lives_follow_each_other_under_traffic_with_one_release_each<F>() {
        let (r, released) = gate::<F>();
        let over = AtomicBool::new(false);
        let inside = AtomicUsize::new(0);
        together(4, |i| {
            if i > 0 {
                while !over.load(Relaxed) {
                    if let Some(guard) = r.enter() {
                        inside.fetch_add(1, SeqCst);
                        let second = guard.clone();
                        drop(guard);
                        inside.fetch_sub(1, SeqCst);
                        drop(second);
                    }
                }
                return;
            }
            for life in 1..=150 {
                if life % 2 == 0 { r.kill().unwrap() } else { r.kill_sync().unwrap() }
                r.wait_zero();
                assert_eq!((released.get(), inside.load(SeqCst)), (life, 0));
                r.reinit().unwrap();
            }
            over.store(true, SeqCst);
        });
        r.kill_sync().unwrap();
    }

    fn more_threads_than_lanes_count_exactly<F>() {
        let (r, released) = gate::<F>();
        let counted = Barrier::new(321);
        let switched = Barrier::new(321);
        together(321, |i| {
            if i == 320 {
                counted.wait();
                assert_eq!(r.estimate(), 1 + 320 * 7);
                r.kill_sync().unwrap();
                assert_eq!(r.estimate(), 320 * 7);
                r.resurrect().unwrap();
                switched.wait();
                return;
            }
            r.get_many(10);
            r.get();
            r.put_many(4);
            counted.wait();
            switched.wait();
            r.put_many(7);
        });
        assert_eq!((r.estimate(), released.get()), (1, 0));
        r.kill_sync().unwrap();
        assert_eq!(released.get(), 1);
    }

    fn counts_outlive_the_threads_that_made_them<F>() {
        let (r, released) = mortal::<F>();
        for _ in 0..20 {
            together(8, |_| r.get_many(3));
            together(4, |_| r.put_many(2));
        }
        assert_eq!(r.estimate(), 1 + 20 * (24 - 8));
        r.kill_sync().unwrap();
        assert_eq!(r.estimate(), 320);
        thread::scope(|s| { s.spawn(|| r.put_many(320)); });
        r.wait_zero();
        assert_eq!(released.get(), 1);
    }

    fn counting_works_in_destructors_of_thread_locals_registered_before_and_after<F>() {
        for before in [true, false] {
            for atomic in [true, false] {
                let (r, released) = gate::<F>();
                if atomic {
                    r.switch_to_atomic_sync();
                }
                thread::spawn({
                    let r = Arc::clone(&r);
                    move || {
                        if !before {
                            r.get();
                        }
                        let last = {
                            let r = Arc::clone(&r);
                            OnDrop(move || {
                                r.get_many(5);
                                r.put_many(4);
                                assert_eq!(tries(&r), [true; 4]);
                                drop(F::read_lock());
                                r.switch_to_atomic(|| {});
                                assert!(r.enter().is_some());
                                PercpuRef::builder().flavor(F::default()).build(|| {}).kill_sync().unwrap();
                            })
                        };
                        LAST.with(|slot| *slot.borrow_mut() = Some(Box::new(last)));
                        if before {
                            r.get();
                        }
                    }
                }).join().unwrap();
                settled(&r, 3);
                r.kill_sync().unwrap();
                r.put_many(2);
                r.wait_zero();
                assert_eq!(released.get(), 1);
            }
        }
    }

    fn a_guard_that_a_thread_local_keeps_is_put_by_its_destructor<F>() {
        // The guard borrows a ref that lives for ever.
        let r: &'static PercpuRef<F> = Box::leak(Box::new(PercpuRef::builder().flavor(F::default()).build(|| {})));
        thread::spawn(move || {
            let mut guard = r.enter();
            let keep = OnDrop(move || drop(guard.take()));
            LAST.with(|slot| *slot.borrow_mut() = Some(Box::new(keep)));
        }).join().unwrap();
        assert_eq!(r.estimate(), 1);
        r.kill_sync().unwrap();
        r.wait_zero();
    }

    fn forgotten_guards_stay_counted<F>() {
        let (r, released) = mortal::<F>();
        std::mem::forget(r.enter());
        let guard: Ref<'_, F> = r.enter().unwrap();
        std::mem::forget(guard.clone());
        drop(guard);
        r.kill_sync().unwrap();
        assert_eq!((r.estimate(), released.get()), (2, 0));
        assert_eq!(r.wait_zero_timeout(Duration::ZERO).unwrap_err().count(), 2);
        r.put_many(2);
        assert_eq!(released.get(), 1);
    }

    fn debug_shows_flavour_name_mode_and_count<F>() {
        let (r, _) = named_gate::<F>("shown");
        r.get_many(2);
        let flavor = format!("{:?}", F::default());
        let shown = |r: &PercpuRef<F>| format!("{r:?}");
        let text = shown(&r);
        assert!([flavor.as_str(), "shown", "Percpu", "count: 3", "dying: false"].iter().all(|part| text.contains(part)), "{text}");
        assert!(format!("{:?}", r.enter()).contains("shown"), "a guard shows what it guards");
        r.kill_sync().unwrap();
        let text = shown(&r);
        assert!(["Atomic", "count: 2", "dying: true"].iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(format!("{:?}", r.enter()), "None");
        r.put_many(3);
        let text = shown(&r);
        assert!(text.contains("saturated"), "{text}");
    }

    fn resurrect_in_the_own_confirm_takes_the_kill_back<F>() {
        for atomic in [false, true] {
            let (r, released) = gate::<F>();
            if atomic {
                r.switch_to_atomic_sync();
            }
            let (tell, told) = mpsc::channel();
            r.kill_and_confirm({
                let r = Arc::clone(&r);
                move || {
                    let gets_in = || r.enter().is_some(); // and out again, before anybody is told
                    tell.send((gets_in(), r.resurrect(), gets_in(), r.is_dying(), r.resurrect())).unwrap()
                }
            }).unwrap();
            let back = (false, Ok(()), true, false, Err(ReviveError::NotDying));
            assert_eq!(told.recv_timeout(soon()), Ok(back));
            eventually("the mode is as before", || (r.mode() == Mode::Atomic) == atomic);
            assert_eq!((r.estimate(), released.get()), (1, 0), "the first reference was not dropped");
            r.kill_sync().unwrap();
            r.wait_zero();
            assert_eq!(released.get(), 1);
        }
    }

    fn a_kill_after_a_resurrect_in_the_same_confirm_counts<F>() {
        let (r, released) = gate::<F>();
        let (tell, told) = mpsc::channel();
        r.get();
        r.kill_and_confirm({
            let r = Arc::clone(&r);
            move || {
                r.resurrect().unwrap();
                r.switch_to_percpu().unwrap();
                let (again, tell) = (Arc::clone(&r), tell.clone());
                r.kill_and_confirm(move || {
                    again.resurrect().unwrap();
                    again.kill_and_confirm(move || tell.send(()).unwrap()).unwrap();
                }).unwrap();
            }
        }).unwrap();
        told.recv_timeout(soon()).unwrap();
        settled(&r, 1);
        assert!(r.is_dying() && !r.tryget_live());
        r.put();
        r.wait_zero();
        assert_eq!(released.get(), 1);
        r.reinit().unwrap();
        assert_eq!(r.mode(), Mode::Percpu);
        r.kill_sync().unwrap();
        assert_eq!(released.get(), 2);
    }

    fn a_resurrect_from_elsewhere_waits_for_every_confirm<F>() {
        let (r, released) = gate::<F>();
        r.get();
        for _ in 0..30 {
            let confirmed = Tally::default();
            let slow = { let confirmed = confirmed.clone(); move || { thread::yield_now(); confirmed.up() } };
            r.kill_and_confirm(slow).unwrap();
            r.switch_to_atomic(confirmed.counter());
            r.resurrect().unwrap();
            assert_eq!(confirmed.get(), 2);
            assert!(r.enter().is_some());
        }
        assert_eq!(released.get(), 0);
        r.put();
        r.kill_sync().unwrap();
        assert_eq!(released.get(), 1);
    }

    fn release_may_drop_the_last_handle_of_its_own_ref<F>() {
        for how in 0..4 {
            let own: Arc<Mutex<Option<Arc<PercpuRef<F>>>>> = Arc::default();
            let gone = Tally::default();
            let carried = OnDrop(gone.counter());
            let r = Arc::new(PercpuRef::builder().flavor(F::default()).build({
                let own = Arc::clone(&own);
                move || {
                    let _carried = &carried;
                    drop(own.lock().unwrap().take());
                }
            }));
            *own.lock().unwrap() = Some(Arc::clone(&r));
            match how {
                0 => { r.kill().unwrap(); drop(r) }
                1 => { r.kill_sync().unwrap(); drop(r) }
                2 => {
                    r.get();
                    r.kill_sync().unwrap();
                    let weak = Arc::downgrade(&r);
                    let put = thread::spawn(move || r.put());
                    put.join().unwrap();
                    assert!(weak.upgrade().is_none());
                }
                _ => { r.kill_and_confirm({ let r = Arc::clone(&r); move || drop(r) }).unwrap(); drop(r) }
            }
            eventually("the ref is freed", || gone.get() == 1);
        }
    }

    fn callbacks_may_use_everything_that_does_not_wait_for_their_ref<F>() {
        let (other, other_released) = gate::<F>();
        let (tell, told) = mpsc::channel();
        let r = Arc::new(PercpuRef::builder().flavor(F::default()).build({
            let (other, tell) = (Arc::clone(&other), tell.clone());
            move || {
                F::synchronize();
                drop(F::read_lock());
                other.kill_sync().unwrap();
                other.wait_zero();
                other.reinit().unwrap();
                other.switch_to_atomic_sync();
                other.switch_to_percpu().unwrap();
                let inner = PercpuRef::builder().flavor(F::default()).build(|| {});
                inner.kill().unwrap();
                inner.wait_zero();
                tell.send("released").unwrap();
                let told = tell.clone();
                F::call(move || told.send("called").unwrap());
            }
        }));
        r.kill_and_confirm({
            let r = Arc::clone(&r);
            move || {
                assert_eq!(tries(&r), [true, true, false, false]);
                assert_eq!((r.kill(), r.reinit()), (Err(AlreadyDying), Err(ReviveError::NotReinitable)));
                r.switch_to_atomic(|| {});
                F::synchronize();
                F::barrier();
                tell.send("confirmed").unwrap();
            }
        }).unwrap();
        for expected in ["confirmed", "released", "called"] {
            assert_eq!(told.recv_timeout(soon()), Ok(expected));
        }
        assert_eq!(other_released.get(), 1);
        other.kill_sync().unwrap();
    }

    fn callbacks_may_wait_for_refs_that_wait_for_refs_sixty_levels_deep<F>() {
        fn chain<F: Flavor>(level: usize, released: &Tally) -> PercpuRef<F> {
            let next = (level > 0).then(|| chain::<F>(level - 1, released));
            PercpuRef::builder().flavor(F::default()).build({
                let released = released.clone();
                move || {
                    if let Some(next) = &next {
                        // By turns: in this thread, in the callback thread, and in a confirm.
                        match level % 3 {
                            0 => next.kill_sync().unwrap(),
                            1 => next.kill().unwrap(),
                            _ => next.kill_and_confirm(|| F::synchronize()).unwrap(),
                        }
                        next.wait_zero();
                    }
                    released.up();
                }
            })
        }
        let released = Tally::default();
        let first = chain::<F>(60, &released);
        first.kill().unwrap();
        first.wait_zero();
        assert_eq!(released.get(), 61);
    }

    fn waits_that_could_not_end_panic_before_anything_changes<F>() {
        let (r, released) = gate::<F>();
        let section = F::read_lock();
        assert!(panics(|| r.wait_zero()));
        assert!(panics(|| drop(r.wait_zero_timeout(MOMENT))));
        assert!(panics(|| { let _ = r.kill_sync(); }));
        assert!(panics(|| r.switch_to_atomic_sync()));
        assert_eq!((r.mode(), r.is_dying(), r.resurrect()), (Mode::Percpu, false, Err(ReviveError::NotDying)));
        r.get();
        r.kill().unwrap();
        assert!(panics(|| { let _ = r.resurrect(); }));
        assert!(r.is_dying());
        drop(section);
        r.resurrect().unwrap();
        r.put();

        let (tell, told) = mpsc::channel();
        r.switch_to_atomic({
            let r = Arc::clone(&r);
            move || tell.send([
                panics(|| r.wait_zero()),
                panics(|| drop(r.wait_zero_timeout(MOMENT))),
                panics(|| { let _ = r.kill_sync(); }),
                panics(|| r.switch_to_atomic_sync()),
                r.is_dying(),
            ]).unwrap()
        });
        assert_eq!(told.recv_timeout(soon()), Ok([true, true, true, true, false]));
        r.kill_sync().unwrap();
        r.wait_zero(); // The kill may have joined the switch, whose end releases in the callback thread.
        assert_eq!(released.get(), 1);
    }

    fn panics_in_callbacks_are_reported_and_change_nothing<F>() {
        let name = unique("panicking");
        let r = PercpuRef::builder().flavor(F::default()).allow_reinit(true).name(name.clone()).build(|| panic!("in release"));
        let lost = OnDrop(|| panic!("in a drop"));
        r.switch_to_atomic(move || { let _lost = lost; });
        r.kill_and_confirm(|| std::panic::panic_any(3_u8)).unwrap();
        r.wait_zero();
        let panicked = |message: &str| ReportKind::CallbackPanicked(message.to_owned());
        assert_eq!(reports_on(&name), [panicked("in a drop"), panicked("(no message)"), panicked("in release")]);
        r.reinit().unwrap();
        r.get();
        r.kill_sync().unwrap();
        r.put();
        r.wait_zero();
        assert_eq!(reports_on(&name).len(), 4);
    }

    fn a_ref_that_is_dropped_alive_does_not_release_and_a_dying_one_does<F>() {
        let (alive, released) = mortal::<F>();
        drop(alive);
        let (confirmed, dying_released) = (Tally::default(), Tally::default());
        let section = F::read_lock();
        let dying = PercpuRef::builder().flavor(F::default()).build(dying_released.counter());
        dying.kill_and_confirm(confirmed.counter()).unwrap();
        drop(dying);
        drop(section);
        eventually("confirm and release", || (confirmed.get(), dying_released.get()) == (1, 1));
        F::barrier();
        assert_eq!(released.get(), 0);
    }

    fn drops_at_a_bad_moment_are_reported_where_debug_assertions_are_on<F>() {
        let expected = |kind| if cfg!(debug_assertions) { vec![kind] } else { vec![] };
        let held = unique("dropped with references");
        let r = PercpuRef::builder().flavor(F::default()).name(held.clone()).build(|| {});
        r.get_many(2);
        drop(r);
        assert_eq!(reports_on(&held), expected(ReportKind::DroppedWithReferences(2)));

        let dying = unique("dropped dying with a reference");
        let r = PercpuRef::builder().flavor(F::default()).name(dying.clone()).build(|| {});
        r.get();
        r.kill_sync().unwrap();
        drop(r);
        assert_eq!(reports_on(&dying), expected(ReportKind::DroppedWithReferences(1)));

        let (killed, switching) = (unique("dropped in a kill"), unique("dropped in a switch"));
        let (dropped, may_go_on) = mpsc::channel::<()>();
        let r = PercpuRef::builder().flavor(F::default()).name(killed.clone()).build(|| {});
        r.kill_and_confirm(move || may_go_on.recv().unwrap()).unwrap();
        drop(r);
        dropped.send(()).unwrap();
        let (dropped, may_go_on) = mpsc::channel::<()>();
        let r = PercpuRef::builder().flavor(F::default()).name(switching.clone()).build(|| {});
        r.switch_to_atomic(move || may_go_on.recv().unwrap());
        drop(r);
        dropped.send(()).unwrap();
        assert_eq!(reports_on(&killed), expected(ReportKind::DroppedInSwitch));
        assert_eq!(reports_on(&switching), expected(ReportKind::DroppedInSwitch));

        let quiet = unique("dropped in order");
        for dead in [false, true] {
            let r = PercpuRef::builder().flavor(F::default()).name(quiet.clone()).build(|| {});
            if dead {
                r.kill_sync().unwrap();
            }
            drop(r);
        }
        assert_eq!(reports_on(&quiet), []);
    }

    fn every_misuse_saturates_reports_once_and_never_releases<F>() {
        type Misuse<F> = fn(&PercpuRef<F>);
        const OVER: usize = u32::MAX as usize + 1;
        let cases: [(&str, ReportKind, Misuse<F>); 8] = [
            ("per-CPU, surplus put", ReportKind::SurplusPut, |r| { r.put(); _ = r.kill_sync() }),
            ("per-CPU, surplus put_many", ReportKind::SurplusPut, |r| { r.get_many(3); r.put_many(4); r.switch_to_atomic_sync() }),
            ("atomic, surplus put", ReportKind::SurplusPut, |r| { r.switch_to_atomic_sync(); r.put() }),
            ("atomic, surplus put_many", ReportKind::SurplusPut, |r| { r.switch_to_atomic_sync(); r.get(); r.put_many(2) }),
            ("get_many too many", ReportKind::TooMany, |r| r.get_many(OVER)),
            ("put_many too many", ReportKind::TooMany, |r| r.put_many(usize::MAX)),
            ("tryget_many too many", ReportKind::TooMany, |r| assert!(r.tryget_many(OVER))),
            ("in a switch, surplus put", ReportKind::SurplusPut, |r| {
                let section = F::read_lock();
                r.switch_to_atomic(|| {});
                r.put();
                drop(section);
                r.switch_to_atomic_sync();
            }),
        ];
        for (name, kind, misuse) in cases {
            let name = unique(name);
            let (r, released) = named_gate::<F>(&name);
            misuse(&r);
            assert_eq!(reports_on(&name), [kind], "{name}");
            for _ in 0..3 {
                r.put_many(u32::MAX as usize);
                r.get();
                r.put();
                assert!(r.tryget() && r.tryget_many(2));
            }
            assert_eq!((r.estimate(), r.is_zero()), (i64::MAX, false));
            let _ = r.kill_sync();
            assert!(!r.tryget_live() && r.is_dying());
            let start = Instant::now();
            let out = r.wait_zero_timeout(soon()).unwrap_err();
            assert!(out.is_saturated() && out.name() == Some(&*name) && start.elapsed() < soon() / 2);
            assert!(panics(|| r.wait_zero()));
            assert_eq!(r.reinit(), Err(ReviveError::StillReferenced));
            r.resurrect().unwrap();
            assert!(r.tryget_live());
            r.kill().unwrap();
            F::barrier();
            assert_eq!((released.get(), reports_on(&name).len()), (0, 1), "{name}");
        }
    }

    fn misuse_after_the_release_is_reported_and_never_releases_again<F>() {
        type Misuse<F> = fn(&PercpuRef<F>);
        let cases: [(ReportKind, Misuse<F>); 4] = [
            (ReportKind::GetAfterRelease, |r| r.get()),
            (ReportKind::GetAfterRelease, |r| r.get_many(9)),
            (ReportKind::SurplusPut, |r| r.put()),
            (ReportKind::SurplusPut, |r| r.put_many(9)),
        ];
        for (kind, misuse) in cases {
            let name = unique("released");
            let (r, released) = named_gate::<F>(&name);
            r.kill_sync().unwrap();
            r.wait_zero();
            misuse(&r);
            assert_eq!(reports_on(&name), [kind]);
            r.put();
            r.get();
            r.put();
            assert!(!r.is_zero() && r.reinit().is_err());
            assert_eq!((released.get(), reports_on(&name).len()), (1, 1));
        }
    }

    fn a_surplus_put_wakes_those_who_wait<F>() {
        let name = unique("waited for");
        let (r, released) = named_gate::<F>(&name);
        r.get();
        let woken: usize = together(4, |i| {
            if i == 0 {
                thread::sleep(MOMENT);
                r.put_many(3);
                _ = r.kill();
                return 0;
            }
            if i == 1 {
                return usize::from(r.wait_zero_timeout(soon() * 2).is_err_and(|out| out.is_saturated()));
            }
            usize::from(panics(|| r.wait_zero()))
        }).into_iter().sum();
        assert_eq!((woken, released.get()), (3, 0));
    }

    fn a_wait_that_runs_out_tells_name_and_count<F>() {
        let (r, _) = named_gate::<F>("the pool");
        let out = r.wait_zero_timeout(Duration::ZERO).unwrap_err();
        assert_eq!((out.name(), out.count(), out.is_saturated()), (Some("the pool"), 1, false));
        r.get_many(41);
        r.kill_sync().unwrap();
        let out = r.wait_zero_timeout(Duration::from_millis(1)).unwrap_err();
        // One line about the holders follows, or that the feature `track` would name them.
        let text = out.to_string();
        let (first_line, holders) = text.split_once('\n').expect("two lines");
        assert_eq!(first_line, "ref `the pool` still has 41 references out");
        assert_eq!((holders.contains("feature `track`"), holders.lines().count()), (out.holders().is_empty(), 1));
        r.put_many(41);
        assert_eq!(r.wait_zero_timeout(Duration::ZERO), Ok(()));
        assert_eq!(r.wait_zero_timeout(Duration::MAX), Ok(()));
    }

    fn wait_zero_returns_after_release_and_reinit_waits_for_it_too<F>() {
        let running = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let r = PercpuRef::builder().flavor(F::default()).allow_reinit(true).build({
            let (running, ended) = (Arc::clone(&running), Arc::clone(&ended));
            move || {
                running.store(true, SeqCst);
                thread::sleep(MOMENT);
                ended.store(true, SeqCst);
            }
        });
        r.kill().unwrap();
        eventually("release runs", || running.load(SeqCst));
        if !ended.load(SeqCst) && r.is_zero() {
            let (reinit, resurrect) = (r.reinit(), r.resurrect());
            if !ended.load(SeqCst) {
                assert_eq!((reinit, resurrect), (Err(ReviveError::StillReferenced), Err(ReviveError::Released)));
            }
        }
        r.wait_zero();
        assert!(ended.load(SeqCst));
    }

    fn looks_at_a_ref_may_race_with_its_kill_and_the_end_of_its_counters<F>() {
        // A ref with one life gives its cells up in its kill; whoever reads them meanwhile must not read what is gone.
        // More refs than one chunk has cells for, so that chunks come and go.
        let many: Vec<_> = (0..4200).map(|_| mortal::<F>().0).collect();
        for _ in 0..40 {
            let batch: Vec<_> = (0..24).map(|_| mortal::<F>().0).collect();
            let at = AtomicUsize::new(0);
            together(3, |i| {
                if i == 0 {
                    for (n, r) in batch.iter().enumerate() {
                        at.store(n, SeqCst);
                        r.kill_sync().unwrap();
                    }
                    at.store(usize::MAX, SeqCst);
                    return;
                }
                while let Some(r) = batch.get(at.load(Relaxed)) {
                    let seen = r.estimate();
                    assert!((0..=1).contains(&seen), "{seen}");
                    if i == 2 {
                        assert!(!format!("{r:?}").is_empty());
                        drop(r.wait_zero_timeout(Duration::ZERO));
                    }
                }
            });
        }
        drop(many);
    }

    fn two_chained_refs_tear_an_object_down_as_aio_does<F>() {
        for _ in 0..30 {
            let (signalled, was_signalled) = mpsc::channel();
            let requests = Arc::new(PercpuRef::builder().flavor(F::default()).build(move || signalled.send(()).unwrap()));
            requests.get(); // for `users`
            let users = Arc::new(PercpuRef::builder().flavor(F::default()).build({
                let requests = Arc::clone(&requests);
                move || {
                    requests.kill().unwrap();
                    requests.put();
                }
            }));
            let served = AtomicUsize::new(0);
            together(4, |i| {
                if i == 0 {
                    thread::yield_now();
                    assert_eq!(users.kill(), Ok(()));
                    return;
                }
                while let Some(_user) = users.enter() {
                    requests.get();
                    served.fetch_add(1, Relaxed);
                    assert!(!requests.is_zero());
                    requests.put();
                }
            });
            was_signalled.recv_timeout(soon()).unwrap();
            requests.wait_zero();
            users.wait_zero();
            assert!(was_signalled.try_recv().is_err(), "signalled once");
        }
    }

    fn sixteen_submitters_pass_a_queue_that_freezes_as_blk_mq_does<F>() {
        struct Queue<F: Flavor> {
            usage: PercpuRef<F>,
            depth: Mutex<usize>,
            thawed: Condvar,
            drained: Arc<(Mutex<()>, Condvar)>,
            inside: AtomicI64,
            over: AtomicBool,
        }
        impl<F: Flavor> Queue<F> {
            fn enter(&self) -> bool {
                loop {
                    if self.usage.tryget_live() {
                        return true;
                    }
                    let mut depth = self.depth.lock().unwrap();
                    while *depth > 0 && !self.over.load(SeqCst) {
                        depth = self.thawed.wait(depth).unwrap();
                    }
                    if self.over.load(SeqCst) {
                        return false;
                    }
                }
            }
            fn freeze(&self) {
                let mut depth = self.depth.lock().unwrap();
                *depth += 1;
                if *depth == 1 {
                    self.usage.kill().unwrap();
                }
                drop(depth);
                let mut drained = self.drained.0.lock().unwrap();
                while !self.usage.is_zero() {
                    drained = self.drained.1.wait(drained).unwrap();
                }
            }
            fn unfreeze(&self) {
                let mut depth = self.depth.lock().unwrap();
                *depth -= 1;
                if *depth == 0 {
                    self.usage.wait_zero();
                    self.usage.reinit().unwrap();
                    self.thawed.notify_all();
                }
            }
        }
        let drained = Arc::new((Mutex::new(()), Condvar::new()));
        let queue = Queue::<F> {
            usage: PercpuRef::builder().flavor(F::default()).start(Start::Atomic).build({
                let drained = Arc::clone(&drained);
                move || { drop(drained.0.lock().unwrap()); drained.1.notify_all() }
            }),
            depth: Mutex::default(),
            thawed: Condvar::new(),
            drained,
            inside: AtomicI64::new(0),
            over: AtomicBool::new(false),
        };
        queue.usage.switch_to_percpu().unwrap();
        let frozen = AtomicUsize::new(0);
        together(18, |i| {
            if i < 2 {
                for _ in 0..60 {
                    queue.freeze();
                    frozen.fetch_add(1, SeqCst);
                    assert_eq!(queue.inside.load(SeqCst), 0, "somebody is inside a frozen queue");
                    frozen.fetch_sub(1, SeqCst);
                    queue.unfreeze();
                }
                // The runtime power management's look: a freeze that is called off.
                if i == 0 {
                    let depth = queue.depth.lock().unwrap();
                    if *depth == 0 {
                        queue.usage.get();
                        queue.usage.kill().unwrap();
                        queue.usage.switch_to_atomic_sync();
                        queue.usage.resurrect().unwrap();
                        queue.usage.switch_to_percpu().unwrap();
                        queue.usage.put();
                        queue.thawed.notify_all();
                    }
                }
                if frozen.fetch_add(1_000, SeqCst) >= 1_000 {
                    let depth = queue.depth.lock().unwrap();
                    queue.over.store(true, SeqCst);
                    queue.thawed.notify_all();
                    drop(depth);
                }
                return;
            }
            while !queue.over.load(Relaxed) && queue.enter() {
                queue.inside.fetch_add(1, SeqCst);
                assert_eq!(frozen.load(SeqCst) % 1_000, 0, "inside while frozen");
                if i % 4 == 0 {
                    queue.usage.get_many(3); // a batch
                    queue.usage.put_many(3);
                }
                queue.inside.fetch_sub(1, SeqCst);
                queue.usage.put();
                thread::yield_now();
            }
        });
        queue.usage.kill_sync().unwrap();
        queue.usage.wait_zero();
    }

    fn writers_see_themselves_counted_when_md_sets_in_sync<F>() {
        let (writes, _) = gate::<F>();
        let over = AtomicBool::new(false);
        let checker = Mutex::new(());
        together(4, |i| {
            if i == 0 {
                for round in 0..200 {
                    let _one = checker.lock().unwrap();
                    writes.switch_to_atomic_sync();
                    let exact = writes.estimate();
                    assert!(exact >= 1);
                    assert!(exact <= 1 + 3 * 3, "no writer holds more than three");
                    writes.switch_to_percpu().unwrap();
                    if round % 8 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
                over.store(true, SeqCst);
                return;
            }
            while !over.load(Relaxed) {
                assert!(writes.tryget_live());
                writes.get_many(2);
                writes.put_many(2);
                writes.put();
                if i == 1 {
                    thread::yield_now();
                }
            }
        });
        writes.switch_to_atomic_sync();
        assert_eq!(writes.estimate(), 1, "idle, and no transient reference of the switch is left");
        writes.kill_sync().unwrap();
        assert!(writes.is_zero());
    }

    fn a_quiesce_that_is_interrupted_resurrects_as_io_uring_does<F>() {
        let (ring, released) = gate::<F>();
        let lock = Mutex::new(());
        let over = AtomicBool::new(false);
        let quiesced = AtomicUsize::new(0);
        let inside = AtomicUsize::new(0);
        together(4, |i| {
            if i == 0 {
                for round in 0..150 {
                    let held = lock.lock().unwrap();
                    ring.kill().unwrap();
                    drop(held); // else the submitters could never drain
                    let limit = if round % 2 == 0 { soon() } else { Duration::from_micros(round) };
                    match ring.wait_zero_timeout(limit) {
                        Ok(()) => {
                            assert_eq!(inside.load(SeqCst), 0);
                            quiesced.fetch_add(1, SeqCst);
                            ring.reinit().unwrap();
                        }
                        Err(_) => match ring.resurrect() {
                            Ok(()) => {}
                            Err(error) => {
                                // It drained in the last moment: its release is waited for, or it would count as the next one's.
                                assert_eq!(error, ReviveError::Released);
                                ring.wait_zero();
                                quiesced.fetch_add(1, SeqCst);
                                ring.reinit().unwrap();
                            }
                        }
                    }
                    assert_eq!(released.get(), quiesced.load(SeqCst));
                }
                over.store(true, SeqCst);
                return;
            }
            while !over.load(Relaxed) {
                if ring.tryget_many(8) {
                    if ring.is_dying() {
                        ring.put_many(8);
                        if cfg!(feature = "track") {
                            // Most of this loop is bookkeeping with references held: leave a moment in which none is.
                            thread::sleep(Duration::from_micros(100));
                        }
                        continue;
                    }
                    inside.fetch_add(1, SeqCst);
                    drop(lock.lock().unwrap());
                    inside.fetch_sub(1, SeqCst);
                    ring.put_many(8);
                }
            }
        });
        ring.kill_sync().unwrap();
        ring.wait_zero();
        assert!(quiesced.load(SeqCst) > 0);
    }

    fn an_offline_that_waits_and_a_free_behind_it_share_the_workers_as_cgroup_does<F>() {
        // One worker for all stages deadlocked in the kernel, as soon as a late stage waited for an early one behind it.
        let (tell, told) = mpsc::channel();
        let parent = Arc::new(PercpuRef::builder().flavor(F::default()).build({
            let tell = tell.clone();
            move || tell.send("parent released").unwrap()
        }));
        parent.get(); // the child's
        let child = Arc::new(PercpuRef::builder().flavor(F::default()).build({
            let (parent, tell) = (Arc::clone(&parent), tell.clone());
            move || {
                tell.send("child released").unwrap();
                let (parent, tell) = (Arc::clone(&parent), tell.clone());
                F::call(move || { tell.send("child freed").unwrap(); parent.put() });
            }
        }));
        child.get(); // for the work that takes it offline
        parent.kill_and_confirm({
            let (child, tell) = (Arc::clone(&child), tell.clone());
            move || {
                child.kill_and_confirm({
                    let (child, tell) = (Arc::clone(&child), tell.clone());
                    move || {
                        assert!(child.enter().is_none());
                        let done = tell.clone();
                        F::call({ let child = Arc::clone(&child); move || { done.send("child offline").unwrap(); child.put() } });
                        tell.send("child confirmed").unwrap();
                    }
                }).unwrap();
                child.wait_zero(); // needs all of the above, behind this callback
                tell.send("parent offline").unwrap();
            }
        }).unwrap();
        parent.wait_zero();
        let seen: Vec<_> = (0..6).map(|_| told.recv_timeout(soon()).unwrap()).collect();
        let at = |what| seen.iter().position(|s| *s == what).unwrap();
        assert!(at("child confirmed") < at("child released") && at("child offline") < at("child released"), "{seen:?}");
        assert!(at("child released") < at("parent offline") && at("child released") < at("child freed"), "{seen:?}");
        assert_eq!(seen[5], "parent released");
    }
}

trait Kept {}
impl<T: FnMut()> Kept for OnDrop<T> {}

thread_local! {
    static LAST: RefCell<Option<Box<dyn Kept>>> = const { RefCell::new(None) };
}

tests! {
    fn the_backend_in_use_is_the_expected_one() {
        if let Ok(expected) = std::env::var("PERCPU_REF_EXPECT_BACKEND") {
            let used = Sched::backend();
            assert_eq!(format!("{used:?}").to_lowercase(), expected);
            // It is not only the name: where sequences count, counting needs no section and no fence of the reader.
            let r = PercpuRef::new(|| {});
            together(4, |_| (0..1000).for_each(|_| { r.get(); r.put() }));
            assert_eq!(r.estimate(), 1);
            r.kill_sync().unwrap();
        }
    }

    fn a_section_does_not_hold_up_a_switch_where_sequences_count() {
        if Sched::backend() == Backend::Rseq {
            let (r, released) = mortal::<Sched>();
            let (opened, is_open) = mpsc::channel();
            let (end, may_end) = mpsc::channel::<()>();
            let reader = thread::spawn(move || {
                let _section = Sched::read_lock();
                opened.send(()).unwrap();
                may_end.recv().unwrap();
            });
            is_open.recv().unwrap();
            r.kill_sync().unwrap();
            assert_eq!(released.get(), 1);
            end.send(()).unwrap();
            reader.join().unwrap();
        }
    }

    fn a_ref_of_one_flavour_is_killed_inside_a_section_of_the_other() {
        fn check<A: Flavor, B: Flavor>() {
            let (r, released) = gate::<B>();
            let section = A::read_lock();
            for _ in 0..3 {
                r.get();
                r.kill_sync().unwrap();
                r.resurrect().unwrap();
                r.put();
                r.switch_to_atomic_sync();
                r.switch_to_percpu().unwrap();
            }
            r.kill().unwrap();
            r.wait_zero();
            drop(section);
            assert_eq!(released.get(), 1);
        }
        check::<Plain, Sched>();
        check::<Sched, Plain>();
    }

    fn two_freezers_that_order_kill_and_revival_by_a_lock_never_leave_it_alive_or_stuck() {
        // B3: the kernel's freezers counted under no lock, and a waiter hung for ever.
        let (r, _) = gate::<Sched>();
        let depth = Mutex::new(0);
        together(4, |_| for _ in 0..200 {
            {
                let mut depth = depth.lock().unwrap();
                if *depth == 0 { r.kill().unwrap() }
                *depth += 1;
            }
            assert!(r.is_dying());
            r.wait_zero();
            assert!(r.enter().is_none());
            let mut depth = depth.lock().unwrap();
            *depth -= 1;
            if *depth == 0 { r.reinit().unwrap() }
        });
        assert!(r.enter().is_some());
        r.kill_sync().unwrap();
    }

    fn a_waiter_that_frees_after_wait_zero_never_frees_under_release() {
        // B4: the kernel's waiter polled for zero and freed what `release` was about to use.
        for _ in 0..200 {
            let in_release = Arc::new(AtomicBool::new(false));
            let (r, used) = (OnceLock::new(), Arc::clone(&in_release));
            let r: &PercpuRef = r.get_or_init(|| PercpuRef::new(move || {
                used.store(true, SeqCst);
                thread::yield_now();
                used.store(false, SeqCst);
            }));
            r.get();
            r.kill_sync().unwrap();
            together(2, |i| if i == 0 { r.put() } else {
                r.wait_zero();
                assert!(!in_release.load(SeqCst));
            });
        }
    }

    fn a_thousand_kills_of_an_idle_process_confirm_without_traffic() {
        fn check<F: Flavor>() {
            for _ in 0..500 {
                let (r, _) = mortal::<F>();
                let (tell, told) = mpsc::channel();
                r.kill_and_confirm(move || tell.send(()).unwrap()).unwrap();
                told.recv_timeout(soon()).unwrap();
            }
        }
        check::<Plain>();
        check::<Sched>();
    }

    fn refs_that_come_and_go_by_the_thousand_never_share_a_cell() {
        // B7: two objects shared a counter. More refs than one chunk has cells for, freed in another order.
        let mut dice = Dice::new(7);
        let mut refs: Vec<(PercpuRef, i64)> = Vec::new();
        for _ in 0..9_000 {
            let (r, n) = (PercpuRef::new(|| {}), dice.below(100));
            r.get_many(usize::try_from(n).unwrap());
            refs.push((r, n as i64));
        }
        for _ in 0..8_000 {
            let at = usize::try_from(dice.below(refs.len() as u64)).unwrap();
            let (r, n) = refs.swap_remove(at);
            assert_eq!(r.estimate(), n + 1);
            r.kill_sync().unwrap();
            assert_eq!(r.estimate(), n);
            r.put_many(usize::try_from(n).unwrap());
            assert!(r.is_zero());
            if at.is_multiple_of(3) {
                let (r, n) = (PercpuRef::new(|| {}), at as i64 % 50);
                r.get_many(usize::try_from(n).unwrap());
                refs.push((r, n));
            }
        }
        assert!(refs.iter().all(|(r, n)| r.estimate() == n + 1));
        for (r, n) in refs {
            r.put_many(usize::try_from(n).unwrap());
        }
    }

    fn errors_say_what_to_do_and_are_values() {
        fn is<E: std::error::Error + Clone + PartialEq + Send + Sync + 'static>(error: &E, says: &str) {
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(*error, error.clone());
        }
        is(&AlreadyDying, "already");
        is(&NotReinitable, "allow_reinit(true)");
        is(&OutOfMemory, "no memory");
        is(&ReviveError::NotDying, "alive");
        is(&ReviveError::NotReinitable, "allow_reinit(true)");
        is(&ReviveError::StillReferenced, "wait_zero");
        is(&ReviveError::Released, "reinit");
        let r = PercpuRef::new(|| {});
        is(&r.wait_zero_timeout(Duration::ZERO).unwrap_err(), "has not been killed");
        r.kill_sync().unwrap();
    }
}

in_children! {
    fn a_second_hook_replaces_the_first_and_a_panic_in_a_hook_goes_no_further() {
        let (first, second) = (Tally::default(), Tally::default());
        let dropped = Tally::default();
        let carried = OnDrop({
            let dropped = dropped.clone();
            move || {
                dropped.up();
                set_report_hook(|_| {}); // From the drop of a hook that was replaced.
            }
        });
        set_report_hook({ let first = first.clone(); move |_| { let _carried = &carried; first.up() } });
        let misuse = || {
            let r = PercpuRef::builder().start(Start::Atomic).name("misused").build(|| {});
            r.put();
            r
        };
        drop(misuse());
        set_report_hook(|_| {});
        assert_eq!((first.get(), dropped.get()), (1, 1));
        set_report_hook({ let second = second.clone(); move |report: &Report| {
            second.up();
            assert_eq!((report.name(), report.kind()), (Some("misused"), &ReportKind::SurplusPut));
            assert!(report.to_string().contains("`misused`") && format!("{report:?}").contains("misused"));
            assert_eq!(*report, report.clone());
            panic!("in the hook");
        }});
        let r = misuse();
        assert!(r.tryget());
        r.kill_sync().unwrap();
        assert_eq!((first.get(), second.get()), (1, 1));
    }

    fn a_hook_may_use_the_ref_that_it_is_told_about_and_report_in_turn() {
        static ABOUT: OnceLock<PercpuRef> = OnceLock::new();
        static DEPTH: AtomicUsize = AtomicUsize::new(0);
        set_report_hook(|_| {
            if DEPTH.fetch_add(1, SeqCst) == 0 {
                let r = ABOUT.get().unwrap();
                assert!(r.tryget() && format!("{r:?}").contains("saturated"));
                r.put();
                assert_eq!(r.name().as_deref(), Some("told about"));
                assert!(r.wait_zero_timeout(Duration::ZERO).is_err());
                let other = PercpuRef::builder().start(Start::Atomic).build(|| {});
                other.put(); // Reports in turn, on this thread.
                let third = PercpuRef::new(|| {});
                third.kill().unwrap();
                third.wait_zero();
                set_report_hook(|_| _ = DEPTH.fetch_add(100, SeqCst));
            }
        });
        ABOUT.set(PercpuRef::builder().name("told about").build(|| {})).unwrap();
        let r = ABOUT.get().unwrap();
        r.put();
        r.kill_sync().unwrap(); // finds it in the fold
        assert_eq!(DEPTH.load(SeqCst), 2);
        PercpuRef::builder().start(Start::Atomic).build(|| {}).put();
        assert_eq!(DEPTH.load(SeqCst), 102);
    }
}

in_both_flavours! {
    fn a_waiter_learns_of_a_life_that_ended_even_if_the_next_began_at_once<F>() {
        let (r, released) = named_gate::<F>("short lives");
        let waiters: Vec<_> = (1..=20)
            .map(|life| {
                let waiter = thread::spawn({ let r = r.clone(); move || r.wait_zero() });
                // Time to fall asleep.
                thread::sleep(Duration::from_millis(10));
                r.kill_sync().unwrap();
                eventually("release has returned", || r.reinit().is_ok());
                assert_eq!(released.get(), life);
                waiter
            })
            .collect();
        thread::sleep(Duration::from_millis(10));
        // A waiter that was late waits for the life that is running now; on a busy machine some are.
        let learnt = waiters.iter().filter(|waiter| waiter.is_finished()).count();
        assert!(learnt >= 5, "only {learnt} of 20 waiters learnt of a life that ended");
        r.kill_sync().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}
