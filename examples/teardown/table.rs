//! What the job found, for people and as JSON.

use crate::{Outcome, counted::Kind};
use serde_json::{Value, json};
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

    fn of_interest(&self) -> [Duration; 3] {
        [self.at(50), self.at(99), self.at(100)]
    }

    fn to_json(&self) -> Value {
        let [median, p99, max] = self.of_interest().map(|time| time.as_nanos() as u64);
        json!({ "median_ns": median, "p99_ns": p99, "max_ns": max })
    }
}

/// At least three digits that count, in the unit that suits.
fn human(time: Duration) -> String {
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
pub(crate) fn print(outcomes: &[(Kind, Outcome)], threads: usize) {
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
        println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
        if i == 0 {
            println!("  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
        }
    }
    println!();
    println!(
        "  alone, all threads  one get and put on the live index in a tight loop: one thread, and {threads} at once"
    );
    println!("  kill to confirm     from the kill until nobody gets in any more (median, p99, max)");
    println!(
        "  kill to release     from the kill until the last look-up is out and the index released (median, p99, max)"
    );
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
pub(crate) fn print_books(outcomes: &[(Kind, Outcome)]) {
    for (kind, outcome) in outcomes {
        let books = &outcome.books;
        println!(
            "  {:<6} {} gets, {} puts; {} indexes, {} releases; {} entered after confirm, {} used after release",
            kind.name(),
            grouped(books.gets),
            grouped(books.puts),
            outcome.teardowns,
            outcome.releases,
            books.late,
            books.dead
        );
    }
}
