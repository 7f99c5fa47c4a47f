#!/usr/bin/env bash
# All tests: what is cheapest to find first.
source "$(dirname "$0")/env.sh"
scripts/lint.sh
cargo test --no-default-features --lib --bins --examples
cargo test --profile sim --no-default-features --features faults --test sim
scripts/build.sh --fixtures
# Not `--test '*'`: that would insist on the simulator, which needs its own feature.
cargo test --no-default-features --tests
