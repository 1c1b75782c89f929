#!/usr/bin/env bash
# Looks whether every public item and method has an example in its documentation. (That they run is a doctest's to show.)
# The lint is the compiler's own, and unstable: hence the variable that lets a stable one use it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/examples
export RUSTDOCFLAGS='-Zcrate-attr=feature(rustdoc_missing_doc_code_examples) -Wrustdoc::missing_doc_code_examples'
lint='missing code example in this documentation'
log=$(cargo doc --no-deps --all-features --message-format short 2>&1) || { echo "$log"; exit 1; }
missing=0 blocks=0
while IFS=: read -r file line _; do
    case $(sed -n "${line}p" "$file") in
        # The lint wants one for some `impl` blocks, too. They have no page of their own.
        impl*) blocks=$((blocks + 1)) ;;
        *) echo "$file:$line: $lint" && missing=$((missing + 1)) ;;
    esac
done < <(grep -F "$lint" <<<"$log")
# It looks at nothing if it says nothing at all.
[[ $blocks -gt 0 ]] || { echo 'examples: the lint did not run'; exit 1; }
[[ $missing -eq 0 ]] && echo 'examples: every public item has one'
