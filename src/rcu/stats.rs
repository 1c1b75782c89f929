//! What the grace periods and callbacks of this process have come to.
//!
//! Everything here is counted where somebody waits, or queues work, under the lock that he takes anyway. Readers, gets and
//! puts count nothing.

use super::{Backend, Flavor, Sched, plain, sched};
use crate::report::stalls;
use std::fmt;
use std::time::Duration;

/// What the grace periods of one kind, and the callbacks after them, have come to since the process began.
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{self, Flavor, GraceStats, Plain};
///
/// Plain::call(|| {});
/// Plain::barrier();
/// let GraceStats { callbacks_queued, callbacks_run, .. } = rcu::stats().plain;
/// assert!(callbacks_run >= 1);
/// println!("{} callbacks are waiting", callbacks_queued - callbacks_run);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraceStats {
    /// Grace periods that have ended.
    pub grace_periods: u64,
    /// Waits for one that have ended: of callers and of the callback thread, which waits once for a whole batch.
    pub waits: u64,
    /// Those of them that were served by a grace period that somebody else ran.
    pub shared: u64,
    /// Membarrier system calls: one for each grace period on the backends that have it.
    pub barriers: u64,
    /// Callbacks queued: functions given to [`call`](Flavor::call), and the ends of kills and switches.
    pub callbacks_queued: u64,
    /// Callbacks that have returned.
    pub callbacks_run: u64,
    /// The longest wait for a grace period so far.
    pub longest_wait: Duration,
}

/// What grace periods and callbacks have come to since the process began: from [`stats`].
///
/// # Examples
/// ```
/// use percpu_ref::PercpuRef;
/// use percpu_ref::rcu::{self, Stats};
///
/// let r = PercpuRef::new(|| {});
/// let before = rcu::stats();
/// r.kill_sync().unwrap();
/// let Stats { sched, sequences, .. } = rcu::stats();
/// // Which of the two a kill waits for depends on the backend.
/// assert!(sched.waits + sequences.waits > before.sched.waits + before.sequences.waits);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The flavour [`Plain`](super::Plain): epochs.
    pub plain: GraceStats,
    /// The flavour [`Sched`]: its sections.
    pub sched: GraceStats,
    /// The restartable sequences that [`Sched`] counts in on the backend [`Rseq`](Backend::Rseq): kills and switches.
    pub sequences: GraceStats,
    /// Waits of any kind that were [reported as stalled](crate::set_stall_after).
    pub stalls: u64,
}

/// What grace periods and callbacks have come to since the process began (a forked child goes on from its parent's).
///
/// # Context
/// Any thread, not a signal handler. Takes each lock of the queues for a moment.
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{self, Flavor, Sched};
///
/// let before = rcu::stats();
/// Sched::synchronize();
/// Sched::call(|| {});
/// Sched::barrier();
/// let after = rcu::stats();
/// assert!(after.sched.grace_periods >= before.sched.grace_periods + 2);
/// assert!(after.sched.callbacks_run > before.sched.callbacks_run);
/// println!("{after}");
/// ```
pub fn stats() -> Stats {
    let barriers_with = |backends: &[Backend], of: GraceStats| {
        let barriers = if backends.contains(&Sched::backend()) { of.grace_periods } else { 0 };
        GraceStats { barriers, ..of }
    };
    Stats {
        plain: plain::stats(),
        sched: barriers_with(&[Backend::Rseq, Backend::Membarrier], sched::stats()),
        sequences: barriers_with(&[Backend::Rseq], sched::rseq_stats()),
        stalls: stalls(),
    }
}

macro_rules! metrics {
    ($($kind:ident),*) => {[$(
        (concat!(stringify!($kind), "_grace_periods"), |s: &Stats| s.$kind.grace_periods),
        (concat!(stringify!($kind), "_waits"), |s| s.$kind.waits),
        (concat!(stringify!($kind), "_shared_waits"), |s| s.$kind.shared),
        (concat!(stringify!($kind), "_barriers"), |s| s.$kind.barriers),
        (concat!(stringify!($kind), "_callbacks_queued"), |s| s.$kind.callbacks_queued),
        (concat!(stringify!($kind), "_callbacks_run"), |s| s.$kind.callbacks_run),
        (concat!(stringify!($kind), "_longest_wait_nanoseconds"), |s| {
            s.$kind.longest_wait.as_nanos().try_into().unwrap_or(u64::MAX)
        }),
    )*
        ("stalls", |s| s.stalls),
    ]};
}

type Metric = (&'static str, fn(&Stats) -> u64);
static METRICS: [Metric; 22] = metrics!(plain, sched, sequences);

impl Stats {
    /// Each number under a name of its own, for whichever metrics library the program uses. All but
    /// `*_longest_wait_nanoseconds` only ever grow. The names are those of the fields, such as `sched_grace_periods`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::rcu;
    ///
    /// let mut page = String::new();
    /// for (name, value) in rcu::stats().metrics() {
    ///     page += &format!("percpu_ref_{name} {value}\n"); // as Prometheus reads it
    /// }
    /// assert!(page.contains("percpu_ref_sched_grace_periods "));
    /// ```
    pub fn metrics(&self) -> impl ExactSizeIterator<Item = (&'static str, u64)> + use<> {
        let stats = *self;
        METRICS.iter().map(move |(name, value)| (*name, value(&stats)))
    }
}

impl fmt::Display for GraceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grace_periods, waits, shared, barriers, callbacks_queued, callbacks_run, longest_wait } = self;
        write!(f, "{grace_periods} grace periods ({barriers} barriers) for {waits} waits ({shared} shared), ")?;
        write!(f, "the longest {longest_wait:.1?}; {callbacks_run} of {callbacks_queued} callbacks run")
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plain, sched, sequences, stalls } = self;
        write!(f, "plain: {plain}\nsched: {sched}\nsequences: {sequences}\nstalls: {stalls}")
    }
}
