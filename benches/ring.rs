//! What an element costs in a ring, beside the rivals: `cargo bench --bench ring`.
//!
//! Each figure is the time per element, in and out. The cases are those of the `versus` group `ring`, which compares round
//! by round; here criterion follows each of them over time.

use criterion::{Criterion, criterion_group, criterion_main};
use follow::follow;

#[path = "versus/c_object.rs"]
mod c_object;
#[path = "versus/case.rs"]
mod case;
#[path = "versus/ring.rs"]
mod cases;
#[path = "common/follow.rs"]
mod follow;
#[path = "versus/item.rs"]
mod item;
#[path = "versus/switches.rs"]
mod switches;

fn ring(c: &mut Criterion) {
    follow(c, cases::cases());
}

/// That `versus` asks for it.
const _: fn() -> usize = cases::disturbances;

criterion_group!(benches, ring);
criterion_main!(benches);
