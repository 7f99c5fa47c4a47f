#!/usr/bin/env bash
# Builds the API reference into web/dist/docs/: Swagger UI, and the files of web/docs/ that start it.
source "$(dirname "$0")/env.sh"

node_packages web/docs
mkdir -p web/dist/docs
cp web/docs/{index.html,docs.js} web/docs/node_modules/swagger-ui-dist/{swagger-ui.css,swagger-ui-bundle.js} web/dist/docs/
