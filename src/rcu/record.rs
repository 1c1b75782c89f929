//! The section words of the threads.
//!
//! A thread tells in a word of its own how many sections it is inside of, and which the outermost is: the lower half counts
//! the guards that are alive, the upper half the sections that are over. Only the thread writes it, without a locked
//! instruction; whoever waits for readers looks at all of them. The words are never freed, and pass to a new thread when
//! theirs exits, so there are as many as threads were alive at once.
//!
//! # How the reader gets along without a fence
//!
//! A reader counts itself in and then reads what the section is about; a waiter changes that and then looks at the
//! words. Each side writes one thing and reads another, so both could miss each other if either let its read pass its
//! write. The waiter's [`heavy`] makes every thread run a full fence at that moment. A reader is either past its write
//! then, and the waiter sees it and waits; or it has not come to its write yet, and everything that it reads later is
//! newer than the waiter's change. The reader's [`light`] only keeps the compiler from turning its two steps around.
//!
//! After liburcu's memb flavour.

use super::suspects::{Namer, Suspects};
use crate::sync::{
    AtomicUsize, Backoff, Found, Identity, Lane, Mutex, OnFork, Ordering, fence, global, heavy, identity, light, local,
    order, register_membarrier, set_thread_lanes_in_use,
};
use std::cell::Cell;
use std::hint::cold_path;
use std::time::Duration;

/// The parts of a section word.
mod word {
    /// One more section is over: the upper half.
    const SECTION: usize = 1 << (usize::BITS / 2);
    /// The lower half: how many guards are alive, and [`CARE`].
    const HERE: usize = SECTION - 1;
    /// The thread has more to do at the beginning or end of a section than to count. It is the sign of the lower half, so
    /// one look tells that it is not set.
    pub(super) const CARE: usize = SECTION >> 1;
    /// How many guards are alive.
    pub(super) const GUARDS: usize = CARE - 1;

    /// Whether the thread is in a section.
    #[inline(always)]
    pub(super) fn is_inside(word: usize) -> bool {
        word & GUARDS != 0
    }

    /// Whether it is not, and no care is needed to begin one.
    #[inline(always)]
    pub(super) fn is_idle(word: usize) -> bool {
        word & HERE == 0
    }

    /// Whether it has one guard, and no care is needed.
    #[inline(always)]
    pub(super) fn is_simple(word: usize) -> bool {
        word & HERE == 1
    }

    /// What the word becomes when the section of the last guard is over.
    #[inline(always)]
    pub(super) fn after(word: usize) -> usize {
        word.wrapping_add(SECTION - 1)
    }

    /// Whether a section that was open at the first look is still open at the second.
    pub(super) fn is_same_section(seen: usize, now: usize) -> bool {
        is_inside(now) && section(now) == section(seen)
    }

    /// Which section it is.
    pub(super) fn section(word: usize) -> usize {
        word & !HERE
    }
}

/// A thread's place in the registry.
///
/// Two cache lines, because processors fetch them in pairs: nobody else's word is near.
#[repr(align(128))]
pub(super) struct Record {
    /// See [`word`]. Written by the thread that has the record, read by waiters.
    word: AtomicUsize,
    /// Its place in the registry.
    number: usize,
    /// The thread's lane; of no use if it has none.
    lane: Lane,
    /// If not, there are more threads than lanes, and this one counts on shared words.
    has_lane: bool,
    /// The reader runs the fence itself: the system has no membarrier.
    fence: bool,
}

#[derive(Default)]
struct Registry {
    records: Vec<&'static Record>,
    /// Whose they are, or were last.
    owners: Vec<Identity>,
    /// The numbers of records that no thread has.
    free: Vec<usize>,
}

global! {
    static REGISTRY: Mutex<Registry> = Mutex::new(Registry { records: Vec::new(), owners: Vec::new(), free: Vec::new() });
}

const TOO_MANY: &str = "too many read-side critical sections in one another: were their guards forgotten?";

/// What this thread knows about itself. No destructor: it can be used until the very end of the thread.
struct Here {
    /// [`NOBODY`] until the thread needs one.
    record: Cell<&'static Record>,
    /// Something is to be done when the outermost guard drops: a bit set of the constants below.
    chores: Cell<u8>,
}

/// The record belongs to no exit guard: give it back at the end of the section.
const GIVE_BACK: u8 = 1;
/// Callbacks wait that no thread could be started for.
const CALLBACKS: u8 = 2;

global! {
    /// The record of threads that have none. It asks for care at every step, so that the fast paths need not look whether
    /// there is a record; and nobody ever writes to it.
    static NOBODY: Record = Record {
        word: AtomicUsize::new(word::CARE),
        number: usize::MAX,
        lane: Lane::NONE,
        has_lane: false,
        fence: false,
    };
}

local! {
    static HERE: Here = Here { record: Cell::new(&NOBODY), chores: Cell::new(0) };
}

/// Gives the record back when the thread exits.
struct Exit;

local! {
    static EXIT: Exit = Exit;
}

impl Drop for Exit {
    fn drop(&mut self) {
        let _ = HERE.try_with(|here| {
            if is_in_section() {
                // A guard lives on in another thread-local, or was forgotten.
                here.leave_to_guard(GIVE_BACK);
            } else {
                here.give_back();
            }
        });
    }
}

/// Whether waiters have a membarrier.
pub(super) fn has_membarrier() -> bool {
    static HAS: Found = Found::new();
    HAS.is(|| !super::sched::is_fence_asked_for() && register_membarrier())
}

fn registry() -> &'static Mutex<Registry> {
    static FORKS: OnFork = OnFork::new(|| {
        let mut registry = REGISTRY.lock();
        Box::new(move |in_child| {
            if in_child {
                registry.forget_other_threads();
            }
        })
    });
    FORKS.register();
    &REGISTRY
}

impl Registry {
    /// In a forked child: the other threads, and their sections, are gone.
    fn forget_other_threads(&mut self) {
        let own = HERE.with(|here| here.record.get()).number;
        if let Some(owner) = self.owners.get_mut(own) {
            owner.os_id = identity().os_id;
        }
        self.free.clear();
        for record in self.records.iter().filter(|record| record.number != own) {
            record.word.store(record.idle(), Ordering::Relaxed);
            self.free.push(record.number);
        }
    }

    fn take(&mut self, fence: bool, owner: Identity) -> &'static Record {
        match self.free.pop() {
            Some(number) => {
                self.owners[number] = owner;
                self.records[number]
            }
            None => {
                let number = self.records.len();
                let lane = Lane::new(number);
                let record = Box::leak(Box::new(Record {
                    word: AtomicUsize::new(0),
                    number,
                    lane: lane.unwrap_or(Lane::NONE),
                    has_lane: lane.is_some(),
                    fence,
                }));
                record.word.store(record.idle(), Ordering::Relaxed);
                self.records.push(record);
                self.owners.push(owner);
                set_thread_lanes_in_use(self.records.len());
                record
            }
        }
    }
}

impl Here {
    /// Takes a record for this thread.
    fn take(&self) -> &'static Record {
        let (fence, owner) = (!has_membarrier(), identity());
        let record = registry().lock().take(fence, owner);
        self.record.set(record);
        record
    }

    /// Leaves something to be done when the outermost guard of this thread drops, which it has or is about to make.
    fn leave_to_guard(&self, chore: u8) {
        self.chores.set(self.chores.get() | chore);
        let record = self.record.get();
        let word = record.get();
        // The next guard would carry into the care, which stops it only as long as it is not there yet.
        assert!(word & word::GUARDS < word::GUARDS, "{TOO_MANY}");
        record.set(word | word::CARE, "S5");
    }

    fn give_back(&self) {
        let record = self.record.replace(&NOBODY);
        if !record.is_nobody() {
            registry().lock().free.push(record.number);
        }
    }
}

/// Takes a record that this thread gives back when it exits; [`NOBODY`] if it is exiting.
#[cold]
fn take(here: &Here) -> &'static Record {
    if EXIT.try_with(|_| ()).is_ok() { here.take() } else { &NOBODY }
}

/// Takes a record in any case: a thread that is about to end gives it back with the section.
#[cold]
fn take_for_a_while(here: &Here) -> &'static Record {
    let record = take(here);
    if !record.is_nobody() {
        return record;
    }
    let record = here.take();
    here.leave_to_guard(GIVE_BACK);
    record
}

impl Record {
    /// The word; only for the thread that has the record.
    #[inline(always)]
    fn get(&self) -> usize {
        self.word.load(Ordering::Relaxed)
    }

    /// Which section the thread is in, if it is in one: to be compared, not to be believed.
    pub(super) fn section(&self) -> Option<usize> {
        let word = self.word.load(Ordering::Relaxed);
        word::is_inside(word).then(|| word::section(word))
    }

    /// Writes the word, which only the thread that has the record does: there is no locked instruction.
    ///
    /// Release [S3], at the end of a section: pairs with Acquire [S4]. Whoever sees the section over sees what was done in it.
    /// Release [S5], everywhere else: pairs with Acquire [S4] too. A waiter that finds us in the *next* section sees what the
    /// one before did: the store that ended that one is not the one that he reads.
    #[inline(always)]
    fn set(&self, word: usize, id: &str) {
        self.word.store(word, order(id, Ordering::Release));
    }

    /// Begins a section with the word that is given, or one within it.
    #[inline(always)]
    fn begin(&self, word: usize) {
        self.set(word, "S5");
        // light [S1], the reader's half of the asymmetric fence: pairs with heavy [S2] in `wait_for_readers`.
        // - We come first: the waiter sees the section and waits.
        // - The waiter comes first: we see what it changed.
        light("S1");
    }

    /// The same, for a thread of which something has to be taken care; its record, if this is [`NOBODY`].
    #[cold]
    fn begin_carefully(&'static self, word: usize) -> &'static Record {
        if self.is_nobody() {
            HERE.with(take_for_a_while);
            return read_lock();
        }
        assert!((1..word::GUARDS).contains(&(word & word::GUARDS)), "{TOO_MANY}");
        self.begin(word);
        if self.fence {
            // In the place of light [S1], without a membarrier.
            fence("S1", Ordering::SeqCst);
        }
        self
    }

    /// The same as `after`, for a thread of which something has to be taken care: true if callbacks are to be run now.
    #[inline(never)]
    fn end_carefully(&self, word: usize) -> bool {
        if word & word::GUARDS > 1 {
            self.set(word - 1, "S5");
            return false;
        }
        self.set(word::after(word) & !word::CARE | self.idle(), "S3");
        HERE.with(|here| {
            let chores = here.chores.take();
            if chores & GIVE_BACK != 0 {
                here.give_back();
            }
            chores & CALLBACKS != 0
        })
    }

    fn is_nobody(&self) -> bool {
        self.number == usize::MAX
    }

    /// The lower half of the word outside of sections.
    fn idle(&self) -> usize {
        if self.fence || !self.has_lane { word::CARE } else { 0 }
    }
}

/// Begins a section, or a nested one; the record is this thread's, for [`read_unlock`].
#[inline]
pub(super) fn read_lock() -> &'static Record {
    // Only the looks at the thread-local are in closures: larger ones are not inlined.
    let record = HERE.with(|here| here.record.get());
    let word = record.get().wrapping_add(1);
    if word & word::CARE == 0 {
        record.begin(word);
        record
    } else {
        cold_path();
        record.begin_carefully(word)
    }
}

/// Ends a section that [`read_lock`] began; true if callbacks are to be run now.
#[inline]
pub(super) fn read_unlock(record: &Record) -> bool {
    let word = record.get();
    if word::is_simple(word) {
        record.set(word::after(word), "S3");
        false
    } else if word & word::CARE == 0 {
        record.set(word - 1, "S5");
        false
    } else {
        record.end_carefully(word)
    }
}

/// Runs callbacks when the outermost guard of this thread drops.
pub(super) fn leave_callbacks_to_guard() {
    HERE.with(|here| here.leave_to_guard(CALLBACKS));
}

/// Whether this thread has a guard.
pub(super) fn is_in_section() -> bool {
    word::is_inside(HERE.with(|here| here.record.get()).get())
}

/// Runs `count` inside a section that nothing else can nest in; false if this thread cannot have one, or has no lane.
#[inline(always)]
pub(super) fn count_in_section(count: impl Fn(Lane) -> bool) -> bool {
    let record = HERE.with(|here| here.record.get());
    let word = record.get();
    if !word::is_idle(word) {
        cold_path();
        return count_carefully(count);
    }
    record.begin(word.wrapping_add(1));
    let counted = count(record.lane);
    // The word is not loaded again: it would have to wait for the store.
    record.set(word::after(word.wrapping_add(1)), "S3");
    counted
}

/// The same, for a thread of which something has to be taken care.
#[inline(never)]
fn count_carefully(count: impl Fn(Lane) -> bool) -> bool {
    let mut record = HERE.with(|here| here.record.get());
    if record.is_nobody() {
        record = HERE.with(take);
    }
    if !record.has_lane {
        return false;
    }
    if is_in_section() {
        return count(record.lane);
    }
    let record = read_lock();
    let counted = count(record.lane);
    let callbacks = read_unlock(record);
    debug_assert!(!callbacks, "counting leaves none");
    counted
}

/// Whose records these are, by number.
pub(super) fn identify(records: impl Iterator<Item = (usize, Duration)>) -> Vec<(Identity, Duration)> {
    let registry = registry().lock();
    records.map(|(number, since)| (registry.owners[number].clone(), since)).collect()
}

/// Waits for each section that is open now to end; `name`: what for, in case that it lasts.
pub(super) fn wait_for_readers(name: Namer<'_>) {
    let mut suspects = Suspects::new(name);
    // heavy [S2]: pairs with light [S1] in `light`.
    if has_membarrier() {
        heavy("S2");
    } else {
        fence("S2", Ordering::SeqCst);
    }
    // A thread that registers after this sees the caller's change, because it takes the lock after us. The number of
    // lanes in use, which is written under the lock, covers all others.
    let records = registry().lock().records.clone();
    for (number, record) in records.iter().enumerate() {
        // Acquire [S4]: pairs with Release [S3] and [S5] in `set`.
        let look = || record.word.load(order("S4", Ordering::Acquire));
        let seen = look();
        let mut backoff = Backoff::default();
        while word::is_inside(seen) && word::is_same_section(seen, look()) {
            backoff.snooze();
            if backoff.is_asleep() {
                suspects.look(&records, number);
            }
        }
    }
}
