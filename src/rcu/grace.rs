//! One grace period for everybody who waits at the same time.
//!
//! The kernel serves membarrier calls one by one, so sixteen threads that each make their own wait for sixteen. But a
//! grace period that *starts* after somebody began to wait serves him, whoever runs it. So the first to come runs one;
//! those who come meanwhile wait for the next, which one of them runs for all. Nobody waits for more than two.
//!
//! After the grace-period sequence numbers of Linux, kernel/rcu/tree.c.

use super::stats::GraceStats;
use crate::sync::{Condvar, Mutex, PATIENCE, now, yield_now};
use std::time::Duration;

/// Where the sharing of one kind of grace period is kept.
pub(super) struct Grace {
    pub(super) state: Mutex<State>,
    pub(super) ended: Condvar,
}

/// Grace periods are numbered from 1 on.
#[derive(Default)]
pub(super) struct State {
    started: u64,
    completed: u64,
    /// Somebody runs number `started` now.
    running: bool,
    /// Waits that have ended.
    waits: u64,
    longest: Duration,
}

impl State {
    pub(super) const fn new() -> Self {
        Self { started: 0, completed: 0, running: false, waits: 0, longest: Duration::ZERO }
    }

    /// In a forked child: whoever was running one is gone.
    pub(super) fn forget_running(&mut self) {
        self.running = false;
    }
}

impl Grace {
    /// What its grace periods have come to, the callbacks and barriers left out.
    pub(super) fn stats(&self) -> GraceStats {
        let State { completed, waits, longest, .. } = *self.state.lock();
        // Whoever runs one is served by it.
        GraceStats {
            grace_periods: completed,
            waits,
            shared: waits.saturating_sub(completed),
            longest_wait: longest,
            ..GraceStats::default()
        }
    }

    /// Returns after a grace period that started after the call; `run` is one, to be run here if nobody else does.
    pub(super) fn wait(&self, run: impl Fn()) {
        let began = now();
        let mut state = self.state.lock();
        // The one under way may have started before the caller made its change: only the next one will do.
        let wanted = state.started + 1;
        while state.completed < wanted {
            if state.running {
                // It takes microseconds, and so does falling asleep and being woken: let others run first.
                for _ in 0..PATIENCE {
                    drop(state);
                    yield_now();
                    state = self.state.lock();
                    if !state.running || state.completed >= wanted {
                        break;
                    }
                }
                if state.running && state.completed < wanted {
                    state = self.ended.wait(state);
                }
                continue;
            }
            state.started += 1;
            state.running = true;
            let number = state.started;
            drop(state);
            let over = Over(self);
            run();
            state = self.state.lock();
            state.completed = number;
            drop(state);
            drop(over);
            state = self.state.lock();
        }
        state.waits += 1;
        state.longest = state.longest.max(began.map_or(Duration::ZERO, |began| began.elapsed()));
    }
}

/// Lets somebody else try, if running one panics too.
struct Over<'a>(&'a Grace);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = false;
        self.0.ended.notify_all();
    }
}
