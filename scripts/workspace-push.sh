#!/usr/bin/env bash
# Uploads the folder DIR as files that all users of the agent AGENT share:
# DIR=path AGENT=id [URL=http://localhost:8787] [KEY=a key with the scope admin].
# Without KEY, the development key of .dev.vars is used.
HERE="$PWD"
source "$(dirname "$0")/env.sh"
[ -n "${DIR:-}" ] && [ -n "${AGENT:-}" ] || die "DIR and AGENT are missing: make workspace-push DIR=path AGENT=id"
case "$DIR" in /*) ;; *) DIR="$HERE/$DIR" ;; esac
[ -d "$DIR" ] || die "folder not found: $DIR"
URL="${URL:-http://localhost:8787}"
if [ -z "${KEY:-}" ] && [ -f .dev.vars ]; then
    KEY="$(sed -n 's/^DEV_API_KEY="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' .dev.vars)"
fi
[ -n "${KEY:-}" ] || die "KEY is missing"
DIR="$DIR" AGENT="$AGENT" URL="${URL%/}" KEY="$KEY" exec node scripts/workspace-push.mjs
