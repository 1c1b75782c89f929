#!/usr/bin/env bash
# Builds what would be published and runs its documentation's examples, the README's among them, as another project
# would see them: from the packaged file, and without the crates that only this repository's tests and benches need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# What lands is committed; before that, it may be tried.
dirty=$(git diff --quiet HEAD 2>/dev/null || echo --allow-dirty)
cargo package --quiet ${dirty:+"$dirty"}

id=$(cargo pkgid)
name=percpu-ref-${id##*[#@]}
work=target/packaged
rm -rf "${work:?}/$name"
mkdir -p "$work"
tar -xzf "target/package/$name.crate" -C "$work"
# Whole sections: the targets other than the library, and the dev-dependencies that only they need. The pages of the guide use a
# runtime and crates that an optional feature is about.
awk '/^\[/ { keep = /^\[dev-dependencies\.(tokio|bytes|tracing)\]/ || !/^\[(dev-dependencies|\[bench|\[test|\[example)/ } keep' \
    "$work/$name/Cargo.toml" >"$work/Cargo.toml"
mv "$work/Cargo.toml" "$work/$name/Cargo.toml"
# A target folder of its own: cargo takes the packaged crate for this one, and would mix up what it has built.
CARGO_TARGET_DIR=$work/target cargo test --quiet --offline --manifest-path "$work/$name/Cargo.toml" --doc
