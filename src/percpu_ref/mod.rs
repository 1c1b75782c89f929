//! The reference counter: its public face.
//!
//! | file | concept |
//! |---|---|
//! | [`state`] | the shared word, as arithmetic |
//! | [`count`] | the count: get, put, tryget, release |
//! | [`switch`] | kill, confirm, switches, revival |
//! | [`builder`] | how a ref begins |
//! | [`get_put`] | how references are taken and dropped |
//! | [`life`] | how it ends, and how another life begins |
//! | [`look`] | what it tells of itself |
//! | [`guard`] | a reference that puts itself |
//! | [`error`] | what can be wrong with a call |
//!
//! After lib/percpu-refcount.c of Linux.
#![forbid(unsafe_code)]

mod builder;
pub(crate) mod count;
mod error;
mod get_put;
mod guard;
mod life;
mod look;
mod state;
pub(crate) mod switch;

pub use builder::{Builder, Start};
pub use error::{AlreadyDying, NotReinitable, OutOfMemory, Outstanding, ReviveError};
pub use guard::Ref;

use crate::rcu::{Flavor, Sched};
use crate::report::{Report, ReportKind};
use crate::sync::DEBUG;
use count::{Core, Host, flag};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Where a ref counts.
///
/// # Examples
/// ```
/// use percpu_ref::{Mode, PercpuRef};
///
/// let r = PercpuRef::new(|| {});
/// assert_eq!(r.mode(), Mode::Percpu);
/// r.kill_sync().unwrap();
/// assert_eq!(r.mode(), Mode::Atomic);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In a cell of the CPU, or thread, that counts.
    Percpu,
    /// In one atomic word.
    Atomic,
}

/// A reference counter that many threads use at once and that can be torn down without a race.
///
/// It is born with one reference, the *first* one, which belongs to whoever kills it. Others take references
/// ([`get`](Self::get), [`tryget`](Self::tryget), [`tryget_live`](Self::tryget_live), [`enter`](Self::enter)) and drop
/// them ([`put`](Self::put)). A [`kill`](Self::kill) waits for one grace period of the flavour `F`, folds all counters
/// into one atomic, runs `confirm` (from its beginning on nobody gets in with `tryget_live`), and drops the first
/// reference. When the last reference is gone, `release` runs, once.
///
/// # Cost
///
/// Before a kill, on the `Rseq` backend: a get or a put is one test and one restartable sequence of six instructions;
/// it writes to a line of this CPU and to one of this thread, and has no locked instruction. In a flavour that counts in
/// sections: a section, and a load, an addition and a store in it. After a kill or
/// [`switch_to_atomic`](Self::switch_to_atomic): one atomic read-modify-write on a shared line.
///
/// A ref takes 8 bytes for each CPU that can exist and less than 96 more.
///
/// # Promises
///
/// 1. No `tryget_live` that starts after `confirm` has begun succeeds, on any thread and whatever the mode was, until
///    [`resurrect`](Self::resurrect) or [`reinit`](Self::reinit).
/// 2. `confirm` runs once and before `release`; `release` runs once for each life.
/// 3. User code runs under no lock and in no section of this library. `confirm` and `release` may call anything that does
///    not wait for this ref, and may drop what holds it.
/// 4. A second `kill` is an error. A surplus `put`, and a `get` after the release, are caught in every build as soon as
///    the count gives them away: the ref then *saturates*, [reports](crate::set_report_hook) it once with its name, and
///    never reaches zero or releases (again). A surplus put that somebody else's reference hides is found at that one's
///    put.
/// 5. When [`wait_zero`](Self::wait_zero) returns, `release` has returned.
/// 6. No get or put holds a switch up for longer than it takes itself.
/// 7. A ref may be dropped at any moment. A live one that is dropped does not release; a dying one still confirms and
///    releases.
///
/// # Examples
/// ```
/// use percpu_ref::PercpuRef;
/// use std::thread;
///
/// let table = PercpuRef::new(|| println!("nobody uses the table: it can be freed"));
/// thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| {
///             while let Some(_inside) = table.enter() {
///                 // use the table
///             }
///         });
///     }
///     table.kill_and_confirm(|| println!("nobody gets in any more")).unwrap();
/// });
/// table.wait_zero();
/// ```
#[must_use = "a ref that is dropped alive never releases"]
pub struct PercpuRef<F: Flavor = Sched> {
    inner: Arc<Inner<F>>,
}

/// What a ref allocates; switches under way keep it alive too.
#[repr(C)]
struct Inner<F> {
    core: Core,
    release: Box<dyn Fn() + Send + Sync>,
    flavor: PhantomData<F>,
}

impl<F: Flavor> Host for Inner<F> {
    type Flavor = F;
    const WHAT: &'static str = "a ref";

    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }

    fn release(&self) {
        (self.release)();
    }
}

// What a panic can interrupt is the program's closure, never a step of ours.
impl<F: Flavor> UnwindSafe for PercpuRef<F> {}
impl<F: Flavor> RefUnwindSafe for PercpuRef<F> {}

impl<F: Flavor> Drop for PercpuRef<F> {
    fn drop(&mut self) {
        if !DEBUG {
            return;
        }
        let core = &self.inner.core;
        let busy = core.flags().load(crate::sync::Ordering::Relaxed) & flag::BUSY != 0;
        let kind = if busy {
            ReportKind::DroppedInSwitch
        } else {
            match core.references_of_users() {
                0 => return,
                n => ReportKind::DroppedWithReferences(n),
            }
        };
        Report::new(Some(core.subject::<Inner<F>>()), kind).send();
    }
}
