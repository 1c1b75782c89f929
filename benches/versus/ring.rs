//! Rings, side by side with their rivals: what one element costs, enqueued and dequeued.
//!
//! Every case checks order (one producer, one consumer) or the sum (many), so a ring that loses something fails.

#[path = "ring_c.rs"]
mod ring_c;

use crate::case::{Case, Run};
use crate::item::{Item, item};
use crate::switches::switches;
use crossbeam_utils::CachePadded;
use percpu_ref::ptr_ring::{Clearing, PtrRing, RawMutex, YieldLock, spsc_with_clearing};
use ring_c::{Rival, Which};
use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

impl Case {
    fn new(name: &'static str, runs: Vec<(&'static str, Run)>) -> Self {
        Self { name, runs }
    }

    /// And one more.
    fn and(mut self, run: (&'static str, Run)) -> Self {
        self.runs.push(run);
        self
    }

    /// And the rivals in C, those that this machine has.
    fn and_in_c(mut self, which: &[Which], run: impl Fn(Rival) -> Run) -> Self {
        self.runs.extend(which.iter().filter_map(|which| which.find()).map(|rival| (rival.name(), run(rival))));
        self
    }
}

fn number(p: Item) -> u64 {
    p.0.get() as u64 - 1
}

/// Both ends of a queue between two threads.
trait Ends: 'static {
    type Tx: Send + 'static;
    type Rx: Send + 'static;
    fn make(size: usize) -> (Self::Tx, Self::Rx);
    fn push(tx: &mut Self::Tx, p: Item) -> bool;
    fn pop(rx: &mut Self::Rx) -> Option<Item>;
    /// Pushes from the front.
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        let n = from.iter().take_while(|p| Self::push(tx, **p)).count();
        from.drain(..n);
        n
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        let before = into.len();
        into.extend((0..max).map_while(|_| Self::pop(rx)));
        into.len() - before
    }
}

struct Ours;
impl Ends for Ours {
    type Tx = percpu_ref::ptr_ring::Producer<Item>;
    type Rx = percpu_ref::ptr_ring::Consumer<Item>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        spsc_with_clearing(size, Clearing::Credit).expect("a ring")
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        tx.produce(p).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.consume()
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        tx.produce_batch(from)
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        rx.consume_batch(into, max)
    }
}

/// The kernel's own rule: what the credit rule gains.
struct Kernel;
impl Ends for Kernel {
    type Tx = percpu_ref::ptr_ring::Producer<Item>;
    type Rx = percpu_ref::ptr_ring::Consumer<Item>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        spsc_with_clearing(size, Clearing::Kernel).expect("a ring")
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        tx.produce(p).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.consume()
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        tx.produce_batch(from)
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        rx.consume_batch(into, max)
    }
}

struct Rtrb;
impl Ends for Rtrb {
    type Tx = rtrb::Producer<Item>;
    type Rx = rtrb::Consumer<Item>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(size)
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        tx.push(p).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.pop().ok()
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        let n = from.len().min(tx.slots());
        if let Ok(chunk) = tx.write_chunk_uninit(n) {
            let written = chunk.fill_from_iter(from[..n].iter().copied());
            from.drain(..written);
            return written;
        }
        0
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        let n = max.min(rx.slots());
        if let Ok(chunk) = rx.read_chunk(n) {
            into.extend(chunk);
            return n;
        }
        0
    }
}

struct Ringbuf;
impl Ends for Ringbuf {
    type Tx = ringbuf::HeapProd<Item>;
    type Rx = ringbuf::HeapCons<Item>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        use ringbuf::traits::Split;
        ringbuf::HeapRb::new(size).split()
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        ringbuf::traits::Producer::try_push(tx, p).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        ringbuf::traits::Consumer::try_pop(rx)
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        let n = ringbuf::traits::Producer::push_iter(tx, from.iter().copied());
        from.drain(..n);
        n
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        let before = into.len();
        into.extend(ringbuf::traits::Consumer::pop_iter(rx).take(max));
        into.len() - before
    }
}

/// Queues that many threads share; each end is a reference to the whole.
trait Shared: Send + Sync + Sized + 'static {
    fn make(size: usize) -> Self;
    fn push(&self, p: Item) -> bool;
    fn pop(&self) -> Option<Item>;
    fn push_many(&self, from: &mut Vec<Item>) -> usize {
        let n = from.iter().take_while(|p| self.push(**p)).count();
        from.drain(..n);
        n
    }
    fn pop_many(&self, into: &mut Vec<Item>, max: usize) -> usize {
        let before = into.len();
        into.extend((0..max).map_while(|_| self.pop()));
        into.len() - before
    }
}

impl<L: RawMutex + Send + Sync + 'static> Shared for PtrRing<Item, L> {
    fn make(size: usize) -> Self {
        Self::with_lock(size).expect("a ring")
    }
    fn push(&self, p: Item) -> bool {
        self.produce(p).is_ok()
    }
    fn pop(&self) -> Option<Item> {
        self.consume()
    }
    fn push_many(&self, from: &mut Vec<Item>) -> usize {
        self.produce_batch(from)
    }
    fn pop_many(&self, into: &mut Vec<Item>, max: usize) -> usize {
        self.consume_batch(into, max)
    }
}

impl Shared for crossbeam_queue::ArrayQueue<Item> {
    fn make(size: usize) -> Self {
        Self::new(size)
    }
    fn push(&self, p: Item) -> bool {
        Self::push(self, p).is_ok()
    }
    fn pop(&self) -> Option<Item> {
        Self::pop(self)
    }
}

impl Shared for concurrent_queue::ConcurrentQueue<Item> {
    fn make(size: usize) -> Self {
        Self::bounded(size)
    }
    fn push(&self, p: Item) -> bool {
        Self::push(self, p).is_ok()
    }
    fn pop(&self) -> Option<Item> {
        Self::pop(self).ok()
    }
}

/// What everybody writes first.
struct Locked(Mutex<VecDeque<Item>>, usize);

impl Shared for Locked {
    fn make(size: usize) -> Self {
        Self(Mutex::new(VecDeque::with_capacity(size)), size)
    }
    fn push(&self, p: Item) -> bool {
        let mut queue = self.0.lock().expect("nobody panics");
        let room = queue.len() < self.1;
        if room {
            queue.push_back(p);
        }
        room
    }
    fn pop(&self) -> Option<Item> {
        self.0.lock().expect("nobody panics").pop_front()
    }
    fn push_many(&self, from: &mut Vec<Item>) -> usize {
        let mut queue = self.0.lock().expect("nobody panics");
        let n = from.len().min(self.1 - queue.len());
        queue.extend(from.drain(..n));
        n
    }
    fn pop_many(&self, into: &mut Vec<Item>, max: usize) -> usize {
        let mut queue = self.0.lock().expect("nobody panics");
        let n = max.min(queue.len());
        into.extend(queue.drain(..n));
        n
    }
}

/// A shared queue as two ends.
struct Of<Q>(std::marker::PhantomData<Q>);
impl<Q: Shared> Ends for Of<Q> {
    type Tx = Arc<Q>;
    type Rx = Arc<Q>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        let queue = Arc::new(Q::make(size));
        (queue.clone(), queue)
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        Q::push(tx, p)
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        Q::pop(rx)
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        Q::push_many(tx, from)
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        Q::pop_many(rx, into, max)
    }
}

/// Spins, and yields now and then: with fewer processors than threads the other one may be waiting for this one.
#[derive(Default)]
struct Relax(u32);

impl Relax {
    fn once(&mut self, spins: u32) {
        self.0 += 1;
        if self.0.is_multiple_of(spins) { thread::yield_now() } else { spin_loop() }
    }
}

/// With more threads than processors, whoever finds nothing to do gives way.
fn pause() {
    (0..16).for_each(|_| spin_loop());
    thread::yield_now();
}

/// How often a thread that was being measured has been disturbed so far.
static DISTURBED: AtomicUsize = AtomicUsize::new(0);

/// A number that changes when a run was disturbed: a thread that has a processor to itself lost it, or two that were to
/// work at once did not begin at once.
pub(crate) fn disturbances() -> usize {
    DISTURBED.load(Ordering::Relaxed)
}

fn disturbed_if(so: bool) {
    DISTURBED.fetch_add(usize::from(so), Ordering::Relaxed);
}

/// Runs a loop on this thread and tells how long it took.
#[inline(always)]
fn timed(f: impl FnOnce()) -> Duration {
    let before = switches();
    let begin = Instant::now();
    f();
    let elapsed = begin.elapsed();
    disturbed_if(switches() != before);
    elapsed
}

/// Pins the calling thread to a processor, so that the scheduler is not what is measured.
fn pin(cpu: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: all zeroes is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: the set is valid for its size; a refusal changes nothing.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cpu;
}

/// One thread: in and out.
fn alone<E: Ends>(size: usize) -> Run {
    let (mut tx, mut rx) = E::make(size);
    Box::new(move |n| {
        timed(|| {
            for i in 0..n {
                assert!(E::push(&mut tx, item(i)));
                assert!(E::pop(&mut rx) == Some(item(i)));
            }
        })
    })
}

/// One thread: a batch in, a batch out.
fn alone_batched<E: Ends>(size: usize, batch: usize) -> Run {
    let (mut tx, mut rx) = E::make(size);
    let (mut from, mut into) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
    Box::new(move |n| {
        timed(|| {
            for i in 0..n / batch as u64 {
                from.extend((0..batch as u64).map(|k| item(i + k)));
                assert!(E::push_many(&mut tx, &mut from) == batch);
                assert!(E::pop_many(&mut rx, &mut into, batch) == batch);
                assert!(into[0] == item(i));
                into.clear();
            }
        })
    })
}

/// What [`alone_batched`] does beside the ring: filling a vector and draining it.
fn vectors_alone(batch: usize) -> Run {
    let mut batches = Vec::with_capacity(batch);
    Box::new(move |n| {
        timed(|| {
            for i in 0..n / batch as u64 {
                batches.extend((0..batch as u64).map(|k| item(i + k)));
                let own = std::hint::black_box(&mut batches);
                assert!(own.drain(..).zip(i..).all(|(p, i)| p == item(i)));
            }
        })
    })
}

/// What one thread of a case does: it prepares, calls what it is given, and works.
type Part = Box<dyn FnOnce(&dyn Fn()) + Send>;

/// Runs all parts at once. The time is that from the first of them to begin until the last has ended: this thread may
/// get a processor only when they are done.
fn together(parts: Vec<Part>) -> Duration {
    // More of them share processors: then being switched is part of what is measured.
    let at_once = parts.len() == 2;
    let barrier = Arc::new(Barrier::new(parts.len()));
    let threads: Vec<_> = parts
        .into_iter()
        .map(|part| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                let begin = Cell::new(None);
                part(&|| {
                    barrier.wait();
                    begin.set(Some((switches(), Instant::now())));
                });
                let end = Instant::now();
                let (before, begin) = begin.get().expect("it began");
                disturbed_if(at_once && switches() != before);
                (begin, end)
            })
        })
        .collect();
    let times: Vec<_> = threads.into_iter().map(|t| t.join().expect("it ends well")).collect();
    let first = times.iter().map(|(begin, _)| *begin).min().expect("at least one");
    let last = times.iter().map(|(begin, _)| *begin).max().expect("at least one");
    let elapsed = times.iter().map(|(_, end)| *end - first).max().expect("at least one");
    disturbed_if(at_once && last - first > elapsed / 10);
    elapsed
}

/// Work that takes its time: each multiplication waits for the one before.
#[inline(never)]
fn pace(seed: u64) -> u64 {
    (0..20).fold(seed, |x, _| std::hint::black_box(x).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Who takes his time in a case with two threads.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Nobody,
    Producer,
    Consumer,
}

/// Two threads on two processors, element by element (`batch` 1) or in batches.
fn across<E: Ends>(size: usize, batch: usize, slow: Slow) -> Run {
    Box::new(move |n| {
        let (mut tx, mut rx) = E::make(size);
        let producer = move |start: &dyn Fn()| {
            pin(1);
            let (mut relax, mut paced) = (Relax::default(), 1);
            let mut from = Vec::with_capacity(batch);
            start();
            if batch == 1 {
                for i in 0..n {
                    if slow == Slow::Producer {
                        paced = pace(paced);
                    }
                    while !E::push(&mut tx, item(i)) {
                        relax.once(4096);
                    }
                }
                return;
            }
            let mut next = 0;
            while next < n || !from.is_empty() {
                if from.is_empty() {
                    let end = n.min(next + batch as u64);
                    from.extend((next..end).map(item));
                    next = end;
                }
                if E::push_many(&mut tx, &mut from) == 0 {
                    relax.once(4096);
                }
            }
        };
        let consumer = move |start: &dyn Fn()| {
            pin(0);
            let (mut relax, mut paced) = (Relax::default(), 1);
            let mut into = Vec::with_capacity(batch);
            start();
            let mut next = 0;
            while next < n {
                if batch == 1 {
                    match E::pop(&mut rx) {
                        Some(p) => {
                            assert!(p == item(next));
                            next += 1;
                            if slow == Slow::Consumer {
                                paced = pace(paced);
                            }
                        }
                        None => relax.once(4096),
                    }
                    continue;
                }
                if E::pop_many(&mut rx, &mut into, batch) == 0 {
                    relax.once(4096);
                }
                for p in into.drain(..) {
                    assert!(p == item(next));
                    next += 1;
                }
            }
        };
        together(vec![Box::new(producer), Box::new(consumer)])
    })
}

/// What the slow side of [`across`] does, without a ring.
fn pace_alone() -> Run {
    Box::new(|n| {
        timed(|| {
            std::hint::black_box((0..n).fold(1, |paced, _| pace(paced)));
        })
    })
}

/// The least that two calls cost which each take a lock, or claim a slot: a read-modify-write for each, on lines of their
/// own, and nothing else.
fn two_exchanges() -> Run {
    let words = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    Box::new(move |n| {
        timed(|| {
            for _ in 0..n {
                words.iter().for_each(|word| _ = word.fetch_add(1, Ordering::Relaxed));
            }
        })
    })
}

/// Two producers and two consumers.
fn many<Q: Shared>(size: usize, batch: usize) -> Run {
    Box::new(move |n| {
        let queue = Arc::new(Q::make(size));
        let half = n / 2;
        let (left, sum) = (Arc::new(AtomicU64::new(2 * half)), Arc::new(AtomicU64::new(0)));
        let mut parts: Vec<Part> = vec![];
        for _ in 0..2 {
            let q = queue.clone();
            parts.push(Box::new(move |start| {
                let (mut from, mut next) = (Vec::with_capacity(batch), 0);
                start();
                if batch == 1 {
                    for i in 0..half {
                        while !q.push(item(i)) {
                            pause();
                        }
                    }
                    return;
                }
                while next < half || !from.is_empty() {
                    if from.is_empty() {
                        let end = half.min(next + batch as u64);
                        from.extend((next..end).map(item));
                        next = end;
                    }
                    if q.push_many(&mut from) == 0 {
                        pause();
                    }
                }
            }));
            let (q, left, sum) = (queue.clone(), left.clone(), sum.clone());
            parts.push(Box::new(move |start| {
                let (mut into, mut own, mut taken) = (Vec::with_capacity(batch), 0, 0);
                start();
                while left.load(Ordering::Relaxed) > taken {
                    let got = if batch == 1 {
                        let p = q.pop();
                        own += p.map_or(0, number);
                        usize::from(p.is_some())
                    } else {
                        let got = q.pop_many(&mut into, batch);
                        own += into.drain(..).map(number).sum::<u64>();
                        got
                    };
                    taken += got as u64;
                    if got == 0 || taken >= 1024 {
                        left.fetch_sub(taken, Ordering::Relaxed);
                        taken = 0;
                    }
                    if got == 0 {
                        pause();
                    }
                }
                left.fetch_sub(taken, Ordering::Relaxed);
                sum.fetch_add(own, Ordering::Relaxed);
            }));
        }
        let elapsed = together(parts);
        each_once(half, &sum);
        elapsed
    })
}

/// Two producers have each produced the numbers below `half`.
fn each_once(half: u64, sum: &AtomicU64) {
    assert_eq!(sum.load(Ordering::Relaxed), half * half.saturating_sub(1), "each element once");
}

type Default = PtrRing<Item, YieldLock>;
type Parking = PtrRing<Item, parking_lot::RawMutex>;
type Array = crossbeam_queue::ArrayQueue<Item>;
type Concurrent = concurrent_queue::ConcurrentQueue<Item>;

/// Everything that is measured.
pub(crate) fn cases() -> Vec<Case> {
    /// One rival of each kind, in the order of the names below.
    macro_rules! spsc {
        ($name:literal, $f:ident($($arg:expr),*), $in_c:expr) => {
            Case::new($name, vec![
                ("spsc", $f::<Ours>($($arg),*)),
                ("spsc, kernel's rule", $f::<Kernel>($($arg),*)),
                ("rtrb", $f::<Rtrb>($($arg),*)),
                ("ringbuf", $f::<Ringbuf>($($arg),*)),
                ("ArrayQueue", $f::<Of<Array>>($($arg),*)),
                ("ConcurrentQueue", $f::<Of<Concurrent>>($($arg),*)),
            ])
            .and_in_c(&[Which::PtrRing, Which::CkRing, Which::RteRing], $in_c)
        };
    }
    macro_rules! paced {
        ($name:literal, $slow:expr) => {
            Case::new(
                $name,
                vec![
                    ("spsc", across::<Ours>(1000, 1, $slow)),
                    ("the slow side alone", pace_alone()),
                    ("spsc, kernel's rule", across::<Kernel>(1000, 1, $slow)),
                    ("rtrb", across::<Rtrb>(1000, 1, $slow)),
                    ("ringbuf", across::<Ringbuf>(1000, 1, $slow)),
                    ("ArrayQueue", across::<Of<Array>>(1000, 1, $slow)),
                ],
            )
        };
    }
    macro_rules! many {
        ($name:literal, $batch:expr) => {
            Case::new($name, vec![
                ("PtrRing", many::<Default>(1024, $batch)),
                ("PtrRing, parking_lot", many::<Parking>(1024, $batch)),
                ("ArrayQueue", many::<Array>(1024, $batch)),
                ("ConcurrentQueue", many::<Concurrent>(1024, $batch)),
                ("Mutex<VecDeque>", many::<Locked>(1024, $batch)),
            ])
            // Those who wait for their turn, rte_ring in its mode for many and ck_ring's, do not end in a useful time where
            // threads outnumber processors.
            .and_in_c(&[Which::PtrRingLocked], |rival| rival.many(1024, $batch))
        };
    }
    use Slow::Nobody;
    vec![
        spsc!("one thread, size 1000", alone(1000), |rival| rival.alone(1000, 1)),
        spsc!("one thread, batch 64", alone_batched(1024, 64), |rival| rival.alone(1024, 64))
            .and(("a vector filled and drained, no ring", vectors_alone(64))),
        spsc!("two threads, size 1024", across(1024, 1, Nobody), |rival| rival.across(1024, 1)),
        spsc!("two threads, size 256", across(256, 1, Nobody), |rival| rival.across(256, 1)),
        spsc!("two threads, batch 16", across(1024, 16, Nobody), |rival| rival.across(1024, 16)),
        spsc!("two threads, batch 64", across(1024, 64, Nobody), |rival| rival.across(1024, 64)),
        spsc!("two threads, size 256, batch 64", across(256, 64, Nobody), |rival| rival.across(256, 64)),
        paced!("two threads, slow consumer", Slow::Consumer),
        paced!("two threads, slow producer", Slow::Producer),
        Case::new(
            "one thread, locked",
            vec![
                ("PtrRing", alone::<Of<Default>>(1000)),
                ("PtrRing, parking_lot", alone::<Of<Parking>>(1000)),
                ("ArrayQueue", alone::<Of<Array>>(1000)),
                ("ConcurrentQueue", alone::<Of<Concurrent>>(1000)),
                ("Mutex<VecDeque>", alone::<Of<Locked>>(1000)),
                ("two exchanges, no ring", two_exchanges()),
            ],
        )
        .and_in_c(&[Which::PtrRingLocked, Which::RteRingMany], |rival| rival.alone(1000, 1)),
        many!("2 to 2", 1),
        many!("2 to 2, batch 16", 16),
        many!("2 to 2, batch 64", 64),
    ]
}
