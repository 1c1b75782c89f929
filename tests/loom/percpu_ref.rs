//! Models of the count and its switches: one property each. Run once for each backend (`PERCPU_REF_BACKEND`).
//!
//! A model has no callback thread: `kill` does its work in the caller, as on a system without threads to give.
//! Three forced switches in each execution find more than two, and most of what there is to find.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use loom::thread;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{PercpuRef, ReviveError, Start};
use percpu_ref_models::{Note, Tally, both};

fn make<F: Flavor>(start: Start, reinit: bool, release: impl Fn() + Send + Sync + 'static) -> Arc<PercpuRef<F>> {
    Arc::new(PercpuRef::builder().flavor(F::default()).start(start).allow_reinit(reinit).build(release))
}

both! {
    /// A holder puts while the ref is killed: one release, after the put, which sees what the holder did.
    fn release_comes_once_and_sees_what_holders_did<F>(3) {
        let (note, released) = (Note::new(), Tally::new());
        let r = make::<F>(Start::Percpu, false, {
            let (note, released) = (note.clone(), released.clone());
            move || {
                assert_eq!(note.read(), 1);
                released.up();
            }
        });
        r.get();
        let holder = thread::spawn({
            let (r, note) = (r.clone(), note.clone());
            move || {
                note.write(1);
                r.put();
            }
        });
        r.kill_sync().unwrap();
        holder.join().unwrap();
        assert_eq!(released.get(), 1);
    }

    /// A get counted in one cell and its put in another, or on the shared word, while the cells are folded.
    fn a_reference_handed_on_during_a_kill_is_counted<F>(3) {
        let released = Tally::new();
        let r = make::<F>(Start::Percpu, false, { let t = released.clone(); move || t.up() });
        r.get();
        let holder = thread::spawn({
            let r = r.clone();
            move || {
                r.get();
                r.put();
            }
        });
        r.kill_sync().unwrap();
        holder.join().unwrap();
        assert_eq!(released.get(), 0, "our reference is out");
        r.put();
        assert_eq!(released.get(), 1);
    }

    /// Promise 1: whoever has seen confirm does not get in.
    fn nobody_gets_in_after_confirm<F>(3) {
        let r = make::<F>(Start::Percpu, false, || {});
        let confirmed = Arc::new(AtomicBool::new(false));
        let visitor = thread::spawn({
            let (r, confirmed) = (r.clone(), confirmed.clone());
            move || {
                let after = confirmed.load(Acquire);
                if r.tryget_live() {
                    assert!(!after);
                    r.put();
                }
            }
        });
        r.kill_and_confirm(move || confirmed.store(true, Release)).unwrap();
        visitor.join().unwrap();
        assert!(!r.tryget_live());
    }

    /// A refusal is final.
    fn who_is_refused_stays_out<F>(3) {
        let r = make::<F>(Start::Percpu, false, || {});
        let visitor = thread::spawn({
            let r = r.clone();
            move || {
                if r.tryget_live() {
                    r.put();
                } else {
                    assert!(!r.tryget_live());
                }
            }
        });
        r.kill_sync().unwrap();
        visitor.join().unwrap();
    }

    /// The same for a ref that is in atomic mode when it is killed.
    fn nobody_gets_in_after_confirm_in_atomic_mode<F>(3) {
        let r = make::<F>(Start::Atomic, false, || {});
        let confirmed = Arc::new(AtomicBool::new(false));
        let visitor = thread::spawn({
            let (r, confirmed) = (r.clone(), confirmed.clone());
            move || {
                let after = confirmed.load(Acquire);
                if r.tryget_live() {
                    assert!(!after);
                    r.put();
                }
            }
        });
        r.kill_and_confirm(move || confirmed.store(true, Release)).unwrap();
        visitor.join().unwrap();
    }

    /// Promise 4: one of two kills counts.
    fn one_of_two_kills_counts<F>(3) {
        let released = Tally::new();
        let r = make::<F>(Start::Percpu, false, { let t = released.clone(); move || t.up() });
        let other = thread::spawn({ let r = r.clone(); move || r.kill_sync().is_ok() });
        let here = r.kill_sync().is_ok();
        assert!(here != other.join().unwrap());
        r.wait_zero();
        assert_eq!(released.get(), 1);
    }

    /// A kill and a resurrect, in either order or at once: the ref is alive at the end exactly if the resurrect came
    /// second, and it releases once.
    fn a_kill_and_a_resurrect_leave_one_first_reference<F>(3) {
        let released = Tally::new();
        let r = make::<F>(Start::Percpu, true, { let t = released.clone(); move || t.up() });
        r.get();
        let killer = thread::spawn({ let r = r.clone(); move || r.kill().unwrap() });
        let revived = r.resurrect();
        killer.join().unwrap();
        match revived {
            Ok(()) => {
                assert!(!r.is_dying());
                r.kill_sync().unwrap();
            }
            Err(error) => assert_eq!(error, ReviveError::NotDying),
        }
        assert!(r.is_dying());
        assert_eq!(released.get(), 0, "our reference is out");
        r.put();
        r.wait_zero();
        assert_eq!(released.get(), 1);
    }

    /// Promise 5: the waiter sees what release did, and does not sleep through it.
    fn wait_zero_returns_after_release<F>(3) {
        let note = Note::new();
        let r = make::<F>(Start::Atomic, false, { let note = note.clone(); move || note.write(1) });
        let killer = thread::spawn({ let r = r.clone(); move || r.kill().unwrap() });
        r.wait_zero();
        assert_eq!(note.read(), 1);
        killer.join().unwrap();
    }

    /// Counting goes on while a ref goes to atomic mode and back: nothing is lost, and zeroed cells are seen as zero.
    fn counts_survive_a_switch_there_and_back<F>(3) {
        let released = Tally::new();
        let r = make::<F>(Start::Percpu, true, { let t = released.clone(); move || t.up() });
        let holder = thread::spawn({
            let r = r.clone();
            move || {
                r.get();
                r.put();
            }
        });
        r.switch_to_atomic_sync();
        r.switch_to_percpu().unwrap();
        holder.join().unwrap();
        r.switch_to_atomic_sync();
        assert_eq!(r.estimate(), 1);
        r.kill_sync().unwrap();
        assert_eq!(released.get(), 1);
    }

    /// Who gets into a new life sees what preceded it.
    fn a_new_life_is_seen_from_its_beginning<F>(3) {
        let note = Note::new();
        let r = make::<F>(Start::Dead, true, || {});
        let visitor = thread::spawn({
            let (r, note) = (r.clone(), note.clone());
            move || {
                if r.tryget_live() {
                    assert_eq!(note.read(), 1);
                    r.put();
                }
            }
        });
        note.write(1);
        r.reinit().unwrap();
        visitor.join().unwrap();
        r.kill_sync().unwrap();
        assert!(r.is_zero());
    }

    /// A kill that joins a switch under way returns after that one's confirms.
    fn a_kill_that_joins_a_switch_sees_its_confirm<F>(3) {
        let note = Note::new();
        let confirming = Arc::new(AtomicBool::new(false));
        let r = make::<F>(Start::Atomic, false, || {});
        let switcher = thread::spawn({
            let (r, note, confirming) = (r.clone(), note.clone(), confirming.clone());
            move || r.switch_to_atomic(move || {
                confirming.store(true, Relaxed);
                note.write(1);
            })
        });
        if confirming.load(Relaxed) {
            r.kill_sync().unwrap();
            assert_eq!(note.read(), 1);
        }
        switcher.join().unwrap();
    }
}
