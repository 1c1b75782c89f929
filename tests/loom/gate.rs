//! Models of freeze and thaw: one property each. Run once for each backend (`PERCPU_REF_BACKEND`).
//!
//! A lost wake-up is a deadlock here, which loom reports. As in the models of the count, callbacks run in the caller; and
//! a model has no time, so a freeze with a limit looks once and gives up.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::thread;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use percpu_ref::{Closed, Gate};
use percpu_ref_models::{Bell, Note, both, finish, poll};
use std::task::Waker;
use std::time::Duration;

fn gate<F: Flavor>() -> Arc<Gate<F>> {
    Arc::new(Gate::builder().flavor(F::default()).build())
}

both! {
    /// What is written in a freeze races with nobody inside, and whoever gets in sees it as a whole.
    fn nobody_is_inside_while_the_gate_is_frozen<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || if let Some(_pass) = gate.enter() {
                note.read();
            }
        });
        let frozen = gate.freeze();
        note.write(1);
        drop(frozen);
        user.join().unwrap();
        assert!(gate.enter().is_some());
    }

    /// What is done inside is visible to the freezer.
    fn a_freezer_sees_what_was_done_inside<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let pass = gate.enter();
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || if let Some(_pass) = gate.enter() {
                note.write(1);
            }
        });
        drop(pass);
        let frozen = gate.freeze();
        note.write(2);
        drop(frozen);
        user.join().unwrap();
    }

    /// Whoever waits is woken by the thaw, and sees what preceded it.
    fn a_thaw_wakes_who_waits<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let frozen = gate.freeze();
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || {
                let _pass = gate.enter_wait().unwrap();
                assert_eq!(note.read(), 1);
            }
        });
        note.write(1);
        drop(frozen);
        user.join().unwrap();
    }

    /// A whole freeze beside somebody who wants to get in: he does, before or after.
    fn who_wants_to_get_in_does_before_or_after_a_freeze<F>(2) {
        let (gate, note) = (gate::<F>(), Note::new());
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || {
                let _pass = gate.enter_wait().unwrap();
                note.read()
            }
        });
        let frozen = gate.freeze();
        note.write(1);
        drop(frozen);
        user.join().unwrap();
    }

    /// Two freezers, in any order and overlapping in any way: both come to their end, and the gate is open.
    fn two_freezers_leave_the_gate_open<F>(2) {
        let gate = gate::<F>();
        let freezer = thread::spawn({ let gate = gate.clone(); move || drop(gate.freeze()) });
        drop(gate.freeze());
        freezer.join().unwrap();
        assert!(gate.enter().is_some());
    }

    /// The first thaw of two wakes nobody, the second one does.
    fn the_last_of_two_freezers_thaws<F>(1) {
        let (gate, note) = (gate::<F>(), Note::new());
        let mine = gate.freeze();
        let freezer = thread::spawn({ let gate = gate.clone(); move || drop(gate.freeze()) });
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || {
                let _pass = gate.enter_wait().unwrap();
                assert_eq!(note.read(), 1);
            }
        });
        note.write(1);
        drop(mine);
        freezer.join().unwrap();
        user.join().unwrap();
        assert!(gate.enter().is_some());
    }

    /// Whoever waits is woken by a close, and refused.
    fn a_close_wakes_who_waits<F>(3) {
        let gate = gate::<F>();
        let frozen = gate.freeze();
        let user = thread::spawn({ let gate = gate.clone(); move || gate.enter_wait().map(drop) });
        gate.close();
        assert_eq!(user.join().unwrap(), Err(Closed));
        drop(frozen);
        assert!(gate.enter().is_none());
    }

    /// A close and a thaw at once: whoever waits gets in or is refused, and the gate stays shut.
    fn a_close_beside_a_thaw_is_final<F>(2) {
        let gate = gate::<F>();
        let frozen = gate.freeze();
        let user = thread::spawn({ let gate = gate.clone(); move || drop(gate.enter_wait()) });
        let closer = thread::spawn({ let gate = gate.clone(); move || gate.close() });
        drop(frozen);
        closer.join().unwrap();
        user.join().unwrap();
        assert!(gate.enter().is_none());
    }

    /// A freeze is called off while the last one leaves: somebody opens the gate, and the end of this freeze is not
    /// taken for that of the next.
    fn a_freeze_called_off_while_the_last_one_leaves<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let pass = Gate::enter_owned(&gate).unwrap();
        let waker = Waker::from(std::sync::Arc::new(Bell::new()));
        let mut freezing = gate.freeze_async();
        assert!(poll(&mut freezing, &waker).is_pending());
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || {
                note.write(1);
                drop(pass);
                drop(gate.enter_wait().unwrap());
            }
        });
        drop(freezing);
        user.join().unwrap();
        assert!(gate.enter().is_some());
        drop(gate.freeze());
        note.write(2);
    }

    /// The same, and the next freeze begins at once.
    fn a_freeze_after_one_that_was_called_off_has_the_gate_to_itself<F>(2) {
        let (gate, note) = (gate::<F>(), Note::new());
        let pass = Gate::enter_owned(&gate).unwrap();
        let waker = Waker::from(std::sync::Arc::new(Bell::new()));
        let mut freezing = gate.freeze_async();
        assert!(poll(&mut freezing, &waker).is_pending());
        let user = thread::spawn({
            let note = note.clone();
            move || {
                note.write(1);
                drop(pass);
            }
        });
        drop(freezing);
        let frozen = gate.freeze();
        note.write(2);
        drop(frozen);
        user.join().unwrap();
        assert!(gate.enter().is_some());
    }

    /// A freeze with a limit, which has passed at once, beside somebody who enters and leaves.
    fn a_freeze_that_runs_out_of_time_opens_the_gate<F>(2) {
        let gate = gate::<F>();
        let user = thread::spawn({ let gate = gate.clone(); move || drop(gate.enter_wait().unwrap()) });
        drop(gate.freeze_timeout(Duration::ZERO));
        user.join().unwrap();
        assert!(gate.enter().is_some());
    }

    /// A future that is pending is woken by the thaw, and then it gets in.
    fn a_thaw_wakes_a_pending_future<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let frozen = gate.freeze();
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || {
                let _pass = finish(gate.enter_async()).unwrap();
                assert_eq!(note.read(), 1);
            }
        });
        note.write(1);
        drop(frozen);
        user.join().unwrap();
    }

    /// A freeze that is pending is woken by the last one who leaves, and has the gate to itself.
    fn the_last_pass_wakes_a_pending_freeze<F>(3) {
        let (gate, note) = (gate::<F>(), Note::new());
        let user = thread::spawn({
            let (gate, note) = (gate.clone(), note.clone());
            move || if let Some(_pass) = gate.enter() {
                note.write(1);
            }
        });
        let frozen = finish(gate.freeze_async());
        note.write(2);
        drop(frozen);
        user.join().unwrap();
    }
}
