//! What does it cost to take and drop one reference, alone and while a second thread does the same?

use criterion::{Criterion, criterion_group, criterion_main};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

fn get_put<F: Flavor>(r: &PercpuRef<F>) {
    let r = black_box(r);
    r.get();
    r.put();
}

fn clone_drop(arc: &Arc<u64>) {
    drop(Arc::clone(black_box(arc)));
}

fn add_sub(count: &AtomicUsize) {
    let count = black_box(count);
    count.fetch_add(1, Ordering::Relaxed);
    count.fetch_sub(1, Ordering::Release);
}

fn local() {
    LOCAL.with(|count| {
        let count = black_box(count);
        count.set(count.get() + 1);
        let count = black_box(count);
        count.set(count.get() - 1);
    });
}

/// Runs `measure` while another thread runs `op` over and over.
fn beside(op: impl Fn() + Sync, measure: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                op();
            }
        });
        measure();
        stop.store(true, Ordering::Relaxed);
    });
}

fn benches(c: &mut Criterion) {
    let sched = PercpuRef::new(|| {});
    let plain = PercpuRef::builder().flavor(Plain).build(|| {});
    let arc = Arc::new(0);
    let atomic = AtomicUsize::new(1);
    let named = format!("Sched on {:?}", Sched::backend());

    for threads in [1, 2] {
        let mut group = c.benchmark_group(format!("get_put/{threads}"));
        let mut run = |name: &str, op: &(dyn Fn() + Sync), bench: &mut dyn FnMut(&mut criterion::Bencher)| {
            let mut measure = || {
                group.bench_function(name, |b| bench(b));
            };
            if threads == 1 { measure() } else { beside(op, measure) }
        };
        run(&named, &|| get_put(&sched), &mut |b| b.iter(|| get_put(&sched)));
        run("Plain", &|| get_put(&plain), &mut |b| b.iter(|| get_put(&plain)));
        run("Arc", &|| clone_drop(&arc), &mut |b| b.iter(|| clone_drop(&arc)));
        run("AtomicUsize", &|| add_sub(&atomic), &mut |b| b.iter(|| add_sub(&atomic)));
        run("thread-local cell", &local, &mut |b| b.iter(local));
        group.finish();
    }

    assert_eq!((sched.estimate(), plain.estimate()), (1, 1), "as many puts as gets");
    sched.kill_sync().expect("not killed yet");
    plain.kill_sync().expect("not killed yet");
}

criterion_group!(get_put_group, benches);
criterion_main!(get_put_group);
