#!/usr/bin/env bash
# Builds a Worker: `build.sh` for release into build/, `build.sh --fixtures` with what only the
# integration tests use into build-fixtures/, `build.sh DIR` a crate of one's own into DIR/build/.
# Prints its size, and fails above the limit.
source "$(dirname "$0")/env.sh"

# kB gzipped. The platform's free plan takes 3 MB; a warning leaves time to look where they went.
LIMIT_KB=3000 WARN_KB=2000

crate=worker out=build features=() sources=(worker)
case "${1:-}" in
    --fixtures)
        out=build-fixtures features=(--features fixtures)
        # A cdylib's file name carries no hash: two feature sets in one folder overwrite each other.
        export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fixtures" ;;
    ?*) crate="${1%/}" out="${1%/}/build" sources=("$crate/src" "$crate/Cargo.toml" "$crate/Cargo.lock") ;;
esac
wasm="$out/index_bg.wasm"

if ! [ -e "$wasm" ] || [ -n "$(find src "${sources[@]}" Cargo.toml Cargo.lock scripts/build.sh scripts/env.sh -newer "$wasm" -print -quit)" ]; then
    say "building the Worker into $out/"
    # The output is as old as the start of its build: an edit during the build is newer.
    started="$(date +%s.%N)" log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    # The shims stand in for nightly where rustup cannot download it. worker-build reads
    # --out-dir from the crate's folder.
    PATH="$SHIMS:$PATH" "$CACHE/cargo/bin/worker-build" --release --panic-unwind \
        --out-dir "$PWD/$out" "$crate" "${features[@]}" >"$log" 2>&1 ||
        { cat "$log" >&2; die "the Worker did not build"; }
    touch -d "@$started" "$wasm"
fi

raw=$(($(wc -c <"$wasm") / 1000)) gz=$(($(gzip -9c "$wasm" | wc -c) / 1000))
say "$wasm: $raw kB, $gz kB gzipped (limit $LIMIT_KB)"
[ "$gz" -le "$LIMIT_KB" ] || die "the Worker is too big"
[ "$gz" -le "$WARN_KB" ] || say "warning: more than $WARN_KB kB gzipped"
