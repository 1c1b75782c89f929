//! Waits that last too long.
//!
//! A reference that nobody puts, or a section that nobody ends, shows only as a wait that does not end. So whoever waits
//! looks at the clock now and then, and when the wait has lasted for longer than the program finds reasonable, says
//! once what it waits for. Whoever is waited for does nothing for that: what can be known about him was written down
//! when his thread first appeared, and since when he is in the way is what the waiter has seen itself.
//!
//! After the stall detector of RCU in Linux, kernel/rcu/tree_stall.h.

use super::{Report, ReportKind, Subject};
use crate::sync::{AtomicU64, Identity, Ordering, global, now};
use crate::track::{Holding, List, Section};
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// What a [`Stall`] is a wait for.
///
/// # Examples
/// ```
/// use percpu_ref::{ReportKind, Wait, set_report_hook};
///
/// set_report_hook(|report| match report.kind() {
///     ReportKind::Stalled(stall) if stall.wait() == Wait::GracePeriod => eprintln!("a reader is slow: {report}"),
///     _ => eprintln!("{report}"),
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// The release of a ref that has been killed: references are out, or `release` has not returned.
    Zero,
    /// The end of a switch of a ref that somebody else finishes: its grace period, or its confirms.
    Switch,
    /// A grace period: sections are open.
    GracePeriod,
    /// Functions given to [`call`](crate::rcu::Flavor::call).
    Callbacks,
}

/// A wait that has lasted for longer than [`set_stall_after`] allows, in a [`Report`].
///
/// # Examples
/// ```
/// use percpu_ref::{PercpuRef, ReportKind, set_report_hook, set_stall_after};
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let (tell, told) = mpsc::channel();
/// set_report_hook(move |report| drop(tell.send(report.clone())));
/// set_stall_after(Some(Duration::from_millis(20)));
///
/// let cache = PercpuRef::builder().name("cache").build(|| {});
/// cache.get(); // and who puts it?
/// cache.kill_sync().unwrap();
/// std::thread::scope(|s| {
///     s.spawn(|| cache.wait_zero());
///     let report = told.recv().unwrap();
///     assert_eq!(report.name(), Some("cache"));
///     let ReportKind::Stalled(stall) = report.kind() else { panic!("{report}") };
///     assert_eq!(stall.references(), 1);
///     cache.put();
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub(crate) wait: Wait,
    pub(crate) flavor: &'static str,
    pub(crate) waited: Duration,
    pub(crate) references: u64,
    pub(crate) callbacks: usize,
    pub(crate) readers: Vec<Reader>,
    pub(crate) holders: List,
}

impl Stall {
    /// A grace period that sections hold up; `found`: threads that were found in one, if the flavour can tell.
    pub(crate) fn of_sections(flavor: &'static str, waited: Duration, found: Vec<(Identity, Duration)>) -> Self {
        let tracked = Section::open_for(flavor, waited);
        let readers = if tracked.is_empty() {
            found.into_iter().map(|(who, since)| Reader { who, since, place: None }).collect()
        } else {
            tracked.into_iter().map(|(who, since, place)| Reader { who, since, place }).collect()
        };
        Self { readers, ..Self::new(Wait::GracePeriod, flavor, waited) }
    }

    /// One without particulars.
    pub(crate) fn new(wait: Wait, flavor: &'static str, waited: Duration) -> Self {
        Self { wait, flavor, waited, references: 0, callbacks: 0, readers: Vec::new(), holders: List::default() }
    }

    /// Reports it; `about`: who waits, or whose references are waited for.
    pub(crate) fn send(self, about: Option<Subject>) {
        STALLS.fetch_add(1, Ordering::Relaxed);
        Report::new(about, ReportKind::Stalled(self)).send();
    }

    /// What is waited for.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         eprintln!("waiting for {:?}", stall.wait());
    ///     }
    /// });
    /// ```
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The flavour of the ref or of the grace period: `Plain` or `Sched`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         eprintln!("in the way of {}", stall.flavor()); // Sched
    ///     }
    /// });
    /// ```
    pub fn flavor(&self) -> &'static str {
        self.flavor
    }

    /// How long the wait had lasted when it was reported.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         eprintln!("for {:?} so far", stall.waited());
    ///     }
    /// });
    /// ```
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many references were out: for a wait for a ref.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         eprintln!("{} references are out", stall.references());
    ///     }
    /// });
    /// ```
    pub fn references(&self) -> u64 {
        self.references
    }

    /// How many functions given to [`call`](crate::rcu::Flavor::call) had not returned: for a wait for those.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         eprintln!("{} callbacks have not returned", stall.callbacks());
    ///     }
    /// });
    /// ```
    pub fn callbacks(&self) -> usize {
        self.callbacks
    }

    /// The threads whose sections hold a grace period up. Without the feature `track`, those of
    /// [`Sched`](crate::rcu::Sched) only: crossbeam-epoch does not tell who is pinned for [`Plain`](crate::rcu::Plain).
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         for reader in stall.readers() {
    ///             eprintln!("{reader}");
    ///         }
    ///     }
    /// });
    /// ```
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Who held the references of a ref, as in [`Outstanding::holders`](crate::Outstanding::holders): empty unless the
    /// crate is built with the feature `track`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     if let ReportKind::Stalled(stall) = report.kind() {
    ///         for holding in stall.holders() {
    ///             eprintln!("{holding}");
    ///         }
    ///     }
    /// });
    /// ```
    pub fn holders(&self) -> &[Holding] {
        self.holders.holders()
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flavor, waited, .. } = self;
        match self.wait {
            Wait::Zero => write!(f, "waited for its release for {waited:.1?}; {}", out(self.references))?,
            Wait::Switch => write!(f, "waited for the end of a switch for {waited:.1?}; {}", out(self.references))?,
            Wait::GracePeriod => write!(f, "waited for a grace period of {flavor} for {waited:.1?}")?,
            Wait::Callbacks => write!(f, "waited for {} callbacks of {flavor} for {waited:.1?}", self.callbacks)?,
        }
        self.readers.iter().try_for_each(|reader| write!(f, "\n  {reader}"))?;
        self.holders.told(self.references).fmt(f)
    }
}

fn out(references: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match references {
        0 => f.write_str("no reference is out, but its release has not returned"),
        1 => f.write_str("1 reference is out"),
        n => write!(f, "{n} references are out"),
    })
}

/// A thread whose section holds up a grace period, in a [`Stall`].
///
/// # Examples
/// ```
/// use percpu_ref::{ReportKind, set_report_hook};
///
/// set_report_hook(|report| {
///     let ReportKind::Stalled(stall) = report.kind() else { return };
///     for reader in stall.readers() {
///         eprintln!("{reader}"); // thread `reader` (thread 4711 of the system) has been in a section for...
///     }
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    pub(crate) who: Identity,
    pub(crate) since: Duration,
    pub(crate) place: Option<&'static Location<'static>>,
}

impl Reader {
    /// The name of the thread when it opened its first section: on Linux what the system knows of it, which is 15 bytes.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     let ReportKind::Stalled(stall) = report.kind() else { return };
    ///     for reader in stall.readers() {
    ///         eprintln!("{}", reader.thread_name().unwrap_or("?"));
    ///     }
    /// });
    /// ```
    pub fn thread_name(&self) -> Option<&str> {
        self.who.name.as_deref()
    }

    /// The system's number of the thread, as debuggers and `top -H` show it; on Linux.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     let ReportKind::Stalled(stall) = report.kind() else { return };
    ///     for reader in stall.readers() {
    ///         eprintln!("gdb -p {}", reader.os_thread_id().unwrap_or(0));
    ///     }
    /// });
    /// ```
    pub fn os_thread_id(&self) -> Option<u32> {
        self.who.os_id
    }

    /// For how long the waiter has found the thread in that same section, which may have begun earlier; with the feature
    /// `track`, the age of the section.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     let ReportKind::Stalled(stall) = report.kind() else { return };
    ///     for reader in stall.readers() {
    ///         eprintln!("in one section for {:?} at least", reader.seen_for());
    ///     }
    /// });
    /// ```
    pub fn seen_for(&self) -> Duration {
        self.since
    }

    /// Where the section began, with the feature `track`.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| {
    ///     let ReportKind::Stalled(stall) = report.kind() else { return };
    ///     for reader in stall.readers() {
    ///         if let Some(place) = reader.place() {
    ///             eprintln!("its section began at {place}");
    ///         }
    ///     }
    /// });
    /// ```
    pub fn place(&self) -> Option<&'static Location<'static>> {
        self.place
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who.name {
            Some(name) => write!(f, "thread `{name}`")?,
            None => f.write_str("a thread without a name")?,
        }
        if let Some(id) = self.who.os_id {
            write!(f, " (thread {id} of the system)")?;
        }
        write!(f, " has been in a section for at least {:.1?}", self.since)?;
        self.place.map_or(Ok(()), |place| write!(f, ", which began at {place}"))
    }
}

/// Half of what the kernel allows its readers: people wait for this one.
const TEN_SECONDS: u64 = 10_000_000_000;
const NEVER: u64 = u64::MAX;

global! {
    /// In nanoseconds.
    static LIMIT: AtomicU64 = AtomicU64::new(TEN_SECONDS);
}
global! {
    static STALLS: AtomicU64 = AtomicU64::new(0);
}

/// How many waits of this process have been reported as stalled.
pub(crate) fn stalls() -> u64 {
    STALLS.load(Ordering::Relaxed)
}

/// Has every wait that begins later and lasts for longer than `limit` [reported](crate::set_report_hook), once; `None`:
/// none is. Ten seconds unless told otherwise, and a millisecond at least.
///
/// Waits for the release of a ref (`wait_zero`, [`Gate::freeze`](crate::Gate::freeze), [`Drain::wait`](crate::Drain::wait) and their timed forms; a
/// [`Drain`](crate::Drain) that is awaited when it is polled again later, since it has no thread of its own), for a switch or a
/// grace period (`kill_sync`, `switch_to_atomic_sync`, `resurrect`, [`synchronize`](crate::rcu::Flavor::synchronize), and
/// what the callback thread waits for), and for callbacks ([`barrier`](crate::rcu::Flavor::barrier)). A grace period is
/// reported once by whoever runs it, not by everybody who shares it. For the release of a ref the time counts from when
/// the waiter finds it killed: waiting for somebody to kill it is nobody's fault.
///
/// # Context
/// Any thread. Never blocks.
///
/// # Examples
/// ```
/// use percpu_ref::set_stall_after;
/// use std::time::Duration;
///
/// set_stall_after(Some(Duration::from_secs(60))); // some of our requests take long
/// ```
pub fn set_stall_after(limit: Option<Duration>) {
    let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
    let nanoseconds = limit.map_or(NEVER, |limit| u64::try_from(limit.as_nanos()).unwrap_or(NEVER));
    LIMIT.store(nanoseconds, Ordering::Relaxed);
}

/// The clock of one wait.
///
/// A model has no clock, and nothing is ever overdue there.
pub(crate) struct Watch {
    since: Option<Instant>,
    /// When to report; `None` once that has been done, or if it never will be.
    due: Option<Instant>,
}

impl Watch {
    /// To be called where the wait begins.
    pub(crate) fn start() -> Self {
        let since = now();
        Self { since, due: since.and_then(Self::due) }
    }

    fn due(since: Instant) -> Option<Instant> {
        match LIMIT.load(Ordering::Relaxed) {
            NEVER => None,
            limit => since.checked_add(Duration::from_nanos(limit)),
        }
    }

    /// When the waiter has to look up, whose own deadline is `deadline`.
    pub(crate) fn look_at(&self, deadline: Option<Instant>) -> Option<Instant> {
        [self.due, deadline].into_iter().flatten().min()
    }

    /// How long the wait has lasted, if that is too long and has not been told yet.
    pub(crate) fn overdue(&mut self) -> Option<Duration> {
        let (since, now) = (self.since?, now()?);
        self.due.take_if(|due| *due <= now).map(|_| now - since)
    }
}
