//! The Linux kernel's percpu_ref, in user space.

pub mod ptr_ring;
mod sync;
mod sys;
