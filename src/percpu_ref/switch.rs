//! Switches between the modes: kill, confirm, revive.
//!
//! # The course of a switch to atomic mode
//!
//! 1. Under the lock: mark what is wanted (DEAD for a kill), close the cells, set BUSY.
//! 2. A grace period: whoever saw the cells open has counted.
//! 3. Sum *all* cells, and change the shared word *once*, by the sum and the bias together. Adding cell by cell could pass
//!    through zero, when a get was counted in one cell and its put in another.
//! 4. The confirms, in the order asked for, under no lock. They may ask for more: that is done in the same switch,
//!    because everybody has left the cells already.
//! 5. Under the lock: a kill drops the first reference; a switch that nobody wants any more opens the cells again; BUSY
//!    is cleared.
//! 6. If the first reference was the last one, `release`, under no lock.
//!
//! A switch that finds the cells closed skips 2 and 3. One that finds BUSY leaves its confirm to the switch under way,
//! which is good for both: the grace period covers whoever saw the cells open, and DEAD is in the shared word, which
//! everybody else uses.
//!
//! The way back needs no grace period: the bias goes in, the cells are zeroed and then opened. A thread that has not
//! noticed yet counts on the shared word, which is right.
#![forbid(unsafe_code)]

use super::count::{Cold, Confirm, Core, Handle, Host, flag, release};
use super::error::{AlreadyDying, NotReinitable, Outstanding, ReviveError};
use super::state::{self, BIAS, DEAD, FIRST, Region};
use crate::rcu::{Flavor, Sealed, about_to_block, assert_no_section};
use crate::report::{ReportKind, Stall, Wait, Watch, contain};
use crate::sync::{Ordering, Quiescent, is_within, order, within};
use crate::trace::{self, Step};
use std::fmt::{self, Display};
use std::time::{Duration, Instant};

/// What has to happen next, after the lock has been dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a switch that nobody finishes never ends"]
pub(crate) enum Next {
    /// Somebody else finishes the switch.
    Nothing,
    /// The cells were open: a grace period, then `finish`.
    GracePeriod,
    /// The cells were closed: `finish`.
    Finish,
}

/// How a switch ended.
#[derive(Default)]
struct Ended {
    /// The last reference went with it.
    last: bool,
    /// Nobody wanted it any more: the cells are open again.
    opened: bool,
}

impl Core {
    fn has(&self, flags: u8) -> bool {
        self.flags().load(Ordering::Relaxed) & flags != 0
    }

    /// Begins a switch, or joins the one under way. Under the lock.
    fn begin_switch(&self, cold: &mut Option<Box<Cold>>, confirm: Option<Confirm>) -> Next {
        if let Some(confirm) = confirm {
            cold.get_or_insert_default().confirms.push(confirm);
        }
        if self.flags().fetch_or(flag::BUSY, Ordering::Relaxed) & flag::BUSY != 0 {
            Next::Nothing
        } else if self.cells.is_open() {
            // The stores need no order of their own: `heavy` comes after them.
            self.cells.close();
            Next::GracePeriod
        } else {
            Next::Finish
        }
    }

    /// Marks the count dead and begins the switch; `confirm` comes back if somebody was first.
    pub(crate) fn begin_kill(&self, confirm: Option<Confirm>) -> Result<Next, Option<Confirm>> {
        let mut cold = self.slow.lock();
        if state::is_dead(self.shared.load(Ordering::Relaxed)) {
            return Err(confirm);
        }
        self.flags().fetch_or(flag::KILLING, Ordering::Relaxed);
        let next = self.begin_switch(&mut cold, confirm);
        // Release, after the cells were closed: pairs with Acquire [T1] of a `tryget_live` that is refused. Who was refused once,
        // because his sequence was aborted, does not find the cells open the next time. (No model aborts sequences.)
        self.shared.fetch_or(DEAD, Ordering::Release);
        Ok(next)
    }

    /// Brings the cells' sum into the shared word, after the grace period.
    fn fold(&self, quiescent: Quiescent) {
        let sum = self.cells.sum();
        let mut surplus = false;
        // Relaxed: the grace period has made the sum visible here, and each later step of this thread publishes it.
        let _ = self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let folded = state::fold(word, sum)?;
            surplus = folded.is_err();
            Some(folded.unwrap_or_else(|saturated| saturated))
        });
        if surplus {
            self.misused(ReportKind::SurplusPut);
        }
        if !self.has(flag::ALLOW_REINIT) {
            // Under the lock, because `estimate` reads the cells outside any section.
            let _cold = self.slow.lock();
            self.cells.free(quiescent);
        }
    }

    /// Opens the cells, if they should be open; true if it did. Under the lock, with BUSY not set or about to be cleared.
    fn open_again(&self) -> bool {
        let word = self.shared.load(Ordering::Relaxed);
        if self.cells.is_open() || state::is_dead(word) || self.has(flag::STICKY) || !self.has(flag::ALLOW_REINIT) {
            return false;
        }
        let biased = self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (state::region(word) == Region::Plain).then_some(word.wrapping_add(BIAS))
        });
        if biased.is_ok() {
            self.cells.open();
        }
        biased.is_ok()
    }

    /// The end of a switch. Under the lock.
    fn end_switch(&self) -> Ended {
        let mut ended = Ended::default();
        if self.flags().fetch_and(!flag::KILLING, Ordering::Relaxed) & flag::KILLING != 0 {
            // Release [D1]: as in a put.
            let dropped = self.shared.fetch_update(order("D1", Ordering::Release), Ordering::Relaxed, |word| {
                (state::region(word) == Region::Plain).then_some(word & !FIRST)
            });
            ended.last = dropped.is_ok_and(|word| state::is_zero(word & !FIRST));
        } else {
            ended.opened = self.open_again();
        }
        // Release [W3]: pairs with Acquire [W4] in `wait_until_idle`: the waiter sees what the confirms did.
        self.flags().fetch_and(!flag::BUSY, order("W3", Ordering::Release));
        ended
    }

    /// Tells whoever listens. Under no lock; but the switch under way may be this thread's to finish, so a listener that
    /// waited for this count would wait for itself: that panics, as in a callback.
    pub(crate) fn tell<F: Flavor>(&self, step: Step) {
        if trace::ON {
            within(self.key(), || trace::emit(step, F::NAME, || self.name()));
        }
    }

    /// Blocks until `done`, or until the deadline; the queues go on meanwhile.
    pub(crate) fn wait<H: Host>(&self, what: Wait, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        if done() {
            return true;
        }
        H::Flavor::kick();
        about_to_block();
        let mut watch = Watch::start();
        loop {
            let look_at = watch.look_at(deadline);
            if self.slow.side.wait_until(look_at, &done) {
                return true;
            }
            if look_at == deadline {
                return false;
            }
            if what == Wait::Zero && !self.is_dying() {
                // Nobody has killed it, and waiting for that is in order: begin to count anew.
                watch = Watch::start();
            } else if let Some(waited) = watch.overdue() {
                self.report_stall::<H>(what, waited);
                // If the hook has forked and this is the child, nobody works here yet.
                H::Flavor::kick();
            }
        }
    }

    /// Reports a wait that is overdue.
    #[cold]
    pub(crate) fn report_stall<H: Host>(&self, what: Wait, waited: Duration) {
        let out = self.outstanding::<H>();
        let stall = Stall::new(what, H::Flavor::NAME, waited);
        let stall = Stall { references: out.count, holders: out.holders, ..stall };
        stall.send(Some(out.about));
    }

    fn wait_until_idle<H: Host>(&self) {
        // Acquire [W4]: pairs with Release [W3] in `end_switch`.
        self.wait::<H>(Wait::Switch, None, || self.flags().load(order("W4", Ordering::Acquire)) & flag::BUSY == 0);
    }

    /// What a panic calls a call on this count of an `H`. The name is asked for when it is written.
    fn calls<H: Host>(&self, what: &str) -> impl Display {
        fmt::from_fn(move |f| write!(f, "{what} of {}", self.subject::<H>()))
    }

    /// Panics where a grace period could not end.
    #[track_caller]
    fn assert_no_section<H: Host>(&self, what: &str) {
        assert_no_section::<H::Flavor>(self.calls::<H>(what));
    }

    /// Panics where a wait for this count could not end.
    #[track_caller]
    pub(crate) fn assert_may_wait<H: Host>(&self, what: &str) {
        self.assert_no_section::<H>(what);
        let call = self.calls::<H>(what);
        assert!(!is_within(self.key()), "{call} inside a callback of its own would wait for itself");
    }

    /// Blocks until `release` has returned. An error: the deadline has passed, or it never will.
    #[track_caller]
    pub(crate) fn wait_zero<H: Host>(&self, limit: Option<Duration>) -> Result<(), Outstanding> {
        self.assert_may_wait::<H>("wait_zero");
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        // Acquire [W2]: pairs with Release [W1] in `release`.
        let flags = || self.flags().load(order("W2", Ordering::Acquire));
        let before = flags();
        // A life that has ended counts, even if another has begun before this thread could look. (One that sleeps through
        // two whole lives waits for the third.)
        let another = |now: u8| (now ^ before) & flag::ODD_LIVES != 0;
        let released = |now: u8| now & flag::RELEASED != 0;
        let over = |now| another(now) || released(now);
        if !over(before) {
            self.wait::<H>(Wait::Zero, deadline, || over(flags()) || self.is_saturated());
        }
        let now = flags();
        if another(now) || (released(now) && !self.is_saturated()) {
            return Ok(());
        }
        Err(self.outstanding::<H>())
    }

    /// What is out now.
    pub(crate) fn outstanding<H: Host>(&self) -> Outstanding {
        // One look for all: the end of a kill drops the first reference at any moment.
        let (word, out) = self.look();
        Outstanding {
            about: self.subject::<H>(),
            dying: state::is_dead(word),
            first: state::has_first(word),
            count: out.try_into().unwrap_or(0),
            saturated: state::region(word) == Region::Saturated,
            released: self.has(flag::RELEASED),
            holders: self.holders.list(),
            since: None,
        }
    }

    /// What users hold now: the same without the first reference, of which they need not know.
    pub(crate) fn outstanding_of_users<H: Host>(&self) -> Outstanding {
        let out = self.outstanding::<H>();
        Outstanding { dying: true, first: false, count: out.of_users(), ..out }
    }

    /// As [`PercpuRef::switch_to_percpu`](super::PercpuRef::switch_to_percpu).
    pub(super) fn switch_to_percpu<F: Flavor>(&self) -> Result<(), NotReinitable> {
        let cold = self.slow.lock();
        if !self.has(flag::ALLOW_REINIT) {
            return Err(NotReinitable);
        }
        self.flags().fetch_and(!flag::STICKY, Ordering::Relaxed);
        let opened = !self.has(flag::BUSY) && self.open_again();
        drop(cold);
        if opened {
            self.tell::<F>(Step::ToPercpu);
        }
        Ok(())
    }

    /// As [`PercpuRef::resurrect`](super::PercpuRef::resurrect).
    #[track_caller]
    pub(super) fn resurrect<H: Host>(&self) -> Result<(), ReviveError> {
        let in_callback = is_within(self.key());
        let mut checked = in_callback;
        loop {
            let cold = self.slow.lock();
            let word = self.shared.load(Ordering::Relaxed);
            if !state::is_dead(word) {
                return Err(ReviveError::NotDying);
            }
            if !self.has(flag::ALLOW_REINIT) {
                return Err(ReviveError::NotReinitable);
            }
            if !checked {
                drop(cold);
                self.assert_no_section::<H>("resurrect");
                checked = true;
                continue;
            }
            if self.has(flag::BUSY) && !in_callback {
                drop(cold);
                self.wait_until_idle::<H>();
                continue;
            }
            let opened = self.revive()?;
            drop(cold);
            self.tell_alive::<H::Flavor>(Step::Resurrect, opened);
            return Ok(());
        }
    }

    /// Takes a kill back without waiting for it: if it is still under way, its confirms run in spite of that. For whoever
    /// has given it none, and orders kills and revivals himself. The caller [tells](Self::tell_alive) afterwards; true if
    /// the cells are open now.
    pub(crate) fn resurrect_now(&self) -> Result<bool, ReviveError> {
        let _cold = self.slow.lock();
        self.revive()
    }

    /// Under the lock, for a dead count that may be revived; true if the cells are open now.
    fn revive(&self) -> Result<bool, ReviveError> {
        // Release [T2]: pairs with Acquire [T1] in `tryget_live`.
        self.shared
            .fetch_update(order("T2", Ordering::Release), Ordering::Relaxed, |word| {
                (!state::is_zero(word)).then_some((word & !DEAD) | FIRST)
            })
            .map_err(|_| ReviveError::Released)?;
        // A kill under way has not dropped the first reference yet, and now it will not.
        self.flags().fetch_and(!flag::KILLING, Ordering::Relaxed);
        Ok(!self.has(flag::BUSY) && self.open_again())
    }

    /// Tells that the count is alive again.
    pub(crate) fn tell_alive<F: Flavor>(&self, step: Step, opened: bool) {
        self.tell::<F>(step);
        if opened {
            self.tell::<F>(Step::ToPercpu);
        }
    }

    /// As [`PercpuRef::reinit`](super::PercpuRef::reinit).
    pub(super) fn reinit<F: Flavor>(&self) -> Result<(), ReviveError> {
        let opened = self.reinit_now()?;
        self.tell_alive::<F>(Step::Reinit, opened);
        Ok(())
    }

    /// The same, but the caller [tells](Self::tell_alive) afterwards; true if the cells are open now.
    pub(crate) fn reinit_now(&self) -> Result<bool, ReviveError> {
        let _cold = self.slow.lock();
        if !state::is_dead(self.shared.load(Ordering::Relaxed)) {
            return Err(ReviveError::NotDying);
        }
        if !self.has(flag::ALLOW_REINIT) {
            return Err(ReviveError::NotReinitable);
        }
        // Acquire [W2]: the next life begins after the release of this one.
        if self.flags().load(order("W2", Ordering::Acquire)) & flag::RELEASED == 0 {
            return Err(ReviveError::StillReferenced);
        }
        // Before the word: the first reference can be gone again at once.
        self.flags().fetch_and(!(flag::RELEASING | flag::RELEASED), Ordering::Relaxed);
        // Release [T2]: pairs with Acquire [T1] in `tryget_live`.
        let born = self.shared.compare_exchange(DEAD, FIRST, order("T2", Ordering::Release), Ordering::Relaxed);
        if born.is_err() {
            // Misuse has saturated it.
            self.flags().fetch_or(flag::RELEASING | flag::RELEASED, Ordering::Relaxed);
            return Err(ReviveError::StillReferenced);
        }
        Ok(!self.has(flag::BUSY) && self.open_again())
    }
}

type FlavorOf<H> = <<H as Handle>::Host as Host>::Flavor;

/// Runs the rest of a switch, and gives up with the last reference what the references had together.
fn finish_for<H: Handle>(handle: &H, quiescent: Option<Quiescent>) {
    if finish(handle.host(), quiescent) {
        handle.released();
    }
}

/// Runs the rest of a switch in the callback thread.
pub(crate) fn finish_later<H: Handle>(handle: &H, next: Next) {
    let handle = handle.clone();
    match next {
        Next::Nothing => {}
        Next::GracePeriod => FlavorOf::<H>::after_counters(move |quiescent| finish_for(&handle, Some(quiescent))),
        Next::Finish => FlavorOf::<H>::soon(move || finish_for(&handle, None)),
    }
}

/// Runs the rest of a switch here, or waits for whoever does; true if it released here.
pub(crate) fn finish_here<H: Host>(host: &H, next: Next) -> bool {
    match next {
        Next::Nothing => {
            host.core().wait_until_idle::<H>();
            false
        }
        Next::GracePeriod => finish(host, Some(H::Flavor::wait_for_counters(&|| Some(host.core().subject::<H>())))),
        Next::Finish => finish(host, None),
    }
}

/// Steps 3 to 6 of a switch; true if it released. `quiescent`: the cells were open when it began.
fn finish<H: Host>(host: &H, quiescent: Option<Quiescent>) -> bool {
    let core = host.core();
    if let Some(quiescent) = quiescent {
        core.fold(quiescent);
        core.tell::<H::Flavor>(Step::ToAtomic);
    }
    let mut told = false;
    let ended = loop {
        let mut cold = core.slow.lock();
        let confirms = cold.as_mut().map(|cold| std::mem::take(&mut cold.confirms)).unwrap_or_default();
        if confirms.is_empty() {
            if trace::ON && !told && core.has(flag::KILLING) {
                // Before the first reference goes: the release comes after it.
                drop(cold);
                core.tell::<H::Flavor>(Step::Confirm);
                told = true;
                continue;
            }
            if cold.as_ref().is_some_and(|cold| cold.name.is_none()) {
                *cold = None;
            }
            break core.end_switch();
        }
        drop(cold);
        for confirm in confirms {
            within(core.key(), || contain(|| Some(core.subject::<H>()), confirm));
        }
    };
    core.slow.side.notify_all();
    if ended.opened {
        core.tell::<H::Flavor>(Step::ToPercpu);
    }
    ended.last && release(host)
}

/// As [`PercpuRef::kill_and_confirm`](super::PercpuRef::kill_and_confirm).
pub(crate) fn kill<H: Handle>(handle: &H, confirm: Option<Confirm>) -> Result<(), AlreadyDying> {
    let core = handle.host().core();
    let next = core.begin_kill(confirm).map_err(|_| AlreadyDying)?;
    core.tell::<FlavorOf<H>>(Step::Kill);
    finish_later(handle, next);
    Ok(())
}

/// As [`PercpuRef::kill_sync`](super::PercpuRef::kill_sync).
#[track_caller]
pub(crate) fn kill_sync<H: Host>(host: &H) -> Result<(), AlreadyDying> {
    let core = host.core();
    core.assert_may_wait::<H>("kill_sync");
    let next = core.begin_kill(None).map_err(|_| AlreadyDying)?;
    core.tell::<H::Flavor>(Step::Kill);
    let _released = finish_here(host, next);
    Ok(())
}

/// As [`PercpuRef::switch_to_atomic`](super::PercpuRef::switch_to_atomic).
pub(super) fn switch_to_atomic<H: Handle>(handle: &H, confirm: Confirm) {
    let core = handle.host().core();
    let next = {
        let mut cold = core.slow.lock();
        core.flags().fetch_or(flag::STICKY, Ordering::Relaxed);
        core.begin_switch(&mut cold, Some(confirm))
    };
    finish_later(handle, next);
}

/// As [`PercpuRef::switch_to_atomic_sync`](super::PercpuRef::switch_to_atomic_sync).
#[track_caller]
pub(super) fn switch_to_atomic_sync<H: Host>(host: &H) {
    let core = host.core();
    core.assert_may_wait::<H>("switch_to_atomic_sync");
    loop {
        let next = {
            let mut cold = core.slow.lock();
            core.flags().fetch_or(flag::STICKY, Ordering::Relaxed);
            if !core.has(flag::BUSY) && !core.cells.is_open() {
                return;
            }
            core.begin_switch(&mut cold, None)
        };
        let _released = finish_here(host, next);
    }
}
