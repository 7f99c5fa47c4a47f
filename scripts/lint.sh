#!/usr/bin/env bash
# Checks formatting and runs the lints for all targets and features: the core, the adapters and the fixtures.
source "$(dirname "$0")/env.sh"
cargo fmt --all --check
# A macro declares these modules, so `cargo fmt` does not find them.
rustfmt --check src/http/faces/*.rs
cargo fmt --check --manifest-path examples/my-agent/Cargo.toml
cargo clippy --quiet --workspace --exclude edge-harness-cli --all-targets --all-features -- -D warnings
# Alone, because its dependencies enable features of crates that the library also uses.
cargo clippy --quiet -p edge-harness-cli --all-targets -- -D warnings
