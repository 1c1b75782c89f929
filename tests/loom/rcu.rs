//! Models of sections and grace periods. See docs/ordering.md for what each entry of the ledger pairs with.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref_models::{Note, model};

/// A reader uses a value as long as it is published; the writer unpublishes it, waits, and takes it for himself.
fn readers_are_waited_for<F: Flavor>() {
    model(3, || {
        let published = Arc::new(AtomicBool::new(true));
        let value = Note::new();
        let reader = thread::spawn({
            let (published, value) = (published.clone(), value.clone());
            move || {
                let section = F::read_lock();
                if published.load(Relaxed) {
                    assert_eq!(value.read(), 0);
                }
                drop(section);
            }
        });
        published.store(false, Relaxed);
        F::synchronize();
        value.write(1);
        reader.join().unwrap();
    });
}

#[test]
fn plain_readers_are_waited_for() {
    readers_are_waited_for::<Plain>();
}

#[test]
fn sched_readers_are_waited_for() {
    readers_are_waited_for::<Sched>();
}

/// Two waiters may share a grace period, but only one that began after both began to wait.
#[test]
fn shared_grace_periods_begin_late_enough() {
    model(3, || {
        let published = Arc::new(AtomicBool::new(true));
        let value = Note::new();
        let other = thread::spawn(Sched::synchronize);
        let reader = thread::spawn({
            let (published, value) = (published.clone(), value.clone());
            move || {
                let section = Sched::read_lock();
                if published.load(Relaxed) {
                    assert_eq!(value.read(), 0);
                }
                drop(section);
            }
        });
        published.store(false, Relaxed);
        Sched::synchronize();
        value.write(1);
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// A call waits for the reader, and what the reader did is visible in it.
#[test]
fn calls_run_after_the_readers_they_must_wait_for() {
    model(3, || {
        let published = Arc::new(AtomicBool::new(true));
        let value = Note::new();
        let reader = thread::spawn({
            let (published, value) = (published.clone(), value.clone());
            move || {
                let section = Sched::read_lock();
                if published.load(Relaxed) {
                    assert_eq!(value.read(), 0);
                }
                drop(section);
            }
        });
        published.store(false, Relaxed);
        Sched::call({
            let value = value.clone();
            move || value.write(1)
        });
        Sched::barrier();
        reader.join().unwrap();
        assert_eq!(value.read(), 1);
    });
}

/// A waiter that finds a reader in its next section knows what the reader did in the one before.
#[test]
fn a_reader_in_its_next_section_is_done_with_the_one_before() {
    model(3, || {
        let published = Arc::new(AtomicBool::new(true));
        let value = Note::new();
        let reader = thread::spawn({
            let (published, value) = (published.clone(), value.clone());
            move || {
                let section = Sched::read_lock();
                if published.load(Relaxed) {
                    assert_eq!(value.read(), 0);
                }
                drop(section);
                drop(Sched::read_lock());
            }
        });
        published.store(false, Relaxed);
        Sched::synchronize();
        value.write(1);
        reader.join().unwrap();
    });
}
