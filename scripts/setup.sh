#!/usr/bin/env bash
# Installs everything the other commands need: the wasm toolchain, the build tools, the Node packages. Does
# nothing if everything is installed.
source "$(dirname "$0")/env.sh"

WORKER_BUILD=0.8.7
WASM_BINDGEN="$(locked wasm-bindgen)"

# --- native Rust, for tests and lints ---
command -v cargo >/dev/null || die "cargo not found: install Rust from https://rustup.rs"
for tool in clippy rustfmt; do
    cargo "${tool/rustfmt/fmt}" --version >/dev/null 2>&1 ||
        { say "adding $tool"; quietly rustup component add "$tool"; }
done

# --- Rust for wasm: nightly with the source of std, since `--panic-unwind` rebuilds std ---
has_target() { [ -d "$(rustc "$@" --target wasm32-unknown-unknown --print target-libdir 2>/dev/null)" ]; }
has_nightly() { rustup toolchain list 2>/dev/null | grep -q '^nightly'; }
nightly_works() {
    # worker-build also requires the target in the default toolchain.
    has_nightly && has_target && has_target +nightly &&
        rustup component list --toolchain nightly 2>/dev/null | grep -q '^rust-src.*(installed)'
}
# Extends an installed nightly instead of replacing it.
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

# Uses Debian's compiler instead of nightly: its packages include the source of std, and RUSTC_BOOTSTRAP
# enables unstable flags. The shims replace the `cargo +nightly` and `rustup` commands that worker-build runs.
install_shims() {
    say "rustup cannot download nightly: installing Debian's Rust for wasm"
    command -v apt-get >/dev/null || die "rustup cannot download nightly, and apt-get is not available"
    quietly as_root apt-get update
    quietly as_root apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src lld-22
    # worker-build only checks that this folder exists.
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

# --- build tools from crates.io ---
tool worker-build "$WORKER_BUILD" worker-build
tool wasm-bindgen-cli "$WASM_BINDGEN" wasm-bindgen

# --- Node, wrangler, workerd, esbuild ---
node_packages .
