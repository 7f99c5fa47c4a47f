#!/usr/bin/env bash
# Builds the page and the API reference into web/dist/, unless the page is up to date. Prints the size and fails if it exceeds the limit.
source "$(dirname "$0")/env.sh"

# In kB, gzipped: all that a browser loads for the page.
LIMIT_KB=100

node_packages web
page=web/dist/index.html
if ! [ -e "$page" ] || [ -n "$(find web/{src,public,*.*} clients/ts/src -newer "$page" -print -quit)" ]; then
    say "building the page into web/dist/"
    quietly npm run build --prefix web
fi
scripts/reference.sh

gz=$(($(find web/dist/{index.html,icon.svg,assets} -type f -exec gzip -9c {} \; | wc -c) / 1000))
say "web/dist: $gz kB gzipped (limit $LIMIT_KB)"
[ "$gz" -le "$LIMIT_KB" ] || die "the page exceeds $LIMIT_KB kB gzipped"
