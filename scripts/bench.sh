#!/usr/bin/env bash
# Measures the release Worker and the floor; also writes the table to bench/results/latest.json.
source "$(dirname "$0")/env.sh"
# Only the test Worker reports how many rows D1 counts.
scripts/build.sh --fixtures
cargo bench --quiet --no-default-features --bench turns
