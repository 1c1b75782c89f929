//! What a page costs, beside the rivals: `cargo bench --bench page_pool`.
//!
//! Each figure is the time per page, allocated, touched and freed. The cases are those of the `versus` group `page_pool`,
//! which compares round by round; here criterion follows each of them over time.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

#[path = "versus/page_pool.rs"]
mod cases;

fn page_pool(c: &mut Criterion) {
    for case in cases::cases(false) {
        let mut group = c.benchmark_group(case.name);
        group.throughput(Throughput::Elements(1));
        group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
        for (name, mut run) in case.runs {
            group.bench_function(name, |b| b.iter_custom(|n| run(n.max(64))));
        }
        group.finish();
    }
}

criterion_group!(benches, page_pool);
criterion_main!(benches);
