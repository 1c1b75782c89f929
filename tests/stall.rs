//! Waits that last too long are reported once, with what they wait for; nothing else is.
//!
//! Each test runs in a process of its own: a limit holds for a whole process.

mod common;

use common::{Backend, Flavor, Plain, Sched, Tally, eventually, hold, in_children, soon};
use percpu_ref::rcu::stats;
use percpu_ref::{Gate, Owner, PercpuRef, Report, ReportKind, Stall, Wait, set_report_hook, set_stall_after};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(50);
/// Long enough for a second report, if there were one.
const LONG: Duration = Duration::from_millis(200);

/// Every report of this process from now on.
fn reports() -> Receiver<Report> {
    let (tell, told) = mpsc::channel();
    set_report_hook(move |report: &Report| drop(tell.send(report.clone())));
    set_stall_after(Some(LIMIT));
    told
}

fn next(reports: &Receiver<Report>) -> (Option<String>, Stall) {
    let report = reports.recv_timeout(soon()).expect("a report");
    let ReportKind::Stalled(stall) = report.kind() else { panic!("another report: {report}") };
    assert!(stall.waited() >= LIMIT, "reported too early: {report}");
    (report.name().map(str::to_owned), stall.clone())
}

#[track_caller]
fn nothing_more(reports: &Receiver<Report>) {
    assert_eq!(reports.try_recv().ok(), None);
}

fn os_thread_id() -> u32 {
    // SAFETY: the call takes nothing and returns a number.
    unsafe { libc::gettid() }.try_into().unwrap()
}

/// Holds a section of `F` open in a thread of this name until the sender is dropped.
fn reader<F: Flavor>(name: &str) -> (mpsc::Sender<()>, thread::JoinHandle<u32>) {
    hold(name, || (F::read_lock(), os_thread_id()))
}

/// A ref that `n` references are out of, killed.
fn held<F: Flavor>(n: usize) -> PercpuRef<F> {
    let r = PercpuRef::builder().flavor(F::default()).name("held").build(|| {});
    r.get_many(n);
    r.kill_sync().unwrap();
    r
}

fn a_ref_that_is_held<F: Flavor>() {
    let reports = reports();
    let r = held::<F>(3);
    thread::scope(|s| {
        let waiter = s.spawn(|| r.wait_zero());
        let (name, stall) = next(&reports);
        assert_eq!(name.as_deref(), Some("held"));
        assert_eq!((stall.wait(), stall.flavor()), (Wait::Zero, &*format!("{:?}", F::default())));
        assert_eq!((stall.references(), stall.callbacks(), stall.readers().len()), (3, 0, 0));
        thread::sleep(LONG);
        r.put_many(3);
        waiter.join().unwrap();
    });
    nothing_more(&reports);
    assert_eq!(stats().stalls, 1);
}

/// A grace period of `F` that a section of the thread `slow` holds up; `run` waits for it, on behalf of `name`.
fn a_grace_period<F: Flavor>(name: Option<&str>, run: impl FnOnce() + Send) {
    let reports = reports();
    let (began, mut id) = (Instant::now(), None);
    let (leave, slow) = reader::<F>("slow");
    thread::scope(|s| {
        let waiter = s.spawn(run);
        let (of, stall) = next(&reports);
        assert_eq!(of.as_deref(), name);
        assert_eq!((stall.wait(), stall.flavor()), (Wait::GracePeriod, &*format!("{:?}", F::default())));
        if F::backend() == Backend::Epoch && cfg!(not(feature = "track")) {
            assert_eq!(stall.readers(), []);
        } else {
            let [reader] = stall.readers() else { panic!("{stall}") };
            assert_eq!(reader.thread_name(), Some("slow"));
            id = reader.os_thread_id();
            assert!(reader.seen_for() <= began.elapsed(), "{stall}");
            assert_eq!(reader.place().map(|place| place.file()), cfg!(feature = "track").then_some(file!()));
            assert!(stall.to_string().contains("thread `slow`"), "{stall}");
        }
        thread::sleep(LONG);
        drop(leave);
        waiter.join().unwrap();
    });
    let slow = slow.join().unwrap();
    assert!(id.is_none_or(|id| id == slow));
    let known = F::backend() != Backend::Epoch || cfg!(feature = "track");
    assert_eq!(id.is_some(), known && cfg!(not(percpu_ref_portable)));
    nothing_more(&reports);
}

fn poll<T>(drain: &mut percpu_ref::Drain<T>) -> Poll<T> {
    std::pin::Pin::new(drain).poll(&mut Context::from_waker(Waker::noop()))
}

in_children! {
    fn a_wait_for_a_held_plain_ref_is_reported_once() {
        a_ref_that_is_held::<Plain>();
    }

    fn a_wait_for_a_held_sched_ref_is_reported_once() {
        a_ref_that_is_held::<Sched>();
    }

    fn each_wait_has_a_report_of_its_own() {
        let reports = reports();
        let r = held::<Sched>(1);
        for _ in 0..2 {
            let out = r.wait_zero_timeout(LONG).unwrap_err();
            assert_eq!(out.count(), 1);
            assert_eq!(next(&reports).1.references(), 1);
        }
        r.put();
        nothing_more(&reports);
    }

    fn a_wait_that_ends_in_time_is_not_reported() {
        let reports = reports();
        set_stall_after(Some(soon()));
        let r = held::<Sched>(1);
        assert!(r.wait_zero_timeout(LONG).is_err());
        r.put();
        r.wait_zero();
        Sched::synchronize();
        Plain::synchronize();
        nothing_more(&reports);
    }

    fn nothing_is_reported_with_the_limit_off() {
        let reports = reports();
        set_stall_after(None);
        let r = held::<Sched>(1);
        assert!(r.wait_zero_timeout(LONG).is_err());
        r.put();
        nothing_more(&reports);
        assert_eq!(stats().stalls, 0);
    }

    fn waiting_for_somebody_to_kill_is_no_stall() {
        let reports = reports();
        let r = PercpuRef::builder().name("served").build(|| {});
        r.get();
        thread::scope(|s| {
            let waiter = s.spawn(|| r.wait_zero());
            thread::sleep(LONG * 5);
            nothing_more(&reports);
            let killed = Instant::now();
            r.kill_sync().unwrap();
            let (_, stall) = next(&reports);
            assert!(stall.waited() < killed.elapsed() + LONG * 4, "counted from before the kill: {stall}");
            r.put();
            waiter.join().unwrap();
        });
        nothing_more(&reports);
    }

    fn a_release_that_does_not_return_is_told_apart() {
        let reports = reports();
        let (leave, left) = mpsc::channel::<()>();
        let left = std::sync::Mutex::new(left);
        let r = PercpuRef::builder().name("slow").build(move || left.lock().unwrap().recv().unwrap_or_default());
        r.kill().unwrap();
        thread::scope(|s| {
            let waiter = s.spawn(|| r.wait_zero());
            let (_, stall) = next(&reports);
            assert_eq!(stall.references(), 0);
            assert!(stall.to_string().contains("release has not returned"), "{stall}");
            drop(leave);
            waiter.join().unwrap();
        });
        nothing_more(&reports);
    }

    fn a_kill_that_waits_for_a_confirm_is_reported() {
        let reports = reports();
        let (leave, left) = mpsc::channel::<()>();
        let (tell, begun) = mpsc::channel();
        let r = PercpuRef::builder().name("switched").build(|| {});
        r.switch_to_atomic(move || {
            tell.send(()).unwrap();
            let _ = left.recv();
        });
        begun.recv().unwrap();
        thread::scope(|s| {
            let killer = s.spawn(|| r.kill_sync().unwrap());
            let (name, stall) = next(&reports);
            assert_eq!((name.as_deref(), stall.wait()), (Some("switched"), Wait::Switch));
            drop(leave);
            killer.join().unwrap();
        });
        nothing_more(&reports);
    }

    fn a_freeze_that_a_pass_holds_up_is_reported_and_a_wait_for_the_thaw_is_not() {
        let reports = reports();
        let gate = Gate::builder().name("journal").build();
        let pass = gate.enter().unwrap();
        thread::scope(|s| {
            s.spawn(|| drop(gate.freeze()));
            let (name, stall) = next(&reports);
            assert_eq!((name.as_deref(), stall.wait(), stall.references()), (Some("journal"), Wait::Zero, 1));
            drop(pass);
        });
        thread::scope(|s| {
            let frozen = gate.freeze();
            s.spawn(|| drop(gate.enter_wait().unwrap()));
            thread::sleep(LONG);
            drop(frozen);
        });
        nothing_more(&reports);
    }

    fn a_drain_that_blocks_is_reported() {
        let reports = reports();
        let owner = Owner::with_name(7, "seven");
        let shared = Owner::share(&owner);
        let drain = Owner::shutdown(owner).wait_timeout(LONG).unwrap_err();
        let (name, stall) = next(&reports);
        assert_eq!((name.as_deref(), stall.wait(), stall.references()), (Some("seven"), Wait::Zero, 1));
        drop(shared);
        assert_eq!(drain.wait(), 7);
        nothing_more(&reports);
    }

    fn a_drain_that_is_polled_again_late_is_reported() {
        let reports = reports();
        let owner = Owner::new(7);
        let shared = Owner::share(&owner);
        let mut drain = Owner::shutdown(owner);
        assert!(poll(&mut drain).is_pending());
        thread::sleep(LIMIT);
        eventually("the owner's own reference is gone", || drain.outstanding().count() == 1);
        nothing_more(&reports);
        assert!(poll(&mut drain).is_pending());
        assert_eq!(next(&reports).1.references(), 1);
        thread::sleep(LIMIT);
        assert!(poll(&mut drain).is_pending());
        nothing_more(&reports);
        drop(shared);
        assert_eq!(poll(&mut drain), Poll::Ready(7));
    }

    fn a_thread_in_a_section_is_named() {
        a_grace_period::<Sched>(None, Sched::synchronize);
    }

    fn a_plain_grace_period_is_reported_with_names_only_where_sections_are_tracked() {
        a_grace_period::<Plain>(None, Plain::synchronize);
    }

    fn a_plain_kill_that_a_section_holds_up_is_reported_by_name() {
        let r = PercpuRef::builder().flavor(Plain).name("looked up").build(|| {});
        a_grace_period::<Plain>(Some("looked up"), || r.kill_sync().unwrap());
    }

    fn a_sched_kill_that_a_section_holds_up_is_reported_by_name("PERCPU_REF_BACKEND" = "membarrier") {
        let r = PercpuRef::builder().name("looked up").build(|| {});
        a_grace_period::<Sched>(Some("looked up"), || r.kill_sync().unwrap());
    }

    fn a_thread_is_named_where_readers_have_a_fence("PERCPU_REF_BACKEND" = "fence") {
        a_grace_period::<Sched>(None, Sched::synchronize);
    }

    fn what_the_callback_thread_waits_for_is_reported_too("PERCPU_REF_BACKEND" = "membarrier") {
        let r = PercpuRef::builder().name("killed in passing").build(|| {});
        // Nobody here waits before the report: that would be a second wait.
        a_grace_period::<Sched>(None, || r.kill().unwrap());
        r.wait_zero();
    }

    fn only_who_has_been_in_the_way_is_named() {
        let reports = reports();
        let limit = Duration::from_secs(1);
        set_stall_after(Some(limit));
        let stop = &AtomicBool::new(false);
        let early = [reader::<Sched>("early 1"), reader::<Sched>("early 2")];
        thread::scope(|s| {
            let waiter = s.spawn(Sched::synchronize);
            // These come and go, and have a word that is odd at every other look.
            let busy = thread::Builder::new().name("busy".to_owned());
            let busy = busy.spawn_scoped(s, move || {
                while !stop.load(Relaxed) {
                    drop(Sched::read_lock());
                }
            });
            thread::sleep(limit * 3 / 4);
            let late = reader::<Sched>("late");
            let (_, stall) = next(&reports);
            let names: Vec<_> = stall.readers().iter().map(|reader| reader.thread_name().unwrap()).collect();
            assert_eq!(names, ["early 1", "early 2"]);
            assert!(stall.readers().iter().all(|reader| reader.seen_for() * 2 >= stall.waited()), "{stall}");
            stop.store(true, Relaxed);
            busy.unwrap().join().unwrap();
            for (leave, thread) in early.into_iter().chain([late]) {
                drop(leave);
                thread.join().unwrap();
            }
            waiter.join().unwrap();
        });
        nothing_more(&reports);
    }

    fn a_hook_that_waits_in_the_callback_thread_lets_no_call_run_early() {
        let other = Arc::new(PercpuRef::new(|| {}));
        let (tell, been_there) = mpsc::channel();
        let (once, of_hook) = (AtomicBool::new(false), Arc::clone(&other));
        set_report_hook(move |_| {
            // It should not wait; but if it does, another thread takes the queue over.
            if thread::current().name().is_some_and(|name| name.starts_with("percpu-ref")) && !once.swap(true, SeqCst) {
                assert!(of_hook.wait_zero_timeout(LIMIT * 5).is_err());
                tell.send(()).unwrap();
            }
        });
        set_stall_after(Some(LIMIT));
        let ran: [_; 3] = std::array::from_fn(|_| Tally::default());
        let (first_leaves, first) = reader::<Sched>("first");
        Sched::call(ran[0].counter());
        been_there.recv().unwrap();
        // Both threads have found that call waiting: the old one waits for the first reader, and the new one will for the second.
        let (second_leaves, second) = reader::<Sched>("second");
        drop(first_leaves);
        first.join().unwrap();
        thread::sleep(LONG);
        let (third_leaves, third) = reader::<Sched>("third");
        Sched::call(ran[1].counter());
        drop(second_leaves);
        second.join().unwrap();
        thread::sleep(LONG);
        assert_eq!((ran[0].get(), ran[1].get()), (1, 0), "a section that was open when it was called is still open");
        drop(third_leaves);
        third.join().unwrap();
        eventually("the second call runs", || ran[1].get() == 1);
        // And the queue goes on.
        Sched::call(ran[2].counter());
        Sched::barrier();
        assert_eq!(ran.map(|ran| ran.get()), [1; 3]);
        other.kill_sync().unwrap();
    }

    fn what_was_deferred_in_crossbeam_may_wait_for_a_ref() {
        // Whoever pins runs it, the callback thread of `Plain` in its wait for a grace period as likely as any.
        let other = Arc::new(PercpuRef::new(|| {}));
        for _ in 0..20 {
            let (ran, deferred) = (Tally::default(), Tally::default());
            Plain::call(ran.counter());
            let guard = crossbeam_epoch::pin();
            for _ in 0..4 {
                let (other, deferred) = (Arc::clone(&other), deferred.counter());
                guard.defer(move || {
                    drop(other.wait_zero_timeout(Duration::from_millis(5)));
                    deferred();
                });
            }
            guard.flush();
            drop(guard);
            Plain::call(ran.counter());
            thread::sleep(Duration::from_millis(25));
            Plain::call(ran.counter());
            Plain::barrier();
            assert_eq!(ran.get(), 3);
            eventually("what was deferred runs", || {
                Plain::synchronize();
                deferred.get() == 4
            });
        }
        other.kill_sync().unwrap();
    }

    fn a_barrier_that_a_callback_holds_up_is_reported() {
        let reports = reports();
        let (leave, left) = mpsc::channel::<()>();
        Plain::call(move || left.recv().unwrap_or_default());
        Plain::call(|| {});
        let waiter = thread::spawn(Plain::barrier);
        let (name, stall) = next(&reports);
        assert_eq!((name, stall.wait(), stall.flavor(), stall.callbacks()), (None, Wait::Callbacks, "Plain", 2));
        drop(leave);
        waiter.join().unwrap();
        nothing_more(&reports);
    }
}
