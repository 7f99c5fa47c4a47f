#!/usr/bin/env bash
# Measures the release Worker beside the floor; the table also goes to bench/results/latest.json.
source "$(dirname "$0")/env.sh"
# Only the Worker of the tests tells how many rows D1 counts.
scripts/build.sh --fixtures
cargo bench --quiet --no-default-features --bench turns
