//! Owner, Shared, Weak, Drain and RcuCell through their public API: what the contract leaves open, and what goes wrong.

use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{Drain, Owner, RcuCell, Shared, Weak};
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(20);

#[track_caller]
fn eventually(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[derive(Clone, Debug, Default)]
struct Tally(Arc<AtomicUsize>);

impl Tally {
    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// A value that notices when it is used after its drop, as far as that can be noticed.
#[derive(Debug)]
struct Value {
    number: usize,
    check: usize,
    dropped: Tally,
}

impl Value {
    fn new(number: usize, dropped: &Tally) -> Self {
        Self { number, check: !number, dropped: dropped.clone() }
    }

    fn whole(&self) -> usize {
        assert_eq!(self.check, !self.number);
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.whole();
        self.check = 0x5a5a;
        self.number = 0x5a5a;
        self.dropped.0.fetch_add(1, SeqCst);
    }
}

macro_rules! both {
    ($(fn $name:ident<$F:ident>() $body:block)*) => {$(
        mod $name {
            use super::*;
            fn body<$F: Flavor>() $body
            #[test] fn plain() { body::<Plain>(); }
            #[test] fn sched() { body::<Sched>(); }
        }
    )*};
}

both! {
    fn readers_and_writers_of_a_cell_see_whole_values_only<F>() {
        let dropped = Tally::default();
        let made = AtomicUsize::new(1);
        let cell = RcuCell::with_flavor(Value::new(0, &dropped), F::default());
        let stop = AtomicBool::new(false);
        let start = Barrier::new(6);
        thread::scope(|s| {
            for reader in 0..3 {
                let (cell, stop, start) = (&cell, &stop, &start);
                s.spawn(move || {
                    start.wait();
                    let mut kept: Vec<Shared<Value, F>> = Vec::new();
                    while !stop.load(SeqCst) {
                        match reader {
                            0 => _ = cell.load().whole(),
                            1 => _ = cell.read(Value::whole),
                            _ => {
                                kept.push(cell.load());
                                kept.iter().for_each(|value| _ = value.whole());
                                if kept.len() == 8 {
                                    kept.clear();
                                }
                            }
                        }
                    }
                });
            }
            let writers: Vec<_> = (0..3).map(|writer| {
                let (cell, made, start, dropped) = (&cell, &made, &start, &dropped);
                s.spawn(move || {
                    start.wait();
                    for i in 0..300 {
                        match writer {
                            0 => {
                                made.fetch_add(1, SeqCst);
                                cell.store(Value::new(i, dropped));
                            }
                            1 => {
                                made.fetch_add(1, SeqCst);
                                drop(cell.swap(Value::new(i, dropped)));
                            }
                            _ => cell.update(|value| {
                                made.fetch_add(1, SeqCst);
                                Value::new(value.whole(), dropped)
                            }),
                        }
                    }
                })
            }).collect();
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, SeqCst);
        });
        drop(cell.into_inner().wait());
        eventually(|| dropped.get() == made.load(SeqCst));
    }

    fn upgrades_clones_and_kills_at_once_drop_each_value_once<F>() {
        let dropped = Tally::default();
        for round in 0..100 {
            let owner = Owner::with_flavor(Value::new(round, &dropped), F::default());
            let weak = Owner::downgrade(&owner);
            thread::scope(|s| {
                for _ in 0..2 {
                    let weak = weak.clone();
                    s.spawn(move || {
                        while let Some(shared) = weak.upgrade() {
                            let other = shared.clone();
                            drop(shared);
                            assert_eq!(other.whole(), round);
                            drop(Shared::downgrade(&other));
                        }
                    });
                }
                if round % 2 == 0 {
                    drop(owner);
                } else {
                    assert_eq!(Owner::shutdown(owner).wait().whole(), round);
                }
            });
        }
        eventually(|| dropped.get() == 100);
    }

    fn a_drain_does_not_wait_where_that_could_not_end<F>() {
        let dropped = Tally::default();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let section = F::read_lock();
        let drain = Owner::shutdown(owner);
        assert!(panics(|| _ = drain.wait()));
        drop(section);
        eventually(|| dropped.get() == 1);
        let cell = RcuCell::with_flavor(1, F::default());
        assert!(panics(|| cell.read(|_| _ = cell.swap(2).wait())));
        assert_eq!(cell.into_inner().wait(), 2);
    }

    fn a_cell_may_be_changed_while_it_is_read<F>() {
        let cell = RcuCell::with_flavor(1, F::default());
        cell.read(|old| {
            cell.store(2);
            assert_eq!((*old, cell.read(|new| *new), *cell.load()), (1, 2, 2));
        });
    }
}

#[test]
fn a_confirm_that_drains_its_own_value_is_told_so() {
    let owner = Owner::new(7);
    let (give, get) = mpsc::channel::<Drain<i32>>();
    let (tell, told) = mpsc::channel();
    Owner::kill_and_confirm(&owner, move || {
        let drain = get.recv().unwrap();
        tell.send(panics(|| _ = drain.wait())).unwrap();
    })
    .unwrap();
    give.send(Owner::shutdown(owner)).unwrap();
    assert!(told.recv_timeout(SOON).unwrap());
}

#[test]
fn a_callback_may_drain_another_value() {
    let (one, other) = (Owner::new(1), Owner::new(2));
    let (tell, told) = mpsc::channel();
    Owner::kill_and_confirm(&one, move || tell.send(Owner::shutdown(other).wait()).unwrap()).unwrap();
    assert_eq!(told.recv_timeout(SOON), Ok(2));
}

#[test]
fn a_panic_in_the_drop_of_a_value_goes_no_further_than_the_last_handle() {
    struct Bad(Tally);
    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.0.fetch_add(1, SeqCst);
            panic!("on purpose");
        }
    }
    let dropped = Tally::default();
    let owner = Owner::new(Bad(dropped.clone()));
    let shared = Owner::share(&owner);
    let weak = Owner::downgrade(&owner);
    drop(owner);
    eventually(|| weak.upgrade().is_none());
    drop(shared);
    eventually(|| dropped.get() == 1);
    // The one who takes the value back has it, and its panic, like any other value.
    let back = Owner::shutdown(Owner::new(Bad(dropped.clone()))).wait();
    assert!(panics(|| drop(back)));
    assert_eq!(dropped.get(), 2);
}

#[test]
fn forgotten_handles_leak_the_value_and_nothing_else() {
    let dropped = Tally::default();
    let owner = Owner::new(Value::new(1, &dropped));
    std::mem::forget(Owner::share(&owner));
    std::mem::forget(Owner::downgrade(&owner));
    let drain = Owner::shutdown(owner).wait_timeout(MOMENT).unwrap_err();
    drop(drain);
    std::mem::forget(Owner::new(Value::new(2, &dropped)));
    thread::sleep(MOMENT);
    assert_eq!(dropped.get(), 0);
}

#[test]
fn handles_and_owners_go_in_destructors_of_thread_locals() {
    thread_local! {
        static KEPT: RefCell<Vec<(Owner<Value>, Shared<Value>, Weak<Value>)>> = const { RefCell::new(Vec::new()) };
    }
    let dropped = Tally::default();
    for _ in 0..20 {
        let value = Value::new(1, &dropped);
        thread::spawn(move || {
            let owner = Owner::new(value);
            let (shared, weak) = (Owner::share(&owner), Owner::downgrade(&owner));
            KEPT.with_borrow_mut(|kept| kept.push((owner, shared, weak)));
        })
        .join()
        .unwrap();
    }
    eventually(|| dropped.get() == 20);
}

#[test]
fn an_owner_goes_in_a_callback() {
    let dropped = Tally::default();
    let (outer, inner) = (Owner::new(1), Owner::new(Value::new(2, &dropped)));
    Owner::kill_and_confirm(&outer, move || drop(inner)).unwrap();
    eventually(|| dropped.get() == 1);
    let value = Owner::new(Value::new(3, &dropped));
    Sched::call(move || drop(value));
    eventually(|| dropped.get() == 2);
}

#[test]
fn values_own_other_values() {
    let dropped = Tally::default();
    let leaf = Owner::new(Value::new(1, &dropped));
    let middle = Owner::new((Owner::share(&leaf), leaf));
    let root = Owner::new(vec![Owner::share(&middle)]);
    drop((root, middle));
    eventually(|| dropped.get() == 1);
}

#[test]
fn slices_and_trait_objects_drop_all_that_is_in_them() {
    let dropped = Tally::default();
    let values: Vec<_> = (0..5).map(|i| Value::new(i, &dropped)).collect();
    let slice = Owner::<[Value]>::from(values);
    let shared = Owner::share(&slice);
    drop(slice);
    assert_eq!(shared.iter().map(Value::whole).sum::<usize>(), 10);
    drop(shared);
    eventually(|| dropped.get() == 5);

    trait Number: Send + Sync {
        fn number(&self) -> usize;
    }
    #[repr(align(256))]
    struct Aligned(Value);
    impl Number for Aligned {
        fn number(&self) -> usize {
            assert_eq!(std::ptr::from_ref(self).addr() % 256, 0);
            self.0.whole()
        }
    }
    let mut object: Owner<dyn Number> = Owner::from_box(Box::new(Aligned(Value::new(9, &dropped))));
    assert_eq!(Owner::get_mut(&mut object).unwrap().number(), 9);
    let weak = Owner::downgrade(&object);
    assert_eq!(weak.upgrade().unwrap().number(), 9);
    drop(object);
    eventually(|| dropped.get() == 6);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_lost_exchange_gives_the_new_value_back_and_drops_nothing() {
    let dropped = Tally::default();
    let cell = RcuCell::new(Value::new(1, &dropped));
    let old = cell.load();
    cell.store(Value::new(2, &dropped));
    let _section = Sched::read_lock(); // It does not wait for anything.
    let back = cell.compare_and_swap(&old, Value::new(3, &dropped)).unwrap_err();
    assert_eq!((back.whole(), old.whole(), dropped.get()), (3, 1, 0));
}

#[test]
fn a_drain_that_is_ready_drops_the_value_when_it_goes() {
    let dropped = Tally::default();
    let drain = Owner::shutdown(Owner::new(Value::new(1, &dropped)));
    eventually(|| drain.outstanding().count() == 0);
    thread::sleep(MOMENT);
    assert_eq!(dropped.get(), 0);
    drop(drain);
    eventually(|| dropped.get() == 1);
}

#[test]
fn a_future_that_is_dropped_drops_its_waker() {
    struct Idle;
    impl Wake for Idle {
        fn wake(self: Arc<Self>) {}
    }
    let owner = Owner::new(1);
    let shared = Owner::share(&owner);
    let mut drain = Owner::shutdown(owner);
    let idle = Arc::new(Idle);
    let waker = Waker::from(idle.clone());
    assert_eq!(Pin::new(&mut drain).poll(&mut Context::from_waker(&waker)), Poll::Pending);
    drop((drain, waker));
    assert_eq!(Arc::strong_count(&idle), 1);
    assert_eq!(*shared, 1);
}

#[test]
fn handles_look_compare_and_hash_like_their_values() {
    let (a, b) = (Owner::new(String::from("a")), Owner::from(String::from("b")));
    let (x, y) = (Owner::share(&a), Owner::share(&b));
    assert!(x < y && x == x.clone() && x != y && a < b);
    assert_eq!((format!("{x:?} {x}"), format!("{a:?} {a}")), ("\"a\" a".into(), "\"a\" a".into()));
    assert_eq!(format!("{x:p}"), format!("{:p}", std::ptr::from_ref::<String>(&x)));
    let set: HashSet<Shared<String>> = [x.clone(), y, x].into();
    assert_eq!(set.len(), 2);
    assert!(set.contains(&String::from("a")), "borrowed as the value");
    assert_eq!(*Owner::<str>::from("text"), *"text");
    assert_eq!(*Owner::<u8>::default(), 0);
    assert!(Weak::<u8>::default().upgrade().is_none());
    assert_eq!(format!("{:?}", RcuCell::from(3)), "RcuCell(3)");
}

#[test]
fn many_owners_at_once_all_come_back() {
    let owners: Vec<_> = (0..5_000).map(Owner::new).collect();
    let drains: Vec<_> = owners.into_iter().map(Owner::shutdown).collect();
    for (i, drain) in drains.into_iter().enumerate() {
        assert_eq!(drain.wait(), i);
    }
}

#[test]
fn shared_handles_travel_through_a_ring() {
    use percpu_ref::ptr_ring::PtrRing;

    let owner = Owner::new(String::from("x"));
    let ring = PtrRing::new(4).unwrap();
    ring.produce(Owner::share(&owner)).unwrap();
    ring.produce(Owner::share(&owner)).unwrap();
    assert_eq!(ring.peek(|s| s.len()), Some(1));
    let first = ring.consume().unwrap();
    let drain = Owner::shutdown(owner);
    let drain = drain.wait_timeout(std::time::Duration::from_millis(5)).unwrap_err();
    assert_eq!(*first, "x");
    drop(first);
    drop(ring); // the other handle goes with it
    assert_eq!(drain.wait(), "x");
}
