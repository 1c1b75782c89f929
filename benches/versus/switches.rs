//! Whether another job had this thread's CPU while it was measured.

/// How often the scheduler has taken the CPU away from this thread; only Linux says so.
pub(crate) fn switches() -> i64 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an all-zero rusage is a valid value of it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is ours to be written.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        usage.ru_nivcsw
    }
    #[cfg(not(target_os = "linux"))]
    0
}
