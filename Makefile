# The index of commands: `make help`.
.DEFAULT_GOAL := help
.PHONY: help setup new build dev check test audit bench sim fuzz conform fmt lint deploy install-cli agents-push workspace-push clean

# The folder of the Worker. Exported, because make passes signals to a script only when no shell is in between.
new build dev deploy: export WORKER = $(DIR)

help: ## prints this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "make %-14s %s\n", $$1, $$2}'

setup: ## installs the build tools and packages
	@scripts/setup.sh

new: ## creates a crate for a Worker of your own: DIR=../my-agent
	@scripts/new.sh

build: setup ## builds the page, and the release Worker into build/: DIR=../my-agent
	@scripts/build.sh

dev: ## runs everything on this machine, without an account: PORT=8787 STATE_DIR=.state DIR=../my-agent
	@scripts/dev.sh

check: ## checks formatting and lints, and runs the tests that need no Worker: the inner loop
	@scripts/check.sh

test: setup ## runs all tests: `make check`, the simulator, and the real Worker over HTTP
	@scripts/test.sh

audit: ## checks rustdoc, the licenses and sources of dependencies, and spelling
	@scripts/audit.sh

bench: build ## measures turns, compared with the smallest possible Worker: COMPARE=commit PARTS="loads counts"
	@COMPARE="$(COMPARE)" PARTS="$(PARTS)" scripts/bench.sh

sim: ## simulates the core: SEEDS=100000 FROM=0, or SEED=7 for one world with its trace, or FAULTS=1
	@scripts/sim.sh

fuzz: setup ## sends random requests of several users and tenants to the real Worker: REQUESTS=20000 SEED=7
	@scripts/fuzz.sh

conform: setup ## compares the real Worker with its OpenAPI document, with random requests: EXAMPLES=5000 SEED=7
	@EXAMPLES="$(EXAMPLES)" SEED="$(SEED)" scripts/schemathesis.sh

fmt: ## formats the code
	@cargo fmt
	@rustfmt src/http/faces/*.rs # which a macro declares

lint: ## checks formatting and clippy, as `make test` does
	@scripts/lint.sh

deploy: ## deploys to Cloudflare: migrations, then the Worker: DIR=../my-agent
	@scripts/deploy.sh

install-cli: ## builds and installs agentctl, the command-line client: BINDIR=/usr/local/bin
	@BINDIR="$(BINDIR)" scripts/install-cli.sh

agents-push: ## stores each agent in a folder as a new version: DIR=examples/agents URL=http://localhost:8787 KEY=…
	@DIR="$(DIR)" URL="$(URL)" KEY="$(KEY)" scripts/agents-push.sh

workspace-push: ## uploads a folder as files that all users of an agent share: DIR=path AGENT=id URL=http://localhost:8787 KEY=…
	@DIR="$(DIR)" AGENT="$(AGENT)" URL="$(URL)" KEY="$(KEY)" scripts/workspace-push.sh

clean: ## removes build output; keeps the tool cache, keys and state
	@rm -rf build build-fixtures clients/ts/dist web/dist target bench/results
