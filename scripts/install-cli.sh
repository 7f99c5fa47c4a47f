#!/usr/bin/env bash
# Builds agentctl and installs it into the folder BINDIR, by default ~/.local/bin.
source "$(dirname "$0")/env.sh"

BINDIR="${BINDIR:-$HOME/.local/bin}"
host="$(rustc -vV | sed -n 's/^host: //p')"
flags=""
# On Linux the program contains the C library, so that it runs on any distribution. The flag applies to the named target
# only, because macros of the compiler cannot be static.
case "$host" in *-linux-*) flags="-Ctarget-feature=+crt-static" ;; esac

say "building agentctl"
RUSTFLAGS="${RUSTFLAGS:-} $flags" cargo build --quiet --release --locked --target "$host" -p edge-harness-cli
mkdir -p "$BINDIR"
install -s -m 755 "$CARGO_TARGET_DIR/$host/release/agentctl" "$BINDIR/agentctl"
say "installed $BINDIR/agentctl: $("$BINDIR/agentctl" --version), $(($(wc -c <"$BINDIR/agentctl") / 1000)) kB"
case ":$PATH:" in *":$BINDIR:"*) ;; *) say "$BINDIR is not in PATH" ;; esac
