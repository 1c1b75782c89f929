//! The plain flavour: an epoch pin.
//!
//! A reader announces the epoch that it entered in and runs a full fence; an epoch ends when nobody is left in the one
//! before. It needs nothing from the kernel, and the fence is most of what it costs.

use super::callback::{Queue, QueueKind, State};
use super::grace::{self, Grace};
use super::suspects::{Namer, nobody};
use super::{Backend, Flavor, GraceStats, Sealed};
use crate::report::{Stall, Watch};
use crate::sync::{Condvar, Lane, Mutex, OnFork, Quiescent, epoch, global, local};
use crate::track::{Origin, Section};
use std::cell::Cell;

/// Sections are epoch pins of the [crossbeam-epoch](https://docs.rs/crossbeam-epoch) crate, with a full fence each.
///
/// The pins are those of crossbeam's default collector: a guard of `crossbeam_epoch::pin()` held by the program is a
/// section of this flavour too, but not in a forked child, which has a collector of its own.
///
/// # Examples
/// ```
/// use percpu_ref::PercpuRef;
/// use percpu_ref::rcu::Plain;
///
/// let r: PercpuRef<Plain> = PercpuRef::builder().flavor(Plain).build(|| {});
/// # r.kill_sync().unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Plain;

/// An open section of [`Plain`].
///
/// # Examples
/// ```
/// use percpu_ref::rcu::{Flavor, Plain, PlainGuard};
///
/// struct Reader {
///     section: PlainGuard, // what is looked up is safe to use as long as this lives
/// }
///
/// let reader = Reader { section: Plain::read_lock() };
/// drop(reader.section);
/// ```
#[must_use = "the section is over at once unless the guard is kept: `let _section = ...`, not `let _ = ...`"]
pub struct PlainGuard {
    guard: Option<epoch::Guard>,
    section: Section,
}

impl std::fmt::Debug for PlainGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainGuard")
    }
}

global! {
    static GRACE: Grace = Grace { state: Mutex::new(grace::State::new()), ended: Condvar::new() };
}
global! {
    static QUEUE: Queue = Queue {
        kind: QueueKind::Plain,
        wait: || wait(&nobody),
        is_in_section: epoch::is_pinned,
        leave_to_guard,
        state: Mutex::new(State::new()),
        work: Condvar::new(),
        returned: Condvar::new(),
    };
}
local! {
    /// Callbacks wait for the outermost guard of this thread.
    static CALLBACKS: Cell<bool> = Cell::new(false);
}

/// Waits for a grace period, shared with others who wait.
fn wait(name: Namer<'_>) {
    GRACE.wait(|| {
        let mut watch = Watch::start();
        epoch::wait_for_readers(|| {
            if let Some(waited) = watch.overdue() {
                Stall::of_sections(Plain::NAME, waited, Vec::new()).send(name());
            }
        });
    });
}

pub(super) fn stats() -> GraceStats {
    queue().stats(GRACE.stats())
}

fn leave_to_guard() {
    CALLBACKS.with(|callbacks| callbacks.set(true));
}

pub(super) fn queue() -> &'static Queue {
    static FORKS: OnFork = OnFork::new(|| {
        let (mut queue, mut grace) = (QUEUE.state.lock(), GRACE.state.lock());
        Box::new(move |in_child| {
            if in_child {
                queue.forget_workers();
                grace.forget_running();
            }
        })
    });
    FORKS.register();
    // What stands for a section in a forked child may have been a pin of the program's own, which does not tell when it ends.
    epoch::section_ended();
    &QUEUE
}

impl Drop for PlainGuard {
    #[inline]
    fn drop(&mut self) {
        self.section.end();
        drop(self.guard.take());
        epoch::section_ended();
        if CALLBACKS.with(Cell::get) && !epoch::is_pinned() {
            CALLBACKS.with(|callbacks| callbacks.set(false));
            queue().kick();
        }
    }
}

impl Flavor for Plain {
    type Guard = PlainGuard;

    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    fn read_lock() -> PlainGuard {
        PlainGuard { guard: Some(epoch::pin()), section: Section::begin(Self::NAME, Origin::here()) }
    }

    #[track_caller]
    fn synchronize() {
        super::assert_no_section::<Self>("synchronize");
        queue();
        wait(&nobody);
    }

    fn call(f: impl FnOnce() + Send + 'static) {
        queue().call(Box::new(f));
    }

    #[track_caller]
    fn barrier() {
        super::assert_may_barrier::<Self>();
        queue().barrier();
    }

    fn backend() -> Backend {
        Backend::Epoch
    }
}

impl Sealed for Plain {
    const NAME: &'static str = "Plain";

    fn is_in_section() -> bool {
        epoch::is_pinned()
    }

    #[inline]
    fn count_in_section(count: impl Fn(Option<Lane>) -> bool) -> bool {
        let _section = epoch::pin();
        count(None)
    }

    fn wait_for_counters(name: Namer<'_>) -> Quiescent {
        queue();
        wait(name);
        Quiescent::reached()
    }

    fn after_counters(job: impl FnOnce(Quiescent) + Send + 'static) {
        queue().after_grace_period(Box::new(|| job(Quiescent::reached())));
    }

    fn soon(job: impl FnOnce() + Send + 'static) {
        queue().soon(Box::new(job));
    }

    const SEQUENCES: bool = false;

    fn after_sections(job: impl FnOnce() + Send + 'static) {
        job();
    }

    fn kick() {
        queue().kick();
    }
}
