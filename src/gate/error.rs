//! What can be wrong with a call.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

/// The gate has been closed: nobody gets in any more.
///
/// # Examples
/// ```
/// use percpu_ref::{Closed, Gate};
///
/// let gate = Gate::new();
/// gate.close();
/// assert_eq!(gate.enter_wait().unwrap_err(), Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the gate has been closed, and nobody gets in any more")
    }
}

impl Error for Closed {}
