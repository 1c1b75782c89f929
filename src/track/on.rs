//! The books: who holds references on one count.
//!
//! A lock and a map for each count: this is for finding a mistake, not for speed.
#![forbid(unsafe_code)]

pub(crate) use super::sections::Section;
pub(crate) use super::tagged::Tagged;
use super::{HolderKind, Holding};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, Packed, global, identity, local};
use std::cell::Cell;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::time::Instant;

/// Where a reference is taken.
#[derive(Clone, Copy)]
pub(crate) struct Origin(pub(super) &'static Location<'static>);

impl Origin {
    #[track_caller]
    pub(crate) const fn here() -> Self {
        Self(Location::caller())
    }
}

/// An entry in the books; 0: none was made.
#[derive(Clone, Copy)]
pub(crate) struct Holder(u64);

/// A reference, or some that were taken at once.
struct Taken {
    kind: HolderKind,
    place: &'static Location<'static>,
    since: Instant,
    /// Who took it: a number, and a name.
    thread: u64,
    name: Option<String>,
    count: usize,
}

impl Taken {
    fn here(kind: HolderKind, origin: Origin, count: usize) -> Self {
        let (thread, name) = (thread_number(), identity().name);
        Self { kind, place: origin.0, since: Instant::now(), thread, name, count }
    }
}

/// # Invariants
/// 1. `by_thread` has the keys of `by_hand`, those of each thread in order.
#[derive(Default)]
struct Books {
    /// The key of the last entry: they are numbered as they come.
    last: u64,
    /// Those whose guard or handle knows its key.
    by_guard: BTreeMap<u64, Taken>,
    /// Those of pages, by their addresses: a page has no room for a key.
    by_page: BTreeMap<usize, Taken>,
    /// Those taken by hand.
    by_hand: BTreeMap<u64, Taken>,
    by_thread: HashMap<u64, VecDeque<u64>>,
    /// Puts by hand that found nothing to cross out.
    unmatched: usize,
}

/// The books of one count.
pub(crate) struct Holders {
    books: Packed<Books, ()>,
    /// Gets and puts by hand of signal handlers that interrupted their own thread's bookkeeping, and gets that there was no
    /// memory to write down.
    missed_gets: AtomicUsize,
    missed_puts: AtomicUsize,
}

impl Default for Holders {
    fn default() -> Self {
        Self {
            books: Packed::new(Books::default(), ()),
            missed_gets: AtomicUsize::new(0),
            missed_puts: AtomicUsize::new(0),
        }
    }
}

local! {
    /// This thread is in the books: a signal handler that interrupts it there must not wait for it.
    static BUSY: Cell<bool> = Cell::new(false);
}
local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}
global! {
    static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
}

/// A number that no other thread has had.
fn thread_number() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

global! {
    /// How many entries to do without before memory is asked for again.
    static DO_WITHOUT: AtomicUsize = AtomicUsize::new(0);
}

/// Whether there is memory for an entry: a get must not fail for want of it. The standard library's map cannot tell; and
/// where there is none, to be told so takes an allocator long.
fn has_room() -> bool {
    const A_WHILE: usize = 1000;
    // Relaxed: only the number matters.
    let one_less = |n: usize| n.checked_sub(1);
    if DO_WITHOUT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        return false;
    }
    let has_room = Vec::<u8>::new().try_reserve_exact(4096).is_ok();
    if !has_room {
        DO_WITHOUT.store(A_WHILE, Ordering::Relaxed);
    }
    has_room
}

impl Holders {
    /// Opens the books, unless this thread has them open.
    fn with<R>(&self, work: impl FnOnce(&mut Books) -> R) -> Option<R> {
        if BUSY.with(|busy| busy.replace(true)) {
            return None;
        }
        let mut books = self.books.lock();
        // Relaxed: only the number matters.
        books.put(None, self.missed_puts.swap(0, Ordering::Relaxed), &self.missed_gets);
        let result = work(&mut books);
        drop(books);
        BUSY.with(|busy| busy.set(false));
        Some(result)
    }

    /// Writes down that a guard or handle holds a reference.
    pub(crate) fn hold(&self, kind: HolderKind, origin: Origin) -> Holder {
        let key = self.with(|books| {
            if !has_room() {
                return 0;
            }
            books.last += 1;
            books.by_guard.insert(books.last, Taken::here(kind, origin, 1));
            books.last
        });
        Holder(key.unwrap_or(0))
    }

    /// Crosses it out.
    pub(crate) fn let_go(&self, holder: Holder) {
        if holder.0 != 0 {
            // What was crossed out is dropped after the books are closed. A handler that drops a guard while its own thread has
            // them open leaves the entry behind.
            drop(self.with(|books| books.by_guard.remove(&holder.0)));
        }
    }

    /// Writes down that a page that a user has holds a reference.
    pub(crate) fn hold_page(&self, address: usize, origin: Origin) {
        self.with(|books| {
            if has_room() {
                books.by_page.insert(address, Taken::here(HolderKind::Page, origin, 1));
            }
        });
    }

    /// Crosses it out, if it is there.
    pub(crate) fn let_go_page(&self, address: usize) {
        drop(self.with(|books| books.by_page.remove(&address)));
    }

    /// Writes down `n` gets by hand.
    pub(crate) fn get(&self, n: usize, origin: Origin) {
        if n == 0 {
            return;
        }
        let done = self.with(|books| {
            if !has_room() || books.by_thread.try_reserve(1).is_err() {
                return false;
            }
            let of_thread = books.by_thread.entry(thread_number()).or_default();
            if of_thread.try_reserve(1).is_err() {
                return false;
            }
            books.last += 1;
            of_thread.push_back(books.last);
            books.by_hand.insert(books.last, Taken::here(HolderKind::Get, origin, n));
            true
        });
        if done != Some(true) {
            self.missed_gets.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Crosses out `n` gets by hand. A put does not say which get it belongs to, so this is a rule: the newest of the
    /// same thread, or else the oldest of all. A thread that puts what it has got itself usually does so last in, first
    /// out; references that are put elsewhere usually were handed on first in, first out.
    pub(crate) fn put(&self, n: usize) {
        if n == 0 {
            return;
        }
        let done = self.with(|books| books.put(Some(thread_number()), n, &self.missed_gets));
        if done.is_none() {
            self.missed_puts.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Who holds references, the oldest first.
    pub(crate) fn list(&self) -> List {
        let now = Instant::now();
        let list = self.with(|books| {
            let mut list: BTreeMap<_, Holding> = BTreeMap::new();
            for taken in books.by_guard.values().chain(books.by_page.values()).chain(books.by_hand.values()) {
                let Taken { kind, place, since, name, count, .. } = taken;
                let (count, oldest) = (*count as u64, now.saturating_duration_since(*since));
                match list.entry((*kind, place.file(), place.line(), place.column())) {
                    Entry::Vacant(entry) => {
                        let (kind, place, thread) = (*kind, Some(*place), name.clone());
                        entry.insert(Holding { kind, place, count, oldest, thread });
                    }
                    Entry::Occupied(entry) => {
                        let holding = entry.into_mut();
                        holding.count = holding.count.saturating_add(count);
                        if oldest > holding.oldest {
                            (holding.oldest, holding.thread) = (oldest, name.clone());
                        }
                    }
                }
            }
            (list, books.unmatched as u64)
        });
        let Some((list, unmatched)) = list else { return List::default() };
        let mut holders: Vec<_> = list.into_values().collect();
        holders.sort_by_key(|holding| std::cmp::Reverse(holding.oldest));
        let missed = self.missed_gets.load(Ordering::Relaxed) as u64;
        if missed > 0 {
            let (kind, oldest) = (HolderKind::Get, std::time::Duration::ZERO);
            holders.push(Holding { kind, place: None, count: missed, oldest, thread: None });
        }
        List { holders, unmatched }
    }
}

impl Books {
    /// Crosses out `n` gets by hand; `thread`: whose are to be preferred.
    fn put(&mut self, thread: Option<u64>, mut n: usize, missed: &AtomicUsize) {
        while n > 0 {
            let own = thread.and_then(|thread| self.by_thread.get(&thread)?.back());
            let key = own.or_else(|| self.by_hand.first_key_value().map(|(key, _)| key)).copied();
            let Some((key, taken)) = key.and_then(|key| Some((key, self.by_hand.get_mut(&key)?))) else { break };
            if taken.count > n {
                taken.count -= n;
                return;
            }
            n -= taken.count;
            let thread = taken.thread;
            self.by_hand.remove(&key);
            self.forget(key, thread);
        }
        // Relaxed: only the number matters.
        let from_missed =
            missed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |gets| Some(gets.saturating_sub(n)));
        self.unmatched = self.unmatched.saturating_add(n - n.min(from_missed.unwrap_or(0)));
    }

    /// Keeps the invariant, when the newest of its thread, or the oldest of all and so of its thread too, has gone.
    fn forget(&mut self, key: u64, thread: u64) {
        let Some(keys) = self.by_thread.get_mut(&thread) else { return };
        if keys.back() == Some(&key) {
            keys.pop_back();
        } else {
            keys.pop_front();
        }
        if keys.is_empty() {
            self.by_thread.remove(&thread);
        }
    }
}

/// Who holds references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    holders: Vec<Holding>,
    unmatched: u64,
}

impl List {
    pub(crate) fn holders(&self) -> &[Holding] {
        &self.holders
    }

    pub(crate) fn unmatched_puts(&self) -> u64 {
        self.unmatched
    }

    /// What to say of the holders of so many references: a line for each place.
    pub(crate) fn told(&self, _references: u64) -> impl fmt::Display {
        fmt::from_fn(|f| {
            self.holders.iter().try_for_each(|holding| write!(f, "\n  {holding}"))?;
            match self.unmatched {
                0 => Ok(()),
                1 => f.write_str(
                    "\n  (1 put by hand belongs to none of the gets by hand: to a forgotten guard, perhaps)",
                ),
                n => {
                    write!(f, "\n  ({n} puts by hand belong to none of the gets by hand: to forgotten guards, perhaps)")
                }
            }
        })
    }
}
