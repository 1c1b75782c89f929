#!/bin/sh
# Disassembles the inlined fast paths of examples/probe.rs and counts what they execute: from the entry, falling through
# every conditional jump, to the return. No locked instruction and no call may be on the way.
#
#   tests/disasm.sh [LIMIT]      LIMIT: instructions of a get, the return not counted; 12 by default
set -eu
limit=${1:-12}
cd "$(dirname "$0")/.."
case $(uname -sm) in
    "Linux x86_64") ;;
    *) echo "disasm: only for Linux on x86_64: skipped"; exit 0 ;;
esac
command -v objdump >/dev/null || { echo "disasm: objdump (binutils) is missing" >&2; exit 2; }

cargo build --release --quiet --example probe
target=${CARGO_TARGET_DIR:-target}
"$target/release/examples/probe" >/dev/null

status=0
for probe in probe_get probe_put probe_tryget_live probe_enter probe_leave; do
    # One line an instruction, its address cut off; up to the return or a jump that leaves the function.
    path=$(objdump --disassemble="$probe" --no-show-raw-insn -M intel "$target/release/examples/probe" |
        awk -F '\t' '
            /^[0-9a-f]+ <.*>:$/ { inside = 1; next }
            inside && NF > 1 {
                text = $2
                if (text ~ /^ret/) { ended = 1; exit }
                if (text ~ /^(jmp|ud2|int3)/) { print text; print "END: not a return"; ended = 1; exit }
                if (text !~ /^(nop|data16|cs nop)/) print text
            }
            END { if (!ended) print "END: not a return" }')
    count=$(printf '%s\n' "$path" | wc -l)
    locked=$(printf '%s\n' "$path" | grep -cE '^(lock|xchg)' || true)
    calls=$(printf '%s\n' "$path" | grep -c '^call' || true)
    echo "$probe: $count instructions, $locked locked, $calls calls"
    wrong=
    most=$limit
    # The answer takes one more.
    case $probe in probe_tryget_live | probe_enter) most=$((limit + 1)) ;; esac
    [ "$count" -le "$most" ] || wrong="more than $most instructions"
    [ "$locked" -eq 0 ] || wrong="a locked instruction"
    [ "$calls" -eq 0 ] || wrong="a call"
    case $path in *END:*) wrong="no straight way to the return" ;; esac
    case $path in *rseq*|*fs:*) ;; *) wrong="no access to the thread's own area" ;; esac
    if [ -n "$wrong" ] || [ -n "${VERBOSE:-}" ]; then
        printf '%s\n' "$path" | sed 's/^/    /'
    fi
    if [ -n "$wrong" ]; then
        echo "$probe: $wrong" >&2
        status=1
    fi
done
exit $status
