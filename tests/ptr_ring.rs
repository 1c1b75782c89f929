//! The rings, through their public API.
#![expect(clippy::vec_box, reason = "batches are vectors of what the ring holds")]

use percpu_ref::ptr_ring::{
    CapacityError, Clearing, Full, MAX_CAPACITY, Pointer, PtrRing, RawMutex, Waiting, YieldLock, spsc,
    spsc_with_clearing,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

fn boxes(range: std::ops::Range<u32>) -> Vec<Box<u32>> {
    range.map(Box::new).collect()
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Fills a ring, consumes `n`, and returns how many more go in.
fn room_after(capacity: usize, clearing: Clearing, n: usize) -> usize {
    let ring = PtrRing::<Box<u32>>::with_clearing(capacity, clearing).unwrap();
    assert_eq!(ring.produce_batch(&mut boxes(0..capacity as u32 + 5)), capacity);
    (0..n).for_each(|_| drop(ring.consume().expect("it was full")));
    let room = (0..).take_while(|i| ring.produce(Box::new(*i)).is_ok()).count();
    let (mut tx, mut rx) = spsc_with_clearing::<Box<u32>>(capacity, clearing).unwrap();
    tx.produce_batch(&mut boxes(0..capacity as u32));
    assert_eq!(rx.consume_batch(&mut vec![], n), n);
    assert_eq!(tx.produce_batch(&mut boxes(0..2 * capacity as u32 + 9)), room, "the handles have the same rule");
    room
}

#[test]
fn the_kernels_rule_frees_sixteen_at_a_time() {
    for (n, room) in [(0, 0), (1, 0), (15, 0), (16, 16), (17, 16), (31, 16), (32, 32), (63, 48), (64, 64)] {
        assert_eq!(room_after(64, Clearing::Kernel, n), room, "{n} of 64");
    }
    for size in [0, 1, 2, 3, 31] {
        (0..=size).for_each(|n| assert_eq!(room_after(size, Clearing::Kernel, n), n, "{n} of {size}"));
    }
    let more = [(32, 15, 0), (32, 16, 16), (33, 32, 32), (33, 33, 33), (33, 31, 16), (40, 39, 32), (40, 40, 40)];
    for (size, n, room) in more {
        assert_eq!(room_after(size, Clearing::Kernel, n), room, "{n} of {size}");
    }
}

#[test]
fn the_credit_rule_frees_whole_batches() {
    for size in [0, 1, 2, 3, 4, 7, 8, 9, 12, 31, 64, 65, 100, 255, 256, 257, 500] {
        let batch = (size / 4).clamp(1, 64);
        for n in 0..=size {
            let room = if n == size { size } else { n / batch * batch };
            assert_eq!(room_after(size, Clearing::Credit, n), room, "{n} of {size}");
            assert!(n - room < batch, "the lag is less than a batch");
        }
    }
}

#[test]
fn clearing_one_by_one_frees_each() {
    for size in [0, 1, 2, 33, 64, 100] {
        for n in 0..=size {
            assert_eq!(room_after(size, Clearing::OneByOne, n), n);
            assert_eq!(room_after(size, Clearing::Batch(0), n), n);
            assert_eq!(room_after(size, Clearing::Batch(size), n), n, "a batch of more than half is none");
        }
    }
    assert_eq!((room_after(10, Clearing::Batch(5), 4), room_after(10, Clearing::Batch(5), 5)), (0, 5));
}

#[test]
fn an_empty_ring_has_room_wherever_its_head_is() {
    for clearing in [Clearing::Credit, Clearing::Kernel, Clearing::OneByOne, Clearing::Batch(3)] {
        for size in 1..70 {
            let ring = PtrRing::<Box<u32>>::with_clearing(size, clearing).unwrap();
            for i in 0..3 * size as u32 {
                assert!(!ring.is_full());
                ring.produce(Box::new(i)).expect("it is empty");
                assert_eq!(ring.consume(), Some(Box::new(i)));
                assert!(ring.is_empty());
            }
        }
    }
}

#[test]
fn shrinking_to_the_fill_level_leaves_a_full_ring_that_works() {
    for size in 1..40 {
        let ring = PtrRing::new(40).unwrap();
        ring.produce_batch(&mut boxes(0..size));
        assert_eq!(ring.resize(size as usize).unwrap(), vec![]);
        assert!(ring.is_full());
        assert_eq!(ring.produce(Box::new(99)), Err(Full(Box::new(99))));
        let mut all = vec![];
        assert_eq!(ring.consume_batch(&mut all, 99), size as usize);
        assert_eq!(all, boxes(0..size));
        assert_eq!(ring.produce_batch(&mut boxes(0..99)), size as usize);
    }
}

#[test]
fn unconsume_goes_across_the_end_and_into_the_middle_of_a_batch() {
    for size in [5_u32, 16, 37, 64] {
        for start in 0..2 * size {
            for len in (0..=size).step_by(1 + size as usize / 20) {
                let ring = PtrRing::new(size as usize).unwrap();
                for i in 0..start {
                    ring.produce(Box::new(i)).unwrap();
                    ring.consume().unwrap();
                }
                assert_eq!(ring.unconsume(boxes(0..len)), vec![]);
                let mut all = vec![];
                let mut more = boxes(len..2 * size);
                ring.produce_batch(&mut more);
                ring.consume_batch(&mut all, 1 + len as usize / 2);
                while ring.produce_batch(&mut more) + ring.consume_batch(&mut all, 7) > 0 {}
                assert_eq!(all, boxes(0..2 * size));
                assert_eq!(ring.produce_batch(&mut boxes(0..1)), 1);
            }
        }
    }
}

#[test]
fn a_capacity_above_the_maximum_is_refused_before_anything_is_allocated() {
    for capacity in [MAX_CAPACITY + 1, usize::MAX / 8, usize::MAX / 2, usize::MAX] {
        assert_eq!(PtrRing::<Box<u8>>::new(capacity).unwrap_err(), CapacityError::TooLarge);
        assert_eq!(spsc::<Box<u8>>(capacity).unwrap_err(), CapacityError::TooLarge);
        assert_eq!(Waiting::<Box<u8>>::new(capacity).unwrap_err(), CapacityError::TooLarge);
        let ring = PtrRing::new(3).unwrap();
        ring.produce_batch(&mut boxes(0..2));
        assert_eq!(PtrRing::resize_many(&[&ring, &ring], capacity).unwrap_err(), CapacityError::TooLarge);
        assert_eq!((ring.capacity(), ring.consume()), (3, Some(Box::new(0))));
    }
}

#[test]
fn the_same_ring_may_be_named_twice() {
    let (a, b) = (PtrRing::new(4).unwrap(), PtrRing::new(4).unwrap());
    a.produce_batch(&mut boxes(0..4));
    b.produce_batch(&mut boxes(10..14));
    let rests = PtrRing::resize_many(&[&b, &a, &b, &a, &b], 3).unwrap();
    assert_eq!(rests, [boxes(13..14), boxes(3..4), vec![], vec![], vec![]]);
    assert!(PtrRing::resize_many(&[] as &[&PtrRing<Box<u32>>], 3).unwrap().is_empty());
}

#[test]
fn the_closure_of_peek_may_not_take_the_consumers_lock_again() {
    let ring = PtrRing::new(4).unwrap();
    ring.produce_batch(&mut boxes(0..3));
    let other = PtrRing::new(4).unwrap();
    let seen = ring.peek(|first| {
        assert!(panics(|| drop(ring.consume())));
        assert!(panics(|| assert_eq!(ring.consume_batch(&mut vec![], 3), 0)));
        assert!(panics(|| drop(ring.unconsume(boxes(7..8)))));
        assert!(panics(|| drop(ring.resize(9))));
        assert!(panics(|| drop(PtrRing::resize_many(&[&other, &ring], 9))));
        assert!(panics(|| assert_eq!(ring.peek(|_| ()), None)));
        assert_eq!((ring.capacity(), other.capacity()), (4, 4), "nothing has changed");
        // The rest is allowed.
        ring.produce(Box::new(3)).unwrap();
        assert!(ring.is_full() && !ring.is_empty());
        assert!(ring.produce(Box::new(4)).is_err());
        other.produce(Box::new(5)).unwrap();
        other.consume().unwrap();
        other.peek(|_| ());
        other.resize(2).unwrap();
        **first
    });
    assert_eq!(seen, Some(0));
    let mut all = vec![];
    ring.consume_batch(&mut all, 9);
    assert_eq!(all, boxes(0..4));
}

#[test]
fn other_threads_wait_for_the_closure_of_peek() {
    let ring = PtrRing::new(4).unwrap();
    ring.produce_batch(&mut boxes(0..2));
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        ring.peek(|_| {
            s.spawn(|| {
                assert_eq!(ring.consume(), Some(Box::new(0)));
                assert!(over.load(SeqCst));
            });
            thread::sleep(Duration::from_millis(20));
            over.store(true, SeqCst);
        });
    });
}

/// Panics in its destructor, and counts.
struct Bomb(Arc<AtomicUsize>, bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        assert!(!self.1, "a destructor that panics");
    }
}

#[test]
fn a_destructor_that_panics_does_not_spare_the_others() {
    let count = Arc::new(AtomicUsize::new(0));
    let bomb = |armed| Box::new(Bomb(count.clone(), armed));
    let ring = PtrRing::new(8).unwrap();
    (0..5).for_each(|i| ring.produce(bomb(i == 1)).unwrap());
    assert!(panics(|| drop(ring)));
    assert_eq!(count.swap(0, SeqCst), 5);

    let (mut tx, rx) = spsc(8).unwrap();
    (0..5).for_each(|i| tx.produce(bomb(i == 4)).unwrap());
    drop(rx);
    assert!(panics(|| drop(tx)));
    assert_eq!(count.swap(0, SeqCst), 5);

    let ring = PtrRing::new(8).unwrap();
    (0..5).for_each(|i| ring.produce(bomb(i == 2)).unwrap());
    assert!(panics(|| drop(ring.resize(0))));
    assert_eq!(count.load(SeqCst), 5);
    assert!(ring.is_empty());
}

#[test]
fn a_destructor_may_use_the_ring_it_came_from() {
    struct Back(Arc<PtrRing<Box<Back>>>, u32);
    impl Drop for Back {
        fn drop(&mut self) {
            if self.1 > 0 {
                assert!(self.0.produce(Box::new(Back(self.0.clone(), self.1 - 1))).is_ok());
                assert_eq!(self.0.peek(|b| b.1), Some(self.1 - 1));
            }
        }
    }
    let ring = Arc::new(PtrRing::new(1).unwrap());
    assert!(ring.produce(Box::new(Back(ring.clone(), 4))).is_ok());
    for _ in 0..5 {
        drop(ring.consume().expect("one at a time"));
    }
    assert!(ring.is_empty());
    assert_eq!(Arc::strong_count(&ring), 1);
}

#[test]
fn handles_may_be_forgotten_and_dropped_in_any_order() {
    let element = Arc::new(());
    for order in 0..4 {
        let (mut tx, mut rx) = spsc(8).unwrap();
        (0..8).for_each(|_| tx.produce(element.clone()).unwrap());
        (0..3).for_each(|_| drop(rx.consume()));
        match order {
            0 => {
                drop(tx);
                drop(rx);
            }
            1 => {
                drop(rx);
                assert!(tx.is_abandoned());
                assert_eq!((0..9).filter(|_| tx.produce(element.clone()).is_ok()).count(), 2);
                drop(tx);
            }
            2 => {
                drop(rx);
                std::mem::forget(tx);
            }
            _ => {
                drop(tx);
                assert!(rx.is_abandoned());
                std::mem::forget(rx);
            }
        }
        if order < 2 {
            assert_eq!(Arc::strong_count(&element), 1);
        }
    }
    assert_eq!(Arc::strong_count(&element), 1 + 2 * 5, "forgetting leaks and does no more");
}

#[test]
fn what_is_left_is_dropped_oldest_first() {
    struct Log<'a>(u32, &'a RefCell<Vec<u32>>);
    impl Drop for Log<'_> {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }
    let log = RefCell::new(vec![]);
    let ring = PtrRing::new(5).unwrap();
    (0..4).for_each(|i| ring.produce(Box::new(Log(i, &log))).unwrap());
    (0..4).for_each(|_| drop(ring.consume()));
    (4..8).for_each(|i| ring.produce(Box::new(Log(i, &log))).unwrap());
    drop(ring);
    assert_eq!(*log.borrow(), Vec::from_iter(0..8));
}

#[test]
fn every_lock_fits() {
    fn run<L: RawMutex + Send + Sync + 'static>() {
        let ring = PtrRing::<Box<u32>, L>::with_lock(8).unwrap();
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    (0..2000).for_each(|i| {
                        while ring.produce(Box::new(i)).is_err() {
                            thread::yield_now();
                        }
                    });
                });
            }
            let mut got = 0;
            while got < 4000 {
                got += ring.consume_batch(&mut vec![], 3);
                if got % 100 == 0 {
                    assert!(ring.peek(|_| panics(|| drop(ring.consume()))).unwrap_or(true));
                }
            }
        });
        assert!(ring.is_empty());
    }
    run::<YieldLock>();
    run::<parking_lot::RawMutex>();
}

#[test]
fn a_users_pointer_goes_through_every_call() {
    /// A number that is never null, as a kernel driver's tagged pointers are not.
    struct Tagged(usize);
    // SAFETY: 1. the number is the pointer and the pointer the number; 2. nothing is reached; 3. conversions of integers,
    // which fail for 0 only, and nobody makes that.
    unsafe impl Pointer for Tagged {
        fn into_raw(self) -> std::ptr::NonNull<()> {
            std::ptr::NonNull::without_provenance(self.0.try_into().unwrap())
        }
        unsafe fn from_raw(raw: std::ptr::NonNull<()>) -> Self {
            Tagged(raw.addr().get())
        }
    }
    let ring = PtrRing::new(100).unwrap();
    ring.produce_batch(&mut (1..50).map(Tagged).collect());
    assert!(ring.produce(Tagged(50)).is_ok());
    assert_eq!(ring.peek(|t| t.0), Some(1));
    let mut batch = vec![];
    ring.consume_batch(&mut batch, 20);
    ring.unconsume(batch);
    assert_eq!(ring.resize(40).unwrap().iter().map(|t| t.0).collect::<Vec<_>>(), Vec::from_iter(41..51));
    (1..41).for_each(|i| assert_eq!(ring.consume().unwrap().0, i));
}

/// Everything at once, for a while: each element comes out once.
#[test]
fn resizing_peeking_and_putting_back_under_load_loses_nothing() {
    const EACH: u64 = 10_000;
    for clearing in [Clearing::Credit, Clearing::Kernel, Clearing::OneByOne] {
        let rings: [PtrRing<Box<u64>>; 2] = std::array::from_fn(|_| PtrRing::with_clearing(40, clearing).unwrap());
        let (over, start) = (AtomicBool::new(false), Barrier::new(5));
        let (total, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let count = |items: &[Box<u64>]| {
            sum.fetch_add(items.iter().map(|i| **i as usize).sum(), SeqCst);
            total.fetch_add(items.len(), SeqCst);
        };
        thread::scope(|s| {
            for ring in &rings {
                s.spawn(|| {
                    start.wait();
                    let mut batch = vec![];
                    for i in 0..EACH {
                        if i % 3 == 0 {
                            batch.push(Box::new(i));
                            ring.produce_batch(&mut batch);
                            continue;
                        }
                        let mut item = Box::new(i);
                        while let Err(Full(back)) = ring.produce(item) {
                            item = back;
                            thread::yield_now();
                        }
                    }
                    while !batch.is_empty() {
                        ring.produce_batch(&mut batch);
                        thread::yield_now();
                    }
                });
                s.spawn(|| {
                    start.wait();
                    let mut i = 0_usize;
                    while total.load(SeqCst) < 2 * EACH as usize {
                        i += 1;
                        if i.is_multiple_of(2) {
                            let mut batch = vec![];
                            ring.consume_batch(&mut batch, i % 70);
                            let back = batch.split_off(batch.len() / 2);
                            count(&batch);
                            count(&ring.unconsume(back));
                        } else {
                            let _: Option<u64> = ring.peek(|x| **x);
                            count(ring.consume().as_slice());
                        }
                        if ring.is_empty() || ring.is_full() {
                            thread::yield_now();
                        }
                    }
                    over.store(true, SeqCst);
                });
            }
            s.spawn(|| {
                start.wait();
                let mut size = 7;
                while !over.load(SeqCst) {
                    size = (size * 31 + 7) % 120 + 1;
                    let rests = PtrRing::resize_many(&[&rings[1], &rings[0], &rings[1]], size).unwrap();
                    rests.iter().for_each(|rest| count(rest));
                    count(&rings[0].resize(size / 2 + 1).unwrap());
                    thread::yield_now();
                }
            });
        });
        assert_eq!(total.load(SeqCst), 2 * EACH as usize);
        assert_eq!(sum.load(SeqCst), (EACH * (EACH - 1)) as usize);
        assert!(rings.iter().all(PtrRing::is_empty));
    }
}

#[test]
fn handles_under_threads_keep_order_with_every_rule_and_batch() {
    const ALL: u32 = 10_000;
    for clearing in [Clearing::Credit, Clearing::Kernel, Clearing::OneByOne] {
        for size in [1, 2, 5, 64, 257, 1000] {
            let (mut tx, mut rx) = spsc_with_clearing::<Box<u32>>(size, clearing).unwrap();
            thread::scope(|s| {
                s.spawn(move || {
                    let mut next = 0;
                    while next < ALL {
                        let end = ALL.min(next + next % 90 + 1);
                        let mut batch = boxes(next..end);
                        next = end;
                        while !batch.is_empty() {
                            if batch.len() == 1 && !tx.is_full() {
                                tx.produce(batch.pop().unwrap()).expect("it is not full");
                            } else if tx.produce_batch(&mut batch) == 0 {
                                thread::yield_now();
                            }
                        }
                    }
                });
                let (mut seen, mut out) = (0, vec![]);
                while seen < ALL {
                    let got = rx.consume_batch(&mut out, seen as usize % 100);
                    let back = rx.unconsume(out.split_off(got / 2));
                    if back.is_empty() {
                        out.extend(rx.consume());
                    }
                    out.extend(back);
                    if out.is_empty() {
                        thread::yield_now();
                    }
                    for x in out.drain(..) {
                        assert_eq!(*x, seen);
                        seen += 1;
                    }
                }
                assert_eq!(rx.consume(), None);
            });
        }
    }
}

#[test]
fn waiting_loses_no_wake() {
    for size in [1, 2, 3, 64, 100] {
        let ring = Waiting::<Box<u64>>::new(size).unwrap();
        let sum = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| (1..=2000).for_each(|i| ring.produce(Box::new(i))));
                s.spawn(|| {
                    for _ in 0..2000 {
                        sum.fetch_add(*ring.consume() as usize, SeqCst);
                    }
                });
            }
        });
        assert_eq!(sum.load(SeqCst), 2000 * 2001);
        assert!(ring.ring().is_empty());
    }
}

struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_producer_is_woken_by_cleared_slots_only() {
    let ring = Waiting::new(64).unwrap(); // batches of 16
    ring.produce_batch(&mut boxes(0..64));
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut producing = Box::pin(ring.produce_async(Box::new(64)));
    assert_eq!(producing.as_mut().poll(&mut cx), Poll::Pending);
    (0..15).for_each(|i| assert_eq!(ring.consume(), Box::new(i)));
    assert_eq!(count.0.load(SeqCst), 0, "no room yet");
    ring.consume();
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(producing.as_mut().poll(&mut cx), Poll::Ready(()));
    drop(producing);
    assert_eq!(Arc::strong_count(&count), 2, "nothing keeps the waker");
}

#[test]
fn futures_may_be_dropped_at_any_time() {
    let ring = Waiting::<Box<u32>>::new(1).unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(ring.consume_async());
    let mut second = Box::pin(ring.consume_async());
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending(), "polled twice, listed once");
    ring.try_produce(Box::new(1)).unwrap();
    assert_eq!(count.0.load(SeqCst), 2);
    drop(first);
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Box::new(1)));
    let element = Arc::new(());
    let arcs = Waiting::from(PtrRing::<Arc<()>>::new(0).unwrap());
    let mut producing = Box::pin(arcs.produce_async(element.clone()));
    assert!(producing.as_mut().poll(&mut cx).is_pending());
    drop(producing);
    assert_eq!(Arc::strong_count(&element), 1);
    drop(second);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn resizing_and_putting_back_wake() {
    let ring = Waiting::<Box<u32>>::new(0).unwrap();
    thread::scope(|s| {
        s.spawn(|| ring.produce(Box::new(1)));
        thread::sleep(Duration::from_millis(10));
        ring.resize(1).unwrap();
    });
    assert_eq!(ring.consume(), Box::new(1));
    thread::scope(|s| {
        s.spawn(|| assert_eq!(ring.consume(), Box::new(2)));
        thread::sleep(Duration::from_millis(10));
        assert_eq!(ring.unconsume(boxes(2..3)), vec![]);
    });
}

#[test]
fn waiting_ends_with_the_time_allowed() {
    let ring = Waiting::<Box<u32>>::new(1).unwrap();
    let begin = Instant::now();
    assert_eq!(ring.consume_timeout(Duration::from_millis(20)), None);
    assert!(begin.elapsed() >= Duration::from_millis(20));
    ring.produce_timeout(Box::new(1), Duration::ZERO).unwrap();
    assert_eq!(ring.produce_timeout(Box::new(2), Duration::from_millis(5)), Err(Full(Box::new(2))));
    assert_eq!(ring.consume_timeout(Duration::MAX), Some(Box::new(1)));
    assert_eq!(ring.into_inner().capacity(), 1);
}

#[test]
fn a_large_ring_is_resized_to_a_small_one() {
    let ring = PtrRing::new(1 << 20).unwrap();
    let element = &7_u32;
    assert_eq!(ring.produce_batch(&mut vec![element; (1 << 20) + 1]), 1 << 20);
    assert_eq!(ring.resize(1000).unwrap().len(), (1 << 20) - 1000);
}
