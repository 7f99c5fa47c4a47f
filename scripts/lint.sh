#!/usr/bin/env bash
# Formatting and lints. Native: the core alone, and with the platform's adapters.
source "$(dirname "$0")/env.sh"
cargo fmt --check
cargo clippy --quiet --all-targets --no-default-features -- -D warnings
cargo clippy --quiet --all-targets -- -D warnings
