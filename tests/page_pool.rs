//! The page pool through its public API: what is counted where, exactly; pieces; the end; bad input.

mod common;

use common::{MOMENT, OnDrop, eventually, panics, soon, tests, unique};
use percpu_ref::page_pool::{
    AllocError, Allocator, BuildError, Frag, MAX_PAGE_SIZE, MAX_RING, Page, PageBytes, PagePool, PoolBuilder, Recycler,
    Stats, recycle_bulk,
};
use percpu_ref::ptr_ring::PtrRing;
use percpu_ref::{Drain, PercpuRef};
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

fn pool() -> PagePool {
    PagePool::builder().build().unwrap()
}

fn pages(local: &mut Allocator, n: usize) -> Vec<Page> {
    let mut pages = vec![];
    local.alloc_bulk(&mut pages, n).unwrap();
    pages
}

fn on_another_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(f).join().unwrap()
}

/// The numbers of a pool that are not zero.
fn counts(pool: &PagePool) -> Vec<(String, u64)> {
    let text = pool.stats().to_string();
    let rows = text.lines().map(|line| line.trim().strip_prefix("pp_").unwrap().split_once(": ").unwrap());
    rows.map(|(name, n)| (name.to_owned(), n.parse().unwrap())).filter(|(_, n)| *n > 0).collect()
}

#[track_caller]
fn assert_counts(pool: &PagePool, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    assert_eq!(counts(pool), expected);
}

/// Ends the pool, which has nothing out.
#[track_caller]
fn assert_ends(pool: &PagePool) {
    assert_eq!(pool.in_flight(), 0);
    assert!(pool.shutdown().wait_timeout(soon()).is_ok());
    assert_eq!(pool.mapped_bytes(), 0);
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

tests! {
    fn a_batch_comes_from_home_and_the_rest_of_it_from_the_cache() {
        let pool = pool();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 1);
        assert_counts(&pool, &[("alloc_slow", 1), ("alloc_empty", 1)]);
        out.extend(pages(&mut local, 63));
        assert_counts(&pool, &[("alloc_fast", 63), ("alloc_slow", 1), ("alloc_empty", 1)]);
        out.extend(pages(&mut local, 1));
        assert_counts(&pool, &[("alloc_fast", 63), ("alloc_slow", 2), ("alloc_empty", 2)]);
        assert_eq!(pool.in_flight(), 65);
        drop(out);
        assert_ends(&pool);
    }

    fn what_is_dropped_elsewhere_comes_back_by_one_refill_in_its_order() {
        let pool = pool();
        let mut local = pool.allocator();
        let out = pages(&mut local, 64);
        let addresses: Vec<_> = out.iter().map(|page| page.as_ptr().addr()).collect();
        on_another_thread(move || drop(out));
        assert_counts(&pool, &[("alloc_fast", 63), ("alloc_slow", 1), ("alloc_empty", 1), ("recycle_ring", 64)]);
        let again = pages(&mut local, 64);
        let expected =
            [("alloc_fast", 126), ("alloc_slow", 1), ("alloc_empty", 1), ("alloc_refill", 1), ("recycle_ring", 64)];
        assert_counts(&pool, &expected);
        // The last one into the cache comes out first.
        assert!(again.iter().map(|page| page.as_ptr().addr()).eq(addresses.into_iter().rev()));
        drop(again);
        assert_ends(&pool);
    }

    fn a_full_cache_sends_its_coldest_pages_to_the_ring_at_once() {
        let pool = pool();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 192);
        let before = pool.stats();
        let addresses: Vec<_> = out.iter().map(|page| page.as_ptr().addr()).collect();
        for page in out.drain(..128) {
            local.recycle(page);
        }
        let stats = pool.stats();
        assert_eq!((stats.cached, stats.cache_full, stats.ring), (128, 0, 0));
        local.recycle(out.remove(0));
        let stats = pool.stats();
        assert_eq!((stats.cached, stats.cache_full, stats.ring), (128, 1, 64));
        assert_eq!(pool.in_flight(), 63);
        let next = pages(&mut local, 66);
        let got: Vec<_> = next.iter().map(|page| page.as_ptr().addr()).collect();
        // 65 from the cache, the hottest first; then the ring's, of which the coldest were the first in.
        assert!(got[..65].iter().eq(addresses[64..129].iter().rev()));
        assert_eq!(got[65], addresses[63]);
        let stats = pool.stats();
        assert_eq!((stats.fast - before.fast, stats.refill - before.refill, stats.slow), (65, 1, before.slow));
        drop((out, next));
        assert_ends(&pool);
    }

    fn what_the_ring_has_no_room_for_goes_home() {
        let pool = PagePool::builder().ring(4).cache(4).refill(4).build().unwrap();
        let mut local = pool.allocator();
        drop(pages(&mut local, 10));
        let stats = pool.stats();
        // The cache had two more of the last batch.
        assert_eq!((stats.ring, stats.ring_full, stats.slow), (4, 6, 3));
        let out = pages(&mut local, 8);
        let stats = pool.stats();
        assert_eq!((stats.refill, stats.slow), (1, 4));
        drop(out);
        assert_ends(&pool);
    }

    fn large_pages_are_taken_from_home_one_by_one() {
        let pool = PagePool::builder().page_size(8192).build().unwrap();
        let mut local = pool.allocator();
        drop(pages(&mut local, 5));
        drop(pool.alloc().unwrap());
        let expected =
            [("alloc_slow_high_order", 5), ("alloc_empty", 5), ("alloc_refill", 1), ("recycle_ring", 6)];
        assert_counts(&pool, &expected);
        drop(pages(&mut local, 5));
        assert_eq!((pool.stats().refill, pool.stats().fast), (2, 4));
        assert_ends(&pool);
    }

    fn the_shared_path_counts_like_an_owner_without_a_cache() {
        let pool = pool();
        let out = [pool.alloc().unwrap(), pool.alloc().unwrap()];
        assert_counts(&pool, &[("alloc_slow", 2), ("alloc_empty", 2)]);
        drop(out);
        let out = [pool.alloc().unwrap(), pool.alloc().unwrap(), pool.alloc().unwrap()];
        assert_counts(&pool, &[("alloc_slow", 3), ("alloc_empty", 3), ("alloc_refill", 2), ("recycle_ring", 2)]);
        drop(out);
        assert_ends(&pool);
    }

    fn a_foreign_page_ends_the_refill_and_goes_home_without_its_memory() {
        let pool = PagePool::builder().foreign(|page| page[0] == 13).build().unwrap();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 64);
        out.iter_mut().zip(10..).for_each(|(page, n)| page[0] = n);
        drop(out);
        let next = local.alloc().unwrap();
        assert_eq!(next[0], 12, "of three that came before it");
        let stats = pool.stats();
        assert_eq!((stats.waive, stats.refill), (1, 1));
        let next = pages(&mut local, 3);
        assert!(next.iter().map(|page| page[0]).eq([11, 10, 73]), "the next refill goes on behind it");
        assert_eq!((pool.stats().waive, pool.stats().refill), (1, 2));
        drop(next);
        assert_eq!(pool.in_flight(), 1);
        drop(local);
        let all: Vec<_> = (0..64).map(|_| pool.alloc().unwrap()).collect();
        if cfg!(all(target_os = "linux", not(percpu_ref_portable))) {
            assert!(all.iter().all(|page| page[0] != 13), "its memory was given back");
        }
    }

    fn a_foreign_page_that_is_smaller_than_the_systems_takes_no_neighbour_with_it() {
        let pool = PagePool::builder().page_size(2048).foreign(|page| page[0] == 13).build().unwrap();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 64);
        out.iter_mut().for_each(|page| page.fill(7));
        // The first half of each of the system's pages goes, the second stays.
        out.retain_mut(|page| {
            let stays = !page.as_ptr().addr().is_multiple_of(4096);
            page[0] = if stays { 7 } else { 13 };
            stays
        });
        // A refill ends with the first foreign page.
        let others: Vec<_> = (0..32).map(|_| pool.allocator().alloc().unwrap()).collect();
        assert_eq!(pool.stats().waive, 32);
        assert!(out.iter().all(|page| page.iter().all(|byte| *byte == 7)), "what is out is untouched");
        drop(others);
    }

    fn what_was_written_to_pieces_is_zeroed_when_their_owner_goes() {
        let pool = PagePool::builder().zero_on_recycle(true).build().unwrap();
        let mut local = pool.allocator();
        let mut piece = local.alloc_frag(64).unwrap();
        piece.fill(42);
        drop(piece);
        drop(local);
        let all: Vec<_> = (0..64).map(|_| pool.alloc().unwrap()).collect();
        assert!(all.iter().all(|page| page.iter().all(|byte| *byte == 0)));
    }

    fn more_pages_than_a_vector_can_hold_are_an_error_and_not_none() {
        let pool = PagePool::builder().max_pages(10).build().unwrap();
        let mut all = vec![pool.alloc().unwrap()];
        assert_eq!(pool.allocator().alloc_bulk(&mut all, usize::MAX), Err(AllocError::Exhausted));
        assert_eq!(all.len(), 10);
    }

    fn a_waker_that_panics_keeps_no_other_from_being_woken() {
        struct Flag(AtomicBool, bool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                assert!(!self.1, "on purpose");
                self.0.store(true, SeqCst);
            }
        }
        let name = unique("wakers");
        let pool = PagePool::builder().name(name.clone()).build().unwrap();
        let page = pool.alloc().unwrap();
        let flags = [true, false].map(|panics| Arc::new(Flag(false.into(), panics)));
        let mut drains = [pool.shutdown(), pool.shutdown()];
        for (drain, flag) in drains.iter_mut().zip(&flags) {
            let waker = Waker::from(Arc::clone(flag));
            assert!(std::pin::pin!(drain).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(page);
        eventually("the second waker", || flags[1].0.load(SeqCst));
        eventually("the report, which comes after all are woken", || !common::reports_on(&name).is_empty());
        assert_eq!(common::reports_on(&name).len(), 1);
    }

    fn a_predicate_that_panics_keeps_the_page_and_is_reported() {
        let name = unique("foreign");
        let pool = PagePool::builder().name(name.clone()).foreign(|_| panic!("no idea")).build().unwrap();
        drop(pool.alloc().unwrap());
        drop(pool.allocator().alloc().unwrap());
        assert_eq!(common::reports_on(&name).len(), 1);
        assert_eq!(pool.stats().waive, 0);
        assert_ends(&pool);
    }

    fn stats_print_as_ethtool_does() {
        let pool = pool();
        drop(pool.alloc().unwrap());
        let expected = "     pp_alloc_fast: 0\n     pp_alloc_slow: 1\n     pp_alloc_slow_high_order: 0\n     \
            pp_alloc_empty: 1\n     pp_alloc_refill: 0\n     pp_alloc_waive: 0\n     pp_recycle_cached: 0\n     \
            pp_recycle_cache_full: 0\n     pp_recycle_ring: 1\n     pp_recycle_ring_full: 0\n     \
            pp_recycle_released_ref: 0\n";
        assert_eq!(pool.stats().to_string(), expected);
        assert_ne!(pool.stats(), Stats::default());
    }

    fn an_owner_that_goes_leaves_his_numbers_and_his_pages() {
        let pool = pool();
        let mut local = pool.allocator();
        let page = local.alloc().unwrap();
        local.recycle(page);
        let frag = local.alloc_frag(10).unwrap();
        drop(local);
        let stats = pool.stats();
        assert_eq!((stats.fast, stats.cached, stats.slow, stats.ring), (1, 1, 1, 63));
        assert_eq!(pool.in_flight(), 1, "the page with the piece");
        drop(frag);
        assert_eq!((pool.in_flight(), pool.stats().ring), (0, 64));
        assert!(pool.allocator().alloc().is_ok());
        assert_eq!(pool.stats().refill, 1);
        assert_ends(&pool);
    }

    fn a_page_of_another_pool_goes_back_to_that_one() {
        let (a, b) = (pool(), pool());
        let (mut local, mut other) = (a.allocator(), b.allocator());
        local.recycle(other.alloc().unwrap());
        assert_eq!((a.stats().cached, b.stats().ring, b.in_flight()), (0, 1, 0));
        let mut mixed: Vec<_> = [a.alloc(), a.alloc(), b.alloc(), a.alloc(), b.alloc()].into_iter().flatten().collect();
        assert_eq!((a.in_flight(), b.in_flight()), (3, 2));
        recycle_bulk(&mut mixed);
        assert_eq!((mixed.len(), a.in_flight(), b.in_flight(), a.stats().ring, b.stats().ring), (0, 0, 0, 3, 3));
        recycle_bulk(&mut mixed);
        local.recycle_bulk(&mut mixed);
        assert_ends(&a);
        assert_ends(&b);
    }

    fn a_recycler_gives_back_sixteen_at_once() {
        let pool = pool();
        let mut recycler: Recycler = pool.recycler();
        let out = pages(&mut pool.allocator(), 40);
        let ring = pool.stats().ring; // What the allocator left.
        for (i, page) in out.into_iter().enumerate() {
            recycler.recycle(page);
            let back = (i + 1) / 16 * 16;
            assert_eq!((pool.in_flight(), pool.stats().ring - ring), (40 - back, back as u64));
        }
        let other = PagePool::builder().build().unwrap();
        recycler.recycle(other.alloc().unwrap());
        assert_eq!((pool.in_flight(), other.in_flight()), (0, 1), "each batch is of one pool");
        recycler.recycle(pool.alloc().unwrap());
        assert_eq!((pool.in_flight(), other.in_flight()), (1, 0));
        drop(recycler);
        assert_eq!((pool.in_flight(), pool.stats().ring - ring), (0, 41));
        assert_ends(&pool);
    }

    fn a_bounded_pool_says_so_and_keeps_what_was_got() {
        let pool = PagePool::builder().max_pages(100).build().unwrap();
        let mut local = pool.allocator();
        let mut out = vec![];
        assert_eq!(local.alloc_bulk(&mut out, 101), Err(AllocError::Exhausted));
        assert_eq!((out.len(), pool.in_flight()), (100, 100));
        assert_eq!(pool.alloc().unwrap_err(), AllocError::Exhausted);
        assert_eq!(local.alloc_frag(1).unwrap_err(), AllocError::Exhausted);
        local.recycle(out.pop().unwrap());
        // It is in the cache of `local`, where nobody else gets at it.
        assert_eq!(pool.alloc().unwrap_err(), AllocError::Exhausted);
        assert_eq!(pool.allocator().alloc().unwrap_err(), AllocError::Exhausted);
        assert!(local.alloc().is_ok());
        assert!(pool.alloc().is_ok());
        drop(out);
        assert_eq!(local.alloc_bulk(&mut vec![], 100), Ok(()));
        assert_ends(&pool);
    }

    fn pages_are_zeroed_on_every_way_back_if_that_is_asked_for() {
        for zero in [true, false] {
            let pool = PagePool::builder().zero_on_recycle(zero).page_size(256).build().unwrap();
            let mut local = pool.allocator();
            let mut seen = HashSet::new();
            let mut check = |mut page: Page| {
                let fresh = seen.insert(page.as_ptr().addr());
                assert!(page.iter().all(|byte| *byte == if fresh || zero { 0 } else { 7 }));
                page.fill(7);
                page
            };
            let ways: [fn(&mut Allocator, Page); 5] = [
                |_, page| drop(page),
                |local, page| local.recycle(page),
                |_, page| recycle_bulk(&mut vec![page]),
                |_, page| drop(page.freeze()),
                |local, page| local.recycle_bulk(&mut vec![page]),
            ];
            for way in ways {
                for _ in 0..130 {
                    let page = check(local.alloc().unwrap());
                    way(&mut local, page);
                }
            }
            let mut piece = local.alloc_frag(200).unwrap();
            piece.fill(7);
            drop(piece);
            let piece = local.alloc_frag(100).unwrap(); // In the same page, which is used again in place.
            assert!(piece.iter().all(|byte| *byte == if zero { 0 } else { 7 }));
            drop(piece);
            assert_ends(&pool);
        }
    }

    fn every_page_size_has_its_own_bytes_at_multiples_of_it() {
        for shift in 0..=20 {
            let size = 1 << shift;
            let pool = PagePool::builder().page_size(size).huge_pages(shift % 2 == 0).build().unwrap();
            assert_eq!(pool.page_size(), size);
            let mut local = pool.allocator();
            let mut out = pages(&mut local, if size > 100_000 { 5 } else { 600 });
            for (i, page) in out.iter_mut().enumerate() {
                assert_eq!((page.len(), page.as_ptr().addr() % size), (size, 0));
                assert!(page.iter().all(|byte| *byte == 0));
                page.fill(i as u8);
            }
            assert!(out.iter().enumerate().all(|(i, page)| page.iter().all(|byte| *byte == i as u8)));
            let frozen: Vec<_> = out.into_iter().map(Page::freeze).collect();
            let clones = frozen.clone();
            drop(frozen);
            assert!(clones.iter().enumerate().all(|(i, page)| page.iter().all(|byte| *byte == i as u8)));
            drop(clones);
            assert_ends(&pool);
        }
    }

    fn what_is_home_is_given_back_to_the_system_block_by_block() {
        let pool = PagePool::builder().ring(0).build().unwrap();
        let mut local = pool.allocator();
        let mut out = pages(&mut local, 3000);
        let one = PagePool::builder().build().unwrap();
        let page = one.alloc().unwrap();
        let block = one.mapped_bytes();
        assert!(block <= 2 << 20 && pool.mapped_bytes() >= 3000 * 4096 && pool.mapped_bytes().is_multiple_of(block));
        drop(local);
        let last = out.pop().unwrap();
        drop(out);
        assert!(pool.mapped_bytes() <= 2 * block, "{}", pool.mapped_bytes());
        drop(last);
        assert!(pool.mapped_bytes() <= 2 * block, "{}", pool.mapped_bytes());
        drop(page);
        assert_ends(&pool);
        assert_ends(&one);
    }

    fn pieces_share_a_page_until_it_is_full() {
        let pool = pool();
        let mut local = pool.allocator();
        let mut pieces: Vec<Frag> = (0..8).map(|_| local.alloc_frag(512).unwrap()).collect();
        let start = pieces[0].as_ptr().addr();
        assert!(pieces.iter().enumerate().all(|(i, piece)| piece.as_ptr().addr() == start + 512 * i));
        assert_eq!(pool.in_flight(), 1);
        pieces.push(local.alloc_frag(1).unwrap());
        assert_eq!(pool.in_flight(), 2);
        pieces.push(local.alloc_frag(0).unwrap());
        pieces.push(local.alloc_frag(9).unwrap());
        let start = pieces[8].as_ptr().addr();
        assert_eq!(pieces[10].as_ptr().addr(), start + 16, "pieces are aligned");
        for (i, piece) in pieces.iter_mut().enumerate() {
            piece.fill(i as u8);
        }
        assert!(pieces.iter().enumerate().all(|(i, piece)| piece.iter().all(|byte| *byte == i as u8)));
        assert_eq!(local.alloc_frag(4097).unwrap_err(), AllocError::TooLong);
        let whole = local.alloc_frag(4096).unwrap();
        assert_eq!((whole.len(), pool.in_flight()), (4096, 3));
        pieces.swap(0, 9);
        drop(pieces);
        assert_eq!(pool.in_flight(), 1);
        drop(whole);
        assert_ends(&pool);
    }

    fn a_page_whose_pieces_are_all_back_is_used_again_in_place() {
        let pool = pool();
        let mut local = pool.allocator();
        let first = local.alloc_frag(4000).unwrap();
        let at = first.as_ptr().addr();
        drop(first);
        for i in 1..10 {
            let before = pool.stats();
            let next = local.alloc_frag(4000).unwrap();
            let stats = pool.stats();
            assert_eq!((next.as_ptr().addr(), stats.fast, stats.cached), (at, before.fast + 1, i));
            on_another_thread(move || drop(next));
            assert_eq!(pool.in_flight(), 0);
        }
        // If one is still out, the page is left to it.
        let kept = local.alloc_frag(4000).unwrap();
        let other = local.alloc_frag(4000).unwrap();
        assert!(kept.as_ptr().addr() == at && other.as_ptr().addr() != at);
        drop(kept);
        assert_eq!(pool.stats().ring, 1);
        drop(other);
        assert_ends(&pool);
    }

    fn parts_of_frozen_bytes_keep_the_page() {
        let pool = pool();
        let mut local = pool.allocator();
        let mut page = local.alloc().unwrap();
        page.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let whole = page.freeze();
        let empty = whole.slice(4096..);
        assert!(empty.is_empty() && whole.slice(5..5).is_empty() && whole.slice(..0).is_empty());
        assert_eq!(whole.slice(1..=2).slice(1..)[..], [2]);
        assert_eq!(whole.slice(10..20).slice(..)[..], whole[10..20]);
        for wrong in [panics(|| drop(whole.slice(4000..4097))), panics(|| drop(whole.slice(4097..)))] {
            assert!(wrong);
        }
        assert!(panics(|| drop(whole.slice(..=usize::MAX))));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the mistake")]
        let reversed = 6..5;
        assert!(panics(|| drop(whole.slice(reversed))));
        drop(whole);
        assert_eq!(pool.in_flight(), 1, "even an empty part does");
        drop(empty);
        let mut piece = local.alloc_frag(100).unwrap();
        piece.fill(3);
        let part = piece.freeze().slice(50..);
        assert_eq!((part.len(), part[49], pool.in_flight()), (50, 3, 1));
        drop(part);
        assert_ends(&pool);
    }

    fn a_shutdown_empties_the_cache_of_an_owner_who_sleeps() {
        let pool = pool();
        let mut local = pool.allocator();
        let frag = local.alloc_frag(1).unwrap();
        let forgotten = {
            let mut forgotten = pool.allocator();
            let page = forgotten.alloc().unwrap();
            drop(forgotten.alloc_frag(1).unwrap());
            std::mem::forget(forgotten);
            page
        };
        assert_eq!(pool.in_flight(), 2);
        let drain = pool.shutdown().wait_timeout(MOMENT).unwrap_err();
        assert_eq!((drain.outstanding().count(), pool.in_flight()), (2, 2));
        drop(frag);
        drop(forgotten);
        drain.wait();
        assert_eq!((pool.in_flight(), pool.mapped_bytes(), pool.stats().released_refcnt), (0, 0, 2));
        // Whatever the owner does now ends at home.
        assert_eq!(local.alloc().unwrap_err(), AllocError::ShutDown);
        assert_eq!(local.alloc_frag(1).unwrap_err(), AllocError::ShutDown);
        assert_eq!(local.alloc_frag(5000).unwrap_err(), AllocError::TooLong);
        assert_eq!(pool.allocator().alloc().unwrap_err(), AllocError::ShutDown);
    }

    fn an_owner_who_is_awake_finds_the_pool_shut_at_once() {
        let pool = pool();
        let mut local = pool.allocator();
        let (page, late) = (local.alloc().unwrap(), local.alloc().unwrap());
        let frag = local.alloc_frag(10).unwrap();
        let drain = pool.shutdown();
        assert_eq!(local.alloc().unwrap_err(), AllocError::ShutDown);
        assert_eq!(local.alloc_frag(10).unwrap_err(), AllocError::ShutDown);
        assert_eq!(local.alloc_bulk(&mut vec![], 1).unwrap_err(), AllocError::ShutDown);
        local.recycle(page);
        assert_eq!(pool.in_flight(), 2);
        local.recycle_bulk(&mut vec![late]);
        drop(frag);
        drain.wait();
        let stats = pool.stats();
        assert_eq!((stats.fast, stats.slow, stats.cached, stats.released_refcnt), (2, 1, 0, 3));
        assert_eq!(pool.mapped_bytes(), 0);
    }

    fn a_page_that_is_late_keeps_its_block_only() {
        let pool = pool();
        let mut out = pages(&mut pool.allocator(), 3000);
        let late = out.swap_remove(1500);
        let mut drain = pool.shutdown();
        drop(out);
        let one = 2 << 20;
        eventually("the ring is emptied", || pool.mapped_bytes() <= one);
        assert!(pool.mapped_bytes() > 0);
        drain = drain.wait_timeout(MOMENT).unwrap_err();
        drop(pool);
        assert_eq!(late.len(), 4096);
        drop(late);
        drain.wait();
    }

    fn a_drain_tells_how_many_are_out_of_which_pool_since_when() {
        let pool = PagePool::builder().name("rx 7").build().unwrap();
        let out = [pool.alloc().unwrap(), pool.alloc().unwrap()];
        let before = Instant::now();
        let drain = pool.shutdown();
        let began = drain.outstanding().since().unwrap();
        assert!(before <= began && began <= Instant::now());
        let drain = drain.wait_timeout(MOMENT).unwrap_err();
        let outstanding = drain.outstanding();
        assert_eq!((outstanding.name(), outstanding.count(), outstanding.since()), (Some("rx 7"), 2, Some(began)));
        assert!(outstanding.to_string().starts_with("ref `rx 7` still has 2 references out, 0."), "{outstanding}");
        assert_eq!(pool.shutdown().outstanding().since(), Some(began), "the first one counts");
        // Of a count alone, nobody knows.
        let count = PercpuRef::new(|| {});
        assert_eq!(count.wait_zero_timeout(Duration::ZERO).unwrap_err().since(), None);
        count.kill_sync().unwrap();
        drop(out);
        drain.wait();
    }

    fn any_number_of_drains_wait_each_in_its_own_way() {
        let pool = pool();
        let page = pool.alloc().unwrap();
        let drains: [Drain; 5] = std::array::from_fn(|_| pool.shutdown());
        let [mut polled, mut moved, dropped, waited, timed] = drains;
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let [first, second, third] = wakes.clone().map(Waker::from);
        let poll = |drain: &mut Drain, waker: &Waker| std::pin::pin!(drain).poll(&mut Context::from_waker(waker));
        assert_eq!(poll(&mut polled, &first), Poll::Pending);
        assert_eq!(poll(&mut polled, &second), Poll::Pending);
        assert_eq!(poll(&mut moved, &third), Poll::Pending);
        let mut dropped = dropped;
        assert_eq!(poll(&mut dropped, &first), Poll::Pending);
        drop(dropped);
        let waiting = thread::spawn(move || waited.wait());
        let timed = timed.wait_timeout(MOMENT).unwrap_err();
        assert!(wakes.iter().all(|wakes| wakes.0.load(SeqCst) == 0));
        on_another_thread(move || drop(page));
        waiting.join().unwrap();
        timed.wait();
        eventually("the waker of the last poll is woken", || wakes[1].0.load(SeqCst) == 1 && wakes[2].0.load(SeqCst) == 1);
        assert_eq!(wakes[0].0.load(SeqCst), 0, "neither an older waker nor that of a drain which is gone");
        assert_eq!((poll(&mut polled, &first), poll(&mut moved, &first)), (Poll::Ready(()), Poll::Ready(())));
        pool.shutdown().wait();
    }

    fn everything_may_go_in_any_order_on_any_thread() {
        enum Part { Pool(PagePool), Local(Allocator), Page(Page), Frag(Frag), Bytes(PageBytes), Recycler(Recycler) }
        fn permutations(n: usize) -> Vec<Vec<usize>> {
            if n == 0 {
                return vec![vec![]];
            }
            let shorter = permutations(n - 1);
            shorter.iter().flat_map(|p| (0..n).map(|at| { let mut p = p.clone(); p.insert(at, n - 1); p })).collect()
        }
        for order in permutations(6) {
            let pool = PagePool::builder().cache(4).refill(2).build().unwrap();
            let drain = order[0].is_multiple_of(2).then(|| pool.clone());
            let mut local = pool.allocator();
            let mut recycler = pool.recycler();
            recycler.recycle(pool.alloc().unwrap());
            let (page, frag, bytes) = (local.alloc(), local.alloc_frag(9), local.alloc_frag(7));
            let parts = [
                Part::Page(page.unwrap()), Part::Frag(frag.unwrap()), Part::Bytes(bytes.unwrap().freeze()),
                Part::Pool(pool), Part::Local(local), Part::Recycler(recycler),
            ];
            let mut parts = parts.map(Some);
            let drain = drain.map(|pool| pool.shutdown());
            for (i, part) in order.iter().enumerate() {
                let part = parts[*part].take().unwrap();
                let end = move || match part {
                    Part::Pool(pool) => drop(pool),
                    Part::Local(local) => drop(local),
                    Part::Page(page) => drop(page),
                    Part::Frag(frag) => drop(frag),
                    Part::Bytes(bytes) => drop(bytes),
                    Part::Recycler(recycler) => drop(recycler),
                };
                if (i + order[1]).is_multiple_of(4) { on_another_thread(end) } else { end() }
            }
            if let Some(drain) = drain {
                drain.wait();
            }
        }
    }

    fn what_is_forgotten_is_out_for_ever_and_nothing_else_happens() {
        let pool = pool();
        let mut local = pool.allocator();
        std::mem::forget(local.alloc().unwrap());
        std::mem::forget(local.alloc_frag(10).unwrap());
        std::mem::forget(local.alloc().unwrap().freeze().clone());
        drop(pages(&mut local, 100));
        assert_eq!(pool.in_flight(), 3);
        let drain = pool.shutdown().wait_timeout(MOMENT).unwrap_err();
        assert_eq!(drain.outstanding().count(), 3);
        std::mem::forget(drain);
    }

    fn pages_may_be_dropped_in_destructors_of_thread_locals() {
        thread_local! { static LAST: RefCell<Vec<(Page, Frag, PageBytes)>> = const { RefCell::new(vec![]) }; }
        thread_local! { static LOCAL: RefCell<Option<Allocator>> = const { RefCell::new(None) }; }
        let pool = pool();
        let mut local = pool.allocator();
        let last = (local.alloc().unwrap(), local.alloc_frag(3).unwrap(), local.alloc().unwrap().freeze());
        on_another_thread(move || {
            LOCAL.set(Some(local));
            LAST.with_borrow_mut(|pages| pages.push(last));
        });
        assert_ends(&pool);
    }

    fn panics_unwind_through_pages_and_owners() {
        let pool = pool();
        let mut local = pool.allocator();
        assert!(panics(|| {
            let _page = local.alloc().unwrap();
            let _frag = local.alloc_frag(100).unwrap();
            panic!("in the middle");
        }));
        assert_eq!(pool.in_flight(), 0);
        let mut moved = Some(pool.allocator());
        assert!(panics(move || {
            let mut local = moved.take().unwrap();
            let _on_the_way_out = OnDrop(|| ());
            let _page = local.alloc().unwrap();
            panic!("with the owner");
        }));
        assert!(local.alloc().is_ok());
        assert_ends(&pool);
    }

    fn pages_travel_through_rings_and_channels() {
        let pool = PagePool::builder().cache(8).refill(4).ring(8).build().unwrap();
        let ring = PtrRing::new(4).unwrap();
        let mut local = pool.allocator();
        for i in 0..4 {
            let mut page = local.alloc().unwrap();
            page[0] = i;
            ring.produce(page).unwrap();
        }
        assert_eq!(ring.peek(|page| page[0]), Some(0));
        let (send, got) = mpsc::channel();
        thread::scope(|s| {
            s.spawn(|| while let Some(page) = ring.consume() { send.send(page[0]).unwrap() });
        });
        drop(send);
        assert!(got.into_iter().eq(0..4));
        ring.produce(local.alloc().unwrap()).unwrap();
        assert_eq!(pool.in_flight(), 1);
        drop(ring);
        assert_ends(&pool);
    }

    fn wrong_fields_are_named_with_their_range() {
        let wrong = |change: fn(PoolBuilder) -> PoolBuilder| change(PagePool::builder()).build().unwrap_err();
        let range = |field, value, allowed| BuildError::OutOfRange { field, value, allowed };
        assert_eq!(wrong(|b| b.page_size(0)), range("page_size", 0, 1..=MAX_PAGE_SIZE));
        assert_eq!(wrong(|b| b.page_size(2 << 20)), range("page_size", 2 << 20, 1..=MAX_PAGE_SIZE));
        let power = BuildError::NotAPowerOfTwo { field: "page_size", value: 4097, allowed: 1..=MAX_PAGE_SIZE };
        assert_eq!(wrong(|b| b.page_size(4097)), power);
        assert_eq!(wrong(|b| b.cache(63)), range("cache", 63, 64..=4096));
        assert_eq!(wrong(|b| b.cache(4097)), range("cache", 4097, 64..=4096));
        assert_eq!(wrong(|b| b.refill(0)), range("refill", 0, 1..=4096));
        assert_eq!(wrong(|b| b.refill(129)), range("cache", 128, 129..=4096));
        assert_eq!(wrong(|b| b.ring(MAX_RING + 1)), range("ring", MAX_RING + 1, 0..=MAX_RING));
        assert_eq!(wrong(|b| b.ring(usize::MAX)).field(), Some("ring"));
        assert_eq!(wrong(|b| b.max_pages(0)), range("max_pages", 0, 1..=usize::MAX));
        assert_eq!(power.to_string(), "page_size is 4097, but has to be a power of two from 1 to 1048576");
        assert_eq!(wrong(|b| b.cache(63)).to_string(), "cache is 63, but has to be from 64 to 4096");
        assert_eq!((power.field(), power.allowed()), (Some("page_size"), Some(1..=MAX_PAGE_SIZE)));
        assert_eq!((BuildError::OutOfMemory.field(), BuildError::OutOfMemory.allowed()), (None, None));
        let limits = PagePool::builder().page_size(MAX_PAGE_SIZE).cache(4096).refill(4096).ring(MAX_RING).build().unwrap();
        assert_eq!(pages(&mut limits.allocator(), 3).len(), 3);
        let least = PagePool::builder().page_size(1).cache(1).refill(1).ring(0).max_pages(1).build().unwrap();
        let mut local = least.allocator();
        for _ in 0..10 {
            let page = local.alloc().unwrap();
            assert!(local.alloc().is_err());
            local.recycle(page);
            drop(local.alloc_frag(1).unwrap());
        }
        assert_ends(&least);
    }

    fn types_fit_generic_code() {
        fn shared<T: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}
        fn sent<T: Send + UnwindSafe + RefUnwindSafe + std::fmt::Debug + 'static>() {}
        fn error<E: std::error::Error + Clone + PartialEq + Send + Sync + 'static>() {}
        shared::<PagePool>();
        shared::<PageBytes>();
        shared::<Page>();
        sent::<Allocator>();
        sent::<Frag>();
        sent::<Recycler>();
        sent::<PoolBuilder>();
        error::<AllocError>();
        error::<BuildError>();
        assert_eq!((size_of::<Page>(), size_of::<Option<Page>>()), (8, 8));
        let pool = PagePool::builder().name("rx").build().unwrap();
        let mut local = pool.allocator();
        let (page, frag) = (local.alloc().unwrap(), local.alloc_frag(3).unwrap());
        assert!(format!("{pool:?} {local:?}").contains("\"rx\""));
        assert!(format!("{page:?} {frag:?}").starts_with("Page(4096 bytes at 0x"));
        assert!(format!("{:?}", page.freeze()).starts_with("PageBytes(4096 bytes"));
    }
}

#[cfg(feature = "bytes")]
#[test]
fn bytes_hold_the_page_without_a_copy() {
    let pool = pool();
    let mut local = pool.allocator();
    let mut page = local.alloc().unwrap();
    page[..5].copy_from_slice(b"hello");
    let at = page.as_ptr();
    let bytes = bytes::Bytes::from(page.freeze());
    assert_eq!((bytes.as_ptr(), &bytes[..5]), (at, &b"hello"[..]));
    let part = bytes.slice(1..3);
    let piece = bytes::Bytes::from(local.alloc_frag(10).unwrap().freeze());
    drop(bytes);
    assert_eq!(pool.in_flight(), 2);
    on_another_thread(move || drop((part, piece)));
    assert_ends(&pool);
}
