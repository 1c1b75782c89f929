//! The handles: an owner, those it shares with, and those who only know where the object was.
#![forbid(unsafe_code)]

use super::block::{Place, Root, Strong};
use super::drain::Drain;
use crate::percpu_ref::{AlreadyDying, Outstanding};
use crate::rcu::{Flavor, Sched};
use crate::track::Origin;
use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The one who answers for an object: hands out [`Shared`] handles on it, and one day takes it back.
///
/// An `Arc` has no owner: it ends when the last clone happens to go, and whoever wants to end it earlier builds a counter
/// beside it. An `Owner` ends its object on purpose: [`kill`](Self::kill) lets nobody new in, the handles that are out
/// go on working, and [`shutdown`](Self::shutdown) gives the object back when the last one is gone.
///
/// The owner is a holder itself: the object lives at least as long as it. Dropping it kills without waiting; then the last
/// holder drops the object. A panic in that drop is contained and [reported](crate::set_report_hook), because the last
/// holder may be anybody, the thread that runs callbacks included. As with `Arc`, an object that holds a `Shared` of
/// itself is never dropped. A drop may still be to come when `main` returns, and is lost then: where it matters, wait for
/// it with [`shutdown`](Self::shutdown).
///
/// An `Owner` has no methods, so that it hides none of the object's: everything is called as `Owner::kill(&owner)`.
///
/// # Cost
///
/// One allocation of the object and about 112 bytes, and 8 bytes for each CPU that can exist. A `Shared` is a pointer to
/// the object; cloning and dropping one costs as much as [`PercpuRef::get`](crate::PercpuRef::get) and `put`.
///
/// # Examples
/// ```
/// use percpu_ref::{Owner, Shared, Weak};
/// use std::thread;
///
/// struct Db(u32);
///
/// let db = Owner::new(Db(7));
/// let a: Shared<Db> = Owner::share(&db);
/// let w: Weak<Db> = Owner::downgrade(&db);
/// let worker = thread::spawn(move || a.0 + w.upgrade().map_or(0, |db| db.0));
/// let db: Db = Owner::shutdown(db).wait(); // when the worker has dropped its handle
/// # worker.join().unwrap();
/// assert_eq!(db.0, 7);
/// ```
pub struct Owner<T: ?Sized, F: Flavor = Sched> {
    root: Root<T, F>,
}

/// A handle on an object: cloning it is a get, dropping it a put, and neither touches memory that other CPUs use.
///
/// It works after the object has been killed too, and can be cloned then.
///
/// # Examples
/// ```
/// use percpu_ref::{Owner, Shared};
///
/// let owner = Owner::new(String::from("shared"));
/// let a = Owner::share(&owner);
/// let b: Shared<String> = a.clone();
/// assert!(Shared::ptr_eq(&a, &b));
/// assert_eq!(b.len(), 6);
/// assert_eq!(size_of::<Option<Shared<String>>>(), size_of::<usize>());
/// ```
///
/// It can go wherever its object may go:
/// ```
/// fn sent<T: Send>() {}
/// sent::<percpu_ref::Shared<String>>();
/// ```
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<percpu_ref::Shared<std::cell::Cell<u8>>>();
/// ```
pub struct Shared<T: ?Sized, F: Flavor = Sched> {
    pub(super) strong: Strong<T, F>,
}

/// A handle that does not keep the object alive: [`upgrade`](Self::upgrade) gives a [`Shared`] until the object is killed.
///
/// After the kill no upgrade succeeds, even while others still hold the object. That is the difference to
/// `std::sync::Weak`, whose upgrades succeed as long as anybody holds on.
///
/// # Examples
/// ```
/// use percpu_ref::{Owner, Weak};
///
/// let owner = Owner::new(1);
/// let weak: Weak<i32> = Owner::downgrade(&owner);
/// assert_eq!(weak.upgrade().as_deref(), Some(&1));
/// Owner::shutdown(owner).wait();
/// assert!(weak.upgrade().is_none());
/// ```
pub struct Weak<T: ?Sized, F: Flavor = Sched> {
    /// `None`: there has never been an object.
    place: Option<Place<T, F>>,
}

impl<T: Send + Sync + 'static> Owner<T> {
    /// Moves the object into a place where it can be shared, with the [`Sched`] flavour.
    ///
    /// # Panics
    /// If there is no memory for the counters.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(vec![1, 2, 3]);
    /// assert_eq!(owner.len(), 3);
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn new(value: T) -> Self {
        Self { root: Root::new(value, Origin::here()) }
    }

    /// As [`new`](Self::new), with a name by which errors and reports tell this object's count from others.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let routes = Owner::with_name(vec!["10.0.0.0/8"], "routes");
    /// assert_eq!(Owner::outstanding(&routes).name(), Some("routes"));
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn with_name(value: T, name: impl Into<Cow<'static, str>>) -> Self {
        Self { root: Root::with_name(value, name.into(), Origin::here()) }
    }
}

impl<T: Send + Sync + 'static, F: Flavor> Owner<T, F> {
    /// Moves the object into a place where it can be shared, counted in sections of the given flavour.
    ///
    /// # Panics
    /// If there is no memory for the counters.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Owner, rcu::Plain};
    ///
    /// let owner: Owner<u8, Plain> = Owner::with_flavor(1, Plain);
    /// assert_eq!(*Owner::share(&owner), 1);
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn with_flavor(value: T, _flavor: F) -> Self {
        Self { root: Root::new(value, Origin::here()) }
    }

    /// Kills, and gives the object back once nobody else holds it.
    ///
    /// # Context
    /// Any thread. Never blocks: the [`Drain`] is what is waited for.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(String::from("back"));
    /// let user = Owner::share(&owner);
    /// let drain = Owner::shutdown(owner);
    /// drop(user);
    /// let back: String = drain.wait();
    /// # assert_eq!(back, "back");
    /// ```
    pub fn shutdown(this: Self) -> Drain<T> {
        Drain::new(this.root.remains())
    }
}

impl<T: ?Sized + Send + Sync + 'static> Owner<T> {
    /// Moves what is in the box into a place where it can be shared: the way to an `Owner` of a slice, a `str` or a trait
    /// object.
    ///
    /// # Panics
    /// If there is no memory for the counters.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Owner, Shared};
    /// use std::fmt::Display;
    ///
    /// let text: Owner<str> = Owner::from_box("hello".into());
    /// assert_eq!(&*text, "hello");
    /// let any: Owner<dyn Display + Send + Sync> = Owner::from_box(Box::new(7));
    /// let shared: Shared<dyn Display + Send + Sync> = Owner::share(&any);
    /// assert_eq!(shared.to_string(), "7");
    /// ```
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn from_box(value: Box<T>) -> Self {
        Self { root: Root::from_box(value, Origin::here()) }
    }
}

impl<T: ?Sized + Send + Sync + 'static, F: Flavor> Owner<T, F> {
    /// A handle for somebody else. It works after a kill, too: the owner itself holds the object.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(5);
    /// let shared = Owner::share(&owner);
    /// std::thread::spawn(move || assert_eq!(*shared, 5)).join().unwrap();
    /// ```
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn share(this: &Self) -> Shared<T, F> {
        Shared { strong: this.root.share(Origin::here()) }
    }

    /// A handle that does not keep the object.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(5);
    /// let weak = Owner::downgrade(&owner);
    /// drop(owner);
    /// # while weak.upgrade().is_some() {}
    /// while weak.upgrade().is_some() {
    ///     std::thread::yield_now(); // the kill is under way, in the callback thread
    /// }
    /// ```
    #[must_use]
    pub fn downgrade(this: &Self) -> Weak<T, F> {
        Weak { place: Some(this.root.place()) }
    }

    /// What is out now: how many references there are, roughly, and with the feature `track`
    /// [who holds them](Outstanding::holders). The owner itself holds two until it is killed, the first one included, and one
    /// afterwards.
    ///
    /// # Context
    /// As [`PercpuRef::estimate`](crate::PercpuRef::estimate).
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(5);
    /// let shared = Owner::share(&owner);
    /// println!("{}", Owner::outstanding(&owner)); // a `Shared` value without a name has not been killed; 2 references are out...
    /// assert_eq!(Owner::outstanding(&owner).count(), 3);
    /// ```
    pub fn outstanding(this: &Self) -> Outstanding {
        this.root.outstanding()
    }

    /// Lets nobody new in: soon no [`Weak::upgrade`] succeeds any more. Handles that are out go on working.
    ///
    /// # Context
    /// Any thread, inside sections and callbacks too. Never blocks: the grace period is waited for elsewhere, as in
    /// [`PercpuRef::kill`](crate::PercpuRef::kill).
    ///
    /// # Errors
    /// [`AlreadyDying`] if it was killed before.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{AlreadyDying, Owner};
    ///
    /// let owner = Owner::new(1);
    /// assert_eq!(Owner::kill(&owner), Ok(()));
    /// assert_eq!(Owner::kill(&owner), Err(AlreadyDying));
    /// assert_eq!(*owner, 1);
    /// ```
    pub fn kill(this: &Self) -> Result<(), AlreadyDying> {
        this.root.kill(None)
    }

    /// As [`kill`](Self::kill), and runs `confirm` when no upgrade succeeds any more, on any thread.
    ///
    /// `confirm` runs once, in the thread that runs callbacks, and before the object is dropped or given back.
    ///
    /// # Errors
    /// [`AlreadyDying`] if it was killed before; `confirm` is dropped then.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    /// use std::sync::mpsc;
    ///
    /// let owner = Owner::new(1);
    /// let weak = Owner::downgrade(&owner);
    /// let (tell, told) = mpsc::channel();
    /// Owner::kill_and_confirm(&owner, move || tell.send(()).unwrap()).unwrap();
    /// told.recv().unwrap();
    /// assert!(weak.upgrade().is_none());
    /// ```
    pub fn kill_and_confirm(this: &Self, confirm: impl FnOnce() + Send + 'static) -> Result<(), AlreadyDying> {
        this.root.kill(Some(Box::new(confirm)))
    }

    /// The object, to be changed, if nobody else can look at it: no [`Shared`] or [`Weak`] was ever made, or the kill has
    /// been confirmed and no `Shared` is left.
    ///
    /// # Ordering
    /// What every holder did before it let go is visible.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let mut owner = Owner::new(1);
    /// *Owner::get_mut(&mut owner).unwrap() += 1;
    /// let shared = Owner::share(&owner);
    /// assert!(Owner::get_mut(&mut owner).is_none());
    /// assert_eq!(*shared, 2);
    /// ```
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.root.get_mut()
    }
}

impl<T: ?Sized, F: Flavor> Shared<T, F> {
    /// Whether both are handles on the same object.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Owner, Shared};
    ///
    /// let (x, y) = (Owner::new(1), Owner::new(1));
    /// assert!(Shared::ptr_eq(&Owner::share(&x), &Owner::share(&x)));
    /// assert!(!Shared::ptr_eq(&Owner::share(&x), &Owner::share(&y)));
    /// ```
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::ptr::addr_eq(this.strong.as_ptr(), other.strong.as_ptr())
    }

    /// A handle that does not keep the object.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Owner, Shared};
    ///
    /// let owner = Owner::new(5);
    /// let shared = Owner::share(&owner);
    /// let weak = Shared::downgrade(&shared);
    /// assert_eq!(weak.upgrade().as_deref(), Some(&5));
    /// ```
    #[must_use]
    pub fn downgrade(this: &Self) -> Weak<T, F> {
        Weak { place: Some(this.strong.place()) }
    }
}

impl<T> Weak<T> {
    /// A handle on no object: it never upgrades.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Weak;
    ///
    /// let none: Weak<String> = Weak::new();
    /// assert!(none.upgrade().is_none());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { place: None }
    }
}

impl<T: ?Sized, F: Flavor> Weak<T, F> {
    /// A [`Shared`] handle, unless the object has been killed.
    ///
    /// `None` is final. `Some` may race with a kill: only once its `confirm` runs does every thread get `None`.
    ///
    /// # Context
    /// As [`PercpuRef::tryget_live`](crate::PercpuRef::tryget_live), which this is.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::Owner;
    ///
    /// let owner = Owner::new(5);
    /// let weak = Owner::downgrade(&owner);
    /// if let Some(shared) = weak.upgrade() {
    ///     assert_eq!(*shared, 5);
    /// }
    /// ```
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "track", track_caller)]
    pub fn upgrade(&self) -> Option<Shared<T, F>> {
        let strong = self.place.as_ref()?.upgrade(Origin::here())?;
        Some(Shared { strong })
    }

    /// Whether both are handles on the same object, or both on none.
    ///
    /// # Examples
    /// ```
    /// use percpu_ref::{Owner, Weak};
    ///
    /// let owner = Owner::new(5);
    /// let weak = Owner::downgrade(&owner);
    /// assert!(weak.ptr_eq(&weak.clone()));
    /// assert!(!weak.ptr_eq(&Weak::new()));
    /// ```
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Some(this), Some(other)) => std::ptr::addr_eq(this.as_ptr(), other.as_ptr()),
            (None, None) => true,
            _ => false,
        }
    }
}

impl<T: ?Sized, F: Flavor> Clone for Shared<T, F> {
    #[inline]
    #[cfg_attr(feature = "track", track_caller)]
    fn clone(&self) -> Self {
        Self { strong: self.strong.share(Origin::here()) }
    }
}

impl<T: ?Sized, F: Flavor> Clone for Weak<T, F> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone() }
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized, F: Flavor> Deref for Owner<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.root
    }
}

impl<T: ?Sized, F: Flavor> Deref for Shared<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.strong
    }
}

/// What users of `Arc` expect: a handle looks, compares and hashes like its object.
macro_rules! like_the_object {
    ($Handle:ident) => {
        impl<T: ?Sized + fmt::Debug, F: Flavor> fmt::Debug for $Handle<T, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display, F: Flavor> fmt::Display for $Handle<T, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized, F: Flavor> fmt::Pointer for $Handle<T, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Pointer::fmt(&std::ptr::from_ref(&**self), f)
            }
        }

        impl<T: ?Sized + PartialEq, F: Flavor> PartialEq for $Handle<T, F> {
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl<T: ?Sized + Eq, F: Flavor> Eq for $Handle<T, F> {}

        impl<T: ?Sized + PartialOrd, F: Flavor> PartialOrd for $Handle<T, F> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                (**self).partial_cmp(&**other)
            }
        }

        impl<T: ?Sized + Ord, F: Flavor> Ord for $Handle<T, F> {
            fn cmp(&self, other: &Self) -> Ordering {
                (**self).cmp(&**other)
            }
        }

        impl<T: ?Sized + Hash, F: Flavor> Hash for $Handle<T, F> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl<T: ?Sized, F: Flavor> AsRef<T> for $Handle<T, F> {
            fn as_ref(&self) -> &T {
                self
            }
        }

        impl<T: ?Sized, F: Flavor> Borrow<T> for $Handle<T, F> {
            fn borrow(&self) -> &T {
                self
            }
        }
    };
}
like_the_object!(Owner);
like_the_object!(Shared);

impl<T: ?Sized, F: Flavor> fmt::Debug for Weak<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

// A panic between two steps of theirs leaves handles whole. What it can leave broken is the object, and that others can
// only see through what makes a `T: Sync` changeable: its own lock or atomic.
impl<T: ?Sized, F: Flavor> UnwindSafe for Owner<T, F> {}
impl<T: ?Sized, F: Flavor> RefUnwindSafe for Owner<T, F> {}
impl<T: ?Sized, F: Flavor> UnwindSafe for Shared<T, F> {}
impl<T: ?Sized, F: Flavor> RefUnwindSafe for Shared<T, F> {}
impl<T: ?Sized, F: Flavor> UnwindSafe for Weak<T, F> {}
impl<T: ?Sized, F: Flavor> RefUnwindSafe for Weak<T, F> {}

impl<T: Default + Send + Sync + 'static> Default for Owner<T> {
    #[cfg_attr(feature = "track", track_caller)]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for Owner<T> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + Send + Sync + 'static> From<Box<T>> for Owner<T> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(value: Box<T>) -> Self {
        Self::from_box(value)
    }
}

impl From<&str> for Owner<str> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(text: &str) -> Self {
        Self::from_box(text.into())
    }
}

impl From<String> for Owner<str> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(text: String) -> Self {
        Self::from_box(text.into_boxed_str())
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for Owner<[T]> {
    #[cfg_attr(feature = "track", track_caller)]
    fn from(values: Vec<T>) -> Self {
        Self::from_box(values.into_boxed_slice())
    }
}
