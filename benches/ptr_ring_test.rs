//! The kernel's ptr_ring selftest: `cargo bench --bench ptr_ring_test -- -s 1000 -m 0 -N 100000000`.
//!
//! Its question: how long does it take to pass N pointers through one ring? The options, limits and checks of modes 0 and 1
//! are those of tools/testing/selftests/ptr_ring (proposed in 2021). The other modes fill its gaps. Each row is the whole
//! time of a run, so compare rows of one invocation only. `--batch` and `--order` may be given several times (separated
//! by commas) and are run side by side, in turn, `--rounds` times; minimum and median are printed.
//!
//! A check comes first: whatever is consumed is compared with what was produced, in every mode.

#[path = "versus/item.rs"]
mod item;

use clap::{Parser, ValueEnum};
use item::{Item, item};
use percpu_ref::ptr_ring::{Clearing, PtrRing, spsc_with_clearing};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "The kernel's ptr_ring selftest, and what it left out")]
struct Options {
    /// Slots in the ring.
    #[arg(short = 's', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    size: u64,
    /// 0: one thread, handles. 1: two threads, handles. 2: one thread, locked. 3: two threads, locked. 4: one thread, the
    /// ring always nearly full. 5: two producers, two consumers, locked. 6: two threads, consumed in batches of 64. 7: two
    /// threads, locked, while a third resizes.
    #[arg(short = 'm', long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    mode: u8,
    /// Pointers to pass.
    #[arg(short = 'N', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// When slots are cleared: `credit` (ours), `auto` (the kernel's two lines), or a number, 1 being the kernel before 2017.
    #[arg(long, value_delimiter = ',', default_value = "credit", value_parser = batch)]
    batch: Vec<Clearing>,
    /// Whether the published head moves before the slots are cleared (new, as proposed in 2021) or after (old). Only a
    /// locked ring publishes it, so modes 0 and 1 have no order.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "new")]
    order: Vec<Order>,
    /// How often each row is run.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Order {
    Old,
    New,
}

fn batch(text: &str) -> Result<Clearing, String> {
    match text {
        "credit" => Ok(Clearing::Credit),
        "auto" => Ok(Clearing::Kernel),
        "1" => Ok(Clearing::OneByOne),
        n => n.parse().map(Clearing::Batch).map_err(|e| format!("credit, auto or a number: {e}")),
    }
}

fn check(got: Item, i: u64) {
    assert_eq!(got, item(i), "not what was produced");
}

/// Waits as the selftest does, but lets others run if there are not enough processors.
#[derive(Default)]
struct Relax(u32);

impl Relax {
    fn once(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
    }
}

/// What a mode does with a ring, whichever it is.
fn pass(mut produce: impl FnMut(Item) -> bool + Send, mut consume: impl FnMut() -> Option<Item>, n: u64) {
    thread::scope(|s| {
        s.spawn(move || {
            let mut relax = Relax::default();
            for i in 0..n {
                while !produce(item(i)) {
                    relax.once();
                }
            }
        });
        let mut relax = Relax::default();
        for i in 0..n {
            let got = loop {
                match consume() {
                    Some(got) => break got,
                    None => relax.once(),
                }
            };
            check(got, i);
        }
        assert!(consume().is_none(), "empty at the end");
    });
}

fn run(o: &Options, clearing: Clearing, order: Order) -> Duration {
    let (size, n) = (o.size as usize, o.count);
    let locked = || PtrRing::<Item>::with_order(size, clearing, order == Order::New).expect("a ring");
    let handles = || spsc_with_clearing::<Item>(size, clearing).expect("a ring");
    match o.mode {
        0 => {
            let (mut tx, mut rx) = handles();
            let begin = Instant::now();
            for i in 0..n {
                tx.produce(item(i)).expect("room");
                check(rx.consume().expect("an element"), i);
            }
            begin.elapsed()
        }
        1 => {
            let (mut tx, mut rx) = handles();
            let begin = Instant::now();
            pass(|p| tx.produce(p).is_ok(), || rx.consume(), n);
            begin.elapsed()
        }
        2 => {
            let ring = locked();
            let begin = Instant::now();
            for i in 0..n {
                ring.produce(item(i)).expect("room");
                check(ring.consume().expect("an element"), i);
            }
            begin.elapsed()
        }
        3 => {
            let ring = locked();
            let begin = Instant::now();
            pass(|p| ring.produce(p).is_ok(), || ring.consume(), n);
            begin.elapsed()
        }
        4 => {
            let (mut tx, mut rx) = handles();
            let mut next = 0;
            let begin = Instant::now();
            for i in 0..n {
                while tx.produce(item(next)).is_ok() {
                    next += 1;
                }
                check(rx.consume().expect("an element"), i);
            }
            begin.elapsed()
        }
        5 => {
            let ring = locked();
            let left = AtomicU64::new(n / 2 * 2);
            let sum = AtomicU64::new(0);
            let begin = Instant::now();
            thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        let mut relax = Relax::default();
                        for i in 0..n / 2 {
                            while ring.produce(item(i)).is_err() {
                                relax.once();
                            }
                        }
                    });
                    s.spawn(|| {
                        let (mut relax, mut own, mut taken) = (Relax::default(), 0_u64, 0);
                        while left.load(Ordering::Relaxed) > taken {
                            match ring.consume() {
                                Some(p) => {
                                    own += p.0.get() as u64 - 1;
                                    taken += 1;
                                    if taken == 256 {
                                        left.fetch_sub(taken, Ordering::Relaxed);
                                        taken = 0;
                                    }
                                }
                                None => {
                                    left.fetch_sub(taken, Ordering::Relaxed);
                                    taken = 0;
                                    relax.once();
                                }
                            }
                        }
                        left.fetch_sub(taken, Ordering::Relaxed);
                        sum.fetch_add(own, Ordering::Relaxed);
                    });
                }
            });
            let half = n / 2;
            assert_eq!(sum.into_inner(), half * half.saturating_sub(1), "each element once");
            begin.elapsed()
        }
        6 => {
            let (mut tx, mut rx) = handles();
            let mut out = Vec::with_capacity(64);
            let mut ready = Vec::new().into_iter();
            let begin = Instant::now();
            pass(
                |p| tx.produce(p).is_ok(),
                || {
                    ready.next().or_else(|| {
                        rx.consume_batch(&mut out, 64);
                        ready = std::mem::replace(&mut out, Vec::with_capacity(64)).into_iter();
                        ready.next()
                    })
                },
                n,
            );
            begin.elapsed()
        }
        _ => {
            let ring = locked();
            let over = AtomicBool::new(false);
            let begin = Instant::now();
            thread::scope(|s| {
                s.spawn(|| {
                    // It only grows, so that nothing is thrown out.
                    let mut resizes = 0;
                    while !over.load(Ordering::Relaxed) {
                        resizes += 1;
                        assert!(ring.resize(size + resizes).expect("memory").is_empty());
                        thread::sleep(Duration::from_micros(100));
                    }
                    println!("        {resizes} resizes");
                });
                pass(|p| ring.produce(p).is_ok(), || ring.consume(), n);
                over.store(true, Ordering::Relaxed);
            });
            begin.elapsed()
        }
    }
}

fn main() {
    let o = Options::parse();
    let rows: Vec<(Clearing, Order)> =
        o.batch.iter().flat_map(|b| o.order.iter().map(move |order| (*b, *order))).collect();
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..o.rounds {
        for (row, times) in rows.iter().zip(&mut times) {
            times.push(run(&o, row.0, row.1));
        }
    }
    println!("mode {} size {} count {}", o.mode, o.size, o.count);
    println!("{:12} {:6} {:>10} {:>10} {:>10}", "clearing", "order", "min ms", "median ms", "ns each");
    for ((clearing, order), mut times) in rows.into_iter().zip(times) {
        times.sort_unstable();
        let (min, median) = (times[0], times[times.len() / 2]);
        let each = min.as_nanos() as f64 / o.count as f64;
        let [clearing, order] = [format!("{clearing:?}"), format!("{order:?}")];
        let [min, median] = [min, median].map(|t| t.as_secs_f64() * 1e3);
        println!("{clearing:12} {order:6} {min:10.1} {median:10.1} {each:10.2}");
    }
}
