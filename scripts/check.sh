#!/usr/bin/env bash
# The checks of the inner loop: formatting, lints, and the tests that need no Worker.
source "$(dirname "$0")/env.sh"
scripts/lint.sh
cargo test --quiet --no-default-features --lib --examples \
    --test agent --test front --test sql --test architecture --test docs
cargo test --quiet -p edge-harness-sim --test faults
cargo test --quiet -p edge-harness-cli --lib --test docs --test sandbox
