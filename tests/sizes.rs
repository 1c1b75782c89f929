//! What the types take, with and without tracking.

use percpu_ref::rcu::{Plain, Sched};
use percpu_ref::{Drain, Frozen, Gate, Owner, Pass, PercpuRef, RcuCell, Ref, Shared, Weak};

const WORD: usize = size_of::<usize>();

#[test]
fn handles_on_an_object_are_one_word() {
    assert_eq!([size_of::<Owner<String>>(), size_of::<Option<Owner<String, Plain>>>()], [WORD; 2]);
    assert_eq!([size_of::<Shared<String>>(), size_of::<Option<Shared<String, Plain>>>()], [WORD; 2]);
    assert_eq!([size_of::<Weak<String>>(), size_of::<RcuCell<String>>()], [WORD; 2]);
    assert_eq!([size_of::<PercpuRef>(), size_of::<Option<PercpuRef<Plain>>>()], [WORD; 2]);
    assert_eq!([size_of::<Gate>(), size_of::<Option<Frozen<'_, Plain>>>()], [WORD; 2]);
    assert_eq!(size_of::<Drain<[u64; 100]>>(), 2 * WORD);
}

#[test]
#[cfg(not(feature = "track"))]
fn without_tracking_nothing_is_kept() {
    assert_eq!([size_of::<Ref<'_, Sched>>(), size_of::<Option<Pass<'_, Sched>>>()], [WORD; 2]);
    assert_eq!([size_of::<Shared<[u8]>>(), size_of::<Shared<dyn Send + Sync>>()], [2 * WORD; 2]);
    // What it is about, a count, flags and a moment.
    type Name = Option<std::borrow::Cow<'static, str>>;
    type Kept = ((&'static str, Name), u64, [bool; 4], Option<std::time::Instant>);
    assert_eq!(size_of::<percpu_ref::Outstanding>(), size_of::<Kept>());
    assert_eq!(size_of::<percpu_ref::page_pool::Page>(), WORD);
}

#[test]
#[cfg(feature = "track")]
fn with_tracking_a_guard_keeps_its_entry() {
    assert_eq!([size_of::<Ref<'_, Sched>>(), size_of::<Pass<'_, Sched>>()], [WORD + size_of::<u64>(); 2]);
    // The rest is behind the one pointer.
    assert_eq!([size_of::<Shared<[u8]>>(), size_of::<Shared<dyn Send + Sync>>()], [WORD; 2]);
}
