# make setup        install what is missing on this host, fetch the stock kernels
# make build        build everything, optimised
# make demo         show promotion in an emulated machine with slow memory
# make test         every check and every test, those in emulated machines included
# make accuracy     how exactly each hotness source finds a known hot set
# make costs        what each hotness source costs, and what programs feel of it
# make stress       ten minutes of all sources while processes and memory come and go
# make bench        measure the hot paths
# make bench-quick  compare pghot with its rivals at small size, in about ten minutes
# make doc          build the documentation of the code

CARGO ?= cargo

.PHONY: setup build demo test check accuracy costs stress bench bench-quick doc

setup:
	@testbed/setup.sh

build: setup
	$(CARGO) build --release --workspace

demo: build
	@$(CARGO) run --quiet --release -p pghot-testbed --bin demo

check: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: check
	@testbed/setup.sh --bench
	@testbed/run-tests.sh

accuracy: build
	@$(CARGO) test --quiet --release -p pghot-testbed --test vm -- accuracy

costs: build
	@$(CARGO) test --quiet --release -p pghot-testbed --test vm -- costs

stress: build
	@PGHOT_STRESS_SECONDS=600 $(CARGO) test --quiet --release -p pghot-testbed --test vm -- stress

bench: setup
	$(CARGO) bench -p pghot-hotness -p pghot-hint -p pghot-sim

bench-quick: build
	@testbed/setup.sh --bench
	@$(CARGO) run --quiet --release -p pghot-bench -- --quick

doc: setup
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
