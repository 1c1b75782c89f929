//! Who holds a grace period up.
//!
//! A section word tells whether its thread is in a section, and which; it does not tell since when. So a waiter whose wait
//! has become a long one notes each open section and the time at which it first saw it. When the wait is overdue, the
//! threads that are still in the same one are named. Readers have no part in this.

use super::record::{self, Record};
use super::{Sched, Sealed};
use crate::report::{Stall, Subject, Watch};
use crate::sync::now;
use std::time::Instant;

/// Tells what a wait is about; asked when the wait is overdue.
pub(crate) type Namer<'a> = &'a dyn Fn() -> Option<Subject>;

/// For a wait that is about no ref.
pub(crate) fn nobody() -> Option<Subject> {
    None
}

/// A wait for readers that has a clock.
pub(super) struct Suspects<'a> {
    name: Namer<'a>,
    watch: Watch,
    /// For each record, the section seen last, and when it was seen first.
    seen: Vec<Option<(usize, Instant)>>,
}

impl<'a> Suspects<'a> {
    pub(super) fn new(name: Namer<'a>) -> Self {
        Self { name, watch: Watch::start(), seen: Vec::new() }
    }

    /// To be called now and then, under no lock, by who waits for number `at` of `records` and later for the rest.
    #[cold]
    pub(super) fn look(&mut self, records: &[&Record], at: usize) {
        let Some(now) = now() else { return };
        self.seen.resize(records.len(), None);
        for (seen, record) in self.seen.iter_mut().zip(records).skip(at) {
            let section = record.section();
            if seen.map(|(section, _)| section) != section {
                *seen = section.map(|section| (section, now));
            }
        }
        if let Some(waited) = self.watch.overdue() {
            let held_up = self.seen.iter().enumerate().skip(at).filter_map(|(number, seen)| {
                let since = now - (*seen)?.1;
                // Whoever came much later is not what this wait has waited for.
                (number == at || since >= waited / 2).then_some((number, since))
            });
            Stall::of_sections(Sched::NAME, waited, record::identify(held_up)).send((self.name)());
        }
    }
}
