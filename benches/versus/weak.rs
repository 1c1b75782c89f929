//! Coming back to an object that may be gone, and holding it: `Weak` and `Shared` against `std` and a task tracker.

use crate::harness::{Contender, Figures, measure};
use crate::row::{Goal, Row};
use crate::{Part, backend};
use percpu_ref::rcu::Plain;
use percpu_ref::{Owner, Shared};
use std::hint::black_box;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

pub(crate) fn run(part: Part) -> Vec<Row> {
    let owner = Owner::new(1_u64);
    let shared = Owner::share(&owner);
    let weak = Owner::downgrade(&owner);
    let plain_owner = Owner::with_flavor(1_u64, Plain);
    let plain_weak = Owner::downgrade(&plain_owner);
    let arc = Arc::new(1_u64);
    let std_weak = Arc::downgrade(&arc);
    let tracker = TaskTracker::new();

    let upgrade = || drop(black_box(&weak).upgrade());
    let plain_upgrade = || drop(black_box(&plain_weak).upgrade());
    let clone_shared = || drop(Shared::clone(black_box(&shared)));
    let std_upgrade = || drop(black_box(&std_weak).upgrade());
    let clone_arc = || drop(Arc::clone(black_box(&arc)));
    let token = || drop(black_box(&tracker).token());

    let figures = measure(&[
        Contender::new("upgrade", upgrade),
        Contender::new("upgrade, Plain", plain_upgrade),
        Contender::new("clone", clone_shared),
        Contender::new("std upgrade", std_upgrade),
        Contender::new("Arc clone", clone_arc),
        Contender::new("TaskTracker", token),
        Contender::pair("upgrade, 2 threads", upgrade),
        Contender::pair("upgrade, Plain, 2 threads", plain_upgrade),
        Contender::pair("clone, 2 threads", clone_shared),
        Contender::pair("std upgrade, 2 threads", std_upgrade),
        Contender::pair("Arc clone, 2 threads", clone_arc),
        Contender::pair("TaskTracker, 2 threads", token),
    ]);
    drop(shared);
    assert_eq!(Owner::shutdown(owner).wait(), 1, "the sanity check: as many puts as gets");
    assert_eq!(Owner::shutdown(plain_owner).wait(), 1);

    let with = |ours, rival, goal| row(&figures, ours, rival, goal);
    match part {
        Part::Membarrier => vec![
            with("upgrade", "std upgrade", Goal::None),
            with("upgrade, 2 threads", "std upgrade, 2 threads", Goal::None),
        ],
        _ => vec![
            with("upgrade", "std upgrade", Goal::AtMost(0.6)),
            with("upgrade, 2 threads", "std upgrade, 2 threads", Goal::AtMost(0.25)),
            with("clone", "Arc clone", Goal::None),
            with("clone, 2 threads", "Arc clone, 2 threads", Goal::None),
            with("upgrade", "TaskTracker", Goal::None),
            with("upgrade, 2 threads", "TaskTracker, 2 threads", Goal::None),
            with("upgrade, Plain", "std upgrade", Goal::None),
            with("upgrade, Plain, 2 threads", "std upgrade, 2 threads", Goal::None),
        ],
    }
}

fn row(figures: &Figures, ours: &str, rival: &str, goal: Goal) -> Row {
    let get = |name| figures.get(name).expect("it is in the set");
    Row {
        work: "take and drop a handle".into(),
        backend: backend(),
        unit: "ns".into(),
        ours: get(ours),
        rival: Some(get(rival)),
        goal,
    }
}
