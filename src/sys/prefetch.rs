//! Asking for a cache line before it is needed.

/// Asks for the line at `at`, to be read. Any address will do: nothing is read that the program could notice.
#[inline(always)]
pub(crate) fn prefetch_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE, and a prefetch is a hint that never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch is a hint: it never faults, and neither memory nor flags change.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}
