//! An allocator for cells, packed.
//!
//! A cache line for each CPU and each count would cost 64 bytes a CPU; a million counts on a large machine could not be
//! had. Cells of *different counts* may share a line, though, as long as all of them belong to the same CPU. So a chunk
//! has one lane for each CPU, a count has the same index in every lane, and costs 8 bytes a CPU:
//!
//! ```text
//! lane 0   | a0 b0 c0 ...      |   written by CPU 0 only
//! lane 1   | a1 b1 c1 ...      |   written by CPU 1 only
//! ```
//!
//! Lanes are a fixed distance apart, so that a cell's address is a shift and an addition. A chunk is address space until
//! it is touched, page by page. A chunk that becomes empty goes back to the system, but for the first to do so, which is
//! kept for the next count. (The first, because what describes a chunk lies in the program's heap: what describes one made
//! late, kept, would keep all of the heap that lies below.)
//!
//! After mm/percpu.c of Linux and the memory pools of librseq.

use super::NoMemory;
use crate::sync::restartable::{LANE, Region};
use crate::sync::{AtomicU64, Found, Mutex, OnFork, Ordering, global};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

const WORDS: usize = LANE / 64;

/// How many lanes a chunk has: one number for the whole process.
static LANES: Found = Found::new();

global! {
    static ARENA: Mutex<Arena> = Mutex::new(Arena { chunks: BTreeMap::new(), roomy: BTreeSet::new(), spare: None });
}

/// # Invariants
/// 1. `chunks` is keyed by the address of its first cell; no two overlap.
/// 2. `roomy` has the keys of exactly those chunks that have a free cell.
/// 3. `spare` is the key of the one chunk of which no cell is used, if there is one.
struct Arena {
    chunks: BTreeMap<usize, Chunk>,
    roomy: BTreeSet<usize>,
    spare: Option<usize>,
}

struct Chunk {
    region: Region,
    /// A set bit is a free index.
    free: Box<[u64; WORDS]>,
    used: usize,
}

/// How many lanes each count has a cell in; 0 before the first is made.
pub(super) fn lanes() -> usize {
    LANES.get().unwrap_or(0)
}

/// A zeroed cell in each lane; the first is returned. `lanes` tells how many lanes there are to be; the first answer holds.
pub(super) fn alloc(lanes: impl FnOnce() -> usize) -> Result<NonNull<AtomicU64>, NoMemory> {
    static FORKS: OnFork = OnFork::new(|| {
        let guard = ARENA.lock();
        Box::new(move |_| drop(guard))
    });
    FORKS.register();
    let lanes = LANES.get_or(lanes);
    let mut arena = ARENA.lock();
    let key = match arena.roomy.first() {
        Some(&key) => key,
        None => arena.grow(lanes)?,
    };
    let chunk = arena.chunks.get_mut(&key).expect("invariant 2");
    let word = chunk.free.iter().position(|word| *word != 0).expect("invariant 2");
    let bit = chunk.free[word].trailing_zeros() as usize;
    chunk.free[word] &= !(1 << bit);
    chunk.used += 1;
    let is_full = chunk.used == LANE;
    // SAFETY: the index is below `LANE`, so the cell is in lane 0 of the region.
    let first = unsafe { chunk.region.start().add(word * 64 + bit) };
    if is_full {
        arena.roomy.remove(&key); // INVARIANT: 2.
    }
    arena.spare.take_if(|spare| *spare == key); // INVARIANT: 3.
    Ok(first) // `free` has left zeroes behind, and so has the system.
}

/// Gives the cells back, of which the first `in_use` may have been written to.
///
/// # Safety
/// 1. `first` comes from [`alloc`], and nobody uses the cells any more.
/// 2. `in_use` is at most the number of lanes.
pub(super) unsafe fn free(first: NonNull<AtomicU64>, in_use: usize) {
    for lane in 0..in_use {
        // SAFETY: the region has a cell of this count in each lane (2), `LANE` cells apart.
        let cell = unsafe { first.add(lane * LANE) };
        // SAFETY: the region is mapped while one of its cells is allocated, and this one is (1).
        zero(unsafe { cell.as_ref() });
    }
    let address = first.as_ptr().addr();
    let mut arena = ARENA.lock();
    let (&key, chunk) = arena.chunks.range_mut(..=address).next_back().expect("it came from a chunk");
    let index = (address - key) / size_of::<AtomicU64>();
    debug_assert!(chunk.free[index / 64] & (1 << (index % 64)) == 0, "freed twice");
    chunk.free[index / 64] |= 1 << (index % 64);
    chunk.used -= 1;
    let empty = chunk.used == 0;
    arena.roomy.insert(key); // INVARIANT: 2.
    if empty && *arena.spare.get_or_insert(key) != key {
        arena.roomy.remove(&key);
        let chunk = arena.chunks.remove(&key);
        drop(arena);
        drop(chunk); // Outside the lock: it is a system call.
    }
}

/// Zeroes a cell without touching a page that nobody has written to.
pub(super) fn zero(cell: &AtomicU64) {
    if cell.load(Ordering::Relaxed) != 0 {
        cell.store(0, Ordering::Relaxed);
    }
}

impl Arena {
    /// Adds a chunk and returns its key.
    fn grow(&mut self, lanes: usize) -> Result<usize, NoMemory> {
        // The maps below cannot tell that there is no memory for their nodes: see whether there is room for them.
        Vec::<u8>::new().try_reserve_exact(size_of::<[u64; WORDS]>() + 2048).map_err(|_| NoMemory)?;
        let region = Region::map(lanes).ok_or(NoMemory)?;
        let key = region.start().as_ptr().addr();
        self.chunks.insert(key, Chunk { region, free: Box::new([u64::MAX; WORDS]), used: 0 });
        self.roomy.insert(key);
        Ok(key)
    }
}
