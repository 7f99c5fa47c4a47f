#!/usr/bin/env bash
# Runs simulated worlds: SEEDS of them starting at FROM, one SEED with its trace, or with FAULTS=1 each
# defect of sim/faults.toml until an invariant finds it.
source "$(dirname "$0")/env.sh"
words=(--seeds "${SEEDS:-10000}" --from "${FROM:-0}")
[ -z "${SEED:-}" ] || words=(--seed "$SEED")
[ -z "${FAULTS:-}" ] || words=(--faults)
say "simulator: ${words[*]}"
cargo run --quiet --profile sim -p edge-harness-sim -- "${words[@]}"
