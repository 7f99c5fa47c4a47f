#!/usr/bin/env bash
# Deploys to Cloudflare: applies the D1 migrations, then deploys the Worker.
source "$(dirname "$0")/env.sh"
scripts/setup.sh
scripts/build.sh

grep -q '^database_id = "00000000-' wrangler.toml && die "wrangler.toml contains placeholder database ids; create the resources once:
  npx wrangler login                      (or set CLOUDFLARE_API_TOKEN)
  npx wrangler d1 create edge-harness     (copy its id to wrangler.toml)
  npx wrangler d1 create edge-harness-1   (likewise, or remove DB_1 from wrangler.toml)
  npx wrangler r2 bucket create edge-harness"

for db in $(databases); do wrangler d1 migrations apply "$db" --remote; done
wrangler deploy
cat <<'EOF'

Set the admin key, and a provider's API key to use real models:
  npx wrangler secret put ADMIN_KEY           authorizes /v1/admin/*, where you create tenants and their keys
  npx wrangler secret put OPENAI_API_KEY      or ANTHROPIC_API_KEY; without either, `demo/echo` replies
EOF
