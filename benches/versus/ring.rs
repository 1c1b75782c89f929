//! Rings, side by side with their rivals: what one element costs, enqueued and dequeued.
//!
//! Every case checks order (one producer, one consumer) or the sum (many), so a ring that loses something fails.

use percpu_ref::ptr_ring::{Clearing, PtrRing, RawMutex, YieldLock, spsc_with_clearing};
use std::hint::{black_box, spin_loop};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long so many elements take.
pub type Run = Box<dyn FnMut(u64) -> Duration>;

/// One thing to measure, and who does it.
pub struct Case {
    /// What is done.
    pub name: &'static str,
    /// By whom; ours come first.
    pub runs: Vec<(&'static str, Run)>,
}

type Item = NonNull<u8>;

fn item(i: u64) -> Item {
    NonNull::without_provenance(NonZeroUsize::new(i as usize + 1).expect("numbers begin with 0"))
}

fn number(p: Item) -> u64 {
    p.addr().get() as u64 - 1
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
    type Tx = rtrb::Producer<Item2>;
    type Rx = rtrb::Consumer<Item2>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(size)
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        tx.push(Item2(p)).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.pop().ok().map(|p| p.0)
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        let n = from.len().min(tx.slots());
        if let Ok(chunk) = tx.write_chunk_uninit(n) {
            let written = chunk.fill_from_iter(from[..n].iter().map(|p| Item2(*p)));
            from.drain(..written);
            return written;
        }
        0
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        let n = max.min(rx.slots());
        if let Ok(chunk) = rx.read_chunk(n) {
            into.extend(chunk.into_iter().map(|p| p.0));
            return n;
        }
        0
    }
}

/// `NonNull` is not `Send`; the rivals ask for it.
#[derive(Clone, Copy)]
struct Item2(Item);
// SAFETY: it is a number.
unsafe impl Send for Item2 {}

struct Ringbuf;
impl Ends for Ringbuf {
    type Tx = ringbuf::HeapProd<Item2>;
    type Rx = ringbuf::HeapCons<Item2>;
    fn make(size: usize) -> (Self::Tx, Self::Rx) {
        use ringbuf::traits::Split;
        ringbuf::HeapRb::new(size).split()
    }
    fn push(tx: &mut Self::Tx, p: Item) -> bool {
        ringbuf::traits::Producer::try_push(tx, Item2(p)).is_ok()
    }
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        ringbuf::traits::Consumer::try_pop(rx).map(|p| p.0)
    }
    fn push_many(tx: &mut Self::Tx, from: &mut Vec<Item>) -> usize {
        let n = ringbuf::traits::Producer::push_iter(tx, from.iter().map(|p| Item2(*p)));
        from.drain(..n);
        n
    }
    fn pop_many(rx: &mut Self::Rx, into: &mut Vec<Item>, max: usize) -> usize {
        let before = into.len();
        into.extend(ringbuf::traits::Consumer::pop_iter(rx).take(max).map(|p| p.0));
        into.len() - before
    }
}
