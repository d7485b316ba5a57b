# Every target with a `##` comment is listed by `make help`.

# A pipe fails when any of its commands does.
SHELL = bash
.SHELLFLAGS = -o pipefail -c

CARGO ?= cargo
TRIPLE = x86_64-unknown-linux-gnu
TARGET = $(or $(CARGO_TARGET_DIR),target)
BIN = $(TARGET)/debug
# `TESTBED=off` runs the tests on the cluster that KUBECONFIG names.
TESTBED ?= on
TESTBED_NAME ?= default

# A real node needs root; without it the tests that need one are skipped.
ifeq ($(shell id -u),0)
LEVEL ?= node
else
LEVEL ?= control-plane
endif

ifeq ($(TESTBED),off)
export TESTBED
ON_CLUSTER =
else
# Starts the testbed unless it is running, and afterwards stops it only if it was started here.
ON_CLUSTER = $(BIN)/testbed run --name $(TESTBED_NAME) --level $(LEVEL) --audit --
endif

# `make install` and related targets use the testbed. With TESTBED=off, or with an IMAGE that its nodes
# can pull, they use the cluster that KUBECONFIG names.
ifneq ($(filter off,$(TESTBED))$(IMAGE),)
KUBECTL ?= kubectl
ON_TESTBED =
else
IMAGE = flux-operator.test/flux-operator:dev
ON_TESTBED = $(TARGET)/testbed/$(TESTBED_NAME)/kubeconfig
KUBECTL = KUBECONFIG=$(ON_TESTBED) $(TARGET)/testbed/bin/kubectl
endif
OPERATOR_NAMESPACE ?= operator-system
# More arguments for `flux-operator manifests`, such as --replicas 2.
INSTALL ?=
MANIFESTS = $(BIN)/flux-operator manifests --namespace $(OPERATOR_NAMESPACE) \
	$(if $(IMAGE),--image $(IMAGE)) $(INSTALL)
# A placeholder for an image that is chosen later: no registry can have it.
NO_IMAGE = flux-operator.invalid/flux-operator:dev
# The Cargo profile of the programs in the image. With `release` the image has 26 MB; `dev` builds fastest.
PROFILE ?= small
PROGRAMS = $(TARGET)/$(TRIPLE)/$(PROFILE:dev=debug)
# The operator's own profile is like `small`, but unwinds on panic.
OPERATOR_PROFILE = $(PROFILE:small=operator)
OPERATOR = $(TARGET)/$(TRIPLE)/$(OPERATOR_PROFILE:dev=debug)/flux-operator

STATIC = RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --target $(TRIPLE)

.DEFAULT_GOAL := build
.PHONY: build demo help test test-unit static test-k8s test-e2e testbed-build testbed-up testbed-down \
	image image-gke install uninstall run apply job redo list log bench burst-day lint fmt manifests check-manifests fuzz clean

help: ## List every target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs; with target/debug in PATH, `kubectl minicluster` works
	$(CARGO) build
	ln -sf flux-operator $(BIN)/kubectl-minicluster
# Older builds named fluxlet `flux`, which would hide a real Flux.
	@rm -f $(BIN)/flux

demo: build ## Show a MiniCluster of 4, a queue and connected MiniClusters on this machine, without Kubernetes
	@examples/demo.sh $(BIN)/flux-operator

test: forget-tests lint check-manifests test-unit static ## Run everything that gates a merge
	$(CARGO) test --no-run --workspace
	$(MAKE) --no-print-directory on-cluster RUN="$(if $(or $(filter node,$(LEVEL)),$(filter off,$(TESTBED))),test-k8s-here test-e2e-here,test-k8s-here)"
	@tests/skipped.sh $(TEST_LOG)
ifeq ($(TESTBED),off)
	@echo "skipped: tests/e2e except smoke, which need the testbed's images: unset TESTBED"
else ifneq ($(LEVEL),node)
	@echo "skipped: tests/e2e, which need a real node: run as root"
endif

# Everything that tests print; `make test` lists the skipped ones from it.
TEST_LOG = $(TARGET)/tests.log
RECORD = | tee -a $(TEST_LOG)
.PHONY: forget-tests
forget-tests:
	@mkdir -p $(TARGET)
	@rm -f $(TEST_LOG)

test-unit: ## Run unit and property tests: no cluster, no root
	$(CARGO) test $(if $(FLUX_ROOT),-- --include-ignored) </dev/null $(RECORD)

static: ## Build the programs that run in any image, linked statically: operator, agent, fluxlet
	$(STATIC) -p flux-operator -p flux-operator-agent -p flux-operator-fluxlet

test-k8s: ## Run tests that need a real API server
	$(MAKE) --no-print-directory on-cluster RUN=test-k8s-here

test-e2e: static ## Run tests that need a real kubelet (root); FLUX_ROOT=PREFIX runs them with a real Flux
	$(MAKE) --no-print-directory on-cluster RUN=test-e2e-here

.PHONY: on-cluster test-k8s-here test-e2e-here
on-cluster: testbed-build
	$(ON_CLUSTER) $(MAKE) --no-print-directory $(RUN)
# The test files of a folder, as arguments for `cargo test --workspace`. For one package alone
# Cargo would rebuild most dependencies with only the features that this package enables.
FILES = $(patsubst tests/$(1)/tests/%.rs,--test=%,$(wildcard tests/$(1)/tests/*.rs)) \
	$(patsubst tests/$(1)/tests/%/main.rs,--test=%,$(wildcard tests/$(1)/tests/*/main.rs))
# Some tests run the program itself.
test-k8s-here: build
	$(CARGO) test --workspace --no-fail-fast $(call FILES,k8s) $(RECORD)
# MiniClusters need images that only the testbed has, and one test a program that the testbed does not run.
test-e2e-here: build
	$(if $(filter off,$(TESTBED)),,$(BIN)/testbed build --level $(LEVEL) --with cluster-api)
	$(E2E_THREADS) $(CARGO) test --workspace --no-fail-fast $(E2E_FILES) $(if $(FLUX_ROOT),-- --include-ignored) $(RECORD)
E2E_FILES = $(if $(filter off,$(TESTBED)),--test=smoke,$(call FILES,e2e))
# These tests mostly wait for brokers: run more of them than there are cores.
E2E_THREADS = RUST_TEST_THREADS=4

ifeq ($(TESTBED),off)
testbed-build:
else
testbed-build: build ## Build Kubernetes, etcd, containerd and CoreDNS for the testbed
	$(BIN)/testbed build --level $(LEVEL)
endif

testbed-up: testbed-build ## Start a real Kubernetes on this machine (TESTBED_NAME=, LEVEL=api-server|control-plane|node)
	$(BIN)/testbed up --name $(TESTBED_NAME) --level $(LEVEL)

testbed-down: build ## Stop the testbed and remove its files
	$(BIN)/testbed down --name $(TESTBED_NAME)

image: build ## Write the operator's image, from scratch, to target/image/flux-operator.tar (IMAGE=, PROFILE=)
	$(STATIC) --profile $(OPERATOR_PROFILE) -p flux-operator
	$(STATIC) --profile $(PROFILE) -p flux-operator-agent $(SAMPLES_FLUX)
	@mkdir -p $(TARGET)/image
	$(BIN)/testbed image build --tag $(or $(IMAGE),flux-operator:dev) --output $(TARGET)/image/flux-operator.tar \
		--add $(OPERATOR):/flux-operator \
		--add $(PROGRAMS)/flux-operator-agent:/flux-operator-agent \
		--entrypoint /flux-operator --user 65532:65532
	@ls -l $(TARGET)/image/flux-operator.tar | awk '{ printf "%s: %.1f MB\n", $$NF, $$5 / 1e6 }'

# Google's API is asked with TLS, so the image has the certificate authorities of this machine.
AUTHORITIES ?= /etc/ssl/certs/ca-certificates.crt
image-gke: build ## Write the image of flux-operator-gke to target/image/flux-operator-gke.tar (GKE_IMAGE=, PROFILE=)
	$(STATIC) --profile $(PROFILE) -p flux-operator-gke
	@mkdir -p $(TARGET)/image
	$(BIN)/testbed image build --tag $(or $(GKE_IMAGE),flux-operator-gke:dev) \
		--output $(TARGET)/image/flux-operator-gke.tar \
		--add $(PROGRAMS)/flux-operator-gke:/flux-operator-gke \
		--add $(AUTHORITIES):/etc/ssl/certs/ca-certificates.crt \
		--entrypoint /flux-operator-gke --user 65532:65532
	@ls -l $(TARGET)/image/flux-operator-gke.tar | awk '{ printf "%s: %.1f MB\n", $$NF, $$5 / 1e6 }'

.PHONY: image-there
ifdef ON_TESTBED
# The samples' image contains fluxlet, or a real Flux if FLUX_ROOT is set.
image-there: SAMPLES_FLUX = $(if $(FLUX_ROOT),,-p flux-operator-fluxlet)
image-there: testbed-up image
	$(BIN)/testbed image import --name $(TESTBED_NAME) $(TARGET)/image/flux-operator.tar
	STATIC_PROGRAMS=$(PROGRAMS) $(BIN)/testbed-samples import $(TESTBED_NAME)
else
image-there:
endif

install: build image-there ## Install the operator in the testbed, or in the cluster of KUBECONFIG with IMAGE=
	$(MANIFESTS) | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(if $(ON_TESTBED),$(KUBECTL) rollout restart -n $(OPERATOR_NAMESPACE) deployment)
	@for it in $$($(KUBECTL) get -n $(OPERATOR_NAMESPACE) deployments -o name); do \
		$(KUBECTL) rollout status -n $(OPERATOR_NAMESPACE) $$it --timeout 5m || exit 1; done

# Queues that were used, MiniClusters that have joined others and Bursts have a finalizer of the operator
# or the burst controller, so they are deleted before these are.
uninstall: build ## Remove the operator, with every MiniCluster and queue
	-$(KUBECTL) delete burstpolicies,bursts,fluxjobs,fluxsetups,miniclusters --all --all-namespaces --timeout 1m
	FLUX_OPERATOR_IMAGE=$(NO_IMAGE) $(MANIFESTS) | $(KUBECTL) delete --ignore-not-found -f -

run: build image-there ## Run the operator on this machine instead (REPORT_URL= is where pods reach it)
	@! $(KUBECTL) get -n $(OPERATOR_NAMESPACE) deployment/operator-controller-manager >/dev/null 2>&1 || \
		{ echo "an operator is already installed, and two would conflict: run 'make uninstall' first"; exit 1; }
	$(BIN)/flux-operator crd | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(if $(ON_TESTBED),KUBECONFIG=$(ON_TESTBED)) $(BIN)/flux-operator run $(if $(IMAGE),--agent-image $(IMAGE)) \
		$(addprefix --report-url ,$(or $(REPORT_URL),$(TESTBED_REPORT_URL)))

# Pods of the testbed reach this machine at the address of the testbed's API server.
TESTBED_REPORT_URL = $(if $(ON_TESTBED),$(shell sed -n 's|.*"server": "https\(.*\):.*|http\1:8080|p' $(ON_TESTBED)))

# What `make apply` and `make job` create, in the namespace of the kubeconfig's context.
SETUP ?= examples/queue/setup.yaml
JOB ?= examples/queue/job.yaml
SAMPLES = app.kubernetes.io/part-of=flux-operator-sample
# The testbed's node cannot pull images: there a job runs in the image that `make install` and
# `make run` import, with fluxlet or the Flux of FLUX_ROOT in it.
SAMPLE_JOB = $(if $(ON_TESTBED),$(BIN)/testbed-samples manifest,cat) $(JOB)
PLUGIN = $(if $(ON_TESTBED),KUBECONFIG=$(ON_TESTBED)) $(BIN)/kubectl-minicluster

apply: build ## Create the sample queue (SETUP=)
	$(BIN)/flux-operator crd | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(KUBECTL) apply -f $(SETUP)

job: build ## Submit a sample job to the queue, wait for completion and show its output (JOB=)
	@created=$$($(SAMPLE_JOB) | $(KUBECTL) create --output name -f -) && for it in $$created; do \
		echo "$$it created"; case $$it in fluxjob*) \
		$(KUBECTL) wait --for jsonpath='{.status.exitCode}' --timeout 5m $$it || exit 1; \
		$(PLUGIN) logs $${it##*/} || echo "only a job with 'keepCluster: true' keeps its output";; \
		esac; done

redo: build ## Delete the sample queue and its jobs, and create the queue again
	$(BIN)/flux-operator crd | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(KUBECTL) delete fluxjobs --selector $(SAMPLES) --ignore-not-found
	$(KUBECTL) delete fluxsetups --selector $(SAMPLES) --ignore-not-found --timeout 1m
	$(KUBECTL) apply -f $(SETUP)
	@$(KUBECTL) get -n $(OPERATOR_NAMESPACE) deployment/operator-controller-manager >/dev/null 2>&1 || \
		echo "no operator is installed: 'make install', or 'make run' in another terminal"
	@echo "submit a job with 'make job', list jobs with 'make list'"

list: ## List queues, jobs and MiniClusters of all namespaces
	@$(KUBECTL) get fluxsetups,fluxjobs,miniclusters --all-namespaces

log: ## Show the operator's log
	@$(KUBECTL) logs -n $(OPERATOR_NAMESPACE) -l control-plane=controller-manager --prefix --tail -1

# Which benchmark to run (throughput, bringup, connect, gateway, burst, queue, all), and its options. Without
# root there is no node, so no cluster can be brought up.
BENCH ?= $(if $(filter node,$(LEVEL)),all,throughput)
BENCH_ARGS ?= --check bench/limits.yaml

# The operator, its queues and the agent are measured with their release profiles. Each is built
# alone, because Cargo would otherwise enable features that only another program needs.
bench: testbed-build ## Measure our operator against the limits of the machine (BENCH=, BENCH_ARGS=, FLUX_ROOT=)
	$(CARGO) build --profile bench -p flux-operator-bench
ifneq ($(filter-out queue,$(BENCH)),)
	$(STATIC) --profile operator -p flux-operator
endif
ifneq ($(filter queue all,$(BENCH)),)
	$(STATIC) --profile operator -p flux-operator-queue-controller
endif
ifneq ($(filter-out throughput queue,$(BENCH)),)
	$(STATIC) --profile small -p flux-operator-agent -p flux-operator-fluxlet
endif
	STATIC_PROGRAMS=$(BIN)/../$(TRIPLE)/operator:$(BIN)/../$(TRIPLE)/small $(BIN)/../release/bench $(BENCH) $(BENCH_ARGS)

burst-day: ## Simulate a day that bursts, and write docs/pictures and docs/concepts/burst-day.md
	$(CARGO) run -q -p flux-operator-burst-day -- --docs docs

lint: ## Check formatting, lints and misleading phrases; the pure crates also alone, as Cargo unifies features
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@! git grep -niE -f tests/misleading-phrases.txt -- . ':!tests/misleading-phrases.txt' || \
		{ echo "these phrases mislead readers: say it plainly, with the terms of docs/glossary.md"; exit 1; }
	for crate in flux wire api queue burst plan install; do $(CARGO) check -q -p flux-operator-$$crate || exit 1; done

fmt: ## Format the code
	$(CARGO) fmt --all

manifests: build ## Write the generated files: config, docs/reference, docs/guide/troubleshooting.md
	$(BIN)/flux-operator manifests --image $(NO_IMAGE) --output config
	UPDATE_REFERENCE=1 $(CARGO) test -q -p flux-operator-plan --test fields the_reference_is_current
	UPDATE_REFERENCE=1 $(CARGO) test -q -p flux-operator-api --test troubleshooting is_current
	UPDATE_REFERENCE=1 $(CARGO) test -q -p flux-operator-api --test openapi is_current

check-manifests: build ## Fail when a generated file is stale
	$(BIN)/flux-operator manifests --image $(NO_IMAGE) --output $(TARGET)/manifests
	@for part in crd operator; do diff -r config/$$part $(TARGET)/manifests/$$part || \
		{ echo "config/$$part is stale: run 'make manifests' and commit it"; exit 1; }; done

fuzz: ## Fuzz every parser for a minute each (needs nightly Rust and cargo-fuzz)
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
		$(CARGO) +nightly fuzz run $$target -- -max_total_time=60 || exit 1; done

clean: ## Remove build output and the testbed
	-[ -x $(BIN)/testbed ] && $(BIN)/testbed down --all
	$(CARGO) clean
