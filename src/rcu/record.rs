//! The section words of the threads.
//!
//! A thread tells in a word of its own whether it is inside a section: the word is odd while it is. Only the thread
//! writes it, without a locked instruction; whoever waits for readers looks at all of them. The words are never freed,
//! and pass to a new thread when theirs exits, so there are as many as threads were alive at once.
//!
//! # How the reader gets along without a fence
//!
//! A reader makes its word odd and then reads what the section is about; a waiter changes that and then looks at the
//! words. Each side writes one thing and reads another, so both could miss each other if either let its read pass its
//! write. The waiter's [`heavy`] makes every thread run a full fence at that moment. A reader is either past its write
//! then, and the waiter sees it and waits; or it has not come to its write yet, and everything that it reads later is
//! newer than the waiter's change. The reader's [`light`] only keeps the compiler from turning its two steps around.
//!
//! After liburcu's memb flavour.

use super::suspects::{Namer, Suspects};
use crate::sync::{
    AtomicU8, AtomicUsize, Backoff, Found, Identity, Lane, Mutex, OnFork, Ordering, fence, global, heavy, identity,
    light, local, order, register_membarrier, set_thread_lanes_in_use,
};
use std::cell::Cell;
use std::time::Duration;

/// A thread's place in the registry.
///
/// Two cache lines, because processors fetch them in pairs: nobody else's word is near.
#[repr(align(128))]
pub(super) struct Record {
    /// Odd inside a section. Written by the thread that has the record, read by waiters.
    word: AtomicUsize,
    /// Its place in the registry.
    number: usize,
    /// The thread's lane; of no use with [`NO_LANE`].
    lane: Lane,
    /// What a section has to do that is usually not needed: a bit set of [`FENCE`], [`STEP`] and
    /// [`NO_LANE`]. Read by the thread that
    /// has the record, written by waiters under no lock.
    extra: AtomicU8,
}

/// The reader runs the fence itself: the system has no membarrier.
const FENCE: u8 = 1;
/// A waiter looks at the word and has to see it change.
const STEP: u8 = 2;
/// There are more threads than lanes: this one counts on shared words.
const NO_LANE: u8 = 4;

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

/// What this thread knows about itself. No destructor: it can be used until the very end of the thread.
struct Here {
    record: Cell<Option<&'static Record>>,
    /// How many guards are alive.
    depth: Cell<usize>,
    /// Something is to be done when the outermost guard drops: a bit set of the constants below.
    chores: Cell<u8>,
}

/// The record belongs to no exit guard: give it back at the end of the section.
const GIVE_BACK: u8 = 1;
/// Callbacks wait that no thread could be started for.
const CALLBACKS: u8 = 2;

local! {
    static HERE: Here = Here { record: Cell::new(None), depth: Cell::new(0), chores: Cell::new(0) };
}

/// Gives the record back when the thread exits.
struct Exit;

local! {
    static EXIT: Exit = Exit;
}

impl Drop for Exit {
    fn drop(&mut self) {
        let _ = HERE.try_with(|here| {
            if here.depth.get() == 0 {
                give_back(here);
            } else {
                // A guard lives on in another thread-local, or was forgotten.
                here.chores.set(here.chores.get() | GIVE_BACK);
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
        let own = HERE.with(|here| here.record.get().map(|record| record.number));
        if let Some(own) = own {
            self.owners[own].os_id = identity().os_id;
        }
        self.free.clear();
        for record in self.records.iter().filter(|record| Some(record.number) != own) {
            record.word.store(0, Ordering::Relaxed);
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
                let word = AtomicUsize::new(0);
                let number = self.records.len();
                let (lane, no_lane) = match Lane::new(number) {
                    Some(lane) => (lane, 0),
                    None => (Lane::default(), NO_LANE),
                };
                let extra = AtomicU8::new(no_lane | if fence { FENCE } else { 0 });
                let record = Box::leak(Box::new(Record { word, number, lane, extra }));
                self.records.push(record);
                self.owners.push(owner);
                set_thread_lanes_in_use(self.records.len());
                record
            }
        }
    }
}

/// Takes a record for this thread, if it may keep one.
#[cold]
fn take(here: &Here) -> Option<&'static Record> {
    if EXIT.try_with(|_| ()).is_err() {
        return None;
    }
    let (fence, owner) = (!has_membarrier(), identity());
    let record = registry().lock().take(fence, owner);
    here.record.set(Some(record));
    Some(record)
}

#[cold]
fn give_back(here: &Here) {
    if let Some(record) = here.record.take() {
        registry().lock().free.push(record.number);
    }
}

impl Record {
    /// Begins or ends a section: the word becomes odd or even. It is one addition to memory, whose result is not looked at
    /// here: the processor can then begin the next one before this one is in the cache.
    ///
    /// Release [S3], at the end: pairs with Acquire [S4]. Whoever sees the section over sees what was done in it.
    /// Release [S5], at the beginning: pairs with Acquire [S4] too. A waiter that finds us in the *next* section sees what
    /// the one before did: the store that ended that one is not the one that he reads.
    #[inline(always)]
    fn step(&self, id: &str) {
        self.word.store(self.word.load(Ordering::Relaxed).wrapping_add(1), order(id, Ordering::Release));
    }

    /// The word, if it is odd: to be compared, not to be believed. It will change with the next section.
    pub(super) fn odd_word(&self) -> Option<usize> {
        let word = self.word.load(Ordering::Relaxed);
        (word % 2 == 1).then(|| {
            self.extra.fetch_or(STEP, Ordering::Relaxed);
            word
        })
    }

    /// The reader's half of the asymmetric fence.
    #[inline(always)]
    fn light(&self) {
        // light [S1]: pairs with heavy [S2] in `wait_for_readers`.
        // - We come first: the waiter sees an odd word and waits.
        // - The waiter comes first: we see what it changed.
        if self.extra.load(Ordering::Relaxed) & FENCE != 0 {
            fence("S1", Ordering::SeqCst);
        } else {
            light("S1");
        }
    }
}

/// Begins a section, or a nested one; the record is this thread's, for [`read_unlock`].
#[inline]
pub(super) fn read_lock() -> &'static Record {
    HERE.with(|here| {
        let record = here.record.get().unwrap_or_else(|| take_for_a_while(here));
        let depth = here.depth.get();
        here.depth.set(depth + 1);
        if depth == 0 {
            record.step("S5");
            record.light();
        }
        record
    })
}

/// A record for a thread that is about to end: it is given back with the section.
#[cold]
fn take_for_a_while(here: &Here) -> &'static Record {
    take(here).unwrap_or_else(|| {
        let (fence, owner) = (!has_membarrier(), identity());
        let record = registry().lock().take(fence, owner);
        here.record.set(Some(record));
        here.chores.set(here.chores.get() | GIVE_BACK);
        record
    })
}

/// Ends a section that [`read_lock`] began; true if callbacks are to be run now.
#[inline]
pub(super) fn read_unlock(record: &Record) -> bool {
    HERE.with(|here| {
        let depth = here.depth.get() - 1;
        here.depth.set(depth);
        depth == 0 && {
            record.step("S3");
            here.chores.get() != 0 && do_chores(here)
        }
    })
}

#[cold]
fn do_chores(here: &Here) -> bool {
    let chores = here.chores.take();
    if chores & GIVE_BACK != 0 {
        give_back(here);
    }
    chores & CALLBACKS != 0
}

/// Runs callbacks when the outermost guard of this thread drops.
pub(super) fn leave_callbacks_to_guard() {
    HERE.with(|here| here.chores.set(here.chores.get() | CALLBACKS));
}

/// Whether this thread has a guard.
pub(super) fn is_in_section() -> bool {
    HERE.with(|here| here.depth.get() > 0)
}

/// Runs `count` inside a section that nothing else can nest in; false if this thread cannot have one, or has no lane.
#[inline(always)]
pub(super) fn count_in_section(count: impl Fn(Lane) -> bool) -> bool {
    // Only the looks at the thread-local are in closures: larger ones are not inlined.
    let (record, depth) = HERE.with(|here| (here.record.get(), here.depth.get()));
    let Some(record) = record else { return count_carefully(count) };
    if record.extra.load(Ordering::Relaxed) != 0 || depth != 0 {
        return count_carefully(count);
    }
    // Release [S5], light [S1], Release [S3]: as in `step` and `light`. Constants, because an addition would have to wait
    // for the one before, twice in each section; so the word is the same in every such section, and a waiter who keeps
    // finding it odd asks for steps.
    record.word.store(1, order("S5", Ordering::Release));
    light("S1");
    let counted = count(record.lane);
    record.word.store(0, order("S3", Ordering::Release));
    counted
}

/// The same, for a thread of which something has to be taken care.
#[inline(never)]
fn count_carefully(count: impl Fn(Lane) -> bool) -> bool {
    let Some(record) = HERE.with(|here| here.record.get().or_else(|| take(here))) else { return false };
    if record.extra.load(Ordering::Relaxed) & NO_LANE != 0 {
        return false;
    }
    if is_in_section() {
        return count(record.lane);
    }
    record.step("S5");
    record.light();
    let counted = count(record.lane);
    record.step("S3");
    counted
}

/// Whose records these are, by number.
pub(super) fn identify(records: impl Iterator<Item = (usize, Duration)>) -> impl Iterator<Item = (Identity, Duration)> {
    let registry = registry().lock();
    let identified: Vec<_> = records.map(|(number, since)| (registry.owners[number].clone(), since)).collect();
    identified.into_iter()
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
        // Acquire [S4]: pairs with Release [S3] and [S5] in `step`.
        let seen = record.word.load(order("S4", Ordering::Acquire));
        let mut backoff = Backoff::default();
        while seen % 2 == 1 && record.word.load(order("S4", Ordering::Acquire)) == seen {
            // A thread that counts all the time may be in another section at each look: have it make a difference.
            record.extra.fetch_or(STEP, Ordering::Relaxed);
            backoff.snooze();
            if backoff.is_asleep() {
                suspects.look(&records, number);
            }
        }
        // If another waiter still wants it, he sets it again at his next look.
        if record.extra.load(Ordering::Relaxed) & STEP != 0 {
            record.extra.fetch_and(!STEP, Ordering::Relaxed);
        }
    }
}
