//! Grace periods, and the end of refs.

use crate::backend;
use crate::harness::{Contender, Figure, Figures, Peer, measure, pin, timed};
use crate::row::{Goal, Row};
use crate::urcu::Urcu;
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const KILLS: usize = 1_000;
const MANY: usize = 100_000;

pub(crate) fn run() -> Vec<Row> {
    let mut rows = with_a_busy_peer();
    rows.push(until_confirm::<Sched>("Sched"));
    rows.push(until_confirm::<Plain>("Plain"));
    rows.push(many_at_once::<Sched>("Sched"));
    rows.push(many_at_once::<Plain>("Plain"));
    rows.extend(together());
    rows
}

/// One membarrier, as a program would call it by hand.
fn membarrier() {
    // SAFETY: the command has no further arguments, and the process is registered.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
    assert_eq!(result, 0, "membarrier");
}

fn can_membarrier() -> bool {
    // SAFETY: the command has no further arguments.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
}

/// What waiting costs while another thread is at work: counting, in our sections and in liburcu's, by turns, so that the
/// peer is the same for everybody.
fn with_a_busy_peer() -> Vec<Row> {
    let urcu = Urcu::load();
    let counted = PercpuRef::new(|| {});
    let stop = AtomicBool::new(false);
    let peer = Peer::default();
    let work = || {
        for _ in 0..50 {
            counted.get();
            counted.put();
            drop(Sched::read_lock());
        }
    };
    let figures = thread::scope(|s| {
        s.spawn(|| {
            pin(1);
            match urcu {
                None => peer.work(&stop, work),
                Some(urcu) => urcu.registered(|registered| {
                    peer.work(&stop, || {
                        work();
                        registered.sections(50);
                    });
                }),
            }
        });
        let mut contenders = vec![
            Contender::with("kill_sync", 1, |n| {
                let refs: Vec<_> = (0..n).map(|_| PercpuRef::new(|| {})).collect();
                let begin = Instant::now();
                for r in &refs {
                    r.kill_sync().expect("not killed yet");
                }
                begin.elapsed()
            }),
            Contender::with("Sched::synchronize", 1, |n| timed(n, Sched::synchronize)),
            Contender::with("Plain::synchronize", 1, |n| timed(n, Plain::synchronize)),
        ];
        if can_membarrier() {
            contenders.push(Contender::with("raw membarrier", 1, |n| timed(n, membarrier)));
        }
        if let Some(urcu) = urcu {
            contenders.push(Contender::with("liburcu-memb synchronize_rcu", 1, move |n| {
                let begin = Instant::now();
                urcu.synchronize(n);
                begin.elapsed()
            }));
        }
        let contenders: Vec<_> = contenders.into_iter().map(|contender| contender.beside(&peer)).collect();
        let figures = measure(&contenders);
        stop.store(true, Ordering::Relaxed);
        figures
    });
    counted.kill_sync().expect("not killed yet");
    let work = "wait, one busy peer";
    let rows = [
        row(&figures, work, "kill_sync", "raw membarrier", Goal::AtMost(1.5)),
        row(&figures, work, "kill_sync", "liburcu-memb synchronize_rcu", Goal::AtMost(0.6)),
        row(&figures, work, "Sched::synchronize", "raw membarrier", Goal::None),
        row(&figures, work, "Sched::synchronize", "liburcu-memb synchronize_rcu", Goal::None),
        row(&figures, work, "Plain::synchronize", "raw membarrier", Goal::None),
    ];
    rows.into_iter().flatten().collect()
}

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

fn build<F: Flavor>() -> PercpuRef<F> {
    PercpuRef::builder().flavor(F::default()).build(|| {})
}

/// From `kill_and_confirm` to its confirm in a process in which nothing else happens. The goal is about the 99th of 100,
/// which stands where other rows have the median.
fn until_confirm<F: Flavor>(name: &str) -> Row {
    let mut latencies: Vec<_> = (0..KILLS)
        .map(|_| {
            let r = build::<F>();
            thread::sleep(Duration::from_millis(1)); // Everything falls asleep again.
            let (confirmed, wait) = mpsc::channel();
            let begin = Instant::now();
            r.kill_and_confirm(move || confirmed.send(Instant::now()).expect("it is waited for"))
                .expect("not killed yet");
            let then = wait.recv().expect("it confirms");
            r.wait_zero();
            then.duration_since(begin).as_secs_f64() * 1e6
        })
        .collect();
    latencies.sort_by(f64::total_cmp);
    let p99 = latencies[KILLS * 99 / 100 - 1];
    Row {
        work: format!("kill_and_confirm, idle, {KILLS} kills: min and p99"),
        backend: backend(),
        unit: "us".into(),
        ours: Figure { name: format!("{name}, p99"), min: latencies[0], median: p99 },
        rival: None,
        goal: Goal::AtMost(2_000.0),
    }
}

/// Many live refs die at once; what each costs from the first kill to the last confirm.
fn many_at_once<F: Flavor>(name: &str) -> Row {
    let samples = (0..5)
        .map(|_| {
            let refs: Vec<_> = (0..MANY).map(|_| build::<F>()).collect();
            refs.iter().for_each(PercpuRef::get);
            let left = Arc::new(AtomicUsize::new(MANY));
            let (all_confirmed, wait) = mpsc::channel();
            let begin = Instant::now();
            for r in &refs {
                let left = Arc::clone(&left);
                let all_confirmed = all_confirmed.clone();
                r.kill_and_confirm(move || {
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        all_confirmed.send(Instant::now()).expect("it is waited for");
                    }
                })
                .expect("not killed yet");
            }
            let took = wait.recv().expect("all confirm").duration_since(begin);
            refs.iter().for_each(PercpuRef::put);
            refs.iter().for_each(PercpuRef::wait_zero);
            took.as_secs_f64() * 1e9 / MANY as f64
        })
        .collect();
    Row {
        work: format!("{MANY} refs killed at once, each"),
        backend: backend(),
        unit: "ns".into(),
        ours: Figure::of(name, samples),
        rival: None,
        goal: Goal::AtMost(1_000.0),
    }
}

/// Nanoseconds that one of `threads` callers of `synchronize` waits, all calling all the time.
fn latency(threads: usize) -> f64 {
    const CALLS: u32 = 200;
    let barrier = Barrier::new(threads);
    let one = || {
        barrier.wait();
        let begin = Instant::now();
        for _ in 0..CALLS {
            Sched::synchronize();
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let waits: Vec<f64> = thread::scope(|s| {
        let callers: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    });
    waits.iter().sum::<f64>() / waits.len() as f64
}

/// Callers that wait at the same time share grace periods. Both sides run beside a busy thread, because a membarrier in a
/// process that does nothing else has nobody to interrupt.
fn together() -> [Row; 1] {
    let stop = AtomicBool::new(false);
    let (mut sixteen, mut one) = (Vec::new(), Vec::new());
    thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(Sched::read_lock());
            }
        });
        for _ in 0..15 {
            sixteen.push(latency(16));
            one.push(latency(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    [Row {
        work: "synchronize, latency of a caller".into(),
        backend: backend(),
        unit: "ns".into(),
        ours: Figure::of("16 callers", sixteen),
        rival: Some(Figure::of("1 caller", one)),
        goal: Goal::AtMost(3.0),
    }]
}
