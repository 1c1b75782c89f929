//! Adding to this CPU's cell in one restartable sequence.
//!
//! A thread cannot switch preemption off, but it can ask the kernel to undo a short sequence that was preempted: it
//! writes the address of a descriptor (start, length, where to go instead) into the `rseq_cs` field of its rseq area,
//! and if the kernel preempts, migrates or signals the thread while its instruction pointer is inside, the thread comes
//! back at the abort address. The last instruction of the sequence is the one that takes effect.
//!
//! # The sequence, in pseudo-code; every architecture implements this one
//!
//! ```text
//! add(window, n):
//!     if window.area == 0: goto slow        // this window is never opened
//!     area = thread pointer + window.area
//!     area.rseq_cs = &descriptor            // the sequence begins after this store
//!     cpu = low 16 bits of area.cpu_id
//!     if cpu >= window.limit: goto slow     // unsigned: covers "not registered" (-1, -2) and a closed window (0)
//!     cells = window.cells                  // not loaded before `limit`
//!     *(cells + (cpu << LANE_SHIFT)) += n   // the last instruction: its store commits
//!     return true
//! slow (also: aborted):
//!     return false                      // the caller counts on the shared word
//!
//! get_from(slot, back):
//!     area.rseq_cs = &descriptor
//!     value = *slot                     // inside: what it points to may be gone after the sequence
//!     window = value - back             // not read before `slot`
//!     the rest as in add(window, 1)
//!     return value
//! slow (also: aborted):
//!     return null
//! ```
//!
//! - `limit` is loaded inside the sequence: whoever closes the window and then calls [`heavy`] knows that every
//!   sequence that saw it open has committed or will be aborted. No reader is ever waited for.
//! - `area` is in the window, not in a static, because the window's line is needed anyway.
//! - `get_from` reaches into what `slot` points to, which nothing but the sequence keeps: whoever puts another pointer in
//!   its place closes the window of the old one, calls [`heavy`], and frees the old one afterwards. Every sequence that
//!   loaded the old pointer has committed by then, and counts, or is aborted and touches it no more.
//! - An aborted sequence is not retried. The shared word is right in every mode, an abort is rare, and so a debugger that
//!   stops at every instruction cannot make it spin.
//! - `rseq_cs` is not reset afterwards. The kernel clears it when it next looks and finds the thread elsewhere; so the
//!   descriptor has to stay mapped, and [`pin_this_object`] keeps the object that contains it from being unloaded.
//! - Only `rseq_cs` is ever written, and the area is the one that the C library registered. Registering another, or
//!   writing other fields, breaks whoever else uses it.
//! - A signal handler may run sequences of its own: the interrupted one has been aborted by then.
//!
//! Source: rseq(2) and membarrier(2), Linux; the ABI of `__rseq_offset` and `__rseq_size`, glibc 2.35.

/// The distance between two CPUs' cells of one count is `1 << LANE_SHIFT` bytes.
pub(crate) const LANE_SHIFT: u32 = 15;

// The entry points, of which each architecture has its own:
//
// `add_const::<N>(window)` and `add(window, n)` add to this CPU's cell; false if they could not.
//
// # Safety
// 1. `window` points to a `sync::restartable::Window`: a pointer to cells, the limit, and 12 bytes in the area, which is
//    what `area` returned, or 0.
// 2. While `limit` is not 0, and afterwards until `heavy` has run, `area` is what `area` returned, and `cells` points to
//    `limit` cells that are `1 << LANE_SHIFT` bytes apart and reached by atomic operations only.

/// The largest limit of a window: below what the low half of "not registered" is.
pub(crate) const MAX_LIMIT: usize = 0xfff0;

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(percpu_ref_portable)
))]
#[path = "x86_64.rs"]
mod arch;
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "aarch64",
    target_pointer_width = "64",
    not(percpu_ref_portable)
))]
#[path = "aarch64.rs"]
mod arch;

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(percpu_ref_portable)
))]
mod present;
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(percpu_ref_portable)
))]
pub(crate) use present::{add, add_const, area, get_from, heavy};

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(percpu_ref_portable)
)))]
mod absent;
#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(percpu_ref_portable)
)))]
pub(crate) use absent::{add, add_const, area, get_from, heavy};
