//! liburcu as a rival: compiled and loaded at run time, so that nobody needs it to build anything.

use crate::c_object::Object;
use std::ffi::CStr;
use std::sync::OnceLock;

/// The functions of `urcu.c`.
#[derive(Clone, Copy)]
pub(crate) struct Urcu {
    register: extern "C" fn(),
    unregister: extern "C" fn(),
    sections: extern "C" fn(libc::c_ulong),
    synchronize: extern "C" fn(libc::c_ulong),
}

impl Urcu {
    /// liburcu, or why there is none.
    pub(crate) fn load() -> Option<Self> {
        static LOADED: OnceLock<Result<Urcu, String>> = OnceLock::new();
        match LOADED.get_or_init(compile_and_load) {
            Ok(urcu) => Some(*urcu),
            Err(why) => {
                eprintln!("no liburcu rows: {why}");
                None
            }
        }
    }

    /// Runs `f` with this thread registered.
    pub(crate) fn registered<R>(self, f: impl FnOnce(Registered) -> R) -> R {
        (self.register)();
        let result = f(Registered(self));
        (self.unregister)();
        result
    }

    pub(crate) fn synchronize(self, n: u64) {
        (self.synchronize)(n);
    }
}

/// Proof that the thread may open sections.
pub(crate) struct Registered(Urcu);

impl Registered {
    pub(crate) fn sections(&self, n: u64) {
        (self.0.sections)(n);
    }
}

fn compile_and_load() -> Result<Urcu, String> {
    let arguments = ["-D_LGPL_SOURCE".into(), "-lurcu-memb".into()];
    let object =
        Object::compile("urcu.c", &arguments).map_err(|why| format!("{why} (Debian has it in liburcu-dev)"))?;
    let plain = |name: &CStr| {
        // SAFETY: the functions it is used for are `void f(void)` in urcu.c, and the object is never closed.
        object.symbol(name).map(|address| unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(address) })
    };
    let counted = |name: &CStr| {
        object.symbol(name).map(|address| {
            // SAFETY: the functions it is used for are `void f(unsigned long)` in urcu.c, never closed either.
            unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(libc::c_ulong)>(address) }
        })
    };
    Ok(Urcu {
        register: plain(c"versus_urcu_register")?,
        unregister: plain(c"versus_urcu_unregister")?,
        sections: counted(c"versus_urcu_sections")?,
        synchronize: counted(c"versus_urcu_synchronize")?,
    })
}
