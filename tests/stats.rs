//! What is counted of grace periods and callbacks, exactly.
//!
//! Each test runs in a process of its own: the numbers are those of a process.

mod common;

use common::{Backend, Flavor, Plain, Sched, eventually, in_children, together};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{GraceStats, Stats, stats};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

fn of<F: Flavor>(stats: Stats) -> GraceStats {
    if F::backend() == Backend::Epoch { stats.plain } else { stats.sched }
}

/// How many membarriers `n` grace periods of sections cost.
fn barriers<F: Flavor>(n: u64) -> u64 {
    if matches!(F::backend(), Backend::Rseq | Backend::Membarrier) { n } else { 0 }
}

fn what_is_waited_for_is_counted<F: Flavor>() {
    assert_eq!(stats(), Stats::default());
    for _ in 0..3 {
        F::synchronize();
    }
    let now = of::<F>(stats());
    assert_eq!((now.grace_periods, now.waits, now.shared, now.barriers), (3, 3, 0, barriers::<F>(3)));
    assert!(now.longest_wait > Duration::ZERO);

    for _ in 0..2 {
        F::call(|| {});
        F::barrier();
    }
    let now = of::<F>(stats());
    assert_eq!((now.callbacks_queued, now.callbacks_run), (2, 2));
    assert_eq!((now.grace_periods, now.waits, now.shared), (5, 5, 0));

    // The other flavour has seen nothing of that.
    let others = if F::backend() == Backend::Epoch { stats().sched } else { stats().plain };
    assert_eq!(others, GraceStats::default());
    assert_eq!((stats().sequences, stats().stalls), (GraceStats::default(), 0));
}

fn waits_at_the_same_time_share<F: Flavor>() {
    let (leave, left) = mpsc::channel::<()>();
    let (tell, inside) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let _section = F::read_lock();
        tell.send(()).unwrap();
        let _ = left.recv();
    });
    inside.recv().unwrap();
    let about_to_wait = &AtomicUsize::new(0);
    std::thread::scope(|s| {
        // One waits for the reader; nine for the next grace period, which one of them runs. That they have begun to wait
        // nobody can see: they are given time.
        let synchronize = move || {
            about_to_wait.fetch_add(1, SeqCst);
            F::synchronize();
        };
        let begun = |n| {
            eventually("they are about to wait", || about_to_wait.load(SeqCst) == n);
            std::thread::sleep(Duration::from_millis(500));
        };
        s.spawn(synchronize);
        begun(1);
        let others = s.spawn(move || together(9, |_| synchronize()));
        begun(10);
        assert_eq!(of::<F>(stats()), GraceStats::default(), "nothing has ended");
        drop(leave);
        others.join().unwrap();
    });
    reader.join().unwrap();
    let now = of::<F>(stats());
    assert_eq!((now.grace_periods, now.waits, now.shared, now.barriers), (2, 10, 8, barriers::<F>(2)));
    assert!(now.longest_wait >= Duration::from_secs(1), "{now}");
}

/// Which kind of grace period ends a kill of `F`.
fn of_kills<F: Flavor>(stats: Stats) -> GraceStats {
    if F::backend() == Backend::Rseq { stats.sequences } else { of::<F>(stats) }
}

fn kills_are_callbacks_that_share<F: Flavor>() {
    let r = PercpuRef::builder().flavor(F::default()).build(|| {});
    r.kill_sync().unwrap();
    let now = of_kills::<F>(stats());
    assert_eq!((now.grace_periods, now.callbacks_queued, now.barriers), (1, 0, barriers::<F>(1)));
    let refs: Vec<_> = (0..100).map(|_| PercpuRef::builder().flavor(F::default()).build(|| {})).collect();
    refs.iter().for_each(|r| r.kill().unwrap());
    refs.iter().for_each(PercpuRef::wait_zero);
    eventually("the last callback returns", || of_kills::<F>(stats()).callbacks_run == 100);
    let now = of_kills::<F>(stats());
    assert_eq!(now.callbacks_queued, 100);
    assert!(now.grace_periods <= 101 && now.waits == now.grace_periods, "{now}");
}

in_children! {
    fn plain_waits_are_counted() { what_is_waited_for_is_counted::<Plain>(); }
    fn sched_waits_are_counted() { what_is_waited_for_is_counted::<Sched>(); }
    fn waits_without_membarrier_are_counted("PERCPU_REF_BACKEND" = "fence") { what_is_waited_for_is_counted::<Sched>(); }
    fn plain_waits_share() { waits_at_the_same_time_share::<Plain>(); }
    fn sched_waits_share() { waits_at_the_same_time_share::<Sched>(); }
    fn plain_kills_are_counted() { kills_are_callbacks_that_share::<Plain>(); }
    fn sched_kills_are_counted() { kills_are_callbacks_that_share::<Sched>(); }
    fn sched_kills_without_sequences_are_counted("PERCPU_REF_BACKEND" = "membarrier") {
        kills_are_callbacks_that_share::<Sched>();
    }

    fn gets_and_puts_count_nothing() {
        let r = PercpuRef::new(|| {});
        for _ in 0..1000 {
            r.get();
            r.put();
            drop(Sched::read_lock());
        }
        assert_eq!(stats(), Stats::default());
    }

    fn each_number_has_a_name_of_its_own() {
        Sched::synchronize();
        let stats = stats();
        let metrics: std::collections::BTreeMap<_, _> = stats.metrics().collect();
        assert_eq!((metrics.len(), stats.metrics().len()), (22, 22));
        assert_eq!(metrics["sched_grace_periods"], 1);
        assert_eq!(metrics["sched_waits"], 1);
        assert_eq!(u128::from(metrics["sched_longest_wait_nanoseconds"]), stats.sched.longest_wait.as_nanos());
        assert_eq!((metrics["plain_waits"], metrics["sequences_barriers"], metrics["stalls"]), (0, 0, 0));
        let text = stats.to_string();
        assert!(text.contains("sched: 1 grace periods") && text.ends_with("stalls: 0"), "{text}");
    }
}
