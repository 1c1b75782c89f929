//! Who is listed as a holder, exactly: with the feature `track`.

mod common;

use common::{Flavor, Plain, Sched, in_both_flavours, in_children, soon, tests, together};
use percpu_ref::page_pool::{Page, PagePool, recycle_bulk};
use percpu_ref::ptr_ring::PtrRing;
use percpu_ref::{
    Gate, HolderKind, Holding, Outstanding, Owner, PercpuRef, RcuCell, Report, ReportKind, Shared, set_report_hook,
    set_stall_after,
};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// What is listed: kind, line of this file, count; by line.
fn listed(out: &Outstanding) -> Vec<(HolderKind, u32, u64)> {
    let line = |holding: &Holding| {
        let place = holding.place().expect("a place");
        assert_eq!(place.file(), file!());
        (holding.kind(), place.line(), holding.count())
    };
    let mut listed: Vec<_> = out.holders().iter().map(line).collect();
    listed.sort_by_key(|(_, line, _)| *line);
    listed
}

fn new<F: Flavor>() -> PercpuRef<F> {
    PercpuRef::builder().flavor(F::default()).name("watched").build(|| {})
}

use HolderKind::{Get, Owner as Root, Page as Paper, Pass, Ref, Shared as Handle};

in_both_flavours! {
    fn a_guard_is_listed_where_it_was_taken_until_it_is_dropped<F>() {
        let r = new::<F>();
        assert_eq!(listed(&r.outstanding()), []);
        let (guard, line) = (r.enter().unwrap(), line!());
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 1)]);
        let (clone, clone_line) = (guard.clone(), line!());
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 1), (Ref, clone_line, 1)]);
        drop(guard);
        assert_eq!(listed(&r.outstanding()), [(Ref, clone_line, 1)]);
        r.kill_sync().unwrap();
        assert!(r.enter().is_none() && !r.tryget_live());
        assert_eq!(listed(&r.outstanding()), [(Ref, clone_line, 1)]);
        assert_eq!(r.outstanding().count(), 1);
        drop(clone);
        assert_eq!(listed(&r.outstanding()), []);
    }

    fn whoever_holds_a_freeze_up_is_listed<F>() {
        let gate = Gate::builder().flavor(F::default()).build();
        let out = || listed(&gate.try_freeze().unwrap_err());
        let (pass, line) = (gate.enter().unwrap(), line!());
        assert_eq!(out(), [(Pass, line, 1)]);
        let (waited, waited_line) = (gate.enter_wait().unwrap(), line!());
        assert_eq!(out(), [(Pass, line, 1), (Pass, waited_line, 1)]);
        let (clone, clone_line) = (waited.clone(), line!());
        drop((pass, waited));
        assert_eq!(out(), [(Pass, clone_line, 1)]);
        let handle = &gate;
        let (owned, owned_line) = (Gate::enter_owned(&handle).unwrap(), line!());
        drop(clone);
        assert_eq!(out(), [(Pass, owned_line, 1)]);
        let (mut future, future_line) = (gate.enter_async(), line!());
        let poll = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(pass)) = poll else { panic!("the gate is open") };
        thread::scope(|s| { s.spawn(|| drop(owned)); });
        assert_eq!(out(), [(Pass, future_line, 1)]);
        drop(pass);
        assert!(gate.try_freeze().is_ok());
    }

    fn guards_of_one_place_are_one_entry<F>() {
        let r = new::<F>();
        let (mut guards, line): (Vec<_>, _) = ((0..5).map(|_| r.enter().unwrap()).collect(), line!());
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 5)]);
        guards.drain(1..3);
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 3)]);
        thread::scope(|s| { s.spawn(|| drop(guards)); });
        assert_eq!(listed(&r.outstanding()), []);
    }

    fn each_get_by_hand_is_listed_where_it_was_made<F>() {
        let r = new::<F>();
        let first = line!() + 1;
        r.get();
        r.get_many(2);
        assert!(r.tryget());
        assert!(r.tryget_many(3));
        assert!(r.tryget_live());
        r.get_many(0);
        assert!(r.tryget_many(0));
        let counts = [1, 2, 1, 3, 1];
        let expected: Vec<_> = (first..).zip(counts).map(|(line, count)| (Get, line, count)).collect();
        assert_eq!(listed(&r.outstanding()), expected);
        r.put_many(8);
        assert_eq!((listed(&r.outstanding()), r.outstanding().unmatched_puts()), (vec![], 0));
    }

    fn a_put_crosses_out_the_newest_get_of_its_thread<F>() {
        let r = new::<F>();
        r.get(); let first = line!();
        r.get_many(3); let second = line!();
        thread::scope(|s| { s.spawn(|| r.get()); }); let others = line!();
        r.put();
        assert_eq!(listed(&r.outstanding()), [(Get, first, 1), (Get, second, 2), (Get, others, 1)]);
        r.put_many(2);
        assert_eq!(listed(&r.outstanding()), [(Get, first, 1), (Get, others, 1)]);
        r.put();
        assert_eq!(listed(&r.outstanding()), [(Get, others, 1)]);
        r.put();
        assert_eq!(listed(&r.outstanding()), []);
    }

    fn a_put_of_a_thread_without_gets_crosses_out_the_oldest<F>() {
        let r = new::<F>();
        r.get_many(2); let first = line!();
        r.get(); let second = line!();
        thread::scope(|s| { s.spawn(|| r.put()); });
        assert_eq!(listed(&r.outstanding()), [(Get, first, 1), (Get, second, 1)]);
        thread::scope(|s| { s.spawn(|| r.put()); });
        assert_eq!(listed(&r.outstanding()), [(Get, second, 1)]);
        r.get(); let third = line!();
        r.put_many(1);
        assert_eq!(listed(&r.outstanding()), [(Get, second, 1)], "not the one of line {third}");
        thread::scope(|s| { s.spawn(|| r.put_many(1)); });
        assert_eq!(listed(&r.outstanding()), []);
    }

    fn a_forgotten_guard_stays_listed_and_its_put_by_hand_is_told<F>() {
        let r = new::<F>();
        std::mem::forget(r.enter()); let line = line!();
        r.put();
        let out = r.outstanding();
        assert_eq!((listed(&out), out.unmatched_puts(), out.count()), (vec![(Ref, line, 1)], 1, 1));
        assert!(out.to_string().contains("1 put by hand belongs to none"), "{out}");
        // Another guard is not mistaken for it.
        drop(r.enter());
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 1)]);
        r.kill_sync().unwrap();
        assert!(r.is_zero());
    }

    fn handles_are_listed_where_they_were_made<F>() {
        let (owner, root) = (Owner::with_flavor(7, F::default()), line!());
        let weak = Owner::downgrade(&owner);
        let (shared, share) = (Owner::share(&owner), line!());
        let (cloned, clone) = (shared.clone(), line!());
        let (upgraded, upgrade) = (weak.upgrade(), line!());
        let all = [(Root, root, 1), (Handle, share, 1), (Handle, clone, 1), (Handle, upgrade, 1)];
        assert_eq!(listed(&Owner::outstanding(&owner)), all);
        let drain = Owner::shutdown(owner);
        assert_eq!(listed(&drain.outstanding()), all[1..]);
        assert!(weak.upgrade().is_none());
        thread::spawn(move || drop(shared)).join().unwrap();
        drop(upgraded);
        assert_eq!(listed(&drain.outstanding()), [(Handle, clone, 1)]);
        let text = format!("{drain:?}");
        assert!(text.contains(&format!("line: {clone}")), "{text}");
        drop(cloned);
        assert_eq!(listed(&drain.outstanding()), []);
        assert_eq!(drain.wait(), 7);
    }

    fn what_a_cell_hands_out_is_listed_where_it_was_loaded<F>() {
        let (cell, root) = (RcuCell::with_flavor(1, F::default()), line!());
        let (seen, load) = (cell.load(), line!());
        cell.read(|_| ());
        let old = cell.swap(2); let swap = line!();
        common::eventually("the cell lets go", || old.outstanding().holders().len() == 1);
        assert_eq!(listed(&old.outstanding()), [(Handle, load, 1)], "no longer by the cell, as of line {root}");
        drop(seen);
        assert_eq!(old.wait(), 1);
        let (seen, load) = (cell.load(), line!());
        let old = cell.compare_and_swap(&seen, 3).unwrap();
        common::eventually("the cell lets go", || old.outstanding().holders().len() == 1);
        assert_eq!(listed(&old.outstanding()), [(Handle, load, 1)], "no longer by the cell, as of line {swap}");
        drop(seen);
        cell.update(|n| n + 1); let update = line!();
        let last = cell.load(); let load = line!();
        let drain = cell.into_inner();
        assert_eq!(listed(&drain.outstanding()), [(Handle, load, 1)], "no longer by the cell, as of line {update}");
        drop(last);
        assert_eq!((old.wait(), drain.wait()), (2, 4));
    }

    fn a_handle_in_a_ring_is_still_its_maker_s<F>() {
        let (owner, root) = (Owner::with_flavor(7, F::default()), line!());
        let ring: PtrRing<Shared<i32, F>> = PtrRing::new(4).unwrap();
        let share = line!() + 2;
        for _ in 0..4 {
            ring.produce(Owner::share(&owner)).unwrap();
        }
        assert_eq!(listed(&Owner::outstanding(&owner)), [(Root, root, 1), (Handle, share, 4)]);
        let clone = ring.peek(|shared| (shared.clone(), line!()));
        assert_eq!(ring.peek(|shared| **shared), Some(7));
        let (clone, clone_line) = clone.unwrap();
        let all = [(Root, root, 1), (Handle, share, 4), (Handle, clone_line, 1)];
        assert_eq!(listed(&Owner::outstanding(&owner)), all);
        let consumed = thread::scope(|s| s.spawn(|| ring.consume()).join().unwrap());
        assert_eq!(listed(&Owner::outstanding(&owner)), all);
        assert_eq!(consumed.as_deref(), Some(&7));
        drop((consumed, clone));
        assert_eq!(listed(&Owner::outstanding(&owner)), [(Root, root, 1), (Handle, share, 3)]);
        assert_eq!(ring.resize(1).unwrap().len(), 2);
        assert_eq!(listed(&Owner::outstanding(&owner)), [(Root, root, 1), (Handle, share, 1)]);
        drop(ring);
        assert_eq!(listed(&Owner::outstanding(&owner)), [(Root, root, 1)]);
    }

    fn the_oldest_comes_first_with_its_age_and_thread<F>() {
        let r = new::<F>();
        let old = thread::Builder::new().name("the old one".to_owned());
        let old = thread::scope(|s| old.spawn_scoped(s, || (r.enter(), line!())).unwrap().join().unwrap());
        thread::sleep(Duration::from_millis(30));
        let young = r.enter(); let line = line!();
        let out = r.outstanding();
        let [first, second] = out.holders() else { panic!("{out}") };
        assert_eq!((first.place().unwrap().line(), second.place().unwrap().line()), (old.1, line));
        assert_eq!(first.thread_name(), Some("the old one"));
        assert!(first.oldest() >= second.oldest() + Duration::from_millis(30), "{out}");
        assert!(first.oldest() < soon());
        // Together the age is that of the oldest.
        let both: Vec<_> = (0..2).map(|_| { thread::sleep(Duration::from_millis(30)); r.enter() }).collect();
        let out = r.outstanding();
        let third = &out.holders()[2];
        assert_eq!(third.count(), 2);
        assert!(third.oldest() >= Duration::from_millis(30) && third.oldest() < second.oldest() + soon(), "{out}");
        drop((old, young, both));
    }

    fn a_thousand_of_each_leave_nothing_behind<F>() {
        let owner = Owner::with_flavor(7, F::default());
        let r = new::<F>();
        together(4, |i| {
            let mut kept = Vec::new();
            for n in 0..1000 {
                let shared = Owner::share(&owner);
                kept.push(shared.clone());
                if n % 10 == i {
                    kept.clear();
                }
                let guard = r.enter().unwrap();
                r.get_many(2);
                drop(guard.clone());
                r.put();
                r.put();
            }
        });
        assert_eq!(Owner::outstanding(&owner).holders().len(), 1);
        assert_eq!((listed(&r.outstanding()), r.outstanding().unmatched_puts()), (vec![], 0));
    }
}

tests! {
    fn the_makers_of_owners_are_listed_whichever_way_they_made_them() {
        let line = line!() + 1;
        let a = Owner::new(String::new());
        let b = Owner::<String>::default();
        let c: Owner<String> = String::new().into();
        let d = Owner::from_box(Box::new(String::new()));
        let lines = [&a, &b, &c, &d].map(|owner| listed(&Owner::outstanding(owner))).concat();
        assert_eq!(lines, [0, 1, 2, 3].map(|n| (Root, line + n, 1)));
    }

    fn pages_are_listed_where_they_were_allocated_until_they_are_back() {
        let pool = PagePool::builder().name("buffers").build().unwrap();
        let mut local = pool.allocator();
        let (shared, shared_line) = (pool.alloc().unwrap(), line!());
        let (local_page, local_line) = (local.alloc().unwrap(), line!());
        let mut bulk = Vec::new();
        local.alloc_bulk(&mut bulk, 3).unwrap(); let bulk_line = line!();
        let (piece, piece_line) = (local.alloc_frag(64).unwrap(), line!());
        let second_piece = local.alloc_frag(64).unwrap();
        let again = local.alloc().unwrap(); let again_line = line!();
        local.recycle(again);
        drop(local.alloc().unwrap());
        // A page that travels is still its taker's.
        let ring: PtrRing<Page> = PtrRing::new(1).unwrap();
        ring.produce(local_page).unwrap();
        let local_page = ring.consume().unwrap();
        let bytes = shared.freeze();
        let part = bytes.slice(..10);
        drop(bytes);

        let drain = pool.shutdown();
        common::eventually("the caches are empty", || drain.outstanding().count() == 6);
        let out = drain.outstanding();
        let all = [(Paper, shared_line, 1), (Paper, local_line, 1), (Paper, bulk_line, 3), (Paper, piece_line, 1)];
        assert_eq!(listed(&out), all, "not line {again_line}");
        assert_eq!((out.name(), out.count()), (Some("buffers"), 6));
        drop(second_piece);
        assert_eq!(listed(&drain.outstanding()), all);
        drop((piece, part));
        assert_eq!(listed(&drain.outstanding()), all[1..3]);
        local.recycle(local_page);
        bulk.truncate(1);
        assert_eq!(listed(&drain.outstanding()), [(Paper, bulk_line, 1)]);
        recycle_bulk(&mut bulk);
        assert_eq!(listed(&drain.outstanding()), []);
        drain.wait();
    }

    fn a_page_that_comes_back_by_whichever_way_is_not_listed() {
        let pool = PagePool::builder().cache(4).refill(2).ring(2).build().unwrap();
        let mut local = pool.allocator();
        let mut pages = Vec::new();
        local.alloc_bulk(&mut pages, 10).unwrap();
        let out = pool.alloc().unwrap(); let line = line!();
        local.recycle_bulk(&mut pages); // more than the cache takes, and then than the ring takes
        let frags: Vec<_> = (0..100).map(|_| local.alloc_frag(1000).unwrap()).collect();
        drop(frags);
        local.alloc_bulk(&mut pages, 5).unwrap();
        let mut recycler = pool.recycler();
        pages.drain(..).for_each(|page| recycler.recycle(page));
        drop(recycler);
        let frag = local.alloc_frag(10).unwrap();
        drop(frag);
        drop(local);
        let drain = pool.shutdown();
        common::eventually("the caches are empty", || drain.outstanding().count() == 1);
        assert_eq!(listed(&drain.outstanding()), [(Paper, line, 1)]);
        drop(out);
        drain.wait();
    }

    fn a_clone_that_the_standard_library_makes_says_so() {
        let owner = Owner::new(7);
        let shared = Some(Owner::share(&owner));
        let clone = shared.clone();
        drop(shared);
        let out = Owner::outstanding(&owner);
        let of_handle = out.holders().iter().find(|holding| holding.kind() == Handle).unwrap();
        // Its sources were elsewhere when it was built; or they are installed here, and then their place says it.
        let of_std = of_handle.place().unwrap().file().starts_with("/rustc/");
        assert_eq!(of_handle.to_string().contains(" (the standard library, on behalf of its caller), taken "), of_std);
        assert_ne!(of_handle.place().unwrap().file(), file!());
        drop(clone);
    }

    fn what_is_told_names_the_line() {
        let r = new::<Sched>();
        let guard = r.enter(); let line = line!();
        let place = format!("{}:{line}:", file!());
        let out = r.outstanding();
        assert!(out.to_string().contains(&format!("\n  1 by Ref from {place}")), "{out}");
        assert_eq!(format!("{out:?}"), format!("Outstanding({out})"));
        assert!(format!("{r:?}").contains(&format!("line: {line}")));
        drop(guard);
        assert!(!format!("{r:?}").contains("holders"));
    }

    fn misuse_is_listed_without_overflow() {
        let r = new::<Sched>();
        r.get_many(usize::MAX);
        r.get_many(usize::MAX);
        assert_eq!(r.outstanding().holders().iter().map(Holding::count).max(), Some(u64::MAX));
        r.put_many(usize::MAX);
        r.put_many(usize::MAX);
        r.put_many(usize::MAX);
        assert_eq!(r.outstanding().unmatched_puts(), usize::MAX as u64);
    }
}

/// Takes and puts references on this ref in a signal handler.
static SIGNALLED: std::sync::OnceLock<PercpuRef> = std::sync::OnceLock::new();

extern "C" fn count_in_handler(_signal: libc::c_int) {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if let Some(r) = SIGNALLED.get() {
        r.get_many(3);
        r.put();
        r.put_many(2);
    }
    // SAFETY: it takes nothing.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is this thread's.
    unsafe { *location = errno };
}

in_children! {
    fn a_stall_names_the_holders() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report: &Report| drop(tell.send(report.clone())));
        set_stall_after(Some(Duration::from_millis(50)));
        let r = new::<Plain>();
        let guard = r.enter(); let line = line!();
        r.kill_sync().unwrap();
        assert!(r.wait_zero_timeout(Duration::from_millis(200)).is_err());
        let report = told.recv_timeout(soon()).unwrap();
        let ReportKind::Stalled(stall) = report.kind() else { panic!("{report}") };
        assert_eq!(stall.references(), 1);
        let [holding] = stall.holders() else { panic!("{report}") };
        assert_eq!((holding.kind(), holding.place().unwrap().line(), holding.count()), (Ref, line, 1));
        assert!(report.to_string().contains(&format!("{}:{line}:", file!())), "{report}");
        drop(guard);
    }

    fn a_stall_names_the_line_where_a_section_began() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report: &Report| drop(tell.send(report.clone())));
        set_stall_after(Some(Duration::from_millis(50)));
        let cell = RcuCell::with_flavor(1, Plain);
        thread::scope(|s| {
            let (leave, left) = mpsc::channel::<()>();
            let (tell, inside) = mpsc::channel();
            s.spawn(move || {
                cell.read(|_| {
                    tell.send(line!() - 1).unwrap();
                    left.recv().unwrap_or_default();
                });
            });
            let line = inside.recv().unwrap();
            s.spawn(Plain::synchronize);
            let report = told.recv_timeout(soon()).unwrap();
            let ReportKind::Stalled(stall) = report.kind() else { panic!("{report}") };
            let [reader] = stall.readers() else { panic!("{report}") };
            let place = reader.place().unwrap();
            assert_eq!((place.file(), place.line()), (file!(), line));
            assert!(reader.seen_for() >= stall.waited());
            drop(leave);
        });
    }

    fn a_forked_child_lists_and_crosses_out() {
        let r = new::<Sched>();
        let mut guard = r.enter(); let line = line!();
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|s| {
            // The books are open most of the time.
            s.spawn(|| while !over.load(std::sync::atomic::Ordering::Relaxed) { drop(r.enter()) });
            for _ in 0..50 {
                // SAFETY: the child uses what this crate says that it may use, and leaves by `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let new = r.enter();
                    let mut well = new.is_some();
                    drop(new);
                    // The guard of the other thread may have been open: it is gone with its thread, and its reference is out.
                    well &= listed(&r.outstanding()).contains(&(Ref, line, 1));
                    guard = None;
                    well &= !listed(&r.outstanding()).contains(&(Ref, line, 1));
                    // SAFETY: it takes a number.
                    unsafe { libc::_exit(if well { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(listed(&r.outstanding()), [(Ref, line, 1)]);
        drop(guard);
    }

    fn a_handler_that_interrupts_the_books_of_its_thread_does_not_wait_for_them() {
        if Sched::backend() != common::Backend::Rseq {
            return; // Elsewhere a handler may not count.
        }
        SIGNALLED.set(new::<Sched>()).unwrap();
        let r = SIGNALLED.get().unwrap();
        // SAFETY: an all-zero sigaction is a valid one.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count_in_handler as extern "C" fn(libc::c_int) as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler counts, which allocates nothing while its thread is in the books, and the thread that it
        // interrupts is nowhere else.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
        let (tell, told) = mpsc::channel();
        let counter = thread::spawn(move || {
            r.get_many(5);
            // SAFETY: no arguments.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            for _ in 0..20_000 {
                r.get();
                r.put();
            }
        });
        let thread = told.recv().unwrap();
        while !counter.is_finished() {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
        }
        counter.join().unwrap();
        let out = r.outstanding();
        assert_eq!(out.holders().iter().map(Holding::count).sum::<u64>() - out.unmatched_puts(), 5, "{out}");
        assert_eq!(out.count(), 6);
    }
}
