//! One trait for all that can count the references of an index, so that all do the same job.

use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

/// A count that can be killed.
pub(crate) trait Counted: Send + Sync + 'static {
    /// What proves that a reference is held.
    type Token;

    fn new(release: impl Fn() + Send + Sync + 'static) -> Self;
    /// Takes another reference.
    fn get(&self, held: &Self::Token) -> Self::Token;
    fn put(&self, held: Self::Token);
    /// Takes a reference unless none is left.
    fn tryget(&self) -> Option<Self::Token>;
    /// Takes a reference unless the count has been killed.
    fn tryget_live(&self) -> Option<Self::Token>;
    /// As `tryget_live`, for the length of `f`.
    fn enter<R>(&self, f: impl FnOnce() -> R) -> Option<R>;
    /// Ends the count: from `confirm` on nobody gets in.
    fn kill_and_confirm(&self, confirm: impl FnOnce() + Send + 'static);
    /// Blocks until `release` has returned.
    fn wait_zero(&self);
}

/// A [`PercpuRef`] of either flavour needs no token: it counts, and the books of the job prove the rest.
impl<F: Flavor> Counted for PercpuRef<F> {
    type Token = ();

    fn new(release: impl Fn() + Send + Sync + 'static) -> Self {
        PercpuRef::builder().flavor(F::default()).name("index").build(release)
    }

    #[inline]
    fn get(&self, (): &()) {
        PercpuRef::get(self);
    }

    #[inline]
    fn put(&self, (): ()) {
        PercpuRef::put(self);
    }

    #[inline]
    fn tryget(&self) -> Option<()> {
        PercpuRef::tryget(self).then_some(())
    }

    #[inline]
    fn tryget_live(&self) -> Option<()> {
        PercpuRef::tryget_live(self).then_some(())
    }

    #[inline]
    fn enter<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let _inside = PercpuRef::enter(self)?;
        Some(f())
    }

    fn kill_and_confirm(&self, confirm: impl FnOnce() + Send + 'static) {
        PercpuRef::kill_and_confirm(self, confirm).expect("each index is killed once");
    }

    fn wait_zero(&self) {
        PercpuRef::wait_zero(self);
    }
}

/// What programs do without this crate: the references are clones of an `Arc`, newcomers upgrade a `Weak`, and a flag
/// that everybody looks at turns them away.
pub(crate) struct ArcCount {
    first: Mutex<Option<Arc<Life>>>,
    newcomers: Weak<Life>,
    dying: AtomicBool,
    released: Arc<(Mutex<bool>, Condvar)>,
}

/// Its drop is the release.
pub(crate) struct Life {
    release: Box<dyn Fn() + Send + Sync>,
    released: Arc<(Mutex<bool>, Condvar)>,
}

impl Drop for Life {
    fn drop(&mut self) {
        (self.release)();
        *self.released.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.released.1.notify_all();
    }
}

impl Counted for ArcCount {
    type Token = Arc<Life>;

    fn new(release: impl Fn() + Send + Sync + 'static) -> Self {
        let released = Arc::default();
        let first = Arc::new(Life { release: Box::new(release), released: Arc::clone(&released) });
        let newcomers = Arc::downgrade(&first);
        Self { first: Mutex::new(Some(first)), newcomers, dying: AtomicBool::new(false), released }
    }

    #[inline]
    fn get(&self, held: &Arc<Life>) -> Arc<Life> {
        Arc::clone(held)
    }

    #[inline]
    fn put(&self, held: Arc<Life>) {
        drop(held);
    }

    #[inline]
    fn tryget(&self) -> Option<Arc<Life>> {
        self.newcomers.upgrade()
    }

    #[inline]
    fn tryget_live(&self) -> Option<Arc<Life>> {
        if self.dying.load(Ordering::SeqCst) { None } else { self.newcomers.upgrade() }
    }

    #[inline]
    fn enter<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let _inside = self.tryget_live()?;
        Some(f())
    }

    fn kill_and_confirm(&self, confirm: impl FnOnce() + Send + 'static) {
        self.dying.store(true, Ordering::SeqCst);
        confirm();
        drop(self.first.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn wait_zero(&self) {
        let released = self.released.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.released.1.wait_while(released, |released| !*released);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The counts that the job is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// `PercpuRef<Plain>`: an epoch pin around each get and put
    Plain,
    /// `PercpuRef<Sched>`: no fence, no locked instruction
    Sched,
    /// `std::sync::Arc` with a flag for newcomers
    Arc,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Sched, Self::Arc];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "Plain",
            Self::Sched => "Sched",
            Self::Arc => "Arc",
        }
    }

    pub(crate) fn backend(self) -> String {
        match self {
            Self::Plain => format!("{:?}", Plain::backend()),
            Self::Sched => format!("{:?}", Sched::backend()),
            Self::Arc => "-".into(),
        }
    }
}
