//! The count itself: get, put and tryget, in a form that other types can embed.
//!
//! Nobody asks whether a count is zero before it is killed. So until then it lives in cells that nobody shares, and only
//! the end of a kill, after a grace period, folds them into the shared word, which can be asked. The fast path is one
//! addition to a cell. Everything else goes to the shared word, which is right in every mode: while cells are open the
//! word has BIAS in it and cannot be zero, so a thread that cannot count in a cell counts there.
//!
//! After lib/percpu-refcount.c of Linux.
#![forbid(unsafe_code)]

use super::state::{self, Got, MAX_N, Put, Region};
use crate::percpu::{Cells, Kind};
use crate::rcu::{Backend, Flavor};
use crate::report::{Report, ReportKind, Subject, contain};
use crate::sync::{AtomicU8, AtomicU64, Event, Ordering, Packed, fence, order, within};
use crate::trace::Step;
use crate::track::Holders;
use std::borrow::Cow;
use std::hint::cold_path;
use std::sync::Arc;

/// What has a count inside, and what becomes of it at zero.
pub(crate) trait Host: Send + Sync + 'static {
    /// The flavour whose sections the count is touched in.
    type Flavor: Flavor;

    /// What messages call one that has no name.
    const WHAT: &'static str;

    /// The count.
    fn core(&self) -> &Core;

    /// Runs when the last reference is gone: once for each life.
    fn release(&self);
}

/// What keeps a host's memory while a switch of it is under way in the callback thread.
pub(crate) trait Handle: Clone + Send + 'static {
    /// What it keeps.
    type Host: Host;

    /// The host.
    fn host(&self) -> &Self::Host;

    /// The switch has dropped the last reference, and the host has been released: what the references had together is
    /// given up.
    fn released(&self) {}
}

impl<H: Host> Handle for Arc<H> {
    type Host = H;

    fn host(&self) -> &H {
        self
    }
}

/// A confirm that waits for the end of a switch.
pub(crate) type Confirm = Box<dyn FnOnce() + Send>;

/// What is needed rarely, and allocated when it is.
#[derive(Default)]
pub(super) struct Cold {
    pub(super) name: Option<Cow<'static, str>>,
    /// In the order in which they were asked for.
    pub(super) confirms: Vec<Confirm>,
}

/// The cells of a count, which lie at its start.
pub(crate) type CountCells = Cells<AtomicU8>;

/// A count. It lies at the start of what the types that count most allocate, so that the fast path finds it there.
///
/// # Invariants
/// 1. The cells are open exactly when BIAS is in `shared` and BUSY is not set; in between, during a switch, the cells
///    are closed and BIAS is still in. (A saturated word has no bias; its cells may be open.)
/// 2. BUSY is set by whoever closes the cells or finds something to confirm; he, or who works for him, calls `finish`.
#[repr(C)]
pub(crate) struct Core {
    pub(super) cells: CountCells,
    /// See [`state`]. Written by slow-path gets and puts of everyone, and by switches under `slow`.
    pub(super) shared: AtomicU64,
    /// Serialises switches. Under it, only the cells' allocator is locked; no user code runs under it. The event
    /// beside it announces changes of the flags.
    pub(super) slow: Packed<Option<Box<Cold>>, Event>,
    /// Who holds the references; nothing unless they are tracked.
    pub(crate) holders: Holders,
}

/// The flags. All are read without a lock; RELEASING, RELEASED and MISUSED are also set without it.
pub(super) mod flag {
    /// A switch is under way: a grace period, or the confirms after it.
    pub(crate) const BUSY: u8 = 1;
    /// The end of the switch drops the first reference.
    pub(crate) const KILLING: u8 = 2;
    /// Stay atomic until `switch_to_percpu`.
    pub(crate) const STICKY: u8 = 4;
    /// The cells are kept for another life.
    pub(crate) const ALLOW_REINIT: u8 = 8;
    /// `release` has begun in this life.
    pub(crate) const RELEASING: u8 = 16;
    /// `release` has returned in this life.
    pub(crate) const RELEASED: u8 = 32;
    /// Misuse has been reported.
    pub(crate) const MISUSED: u8 = 64;
    /// An odd number of lives have ended.
    pub(crate) const ODD_LIVES: u8 = 128;
}

/// The kind of cells that suits a flavour in this process.
pub(super) fn kind_for<F: Flavor>() -> Kind {
    match F::backend() {
        Backend::Epoch => Kind::Thread,
        Backend::Rseq => Kind::Cpu,
        Backend::Membarrier | Backend::Fence => Kind::Lane,
    }
}

impl Core {
    pub(super) fn flags(&self) -> &AtomicU8 {
        self.cells.side()
    }

    pub(crate) fn name(&self) -> Option<Cow<'static, str>> {
        self.slow.lock().as_ref().and_then(|cold| cold.name.clone())
    }

    /// What a message about this count of an `H` is about.
    pub(crate) fn subject<H: Host>(&self) -> Subject {
        Subject::new(H::WHAT, self.name())
    }

    /// Announces that a release has returned, that a switch is over, or that neither will ever happen.
    pub(crate) fn event(&self) -> &Event {
        &self.slow.side
    }

    /// What marks a callback of this count on its thread.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes a reference; the caller holds one.
    #[inline(always)]
    pub(crate) fn get<F: Flavor>(&self) {
        if !self.cells.add::<1>() {
            cold_path();
            self.get_slowly::<F>(1);
        }
    }

    /// Drops a reference in a cell; false if that is to be done [elsewhere](put_elsewhere).
    #[inline(always)]
    pub(crate) fn put_in_cell(&self) -> bool {
        self.cells.add::<-1>()
    }

    /// Takes `n` references; the caller holds one.
    #[inline]
    pub(crate) fn get_many<F: Flavor>(&self, n: usize) {
        match n {
            0 => {}
            1..=MAX_N if self.cells.add_many(n as u64) => {}
            1..=MAX_N => self.get_slowly::<F>(n),
            _ => self.misused(ReportKind::TooMany),
        }
    }

    /// Takes a reference unless none is left.
    #[inline(always)]
    pub(crate) fn tryget<F: Flavor>(&self) -> bool {
        self.cells.add::<1>() || {
            cold_path();
            self.tryget_slowly::<F>(1, false)
        }
    }

    /// Takes `n` references unless none is left.
    #[inline]
    pub(crate) fn tryget_many<F: Flavor>(&self, n: usize) -> bool {
        match n {
            0 => !self.is_zero(),
            1..=MAX_N => self.cells.add_many(n as u64) || self.tryget_slowly::<F>(n, false),
            _ => {
                self.misused(ReportKind::TooMany);
                true
            }
        }
    }

    /// Takes a reference unless a kill has begun.
    #[inline(always)]
    pub(crate) fn tryget_live<F: Flavor>(&self) -> bool {
        self.cells.add::<1>() || {
            cold_path();
            self.tryget_slowly::<F>(1, true)
        }
    }

    /// Takes `n` references, at most [`MAX_N`] and at least one, unless a kill has begun.
    #[inline]
    pub(crate) fn tryget_live_many<F: Flavor>(&self, n: usize) -> bool {
        debug_assert!((1..=MAX_N).contains(&n));
        self.cells.add_many(n as u64) || self.tryget_slowly::<F>(n, true)
    }

    /// Adds to a cell inside a section, where cells are found that way.
    #[inline(always)]
    fn add_in_section<F: Flavor>(&self, n: u64) -> bool {
        // The first look is a hint, to spare a section; the one inside the section decides.
        self.cells.are_open_for_sections()
            && F::count_in_section(move |lane| match lane {
                Some(lane) => self.cells.add_in_lane(lane, n),
                None => self.cells.add_in_thread(n),
            })
    }

    /// Where a sequence could not count: in a section or, failing that, on the shared word.
    #[inline(never)]
    fn get_slowly<F: Flavor>(&self, n: usize) {
        if !self.add_in_section::<F>(n as u64) {
            self.get_shared(n);
        }
    }

    #[inline(never)]
    fn get_shared(&self, n: usize) {
        let units = state::units(n);
        // Relaxed: the caller holds a reference, so nothing is learnt here.
        let old = self.shared.fetch_add(units, Ordering::Relaxed);
        match state::got(old, units) {
            Got::Counted => {}
            Got::Drifted => self.saturate(),
            Got::AfterRelease => self.misused(ReportKind::GetAfterRelease),
            Got::TooMany => self.misused(ReportKind::TooMany),
        }
    }

    #[inline(never)]
    fn tryget_slowly<F: Flavor>(&self, n: usize, live: bool) -> bool {
        self.add_in_section::<F>(n as u64) || self.tryget_shared(n, live)
    }

    #[inline(never)]
    fn tryget_shared(&self, n: usize, live: bool) -> bool {
        let units = state::units(n);
        // Acquire [T1]: pairs with Release [T2] in `reinit` and `resurrect`: who gets into a new life sees its beginning.
        // And with the Release in `begin_kill`: who is refused stays out.
        let acquire = order("T1", Ordering::Acquire);
        let got = self.shared.fetch_update(acquire, acquire, |word| {
            let refused = state::is_zero(word) || (live && state::is_dead(word));
            (!refused).then(|| word.wrapping_add(units))
        });
        match got.map(|old| state::got(old, units)) {
            Err(_) => return false,
            Ok(Got::Counted | Got::AfterRelease) => {}
            Ok(Got::Drifted) => self.saturate(),
            Ok(Got::TooMany) => self.misused(ReportKind::TooMany),
        }
        true
    }

    /// No reference is left. Only a look: `release` may not have run yet.
    pub(crate) fn is_zero(&self) -> bool {
        state::is_zero(self.shared.load(Ordering::Acquire))
    }

    pub(crate) fn is_dying(&self) -> bool {
        state::is_dead(self.shared.load(Ordering::Acquire))
    }

    pub(crate) fn is_saturated(&self) -> bool {
        state::region(self.shared.load(Ordering::Relaxed)) == Region::Saturated
    }

    /// References out now, the first one included; exact if nobody counts meanwhile.
    pub(crate) fn estimate(&self) -> i64 {
        self.look().1
    }

    /// The shared word, and the references out by that word.
    pub(super) fn look(&self) -> (u64, i64) {
        // Under the lock, because the end of a switch may free the cells, and this is no section.
        let _cold = self.slow.lock();
        let word = self.shared.load(Ordering::Relaxed);
        let sum = if state::region(word) == Region::Biased { self.cells.sum() } else { 0 };
        (word, state::estimate(word, sum))
    }

    /// The count has been killed, the kill is over, and one reference is left: the caller's. Nobody can take another but
    /// through the caller.
    ///
    /// Who is told so sees what the others did before they dropped theirs.
    pub(crate) fn is_last(&self) -> bool {
        // Acquire [O1]: pairs with Release [D1] in every put, as the fence of whoever drops the last reference does.
        state::is_last(self.shared.load(order("O1", Ordering::Acquire)))
    }

    /// References that users hold; exact if nobody counts meanwhile. A saturated count tells nothing.
    pub(crate) fn references_of_users(&self) -> u64 {
        // One look for both: the end of a kill drops the first reference at any moment.
        let (word, out) = self.look();
        if state::region(word) == Region::Saturated {
            return 0;
        }
        (out - i64::from(state::has_first(word))).try_into().unwrap_or(0)
    }

    /// Brings a saturated word, or one that has to be, to the middle of its region.
    #[cold]
    fn saturate(&self) {
        let _ = self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(state::saturate(word)));
    }

    /// Saturates the count, reports that once, and wakes those who wait for a release that will never come.
    #[cold]
    pub(super) fn misused(&self, kind: ReportKind) {
        self.saturate();
        if self.flags().fetch_or(flag::MISUSED, Ordering::Relaxed) & flag::MISUSED == 0 {
            self.slow.side.notify_all();
            Report::new(Some(Subject::new("a ref", self.name())), kind).send();
        }
    }
}

/// Drops a reference, and releases if it was the last; true if so.
///
/// A host that lives as long as its references may be gone when this returns false, and after the addition that drops
/// the reference nothing here touches it. Until this returns true it is needed, and then the caller may give it up.
#[inline(always)]
pub(crate) fn put<H: Host>(host: &H) -> bool {
    !host.core().put_in_cell() && {
        cold_path();
        put_elsewhere(host)
    }
}

/// What [`put`] does where the cells are shut.
pub(crate) fn put_elsewhere<H: Host>(host: &H) -> bool {
    put_slowly(host, 1)
}

/// Drops `n` references, and releases if they were the last; true if so.
#[inline]
pub(crate) fn put_many<H: Host>(host: &H, n: usize) -> bool {
    match n {
        0 => false,
        1..=MAX_N if host.core().cells.add_many((n as u64).wrapping_neg()) => false,
        1..=MAX_N => put_slowly(host, n),
        _ => {
            host.core().misused(ReportKind::TooMany);
            false
        }
    }
}

/// Drops `n` references, at least one, and releases if they were the last; true if so. If they cannot be counted in a
/// cell, `closed` runs first, while they are still held.
///
/// So either `closed` runs, or the grace period of the next kill ends after this, and its confirm sees what the caller
/// did before.
#[inline(always)]
pub(crate) fn put_many_unless<H: Host>(host: &H, n: usize, closed: impl FnOnce(&H)) -> bool {
    debug_assert!((1..=MAX_N).contains(&n));
    let counted =
        if n == 1 { host.core().cells.add::<-1>() } else { host.core().cells.add_many((n as u64).wrapping_neg()) };
    !counted && {
        cold_path();
        put_slowly_unless(host, n, closed)
    }
}

#[inline(never)]
fn put_slowly_unless<H: Host>(host: &H, n: usize, closed: impl FnOnce(&H)) -> bool {
    !host.core().add_in_section::<H::Flavor>((n as u64).wrapping_neg()) && {
        closed(host);
        put_shared(host, n)
    }
}

#[inline(never)]
fn put_slowly<H: Host>(host: &H, n: usize) -> bool {
    !host.core().add_in_section::<H::Flavor>((n as u64).wrapping_neg()) && put_shared(host, n)
}

#[inline(never)]
fn put_shared<H: Host>(host: &H, n: usize) -> bool {
    let core = host.core();
    let units = state::units(n);
    // Release [D1]: pairs with the fence [D2] of whoever drops the last reference.
    let old = core.shared.fetch_sub(units, order("D1", Ordering::Release));
    match state::put(old, units) {
        Put::Counted => return false,
        Put::Last => return release(host),
        Put::Drifted => core.saturate(),
        Put::Surplus => core.misused(ReportKind::SurplusPut),
    }
    false
}

/// Releases, when the last reference is gone; false if that had been done before.
///
/// Nothing here takes a lock, because a `put` in a signal handler may end here.
#[cold]
pub(super) fn release<H: Host>(host: &H) -> bool {
    let core = host.core();
    // Acquire [D2]: pairs with Release [D1] in every put: `release` sees what the holders did.
    fence("D2", Ordering::Acquire);
    if core.flags().fetch_or(flag::RELEASING, Ordering::Relaxed) & flag::RELEASING != 0 {
        // It was at zero before, so somebody took a reference on a released ref, and this was its put.
        core.misused(ReportKind::GetAfterRelease);
        return false;
    }
    within(core.key(), || contain(|| Some(core.subject::<H>()), || host.release()));
    core.tell::<H::Flavor>(Step::Release);
    // Release [W1]: pairs with Acquire [W2] in `wait_zero`: the waiter sees what `release` did.
    core.flags().fetch_xor(flag::RELEASED | flag::ODD_LIVES, order("W1", Ordering::Release));
    core.slow.side.notify_all();
    true
}
