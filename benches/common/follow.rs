//! The cases of a `versus` group, one after another, by criterion.

use crate::case::Case;
use criterion::{Criterion, Throughput};
use std::time::Duration;

/// Measures each run of each case: the time for an element.
pub(crate) fn follow(c: &mut Criterion, cases: Vec<Case>) {
    for case in cases {
        let mut group = c.benchmark_group(case.name);
        group.throughput(Throughput::Elements(1));
        group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
        for (name, mut run) in case.runs {
            group.bench_function(name, |b| b.iter_custom(|n| run(n.max(64))));
        }
        group.finish();
    }
}
