#!/usr/bin/env bash
# Stores each agent in the folder DIR as a new version: DIR=path [URL=http://localhost:8787] [KEY=a key with the scope
# admin]. DIR is the folder of one agent, or has a folder for each. Without KEY, the development key of .dev.vars is used.
HERE="$PWD"
source "$(dirname "$0")/env.sh"
[ -n "${DIR:-}" ] || die "DIR is missing: make agents-push DIR=examples/agents"
case "$DIR" in /*) ;; *) DIR="$HERE/$DIR" ;; esac
[ -d "$DIR" ] || die "folder not found: $DIR"
source scripts/key.sh
export DIR
exec node scripts/agents-push.mjs
