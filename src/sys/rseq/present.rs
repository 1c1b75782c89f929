//! Finding out whether the C library registered its threads, and the entry points.

use super::super::membarrier_rseq as membarrier;
use super::arch;
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From the thread pointer to the rseq area of the thread; never 0 where there is one, because the C library's own data
/// lies there. Written once, before any window is opened.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// `rseq_cs` is at 8, so the area has to reach to 16 at least.
const SMALLEST_AREA: u32 = 16;

/// Whether this process can run restartable sequences: the C library registers every thread, the kernel knows the
/// membarrier that goes with it, and this object cannot be unloaded.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let (Some(size), Some(offset)) = (symbol(c"__rseq_size"), symbol(c"__rseq_offset")) else { return false };
        // SAFETY: glibc defines `__rseq_size` as an `unsigned int` that it does not change after start-up.
        let size = unsafe { size.cast::<u32>().read() };
        // SAFETY: glibc defines `__rseq_offset` as a `ptrdiff_t` that it does not change after start-up.
        let offset = unsafe { offset.cast::<isize>().read() };
        if size < SMALLEST_AREA || offset == 0 || !membarrier::register_rseq() || !pin_this_object() {
            return false;
        }
        OFFSET.store(offset.cast_unsigned(), Ordering::Relaxed);
        true
    })
}

/// Looks a symbol up in the objects of this process: old C libraries lack it, and linking to it would not start there.
fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: `name` is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

/// Keeps the object that contains the descriptors mapped until the process ends.
fn pin_this_object() -> bool {
    let here: *const libc::c_void = (&raw const OFFSET).cast();
    // SAFETY: an all-zero Dl_info is a valid value of it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is ours to be written.
    let found = unsafe { libc::dladdr(here, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: `dli_fname` is a C string that lives as long as the object, and NOLOAD runs no code of it.
    let object = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_NODELETE | libc::RTLD_LAZY) };
    // The main program is not found under its own name; nothing can unload it.
    !object.is_null() || is_main_program(info.dli_fbase)
}

/// Whether the object at `base` is the program itself.
fn is_main_program(base: *mut libc::c_void) -> bool {
    // SAFETY: getauxval takes a number and returns one.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    // The program headers lie in the first page of the object that they describe.
    (headers as usize).wrapping_sub(base.addr()) < 4096
}

/// Adds `N` to this CPU's cell.
///
/// # Safety
/// 1. [`available`] was true.
/// 2. `window` points to a [`Window`](crate::sync::restartable::Window): a pointer to the cells, then the limit.
/// 3. While `limit` is not 0, and afterwards until [`heavy`] has run, `cells` points to `limit` cells that are
///    `1 << LANE_SHIFT` bytes apart and reached by atomic operations only.
#[inline(always)]
pub(crate) unsafe fn add_const<const N: i32>(window: *const u8) -> bool {
    // SAFETY: 1 to 3.
    unsafe { arch::add_const::<N>(window, OFFSET.load(Ordering::Relaxed)) }
}

/// Adds `n` to this CPU's cell.
///
/// # Safety
/// As [`add_const`].
#[inline(always)]
pub(crate) unsafe fn add(window: *const u8, n: u64) -> bool {
    // SAFETY: 1 to 3 of `add_const`.
    unsafe { arch::add(window, OFFSET.load(Ordering::Relaxed), n) }
}

/// Loads `*slot` and adds 1 to this CPU's cell of the window that lies `BACK` bytes before what it points to. Null: nothing
/// was added.
///
/// # Safety
/// 1. `slot` can be read and points into an allocation that has a window as in [`add_const`] that many bytes before.
/// 2. After another pointer has taken its place, the allocation stays until [`heavy`] has run.
#[inline(always)]
pub(crate) unsafe fn get_from<const BACK: usize>(slot: *const *mut u8) -> *mut u8 {
    match OFFSET.load(Ordering::Relaxed) {
        // No window tells us here that the process has sequences: it lies behind the pointer.
        0 => std::ptr::null_mut(),
        // SAFETY: 1, 2, and `available` was true.
        offset => unsafe { arch::get_from::<BACK>(slot, offset) },
    }
}

/// Returns when every sequence of this process that was under way has committed or been restarted, and every thread has
/// run a full fence.
pub(crate) fn heavy(_id: &str) {
    membarrier::heavy_rseq();
}
