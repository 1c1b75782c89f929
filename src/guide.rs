//! The handbook: pages by task, each compiled with the crate.
//!
//! The same pages stand in `docs/guide`.

#[doc = include_str!("../docs/guide/which-call-when.md")]
pub mod which_call_when {}

#[doc = include_str!("../docs/guide/choose-a-flavour.md")]
pub mod choose_a_flavour {}

#[doc = include_str!("../docs/guide/limits.md")]
pub mod limits {}

#[doc = include_str!("../docs/guide/from-arc-to-shared.md")]
pub mod from_arc_to_shared {}

#[doc = include_str!("../docs/guide/shutting-down.md")]
pub mod shutting_down {}

#[doc = include_str!("../docs/guide/recycle-buffers.md")]
pub mod recycle_buffers {}
