#!/usr/bin/env bash
# Uploads the folder DIR as files that all users of the agent AGENT share:
# DIR=path AGENT=id [URL=http://localhost:8787] [KEY=a key with the scope admin].
# Without KEY, the development key of .dev.vars is used.
HERE="$PWD"
source "$(dirname "$0")/env.sh"
[ -n "${DIR:-}" ] && [ -n "${AGENT:-}" ] || die "DIR and AGENT are missing: make workspace-push DIR=path AGENT=id"
case "$DIR" in /*) ;; *) DIR="$HERE/$DIR" ;; esac
[ -d "$DIR" ] || die "folder not found: $DIR"
source scripts/key.sh
export DIR AGENT
exec node scripts/workspace-push.mjs
