//! Read-side critical sections and grace periods, in two flavours.
//!
//! # The promise
//!
//! A *read-side critical section* begins with [`Flavor::read_lock`] and ends when its guard drops. A *grace period* of a
//! flavour is any stretch of time in which every section of that flavour that was open at its start has ended. Whoever
//! first makes something unreachable and then waits for a grace period knows that no reader can still see it:
//!
//! - What happened before the grace period began is visible in every section that begins after it ended.
//! - What happened in a section that was open at the start is visible to whoever waited.
//!
//! Readers never wait. [`synchronize`](Flavor::synchronize) waits for a grace period, [`call`](Flavor::call) runs a
//! function after one, [`barrier`](Flavor::barrier) waits for such functions. The flavours are independent: a section of
//! one delays nothing of the other.
//!
//! | flavour | a section costs | a grace period costs |
//! |---|---|---|
//! | [`Plain`] | an epoch pin: a load, a store and a full fence | some epoch advances, a microsecond when idle |
//! | [`Sched`] | two stores to a word of this thread, no fence | a membarrier system call, then a look at each thread's word |
//!
//! After Documentation/RCU of Linux; Desnoyers et al., "User-Level Implementations of Read-Copy Update", TPDS 23(2), 2012.
#![forbid(unsafe_code)]

mod callback;
mod grace;
mod plain;
mod record;
mod sched;
mod stats;
mod suspects;

pub use plain::{Plain, PlainGuard};
pub use sched::{Sched, SchedGuard};
pub use stats::{GraceStats, Stats, stats};

pub(crate) use callback::{about_to_block, is_in_call};
pub(crate) use sched::check_what_is_asked_for;
pub(crate) use sealed::Sealed;
use suspects::Namer;

use std::fmt::{Debug, Display};
use std::hash::Hash;

/// A kind of read-side critical section and its grace periods: [`Plain`] or [`Sched`].
///
/// # Examples
/// A value is replaced; readers of the old one are waited for.
/// ```
/// use percpu_ref::rcu::{Flavor, Sched};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static CURRENT: AtomicUsize = AtomicUsize::new(0);
/// static SLOTS: [AtomicUsize; 2] = [AtomicUsize::new(10), AtomicUsize::new(20)];
///
/// let section = Sched::read_lock();
/// assert_eq!(SLOTS[CURRENT.load(Ordering::Acquire)].load(Ordering::Relaxed), 10);
/// drop(section);
///
/// CURRENT.store(1, Ordering::Release);
/// Sched::synchronize();
/// SLOTS[0].store(30, Ordering::Relaxed); // no reader is still looking at it
/// ```
pub trait Flavor: Sealed + Copy + Default + Debug + Eq + Hash + Ord + Send + Sync + 'static {
    /// An open section; dropping it ends the section. It is not `Send`: a section belongs to its thread.
    type Guard;

    /// Begins a read-side critical section.
    ///
    /// Sections nest and may end in any order; the outermost one counts. A guard that is forgotten never ends: grace
    /// periods of this flavour then never end either.
    ///
    /// # Context
    /// Any thread, destructors of thread-locals included; not a signal handler. Never blocks.
    ///
    /// # Ordering
    /// What precedes a grace period is visible in a section that begins after its end.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu::{Flavor, Plain};
    ///
    /// let outer = Plain::read_lock();
    /// let inner = Plain::read_lock();
    /// drop(outer);
    /// drop(inner); // only now the section is over
    /// ```
    #[must_use = "the section is over at once unless the guard is kept: `let _section = ...`, not `let _ = ...`"]
    fn read_lock() -> Self::Guard;

    /// Waits for a grace period.
    ///
    /// Callers that wait at the same time share grace periods.
    ///
    /// # Context
    /// May block for as long as the longest section that is open now. Callbacks may call it.
    ///
    /// # Panics
    /// Inside a section of this flavour on this thread, because it could never return.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu::{Flavor, Sched};
    ///
    /// Sched::synchronize();
    /// ```
    fn synchronize();

    /// Runs `f` after a grace period, in a thread that is started when it is first needed.
    ///
    /// A panic in `f` is contained and [reported](crate::set_report_hook).
    ///
    /// # Context
    /// Any thread, inside a section too. Never blocks and never runs `f` itself, unless the system cannot start a
    /// thread: then it waits and runs `f` here, or, inside a section, when the outermost guard drops.
    ///
    /// # Ordering
    /// What precedes `call`, and what readers did in sections that were open then, is visible in `f`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu::{Flavor, Sched};
    ///
    /// let old = Box::new([0_u8; 64]);
    /// Sched::call(move || drop(old)); // freed when no reader can see it
    /// Sched::barrier();
    /// ```
    fn call(f: impl FnOnce() + Send + 'static);

    /// Waits until every function given to [`call`](Self::call) of this flavour before has returned.
    ///
    /// It covers calls, not kills: for a ref, use its own waits.
    ///
    /// # Context
    /// May block. To be called before a program unloads the code of its callbacks.
    ///
    /// # Panics
    /// Inside a section of this flavour and inside a function given to `call`: it could never return.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu::{Flavor, Plain};
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static DONE: AtomicBool = AtomicBool::new(false);
    /// Plain::call(|| DONE.store(true, Ordering::Relaxed));
    /// Plain::barrier();
    /// assert!(DONE.load(Ordering::Relaxed));
    /// ```
    fn barrier();

    /// What this flavour really uses in this process; found once.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu::{Backend, Flavor, Plain, Sched};
    ///
    /// assert_eq!(Plain::backend(), Backend::Epoch);
    /// assert_ne!(Sched::backend(), Backend::Epoch);
    /// ```
    fn backend() -> Backend;
}

/// What a flavour is built on in this process.
///
/// `Sched` takes the first of `Rseq`, `Membarrier` and `Fence` that the system has, or, if the environment variable
/// `PERCPU_REF_BACKEND` is `rseq`, `membarrier` or `fence`, the first from that one on. Anything else there is
/// [reported](crate::set_report_hook) with the first ref, `synchronize` or `call`, and changes nothing.
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{Backend, Flavor, Sched};
///
/// let cost = match Sched::backend() {
///     Backend::Rseq => "one sequence",
///     Backend::Membarrier => "a section without a fence",
///     _ => "a section with a fence",
/// };
/// println!("a get is {cost}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Backend {
    /// crossbeam-epoch: a full fence in each section.
    Epoch,
    /// Restartable sequences count on the CPU's own cell; membarrier restarts them. Sections as with `Membarrier`.
    Rseq,
    /// No fence in sections; membarrier in grace periods.
    Membarrier,
    /// A full fence in each section; for systems without membarrier.
    Fence,
}

mod sealed {
    use super::Namer;
    use crate::sync::{Lane, Quiescent};

    /// What a flavour does for counting; not for users.
    pub trait Sealed {
        /// What it is called.
        const NAME: &'static str;

        /// Whether this thread is inside a section of the flavour.
        fn is_in_section() -> bool;

        /// Runs `count` inside a short section; it is given the lane of this thread, if the flavour has lanes. False if
        /// `count` says so, or if this thread has no lane or cannot open a section any more.
        fn count_in_section(count: impl Fn(Option<Lane>) -> bool) -> bool;

        /// Waits until no section or sequence is left that counts the way it was open to before; `name` is whose count.
        fn wait_for_counters(name: Namer<'_>) -> Quiescent;

        /// Runs `job` in the callback thread after such a wait.
        fn after_counters(job: impl FnOnce(Quiescent) + Send + 'static);

        /// Runs `job` in the callback thread.
        fn soon(job: impl FnOnce() + Send + 'static);

        /// Whether counting happens in restartable sequences, where the process has them, and not in sections.
        const SEQUENCES: bool;

        /// Runs `job`, which neither blocks nor runs code of the program, when every section that is open now is over;
        /// at once, if [`after_counters`](Self::after_counters) waits for sections anyway.
        fn after_sections(job: impl FnOnce() + Send + 'static);

        /// Makes sure that somebody works on what is queued: a forked child has lost its callback threads.
        fn kick();
    }
}

/// Panics inside a section of `F`: a wait for a grace period of `F` could never end there.
#[track_caller]
pub(crate) fn assert_no_section<F: Flavor>(what: impl Display) {
    assert!(
        !F::is_in_section(),
        "{what} inside a {:?} read-side critical section of this thread would wait for itself",
        F::default()
    );
}

#[track_caller]
fn assert_may_barrier<F: Flavor>() {
    assert_no_section::<F>("barrier");
    assert!(!is_in_call(), "barrier inside a function given to call would wait for itself");
}

fn queues() -> [&'static callback::Queue; 3] {
    [plain::queue(), sched::queue(), sched::rseq_queue()]
}
