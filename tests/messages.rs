//! What messages say: which ref they are about, how it stands, and what to do next.

mod common;

use common::{Flavor, Plain, Sched, eventually, in_both_flavours, in_children};
use percpu_ref::page_pool::PagePool;
use percpu_ref::{Gate, Outstanding, Owner, PercpuRef, ReportKind, set_report_hook, set_stall_after};
use std::any::Any;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const HINT: &str = "\n  (the crate's feature `track` tells who took them, and where)";

fn named<F: Flavor>() -> PercpuRef<F> {
    PercpuRef::builder().flavor(F::default()).name("table").build(|| {})
}

/// What is said about `references` that are out, without the holders, which only the feature `track` knows.
#[track_caller]
fn says(message: &impl ToString, references: usize, expected: &str) {
    let message = message.to_string();
    if cfg!(feature = "track") {
        assert_eq!(message.lines().next(), Some(expected));
        assert!(!message.contains(HINT), "{message}");
    } else {
        let hint = if references > 0 { HINT } else { "" };
        assert_eq!(message, format!("{expected}{hint}"));
    }
}

/// Waits for no time.
fn wait<F: Flavor>(r: &PercpuRef<F>) -> Outstanding {
    r.wait_zero_timeout(Duration::ZERO).unwrap_err()
}

fn message_of(panic: Box<dyn Any + Send>) -> String {
    *panic.downcast().expect("a formatted message")
}

/// The message of the panic that `f` ends in.
fn panic_of(f: impl FnOnce()) -> String {
    message_of(catch_unwind(AssertUnwindSafe(f)).unwrap_err())
}

in_both_flavours! {
    fn a_wait_for_a_live_ref_says_that_nobody_has_killed_it<F>() {
        let r = named::<F>();
        let out = wait(&r);
        assert_eq!((out.is_dying(), out.count()), (false, 1));
        says(&out, 0, "ref `table` has not been killed; no reference is out but its first");
        r.get();
        says(&wait(&r), 1, "ref `table` has not been killed; 1 reference is out besides its first");
        r.get_many(2);
        says(&wait(&r), 3, "ref `table` has not been killed; 3 references are out besides its first");
        says(&r.outstanding(), 3, "ref `table` has not been killed; 3 references are out besides its first");
        r.kill_sync().unwrap();
        let out = wait(&r);
        assert_eq!((out.is_dying(), out.count()), (true, 3));
        says(&out, 3, "ref `table` still has 3 references out");
        r.put_many(2);
        says(&wait(&r), 1, "ref `table` still has 1 reference out");
        r.put();
    }

    fn a_kill_that_is_under_way_says_so<F>() {
        let r = Arc::new(named::<F>());
        r.get();
        let (tell, told) = mpsc::channel();
        let of_confirm = Arc::clone(&r);
        r.kill_and_confirm(move || tell.send(of_confirm.outstanding()).unwrap()).unwrap();
        let out = told.recv().unwrap();
        assert_eq!((out.is_dying(), out.count()), (true, 2));
        says(&out, 1, "ref `table` is being killed; 1 reference is out besides its first");
        r.put();
        r.wait_zero();
        says(&r.outstanding(), 0, "ref `table` has been released; no reference is out");
    }

    fn a_release_that_has_not_returned_says_so<F>() {
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let r = PercpuRef::builder().flavor(F::default()).name("table").build(move || {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        });
        r.kill().unwrap();
        has_begun.recv().unwrap();
        says(&wait(&r), 0, "ref `table` has no reference out, but its release has not returned");
        go_on.send(()).unwrap();
        r.wait_zero();
    }

    fn a_saturated_ref_says_so_dead_or_alive<F>() {
        let r = PercpuRef::builder().flavor(F::default()).start(percpu_ref::Start::Atomic).name("table").build(|| {});
        r.get_many(usize::MAX);
        says(&wait(&r), 0, "ref `table` is saturated after misuse and will never be released");
        r.kill_sync().unwrap();
        says(&wait(&r), 0, "ref `table` is saturated after misuse and will never be released");
    }

    fn what_has_no_name_is_called_by_its_type<F>() {
        let r = PercpuRef::builder().flavor(F::default()).build(|| {});
        r.get();
        r.kill_sync().unwrap();
        says(&wait(&r), 1, "a ref without a name still has 1 reference out");
        r.put();

        let owner = Owner::with_flavor(7, F::default());
        let shared = Owner::share(&owner);
        says(&Owner::outstanding(&owner), 2, "a `Shared` value without a name has not been killed; 2 references are out besides its first");
        let drain = Owner::shutdown(owner);
        eventually("the kill is over", || drain.outstanding().count() == 1);
        says(&drain.outstanding(), 1, "a `Shared` value without a name still has 1 reference out");
        drop(shared);
        drain.wait();

        // Frozen or not, it has no first reference that its users know of.
        let gate = Gate::builder().flavor(F::default()).build();
        let pass = gate.enter();
        says(&gate.try_freeze().unwrap_err(), 1, "a `Gate` without a name still has 1 reference out");
        drop(pass);
    }

    fn a_wait_that_could_never_end_names_its_ref<F>() {
        let (r, unnamed) = (named::<F>(), Gate::builder().flavor(F::default()).build());
        let dying = PercpuRef::builder().flavor(F::default()).allow_reinit(true).name("dying").build(|| {});
        dying.get();
        dying.kill_sync().unwrap();
        let section = F::read_lock();
        let flavor = F::default();
        let place = format!("inside a {flavor:?} read-side critical section of this thread would wait for itself");
        assert_eq!(panic_of(|| r.wait_zero()), format!("wait_zero of ref `table` {place}"));
        assert_eq!(panic_of(|| r.kill_sync().unwrap()), format!("kill_sync of ref `table` {place}"));
        assert_eq!(panic_of(|| drop(unnamed.freeze())), format!("freeze of a `Gate` without a name {place}"));
        assert_eq!(panic_of(|| dying.resurrect().unwrap()), format!("resurrect of ref `dying` {place}"));
        drop(section);
        dying.put();

        let (tell, told) = mpsc::channel();
        let own = Arc::new(r);
        own.kill_and_confirm({
            let own = Arc::clone(&own);
            move || tell.send(panic_of(|| own.wait_zero())).unwrap()
        })
        .unwrap();
        let expected = "wait_zero of ref `table` inside a callback of its own would wait for itself";
        assert_eq!(told.recv().unwrap(), expected);
    }
}

in_children! {
    fn an_unnamed_pool_is_called_by_its_type() {
        let pool = PagePool::builder().build().unwrap();
        let page = pool.alloc().unwrap();
        let before = Instant::now();
        let drain = pool.shutdown();
        let after = Instant::now();
        eventually("the kill is over", || drain.outstanding().count() == 1);
        let least = after.elapsed();
        let out = drain.outstanding().to_string();
        let most = before.elapsed();
        let since = out.strip_prefix("a `PagePool` without a name still has 1 reference out, ").unwrap_or_else(|| panic!("{out}"));
        let (seconds, rest) = since.split_once(" s ").unwrap();
        // Rounded to one decimal.
        let possible = least.as_secs_f64() - 0.051..most.as_secs_f64() + 0.051;
        assert!(possible.contains(&seconds.parse().unwrap()), "{out}: {possible:?}");
        says(&rest, 1, "after its shutdown");
        drop(page);
    }

    fn a_panic_in_the_drop_of_an_owner_s_value_is_reported_as_the_owner_s() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.clone()).unwrap());
        drop(Owner::new(PanicsOnDrop));
        let report = told.recv().unwrap();
        assert_eq!(report.to_string(), "a `Shared` value without a name: a callback panicked: no more");
        assert_eq!((report.name(), report.kind()), (None, &ReportKind::CallbackPanicked("no more".into())));
    }

    fn a_panic_in_a_function_given_to_call_is_not_about_a_ref() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.to_string()).unwrap());
        Sched::call(|| panic!("out of luck"));
        assert_eq!(told.recv().unwrap(), "a callback panicked: out of luck");
    }

    fn a_stall_says_which_type_waits_and_how_to_learn_more() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.to_string()).unwrap());
        set_stall_after(Some(Duration::from_millis(5)));
        let owner = Owner::new(7);
        let shared = Owner::share(&owner);
        let drain = Owner::shutdown(owner);
        let waiter = thread::spawn(move || drain.wait());
        let report = told.recv().unwrap();
        assert!(report.starts_with("a `Shared` value without a name: waited for its release for "), "{report}");
        says(&&report[report.find("; ").unwrap() + 2..], 1, "1 reference is out");
        drop(shared);
        assert_eq!(waiter.join().unwrap(), 7);
    }

    fn what_is_dropped_with_references_out_is_reported_by_its_type() {
        let (tell, told) = mpsc::channel();
        set_report_hook(move |report| tell.send(report.to_string()).unwrap());
        let gate = Gate::new();
        forget(gate.enter());
        drop(gate);
        let expected = "a `Gate` without a name: dropped with 1 reference out, which can never be put";
        // Only builds with debug assertions look.
        assert_eq!(told.try_recv().ok().as_deref(), cfg!(debug_assertions).then_some(expected));
    }
}

/// Its drop panics.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("no more");
    }
}
