#!/usr/bin/env bash
# Builds a Worker: `build.sh` builds for release into build/, `build.sh --fixtures` adds the fixtures of the
# integration tests and builds into build-fixtures/, `build.sh DIR` builds the crate in DIR into DIR/build/.
# Prints the size and fails if it exceeds the limit.
source "$(dirname "$0")/env.sh"

# In kB, gzipped. The platform's free plan accepts 3 MB; the warning leaves time to reduce the size.
LIMIT_KB=3000 WARN_KB=2000

crate=worker out=build features=() sources=(worker)
case "${1:-}" in
    --fixtures) out=build-fixtures features=(--features fixtures) ;;
    ?*) crate="${1%/}" out="${1%/}/build" sources=("$crate/src" "$crate/Cargo.toml" "$crate/Cargo.lock" "$crate/build.sh") ;;
esac
# The file name of a cdylib has no hash, so two feature sets in one folder would overwrite each other.
[ "$out" = build ] || export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fixtures"
wasm="$out/index_bg.wasm"

build_worker() {
    # LLVM 22 writes invalid wasm for some very large functions that catch panics. Such functions arise because
    # it inlines a function into its only caller regardless of size: the bonus for that is a constant. With all
    # other costs multiplied by 100, the bonus covers 30 instructions instead of 3,000.
    for cost in instr-cost=500 call-penalty=2500 threshold=500; do
        RUSTFLAGS="${RUSTFLAGS:-} -Cllvm-args=-inline-$cost"
    done
    # Function names would double the size of the Worker; a panic is logged with its place in the source.
    # wasm-bindgen reads the target's features.
    export RUSTFLAGS="$RUSTFLAGS -Clink-arg=--strip-all -Clink-arg=--keep-section=target_features"
    # worker-build resolves --out-dir relative to the crate's folder. wasm-opt is skipped: it takes minutes,
    # saves a fifteenth of the size, and does not reduce CPU time.
    worker-build --release --panic-unwind --no-opt --out-dir "$PWD/$out" worker "${features[@]}"
}

# A crate with a build script of its own, as outside of this repository.
build_crate() { CARGO_INSTALL_ROOT="$CACHE/cargo" "$crate/build.sh"; }

if ! [ -e "$wasm" ] || [ -n "$(find src "${sources[@]}" Cargo.toml Cargo.lock scripts/build.sh scripts/env.sh -newer "$wasm" -print -quit)" ]; then
    say "building the Worker into $out/"
    # Dates the output to the start of the build, so that files edited during the build are newer.
    started="$(date +%s.%N)" log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    # The shims replace nightly where rustup cannot download it.
    export PATH="$SHIMS:$CACHE/cargo/bin:$PATH"
    if [ "$crate" = worker ]; then build_worker; else build_crate; fi >"$log" 2>&1 ||
        { cat "$log" >&2; die "building the Worker failed"; }
    touch -d "@$started" "$wasm"
fi

raw=$(($(wc -c <"$wasm") / 1000)) gz=$(($(gzip -9c "$wasm" | wc -c) / 1000))
say "$wasm: $raw kB, $gz kB gzipped (limit $LIMIT_KB)"
[ "$gz" -le "$LIMIT_KB" ] || die "the Worker exceeds $LIMIT_KB kB gzipped"
[ "$gz" -le "$WARN_KB" ] || say "warning: the Worker exceeds $WARN_KB kB gzipped"
