//! Reading a value that others may replace: `RcuCell` against arc-swap and a lock around an `Arc`.

use crate::harness::{Contender, Figures, measure};
use crate::row::{Goal, Row};
use crate::{Part, backend};
use arc_swap::ArcSwap;
use percpu_ref::RcuCell;
use percpu_ref::rcu::Plain;
use std::hint::black_box;
use std::sync::{Arc, RwLock};

pub(crate) fn run(part: Part) -> Vec<Row> {
    let cell = RcuCell::new(1_u64);
    let plain = RcuCell::with_flavor(1_u64, Plain);
    let swap = ArcSwap::from_pointee(1_u64);
    let lock = RwLock::new(Arc::new(1_u64));

    // Everybody looks at the value, so that nobody gets away with a pointer.
    let load = || {
        black_box(*black_box(&cell).load());
    };
    let read = || {
        black_box(black_box(&cell).read(|value| *value));
    };
    let plain_load = || {
        black_box(*black_box(&plain).load());
    };
    let swap_load = || {
        black_box(**black_box(&swap).load());
    };
    let swap_full = || {
        black_box(*black_box(&swap).load_full());
    };
    let locked = || {
        let value = Arc::clone(&black_box(&lock).read().expect("nobody panics"));
        black_box(*value);
    };

    let figures = measure(&[
        Contender::new("load", load),
        Contender::new("read", read),
        Contender::new("load, Plain", plain_load),
        Contender::new("arc-swap load", swap_load),
        Contender::new("arc-swap load_full", swap_full),
        Contender::new("RwLock<Arc>", locked),
        Contender::pair("load, 2 threads", load),
        Contender::pair("read, 2 threads", read),
        Contender::pair("arc-swap load, 2 threads", swap_load),
        Contender::pair("arc-swap load_full, 2 threads", swap_full),
        Contender::pair("RwLock<Arc>, 2 threads", locked),
    ]);
    assert_eq!(cell.into_inner().wait(), 1, "the sanity check: as many puts as gets");
    assert_eq!(plain.into_inner().wait(), 1);

    let with = |ours, rival, goal| row(&figures, ours, rival, goal);
    match part {
        Part::Membarrier => {
            vec![with("load", "arc-swap load_full", Goal::None), with("read", "arc-swap load", Goal::AtMost(0.4))]
        }
        _ => vec![
            with("load", "arc-swap load_full", Goal::AtMost(0.35)),
            with("load", "arc-swap load", Goal::AtMost(0.7)),
            with("read", "arc-swap load", Goal::AtMost(0.4)),
            with("load", "RwLock<Arc>", Goal::None),
            with("load, 2 threads", "arc-swap load_full, 2 threads", Goal::None),
            with("load, 2 threads", "arc-swap load, 2 threads", Goal::None),
            with("read, 2 threads", "arc-swap load, 2 threads", Goal::None),
            with("load, 2 threads", "RwLock<Arc>, 2 threads", Goal::None),
            with("load, Plain", "arc-swap load_full", Goal::None),
        ],
    }
}

fn row(figures: &Figures, ours: &str, rival: &str, goal: Goal) -> Row {
    let get = |name| figures.get(name).expect("it is in the set");
    Row {
        work: "look at the value of now".into(),
        backend: backend(),
        unit: "ns".into(),
        ours: get(ours),
        rival: Some(get(rival)),
        goal,
    }
}
