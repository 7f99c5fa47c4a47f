#!/usr/bin/env bash
# All tests: what is cheapest to find first.
source "$(dirname "$0")/env.sh"
scripts/lint.sh
cargo test --no-default-features --lib --bins --examples
cargo test --profile sim --no-default-features --features faults --test sim
scripts/build.sh --fixtures
cargo test --no-default-features --test '*'
