//! Models of the page pool: owners and late returns against a shutdown, and the shares of a page. Run once for each
//! backend (`PERCPU_REF_BACKEND`).
//!
//! As in the models of the count, callbacks run in the caller: a shutdown is over, its confirm included, when it returns.
//! The pages of these models are as large as they can be, so that each has a block of its own and `mapped_bytes` tells
//! which pages are home.
#![cfg(percpu_ref_loom)]

use loom::sync::Arc;
use loom::thread;
use percpu_ref::page_pool::{Allocator, MAX_PAGE_SIZE, PagePool};
use percpu_ref_models::{Note, model};

fn pool(max_pages: usize) -> PagePool {
    let builder = PagePool::builder().page_size(MAX_PAGE_SIZE).cache(2).refill(1).ring(2);
    builder.max_pages(max_pages).build().unwrap()
}

/// A pool whose owner has `pages` in his cache.
fn pool_and_owner(pages: usize) -> (PagePool, Allocator) {
    let pool = pool(3);
    let mut local = pool.allocator();
    let mut out = Vec::new();
    local.alloc_bulk(&mut out, pages).unwrap();
    local.recycle_bulk(&mut out);
    assert_eq!(pool.in_flight(), 0);
    (pool, local)
}

/// Everything is home when the drain is over, whoever is still there.
fn ends(pool: &PagePool) {
    pool.shutdown().wait();
    assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
}

/// Runs `work` of an owner against a shutdown: he gets nothing afterwards, and all is home before and after he goes.
fn owner_against_shutdown((pool, mut local): (PagePool, Allocator), work: impl FnOnce(&mut Allocator) + 'static) {
    let owner = thread::spawn(move || {
        work(&mut local);
        local
    });
    ends(&pool);
    let mut local = owner.join().unwrap();
    assert!(local.alloc().is_err() && local.alloc_frag(1).is_err());
    assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
    drop(local);
    assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
}

/// A page is popped: the user gets it, or the closer, or it goes home.
#[test]
fn a_page_that_is_popped_is_had_by_one() {
    model(2, || owner_against_shutdown(pool_and_owner(1), |local| drop(local.alloc())));
}

/// A page is pushed: the closer finds it, or the owner takes it home.
#[test]
fn a_page_that_is_pushed_is_not_lost() {
    model(2, || {
        let (pool, mut local) = pool_and_owner(0);
        let page = local.alloc().unwrap();
        owner_against_shutdown((pool, local), |local| local.recycle(page));
    });
}

/// A cache that overflows: its coldest page goes into the ring.
#[test]
fn a_cache_that_overflows_loses_nothing() {
    model(2, || {
        let (pool, mut local) = pool_and_owner(0);
        let (page, mut others) = (local.alloc().unwrap(), Vec::new());
        local.alloc_bulk(&mut others, 2).unwrap();
        local.recycle_bulk(&mut others);
        owner_against_shutdown((pool, local), |local| local.recycle(page));
    });
}

/// The first piece of a page: the closer finds the page open, or the owner puts it away.
#[test]
fn a_page_that_is_opened_is_put_away_by_one() {
    model(2, || owner_against_shutdown(pool_and_owner(1), |local| drop(local.alloc_frag(8))));
}

/// Another piece of a page: its share is counted by the closer, or not handed out.
#[test]
fn a_piece_is_counted_or_not_handed_out() {
    model(2, || {
        let (pool, mut local) = pool_and_owner(0);
        let first = local.alloc_frag(8).unwrap();
        owner_against_shutdown((pool, local), |local| {
            let second = local.alloc_frag(8);
            drop(first);
            drop(second);
        });
    });
}

/// An owner who goes puts the open page away.
#[test]
fn an_owner_who_goes_leaves_nothing_open() {
    model(1, || {
        let (pool, mut local) = pool_and_owner(0);
        let piece = local.alloc_frag(8).unwrap();
        let owner = thread::spawn(move || drop(local));
        let user = thread::spawn(move || drop(piece));
        ends(&pool);
        owner.join().unwrap();
        user.join().unwrap();
        assert_eq!(pool.mapped_bytes(), 0);
    });
}

/// A page is dropped while the pool is shut down, and another one stays out: the first one is home when both have
/// returned, and not in the ring.
#[test]
fn a_late_page_goes_home_at_once() {
    model(3, || {
        let pool = pool(2);
        let (late, kept) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        let both = pool.mapped_bytes();
        let user = thread::spawn(move || drop(late));
        let drain = pool.shutdown();
        user.join().unwrap();
        assert_eq!((pool.in_flight(), pool.mapped_bytes()), (1, both / 2));
        drop(kept);
        drain.wait();
        assert_eq!(pool.mapped_bytes(), 0);
    });
}

/// The last page comes back while everything else goes: the pool's memory is freed once, after its last use. (loom finds
/// what is used afterwards in its atomics, and a leak in what is left of them.)
#[test]
fn the_last_page_ends_the_pool() {
    model(3, || {
        let pool = pool(1);
        let page = pool.alloc().unwrap();
        let user = thread::spawn(move || drop(page));
        drop(pool);
        user.join().unwrap();
    });
}

/// An allocation from the shared path against a shutdown.
#[test]
fn the_shared_path_gets_a_page_or_an_error() {
    model(2, || {
        let pool = Arc::new(pool(1));
        drop(pool.alloc().unwrap());
        let user = thread::spawn({
            let pool = Arc::clone(&pool);
            move || drop(pool.alloc())
        });
        ends(&pool);
        user.join().unwrap();
    });
}

/// Two pieces are dropped on two threads: whoever gets the page next comes after the last use of both.
#[test]
fn a_page_is_recycled_after_the_last_use_of_each_piece() {
    model(3, || {
        let pool = pool(1);
        let whole = pool.alloc().unwrap().freeze();
        let (part, note) = (whole.clone(), Note::new());
        let user = thread::spawn({
            let note = note.clone();
            move || {
                note.write(1);
                drop(part);
            }
        });
        // Lets the user come first, too.
        thread::yield_now();
        drop(whole);
        if let Ok(next) = pool.alloc() {
            note.write(2);
            drop(next);
        }
        user.join().unwrap();
        ends(&pool);
    });
}

/// A drain that is polled is told when all is done.
#[test]
fn a_drain_that_is_ready_sees_the_end() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    model(3, || {
        let pool = pool(1);
        let (page, note) = (pool.alloc().unwrap(), Note::new());
        let mut drain = pool.shutdown();
        let user = thread::spawn({
            let note = note.clone();
            move || {
                note.write(1);
                drop(page);
            }
        });
        thread::yield_now();
        if std::pin::pin!(&mut drain).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            note.write(2);
        }
        user.join().unwrap();
        drain.wait();
    });
}
