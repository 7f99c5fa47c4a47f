#!/usr/bin/env bash
# Builds the Worker into build/. `wrangler dev` and `wrangler deploy` run this. It needs Rust's nightly toolchain with
# rust-src, and the target wasm32-unknown-unknown in both toolchains; worker-build downloads its other tools.
set -euo pipefail
cd "$(dirname "$0")"

version=0.8.7
[ "$(worker-build --version 2>/dev/null)" = "$version" ] || cargo install -q --locked "worker-build@$version"

# These costs limit how much LLVM inlines: V8 is slow with very large functions, and with many small ones.
for cost in instr-cost=500 call-penalty=2500 threshold=5000; do
    RUSTFLAGS="${RUSTFLAGS:-} -Cllvm-args=-inline-$cost"
done
# The older encoding of exceptions: in the newer one, LLVM 22 writes invalid wasm for some large functions.
RUSTFLAGS="$RUSTFLAGS -Cllvm-args=-wasm-use-legacy-eh"
# Leaves out the names of functions, which are half of the file.
export RUSTFLAGS="$RUSTFLAGS -Clink-arg=--strip-all -Clink-arg=--keep-section=target_features"

# Without wasm-opt, which takes minutes and saves little. The standard library is rebuilt, to be small.
worker-build --release --panic-unwind --no-opt . -Z build-std-features=panic-unwind,optimize_for_size "$@"
