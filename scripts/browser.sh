#!/usr/bin/env bash
# Installs Chromium for the tests of the page, unless there is one.
source "$(dirname "$0")/env.sh"

[ -n "${CHROMIUM:-}" ] && exit
command -v chromium chromium-browser google-chrome >/dev/null && exit
command -v apt-get >/dev/null || die "the tests of the page need Chromium: install it, or set CHROMIUM to its path"
say "installing Chromium"
quietly as_root apt-get update
quietly as_root apt-get install -y --no-install-recommends chromium fonts-dejavu-core
