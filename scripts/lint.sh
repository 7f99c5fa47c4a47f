#!/usr/bin/env bash
# Formatting and lints. Native: the core alone, with switchable defects, and with
# the platform's adapters.
source "$(dirname "$0")/env.sh"
cargo fmt --check
cargo clippy --quiet --all-targets --no-default-features -- -D warnings
cargo clippy --quiet --all-targets --no-default-features --features faults -- -D warnings
cargo clippy --quiet --all-targets -- -D warnings
