//! Linux.

/// `membarrier(2)`.
pub(crate) mod membarrier {
    use std::sync::atomic::{Ordering, fence};

    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
    const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;

    /// True if the kernel did as asked. Any error means that it cannot: ENOSYS where the call is missing, EPERM or
    /// anything else where a sandbox forbids it.
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Announces that this process will use [`heavy`]; false where it cannot be used.
    pub(crate) fn register() -> bool {
        // The trial call catches emulations that accept the registration only.
        membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)
    }

    /// Announces that this process will use [`heavy_rseq`]; false where it cannot be used.
    pub(in crate::sys) fn register_rseq() -> bool {
        membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ) && membarrier(PRIVATE_EXPEDITED_RSEQ)
    }

    /// Makes every thread of this process run a full fence before this returns, the caller included.
    ///
    /// # Panics
    /// If the kernel refuses what it accepted in [`register`], and the slow way too: no reader could be waited for.
    pub(crate) fn heavy(_id: &str) {
        // A full fence of our own first: the call does nothing at all in a process with one thread.
        fence(Ordering::SeqCst);
        // A forked child may have to register again.
        let done = membarrier(PRIVATE_EXPEDITED) || register() || run_on_every_cpu();
        assert!(done, "a sandbox entered since the first use forbids membarrier and sched_setaffinity");
    }

    /// As [`heavy`], and restarts every restartable sequence that is under way in this process.
    pub(in crate::sys) fn heavy_rseq() {
        fence(Ordering::SeqCst);
        let done = membarrier(PRIVATE_EXPEDITED_RSEQ) || register_rseq() || run_on_every_cpu();
        assert!(done, "a sandbox entered since the first use forbids membarrier and sched_setaffinity");
    }

    /// What membarrier does, the slow way, for a process that entered a sandbox after it had chosen membarrier: runs on
    /// one CPU after the other. Whoever ran there has been preempted then, and a context switch is a full fence and
    /// restarts a sequence. False if that is forbidden too.
    ///
    /// It reaches the CPUs that this thread may use; that other threads of the process use others, which are in none
    /// of its cpusets, is not expected.
    #[cold]
    fn run_on_every_cpu() -> bool {
        const SIZE: usize = size_of::<libc::cpu_set_t>();
        // SAFETY: an all-zero set is the empty one.
        let mut before: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `before` has the size that is passed, and 0 is this thread.
        if unsafe { libc::sched_getaffinity(0, SIZE, &raw mut before) } != 0 {
            return false;
        }
        let mut visited = 0;
        for cpu in 0..super::cpus::possible().min(SIZE * 8) {
            // SAFETY: an all-zero set is the empty one.
            let mut only: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: `cpu` is below the capacity of the set.
            unsafe { libc::CPU_SET(cpu, &mut only) };
            // SAFETY: `only` has the size that is passed. A CPU that is offline is refused, and runs nothing.
            visited += usize::from(unsafe { libc::sched_setaffinity(0, SIZE, &raw const only) } == 0);
        }
        // SAFETY: `before` was filled in by the kernel.
        unsafe { libc::sched_setaffinity(0, SIZE, &raw const before) };
        visited > 0
    }
}

/// `futex(2)`, private to this process.
pub(crate) mod futex {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Sleeps while `word` is `seen`, at most for `limit`. May return early, for no reason.
    pub(crate) fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
        let limit = limit.map(|d| libc::timespec {
            tv_sec: d.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: d.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `word` outlives the call and `limit` is null or points to a timespec that does.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, limit);
        }
    }

    /// Wakes everyone who sleeps on `word`.
    pub(crate) fn wake_all(word: &AtomicU32) {
        // SAFETY: the kernel uses the address of `word` as a key and does not read through it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                libc::c_int::MAX,
            );
        }
    }
}

/// `mmap(2)`.
pub(crate) mod pages {
    use std::ptr::NonNull;

    /// Maps `len` zeroed bytes, aligned to `align`; none of it costs memory until it is touched.
    ///
    /// `len` and `align` are multiples of the page size and `align` is a power of two.
    pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
        let padded = len.checked_add(align)?;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses disturbs nothing that exists.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return None;
        }
        let raw = NonNull::new(raw.cast::<u8>())?;
        let before = raw.as_ptr().align_offset(align);
        // SAFETY: `before` is less than `align`, so the result is inside the mapping.
        let start = unsafe { raw.add(before) };
        // SAFETY: `before + len + (align - before)` is the mapping's length.
        let end = unsafe { start.add(len) };
        for (edge, len) in [(raw, before), (end, align - before)] {
            if len > 0 {
                // SAFETY: the edge belongs to the mapping just made, and nobody has its address.
                unsafe { unmap(edge, len, 1) };
            }
        }
        Some(start)
    }

    /// Asks for huge pages under a mapping; a wish that the system may not grant.
    pub(crate) fn wish_for_huge(start: NonNull<u8>, len: usize) {
        advise(start, len, libc::MADV_HUGEPAGE);
    }

    /// Gives back what the range costs, if the system can: its bytes are what they were, or zero.
    ///
    /// # Safety
    /// 1. The range is part of a mapping of [`map`], and nobody else uses it.
    pub(crate) unsafe fn discard(start: NonNull<u8>, len: usize) {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // The system rounds the length up, and would discard what lies behind the range.
        let is_whole = |n: usize| usize::try_from(page).is_ok_and(|page| page > 0 && n.is_multiple_of(page));
        if is_whole(start.addr().get()) && is_whole(len) {
            advise(start, len, libc::MADV_DONTNEED);
        }
    }

    fn advise(start: NonNull<u8>, len: usize, advice: libc::c_int) {
        // SAFETY: none of the two kinds of advice above invalidates memory: the range stays mapped, and only the caller
        // uses what changes in it.
        unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
    }

    /// Gives memory back to the system.
    ///
    /// # Safety
    /// 1. `[start, start + len)` is a whole mapping of [`map`], or an edge of one, and nobody uses it any more.
    pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize, _align: usize) {
        // SAFETY: 1.
        let failed = unsafe { libc::munmap(start.as_ptr().cast(), len) } != 0;
        debug_assert!(!failed, "munmap refuses only a range that is no mapping");
    }
}

/// Which CPUs there can be.
pub(crate) mod cpus {
    /// One more than the highest number a CPU of this machine can ever have: CPUs come and go while we run, and their
    /// numbers may have gaps.
    pub(crate) fn possible() -> usize {
        let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok().and_then(|text| highest(&text));
        // SAFETY: sysconf takes a number and returns one.
        let configured = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1);
        listed.map_or(0, |highest| highest + 1).max(configured).max(1)
    }

    /// The highest number in a list like `0-3,8,10-11`.
    fn highest(list: &str) -> Option<usize> {
        list.trim().rsplit([',', '-']).next()?.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_highest_cpu_of_a_list_is_found() {
            for (list, highest) in [("0", 0), ("0-1\n", 1), ("0-3,8,10-11", 11), ("0,4", 4)] {
                assert_eq!(super::highest(list), Some(highest));
            }
            assert_eq!(super::highest(""), None);
        }
    }
}

/// `pthread_atfork(3)`.
pub(crate) mod fork {
    /// Runs `prepare` before each fork, then `parent` or `child` after it, from now on.
    pub(crate) fn around(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        // SAFETY: the functions are safe to call at any time and live as long as the program.
        let failed =
            unsafe { libc::pthread_atfork(Some(as_unsafe(prepare)), Some(as_unsafe(parent)), Some(as_unsafe(child))) };
        debug_assert_eq!(failed, 0, "there is no memory for three pointers");
    }

    fn as_unsafe(f: extern "C" fn()) -> unsafe extern "C" fn() {
        f
    }

    /// Has a function called before `main`, or when the library that this is in is loaded. The standard library is not set
    /// up then.
    macro_rules! at_load {
        ($function:path) => {
            // SAFETY: that section is an array of functions, which the loader calls with arguments that this one does not look
            // at; and whoever names a function here knows that the standard library is not set up.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_LOAD: extern "C" fn() = $function;
        };
    }
    pub(crate) use at_load;
}

/// Standard error, without the standard library's lock: a child that was forked while another thread held it would wait for
/// ever.
pub(crate) mod stderr {
    /// Writes a message; if that fails, nobody can be told.
    pub(crate) fn write(mut message: &[u8]) {
        while !message.is_empty() {
            // SAFETY: as many bytes as are passed lie there.
            let written = unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
            match usize::try_from(written) {
                Ok(0) => return,
                Ok(written) => message = message.get(written..).unwrap_or_default(),
                Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Signal masks.
pub(crate) mod signals {
    use std::mem::MaybeUninit;

    /// Runs `f` with all signals blocked, so that a thread started in it inherits that and no handler of the program
    /// runs on a thread that the program does not know of.
    pub(crate) fn with_all_blocked<R>(f: impl FnOnce() -> R) -> R {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises the set that it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `all` is initialised, and `before` is written if the call succeeds.
        let changed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) } == 0;
        let result = f();
        if changed {
            // SAFETY: the call that was to initialise `before` succeeded.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        }
        result
    }
}

/// What the system knows about threads.
pub(crate) mod threads {
    /// What the system calls this thread: a number.
    pub(crate) fn id() -> Option<u32> {
        // Not the C library's function of that name, which came with glibc 2.30.
        // SAFETY: the call takes nothing and returns a number.
        u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).ok()
    }

    /// And a name, of which the system keeps 15 bytes. Not the standard library's, which panics, and may not be asked, where it
    /// has forgotten its own part of the thread: in functions given to `atexit`, say.
    pub(crate) fn name() -> Option<String> {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes 16 bytes, which `name` has.
        let failed = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } != 0;
        let length = name.iter().position(|byte| *byte == 0)?;
        (!failed && length > 0).then(|| String::from_utf8_lossy(&name[..length]).into_owned())
    }
}
