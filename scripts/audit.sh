#!/usr/bin/env bash
# Checks the warnings of rustdoc, the licenses, versions and sources of dependencies, and spelling.
source "$(dirname "$0")/env.sh"
tool cargo-deny 0.20.2 cargo-deny
tool typos-cli 1.49.0 typos

RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
for crate in . cli; do
    "$CACHE/cargo/bin/cargo-deny" --log-level error --manifest-path "$crate/Cargo.toml" --config "$crate/deny.toml" \
        check licenses bans sources
done
"$CACHE/cargo/bin/typos"
