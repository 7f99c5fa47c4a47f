#!/usr/bin/env bash
# Builds the TypeScript client into clients/ts/dist/, unless it is up to date.
source "$(dirname "$0")/env.sh"

node_packages clients/ts
built=clients/ts/dist/index.js
[ -e "$built" ] && [ -z "$(find clients/ts/{src,package.json,tsconfig.json} -newer "$built" -print -quit)" ] && exit
say "building the TypeScript client"
rm -rf clients/ts/dist
quietly npm run build --prefix clients/ts
