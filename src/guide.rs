//! The handbook: pages by task, each compiled with the crate.
//!
//! The same pages stand in `docs/guide`, and the last one in `docs`.

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
#[doc = include_str!("../docs/guide/find-a-leak.md")]
pub mod find_a_leak {}

#[doc = include_str!("../docs/guide/freeze-and-thaw.md")]
pub mod freeze_and_thaw {}

#[doc = include_str!("../docs/guide/reload.md")]
pub mod reload {}

#[doc = include_str!("../docs/guide/without-a-thread.md")]
pub mod without_a_thread {}

#[doc = include_str!("../docs/guide/signal-handlers.md")]
pub mod signal_handlers {}

#[doc = include_str!("../docs/guide/after-fork.md")]
pub mod after_fork {}

#[doc = include_str!("../docs/porting.md")]
pub mod porting {}
