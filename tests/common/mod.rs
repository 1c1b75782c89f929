//! What the tests share: bounded time, threads that start together, books, reports and child processes.
#![allow(dead_code, unused_macros, unused_imports, reason = "each test binary uses some of this")]

#[cfg(target_os = "linux")]
pub(crate) mod process;

use percpu_ref::{Report, ReportKind, set_report_hook};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, LazyLock, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use percpu_ref::rcu::{Backend, Flavor, Plain, Sched};

/// What must not happen is given this long to happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// How much slower than a real machine this one is: an emulated one sets it.
pub(crate) fn patience() -> u32 {
    std::env::var("PERCPU_REF_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// What should happen happens within this.
pub(crate) fn soon() -> Duration {
    Duration::from_secs(20) * patience()
}

/// Runs a test on a thread of its own and fails if it takes too long.
pub(crate) fn bounded(body: impl FnOnce() + Send + 'static) {
    bounded_by(soon() * 2, body);
}

/// The same with another limit.
pub(crate) fn bounded_by(limit: Duration, body: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let name = thread::current().name().unwrap_or("test").to_owned();
    let run = move || drop(tell.send(catch_unwind(AssertUnwindSafe(body))));
    thread::Builder::new().name(name).spawn(run).expect("a thread for the test");
    match told.recv_timeout(limit) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => {
            // What hangs may hold a section, and every other test would hang behind it.
            eprintln!("{} hangs", thread::current().name().unwrap_or("a test"));
            std::process::exit(101);
        }
    }
}

/// Tests of bounded time.
macro_rules! tests {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$meta])* #[test] fn $name() { crate::common::bounded(|| $body) }
    )*};
}
pub(crate) use tests;

/// Tests of bounded time, each run in both flavours.
macro_rules! in_both_flavours {
    ($(fn $name:ident<$F:ident>() $body:block)*) => {$(
        mod $name {
            use super::*;
            fn run<$F: Flavor>() $body
            #[test] fn plain() { crate::common::bounded(run::<Plain>) }
            #[test] fn sched() { crate::common::bounded(run::<Sched>) }
        }
    )*};
}
pub(crate) use in_both_flavours;

/// Counts events.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<AtomicUsize>);

impl Tally {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// A callback that counts its runs.
    pub(crate) fn counter(&self) -> impl Fn() + Send + Sync + 'static {
        let tally = self.clone();
        move || tally.up()
    }
}

/// Runs something when it is dropped.
pub(crate) struct OnDrop<T: FnMut()>(pub(crate) T);

impl<T: FnMut()> Drop for OnDrop<T> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + soon();
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Has a thread of this name hold what `take` takes, until the sender is dropped; the thread returns the rest of it.
pub(crate) fn hold<G, T: Send + 'static>(
    name: &str,
    take: impl FnOnce() -> (G, T) + Send + 'static,
) -> (mpsc::Sender<()>, thread::JoinHandle<T>) {
    let (leave, left) = mpsc::channel::<()>();
    let (tell, inside) = mpsc::channel();
    let body = move || {
        let (_held, rest) = take();
        tell.send(()).unwrap();
        let _ = left.recv();
        rest
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
    inside.recv().unwrap();
    (leave, thread)
}

/// Runs `body` in `n` threads that start together, and returns what they return.
pub(crate) fn together<T: Send>(n: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(n);
    let (start, body) = (&start, &body);
    thread::scope(|s| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                s.spawn(move || {
                    start.wait();
                    body(i)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Numbers that look random and repeat with the seed. (Marsaglia's xorshift.)
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Every report of this process.
static REPORTS: LazyLock<Mutex<Vec<Report>>> = LazyLock::new(|| {
    set_report_hook(|report: &Report| REPORTS.lock().unwrap().push(report.clone()));
    Mutex::default()
});

/// What has been reported about the ref of this name. To be called once before anything can be.
pub(crate) fn reports_on(name: &str) -> Vec<ReportKind> {
    let reports = LazyLock::force(&REPORTS).lock().unwrap();
    reports.iter().filter(|report| report.name() == Some(name)).map(|report| report.kind().clone()).collect()
}

/// A name that no other ref of this process has.
pub(crate) fn unique(name: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    drop(reports_on("")); // The hook listens from now on.
    format!("{name} #{}", LAST.fetch_add(1, SeqCst))
}

const CHILD: &str = "PERCPU_REF_TEST_CHILD";

/// Runs `body` in a process of its own, in which only the test `name` runs, and fails if that fails, crashes or hangs.
pub(crate) fn in_child(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        body();
        return;
    }
    // Not a pipe, which fills up while nobody reads, and which whatever the child leaves behind would hold open.
    let path = std::env::temp_dir().join(format!("percpu-ref-{}-{name}", std::process::id()));
    let output = File::create(&path).expect("a file for what the child says");
    let mut child = Command::new(std::env::current_exe().expect("/proc tells it"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .envs(variables.iter().copied())
        .stdout(output.try_clone().expect("a file"))
        .stderr(output.try_clone().expect("a file"))
        .process_group(0)
        .spawn()
        .expect("a child process");
    let deadline = Instant::now() + soon();
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
        status = child.try_wait().expect("a child is there to be waited for");
    }
    let group = i32::try_from(child.id()).expect("a process number");
    // SAFETY: kill takes two integers; the group is the child's own.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    let status = status.map_or_else(|| "it hung".to_owned(), |status| status.to_string());
    let _ = child.wait();
    let text = String::from_utf8_lossy(&std::fs::read(&path).expect("what the child said")).into_owned();
    std::fs::remove_file(&path).expect("the file just read");
    assert!(status == "exit status: 0" && text.contains("1 passed"), "{name}: {status}\n{text}");
}

/// Tests that run in a process of their own, with these environment variables.
macro_rules! in_children {
    ($($(#[$meta:meta])* fn $name:ident($($key:literal = $value:literal),*) $body:block)*) => {$(
        $(#[$meta])* #[test] fn $name() {
            crate::common::in_child(stringify!($name), &[$(($key, $value)),*], || $body);
        }
    )*};
}
pub(crate) use in_children;
