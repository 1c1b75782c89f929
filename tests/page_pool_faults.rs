//! What a system can refuse or do to a pool: no memory, no membarrier, no threads, forks. Each case has a process of its own.
#![cfg(target_os = "linux")]

mod common;

use common::process::{FORKS, address_space, fork, limit, no_more_threads};
use common::{Dice, MOMENT, eventually, in_children, soon, together};
use percpu_ref::page_pool::{AllocError, Allocator, BuildError, Page, PagePool, recycle_bulk};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

fn pages(local: &mut Allocator, n: usize) -> Vec<Page> {
    let mut pages = vec![];
    local.alloc_bulk(&mut pages, n).unwrap();
    pages
}

/// A whole life of a fresh pool, with threads.
fn live() {
    let pool = PagePool::builder().cache(16).refill(8).ring(32).build().unwrap();
    together(3, |i| {
        let mut local = pool.allocator();
        for round in 0..50 {
            let mut out = pages(&mut local, 10);
            out.iter_mut().for_each(|page| page.fill(i as u8));
            assert!(out.iter().all(|page| page.iter().all(|byte| *byte == i as u8)));
            if round % 2 == 0 {
                recycle_bulk(&mut out)
            } else {
                local.recycle_bulk(&mut out)
            }
            drop(local.alloc_frag(1000).unwrap().freeze());
        }
    });
    assert_eq!(pool.in_flight(), 0);
    let page = pool.alloc().unwrap();
    let drain = pool.shutdown().wait_timeout(MOMENT).unwrap_err();
    drop(page);
    drain.wait();
    assert_eq!(pool.mapped_bytes(), 0);
}

in_children! {
    fn out_of_memory_is_an_error_and_the_pool_goes_on() {
        let pool = PagePool::builder().build().unwrap();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 100);
        out.reserve(100_000);
        limit(libc::RLIMIT_AS, Some(address_space() + (24 << 20)));
        let error = loop {
            match local.alloc() {
                Ok(page) => out.push(page),
                Err(error) => break error,
            }
            assert!(out.len() < 100_000, "it never ran out");
        };
        assert_eq!(error, AllocError::OutOfMemory);
        assert_eq!(pool.alloc().unwrap_err(), AllocError::OutOfMemory);
        assert_eq!(local.alloc_frag(9).unwrap_err(), AllocError::OutOfMemory);
        assert_eq!(pool.in_flight(), out.len());
        local.recycle(out.pop().unwrap());
        let page = local.alloc().unwrap();
        drop(out.drain(50..));
        out.extend(pages(&mut local, 1000));
        limit(libc::RLIMIT_AS, None);
        out.extend(pages(&mut local, 20_000));
        drop((page, out));
        assert_eq!(pool.in_flight(), 0);
        pool.shutdown().wait();
        assert_eq!(pool.mapped_bytes(), 0);
    }

    fn a_pool_for_which_there_is_no_memory_is_an_error() {
        // Whatever has to be set up once, the callback thread included: the standard library panics in a thread that finds no
        // memory for its signal stack.
        PagePool::builder().build().unwrap().shutdown().wait();
        let mut pools = Vec::with_capacity(100_000);
        limit(libc::RLIMIT_AS, Some(address_space() + (8 << 20)));
        let error = loop {
            match PagePool::builder().ring(16_384).build() {
                Ok(pool) => pools.push(pool),
                Err(error) => break error,
            }
            assert!(pools.len() < 100_000, "it never ran out");
        };
        assert_eq!(error, BuildError::OutOfMemory);
        limit(libc::RLIMIT_AS, None);
        assert!(!pools.is_empty() && pools.iter().all(|pool| pool.alloc().is_ok()));
        live();
    }

    fn without_membarrier_an_owner_has_a_fence_of_his_own("PERCPU_REF_BACKEND" = "fence") {
        live();
        for round in 0..100 {
            let pool = PagePool::builder().cache(8).refill(4).build().unwrap();
            together(2, |i| {
                if i == 0 {
                    (0..Dice::new(round).below(3000)).for_each(|_| std::hint::spin_loop());
                    pool.shutdown().wait();
                } else {
                    let mut local = pool.allocator();
                    while let (Ok(page), Ok(_piece)) = (local.alloc(), local.alloc_frag(700)) {
                        local.recycle(page);
                    }
                }
            });
            assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
        }
    }

    fn without_threads_to_be_had_a_shutdown_is_done_in_the_caller() {
        no_more_threads();
        let pool = PagePool::builder().page_size(512).max_pages(8).cache(4).refill(2).build().unwrap();
        let mut local = pool.allocator();
        let page = local.alloc().unwrap();
        let drain = pool.shutdown();
        assert_eq!(drain.outstanding().count(), 1, "what the owner had is home");
        drop(page);
        drain.wait();
    }

    fn a_child_forked_from_under_traffic_uses_old_and_new_pools() {
        if !FORKS {
            return;
        }
        let pool = PagePool::builder().cache(16).refill(8).ring(64).build().unwrap();
        let over = AtomicBool::new(false);
        let shared = Arc::new(Mutex::new(Vec::<Page>::new()));
        thread::scope(|s| {
            for i in 0..3 {
                let (pool, over, shared) = (&pool, &over, Arc::clone(&shared));
                s.spawn(move || {
                    let (mut local, mut dice) = (pool.allocator(), Dice::new(i));
                    while !over.load(Relaxed) {
                        match dice.below(5) {
                            0 => shared.lock().unwrap().extend(local.alloc()),
                            1 => drop(local.alloc_frag(2000)),
                            2 => drop(std::mem::take(&mut *shared.lock().unwrap())),
                            3 => shared.lock().unwrap().extend(pool.alloc()),
                            _ => drop(pages(&mut local, 20)),
                        }
                    }
                });
            }
            let mut own = pool.allocator();
            let mut kept = pages(&mut own, 30);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..30 {
                    let given = kept.split_off(20);
                    fork(|| {
                        // What this thread had is usable, and goes home rather than into the ring.
                        drop(given);
                        let mut more = pages(&mut own, 40);
                        more.iter_mut().for_each(|page| page.fill(1));
                        own.recycle_bulk(&mut more);
                        drop(own.alloc_frag(100).unwrap());
                        drop(pool.alloc().unwrap());
                        let _ = (pool.stats(), pool.in_flight());
                        // What other threads had is out for ever.
                        drop(pool.shutdown().wait_timeout(Duration::from_millis(1)));
                        assert_eq!(own.alloc().unwrap_err(), AllocError::ShutDown);
                        live();
                    })();
                    kept.extend(pages(&mut own, 10));
                }
            }));
            over.store(true, Relaxed);
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        });
        shared.lock().unwrap().clear();
        assert_eq!(pool.in_flight(), 0);
        pool.shutdown().wait();
    }

    fn a_child_ends_a_pool_that_its_parent_is_using() {
        if !FORKS {
            return;
        }
        let pool = PagePool::builder().build().unwrap();
        let mut local = pool.allocator();
        let page = local.alloc().unwrap();
        drop(pages(&mut local, 50)); // Some of them are in the ring.
        fork(|| {
            let drain = pool.shutdown();
            drop(page);
            assert!(drain.wait_timeout(soon()).is_ok(), "nobody else had any");
        })();
        assert!(local.alloc().is_ok());
        drop(local);
        pool.shutdown().wait();
        eventually("all is unmapped", || pool.mapped_bytes() == 0);
    }
}
