//! What a page costs, beside the rivals: `cargo bench --bench page_pool`.
//!
//! Each figure is the time per page, allocated, touched and freed. The cases are those of the `versus` group `page_pool`,
//! which compares round by round; here criterion follows each of them over time.

use criterion::{Criterion, criterion_group, criterion_main};
use follow::follow;

#[path = "versus/case.rs"]
mod case;
#[path = "versus/page_pool.rs"]
mod cases;
#[path = "common/follow.rs"]
mod follow;

fn page_pool(c: &mut Criterion) {
    follow(c, cases::cases(false));
}

criterion_group!(benches, page_pool);
criterion_main!(benches);
