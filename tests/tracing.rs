//! Which events a subscriber sees, exactly and in order: with the feature `tracing`.
//!
//! Each test runs in a process of its own: a subscriber is global.

mod common;

use common::{Flavor, Plain, Sched, in_children};
use percpu_ref::{Owner, PercpuRef, set_report_hook, set_stall_after};
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What each event says: level, message, other fields.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Uses the refs that events are about, so that a lock of ours held meanwhile would not be taken again.
static INSPECTED: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();
static PANICS: AtomicBool = AtomicBool::new(false);

struct Listener;

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.message, "{value:?}").unwrap();
        } else {
            write!(self.fields, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if metadata.target() != "percpu_ref" {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        SEEN.lock().unwrap().push(format!("{} {}{}", metadata.level(), text.message, text.fields));
        if let Some(inspect) = INSPECTED.get() {
            inspect();
        }
        assert!(!PANICS.load(SeqCst), "the subscriber panics");
    }
}

fn listen() {
    tracing::subscriber::set_global_default(Listener).unwrap();
}

fn seen() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

fn step(what: &str, name: &str) -> String {
    format!("DEBUG {what} name={name:?} flavor=\"Sched\"")
}

fn switch(mode: &str, name: &str) -> String {
    format!("{} mode={mode:?}", step("switch", name))
}

in_children! {
    fn a_life_is_told_in_order() {
        listen();
        let r = PercpuRef::builder().name("table").allow_reinit(true).build(|| {});
        for _ in 0..10 {
            r.get();
            drop(r.enter());
            r.put();
        }
        assert_eq!(seen(), [""; 0]);
        r.get();
        r.kill_and_confirm(|| {}).unwrap();
        r.resurrect().unwrap();
        let killed = [step("kill", "table"), switch("atomic", "table"), step("confirm", "table")];
        let revived = [step("resurrect", "table"), switch("percpu", "table")];
        assert_eq!(seen(), [&killed[..], &revived[..]].concat());
        r.put();
        r.kill().unwrap();
        r.wait_zero();
        assert_eq!(seen(), [&killed[..], &[step("release", "table")]].concat());
        assert!(r.kill().is_err());
        r.reinit().unwrap();
        assert_eq!(seen(), [step("reinit", "table"), switch("percpu", "table")]);
        r.switch_to_atomic_sync();
        r.switch_to_percpu().unwrap();
        assert_eq!(seen(), [switch("atomic", "table"), switch("percpu", "table")]);
        r.kill_sync().unwrap();
        assert_eq!(seen(), [&killed[..], &[step("release", "table")]].concat());
    }

    fn the_other_flavour_and_refs_without_names_are_told_too() {
        listen();
        let owner = Owner::with_flavor(1, Plain);
        assert_eq!(Owner::shutdown(owner).wait(), 1);
        let plain = |what, more| format!("DEBUG {what} name=\"\" flavor=\"Plain\"{more}");
        let steps = [("kill", ""), ("switch", " mode=\"atomic\""), ("confirm", ""), ("release", "")];
        assert_eq!(seen(), steps.map(|(what, more)| plain(what, more)));
    }

    fn a_subscriber_may_use_the_ref_that_an_event_is_about() {
        let r = Arc::new(PercpuRef::builder().name("inspected").allow_reinit(true).build(|| {}));
        let inspected = Arc::clone(&r);
        // All of these take the lock of the ref, or a section, or wait for sections.
        let inspect = move || {
            assert_eq!(inspected.name().as_deref(), Some("inspected"));
            let _ = (inspected.estimate(), inspected.switch_to_percpu(), Sched::read_lock());
            Sched::synchronize();
            Plain::synchronize();
        };
        assert!(INSPECTED.set(Box::new(inspect)).is_ok());
        listen();
        r.kill_sync().unwrap();
        r.reinit().unwrap();
        r.get();
        r.kill().unwrap();
        r.resurrect().unwrap();
        r.put();
        r.kill().unwrap();
        r.wait_zero();
        assert_eq!(seen().iter().filter(|text| text.contains("release")).count(), 2);
    }

    fn a_subscriber_that_panics_stops_nothing() {
        std::panic::set_hook(Box::new(|_| {}));
        PANICS.store(true, SeqCst);
        listen();
        let r = PercpuRef::builder().name("told badly").build(|| {});
        r.get();
        r.kill().unwrap();
        r.put();
        r.wait_zero();
        assert_eq!(seen().len(), 4);
    }

    fn misuse_is_an_error_event_unless_the_program_has_a_hook() {
        listen();
        let misuse = |name: &'static str| {
            let r = PercpuRef::builder().name(name).build(|| {});
            r.put();
            r.kill_sync().unwrap();
        };
        misuse("misused");
        let says = "ref `misused`: more puts than gets; it is saturated and will never release (again)";
        assert!(seen().contains(&format!("ERROR {says} name=\"misused\"")));
        let hooked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&hooked);
        set_report_hook(move |_| *counted.lock().unwrap() += 1);
        misuse("hooked");
        assert_eq!(seen().iter().filter(|text| text.starts_with("ERROR")).count(), 0);
        assert_eq!(*hooked.lock().unwrap(), 1);
    }

    fn a_stall_is_a_warning_event() {
        listen();
        set_stall_after(Some(Duration::from_millis(20)));
        let r = PercpuRef::builder().name("held").build(|| {});
        r.get();
        r.kill_sync().unwrap();
        assert!(r.wait_zero_timeout(Duration::from_millis(100)).is_err());
        r.put();
        let warnings: Vec<_> = seen().into_iter().filter(|text| text.starts_with("WARN")).collect();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("WARN ref `held`: waited for its release for "), "{warning}");
        assert!(warning.contains("1 reference is out") && warning.ends_with("name=\"held\""), "{warning}");
    }
}
