//! What an element costs in a ring, beside the rivals: `cargo bench --bench ring`.
//!
//! Each figure is the time per element, in and out. The cases are those of the `versus` group `ring`, which compares round
//! by round; here criterion follows each of them over time.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

#[path = "versus/c_object.rs"]
mod c_object;
#[path = "versus/ring.rs"]
mod cases;

fn ring(c: &mut Criterion) {
    for case in cases::cases() {
        let mut group = c.benchmark_group(case.name);
        group.throughput(Throughput::Elements(1));
        group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
        for (name, mut run) in case.runs {
            group.bench_function(name, |b| b.iter_custom(|n| run(n.max(64))));
        }
        group.finish();
    }
}

/// That `versus` asks for it.
const _: fn() -> usize = cases::disturbances;

criterion_group!(benches, ring);
criterion_main!(benches);
