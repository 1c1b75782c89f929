//! The changes that the kernel's history claims something for, each as old against new in one process.
//!
//! Rows of 2017 and 2021 have the new rule as "ours" and the old one as its rival; the rows after them go one step further,
//! from the kernel's rule to the credit rule of this crate. The last row compares a thing with itself: differences as
//! small as that one mean nothing. The microbenchmark of 2013 is in the group `read_section`. Every element is compared with
//! what was produced.

use crate::harness::{Contender, measure, pin};
use crate::item::{Item, item};
use crate::row::{Goal, Row};
use percpu_ref::ptr_ring::{Clearing, PtrRing, spsc_with_clearing};
use std::hint::spin_loop;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Slots, as in the kernel's selftest.
const SIZE: usize = 1000;
/// Elements consumed at a time where that is what is measured.
const BATCH: usize = 64;

/// Passes so many elements by a rule of clearing, or of order, and tells how long that took.
type Pass<Rule> = fn(Rule, u64) -> Duration;

/// One element in and out at a time, by handles.
fn alone(clearing: Clearing, n: u64) -> Duration {
    let (mut tx, mut rx) = spsc_with_clearing(SIZE, clearing).expect("a ring");
    let begin = Instant::now();
    for i in 0..n {
        tx.produce(item(i)).expect("room");
        assert_eq!(rx.consume(), Some(item(i)));
    }
    begin.elapsed()
}

/// The producer fills whatever room it sees, so that it meets the consumer's line all the time.
fn nearly_full(clearing: Clearing, n: u64) -> Duration {
    let (mut tx, mut rx) = spsc_with_clearing(SIZE, clearing).expect("a ring");
    let mut next = 0;
    let begin = Instant::now();
    for i in 0..n {
        while tx.produce(item(next)).is_ok() {
            next += 1;
        }
        assert_eq!(rx.consume(), Some(item(i)));
    }
    begin.elapsed()
}

/// The same, but what is consumed is taken in batches.
fn nearly_full_batched(clearing: Clearing, n: u64) -> Duration {
    let (mut tx, mut rx) = spsc_with_clearing(SIZE, clearing).expect("a ring");
    let (mut out, mut next, mut taken) = (Vec::with_capacity(BATCH), 0, 0);
    let begin = Instant::now();
    while taken < n {
        while tx.produce(item(next)).is_ok() {
            next += 1;
        }
        rx.consume_batch(&mut out, BATCH);
        for got in out.drain(..) {
            assert_eq!(got, item(taken));
            taken += 1;
        }
    }
    begin.elapsed()
}

/// One element in and out at a time, under the locks.
fn locked(head_first: bool, n: u64) -> Duration {
    let ring = PtrRing::<Item>::with_order(SIZE, Clearing::Kernel, head_first).expect("a ring");
    let begin = Instant::now();
    for i in 0..n {
        ring.produce(item(i)).expect("room");
        assert_eq!(ring.consume(), Some(item(i)));
    }
    begin.elapsed()
}

/// A producer on another CPU, and this thread as the consumer; the clock runs while it consumes.
fn across(n: u64, mut produce: impl FnMut(Item) -> bool + Send, consume: impl FnOnce(u64)) -> Duration {
    let start = Barrier::new(2);
    thread::scope(|s| {
        s.spawn(|| {
            pin(1);
            start.wait();
            for i in 0..n {
                let mut tries = 0_u32;
                while !produce(item(i)) {
                    relax(&mut tries);
                }
            }
        });
        start.wait();
        let begin = Instant::now();
        consume(n);
        begin.elapsed()
    })
}

/// Waits for the other side, which may need this CPU.
fn relax(tries: &mut u32) {
    *tries += 1;
    if tries.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
}

/// Takes `n` elements from `next`, one at a time, and checks them.
fn drain(n: u64, mut next: impl FnMut() -> Option<Item>) {
    for i in 0..n {
        let mut tries = 0;
        let got = loop {
            match next() {
                Some(got) => break got,
                None => relax(&mut tries),
            }
        };
        assert_eq!(got, item(i));
    }
}

fn two_threads(clearing: Clearing, n: u64) -> Duration {
    let (mut tx, mut rx) = spsc_with_clearing(SIZE, clearing).expect("a ring");
    across(n, |p| tx.produce(p).is_ok(), |n| drain(n, || rx.consume()))
}

fn two_threads_batched(clearing: Clearing, n: u64) -> Duration {
    let (mut tx, mut rx) = spsc_with_clearing(SIZE, clearing).expect("a ring");
    let consume = |n| {
        let (mut out, mut next, mut tries) = (Vec::with_capacity(BATCH), 0, 0);
        while next < n {
            if rx.consume_batch(&mut out, BATCH) == 0 {
                relax(&mut tries);
            }
            for got in out.drain(..) {
                assert_eq!(got, item(next));
                next += 1;
            }
        }
    };
    across(n, |p| tx.produce(p).is_ok(), consume)
}

fn two_threads_locked(head_first: bool, n: u64) -> Duration {
    let ring = PtrRing::<Item>::with_order(SIZE, Clearing::Kernel, head_first).expect("a ring");
    across(n, |p| ring.produce(p).is_ok(), |n| drain(n, || ring.consume()))
}

pub(crate) fn run() -> Vec<Row> {
    let of_2017: [(&str, Pass<Clearing>); 3] =
        [("one thread", alone), ("one thread, ring nearly full", nearly_full), ("two threads", two_threads)];
    let of_2021: [(&str, Pass<bool>); 2] =
        [("one thread, locked", locked), ("two threads, locked", two_threads_locked)];
    let mut rows = Vec::new();
    for (case, pass) in of_2017 {
        rows.push(row(
            format!("2017, clear in batches: {case}"),
            Contender::with("two lines at a time", 1, move |n| pass(Clearing::Kernel, n)),
            Contender::with("one by one", 1, move |n| pass(Clearing::OneByOne, n)),
        ));
    }
    let of_2017_batched: [(&str, Pass<Clearing>, Pass<Clearing>); 2] = [
        ("one thread, ring nearly full", nearly_full_batched, nearly_full),
        ("two threads", two_threads_batched, two_threads),
    ];
    for (case, new, old) in of_2017_batched {
        rows.push(row(
            format!("2017, and consume {BATCH} at a time: {case}"),
            Contender::with("two lines at a time, consumed in batches", 1, move |n| new(Clearing::Kernel, n)),
            Contender::with("one by one, consumed one by one", 1, move |n| old(Clearing::OneByOne, n)),
        ));
    }
    for (case, pass) in of_2021 {
        rows.push(row(
            format!("2021, move the head first: {case}"),
            Contender::with("head first", 1, move |n| pass(true, n)),
            Contender::with("slots first", 1, move |n| pass(false, n)),
        ));
    }
    for (case, pass) in
        of_2017.into_iter().chain([("two threads, consumed in batches", two_threads_batched as Pass<_>)])
    {
        rows.push(row(
            format!("the credit rule: {case}"),
            Contender::with("whole batches, one look for each", 1, move |n| pass(Clearing::Credit, n)),
            Contender::with("two lines at a time", 1, move |n| pass(Clearing::Kernel, n)),
        ));
    }
    rows.push(row(
        "control: one thread, locked".into(),
        Contender::with("head first", 1, |n| locked(true, n)),
        Contender::with("head first again", 1, |n| locked(true, n)),
    ));
    rows
}

fn row(work: String, new: Contender, old: Contender) -> Row {
    let names = [new.name().to_owned(), old.name().to_owned()];
    let figures = measure(&[new, old]);
    let [new, old] = names.map(|name| figures.get(&name).expect("it is in the set"));
    Row { work, backend: "-".into(), unit: "ns".into(), ours: new, rival: Some(old), goal: Goal::None }
}
