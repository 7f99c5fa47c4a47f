#!/usr/bin/env bash
# Deploys to Cloudflare: the D1 migrations, then the Worker.
source "$(dirname "$0")/env.sh"
scripts/setup.sh
scripts/build.sh

grep -q '^database_id = "00000000-' wrangler.toml && die "wrangler.toml has no ids of real databases; create them once:
  npx wrangler login                      (or set CLOUDFLARE_API_TOKEN)
  npx wrangler d1 create edge-harness     (its id goes into wrangler.toml)
  npx wrangler d1 create edge-harness-1   (likewise; or remove DB_1 from wrangler.toml)
  npx wrangler r2 bucket create edge-harness"

for db in $(databases); do wrangler d1 migrations apply "$db" --remote; done
wrangler deploy
cat <<'EOF'

The Worker needs one secret, and a provider's key for real models:
  npx wrangler secret put ADMIN_KEY           opens /v1/admin/*, which makes tenants and their keys
  npx wrangler secret put OPENAI_API_KEY      or ANTHROPIC_API_KEY; without one, `demo/echo` answers
EOF
