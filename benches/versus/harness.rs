//! Measuring side by side.
//!
//! A machine has moods: another job, another frequency, the host moving a virtual CPU. Two figures from two runs say
//! little, and two from one round a lot. So all contenders of a set run in one process, one short slice each a round,
//! in a new order every round, pinned; a slice that the scheduler took the CPU away from, or in which two threads did not run at once, is run again. What counts is
//! the ratio of the medians; the minima stand beside them.

use crate::switches::switches;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds of a set: an odd number, so that the median is one of the samples.
pub(crate) const ROUNDS: usize = 31;
/// How long a slice is meant to last.
const SLICE: Duration = Duration::from_millis(1);
/// How often a disturbed slice is run again, as long as the set does not take too long.
const RETRIES: usize = 8;
const LIMIT: Duration = Duration::from_secs(20);

/// Runs an operation so many times on the calling thread and tells how long that took.
type Work<'a> = Box<dyn Fn(u64) -> Duration + Sync + 'a>;

/// One of those that are compared.
pub(crate) struct Contender<'a> {
    name: String,
    threads: usize,
    work: Work<'a>,
    peer: Option<&'a Peer>,
}

/// A thread that is to be busy all the time. It tells when it was not: when another job took its CPU away.
#[derive(Default)]
pub(crate) struct Peer {
    beats: AtomicUsize,
    gaps: AtomicUsize,
}

impl Peer {
    /// Works until told to stop.
    pub(crate) fn work(&self, stop: &AtomicBool, mut work: impl FnMut()) {
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            work();
            let now = Instant::now();
            if now - last > Duration::from_micros(300) {
                self.gaps.fetch_add(1, Ordering::Relaxed);
            }
            last = now;
            self.beats.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until the thread is at work; a number that changes when it was not.
    pub(crate) fn gaps(&self) -> usize {
        let beats = self.beats.load(Ordering::Acquire);
        while self.beats.load(Ordering::Acquire) < beats + 2 {
            std::hint::spin_loop();
        }
        self.gaps.load(Ordering::Relaxed)
    }
}

impl<'a> Contender<'a> {
    /// `op`, over and over, on one thread.
    pub(crate) fn new(name: impl Into<String>, op: impl Fn() + Sync + 'a) -> Self {
        Self::with(name, 1, move |n| timed(n, &op))
    }

    /// `op`, over and over, on two threads at once.
    pub(crate) fn pair(name: impl Into<String>, op: impl Fn() + Sync + 'a) -> Self {
        Self::with(name, 2, move |n| timed(n, &op))
    }

    /// `work` does its own timing, and sets up what each thread needs before.
    pub(crate) fn with(name: impl Into<String>, threads: usize, work: impl Fn(u64) -> Duration + Sync + 'a) -> Self {
        Self { name: name.into(), threads, work: Box::new(work), peer: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Only slices count during which `peer` was busy.
    pub(crate) fn beside(mut self, peer: &'a Peer) -> Self {
        self.peer = Some(peer);
        self
    }

    /// How many operations fill a slice.
    fn calibrate(&self) -> u64 {
        let mut n = 1;
        loop {
            // The shorter of two: one that the scheduler interrupted would make all slices too short to be measured.
            let took = (self.work)(n).min((self.work)(n));
            if took >= SLICE / 8 {
                let scale = SLICE.as_secs_f64() / took.as_secs_f64();
                return ((n as f64 * scale) as u64).max(1);
            }
            n *= 4;
        }
    }

    /// Nanoseconds for one operation, and whether the slice was left in peace.
    fn slice(&self, n: u64) -> (f64, bool) {
        let per_op = |took: Duration| took.as_secs_f64() * 1e9 / n as f64;
        if self.threads == 1 {
            let gaps = || self.peer.map(Peer::gaps);
            let before = (gaps(), switches());
            let took = (self.work)(n);
            let quiet = switches() == before.1;
            return (per_op(took), quiet && gaps() == before.0);
        }
        let waiting = AtomicUsize::new(self.threads);
        let one = |cpu: usize| {
            pin(cpu);
            (self.work)(1); // Whatever a new thread has to set up.
            waiting.fetch_sub(1, Ordering::AcqRel);
            while waiting.load(Ordering::Acquire) > 0 {
                std::hint::spin_loop();
            }
            let before = switches();
            let begin = Instant::now();
            let took = (self.work)(n);
            (took, begin, Instant::now(), switches() == before)
        };
        let results: Vec<_> = thread::scope(|s| {
            let others: Vec<_> = (1..self.threads).map(|cpu| s.spawn(move || one(cpu))).collect();
            let own = one(0);
            std::iter::once(own).chain(others.into_iter().map(|other| other.join().expect("a slice"))).collect()
        });
        let mean = results.iter().map(|&(took, ..)| per_op(took)).sum::<f64>() / results.len() as f64;
        // On a busy machine one of them may wait for a CPU while the other works: then they did not work at once.
        let first = results.iter().map(|&(_, begin, ..)| begin).min();
        let last = results.iter().map(|&(_, _, end, _)| end).max();
        let longest = results.iter().map(|&(_, begin, end, _)| end - begin).max();
        let at_once = match (first, last, longest) {
            (Some(first), Some(last), Some(longest)) => last - first <= longest + longest / 10,
            _ => false,
        };
        let even =
            results.iter().all(|&(_, begin, end, _)| Some(end - begin) >= longest.map(|longest| longest * 7 / 10));
        (mean, at_once && even && results.iter().all(|&(.., quiet)| quiet))
    }
}

/// `op`, `n` times.
#[inline(always)]
pub(crate) fn timed(n: u64, op: impl Fn()) -> Duration {
    let begin = Instant::now();
    for _ in 0..n {
        op();
    }
    begin.elapsed()
}

/// What a contender came to.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) min: f64,
    pub(crate) median: f64,
}

impl Figure {
    /// Of samples, at least one.
    pub(crate) fn of(name: impl Into<String>, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { name: name.into(), min: samples[0], median: samples[samples.len() / 2] }
    }
}

/// The figures of a set, by name.
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn get(&self, name: &str) -> Option<Figure> {
        self.0.iter().find(|figure| figure.name == name).cloned()
    }
}

/// Runs a set of contenders against each other.
pub(crate) fn measure(contenders: &[Contender]) -> Figures {
    let unpinned = Affinity::get();
    pin(0);
    let sizes: Vec<_> = contenders.iter().map(Contender::calibrate).collect();
    let mut samples = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    let mut order: Vec<_> = (0..contenders.len()).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut disturbed = 0;
    let begin = Instant::now();
    for round in 0..=ROUNDS {
        shuffle(&mut order, &mut random);
        for &i in &order {
            let mut sample = contenders[i].slice(sizes[i]);
            for _ in 0..RETRIES {
                if sample.1 || begin.elapsed() > LIMIT {
                    break;
                }
                sample = contenders[i].slice(sizes[i]);
            }
            // The first round only warms up.
            if round > 0 {
                disturbed += usize::from(!sample.1);
                samples[i].push(sample);
            }
        }
    }
    unpinned.set();
    if disturbed > 0 {
        eprintln!("{disturbed} of {} slices were disturbed in spite of retries", ROUNDS * contenders.len());
    }
    let figure = |(contender, samples): (&Contender, Vec<(f64, bool)>)| {
        let quiet: Vec<_> = samples.iter().filter(|(_, quiet)| *quiet).map(|&(sample, _)| sample).collect();
        let all = || samples.iter().map(|&(sample, _)| sample).collect();
        // Disturbed samples count only where there is nothing else.
        Figure::of(&contender.name, if quiet.len() >= ROUNDS / 3 { quiet } else { all() })
    };
    Figures(contenders.iter().zip(samples).map(figure).collect())
}

fn shuffle(order: &mut [usize], random: &mut u64) {
    for i in (1..order.len()).rev() {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        order.swap(i, (*random % (i as u64 + 1)) as usize);
    }
}

/// The CPUs that a thread may run on.
#[derive(Clone, Copy)]
pub(crate) struct Affinity(libc::cpu_set_t);

impl Affinity {
    pub(crate) fn get() -> Self {
        // SAFETY: an all-zero set is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is ours to be written and of the size given.
        unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        Self(set)
    }

    /// For the calling thread. Where it is not allowed, nothing changes: the figures are only noisier.
    pub(crate) fn set(&self) {
        // SAFETY: the set is of the size given.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}

/// Keeps the calling thread on the `nth` CPU of those that the process began with.
pub(crate) fn pin(nth: usize) {
    static ALLOWED: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let allowed = ALLOWED.get_or_init(|| {
        let set = Affinity::get().0;
        // SAFETY: the index is below the size of a set.
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    });
    if let Some(&cpu) = allowed.get(nth % allowed.len().max(1)) {
        // SAFETY: an all-zero set is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the index is below the size of a set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        Affinity(set).set();
    }
}
