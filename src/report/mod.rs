//! What a program should know and no caller can be told: misuse, callbacks that panicked, and waits that do not end.
//!
//! A surplus `put` is found in the call that uncovers it, long after and far from the mistake, and `put` has nothing to
//! return. So it is reported, once for each ref, to a hook of the program's choice. And so is a wait that lasts too long:
//! [`stall`].

mod stall;
mod subject;

pub use stall::{Reader, Stall, Wait, set_stall_after};
pub(crate) use stall::{Watch, stalls};
pub(crate) use subject::Subject;

use crate::sync::{Mutex, OnFork, complain, global};
use crate::trace::{self, Severity};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Something that is wrong with a ref and that no return value could tell.
///
/// # Examples
/// ```
/// use percpu_ref::{PercpuRef, Report, set_report_hook};
/// use std::sync::mpsc;
///
/// let (tell, told) = mpsc::channel();
/// set_report_hook(move |report: &Report| tell.send(report.clone()).unwrap());
/// let r = PercpuRef::builder().name("table 7").build(|| {});
/// r.put(); // nobody had taken that one
/// r.kill_sync().unwrap();
/// let report = told.recv().unwrap();
/// assert_eq!(report.name(), Some("table 7"));
/// assert!(report.to_string().contains("more puts than gets"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `None`: it is about no ref.
    about: Option<Subject>,
    kind: ReportKind,
}

/// What a [`Report`] is about.
///
/// # Examples
/// ```
/// use percpu_ref::{ReportKind, set_report_hook};
///
/// set_report_hook(|report| match report.kind() {
///     ReportKind::CallbackPanicked(why) => eprintln!("a callback panicked: {why}"),
///     _ => panic!("a reference is counted wrong: {report}"),
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportKind {
    /// There were more puts than gets. The ref is saturated now: it never reaches zero and never releases (again).
    SurplusPut,
    /// A reference was taken on a ref that had been released. The ref is saturated now.
    GetAfterRelease,
    /// A count was above `u32::MAX`, or the references out were too many to be counted. The ref is saturated now.
    TooMany,
    /// A callback panicked, with this message. The panic went no further.
    CallbackPanicked(String),
    /// A ref was dropped while this many references were out: they can never be put. Only builds with debug assertions
    /// look for this.
    DroppedWithReferences(u64),
    /// A ref was dropped while a switch was under way. Its callbacks still run. Only builds with debug assertions look
    /// for this.
    DroppedInSwitch,
    /// `PERCPU_REF_BACKEND` names this, which is no [`Backend`](crate::rcu::Backend) that can be asked for. The best that
    /// the system has is used.
    UnknownBackend(String),
    /// A wait has lasted for longer than [`set_stall_after`] allows. It goes on.
    Stalled(Stall),
}

impl Report {
    pub(crate) fn new(about: Option<Subject>, kind: ReportKind) -> Self {
        Self { about, kind }
    }

    /// The name of the ref that this is about, if it has one.
    ///
    /// # Examples
    /// ```
    /// percpu_ref::set_report_hook(|report| eprintln!("{}: {report}", report.name().unwrap_or("some ref")));
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.about.as_ref()?.name()
    }

    /// What happened.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{ReportKind, set_report_hook};
    ///
    /// set_report_hook(|report| assert_ne!(*report.kind(), ReportKind::SurplusPut, "{report}"));
    /// ```
    pub fn kind(&self) -> &ReportKind {
        &self.kind
    }

    fn severity(&self) -> Severity {
        match self.kind {
            ReportKind::Stalled(_) | ReportKind::DroppedInSwitch | ReportKind::UnknownBackend(_) => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Hands the report to the hook.
    pub(crate) fn send(&self) {
        keep_hook_from_forks();
        let hook = HOOK.lock().clone();
        match hook {
            // A hook that panics must not take down whoever found the mistake.
            Some(hook) => drop(catch_unwind(AssertUnwindSafe(|| hook(self))).map_err(forget_payload)),
            None if trace::report(self.severity(), self.name(), self) => {}
            None => complain(&format!("percpu-ref: {self}\n")),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(about) = &self.about {
            write!(f, "{about}: ")?;
        }
        match &self.kind {
            ReportKind::SurplusPut => {
                f.write_str("more puts than gets; it is saturated and will never release (again)")
            }
            ReportKind::GetAfterRelease => {
                f.write_str("a get after its release; it is saturated and will never release again")
            }
            ReportKind::TooMany => {
                f.write_str("more references than can be counted; it is saturated and will never release")
            }
            ReportKind::CallbackPanicked(message) => write!(f, "a callback panicked: {message}"),
            ReportKind::DroppedWithReferences(1) => f.write_str("dropped with 1 reference out, which can never be put"),
            ReportKind::DroppedWithReferences(n) => {
                write!(f, "dropped with {n} references out, which can never be put")
            }
            ReportKind::DroppedInSwitch => f.write_str("dropped during a switch; its callbacks still run"),
            ReportKind::UnknownBackend(asked) => {
                write!(f, "PERCPU_REF_BACKEND is `{asked}`, but has to be rseq, membarrier or fence; it is ignored")
            }
            ReportKind::Stalled(stall) => stall.fmt(f),
        }
    }
}

type Hook = Arc<dyn Fn(&Report) + Send + Sync>;

global! {
    static HOOK: Mutex<Option<Hook>> = Mutex::new(None);
}

/// Sends every later [`Report`] of this process to `hook`, in place of an earlier hook.
///
/// Without a hook, reports go to standard error or, with the feature `tracing` and where the program has a subscriber,
/// are events of the target `percpu_ref`: misuse and panics of the level ERROR, stalls of the level WARN.
///
/// # Context
/// Any thread; never blocks for long. The hook runs in whichever thread finds the mistake, under no lock and in no section
/// of ours: in a `put`, in a `kill_sync`, in a wait, or in the thread that runs callbacks. It may use any ref, but should
/// wait for none, and for no grace period: the one that is reported as stalled is this thread's to end. If it panics, the
/// panic goes no further.
///
/// # Examples
/// ```
/// percpu_ref::set_report_hook(|report| eprintln!("reference counting: {report}"));
/// ```
pub fn set_report_hook(hook: impl Fn(&Report) + Send + Sync + 'static) {
    keep_hook_from_forks();
    let old = HOOK.lock().replace(Arc::new(hook));
    drop(old); // Not under the lock: it is the program's.
}

fn keep_hook_from_forks() {
    static FORKS: OnFork = OnFork::new(|| {
        let guard = HOOK.lock();
        Box::new(move |_| drop(guard))
    });
    FORKS.register();
}

/// Runs a callback of the program, contains its panic and reports it.
pub(crate) fn contain(about: impl FnOnce() -> Option<Subject>, callback: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(callback)) {
        let message = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
        forget_payload(payload);
        let message = message.unwrap_or_else(|| "(no message)".to_owned());
        Report::new(about(), ReportKind::CallbackPanicked(message)).send();
    }
}

/// Drops what a panic carried, which may panic in turn.
fn forget_payload(payload: Box<dyn std::any::Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
