//! Sections and grace periods, in both flavours, through the public API.

mod common;

use common::{
    Backend, Dice, Flavor, MOMENT, OnDrop, Plain, Sched, Tally, eventually, in_both_flavours, in_children, panics,
    soon, tests, together,
};
use std::cell::RefCell;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

/// Grace periods of a test whose readers are nearly always inside a section: one can take as long as the scheduler lets
/// a preempted reader wait.
const ROUNDS: usize = 70;

/// Slots of which one is current; the others are poisoned after a grace period.
struct Slots {
    current: AtomicUsize,
    /// 0: poisoned.
    values: [AtomicUsize; 64],
}

/// Readers run until `writer` is done; each checks in its section that what it looks at is not poisoned.
fn read_while<F: Flavor>(slots: &Slots, readers: usize, writer: impl Fn() + Sync) -> usize {
    let over = AtomicBool::new(false);
    let reading = AtomicUsize::new(0);
    let reads = together(readers + 1, |i| {
        if i == readers {
            // Every reader is at it before the first change.
            while reading.load(SeqCst) < readers {
                thread::yield_now();
            }
            writer();
            over.store(true, SeqCst);
            return 0;
        }
        let mut dice = Dice::new(i);
        let mut reads = 0;
        while !over.load(Relaxed) {
            let outer = F::read_lock();
            let inner = (dice.below(4) == 0).then(F::read_lock);
            // Relaxed on purpose: the grace period alone has to order this.
            let at = slots.current.load(Relaxed);
            for _ in 0..dice.below(50) {
                assert_ne!(slots.values[at].load(Relaxed), 0, "a section outlived a grace period");
            }
            if dice.below(2) == 0 {
                drop(outer);
                assert!(inner.is_none() || slots.values[at].load(Relaxed) != 0, "the inner section counts too");
            }
            if reads == 0 {
                reading.fetch_add(1, SeqCst);
            }
            reads += 1;
        }
        reads
    });
    reads.into_iter().sum()
}

fn slots() -> Slots {
    Slots { current: AtomicUsize::new(0), values: [const { AtomicUsize::new(1) }; 64] }
}

in_both_flavours! {
    fn no_section_outlives_a_grace_period_that_synchronize_waited_for<F>() {
        let slots = slots();
        let reads = read_while::<F>(&slots, 3, || {
            for round in 1..ROUNDS {
                let (old, new) = ((round - 1) % 64, round % 64);
                slots.values[new].store(round, Relaxed);
                slots.current.store(new, Relaxed);
                F::synchronize();
                slots.values[old].store(0, Relaxed);
            }
        });
        assert!(reads > 0);
    }

    fn no_section_outlives_a_grace_period_before_a_call<F>() {
        let slots = Arc::new(slots());
        let ran = Tally::default();
        read_while::<F>(&slots, 3, || {
            for round in 1..ROUNDS {
                let (old, new) = ((round - 1) % 64, round % 64);
                slots.values[new].store(round, Relaxed);
                slots.current.store(new, Relaxed);
                let (slots, ran) = (Arc::clone(&slots), ran.clone());
                F::call(move || { slots.values[old].store(0, Relaxed); ran.up(); });
                F::barrier(); // The slot is used again soon.
            }
        });
        assert_eq!(ran.get(), ROUNDS - 1);
    }

    fn what_was_done_in_a_section_is_visible_to_who_waited_for_it<F>() {
        for _ in 0..50 {
            let (done, unpublished) = (AtomicUsize::new(0), AtomicBool::new(false));
            let open = AtomicBool::new(false);
            together(2, |i| {
                if i == 0 {
                    let section = F::read_lock();
                    open.store(true, Relaxed);
                    if !unpublished.load(Relaxed) {
                        done.store(1, Relaxed);
                    }
                    drop(section);
                } else {
                    unpublished.store(true, Relaxed);
                    let saw_open = open.load(SeqCst);
                    F::synchronize();
                    // From here on the reader either has stored, or has seen the flag: the value cannot change.
                    let first = done.load(Relaxed);
                    thread::yield_now();
                    let _ = saw_open;
                    assert_eq!(done.load(Relaxed), first);
                }
            });
        }
    }

    fn a_grace_period_waits_for_each_of_three_hundred_threads<F>() {
        let left = AtomicUsize::new(0);
        let inside = Barrier::new(301);
        together(301, |i| {
            if i == 300 {
                inside.wait();
                F::synchronize();
                assert_eq!(left.load(SeqCst), 300);
                return;
            }
            let section = F::read_lock();
            inside.wait();
            left.fetch_add(1, SeqCst);
            drop(section);
        });
    }

    fn threads_that_come_and_go_are_waited_for<F>() {
        for round in 0..40 {
            let (opened, is_open) = mpsc::channel();
            let (end, may_end) = mpsc::channel::<()>();
            let over = Arc::new(AtomicBool::new(false));
            let reader = thread::spawn({
                let over = Arc::clone(&over);
                move || {
                    let _section = F::read_lock();
                    opened.send(()).unwrap();
                    may_end.recv().unwrap();
                    over.store(true, SeqCst);
                }
            });
            is_open.recv().unwrap();
            let waiter = thread::spawn(move || { F::synchronize(); over.load(SeqCst) });
            if round % 8 == 0 {
                thread::sleep(MOMENT);
                assert!(!waiter.is_finished());
            }
            end.send(()).unwrap();
            assert!(waiter.join().unwrap());
            reader.join().unwrap();
        }
    }

    fn calls_of_one_thread_run_in_order_and_barrier_waits_for_those_of_all<F>() {
        let ran = Tally::default();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        together(4, |i| {
            for n in 0..100 {
                let (ran, order) = (ran.clone(), Arc::clone(&order));
                F::call(move || { order.lock().unwrap().push((i, n)); ran.up(); });
            }
        });
        F::barrier();
        assert_eq!(ran.get(), 400);
        let order = order.lock().unwrap();
        for i in 0..4 {
            let own: Vec<_> = order.iter().filter(|(by, _)| *by == i).map(|(_, n)| *n).collect();
            assert_eq!(own, (0..100).collect::<Vec<_>>());
        }
    }

    fn a_call_inside_a_section_waits_for_its_end<F>() {
        let ran = Tally::default();
        let outer = F::read_lock();
        let inner = F::read_lock();
        F::call({ let ran = ran.clone(); move || ran.up() });
        drop(outer);
        thread::sleep(MOMENT);
        assert_eq!(ran.get(), 0, "the inner section is still open");
        drop(inner);
        eventually("the call runs", || ran.get() == 1);
    }

    fn waits_inside_an_own_section_panic_and_leave_everything_as_it_was<F>() {
        let section = F::read_lock();
        let inner = F::read_lock();
        assert!(panics(F::synchronize) && panics(F::barrier));
        drop(section);
        assert!(panics(F::synchronize), "the inner one counts too");
        drop(inner);
        F::synchronize();
        F::barrier();
    }

    fn callbacks_may_call_nested_sections_and_grace_periods_but_not_barrier<F>() {
        let (tell, told) = mpsc::channel();
        F::call(move || {
            drop(F::read_lock());
            F::synchronize();
            let deep = tell.clone();
            F::call(move || {
                let deeper = deep.clone();
                F::call(move || deeper.send("deepest").unwrap());
                deep.send("deep").unwrap();
            });
            assert!(panics(F::barrier));
            tell.send("first").unwrap();
        });
        for expected in ["first", "deep", "deepest"] {
            assert_eq!(told.recv_timeout(soon()), Ok(expected));
        }
        F::barrier();
    }

    fn panics_of_callbacks_and_of_what_they_carry_are_contained<F>() {
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("in the drop of a payload");
            }
        }
        let ran = Tally::default();
        F::call(|| panic!("a message"));
        F::call(|| panic_any(7_u32));
        F::call(|| panic_any(Nasty));
        let captured = OnDrop(|| panic!("in the drop of a captured value"));
        F::call(move || { let _captured = captured; });
        F::call({ let ran = ran.clone(); move || ran.up() });
        F::barrier();
        assert_eq!(ran.get(), 1);
    }

    fn what_a_callback_carries_may_use_everything_when_it_is_dropped<F>() {
        let (tell, told) = mpsc::channel();
        let carried = OnDrop(move || {
            F::synchronize();
            drop(F::read_lock());
            let tell = tell.clone();
            F::call(move || tell.send(()).unwrap());
        });
        F::call(move || { let _carried = &carried; });
        told.recv_timeout(soon()).unwrap();
    }

    fn many_waiters_at_once_all_come_through<F>() {
        let total: usize = together(8, |i| {
            for round in 0..50 {
                if (i + round) % 3 == 0 {
                    F::barrier();
                } else {
                    F::synchronize();
                }
            }
            50
        }).into_iter().sum();
        assert_eq!(total, 400);
    }

    fn a_section_that_a_thread_local_keeps_is_waited_for_until_its_destructor<F>() {
        let (tell, told) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                // The first is registered before this thread knows the library, and so destroyed after the library's own.
                KEEPER.with(|_| ());
                let section = F::read_lock();
                let over = Arc::clone(&over);
                let mut section = Some(section);
                let keep = OnDrop(move || {
                    may_end.recv().unwrap();
                    over.store(true, SeqCst);
                    drop(section.take());
                });
                KEEPER.with(|keeper| *keeper.borrow_mut() = Some(Box::new(keep)));
                tell.send(()).unwrap();
            }
        });
        told.recv().unwrap();
        let waiter = thread::spawn({ let over = Arc::clone(&over); move || { F::synchronize(); over.load(SeqCst) } });
        thread::sleep(MOMENT);
        assert!(!waiter.is_finished());
        end.send(()).unwrap();
        assert!(waiter.join().unwrap());
        thread.join().unwrap();
    }

    fn everything_works_in_destructors_of_thread_locals_registered_before_and_after<F>() {
        let ran = Tally::default();
        for before in [true, false] {
            thread::spawn({
                let ran = ran.clone();
                move || {
                    if !before {
                        drop(F::read_lock());
                        F::synchronize();
                    }
                    let work = OnDrop(move || {
                        for _ in 0..3 {
                            let outer = F::read_lock();
                            let inner = F::read_lock();
                            drop(outer);
                            F::call({ let ran = ran.clone(); move || ran.up() });
                            drop(inner);
                            F::synchronize();
                        }
                        F::barrier();
                        ran.up();
                    });
                    KEEPER.with(|keeper| *keeper.borrow_mut() = Some(Box::new(work)));
                    if before {
                        drop(F::read_lock());
                        F::synchronize();
                    }
                }
            }).join().unwrap();
        }
        assert_eq!(ran.get(), 8);
    }

    fn a_waiter_is_not_starved_by_readers_that_never_pause<F>() {
        let over = AtomicBool::new(false);
        together(4, |i| {
            if i == 3 {
                (0..100).for_each(|_| F::synchronize());
                over.store(true, SeqCst);
                return;
            }
            while !over.load(Relaxed) {
                drop(F::read_lock());
            }
        });
    }
}

trait Kept {}
impl<T: FnMut()> Kept for OnDrop<T> {}

thread_local! {
    static KEEPER: RefCell<Option<Box<dyn Kept>>> = const { RefCell::new(None) };
}

tests! {
    fn a_reader_of_one_flavour_delays_nothing_of_the_other() {
        fn check<A: Flavor, B: Flavor>() {
            let ran = Tally::default();
            let section = A::read_lock();
            A::call({ let ran = ran.clone(); move || ran.up() });
            for _ in 0..20 {
                B::synchronize();
                B::call(|| {});
                B::barrier();
            }
            assert_eq!(ran.get(), 0);
            drop(section);
            A::barrier();
            assert_eq!(ran.get(), 1);
        }
        check::<Plain, Sched>();
        check::<Sched, Plain>();
    }

    fn the_backend_is_the_same_for_every_thread_and_the_one_that_is_expected() {
        assert_eq!(Plain::backend(), Backend::Epoch);
        let here = Sched::backend();
        assert!(together(8, |_| Sched::backend()).into_iter().all(|there| there == here));
        if let Ok(expected) = std::env::var("PERCPU_REF_EXPECT_BACKEND") {
            assert_eq!(format!("{here:?}").to_lowercase(), expected);
        }
    }
}

in_children! {
    fn a_forgotten_guard_holds_up_its_own_flavour_only() {
        for forget in [|| std::mem::forget(Sched::read_lock()), || ()] {
            thread::spawn(forget).join().unwrap();
        }
        let ran = Tally::default();
        Sched::call({ let ran = ran.clone(); move || ran.up() });
        Plain::call({ let ran = ran.clone(); move || ran.up() });
        Plain::barrier();
        thread::sleep(MOMENT);
        assert_eq!(ran.get(), 1, "the grace period of the other never ends");
    }
}
