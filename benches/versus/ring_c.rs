//! The rival rings written in C: the kernel's own, ck_ring and rte_ring.
//!
//! Their loops are in C as well (c/loops.h), the same as ours in [`ring`](super), so that their calls are inlined as ours
//! are. Who is not on this machine is not measured.

use super::{Part, Run, pin, timed, together};
use crate::c_object::Object;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// Who there is.
#[derive(Clone, Copy)]
pub(super) enum Which {
    /// For one thread a side.
    PtrRing,
    /// With a lock for each side.
    PtrRingLocked,
    CkRing,
    /// For one thread a side.
    RteRing,
    /// For many.
    RteRingMany,
}

/// `versus_ring` in c/loops.h.
#[repr(C)]
struct Table {
    name: *const c_char,
    make: extern "C" fn(c_uint) -> *mut c_void,
    destroy: extern "C" fn(*mut c_void),
    alone: extern "C" fn(*mut c_void, u64) -> c_int,
    alone_batched: extern "C" fn(*mut c_void, u64, c_uint) -> c_int,
    produce: extern "C" fn(*mut c_void, u64, c_uint),
    consume: extern "C" fn(*mut c_void, u64, c_uint) -> c_int,
    produce_many: extern "C" fn(*mut c_void, u64, c_uint),
    consume_many: extern "C" fn(*mut c_void, *mut u64, *mut u64, c_uint),
}

// SAFETY: it is constant.
unsafe impl Sync for Table {}

/// A rival that was found.
#[derive(Clone, Copy)]
pub(super) struct Rival(&'static Table);

/// The header that the kernel's ring is compiled from, and its version: what `PERCPU_REF_PTR_RING_H` names, or what is in
/// the newest of the installed kernel headers.
fn ptr_ring_h() -> Result<(PathBuf, String), String> {
    let found = match std::env::var_os("PERCPU_REF_PTR_RING_H") {
        Some(named) => Some(PathBuf::from(named)),
        None => {
            let headers = std::fs::read_dir("/usr/src").into_iter().flatten().flatten().map(|entry| entry.path());
            headers.map(|path| path.join("include/linux/ptr_ring.h")).filter(|path| path.exists()).max()
        }
    };
    let header = found.ok_or("no ptr_ring.h: name one in PERCPU_REF_PTR_RING_H, or install kernel headers")?;
    let version = header.ancestors().nth(3).and_then(version).unwrap_or_else(|| "of unknown version".into());
    Ok((header, version))
}

/// The version that a kernel's makefile begins with, or else that in the name of the directory.
fn version(tree: &Path) -> Option<String> {
    let makefile = std::fs::read_to_string(tree.join("Makefile")).unwrap_or_default();
    let value = |key| makefile.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(" = ")?.trim()));
    match (value("VERSION"), value("PATCHLEVEL"), value("SUBLEVEL")) {
        (Some(a), Some(b), Some(c)) => Some(format!("{a}.{b}.{c}")),
        _ => Some(tree.file_name()?.to_str()?.trim_start_matches("linux-headers-").to_owned()),
    }
}

/// What the compiler has to know to find DPDK.
fn dpdk() -> Result<Vec<OsString>, String> {
    let output = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let output = output.map_err(|error| format!("pkg-config: {error}"))?;
    if !output.status.success() {
        return Err("no libdpdk (Debian has it in libdpdk-dev)".into());
    }
    let flags = String::from_utf8_lossy(&output.stdout).split_whitespace().map(OsString::from).collect::<Vec<_>>();
    Ok([flags, vec!["-lrte_ring".into(), "-lrte_eal".into()]].concat())
}

impl Which {
    fn compile(self) -> Result<Rival, String> {
        let kernel = || {
            let (header, version) = ptr_ring_h()?;
            let mut named = OsString::from("-DPTR_RING_H=\"");
            named.push(header);
            named.push("\"");
            Ok::<_, String>(vec![named, format!("-DVERSION=\"{version}\"").into()])
        };
        let locked = || OsString::from("-DLOCKED");
        let object = match self {
            Self::PtrRing => Object::compile("c/ptr_ring.c", &kernel()?),
            Self::PtrRingLocked => Object::compile("c/ptr_ring.c", &[kernel()?, vec![locked()]].concat()),
            Self::CkRing => {
                Object::compile("c/ck_ring.c", &[]).map_err(|why| format!("{why} (Debian has it in libck-dev)"))
            }
            Self::RteRing => Object::compile("c/rte_ring.c", &dpdk()?),
            Self::RteRingMany => Object::compile("c/rte_ring.c", &[dpdk()?, vec![locked()]].concat()),
        }?;
        let table = object.symbol(c"versus_ring")?.cast::<Table>();
        // SAFETY: c/loops.h defines the symbol as this table, constant, and the object stays loaded.
        Ok(Rival(unsafe { &*table }))
    }

    /// The rival, if this machine has it; if not, that is said once.
    pub(super) fn find(self) -> Option<Rival> {
        static FOUND: [OnceLock<Option<Rival>>; 5] = [const { OnceLock::new() }; 5];
        *FOUND[self as usize].get_or_init(|| self.compile().inspect_err(|why| eprintln!("one rival less: {why}")).ok())
    }
}

/// One of its rings.
struct Ring(&'static Table, *mut c_void);

// SAFETY: the loops that use a ring from two threads are those for a ring that allows it.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// What the loops take. (A closure that named the field would keep a copy of it, and not the ring.)
    fn get(&self) -> *mut c_void {
        self.1
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        (self.0.destroy)(self.1);
    }
}

impl Rival {
    pub(super) fn name(self) -> &'static str {
        // SAFETY: a constant C string.
        unsafe { CStr::from_ptr(self.0.name) }.to_str().expect("a name in ASCII")
    }

    fn ring(self, size: usize) -> Ring {
        let ring = (self.0.make)(c_uint::try_from(size).expect("a small ring"));
        assert!(!ring.is_null(), "memory for a ring");
        Ring(self.0, ring)
    }

    /// One thread, element by element or in batches.
    pub(super) fn alone(self, size: usize, batch: usize) -> Run {
        let ring = self.ring(size);
        Box::new(move |n| {
            timed(|| {
                let failed = match batch {
                    1 => (self.0.alone)(ring.get(), n),
                    _ => (self.0.alone_batched)(ring.get(), n, batch as c_uint),
                };
                assert!(failed == 0, "{} keeps order", self.name());
            })
        })
    }

    /// Two threads on two processors.
    pub(super) fn across(self, size: usize, batch: usize) -> Run {
        Box::new(move |n| {
            let ring = Arc::new(self.ring(size));
            let producer = {
                let ring = ring.clone();
                move |start: &dyn Fn()| {
                    pin(1);
                    start();
                    (self.0.produce)(ring.get(), n, batch as c_uint);
                }
            };
            let consumer = move |start: &dyn Fn()| {
                pin(0);
                start();
                let failed = (self.0.consume)(ring.get(), n, batch as c_uint);
                assert!(failed == 0, "{} keeps order", self.name());
            };
            together(vec![Box::new(producer), Box::new(consumer)])
        })
    }

    /// Two producers and two consumers.
    pub(super) fn many(self, size: usize, batch: usize) -> Run {
        Box::new(move |n| {
            let (ring, half) = (Arc::new(self.ring(size)), n / 2);
            let (left, sum) = (Arc::new(AtomicU64::new(2 * half)), Arc::new(AtomicU64::new(0)));
            let mut threads: Vec<Part> = vec![];
            for _ in 0..2 {
                let of = ring.clone();
                threads.push(Box::new(move |start| {
                    start();
                    (self.0.produce_many)(of.get(), half, batch as c_uint);
                }));
                let (of, left, sum) = (ring.clone(), left.clone(), sum.clone());
                threads.push(Box::new(move |start| {
                    start();
                    (self.0.consume_many)(of.get(), left.as_ptr(), sum.as_ptr(), batch as c_uint);
                }));
            }
            let elapsed = together(threads);
            super::each_once(half, &sum);
            elapsed
        })
    }
}
