//! What an inlined `get` and `put`, and going through a gate, compile to: `tests/disasm.sh` builds this, disassembles the probes and counts.

use percpu_ref::{Gate, Pass, PercpuRef};

/// Shows the fast path of a get.
#[inline(never)]
#[unsafe(no_mangle)]
fn probe_get(r: &PercpuRef) {
    r.get();
}

/// Shows the fast path of a put.
#[inline(never)]
#[unsafe(no_mangle)]
fn probe_put(r: &PercpuRef) {
    r.put();
}

/// Shows the fast path of a `tryget_live`.
#[inline(never)]
#[unsafe(no_mangle)]
fn probe_tryget_live(r: &PercpuRef) -> bool {
    r.tryget_live()
}

/// Shows the fast path of entering a gate.
#[inline(never)]
#[unsafe(no_mangle)]
fn probe_enter(gate: &Gate) -> Option<Pass<'_>> {
    gate.enter()
}

/// Shows the fast path of leaving it.
#[inline(never)]
#[unsafe(no_mangle)]
fn probe_leave(pass: Pass<'_>) {
    drop(pass);
}

fn main() {
    let gate = Gate::new();
    if let Some(pass) = probe_enter(&gate) {
        probe_leave(pass);
    }
    let r = PercpuRef::new(|| println!("released"));
    probe_get(&r);
    if probe_tryget_live(&r) {
        probe_put(&r);
    }
    probe_put(&r);
    r.kill_sync().expect("killed once");
    r.wait_zero();
}
