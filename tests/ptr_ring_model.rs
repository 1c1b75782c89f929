//! The whole API of the rings against a model, by random sequences of calls: which elements come out, exactly when there
//! is room, and that every element is dropped once.
#![expect(clippy::vec_box, reason = "batches are vectors of what the ring holds")]

#[path = "common/ring_model.rs"]
mod ring_model;

use percpu_ref::ptr_ring::{Clearing, Consumer, Full, Producer, PtrRing, spsc_with_clearing};
use proptest::prelude::*;
use ring_model::{Factory, Item, Model, ids};

#[derive(Clone, Debug)]
enum Op {
    Produce(usize),
    ProduceBatch(usize),
    Consume(usize),
    ConsumeBatch(usize),
    Peek,
    /// Puts back the last so many of what was consumed.
    Unconsume(usize),
    /// Puts in front what was never in the ring.
    Insert(usize),
    Resize(usize),
    ResizeTwice(usize),
    Forget,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1..9_usize).prop_map(Op::Produce),
        4 => (0..80_usize).prop_map(Op::ProduceBatch),
        4 => (1..9_usize).prop_map(Op::Consume),
        4 => (0..80_usize).prop_map(Op::ConsumeBatch),
        1 => Just(Op::Peek),
        3 => (0..40_usize).prop_map(Op::Unconsume),
        1 => (0..40_usize).prop_map(Op::Insert),
        1 => (0..90_usize).prop_map(Op::Resize),
        1 => (0..90_usize).prop_map(Op::ResizeTwice),
        1 => Just(Op::Forget),
    ];
    prop::collection::vec(op, 1..120)
}

fn clearings() -> impl Strategy<Value = Clearing> {
    prop_oneof![
        3 => Just(Clearing::Credit),
        2 => Just(Clearing::Kernel),
        1 => Just(Clearing::OneByOne),
        2 => (0..50_usize).prop_map(Clearing::Batch),
    ]
}

fn capacities() -> impl Strategy<Value = usize> {
    prop_oneof![0..4_usize, 0..40_usize, 30..300_usize]
}

/// The calls that both kinds of ring have.
trait Ring {
    const LOCKED: bool;
    fn produce(&mut self, p: Box<Item>) -> Result<(), Full<Box<Item>>>;
    fn produce_batch(&mut self, from: &mut Vec<Box<Item>>) -> usize;
    fn consume(&mut self) -> Option<Box<Item>>;
    fn consume_batch(&mut self, into: &mut Vec<Box<Item>>, max: usize) -> usize;
    fn peek(&mut self) -> Option<u32>;
    fn unconsume(&mut self, batch: Vec<Box<Item>>) -> Vec<Box<Item>>;
    fn resize(&mut self, capacity: usize, twice: bool) -> Option<Vec<Box<Item>>>;
    fn is_empty(&self) -> bool;
    fn is_full(&self) -> bool;
    fn capacity(&self) -> usize;
}

/// The same calls, on what is named.
macro_rules! calls {
    (|$ring:ident| $producer:expr, $consumer:expr, $peek:expr) => {
        fn produce(&mut self, p: Box<Item>) -> Result<(), Full<Box<Item>>> {
            let $ring = self;
            $producer.produce(p)
        }
        fn produce_batch(&mut self, from: &mut Vec<Box<Item>>) -> usize {
            let $ring = self;
            $producer.produce_batch(from)
        }
        fn consume(&mut self) -> Option<Box<Item>> {
            let $ring = self;
            $consumer.consume()
        }
        fn consume_batch(&mut self, into: &mut Vec<Box<Item>>, max: usize) -> usize {
            let $ring = self;
            $consumer.consume_batch(into, max)
        }
        fn peek(&mut self) -> Option<u32> {
            let $ring = self;
            $consumer.peek($peek)
        }
        fn unconsume(&mut self, batch: Vec<Box<Item>>) -> Vec<Box<Item>> {
            let $ring = self;
            $consumer.unconsume(batch)
        }
        fn is_empty(&self) -> bool {
            let $ring = self;
            $consumer.is_empty()
        }
        fn is_full(&self) -> bool {
            let $ring = self;
            $producer.is_full()
        }
        fn capacity(&self) -> usize {
            let $ring = self;
            $producer.capacity()
        }
    };
}

struct Locked(PtrRing<Box<Item>>);

impl Ring for Locked {
    const LOCKED: bool = true;
    calls!(|ring| ring.0, ring.0, |item| item.id);
    fn resize(&mut self, capacity: usize, twice: bool) -> Option<Vec<Box<Item>>> {
        if !twice {
            return Some(self.0.resize(capacity).unwrap());
        }
        let mut rests = PtrRing::resize_many(&[&self.0, &self.0], capacity).unwrap();
        assert!(rests.len() == 2 && rests.pop().unwrap().is_empty());
        rests.pop()
    }
}

struct Handles(Producer<Box<Item>>, Consumer<Box<Item>>);

impl Ring for Handles {
    const LOCKED: bool = false;
    calls!(|ring| ring.0, ring.1, |item| item.id);
    fn resize(&mut self, _: usize, _: bool) -> Option<Vec<Box<Item>>> {
        None
    }
}

fn check<R: Ring>(mut ring: R, capacity: usize, clearing: Clearing, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut factory = Factory::default();
    let mut model = Model::new(capacity, clearing);
    let mut out: Vec<Box<Item>> = vec![];
    for op in ops {
        match op {
            Op::Produce(n) => {
                for item in factory.many(n) {
                    let (id, room) = (item.id, model.room() > 0);
                    match ring.produce(item) {
                        Ok(()) => model.elements.push_back(id),
                        Err(Full(back)) => prop_assert_eq!(back.id, id),
                    }
                    prop_assert_eq!(room, model.elements.back() == Some(&id));
                }
            }
            Op::ProduceBatch(n) => {
                let mut from = factory.many(n);
                let all = ids(&from);
                let fit = n.min(model.room());
                prop_assert_eq!(ring.produce_batch(&mut from), fit);
                prop_assert_eq!(&ids(&from), &all[fit..]);
                model.elements.extend(&all[..fit]);
            }
            Op::Consume(n) => {
                for _ in 0..n {
                    let item = ring.consume();
                    prop_assert_eq!(item.as_ref().map(|i| i.id), model.consume());
                    out.extend(item);
                }
            }
            Op::ConsumeBatch(n) => {
                let before = out.len();
                let got = ring.consume_batch(&mut out, n);
                let expected: Vec<u32> = (0..n).map_while(|_| model.consume()).collect();
                prop_assert_eq!(got, expected.len());
                prop_assert_eq!(ids(&out[before..]), expected);
            }
            Op::Peek => prop_assert_eq!(ring.peek(), model.elements.front().copied()),
            Op::Unconsume(n) => {
                let batch = out.split_off(out.len().saturating_sub(n));
                let all = ids(&batch);
                let rest = ring.unconsume(batch);
                let n = model.unconsume(&all, R::LOCKED);
                prop_assert_eq!(&ids(&rest), &all[..all.len() - n]);
                out.extend(rest);
            }
            Op::Insert(n) => {
                let batch = factory.many(n);
                let all = ids(&batch);
                let rest = ring.unconsume(batch);
                let n = model.unconsume(&all, R::LOCKED);
                prop_assert_eq!(&ids(&rest), &all[..all.len() - n]);
            }
            Op::Resize(n) | Op::ResizeTwice(n) => {
                if let Some(rest) = ring.resize(n, matches!(op, Op::ResizeTwice(_))) {
                    prop_assert_eq!(ids(&rest), model.resize(n));
                }
            }
            Op::Forget => out.clear(),
        }
        prop_assert_eq!(ring.is_empty(), model.elements.is_empty());
        prop_assert_eq!(ring.is_full(), model.room() == 0);
        prop_assert!(!ring.is_empty() || !ring.is_full() || model.capacity == 0, "an empty ring has room");
        prop_assert_eq!(ring.capacity(), model.capacity);
        prop_assert_eq!(factory.alive(), (model.elements.len() + out.len()) as i64);
    }
    drop(ring);
    prop_assert_eq!(factory.alive(), out.len() as i64);
    drop(out);
    prop_assert_eq!(factory.alive(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_locked_ring_does_what_the_model_does(capacity in capacities(), clearing in clearings(), ops in ops()) {
        check(Locked(PtrRing::with_clearing(capacity, clearing).unwrap()), capacity, clearing, ops)?;
    }

    #[test]
    fn a_pair_of_handles_does_what_the_model_does(capacity in capacities(), clearing in clearings(), ops in ops()) {
        let (tx, rx) = spsc_with_clearing(capacity, clearing).unwrap();
        check(Handles(tx, rx), capacity, clearing, ops)?;
    }
}
