//! A case: one thing to measure, and who does it. `versus` compares them round by round, criterion follows each over time.

use std::time::Duration;

/// How long so many elements take.
pub(crate) type Run = Box<dyn FnMut(u64) -> Duration>;

/// One thing to measure, and who does it.
pub(crate) struct Case {
    /// What is done.
    pub(crate) name: &'static str,
    /// By whom; ours come first.
    pub(crate) runs: Vec<(&'static str, Run)>,
}
