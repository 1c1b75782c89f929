//! Everything at once, for a while: threads that count are moved from CPU to CPU and interrupted by signals whose handler
//! counts, the process forks, and refs of both flavours are killed, resurrected and born again meanwhile. At the end the
//! books balance, to the last reference.
//!
//! `PERCPU_REF_STRESS_SECONDS` says for how long (3 by default), `PERCPU_REF_STRESS_WORKERS` with how many threads that
//! count (as many as CPUs, from 4 to 32). `--nocapture` shows what was done and, as rcutorture does,
//! how old the objects were that readers saw: age 0 is current, age 1 is one that was replaced during the section, and
//! nobody may see an older one.
#![cfg(target_os = "linux")]

mod common;

use common::{Backend, Dice, Flavor, Plain, Sched, Tally, bounded_by, patience, together};
use percpu_ref::{PercpuRef, ReviveError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

fn seconds() -> u64 {
    std::env::var("PERCPU_REF_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A ref under stress and its books.
struct Account<F: Flavor> {
    r: PercpuRef<F>,
    released: Tally,
    /// What the workers say they hold.
    held: AtomicI64,
    /// No `tryget_live` that begins while this is set may succeed.
    confirmed: Arc<AtomicBool>,
    /// How often `confirmed` has been cleared: it grows after the flag has been cleared, and before it can be set again.
    cleared: AtomicU64,
    /// What the handler has taken for good.
    taken_by_handlers: AtomicI64,
    kills: AtomicU64,
    resurrections: AtomicU64,
    lives: AtomicU64,
}

impl<F: Flavor> Account<F> {
    fn open() -> Self {
        let released = Tally::default();
        Self {
            r: PercpuRef::builder().flavor(F::default()).allow_reinit(true).build(released.counter()),
            released,
            held: AtomicI64::new(0),
            confirmed: Arc::default(),
            cleared: AtomicU64::new(0),
            taken_by_handlers: AtomicI64::new(0),
            kills: AtomicU64::new(0),
            resurrections: AtomicU64::new(0),
            lives: AtomicU64::new(1),
        }
    }

    /// One turn of a worker; returns by how much what it holds has changed.
    fn use_it(&self, dice: &mut Dice, held: i64) -> i64 {
        let r = &self.r;
        match dice.below(10) {
            0 if held > 0 => {
                r.get();
                1
            }
            1 if held > 0 => {
                r.get_many(7);
                7
            }
            2 => i64::from(r.tryget()),
            3 => 3 * i64::from(r.tryget_many(3)),
            4 | 5 => {
                let cleared = self.cleared.load(SeqCst);
                let confirmed = self.confirmed.load(SeqCst);
                let got = r.tryget_live();
                // Before the next look at the flag: who is held up after that look may see the kill of a later life.
                let dying = r.is_dying();
                // If it is still set and was never cleared, it was set all the time.
                let all_the_time = self.confirmed.load(SeqCst) && self.cleared.load(SeqCst) == cleared;
                assert!(!(got && confirmed && dying && all_the_time), "got in after confirm");
                i64::from(got)
            }
            6 => {
                drop(r.enter().map(|guard| (guard.clone(), guard)));
                0
            }
            _ if held > 12 => {
                r.put_many(12);
                -12
            }
            _ if held > 0 => {
                r.put();
                -1
            }
            _ => 0,
        }
    }

    /// One kill, and one way back.
    fn kill_and_revive(&self, dice: &mut Dice) {
        let r = &self.r;
        match dice.below(4) {
            0 => r.switch_to_atomic_sync(),
            1 => r.switch_to_atomic(|| {}),
            _ => {}
        }
        match dice.below(3) {
            0 => r.kill().unwrap(),
            1 => r.kill_sync().unwrap(),
            _ => {
                let confirmed = Arc::clone(&self.confirmed);
                r.kill_and_confirm(move || confirmed.store(true, SeqCst)).unwrap();
            }
        }
        self.kills.fetch_add(1, Relaxed);
        if dice.below(4) == 0 {
            thread::yield_now();
        }
        // What handlers took is put here.
        let taken = self.taken_by_handlers.swap(0, SeqCst);
        r.put_many(usize::try_from(taken).unwrap());
        // A `resurrect` waits for the confirm, so the flag is not set by this kill afterwards.
        let drained = r.wait_zero_timeout(Duration::from_micros(dice.below(200))).is_ok();
        if !drained {
            let confirmed = self.confirmed.swap(false, SeqCst);
            self.cleared.fetch_add(1, SeqCst);
            match r.resurrect() {
                Ok(()) => {
                    self.confirmed.store(false, SeqCst);
                    self.cleared.fetch_add(1, SeqCst);
                    self.resurrections.fetch_add(1, Relaxed);
                    r.switch_to_percpu().unwrap();
                    return;
                }
                Err(error) => assert_eq!(error, ReviveError::Released),
            }
            self.confirmed.store(confirmed, SeqCst);
            r.wait_zero();
        }
        assert_eq!(self.released.get() as u64, self.lives.load(SeqCst), "one release for each life");
        self.confirmed.store(false, SeqCst);
        self.cleared.fetch_add(1, SeqCst);
        r.switch_to_percpu().unwrap();
        r.reinit().unwrap();
        self.lives.fetch_add(1, SeqCst);
    }

    /// All workers have ended: the books balance.
    fn close(&self) {
        let r = &self.r;
        let held = self.held.load(SeqCst) + self.taken_by_handlers.load(SeqCst);
        r.switch_to_atomic_sync();
        assert_eq!(r.estimate(), held + 1, "what is counted is what is held, and the first one");
        r.switch_to_percpu().unwrap();
        assert_eq!(r.estimate(), held + 1);
        r.put_many(usize::try_from(held).unwrap());
        r.kill().unwrap();
        r.wait_zero();
        assert_eq!(self.released.get() as u64, self.lives.load(SeqCst));
        println!(
            "{:?}: {} kills, {} resurrections, {} lives, {held} references out at the end",
            F::default(),
            self.kills.load(SeqCst),
            self.resurrections.load(SeqCst),
            self.lives.load(SeqCst)
        );
    }
}

/// Objects that are replaced, in each flavour.
struct Torture {
    current: AtomicUsize,
    /// How many grace periods have passed since the object was replaced, and one.
    ages: [AtomicUsize; 128],
    seen: [AtomicU64; 3],
}

impl Torture {
    fn new() -> Self {
        Self {
            current: AtomicUsize::new(0),
            ages: [const { AtomicUsize::new(0) }; 128],
            seen: [const { AtomicU64::new(0) }; 3],
        }
    }

    fn read<F: Flavor>(&self) {
        let _section = F::read_lock();
        let object = self.current.load(Relaxed);
        std::hint::spin_loop();
        let age = self.ages[object].load(Relaxed);
        self.seen[age.min(2)].fetch_add(1, Relaxed);
    }

    fn replace<F: Flavor>(&self) {
        let old = self.current.load(Relaxed);
        let new = (old + 1) % self.ages.len();
        self.ages[new].store(0, Relaxed);
        F::synchronize(); // Nobody still looks at what it was before.
        self.current.store(new, Relaxed);
        self.ages[old].store(1, Relaxed);
        F::synchronize();
        self.ages[old].store(2, Relaxed);
    }

    fn close(&self, name: &str) {
        let [current, replaced, freed] = [0, 1, 2].map(|age| self.seen[age].load(SeqCst));
        println!("{name}: seen at age 0: {current}, 1: {replaced}, 2 and more: {freed}");
        assert_eq!(freed, 0, "a section outlived a grace period");
        assert!(current > 0);
    }
}

static SCHED: OnceLock<Account<Sched>> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Counts, where a handler may: takes one for good now and then.
extern "C" fn handler(_: libc::c_int) {
    let Some(account) = SCHED.get() else { return };
    if HANDLED.fetch_add(1, Relaxed).is_multiple_of(16) && account.r.tryget() {
        account.taken_by_handlers.fetch_add(1, Relaxed);
    }
    if account.r.tryget_live() {
        account.r.get_many(2);
        account.r.put_many(3);
    }
}

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    // SAFETY: an all-zero set is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has the size that is passed.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) }, 0);
    // SAFETY: the numbers are below the capacity of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// A child that forked from the middle of all this lives a life of its own, and counts on the refs that it inherited.
fn fork_and_live(account: &Account<Sched>) {
    // SAFETY: the child runs only what this library promises to work there.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(15 * patience()) };
        let body = || {
            for _ in 0..100 {
                if account.r.tryget() {
                    account.r.put();
                }
            }
            let released = Tally::default();
            let r = PercpuRef::new(released.counter());
            together(2, |_| r.get_many(2));
            r.kill().unwrap();
            r.put_many(4);
            r.wait_zero();
            assert_eq!(released.get(), 1);
            Sched::synchronize();
        };
        let ok = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: takes a number; nothing of the parent's runs on the way out.
        unsafe { libc::_exit(if ok { 0 } else { 1 }) };
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child {
            break;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid: {error}");
    }
    assert!(!libc::WIFSIGNALED(status), "a forked child got signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "a forked child failed");
}

/// The portable build stands on the standard library, which knows no fork.
const FORKS: bool = !cfg!(percpu_ref_portable);

fn stress() {
    let backend = Sched::backend();
    if let Ok(expected) = std::env::var("PERCPU_REF_EXPECT_BACKEND") {
        assert_eq!(format!("{backend:?}").to_lowercase(), expected);
    }
    let sched = SCHED.get_or_init(Account::open);
    let plain = Account::<Plain>::open();
    let (sched_readers, plain_readers) = (Torture::new(), Torture::new());
    // Handlers may count where sequences do, only, and not where that is written down.
    let signals = backend == Backend::Rseq && cfg!(not(feature = "track"));
    if signals {
        // SAFETY: an all-zero sigaction is a valid one.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does only what it may.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
    }
    let cpus = cpus();
    let workers = std::env::var("PERCPU_REF_STRESS_WORKERS").ok().and_then(|text| text.parse().ok());
    let workers = workers.unwrap_or_else(|| thread::available_parallelism().map_or(2, usize::from).clamp(4, 32));
    let targets: Mutex<Vec<(libc::pthread_t, libc::pid_t)>> = Mutex::default();
    let over = AtomicBool::new(false);
    let (operations, moves, sent, forks) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let deadline = Instant::now() + Duration::from_secs(seconds());
    let started = Instant::now();
    together(workers + 5, |i| {
        let mut dice = Dice::new(i);
        if i >= workers {
            match i - workers {
                0 => {
                    while !over.load(Relaxed) {
                        sched.kill_and_revive(&mut dice);
                    }
                }
                1 => {
                    while !over.load(Relaxed) {
                        plain.kill_and_revive(&mut dice);
                    }
                }
                2 => {
                    while !over.load(Relaxed) {
                        sched_readers.replace::<Sched>();
                        plain_readers.replace::<Plain>();
                    }
                }
                3 => {
                    while FORKS && !over.load(Relaxed) {
                        fork_and_live(sched);
                        forks.fetch_add(1, Relaxed);
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                _ => {
                    // However slow the machine is, something has to have happened.
                    while Instant::now() < deadline || moves.load(Relaxed) < 100 || (FORKS && forks.load(Relaxed) < 3) {
                        let targets = targets.lock().unwrap();
                        if targets.is_empty() {
                            continue;
                        }
                        let (thread, id) = targets[usize::try_from(dice.below(targets.len() as u64)).unwrap()];
                        // SAFETY: an all-zero set is the empty one.
                        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
                        let cpu = cpus[usize::try_from(dice.below(cpus.len() as u64)).unwrap()];
                        // SAFETY: the number is below the capacity of the set.
                        unsafe { libc::CPU_SET(cpu, &mut set) };
                        // SAFETY: the set has the size that is passed. A CPU that is offline by now is refused.
                        let moved = unsafe { libc::sched_setaffinity(id, size_of_val(&set), &raw const set) } == 0;
                        moves.fetch_add(u64::from(moved), Relaxed);
                        if signals {
                            // SAFETY: the thread runs until `over` is set below.
                            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                            sent.fetch_add(1, Relaxed);
                        }
                        drop(targets);
                        thread::sleep(Duration::from_micros(dice.below(100)));
                    }
                    // Nobody sends any more, so the workers may end.
                    over.store(true, SeqCst);
                }
            }
            return;
        }
        // SAFETY: a thread may always ask who it is.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: as above.
        let id = unsafe { libc::gettid() };
        targets.lock().unwrap().push((this, id));
        let (mut held_sched, mut held_plain, mut done) = (0, 0, 0_u64);
        while !over.load(Relaxed) {
            held_sched += sched.use_it(&mut dice, held_sched);
            held_plain += plain.use_it(&mut dice, held_plain);
            sched_readers.read::<Sched>();
            plain_readers.read::<Plain>();
            done += 4;
            if dice.below(64) == 0 && (sched.r.is_dying() || plain.r.is_dying()) {
                // Let go when the end is near, or no life would ever end.
                sched.r.put_many(usize::try_from(std::mem::take(&mut held_sched)).unwrap());
                plain.r.put_many(usize::try_from(std::mem::take(&mut held_plain)).unwrap());
            }
        }
        sched.held.fetch_add(held_sched, SeqCst);
        plain.held.fetch_add(held_plain, SeqCst);
        operations.fetch_add(done, Relaxed);
    });
    println!(
        "{backend:?}, {workers} workers on {} CPUs for {:.1} s: {} operations, {} moves, {} signals, {} forks",
        cpus.len(),
        started.elapsed().as_secs_f64(),
        operations.load(SeqCst),
        moves.load(SeqCst),
        sent.load(SeqCst),
        forks.load(SeqCst)
    );
    sched.close();
    plain.close();
    sched_readers.close("sched sections");
    plain_readers.close("plain sections");
    assert!(moves.load(SeqCst) > 0 && (forks.load(SeqCst) > 0) == FORKS);
    assert!(!signals || HANDLED.load(SeqCst) > 0);
}

#[test]
fn the_books_balance_when_everything_happens_at_once() {
    bounded_by(Duration::from_secs(seconds()) * 2 + Duration::from_secs(60) * patience(), stress);
}
