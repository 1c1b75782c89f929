//! Who holds a reference, and since when: the feature `track`.
//!
//! A leaked reference is found out long after the mistake, by somebody else, as a wait that does not end. With the
//! feature, each reference is written down when it is taken, with its place in the program, and crossed out when it is put; so
//! whoever waits can say who is missing. Without the feature nothing of that is there: the types below have no size, what they
//! do is nothing, and no function is told where it was called from.
//!
//! | taken by | is crossed out by |
//! |---|---|
//! | a guard or handle: `enter`, `share`, `clone`, `upgrade`, `load` | that very handle, wherever it is dropped |
//! | hand: `get`, `get_many`, `tryget`... | a rule, because a `put` does not say which one it puts: [`Holders::put`] |
//!
//! Writing down comes after the count went up, and crossing out before it goes down. So what is listed is held for certain,
//! and of what is held only a call that is under way right now can be missing.
//!
//! | file | concept |
//! |---|---|
//! | [`holding`] | what is told about holders |
//! | `on` | the books |
//! | `sections` | the same for read-side critical sections |
//! | `tagged` | a pointer and its entry in the books, as one word |
//! | `off` | the same names, and nothing behind them |
//!
//! This is the only place that asks for the feature; the attribute `track_caller`, which has to stand at each function
//! that takes a reference for somebody, is the exception.

mod holding;
#[cfg(not(feature = "track"))]
mod off;
#[cfg(feature = "track")]
mod on;
#[cfg(feature = "track")]
mod sections;
#[cfg(feature = "track")]
mod tagged;

#[cfg(not(feature = "track"))]
use off as chosen;
#[cfg(feature = "track")]
use on as chosen;

pub(crate) use chosen::{Holder, Holders, List, Origin, Section, Tagged};
pub use holding::{HolderKind, Holding};
