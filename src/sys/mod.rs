//! The only code that knows an operating system or a processor.
//!
//! # The contract
//!
//! | module | offers | where the system has none |
//! |---|---|---|
//! | [`membarrier`] | `register`, `heavy`: every thread of the process runs a full fence now | `register` is false |
//! | [`rseq`] | add to this CPU's cell in one restartable sequence; `heavy` restarts those under way | `available` is false |
//! | [`futex`] | sleep while a word has a value, wake the sleepers | a table of condition variables |
//! | [`pages`] | zeroed, aligned memory straight from the system, costing nothing until touched | the global allocator |
//! | [`cpus`] | how many CPUs may ever exist | 1 |
//! | [`fork`] | run functions around `fork`, and one before `main` | never called |
//! | [`prefetch_read`] | ask for a cache line ahead of its use | nothing happens |
//! | [`stderr`] | write to standard error without a lock | the standard library's, with one |
//! | [`signals`] | keep signals from a thread that is being started | runs the closure |
//! | [`threads`] | the system's number and name of this thread | no number; the standard library's name |
//!
//! The platform ladder stands here and nowhere else. `--cfg percpu_ref_portable` takes its last rung on any system, so
//! that the rung everybody else stands on is tested too.

#[cfg(all(target_os = "linux", not(percpu_ref_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(percpu_ref_portable)))]
use linux::membarrier as membarrier_rseq;
#[cfg(all(target_os = "linux", not(percpu_ref_portable)))]
pub(crate) use linux::{cpus, fork, futex, membarrier, pages, signals, stderr, threads};

#[cfg(not(all(target_os = "linux", not(percpu_ref_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(percpu_ref_portable))))]
pub(crate) use portable::{cpus, fork, futex, membarrier, pages, signals, stderr, threads};

pub(crate) mod rseq;

mod backoff;
pub(crate) use backoff::Backoff;

mod prefetch;
pub(crate) use prefetch::prefetch_read;
