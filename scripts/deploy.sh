#!/usr/bin/env bash
# Deploys the Worker of this clone, or the one in the folder WORKER, to Cloudflare: applies the D1 migrations, then
# deploys the Worker.
source "$(dirname "$0")/env.sh"
config="$WORKER/wrangler.toml"
[ -e "$config" ] || die "$WORKER contains no Worker; create one in a new folder: make new DIR=../my-agent"

# As you type it in the clone.
npx="npx wrangler"
[ "$WORKER" = "$PWD" ] || npx="npx wrangler --cwd $WORKER"
# Prints a command for each resource that has a name in the configuration: `create COMMAND KEY`.
create() { sed -n "s/^$2 = \"\(.*\)\"\$/\1/p" "$config" | while read -r name; do echo "  $npx $1 create $name"; done; }

grep -q '^database_id = "00000000-' "$config" && die "$config contains placeholder database ids. Create the resources once:
  npx wrangler login     (or set CLOUDFLARE_API_TOKEN)
$(create d1 database_name)
$(create "r2 bucket" bucket_name)
Copy the id that each \`d1 create\` prints to $config, or remove the database DB_1, if it lists one."

scripts/setup.sh
scripts/build.sh
cd "$WORKER"
use_wasm_tools
for db in $(databases); do wrangler d1 migrations apply "$db" --remote; done
wrangler deploy
cat <<EOF

Set the operator's key, and a provider's API key to use real models:
  openssl rand -hex 32                prints a random key; keep it in a safe place
  $npx secret put ADMIN_KEY           asks for this key, which authorizes /v1/admin/*, where you create tenants
  $npx secret put OPENAI_API_KEY      or ANTHROPIC_API_KEY; without either, \`demo/echo\` replies
\`curl URL/readyz\` says whether the Worker accepts its settings.
EOF
