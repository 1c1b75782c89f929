//! The whole API of the rings against a model, as the fuzzer likes it: tests/fuzz/run.sh.
//!
//! The bytes say which ring, with which lock, rule and order, and then call after call. After each of them everything that
//! can be seen from outside is compared: the elements that came out, exactly how much room there is, and how many
//! elements are alive. The invariants inside are checked, too: the target is built with debug assertions.
#![no_main]

#[path = "../common/ring_model.rs"]
mod ring_model;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use percpu_ref::ptr_ring::{
    CapacityError, Clearing, Consumer, Full, MAX_CAPACITY, Producer, PtrRing, RawMutex, Waiting, YieldLock,
    spsc_with_clearing,
};
use ring_model::{Factory, Item, Model, ids};
use std::time::Duration;

type Batch = Vec<Box<Item>>;

fuzz_target!(|data: &[u8]| {
    // It ends with the bytes.
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let what = u.int_in_range(0..=3)?;
    let (capacity, clearing) = (capacity(u)?, clearing(u)?);
    match what {
        0 => locked::<YieldLock>(u, capacity, clearing),
        1 => locked::<parking_lot::RawMutex>(u, capacity, clearing),
        2 => waiting(u, capacity, clearing),
        _ => handles(u, capacity, clearing),
    }
}

fn capacity(u: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match u.int_in_range(0..=2)? {
        0 => u.int_in_range(0..=4)?,
        1 => u.int_in_range(0..=40)?,
        _ => u.int_in_range(30..=300)?,
    })
}

fn clearing(u: &mut Unstructured<'_>) -> Result<Clearing> {
    Ok(match u.int_in_range(0..=5)? {
        0..=2 => Clearing::Credit,
        3 => Clearing::Kernel,
        4 => Clearing::OneByOne,
        _ => Clearing::Batch(u.int_in_range(0..=50)?),
    })
}

/// The calls that all kinds of ring have.
trait Ring {
    /// Whether putting back goes beyond what is not cleared.
    const LOCKED: bool;
    fn produce(&mut self, p: Box<Item>) -> std::result::Result<(), Full<Box<Item>>>;
    fn produce_batch(&mut self, from: &mut Batch) -> usize;
    fn consume(&mut self) -> Option<Box<Item>>;
    fn consume_batch(&mut self, into: &mut Batch, max: usize) -> usize;
    fn peek(&mut self) -> Option<u32>;
    fn unconsume(&mut self, batch: Batch) -> Batch;
    /// `is_empty`, `is_full`, `capacity`.
    fn look(&self) -> (bool, bool, usize);
}

impl<L: RawMutex> Ring for PtrRing<Box<Item>, L> {
    const LOCKED: bool = true;
    fn produce(&mut self, p: Box<Item>) -> std::result::Result<(), Full<Box<Item>>> {
        Self::produce(self, p)
    }
    fn produce_batch(&mut self, from: &mut Batch) -> usize {
        Self::produce_batch(self, from)
    }
    fn consume(&mut self) -> Option<Box<Item>> {
        Self::consume(self)
    }
    fn consume_batch(&mut self, into: &mut Batch, max: usize) -> usize {
        Self::consume_batch(self, into, max)
    }
    fn peek(&mut self) -> Option<u32> {
        Self::peek(self, |item| item.id)
    }
    fn unconsume(&mut self, batch: Batch) -> Batch {
        Self::unconsume(self, batch)
    }
    fn look(&self) -> (bool, bool, usize) {
        (self.is_empty(), self.is_full(), self.capacity())
    }
}

impl Ring for Waiting<Box<Item>> {
    const LOCKED: bool = true;
    fn produce(&mut self, p: Box<Item>) -> std::result::Result<(), Full<Box<Item>>> {
        self.try_produce(p).or_else(|Full(p)| self.produce_timeout(p, Duration::ZERO))
    }
    fn produce_batch(&mut self, from: &mut Batch) -> usize {
        Self::produce_batch(self, from)
    }
    fn consume(&mut self) -> Option<Box<Item>> {
        self.try_consume().or_else(|| self.consume_timeout(Duration::ZERO))
    }
    fn consume_batch(&mut self, into: &mut Batch, max: usize) -> usize {
        Self::consume_batch(self, into, max)
    }
    fn peek(&mut self) -> Option<u32> {
        self.ring().peek(|item| item.id)
    }
    fn unconsume(&mut self, batch: Batch) -> Batch {
        Self::unconsume(self, batch)
    }
    fn look(&self) -> (bool, bool, usize) {
        (self.ring().is_empty(), self.ring().is_full(), self.ring().capacity())
    }
}

struct Handles(Producer<Box<Item>>, Consumer<Box<Item>>);

impl Ring for Handles {
    const LOCKED: bool = false;
    fn produce(&mut self, p: Box<Item>) -> std::result::Result<(), Full<Box<Item>>> {
        self.0.produce(p)
    }
    fn produce_batch(&mut self, from: &mut Batch) -> usize {
        self.0.produce_batch(from)
    }
    fn consume(&mut self) -> Option<Box<Item>> {
        self.1.consume()
    }
    fn consume_batch(&mut self, into: &mut Batch, max: usize) -> usize {
        self.1.consume_batch(into, max)
    }
    fn peek(&mut self) -> Option<u32> {
        self.1.peek(|item| item.id)
    }
    fn unconsume(&mut self, batch: Batch) -> Batch {
        self.1.unconsume(batch)
    }
    fn look(&self) -> (bool, bool, usize) {
        assert_eq!(self.0.capacity(), self.1.capacity());
        assert!(!self.0.is_abandoned() && !self.1.is_abandoned());
        (self.1.is_empty(), self.0.is_full(), self.0.capacity())
    }
}

/// A ring, what it should be, and what has been taken out of it.
struct Pair<R> {
    ring: R,
    model: Model,
    out: Batch,
}

impl<R: Ring> Pair<R> {
    fn new(ring: R, capacity: usize, clearing: Clearing) -> Self {
        Self { ring, model: Model::new(capacity, clearing), out: vec![] }
    }

    fn produce(&mut self, item: Box<Item>) {
        let (id, room) = (item.id, self.model.room() > 0);
        match self.ring.produce(item) {
            Ok(()) => self.model.elements.push_back(id),
            Err(Full(back)) => assert_eq!(back.id, id),
        }
        assert_eq!(room, self.model.elements.back() == Some(&id));
    }

    fn consume(&mut self) {
        let item = self.ring.consume();
        assert_eq!(item.as_ref().map(|i| i.id), self.model.consume());
        self.out.extend(item);
    }

    /// Puts the batch in front, and returns what did not fit.
    fn unconsume(&mut self, batch: Batch) -> Batch {
        let all = ids(&batch);
        let rest = self.ring.unconsume(batch);
        let n = self.model.unconsume(&all, R::LOCKED);
        assert_eq!(ids(&rest), all[..all.len() - n]);
        rest
    }

    /// One of the calls that all kinds of ring have.
    fn step(&mut self, u: &mut Unstructured<'_>, factory: &mut Factory) -> Result<()> {
        match u.int_in_range(0..=8)? {
            0 => factory.many(u.int_in_range(1..=8)?).into_iter().for_each(|item| self.produce(item)),
            1 => {
                let mut from = factory.many(u.int_in_range(0..=80)?);
                let all = ids(&from);
                let fit = all.len().min(self.model.room());
                assert_eq!(self.ring.produce_batch(&mut from), fit);
                assert_eq!(ids(&from), all[fit..]);
                self.model.elements.extend(&all[..fit]);
            }
            2 => (0..u.int_in_range(1..=8)?).for_each(|_| self.consume()),
            3 => {
                let (before, max) = (self.out.len(), u.int_in_range(0..=80)?);
                let got = self.ring.consume_batch(&mut self.out, max);
                let expected: Vec<u32> = (0..max).map_while(|_| self.model.consume()).collect();
                assert_eq!(got, expected.len());
                assert_eq!(ids(&self.out[before..]), expected);
            }
            4 => assert_eq!(self.ring.peek(), self.model.elements.front().copied()),
            5 => {
                let n = u.int_in_range(0..=40)?;
                let batch = self.out.split_off(self.out.len().saturating_sub(n));
                let rest = self.unconsume(batch);
                self.out.extend(rest);
            }
            6 => drop(self.unconsume(factory.many(u.int_in_range(0..=40)?))),
            7 => {
                // Once round: the elements stay, the places change.
                for _ in 0..self.model.elements.len() {
                    self.consume();
                    let item = self.out.pop().expect("there is one");
                    self.produce(item);
                }
            }
            _ => self.out.clear(),
        }
        Ok(())
    }

    fn check(&self) {
        let (empty, full, capacity) = self.ring.look();
        assert_eq!(empty, self.model.elements.is_empty());
        assert_eq!(full, self.model.room() == 0);
        assert!(!empty || !full || capacity == 0, "an empty ring has room");
        assert_eq!(capacity, self.model.capacity);
    }

    fn alive(&self) -> i64 {
        (self.model.elements.len() + self.out.len()) as i64
    }
}

/// Two rings, so that resizing many is more than resizing one.
fn locked<L: RawMutex>(u: &mut Unstructured<'_>, capacity: usize, clearing: Clearing) -> Result<()> {
    let mut factory = Factory::default();
    let mut pairs = [(); 2].map(|()| {
        let ring = PtrRing::<_, L>::with_order(capacity, clearing, u.arbitrary().unwrap_or_default()).expect("memory");
        Pair::new(ring, capacity, clearing)
    });
    while !u.is_empty() {
        let at = usize::from(u.arbitrary::<bool>()?);
        match u.int_in_range(0..=15)? {
            0..=11 => pairs[at].step(u, &mut factory)?,
            12 => {
                let capacity = self::capacity(u)?;
                let rest = pairs[at].ring.resize(capacity).expect("memory");
                assert_eq!(ids(&rest), pairs[at].model.resize(capacity));
            }
            13 => {
                let capacity = self::capacity(u)?;
                let named: &[usize] = [&[0, 1][..], &[1, 0], &[1, 0, 1], &[], &[0, 0], &[1]][u.int_in_range(0..=5)?];
                let rings: Vec<_> = named.iter().map(|i| &pairs[*i].ring).collect();
                let rests = PtrRing::resize_many(&rings, capacity).expect("memory");
                assert_eq!(rests.len(), named.len());
                let mut seen = [false; 2];
                for (i, rest) in named.iter().zip(&rests) {
                    // A second name of the same ring finds nothing to do.
                    let expected = if seen[*i] { vec![] } else { pairs[*i].model.resize(capacity) };
                    seen[*i] = true;
                    assert_eq!(ids(rest), expected);
                }
            }
            14 => {
                let too_large = PtrRing::resize_many(&[&pairs[0].ring, &pairs[1].ring], MAX_CAPACITY + 1);
                assert_eq!(too_large.map(|rests| rests.len()), Err(CapacityError::TooLarge));
            }
            _ => {
                // A look at one ring produces into the other, or into itself.
                let into = usize::from(u.arbitrary::<bool>()?);
                let item = factory.one();
                let (id, room) = (item.id, pairs[into].model.room() > 0);
                let looked = pairs[at].ring.peek(|front| (front.id, pairs[into].ring.produce(item)));
                let expected = pairs[at].model.elements.front().copied();
                assert_eq!(looked.as_ref().map(|(front, _)| *front), expected);
                assert_eq!(looked.as_ref().map(|(_, produced)| produced.is_ok()), expected.map(|_| room));
                if let Some((_, Ok(()))) = looked {
                    pairs[into].model.elements.push_back(id);
                }
            }
        }
        pairs.iter().for_each(Pair::check);
        assert_eq!(factory.alive(), pairs[0].alive() + pairs[1].alive());
    }
    drop(pairs);
    assert_eq!(factory.alive(), 0);
    Ok(())
}

fn waiting(u: &mut Unstructured<'_>, capacity: usize, clearing: Clearing) -> Result<()> {
    let mut factory = Factory::default();
    let ring = Waiting::from(PtrRing::with_clearing(capacity, clearing).expect("memory"));
    let mut pair = Pair::new(ring, capacity, clearing);
    while !u.is_empty() {
        match u.int_in_range(0..=7)? {
            0..=6 => pair.step(u, &mut factory)?,
            _ => {
                let capacity = self::capacity(u)?;
                let rest = pair.ring.resize(capacity).expect("memory");
                assert_eq!(ids(&rest), pair.model.resize(capacity));
            }
        }
        pair.check();
        assert_eq!(factory.alive(), pair.alive());
    }
    drop(pair);
    assert_eq!(factory.alive(), 0);
    Ok(())
}

fn handles(u: &mut Unstructured<'_>, capacity: usize, clearing: Clearing) -> Result<()> {
    let mut factory = Factory::default();
    let (tx, rx) = spsc_with_clearing(capacity, clearing).expect("memory");
    let mut pair = Pair::new(Handles(tx, rx), capacity, clearing);
    let mut ending = 0;
    while !u.is_empty() {
        match u.int_in_range(0..=31)? {
            0..=29 => pair.step(u, &mut factory)?,
            n => {
                ending = n - 29;
                break;
            }
        }
        pair.check();
        assert_eq!(factory.alive(), pair.alive());
    }
    let Pair { ring: Handles(mut tx, mut rx), mut model, out } = pair;
    let more = factory.many(if ending == 0 { 0 } else { usize::from(u.arbitrary::<u8>().unwrap_or_default()) });
    if ending == 1 {
        // The consumer goes; the producer fills what was cleared.
        drop(rx);
        assert!(tx.is_abandoned());
        let fit = model.room().min(more.len());
        assert_eq!(more.into_iter().filter_map(|item| tx.produce(item).ok()).count(), fit);
        drop(tx);
    } else {
        // The producer goes; the consumer takes the rest.
        drop(tx);
        drop(more);
        assert!(rx.is_abandoned());
        let taken: Vec<_> = (0..model.elements.len() / 2).filter_map(|_| rx.consume()).collect();
        assert_eq!(ids(&taken), (0..taken.len()).filter_map(|_| model.consume()).collect::<Vec<_>>());
        assert_eq!(factory.alive(), (model.elements.len() + taken.len() + out.len()) as i64);
        drop(rx);
        drop(taken);
    }
    assert_eq!(factory.alive(), out.len() as i64);
    Ok(())
}
