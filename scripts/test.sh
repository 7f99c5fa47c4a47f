#!/usr/bin/env bash
# Runs all tests, the cheapest first.
source "$(dirname "$0")/env.sh"
scripts/lint.sh
cargo test --no-default-features --lib --bins --examples
cargo test --profile sim --no-default-features --features faults --test sim
scripts/build.sh --fixtures
# Not `--test '*'`: that would require the simulator, which needs its own feature.
cargo test --no-default-features --tests
