# Sourced by the other scripts: paths and environment variables for all tools.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The folder of the Worker: this clone, or another folder, by its path from here.
WORKER="$(realpath -m "${WORKER:-.}")"
export WORKER

# Outside the clone, so that all clones share the built tools.
CACHE="${EDGE_HARNESS_CACHE:-$HOME/.cache/edge-harness}"
BIN="$PWD/node_modules/.bin"
SHIMS="$CACHE/nightly-shims"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$WORKER/target}"

# worker-build downloads these two tools unless their paths are set.
export WASM_BINDGEN_BIN="$CACHE/cargo/bin/wasm-bindgen"
export ESBUILD_BIN="$BIN/esbuild"

# Disables prompts, metrics and optional network requests.
export CI=true WRANGLER_SEND_METRICS=false CLOUDFLARE_CF_FETCH_ENABLED=false

# The project's own Node comes first, because wrangler rejects the older versions of distributions.
export PATH="$BIN:$PATH"

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
# Puts the build tools first. The shims replace nightly where rustup cannot download it.
use_wasm_tools() { export PATH="$SHIMS:$CACHE/cargo/bin:$PATH"; }
# Lists the D1 bindings of the Worker in the current folder: `DB` and its shards.
databases() { sed -n 's/^binding = "\(DB\(_[0-9]*\)\{0,1\}\)"$/\1/p' wrangler.toml; }
locked() { awk -v name="\"$1\"" '$1=="name" && $3==name {getline; gsub(/"/,"",$3); print $3; exit}' Cargo.lock; }

# Runs a command and shows its output only if it fails.
quietly() {
    local log; log="$(mktemp)"
    if ! "$@" >"$log" 2>&1; then cat "$log" >&2; rm -f "$log"; die "failed: $*"; fi
    rm -f "$log"
}

# Installs the Node packages of a folder, unless they are: `node_packages FOLDER`.
node_packages() {
    local hash; hash="$(cat "$1/package.json" "$1/package-lock.json" | sha256sum)"
    [ "$(cat "$1/node_modules/.setup-done" 2>/dev/null)" = "$hash" ] && return
    say "installing the Node packages of $1"
    command -v npm >/dev/null || die "npm not found: install any version of Node.js; the project then installs its own"
    quietly npm ci --prefix "$1"
    echo "$hash" >"$1/node_modules/.setup-done"
}

# Installs the Python packages of a folder's requirements.txt into the cache, unless they are: `python_packages FOLDER NAME`.
# Their interpreter is then $CACHE/NAME/bin/python.
python_packages() {
    local requirements="$1/requirements.txt" venv="$CACHE/$2"
    cmp -s "$requirements" "$venv/installed.txt" && return
    say "installing the Python packages of $1"
    command -v python3 >/dev/null || die "python3 not found: install Python 3.10 or later, with venv"
    rm -rf "$venv"
    quietly python3 -m venv "$venv"
    quietly "$venv/bin/pip" install --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/installed.txt"
}

# Builds a tool from crates.io into the cache, once: `tool CRATE VERSION BINARY`.
tool() {
    [ "$("$CACHE/cargo/bin/$3" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')" = "$2" ] && return
    say "building $1 $2 (a few minutes, once)"
    # Uses a separate target folder to keep foreign artifacts out of the project's.
    CARGO_TARGET_DIR="$CACHE/target" quietly cargo install --locked --root "$CACHE/cargo" "$1@$2"
    rm -rf "$CACHE/target"
}
