#!/usr/bin/env bash
# Runs everything locally, without an account. Settings: WORKER, PORT (8787), STATE_DIR (.state in the Worker's folder).
source "$(dirname "$0")/env.sh"

PORT="${PORT:-8787}"
STATE_DIR="${STATE_DIR:-.state}"
url="http://localhost:$PORT"

if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then
    die "port $PORT is taken; stop the program that listens there, or: make dev PORT=8788"
fi
scripts/setup.sh
scripts/build.sh
cd "$WORKER"

# Keys are created once and never replaced, so that clients keep theirs.
key() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" .dev.vars | tail -1; }
(umask 077 && touch .dev.vars)
for name in DEV_API_KEY ADMIN_KEY; do
    [ -n "$(key $name)" ] && continue
    # A last line written by hand may lack its newline.
    [ -z "$(tail -c1 .dev.vars)" ] || echo >>.dev.vars
    echo "$name=\"$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')\"" >>.dev.vars
done
[ "$(key ADMIN_KEY | tr -d '\n' | wc -c)" -ge 32 ] ||
    die "the ADMIN_KEY in $WORKER/.dev.vars has less than 32 bytes; replace it by the output of: openssl rand -hex 32"

say "applying migrations to $STATE_DIR"
log="$(mktemp)"
for db in $(databases); do
    wrangler d1 migrations apply "$db" --local --persist-to "$STATE_DIR" >"$log" 2>&1 ||
        { cat "$log" >&2; rm -f "$log"; die "applying the migrations to $db failed"; }
done
rm -f "$log"

# Wrangler builds the Worker again after each change.
use_wasm_tools
# Starts a separate process group, so that no workerd process outlives this script.
set -m
wrangler dev --ip 127.0.0.1 --port "$PORT" --inspector-port 0 --persist-to "$STATE_DIR" \
    --test-scheduled --show-interactive-dev-session=false </dev/null &
server=$!
stop() {
    trap - EXIT INT TERM HUP
    kill -TERM -- "-$server" 2>/dev/null || true
    for _ in $(seq 50); do kill -0 -- "-$server" 2>/dev/null || break; sleep 0.1; done
    kill -KILL -- "-$server" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 0' INT TERM HUP

until curl -fs -m 2 -o /dev/null "$url/healthz"; do
    kill -0 "$server" 2>/dev/null || die "wrangler dev exited; see its output above"
    sleep 0.2
done

# A malformed setting does not keep the server from starting, so it would show only in the first response.
ready="$(curl -s -m 10 "$url/readyz" || true)"
case "$ready" in
    *'"detail"'*) echo "==> warning: the server is not ready: $ready" >&2 ;;
esac

cat <<EOF

  page            $url/#key=$(key DEV_API_KEY)
  edge-harness    $url
  key             $(key DEV_API_KEY)

  curl -N $url/v1/sessions/hello/messages \\
    -H 'Authorization: Bearer $(key DEV_API_KEY)' \\
    -H 'Content-Type: application/json' -H 'Accept: text/event-stream' \\
    -d '{"content": "Hello!"}'

  Press Ctrl-C to stop.

EOF
wait "$server"
