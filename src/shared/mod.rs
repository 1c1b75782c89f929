//! Smart pointers: an object, its count and its teardown in one.
//!
//! | file | concept |
//! |---|---|
//! | [`handle`] | `Owner`, `Shared`, `Weak`: who holds what |
//! | [`block`] | the one allocation, and who keeps it |
//! | [`drain`] | waiting for the last holder |
//! | [`cell`] | `RcuCell`: a value that is replaced while it is read |
//! | [`slot`] | how a reader gets hold of what the cell has now |
//! | [`pointer`] | `Shared` as an element of a ring |
//!
//! Unsafe code is in `block`, `slot` and `pointer` only.

mod block;
mod cell;
pub(crate) mod drain;
mod handle;
mod pointer;
mod slot;

pub use cell::RcuCell;
pub use drain::Drain;
pub use handle::{Owner, Shared, Weak};
