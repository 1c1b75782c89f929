//! Going through a gate against taking a lock for reading, and a freeze against taking it for writing.

use crate::harness::{Contender, Figures, Peer, measure, pin, timed};
use crate::row::{Goal, Row};
use crate::{Part, backend};
use crossbeam_utils::sync::ShardedLock;
use percpu_ref::Gate;
use percpu_ref::rcu::Plain;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub(crate) fn run(part: Part) -> Vec<Row> {
    let gate = Gate::new();
    let plain = Gate::builder().flavor(Plain).build();
    let locks = Locks::default();
    let enter = || drop(black_box(&gate).enter());
    let enter_wait = || drop(black_box(&gate).enter_wait());
    let enter_plain = || drop(black_box(&plain).enter());
    let parking_lot = || drop(black_box(&locks.parking_lot).read());
    let sharded = || drop(black_box(&locks.sharded).read());
    let std = || drop(black_box(&locks.std).read());
    let tokio = || drop(black_box(&locks.tokio).try_read());

    let figures = measure(&[
        Contender::new("enter", enter),
        Contender::new("enter_wait", enter_wait),
        Contender::new("enter, Plain", enter_plain),
        Contender::new("parking_lot RwLock", parking_lot),
        Contender::new("ShardedLock", sharded),
        Contender::new("std RwLock", std),
        Contender::new("tokio RwLock", tokio),
        Contender::pair("enter, 2 threads", enter),
        Contender::pair("enter_wait, 2 threads", enter_wait),
        Contender::pair("enter, Plain, 2 threads", enter_plain),
        Contender::pair("parking_lot RwLock, 2 threads", parking_lot),
        Contender::pair("ShardedLock, 2 threads", sharded),
        Contender::pair("std RwLock, 2 threads", std),
        Contender::pair("tokio RwLock, 2 threads", tokio),
    ]);
    assert_eq!((gate.inside(), plain.inside()), (0, 0), "the sanity check: everybody has left");
    drop((gate.freeze(), plain.freeze()));

    let with = |ours, rival: &str, goal| row(&figures, "enter and leave", ours, rival, goal);
    let mut rows = Vec::new();
    // The goal is about the best of them at two threads, so it has to be met against each.
    for rival in ["parking_lot RwLock", "ShardedLock", "std RwLock", "tokio RwLock"] {
        let rival = format!("{rival}, 2 threads");
        rows.push(with("enter, 2 threads", &rival, Goal::AtMost(0.3)));
    }
    for rival in ["parking_lot RwLock", "ShardedLock", "std RwLock", "tokio RwLock"] {
        rows.push(with("enter", rival, Goal::None));
    }
    if part == Part::Whole {
        rows.push(with("enter_wait, 2 threads", "enter, 2 threads", Goal::None));
        rows.push(with("enter, Plain, 2 threads", "ShardedLock, 2 threads", Goal::None));
    }
    rows.extend(keep_out());
    rows
}

#[derive(Default)]
struct Locks {
    parking_lot: parking_lot::RwLock<()>,
    sharded: ShardedLock<()>,
    std: std::sync::RwLock<()>,
    tokio: tokio::sync::RwLock<()>,
}

/// What it costs to keep everybody out and let them in again while another thread goes in and out of all of them by turns,
/// so that the peer is the same for everybody.
fn keep_out() -> Vec<Row> {
    let gate = Gate::new();
    let locks = Locks::default();
    let stop = AtomicBool::new(false);
    let peer = Peer::default();
    let figures = thread::scope(|s| {
        s.spawn(|| {
            pin(1);
            peer.work(&stop, || {
                for _ in 0..50 {
                    drop(gate.enter_wait());
                    drop(locks.parking_lot.read());
                    drop(locks.sharded.read());
                    drop(locks.std.read());
                    drop(locks.tokio.blocking_read());
                }
            });
        });
        let contenders = [
            Contender::with("freeze and thaw", 1, |n| timed(n, || drop(gate.freeze()))),
            Contender::with("parking_lot write", 1, |n| timed(n, || drop(locks.parking_lot.write()))),
            Contender::with("ShardedLock write", 1, |n| timed(n, || drop(locks.sharded.write()))),
            Contender::with("std write", 1, |n| timed(n, || drop(locks.std.write()))),
            Contender::with("tokio write", 1, |n| timed(n, || drop(locks.tokio.blocking_write()))),
        ]
        .map(|contender| contender.beside(&peer));
        let figures = measure(&contenders);
        stop.store(true, Ordering::Relaxed);
        figures
    });
    assert!(gate.enter().is_some(), "the sanity check: it has thawed");
    ["parking_lot write", "ShardedLock write", "std write", "tokio write"]
        .map(|rival| row(&figures, "keep out, one busy peer", "freeze and thaw", rival, Goal::None))
        .into()
}

fn row(figures: &Figures, work: &str, ours: &str, rival: &str, goal: Goal) -> Row {
    let get = |name| figures.get(name).expect("it is in the set");
    Row { work: work.into(), backend: backend(), unit: "ns".into(), ours: get(ours), rival: Some(get(rival)), goal }
}
