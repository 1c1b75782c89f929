//! Events for the tracing crate: the feature `tracing`.
//!
//! Each step of a ref's life but the gets and puts is an event with the ref's name, emitted under no lock and in no section
//! of ours, because a subscriber is code of the program. Without the feature there is nothing here.

use std::borrow::Cow;

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{ON, emit, report};
#[cfg(feature = "tracing")]
pub(crate) use on::{ON, emit, report};

/// A step of a ref's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A kill has begun.
    Kill,
    /// No `tryget_live` succeeds any more, and the confirms have run.
    Confirm,
    /// `release` has returned.
    Release,
    /// The count is one atomic now.
    ToAtomic,
    /// The count is per CPU now.
    ToPercpu,
    /// A kill was taken back.
    Resurrect,
    /// A new life has begun.
    Reinit,
}

/// How bad what is reported is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Something is wrong for good.
    Error,
    /// Something takes long.
    Warning,
}

/// The name of a ref.
pub(crate) type Name = Option<Cow<'static, str>>;
