#!/usr/bin/env bash
# Compares the real Worker with its OpenAPI document: EXAMPLES random requests, from a fresh SEED unless it is set.
# `schemathesis.sh --install` only installs the tool, once.
source "$(dirname "$0")/env.sh"

requirements=tests/schemathesis/requirements.txt venv="$CACHE/schemathesis"
if ! cmp -s "$requirements" "$venv/installed.txt"; then
    say "installing Schemathesis"
    command -v python3 >/dev/null || die "python3 not found: install Python 3.10 or later, with venv"
    rm -rf "$venv"
    quietly python3 -m venv "$venv"
    quietly "$venv/bin/pip" install --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/installed.txt"
fi
[ "${1:-}" = --install ] && exit

scripts/build.sh --fixtures
export EXAMPLES="${EXAMPLES:-5000}"
[ -n "${SEED:-}" ] || unset SEED
cargo test --quiet --no-default-features --test http the_worker_conforms_to_its_document -- --nocapture
