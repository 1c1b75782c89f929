//! Read-side critical sections: alone, and around the microbenchmark that the kernel's per-CPU refcount was introduced
//! with in 2013: get, copy 32 bytes into a per-CPU buffer, put, copy 32 bytes.

use crate::harness::{Contender, Figures, measure, timed};
use crate::row::{Goal, Row};
use crate::urcu::Urcu;
use crate::{Part, backend};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

/// A line of its own for each CPU, so that only the copying is measured.
#[repr(align(128))]
struct Buffer(Cell<[u64; 4]>);

thread_local! {
    static BUFFERS: [Buffer; 64] = const { [const { Buffer(Cell::new([0; 4])) }; 64] };
}

/// Copies 32 bytes into the buffer of this CPU: finding that out is part of the work.
#[inline(always)]
fn copy(from: &[u64; 4]) {
    // SAFETY: sched_getcpu has no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    BUFFERS.with(|buffers| black_box(&buffers[cpu as usize % 64]).0.set(*black_box(from)));
}

pub(crate) fn run(part: Part) -> Vec<Row> {
    let urcu = Urcu::load();
    let collector = seize::Collector::new();
    let sched = PercpuRef::new(|| {});
    let plain = PercpuRef::builder().flavor(Plain).build(|| {});
    let from = [1, 2, 3, 4];

    let mut contenders = vec![
        Contender::new("Sched", || drop(Sched::read_lock())),
        Contender::new("Plain", || drop(Plain::read_lock())),
        Contender::new("crossbeam pin", || drop(crossbeam_epoch::pin())),
        Contender::new("seize", || drop(collector.enter())),
        Contender::new("kovan 0.1.13", || drop(kovan::pin())),
        Contender::new("sdd", || drop(sdd::Guard::new())),
        Contender::new("copies, Plain", || {
            let r = black_box(&plain);
            r.get();
            copy(&from);
            r.put();
            copy(&from);
        }),
        Contender::new("copies, Sched", || {
            let r = black_box(&sched);
            r.get();
            copy(&from);
            r.put();
            copy(&from);
        }),
        Contender::new("copies, no count", || {
            copy(&from);
            copy(&from);
        }),
    ];
    if let Some(urcu) = urcu {
        contenders.push(Contender::with("liburcu-memb", 1, move |n| {
            urcu.registered(|registered| {
                let begin = Instant::now();
                registered.sections(n);
                begin.elapsed()
            })
        }));
    }
    // The sanity check: a section that is open keeps a grace period from ending, so it is not optimised away.
    assert!(timed(1, || drop(Sched::read_lock())).as_secs() < 1);
    let figures = measure(&contenders);
    assert_eq!((sched.estimate(), plain.estimate()), (1, 1), "as many puts as gets");
    sched.kill_sync().expect("not killed yet");
    plain.kill_sync().expect("not killed yet");

    let section = "section";
    let microbench = "get, copy, put, copy (2013)";
    let mut rows = vec![
        row(&figures, section, "Sched", "crossbeam pin", Goal::AtMost(0.3)),
        row(&figures, section, "Sched", "seize", Goal::AtMost(1.0)),
        row(&figures, section, "Sched", "kovan 0.1.13", Goal::AtMost(1.0)),
        row(&figures, section, "Sched", "sdd", Goal::AtMost(1.0)),
        row(&figures, section, "Sched", "liburcu-memb", Goal::AtMost(1.0)),
        row(&figures, microbench, "copies, Plain", "copies, Sched", Goal::AtLeast(4.0)),
        row(&figures, microbench, "copies, Sched", "copies, no count", Goal::AtMost(1.35)),
    ];
    if part == Part::Whole {
        rows.push(row(&figures, section, "Plain", "crossbeam pin", Goal::None));
    }
    rows.into_iter().flatten().collect()
}

/// `None` if a rival is not there.
fn row(figures: &Figures, work: &str, ours: &str, rival: &str, goal: Goal) -> Option<Row> {
    Some(Row {
        work: work.into(),
        backend: backend(),
        unit: "ns".into(),
        ours: figures.get(ours)?,
        rival: Some(figures.get(rival)?),
        goal,
    })
}
