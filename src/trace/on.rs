//! With the feature: to whatever subscriber the program has.
#![forbid(unsafe_code)]

use super::{Name, Severity, Step};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::Level;

/// Whether anybody could be told.
pub(crate) const ON: bool = true;

const TARGET: &str = "percpu_ref";

/// An event about a ref; the name is asked for only if somebody listens.
#[cold]
pub(crate) fn emit(step: Step, flavor: &'static str, name: impl FnOnce() -> Name) {
    contain(|| {
        if !tracing::enabled!(target: TARGET, Level::DEBUG) {
            return;
        }
        let name = name();
        let name = name.as_deref().unwrap_or_default();
        match step {
            Step::Kill => tracing::debug!(target: TARGET, name, flavor, "kill"),
            Step::Confirm => tracing::debug!(target: TARGET, name, flavor, "confirm"),
            Step::Release => tracing::debug!(target: TARGET, name, flavor, "release"),
            Step::ToAtomic => tracing::debug!(target: TARGET, name, flavor, mode = "atomic", "switch"),
            Step::ToPercpu => tracing::debug!(target: TARGET, name, flavor, mode = "percpu", "switch"),
            Step::Resurrect => tracing::debug!(target: TARGET, name, flavor, "resurrect"),
            Step::Reinit => tracing::debug!(target: TARGET, name, flavor, "reinit"),
        }
    });
}

/// An event for a report that the program has no hook for. False: the program has no subscriber either.
pub(crate) fn report(severity: Severity, name: Option<&str>, text: &dyn Display) -> bool {
    if !tracing::dispatcher::has_been_set() {
        return false;
    }
    let name = name.unwrap_or_default();
    contain(|| match severity {
        Severity::Error => tracing::error!(target: TARGET, name, "{text}"),
        Severity::Warning => tracing::warn!(target: TARGET, name, "{text}"),
    });
    true
}

/// A subscriber that panics must not be the end of a switch.
fn contain(tell: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(tell)) {
        std::mem::forget(payload);
    }
}
