//! Finding out whether the C library registered its threads, and the entry points.

use super::super::membarrier_rseq as membarrier;
use super::arch;
use std::ffi::CStr;
use std::sync::atomic::{AtomicIsize, Ordering};

pub(crate) use arch::{add, add_const};

/// What [`area`] found, or what it will find.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = isize::MAX;
/// The C library's own data lies at the thread pointer.
const NONE: isize = 0;

/// `rseq_cs` is at 8, so the area has to reach to 16 at least.
const SMALLEST_AREA: u32 = 16;

/// From the thread pointer to the rseq area of each thread, if this process can run restartable sequences: the C library
/// registers every thread, the kernel knows the membarrier that goes with it, and this object cannot be unloaded.
pub(crate) fn area() -> Option<i32> {
    // Not a `OnceLock`: a fork while another thread is looking would leave it locked in the child. Looking twice does no harm.
    let mut area = AREA.load(Ordering::Relaxed);
    if area == UNKNOWN {
        area = look().map_or(NONE, |area| area as isize);
        AREA.store(area, Ordering::Relaxed);
    }
    i32::try_from(area).ok().filter(|_| area != NONE)
}

/// See [`area`].
fn look() -> Option<i32> {
    let (size, offset) = (symbol(c"__rseq_size")?, symbol(c"__rseq_offset")?);
    // SAFETY: glibc defines `__rseq_size` as an `unsigned int` that it does not change after start-up.
    let size = unsafe { size.cast::<u32>().read() };
    // SAFETY: glibc defines `__rseq_offset` as a `ptrdiff_t` that it does not change after start-up.
    let offset = unsafe { offset.cast::<isize>().read() };
    let usable = size >= SMALLEST_AREA && membarrier::register_rseq() && pin_this_object();
    i32::try_from(offset).ok().filter(|_| usable)
}

/// Looks a symbol up in the objects of this process: old C libraries lack it, and linking to it would not start there.
fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: `name` is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

/// Keeps the object that contains the descriptors mapped until the process ends.
fn pin_this_object() -> bool {
    static HERE: u8 = 0;
    let here: *const libc::c_void = (&raw const HERE).cast();
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

/// Loads `*slot` and adds 1 to this CPU's cell of the window that lies `BACK` bytes before what it points to. Null: nothing
/// was added.
///
/// # Safety
/// 1. `slot` can be read and points into an allocation that has a window as in `add_const` that many bytes before.
/// 2. After another pointer has taken its place, the allocation stays until [`heavy`] has run.
#[inline(always)]
pub(crate) unsafe fn get_from<const BACK: usize>(slot: *const *mut u8) -> *mut u8 {
    match AREA.load(Ordering::Relaxed) {
        // No window tells us here that the process has sequences: it lies behind the pointer.
        NONE | UNKNOWN => std::ptr::null_mut(),
        // SAFETY: 1, 2, and the process has sequences.
        area => unsafe { arch::get_from::<BACK>(slot, area) },
    }
}

/// Returns when every sequence of this process that was under way has committed or been restarted, and every thread has
/// run a full fence.
pub(crate) fn heavy(_id: &str) {
    membarrier::heavy_rseq();
}
