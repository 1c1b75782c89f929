#!/usr/bin/env bash
# Measures everything and makes the tables and charts of README.md and docs out of it. Best on a machine with nothing else to do.
# Usage: benches/run.sh [GROUP]...
#   With groups, only those are measured; the rest stays as it is in docs/benchmarks.json, which must be of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo bench --quiet --bench versus --no-run
cargo build --quiet --release --example report # Before, so that no build runs beside the measurements.
cargo bench --quiet --bench versus -- --json target/versus.json "$@"
cargo run --quiet --release --example report -- ${1:+docs/benchmarks.json} target/versus.json
