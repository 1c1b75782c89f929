//! The page pool under concurrent use: last returns against the end, owners who work while somebody shuts down, pieces that
//! come back out of order. What is checked is that no page is lost, handed out twice or used after its memory is gone;
//! AddressSanitizer watches too (tests/backends.sh asan).

mod common;

use common::{Dice, bounded, bounded_by, patience, soon, together};
use percpu_ref::page_pool::{AllocError, Allocator, Frag, Page, PageBytes, PagePool, recycle_bulk};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How often a race is run: less on an emulated machine or under a sanitizer.
fn rounds(n: usize) -> usize {
    n / patience() as usize
}

fn pages(local: &mut Allocator, n: usize) -> Vec<Page> {
    let mut pages = vec![];
    local.alloc_bulk(&mut pages, n).unwrap();
    pages
}

/// Each round: `n` pages are returned by `give_back` on one thread while another one shuts the pool down and drops it.
fn last_return_against_the_end(n: usize, give_back: fn(Vec<Page>)) {
    let start = Barrier::new(2);
    let (send, got) = mpsc::channel::<(Vec<Page>, PagePool)>();
    thread::scope(|s| {
        s.spawn(|| {
            let mut dice = Dice::new(n);
            for (pages, pool) in got {
                start.wait();
                (0..dice.below(40)).for_each(|_| std::hint::spin_loop());
                give_back(pages);
                drop(pool);
            }
        });
        let mut dice = Dice::new(n + 1);
        for round in 0..rounds(1500) {
            let pool = PagePool::builder().cache(8).refill(4).ring(16).build().unwrap();
            let mut local = pool.allocator();
            let pages = pages(&mut local, n);
            send.send((pages, pool.clone())).unwrap();
            start.wait();
            (0..dice.below(400)).for_each(|_| std::hint::spin_loop());
            match round % 3 {
                // Dropped while pages come back: nobody waits.
                0 => drop((local, pool)),
                1 => {
                    let drain = pool.shutdown();
                    drop((pool, local));
                    drain.wait();
                }
                _ => {
                    pool.shutdown().wait();
                    assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
                    assert_eq!(local.alloc().unwrap_err(), AllocError::ShutDown);
                }
            }
        }
        drop(send);
    });
}

#[test]
fn the_last_return_races_the_end_one_by_one() {
    bounded(|| last_return_against_the_end(3, drop));
}

#[test]
fn the_last_return_races_the_end_in_bulk() {
    bounded(|| last_return_against_the_end(40, |mut pages| recycle_bulk(&mut pages)));
}

#[test]
fn the_last_return_races_the_end_frozen() {
    bounded(|| last_return_against_the_end(2, |pages| pages.into_iter().for_each(|page| drop(page.freeze().clone()))));
}

/// Owners who do all they can, until they are told that the pool is shut.
fn work(local: &mut Allocator, seed: usize, started: &AtomicUsize) {
    let mut dice = Dice::new(seed);
    let (mut held, mut pieces, mut frozen) = (Vec::<Page>::new(), VecDeque::<Frag>::new(), Vec::<PageBytes>::new());
    let mut first = true;
    loop {
        let step = match dice.below(8) {
            0..=2 => local.alloc().map(|page| held.push(page)),
            3 => local.alloc_bulk(&mut held, 5),
            4 => local.alloc_frag(dice.below(1500) as usize).map(|piece| pieces.push_back(piece)),
            5 => {
                held.drain(..held.len() / 2).for_each(|page| local.recycle(page));
                Ok(())
            }
            6 => {
                held.truncate(held.len() / 2);
                pieces.truncate(3);
                frozen.clear();
                Ok(())
            }
            _ => {
                frozen.extend(held.pop().map(Page::freeze));
                frozen.extend(pieces.pop_front().map(Frag::freeze));
                Ok(())
            }
        };
        if first {
            started.fetch_add(1, SeqCst);
            first = false;
        }
        match step {
            Ok(()) => {}
            Err(AllocError::Exhausted) => held.clear(),
            Err(error) => {
                assert_eq!(error, AllocError::ShutDown);
                break;
            }
        }
    }
    // Late: what is still held goes home in any way.
    while let Some(page) = held.pop() {
        if dice.below(2) == 0 {
            local.recycle(page)
        } else {
            drop(page)
        }
        assert_eq!(local.alloc_frag(3).unwrap_err(), AllocError::ShutDown);
    }
}

#[test]
fn owners_work_while_the_pool_is_shut_down() {
    bounded_by(soon() * 4, || {
        for round in 0..rounds(400) {
            let pool = PagePool::builder().cache(8).refill(4).ring(8).max_pages(200).build().unwrap();
            let started = AtomicUsize::new(0);
            together(3, |i| {
                if i == 2 {
                    while started.load(SeqCst) < 2 {
                        thread::yield_now();
                    }
                    let spins = Dice::new(round).below(20_000);
                    (0..spins).for_each(|_| std::hint::spin_loop());
                    pool.shutdown().wait();
                } else {
                    work(&mut pool.allocator(), round * 2 + i, &started);
                }
            });
            assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
        }
    });
}

#[test]
fn an_owner_may_fall_asleep_anywhere_and_the_end_comes() {
    bounded(|| {
        for round in 0..rounds(300) {
            let pool = PagePool::builder().cache(8).refill(4).ring(8).build().unwrap();
            let mut local = pool.allocator();
            let mut dice = Dice::new(round);
            let mut held = vec![];
            for _ in 0..dice.below(30) {
                match dice.below(3) {
                    0 => held.push(local.alloc().unwrap()),
                    1 => drop(local.alloc_frag(500).unwrap()),
                    _ => held.drain(..held.len() / 2).for_each(|page| local.recycle(page)),
                }
            }
            drop(held);
            assert_eq!(pool.in_flight(), 0);
            pool.shutdown().wait();
            assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
        }
    });
}

/// A page with the name of its holder in every word, so that two holders would see each other.
fn stamp(bytes: &mut [u8], name: u64) {
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&name.to_ne_bytes()));
}

fn is_stamped(bytes: &[u8], name: u64) -> bool {
    bytes.chunks_exact(8).all(|word| *word == name.to_ne_bytes())
}

#[test]
fn no_page_or_piece_has_two_holders() {
    bounded_by(soon() * 2, || {
        let pool = PagePool::builder().page_size(512).cache(32).refill(16).ring(64).max_pages(2000).build().unwrap();
        let bins: [Mutex<Vec<(u64, Page)>>; 3] = Default::default();
        let pieces: [Mutex<Vec<(u64, Frag)>>; 3] = Default::default();
        let names = AtomicUsize::new(1);
        let until = Instant::now() + Duration::from_millis(1500);
        together(4, |i| {
            let (mut local, mut recycler) = (pool.allocator(), pool.recycler());
            let mut dice = Dice::new(i);
            // Where starting the threads has taken all that time, there is still to be something that races.
            let mut step = 0;
            while step < rounds(20_000) || Instant::now() < until {
                step += 1;
                let (name, bin) = (names.fetch_add(1, Relaxed) as u64, dice.below(3) as usize);
                match dice.below(8) {
                    0..=2 => {
                        let page = if i == 3 { pool.alloc() } else { local.alloc() };
                        if let Ok(mut page) = page {
                            stamp(&mut page, name);
                            bins[bin].lock().unwrap().push((name, page));
                        }
                    }
                    3 => {
                        let len = 8 * dice.below(20) as usize;
                        if let Ok(mut piece) = local.alloc_frag(len) {
                            stamp(&mut piece, name);
                            pieces[bin].lock().unwrap().push((name, piece));
                        }
                    }
                    4 => {
                        let mut taken = std::mem::take(&mut *pieces[bin].lock().unwrap());
                        assert!(taken.iter().all(|(name, piece)| is_stamped(piece, *name)));
                        if !taken.is_empty() {
                            // Out of order.
                            let kept = taken.split_off(taken.len() / 2);
                            pieces[(bin + 1) % 3].lock().unwrap().extend(kept);
                        }
                    }
                    5 => {
                        let taken = std::mem::take(&mut *bins[bin].lock().unwrap());
                        for (name, page) in taken {
                            assert!(is_stamped(&page, name));
                            match dice.below(4) {
                                0 => drop(page),
                                1 => local.recycle(page),
                                2 => recycler.recycle(page),
                                _ => {
                                    let frozen = page.freeze();
                                    let part = frozen.slice(8..16);
                                    drop(frozen);
                                    assert!(is_stamped(&part, name));
                                }
                            }
                        }
                    }
                    6 => {
                        let taken = std::mem::take(&mut *bins[bin].lock().unwrap());
                        let mut taken: Vec<_> = taken.into_iter().map(|(_, page)| page).collect();
                        recycle_bulk(&mut taken);
                    }
                    _ if dice.below(50) == 0 => local = pool.allocator(),
                    _ => {
                        let _ = (pool.stats(), pool.in_flight());
                    }
                }
            }
        });
        let held: usize = bins.iter().map(|bin| bin.lock().unwrap().len()).sum();
        assert!(pool.in_flight() >= held);
        drop((bins, pieces));
        assert_eq!(pool.in_flight(), 0);
        let stats = pool.stats();
        assert!(stats.fast > 0 && stats.refill > 0 && stats.ring > 0 && stats.cached > 0, "{stats:?}");
        pool.shutdown().wait();
        assert_eq!(pool.mapped_bytes(), 0);
    });
}

#[test]
fn pieces_come_back_out_of_order_from_several_threads() {
    bounded(|| {
        let pool = PagePool::builder().build().unwrap();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::sync_channel::<(usize, Frag)>(64)).unzip();
        thread::scope(|s| {
            for (i, got) in receivers.into_iter().enumerate() {
                s.spawn(move || {
                    let mut dice = Dice::new(i);
                    let mut kept: Vec<(usize, Frag)> = vec![];
                    for (n, frag) in got {
                        assert!(frag.iter().all(|byte| *byte == n as u8));
                        kept.push((n, frag));
                        if kept.len() > 20 {
                            let at = dice.below(kept.len() as u64) as usize;
                            let (n, frag) = kept.swap_remove(at);
                            assert!(frag.iter().all(|byte| *byte == n as u8));
                        }
                    }
                });
            }
            let mut local = pool.allocator();
            let mut dice = Dice::new(9);
            for n in 0..rounds(30_000) {
                let mut frag = local.alloc_frag(1 + dice.below(900) as usize).unwrap();
                frag.fill(n as u8);
                senders[dice.below(3) as usize].send((n, frag)).unwrap();
            }
            drop(senders);
        });
        assert_eq!(pool.in_flight(), 0);
        pool.shutdown().wait();
        assert_eq!(pool.mapped_bytes(), 0);
    });
}

#[test]
fn an_allocator_changes_hands() {
    bounded(|| {
        let pool = PagePool::builder().cache(16).refill(8).build().unwrap();
        let hands = Mutex::new(pool.allocator());
        let over = AtomicBool::new(false);
        together(3, |i| {
            for _ in 0..rounds(3000) {
                let mut local = hands.lock().unwrap();
                let mut page = local.alloc().unwrap();
                page[0] = i as u8;
                drop(local);
                assert_eq!(page[0], i as u8);
                if i == 0 { drop(page) } else { hands.lock().unwrap().recycle(page) }
            }
            over.store(true, SeqCst);
        });
        assert_eq!(pool.in_flight(), 0);
        let stats = pool.stats();
        let handed_out = stats.fast + stats.slow + stats.refill;
        assert_eq!(handed_out, 3 * rounds(3000) as u64);
        assert_eq!(stats.cached + stats.cache_full + stats.ring, handed_out + 8 * stats.cache_full, "{stats:?}");
        pool.shutdown().wait();
    });
}
