//! What taking and dropping a reference costs as threads are added, up to more threads than CPUs.
//!
//! A figure is the CPU time of one operation: that of all threads from where they start together, divided by their
//! operations. It counts what a thread waits for a cache line, and not what it waits for a CPU. So a count that scales
//! perfectly has the same figure in every row, and one whose threads take turns at a line has a larger one as soon as two of
//! them run at once; more threads than CPUs change little. All CPUs together do as many operations a second as there are
//! CPUs in a second of CPU time.
//!
//! Every thread does the same number of operations, and the slices are long enough for the scheduler to switch between the
//! threads of a CPU.

use crate::harness::{Affinity, Figure, pin};
use crate::row::{Goal, Row};
use crate::switches::switches;
use crate::{Part, backend};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::Plain;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

const THREADS: [usize; 4] = [1, 2, 4, 8];
const ROUNDS: usize = 15;
/// Operations of a thread in a slice: at least as long as the scheduler lets a thread run undisturbed.
const OPS: u64 = 1_000_000;

/// How often a disturbed slice is run again.
const RETRIES: usize = 4;

/// The name of a contender, and what it does.
type Contender<'a> = (&'static str, &'a (dyn Fn(u64) + Sync));

pub(crate) fn run(part: Part) -> Vec<Row> {
    let sched = PercpuRef::new(|| {});
    let plain = PercpuRef::builder().flavor(Plain).build(|| {});
    let arc = Arc::new(0_u64);
    // The loops are inside, so that what is called through a pointer is a slice and not an operation.
    let count_sched = |n| {
        for _ in 0..n {
            let r = black_box(&sched);
            r.get();
            r.put();
        }
    };
    let count_plain = |n| {
        for _ in 0..n {
            let r = black_box(&plain);
            r.get();
            r.put();
        }
    };
    let clone_arc = |n| {
        for _ in 0..n {
            drop(Arc::clone(black_box(&arc)));
        }
    };
    let ours: &[Contender] = match part {
        Part::Whole => &[("Sched", &count_sched), ("Plain", &count_plain)],
        _ => &[("Sched", &count_sched)],
    };
    let rows = THREADS.iter().flat_map(|&threads| compare(threads, ours, ("Arc", &clone_arc))).collect();
    assert_eq!((sched.estimate(), plain.estimate()), (1, 1), "as many puts as gets");
    sched.kill_sync().expect("not killed yet");
    plain.kill_sync().expect("not killed yet");
    rows
}

/// All of them by turns, with the same number of threads.
fn compare(threads: usize, ours: &[Contender], rival: Contender) -> Vec<Row> {
    let everybody: Vec<Contender> = ours.iter().copied().chain([rival]).collect();
    let mut samples = vec![Vec::with_capacity(ROUNDS); everybody.len()];
    for round in 0..=ROUNDS {
        for i in 0..everybody.len() {
            let i = (i + round) % everybody.len();
            let mut sample = slice(threads, everybody[i].1);
            for _ in 0..RETRIES {
                if sample.1 {
                    break;
                }
                sample = slice(threads, everybody[i].1);
            }
            // The first round only warms up.
            if round > 0 {
                samples[i].push(sample.0);
            }
        }
    }
    let name = |name: &str| if threads == 1 { name.to_owned() } else { format!("{name}, {threads} threads") };
    let mut figures: Vec<Figure> =
        everybody.iter().zip(samples).map(|(contender, samples)| Figure::of(name(contender.0), samples)).collect();
    let rival = figures.pop();
    let row = |ours| Row {
        work: "take and drop, by threads".into(),
        backend: backend(),
        unit: "ns".into(),
        ours,
        rival: rival.clone(),
        goal: Goal::None,
    };
    figures.into_iter().map(row).collect()
}

/// Nanoseconds of CPU time that one operation takes while so many threads do the same, and whether no other job took a CPU
/// away, as far as can be told.
fn slice(threads: usize, work: &(dyn Fn(u64) + Sync)) -> (f64, bool) {
    let start = Barrier::new(threads);
    let one = |cpu: usize| {
        pin(cpu);
        work(1); // Whatever a new thread has to set up.
        start.wait();
        let before = (cpu_time(), switches());
        work(OPS);
        (cpu_time() - before.0, switches() == before.1)
    };
    let unpinned = Affinity::get();
    let times: Vec<_> = thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|cpu| s.spawn(move || one(cpu))).collect();
        all.into_iter().map(|thread| thread.join().expect("a slice")).collect()
    });
    unpinned.set();
    let total: Duration = times.iter().map(|time| time.0).sum();
    // Threads that share a CPU take it from each other.
    let share = threads > thread::available_parallelism().map_or(1, usize::from);
    let quiet = share || times.iter().all(|time| time.1);
    (total.as_secs_f64() * 1e9 / (threads as f64 * OPS as f64), quiet)
}

/// How long the calling thread has had a CPU.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to be written.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every thread has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
