//! Which sections are open, and where they began.
//!
//! The word of a thread tells a waiter that it is in a section of `Sched`, but not where that began; and of `Plain`,
//! crossbeam-epoch tells nothing at all. So here each outermost and nested section is written down.
#![forbid(unsafe_code)]

use super::Origin;
use crate::sync::{Identity, Mutex, OnFork, global, identity};
use std::collections::BTreeMap;
use std::panic::Location;
use std::time::{Duration, Instant};

/// An open section's entry.
#[derive(Clone, Copy)]
pub(crate) struct Section(u64);

struct Entry {
    flavor: &'static str,
    place: &'static Location<'static>,
    since: Instant,
    who: Identity,
}

#[derive(Default)]
struct Open {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

global! {
    /// No user code runs under its lock.
    static OPEN: Mutex<Open> = Mutex::new(Open { last: 0, entries: BTreeMap::new() });
}

fn open() -> &'static Mutex<Open> {
    static FORKS: OnFork = OnFork::new(|| {
        let parent = identity().os_id;
        let mut open = OPEN.lock();
        Box::new(move |in_child| {
            if in_child {
                // The other threads, and their sections, are gone; and this one has another number.
                open.entries.retain(|_, entry| entry.who.os_id == parent);
                open.entries.values_mut().for_each(|entry| entry.who.os_id = identity().os_id);
            }
        })
    });
    FORKS.register();
    &OPEN
}

impl Section {
    /// Writes down that a section of this thread begins.
    pub(crate) fn begin(flavor: &'static str, origin: Origin) -> Self {
        let entry = Entry { flavor, place: origin.0, since: Instant::now(), who: identity() };
        let mut open = open().lock();
        open.last += 1;
        let key = open.last;
        open.entries.insert(key, entry);
        Self(key)
    }

    /// Crosses it out.
    pub(crate) fn end(self) {
        let entry = open().lock().entries.remove(&self.0);
        drop(entry);
    }

    /// The sections of a flavour that have been open for at least this long: by whom, for how long, and since which place.
    pub(crate) fn open_for(
        flavor: &str,
        limit: Duration,
    ) -> Vec<(Identity, Duration, Option<&'static Location<'static>>)> {
        let now = Instant::now();
        let open = open().lock();
        let of_flavor = open.entries.values().filter(|entry| entry.flavor == flavor);
        let aged = of_flavor.map(|entry| (entry.who.clone(), now - entry.since, Some(entry.place)));
        aged.filter(|(_, age, _)| *age >= limit).collect()
    }
}
