//! Rivals written in C: compiled and loaded at run time, so that nobody needs them to build anything.

use std::ffi::{CStr, CString, OsString};
use std::path::Path;
use std::process::Command;

/// A loaded shared object; it stays for the rest of the process.
pub(crate) struct Object(*mut libc::c_void);

impl Object {
    /// Compiles a source beside this file with the arguments that come after it, and loads the result.
    pub(crate) fn compile(source: &str, arguments: &[OsString]) -> Result<Self, String> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/versus").join(source);
        let object = format!("versus-{}-{number}.so", std::process::id());
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(object);
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let output = Command::new(&compiler)
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .args([&object, &source])
            .args(arguments)
            .output()
            .map_err(|error| format!("{compiler}: {error}"))?;
        if !output.status.success() {
            let log = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{compiler} failed: {}", log.lines().next().unwrap_or("?")));
        }
        let name = CString::new(object.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: `name` is a C string; the object's constructors are those of the libraries it names.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        let _ = std::fs::remove_file(&object); // It stays mapped.
        if handle.is_null() { Err("the compiled object cannot be loaded".into()) } else { Ok(Self(handle)) }
    }

    /// The address of a symbol, never null.
    pub(crate) fn symbol(&self, name: &CStr) -> Result<*mut libc::c_void, String> {
        // SAFETY: the handle is that of an open object and `name` a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() { Err(format!("the compiled object lacks {name:?}")) } else { Ok(address) }
    }
}
