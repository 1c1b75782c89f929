#!/usr/bin/env bash
# Runs the test suite once for each backend, each checked to be really in use.
# Usage: tests/backends.sh [LANE]...
#   rseq, membarrier, fence: asked for by PERCPU_REF_BACKEND
#   unregistered: the C library registers no thread for sequences (GLIBC_TUNABLES); unregistered-short: the tests that
#     look at the system themselves
#   portable: what a system without any of this would compile
#   valgrind: the suite under it; it knows no sequences and watches every access. Takes some ten minutes
#   asan: AddressSanitizer, with the unstable flag of the compiler in use
# No LANE: all of them but the short one. Where valgrind or asan cannot run, that is said and the lane skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The comment above.
usage() { sed -n '2,/^[^#]/ s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }

# What looks at the system: the rest sees only the backend, and another lane has that.
system=(--test rcu --test percpu_ref --test faults --test stress --test page_pool_faults)

# Runs tests with a backend that has to be in use.
with_backend() {
    local backend=$1
    shift
    env PERCPU_REF_EXPECT_BACKEND="$backend" "$@"
}

can_run() {
    case $1 in
        valgrind) command -v valgrind >/dev/null ;;
        asan) RUSTC_BOOTSTRAP=1 rustc -Zsanitizer=address --crate-name empty -o /dev/null - <<<'fn main() {}' 2>/dev/null ;;
    esac
}

lane() {
    case $1 in
        rseq | membarrier | fence) with_backend "$1" PERCPU_REF_BACKEND="$1" cargo test --quiet --tests ;;
        unregistered) with_backend membarrier GLIBC_TUNABLES=glibc.pthread.rseq=0 cargo test --quiet --tests ;;
        unregistered-short) with_backend membarrier GLIBC_TUNABLES=glibc.pthread.rseq=0 cargo test --quiet "${system[@]}" ;;
        portable)
            with_backend fence RUSTFLAGS='--cfg percpu_ref_portable' CARGO_TARGET_DIR=target/portable cargo test --quiet --tests
            ;;
        valgrind)
            local binary binaries
            binaries=$(cargo test --quiet --tests --no-run --message-format json-render-diagnostics |
                sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
            for binary in $binaries; do
                # Threads take turns there, and everything takes twenty times as long: one test at a time, and patience.
                PERCPU_REF_PATIENCE=20 PERCPU_REF_STRESS_SECONDS=10 PROPTEST_CASES=20 PERCPU_REF_EXPECT_BACKEND=membarrier \
                    valgrind --quiet --error-exitcode=99 --fair-sched=yes "$binary" --quiet --test-threads=1
            done
            ;;
        asan)
            (
                export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR=target/asan
                local target
                target=$(rustc -vV | sed -n 's/^host: //p')
                # Its test would build it without a target, and the compiler could not load macros that were built with these flags.
                cargo build --quiet --example server --target "$target"
                # The sanitizer's allocator does not go on where a test limits the address space.
                cargo test --quiet --tests --target "$target" -- --skip memory_is_an_error
            )
            ;;
        *) usage ;;
    esac
}

[[ $# -gt 0 ]] || set -- rseq membarrier fence unregistered portable valgrind asan
for name in "$@"; do
    can_run "$name" || { echo "backends: $name cannot run here: skipped"; continue; }
    started=$SECONDS
    lane "$name"
    echo "backends: $name passed in $((SECONDS - started)) s"
done
