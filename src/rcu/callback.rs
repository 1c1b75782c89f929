//! The callback threads: work that runs after a grace period, in no caller.
//!
//! Each kind of grace period has a queue, and a queue has one worker, started when the first job comes. The worker takes
//! everything that waits, waits for *one* grace period, and runs the jobs in order; so a hundred thousand kills share a
//! barrier. When there is nothing to do it sleeps.
//!
//! # Who works
//!
//! Being the worker of a queue is a role, not a thread. A job may wait for something that needs the queue, such as
//! another ref's release: before it blocks, [`about_to_block`] takes the role away from its thread and gives it to
//! a new one, which goes on with the next job. The old thread ends with its job. If the system has no thread to give, the
//! role falls to whoever brings the next job, or waits, until nothing is left to do; inside a section, where a grace
//! period could not end, it falls to the guard that ends the section.
//!
//! | role of the queue | held by |
//! |---|---|
//! | 0 | nobody |
//! | any other number | the thread whose `ROLES` entry for this queue has that number |
//!
//! A job stays in the queue until it is started, so that a forked child, which has no worker, still has the jobs.

use super::GraceStats;
use crate::report::{self, Stall, Wait, Watch};
use crate::sync::{Condvar, Mutex, MutexGuard, local, spawn};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

type Work = Box<dyn FnOnce() + Send>;

struct Job {
    /// The number of a `call`; a kill has none.
    call: Option<u64>,
    work: Work,
}

/// Jobs that wait for one kind of grace period.
pub(super) struct Queue {
    /// Names the worker's thread, and its entry in `ROLES`.
    pub(super) kind: QueueKind,
    /// Waits for a grace period.
    pub(super) wait: fn(),
    /// Whether this thread is in a section that such a wait would wait for.
    pub(super) is_in_section: fn() -> bool,
    /// Has the outermost guard of this thread call [`Queue::kick`].
    pub(super) leave_to_guard: fn(),
    pub(super) state: Mutex<State>,
    /// There is work, or the role was taken away.
    pub(super) work: Condvar,
    /// A call has returned.
    pub(super) returned: Condvar,
}

/// Which queue.
#[derive(Clone, Copy)]
pub(super) enum QueueKind {
    Plain,
    Sched,
    Rseq,
}

const KINDS: usize = 3;

/// What a [`Queue`] keeps under its lock. Nothing else is locked under it, and no job runs under it.
#[derive(Default)]
pub(super) struct State {
    /// Jobs that need a grace period, in order.
    waiting: Vec<Job>,
    /// How many have left `waiting`.
    covered: u64,
    /// Jobs that have had theirs.
    ready: VecDeque<Job>,
    /// The role: who works.
    worker: u64,
    /// The worker sleeps: to wake it is a system call, which most jobs of a batch can do without.
    asleep: bool,
    /// How many wait in `barrier`. In a forked child, those of lost threads are among them: it is told of calls in vain.
    barriers: usize,
    last_worker: u64,
    last_call: u64,
    /// Jobs that have come, and those that have been done.
    queued: u64,
    done: u64,
    /// Calls that have not returned.
    unfinished: BTreeSet<u64>,
    /// Calls that have been started; a subset of `unfinished`.
    started: BTreeSet<u64>,
}

local! {
    /// The roles of this thread.
    static ROLES: [Cell<u64>; KINDS] = [const { Cell::new(0) }; KINDS];
}
local! {
    /// How many `call`s are running on this thread, one inside the other.
    static CALLS: Cell<usize> = Cell::new(0);
}

/// Whether a function given to `call` is running on this thread.
pub(crate) fn is_in_call() -> bool {
    CALLS.with(Cell::get) > 0
}

impl State {
    pub(super) const fn new() -> Self {
        Self {
            waiting: Vec::new(),
            covered: 0,
            ready: VecDeque::new(),
            worker: 0,
            asleep: false,
            barriers: 0,
            last_worker: 0,
            last_call: 0,
            queued: 0,
            done: 0,
            unfinished: BTreeSet::new(),
            started: BTreeSet::new(),
        }
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.ready.is_empty()
    }

    /// In a forked child: there is no worker, and the jobs that were running have gone with theirs.
    pub(super) fn forget_workers(&mut self) {
        self.worker = 0;
        self.asleep = false;
        for call in std::mem::take(&mut self.started) {
            self.unfinished.remove(&call);
        }
    }
}

impl Queue {
    /// Runs `work` after a grace period, as a `call` that `barrier` waits for.
    pub(super) fn call(&'static self, work: Work) {
        self.push(work, true, true);
    }

    /// Runs `work` after a grace period.
    pub(super) fn after_grace_period(&'static self, work: Work) {
        self.push(work, false, true);
    }

    /// Runs `work` as soon as may be.
    pub(super) fn soon(&'static self, work: Work) {
        self.push(work, false, false);
    }

    fn push(&'static self, work: Work, is_call: bool, needs_grace_period: bool) {
        let mut state = self.state.lock();
        let call = is_call.then(|| {
            state.last_call += 1;
            state.last_call
        });
        state.unfinished.extend(call);
        state.queued += 1;
        let job = Job { call, work };
        if needs_grace_period {
            state.waiting.push(job);
        } else {
            state.ready.push_back(job);
        }
        self.find_worker(state);
    }

    /// Finds somebody to work, if there is work and nobody does it.
    pub(super) fn kick(&'static self) {
        self.find_worker(self.state.lock());
    }

    fn find_worker(&'static self, mut state: MutexGuard<'static, State>) {
        if !state.has_work() {
            return;
        }
        if state.worker != 0 {
            if std::mem::take(&mut state.asleep) {
                self.work.notify_all();
            }
            return;
        }
        state.last_worker += 1;
        let role = state.last_worker;
        state.worker = role;
        drop(state);
        if spawn(self.thread_name(), move || self.work(role, false)) {
            return;
        }
        if (self.is_in_section)() {
            self.state.lock().worker = 0;
            (self.leave_to_guard)();
        } else {
            self.work(role, true);
        }
    }

    fn thread_name(&self) -> &'static str {
        match self.kind {
            QueueKind::Plain => "percpu-ref plain",
            QueueKind::Sched => "percpu-ref sched",
            QueueKind::Rseq => "percpu-ref rseq",
        }
    }

    /// Works until the role is somebody else's or, with `until_idle`, nothing is left to do.
    fn work(&'static self, role: u64, until_idle: bool) {
        let outer = ROLES.with(|roles| roles[self.kind as usize].replace(role));
        let mut state = self.state.lock();
        while state.worker == role {
            if let Some(job) = state.ready.pop_front() {
                state.started.extend(job.call);
                drop(state);
                run(job.call.is_some(), job.work);
                state = self.state.lock();
                state.done += 1;
                if let Some(call) = job.call {
                    state.started.remove(&call);
                    state.unfinished.remove(&call);
                    if state.barriers > 0 {
                        self.returned.notify_all();
                    }
                }
            } else if !state.waiting.is_empty() {
                let until = state.covered + state.waiting.len() as u64;
                drop(state);
                // Code of the program may run in there, a report hook or what it has deferred in crossbeam's collector. If that
                // waits, the role goes to another thread, which may be through with some of these jobs by now.
                (self.wait)();
                state = self.state.lock();
                let State { waiting, covered, ready, .. } = &mut *state;
                let now = usize::try_from(until.saturating_sub(*covered)).expect("they are in `waiting`");
                ready.extend(waiting.drain(..now));
                *covered += now as u64;
            } else if until_idle {
                state.worker = 0;
            } else {
                state.asleep = true;
                state = self.work.wait(state);
                state.asleep = false;
            }
        }
        drop(state);
        ROLES.with(|roles| roles[self.kind as usize].set(outer));
    }

    /// Gives this thread's role to another one, if it has it.
    fn hand_over(&'static self) {
        let role = ROLES.with(|roles| roles[self.kind as usize].get());
        if role == 0 {
            return;
        }
        let mut state = self.state.lock();
        if state.worker == role {
            state.worker = 0;
            self.find_worker(state);
        }
    }

    /// Waits until every `call` made before has returned.
    pub(super) fn barrier(&'static self) {
        self.kick();
        let mut state = self.state.lock();
        let last = state.last_call;
        state.barriers += 1;
        let mut watch = Watch::start();
        while state.unfinished.first().is_some_and(|call| *call <= last) {
            if let Some(waited) = watch.overdue() {
                let callbacks = state.unfinished.range(..=last).count();
                drop(state);
                Stall { callbacks, ..Stall::new(Wait::Callbacks, self.flavor(), waited) }.send(None);
                // If the hook has forked and this is the child, nobody works here yet.
                self.kick();
                state = self.state.lock();
                continue;
            }
            state = self.returned.wait_until(state, watch.look_at(None));
        }
        state.barriers -= 1;
    }

    /// What its grace periods and callbacks have come to.
    pub(super) fn stats(&self, grace: GraceStats) -> GraceStats {
        let State { queued, done, .. } = *self.state.lock();
        GraceStats { callbacks_queued: queued, callbacks_run: done, ..grace }
    }

    fn flavor(&self) -> &'static str {
        match self.kind {
            QueueKind::Plain => "Plain",
            QueueKind::Sched | QueueKind::Rseq => "Sched",
        }
    }
}

/// Runs a job, contains its panic.
fn run(is_call: bool, work: Work) {
    let depth = CALLS.with(Cell::get);
    CALLS.with(|calls| calls.set(depth + usize::from(is_call)));
    report::contain(|| None, work);
    CALLS.with(|calls| calls.set(depth));
}

/// To be called before a wait that a job may make: the queues go on without this thread.
pub(crate) fn about_to_block() {
    super::queues().into_iter().for_each(Queue::hand_over);
}
