#!/usr/bin/env bash
# Brings a bare machine to where every other command works: the wasm toolchain, the build tools,
# the Node packages. Quiet and quick when everything is there.
source "$(dirname "$0")/env.sh"

WORKER_BUILD=0.8.7
WASM_BINDGEN="$(locked wasm-bindgen)"

# Runs a command whose output matters only when it fails.
quietly() {
    local log; log="$(mktemp)"
    if ! "$@" >"$log" 2>&1; then cat "$log" >&2; rm -f "$log"; die "failed: $*"; fi
    rm -f "$log"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# --- the machine's own Rust: native tests and lints ---
command -v cargo >/dev/null || die "no cargo: install Rust from https://rustup.rs"
for tool in clippy rustfmt; do
    cargo "${tool/rustfmt/fmt}" --version >/dev/null 2>&1 ||
        { say "adding $tool"; quietly rustup component add "$tool"; }
done

# --- Rust for wasm: nightly with the source of std, since `--panic-unwind` rebuilds std ---
has_target() { [ -d "$(rustc "$@" --target wasm32-unknown-unknown --print target-libdir 2>/dev/null)" ]; }
has_nightly() { rustup toolchain list 2>/dev/null | grep -q '^nightly'; }
nightly_works() {
    # worker-build wants the target in the default toolchain too.
    has_nightly && has_target && has_target +nightly &&
        rustup component list --toolchain nightly 2>/dev/null | grep -q '^rust-src.*(installed)'
}
# A nightly that is there is added to, not replaced.
install_nightly() {
    { has_nightly || timeout 300 rustup toolchain install nightly --profile minimal; } &&
        timeout 300 rustup component add rust-src --toolchain nightly &&
        timeout 300 rustup target add wasm32-unknown-unknown --toolchain nightly &&
        timeout 300 rustup target add wasm32-unknown-unknown && nightly_works
}
WASM_LIB=/usr/lib/rustlib/wasm32-unknown-unknown/lib
shims_work() {
    [ -x "$SHIMS/cargo" ] && [ -x /usr/bin/cargo ] && [ -d "$WASM_LIB" ] && command -v wasm-ld-22 >/dev/null
}

# Debian's compiler in place of nightly: it comes with the source of its std, and RUSTC_BOOTSTRAP
# opens the unstable flags. worker-build calls `cargo +nightly` and asks rustup; the shims answer.
install_shims() {
    say "rustup cannot download here: installing Debian's Rust for wasm"
    command -v apt-get >/dev/null || die "neither rustup's downloads nor apt-get work here"
    quietly as_root apt-get update
    quietly as_root apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src lld-22
    # worker-build looks whether this folder exists, not what is in it.
    as_root mkdir -p "$WASM_LIB"
    mkdir -p "$SHIMS"
    for tool in cargo rustc; do
        cat >"$SHIMS/$tool" <<EOF
#!/bin/sh
[ "\$1" = +nightly ] && shift
export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22
exec /usr/bin/$tool "\$@"
EOF
    done
    printf '#!/bin/sh\n[ "$1" = component ] && echo "rust-src (installed)"\nexit 0\n' >"$SHIMS/rustup"
    chmod +x "$SHIMS"/*
}

if ! shims_work && ! nightly_works; then
    say "adding the wasm target"
    if install_nightly >/dev/null 2>&1; then rm -rf "$SHIMS"
    else install_shims
    fi
fi

# --- build tools from crates.io, built once into the cache ---
crate() { # crate version binary
    [ "$("$CACHE/cargo/bin/$3" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')" = "$2" ] && return
    say "building $1 $2 (a few minutes, once)"
    # Its own target folder: the project's would be filled with foreign artifacts.
    CARGO_TARGET_DIR="$CACHE/target" quietly cargo install --locked --root "$CACHE/cargo" "$1@$2"
    rm -rf "$CACHE/target"
}
crate worker-build "$WORKER_BUILD" worker-build
crate wasm-bindgen-cli "$WASM_BINDGEN" wasm-bindgen

# --- Node, wrangler, workerd, esbuild, wasm-opt ---
lock_hash="$(cat package.json package-lock.json | sha256sum)"
if [ "$(cat node_modules/.setup-done 2>/dev/null)" != "$lock_hash" ]; then
    say "installing the Node packages"
    command -v npm >/dev/null || die "no npm: install any Node.js; the project brings its own version"
    quietly npm ci
    echo "$lock_hash" >node_modules/.setup-done
fi
