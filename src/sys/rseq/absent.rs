//! No restartable sequences: no window is ever opened, so nothing here is ever reached.

/// This process cannot run restartable sequences.
pub(crate) fn area() -> Option<i32> {
    None
}

/// Never reached: nobody opens a window.
///
/// # Safety
/// None.
pub(crate) unsafe fn add_const<const N: i32>(_window: *const u8) -> bool {
    false
}

/// Never reached: nobody opens a window.
///
/// # Safety
/// None.
pub(crate) unsafe fn add(_window: *const u8, _n: u64) -> bool {
    false
}

/// No sequence, no value.
///
/// # Safety
/// None.
pub(crate) unsafe fn get_from<const BACK: usize>(_slot: *const *mut u8) -> *mut u8 {
    std::ptr::null_mut()
}

/// Restarts nothing: nothing runs.
pub(crate) fn heavy(_id: &str) {}
