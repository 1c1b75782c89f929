//! What tests do to their own process: fork it, and limit what it may have.

use super::patience;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Has the kernel refuse these system calls with this error, to this thread and those that it starts; `everywhere`: to
/// the threads that there are, too. With `argument`, only calls whose first argument has that bit.
pub(crate) fn refuse(calls: &[libc::c_long], error: libc::c_int, argument: Option<u32>, everywhere: bool) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = Vec::new();
    for call in calls {
        program.push(op(LOAD, 0, 0, 0)); // the number of the call
        let number = u32::try_from(*call).unwrap();
        if let Some(bit) = argument {
            program.push(op(EQUAL, 0, 3, number));
            program.push(op(LOAD, 0, 0, 16)); // the low half of the first argument
            program.push(op(BITS, 0, 1, bit));
        } else {
            program.push(op(EQUAL, 0, 1, number));
        }
        program.push(op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32));
    }
    program.push(op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len().try_into().unwrap(), filter: program.as_mut_ptr() };
    // SAFETY: prctl takes integers here.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let flags = if everywhere { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: `filter` and the program that it points to outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    assert_eq!(done, 0, "seccomp: {}", std::io::Error::last_os_error());
}

/// Has the system refuse to start threads from now on.
pub(crate) fn no_more_threads() {
    refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, None, false);
    assert!(thread::Builder::new().spawn(|| ()).is_err());
}

/// The portable build stands on the standard library, which knows no fork: nothing is promised there.
pub(crate) const FORKS: bool = !cfg!(percpu_ref_portable);

/// Forks; the child runs `body` and exits. Returns what waits for the child and fails unless all went well in time.
pub(crate) fn fork(body: impl FnOnce()) -> impl FnOnce() {
    let child = fork_here();
    if child == 0 {
        exit(catch_unwind(AssertUnwindSafe(body)).is_ok());
    }
    move || join(child)
}

/// Forks, as the system does; the child has limited time.
pub(crate) fn fork_here() -> libc::pid_t {
    // SAFETY: the child runs only what this library promises to work there, and what it is tested with.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(8 * patience()) };
    }
    child
}

/// Ends a child. (A panic would end its only thread, and the process as if all were well.)
pub(crate) fn exit(ok: bool) -> ! {
    // SAFETY: takes a number; nothing of the parent's is run on the way out.
    unsafe { libc::_exit(if ok { 0 } else { 1 }) }
}

/// Waits for a child, and fails unless all went well.
pub(crate) fn join(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "the forked child got signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the forked child failed");
}

/// Limits a resource, or gives it back what it may have at most.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, soft: Option<libc::rlim_t>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limit) }, 0);
    limit.rlim_cur = soft.unwrap_or(limit.rlim_max);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// The address space in use, in bytes.
pub(crate) fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}
