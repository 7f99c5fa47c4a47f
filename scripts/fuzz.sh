#!/usr/bin/env bash
# Sends random requests of two users of each of two tenants to the real Worker: REQUESTS of them, from a fresh SEED
# unless it is set.
source "$(dirname "$0")/env.sh"
scripts/build.sh --fixtures
export FUZZ_REQUESTS="${REQUESTS:-20000}"
[ -z "${SEED:-}" ] || export FUZZ_SEED="$SEED"
cargo test --quiet --no-default-features --test http requests_at_random -- --nocapture
