//! liburcu as a rival: compiled and loaded at run time, so that nobody needs it to build anything.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::process::Command;
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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/versus/urcu.c");
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("versus-urcu-{}.so", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O2", "-shared", "-fPIC", "-D_LGPL_SOURCE", "-o"])
        .args([&object, &source])
        .arg("-lurcu-memb")
        .output()
        .map_err(|error| format!("{compiler}: {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{compiler} failed: {} (Debian has it in liburcu-dev)", log.lines().next().unwrap_or("?")));
    }
    let name = CString::new(object.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: `name` is a C string; the object's constructors are those of liburcu.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    let _ = std::fs::remove_file(&object); // It stays mapped.
    if handle.is_null() {
        return Err("the compiled shim cannot be loaded".into());
    }
    let symbol = |name: &CStr| {
        // SAFETY: `handle` is an open object and `name` a C string.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if address.is_null() { Err(format!("the shim lacks {name:?}")) } else { Ok(address) }
    };
    let plain = |name| {
        // SAFETY: the functions it is used for are `void f(void)` in urcu.c, and the object is never closed.
        symbol(name).map(|address| unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(address) })
    };
    let counted = |name| {
        symbol(name).map(|address| {
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
