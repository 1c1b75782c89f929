//! The Linux kernel's percpu_ref, in user space and safe Rust.
//!
//! For objects that many threads use at once and that must one day be torn down: [`PercpuRef`] counts their references
//! without a shared cache line, and [`kill`](PercpuRef::kill) ends them without a race.
//!
//! Start with the [guide](guide::which_call_when).
//!
#![doc = include_str!("../docs/picture.svg")]
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `track` | every reference remembers where it was taken: [who holds what](guide::find_a_leak). For finding a mistake |
//! | `tracing` | events for each step of a ref's life, with the [tracing](https://docs.rs/tracing) crate |
//! | `bytes` | [`PageBytes`](page_pool::PageBytes) into a `Bytes` of the [bytes](https://docs.rs/bytes) crate, without a copy |

mod gate;
pub mod guide;
#[cfg(feature = "bytes")]
mod into_bytes;
pub mod page_pool;
mod percpu;
mod percpu_ref;
pub mod ptr_ring;
pub mod rcu;
mod report;
mod shared;
mod sync;
#[cfg(not(percpu_ref_loom))]
mod sys;
mod trace;
mod track;

pub use gate::{Closed, Entering, Freezing, Frozen, Gate, GateBuilder, OwnedPass, Pass};
pub use percpu_ref::{
    AlreadyDying, Builder, Mode, NotReinitable, OutOfMemory, Outstanding, PercpuRef, Ref, ReviveError, Start,
};
pub use report::{Reader, Report, ReportKind, Stall, Wait, set_report_hook, set_stall_after};
pub use shared::{Drain, Owner, RcuCell, Shared, Weak};
pub use track::{HolderKind, Holding};

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
