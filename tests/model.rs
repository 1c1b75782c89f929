//! Random sequences of operations, each step compared with a slow and plain model of a ref.

mod common;

use common::{Flavor, Plain, Sched, Tally, eventually, reports_on, soon, unique};
use percpu_ref::{AlreadyDying, Mode, NotReinitable, PercpuRef, ReportKind, ReviveError, Start};
use proptest::prelude::*;
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Put(usize),
    /// Not misuse: as many as the model knows to be held, at most.
    PutHeld(usize),
    Tryget(usize),
    TrygetLive,
    EnterAndClone,
    Kill,
    KillSync,
    KillAndConfirm,
    SwitchToAtomic,
    SwitchToAtomicSync,
    SwitchToPercpu,
    Resurrect,
    Reinit,
    ResurrectInConfirm,
    KillInASection,
}

/// What a ref is, without threads.
#[derive(Clone, Debug)]
struct Model {
    /// What users hold. Below zero: a surplus put that per-CPU mode hides.
    held: i64,
    first: bool,
    dead: bool,
    percpu: bool,
    sticky: bool,
    allow_reinit: bool,
    released: usize,
    confirmed: usize,
    saturated: bool,
    report: Option<ReportKind>,
}

impl Model {
    fn new(start: Start, allow_reinit: bool) -> Self {
        Self {
            held: 0,
            first: start != Start::Dead,
            dead: start == Start::Dead,
            percpu: start == Start::Percpu,
            sticky: start == Start::Atomic,
            allow_reinit: allow_reinit || start != Start::Percpu,
            released: 0,
            confirmed: 0,
            saturated: false,
            report: None,
        }
    }

    fn is_zero(&self) -> bool {
        !self.saturated && !self.percpu && self.held == 0 && !self.first
    }

    fn misused(&mut self, kind: ReportKind) {
        self.saturated = true;
        self.report.get_or_insert(kind);
    }

    fn get(&mut self, n: usize) {
        if n > 0 && self.is_zero() {
            self.misused(ReportKind::GetAfterRelease);
        }
        self.held += n as i64;
    }

    fn put(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let was_zero = self.is_zero();
        self.held -= n as i64;
        self.look();
        if !was_zero && self.is_zero() {
            self.released += 1;
        }
    }

    /// What atomic mode sees at once.
    fn look(&mut self) {
        if !self.percpu && self.held < 0 && !self.saturated {
            self.misused(ReportKind::SurplusPut);
        }
    }

    fn close(&mut self) {
        self.percpu = false;
        self.look();
    }

    fn open_again(&mut self) {
        self.percpu = self.percpu || (!self.dead && !self.sticky && self.allow_reinit && !self.saturated);
    }

    fn kill(&mut self) -> Result<(), AlreadyDying> {
        if self.dead {
            return Err(AlreadyDying);
        }
        self.dead = true;
        self.close();
        if !self.saturated {
            self.first = false;
            self.released += usize::from(self.is_zero());
        }
        Ok(())
    }

    fn resurrect(&mut self) -> Result<(), ReviveError> {
        match () {
            () if !self.dead => Err(ReviveError::NotDying),
            () if !self.allow_reinit => Err(ReviveError::NotReinitable),
            () if self.is_zero() => Err(ReviveError::Released),
            () => {
                (self.dead, self.first) = (false, true);
                self.open_again();
                Ok(())
            }
        }
    }

    fn reinit(&mut self) -> Result<(), ReviveError> {
        match () {
            () if !self.dead => Err(ReviveError::NotDying),
            () if !self.allow_reinit => Err(ReviveError::NotReinitable),
            () if !self.is_zero() => Err(ReviveError::StillReferenced),
            () => {
                (self.dead, self.first) = (false, true);
                self.open_again();
                Ok(())
            }
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_usize..5).prop_map(Op::Get),
        1 => (0_usize..3).prop_map(Op::Put),
        6 => (0_usize..5).prop_map(Op::PutHeld),
        3 => (0_usize..4).prop_map(Op::Tryget),
        3 => Just(Op::TrygetLive),
        1 => Just(Op::EnterAndClone),
        1 => Just(Op::Kill),
        2 => Just(Op::KillSync),
        1 => Just(Op::KillAndConfirm),
        1 => Just(Op::SwitchToAtomic),
        1 => Just(Op::SwitchToAtomicSync),
        2 => Just(Op::SwitchToPercpu),
        3 => Just(Op::Resurrect),
        3 => Just(Op::Reinit),
        1 => Just(Op::ResurrectInConfirm),
        1 => Just(Op::KillInASection),
    ]
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Percpu), Just(Start::Atomic), Just(Start::Dead)]
}

/// Carries out `op` on both, compares what they say.
fn step<F: Flavor>(op: Op, r: &Arc<PercpuRef<F>>, model: &mut Model, confirmed: &Tally) {
    match op {
        Op::Get(1) => {
            r.get();
            model.get(1);
        }
        Op::Get(n) => {
            r.get_many(n);
            model.get(n);
        }
        Op::Put(n) => {
            r.put_many(n);
            model.put(n);
        }
        Op::PutHeld(n) => {
            let n = n.min(usize::try_from(model.held).unwrap_or(0));
            if n == 1 {
                r.put()
            } else {
                r.put_many(n)
            }
            model.put(n);
        }
        Op::Tryget(n) => {
            let expected = !model.is_zero();
            assert_eq!(if n == 1 { r.tryget() } else { r.tryget_many(n) }, expected);
            if expected {
                model.get(n);
            }
        }
        Op::TrygetLive => {
            assert_eq!(r.tryget_live(), !model.dead);
            if !model.dead {
                model.get(1);
            }
        }
        Op::EnterAndClone => {
            let guard = r.enter();
            assert_eq!(guard.is_some(), !model.dead);
            // The first reference or the guard keeps it from zero.
            drop((guard.clone(), guard));
            if !model.dead {
                model.get(2);
                model.held -= 2;
                model.look();
            }
        }
        Op::Kill => assert_eq!(r.kill(), model.kill()),
        Op::KillSync => assert_eq!(r.kill_sync(), model.kill()),
        Op::KillInASection => {
            let section = F::read_lock();
            assert_eq!(r.kill(), model.kill());
            drop(section);
        }
        Op::KillAndConfirm => {
            let expected = model.kill();
            assert_eq!(r.kill_and_confirm(confirmed.counter()), expected);
            model.confirmed += usize::from(expected.is_ok());
        }
        Op::ResurrectInConfirm => {
            let (tell, told) = mpsc::channel();
            let again = Arc::clone(r);
            let tally = confirmed.clone();
            let killed = r.kill_and_confirm(move || {
                tally.up();
                tell.send(again.resurrect()).unwrap();
            });
            assert_eq!(killed.is_ok(), !model.dead);
            if killed.is_ok() {
                model.confirmed += 1;
                model.dead = true;
                model.close();
                // The first reference has not been dropped when the confirm runs.
                assert_eq!(told.recv_timeout(soon()).unwrap(), model.resurrect());
                if !model.allow_reinit && !model.saturated {
                    model.first = false;
                    model.released += usize::from(model.is_zero());
                }
            }
        }
        Op::SwitchToAtomic => {
            r.switch_to_atomic(confirmed.counter());
            model.confirmed += 1;
            model.sticky = true;
            model.close();
        }
        Op::SwitchToAtomicSync => {
            r.switch_to_atomic_sync();
            model.sticky = true;
            model.close();
        }
        Op::SwitchToPercpu => {
            let expected = if model.allow_reinit { Ok(()) } else { Err(NotReinitable) };
            assert_eq!(r.switch_to_percpu(), expected);
            if model.allow_reinit {
                model.sticky = false;
                model.open_again();
            }
        }
        Op::Resurrect => assert_eq!(r.resurrect(), model.resurrect()),
        Op::Reinit => assert_eq!(r.reinit(), model.reinit()),
    }
}

fn compare<F: Flavor>(start: Start, allow_reinit: bool, ops: &[Op]) {
    let name = unique("modelled");
    let (released, confirmed) = (Tally::default(), Tally::default());
    let mut model = Model::new(start, allow_reinit);
    let r = PercpuRef::builder().flavor(F::default()).start(start).allow_reinit(allow_reinit).name(name.clone());
    let r = Arc::new(r.build(released.counter()));
    for op in ops {
        step(*op, &r, &mut model, &confirmed);
        let count = if model.saturated { i64::MAX } else { model.held + i64::from(model.first) };
        let mode = if model.percpu { Mode::Percpu } else { Mode::Atomic };
        eventually(&format!("{op:?} leads to {model:?}, and it is {r:?} in {:?}", r.mode()), || {
            (model.saturated || r.mode() == mode)
                && r.estimate() == count
                && (released.get(), confirmed.get()) == (model.released, model.confirmed)
                && reports_on(&name).first() == model.report.as_ref()
        });
        assert_eq!((r.is_dying(), r.is_zero()), (model.dead, model.is_zero()), "after {op:?}");
        // What runs in the callback thread has come to its end: the count above cannot tell of a switch that changes none.
        if model.is_zero() {
            r.wait_zero();
        } else {
            let out = r.wait_zero_timeout(Duration::ZERO);
            assert_eq!(
                out.map_err(|out| (out.count(), out.is_saturated())),
                Err((count.max(0) as u64, model.saturated))
            );
        }
    }
    assert!(reports_on(&name).len() <= 1);
}

/// Longer when asked for: `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256.min(ProptestConfig::default().cases)) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_plain_ref_does_what_the_model_does(start in start(), allow in any::<bool>(), ops in prop::collection::vec(op(), 1..40)) {
        compare::<Plain>(start, allow, &ops);
    }

    #[test]
    fn a_sched_ref_does_what_the_model_does(start in start(), allow in any::<bool>(), ops in prop::collection::vec(op(), 1..40)) {
        compare::<Sched>(start, allow, &ops);
    }
}
