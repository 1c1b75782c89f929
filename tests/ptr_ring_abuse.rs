//! What a ring has to withstand: user code that panics, that comes back to the ring from where it is called, or that
//! locks rings within each other; forks; counts that pass the end of the word.
#![expect(clippy::vec_box, reason = "batches are vectors of what the ring holds")]

use percpu_ref::ptr_ring::{Consuming, Full, Producing, PtrRing, Waiting, spsc};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

fn boxes(range: std::ops::Range<u32>) -> Vec<Box<u32>> {
    range.map(Box::new).collect()
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Threads that wait for each other's locks never come back, so a test of that waits for a message, not for them.
fn ends(what: impl FnOnce() + Send + 'static) -> bool {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        what();
        done.send(()).expect("somebody waits");
    });
    ended.recv_timeout(Duration::from_secs(60)).is_ok()
}

#[test]
fn rings_may_be_forwarded_to_each_other_while_all_of_them_are_resized() {
    assert!(ends(|| {
        let rings = [PtrRing::new(64).unwrap(), PtrRing::new(64).unwrap()];
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            for [from, to] in [[0, 1], [1, 0]] {
                let (rings, over) = (&rings, &over);
                s.spawn(move || {
                    rings[from].produce(Box::new(from)).unwrap();
                    while !over.load(SeqCst) {
                        // The copy is taken out again, so that neither ring is ever full.
                        rings[from].peek(|x| rings[to].produce(x.clone()).unwrap()).unwrap();
                        rings[to].consume().unwrap();
                    }
                });
            }
            for i in 0..20_000 {
                let rests = PtrRing::resize_many(&[&rings[0], &rings[1]], 64 + i % 3).unwrap();
                assert_eq!(rests, [vec![], vec![]]);
            }
            over.store(true, SeqCst);
        });
    }));
}

#[test]
fn a_panic_in_the_closure_of_peek_leaves_the_ring_as_it_was() {
    let ring = PtrRing::new(4).unwrap();
    ring.produce_batch(&mut boxes(0..2));
    assert!(panics(|| ring.peek(|_| panic!("in the closure")).unwrap()));
    assert_eq!(ring.peek(|x| **x), Some(0), "this thread peeks no more");
    assert_eq!(ring.resize(1).unwrap(), boxes(1..2));
    assert_eq!(ring.consume(), Some(Box::new(0)));
    let (mut tx, mut rx) = spsc(4).unwrap();
    tx.produce_batch(&mut boxes(0..2));
    assert!(panics(|| rx.peek(|_| panic!("in the closure")).unwrap()));
    assert_eq!(rx.consume(), Some(Box::new(0)));
}

#[test]
fn every_handle_may_cross_a_caught_panic() {
    fn promise<T: UnwindSafe + RefUnwindSafe>() {}
    promise::<PtrRing<Box<u8>>>();
    promise::<PtrRing<Box<RefCell<u8>>, parking_lot::RawMutex>>();
    promise::<Waiting<Box<u8>>>();
    promise::<Waiting<Box<RefCell<u8>>, parking_lot::RawMutex>>();
    fn to_move<T: UnwindSafe>() {}
    to_move::<percpu_ref::ptr_ring::Producer<Box<u8>>>();
    to_move::<percpu_ref::ptr_ring::Consumer<Box<u8>>>();
    to_move::<Producing<'static, Box<u8>>>();
    to_move::<Consuming<'static, Box<u8>>>();
}

#[test]
fn counts_pass_the_end_of_the_word() {
    // Putting back into a new ring makes its counts negative; then they come up through zero.
    for size in [1_u32, 3, 4, 64, 100] {
        let ring = PtrRing::new(size as usize).unwrap();
        assert_eq!(ring.unconsume(boxes(0..size)), vec![]);
        assert!(ring.is_full() && !ring.is_empty());
        for i in 0..3 * size {
            assert_eq!(ring.consume(), Some(Box::new(i)));
            let mut next = boxes(size + i..size + i + 1);
            if ring.is_full() {
                assert_eq!(ring.produce_batch(&mut next), 0);
                // An empty ring has room, and this one is not empty: the rest of the batch makes some.
                let mut all = vec![];
                ring.consume_batch(&mut all, size as usize);
                all.extend(next);
                assert!(ring.is_empty() && !ring.is_full());
                assert_eq!(ring.produce_batch(&mut all), size as usize);
            } else {
                assert_eq!(ring.produce_batch(&mut next), 1);
            }
            assert!(!ring.is_empty());
        }
    }
}

/// Does something when it is woken.
struct Does<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_asleep_and_loses_nothing() {
    let ring = Waiting::<Box<u32>>::new(4).unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    let mut futures = vec![];
    for i in 0..3 {
        let woken = Arc::clone(&woken);
        let waker = Waker::from(Arc::new(Does(move || {
            woken.fetch_add(1, SeqCst);
            assert_ne!(i, 1, "a waker that panics");
        })));
        let mut consuming = Box::pin(ring.consume_async());
        assert!(consuming.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        futures.push(consuming);
    }
    assert!(panics(|| ring.produce(Box::new(7))));
    assert_eq!(woken.load(SeqCst), 3);
    drop(futures);
    assert_eq!(ring.try_consume(), Some(Box::new(7)));
}

#[test]
fn a_waker_may_use_the_ring_that_wakes_it() {
    let ring = Arc::new(Waiting::<Box<u32>>::new(4).unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let waker = Waker::from(Arc::new(Does({
        let (ring, seen) = (Arc::clone(&ring), Arc::clone(&seen));
        move || {
            let x = ring.try_consume().expect("it was woken for that");
            seen.store(*x as usize, SeqCst);
            ring.try_produce(Box::new(8)).unwrap();
            assert_eq!(ring.ring().peek(|x| **x), Some(8));
        }
    })));
    let mut consuming = Box::pin(ring.consume_async());
    assert!(consuming.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    ring.try_produce(Box::new(7)).unwrap();
    assert_eq!(seen.load(SeqCst), 7);
}

#[test]
fn a_destructor_of_a_thread_local_may_use_every_call() {
    struct Last(RefCell<Option<Arc<PtrRing<Box<u32>>>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let ring = self.0.take().expect("set below");
            ring.produce(Box::new(1)).unwrap();
            assert_eq!(ring.peek(|x| **x + u32::from(panics(|| drop(ring.consume())))), Some(2));
            assert_eq!(ring.resize(0).unwrap(), boxes(1..2));
        }
    }
    thread_local!(static LAST: Last = const { Last(RefCell::new(None)) });
    let ring = Arc::new(PtrRing::new(1).unwrap());
    let given = Arc::clone(&ring);
    thread::spawn(move || LAST.with(|last| last.0.replace(Some(given)))).join().unwrap();
    assert_eq!(ring.capacity(), 0, "the destructor ran to its end");
}

#[cfg(unix)]
#[test]
fn a_forked_child_goes_on_with_what_nobody_was_in() {
    let ring = PtrRing::new(8).unwrap();
    let (mut tx, mut rx) = spsc(8).unwrap();
    ring.produce_batch(&mut boxes(0..3));
    tx.produce_batch(&mut boxes(0..3));
    let all_well = |ring: &PtrRing<Box<u32>>, rx: &mut percpu_ref::ptr_ring::Consumer<Box<u32>>| {
        ring.consume() == Some(Box::new(0)) && rx.consume() == Some(Box::new(0)) && ring.produce(Box::new(3)).is_ok()
    };
    // SAFETY: the child uses the allocator, which survives a fork, and the rings, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let well = catch_unwind(AssertUnwindSafe(|| all_well(&ring, &mut rx) && tx.produce(Box::new(3)).is_ok()));
        // SAFETY: it ends this process and touches nothing of it.
        unsafe { libc::_exit(i32::from(!well.unwrap_or(false))) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` is ours to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's rings work");
    assert!(all_well(&ring, &mut rx), "and ours are as they were");
    assert_eq!(tx.produce(Box::new(3)).map_err(|Full(_)| "full"), Ok(()));
}
