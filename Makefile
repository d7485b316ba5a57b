# Every target that takes a `##` is listed by `make help`.

CARGO ?= cargo
TRIPLE = x86_64-unknown-linux-gnu
BIN = $(or $(CARGO_TARGET_DIR),target)/debug
# `TESTBED=off` runs the tests on the cluster that KUBECONFIG names.
TESTBED ?= on
TESTBED_NAME ?= default

# A real node needs root; without it the tests that need one are left out.
ifeq ($(shell id -u),0)
LEVEL ?= node
else
LEVEL ?= control-plane
endif

ifeq ($(TESTBED),off)
export TESTBED
ON_CLUSTER =
else
# Starts the testbed unless it runs, and stops it again if it did not.
ON_CLUSTER = $(BIN)/testbed run --name $(TESTBED_NAME) --level $(LEVEL) --
endif

.DEFAULT_GOAL := build
.PHONY: build demo help test test-unit static test-k8s test-e2e testbed-build testbed-up testbed-down \
	lint fmt manifests check-manifests fuzz clean

help: ## List every target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs; with target/debug on the search path, kubectl has `kubectl minicluster`
	$(CARGO) build
	ln -sf flux-operator $(BIN)/kubectl-minicluster

demo: build ## Show a MiniCluster of 4 on this machine, without Kubernetes
	@examples/demo.sh $(BIN)/flux-operator

test: lint check-manifests test-unit static ## Everything that gates a merge
	$(CARGO) test --no-run --workspace
	$(MAKE) --no-print-directory on-cluster RUN="$(if $(or $(filter node,$(LEVEL)),$(filter off,$(TESTBED))),test-k8s-here test-e2e-here,test-k8s-here)"
ifneq ($(LEVEL),node)
	@echo "left out: test-e2e, because a real node needs root"
endif

test-unit: ## Unit and property tests: no cluster, no root
	$(CARGO) test

static: ## Build the programs that run in any image: the agent and fluxlet, linked statically
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --target $(TRIPLE) -p flux-operator-agent -p flux-operator-fluxlet

test-k8s: ## Tests that need a real API server
	$(MAKE) --no-print-directory on-cluster RUN=test-k8s-here

test-e2e: static ## Tests that need a real kubelet (root); FLUX_ROOT=PREFIX runs them with a real Flux
	$(MAKE) --no-print-directory on-cluster RUN=test-e2e-here

.PHONY: on-cluster test-k8s-here test-e2e-here
on-cluster: testbed-build
	$(ON_CLUSTER) $(MAKE) --no-print-directory $(RUN)
test-k8s-here:
	$(CARGO) test -p flux-operator-tests-k8s
# MiniClusters need images that only the testbed is given. One test runs the program itself.
test-e2e-here:
	$(CARGO) build -p flux-operator
	$(CARGO) test -p flux-operator-tests-e2e $(if $(filter off,$(TESTBED)),--test smoke)

ifeq ($(TESTBED),off)
testbed-build:
else
testbed-build: ## Build Kubernetes, etcd, containerd and CoreDNS for the testbed
	$(CARGO) build -p flux-operator-testbed
	$(BIN)/testbed build --level $(LEVEL)
endif

testbed-up: testbed-build ## Start a real Kubernetes on this machine (TESTBED_NAME=, LEVEL=control-plane|node)
	$(BIN)/testbed up --name $(TESTBED_NAME) --level $(LEVEL)

testbed-down: ## Remove every trace of it
	$(CARGO) build -q -p flux-operator-testbed
	$(BIN)/testbed down --name $(TESTBED_NAME)

lint: ## Formatting and lints; the pure crates also alone, as Cargo unifies features
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	for crate in flux wire api plan; do $(CARGO) check -q -p flux-operator-$$crate || exit 1; done

fmt: ## Format the code
	$(CARGO) fmt --all

manifests: ## Write the generated files: config/crd, docs/reference
	$(CARGO) run -q -p flux-operator -- crd --output config/crd
	UPDATE_REFERENCE=1 $(CARGO) test -q -p flux-operator-plan --test fields the_reference_is_current

check-manifests: ## Fail when a generated file is stale
	$(CARGO) run -q -p flux-operator -- crd --output target/manifests/crd
	@diff -r config/crd target/manifests/crd || { echo "config/crd is stale: run 'make manifests' and commit it"; exit 1; }

fuzz: ## Fuzz every parser for a minute each (needs nightly Rust and cargo-fuzz)
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
		$(CARGO) +nightly fuzz run $$target -- -max_total_time=60 || exit 1; done

clean: ## Remove what was built, and the testbed
	-[ -x $(BIN)/testbed ] && $(BIN)/testbed down --all
	$(CARGO) clean
