#!/usr/bin/env bash
# Runs every model, then every mutant. A mutant is a model build in which one entry of the ledger (docs/ordering.md) is
# weakened at run time; the model named in mutants.txt has to fail then, and to pass otherwise.
# usage: tests/loom/run.sh [models|mutants|all]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
what=${1:-all}
export RUSTFLAGS="--cfg percpu_ref_loom" RUST_BACKTRACE=0
target=${CARGO_TARGET_DIR:-target}/models
build() { cargo test --quiet --manifest-path tests/loom/Cargo.toml --target-dir "$target" --no-run --message-format json-render-diagnostics; }
declare -A binary
while IFS=$'\t' read -r name path; do binary[$name]=$path; done < <(build | python3 -c '
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and "test" in m["target"]["kind"]:
        print(m["target"]["name"], m["executable"], sep="\t")')
[[ ${#binary[@]} -gt 0 ]] || { echo "no model was built" >&2; exit 1; }

passed=0 failed=0
verdict() { if [[ $1 == ok ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; printf '%-8s %s\n' "$1" "$2"; }

if [[ $what != mutants ]]; then
    for name in $(printf '%s\n' "${!binary[@]}" | sort); do
        # Only the models of the count depend on the backend.
        backends=membarrier
        if grep -q "^[A-Z0-9]* *$name *rseq" tests/loom/mutants.txt; then backends="rseq membarrier"; fi
        for backend in $backends; do
            if PERCPU_REF_BACKEND=$backend timeout 600 "${binary[$name]}" --test-threads 2; then
                verdict ok "models of $name, $backend"
            else
                verdict FAILED "models of $name, $backend"
            fi
        done
    done
fi

if [[ $what != models ]]; then
    while read -r id name backend model; do
        [[ $id != \#* && -n $id ]] || continue
        log=$(mktemp)
        status=0
        # The braces keep the shell's own word about an abort, which is one way to fail, out of the report.
        { PERCPU_REF_BACKEND=$backend PERCPU_REF_MUTANT=$id timeout 120 "${binary[$name]}" --exact "$model" >"$log" 2>&1; } 2>/dev/null || status=$?
        if ! grep -q '^running 1 test' "$log"; then
            verdict FAILED "mutant $id: there is no model $model"
        elif [[ $status == 0 || $status == 124 ]]; then
            verdict FAILED "mutant $id: $model does not notice ($status)"
        else
            verdict ok "mutant $id: $model fails, as it must"
        fi
        rm -f "$log"
    done <tests/loom/mutants.txt
    # Every id of the ledger has a mutant.
    for id in $(grep -rhoE '(order|fence|light|heavy)\("[A-Z][0-9]+"' src --include=*.rs | grep -v 'order("id"' | grep -oE '[A-Z][0-9]+' | sort -u); do
        grep -q "^$id " tests/loom/mutants.txt || verdict FAILED "ledger entry $id has no mutant"
        grep -q "| $id " docs/ordering.md || verdict FAILED "ledger entry $id is not in docs/ordering.md"
    done
fi
echo "models: $passed passed, $failed failed"
[[ $failed == 0 ]]
