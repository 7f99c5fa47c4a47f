#!/usr/bin/env bash
# Builds the page, and the Worker of this clone, or the one in the folder WORKER, for release into its build/.
# `build.sh --fixtures` adds the fixtures of the integration tests and builds into build-fixtures/.
# Prints the size and fails if it exceeds the limit.
source "$(dirname "$0")/env.sh"
scripts/page.sh

# In kB, gzipped. The platform's free plan accepts 3 MB; the warning leaves time to reduce the size.
LIMIT_KB=3000 WARN_KB=2000

out="$WORKER/build" features=()
if [ "${1:-}" = --fixtures ]; then
    out="$WORKER/build-fixtures" features=(--features fixtures)
    # The file name of a cdylib has no hash, so two feature sets in one folder would overwrite each other.
    export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fixtures"
fi
wasm="$out/index_bg.wasm"

build_own() {
    # LLVM inlines a function into its only caller almost regardless of size: the bonus for that is a constant. The
    # resulting very large functions cost a turn a third more CPU time. With all other costs multiplied by 100, the
    # bonus covers 30 instructions instead of 3,000. The threshold is that of `opt-level = "s"`, 10 instructions: with
    # that of "z", a single instruction, a turn takes about a tenth more CPU time.
    for cost in instr-cost=500 call-penalty=2500 threshold=5000; do
        RUSTFLAGS="${RUSTFLAGS:-} -Cllvm-args=-inline-$cost"
    done
    # In the newer encoding of exceptions, LLVM 22 writes invalid wasm for some large functions that catch panics. With
    # the older one, the Worker is also a thirtieth smaller. In return, wasm-bindgen wraps each function that wasm
    # imports in one that catches exceptions.
    RUSTFLAGS="$RUSTFLAGS -Cllvm-args=-wasm-use-legacy-eh"
    # Function names would double the size of the Worker; a panic is logged with its place in the source.
    # wasm-bindgen reads the target's features.
    export RUSTFLAGS="$RUSTFLAGS -Clink-arg=--strip-all -Clink-arg=--keep-section=target_features"
    # worker-build resolves --out-dir relative to the crate's folder. wasm-opt is skipped: it takes minutes,
    # saves a fifteenth of the size, and does not reduce CPU time. std is rebuilt anyway, so its smaller sorting is used.
    worker-build --release --panic-unwind --no-opt --out-dir "$out" worker \
        -Z build-std-features=panic-unwind,optimize_for_size "${features[@]}"
}

if [ "$WORKER" = "$PWD" ]; then
    build=build_own sources=(worker scripts/build.sh scripts/env.sh)
else
    # A crate of your own has a build script of its own.
    build="$WORKER/build.sh" sources=("$WORKER"/{src,Cargo.toml,Cargo.lock,build.sh})
    [ -x "$build" ] || die "$WORKER contains no Worker; create one in a new folder: make new DIR=../my-agent"
fi

if ! [ -e "$wasm" ] || [ -n "$(find src docs/openapi.json Cargo.toml Cargo.lock "${sources[@]}" -newer "$wasm" -print -quit)" ]; then
    say "building the Worker into $out/"
    # Dates the output to the start of the build, so that files edited during the build are newer.
    started="$(date +%s.%N)" log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    use_wasm_tools
    "$build" >"$log" 2>&1 || { cat "$log" >&2; die "building the Worker failed"; }
    touch -d "@$started" "$wasm"
fi

raw=$(($(cat "$wasm" "$out/index.js" | wc -c) / 1000)) gz=$(($(cat "$wasm" "$out/index.js" | gzip -9 | wc -c) / 1000))
say "$out/: $raw kB, $gz kB gzipped (limit $LIMIT_KB)"
[ "$gz" -le "$LIMIT_KB" ] || die "the Worker exceeds $LIMIT_KB kB gzipped"
[ "$gz" -le "$WARN_KB" ] || say "warning: the Worker exceeds $WARN_KB kB gzipped; a free account accepts $LIMIT_KB kB"
