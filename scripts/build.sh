#!/usr/bin/env bash
# Builds the Worker: `build.sh` for release into build/, `build.sh --fixtures` with what only the
# integration tests use into build-fixtures/. Prints its size, and fails above the limit.
source "$(dirname "$0")/env.sh"

LIMIT_KB=1000 # gzipped, of a release: this project's own bound; start-up time grows with it
out=build features=()
if [ "${1:-}" = --fixtures ]; then
    out=build-fixtures features=(--features fixtures)
    # A cdylib's file name carries no hash: two feature sets in one folder overwrite each other.
    export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fixtures"
fi
wasm="$out/index_bg.wasm"

if ! [ -e "$wasm" ] || [ -n "$(find src Cargo.toml Cargo.lock scripts/build.sh scripts/env.sh scripts/cdylib -newer "$wasm" -print -quit)" ]; then
    say "building the Worker into $out/"
    # The output is as old as the start of its build: an edit during the build is newer.
    started="$(date +%s.%N)" log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    # std is built for size: its fast sorts alone take 15 kB. The dot is the crate's folder.
    std=-Zbuild-std-features=panic-unwind,optimize_for_size
    # LLVM merges a function into its only caller however large it is, which costs gzip a tenth. The bonus
    # for that is a constant: with all costs a hundredfold it buys 30 instructions in place of 3,000.
    for cost in instr-cost=500 call-penalty=2500 threshold=500; do
        RUSTFLAGS="${RUSTFLAGS:-} -Cllvm-args=-inline-$cost"
    done
    # The shims stand in for nightly where rustup cannot download it.
    export RUSTFLAGS PATH="$SHIMS:$PATH"
    NEXT_CARGO="$(command -v cargo)" PATH="$PWD/scripts/cdylib:$PATH" \
        "$CACHE/cargo/bin/worker-build" --release --panic-unwind --no-opt --out-dir "$out" \
        . "$std" "${features[@]}" >"$log" 2>&1 || { cat "$log" >&2; die "the Worker did not build"; }
    # Not by worker-build: its options inline whatever has one caller, which costs a fifth. gzip looks
    # back 32 kB, so functions of like names, which hold like code, stand together; then the names go.
    "$WASM_OPT_BIN" -Oz --one-caller-inline-max-function-size=20 --reorder-functions-by-name \
        --strip-debug --strip-producers --strip-target-features "$wasm" -o "$wasm.small"
    mv "$wasm.small" "$wasm"
    touch -d "@$started" "$wasm"
fi

raw=$(($(wc -c <"$wasm") / 1000)) gz=$(($(gzip -9c "$wasm" | wc -c) / 1000))
say "$wasm: $raw kB, $gz kB gzipped (limit $LIMIT_KB)"
[ "$gz" -le "$LIMIT_KB" ] || [ "$out" != build ] || die "the Worker is too big"
