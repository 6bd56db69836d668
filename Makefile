# make setup        install what is missing on this host, fetch the stock kernels
# make build        build everything, optimised
# make demo         show promotion in an emulated machine with slow memory
# make test         every check, the unit tests, and tests in emulated machines: most of an hour
# make test-long    all tests on every kernel, no run cut short, and what only measures: hours
# make lint         formats and clippy, warnings are errors
# make unit         the tests that need no emulated machine
# make vm-6.12      the tests in emulated machines on one kernel of testbed/kernels.toml
# make package      a static pghot, a .deb, an .rpm and a container image, into out/
# make package-test install, kill, upgrade and remove the .deb in a guest with a real Debian
# make kube-test    install, kill, upgrade and remove the Helm chart on a Kubernetes of one node in a guest
# make chart-test   render the Helm chart and check it against the schemas of Kubernetes
# make docs-samples  what commands print in the documents, anew from guests; then look at the difference
# make deny         licences and sources of dependencies
# make accuracy     how exactly each hotness source finds a known hot set
# make costs        what each hotness source costs, and what programs feel of it
# make fuzz         12.5 million runs of each fuzz target, half an hour
# make bench        measure the hot paths
# make bench-quick  compare pghot with its rivals at two workloads, in about ten minutes
# make doc          build the documentation of the code

CARGO ?= cargo
VM_TEST = PGHOT_LONG=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm --
CACHE = $${PGHOT_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/pghot}
CHART_TEST = "$(CACHE)/helm/python/bin/python" packaging/helm/check.py "$(CACHE)/helm/helm" \
	"$(CACHE)/helm/podmonitors.yaml"

.PHONY: setup build demo test test-long lint unit package package-test kube-test chart-test docs-samples deny fuzz accuracy costs bench bench-quick doc

setup:
	@testbed/setup.sh

build: setup
	$(CARGO) build --release --workspace

# What is needed is fetched while the compiler runs.
demo:
	@testbed/setup.sh --host
	@testbed/setup.sh --demo & fetch=$$!; \
		$(CARGO) build --release --workspace && wait $$fetch
	@target/release/pghot-bench --preset demo

lint: setup
	$(CARGO) fmt --all --check
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) fetch --quiet --locked --manifest-path fuzz/Cargo.toml

unit: setup
	@testbed/run-tests.sh unit

vm-%: setup
	@testbed/run-tests.sh $*

test: lint
	@testbed/setup.sh --bench
	@testbed/run-tests.sh

test-long: lint deny package
	@testbed/setup.sh --bench --kube
	@PGHOT_LONG=1 testbed/run-tests.sh
	@$(CHART_TEST)

package: setup
	@testbed/setup.sh --package
	@packaging/build.sh

package-test: package build
	PGHOT_LONG=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm_package

kube-test: package build
	@testbed/setup.sh --kube
	PGHOT_LONG=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm_kube

chart-test: setup
	@testbed/setup.sh --package
	@$(CHART_TEST)

fuzz: setup
	@fuzz/run

docs-samples: build
	PGHOT_BLESS=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm -- 6.12::tiered3::top_shows
	PGHOT_BLESS=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm -- 6.12::tiered3::a_session_of_top
	PGHOT_BLESS=1 $(CARGO) test --quiet --release -p pghot-testbed --test vm -- 6.12::tiered3::the_heatmap
	PGHOT_BLESS=1 $(CARGO) test --quiet --release -p pghot-cli

deny:
	$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

accuracy: build
	@$(VM_TEST) accuracy

costs: build
	@$(VM_TEST) costs

bench: setup
	$(CARGO) bench -p pghot-hotness -p pghot-engine -p pghot-hint -p pghot-sim

bench-quick: build
	@testbed/setup.sh --bench
	@target/release/pghot-bench --preset quick

doc: setup
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
