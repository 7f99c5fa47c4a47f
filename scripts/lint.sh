#!/usr/bin/env bash
# Checks formatting and runs the lints for all targets and features: the core, the adapters and the fixtures.
source "$(dirname "$0")/env.sh"
cargo fmt --all --check
# A macro declares these modules, so `cargo fmt` does not find them.
rustfmt --check src/http/faces/*.rs
cargo fmt --check --manifest-path examples/my-agent/Cargo.toml
cargo clippy --quiet --workspace --exclude edge-harness-cli --all-targets --all-features -- -D warnings
# Alone, because its dependencies enable features of crates that the library also uses. With them, some types of the library
# are larger, so that it is checked only above.
cargo clippy --quiet -p edge-harness-cli --no-deps --all-targets -- -D warnings
