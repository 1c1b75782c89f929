//! What the job found, for people and as JSON.

use crate::{Outcome, counted::Kind};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

/// Times, sorted.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that `percent` of all do not exceed; zero if there are none.
    fn at(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// Median, p99 and maximum. Of fewer than a hundred, no p99 can be told from the maximum.
    fn of_interest(&self) -> [Option<Duration>; 3] {
        [Some(self.at(50)), (self.0.len() >= 100).then(|| self.at(99)), Some(self.at(100))]
    }

    fn to_json(&self) -> Value {
        let [median, p99, max] = self.of_interest().map(|time| time.map(|time| time.as_nanos() as u64));
        json!({ "median_ns": median, "p99_ns": p99, "max_ns": max })
    }
}

/// At least three digits that count, in the unit that suits.
fn human(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".into() };
    match time.as_nanos() {
        nanos @ 0..1_000 => format!("{nanos} ns"),
        nanos @ 1_000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        nanos => format!("{:.2} ms", nanos as f64 / 1e6),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const HEAD: [&str; 11] = [
    "count",
    "backend",
    "look-ups",
    "alone",
    "all threads",
    "teardowns",
    "kill to confirm",
    "p99",
    "max",
    "kill to release",
    "p99 / max",
];

/// Prints the table, and what its columns mean.
pub(crate) fn print(out: &mut impl Write, outcomes: &[(Kind, Outcome)], threads: usize) -> io::Result<()> {
    let mut rows = vec![HEAD.map(String::from).to_vec()];
    for (kind, outcome) in outcomes {
        let [confirm, confirm_p99, confirm_max] = outcome.confirm.of_interest().map(human);
        let [release, release_p99, release_max] = outcome.release.of_interest().map(human);
        rows.push(vec![
            kind.name().into(),
            kind.backend(),
            grouped(outcome.books.lookups),
            format!("{:.1} ns", outcome.alone),
            format!("{:.1} ns", outcome.together),
            grouped(outcome.teardowns),
            confirm,
            confirm_p99,
            confirm_max,
            release,
            format!("{release_p99} / {release_max}"),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        if i == 0 {
            writeln!(out, "  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)))?;
        }
    }
    writeln!(
        out,
        "
  alone, all threads  one get and put on the live index in a tight loop: one thread, and {threads} at once
  (all threads)       says little while other programs keep the CPUs busy: the threads hardly meet then
  kill to confirm     from the kill until nobody gets in any more (median, p99, max). Arc: a flag that each newcomer
                      looks at. The others: no flag, but a grace period, which another thread waits for; with every
                      CPU busy looking up, that thread has to be scheduled first. `kill_sync` waits for it in place
  kill to release     from the kill until the last look-up is out and the index released (median, p99, max)
  p99                 only of a hundred teardowns or more"
    )
}

/// The same as JSON.
pub(crate) fn to_json(outcomes: &[(Kind, Outcome)]) -> Value {
    let rows = outcomes.iter().map(|(kind, outcome)| {
        let books = &outcome.books;
        json!({
            "count": kind.name(),
            "backend": kind.backend(),
            "lookups": books.lookups,
            "hits": books.hits,
            "turned_away": books.turned_away,
            "get_put_ns": { "alone": outcome.alone, "all_threads": outcome.together },
            "teardowns": outcome.teardowns,
            "kill_to_confirm": outcome.confirm.to_json(),
            "kill_to_release": outcome.release.to_json(),
            "books": {
                "gets": books.gets,
                "puts": books.puts,
                "indexes": outcome.teardowns,
                "releases": outcome.releases,
                "entered_after_confirm": books.late,
                "used_after_release": books.dead,
                "reports": outcome.reports,
                "balance": outcome.mistakes().is_empty(),
            },
        })
    });
    rows.collect()
}

/// What the books say: one line for each count.
pub(crate) fn print_books(out: &mut impl Write, outcomes: &[(Kind, Outcome)]) -> io::Result<()> {
    for (kind, outcome) in outcomes {
        let books = &outcome.books;
        writeln!(
            out,
            "  {:<6} {} gets, {} puts; {} indexes, {} releases; {} entered after confirm, {} used after release",
            kind.name(),
            grouped(books.gets),
            grouped(books.puts),
            outcome.teardowns,
            outcome.releases,
            books.late,
            books.dead
        )?;
    }
    Ok(())
}
