//! What a system can refuse or do to a process: no threads, no memory, no membarrier, forks, signals. Each case has a
//! process of its own.
#![cfg(target_os = "linux")]

mod common;

use common::process::{FORKS, address_space, exit, fork, fork_here, join, limit, no_more_threads, refuse};
use common::{
    Backend, Dice, Flavor, MOMENT, OnDrop, Plain, Sched, Tally, eventually, hold, in_children, patience, soon, together,
};
use percpu_ref::{
    Closed, Gate, OutOfMemory, Owner, PercpuRef, RcuCell, ReportKind, Start, Wait, set_report_hook, set_stall_after,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Barrier, LazyLock, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A whole life of fresh refs, and of `old` if there is one, with threads and callbacks.
fn live<F: Flavor>(old: Option<&PercpuRef<F>>) {
    F::synchronize();
    let (confirmed, released) = (Tally::default(), Tally::default());
    let r = PercpuRef::builder().flavor(F::default()).allow_reinit(true).build(released.counter());
    together(3, |i| {
        r.get_many(i + 1);
        for _ in 0..100 {
            drop(r.enter());
        }
        r.put_many(i);
    });
    assert_eq!(r.estimate(), 4);
    r.kill_and_confirm(confirmed.counter()).unwrap();
    r.put_many(3);
    r.wait_zero();
    assert_eq!((confirmed.get(), released.get()), (1, 1));
    r.reinit().unwrap();
    r.kill_sync().unwrap();
    assert_eq!(released.get(), 2);
    F::call(confirmed.counter());
    F::barrier();
    assert_eq!(confirmed.get(), 2);
    if let Some(old) = old {
        let before = old.estimate();
        old.get_many(5);
        old.put_many(2);
        old.kill_and_confirm(confirmed.counter()).unwrap();
        old.put_many(3);
        old.put_many(usize::try_from(before - 1).unwrap());
        old.wait_zero();
        assert_eq!(confirmed.get(), 3);
    }
    let owner = Owner::with_flavor(7, F::default());
    let (shared, weak) = (Owner::share(&owner), Owner::downgrade(&owner));
    let cell = RcuCell::with_flavor(1, F::default());
    cell.store(2);
    assert_eq!((*cell.load(), cell.read(|value| *value)), (2, 2));
    assert_eq!(cell.into_inner().wait(), 2);
    drop(shared);
    assert_eq!(Owner::shutdown(owner).wait(), 7);
    assert!(weak.upgrade().is_none());
}

/// Gates where no thread is to be had: what the callback thread would do is done in the caller.
fn gates_without_threads<F: Flavor>() {
    no_more_threads();
    let gate = Gate::builder().flavor(F::default()).build();
    let pass = gate.enter().unwrap();
    assert_eq!(gate.freeze_timeout(Duration::from_millis(1)).unwrap_err().count(), 1);
    assert!(gate.enter().is_some());
    let mut freezing = gate.freeze_async();
    let mut poll = || Pin::new(&mut freezing).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    drop(pass);
    let Poll::Ready(frozen) = poll() else { panic!("nobody is inside") };
    assert!(gate.enter().is_none());
    drop(frozen);
    drop(gate.freeze());
    let section = F::read_lock();
    drop(gate.enter_wait().unwrap());
    gate.close();
    assert_eq!(gate.enter_wait().unwrap_err(), Closed);
    drop(section);
    drop(gate.freeze());
}

/// Children of processes in which other threads are using the library for the first time.
fn forks_during_the_first_use<F: Flavor>() {
    if !FORKS {
        return;
    }
    // Where each barrier interrupts sixty-four emulated CPUs, a child takes seconds.
    let enough = Instant::now() + soon() / 4;
    for i in 0..100 {
        if i >= 10 && Instant::now() > enough {
            break;
        }
        fork(|| {
            let (ready, go, stop) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|s| {
                // Neither starts nor ends while the process forks, and starts no thread: the standard library has a lock
                // for that, which it does not keep forks from.
                let first = || {
                    ready.fetch_add(1, SeqCst);
                    while !go.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                    F::synchronize();
                    let r = Box::leak(Box::new(PercpuRef::builder().flavor(F::default()).build(|| {})));
                    drop(r.enter());
                    while !stop.load(Relaxed) {
                        thread::yield_now();
                    }
                };
                s.spawn(first);
                s.spawn(first);
                while ready.load(SeqCst) < 2 {
                    thread::yield_now();
                }
                go.store(true, Relaxed);
                thread::sleep(Duration::from_micros(2 * i));
                let joined = fork(|| live::<F>(None));
                stop.store(true, Relaxed);
                joined();
            });
        })();
    }
}

/// A fork runs the program's own handler first, which takes its time; meanwhile another thread uses the library for the first
/// time, and is in the middle of it when the process is copied.
fn forks_that_are_slow_to_begin<F: Flavor>() {
    if !FORKS {
        return;
    }
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static DELAY: AtomicU64 = AtomicU64::new(0);
    extern "C" fn prepare() {
        BEGUN.store(true, SeqCst);
        thread::sleep(Duration::from_micros(DELAY.load(Relaxed)));
    }
    for i in 0..20 {
        fork(|| {
            DELAY.store(1000 + 50 * i, Relaxed);
            // SAFETY: the function is there as long as the program, and only sleeps.
            assert_eq!(unsafe { libc::pthread_atfork(Some(prepare), None, None) }, 0);
            let (waiting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|s| {
                s.spawn(|| {
                    waiting.store(true, SeqCst);
                    while !BEGUN.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    // In the middle of something at nearly any moment.
                    while !stop.load(Relaxed) {
                        let r = PercpuRef::builder().flavor(F::default()).build(|| {});
                        drop(r.enter());
                        r.kill_sync().unwrap();
                        F::synchronize();
                    }
                });
                while !waiting.load(SeqCst) {
                    thread::yield_now();
                }
                let joined = fork(|| live::<F>(None));
                stop.store(true, Relaxed);
                joined();
            });
        })();
    }
}

/// What the hook has forked.
static CHILD: AtomicI32 = AtomicI32::new(-1);

fn until_the_hook_has_forked() {
    eventually("it is reported", || CHILD.load(SeqCst) >= 0);
}

/// A child that is forked in a report hook, in the middle of a wait, and goes on with that wait; `run` is the wait.
fn forks_in_a_hook(wait: Wait, run: impl FnOnce()) {
    set_stall_after(Some(MOMENT));
    set_report_hook(move |report| {
        let is_it = matches!(report.kind(), ReportKind::Stalled(stall) if stall.wait() == wait);
        if is_it && CHILD.load(SeqCst) < 0 {
            CHILD.store(fork_here(), SeqCst);
        }
    });
    let result = catch_unwind(AssertUnwindSafe(run));
    let child = CHILD.load(SeqCst);
    assert!(child >= 0, "nothing was reported");
    if child == 0 {
        exit(result.is_ok());
    }
    result.unwrap();
    join(child);
}

/// The same with a section in the way of the wait.
fn forks_beside_a_section<F: Flavor>(wait: Wait, run: impl FnOnce()) {
    if !FORKS {
        return;
    }
    let (leave, reader) = hold("reader", || (F::read_lock(), ()));
    let leave = thread::spawn(move || {
        until_the_hook_has_forked();
        drop(leave);
    });
    forks_in_a_hook(wait, run);
    leave.join().unwrap();
    reader.join().unwrap();
}

/// Children of a process whose other threads enter, freeze, give up and thaw all the time: what those held is lost, but
/// nothing hangs that has a limit, and a gate of the child's own is whole.
fn forks_beside_freezers<F: Flavor>() {
    if !FORKS {
        return;
    }
    let gate = Gate::builder().flavor(F::default()).build();
    start_callback_threads::<F>();
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(4);
    thread::scope(|s| {
        for i in 0..3 {
            let (gate, stop, ready) = (&gate, &stop, &ready);
            s.spawn(move || {
                ready.wait();
                while !stop.load(Relaxed) {
                    match i {
                        0 => drop(gate.freeze()),
                        1 => drop(gate.freeze_timeout(Duration::from_micros(20))),
                        _ => drop(gate.enter_wait()),
                    }
                }
            });
        }
        ready.wait();
        for _ in 0..60 {
            fork(|| {
                // One at the most is lost with its thread.
                match gate.freeze_timeout(MOMENT * 5) {
                    Ok(_frozen) => assert!(gate.enter().is_none()),
                    Err(out) => assert!(out.count() <= 1, "{out}"),
                }
                drop(gate.enter());
                gate.close();
                assert_eq!(gate.enter_wait().unwrap_err(), Closed);
                let own = Gate::builder().flavor(F::default()).build();
                let pass = own.enter().unwrap();
                assert!(own.freeze_timeout(Duration::ZERO).is_err());
                drop(pass);
                thread::scope(|s| {
                    let frozen = own.freeze();
                    let user = s.spawn(|| own.enter_wait().is_ok());
                    drop(frozen);
                    assert!(user.join().unwrap());
                });
            })();
        }
        stop.store(true, Relaxed);
    });
    drop(gate.freeze());
    assert!(gate.enter().is_some());
}

/// What happens when no thread is to be had.
fn without_threads<F: Flavor>() {
    no_more_threads();
    let here = thread::current().id();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = |what: &'static str| {
        let ran = Arc::clone(&ran);
        move || {
            assert_eq!(thread::current().id(), here);
            ran.lock().unwrap().push(what);
        }
    };
    let mut expected = Vec::new();
    let mut so_far = |more: &[&'static str]| {
        expected.extend_from_slice(more);
        assert_eq!(*ran.lock().unwrap(), expected);
    };

    F::call(log("call"));
    so_far(&["call"]);
    let outer = F::read_lock();
    let inner = F::read_lock();
    F::call(log("call in a section"));
    let r = Arc::new(PercpuRef::builder().flavor(F::default()).allow_reinit(true).build(log("release")));
    r.get();
    r.kill_and_confirm(log("confirm")).unwrap();
    drop(outer);
    if F::backend() == Backend::Rseq {
        let by_now = ran.lock().unwrap().len();
        assert!(by_now <= 3, "a grace period of the sequences may be over, one of the sections cannot be");
    } else {
        so_far(&[]);
    }
    drop(inner);
    {
        let mut ran = ran.lock().unwrap();
        ran.sort_unstable();
        assert_eq!(*ran, ["call", "call in a section", "confirm"]);
        ran.clear();
    }
    r.put();
    r.wait_zero();
    assert_eq!(*ran.lock().unwrap(), ["release"]);
    r.reinit().unwrap();
    r.kill().unwrap();
    r.wait_zero();
    r.reinit().unwrap();
    r.switch_to_atomic(log("atomic"));
    r.switch_to_percpu().unwrap();
    r.kill_sync().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["release", "release", "atomic", "release"]);
    F::barrier();
    F::synchronize();

    // A callback that brings more work, and one that waits for what that work does.
    let other = Arc::new(PercpuRef::builder().flavor(F::default()).build(log("other released")));
    F::call({
        let (nested, last) = (log("nested"), log("last"));
        let (waits, waited) = (Arc::clone(&other), log("waited"));
        move || {
            F::call(nested);
            waits.kill().unwrap();
            waits.wait_zero();
            waited();
            F::call(last);
        }
    });
    F::barrier();
    let ran = ran.lock().unwrap();
    let at = |what| ran.iter().position(|w| *w == what).unwrap_or_else(|| panic!("{what} did not run: {ran:?}"));
    assert!(at("other released") < at("waited") && at("waited") < at("last") && at("nested") < at("last"), "{ran:?}");
}

/// So that none starts beside a fork: a thread that starts has a lock of the standard library's, and no thread starts in a
/// child that was forked meanwhile. For the same reason tests have their threads `ready` before they fork.
fn start_callback_threads<F: Flavor>() {
    F::barrier();
    let released = Tally::default();
    PercpuRef::builder().flavor(F::default()).build(released.counter()).kill().unwrap();
    eventually("it is released", || released.get() == 1);
}

/// Threads that count, kill, revive and open sections until they are told to end.
fn with_traffic<F: Flavor>(body: impl FnOnce()) {
    set_report_hook(|_| {}); // Refs are dropped while they die, on purpose.
    let over = AtomicBool::new(false);
    let held = PercpuRef::builder().flavor(F::default()).allow_reinit(true).build(|| {});
    held.get();
    // What is queued is bounded: a child has to work all of it off.
    let (queued, done) = (AtomicUsize::new(0), Tally::default());
    start_callback_threads::<F>();
    let ready = Barrier::new(5);
    thread::scope(|s| {
        for i in 0..4 {
            let (over, held, queued, done, ready) = (&over, &held, &queued, &done, &ready);
            s.spawn(move || {
                ready.wait();
                let mut dice = Dice::new(i);
                while !over.load(Relaxed) {
                    match dice.below(6) {
                        0 => drop(F::read_lock()),
                        1 => drop(held.enter()),
                        2 | 3 if queued.load(Relaxed).saturating_sub(done.get()) > 100 => thread::yield_now(),
                        2 => {
                            queued.fetch_add(1, Relaxed);
                            F::call(done.counter());
                        }
                        3 => {
                            queued.fetch_add(1, Relaxed);
                            PercpuRef::builder().flavor(F::default()).build(done.counter()).kill().unwrap();
                        }
                        4 if i == 0 => {
                            held.kill_sync().unwrap();
                            held.resurrect().unwrap();
                        }
                        _ => {
                            held.get_many(2);
                            held.put_many(2);
                        }
                    }
                }
            });
        }
        ready.wait();
        let result = catch_unwind(AssertUnwindSafe(body));
        over.store(true, SeqCst);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    held.put();
}

fn forks_under_traffic<F: Flavor>() {
    if !FORKS {
        return;
    }
    let old = PercpuRef::builder().flavor(F::default()).build(|| {});
    old.get_many(3);
    with_traffic::<F>(|| {
        for _ in 0..40 {
            fork(|| live::<F>(Some(&old)))();
        }
    });
    old.put_many(3);
    old.kill_sync().unwrap();
    old.wait_zero();
}

/// The children of threads that are inside sections, and of which others are.
fn forks_inside_sections<F: Flavor>() {
    if !FORKS {
        return;
    }
    let (opened, is_open) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        let _section = F::read_lock();
        opened.send(()).unwrap();
        may_end.recv().unwrap();
    });
    is_open.recv().unwrap();
    let ran = Tally::default();
    F::call({
        let ran = ran.clone();
        move || ran.up()
    });
    thread::sleep(MOMENT); // The callback thread waits for the reader now.
    let section = F::read_lock();
    let inner = F::read_lock();
    let reap = fork(|| {
        assert!(catch_unwind(F::synchronize).is_err(), "the child's thread is still inside");
        drop(section);
        let waited = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                F::synchronize();
                waited.store(true, SeqCst);
            });
            thread::sleep(MOMENT);
            assert!(!waited.load(SeqCst), "the inner section is still open");
            drop(inner);
        });
        F::barrier();
        assert_eq!(ran.get(), 1, "the job that the lost thread was about to run");
        live::<F>(None);
    });
    reap();
    assert_eq!(ran.get(), 0);
    end.send(()).unwrap();
    reader.join().unwrap();
    F::barrier();
    assert_eq!(ran.get(), 1);
}

fn forks_in_callbacks_and_destructors<F: Flavor>() {
    if !FORKS {
        return;
    }
    let (tell, told) = mpsc::channel();
    let r = Arc::new(PercpuRef::builder().flavor(F::default()).build(|| {}));
    r.kill_and_confirm({
        let tell = tell.clone();
        move || tell.send(catch_unwind(AssertUnwindSafe(|| fork(|| live::<F>(None))())).is_ok()).unwrap()
    })
    .unwrap();
    assert_eq!(told.recv_timeout(soon()), Ok(true), "in a confirm");
    r.wait_zero();
    thread::spawn(move || {
        // Registered before this thread meets the library.
        LAST.with(|last| {
            *last.borrow_mut() = Some(Box::new(OnDrop(move || {
                tell.send(catch_unwind(AssertUnwindSafe(|| fork(|| live::<F>(None))())).is_ok()).unwrap();
            })));
        });
        drop(F::read_lock());
        fork(|| live::<F>(None))();
        fork(|| fork(|| live::<F>(None))())();
    })
    .join()
    .unwrap();
    assert_eq!(told.recv_timeout(soon()), Ok(true), "in a destructor of a thread-local");
}

trait Kept {}
impl<T: FnMut()> Kept for OnDrop<T> {}

thread_local! {
    static LAST: RefCell<Option<Box<dyn Kept>>> = const { RefCell::new(None) };
}

fn runs_out_of_memory<F: Flavor>() {
    let released = Tally::default();
    let early = PercpuRef::builder().flavor(F::default()).build(released.counter());
    early.get();
    early.put();
    let mut refs = Vec::with_capacity(2_000_000);
    limit(libc::RLIMIT_AS, Some(address_space() + (6 << 20)));
    let error = loop {
        match PercpuRef::builder().flavor(F::default()).try_build(|| {}) {
            Ok(r) => refs.push(r),
            Err(error) => break error,
        }
        assert!(refs.len() < refs.capacity(), "it never ran out");
    };
    assert_eq!(error, OutOfMemory);
    for r in &refs {
        r.get_many(2);
        r.put_many(2);
        assert!(r.tryget_live());
        r.put();
    }
    early.get();
    refs.truncate(refs.len() / 2);
    early.kill_sync().unwrap();
    early.put();
    early.wait_zero();
    assert_eq!(released.get(), 1);
    for r in &refs[refs.len() / 2..] {
        r.kill_sync().unwrap();
        assert!(r.is_zero());
    }
    limit(libc::RLIMIT_AS, None);
    PercpuRef::builder().flavor(F::default()).try_build(|| {}).unwrap().kill_sync().unwrap();
}

/// Counts on one thread for each of four, kills and revives meanwhile.
fn counts_exactly() {
    let released = Tally::default();
    let r = PercpuRef::builder().allow_reinit(true).build(released.counter());
    together(5, |i| {
        if i == 4 {
            for _ in 0..100 {
                r.switch_to_atomic_sync();
                r.switch_to_percpu().unwrap();
            }
            return;
        }
        for _ in 0..20_000 {
            r.get();
            drop(r.enter());
            if i % 2 == 0 {
                r.put();
            }
        }
    });
    r.kill_sync().unwrap();
    assert_eq!(r.estimate(), 40_000);
    r.put_many(40_000);
    r.wait_zero();
    assert_eq!(released.get(), 1);
}

static SIGNALLED: OnceLock<PercpuRef> = OnceLock::new();
static HANDLED: AtomicI64 = AtomicI64::new(0);
static TAKEN_BY_HANDLERS: AtomicI64 = AtomicI64::new(0);
/// What the last reference of is put in a handler.
static LAST_IN_HANDLER: OnceLock<PercpuRef> = OnceLock::new();

extern "C" fn count_in_handler(_: libc::c_int) {
    let Some(r) = SIGNALLED.get() else { return };
    let n = HANDLED.fetch_add(1, SeqCst);
    if r.tryget() {
        if n % 2 == 0 {
            r.put();
        } else {
            TAKEN_BY_HANDLERS.fetch_add(1, SeqCst);
        }
    }
    if r.tryget_live() {
        r.get_many(3);
        r.put_many(4);
    }
    if r.tryget_many(2) {
        r.put();
        r.put();
    }
    if let Some(r) = LAST_IN_HANDLER.get()
        && n == 100
    {
        r.put();
    }
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: an all-zero sigaction is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does only what it may.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
}

in_children! {
    fn without_threads_to_be_had_the_caller_or_the_outermost_guard_does_the_work_plain() {
        without_threads::<Plain>();
    }

    fn without_threads_to_be_had_the_caller_or_the_outermost_guard_does_the_work_sched() {
        without_threads::<Sched>();
    }

    fn without_threads_to_be_had_gates_freeze_in_the_caller_sched() {
        gates_without_threads::<Sched>();
    }

    fn without_threads_to_be_had_gates_freeze_in_the_caller_plain() {
        gates_without_threads::<Plain>();
    }

    fn without_threads_to_be_had_sixty_nested_waits_come_to_their_end() {
        no_more_threads();
        fn chain(level: usize, released: &Tally) -> PercpuRef {
            let next = (level > 0).then(|| chain(level - 1, released));
            PercpuRef::new({
                let released = released.clone();
                move || {
                    if let Some(next) = &next {
                        next.kill().unwrap();
                        next.wait_zero();
                    }
                    released.up();
                }
            })
        }
        let released = Tally::default();
        let first = chain(60, &released);
        first.kill().unwrap();
        first.wait_zero();
        assert_eq!(released.get(), 61);
    }

    fn where_membarrier_is_forbidden_from_the_start_readers_have_their_own_fence() {
        refuse(&[libc::SYS_membarrier], libc::EPERM, None, false);
        assert_eq!(Sched::backend(), Backend::Fence);
        live::<Sched>(None);
        counts_exactly();
    }

    fn where_membarrier_is_missing_readers_have_their_own_fence() {
        refuse(&[libc::SYS_membarrier], libc::ENOSYS, None, false);
        assert_eq!(Sched::backend(), Backend::Fence);
        live::<Sched>(None);
        counts_exactly();
    }

    fn where_only_the_barrier_of_sequences_is_missing_sections_still_have_none() {
        let fence = std::env::var("PERCPU_REF_BACKEND").is_ok_and(|asked| asked == "fence") || cfg!(percpu_ref_portable);
        refuse(&[libc::SYS_membarrier], libc::EINVAL, Some(1 << 7), false);
        refuse(&[libc::SYS_membarrier], libc::EINVAL, Some(1 << 8), false);
        assert_eq!(Sched::backend(), if fence { Backend::Fence } else { Backend::Membarrier });
        live::<Sched>(None);
        counts_exactly();
    }

    fn a_sandbox_that_forbids_membarrier_after_the_first_use_loses_no_count() {
        counts_exactly();
        live::<Sched>(None);
        refuse(&[libc::SYS_membarrier], libc::EPERM, None, true);
        counts_exactly();
        live::<Sched>(None);
    }

    fn glibc_that_registers_no_thread_is_noticed("GLIBC_TUNABLES" = "glibc.pthread.rseq=0") {
        assert!(matches!(Sched::backend(), Backend::Membarrier | Backend::Fence));
        live::<Sched>(None);
        counts_exactly();
    }

    fn the_fence_backend_is_used_when_asked_for("PERCPU_REF_BACKEND" = "fence") {
        assert_eq!(Sched::backend(), Backend::Fence);
        // It is really the section that holds the switch up.
        let r = Arc::new(PercpuRef::new(|| {}));
        let section = Sched::read_lock();
        let killer = thread::spawn({ let r = Arc::clone(&r); move || r.kill_sync().unwrap() });
        thread::sleep(MOMENT);
        assert!(!killer.is_finished());
        drop(section);
        killer.join().unwrap();
        counts_exactly();
    }

    fn the_membarrier_backend_is_used_when_asked_for("PERCPU_REF_BACKEND" = "Membarrier") {
        assert_eq!(Sched::backend(), if cfg!(percpu_ref_portable) { Backend::Fence } else { Backend::Membarrier });
        counts_exactly();
    }

    fn an_unknown_backend_is_reported_once_and_the_best_is_used("PERCPU_REF_BACKEND" = "rseqq") {
        let reports = Arc::new(Mutex::new(Vec::new()));
        set_report_hook({
            let reports = Arc::clone(&reports);
            move |report| reports.lock().unwrap().push((report.name().map(str::to_owned), report.kind().clone(), report.to_string()))
        });
        let first = PercpuRef::builder().flavor(Plain).build(|| {});
        eventually("it is reported", || !reports.lock().unwrap().is_empty());
        let expected = "PERCPU_REF_BACKEND is `rseqq`, but has to be rseq, membarrier or fence; it is ignored";
        let expected = [(None, ReportKind::UnknownBackend("rseqq".into()), expected.to_owned())];
        assert_eq!(*reports.lock().unwrap(), expected);
        counts_exactly();
        Sched::synchronize();
        assert_eq!(*reports.lock().unwrap(), expected);
        first.kill_sync().unwrap();
    }

    fn an_unknown_backend_is_reported_to_who_has_no_ref("PERCPU_REF_BACKEND" = "fences") {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.kind().clone()).unwrap());
        Sched::call(|| {});
        assert_eq!(told.recv(), Ok(ReportKind::UnknownBackend("fences".into())));
        Sched::synchronize();
        Sched::barrier();
        assert!(told.try_recv().is_err(), "once");
    }

    fn a_hook_may_use_what_is_being_made_when_an_unknown_backend_is_found("PERCPU_REF_BACKEND" = "fences") {
        static LOG: LazyLock<Gate> = LazyLock::new(Gate::new);
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| {
            let _pass = LOG.enter().unwrap();
            tell.send(report.kind().clone()).unwrap();
        });
        drop(LOG.enter());
        assert_eq!(told.recv(), Ok(ReportKind::UnknownBackend("fences".into())));
    }

    fn no_backend_asked_for_is_not_reported("PERCPU_REF_BACKEND" = "") {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.clone()).unwrap());
        counts_exactly();
        assert_eq!(told.try_recv().ok(), None);
    }

    fn out_of_memory_is_an_error_and_the_others_go_on_sched() {
        runs_out_of_memory::<Sched>();
    }

    fn out_of_memory_is_an_error_and_the_others_go_on_plain() {
        runs_out_of_memory::<Plain>();
    }

    fn out_of_files_and_of_cpus_at_the_first_use_costs_speed_only() {
        // The number of CPUs is asked for when no file can be opened and this thread may use only one of them.
        // SAFETY: an all-zero set is the empty one.
        let mut one = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        let mut all = one;
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: the sets have the size that is passed.
        assert_eq!(unsafe { libc::sched_getaffinity(0, size, &raw mut all) }, 0);
        // SAFETY: 0 is below the capacity of the set.
        unsafe { libc::CPU_SET(0, &mut one) };
        // SAFETY: the sets have the size that is passed.
        unsafe { libc::sched_setaffinity(0, size, &raw const one) };
        limit(libc::RLIMIT_NOFILE, Some(0));
        let early = PercpuRef::builder().allow_reinit(true).build(|| {});
        limit(libc::RLIMIT_NOFILE, None);
        // SAFETY: the sets have the size that is passed.
        assert_eq!(unsafe { libc::sched_setaffinity(0, size, &raw const all) }, 0);
        together(4, |_| early.get_many(10));
        early.kill_sync().unwrap();
        early.resurrect().unwrap();
        together(4, |_| early.put_many(10));
        assert_eq!(early.estimate(), 1);
        counts_exactly();
        limit(libc::RLIMIT_NOFILE, Some(0));
        together(4, |_| early.get());
        early.kill_sync().unwrap();
        assert_eq!(early.estimate(), 4);
        early.put_many(4);
        early.wait_zero();
    }

    fn a_report_to_a_closed_pipe_does_not_panic() {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: these are file descriptors of this process; standard error is put back below.
        let saved = unsafe { libc::dup(2) };
        // SAFETY: as above.
        unsafe { libc::dup2(ends[1], 2) };
        // SAFETY: as above.
        unsafe { libc::close(ends[0]) };
        let done = catch_unwind(|| {
            let r = PercpuRef::builder().start(Start::Atomic).build(|| {});
            r.put();
            let r = PercpuRef::new(|| {});
            r.put();
            r.kill_sync().unwrap();
            assert!(r.wait_zero_timeout(Duration::ZERO).unwrap_err().is_saturated());
        });
        // SAFETY: as above.
        unsafe { libc::dup2(saved, 2) };
        done.unwrap();
    }

    fn children_forked_from_under_traffic_live_whole_lives_sched() {
        forks_under_traffic::<Sched>();
    }

    fn children_forked_from_under_traffic_live_whole_lives_plain() {
        forks_under_traffic::<Plain>();
    }

    fn children_forked_beside_freezers_hang_nowhere_sched() {
        forks_beside_freezers::<Sched>();
    }

    fn children_forked_beside_freezers_hang_nowhere_plain() {
        forks_beside_freezers::<Plain>();
    }

    fn children_forked_inside_sections_live_whole_lives_sched() {
        forks_inside_sections::<Sched>();
    }

    fn children_forked_inside_sections_live_whole_lives_plain() {
        forks_inside_sections::<Plain>();
    }

    fn children_forked_in_callbacks_and_destructors_live_whole_lives_sched() {
        forks_in_callbacks_and_destructors::<Sched>();
    }

    fn children_forked_in_callbacks_and_destructors_live_whole_lives_plain() {
        forks_in_callbacks_and_destructors::<Plain>();
    }

    fn a_child_forked_before_the_first_use_finds_everything() {
        if !FORKS {
            return;
        }
        fork(|| { live::<Sched>(None); live::<Plain>(None) })();
        live::<Sched>(None);
        fork(|| { live::<Sched>(None); live::<Plain>(None) })();
    }

    fn children_forked_during_the_first_use_live_whole_lives_sched() {
        forks_during_the_first_use::<Sched>();
    }

    fn children_of_a_fork_that_began_before_the_first_use_live_whole_lives_plain() {
        forks_that_are_slow_to_begin::<Plain>();
    }

    fn children_of_a_fork_that_began_before_the_first_use_live_whole_lives_sched() {
        forks_that_are_slow_to_begin::<Sched>();
    }

    fn fork_handlers_of_the_program_may_use_the_library() {
        static GATE: LazyLock<Gate> = LazyLock::new(Gate::new);
        static FROZEN: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn prepare() {
            std::mem::forget(GATE.freeze());
            FROZEN.fetch_add(1, SeqCst);
        }
        extern "C" fn parent() {
            FROZEN.fetch_add(10, SeqCst);
        }
        extern "C" fn child() {
            GATE.close();
            FROZEN.fetch_add(100, SeqCst);
        }
        if !FORKS {
            return;
        }
        // SAFETY: the functions are there as long as the program.
        assert_eq!(unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) }, 0);
        drop(GATE.enter());
        fork(|| {
            assert_eq!(FROZEN.load(SeqCst), 101);
            assert!(GATE.is_frozen());
            assert_eq!(GATE.enter_wait().unwrap_err(), Closed);
        })();
        assert_eq!(FROZEN.load(SeqCst), 11);
        assert!(GATE.is_frozen() && GATE.enter().is_none());
    }

    fn children_forked_in_a_hook_finish_their_grace_period_plain() {
        forks_beside_a_section::<Plain>(Wait::GracePeriod, Plain::synchronize);
    }

    fn children_forked_in_a_hook_finish_their_grace_period_sched() {
        forks_beside_a_section::<Sched>(Wait::GracePeriod, Sched::synchronize);
    }

    fn children_forked_in_a_hook_finish_their_barrier() {
        if FORKS {
            let (begin, begun) = mpsc::channel();
            Sched::call(move || {
                begin.send(()).unwrap();
                until_the_hook_has_forked();
            });
            begun.recv().unwrap();
            forks_in_a_hook(Wait::Callbacks, Sched::barrier);
        }
    }

    fn children_forked_in_a_hook_finish_a_barrier_whose_call_has_not_begun() {
        if FORKS {
            // The callback thread is there: a child cannot start one that was forked while another started.
            Sched::call(|| {});
            Sched::barrier();
            let ran = Tally::default();
            forks_beside_a_section::<Sched>(Wait::Callbacks, || {
                Sched::call(ran.counter());
                Sched::barrier();
                assert_eq!(ran.get(), 1);
            });
        }
    }

    fn children_forked_in_a_hook_finish_their_wait_for_a_release() {
        if FORKS {
            // As above.
            Plain::call(|| {});
            Plain::barrier();
            let r = PercpuRef::builder().flavor(Plain).build(|| {});
            forks_beside_a_section::<Plain>(Wait::Zero, || {
                r.kill().unwrap();
                r.wait_zero();
            });
        }
    }

    fn children_forked_beside_reports_report() {
        if !FORKS {
            return;
        }
        let misuse = || {
            let r = PercpuRef::builder().start(Start::Atomic).build(|| {});
            r.put();
            r.kill_sync().unwrap();
        };
        let (stop, ready) = (AtomicBool::new(false), Barrier::new(3));
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    ready.wait();
                    while !stop.load(Relaxed) {
                        misuse(); // nobody has set a hook: to standard error
                    }
                });
            }
            ready.wait();
            for i in 0..100 {
                thread::sleep(Duration::from_micros(13 * i));
                fork(|| {
                    misuse();
                    set_report_hook(|_| {});
                    misuse();
                })();
            }
            stop.store(true, Relaxed);
        });
    }

    fn pins_that_others_have_in_crossbeam_hold_up_no_child() {
        if !FORKS {
            return;
        }
        // The program's own use of crossbeam.
        let (leave, pinned) = hold("pinned", || (crossbeam_epoch::pin(), ()));
        fork(|| live::<Plain>(None))(); // where this library has not been used at all
        Sched::synchronize();
        fork(|| live::<Plain>(None))();
        let r = PercpuRef::builder().flavor(Plain).build(|| {});
        fork(|| live::<Plain>(None))();
        drop(r.enter());
        fork(|| fork(|| live::<Plain>(None))())();
        // The forking thread's own, which it drops in the child.
        let guard = crossbeam_epoch::pin();
        fork(|| {
            drop(guard);
            let own = PercpuRef::builder().flavor(Plain).build(|| {});
            own.kill().unwrap();
            own.wait_zero();
            live::<Plain>(None);
        })();
        drop(leave);
        pinned.join().unwrap();
        r.kill_sync().unwrap();
    }

    fn children_forked_during_the_first_use_live_whole_lives_plain() {
        forks_during_the_first_use::<Plain>();
    }

    fn signal_handlers_count_where_sequences_do() {
        if Sched::backend() != Backend::Rseq || cfg!(feature = "track") {
            return; // Elsewhere a handler may not count: it could nest in a section, or in a memory allocation.
        }
        static RELEASED_IN_HANDLER: AtomicUsize = AtomicUsize::new(0);
        SIGNALLED.set(PercpuRef::builder().allow_reinit(true).build(|| {})).unwrap();
        let r = SIGNALLED.get().unwrap();
        let last = PercpuRef::new(|| drop(RELEASED_IN_HANDLER.fetch_add(1, SeqCst).to_string()));
        last.get();
        last.kill_sync().unwrap();
        assert!(LAST_IN_HANDLER.set(last).is_ok());
        handle(libc::SIGUSR1, count_in_handler);
        handle(libc::SIGALRM, count_in_handler);
        let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: `timer` outlives the call.
        assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }, 0);
        let threads = Mutex::new(Vec::new());
        let over = AtomicBool::new(false);
        let held: i64 = together(4, |i| {
            if i == 3 {
                eventually("all run", || threads.lock().unwrap().len() == 3);
                let deadline = Instant::now() + Duration::from_millis(1500) * patience();
                let mut dice = Dice::new(1);
                while Instant::now() < deadline {
                    let thread = threads.lock().unwrap()[usize::try_from(dice.below(3)).unwrap()];
                    // SAFETY: the thread runs until `over` is set below.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    if dice.below(16) == 0 {
                        r.kill_sync().unwrap();
                        r.resurrect().unwrap();
                    }
                }
                over.store(true, SeqCst);
                return 0;
            }
            r.get(); // Keeps every kill from being the end.
            // SAFETY: no arguments.
            threads.lock().unwrap().push(unsafe { libc::pthread_self() });
            let mut held = 1;
            while !over.load(Relaxed) {
                r.get_many(2);
                r.put();
                held += 1;
                if held > 100 {
                    r.put_many(100);
                    held -= 100;
                }
            }
            held
        }).into_iter().sum();
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let never = libc::itimerval { it_interval: none, it_value: none };
        // SAFETY: `never` outlives the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const never, std::ptr::null_mut()) };
        assert!(HANDLED.load(SeqCst) > 200, "too few signals to tell");
        r.switch_to_atomic_sync();
        assert_eq!(r.estimate(), 1 + held + TAKEN_BY_HANDLERS.load(SeqCst));
        assert_eq!(RELEASED_IN_HANDLER.load(SeqCst), 1);
    }
}
