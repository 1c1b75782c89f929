//! How a rare waiter waits for something that nobody announces.

use std::time::Duration;

/// Spins a little, then yields, then sleeps for longer and longer, up to a millisecond.
#[derive(Default)]
pub(crate) struct Backoff {
    step: u32,
}

impl Backoff {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 20;

    pub(crate) fn snooze(&mut self) {
        if self.step < Self::SPINS {
            for _ in 0..1 << self.step {
                std::hint::spin_loop();
            }
        } else if self.step < Self::YIELDS {
            std::thread::yield_now();
        } else {
            let doublings = (self.step - Self::YIELDS).min(5);
            std::thread::sleep(Duration::from_micros(32 << doublings));
        }
        self.step = self.step.saturating_add(1);
    }

    /// The wait has become a long one: the next snooze sleeps.
    pub(crate) fn is_asleep(&self) -> bool {
        self.step >= Self::YIELDS
    }
}
