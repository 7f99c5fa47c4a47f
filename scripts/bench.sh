#!/usr/bin/env bash
# Measures the release Worker beside the floor; the table also goes to bench/results/latest.json.
source "$(dirname "$0")/env.sh"
cargo bench --quiet --no-default-features --bench turns
