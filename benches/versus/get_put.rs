//! Taking and dropping a reference, against what programs use today.

use crate::harness::{Contender, Figures, measure};
use crate::row::{Goal, Row};
use crate::{Part, backend, threads};
use crossbeam_utils::sync::WaitGroup;
use percpu_ref::PercpuRef;
use percpu_ref::rcu::Plain;
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::task::TaskTracker;

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn run(part: Part) -> Vec<Row> {
    let sched = PercpuRef::new(|| {});
    let plain = PercpuRef::builder().flavor(Plain).build(|| {});
    let arc = Arc::new(0_u64);
    let atomic = AtomicUsize::new(1);
    let tracker = TaskTracker::new();
    let group = WaitGroup::new();

    let get_put = || {
        let r = black_box(&sched);
        r.get();
        r.put();
    };
    let enter = || drop(black_box(&sched).enter());
    let plain_get_put = || {
        let r = black_box(&plain);
        r.get();
        r.put();
    };
    let clone_arc = || drop(Arc::clone(black_box(&arc)));
    let count_atomic = || {
        let count = black_box(&atomic);
        count.fetch_add(1, Ordering::Relaxed);
        count.fetch_sub(1, Ordering::Release);
    };
    let local = || {
        LOCAL.with(|count| {
            let count = black_box(count);
            count.set(count.get() + 1);
            let count = black_box(count);
            count.set(count.get() - 1);
        });
    };
    let token = || drop(black_box(&tracker).token());
    let clone_group = || drop(black_box(&group).clone());

    let figures = measure(&[
        Contender::new("Sched", get_put),
        Contender::new("enter", enter),
        Contender::new("Plain", plain_get_put),
        Contender::new("Arc", clone_arc),
        Contender::new("AtomicUsize", count_atomic),
        Contender::new("thread-local", local),
        Contender::new("TaskTracker", token),
        Contender::new("WaitGroup", clone_group),
        Contender::pair("Sched, 2 threads", get_put),
        Contender::pair("enter, 2 threads", enter),
        Contender::pair("Plain, 2 threads", plain_get_put),
        Contender::pair("Arc, 2 threads", clone_arc),
        Contender::pair("AtomicUsize, 2 threads", count_atomic),
        Contender::pair("TaskTracker, 2 threads", token),
        Contender::pair("WaitGroup, 2 threads", clone_group),
    ]);
    assert_eq!(sched.estimate(), 1, "the sanity check: as many puts as gets");
    assert_eq!(plain.estimate(), 1);
    sched.kill_sync().expect("not killed yet");
    plain.kill_sync().expect("not killed yet");

    let with = |ours, rival, goal| row(&figures, ours, rival, goal);
    let mut rows = match part {
        Part::Membarrier => vec![
            with("Sched", "Arc", Goal::AtMost(0.8)),
            with("Sched, 2 threads", "Arc, 2 threads", Goal::AtMost(0.25)),
            with("Sched, 2 threads", "Sched", Goal::None),
            with("Sched", "thread-local", Goal::None),
        ],
        _ => vec![
            with("Sched", "Arc", Goal::AtMost(0.45)),
            with("Sched", "thread-local", Goal::AtMost(1.5)),
            with("Sched, 2 threads", "Arc, 2 threads", Goal::AtMost(0.12)),
            with("Sched, 2 threads", "Sched", Goal::AtMost(1.2)),
            with("enter", "TaskTracker", Goal::AtMost(0.25)),
            with("enter", "WaitGroup", Goal::AtMost(0.25)),
            with("enter, 2 threads", "TaskTracker, 2 threads", Goal::AtMost(0.25)),
            with("enter, 2 threads", "WaitGroup, 2 threads", Goal::AtMost(0.25)),
            with("Sched", "AtomicUsize", Goal::None),
            with("Sched, 2 threads", "AtomicUsize, 2 threads", Goal::None),
            with("Plain", "Arc", Goal::None),
            with("Plain, 2 threads", "Arc, 2 threads", Goal::None),
        ],
    };
    rows.extend(threads::run(part));
    rows
}

fn row(figures: &Figures, ours: &str, rival: &str, goal: Goal) -> Row {
    let get = |name| figures.get(name).expect("it is in the set");
    Row {
        work: "take and drop a reference".into(),
        backend: backend(),
        unit: "ns".into(),
        ours: get(ours),
        rival: Some(get(rival)),
        goal,
    }
}
