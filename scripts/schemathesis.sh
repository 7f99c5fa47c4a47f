#!/usr/bin/env bash
# Compares the real Worker with its OpenAPI document: EXAMPLES random requests, from a fresh SEED unless it is set.
# `schemathesis.sh --install` only installs the tool, once.
source "$(dirname "$0")/env.sh"

python_packages tests/schemathesis schemathesis
[ "${1:-}" = --install ] && exit

scripts/build.sh --fixtures
export EXAMPLES="${EXAMPLES:-5000}"
[ -n "${SEED:-}" ] || unset SEED
cargo test --quiet --no-default-features --test http the_worker_conforms_to_its_document -- --nocapture
