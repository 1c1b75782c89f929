//! Without the feature: nothing is written down, and nothing takes room.

use super::{HolderKind, Holding};
use crate::sync::Identity;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

/// Where a reference is taken.
#[derive(Clone, Copy)]
pub(crate) struct Origin;

impl Origin {
    #[inline(always)]
    pub(crate) const fn here() -> Self {
        Self
    }
}

/// An entry in the books.
#[derive(Clone, Copy)]
pub(crate) struct Holder;

/// The books of one count.
#[derive(Default)]
pub(crate) struct Holders(());

impl Holders {
    #[inline(always)]
    pub(crate) fn hold(&self, _kind: HolderKind, _origin: Origin) -> Holder {
        Holder
    }

    #[inline(always)]
    pub(crate) fn let_go(&self, _holder: Holder) {}

    #[inline(always)]
    pub(crate) fn get(&self, _n: usize, _origin: Origin) {}

    #[inline(always)]
    pub(crate) fn put(&self, _n: usize) {}

    #[inline(always)]
    pub(crate) fn hold_page(&self, _address: usize, _origin: Origin) {}

    #[inline(always)]
    pub(crate) fn let_go_page(&self, _address: usize) {}

    #[inline(always)]
    pub(crate) fn list(&self) -> List {
        List(())
    }
}

/// Who holds references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List(());

impl List {
    pub(crate) fn holders(&self) -> &[Holding] {
        &[]
    }

    pub(crate) fn unmatched_puts(&self) -> u64 {
        0
    }

    /// What to say of the holders of so many references.
    pub(crate) fn told(&self, references: u64) -> impl fmt::Display {
        fmt::from_fn(move |f| match references {
            0 => Ok(()),
            _ => f.write_str("\n  (the crate's feature `track` tells who took them, and where)"),
        })
    }
}

/// An open section's entry.
#[derive(Clone, Copy)]
pub(crate) struct Section;

impl Section {
    #[inline(always)]
    pub(crate) fn begin(_flavor: &'static str, _origin: Origin) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn end(self) {}

    /// Nobody knows.
    pub(crate) fn open_for(
        _flavor: &str,
        _limit: Duration,
    ) -> Vec<(Identity, Duration, Option<&'static Location<'static>>)> {
        Vec::new()
    }
}

/// A pointer, and who holds what it points to.
#[repr(transparent)]
pub(crate) struct Tagged<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> Tagged<T> {
    #[inline(always)]
    pub(crate) fn new(pointer: NonNull<T>, _holder: Holder) -> Self {
        Self(pointer)
    }

    #[inline(always)]
    pub(crate) fn pointer(&self) -> NonNull<T> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn holder(&self) -> Holder {
        Holder
    }
}

impl<T> Tagged<T> {
    /// One word that stands for it.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<()> {
        self.0.cast()
    }

    /// # Safety
    /// 1. `raw` comes from `into_raw` of this type, and at most one of those made of it is dropped.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.cast())
    }
}

// Nothing is stored, so no type that has one of these inside is larger for it.
const _: () = {
    assert!(size_of::<(Origin, Holder, Holders, List, Section)>() == 0);
    assert!(size_of::<Tagged<[u8]>>() == size_of::<*const [u8]>());
};
