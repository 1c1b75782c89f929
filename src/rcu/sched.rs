//! The sched flavour: no fence in the reader.
//!
//! It is named after the kernel's RCU-sched, whose sections are stretches of code that cannot be preempted: they cost
//! nothing, and a grace period is over when every CPU has scheduled. A user-space thread can be preempted anywhere, so
//! sections of arbitrary code use a word of the thread ([`record`](super::record)); but the short section of a `get` fits
//! into a restartable sequence, and its grace period is one system call that waits for no reader at all.

use super::callback::{Queue, QueueKind, State};
use super::grace::{self, Grace};
use super::suspects::{Namer, nobody};
use super::{Backend, Flavor, GraceStats, Sealed, record};
use crate::report::{Report, ReportKind};
use crate::sync::{Condvar, Found, Lane, Mutex, OnFork, Quiescent, global, restartable};
use crate::track::{Origin, Section};
use std::ffi::OsString;
use std::marker::PhantomData;

/// Sections have no fence: grace periods force one on every reader instead.
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{Flavor, Sched};
///
/// let section = Sched::read_lock();
/// // What is looked up here stays until the section ends.
/// drop(section);
/// Sched::synchronize(); // waits for every section that was open
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sched;

/// An open section of [`Sched`].
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{Flavor, Sched, SchedGuard};
///
/// struct Reader {
///     section: SchedGuard, // what is looked up is safe to use as long as this lives
/// }
///
/// let reader = Reader { section: Sched::read_lock() };
/// drop(reader.section);
/// ```
#[must_use = "the section is over at once unless the guard is kept: `let _section = ...`, not `let _ = ...`"]
pub struct SchedGuard {
    /// This thread's.
    record: &'static record::Record,
    section: Section,
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for SchedGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SchedGuard")
    }
}

global! {
    static GRACE: Grace = Grace { state: Mutex::new(grace::State::new()), ended: Condvar::new() };
}
global! {
    static QUEUE: Queue = Queue {
        kind: QueueKind::Sched,
        wait: || wait(&nobody),
        is_in_section: record::is_in_section,
        leave_to_guard: record::leave_callbacks_to_guard,
        state: Mutex::new(State::new()),
        work: Condvar::new(),
        returned: Condvar::new(),
    };
}
global! {
    /// Grace periods of the sequences, which no section delays.
    static RSEQ_GRACE: Grace = Grace { state: Mutex::new(grace::State::new()), ended: Condvar::new() };
}
global! {
    static RSEQ_QUEUE: Queue = Queue {
        kind: QueueKind::Rseq,
        wait: wait_for_sequences,
        is_in_section: record::is_in_section,
        leave_to_guard: record::leave_callbacks_to_guard,
        state: Mutex::new(State::new()),
        work: Condvar::new(),
        returned: Condvar::new(),
    };
}

/// Waits for a grace period, shared with others who wait.
fn wait(name: Namer<'_>) {
    GRACE.wait(|| record::wait_for_readers(name));
}

/// Waits until the sequences that are under way are over, shared with others who wait.
fn wait_for_sequences() {
    // heavy [R3]: pairs with each sequence as a whole. It comes before, and we see what it added; or it comes after, and
    // sees that the window is closed.
    RSEQ_GRACE.wait(|| restartable::heavy("R3"));
}

pub(super) fn stats() -> GraceStats {
    queue().stats(GRACE.stats())
}

pub(super) fn rseq_stats() -> GraceStats {
    rseq_queue().stats(RSEQ_GRACE.stats())
}

pub(super) fn queue() -> &'static Queue {
    handle_forks();
    &QUEUE
}

pub(super) fn rseq_queue() -> &'static Queue {
    handle_forks();
    &RSEQ_QUEUE
}

fn handle_forks() {
    static FORKS: OnFork = OnFork::new(|| {
        let mut queues = [QUEUE.state.lock(), RSEQ_QUEUE.state.lock()];
        let mut graces = [GRACE.state.lock(), RSEQ_GRACE.state.lock()];
        Box::new(move |in_child| {
            if in_child {
                queues.iter_mut().for_each(|state| state.forget_workers());
                graces.iter_mut().for_each(|state| state.forget_running());
            }
        })
    });
    FORKS.register();
}

/// The queue of the grace periods that counting needs.
fn counters() -> &'static Queue {
    if Sched::backend() == Backend::Rseq { rseq_queue() } else { queue() }
}

/// Each is slower than the one before it, and needs less from the system.
const BACKENDS: [Backend; 3] = [Backend::Rseq, Backend::Membarrier, Backend::Fence];

/// What `PERCPU_REF_BACKEND` calls them.
const NAMES: [&str; 3] = ["rseq", "membarrier", "fence"];

/// The first of [`BACKENDS`] that `PERCPU_REF_BACKEND` lets this process use; or what else that says, which lets it use all.
fn asked_for() -> Result<usize, OsString> {
    match std::env::var_os("PERCPU_REF_BACKEND").filter(|asked| !asked.is_empty()) {
        Some(asked) => NAMES.iter().position(|name| asked.eq_ignore_ascii_case(name)).ok_or(asked),
        None => Ok(0),
    }
}

/// The same, found out once.
fn first_allowed() -> Backend {
    static FIRST: Found = Found::new();
    BACKENDS[FIRST.get_or(|| asked_for().unwrap_or(0))]
}

/// Reports, once, that the program was asked for a backend that there is not: from the callback thread, because the caller
/// may be in the middle of making what the hook uses. What finds a backend out may do so under a lock.
pub(crate) fn check_what_is_asked_for() {
    static CHECKED: Found = Found::new();
    if CHECKED.get().is_some() {
        return;
    }
    let unknown = asked_for().err();
    if CHECKED.set(1)
        && let Some(unknown) = unknown
    {
        let unknown = unknown.to_string_lossy().into_owned();
        rseq_queue().soon(Box::new(|| Report::new(None, ReportKind::UnknownBackend(unknown)).send()));
    }
}

pub(super) fn is_fence_asked_for() -> bool {
    first_allowed() == Backend::Fence
}

impl Drop for SchedGuard {
    #[inline]
    fn drop(&mut self) {
        self.section.end();
        if record::read_unlock(self.record) {
            queue().kick();
            rseq_queue().kick();
        }
    }
}

impl Flavor for Sched {
    type Guard = SchedGuard;

    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    fn read_lock() -> SchedGuard {
        SchedGuard {
            record: record::read_lock(),
            section: Section::begin(Self::NAME, Origin::here()),
            not_send: PhantomData,
        }
    }

    #[track_caller]
    fn synchronize() {
        super::assert_no_section::<Self>("synchronize");
        check_what_is_asked_for();
        handle_forks();
        wait(&nobody);
    }

    fn call(f: impl FnOnce() + Send + 'static) {
        check_what_is_asked_for();
        queue().call(Box::new(f));
    }

    #[track_caller]
    fn barrier() {
        super::assert_may_barrier::<Self>();
        queue().barrier();
    }

    fn backend() -> Backend {
        static BACKEND: Found = Found::new();
        BACKENDS[BACKEND.get_or(|| match first_allowed() {
            Backend::Rseq if restartable::available() => 0,
            Backend::Rseq | Backend::Membarrier if record::has_membarrier() => 1,
            _ => 2,
        })]
    }
}

impl Sealed for Sched {
    const NAME: &'static str = "Sched";

    fn is_in_section() -> bool {
        record::is_in_section()
    }

    #[inline(always)]
    fn count_in_section(count: impl Fn(Option<Lane>) -> bool) -> bool {
        record::count_in_section(move |lane| count(Some(lane)))
    }

    fn wait_for_counters(name: Namer<'_>) -> Quiescent {
        handle_forks();
        if Self::backend() == Backend::Rseq {
            wait_for_sequences();
        } else {
            wait(name);
        }
        Quiescent::reached()
    }

    fn after_counters(job: impl FnOnce(Quiescent) + Send + 'static) {
        counters().after_grace_period(Box::new(|| job(Quiescent::reached())));
    }

    fn soon(job: impl FnOnce() + Send + 'static) {
        counters().soon(Box::new(job));
    }

    const SEQUENCES: bool = true;

    fn after_sections(job: impl FnOnce() + Send + 'static) {
        if Self::backend() == Backend::Rseq {
            queue().after_grace_period(Box::new(job));
        } else {
            job();
        }
    }

    fn kick() {
        queue().kick();
        rseq_queue().kick();
    }
}
