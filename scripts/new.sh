#!/usr/bin/env bash
# Creates a crate for a Worker of your own: copies examples/my-agent into the new folder WORKER and names it after it.
source "$(dirname "$0")/env.sh"
example="$PWD/examples/my-agent" name="$(basename "$WORKER")"

[ "$WORKER" != "$PWD" ] || die "DIR is missing: make new DIR=../my-agent"
[ ! -e "$WORKER" ] || [ -z "$(ls -A "$WORKER" 2>&1)" ] || die "$WORKER exists and is not empty"
# Cargo requires a letter first. The other limits are those of a bucket.
[[ "$name" =~ ^[a-z][a-z0-9-]{1,61}[a-z0-9]$ ]] ||
    die "the folder's name becomes the name of the crate, the Worker, the database and the bucket, so it must have 3 to 63
lowercase letters, digits and hyphens, start with a letter and not end with a hyphen; found: $name"
# Cargo also refuses Rust's keywords and the names of its own crates.
scratch="$(mktemp -d)"
refusal="$(cargo new --quiet --lib --vcs none "$scratch/$name" 2>&1)" || { refusal="${refusal%%$'\n'*}"; die "${refusal#error: }"; }
rm -r "$scratch"
[ -z "$(locked "$name")" ] || die "the crate cannot have the name of one of its dependencies: $name"

mkdir -p "$WORKER"
# Build output, keys and state stay behind.
cp -pR "$example"/{.gitignore,Cargo.toml,Cargo.lock,build.sh,package.json,wrangler.toml,src} "$WORKER"

library="$(realpath --relative-to "$WORKER" .)"
# Replaces a text in a file of the copy: `replace FILE FROM TO`.
replace() {
    local text; text="$(<"$WORKER/$1")"
    printf '%s\n' "${text//"$2"/"$3"}" >"$WORKER/$1"
}
replace Cargo.toml 'name = "my-agent"' "name = \"$name\""
replace Cargo.lock 'name = "my-agent"' "name = \"$name\""
replace Cargo.toml 'path = "../.."' "path = \"$library\""
replace wrangler.toml '"my-agent"' "\"$name\""
replace wrangler.toml '"../../migrations"' "\"$library/migrations\""
replace wrangler.toml '"../../web/dist"' "\"$library/web/dist\""

say "created $WORKER; start it: make dev DIR=$WORKER"
