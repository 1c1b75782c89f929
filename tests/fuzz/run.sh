#!/usr/bin/env bash
# Fuzzes the rings: libFuzzer, guided by the coverage of the library, from the corpus in tests/fuzz/corpus/ring.
# usage: tests/fuzz/run.sh [SECONDS]          fuzz (60 seconds by default); a finding fails, and is kept
#        tests/fuzz/run.sh replay FILE...     run inputs once
#        tests/fuzz/run.sh corpus             replace the corpus by a few inputs that reach all code that has been reached so far
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/fuzz
corpus=tests/fuzz/corpus/ring

# The compiler's coverage pass, as `cargo fuzz` asks for it; it is in every toolchain. One codegen unit, because the pass
# wants each counter once. `--target` keeps the flags away from build scripts.
flags="-Cpasses=sancov-module -Ccodegen-units=1 --cfg fuzzing"
for arg in level=4 inline-8bit-counters pc-table trace-compares; do flags+=" -Cllvm-args=-sanitizer-coverage-$arg"; done
RUSTFLAGS=$flags cargo build --release --quiet --manifest-path tests/fuzz/Cargo.toml --target "$host" --target-dir "$target"
ring=$target/$host/release/ring

mkdir -p "$target/found" "$target/corpus"
case ${1:-60} in
replay) exec "$ring" "${@:2}" ;;
corpus)
    smallest=$(mktemp -d)
    "$ring" -set_cover_merge=1 -use_counters=0 "$smallest" "$target/corpus" "$corpus"
    rm -rf "$corpus"
    mv "$smallest" "$corpus"
    chmod -R u=rwX,go=rX "$corpus"
    exit
    ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$ring" -max_total_time="${1:-60}" -max_len=600 -timeout=10 -print_final_stats=1 -artifact_prefix="$target/found/" \
    "$target/corpus" "$corpus" >"$log" 2>&1 || status=$?
if [[ $status != 0 ]]; then
    tail -n 60 "$log"
    echo "found something; run it again with: tests/fuzz/run.sh replay $target/found/..." >&2
    exit "$status"
fi
# What the corpus covers, and what this run has added: counters hit, and features (counters by how often).
python3 - "$log" <<'PYTHON'
import re, sys
log = open(sys.argv[1], errors="replace").read()
total = int(re.search(r"\((\d+) inline 8-bit counters\)", log)[1])
seen = [tuple(map(int, m)) for m in re.findall(r"cov: (\d+) ft: (\d+)", log)]
runs, rate = (re.search(rf"stat::{name}:\s+(\d+)", log)[1] for name in ("number_of_executed_units", "average_exec_per_sec"))
(cov, ft), (last_cov, last_ft) = seen[0], seen[-1]
print(f"{runs} inputs, {rate} a second; {last_cov} of {total} counters hit (the whole program's), "
      f"of which {last_cov - cov} are new ({(last_cov - cov) / last_cov:.1%}); "
      f"{last_ft} features, of which {last_ft - ft} are new ({(last_ft - ft) / last_ft:.1%})")
PYTHON
