//! Models of the rings: every interleaving of two or three threads, and what each may see of the others' memory.
//!
//! `tests/loom/run.sh` runs them. `tests/loom/mutants.txt` names for each ordering of docs/ordering.md the model that
//! fails when it is weakened (`PERCPU_REF_MUTANT=Q1`).
#![cfg(percpu_ref_loom)]

use loom::cell::UnsafeCell;
use loom::thread;
use percpu_ref::ptr_ring::{Clearing, PtrRing, Waiting, spsc, spsc_with_clearing};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an element points to: loom notices when a reader is not ordered after the writer. Dropping it counts.
struct Content(UnsafeCell<usize>, Option<Arc<AtomicUsize>>);

// SAFETY: the models hand it from thread to thread; loom checks that they do.
unsafe impl Send for Content {}

impl Content {
    fn new(value: usize) -> Box<Self> {
        Self::made(value, None)
    }

    fn counted(value: usize, drops: &Arc<AtomicUsize>) -> Box<Self> {
        Self::made(value, Some(drops.clone()))
    }

    /// Written after it was made: loom does not count the making as a write.
    fn made(value: usize, drops: Option<Arc<AtomicUsize>>) -> Box<Self> {
        let content = Self(UnsafeCell::new(0), drops);
        // SAFETY: loom reports a race.
        content.0.with_mut(|p| unsafe { *p = value });
        Box::new(content)
    }

    fn get(&self) -> usize {
        // SAFETY: loom reports a race.
        self.0.with(|p| unsafe { *p })
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        // Reads the content, so that a drop which is not ordered is a race.
        self.get();
        if let Some(drops) = &self.1 {
            drops.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    loom::model(f);
}

/// Q1, Q2.
///
/// The thread that runs first here, which is the one that spawns, has to be the producer: loom remembers one access of an
/// object to go back to, and the producer looks at a slot before it fills it.
#[test]
fn what_an_element_points_to_is_published_with_it() {
    model(|| {
        let (mut tx, mut rx) = spsc::<Box<Content>>(2).unwrap();
        let consumer = thread::spawn(move || {
            let mut got = vec![];
            got.extend(rx.consume());
            rx.consume_batch(&mut got, 2);
            assert!(got.iter().map(|x| x.get()).eq(1..=got.len()));
        });
        tx.produce(Content::new(1)).unwrap_or_else(|_| panic!());
        tx.produce_batch(&mut vec![Content::new(2)]);
        consumer.join().unwrap();
    });
}

/// Q1, Q2, in the middle of a batch, where the producer looks at nothing.
#[test]
fn an_element_inside_of_a_batch_is_published_too() {
    model(|| {
        let (mut tx, mut rx) = spsc::<Box<Content>>(8).unwrap(); // batches of 2
        tx.produce(Content::new(1)).unwrap_or_else(|_| panic!());
        let producer = thread::spawn(move || tx.produce(Content::new(2)).is_ok());
        assert_eq!(rx.consume().map(|x| x.get()), Some(1));
        assert!(matches!(rx.consume().map(|x| x.get()), None | Some(2)));
        assert!(producer.join().unwrap());
    });
}

/// Q3, Q4: the producer's own slots are null, which it asserts when it fills them.
fn a_batch_is_free_as_a_whole(batched: bool) {
    model(move || {
        let (mut tx, mut rx) = spsc::<Box<usize>>(8).unwrap(); // batches of 2
        tx.produce_batch(&mut (0..8).map(Box::new).collect());
        let producer = thread::spawn(move || {
            let mut batch: Vec<_> = (8..10).map(Box::new).collect();
            if batched {
                tx.produce_batch(&mut batch);
            } else {
                for p in batch.drain(..) {
                    if tx.produce(p).is_err() {
                        break;
                    }
                }
            }
            tx
        });
        let mut got = vec![];
        if batched {
            rx.consume_batch(&mut got, 2);
        } else {
            got.extend(rx.consume());
            got.extend(rx.consume());
        }
        let tx = producer.join().unwrap();
        rx.consume_batch(&mut got, 99);
        assert!(got.len() == 8 || got.len() == 10, "none or a whole batch: {}", got.len());
        assert!(got.iter().enumerate().all(|(i, x)| **x == i));
        drop(tx);
    });
}

#[test]
fn a_batch_is_free_as_a_whole_one_by_one() {
    a_batch_is_free_as_a_whole(false);
}

#[test]
fn a_batch_is_free_as_a_whole_at_once() {
    a_batch_is_free_as_a_whole(true);
}

#[test]
fn a_slot_at_a_time_under_the_kernels_rule() {
    model(|| {
        let (mut tx, mut rx) = spsc_with_clearing::<Box<usize>>(4, Clearing::Batch(2)).unwrap();
        tx.produce_batch(&mut (0..4).map(Box::new).collect());
        let producer = thread::spawn(move || (4..6).take_while(|i| tx.produce(Box::new(*i)).is_ok()).count());
        let mut got = vec![];
        (0..3).for_each(|_| got.extend(rx.consume()));
        let more = producer.join().unwrap();
        rx.consume_batch(&mut got, 99);
        assert!(got.len() == 4 + more && got.iter().enumerate().all(|(i, x)| **x == i));
    });
}

/// A batch whose tail lies inside of it is two runs for the producer, until the consumer's next clearing begins there.
#[test]
fn a_batch_cut_by_unconsume_is_two_runs() {
    model(|| {
        let ring = Arc::new(PtrRing::new(8).unwrap()); // batches of 2
        assert!(ring.unconsume(vec![Box::new(0_usize)]).is_empty()); // into the second slot of the last one
        assert_eq!(ring.produce_batch(&mut (1..7).map(Box::new).collect()), 6);
        let producer = thread::spawn({
            let ring = ring.clone();
            move || (7..9).take_while(|i| ring.produce(Box::new(*i)).is_ok()).count()
        });
        let mut got = vec![];
        (0..2).for_each(|_| got.extend(ring.consume()));
        let more = producer.join().unwrap();
        assert!(more >= 1, "there was room for one from the beginning");
        ring.consume_batch(&mut got, 99);
        assert!(got.len() == 7 + more && got.iter().enumerate().all(|(i, x)| **x == i));
    });
}

/// Q5: whoever leaves last destroys what the other one did.
#[test]
fn the_last_handle_destroys_what_is_left() {
    model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut tx, mut rx) = spsc(4).unwrap();
        tx.produce(Content::counted(1, &drops)).unwrap_or_else(|_| panic!());
        let producer = thread::spawn({
            let drops = drops.clone();
            move || tx.produce(Content::counted(2, &drops)).is_ok()
        });
        drop(rx.consume());
        drop(rx);
        producer.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

/// Q5, Q6: once the producer is gone, what is there is all there is.
#[test]
fn an_abandoned_ring_shows_all_that_was_produced() {
    model(|| {
        let (mut tx, mut rx) = spsc(4).unwrap();
        let producer = thread::spawn(move || {
            tx.produce(Content::new(1)).unwrap_or_else(|_| panic!());
        });
        if rx.is_abandoned() {
            assert_eq!(rx.consume().map(|x| x.get()), Some(1));
        }
        producer.join().unwrap();
    });
}

/// Q7, Q8.
#[test]
fn a_ring_that_is_not_empty_has_an_element_for_its_only_consumer() {
    model(|| {
        let ring = Arc::new(PtrRing::<Box<Content>>::new(4).unwrap());
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || {
                if !ring.is_empty() {
                    assert_eq!(ring.consume().map(|x| x.get()), Some(1));
                    assert!(ring.is_empty());
                }
            }
        });
        // Here, so that it runs first: a producer looks at its count before it changes it.
        assert!(ring.produce(Content::new(1)).is_ok());
        consumer.join().unwrap();
    });
}

/// Q9, Q10.
#[test]
fn a_ring_that_is_not_full_has_room_for_its_only_producer() {
    model(|| {
        let ring = Arc::new(PtrRing::new(1).unwrap());
        ring.produce(Content::new(1)).unwrap_or_else(|_| panic!());
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || ring.consume().is_some()
        });
        if !ring.is_full() {
            assert!(ring.produce(Content::new(2)).is_ok());
        }
        consumer.join().unwrap();
    });
}

#[test]
fn a_third_party_never_takes_a_ring_for_empty_that_it_knows_is_not() {
    model(|| {
        let ring = Arc::new(PtrRing::new(4).unwrap());
        ring.produce_batch(&mut vec![Content::new(1), Content::new(2)]);
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || ring.consume().is_some()
        });
        assert!(!ring.is_empty());
        consumer.join().unwrap();
    });
}

/// Q11, Q12.
#[test]
fn two_consumers_never_get_the_same_element() {
    model(|| {
        let ring = Arc::new(PtrRing::new(2).unwrap());
        ring.produce_batch(&mut vec![Content::new(1), Content::new(2)]);
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || ring.consume().map(|x| x.get())
        });
        let here = ring.consume().map(|x| x.get());
        let there = consumer.join().unwrap();
        assert!(matches!((here, there), (Some(1), Some(2)) | (Some(2), Some(1))));
    });
}

/// Q11, Q12: the new queue, and what was moved to it, is there for whoever comes next.
#[test]
fn a_resize_beside_produce_and_consume_loses_nothing() {
    model(|| {
        let ring = Arc::new(PtrRing::new(2).unwrap());
        ring.produce_batch(&mut vec![Content::new(1), Content::new(2)]);
        let resizer = thread::spawn({
            let ring = ring.clone();
            move || {
                let rest = ring.resize(1).unwrap_or_else(|_| panic!());
                rest.iter().map(|x| x.get()).collect::<Vec<_>>()
            }
        });
        let produced = ring.produce(Content::new(3)).is_ok();
        let first = ring.consume().map(|x| x.get());
        assert_eq!(first, Some(1));
        let mut all: Vec<_> = resizer.join().unwrap();
        while let Some(x) = ring.consume() {
            all.push(x.get());
        }
        all.sort_unstable();
        assert_eq!(all, if produced { vec![2, 3] } else { vec![2] });
    });
}

/// Q13, Q14.
#[test]
fn a_consumer_that_waits_is_woken() {
    model(|| {
        let ring = Arc::new(Waiting::<Box<Content>>::new(1).unwrap());
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || assert_eq!(ring.consume().get(), 1)
        });
        ring.try_produce(Content::new(1)).unwrap_or_else(|_| panic!());
        consumer.join().unwrap();
    });
}

/// Q13, Q14.
#[test]
fn a_producer_that_waits_for_cleared_room_is_woken() {
    model(|| {
        let ring = Arc::new(Waiting::<Box<Content>>::new(1).unwrap());
        ring.try_produce(Content::new(1)).unwrap_or_else(|_| panic!());
        let producer = thread::spawn({
            let ring = ring.clone();
            move || ring.produce(Content::new(2))
        });
        assert_eq!(ring.try_consume().map(|x| x.get()), Some(1));
        producer.join().unwrap();
        assert_eq!(ring.try_consume().map(|x| x.get()), Some(2));
    });
}
