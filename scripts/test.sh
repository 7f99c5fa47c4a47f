#!/usr/bin/env bash
# Runs all tests. The Workers build in the background, on little more than one core.
source "$(dirname "$0")/env.sh"

# A process group of its own, so that nothing continues to build when a test fails.
set -m
{
    scripts/build.sh --fixtures
    # The tests of a crate of one's own run on a copy of the example, as users get it. A copy that is up to date stays,
    # with its build.
    export WORKER=target/new/my-agent
    if [ -n "$(find examples/my-agent scripts/new.sh -newer "$WORKER/wrangler.toml" -print -quit 2>&1)" ]; then
        rm -rf "$WORKER"
        scripts/new.sh
    fi
    # Both Workers share the builds of their dependencies.
    CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fixtures" scripts/build.sh
} &
workers=$!
set +m
trap 'kill -TERM -- "-$workers" 2>/dev/null || true' EXIT

scripts/check.sh
cargo test --quiet --doc
cargo test --quiet --profile sim -p edge-harness-sim
# Fresh seeds in each run. The simulator prints the range and the seed of a failure, which `make sim SEED=…` repeats.
SEEDS=10000 FROM="$SRANDOM" scripts/sim.sh

node_packages tests/clients
node_packages examples/clients
python_packages examples/clients clients
scripts/clients.sh
scripts/browser.sh
scripts/schemathesis.sh --install
wait "$workers"
# Builds the client, too, which commands of the docs use.
cargo test --quiet -p edge-harness-cli --test server -- --test-threads=4
# Most of these tests wait for a server, so more of them run at the same time than there are cores.
cargo test --no-default-features --test http -- --test-threads=4
