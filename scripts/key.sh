# Sourced by scripts that call a server: sets URL and KEY. Without KEY, the development key of .dev.vars is used.
# shellcheck shell=bash
URL="${URL:-http://localhost:8787}"
if [ -z "${KEY:-}" ] && [ -f .dev.vars ]; then
    KEY="$(sed -n 's/^DEV_API_KEY="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' .dev.vars)"
fi
[ -n "${KEY:-}" ] || die "KEY is missing"
export URL="${URL%/}" KEY
