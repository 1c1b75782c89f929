//! The sequence on x86_64. The thread pointer is `fs`; the add is one instruction and commits itself.
//!
//! The abort address must follow four bytes of signature; they are the operand of an undefined instruction, so that a
//! disassembler stays in step. The descriptor and the abort stub live in sections of their own, out of the way.

use core::arch::asm;

/// [`Window`](crate::sync::restartable::Window) lies 16 bytes into an `Arc`'s allocation in the types that count most.
/// Passing that allocation's start lets the compiler use the register that it already has; any other offset is right too.
const BACK: usize = 16;

macro_rules! sequence {
    ($window:ident, $($operand:tt)*) => {
        asm!(
            ".pushsection .data.rel.ro.percpu_ref_rseq, \"aw\", @progbits",
            ".balign 32",
            "22: .long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            "movsxd {area}, dword ptr [{window} + 28]",
            "test {area}, {area}",
            "jz {slow}",
            "lea {a}, [rip + 22b]",
            "mov qword ptr fs:[{area} + 8], {a}",
            "33:",
            "movzx {area:e}, word ptr fs:[{area} + 4]",
            "cmp {area:x}, word ptr [{window} + 24]",
            "jae {slow}",
            "mov {a}, qword ptr [{window} + 16]",
            "shl {area}, {shift}",
            "add qword ptr [{a} + {area}], {n}",
            "44:",
            ".pushsection .text.unlikely.percpu_ref_rseq, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "55: jmp {slow}",
            ".popsection",
            a = out(reg) _,
            area = out(reg) _,
            window = in(reg) $window.wrapping_sub(BACK),
            shift = const super::LANE_SHIFT,
            n = $($operand)*,
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
    unsafe { sequence!(window, const N) };
    true
}

/// # Safety
/// As [`super::add_const`].
#[inline(always)]
pub(crate) unsafe fn add(window: *const u8, n: u64) -> bool {
    // SAFETY: as in `add_const`.
    unsafe { sequence!(window, in(reg) n) };
    true
}

/// # Safety
/// As [`super::get_from`]; `area` leads from the thread pointer to the rseq area.
#[inline(always)]
pub(super) unsafe fn get_from<const BACK: usize>(slot: *const *mut u8, area: isize) -> *mut u8 {
    let value;
    // SAFETY: the sequence writes `rseq_cs` of an area that exists, reads `slot` and the window behind it (1), which is
    // there until the sequence is over (2), and adds to a cell that the window's limit vouches for. It clobbers two
    // scratch registers and the flags.
    unsafe {
        asm!(
            ".pushsection .data.rel.ro.percpu_ref_rseq, \"aw\", @progbits",
            ".balign 32",
            "22: .long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            "lea {a}, [rip + 22b]",
            "mov qword ptr fs:[{area} + 8], {a}",
            "33:",
            "mov {value}, qword ptr [{slot}]",
            "movzx {cpu:e}, word ptr fs:[{area} + 4]",
            "cmp {cpu:x}, word ptr [{value} - {back} + 8]",
            "jae 55f",
            "mov {a}, qword ptr [{value} - {back}]",
            "shl {cpu}, {shift}",
            "add qword ptr [{a} + {cpu}], 1",
            "44:",
            ".pushsection .text.unlikely.percpu_ref_rseq, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "55: xor {value:e}, {value:e}",
            "jmp 44b",
            ".popsection",
            a = out(reg) _,
            cpu = out(reg) _,
            value = out(reg) value,
            slot = in(reg) slot,
            area = in(reg) area,
            back = const BACK,
            shift = const super::LANE_SHIFT,
            options(nostack),
        );
    }
    value
}
