#!/usr/bin/env bash
# Builds the TypeScript client into clients/ts/dist/, unless it is up to date. Fails if its types are not those of the
# OpenAPI document.
source "$(dirname "$0")/env.sh"

node_packages clients/ts
built=clients/ts/dist/index.js
[ -e "$built" ] &&
    [ -z "$(find clients/ts/{src,package.json,tsconfig.json} docs/openapi.json -newer "$built" -print -quit)" ] && exit
npm run --silent types:check --prefix clients/ts >/dev/null ||
    die "clients/ts/src/openapi.ts is not up to date; run: npm run types --prefix clients/ts"
say "building the TypeScript client"
rm -rf clients/ts/dist
quietly npm run build --prefix clients/ts
