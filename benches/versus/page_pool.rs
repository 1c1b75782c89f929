//! Pools of 4 KiB pages, side by side with their rivals: what one page costs, allocated, touched and freed.

use crate::case::{Case, Run};
use percpu_ref::page_pool::{Allocator, Page, PagePool, Recycler};
use percpu_ref::ptr_ring::{Pointer, spsc};
use std::ffi::CStr;
use std::hint::{black_box, spin_loop};
use std::ptr::NonNull;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

const SIZE: usize = 4096;

/// What the rivals hand out: aligned as ours, because the first words of such pages compete for one set of the cache.
#[repr(align(4096))]
struct Bytes([u8; SIZE]);

/// Writes the first word of a page, so that it has to be there.
#[inline(always)]
fn touch(start: *mut u8, i: u64) {
    // SAFETY: every caller has a page, which is aligned to a word, to itself.
    unsafe { start.cast::<u64>().write_volatile(i) };
}

/// Who allocates and frees on one thread.
trait Alone: 'static {
    type Item: 'static;
    fn new() -> Self;
    fn alloc(&mut self) -> Self::Item;
    fn start(item: &mut Self::Item) -> *mut u8;
    fn free(&mut self, item: Self::Item);
}

/// Who frees on another thread than it allocates on. Items travel as pointers.
trait Across: Alone<Item: Pointer + Send> {
    type Back: Send + 'static;
    fn back(&self) -> Self::Back;
    fn free_there(back: &mut Self::Back, item: Self::Item);
    fn flush(_back: &mut Self::Back) {}
}

/// A page of another pool than ours.
struct Raw(NonNull<u8>);
// SAFETY: it is memory that belongs to no thread.
unsafe impl Send for Raw {}
// SAFETY: 1. and 2. It is the pointer itself, and nothing is reached through it. 3. Casts.
unsafe impl Pointer for Raw {
    fn into_raw(self) -> NonNull<()> {
        self.0.cast()
    }
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.cast())
    }
}

fn into_raw(page: Box<Bytes>) -> Raw {
    Raw(NonNull::from(Box::leak(page)).cast())
}

fn into_box(page: Raw) -> Box<Bytes> {
    // SAFETY: the pools below make every page of a box.
    unsafe { Box::from_raw(page.0.cast().as_ptr()) }
}

fn page() -> Box<Bytes> {
    Box::new(Bytes([0; SIZE]))
}

/// Ours, the owner's way; frees elsewhere are collected.
struct Ours(PagePool, Allocator);
impl Alone for Ours {
    type Item = Page;
    fn new() -> Self {
        let pool = PagePool::builder().build().expect("a pool");
        let local = pool.allocator();
        Self(pool, local)
    }
    #[inline(always)]
    fn alloc(&mut self) -> Page {
        self.1.alloc().expect("memory")
    }
    #[inline(always)]
    fn start(item: &mut Page) -> *mut u8 {
        item.as_mut_ptr()
    }
    #[inline(always)]
    fn free(&mut self, item: Page) {
        self.1.recycle(item);
    }
}
impl Across for Ours {
    type Back = Recycler;
    fn back(&self) -> Recycler {
        self.0.recycler()
    }
    fn free_there(back: &mut Recycler, item: Page) {
        back.recycle(item);
    }
    fn flush(back: &mut Recycler) {
        back.flush();
    }
}

/// Ours, each page dropped: through the ring.
struct OursDropped(Ours);
impl Alone for OursDropped {
    type Item = Page;
    fn new() -> Self {
        Self(Ours::new())
    }
    #[inline(always)]
    fn alloc(&mut self) -> Page {
        self.0.alloc()
    }
    #[inline(always)]
    fn start(item: &mut Page) -> *mut u8 {
        item.as_mut_ptr()
    }
    #[inline(always)]
    fn free(&mut self, item: Page) {
        drop(item);
    }
}
impl Across for OursDropped {
    type Back = ();
    fn back(&self) {}
    fn free_there((): &mut (), item: Page) {
        drop(item);
    }
}

/// Ours, without a cache.
struct OursShared(PagePool);
impl Alone for OursShared {
    type Item = Page;
    fn new() -> Self {
        Self(PagePool::builder().build().expect("a pool"))
    }
    fn alloc(&mut self) -> Page {
        self.0.alloc().expect("memory")
    }
    fn start(item: &mut Page) -> *mut u8 {
        item.as_mut_ptr()
    }
    fn free(&mut self, item: Page) {
        drop(item);
    }
}

/// Pages in a shared queue or stack, by whatever takes and gives them.
trait Store: Send + Sync + 'static {
    fn new() -> Self;
    fn take(&self) -> Option<Raw>;
    fn give(&self, page: Raw);
}

impl Store for crossbeam_queue::ArrayQueue<Raw> {
    fn new() -> Self {
        Self::new(4096)
    }
    fn take(&self) -> Option<Raw> {
        self.pop()
    }
    fn give(&self, page: Raw) {
        if let Err(page) = self.push(page) {
            drop(into_box(page));
        }
    }
}

impl Store for Mutex<Vec<Raw>> {
    fn new() -> Self {
        Self::new(Vec::with_capacity(4096))
    }
    fn take(&self) -> Option<Raw> {
        self.lock().expect("nobody panics").pop()
    }
    fn give(&self, page: Raw) {
        self.lock().expect("nobody panics").push(page);
    }
}

impl Store for object_pool::Pool<Box<Bytes>> {
    fn new() -> Self {
        Self::new(0, page)
    }
    fn take(&self) -> Option<Raw> {
        self.try_pull().map(|page| into_raw(page.detach().1))
    }
    fn give(&self, page: Raw) {
        self.attach(into_box(page));
    }
}

struct Of<S>(Arc<S>);
impl<S: Store> Alone for Of<S> {
    type Item = Raw;
    fn new() -> Self {
        Self(Arc::new(S::new()))
    }
    #[inline(always)]
    fn alloc(&mut self) -> Raw {
        self.0.take().unwrap_or_else(|| into_raw(page()))
    }
    #[inline(always)]
    fn start(item: &mut Raw) -> *mut u8 {
        item.0.as_ptr()
    }
    #[inline(always)]
    fn free(&mut self, item: Raw) {
        self.0.give(item);
    }
}
impl<S: Store> Across for Of<S> {
    type Back = Arc<S>;
    fn back(&self) -> Arc<S> {
        self.0.clone()
    }
    fn free_there(back: &mut Arc<S>, item: Raw) {
        back.give(item);
    }
}

/// The allocator of this process: glibc's, unless another one has been preloaded.
struct Malloc;
impl Alone for Malloc {
    type Item = Raw;
    fn new() -> Self {
        Self
    }
    #[inline(always)]
    fn alloc(&mut self) -> Raw {
        // SAFETY: takes a number.
        Raw(NonNull::new(black_box(unsafe { libc::malloc(SIZE) }).cast()).expect("memory"))
    }
    #[inline(always)]
    fn start(item: &mut Raw) -> *mut u8 {
        item.0.as_ptr()
    }
    #[inline(always)]
    fn free(&mut self, item: Raw) {
        // SAFETY: it comes from `malloc`, and is freed once.
        unsafe { libc::free(black_box(item.0.as_ptr()).cast()) };
    }
}
impl Across for Malloc {
    type Back = ();
    fn back(&self) {}
    fn free_there((): &mut (), item: Raw) {
        Self.free(item);
    }
}

/// The same 256 pages again and again: what handing over and touching costs without any pool.
struct Floor {
    pages: Vec<NonNull<u8>>,
    next: usize,
}
impl Alone for Floor {
    type Item = Raw;
    fn new() -> Self {
        Self { pages: (0..256).map(|_| into_raw(page()).0).collect(), next: 0 }
    }
    #[inline(always)]
    fn alloc(&mut self) -> Raw {
        self.next = (self.next + 1) % 256;
        Raw(self.pages[self.next])
    }
    #[inline(always)]
    fn start(item: &mut Raw) -> *mut u8 {
        item.0.as_ptr()
    }
    #[inline(always)]
    fn free(&mut self, _item: Raw) {}
}
// SAFETY: nothing of it is bound to its thread.
unsafe impl Send for Floor {}
impl Across for Floor {
    type Back = ();
    fn back(&self) {}
    fn free_there((): &mut (), _item: Raw) {}
}

/// Pools whose pages are guards, which cannot travel as one pointer.
macro_rules! guarded {
    ($name:ident, $pool:ty, $item:ty, $new:expr, $get:ident) => {
        struct $name(&'static $pool);
        impl Alone for $name {
            type Item = $item;
            fn new() -> Self {
                Self(Box::leak(Box::new($new)))
            }
            #[inline(always)]
            fn alloc(&mut self) -> $item {
                self.0.$get()
            }
            #[inline(always)]
            fn start(item: &mut $item) -> *mut u8 {
                item.0.as_mut_ptr()
            }
            #[inline(always)]
            fn free(&mut self, item: $item) {
                drop(item);
            }
        }
    };
}

struct Boxes;
impl opool::PoolAllocator<Box<Bytes>> for Boxes {
    fn allocate(&self) -> Box<Bytes> {
        page()
    }
}

guarded!(
    Linear,
    lockfree_object_pool::LinearObjectPool<Box<Bytes>>,
    lockfree_object_pool::LinearReusable<'static, Box<Bytes>>,
    lockfree_object_pool::LinearObjectPool::new(page, |_| ()),
    pull
);
guarded!(
    Opool,
    opool::Pool<Boxes, Box<Bytes>>,
    opool::RefGuard<'static, Boxes, Box<Bytes>>,
    opool::Pool::new_prefilled(4096, Boxes),
    get
);
guarded!(
    OpoolLocal,
    opool::LocalPool<Boxes, Box<Bytes>>,
    opool::RefLocalGuard<'static, Boxes, Box<Bytes>>,
    opool::LocalPool::new_prefilled(4096, Boxes),
    get
);

/// One page at a time.
fn one<P: Alone>() -> Run {
    let mut pool = P::new();
    Box::new(move |n| {
        let begin = Instant::now();
        for i in 0..n {
            let mut item = pool.alloc();
            touch(P::start(&mut item), i);
            pool.free(item);
        }
        begin.elapsed()
    })
}

/// A burst of pages, then all of them freed.
fn burst<P: Alone>(burst: usize) -> Run {
    let mut pool = P::new();
    let mut items = Vec::with_capacity(burst);
    Box::new(move |n| {
        let begin = Instant::now();
        for i in 0..n.div_ceil(burst as u64) {
            for _ in 0..burst {
                let mut item = pool.alloc();
                touch(P::start(&mut item), i);
                items.push(item);
            }
            for item in items.drain(..) {
                pool.free(item);
            }
        }
        begin.elapsed()
    })
}

/// Pins the calling thread to a processor, so that the scheduler is not what is measured.
fn pin(cpu: usize) {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for its size; a refusal changes nothing.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// Allocated and touched here, handed over `batch` at a time, read and freed there.
fn across<P: Across + Send>(batch: usize) -> Run {
    let mut pool = Some(P::new());
    Box::new(move |n| {
        let n = n.next_multiple_of(batch as u64);
        let mut here = pool.take().expect("put back");
        let mut back = here.back();
        // Half as many as `Floor` has, so that it never has a page twice.
        let (mut tx, mut rx) = spsc::<P::Item>(128).expect("a ring");
        let start = Arc::new(Barrier::new(2));
        let producer = thread::spawn({
            let start = start.clone();
            move || {
                pin(1);
                let mut items = Vec::with_capacity(batch);
                start.wait();
                for i in 0..n / batch as u64 {
                    for k in 0..batch as u64 {
                        let mut item = here.alloc();
                        touch(P::start(&mut item), i * batch as u64 + k);
                        items.push(item);
                    }
                    let mut spins = 0_u32;
                    while !items.is_empty() {
                        if tx.produce_batch(&mut items) == 0 {
                            relax(&mut spins);
                        }
                    }
                }
                here
            }
        });
        let consumer = thread::spawn(move || {
            pin(0);
            let mut items = Vec::with_capacity(batch);
            start.wait();
            let begin = Instant::now();
            let (mut got, mut spins) = (0, 0_u32);
            while got < n {
                if rx.consume_batch(&mut items, batch) == 0 {
                    relax(&mut spins);
                }
                for mut item in items.drain(..) {
                    // SAFETY: the producer has written a word there.
                    let word = unsafe { P::start(&mut item).cast::<u64>().read_volatile() };
                    assert_eq!(word, got, "in order, and nobody else has it");
                    got += 1;
                    P::free_there(&mut back, item);
                }
            }
            P::flush(&mut back);
            begin.elapsed()
        });
        let elapsed = consumer.join().expect("it keeps order");
        pool = Some(producer.join().expect("it ends"));
        elapsed
    })
}

fn relax(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(4096) { thread::yield_now() } else { spin_loop() }
}

type Array = Of<crossbeam_queue::ArrayQueue<Raw>>;
type Locked = Of<Mutex<Vec<Raw>>>;
type ObjectPool = Of<object_pool::Pool<Box<Bytes>>>;

/// What `malloc` is in this process.
pub(crate) fn allocator() -> &'static str {
    let has = |name: &CStr| {
        // SAFETY: `name` is a C string.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    };
    if has(c"mallctl") {
        "jemalloc"
    } else if has(c"mi_version") {
        "mimalloc"
    } else {
        "glibc malloc"
    }
}

/// Everything that is measured; with `malloc_only`, ours and `malloc`.
pub(crate) fn cases(malloc_only: bool) -> Vec<Case> {
    macro_rules! case {
        ($name:literal, $run:expr, [$($ours:literal => $o:ty),*], [$($rival:literal => $t:ty),*]) => {{
            let mut runs: Vec<(&'static str, Run)> = vec![$(($ours, $run(std::marker::PhantomData::<$o>))),*];
            runs.push((allocator(), $run(std::marker::PhantomData::<Malloc>)));
            if !malloc_only {
                $(runs.push(($rival, $run(std::marker::PhantomData::<$t>)));)*
            }
            Case { name: $name, runs }
        }};
    }
    use std::marker::PhantomData as P;
    fn alone<T: Alone>(_: P<T>) -> Run {
        one::<T>()
    }
    fn in_bursts<T: Alone>(_: P<T>) -> Run {
        burst::<T>(64)
    }
    fn over_16<T: Across + Send>(_: P<T>) -> Run {
        across::<T>(16)
    }
    fn over_1<T: Across + Send>(_: P<T>) -> Run {
        across::<T>(1)
    }
    macro_rules! alone {
        ($name:literal, $run:expr) => {
            case!(
                $name,
                $run,
                ["PagePool" => Ours],
                ["ArrayQueue" => Array, "Mutex<Vec>" => Locked, "object-pool" => ObjectPool,
                 "lockfree-object-pool" => Linear, "opool" => Opool, "opool, one thread" => OpoolLocal,
                 "PagePool, dropped" => OursDropped, "PagePool, shared" => OursShared]
            )
        };
    }
    macro_rules! across {
        ($name:literal, $run:expr) => {
            case!(
                $name,
                $run,
                ["PagePool" => Ours],
                ["hand-over alone" => Floor, "ArrayQueue" => Array, "Mutex<Vec>" => Locked,
                 "object-pool" => ObjectPool, "PagePool, dropped" => OursDropped]
            )
        };
    }
    vec![
        alone!("one thread, one page", alone),
        alone!("one thread, burst 64", in_bursts),
        across!("alloc here, free there, 16 handed over", over_16),
        across!("alloc here, free there, one by one", over_1),
    ]
}
