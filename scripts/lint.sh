#!/usr/bin/env bash
# Checks formatting and runs the lints natively: for the core, with planted defects, and with the platform's
# adapters.
source "$(dirname "$0")/env.sh"
cargo fmt --check
cargo clippy --quiet --all-targets --no-default-features -- -D warnings
cargo clippy --quiet --all-targets --no-default-features --features faults -- -D warnings
cargo clippy --quiet --all-targets -- -D warnings
