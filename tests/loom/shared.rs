//! Models of the smart pointers: one property each. Run once for each backend (`PERCPU_REF_BACKEND`).
//!
//! As in the models of the count, callbacks run in the caller.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::thread;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{Drain, Owner, RcuCell};
use percpu_ref_models::{Note, Tally, both, finish};

/// A value that loom watches: each use of `note` has to come after its birth and before its drop.
struct Value {
    number: usize,
    note: Note,
    dropped: Tally,
}

impl Value {
    fn new(number: usize, dropped: &Tally) -> Self {
        let note = Note::new();
        note.write(number);
        Self { number, note, dropped: dropped.clone() }
    }

    fn check(&self) {
        assert_eq!(self.note.read(), self.number);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.note.write(usize::MAX);
        self.dropped.up();
    }
}

both! {
    /// An upgrade while the owner is dropped: it fails, or what it gives is whole, and is dropped after it, once.
    fn an_upgrade_finds_the_value_whole_or_not_at_all<F>(3) {
        let dropped = Tally::new();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let weak = Owner::downgrade(&owner);
        let user = thread::spawn(move || {
            if let Some(shared) = weak.upgrade() {
                shared.check();
            }
        });
        drop(owner);
        user.join().unwrap();
        assert_eq!(dropped.get(), 1);
    }

    /// A handle that is cloned and dropped elsewhere while the owner goes.
    fn the_last_of_two_holders_drops_the_value<F>(3) {
        let dropped = Tally::new();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let shared = Owner::share(&owner);
        let user = thread::spawn(move || {
            shared.clone().check();
            shared.check();
        });
        drop(owner);
        user.join().unwrap();
        assert_eq!(dropped.get(), 1);
    }

    /// A load while the value is replaced: the old one or the new one, whole, and each is dropped once.
    fn a_load_finds_a_whole_value<F>(3) {
        let dropped = Tally::new();
        let cell = Arc::new(RcuCell::with_flavor(Value::new(1, &dropped), F::default()));
        let reader = thread::spawn({ let cell = cell.clone(); move || cell.load().check() });
        cell.store(Value::new(2, &dropped));
        reader.join().unwrap();
        drop(cell);
        assert_eq!(dropped.get(), 2);
    }

    /// The same for a look inside a section.
    fn a_read_finds_a_whole_value<F>(3) {
        let dropped = Tally::new();
        let cell = Arc::new(RcuCell::with_flavor(Value::new(1, &dropped), F::default()));
        let reader = thread::spawn({ let cell = cell.clone(); move || cell.read(Value::check) });
        cell.store(Value::new(2, &dropped));
        reader.join().unwrap();
        drop(cell);
        assert_eq!(dropped.get(), 2);
    }

    /// Whoever takes a value out sees it as whoever put it there made it.
    fn a_swap_gives_back_what_another_thread_stored<F>(2) {
        let dropped = Tally::new();
        let cell = Arc::new(RcuCell::with_flavor(Value::new(1, &dropped), F::default()));
        let writer = thread::spawn({
            let (cell, value) = (cell.clone(), dropped.clone());
            move || cell.store(Value::new(2, &value))
        });
        let value = cell.swap(Value::new(3, &dropped)).wait();
        value.note.write(value.number);
        value.check();
        writer.join().unwrap();
        drop((value, cell));
        assert_eq!(dropped.get(), 3);
    }

    /// The last put while a drain waits: the value comes back, as its users left it.
    fn a_drain_yields_what_the_last_holder_left<F>(3) {
        let dropped = Tally::new();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let shared = Owner::share(&owner);
        let user = thread::spawn(move || shared.note.write(1));
        let value = Owner::shutdown(owner).wait();
        value.note.write(1);
        assert_eq!(dropped.get(), 0);
        user.join().unwrap();
        drop(value);
        assert_eq!(dropped.get(), 1);
    }

    /// The same for a drain that is polled: if it is pending, the waker is woken.
    fn a_pending_drain_is_woken<F>(3) {
        let dropped = Tally::new();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let shared = Owner::share(&owner);
        let user = thread::spawn(move || shared.note.write(1));
        let value = finish(Owner::shutdown(owner));
        value.note.write(1);
        user.join().unwrap();
        drop(value);
        assert_eq!(dropped.get(), 1);
    }

    /// A drain that is dropped while the last holder goes: one of the two drops the value.
    fn a_dropped_drain_leaves_the_value_to_one<F>(3) {
        let dropped = Tally::new();
        let owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let shared = Owner::share(&owner);
        let drain = Owner::shutdown(owner);
        let user = thread::spawn(move || shared.note.write(1));
        drop(drain);
        user.join().unwrap();
        assert_eq!(dropped.get(), 1);
    }

    /// An owner that is told that it is alone may change the value.
    fn an_owner_is_alone_only_after_the_last_put<F>(3) {
        let dropped = Tally::new();
        let mut owner = Owner::with_flavor(Value::new(1, &dropped), F::default());
        let shared = Owner::share(&owner);
        Owner::kill(&owner).unwrap();
        let user = thread::spawn(move || shared.note.write(1));
        if let Some(value) = Owner::get_mut(&mut owner) {
            value.note.write(1);
        }
        user.join().unwrap();
        assert!(Owner::get_mut(&mut owner).is_some());
        drop(owner);
        assert_eq!(dropped.get(), 1);
    }
}
