//! Models of sections and grace periods. See docs/ordering.md for what each entry of the ledger pairs with.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};
use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref_models::{Note, model};

/// A value that readers use as long as it is published, and that its writer then takes for himself.
#[derive(Clone)]
struct Published {
    flag: Arc<AtomicBool>,
    value: Note,
}

impl Published {
    fn new() -> Self {
        Self { flag: Arc::new(AtomicBool::new(true)), value: Note::new() }
    }

    /// Starts a reader: what it does around the look at the value is up to `sections`.
    fn read(&self, sections: impl FnOnce(&dyn Fn()) + 'static) -> JoinHandle<()> {
        let published = self.clone();
        thread::spawn(move || {
            sections(&|| {
                if published.flag.load(Relaxed) {
                    assert_eq!(published.value.read(), 0);
                }
            });
        })
    }

    fn unpublish(&self) {
        self.flag.store(false, Relaxed);
    }
}

fn in_a_section<F: Flavor>(look: &dyn Fn()) {
    let section = F::read_lock();
    look();
    drop(section);
}

/// The writer unpublishes the value, waits, and takes it.
fn readers_are_waited_for<F: Flavor>(sections: fn(&dyn Fn())) {
    model(3, move || {
        let published = Published::new();
        let reader = published.read(sections);
        published.unpublish();
        F::synchronize();
        published.value.write(1);
        reader.join().unwrap();
    });
}

#[test]
fn plain_readers_are_waited_for() {
    readers_are_waited_for::<Plain>(in_a_section::<Plain>);
}

#[test]
fn sched_readers_are_waited_for() {
    readers_are_waited_for::<Sched>(in_a_section::<Sched>);
}

/// A section within the section neither ends it nor begins another.
#[test]
fn a_nested_section_ends_nothing() {
    readers_are_waited_for::<Sched>(|look| {
        let section = Sched::read_lock();
        drop(Sched::read_lock());
        look();
        drop(section);
    });
}

/// A waiter that finds a reader in its next section knows what the reader did in the one before.
#[test]
fn a_reader_in_its_next_section_is_done_with_the_one_before() {
    readers_are_waited_for::<Sched>(|look| {
        in_a_section::<Sched>(look);
        drop(Sched::read_lock());
    });
}

/// Two waiters may share a grace period, but only one that began after both began to wait.
#[test]
fn shared_grace_periods_begin_late_enough() {
    model(3, || {
        let published = Published::new();
        let other = thread::spawn(Sched::synchronize);
        let reader = published.read(in_a_section::<Sched>);
        published.unpublish();
        Sched::synchronize();
        published.value.write(1);
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// A call waits for the reader, and what the reader did is visible in it.
#[test]
fn calls_run_after_the_readers_they_must_wait_for() {
    model(3, || {
        let published = Published::new();
        let reader = published.read(in_a_section::<Sched>);
        published.unpublish();
        Sched::call({
            let value = published.value.clone();
            move || value.write(1)
        });
        Sched::barrier();
        reader.join().unwrap();
        assert_eq!(published.value.read(), 1);
    });
}
