//! The Linux kernel's percpu_ref, in user space.

mod sync;
mod sys;
