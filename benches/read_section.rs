//! What does a read-side critical section cost, alone and around the microbenchmark that the kernel's per-CPU refcount
//! was introduced with in 2013: get, copy 32 bytes into a per-CPU buffer, put, copy 32 bytes?

use criterion::{Criterion, criterion_group, criterion_main};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use std::cell::Cell;
use std::hint::black_box;

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

fn sections(c: &mut Criterion) {
    let collector = seize::Collector::new();
    let mut group = c.benchmark_group("read_section");
    group.bench_function(format!("Sched on {:?}", Sched::backend()), |b| b.iter(|| drop(Sched::read_lock())));
    group.bench_function("Plain", |b| b.iter(|| drop(Plain::read_lock())));
    group.bench_function("crossbeam pin", |b| b.iter(|| drop(crossbeam_epoch::pin())));
    group.bench_function("seize", |b| b.iter(|| drop(collector.enter())));
    group.bench_function("kovan 0.1.13", |b| b.iter(|| drop(kovan::pin())));
    group.bench_function("sdd", |b| b.iter(|| drop(sdd::Guard::new())));
    group.finish();
}

fn microbench_of_2013(c: &mut Criterion) {
    let sched = PercpuRef::new(|| {});
    let plain = PercpuRef::builder().flavor(Plain).build(|| {});
    let from = [1, 2, 3, 4];
    let mut group = c.benchmark_group("microbench_of_2013");
    group.bench_function(format!("Sched on {:?}", Sched::backend()), |b| b.iter(|| counted(&sched, &from)));
    group.bench_function("Plain", |b| b.iter(|| counted(&plain, &from)));
    group.bench_function("no count", |b| {
        b.iter(|| {
            copy(&from);
            copy(&from);
        });
    });
    group.finish();
    sched.kill_sync().expect("not killed yet");
    plain.kill_sync().expect("not killed yet");
}

fn counted<F: Flavor>(r: &PercpuRef<F>, from: &[u64; 4]) {
    let r = black_box(r);
    r.get();
    copy(from);
    r.put();
    copy(from);
}

criterion_group!(benches, sections, microbench_of_2013);
criterion_main!(benches);
