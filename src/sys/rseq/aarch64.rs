//! The sequence on aarch64. The thread pointer is `tpidr_el0`; the store of the sum commits.
//!
//! `limit` is loaded with acquire: the cells are zeroed before a window is opened, and nothing but an acquire orders a
//! load after another here.

use core::arch::asm;

macro_rules! sequence {
    ($window:ident, $n:expr) => {
        asm!(
            ".pushsection .data.rel.ro.percpu_ref_rseq, \"aw\", @progbits",
            ".balign 32",
            "22: .word 0, 0",
            ".xword 33f, 44f - 33f, 55f",
            ".popsection",
            "ldrsw {area}, [{window}, #12]",
            "cbz {area}, {slow}",
            "mrs {a}, tpidr_el0",
            "add {area}, {area}, {a}",
            "adrp {a}, 22b",
            "add {a}, {a}, :lo12:22b",
            "str {a}, [{area}, #8]",
            "33:",
            "ldrh {area:w}, [{area}, #4]",
            "ldarh {a:w}, [{limit}]",
            "cmp {area:w}, {a:w}",
            "b.hs {slow}",
            "ldr {a}, [{window}]",
            "add {a}, {a}, {area}, lsl #{shift}",
            "ldr {area}, [{a}]",
            "add {area}, {area}, {n}",
            "str {area}, [{a}]",
            "44:",
            ".pushsection .text.unlikely.percpu_ref_rseq, \"ax\", @progbits",
            ".inst 0xd428bc00",
            "55: b {slow}",
            ".popsection",
            a = out(reg) _,
            area = out(reg) _,
            window = in(reg) $window,
            limit = in(reg) $window.wrapping_add(8),
            shift = const super::LANE_SHIFT,
            n = in(reg) $n,
            slow = label { return false },
            options(nostack),
        )
    };
}

/// # Safety
/// As [`super::add_const`].
#[inline(always)]
pub(crate) unsafe fn add_const<const N: i32>(window: *const u8) -> bool {
    // SAFETY: the sequence writes `rseq_cs` of an area that exists (1), reads a window (1), and adds to a cell that
    // its limit vouches for (2). It clobbers two scratch registers and the flags.
    unsafe { sequence!(window, i64::from(N)) };
    true
}

/// # Safety
/// As [`super::add_const`].
#[inline(always)]
pub(crate) unsafe fn add(window: *const u8, n: u64) -> bool {
    // SAFETY: as in `add_const`.
    unsafe { sequence!(window, n) };
    true
}

/// # Safety
/// As [`super::get_from`]; `from` leads from the thread pointer to the rseq area.
#[inline(always)]
pub(super) unsafe fn get_from<const BACK: usize>(slot: *const *mut u8, from: isize) -> *mut u8 {
    let value;
    // SAFETY: the sequence writes `rseq_cs` of an area that exists, reads `slot` and the window behind it (1), which is
    // there until the sequence is over (2), and adds to a cell that the window's limit vouches for. It clobbers four
    // scratch registers and the flags.
    unsafe {
        asm!(
            ".pushsection .data.rel.ro.percpu_ref_rseq, \"aw\", @progbits",
            ".balign 32",
            "22: .word 0, 0",
            ".xword 33f, 44f - 33f, 55f",
            ".popsection",
            "mrs {area}, tpidr_el0",
            "add {area}, {area}, {from}",
            "adrp {a}, 22b",
            "add {a}, {a}, :lo12:22b",
            "str {a}, [{area}, #8]",
            "33:",
            "ldar {value}, [{slot}]",
            "sub {window}, {value}, {back}",
            "add {a}, {window}, #8",
            "ldrh {cpu:w}, [{area}, #4]",
            "ldarh {a:w}, [{a}]",
            "cmp {cpu:w}, {a:w}",
            "b.hs 66f",
            "ldr {a}, [{window}]",
            "add {a}, {a}, {cpu}, lsl #{shift}",
            "ldr {cpu}, [{a}]",
            "add {cpu}, {cpu}, #1",
            "str {cpu}, [{a}]",
            "44:",
            "b 77f",
            "66: mov {value}, xzr",
            "77:",
            ".pushsection .text.unlikely.percpu_ref_rseq, \"ax\", @progbits",
            ".inst 0xd428bc00",
            "55: b 66b",
            ".popsection",
            a = out(reg) _,
            cpu = out(reg) _,
            area = out(reg) _,
            window = out(reg) _,
            value = out(reg) value,
            slot = in(reg) slot,
            from = in(reg) from,
            back = in(reg) BACK,
            shift = const super::LANE_SHIFT,
            options(nostack),
        );
    }
    value
}
