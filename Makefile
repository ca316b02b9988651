# `make` lists the targets. Each is a thin name for a command that also works without make.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-geth sim fmt fmt-check lint bench bench-store bench-strict deny clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what build and tests need; silent when nothing is missing
	@scripts/setup.sh

demo: setup ## A local chain, sample transactions to CONFIRMED, and an API to play with
	cargo run --release -p gapless -- dev

test: setup fmt-check lint ## Format check, lints and all tests; those on geth where Go is installed
	@scripts/test.sh

test-geth: setup ## Only the tests on geth, which is built first where Go is installed
	@scripts/test.sh --only-geth

sim: ## 1,000 seeded worlds: crashes, takeovers, lost answers, reorgs; every invariant after every step
	cargo run --quiet -p gapless-sim -- --seeds 1000

fmt: ## Format all Rust code
	cargo fmt --all

fmt-check: ## Fail if any Rust code is not formatted
	cargo fmt --all --check

lint: ## Clippy over everything, warnings are errors
	cargo clippy --workspace --all-targets --all-features -- -D warnings

bench: setup ## Measure from POST to CONFIRMED beside the node by itself; ARGS="pipelined --count 5000" asks for less
	cargo run --release -p gapless -- bench $(ARGS)

bench-store: setup ## Measure the stores
	cargo run --release -p gapless-benches --bin bench-store

bench-strict: setup ## Measure strict mode on a local chain with one block a second
	cargo run --release -p gapless -- bench strict --store sqlite --submitters 1,200

deny: ## Check licences, banned crates, sources and advisories
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny check; \
	else \
		echo "cargo-deny is missing. Run: cargo install --locked cargo-deny" >&2; exit 1; \
	fi

clean: ## Remove what was built; tools stay in .tools
	cargo clean
