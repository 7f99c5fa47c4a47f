#!/usr/bin/env bash
# Measures the release Worker and the floor; also writes the table to bench/results/latest.json.
# COMPARE=REF also measures the release Worker of another commit, in the same run. PARTS="loads counts" measures only some
# parts.
source "$(dirname "$0")/env.sh"
if [ -n "${COMPARE:-}" ]; then
    # A folder for each commit, so that no file of another one stays.
    export OTHER="$CARGO_TARGET_DIR/compare/$(git rev-parse --short "$COMPARE^{commit}")"
    mkdir -p "$OTHER"
    git archive "$COMPARE" | tar -x -C "$OTHER"
    env -u CARGO_TARGET_DIR make --no-print-directory -C "$OTHER" build
fi
# Only the test Worker reports how many rows D1 counts.
scripts/build.sh --fixtures
cargo bench --quiet --no-default-features --bench turns -- ${PARTS:-}
