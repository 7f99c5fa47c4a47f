# The index of commands: `make help`.
.DEFAULT_GOAL := help
.PHONY: help setup build dev test bench sim fmt lint deploy workspace-push clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "make %-14s %s\n", $$1, $$2}'

setup: ## tools and packages, on a bare machine too
	@scripts/setup.sh

build: setup ## the release Worker, into build/
	@scripts/build.sh

dev: ## everything on this machine, without an account: PORT=8787 STATE_DIR=.state
	@scripts/dev.sh

test: setup ## formatting, lints, unit tests, then integration tests against a real Worker
	@scripts/test.sh

bench: build ## turns beside the smallest possible Worker
	@scripts/bench.sh

sim: ## the core in simulated worlds: SEEDS=100000 FROM=0, or SEED=7 for one with its trace, or FAULTS=1
	@scripts/sim.sh

fmt: ## formats the code
	@cargo fmt

lint: ## formatting and clippy, as `make test` does them
	@scripts/lint.sh

deploy: ## migrations, then the Worker, to Cloudflare
	@scripts/deploy.sh

workspace-push: ## a folder as what all users of an agent share: DIR=path AGENT=id URL=http://localhost:8787 KEY=…
	@DIR="$(DIR)" AGENT="$(AGENT)" URL="$(URL)" KEY="$(KEY)" scripts/workspace-push.sh

clean: ## removes what was built; not the tools' cache, keys or state
	@rm -rf build build-fixtures target bench/results
